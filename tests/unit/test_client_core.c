/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions against real lane cores, without sockets: a training of a few steps must end with the very bits that the kernels give when they are
 * called directly, for any number of lanes, daemons, workers and micro-batches, in any delivery order, and with cut connections.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client_world.h"
#include "server/kernel/kernel.h"

#define STEPS 3
#define UNITS 4

static struct zd_unit_spec units[UNITS] = {
	{"embed", 70001, 0},
	{"frozen", 40000, 1},
	{"block", 150000, 0},
	{"bias", 10, 0},
};

struct reference {
	uint16_t *hi[UNITS], *lo[UNITS];
	float *m[UNITS], *v[UNITS], *acc[UNITS];
	uint64_t step;
};

struct run {
	uint32_t lanes, daemons, peers, micro;
	enum zd_codec codec;
	enum zd_optimizer optimizer;
	uint32_t cuts; /* per step */
};

/* ---------------------------------------------------------------- data */

static uint32_t mix(uint32_t x)
{
	x ^= x >> 16;
	x *= 0x7feb352du;
	x ^= x >> 15;
	x *= 0x846ca68bu;
	return x ^ x >> 16;
}

static float value(uint32_t what, uint64_t i)
{
	return ((float)(int32_t)(mix(what * 2654435761u + (uint32_t)i) & 0xffff) - 32768.0f) / 65536.0f;
}

static uint16_t to_bf16(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, 4);
	return (uint16_t)((bits + 0x8000u) >> 16);
}

static void *gradient(const struct run *run, uint32_t round, uint32_t unit, uint32_t micro, uint32_t rank)
{
	uint64_t n = units[unit].numel;
	uint32_t what = ((round * 64 + micro) * 64 + rank) * 64 + unit + 1000;
	uint8_t *g = malloc(n * zd_codec_bytes(run->codec));

	assert_non_null(g);
	for (uint64_t i = 0; i < n; i++) {
		float f = value(what, i);
		uint16_t half = to_bf16(f);

		if (run->codec == ZD_CODEC_FP16)
			half = (uint16_t)(0x3000u + (mix(what + (uint32_t)i) & 0x8fffu) % 0x0c00u + (mix(what ^ (uint32_t)i) & 0x8000u));
		if (run->codec == ZD_CODEC_FP32)
			memcpy(g + 4 * i, &f, 4);
		else
			memcpy(g + 2 * i, &half, 2);
	}
	return g;
}

static float *initial(uint32_t unit)
{
	float *w = malloc(units[unit].numel * sizeof(*w));

	assert_non_null(w);
	for (uint64_t i = 0; i < units[unit].numel; i++)
		w[i] = value(unit + 1, i);
	return w;
}

/* ---------------------------------------------------------------- reference */

static void reference_init(struct reference *ref)
{
	const struct zd_kernels *k = zd_kernels_select("");

	memset(ref, 0, sizeof(*ref));
	for (uint32_t u = 0; u < UNITS; u++) {
		uint64_t n = units[u].numel;
		float *w = initial(u);
		struct zd_reduce_result r;

		ref->hi[u] = malloc(2 * n);
		ref->lo[u] = malloc(2 * n);
		ref->m[u] = calloc(n, 4);
		ref->v[u] = calloc(n, 4);
		ref->acc[u] = calloc(n, 4);
		k->split[ZD_CODEC_FP32](ref->hi[u], ref->lo[u], w, n, &r);
		free(w);
	}
}

static void reference_free(struct reference *ref)
{
	for (uint32_t u = 0; u < UNITS; u++) {
		free(ref->hi[u]);
		free(ref->lo[u]);
		free(ref->m[u]);
		free(ref->v[u]);
		free(ref->acc[u]);
	}
}

static struct zd_hyper hyper_of(uint32_t round)
{
	return (struct zd_hyper){.lr = 0.01 / round, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .max_norm = 0.5, .loss_scale = 1};
}

static struct zd_decision reference_step(struct reference *ref, const struct run *run, uint32_t round)
{
	const struct zd_kernels *k = zd_kernels_select("");
	struct zd_record record = {.round = round, .ballot = {1, 0}, .hyper = hyper_of(round), .world = run->peers, .micro_batches = run->micro};
	struct zd_decision d;
	struct zd_adam_params params = {record.hyper.lr, record.hyper.weight_decay, record.hyper.beta1, record.hyper.beta2, record.hyper.eps,
					run->optimizer == ZD_OPT_ADAM_L2};
	struct zd_adam_consts consts;
	char text[200];

