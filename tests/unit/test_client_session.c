/* SPDX-License-Identifier: Apache-2.0 */
/* The session against lanes that the test plays: what it sends in every state of the agreement, and what it does when that is repeated or lost. */
#include "client_fixture.h"

/* ---------------------------------------------------------------- resolve */

enum lane_state { EMPTY4, PREP5_10, PREP5_11, DECIDED5, EMPTY3, STATES };

static const struct cs_joined joined_states[STATES] = {
	[EMPTY4] = {.decided = 4},
	[PREP5_10] = {.decided = 4, .record_round = 5, .record_ballot = {1, 0}},
	[PREP5_11] = {.decided = 4, .record_round = 5, .record_ballot = {1, 1}},
	[DECIDED5] = {.decided = 5, .decision_ballot = {1, 0}},
	[EMPTY3] = {.decided = 3},
};

enum outcome { ROUND, DISCARD_0, DISCARD_1, DISCARD_01, APPLY_0, APPLY_1, APPLY_01, LOST };

static const enum outcome outcomes[STATES][STATES] = {
	/*             EMPTY4      PREP5_10    PREP5_11    DECIDED5  EMPTY3 */
	[EMPTY4] = {ROUND, DISCARD_1, DISCARD_1, LOST, LOST},
	[PREP5_10] = {DISCARD_0, APPLY_01, DISCARD_01, APPLY_0, LOST},
	[PREP5_11] = {DISCARD_0, DISCARD_01, APPLY_01, LOST, LOST},
	[DECIDED5] = {LOST, APPLY_1, LOST, ROUND, LOST},
	[EMPTY3] = {LOST, LOST, LOST, LOST, ROUND},
};

static void say_joined(struct cs *c, uint32_t slot, enum lane_state state)
{
	struct cs_joined j = joined_states[state];

	j.ballot = own;
	j.credit = 1;
	cs_joined(c, slot, &j);
}

static void check_apply(struct cs *c, uint32_t slot, enum lane_state other)
{
	const ProtobufCMessage *msg;
	const Zd__Pb__Apply *m;
	struct zd_decision d;

	cs_expect(c, slot, ZD_MSG_APPLY, &msg);
	m = (const Zd__Pb__Apply *)msg;
	assert_int_equal(m->ballot->epoch, own.epoch);
	assert_int_equal(m->decision->round, 5);
	assert_int_equal(m->decision->step, 5);
	if (other == DECIDED5) { /* the very decision of the lane that has it */
		struct zd_decision want = cs_decision(5, (struct zd_ballot){1, 0});

		zd_decision_from_pb(&d, m->decision);
		assert_true(zd_decision_equal(&d, &want));
	}
	zd_decision_from_pb(&d, m->decision);
	cs_applied(c, slot, own, &d);
}

static void check_discard(struct cs *c, uint32_t slot, enum lane_state state)
{
	const ProtobufCMessage *msg;
	const Zd__Pb__Discard *m;

	cs_expect(c, slot, ZD_MSG_DISCARD, &msg);
	m = (const Zd__Pb__Discard *)msg;
	assert_int_equal(m->round, 5);
	assert_int_equal(m->record->attempt, joined_states[state].record_ballot.attempt);
	cs_discarded(c, slot, own, 5, joined_states[state].record_ballot);
}

static void check_outcome(struct cs *c, enum lane_state a, enum lane_state b)
{
	enum outcome want = outcomes[a][b];
	struct zd_session_view view;
	uint64_t round = a == EMPTY3 && b == EMPTY3 ? 3 : 4;

	if (want == LOST) {
		assert_int_equal(cs_ended(c, 1)->status, ZEROD_ERR_LOST);
		assert_non_null(strstr(cs_ended(c, 1)->text, "lane "));
		assert_non_null(strstr(cs_ended(c, 1)->text, LOST_WAY_OUT));
		return;
	}
	if (want == DISCARD_0 || want == DISCARD_01)
		check_discard(c, 0, a);
	if (want == DISCARD_01)
		assert_null(cs_ended(c, 1));
	if (want == DISCARD_1 || want == DISCARD_01)
		check_discard(c, 1, b);
	if (want == APPLY_0 || want == APPLY_01)
		check_apply(c, 0, b);
	if (want == APPLY_01)
		assert_null(cs_ended(c, 1));
	if (want == APPLY_1 || want == APPLY_01)
		check_apply(c, 1, a);
	if (want == APPLY_0 || want == APPLY_1 || want == APPLY_01 || a == DECIDED5)
		round = 5;
	cs_expect_nothing(c, 0);
	cs_expect_nothing(c, 1);
	assert_non_null(cs_ended(c, 1));
	assert_int_equal(cs_ended(c, 1)->status, ZEROD_OK);
	zd_session_view(c->session, &view);
	assert_int_equal(view.decided, round);
	assert_int_equal(view.step, round);
}

