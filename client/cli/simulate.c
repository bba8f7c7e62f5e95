/* SPDX-License-Identifier: Apache-2.0 */
/* `zeroctl simulate adam|stage3` */
#include "client/cli/simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/plan_args.h"
#include "client/cli/plan_wire.h"

/* Bounds keep a mistyped size from taking the machine's memory: 64 ranks of
 * 2^20 doubles are 512 MiB. */
#define RANKS_MAX 64
#define ELEMENTS_MAX 1048576
#define WIDTH_MAX 512
#define LAYERS_MAX 64
#define BATCH_MAX 256
#define SEED_MAX 9007199254740992.0 /* 2^53: what a number option holds exactly */

/* splitmix64: any generator with a stated algorithm would do, so that a seed means
 * the same everywhere. */
static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* `n` numbers, uniform in [-scale, scale). */
static void fill_random(double *x, size_t n, double scale, uint64_t *state)
{
	for (size_t i = 0; i < n; i++)
		x[i] = scale * (ldexp((double)(next_random(state) >> 11), -52) - 1.0);
}

static double norm(const double *x, size_t n)
{
	double sum = 0.0;

	for (size_t i = 0; i < n; i++)
		sum += x[i] * x[i];
	return sqrt(sum);
}

static int no_memory(const struct zd_command *command, FILE *err)
{
	fprintf(err, "zeroctl %s: expected memory for the arrays, found none; give smaller sizes\n", command->name);
	return ZD_PLAN_EXIT_FAILED;
}

static int finish(const struct zd_command *command, struct zd_report *report, unsigned format, size_t failed, FILE *out,
		  FILE *err)
{
	int rc;

	zd_report_note(report, failed == 0 ? "all checks hold: sharding changed no bit" :
		       "checks failed: %zu; what was computed is not what one process computes", failed);
	rc = zd_args_finish(command, report, (enum zd_table_format)format, out, err);
	return rc == ZD_PLAN_EXIT_OK && failed > 0 ? ZD_PLAN_EXIT_FAILED : rc;
}

/* --- adam --- */

struct adam_options {
	uint64_t elements, ranks, steps, seed;
	double lr, beta1, beta2, eps;
	unsigned mistake, format;
};

#define AT(field) offsetof(struct adam_options, field)

static const struct zd_arg adam_args[] = {
	{ "elements", 0, ZD_ARG_INTEGER, AT(elements), 1, ELEMENTS_MAX, "N", "parameters", "1000", false, NULL },
	{ "ranks", 0, ZD_ARG_INTEGER, AT(ranks), 1, RANKS_MAX, "K", "ranks that share them", "4", false, NULL },
	{ "steps", 0, ZD_ARG_INTEGER, AT(steps), 1, 1000, "N", "optimizer steps", "3", false, NULL },
	{ "seed", 0, ZD_ARG_INTEGER, AT(seed), 0, SEED_MAX, "N", "of the random numbers", "1", false, NULL },
	{ "lr", 0, ZD_ARG_REAL, AT(lr), 1e-12, 1e6, "X", "learning rate", "0.001", false, NULL },
	{ "beta1", 0, ZD_ARG_REAL, AT(beta1), 0, 0.9999999, "X", "decay of the first moment", "0.9", false, NULL },
	{ "beta2", 0, ZD_ARG_REAL, AT(beta2), 0, 0.9999999, "X", "decay of the second moment", "0.999", false, NULL },
	{ "eps", 0, ZD_ARG_REAL, AT(eps), 1e-30, 1, "X", "added to the root", "1e-8", false, NULL },
	{ "mistake", 0, ZD_ARG_CHOICE, AT(mistake), 0, 0, NULL, "make one on purpose", "none", false, "none|sum|shift" },
	{ "output", 'o', ZD_ARG_CHOICE, AT(format), 0, 0, NULL, "form of the answer", "table", false, "table|json|csv" },
	{ .name = NULL },
};

/* Planes of n doubles: the state, what a step makes of it, and a copy of the
 * state to show that nobody wrote it. */
enum { W, M, V, SHARDED_W, SHARDED_M, SHARDED_V, PLAIN_W, PLAIN_M, PLAIN_V, COPY_W, COPY_M, COPY_V, PLANES };

struct adam_world {
	size_t n, ranks;
	double *memory; /* PLANES x n, then gradients and their copy: ranks x n each */
};

static double *plane(const struct adam_world *a, size_t i)
{
	return a->memory + i * a->n;
}

