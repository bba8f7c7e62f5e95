/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon and the client library against the baselines, in turns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/plan_wire.h"
#include "tests/bench/bench.h"
#include "tests/bench/crew.h"
#include "tests/bench/host.h"
#include "tests/bench/inplace.h"
#include "tests/bench/minserver.h"
#include "tests/bench/series.h"
#include "tests/bench/uvstream.h"

/* Like the blocks of a model: several, so that pushing, applying and fetching of different units can overlap. */
#define UNITS 8
/* A turn's first step finds caches and sockets as the other side left them; it does not count. */
#define TURN_STEPS 5
/* Steps before anything counts: page faults, clocks, congestion windows. */
#define WARM_STEPS 5
#define PUSH_STEPS 3

static struct zd_crew crew_of(const struct zd_bench *b, uint32_t workers, uint32_t lanes, uint32_t units)
{
	return (struct zd_crew){ .program = b->zerod, .workers = workers, .lanes = lanes, .units = units, .params = b->params, .prefetch = units,
				 .server_cpu = lanes == 1 ? zd_bench_server_cpu(b) : -1, .worker_cpu = zd_bench_worker_cpu(b) };
}

/* ---- (b) push, reduce, step, fetch */

/* Time of a step, and processor time of the server's side in it: all lanes together. */
struct step_series {
	struct zd_series wall, cpu;
};

static double lanes_cpu(const struct zd_crew *c)
{
	double cpu[ZD_DAEMON_TASKS_MAX], sum = 0;

	zd_daemon_cpu(&c->daemon, cpu);
	for (uint32_t i = 0; i < c->daemon.tasks; i++)
		sum += cpu[i];
	return sum;
}

static void product_turn(struct zd_crew *c, struct step_series *s)
{
	zd_host_wait_quiet();
	struct zd_host_mark mark = zd_host_mark();
	double cpu = lanes_cpu(c);

	zd_crew_run(c, ZD_CREW_STEP, TURN_STEPS);
	int quiet = zd_host_quiet_since(mark);
	for (uint32_t i = 1; i < TURN_STEPS; i++)
		zd_series_add(&s->wall, zd_crew_seconds(c, i) * 1e9 / (double)c->params, quiet);
	(void)zd_daemon_settle(&c->daemon);
	zd_series_add(&s->cpu, (lanes_cpu(c) - cpu) / TURN_STEPS * 1e9 / (double)c->params, quiet);
}

static void minimal_turn(struct zd_minserver *m, struct step_series *s)
{
	zd_host_wait_quiet();
	struct zd_host_mark mark = zd_host_mark();

	zd_actor_call(&m->server, 0, TURN_STEPS);
	zd_actor_wait(&m->server);
	int quiet = zd_host_quiet_since(mark);
	const struct zd_actor_box *box = m->server.box;
	for (uint32_t i = 1; i < box->times; i++)
		zd_series_add(&s->wall, (box->end[i] - box->begin[i]) * 1e9 / (double)m->params, quiet);
	zd_series_add(&s->cpu, box->cpu / TURN_STEPS * 1e9 / (double)m->params, quiet);
}

static int wanted(const struct zd_bench *b, uint32_t workers, uint32_t lanes)
{
	return (b->workers == 0 || b->workers == workers) && (b->lanes == 0 || b->lanes == lanes);
}

static void step_case(const struct zd_bench *b, uint32_t workers, uint32_t lanes, double target)
{
	struct zd_minserver m = { .workers = workers, .params = b->params, .server_cpu = zd_bench_server_cpu(b),
				  .worker_cpu = zd_bench_worker_cpu(b) };
	struct zd_crew c = crew_of(b, workers, lanes, UNITS);
	static struct step_series product, minimal;
	char name[64];

	if (!wanted(b, workers, lanes))
		return;
	memset(&product, 0, sizeof product);
	memset(&minimal, 0, sizeof minimal);
	zd_minserver_start(&m);
	zd_crew_start(&c);
	zd_crew_run(&c, ZD_CREW_STEP, WARM_STEPS);
	zd_actor_call(&m.server, 0, WARM_STEPS);
	zd_actor_wait(&m.server);
	for (uint32_t i = 0; i < b->rounds; i++) {
		minimal_turn(&m, &minimal);
		product_turn(&c, &product);
	}
	zd_crew_stop(&c);
	zd_minserver_stop(&m);
	snprintf(name, sizeof name, "step_w%u_lanes%u%s", workers, lanes, b->pin ? "_pinned" : "");
	zd_series_report(name, "ns/param", ZD_LOWER_IS_BETTER, &product.wall, &minimal.wall, target);
	snprintf(name, sizeof name, "step_w%u_lanes%u%s_cpu", workers, lanes, b->pin ? "_pinned" : "");
	zd_series_report(name, "ns/param", ZD_LOWER_IS_BETTER, &product.cpu, &minimal.cpu, 0);
}

