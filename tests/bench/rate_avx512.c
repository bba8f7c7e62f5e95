/* SPDX-License-Identifier: Apache-2.0 */
#include <immintrin.h>

#include "tests/bench/rate.h"

#define ALWAYS static inline __attribute__((always_inline))

struct vec {
	__m512 x;
};

struct line {
	__m512i x;
};

ALWAYS struct vec vec_load(const float *p)
{
	return (struct vec){ _mm512_load_ps(p) };
}

ALWAYS void vec_store(float *p, struct vec x)
{
	_mm512_store_ps(p, x.x);
}

ALWAYS struct vec vec_set1(float x)
{
	return (struct vec){ _mm512_set1_ps(x) };
}

ALWAYS struct vec vec_add(struct vec x, struct vec y)
{
	return (struct vec){ _mm512_add_ps(x.x, y.x) };
}

ALWAYS struct vec vec_mul(struct vec x, struct vec y)
{
	return (struct vec){ _mm512_mul_ps(x.x, y.x) };
}

ALWAYS struct vec vec_div(struct vec x, struct vec y)
{
	return (struct vec){ _mm512_div_ps(x.x, y.x) };
}

ALWAYS struct vec vec_sqrt(struct vec x)
{
	return (struct vec){ _mm512_sqrt_ps(x.x) };
}

ALWAYS struct vec vec_fma(struct vec x, struct vec y, struct vec z)
{
	return (struct vec){ _mm512_fmadd_ps(x.x, y.x, z.x) };
}

ALWAYS struct vec vec_bf16(const uint16_t *p)
{
	return (struct vec){ _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_load_si256((const __m256i *)p)), 16)) };
}

/* In integers: memory decides the speed, and AVX512-BF16 is not needed. */
ALWAYS __m256i narrow(__m512 x)
{
	__m512i u = _mm512_castps_si512(x);
	__m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));

	return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16));
}

ALWAYS void bf16_stream(uint16_t *out, struct vec x, struct vec y)
{
	_mm512_stream_si512((__m512i *)out, _mm512_inserti64x4(_mm512_castsi256_si512(narrow(x.x)), narrow(y.x), 1));
}

ALWAYS struct line line_zero(void)
{
	return (struct line){ _mm512_setzero_si512() };
}

ALWAYS struct line line_load(const void *p)
{
	return (struct line){ _mm512_load_si512(p) };
}

ALWAYS void line_store(void *p, struct line x)
{
	_mm512_store_si512(p, x.x);
}

ALWAYS struct line line_xor(struct line x, struct line y)
{
	return (struct line){ _mm512_xor_si512(x.x, y.x) };
}

ALWAYS struct line line_add16(struct line x, struct line y)
{
	return (struct line){ _mm512_add_epi16(x.x, y.x) };
}

ALWAYS uint64_t line_sum(struct line x)
{
	return (uint64_t)_mm512_reduce_add_epi64(x.x);
}

#include "tests/bench/rate_vector.h"

const struct zd_rate zd_rate_avx512 = RATE_TABLE(avx512);