static void test_resolve_table(void **state)
{
	(void)state;
	for (int a = 0; a < STATES; a++) {
		for (int b = 0; b < STATES; b++) {
			struct cs *c = begin(2);

			say_joined(c, 0, (enum lane_state)a);
			cs_expect_nothing(c, 0); /* nothing is discarded before every lane has joined */
			say_joined(c, 1, (enum lane_state)b);
			check_outcome(c, (enum lane_state)a, (enum lane_state)b);
			end(c);
		}
	}
}

/* A lane that drops while it is resolved is joined again, and looked at again. */
static void test_resolve_starts_over(void **state)
{
	struct cs *c = begin(2);

	(void)state;
	say_joined(c, 0, PREP5_10);
	say_joined(c, 1, PREP5_10);
	cs_expect(c, 0, ZD_MSG_APPLY, NULL);
	cs_expect(c, 1, ZD_MSG_APPLY, NULL);
	cs_down(c, 0);
	cs_applied(c, 1, own, &(struct zd_decision){.round = 5, .ballot = {1, 0}, .applied = 1, .scale = 0.5, .norm = 1, .step = 5});
	assert_null(cs_ended(c, 1));
	cs_tick(c, ZD_SEC(3));
	cs_up(c, 0, 2);
	cs_expect(c, 0, ZD_MSG_OPEN, NULL);
	cs_opened(c, 0, 9);
	cs_expect(c, 0, ZD_MSG_JOIN, NULL);
	say_joined(c, 0, PREP5_10);
	check_apply(c, 0, DECIDED5);
	assert_int_equal(cs_ended(c, 1)->status, ZEROD_OK);
	end(c);
}

/* Decisions need not be durable: all lanes may come back prepared for a round that this worker has seen decided.  It is decided again. */
static void test_all_lanes_forget_a_decision(void **state)
{
	(void)state;
	for (int lost = 0; lost < 2; lost++) {
		struct cs *c = begin_round(5, 2, 1);
		struct cs_joined j = {.ballot = own, .decided = 4, .record_round = 5, .record_ballot = {1, 0}, .credit = 1};
		struct zd_session_view view;

		if (lost)
			j.record_round = 0;
		for (uint32_t i = 0; i < 2; i++)
			cs_down(c, i);
		cs_tick(c, ZD_SEC(3));
		for (uint32_t i = 0; i < 2; i++) {
			cs_up(c, i, 2);
			cs_expect(c, i, ZD_MSG_OPEN, NULL);
			cs_opened(c, i, 9);
			cs_expect(c, i, ZD_MSG_JOIN, NULL);
		}
		cs_joined(c, 0, &j); /* fewer than one round before the open one: a new attempt, and resolve */
		j.ballot.attempt = 1;
		for (uint32_t i = 0; i < 2; i++) {
			cs_expect(c, i, ZD_MSG_JOIN, NULL);
			cs_joined(c, i, &j);
		}
		zd_session_view(c->session, &view);
		assert_int_equal(view.failed, lost ? ZEROD_ERR_LOST : 0);
		if (!lost) {
			struct zd_decision d = cs_decision(5, (struct zd_ballot){1, 0});

			cs_expect(c, 0, ZD_MSG_APPLY, NULL);
			cs_expect(c, 1, ZD_MSG_APPLY, NULL);
			cs_applied(c, 0, j.ballot, &d);
			cs_applied(c, 1, j.ballot, &d);
			zd_session_view(c->session, &view);
			assert_int_equal(view.decided, 5);
			assert_int_equal(view.agreeing, 0);
		}
		end(c);
	}
}

/* ---------------------------------------------------------------- resume */

