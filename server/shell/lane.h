/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lane: a thread with its own loop, core, slab and store.  It turns callbacks into events, carries actions out, and decides nothing.
 *
 *     door --handover--> mailbox --async--> link (one connection) --BYTES--> core --actions--> kernels, store, outbox --write--> socket
 *
 * One turn of the loop: reads (at most ZD_LINK_QUOTA bytes of one connection, so that a ping does not wait behind a push), each followed by
 * its steps; then everything that the steps sent is written, one gathered write per connection.
 *
 * Threads: zd_lane_new and zd_lane_free by the owner, while the lane's thread does not run; the other functions here from any thread.
 * Nothing else is shared: the mailbox has a mutex, the rest are atomic words.
 */
#ifndef ZD_SHELL_LANE_H
#define ZD_SHELL_LANE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <uv.h>

#include "proto/err.h"
#include "server/core/time.h"
#include "server/kernel/kernel.h"
#include "server/shell/transport.h"

struct zd_lane_config {
	uint32_t index;
	uint32_t max_conns, max_jobs, windows;
	uint64_t slab_bytes; /* a multiple of ZD_LANE_SLAB_ALIGN */
	uint64_t job_max_bytes;
	uint64_t uuid_seed;
	int huge_pages;
	int cpu;		 /* to pin to, -1: none */
	zd_time linger_ns;
	zd_time peer_ns;
	const char *daemon;	 /* outlives the lane */
	const struct zd_kernels *kernels;
	uv_async_t *owner;	 /* sent when the lane has drained or ended; outlives the lane's thread */
	atomic_uint *connections;/* of the whole daemon; counted up by the door, down by whoever closes */
};

/* A huge page, so that all of the slab can be in them. */
#define ZD_LANE_SLAB_ALIGN (2u << 20)

struct zd_lane;

/* Memory of a lane besides its slab (core's tables included), for the budget. */
size_t zd_lane_fixed_bytes(const struct zd_lane_config *config);

/* Maps the slab, makes the loop and starts the thread.  0 and a lane, or a negative UV_E* with nothing left behind. */
int zd_lane_new(struct zd_lane **ret_lane, const struct zd_lane_config *config) ZD_MUST_USE;

/* Takes ownership of h. */
void zd_lane_handover(struct zd_lane *lane, struct zd_handover *h);

void zd_lane_drain(struct zd_lane *lane); /* ZD_EV_DRAIN; then zd_lane_drained turns 1 when no round is open */
int zd_lane_drained(const struct zd_lane *lane);
/* Closes all connections, after what is queued is written unless `hurry`, then ends the thread.  May be repeated with hurry. */
void zd_lane_stop(struct zd_lane *lane, int hurry);
int zd_lane_ended(const struct zd_lane *lane);

/* For the watchdog: asks for a sign of life; how many of those were not answered yet. */
void zd_lane_poke(struct zd_lane *lane);
uint32_t zd_lane_unanswered(const struct zd_lane *lane);

void zd_lane_reload(struct zd_lane *lane, zd_time linger_ns, zd_time peer_ns);

/* After zd_lane_stop: waits for the thread and frees everything, handovers that came too late included. */
void zd_lane_free(struct zd_lane *lane);

#endif
