/* SPDX-License-Identifier: Apache-2.0 */
/* Per-step constants of the optimizer. */
#include <math.h>

#include "server/kernel/kernel.h"

/*
 * 1 - b^t by squaring.  Not by pow(): its last bit differs between releases of libm, and within one release between CPUs with and
 * without FMA, which would let two hosts of one job disagree.  The result errs by t * b^t * 2^-53 at most, so relative to 1 - b^t by
 * 2^-53 / (1-b): for b = 0.9999 that is 2e-5 of half an ulp of the fp32 constant made from it.
 */
static double one_minus_power(double b, uint64_t t)
{
	double power = 1.0;

	for (double square = b; t > 0; t >>= 1, square *= square)
		if (t & 1)
			power *= square;
	return 1.0 - power;
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
