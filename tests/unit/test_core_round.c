/* SPDX-License-Identifier: Apache-2.0 */
/* Ballots, workers, leases, and every way for a round to end other than well. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core_fixture.h"

static const struct zd_hyper *const hp = &hz_hyper;
static uint16_t values[131072];

static void reconnect(struct hz *h, uint32_t slot)
{
	if (h->conn[slot].open)
		hz_disconnect(h, slot);
	hz_connect(h, slot, ZD_ROLE_WORKER);
	hz_open(h, slot, 0);
}

/* Pushes and commits of all ranks of a ballot. */
static struct zd_record prepare(struct hz *h, uint64_t epoch, uint32_t attempt, uint32_t world, uint64_t round)
{
	struct zd_record record = {0};

	for (uint32_t r = 0; r < world; r++)
		hz_push_unit(h, r, who(epoch, attempt, r, world), round, 0, 0, 1);
	for (uint32_t r = 0; r < world; r++)
		hz_send_commit(h, r, who(epoch, attempt, r, world), round, 1, hp);
	for (uint32_t r = 0; r < world && !h->hold_store; r++)
		record = hz_prepared(h, r);
	return record;
}

/* ---------------------------------------------------------------- JOIN */

static void promise_is_durable_first(void **state)
{
	struct hz *h = up(1);

	(void)state;
	h->hold_store = 1;
	hz_send_join(h, 0, who(2, 0, 0, 1));
	hz_nothing(h, 0);
	assert_int_equal(h->store[h->store_head].kind, ZD_STORE_PROMISE);
	assert_int_equal(hz_view(h).promise.epoch, 2); /* fenced at once */
	hz_stored(h, 0);
	assert_int_equal(((const Zd__Pb__Joined *)hz_recv(h, 0, ZD_MSG_JOINED))->ballot->epoch, 2);
	hz_free(h);
}

static void a_higher_ballot_fences(void **state)
{
	struct hz *h = up(2);

	(void)state;
	hz_send_push(h, 1, push(1, 0), values);
	assert_int_equal(hz_view(h).state, ZD_ROUND_COLLECTING);
	hz_join(h, 0, who(1, 1, 0, 2));
	assert_int_equal(hz_view(h).state, ZD_ROUND_EMPTY);
	hz_aborted(h, 1, ZD_ERR_BALLOT_LOW, 1, 0, "rank 0 has begun (1, 1)");
	hz_send_push(h, 1, push(1, 1), values); /* the old ballot is refused, and changes nothing */
	hz_aborted(h, 1, ZD_ERR_BALLOT_LOW, 1, 0, "(1, 0) is over");
	hz_send_join(h, 1, who(1, 0, 1, 2));
	hz_aborted(h, 1, ZD_ERR_BALLOT_LOW, 1, 0, "promised (1, 1)");
	assert_int_equal(hz_join(h, 1, who(1, 1, 1, 2))->counted[0], 0);
	hz_free(h);
}