static void rejoin(struct cs *c, uint32_t slot, const struct cs_joined *j)
{
	const ProtobufCMessage *msg;

	cs_tick(c, ZD_SEC(3));
	cs_up(c, slot, 2);
	cs_expect(c, slot, ZD_MSG_OPEN, NULL);
	cs_opened(c, slot, 9);
	cs_expect(c, slot, ZD_MSG_JOIN, &msg);
	assert_int_equal(((const Zd__Pb__Join *)msg)->link, 2);
	cs_joined(c, slot, j);
}

enum resume_outcome { GOES_ON, COMMITS, APPLIES, DONE, REDOES };

static void test_resume_table(void **state)
{
	static const uint64_t none[3] = {0, 0, 0}, all[3] = {10, 2, 0}, fewer[3] = {9, 2, 0};
	static const struct {
		const char *what;
		struct cs_joined j;
		enum resume_outcome want;
	} rows[] = {
		{"all is still there: COMMIT again", {.decided = 4, .counted = all}, COMMITS},
		{"one extent fewer than was acknowledged", {.decided = 4, .counted = fewer}, REDOES},
		{"nothing is there any more", {.decided = 4, .counted = none}, REDOES},
		{"prepared by this ballot", {.decided = 4, .record_round = 5, .record_ballot = {2, 0}, .counted = none}, APPLIES},
		{"prepared by an older ballot: a discarded record came back", {.decided = 4, .record_round = 5, .record_ballot = {1, 3}, .counted = none}, REDOES},
		{"decided", {.decided = 5, .decision_ballot = {2, 0}, .counted = none}, DONE},
		{"an older decision was lost", {.decided = 3, .counted = all}, REDOES},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct cs *c = begin_round(4, 2, 1);
		struct cs_joined j = rows[i].j;
		struct zd_record r = cs_record(5, own);
		uint32_t small = push_all(c, 5, own);
		uint64_t stepping = step(c);
		const ProtobufCMessage *msg;

		print_message("%s\n", rows[i].what);
		cs_expect(c, 0, ZD_MSG_COMMIT, NULL);
		cs_expect(c, 1, ZD_MSG_COMMIT, NULL);
		cs_prepared(c, 1 - small, own, &r);
		cs_down(c, small);
		j.ballot = own;
		j.credit = 1;
		rejoin(c, small, &j);
		while (c->seen[1 - small] < c->got[1 - small] && c->frame[1 - small][c->seen[1 - small] % CS_FRAMES].type == ZD_MSG_PING)
			c->seen[1 - small]++;
		switch (rows[i].want) {
		case COMMITS:
			cs_expect(c, small, ZD_MSG_COMMIT, NULL);
			cs_expect_nothing(c, 1 - small);
			break;
		case APPLIES:
			cs_expect(c, 0, ZD_MSG_APPLY, NULL);
			cs_expect(c, 1, ZD_MSG_APPLY, NULL);
			break;
		case DONE:
			cs_expect(c, 1 - small, ZD_MSG_APPLY, NULL);
			break;
		default:
			cs_expect(c, 0, ZD_MSG_JOIN, &msg);
			assert_int_equal(((const Zd__Pb__Join *)msg)->ballot->attempt, 1);
			cs_expect(c, 1, ZD_MSG_JOIN, NULL);
		}
		assert_null(cs_ended(c, stepping)); /* a redo is told when it is clear that the round was not decided after all */
		end(c);
	}
}

/* A connection that breaks in the middle of a push: what is not counted goes out again, from there. */
static void test_resume_sends_the_rest(void **state)
{
	static const uint64_t counted[3] = {4, 0, 0};
	const struct cs_joined j = {.ballot = own, .decided = 4, .credit = 1, .counted = counted};
	struct cs *c = begin_round(4, 2, 1);
	uint64_t r = push(c, 0, 0, 1, 0);
	const ProtobufCMessage *msg;

	(void)state;
	assert_int_equal(skip_pushes(c, 0), 10);
	assert_int_equal(skip_pushes(c, 1), 10);
	cs_sent(c, 1);
	cs_pushed(c, 1, own, 5, 0, 10, 0);
	cs_pushed(c, 0, own, 5, 0, 3, 0);
	cs_down(c, 0);
	rejoin(c, 0, &j);
	cs_expect(c, 0, ZD_MSG_PUSH, &msg);
	assert_int_equal(((const Zd__Pb__Push *)msg)->first % 40960, 4 * EXTENT);
	assert_int_equal(skip_pushes(c, 0), 5);
	cs_pushed(c, 0, own, 5, 0, 10, 0);
	assert_null(cs_ended(c, r)); /* its memory is lent to the connection */
	cs_sent(c, 0);
	assert_int_equal(cs_ended(c, r)->status, ZEROD_OK);
	end(c);
}

