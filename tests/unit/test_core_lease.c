/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases of a lane that does not always run.  Two ranks say something every quarter of a lease, as clients do; rank 0 has pushed, so that both
 * are waited for.  What they say while the lane is away waits to be read.  Between two TICKs the lane reads, as the shell does.
 */
#include "core_harness.h"

#define LEASE 1000u /* ms */
#define EVERY (LEASE / 4)
#define COUNTED (LEASE / 8) /* at most so much of an absence counts */

struct pair {
	struct hz *h;
	zd_time next[2]; /* when the rank speaks next; ZD_TIME_NEVER: it has died, or lost its connection */
	uint32_t slot[2];
};

static const int64_t sizes[] = {4096};
static uint16_t values[4096];

/* phase: ms between the words of the two ranks. */
static void begin(struct pair *p, uint32_t phase)
{
	struct hz *h = p->h = hz_new(8, 4u << 20);

	hz_spec(h, "job", ZD_OPT_ADAMW, ZD_CODEC_BF16, 4096, 1, sizes);
	for (uint32_t r = 0; r < 2; r++) {
		hz_connect(h, r, ZD_ROLE_WORKER);
		hz_open(h, r, 1);
		p->slot[r] = r;
		p->next[r] = h->now + ZD_MS(EVERY + r * phase);
	}
	hz_load_all(h, 0, 1);
	for (uint32_t r = 0; r < 2; r++)
		hz_join(h, r, (struct hz_who){.epoch = 1, .rank = r, .world = 2});
	hz_send_push(h, 0, (struct hz_push){1, 0, 1, 0, 0, 0, 1, 0, 4096}, values);
	hz_drain(h, 0);
}

/* Everything that was said until now. */
static void read_all(struct pair *p)
{
	for (uint32_t r = 0; r < 2; r++) {
		Zd__Pb__Ping m = ZD__PB__PING__INIT;

		if (p->next[r] > p->h->now)
			continue;
		hz_send(p->h, p->slot[r], ZD_MSG_PING, 6, &m.base, NULL, 0);
		while (p->next[r] <= p->h->now)
			p->next[r] += ZD_MS(EVERY);
	}
}

static int aborted(struct pair *p)
{
	struct hz_conn *c = &p->h->conn[0];

	for (uint32_t i = 0; i < c->count; i++)
		if (c->frame[(c->head + i) % HZ_FRAMES].type == ZD_MSG_ABORTED)
			return 1;
	hz_drain(p->h, 0);
	return 0;
}

/* The lane runs: everything happens when it is due. */
static void run(struct pair *p, uint64_t ms)
{
	struct hz *h = p->h;
	zd_time to = h->now + ZD_MS(ms);

	for (;;) {
		zd_time at = zd_core_deadline(h->core);

		at = p->next[0] < at ? p->next[0] : at;
		at = p->next[1] < at ? p->next[1] : at;
		if (at > to)
			break;
		h->now = at > h->now ? at : h->now;
		read_all(p);
		hz_tick(h);
		assert_true(zd_core_deadline(h->core) > h->now);
	}
	h->now = to;
}

/* The lane stands still; then its timer or what has arrived comes first. */
static void stand_still(struct pair *p, uint64_t ms, int timer_first)
{
	hz_away(p->h, ms);
	if (timer_first)
		hz_tick(p->h);
	read_all(p);
	hz_tick(p->h);
}

static void absences(void **state)
{
	(void)state;
	for (uint32_t phase = 0; phase < EVERY; phase += 83)
		for (uint32_t ms = 0; ms <= 2 * LEASE; ms += 25)
			for (uint32_t before = 0; before <= EVERY; before += 50)
				for (int timer_first = 0; timer_first < 2; timer_first++) {
					struct pair p;

					begin(&p, phase);
					run(&p, 2 * LEASE + before);
					stand_still(&p, ms, timer_first);
					run(&p, 2 * LEASE);
					if (aborted(&p))
						fail_msg("away for %u ms, %u ms after a word, the other %u ms later%s: a rank that lives was blamed", ms,
							 before, phase, timer_first ? ", the timer first" : "");
					hz_free(p.h);
				}
}

/* Also those of which each is too short to be noticed, and with nothing but one turn of the loop between them. */
static void absences_in_pieces(void **state)
{
	(void)state;
	for (uint32_t piece = 5; piece <= LEASE; piece += piece < 100 ? 5 : 45)
		for (uint32_t between = 0; between <= 60; between += 20)
			for (int timer_first = 0; timer_first < 2; timer_first++) {
				struct pair p;

				begin(&p, 100);
				run(&p, LEASE);
				for (uint32_t ms = 0; ms < 2 * LEASE; ms += piece) {
					stand_still(&p, piece, timer_first);
					run(&p, between);
				}
				run(&p, 2 * LEASE);
				if (aborted(&p))
					fail_msg("away for %u ms again and again, running for %u ms: a rank that lives was blamed", piece, between);
				hz_free(p.h);
			}
}

