/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/bytes.h"
#include "proto/crc32c.h"
#include "proto/frame.h"
#include "tests/fuzz/rng.h"
#include "tests/fuzz/vectors.h"

#define CROWD_MAX 64u

/* One connection that expects certain frames, in order. */
struct peer {
	struct zd_reader reader;
	const struct zd_vector *expected[CROWD_MAX];
	size_t expected_count, heads, frames;
	uint8_t *place;
	int own_check; /* leave their checksums to the owner */
	int skip; /* throw payloads away */
	uint8_t sink[100], head_mem[ZD_HEAD_OPEN_MAX];
};

static void peer_init(struct peer *p, enum zd_side from)
{
	memset(p, 0, offsetof(struct peer, sink));
	zd_reader_init(&p->reader, from, p->head_mem, sizeof(p->head_mem));
}

static void expect(struct peer *p, const struct zd_vector *v)
{
	assert_true(p->expected_count < CROWD_MAX);
	p->expected[p->expected_count++] = v;
}

/* The stream number is the frame's place in the sequence. */
static void on_head(struct peer *p)
{
	const struct zd_vector *v = p->expected[p->heads];
	const struct zd_header *h = &p->reader.header;
	uint8_t *packed = malloc(h->head_len + 1);

	assert_true(p->heads < p->expected_count);
	assert_int_equal(h->type, v->type);
	assert_int_equal(h->stream, p->heads);
	assert_int_equal(h->payload_len, v->payload_len);
	assert_int_equal(protobuf_c_message_pack(v->msg, packed), h->head_len);
	assert_memory_equal(p->reader.head, packed, h->head_len);
	free(packed);
	p->heads++;
	if (h->payload_len == 0)
		return;
	assert_int_equal(zd_reader_window(&p->reader, (struct zd_span){p->sink, sizeof(p->sink)}).len, 0);
	assert_int_equal(zd_reader_next(&p->reader), ZD_READER_MORE);
	if (p->skip) {
		zd_reader_skip(&p->reader);
	} else {
		p->place = malloc(h->payload_len);
		(p->own_check ? zd_reader_payload_unchecked : zd_reader_payload)(&p->reader, p->place);
	}
}

static void on_frame(struct peer *p)
{
	const struct zd_vector *v = p->expected[p->frames];

	assert_int_equal(p->heads, p->frames + 1);
	if (v->payload_len > 0 && !p->skip) {
		size_t wrong = 0; /* an assertion per byte would take most of the time */

		for (size_t i = 0; i < v->payload_len; i++)
			wrong += p->place[i] != zd_vector_byte(p->frames, i);
		assert_int_equal(wrong, 0);
		free(p->place);
		p->place = NULL;
	}
	p->frames++;
}

