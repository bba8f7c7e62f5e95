/* SPDX-License-Identifier: Apache-2.0 */
/* FETCH: versions, waiting, what is lent, and Adam that must not touch it. */
#include <stdio.h>
#include <stdlib.h>

#include "core_harness.h"

#define E 4096u
#define EXTENTS 20u
static const int64_t sizes[] = {E * EXTENTS, -5000};
static const struct hz_who one = {.epoch = 1, .world = 1};

enum { AT_LEAST = 1, EXACTLY = 2, IF_NEWER = 3 };

/* Rank 0 on slot 0 and a reader on slot 1. */
static struct hz *up(uint32_t windows)
{
	struct hz *h = hz_new(windows, 4u << 20);

	hz_spec(h, "job", ZD_OPT_ADAMW, ZD_CODEC_BF16, E, 2, sizes);
	hz_connect(h, 0, ZD_ROLE_WORKER);
	hz_open(h, 0, 1);
	hz_join(h, 0, one);
	hz_connect(h, 1, ZD_ROLE_READER);
	hz_open(h, 1, 0);
	return h;
}

static uint32_t frames(const struct hz *h, uint32_t slot)
{
	return h->conn[slot].count;
}

static void parked_until_sealed_and_decided(void **state)
{
	struct hz *h = up(8);
	const Zd__Pb__Data *m;

	(void)state;
	hz_send_fetch(h, 1, 21, 0, 0, E, 1, AT_LEAST, 0);
	hz_send_fetch(h, 1, 22, 0, 0, E, 1, AT_LEAST, 1);
	hz_send_fetch(h, 1, 23, 0, 0, E, 1, EXACTLY, 1);
	hz_nothing(h, 1);
	hz_load_all(h, 0, 3);
	m = (const Zd__Pb__Data *)hz_recv(h, 1, ZD_MSG_DATA);
	assert_int_equal(h->last.stream, 21);
	assert_int_equal(m->version, 0);
	hz_nothing(h, 1);
	hz_send_fetch(h, 1, 24, 1, 0, 5000, 1, AT_LEAST, 0); /* later requests are not held up */
	while (frames(h, 1) > 0)
		hz_recv(h, 1, ZD_MSG_DATA);
	assert_int_equal(h->last.stream, 24);
	hz_round(h, one, 1, 1, &hz_hyper);
	for (uint64_t stream = 22; stream <= 23; stream++) {
		m = (const Zd__Pb__Data *)hz_recv(h, 1, ZD_MSG_DATA);
		assert_int_equal(h->last.stream, stream);
		assert_int_equal(m->version, 1);
		assert_int_equal(m->last, 1);
	}
	hz_nothing(h, 1);
	hz_free(h);
}

static void versions(void **state)
{
	static const struct {
		uint32_t unit, mode;
		uint64_t version;
		int payload, err; /* of the answer */
		uint64_t answer;
	} table[] = {
		{0, AT_LEAST, 0, 1, 0, 2}, {0, AT_LEAST, 2, 1, 0, 2}, {0, EXACTLY, 2, 1, 0, 2},	  {0, EXACTLY, 1, 0, ZD_ERR_VERSION_GONE, 0},
		{0, IF_NEWER, 1, 1, 0, 2}, {0, IF_NEWER, 2, 0, 0, 2}, {0, IF_NEWER, 9, 0, 0, 2}, {1, IF_NEWER, 0, 0, 0, 2},
		{1, AT_LEAST, 0, 1, 0, 2}, {1, EXACTLY, 1, 1, 0, 1},
	};
	struct hz *h = up(8);

	(void)state;
	hz_load_all(h, 0, 3);
	hz_round(h, one, 1, 1, &hz_hyper);
	hz_round(h, one, 2, 1, &hz_hyper);
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		const Zd__Pb__Data *m;

		hz_send_fetch(h, 1, 30 + i, table[i].unit, 0, E, 1, table[i].mode, table[i].version);
		if (table[i].err) {
			hz_error(h, 1, table[i].err, "version 1 of unit u0 is no longer here, the lane has 2", 0);
			continue;
		}
		m = (const Zd__Pb__Data *)hz_recv(h, 1, ZD_MSG_DATA);
		assert_int_equal(h->last.stream, 30 + i);
		assert_int_equal(m->version, table[i].answer);
		assert_int_equal(m->last, 1);
		assert_int_equal(h->last.payload_len > 0, table[i].payload);
	}
	hz_free(h);
}

