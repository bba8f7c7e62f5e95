/* SPDX-License-Identifier: Apache-2.0 */
/* What a step puts on the wire, against a worker played unit by unit; and the
 * bound on its time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "client/cli/plan_bound.h"
#include "client/cli/plan_wire.h"
#include "proto/limits.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Where a figure is exact in binary it is compared so; elsewhere a handful of
 * roundings of 2^-53 each are allowed. */
#define ROUNDINGS (16 * 0x1p-53)

static void assert_exact(double found, double expected)
{
	if (found != expected)
		fail_msg("expected %.17g, found %.17g", expected, found);
}

static void assert_near(double found, double expected, double relative)
{
	if (!(fabs(found - expected) <= relative * fabs(expected)))
		fail_msg("expected %.17g within %g, found %.17g", expected, relative, found);
}

/* --- the wire --- */

struct played {
	uint64_t push, fetch;
};

/* A stage 3 worker, unit by unit. */
static uint64_t play_gathers(const struct zd_plan_wire_spec *s)
{
	bool resident[16] = { false };
	uint64_t fetch = 0;
	size_t n = s->unit_count;

	for (uint32_t m = 0; m < s->micro_batches; m++) {
		for (size_t i = 0; i < n; i++) {
			fetch += resident[i] ? 0 : 2 * s->units[i].numel;
			resident[i] = s->keep_after_forward || ((s->reuse & ZD_PLAN_REUSE_LAST) && i + 1 == n);
		}
		for (size_t i = n; i-- > 0;) {
			fetch += resident[i] ? 0 : 2 * s->units[i].numel;
			resident[i] = !s->keep_after_forward && (s->reuse & ZD_PLAN_REUSE_FIRST) && i == 0;
		}
	}
	return fetch;
}

/* A worker of the table "stages are client policy". */
static struct played play(const struct zd_plan_wire_spec *s)
{
	struct played p = { 0, 0 };

	for (size_t i = 0; i < s->unit_count; i++) {
		if (s->units[i].frozen)
			continue;
		for (uint32_t m = 0; m < (s->sum_locally ? 1 : s->micro_batches); m++)
			p.push += s->units[i].numel * s->grad_bytes;
		p.fetch += s->units[i].numel * (s->stage == 0 ? 4 : 2);
	}
	if (s->stage == 3)
		p.fetch = play_gathers(s);
	return p;
}

static const struct zd_plan_unit trained[] = { { 1000, false }, { 300000, false }, { 300000, false }, { 77, false } };
static const struct zd_plan_unit mixed[] = { { 1000, true }, { 300000, false }, { 4096, true }, { 77, false } };
static const struct zd_plan_unit frozen_last[] = { { 5, false }, { 7, true } };
static const struct zd_plan_unit one[] = { { 123456, false } };
static const struct {
	const struct zd_plan_unit *units;
	size_t count;
} models[] = { { trained, 4 }, { mixed, 4 }, { frozen_last, 2 }, { one, 1 } };

/* Modes: stages 0 to 3, then 0 and 1 summing, 3 keeping. */
static struct zd_plan_wire_spec mode_spec(unsigned mode)
{
	static const struct {
		unsigned stage;
		bool sum, keep;
	} modes[] = {
		{ 0, false, false }, { 1, false, false }, { 2, false, false }, { 3, false, false },
		{ 0, true, false },  { 1, true, false },  { 3, false, true },
	};

	return (struct zd_plan_wire_spec){
		.stage = modes[mode].stage, .sum_locally = modes[mode].sum, .keep_after_forward = modes[mode].keep, .lanes = 3,
	};
}

static void test_wire_payload(void **state)
{
	(void)state;
	for (size_t m = 0; m < COUNT(models); m++)
		for (unsigned mode = 0; mode < 7; mode++)
			for (uint32_t variant = 0; variant < 5 * 4 * 2; variant++) {
				struct zd_plan_wire_spec s = mode_spec(mode);
				struct played p;
				struct zd_plan_wire w;

				s.units = models[m].units;
				s.unit_count = models[m].count;
				s.micro_batches = 1 + variant % 5;
				s.reuse = variant / 5 % 4;
				s.grad_bytes = variant < 20 ? 2 : 4;
				p = play(&s);
				assert_int_equal(zd_plan_wire_compute(&s, &w), 0);
				assert_int_equal(w.push_bytes, p.push);
				assert_int_equal(w.fetch_bytes, p.fetch);
			}
}

