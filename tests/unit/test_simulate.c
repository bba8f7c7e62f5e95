/* SPDX-License-Identifier: Apache-2.0 */
/* The teaching simulations: against figures worked out by hand, against finite
 * differences, and against mistakes that must be found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/simulate.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static void test_split(void **state)
{
	/* numpy.array_split(range(n), k) */
	static const struct {
		size_t n, k, counts[7];
	} rows[] = {
		{ 10, 4, { 3, 3, 2, 2 } }, { 8, 4, { 2, 2, 2, 2 } }, { 3, 7, { 1, 1, 1, 0, 0, 0, 0 } },
		{ 7, 1, { 7 } },	   { 11, 3, { 4, 4, 3 } },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		size_t first = 0;

		for (size_t p = 0; p < rows[i].k; p++) {
			struct zd_simulate_piece piece = zd_simulate_split(rows[i].n, rows[i].k, p);

			assert_int_equal(piece.first, first);
			assert_int_equal(piece.count, rows[i].counts[p]);
			first += piece.count;
		}
		assert_int_equal(first, rows[i].n);
	}
}

static void test_differ(void **state)
{
	const double a[] = { 1, 2, 3, NAN }, b[] = { 1, 2.5, 3.25, NAN };
	double largest;

	(void)state;
	assert_int_equal(zd_simulate_differ(a, a, 3, &largest), 0);
	assert_true(largest == 0.0);
	assert_int_equal(zd_simulate_differ(a, b, 3, &largest), 2);
	assert_true(largest == 0.5);
	assert_int_equal(zd_simulate_differ(a, b, 4, &largest), 3); /* a NaN is no agreement */
	assert_true(isnan(largest));
}

/* --- adam --- */

#define N 10
#define RANKS 4

struct adam_world {
	double w[N], m[N], v[N], g[RANKS * N];
	double out_w[N], out_m[N], out_v[N];
	double plain_w[N], plain_m[N], plain_v[N];
	struct zd_simulate_adam in;
};

/* Any numbers do that are different everywhere and no power of two. */
static void adam_world_init(struct adam_world *a)
{
	for (size_t i = 0; i < N; i++) {
		a->w[i] = sin((double)i + 1);
		a->m[i] = 0.1 * cos((double)i);
		a->v[i] = 0.01 * (1 + (double)i);
	}
	for (size_t i = 0; i < RANKS * N; i++)
		a->g[i] = cos(3.7 * (double)i) / 3;
	a->in = (struct zd_simulate_adam){
		.n = N, .ranks = RANKS, .weights = a->w, .m = a->m, .v = a->v, .gradients = a->g, .step = 3,
		.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8,
	};
}

static size_t adam_different(struct adam_world *a)
{
	assert_int_equal(zd_simulate_adam_sharded(&a->in, a->out_w, a->out_m, a->out_v), 0);
	assert_int_equal(zd_simulate_adam_plain(&a->in, a->plain_w, a->plain_m, a->plain_v), 0);
	return zd_simulate_differ(a->out_w, a->plain_w, N, NULL) + zd_simulate_differ(a->out_m, a->plain_m, N, NULL) +
	       zd_simulate_differ(a->out_v, a->plain_v, N, NULL);
}

static void test_adam_equals_plain(void **state)
{
	struct adam_world a, before;

	(void)state;
	adam_world_init(&a);
	before = a;
	for (size_t ranks = 1; ranks <= RANKS; ranks++) {
		a.in.ranks = ranks;
		assert_int_equal(adam_different(&a), 0);
	}
	assert_memory_equal(a.w, before.w, sizeof(a.w));
	assert_memory_equal(a.m, before.m, sizeof(a.m));
	assert_memory_equal(a.v, before.v, sizeof(a.v));
	assert_memory_equal(a.g, before.g, sizeof(a.g));
}

/* By hand, with numbers that round nowhere: betas of one half, gradients 1 and 3,
 * so g = 2; from zero m = 1, v = 2, their corrected values 2 and 4; the step is
 * lr * 2 / (2 + 2). Without the correction it would be lr * 1/(sqrt(2) + 2). */
