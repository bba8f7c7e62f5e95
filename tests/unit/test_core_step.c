/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a step: what goes in comes out as the scalar kernels compute it, for every way of contributing. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core_harness.h"
#include "server/kernel/kernel.h"

static const int64_t sizes[] = {5000, 140000, -70000, 4096};

struct way {
	uint32_t world, micros;
	enum zd_codec codec;
	enum zd_optimizer optimizer;
	uint32_t extent, chunk;
};

static const struct way ways[] = {
	{1, 1, ZD_CODEC_BF16, ZD_OPT_ADAMW, 131072, 0},	  {2, 1, ZD_CODEC_BF16, ZD_OPT_ADAMW, 131072, 0},
	{1, 2, ZD_CODEC_BF16, ZD_OPT_ADAMW, 65536, 0},	  {2, 2, ZD_CODEC_BF16, ZD_OPT_ADAM_L2, 131072, 0},
	{3, 1, ZD_CODEC_BF16, ZD_OPT_ADAMW, 65536, 1000}, {3, 3, ZD_CODEC_BF16, ZD_OPT_ADAMW, 4096, 0},
	{1, 3, ZD_CODEC_BF16, ZD_OPT_ADAMW, 131072, 0},	  {1, 1, ZD_CODEC_FP32, ZD_OPT_ADAMW, 65536, 0},
	{2, 1, ZD_CODEC_FP32, ZD_OPT_ADAM_L2, 65536, 0},  {2, 2, ZD_CODEC_FP16, ZD_OPT_ADAMW, 131072, 0},
};

static void check_unit(struct hz *h, uint32_t unit, uint64_t version, const struct hz_model *m)
{
	uint16_t *hi = malloc(2 * m->n);
	uint32_t *w = malloc(4 * m->n);

	hz_fetch(h, 0, unit, 1, version, hi);
	assert_memory_equal(hi, m->hi, 2 * m->n);
	hz_fetch(h, 0, unit, 2, version, w);
	for (uint64_t i = 0; i < m->n; i++) {
		uint32_t lo = h->spec.units[unit].frozen ? 0 : (uint32_t)(int16_t)m->lo[i];

		assert_int_equal(w[i], ((uint32_t)m->hi[i] << 16) + lo);
	}
	free(hi);
	free(w);
}

static void run_way(const struct way *way)
{
	struct hz *h = hz_new(16, 8u << 20);
	struct hz_who who = {.epoch = 1, .world = way->world};
	struct hz_model model[4];

	hz_spec(h, "job", way->optimizer, way->codec, way->extent, 4, sizes);
	h->chunk = way->chunk;
	for (uint32_t r = 0; r < way->world; r++) {
		hz_connect(h, r, ZD_ROLE_WORKER);
		hz_open(h, r, 1);
		who.rank = r;
		hz_join(h, r, who);
	}
	hz_load_all(h, 0, 5);
	for (uint32_t u = 0; u < 4; u++)
		hz_model_init(h, &model[u], u, 5);
	for (uint64_t round = 1; round <= 3; round++) {
		struct zd_decision d = hz_round(h, who, round, way->micros, &hz_hyper);

		assert_int_equal(d.step, round);
		if (round == 2)
			hz_idle(h); /* at other times FETCH and PUSH bring Adam about */
		for (uint32_t u = 0; u < 4; u++) {
			if (h->spec.units[u].frozen)
				continue;
			hz_model_round(h, &model[u], u, round, way->world, way->micros);
			hz_model_step(h, &model[u], &hz_hyper, &d);
		}
		for (uint32_t u = 0; u < 4 && round > 1; u++)
			check_unit(h, u, round, &model[u]);
	}
	assert_int_equal(hz_view(h).due, 0);
	for (uint32_t u = 0; u < 4; u++)
		hz_model_fini(&model[u]);
	hz_free(h);
}

static void whole_life(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
		run_way(&ways[i]);
}

/* Without optimizer: the gradient sum is read, alternating between two areas. */
static void gradient_only(void **state)
{
	static const struct {
		uint32_t world, micros;
		enum zd_codec codec;
	} table[] = {{1, 1, ZD_CODEC_BF16}, {2, 1, ZD_CODEC_BF16}, {2, 2, ZD_CODEC_BF16}, {1, 1, ZD_CODEC_FP32}};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		struct hz *h = hz_new(16, 8u << 20);
		struct hz_who who = {.epoch = 1, .world = table[i].world};

		hz_spec(h, "sum", ZD_OPT_NONE, table[i].codec, 65536, 2, sizes);
		for (uint32_t r = 0; r < who.world; r++) {
			hz_connect(h, r, ZD_ROLE_WORKER);
			hz_open(h, r, 1);
			who.rank = r;
			assert_true(hz_join(h, r, who)->sealed);
		}
		for (uint64_t round = 1; round <= 3; round++) {
			hz_round(h, who, round, table[i].micros, &hz_hyper);
			for (uint32_t u = 0; u < 2; u++) {
				struct hz_model m;
				float *g = malloc(4 * h->spec.units[u].numel);

				hz_model_init(h, &m, u, 1);
				hz_model_round(h, &m, u, round, who.world, table[i].micros);
				hz_fetch(h, 0, u, 3, round, g);
				assert_memory_equal(g, m.acc, 4 * m.n);
				hz_model_fini(&m);
				free(g);
			}
		}
		hz_free(h);
	}
}

