/* SPDX-License-Identifier: Apache-2.0 */
/* The small parts the model is made of: bf16, sine and cosine, norm, GELU, softmax, cross-entropy. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "client/trainer/bf16.h"
#include "client/trainer/ops.h"
#include "client/trainer/random.h"
#include "client/trainer/trig.h"

#define UNIT_ROUNDOFF 0x1p-24
/* The exponential's relative error as ops.h promises it. */
#define EXPONENTIAL 0x1p-22

static void assert_close(const char *what, double at, double found, double expected, double bound)
{
	if (!(fabs(found - expected) <= bound))
		fail_msg("%s at %g: expected %.9g within %.2g, found %.9g", what, at, expected, bound, found);
}

static float from_bits(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static uint32_t to_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static void test_bf16_round(void **state)
{
	static const struct {
		uint32_t from;
		uint16_t to;
	} cases[] = {
		{ 0x00000000, 0x0000 }, { 0x80000000, 0x8000 },			/* both zeros */
		{ 0x3f800000, 0x3f80 }, { 0x3f808000, 0x3f80 },			/* tie, even below */
		{ 0x3f818000, 0x3f82 }, { 0xbf818000, 0xbf82 },			/* tie, even above */
		{ 0x3f807fff, 0x3f80 }, { 0x3f808001, 0x3f81 },			/* either side of a tie */
		{ 0x3fffffff, 0x4000 },						/* carries into the exponent */
		{ 0x00000001, 0x0000 }, { 0x00008001, 0x0001 },			/* denormals */
		{ 0x007fffff, 0x0080 },						/* denormal that becomes normal */
		{ 0x7f7f7fff, 0x7f7f }, { 0x7f7f8000, 0x7f80 },			/* last finite, first that overflows */
		{ 0xff7fffff, 0xff80 }, { 0x7f800000, 0x7f80 }, { 0xff800000, 0xff80 },
		{ 0x7f800001, 0x7fc0 }, { 0xff800001, 0xffc0 },			/* NaN whose payload is lost */
		{ 0x7fffffff, 0x7fff }, { 0xffffffff, 0xffff },			/* NaN that a carry would make a zero */
		{ 0x7fc12345, 0x7fc1 },
	};
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		float from = from_bits(cases[i].from);
		uint16_t to;

		zd_bf16_round(&to, &from, 1);
		if (to != cases[i].to)
			fail_msg("0x%08x: expected 0x%04x, found 0x%04x", cases[i].from, cases[i].to, to);
	}
}

static void test_bf16_all(void **state)
{
	(void)state;
	for (uint32_t all = 0; all <= 0xffff; all++) {
		uint16_t from = (uint16_t)all, back;
		float wide;

		zd_bf16_widen(&wide, &from, 1);
		assert_int_equal(to_bits(wide), all << 16);
		zd_bf16_round(&back, &wide, 1);
		assert_int_equal(back, isnan(wide) ? all | 0x40 : all);
	}
}

static void test_trig(void **state)
{
	const double half_pi = 0x1.921fb54442d18p0;
	(void)state;

	for (int i = -1000; i <= 1000; i++) {
		double angle = half_pi * i / 1000.0;

		/* libm is itself right to 2^-53 */
		assert_close("sine", angle, zd_trig_sine(angle), sin(angle), 0x1p-51);
		assert_close("cosine", angle, zd_trig_cosine(angle), cos(angle), 0x1p-51);
	}
	assert_true(zd_trig_sine(0.0) == 0.0 && zd_trig_cosine(0.0) == 1.0);
	/* The same bits on every machine. */
	assert_true(zd_trig_sine(1.0) == 0x1.aed548f090ceep-1);
	assert_true(zd_trig_cosine(1.0) == 0x1.14a280fb5068cp-1);
}

