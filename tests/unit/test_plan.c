/* SPDX-License-Identifier: Apache-2.0 */
/* The planner: its formulas against the published figures, numbers as people
 * write them, and the commands as a person calls them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/plan.h"
#include "client/cli/plan_formulas.h"
#include "client/cli/plan_number.h"

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

/* --- formulas --- */

static struct zd_plan_size trained(double params)
{
	return (struct zd_plan_size){ params, 0 };
}

static void test_state(void **state)
{
	static const struct {
		double params, gpus, gb[4];
	} rows[] = {
		{ 7.5e9, 64, { 120, 31.40625, 16.640625, 1.875 } },
		{ 128e9, 16, { 2048, 608, 368, 128 } },
		{ 128e9, 1024, { 2048, 513.5, 257.75, 2 } },
		{ 1e12, 64, { 16000, 4187.5, 2218.75, 250 } },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++)
		for (unsigned stage = 0; stage < 4; stage++) {
			double bytes = 0;

			assert_int_equal(zd_plan_state_bytes(stage, trained(rows[i].params), rows[i].gpus, &bytes), 0);
			assert_exact(bytes, rows[i].gb[stage] * 1e9);
		}
}

static void test_ring(void **state)
{
	static const struct {
		unsigned stage;
		double weight, grad, bytes;
	} rows[] = {
		{ 0, 2, 2, 280.19375e9 }, { 1, 2, 2, 280.19375e9 },  { 2, 2, 2, 280.19375e9 },
		{ 3, 2, 2, 420.290625e9 }, { 3, 2, 4, 560.3875e9 }, { 0, 2, 4, 560.3875e9 },
		{ 2, 1, 2, 210.1453125e9 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		double bytes = 0;

		assert_int_equal(zd_plan_ring_bytes(rows[i].stage, trained(70.6e9), 128, rows[i].weight, rows[i].grad, &bytes), 0);
		assert_exact(bytes, rows[i].bytes);
	}
}

static void test_ring_of_one_sends_nothing(void **state)
{
	double bytes = 1;

	(void)state;
	assert_int_equal(zd_plan_ring_bytes(3, trained(1e9), 1, 2, 2, &bytes), 0);
	assert_exact(bytes, 0);
	assert_int_equal(zd_plan_ring_bytes(3, trained(1e9), 0.5, 2, 2, &bytes), ZD_PLAN_E_RANGE);
}

/* What is not trained costs its weights wherever those are, and nothing else. */
static void test_frozen(void **state)
{
	static const double state_gb[] = { 16 + 14, 4 + 12 / 4.0 + 14, 2 + 14 / 4.0 + 14, (16 + 14) / 4.0 };
	static const double ring_gb[] = { 4 * 0.75, 4 * 0.75, 4 * 0.75, (6 + 28) * 0.75 };
	const struct zd_plan_size size = { 1e9, 7e9 };
	struct zd_plan_volume v;
	struct zd_plan_batch b;
	double x = 0;

	(void)state;
	for (unsigned stage = 0; stage < 4; stage++) {
		assert_int_equal(zd_plan_state_bytes(stage, size, 4, &x), 0);
		assert_exact(x, state_gb[stage] * 1e9);
		assert_int_equal(zd_plan_ring_bytes(stage, size, 4, 2, 2, &x), 0);
		assert_exact(x, ring_gb[stage] * 1e9);
	}
	assert_int_equal(zd_plan_compute_seconds(size, 100, 1e9, &x), 0);
	assert_exact(x, (6 + 28) * 100);
	assert_int_equal(zd_plan_zeropp(size, true, false, true, &v), 0);
	assert_exact(v.forward_gather_bytes, 8e9);
	assert_exact(v.backward_gather_bytes, 16e9);
	assert_exact(v.gradient_bytes, 0.5e9);
	assert_int_equal(zd_plan_batch(size, 400, 4, 1e9, 1e9, &b), 0);
	assert_exact(b.compute_seconds, 3400);
	assert_exact(b.transfer_seconds, 34 * 0.75);
}

static void test_hybrid(void **state)
{
	static const struct {
		double group, state, cross, replicas;
	} rows[] = {
		{ 8, 140e9, 34.453125e9, 64 },
		{ 64, 17.5e9, 417.265625e9, 8 },
		{ 512, 2.1875e9, 419.1796875e9, 1 },
	};
	struct zd_plan_hybrid h;

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		assert_int_equal(zd_plan_hybrid(70e9, 512, rows[i].group, 8, &h), 0);
		assert_exact(h.state_bytes, rows[i].state);
		assert_exact(h.cross_bytes, rows[i].cross);
		assert_exact(h.replicas, rows[i].replicas);
	}
	/* One node that is one group: nothing leaves it. */
	assert_int_equal(zd_plan_hybrid(70e9, 8, 8, 8, &h), 0);
	assert_exact(h.cross_bytes, 0);
	assert_int_equal(zd_plan_hybrid(70e9, 512, 7, 8, &h), ZD_PLAN_E_SHAPE);
	assert_int_equal(zd_plan_hybrid(70e9, 8, 16, 8, &h), ZD_PLAN_E_SHAPE);
	assert_int_equal(zd_plan_hybrid(70e9, 3, 1.5, 8, &h), ZD_PLAN_E_SHAPE);
	assert_int_equal(zd_plan_hybrid(70e9, 8, 0.5, 8, &h), ZD_PLAN_E_SHAPE);
	assert_int_equal(zd_plan_hybrid(70e9, 8, 8, 0, &h), ZD_PLAN_E_RANGE);
}

