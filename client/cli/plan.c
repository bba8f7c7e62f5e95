/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/plan.h"

#include "client/cli/plan_commands.h"

const struct zd_plan_mode zd_plan_modes[ZD_PLAN_MODES] = {
	{ "stage 0", 0, false },	 { "stage 1", 1, false }, { "stage 2", 2, false },
	{ "stage 3, keeping", 3, true }, { "stage 3", 3, false },
};

bool zd_plan_mode_chosen(const struct zd_plan_mode *mode, unsigned choice)
{
	return choice == 0 || mode->stage == choice - 1;
}

struct zd_plan_wire_spec zd_plan_mode_wire(const struct zd_plan_mode *mode, const struct zd_plan_model *model,
					   unsigned accumulate, uint64_t micro_batches, uint64_t lanes,
					   uint64_t grad_bytes)
{
	return (struct zd_plan_wire_spec){
		.units = model->units,
		.unit_count = model->unit_count,
		.stage = mode->stage,
		.keep_after_forward = mode->keep_after_forward,
		.sum_locally = mode->stage < 2 && accumulate == ZD_PLAN_LOCAL,
		.reuse = ZD_PLAN_REUSE_LAST,
		.micro_batches = (uint32_t)micro_batches,
		.lanes = (uint32_t)lanes,
		.grad_bytes = (unsigned)grad_bytes,
	};
}

int zd_plan_refused(const struct zd_command *command, int code, FILE *err)
{
	return zd_args_error(command, err, "the values do not go together: %s; check sizes and counts", zd_plan_error(code));
}

int zd_plan_answer(const struct zd_command *command, const void *options, enum zd_table_format format,
		   struct zd_plan_model *model, zd_plan_fill *fill, FILE *out, FILE *err)
{
	struct zd_report *report = zd_report_new(command->name);
	int rc;

	zd_args_report(command, options, report);
	rc = fill(options, model, report);
	zd_plan_model_fini(model);
	if (rc != ZD_PLAN_OK) {
		zd_report_free(report);
		return zd_plan_refused(command, rc, err);
	}
	return zd_args_finish(command, report, format, out, err);
}

int zd_cli_plan(int argc, char **argv, FILE *out, FILE *err)
{
	static const struct zd_command *const commands[] = {
		&zd_plan_memory_command, &zd_plan_comm_command, &zd_plan_hybrid_command, &zd_plan_step_command, NULL,
	};

	return zd_command_dispatch(commands, argc, argv, out, err);
}
