/* SPDX-License-Identifier: Apache-2.0 */
#include "server/shell/lane.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/assert.h"
#include "server/shell/lane_priv.h"
#include "server/shell/log.h"
#include "server/shell/uvx.h"

/* ---------------------------------------------------------------- a turn of the loop */

static void set_timer(struct zd_lane *lane);

static void on_timer(uv_timer_t *timer)
{
	struct zd_lane *lane = timer->data;
	struct zd_event event = {.type = ZD_EV_TICK};
	zd_time now = uv_hrtime();

	lane->timer_at = ZD_TIME_NEVER;
	zd_links_expire(lane, now);
	if (zd_core_deadline(lane->core) <= now)
		zd_lane_feed(lane, &event);
}

/* The earliest of the core's deadline and those of closing connections, rounded up to the milliseconds of libuv. */
static void set_timer(struct zd_lane *lane)
{
	zd_time at = zd_core_deadline(lane->core), links = zd_links_deadline(lane), now;

	if (links < at)
		at = links;
	if (at == lane->timer_at)
		return;
	lane->timer_at = at;
	if (at == ZD_TIME_NEVER) {
		uv_timer_stop(&lane->timer);
		return;
	}
	uv_update_time(&lane->loop);
	now = uv_hrtime();
	uv_timer_start(&lane->timer, on_timer, at > now ? (at - now + 999999) / 1000000 : 0, 0);
}

static void on_idle(uv_idle_t *idle)
{
	struct zd_lane *lane = idle->data;
	struct zd_event event = {.type = ZD_EV_IDLE};

	if (zd_core_wants_idle(lane->core))
		zd_lane_feed(lane, &event);
}

static void tell_owner(struct zd_lane *lane)
{
	uv_async_send(lane->config.owner);
}

static void close_handles(struct zd_lane *lane)
{
	uv_close((uv_handle_t *)&lane->async, NULL);
	uv_close((uv_handle_t *)&lane->timer, NULL);
	uv_close((uv_handle_t *)&lane->prepare, NULL);
	uv_close((uv_handle_t *)&lane->check, NULL);
	uv_close((uv_handle_t *)&lane->idle, NULL);
}

/* Before the lane sleeps: everything that steps left behind. */
static void on_prepare(uv_prepare_t *prepare)
{
	struct zd_lane *lane = prepare->data;

	lane->turn++;
	zd_links_unpark(lane);
	zd_links_flush(lane);
	if (lane->draining && !atomic_load(&lane->drained) && zd_core_drained(lane->core)) {
		atomic_store(&lane->drained, 1);
		tell_owner(lane);
	}
	if (lane->stopping && lane->open_links == 0) {
		close_handles(lane);
		return;
	}
	set_timer(lane);
	if (!zd_core_wants_idle(lane->core) || lane->stopping)
		uv_idle_stop(&lane->idle);
	else
		uv_idle_start(&lane->idle, on_idle);
}

/* After all reads of a turn: their answers leave before due work is taken up. */
static void on_check(uv_check_t *check)
{
	zd_links_flush(check->data);
}

/* ---------------------------------------------------------------- mailbox */

static struct zd_handover *take_inbox(struct zd_lane *lane)
{
	struct zd_handover *first;

	uv_mutex_lock(&lane->mutex);
	first = lane->inbox_first;
	lane->inbox_first = NULL;
	lane->inbox_last = &lane->inbox_first;
	uv_mutex_unlock(&lane->mutex);
	return first;
}

static void discard_handovers(struct zd_lane *lane, struct zd_handover *h)
{
	while (h) {
		struct zd_handover *next = h->next;

		close(h->transport.fd);
		atomic_fetch_sub(lane->config.connections, 1);
		free(h);
		h = next;
	}
}

static void open_handovers(struct zd_lane *lane)
{
	struct zd_handover *h = take_inbox(lane), *next;

	for (; h && !lane->stopping; h = next) {
		next = h->next;
		zd_link_open(lane, h);
		free(h);
	}
	discard_handovers(lane, h);
}

static void stop(struct zd_lane *lane, int hurry)
{
	uint32_t i;

	lane->stopping = 1;
	for (i = 0; i < lane->config.max_conns; i++) {
		struct zd_link *link = &lane->links[i];

		if (link->state == ZD_LINK_FREE)
			continue;
		if (hurry)
			zd_link_close(link);
		else
			zd_link_finish(link);
	}
}

