/* SPDX-License-Identifier: Apache-2.0 */
/* Per-step constants of the optimizer. */
#include <math.h>

#include "server/kernel/kernel.h"

/* hi + lo, |lo| at most half an ulp of hi: about 106 bits */
struct pair {
	double hi, lo;
};

/* The upper 26 bits of x (Veltkamp); the rest, x - upper, fits 26 bits as well, so products of such halves are exact. */
static double upper_half(double x)
{
	double scaled = 134217729.0 * x; /* 2^27 + 1 */
	return scaled - (scaled - x);
}

/* Dekker's product.  Not by fma(): where the CPU lacks it, libm's stand-in touches the state of the FPU. */
static struct pair pair_mul(struct pair a, struct pair b)
{
	double au = upper_half(a.hi), al = a.hi - au, bu = upper_half(b.hi), bl = b.hi - bu;
	double p = a.hi * b.hi;
	double error = ((au * bu - p) + au * bl + al * bu) + al * bl;
	error = error + (a.hi * b.lo + a.lo * b.hi);
	double hi = p + error;
	return (struct pair){ hi, error - (hi - p) };
}

/*
 * 1 - b^t.  Not by pow(): its last bit differs between releases of libm, and within one release between CPUs with and without FMA,
 * which would let two hosts of one job disagree.  Squaring in double-double errs by less than t * 2^-100, so the result is within an
 * ulp for every t that a training run can reach.
 */
static double one_minus_power(double b, uint64_t t)
{
	struct pair power = { 1.0, 0.0 }, square = { b, 0.0 };

	for (; t > 0; t >>= 1) {
		if (t & 1)
			power = pair_mul(power, square);
		square = pair_mul(square, square);
	}
	return (1.0 - power.hi) - power.lo;
}

void zd_adam_consts_init(struct zd_adam_consts *consts, const struct zd_adam_params *params, uint64_t t, double scale)
{
	double correct1 = one_minus_power(params->b1, t), correct2 = one_minus_power(params->b2, t);

	*consts = (struct zd_adam_consts){
		.scale = (float)scale,
		.b1 = (float)params->b1,
		.b2 = (float)params->b2,
		.omb1 = (float)(1.0 - params->b1),
		.omb2 = (float)(1.0 - params->b2),
		.rbc2 = (float)(1.0 / sqrt(correct2)),
		.eps = (float)params->eps,
		.step = (float)(params->lr / correct1),
		.lrwd = (float)(params->lr * params->wd),
		.wd = (float)params->wd,
		.l2 = params->l2 != 0,
	};
}
