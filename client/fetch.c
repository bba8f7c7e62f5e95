/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FETCH of a unit: one request per lane that has a piece of it, DATA straight into place.
 *
 * A part that was cut off by its connection is asked for again from the first DATA frame that did not arrive whole: frames end where a FETCH may begin.  Memory of a caller is written to by
 * open parts only; each of them holds a lend of the request, so that it cannot end before they do.
 *
 * A worker asks for the version of its step exactly.  A lane that has applied the step under way serves the next one only, of which this session knows
 * when all lanes have: what is asked for meanwhile waits for that.
 */
#include "client/state.h"

#include <stdio.h>
#include <string.h>

#include "proto/assert.h"

enum { MODE_AT_LEAST = 1, MODE_EXACTLY = 2, MODE_IF_NEWER = 3 };

static struct zd_piece piece_of(const struct zd_session *s, const struct zd_link *l, uint32_t unit)
{
	return s->pieces[(size_t)unit * s->lane_count + l->index];
}

struct zd_fetch *zd_cfetch_new(struct zd_session *s, uint32_t unit, enum zd_plane plane, void *dst)
{
	struct zd_fetch *f = zd_csession_alloc(s, sizeof(*f) + s->lane_count * sizeof(f->part[0]));

	if (!f)
		return NULL;
	f->unit = unit;
	f->plane = plane;
	f->dst = dst;
	f->elem = plane == ZD_PLANE_WEIGHTS ? 2 : 4;
	f->prev = s->fetch_last;
	if (s->fetch_last)
		s->fetch_last->next = f;
	else
		s->fetch_first = f;
	s->fetch_last = f;
	return f;
}

void zd_cfetch_drop(struct zd_session *s, struct zd_fetch *f)
{
	s->parked -= f->parked;
	if (f->prev)
		f->prev->next = f->next;
	else
		s->fetch_first = f->next;
	if (f->next)
		f->next->prev = f->prev;
	else
		s->fetch_last = f->prev;
	zd_csession_release(s, f);
}

void zd_cfetch_begin(struct zd_session *s, struct zd_fetch *f, uint32_t mode, uint64_t version)
{
	f->mode = mode;
	f->version = version;
	f->met = 0;
	f->lanes_left = 0;
	for (uint32_t i = 0; i < s->lane_count; i++) {
		struct zd_piece piece = piece_of(s, s->lanes[i], f->unit);

		f->part[i] = (struct zd_part){.fetch = f, .next = piece.first, .end = piece.first + piece.count, .done = piece.count == 0};
		if (piece.count == 0)
			continue;
		f->lanes_left++;
		s->lanes[i]->fetch_owed++;
	}
}

/* It is served whatever step is under way: what never changes, and what a reader takes as it is. */
static int is_fixed(const struct zd_session *s, uint32_t unit)
{
	return s->spec.units[unit].frozen || s->config.world == 0;
}

static uint64_t version_now(const struct zd_session *s, const struct zd_fetch *f)
{
	return f->plane == ZD_PLANE_GRADIENT ? s->decided : s->step;
}

int zd_cfetch_waits(const struct zd_session *s, uint32_t unit)
{
	return s->committing && s->passed && !is_fixed(s, unit);
}

static void park(struct zd_session *s, struct zd_fetch *f)
{
	for (uint32_t i = 0; i < s->lane_count; i++)
		f->part[i].done = 1;
	f->status = ZEROD_OK;
	f->parked = 1;
	s->parked++;
}

static void begin(struct zd_session *s, struct zd_fetch *f)
{
	if (s->spec.units[f->unit].frozen)
		zd_cfetch_begin(s, f, MODE_AT_LEAST, 0);
	else if (s->config.world == 0)
		zd_cfetch_begin(s, f, MODE_AT_LEAST, s->step);
	else if (zd_cfetch_waits(s, f->unit))
		park(s, f);
	else
		zd_cfetch_begin(s, f, MODE_EXACTLY, version_now(s, f));
}

