/* SPDX-License-Identifier: Apache-2.0 */
/* Time, the queue of events, launches, and the run. */
#include "tests/sim/world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/assert.h"

/* ---------------------------------------------------------------- memory, text */

void *sim_alloc(size_t size)
{
	void *memory = calloc(1, size ? size : 1);

	if (!memory) {
		fprintf(stderr, "sim: no memory for %zu bytes\n", size);
		abort();
	}
	return memory;
}

/* Room for one more element than `count`. */
void *sim_grow(void *old, uint32_t count, uint32_t *cap, size_t size)
{
	uint32_t now = *cap ? *cap * 2 : 16;
	void *memory;

	if (count < *cap)
		return old;
	memory = sim_alloc(now * size);
	if (old)
		memcpy(memory, old, *cap * size);
	free(old);
	*cap = now;
	return memory;
}

void sim_fail(struct sim_world *w, const char *format, ...)
{
	va_list args;
	int n;

	if (w->failure[0])
		return;
	n = snprintf(w->failure, sizeof(w->failure), "at %.6f s: ", (double)w->now / 1e9);
	va_start(args, format);
	vsnprintf(w->failure + n, sizeof(w->failure) - (size_t)n, format, args);
	va_end(args);
	if (w->config.verbose)
		printf("FAILED %s\n", w->failure);
}

void sim_trace(struct sim_world *w, const char *format, ...)
{
	char line[256];
	va_list args;
	size_t n;

	if (!w->config.trace && !w->config.verbose)
		return;
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	if (w->config.verbose)
		printf("%12.6f  %s\n", (double)w->now / 1e9, line);
	n = strlen(line);
	if (w->trace_len + n + 2 > w->trace_cap) {
		char *old = w->trace;

		w->trace_cap = 2 * (w->trace_cap + n + 4096);
		w->trace = sim_alloc(w->trace_cap);
		if (old)
			memcpy(w->trace, old, w->trace_len);
		free(old);
	}
	memcpy(w->trace + w->trace_len, line, n);
	w->trace_len += n;
	memcpy(w->trace + w->trace_len, "\n", 2);
	w->trace_len++;
}

void sim_hash(struct sim_world *w, uint64_t x)
{
	w->hash = (w->hash ^ x) * 0x9e3779b97f4a7c15u;
	w->hash ^= w->hash >> 32;
}

/* ---------------------------------------------------------------- the queue: a heap by (time, order of asking) */

static int earlier(const struct sim_event *a, const struct sim_event *b)
{
	return a->at != b->at ? a->at < b->at : a->seq < b->seq;
}