/* 0, or the reader's error. */
static int feed(struct peer *p, const uint8_t *bytes, size_t size)
{
	while (size > 0) {
		struct zd_span window = zd_reader_window(&p->reader, (struct zd_span){p->sink, p->skip == 1 ? sizeof(p->sink) : 0});
		size_t n = size < window.len ? size : window.len;
		int rc;

		assert_true(n > 0);
		memcpy(window.base, bytes, n);
		zd_reader_advance(&p->reader, n);
		bytes += n;
		size -= n;
		while ((rc = zd_reader_next(&p->reader)) > 0) {
			if (rc == ZD_READER_HEAD)
				on_head(p);
			else
				on_frame(p);
		}
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* The vector of a message with a payload. */
static const struct zd_vector *a_push(void)
{
	size_t count;
	const struct zd_vector *v = zd_vectors(&count);

	while (v->type != ZD_MSG_PUSH)
		v++;
	return v;
}

static uint8_t *frame_of(const struct zd_vector *v, uint64_t stream, size_t *ret_size)
{
	uint8_t *frame = malloc(zd_vector_size(v));

	*ret_size = zd_vector_frame(v, stream, frame, zd_vector_size(v));
	return frame;
}

/* Every cut of a frame of a few pages; of a larger one those near a border of header, head, landing and end: between them any will do. */
static size_t next_cut(size_t cut, size_t size, size_t head_end)
{
	const size_t borders[] = {ZD_LANDING_BYTES, head_end, head_end + ZD_LANDING_BYTES, size};
	size_t next = size;

	if (size < 3 * ZD_LANDING_BYTES || cut < 200)
		return cut + 1;
	for (size_t i = 0; i < sizeof(borders) / sizeof(borders[0]); i++) {
		if (cut + 8 >= borders[i] && cut < borders[i] + 8)
			return cut + 1;
		if (borders[i] > cut && borders[i] - 8 < next)
			next = borders[i] - 8;
	}
	return next;
}

static void test_every_vector_in_every_two_pieces(void **state)
{
	size_t count;
	const struct zd_vector *v = zd_vectors(&count);
	struct peer *p = malloc(sizeof(*p));

	(void)state;
	for (size_t i = 0; i < count; i++) {
		size_t size, head_end = zd_wire_size(v[i].msg);
		uint8_t *frame = frame_of(&v[i], 0, &size);

		for (size_t cut = 0; cut <= size; cut = next_cut(cut, size, head_end)) {
			peer_init(p, zd_vector_side(v[i].type));
			p->skip = (int)(cut % 3); /* 0: received; 1: into the sink; 2: into the landing */
			expect(p, &v[i]);
			assert_int_equal(feed(p, frame, cut), 0);
			assert_int_equal(p->heads, cut >= head_end);
			assert_int_equal(p->frames, cut == size);
			assert_int_equal(feed(p, frame + cut, size - cut), 0);
			assert_int_equal(p->frames, 1);
		}
		free(frame);
	}
	free(p);
}

static void test_every_vector_byte_by_byte(void **state)
{
	size_t count;
	const struct zd_vector *v = zd_vectors(&count);
	struct peer *p = malloc(sizeof(*p));

	(void)state;
	for (size_t i = 0; i < count; i++) {
		size_t size, head_end = zd_wire_size(v[i].msg);
		uint8_t *frame = frame_of(&v[i], 0, &size);

		peer_init(p, zd_vector_side(v[i].type));
		expect(p, &v[i]);
		for (size_t at = 0; at < size; at++) {
			assert_int_equal(p->heads, at >= head_end);
			assert_int_equal(p->frames, 0);
			assert_int_equal(feed(p, frame + at, 1), 0);
		}
		assert_int_equal(p->frames, 1);
		free(frame);
	}
	free(p);
}

/* All small vectors of one side behind each other, twice. */
static uint8_t *conversation(enum zd_side side, struct peer *p, size_t *ret_size)
{
	size_t count, at = 0, cap = 1 << 20;
	const struct zd_vector *v = zd_vectors(&count);
	uint8_t *bytes = malloc(cap);

	peer_init(p, side);
	for (size_t i = 0; i < 2 * zd_vectors_small(); i++) {
		const struct zd_vector *one = &v[i % zd_vectors_small()];

		if (zd_vector_side(one->type) != side)
			continue;
		at += zd_vector_frame(one, p->expected_count, bytes + at, cap - at);
		expect(p, one);
	}
	*ret_size = at;
	return bytes;
}

static void test_many_frames_in_one_landing(void **state)
{
	static const size_t pieces[] = {1, 2, 3, 7, 31, 32, 33, 63, 64, 65, 100, 1000, 4095, 4096, 4097, 5000, 1 << 20};
	struct peer *p = malloc(sizeof(*p));

	(void)state;
	for (int side = 0; side < 2; side++) {
		for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
			size_t size, expected;
			uint8_t *bytes = conversation(side ? ZD_SIDE_SERVER : ZD_SIDE_CLIENT, p, &size);

			expected = p->expected_count;
			p->skip = (int)(i % 3);
			for (size_t at = 0; at < size; at += pieces[i])
				assert_int_equal(feed(p, bytes + at, size - at < pieces[i] ? size - at : pieces[i]), 0);
			assert_int_equal(p->frames, expected);
			free(bytes);
		}
	}
	free(p);
}

static void test_random_pieces(void **state)
{
	struct peer *p = malloc(sizeof(*p));

	(void)state;
	for (uint64_t seed = 0; seed < 300; seed++) {
		struct zd_rng rng = {seed};
		size_t size, at = 0;
		uint8_t *bytes = conversation(seed % 2 ? ZD_SIDE_SERVER : ZD_SIDE_CLIENT, p, &size);

		p->skip = (int)(seed / 2 % 3);
		while (at < size) {
			size_t most = (size_t)1 << zd_rng_below(&rng, 14), n = 1 + zd_rng_below(&rng, most);

			n = n < size - at ? n : size - at;
			assert_int_equal(feed(p, bytes + at, n), 0);
			at += n;
		}
		assert_int_equal(p->frames, p->expected_count);
		free(bytes);
	}
	free(p);
}

/* A payload behind its head in the landing is copied; the rest is received where it belongs, and nothing beyond it. */
static void test_payload_is_received_in_place(void **state)
{
	const struct zd_vector *v;
	size_t size, head_end, first = 1000;
	struct peer *p = malloc(sizeof(*p));
	struct zd_span window;
	uint8_t *frame;

	(void)state;
	v = a_push();
	frame = frame_of(v, 0, &size);
	head_end = zd_wire_size(v->msg);
	peer_init(p, ZD_SIDE_CLIENT);
	expect(p, v);
	assert_int_equal(feed(p, frame, head_end + first), 0);
	assert_int_equal(p->heads, 1);
	assert_memory_equal(p->place, frame + head_end, first);
	window = zd_reader_window(&p->reader, (struct zd_span){p->sink, sizeof(p->sink)});
	assert_ptr_equal(window.base, p->place + first);
	assert_int_equal(window.len, v->payload_len - first);
	/* The same again without an advance in between: a read that brought nothing. */
	zd_reader_advance(&p->reader, 0);
	window = zd_reader_window(&p->reader, (struct zd_span){NULL, 0});
	assert_ptr_equal(window.base, p->place + first);
	assert_int_equal(feed(p, frame + head_end + first, size - head_end - first), 0);
	assert_int_equal(p->frames, 1);
	free(frame);
	free(p);
}

/* The place is taken back in the middle: nothing is written there any more, and the stream goes on. */
static void test_skip_in_the_middle(void **state)
{
	size_t size, head_end;
	const struct zd_vector *v = a_push();
	struct peer *p = malloc(sizeof(*p));
	uint8_t *frame;

	(void)state;
	head_end = zd_wire_size(v->msg);
	for (size_t cut = head_end, turn = 0; cut < head_end + v->payload_len; cut += 256, turn++) {
		frame = frame_of(v, 0, &size);
		peer_init(p, ZD_SIDE_CLIENT);
		p->own_check = turn & 1;
		expect(p, v);
		expect(p, v);
		assert_int_equal(feed(p, frame, cut), 0);
		zd_reader_skip(&p->reader);
		free(p->place);
		p->place = NULL;
		p->skip = 1;
		assert_int_equal(feed(p, frame + cut, size - cut), 0);
		assert_int_equal(p->frames, 1);
		free(frame);
		frame = frame_of(v, 1, &size);
		p->skip = 0;
		assert_int_equal(feed(p, frame, size), 0);
		assert_int_equal(p->frames, 2);
		free(frame);
	}
	free(p);
}

struct bad_header {
	const char *what;
	size_t at;    /* byte of the header */
	uint32_t to;  /* two bytes at AT_VERSION and AT_TYPE, else four */
	int err;
	const char *text;
};

static void test_bad_headers(void **state)
{
	static const struct bad_header cases[] = {
		{"http", 0, 0x20544547, ZD_ERR_BAD_MAGIC, "found bytes 47 45 54 20"},
		{"magic, one bit", 0, ZD_MAGIC ^ 0x01000000, ZD_ERR_BAD_MAGIC, "\"ZROD\""},
		{"version 0", 4, 0, ZD_ERR_BAD_VERSION, "protocol version 0, expected 1"},
		{"version 2", 4, 2, ZD_ERR_BAD_VERSION, "protocol version 2, expected 1"},
		{"type 0", 6, 0, ZD_ERR_BAD_TYPE, "message type 0 is not known"},
		{"type gap", 6, 39, ZD_ERR_BAD_TYPE, "message type 39 is not known"},
		{"type last", 6, 63, ZD_ERR_BAD_TYPE, "message type 63 is not known"},
		{"type beyond the table", 6, 64, ZD_ERR_BAD_TYPE, "message type 64 is not known"},
		{"type largest", 6, 65535, ZD_ERR_BAD_TYPE, "message type 65535 is not known"},
		{"type of the other side", 6, ZD_MSG_PUSHED, ZD_ERR_BAD_TYPE, "PUSHED is sent by the server only"},
		{"head too long", 8, 129, ZD_ERR_BAD_LENGTH, "head of PUSH has 129 bytes, expected at most 128"},
		{"head largest", 8, UINT32_MAX, ZD_ERR_BAD_LENGTH, "head of PUSH has 4294967295 bytes"},
		{"payload too short", 12, 1, ZD_ERR_BAD_LENGTH, "payload of PUSH has 1 bytes, expected 2 to 262144"},
		{"payload too long", 12, ZD_PAYLOAD_MAX + 1, ZD_ERR_BAD_LENGTH, "payload of PUSH has 262145 bytes"},
		{"payload largest", 12, UINT32_MAX, ZD_ERR_BAD_LENGTH, "payload of PUSH has 4294967295 bytes"},
		{"payload where none may be", 6, ZD_MSG_PING, ZD_ERR_BAD_LENGTH, "payload of PING has 8192 bytes, expected 0 to 0"},
		{"head checksum", 16, 0, ZD_ERR_BAD_CHECKSUM, "checksum of PUSH does not match"},
		{"stream is part of the checksum", 24, 77, ZD_ERR_BAD_CHECKSUM, "checksum of PUSH does not match"},
	};
	size_t size, known;
	const struct zd_vector *v = a_push();
	struct peer *p = malloc(sizeof(*p));

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct bad_header *c = &cases[i];
		uint8_t *frame = frame_of(v, 0, &size);
		char text[200];

		if (c->at == 4 || c->at == 6)
			zd_put16(frame + c->at, (uint16_t)c->to);
		else
			zd_put32(frame + c->at, c->to);
		peer_init(p, ZD_SIDE_CLIENT);
		/* Who speaks something else may have less to say than a header; of a header that may be one nothing is said before it is whole. */
		known = c->err == ZD_ERR_BAD_MAGIC ? 4 : ZD_HEADER_BYTES;
		assert_int_equal(feed(p, frame, known - 1), 0);
		/* Lengths and types are refused before the head is there. */
		assert_int_equal(feed(p, frame + known - 1, c->err == ZD_ERR_BAD_CHECKSUM ? size - known + 1 : 1), -c->err);
		zd_header_explain(text, sizeof(text), -c->err, &p->reader.header);
		if (!strstr(text, c->text))
			fail_msg("%s: \"%s\" does not say \"%s\"", c->what, text, c->text);
		/* An error is for ever. */
		assert_int_equal(zd_reader_next(&p->reader), -c->err);
		assert_int_equal(zd_reader_window(&p->reader, (struct zd_span){p->sink, sizeof(p->sink)}).len, 0);
		free(frame);
	}
	free(p);
}

