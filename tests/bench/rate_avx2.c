/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/rate.h"

#include <immintrin.h>

/* About the latency of memory times the rate of one core; 512 to 2048 measure alike. */
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

static inline __m256 widen(const uint16_t *p)
{
	return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_load_si128((const __m128i *)p)), 16));
}

/* bf16 in the low half of each 32 bits, to nearest even; not for NaN. */
static inline __m256i narrow(__m256 x)
{
	__m256i u = _mm256_castps_si256(x);
	__m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));

	return _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
}

struct consts {
	__m256 b1, omb1, b2, omb2, rbc2, eps, step, decay, mean;
};

static inline __m256i step8(float *w, float *m, float *v, __m256 g, const struct consts *c)
{
	__m256 mm = _mm256_fmadd_ps(g, c->omb1, _mm256_mul_ps(_mm256_load_ps(m), c->b1));
	__m256 vv = _mm256_fmadd_ps(_mm256_mul_ps(g, g), c->omb2, _mm256_mul_ps(_mm256_load_ps(v), c->b2));
	__m256 d = _mm256_fmadd_ps(_mm256_sqrt_ps(vv), c->rbc2, c->eps);
	__m256 ww = _mm256_fmadd_ps(_mm256_div_ps(mm, d), c->step, _mm256_mul_ps(_mm256_load_ps(w), c->decay));

	_mm256_store_ps(m, mm);
	_mm256_store_ps(v, vv);
	_mm256_store_ps(w, ww);
	return narrow(ww);
}

/* Expanded for each constant number of workers, so that one worker costs neither loop nor scaling. */
static inline __attribute__((always_inline)) void step_k(float *w, float *m, float *v, const uint16_t *const *grads, const uint32_t workers,
							 uint16_t *out, size_t n, const struct zd_rate_consts *rc)
{
	const struct consts c = { _mm256_set1_ps(rc->b1), _mm256_set1_ps(rc->omb1), _mm256_set1_ps(rc->b2), _mm256_set1_ps(rc->omb2),
				  _mm256_set1_ps(rc->rbc2), _mm256_set1_ps(rc->eps), _mm256_set1_ps(rc->step), _mm256_set1_ps(rc->decay),
				  _mm256_set1_ps(rc->mean) };

	for (size_t i = 0; i < n; i += 32) {
		__m256i x[4];

		for (size_t k = 0; k < 32; k += 16) {
			ahead(w + i + k);
			ahead(m + i + k);
			ahead(v + i + k);
		}
		for (size_t k = 0; k < 4; k++) {
			size_t j = i + 8 * k;
			__m256 g = widen(grads[0] + j);

			for (uint32_t q = 1; q < workers; q++)
				g = _mm256_add_ps(g, widen(grads[q] + j));
			if (workers > 1)
				g = _mm256_mul_ps(g, c.mean);
			x[k] = step8(w + j, m + j, v + j, g, &c);
		}
		for (size_t k = 0; k < 2; k++) {
			__m256i p = _mm256_permute4x64_epi64(_mm256_packus_epi32(x[2 * k], x[2 * k + 1]), 0xd8);

			_mm256_stream_si256((__m256i *)(out + i + 16 * k), p);
		}
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
	const __m256 one = _mm256_set1_ps(1.0f);

	for (size_t i = 0; i < n; i += 32) {
		ahead_by(hi + i, distance);
		ahead_by(lo + i, distance);
		ahead_by(grad + i, distance);
		for (size_t k = 0; k < 32; k += 16) {
			ahead_by(m + i + k, distance);
			ahead_by(v + i + k, distance);
			__m256i g = _mm256_load_si256((const __m256i *)(grad + i + k));
			__m256i *h = (__m256i *)(hi + i + k), *l = (__m256i *)(lo + i + k);

			_mm256_store_si256(h, _mm256_xor_si256(_mm256_load_si256(h), g));
			_mm256_store_si256(l, _mm256_add_epi16(_mm256_load_si256(l), g));
		}
		for (size_t k = 0; k < 32; k += 8) {
			_mm256_store_ps(m + i + k, _mm256_add_ps(_mm256_load_ps(m + i + k), one));
			_mm256_store_ps(v + i + k, _mm256_add_ps(_mm256_load_ps(v + i + k), one));
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
	__m256i s[4] = { _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256() };
	const char *q = p;

	for (size_t i = 0; i < bytes; i += 128) {
		ahead(q + i);
		ahead(q + i + 64);
		for (size_t k = 0; k < 4; k++)
			s[k] = _mm256_xor_si256(s[k], _mm256_load_si256((const __m256i *)(q + i + 32 * k)));
	}
	s[0] = _mm256_xor_si256(_mm256_xor_si256(s[0], s[1]), _mm256_xor_si256(s[2], s[3]));
	return (uint64_t)_mm256_extract_epi64(s[0], 0);
}

const struct zd_rate zd_rate_avx2 = { "avx2", step, { update_none, update_512, update_1024 }, read_all };
