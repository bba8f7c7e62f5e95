/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way in and out of a core, its memory, and its queries.
 *
 * Arena: the core, connections, queue, windows' table, open kernel calls, buffers for long heads, the sink, and scratch for one message.
 * All work that may take more than one step's room stands in a queue of connections, each at most once; a step ends by going through
 * it, unless kernel calls are open: their events come next, and then more can be done at once.
 */
#include <string.h>

#include "proto/assert.h"
#include "server/core/state.h"

struct cut { /* of the arena; base NULL only counts */
	uint8_t *base;
	size_t used;
};

static void *take(struct cut *cut, size_t size)
{
	size_t at = (cut->used + 63) / 64 * 64;

	cut->used = at + size;
	return cut->base ? cut->base + at : NULL;
}

/* What follows the core itself. */
static void lay_out(struct cut *cut, struct zd_core *core, const struct zd_core_config *config)
{
	core->kernel_cap = config->windows + 512;
	core->conn = take(cut, config->max_conns * sizeof *core->conn);
	core->queue = take(cut, config->max_conns * sizeof *core->queue);
	core->window = take(cut, config->windows * sizeof *core->window);
	core->kernel = take(cut, core->kernel_cap * sizeof *core->kernel);
	for (uint32_t i = 0; i < ZD_BIG_HEADS; i++)
		core->big_head[i] = take(cut, ZD_HEAD_OPEN_MAX);
	core->sink = take(cut, ZD_SINK_BYTES);
	core->asked = take(cut, ZD_UNITS_MAX * sizeof *core->asked);
	core->pb_units = take(cut, ZD_UNITS_MAX * sizeof *core->pb_units);
	core->pb_ptrs = take(cut, ZD_UNITS_MAX * sizeof(void *));
	core->counted = take(cut, ZD_UNITS_MAX * sizeof *core->counted);
	core->arena.base = take(cut, ZD_ARENA_BYTES);
}

size_t zd_core_arena_bytes(const struct zd_core_config *config)
{
	struct cut cut = {NULL, 0};
	struct zd_core core;

	take(&cut, sizeof core);
	lay_out(&cut, &core, config);
	return cut.used;
}

struct zd_core *zd_core_init(void *arena, const struct zd_core_config *config)
{
	struct cut cut = {arena, 0};
	struct zd_core *core;

	ZD_ASSERT(arena && (uintptr_t)arena % 64 == 0);
	ZD_ASSERT(config->max_conns >= 1 && config->max_conns <= 1024 && config->max_jobs >= 1 && config->max_jobs <= ZD_JOBS_MAX);
	ZD_ASSERT(config->windows >= 1 && config->windows <= 4096);
	core = take(&cut, sizeof *core);
	lay_out(&cut, core, config);
	core->config = *config;
	core->now = core->before = config->now;
	core->guest_check = core->beat = ZD_TIME_NEVER;
	core->conn_count = config->max_conns;
	zd_arena_init(&core->arena, core->arena.base, ZD_ARENA_BYTES);
	zd_slab_init(&core->slab, config->slab, config->slab_bytes);
	core->windows = zd_slab_take(&core->slab, (uint64_t)config->windows * ZD_PAYLOAD_MAX);
	ZD_ASSERT(core->windows); /* the slab is larger than its windows: the shell checks its configuration */
	core->window_free = ZD_NONE16;
	for (uint32_t i = config->windows; i-- > 0;) {
		core->window[i].next = core->window_free;
		core->window_free = (uint16_t)i;
	}
	for (uint32_t i = 0; i < ZD_JOBS_MAX; i++) {
		core->job[i].slot = i;
		core->job[i].conns = ZD_NONE;
	}
	return core;
}

struct zd_conn *zd_core_conn(struct zd_core *core, struct zd_conn_id id)
{
	struct zd_conn *c = id.slot < core->conn_count ? &core->conn[id.slot] : NULL;

	return c && c->used && c->gen == id.gen ? c : NULL;
}

void zd_core_queue(struct zd_core *core, struct zd_conn *c)
{
	if (c->queued)
		return;
	ZD_ASSERT(core->queue_len < core->conn_count);
	c->queued = 1;
	core->queue[(core->queue_at + core->queue_len++) % core->conn_count] = c->slot;
}

