/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions of the slab: one for the receive windows, one for each job.  First fit by address; the table holds what is taken, so that
 * gaps that touch are one gap by construction.  Regions start at multiples of a page.
 *
 * Owns nothing: the slab's memory is its caller's.  Thread: the core's.
 */
#ifndef ZD_CORE_SLAB_H
#define ZD_CORE_SLAB_H

#include <stddef.h>
#include <stdint.h>

#include "proto/limits.h"

#define ZD_SLAB_PAGE 4096u
#define ZD_SLAB_REGIONS_MAX (2u * ZD_JOBS_MAX + 1u) /* jobs, jobs whose memory is not back yet, windows */

struct zd_slab {
	uint8_t *base;
	uint64_t size, used;
	uint32_t count;
	struct {
		uint64_t at, len;
	} region[ZD_SLAB_REGIONS_MAX]; /* by address */
};

void zd_slab_init(struct zd_slab *s, void *base, uint64_t size);
/* NULL if no gap is large enough or the table is full.  len > 0; it is rounded up to pages. */
void *zd_slab_take(struct zd_slab *s, uint64_t len);
/* base: what take returned.  Returns the bytes that became free. */
uint64_t zd_slab_back(struct zd_slab *s, void *base);
uint64_t zd_slab_largest(const struct zd_slab *s);

#endif
