/* SPDX-License-Identifier: Apache-2.0 */
/* Connections on which nothing is heard: when they are given up. */
#include "client_fixture.h"

/* A way that has been cut shows in a PING without answer, early enough for a new connection within the lease: TCP's own next try may be as far away
 * as the cut was long. */
static void test_silence_is_noticed(void **state)
{
	struct cs *c = begin_round(4, 2, 1);

	(void)state;
	cs_tick(c, ZD_MS(999));
	cs_expect_nothing(c, 0);
	cs_tick(c, ZD_MS(1)); /* a quarter of the lease */
	cs_expect(c, 0, ZD_MSG_PING, NULL);
	cs_expect(c, 1, ZD_MSG_PING, NULL);
	cs_tick(c, ZD_MS(500));
	cs_pong(c, 1, 0, 1);
	cs_tick(c, ZD_MS(499));
	assert_true(!c->closed[0] && !c->closed[1]);
	cs_tick(c, ZD_MS(1));
	assert_true(c->closed[0] && !c->closed[1]);
	end(c);
}

/* A way that is slow shows in acknowledgements: they put it off, but not for ever, for a lane can stand still whose host acknowledges. */
static void test_acknowledged_silence(void **state)
{
	static const struct {
		uint32_t acked_until, closed_at; /* ms */
	} rows[] = {{0, 2000}, {900, 2000}, {1400, 2400}, {3000, 4000}, {9000, 5000}};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct cs *c = begin_round(4, 2, 1);
		struct zd_session_event acked = {.type = ZD_SE_ACKED, .slot = 0, .gen = c->gen[0]};
		zd_time since = c->now, until = since + ZD_MS(rows[i].acked_until);

		while (!c->closed[0]) {
			assert_true(!c->closed[1] || c->now - since >= ZD_MS(2000));
			c->now = zd_session_deadline(c->session);
			acked.u.acked.at = c->now < until ? c->now : until;
			if (zd_session_doubts(c->session, 0, acked.gen, c->now))
				cs_step(c, &acked);
			cs_tick(c, 0);
		}
		assert_int_equal((c->now - since) / 1000000u, rows[i].closed_at);
		assert_true(c->closed[1]); /* nothing vouched for that one */
		end(c);
	}
}

/* A quarter of a short lease may be less than a round trip. */
static void test_silence_in_a_short_lease(void **state)
{
	static const uint32_t leases[] = {100, 1000, 2000};

	(void)state;
	for (size_t i = 0; i < sizeof(leases) / sizeof(leases[0]); i++) {
		uint32_t before = spec.lease_ms, wait = leases[i] < 1000 ? leases[i] : 1000;
		struct cs *c;
		zd_time since;

		spec.lease_ms = leases[i];
		c = begin_round(4, 2, 1);
		since = c->now;
		while (!c->closed[0])
			cs_tick(c, zd_session_deadline(c->session) - c->now);
		assert_int_equal((c->now - since) / 1000000u, leases[i] / 4 + wait);
		end(c);
		spec.lease_ms = before;
	}
}

/* Who stood still itself asks before it blames the lane: the answer may have been there all the time. */
static void test_silence_while_away(void **state)
{
	struct cs *c = begin_round(4, 2, 1);

	(void)state;
	cs_tick(c, ZD_SEC(7));
	cs_expect(c, 0, ZD_MSG_PING, NULL);
	assert_true(zd_session_deadline(c->session) >= c->now + ZD_MS(1000));
	cs_tick(c, ZD_MS(999));
	assert_true(!c->closed[0]);
	cs_tick(c, ZD_MS(1));
	assert_true(c->closed[0]);
	end(c);
}

/* A connection that leads nowhere is given up in time for a second try within the lease. */
static void test_half_open_is_given_up(void **state)
{
	struct cs *c = begin_round(4, 2, 1);
	zd_time until;

	(void)state;
	cs_down(c, 0);
	while (!c->gen[0])
		cs_tick(c, zd_session_deadline(c->session) - c->now);
	cs_up(c, 0, 2);
	cs_expect(c, 0, ZD_MSG_OPEN, NULL);
	until = c->now + ZD_MS(spec.lease_ms) / 2;
	while (c->now < until) {
		assert_false(c->closed[0]);
		cs_tick(c, zd_session_deadline(c->session) - c->now);
	}
	assert_true(c->closed[0]);
	cs_down(c, 0);
	end(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_silence_is_noticed),
		cmocka_unit_test(test_acknowledged_silence),
		cmocka_unit_test(test_silence_in_a_short_lease),
		cmocka_unit_test(test_silence_while_away),
		cmocka_unit_test(test_half_open_is_given_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
