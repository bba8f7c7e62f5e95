/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands of `zeroctl plan`, one file each, and what they share.
 */
#ifndef ZD_CLI_PLAN_COMMANDS_H
#define ZD_CLI_PLAN_COMMANDS_H

#include "client/cli/plan_args.h"
#include "client/cli/plan_model.h"

extern const struct zd_command zd_plan_memory_command;
extern const struct zd_command zd_plan_comm_command;
extern const struct zd_command zd_plan_hybrid_command;
extern const struct zd_command zd_plan_step_command;

/* A worker's way of working: what `--stage` chooses from. */
struct zd_plan_mode {
	const char *name; /* "stage 3, keeping" */
	unsigned stage;
	bool keep_after_forward;
};

#define ZD_PLAN_MODES 5u
extern const struct zd_plan_mode zd_plan_modes[ZD_PLAN_MODES];

/* `choice` indexes "all|0|1|2|3"; stage 3 includes the keeping form. */
bool zd_plan_mode_chosen(const struct zd_plan_mode *mode, unsigned choice);

/* How workers of stages 0 and 1 treat micro-batches; zerod-lm's names. */
enum { ZD_PLAN_EXACT, ZD_PLAN_LOCAL };
#define ZD_PLAN_ACCUMULATE_CHOICES "exact|local"

#define ZD_PLAN_STAGE_CHOICES "all|0|1|2|3"
#define ZD_PLAN_FORMAT_CHOICES "table|json|csv"

/* What one worker does on the wire in this mode, as zerod-lm does it. `accumulate`
 * is one of the two above. */
struct zd_plan_wire_spec zd_plan_mode_wire(const struct zd_plan_mode *mode, const struct zd_plan_model *model,
					   unsigned accumulate, uint64_t micro_batches, uint64_t lanes,
					   uint64_t grad_bytes);

/* Fills a command's report; 0 or a formula's refusal. */
typedef int zd_plan_fill(const void *options, const struct zd_plan_model *model, struct zd_report *report);

/* The end of every command over a model: a report with the inputs, filled and
 * written. Ends the model. Returns the exit code. */
int zd_plan_answer(const struct zd_command *command, const void *options, enum zd_table_format format,
		   struct zd_plan_model *model, zd_plan_fill *fill, FILE *out, FILE *err);

/* A formula refused its input in a way that the options' limits did not
 * foresee: says so on `err`, and returns the exit code for it. */
int zd_plan_refused(const struct zd_command *command, int code, FILE *err);

#endif
