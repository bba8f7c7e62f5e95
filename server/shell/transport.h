/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection on its way from the door to a lane: the socket, the state of its encryption, and what the peer said.
 *
 * The door owns it until zd_lane_handover, the lane from then on, whatever happens there.
 */
#ifndef ZD_SHELL_TRANSPORT_H
#define ZD_SHELL_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>

#include "proto/frame.h"
#include "proto/limits.h"

struct zd_tls; /* state of an encrypted connection; connections are plain where it is NULL */

#define ZD_PEER_BYTES 64u /* "[address]:port" */

struct zd_transport {
	int fd; /* its own descriptor (dup), non-blocking, close-on-exec */
	struct zd_tls *tls;
};

struct zd_handover {
	struct zd_handover *next; /* the mailbox's */
	struct zd_transport transport;
	enum zd_role role;
	uint64_t features;
	char peer[ZD_PEER_BYTES];
	uint32_t early_len; /* plain bytes that came behind HELLO */
	uint8_t early[ZD_LANDING_BYTES];
};

#endif
