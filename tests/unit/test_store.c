/* SPDX-License-Identifier: Apache-2.0 */
/* The store's contract: completions are events, in the order of submission, never the return of a submission. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "server/store/store.h"

static void test_none_completes_in_order(void **state)
{
	struct zd_store_completion done;
	struct zd_store store;
	uint64_t in = 0, out = 0;
	uint32_t i, round;

	(void)state;
	memset(&store, 0x5a, sizeof(store));
	zd_store_init_none(&store);
	assert_string_equal(zd_store_name(&store), "none");
	assert_int_equal(zd_store_fd(&store), -1);
	assert_int_equal(zd_store_next(&store, &done), 0);
	/* Bursts of every length, so that the ring wraps everywhere and is full once in a while. */
	for (round = 0; round < 4 * ZD_STORE_OPEN_MAX; round++) {
		uint32_t burst = 1 + round % ZD_STORE_OPEN_MAX;

		for (i = 0; i < burst; i++) {
			struct zd_store_op op = {.token = in++, .kind = ZD_STORE_PROMISE};

			zd_store_submit(&store, &op);
		}
		for (i = 0; i < burst; i++) {
			assert_int_equal(zd_store_next(&store, &done), 1);
			assert_int_equal(done.token, out++);
			assert_int_equal(done.status, 0);
		}
		assert_int_equal(zd_store_next(&store, &done), 0);
	}
	zd_store_fini(&store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_none_completes_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