static double gelu(double x)
{
	return 0.5 * x * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

static void test_gelu(void **state)
{
	float x[2001], out[2001], again[2001], grad[2001];
	(void)state;

	/* 2001 is odd on purpose: whatever width of vectors, there is a rest. */
	for (int i = 0; i < 2001; i++) {
		x[i] = (float)(i - 1000) / 100.0f;
		grad[i] = 3.0f;
	}
	zd_ops_gelu(2001, x, out);
	zd_ops_gelu_backward(2001, x, again, grad);
	for (int i = 0; i < 2001; i++) {
		double v = (double)x[i], step = 0x1p-15;
		double slope = (gelu(v + step) - gelu(v - step)) / (2.0 * step);
		/* The exponent z is off by 6 roundings of its size, which moves the output by at most |v z s (1 - s)| < 1 of that, s being
		 * the sigmoid; the exponential by 4, sum, division and product by 3, all relative to an output of at most |v|. */
		double bound = 16 * UNIT_ROUNDOFF * (1.0 + fabs(v));

		assert_close("gelu", v, (double)out[i], gelu(v), bound);
		assert_close("gelu's slope", v, (double)grad[i], 3.0 * slope, 3.0 * 4.0 * bound);
		assert_true(to_bits(again[i]) == to_bits(out[i]));
	}
	assert_true(out[1000] == 0.0f);
	float wild[4] = { NAN, 1e30f, INFINITY, -100.0f }, tame[4];
	zd_ops_gelu(4, wild, tame);
	assert_true(isnan(tame[0]) && tame[1] == 1e30f && !isfinite(tame[2]) && fabsf(tame[3]) < 1e-20f);
}

static void test_norm(void **state)
{
	enum { ROWS = 3, DIM = 13 };
	float x[ROWS * DIM], gain[DIM], out[ROWS * DIM], inverse[ROWS];
	(void)state;

	for (size_t i = 0; i < ROWS * DIM; i++)
		x[i] = i < DIM ? 0.0f : (float)(zd_random_unit(1, i) - 0.5) * 8.0f;
	for (size_t i = 0; i < DIM; i++)
		gain[i] = (float)i - 4.0f;
	zd_ops_norm(ROWS, DIM, x, gain, inverse, out);
	for (size_t row = 0; row < ROWS; row++) {
		double square = 0.0;

		for (size_t i = 0; i < DIM; i++)
			square += (double)x[row * DIM + i] * (double)x[row * DIM + i];
		double expected = 1.0 / sqrt(square / (double)DIM + (double)ZD_OPS_NORM_EPSILON);
		/* 13 additions of squares, then a division, a sum, a root, a division; two products for the output. */
		assert_close("inverse", (double)row, (double)inverse[row], expected, 20 * UNIT_ROUNDOFF * expected);
		for (size_t i = 0; i < DIM; i++) {
			double value = (double)x[row * DIM + i] * expected * (double)gain[i];

			assert_close("norm", (double)i, (double)out[row * DIM + i], value, 24 * UNIT_ROUNDOFF * fabs(value));
		}
	}
	assert_true(out[DIM - 1] == 0.0f);
}

static void test_softmax(void **state)
{
	/* Every context around the eight partial sums; and scores so far apart that a plain exp would overflow. */
	static const size_t contexts[] = { 1, 2, 7, 8, 9, 16, 23 };
	(void)state;

	for (size_t c = 0; c < sizeof(contexts) / sizeof(contexts[0]); c++) {
		size_t n = contexts[c];
		float p[23 * 23], scores[23 * 23];

		for (size_t i = 0; i < n * n; i++)
			scores[i] = p[i] = (float)(zd_random_unit(2, i) - 0.5) * 10.0f + 300.0f;
		zd_ops_causal_softmax(n, p);
		for (size_t row = 0; row < n; row++) {
			double total = 0.0;

			for (size_t i = 0; i <= row; i++)
				total += exp((double)scores[row * n + i] - 300.0);
			for (size_t i = 0; i < n; i++) {
				double expected = i <= row ? exp((double)scores[row * n + i] - 300.0) / total : 0.0;

				/* Numbers within a factor of two: their differences are exact. */
				assert_close("softmax", (double)i, (double)p[row * n + i], expected,
					     (2 * EXPONENTIAL + 30 * UNIT_ROUNDOFF) * expected);
			}
		}
	}
	float far[4] = { 0.0f, 99.0f, 1000.0f, -1000.0f };
	zd_ops_causal_softmax(2, far);
	assert_true(far[0] == 1.0f && far[1] == 0.0f && far[2] == 1.0f && far[3] < 1e-20f);
	/* A NaN spoils its row, whatever its payload: the bits go through integer arithmetic. */
	for (uint32_t payload = 0; payload < 1024; payload++) {
		float broken[4] = { 1.0f, 1.0f, 1.0f, from_bits(0x7fc00000 + payload) };

		zd_ops_causal_softmax(2, broken);
		assert_true(broken[0] == 1.0f && isnan(broken[2]) && isnan(broken[3]));
	}
}

static void test_cross_entropy(void **state)
{
	/* Even odds cost ln 4 each; the other rows are known in closed form. */
	float logits[3 * 4] = { 5.0f, 5.0f, 5.0f, 5.0f, 0.0f, 0.0f, 0.0f, 100.0f, 0.0f, 0.0f, 0.0f, 100.0f };
	const uint8_t targets[3] = { 2, 3, 1 };
	(void)state;

	double loss = zd_ops_cross_entropy(3, 4, logits, targets);
	assert_close("loss", 0, loss, log(4.0) + 0.0 + 100.0, 200 * UNIT_ROUNDOFF);
	zd_ops_cross_entropy_backward(3, 4, logits, targets);
	static const double expected[12] = { 0.25, 0.25, -0.75, 0.25, 0, 0, 0, 0, 0, -1, 0, 1 };
	for (size_t i = 0; i < 12; i++)
		assert_close("gradient", (double)i, (double)logits[i], expected[i] / 3.0, 8 * UNIT_ROUNDOFF);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bf16_round), cmocka_unit_test(test_bf16_all), cmocka_unit_test(test_trig),
		cmocka_unit_test(test_gelu),	   cmocka_unit_test(test_norm),	    cmocka_unit_test(test_softmax),
		cmocka_unit_test(test_cross_entropy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