void zd_core_unqueue(struct zd_core *core, struct zd_conn *c)
{
	uint32_t n = core->queue_len;

	if (!c->queued)
		return;
	c->queued = 0;
	while (n-- > 0) {
		uint32_t slot = core->queue[core->queue_at];

		core->queue_at = (core->queue_at + 1) % core->conn_count;
		core->queue_len--;
		if (slot != c->slot)
			core->queue[(core->queue_at + core->queue_len++) % core->conn_count] = slot;
	}
}

static void kernel_done(struct zd_core *core, const struct zd_event *ev)
{
	struct zd_kernel_open k;
	struct zd_job *j;

	ZD_ASSERT(core->kernel_len > 0);
	k = core->kernel[core->kernel_at];
	ZD_ASSERT(k.token == ev->u.kernel.token);
	core->kernel_at = (core->kernel_at + 1) % core->kernel_cap;
	core->kernel_len--;
	j = &core->job[k.job];
	ZD_ASSERT(j->kernels > 0);
	j->kernels--;
	switch (k.kind) {
	case ZD_K_ADAM: zd_extent_updated(core, j, &k, ev); break;
	case ZD_K_RAW: zd_reduce_read(core, j, &k, ev); break;
	case ZD_K_ACC:
	case ZD_K_NORM: zd_reduce_done(core, j, &k, ev); break;
	case ZD_K_LOAD: zd_session_load_done(core, j, &k, ev->u.kernel.nonfinite, ev->u.kernel.first_nonfinite); break;
	default: zd_fetch_merged(core, &k); break;
	}
	if (j->dropped)
		zd_job_try_free(core, j);
}

/* A disk's fault stops the job on this lane and keeps what is there: everybody is told, nothing is acknowledged. */
static void store_failed(struct zd_core *core, struct zd_job *j, int status)
{
	uint32_t next;

	j->failed = 1;
	zd_emit_log(core, ZD_LOG_ERROR, "event=store_failed job=%s status=%d", j->spec.name, status);
	for (uint32_t i = j->conns; i != ZD_NONE; i = next) {
		struct zd_conn *c = &core->conn[i];

		next = c->job_next;
		zd_emit_error(core, c, 0, ZD_ERR_LOST, ZD_ABOUT_NOTHING,
			      "store of lane %u failed with status %d: the job stops here; repair the disk and restart the daemon",
			      core->config.lane, status);
		zd_emit_close(core, c, 1);
	}
}

static void stored(struct zd_core *core, const struct zd_event *ev)
{
	struct zd_store_open s;
	struct zd_job *j;

	ZD_ASSERT(core->store_len > 0);
	s = core->store[core->store_at];
	ZD_ASSERT(s.token == ev->u.stored.token);
	core->store_at = (core->store_at + 1) % ZD_STORES_MAX;
	core->store_len--;
	j = &core->job[s.job];
	ZD_ASSERT(j->gen == s.gen && j->stores > 0); /* a job's slot is not used again before */
	j->stores--;
	if (j->dropped)
		zd_job_try_free(core, j);
	if (!j->used || j->failed)
		return;
	if (ev->u.stored.status < 0) {
		store_failed(core, j, ev->u.stored.status);
		return;
	}
	switch (s.kind) {
	case ZD_STORE_PROMISE:
		j->promising = 0;
		zd_join_resume(core, j);
		break;
	case ZD_STORE_RECORD: zd_round_recorded(core, j); break;
	case ZD_STORE_DISCARD: zd_round_discarded(core, j); break;
	case ZD_STORE_SEAL: zd_session_sealed(core, j); break;
	default: break; /* DECISION: nobody waits for it */
	}
}

static void tick(struct zd_core *core)
{
	core->ticked = core->now;
	zd_conn_tick(core);
	for (uint32_t i = 0; i < core->config.max_jobs && !zd_emit_full(core); i++) { /* what is left stays due: another TICK follows at once */
		struct zd_job *j = &core->job[i];

		if (!j->used)
			continue;
		zd_lease_check(core, j);
		zd_fetch_tick(core, j);
	}
}

static void drain(struct zd_core *core)
{
	core->draining = 1;
	for (uint32_t i = 0; i < core->config.max_jobs; i++) {
		struct zd_job *j = &core->job[i];

		if (j->used && j->conn_count == 0 && j->state == ZD_ROUND_COLLECTING)
			zd_round_void(core, j); /* nobody is left to go on with it */
	}
}

