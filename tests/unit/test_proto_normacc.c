/* SPDX-License-Identifier: Apache-2.0 */
/* The exact accumulator against a model that adds bit by bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>

#include "proto/assert.h"
#include "proto/normacc.h"
#include "tests/fuzz/rng.h"

#define BITS (ZD_NORMACC_WORDS * 64)
#define LOWEST (-300)

/* bit[i] weighs 2^(i - 300). */
struct model {
	uint8_t bit[BITS];
};

static void model_add_bit(struct model *m, int at)
{
	for (; m->bit[at]; at++)
		m->bit[at] = 0;
	m->bit[at] = 1;
}

static void model_add(struct model *m, double value)
{
	int exponent;
	double fraction = frexp(value, &exponent); /* value = fraction * 2^exponent, 0.5 <= fraction < 1 */

	for (int at = exponent - 1 - LOWEST; fraction > 0; at--) {
		fraction *= 2;
		if (fraction >= 1) {
			model_add_bit(m, at);
			fraction -= 1;
		}
	}
}

static double model_round(const struct model *m)
{
	int top = BITS - 1, sticky = 0, half;
	uint64_t kept = 0;

	while (top >= 0 && !m->bit[top])
		top--;
	for (int at = top; at >= 0 && at > top - 53; at--)
		kept = kept << 1 | m->bit[at];
	if (top < 53)
		return ldexp((double)kept, LOWEST);
	half = m->bit[top - 53];
	for (int at = 0; at < top - 53; at++)
		sticky |= m->bit[at];
	kept += (uint64_t)(half && (sticky || (kept & 1)));
	return ldexp((double)kept, top - 52 + LOWEST);
}

static void assert_model(const struct zd_normacc *a, const struct model *m)
{
	for (int i = 0; i < BITS; i++)
		if ((a->word[i / 64] >> (i % 64) & 1) != m->bit[i])
			fail_msg("bit %d differs", i);
	assert_true(zd_normacc_round(a) == model_round(m));
}

/* A block sum as kernels return them: up to 4096 squares of fp32 from the whole range, denormals too, added in fp64. */
static double random_block(struct zd_rng *rng)
{
	double sum = 0;
	uint64_t n = 1 + zd_rng_below(rng, 8), spread = 1 + zd_rng_below(rng, 255), low = zd_rng_below(rng, 255);

	for (uint64_t i = 0; i < n; i++) {
		uint32_t exponent = (uint32_t)(low + zd_rng_below(rng, spread));
		uint32_t bits = (exponent > 254 ? 254 : exponent) << 23 | (uint32_t)(zd_rng_next(rng) & 0x7fffff);
		float value;

		memcpy(&value, &bits, sizeof(value));
		sum += (double)value * (double)value;
	}
	return sum;
}

static void test_single_values(void **state)
{
	static const double values[] = {0,	  -0.0,	    1,		0x1p-298, 0x3p-298, 0x1p-250, 0x1.fffffffffffffp-246, 0x1p267,
					0x1.fffffffffffffp299, 0x1p-44, 0x1p-45, 0x1p20, 0x1.8p-237, 0x1.0000000000001p-236, 3.5, 1e30};

	(void)state;
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		struct zd_normacc a;
		struct model m = {0};

		zd_normacc_zero(&a);
		zd_normacc_add(&a, values[i]);
		model_add(&m, values[i]);
		assert_model(&a, &m);
		assert_true(zd_normacc_round(&a) == values[i]);
	}
}

/* All 53 bits at every place of the accumulator: words are crossed at every offset. */
static void test_every_exponent(void **state)
{
	(void)state;
	for (int exponent = -298; exponent < 300; exponent++) {
		double full = ldexp(0x1.fffffffffffffp0, exponent), least = exponent < -246 ? ldexp(1, exponent) : full;
		struct zd_normacc a;
		struct model m = {0};

		zd_normacc_zero(&a);
		for (int i = 0; i < 5; i++) { /* carries on the way */
			zd_normacc_add(&a, least);
			model_add(&m, least);
		}
		assert_model(&a, &m);
	}
}

static void test_random_sums(void **state)
{
	struct zd_rng rng = {1};

	(void)state;
	for (int round = 0; round < 2000; round++) {
		struct zd_normacc a;
		struct model m = {0};
		uint64_t n = 1 + zd_rng_below(&rng, 20);

		zd_normacc_zero(&a);
		for (uint64_t i = 0; i < n; i++) {
			double value = random_block(&rng);

			zd_normacc_add(&a, value);
			model_add(&m, value);
		}
		assert_model(&a, &m);
	}
}

