/* SPDX-License-Identifier: Apache-2.0 */
/* Which variant runs: chosen once, upward from scalar, by the bits that the CPU and the operating system show. */
#include <cpuid.h>
#include <immintrin.h>
#include <string.h>

#include "server/kernel/tables.h"

#define XCR0_YMM 0x06u /* the operating system saves xmm and ymm */
#define XCR0_ZMM 0xe6u /* and the mask registers and zmm */

/* DAZ and FTZ on, rounding control 00; the exception masks and flags are not ours */
#define MXCSR_DAZ 0x0040u
#define MXCSR_FTZ 0x8000u
#define MXCSR_ROUNDING 0x6000u

struct cpu {
	unsigned leaf1_ecx, leaf7_ebx, xcr0;
};

static struct cpu cpu_probe(void)
{
	struct cpu cpu = { 0, 0, 0 };
	unsigned eax, ebx, ecx, edx;

	if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & bit_OSXSAVE))
		return cpu;
	cpu.leaf1_ecx = ecx;
	if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx))
		cpu.leaf7_ebx = ebx;
	__asm__ volatile("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
	cpu.xcr0 = eax;
	return cpu;
}

static int has(unsigned word, unsigned bits)
{
	return (word & bits) == bits;
}

static int runs_avx2(struct cpu cpu)
{
	return has(cpu.xcr0, XCR0_YMM) && has(cpu.leaf1_ecx, bit_AVX | bit_F16C | bit_FMA | bit_SSE4_2 | bit_PCLMUL) && has(cpu.leaf7_ebx, bit_AVX2);
}

static int runs_avx512(struct cpu cpu)
{
	return runs_avx2(cpu) && has(cpu.xcr0, XCR0_ZMM) &&
	       has(cpu.leaf7_ebx, bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL);
}

const struct zd_kernels *zd_kernels_scalar(void)
{
	return &zd_kernels_table_scalar;
}

const struct zd_kernels *zd_kernels_avx2(void)
{
	return runs_avx2(cpu_probe()) ? &zd_kernels_table_avx2 : NULL;
}

const struct zd_kernels *zd_kernels_avx512(void)
{
	return runs_avx512(cpu_probe()) ? &zd_kernels_table_avx512 : NULL;
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
