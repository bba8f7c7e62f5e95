/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model as the planner sees it: its units in the order of forward.
 */
#ifndef ZD_CLI_PLAN_MODEL_H
#define ZD_CLI_PLAN_MODEL_H

#include "client/cli/plan_args.h"
#include "client/cli/plan_wire.h"

struct zd_plan_model {
	struct zd_plan_unit *units; /* owned */
	size_t unit_count;
	double trainable, frozen; /* elements */
	double largest, largest_trained; /* elements of the largest unit */
	bool assumed;		  /* nobody said how the parameters form units */
};

/* Units assumed when only a number of parameters is known: about as many as a
 * 7B Transformer has blocks. */
#define ZD_PLAN_UNITS_ASSUMED 32u

/*
 * From `--unit` texts, each "NUMEL", "COUNTxNUMEL", or one of these with
 * ":frozen" behind; or, with none, `params` elements in `unit_count` units as
 * equal as possible (0: ZD_PLAN_UNITS_ASSUMED). Exactly one of texts and params
 * is to be given. 0 or the exit code of the error that it has printed. On success
 * the caller ends with zd_plan_model_fini.
 */
int zd_plan_model_init(struct zd_plan_model *model, const struct zd_command *command,
		       const struct zd_arg_texts *texts, double params, uint64_t unit_count, FILE *err)
	__attribute__((warn_unused_result));

void zd_plan_model_fini(struct zd_plan_model *model);

#endif