void zd_cfetch_settle(struct zd_session *s)
{
	if (s->parked == 0 || s->failed)
		return;
	for (struct zd_fetch *f = s->fetch_first; f; f = f->next) {
		if (!f->parked || zd_cfetch_waits(s, f->unit))
			continue;
		f->parked = 0;
		s->parked--;
		begin(s, f);
	}
}

static void end_request(struct zd_session *s, struct zd_fetch *f)
{
	struct zd_req *r = f->req;

	f->req = NULL;
	if (r && !r->ended) {
		r->fetch = NULL;
		zd_csession_end(s, r, f->status, "%s", f->text);
	}
}

/* Everything that will come has come. */
static void finish(struct zd_session *s, struct zd_fetch *f)
{
	if (!f->canceled && f->status == ZEROD_OK && f->low != f->high && !s->failed) {
		if (f->restarts++ < ZD_RESTARTS_MAX) {
			zd_cfetch_begin(s, f, MODE_AT_LEAST, f->high);
			return;
		}
		f->status = ZEROD_ERR_ABORTED;
		snprintf(f->text, sizeof(f->text), "unit \"%s\" changed %u times while it was fetched: steps are faster than this reader",
			 s->spec.units[f->unit].name, ZD_RESTARTS_MAX);
	}
	if (!f->canceled && f->req && f->status == ZEROD_ERR_STATE && !is_fixed(s, f->unit) && !s->failed &&
	    (zd_cfetch_waits(s, f->unit) || f->version != version_now(s, f))) {
		park(s, f);
		return;
	}
	if (f->met && s->config.world == 0 && f->high > s->step)
		s->step = f->high;
	if (f->plane == ZD_PLANE_WEIGHTS && !f->req && !f->canceled) {
		zd_cgather_fetched(s, f);
		return;
	}
	end_request(s, f);
	zd_cfetch_drop(s, f);
}

static void part_done(struct zd_session *s, struct zd_fetch *f, struct zd_part *p)
{
	struct zd_req *r = f->req;

	ZD_ASSERT(!p->done);
	if (p->sent && r) {
		if (r->ended && r->lent == 1)
			f->req = NULL; /* it is on its way to the caller */
		zd_csession_unlend(s, r);
	}
	p->done = 1;
	p->sent = 0;
	if (--f->lanes_left == 0)
		finish(s, f);
}

void zd_cfetch_request(struct zd_session *s, struct zd_req *r, const struct zd_session_event *ev)
{
	enum zd_plane plane = ev->u.fetch.plane;
	struct zd_fetch *f;
	int none = s->spec.optimizer == ZD_OPT_NONE;

	if (none != (plane == ZD_PLANE_GRADIENT)) {
		zd_csession_end(s, r, ZEROD_ERR_STATE, none ? "a job without optimizer keeps no weights: only gradients can be fetched"
							     : "only a job without optimizer keeps its gradients");
		return;
	}
	if (none && (s->decided == 0 || s->spec.units[r->unit].frozen)) {
		zd_csession_end(s, r, ZEROD_ERR_STATE, "unit \"%s\" has no gradient: %s", s->spec.units[r->unit].name,
			       s->decided == 0 ? "no step has been done" : "it is frozen");
		return;
	}
	f = zd_cfetch_new(s, r->unit, plane, ev->u.fetch.dst);
	if (!f) {
		zd_csession_end(s, r, ZEROD_ERR_MEMORY, "no memory for a fetch");
		return;
	}
	f->req = r;
	r->fetch = f;
	begin(s, f);
}

/* ---------------------------------------------------------------- asking */

static int free_slot(const struct zd_link *l)
{
	for (int i = 0; i < (int)ZD_FETCHES_MAX; i++)
		if (!l->slots[i])
			return i;
	return -1;
}

