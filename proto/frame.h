/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames: what every byte between a client and a lane is part of.
 *
 *  0      4         6      8          12            16          20            24        32
 *  +------+---------+------+----------+-------------+-----------+-------------+---------+
 *  |magic | version | type | head_len | payload_len | head_crc  | payload_crc | stream  |   32 bytes, little-endian
 *  +------+---------+------+----------+-------------+-----------+-------------+---------+
 *  | head: one protobuf message of that type                                            |
 *  | payload: raw tensor bytes                                                          |
 *  +------------------------------------------------------------------------------------+
 *
 * head_crc is the CRC32C of the header with the field itself taken as zero, followed by the head.  payload_crc is the CRC32C of the
 * payload (0 without one).  Because the head has a checksum of its own, the place for a payload is chosen from a head that is already
 * verified.  stream is chosen by the client and repeated in every answer to that request; frames that answer nothing carry 0.
 *
 * The reader takes a connection's bytes in whatever pieces they come and allocates nothing.  It names the memory for the next bytes
 * (zd_reader_window), the caller puts bytes there and reports how many (zd_reader_advance), and is told what they completed.  Headers
 * and small heads land in a buffer of one page inside the reader; payload bytes behind them in the same read are copied to their
 * place, all others are received there directly.
 *
 * Threads: none; a reader belongs to one thread.
 */
#ifndef ZD_PROTO_FRAME_H
#define ZD_PROTO_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"
#include "proto/limits.h"

#define ZD_MAGIC 0x444f525au /* the bytes "ZROD" */
#define ZD_VERSION 1u

/* Feature bits of HELLO and WELCOME; what both have is used. */
#define ZD_FEATURE_PAYLOAD_CRC 1u /* payloads carry a checksum; switched off only where TLS already protects them */

enum zd_msg_type {
#define X(name, number, from, head_max, pl_min, pl_max, Pb, pb) ZD_MSG_##name = number,
#include "proto/msg.def"
#undef X
	ZD_MSG_MAX = 64
};

enum zd_side { ZD_SIDE_CLIENT, ZD_SIDE_SERVER }; /* who sends */

enum zd_role { ZD_ROLE_WORKER = 1, ZD_ROLE_READER = 2, ZD_ROLE_ADMIN = 3 };

struct zd_header {
	uint16_t version;
	uint16_t type;
	uint32_t head_len;
	uint32_t payload_len;
	uint32_t head_crc;
	uint32_t payload_crc;
	uint64_t stream;
	uint32_t magic; /* as read; written as ZD_MAGIC whatever it says */
};

/* "PUSH"; "unknown" for a number msg.def does not have. */
const char *zd_msg_name(uint16_t type);
/* The longest head of that type; 0 for a number msg.def does not have. */
uint32_t zd_msg_head_max(uint16_t type);

/* Writes 32 bytes.  magic and head_crc are computed here, the latter over header and head; the rest is taken from *header. */
void zd_header_encode(uint8_t out[ZD_HEADER_BYTES], const struct zd_header *header, const uint8_t *head);

/* Decodes and checks magic, version, type, that `from` may send this type, and both lengths against the type's limits.
 * Returns 0 or -ZD_ERR_BAD_MAGIC, _BAD_VERSION, _BAD_TYPE, _BAD_LENGTH; *ret_header holds whatever was read in any case, so that an
 * error text can name it. */
int zd_header_decode(const uint8_t in[ZD_HEADER_BYTES], enum zd_side from, struct zd_header *ret_header) ZD_MUST_USE;

/* Text for people about a refused header: what was expected, what was found. */
void zd_header_explain(char *out, size_t size, int err, const struct zd_header *header);

struct zd_span {
	uint8_t *base;
	size_t len;
};

enum zd_reader_status {
	ZD_READER_MORE = 0,  /* feed it */
	ZD_READER_HEAD = 1,  /* header and head are there and verified: look at them, then zd_reader_payload or _skip if payload_len > 0 */
	ZD_READER_FRAME = 2, /* the payload is complete and verified (or skipped, or left to the owner) */
			     /* negative: -ZD_ERR_*, the stream is lost; zd_reader_init begins another, all else repeats the error */
};

struct zd_reader {
	enum zd_side from;
	uint8_t state;
	uint8_t check_payload; /* ZD_FEATURE_PAYLOAD_CRC is agreed; 1 after init */
	uint8_t unchecked;     /* this payload's checksum is left to the owner */
	struct zd_header header;
	uint8_t *head_mem;     /* where heads longer than the landing are gathered; lent by the owner */
	size_t head_cap;
	uint8_t *head;	       /* the current head, valid from HEAD until the next zd_reader_next after it */
	uint8_t *payload;      /* NULL: skipped */
	uint32_t got;	       /* bytes of head or payload that are in place */
	uint32_t crc;	       /* of the payload so far */
	uint32_t begin, end;   /* unread bytes in landing */
	int error;	       /* why it failed */
	struct zd_span window; /* the last one given out, until it is used */
	uint8_t landing[ZD_LANDING_BYTES];
};

/* head_mem: memory for heads that do not fit the landing (ZD_HEAD_OPEN_MAX at most; what does not fit head_cap is BAD_LENGTH); may be
 * NULL with head_cap 0.  It must live as long as the reader. */
void zd_reader_init(struct zd_reader *r, enum zd_side from, void *head_mem, size_t head_cap);

/* The memory for the next bytes; never empty except between ZD_READER_HEAD and the choice of a payload place, and after an error.
 * Skipped payloads are received into `sink`, which several readers of one thread may share; without one ({NULL, 0}) into the landing,
 * a page at a time. */
struct zd_span zd_reader_window(struct zd_reader *r, struct zd_span sink);

/* `n` bytes were put at the start of the last window.  Follow with zd_reader_next until it returns ZD_READER_MORE. */
void zd_reader_advance(struct zd_reader *r, size_t n);

/* Goes on as far as the bytes allow: enum zd_reader_status or a negative error (-ZD_ERR_BAD_MAGIC from four bytes on).  A frame without
 * payload returns HEAD and then FRAME.  Between HEAD and the choice of a payload place it returns MORE: the choice may be made later. */
int zd_reader_next(struct zd_reader *r) ZD_MUST_USE;

/* After ZD_READER_HEAD with payload_len > 0: where the payload goes (payload_len bytes, lent until FRAME, error or the owner's end), or
 * that it is thrown away (its checksum is verified all the same).  Bytes that are there already are copied to their place; zd_reader_next
 * then tells whether they were all.  zd_reader_skip may also come while a payload is being received: the place is given back, the window
 * is void, and the rest of the payload is thrown away.  After an error it does nothing more than that. */
void zd_reader_payload(struct zd_reader *r, uint8_t *place);
void zd_reader_skip(struct zd_reader *r);

/* As zd_reader_payload, for an owner who reads the payload anyway and computes its checksum in the same pass: before anything else is done
 * with the payload he compares it with header.payload_crc, if check_payload says so, and a mismatch is his -ZD_ERR_BAD_CHECKSUM. */
void zd_reader_payload_unchecked(struct zd_reader *r, uint8_t *place);

#endif
