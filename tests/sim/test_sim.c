/* SPDX-License-Identifier: Apache-2.0 */
/* Scenarios, a fixed set of random worlds, and what a step costs in messages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/sim/count.h"
#include "tests/sim/scenarios.h"
#include "tests/sim/world.h"

/* Chosen by time: they take about two minutes of one core under AddressSanitizer. */
#define SEEDS 1100u
#define CALM_SEEDS 100u

static void run_seeds(uint64_t first, uint64_t count, int faults)
{
	char text[512];
	uint64_t hash;

	for (uint64_t seed = first; seed < first + count; seed++) {
		if (sim_chaos_run(seed, faults, 0, text, sizeof(text), &hash) == 0)
			continue;
		print_message("seed %llu: %s\n    replay: sim --seed %llu%s --verbose\n", (unsigned long long)seed, text, (unsigned long long)seed,
			      faults ? "" : " --calm");
		fail();
	}
}

static void test_worlds_without_faults(void **state)
{
	const struct sim_totals before = sim_totals;

	(void)state;
	run_seeds(1, CALM_SEEDS, 0);
	assert_int_equal(sim_totals.redos, before.redos);
	assert_int_equal(sim_totals.aborts, before.aborts);
	assert_int_equal(sim_totals.stale, before.stale);
	assert_int_equal(sim_totals.discards, before.discards);
}

static void test_worlds_with_faults(void **state)
{
	const struct sim_totals before = sim_totals;

	(void)state;
	run_seeds(1, SEEDS, 1);
	/* The faults did reach what they are for. */
	assert_true(sim_totals.crashes > before.crashes + SEEDS);
	assert_true(sim_totals.redos > before.redos + SEEDS / 4);
	assert_true(sim_totals.discards > before.discards + SEEDS / 8);
	assert_true(sim_totals.skipped > before.skipped + SEEDS / 4);
	assert_true(sim_totals.aborts > before.aborts);
}

static void test_a_seed_gives_one_run(void **state)
{
	char text[512];

	(void)state;
	for (uint64_t seed = 1; seed <= 12; seed++) {
		uint64_t first = 0, second = 1, other = 0;

		assert_int_equal(sim_chaos_run(seed, 1, 0, text, sizeof(text), &first), 0);
		assert_int_equal(sim_chaos_run(seed, 1, 0, text, sizeof(text), &second), 0);
		assert_int_equal(sim_chaos_run(seed + 1, 1, 0, text, sizeof(text), &other), 0);
		assert_true(first == second);
		assert_true(first != other);
	}
}

/* What a lane says and hears in a step depends on its workers, and on its own pieces: not on how many other lanes there are. */
static void test_messages_of_a_step(void **state)
{
	static const uint32_t numbers[][2] = {{1, 1}, {1, 2}, {1, 4}, {2, 1}, {4, 2}, {4, 4}, {8, 1}, {8, 3}, {16, 2}};
	char text[512];

	(void)state;
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		struct sim_count c;
		uint32_t lanes = numbers[i][0], workers = numbers[i][1];

		if (sim_count(lanes, workers, &c, text, sizeof(text)) < 0)
			fail_msg("%u lanes, %u workers: %s", lanes, workers, text);
		assert_int_equal(c.frames, c.expect);
		assert_int_equal(c.other, 0);
		assert_in_range(c.pushed, c.pushed_min, c.pushed_max);
		assert_int_equal(c.commit, lanes * workers);
		assert_int_equal(c.prepared, lanes * workers);
		assert_int_equal(c.apply, lanes * workers);
		assert_int_equal(c.applied, lanes * workers);
	}
}

static int teardown(void **state)
{
	(void)state;
	sim_pages_free();
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
#define X(name) cmocka_unit_test(name),
		SCENARIOS(X)
#undef X
			cmocka_unit_test(test_a_seed_gives_one_run),
		cmocka_unit_test(test_messages_of_a_step),
		cmocka_unit_test(test_worlds_without_faults),
		cmocka_unit_test(test_worlds_with_faults),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("sim", tests, NULL, teardown);
}
