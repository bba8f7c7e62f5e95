/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pump: one libuv thread per client that carries the session's actions out and brings it events.  It decides nothing.
 *
 * Threads: zd_pump_post and zd_pump_look from any thread; everything else of it runs on its own thread, callbacks of operations included.
 * All signals are blocked there.
 */
#ifndef ZD_CLIENT_PUMP_H
#define ZD_CLIENT_PUMP_H

#include "client/session.h"

#define ZD_HOST_MAX 255u /* bytes of a host name: what the DNS allows */

struct zd_pump;

struct zd_endpoint {
	char host[ZD_HOST_MAX + 1]; /* without brackets */
	char port[6];
};

/* One request on its way to the session.  `event` is filled by the caller, `request` of it by the pump.  finish runs on the pump's thread when it has
 * ended; the operation belongs to it from then on.  RELEASE, PLAN and STOP have no end: their finish runs when the session has seen them. */
struct zd_op {
	struct zd_op *next;
	struct zd_session_event event;
	void (*finish)(struct zd_op *op, int status, const char *text, const uint16_t *weights);
};

/* What the session looked like after its last event. */
struct zd_pump_view {
	struct zd_session_view session;
	struct zerod_step_result result;
	struct zerod_stats stats;
};

/* session: alloc, release and now are filled in here.  endpoints: daemon_count entries, copied.  0 or an enum zerod_status; then *ret_lacks says
 * what the process has too little of, and what to do. */
int zd_pump_new(struct zd_pump **ret_pump, const struct zd_session_config *session, const struct zd_endpoint *endpoints, const char **ret_lacks)
	ZD_MUST_USE;
/* -1: the pump ends, which its callbacks can see, and the operation remains the caller's. */
int zd_pump_post(struct zd_pump *p, struct zd_op *op) ZD_MUST_USE;
void zd_pump_look(struct zd_pump *p, struct zd_pump_view *ret_view);
/* Is the caller the pump's thread? */
int zd_pump_is_own_thread(const struct zd_pump *p);
/* Ends every open operation with ZEROD_ERR_CANCELED, closes all connections, joins the thread.  Not from the pump's thread. */
void zd_pump_free(struct zd_pump *p);
zd_time zd_pump_now(void);

#endif
