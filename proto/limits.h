/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every bound that both sides of the wire must know, with its reason.  A number here is part of the protocol: a peer may rely on
 * it, and the frame codec refuses what goes beyond it before any memory is chosen.
 */
#ifndef ZD_PROTO_LIMITS_H
#define ZD_PROTO_LIMITS_H

/* Elements of one block: pieces and extents start at multiples of it, and the squared norm is summed per block, so that neither the
 * lanes nor the extents can change a bit of the norm. */
#define ZD_BLOCK_ELEMS 4096u

/* Elements of one extent, the grain of transfer, reduction, update and checksum.  128 Ki is where throughput stops growing: twice as
 * many cost 2-5 % (cache), four times 12 %. */
#define ZD_EXTENT_ELEMS_MAX 131072u

/* Elements of one grain: what one frame carries when the element has four bytes. */
#define ZD_GRAIN_ELEMS 65536u

/* Payload of one frame: an extent of two-byte elements or a grain of four-byte ones. */
#define ZD_PAYLOAD_MAX 262144u

/* A unit smaller than this is not split: a piece should fill at least a quarter of a frame. */
#define ZD_PIECE_ELEMS_MIN 32768u

#define ZD_HEADER_BYTES 32u

/* Heads.  OPEN and SHOW_REPLY carry whole job specifications, JOINED one extent count per unit (below 2^45, 28 bits of extents and 16 of
 * micro-batches: at most seven bytes each), COMMIT one micro-batch count per unit (at most three); every other message is small, see msg.def. */
#define ZD_HEAD_OPEN_MAX 131072u
#define ZD_HEAD_JOINED_MAX 8192u
#define ZD_HEAD_COMMIT_MAX 4096u

/* Memory that decoding one message may take.  protobuf-c needs up to 76 bytes per two bytes of hostile input; the pre-scan refuses
 * such input first, and this is the second fence. */
#define ZD_ARENA_BYTES 524288u

/* Fields in one message, nested ones included, and depth of nesting: OPEN has 1,024 units of at most 4 fields. */
#define ZD_FIELDS_MAX 8192u
#define ZD_DEPTH_MAX 3u

/* Bytes read ahead of a payload: header, head and what came with them land here and what belongs to a payload is copied out.  One
 * page covers every frequent head and costs 1.5 % of a full payload. */
#define ZD_LANDING_BYTES 4096u

#define ZD_NAME_MAX 63u  /* bytes of a job, unit or daemon name */
#define ZD_TEXT_MAX 1023u /* bytes of an error text for people */
#define ZD_UNITS_MAX 1024u
#define ZD_NUMEL_MAX (1ull << 40) /* elements of a unit: 4 TiB of fp32 */
#define ZD_LANES_MAX 1024u	  /* lanes of one job, over all daemons */
#define ZD_WORLD_MAX 64u	  /* workers of one job */
#define ZD_EPOCH_MAX (UINT64_MAX >> 1) /* that a client asks for: the promise of the last epoch could only be dropped */
#define ZD_MICRO_MAX 65536u	  /* micro-batches of one round */
#define ZD_JOBS_MAX 16u		  /* jobs on one daemon */

/* FETCH requests a client may have open on one connection: a prefetch window of many small units. */
#define ZD_FETCHES_MAX 64u

/* Receive windows a lane may grant one worker; more does not go faster (4 windows are 1 MiB). */
#define ZD_CREDIT_MAX 8u

#endif
