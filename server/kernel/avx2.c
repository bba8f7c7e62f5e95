/* SPDX-License-Identifier: Apache-2.0 */
/* The AVX2 variant: what vector.h needs, in pairs of 256-bit registers.  Built with -mavx2 -mf16c -mfma; contraction is off, so FMA
 * is used only where it says so. */
#include <immintrin.h>

#include "server/kernel/element.h"
#include "server/kernel/tables.h"

#define ALWAYS static inline __attribute__((always_inline))

struct vec {
	__m256 a, b; /* elements 0..7 and 8..15 */
};

/* Four members, not an array: gcc 12 keeps an array in memory and waits for it at each addition. */
struct squares {
	__m256d s0, s4, s8, s12;
};

struct peak {
	__m256i top;
};

ALWAYS struct vec vec_load(const float *p)
{
	return (struct vec){ _mm256_loadu_ps(p), _mm256_loadu_ps(p + 8) };
}

ALWAYS void vec_store(float *p, struct vec x)
{
	_mm256_storeu_ps(p, x.a);
	_mm256_storeu_ps(p + 8, x.b);
}

/* Each 128-bit half takes its four out of a copy of all eight and puts zeros below them: one shuffle, where widening and shifting are two steps. */
ALWAYS __m256 eight_bf16(const uint16_t *p)
{
	const __m256i apart = _mm256_setr_epi8(-1, -1, 0, 1, -1, -1, 2, 3, -1, -1, 4, 5, -1, -1, 6, 7,
					       -1, -1, 8, 9, -1, -1, 10, 11, -1, -1, 12, 13, -1, -1, 14, 15);
	return _mm256_castsi256_ps(_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p)), apart));
}

ALWAYS struct vec vec_bf16(const uint16_t *p)
{
	return (struct vec){ eight_bf16(p), eight_bf16(p + 8) };
}

ALWAYS struct vec vec_fp16(const uint16_t *p)
{
	return (struct vec){ _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
			     _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8))) };
}

ALWAYS struct vec vec_set1(float x)
{
	return (struct vec){ _mm256_set1_ps(x), _mm256_set1_ps(x) };
}

ALWAYS struct vec vec_add(struct vec x, struct vec y)
{
	return (struct vec){ _mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b) };
}

ALWAYS struct vec vec_sub(struct vec x, struct vec y)
{
	return (struct vec){ _mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b) };
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

ALWAYS __m256 eight_sum(__m256 x, __m256 y)
{
	__m256 sum = _mm256_add_ps(x, y);
	__m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32((int)ZD_QUIET_NAN));
	return _mm256_blendv_ps(sum, nan, _mm256_cmp_ps(sum, sum, _CMP_UNORD_Q));
}

ALWAYS struct vec vec_sum(struct vec x, struct vec y)
{
	return (struct vec){ eight_sum(x.a, y.a), eight_sum(x.b, y.b) };
}

/* The instructions that interleave and part work within 128-bit halves of a register.  Apart: elements 0..3 and 8..11, then 4..7 and 12..15, as
 * they come out of these instructions and go back into them. */
ALWAYS __m256 eight_apart(const float *p)
{
	return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(p + 8), 1);
}

ALWAYS struct vec vec_load_apart(const float *p)
{
	return (struct vec){ eight_apart(p), eight_apart(p + 4) };
}

/* The borrow of the signed low half goes into the high half while both are still 16 bits wide; then they interleave. */
ALWAYS struct vec master_join(__m256i h, __m256i l)
{
	return (struct vec){ _mm256_castsi256_ps(_mm256_unpacklo_epi16(l, h)), _mm256_castsi256_ps(_mm256_unpackhi_epi16(l, h)) };
}

ALWAYS __m256i master_high(__m256i h, __m256i l)
{
	return _mm256_add_epi16(h, _mm256_srai_epi16(l, 15));
}

ALWAYS struct vec master_load_apart(const uint16_t *hi, const uint16_t *lo)
{
	__m256i h = _mm256_loadu_si256((const __m256i *)hi), l = _mm256_loadu_si256((const __m256i *)lo);

	return master_join(master_high(h, l), l);
}

/* In order: the middle quarters change places first. */
ALWAYS struct vec master_load(const uint16_t *hi, const uint16_t *lo)
{
	__m256i h = _mm256_loadu_si256((const __m256i *)hi), l = _mm256_loadu_si256((const __m256i *)lo);

	return master_join(_mm256_permute4x64_epi64(master_high(h, l), 0xd8), _mm256_permute4x64_epi64(l, 0xd8));
}

struct halves {
	__m256i h, l;
};

ALWAYS struct halves master_part(struct vec w)
{
	const __m256i part = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15,
					      0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
	__m256i a = _mm256_shuffle_epi8(_mm256_castps_si256(w.a), part), b = _mm256_shuffle_epi8(_mm256_castps_si256(w.b), part);
	__m256i l = _mm256_unpacklo_epi64(a, b), h = _mm256_unpackhi_epi64(a, b);

	return (struct halves){ _mm256_add_epi16(h, _mm256_srli_epi16(l, 15)), l };
}