/* Order of arrival must not matter: three ranks, the last first; the sums wait in windows. */
static void late_ranks(void **state)
{
	struct hz *h = hz_new(30, 16u << 20);
	struct hz_who who = {.epoch = 1, .world = 3};
	static const int64_t small[] = {12000};
	static const uint32_t order[] = {2, 1, 0};
	struct zd_record a, b;
	struct zd_decision d;

	(void)state;
	hz_spec(h, "late", ZD_OPT_ADAMW, ZD_CODEC_BF16, 4096, 1, small);
	for (uint32_t r = 0; r < 3; r++) {
		hz_connect(h, r, ZD_ROLE_WORKER);
		hz_open(h, r, 1);
		who.rank = r;
		assert_int_equal(hz_join(h, r, who)->credit, 4); /* half of 30 - 2, for 3 */
	}
	hz_load_all(h, 0, 5);
	for (int i = 0; i < 3; i++) {
		who.rank = order[i];
		hz_push_unit(h, who.rank, who, 1, 0, 0, 1);
	}
	for (uint32_t r = 0; r < 3; r++) {
		const Zd__Pb__Pushed *m = NULL;

		while (h->conn[r].count > 0)
			m = (const Zd__Pb__Pushed *)hz_recv(h, r, ZD_MSG_PUSHED);
		if (r > 0)
			assert_true(m && m->freed >= 2);
		who.rank = r;
		hz_send_commit(h, r, who, 1, 1, &hz_hyper);
	}
	a = hz_prepared(h, 0);
	d = hz_decide(&a, 0);
	hz_send_apply(h, 0, who, &d);
	hz_applied(h, 0, 1);
	for (uint32_t r = 1; r < 3; r++)
		b = hz_prepared(h, r);
	assert_memory_equal(&a.norm, &b.norm, sizeof a.norm);
	assert_int_equal(h->kernels[ZD_KERNEL_ACC_SET], 3);
	assert_int_equal(h->kernels[ZD_KERNEL_ACC_ADD], 6);
	{
		struct hz_model m;
		uint16_t *hi = malloc(2 * 12000);

		hz_model_init(h, &m, 0, 5);
		hz_model_round(h, &m, 0, 1, 3, 1);
		hz_model_step(h, &m, &hz_hyper, &d);
		hz_fetch(h, 0, 0, 1, 1, hi);
		assert_memory_equal(hi, m.hi, 2 * m.n);
		hz_model_fini(&m);
		free(hi);
	}
	hz_free(h);
}

/* The first contribution that makes the sum non-finite is named; the round is skipped and the weights stay. */
static void nonfinite(void **state)
{
	static const struct {
		uint32_t world, micros, rank, micro;
		uint16_t bad, other; /* value of that rank, of all others */
		uint32_t named;
	} table[] = {
		{1, 1, 0, 0, 0x7fc0, 0, 0}, {2, 1, 0, 0, 0xff80, 0x3f80, 0}, {2, 1, 1, 0, 0x7f80, 0x3f80, 1},
		{2, 1, 1, 0, 0x7f7f, 0x7f7f, 1}, /* finite, their sum is not */
		{3, 1, 1, 0, 0x7fc0, 0x3f80, 1}, {2, 2, 0, 1, 0x7f80, 0x3f80, 0}, {1, 3, 0, 2, 0x7fc1, 0x3f80, 0},
	};
	static const int64_t small[] = {8000, 9000};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		struct hz *h = hz_new(16, 8u << 20);
		struct hz_who who = {.epoch = 1, .world = table[i].world};
		uint16_t before[9000], after[9000], g[9000];
		struct zd_record record = {0};
		struct zd_decision d, wrong;

		hz_spec(h, "bad", ZD_OPT_ADAMW, ZD_CODEC_BF16, 4096, 2, small);
		for (uint32_t r = 0; r < who.world; r++) {
			hz_connect(h, r, ZD_ROLE_WORKER);
			hz_open(h, r, 1);
			who.rank = r;
			hz_join(h, r, who);
		}
		hz_load_all(h, 0, 5);
		hz_fetch(h, 0, 1, 1, 0, before);
		for (uint32_t micro = 0; micro < table[i].micros; micro++)
			for (uint32_t r = 0; r < who.world; r++) {
				int is_bad = r == table[i].rank && micro == table[i].micro;

				who.rank = r;
				hz_push_unit(h, r, who, 1, 0, micro, table[i].micros);
				memset(g, 0, sizeof g);
				g[5000] = is_bad ? table[i].bad : table[i].other;
				for (uint32_t at = 0; at < 9000; at += 4096)
					hz_send_push(h, r, (struct hz_push){1, 0, 1, r, 1, micro, table[i].micros, at, 9000 - at < 4096 ? 9000 - at : 4096}, g + at);
				hz_drain(h, r);
			}
		for (uint32_t r = 0; r < who.world; r++) {
			who.rank = r;
			hz_send_commit(h, r, who, 1, table[i].micros, &hz_hyper);
		}
		for (uint32_t r = 0; r < who.world; r++)
			record = hz_prepared(h, r);
		assert_int_equal(record.nonfinite, 1);
		assert_int_equal(record.bad_unit, 1);
		assert_int_equal(record.bad_element, 5000);
		assert_int_equal(record.bad_rank, table[i].named);
		d = hz_decide(&record, 0);
		assert_false(d.applied);
		wrong = d;
		wrong.applied = 1;
		wrong.step = 1;
		hz_send_apply(h, who.rank, who, &wrong);
		hz_aborted(h, who.rank, ZD_ERR_DECISION_DIFFERS, 1, 0, "not finite");
		hz_send_apply(h, who.rank, who, &d);
		hz_applied(h, who.rank, 1);
		hz_drain(h, 0);
		hz_fetch(h, 0, 1, 1, 0, after);
		assert_memory_equal(before, after, sizeof before);
		who.rank = 0;
		assert_int_equal(hz_round(h, who, 2, 1, &hz_hyper).step, 1); /* and the job goes on */
		hz_free(h);
	}
}

