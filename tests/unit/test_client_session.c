/* SPDX-License-Identifier: Apache-2.0 */
/* The session against lanes that the test plays: what it sends in every state of the agreement, and how requests end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client_script.h"

#define EXTENT 4096u

/* On two lanes "big" has two pieces of 40960 elements, 10 extents each; the small ones are whole on one lane. */
static struct zd_unit_spec units[3] = {{"big", 81920, 0}, {"small", 8192, 0}, {"still", 100, 1}};
static const struct zd_spec spec = {
	.name = "job", .optimizer = ZD_OPT_ADAMW, .grad_codec = ZD_CODEC_BF16, .extent_elems = EXTENT, .lease_ms = 4000, .unit_count = 3, .units = units};
static uint16_t grad[81920];

static const struct zd_ballot own = {2, 0};

static struct cs *begin(uint32_t world)
{
	struct cs *c = malloc(sizeof(*c));
	struct cs_options o = {.spec = &spec, .daemons = 1, .rank = 0, .world = world, .epoch = 2, .prefetch = 1};
	struct zd_session_event connect = {.type = ZD_SE_REQ_CONNECT};

	assert_non_null(c);
	cs_init(c, &o);
	cs_ask(c, &connect);
	cs_up(c, 0, 2); /* the other lane becomes known */
	cs_up(c, 1, 2);
	for (uint32_t i = 0; i < 2; i++) {
		cs_expect(c, i, ZD_MSG_OPEN, NULL);
		cs_opened(c, i, 9);
		cs_expect(c, i, ZD_MSG_JOIN, NULL);
	}
	return c;
}

static void end(struct cs *c)
{
	cs_fini(c);
	free(c);
}

/* Both lanes have decided `decided` and hold nothing. */
static struct cs *begin_round(uint64_t decided, uint32_t world, uint32_t credit)
{
	struct cs *c = begin(world);
	const struct cs_joined j = {.ballot = own, .decided = decided, .decision_ballot = {1, 0}, .credit = credit};

	cs_joined(c, 0, &j);
	cs_joined(c, 1, &j);
	assert_int_equal(cs_ended(c, 1)->status, ZEROD_OK);
	return c;
}

static uint64_t push(struct cs *c, uint32_t unit, uint32_t micro, uint32_t micro_batches, uint8_t tells)
{
	struct zd_session_event ev = {.type = ZD_SE_REQ_PUSH,
				      .u.push = {.unit = unit, .micro = micro, .micro_batches = micro_batches, .data = grad, .tells = tells}};

	return cs_ask(c, &ev);
}

static uint64_t step(struct cs *c)
{
	struct zd_session_event ev = {.type = ZD_SE_REQ_STEP, .u.step = {.hyper = cs_record(1, own).hyper, .micro_batches = 1}};

	return cs_ask(c, &ev);
}

static uint32_t skip_pushes(struct cs *c, uint32_t slot)
{
	uint32_t n = 0;

	while (c->seen[slot] < c->got[slot] && c->frame[slot][c->seen[slot] % CS_FRAMES].type == ZD_MSG_PUSH) {
		c->seen[slot]++;
		n++;
	}
	return n;
}

/* Extents of a unit that a lane has, from what is sent there. */
static uint32_t small_lane(struct cs *c)
{
	uint32_t n0 = skip_pushes(c, 0), n1 = skip_pushes(c, 1);

	assert_int_equal(n0 + n1, 22);
	assert_true(n0 == 10 || n1 == 10);
	return n0 == 12 ? 0 : 1;
}

/* Pushes everything and has it counted; returns the lane of "small". */
static uint32_t push_all(struct cs *c, uint64_t round, struct zd_ballot ballot)
{
	uint32_t small;

	push(c, 0, 0, 1, 0);
	push(c, 1, 0, 1, 0);
	small = small_lane(c);
	cs_sent(c, 0);
	cs_sent(c, 1);
	cs_pushed(c, 0, ballot, round, 0, 10, 0);
	cs_pushed(c, 1, ballot, round, 0, 10, 0);
	cs_pushed(c, small, ballot, round, 1, 2, 0);
	return small;
}

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
	static const uint32_t none[3] = {0, 0, 0}, all[3] = {10, 2, 0}, fewer[3] = {9, 2, 0};
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
	static const uint32_t counted[3] = {4, 0, 0};
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