/* The same blocks in any order, in any grouping over any number of lanes: the same bits. */
static void test_order_and_grouping(void **state)
{
	enum { BLOCKS = 500 };
	struct zd_rng rng = {2};
	double blocks[BLOCKS];
	struct zd_normacc whole;

	(void)state;
	zd_normacc_zero(&whole);
	for (int i = 0; i < BLOCKS; i++) {
		blocks[i] = random_block(&rng);
		zd_normacc_add(&whole, blocks[i]);
	}
	for (uint64_t lanes = 1; lanes <= 7; lanes++) {
		struct zd_normacc lane[7], total;

		for (int i = BLOCKS - 1; i > 0; i--) {
			uint64_t with = zd_rng_below(&rng, (uint64_t)i + 1);
			double other = blocks[with];

			blocks[with] = blocks[i];
			blocks[i] = other;
		}
		for (uint64_t l = 0; l < lanes; l++)
			zd_normacc_zero(&lane[l]);
		for (int i = 0; i < BLOCKS; i++)
			zd_normacc_add(&lane[zd_rng_below(&rng, lanes)], blocks[i]);
		zd_normacc_zero(&total);
		for (uint64_t l = lanes; l > 0; l--)
			zd_normacc_merge(&total, &lane[l - 1]);
		assert_memory_equal(&total, &whole, sizeof(total));
	}
}

static void test_carry_through_all_words(void **state)
{
	struct zd_normacc a, b, zero;

	(void)state;
	memset(&a, 0xff, sizeof(a));
	a.word[ZD_NORMACC_WORDS - 1] = 6;
	b = a;
	zd_normacc_zero(&zero);
	a.word[0] -= 3; /* one unit of 2^-298 is 4 */
	zd_normacc_add(&a, 0x1p-298);
	assert_int_equal(a.word[0], 0);
	for (int i = 1; i < ZD_NORMACC_WORDS - 1; i++)
		assert_int_equal(a.word[i], 0);
	assert_int_equal(a.word[ZD_NORMACC_WORDS - 1], 7);

	zero.word[0] = 1;
	zd_normacc_merge(&b, &zero);
	for (int i = 0; i < ZD_NORMACC_WORDS - 1; i++)
		assert_int_equal(b.word[i], 0);
	assert_int_equal(b.word[ZD_NORMACC_WORDS - 1], 7);

	/* A word that is full, with a carry coming in: the carry must go on although the sum of the word is unchanged. */
	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
	a.word[0] = b.word[0] = UINT64_MAX;
	a.word[1] = UINT64_MAX;
	zd_normacc_merge(&a, &b);
	assert_int_equal(a.word[0], UINT64_MAX - 1);
	assert_int_equal(a.word[1], 0);
	assert_int_equal(a.word[2], 1);
}

/* Ties go to even, anything below decides them, and rounding up may reach the next power of two. */
static void test_rounding(void **state)
{
	static const struct {
		double a, b, c, expected;
	} cases[] = {
		{0x1p53, 1, 0, 0x1p53},			     /* tie, even below */
		{0x1p53 + 2, 1, 0, 0x1p53 + 4},		     /* tie, even above */
		{0x1p53, 1, 0x1p-298, 0x1p53 + 2},	     /* just more than the tie */
		{0x1p53 + 2, 0x1.fffffffffffffp-1, 0, 0x1p53 + 2}, /* just less than the tie */
		{0x1p53, 1, 0x1p-40, 0x1p53 + 2},
		{0x1.fffffffffffffp53, 1, 0, 0x1p54},	     /* all ones and a half: up to the next power */
		{0x1p-246, 0x1p-298, 0, 0x1.0000000000001p-246}, /* the last that fits */
		{0x1p-245, 0x1p-298, 0, 0x1p-245},	     /* a tie at the bottom */
		{0x1p299, 0x1p-298, 0, 0x1p299},
		{0x1p64 - 2048, 0x1p10, 0, 0x1p64},	     /* across words: a tie to even */
		{0x1p63, 0x1p10, 0x1p-298, 0x1p63 + 0x1p11},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct zd_normacc a;

		zd_normacc_zero(&a);
		zd_normacc_add(&a, cases[i].a);
		zd_normacc_add(&a, cases[i].b);
		zd_normacc_add(&a, cases[i].c);
		if (zd_normacc_round(&a) != cases[i].expected)
			fail_msg("case %zu: %a, expected %a", i, zd_normacc_round(&a), cases[i].expected);
	}
}

