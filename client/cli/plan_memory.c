/* SPDX-License-Identifier: Apache-2.0 */
/* `zeroctl plan memory`: bytes on each GPU, and in each daemon. */
#include "client/cli/plan_commands.h"

#include <math.h>

struct options {
	double params, frozen, largest;
	struct zd_arg_texts units;
	uint64_t gpus, node, daemons, lanes, micro_batches;
	double layers, hidden, heads, seq, batch;
	unsigned stage, accumulate, activations, format;
};

enum { ACTIVATIONS_FUSED, ACTIVATIONS_CHECKPOINT, ACTIVATIONS_FULL };

#define AT(field) offsetof(struct options, field)

static const struct zd_arg args[] = {
	{ "params", 'N', ZD_ARG_COUNT, AT(params), 1, 1e15, "N", "parameters that are trained", NULL, false, NULL },
	{ "unit", 'u', ZD_ARG_TEXTS, AT(units), 0, 0, "[Cx]N[:frozen]", "instead: C units of N elements; may be repeated", NULL, false, NULL },
	{ "frozen", 0, ZD_ARG_COUNT, AT(frozen), 1, 1e15, "N", "parameters besides, that are not trained", NULL, false, NULL },
	{ "largest", 0, ZD_ARG_COUNT, AT(largest), 1, 1e15, "N", "elements of the largest unit (layer)", NULL, false, NULL },
	{ "gpus", 'n', ZD_ARG_INTEGER, AT(gpus), 1, 1e9, "N", "GPUs, or workers", "1", false, NULL },
	{ "node", 0, ZD_ARG_INTEGER, AT(node), 1, 1e6, "N", "GPUs in one node", "8", false, NULL },
	{ "daemons", 'k', ZD_ARG_INTEGER, AT(daemons), 1, 1024, "N", "zerod daemons", "1", false, NULL },
	{ "lanes", 0, ZD_ARG_INTEGER, AT(lanes), 1, 1024, "N", "lanes of each daemon", "1", false, NULL },
	{ "stage", 's', ZD_ARG_CHOICE, AT(stage), 0, 0, NULL, "only this ZeRO stage", "all", false, ZD_PLAN_STAGE_CHOICES },
	{ "micro-batches", 'm', ZD_ARG_INTEGER, AT(micro_batches), 1, 65536, "M", "micro-batches of a step (zerod stages 0 and 1)", "1", false, NULL },
	{ "accumulate", 0, ZD_ARG_CHOICE, AT(accumulate), 0, 0, NULL, "stages 0 and 1: send each micro-batch, or add up", "exact", false,
	  ZD_PLAN_ACCUMULATE_CHOICES },
	{ "layers", 0, ZD_ARG_COUNT, AT(layers), 1, 0, "N", "Transformer blocks, for activations", NULL, false, NULL },
	{ "hidden", 0, ZD_ARG_COUNT, AT(hidden), 1, 0, "N", "hidden size", NULL, false, NULL },
	{ "heads", 0, ZD_ARG_COUNT, AT(heads), 1, 0, "N", "attention heads", NULL, false, NULL },
	{ "seq", 0, ZD_ARG_COUNT, AT(seq), 1, 0, "N", "tokens of a sequence", NULL, false, NULL },
	{ "batch", 0, ZD_ARG_COUNT, AT(batch), 1, 0, "N", "sequences at once on a GPU", "1", false, NULL },
	{ "activations", 0, ZD_ARG_CHOICE, AT(activations), 0, 0, NULL, "what is kept for backward", "fused", false, "fused|checkpoint|full" },
	{ "output", 'o', ZD_ARG_CHOICE, AT(format), 0, 0, NULL, "form of the answer", "table", false, ZD_PLAN_FORMAT_CHOICES },
	{ .name = NULL },
};

