/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/drive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/assert.h"
#include "proto/bytes.h"
#include "proto/crc32c.h"
#include "proto/decide.h"
#include "proto/layout.h"
#include "proto/spec.h"
#include "proto/wire.h"
#include "tests/fuzz/rng.h"
#include "tests/fuzz/vectors.h"

static void report(const char *file, int line, const char *what)
{
	fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, what);
	abort();
}

/* In every program that drives: a fault must say what it was. */
__attribute__((constructor)) static void install(void)
{
	zd_assert_failed = report;
}

/* Exactly as large as it is meant to be, so that a sanitizer sees any step beyond. */
static void *exact(size_t size)
{
	void *memory = malloc(size > 0 ? size : 1);

	ZD_ASSERT(memory != NULL);
	return memory;
}

static void check_text(const char *text, size_t size)
{
	ZD_ASSERT(memchr(text, 0, size) != NULL && text[0] != 0);
}

/* ---- specification and layout */

static void check_row(const struct zd_piece *row, uint32_t lane_count, uint64_t numel)
{
	uint64_t owned = 0;

	for (uint32_t l = 0; l < lane_count; l++) {
		ZD_ASSERT(row[l].first % ZD_BLOCK_ELEMS == 0 && row[l].first + row[l].count <= numel);
		owned += row[l].count;
	}
	ZD_ASSERT(owned == numel);
}

static int drive_open(const Zd__Pb__Open *open)
{
	struct zd_unit_spec *units = exact(open->spec->n_units * sizeof(*units));
	uint64_t *load = exact(open->lane_count * sizeof(*load));
	char text[ZD_TEXT_MAX + 1] = "";
	struct zd_piece *all, *mine;
	struct zd_spec spec;
	int accepted = 0;

	if (zd_spec_from_pb(&spec, units, open->spec->n_units, open->spec, text, sizeof(text)) < 0) {
		check_text(text, sizeof(text));
	} else {
		ZD_ASSERT(zd_spec_compare(&spec, &spec, text, sizeof(text)) == 0);
		all = exact((size_t)spec.unit_count * open->lane_count * sizeof(*all));
		mine = exact(spec.unit_count * sizeof(*mine));
		zd_layout_all(&spec, open->lane_count, all, load);
		zd_layout_lane(&spec, open->lane_count, open->lane_index, mine, load);
		for (uint32_t u = 0; u < spec.unit_count; u++) {
			const struct zd_piece *row = all + (size_t)u * open->lane_count;

			check_row(row, open->lane_count, spec.units[u].numel);
			ZD_ASSERT(row[open->lane_index].first == mine[u].first && row[open->lane_index].count == mine[u].count);
		}
		free(mine);
		free(all);
		accepted = 1;
	}
	free(load);
	free(units);
	return accepted;
}

/* ---- heads */

static void drive_record(const Zd__Pb__Record *pb)
{
	struct zd_record record;
	struct zd_decision a, b;
	char text[ZD_TEXT_MAX + 1];

	ZD_ASSERT(zd_record_from_pb(&record, pb) == 0);
	ZD_ASSERT(zd_decide(&record, 1, 7, &a, text, sizeof(text)) == 0);
	ZD_ASSERT(zd_decide(&record, 1, 7, &b, text, sizeof(text)) == 0);
	ZD_ASSERT(zd_decision_equal(&a, &b));
	ZD_ASSERT(a.scale >= 0 && a.scale <= 0x1p80 && a.norm >= 0 && a.norm <= __DBL_MAX__);
}

static void drive_message(uint16_t type, const ProtobufCMessage *msg)
{
	if (type == ZD_MSG_OPEN)
		drive_open((const Zd__Pb__Open *)msg);
	else if (type == ZD_MSG_PREPARED)
		drive_record(((const Zd__Pb__Prepared *)msg)->record);
	else if (type == ZD_MSG_JOINED && ((const Zd__Pb__Joined *)msg)->prepared)
		drive_record(((const Zd__Pb__Joined *)msg)->prepared);
}

/* The payload that goes with a head, for encoding it again. */
static uint32_t payload_of(uint16_t type, const ProtobufCMessage *msg)
{
	if (type == ZD_MSG_PUSH)
		return ((const Zd__Pb__Push *)msg)->count * zd_codec_bytes((enum zd_codec)((const Zd__Pb__Push *)msg)->codec);
	if (type == ZD_MSG_LOAD)
		return ((const Zd__Pb__Load *)msg)->count * zd_codec_bytes((enum zd_codec)((const Zd__Pb__Load *)msg)->codec);
	return 0;
}

/* An accepted message says the same after another trip. */
static void check_round_trip(uint16_t type, const ProtobufCMessage *msg, uint8_t *frame, struct zd_arena *arena)
{
	char text[ZD_TEXT_MAX + 1];
	const ProtobufCMessage *again;
	size_t total = zd_wire_size(msg);

	ZD_ASSERT(zd_wire_encode(frame, total, type, 1, msg, payload_of(type, msg), 0) == total);
	ZD_ASSERT(zd_wire_decode(arena, type, frame + ZD_HEADER_BYTES, total - ZD_HEADER_BYTES, &again, text, sizeof(text)) == 0);
	ZD_ASSERT(zd_vector_equal(msg, again));
}

