/* SPDX-License-Identifier: Apache-2.0 */
/* Receive windows: how many a worker may fill, who gives them back and when, and whom they could keep waiting. */
#include "core_fixture.h"

static uint16_t values[4096];

/* More windows than granted are refused; those granted suffice although nothing can be added yet. */
static void credits(void **state)
{
	static const int64_t many[] = {6 * 4096};
	struct hz *h = hz_new(28, 4u << 20); /* half of 28 - 2, for three: 4 windows each */

	(void)state;
	hz_spec(h, "many", ZD_OPT_ADAMW, ZD_CODEC_BF16, 4096, 1, many);
	for (uint32_t r = 0; r < 3; r++) {
		hz_connect(h, r, ZD_ROLE_WORKER);
		hz_open(h, r, 1);
		assert_int_equal(hz_join(h, r, who(1, 0, r, 3))->credit, 4);
	}
	hz_load_all(h, 0, 3);
	for (uint32_t e = 0; e < 4; e++)
		hz_send_push(h, 1, (struct hz_push){1, 0, 1, 1, 0, 0, 1, e * 4096, 4096}, values);
	hz_nothing(h, 1); /* rank 0 is first in every extent */
	hz_disconnect(h, 1);
	hz_connect(h, 1, ZD_ROLE_WORKER);
	hz_open(h, 1, 0);
	assert_int_equal(hz_join(h, 1, (struct hz_who){.epoch = 1, .rank = 1, .world = 3, .link = 1})->credit, 0); /* all still staged */
	hz_send_push(h, 0, (struct hz_push){1, 0, 1, 0, 0, 0, 1, 0, 4096}, values);
	hz_send_push(h, 0, (struct hz_push){1, 0, 1, 0, 0, 0, 1, 4096, 4096}, values);
	assert_int_equal(((const Zd__Pb__Pushed *)hz_recv(h, 1, ZD_MSG_PUSHED))->freed, 2);
	hz_send_push(h, 1, (struct hz_push){1, 0, 1, 1, 0, 0, 1, 4 * 4096, 4096}, values);
	hz_send_push(h, 1, (struct hz_push){1, 0, 1, 1, 0, 0, 1, 5 * 4096, 4096}, values);
	assert_int_equal(((const Zd__Pb__Pushed *)hz_recv(h, 1, ZD_MSG_PUSHED))->counted, 6);
	hz_free(h);
}

/* A duplicate gives its credit back, whether the round is open or prepared: a client that sends everything again may go on with the next one. */
static void duplicates_give_credit_back(void **state)
{
	(void)state;
	for (int prepared = 0; prepared < 2; prepared++) {
		struct hz *h = up(3);
		uint64_t freed = 0;

		for (uint32_t r = 0; r < (prepared ? 3 : 1); r++)
			hz_push_unit(h, r, who(1, 0, r, 3), 1, 0, 0, 1);
		for (uint32_t r = 0; r < 3 && prepared; r++)
			hz_send_commit(h, r, who(1, 0, r, 3), 1, 1, &hz_hyper);
		if (prepared)
			hz_prepared(h, 0);
		for (uint32_t i = 0; i < 6; i++) {
			const Zd__Pb__Pushed *m;

			hz_send_push(h, 0, push(0, i % 3), values);
			m = (const Zd__Pb__Pushed *)hz_recv(h, 0, ZD_MSG_PUSHED);
			if (i > 0)
				assert_int_equal(m->freed, freed + 1);
			freed = m->freed;
		}
		assert_int_equal(freed, 3 + 6);
		hz_free(h);
	}
}

/*
 * Two ranks with all their windows full of contributions that wait for one another: rank 0 would push both micro-batches of one unit first, rank 1
 * those of the other.  So a rank pushes all units of a micro-batch before the next one, and whoever does not is told.
 */
