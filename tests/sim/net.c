/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections.  Each direction is a queue of what was given to the transport (payloads lent, as in the border's rules), then bytes on the wire with
 * a time of arrival, then deliveries of any size into the receiver's window.  What is lent is copied when it leaves, which may be late: a core
 * or a session that writes into memory it has lent sends a damaged frame.
 *
 * The two ends of a connection end apart: what is on the wire still arrives after its sender is gone (the ghost of an old connection), and an end
 * that died silently is noticed only by whoever waits for it.
 */
#include <stdlib.h>
#include <string.h>

#include "proto/assert.h"
#include "tests/sim/world.h"

#define WIRE_BYTES 40000u /* what the kernel's buffers hold: a few frames */
#define PATIENCE 40u
#define LINGER ZD_SEC(1)

/* ---------------------------------------------------------------- pipes */

static void free_item(struct sim_item *item)
{
	free(item->frame);
	free(item);
}

static void drop_queue(struct sim_pipe *p)
{
	while (p->first) {
		struct sim_item *item = p->first;

		p->first = item->next;
		free_item(item);
	}
	p->last = &p->first;
}

static void drop_bytes(struct sim_pipe *p)
{
	free(p->bytes);
	free(p->marks);
	free(p->segments);
	p->bytes = NULL;
	p->marks = NULL;
	p->segments = NULL;
	p->cap = p->start = 0;
	p->mark_first = p->mark_count = p->mark_cap = 0;
	p->segment_first = p->segment_count = p->segment_cap = 0;
	p->delivered = p->sent;
}

void sim_conn_free(struct sim_conn *c)
{
	drop_queue(&c->up);
	drop_queue(&c->down);
	drop_bytes(&c->up);
	drop_bytes(&c->down);
	free(c);
}

static void schedule_drain(struct sim_conn *c, int up)
{
	struct sim_world *w = c->world;
	struct sim_pipe *p = up ? &c->up : &c->down;
	zd_time wait = 0;

	if (p->draining || !p->first)
		return;
	p->draining = 1;
	if (sim_chance(&w->rng, w->config.lend_percent))
		wait = sim_delay(w, 4 * w->config.latency);
	if (w->slow_percent && sim_chance(&w->rng, w->slow_percent))
		wait += sim_delay(w, 40 * w->config.latency);
	sim_at(w, w->now + wait, up ? SIM_E_DRAIN_UP : SIM_E_DRAIN_DOWN, c, 0);
}

static void schedule_delivery(struct sim_conn *c, int up)
{
	struct sim_pipe *p = up ? &c->up : &c->down;

	if (p->delivering || p->segment_count == 0)
		return;
	p->delivering = 1;
	sim_at(c->world, p->segments[p->segment_first].at, up ? SIM_E_DELIVER_UP : SIM_E_DELIVER_DOWN, c, 0);
}

static void mark_frame(struct sim_pipe *p, const struct sim_mark *mark)
{
	if (p->mark_first > 64 && p->mark_first > p->mark_count) { /* rare: keeps the array short */
		memmove(p->marks, p->marks + p->mark_first, p->mark_count * sizeof(*p->marks));
		p->mark_first = 0;
	}
	p->marks = sim_grow(p->marks, p->mark_first + p->mark_count, &p->mark_cap, sizeof(*p->marks));
	p->marks[p->mark_first + p->mark_count++] = *mark;
}

void sim_send(struct sim_conn *c, int up, const uint8_t *frame, uint32_t frame_len, const uint8_t *payload, uint32_t payload_len, uint64_t token)
{
	struct sim_pipe *p = up ? &c->up : &c->down;
	struct sim_mark mark = {.begin = p->queued, .end = p->queued + frame_len + payload_len};
	struct sim_item *item;
	struct zd_header h;

	if (zd_header_decode(frame, up ? ZD_SIDE_CLIENT : ZD_SIDE_SERVER, &h) < 0 || ZD_HEADER_BYTES + h.head_len != frame_len ||
	    h.payload_len != payload_len) {
		sim_fail(c->world, "a frame that its own codec refuses is sent by %s", up ? "a session" : "a core");
		return;
	}
	mark.type = h.type;
	c->world->counts.lane_frames[c->lane->index]++;
	if (up) {
		c->world->counts.up[h.type]++;
		sim_check_up(c, h.type, frame + ZD_HEADER_BYTES, h.head_len, payload, &mark);
	} else {
		c->world->counts.down[h.type]++;
		sim_check_down(c, h.type, frame + ZD_HEADER_BYTES, h.head_len);
	}
	if (c->world->on_frame)
		c->world->on_frame(c->world, c, up, &mark);
	item = sim_alloc(sizeof(*item));
	item->frame = malloc(frame_len);
	memcpy(item->frame, frame, frame_len);
	item->frame_len = frame_len;
	item->payload = payload;
	item->payload_len = payload_len;
	item->token = token;
	*p->last = item;
	p->last = &item->next;
	p->queued = mark.end;
	mark_frame(p, &mark);
	schedule_drain(c, up);
}

static void onto_wire(struct sim_conn *c, struct sim_pipe *p, const uint8_t *bytes, size_t len)
{
	struct sim_world *w = c->world;
	size_t held = (size_t)(p->sent - p->delivered);
	zd_time at = w->now + 1000 + sim_delay(w, w->config.latency);

	if (p->start + held + len > p->cap) { /* to the front; the room for more is doubled where it is short */
		uint8_t *old = p->bytes;

		if (2 * (held + len) > p->cap) {
			p->cap = 2 * (held + len) + 4096;
			p->bytes = malloc(p->cap);
		}
		if (old)
			memmove(p->bytes, old + p->start, held);
		if (old != p->bytes)
			free(old);
		p->start = 0;
	}
	memcpy(p->bytes + p->start + held, bytes, len);
	p->sent += len;
	if (at < p->last_at)
		at = p->last_at;
	p->last_at = at;
	if (p->segment_first > 64 && p->segment_first > p->segment_count) {
		memmove(p->segments, p->segments + p->segment_first, p->segment_count * sizeof(*p->segments));
		p->segment_first = 0;
	}
	p->segments = sim_grow(p->segments, p->segment_first + p->segment_count, &p->segment_cap, sizeof(*p->segments));
	p->segments[p->segment_first + p->segment_count++] = (struct sim_segment){p->sent, at};
}

static void tell_sent(struct sim_conn *c, int up, uint64_t token)
{
	if (up && c->client_up && !c->client_closing) {
		struct zd_session_event ev = {.type = ZD_SE_SENT, .slot = c->slot, .gen = c->gen, .u.sent.token = token};

		sim_worker_feed(c->worker, &ev);
	} else if (!up && c->server_open && c->lane->core) {
		struct zd_event ev = {.type = ZD_EV_SENT};

		ev.u.sent.id = c->id;
		ev.u.sent.token = token;
		sim_lane_feed(c->lane, &ev);
	}
}

/* The transport takes what fits, and reports whole payloads that have left. */
static void drain(struct sim_conn *c, int up)
{
	struct sim_pipe *p = up ? &c->up : &c->down;
	uint64_t tokens[64];
	uint32_t count = 0;

	p->draining = 0;
	if (up && c->worker->paused_until > c->world->now) {
		p->draining = 1;
		sim_at(c->world, c->worker->paused_until + 1, SIM_E_DRAIN_UP, c, 0);
		return;
	}
	while (p->first && p->sent - p->delivered < WIRE_BYTES && count < 64) {
		struct sim_item *item = p->first;

		onto_wire(c, p, item->frame, item->frame_len);
		if (item->payload_len)
			onto_wire(c, p, item->payload, item->payload_len);
		if (item->token)
			tokens[count++] = item->token;
		p->first = item->next;
		if (!p->first)
			p->last = &p->first;
		free_item(item);
	}
	if (p->sent - p->delivered < WIRE_BYTES)
		schedule_drain(c, up);
	schedule_delivery(c, up);
	for (uint32_t i = 0; i < count; i++)
		tell_sent(c, up, tokens[i]);
	if (!up && c->finishing && !p->first && !c->sclosed_due) {
		c->sclosed_due = 1;
		sim_after(c->world, c->world->config.latency, SIM_E_SCLOSED, c, 0);
	}
}

/* ---------------------------------------------------------------- deliveries */

/* Bytes that have arrived and may be delivered: up to a frame that is held. */
static uint64_t arrived(const struct sim_conn *c, const struct sim_pipe *p)
{
	uint64_t end = p->delivered;

	for (uint32_t i = 0; i < p->segment_count; i++) {
		const struct sim_segment *s = &p->segments[p->segment_first + i];

		if (s->at > c->world->now)
			break;
		end = s->end;
	}
	for (uint32_t i = 0; i < p->mark_count; i++) {
		const struct sim_mark *m = &p->marks[p->mark_first + i];

		if (m->begin >= end)
			break;
		if (m->hold)
			return m->begin;
	}
	return end;
}

static size_t cut(struct sim_world *w, size_t n)
{
	if (n <= 1 || !sim_chance(&w->rng, w->config.cut_percent))
		return n;
	if (sim_chance(&w->rng, 50))
		return sim_range(&w->rng, 1, n < 48 ? (uint32_t)n : 48);
	return sim_range(&w->rng, 1, (uint32_t)n);
}

static void consume(struct sim_pipe *p, size_t n)
{
	p->start += n;
	p->delivered += n;
	while (p->segment_count > 0 && p->segments[p->segment_first].end <= p->delivered) {
		p->segment_first++;
		p->segment_count--;
	}
	while (p->mark_count > 0 && p->marks[p->mark_first].end <= p->delivered) {
		p->mark_first++;
		p->mark_count--;
	}
}

static int blocked(const struct sim_conn *c, int up, zd_time *until)
{
	const struct sim_world *w = c->world;
	uint32_t host = c->lane->host;

	*until = w->blocked[host][up];
	return *until > w->now && w->blocked_ranks[host][up] >> (c->worker->rank & 1) & 1;
}

static struct zd_span window(struct sim_conn *c, int up)
{
	if (up)
		return c->server_open && c->lane->core ? zd_core_window(c->lane->core, c->id) : (struct zd_span){0};
	return c->client_up && !c->client_closing ? zd_session_window(c->worker->session, c->slot, c->gen) : (struct zd_span){0};
}

static void feed_bytes(struct sim_conn *c, int up, size_t n, int quiet)
{
	sim_hash(c->world, (uint64_t)c->slot << 32 | n);
	if (up) {
		struct zd_event ev = {.type = ZD_EV_BYTES};
		uint64_t before = quiet ? zd_core_digest(c->lane->core, c->world->config.spec.name) : 0;

		ev.u.bytes.id = c->id;
		ev.u.bytes.len = n;
		sim_lane_feed(c->lane, &ev);
		if (quiet && c->lane->core && zd_core_digest(c->lane->core, c->world->config.spec.name) != before)
			sim_fail(c->world, "I2: lane %u was changed by a message of another ballot than its promise", c->lane->index);
	} else {
		struct zd_session_event ev = {.type = ZD_SE_BYTES, .slot = c->slot, .gen = c->gen, .u.bytes.len = n};

		sim_worker_feed(c->worker, &ev);
	}
}

static void deliver(struct sim_conn *c, int up)
{
	struct sim_world *w = c->world;
	struct sim_pipe *p = up ? &c->up : &c->down;
	int open = up ? c->server_open && !c->server_closing : c->client_up && !c->client_closing;
	zd_time until;
	struct zd_span span;
	int quiet;
	size_t n;

	p->delivering = 0;
	if (!open) {
		if (up ? !c->server_open : !c->client_open)
			drop_bytes(p);
		return;
	}
	if (!up && c->worker->paused_until > w->now) {
		p->delivering = 1;
		sim_at(w, c->worker->paused_until + 1, SIM_E_DELIVER_DOWN, c, 0);
		return;
	}
	if (blocked(c, up, &until)) {
		p->delivering = 1;
		sim_at(w, until, up ? SIM_E_DELIVER_UP : SIM_E_DELIVER_DOWN, c, 0);
		return;
	}
	n = (size_t)(arrived(c, p) - p->delivered);
	if (n == 0) {
		if (p->segment_count > 0 && p->segments[p->segment_first].at > w->now)
			schedule_delivery(c, up);
		return; /* held: released later */
	}
	span = window(c, up);
	p->stalled = span.len == 0;
	if (p->stalled)
		return;
	n = cut(w, n);
	n = n < span.len ? n : span.len;
	memcpy(span.base, p->bytes + p->start, n);
	quiet = up && sim_check_quiet(c, p->delivered, p->delivered + n);
	consume(p, n);
	schedule_delivery(c, up);
	schedule_drain(c, up);
	feed_bytes(c, up, n, quiet);
}

void sim_kick(struct sim_conn *c)
{
	if (!c->up.stalled || !c->server_open || zd_core_window(c->lane->core, c->id).len == 0)
		return;
	c->up.stalled = 0;
	schedule_delivery(c, 1);
}

void sim_release_holds(struct sim_world *w)
{
	for (uint32_t i = 0; i < w->conn_count; i++) {
		struct sim_conn *c = w->conns[i];

		for (uint32_t m = 0; m < c->up.mark_count; m++)
			c->up.marks[c->up.mark_first + m].hold = 0;
		for (uint32_t m = 0; m < c->down.mark_count; m++)
			c->down.marks[c->down.mark_first + m].hold = 0;
		schedule_delivery(c, 1);
		schedule_delivery(c, 0);
	}
}

/* ---------------------------------------------------------------- life of a connection */

struct sim_conn *sim_connect(struct sim_worker *worker, uint32_t slot, uint32_t gen, struct sim_lane *lane)
{
	struct sim_world *w = worker->world;
	struct sim_conn *c = sim_alloc(sizeof(*c));

	c->world = w;
	c->worker = worker;
	c->lane = lane;
	c->slot = slot;
	c->gen = gen;
	c->client_open = 1;
	c->patience = PATIENCE;
	c->up.last = &c->up.first;
	c->down.last = &c->down.first;
	w->conns = sim_grow(w->conns, w->conn_count, &w->conn_cap, sizeof(*w->conns));
	w->conns[w->conn_count++] = c;
	sim_at(w, w->now + 1000 + sim_delay(w, 2 * w->config.latency), SIM_E_CONNECTED, c, 0);
	return c;
}

static void client_down_soon(struct sim_conn *c)
{
	if (!c->client_open || c->cdown_due)
		return;
	c->cdown_due = 1;
	sim_after(c->world, c->world->config.latency, SIM_E_CDOWN, c, 0);
}

static void server_closed_soon(struct sim_conn *c, zd_time most)
{
	if (!c->server_open || c->sclosed_due)
		return;
	c->sclosed_due = 1;
	sim_after(c->world, most, SIM_E_SCLOSED, c, 0);
}

static void connected(struct sim_conn *c)
{
	struct sim_world *w = c->world;
	struct sim_lane *lane = c->lane;
	struct zd_event ev = {.type = ZD_EV_CONN};
	zd_time until;
	uint32_t slot = 0;

	if (!c->client_open || c->client_closing)
		return;
	if (blocked(c, 1, &until) || blocked(c, 0, &until)) { /* SYNs are lost; sent again later */
		sim_at(w, until + 1000, SIM_E_CONNECTED, c, 0);
		return;
	}
	while (lane->core && slot < w->config.max_conns && lane->conns[slot])
		slot++;
	if (!lane->core || slot == w->config.max_conns) {
		client_down_soon(c); /* refused */
		return;
	}
	c->id = (struct zd_conn_id){slot, ++lane->gens};
	lane->conns[slot] = c;
	c->server_open = 1;
	ev.u.conn.id = c->id;
	ev.u.conn.role = c->worker->epoch ? ZD_ROLE_WORKER : ZD_ROLE_READER;
	ev.u.conn.features = ZD_FEATURE_PAYLOAD_CRC;
	ev.u.conn.peer = "sim";
	sim_lane_feed(lane, &ev);
	sim_after(w, w->config.latency, SIM_E_UP, c, 0);
}

static void up(struct sim_conn *c)
{
	struct zd_session_event ev = {.type = ZD_SE_UP, .slot = c->slot, .gen = c->gen};

	if (!c->client_open || c->client_closing)
		return;
	if (c->worker->paused_until > c->world->now) {
		sim_at(c->world, c->worker->paused_until + 1, SIM_E_UP, c, 0);
		return;
	}
	c->client_up = 1;
	ev.u.up.greeted = 1;
	ev.u.up.lane_count = c->world->config.lanes_per_host;
	ev.u.up.features = ZD_FEATURE_PAYLOAD_CRC;
	sim_worker_feed(c->worker, &ev);
	if (!c->server_open)
		client_down_soon(c);
}

static void client_down(struct sim_conn *c)
{
	struct zd_session_event ev = {.type = ZD_SE_DOWN, .slot = c->slot, .gen = c->gen};

	if (!c->client_open)
		return;
	if (c->worker->paused_until > c->world->now && c->worker->session) {
		sim_at(c->world, c->worker->paused_until + 1, SIM_E_CDOWN, c, 0);
		return;
	}
	/* An orderly end is seen behind the last byte. */
	if (!c->client_closing && c->down.sent > c->down.delivered && c->patience-- > 0) {
		sim_after(c->world, c->world->config.latency, SIM_E_CDOWN, c, 0);
		return;
	}
	c->client_open = c->client_up = 0;
	drop_queue(&c->up);
	drop_bytes(&c->down);
	if (c->worker->conns[c->slot] == c)
		c->worker->conns[c->slot] = NULL;
	if (!c->silent)
		server_closed_soon(c, 4 * c->world->config.latency);
	if (!c->worker->session)
		return;
	ev.u.down.text = "connection lost";
	sim_worker_feed(c->worker, &ev);
}

static void server_closed(struct sim_conn *c)
{
	struct zd_event ev = {.type = ZD_EV_CLOSED};

	if (!c->server_open)
		return;
	if (!c->server_closing && c->up.sent > c->up.delivered && c->patience-- > 0) {
		sim_after(c->world, c->world->config.latency, SIM_E_SCLOSED, c, 0);
		return;
	}
	c->server_open = 0;
	c->lane->conns[c->id.slot] = NULL;
	drop_queue(&c->down);
	drop_bytes(&c->up);
	if (!c->silent)
		client_down_soon(c);
	if (!c->lane->core)
		return;
	ev.u.closed.id = c->id;
	sim_lane_feed(c->lane, &ev);
}

void sim_client_close(struct sim_conn *c)
{
	if (!c->client_open || c->client_closing)
		return;
	c->client_closing = 1;
	drop_queue(&c->up);
	client_down_soon(c);
}

void sim_server_close(struct sim_conn *c, int flush)
{
	if (!c->server_open || c->server_closing)
		return;
	c->server_closing = 1;
	if (flush && c->down.first) {
		c->finishing = 1;
		sim_at(c->world, c->world->now + LINGER, SIM_E_SCLOSED, c, 0);
		return;
	}
	drop_queue(&c->down);
	server_closed_soon(c, c->world->config.latency);
}

void sim_reset(struct sim_conn *c, int ghost, int half_open)
{
	c->world->resets++;
	c->silent = half_open != 0;
	drop_queue(&c->up);
	if (!ghost)
		drop_bytes(&c->up);
	drop_bytes(&c->down);
	c->client_closing = 1; /* nothing more for the session but DOWN */
	client_down_soon(c);
}

/* The process is gone: what it had written still arrives.  Silent: the machine is gone, and nobody says so. */
void sim_client_gone(struct sim_conn *c, int silent)
{
	drop_queue(&c->up);
	drop_bytes(&c->down);
	c->client_open = c->client_up = 0;
	c->client_closing = 1;
	c->silent = silent != 0;
	if (!silent)
		server_closed_soon(c, 4 * c->world->config.latency);
}

void sim_server_gone(struct sim_conn *c, int silent)
{
	drop_queue(&c->down);
	drop_bytes(&c->up);
	c->lane->conns[c->id.slot] = NULL;
	c->server_open = 0;
	c->server_closing = 1;
	if (silent)
		c->silent = 1; /* the session finds out by its pings */
	else
		client_down_soon(c);
}

void sim_block(struct sim_world *w, uint32_t host, int to_host, uint32_t ranks, zd_time until)
{
	w->blocked[host][to_host != 0] = until;
	w->blocked_ranks[host][to_host != 0] = ranks;
}

void sim_unblock(struct sim_world *w)
{
	for (uint32_t h = 0; h < w->config.hosts; h++)
		w->blocked[h][0] = w->blocked[h][1] = 0;
}

void sim_net_event(struct sim_world *w, const struct sim_event *e)
{
	struct sim_conn *c = e->object;

	(void)w;
	switch (e->kind) {
	case SIM_E_CONNECTED: connected(c); return;
	case SIM_E_UP: up(c); return;
	case SIM_E_CDOWN: client_down(c); return;
	case SIM_E_SCLOSED: server_closed(c); return;
	case SIM_E_DRAIN_UP: drain(c, 1); return;
	case SIM_E_DRAIN_DOWN: drain(c, 0); return;
	case SIM_E_DELIVER_UP: deliver(c, 1); return;
	case SIM_E_DELIVER_DOWN: deliver(c, 0); return;
	default: return;
	}
}
