/* SPDX-License-Identifier: Apache-2.0 */
/* Worlds from seeds: what is trained on what, and what goes wrong meanwhile.  When nothing goes wrong any more, training must go on. */
#include <stdio.h>
#include <string.h>

#include "tests/sim/world.h"

#define LEASE_MS 1000u
#define READER_AFTER 2u /* rounds */
#define ROUNDS_ENOUGH 15u

struct sim_totals sim_totals;

/* ---------------------------------------------------------------- what a seed says */

static uint64_t choose_numel(struct sim_rng *r, int large)
{
	/* Less than an extent; extents with a short end; whole extents; two pieces; a piece of nine extents. */
	static const uint64_t sizes[] = {100, 5000, 9001, 4096, 12288};
	static const uint64_t large_sizes[] = {70000, 40000, 65536};

	return large ? large_sizes[sim_below(r, 3)] : sizes[sim_below(r, 5)];
}

static void choose_model(struct sim_config *c, struct sim_rng *r)
{
	uint32_t n = sim_range(r, 1, 4), large = sim_chance(r, 15) ? sim_below(r, n) : n;

	c->spec = (struct zd_spec){.name = "sim", .extent_elems = SIM_EXTENT, .lease_ms = LEASE_MS, .unit_count = n};
	c->spec.optimizer = sim_chance(r, 75) ? ZD_OPT_ADAMW : sim_chance(r, 70) ? ZD_OPT_NONE : ZD_OPT_ADAM_L2;
	c->spec.grad_codec = sim_chance(r, 70) ? ZD_CODEC_BF16 : ZD_CODEC_FP32;
	c->load_codec = sim_chance(r, 60) ? ZD_CODEC_FP32 : ZD_CODEC_BF16;
	for (uint32_t u = 0; u < n; u++) {
		snprintf(c->units[u].name, sizeof(c->units[u].name), "unit%u", u);
		c->units[u].numel = choose_numel(r, u == large);
		c->units[u].frozen = u > 0 && sim_chance(r, 15);
	}
}

void sim_chaos_config(struct sim_config *c, uint64_t seed, int faults)
{
	struct sim_rng r;

	memset(c, 0, sizeof(*c));
	sim_rng_init(&r, sim_mix(seed) ^ 0xc0ffee);
	c->seed = seed;
	c->hosts = sim_range(&r, 1, 3);
	c->lanes_per_host = c->hosts == 1 ? sim_range(&r, 1, 4) : sim_range(&r, 1, 2);
	choose_model(c, &r);
	c->level = sim_chance(&r, 90) ? SIM_DURABLE : SIM_NONE;
	c->windows = 16 + (sim_chance(&r, 50) ? sim_below(&r, 12) : 0);
	c->max_conns = 64;
	c->prefetch = sim_below(&r, 3);
	c->gather_bytes = sim_chance(&r, 30) ? zd_session_gather_min(&(struct zd_spec){.unit_count = c->spec.unit_count, .units = c->units}) : 0;
	c->readers = sim_chance(&r, 25) != 0;
	c->target = faults ? 1000 : 5;
	c->latency = ZD_MS(1) / 10 * sim_range(&r, 1, 60);
	c->disk = ZD_MS(1) / 10 * sim_range(&r, 1, 80);
	c->bad_percent = sim_chance(&r, 40) ? 8 : 0;
	c->blind_percent = sim_chance(&r, 30) ? 50 : 0;
	c->cut_percent = sim_chance(&r, 70) ? 25 : 0;
	c->lend_percent = sim_chance(&r, 60) ? 30 : 0;
	c->adverse_order = sim_chance(&r, 30) != 0;
	c->relaunch = faults != 0;
	c->end = ZD_SEC(400);
}

/* ---------------------------------------------------------------- what goes wrong */

static void fault_reset(struct sim_world *w)
{
	struct sim_conn *c;
	uint32_t open = 0, pick;

	for (uint32_t i = 0; i < w->conn_count; i++)
		open += w->conns[i]->client_up && !w->conns[i]->client_closing;
	if (open == 0)
		return;
	pick = sim_below(&w->rng, open);
	for (uint32_t i = 0; i < w->conn_count; i++) {
		c = w->conns[i];
		if (!c->client_up || c->client_closing || pick-- > 0)
			continue;
		sim_reset(c, sim_chance(&w->rng, 60), sim_chance(&w->rng, 15));
		return;
	}
}

static void fault_crash(struct sim_world *w)
{
	static const int keep[] = {0, 50, 100};
	uint32_t first = sim_below(&w->rng, w->lane_count), n = 1;
	zd_time down = ZD_MS(10) + sim_delay(w, ZD_MS(900));
	int silent = sim_chance(&w->rng, 20);

	if (w->config.level == SIM_NONE)
		return;
	if (sim_chance(&w->rng, 40)) { /* the whole daemon */
		first -= first % w->config.lanes_per_host;
		n = w->config.lanes_per_host;
	}
	if (sim_chance(&w->rng, 8)) { /* everything */
		first = 0;
		n = w->lane_count;
	}
	for (uint32_t i = first; i < first + n; i++)
		sim_lane_crash(&w->lanes[i], silent, keep[sim_below(&w->rng, 3)], down);
}

static struct sim_worker *some_worker(struct sim_world *w)
{
	uint32_t first = sim_below(&w->rng, w->worker_count);