/* ---------------------------------------------------------------- ends */

static void test_aborted_table(void **state)
{
	static const struct {
		struct zd_ballot promise, ended;
		int code, status; /* status 0: goes on, with a new attempt */
	} rows[] = {
		{{2, 0}, {2, 0}, ZD_ERR_LEASE, ZEROD_ERR_ABORTED},
		{{2, 0}, {2, 0}, ZD_ERR_GAP, ZEROD_ERR_ABORTED},
		{{2, 0}, {2, 0}, ZD_ERR_HYPER_DIFFERS, ZEROD_ERR_ABORTED},
		{{2, 0}, {2, 0}, ZD_ERR_MICRO_DIFFERS, ZEROD_ERR_ABORTED},
		{{2, 0}, {2, 0}, ZD_ERR_DECISION_DIFFERS, ZEROD_ERR_ABORTED},
		{{2, 0}, {2, 0}, ZD_ERR_LOST, 0},
		{{2, 0}, {2, 0}, ZD_ERR_NOT_JOINED, 0},
		{{3, 0}, {2, 0}, ZD_ERR_BALLOT_LOW, ZEROD_ERR_STALE},
		{{3, 0}, {1, 0}, ZD_ERR_BALLOT_LOW, ZEROD_ERR_STALE},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct cs *c = begin_round(4, 2, 1);
		uint64_t r = push(c, 0, 0, 1, 0);

		skip_pushes(c, 0);
		cs_aborted(c, 0, rows[i].promise, rows[i].ended, rows[i].code, "the lane's words");
		if (rows[i].status == 0) {
			cs_expect(c, 0, ZD_MSG_JOIN, NULL);
			end(c);
			continue;
		}
		assert_true(c->closed[0] && c->closed[1]);
		cs_down(c, 0);
		cs_down(c, 1);
		assert_int_equal(cs_ended(c, r)->status, rows[i].status);
		if (rows[i].status == ZEROD_ERR_ABORTED)
			assert_non_null(strstr(cs_ended(c, r)->text, "the lane's words"));
		r = push(c, 1, 0, 1, 0); /* and so does everything later */
		assert_int_equal(cs_ended(c, r)->status, rows[i].status);
		cs_tick(c, ZD_SEC(10));
		assert_true(c->gen[0] == 0); /* it never comes back by itself */
		end(c);
	}
}

