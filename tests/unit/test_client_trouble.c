/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions against real lane cores when something goes wrong: each worker gets the right word for it, and a higher epoch goes on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client_world.h"
#include "server/kernel/kernel.h"

#define UNITS 3

static struct zd_unit_spec units[UNITS] = {{"first", 90000, 0}, {"frozen", 5000, 1}, {"last", 30000, 0}};
static uint16_t zeros[90000], ones[90000];

static struct cw_config config_of(uint32_t peers)
{
	return (struct cw_config){
		.spec = {.name = "job", .optimizer = ZD_OPT_ADAMW, .grad_codec = ZD_CODEC_BF16, .extent_elems = 8192, .lease_ms = 3000,
			 .unit_count = UNITS, .units = units},
		.lanes = 2, .daemons = 2, .peers = peers, .prefetch = 1, .seed = 21, .piece_max = 50000,
	};
}

static struct cw_result *ask(struct cw_world *w, uint32_t peer, enum zd_session_event_type type, uint32_t unit)
{
	struct zd_session_event ev = {.type = type, .u.gather.unit = unit};

	return cw_request(w, peer, &ev);
}

static void must(struct cw_world *w, struct cw_result *r)
{
	cw_wait(w, r);
	if (r->status != ZEROD_OK)
		fail_msg("status %d: %s", r->status, r->text);
}

static void load_only(struct cw_world *w, uint32_t peer, const uint16_t *values)
{
	for (uint32_t u = 0; u < UNITS; u++) {
		struct zd_session_event ev = {.type = ZD_SE_REQ_LOAD, .u.load = {u, ZD_CODEC_BF16, values}};

		must(w, cw_request(w, peer, &ev));
	}
}

static void load(struct cw_world *w, uint32_t peer)
{
	load_only(w, peer, zeros);
	must(w, ask(w, peer, ZD_SE_REQ_SEAL, 0));
}

static struct cw_result *push(struct cw_world *w, uint32_t peer, uint32_t unit)
{
	struct zd_session_event ev = {.type = ZD_SE_REQ_PUSH, .u.push = {.unit = unit, .micro = 0, .micro_batches = 1, .data = ones}};

	return cw_request(w, peer, &ev);
}

static struct cw_result *step(struct cw_world *w, uint32_t peer, double lr)
{
	struct zd_session_event ev = {
		.type = ZD_SE_REQ_STEP,
		.u.step = {.hyper = {.lr = lr, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .loss_scale = 1}, .micro_batches = 1}};

	return cw_request(w, peer, &ev);
}

static struct cw_world *connected(const struct cw_config *config, uint32_t workers)
{
	struct cw_result *r[CW_PEERS];
	struct cw_world *w = cw_new(config);

	for (size_t i = 0; i < 90000; i++)
		ones[i] = 0x3f80;
	for (uint32_t p = 0; p < workers; p++)
		r[p] = ask(w, p, ZD_SE_REQ_CONNECT, 0);
	for (uint32_t p = 0; p < workers; p++)
		must(w, r[p]);
	return w;
}

static struct cw_world *begin(const struct cw_config *config, uint32_t workers)
{
	struct cw_world *w = connected(config, workers);

	load(w, 0);
	return w;
}

static void one_round(struct cw_world *w, uint32_t first, uint32_t peers)
{
	struct cw_result *r[CW_PEERS];

	for (uint32_t p = first; p < first + peers; p++) {
		push(w, p, 0);
		push(w, p, 2);
		r[p] = step(w, p, 0.5);
	}
	for (uint32_t p = first; p < first + peers; p++)
		must(w, r[p]);
}

/* A higher epoch takes over in the middle of a round; the old worker is told, adds nothing, and does not come back. */
static void test_stale(void **state)
{
	struct cw_config config = config_of(2);
	struct cw_world *w;
	struct cw_result *r;
	struct zd_session_view view;
	struct zerod_step_result result;

	(void)state;
	config.rivals = 1;
	w = begin(&config, 1);
	one_round(w, 0, 1);
	push(w, 0, 0);
	must(w, ask(w, 1, ZD_SE_REQ_CONNECT, 0));
	zd_session_view(cw_session(w, 1), &view);
	assert_int_equal(view.decided, 1);
	r = push(w, 0, 2);
	cw_wait(w, r);
	assert_int_equal(r->status, ZEROD_ERR_STALE);
	assert_non_null(strstr(r->text, "epoch 2"));
	one_round(w, 1, 1);
	zd_session_result(cw_session(w, 1), &result);
	assert_int_equal(result.round, 2);
	assert_true(result.norm * result.norm < 120000.5 && result.norm * result.norm > 119999.5); /* each element once */
	cw_free(w);
}

