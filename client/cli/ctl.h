/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands of zeroctl share: the options before the command, and a walk over all lanes of all daemons. */
#ifndef ZD_CLI_CTL_H
#define ZD_CLI_CTL_H

#include <stdio.h>

#include "client/cli/admin.h"
#include "client/cli/table.h"

struct zd_ctl {
	const char *endpoints; /* "host:port,..." */
	int endpoints_given;   /* by option */
	enum zd_table_format format;
	uint64_t timeout_ms;
	int yes;
	int command; /* its index in argv */
	FILE *out, *err;
};

/* Calls `visit` once per lane of every daemon, in order, with an open connection.  Stops at the first result that is not 0 and returns
 * it; connection errors are printed on ctl->err and end the walk with their exit code. */
typedef int zd_ctl_visit(struct zd_ctl *ctl, struct zd_admin *a, void *arg);
int zd_ctl_each_lane(struct zd_ctl *ctl, zd_ctl_visit *visit, void *arg) ZD_MUST_USE;

/* Writes the report and frees it; the exit code. */
int zd_ctl_finish(struct zd_ctl *ctl, struct zd_report *report);

/* Commands: argv[0] is the command's own name.  They return the exit code. */
int zd_ctl_status(struct zd_ctl *ctl, int argc, char **argv);
int zd_ctl_lane(struct zd_ctl *ctl, int argc, char **argv);
int zd_ctl_job(struct zd_ctl *ctl, int argc, char **argv);
int zd_ctl_doctor(struct zd_ctl *ctl, int argc, char **argv);
int zd_ctl_bench(struct zd_ctl *ctl, int argc, char **argv);

#endif
