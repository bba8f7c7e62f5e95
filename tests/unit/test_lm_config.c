/* SPDX-License-Identifier: Apache-2.0 */
/* The cut of the model into units, the limits of its shape, and its initial weights. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainer/config.h"
#include "client/trainer/random.h"

static const struct zd_lm_config small = { .layers = 2, .dim = 32, .heads = 4, .context = 24, .batch = 2 };

static void test_units(void **state)
{
	struct zd_lm_config c = zd_lm_config_default();
	char name[ZD_LM_UNIT_NAME], text[200];
	(void)state;

	assert_int_equal(zd_lm_config_check(&c, text, sizeof(text)), 0);
	c = (struct zd_lm_config){ .layers = 3, .dim = 10, .heads = 2, .context = 7, .batch = 1 };
	assert_int_equal(zd_lm_units(&c), 5);
	assert_int_equal(zd_lm_unit_numel(&c, 0), (256 + 7) * 10);
	for (size_t unit = 1; unit <= 3; unit++)
		assert_int_equal(zd_lm_unit_numel(&c, unit), 12 * 100 + 2 * 10);
	assert_int_equal(zd_lm_unit_numel(&c, 4), 10 + 10 * 256);
	assert_int_equal(zd_lm_numel(&c), 2630 + 3 * 1220 + 2570);
	assert_int_equal(zd_lm_largest_unit(&c), 2630);
	c.dim = 40;
	assert_int_equal(zd_lm_largest_unit(&c), 12 * 1600 + 80);
	c.dim = 2;
	c.context = 1;
	assert_int_equal(zd_lm_largest_unit(&c), 2 + 512);
	assert_string_equal(zd_lm_unit_name(&c, 0, name), "embed");
	assert_string_equal(zd_lm_unit_name(&c, 1, name), "block.0");
	assert_string_equal(zd_lm_unit_name(&c, 3, name), "block.2");
	assert_string_equal(zd_lm_unit_name(&c, 4, name), "head");

	struct zd_lm_block_layout at = zd_lm_block_layout(10);
	const size_t expected[] = { 0, 10, 310, 410, 420, 820, 1220 };
	const size_t found[] = { at.norm1, at.qkv, at.proj, at.norm2, at.up, at.down, at.numel };
	assert_memory_equal(found, expected, sizeof(expected));
}

static void test_limits(void **state)
{
	static const struct {
		struct zd_lm_config config;
		const char *text; /* NULL: fine */
	} cases[] = {
		{ { 1, 1, 1, 1, 1, false }, NULL },
		{ { 512, 8192, 8192, 8192, 128, true }, NULL },
		{ { 0, 8, 2, 4, 1, false }, "layers: expected 1 to 512, found 0" },
		{ { 513, 8, 2, 4, 1, false }, "layers: expected 1 to 512, found 513" },
		{ { 1, 0, 2, 4, 1, false }, "dim: expected 1 to 8192, found 0" },
		{ { 1, 8193, 1, 4, 1, false }, "dim: expected 1 to 8192, found 8193" },
		{ { 1, 8, 0, 4, 1, false }, "heads: expected 1 to 8192, found 0" },
		{ { 1, 8, 3, 4, 1, false }, "heads: expected a divisor of dim 8, found 3; choose a dim that is a multiple of heads" },
		{ { 1, 8, 16, 4, 1, false }, "heads: expected a divisor of dim 8, found 16; choose a dim that is a multiple of heads" },
		{ { 1, 8, 2, 0, 1, false }, "context: expected 1 to 8192, found 0" },
		{ { 1, 8, 2, 8193, 1, false }, "context: expected 1 to 8192, found 8193" },
		{ { 1, 8, 2, 4, 0, false }, "batch: expected 1 to 4096, found 0" },
		{ { 1, 8, 2, 4, 4294967295u, false }, "batch: expected 1 to 4096, found 4294967295" },
		{ { 1, 8, 2, 8192, 129, false },
		  "batch: expected at most 1048576 tokens (batch times context), found 1056768; use a smaller batch with more micro-batches" },
	};
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[200] = "";
		int rc = zd_lm_config_check(&cases[i].config, text, sizeof(text));

		assert_int_equal(rc, cases[i].text != NULL ? -1 : 0);
		assert_string_equal(text, cases[i].text != NULL ? cases[i].text : "");
	}
}