static void add_pieces(const struct adam_options *o, struct zd_report *r)
{
	static const struct zd_table_column columns[] = {
		{ "rank", "rank", ZD_KIND_COUNT },
		{ "first", "first", ZD_KIND_COUNT },
		{ "count", "count", ZD_KIND_COUNT },
	};

	zd_report_table(r, "pieces", "Pieces, as numpy.array_split cuts them", columns, 3);
	for (size_t rank = 0; rank < o->ranks; rank++) {
		struct zd_simulate_piece p = zd_simulate_split(o->elements, o->ranks, rank);

		zd_report_row(r, (struct zd_cell[]){ ZD_INTEGER(rank), ZD_INTEGER(p.first), ZD_INTEGER(p.count) });
	}
}

/* One step both ways; the state goes on from the plain one. Number of checks that
 * failed, or negative without memory. */
static int adam_step(const struct adam_options *o, const struct adam_world *a, uint64_t step, uint64_t *random,
		     struct zd_report *r)
{
	double *gradients = plane(a, PLANES), *copy = gradients + a->ranks * a->n;
	struct zd_simulate_adam in = {
		.n = a->n, .ranks = a->ranks, .weights = plane(a, W), .m = plane(a, M), .v = plane(a, V),
		.gradients = gradients, .step = step, .lr = o->lr, .beta1 = o->beta1, .beta2 = o->beta2, .eps = o->eps,
		.mistake = (enum zd_simulate_mistake)o->mistake,
	};
	size_t different, touched;
	double largest;

	fill_random(gradients, a->ranks * a->n, 1.0, random);
	memcpy(copy, gradients, a->ranks * a->n * sizeof(double));
	memcpy(plane(a, COPY_W), plane(a, W), 3 * a->n * sizeof(double));
	if (zd_simulate_adam_sharded(&in, plane(a, SHARDED_W), plane(a, SHARDED_M), plane(a, SHARDED_V)) != ZD_SIMULATE_OK ||
	    zd_simulate_adam_plain(&in, plane(a, PLAIN_W), plane(a, PLAIN_M), plane(a, PLAIN_V)) != ZD_SIMULATE_OK)
		return -1;
	/* The moments too: Adam divides a wrong scale of the gradient away again, so
	 * that weights alone would hardly show it. */
	different = zd_simulate_differ(plane(a, SHARDED_W), plane(a, PLAIN_W), 3 * a->n, &largest);
	touched = zd_simulate_differ(plane(a, COPY_W), plane(a, W), 3 * a->n, NULL) +
		  zd_simulate_differ(copy, gradients, a->ranks * a->n, NULL);
	memcpy(plane(a, W), plane(a, PLAIN_W), 3 * a->n * sizeof(double));
	zd_report_row(r, (struct zd_cell[]){ ZD_INTEGER(step), ZD_INTEGER(different), ZD_REAL(largest), ZD_INTEGER(touched),
					     ZD_REAL(norm(plane(a, SHARDED_W), a->n)), ZD_BOOL(different + touched == 0) });
	return (different > 0) + (touched > 0);
}

static int run_adam(const struct zd_command *command, const void *options, FILE *out, FILE *err)
{
	static const struct zd_table_column columns[] = {
		{ "step", "step", ZD_KIND_COUNT },
		{ "different", "values that differ", ZD_KIND_COUNT },
		{ "largest_difference", "at most by", ZD_KIND_NUMBER },
		{ "inputs_touched", "inputs touched", ZD_KIND_COUNT },
		{ "weight_norm", "norm of weights", ZD_KIND_NUMBER },
		{ "holds", "holds", ZD_KIND_BOOL },
	};
	const struct adam_options *o = options;
	struct adam_world a = { .n = o->elements, .ranks = o->ranks };
	struct zd_report *report;
	uint64_t random = o->seed;
	size_t failed = 0;

	a.memory = calloc((PLANES + 2 * a.ranks) * a.n, sizeof(double));
	if (a.memory == NULL)
		return no_memory(command, err);
	report = zd_report_new(command->name);
	zd_args_report(command, o, report);
	add_pieces(o, report);
	zd_report_table(report, "steps", "Sharded step against the step of one process (weights and moments)", columns,
			sizeof(columns) / sizeof(columns[0]));
	fill_random(plane(&a, W), a.n, 1.0, &random);
	for (uint64_t step = 1; step <= o->steps; step++) {
		int rc = adam_step(o, &a, step, &random, report);

		if (rc < 0) {
			zd_report_free(report);
			free(a.memory);
			return no_memory(command, err);
		}
		failed += (size_t)rc;
	}
	free(a.memory);
	return finish(command, report, o->format, failed, out, err);
}

