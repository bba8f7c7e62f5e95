/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections: bytes to frames, frames to handlers.
 *
 * A connection is read frame by frame.  At the verified head of a frame its handler runs; frames with a payload get a place for it, or
 * are skipped, and are finished when the payload is complete.  A handler may put the connection on hold (enum zd_hold): what is
 * unread then stays unread, the window is empty, and whoever ends the hold runs the connection again.
 */
#include <string.h>

#include "proto/assert.h"
#include "server/core/state.h"

enum { W = 1 << ZD_ROLE_WORKER, R = 1 << ZD_ROLE_READER, A = 1 << ZD_ROLE_ADMIN };

/* Who may send what, and whether OPEN must have come first. */
static const struct rule {
	uint8_t roles, job;
} rules[ZD_MSG_MAX] = {
	[ZD_MSG_OPEN] = {W | R | A, 0},	    [ZD_MSG_JOIN] = {W, 1},	   [ZD_MSG_LOAD] = {W | A, 1},	[ZD_MSG_SEAL] = {W | A, 1},
	[ZD_MSG_FETCH] = {W | R | A, 1},    [ZD_MSG_PUSH] = {W, 1},	   [ZD_MSG_COMMIT] = {W, 1},	[ZD_MSG_APPLY] = {W, 1},
	[ZD_MSG_DISCARD] = {W, 1},	    [ZD_MSG_PING] = {W | R | A, 0}, [ZD_MSG_STATUS] = {A, 0},	[ZD_MSG_SHOW] = {A, 0},
	[ZD_MSG_DROP] = {A, 0},
};

void zd_conn_open(struct zd_core *core, const struct zd_event *ev)
{
	struct zd_conn_id id = ev->u.conn.id;
	struct zd_conn *c;
	struct zd_span span;
	size_t n = 0;

	ZD_ASSERT(id.slot < core->conn_count);
	c = &core->conn[id.slot];
	ZD_ASSERT(!c->used);
	memset(c, 0, sizeof *c);
	zd_reader_init(&c->reader, ZD_SIDE_CLIENT, NULL, 0);
	c->check_payload = (ev->u.conn.features & ZD_FEATURE_PAYLOAD_CRC) != 0;
	c->reader.check_payload = c->check_payload;
	c->slot = id.slot;
	c->gen = id.gen;
	c->used = 1;
	c->at_header = 1;
	c->role = (uint8_t)ev->u.conn.role;
	c->heard = core->now;
	if (core->guest_check == ZD_TIME_NEVER)
		core->guest_check = core->now + ZD_GUEST_TIME;
	c->job = c->job_next = c->job_prev = ZD_NONE;
	while (ev->u.conn.peer && n < sizeof c->peer - 1 && ev->u.conn.peer[n])
		n++;
	if (n > 0)
		memcpy(c->peer, ev->u.conn.peer, n);
	if (ev->u.conn.early_len == 0)
		return;
	span = zd_reader_window(&c->reader, (struct zd_span){0});
	ZD_ASSERT(ev->u.conn.early_len <= span.len);
	memcpy(span.base, ev->u.conn.early, ev->u.conn.early_len);
	zd_conn_bytes(core, c, ev->u.conn.early_len);
}

void zd_conn_free_head(struct zd_core *core, struct zd_conn *c)
{
	if (!c->big_head)
		return;
	core->big_head_used[c->big_head - 1] = 0;
	c->big_head = 0;
	c->reader.head_mem = NULL;
	c->reader.head_cap = 0;
	for (uint32_t i = 0; i < core->conn_count; i++) /* rare: long heads are OPENs of very large models */
		if (core->conn[i].used && core->conn[i].hold == ZD_HOLD_HEAD)
			zd_core_queue(core, &core->conn[i]);
}

/* A head beyond the landing needs memory of its own, and only OPEN may have one. */
static int head_fits(struct zd_core *core, struct zd_conn *c)
{
	struct zd_reader *r = &c->reader;
	struct zd_header h;

	if (r->end - r->begin < ZD_HEADER_BYTES || zd_header_decode(r->landing + r->begin, ZD_SIDE_CLIENT, &h) < 0 ||
	    h.head_len <= ZD_LANDING_BYTES || c->job != ZD_NONE || c->big_head)
		return 1;
	for (uint32_t i = 0; i < ZD_BIG_HEADS; i++) {
		if (core->big_head_used[i])
			continue;
		core->big_head_used[i] = 1;
		c->big_head = (uint8_t)(i + 1);
		c->big_since = core->now;
		r->head_mem = core->big_head[i];
		r->head_cap = ZD_HEAD_OPEN_MAX;
		return 1;
	}
	return 0;
}

