/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rate limiter and the prefetch, against real lane cores: whatever is gathered, released and planned, the bytes stay within the bound, the weights are
 * the right ones, and nothing that is still here is fetched again.
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

#define UNITS 10
#define SLACK 65536 /* requests, fetches: what a session allocates beside the buffers */

static struct zd_unit_spec units[UNITS];

static void make_units(void)
{
	for (uint32_t u = 0; u < UNITS; u++) {
		snprintf(units[u].name, sizeof(units[u].name), "u%u", u);
		units[u].numel = 20000 + 9000 * (u % 4) + u;
		units[u].frozen = u == 3;
	}
}

static uint16_t weight(uint32_t unit, uint64_t i)
{
	return (uint16_t)(0x3f00u + (unit * 131 + i * 7) % 128);
}

static struct cw_world *begin(uint64_t gather_bytes_max, uint32_t prefetch, uint64_t seed)
{
	struct cw_config config = {
		.spec = {.name = "job", .optimizer = ZD_OPT_ADAMW, .grad_codec = ZD_CODEC_BF16, .extent_elems = 8192, .lease_ms = 10000,
			 .unit_count = UNITS, .units = units},
		.lanes = 2, .daemons = 1, .peers = 1, .prefetch = prefetch, .gather_bytes_max = gather_bytes_max, .seed = seed, .piece_max = 40000,
	};
	struct zd_session_event connect = {.type = ZD_SE_REQ_CONNECT}, seal = {.type = ZD_SE_REQ_SEAL};
	struct cw_world *w;

	make_units();
	w = cw_new(&config);
	cw_wait(w, cw_request(w, 0, &connect));
	for (uint32_t u = 0; u < UNITS; u++) {
		uint16_t *data = malloc(2 * units[u].numel);
		struct zd_session_event load = {.type = ZD_SE_REQ_LOAD, .u.load = {u, ZD_CODEC_BF16, data}};

		for (uint64_t i = 0; i < units[u].numel; i++)
			data[i] = weight(u, i);
		cw_wait(w, cw_request(w, 0, &load));
		free(data);
	}
	cw_wait(w, cw_request(w, 0, &seal));
	return w;
}

static struct cw_result *gather(struct cw_world *w, uint32_t unit)
{
	struct zd_session_event ev = {.type = ZD_SE_REQ_GATHER, .u.gather.unit = unit};

	return cw_request(w, 0, &ev);
}

static void release(struct cw_world *w, uint32_t unit, uint8_t keep)
{
	struct zd_session_event ev = {.type = ZD_SE_REQ_RELEASE, .u.gather = {unit, keep}};

	cw_request(w, 0, &ev);
}

static void plan(struct cw_world *w, const uint32_t *list, uint32_t count)
{
	struct zd_session_event ev = {.type = ZD_SE_REQ_PLAN, .u.plan = {list, count}};

	cw_request(w, 0, &ev);
}

static void check_weights(const struct cw_result *r, uint32_t unit)
{
	assert_int_equal(r->status, ZEROD_OK);
	for (uint64_t i = 0; i < units[unit].numel; i++)
		if (r->weights[i] != weight(unit, i))
			fail_msg("unit %u, element %llu", unit, (unsigned long long)i);
}

static struct zerod_stats stats_of(struct cw_world *w)
{
	struct zerod_stats stats;

	zd_session_stats(cw_session(w, 0), &stats);
	return stats;
}

/* Random gathers, releases and plans.  The caller never holds so much that the largest unit does not fit beside it, so everything must end. */
static void test_never_exceeded(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 30; seed++) {
		uint64_t limit = 2 * 47009 + 2 * 20000 * (seed % 4);
		struct cw_world *w = begin(limit, (uint32_t)(seed % 5), seed);
		uint32_t refs[UNITS] = {0};
		uint64_t held = 0;
		size_t base = cw_heap(w);

		(void)cw_heap_peak(w);
		for (int turn = 0; turn < 300; turn++) {
			uint32_t u = (uint32_t)(cw_random(w) % UNITS), what = (uint32_t)(cw_random(w) % 10);
			uint32_t list[40];

			if (what == 0) {
				for (uint32_t i = 0; i < 40; i++)
					list[i] = (uint32_t)(cw_random(w) % UNITS);
				plan(w, list, 40);
			} else if (what < 6 && (refs[u] > 0 || held == 0 || held + 2 * units[u].numel + 2 * 47009 <= limit)) {
				struct cw_result *r = gather(w, u);

				cw_wait(w, r);
				check_weights(r, u);
				held += refs[u]++ == 0 ? 2 * units[u].numel : 0;
			} else if (refs[u] > 0) {
				release(w, u, what % 2);
				held -= --refs[u] == 0 ? 2 * units[u].numel : 0;
			}
			for (uint64_t n = cw_random(w) % 4; n > 0; n--)
				(void)cw_turn(w);
			assert_true(stats_of(w).gathered_bytes <= limit);
			assert_true(stats_of(w).gathered_bytes >= held);
		}
		assert_true(stats_of(w).gathered_bytes_max <= limit);
		assert_true(cw_heap_peak(w) <= base + limit + SLACK);
		cw_free(w);
	}
}

static void wait_idle(struct cw_world *w)
{
	for (int i = 0; i < 2000; i++)
		(void)cw_turn(w);
}

