/* SPDX-License-Identifier: Apache-2.0 */
/* A core and what the shell does for it: one event in, its actions carried out in order, kernels at once and reported before anything else. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world.h"

#define DAEMON "sim"

/* Room for the windows, and a few times the planes: more than enough for the models of these worlds. */
static uint64_t slab_bytes(const struct sim_world *w)
{
	uint64_t elements = 0;

	for (uint32_t u = 0; u < w->config.spec.unit_count; u++)
		elements += w->config.units[u].numel + 2 * SIM_EXTENT;
	return (uint64_t)w->config.windows * ZD_PAYLOAD_MAX + elements * 24 + (4u << 20);
}

static struct zd_core_config core_config(const struct sim_lane *lane)
{
	const struct sim_world *w = lane->world;

	return (struct zd_core_config){
		.lane = lane->lane,
		.max_conns = w->config.max_conns,
		.max_jobs = 1,
		.windows = w->config.windows,
		.uuid_seed = sim_mix(w->config.seed + 1000 * lane->index + lane->life),
		.slab = lane->slab,
		.slab_bytes = slab_bytes(w),
		.daemon = DAEMON,
		.kernels = "scalar",
		.now = w->now,
	};
}

/*
 * Pages of cores that have ended, for those to come: worlds are many, and fresh pages are what they would spend their time on.  What is in a slab at
 * first is what an earlier core left there: no core may rely on zeros.
 */
#define POOL_MAX 256u
#define POOL_PAGE 4096u

static struct {
	void *base;
	size_t bytes;
	uint8_t used;
} pool[POOL_MAX];

void *sim_pages(size_t bytes)
{
	uint32_t empty = POOL_MAX, unfit = POOL_MAX;

	for (uint32_t i = 0; i < POOL_MAX; i++) {
		if (!pool[i].base && empty == POOL_MAX)
			empty = i;
		if (pool[i].base && !pool[i].used)
			unfit = i;
		if (!pool[i].base || pool[i].used || pool[i].bytes < bytes || pool[i].bytes > 2 * bytes)
			continue;
		pool[i].used = 1;
		return pool[i].base;
	}
	if (empty == POOL_MAX && unfit < POOL_MAX) {
		free(pool[unfit].base);
		pool[unfit].base = NULL;
		empty = unfit;
	}
	if (empty == POOL_MAX || posix_memalign(&pool[empty].base, POOL_PAGE, bytes) != 0) {
		fprintf(stderr, "sim: no memory for %zu bytes\n", bytes);
		abort();
	}
	pool[empty].bytes = bytes;
	pool[empty].used = 1;
	return pool[empty].base;
}

void sim_pages_back(void *base)
{
	for (uint32_t i = 0; base && i < POOL_MAX; i++)
		if (pool[i].base == base)
			pool[i].used = 0;
}

void sim_pages_free(void)
{
	for (uint32_t i = 0; i < POOL_MAX; i++) {
		if (pool[i].used)
			continue;
		free(pool[i].base);
		pool[i].base = NULL;
	}
}

void sim_lane_init(struct sim_lane *lane)
{
	lane->conns = sim_alloc(lane->world->config.max_conns * sizeof(struct sim_conn *));
	lane->result_cap = 64;
	lane->results = sim_alloc(lane->result_cap * sizeof(*lane->results));
	lane->disk.last = &lane->disk.first;
}

void sim_lane_start(struct sim_lane *lane)
{
	struct zd_core_config config = core_config(lane);

	lane->life++;
	lane->arena = sim_pages(zd_core_arena_bytes(&config));
	memset(lane->arena, 0, zd_core_arena_bytes(&config));
	lane->slab = sim_pages(slab_bytes(lane->world));
	config.slab = lane->slab;
	lane->tick_at = ZD_TIME_NEVER;
	lane->idle_due = 0;
	lane->result_first = lane->result_count = 0;
	lane->core = zd_core_init(lane->arena, &config);
	lane->known = 0;
	memset(&lane->view, 0, sizeof(lane->view));
}

static void stop(struct sim_lane *lane)
{
	sim_pages_back(lane->arena);
	sim_pages_back(lane->slab);
	lane->arena = lane->slab = NULL;
	lane->core = NULL;
	lane->life++;
}

void sim_lane_fini(struct sim_lane *lane)
{
	stop(lane);
	sim_disk_fini(lane);
	free(lane->conns);
	free(lane->results);
}

void sim_lane_crash(struct sim_lane *lane, int silent, int keep_percent, zd_time down)
{
	struct sim_world *w = lane->world;

	if (!lane->core)
		return;
	w->crashes++;
	sim_trace(w, "lane %u crashes", lane->index);
	for (uint32_t i = 0; i < w->config.max_conns; i++)
		if (lane->conns[i])
			sim_server_gone(lane->conns[i], silent);
	stop(lane);
	lane->known = 0;
	if (w->config.level == SIM_NONE) {
		lane->lost = 1;
		lane->joined = (struct zd_ballot){0};
		lane->planes_checked = 0;
	}
	sim_disk_crash(lane, keep_percent);
	sim_at(w, w->now + down, SIM_E_RESTART, lane, lane->life);
}

/* ---------------------------------------------------------------- actions */