/* ---------------------------------------------------------------- a step, and what may be repeated */

static void test_step_and_duplicates(void **state)
{
	struct cs *c = begin_round(4, 2, 1);
	struct zd_record r = cs_record(5, own), old = cs_record(5, (struct zd_ballot){1, 0});
	const ProtobufCMessage *msg;
	struct zd_decision d;
	struct zerod_step_result result;
	uint64_t stepping;

	(void)state;
	push_all(c, 5, own);
	cs_pushed(c, 0, own, 5, 0, 10, 0);
	cs_pushed(c, 0, own, 4, 0, 1, 0);
	stepping = step(c);
	cs_expect(c, 0, ZD_MSG_COMMIT, &msg);
	assert_int_equal(((const Zd__Pb__Commit *)msg)->counts[0], 1);
	assert_int_equal(((const Zd__Pb__Commit *)msg)->counts[2], 0);
	cs_expect(c, 1, ZD_MSG_COMMIT, NULL);
	cs_prepared(c, 0, (struct zd_ballot){1, 0}, &old); /* of another ballot: nobody looks at it */
	r.nonfinite = 3;
	r.bad_unit = 1;
	r.bad_rank = 1;
	r.bad_element = 77;
	cs_prepared(c, 1, own, &r);
	cs_expect_nothing(c, 0);
	r.nonfinite = 0;
	cs_prepared(c, 0, own, &r);
	cs_prepared(c, 0, own, &r);
	cs_expect(c, 0, ZD_MSG_APPLY, &msg);
	zd_decision_from_pb(&d, ((const Zd__Pb__Apply *)msg)->decision);
	assert_int_equal(d.applied, 0); /* not finite on one lane: skipped on all */
	assert_int_equal(d.step, 4);
	cs_expect(c, 1, ZD_MSG_APPLY, NULL);
	cs_applied(c, 0, own, &d);
	cs_applied(c, 0, own, &d);
	assert_null(cs_ended(c, stepping));
	cs_applied(c, 1, own, &d);
	assert_int_equal(cs_ended(c, stepping)->status, ZEROD_OK);
	cs_applied(c, 1, own, &d);
	zd_session_result(c->session, &result);
	assert_int_equal(result.round, 5);
	assert_int_equal(result.step, 4);
	assert_int_equal(result.skipped, 1);
	assert_int_equal(result.bad_unit, 1);
	assert_int_equal(result.bad_rank, 1);
	assert_int_equal(result.bad_element, 77);
	push_all(c, 6, own); /* the next round is open, once */
	end(c);
}

/* A record of another ballot under the promised one is not the round that was pushed. */
static void test_old_record_is_not_taken(void **state)
{
	struct cs *c = begin_round(4, 2, 1);
	struct zd_record old = cs_record(5, (struct zd_ballot){1, 0});

	(void)state;
	push_all(c, 5, own);
	step(c);
	cs_expect(c, 0, ZD_MSG_COMMIT, NULL);
	cs_expect(c, 1, ZD_MSG_COMMIT, NULL);
	cs_prepared(c, 0, own, &old);
	cs_expect(c, 0, ZD_MSG_JOIN, NULL);
	cs_expect(c, 1, ZD_MSG_JOIN, NULL);
	end(c);
}

/* ---------------------------------------------------------------- credit */

static void test_credit(void **state)
{
	struct cs *c = begin_round(4, 3, 2); /* three contributions: they are added up, each needs a window */
	uint32_t sent = 2;

	(void)state;
	push(c, 0, 0, 1, 0);
	assert_int_equal(skip_pushes(c, 0), 2);
	assert_int_equal(skip_pushes(c, 1), 2);
	cs_sent(c, 0);
	cs_expect_nothing(c, 0); /* having left is not having been freed */
	for (uint64_t freed = 1; freed <= 8; freed++) {
		cs_pushed(c, 0, own, 5, 0, (uint32_t)freed, freed);
		assert_int_equal(skip_pushes(c, 0), 1);
		sent++;
	}
	assert_int_equal(sent, 10);
	cs_pushed(c, 0, own, 5, 0, 8, 8);
	cs_expect_nothing(c, 0);
	cs_expect_nothing(c, 1);
	end(c);
}

