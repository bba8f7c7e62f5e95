/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/sim/scenario.h"

#define HOLDS_MAX 4u

static struct hold {
	int up;
	uint16_t type;
	uint32_t lane, rank;
	uint64_t epoch;
} holds[HOLDS_MAX];
static uint32_t hold_count;

static void on_frame(struct sim_world *w, struct sim_conn *c, int up, struct sim_mark *mark)
{
	(void)w;
	for (uint32_t i = 0; i < hold_count; i++) {
		const struct hold *h = &holds[i];

		if (h->up == up && h->type == mark->type && (h->lane == ANY || h->lane == c->lane->index) && h->epoch == c->worker->epoch &&
		    (h->rank == ANY || h->rank == c->worker->rank))
			mark->hold = 1;
	}
}

void story_config(struct sim_config *c, uint64_t seed)
{
	memset(c, 0, sizeof(*c));
	c->seed = seed;
	c->hosts = 2;
	c->lanes_per_host = 1;
	c->spec = (struct zd_spec){.name = "story", .optimizer = ZD_OPT_ADAMW, .grad_codec = ZD_CODEC_BF16, .extent_elems = SIM_EXTENT,
				   .lease_ms = 1000, .unit_count = 2};
	for (uint32_t u = 0; u < 2; u++) {
		snprintf(c->units[u].name, sizeof(c->units[u].name), "unit%u", u);
		c->units[u].numel = 9001;
	}
	c->load_codec = ZD_CODEC_FP32;
	c->level = SIM_DURABLE;
	c->windows = 20;
	c->max_conns = 32;
	c->target = 1000;
	c->end = ZD_SEC(300);
	c->latency = ZD_MS(1);
	c->disk = ZD_MS(2);
	c->plain_trainer = 1;
	c->trace = 1;
}

struct sim_world *story_new_with(const struct sim_config *config)
{
	struct sim_world *w = sim_new(config);

	w->on_frame = on_frame;
	w->faults = 1; /* something will go wrong */
	hold_count = 0;
	return w;
}

struct sim_world *story_new(uint64_t seed)
{
	struct sim_config config;

	story_config(&config, seed);
	return story_new_with(&config);
}

void story_hold(struct sim_world *w, int up, uint16_t type, uint32_t lane, uint64_t epoch, uint32_t rank)
{
	(void)w;
	assert_true(hold_count < HOLDS_MAX);
	holds[hold_count++] = (struct hold){up, type, lane, rank, epoch};
}

void story_release(struct sim_world *w)
{
	hold_count = 0;
	sim_release_holds(w);
}

static void fail_with(struct sim_world *w, const char *what, const char *line)
{
	printf("%s%s%s\n%s", w->trace ? w->trace : "", what, line, w->failure);
	fail();
}

size_t story_until(struct sim_world *w, size_t from, const char *line)
{
	zd_time end = w->now + ZD_SEC(60);
	size_t looked = from;

	for (;;) {
		const char *at = w->trace && w->trace_len > looked ? strstr(w->trace + looked, line) : NULL;

		if (at)
			return (size_t)(at - w->trace) + strlen(line);
		looked = w->trace_len;
		if (w->now > end || !sim_turn(w))
			fail_with(w, "never came: ", line);
	}
}

static int never(struct sim_world *w)
{
	(void)w;
	return 0;
}

void story_run(struct sim_world *w, zd_time time)
{
	sim_run_until(w, never, time);
	if (w->failure[0])
		fail_with(w, "", "");
}

void story_finish(struct sim_world *w, uint64_t rounds)
{
	w->target = rounds;
	if (!sim_run_until(w, sim_reached, ZD_SEC(120)))
		fail_with(w, "the target is never reached", "");
}

void story_expect(struct sim_world *w, const char *const *lines, size_t count)
{
	const char *at = w->trace;

	for (size_t i = 0; i < count; i++) {
		at = strstr(at, lines[i]);
		if (!at)
			fail_with(w, "missing, or not in this order: ", lines[i]);
		at += strlen(lines[i]);
	}
}

void story_never(struct sim_world *w, const char *line)
{
	if (strstr(w->trace, line))
		fail_with(w, "must not be: ", line);
}

void story_kill(struct sim_world *w, uint64_t epoch)
{
	for (uint32_t i = 0; i < w->worker_count; i++)
		if (w->workers[i]->epoch == epoch)
			sim_worker_kill(w->workers[i], 0);
}

void story_end(struct sim_world *w)
{
	if (w->failure[0])
		fail_with(w, "", "");
	sim_free(w);
}
