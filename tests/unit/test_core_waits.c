/* SPDX-License-Identifier: Apache-2.0 */
/* Whom a lane waits for, as PONG tells workers and SHOW_REPLY tells people: ranks are written as bits. */
#include "core_harness.h"

#define LEASE 1000u /* ms; of hz_spec */
#define BIT(rank) (1u << (rank))

static const int64_t sizes[] = {4096};

/* A job of so many ranks, of which the first `here` are connected and joined; nobody has loaded anything. */
static struct hz *begin(uint32_t world, uint32_t here)
{
	struct hz *h = hz_new(8, 4u << 20);

	hz_spec(h, "job", ZD_OPT_ADAMW, ZD_CODEC_BF16, 4096, 1, sizes);
	for (uint32_t r = 0; r < here; r++) {
		hz_connect(h, r, ZD_ROLE_WORKER);
		hz_open(h, r, 1);
		hz_join(h, r, (struct hz_who){.epoch = 1, .rank = r, .world = world});
	}
	return h;
}

static uint32_t bits(const uint32_t *ranks, size_t count)
{
	uint32_t set = 0;

	for (size_t i = 0; i < count; i++)
		set |= BIT(ranks[i]);
	return set;
}

static void tells(struct hz *h, uint32_t slot, uint32_t absent, uint32_t behind)
{
	Zd__Pb__Ping ping = ZD__PB__PING__INIT;
	const Zd__Pb__Pong *m;

	hz_drain(h, slot);
	hz_send(h, slot, ZD_MSG_PING, 6, &ping.base, NULL, 0);
	m = (const Zd__Pb__Pong *)hz_recv(h, slot, ZD_MSG_PONG);
	assert_int_equal(bits(m->absent, m->n_absent), absent);
	assert_int_equal(bits(m->behind, m->n_behind), behind);
}

/* joined, committed, heard: of ranks 0 and 1, heard in ms ago, -1 for never. */
static void shows(struct hz *h, uint32_t joined, uint32_t committed, int64_t heard0, int64_t heard1)
{
	const int64_t heard[] = {heard0, heard1};
	Zd__Pb__Show show = ZD__PB__SHOW__INIT;
	const Zd__Pb__ShowReply *m;

	show.name = h->spec.name;
	hz_send(h, 7, ZD_MSG_SHOW, 2, &show.base, NULL, 0);
	m = (const Zd__Pb__ShowReply *)hz_recv(h, 7, ZD_MSG_SHOW_REPLY);
	assert_int_equal(m->n_workers, 2);
	for (uint32_t r = 0; r < 2; r++) {
		const Zd__Pb__Worker *w = m->workers[r];

		assert_int_equal(w->rank, r);
		assert_int_equal(w->joined, (joined >> r) & 1);
		assert_int_equal(w->committed, (committed >> r) & 1);
		assert_int_equal(w->has_heard_ms, heard[r] >= 0);
		if (heard[r] >= 0)
			assert_int_equal(w->heard_ms, heard[r]);
	}
}

static void who_has_not_joined_or_committed(void **state)
{
	struct hz *h = begin(4, 2);

	(void)state;
	tells(h, 0, BIT(2) | BIT(3), 0); /* nobody can be behind before the seal */
	hz_load_all(h, 0, 1);
	tells(h, 0, BIT(2) | BIT(3), BIT(0) | BIT(1));
	hz_connect(h, 3, ZD_ROLE_WORKER);
	hz_open(h, 3, 0);
	tells(h, 3, 0, 0); /* who has not joined is told nothing about those who have */
	hz_join(h, 3, (struct hz_who){.epoch = 1, .rank = 3, .world = 4});
	hz_push_unit(h, 0, (struct hz_who){.epoch = 1, .rank = 0}, 1, 0, 0, 1);
	hz_send_commit(h, 0, (struct hz_who){.epoch = 1, .rank = 0}, 1, 1, &hz_hyper);
	tells(h, 0, BIT(2), BIT(1) | BIT(3));
	hz_free(h);
}

/* When all have committed, and when an older launch did, no rank is behind. */
static void nobody_is_behind_a_record(void **state)
{
	struct hz *h = begin(2, 2);

	(void)state;
	hz_load_all(h, 0, 1);
	for (uint32_t r = 0; r < 2; r++) {
		hz_push_unit(h, r, (struct hz_who){.epoch = 1, .rank = r}, 1, 0, 0, 1);
		hz_send_commit(h, r, (struct hz_who){.epoch = 1, .rank = r}, 1, 1, &hz_hyper);
	}
	tells(h, 0, 0, 0);
	hz_join(h, 0, (struct hz_who){.epoch = 2, .rank = 0, .world = 2});
	tells(h, 0, BIT(1), 0);
	hz_free(h);
}

/* Where no lease ends the round because nobody has begun it. */
static void who_is_silent_is_absent(void **state)
{
	struct hz *h = begin(3, 3);

	(void)state;
	hz_load_all(h, 0, 1);
	for (uint32_t r = 0; r < 3; r++)
		tells(h, r, 0, BIT(0) | BIT(1) | BIT(2));
	h->now += ZD_MS(LEASE) - 1;
	tells(h, 0, 0, BIT(0) | BIT(1) | BIT(2));
	h->now += 1;
	tells(h, 0, BIT(1) | BIT(2), BIT(0));
	hz_free(h);
}

/* A connection that is not read until the store has sealed: that is not its silence. */
static void who_is_not_read_is_not_silent(void **state)
{
	struct hz *h = begin(2, 2);
	static float weights[4096];

	(void)state;
	h->hold_store = 1;
	hz_send_load(h, 1, 0, 0, 4096, ZD_CODEC_FP32, weights);
	hz_seal(h, 1);
	for (uint32_t quarter = 0; quarter < 8; quarter++) {
		hz_time(h, LEASE / 4);
		tells(h, 0, 0, 0);
	}
	hz_stored(h, 0);
	tells(h, 0, 0, BIT(0) | BIT(1));
	hz_free(h);
}

static void people_see_when_each_rank_was_heard(void **state)
{
	struct hz *h = begin(2, 1);

	(void)state;
	hz_connect(h, 7, ZD_ROLE_ADMIN);
	h->now += ZD_MS(300);
	shows(h, BIT(0), 0, 300, -1);
	hz_connect(h, 1, ZD_ROLE_WORKER);
	hz_open(h, 1, 0);
	hz_join(h, 1, (struct hz_who){.epoch = 1, .rank = 1, .world = 2});
	hz_load_all(h, 0, 1);
	hz_push_unit(h, 0, (struct hz_who){.epoch = 1, .rank = 0}, 1, 0, 0, 1);
	hz_send_commit(h, 0, (struct hz_who){.epoch = 1, .rank = 0}, 1, 1, &hz_hyper);
	hz_time(h, LEASE / 2);
	tells(h, 0, 0, BIT(1));
	shows(h, BIT(0) | BIT(1), BIT(0), 0, LEASE / 2);
	hz_time(h, LEASE / 2); /* the lease of rank 1 ends the round: nobody is joined, but who was heard last is known still */
	shows(h, 0, 0, LEASE / 2, LEASE);
	hz_free(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_has_not_joined_or_committed),
		cmocka_unit_test(nobody_is_behind_a_record),
		cmocka_unit_test(who_is_silent_is_absent),
		cmocka_unit_test(who_is_not_read_is_not_silent),
		cmocka_unit_test(people_see_when_each_rank_was_heard),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
