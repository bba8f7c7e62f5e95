/* SPDX-License-Identifier: Apache-2.0 */
#include "client/state.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/assert.h"

#define ARENA_BYTES 65536u /* the longest message a lane sends is JOINED with one count per unit: 8 KiB decoded, protobuf-c's tables beside it */
#define SINK_BYTES 65536u

/* ---------------------------------------------------------------- memory */

void *zd_csession_alloc(struct zd_session *s, size_t size)
{
	void *memory = s->config.alloc(s->config.alloc_ctx, size);

	if (memory)
		memset(memory, 0, size);
	return memory;
}

void zd_csession_release(struct zd_session *s, void *memory)
{
	if (memory)
		s->config.release(s->config.alloc_ctx, memory);
}

/* xorshift64*: jitter needs no better. */
uint64_t zd_csession_random(struct zd_session *s)
{
	s->random ^= s->random >> 12;
	s->random ^= s->random << 25;
	s->random ^= s->random >> 27;
	return s->random * 0x2545f4914f6cdd1dull;
}

static uint64_t largest(const struct zd_spec *spec, uint32_t how_many)
{
	uint64_t first = 0, second = 0;

	for (uint32_t u = 0; u < spec->unit_count; u++) {
		uint64_t n = spec->units[u].numel;

		if (n > first) {
			second = first;
			first = n;
		} else if (n > second) {
			second = n;
		}
	}
	return 2 * (how_many == 1 ? first : first + second);
}

uint64_t zd_session_gather_min(const struct zd_spec *spec)
{
	return largest(spec, 1);
}

uint64_t zd_session_gather_default(const struct zd_spec *spec)
{
	return largest(spec, 2);
}

static int copy_spec(struct zd_session *s, const struct zd_spec *spec)
{
	struct zd_unit_spec *units = zd_csession_alloc(s, spec->unit_count * sizeof(*units));

	if (!units)
		return -1;
	memcpy(units, spec->units, spec->unit_count * sizeof(*units));
	s->spec = *spec;
	s->spec.units = units;
	s->unit_count = spec->unit_count;
	return 0;
}

static int make_tables(struct zd_session *s)
{
	uint32_t n = s->unit_count, d = s->config.daemon_count;
	void *arena;

	s->daemons = zd_csession_alloc(s, d * sizeof(*s->daemons));
	s->daemon_lanes = zd_csession_alloc(s, d * sizeof(*s->daemon_lanes));
	s->links = zd_csession_alloc(s, ZD_LANES_MAX * sizeof(struct zd_link *));
	s->pb_units = zd_csession_alloc(s, n * sizeof(*s->pb_units));
	s->pb_unit_ptrs = zd_csession_alloc(s, n * sizeof(Zd__Pb__Unit *));
	s->counts = zd_csession_alloc(s, n * sizeof(*s->counts));
	s->units = zd_csession_alloc(s, n * sizeof(*s->units));
	s->gunits = zd_csession_alloc(s, n * sizeof(*s->gunits));
	s->plan = zd_csession_alloc(s, ZD_PLAN_MAX * sizeof(*s->plan));
	s->learnt = zd_csession_alloc(s, ZD_PLAN_MAX * sizeof(*s->learnt));
	s->sink = zd_csession_alloc(s, SINK_BYTES);
	arena = zd_csession_alloc(s, ARENA_BYTES);
	if (!arena)
		return -1;
	zd_arena_init(&s->arena, arena, ARENA_BYTES);
	if (!s->daemons || !s->daemon_lanes || !s->links || !s->pb_units || !s->pb_unit_ptrs || !s->counts || !s->units || !s->gunits ||
	    !s->plan || !s->learnt || !s->sink)
		return -1;
	for (uint32_t u = 0; u < n; u++)
		s->gunits[u].bytes = 2 * s->spec.units[u].numel;
	for (uint32_t i = 0; i < d; i++) {
		snprintf(s->daemons[i], sizeof(s->daemons[i]), "%s", s->config.daemons[i]);
		if (zd_clink_add(s, i, 0) < 0)
			return -1;
	}
	return 0;
}

