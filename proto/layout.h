/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which lane owns which elements: a pure function of the specification and the number of lanes, so that nobody has to be asked.
 *
 * Units are placed in order.  A unit is cut into k = clamp(numel / ZD_PIECE_ELEMS_MIN, 1, lanes) pieces of whole blocks, as equal as
 * blocks allow: the first blocks % k pieces have one block more, and the last piece takes the unit's short block.  They go to the k
 * lanes that own least so far (ties: the lower lane), in that order: who owns least gets the first and largest.  The load of a
 * trainable unit counts 16 bytes per element, of a frozen one 2.
 *
 *     unit 0  |----lane 0----|----lane 1----|----lane 2----|
 *     unit 1  |-lane 2-|                                        (small: whole; lane 2 had the short block)
 *     unit 2  |----lane 1----|----lane 0----|
 *
 * No two lanes' loads ever differ by more than ZD_LAYOUT_SPREAD, however many units there are: within a unit, whoever owned more gets
 * no larger a piece, so a difference between two lanes of the unit grows by nothing or becomes at most two blocks; and between a lane
 * of the unit and another, which owned at least as much, it becomes at most one piece, which is less than 2 * ZD_PIECE_ELEMS_MIN
 * elements whenever not all lanes have one.
 */
#ifndef ZD_PROTO_LAYOUT_H
#define ZD_PROTO_LAYOUT_H

#include "proto/limits.h"
#include "proto/spec.h"

#define ZD_LAYOUT_SPREAD (2ull * ZD_PIECE_ELEMS_MIN * 16) /* bytes of load: 1 MiB */

struct zd_piece {
	uint64_t first; /* in unit coordinates, a multiple of ZD_BLOCK_ELEMS */
	uint64_t count; /* 0: this lane owns nothing of the unit */
};

/* pieces: unit_count * lane_count entries, piece of (unit u, lane l) at [u * lane_count + l].  load: lane_count entries of scratch.
 * lane_count 1..ZD_LANES_MAX; the specification must have passed zd_spec_check. */
void zd_layout_all(const struct zd_spec *spec, uint32_t lane_count, struct zd_piece *pieces, uint64_t *load);

/* The pieces of one lane only: unit_count entries. */
void zd_layout_lane(const struct zd_spec *spec, uint32_t lane_count, uint32_t lane, struct zd_piece *pieces, uint64_t *load);

/* Extents of a piece: counted from the piece's first element; the last one may be short. */
static inline uint32_t zd_piece_extents(struct zd_piece p, uint32_t extent_elems)
{
	return (uint32_t)((p.count + extent_elems - 1) / extent_elems);
}

#endif