static void dispatch(struct zd_core *core, struct zd_conn *c, uint16_t type, const ProtobufCMessage *m)
{
	switch (type) {
	case ZD_MSG_OPEN: zd_session_open(core, c, (const Zd__Pb__Open *)m); break;
	case ZD_MSG_JOIN: zd_join_request(core, c, (const Zd__Pb__Join *)m); break;
	case ZD_MSG_LOAD: zd_session_load(core, c, (const Zd__Pb__Load *)m); break;
	case ZD_MSG_SEAL: zd_session_seal(core, c); break;
	case ZD_MSG_FETCH: zd_fetch_request(core, c, (const Zd__Pb__Fetch *)m); break;
	case ZD_MSG_PUSH: zd_reduce_push(core, c, (const Zd__Pb__Push *)m); break;
	case ZD_MSG_COMMIT: zd_round_commit(core, c, (const Zd__Pb__Commit *)m); break;
	case ZD_MSG_APPLY: zd_round_apply(core, c, (const Zd__Pb__Apply *)m); break;
	case ZD_MSG_DISCARD: zd_round_discard(core, c, (const Zd__Pb__Discard *)m); break;
	case ZD_MSG_PING: zd_join_ping(core, c, (const Zd__Pb__Ping *)m); break;
	case ZD_MSG_STATUS: zd_admin_status(core, c); break;
	case ZD_MSG_SHOW: zd_admin_show(core, c, (const Zd__Pb__Show *)m); break;
	case ZD_MSG_DROP: zd_admin_drop(core, c, (const Zd__Pb__Drop *)m); break;
	default: ZD_ASSERT(0);
	}
}

static void take_head(struct zd_core *core, struct zd_conn *c)
{
	struct zd_reader *r = &c->reader;
	const struct zd_header *h = &r->header;
	const struct rule *rule = &rules[h->type];
	const ProtobufCMessage *m;
	int rc;

	core->frames_in++;
	c->heard = core->now;
	if (!rule->roles) {
		zd_emit_error(core, c, h->stream, ZD_ERR_OUT_OF_ORDER, ZD_ABOUT_NOTHING,
			      "%s on a connection that has passed the door: send it first, and once", zd_msg_name(h->type));
		return;
	}
	if (!(rule->roles >> c->role & 1)) {
		zd_emit_error(core, c, h->stream, ZD_ERR_NO_ROLE, ZD_ABOUT_NOTHING, "%s from role %s: connect as %s",
			      zd_msg_name(h->type), c->role == ZD_ROLE_WORKER ? "worker" : c->role == ZD_ROLE_READER ? "reader" : "admin",
			      rule->roles == A ? "admin" : rule->roles == W ? "worker" : "worker or admin");
		return;
	}
	if (rule->job && !zd_job_of(core, c)) {
		zd_emit_error(core, c, h->stream, ZD_ERR_OUT_OF_ORDER, ZD_ABOUT_NOTHING, "%s before OPEN: open a job first",
			      zd_msg_name(h->type));
		return;
	}
	zd_arena_reset(&core->arena);
	rc = zd_wire_decode(&core->arena, h->type, r->head, h->head_len, &m, core->text, sizeof core->text);
	if (rc == 0)
		rc = zd_wire_check_payload(h->type, m, h->payload_len, core->text, sizeof core->text);
	if (rc < 0) {
		zd_emit_error(core, c, h->stream, -rc, ZD_ABOUT_NOTHING, "%s: %s", zd_msg_name(h->type), core->text);
		return;
	}
	c->take = (struct zd_taking){.kind = ZD_TAKE_NO, .window = ZD_NONE16};
	dispatch(core, c, h->type, m);
	zd_arena_reset(&core->arena);
	if (!c->closing && h->payload_len > 0 && c->take.kind == ZD_TAKE_NO && c->hold == ZD_HOLD_NO) {
		c->take.kind = ZD_TAKE_SKIP;
		zd_reader_skip(r);
	}
}

static void take_frame(struct zd_core *core, struct zd_conn *c)
{
	uint8_t kind = c->take.kind;

	if (kind == ZD_TAKE_SLOT || kind == ZD_TAKE_WINDOW)
		zd_reduce_received(core, c);
	else if (kind == ZD_TAKE_LOAD)
		zd_session_loaded(core, c);
	else if (kind == ZD_TAKE_SKIP && c->take.late && c->joined)
		zd_emit_applied(core, c, c->take.stream);
	else if (kind == ZD_TAKE_SKIP && c->take.answer && c->joined)
		zd_emit_pushed(core, c, c->take.stream, c->take.unit);
	if (c->hold != ZD_HOLD_KERNEL)
		c->take.kind = ZD_TAKE_NO;
	zd_conn_free_head(core, c);
}

void zd_conn_fail(struct zd_core *core, struct zd_conn *c, int rc)
{
	zd_header_explain(core->text, sizeof core->text, rc, &c->reader.header);
	zd_emit_error(core, c, c->reader.header.stream, -rc, ZD_ABOUT_NOTHING, "%s", core->text);
	zd_emit_close(core, c, 1);
}

