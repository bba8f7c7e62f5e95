/* SPDX-License-Identifier: Apache-2.0 */
/*
 * States of a reader, and what is true in each.  `landing` holds unread bytes at [begin, end).
 *
 *   HEADER --32 bytes--> HEAD --head_len bytes, checksum right--> CHOOSE   (HEAD is reported here)
 *      ^                                      |                      | zd_reader_payload, zd_reader_skip
 *      |                                      | no payload           v
 *      +<----------FRAME is reported------- DONE <--payload_len-- PAYLOAD
 *
 *   HEADER   less than a header is unread, and its magic is right as far as it is there whole
 *   HEAD     header is checked; crc is the checksum of the header; got counts what is in head_mem, if that is where the head goes
 *   CHOOSE   head is verified; the window is empty
 *   PAYLOAD  got bytes are in place, crc is theirs unless the owner checks; landing is empty unless the payload is complete
 *   DONE     as PAYLOAD with everything in place
 *   FAILED   error says why; the window is empty
 */
#include "proto/frame.h"

#include <string.h>

#include "proto/assert.h"
#include "proto/bytes.h"
#include "proto/crc32c.h"
#include "proto/text.h"

enum { HEADER, HEAD, CHOOSE, PAYLOAD, DONE, FAILED };

#define C ZD_SIDE_CLIENT
#define S ZD_SIDE_SERVER
static const struct type {
	const char *name; /* NULL: no such type */
	enum zd_side from;
	uint32_t head_max, payload_min, payload_max;
} types[ZD_MSG_MAX] = {
#define X(name, number, from, head_max, pl_min, pl_max, Pb, pb) [number] = {#name, from, head_max, pl_min, pl_max},
#include "proto/msg.def"
#undef X
};
#undef C
#undef S

static const struct type *type_of(uint16_t number)
{
	return number < ZD_MSG_MAX && types[number].name ? &types[number] : NULL;
}

const char *zd_msg_name(uint16_t type)
{
	const struct type *t = type_of(type);

	return t ? t->name : "unknown";
}

uint32_t zd_msg_head_max(uint16_t type)
{
	const struct type *t = type_of(type);

	return t ? t->head_max : 0;
}

/* Byte offsets of the header's fields. */
enum {
	AT_MAGIC = 0,
	AT_VERSION = 4,
	AT_TYPE = 6,
	AT_HEAD_LEN = 8,
	AT_PAYLOAD_LEN = 12,
	AT_HEAD_CRC = 16,
	AT_PAYLOAD_CRC = 20,
	AT_STREAM = 24
};

void zd_header_encode(uint8_t out[ZD_HEADER_BYTES], const struct zd_header *header, const uint8_t *head)
{
	zd_put32(out + AT_MAGIC, ZD_MAGIC);
	zd_put16(out + AT_VERSION, header->version);
	zd_put16(out + AT_TYPE, header->type);
	zd_put32(out + AT_HEAD_LEN, header->head_len);
	zd_put32(out + AT_PAYLOAD_LEN, header->payload_len);
	zd_put32(out + AT_HEAD_CRC, 0);
	zd_put32(out + AT_PAYLOAD_CRC, header->payload_crc);
	zd_put64(out + AT_STREAM, header->stream);
	zd_put32(out + AT_HEAD_CRC, zd_crc32c(zd_crc32c(0, out, ZD_HEADER_BYTES), head, header->head_len));
}

int zd_header_decode(const uint8_t in[ZD_HEADER_BYTES], enum zd_side from, struct zd_header *ret_header)
{
	const struct type *t;

	ret_header->magic = zd_get32(in + AT_MAGIC);
	ret_header->version = zd_get16(in + AT_VERSION);
	ret_header->type = zd_get16(in + AT_TYPE);
	ret_header->head_len = zd_get32(in + AT_HEAD_LEN);
	ret_header->payload_len = zd_get32(in + AT_PAYLOAD_LEN);
	ret_header->head_crc = zd_get32(in + AT_HEAD_CRC);
	ret_header->payload_crc = zd_get32(in + AT_PAYLOAD_CRC);
	ret_header->stream = zd_get64(in + AT_STREAM);

	if (ret_header->magic != ZD_MAGIC)
		return -ZD_ERR_BAD_MAGIC;
	if (ret_header->version != ZD_VERSION)
		return -ZD_ERR_BAD_VERSION;
	t = type_of(ret_header->type);
	if (!t || t->from != from)
		return -ZD_ERR_BAD_TYPE;
	if (ret_header->head_len > t->head_max || ret_header->payload_len < t->payload_min || ret_header->payload_len > t->payload_max)
		return -ZD_ERR_BAD_LENGTH;
	return 0;
}