	zd_normacc_zero(&record.norm);
	for (uint32_t u = 0; u < UNITS; u++) {
		uint64_t n = units[u].numel, blocks = (n + ZD_BLOCK_ELEMS - 1) / ZD_BLOCK_ELEMS;
		double *sums = malloc(blocks * sizeof(*sums));
		struct zd_reduce_result r;

		if (units[u].frozen) {
			free(sums);
			continue;
		}
		for (uint32_t m = 0; m < run->micro; m++)
			for (uint32_t rank = 0; rank < run->peers; rank++) {
				void *g = gradient(run, round, u, m, rank);

				(m + rank == 0 ? k->acc_set : k->acc_add)[run->codec](ref->acc[u], g, n, sums, &r);
				free(g);
			}
		for (uint64_t b = 0; b < blocks; b++)
			zd_normacc_add(&record.norm, sums[b]);
		free(sums);
	}
	assert_int_equal(zd_decide(&record, 1, ref->step, &d, text, sizeof(text)), 0);
	ref->step = d.step;
	if (run->optimizer == ZD_OPT_NONE)
		return d;
	zd_adam_consts_init(&consts, &params, d.step, d.scale);
	for (uint32_t u = 0; u < UNITS; u++)
		if (!units[u].frozen)
			k->adam[ZD_GRAD_FP32](ref->hi[u], ref->lo[u], ref->m[u], ref->v[u], ref->acc[u], NULL, units[u].numel, &consts, NULL);
	return d;
}

/* ---------------------------------------------------------------- the run */

static void must(struct cw_world *w, const struct cw_result *r)
{
	cw_wait(w, r);
	if (r->status != ZEROD_OK)
		fail_msg("status %d: %s", r->status, r->text);
}

static struct cw_result *ask(struct cw_world *w, uint32_t peer, enum zd_session_event_type type, uint32_t unit)
{
	struct zd_session_event ev = {.type = type, .u.gather.unit = unit};

	return cw_request(w, peer, &ev);
}

static void start_all(struct cw_world *w, const struct run *run)
{
	struct cw_result *r[CW_PEERS];

	for (uint32_t p = 0; p < run->peers; p++)
		r[p] = ask(w, p, ZD_SE_REQ_CONNECT, 0);
	for (uint32_t p = 0; p < run->peers; p++)
		must(w, r[p]);
	if (run->optimizer == ZD_OPT_NONE)
		return;
	for (uint32_t u = 0; u < UNITS; u++) {
		float *init = initial(u);
		struct zd_session_event load = {.type = ZD_SE_REQ_LOAD, .u.load = {u, ZD_CODEC_FP32, init}};

		must(w, cw_request(w, u % run->peers, &load));
		free(init);
	}
	must(w, ask(w, 0, ZD_SE_REQ_SEAL, 0));
}

/* Forward and backward of stage 3, with every weight compared; then all ranks push and step until nobody has to do it again. */
static void gather_all(struct cw_world *w, uint32_t peer, const struct reference *ref)
{
	struct zd_session_view view;

	for (uint32_t i = 0; i < 2 * UNITS; i++) {
		uint32_t u = i < UNITS ? i : 2 * UNITS - 1 - i;
		struct cw_result *r = ask(w, peer, ZD_SE_REQ_GATHER, u);
		struct zd_session_event release = {.type = ZD_SE_REQ_RELEASE, .u.gather = {.unit = u}};

		must(w, r);
		assert_memory_equal(r->weights, ref->hi[u], 2 * units[u].numel);
		cw_request(w, peer, &release);
	}
	zd_session_view(cw_session(w, peer), &view);
	assert_int_equal(view.sealed, 1); /* also for those that did not seal */
}

struct turn {
	struct cw_result *push[UNITS * 2], *step;
	void *grad[UNITS * 2];
	uint32_t pushes;
};

static void push_and_step(struct cw_world *w, const struct run *run, uint32_t peer, uint32_t round, struct turn *t)
{
	struct zd_session_event step = {.type = ZD_SE_REQ_STEP, .u.step = {.hyper = hyper_of(round), .micro_batches = run->micro}};

	t->pushes = 0;
	for (uint32_t m = 0; m < run->micro; m++)
		for (uint32_t u = UNITS; u-- > 0;) {
			struct zd_session_event push = {.type = ZD_SE_REQ_PUSH, .u.push = {.unit = u, .micro = m, .micro_batches = run->micro}};

			if (units[u].frozen)
				continue;
			push.u.push.data = t->grad[t->pushes] = gradient(run, round, u, m, peer);
			t->push[t->pushes++] = cw_request(w, peer, &push);
		}
	t->step = cw_request(w, peer, &step);
}

static void end_turn(struct cw_world *w, struct turn *t)
{
	cw_wait(w, t->step);
	for (uint32_t i = 0; i < t->pushes; i++) {
		cw_wait(w, t->push[i]);
		if (t->step->status == ZEROD_OK)
			assert_int_equal(t->push[i]->status, ZEROD_OK);
		free(t->grad[i]);
	}
}