/* Adam of a round that nobody fetched runs before the next contribution lands, and when there is nothing else to do. */
static void adam_when_due(void **state)
{
	struct hz *h = hz_new(16, 8u << 20);
	struct hz_who who = {.epoch = 1, .world = 1};
	static const int64_t small[] = {20000};

	(void)state;
	hz_spec(h, "due", ZD_OPT_ADAMW, ZD_CODEC_BF16, 4096, 1, small);
	hz_connect(h, 0, ZD_ROLE_WORKER);
	hz_open(h, 0, 1);
	hz_join(h, 0, who);
	hz_load_all(h, 0, 5);
	hz_round(h, who, 1, 1, &hz_hyper);
	assert_int_equal(hz_view(h).due, 5);
	assert_int_equal(h->kernels[ZD_KERNEL_ADAM], 0);
	hz_send_fetch(h, 0, 1, 0, 4096, 4096, 1, 1, 1);
	hz_recv(h, 0, ZD_MSG_DATA);
	assert_int_equal(hz_view(h).due, 4);
	hz_round(h, who, 2, 1, &hz_hyper); /* its pushes find four extents due */
	assert_int_equal(h->kernels[ZD_KERNEL_ADAM], 5);
	assert_int_equal(hz_view(h).due, 5);
	assert_true(zd_core_wants_idle(h->core));
	hz_idle(h);
	assert_int_equal(hz_view(h).due, 0);
	assert_int_equal(h->kernels[ZD_KERNEL_ADAM], 10);
	hz_free(h);
}

/* Whatever passes the check of hyper-parameters gives constants that fp32 can hold, at any step. */
static void constants_are_finite(void **state)
{
	static const double lr[] = {0, 1e20, 1.1e20, 1e30}, decay[] = {0, 1e10, 1.1e10, 1e30}, beta[] = {0, 0.9, 0x1.fffffffffffffp-1};
	int usable = 0;

	(void)state;
	for (int i = 0; i < 4 * 4 * 3 * 3; i++) {
		struct zd_hyper h = hz_hyper;
		struct zd_adam_consts c;
		double found;

		h.lr = lr[i % 4];
		h.weight_decay = decay[i / 4 % 4];
		h.beta1 = beta[i / 16 % 3];
		h.beta2 = beta[i / 48];
		if (zd_hyper_check(&h, &found))
			continue;
		usable++;
		zd_adam_consts_init(&c, &(struct zd_adam_params){h.lr, h.weight_decay, h.beta1, h.beta2, h.eps, (uint32_t)i % 2}, 1, 1);
		assert_true(isfinite(c.b1) && isfinite(c.b2) && isfinite(c.omb1) && isfinite(c.omb2) && isfinite(c.rbc2) && isfinite(c.eps));
		assert_true(isfinite(c.step) && isfinite(c.lrwd) && isfinite(c.wd));
	}
	assert_int_equal(usable, 2 * 2 * 3 * 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whole_life), cmocka_unit_test(gradient_only), cmocka_unit_test(late_ranks),
		cmocka_unit_test(nonfinite),  cmocka_unit_test(constants_are_finite), cmocka_unit_test(adam_when_due),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
