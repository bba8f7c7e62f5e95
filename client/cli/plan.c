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

int zd_plan_refused(const struct zd_command *command, int code, FILE *err)
{
	return zd_args_error(command, err, "%s, found values that together are none; check sizes and counts",
			     zd_plan_error(code));
}

int zd_cli_plan(int argc, char **argv, FILE *out, FILE *err)
{
	static const struct zd_command *const commands[] = {
		&zd_plan_memory_command, &zd_plan_comm_command, &zd_plan_hybrid_command, &zd_plan_step_command, NULL,
	};

	return zd_command_dispatch(commands, argc, argv, out, err);
}
