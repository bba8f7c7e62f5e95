/* SPDX-License-Identifier: Apache-2.0 */
/* One story for each rule without which the agreement breaks, and for each promise that is about waiting. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/sim/scenario.h"
#include "tests/sim/scenarios.h"

#define EXPECT(w, ...)                                                                              \
	do {                                                                                        \
		static const char *const lines_[] = {__VA_ARGS__};                                  \
		story_expect(w, lines_, sizeof(lines_) / sizeof(*lines_));                          \
	} while (0)

static const struct zd_decision *decision(const struct sim_world *w, uint64_t round)
{
	assert_true(w->oracle.decided >= round);
	return &w->oracle.decisions[round];
}

/* KEEP, FINISH, HPCOMMIT: a new launch finds the round prepared everywhere, and finishes it with the parameters that lie in the records (its own
 * differ: the oracle would tell). */
void test_prepared_everywhere_is_finished(void **state)
{
	struct sim_world *w = story_new(11);

	(void)state;
	story_hold(w, 1, ZD_MSG_APPLY, ANY, 1, ANY);
	sim_launch(w, 2, 1);
	story_until(w, 0, "1.1 -> lane 1 APPLY round 1");
	story_kill(w, 1);
	sim_launch(w, 1, 2);
	story_finish(w, 3);
	EXPECT(w, "JOINED 2.0 decided 0 prepared", "JOINED 2.0 decided 0 prepared", "2.0 -> lane 0 APPLY round 1", "decides round 1");
	story_never(w, "DISCARD");
	assert_int_equal(decision(w, 1)->ballot.epoch, 1);
	assert_int_equal(decision(w, 2)->ballot.epoch, 2);
	story_end(w);
}

/* ID, DISCALL: one lane has prepared, the other has not.  The record goes, but only when both have joined. */
void test_prepared_on_one_lane_is_discarded(void **state)
{
	struct sim_world *w = story_new(12);

	(void)state;
	story_hold(w, 1, ZD_MSG_COMMIT, 1, 1, ANY);
	sim_launch(w, 1, 1);
	story_until(w, 0, "lane 0 -> 1.0 PREPARED round 1");
	story_kill(w, 1);
	story_hold(w, 0, ZD_MSG_JOINED, 1, 2, ANY);
	sim_launch(w, 1, 1);
	story_until(w, 0, "lane 1 -> 2.0 JOINED 2.0 decided 0");
	story_run(w, ZD_MS(200)); /* it may do nothing yet */
	story_never(w, "DISCARD");
	story_release(w);
	story_finish(w, 2);
	EXPECT(w, "lane 0 -> 2.0 JOINED 2.0 decided 0 prepared", "2.0 -> lane 0 DISCARD round 1 of 1.0", "lane 0 -> 2.0 DISCARDED round 1 of 1.0",
	       "2.0 -> lane 0 COMMIT round 1", "decides round 1");
	assert_int_equal(decision(w, 1)->ballot.epoch, 2);
	story_end(w);
}

/* One lane has decided; the other holds the record: it is told, whatever the new launch would like. */
void test_decided_on_one_lane_is_finished(void **state)
{
	struct sim_world *w = story_new(13);

	(void)state;
	story_hold(w, 1, ZD_MSG_APPLY, 1, 1, ANY);
	sim_launch(w, 1, 1);
	story_until(w, 0, "lane 0 decides round 1");
	story_kill(w, 1);
	sim_launch(w, 2, 1);
	story_finish(w, 2);
	EXPECT(w, "lane 0 decides round 1", "-> lane 1 APPLY round 1", "lane 1 decides round 1");
	story_never(w, "DISCARD");
	assert_int_equal(decision(w, 1)->ballot.epoch, 1);
	story_end(w);
}