static void test_peak(void **state)
{
	struct zd_plan_peak in = { { 70e9, 0 }, 512, 1e9, 1e9, 182e9 };
	double bytes = 0;

	(void)state;
	/* 2.1875 + 2*2*1 + 2*1 + 182 GB */
	assert_int_equal(zd_plan_peak_bytes(&in, &bytes), 0);
	assert_exact(bytes, 190.1875e9);
	in.size.frozen = 512e9;
	in.largest_unit = 4e9;
	assert_int_equal(zd_plan_peak_bytes(&in, &bytes), 0);
	assert_exact(bytes, 204.1875e9);
	in.largest_unit = 600e9;
	assert_int_equal(zd_plan_peak_bytes(&in, &bytes), ZD_PLAN_E_SHAPE);
	in.largest_unit = 4e9;
	in.activation_bytes = -1;
	assert_int_equal(zd_plan_peak_bytes(&in, &bytes), ZD_PLAN_E_RANGE);
}

static void test_times(void **state)
{
	double x = 0, bytes = 0;
	struct zd_plan_batch b;

	(void)state;
	assert_int_equal(zd_plan_hiding_tokens(trained(70e9), 2, 2, 400e12, 50e9, &x), 0);
	assert_exact(x, 8000);
	assert_int_equal(zd_plan_hiding_tokens((struct zd_plan_size){ 1e9, 70e9 }, 2, 2, 400e12, 50e9, &x), 0);
	assert_exact(x, 8000);
	/* 8N bytes with gradients in fp32 */
	assert_int_equal(zd_plan_hiding_tokens(trained(70e9), 2, 4, 300e12, 50e9, &x), 0);
	assert_near(x, 8000, ROUNDINGS);
	/* Llama 3 70B on 128 GPUs: "420 GB is 8.4 s, 8192 tokens are 8.8 s" */
	assert_int_equal(zd_plan_ring_bytes(3, trained(70.6e9), 128, 2, 2, &bytes), 0);
	assert_int_equal(zd_plan_transfer_seconds(bytes, 50e9, &x), 0);
	assert_near(x, 8.4058125, ROUNDINGS);
	assert_int_equal(zd_plan_compute_seconds(trained(70.6e9), 8192, 395.6e12, &x), 0);
	assert_near(x, 6.0 * 70.6e9 * 8192 / 395.6e12, ROUNDINGS);
	assert_near(x, 8.8, 0.05 / 8.8);
	/* Where N and the bandwidth cancel, the two are equal at the threshold. */
	assert_int_equal(zd_plan_batch(trained(70e9), 8000.0 * 1e6, 1e6, 400e12, 50e9, &b), 0);
	assert_near(b.ratio, 1.0 - 1e-6, 1e-9);
	assert_int_equal(zd_plan_batch(trained(70e9), 4194304, 512, 400e12, 50e9, &b), 0);
	assert_exact(b.tokens, 8192);
	assert_near(b.ratio, 8000.0 / 8192.0 * 511.0 / 512.0, ROUNDINGS);
	assert_int_equal(zd_plan_batch(trained(70e9), 4194304, 2048, 400e12, 50e9, &b), 0);
	assert_exact(b.tokens, 2048);
	/* "communication takes four times the computation" */
	assert_near(b.ratio, 8000.0 / 2048.0 * 2047.0 / 2048.0, ROUNDINGS);
	assert_near(b.ratio, 4, 0.03);
}

