/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The measurements, one function each; main.c has the table.  All run in one process, the conductor, which sleeps while actors work.
 */
#ifndef ZD_BENCH_BENCH_H
#define ZD_BENCH_BENCH_H

#include <stddef.h>
#include <stdint.h>

struct zd_bench {
	const char *zerod; /* the daemon's program */
	const char *unchecked; /* the same that serves without checksums */
	int pin;	   /* server on processor 0, workers on 1 */
	int quick;	   /* smaller and fewer */
	size_t params;	   /* of a step */
	uint32_t rounds;   /* of baseline and product in turns */
	uint32_t workers, lanes; /* only cases with so many; 0: all */
};

/* Processors of the two sides: -1 unless pinned. */
static inline int zd_bench_server_cpu(const struct zd_bench *b) { return b->pin ? 0 : -1; }
static inline int zd_bench_worker_cpu(const struct zd_bench *b) { return b->pin ? 1 : -1; }

/* Baselines alone. */
void zd_bench_crc(const struct zd_bench *b);
void zd_bench_stream(const struct zd_bench *b);
void zd_bench_minimal(const struct zd_bench *b);
void zd_bench_update(const struct zd_bench *b);

/* The product. */
void zd_bench_step(const struct zd_bench *b);
void zd_bench_push(const struct zd_bench *b);
void zd_bench_adam(const struct zd_bench *b);
void zd_bench_checksum(const struct zd_bench *b);
void zd_bench_wire(const struct zd_bench *b);

#endif
