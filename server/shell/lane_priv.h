/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of a lane, for lane.c (thread and loop), link.c (connections) and act.c (events and actions).  All of it on the lane's thread. */
#ifndef ZD_SHELL_LANE_PRIV_H
#define ZD_SHELL_LANE_PRIV_H

#include "server/core/core.h"
#include "server/kernel/call.h"
#include "server/shell/lane.h"
#include "server/shell/outbox.h"
#include "server/store/store.h"

/* Bytes read from one connection before the others get their turn: two payloads.  libuv alone would take 32 windows, 8 MiB. */
#define ZD_LINK_QUOTA (512u << 10)
/* A write starts before the end of the turn once this much waits: sends of 64 KiB reach a quarter of the rate of sends of 1 MiB. */
#define ZD_LINK_BATCH (1u << 20)
/* Writes on their way at once: while one is reported the next already fills the socket. */
#define ZD_LINK_WRITES 2u
/* Where bytes nobody wants go; any size that makes few reads of them would do. */
#define ZD_LANE_SINK_BYTES 65536u

/*
 *   FREE --handover--> OPEN --CLOSE flush, lane stops--> FLUSHING --all written--> LINGER --EOF, deadline--> CLOSING --> FREE
 *                        \---CLOSE now, error, EOF---------------------------------------------------------^
 *
 * OPEN      the core knows the connection and names the memory for its bytes
 * FLUSHING  input is thrown away, queued output is written, bounded by deadline
 * LINGER    our side is shut down; input is thrown away until the peer closes, or else the reason of the close could get lost in a reset
 * CLOSING   uv_close was called; the core is told in its callback, when nothing touches lent memory any more
 */
enum zd_link_state { ZD_LINK_FREE, ZD_LINK_OPEN, ZD_LINK_FLUSHING, ZD_LINK_LINGER, ZD_LINK_CLOSING };

struct zd_link_write {
	uv_write_t req;
	struct zd_outbox_write out;
};

struct zd_link {
	struct zd_lane *lane;
	struct zd_conn_id id;
	enum zd_link_state state;
	uint8_t known;	/* to the core */
	uint8_t parked; /* reading is stopped until its window opens */
	uint8_t dirty;	/* in the lane's list of links with something to write */
	struct zd_link *next_dirty, *next_free;
	zd_time deadline; /* FLUSHING, LINGER */
	uint64_t turn;	  /* in which `turn_bytes` were read */
	uint32_t turn_bytes;
	uint32_t write_first, write_count; /* ring of writes on their way */
	uv_tcp_t tcp;
	struct zd_tls *tls;
	uv_shutdown_t shutdown;
	struct zd_outbox outbox;
	struct zd_link_write writes[ZD_LINK_WRITES];
};

/* Kernels that ran and whose event is not fed yet: the work of one step, twice over. */
#define ZD_LANE_RESULTS (2 * ZD_ACTIONS_MAX)

struct zd_lane {
	struct zd_lane_config config;
	uv_thread_t thread;
	int thread_started;
	uv_loop_t loop;
	int loop_ready;
	uv_async_t async;
	uv_timer_t timer;
	uv_prepare_t prepare;
	uv_check_t check;
	uv_idle_t idle;

	/* shared with other threads */
	uv_mutex_t mutex; /* inbox */
	int mutex_ready;
	struct zd_handover *inbox_first, **inbox_last;
	atomic_int want_drain, want_stop, drained, ended;
	atomic_uint pulse, pokes;
	_Atomic uint64_t linger_ns, peer_ns;

	/* the lane's own */
	void *slab, *arena, *rings;
	size_t arena_bytes, rings_bytes;
	struct zd_core *core;
	struct zd_store store;
	struct zd_actions *actions;
	int feeding; /* zd_lane_feed is on the stack: it must not be entered again */
	struct zd_kernel_result *results;
	size_t results_bytes;
	uint32_t result_first, result_count;
	struct zd_link *links; /* max_conns */
	struct zd_link *free_links, *dirty_links;
	uint32_t open_links, parked_links, closing_links; /* not FREE; parked; FLUSHING or LINGER */
	uint64_t turn;
	zd_time timer_at; /* what the timer is set to, ZD_TIME_NEVER: not running */
	int draining, stopping;
	uint8_t *sink;
	struct zd_kernel_scratch *scratch;
};

/* act.c.  The event's time is set here. */
void zd_lane_feed(struct zd_lane *lane, struct zd_event *event);

/* link.c */
void zd_links_init(struct zd_lane *lane);
void zd_link_open(struct zd_lane *lane, struct zd_handover *h); /* takes what h refers to, not h itself */
struct zd_link *zd_link_find(struct zd_lane *lane, struct zd_conn_id id); /* NULL unless OPEN */
void zd_link_send(struct zd_link *link, const uint8_t *frame, uint32_t frame_len, const uint8_t *payload, uint32_t payload_len,
		  uint64_t token);
void zd_link_finish(struct zd_link *link); /* close after what is queued */
void zd_link_close(struct zd_link *link);  /* close now */
void zd_links_flush(struct zd_lane *lane);
void zd_links_unpark(struct zd_lane *lane);
void zd_links_expire(struct zd_lane *lane, zd_time now);
zd_time zd_links_deadline(const struct zd_lane *lane);

#endif
