/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pure in-place update: T threads walk the planes of a split master (hi, lo, m, v and a bf16 gradient, 26 bytes an element) as fast as
 * memory allows and compute next to nothing.  What Adam over a shard in RAM could at best take.
 */
#ifndef ZD_BENCH_INPLACE_H
#define ZD_BENCH_INPLACE_H

#include <stddef.h>
#include <stdint.h>

#include "tests/bench/actor.h"

#define ZD_INPLACE_THREADS_MAX 2

struct zd_inplace {
	uint32_t threads;
	size_t params; /* rounded down to threads times 4096 */
	struct zd_actor actor[ZD_INPLACE_THREADS_MAX]; /* each its own process: they share nothing, as lanes do */
};

void zd_inplace_start(struct zd_inplace *p);
/* Seconds for one pass over all planes, mean of `passes`: the processor time of the slowest. */
double zd_inplace_run(struct zd_inplace *p, uint32_t passes);
void zd_inplace_stop(struct zd_inplace *p);

#endif