static void test_refused_table(void **state)
{
	static const struct {
		int code, status;
	} rows[] = {
		{ZD_ERR_RANK_TAKEN, ZEROD_ERR_REFUSED}, {ZD_ERR_WORLD_DIFFERS, ZEROD_ERR_REFUSED}, {ZD_ERR_LAUNCH_DIFFERS, ZEROD_ERR_REFUSED},
		{ZD_ERR_NO_MEMORY, ZEROD_ERR_REFUSED},	{ZD_ERR_JOB_DIFFERS, ZEROD_ERR_REFUSED},   {ZD_ERR_DRAINING, ZEROD_ERR_REFUSED},
		{ZD_ERR_DROPPED, ZEROD_ERR_LOST},	{ZD_ERR_BAD_MESSAGE, ZEROD_ERR_PROTOCOL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct cs *c = begin(2);

		cs_error(c, 1, 0, rows[i].code, "rank 0 is process 12");
		assert_int_equal(cs_ended(c, 1)->status, rows[i].status);
		assert_non_null(strstr(cs_ended(c, 1)->text, "rank 0 is process 12"));
		assert_non_null(strstr(cs_ended(c, 1)->text, "lane 1 (one:1, its lane 1)"));
		end(c);
	}
}

static void test_timeouts_name_what_they_waited_for(void **state)
{
	struct cs *c = begin_round(4, 2, 1);
	struct zd_session_event ev = {.type = ZD_SE_REQ_PUSH, .deadline = c->now + ZD_MS(700),
				      .u.push = {.unit = 0, .micro = 0, .micro_batches = 1, .data = grad}};
	struct zd_session_event gather = {.type = ZD_SE_REQ_GATHER, .deadline = c->now + ZD_MS(700), .u.gather.unit = 1};
	uint64_t r = cs_ask(c, &ev), g = cs_ask(c, &gather);

	(void)state;
	cs_pushed(c, 0, own, 5, 0, 10, 0);
	cs_pushed(c, 1, own, 5, 0, 7, 0);
	cs_tick(c, ZD_MS(700));
	assert_int_equal(cs_ended(c, g)->status, ZEROD_ERR_TIMEOUT);
	assert_non_null(strstr(cs_ended(c, g)->text, "\"small\""));
	assert_null(cs_ended(c, r)); /* not before its memory is free */
	assert_true(c->closed[0] && c->closed[1]);
	cs_down(c, 0);
	cs_down(c, 1);
	assert_int_equal(cs_ended(c, r)->status, ZEROD_ERR_TIMEOUT);
	assert_non_null(strstr(cs_ended(c, r)->text, "unit \"big\", micro-batch 0, rank 0"));
	assert_non_null(strstr(cs_ended(c, r)->text, "lane 1 (one:1, its lane 1) has 7 of 10 extents"));
	assert_non_null(strstr(cs_ended(c, r)->text, "700 ms"));
	end(c);
}

/* A step that timed out goes on; asked again, it reports the outcome. */
static void test_step_times_out_and_is_claimed(void **state)
{
	struct cs *c = begin_round(4, 2, 1);
	struct zd_session_event ev = {.type = ZD_SE_REQ_STEP, .deadline = c->now + ZD_MS(500),
				      .u.step = {.hyper = cs_record(1, own).hyper, .micro_batches = 1}};
	struct zd_record r = cs_record(5, own);
	const ProtobufCMessage *msg;
	struct zd_decision d;
	uint64_t first, second;

	(void)state;
	push_all(c, 5, own);
	first = cs_ask(c, &ev);
	cs_tick(c, ZD_MS(500));
	assert_int_equal(cs_ended(c, first)->status, ZEROD_ERR_TIMEOUT);
	assert_non_null(strstr(cs_ended(c, first)->text, "has not prepared round 5"));
	cs_expect(c, 0, ZD_MSG_COMMIT, NULL);
	cs_prepared(c, 0, own, &r);
	cs_prepared(c, 1, own, &r);
	cs_expect(c, 0, ZD_MSG_APPLY, &msg);
	zd_decision_from_pb(&d, ((const Zd__Pb__Apply *)msg)->decision);
	cs_applied(c, 0, own, &d);
	cs_applied(c, 1, own, &d);
	second = step(c);
	assert_int_equal(cs_ended(c, second)->status, ZEROD_OK);
	end(c);
}

static void test_wrong_calls(void **state)
{
	struct cs *c = begin_round(4, 2, 1);
	struct zd_session_event ev = {.type = ZD_SE_REQ_STEP, .u.step = {.hyper = cs_record(1, own).hyper, .micro_batches = 1}};
	uint64_t r;

	(void)state;
	r = push(c, 2, 0, 1, 0);
	assert_int_equal(cs_ended(c, r)->status, ZEROD_ERR_ARGUMENT);
	assert_non_null(strstr(cs_ended(c, r)->text, "frozen"));
	r = push(c, 0, 1, 2, 0);
	assert_int_equal(cs_ended(c, r)->status, ZEROD_ERR_ARGUMENT);
	assert_non_null(strstr(cs_ended(c, r)->text, "expected is 0 of 2"));
	push(c, 0, 0, 1, 0);
	r = push(c, 1, 0, 2, 0);
	assert_int_equal(cs_ended(c, r)->status, ZEROD_ERR_ARGUMENT);
	r = step(c);
	assert_int_equal(cs_ended(c, r)->status, ZEROD_ERR_STATE);
	assert_non_null(strstr(cs_ended(c, r)->text, "\"small\" was pushed for 0 of 1"));
	ev.u.step.hyper.beta1 = 1.5;
	r = cs_ask(c, &ev);
	assert_int_equal(cs_ended(c, r)->status, ZEROD_ERR_ARGUMENT);
	assert_non_null(strstr(cs_ended(c, r)->text, "beta1"));
	end(c);
}

/* ---------------------------------------------------------------- links */

static void test_silence_is_noticed(void **state)
{
	struct cs *c = begin_round(4, 2, 1);

	(void)state;
	cs_tick(c, ZD_MS(999));
	cs_expect_nothing(c, 0);
	cs_tick(c, ZD_MS(1)); /* a quarter of the lease */
	cs_expect(c, 0, ZD_MSG_PING, NULL);
	for (int i = 0; i < 4; i++)
		cs_tick(c, ZD_MS(1000));
	assert_true(c->closed[0] && c->closed[1]);
	end(c);
}

static void test_lost_life(void **state)
{
	struct cs *c = begin_round(4, 2, 1);
	uint64_t r = push(c, 0, 0, 1, 0);

	(void)state;
	cs_down(c, 0);
	cs_tick(c, ZD_SEC(3));
	cs_up(c, 0, 2);
	cs_opened(c, 0, 10); /* another life */
	cs_down(c, 0);
	cs_down(c, 1);
	assert_int_equal(cs_ended(c, r)->status, ZEROD_ERR_LOST);
	assert_non_null(strstr(cs_ended(c, r)->text, "lane 0"));
	end(c);
}

static void test_greeting(void **state)
{
	struct cs *c = malloc(sizeof(*c));
	struct cs_options o = {.spec = &spec, .daemons = 1, .rank = 0, .world = 1, .epoch = 2};
	struct zd_session_event connect = {.type = ZD_SE_REQ_CONNECT}, up = {.type = ZD_SE_UP, .slot = 0};
	struct zd_session_event bytes = {.type = ZD_SE_BYTES, .slot = 0, .u.bytes.len = 40};
	Zd__Pb__Welcome m = ZD__PB__WELCOME__INIT;
	char daemon[] = "d";

	(void)state;
	assert_non_null(c);
	cs_init(c, &o);
	cs_ask(c, &connect);
	up.gen = c->gen[0];
	cs_step(c, &up);
	cs_expect(c, 0, ZD_MSG_HELLO, NULL);
	cs_expect_nothing(c, 0);
	m.version = ZD_VERSION;
	m.lane_count = 1;
	m.daemon = daemon;
	m.payload_max = ZD_PAYLOAD_MAX;
	cs_say(c, 0, ZD_MSG_WELCOME, 0, &m.base, NULL, 0);
	cs_expect(c, 0, ZD_MSG_OPEN, NULL);
	cs_fini(c);

	cs_init(c, &o);
	cs_ask(c, &connect);
	up.gen = bytes.gen = c->gen[0];
	cs_step(c, &up);
	memcpy(zd_session_window(c->session, 0, up.gen).base, "HTTP/1.1 400 Bad Request\r\nConnection: c", 40);
	cs_step(c, &bytes);
	assert_int_equal(cs_ended(c, 1)->status, ZEROD_ERR_CONNECT);
	assert_non_null(strstr(cs_ended(c, 1)->text, "one:1 speaks another protocol"));
	end(c);
}

static void test_nobody_answers(void **state)
{
	struct cs *c = malloc(sizeof(*c));
	struct cs_options o = {.spec = &spec, .daemons = 2, .rank = 0, .world = 1, .epoch = 2};
	struct zd_session_event connect = {.type = ZD_SE_REQ_CONNECT, .deadline = ZD_SEC(11)};
	struct zd_session_event down = {.type = ZD_SE_DOWN, .slot = 1, .u.down.text = "connection refused"};
	zd_time tried = 0;
	uint32_t tries = 0;

	(void)state;
	assert_non_null(c);
	cs_init(c, &o);
	cs_ask(c, &connect);
	cs_up(c, 0, 1);
	while (!cs_ended(c, 1)) {
		if (c->gen[1] != down.gen) {
			assert_true(c->now - tried <= ZD_SEC(2));
			tried = c->now;
			tries++;
			down.gen = c->gen[1];
			cs_step(c, &down);
		}
		cs_tick(c, zd_session_deadline(c->session) - c->now);
	}
	assert_true(tries > 5 && tries < 40);
	assert_int_equal(cs_ended(c, 1)->status, ZEROD_ERR_CONNECT);
	assert_non_null(strstr(cs_ended(c, 1)->text, "two:2: connection refused"));
	assert_int_equal(c->now, ZD_SEC(11));
	end(c);
}

/* ---------------------------------------------------------------- memory */

/* A conversation up to a decision in which one allocation fails: whatever is asked ends, with the right word. */
static void converse(struct cs *c)
{
	const struct cs_joined j = {.ballot = own, .decided = 4, .record_round = 5, .record_ballot = {1, 0}, .credit = 1};
	struct zd_session_event connect = {.type = ZD_SE_REQ_CONNECT}, gather = {.type = ZD_SE_REQ_GATHER, .u.gather.unit = 1};
	static float dst[8192];
	struct zd_session_event fetch = {.type = ZD_SE_REQ_FETCH, .u.fetch = {1, ZD_PLANE_MASTER, dst}};
	struct zd_decision d = cs_decision(5, (struct zd_ballot){1, 0});
	uint64_t asked = cs_ask(c, &connect);
	struct zd_session_view view;

	for (uint32_t i = 0; i < 2 && c->gen[i]; i++)
		cs_up(c, i, 2);
	for (uint32_t i = 0; i < 2; i++)
		cs_opened(c, i, 9);
	for (uint32_t i = 0; i < 2; i++)
		cs_joined(c, i, &j);
	for (uint32_t i = 0; i < 2; i++)
		cs_applied(c, i, own, &d);
	push(c, 0, 0, 1, 0);
	cs_ask(c, &gather);
	cs_ask(c, &fetch);
	push(c, 1, 0, 1, 0);
	step(c);
	zd_session_view(c->session, &view);
	if (cs_ended(c, asked) && cs_ended(c, asked)->status == ZEROD_OK)
		assert_true(view.decided == 5 || view.failed == ZEROD_ERR_MEMORY);
	for (uint32_t i = 0; i < c->ends; i++) {
		int status = c->end[i].status;

		assert_true(status == ZEROD_OK || status == ZEROD_ERR_MEMORY || status == ZEROD_ERR_STATE);
		assert_true(status == ZEROD_OK || c->end[i].text[0]);
	}
}

static void test_allocations_fail(void **state)
{
	uint32_t failures = 0, n = 1;
	struct cs *c = malloc(sizeof(*c));

	(void)state;
	assert_non_null(c);
	for (;; n++) {
		struct cs_options o = {.spec = &spec, .daemons = 1, .rank = 0, .world = 2, .epoch = 2, .prefetch = 1, .fail_at = n};
		uint32_t reached;

		cs_init(c, &o);
		if (c->session)
			converse(c);
		for (uint32_t i = 0; i < c->ends; i++)
			failures += c->end[i].status == ZEROD_ERR_MEMORY;
		reached = c->allocations;
		cs_fini(c);
		if (reached < n)
			break;
	}
	assert_true(n > 20 && failures > 8);
	free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_resolve_table),
		cmocka_unit_test(test_resolve_starts_over),
		cmocka_unit_test(test_resume_table),
		cmocka_unit_test(test_resume_sends_the_rest),
		cmocka_unit_test(test_step_and_duplicates),
		cmocka_unit_test(test_old_record_is_not_taken),
		cmocka_unit_test(test_credit),
		cmocka_unit_test(test_no_credit_needed),
		cmocka_unit_test(test_redo),
		cmocka_unit_test(test_redo_that_was_decided),
		cmocka_unit_test(test_redo_that_was_not_decided),
		cmocka_unit_test(test_aborted_table),
		cmocka_unit_test(test_refused_table),
		cmocka_unit_test(test_timeouts_name_what_they_waited_for),
		cmocka_unit_test(test_step_times_out_and_is_claimed),
		cmocka_unit_test(test_wrong_calls),
		cmocka_unit_test(test_silence_is_noticed),
		cmocka_unit_test(test_lost_life),
		cmocka_unit_test(test_greeting),
		cmocka_unit_test(test_nobody_answers),
		cmocka_unit_test(test_allocations_fail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