static const struct zd_command adam_command = {
	.name = "simulate adam",
	.summary = "the sharded Adam step, beside the one that is not sharded",
	.examples = "  zeroctl simulate adam --elements 10 --ranks 4\n"
		    "  zeroctl simulate adam --elements 1000 --ranks 7 --steps 5 --seed 42 -o json\n"
		    "  zeroctl simulate adam --mistake sum\n",
	.args = adam_args,
	.size = sizeof(struct adam_options),
	.run = run_adam,
};

/* --- stage 3 --- */

struct stage3_options {
	uint64_t layers, width, batch, ranks, seed;
	unsigned mistake, format;
};

#undef AT
#define AT(field) offsetof(struct stage3_options, field)

static const struct zd_arg stage3_args[] = {
	{ "layers", 0, ZD_ARG_INTEGER, AT(layers), 1, LAYERS_MAX, "L", "tanh layers", "6", false, NULL },
	{ "width", 0, ZD_ARG_INTEGER, AT(width), 1, WIDTH_MAX, "D", "inputs and outputs of a layer", "16", false, NULL },
	{ "batch", 0, ZD_ARG_INTEGER, AT(batch), 1, BATCH_MAX, "B", "samples of a rank", "8", false, NULL },
	{ "ranks", 0, ZD_ARG_INTEGER, AT(ranks), 1, RANKS_MAX, "K", "ranks", "4", false, NULL },
	{ "seed", 0, ZD_ARG_INTEGER, AT(seed), 0, SEED_MAX, "N", "of the random numbers", "1", false, NULL },
	{ "mistake", 0, ZD_ARG_CHOICE, AT(mistake), 0, 0, NULL, "make one on purpose", "none", false, "none|sum|shift|keep" },
	{ "output", 'o', ZD_ARG_CHOICE, AT(format), 0, 0, NULL, "form of the answer", "table", false, "table|json|csv" },
	{ .name = NULL },
};

/* Elements that a worker of zerod fetches in such a step, from the planner. */
static uint64_t planned_elements(const struct stage3_options *o)
{
	struct zd_plan_unit units[LAYERS_MAX];
	struct zd_plan_wire_spec spec = {
		.units = units, .unit_count = o->layers, .stage = 3, .reuse = ZD_PLAN_REUSE_LAST, .micro_batches = 1, .lanes = 1,
		.grad_bytes = 2,
	};
	struct zd_plan_wire wire;

	for (size_t l = 0; l < o->layers; l++)
		units[l] = (struct zd_plan_unit){ .numel = o->width * o->width };
	return zd_plan_wire_compute(&spec, &wire) == ZD_PLAN_OK ? wire.fetch_bytes / 2 : 0;
}

static size_t check_row(struct zd_report *r, const char *what, uint64_t expected, uint64_t found)
{
	zd_report_row(r, (struct zd_cell[]){ ZD_TEXT(what), ZD_INTEGER(expected), ZD_INTEGER(found),
					     ZD_BOOL(expected == found) });
	return expected != found;
}

/* Which rank's shards differ from data parallelism, over all layers. */
static size_t add_shards(const struct stage3_options *o, const double *sharded, const double *plain, struct zd_report *r)
{
	static const struct zd_table_column columns[] = {
		{ "rank", "rank", ZD_KIND_COUNT },
		{ "first", "first", ZD_KIND_COUNT },
		{ "count", "count", ZD_KIND_COUNT },
		{ "different", "values that differ", ZD_KIND_COUNT },
		{ "largest_difference", "at most by", ZD_KIND_NUMBER },
	};
	size_t n = o->width * o->width, all = 0;

	zd_report_table(r, "shards", "Each rank's shard of the gradient (of every layer) against data parallelism", columns, 5);
	for (size_t rank = 0; rank < o->ranks; rank++) {
		struct zd_simulate_piece p = zd_simulate_split(n, o->ranks, rank);
		size_t different = 0;
		double largest = 0.0;

		for (size_t l = 0; l < o->layers; l++) {
			double here;

			different += zd_simulate_differ(sharded + l * n + p.first, plain + l * n + p.first, p.count, &here);
			if (isnan(here) || here > largest)
				largest = here;
		}
		all += different;
		zd_report_row(r, (struct zd_cell[]){ ZD_INTEGER(rank), ZD_INTEGER(p.first), ZD_INTEGER(p.count),
						     ZD_INTEGER(different), ZD_REAL(largest) });
	}
	return all;
}