static void test_activations(void **state)
{
	const struct zd_plan_shape llama = { 80, 8192, 64, 8192, 1 };
	struct zd_plan_activations a;
	struct zd_plan_shape bad = llama;

	(void)state;
	assert_int_equal(zd_plan_activations(&llama, &a), 0);
	/* 80 layers x 2^26 x 34, 2, and 34 + 5*64: "182 GB ... 10.7 GB" */
	assert_exact(a.fused_bytes, 182536110080.0);
	assert_exact(a.checkpoint_bytes, 10737418240.0);
	assert_exact(a.full_bytes, 80.0 * 67108864.0 * 354.0);
	bad.heads = 0;
	assert_int_equal(zd_plan_activations(&bad, &a), ZD_PLAN_E_RANGE);
}

static void test_zeropp(void **state)
{
	static const struct {
		bool weights, copy, gradients;
		double of_model;
	} rows[] = {
		{ false, false, false, 3 }, { true, false, false, 2.5 }, { false, true, false, 2 },
		{ false, false, true, 2.25 }, { true, true, true, 0.75 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct zd_plan_volume v;

		assert_int_equal(zd_plan_zeropp(trained(1e9), rows[i].weights, rows[i].copy, rows[i].gradients, &v), 0);
		assert_exact(v.forward_gather_bytes + v.backward_gather_bytes + v.gradient_bytes, rows[i].of_model * 2e9);
	}
}

/* Figures as DeepSpeed prints them: two decimals of GiB. */
static void assert_gib(double bytes, double gib)
{
	assert_near(round(bytes / 0x1p30 * 100) / 100, gib, ROUNDINGS);
}

static void test_deepspeed(void **state)
{
	static const struct {
		bool optimizer, params, init;
		double gpu, cpu;
	} rows[] = {
		{ false, false, false, 6.09, 127.45 }, { false, false, true, 6.09, 1.43 },
		{ true, false, false, 0.78, 127.45 },  { true, false, true, 0.78, 63.72 },
		{ true, true, false, 0.12, 127.45 },   { true, true, true, 0.12, 71.69 },
	};
	struct zd_plan_deepspeed e;
	struct zd_plan_zero3 bad = { 2851e6, 32e6, 8, 1, false, true, false };

	(void)state;
	assert_int_equal(zd_plan_deepspeed_zero2(2851e6, 8, 1, false, &e), 0);
	assert_gib(e.gpu_bytes, 15.93);
	assert_gib(e.cpu_bytes, 127.45);
	assert_int_equal(zd_plan_deepspeed_zero2(2851e6, 8, 1, true, &e), 0);
	assert_gib(e.gpu_bytes, 5.31);
	assert_gib(e.cpu_bytes, 127.45);
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct zd_plan_zero3 in = { 2851e6, 32e6, 8, 1, rows[i].optimizer, rows[i].params, rows[i].init };

		assert_int_equal(zd_plan_deepspeed_zero3(&in, &e), 0);
		assert_gib(e.gpu_bytes, rows[i].gpu);
		assert_gib(e.cpu_bytes, rows[i].cpu);
	}
	assert_int_equal(zd_plan_deepspeed_zero3(&bad, &e), ZD_PLAN_E_SHAPE);
}

static void test_daemon_ram(void **state)
{
	struct zd_plan_daemon_ram ram;

	(void)state;
	assert_int_equal(zd_plan_daemon_ram(8e9, 4e9, 4, 16, &ram), 0);
	assert_exact(ram.rest_bytes, 24e9);
	assert_exact(ram.round_bytes, 8e9);
	assert_exact(ram.frozen_bytes, 2e9);
	assert_near(ram.budget_bytes, 34e9 * 1.03 + 16 * 24 * 1048576.0, ROUNDINGS);
	assert_int_equal(zd_plan_daemon_ram(0, 4e9, 4, 16, &ram), 0);
	assert_exact(ram.rest_bytes, 0);
	assert_int_equal(zd_plan_daemon_ram(0, 0, 4, 16, &ram), ZD_PLAN_E_RANGE);
	assert_int_equal(zd_plan_daemon_ram(1, 0, 0, 16, &ram), ZD_PLAN_E_RANGE);
}