void sim_at(struct sim_world *w, zd_time at, enum sim_event_kind kind, void *object, uint64_t life)
{
	struct sim_event e = {at < w->now ? w->now : at, w->seq++, kind, object, life};
	uint32_t i = w->heap_count;

	w->heap = sim_grow(w->heap, w->heap_count, &w->heap_cap, sizeof(*w->heap));
	w->heap_count++;
	for (; i > 0 && earlier(&e, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
		w->heap[i] = w->heap[(i - 1) / 2];
	w->heap[i] = e;
}

static struct sim_event take_first(struct sim_world *w)
{
	struct sim_event first = w->heap[0], last = w->heap[--w->heap_count];
	uint32_t i = 0, child;

	for (; (child = 2 * i + 1) < w->heap_count; i = child) {
		if (child + 1 < w->heap_count && earlier(&w->heap[child + 1], &w->heap[child]))
			child++;
		if (!earlier(&w->heap[child], &last))
			break;
		w->heap[i] = w->heap[child];
	}
	w->heap[i] = last;
	return first;
}

zd_time sim_delay(struct sim_world *w, zd_time max)
{
	/* Mostly short: nine of ten below a tenth of the maximum. */
	zd_time bound = sim_chance(&w->rng, 90) ? max / 10 : max;

	return bound ? sim_next(&w->rng) % bound : 0;
}

void sim_after(struct sim_world *w, zd_time delay_max, enum sim_event_kind kind, void *object, uint64_t life)
{
	sim_at(w, w->now + sim_delay(w, delay_max), kind, object, life);
}

/* ---------------------------------------------------------------- launches */

const struct sim_launch *sim_launch_of(const struct sim_world *w, uint64_t epoch)
{
	return epoch >= 1 && epoch <= w->launch_count ? &w->launches[epoch - 1] : NULL;
}

struct sim_worker *sim_worker_of(struct sim_world *w, uint64_t epoch, uint32_t rank)
{
	for (uint32_t i = 0; i < w->worker_count; i++)
		if (w->workers[i]->epoch == epoch && w->workers[i]->rank == rank)
			return w->workers[i];
	return NULL;
}

static void add_worker(struct sim_world *w, const struct sim_launch *launch, uint32_t rank)
{
	struct sim_worker *worker = sim_worker_new(w, launch, rank);

	w->workers = sim_grow(w->workers, w->worker_count, &w->worker_cap, sizeof(*w->workers));
	w->workers[w->worker_count++] = worker;
	sim_trainer_start(worker);
}

struct sim_launch *sim_launch(struct sim_world *w, uint32_t size, uint32_t micro)
{
	struct sim_launch *launch;

	if (w->launch_count == SIM_EPOCHS_MAX)
		return NULL;
	launch = &w->launches[w->launch_count++];
	launch->epoch = w->launch_count;
	launch->size = size;
	launch->micro = micro;
	launch->id = sim_mix(w->config.seed * 31 + launch->epoch);
	sim_trace(w, "launch %llu: %u workers, %u micro-batches", (unsigned long long)launch->epoch, size, micro);
	for (uint32_t r = 0; r < size; r++)
		add_worker(w, launch, r);
	return launch;
}

void sim_add_reader(struct sim_world *w, uint32_t number)
{
	add_worker(w, NULL, number);
}

/* The launcher of real life: when a worker has ended before the target, the launch is over and the next begins. */
static void launcher(struct sim_world *w)
{
	const struct sim_launch *last = &w->launches[w->launch_count - 1];
	int ended = 0;

	for (uint32_t i = 0; i < w->worker_count; i++)
		ended |= w->workers[i]->epoch == last->epoch && !sim_worker_lives(w->workers[i]);
	if (!ended || w->launch_count == SIM_EPOCHS_MAX)
		return;
	/* Sometimes it makes sure that the others are gone, sometimes they are left to find out. */
	if (w->calm || sim_chance(&w->rng, 50))
		for (uint32_t i = 0; i < w->worker_count; i++)
			if (w->workers[i]->epoch == last->epoch && sim_worker_lives(w->workers[i]))
				sim_worker_kill(w->workers[i], 0);
	sim_launch(w, sim_range(&w->rng, 1, 4), sim_range(&w->rng, 1, 3));
}

/* ---------------------------------------------------------------- the run */

static void dispatch(struct sim_world *w, const struct sim_event *e)
{
	switch (e->kind) {
	case SIM_E_CONNECTED:
	case SIM_E_UP:
	case SIM_E_CDOWN:
	case SIM_E_SCLOSED:
	case SIM_E_DRAIN_UP:
	case SIM_E_DRAIN_DOWN:
	case SIM_E_DELIVER_UP:
	case SIM_E_DELIVER_DOWN:
		sim_net_event(w, e);
		return;
	case SIM_E_WORKER_TICK:
	case SIM_E_TRAIN:
		sim_worker_event(w, e);
		return;
	case SIM_E_LANE_TICK:
	case SIM_E_LANE_IDLE:
	case SIM_E_STORED:
	case SIM_E_RESTART:
		sim_lane_event(w, e);
		return;
	case SIM_E_LAUNCHER:
		w->launcher_due = 0;
		launcher(w);
		return;
	case SIM_E_FAULT:
		w->fault(w);
		return;
	}
}

int sim_turn(struct sim_world *w)
{
	struct sim_event e;

	if (w->heap_count == 0 || w->failure[0])
		return 0;
	e = take_first(w);
	if (e.at > w->config.end) {
		sim_fail(w, "I14: not done after %.1f s of simulated time: %s", (double)w->config.end / 1e9,
			 w->workers[w->worker_count - 1]->text);
		return 0;
	}
	w->now = e.at;
	w->steps++;
	sim_hash(w, (uint64_t)e.at << 8 | e.kind);
	dispatch(w, &e);
	return w->failure[0] == '\0';
}

int sim_reached(struct sim_world *w)
{
	for (uint32_t i = 0; i < w->lane_count; i++) {
		const struct sim_lane *lane = &w->lanes[i];

		if (!lane->core || !lane->known || lane->view.decided < w->target || lane->view.due > 0)
			return 0;
	}
	for (uint32_t i = 0; i < w->worker_count; i++) {
		const struct sim_worker *worker = w->workers[i];

		if (worker->epoch == w->launch_count && sim_worker_lives(worker) && worker->phase != SIM_T_REST)
			return 0;
	}
	return 1;
}

int sim_run_until(struct sim_world *w, int (*done)(struct sim_world *w), zd_time within)
{
	zd_time end = w->now + within;

	while (!done(w)) {
		if (w->heap_count == 0 || w->heap[0].at > end || !sim_turn(w))
			return done(w) && !w->failure[0];
	}
	return !w->failure[0];
}

/* ---------------------------------------------------------------- making and ending */

static struct sim_world *asserting; /* whose core or session runs: for the text of an assertion */

static void assert_failed(const char *file, int line, const char *what)
{
	fprintf(stderr, "sim: assertion in %s:%d: %s; replay with: sim --seed %llu\n", file, line, what,
		asserting ? (unsigned long long)asserting->config.seed : 0);
	fflush(stdout);
	abort();
}

struct sim_world *sim_new(const struct sim_config *config)
{
	struct sim_world *w = sim_alloc(sizeof(*w));
	char text[256];

	asserting = w;
	zd_assert_failed = assert_failed;
	zd_kernels_thread_init();
	w->config = *config;
	w->config.spec.units = w->config.units;
	sim_rng_init(&w->rng, config->seed);
	w->now = ZD_SEC(1);
	w->target = config->target;
	w->lane_count = config->hosts * config->lanes_per_host;
	w->actions = sim_pages(sizeof(*w->actions));
	w->session_actions = sim_pages(sizeof(*w->session_actions));
	zd_arena_init(&w->arena, sim_pages(ZD_ARENA_BYTES), ZD_ARENA_BYTES);
	if (zd_spec_check(&w->config.spec, text, sizeof(text)) < 0)
		sim_fail(w, "specification of the world: %s", text);
	w->lanes = sim_alloc(w->lane_count * sizeof(*w->lanes));
	sim_oracle_init(w);
	for (uint32_t i = 0; i < w->lane_count; i++) {
		w->lanes[i].world = w;
		w->lanes[i].index = i;
		w->lanes[i].host = i / config->lanes_per_host;
		w->lanes[i].lane = i % config->lanes_per_host;
		sim_lane_init(&w->lanes[i]);
		sim_lane_start(&w->lanes[i]);
	}
	return w;
}

void sim_free(struct sim_world *w)
{
	for (uint32_t i = 0; i < w->worker_count; i++)
		sim_worker_free(w->workers[i]);
	for (uint32_t i = 0; i < w->lane_count; i++)
		sim_lane_fini(&w->lanes[i]);
	for (uint32_t i = 0; i < w->conn_count; i++)
		sim_conn_free(w->conns[i]);
	sim_oracle_fini(w);
	free(w->workers);
	free(w->conns);
	free(w->lanes);
	free(w->heap);
	sim_pages_back(w->actions);
	sim_pages_back(w->session_actions);
	sim_pages_back(w->arena.base);
	free(w->trace);
	asserting = NULL;
	free(w);
}
