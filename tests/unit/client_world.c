/* SPDX-License-Identifier: Apache-2.0 */
#include "client_world.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/kernel/call.h"

#define LINKS 8		  /* slots of a session */
#define CONNS 64	  /* slots of a core */
#define MARKS 512	  /* payloads in one pipe */
#define EVENTS 4096	  /* of a core, waiting */
#define SLAB (64u << 20)
#define TURNS_MAX 4000000 /* without an end: the test hangs */

struct pipe {
	uint8_t *data;
	size_t at, len, cap;
	struct {
		size_t end;
		uint64_t token;
	} mark[MARKS];
	uint32_t marks;
};

struct wire {
	uint8_t open; /* both ends believe in it */
	uint8_t close_after; /* the lane closes when the pipe is empty */
	uint32_t lane;
	uint32_t gen;
	struct zd_conn_id id;
	struct pipe up, down;
};

struct peer {
	struct zd_session *session;
	struct zd_session_actions *actions;
	struct wire wire[LINKS];
	struct cw_result *results;
	uint32_t requests;
	uint8_t muted;
};

struct lane {
	struct zd_core *core;
	struct zd_actions *actions;
	void *arena, *slab;
	struct zd_event *event;
	uint32_t first, count;
	uint8_t used[CONNS];
	uint32_t gen;
};

struct cw_world {
	struct cw_config config;
	zd_time now;
	uint64_t random;
	struct peer peer[CW_PEERS];
	struct lane lane[CW_LANES];
	struct zd_kernel_result result[EVENTS];
	size_t heap, heap_peak;
};

uint64_t cw_random(struct cw_world *w)
{
	w->random ^= w->random >> 12;
	w->random ^= w->random << 25;
	w->random ^= w->random >> 27;
	return w->random * 0x2545f4914f6cdd1dull;
}

static void put(struct pipe *p, const void *data, size_t len, uint64_t token)
{
	if (p->at == p->len)
		p->at = p->len = 0;
	if (p->len + len > p->cap) {
		p->cap = 2 * (p->len + len);
		p->data = realloc(p->data, p->cap);
		assert_non_null(p->data);
	}
	memcpy(p->data + p->len, data, len);
	p->len += len;
	if (token) {
		assert_true(p->marks < MARKS);
		p->mark[p->marks].end = p->len - p->at; /* kept relative to what is left */
		p->mark[p->marks++].token = token;
	}
}

/* Bytes left the pipe; the token of a payload that is out now, or 0. */
static uint64_t passed(struct pipe *p, size_t len)
{
	uint64_t token = 0;

	p->at += len;
	for (uint32_t i = 0; i < p->marks; i++)
		p->mark[i].end -= len < p->mark[i].end ? len : p->mark[i].end;
	if (p->marks > 0 && p->mark[0].end == 0) {
		token = p->mark[0].token;
		memmove(p->mark, p->mark + 1, --p->marks * sizeof(p->mark[0]));
	}
	return token;
}

static void drain(struct pipe *p)
{
	p->at = p->len = 0;
	p->marks = 0;
}

/* ---------------------------------------------------------------- lanes */

static void run_kernel(struct cw_world *w, struct lane *l, const struct zd_kernel_call *c)
{
	static struct zd_kernel_scratch scratch;
	uint32_t at = (l->first + l->count) % EVENTS;

	assert_true(l->count < EVENTS);
	zd_kernel_call(zd_kernels_select(""), c, &scratch, &w->result[at]);
	zd_kernel_event(&w->result[at], &l->event[at]);
	l->count++;
}

static struct wire *wire_of(struct cw_world *w, uint32_t lane, struct zd_conn_id id)
{
	for (uint32_t p = 0; p < w->config.peers; p++)
		for (uint32_t s = 0; s < LINKS; s++) {
			struct wire *x = &w->peer[p].wire[s];

			if (x->open && x->lane == lane && x->id.slot == id.slot && x->id.gen == id.gen)
				return x;
		}
	return NULL;
}

