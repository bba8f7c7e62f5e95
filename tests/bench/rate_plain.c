/* SPDX-License-Identifier: Apache-2.0 */
/* For processors without AVX2: left to the compiler's vectoriser. */
#include "tests/bench/rate.h"

#include <math.h>
#include <string.h>

static float widen(uint16_t x)
{
	uint32_t u = (uint32_t)x << 16;
	float f;

	memcpy(&f, &u, sizeof f);
	return f;
}

static uint16_t narrow(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof u);
	return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

static void step(float *restrict w, float *restrict m, float *restrict v, const uint16_t *const *grads, uint32_t workers,
		 uint16_t *restrict out, size_t n, const struct zd_rate_consts *c)
{
	for (size_t i = 0; i < n; i++) {
		float g = widen(grads[0][i]);

		for (uint32_t k = 1; k < workers; k++)
			g += widen(grads[k][i]);
		g *= c->mean;
		m[i] = c->b1 * m[i] + c->omb1 * g;
		v[i] = c->b2 * v[i] + c->omb2 * (g * g);
		w[i] = w[i] * c->decay + c->step * (m[i] / (sqrtf(v[i]) * c->rbc2 + c->eps));
		out[i] = narrow(w[i]);
	}
}

static void update(uint16_t *restrict hi, uint16_t *restrict lo, float *restrict m, float *restrict v, const uint16_t *restrict grad,
		   size_t n)
{
	for (size_t i = 0; i < n; i++) {
		hi[i] = (uint16_t)(hi[i] ^ grad[i]);
		lo[i] = (uint16_t)(lo[i] + 1u);
		m[i] += 1.0f;
		v[i] += 1.0f;
	}
}

static uint64_t read_all(const void *p, size_t bytes)
{
	const uint64_t *q = p;
	uint64_t s = 0;

	for (size_t i = 0; i < bytes / 8; i++)
		s ^= q[i];
	return s;
}

const struct zd_rate zd_rate_plain = { "plain", step, { update, update, update }, read_all };
