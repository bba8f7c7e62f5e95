/* SPDX-License-Identifier: Apache-2.0 */
#include "server/core/slab.h"

#include <string.h>

#include "proto/assert.h"

void zd_slab_init(struct zd_slab *s, void *base, uint64_t size)
{
	ZD_ASSERT((uintptr_t)base % ZD_SLAB_PAGE == 0);
	memset(s, 0, sizeof *s);
	s->base = base;
	s->size = size;
}

/* The gap before region i; i == count: the one behind the last. */
static uint64_t gap(const struct zd_slab *s, uint32_t i, uint64_t *ret_at)
{
	uint64_t from = i > 0 ? s->region[i - 1].at + s->region[i - 1].len : 0;
	uint64_t to = i < s->count ? s->region[i].at : s->size;

	*ret_at = from;
	return to > from ? to - from : 0;
}

void *zd_slab_take(struct zd_slab *s, uint64_t len)
{
	uint64_t at = 0;

	ZD_ASSERT(len > 0);
	if (len > s->size || s->count == ZD_SLAB_REGIONS_MAX)
		return NULL;
	len = (len + ZD_SLAB_PAGE - 1) / ZD_SLAB_PAGE * ZD_SLAB_PAGE;
	for (uint32_t i = 0; i <= s->count; i++) {
		if (gap(s, i, &at) < len)
			continue;
		memmove(&s->region[i + 1], &s->region[i], (s->count - i) * sizeof s->region[0]);
		s->region[i].at = at;
		s->region[i].len = len;
		s->count++;
		s->used += len;
		return s->base + at;
	}
	return NULL;
}

uint64_t zd_slab_back(struct zd_slab *s, void *base)
{
	uint64_t at = (uint64_t)((uint8_t *)base - s->base), len = 0;
	uint32_t i = 0;

	while (i < s->count && s->region[i].at != at)
		i++;
	ZD_ASSERT(i < s->count);
	len = s->region[i].len;
	s->count--;
	s->used -= len;
	memmove(&s->region[i], &s->region[i + 1], (s->count - i) * sizeof s->region[0]);
	return len;
}

uint64_t zd_slab_largest(const struct zd_slab *s)
{
	uint64_t best = 0, at;

	for (uint32_t i = 0; i <= s->count; i++) {
		uint64_t n = gap(s, i, &at);

		best = n > best ? n : best;
	}
	return best;
}
