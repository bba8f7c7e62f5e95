/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FETCH and DATA.
 *
 * An open FETCH waits in the connection's list until its version is there, whatever its place in the list.  It is issued chunk by chunk
 * into a ring of sends: an extent of bf16 weights, or a grain of fp32 made in a window.
 *
 *   FREE --issue--> WAIT (for Adam or a window's kernel) --bytes are there, and all before it have left--> OUT --SENT--> FREE
 *
 * All due updates of a batch are issued in one step and the frames follow together, as soon as the kernel calls are done and before any
 * other event, so that the shell can write them at once and no round can be decided in between.
 * A chunk has the version of the job at its issue.  "At least" that spans a decision therefore goes on with the newer version, and
 * says so in each DATA; "exactly" ends with VERSION_GONE.
 */
#include <string.h>

#include "proto/assert.h"
#include "proto/crc32c.h"
#include "server/core/state.h"

enum { PLANE_WEIGHTS = 1, PLANE_MASTER = 2, PLANE_GRADIENT = 3 };
enum { MODE_AT_LEAST = 1, MODE_EXACTLY = 2, MODE_IF_NEWER = 3 };
enum verdict { SERVE, PARK, GONE, UNCHANGED };

static uint32_t chunk_elems(const struct zd_job *j, uint32_t plane)
{
	uint32_t e = j->spec.extent_elems;

	return plane == PLANE_WEIGHTS || e < ZD_GRAIN_ELEMS ? e : ZD_GRAIN_ELEMS;
}

static uint64_t current_version(const struct zd_job *j, uint32_t plane)
{
	return plane == PLANE_GRADIENT ? j->grad_round : j->step;
}

static enum verdict judge(const struct zd_job *j, const struct zd_fetch *f)
{
	uint64_t have = current_version(j, f->plane), want = f->version;
	int frozen = j->spec.units[f->unit].frozen;

	if (!j->sealed)
		return PARK;
	if (f->mode == MODE_IF_NEWER)
		return frozen || have <= want ? UNCHANGED : SERVE;
	if (f->plane == PLANE_GRADIENT && want == 0)
		want = 1; /* rounds count from 1 */
	if (have < want) /* a decided round without its sum: that did not survive a restart */
		return f->plane == PLANE_GRADIENT && j->decided >= want ? GONE : PARK;
	return f->mode == MODE_EXACTLY && have > want && !frozen ? GONE : SERVE;
}

static int check_range(const struct zd_job *j, const Zd__Pb__Fetch *m)
{
	const struct zd_piece *p = &j->units[m->unit].piece;
	uint32_t chunk = chunk_elems(j, m->plane);
	uint64_t from = m->first - p->first, to;

	if (m->count == 0 || m->first < p->first || from >= p->count || m->count > p->count - from)
		return -1;
	to = from + m->count;
	return from % chunk == 0 && (to % chunk == 0 || to == p->count) ? 0 : -1;
}

/* 0, or an error was sent. */
static int check(struct zd_core *core, struct zd_conn *c, const struct zd_job *j, const Zd__Pb__Fetch *m)
{
	uint64_t stream = c->reader.header.stream;
	int none = j->spec.optimizer == ZD_OPT_NONE;

	if (m->unit >= j->spec.unit_count) {
		zd_emit_error(core, c, stream, ZD_ERR_NO_UNIT, ZD_ABOUT_NOTHING, "FETCH of unit %u, job %s has %u", m->unit, j->spec.name,
			      j->spec.unit_count);
		return -1;
	}
	if (m->plane < PLANE_WEIGHTS || m->plane > PLANE_GRADIENT || m->mode < MODE_AT_LEAST || m->mode > MODE_IF_NEWER) {
		zd_emit_error(core, c, stream, ZD_ERR_BAD_FIELD, (struct zd_about){m->unit, ZD_NONE},
			      "FETCH of plane %u in mode %u, expected 1 to 3 for both", m->plane, m->mode);
		return -1;
	}
	if ((m->plane == PLANE_GRADIENT) != none) {
		zd_emit_error(core, c, stream, ZD_ERR_BAD_RANGE, (struct zd_about){m->unit, ZD_NONE},
			      none ? "job %s has no optimizer: it serves the gradient (plane 3) and no weights"
				   : "job %s has an optimizer: it serves weights (planes 1 and 2) and no gradient",
			      j->spec.name);
		return -1;
	}
	if (none && j->spec.units[m->unit].frozen) {
		zd_emit_error(core, c, stream, ZD_ERR_FROZEN, (struct zd_about){m->unit, ZD_NONE}, "unit %s is frozen and has no gradient",
			      j->spec.units[m->unit].name);
		return -1;
	}
	if (check_range(j, m) < 0) {
		zd_emit_error(core, c, stream, ZD_ERR_BAD_RANGE, (struct zd_about){m->unit, ZD_NONE},
			      "FETCH of unit %s [%llu, +%llu): this lane owns [%llu, +%llu) in chunks of %u from its first element",
			      j->spec.units[m->unit].name, (unsigned long long)m->first, (unsigned long long)m->count,
			      (unsigned long long)j->units[m->unit].piece.first, (unsigned long long)j->units[m->unit].piece.count,
			      chunk_elems(j, m->plane));
		return -1;
	}
	if (c->fetch_count == ZD_FETCHES_MAX) {
		zd_emit_error(core, c, stream, ZD_ERR_TOO_MANY, (struct zd_about){m->unit, ZD_NONE},
			      "FETCH beyond the %u that may be open on a connection", ZD_FETCHES_MAX);
		return -1;
	}
	return 0;
}

void zd_fetch_request(struct zd_core *core, struct zd_conn *c, const Zd__Pb__Fetch *m)
{
	if (check(core, c, zd_job_of(core, c), m) < 0)
		return;
	c->fetch[c->fetch_count++] = (struct zd_fetch){
		.stream = c->reader.header.stream, .version = m->version, .next = m->first, .end = m->first + m->count,
		.unit = m->unit, .plane = (uint8_t)m->plane, .mode = (uint8_t)m->mode,
	};
	zd_core_queue(core, c);
}

static void forget(struct zd_conn *c, uint32_t i)
{
	c->fetch_count--;
	memmove(&c->fetch[i], &c->fetch[i + 1], (c->fetch_count - i) * sizeof c->fetch[0]);
}

/* Answers that carry no bytes. */
static void answer_empty(struct zd_core *core, struct zd_conn *c, const struct zd_job *j, const struct zd_fetch *f, enum verdict v)
{
	struct zd_send s = {.stream = f->stream, .version = current_version(j, f->plane), .first = f->next, .unit = f->unit, .last = 1};

	if (v == UNCHANGED)
		zd_emit_data(core, c, &s, NULL, 0, 0);
	else
		zd_emit_error(core, c, f->stream, ZD_ERR_VERSION_GONE, (struct zd_about){f->unit, ZD_NONE},
			      "%s %llu of unit %s is no longer here, the lane has %llu: fetch that",
			      f->plane == PLANE_GRADIENT ? "gradient of round" : "version", (unsigned long long)f->version,
			      j->spec.units[f->unit].name, (unsigned long long)s.version);
}

static void lend(struct zd_job *j, struct zd_send *s)
{
	if (!s->lent)
		zd_extent_lend(j, s->extent, s->area);
	s->lent = 1;
}

/* fp32 made in a window: of the master, of a frozen unit's weights, or of contributions as they came. */
static int make_fp32(struct zd_core *core, struct zd_conn *c, struct zd_job *j, uint32_t index, struct zd_send *s)
{
	const struct zd_unit *u = &j->units[s->unit];
	uint64_t at = s->first - u->piece.first;
	uint32_t in_extent = (uint32_t)(s->first - zd_extent_first(j, s->extent));
	struct zd_kernel_open open = {.kind = ZD_K_MERGE, .job = j->slot, .conn = {c->slot, c->gen}, .send = index};
	struct zd_kernel_call *call;

	open.window = zd_window_take(core, NULL);
	if (open.window == ZD_NONE16)
		return -1;
	s->window = open.window;
	s->pending = 1;
	core->window[open.window].state = ZD_WINDOW_KERNEL;
	call = zd_emit_kernel(core, &open);
	call->n = s->count;
	call->dst = zd_window_memory(core, open.window);
	if (s->plane == PLANE_MASTER && u->lo) {
		call->op = ZD_KERNEL_MERGE;
		call->hi = u->hi + at;
		call->lo = u->lo + at;
		return 0;
	}
	call->op = ZD_KERNEL_WIDEN;
	call->form = ZD_FORM_BF16_1;
	if (s->plane == PLANE_MASTER) {
		call->a = u->hi + at;
		return 0;
	}
	lend(j, s); /* until the call is done: contributions as they come are written here without one */
	call->form = j->grad_form[s->area];
	call->a = zd_extent_grad(j, s->extent, s->area) + 2 * (size_t)in_extent;
	if (call->form == ZD_FORM_BF16_2)
		call->b = (const uint8_t *)call->a + 2 * (size_t)zd_extent_count(j, s->extent);
	return 0;
}

static int ready(const struct zd_job *j, const struct zd_send *s)
{
	if (s->window != ZD_NONE16)
		return s->pending == 0;
	return s->lent || s->plane == PLANE_GRADIENT || (!j->extents[s->extent].busy && !zd_extent_due(j, s->extent));
}

/* The next chunk of a FETCH: 0 issued, -1 it must wait for lent memory or a window. */
static int issue(struct zd_core *core, struct zd_conn *c, struct zd_job *j, struct zd_fetch *f)
{
	const struct zd_unit *u = &j->units[f->unit];
	uint32_t chunk = chunk_elems(j, f->plane), index = (c->send_head + c->send_count) % ZD_SENDS_MAX;
	struct zd_send s = {.stream = f->stream, .first = f->next, .unit = f->unit, .window = ZD_NONE16, .plane = f->plane, .state = ZD_SEND_WAIT};

	s.version = f->mode == MODE_EXACTLY ? f->version : current_version(j, f->plane);
	s.count = (uint32_t)(f->end - f->next < chunk ? f->end - f->next : chunk);
	s.extent = u->extent + (uint32_t)((f->next - u->piece.first) / j->spec.extent_elems);
	s.area = f->plane == PLANE_GRADIENT ? j->grad_round & 1 : 0;
	s.last = f->next + s.count == f->end;
	if (f->plane != PLANE_GRADIENT && zd_extent_update(core, j, s.extent, c, f->plane == PLANE_WEIGHTS && c->check_payload) < 0)
		return -1;
	if (f->plane == PLANE_MASTER || (f->plane == PLANE_GRADIENT && j->grad_form[s.area] != ZD_FORM_FP32))
		if (make_fp32(core, c, j, index, &s) < 0)
			return -1;
	if (s.window == ZD_NONE16 && ready(j, &s))
		lend(j, &s); /* at once: if it waits behind another frame, its bytes must still be those of this version */
	core->sends_waiting++;
	f->next += s.count;
	c->send[index] = s;
	c->send_count++;
	return 0;
}

static void out(struct zd_core *core, struct zd_conn *c, struct zd_job *j, struct zd_send *s)
{
	struct zd_extent *x = &j->extents[s->extent];
	const struct zd_unit *u = &j->units[s->unit];
	uint32_t len = s->count * (s->plane == PLANE_WEIGHTS ? 2 : 4), crc = 0;
	const uint8_t *bytes;

	if (s->window != ZD_NONE16) {
		bytes = zd_window_memory(core, s->window);
		core->window[s->window].state = ZD_WINDOW_OUT;
	} else if (s->plane == PLANE_WEIGHTS) {
		bytes = (const uint8_t *)(u->hi + (s->first - u->piece.first));
		lend(j, s);
	} else {
		bytes = zd_extent_grad(j, s->extent, s->area) + 4 * (s->first - zd_extent_first(j, s->extent));
		lend(j, s);
	}
	if (c->check_payload && s->plane != PLANE_WEIGHTS) {
		crc = zd_crc32c(0, bytes, len);
	} else if (c->check_payload) {
		if (x->crc_step != x->step)
			x->crc = zd_crc32c(0, bytes, len);
		x->crc_step = x->step;
		crc = x->crc;
	}
	s->token = ++core->tokens;
	s->state = ZD_SEND_OUT;
	core->sends_waiting--;
	j->fetched_bytes += len;
	zd_emit_data(core, c, s, bytes, len, crc);
}

/* Emits what is ready, in order.  Returns how many still wait. */
static uint32_t flush(struct zd_core *core, struct zd_conn *c, struct zd_job *j)
{
	uint32_t waiting = 0;

	for (uint32_t i = 0; i < c->send_count; i++) {
		struct zd_send *s = &c->send[(c->send_head + i) % ZD_SENDS_MAX];

		if (s->state != ZD_SEND_WAIT)
			continue;
		if (waiting > 0 || !ready(j, s))
			waiting++;
		else
			out(core, c, j, s);
	}
	return waiting;
}

/* Goes through the open requests.  Returns 1 if more could be done by a later step without any event. */
static int issue_all(struct zd_core *core, struct zd_conn *c, struct zd_job *j)
{
	uint32_t i = 0;

	while (i < c->fetch_count) {
		struct zd_fetch *f = &c->fetch[i];
		enum verdict v = judge(j, f);

		if (v == PARK) {
			i++;
			continue;
		}
		if (zd_emit_full(core))
			return 1;
		if (v != SERVE) {
			struct zd_fetch gone = *f;

			forget(c, i);
			answer_empty(core, c, j, &gone, v);
			continue;
		}
		if (c->send_count == ZD_SENDS_MAX)
			return 0; /* SENT goes on */
		if (issue(core, c, j, f) < 0) {
			c->blocked = 1;
			return 0;
		}
		if (f->next == f->end)
			forget(c, i);
	}
	return 0;
}

void zd_fetch_pump(struct zd_core *core, struct zd_conn *c)
{
	struct zd_job *j = zd_job_of(core, c);
	int again = 0;
	uint32_t waiting;

	if (!j || !j->used || (c->fetch_count == 0 && c->send_count == 0))
		return;
	c->blocked = 0;
	waiting = flush(core, c, j);
	if (c->send_count <= ZD_SENDS_MAX - ZD_SENDS_BATCH) {
		again = issue_all(core, c, j);
		waiting = flush(core, c, j);
	}
	if (again || waiting > 0)
		zd_core_queue(core, c);
}

static void take_back(struct zd_core *core, struct zd_conn *c, struct zd_send *s)
{
	struct zd_job *j = zd_job_of(core, c);

	core->sends_waiting -= s->state == ZD_SEND_WAIT;
	s->state = ZD_SEND_FREE;
	if (s->window != ZD_NONE16) {
		ZD_ASSERT(s->pending == 0);
		zd_window_back(core, s->window);
	} else if (s->lent) {
		zd_extent_back(core, j, s->extent, s->area);
	}
}

void zd_fetch_sent(struct zd_core *core, struct zd_conn *c, uint64_t token)
{
	uint32_t i = 0;

	while (i < c->send_count && c->send[(c->send_head + i) % ZD_SENDS_MAX].token != token)
		i++;
	ZD_ASSERT(i < c->send_count);
	take_back(core, c, &c->send[(c->send_head + i) % ZD_SENDS_MAX]);
	while (c->send_count > 0 && c->send[c->send_head].state == ZD_SEND_FREE) {
		c->send[c->send_head].token = 0;
		c->send_head = (c->send_head + 1) % ZD_SENDS_MAX;
		c->send_count--;
	}
	if (!c->closing && c->fetch_count > 0)
		zd_core_queue(core, c);
}

void zd_fetch_merged(struct zd_core *core, const struct zd_kernel_open *k)
{
	struct zd_conn *c = zd_core_conn(core, k->conn);
	struct zd_send *s = c ? &c->send[k->send] : NULL;

	ZD_ASSERT(s && s->window == k->window && s->pending == 1); /* nothing else happens while a call is under way */
	s->pending = 0;
	if (s->lent)
		zd_extent_back(core, zd_job_of(core, c), s->extent, s->area);
	s->lent = 0;
	if (!c->closing)
		zd_core_queue(core, c);
}

void zd_fetch_flush(struct zd_core *core)
{
	for (uint32_t i = 0; core->sends_waiting > 0 && i < core->conn_count; i++) {
		struct zd_conn *c = &core->conn[i];

		if (c->used && !c->closing && c->send_count > 0 && zd_job_of(core, c)->used)
			flush(core, c, zd_job_of(core, c));
	}
}

void zd_fetch_close(struct zd_core *core, struct zd_conn *c)
{
	c->fetch_count = 0;
	while (c->send_count > 0) {
		struct zd_send *s = &c->send[c->send_head];

		c->send_head = (c->send_head + 1) % ZD_SENDS_MAX;
		c->send_count--;
		if (s->state != ZD_SEND_FREE)
			take_back(core, c, s);
	}
}

void zd_fetch_wake(struct zd_core *core, struct zd_job *j)
{
	for (uint32_t i = j->conns; i != ZD_NONE; i = core->conn[i].job_next)
		if (!core->conn[i].closing && (core->conn[i].fetch_count > 0 || core->conn[i].hold == ZD_HOLD_PLACE))
			zd_core_queue(core, &core->conn[i]);
}

static zd_time deadline_of(const struct zd_core *core, const struct zd_job *j, zd_time since)
{
	return since == ZD_TIME_NEVER ? ZD_TIME_NEVER : since + core->away + ZD_MS(j->spec.lease_ms);
}

zd_time zd_fetch_deadline(const struct zd_core *core, const struct zd_job *j)
{
	return deadline_of(core, j, j->wanted_since);
}

/* Since when somebody waits for something that the connection holds; NEVER: for nothing. */
static zd_time wanted_since(const struct zd_conn *c, const struct zd_job *j)
{
	zd_time since = ZD_TIME_NEVER;

	for (uint32_t i = 0; i < c->send_count; i++) {
		const struct zd_send *s = &c->send[(c->send_head + i) % ZD_SENDS_MAX];
		const struct zd_extent *x = &j->extents[s->extent];

		if (s->state == ZD_SEND_OUT && s->lent && x->wanted == 1 + s->area && x->wanted_since < since)
			since = x->wanted_since;
	}
	return since;
}

/* Somebody waits for lent memory as long as a lease: those who hold it are taken for dead. */
void zd_fetch_tick(struct zd_core *core, struct zd_job *j)
{
	zd_time first = ZD_TIME_NEVER;
	uint32_t next;

	if (zd_fetch_deadline(core, j) > core->now)
		return;
	for (uint32_t i = j->conns; i != ZD_NONE; i = next) {
		struct zd_conn *c = &core->conn[i];
		zd_time since = c->closing ? ZD_TIME_NEVER : wanted_since(c, j);

		next = c->job_next;
		if (deadline_of(core, j, since) > core->now)
			first = since < first ? since : first;
		else
			zd_emit_error(core, c, 0, ZD_ERR_TIMED_OUT, ZD_ABOUT_NOTHING,
				      "weights were sent and not read for %u ms while the next step waits for their memory: read faster, or raise lease_ms",
				      j->spec.lease_ms);
	}
	j->wanted_since = first;
}