static void test_no_credit_needed(void **state)
{
	struct cs *c = begin_round(4, 2, 1);

	(void)state;
	push(c, 0, 0, 1, 0);
	assert_int_equal(skip_pushes(c, 0), 10);
	end(c);
}

/* ---------------------------------------------------------------- redo */

static void test_redo(void **state)
{
	struct cs *c = begin_round(4, 2, 1);
	const struct zd_ballot next = {2, 3};
	const struct cs_joined j = {.ballot = next, .decided = 4, .decision_ballot = {1, 0}, .credit = 1};
	uint64_t first = push(c, 0, 0, 1, 0), second, third;
	const ProtobufCMessage *msg;

	(void)state;
	skip_pushes(c, 0);
	skip_pushes(c, 1);
	cs_aborted(c, 0, own, (struct zd_ballot){1, 5}, ZD_ERR_BALLOT_LOW, "of an older life");
	cs_expect_nothing(c, 0);
	cs_aborted(c, 0, next, own, ZD_ERR_BALLOT_LOW, "another worker tried again");
	cs_expect(c, 0, ZD_MSG_JOIN, &msg);
	assert_int_equal(((const Zd__Pb__Join *)msg)->ballot->attempt, 3);
	cs_expect(c, 1, ZD_MSG_JOIN, NULL);
	assert_null(cs_ended(c, first)); /* still lent */
	cs_sent(c, 0);
	cs_sent(c, 1);
	assert_int_equal(cs_ended(c, first)->status, ZEROD_REDO);
	second = push(c, 1, 0, 1, 0);
	assert_int_equal(cs_ended(c, second)->status, ZEROD_REDO);
	third = push(c, 1, 0, 1, 1);
	assert_int_equal(cs_ended(c, third)->status, ZEROD_REDO); /* now it was told */
	push(c, 0, 0, 1, 0);
	push(c, 1, 0, 1, 0);
	cs_expect_nothing(c, 0); /* not before the lanes have joined */
	cs_joined(c, 0, &j);
	cs_expect_nothing(c, 0);
	cs_joined(c, 1, &j);
	assert_int_equal(skip_pushes(c, 0) + skip_pushes(c, 1), 22);
	end(c);
}

/* The step was lost for this worker but the lanes turn out to hold it prepared: it is finished, not redone. */
static void test_redo_that_was_decided(void **state)
{
	struct cs *c = begin_round(4, 2, 1);
	const struct zd_ballot next = {2, 1};
	const struct cs_joined j = {.ballot = next, .decided = 4, .record_round = 5, .record_ballot = own, .credit = 1};
	uint64_t stepping;
	const ProtobufCMessage *msg;
	struct zd_decision d;

	(void)state;
	push_all(c, 5, own);
	stepping = step(c);
	cs_expect(c, 0, ZD_MSG_COMMIT, NULL);
	cs_expect(c, 1, ZD_MSG_COMMIT, NULL);
	cs_aborted(c, 1, next, own, ZD_ERR_BALLOT_LOW, "another worker tried again");
	cs_expect(c, 0, ZD_MSG_JOIN, NULL);
	cs_expect(c, 1, ZD_MSG_JOIN, NULL);
	assert_null(cs_ended(c, stepping));
	cs_joined(c, 0, &j);
	cs_joined(c, 1, &j);
	cs_expect(c, 0, ZD_MSG_APPLY, &msg);
	zd_decision_from_pb(&d, ((const Zd__Pb__Apply *)msg)->decision);
	cs_applied(c, 0, next, &d);
	cs_applied(c, 1, next, &d);
	assert_int_equal(cs_ended(c, stepping)->status, ZEROD_OK);
	end(c);
}

static void test_redo_that_was_not_decided(void **state)
{
	struct cs *c = begin_round(4, 2, 1);
	const struct zd_ballot next = {2, 1};
	const struct cs_joined j = {.ballot = next, .decided = 4, .decision_ballot = {1, 0}, .credit = 1};
	uint64_t stepping;

	(void)state;
	push_all(c, 5, own);
	stepping = step(c);
	cs_aborted(c, 1, own, own, ZD_ERR_LOST, "gone");
	cs_joined(c, 0, &j);
	assert_null(cs_ended(c, stepping));
	cs_joined(c, 1, &j);
	assert_int_equal(cs_ended(c, stepping)->status, ZEROD_REDO);
	end(c);
}

