/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/rate.h"

#include <math.h>

const struct zd_rate *zd_rate_select(void)
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