static void refused(void **state)
{
	static const struct {
		uint32_t unit;
		uint64_t first, count;
		uint32_t plane, mode;
		int err;
		const char *part;
	} table[] = {
		{2, 0, E, 1, 1, ZD_ERR_NO_UNIT, "unit 2, job job has 2"},
		{0, 64, E, 1, 1, ZD_ERR_BAD_RANGE, "[64, +4096): this lane owns [0, +81920) in chunks of 4096"},
		{0, 0, E - 1, 1, 1, ZD_ERR_BAD_RANGE, "[0, +4095)"},
		{0, 0, E *EXTENTS + 1, 1, 1, ZD_ERR_BAD_RANGE, ""},
		{0, E *EXTENTS, E, 1, 1, ZD_ERR_BAD_RANGE, ""},
		{0, 0, E, 3, 1, ZD_ERR_BAD_RANGE, "serves weights"},
	};
	struct hz *h = up(8);

	(void)state;
	hz_load_all(h, 0, 3);
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		hz_send_fetch(h, 1, 40, table[i].unit, table[i].first, table[i].count, table[i].plane, table[i].mode, 0);
		hz_error(h, 1, table[i].err, table[i].part, 0);
		assert_int_equal(h->last.stream, 40);
	}
	for (uint32_t i = 0; i < 64; i++)
		hz_send_fetch(h, 1, i, 0, 0, E, 1, AT_LEAST, 5);
	hz_nothing(h, 1);
	hz_send_fetch(h, 1, 64, 0, 0, E, 1, AT_LEAST, 5);
	hz_error(h, 1, ZD_ERR_TOO_MANY, "beyond the 64", 1);
	hz_free(h);
}

/* At most eight frames are lent; due updates of a batch run in one step, and their frames follow in one. */
static void batches(void **state)
{
	struct hz *h = up(8);

	(void)state;
	hz_load_all(h, 0, 3);
	hz_round(h, one, 1, 1, &hz_hyper);
	h->hold_sent = 1;
	h->most_kernels = h->most_sends = 0;
	hz_send_fetch(h, 1, 50, 0, 0, E * EXTENTS, 1, AT_LEAST, 1);
	assert_int_equal(frames(h, 1), 8);
	assert_int_equal(h->most_kernels, 8);
	assert_int_equal(h->most_sends, 8);
	hz_sent(h, 1);
	hz_sent(h, 1);
	hz_sent(h, 1);
	assert_int_equal(frames(h, 1), 8); /* not one by one */
	h->most_sends = 0;
	hz_sent(h, 1);
	assert_int_equal(frames(h, 1), 12);
	assert_int_equal(h->most_sends, 4);
	while (h->conn[1].lent_count > 0)
		hz_sent(h, 1);
	assert_int_equal(frames(h, 1), EXTENTS);
	hz_free(h);
}

/* Adam waits for what is lent, however long the reader takes within the lease. */
static void lent_weights_stay(void **state)
{
	struct hz *h = up(8);
	uint16_t g[E];

	(void)state;
	memset(g, 0, sizeof g);
	hz_load_all(h, 0, 3);
	h->hold_sent = 1;
	hz_send_fetch(h, 1, 50, 0, 0, E, 1, AT_LEAST, 0);
	assert_int_equal(frames(h, 1), 1); /* extent 0 is lent to the reader */
	hz_round(h, one, 1, 1, &hz_hyper);
	hz_idle(h);
	assert_int_equal(hz_view(h).due, 1);
	assert_false(zd_core_wants_idle(h->core)); /* no spinning */
	hz_send_fetch(h, 0, 51, 0, 0, 2 * E, 1, AT_LEAST, 1);
	hz_nothing(h, 0);
	assert_true(zd_core_deadline(h->core) <= h->now + ZD_MS(1000));
	hz_time(h, 999);
	hz_sent(h, 1); /* the harness has checked the lent bytes all the while */
	assert_int_equal(hz_view(h).due, 0);
	assert_int_equal(frames(h, 0), 2);
	assert_true(zd_core_deadline(h->core) == ZD_TIME_NEVER);
	hz_free(h);
}