static void go_on(struct zd_core *core)
{
	uint32_t n = core->queue_len;

	while (n-- > 0 && core->kernel_len < ZD_PUMP_KERNELS && !zd_emit_full(core)) {
		struct zd_conn *c = &core->conn[core->queue[core->queue_at]];

		core->queue_at = (core->queue_at + 1) % core->conn_count;
		core->queue_len--;
		c->queued = 0;
		if (!c->used || c->closing)
			continue;
		zd_join_go_on(core, c);
		if (c->hold == ZD_HOLD_PLACE)
			c->take.kind == ZD_TAKE_LOAD ? zd_session_load_place(core, c) : zd_reduce_place(core, c);
		if (c->hold == ZD_HOLD_BUDGET || c->hold == ZD_HOLD_HEAD)
			zd_conn_run(core, c);
		if (!c->closing)
			zd_fetch_pump(core, c);
	}
}

void zd_core_step(struct zd_core *core, const struct zd_event *ev, struct zd_actions *actions)
{
	struct zd_conn *c;

	actions->count = actions->used = 0;
	core->act = actions;
	core->released = 0;
	ZD_ASSERT(ev->now >= core->now);
	ZD_ASSERT(core->kernel_len == 0 || ev->type == ZD_EV_KERNEL);
	core->before = core->now;
	core->now = ev->now;
	zd_lease_absence(core);
	switch (ev->type) {
	case ZD_EV_CONN: zd_conn_open(core, ev); break;
	case ZD_EV_BYTES:
		if ((c = zd_core_conn(core, ev->u.bytes.id)))
			zd_conn_bytes(core, c, ev->u.bytes.len);
		break;
	case ZD_EV_CLOSED:
		if ((c = zd_core_conn(core, ev->u.closed.id)))
			zd_conn_closed(core, c);
		break;
	case ZD_EV_SENT:
		if ((c = zd_core_conn(core, ev->u.sent.id)))
			zd_fetch_sent(core, c, ev->u.sent.token);
		break;
	case ZD_EV_KERNEL: kernel_done(core, ev); break;
	case ZD_EV_STORED: stored(core, ev); break;
	case ZD_EV_TICK: tick(core); break;
	case ZD_EV_IDLE:
		if (core->queue_len == 0)
			zd_extent_idle(core);
		break;
	case ZD_EV_DRAIN: drain(core); break;
	default: ZD_ASSERT(0);
	}
	if (core->kernel_len == 0) {
		zd_fetch_flush(core);
		go_on(core);
	}
	zd_lease_beat(core);
	core->act = NULL;
}

struct zd_span zd_core_window(struct zd_core *core, struct zd_conn_id id)
{
	struct zd_conn *c = zd_core_conn(core, id);

	if (!c || c->closing || c->hold != ZD_HOLD_NO)
		return (struct zd_span){NULL, 0};
	return zd_reader_window(&c->reader, (struct zd_span){core->sink, ZD_SINK_BYTES});
}

zd_time zd_core_deadline(const struct zd_core *core)
{
	zd_time at = zd_conn_deadline(core);

	at = core->beat < at ? core->beat : at;
	for (uint32_t i = 0; i < core->config.max_jobs; i++) {
		const struct zd_job *j = &core->job[i];
		zd_time lease, lend;

		if (!j->used)
			continue;
		lease = zd_lease_deadline(j);
		lend = zd_fetch_deadline(core, j);
		at = lease < at ? lease : at;
		at = lend < at ? lend : at;
	}
	return at;
}

int zd_core_wants_idle(const struct zd_core *core)
{
	return core->kernel_len == 0 && (core->queue_len > 0 || zd_extent_wants_idle(core));
}

int zd_core_drained(const struct zd_core *core)
{
	if (!core->draining || core->kernel_len > 0 || core->store_len > 0)
		return 0;
	for (uint32_t i = 0; i < core->config.max_jobs; i++) {
		const struct zd_job *j = &core->job[i];

		if (j->used && !j->failed && j->state != ZD_ROUND_EMPTY && j->state != ZD_ROUND_UNSEALED)
			return 0;
	}
	return 1;
}