static void test_adam_by_hand(void **state)
{
	const double w[] = { 1 }, zero[] = { 0 }, g[] = { 1, 3 };
	double out_w, m, v;
	struct zd_simulate_adam in = {
		.n = 1, .ranks = 2, .weights = w, .m = zero, .v = zero, .gradients = g, .step = 1, .lr = 0.5,
		.beta1 = 0.5, .beta2 = 0.5, .eps = 2,
	};

	(void)state;
	assert_int_equal(zd_simulate_adam_sharded(&in, &out_w, &m, &v), 0);
	assert_true(m == 1.0);
	assert_true(v == 2.0);
	assert_true(out_w == 0.75);
}

/* The second step of the same: m = 1.5, v = 3; 1 - 1/4 = 3/4; hats 2 and 4 again. */
static void test_adam_second_step_by_hand(void **state)
{
	const double w[] = { 0.75 }, m1[] = { 1 }, v1[] = { 2 }, g[] = { 1, 3 };
	double out_w, m, v;
	struct zd_simulate_adam in = {
		.n = 1, .ranks = 2, .weights = w, .m = m1, .v = v1, .gradients = g, .step = 2, .lr = 0.5, .beta1 = 0.5,
		.beta2 = 0.5, .eps = 2,
	};

	(void)state;
	assert_int_equal(zd_simulate_adam_sharded(&in, &out_w, &m, &v), 0);
	assert_true(m == 1.5);
	assert_true(v == 3.0);
	assert_true(out_w == 0.5);
}

static void test_adam_mistakes_are_found(void **state)
{
	struct adam_world a;

	(void)state;
	adam_world_init(&a);
	a.in.mistake = ZD_SIMULATE_SUM;
	assert_true(adam_different(&a) > 0);
	a.in.mistake = ZD_SIMULATE_SHIFT;
	assert_true(adam_different(&a) > 0);
	/* From empty moments Adam divides the scale away, so that weights alone would
	 * hide a sum behind eps; the moments do not. */
	memset(a.m, 0, sizeof(a.m));
	memset(a.v, 0, sizeof(a.v));
	a.in.step = 1;
	a.in.mistake = ZD_SIMULATE_SUM;
	assert_true(adam_different(&a) >= 2 * N);
}

static void test_adam_refusals(void **state)
{
	struct adam_world a;
	struct zd_simulate_adam bad;

	(void)state;
	adam_world_init(&a);
#define REFUSED(field, value)                                                                                          \
	bad = a.in;                                                                                                    \
	bad.field = (value);                                                                                           \
	assert_int_equal(zd_simulate_adam_sharded(&bad, a.out_w, a.out_m, a.out_v), ZD_SIMULATE_E_RANGE);              \
	assert_int_equal(zd_simulate_adam_plain(&bad, a.out_w, a.out_m, a.out_v), ZD_SIMULATE_E_RANGE)
	REFUSED(n, 0);
	REFUSED(ranks, 0);
	REFUSED(step, 0);
	REFUSED(lr, 0);
	REFUSED(lr, NAN);
	REFUSED(eps, 0);
	REFUSED(beta1, 1);
	REFUSED(beta2, -0.1);
#undef REFUSED
}

/* --- stage 3 --- */

#define LAYERS 5
#define WIDTH 3
#define BATCH 2
#define S3_RANKS 4
#define S3_N (LAYERS * WIDTH * WIDTH)
#define SAMPLES (S3_RANKS * BATCH * WIDTH)

struct stage3_world {
	double weights[S3_N], inputs[SAMPLES], targets[SAMPLES];
	double sharded[S3_N], plain[S3_N];
	double plain_loss;
	struct zd_simulate_counts counts;
	struct zd_simulate_stage3 in;
};

static void stage3_world_init(struct stage3_world *s)
{
	for (size_t i = 0; i < S3_N; i++)
		s->weights[i] = sin(1.3 * (double)i);
	for (size_t i = 0; i < SAMPLES; i++) {
		s->inputs[i] = cos(2.1 * (double)i);
		s->targets[i] = sin(0.7 * (double)i);
	}
	s->in = (struct zd_simulate_stage3){
		LAYERS, WIDTH, BATCH, S3_RANKS, s->weights, s->inputs, s->targets, ZD_SIMULATE_NO_MISTAKE,
	};
}

