/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that a seed repeats (splitmix64: Steele, Lea, Flood 2014). */
#ifndef ZD_TESTS_RNG_H
#define ZD_TESTS_RNG_H

#include <stdint.h>

struct zd_rng {
	uint64_t state;
};

static inline uint64_t zd_rng_next(struct zd_rng *r)
{
	uint64_t z = r->state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* 0 .. n - 1, n > 0; the bias is below n / 2^64. */
static inline uint64_t zd_rng_below(struct zd_rng *r, uint64_t n)
{
	return zd_rng_next(r) % n;
}

#endif