static int add_state(const struct options *o, struct zd_plan_size size, struct zd_report *r)
{
	static const struct zd_table_column columns[] = {
		{ "stage", "stage", ZD_KIND_COUNT },
		{ "state_bytes", "a GPU", ZD_KIND_BYTES },
		{ "of_stage_0", "of stage 0", ZD_KIND_NUMBER },
	};
	double all, bytes;

	zd_report_table(r, "zero", "Model state on each GPU (ZeRO)", columns, 3);
	for (unsigned stage = 0; stage <= 3; stage++) {
		int rc = zd_plan_state_bytes(0, size, (double)o->gpus, &all);

		if (rc == ZD_PLAN_OK)
			rc = zd_plan_state_bytes(stage, size, (double)o->gpus, &bytes);
		if (rc != ZD_PLAN_OK)
			return rc;
		if (o->stage == 0 || o->stage - 1 == stage)
			zd_report_row(r, (struct zd_cell[]){ ZD_INTEGER(stage), ZD_REAL(bytes), ZD_REAL(bytes / all) });
	}
	return ZD_PLAN_OK;
}

/* Which activations a peak counts; none without a shape. */
static double chosen_activations(const struct options *o, const struct zd_plan_activations *a)
{
	if (o->layers == 0.0)
		return 0.0;
	switch (o->activations) {
	case ACTIVATIONS_FULL: return a->full_bytes;
	case ACTIVATIONS_CHECKPOINT: return a->checkpoint_bytes;
	default: return a->fused_bytes;
	}
}

static void worker_row(struct zd_report *r, const char *name, const double parts[4], double peak)
{
	zd_report_row(r, (struct zd_cell[]){ ZD_TEXT(name), ZD_REAL(parts[0]), ZD_REAL(parts[1]), ZD_REAL(parts[2]),
					     ZD_REAL(parts[3]), ZD_REAL(peak) });
}

/* Gradients that a worker of stage 0 or 1 keeps until the step: all micro-batches
 * in bf16, or their fp32 sum and what is sent of it. */
static double kept_gradients(const struct options *o, double params)
{
	return o->accumulate == ZD_PLAN_LOCAL ? 6.0 * params : 2.0 * params * (double)o->micro_batches;
}

/* A zerod worker owns no optimizer but in stage 0; what it keeps in each stage
 * is the table of docs/plan.md. */
static int add_workers(const struct options *o, const struct zd_plan_peak *in, struct zd_report *r)
{
	static const struct zd_table_column columns[] = {
		{ "worker", "worker", ZD_KIND_TEXT },
		{ "state_bytes", "own state", ZD_KIND_BYTES },
		{ "weight_bytes", "weights", ZD_KIND_BYTES },
		{ "gradient_bytes", "gradients", ZD_KIND_BYTES },
		{ "activation_bytes", "activations", ZD_KIND_BYTES },
		{ "peak_bytes", "peak", ZD_KIND_BYTES },
	};
	double n = in->size.params, all = 2.0 * (n + in->size.frozen), window = 4.0 * in->largest_unit;
	double unit = 2.0 * in->largest_trained, acts = in->activation_bytes, kept = kept_gradients(o, n);
	double state, peak;
	const struct {
		const char *name;
		double parts[4];
	} rows[] = {
		{ "zerod stage 0", { 12.0 * n, all, kept, acts } },
		{ "zerod stage 1", { 0.0, all, kept, acts } },
		{ "zerod stage 2", { 0.0, all, unit, acts } },
		{ "zerod stage 3", { 0.0, window, unit, acts } },
	};
	int rc = zd_plan_peak_bytes(in, &peak);

	if (rc == ZD_PLAN_OK)
		rc = zd_plan_state_bytes(3, in->size, in->gpus, &state);
	if (rc != ZD_PLAN_OK)
		return rc;
	zd_report_table(r, "workers", "Peak of a worker (bf16 weights and gradients)", columns, 6);
	worker_row(r, "sharding its own state (FSDP, ZeRO-3)", (double[]){ state, window, unit, acts }, peak);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const double *p = rows[i].parts;

		worker_row(r, rows[i].name, p, p[0] + p[1] + p[2] + p[3]);
	}
	return ZD_PLAN_OK;
}

