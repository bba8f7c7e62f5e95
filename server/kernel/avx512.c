/* SPDX-License-Identifier: Apache-2.0 */
/* The AVX-512 variant: what vector.h needs, in single 512-bit registers.  Built with -mfma -mavx512f -mavx512bw -mavx512dq -mavx512vl. */
#include <immintrin.h>

#include "server/kernel/element.h"
#include "server/kernel/tables.h"

#define ALWAYS static inline __attribute__((always_inline))

struct vec {
	__m512 a;
};

struct squares {
	__m512d s0, s8;
};

struct peak {
	__m512i top;
};

ALWAYS struct vec vec_load(const float *p)
{
	return (struct vec){ _mm512_loadu_ps(p) };
}

ALWAYS void vec_store(float *p, struct vec x)
{
	_mm512_storeu_ps(p, x.a);
}

ALWAYS struct vec vec_bf16(const uint16_t *p)
{
	__m512i x = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
	return (struct vec){ _mm512_castsi512_ps(_mm512_slli_epi32(x, 16)) };
}

ALWAYS struct vec vec_fp16(const uint16_t *p)
{
	return (struct vec){ _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)) };
}

ALWAYS struct vec vec_set1(float x)
{
	return (struct vec){ _mm512_set1_ps(x) };
}

ALWAYS struct vec vec_add(struct vec x, struct vec y)
{
	return (struct vec){ _mm512_add_ps(x.a, y.a) };
}

ALWAYS struct vec vec_sub(struct vec x, struct vec y)
{
	return (struct vec){ _mm512_sub_ps(x.a, y.a) };
}

ALWAYS struct vec vec_mul(struct vec x, struct vec y)
{
	return (struct vec){ _mm512_mul_ps(x.a, y.a) };
}

ALWAYS struct vec vec_div(struct vec x, struct vec y)
{
	return (struct vec){ _mm512_div_ps(x.a, y.a) };
}

ALWAYS struct vec vec_sqrt(struct vec x)
{
	return (struct vec){ _mm512_sqrt_ps(x.a) };
}

ALWAYS struct vec vec_sum(struct vec x, struct vec y)
{
	__m512 sum = _mm512_add_ps(x.a, y.a);
	__m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32((int)ZD_QUIET_NAN));
	return (struct vec){ _mm512_mask_mov_ps(sum, _mm512_cmp_ps_mask(sum, sum, _CMP_UNORD_Q), nan) };
}

ALWAYS struct vec master_load(const uint16_t *hi, const uint16_t *lo)
{
	__m512i h = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)hi));
	__m512i l = _mm512_cvtepi16_epi32(_mm256_loadu_si256((const __m256i *)lo));
	return (struct vec){ _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(h, 16), l)) };
}

ALWAYS void master_store(uint16_t *hi, uint16_t *lo, struct vec w)
{
	__m512i bits = _mm512_castps_si512(w.a);
	__m512i h = _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x8000)), 16);
	_mm256_storeu_si256((__m256i *)hi, _mm512_cvtepi32_epi16(h));
	_mm256_storeu_si256((__m256i *)lo, _mm512_cvtepi32_epi16(bits));
}

ALWAYS struct squares squares_zero(void)
{
	return (struct squares){ _mm512_setzero_pd(), _mm512_setzero_pd() };
}

/* The product of two fp32 numbers is exact in fp64: a fused multiply-add rounds as the separate ones do. */
ALWAYS __m512d eight_squares(__m512d sum, __m256 x)
{
	__m512d e = _mm512_cvtps_pd(x);
	return _mm512_fmadd_pd(e, e, sum);
}

ALWAYS struct squares squares_add(struct squares q, struct vec x)
{
	return (struct squares){
		eight_squares(q.s0, _mm512_castps512_ps256(x.a)),
		eight_squares(q.s8, _mm512_extractf32x8_ps(x.a, 1)),
	};
}

ALWAYS struct squares squares_add_bf16(struct squares q, const uint16_t *a, const uint16_t *b, int two)
{
	return squares_add(q, two ? vec_add(vec_bf16(a), vec_bf16(b)) : vec_bf16(a));
}

ALWAYS void squares_store(double *s, struct squares q)
{
	_mm512_storeu_pd(s, q.s0);
	_mm512_storeu_pd(s + 8, q.s8);
}

ALWAYS struct peak peak_zero(void)
{
	return (struct peak){ _mm512_setzero_si512() };
}

ALWAYS struct peak peak_add(struct peak p, struct vec x)
{
	__m512i bits = _mm512_and_si512(_mm512_castps_si512(x.a), _mm512_set1_epi32((int)ZD_ABS_MASK));
	return (struct peak){ _mm512_max_epi32(p.top, bits) };
}

ALWAYS uint32_t peak_max(struct peak p)
{
	uint32_t each[16], top = 0;

	_mm512_storeu_si512(each, p.top);
	for (size_t j = 0; j < 16; j++)
		top = each[j] > top ? each[j] : top;
	return top;
}

/* Most processors that run this have VPCLMULQDQ, with which a pass of ISA-L over a block in cache takes less than the `crc32` instructions. */
#define CRC_BESIDE 0

/* Conversions between 16 and 32 bits keep the order here. */
#define vec_load_apart vec_load
#define master_load_apart master_load
#define master_store_apart master_store
#include "server/kernel/vector.h"

VECTOR_KERNELS(avx512)

const struct zd_kernels zd_kernels_table_avx512 = {
	.name = "avx512",
#define ZD_KERNELS_AVX512(slot, function) .slot = function,
#include "server/kernel/kernels.def"
};
