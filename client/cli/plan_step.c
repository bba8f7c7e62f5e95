/* SPDX-License-Identifier: Apache-2.0 */
/* `zeroctl plan step`: how fast a step of zerod can be at best, and what sets it. */
#include "client/cli/plan_bound.h"
#include "client/cli/plan_commands.h"
#include "proto/limits.h"

struct options {
	double params, tokens;
	struct zd_arg_texts units;
	uint64_t unit_count, workers, daemons, lanes, micro_batches, grad_bytes;
	double flops, worker_rate, daemon_rate, memory_rate, disk_rate, disk_bytes, drive_writes, rated_years;
	unsigned stage, accumulate, durability, format;
};

enum { DURABILITY_NONE, DURABILITY_SNAPSHOT, DURABILITY_STEP };

#define AT(field) offsetof(struct options, field)

static const struct zd_arg args[] = {
	{ "params", 'N', ZD_ARG_COUNT, AT(params), 1, 1e15, "N", "parameters that are trained", NULL, false, NULL },
	{ "units", 0, ZD_ARG_INTEGER, AT(unit_count), 1, 1024, "N", "units they form, equal ones (32 if not said)", NULL, false, NULL },
	{ "unit", 'u', ZD_ARG_TEXTS, AT(units), 0, 0, "[Cx]N[:frozen]", "instead: C units of N elements; may be repeated", NULL, false, NULL },
	{ "workers", 'n', ZD_ARG_INTEGER, AT(workers), 1, 1e6, "N", "worker processes", "1", false, NULL },
	{ "micro-batches", 'm', ZD_ARG_INTEGER, AT(micro_batches), 1, 65536, "M", "micro-batches of a step", "1", false, NULL },
	{ "accumulate", 0, ZD_ARG_CHOICE, AT(accumulate), 0, 0, NULL, "stages 0 and 1: send each micro-batch, or add up", "exact", false,
	  ZD_PLAN_ACCUMULATE_CHOICES },
	{ "daemons", 'k', ZD_ARG_INTEGER, AT(daemons), 1, 1024, "N", "zerod daemons", "1", false, NULL },
	{ "lanes", 0, ZD_ARG_INTEGER, AT(lanes), 1, 1024, "N", "lanes of each daemon", "1", false, NULL },
	{ "stage", 's', ZD_ARG_CHOICE, AT(stage), 0, 0, NULL, "only this stage", "all", false, ZD_PLAN_STAGE_CHOICES },
	{ "grad-bytes", 0, ZD_ARG_INTEGER, AT(grad_bytes), 2, 4, "2|4", "bytes of a gradient on the wire", "2", false, NULL },
	{ "worker-nic", 0, ZD_ARG_RATE, AT(worker_rate), 1, 0, "RATE", "each way, of a worker", "25Gb/s", false, NULL },
	{ "daemon-nic", 0, ZD_ARG_RATE, AT(daemon_rate), 1, 0, "RATE", "each way, of a daemon", "25Gb/s", false, NULL },
	{ "memory-bandwidth", 0, ZD_ARG_RATE, AT(memory_rate), 1, 0, "RATE", "of a daemon, all lanes together", "28GB/s", false, NULL },
	{ "flops", 0, ZD_ARG_FLOPS, AT(flops), 1, 0, "RATE", "operations a second that a worker reaches", NULL, false, NULL },
	{ "tokens", 't', ZD_ARG_COUNT, AT(tokens), 1, 0, "N", "tokens a worker and micro-batch", "8192", false, NULL },
	{ "nvme", 0, ZD_ARG_RATE, AT(disk_rate), 1, 0, "RATE", "of a daemon's disks, half reads: state on NVMe", NULL, false, NULL },
	{ "nvme-capacity", 0, ZD_ARG_BYTES, AT(disk_bytes), 1, 0, "BYTES", "of a daemon's disks, for wear", NULL, false, NULL },
	{ "nvme-dwpd", 0, ZD_ARG_REAL, AT(drive_writes), 0.01, 100, "X", "drive writes a day they are rated for", "1", false, NULL },
	{ "nvme-years", 0, ZD_ARG_REAL, AT(rated_years), 0.1, 20, "Y", "years of that rating", "5", false, NULL },
	{ "durability", 0, ZD_ARG_CHOICE, AT(durability), 0, 0, NULL, "of the job; 'step' writes a log too", "none", false, "none|snapshot|step" },
	{ "output", 'o', ZD_ARG_CHOICE, AT(format), 0, 0, NULL, "form of the answer", "table", false, ZD_PLAN_FORMAT_CHOICES },
	{ .name = NULL },
};

