/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `zeroctl plan memory|comm|hybrid|step`: what a training job will need, before
 * anything is bought or started. Talks to no daemon. docs/plan.md has the
 * formulas, an example of each command, and the JSON fields.
 */
#ifndef ZD_CLI_PLAN_H
#define ZD_CLI_PLAN_H

#include <stdio.h>

/*
 * argv[0] is "plan", argv[1] the command, then options; argv may be reordered.
 * The answer goes to `out`, complaints to `err`. Returns zeroctl's exit code:
 * 0 done, 1 could not compute or write, 2 usage. One thread at a time.
 */
int zd_cli_plan(int argc, char **argv, FILE *out, FILE *err);

#endif
