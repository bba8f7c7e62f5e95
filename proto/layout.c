/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lanes are a binary heap of keys (load, lane), the least on top.  For each unit, the k least are taken off, each gets its piece,
 * and they go back: O(k log lanes) per unit, in the caller's memory.
 */
#include "proto/layout.h"

#include "proto/assert.h"
#include "proto/limits.h"

/* Load in two-byte steps: a frozen element is 1, a trainable one 8.  ZD_UNITS_MAX units of ZD_NUMEL_MAX elements on one lane are 2^53,
 * which leaves room for the lane's number below it. */
#define LOAD_FROZEN 1u
#define LOAD_TRAINABLE 8u
#define LANE_BITS 10u
#define LANE_MASK ((1u << LANE_BITS) - 1)

_Static_assert(ZD_LANES_MAX <= LANE_MASK + 1, "a lane's number fits its bits");

static void sift_up(uint64_t *heap, uint32_t at)
{
	uint64_t key = heap[at];

	for (; at > 0 && heap[(at - 1) / 2] > key; at = (at - 1) / 2)
		heap[at] = heap[(at - 1) / 2];
	heap[at] = key;
}

static void sift_down(uint64_t *heap, uint32_t size)
{
	uint64_t key = heap[0];
	uint32_t at = 0, child;

	for (; (child = 2 * at + 1) < size; at = child) {
		if (child + 1 < size && heap[child + 1] < heap[child])
			child++;
		if (heap[child] >= key)
			break;
		heap[at] = heap[child];
	}
	heap[at] = key;
}

/* Moves the `k` least keys of `heap` behind the rest, the least last. */
static void take_least(uint64_t *heap, uint32_t size, uint32_t k)
{
	for (uint32_t end = size - k; size > end; size--) {
		uint64_t least = heap[0];

		heap[0] = heap[size - 1];
		if (size > 1)
			sift_down(heap, size - 1);
		heap[size - 1] = least;
	}
}

/* Places one unit.  stride: of pieces, one per lane; 0: only `lane` is asked for and pieces[0] is its. */
static void place(const struct zd_unit_spec *unit, uint32_t lane_count, uint32_t stride, uint32_t lane, struct zd_piece *pieces,
		  uint64_t *heap)
{
	uint64_t blocks = (unit->numel + ZD_BLOCK_ELEMS - 1) / ZD_BLOCK_ELEMS, first = 0;
	uint64_t wanted = unit->numel / ZD_PIECE_ELEMS_MIN;
	uint32_t k = wanted < 1 ? 1 : wanted > lane_count ? lane_count : (uint32_t)wanted;
	uint64_t weight = unit->frozen ? LOAD_FROZEN : LOAD_TRAINABLE;

	take_least(heap, lane_count, k);
	for (uint32_t i = 0; i < k; i++) {
		uint64_t *key = &heap[lane_count - 1 - i];
		uint32_t owner = (uint32_t)*key & LANE_MASK;
		uint64_t count = (blocks / k + (i < blocks % k)) * ZD_BLOCK_ELEMS;

		if (count > unit->numel - first)
			count = unit->numel - first;
		if (stride != 0)
			pieces[owner * stride] = (struct zd_piece){first, count};
		else if (owner == lane)
			pieces[0] = (struct zd_piece){first, count};
		first += count;
		*key += (count * weight) << LANE_BITS;
	}
	ZD_ASSERT(first == unit->numel);
	for (uint32_t i = lane_count - k; i < lane_count; i++)
		sift_up(heap, i);
}

static void begin(uint32_t lane_count, uint64_t *heap)
{
	ZD_ASSERT(lane_count >= 1 && lane_count <= ZD_LANES_MAX);
	for (uint32_t i = 0; i < lane_count; i++)
		heap[i] = i; /* no load yet; ascending keys are a heap */
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