static void lane_actions(struct cw_world *w, uint32_t index)
{
	struct lane *l = &w->lane[index];
	const struct zd_actions *actions = l->actions;

	for (uint32_t i = 0; i < actions->count; i++) {
		const struct zd_action *a = &actions->item[i];
		struct wire *x;

		switch (a->type) {
		case ZD_ACT_SEND:
			x = wire_of(w, index, a->u.send.id);
			if (!x)
				break;
			put(&x->down, actions->bytes + a->u.send.frame, a->u.send.frame_len, 0);
			if (a->u.send.payload_len > 0)
				put(&x->down, a->u.send.payload, a->u.send.payload_len, a->u.send.token);
			break;
		case ZD_ACT_CLOSE:
			x = wire_of(w, index, a->u.close.id);
			if (x)
				x->close_after = 1;
			break;
		case ZD_ACT_KERNEL:
			run_kernel(w, l, &a->u.kernel);
			break;
		case ZD_ACT_STORE:
			assert_true(l->count < EVENTS);
			l->event[(l->first + l->count++) % EVENTS] = (struct zd_event){.type = ZD_EV_STORED, .u.stored = {a->u.store.token, 0}};
			break;
		default:
			break;
		}
	}
}

static void lane_step(struct cw_world *w, uint32_t index, struct zd_event *ev)
{
	struct lane *l = &w->lane[index];

	ev->now = w->now;
	zd_core_step(l->core, ev, l->actions);
	lane_actions(w, index);
	while (l->count > 0) {
		struct zd_event next = l->event[l->first];

		l->first = (l->first + 1) % EVENTS;
		l->count--;
		next.now = w->now;
		zd_core_step(l->core, &next, l->actions);
		lane_actions(w, index);
	}
}

static void lane_begin(struct cw_world *w, uint32_t index)
{
	struct lane *l = &w->lane[index];
	struct zd_core_config config = {.lane = index, .max_conns = CONNS, .max_jobs = 2, .windows = 24, .uuid_seed = cw_random(w),
					.slab = l->slab, .slab_bytes = SLAB, .daemon = "test", .kernels = "any", .now = w->now};
	size_t need = zd_core_arena_bytes(&config);

	memset(l->slab, 0xa5, SLAB);
	free(l->arena);
	l->arena = aligned_alloc(64, (need + 63) & ~(size_t)63);
	assert_non_null(l->arena);
	memset(l->arena, 0, need);
	l->core = zd_core_init(l->arena, &config);
	assert_non_null(l->core);
	memset(l->used, 0, sizeof(l->used));
	l->first = l->count = 0;
}

/* ---------------------------------------------------------------- sessions */

static void peer_step(struct cw_world *w, uint32_t index, struct zd_session_event *ev);

static void wire_down(struct cw_world *w, uint32_t peer, uint32_t slot, const char *text)
{
	struct wire *x = &w->peer[peer].wire[slot];
	struct zd_session_event down = {.type = ZD_SE_DOWN, .slot = slot, .gen = x->gen, .u.down.text = text};
	struct zd_event closed = {.type = ZD_EV_CLOSED, .u.closed.id = x->id};

	if (!x->open)
		return;
	x->open = 0;
	drain(&x->up);
	drain(&x->down);
	w->lane[x->lane].used[x->id.slot] = 0;
	lane_step(w, x->lane, &closed);
	peer_step(w, peer, &down);
}

static void connect_wire(struct cw_world *w, uint32_t peer, const struct zd_session_action *a)
{
	struct wire *x = &w->peer[peer].wire[a->slot];
	uint32_t per = w->config.lanes / w->config.daemons, index = a->u.connect.daemon * per + a->u.connect.lane, slot = 0;
	struct lane *l = &w->lane[index];
	struct zd_event conn = {.type = ZD_EV_CONN, .u.conn = {.role = peer < w->config.peers - w->config.readers ? ZD_ROLE_WORKER : ZD_ROLE_READER, .features = ZD_FEATURE_PAYLOAD_CRC, .peer = "test"}};
	struct zd_session_event up = {.type = ZD_SE_UP, .slot = a->slot, .gen = a->gen,
				      .u.up = {.greeted = 1, .lane_count = per, .features = ZD_FEATURE_PAYLOAD_CRC}};

	assert_true(a->slot < LINKS && !x->open);
	while (slot < CONNS && l->used[slot])
		slot++;
	assert_true(slot < CONNS);
	l->used[slot] = 1;
	*x = (struct wire){.open = 1, .lane = index, .gen = a->gen, .id = {slot, ++l->gen}, .up = x->up, .down = x->down};
	conn.u.conn.id = x->id;
	lane_step(w, index, &conn);
	peer_step(w, peer, &up);
}

