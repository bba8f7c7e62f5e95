/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions and real lane cores in one thread, joined by pipes of bytes that deliver pieces of random size, with a clock that only jumps.
 * Everything follows from the seed.  For tests of the client; the simulated world in tests/sim tests the agreement.
 */
#ifndef ZD_TEST_CLIENT_WORLD_H
#define ZD_TEST_CLIENT_WORLD_H

#include "client/session.h"
#include "server/core/core.h"

#define CW_LANES 4
#define CW_PEERS 4
#define CW_REQS 4096

struct cw_result {
	uint8_t done;
	int status;
	char text[512];
	const uint16_t *weights;
};

struct cw_world;

struct cw_config {
	struct zd_spec spec;
	uint32_t lanes, daemons; /* lanes are spread evenly over the daemons */
	uint32_t peers;		 /* sessions */
	uint32_t readers;	 /* so many of them, the last ones; the others are the world */
	uint8_t rivals;		 /* each is rank 0 of a world of 1, in the epoch of its number + 1 */
	uint32_t prefetch;
	uint64_t gather_bytes_max;
	uint64_t seed;
	uint32_t piece_max; /* bytes delivered at once, at most */
};

struct cw_world *cw_new(const struct cw_config *config);
void cw_free(struct cw_world *w);

struct zd_session *cw_session(struct cw_world *w, uint32_t peer);
struct zd_core *cw_core(struct cw_world *w, uint32_t lane);
zd_time cw_now(const struct cw_world *w);
uint64_t cw_random(struct cw_world *w);

/* Feeds a request (its number, time and deadline are filled in) and returns what will hold its end. */
struct cw_result *cw_request(struct cw_world *w, uint32_t peer, struct zd_session_event *ev);
/* Delivers until the request is done; fails the test after too many turns. */
void cw_wait(struct cw_world *w, const struct cw_result *r);
/* One delivery or one jump of the clock; 0: nothing can happen any more. */
int cw_turn(struct cw_world *w);
/* Cuts the connection of a peer to a lane, if there is one; what is in the pipes is lost. */
void cw_cut(struct cw_world *w, uint32_t peer, uint32_t lane);
/* The lane's process dies and comes back empty. */
void cw_wipe(struct cw_world *w, uint32_t lane);
/* Nothing that the peer sends arrives any more, and nothing reaches it; or again. */
void cw_mute(struct cw_world *w, uint32_t peer, int muted);
/* Heap bytes that sessions hold: now, and most since the last call. */
size_t cw_heap(const struct cw_world *w);
size_t cw_heap_peak(struct cw_world *w);

#endif