ALWAYS void master_store_apart(uint16_t *hi, uint16_t *lo, struct vec w)
{
	struct halves x = master_part(w);

	_mm256_storeu_si256((__m256i *)hi, x.h);
	_mm256_storeu_si256((__m256i *)lo, x.l);
}

ALWAYS void master_store(uint16_t *hi, uint16_t *lo, struct vec w)
{
	struct halves x = master_part(w);

	_mm256_storeu_si256((__m256i *)hi, _mm256_permute4x64_epi64(x.h, 0xd8));
	_mm256_storeu_si256((__m256i *)lo, _mm256_permute4x64_epi64(x.l, 0xd8));
}

ALWAYS struct squares squares_zero(void)
{
	__m256d zero = _mm256_setzero_pd();
	return (struct squares){ zero, zero, zero, zero };
}

/* The product of two fp32 numbers is exact in fp64: a fused multiply-add rounds as the separate ones do. */
ALWAYS __m256d four_squares(__m256d sum, __m128 x)
{
	__m256d e = _mm256_cvtps_pd(x);
	return _mm256_fmadd_pd(e, e, sum);
}

ALWAYS struct squares squares_add(struct squares q, struct vec x)
{
	return (struct squares){
		four_squares(q.s0, _mm256_castps256_ps128(x.a)),
		four_squares(q.s4, _mm256_extractf128_ps(x.a, 1)),
		four_squares(q.s8, _mm256_castps256_ps128(x.b)),
		four_squares(q.s12, _mm256_extractf128_ps(x.b, 1)),
	};
}

/* Four elements at a time from the start: interleaving zeros below them costs half of widening eight and taking them apart. */
ALWAYS struct squares squares_add_bf16(struct squares q, const uint16_t *a, const uint16_t *b, int two)
{
	const __m128i zero = _mm_setzero_si128();
	__m128i low = _mm_loadu_si128((const __m128i *)a), high = _mm_loadu_si128((const __m128i *)(a + 8));
	__m128 x0 = _mm_castsi128_ps(_mm_unpacklo_epi16(zero, low)), x4 = _mm_castsi128_ps(_mm_unpackhi_epi16(zero, low));
	__m128 x8 = _mm_castsi128_ps(_mm_unpacklo_epi16(zero, high)), x12 = _mm_castsi128_ps(_mm_unpackhi_epi16(zero, high));

	if (two) {
		low = _mm_loadu_si128((const __m128i *)b);
		high = _mm_loadu_si128((const __m128i *)(b + 8));
		x0 = _mm_add_ps(x0, _mm_castsi128_ps(_mm_unpacklo_epi16(zero, low)));
		x4 = _mm_add_ps(x4, _mm_castsi128_ps(_mm_unpackhi_epi16(zero, low)));
		x8 = _mm_add_ps(x8, _mm_castsi128_ps(_mm_unpacklo_epi16(zero, high)));
		x12 = _mm_add_ps(x12, _mm_castsi128_ps(_mm_unpackhi_epi16(zero, high)));
	}
	return (struct squares){ four_squares(q.s0, x0), four_squares(q.s4, x4), four_squares(q.s8, x8), four_squares(q.s12, x12) };
}

ALWAYS void squares_store(double *s, struct squares q)
{
	_mm256_storeu_pd(s, q.s0);
	_mm256_storeu_pd(s + 4, q.s4);
	_mm256_storeu_pd(s + 8, q.s8);
	_mm256_storeu_pd(s + 12, q.s12);
}

ALWAYS struct peak peak_zero(void)
{
	return (struct peak){ _mm256_setzero_si256() };
}

ALWAYS struct peak peak_add(struct peak p, struct vec x)
{
	__m256i mask = _mm256_set1_epi32((int)ZD_ABS_MASK);
	__m256i a = _mm256_and_si256(_mm256_castps_si256(x.a), mask), b = _mm256_and_si256(_mm256_castps_si256(x.b), mask);
	return (struct peak){ _mm256_max_epi32(p.top, _mm256_max_epi32(a, b)) };
}

ALWAYS uint32_t peak_max(struct peak p)
{
	uint32_t each[8], top = 0;

	_mm256_storeu_si256((__m256i *)each, p.top);
	for (size_t j = 0; j < 8; j++)
		top = each[j] > top ? each[j] : top;
	return top;
}

/* The units for vectors do all the work of these kernels; those for integers have time for CRC32C. */
#define CRC_BESIDE 1
#include "server/kernel/vector.h"

VECTOR_KERNELS(avx2)

const struct zd_kernels zd_kernels_table_avx2 = {
	.name = "avx2",
#define ZD_KERNELS_AVX2(slot, function) .slot = function,
#include "server/kernel/kernels.def"
};
