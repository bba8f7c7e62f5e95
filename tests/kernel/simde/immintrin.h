/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands before the compiler's <immintrin.h> when avx512.c is built a second time for the tests, so that its intrinsics run on a CPU
 * without AVX-512: through SIMDe, and, where the oldest supported SIMDe (0.7.4-rc2) lacks one, through a loop over its elements here.
 * The 256-bit instructions stay native: the build has -mavx2 -mf16c.
 */
#ifndef ZD_TESTS_KERNEL_SIMDE_IMMINTRIN_H
#define ZD_TESTS_KERNEL_SIMDE_IMMINTRIN_H

#include_next <immintrin.h>

/* Keeps SIMDe (0.8.2, Debian 13) from a typedef of its own, which clang's contradicts. */
#define __mmask64 __mmask64

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

#include <stdint.h>
#include <string.h>

static inline __m512i shim_cvtepu16_epi32(__m256i a)
{
	uint16_t in[16];
	uint32_t out[16];
	memcpy(in, &a, sizeof in);
	for (int i = 0; i < 16; i++)
		out[i] = in[i];
	return _mm512_loadu_si512(out);
}
#undef _mm512_cvtepu16_epi32
#define _mm512_cvtepu16_epi32(a) shim_cvtepu16_epi32(a)

static inline __m512i shim_cvtepi16_epi32(__m256i a)
{
	int16_t in[16];
	int32_t out[16];
	memcpy(in, &a, sizeof in);
	for (int i = 0; i < 16; i++)
		out[i] = in[i];
	return _mm512_loadu_si512(out);
}
#undef _mm512_cvtepi16_epi32
#define _mm512_cvtepi16_epi32(a) shim_cvtepi16_epi32(a)

static inline __m256i shim_cvtepi32_epi16(__m512i a)
{
	uint32_t in[16];
	uint16_t out[16];
	_mm512_storeu_si512(in, a);
	for (int i = 0; i < 16; i++)
		out[i] = (uint16_t)in[i];
	return _mm256_loadu_si256((const __m256i *)(const void *)out);
}
#undef _mm512_cvtepi32_epi16
#define _mm512_cvtepi32_epi16(a) shim_cvtepi32_epi16(a)

static inline __m512 shim_cvtph_ps(__m256i a)
{
	float out[16];
	_mm256_storeu_ps(out, _mm256_cvtph_ps(_mm256_castsi256_si128(a)));
	_mm256_storeu_ps(out + 8, _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1)));
	return _mm512_loadu_ps(out);
}
#undef _mm512_cvtph_ps
#define _mm512_cvtph_ps(a) shim_cvtph_ps(a)

static inline __m512d shim_cvtps_pd(__m256 a)
{
	float in[8];
	double out[8];
	_mm256_storeu_ps(in, a);
	for (int i = 0; i < 8; i++)
		out[i] = (double)in[i];
	return _mm512_loadu_pd(out);
}
#undef _mm512_cvtps_pd
#define _mm512_cvtps_pd(a) shim_cvtps_pd(a)

static inline __m256 shim_extractf32x8_ps(__m512 a, int which)
{
	float in[16];
	_mm512_storeu_ps(in, a);
	return _mm256_loadu_ps(in + 8 * which);
}
#undef _mm512_extractf32x8_ps
#define _mm512_extractf32x8_ps(a, which) shim_extractf32x8_ps(a, which)

#endif