struct zd_session *zd_session_new(const struct zd_session_config *config)
{
	struct zd_session *s = config->alloc(config->alloc_ctx, sizeof(*s));

	ZD_ASSERT(config->daemon_count >= 1 && config->daemon_count <= ZD_LANES_MAX);
	if (!s)
		return NULL;
	memset(s, 0, sizeof(*s));
	s->config = *config;
	s->now = config->now;
	s->random = config->seed ? config->seed : 1;
	s->ballot = (struct zd_ballot){.epoch = config->epoch};
	s->limit = config->gather_bytes_max ? config->gather_bytes_max : zd_session_gather_default(config->spec);
	if (copy_spec(s, config->spec) < 0 || make_tables(s) < 0) {
		zd_session_free(s);
		return NULL;
	}
	s->config.spec = NULL;
	s->config.daemons = NULL;
	return s;
}

static void free_reqs(struct zd_session *s, struct zd_reqs *list)
{
	struct zd_req *next;

	for (struct zd_req *r = list->first; r; r = next) {
		next = r->next;
		zd_csession_release(s, r);
	}
}

void zd_session_free(struct zd_session *s)
{
	if (!s)
		return;
	free_reqs(s, &s->open);
	free_reqs(s, &s->ending);
	free_reqs(s, &s->done);
	while (s->fetch_first)
		zd_cfetch_drop(s, s->fetch_first);
	if (s->gunits)
		zd_climit_fini(s);
	for (uint32_t i = 0; i < s->link_count; i++) {
		zd_csession_release(s, s->links[i]->counted);
		zd_csession_release(s, s->links[i]);
	}
	zd_csession_release(s, s->lanes);
	zd_csession_release(s, s->links);
	zd_csession_release(s, s->pieces);
	zd_csession_release(s, s->daemons);
	zd_csession_release(s, s->daemon_lanes);
	zd_csession_release(s, s->pb_units);
	zd_csession_release(s, s->pb_unit_ptrs);
	zd_csession_release(s, s->counts);
	zd_csession_release(s, s->units);
	zd_csession_release(s, s->gunits);
	zd_csession_release(s, s->plan);
	zd_csession_release(s, s->learnt);
	zd_csession_release(s, s->sink);
	zd_csession_release(s, s->arena.base);
	zd_csession_release(s, s->spec.units);
	s->config.release(s->config.alloc_ctx, s);
}

/* ---------------------------------------------------------------- requests */

static void put_last(struct zd_reqs *list, struct zd_req *r)
{
	r->prev = list->last;
	r->next = NULL;
	if (list->last)
		list->last->next = r;
	else
		list->first = r;
	list->last = r;
	list->count++;
}

static void take(struct zd_reqs *list, struct zd_req *r)
{
	if (r->prev)
		r->prev->next = r->next;
	else
		list->first = r->next;
	if (r->next)
		r->next->prev = r->prev;
	else
		list->last = r->prev;
	list->count--;
}

/* A push that failed and nobody waited for is told by the next FLUSH; a REDO is told once, by whoever is waited for: what later FLUSHes report is of the new computation. */
static void note_status(struct zd_session *s, const struct zd_req *r)
{
	if (r->kind == ZD_SE_REQ_PUSH && !r->tells && r->status != ZEROD_OK && r->status != ZEROD_REDO && s->push_status == ZEROD_OK) {
		s->push_status = r->status;
		memcpy(s->push_text, r->text, sizeof(s->push_text));
	}
	if (r->status == ZEROD_REDO && (r->kind != ZD_SE_REQ_PUSH || r->tells))
		s->redo_owed = 0;
	if ((r->kind == ZD_SE_REQ_STEP || r->kind == ZD_SE_REQ_FLUSH) && r->status != ZEROD_ERR_TIMEOUT)
		s->push_status = ZEROD_OK;
}