static float *initial(uint64_t seed, size_t unit)
{
	size_t numel = zd_lm_unit_numel(&small, unit);
	float *weights = malloc(numel * sizeof(*weights));

	assert_non_null(weights);
	zd_lm_init_unit(&small, seed, unit, weights);
	return weights;
}

static void assert_deviation(const float *weights, size_t count, double expected)
{
	double sum = 0.0, square = 0.0;

	for (size_t i = 0; i < count; i++) {
		sum += (double)weights[i];
		square += (double)weights[i] * (double)weights[i];
	}
	/* Six standard errors: of a mean deviation / sqrt(count), of a deviation half of that at most for such short tails. */
	double mean = sum / (double)count, error = 6.0 * expected / sqrt((double)count);
	if (fabs(mean) > error || fabs(sqrt(square / (double)count) - expected) > error)
		fail_msg("expected 0 and %g within %g, found %g and %g", expected, error, mean, sqrt(square / (double)count));
}

static void test_init_sizes(void **state)
{
	float *embed = initial(3, 0), *block = initial(3, 2), *head = initial(3, 3);
	struct zd_lm_block_layout at = zd_lm_block_layout(32);
	(void)state;

	assert_deviation(embed, 256 * 32, 0.5);
	assert_deviation(block + at.qkv, 3 * 32 * 32, 1.0 / sqrt(32.0));
	assert_deviation(block + at.proj, 32 * 32, 1.0 / sqrt(32.0) / sqrt(4.0));
	assert_deviation(block + at.up, 4 * 32 * 32, 1.0 / sqrt(32.0));
	assert_deviation(block + at.down, 4 * 32 * 32, 1.0 / sqrt(128.0) / sqrt(4.0));
	assert_deviation(head + 32, 32 * 256, 1.0 / sqrt(32.0));
	for (size_t i = 0; i < 32; i++)
		assert_true(block[at.norm1 + i] == 1.0f && block[at.norm2 + i] == 1.0f && head[i] == 1.0f);
	free(embed);
	free(block);
	free(head);
}

static void test_init_positions(void **state)
{
	float *embed = initial(3, 0), *positions = embed + 256 * 32;
	(void)state;

	/* 16 pairs over 6 octaves (2^5 is the first power from 24 on): pair 0 turns by 1, pair 8 by 1/8, pair 1 by 1 - 6/32. */
	static const struct {
		size_t pair;
		double frequency;
	} cases[] = { { 0, 1.0 }, { 1, 0.8125 }, { 8, 0.125 }, { 15, 0x1p-5 * (1.0 - 0.625 / 2.0) } };
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (size_t position = 0; position < 24; position++) {
			const float *pair = positions + position * 32 + 2 * cases[i].pair;
			double angle = cases[i].frequency * (double)position;

			/* half a place of a number up to 0.5 */
			assert_true(fabs((double)pair[0] - 0.5 * sin(angle)) <= 0x1.01p-26);
			assert_true(fabs((double)pair[1] - 0.5 * cos(angle)) <= 0x1.01p-26);
		}
	}
	free(embed);
}

static uint64_t digest(uint64_t seed, size_t unit)
{
	float *weights = initial(seed, unit);
	uint64_t hash = 0;

	for (size_t i = 0; i < zd_lm_unit_numel(&small, unit); i++) {
		uint32_t bits;

		memcpy(&bits, &weights[i], sizeof(bits));
		hash = zd_random_mix(hash + bits);
	}
	free(weights);
	return hash;
}

static void test_init_bits(void **state)
{
	/* Fixed for ever: a digest of a run is comparable between machines and releases only if its start is. */
	static const uint64_t expected[] = { 0xa0a9db0a3b4054ca, 0x0148299639e3f22c, 0x223ee1e0bfead777, 0x4ad6d422476cafcd };
	(void)state;

	for (size_t unit = 0; unit < 4; unit++) {
		uint64_t found = digest(3, unit);

		if (found != expected[unit])
			fail_msg("unit %zu: expected 0x%016llx, found 0x%016llx", unit, (unsigned long long)expected[unit],
				 (unsigned long long)found);
	}
	assert_true(digest(3, 1) != digest(3, 2));
	assert_true(digest(3, 1) != digest(4, 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_units),	       cmocka_unit_test(test_limits),	 cmocka_unit_test(test_init_sizes),
		cmocka_unit_test(test_init_positions), cmocka_unit_test(test_init_bits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