/* ---------------------------------------------------------------- weights while a step is under way */

static const struct cs_frame *expect_fetch(struct cs *c, uint32_t lane, uint64_t version)
{
	const ProtobufCMessage *msg;
	const struct cs_frame *f = cs_expect(c, lane, ZD_MSG_FETCH, &msg);

	assert_int_equal(((const Zd__Pb__Fetch *)msg)->mode, 2); /* exactly */
	assert_int_equal(((const Zd__Pb__Fetch *)msg)->version, version);
	return f;
}

/* Up to the decision of round 5, which both lanes have been told and neither has applied; the number of the step. */
static uint64_t decide(struct cs *c, struct zd_decision *ret_decision)
{
	struct zd_record r = cs_record(5, own);
	const ProtobufCMessage *msg;
	uint64_t stepping;

	push_all(c, 5, own);
	stepping = step(c);
	cs_expect(c, 0, ZD_MSG_COMMIT, NULL);
	cs_expect(c, 1, ZD_MSG_COMMIT, NULL);
	cs_prepared(c, 0, own, &r);
	cs_prepared(c, 1, own, &r);
	cs_expect(c, 0, ZD_MSG_APPLY, &msg);
	cs_expect(c, 1, ZD_MSG_APPLY, NULL);
	zd_decision_from_pb(ret_decision, ((const Zd__Pb__Apply *)msg)->decision);
	return stepping;
}

/* Lane 0 applies the decision at once.  What it is asked for then is past, and the next version has no name here before lane 1
 * has applied it, too: who asked waits for that. */
static void test_weights_of_a_step_under_way(void **state)
{
	static float dst[81920];
	struct cs *c = begin_round(4, 1, 1);
	struct zd_session_event gather = {.type = ZD_SE_REQ_GATHER, .u.gather.unit = 0};
	struct zd_session_event fetch = {.type = ZD_SE_REQ_FETCH, .u.fetch = {0, ZD_PLANE_MASTER, dst}};
	struct zd_session_event late = {.type = ZD_SE_REQ_FETCH, .deadline = c->now + ZD_MS(100), .u.fetch = {0, ZD_PLANE_WEIGHTS, dst}};
	struct zd_decision d;
	uint64_t asked[3], stepping = decide(c, &d);

	(void)state;
	cs_applied(c, 0, own, &d);
	asked[0] = cs_ask(c, &gather);
	asked[1] = cs_ask(c, &fetch);
	for (uint32_t i = 0; i < 2; i++) {
		uint64_t there = expect_fetch(c, 0, 4)->stream, here = expect_fetch(c, 1, 4)->stream;

		cs_error(c, 0, there, ZD_ERR_VERSION_GONE, "the lane has 5");
		cs_error(c, 1, here, ZD_ERR_VERSION_GONE, "it came later");
		assert_null(cs_ended(c, asked[i]));
	}
	asked[2] = cs_ask(c, &late);
	cs_expect_nothing(c, 0);
	cs_tick(c, ZD_MS(100));
	assert_int_equal(cs_ended(c, asked[2])->status, ZEROD_ERR_TIMEOUT);
	assert_non_null(strstr(cs_ended(c, asked[2])->text, "lane 1 (one:1, its lane 1) has not answered the decision"));
	assert_false(c->closed[0] || c->closed[1]);
	cs_applied(c, 1, own, &d);
	assert_int_equal(cs_ended(c, stepping)->status, ZEROD_OK);
	for (uint32_t lane = 0; lane < 2; lane++)
		for (uint32_t i = 0; i < 2; i++)
			expect_fetch(c, lane, 5);
	assert_true(!cs_ended(c, asked[0]) && !cs_ended(c, asked[1]));
	end(c);
}