static int ask(struct zd_session *s, struct zd_link *l, struct zd_fetch *f, struct zd_part *p)
{
	Zd__Pb__Fetch m = ZD__PB__FETCH__INIT;
	int slot = free_slot(l);
	uint64_t stream;

	if (slot < 0)
		return -1;
	stream = ZD_STREAM(ZD_STREAM_FETCH, (s->fetch_counter + 1) * ZD_FETCHES_MAX + (uint32_t)slot);
	m.unit = f->unit;
	m.first = p->next;
	m.count = p->end - p->next;
	m.plane = f->plane;
	m.mode = f->mode;
	m.version = f->version;
	if (zd_cemit_frame(s, l, ZD_MSG_FETCH, stream, &m.base, NULL, 0, NULL) < 0)
		return -1;
	s->fetch_counter++;
	p->stream = stream;
	p->sent = 1;
	l->slots[slot] = p;
	l->slots_used++;
	l->fetch_owed--;
	if (f->req)
		f->req->lent++;
	return 0;
}

void zd_cfetch_emit(struct zd_session *s, struct zd_link *l)
{
	struct zd_fetch *next;

	for (struct zd_fetch *f = s->fetch_first; f && l->fetch_owed > 0 && l->slots_used < ZD_FETCHES_MAX; f = next) {
		struct zd_part *p = &f->part[l->index];

		next = f->next;
		if (!p->done && !p->sent && ask(s, l, f, p) < 0)
			return;
	}
}

/* ---------------------------------------------------------------- answers */

static struct zd_part *part_of(const struct zd_link *l, uint64_t stream)
{
	struct zd_part *p = l->slots[ZD_STREAM_VALUE(stream) % ZD_FETCHES_MAX];

	return p && p->stream == stream ? p : NULL;
}

static void free_part_slot(struct zd_link *l, const struct zd_part *p)
{
	uint32_t slot = (uint32_t)(ZD_STREAM_VALUE(p->stream) % ZD_FETCHES_MAX);

	ZD_ASSERT(l->slots[slot] == p);
	l->slots[slot] = NULL;
	l->slots_used--;
}

/* What is wrong with a DATA, NULL if nothing. */
static const char *data_wrong(const struct zd_session *s, const struct zd_part *p, const Zd__Pb__Data *m, uint32_t payload_len)
{
	const struct zd_fetch *f = p->fetch;

	if (m->unit != f->unit)
		return "it is of another unit";
	if (payload_len == 0)
		return f->mode == MODE_IF_NEWER && m->last ? NULL : "it carries nothing";
	if (m->first != p->next || m->count > p->end - p->next)
		return "its range is not the next one";
	if (payload_len != m->count * f->elem)
		return "its payload does not fit its range";
	if (m->last != (m->first + m->count == p->end))
		return "it is or is not the last one of its request";
	if (f->mode == MODE_EXACTLY && f->plane != ZD_PLANE_GRADIENT && m->version != f->version && !s->spec.units[f->unit].frozen)
		return "it is of another version";
	return NULL;
}

static void note_version(const struct zd_session *s, struct zd_fetch *f, uint64_t version)
{
	if (s->spec.units[f->unit].frozen)
		version = 0;
	if (!f->met || version < f->low)
		f->low = version;
	if (!f->met || version > f->high)
		f->high = version;
	f->met = 1;
}

int zd_cfetch_data(struct zd_session *s, struct zd_link *l, const Zd__Pb__Data *m, uint64_t stream, uint32_t payload_len, uint8_t **ret_place)
{
	struct zd_part *p = part_of(l, stream);
	const char *wrong = p ? data_wrong(s, p, m, payload_len) : "nobody asked for it";

	if (wrong) {
		zd_csession_fail(s, ZEROD_ERR_PROTOCOL, "lane %u sent DATA of unit %u, elements %llu to %llu, version %llu: %s", l->index, m->unit,
				(unsigned long long)m->first, (unsigned long long)(m->first + m->count), (unsigned long long)m->version, wrong);
		return -1;
	}
	note_version(s, p->fetch, m->version);
	l->rx = p;
	l->rx_count = payload_len ? m->count : 0;
	l->rx_last = m->last != 0;
	*ret_place = p->fetch->dst + m->first * p->fetch->elem;
	return 0;
}

