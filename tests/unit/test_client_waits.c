/* SPDX-License-Identifier: Apache-2.0 */
/* What runs out of time names the ranks that the lanes wait for, as far as PONGs have said so. */
#include "client_fixture.h"

#define BIT(rank) (1ull << (rank))
#define ABSENT " not here (never joined, or silent for longer than the lease)"
#define BEHIND " joined, but did not push everything or call zerod_step"

static const struct cs_joined joined = {.ballot = own, .decided = 4, .decision_ballot = {1, 0}, .credit = 1};

/* Pushes everything with windows, of which the lanes give each back at once, and counts it. */
static void push_and_count(struct cs *c)
{
	uint64_t sent[2] = {0}, counted[2][2] = {{0}};

	push(c, 0, 0, 1, 0);
	push(c, 1, 0, 1, 0);
	while (c->seen[0] < c->got[0] || c->seen[1] < c->got[1]) {
		uint32_t lane = c->seen[0] < c->got[0] ? 0 : 1;
		uint32_t unit = (uint32_t)(cs_expect(c, lane, ZD_MSG_PUSH, NULL)->stream & 0xff);

		cs_sent(c, lane);
		cs_pushed(c, lane, own, 5, unit, ++counted[lane][unit], ++sent[lane]);
	}
	assert_int_equal(sent[0] + sent[1], 22);
}

static uint64_t step_within(struct cs *c, uint64_t ms)
{
	struct zd_session_event ev = {.type = ZD_SE_REQ_STEP, .deadline = c->now + ZD_MS(ms),
				      .u.step = {.hyper = cs_record(1, own).hyper, .micro_batches = 1}};

	return cs_ask(c, &ev);
}

static void ends(const struct cs *c, uint64_t request, const char *with)
{
	const struct cs_end *e = cs_ended(c, request);

	assert_non_null(e);
	assert_int_equal(e->status, ZEROD_ERR_TIMEOUT);
	if (!strstr(e->text, with))
		fail_msg("\"%s\" does not say \"%s\"", e->text, with);
}

static void a_step_names_who_is_missing(void **state)
{
	static const struct {
		uint64_t absent, behind;
		const char *says;
	} rows[] = {
		{0, 0, "has not prepared round 5: of 64 ranks, one has not joined, not pushed everything, or not called zerod_step"},
		{0, BIT(0), "of 64 ranks, one has not joined"}, /* its own COMMIT was on the way */
		{BIT(3), 0, "of 64 ranks, rank 3 is" ABSENT},
		{BIT(63), BIT(0) | BIT(1), "of 64 ranks, rank 63 is" ABSENT "; rank 1" BEHIND},
		{~BIT(0), 0, "of 64 ranks, ranks 1-63 are" ABSENT},
		{0, BIT(1) | BIT(4) | BIT(5) | BIT(7), "of 64 ranks, ranks 1, 4-5, 7" BEHIND},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct cs *c = begin(64);
		uint64_t r;

		cs_joined(c, 0, &joined);
		cs_joined(c, 1, &joined);
		push_and_count(c);
		cs_pong_ranks(c, 0, 0, BIT(9)); /* from before this rank committed: who was behind then says nothing */
		r = step_within(c, 500);
		if (i > 0) /* in the first row none has come since */
			cs_pong_ranks(c, 0, rows[i].absent, rows[i].behind);
		cs_tick(c, ZD_MS(500));
		ends(c, r, rows[i].says);
		assert_null(strstr(cs_ended(c, r)->text, "9"));
		end(c);
	}
}

static void a_push_names_who_keeps_its_windows(void **state)
{
	struct zd_session_event ev = {.type = ZD_SE_REQ_FLUSH};
	struct cs *c = begin_as(2, 4);
	uint64_t r;

	(void)state;
	cs_joined(c, 0, &joined);
	cs_joined(c, 1, &joined);
	push(c, 0, 0, 2, 0);
	ev.deadline = c->now + ZD_MS(500);
	r = cs_ask(c, &ev);
	cs_pong_ranks(c, 0, 0, BIT(0) | BIT(2) | BIT(3)); /* rank 3 comes later, whatever it does */
	cs_tick(c, ZD_MS(500));
	ends(c, r, "its receive windows are full: rank 0" BEHIND);
	ev.deadline = c->now + ZD_MS(500);
	r = cs_ask(c, &ev);
	cs_pong_ranks(c, 0, BIT(1), 0);
	cs_tick(c, ZD_MS(500));
	ends(c, r, "its receive windows are full: rank 1 is" ABSENT);
	ev.deadline = c->now + ZD_MS(500);
	r = cs_ask(c, &ev);
	cs_pong_ranks(c, 0, 0, BIT(2) | BIT(3));
	cs_tick(c, ZD_MS(500));
	ends(c, r, "its receive windows are full: a lower rank or micro-batch is missing");
	end(c);
}

static void a_gather_names_who_could_have_sealed(void **state)
{
	struct zd_session_event ev = {.type = ZD_SE_REQ_GATHER, .u.gather.unit = 0};
	const struct cs_joined unsealed = {.ballot = own, .credit = 1, .unsealed = 1};
	struct cs *c = begin_as(1, 2);
	uint64_t r;

	(void)state;
	cs_joined(c, 0, &unsealed);
	cs_joined(c, 1, &unsealed);
	ev.deadline = c->now + ZD_MS(500);
	r = cs_ask(c, &ev);
	cs_pong_ranks(c, 0, BIT(0), 0);
	cs_tick(c, ZD_MS(500));
	ends(c, r, "are its initial weights sealed (zerod_load of every unit, then zerod_seal)? rank 0 is" ABSENT);
	end(c);
}

/* What the last PONG of an older connection said is forgotten. */
static void a_new_connection_knows_nothing_yet(void **state)
{
	struct cs *c = begin_round(4, 2, 1);
	uint32_t small = push_all(c, 5, own);
	uint64_t r = step_within(c, 3000);

	(void)state;
	cs_pong_ranks(c, 0, BIT(1), 0);
	cs_pong_ranks(c, 1, BIT(1), 0);
	for (uint32_t i = 0; i < 2; i++) {
		cs_down(c, i);
		while (!c->gen[i])
			cs_tick(c, ZD_MS(10));
		cs_up(c, i, 2);
		cs_opened(c, i, 9);
		cs_joined(c, i, &(struct cs_joined){.ballot = own, .decided = 4, .decision_ballot = {1, 0}, .credit = 1,
						    .counted = (uint64_t[]){10, i == small ? 2 : 0, 0}});
	}
	cs_tick(c, ZD_MS(3000));
	ends(c, r, "one has not joined");
	end(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_step_names_who_is_missing),
		cmocka_unit_test(a_push_names_who_keeps_its_windows),
		cmocka_unit_test(a_gather_names_who_could_have_sealed),
		cmocka_unit_test(a_new_connection_knows_nothing_yet),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
