/* SPDX-License-Identifier: Apache-2.0 */
/* `zeroctl plan comm`: bytes on the network, and when computation hides them. */
#include "client/cli/plan_commands.h"

#include <math.h>

#include "client/cli/plan_number.h"

struct options {
	double params, weight_bytes, bandwidth, flops, tokens, batch_tokens;
	struct zd_arg_texts units, batch_gpus;
	uint64_t unit_count, gpus, daemons, lanes, micro_batches, grad_bytes;
	unsigned stage, accumulate, format;
};

#define AT(field) offsetof(struct options, field)

static const struct zd_arg args[] = {
	{ "params", 'N', ZD_ARG_COUNT, AT(params), 1, 1e15, "N", "parameters that are trained", NULL, false, NULL },
	{ "units", 0, ZD_ARG_INTEGER, AT(unit_count), 1, 1024, "N", "units they form, equal ones (32 if not said)", NULL, false, NULL },
	{ "unit", 'u', ZD_ARG_TEXTS, AT(units), 0, 0, "[Cx]N[:frozen]", "instead: C units of N elements; may be repeated", NULL, false, NULL },
	{ "gpus", 'n', ZD_ARG_INTEGER, AT(gpus), 1, 1e9, "N", "GPUs, or workers", "8", false, NULL },
	{ "stage", 's', ZD_ARG_CHOICE, AT(stage), 0, 0, NULL, "only this ZeRO stage", "all", false, ZD_PLAN_STAGE_CHOICES },
	{ "weight-bytes", 0, ZD_ARG_REAL, AT(weight_bytes), 0.25, 8, "B", "bytes of a weight on a ring", "2", false, NULL },
	{ "grad-bytes", 0, ZD_ARG_INTEGER, AT(grad_bytes), 2, 4, "2|4", "bytes of a gradient on the wire", "2", false, NULL },
	{ "micro-batches", 'm', ZD_ARG_INTEGER, AT(micro_batches), 1, 65536, "M", "micro-batches of a step (zerod's table)", "1", false, NULL },
	{ "accumulate", 0, ZD_ARG_CHOICE, AT(accumulate), 0, 0, NULL, "stages 0 and 1: send each micro-batch, or add up", "exact", false,
	  ZD_PLAN_ACCUMULATE_CHOICES },
	{ "daemons", 'k', ZD_ARG_INTEGER, AT(daemons), 1, 1024, "N", "zerod daemons", "1", false, NULL },
	{ "lanes", 0, ZD_ARG_INTEGER, AT(lanes), 1, 1024, "N", "lanes of each daemon", "1", false, NULL },
	{ "bandwidth", 'b', ZD_ARG_RATE, AT(bandwidth), 1, 0, "RATE", "of a GPU's network", NULL, false, NULL },
	{ "flops", 0, ZD_ARG_FLOPS, AT(flops), 1, 0, "RATE", "operations a second that a GPU reaches", NULL, false, NULL },
	{ "tokens", 0, ZD_ARG_COUNT, AT(tokens), 1, 0, "N", "tokens a GPU and step", "8192", false, NULL },
	{ "batch-tokens", 0, ZD_ARG_COUNT, AT(batch_tokens), 1, 0, "N", "tokens of the whole batch", "4Mi", false, NULL },
	{ "batch-gpus", 0, ZD_ARG_TEXTS, AT(batch_gpus), 0, 0, "N,N,...", "GPUs to spread it over", "128,256,512,1024,2048,4096", false, NULL },
	{ "output", 'o', ZD_ARG_CHOICE, AT(format), 0, 0, NULL, "form of the answer", "table", false, ZD_PLAN_FORMAT_CHOICES },
	{ .name = NULL },
};

static int add_ring(const struct options *o, struct zd_plan_size size, struct zd_report *r)
{
	static const struct zd_table_column columns[] = {
		{ "stage", "stage", ZD_KIND_COUNT },
		{ "sent_bytes", "a GPU sends", ZD_KIND_BYTES },
		{ "seconds", "takes", ZD_KIND_SECONDS },
	};

	zd_report_table(r, "ring", "A step over a ring between the GPUs (no zerod)", columns, 3);
	for (unsigned stage = 0; stage <= 3; stage++) {
		double bytes, seconds = 0.0;
		int rc = zd_plan_ring_bytes(stage, size, (double)o->gpus, o->weight_bytes, (double)o->grad_bytes, &bytes);

		if (rc == ZD_PLAN_OK && o->bandwidth > 0.0)
			rc = zd_plan_transfer_seconds(bytes, o->bandwidth, &seconds);
		if (rc != ZD_PLAN_OK)
			return rc;
		if (o->stage == 0 || o->stage - 1 == stage)
			zd_report_row(r, (struct zd_cell[]){ ZD_INTEGER(stage), ZD_REAL(bytes),
							     o->bandwidth > 0.0 ? ZD_REAL(seconds) : ZD_NONE });
	}
	return ZD_PLAN_OK;
}

