/* SPDX-License-Identifier: Apache-2.0 */
/* Example messages of every type, the smallest and the largest that can be: for the codec's tests, the mutator and the fuzz corpus. */
#ifndef ZD_TESTS_VECTORS_H
#define ZD_TESTS_VECTORS_H

#include <stddef.h>
#include <stdint.h>

#include "proto/wire.h"

struct zd_vector {
	const char *name;
	uint16_t type;
	const ProtobufCMessage *msg;
	uint32_t payload_len;
};

/* The table; small ones first, of every type one at least.  Static storage, built at the first call. */
const struct zd_vector *zd_vectors(size_t *ret_count);
/* Only this many of them, from the first, have heads of at most a few hundred bytes and payloads of at most one block. */
size_t zd_vectors_small(void);

/* Who sends this type. */
enum zd_side zd_vector_side(uint16_t type);

/* Bytes of the whole frame. */
size_t zd_vector_size(const struct zd_vector *v);
/* Writes the whole frame; the payload's bytes follow from `stream`.  Returns its size. */
size_t zd_vector_frame(const struct zd_vector *v, uint64_t stream, uint8_t *out, size_t size);
/* Byte `i` of such a payload. */
uint8_t zd_vector_byte(uint64_t stream, size_t i);

/* Field by field, by the descriptor: 1 equal, 0 not. */
int zd_vector_equal(const ProtobufCMessage *a, const ProtobufCMessage *b);

#endif