/* SKIPREC: a skipped round has a number; the lane that has not decided it skips it too, under a launch whose gradient would be finite. */
void test_skip_is_a_decision(void **state)
{
	struct sim_config config;
	struct sim_world *w;

	(void)state;
	story_config(&config, 14);
	config.bad_percent = 100;
	w = story_new_with(&config);
	story_hold(w, 1, ZD_MSG_APPLY, 1, 1, ANY);
	sim_launch(w, 1, 1);
	story_until(w, 0, "lane 0 decides round 1");
	w->config.bad_percent = 0;
	story_kill(w, 1);
	sim_launch(w, 1, 1);
	story_finish(w, 2);
	EXPECT(w, "lane 0 -> 1.0 SKIPPED round 1", "lane 1 -> 2.0 SKIPPED round 1", "APPLIED round 2");
	assert_int_equal(decision(w, 1)->applied, 0);
	assert_int_equal(decision(w, 1)->step, 0);
	assert_int_equal(decision(w, 2)->step, 1);
	story_end(w);
}

/* PROMDUR: the lane falls before its promise is durable; nobody was told, and it joins again. */
void test_promise_is_durable_before_joined(void **state)
{
	struct sim_config config;
	struct sim_world *w;

	(void)state;
	story_config(&config, 15);
	config.disk = ZD_MS(500);
	w = story_new_with(&config);
	sim_launch(w, 1, 1);
	story_until(w, 0, "worker 1.0 has finished round 1");
	sim_launch(w, 1, 1);
	while (w->lanes[0].view.promise.epoch < 2 && sim_turn(w))
		;
	assert_int_equal(w->lanes[0].joined.epoch, 1);
	sim_lane_crash(&w->lanes[0], 0, 0, ZD_MS(5));
	story_until(w, 0, "lane 0 restarts");
	assert_int_equal(w->lanes[0].view.promise.epoch, 1);
	story_finish(w, 3);
	EXPECT(w, "lane 0 crashes", "lane 0 restarts", "2.0 -> lane 0 JOIN 2.0", "lane 0 -> 2.0 JOINED 2.0");
	story_end(w);
}

/* PREPDUR: no PREPARED before the record is durable; a lane that falls in between computes again, in a new attempt. */
void test_record_is_durable_before_prepared(void **state)
{
	struct sim_config config;
	struct sim_world *w;

	(void)state;
	story_config(&config, 16);
	config.disk = ZD_MS(300);
	w = story_new_with(&config);
	sim_launch(w, 1, 1);
	while (w->lanes[0].view.state != ZD_ROUND_WRITING && sim_turn(w))
		;
	story_never(w, "lane 0 -> 1.0 PREPARED");
	sim_lane_crash(&w->lanes[0], 0, 0, ZD_MS(5));
	story_finish(w, 2);
	EXPECT(w, "lane 0 crashes", "-> lane 0 JOIN 1.1", "worker 1.0 computes round 1 again", "decides round 1");
	assert_int_equal(decision(w, 1)->ballot.attempt, 1);
	story_end(w);
}

/* The same, but what was written had reached the disk: the record is there and names its ballot, and its attempt is taken up or discarded by all. */
void test_record_that_proves_durable(void **state)
{
	struct sim_config config;
	struct sim_world *w;

	(void)state;
	story_config(&config, 17);
	config.disk = ZD_MS(300);
	w = story_new_with(&config);
	sim_launch(w, 1, 1);
	while (w->lanes[0].view.state != ZD_ROUND_WRITING && sim_turn(w))
		;
	sim_lane_crash(&w->lanes[0], 0, 100, ZD_MS(5));
	story_finish(w, 2);
	EXPECT(w, "lane 0 crashes", "lane 0 -> 1.0 JOINED 1.0 decided 0 prepared", "decides round 1");
	story_end(w);
}