static void joins_of_one_epoch_agree(void **state)
{
	static const struct {
		uint64_t epoch, launch, process;
		uint32_t rank, world, link;
		int err, close;
		const char *part;
	} table[] = {
		{1, 9, 0, 1, 2, 0, ZD_ERR_LAUNCH_DIFFERS, 0, "launch 0000000000000000, rank 1 comes from launch 0000000000000009: start all ranks with epoch 2 (zerod_options.epoch, "
							 "zerod-lm --epoch), or drop the job (zeroctl --yes job drop job)"},
		{1, 0, 0, 1, 3, 0, ZD_ERR_WORLD_DIFFERS, 0, "says 3 workers, epoch 1 has 2: if their number is to change, start all ranks with epoch 2 ("},
		{1, 0, 0xabc, 0, 2, 0, ZD_ERR_RANK_TAKEN, 0, "is process 0000000000000064, this is process 0000000000000abc: if no two workers were given one rank, start all ranks with "
						       "epoch 2 (zerod_options.epoch, zerod-lm --epoch), or drop the job (zeroctl --yes job drop job)"},
		{1, 0, 0, 0, 2, 0, ZD_ERR_OUT_OF_ORDER, 1, "link 0 of rank 0 is older than its link 0"},
		{9, 0, 0, 0, 64, 0, ZD_ERR_NO_ROOM, 0, "64 workers need a receive window each and 2 more, free are 28 of 28"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		struct hz *h = up(2);
		uint64_t before = zd_core_digest(h->core, "job");

		hz_connect(h, 5, ZD_ROLE_WORKER);
		hz_open(h, 5, 0);
		hz_send_join(h, 5, (struct hz_who){.epoch = table[i].epoch, .launch = table[i].launch, .process = table[i].process,
						   .rank = table[i].rank, .world = table[i].world, .link = table[i].link});
		hz_error(h, 5, table[i].err, table[i].part, table[i].close);
		assert_true(before == zd_core_digest(h->core, "job"));
		hz_round(h, who(1, 0, 0, 2), 1, 1, hp); /* the others go on */
		hz_free(h);
	}
}

static void a_new_link_fences_the_old(void **state)
{
	struct hz *h = up(2);
	const Zd__Pb__Joined *m;
	uint8_t frame[16384];
	size_t n;

	(void)state;
	hz_send_push(h, 0, push(0, 0), values);
	n = hz_encode_push(h, frame, sizeof frame, push(0, 1), values); /* half of it arrives on the old link */
	assert_int_equal(hz_feed(h, 0, frame, n / 2), n / 2);
	hz_connect(h, 4, ZD_ROLE_WORKER);
	hz_open(h, 4, 0);
	h->hold_closed = 1;
	m = hz_join(h, 4, (struct hz_who){.epoch = 1, .rank = 0, .world = 2, .link = 1});
	assert_int_equal(m->counted[0], 1);
	assert_true(h->conn[0].closing);
	hz_send_push(h, 4, push(0, 1), values); /* before the old one is gone */
	hz_send_push(h, 4, push(0, 2), values);
	assert_int_equal(((const Zd__Pb__Pushed *)hz_recv(h, 4, ZD_MSG_PUSHED))->counted, 3);
	h->hold_closed = 0;
	hz_time(h, 0);
	hz_free(h);
}

/* ---------------------------------------------------------------- PUSH */

static void order_and_duplicates(void **state)
{
	struct hz *h = up(2);
	uint64_t before;

	(void)state;
	hz_send_push(h, 0, push(0, 0), values);
	hz_send_push(h, 0, push(0, 1), values);
	hz_nothing(h, 0);
	before = zd_core_digest(h->core, "job");
	hz_send_push(h, 0, push(0, 0), values);
	assert_int_equal(((const Zd__Pb__Pushed *)hz_recv(h, 0, ZD_MSG_PUSHED))->counted, 2);
	assert_true(before == zd_core_digest(h->core, "job"));
	hz_send_push(h, 1, push(1, 1), values);
	hz_error(h, 1, ZD_ERR_OUT_OF_ORDER, "micro-batch 0 extent 1, expected micro-batch 0 extent 0", 1);
	hz_send_push(h, 0, push(0, 2), values);
	assert_int_equal(((const Zd__Pb__Pushed *)hz_recv(h, 0, ZD_MSG_PUSHED))->counted, 3);
	hz_free(h);
}

static void refused_pushes(void **state)
{
	static const struct {
		struct hz_push p;
		int aborted, err, close;
		const char *part;
	} table[] = {
		{{1, 0, 1, 0, 7, 0, 1, 0, 4096}, 0, ZD_ERR_NO_UNIT, 0, "unit 7, job job has 1"},
		{{1, 0, 1, 0, 0, 0, 1, 64, 4096}, 0, ZD_ERR_BAD_RANGE, 0, "[64, +4096): this lane owns [0, +9000) in extents of 4096"},
		{{1, 0, 1, 0, 0, 0, 1, 0, 4095}, 0, ZD_ERR_BAD_RANGE, 0, "[0, +4095)"},
		{{1, 0, 1, 0, 0, 0, 1, 12288, 4096}, 0, ZD_ERR_BAD_RANGE, 0, "[12288, +4096)"},
		{{1, 0, 1, 0, 0, 1, 2, 0, 4096}, 0, ZD_ERR_OUT_OF_ORDER, 1, "micro-batch 1 extent 0, expected micro-batch 0 extent 0"},
		{{1, 0, 1, 1, 0, 0, 1, 0, 4096}, 0, ZD_ERR_BAD_FIELD, 1, "rank 1 on the connection of rank 0"},
		{{1, 0, 2, 0, 0, 0, 1, 0, 4096}, 1, ZD_ERR_WRONG_ROUND, 0, "round 2, this lane expects round 1"},
		{{1, 1, 1, 0, 0, 0, 1, 0, 4096}, 1, ZD_ERR_NOT_JOINED, 0, "(1, 1) was not joined"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		struct hz *h = up(2);
		uint64_t before = zd_core_digest(h->core, "job");

		hz_send_push(h, 0, table[i].p, values);
		if (table[i].aborted)
			hz_aborted(h, 0, table[i].err, table[i].p.epoch, table[i].p.attempt, table[i].part);
		else
			hz_error(h, 0, table[i].err, table[i].part, table[i].close);
		if (i != 4) /* it says how many micro-batches there are */
			assert_true(before == zd_core_digest(h->core, "job"));
		hz_free(h);
	}
}

static void micro_batches_agree(void **state)
{
	struct hz *h = up(2);
	struct hz_push p = push(1, 0);

	(void)state;
	hz_send_push(h, 0, push(0, 0), values);
	p.micros = 4;
	hz_send_push(h, 1, p, values);
	hz_aborted(h, 0, ZD_ERR_MICRO_DIFFERS, 1, 0, "rank 0 has 1 micro-batches, rank 1 has 4");
	hz_aborted(h, 1, ZD_ERR_MICRO_DIFFERS, 1, 0, "rank 0 has 1 micro-batches, rank 1 has 4");
	hz_free(h);
}

/* ---------------------------------------------------------------- COMMIT */

static void gap(void **state)
{
	struct hz *h = up(2);

	(void)state;
	hz_send_push(h, 0, push(0, 0), values);
	hz_send_push(h, 0, push(0, 1), values);
	hz_send_commit(h, 0, who(1, 0, 0, 2), 1, 1, hp);
	hz_aborted(h, 0, ZD_ERR_GAP, 1, 0, "rank 0 commits unit u0, of which 2 extents are here and 3 expected");
	hz_aborted(h, 1, ZD_ERR_GAP, 1, 0, "rank 0");
	hz_send_join(h, 1, who(1, 0, 1, 2)); /* the attempt is over */
	hz_aborted(h, 1, ZD_ERR_GAP, 1, 0, "rank 0");
	hz_join(h, 0, who(1, 1, 0, 2));
	hz_join(h, 1, who(1, 1, 1, 2));
	hz_round(h, who(1, 1, 0, 2), 1, 1, hp);
	hz_free(h);
}

static void hyper_differs(void **state)
{
	struct hz *h = up(2);
	struct zd_hyper other = *hp;

	(void)state;
	other.beta2 = 0.999;
	hz_push_unit(h, 0, who(1, 0, 0, 2), 1, 0, 0, 1);
	hz_push_unit(h, 1, who(1, 0, 1, 2), 1, 0, 0, 1);
	hz_send_commit(h, 0, who(1, 0, 0, 2), 1, 1, hp);
	hz_send_commit(h, 1, who(1, 0, 1, 2), 1, 1, &other);
	hz_aborted(h, 0, ZD_ERR_HYPER_DIFFERS, 1, 0, "beta2 is 0.94999999999999996 on rank 0 and 0.999 on rank 1");
	hz_aborted(h, 1, ZD_ERR_HYPER_DIFFERS, 1, 0, "beta2");
	assert_int_equal(hz_view(h).state, ZD_ROUND_EMPTY);
	hz_free(h);
}

static void commit_repeats(void **state)
{
	struct hz *h = up(2);
	struct zd_record a;
	struct zd_decision d;

	(void)state;
	hz_push_unit(h, 0, who(1, 0, 0, 2), 1, 0, 0, 1);
	hz_push_unit(h, 1, who(1, 0, 1, 2), 1, 0, 0, 1);
	hz_send_commit(h, 0, who(1, 0, 0, 2), 1, 1, hp);
	hz_send_commit(h, 0, who(1, 0, 0, 2), 1, 1, hp);
	hz_nothing(h, 0);
	h->hold_store = 1;
	hz_send_commit(h, 1, who(1, 0, 1, 2), 1, 1, hp);
	hz_nothing(h, 1); /* not before it is durable */
	assert_int_equal(hz_view(h).state, ZD_ROUND_WRITING);
	hz_send_commit(h, 1, who(1, 0, 1, 2), 1, 1, hp);
	hz_nothing(h, 1);
	hz_stored(h, 0);
	a = hz_prepared(h, 0);
	hz_prepared(h, 1);
	assert_int_equal(a.world, 2);
	assert_int_equal(a.micro_batches, 1);
	hz_send_commit(h, 1, who(1, 0, 1, 2), 1, 1, hp);
	hz_prepared(h, 1);
	hz_send_push(h, 1, push(1, 0), values);
	assert_int_equal(((const Zd__Pb__Pushed *)hz_recv(h, 1, ZD_MSG_PUSHED))->counted, 3);
	d = hz_decide(&a, 0);
	hz_send_apply(h, 1, who(1, 0, 1, 2), &d);
	hz_applied(h, 1, 1); /* the note is not waited for */
	hz_send_push(h, 0, push(0, 0), values);
	hz_applied(h, 0, 1);
	hz_send_commit(h, 0, who(1, 0, 0, 2), 1, 1, hp);
	hz_applied(h, 0, 1);
	hz_free(h);
}

/* ---------------------------------------------------------------- APPLY, DISCARD */

static void apply_must_match(void **state)
{
	struct hz *h = up(1);
	struct zd_record a = prepare(h, 1, 0, 1, 1);
	struct zd_decision d = hz_decide(&a, 0), wrong;
	uint64_t before = zd_core_digest(h->core, "job");

	(void)state;
	wrong = d;
	wrong.ballot.attempt = 1;
	hz_send_apply(h, 0, who(1, 0, 0, 1), &wrong);
	hz_aborted(h, 0, ZD_ERR_LOST, 1, 0, "prepared by ballot (1, 1): this lane is in state PREPARED of round 1");
	wrong = d;
	wrong.round = 2;
	hz_send_apply(h, 0, who(1, 0, 0, 1), &wrong);
	hz_aborted(h, 0, ZD_ERR_LOST, 1, 0, "");
	wrong = d;
	wrong.step = 2;
	hz_send_apply(h, 0, who(1, 0, 0, 1), &wrong);
	hz_aborted(h, 0, ZD_ERR_DECISION_DIFFERS, 1, 0, "step does not follow");
	for (int i = 0; i < 4; i++) { /* of another definition, of another norm, of overflow */
		const double scales[] = {nextafter(d.scale, 0), nextafter(d.scale, 1), 1e300, d.scale}, norms[] = {d.norm, d.norm, d.norm, d.norm / 2};

		wrong = d;
		wrong.scale = scales[i];
		wrong.norm = norms[i];
		hz_send_apply(h, 0, who(1, 0, 0, 1), &wrong);
		hz_aborted(h, 0, ZD_ERR_DECISION_DIFFERS, 1, 0, "follows from its norm and the record");
	}
	assert_true(before == zd_core_digest(h->core, "job"));
	hz_send_apply(h, 0, who(1, 0, 0, 1), &d);
	hz_applied(h, 0, 1);
	before = zd_core_digest(h->core, "job");
	hz_send_apply(h, 0, who(1, 0, 0, 1), &d); /* again */
	hz_applied(h, 0, 1);
	wrong = d;
	wrong.scale *= 2;
	hz_send_apply(h, 0, who(1, 0, 0, 1), &wrong);
	hz_aborted(h, 0, ZD_ERR_DECISION_DIFFERS, 1, 0, "another one was taken");
	assert_true(before == zd_core_digest(h->core, "job"));
	hz_free(h);
}

static void a_record_outlives_its_ballot(void **state)
{
	struct hz *h = up(1);
	struct zd_record a = prepare(h, 1, 0, 1, 1);
	struct zd_decision d = hz_decide(&a, 0);
	const Zd__Pb__Joined *m = hz_join(h, 0, who(2, 0, 0, 1));

	(void)state;
	assert_non_null(m->prepared);
	assert_int_equal(m->prepared->ballot->epoch, 1);
	hz_send_push(h, 0, (struct hz_push){2, 0, 1, 0, 0, 0, 1, 0, 4096}, values);
	hz_aborted(h, 0, ZD_ERR_WRONG_ROUND, 2, 0, "prepared by ballot (1, 0)");
	hz_send_commit(h, 0, who(2, 0, 0, 1), 1, 1, hp);
	hz_aborted(h, 0, ZD_ERR_WRONG_ROUND, 2, 0, "prepared by ballot (1, 0)");
	hz_send_apply(h, 0, who(1, 0, 0, 1), &d); /* of the old ballot: not served */
	hz_aborted(h, 0, ZD_ERR_BALLOT_LOW, 1, 0, "");
	assert_int_equal(hz_view(h).state, ZD_ROUND_PREPARED);
	hz_send_apply(h, 0, who(2, 0, 0, 1), &d);
	hz_applied(h, 0, 1);
	hz_free(h);
}

static void discard(void **state)
{
	struct hz *h = up(1);

	(void)state;
	prepare(h, 1, 0, 1, 1);
	hz_send_discard(h, 0, who(1, 0, 0, 1), 1, 1, 0);
	hz_error(h, 0, ZD_ERR_OUT_OF_ORDER, "the promise itself", 1);
	reconnect(h, 0);
	assert_non_null(hz_join(h, 0, (struct hz_who){.epoch = 1, .attempt = 1, .world = 1, .link = 1})->prepared);
	hz_send_discard(h, 0, who(1, 1, 0, 1), 1, 1, 7); /* another record: nothing to drop */
	hz_recv(h, 0, ZD_MSG_DISCARDED);
	assert_int_equal(hz_view(h).state, ZD_ROUND_PREPARED);
	h->hold_store = 1;
	hz_send_discard(h, 0, who(1, 1, 0, 1), 1, 1, 0);
	hz_nothing(h, 0);
	assert_int_equal(hz_view(h).state, ZD_ROUND_EMPTY);
	hz_stored(h, 0);
	hz_recv(h, 0, ZD_MSG_DISCARDED);
	h->hold_store = 0;
	hz_send_discard(h, 0, who(1, 1, 0, 1), 1, 1, 0); /* again */
	hz_recv(h, 0, ZD_MSG_DISCARDED);
	hz_round(h, who(1, 1, 0, 1), 1, 1, hp);
	hz_send_discard(h, 0, who(1, 1, 0, 1), 1, 1, 0); /* decided rounds are never discarded */
	hz_applied(h, 0, 1);
	hz_free(h);
}

static void join_waits_for_the_record(void **state)
{
	struct hz *h = up(2);

	(void)state;
	h->hold_store = 1;
	prepare(h, 1, 0, 2, 1);
	assert_int_equal(hz_view(h).state, ZD_ROUND_WRITING);
	hz_connect(h, 4, ZD_ROLE_WORKER);
	hz_open(h, 4, 0);
	hz_send_join(h, 4, who(2, 0, 0, 1));
	hz_nothing(h, 4);
	assert_int_equal(hz_view(h).promise.epoch, 1);
	hz_stored(h, 0); /* the record; then the promise */
	assert_int_equal(hz_view(h).promise.epoch, 2);
	hz_prepared(h, 0);
	hz_aborted(h, 0, ZD_ERR_BALLOT_LOW, 1, 0, "");
	hz_nothing(h, 4);
	hz_stored(h, 0);
	assert_int_equal(((const Zd__Pb__Joined *)hz_recv(h, 4, ZD_MSG_JOINED))->prepared->ballot->epoch, 1);
	hz_free(h);
}

/* ---------------------------------------------------------------- leases */

static void ping(struct hz *h, uint32_t slot)
{
	Zd__Pb__Ping m = ZD__PB__PING__INIT;

	m.token = 5;
	hz_send(h, slot, ZD_MSG_PING, 6, &m.base, NULL, 0);
	assert_int_equal(((const Zd__Pb__Pong *)hz_recv(h, slot, ZD_MSG_PONG))->token, 5);
}

static void lease_names_the_dead(void **state)
{
	struct hz *h = up(3);

	(void)state;
	assert_true(zd_core_deadline(h->core) == ZD_TIME_NEVER); /* nobody waits */
	hz_send_push(h, 0, push(0, 0), values);
	assert_true(zd_core_deadline(h->core) == h->now + ZD_MS(1000 / 8)); /* a late TICK shows an absence */
	hz_disconnect(h, 1);
	hz_time(h, 900);
	ping(h, 0);
	assert_true(zd_core_deadline(h->core) == h->now + ZD_MS(100));
	ping(h, 2);
	hz_time(h, 99);
	hz_nothing(h, 0);
	hz_time(h, 1);
	for (uint32_t r = 0; r < 3; r += 2) {
		const Zd__Pb__Aborted *m = (const Zd__Pb__Aborted *)hz_recv(h, r, ZD_MSG_ABORTED);

		assert_int_equal(m->code, ZD_ERR_LEASE);
		assert_int_equal(m->n_missing, 1);
		assert_int_equal(m->missing[0], 1);
		assert_non_null(strstr(m->text, "rank 1 was last heard 1000 ms ago, the lease is 1000 ms; expected next was a push of unit u0"));
	}
	assert_true(zd_core_deadline(h->core) == ZD_TIME_NEVER);
	hz_send_push(h, 0, push(0, 1), values);
	hz_aborted(h, 0, ZD_ERR_LEASE, 1, 0, "rank 1");
	hz_join(h, 0, who(2, 0, 0, 2)); /* a new launch goes on */
	hz_send_join(h, 2, (struct hz_who){.epoch = 2, .rank = 1, .world = 2, .process = 102});
	hz_error(h, 2, ZD_ERR_OUT_OF_ORDER, "rank 1 on the connection of rank 2", 1); /* a worker keeps its rank */
	hz_free(h);
}

static void lease_ends_nothing_prepared(void **state)
{
	struct hz *h = up(2);

	(void)state;
	prepare(h, 1, 0, 2, 1);
	hz_time(h, 100000);
	hz_nothing(h, 0);
	assert_int_equal(hz_view(h).state, ZD_ROUND_PREPARED);
	hz_free(h);
}

static void who_left_is_not_missed(void **state)
{
	struct hz *h = up(2);

	(void)state;
	hz_round(h, who(1, 0, 0, 2), 1, 1, hp);
	hz_disconnect(h, 1);
	hz_time(h, 100000);
	hz_nothing(h, 0);
	ping(h, 0);
	hz_send_push(h, 0, (struct hz_push){1, 0, 2, 0, 0, 0, 1, 0, 4096}, values); /* but now it is */
	assert_true(zd_core_deadline(h->core) <= h->now);
	hz_time(h, 0);
	hz_aborted(h, 0, ZD_ERR_LEASE, 1, 0, "rank 1");
	hz_free(h);
}

/* ---------------------------------------------------------------- payloads under way */

/* A payload that is half received when its ballot ends must not reach what the next ballot puts in its place. */
static void half_a_push_of_an_old_ballot(void **state)
{
	struct hz *h = up(1);
	uint8_t frame[16384];
	uint16_t ones[N];
	size_t n, half;
	struct zd_record b;

	(void)state;
	for (int i = 0; i < N; i++)
		ones[i] = 0x3f80;
	n = hz_encode_push(h, frame, sizeof frame, push(0, 0), ones);
	half = hz_feed(h, 0, frame, n / 2);
	hz_connect(h, 1, ZD_ROLE_WORKER);
	hz_open(h, 1, 0);
	hz_join(h, 1, who(2, 0, 0, 1));
	hz_aborted(h, 0, ZD_ERR_BALLOT_LOW, 1, 0, "");
	for (uint32_t e = 0; e < 3; e++)
		hz_send_push(h, 1, (struct hz_push){2, 0, 1, 0, 0, 0, 1, e * 4096, e == 2 ? LAST : 4096}, ones + e * 4096);
	hz_recv(h, 1, ZD_MSG_PUSHED);
	memset(frame + half, 0xff, n - half); /* the rest would be NaN, and fails its checksum */
	hz_bytes(h, 0, frame + half, n - half);
	hz_error(h, 0, ZD_ERR_BAD_CHECKSUM, "checksum of PUSH", 1);
	hz_send_commit(h, 1, who(2, 0, 0, 1), 1, 1, hp);
	b = hz_prepared(h, 1);
	assert_true(zd_normacc_round(&b.norm) == (double)N);
	hz_free(h);
}

/* What the first kernel that reads a contribution finds damaged has not been counted: of two, the first (its checksum alone) and the second (with
 * the norm), and an only one. */
static void a_damaged_contribution(void **state)
{
	(void)state;
	for (uint32_t world = 1; world <= 2; world++)
		for (uint32_t bad = 0; bad < world; bad++) {
			struct hz *h = up(world);
			uint8_t frame[16384];
			size_t n;

			for (uint32_t r = 0; r < bad; r++)
				hz_send_push(h, r, push(r, 0), values);
			n = hz_encode_push(h, frame, sizeof frame, push(bad, 0), values);
			frame[n - 1] ^= 0x40;
			hz_bytes(h, bad, frame, n);
			hz_error(h, bad, ZD_ERR_BAD_CHECKSUM, "checksum of PUSH does not match its bytes (head ", 1);
			reconnect(h, bad);
			assert_int_equal(hz_join(h, bad, (struct hz_who){.epoch = 1, .rank = bad, .world = world, .link = 1})->counted[0], 0);
			for (uint32_t r = 0; r < world; r++)
				for (uint32_t e = r < bad; e < 3; e++)
					hz_send_push(h, r, push(r, e), values + e * 4096);
			for (uint32_t r = 0; r < world; r++) {
				hz_recv(h, r, ZD_MSG_PUSHED);
				hz_send_commit(h, r, who(1, 0, r, world), 1, 1, hp);
			}
			hz_prepared(h, bad);
			hz_free(h);
		}
}

/* Both contributions of an extent become complete in one step: neither knows of the other yet, and the norm comes after both. */
static void two_contributions_in_one_step(void **state)
{
	struct hz *h = up(2);
	struct zd_record record;
	uint32_t checks, norms;

	(void)state;
	hz_connect(h, 4, ZD_ROLE_READER);
	hz_open(h, 4, 0);
	h->hold_sent = 1;
	hz_send_fetch(h, 4, 60, 0, 2 * 4096, LAST, 1, 1, 0);
	hz_recv(h, 4, ZD_MSG_DATA);
	hz_round(h, who(1, 0, 0, 2), 1, 1, hp); /* Adam of the last extent waits until the reader has its bytes */
	for (uint32_t r = 0; r < 2; r++)
		for (uint32_t e = 0; e < 2; e++)
			hz_send_push(h, r, (struct hz_push){1, 0, 2, r, 0, 0, 1, e * 4096, 4096}, values);
	checks = h->kernels[ZD_KERNEL_CHECK];
	norms = h->kernels[ZD_KERNEL_NORM_2];
	for (uint32_t r = 0; r < 2; r++) {
		uint8_t frame[4096];
		size_t n = hz_encode_push(h, frame, sizeof frame, (struct hz_push){1, 0, 2, r, 0, 0, 1, 2 * 4096, LAST}, values);

		assert_int_equal(hz_feed(h, r, frame, n), n); /* read, and waiting for its place */
		hz_nothing(h, r);
	}
	hz_sent(h, 4);
	hz_recv(h, 0, ZD_MSG_PUSHED);
	hz_recv(h, 1, ZD_MSG_PUSHED);
	assert_int_equal(h->kernels[ZD_KERNEL_CHECK] - checks, 2);
	assert_int_equal(h->kernels[ZD_KERNEL_NORM_2] - norms, 1);
	for (uint32_t r = 0; r < 2; r++)
		hz_send_commit(h, r, who(1, 0, r, 2), 2, 1, hp);
	record = hz_prepared(h, 0);
	assert_int_equal(record.round, 2);
	hz_free(h);
}

/* I2: whatever an old worker says, the lane does not change. */
static void old_ballots_change_nothing(void **state)
{
	struct hz *h = up(2);
	struct zd_record record;
	struct zd_decision d;
	uint64_t before;

	(void)state;
	record = prepare(h, 1, 0, 2, 1);
	d = hz_decide(&record, 0);
	hz_connect(h, 4, ZD_ROLE_WORKER);
	hz_open(h, 4, 0);
	hz_join(h, 4, who(3, 0, 0, 1));
	hz_drain(h, 0);
	hz_drain(h, 1);
	before = zd_core_digest(h->core, "job");
	for (uint32_t r = 0; r < 2; r++) {
		hz_send_push(h, r, push(r, 0), values);
		hz_aborted(h, r, ZD_ERR_BALLOT_LOW, 1, 0, "");
		hz_send_commit(h, r, who(1, 0, r, 2), 1, 1, hp);
		hz_aborted(h, r, ZD_ERR_BALLOT_LOW, 1, 0, "");
		hz_send_apply(h, r, who(1, 0, r, 2), &d);
		hz_aborted(h, r, ZD_ERR_BALLOT_LOW, 1, 0, "");
		hz_send_discard(h, r, who(1, 0, r, 2), 1, 1, 0);
		hz_aborted(h, r, ZD_ERR_BALLOT_LOW, 1, 0, "");
		hz_send_join(h, r, who(2, 9, r, 2));
		hz_aborted(h, r, ZD_ERR_BALLOT_LOW, 2, 9, "a newer launch has taken the job");
		hz_send_push(h, r, (struct hz_push){3, 0, 1, r, 0, 0, 1, 0, 4096}, values); /* the right one, not joined here */
		hz_aborted(h, r, ZD_ERR_NOT_JOINED, 3, 0, "");
		assert_true(before == zd_core_digest(h->core, "job"));
	}
	hz_free(h);
}

static void a_failing_store_stops_the_job(void **state)
{
	struct hz *h = up(1);

	(void)state;
	h->hold_store = 1;
	prepare(h, 1, 0, 1, 1);
	hz_stored(h, -28);
	hz_error(h, 0, ZD_ERR_LOST, "failed with status -28", 1);
	hz_connect(h, 0, ZD_ROLE_WORKER);
	hz_send_open(h, 0, 1, 0, 1);
	hz_error(h, 0, ZD_ERR_LOST, "job job has stopped", 0);
	hz_free(h);
}

static void drain(void **state)
{
	struct hz *h = up(2);
	struct zd_event ev = {.type = ZD_EV_DRAIN};
	struct zd_record record;
	struct zd_decision d;

	(void)state;
	hz_send_push(h, 0, push(0, 0), values);
	assert_false(zd_core_drained(h->core));
	hz_step(h, &ev);
	assert_false(zd_core_drained(h->core));
	hz_send_push(h, 0, push(0, 1), values); /* the open round goes on */
	hz_send_push(h, 0, push(0, 2), values);
	hz_recv(h, 0, ZD_MSG_PUSHED);
	hz_push_unit(h, 1, who(1, 0, 1, 2), 1, 0, 0, 1);
	hz_send_commit(h, 0, who(1, 0, 0, 2), 1, 1, hp);
	hz_send_commit(h, 1, who(1, 0, 1, 2), 1, 1, hp);
	record = hz_prepared(h, 0);
	d = hz_decide(&record, 0);
	hz_send_apply(h, 0, who(1, 0, 0, 2), &d);
	hz_applied(h, 0, 1);
	assert_true(zd_core_drained(h->core));
	hz_send_push(h, 0, (struct hz_push){1, 0, 2, 0, 0, 0, 1, 0, 4096}, values); /* the next is not begun */
	hz_error(h, 0, ZD_ERR_DRAINING, "round 2 is not begun: daemon test is shutting down", 0);
	hz_free(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(promise_is_durable_first),
		cmocka_unit_test(a_higher_ballot_fences),
		cmocka_unit_test(joins_of_one_epoch_agree),
		cmocka_unit_test(a_new_link_fences_the_old),
		cmocka_unit_test(order_and_duplicates),
		cmocka_unit_test(refused_pushes),
		cmocka_unit_test(micro_batches_agree),
		cmocka_unit_test(gap),
		cmocka_unit_test(hyper_differs),
		cmocka_unit_test(commit_repeats),
		cmocka_unit_test(apply_must_match),
		cmocka_unit_test(a_record_outlives_its_ballot),
		cmocka_unit_test(discard),
		cmocka_unit_test(join_waits_for_the_record),
		cmocka_unit_test(lease_names_the_dead),
		cmocka_unit_test(lease_ends_nothing_prepared),
		cmocka_unit_test(who_left_is_not_missed),
		cmocka_unit_test(half_a_push_of_an_old_ballot),
		cmocka_unit_test(a_damaged_contribution),
		cmocka_unit_test(two_contributions_in_one_step),
		cmocka_unit_test(old_ballots_change_nothing),
		cmocka_unit_test(a_failing_store_stops_the_job),
		cmocka_unit_test(drain),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