/* Too early, a push is an error of that call and of nothing else; when somebody has sealed, it is taken, from ranks that nobody told too. */
static void test_push_before_the_seal(void **state)
{
	struct cw_config config = config_of(2);
	struct cw_world *w = connected(&config, 2);

	(void)state;
	for (uint32_t p = 0; p < 2; p++) {
		struct cw_result *r = push(w, p, 0);

		cw_wait(w, r);
		assert_int_equal(r->status, ZEROD_ERR_STATE);
		assert_non_null(strstr(r->text, "zerod_seal"));
	}
	load(w, 0);
	one_round(w, 0, 2);
	cw_free(w);
}

/* A launch dies between LOADED and SEALED: the next one, which draws other weights, loads them all and seals. */
static void test_load_of_the_next_launch(void **state)
{
	struct cw_config config = config_of(2);
	struct cw_world *w;
	struct cw_result *r;

	(void)state;
	config.rivals = 1;
	w = connected(&config, 1);
	load_only(w, 0, ones);
	must(w, ask(w, 1, ZD_SE_REQ_CONNECT, 0));
	load(w, 1);
	r = ask(w, 1, ZD_SE_REQ_GATHER, 2);
	must(w, r);
	assert_memory_equal(r->weights, zeros, 30000 * 2);
	one_round(w, 1, 1);
	cw_free(w);
}

/* A rank falls silent while the other waits for it. */
static void test_lease(void **state)
{
	struct cw_config config = config_of(2);
	struct cw_world *w = begin(&config, 2);
	zd_time before;
	struct cw_result *r;

	(void)state;
	one_round(w, 0, 2);
	before = cw_now(w);
	cw_mute(w, 1, 1);
	push(w, 0, 0);
	push(w, 0, 2);
	r = step(w, 0, 0.5);
	cw_wait(w, r);
	assert_int_equal(r->status, ZEROD_ERR_ABORTED);
	assert_non_null(strstr(r->text, "rank 1"));
	assert_true(cw_now(w) - before <= ZD_MS(3000 + 750 + 10)); /* the lease, from when it was last heard */
	cw_free(w);
}

static void test_parameters_differ(void **state)
{
	struct cw_config config = config_of(2);
	struct cw_world *w = begin(&config, 2);
	struct cw_result *a, *b;

	(void)state;
	for (uint32_t p = 0; p < 2; p++) {
		push(w, p, 0);
		push(w, p, 2);
	}
	a = step(w, 0, 0.5);
	b = step(w, 1, 0.25);
	cw_wait(w, a);
	cw_wait(w, b);
	assert_int_equal(a->status, ZEROD_ERR_ABORTED);
	assert_int_equal(b->status, ZEROD_ERR_ABORTED);
	assert_non_null(strstr(a->text, "lr"));
	assert_non_null(strstr(a->text, "0.25"));
	assert_non_null(strstr(b->text, "rank 0"));
	cw_free(w);
}

/* Whoever waits for initial weights is told within the lease that the rank which had them has died. */
static void test_killed_before_the_seal(void **state)
{
	struct cw_config config = config_of(2);
	struct cw_world *w = connected(&config, 2);
	struct cw_result *r = ask(w, 0, ZD_SE_REQ_GATHER, 0);
	zd_time since = cw_now(w);

	(void)state;
	cw_mute(w, 1, 1);
	cw_wait(w, r);
	assert_int_equal(r->status, ZEROD_ERR_ABORTED);
	assert_non_null(strstr(r->text, "rank 1 was last heard"));
	assert_non_null(strstr(r->text, "its part of the initial weights"));
	assert_true(cw_now(w) - since <= ZD_MS(config.spec.lease_ms + 100));
	cw_free(w);
}