static int add_daemons(const struct options *o, double trainable, double frozen, struct zd_report *r)
{
	static const struct zd_table_column columns[] = {
		{ "daemons", "daemons", ZD_KIND_COUNT },
		{ "rest_bytes", "at rest", ZD_KIND_BYTES },
		{ "round_bytes", "open round", ZD_KIND_BYTES },
		{ "frozen_bytes", "frozen", ZD_KIND_BYTES },
		{ "budget_bytes", "promise", ZD_KIND_BYTES },
	};
	struct zd_plan_daemon_ram ram;
	int rc = zd_plan_daemon_ram(trainable, frozen, (double)o->daemons, (double)o->lanes, &ram);

	if (rc != ZD_PLAN_OK)
		return rc;
	zd_report_table(r, "daemon", "RAM of each zerod daemon (the promise: 16 B trained, 2 B frozen, 3 %, 24 MiB a lane)",
			columns, 5);
	zd_report_row(r, (struct zd_cell[]){ ZD_INTEGER(o->daemons), ZD_REAL(ram.rest_bytes), ZD_REAL(ram.round_bytes),
					     ZD_REAL(ram.frozen_bytes), ZD_REAL(ram.budget_bytes) });
	return ZD_PLAN_OK;
}

static void add_activations(const struct zd_plan_activations *a, struct zd_report *r)
{
	static const struct zd_table_column columns[] = {
		{ "kept", "kept for backward", ZD_KIND_TEXT },
		{ "formula", "a layer", ZD_KIND_TEXT },
		{ "bytes", "all layers", ZD_KIND_BYTES },
	};

	zd_report_table(r, "activations", "Activations (Korthikanti et al. 2022, without tensor parallelism)", columns, 3);
	zd_report_row(r, (struct zd_cell[]){ ZD_TEXT("all, scores too"), ZD_TEXT("s b h (34 + 5 a s/h)"), ZD_REAL(a->full_bytes) });
	zd_report_row(r, (struct zd_cell[]){ ZD_TEXT("fused attention"), ZD_TEXT("34 s b h"), ZD_REAL(a->fused_bytes) });
	zd_report_row(r, (struct zd_cell[]){ ZD_TEXT("layer inputs, recomputed"), ZD_TEXT("2 s b h"), ZD_REAL(a->checkpoint_bytes) });
}

static int deepspeed_row(struct zd_report *r, const char *name, int rc, const struct zd_plan_deepspeed *e)
{
	if (rc == ZD_PLAN_OK)
		zd_report_row(r, (struct zd_cell[]){ ZD_TEXT(name), ZD_REAL(e->gpu_bytes), ZD_REAL(e->cpu_bytes) });
	return rc;
}

static int add_deepspeed(const struct options *o, double params, double largest, struct zd_report *r)
{
	static const struct zd_table_column columns[] = {
		{ "variant", "variant", ZD_KIND_TEXT },
		{ "gpu_bytes", "a GPU", ZD_KIND_GIB },
		{ "cpu_bytes", "a node's CPU", ZD_KIND_GIB },
	};
	static const struct {
		const char *name;
		bool optimizer, params, init;
	} rows[] = {
		{ "ZeRO-3", false, false, false },
		{ "ZeRO-3, zero.Init", false, false, true },
		{ "ZeRO-3, optimizer offload", true, false, false },
		{ "ZeRO-3, optimizer offload, zero.Init", true, false, true },
		{ "ZeRO-3, both offloaded", true, true, false },
		{ "ZeRO-3, both offloaded, zero.Init", true, true, true },
	};
	double per_node = (double)(o->gpus < o->node ? o->gpus : o->node);
	double nodes = ceil((double)o->gpus / per_node);
	struct zd_plan_deepspeed e = { 0 };
	int rc;

	zd_report_table(r, "deepspeed", "For comparison: what DeepSpeed's estimators say", columns, 3);
	rc = zd_plan_deepspeed_zero2(params, per_node, nodes, false, &e);
	rc = deepspeed_row(r, "ZeRO-2", rc, &e);
	if (rc == ZD_PLAN_OK)
		rc = zd_plan_deepspeed_zero2(params, per_node, nodes, true, &e);
	rc = deepspeed_row(r, "ZeRO-2, optimizer offload", rc, &e);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) && rc == ZD_PLAN_OK && largest > 0.0; i++) {
		struct zd_plan_zero3 in = { params, largest, per_node, nodes, rows[i].optimizer, rows[i].params, rows[i].init };

		rc = zd_plan_deepspeed_zero3(&in, &e);
		rc = deepspeed_row(r, rows[i].name, rc, &e);
	}
	return rc;
}