/* Every byte of every small frame, damaged: the frame is never reported. */
static void test_every_byte_is_covered(void **state)
{
	size_t count, size;
	const struct zd_vector *v = zd_vectors(&count);
	struct peer *p = malloc(sizeof(*p));

	(void)state;
	for (size_t i = 0; i < zd_vectors_small(); i++) {
		uint8_t *frame = frame_of(&v[i], 0, &size);

		for (size_t at = 0; at < size; at += at < 400 ? 1 : 13) {
			peer_init(p, zd_vector_side(v[i].type));
			expect(p, &v[i]);
			p->skip = 1 + (at & 1);
			frame[at] ^= (uint8_t)(1u << at % 8);
			if (feed(p, frame, size) == 0) /* a length that grew: it waits */
				assert_true(at >= 8 && at < 16);
			assert_int_equal(p->frames, 0);
			assert_int_equal(p->heads, at >= zd_wire_size(v[i].msg)); /* payload_crc is part of the header's checksum */
			frame[at] ^= (uint8_t)(1u << at % 8);
		}
		free(frame);
	}
	free(p);
}

static void test_payload_checksum_can_be_agreed_away(void **state)
{
	size_t size;
	const struct zd_vector *v = a_push();
	struct peer *p = malloc(sizeof(*p));
	uint8_t *frame;

	(void)state;
	frame = frame_of(v, 0, &size);
	frame[size - 1] ^= 1;
	for (int check = 0; check < 2; check++) {
		peer_init(p, ZD_SIDE_CLIENT);
		p->reader.check_payload = (uint8_t)check;
		p->skip = 1;
		expect(p, v);
		assert_int_equal(feed(p, frame, size), check ? -ZD_ERR_BAD_CHECKSUM : 0);
		assert_int_equal(p->frames, !check);
		if (check) { /* whoever clears up may not know of the error */
			zd_reader_skip(&p->reader);
			assert_int_equal(zd_reader_next(&p->reader), -ZD_ERR_BAD_CHECKSUM);
		}
	}
	free(frame);
	free(p);
}