/* A daemon that lost its memory is named; nothing is created anew behind the trainer's back. */
static void test_lost(void **state)
{
	struct cw_config config = config_of(1);
	struct cw_world *w = begin(&config, 1);
	struct zd_job_view view;
	struct cw_result *r;

	(void)state;
	one_round(w, 0, 1);
	cw_wipe(w, 1);
	push(w, 0, 0);
	push(w, 0, 2);
	r = step(w, 0, 0.5);
	cw_wait(w, r);
	assert_int_equal(r->status, ZEROD_ERR_LOST);
	assert_non_null(strstr(r->text, "lane 1 (two:2"));
	assert_non_null(strstr(r->text, "has lost the state of job \"job\""));
	assert_int_equal(zd_core_job_view(cw_core(w, 1), "job", &view), 0);
	cw_free(w);
}

/* The same seen by a worker of a later launch. */
static void test_lost_before_the_launch(void **state)
{
	struct cw_config config = config_of(2);
	struct cw_world *w;
	struct cw_result *r;

	(void)state;
	config.rivals = 1;
	w = begin(&config, 1);
	one_round(w, 0, 1);
	cw_wipe(w, 1);
	r = ask(w, 1, ZD_SE_REQ_CONNECT, 0);
	cw_wait(w, r);
	assert_int_equal(r->status, ZEROD_ERR_LOST);
	cw_free(w);
}

static void test_nan_is_skipped(void **state)
{
	struct cw_config config = config_of(2);
	struct cw_world *w = begin(&config, 2);
	struct zerod_step_result result;
	uint16_t *bad = malloc(2 * 90000);
	struct zd_session_event ev = {.type = ZD_SE_REQ_PUSH, .u.push = {.unit = 0, .micro_batches = 1, .data = bad}};
	struct cw_result *a, *b;

	(void)state;
	memcpy(bad, ones, 2 * 90000);
	bad[88888] = 0x7fc0;
	push(w, 0, 0);
	cw_request(w, 1, &ev);
	for (uint32_t p = 0; p < 2; p++)
		push(w, p, 2);
	a = step(w, 0, 0.5);
	b = step(w, 1, 0.5);
	must(w, a);
	must(w, b);
	zd_session_result(cw_session(w, 0), &result);
	assert_int_equal(result.skipped, 1);
	assert_int_equal(result.step, 0);
	assert_int_equal(result.round, 1);
	assert_int_equal(result.bad_unit, 0);
	assert_int_equal(result.bad_element, 88888);
	assert_int_equal(result.bad_rank, 1);
	one_round(w, 0, 2);
	free(bad);
	cw_free(w);
}

/* A reader sees one version of a unit at a time, and pays for it only when it changed. */
static void test_reader(void **state)
{
	struct cw_config config = config_of(2);
	struct zerod_stats before, after;
	struct cw_world *w;
	struct cw_result *r;
	uint16_t first;

	(void)state;
	config.readers = 1;
	w = begin(&config, 1);
	must(w, ask(w, 1, ZD_SE_REQ_CONNECT, 0));
	r = ask(w, 1, ZD_SE_REQ_GATHER, 0);
	must(w, r);
	assert_int_equal(r->weights[5], 0);
	cw_request(w, 1, &(struct zd_session_event){.type = ZD_SE_REQ_RELEASE, .u.gather = {0, 1}});
	zd_session_stats(cw_session(w, 1), &before);
	must(w, ask(w, 1, ZD_SE_REQ_GATHER, 0));
	zd_session_stats(cw_session(w, 1), &after);
	assert_int_equal(after.payload_received, before.payload_received);
	cw_request(w, 1, &(struct zd_session_event){.type = ZD_SE_REQ_RELEASE, .u.gather = {0, 1}});
	one_round(w, 0, 1);
	r = ask(w, 1, ZD_SE_REQ_GATHER, 0);
	must(w, r);
	first = r->weights[0];
	assert_int_not_equal(first, 0);
	for (uint32_t i = 0; i < 90000; i++)
		assert_int_equal(r->weights[i], first);
	r = push(w, 1, 0);
	cw_wait(w, r);
	assert_int_equal(r->status, ZEROD_ERR_STATE);
	cw_free(w);
}