int zd_drive_head(uint16_t type, const uint8_t *head, size_t size)
{
	/* As large as a reader has; the second is for the round trip. */
	static uint8_t memory[2][ZD_ARENA_BYTES], frame[ZD_HEADER_BYTES + ZD_HEAD_OPEN_MAX];
	struct zd_arena arena, second;
	const ProtobufCMessage *msg;
	char text[ZD_TEXT_MAX + 1] = "";

	if (size > zd_msg_head_max(type)) /* never gets past the header */
		return 0;
	zd_arena_init(&arena, memory[0], sizeof(memory[0]));
	zd_arena_init(&second, memory[1], sizeof(memory[1]));
	if (zd_wire_decode(&arena, type, head, size, &msg, text, sizeof(text)) < 0) {
		check_text(text, sizeof(text));
		return 0;
	}
	ZD_ASSERT(arena.used <= arena.size);
	drive_message(type, msg);
	/* Unknown fields travel on, and a single number that came unpacked grows by a byte: together that may be too long. */
	if (zd_wire_size(msg) <= ZD_HEADER_BYTES + zd_msg_head_max(type))
		check_round_trip(type, msg, frame, &second);
	return 1;
}

int zd_drive_spec(const uint8_t *head, size_t size)
{
	static uint8_t memory[ZD_ARENA_BYTES];
	struct zd_arena arena;
	const ProtobufCMessage *msg;
	char text[ZD_TEXT_MAX + 1] = "";

	if (size > ZD_HEAD_OPEN_MAX)
		return 0;
	zd_arena_init(&arena, memory, sizeof(memory));
	if (zd_wire_decode(&arena, ZD_MSG_OPEN, head, size, &msg, text, sizeof(text)) < 0) {
		check_text(text, sizeof(text));
		return 0;
	}
	return drive_open((const Zd__Pb__Open *)msg);
}

/* ---- frames */

struct connection {
	struct zd_reader reader;
	struct zd_rng rng;
	uint8_t *place; /* of the payload in progress */
	int accepted;
	uint8_t head_mem[ZD_HEAD_OPEN_MAX], sink[512];
};

/* A head is there: decode it, and choose a place for its payload as a lane would. */
static int take_head(struct connection *c)
{
	static uint8_t memory[ZD_ARENA_BYTES];
	const struct zd_header *h = &c->reader.header;
	const ProtobufCMessage *msg;
	struct zd_arena arena;
	char text[ZD_TEXT_MAX + 1] = "";

	zd_arena_init(&arena, memory, sizeof(memory));
	ZD_TRY(zd_wire_decode(&arena, h->type, c->reader.head, h->head_len, &msg, text, sizeof(text)));
	ZD_TRY(zd_wire_check_payload(h->type, msg, h->payload_len, text, sizeof(text)));
	drive_message(h->type, msg);
	c->accepted = 1;
	if (h->payload_len == 0)
		return 0;
	if (zd_rng_below(&c->rng, 4) == 0) {
		zd_reader_skip(&c->reader);
	} else {
		c->place = exact(h->payload_len);
		zd_reader_payload(&c->reader, c->place);
	}
	return 0;
}

static void drop_place(struct connection *c)
{
	free(c->place);
	c->place = NULL;
}

/* Everything that the bytes so far complete. */
static int take_all(struct connection *c)
{
	int rc;

	while ((rc = zd_reader_next(&c->reader)) > 0) {
		if (rc == ZD_READER_FRAME)
			drop_place(c);
		else
			ZD_TRY(take_head(c));
	}
	if (rc == 0 && c->place && zd_rng_below(&c->rng, 16) == 0) {
		zd_reader_skip(&c->reader);
		drop_place(c);
	}
	return rc;
}

int zd_drive_frames(enum zd_side from, uint64_t seed, const uint8_t *bytes, size_t size)
{
	static struct connection connection; /* once: it is large, and a sanitizer would map it anew each time */
	struct connection *c = &connection;
	char text[ZD_TEXT_MAX + 1] = "";
	int rc = 0;

	c->rng = (struct zd_rng){seed};
	c->place = NULL;
	c->accepted = 0;
	zd_reader_init(&c->reader, from, c->head_mem, sizeof(c->head_mem));
	for (size_t at = 0; at < size && rc == 0;) {
		struct zd_span window = zd_reader_window(&c->reader, (struct zd_span){c->sink, sizeof(c->sink)});
		size_t n = size - at < window.len ? size - at : window.len;

		ZD_ASSERT(window.len > 0);
		if (zd_rng_below(&c->rng, 2))
			n = 1 + zd_rng_below(&c->rng, n);
		memcpy(window.base, bytes + at, n);
		at += n;
		zd_reader_advance(&c->reader, n);
		rc = take_all(c);
	}
	if (rc < 0) {
		zd_header_explain(text, sizeof(text), rc, &c->reader.header);
		check_text(text, sizeof(text));
	}
	drop_place(c);
	return c->accepted;
}

void zd_drive_fix(uint8_t *bytes, size_t size)
{
	while (size >= ZD_HEADER_BYTES) {
		uint32_t head_len = zd_get32(bytes + 8), payload_len = zd_get32(bytes + 12);
		size_t left = size - ZD_HEADER_BYTES;

		if (head_len > left)
			return;
		if (payload_len <= left - head_len)
			zd_put32(bytes + 20, zd_crc32c(0, bytes + ZD_HEADER_BYTES + head_len, payload_len));
		zd_put32(bytes + 16, 0);
		zd_put32(bytes + 16, zd_crc32c(0, bytes, ZD_HEADER_BYTES + head_len));
		if (payload_len > left - head_len)
			return;
		bytes += ZD_HEADER_BYTES + head_len + payload_len;
		size = left - head_len - payload_len;
	}
}
