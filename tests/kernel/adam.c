/* SPDX-License-Identifier: Apache-2.0 */
/* The scalar Adam against values worked out by hand and against the textbook step in fp64, with a derived bound. */
#include "tests/kernel/kernel_test.h"

#include <math.h>
#include <string.h>

static int group_begin(void **state)
{
	(void)state;
	zd_kernels_thread_init();
	return 0;
}

/* Correctly rounded values from 60-digit decimal arithmetic. */
static void test_consts(void **state)
{
	static const struct {
		double lr, b1, b2;
		uint64_t t;
		uint32_t step, rbc2;
	} rows[] = {
		{ 1e-3, 0.9, 0.999, 1, 0x3c23d70a, 0x41fcfb72 },
		{ 1e-3, 0.9, 0.999, 2, 0x3bac7692, 0x41b2ee20 },
		{ 6e-4, 0.9, 0.95, 10, 0x3a717cf4, 0x3fca1126 },
		{ 1e-3, 0.9, 0.999, 1000, 0x3a83126f, 0x3fa0f87f },
		{ 1e-3, 0.9, 0.999, 10000, 0x3a83126f, 0x3f8000bd },
		{ 3e-4, 0.9, 0.95, 1000000, 0x399d4952, 0x3f800000 },
		{ 3e-4, 0.9, 0.9999999, 1000000, 0x399d4952, 0x404f7749 },
		{ 3e-4, 0.9, 0.999, (uint64_t)1 << 40, 0x399d4952, 0x3f800000 },
		{ 0.5, 0.0, 0.0, 1, 0x3f000000, 0x3f800000 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct zd_adam_params p = { .lr = rows[i].lr, .wd = 0.01, .b1 = rows[i].b1, .b2 = rows[i].b2, .eps = 1e-8, .l2 = 7 };
		struct zd_adam_consts c;
		zd_adam_consts_init(&c, &p, rows[i].t, 0.25);
		assert_int_equal(zd_test_bits(c.step), rows[i].step);
		assert_int_equal(zd_test_bits(c.rbc2), rows[i].rbc2);
		assert_true(c.scale == 0.25f && c.wd == 0.01f && c.eps == 1e-8f && c.l2 == 1);
		assert_true(c.lrwd == (float)(rows[i].lr * 0.01));
		assert_true(c.b1 == (float)rows[i].b1 && c.omb1 == (float)(1 - rows[i].b1) && c.omb2 == (float)(1 - rows[i].b2));
	}
}

/* Any t against pow, whose own error is below one ulp of fp64; half an ulp of fp32, and a little for the fp64 below it. */
static void test_consts_follow_pow(void **state)
{
	(void)state;
	for (uint64_t t = 1; t < 200000; t += 1 + t / 16) {
		struct zd_adam_params p = { .lr = 1e-3, .b1 = 0.9, .b2 = 0.9995, .eps = 1e-8 };
		struct zd_adam_consts c;
		zd_adam_consts_init(&c, &p, t, 1);
		double step = 1e-3 / (1 - pow(0.9, (double)t)), rbc2 = 1 / sqrt(1 - pow(0.9995, (double)t));
		assert_true(fabs((double)c.step - step) <= 0x1.001p-24 * step);
		assert_true(fabs((double)c.rbc2 - rbc2) <= 0x1.001p-24 * rbc2);
	}
}

struct element {
	float w, m, v;
};

static struct element run(const struct zd_kernels *k, struct element e, float grad, const struct zd_adam_consts *c)
{
	uint16_t hi, lo;
	struct zd_reduce_result refused;

	k->split[ZD_CODEC_FP32](&hi, &lo, &e.w, 1, &refused);
	k->adam[ZD_GRAD_FP32](&hi, &lo, &e.m, &e.v, &grad, NULL, 1, c, NULL);
	k->merge(&e.w, &hi, &lo, 1);
	return e;
}

static void test_literals(void **state)
{
	static const struct {
		const char *why;
		struct zd_adam_params p;
		uint64_t t;
		double scale;
		float grad;
		struct element before, after;
	} rows[] = {
		/* g = 2; w = 3 - 0.125*3; m = 0.5*2 + 0.5*2; v = 0.75*4 + 0.25*4; step = 0.25/0.5; root = 2*2 + 4 */
		{ "adamw, t = 1", { 0.25, 0.5, 0.5, 0.75, 4, 0 }, 1, 0.5, 4, { 3, 2, 4 }, { 2.5f, 2, 4 } },
		/* g = 2 + 0.5*4; m = 0.5*0 + 0.5*4; v = 0.75*0 + 0.25*16; root = 2*2 + 0; w = 4 - 0.5*(2/4) */
		{ "adam with L2, t = 1", { 0.25, 0.5, 0.5, 0.75, 0, 1 }, 1, 1, 2, { 4, 0, 0 }, { 3.75f, 2, 4 } },
		/* no correction left: step = 0.25, rbc2 = 1; m = 0.5*2 + 0.5*2; v = 0.75*4 + 0.25*4; w = 3 - 0.25*(2/(2+6)) */
		{ "large t", { 0.25, 0, 0.5, 0.75, 6, 0 }, 1000, 1, 2, { 3, 2, 4 }, { 2.9375f, 2, 4 } },
		/* the first step of AdamW moves by the rate, whatever the size of the gradient */
		{ "zero state", { 0.5, 0, 0.5, 0.75, 0, 0 }, 1, 1, 1024, { 8, 0, 0 }, { 7.5f, 512, 262144 } },
		{ "negative gradient", { 0.5, 0, 0.5, 0.75, 0, 0 }, 1, 1, -1024, { 8, 0, 0 }, { 8.5f, -512, 262144 } },
		{ "zero gradient, only decay", { 0.5, 0.5, 0.5, 0.75, 1, 0 }, 1, 1, 0, { 8, 0, 0 }, { 6, 0, 0 } },
		/* (omb2*g)*g: 0.25*2^-80*2^-80 is below the smallest normal number and flushed; then m/eps */
		{ "flushed square", { 0.5, 0, 0.5, 0.75, 0x1p-10, 0 }, 1, 1, 0x1p-80f, { 8, 0, 0 }, { 8, 0x1p-81f, 0 } },
		{ "denormal moments read as zero", { 0.5, 0, 0.5, 0.75, 1, 0 }, 1, 1, 0, { 8, 0x1p-127f, 0x1p-128f }, { 8, 0, 0 } },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct zd_adam_consts c;
		zd_adam_consts_init(&c, &rows[i].p, rows[i].t, rows[i].scale);
		struct element e = run(zd_kernels_scalar(), rows[i].before, rows[i].grad, &c);
		if (zd_test_bits(e.w) != zd_test_bits(rows[i].after.w) || zd_test_bits(e.m) != zd_test_bits(rows[i].after.m) ||
		    zd_test_bits(e.v) != zd_test_bits(rows[i].after.v))
			fail_msg("%s: w %a m %a v %a", rows[i].why, (double)e.w, (double)e.m, (double)e.v);
	}
}

/* The order of operations where it shows: each row is off in some bit if operations are fused or reordered. */
static void test_order(void **state)
{
	static const struct {
		const char *why;
		struct zd_adam_consts c;
		float grad;
		struct element before;
		uint32_t w, m, v;
	} rows[] = {
		/* m = fl(fl(b1*m) + fl(omb1*g)): (1+2^-23)^2 rounds to 1+2^-22, fused it would leave 2^-46 after the cancellation */
		{ "m is not fused", { .scale = 1, .b1 = 0x1.000002p0f, .omb1 = 1, .eps = 1 }, -0x1.000004p0f, { 0, 0x1.000002p0f, 0 }, 0, 0, 0 },
		/* (omb2*g)*g with omb2 = 2^-126, g = 2^64: omb2*(g*g) would overflow to infinity only at g = 2^64 */
		{ "omb2 * g first", { .scale = 1, .omb2 = 0x1p-126f, .eps = 1 }, 0x1p64f, { 0, 0, 0 }, 0, 0, 0x40800000 },
		/* w - fl(lrwd*w), not w*(1-lrwd): 1.25*0.75*2^-24 is below half an ulp of 1.25, but 1-lrwd rounds to 1-2^-24 */
		{ "decay subtracts", { .scale = 1, .lrwd = 0x1.8p-25f, .eps = 1 }, 0, { 1.25f, 0, 0 }, 0x3fa00000, 0, 0 },
		/* step * (m/d), not (step*m)/d: 5 * fl(1/3) is an ulp above fl(5/3) */
		{ "the quotient first", { .scale = 1, .b1 = 1, .step = 5, .eps = 3 }, 0, { 0, 1, 0 }, 0xbfd55556, 0x3f800000, 0 },
		/* the last line: w - fl(step*q); q = 1+2^-23, step = 1+2^-23, w = 1+2^-22 */
		{ "update is not fused", { .scale = 1, .b1 = 1, .step = 0x1.000002p0f, .eps = 1 }, 0, { 0x1.000004p0f, 0x1.000002p0f, 0 },
		  0, 0x3f800001, 0 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct element e = run(zd_kernels_scalar(), rows[i].before, rows[i].grad, &rows[i].c);
		if (zd_test_bits(e.w) != rows[i].w || zd_test_bits(e.m) != rows[i].m || zd_test_bits(e.v) != rows[i].v)
			fail_msg("%s: w %08x m %08x v %08x", rows[i].why, zd_test_bits(e.w), zd_test_bits(e.m), zd_test_bits(e.v));
	}
}

struct bounded {
	double w, m, v, w_error, m_error, v_error;
};

/*
 * The textbook step in fp64 from the user's parameters, and how far the kernel may be from it.  u = 2^-24 is the relative error of one
 * rounding, of an operation or of a constant; each line of errors adds what the operands bring along, u for each constant and u for
 * each operation, to first order.  The caller adds 1 % for the higher orders (they are below 1e-5) and 2^-120 for flushed results.
 */
static struct bounded model(struct element e, double grad, const struct zd_adam_params *p, uint64_t t, double scale)
{
	const double u = 0x1p-24;
	double w = (double)e.w, g = grad * scale, g_error = 2 * u * fabs(g), w_error = 0;
	double c1 = 1 - pow(p->b1, (double)t), c2 = 1 - pow(p->b2, (double)t);
	struct bounded r;

	if (p->l2) {
		g += p->wd * w;
		g_error += 2 * u * fabs(p->wd * w) + u * fabs(g);
	} else {
		w_error = 2 * u * fabs(p->lr * p->wd * w);
		w -= p->lr * p->wd * w;
		w_error += u * fabs(w);
	}
	r.m = p->b1 * (double)e.m + (1 - p->b1) * g;
	r.m_error = 2 * u * fabs(p->b1 * (double)e.m) + (1 - p->b1) * (g_error + 2 * u * fabs(g)) + u * fabs(r.m);
	r.v = p->b2 * (double)e.v + (1 - p->b2) * g * g;
	r.v_error = 2 * u * p->b2 * (double)e.v + (1 - p->b2) * (2 * fabs(g) * g_error + g_error * g_error + 3 * u * g * g) + u * r.v;
	double root = sqrt(r.v), low = r.v > r.v_error ? sqrt(r.v - r.v_error) : 0, root_error = root - low + u * root;
	double below = sqrt(r.v / c2) + p->eps;
	double below_error = (root_error + 2 * u * root) / sqrt(c2) + u * p->eps + u * below;
	double q = r.m / below, q_error = r.m_error / below + fabs(r.m) * below_error / (below * below) + u * fabs(q);
	r.w = w - p->lr / c1 * q;
	r.w_error = w_error + p->lr / c1 * (q_error + 2 * u * fabs(q)) + u * fabs(r.w);
	return r;
}

static void check_bound(const char *what, double got, double expected, double error)
{
	if (!(fabs(got - expected) <= 1.01 * error + 0x1p-120))
		fail_msg("%s: %a instead of %a: off by %g bounds", what, got, expected, fabs(got - expected) / error);
}

static void test_bound(void **state)
{
	static const struct zd_adam_params params[] = {
		{ 1e-3, 0.01, 0.9, 0.999, 1e-8, 0 }, { 6e-4, 0.1, 0.9, 0.95, 1e-8, 0 },	 { 1e-3, 0.01, 0.9, 0.999, 1e-8, 1 },
		{ 0.1, 0.5, 0.5, 0.75, 1e-3, 1 },    { 3e-4, 0.0, 0.0, 0.999, 1e-12, 0 },
	};
	static const uint64_t steps[] = { 1, 2, 3, 10, 1000, 1000000, (uint64_t)1 << 33 };
	struct values r = { 31 };

	(void)state;
	for (size_t i = 0; i < COUNT(params); i++)
		for (size_t s = 0; s < COUNT(steps); s++) {
			struct zd_adam_consts c;
			double scale = 1.0 / (double)(1 + s);
			zd_adam_consts_init(&c, &params[i], steps[s], scale);
			for (size_t n = 0; n < 3000; n++) {
				struct element e = { zd_test_f32(&r, PATTERN_TRAINING), zd_test_f32(&r, PATTERN_TRAINING), 0 };
				float grad = zd_test_f32(&r, PATTERN_TRAINING), spread = zd_test_f32(&r, PATTERN_TRAINING);
				e.v = spread * spread;
				struct element after = run(zd_kernels_scalar(), e, grad, &c);
				struct bounded b = model(e, (double)grad, &params[i], steps[s], scale);
				check_bound("m", (double)after.m, b.m, b.m_error);
				check_bound("v", (double)after.v, b.v, b.v_error);
				check_bound("w", (double)after.w, b.w, b.w_error);
			}
		}
}

/* The three forms of the gradient give the same step. */
static void test_forms_agree(void **state)
{
	enum { N = 1000 };
	uint16_t a[N], b[N], hi[2][N], lo[2][N];
	float w[N], m[2][N], v[2][N], acc[N];
	const struct zd_kernels *k = zd_kernels_scalar();
	const struct zd_adam_params p = { .lr = 1e-3, .wd = 0.1, .b1 = 0.9, .b2 = 0.99, .eps = 1e-8 };
	struct zd_adam_consts c;
	struct zd_reduce_result result;
	struct values r = { 4 };

	(void)state;
	zd_adam_consts_init(&c, &p, 3, 0.5);
	for (size_t two = 0; two < 2; two++) {
		for (size_t i = 0; i < N; i++) {
			enum pattern pattern = i % 2 ? PATTERN_EDGES : PATTERN_TRAINING;
			a[i] = zd_test_bf16(&r, pattern) & 0xbfff; /* below 2: no sum overflows */
			b[i] = zd_test_bf16(&r, pattern) & 0xbfff;
			w[i] = zd_test_f32(&r, PATTERN_TRAINING);
			m[0][i] = m[1][i] = zd_test_f32(&r, PATTERN_TRAINING);
			v[0][i] = v[1][i] = m[0][i] * m[0][i];
		}
		for (size_t x = 0; x < 2; x++)
			k->split[ZD_CODEC_FP32](hi[x], lo[x], w, N, &result);
		k->acc_set[ZD_CODEC_BF16](acc, a, N, NULL, &result);
		if (two)
			k->acc_add[ZD_CODEC_BF16](acc, b, N, NULL, &result);
		k->adam[ZD_GRAD_FP32](hi[0], lo[0], m[0], v[0], acc, NULL, N, &c, NULL);
		k->adam[two ? ZD_GRAD_BF16_2 : ZD_GRAD_BF16_1](hi[1], lo[1], m[1], v[1], a, two ? b : NULL, N, &c, NULL);
		assert_memory_equal(hi[0], hi[1], sizeof hi[0]);
		assert_memory_equal(lo[0], lo[1], sizeof lo[0]);
		assert_memory_equal(m[0], m[1], sizeof m[0]);
		assert_memory_equal(v[0], v[1], sizeof v[0]);
	}
}

int zd_test_group_adam(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_consts), cmocka_unit_test(test_consts_follow_pow), cmocka_unit_test(test_literals),
		cmocka_unit_test(test_order),  cmocka_unit_test(test_bound),		 cmocka_unit_test(test_forms_agree),
	};
	return cmocka_run_group_tests_name("kernel adam", tests, group_begin, NULL);
}