/* A frozen unit has no version to wait for: what it lacks then is room, and that is what is said. */
static void test_frozen_weights_beside_a_step(void **state)
{
	struct cs *c = begin_round(4, 1, 1);
	struct zd_session_event gather = {.type = ZD_SE_REQ_GATHER};
	struct zd_decision d;
	uint64_t asked;

	(void)state;
	decide(c, &d);
	cs_applied(c, 0, own, &d);
	for (gather.u.gather.unit = 0; gather.u.gather.unit < 2; gather.u.gather.unit++)
		cs_ask(c, &gather); /* the two largest fill the limiter's bound while they are on their way */
	cs_error(c, 0, expect_fetch(c, 0, 4)->stream, ZD_ERR_VERSION_GONE, "the lane has 5");
	gather.deadline = c->now + ZD_MS(100);
	asked = cs_ask(c, &gather);
	cs_tick(c, ZD_MS(100));
	assert_int_equal(cs_ended(c, asked)->status, ZEROD_ERR_TIMEOUT);
	assert_non_null(strstr(cs_ended(c, asked)->text, "the limiter has no room"));
	end(c);
}

/* The answer may also come when the step has ended; and where none is under way, it is an error. */
static void test_weights_that_are_past(void **state)
{
	static float dst[81920];
	struct cs *c = begin_round(4, 1, 1);
	struct zd_session_event fetch = {.type = ZD_SE_REQ_FETCH, .u.fetch = {0, ZD_PLANE_MASTER, dst}};
	uint64_t asked = cs_ask(c, &fetch), there = expect_fetch(c, 0, 4)->stream, here = expect_fetch(c, 1, 4)->stream;
	struct zd_decision d;

	(void)state;
	decide(c, &d);
	cs_applied(c, 0, own, &d);
	cs_applied(c, 1, own, &d);
	cs_error(c, 0, there, ZD_ERR_VERSION_GONE, "the lane has 5");
	assert_null(cs_ended(c, asked));
	cs_error(c, 1, here, ZD_ERR_VERSION_GONE, "the lane has 5");
	assert_null(cs_ended(c, asked));
	there = expect_fetch(c, 0, 5)->stream;
	here = expect_fetch(c, 1, 5)->stream;
	cs_error(c, 0, there, ZD_ERR_VERSION_GONE, "the lane has 6");
	cs_error(c, 1, here, ZD_ERR_VERSION_GONE, "the lane has 6");
	assert_int_equal(cs_ended(c, asked)->status, ZEROD_ERR_STATE);
	end(c);
}

/* ---------------------------------------------------------------- time runs out */

/* What a lane had counted when time ran out counts for the push that comes after, with those that were behind it in its unit. */
static void test_push_times_out_and_comes_again(void **state)
{
	struct cs *c = begin_round(4, 1, 1);
	struct zd_session_event ev = {.type = ZD_SE_REQ_PUSH, .deadline = c->now + ZD_MS(500), .u.push = {.micro_batches = 2, .data = grad}};
	struct zd_session_event ask = {.type = ZD_SE_REQ_STEP, .u.step = {.hyper = cs_record(1, own).hyper, .micro_batches = 2}};
	uint64_t first = cs_ask(c, &ev), other = push(c, 1, 0, 2, 0), behind = push(c, 0, 1, 2, 0), again;
	uint32_t small;

	(void)state;
	small = skip_pushes(c, 0) == 22 ? 0 : 1;
	assert_int_equal(skip_pushes(c, 1), small ? 22 : 20);
	cs_sent(c, 0);
	cs_sent(c, 1);
	cs_pushed(c, small, own, 5, 1, 2, 0);
	assert_int_equal(cs_ended(c, other)->status, ZEROD_OK);
	cs_pushed(c, 0, own, 5, 0, 10, 0); /* all of the first */
	cs_pushed(c, 1, own, 5, 0, 4, 0);
	cs_tick(c, ZD_MS(500));
	assert_int_equal(cs_ended(c, first)->status, ZEROD_ERR_TIMEOUT);
	assert_int_equal(cs_ended(c, behind)->status, ZEROD_ERR_TIMEOUT);
	again = push(c, 0, 0, 2, 0);
	assert_null(cs_ended(c, again));
	cs_pushed(c, 1, own, 5, 0, 20, 0);
	assert_non_null(cs_ended(c, again));
	assert_int_equal(cs_ended(c, again)->status, ZEROD_OK);
	behind = push(c, 0, 1, 2, 0);
	assert_null(cs_ended(c, behind));
	cs_pushed(c, 0, own, 5, 0, 20, 0);
	assert_int_equal(cs_ended(c, behind)->status, ZEROD_OK);
	push(c, 1, 1, 2, 0);
	assert_int_equal(skip_pushes(c, small), 2);
	cs_sent(c, small);
	cs_pushed(c, small, own, 5, 1, 4, 0);
	cs_ask(c, &ask);
	skip_pushes(c, 0);
	skip_pushes(c, 1);
	cs_expect(c, 0, ZD_MSG_COMMIT, NULL);
	cs_expect(c, 1, ZD_MSG_COMMIT, NULL);
	end(c);
}