static void explain_length(char *out, size_t size, const struct zd_header *header)
{
	const struct type *t = type_of(header->type);

	if (!t)
		zd_text_fail(0, out, size, "lengths %u and %u of an unknown message", header->head_len, header->payload_len);
	else if (header->head_len > t->head_max)
		zd_text_fail(0, out, size, "head of %s has %u bytes, expected at most %u", t->name, header->head_len, t->head_max);
	else if (header->payload_len < t->payload_min || header->payload_len > t->payload_max)
		zd_text_fail(0, out, size, "payload of %s has %u bytes, expected %u to %u", t->name, header->payload_len, t->payload_min,
			     t->payload_max);
	else
		zd_text_fail(0, out, size, "head of %s has %u bytes, more than is taken at this point of a conversation", t->name,
			     header->head_len);
}

void zd_header_explain(char *out, size_t size, int err, const struct zd_header *header)
{
	const struct type *t = type_of(header->type);

	switch (err < 0 ? -err : err) {
	case ZD_ERR_BAD_MAGIC:
		zd_text_fail(0, out, size, "expected a frame that begins with \"ZROD\", found bytes %02x %02x %02x %02x: is the peer zerod?",
			     header->magic & 0xff, header->magic >> 8 & 0xff, header->magic >> 16 & 0xff, header->magic >> 24);
		break;
	case ZD_ERR_BAD_VERSION:
		zd_text_fail(0, out, size, "protocol version %u, expected %u: upgrade the older side", header->version, ZD_VERSION);
		break;
	case ZD_ERR_BAD_TYPE:
		if (t)
			zd_text_fail(0, out, size, "%s is sent by the %s only", t->name,
				     t->from == ZD_SIDE_CLIENT ? "client" : "server");
		else
			zd_text_fail(0, out, size, "message type %u is not known", header->type);
		break;
	case ZD_ERR_BAD_LENGTH:
		explain_length(out, size, header);
		break;
	case ZD_ERR_BAD_CHECKSUM:
		zd_text_fail(0, out, size, "checksum of %s does not match its bytes (head %u, payload %u bytes): damaged on the way",
			     zd_msg_name(header->type), header->head_len, header->payload_len);
		break;
	default:
		zd_text_fail(0, out, size, "%s: %s", zd_msg_name(header->type), zd_err_text(err));
	}
}

void zd_reader_init(struct zd_reader *r, enum zd_side from, void *head_mem, size_t head_cap)
{
	memset(r, 0, offsetof(struct zd_reader, landing));
	r->from = from;
	r->check_payload = 1;
	r->head_mem = head_mem;
	r->head_cap = head_cap;
}

static int fail(struct zd_reader *r, int err)
{
	r->state = FAILED;
	r->error = err;
	return err;
}

/* Heads that do not fit the landing are gathered in head_mem. */
static int is_long(const struct zd_reader *r)
{
	return r->header.head_len > ZD_LANDING_BYTES;
}

struct zd_span zd_reader_window(struct zd_reader *r, struct zd_span sink)
{
	uint32_t rest = r->header.payload_len - r->got; /* of a payload */

	r->window = (struct zd_span){NULL, 0};
	switch (r->state) {
	case HEADER:
	case HEAD:
		if (r->state == HEAD && is_long(r)) {
			r->window = (struct zd_span){r->head_mem + r->got, r->header.head_len - r->got};
			break;
		}
		memmove(r->landing, r->landing + r->begin, r->end - r->begin);
		r->end -= r->begin;
		r->begin = 0;
		r->window = (struct zd_span){r->landing + r->end, ZD_LANDING_BYTES - r->end};
		break;
	case PAYLOAD:
		if (r->payload)
			r->window = (struct zd_span){r->payload + r->got, rest};
		else if (sink.len > 0)
			r->window = (struct zd_span){sink.base, sink.len < rest ? sink.len : rest};
		else /* the landing is empty, and as good a place for what nobody wants */
			r->window = (struct zd_span){r->landing, ZD_LANDING_BYTES < rest ? ZD_LANDING_BYTES : rest};
		break;
	default:
		break;
	}
	return r->window;
}

/* `n` more bytes of the payload are at `bytes`. */
static void take_payload(struct zd_reader *r, const uint8_t *bytes, uint32_t n)
{
	if (r->check_payload && !r->unchecked)
		r->crc = zd_crc32c(r->crc, bytes, n);
	r->got += n;
	if (r->got == r->header.payload_len)
		r->state = DONE;
}