void zd_cfetch_frame(struct zd_session *s, struct zd_link *l)
{
	struct zd_part *p = l->rx;

	l->rx = NULL;
	p->next += l->rx_count;
	if (!l->rx_last)
		return;
	l->info.sealed = 1; /* nothing is sent before */
	free_part_slot(l, p);
	part_done(s, p->fetch, p);
}

void zd_cfetch_refused(struct zd_session *s, struct zd_link *l, uint64_t stream, int err, const char *words)
{
	struct zd_part *p = part_of(l, stream);
	struct zd_fetch *f;
	char name[320];

	if (!p)
		return;
	f = p->fetch;
	if (f->status == ZEROD_OK) {
		zd_clink_name(s, l, name, sizeof(name));
		f->status = err == ZD_ERR_VERSION_GONE ? ZEROD_ERR_STATE : ZEROD_ERR_REFUSED;
		s->passed |= err == ZD_ERR_VERSION_GONE && f->version == version_now(s, f); /* if a step is under way; see zd_cfetch_waits */
		snprintf(f->text, sizeof(f->text), "%s: %s: %s", name, zd_err_text(err), words);
	}
	free_part_slot(l, p);
	part_done(s, f, p);
}

void zd_cfetch_rewind(struct zd_session *s, struct zd_link *l)
{
	l->rx = NULL;
	for (uint32_t i = 0; i < ZD_FETCHES_MAX; i++) {
		struct zd_part *p = l->slots[i];

		if (!p)
			continue;
		l->slots[i] = NULL;
		l->slots_used--;
		if (p->fetch->canceled) {
			part_done(s, p->fetch, p);
			continue;
		}
		p->sent = 0;
		l->fetch_owed++;
		if (p->fetch->req)
			zd_csession_unlend(s, p->fetch->req);
	}
}

void zd_cfetch_cancel(struct zd_session *s, struct zd_fetch *f, int status, const char *text)
{
	struct zd_req *r = f->req;

	f->canceled = 1;
	f->status = status;
	r->fetch = NULL;
	zd_csession_end(s, r, status, "unit \"%s\" not fetched: %s", s->spec.units[f->unit].name, text);
	if (r->lent == 0)
		f->req = NULL;
	f->lanes_left++; /* so that the loop does not end it under our feet */
	for (uint32_t i = 0; i < s->lane_count; i++) {
		struct zd_part *p = &f->part[i];

		if (p->done)
			continue;
		if (p->sent) {
			zd_clink_lose(s, s->lanes[i], "closed to give back memory of an operation that ended");
			continue;
		}
		s->lanes[i]->fetch_owed--;
		part_done(s, f, p);
	}
	if (--f->lanes_left == 0)
		finish(s, f);
}

void zd_cfetch_explain(const struct zd_session *s, const struct zd_fetch *f, char *out, size_t size)
{
	for (uint32_t i = 0; i < s->lane_count; i++) {
		const struct zd_part *p = &f->part[i];
		char name[320], absent[200], why[420];

		if (p->done)
			continue;
		zd_clink_name(s, s->lanes[i], name, sizeof(name));
		zd_cwaits_explain(s->lanes[i], 0, absent, sizeof(absent));
		if (s->lanes[i]->state != ZD_LINK_OPEN)
			zd_clink_explain(s, s->lanes[i], why, sizeof(why));
		else if (s->sealed)
			snprintf(why, sizeof(why), "the lane is silent");
		else
			snprintf(why, sizeof(why), "are its initial weights sealed (zerod_load of every unit, then zerod_seal)?%s%s", absent[0] ? " " : "", absent);
		snprintf(out, size, "%s has %llu elements to send: %s", name, (unsigned long long)(p->end - p->next), why);
		return;
	}
	if (f->parked)
		zd_cagree_explain(s, out, size);
	else
		snprintf(out, size, "the last bytes are arriving");
}
