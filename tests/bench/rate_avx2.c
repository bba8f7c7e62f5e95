/* SPDX-License-Identifier: Apache-2.0 */
#include <immintrin.h>

#include "tests/bench/rate.h"

#define ALWAYS static inline __attribute__((always_inline))

struct vec {
	__m256 a, b;
};

struct line {
	__m256i a, b;
};

ALWAYS struct vec vec_load(const float *p)
{
	return (struct vec){ _mm256_load_ps(p), _mm256_load_ps(p + 8) };
}

ALWAYS void vec_store(float *p, struct vec x)
{
	_mm256_store_ps(p, x.a);
	_mm256_store_ps(p + 8, x.b);
}

ALWAYS struct vec vec_set1(float x)
{
	return (struct vec){ _mm256_set1_ps(x), _mm256_set1_ps(x) };
}

ALWAYS struct vec vec_add(struct vec x, struct vec y)
{
	return (struct vec){ _mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b) };
}

ALWAYS struct vec vec_mul(struct vec x, struct vec y)
{
	return (struct vec){ _mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b) };
}

ALWAYS struct vec vec_div(struct vec x, struct vec y)
{
	return (struct vec){ _mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b) };
}

ALWAYS struct vec vec_sqrt(struct vec x)
{
	return (struct vec){ _mm256_sqrt_ps(x.a), _mm256_sqrt_ps(x.b) };
}

ALWAYS struct vec vec_fma(struct vec x, struct vec y, struct vec z)
{
	return (struct vec){ _mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b) };
}

ALWAYS __m256 eight_bf16(const uint16_t *p)
{
	return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_load_si128((const __m128i *)p)), 16));
}

ALWAYS struct vec vec_bf16(const uint16_t *p)
{
	return (struct vec){ eight_bf16(p), eight_bf16(p + 8) };
}

/* bf16 in the low half of each 32 bits */
ALWAYS __m256i narrow(__m256 x)
{
	__m256i u = _mm256_castps_si256(x);
	__m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));

	return _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
}

ALWAYS void sixteen_stream(uint16_t *out, struct vec x)
{
	/* Packing works within 128-bit lanes: the middle quarters change places. */
	__m256i p = _mm256_permute4x64_epi64(_mm256_packus_epi32(narrow(x.a), narrow(x.b)), 0xd8);

	_mm256_stream_si256((__m256i *)out, p);
}

ALWAYS void bf16_stream(uint16_t *out, struct vec x, struct vec y)
{
	sixteen_stream(out, x);
	sixteen_stream(out + 16, y);
}

ALWAYS struct line line_zero(void)
{
	return (struct line){ _mm256_setzero_si256(), _mm256_setzero_si256() };
}

ALWAYS struct line line_load(const void *p)
{
	return (struct line){ _mm256_load_si256((const __m256i *)p), _mm256_load_si256((const __m256i *)p + 1) };
}

ALWAYS void line_store(void *p, struct line x)
{
	_mm256_store_si256((__m256i *)p, x.a);
	_mm256_store_si256((__m256i *)p + 1, x.b);
}

ALWAYS struct line line_xor(struct line x, struct line y)
{
	return (struct line){ _mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b) };
}

ALWAYS struct line line_add16(struct line x, struct line y)
{
	return (struct line){ _mm256_add_epi16(x.a, y.a), _mm256_add_epi16(x.b, y.b) };
}

ALWAYS uint64_t line_sum(struct line x)
{
	uint64_t each[4];

	_mm256_storeu_si256((__m256i *)each, _mm256_xor_si256(x.a, x.b));
	return each[0] + each[1] + each[2] + each[3];
}

#include "tests/bench/rate_vector.h"

const struct zd_rate zd_rate_avx2 = RATE_TABLE(avx2);