static void peer_step(struct cw_world *w, uint32_t index, struct zd_session_event *ev)
{
	struct peer *p = &w->peer[index];
	struct zd_session_action *item;
	uint32_t count;

	ev->now = w->now;
	zd_session_step(p->session, ev, p->actions);
	count = p->actions->count;
	item = malloc((count + 1) * sizeof(*item));
	assert_non_null(item);
	memcpy(item, p->actions->item, count * sizeof(*item));
	for (uint32_t i = 0; i < count; i++) {
		const struct zd_session_action *a = &item[i];
		struct wire *x = &p->wire[a->slot];

		if (a->type == ZD_SA_SEND && x->open && x->gen == a->gen) {
			put(&x->up, p->actions->bytes + a->u.send.frame, a->u.send.frame_len, 0);
			if (a->u.send.payload_len > 0)
				put(&x->up, a->u.send.payload, a->u.send.payload_len, a->u.send.token);
		} else if (a->type == ZD_SA_DONE) {
			struct cw_result *r = &p->results[a->u.done.request % CW_REQS];

			assert_false(r->done);
			r->done = 1;
			r->status = a->u.done.status;
			r->weights = a->u.done.weights;
			snprintf(r->text, sizeof(r->text), "%s", (const char *)p->actions->bytes + a->u.done.text);
		}
	}
	for (uint32_t i = 0; i < count; i++) { /* these take steps of their own, which reuse the actions */
		if (item[i].type == ZD_SA_CONNECT)
			connect_wire(w, index, &item[i]);
		else if (item[i].type == ZD_SA_CLOSE && p->wire[item[i].slot].open && p->wire[item[i].slot].gen == item[i].gen)
			wire_down(w, index, item[i].slot, "closed");
	}
	free(item);
}

static void *allocate(void *ctx, size_t size)
{
	struct cw_world *w = ctx;
	void *memory = aligned_alloc(64, (size + 64) & ~(size_t)63);

	w->heap += malloc_usable_size(memory);
	if (w->heap > w->heap_peak)
		w->heap_peak = w->heap;
	return memory;
}

static void release(void *ctx, void *memory)
{
	struct cw_world *w = ctx;

	w->heap -= malloc_usable_size(memory);
	free(memory);
}

static void peer_begin(struct cw_world *w, uint32_t index)
{
	static const char *const names[] = {"one:1", "two:2", "three:3", "four:4"};
	uint32_t workers = w->config.peers - w->config.readers, rivals = w->config.rivals;
	struct zd_session_config config = {
		.spec = &w->config.spec, .daemons = names, .daemon_count = w->config.daemons, .rank = rivals || index >= workers ? 0 : index,
		.world = rivals ? 1 : index < workers ? workers : 0, .epoch = rivals ? index + 1 : 1, .launch = rivals ? index + 5 : 5,
		.process = cw_random(w), .seed = cw_random(w), .gather_bytes_max = w->config.gather_bytes_max, .prefetch = w->config.prefetch,
		.create = 1, .features = ZD_FEATURE_PAYLOAD_CRC, .alloc = allocate, .release = release, .alloc_ctx = w, .now = w->now,
	};

	w->peer[index].session = zd_session_new(&config);
	assert_non_null(w->peer[index].session);
}