static void on_async(uv_async_t *async)
{
	struct zd_lane *lane = async->data;
	struct zd_event event = {.type = ZD_EV_DRAIN};
	int want_stop = atomic_load(&lane->want_stop);

	atomic_store(&lane->pulse, atomic_load(&lane->pokes));
	if (atomic_load(&lane->want_drain) && !lane->draining) {
		lane->draining = 1;
		zd_lane_feed(lane, &event);
	}
	open_handovers(lane);
	if (want_stop)
		stop(lane, want_stop > 1);
}

/* ---------------------------------------------------------------- the thread */

static void core_config(const struct zd_lane *lane, struct zd_core_config *ret)
{
	*ret = (struct zd_core_config){
		.lane = lane->config.index,
		.max_conns = lane->config.max_conns,
		.max_jobs = lane->config.max_jobs,
		.windows = lane->config.windows,
		.job_max_bytes = lane->config.job_max_bytes,
		.uuid_seed = lane->config.uuid_seed,
		.slab = lane->slab,
		.slab_bytes = lane->config.slab_bytes,
		.daemon = lane->config.daemon,
		.kernels = lane->config.kernels->name,
		.now = uv_hrtime(),
	};
}

static void pin(const struct zd_lane *lane)
{
	cpu_set_t set;

	if (lane->config.cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET((size_t)lane->config.cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set) < 0)
		zd_log(ZD_LOG_WARNING, "event=pin-failed lane=%u cpu=%d: the system refuses it; use CPUAffinity= of the unit",
		       lane->config.index, lane->config.cpu);
}

static void lane_main(void *arg)
{
	struct zd_lane *lane = arg;
	struct zd_core_config config;
	char name[16];
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL); /* signals are the main thread's */
	snprintf(name, sizeof(name), "zerod-lane-%u", lane->config.index);
	pthread_setname_np(pthread_self(), name);
	pin(lane);
	zd_kernels_thread_init();
	ZD_ASSERT(zd_kernels_thread_ok());
	core_config(lane, &config);
	lane->core = zd_core_init(lane->arena, &config);
	uv_run(&lane->loop, UV_RUN_DEFAULT);
	ZD_ASSERT(zd_kernels_thread_ok());
	atomic_store(&lane->ended, 1);
	tell_owner(lane);
}

/* ---------------------------------------------------------------- making and ending */

static size_t arena_bytes(const struct zd_lane_config *config)
{
	struct zd_core_config core = {.max_conns = config->max_conns, .max_jobs = config->max_jobs, .windows = config->windows,
				      .slab_bytes = config->slab_bytes};

	return zd_core_arena_bytes(&core);
}

size_t zd_lane_fixed_bytes(const struct zd_lane_config *config)
{
	return arena_bytes(config) + sizeof(struct zd_lane) + sizeof(struct zd_actions) + config->max_conns * sizeof(struct zd_link) +
	       ZD_LANE_RESULTS * sizeof(struct zd_kernel_result) + ZD_LANE_SINK_BYTES + sizeof(struct zd_kernel_scratch);
}

static int map_memory(struct zd_lane *lane)
{
	const struct zd_lane_config *config = &lane->config;

	lane->arena_bytes = arena_bytes(config);
	lane->rings_bytes = (size_t)config->max_conns * ZD_OUTBOX_BYTES;
	lane->results_bytes = ZD_LANE_RESULTS * sizeof(struct zd_kernel_result);
	lane->slab = zd_uvx_map(config->slab_bytes, ZD_LANE_SLAB_ALIGN);
	lane->arena = zd_uvx_map(lane->arena_bytes, 4096);
	lane->rings = zd_uvx_map(lane->rings_bytes, 4096);
	lane->results = zd_uvx_map(lane->results_bytes, 4096);
	lane->actions = zd_uvx_calloc(1, sizeof(*lane->actions));
	lane->links = zd_uvx_calloc(config->max_conns, sizeof(*lane->links));
	lane->sink = zd_uvx_calloc(1, ZD_LANE_SINK_BYTES);
	lane->scratch = zd_uvx_calloc(1, sizeof(*lane->scratch));
	if (!lane->slab || !lane->arena || !lane->rings || !lane->results || !lane->actions || !lane->links || !lane->sink ||
	    !lane->scratch)
		return UV_ENOMEM;
	/* Refused where the kernel has no huge pages: the start-up checks say so. */
	if (config->huge_pages)
		(void)madvise(lane->slab, config->slab_bytes, MADV_HUGEPAGE);
	return 0;
}

