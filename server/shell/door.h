/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The door: listens, hears HELLO, says WELCOME, and hands the connection to the lane that was asked for.
 *
 *     accept --> READING --HELLO, all right--> WELCOME, dup, mailbox of the lane --> (the old handle closes)
 *                   |-- anything else -------> ERROR, shut down, LINGER until the peer closes --> closed
 *                   `-- hello_timeout -------> ERROR TIMED_OUT, as above
 *
 * Everything before WELCOME has a fixed size: `handshakes` places of about 5 KiB, one small arena, no allocation until a peer has said
 * a correct HELLO.  While all places are taken, further connections wait in the kernel's backlog, and the oldest guest makes room.
 *
 * Threads: the daemon's main thread.
 */
#ifndef ZD_SHELL_DOOR_H
#define ZD_SHELL_DOOR_H

#include <stdatomic.h>
#include <stdint.h>

#include <uv.h>

#include "proto/err.h"
#include "server/core/time.h"
#include "server/shell/lane.h"

#define ZD_DOOR_ADDRESSES_MAX 8u

struct zd_door_config {
	uint32_t address_count;
	struct sockaddr_storage address[ZD_DOOR_ADDRESSES_MAX]; /* port 0: any, the same one for all */
	int backlog;
	uint32_t handshakes;
	uint32_t connections_max;
	zd_time hello_ns, linger_ns;
	const char *daemon; /* outlives the door */
	struct zd_lane *const *lanes;
	uint32_t lane_count;
	atomic_uint *connections; /* handed over and not closed yet */
};

struct zd_door;

/* Listens.  0 and a door, or a negative UV_E* (UV_EADDRINUSE: somebody else has the port) and in *ret_address the index of the address
 * that failed (address_count: none of them). */
int zd_door_new(struct zd_door **ret_door, uv_loop_t *loop, const struct zd_door_config *config, uint32_t *ret_address) ZD_MUST_USE;
uint16_t zd_door_port(const struct zd_door *door);
void zd_door_reload(struct zd_door *door, zd_time hello_ns, zd_time linger_ns);

/* Stops listening and closes what has not been handed over.  zd_door_free when the loop has run its close callbacks. */
void zd_door_close(struct zd_door *door);
void zd_door_free(struct zd_door *door);

#endif