struct cw_world *cw_new(const struct cw_config *config)
{
	struct cw_world *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	w->config = *config;
	w->random = config->seed ? config->seed : 1;
	w->now = ZD_SEC(1);
	for (uint32_t i = 0; i < config->lanes; i++) {
		w->lane[i].slab = aligned_alloc(4096, SLAB);
		w->lane[i].actions = malloc(sizeof(struct zd_actions));
		w->lane[i].event = calloc(EVENTS, sizeof(struct zd_event));
		assert_true(w->lane[i].slab && w->lane[i].actions && w->lane[i].event);
		lane_begin(w, i);
	}
	for (uint32_t i = 0; i < config->peers; i++) {
		w->peer[i].actions = malloc(sizeof(struct zd_session_actions));
		w->peer[i].results = calloc(CW_REQS, sizeof(struct cw_result));
		assert_true(w->peer[i].actions && w->peer[i].results);
		peer_begin(w, i);
	}
	return w;
}

static void stop_peer(struct cw_world *w, uint32_t index)
{
	struct zd_session_event stop = {.type = ZD_SE_REQ_STOP};

	peer_step(w, index, &stop);
	zd_session_free(w->peer[index].session);
}

void cw_free(struct cw_world *w)
{
	for (uint32_t i = 0; i < w->config.peers; i++) {
		stop_peer(w, i);
		for (uint32_t s = 0; s < LINKS; s++) {
			free(w->peer[i].wire[s].up.data);
			free(w->peer[i].wire[s].down.data);
		}
		free(w->peer[i].actions);
		free(w->peer[i].results);
	}
	for (uint32_t i = 0; i < w->config.lanes; i++) {
		free(w->lane[i].slab);
		free(w->lane[i].arena);
		free(w->lane[i].actions);
		free(w->lane[i].event);
	}
	free(w);
}

struct zd_session *cw_session(struct cw_world *w, uint32_t peer)
{
	return w->peer[peer].session;
}

struct zd_core *cw_core(struct cw_world *w, uint32_t lane)
{
	return w->lane[lane].core;
}

zd_time cw_now(const struct cw_world *w)
{
	return w->now;
}

struct cw_result *cw_request(struct cw_world *w, uint32_t peer, struct zd_session_event *ev)
{
	struct peer *p = &w->peer[peer];
	struct cw_result *r = &p->results[++p->requests % CW_REQS];

	memset(r, 0, sizeof(*r));
	ev->request = p->requests;
	if (ev->deadline == 0)
		ev->deadline = w->now + ZD_SEC(60);
	peer_step(w, peer, ev);
	return r;
}

void cw_cut(struct cw_world *w, uint32_t peer, uint32_t lane)
{
	for (uint32_t s = 0; s < LINKS; s++)
		if (w->peer[peer].wire[s].open && w->peer[peer].wire[s].lane == lane)
			wire_down(w, peer, s, "cut");
}

void cw_wipe(struct cw_world *w, uint32_t lane)
{
	for (uint32_t p = 0; p < w->config.peers; p++)
		cw_cut(w, p, lane);
	lane_begin(w, lane);
}

void cw_mute(struct cw_world *w, uint32_t peer, int muted)
{
	w->peer[peer].muted = (uint8_t)muted;
}

size_t cw_heap(const struct cw_world *w)
{
	return w->heap;
}

size_t cw_heap_peak(struct cw_world *w)
{
	size_t peak = w->heap_peak;

	w->heap_peak = w->heap;
	return peak;
}

/* ---------------------------------------------------------------- turns */

static int deliver_up(struct cw_world *w, struct wire *x, size_t max)
{
	struct zd_span window = zd_core_window(w->lane[x->lane].core, x->id);
	size_t n = x->up.len - x->up.at;
	struct zd_event ev = {.type = ZD_EV_BYTES, .u.bytes.id = x->id};

	n = n < max ? n : max;
	n = n < window.len ? n : window.len;
	if (x->up.marks > 0 && n > x->up.mark[0].end)
		n = x->up.mark[0].end; /* so that each token is told */
	if (n == 0)
		return 0;
	memcpy(window.base, x->up.data + x->up.at, n);
	ev.u.bytes.len = n;
	lane_step(w, x->lane, &ev);
	return (int)n;
}

