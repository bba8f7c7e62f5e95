/* SPDX-License-Identifier: Apache-2.0 */
/* The scalar definition against independent models and values worked out by hand: reduction, norm, casts, selection, thread state. */
#include "tests/kernel/kernel_test.h"

#include <math.h>
#include <string.h>
#include <xmmintrin.h>

static const struct zd_kernels *scalar;

static int group_begin(void **state)
{
	(void)state;
	zd_kernels_thread_init();
	scalar = zd_kernels_scalar();
	return 0;
}

static void test_select(void **state)
{
	const struct zd_kernels *best = zd_kernels_avx512() ? zd_kernels_avx512() : zd_kernels_avx2() ? zd_kernels_avx2() : scalar;
	const struct zd_kernels *middle = zd_kernels_avx2() ? zd_kernels_avx2() : scalar;

	(void)state;
	assert_non_null(scalar);
	assert_ptr_equal(zd_kernels_select(NULL), best);
	assert_ptr_equal(zd_kernels_select(""), best);
	assert_ptr_equal(zd_kernels_select("scalar"), scalar);
	assert_ptr_equal(zd_kernels_select("avx2"), middle);
	assert_ptr_equal(zd_kernels_select("avx512"), best);
	assert_null(zd_kernels_select("avx"));
	assert_null(zd_kernels_select("AVX2"));
	assert_null(zd_kernels_select("avx512 "));
	assert_string_equal(scalar->name, "scalar");
	assert_string_equal(zd_kernels_select("scalar")->name, "scalar");
}

/* A table with a hole would be a call to address zero in the middle of training. */
static void test_tables_are_full(void **state)
{
	struct variant variants[VARIANTS];

	(void)state;
	zd_test_variants(variants);
	for (int i = -1; i < VARIANTS; i++) {
		const struct zd_kernels *k = i < 0 ? scalar : variants[i].kernels;
		void *slots[sizeof *k / sizeof(void *)];
		if (!k)
			continue;
		memcpy(slots, k, sizeof slots);
		for (size_t s = 0; s < COUNT(slots); s++)
			assert_non_null(slots[s]);
	}
}

static void test_thread_state(void **state)
{
	unsigned before = _mm_getcsr();

	(void)state;
	assert_true(zd_kernels_thread_ok());
	_mm_setcsr(before & ~0x8000u);
	assert_false(zd_kernels_thread_ok());
	_mm_setcsr(before & ~0x0040u);
	assert_false(zd_kernels_thread_ok());
	_mm_setcsr(before | 0x2000u);
	assert_false(zd_kernels_thread_ok());
	zd_kernels_thread_init();
	assert_true(zd_kernels_thread_ok());
	assert_int_equal(_mm_getcsr() & 0x6000u, 0);
}

/* ---- conversions ---- */

/* What VCVTPH2PS and IEEE 754 say a binary16 is, by arithmetic instead of by bits. */
static uint32_t fp16_model(uint32_t x)
{
	uint32_t sign = x & 0x8000 ? 0x80000000u : 0, exponent = (x >> 10) & 31, fraction = x & 1023;
	float magnitude;

	if (exponent == 31)
		return sign | (fraction ? 0x7fc00000u | fraction << 13 : 0x7f800000u);
	magnitude = (float)(exponent ? ldexp(1024.0 + fraction, (int)exponent - 25) : ldexp(fraction, -24));
	return sign | zd_test_bits(magnitude);
}

static void test_every_half(void **state)
{
	static uint16_t in[65536];
	static float out[65536];
	struct zd_reduce_result result;

	(void)state;
	for (uint32_t i = 0; i < 65536; i++)
		in[i] = (uint16_t)i;
	scalar->acc_set[ZD_CODEC_FP16](out, in, 65536, NULL, &result);
	for (uint32_t i = 0; i < 65536; i++)
		assert_int_equal(zd_test_bits(out[i]), fp16_model(i));
	assert_int_equal(result.nonfinite, 2 * 1024);
	assert_int_equal(result.first_nonfinite, 0x7c00);
	scalar->acc_set[ZD_CODEC_BF16](out, in, 65536, NULL, &result);
	for (uint32_t i = 0; i < 65536; i++)
		assert_int_equal(zd_test_bits(out[i]), i << 16);
	assert_int_equal(result.nonfinite, 2 * 128);
	assert_int_equal(result.first_nonfinite, 0x7f80);
}

/* ---- reduction ---- */