static int add_zeropp(struct zd_plan_size size, struct zd_report *r)
{
	static const struct zd_table_column columns[] = {
		{ "variant", "variant", ZD_KIND_TEXT },
		{ "forward_bytes", "forward gather", ZD_KIND_BYTES },
		{ "backward_bytes", "backward gather", ZD_KIND_BYTES },
		{ "gradient_bytes", "gradients", ZD_KIND_BYTES },
		{ "total_bytes", "together", ZD_KIND_BYTES },
		{ "of_model", "times the model", ZD_KIND_NUMBER },
	};
	static const struct {
		const char *name;
		bool weights, copy, gradients;
	} rows[] = {
		{ "plain ZeRO-3", false, false, false },
		{ "int8 weights", true, false, false },
		{ "a copy in the node", false, true, false },
		{ "int4 gradients", false, false, true },
		{ "all three", true, true, true },
	};

	zd_report_table(r, "zeropp", "ZeRO++: bytes across nodes a step", columns, 6);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct zd_plan_volume v;
		int rc = zd_plan_zeropp(size, rows[i].weights, rows[i].copy, rows[i].gradients, &v);
		double total;

		if (rc != ZD_PLAN_OK)
			return rc;
		total = v.forward_gather_bytes + v.backward_gather_bytes + v.gradient_bytes;
		zd_report_row(r, (struct zd_cell[]){ ZD_TEXT(rows[i].name), ZD_REAL(v.forward_gather_bytes),
						     ZD_REAL(v.backward_gather_bytes), ZD_REAL(v.gradient_bytes),
						     ZD_REAL(total), ZD_REAL(total / (2.0 * (size.params + size.frozen))) });
	}
	return ZD_PLAN_OK;
}

static int add_hiding(const struct options *o, struct zd_plan_size size, struct zd_report *r)
{
	static const struct zd_table_column columns[] = {
		{ "tokens", "tokens a GPU", ZD_KIND_COUNT },
		{ "hiding_tokens", "hides from", ZD_KIND_COUNT },
		{ "compute_seconds", "computation", ZD_KIND_SECONDS },
		{ "transfer_seconds", "transfer", ZD_KIND_SECONDS },
		{ "hides", "hides", ZD_KIND_BOOL },
	};
	double bytes, threshold, compute, transfer;
	int rc = zd_plan_ring_bytes(3, size, (double)o->gpus, o->weight_bytes, (double)o->grad_bytes, &bytes);

	if (rc == ZD_PLAN_OK)
		rc = zd_plan_hiding_tokens(size, o->weight_bytes, (double)o->grad_bytes, o->flops, o->bandwidth, &threshold);
	if (rc == ZD_PLAN_OK)
		rc = zd_plan_compute_seconds(size, o->tokens, o->flops, &compute);
	if (rc == ZD_PLAN_OK)
		rc = zd_plan_transfer_seconds(bytes, o->bandwidth, &transfer);
	if (rc != ZD_PLAN_OK)
		return rc;
	zd_report_table(r, "hiding", "Stage 3 over a ring: does computation hide the transfer?", columns, 5);
	zd_report_row(r, (struct zd_cell[]){ ZD_REAL(o->tokens), ZD_REAL(threshold), ZD_REAL(compute), ZD_REAL(transfer),
					     ZD_BOOL(transfer <= compute) });
	return ZD_PLAN_OK;
}

static int add_batch(const struct options *o, struct zd_plan_size size, struct zd_report *r)
{
	static const struct zd_table_column columns[] = {
		{ "gpus", "GPUs", ZD_KIND_COUNT },
		{ "tokens", "tokens a GPU", ZD_KIND_COUNT },
		{ "compute_seconds", "computation", ZD_KIND_SECONDS },
		{ "transfer_seconds", "transfer", ZD_KIND_SECONDS },
		{ "ratio", "transfer/computation", ZD_KIND_NUMBER },
	};

	zd_report_table(r, "batch", "One batch over more GPUs (stage 3, bf16)", columns, 5);
	for (size_t i = 0; i < o->batch_gpus.count; i++) {
		struct zd_plan_batch b;
		double gpus;
		int rc = ZD_PLAN_E_RANGE;

		if (zd_plan_number_parse(o->batch_gpus.items[i], ZD_NUMBER_COUNT, &gpus))
			rc = zd_plan_batch(size, o->batch_tokens, gpus, o->flops, o->bandwidth, &b);
		if (rc != ZD_PLAN_OK)
			return rc;
		zd_report_row(r, (struct zd_cell[]){ ZD_REAL(gpus), ZD_REAL(b.tokens), ZD_REAL(b.compute_seconds),
						     ZD_REAL(b.transfer_seconds), ZD_REAL(b.ratio) });
	}
	return ZD_PLAN_OK;
}

