/* SPDX-License-Identifier: Apache-2.0 */
#include "server/shell/outbox.h"

#include <string.h>

#include "proto/assert.h"

#define MASK (ZD_OUTBOX_BYTES - 1)

void zd_outbox_init(struct zd_outbox *o, void *ring)
{
	o->ring = ring;
	o->head = 0;
	o->tail = 0;
	o->taken = 0;
	o->touched = 0;
	o->buf_count = 0;
	o->payload_count = 0;
	o->pending_bytes = 0;
}

static int in_ring(const struct zd_outbox *o, const void *at)
{
	return (const uint8_t *)at >= o->ring && (const uint8_t *)at < o->ring + ZD_OUTBOX_BYTES;
}

static void add_buf(struct zd_outbox *o, const uint8_t *base, uint32_t len)
{
	uv_buf_t *last = o->buf_count ? &o->bufs[o->buf_count - 1] : NULL;

	/* Only ring bytes are joined: a payload that happens to touch them stays a payload. */
	if (last && in_ring(o, last->base) && in_ring(o, base) && (const uint8_t *)last->base + last->len == base) {
		last->len += len;
		return;
	}
	ZD_ASSERT(o->buf_count < ZD_OUTBOX_BUFS);
	o->bufs[o->buf_count].base = (char *)(uintptr_t)base;
	o->bufs[o->buf_count].len = len;
	o->buf_count++;
}

static void add_ring(struct zd_outbox *o, const uint8_t *data, uint32_t len)
{
	while (len) {
		uint32_t at = o->head & MASK, n = ZD_OUTBOX_BYTES - at;

		if (n > len)
			n = len;
		memcpy(o->ring + at, data, n);
		o->touched = o->touched > at + n ? o->touched : at + n;
		add_buf(o, o->ring + at, n);
		o->head += n;
		data += n;
		len -= n;
	}
}

int zd_outbox_add(struct zd_outbox *o, const uint8_t *frame, uint32_t frame_len, const uint8_t *payload, uint32_t payload_len, uint64_t token)
{
	if (frame_len > ZD_OUTBOX_BYTES - (o->head - o->tail))
		return -ZD_ERR_TOO_MANY;
	/* An empty ring starts again at its first byte, so that a quiet connection touches a page or two of it. */
	if (o->head == o->tail && o->buf_count == 0) {
		o->head = 0;
		o->tail = 0;
		o->taken = 0;
	}
	add_ring(o, frame, frame_len);
	o->pending_bytes += frame_len;
	if (payload_len) {
		ZD_ASSERT(o->payload_count < ZD_OUTBOX_PAYLOADS);
		add_buf(o, payload, payload_len);
		o->tokens[o->payload_count++] = token;
		o->pending_bytes += payload_len;
	}
	return 0;
}

void zd_outbox_take(struct zd_outbox *o, struct zd_outbox_write *ret_write)
{
	ret_write->ring_bytes = o->head - o->taken;
	ret_write->token_count = o->payload_count;
	ret_write->bytes = o->pending_bytes;
	ret_write->buf_count = o->buf_count;
	memcpy(ret_write->bufs, o->bufs, o->buf_count * sizeof(o->bufs[0]));
	memcpy(ret_write->tokens, o->tokens, o->payload_count * sizeof(o->tokens[0]));
	o->taken = o->head;
	o->buf_count = 0;
	o->payload_count = 0;
	o->pending_bytes = 0;
}

void zd_outbox_settle(struct zd_outbox *o, const struct zd_outbox_write *write)
{
	ZD_ASSERT(o->taken - o->tail >= write->ring_bytes);
	o->tail += write->ring_bytes;
}