/* A rank that must connect again after the absence has what was left of its lease, whatever the absence. */
static void who_comes_back_has_time(void **state)
{
	(void)state;
	for (uint32_t ms = 0; ms <= 2 * LEASE; ms += 25) {
		struct pair p;

		begin(&p, 0);
		run(&p, 2 * LEASE + EVERY - 1); /* its last word is nearly a quarter old */
		p.next[1] = ZD_TIME_NEVER;
		hz_away(p.h, ms);
		hz_disconnect(p.h, 1);
		read_all(&p);
		hz_tick(p.h);
		run(&p, LEASE - EVERY - COUNTED);
		assert_false(aborted(&p));
		hz_connect(p.h, 2, ZD_ROLE_WORKER);
		hz_open(p.h, 2, 0);
		hz_join(p.h, 2, (struct hz_who){.epoch = 1, .rank = 1, .world = 2, .link = 1});
		hz_free(p.h);
	}
}

/* A rank that died is named when the lane has run for a lease since it was last heard: absences change nothing in that. */
static void the_dead_are_named(void **state)
{
	(void)state;
	for (uint32_t piece = 0; piece <= 2 * LEASE; piece += 125) {
		struct pair p;
		uint32_t ran = 0, pieces = 0;

		begin(&p, 0);
		run(&p, 2 * LEASE);
		p.next[1] = ZD_TIME_NEVER;
		while (!aborted(&p) && ran < 2 * LEASE) {
			run(&p, 100);
			ran += 100;
			if (piece > 0 && pieces++ < 5)
				stand_still(&p, piece, pieces % 2);
		}
		assert_true(ran <= LEASE); /* what counts of absences may make it earlier */
		assert_true(ran + 5 * COUNTED >= LEASE);
		hz_free(p.h);
	}
}

/* A lane that nobody waited at was not away, however long it slept. */
static void sleep_is_no_absence(void **state)
{
	struct pair p;

	(void)state;
	begin(&p, 0);
	hz_disconnect(p.h, 1);
	p.next[1] = ZD_TIME_NEVER;
	run(&p, LEASE);
	assert_true(aborted(&p)); /* nothing is waited for any more */
	assert_true(zd_core_deadline(p.h->core) == ZD_TIME_NEVER);
	hz_drain(p.h, 0);
	hz_away(p.h, 100 * LEASE);
	hz_connect(p.h, 2, ZD_ROLE_WORKER);
	hz_open(p.h, 2, 0);
	for (uint32_t r = 0; r < 2; r++)
		hz_join(p.h, 2 * r, (struct hz_who){.epoch = 2, .rank = r, .world = 2, .process = r});
	assert_true(zd_core_deadline(p.h->core) == ZD_TIME_NEVER);
	hz_away(p.h, 10 * LEASE);
	hz_send_push(p.h, 0, (struct hz_push){2, 0, 1, 0, 0, 0, 1, 0, 4096}, values);
	hz_drain(p.h, 0);
	hz_time(p.h, 0);
	hz_aborted(p.h, 0, ZD_ERR_LEASE, 2, 0, "rank 1 was last heard 10000 ms ago");
	hz_free(p.h);
}