static struct sim_conn *find(struct sim_lane *lane, struct zd_conn_id id)
{
	struct sim_conn *c = id.slot < lane->world->config.max_conns ? lane->conns[id.slot] : NULL;

	return c && c->id.gen == id.gen ? c : NULL;
}

static void act_send(struct sim_lane *lane, const struct zd_action *a)
{
	struct sim_conn *c = find(lane, a->u.send.id);

	if (!c || c->server_closing)
		return; /* CLOSED gives its memory back */
	sim_send(c, 0, lane->world->actions->bytes + a->u.send.frame, a->u.send.frame_len, a->u.send.payload, a->u.send.payload_len,
		 a->u.send.token);
}

static void act_kernel(struct sim_lane *lane, const struct zd_action *a)
{
	static struct zd_kernel_scratch scratch;
	uint32_t at = lane->result_first + lane->result_count;

	if (at == lane->result_cap) {
		struct zd_kernel_result *old = lane->results;

		lane->result_cap *= 2;
		lane->results = sim_alloc(lane->result_cap * sizeof(*old));
		memcpy(lane->results, old, lane->result_cap / 2 * sizeof(*old));
		free(old);
	}
	zd_kernel_call(zd_kernels_scalar(), &a->u.kernel, &scratch, &lane->results[at]);
	lane->result_count++;
}

static void act_log(struct sim_lane *lane, const struct zd_action *a)
{
	struct sim_world *w = lane->world;

	if (w->config.verbose)
		printf("%12.6f    lane %u: %s\n", (double)w->now / 1e9, lane->index, (const char *)w->actions->bytes + a->u.log.text);
}

static void carry_out(struct sim_lane *lane)
{
	const struct zd_actions *actions = lane->world->actions;

	for (uint32_t i = 0; i < actions->count; i++) {
		const struct zd_action *a = &actions->item[i];
		struct sim_conn *c;

		switch (a->type) {
		case ZD_ACT_SEND: act_send(lane, a); break;
		case ZD_ACT_CLOSE:
			c = find(lane, a->u.close.id);
			if (c)
				sim_server_close(c, a->u.close.flush);
			break;
		case ZD_ACT_KERNEL: act_kernel(lane, a); break;
		case ZD_ACT_STORE: sim_disk_submit(lane, a); break;
		case ZD_ACT_RELEASE: break;
		case ZD_ACT_LOG: act_log(lane, a); break;
		}
	}
}

static void step(struct sim_lane *lane, struct zd_event *event)
{
	event->now = lane->world->now;
	zd_core_step(lane->core, event, lane->world->actions);
	carry_out(lane);
}

static void schedule(struct sim_lane *lane)
{
	struct sim_world *w = lane->world;
	zd_time at = zd_core_deadline(lane->core);

	if (at != ZD_TIME_NEVER && at < lane->tick_at) {
		lane->tick_at = at;
		sim_at(w, at, SIM_E_LANE_TICK, lane, lane->life);
	}
	if (zd_core_wants_idle(lane->core) && !lane->idle_due) {
		lane->idle_due = 1;
		sim_after(w, w->config.latency, SIM_E_LANE_IDLE, lane, lane->life);
	}
	for (uint32_t i = 0; i < w->config.max_conns; i++)
		if (lane->conns[i])
			sim_kick(lane->conns[i]);
}

void sim_lane_feed(struct sim_lane *lane, struct zd_event *event)
{
	if (!lane->core || lane->world->failure[0])
		return;
	step(lane, event);
	while (lane->result_count > 0) {
		struct zd_kernel_result result = lane->results[lane->result_first]; /* the next step may move them */
		struct zd_event done;

		lane->result_first++;
		if (--lane->result_count == 0)
			lane->result_first = 0;
		zd_kernel_event(&result, &done);
		step(lane, &done);
	}
	sim_check_lane(lane);
	schedule(lane);
}

static void restart(struct sim_lane *lane)
{
	sim_lane_start(lane);
	sim_trace(lane->world, "lane %u restarts", lane->index);
	if (lane->world->config.level == SIM_DURABLE)
		sim_disk_restore(lane);
	sim_check_restart(lane);
	schedule(lane);
}

void sim_lane_event(struct sim_world *w, const struct sim_event *e)
{
	struct sim_lane *lane = e->object;
	struct zd_event ev = {0};

	(void)w;
	if (e->life != lane->life)
		return;
	if (e->kind == SIM_E_RESTART) {
		restart(lane);
		return;
	}
	if (!lane->core)
		return;
	switch (e->kind) {
	case SIM_E_LANE_TICK:
		lane->tick_at = ZD_TIME_NEVER;
		if (zd_core_deadline(lane->core) > w->now) {
			schedule(lane);
			return;
		}
		ev.type = ZD_EV_TICK;
		break;
	case SIM_E_LANE_IDLE:
		lane->idle_due = 0;
		if (!zd_core_wants_idle(lane->core))
			return;
		ev.type = ZD_EV_IDLE;
		break;
	default:
		if (!sim_disk_done(lane, &ev.u.stored.token))
			return;
		ev.type = ZD_EV_STORED;
		break;
	}
	sim_lane_feed(lane, &ev);
}