static int deliver_down(struct cw_world *w, uint32_t peer, uint32_t slot, size_t max)
{
	struct wire *x = &w->peer[peer].wire[slot];
	struct zd_span window = zd_session_window(w->peer[peer].session, slot, x->gen);
	size_t n = x->down.len - x->down.at;
	struct zd_session_event ev = {.type = ZD_SE_BYTES, .slot = slot, .gen = x->gen};
	struct zd_event sent = {.type = ZD_EV_SENT, .u.sent.id = x->id};
	uint32_t gen = x->gen;

	n = n < max ? n : max;
	n = n < window.len ? n : window.len;
	if (x->down.marks > 0 && n > x->down.mark[0].end)
		n = x->down.mark[0].end;
	if (n == 0)
		return 0;
	memcpy(window.base, x->down.data + x->down.at, n);
	sent.u.sent.token = passed(&x->down, n);
	if (sent.u.sent.token)
		lane_step(w, x->lane, &sent);
	ev.u.bytes.len = n;
	if (x->open && x->gen == gen)
		peer_step(w, peer, &ev);
	return 1;
}

static int deliver(struct cw_world *w, uint32_t peer, uint32_t slot)
{
	struct wire *x = &w->peer[peer].wire[slot];
	size_t max = 1 + cw_random(w) % w->config.piece_max;
	uint32_t gen = x->gen;
	int n;

	if (!x->open || w->peer[peer].muted)
		return 0;
	if (x->close_after && x->down.at == x->down.len) {
		wire_down(w, peer, slot, "closed by the lane");
		return 1;
	}
	if (cw_random(w) % 2 && deliver_down(w, peer, slot, max))
		return 1;
	n = deliver_up(w, x, max);
	if (n > 0) {
		struct zd_session_event sent = {.type = ZD_SE_SENT, .slot = slot, .gen = gen};

		sent.u.sent.token = passed(&x->up, (size_t)n);
		if (sent.u.sent.token && x->open && x->gen == gen)
			peer_step(w, peer, &sent);
		return 1;
	}
	return deliver_down(w, peer, slot, max);
}

static void jump(struct cw_world *w, zd_time to)
{
	if (to > w->now)
		w->now = to;
	for (uint32_t i = 0; i < w->config.lanes; i++) {
		struct zd_event tick = {.type = ZD_EV_TICK};

		if (zd_core_deadline(w->lane[i].core) <= w->now)
			lane_step(w, i, &tick);
	}
	for (uint32_t i = 0; i < w->config.peers; i++) {
		struct zd_session_event tick = {.type = ZD_SE_TICK};

		if (zd_session_deadline(w->peer[i].session) <= w->now)
			peer_step(w, i, &tick);
	}
}

int cw_turn(struct cw_world *w)
{
	uint32_t start = (uint32_t)cw_random(w);
	zd_time next = ZD_TIME_NEVER;

	for (uint32_t i = 0; i < w->config.peers; i++)
		if (zd_session_deadline(w->peer[i].session) < next)
			next = zd_session_deadline(w->peer[i].session);
	if (next <= w->now) {
		jump(w, w->now);
		return 1;
	}
	for (uint32_t k = 0; k < w->config.peers * LINKS; k++) {
		uint32_t at = (start + k) % (w->config.peers * LINKS);

		if (deliver(w, at / LINKS, at % LINKS))
			return 1;
	}
	for (uint32_t i = 0; i < w->config.lanes; i++) {
		struct zd_event idle = {.type = ZD_EV_IDLE};

		if (zd_core_wants_idle(w->lane[i].core)) {
			lane_step(w, i, &idle);
			return 1;
		}
		if (zd_core_deadline(w->lane[i].core) < next)
			next = zd_core_deadline(w->lane[i].core);
	}
	if (next == ZD_TIME_NEVER)
		return 0;
	jump(w, next);
	return 1;
}

void cw_wait(struct cw_world *w, const struct cw_result *r)
{
	for (uint32_t i = 0; i < TURNS_MAX && !r->done; i++)
		if (!cw_turn(w))
			break;
	if (!r->done)
		fail_msg("a request never ended");
}