static int plan_mode(const struct options *o, const struct zd_plan_model *m, const struct zd_plan_mode *mode,
		     struct zd_plan_bound *ret_bound)
{
	struct zd_plan_wire_spec spec = zd_plan_mode_wire(mode, m, o->accumulate, o->micro_batches,
							  o->daemons * o->lanes, o->grad_bytes);
	struct zd_plan_machine machine = {
		o->flops, o->worker_rate, o->daemon_rate, o->memory_rate, o->disk_rate, o->disk_bytes, o->drive_writes,
		o->rated_years,
	};
	struct zd_plan_run run = {
		.trainable = m->trainable,
		.frozen = m->frozen,
		.workers = (double)o->workers,
		.daemons = (double)o->daemons,
		.micro_batches = (double)o->micro_batches,
		.tokens = o->tokens,
		.stage = mode->stage,
		.grad_bytes = (unsigned)o->grad_bytes,
		.sum_locally = spec.sum_locally,
		.log = o->durability == DURABILITY_STEP,
	};
	struct zd_plan_wire w;
	int rc = zd_plan_wire_compute(&spec, &w);

	if (rc != ZD_PLAN_OK)
		return rc;
	run.sent = (double)w.push_bytes + (double)w.sent_extra;
	run.received = (double)w.fetch_bytes + (double)w.received_extra;
	return zd_plan_bound_compute(&run, &machine, ret_bound);
}

static struct zd_cell seconds_cell(const struct zd_plan_bound *b, enum zd_plan_resource resource)
{
	return b->seconds[resource] > 0.0 ? ZD_REAL(b->seconds[resource]) : ZD_NONE;
}

static void add_bounds(const struct zd_plan_bound *bounds, const bool *chosen, struct zd_report *r)
{
	static const struct zd_table_column columns[] = {
		{ "mode", "mode", ZD_KIND_TEXT },
		{ "compute_seconds", "compute", ZD_KIND_SECONDS },
		{ "worker_network_seconds", "worker network", ZD_KIND_SECONDS },
		{ "daemon_network_seconds", "daemon network", ZD_KIND_SECONDS },
		{ "daemon_memory_seconds", "daemon memory", ZD_KIND_SECONDS },
		{ "daemon_disk_seconds", "daemon disk", ZD_KIND_SECONDS },
		{ "step_seconds", "step at best", ZD_KIND_SECONDS },
		{ "serial_seconds", "nothing overlaps", ZD_KIND_SECONDS },
		{ "bottleneck", "bottleneck", ZD_KIND_TEXT },
	};

	zd_report_table(r, "bounds", "Time of a step that each resource needs alone", columns,
			sizeof(columns) / sizeof(columns[0]));
	for (size_t i = 0; i < ZD_PLAN_MODES; i++) {
		const struct zd_plan_bound *b = &bounds[i];

		if (chosen[i])
			zd_report_row(r, (struct zd_cell[]){
				ZD_TEXT(zd_plan_modes[i].name), seconds_cell(b, ZD_PLAN_COMPUTE),
				seconds_cell(b, ZD_PLAN_WORKER_NETWORK), seconds_cell(b, ZD_PLAN_DAEMON_NETWORK),
				seconds_cell(b, ZD_PLAN_DAEMON_MEMORY), seconds_cell(b, ZD_PLAN_DAEMON_DISK),
				ZD_REAL(b->step_seconds), ZD_REAL(b->serial_seconds), ZD_TEXT(zd_plan_resource_name(b->slowest)),
			});
	}
}

static void add_traffic(const struct zd_plan_bound *bounds, const bool *chosen, struct zd_report *r)
{
	static const struct zd_table_column columns[] = {
		{ "mode", "mode", ZD_KIND_TEXT },
		{ "in_bytes", "network in", ZD_KIND_BYTES },
		{ "out_bytes", "network out", ZD_KIND_BYTES },
		{ "memory_bytes", "memory", ZD_KIND_BYTES },
		{ "disk_bytes", "disk", ZD_KIND_BYTES },
		{ "written_bytes", "of it written", ZD_KIND_BYTES },
	};

	zd_report_table(r, "daemon", "Bytes through each daemon a step", columns, 6);
	for (size_t i = 0; i < ZD_PLAN_MODES; i++) {
		const struct zd_plan_bound *b = &bounds[i];

		if (chosen[i])
			zd_report_row(r, (struct zd_cell[]){ ZD_TEXT(zd_plan_modes[i].name), ZD_REAL(b->daemon_in_bytes),
							     ZD_REAL(b->daemon_out_bytes), ZD_REAL(b->memory_bytes),
							     ZD_REAL(b->disk_bytes), ZD_REAL(b->written_bytes) });
	}
}