/* The closed forms, so that the player cannot be wrong with it: N = 1000, M = 4. */
static void test_wire_closed_form(void **state)
{
	static const struct zd_plan_unit units[] = { { 600, false }, { 300, false }, { 100, false } };
	static const struct {
		unsigned mode, reuse;
		uint64_t push, fetch;
	} rows[] = {
		{ 0, 1, 8000, 4000 },	       { 1, 1, 8000, 2000 }, { 2, 1, 8000, 2000 }, { 3, 1, 8000, 4 * 2 * 1900 },
		{ 3, 0, 8000, 4 * 2 * 2000 }, { 3, 3, 8000, 4 * 2 * 1900 - 3 * 2 * 600 },
		{ 4, 1, 2000, 4000 },	       { 5, 1, 2000, 2000 }, { 6, 1, 8000, 8000 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct zd_plan_wire_spec s = mode_spec(rows[i].mode);
		struct zd_plan_wire w;

		s.units = units;
		s.unit_count = 3;
		s.reuse = rows[i].reuse;
		s.micro_batches = 4;
		s.grad_bytes = 2;
		assert_int_equal(zd_plan_wire_compute(&s, &w), 0);
		assert_int_equal(w.push_bytes, rows[i].push);
		assert_int_equal(w.fetch_bytes, rows[i].fetch);
		assert_int_equal(w.step_frames, 12);
	}
}

/* Wherever a unit is cut into its pieces, frames do not exceed the plan; and some
 * cut needs them all. */
static void test_wire_frames(void **state)
{
	uint64_t extent = ZD_PAYLOAD_MAX / 2, most = 0;
	const uint64_t numel = 3 * ZD_PAYLOAD_MAX / 2 + 4096;
	const struct zd_plan_unit unit = { numel, false };
	struct zd_plan_wire_spec s = { .units = &unit, .unit_count = 1, .stage = 1, .micro_batches = 1, .lanes = 3, .grad_bytes = 2 };
	struct zd_plan_wire w;

	(void)state;
	assert_int_equal(zd_plan_wire_compute(&s, &w), 0);
	assert_int_equal(w.fetch_frames, 3);
	for (uint64_t a = ZD_BLOCK_ELEMS; a < numel; a += ZD_BLOCK_ELEMS)
		for (uint64_t b = a + ZD_BLOCK_ELEMS; b < numel; b += ZD_BLOCK_ELEMS) {
			uint64_t cuts[] = { a, b - a, numel - b }, frames = 0;

			for (size_t i = 0; i < 3; i++)
				frames += (cuts[i] + extent - 1) / extent;
			assert_true(frames <= w.push_frames);
			most = frames > most ? frames : most;
		}
	assert_int_equal(most, w.push_frames);
	assert_int_equal(w.data_frames, w.push_frames);
	/* fp32 has half as many elements in a frame; one lane leaves nothing open */
	s.lanes = 1;
	s.grad_bytes = 4;
	assert_int_equal(zd_plan_wire_compute(&s, &w), 0);
	assert_int_equal(w.push_frames, (numel + ZD_GRAIN_ELEMS - 1) / ZD_GRAIN_ELEMS);
	assert_int_equal(w.data_frames, (numel + extent - 1) / extent);
}

/* Small units stay whole on one lane, however many lanes there are. */
static void test_wire_small_unit(void **state)
{
	const struct zd_plan_unit unit = { ZD_PIECE_ELEMS_MIN - 1, false };
	struct zd_plan_wire_spec s = { .units = &unit, .unit_count = 1, .stage = 1, .micro_batches = 1, .lanes = 64, .grad_bytes = 2 };
	struct zd_plan_wire w;

	(void)state;
	assert_int_equal(zd_plan_wire_compute(&s, &w), 0);
	assert_int_equal(w.push_frames, 1);
	assert_int_equal(w.fetch_frames, 1);
}

/* The promise is less than 0.1 % on top, both ways together, answers and all. */
static void test_wire_extra(void **state)
{
	struct zd_plan_unit units[32];
	struct zd_plan_wire_spec s = { .units = units, .unit_count = 32, .stage = 3, .micro_batches = 2, .lanes = 8, .grad_bytes = 2 };
	struct zd_plan_wire w;

	(void)state;
	for (size_t i = 0; i < 32; i++)
		units[i] = (struct zd_plan_unit){ 10000000, false };
	assert_int_equal(zd_plan_wire_compute(&s, &w), 0);
	assert_true(w.extra_ratio < 0.001);
	assert_near(w.extra_ratio, (double)(w.sent_extra + w.received_extra) / (double)(w.push_bytes + w.fetch_bytes), ROUNDINGS);
	assert_true(w.sent_extra >= w.push_frames * ZD_HEADER_BYTES);
	assert_near(zd_plan_wire_excess(1000000, 1000999), 0.000999, 1e-9);
	assert_near(zd_plan_wire_excess(1000, 900), -0.1, ROUNDINGS);
}

static void test_wire_refusals(void **state)
{
	static const struct zd_plan_unit ok = { 10, false }, empty = { 0, false }, huge = { UINT64_MAX / 4, false };
	static const struct zd_plan_unit frozen = { 10, true };
	const struct zd_plan_wire_spec good = { .units = &ok, .unit_count = 1, .stage = 3, .micro_batches = 1, .lanes = 1, .grad_bytes = 2 };
	struct zd_plan_wire_spec s;
	struct zd_plan_wire w;

	(void)state;
	s = good; s.stage = 4;
	assert_int_equal(zd_plan_wire_compute(&s, &w), ZD_PLAN_E_STAGE);
	s = good; s.unit_count = 0;
	assert_int_equal(zd_plan_wire_compute(&s, &w), ZD_PLAN_E_RANGE);
	s = good; s.units = &empty;
	assert_int_equal(zd_plan_wire_compute(&s, &w), ZD_PLAN_E_RANGE);
	s = good; s.micro_batches = 0;
	assert_int_equal(zd_plan_wire_compute(&s, &w), ZD_PLAN_E_RANGE);
	s = good; s.lanes = 0;
	assert_int_equal(zd_plan_wire_compute(&s, &w), ZD_PLAN_E_RANGE);
	s = good; s.grad_bytes = 3;
	assert_int_equal(zd_plan_wire_compute(&s, &w), ZD_PLAN_E_RANGE);
	s = good; s.units = &huge; s.micro_batches = 100;
	assert_int_equal(zd_plan_wire_compute(&s, &w), ZD_PLAN_E_RANGE);
	s = good; s.stage = 1; s.units = &frozen; /* nothing to do */
	assert_int_equal(zd_plan_wire_compute(&s, &w), ZD_PLAN_E_RANGE);
	s = good; s.stage = 2; s.keep_after_forward = true;
	assert_int_equal(zd_plan_wire_compute(&s, &w), ZD_PLAN_E_SHAPE);
	s = good; s.stage = 2; s.sum_locally = true;
	assert_int_equal(zd_plan_wire_compute(&s, &w), ZD_PLAN_E_SHAPE);
}

/* --- the bound --- */

static const struct zd_plan_run run_of_one = {
	.trainable = 1e9, .workers = 1, .daemons = 1, .micro_batches = 1, .stage = 3, .grad_bytes = 2, .sent = 2e9,
	.received = 4e9,
};

static void test_bound_memory(void **state)
{
	static const struct {
		double workers, micro;
		unsigned stage, grad;
		double per_param;
		bool sum;
	} rows[] = {
		{ 1, 1, 3, 2, 26, false },     /* Adam alone */
		{ 2, 1, 3, 2, 28, false },	       /* two bf16 wait as they came */
		{ 1, 2, 2, 2, 28, false },	       /* so do two micro-batches */
		{ 1, 2, 1, 2, 26, true },      /* which a worker of stage 1 may add up itself */
		{ 1, 2, 1, 2, 28, false },
		{ 3, 1, 3, 2, 28 + 26, false },       /* 10*3 - 4 */
		{ 2, 4, 3, 2, 28 + 76, false },       /* 10*8 - 4 */
		{ 1, 1, 3, 4, 28, false },	       /* one fp32 is its own sum */
		{ 2, 1, 3, 4, 28 + 8 + 12, false },
		{ 2, 1, 0, 2, 6 + 10, false },	       /* stage 0: no Adam here */
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct zd_plan_run run = run_of_one;
		struct zd_plan_machine machine = { .memory_rate = 1e9 };
		struct zd_plan_bound b;

		run.workers = rows[i].workers;
		run.micro_batches = rows[i].micro;
		run.stage = rows[i].stage;
		run.grad_bytes = rows[i].grad;
		run.sum_locally = rows[i].sum;
		assert_int_equal(zd_plan_bound_compute(&run, &machine, &b), 0);
		assert_exact(b.memory_bytes, rows[i].per_param * 1e9);
		assert_exact(b.seconds[ZD_PLAN_DAEMON_MEMORY], rows[i].per_param);
	}
}

static void test_bound_bottleneck(void **state)
{
	/* At these rates each resource needs: 6, 4, 8 (two workers), 28 and 24 s. */
	const struct zd_plan_machine rates = { .flops = 1e12, .worker_rate = 1e9, .daemon_rate = 1e9, .memory_rate = 1e9, .disk_rate = 1e9 };
	struct zd_plan_run run = run_of_one;
	struct zd_plan_machine m = rates;
	struct zd_plan_bound b;

	(void)state;
	run.workers = 2;
	run.tokens = 1000;
	assert_int_equal(zd_plan_bound_compute(&run, &m, &b), 0);
	assert_exact(b.seconds[ZD_PLAN_COMPUTE], 6);
	assert_exact(b.seconds[ZD_PLAN_WORKER_NETWORK], 4);
	assert_exact(b.seconds[ZD_PLAN_DAEMON_NETWORK], 8);
	assert_exact(b.seconds[ZD_PLAN_DAEMON_MEMORY], 28);
	assert_exact(b.seconds[ZD_PLAN_DAEMON_DISK], 24);
	assert_exact(b.step_seconds, 28);
	assert_exact(b.serial_seconds, 70);
	assert_exact(b.daemon_in_bytes, 4e9);
	assert_exact(b.daemon_out_bytes, 8e9);
	assert_int_equal(b.slowest, ZD_PLAN_DAEMON_MEMORY);
	m.memory_rate = 0;
	assert_int_equal(zd_plan_bound_compute(&run, &m, &b), 0);
	assert_int_equal(b.slowest, ZD_PLAN_DAEMON_DISK);
	m.disk_rate = 0;
	assert_int_equal(zd_plan_bound_compute(&run, &m, &b), 0);
	assert_int_equal(b.slowest, ZD_PLAN_DAEMON_NETWORK);
	/* Four daemons share that: 2 s, below the worker's own 4 and compute's 6. */
	run.daemons = 4;
	assert_int_equal(zd_plan_bound_compute(&run, &m, &b), 0);
	assert_exact(b.seconds[ZD_PLAN_DAEMON_NETWORK], 2);
	assert_int_equal(b.slowest, ZD_PLAN_COMPUTE);
	m.flops = 0;
	assert_int_equal(zd_plan_bound_compute(&run, &m, &b), 0);
	assert_int_equal(b.slowest, ZD_PLAN_WORKER_NETWORK);
	assert_string_equal(zd_plan_resource_name(b.slowest), "worker network");
}

static void test_bound_frozen_and_wear(void **state)
{
	struct zd_plan_run run = run_of_one;
	struct zd_plan_machine m = { .flops = 1e12, .disk_rate = 1e9, .disk_bytes = 1e12, .drive_writes = 1, .rated_years = 5 };
	struct zd_plan_bound b;

	(void)state;
	run.frozen = 2e9;
	run.tokens = 1000;
	run.log = true;
	run.workers = 2;
	assert_int_equal(zd_plan_bound_compute(&run, &m, &b), 0);
	assert_exact(b.seconds[ZD_PLAN_COMPUTE], 14); /* 6 + 4*2 */
	assert_exact(b.written_bytes, 16e9);	      /* state 12 and log 4 */
	assert_exact(b.disk_bytes, 28e9);
	assert_near(b.drive_writes_a_day, 16e9 / 28 * 86400 / 1e12, ROUNDINGS);
	assert_near(b.rated_life_seconds, 5 * 365 * 1e12 / 16e9 * 28, ROUNDINGS);
	run.workers = 1; /* one contribution: the log has its 2 bytes */
	assert_int_equal(zd_plan_bound_compute(&run, &m, &b), 0);
	assert_exact(b.written_bytes, 14e9);
	m.disk_bytes = 0;
	assert_int_equal(zd_plan_bound_compute(&run, &m, &b), 0);
	assert_exact(b.drive_writes_a_day, 0);
}

static void test_bound_refusals(void **state)
{
	struct zd_plan_run run = run_of_one;
	struct zd_plan_machine m = { 0 }, negative = { .worker_rate = -1, .memory_rate = 1 };
	struct zd_plan_bound b;

	(void)state;
	assert_int_equal(zd_plan_bound_compute(&run, &m, &b), ZD_PLAN_E_RANGE);
	assert_int_equal(zd_plan_bound_compute(&run, &negative, &b), ZD_PLAN_E_RANGE);
	m.flops = 1; /* but no tokens */
	assert_int_equal(zd_plan_bound_compute(&run, &m, &b), ZD_PLAN_E_RANGE);
	m.worker_rate = 1;
	m.flops = 0;
	run.sum_locally = true; /* in stage 3 */
	assert_int_equal(zd_plan_bound_compute(&run, &m, &b), ZD_PLAN_E_SHAPE);
	run.sum_locally = false;
	run.stage = 4;
	assert_int_equal(zd_plan_bound_compute(&run, &m, &b), ZD_PLAN_E_STAGE);
	run.stage = 3;
	run.daemons = 0;
	assert_int_equal(zd_plan_bound_compute(&run, &m, &b), ZD_PLAN_E_RANGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wire_payload),
		cmocka_unit_test(test_wire_closed_form),
		cmocka_unit_test(test_wire_frames),
		cmocka_unit_test(test_wire_small_unit),
		cmocka_unit_test(test_wire_extra),
		cmocka_unit_test(test_wire_refusals),
		cmocka_unit_test(test_bound_memory),
		cmocka_unit_test(test_bound_bottleneck),
		cmocka_unit_test(test_bound_frozen_and_wear),
		cmocka_unit_test(test_bound_refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
