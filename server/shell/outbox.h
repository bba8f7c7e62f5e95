/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What waits to be written on one connection, in order: control bytes (headers and heads, copied) and payloads (lent).
 *
 *      ring   [....hhhhhhhhHHHHHHHHhhhhhh.......]      headers and heads, ZD_OUTBOX_BYTES at most
 *      bufs   [ring h][payload A][ring H][payload B]   what one write takes; contiguous ring bytes are one buf
 *
 * A write is taken from it (zd_outbox_take), goes to the system as one gathered write, and is settled (zd_outbox_settle), which frees its ring
 * bytes and tells the tokens of its payloads.  Writes settle in the order they were taken.
 *
 * Bounds.  A peer that does not read what it is sent makes ring bytes pile up; what does not fit is refused and the owner closes the
 * connection.  Payloads are bounded by the core (8 a connection); more than ZD_OUTBOX_PAYLOADS is our bug.
 *
 * Threads: none.  No system call, no allocation.
 */
#ifndef ZD_SHELL_OUTBOX_H
#define ZD_SHELL_OUTBOX_H

#include <stddef.h>
#include <stdint.h>

#include <uv.h> /* uv_buf_t */

#include "proto/err.h"

/* Control bytes queued per connection: two of the largest heads, or two thousand small answers, more than any client asks for at once. */
#define ZD_OUTBOX_BYTES 262144u
#define ZD_OUTBOX_PAYLOADS 32u
/* Each payload has its header before it, possibly cut by the end of the ring, and one more such pair may follow the last. */
#define ZD_OUTBOX_BUFS (ZD_OUTBOX_PAYLOADS * 3 + 2)

struct zd_outbox {
	uint8_t *ring; /* lent, ZD_OUTBOX_BYTES */
	uint32_t head; /* where the next control byte goes; runs freely, taken modulo the size */
	uint32_t tail; /* first byte not settled */
	uint32_t taken;/* first byte not taken */
	uint32_t touched; /* bytes from the ring's first on that were ever written to */
	uint32_t buf_count, payload_count;
	uint64_t pending_bytes; /* not taken */
	uv_buf_t bufs[ZD_OUTBOX_BUFS];
	uint64_t tokens[ZD_OUTBOX_PAYLOADS];
};

/* One write on its way: embedded beside the request of the system. */
struct zd_outbox_write {
	uint32_t ring_bytes;
	uint32_t token_count;
	uint64_t bytes;
	uint64_t tokens[ZD_OUTBOX_PAYLOADS];
	uint32_t buf_count;
	uv_buf_t bufs[ZD_OUTBOX_BUFS];
};

void zd_outbox_init(struct zd_outbox *o, void *ring);

/* 0, or -ZD_ERR_TOO_MANY when the control bytes do not fit: nothing was added. */
int zd_outbox_add(struct zd_outbox *o, const uint8_t *frame, uint32_t frame_len, const uint8_t *payload, uint32_t payload_len,
		  uint64_t token) ZD_MUST_USE;

static inline int zd_outbox_empty(const struct zd_outbox *o)
{
	return o->buf_count == 0;
}

/* Moves everything that waits into *ret_write. */
void zd_outbox_take(struct zd_outbox *o, struct zd_outbox_write *ret_write);

/* The system no longer touches the oldest write's memory. */
void zd_outbox_settle(struct zd_outbox *o, const struct zd_outbox_write *write);

#endif
