/* SPDX-License-Identifier: Apache-2.0 */
/* Which variant runs: chosen once, upward from scalar, by the bits that the CPU and the operating system show. */
#include <immintrin.h>
#include <string.h>

#include "server/kernel/tables.h"

/* DAZ and FTZ on, rounding control 00; the exception masks and flags are not ours */
#define MXCSR_DAZ 0x0040u
#define MXCSR_FTZ 0x8000u
#define MXCSR_ROUNDING 0x6000u

const struct zd_kernels *zd_kernels_scalar(void)
{
	return &zd_kernels_table_scalar;
}

const struct zd_kernels *zd_kernels_avx2(void)
{
	return NULL;
}

const struct zd_kernels *zd_kernels_avx512(void)
{
	return NULL;
}

const struct zd_kernels *zd_kernels_select(const char *mask)
{
	const struct zd_kernels *const upward[] = { zd_kernels_scalar(), zd_kernels_avx2(), zd_kernels_avx512() };
	static const char *const names[] = { "scalar", "avx2", "avx512" };
	const struct zd_kernels *best = NULL;
	size_t last = 2;

	if (mask && mask[0]) {
		for (last = 0; strcmp(mask, names[last]) != 0; last++)
			if (last == 2)
				return NULL;
	}
	for (size_t i = 0; i <= last; i++)
		if (upward[i])
			best = upward[i];
	return best;
}

void zd_kernels_thread_init(void)
{
	_mm_setcsr((_mm_getcsr() & ~MXCSR_ROUNDING) | MXCSR_DAZ | MXCSR_FTZ);
}

int zd_kernels_thread_ok(void)
{
	return (_mm_getcsr() & (MXCSR_ROUNDING | MXCSR_DAZ | MXCSR_FTZ)) == (MXCSR_DAZ | MXCSR_FTZ);
}