void zd_bench_step(const struct zd_bench *b)
{
	/* Two lanes are what the daemon takes by itself on two processors; the minimal server has one thread, so one lane is shown beside it. */
	for (uint32_t lanes = 1; lanes <= 2; lanes++) {
		step_case(b, 1, lanes, 1.05);
		step_case(b, 2, lanes, b->pin ? 1.20 : 1.00);
	}
}

/* ---- one large push */

static void push_turn(struct zd_crew *c, struct zd_series *s)
{
	zd_host_wait_quiet();
	struct zd_host_mark mark = zd_host_mark();

	zd_crew_run(c, ZD_CREW_PUSH, PUSH_STEPS);
	int quiet = zd_host_quiet_since(mark);
	for (uint32_t k = 1; k < PUSH_STEPS; k++)
		zd_series_add(s, 2e-9 * (double)c->params / zd_crew_seconds(c, k), quiet);
}

void zd_bench_push(const struct zd_bench *b)
{
	struct zd_crew c = crew_of(b, 1, 1, 1);
	struct zd_series push = { 0 }, bare = { 0 };
	struct zd_uvstream stream;

	zd_uvstream_start(&stream, zd_bench_worker_cpu(b), zd_bench_server_cpu(b));
	zd_crew_start(&c);
	zd_crew_run(&c, ZD_CREW_PUSH, WARM_STEPS);
	uint64_t bytes = 2 * c.params / ZD_UVSTREAM_BYTES * ZD_UVSTREAM_BYTES;
	zd_uvstream_run(&stream, bytes);
	for (uint32_t i = 0; i < 2 * b->rounds; i++) {
		zd_host_wait_quiet();
		struct zd_host_mark mark = zd_host_mark();
		double rate = zd_uvstream_run(&stream, bytes);

		zd_series_add(&bare, rate / 1e9, zd_host_quiet_since(mark));
		push_turn(&c, &push);
	}
	zd_crew_stop(&c);
	zd_uvstream_stop(&stream);
	zd_series_report(b->pin ? "push_large_pinned" : "push_large", "GB/s", ZD_HIGHER_IS_BETTER, &push, &bare, 0.50);
}

/* ---- (a) Adam over the whole shard inside the daemon */

/* Processor time of the busiest lane from COMMIT until every extent is updated: commit, records, decision, bookkeeping and kernels. */
static double apply_seconds(struct zd_crew *c)
{
	double before[ZD_DAEMON_TASKS_MAX], after[ZD_DAEMON_TASKS_MAX], worst = 0;

	zd_actor_call(&c->worker[0], ZD_CREW_APPLY, 1);
	zd_actor_wait(&c->worker[0]); /* pushed */
	if (zd_daemon_settle(&c->daemon))
		return -1;
	zd_daemon_cpu(&c->daemon, before);
	zd_actor_call(&c->worker[0], ZD_CREW_APPLY, 1);
	zd_actor_wait(&c->worker[0]); /* decided */
	if (zd_daemon_settle(&c->daemon))
		return -1;
	zd_daemon_cpu(&c->daemon, after);
	for (uint32_t i = 0; i < c->daemon.tasks; i++)
		worst = after[i] - before[i] > worst ? after[i] - before[i] : worst;
	return worst;
}

struct apply_rates {
	double product, pure; /* medians, GB/s */
	int quiet;
};

static struct apply_rates apply_case(const struct zd_bench *b, uint32_t lanes)
{
	struct zd_inplace p = { .threads = lanes, .params = b->params };
	struct zd_crew c = crew_of(b, 1, lanes, UNITS);
	struct zd_series product = { 0 }, pure = { 0 };
	char name[64];

	c.server_cpu = -1;
	c.pin_lanes = 1;
	c.prefetch = 0;
	zd_inplace_start(&p);
	zd_crew_start(&c);
	zd_crew_run(&c, ZD_CREW_STEP, 2);
	for (uint32_t i = 0; i < 2 * b->rounds; i++) {
		zd_host_wait_quiet();
		struct zd_host_mark mark = zd_host_mark();
		double s = zd_inplace_run(&p, 1);

		zd_series_add(&pure, ZD_RATE_UPDATE_BYTES * 1e-9 * (double)p.params / s, zd_host_quiet_since(mark));
		zd_host_wait_quiet();
		mark = zd_host_mark();
		s = apply_seconds(&c);
		if (s < 0) {
			fprintf(stderr, "the daemon does not come to rest after a step\n");
			exit(1);
		}
		zd_series_add(&product, ZD_RATE_UPDATE_BYTES * 1e-9 * (double)c.params / s, zd_host_quiet_since(mark));
	}
	zd_crew_stop(&c);
	zd_inplace_stop(&p);
	snprintf(name, sizeof name, "adam_shard_lanes%u", lanes);
	zd_series_report(name, "GB/s", ZD_HIGHER_IS_BETTER, &product, &pure, 0.90);
	struct zd_summary x = zd_series_summary(&product), y = zd_series_summary(&pure);
	return (struct apply_rates){ x.median, y.median, x.quiet && y.quiet };
}

