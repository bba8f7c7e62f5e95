/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a head must pass before protobuf-c may see it: one walk over its tags along the descriptor, in time and memory that do not
 * depend on what a hostile peer wrote.  Nothing is stored.
 *
 * Stricter than protobuf asks: varints are minimal and fit their field, a singular field comes once.  Encoders do that anyway.
 */
#ifndef ZD_PROTO_PRESCAN_H
#define ZD_PROTO_PRESCAN_H

#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "proto/err.h"

/* What the walk has cost so far, for its limits and for tests. */
struct zd_prescan_work {
	uint32_t fields;  /* tags, known or not, nested ones included */
	uint32_t varints; /* also tags and lengths: at most ten bytes each */
	uint32_t bytes;	  /* of strings searched for NUL */
};

/* 0 or -ZD_ERR_BAD_MESSAGE with a text. */
int zd_prescan(const ProtobufCMessageDescriptor *of, const uint8_t *head, size_t len, struct zd_prescan_work *ret_work, char *text,
	       size_t text_size) ZD_MUST_USE;

#endif