static void test_refusals(void **state)
{
	static const double bad[] = { 0, -1, NAN, INFINITY };
	double x = 42;

	(void)state;
	assert_int_equal(zd_plan_state_bytes(4, trained(1e9), 8, &x), ZD_PLAN_E_STAGE);
	assert_int_equal(zd_plan_ring_bytes(4, trained(1e9), 8, 2, 2, &x), ZD_PLAN_E_STAGE);
	for (size_t i = 0; i < COUNT(bad); i++) {
		struct zd_plan_volume v;
		struct zd_plan_deepspeed e;
		struct zd_plan_batch b;

		assert_int_equal(zd_plan_state_bytes(1, trained(bad[i]), 8, &x), ZD_PLAN_E_RANGE);
		assert_int_equal(zd_plan_state_bytes(1, trained(1e9), bad[i], &x), ZD_PLAN_E_RANGE);
		assert_int_equal(zd_plan_ring_bytes(1, trained(bad[i]), 8, 2, 2, &x), ZD_PLAN_E_RANGE);
		assert_int_equal(zd_plan_ring_bytes(1, trained(1e9), bad[i], 2, 2, &x), ZD_PLAN_E_RANGE);
		assert_int_equal(zd_plan_ring_bytes(1, trained(1e9), 8, bad[i], 2, &x), ZD_PLAN_E_RANGE);
		assert_int_equal(zd_plan_compute_seconds(trained(1e9), bad[i], 1e12, &x), ZD_PLAN_E_RANGE);
		assert_int_equal(zd_plan_transfer_seconds(1e9, bad[i], &x), ZD_PLAN_E_RANGE);
		assert_int_equal(zd_plan_hiding_tokens(trained(1e9), 2, 2, bad[i], 1e9, &x), ZD_PLAN_E_RANGE);
		assert_int_equal(zd_plan_batch(trained(1e9), bad[i], 8, 1e12, 1e9, &b), ZD_PLAN_E_RANGE);
		assert_int_equal(zd_plan_zeropp(trained(bad[i]), false, false, false, &v), ZD_PLAN_E_RANGE);
		assert_int_equal(zd_plan_deepspeed_zero2(bad[i], 8, 1, false, &e), ZD_PLAN_E_RANGE);
		if (bad[i] != 0)
			assert_int_equal(zd_plan_state_bytes(1, (struct zd_plan_size){ 1e9, bad[i] }, 8, &x), ZD_PLAN_E_RANGE);
	}
	assert_exact(x, 42); /* written only on success */
}

/* --- numbers --- */

static void test_numbers(void **state)
{
	static const struct {
		const char *text;
		enum zd_number_kind kind;
		double value;
	} good[] = {
		{ "7.5e9", ZD_NUMBER_COUNT, 7.5e9 },	    { "70.6e9", ZD_NUMBER_COUNT, 70.6e9 },
		{ "70.6B", ZD_NUMBER_COUNT, 70600000000. }, { "7B", ZD_NUMBER_COUNT, 7e9 },
		{ "2851M", ZD_NUMBER_COUNT, 2851e6 },	    { "4.1B", ZD_NUMBER_COUNT, 4100000000. },
		{ "8.2M", ZD_NUMBER_COUNT, 8200000. },
			    { "4Mi", ZD_NUMBER_COUNT, 4194304 },
		{ "0", ZD_NUMBER_COUNT, 0 },		    { "1.1T", ZD_NUMBER_COUNT, 1.1e12 },
		{ "64GiB", ZD_NUMBER_BYTES, 68719476736. }, { "64GB", ZD_NUMBER_BYTES, 64e9 },
		{ "3.84TB", ZD_NUMBER_BYTES, 3.84e12 },	    { "10B", ZD_NUMBER_BYTES, 10 },
		{ "512Ki", ZD_NUMBER_BYTES, 524288 },	    { "25Gb/s", ZD_NUMBER_RATE, 3.125e9 },
		{ "50GB/s", ZD_NUMBER_RATE, 50e9 },	    { "2.3GiB/s", ZD_NUMBER_RATE, 2.3 * 1073741824 },
		{ "100Gbit/s", ZD_NUMBER_RATE, 12.5e9 },    { "100Gbps", ZD_NUMBER_RATE, 12.5e9 },
		{ "1e9", ZD_NUMBER_RATE, 1e9 },		    { "400e12", ZD_NUMBER_FLOPS, 400e12 },
		{ "395.6TFLOP/s", ZD_NUMBER_FLOPS, 395.6e12 }, { "395.6T", ZD_NUMBER_FLOPS, 395.6e12 },
		{ "1e-8", ZD_NUMBER_REAL, 1e-8 },	    { ".5", ZD_NUMBER_REAL, .5 },
	};
	static const struct {
		const char *text;
		enum zd_number_kind kind;
	} bad[] = {
		{ "", ZD_NUMBER_COUNT },       { "-1", ZD_NUMBER_COUNT },	{ "+1", ZD_NUMBER_COUNT },
		{ " 1", ZD_NUMBER_COUNT },     { "1 ", ZD_NUMBER_COUNT },	{ "0x10", ZD_NUMBER_COUNT },
		{ "inf", ZD_NUMBER_COUNT },    { "nan", ZD_NUMBER_COUNT },	{ "1e999", ZD_NUMBER_COUNT },
		{ "7MB", ZD_NUMBER_COUNT },    { "B", ZD_NUMBER_COUNT },	{ "7Gb", ZD_NUMBER_BYTES },
		{ "25G", ZD_NUMBER_RATE },     { "25GB", ZD_NUMBER_RATE },	{ "1k", ZD_NUMBER_REAL },
		{ "7Q", ZD_NUMBER_BYTES },     { ".", ZD_NUMBER_COUNT },	{ "7BM", ZD_NUMBER_COUNT },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(good); i++) {
		double value = -1;

		if (!zd_plan_number_parse(good[i].text, good[i].kind, &value))
			fail_msg("'%s' was refused", good[i].text);
		assert_exact(value, good[i].value);
	}
	for (size_t i = 0; i < COUNT(bad); i++) {
		double value = -1;

		if (zd_plan_number_parse(bad[i].text, bad[i].kind, &value))
			fail_msg("'%s' was taken for %g", bad[i].text, value);
		assert_exact(value, -1);
	}
}

