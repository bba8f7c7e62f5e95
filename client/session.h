/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's mirror of the protocol, pure like the lane's core: events in, actions out, time as an argument, no sockets, no threads,
 * no clock.  It owns the ballot, one link per lane, the agreement on rounds, the queues of pushes and fetches with their credits, and the
 * rate limiter.  The pump (pump.c) turns libuv callbacks and API calls into events; the simulated world drives it without either.
 *
 *     shell                           session                                          module
 *     UP BYTES SENT DOWN ACKED ----->  links: greeting, frames, pings, backoff          link.c
 *                                     JOIN, resolve, COMMIT, decide, APPLY, redo       agree.c
 *     REQ_*               --events--> PUSH, LOAD, SEAL: queues, credits, resends       push.c
 *                                     FETCH, DATA                                      fetch.c
 *                                     gather buffers, limiter, plan, prefetch          gather.c
 *                         <-actions-- CONNECT SEND CLOSE DONE
 *
 * Rules of the border
 *  - A connection is named by (slot, generation).  CONNECT names a new one; the shell answers UP, or DOWN if it cannot.  Every generation
 *    that was named ends with exactly one DOWN, also after CLOSE.  Events of an older generation are ignored.
 *  - zd_session_window is the memory for the next bytes of a connection; BYTES says how many came.  It is empty only for connections that
 *    the session has closed.
 *  - A SEND's payload is lent until SENT with its token or until DOWN.  SENT events of one connection come in the order of its SENDs.
 *  - Frames of one connection must leave in the order of the SEND actions; the shell should put all SENDs of one step into one write.
 *  - A request is named by a number that the caller chooses; it ends with exactly one DONE, after which no memory of the request is
 *    touched.  RELEASE and PLAN have no DONE.
 *  - After each step the shell asks zd_session_deadline and feeds TICK then; a deadline that has passed means: at once (a step that ran out of
 *    room in `actions` continues so).
 *
 * Memory: all of it from the allocator of the configuration: tables at zd_session_new and when the number of lanes becomes known, a small
 * record per request, and gather buffers, which the limiter bounds.  A failed allocation fails the request, nothing else.
 * Threads: belongs to one thread (the pump's).
 */
#ifndef ZD_CLIENT_SESSION_H
#define ZD_CLIENT_SESSION_H

#include <stddef.h>
#include <stdint.h>

#include "client/include/zerod.h"
#include "proto/decide.h"
#include "proto/frame.h"
#include "proto/spec.h"
#include "server/core/time.h"

struct zd_session;

struct zd_session_config {
	const struct zd_spec *spec; /* checked by zd_spec_check; copied */
	const char *const *daemons; /* "host:port", for texts; copied, 255 bytes each */
	uint32_t daemon_count;	    /* 1..ZD_LANES_MAX */
	uint32_t rank, world;	    /* world 0: a reader */
	uint64_t epoch, launch;
	uint64_t process;	    /* random, of this process life */
	uint64_t seed;		    /* of the jitter */
	uint64_t gather_bytes_max;  /* 0: the two largest units */
	uint32_t prefetch;	    /* units */
	uint8_t create;
	uint32_t features;	    /* offered in HELLO */
	void *(*alloc)(void *ctx, size_t size); /* aligned to 64 bytes, not zeroed; NULL if there is none */
	void (*release)(void *ctx, void *memory);
	void *alloc_ctx;
	zd_time now;
};

/* NULL when memory is short.  The limiter's bound must hold the largest unit: see zd_session_gather_min. */
struct zd_session *zd_session_new(const struct zd_session_config *config);
/* Frees everything.  No connection may be open any more (REQ_STOP, then DOWN of all). */
void zd_session_free(struct zd_session *s);

/* Bytes of the largest unit's weights, and of the two largest. */
uint64_t zd_session_gather_min(const struct zd_spec *spec);
uint64_t zd_session_gather_default(const struct zd_spec *spec);

/* ---------------------------------------------------------------- events */

enum zd_session_event_type {
	ZD_SE_UP,    /* connected */
	ZD_SE_BYTES, /* bytes were put at the start of the window */
	ZD_SE_SENT,  /* the payload of a SEND has left */
	ZD_SE_DOWN,  /* the connection is gone (or never came), and with it every use of lent memory */
	ZD_SE_TICK,
	ZD_SE_ACKED, /* the peer's host has acknowledged bytes: before a TICK where the session doubts a connection */

	ZD_SE_REQ_CONNECT,
	ZD_SE_REQ_LOAD,
	ZD_SE_REQ_SEAL,
	ZD_SE_REQ_GATHER,
	ZD_SE_REQ_RELEASE,
	ZD_SE_REQ_PLAN,
	ZD_SE_REQ_FETCH, /* into the caller's memory */
	ZD_SE_REQ_PUSH,
	ZD_SE_REQ_FLUSH, /* done when no push is open; status: the first that failed since the last FLUSH or STEP */
	ZD_SE_REQ_STEP,
	ZD_SE_REQ_STOP,	 /* everything ends with ZEROD_ERR_CANCELED, connections are closed; has no DONE of its own */
};

enum zd_plane { ZD_PLANE_WEIGHTS = 1, ZD_PLANE_MASTER = 2, ZD_PLANE_GRADIENT = 3 };

struct zd_session_event {
	enum zd_session_event_type type;
	zd_time now;
	uint32_t slot, gen;	/* UP BYTES SENT DOWN ACKED */
	uint64_t request;	/* REQ_*: never 0 where a DONE follows */
	zd_time deadline;	/* REQ_*: ZD_TIME_NEVER, or when it ends with ZEROD_ERR_TIMEOUT */
	union {
		struct {
			uint8_t greeted; /* HELLO and WELCOME have happened outside: lane_count and features are the door's */
			uint32_t lane_count;
			uint64_t features;
		} up;
		struct {
			size_t len;
		} bytes;
		struct {
			uint64_t token;
		} sent;
		struct {
			zd_time at; /* when the last acknowledgement came */
		} acked;
		struct {
			const char *text; /* why, for people: "connection refused"; copied */
			uint8_t fatal;	  /* 1: trying again is pointless (the name does not resolve) */
			uint8_t own;	  /* 1: this process lacks something; nothing is said about the daemon */
		} down;
		struct {
			uint32_t unit, codec;
			const void *data;
		} load;
		struct {
			uint32_t unit;
			uint8_t keep; /* RELEASE */
		} gather;
		struct {
			const uint32_t *units; /* copied */
			uint32_t count;
		} plan;
		struct {
			uint32_t unit;
			enum zd_plane plane;
			void *dst; /* numel elements: bf16 for weights, else fp32 */
		} fetch;
		struct {
			uint32_t unit, micro, micro_batches;
			const void *data;
			uint8_t tells; /* 1: a caller waits for this DONE, so that its ZEROD_REDO counts as told (see REDO) */
		} push;
		struct {
			struct zd_hyper hyper; /* checked by zd_hyper_check */
			uint32_t micro_batches;
		} step;
	} u;
};

/*
 * REDO.  When contributions are lost, everything open of the step ends with ZEROD_REDO, and so does every later PUSH until the trainer must know:
 * that is when a STEP, a FLUSH or a PUSH with `tells` has ended with it.  From then on a new computation of the step may be pushed.
 */

/* ---------------------------------------------------------------- actions */

enum zd_session_action_type { ZD_SA_CONNECT, ZD_SA_SEND, ZD_SA_CLOSE, ZD_SA_DONE };

struct zd_session_action {
	enum zd_session_action_type type;
	uint32_t slot, gen; /* CONNECT SEND CLOSE */
	union {
		struct {
			uint32_t daemon; /* index into the configuration */
			uint32_t lane;	 /* of that daemon, for HELLO */
		} connect;
		struct {
			uint32_t frame; /* offset of header and head in actions->bytes */
			uint32_t frame_len;
			const uint8_t *payload; /* lent */
			uint32_t payload_len;
			uint64_t token; /* of SENT; only sends with payload have one, from 1 */
		} send;
		struct {
			uint64_t request;
			int status;    /* enum zerod_status */
			uint32_t text; /* offset of a NUL-terminated text in actions->bytes; "" with status 0 */
			const uint16_t *weights; /* GATHER */
		} done;
	} u;
};

/* Room of one step: what does not fit is emitted by the next, at once. */
#define ZD_SESSION_ACTIONS_MAX 1024u
#define ZD_SESSION_BYTES_MAX (512u * 1024u)

struct zd_session_actions {
	uint32_t count;
	uint32_t used; /* of bytes */
	struct zd_session_action item[ZD_SESSION_ACTIONS_MAX];
	uint8_t bytes[ZD_SESSION_BYTES_MAX];
};

/* Takes one event; *actions is emptied first.  Never fails. */
void zd_session_step(struct zd_session *s, const struct zd_session_event *event, struct zd_session_actions *actions);

/* ---------------------------------------------------------------- queries, without effect */

struct zd_span zd_session_window(struct zd_session *s, uint32_t slot, uint32_t gen);
zd_time zd_session_deadline(const struct zd_session *s);
/* The next TICK gives this connection up, unless ACKED comes before. */
int zd_session_doubts(const struct zd_session *s, uint32_t slot, uint32_t gen, zd_time now);

/* Where the session stands; a copy. */
struct zd_session_view {
	struct zd_ballot ballot;
	uint8_t connected; /* resolved at least once; a reader: every lane is open */
	uint8_t sealed;
	uint8_t agreeing;  /* a JOIN or its resolution is under way */
	uint64_t decided, step;
	uint32_t lanes;	   /* 0 until known */
	uint64_t absent, behind; /* ranks as bits: see zerod_progress */
	int failed;	   /* enum zerod_status: why nothing goes on any more, 0 while it does */
};
void zd_session_view(const struct zd_session *s, struct zd_session_view *ret_view);
void zd_session_result(const struct zd_session *s, struct zerod_step_result *ret_result); /* of the last round that this session saw decided */
void zd_session_stats(const struct zd_session *s, struct zerod_stats *ret_stats);
const char *zd_session_failure(const struct zd_session *s); /* text for view.failed, "" */

#endif