static void step_all(struct cw_world *w, const struct run *run, uint32_t round)
{
	struct turn turn[CW_PEERS];
	uint32_t left = run->peers, cuts = run->cuts;

	for (uint32_t p = 0; p < run->peers; p++)
		push_and_step(w, run, p, round, &turn[p]);
	for (uint32_t guard = 0; left > 0; guard++) {
		assert_true(guard < 3000000);
		assert_true(cw_turn(w));
		if (cuts > 0 && cw_random(w) % 25 == 0) {
			cw_cut(w, (uint32_t)(cw_random(w) % run->peers), (uint32_t)(cw_random(w) % run->lanes));
			cuts--;
		}
		for (uint32_t p = 0; p < run->peers; p++) {
			if (!turn[p].step || !turn[p].step->done)
				continue;
			end_turn(w, &turn[p]);
			if (turn[p].step->status == ZEROD_REDO) {
				push_and_step(w, run, p, round, &turn[p]);
				continue;
			}
			if (turn[p].step->status != ZEROD_OK)
				fail_msg("step: status %d: %s", turn[p].step->status, turn[p].step->text);
			turn[p].step = NULL;
			left--;
		}
	}
}

static void compare(struct cw_world *w, const struct run *run, const struct reference *ref)
{
	const struct zd_kernels *k = zd_kernels_select("");

	for (uint32_t u = 0; u < UNITS; u++) {
		uint64_t n = units[u].numel;
		float *got = malloc(n * 4), *want = malloc(n * 4);
		struct zd_session_event fetch = {.type = ZD_SE_REQ_FETCH, .u.fetch = {u, ZD_PLANE_MASTER, got}};

		if (run->optimizer == ZD_OPT_NONE)
			fetch.u.fetch.plane = ZD_PLANE_GRADIENT;
		if (!units[u].frozen) {
			must(w, cw_request(w, u % run->peers, &fetch));
			k->merge(want, ref->hi[u], ref->lo[u], n);
			assert_memory_equal(got, run->optimizer == ZD_OPT_NONE ? ref->acc[u] : want, n * 4);
		}
		free(got);
		free(want);
	}
}

static void train(const struct run *run, uint64_t seed)
{
	struct cw_config config = {
		.spec = {.name = "job", .optimizer = run->optimizer, .grad_codec = run->codec, .extent_elems = 16384, .lease_ms = 10000,
			 .unit_count = UNITS, .units = units},
		.lanes = run->lanes, .daemons = run->daemons, .peers = run->peers, .prefetch = 1, .seed = seed, .piece_max = 100000,
	};
	struct cw_world *w = cw_new(&config);
	struct reference ref;
	struct zerod_stats stats;

	reference_init(&ref);
	start_all(w, run);
	for (uint32_t round = 1; round <= STEPS; round++) {
		struct zd_decision d;
		struct zerod_step_result result;

		if (run->optimizer != ZD_OPT_NONE)
			for (uint32_t p = 0; p < run->peers; p++)
				gather_all(w, p, &ref);
		step_all(w, run, round);
		d = reference_step(&ref, run, round);
		for (uint32_t p = 0; p < run->peers; p++) {
			zd_session_result(cw_session(w, p), &result);
			assert_int_equal(result.round, round);
			assert_int_equal(result.step, d.step);
			assert_memory_equal(&result.norm, &d.norm, sizeof(d.norm));
			assert_memory_equal(&result.scale, &d.scale, sizeof(d.scale));
			zd_session_stats(cw_session(w, p), &stats);
			assert_true(stats.gathered_bytes_max <= stats.gather_bytes_limit);
		}
		if (run->optimizer == ZD_OPT_NONE)
			compare(w, run, &ref);
	}
	compare(w, run, &ref);
	reference_free(&ref);
	cw_free(w);
}

static void test_same_bits(void **state)
{
	static const struct run runs[] = {
		{1, 1, 1, 1, ZD_CODEC_BF16, ZD_OPT_ADAMW, 0},	{2, 1, 1, 2, ZD_CODEC_BF16, ZD_OPT_ADAMW, 0},
		{3, 3, 2, 1, ZD_CODEC_BF16, ZD_OPT_ADAMW, 0},	{2, 2, 3, 1, ZD_CODEC_BF16, ZD_OPT_ADAM_L2, 0},
		{3, 1, 3, 2, ZD_CODEC_BF16, ZD_OPT_ADAMW, 0},	{2, 1, 2, 1, ZD_CODEC_FP16, ZD_OPT_ADAMW, 0},
		{1, 1, 2, 2, ZD_CODEC_FP32, ZD_OPT_ADAMW, 0},	{2, 1, 2, 1, ZD_CODEC_BF16, ZD_OPT_NONE, 0},
		{3, 1, 3, 1, ZD_CODEC_FP32, ZD_OPT_NONE, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++)
		train(&runs[i], i + 1);
}

static void test_same_bits_with_cuts(void **state)
{
	static const struct run runs[] = {
		{2, 1, 1, 1, ZD_CODEC_BF16, ZD_OPT_ADAMW, 9}, {3, 3, 2, 1, ZD_CODEC_BF16, ZD_OPT_ADAMW, 9},
		{2, 2, 3, 1, ZD_CODEC_BF16, ZD_OPT_ADAMW, 9}, {2, 1, 2, 2, ZD_CODEC_FP32, ZD_OPT_ADAMW, 9},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++)
		for (uint64_t seed = 1; seed <= 3; seed++)
			train(&runs[i], 100 * (i + 1) + seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_bits),
		cmocka_unit_test(test_same_bits_with_cuts),
	};

	zd_kernels_thread_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
