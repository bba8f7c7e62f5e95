/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lanes are keys (load, lane) in ascending order.  A unit goes to the first k of them; what that changes are three ascending runs
 * (pieces with one block more, the others, the one with the short block), which are merged with the rest: O(lanes) per unit, so that
 * the largest specification on the most lanes takes some ten milliseconds.
 */
#include "proto/layout.h"

#include <string.h>

#include "proto/assert.h"
#include "proto/limits.h"

/* Load in two-byte steps: a frozen element is 1, a trainable one 8.  ZD_UNITS_MAX units of ZD_NUMEL_MAX elements on one lane are 2^53,
 * which leaves room for the lane's number below it. */
#define LOAD_FROZEN 1u
#define LOAD_TRAINABLE 8u
#define LANE_BITS 10u
#define LANE_MASK ((1u << LANE_BITS) - 1)

_Static_assert(ZD_LANES_MAX <= LANE_MASK + 1, "a lane's number fits its bits");

/* Two ascending runs into one.  `out` may be the memory before `b`, if its end is that of b. */
static void merge(uint64_t *out, const uint64_t *a, uint32_t a_count, const uint64_t *b, uint32_t b_count)
{
	while (a_count > 0) {
		if (b_count > 0 && *b < *a) {
			*out++ = *b++;
			b_count--;
		} else {
			*out++ = *a++;
			a_count--;
		}
	}
	if (out != b)
		memcpy(out, b, b_count * sizeof(*b));
}

/* The first k keys have grown: brings `keys` into order again. */
static void settle(uint64_t *keys, uint32_t lane_count, uint32_t k, uint32_t larger)
{
	uint64_t grown[ZD_LANES_MAX], ordered[ZD_LANES_MAX], last = keys[k - 1];
	uint32_t at = k - 1;

	memcpy(grown, keys, k * sizeof(*keys));
	for (; at > larger && grown[at - 1] > last; at--) /* the short block: it may have grown by less than those before it */
		grown[at] = grown[at - 1];
	grown[at] = last;
	merge(ordered, grown, larger, grown + larger, k - larger);
	merge(keys, ordered, k, keys + k, lane_count - k);
}

/* Places one unit.  stride: of pieces, one per lane; 0: only `lane` is asked for and pieces[0] is its. */
static void place(const struct zd_unit_spec *unit, uint32_t lane_count, uint32_t stride, uint32_t lane, struct zd_piece *pieces,
		  uint64_t *keys)
{
	uint64_t blocks = (unit->numel + ZD_BLOCK_ELEMS - 1) / ZD_BLOCK_ELEMS, first = 0;
	uint64_t wanted = unit->numel / ZD_PIECE_ELEMS_MIN;
	uint32_t k = wanted < 1 ? 1 : wanted > lane_count ? lane_count : (uint32_t)wanted;
	uint32_t larger = (uint32_t)(blocks % k);
	uint64_t weight = unit->frozen ? LOAD_FROZEN : LOAD_TRAINABLE;

	for (uint32_t i = 0; i < k; i++) {
		uint32_t owner = (uint32_t)keys[i] & LANE_MASK;
		uint64_t count = (blocks / k + (i < larger)) * ZD_BLOCK_ELEMS;

		if (count > unit->numel - first)
			count = unit->numel - first;
		if (stride != 0)
			pieces[owner * stride] = (struct zd_piece){first, count};
		else if (owner == lane)
			pieces[0] = (struct zd_piece){first, count};
		first += count;
		keys[i] += (count * weight) << LANE_BITS;
	}
	ZD_ASSERT(first == unit->numel);
	settle(keys, lane_count, k, larger);
}

static void begin(uint32_t lane_count, uint64_t *keys)
{
	ZD_ASSERT(lane_count >= 1 && lane_count <= ZD_LANES_MAX);
	for (uint32_t i = 0; i < lane_count; i++)
		keys[i] = i; /* no load yet */
}

void zd_layout_all(const struct zd_spec *spec, uint32_t lane_count, struct zd_piece *pieces, uint64_t *load)
{
	begin(lane_count, load);
	for (uint32_t u = 0; u < spec->unit_count; u++) {
		struct zd_piece *row = pieces + (size_t)u * lane_count;

		for (uint32_t i = 0; i < lane_count; i++)
			row[i] = (struct zd_piece){0, 0};
		place(&spec->units[u], lane_count, 1, 0, row, load);
	}
}

void zd_layout_lane(const struct zd_spec *spec, uint32_t lane_count, uint32_t lane, struct zd_piece *pieces, uint64_t *load)
{
	ZD_ASSERT(lane < lane_count);
	begin(lane_count, load);
	for (uint32_t u = 0; u < spec->unit_count; u++) {
		pieces[u] = (struct zd_piece){0, 0};
		place(&spec->units[u], lane_count, 0, lane, &pieces[u], load);
	}
}
