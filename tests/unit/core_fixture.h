/* SPDX-License-Identifier: Apache-2.0 */
/* A job of one small unit, for tests of its rounds.  Included by each of them once. */
#ifndef ZD_TEST_CORE_FIXTURE_H
#define ZD_TEST_CORE_FIXTURE_H

#include "core_harness.h"

#define N 9000 /* elements of the only unit: extents of 4096, 4096 and 808 */
#define LAST (N - 2 * 4096)

static const int64_t sizes[] = {N};

static inline struct hz_who who(uint64_t epoch, uint32_t attempt, uint32_t rank, uint32_t world)
{
	return (struct hz_who){.epoch = epoch, .attempt = attempt, .rank = rank, .world = world};
}

/* A sealed job; ranks 0..world-1 of ballot (1, 0) on slots 0..world-1. */
static inline struct hz *up(uint32_t world)
{
	struct hz *h = hz_new(28, 4u << 20);

	hz_spec(h, "job", ZD_OPT_ADAMW, ZD_CODEC_BF16, 4096, 1, sizes);
	for (uint32_t r = 0; r < world; r++) {
		hz_connect(h, r, ZD_ROLE_WORKER);
		hz_open(h, r, 1);
		hz_join(h, r, who(1, 0, r, world));
	}
	hz_load_all(h, 0, 3);
	return h;
}

/* Of round 1 and its only micro-batch. */
static inline struct hz_push push(uint32_t rank, uint32_t extent)
{
	return (struct hz_push){1, 0, 1, rank, 0, 0, 1, extent * 4096u, extent == 2 ? LAST : 4096};
}

#endif