static int make_loop(struct zd_lane *lane)
{
	int rc = zd_uvx_loop_init(&lane->loop);

	if (rc < 0)
		return rc;
	lane->loop_ready = 1;
	uv_timer_init(&lane->loop, &lane->timer);
	uv_prepare_init(&lane->loop, &lane->prepare);
	uv_check_init(&lane->loop, &lane->check);
	uv_idle_init(&lane->loop, &lane->idle);
	lane->timer.data = lane;
	lane->prepare.data = lane;
	lane->check.data = lane;
	lane->idle.data = lane;
	rc = zd_uvx_async_init(&lane->loop, &lane->async, on_async);
	if (rc < 0)
		return rc;
	lane->async.data = lane;
	uv_prepare_start(&lane->prepare, on_prepare);
	uv_check_start(&lane->check, on_check);
	return 0;
}

static void close_if_open(uv_handle_t *handle, void *arg)
{
	(void)arg;
	if (!uv_is_closing(handle))
		uv_close(handle, NULL);
}

/* Frees a lane in whatever state its making or its thread left it. */
static void free_lane(struct zd_lane *lane)
{
	if (lane->loop_ready) {
		int rc;

		/* Only of use if the thread never ran: it closes its handles itself. */
		uv_walk(&lane->loop, close_if_open, NULL);
		uv_run(&lane->loop, UV_RUN_DEFAULT);
		rc = uv_loop_close(&lane->loop);
		ZD_ASSERT(rc == 0);
	}
	if (lane->mutex_ready) {
		discard_handovers(lane, take_inbox(lane));
		uv_mutex_destroy(&lane->mutex);
	}
	zd_uvx_unmap(lane->slab, lane->config.slab_bytes);
	zd_uvx_unmap(lane->arena, lane->arena_bytes);
	zd_uvx_unmap(lane->rings, lane->rings_bytes);
	zd_uvx_unmap(lane->results, lane->results_bytes);
	free(lane->actions);
	free(lane->links);
	free(lane->sink);
	free(lane->scratch);
	free(lane);
}

int zd_lane_new(struct zd_lane **ret_lane, const struct zd_lane_config *config)
{
	struct zd_lane *lane = zd_uvx_calloc(1, sizeof(*lane));
	int rc;

	if (!lane)
		return UV_ENOMEM;
	lane->config = *config;
	lane->inbox_last = &lane->inbox_first;
	lane->timer_at = ZD_TIME_NEVER;
	atomic_store(&lane->linger_ns, config->linger_ns);
	atomic_store(&lane->peer_ns, config->peer_ns);
	zd_store_init_none(&lane->store);
	rc = zd_uvx_mutex_init(&lane->mutex);
	if (rc < 0)
		goto failed;
	lane->mutex_ready = 1;
	rc = map_memory(lane);
	if (rc < 0)
		goto failed;
	zd_links_init(lane);
	rc = make_loop(lane);
	if (rc < 0)
		goto failed;
	rc = zd_uvx_thread_create(&lane->thread, lane_main, lane);
	if (rc < 0)
		goto failed;
	lane->thread_started = 1;
	*ret_lane = lane;
	return 0;
failed:
	free_lane(lane);
	return rc;
}

void zd_lane_free(struct zd_lane *lane)
{
	if (lane->thread_started)
		uv_thread_join(&lane->thread);
	zd_store_fini(&lane->store);
	free_lane(lane);
}

/* ---------------------------------------------------------------- from other threads */

void zd_lane_handover(struct zd_lane *lane, struct zd_handover *h)
{
	h->next = NULL;
	uv_mutex_lock(&lane->mutex);
	*lane->inbox_last = h;
	lane->inbox_last = &h->next;
	uv_mutex_unlock(&lane->mutex);
	uv_async_send(&lane->async);
}

void zd_lane_drain(struct zd_lane *lane)
{
	atomic_store(&lane->want_drain, 1);
	uv_async_send(&lane->async);
}

int zd_lane_drained(const struct zd_lane *lane)
{
	return atomic_load(&lane->drained);
}

void zd_lane_stop(struct zd_lane *lane, int hurry)
{
	if (atomic_load(&lane->ended))
		return;
	if (hurry || !atomic_load(&lane->want_stop))
		atomic_store(&lane->want_stop, hurry ? 2 : 1);
	uv_async_send(&lane->async);
}

int zd_lane_ended(const struct zd_lane *lane)
{
	return atomic_load(&lane->ended);
}

void zd_lane_poke(struct zd_lane *lane)
{
	atomic_fetch_add(&lane->pokes, 1);
	if (!atomic_load(&lane->ended))
		uv_async_send(&lane->async);
}

uint32_t zd_lane_unanswered(const struct zd_lane *lane)
{
	return atomic_load(&lane->pokes) - atomic_load(&lane->pulse);
}

void zd_lane_reload(struct zd_lane *lane, zd_time linger_ns, zd_time peer_ns)
{
	atomic_store(&lane->linger_ns, linger_ns);
	atomic_store(&lane->peer_ns, peer_ns);
}