/* The owner checks: damage is his to find, and the frame after it is read as ever.  What is skipped after all has no owner any more. */
static void test_payload_checksum_of_the_owner(void **state)
{
	size_t size;
	const struct zd_vector *v = a_push();
	struct peer *p = malloc(sizeof(*p));
	uint8_t *frame;

	(void)state;
	for (int skip = 0; skip < 2; skip++) {
		frame = frame_of(v, 0, &size);
		frame[zd_wire_size(v->msg) + 3] ^= 1;
		peer_init(p, ZD_SIDE_CLIENT);
		p->own_check = 1;
		expect(p, v);
		expect(p, v);
		assert_int_equal(feed(p, frame, size - 5), 0);
		p->place[3] ^= 1; /* on_frame looks at every byte */
		if (skip) {
			p->place[3] ^= 1;
			zd_reader_skip(&p->reader);
			free(p->place);
			p->place = NULL;
			p->skip = 1;
		}
		assert_int_equal(feed(p, frame + size - 5, 5), skip ? -ZD_ERR_BAD_CHECKSUM : 0);
		assert_int_equal(p->frames, !skip);
		free(frame);
	}
	peer_init(p, ZD_SIDE_CLIENT);
	expect(p, v);
	expect(p, v);
	for (uint32_t i = 0; i < 2; i++) { /* what was agreed for one payload does not hold for the next */
		frame = frame_of(v, i, &size);
		frame[size - 1] ^= (uint8_t)i;
		p->own_check = i == 0;
		assert_int_equal(feed(p, frame, size), i == 0 ? 0 : -ZD_ERR_BAD_CHECKSUM);
		free(frame);
	}
	free(p->place);
	free(p);
}

