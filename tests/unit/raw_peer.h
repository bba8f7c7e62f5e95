/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A peer that speaks frames over a blocking loopback socket, right or wrong, for tests of the shell.  Nothing waits longer than
 * RAW_PEER_LIMIT_S: a daemon that does not answer fails the test instead of hanging it.
 */
#ifndef ZD_TESTS_RAW_PEER_H
#define ZD_TESTS_RAW_PEER_H

#include <stddef.h>
#include <stdint.h>

#include "proto/wire.h"

#define RAW_PEER_LIMIT_S 20

struct raw_peer {
	int fd;
	struct zd_reader reader;
	uint8_t head_mem[ZD_HEAD_OPEN_MAX];
	uint8_t payload[ZD_PAYLOAD_MAX];
	uint8_t arena_mem[ZD_ARENA_BYTES];
	struct zd_arena arena;
	const ProtobufCMessage *msg; /* of the last frame received */
};

/* Instead of a message type: the orderly end, nothing for too long, not a frame, a reset. */
enum { RAW_CLOSED = 0, RAW_TIMED_OUT = -1, RAW_BROKEN = -2, RAW_RESET = -3 };

/* 0, or -1: nobody listens. */
int raw_open(struct raw_peer *p, uint16_t port);
void raw_close(struct raw_peer *p);

/* Bytes as they are: 0, or -1 when the connection ended before all were taken. */
int raw_bytes(struct raw_peer *p, const void *bytes, size_t len);
/* A frame into `out` (size as for the largest head); returns its length without the payload. */
size_t raw_frame(uint8_t *out, size_t size, uint16_t type, uint64_t stream, const ProtobufCMessage *msg, const void *payload,
		 uint32_t payload_len);
void raw_send(struct raw_peer *p, uint16_t type, uint64_t stream, const ProtobufCMessage *msg, const void *payload, uint32_t payload_len);

/* The type of the next frame (p->msg, p->payload, p->reader.header), or one of RAW_*. */
int raw_receive(struct raw_peer *p);

size_t raw_hello_frame(uint8_t *out, size_t size, enum zd_role role, uint32_t lane);
/* HELLO; 1 after WELCOME, else 0. */
int raw_hello(struct raw_peer *p, enum zd_role role, uint32_t lane);

#endif
