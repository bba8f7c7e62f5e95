/* SPDX-License-Identifier: Apache-2.0 */
/* The only source of chance in the simulated world: a seed gives one sequence, for ever.  xoshiro256** seeded by splitmix64
 * (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2018; public domain). */
#ifndef ZD_SIM_RNG_H
#define ZD_SIM_RNG_H

#include <stdint.h>

struct sim_rng {
	uint64_t s[4];
};

static inline uint64_t sim_mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static inline void sim_rng_init(struct sim_rng *r, uint64_t seed)
{
	for (int i = 0; i < 4; i++)
		r->s[i] = sim_mix(seed + (uint64_t)i * 0x9e3779b97f4a7c15u);
}

static inline uint64_t sim_rotl(uint64_t x, int k)
{
	return x << k | x >> (64 - k);
}

static inline uint64_t sim_next(struct sim_rng *r)
{
	uint64_t result = sim_rotl(r->s[1] * 5, 7) * 9, t = r->s[1] << 17;

	r->s[2] ^= r->s[0];
	r->s[3] ^= r->s[1];
	r->s[1] ^= r->s[2];
	r->s[0] ^= r->s[3];
	r->s[2] ^= t;
	r->s[3] = sim_rotl(r->s[3], 45);
	return result;
}

/* 0 .. n-1; n > 0.  The bias of the remainder does not matter here. */
static inline uint32_t sim_below(struct sim_rng *r, uint32_t n)
{
	return (uint32_t)((sim_next(r) >> 32) % n);
}

/* first .. last */
static inline uint32_t sim_range(struct sim_rng *r, uint32_t first, uint32_t last)
{
	return first + sim_below(r, last - first + 1);
}

static inline int sim_chance(struct sim_rng *r, uint32_t percent)
{
	return sim_below(r, 100) < percent;
}

#endif