/* Heads around the size of the landing: what fits stays there, what does not needs memory of its own. */
static void test_long_heads(void **state)
{
	static const uint32_t lengths[] = {ZD_LANDING_BYTES - 33, ZD_LANDING_BYTES - 32, ZD_LANDING_BYTES - 1, ZD_LANDING_BYTES,
					   ZD_LANDING_BYTES + 1, ZD_HEAD_JOINED_MAX};
	static const size_t pieces[] = {1, 33, 4096, 10000};
	static uint8_t frame[ZD_HEADER_BYTES + ZD_HEAD_JOINED_MAX];
	uint8_t *memory = malloc(ZD_HEAD_JOINED_MAX);
	struct zd_reader *r = malloc(sizeof(*r));

	(void)state;
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]) * 8; i++) {
		size_t length = lengths[i / 8], piece = pieces[i % 4], size = ZD_HEADER_BYTES + length;
		size_t cap = i / 4 % 2 ? ZD_HEAD_JOINED_MAX : length - 1;
		struct zd_header header = {.version = ZD_VERSION, .type = ZD_MSG_JOINED, .head_len = (uint32_t)length};
		int rc = 0, refused = length > ZD_LANDING_BYTES && cap < length;

		for (size_t at = 0; at < length; at++)
			frame[ZD_HEADER_BYTES + at] = zd_vector_byte(length, at);
		zd_header_encode(frame, &header, frame + ZD_HEADER_BYTES);
		zd_reader_init(r, ZD_SIDE_SERVER, memory, cap);
		for (size_t at = 0; at < size && rc == 0;) {
			struct zd_span w = zd_reader_window(r, (struct zd_span){NULL, 0});
			size_t n = size - at < piece ? size - at : piece;

			n = n < w.len ? n : w.len;
			memcpy(w.base, frame + at, n);
			zd_reader_advance(r, n);
			at += n;
			rc = zd_reader_next(r);
		}
		assert_int_equal(rc, refused ? -ZD_ERR_BAD_LENGTH : ZD_READER_HEAD);
		if (refused)
			continue;
		assert_memory_equal(r->head, frame + ZD_HEADER_BYTES, length);
		assert_int_equal(zd_reader_next(r), ZD_READER_FRAME);
		assert_int_equal(zd_reader_next(r), ZD_READER_MORE);
	}
	free(r);
	free(memory);
}