/* Where all lanes had counted it by then, it is done at once. */
static void test_push_times_out_and_is_counted(void **state)
{
	struct cs *c = begin_round(4, 1, 1);
	struct zd_session_event ev = {.type = ZD_SE_REQ_PUSH, .deadline = c->now + ZD_MS(500), .u.push = {.micro_batches = 1, .data = grad}};
	uint64_t first = cs_ask(c, &ev), again;

	(void)state;
	skip_pushes(c, 0);
	skip_pushes(c, 1);
	cs_sent(c, 0);
	cs_sent(c, 1);
	cs_tick(c, ZD_MS(500));
	assert_int_equal(cs_ended(c, first)->status, ZEROD_ERR_TIMEOUT);
	cs_pushed(c, 0, own, 5, 0, 10, 0);
	cs_pushed(c, 1, own, 5, 0, 10, 0);
	again = push(c, 0, 0, 1, 0);
	assert_non_null(cs_ended(c, again));
	assert_int_equal(cs_ended(c, again)->status, ZEROD_OK);
	end(c);
}

/* No micro-batch overtakes another: a push is refused while a unit is missing in the one before, and ends with those of the one before. */
static void test_micro_batches_go_one_after_the_other(void **state)
{
	struct cs *c = begin_round(4, 2, 1);
	struct zd_session_event ev = {.type = ZD_SE_REQ_PUSH, .deadline = c->now + ZD_MS(700),
				      .u.push = {.unit = 0, .micro = 0, .micro_batches = 3, .data = grad}};
	uint64_t big = cs_ask(c, &ev), small, later[3];

	(void)state;
	later[0] = push(c, 0, 1, 3, 0);
	assert_int_equal(cs_ended(c, later[0])->status, ZEROD_ERR_ARGUMENT);
	assert_non_null(strstr(cs_ended(c, later[0])->text, "micro-batch 1 of unit \"big\": unit \"small\" was not pushed in micro-batch 0"));
	small = push(c, 1, 0, 3, 0);
	later[0] = push(c, 1, 1, 3, 0);
	later[1] = push(c, 0, 1, 3, 0);
	later[2] = push(c, 1, 2, 3, 0);
	cs_tick(c, ZD_MS(700));
	cs_down(c, 0);
	cs_down(c, 1);
	assert_int_equal(cs_ended(c, big)->status, ZEROD_ERR_TIMEOUT);
	for (int i = 0; i < 3; i++) {
		assert_non_null(cs_ended(c, later[i]));
		assert_int_equal(cs_ended(c, later[i])->status, ZEROD_ERR_TIMEOUT);
	}
	assert_null(cs_ended(c, small));
	later[0] = push(c, 1, 1, 3, 0);
	assert_non_null(strstr(cs_ended(c, later[0])->text, "unit \"big\" was not pushed in micro-batch 0"));
	push(c, 0, 0, 3, 0);
	later[0] = push(c, 1, 1, 3, 0);
	assert_null(cs_ended(c, later[0]));
	end(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_resolve_table),
		cmocka_unit_test(test_resolve_starts_over),
		cmocka_unit_test(test_all_lanes_forget_a_decision),
		cmocka_unit_test(test_resume_table),
		cmocka_unit_test(test_resume_sends_the_rest),
		cmocka_unit_test(test_step_and_duplicates),
		cmocka_unit_test(test_old_record_is_not_taken),
		cmocka_unit_test(test_credit),
		cmocka_unit_test(test_no_credit_needed),
		cmocka_unit_test(test_redo),
		cmocka_unit_test(test_redo_that_was_decided),
		cmocka_unit_test(test_redo_that_was_not_decided),
		cmocka_unit_test(test_weights_of_a_step_under_way),
		cmocka_unit_test(test_frozen_weights_beside_a_step),
		cmocka_unit_test(test_weights_that_are_past),
		cmocka_unit_test(test_push_times_out_and_comes_again),
		cmocka_unit_test(test_push_times_out_and_is_counted),
		cmocka_unit_test(test_micro_batches_go_one_after_the_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