void zd_csession_end(struct zd_session *s, struct zd_req *r, int status, const char *format, ...)
{
	va_list args;

	ZD_ASSERT(!r->ended);
	va_start(args, format);
	vsnprintf(r->text, sizeof(r->text), format, args);
	va_end(args);
	r->ended = 1;
	r->status = status;
	zd_cpush_forget(s, r);
	zd_cgather_forget(s, r);
	if (r == s->step_req)
		s->step_req = NULL;
	if (r == s->flush_req)
		s->flush_req = NULL;
	if (r == s->seal_req)
		s->seal_req = NULL;
	if (r == s->connect_req)
		s->connect_req = NULL;
	note_status(s, r);
	take(&s->open, r);
	put_last(r->lent ? &s->ending : &s->done, r);
}

void zd_csession_unlend(struct zd_session *s, struct zd_req *r)
{
	ZD_ASSERT(r->lent > 0);
	if (--r->lent == 0 && r->ended) {
		take(&s->ending, r);
		put_last(&s->done, r);
	}
}

void zd_csession_fail(struct zd_session *s, int status, const char *format, ...)
{
	char text[ZD_TEXT_BYTES];
	va_list args;

	if (s->failed)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	memcpy(s->failure, text, sizeof(s->failure));
	s->failed = status;
	s->phase = ZD_PH_FAILED;
	for (uint32_t i = 0; i < s->link_count; i++) {
		struct zd_link *l = s->links[i];

		l->stopped = 1;
		zd_clink_lose(s, l, "%s", text);
		l->ls = ZD_LS_NONE;
	}
	while (s->open.first) {
		struct zd_req *r = s->open.first;

		if (r->fetch) /* its memory may still be written to until the connections are down */
			zd_cfetch_cancel(s, r->fetch, status, text);
		else
			zd_csession_end(s, r, status, "%s", text);
	}
}