static size_t stage3_different(struct stage3_world *s)
{
	assert_int_equal(zd_simulate_stage3_sharded(&s->in, s->sharded, &s->counts), 0);
	assert_int_equal(zd_simulate_stage3_plain(&s->in, s->plain, &s->plain_loss), 0);
	return zd_simulate_differ(s->sharded, s->plain, s->in.layers * WIDTH * WIDTH, NULL);
}

static void test_stage3_equals_plain(void **state)
{
	struct stage3_world s;

	(void)state;
	stage3_world_init(&s);
	for (size_t layers = 1; layers <= LAYERS; layers++)
		for (size_t ranks = 1; ranks <= S3_RANKS; ranks++) {
			s.in.layers = layers;
			s.in.ranks = ranks;
			assert_int_equal(stage3_different(&s), 0);
			assert_true(s.counts.loss == s.plain_loss);
			assert_int_equal(s.counts.resident_layers, 1);
			assert_int_equal(s.counts.resident_elements, WIDTH * WIDTH);
			assert_int_equal(s.counts.gathered_elements, (2 * layers - 1) * WIDTH * WIDTH);
		}
}

/* The plain side, which the sharded one is compared with, against the slope of
 * its own loss: central differences err by h^2 and by rounding over h. */
static void test_stage3_gradient(void **state)
{
	struct stage3_world s;
	const double h = 1e-5;
	double none[S3_N];

	(void)state;
	stage3_world_init(&s);
	stage3_different(&s);
	for (size_t i = 0; i < S3_N; i++) {
		double keep = s.weights[i], above, below, slope;

		s.weights[i] = keep + h;
		assert_int_equal(zd_simulate_stage3_plain(&s.in, none, &above), 0);
		s.weights[i] = keep - h;
		assert_int_equal(zd_simulate_stage3_plain(&s.in, none, &below), 0);
		s.weights[i] = keep;
		slope = (above - below) / (2 * h);
		if (!(fabs(slope - s.plain[i]) < 1e-8))
			fail_msg("weight %zu: slope %.12g, gradient %.12g", i, slope, s.plain[i]);
	}
}

static void test_stage3_mistakes_are_found(void **state)
{
	struct stage3_world s;

	(void)state;
	stage3_world_init(&s);
	s.in.mistake = ZD_SIMULATE_SUM;
	assert_true(stage3_different(&s) > 0);
	s.in.mistake = ZD_SIMULATE_SHIFT;
	assert_true(stage3_different(&s) > 0);
	s.in.mistake = ZD_SIMULATE_KEEP;
	assert_int_equal(stage3_different(&s), 0); /* right, but not sharded */
	assert_int_equal(s.counts.resident_layers, LAYERS);
}

static void test_stage3_refusals(void **state)
{
	struct stage3_world s;

	(void)state;
	stage3_world_init(&s);
	s.in.layers = 0;
	assert_int_equal(zd_simulate_stage3_sharded(&s.in, s.sharded, &s.counts), ZD_SIMULATE_E_RANGE);
	s.in.layers = 1;
	s.in.ranks = 0;
	assert_int_equal(zd_simulate_stage3_plain(&s.in, s.plain, &s.plain_loss), ZD_SIMULATE_E_RANGE);
}

/* --- the command --- */

static int call(const char *line, char **ret_out, char **ret_err)
{
	size_t out_size, err_size;
	FILE *out = open_memstream(ret_out, &out_size), *err = open_memstream(ret_err, &err_size);
	char words[256], *argv[24], *save = NULL;
	int argc = 0, code;

	snprintf(words, sizeof(words), "%s", line);
	for (char *w = strtok_r(words, " ", &save); w != NULL; w = strtok_r(NULL, " ", &save))
		argv[argc++] = w;
	argv[argc] = NULL;
	code = zd_cli_simulate(argc, argv, out, err);
	fclose(out);
	fclose(err);
	return code;
}