/* A reader that fetches while steps are taken gets one version or another, never both. */
static void test_reader_beside_steps(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 15; seed++) {
		struct cw_config config = config_of(2);
		struct cw_world *w;

		config.readers = 1;
		config.seed = seed;
		config.piece_max = 9000;
		w = begin(&config, 1);
		must(w, ask(w, 1, ZD_SE_REQ_CONNECT, 0));
		for (int round = 0; round < 4; round++) {
			struct cw_result *stepping, *r;

			push(w, 0, 0);
			push(w, 0, 2);
			stepping = step(w, 0, 0.5);
			for (uint64_t n = cw_random(w) % 80; n > 0; n--)
				(void)cw_turn(w);
			r = ask(w, 1, ZD_SE_REQ_GATHER, 0);
			must(w, stepping);
			must(w, r);
			for (uint32_t i = 1; i < 90000; i++)
				assert_int_equal(r->weights[i], r->weights[0]);
			cw_request(w, 1, &(struct zd_session_event){.type = ZD_SE_REQ_RELEASE, .u.gather = {0, 0}});
		}
		cw_free(w);
	}
}

/* Weights of an old version go when the new one is decided; frozen ones stay. */
static void test_old_versions_go(void **state)
{
	struct cw_config config = config_of(1);
	struct cw_world *w;
	struct zerod_stats stats;

	(void)state;
	config.prefetch = 0;
	config.gather_bytes_max = 1 << 20;
	w = begin(&config, 1);
	for (uint32_t u = 0; u < UNITS; u++) {
		must(w, ask(w, 0, ZD_SE_REQ_GATHER, u));
		cw_request(w, 0, &(struct zd_session_event){.type = ZD_SE_REQ_RELEASE, .u.gather = {u, 1}});
	}
	one_round(w, 0, 1);
	zd_session_stats(cw_session(w, 0), &stats);
	assert_int_equal(stats.gathered_bytes, 2 * 5000);
	cw_free(w);
}

/* Master weights travel in grains of half an extent; a fetch that is cut anywhere goes on at the grain that did not arrive. */
static void test_fetch_survives_cuts(void **state)
{
	static struct zd_unit_spec big[] = {{"big", 700001, 0}};
	struct cw_config config = config_of(1);
	float *master = malloc(700001 * sizeof(float)), *init = malloc(700001 * sizeof(float));
	struct zd_session_event load_big = {.type = ZD_SE_REQ_LOAD, .u.load = {0, ZD_CODEC_FP32, init}};
	struct zd_session_event fetch = {.type = ZD_SE_REQ_FETCH, .u.fetch = {0, ZD_PLANE_MASTER, master}};
	struct zd_session_view view;
	struct cw_world *w;

	(void)state;
	config.spec.units = big;
	config.spec.unit_count = 1;
	config.spec.extent_elems = 131072;
	w = cw_new(&config);
	for (uint32_t i = 0; i < 700001; i++)
		init[i] = (float)i / 700001.0f;
	must(w, ask(w, 0, ZD_SE_REQ_CONNECT, 0));
	must(w, cw_request(w, 0, &load_big));
	must(w, ask(w, 0, ZD_SE_REQ_SEAL, 0));
	for (int turn = 0; turn < 10; turn++) {
		struct cw_result *r;

		memset(master, 0, 700001 * sizeof(float));
		r = cw_request(w, 0, &fetch);
		for (int cut = 0; cut < 3; cut++) {
			for (uint64_t n = 20 + cw_random(w) % 60; n > 0; n--)
				(void)cw_turn(w);
			cw_cut(w, 0, (uint32_t)(cw_random(w) % 2));
		}
		must(w, r);
		assert_memory_equal(master, init, 700001 * sizeof(float));
	}
	zd_session_view(cw_session(w, 0), &view);
	assert_int_equal(view.failed, 0);
	free(master);
	free(init);
	cw_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stale),
		cmocka_unit_test(test_push_before_the_seal),
		cmocka_unit_test(test_load_of_the_next_launch),
		cmocka_unit_test(test_lease),
		cmocka_unit_test(test_parameters_differ),
		cmocka_unit_test(test_killed_before_the_seal),
		cmocka_unit_test(test_lost),
		cmocka_unit_test(test_lost_before_the_launch),
		cmocka_unit_test(test_nan_is_skipped),
		cmocka_unit_test(test_reader),
		cmocka_unit_test(test_reader_beside_steps),
		cmocka_unit_test(test_old_versions_go),
		cmocka_unit_test(test_fetch_survives_cuts),
	};

	zd_kernels_thread_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