/* ATTEMPT: contributions that were acknowledged are gone: a new number, on both lanes. */
void test_lost_contributions_are_computed_again(void **state)
{
	struct sim_world *w = story_new(18);

	(void)state;
	story_hold(w, 1, ZD_MSG_COMMIT, ANY, 1, 1);
	sim_launch(w, 2, 1);
	story_until(w, 0, "1.1 -> lane 0 COMMIT round 1");
	story_run(w, ZD_MS(100));
	sim_lane_crash(&w->lanes[1], 0, 50, ZD_MS(5));
	story_release(w);
	story_finish(w, 2);
	EXPECT(w, "lane 1 crashes", "-> lane 0 JOIN 1.1", "computes round 1 again", "computes round 1 again", "decides round 1");
	assert_true(decision(w, 1)->ballot.attempt >= 1);
	story_end(w);
}

/* RESUME: a DISCARD that is not durable is undone by a crash: the record is back, and is discarded again before anything is pushed. */
void test_discarded_record_comes_back(void **state)
{
	struct sim_config config;
	struct sim_world *w;

	(void)state;
	story_config(&config, 19);
	config.disk = ZD_MS(200);
	w = story_new_with(&config);
	story_hold(w, 1, ZD_MSG_COMMIT, 1, 1, ANY);
	sim_launch(w, 1, 1);
	story_until(w, 0, "lane 0 -> 1.0 PREPARED round 1");
	story_kill(w, 1);
	sim_launch(w, 1, 1);
	while (w->discards == 0 && sim_turn(w))
		;
	story_never(w, "DISCARDED");
	sim_lane_crash(&w->lanes[0], 0, 0, ZD_MS(5));
	story_finish(w, 2);
	EXPECT(w, "2.0 -> lane 0 DISCARD", "lane 0 crashes", "lane 0 -> 2.0 JOINED 2.0 decided 0 prepared", "2.0 -> lane 0 DISCARD", "DISCARDED");
	assert_true(w->discards >= 2);
	story_end(w);
}

/* A decision needs no flush of its own: all lanes forget it, all have the record, and it is decided again, alike. */
void test_decision_forgotten_everywhere(void **state)
{
	struct sim_config config;
	struct sim_world *w;

	(void)state;
	story_config(&config, 20);
	config.disk = ZD_MS(50);
	w = story_new_with(&config);
	sim_launch(w, 2, 1);
	story_until(w, 0, "has finished round 1");
	sim_lane_crash(&w->lanes[0], 0, 0, ZD_MS(5));
	sim_lane_crash(&w->lanes[1], 0, 0, ZD_MS(5));
	story_finish(w, 3);
	EXPECT(w, "has finished round 1", "lane 0 crashes", "lane 1 crashes", "decided 0 prepared", "APPLY round 1", "decides round 1");
	assert_int_equal(decision(w, 1)->ballot.attempt, 0);
	story_end(w);
}

/* CONNFENCE: what an old connection still had in flight arrives after its worker has joined on a new one, and changes nothing. */
void test_ghost_of_an_old_connection(void **state)
{
	struct sim_world *w = story_new(21);
	struct sim_conn *old;

	(void)state;
	story_hold(w, 1, ZD_MSG_PUSH, 0, 1, 0);
	sim_launch(w, 2, 1);
	story_until(w, 0, "1.1 -> lane 1 COMMIT round 1");
	story_until(w, 0, "1.0 -> lane 1 COMMIT round 1"); /* so it has pushed to lane 0, too */
	old = sim_worker_of(w, 1, 0)->conns[0];
	assert_true(old && old->up.mark_count > 0);
	sim_reset(old, 1, 1);
	story_until(w, 0, "lane 0 -> 1.0 JOINED 1.0 decided 0\n");
	story_release(w); /* of the old connection too */
	story_finish(w, 3);
	EXPECT(w, "1.0 -> lane 0 JOIN 1.0", "1.0 -> lane 0 JOIN 1.0", "decides round 1");
	story_never(w, "ERROR");
	story_end(w);
}

