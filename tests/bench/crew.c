/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/crew.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/include/zerod.h"
#include "tests/bench/crc_switch.h"
#include "tests/bench/host.h"

/* A worker process. */
struct worker {
	const struct zd_crew *crew;
	struct zd_actor_box *box;
	struct zerod_client *client;
	struct zerod_hyper hyper;
	uint16_t *grad; /* of all units, one after the other */
	uint64_t steps;
};

enum { COMMAND_OPEN = 100, COMMAND_LOAD };

/* Places in box->number. */
enum { WIRE, PAYLOAD, FRAMES, GATHERED_MAX };

static int failed(struct worker *w, const char *what, int status)
{
	snprintf(w->box->text, sizeof w->box->text, "%s: %s: %s", what, zerod_status_text(status), w->client ? zerod_detail(w->client) : "");
	return -1;
}

static uint16_t *unit_grad(const struct worker *w, uint32_t unit)
{
	return w->grad + (size_t)unit * w->crew->numel[0];
}

static int open_client(struct worker *w)
{
	const struct zd_crew *c = w->crew;
	struct zerod_unit units[ZD_CREW_UNITS_MAX];
	char names[ZD_CREW_UNITS_MAX][16], detail[160];
	uint32_t order[ZD_CREW_UNITS_MAX];
	struct zerod_options o;
	int rc;

	for (uint32_t u = 0; u < c->units; u++) {
		snprintf(names[u], sizeof names[u], "unit%u", u);
		units[u] = (struct zerod_unit){ .name = names[u], .numel = c->numel[u] };
		order[u] = u;
	}
	zerod_options_init(&o);
	o.endpoints = c->endpoint;
	o.job = "bench";
	o.optimizer = ZEROD_OPTIMIZER_ADAMW;
	o.grad_codec = ZEROD_BF16;
	o.rank = c->rank;
	o.world = c->workers;
	o.epoch = 1;
	/* The whole model may be on its way, as the minimal server's worker receives it. */
	o.gather_bytes_max = 4 * c->params;
	o.prefetch = c->prefetch;
	rc = zerod_new(&w->client, &o, units, c->units, detail, sizeof detail);
	if (rc) {
		snprintf(w->box->text, sizeof w->box->text, "zerod_new: %s", detail);
		return -1;
	}
	rc = c->prefetch ? zerod_plan_gathers(w->client, order, c->units) : 0;
	if (!rc)
		rc = zerod_connect(w->client);
	return rc ? failed(w, "zerod_connect", rc) : 0;
}

static int load(struct worker *w)
{
	int rc = 0;

	for (uint32_t u = 0; u < w->crew->units && !rc; u++)
		rc = zerod_load(w->client, u, ZEROD_BF16, unit_grad(w, u));
	if (!rc)
		rc = zerod_seal(w->client);
	return rc ? failed(w, "loading the weights", rc) : 0;
}

static int push_all(struct worker *w)
{
	int rc = 0;

	for (uint32_t u = w->crew->units; u-- > 0 && !rc;)
		rc = zerod_push_start(w->client, u, 0, 1, unit_grad(w, u), NULL, NULL);
	return rc ? failed(w, "zerod_push_start", rc) : 0;
}

static int commit(struct worker *w)
{
	struct zerod_step_result result;
	int rc = zerod_step(w->client, &w->hyper, 1, &result);

	if (rc)
		return failed(w, "zerod_step", rc);
	w->steps++;
	if (result.skipped || result.step != w->steps) {
		snprintf(w->box->text, sizeof w->box->text, "expected step %llu, found %llu%s", (unsigned long long)w->steps,
			 (unsigned long long)result.step, result.skipped ? ", skipped" : "");
		return -1;
	}
	return 0;
}

static int gather_all(struct worker *w)
{
	const uint16_t *weights;
	int rc = 0;

	for (uint32_t u = 0; u < w->crew->units && !rc; u++) {
		rc = zerod_gather(w->client, u, &weights);
		if (!rc)
			rc = zerod_release(w->client, u, 0);
	}
	return rc ? failed(w, "zerod_gather", rc) : 0;
}

static int step_once(struct worker *w, uint32_t i)
{
	struct zd_actor_box *box = w->box;

	box->begin[i] = zd_host_now();
	if (push_all(w) || commit(w) || gather_all(w))
		return -1;
	box->end[i] = zd_host_now();
	return 0;
}

static int push_once(struct worker *w, uint32_t i)
{
	struct zd_actor_box *box = w->box;
	int rc;

	box->begin[i] = zd_host_now();
	if (push_all(w))
		return -1;
	rc = zerod_push_flush(w->client);
	box->end[i] = zd_host_now();
	if (rc)
		return failed(w, "zerod_push_flush", rc);
	return commit(w) || gather_all(w) ? -1 : 0;
}

static int apply_once(struct worker *w, uint32_t i)
{
	struct zd_actor_box *box = w->box;
	int rc;

	if (push_all(w))
		return -1;
	rc = zerod_push_flush(w->client);
	if (rc)
		return failed(w, "zerod_push_flush", rc);
	zd_actor_done(box, 0); /* the conductor reads the lanes' clocks and calls again */
	if (!zd_actor_next(box))
		return 0;
	box->begin[i] = zd_host_now();
	if (commit(w))
		return -1;
	box->end[i] = zd_host_now();
	return 0;
}

