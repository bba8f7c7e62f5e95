/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A blocking connection of role admin to one lane, for commands that ask and print.  Training goes through libzerod; this is for the
 * administrative messages, which have no place in a trainer's library.
 *
 * Threads: none.  Every wait is bounded by the deadline given at open.
 */
#ifndef ZD_CLI_ADMIN_H
#define ZD_CLI_ADMIN_H

#include <stdint.h>

#include "proto/frame.h"
#include "proto/wire.h"

/* Exit codes of zeroctl; documented in zeroctl(1). */
enum zd_ctl_exit {
	ZD_CTL_OK = 0,
	ZD_CTL_FAILED = 1,
	ZD_CTL_USAGE = 2,
	ZD_CTL_CONNECT = 3,
	ZD_CTL_REFUSED = 4,
	ZD_CTL_UNHEALTHY = 5,
	ZD_CTL_TIMEOUT = 124,
	ZD_CTL_INTERRUPTED = 130,
};

struct zd_admin {
	int fd;
	uint64_t deadline_ns; /* CLOCK_MONOTONIC */
	char endpoint[300];
	uint32_t lane;
	uint32_t lane_count; /* of the daemon */
	char daemon[ZD_NAME_MAX + 1];
	char detail[ZD_TEXT_MAX + 1]; /* the last error in words */
	struct zd_reader reader;
	struct zd_arena arena;
	uint8_t *memory; /* head, arena and frame under construction */
};

/* Connects to "host:port" and says HELLO for `lane`.  0 or an enum zd_ctl_exit, with detail. */
int zd_admin_open(struct zd_admin *a, const char *endpoint, uint32_t lane, uint64_t deadline_ns) ZD_MUST_USE;
void zd_admin_close(struct zd_admin *a);

/* Sends a message without payload and waits for the answer of type `want`.  The answer lives until the next call.  An ERROR frame is
 * ZD_CTL_REFUSED with the daemon's words in detail and its code in *ret_code (may be NULL). */
int zd_admin_ask(struct zd_admin *a, uint16_t type, const ProtobufCMessage *msg, uint16_t want, const ProtobufCMessage **ret_answer,
		 uint32_t *ret_code) ZD_MUST_USE;

uint64_t zd_admin_now_ns(void);

#endif