void zd_conn_run(struct zd_core *core, struct zd_conn *c)
{
	struct zd_reader *r = &c->reader;

	if (c->hold == ZD_HOLD_BUDGET || c->hold == ZD_HOLD_HEAD)
		c->hold = ZD_HOLD_NO;
	while (!c->closing && c->hold == ZD_HOLD_NO) {
		int rc;

		if (zd_emit_full(core)) {
			c->hold = ZD_HOLD_BUDGET;
			zd_core_queue(core, c);
			return;
		}
		if (c->at_header && !head_fits(core, c)) {
			c->hold = ZD_HOLD_HEAD;
			return;
		}
		rc = zd_reader_next(r);
		if (rc == ZD_READER_MORE)
			return;
		if (rc == ZD_READER_HEAD) {
			c->at_header = 0;
			take_head(core, c);
		} else if (rc == ZD_READER_FRAME) {
			c->at_header = 1;
			take_frame(core, c);
		} else {
			zd_conn_fail(core, c, rc);
		}
	}
}

void zd_conn_bytes(struct zd_core *core, struct zd_conn *c, size_t n)
{
	core->bytes_in += n;
	if (c->closing)
		return;
	zd_lease_renew(core, c);
	zd_reader_advance(&c->reader, n);
	zd_conn_run(core, c);
	if (!c->at_header) /* not while a head is read: its length may be damaged, and the worker must notice */
		zd_join_reassure(core, c);
}

void zd_conn_abandon(struct zd_core *core, struct zd_conn *c)
{
	struct zd_taking *t = &c->take;

	if (t->window != ZD_NONE16 && (t->kind == ZD_TAKE_WINDOW || t->kind == ZD_TAKE_LOAD)) {
		struct zd_job *j = zd_job_of(core, c);

		if (t->kind == ZD_TAKE_WINDOW && c->joined)
			j->worker[c->rank].out--;
		zd_window_back(core, t->window);
		t->window = ZD_NONE16;
	}
	if (c->hold == ZD_HOLD_KERNEL) {
		t->kind = ZD_TAKE_NO; /* received, and not yet counted */
	} else if (t->kind == ZD_TAKE_SLOT || t->kind == ZD_TAKE_WINDOW || t->kind == ZD_TAKE_LOAD) {
		int held = c->hold == ZD_HOLD_PLACE;

		t->kind = ZD_TAKE_SKIP;
		t->answer = 0;
		zd_reader_skip(&c->reader);
		if (held) {
			c->hold = ZD_HOLD_BUDGET;
			zd_core_queue(core, c);
		}
	}
}

void zd_conn_closed(struct zd_core *core, struct zd_conn *c)
{
	struct zd_job *j = zd_job_of(core, c);

	zd_conn_abandon(core, c);
	zd_join_leave(core, c);
	c->closing = 1;
	zd_fetch_close(core, c);
	zd_conn_free_head(core, c);
	zd_core_unqueue(core, c);
	zd_job_detach(core, c);
	c->used = 0;
	if (j)
		zd_window_settle(core, j);
	else
		zd_conn_guests(core, 0);
}

zd_time zd_conn_deadline(const struct zd_core *core)
{
	zd_time at = core->guest_check;

	for (uint32_t b = 0; b < ZD_BIG_HEADS; b++)
		for (uint32_t i = 0; core->big_head_used[b] && i < core->conn_count; i++)
			if (core->conn[i].used && !core->conn[i].closing && core->conn[i].big_head == b + 1 &&
			    core->conn[i].big_since + ZD_BIG_HEAD_TIME < at)
				at = core->conn[i].big_since + ZD_BIG_HEAD_TIME;
	return at;
}

void zd_conn_guests(struct zd_core *core, int end)
{
	core->guest_check = ZD_TIME_NEVER;
	for (uint32_t i = 0; i < core->conn_count; i++) {
		struct zd_conn *c = &core->conn[i];
		zd_time limit;

		if (!c->used || c->closing || zd_job_of(core, c))
			continue;
		if (c->hold == ZD_HOLD_STORE) /* it waits for us */
			c->heard = core->now;
		limit = (c->big_head ? c->big_since + ZD_BIG_HEAD_TIME : c->heard) + ZD_GUEST_TIME;
		if (end && limit <= core->now && !zd_emit_full(core))
			zd_emit_error(core, c, 0, ZD_ERR_TIMED_OUT, ZD_ABOUT_NOTHING, "expected %s, heard nothing for %u s: connect again to go on",
				      c->role == ZD_ROLE_ADMIN ? "a request" : "OPEN", (unsigned)(ZD_GUEST_TIME / ZD_SEC(1)));
		else if (limit < core->guest_check)
			core->guest_check = limit;
	}
}

void zd_conn_tick(struct zd_core *core)
{
	if (zd_conn_deadline(core) > core->now)
		return;
	if (core->guest_check <= core->now)
		zd_conn_guests(core, 1);
	for (uint32_t i = 0; i < core->conn_count; i++) {
		struct zd_conn *c = &core->conn[i];

		if (c->used && !c->closing && c->big_head && c->big_since + ZD_BIG_HEAD_TIME <= core->now)
			zd_emit_error(core, c, 0, ZD_ERR_TIMED_OUT, ZD_ABOUT_NOTHING,
				      "OPEN of %u bytes was not complete after 10 s: %u of them are here", c->reader.header.head_len,
				      c->reader.got);
	}
}