static void count_traffic(struct worker *w, const struct zerod_stats *before)
{
	struct zerod_stats s;

	if (zerod_stats(w->client, &s))
		return;
	w->box->number[WIRE] = s.wire_sent + s.wire_received - before->wire_sent - before->wire_received;
	w->box->number[PAYLOAD] = s.payload_sent + s.payload_received - before->payload_sent - before->payload_received;
	w->box->number[FRAMES] = s.frames_sent + s.frames_received - before->frames_sent - before->frames_received;
	w->box->number[GATHERED_MAX] = s.gathered_bytes_max;
}

static int repeat(struct worker *w, int command, uint64_t count)
{
	static int (*const once[])(struct worker *, uint32_t) = {
		[ZD_CREW_STEP] = step_once, [ZD_CREW_PUSH] = push_once, [ZD_CREW_APPLY] = apply_once,
	};
	struct zerod_stats before;

	if (zerod_stats(w->client, &before))
		return -1;
	for (uint32_t i = 0; i < count && i < ZD_ACTOR_TIMES_MAX; i++) {
		/* All start together, as the minimal server's workers do on its word. */
		if (command != ZD_CREW_APPLY)
			pthread_barrier_wait(w->crew->barrier);
		if (once[command](w, i))
			return -1;
		w->box->times = i + 1;
	}
	count_traffic(w, &before);
	return 0;
}

static void body(struct zd_actor_box *box, void *state)
{
	struct worker w = { .crew = state, .box = box };
	size_t n = w.crew->params;

	if (w.crew->unchecked)
		zd_crc_switch_off();
	w.grad = zd_host_memory(2 * n, 0);
	for (size_t i = 0; i < n; i++)
		w.grad[i] = (uint16_t)(0x3838u + ((uint32_t)i * 2654435761u >> 28)); /* ordinary values around 4e-5 */
	zerod_hyper_init(&w.hyper);
	w.hyper.max_norm = 1.0;
	while (zd_actor_next(box)) {
		int rc;

		if (box->command == COMMAND_OPEN)
			rc = open_client(&w);
		else if (box->command == COMMAND_LOAD)
			rc = load(&w);
		else
			rc = repeat(&w, box->command, box->count);
		zd_actor_done(box, rc);
	}
	zerod_free(w.client);
}

/* 16 bytes an element, and what a lane takes besides. */
static uint64_t budget(const struct zd_crew *c)
{
	return 16 * (uint64_t)c->params * 103 / 100 + c->lanes * (64ull << 20);
}

void zd_crew_start(struct zd_crew *c)
{
	c->params -= c->params % c->units;
	for (uint32_t u = 0; u < c->units; u++)
		c->numel[u] = c->params / c->units;
	zd_daemon_start(&c->daemon, &(struct zd_daemon_options){ .program = c->program, .lanes = c->lanes, .budget_bytes = budget(c),
								 .cpu = c->server_cpu, .pin = c->pin_lanes });
	snprintf(c->endpoint, sizeof c->endpoint, "127.0.0.1:%u", c->daemon.port);
	c->barrier = zd_actor_barrier(c->workers);
	for (c->rank = 0; c->rank < c->workers; c->rank++)
		zd_actor_start(&c->worker[c->rank], "worker", c->worker_cpu, body, c);
	zd_crew_run(c, (enum zd_crew_command)COMMAND_OPEN, 1);
	zd_actor_call(&c->worker[0], COMMAND_LOAD, 1);
	zd_actor_wait(&c->worker[0]);
}

void zd_crew_run(struct zd_crew *c, enum zd_crew_command command, uint32_t count)
{
	for (uint32_t i = 0; i < c->workers; i++)
		zd_actor_call(&c->worker[i], (int)command, count);
	for (uint32_t i = 0; i < c->workers; i++)
		zd_actor_wait(&c->worker[i]);
}

void zd_crew_stop(struct zd_crew *c)
{
	for (uint32_t i = 0; i < c->workers; i++)
		zd_actor_stop(&c->worker[i]);
	zd_daemon_stop(&c->daemon);
}

double zd_crew_seconds(const struct zd_crew *c, uint32_t i)
{
	double begin = c->worker[0].box->begin[i], end = c->worker[0].box->end[i];

	for (uint32_t w = 1; w < c->workers; w++) {
		const struct zd_actor_box *box = c->worker[w].box;

		begin = box->begin[i] < begin ? box->begin[i] : begin;
		end = box->end[i] > end ? box->end[i] : end;
	}
	return end - begin;
}

struct zd_crew_traffic zd_crew_traffic(const struct zd_crew *c, uint32_t worker)
{
	const uint64_t *n = c->worker[worker].box->number;

	return (struct zd_crew_traffic){ n[WIRE], n[PAYLOAD], n[FRAMES], n[GATHERED_MAX] };
}