static void micro_batches_go_one_after_the_other(void **state)
{
	static const int64_t two[] = {3 * 4096, 3 * 4096};
	struct hz *h = hz_new(6, 4u << 20); /* a window each */

	(void)state;
	hz_spec(h, "two", ZD_OPT_ADAMW, ZD_CODEC_BF16, 4096, 2, two);
	for (uint32_t r = 0; r < 2; r++) {
		hz_connect(h, r, ZD_ROLE_WORKER);
		hz_open(h, r, 1);
		assert_int_equal(hz_join(h, r, who(1, 0, r, 2))->credit, 1);
	}
	hz_load_all(h, 0, 3);
	for (uint32_t e = 0; e < 3; e++)
		hz_send_push(h, 0, (struct hz_push){1, 0, 1, 0, 0, 0, 2, e * 4096, 4096}, values);
	hz_drain(h, 0);
	hz_send_push(h, 1, (struct hz_push){1, 0, 1, 1, 1, 0, 2, 0, 4096}, values); /* waits for rank 0 */
	hz_nothing(h, 1);
	hz_send_push(h, 0, (struct hz_push){1, 0, 1, 0, 0, 1, 2, 0, 4096}, values);
	hz_error(h, 0, ZD_ERR_OUT_OF_ORDER, "micro-batch 1 of unit u0 while 0 of 3 extents of unit u1 are there of micro-batch 0", 1);
	hz_connect(h, 0, ZD_ROLE_WORKER);
	hz_open(h, 0, 0);
	hz_join(h, 0, (struct hz_who){.epoch = 1, .rank = 0, .world = 2, .link = 1});
	for (uint32_t u = 1; u < 3; u++)
		for (uint32_t e = 0; e < 3; e++)
			hz_send_push(h, 0, (struct hz_push){1, 0, 1, 0, u % 2, u / 2, 2, e * 4096, 4096}, values);
	hz_free(h);
}

static void no_credit(void **state)
{
	static const int64_t many[] = {6 * 4096};
	struct hz *h = hz_new(5, 4u << 20);

	(void)state;
	hz_spec(h, "many", ZD_OPT_ADAMW, ZD_CODEC_BF16, 4096, 1, many);
	for (uint32_t r = 0; r < 3; r++) {
		hz_connect(h, r, ZD_ROLE_WORKER);
		hz_open(h, r, 1);
		assert_int_equal(hz_join(h, r, who(1, 0, r, 3))->credit, 1);
	}
	hz_load_all(h, 0, 3); /* two windows are nobody's */
	hz_send_push(h, 2, (struct hz_push){1, 0, 1, 2, 0, 0, 1, 0, 4096}, values);
	hz_send_push(h, 2, (struct hz_push){1, 0, 1, 2, 0, 0, 1, 4096, 4096}, values);
	hz_error(h, 2, ZD_ERR_NO_CREDIT, "all 1 windows of rank 2 in use", 1);
	hz_free(h);
}

/* Windows are kept while a worker is there: then another job may have them, and the first gets new ones when it comes back.  Readers need none. */
static void idle_jobs_give_windows_back(void **state)
{
	struct hz *h = hz_new(6, 4u << 20);

	(void)state;
	for (uint32_t i = 0; i < 2; i++) {
		hz_spec(h, i ? "b" : "a", ZD_OPT_ADAMW, ZD_CODEC_BF16, 4096, 1, sizes);
		hz_connect(h, i, ZD_ROLE_WORKER);
		hz_open(h, i, 1);
	}
	hz_spec(h, "a", ZD_OPT_ADAMW, ZD_CODEC_BF16, 4096, 1, sizes);
	hz_connect(h, 2, ZD_ROLE_READER);
	hz_open(h, 2, 0);
	hz_join(h, 0, who(1, 0, 0, 2));
	hz_send_join(h, 1, who(1, 0, 0, 3));
	hz_error(h, 1, ZD_ERR_NO_ROOM, "3 workers need a receive window each and 2 more, free are 4 of 6", 0);
	hz_disconnect(h, 0);
	assert_int_equal(hz_join(h, 1, who(1, 0, 0, 3))->credit, 1);
	hz_spec(h, "a", ZD_OPT_ADAMW, ZD_CODEC_BF16, 4096, 1, sizes);
	hz_connect(h, 0, ZD_ROLE_WORKER);
	hz_open(h, 0, 0);
	hz_send_join(h, 0, (struct hz_who){.epoch = 1, .world = 2, .link = 1});
	hz_error(h, 0, ZD_ERR_NO_ROOM, "free are 3 of 6", 0);
	hz_disconnect(h, 1);
	assert_int_equal(hz_join(h, 0, (struct hz_who){.epoch = 1, .world = 2, .link = 1})->credit, 1);
	hz_free(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(credits),
		cmocka_unit_test(micro_batches_go_one_after_the_other),
		cmocka_unit_test(duplicates_give_credit_back),
		cmocka_unit_test(no_credit),
		cmocka_unit_test(idle_jobs_give_windows_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