static int fill(const void *options, const struct zd_plan_model *m, struct zd_report *r)
{
	const struct options *o = options;
	double frozen = m->frozen + o->frozen, all = m->trainable + frozen;
	double largest = m->assumed ? o->largest : m->largest;
	struct zd_plan_activations acts = { 0 };
	struct zd_plan_shape shape = { o->layers, o->hidden, o->heads, o->seq, o->batch };
	int rc = o->layers > 0.0 ? zd_plan_activations(&shape, &acts) : ZD_PLAN_OK;

	if (rc == ZD_PLAN_OK)
		rc = add_state(o, (struct zd_plan_size){ m->trainable, frozen }, r);
	if (rc == ZD_PLAN_OK && largest > 0.0) {
		struct zd_plan_peak peak = { { m->trainable, frozen }, (double)o->gpus, largest,
					     m->assumed ? fmin(largest, m->trainable) : m->largest_trained,
					     chosen_activations(o, &acts) };

		rc = add_workers(o, &peak, r);
	}
	if (rc == ZD_PLAN_OK)
		rc = add_daemons(o, m->trainable, frozen, r);
	if (rc == ZD_PLAN_OK && o->layers > 0.0)
		add_activations(&acts, r);
	if (rc == ZD_PLAN_OK)
		rc = add_deepspeed(o, all, largest, r);
	if (largest == 0.0)
		zd_report_note(r, "a worker's peak and ZeRO-3 estimates need --largest, the elements of the largest unit");
	if (o->layers == 0.0)
		zd_report_note(r, "activations are left out: give --layers --hidden --heads --seq to count them");
	return rc;
}

static int run(const struct zd_command *command, const void *options, FILE *out, FILE *err)
{
	const struct options *o = options;
	struct zd_plan_model model;
	int rc;

	if (o->layers > 0.0 && (o->hidden == 0.0 || o->heads == 0.0 || o->seq == 0.0))
		return zd_args_error(command, err, "expected --hidden, --heads and --seq with --layers, found fewer; add them");
	if (o->largest > 0.0 && o->units.count > 0)
		return zd_args_error(command, err, "expected --largest only with --params, found it with --unit; remove one");
	if (o->params > 0.0 && o->largest > o->params + o->frozen)
		return zd_args_error(command, err, "--largest: expected at most all parameters, %.17g, found %.17g", o->params + o->frozen,
				     o->largest);
	rc = zd_plan_model_init(&model, command, &o->units, o->params, 0, err);
	if (rc != ZD_PLAN_EXIT_OK)
		return rc;
	return zd_plan_answer(command, o, (enum zd_table_format)o->format, &model, fill, out, err);
}

const struct zd_command zd_plan_memory_command = {
	.name = "plan memory",
	.summary = "bytes on each GPU and in each daemon",
	.examples = "  zeroctl plan memory --params 7.5e9 --gpus 64\n"
		    "  zeroctl plan memory --params 70e9 --gpus 512 --largest 1.05B --layers 80 --hidden 8192 --heads 64 --seq 8192\n"
		    "  zeroctl plan memory --unit 32x202M --unit 525M:frozen --daemons 4 --lanes 16 -o json\n",
	.args = args,
	.size = sizeof(struct options),
	.run = run,
};