/* Before the initial weights are complete, too: whoever should have loaded the rest is missed within the lease, and a later launch loads all of it. */
static void before_the_seal(void **state)
{
	struct pair p = {.next = {0, 0}, .slot = {0, 1}};
	struct hz *h = p.h = hz_new(8, 4u << 20);

	(void)state;
	hz_spec(h, "job", ZD_OPT_ADAMW, ZD_CODEC_BF16, 4096, 1, sizes);
	for (uint32_t r = 0; r < 2; r++) {
		hz_connect(h, r, ZD_ROLE_WORKER);
		hz_open(h, r, 1);
	}
	hz_join(h, 0, (struct hz_who){.epoch = 1, .rank = 0, .world = 2});
	assert_true(zd_core_deadline(h->core) == ZD_TIME_NEVER); /* a rank that is alone waits for nobody who has been here */
	hz_join(h, 1, (struct hz_who){.epoch = 1, .rank = 1, .world = 2});
	hz_send_fetch(h, 0, 20, 0, 0, 4096, 1, 1, 0);
	p.next[0] = p.next[1] = h->now + ZD_MS(EVERY);
	run(&p, 3 * LEASE);
	assert_false(aborted(&p));
	hz_disconnect(h, 1);
	p.next[1] = ZD_TIME_NEVER;
	run(&p, LEASE - EVERY);
	assert_false(aborted(&p));
	run(&p, EVERY);
	while (h->conn[0].count > 1)
		hz_recv(h, 0, ZD_MSG_PONG);
	hz_aborted(h, 0, ZD_ERR_LEASE, 1, 0, "rank 1 was last heard 1000 ms ago, the lease is 1000 ms; expected next was its part of the initial weights");
	assert_int_equal(hz_view(h).state, ZD_ROUND_UNSEALED);
	hz_send_join(h, 0, (struct hz_who){.epoch = 1, .rank = 0, .world = 2});
	hz_aborted(h, 0, ZD_ERR_LEASE, 1, 0, "rank 1 was last heard");
	hz_connect(h, 2, ZD_ROLE_WORKER);
	hz_open(h, 2, 0);
	for (uint32_t r = 0; r < 2; r++)
		hz_join(h, 2 * r, (struct hz_who){.epoch = 2, .rank = r, .world = 2, .process = r});
	hz_load_all(h, 2, 1);
	hz_recv(h, 0, ZD_MSG_DATA);
	hz_free(h);
}

/* Of two that were heard equally long ago one is not read, because its SEAL waits for the store: only the other is missing. */
static void who_is_not_read_is_not_missing(void **state)
{
	static float weights[4096];
	struct hz *h = hz_new(8, 4u << 20);
	const Zd__Pb__Aborted *m;

	(void)state;
	hz_spec(h, "job", ZD_OPT_ADAMW, ZD_CODEC_BF16, 4096, 1, sizes);
	for (uint32_t r = 0; r < 2; r++) {
		hz_connect(h, r, ZD_ROLE_WORKER);
		hz_open(h, r, 1);
		hz_join(h, r, (struct hz_who){.epoch = 1, .rank = r, .world = 2});
	}
	h->hold_store = 1;
	hz_send_load(h, 1, 0, 0, 4096, ZD_CODEC_FP32, weights);
	hz_seal(h, 1);
	hz_time(h, LEASE);
	m = (const Zd__Pb__Aborted *)hz_recv(h, 0, ZD_MSG_ABORTED);
	assert_int_equal(m->n_missing, 1);
	assert_int_equal(m->missing[0], 0);
	hz_free(h);
}

/* The payload of one frame may be on a slow way for longer than a lease: the lane says every quarter that it arrives.  Not of a head: its length may
 * be damaged, and then whoever sends must notice that nothing is answered. */
static void a_slow_payload_is_answered(void **state)
{
	uint8_t frame[sizeof(values) + 256];
	struct pair p;
	size_t len, at = 0;

	(void)state;
	begin(&p, 0);
	p.next[1] = ZD_TIME_NEVER; /* its PINGs are behind the payload */
	hz_drain(p.h, 1);
	len = hz_encode_push(p.h, frame, sizeof(frame), (struct hz_push){1, 0, 1, 1, 0, 0, 1, 0, 4096}, values);
	for (; at < len - sizeof(values) - 1; at++) {
		hz_bytes(p.h, 1, frame + at, 1);
		run(&p, EVERY);
	}
	hz_nothing(p.h, 1);
	hz_bytes(p.h, 1, frame + at++, 1);
	for (uint32_t quarters = 0; quarters < 8; quarters++) {
		const Zd__Pb__Pong *m;

		run(&p, EVERY - 1);
		hz_bytes(p.h, 1, frame + at++, 1);
		hz_nothing(p.h, 1);
		run(&p, 1);
		hz_bytes(p.h, 1, frame + at++, 1);
		m = (const Zd__Pb__Pong *)hz_recv(p.h, 1, ZD_MSG_PONG);
		assert_int_equal(m->token, 0);
		assert_int_equal(p.h->last.stream, 0);
		assert_true(m->n_behind == 2 && m->n_absent == 0);
		hz_nothing(p.h, 1);
	}
	hz_bytes(p.h, 1, frame + at, len - at);
	hz_recv(p.h, 1, ZD_MSG_PUSHED);
	assert_false(aborted(&p));
	hz_free(p.h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(absences), cmocka_unit_test(absences_in_pieces), cmocka_unit_test(who_comes_back_has_time),
		cmocka_unit_test(the_dead_are_named), cmocka_unit_test(sleep_is_no_absence),	cmocka_unit_test(before_the_seal),
		cmocka_unit_test(who_is_not_read_is_not_missing),
		cmocka_unit_test(a_slow_payload_is_answered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