static void who_holds_weights_too_long_is_closed(void **state)
{
	struct hz *h = up(8);
	uint8_t frame[16384];
	uint16_t g[E];
	size_t n;

	(void)state;
	memset(g, 0, sizeof g);
	hz_load_all(h, 0, 3);
	h->hold_sent = 1;
	hz_send_fetch(h, 1, 50, 0, 0, E, 1, AT_LEAST, 0);
	hz_round(h, one, 1, 1, &hz_hyper);
	n = hz_encode_push(h, frame, sizeof frame, (struct hz_push){1, 0, 2, 0, 0, 0, 1, 0, E}, g);
	assert_true(hz_feed(h, 0, frame, n) < n); /* the next round's gradient finds its extent due and lent: not read on */
	assert_int_equal(zd_core_window(h->core, (struct zd_conn_id){0, h->conn[0].gen}).len, 0);
	hz_drain(h, 1);
	hz_time(h, 1000);
	hz_error(h, 1, ZD_ERR_TIMED_OUT, "not read for 1000 ms", 1);
	assert_false(h->conn[1].open); /* CLOSED gave the weights back */
	assert_true(zd_core_window(h->core, (struct zd_conn_id){0, h->conn[0].gen}).len > 0);
	assert_int_equal(h->kernels[ZD_KERNEL_ADAM], 1);
	hz_free(h);
}

/* The time counts for each piece of memory from when somebody waited for it: those who hold others, and give them back in time, stay. */
static void who_gives_back_in_time_stays(void **state)
{
	struct hz *h = up(8);

	(void)state;
	hz_load_all(h, 0, 3);
	for (uint32_t slot = 2; slot < 6; slot++) {
		hz_connect(h, slot, ZD_ROLE_READER);
		hz_open(h, slot, 0);
	}
	h->hold_sent = 1;
	for (uint32_t slot = 1; slot < 4; slot++) { /* extents 0, 1 and 2 are lent to slots 1, 2 and 3 */
		hz_send_fetch(h, slot, 50, 0, (slot - 1) * E, E, 1, AT_LEAST, 0);
		hz_recv(h, slot, ZD_MSG_DATA);
	}
	hz_round(h, one, 1, 1, &hz_hyper);
	hz_send_fetch(h, 0, 51, 0, 0, E, 1, AT_LEAST, 1);
	hz_time(h, 900);
	hz_send_fetch(h, 4, 52, 0, E, E, 1, AT_LEAST, 1);
	hz_time(h, 50);
	hz_sent(h, 1); /* after 950 ms */
	hz_time(h, 800);
	hz_send_fetch(h, 5, 53, 0, 2 * E, E, 1, AT_LEAST, 1);
	hz_time(h, 149);
	hz_nothing(h, 2);
	hz_time(h, 1); /* the first of them that really kept it for a lease */
	hz_error(h, 2, ZD_ERR_TIMED_OUT, "not read for 1000 ms", 1);
	hz_nothing(h, 3);
	hz_time(h, 849);
	hz_nothing(h, 3);
	hz_sent(h, 3);
	for (uint32_t slot = 0; slot < 6; slot += slot ? 1 : 4)
		hz_recv(h, slot, ZD_MSG_DATA);
	assert_true(zd_core_deadline(h->core) == ZD_TIME_NEVER);
	hz_free(h);
}

/* Without optimizer there are two sums, and only the older one's memory is waited for. */
static void who_holds_the_other_sum_stays(void **state)
{
	static const int64_t unit[] = {E};
	static const struct zd_hyper *hp = &hz_hyper;
	static float g[E];
	struct hz *h = hz_new(8, 4u << 20);

	(void)state;
	hz_spec(h, "job", ZD_OPT_NONE, ZD_CODEC_FP32, E, 1, unit);
	for (uint32_t slot = 0; slot < 4; slot++) {
		hz_connect(h, slot, slot == 0 ? ZD_ROLE_WORKER : ZD_ROLE_READER);
		hz_open(h, slot, 1);
	}
	hz_join(h, 0, one);
	hz_round(h, one, 1, 1, hp);
	h->hold_sent = 1;
	hz_send_fetch(h, 1, 50, 0, 0, E, 3, EXACTLY, 1);
	hz_recv(h, 1, ZD_MSG_DATA);
	hz_round(h, one, 2, 1, hp);
	hz_send_push(h, 0, (struct hz_push){1, 0, 3, 0, 0, 0, 1, 0, E}, g); /* waits in its window */
	hz_recv(h, 0, ZD_MSG_PUSHED);
	hz_time(h, 100);
	hz_send_fetch(h, 2, 51, 0, 0, E, 3, EXACTLY, 2);
	hz_recv(h, 2, ZD_MSG_DATA);
	hz_sent(h, 2); /* nobody had waited for that */
	hz_time(h, 400);
	hz_send_fetch(h, 3, 52, 0, 0, E, 3, EXACTLY, 2);
	hz_recv(h, 3, ZD_MSG_DATA);
	for (int i = 0; i < 2; i++) {
		Zd__Pb__Ping ping = ZD__PB__PING__INIT;

		hz_send(h, 0, ZD_MSG_PING, 6, &ping.base, NULL, 0);
		hz_recv(h, 0, ZD_MSG_PONG);
		hz_time(h, i ? 1 : 499);
	}
	hz_error(h, 1, ZD_ERR_TIMED_OUT, "not read for 1000 ms", 1);
	hz_nothing(h, 3);
	assert_int_equal(h->kernels[ZD_KERNEL_ACC_SET], 3);
	hz_free(h);
}