/* Forward and backward of stage 3 by plan: each unit travels twice, the last one once, and each is there before it is asked for. */
static void test_prefetch_and_bytes(void **state)
{
	struct cw_world *w = begin(0, 1, 7);
	uint32_t list[2 * UNITS];
	struct zerod_stats before, after;
	uint64_t want = 0;

	(void)state;
	for (uint32_t i = 0; i < UNITS; i++)
		list[i] = list[2 * UNITS - 1 - i] = i;
	for (uint32_t u = 0; u < UNITS; u++)
		want += (u + 1 < UNITS ? 4u : 2u) * units[u].numel;
	before = stats_of(w);
	plan(w, list, 2 * UNITS);
	for (uint32_t i = 0; i < 2 * UNITS; i++) {
		struct cw_result *r;

		wait_idle(w);
		r = gather(w, list[i]);
		assert_true(r->done); /* it is here */
		check_weights(r, list[i]);
		wait_idle(w);
		release(w, list[i], 0);
	}
	after = stats_of(w);
	assert_int_equal(after.prefetch_hits - before.prefetch_hits, 2 * UNITS);
	assert_int_equal(after.payload_received - before.payload_received, want);
	assert_true(after.gathered_bytes_max <= after.gather_bytes_limit);
	assert_int_equal(after.gathered_bytes, 0);
	cw_free(w);
}

/* A gather that was not foreseen takes the place of what was prefetched and nobody holds. */
static void test_gather_comes_before_prefetch(void **state)
{
	struct cw_world *w = begin(2 * 47009 + 1, 4, 9);
	static const uint32_t list[] = {0, 1, 2, 4};
	struct cw_result *r;

	(void)state;
	plan(w, list, 4);
	wait_idle(w);
	assert_true(stats_of(w).gathered_bytes > 0);
	r = gather(w, 7);
	cw_wait(w, r);
	check_weights(r, 7);
	assert_true(stats_of(w).gathered_bytes_max <= stats_of(w).gather_bytes_limit);
	cw_free(w);
}

/* What must go is what the plan needs last. */
static void test_evicts_the_farthest(void **state)
{
	static const uint32_t list[] = {0, 4, 8, 4, 0};
	struct cw_world *w = begin(2 * (20004 + 20008), 0, 17);
	struct zerod_stats before;
	struct cw_result *r;

	(void)state;
	plan(w, list, 5);
	for (uint32_t i = 0; i < 2; i++) {
		cw_wait(w, gather(w, list[i]));
		release(w, list[i], 1);
	}
	cw_wait(w, gather(w, 8)); /* 4 comes next, 0 after it */
	release(w, 8, 0);
	before = stats_of(w);
	r = gather(w, 4);
	assert_true(r->done);
	assert_int_equal(stats_of(w).payload_received, before.payload_received);
	cw_free(w);
}

/* A prefetch takes no room from what is needed before it. */
static void test_prefetch_stops_at_the_bound(void **state)
{
	static const uint32_t list[] = {0, 4, 8};
	struct cw_world *w = begin(2 * (20000 + 20004), 3, 19);
	uint64_t before = stats_of(w).payload_received;

	(void)state;
	plan(w, list, 3);
	wait_idle(w);
	assert_int_equal(stats_of(w).payload_received - before, 2 * (20000 + 20004));
	assert_true(gather(w, 0)->done);
	cw_free(w);
}

/* keep: unchanged weights that are still here are not asked for again. */
static void test_keep(void **state)
{
	struct cw_world *w = begin(1 << 24, 0, 11);
	struct zerod_stats before;
	struct cw_result *r;

	(void)state;
	for (uint32_t u = 0; u < UNITS; u++) {
		cw_wait(w, gather(w, u));
		release(w, u, 1);
	}
	before = stats_of(w);
	for (uint32_t u = 0; u < UNITS; u++) {
		r = gather(w, u);
		assert_true(r->done);
		check_weights(r, u);
		release(w, u, 0);
	}
	assert_int_equal(stats_of(w).wire_sent, before.wire_sent);
	assert_int_equal(stats_of(w).gathered_bytes, 0);
	cw_free(w);
}

/* Who holds too much is told so. */
static void test_no_room_is_named(void **state)
{
	struct cw_world *w = begin(2 * 47009 + 1, 0, 13);
	struct zd_session_event ev = {.type = ZD_SE_REQ_GATHER, .u.gather.unit = 7, .deadline = cw_now(w) + ZD_MS(500)};
	struct cw_result *r;

	(void)state;
	cw_wait(w, gather(w, 3));
	r = cw_request(w, 0, &ev);
	cw_wait(w, r);
	assert_int_equal(r->status, ZEROD_ERR_TIMEOUT);
	assert_non_null(strstr(r->text, "\"u7\""));
	assert_non_null(strstr(r->text, "1 units held by the caller"));
	release(w, 3, 0);
	r = gather(w, 7);
	cw_wait(w, r);
	check_weights(r, 7);
	cw_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_never_exceeded),
		cmocka_unit_test(test_prefetch_and_bytes),
		cmocka_unit_test(test_gather_comes_before_prefetch),
		cmocka_unit_test(test_evicts_the_farthest),
		cmocka_unit_test(test_prefetch_stops_at_the_bound),
		cmocka_unit_test(test_keep),
		cmocka_unit_test(test_no_room_is_named),
	};

	zd_kernels_thread_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