static size_t add_stage3(const struct stage3_options *o, const double *sharded, const double *plain,
			 const struct zd_simulate_counts *counts, double plain_loss, struct zd_report *r)
{
	static const struct zd_table_column columns[] = {
		{ "check", "check", ZD_KIND_TEXT },
		{ "expected", "expected", ZD_KIND_COUNT },
		{ "found", "found", ZD_KIND_COUNT },
		{ "holds", "holds", ZD_KIND_BOOL },
	};
	static const struct zd_table_column results[] = {
		{ "loss", "loss", ZD_KIND_NUMBER },
		{ "plain_loss", "of data parallelism", ZD_KIND_NUMBER },
		{ "gradient_norm", "norm of gradient", ZD_KIND_NUMBER },
		{ "resident_elements", "weights resident at most", ZD_KIND_COUNT },
		{ "all_elements", "of", ZD_KIND_COUNT },
	};
	size_t n = o->layers * o->width * o->width, failed = 0;
	size_t different = add_shards(o, sharded, plain, r);

	zd_report_table(r, "result", "Result", results, 5);
	zd_report_row(r, (struct zd_cell[]){ ZD_REAL(counts->loss), ZD_REAL(plain_loss), ZD_REAL(norm(sharded, n)),
					     ZD_INTEGER(counts->resident_elements), ZD_INTEGER(n) });
	zd_report_table(r, "checks", "Checks", columns, 4);
	failed += check_row(r, "gathered layers that a rank holds at once", 1, counts->resident_layers);
	failed += check_row(r, "weights that a rank gathers in a step", planned_elements(o), counts->gathered_elements);
	failed += check_row(r, "gradient values that differ", 0, different);
	failed += check_row(r, "losses that differ", 0, zd_simulate_differ(&counts->loss, &plain_loss, 1, NULL));
	return failed;
}

static int run_stage3(const struct zd_command *command, const void *options, FILE *out, FILE *err)
{
	const struct stage3_options *o = options;
	size_t n = o->layers * o->width * o->width, samples = o->ranks * o->batch * o->width, failed;
	double *memory = calloc(3 * n + 2 * samples, sizeof(double));
	double *sharded, *plain, *inputs, *targets;
	struct zd_simulate_stage3 in;
	struct zd_simulate_counts counts;
	struct zd_report *report;
	uint64_t random = o->seed;
	double plain_loss;

	if (memory == NULL)
		return no_memory(command, err);
	sharded = memory + n;
	plain = memory + 2 * n;
	inputs = memory + 3 * n;
	targets = inputs + samples;
	in = (struct zd_simulate_stage3){
		o->layers, o->width, o->batch, o->ranks, memory, inputs, targets, (enum zd_simulate_mistake)o->mistake,
	};
	/* Weights of variance 1/width keep tanh off its flat ends: uniform in +-s has
	 * variance s^2/3. */
	fill_random(memory, n, sqrt(3.0 / (double)o->width), &random);
	fill_random(inputs, samples, 1.0, &random);
	fill_random(targets, samples, 1.0, &random);
	if (zd_simulate_stage3_sharded(&in, sharded, &counts) != ZD_SIMULATE_OK ||
	    zd_simulate_stage3_plain(&in, plain, &plain_loss) != ZD_SIMULATE_OK) {
		free(memory);
		return no_memory(command, err);
	}
	report = zd_report_new(command->name);
	zd_args_report(command, o, report);
	failed = add_stage3(o, sharded, plain, &counts, plain_loss, report);
	free(memory);
	return finish(command, report, o->format, failed, out, err);
}

static const struct zd_command stage3_command = {
	.name = "simulate stage3",
	.summary = "forward and backward over sharded weights, one layer at a time",
	.examples = "  zeroctl simulate stage3 --layers 6 --ranks 4\n"
		    "  zeroctl simulate stage3 --layers 12 --width 64 --ranks 8 --seed 7 -o json\n"
		    "  zeroctl simulate stage3 --mistake keep\n",
	.args = stage3_args,
	.size = sizeof(struct stage3_options),
	.run = run_stage3,
};

int zd_cli_simulate(int argc, char **argv, FILE *out, FILE *err)
{
	static const struct zd_command *const commands[] = { &adam_command, &stage3_command, NULL };

	return zd_command_dispatch(commands, argc, argv, out, err);
}