	for (uint32_t i = 0; i < w->worker_count; i++) {
		struct sim_worker *worker = w->workers[(first + i) % w->worker_count];

		if (sim_worker_lives(worker))
			return worker;
	}
	return NULL;
}

static void fault_partition(struct sim_world *w)
{
	uint32_t host = sim_below(&w->rng, w->config.hosts), ranks = sim_range(&w->rng, 1, 3), ways = sim_range(&w->rng, 1, 3);
	zd_time until = w->now + ZD_MS(10) + sim_delay(w, ZD_MS(2500));

	if (ways & 1)
		sim_block(w, host, 1, ranks, until);
	if (ways & 2)
		sim_block(w, host, 0, ranks, until);
}

static void one_fault(struct sim_world *w)
{
	uint32_t dice = sim_below(&w->rng, 100);
	struct sim_worker *worker = some_worker(w);

	w->faults++;
	if (dice < 30)
		fault_reset(w);
	else if (dice < 55)
		fault_crash(w);
	else if (dice < 62 && worker)
		sim_worker_kill(worker, sim_chance(&w->rng, 40));
	else if (dice < 74 && worker)
		sim_worker_pause(worker, w->now + sim_delay(w, ZD_MS(2500)));
	else if (dice < 86)
		fault_partition(w);
	else if (dice < 93)
		w->slow_percent = w->slow_percent ? 0 : 20;
	else if (w->launch_count < SIM_EPOCHS_MAX - 8)
		sim_launch(w, sim_range(&w->rng, 1, 4), sim_range(&w->rng, 1, 3));
}

static void calm(struct sim_world *w)
{
	w->calm = 1;
	w->slow_percent = 0;
	sim_unblock(w);
	w->target = w->oracle.decided + (w->config.seed % 8 == 0 ? 20 : 3);
	w->config.end = w->now + ZD_SEC(100);
	for (uint32_t i = 0; i < w->worker_count; i++) {
		w->workers[i]->paused_until = 0;
		if (sim_worker_lives(w->workers[i]))
			sim_at(w, w->now, SIM_E_TRAIN, w->workers[i], 0);
	}
	sim_at(w, w->now, SIM_E_LAUNCHER, NULL, 0);
	sim_trace(w, "calm: target %llu", (unsigned long long)w->target);
}

static void on_fault(struct sim_world *w)
{
	uint32_t burst = sim_chance(&w->rng, 25) ? 3 : 1;

	if (w->now >= w->faults_end || (w->oracle.decided >= ROUNDS_ENOUGH && w->faults > 3)) {
		calm(w);
		return;
	}
	while (burst-- > 0)
		one_fault(w);
	sim_at(w, w->now + sim_delay(w, ZD_MS(800)), SIM_E_FAULT, NULL, 0);
}

/* ---------------------------------------------------------------- a run */

static int some_rounds(struct sim_world *w)
{
	return w->oracle.decided >= READER_AFTER || w->calm;
}

/* Nobody of an older epoch goes on.  One whose lane died silently while it was being opened finds out only after the time that OPEN may take. */
static int all_know(struct sim_world *w)
{
	for (uint32_t i = 0; i < w->worker_count; i++) {
		const struct sim_worker *worker = w->workers[i];
		struct zd_session_view view;

		if (worker->epoch == 0 || worker->epoch == w->launch_count || !sim_worker_lives(worker))
			continue;
		zd_session_view(worker->session, &view);
		if (view.failed == 0)
			return 0;
	}
	return 1;
}

static void add_up(const struct sim_world *w)
{
	sim_totals.worlds++;
	sim_totals.rounds += w->oracle.decided;
	sim_totals.events += w->steps;
	sim_totals.faults += w->faults;
	sim_totals.crashes += w->crashes;
	sim_totals.resets += w->resets;
	sim_totals.redos += w->redos;
	sim_totals.aborts += w->aborts;
	sim_totals.skipped += w->skipped;
	sim_totals.discards += w->discards;
	sim_totals.stale += w->stale;
}

int sim_chaos_run(uint64_t seed, int faults, int verbose, char *text, size_t text_size, uint64_t *ret_hash)
{
	struct sim_config config;
	struct sim_world *w;
	int rc;

	sim_chaos_config(&config, seed, faults);
	config.verbose = (uint8_t)(verbose != 0);
	w = sim_new(&config);
	w->fault = on_fault;
	if (faults) {
		w->faults_end = w->now + ZD_MS(100) + sim_next(&w->rng) % ZD_MS(sim_chance(&w->rng, 15) ? 4000 : 1000);
		sim_at(w, w->now + sim_delay(w, ZD_MS(300)), SIM_E_FAULT, NULL, 0);
	}
	sim_launch(w, sim_range(&w->rng, 1, 4), sim_range(&w->rng, 1, 3));
	if (config.readers && config.spec.optimizer != ZD_OPT_NONE && sim_run_until(w, some_rounds, ZD_SEC(300)))
		sim_add_reader(w, 0);
	if (!sim_run_until(w, sim_reached, ZD_SEC(500)) && !w->failure[0])
		sim_fail(w, "I14: nothing happens any more before the target is reached");
	sim_run_until(w, all_know, ZD_SEC(40));
	if (!w->failure[0])
		sim_check_end(w);
	rc = w->failure[0] != '\0';
	snprintf(text, text_size, "%s", w->failure);
	*ret_hash = w->hash;
	add_up(w);
	sim_free(w);
	return rc;
}