static int add_zerod(const struct options *o, const struct zd_plan_model *m, struct zd_report *r)
{
	static const struct zd_table_column columns[] = {
		{ "mode", "mode", ZD_KIND_TEXT },
		{ "push_bytes", "pushes", ZD_KIND_BYTES },
		{ "fetch_bytes", "fetches", ZD_KIND_BYTES },
		{ "push_frames", "PUSH", ZD_KIND_COUNT },
		{ "fetch_frames", "FETCH", ZD_KIND_COUNT },
		{ "data_frames", "DATA", ZD_KIND_COUNT },
		{ "step_frames", "step", ZD_KIND_COUNT },
		{ "sent_extra_bytes", "sent on top", ZD_KIND_BYTES },
		{ "received_extra_bytes", "received on top", ZD_KIND_BYTES },
		{ "extra_ratio", "both of all", ZD_KIND_NUMBER },
		{ "daemon_in_bytes", "into a daemon", ZD_KIND_BYTES },
		{ "daemon_out_bytes", "out of it", ZD_KIND_BYTES },
	};
	double share = (double)o->gpus / (double)o->daemons;

	zd_report_table(r, "zerod", "A step through zerod: a worker, and a daemon (frames and what is on top: at most)",
			columns, sizeof(columns) / sizeof(columns[0]));
	for (size_t i = 0; i < ZD_PLAN_MODES; i++) {
		const struct zd_plan_mode *mode = &zd_plan_modes[i];
		struct zd_plan_wire_spec spec = zd_plan_mode_wire(mode, m, o->accumulate, o->micro_batches,
								  o->daemons * o->lanes, o->grad_bytes);
		struct zd_plan_wire w;
		int rc = zd_plan_wire_compute(&spec, &w);
		double push, fetch;

		if (rc != ZD_PLAN_OK)
			return rc;
		if (!zd_plan_mode_chosen(mode, o->stage))
			continue;
		push = (double)w.push_bytes;
		fetch = (double)w.fetch_bytes;
		zd_report_row(r, (struct zd_cell[]){
			ZD_TEXT(mode->name), ZD_INTEGER(w.push_bytes), ZD_INTEGER(w.fetch_bytes), ZD_INTEGER(w.push_frames),
			ZD_INTEGER(w.fetch_frames), ZD_INTEGER(w.data_frames), ZD_INTEGER(w.step_frames),
			ZD_INTEGER(w.sent_extra), ZD_INTEGER(w.received_extra), ZD_REAL(w.extra_ratio),
			ZD_REAL((push + (double)w.sent_extra) * share), ZD_REAL((fetch + (double)w.received_extra) * share),
		});
	}
	return ZD_PLAN_OK;
}

static int fill(const void *options, const struct zd_plan_model *m, struct zd_report *r)
{
	const struct options *o = options;
	bool timed = o->bandwidth > 0.0 && o->flops > 0.0;
	struct zd_plan_size size = { m->trainable, m->frozen };
	int rc = add_ring(o, size, r);

	if (rc == ZD_PLAN_OK)
		rc = add_zeropp(size, r);
	if (rc == ZD_PLAN_OK && timed)
		rc = add_hiding(o, size, r);
	if (rc == ZD_PLAN_OK && timed)
		rc = add_batch(o, size, r);
	if (rc == ZD_PLAN_OK)
		rc = add_zerod(o, m, r);
	if (!timed)
		zd_report_note(r, "what hides behind computation needs --bandwidth and --flops");
	if (m->assumed)
		zd_report_note(r, "%zu equal units are assumed; --units or --unit says how it is", m->unit_count);
	return rc;
}

static int run(const struct zd_command *command, const void *options, FILE *out, FILE *err)
{
	const struct options *o = options;
	struct zd_plan_model model;
	int rc;

	if (o->grad_bytes == 3)
		return zd_args_error(command, err, "--grad-bytes: expected 2 (bf16, fp16) or 4 (fp32), found 3");
	for (size_t i = 0; i < o->batch_gpus.count; i++) {
		double gpus;

		if (!zd_plan_number_parse(o->batch_gpus.items[i], ZD_NUMBER_COUNT, &gpus) || gpus < 1.0 || gpus != rint(gpus))
			return zd_args_error(command, err, "--batch-gpus: expected numbers of GPUs such as 128,512, found '%s'",
					     o->batch_gpus.items[i]);
	}
	rc = zd_plan_model_init(&model, command, &o->units, o->params, o->unit_count, err);
	if (rc != ZD_PLAN_EXIT_OK)
		return rc;
	return zd_plan_answer(command, o, (enum zd_table_format)o->format, &model, fill, out, err);
}

const struct zd_command zd_plan_comm_command = {
	.name = "plan comm",
	.summary = "bytes on the network a step, and when computation hides them",
	.examples = "  zeroctl plan comm --params 70.6B --gpus 128 --bandwidth 50GB/s --flops 395.6TFLOP/s\n"
		    "  zeroctl plan comm --params 70.6B --gpus 128 --grad-bytes 4 --stage 3\n"
		    "  zeroctl plan comm --unit 2M,12x7.1M,2M --gpus 2 --micro-batches 4 --daemons 2 --lanes 2 -o json\n",
	.args = args,
	.size = sizeof(struct options),
	.run = run,
};