static void test_rounding_of_random_bits(void **state)
{
	struct zd_rng rng = {3};

	(void)state;
	for (int round = 0; round < 20000; round++) {
		struct zd_normacc a;
		struct model m;
		uint64_t top = zd_rng_below(&rng, BITS), kind = zd_rng_below(&rng, 4), low = zd_rng_below(&rng, top + 1);

		zd_normacc_zero(&a);
		for (uint64_t i = 0; i <= top; i++) {
			/* kinds: random; all ones down to `low`; one bit and `low`; a half that may be a tie */
			uint64_t bit = kind == 0   ? zd_rng_next(&rng) & 1
				       : kind == 1 ? i >= low
				       : kind == 2 ? i == low
						   : i + 53 == top || (i + 52 == top && round % 2);

			a.word[i / 64] |= (bit | (i == top)) << (i % 64);
		}
		for (int i = 0; i < BITS; i++)
			m.bit[i] = a.word[i / 64] >> (i % 64) & 1;
		assert_true(zd_normacc_round(&a) == model_round(&m));
	}
}

static void test_bytes(void **state)
{
	struct zd_normacc a = {{1, 2, 3, 4, 5, 6, 7, 8, 0x0102030405060708, (1ull << 44) - 1}}, b;
	uint8_t bytes[ZD_NORMACC_BYTES + 1] = {0};

	(void)state;
	zd_normacc_encode(bytes, &a);
	assert_int_equal(bytes[0], 1);
	assert_int_equal(bytes[64], 8); /* little end first */
	assert_int_equal(bytes[71], 1);
	assert_int_equal(zd_normacc_decode(&b, bytes, ZD_NORMACC_BYTES), 0);
	assert_memory_equal(&a, &b, sizeof(a));
	assert_int_equal(zd_normacc_decode(&b, bytes, ZD_NORMACC_BYTES - 1), -ZD_ERR_BAD_FIELD);
	assert_int_equal(zd_normacc_decode(&b, bytes, ZD_NORMACC_BYTES + 1), -ZD_ERR_BAD_FIELD);
	assert_int_equal(zd_normacc_decode(&b, bytes, 0), -ZD_ERR_BAD_FIELD);
	bytes[77] = 0x10; /* 2^44 of the top word */
	assert_int_equal(zd_normacc_decode(&b, bytes, ZD_NORMACC_BYTES), -ZD_ERR_BAD_FIELD);
}

static jmp_buf violated;

static void on_violation(const char *file, int line, const char *what)
{
	(void)file;
	(void)line;
	(void)what;
	longjmp(violated, 1);
}

static int adding_asserts(struct zd_normacc *a, double value)
{
	if (setjmp(violated))
		return 1;
	zd_normacc_add(a, value);
	return 0;
}

static int merging_asserts(struct zd_normacc *a, const struct zd_normacc *b)
{
	if (setjmp(violated))
		return 1;
	zd_normacc_merge(a, b);
	return 0;
}

static void test_what_no_kernel_returns_asserts(void **state)
{
	static const double values[] = {-1, INFINITY, NAN, -INFINITY, 0x1p300, 0x1p-299, 0x1p-1074, 0x1.8p-298, 0x1.0000000000001p-298,
					0x1.0000000000001p-247, -0x1p-298, DBL_MAX};
	struct zd_normacc a, b;

	(void)state;
	zd_assert_failed = on_violation;
	zd_normacc_zero(&a);
	assert_false(adding_asserts(&a, 0x1p-298));
	assert_false(merging_asserts(&a, &a));
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
		assert_true(adding_asserts(&a, values[i]));
	memset(&a, 0xff, sizeof(a));
	b = a;
	assert_true(adding_asserts(&a, 1));
	zd_normacc_zero(&a);
	a.word[0] = 1;
	assert_true(merging_asserts(&a, &b));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_single_values),
		cmocka_unit_test(test_every_exponent),
		cmocka_unit_test(test_random_sums),
		cmocka_unit_test(test_order_and_grouping),
		cmocka_unit_test(test_carry_through_all_words),
		cmocka_unit_test(test_rounding),
		cmocka_unit_test(test_rounding_of_random_bits),
		cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_what_no_kernel_returns_asserts),
	};

	return cmocka_run_group_tests_name("proto: norm accumulator", tests, NULL, NULL);
}