/* EXACT, I16: a worker that slept through a launch changes nothing when it wakes, and stops. */
void test_stale_worker_stops(void **state)
{
	struct sim_world *w = story_new(22);

	(void)state;
	story_hold(w, 1, ZD_MSG_COMMIT, ANY, 1, 0);
	sim_launch(w, 1, 1);
	story_until(w, 0, "1.0 -> lane 1 COMMIT round 1");
	sim_worker_pause(sim_worker_of(w, 1, 0), w->now + ZD_SEC(5));
	sim_launch(w, 2, 1);
	story_finish(w, 3);
	story_release(w);
	story_run(w, ZD_SEC(8));
	EXPECT(w, "ended 1.0 promise 2.0", "decides round 3", "worker 1.0 stops: epoch 2 has begun");
	assert_int_equal(sim_worker_of(w, 1, 0)->status, ZEROD_ERR_STALE);
	assert_int_equal(decision(w, 1)->ballot.epoch, 2);
	story_end(w);
}

/* A silent worker: the others are told its rank, and nothing of the round stays. */
void test_lease_names_the_silent(void **state)
{
	struct sim_world *w = story_new(23);

	(void)state;
	sim_launch(w, 2, 1);
	story_until(w, 0, "worker 1.0 has finished round 1");
	sim_worker_pause(sim_worker_of(w, 1, 1), w->now + ZD_SEC(4));
	story_until(w, 0, "ABORTED LEASE");
	story_until(w, 0, "worker 1.0 stops");
	assert_non_null(strstr(sim_worker_of(w, 1, 0)->text, "rank 1 was last heard"));
	story_kill(w, 1);
	sim_launch(w, 1, 1);
	story_finish(w, 4);
	story_end(w);
}

/* A lane without a store that falls has lost the job, and says so. */
void test_lost_without_a_store(void **state)
{
	struct sim_config config;
	struct sim_world *w;

	(void)state;
	story_config(&config, 24);
	config.level = SIM_NONE;
	w = story_new_with(&config);
	sim_launch(w, 2, 1);
	story_until(w, 0, "worker 1.1 has finished round 2");
	sim_lane_crash(&w->lanes[0], 0, 0, ZD_MS(5));
	story_until(w, 0, "worker 1.0 stops");
	story_until(w, 0, "worker 1.1 stops");
	assert_int_equal(sim_worker_of(w, 1, 0)->status, ZEROD_ERR_LOST);
	assert_int_equal(sim_worker_of(w, 1, 1)->status, ZEROD_ERR_LOST);
	story_end(w);
}

/* A reader that takes nothing more holds lent weights: training waits for it no longer than a lease. */
void test_slow_reader_is_closed(void **state)
{
	struct sim_config config;
	struct sim_world *w;
	uint64_t before;

	(void)state;
	story_config(&config, 25);
	config.units[0].numel = config.units[1].numel = 60000; /* more than a wire holds */
	w = story_new_with(&config);
	sim_launch(w, 1, 1);
	story_until(w, 0, "worker 1.0 has finished round 2");
	story_hold(w, 0, ZD_MSG_DATA, ANY, 0, ANY);
	sim_add_reader(w, 0);
	story_until(w, w->trace_len, "ERROR TIMED_OUT");
	before = w->oracle.decided;
	story_release(w);
	story_finish(w, before + 6);
	story_end(w);
}

/* No deadlock: the fewest windows, every rank in another order, all numbers of ranks and micro-batches. */
void test_no_deadlock(void **state)
{
	(void)state;
	for (uint32_t size = 1; size <= 4; size++) {
		for (uint32_t micro = 1; micro <= 3; micro++) {
			struct sim_config config;
			struct sim_world *w;

			story_config(&config, 100 + size * 10 + micro);
			config.spec.grad_codec = micro == 2 ? ZD_CODEC_FP32 : ZD_CODEC_BF16;
			config.spec.unit_count = 4;
			for (uint32_t u = 0; u < 4; u++) {
				config.units[u] = config.units[0];
				config.units[u].name[4] = (char)('0' + u);
			}
			config.windows = 2 * size + 4;
			config.adverse_order = 1;
			w = story_new_with(&config);
			w->faults = 0;
			sim_launch(w, size, micro);
			story_finish(w, 3);
			story_end(w);
		}
	}
}