static void add_wear(const struct options *o, const struct zd_plan_bound *bounds, const bool *chosen, struct zd_report *r)
{
	static const struct zd_table_column columns[] = {
		{ "mode", "mode", ZD_KIND_TEXT },
		{ "written_bytes", "a step writes", ZD_KIND_BYTES },
		{ "drive_writes_per_day", "drive writes a day", ZD_KIND_NUMBER },
		{ "rated", "rated", ZD_KIND_NUMBER },
		{ "rated_life_seconds", "rated life lasts", ZD_KIND_SECONDS },
	};

	zd_report_table(r, "wear", "NVMe wear at that pace, without the drive's own write amplification", columns, 5);
	for (size_t i = 0; i < ZD_PLAN_MODES; i++) {
		const struct zd_plan_bound *b = &bounds[i];

		if (chosen[i])
			zd_report_row(r, (struct zd_cell[]){ ZD_TEXT(zd_plan_modes[i].name), ZD_REAL(b->written_bytes),
							     ZD_REAL(b->drive_writes_a_day), ZD_REAL(o->drive_writes),
							     b->rated_life_seconds > 0.0 ? ZD_REAL(b->rated_life_seconds) : ZD_NONE });
	}
}

static int fill(const void *options, const struct zd_plan_model *m, struct zd_report *r)
{
	const struct options *o = options;
	struct zd_plan_bound bounds[ZD_PLAN_MODES];
	bool chosen[ZD_PLAN_MODES];

	for (size_t i = 0; i < ZD_PLAN_MODES; i++) {
		int rc = plan_mode(o, m, &zd_plan_modes[i], &bounds[i]);

		if (rc != ZD_PLAN_OK)
			return rc;
		chosen[i] = zd_plan_mode_chosen(&zd_plan_modes[i], o->stage);
	}
	add_bounds(bounds, chosen, r);
	add_traffic(bounds, chosen, r);
	if (o->disk_rate > 0.0 && o->disk_bytes > 0.0)
		add_wear(o, bounds, chosen, r);
	if (o->flops == 0.0)
		zd_report_note(r, "computation is left out: --flops counts it");
	if (m->assumed)
		zd_report_note(r, "%zu equal units are assumed; --units or --unit says how it is", m->unit_count);
	if (o->workers > ZD_WORLD_MAX)
		zd_report_note(r, "a job takes at most %u workers in this version; %llu were asked for", ZD_WORLD_MAX,
			       (unsigned long long)o->workers);
	return ZD_PLAN_OK;
}

static int run(const struct zd_command *command, const void *options, FILE *out, FILE *err)
{
	const struct options *o = options;
	struct zd_plan_model model;
	int rc;

	if (o->grad_bytes == 3)
		return zd_args_error(command, err, "--grad-bytes: expected 2 (bf16, fp16) or 4 (fp32), found 3");
	if (o->disk_bytes > 0.0 && o->disk_rate == 0.0)
		return zd_args_error(command, err, "expected --nvme RATE with --nvme-capacity, found none; "
				     "add it, for example --nvme 2.3GB/s");
	rc = zd_plan_model_init(&model, command, &o->units, o->params, o->unit_count, err);
	if (rc != ZD_PLAN_EXIT_OK)
		return rc;
	return zd_plan_answer(command, o, (enum zd_table_format)o->format, &model, fill, out, err);
}

const struct zd_command zd_plan_step_command = {
	.name = "plan step",
	.summary = "time of a step at best, and the bottleneck",
	.examples = "  zeroctl plan step --params 7e9 --workers 8 --daemons 4\n"
		    "  zeroctl plan step --params 7e9 --workers 8 --flops 400e12 --worker-nic 100Gb/s --daemon-nic 100Gb/s --stage 3\n"
		    "  zeroctl plan step --params 7e9 --workers 2 --nvme 2.3GB/s --nvme-capacity 3.84TB --durability step\n",
	.args = args,
	.size = sizeof(struct options),
	.run = run,
};