/* --- the commands --- */

struct answer {
	int code;
	char *out, *err;
};

/* `line` as typed behind "zeroctl"; words are parted by single blanks. */
static struct answer call(const char *line)
{
	struct answer a = { 0 };
	size_t out_size, err_size;
	FILE *out = open_memstream(&a.out, &out_size), *err = open_memstream(&a.err, &err_size);
	char words[512], *argv[32], *save = NULL;
	int argc = 0;

	snprintf(words, sizeof(words), "%s", line);
	for (char *w = strtok_r(words, " ", &save); w != NULL; w = strtok_r(NULL, " ", &save))
		argv[argc++] = w;
	argv[argc] = NULL;
	a.code = zd_cli_plan(argc, argv, out, err);
	fclose(out);
	fclose(err);
	return a;
}

static void answer_free(struct answer *a)
{
	free(a->out);
	free(a->err);
}

/* The value of a column in a row of a table of a JSON answer. */
static json_t *at(json_t *answer, const char *table, size_t row, const char *column)
{
	json_t *found = json_object_get(json_array_get(json_object_get(json_object_get(answer, "tables"), table), row), column);

	if (found == NULL)
		fail_msg("no %s[%zu].%s", table, row, column);
	return found;
}

static json_t *call_json(const char *line)
{
	struct answer a = call(line);
	json_t *json;

	if (a.code != 0)
		fail_msg("%s: code %d: %s", line, a.code, a.err);
	assert_string_equal(a.err, "");
	json = json_loads(a.out, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(json);
	answer_free(&a);
	return json;
}

static void test_command_memory(void **state)
{
	json_t *j = call_json("plan memory --params 7.5e9 --gpus 64 -o json");
	static const json_int_t bytes[] = { 120000000000, 31406250000, 16640625000, 1875000000 };

	(void)state;
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(json_integer_value(at(j, "zero", i, "state_bytes")), bytes[i]);
	assert_int_equal(json_integer_value(at(j, "daemon", 0, "rest_bytes")), 90000000000);
	assert_null(json_object_get(json_object_get(j, "tables"), "workers"));
	assert_string_equal(json_string_value(json_object_get(j, "command")), "plan memory");
	json_decref(j);
	j = call_json("plan memory -N 70e9 -n 512 --largest 1e9 --layers 80 --hidden 8192 --heads 64 --seq 8192 -o json");
	assert_int_equal(json_integer_value(at(j, "workers", 0, "peak_bytes")), 2187500000 + 6000000000 + 182536110080);
	assert_int_equal(json_integer_value(at(j, "workers", 4, "peak_bytes")), 6000000000 + 182536110080);
	assert_int_equal(json_integer_value(at(j, "activations", 2, "bytes")), 10737418240);
	json_decref(j);
	/* gradients kept for the step: three in bf16, or an fp32 sum and one in bf16 */
	j = call_json("plan memory -N 1000 --largest 100 -m 3 -o json");
	assert_int_equal(json_integer_value(at(j, "workers", 2, "gradient_bytes")), 6000);
	assert_int_equal(json_integer_value(at(j, "workers", 1, "peak_bytes")), 20000);
	assert_int_equal(json_integer_value(at(j, "workers", 3, "gradient_bytes")), 200);
	json_decref(j);
	j = call_json("plan memory -N 1000 --largest 100 -m 9 --accumulate local -o json");
	assert_int_equal(json_integer_value(at(j, "workers", 2, "gradient_bytes")), 6000);
	json_decref(j);
	j = call_json("plan memory --unit 2x100,50:frozen --daemons 2 -o json --stage 3");
	assert_int_equal(json_integer_value(at(j, "zero", 0, "state_bytes")), 3300);
	assert_int_equal(json_integer_value(at(j, "daemon", 0, "frozen_bytes")), 50);
	assert_int_equal(json_integer_value(at(j, "workers", 0, "state_bytes")), 3300);
	assert_int_equal(json_integer_value(at(j, "workers", 0, "peak_bytes")), 3300 + 400 + 200);
	json_decref(j);
	j = call_json("plan memory -N 2851M --largest 32M -n 8 -o json");
	assert_int_equal(json_integer_value(at(j, "deepspeed", 7, "cpu_bytes")), 76977000000);
	json_decref(j);
}

static void test_command_comm(void **state)
{
	json_t *j = call_json("plan comm -N 70.6B -n 128 -b 50GB/s --flops 395.6TFLOP/s -o json");

	(void)state;
	assert_int_equal(json_integer_value(at(j, "ring", 0, "sent_bytes")), 280193750000);
	assert_int_equal(json_integer_value(at(j, "ring", 3, "sent_bytes")), 420290625000);
	assert_near(json_number_value(at(j, "ring", 3, "seconds")), 8.4058125, 1e-14);
	assert_near(json_number_value(at(j, "hiding", 0, "hiding_tokens")), 7912, 1e-14);
	assert_true(json_is_true(at(j, "hiding", 0, "hides")));
	assert_int_equal(json_integer_value(at(j, "batch", 4, "tokens")), 2048);
	assert_near(json_number_value(at(j, "zeropp", 4, "of_model")), 0.75, 1e-14);
	json_decref(j);
	j = call_json("plan comm --unit 600,300,100 -m 4 -n 3 -k 2 -o json");
	assert_string_equal(json_string_value(at(j, "zerod", 4, "mode")), "stage 3");
	assert_int_equal(json_integer_value(at(j, "zerod", 4, "push_bytes")), 8000);
	assert_int_equal(json_integer_value(at(j, "zerod", 4, "fetch_bytes")), 4 * 2 * 1900);
	assert_int_equal(json_integer_value(at(j, "zerod", 1, "push_bytes")), 8000);
	assert_true(json_number_value(at(j, "zerod", 4, "daemon_in_bytes")) > 8000 * 3 / 2.0);
	json_decref(j);
	j = call_json("plan comm --unit 600,300,100 -m 4 --accumulate local -o json");
	assert_int_equal(json_integer_value(at(j, "zerod", 1, "push_bytes")), 2000);
	assert_int_equal(json_integer_value(at(j, "zerod", 2, "push_bytes")), 8000);
	json_decref(j);
	j = call_json("plan comm --unit 100,700:frozen -n 4 -b 1e9 --flops 1e9 --tokens 100 --batch-tokens 400 --batch-gpus 4 -o json");
	assert_int_equal(json_integer_value(at(j, "ring", 3, "sent_bytes")), (600 + 2800) * 3 / 4);
	assert_int_equal(json_integer_value(at(j, "zeropp", 0, "total_bytes")), 2 * 1600 + 200);
	assert_near(json_number_value(at(j, "hiding", 0, "compute_seconds")), 3400 * 100 / 1e9, 1e-14);
	assert_near(json_number_value(at(j, "batch", 0, "ratio")), 0.0075, 1e-14);
	json_decref(j);
	/* the threshold is that of the transfer beside it */
	j = call_json("plan comm -N 1e9 -n 1e9 --grad-bytes 4 -b 50GB/s --flops 300e12 --tokens 7999 -o json");
	assert_near(json_number_value(at(j, "hiding", 0, "hiding_tokens")), 8000, 1e-14);
	assert_true(json_is_false(at(j, "hiding", 0, "hides")));
	json_decref(j);
	/* equal units lose no parameter: 4 + 3 + 3, the last one resident */
	j = call_json("plan comm -N 10 --units 3 -o json");
	assert_int_equal(json_integer_value(at(j, "zerod", 4, "push_bytes")), 20);
	assert_int_equal(json_integer_value(at(j, "zerod", 4, "fetch_bytes")), 2 * (2 * 10 - 3));
	json_decref(j);
}

static void test_command_hybrid_and_step(void **state)
{
	json_t *j = call_json("plan hybrid -N 70e9 -n 512 -g 8,64 --group 512 -o json");

	(void)state;
	assert_int_equal(json_integer_value(at(j, "hybrid", 1, "cross_bytes")), 417265625000);
	assert_int_equal(json_integer_value(at(j, "hybrid", 2, "cross_bytes")), 419179687500);
	assert_true(json_is_null(at(j, "hybrid", 2, "seconds")));
	json_decref(j);
	/* where no multiple of a node divides the GPUs, all of them are a group */
	j = call_json("plan hybrid -N 1e9 -n 12 -o json");
	assert_int_equal(json_integer_value(at(j, "hybrid", 0, "group")), 12);
	json_decref(j);
	/* sums that end just below 2^64 bytes, frames included or what is fetched, are not taken for those behind it */
	j = call_json("plan step --unit 1024x1Ti --grad-bytes 4 -m 4095 -o json");
	for (size_t i = 0; i < 5; i++)
		assert_true(json_number_value(at(j, "daemon", i, "in_bytes")) > 4095.0 * 4503599627370496.0);
	json_decref(j);
	/* 26 bytes at 28 GB/s against 2 bytes at 100 GB/s: memory */
	j = call_json("plan step -N 28e9 -s 1 --worker-nic 100GB/s --daemon-nic 100GB/s -o json");
	assert_string_equal(json_string_value(at(j, "bounds", 0, "bottleneck")), "daemon memory");
	assert_int_equal(json_integer_value(at(j, "bounds", 0, "step_seconds")), 26);
	assert_true(json_is_null(at(j, "bounds", 0, "compute_seconds")));
	json_decref(j);
	/* two micro-batches of one worker: 28 bytes, but 26 if it adds them up itself */
	j = call_json("plan step -N 28e9 -s 1 -m 2 --accumulate local --worker-nic 100GB/s --daemon-nic 100GB/s -o json");
	assert_int_equal(json_integer_value(at(j, "bounds", 0, "daemon_memory_seconds")), 26);
	json_decref(j);
	j = call_json("plan step -N 28e9 -s 1 -m 2 --worker-nic 100GB/s --daemon-nic 100GB/s -o json");
	assert_int_equal(json_integer_value(at(j, "bounds", 0, "daemon_memory_seconds")), 28);
	json_decref(j);
	j = call_json("plan step -N 1e9 -s 3 --nvme 1GB/s --nvme-capacity 1TB --durability step -o json");
	assert_int_equal(json_integer_value(at(j, "wear", 0, "written_bytes")), 14000000000);
	assert_string_equal(json_string_value(at(j, "bounds", 0, "bottleneck")), "daemon disk");
	json_decref(j);
}

static void test_command_usage(void **state)
{
	static const struct {
		const char *line, *says;
	} rows[] = {
		{ "plan", "expected a command, found none" },
		{ "plan memorize", "found 'memorize'" },
		{ "plan memory", "found neither" },
		{ "plan memory -N 1 -u 1", "found both" },
		{ "plan memory -N", "expected a value after '-N', found none" },
		{ "plan memory --foo 1", "found '--foo'" },
		{ "plan memory -N 0", "expected 1 to 1e+15" },
		{ "plan memory -N 0", "found '0'" },
		{ "plan memory -N 1e99", "1e+15" },
		{ "plan memory -N 1.5", "whole number" },
		{ "plan memory -N 7.5e9 -n 0", "--gpus: expected 1 to" },
		{ "plan memory -N 7.5e9 -n 1.5", "whole number, found '1.5'" },
		{ "plan memory -N 7.5e9 -N 7", "once" },
		{ "plan memory -N 7.5e9 more", "found 'more'" },
		{ "plan memory -N 7.5e9 -o xml", "table|json|csv, found 'xml'" },
		{ "plan memory -N 7.5e9 --layers 8", "--hidden" },
		{ "plan memory -N 10 --largest 11", "--largest: expected at most all parameters, 10, found 11" },
		{ "plan memory -N 10 --layers 1e300 --hidden 1e300 --heads 1 --seq 1e300", "expected amounts below 2^64 bytes" },
		{ "plan comm -N 7B --stage 4", "all|0|1|2|3, found '4'" },
		{ "plan comm -N 7B --grad-bytes 3", "found 3" },
		{ "plan comm -N 7B --batch-gpus 1,x", "found 'x'" },
		{ "plan comm -N 7B --batch-gpus 128.5", "found '128.5'" },
		{ "plan comm -N 1e14 -m 65536", "expected amounts below 2^64 bytes" },
		{ "plan comm -N 1e14 -m 65537", "expected 1 to 65536" },
		{ "plan comm -u 7q", "found '7q'" },
		{ "plan comm -u 7:cold", "found '7:cold'" },
		{ "plan comm -u 0", "found '0'" },
		{ "plan comm -u 2000x7", "found '2000x7'" },
		{ "plan comm -u 1000x7,25x7", "at most 1024 units" },
		{ "plan comm -u 7:frozen", "only frozen ones" },
		{ "plan comm -u 7 --units 2", "--units only with --params" },
		{ "plan comm -N 7 --units 8", "at most one unit a parameter" },
		{ "plan comm -N 7B -b 25G", "25Gb/s (bits)" },
		{ "plan hybrid -n 8", "expected --params" },
		{ "plan hybrid -N 7 -n 8 -g 3", "divide 8 GPUs, found '3'" },
		{ "plan hybrid -N 7 -n 3 -g 1.5", "divide 3 GPUs, found '1.5'" },
		{ "plan step -N 7B --nvme-capacity 1TB", "expected --nvme" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct answer a = call(rows[i].line);

		if (a.code != 2 || strstr(a.err, rows[i].says) == NULL || a.out[0] != '\0')
			fail_msg("%s: code %d, out '%s', err '%s'", rows[i].line, a.code, a.out, a.err);
		answer_free(&a);
	}
}

static void test_command_help(void **state)
{
	static const char *const lines[] = { "plan --help", "plan memory --help", "plan comm -h", "plan hybrid -h", "plan step -N 0 -h", "plan step -h" };

	(void)state;
	for (size_t i = 0; i < COUNT(lines); i++) {
		struct answer a = call(lines[i]);

		if (i == 4) {
			assert_int_equal(a.code, 2); /* the error came first */
		} else {
			assert_int_equal(a.code, 0);
			assert_int_equal(strncmp(a.out, "Examples:", 9), 0);
		}
		answer_free(&a);
	}
}

/* A wrapper puts its own -o before the person's: the last one counts. */
static void test_command_formats(void **state)
{
	struct answer a = call("plan hybrid -o json -N 70e9 -n 8 -o csv");

	(void)state;
	assert_int_equal(a.code, 0);
	assert_string_equal(a.out, "table,group,replicas,state_bytes,cross_bytes,seconds\nhybrid,8,1,140000000000,0,\n");
	answer_free(&a);
	a = call("plan hybrid -N 70e9 -n 8");
	assert_non_null(strstr(a.out, "plan hybrid: params=7e10 gpus=8 node=8\n"));
	assert_non_null(strstr(a.out, "140 GB"));
	answer_free(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_state),
		cmocka_unit_test(test_ring),
		cmocka_unit_test(test_ring_of_one_sends_nothing),
		cmocka_unit_test(test_frozen),
		cmocka_unit_test(test_hybrid),
		cmocka_unit_test(test_peak),
		cmocka_unit_test(test_times),
		cmocka_unit_test(test_activations),
		cmocka_unit_test(test_zeropp),
		cmocka_unit_test(test_deepspeed),
		cmocka_unit_test(test_daemon_ram),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_command_memory),
		cmocka_unit_test(test_command_comm),
		cmocka_unit_test(test_command_hybrid_and_step),
		cmocka_unit_test(test_command_usage),
		cmocka_unit_test(test_command_help),
		cmocka_unit_test(test_command_formats),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