void zd_csession_lost(struct zd_session *s, const char *format, ...)
{
	char text[ZD_TEXT_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	zd_csession_fail(s, ZEROD_ERR_LOST,
			"%s; no launch can go on from there: drop the job everywhere (zeroctl --yes job drop %s), then start all ranks from the initial "
			"weights or a checkpoint",
			text, s->spec.name);
}

/* ---------------------------------------------------------------- deadlines */

static void timed_out(struct zd_session *s, struct zd_req *r)
{
	char text[ZD_TEXT_BYTES] = "";
	uint64_t ms = (s->now - r->started) / 1000000u;

	switch (r->kind) {
	case ZD_SE_REQ_CONNECT:
		zd_cagree_explain(s, text, sizeof(text));
		zd_csession_end(s, r, s->lane_count ? ZEROD_ERR_TIMEOUT : ZEROD_ERR_CONNECT, "not connected after %llu ms: %s",
			       (unsigned long long)ms, text);
		return;
	case ZD_SE_REQ_STEP:
		zd_cagree_explain(s, text, sizeof(text));
		zd_csession_end(s, r, ZEROD_ERR_TIMEOUT, "step of rank %u not done after %llu ms: %s", s->config.rank,
			       (unsigned long long)ms, text);
		return;
	case ZD_SE_REQ_GATHER:
		zd_cgather_explain(s, r, text, sizeof(text));
		zd_csession_end(s, r, ZEROD_ERR_TIMEOUT, "unit \"%s\" not gathered after %llu ms: %s", s->spec.units[r->unit].name,
			       (unsigned long long)ms, text);
		return;
	case ZD_SE_REQ_FETCH:
		zd_cfetch_explain(s, r->fetch, text, sizeof(text));
		zd_cfetch_cancel(s, r->fetch, ZEROD_ERR_TIMEOUT, text);
		return;
	default:
		zd_cpush_timeout(s, r);
	}
}

static void check_deadlines(struct zd_session *s)
{
	struct zd_req *next;

	for (struct zd_req *r = s->open.first; r; r = next) {
		next = r->next;
		if (r->deadline <= s->now) {
			timed_out(s, r);
			next = s->open.first; /* others may have ended with it */
		}
	}
}

zd_time zd_session_deadline(const struct zd_session *s)
{
	zd_time at = ZD_TIME_NEVER;

	if (s->hungry)
		return s->now;
	for (const struct zd_req *r = s->open.first; r; r = r->next)
		if (r->deadline < at)
			at = r->deadline;
	for (uint32_t i = 0; i < s->link_count; i++) {
		zd_time t = zd_clink_deadline(s, s->links[i]);

		if (t < at)
			at = t;
	}
	return at;
}

/* ---------------------------------------------------------------- events */

static void begin_connect(struct zd_session *s, struct zd_req *r)
{
	if (s->connect_req || s->phase != ZD_PH_NEW) {
		if (s->connected)
			zd_csession_end(s, r, ZEROD_OK, "%s", "");
		else if (s->connect_req)
			zd_csession_end(s, r, ZEROD_ERR_STATE, "connecting already");
		else
			s->connect_req = r; /* an earlier one timed out; trying went on */
		return;
	}
	s->connect_req = r;
	s->phase = ZD_PH_MEET;
	zd_clink_start(s);
}

/* Requests about a unit: it must exist, and the job be connected. */
static int usable(struct zd_session *s, struct zd_req *r)
{
	if (r->kind != ZD_SE_REQ_SEAL && r->kind != ZD_SE_REQ_FLUSH && r->kind != ZD_SE_REQ_STEP && r->unit >= s->unit_count) {
		zd_csession_end(s, r, ZEROD_ERR_ARGUMENT, "unit %u does not exist: the job has %u, from 0", r->unit, s->unit_count);
		return 0;
	}
	if (!s->connected) {
		zd_csession_end(s, r, ZEROD_ERR_STATE, "not connected: call zerod_connect first");
		return 0;
	}
	if (s->config.world == 0 && r->kind != ZD_SE_REQ_GATHER && r->kind != ZD_SE_REQ_FETCH) {
		zd_csession_end(s, r, ZEROD_ERR_STATE, "a reader (world 0) can only gather and fetch");
		return 0;
	}
	return 1;
}

static void dispatch(struct zd_session *s, struct zd_req *r, const struct zd_session_event *ev)
{
	if (s->failed) {
		zd_csession_end(s, r, s->failed, "%s", s->failure);
		return;
	}
	if (s->open.count > ZD_REQS_MAX) {
		zd_csession_end(s, r, ZEROD_ERR_STATE, "%u operations are open already, the most allowed", ZD_REQS_MAX);
		return;
	}
	if (r->kind == ZD_SE_REQ_CONNECT) {
		begin_connect(s, r);
		return;
	}
	if (!usable(s, r))
		return;
	switch (r->kind) {
	case ZD_SE_REQ_LOAD:
		zd_cpush_load(s, r, ev);
		break;
	case ZD_SE_REQ_SEAL:
		zd_cpush_seal(s, r);
		break;
	case ZD_SE_REQ_GATHER:
		zd_cgather_request(s, r, r->unit);
		break;
	case ZD_SE_REQ_FETCH:
		zd_cfetch_request(s, r, ev);
		break;
	case ZD_SE_REQ_PUSH:
		zd_cpush_request(s, r, ev);
		break;
	case ZD_SE_REQ_FLUSH:
		zd_cpush_flush(s, r);
		break;
	default:
		zd_cagree_step(s, r, ev);
	}
}

static void request(struct zd_session *s, const struct zd_session_event *ev)
{
	struct zd_req *r = zd_csession_alloc(s, sizeof(*r));
	struct zd_req nothing = {.id = ev->request, .status = ZEROD_ERR_MEMORY, .text = "no memory for the request"};

	if (!r) {
		zd_cemit_done(s, &nothing);
		return;
	}
	r->id = ev->request;
	r->deadline = ev->deadline;
	r->started = s->now;
	r->kind = ev->type;
	if (ev->type == ZD_SE_REQ_LOAD)
		r->unit = ev->u.load.unit;
	else if (ev->type == ZD_SE_REQ_GATHER)
		r->unit = ev->u.gather.unit;
	else if (ev->type == ZD_SE_REQ_FETCH)
		r->unit = ev->u.fetch.unit;
	else if (ev->type == ZD_SE_REQ_PUSH)
		r->unit = ev->u.push.unit;
	put_last(&s->open, r);
	dispatch(s, r, ev);
}

static void emit(struct zd_session *s)
{
	for (uint32_t i = 0; i < s->link_count; i++)
		zd_cemit_link(s, s->links[i]);
	while (s->done.first) {
		struct zd_req *r = s->done.first;

		if (zd_cemit_done(s, r) < 0)
			break;
		take(&s->done, r);
		zd_csession_release(s, r);
	}
}

void zd_session_step(struct zd_session *s, const struct zd_session_event *ev, struct zd_session_actions *actions)
{
	actions->count = 0;
	actions->used = 0;
	s->out = actions;
	s->hungry = 0;
	if (ev->now > s->now)
		s->now = ev->now;
	switch (ev->type) {
	case ZD_SE_UP:
		zd_clink_up(s, ev);
		break;
	case ZD_SE_BYTES:
		zd_clink_bytes(s, ev);
		break;
	case ZD_SE_SENT:
		zd_clink_sent(s, ev);
		break;
	case ZD_SE_DOWN:
		zd_clink_down(s, ev);
		break;
	case ZD_SE_ACKED:
		zd_clink_acked(s, ev);
		break;
	case ZD_SE_TICK:
		for (uint32_t i = 0; i < s->link_count; i++)
			zd_clink_doubt(s, s->links[i]);
		break;
	case ZD_SE_REQ_RELEASE:
		zd_cgather_release(s, ev->u.gather.unit, ev->u.gather.keep);
		break;
	case ZD_SE_REQ_PLAN:
		zd_cgather_plan(s, ev->u.plan.units, ev->u.plan.count);
		break;
	case ZD_SE_REQ_STOP:
		zd_csession_fail(s, ZEROD_ERR_CANCELED, "the client was freed");
		break;
	default:
		request(s, ev);
	}
	for (uint32_t i = 0; i < s->link_count; i++)
		zd_clink_tick(s, s->links[i]);
	check_deadlines(s);
	zd_cpush_settle(s);
	zd_cfetch_settle(s);
	zd_cgather_settle(s);
	emit(s);
	s->out = NULL;
}

/* ---------------------------------------------------------------- queries */

struct zd_span zd_session_window(struct zd_session *s, uint32_t slot, uint32_t gen)
{
	struct zd_link *l = zd_clink_find(s, slot, gen);

	if (!l || l->state < ZD_LINK_HELLO || l->state == ZD_LINK_CLOSING)
		return (struct zd_span){0};
	return zd_reader_window(&l->reader, (struct zd_span){s->sink, SINK_BYTES});
}

int zd_session_doubts(const struct zd_session *s, uint32_t slot, uint32_t gen, zd_time now)
{
	return slot < s->link_count && s->links[slot]->gen == gen && zd_clink_doubtful(s, s->links[slot], now);
}

void zd_session_view(const struct zd_session *s, struct zd_session_view *ret_view)
{
	*ret_view = (struct zd_session_view){
		.ballot = s->ballot,
		.connected = s->connected,
		.sealed = s->sealed,
		.agreeing = s->phase == ZD_PH_JOIN || s->phase == ZD_PH_RESOLVE,
		.decided = s->decided,
		.step = s->step,
		.lanes = s->lane_count,
		.failed = s->failed,
	};
	for (uint32_t i = 0; i < s->lane_count; i++)
		zd_cwaits_add(s, s->lanes[i], &ret_view->absent, &ret_view->behind);
}

void zd_session_result(const struct zd_session *s, struct zerod_step_result *ret_result)
{
	*ret_result = s->result;
}

void zd_session_stats(const struct zd_session *s, struct zerod_stats *ret_stats)
{
	*ret_stats = s->stats;
	ret_stats->gathered_bytes = s->used;
	ret_stats->gathered_bytes_max = s->used_max;
	ret_stats->gather_bytes_limit = s->limit;
}

const char *zd_session_failure(const struct zd_session *s)
{
	return s->failure;
}
