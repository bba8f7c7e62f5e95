/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/count.h"

#include <string.h>

#include "tests/sim/world.h"

/*
 * The fixed model: 16 units of 32,768 elements would be whole on some lane each; these four of 131,072 are cut into up to four pieces.  Extents have
 * 4,096 elements.  bf16 gradients, AdamW, stage 3 (each unit is gathered twice), one micro-batch.
 */
#define UNITS 4u
#define NUMEL 131072u
#define WARM 2u	 /* rounds before: version 0, first plans */
#define ROUNDS 2u

static void configure(struct sim_config *c, uint32_t lanes, uint32_t workers)
{
	memset(c, 0, sizeof(*c));
	c->seed = 1;
	c->hosts = lanes;
	c->lanes_per_host = 1;
	c->spec = (struct zd_spec){.name = "count", .optimizer = ZD_OPT_ADAMW, .grad_codec = ZD_CODEC_BF16, .extent_elems = SIM_EXTENT,
				   .lease_ms = 3600000, .unit_count = UNITS};
	for (uint32_t u = 0; u < UNITS; u++) {
		snprintf(c->units[u].name, sizeof(c->units[u].name), "unit%u", u);
		c->units[u].numel = NUMEL;
	}
	c->load_codec = ZD_CODEC_BF16;
	c->level = SIM_NONE;
	c->windows = 2 * workers * ZD_CREDIT_MAX + 4; /* every worker gets the most credit */
	c->max_conns = workers + 1;
	c->target = WARM;
	c->end = ZD_SEC(100000);
	c->latency = ZD_MS(1);
	c->plain_trainer = 1;
}

static uint64_t sum(const uint64_t *counts)
{
	uint64_t n = 0;

	for (uint32_t t = 0; t < ZD_MSG_MAX; t++)
		n += counts[t];
	return n;
}

/*
 * Frames that the protocol asks for in one step.  Each extent is pushed once.  A unit is gathered twice, except that the last of the forward pass stays for the
 * backward pass: 2 * UNITS - 1 gathers, each one FETCH for a piece and one DATA for an extent.  Four messages of agreement for each lane.  PUSHED comes when a piece is
 * counted, and where contributions are summed as they come, also when half of a worker's windows are free again, which depends on the order of
 * arrival: it is taken as counted, and bounded apart.
 */
static void expected(const struct sim_world *w, uint32_t workers, struct sim_count *c)
{
	uint64_t pieces = 0, extents = 0;

	for (uint32_t l = 0; l < w->lane_count; l++) { /* all units are alike */
		struct zd_piece p = w->oracle.pieces[l];

		pieces += p.count > 0;
		extents += zd_piece_extents(p, SIM_EXTENT);
	}
	c->expect = workers * (UNITS * extents + (2 * UNITS - 1) * (extents + pieces) + 4 * (uint64_t)w->lane_count) + c->pushed;
	c->pushed_min = workers * UNITS * pieces;
	c->pushed_max = workers <= 2 ? c->pushed_min : c->pushed_min + workers * UNITS * extents / (ZD_CREDIT_MAX / 2);
}

int sim_count(uint32_t lanes, uint32_t workers, struct sim_count *ret, char *text, size_t text_size)
{
	struct sim_config config;
	struct sim_world *w;
	int rc;

	configure(&config, lanes, workers);
	w = sim_new(&config);
	sim_launch(w, workers, 1);
	sim_run_until(w, sim_reached, ZD_SEC(50000));
	memset(&w->counts, 0, sizeof(w->counts));
	w->target = WARM + ROUNDS;
	for (uint32_t i = 0; i < w->worker_count; i++)
		sim_at(w, w->now, SIM_E_TRAIN, w->workers[i], 0);
	sim_turn(w);
	sim_run_until(w, sim_reached, ZD_SEC(50000));
	*ret = (struct sim_count){.lanes = lanes, .workers = workers, .frames = (sum(w->counts.up) + sum(w->counts.down)) / ROUNDS};
	ret->per_lane = (double)ret->frames / lanes;
	for (uint32_t l = 0; l < lanes; l++)
		if (w->counts.lane_frames[l] / ROUNDS > ret->lane_max)
			ret->lane_max = w->counts.lane_frames[l] / ROUNDS;
	ret->push = w->counts.up[ZD_MSG_PUSH] / ROUNDS;
	ret->pushed = w->counts.down[ZD_MSG_PUSHED] / ROUNDS;
	ret->commit = w->counts.up[ZD_MSG_COMMIT] / ROUNDS;
	ret->prepared = w->counts.down[ZD_MSG_PREPARED] / ROUNDS;
	ret->apply = w->counts.up[ZD_MSG_APPLY] / ROUNDS;
	ret->applied = w->counts.down[ZD_MSG_APPLIED] / ROUNDS;
	ret->fetch = w->counts.up[ZD_MSG_FETCH] / ROUNDS;
	ret->data = w->counts.down[ZD_MSG_DATA] / ROUNDS;
	ret->other = ret->frames - ret->push - ret->pushed - ret->commit - ret->prepared - ret->apply - ret->applied - ret->fetch - ret->data;
	expected(w, workers, ret);
	rc = w->failure[0] ? -1 : 0;
	snprintf(text, text_size, "%s", w->failure);
	sim_free(w);
	return rc;
}

static void print_cell(FILE *out, uint32_t lanes, uint32_t workers, struct sim_count *c)
{
	char text[512];

	if (sim_count(lanes, workers, c, text, sizeof(text)) < 0) {
		fprintf(stderr, "sim: %u lanes, %u workers: %s\n", lanes, workers, text);
		fprintf(out, " failed |");
		return;
	}
	fprintf(out, " %.1f |", c->per_lane / workers);
	fflush(out);
}

static void print_shares(FILE *out, const struct sim_count *c)
{
	fprintf(out, "| %u | %llu | %llu | %llu | %llu | %llu | %llu | %llu | %llu | %llu |\n", c->lanes, (unsigned long long)c->lane_max,
		(unsigned long long)c->push, (unsigned long long)c->pushed, (unsigned long long)c->fetch, (unsigned long long)c->data,
		(unsigned long long)c->commit, (unsigned long long)c->prepared, (unsigned long long)c->apply, (unsigned long long)c->applied);
}

int sim_count_table(FILE *out)
{
	struct sim_count shares[7], c;
	uint32_t n = 0;

	fprintf(out, "| lanes | 1 worker | 2 | 4 | 8 | 16 | 32 | 64 |\n|---:|---:|---:|---:|---:|---:|---:|---:|\n");
	for (uint32_t lanes = 1; lanes <= 64; lanes *= 2) {
		fprintf(out, "| %u |", lanes);
		for (uint32_t workers = 1; workers <= 64; workers *= 2) {
			print_cell(out, lanes, workers, &c);
			if (workers == 8)
				shares[n++] = c;
		}
		fprintf(out, "\n");
	}
	fprintf(out, "\n| lanes | busiest lane | PUSH | PUSHED | FETCH | DATA | COMMIT | PREPARED | APPLY | APPLIED |\n");
	fprintf(out, "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n");
	for (uint32_t i = 0; i < n; i++)
		print_shares(out, &shares[i]);
	return 0;
}