/* Time in which the lane stands still is nobody's, whether a lease runs or not: what has left meanwhile is reported after the timer. */
static void who_holds_while_the_lane_is_away_stays(void **state)
{
	struct hz *h = up(8);

	(void)state;
	hz_load_all(h, 0, 3);
	h->hold_sent = 1;
	hz_send_fetch(h, 1, 50, 0, 0, E, 1, AT_LEAST, 0);
	hz_recv(h, 1, ZD_MSG_DATA);
	hz_round(h, one, 1, 1, &hz_hyper);
	hz_send_fetch(h, 0, 51, 0, 0, E, 1, AT_LEAST, 1);
	hz_time(h, 500);
	hz_away(h, 100000);
	hz_tick(h);
	hz_nothing(h, 1);
	hz_time(h, 374); /* half a lease, less the eighth of an absence that counts, less one */
	hz_nothing(h, 1);
	hz_time(h, 1);
	hz_error(h, 1, ZD_ERR_TIMED_OUT, "not read for 1000 ms", 1);
	hz_free(h);
}

/* fp32 is made in windows; when none is free the request waits for one. */
static void master_in_windows(void **state)
{
	struct hz *h = up(3);

	(void)state;
	hz_load_all(h, 0, 3);
	h->hold_sent = 1;
	hz_send_fetch(h, 1, 60, 0, 0, 6 * E, 2, AT_LEAST, 0);
	assert_int_equal(frames(h, 1), 2); /* one of three is reserved for rank 0 */
	hz_sent(h, 1);
	assert_int_equal(frames(h, 1), 3);
	h->hold_sent = 0;
	hz_time(h, 0);
	while (h->conn[1].lent_count > 0)
		hz_sent(h, 1);
	assert_int_equal(frames(h, 1), 6);
	for (uint32_t i = 0; i < 6; i++)
		assert_int_equal(((const Zd__Pb__Data *)hz_recv(h, 1, ZD_MSG_DATA))->last, i == 5);
	hz_send_fetch(h, 1, 61, 1, 0, E, 2, AT_LEAST, 0); /* a frozen unit has no low halves */
	hz_recv(h, 1, ZD_MSG_DATA);
	assert_int_equal(h->last.payload_len, 4 * E);
	for (uint32_t i = 0; i < E; i++)
		assert_int_equal(h->last.payload[4 * i] | h->last.payload[4 * i + 1], 0);
	hz_free(h);
}

/* Whoever waits for a window gets one in turn: no request takes those of all others until it is done, whatever the slots. */
static void windows_in_turn(void **state)
{
	(void)state;
	for (uint32_t greedy = 1; greedy <= 3; greedy++) {
		struct hz *h = up(3); /* one is reserved for rank 0 */

		hz_load_all(h, 0, 3);
		for (uint32_t slot = 2; slot <= 3; slot++) {
			hz_connect(h, slot, ZD_ROLE_READER);
			hz_open(h, slot, 0);
		}
		h->hold_sent = 1;
		hz_send_fetch(h, greedy, 60, 0, 0, EXTENTS * E, 2, AT_LEAST, 0);
		assert_int_equal(frames(h, greedy), 2);
		for (uint32_t slot = 1; slot <= 3; slot++)
			if (slot != greedy)
				hz_send_fetch(h, slot, 61, 0, 0, EXTENTS * E, 2, AT_LEAST, 0);
		for (uint32_t i = 0, slot = greedy; i < 9; slot = slot % 3 + 1)
			for (; h->conn[slot].lent_count > 0; i++)
				hz_sent(h, slot);
		for (uint32_t slot = 1; slot <= 3; slot++)
			assert_true(frames(h, slot) >= 3);
		hz_free(h);
	}
}