void zd_bench_adam(const struct zd_bench *b)
{
	struct apply_rates one = apply_case(b, 1), two;

	if (zd_host_cpus() < 2)
		return;
	two = apply_case(b, 2);
	int quiet = one.quiet && two.quiet;
	double scaling = two.product / one.product, pure = two.pure / one.pure;
	zd_series_report_number("adam_scaling", "times", scaling, 1, scaling, 1.85, quiet);
	/* Memory may not scale that far; then nothing that lives in it does. */
	zd_series_report_number("adam_scaling_of_memory", "times", scaling, pure, scaling / pure, 0, quiet);
}

/* ---- (e) what checksums cost */

struct checksum_series {
	struct zd_series step, push, cpu;
};

static void checksum_turn(struct zd_crew *c, struct checksum_series *s)
{
	struct step_series steps;

	memset(&steps, 0, sizeof steps);
	product_turn(c, &steps);
	for (uint32_t i = 0; i < steps.wall.count; i++)
		zd_series_add(&s->step, steps.wall.value[i], steps.wall.quiet[i]);
	zd_series_add(&s->cpu, steps.cpu.value[0], steps.cpu.quiet[0]);
	push_turn(c, &s->push);
}

void zd_bench_checksum(const struct zd_bench *b)
{
	struct zd_crew on = crew_of(b, 1, 1, UNITS), off = on;
	static struct checksum_series with, without;

	off.program = b->unchecked;
	off.unchecked = 1;
	zd_crew_start(&on);
	zd_crew_start(&off);
	zd_crew_run(&on, ZD_CREW_STEP, WARM_STEPS);
	zd_crew_run(&off, ZD_CREW_STEP, WARM_STEPS);
	for (uint32_t i = 0; i < b->rounds; i++) {
		checksum_turn(&on, &with);
		checksum_turn(&off, &without);
	}
	zd_crew_stop(&on);
	zd_crew_stop(&off);
	zd_series_report("checksum_push", "GB/s", ZD_HIGHER_IS_BETTER, &with.push, &without.push, 0.80);
	zd_series_report("checksum_step", "ns/param", ZD_LOWER_IS_BETTER, &with.step, &without.step, 0.94);
	zd_series_report("checksum_step_cpu", "ns/param", ZD_LOWER_IS_BETTER, &with.cpu, &without.cpu, 0);
}

/* ---- bytes and messages of a step */

static void wire_case(const struct zd_bench *b, uint32_t workers, uint32_t lanes)
{
	struct zd_plan_unit units[UNITS];
	struct zd_plan_wire_spec spec = { .units = units, .unit_count = UNITS, .stage = 2, .micro_batches = 1, .lanes = lanes, .grad_bytes = 2 };
	struct zd_crew c = crew_of(b, workers, lanes, UNITS);
	const uint32_t steps = 4;
	struct zd_plan_wire plan;
	char name[64];

	zd_crew_start(&c);
	for (uint32_t u = 0; u < UNITS; u++)
		units[u] = (struct zd_plan_unit){ .numel = c.numel[u] };
	if (zd_plan_wire_compute(&spec, &plan)) {
		fprintf(stderr, "the planner refuses the bench's model\n");
		exit(1);
	}
	zd_crew_run(&c, ZD_CREW_STEP, 2);
	zd_crew_run(&c, ZD_CREW_STEP, steps);
	struct zd_crew_traffic t = zd_crew_traffic(&c, workers - 1);
	zd_crew_stop(&c);
	double planned = (double)(plan.push_bytes + plan.fetch_bytes), counted = (double)t.wire_bytes / steps;
	snprintf(name, sizeof name, "wire_w%u_lanes%u", workers, lanes);
	/* The target says excess < 0.1 %: planned over counted of at least 1/1.001. */
	zd_series_report_number(name, "bytes", counted, planned, planned / counted, 1 / 1.001, 1);
	snprintf(name, sizeof name, "frames_w%u_lanes%u", workers, lanes);
	double frames = (double)t.frames / steps, bound = (double)(2 * plan.push_frames + plan.fetch_frames + plan.data_frames + plan.step_frames);
	zd_series_report_number(name, "frames", frames, bound, bound / frames, 1, 1);
}

void zd_bench_wire(const struct zd_bench *b)
{
	for (uint32_t workers = 1; workers <= 2; workers++)
		for (uint32_t lanes = 1; lanes <= 2; lanes++)
			if (wanted(b, workers, lanes))
				wire_case(b, workers, lanes);
}
