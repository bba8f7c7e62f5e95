/* SPDX-License-Identifier: Apache-2.0 */
/* The job of the session's tests, its lanes played by the test: two of one daemon.  Included by each of them once. */
#ifndef ZD_TEST_CLIENT_FIXTURE_H
#define ZD_TEST_CLIENT_FIXTURE_H

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
static struct zd_spec spec = {
	.name = "job", .optimizer = ZD_OPT_ADAMW, .grad_codec = ZD_CODEC_BF16, .extent_elems = EXTENT, .lease_ms = 4000, .unit_count = 3, .units = units};
static uint16_t grad[81920];

static const struct zd_ballot own = {2, 0};

#define LOST_WAY_OUT "; no launch can go on from there: drop the job everywhere (zeroctl --yes job drop job), then start all ranks from the initial weights"

static inline struct cs *begin_as(uint32_t rank, uint32_t world)
{
	struct cs *c = malloc(sizeof(*c));
	struct cs_options o = {.spec = &spec, .daemons = 1, .rank = rank, .world = world, .epoch = 2, .prefetch = 1};
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

static inline struct cs *begin(uint32_t world)
{
	return begin_as(0, world);
}

static inline void end(struct cs *c)
{
	cs_fini(c);
	free(c);
}

/* Both lanes have decided `decided` and hold nothing. */
static inline struct cs *begin_round(uint64_t decided, uint32_t world, uint32_t credit)
{
	struct cs *c = begin(world);
	const struct cs_joined j = {.ballot = own, .decided = decided, .decision_ballot = {1, 0}, .credit = credit};

	cs_joined(c, 0, &j);
	cs_joined(c, 1, &j);
	assert_int_equal(cs_ended(c, 1)->status, ZEROD_OK);
	return c;
}

static inline uint64_t push(struct cs *c, uint32_t unit, uint32_t micro, uint32_t micro_batches, uint8_t tells)
{
	struct zd_session_event ev = {.type = ZD_SE_REQ_PUSH,
				      .u.push = {.unit = unit, .micro = micro, .micro_batches = micro_batches, .data = grad, .tells = tells}};

	return cs_ask(c, &ev);
}

static inline uint64_t step(struct cs *c)
{
	struct zd_session_event ev = {.type = ZD_SE_REQ_STEP, .u.step = {.hyper = cs_record(1, own).hyper, .micro_batches = 1}};

	return cs_ask(c, &ev);
}

static inline uint32_t skip_pushes(struct cs *c, uint32_t slot)
{
	uint32_t n = 0;

	while (c->seen[slot] < c->got[slot] && c->frame[slot][c->seen[slot] % CS_FRAMES].type == ZD_MSG_PUSH) {
		c->seen[slot]++;
		n++;
	}
	return n;
}

/* Extents of a unit that a lane has, from what is sent there. */
static inline uint32_t small_lane(struct cs *c)
{
	uint32_t n0 = skip_pushes(c, 0), n1 = skip_pushes(c, 1);

	assert_int_equal(n0 + n1, 22);
	assert_true(n0 == 10 || n1 == 10);
	return n0 == 12 ? 0 : 1;
}

/* Pushes everything and has it counted; returns the lane of "small". */
static inline uint32_t push_all(struct cs *c, uint64_t round, struct zd_ballot ballot)
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

#endif
