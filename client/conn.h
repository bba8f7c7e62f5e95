/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One socket of the pump: resolves, connects, reads into the session's windows, writes batches of frames, and tells when it is down.
 * Freed in its last close callback and nowhere else.  Pump thread only.
 */
#ifndef ZD_CLIENT_CONN_H
#define ZD_CLIENT_CONN_H

#include <uv.h>

#include "client/pump.h"

struct zd_conn;

/* What the owner of the sockets is told.  down (fatal, own: see struct zd_session_event): the last word; memory of the connection's sends is no longer touched, and it is freed. */
struct zd_conn_owner {
	uv_loop_t *loop;
	void *arg;
	void (*up)(void *arg, uint32_t slot, uint32_t gen);
	struct zd_span (*window)(void *arg, uint32_t slot, uint32_t gen);
	void (*bytes)(void *arg, uint32_t slot, uint32_t gen, size_t len);
	void (*sent)(void *arg, uint32_t slot, uint32_t gen, const uint64_t *tokens, uint32_t count);
	void (*down)(void *arg, uint32_t slot, uint32_t gen, const char *text, int fatal, int own);
};

/* NULL without memory.  The owner outlives it. */
struct zd_conn *zd_conn_new(const struct zd_conn_owner *owner, uint32_t slot, uint32_t gen, const struct zd_endpoint *to);
/* Frames of one step, in order: `bufs` is copied, of the memory it names `keep` says (one flag per buffer) which is the sender's until sent and which
 * must be copied.  tokens are reported by `sent`.  Failure ends in `down`. */
void zd_conn_write(struct zd_conn *c, const uv_buf_t *bufs, const uint8_t *keep, uint32_t count, const uint64_t *tokens, uint32_t token_count);
void zd_conn_close(struct zd_conn *c);
/* When the peer's host last acknowledged something; 0 if that is not known. */
zd_time zd_conn_acked(const struct zd_conn *c);

#endif
