/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loops that run at the speed of memory: what the product is measured against.  One file per instruction set, chosen at run time.  Every
 * pointer is aligned to 64 bytes, every n a multiple of 64; inputs are finite.  Written for speed alone: nothing here is exact, the
 * compiler may contract.
 */
#ifndef ZD_BENCH_RATE_H
#define ZD_BENCH_RATE_H

#include <stddef.h>
#include <stdint.h>

#define ZD_RATE_WORKERS_MAX 4

struct zd_rate_consts {
	float b1, omb1, b2, omb2;
	float rbc2; /* 1/sqrt(1-b2^t) */
	float eps;
	float step;  /* -lr/(1-b1^t) */
	float decay; /* 1-lr*wd */
	float mean;  /* 1/workers */
};

/* Bytes of zd_rate.update per element: hi, lo, m and v read and written, a bf16 gradient read. */
#define ZD_RATE_UPDATE_BYTES 26
/* Its variants: no prefetch, 512 bytes ahead, 1 KiB ahead. */
#define ZD_RATE_UPDATES 3

struct zd_rate {
	const char *name;

	/* The whole step of the smallest shard server: the mean of `workers` bf16 gradients, AdamW over fp32 master, m and v in place, the
	 * new weights as bf16.  28 bytes an element with one worker, 2 more for each other. */
	void (*step)(float *w, float *m, float *v, const uint16_t *const *grads, uint32_t workers, uint16_t *out, size_t n,
		     const struct zd_rate_consts *consts);

	/* Reads and rewrites the planes of a split master with as little arithmetic as a store needs.  Which prefetch distance is fastest
	 * depends on the processor (on some, none): whoever wants the limit tries all. */
	void (*update[ZD_RATE_UPDATES])(uint16_t *hi, uint16_t *lo, float *m, float *v, const uint16_t *grad, size_t n);

	/* Reads `bytes` bytes. */
	uint64_t (*read)(const void *p, size_t bytes);
};

extern const struct zd_rate zd_rate_plain;
#if defined(__x86_64__)
extern const struct zd_rate zd_rate_avx2;
extern const struct zd_rate zd_rate_avx512;
#endif

/* The best that this processor runs.  Its step was compared with the plain one; the program ends if they disagree, because a baseline
 * that computes something else measures nothing. */
const struct zd_rate *zd_rate_select(void);

struct zd_rate_consts zd_rate_consts(uint32_t workers);

#endif
