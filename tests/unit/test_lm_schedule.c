/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "client/trainer/schedule.h"

static void test_points(void **state)
{
	/* Values that are exact whatever the cosine's last place. */
	static const struct {
		struct zd_schedule schedule;
		uint64_t t;
		double rate;
	} cases[] = {
		{ { 1.0, 0.0, 4, 12 }, 1, 0.25 },	      { { 1.0, 0.0, 4, 12 }, 2, 0.5 },
		{ { 1.0, 0.0, 4, 12 }, 3, 0.75 },	      { { 1.0, 0.0, 4, 12 }, 4, 1.0 },
		{ { 1.0, 0.0, 4, 12 }, 12, 0.0 },	      { { 1.0, 0.0, 4, 12 }, 13, 0.0 },
		{ { 0.3, 0.1, 3, 10 }, 3, 0.3 },	      { { 0.3, 0.1, 3, 10 }, 10, 0.1 },
		{ { 0.3, 0.1, 3, 10 }, UINT64_MAX, 0.1 },     { { 0.3, 0.1, 3, 10 }, 0, 0.0 },
		{ { 0.3, 0.1, 0, 10 }, 0, 0.3 },
		{ { 0.3, 0.1, 10, 10 }, 9, 0.3 * 0.9 },	      { { 0.3, 0.1, 10, 10 }, 10, 0.3 },
		{ { 0.3, 0.1, 10, 10 }, 11, 0.1 },	      { { 0.3, 0.1, 0, 1 }, 1, 0.1 },
		{ { 0.25, 0.25, 0, 9 }, 4, 0.25 },
	};
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		double found = zd_schedule_rate(&cases[i].schedule, cases[i].t);

		if (found != cases[i].rate)
			fail_msg("case %zu: expected %.17g, found %.17g", i, cases[i].rate, found);
	}
}

static void test_cosine(void **state)
{
	const struct zd_schedule s = { .peak = 2.0, .floor = 0.5, .warmup = 100, .steps = 1100 };
	const double pi = acos(-1.0);
	double before = 2.0;
	(void)state;

	for (uint64_t t = 101; t < 1100; t++) {
		double expected = 0.5 + 1.5 * (1.0 + cos(pi * (double)(t - 100) / 1000.0)) / 2.0;
		double found = zd_schedule_rate(&s, t);

		/* The series' 2^-51 twice (a square), and a few roundings of numbers up to 2. */
		if (!(fabs(found - expected) <= 0x1p-48))
			fail_msg("step %llu: expected %.17g, found %.17g", (unsigned long long)t, expected, found);
		assert_true(found < before);
		before = found;
	}
	/* Half way is half way; and the bits, which every rank must have. */
	assert_true(fabs(zd_schedule_rate(&s, 600) - 1.25) <= 0x1p-50);
	assert_true(zd_schedule_rate(&s, 350) == 0x1.c7c3b666fb66cp+0);
	assert_true(zd_schedule_rate(&s, 1000) == 0x1.12cb5718cc04p-1);
}

static void test_check(void **state)
{
	static const struct {
		struct zd_schedule schedule;
		const char *text;
	} cases[] = {
		{ { 1e-3, 0.0, 0, 1 }, "" },
		{ { 1e-3, 1e-3, 5, 5 }, "" },
		{ { 0.0, 0.0, 0, 1 }, "learning rate: expected a number above 0, found 0" },
		{ { -1.0, 0.0, 0, 1 }, "learning rate: expected a number above 0, found -1" },
		{ { NAN, 0.0, 0, 1 }, "learning rate: expected a number above 0, found nan" },
		{ { INFINITY, 0.0, 0, 1 }, "learning rate: expected a number above 0, found inf" },
		{ { 1e-3, 2e-3, 0, 1 }, "floor of the learning rate: expected 0 to the peak of 0.001, found 0.002; lower it or raise the peak" },
		{ { 1e-3, -1.0, 0, 1 }, "floor of the learning rate: expected 0 to the peak of 0.001, found -1; lower it or raise the peak" },
		{ { 1e-3, NAN, 0, 1 }, "floor of the learning rate: expected 0 to the peak of 0.001, found nan; lower it or raise the peak" },
		{ { 1e-3, 0.0, 0, 0 }, "steps: expected at least 1, found 0" },
		{ { 1e-3, 0.0, 6, 5 }, "warm-up: expected at most the 5 steps of the run, found 6; shorten it or train longer" },
	};
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[200] = "";

		assert_int_equal(zd_schedule_check(&cases[i].schedule, text, sizeof(text)), cases[i].text[0] ? -1 : 0);
		assert_string_equal(text, cases[i].text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_points),
		cmocka_unit_test(test_cosine),
		cmocka_unit_test(test_check),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
