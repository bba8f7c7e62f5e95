/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/rate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK_ELEMS 256
/* Contracted and separate operations differ by a few roundings of fp32. */
#define CHECK_TOLERANCE 1e-5f

struct check {
	_Alignas(64) float w[CHECK_ELEMS], m[CHECK_ELEMS], v[CHECK_ELEMS];
	_Alignas(64) uint16_t a[CHECK_ELEMS], b[CHECK_ELEMS], out[CHECK_ELEMS];
};

static void check_run(struct check *c, const struct zd_rate *rate)
{
	const uint16_t *grads[2] = { c->a, c->b };
	const struct zd_rate_consts consts = zd_rate_consts(2);

	for (int i = 0; i < CHECK_ELEMS; i++) {
		c->w[i] = 0.01f * (float)(i - CHECK_ELEMS / 2);
		c->m[i] = 1e-4f * (float)(i % 7 - 3);
		c->v[i] = 1e-6f * (float)(i % 11 + 1);
		c->a[i] = (uint16_t)(0x3800 + i);
		c->b[i] = (uint16_t)(0xb800 + i % 64);
	}
	rate->step(c->w, c->m, c->v, grads, 2, c->out, CHECK_ELEMS, &consts);
}

static int close_enough(float x, float y)
{
	return fabsf(x - y) <= CHECK_TOLERANCE * (fabsf(x) + fabsf(y)) + 1e-9f;
}

static void check(const struct zd_rate *rate)
{
	static struct check expected, found;

	check_run(&expected, &zd_rate_plain);
	check_run(&found, rate);
	for (int i = 0; i < CHECK_ELEMS; i++)
		if (!close_enough(expected.w[i], found.w[i]) || !close_enough(expected.m[i], found.m[i]) ||
		    !close_enough(expected.v[i], found.v[i]) || abs(expected.out[i] - found.out[i]) > 1) {
			fprintf(stderr, "the %s baseline is wrong at element %d: w %g, expected %g\n", rate->name, i, (double)found.w[i],
				(double)expected.w[i]);
			exit(1);
		}
}

static const struct zd_rate *best(void)
{
#if defined(__x86_64__)
	__builtin_cpu_init();
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
		return &zd_rate_avx512;
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		return &zd_rate_avx2;
#endif
	return &zd_rate_plain;
}

const struct zd_rate *zd_rate_select(void)
{
	const struct zd_rate *rate = best();

	check(rate);
	return rate;
}

struct zd_rate_consts zd_rate_consts(uint32_t workers)
{
	/* Step 10 of AdamW with the usual betas: which step does not matter for speed. */
	const double lr = 1e-3, wd = 1e-2, b1 = 0.9, b2 = 0.999, t = 10;

	return (struct zd_rate_consts){
		.b1 = (float)b1, .omb1 = (float)(1 - b1), .b2 = (float)b2, .omb2 = (float)(1 - b2),
		.rbc2 = (float)(1 / sqrt(1 - pow(b2, t))), .eps = 1e-8f, .step = (float)(-lr / (1 - pow(b1, t))),
		.decay = (float)(1 - lr * wd), .mean = 1.0f / (float)workers,
	};
}