static void test_acc_literals(void **state)
{
	static const struct {
		uint32_t acc, x, sum;
	} rows[] = {
		{ 0x80000000, 0x80000000, 0x80000000 }, /* -0 + -0 */
		{ 0x80000000, 0x00000000, 0x00000000 },
		{ 0x3f800000, 0x33800000, 0x3f800000 }, /* 1 + 2^-24: half an ulp, to even */
		{ 0x3f800001, 0x33800000, 0x3f800002 }, /* and up to even */
		{ 0x3f800000, 0x33800001, 0x3f800001 },
		{ 0x7f7fffff, 0x7f7fffff, 0x7f800000 }, /* overflow */
		{ 0x00400000, 0x00400000, 0x00000000 }, /* denormal operands read as zero */
		{ 0x00400000, 0x3f800000, 0x3f800000 },
		{ 0x80400000, 0x80000001, 0x80000000 },
		{ 0x00800001, 0x80800000, 0x00000000 }, /* denormal result flushed */
		{ 0x80800001, 0x00800000, 0x80000000 },
		{ 0x7f800000, 0xff800000, 0x7fc00000 }, /* NaN results are canonical */
		{ 0x7f812345, 0x3f800000, 0x7fc00000 },
		{ 0xffffffff, 0x7fc01234, 0x7fc00000 },
		{ 0x7f800000, 0x3f800000, 0x7f800000 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		uint32_t acc = rows[i].acc;
		struct zd_reduce_result result;
		scalar->acc_add[ZD_CODEC_FP32]((float *)(void *)&acc, &rows[i].x, 1, NULL, &result);
		assert_int_equal(acc, rows[i].sum);
		assert_int_equal(result.nonfinite, (rows[i].sum & 0x7f800000) == 0x7f800000);
		acc = 0x12345678;
		scalar->acc_set[ZD_CODEC_FP32]((float *)(void *)&acc, &rows[i].x, 1, NULL, &result);
		assert_int_equal(acc, rows[i].x);
	}
}

static double tree_model(const double *s, size_t j, size_t width)
{
	return width == 16 ? s[j] : tree_model(s, j, width * 2) + tree_model(s, j + width, width * 2);
}

/* Written from the text of the definition, top down where the product goes bottom up. */
static double block_model(const float *x, size_t count)
{
	double s[16];

	for (size_t j = 0; j < 16; j++) {
		s[j] = 0;
		for (size_t i = j; i < count; i += 16)
			s[j] += (double)x[i] * (double)x[i];
	}
	return tree_model(s, 0, 1);
}

static void test_block_sum_literals(void **state)
{
	/* 2^54 swallows 2 (half its ulp, to even) but not 4; which squares meet before they meet 2^54 shows the tree */
	static const struct {
		const char *why;
		size_t at[5];
		double sum;
	} rows[] = {
		{ "0 with 8 first", { 0, 8, 24, 4, 20 }, 0x1p54 },
		{ "4 with 12 before 0", { 0, 4, 20, 12, 28 }, 0x1p54 + 4 },
		{ "2 with 6 before 0", { 0, 2, 18, 6, 22 }, 0x1p54 + 4 },
		{ "1 with 3 before 0", { 0, 1, 17, 3, 19 }, 0x1p54 + 4 },
		{ "1 with 9 before 0", { 0, 1, 17, 9, 25 }, 0x1p54 + 4 },
		{ "4 alone before 2 and 6", { 0, 4, 20, 2, 18 }, 0x1p54 },
		{ "2 alone before 1", { 0, 2, 18, 1, 17 }, 0x1p54 },
		{ "16 apart add in order", { 0, 16, 32, 48, 64 }, 0x1p54 },
	};
	struct variant variants[VARIANTS];

	(void)state;
	zd_test_variants(variants);
	for (size_t r = 0; r < COUNT(rows); r++)
		for (int i = -1; i < VARIANTS; i++) {
			const struct zd_kernels *k = i < 0 ? scalar : variants[i].kernels;
			float x[80] = { 0 }, acc[80];
			double sum = -1;
			struct zd_reduce_result result;
			if (!k)
				continue;
			for (size_t j = 0; j < 5; j++)
				x[rows[r].at[j]] = j ? 1.0f : 0x1p27f;
			k->acc_set[ZD_CODEC_FP32](acc, x, 80, &sum, &result);
			if (sum != rows[r].sum)
				fail_msg("%s: %s: 2^54 + %g", k->name, rows[r].why, sum - 0x1p54);
		}
}

static void test_block_sums_follow_the_model(void **state)
{
	enum { N = 3 * ZD_KERNEL_BLOCK + 777 };
	static float x[N], acc[N], whole[N];
	double sums[4], piece[2];
	struct zd_reduce_result result;
	struct values r = { 77 };

	(void)state;
	for (size_t i = 0; i < N; i++)
		x[i] = zd_test_f32(&r, PATTERN_TRAINING);
	scalar->acc_set[ZD_CODEC_FP32](whole, x, N, NULL, &result);
	scalar->acc_add[ZD_CODEC_FP32](whole, x, N, sums, &result);
	for (size_t b = 0; b < 4; b++)
		assert_true(sums[b] == block_model(whole + b * ZD_KERNEL_BLOCK, b < 3 ? ZD_KERNEL_BLOCK : 777));
	/* cut at a block boundary, the blocks are the same */
	memcpy(acc, x, sizeof acc);
	scalar->acc_add[ZD_CODEC_FP32](acc + 2 * ZD_KERNEL_BLOCK, x + 2 * ZD_KERNEL_BLOCK, N - 2 * ZD_KERNEL_BLOCK, piece, &result);
	assert_memory_equal(piece, sums + 2, sizeof piece);
	/* denormals count as zero */
	uint32_t tiny[3] = { 0x007fffff, 0x80000001, 0x00800000 };
	scalar->acc_set[ZD_CODEC_FP32](acc, tiny, 3, sums, &result);
	assert_true(sums[0] == 0x1p-252);
}

static void test_nonfinite_sums(void **state)
{
	enum { N = 2 * ZD_KERNEL_BLOCK + 100 };
	static float x[N], acc[N];
	double sums[3];
	struct zd_reduce_result result;

	(void)state;
	for (size_t i = 0; i < N; i++)
		x[i] = 0x1.fffffep127f; /* the largest finite: its squares stay finite */
	scalar->acc_set[ZD_CODEC_FP32](acc, x, N, sums, &result);
	assert_int_equal(result.nonfinite, 0);
	assert_true(isfinite(sums[0]) && isfinite(sums[1]) && isfinite(sums[2]));
	x[ZD_KERNEL_BLOCK + 9] = zd_test_float(0xffc00001);
	x[ZD_KERNEL_BLOCK + 11] = -(float)INFINITY;
	scalar->acc_set[ZD_CODEC_FP32](acc, x, N, sums, &result);
	assert_int_equal(result.nonfinite, 2);
	assert_int_equal(result.first_nonfinite, ZD_KERNEL_BLOCK + 9);
	assert_true(isfinite(sums[0]) && isfinite(sums[2]));
	assert_true(isinf(sums[1]) && sums[1] > 0);
	assert_int_equal(zd_test_bits(acc[ZD_KERNEL_BLOCK + 9]), 0xffc00001);
}

/* The ways to hold the same gradient agree: raw contributions, widened ones, the accumulator. */
static void test_forms_agree(void **state)
{
	enum { N = ZD_KERNEL_BLOCK + 333 };
	static uint16_t a[N], b[N];
	static float acc[N], wide[N];
	double of_acc[2], of_raw[2];
	struct zd_reduce_result r1, r2;

	(void)state;
	for (enum pattern p = 0; p < PATTERN_COUNT; p++) {
		struct values r = { 1 + (uint64_t)p };
		for (size_t i = 0; i < N; i++) {
			a[i] = zd_test_bf16(&r, p);
			b[i] = zd_test_bf16(&r, p);
		}
		scalar->acc_set[ZD_CODEC_BF16](acc, a, N, of_acc, &r1);
		scalar->norm_bf16_1(a, N, of_raw, &r2, NULL, NULL);
		scalar->widen[0](wide, a, NULL, N);
		assert_memory_equal(of_acc, of_raw, sizeof of_acc);
		assert_memory_equal(&r1, &r2, sizeof r1);
		assert_memory_equal(acc, wide, sizeof acc);
		scalar->acc_add[ZD_CODEC_BF16](acc, b, N, of_acc, &r1);
		scalar->norm_bf16_2(a, b, N, of_raw, &r2, NULL, NULL);
		scalar->widen[1](wide, a, b, N);
		assert_memory_equal(of_acc, of_raw, sizeof of_acc);
		assert_memory_equal(&r1, &r2, sizeof r1);
		assert_memory_equal(acc, wide, sizeof acc);
	}
}

/* ---- the split master ---- */

/* |w| rounded to bf16, ties away from zero, by distance; NaN and what rounds to infinity are the caller's */
static uint32_t nearest_bf16(uint32_t bits)
{
	uint32_t below = bits & 0x7fff0000, above = below + 0x10000;
	double w = (double)zd_test_float(bits & 0x7fffffff), down = w - (double)zd_test_float(below), up;

	up = above == 0x7f800000 ? 0x1p128 - w : (double)zd_test_float(above) - w;
	return (bits & 0x80000000) | (down < up ? below : above);
}

static void check_master(uint32_t bits, const struct zd_kernels *k)
{
	uint16_t hi, lo, hi16;
	uint32_t merged;
	struct zd_reduce_result refused;
	uint32_t magnitude = bits & 0x7fffffff;

	k->split[ZD_CODEC_FP32](&hi, &lo, &bits, 1, &refused);
	k->merge((float *)(void *)&merged, &hi, &lo, 1);
	assert_int_equal(merged, bits);
	hi16 = (uint16_t)(nearest_bf16(bits) >> 16);
	if (magnitude >= 0x00800000 && magnitude < 0x7f800000) {
		assert_int_equal(hi, hi16);
		assert_int_equal(refused.nonfinite, (hi16 & 0x7f80) == 0x7f80);
	} else {
		assert_int_equal(refused.nonfinite, magnitude >= 0x7f800000);
	}
	assert_int_equal(refused.first_nonfinite, 0);
}

static void test_split_master(void **state)
{
	static const uint32_t low[] = { 0, 1, 0x7fff, 0x8000, 0x8001, 0xffff };
	struct values r = { 9 };

	(void)state;
	for (uint32_t hi = 0; hi < 65536; hi++) {
		for (size_t i = 0; i < COUNT(low); i++)
			check_master(hi << 16 | low[i], scalar);
		for (size_t i = 0; i < 8; i++)
			check_master(hi << 16 | (uint32_t)(zd_test_random(&r) & 0xffff), scalar);
	}
}

/* A stride through all 2^32 patterns, in whole arrays, for every variant. */
static void test_split_master_strided(void **state)
{
	enum { N = 65536 };
	static uint32_t in[N], out[N];
	static uint16_t hi[N], lo[N];
	struct variant variants[VARIANTS];
	struct zd_reduce_result refused;

	(void)state;
	zd_test_variants(variants);
	for (int i = -1; i < VARIANTS; i++) {
		const struct zd_kernels *k = i < 0 ? scalar : variants[i].kernels;
		if (!k)
			continue;
		for (uint32_t turn = 0; turn < 64; turn++) {
			for (uint32_t j = 0; j < N; j++)
				in[j] = (turn * N + j) * 1021u;
			k->split[ZD_CODEC_FP32](hi, lo, in, N, &refused);
			k->merge((float *)(void *)out, hi, lo, N);
			assert_memory_equal(in, out, sizeof in);
		}
	}
}

static void test_split_of_bf16(void **state)
{
	static uint16_t in[65536], hi[65536], lo[65536];
	struct zd_reduce_result refused;

	(void)state;
	for (uint32_t i = 0; i < 65536; i++) {
		in[i] = (uint16_t)i;
		lo[i] = 0x1111;
	}
	scalar->split[ZD_CODEC_BF16](hi, lo, in, 65536, &refused);
	assert_memory_equal(in, hi, sizeof in);
	for (uint32_t i = 0; i < 65536; i++)
		assert_int_equal(lo[i], 0);
	assert_int_equal(refused.nonfinite, 2 * 128);
	assert_int_equal(refused.first_nonfinite, 0x7f80);
	scalar->split[ZD_CODEC_FP16](hi, lo, in, 65536, &refused);
	assert_int_equal(refused.nonfinite, 2 * 1024);
	assert_int_equal(refused.first_nonfinite, 0x7c00);
}

int zd_test_group_definition(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_select),
		cmocka_unit_test(test_tables_are_full),
		cmocka_unit_test(test_thread_state),
		cmocka_unit_test(test_every_half),
		cmocka_unit_test(test_acc_literals),
		cmocka_unit_test(test_block_sum_literals),
		cmocka_unit_test(test_block_sums_follow_the_model),
		cmocka_unit_test(test_nonfinite_sums),
		cmocka_unit_test(test_forms_agree),
		cmocka_unit_test(test_split_master),
		cmocka_unit_test(test_split_master_strided),
		cmocka_unit_test(test_split_of_bf16),
	};
	return cmocka_run_group_tests_name("kernel definition", tests, group_begin, NULL);
}
