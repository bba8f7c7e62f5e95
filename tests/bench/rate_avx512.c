/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/rate.h"

#include <immintrin.h>

/* As in rate_avx2.c. */
#define AHEAD 1024

/* Expanded with a constant distance; 0 is none. */
static inline __attribute__((always_inline)) void ahead_by(const void *p, const size_t distance)
{
	if (distance)
		_mm_prefetch((const char *)p + distance, _MM_HINT_T0);
}

static inline void ahead(const void *p)
{
	ahead_by(p, AHEAD);
}

static inline __m512 widen(const uint16_t *p)
{
	return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_load_si256((const __m256i *)p)), 16));
}

/* To nearest even in integers: memory decides the speed, and AVX512-BF16 is not needed. */
static inline __m256i narrow(__m512 x)
{
	__m512i u = _mm512_castps_si512(x);
	__m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));

	return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16));
}

struct consts {
	__m512 b1, omb1, b2, omb2, rbc2, eps, step, decay, mean;
};

static inline __m256i step16(float *w, float *m, float *v, __m512 g, const struct consts *c)
{
	__m512 mm = _mm512_fmadd_ps(g, c->omb1, _mm512_mul_ps(_mm512_load_ps(m), c->b1));
	__m512 vv = _mm512_fmadd_ps(_mm512_mul_ps(g, g), c->omb2, _mm512_mul_ps(_mm512_load_ps(v), c->b2));
	__m512 d = _mm512_fmadd_ps(_mm512_sqrt_ps(vv), c->rbc2, c->eps);
	__m512 ww = _mm512_fmadd_ps(_mm512_div_ps(mm, d), c->step, _mm512_mul_ps(_mm512_load_ps(w), c->decay));

	_mm512_store_ps(m, mm);
	_mm512_store_ps(v, vv);
	_mm512_store_ps(w, ww);
	return narrow(ww);
}

static inline __attribute__((always_inline)) void step_k(float *w, float *m, float *v, const uint16_t *const *grads, const uint32_t workers,
							 uint16_t *out, size_t n, const struct zd_rate_consts *rc)
{
	const struct consts c = { _mm512_set1_ps(rc->b1), _mm512_set1_ps(rc->omb1), _mm512_set1_ps(rc->b2), _mm512_set1_ps(rc->omb2),
				  _mm512_set1_ps(rc->rbc2), _mm512_set1_ps(rc->eps), _mm512_set1_ps(rc->step), _mm512_set1_ps(rc->decay),
				  _mm512_set1_ps(rc->mean) };

	for (size_t i = 0; i < n; i += 32) {
		__m256i x[2];

		for (size_t k = 0; k < 2; k++) {
			size_t j = i + 16 * k;

			ahead(w + j);
			ahead(m + j);
			ahead(v + j);
			__m512 g = widen(grads[0] + j);
			for (uint32_t q = 1; q < workers; q++)
				g = _mm512_add_ps(g, widen(grads[q] + j));
			if (workers > 1)
				g = _mm512_mul_ps(g, c.mean);
			x[k] = step16(w + j, m + j, v + j, g, &c);
		}
		_mm512_stream_si512((__m512i *)(out + i), _mm512_inserti64x4(_mm512_castsi256_si512(x[0]), x[1], 1));
	}
	_mm_sfence();
}

static void step(float *w, float *m, float *v, const uint16_t *const *grads, uint32_t workers, uint16_t *out, size_t n,
		 const struct zd_rate_consts *c)
{
	if (workers == 1)
		step_k(w, m, v, grads, 1, out, n, c);
	else if (workers == 2)
		step_k(w, m, v, grads, 2, out, n, c);
	else
		step_k(w, m, v, grads, workers, out, n, c);
}

static inline __attribute__((always_inline)) void update_ahead(uint16_t *hi, uint16_t *lo, float *m, float *v, const uint16_t *grad, size_t n,
							       const size_t distance)
{
	const __m512 one = _mm512_set1_ps(1.0f);

	for (size_t i = 0; i < n; i += 32) {
		ahead_by(hi + i, distance);
		ahead_by(lo + i, distance);
		ahead_by(grad + i, distance);
		__m512i g = _mm512_load_si512(grad + i);
		_mm512_store_si512(hi + i, _mm512_xor_si512(_mm512_load_si512(hi + i), g));
		_mm512_store_si512(lo + i, _mm512_add_epi16(_mm512_load_si512(lo + i), g));
		for (size_t k = i; k < i + 32; k += 16) {
			ahead_by(m + k, distance);
			ahead_by(v + k, distance);
			_mm512_store_ps(m + k, _mm512_add_ps(_mm512_load_ps(m + k), one));
			_mm512_store_ps(v + k, _mm512_add_ps(_mm512_load_ps(v + k), one));
		}
	}
}

static void update_none(uint16_t *hi, uint16_t *lo, float *m, float *v, const uint16_t *grad, size_t n)
{
	update_ahead(hi, lo, m, v, grad, n, 0);
}

static void update_512(uint16_t *hi, uint16_t *lo, float *m, float *v, const uint16_t *grad, size_t n)
{
	update_ahead(hi, lo, m, v, grad, n, 512);
}

static void update_1024(uint16_t *hi, uint16_t *lo, float *m, float *v, const uint16_t *grad, size_t n)
{
	update_ahead(hi, lo, m, v, grad, n, 1024);
}

static uint64_t read_all(const void *p, size_t bytes)
{
	__m512i s[2] = { _mm512_setzero_si512(), _mm512_setzero_si512() };
	const char *q = p;

	for (size_t i = 0; i < bytes; i += 128)
		for (size_t k = 0; k < 2; k++) {
			ahead(q + i + 64 * k);
			s[k] = _mm512_xor_si512(s[k], _mm512_load_si512(q + i + 64 * k));
		}
	return (uint64_t)_mm512_reduce_add_epi64(_mm512_xor_si512(s[0], s[1]));
}

const struct zd_rate zd_rate_avx512 = { "avx512", step, { update_none, update_512, update_1024 }, read_all };