/* Windows that a job no longer reserves are there at once for whoever waits, not only when those in use come back. */
static void windows_of_who_leaves(void **state)
{
	struct hz *h = up(6);

	(void)state;
	hz_load_all(h, 0, 3);
	hz_connect(h, 2, ZD_ROLE_READER);
	hz_open(h, 2, 0);
	h->hold_sent = 1;
	hz_send_fetch(h, 1, 60, 0, 0, EXTENTS * E, 2, AT_LEAST, 0);
	assert_int_equal(frames(h, 1), 4); /* two of six are reserved for rank 0 */
	hz_send_fetch(h, 2, 61, 0, 0, E, 2, AT_LEAST, 0);
	hz_nothing(h, 2);
	hz_disconnect(h, 0);
	assert_int_equal(frames(h, 1) + frames(h, 2), 6);
	hz_sent(h, 1);
	hz_recv(h, 2, ZD_MSG_DATA);
	hz_free(h);
}

static void a_reader_vanishes(void **state)
{
	struct hz *h = up(5);

	(void)state;
	hz_load_all(h, 0, 3);
	for (int i = 0; i < 20; i++) { /* nothing is lost: windows, lends, slots */
		h->hold_sent = 1;
		hz_send_fetch(h, 1, 60, 0, 0, E * EXTENTS, 1 + (uint32_t)i % 2, AT_LEAST, 0);
		assert_true(frames(h, 1) > 0);
		hz_disconnect(h, 1);
		hz_connect(h, 1, ZD_ROLE_READER);
		hz_open(h, 1, 0);
	}
	h->hold_sent = 0;
	hz_round(h, one, 1, 1, &hz_hyper);
	hz_idle(h);
	assert_int_equal(hz_view(h).due, 0);
	hz_free(h);
}

/* Many requests in one read are answered as room allows, none is lost. */
static void many_small_requests(void **state)
{
	struct hz *h = up(8);
	static uint8_t buf[64 * 128];
	size_t n = 0;
	Zd__Pb__Fetch m = ZD__PB__FETCH__INIT;

	(void)state;
	hz_load_all(h, 0, 3);
	m.count = E;
	m.plane = 1;
	m.mode = AT_LEAST;
	for (uint32_t i = 0; i < 60; i++) {
		m.first = i % EXTENTS * E;
		n += hz_encode(buf + n, sizeof buf - n, ZD_MSG_FETCH, 100 + i, &m.base, NULL, 0);
	}
	hz_bytes(h, 1, buf, n);
	hz_idle(h);
	for (uint32_t i = 0; i < 60; i++) {
		hz_recv(h, 1, ZD_MSG_DATA);
		assert_int_equal(h->last.stream, 100 + i);
	}
	hz_free(h);
}

/* "Exactly" that is overtaken by a decision ends with an error, not with a mixture. */
static void exactly_is_overtaken(void **state)
{
	struct hz *h = up(8);

	(void)state;
	hz_load_all(h, 0, 3);
	h->hold_sent = 1;
	hz_send_fetch(h, 1, 70, 0, 0, E * EXTENTS, 1, EXACTLY, 0);
	assert_int_equal(frames(h, 1), 8);
	hz_round(h, one, 1, 1, &hz_hyper);
	while (h->conn[1].lent_count > 0)
		hz_sent(h, 1);
	for (uint32_t i = 0; i < 8; i++)
		assert_int_equal(((const Zd__Pb__Data *)hz_recv(h, 1, ZD_MSG_DATA))->version, 0);
	hz_error(h, 1, ZD_ERR_VERSION_GONE, "version 0 of unit u0", 0);
	hz_nothing(h, 1);
	hz_free(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parked_until_sealed_and_decided), cmocka_unit_test(versions),
		cmocka_unit_test(refused),			   cmocka_unit_test(batches),
		cmocka_unit_test(who_gives_back_in_time_stays),	   cmocka_unit_test(who_holds_the_other_sum_stays),
		cmocka_unit_test(who_holds_while_the_lane_is_away_stays),
		cmocka_unit_test(lent_weights_stay),		   cmocka_unit_test(who_holds_weights_too_long_is_closed),
		cmocka_unit_test(windows_of_who_leaves),
		cmocka_unit_test(windows_in_turn),		   cmocka_unit_test(master_in_windows),
		cmocka_unit_test(a_reader_vanishes),
		cmocka_unit_test(many_small_requests),		   cmocka_unit_test(exactly_is_overtaken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
