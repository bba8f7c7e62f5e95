/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heads: protobuf messages to and from bytes, without the heap.
 *
 * Decoding runs in three steps.  A pre-scan walks the tags against the message's descriptor and refuses what protobuf-c would accept
 * at a price: unknown wire types, nesting beyond ZD_DEPTH_MAX, more than ZD_FIELDS_MAX fields, a singular field twice (quadratic time
 * in protobuf-c), a repeated field beyond its bound, strings that are too long or hold a NUL, numbers that do not fit their field.
 * Unknown field numbers are stepped over, they are how the protocol evolves.  Then protobuf-c unpacks into an arena of fixed size; then
 * a validator checks ranges, so that whoever holds a decoded message may rely on it: see validate.c for what they are.
 *
 * Threads: none; an arena belongs to one thread.  A decoded message lives until its arena is reset.
 */
#ifndef ZD_PROTO_WIRE_H
#define ZD_PROTO_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "proto/err.h"
#include "proto/frame.h"
#include "zerod.pb-c.h"

struct zd_arena {
	uint8_t *base; /* lent by the owner */
	size_t size;
	size_t used;
	ProtobufCAllocator allocator;
};

void zd_arena_init(struct zd_arena *a, void *base, size_t size);
void zd_arena_reset(struct zd_arena *a);

/* Decodes the head of a frame of `type`.  The caller resets the arena when it is done with the message.
 * 0, or -ZD_ERR_BAD_MESSAGE (cannot be decoded, bound exceeded) or -ZD_ERR_BAD_FIELD (a value outside its range); `text` then says
 * which field, what was expected and what was found. */
int zd_wire_decode(struct zd_arena *a, uint16_t type, const uint8_t *head, size_t len, const ProtobufCMessage **ret_msg, char *text,
		   size_t text_size) ZD_MUST_USE;

/* A payload has as many bytes as its head announces: count elements of the codec (PUSH, LOAD), count elements of two or four bytes or
 * none (DATA: which of them, only the one who asked knows), none for all others.  To be called before memory is chosen for it.
 * 0 or -ZD_ERR_BAD_LENGTH with a text. */
int zd_wire_check_payload(uint16_t type, const ProtobufCMessage *msg, uint32_t payload_len, char *text, size_t text_size) ZD_MUST_USE;

/* Packs header and head into `out`.  The message must be valid (our own messages are: a violation is our bug and asserts).
 * Returns the number of bytes (32 + head).  `size` must be at least that: zd_wire_size. */
size_t zd_wire_encode(uint8_t *out, size_t size, uint16_t type, uint64_t stream, const ProtobufCMessage *msg, uint32_t payload_len,
		      uint32_t payload_crc);
size_t zd_wire_size(const ProtobufCMessage *msg);

/* Ballots compare as (epoch, attempt): <0, 0, >0. */
struct zd_ballot {
	uint64_t epoch;
	uint32_t attempt;
};
int zd_ballot_cmp(struct zd_ballot a, struct zd_ballot b);

#endif
