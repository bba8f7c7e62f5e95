/* SPDX-License-Identifier: Apache-2.0 */
/* `zeroctl plan hybrid`: sharding inside groups, replicas across them. */
#include "client/cli/plan_commands.h"

#include "client/cli/plan_number.h"

struct options {
	double params, bandwidth;
	struct zd_arg_texts groups;
	uint64_t gpus, node;
	unsigned format;
};

#define AT(field) offsetof(struct options, field)

static const struct zd_arg args[] = {
	{ "params", 'N', ZD_ARG_COUNT, AT(params), 1, 1e15, "N", "parameters that are trained", NULL, true, NULL },
	{ "gpus", 'n', ZD_ARG_INTEGER, AT(gpus), 1, 1e9, "N", "GPUs of the job", NULL, true, NULL },
	{ "node", 0, ZD_ARG_INTEGER, AT(node), 1, 1e6, "N", "GPUs in one node", "8", false, NULL },
	{ "group", 'g', ZD_ARG_TEXTS, AT(groups), 0, 0, "N,N,...", "GPUs of a group (a node's and its doubles; all)", NULL, false, NULL },
	{ "bandwidth", 'b', ZD_ARG_RATE, AT(bandwidth), 1, 0, "RATE", "of a GPU between nodes", NULL, false, NULL },
	{ "output", 'o', ZD_ARG_CHOICE, AT(format), 0, 0, NULL, "form of the answer", "table", false, ZD_PLAN_FORMAT_CHOICES },
	{ .name = NULL },
};

static int add_group(const struct options *o, double group, struct zd_report *r)
{
	struct zd_plan_hybrid h;
	double seconds = 0.0;
	int rc = zd_plan_hybrid(o->params, (double)o->gpus, group, (double)o->node, &h);

	if (rc == ZD_PLAN_OK && o->bandwidth > 0.0)
		rc = zd_plan_transfer_seconds(h.cross_bytes, o->bandwidth, &seconds);
	if (rc == ZD_PLAN_OK)
		zd_report_row(r, (struct zd_cell[]){ ZD_REAL(group), ZD_REAL(h.replicas), ZD_REAL(h.state_bytes),
						     ZD_REAL(h.cross_bytes), o->bandwidth > 0.0 ? ZD_REAL(seconds) : ZD_NONE });
	return rc;
}

static int run(const struct zd_command *command, const void *options, FILE *out, FILE *err)
{
	static const struct zd_table_column columns[] = {
		{ "group", "group", ZD_KIND_COUNT },
		{ "replicas", "replicas", ZD_KIND_COUNT },
		{ "state_bytes", "state of a GPU", ZD_KIND_BYTES },
		{ "cross_bytes", "sends across nodes", ZD_KIND_BYTES },
		{ "seconds", "takes", ZD_KIND_SECONDS },
	};
	const struct options *o = options;
	struct zd_report *report = zd_report_new(command->name);
	int rc = ZD_PLAN_OK;

	zd_args_report(command, o, report);
	zd_report_table(report, "hybrid", "Sharding in groups of GPUs, replicas across groups; a step", columns, 5);
	for (size_t i = 0; i < o->groups.count; i++) {
		double size;

		if (!zd_plan_number_parse(o->groups.items[i], ZD_NUMBER_COUNT, &size) || add_group(o, size, report) != ZD_PLAN_OK) {
			zd_report_free(report);
			return zd_args_error(command, err, "--group: expected sizes that divide %llu GPUs, found '%s'",
					     (unsigned long long)o->gpus, o->groups.items[i]);
		}
	}
	for (uint64_t group = o->node; o->groups.count == 0 && rc == ZD_PLAN_OK && group < o->gpus; group *= 2)
		if (o->gpus % group == 0)
			rc = add_group(o, (double)group, report);
	if (o->groups.count == 0 && rc == ZD_PLAN_OK)
		rc = add_group(o, (double)o->gpus, report);
	if (rc != ZD_PLAN_OK) {
		zd_report_free(report);
		return zd_plan_refused(command, rc, err);
	}
	return zd_args_finish(command, report, (enum zd_table_format)o->format, out, err);
}

const struct zd_command zd_plan_hybrid_command = {
	.name = "plan hybrid",
	.summary = "sharding inside groups of GPUs, replicas across groups",
	.examples = "  zeroctl plan hybrid --params 70e9 --gpus 512\n"
		    "  zeroctl plan hybrid --params 70e9 --gpus 512 --group 8,64,512 --bandwidth 50GB/s\n",
	.args = args,
	.size = sizeof(struct options),
	.run = run,
};