static void test_command_codes(void **state)
{
	static const struct {
		const char *line;
		int code;
		const char *says; /* in the answer, or in the complaint for 2 */
	} rows[] = {
		{ "simulate adam", 0, "all checks hold" },
		{ "simulate adam --elements 3 --ranks 7 --steps 2 -o csv", 0, "pieces,6,3,0" },
		{ "simulate adam --mistake sum", 1, "checks failed: 3" },
		{ "simulate adam --mistake shift --steps 1", 1, "checks failed: 1" },
		{ "simulate stage3", 0, "all checks hold" },
		{ "simulate stage3 --mistake sum", 1, "checks failed: 1" },
		{ "simulate stage3 --mistake shift", 1, "checks failed: 1" },
		{ "simulate stage3 --mistake keep", 1, "checks failed: 2" },
		{ "simulate adam --help", 0, "Examples:" },
		{ "simulate", 2, "expected a command, found none" },
		{ "simulate adam --ranks 0", 2, "--ranks: expected 1 to 64, found '0'" },
		{ "simulate adam --ranks 1.5", 2, "whole number" },
		{ "simulate adam --mistake keep", 2, "none|sum|shift" },
		{ "simulate adam --beta1 1", 2, "--beta1: expected 0 to 0.9999999, found '1'" },
		{ "simulate adam --elements 1048577", 2, "--elements: expected 1 to 1048576, found '1048577'" },
		{ "simulate stage3 --layers 65", 2, "found '65'" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		char *out, *err;
		int code = call(rows[i].line, &out, &err);

		if (code != rows[i].code || strstr(code == 2 ? err : out, rows[i].says) == NULL)
			fail_msg("%s: code %d, out '%s', err '%s'", rows[i].line, code, out, err);
		free(out);
		free(err);
	}
}

static void test_command_seed(void **state)
{
	static const char *const lines[] = { "simulate adam -o json", "simulate stage3 -o json" };

	(void)state;
	for (size_t i = 0; i < COUNT(lines); i++) {
		char *out[3], *err, with[64];
		json_t *answers[3], *tables[3];

		for (size_t k = 0; k < 3; k++) {
			snprintf(with, sizeof(with), "%s --seed %d", lines[i], k < 2 ? 7 : 8);
			assert_int_equal(call(with, &out[k], &err), 0);
			free(err);
			/* not the inputs, which say the seed */
			answers[k] = json_loads(out[k], 0, NULL);
			tables[k] = json_object_get(answers[k], "tables");
			assert_non_null(tables[k]);
		}
		assert_true(json_equal(tables[0], tables[1]));
		assert_false(json_equal(tables[0], tables[2]));
		assert_string_equal(out[0], out[1]);
		for (size_t k = 0; k < 3; k++) {
			json_decref(answers[k]);
			free(out[k]);
		}
	}
}

static void test_command_json(void **state)
{
	char *out, *err;
	json_t *j, *check;

	(void)state;
	assert_int_equal(call("simulate stage3 --layers 3 --width 4 --ranks 3 -o json", &out, &err), 0);
	j = json_loads(out, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(j);
	check = json_array_get(json_object_get(json_object_get(j, "tables"), "checks"), 1);
	assert_int_equal(json_integer_value(json_object_get(check, "expected")), 5 * 16);
	assert_int_equal(json_integer_value(json_object_get(check, "found")), 5 * 16);
	assert_true(json_is_true(json_object_get(check, "holds")));
	json_decref(j);
	free(out);
	free(err);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_split),
		cmocka_unit_test(test_differ),
		cmocka_unit_test(test_adam_equals_plain),
		cmocka_unit_test(test_adam_by_hand),
		cmocka_unit_test(test_adam_second_step_by_hand),
		cmocka_unit_test(test_adam_mistakes_are_found),
		cmocka_unit_test(test_adam_refusals),
		cmocka_unit_test(test_stage3_equals_plain),
		cmocka_unit_test(test_stage3_gradient),
		cmocka_unit_test(test_stage3_mistakes_are_found),
		cmocka_unit_test(test_stage3_refusals),
		cmocka_unit_test(test_command_codes),
		cmocka_unit_test(test_command_seed),
		cmocka_unit_test(test_command_json),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