/* Written by hand from the drawing in frame.h and the published checksum of CRC32C, not by the code under test. */
static void test_layout_of_the_header(void **state)
{
	static const uint8_t expected[ZD_HEADER_BYTES] = {'Z', 'R', 'O', 'D', 1, 0, 22, 0, 2, 0, 0, 0, 0, 0, 0, 0,
							  0, 0, 0, 0, 0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1};
	static const uint8_t head[2] = {0x08, 0x05};
	struct zd_header header = {.version = 1, .type = ZD_MSG_PING, .head_len = 2, .stream = 0x0102030405060708}, back;
	uint8_t out[ZD_HEADER_BYTES], whole[ZD_HEADER_BYTES + 2];

	(void)state;
	zd_header_encode(out, &header, head);
	assert_memory_equal(out, expected, 16);
	assert_memory_equal(out + 20, expected + 20, 12);
	memcpy(whole, expected, sizeof(expected));
	memcpy(whole + ZD_HEADER_BYTES, head, 2);
	assert_int_equal(zd_get32(out + 16), zd_crc32c(0, whole, sizeof(whole)));
	assert_int_equal(zd_header_decode(out, ZD_SIDE_CLIENT, &back), 0);
	assert_int_equal(back.stream, header.stream);
	assert_int_equal(back.head_len, 2);
	assert_int_equal(back.magic, ZD_MAGIC);
	assert_string_equal(zd_msg_name(ZD_MSG_STATUS_REPLY), "STATUS_REPLY");
	assert_string_equal(zd_msg_name(46), "unknown");
	assert_string_equal(zd_msg_name(60000), "unknown");
	assert_int_equal(zd_msg_head_max(ZD_MSG_PING), 32);
	assert_int_equal(zd_msg_head_max(0), 0);
}

/* Every type: its limits are taken as they are, one more is not. */
static void test_limits_of_every_type(void **state)
{
	enum { C = ZD_SIDE_CLIENT, S = ZD_SIDE_SERVER };
	static const struct {
		uint16_t type;
		int from;
		uint32_t head_max, payload_min, payload_max;
	} types[] = {
#define X(name, number, from, head_max, pl_min, pl_max, Pb, pb) {number, from, head_max, pl_min, pl_max},
#include "proto/msg.def"
#undef X
	};

	(void)state;
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		for (int wrong = 0; wrong < 5; wrong++) {
			struct zd_header h = {.version = ZD_VERSION,
					      .type = types[i].type,
					      .head_len = types[i].head_max + (wrong == 1),
					      .payload_len = wrong == 2 ? types[i].payload_min - 1 : types[i].payload_max + (wrong == 3)};
			enum zd_side from = (enum zd_side)(wrong == 4 ? !types[i].from : types[i].from);
			struct zd_header back;
			uint8_t bytes[ZD_HEADER_BYTES];
			uint8_t *head = calloc(1, h.head_len);

			zd_header_encode(bytes, &h, head);
			free(head);
			if (wrong == 2 && types[i].payload_min == 0) /* 0 - 1 is the largest of all */
				assert_int_equal(zd_header_decode(bytes, from, &back), -ZD_ERR_BAD_LENGTH);
			else
				assert_int_equal(zd_header_decode(bytes, from, &back), wrong == 4 ? -ZD_ERR_BAD_TYPE
										      : wrong     ? -ZD_ERR_BAD_LENGTH
												  : 0);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layout_of_the_header),
		cmocka_unit_test(test_limits_of_every_type),
		cmocka_unit_test(test_every_vector_in_every_two_pieces),
		cmocka_unit_test(test_every_vector_byte_by_byte),
		cmocka_unit_test(test_many_frames_in_one_landing),
		cmocka_unit_test(test_random_pieces),
		cmocka_unit_test(test_payload_is_received_in_place),
		cmocka_unit_test(test_skip_in_the_middle),
		cmocka_unit_test(test_bad_headers),
		cmocka_unit_test(test_every_byte_is_covered),
		cmocka_unit_test(test_payload_checksum_can_be_agreed_away),
		cmocka_unit_test(test_payload_checksum_of_the_owner),
		cmocka_unit_test(test_long_heads),
	};

	return cmocka_run_group_tests_name("proto: frames", tests, NULL, NULL);
}
