/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/wire.h"

#include "proto/assert.h"

#define ALIGNMENT 16u /* what malloc promises: protobuf-c places any type there */

static void *take(void *data, size_t size)
{
	struct zd_arena *a = data;
	size_t skip = (size_t)(-(uintptr_t)(a->base + a->used) & (ALIGNMENT - 1));

	if (skip > a->size - a->used || size > a->size - a->used - skip)
		return NULL;
	a->used += skip + size;
	return a->base + a->used - size;
}

/* Everything goes at once, with the reset. */
static void give(void *data, void *pointer)
{
	(void)data;
	(void)pointer;
}

void zd_arena_init(struct zd_arena *a, void *base, size_t size)
{
	ZD_ASSERT(base != NULL);
	*a = (struct zd_arena){.base = base, .size = size, .allocator = {.alloc = take, .free = give, .allocator_data = a}};
}

void zd_arena_reset(struct zd_arena *a)
{
	a->used = 0;
}