void zd_reader_advance(struct zd_reader *r, size_t n)
{
	ZD_ASSERT(n <= r->window.len);
	if (n == 0)
		return;
	if (r->state == PAYLOAD)
		take_payload(r, r->window.base, (uint32_t)n);
	else if (r->state == HEAD && is_long(r))
		r->got += (uint32_t)n;
	else
		r->end += (uint32_t)n;
	r->window = (struct zd_span){NULL, 0};
}

static int next_header(struct zd_reader *r)
{
	uint8_t *bytes = r->landing + r->begin;
	uint32_t there = r->end - r->begin;
	int rc;

	/* Whoever speaks another protocol may have less to say than a header, and wait for an answer. */
	if (there >= sizeof(r->header.magic) && zd_get32(bytes) != ZD_MAGIC) {
		r->header = (struct zd_header){.magic = zd_get32(bytes)};
		return fail(r, -ZD_ERR_BAD_MAGIC);
	}
	if (there < ZD_HEADER_BYTES)
		return ZD_READER_MORE;
	rc = zd_header_decode(bytes, r->from, &r->header);
	if (rc < 0)
		return fail(r, rc);
	if (is_long(r) && r->header.head_len > r->head_cap)
		return fail(r, -ZD_ERR_BAD_LENGTH);
	zd_put32(bytes + AT_HEAD_CRC, 0);
	r->crc = zd_crc32c(0, bytes, ZD_HEADER_BYTES);
	r->begin += ZD_HEADER_BYTES;
	r->got = 0;
	r->state = HEAD;
	return ZD_READER_HEAD;
}

static int next_head(struct zd_reader *r)
{
	uint32_t there = r->end - r->begin, rest = r->header.head_len - r->got;

	if (is_long(r)) {
		uint32_t n = there < rest ? there : rest;

		memcpy(r->head_mem + r->got, r->landing + r->begin, n);
		r->begin += n;
		r->got += n;
		if (r->got < r->header.head_len)
			return ZD_READER_MORE;
		r->head = r->head_mem;
	} else {
		if (there < rest)
			return ZD_READER_MORE;
		r->head = r->landing + r->begin;
		r->begin += rest;
	}
	if (zd_crc32c(r->crc, r->head, r->header.head_len) != r->header.head_crc)
		return fail(r, -ZD_ERR_BAD_CHECKSUM);
	r->got = 0;
	r->crc = 0;
	r->payload = NULL;
	r->unchecked = 0;
	r->state = r->header.payload_len > 0 ? CHOOSE : DONE;
	return ZD_READER_HEAD;
}

int zd_reader_next(struct zd_reader *r)
{
	int rc;

	switch (r->state) {
	case HEADER:
		rc = next_header(r);
		return rc == ZD_READER_HEAD ? next_head(r) : rc;
	case HEAD:
		return next_head(r);
	case DONE:
		if (r->check_payload && !r->unchecked && r->crc != r->header.payload_crc)
			return fail(r, -ZD_ERR_BAD_CHECKSUM);
		r->state = HEADER;
		return ZD_READER_FRAME;
	case FAILED:
		return r->error;
	default:
		return ZD_READER_MORE;
	}
}

/* What came in the same read as the head goes to its place (copied) or nowhere. */
static void begin_payload(struct zd_reader *r, uint8_t *place)
{
	uint32_t there = r->end - r->begin, n = there < r->header.payload_len ? there : r->header.payload_len;

	ZD_ASSERT(r->state == CHOOSE);
	r->payload = place;
	r->state = PAYLOAD;
	if (n == 0)
		return;
	if (place)
		memcpy(place, r->landing + r->begin, n);
	take_payload(r, r->landing + r->begin, n);
	r->begin += n;
}

void zd_reader_payload(struct zd_reader *r, uint8_t *place)
{
	ZD_ASSERT(place != NULL);
	begin_payload(r, place);
}

void zd_reader_payload_unchecked(struct zd_reader *r, uint8_t *place)
{
	r->unchecked = 1;
	zd_reader_payload(r, place);
}

void zd_reader_skip(struct zd_reader *r)
{
	if (r->state == CHOOSE) {
		begin_payload(r, NULL);
		return;
	}
	ZD_ASSERT(r->state == PAYLOAD || r->state == DONE || r->state == FAILED);
	if (r->unchecked && r->check_payload && r->state != FAILED)
		r->crc = zd_crc32c(0, r->payload, r->got); /* nobody else will look at it */
	r->unchecked = 0;
	r->payload = NULL;
	r->window = (struct zd_span){NULL, 0};
}
