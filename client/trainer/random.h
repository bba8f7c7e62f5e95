/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random numbers by counter: the n-th number of a stream is a function of (stream, n), so any of them can be had without
 * those before it, on any machine. Not for secrets. Pure; any thread.
 *
 * The mixer is the finalizer of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
 */
#ifndef ZD_TRAINER_RANDOM_H
#define ZD_TRAINER_RANDOM_H

#include <stdint.h>

static inline uint64_t zd_random_mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

/* The n-th of a stream, uniform over 64 bits. */
static inline uint64_t zd_random_at(uint64_t stream, uint64_t n)
{
	return zd_random_mix(stream + (n + 1) * 0x9e3779b97f4a7c15u);
}

/* One stream of many that a seed has; those of different numbers have nothing to do with each other. */
static inline uint64_t zd_random_stream(uint64_t seed, uint64_t number)
{
	return zd_random_mix(zd_random_at(seed, 0) ^ zd_random_mix(number + 0x9e3779b97f4a7c15u));
}

/* The n-th of a stream, in 0 .. bound - 1, bound at least 1; no value is likelier than another by more than bound / 2^64. */
static inline uint64_t zd_random_below(uint64_t stream, uint64_t n, uint64_t bound)
{
	return (uint64_t)((unsigned __int128)zd_random_at(stream, n) * bound >> 64);
}

/* The n-th of a stream, in [0, 1), a multiple of 2^-53. */
static inline double zd_random_unit(uint64_t stream, uint64_t n)
{
	return (double)(zd_random_at(stream, n) >> 11) * 0x1p-53;
}

#endif
