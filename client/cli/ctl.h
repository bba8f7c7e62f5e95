/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands of zeroctl share: the options that hold for all of them, and a walk over all lanes of all daemons. */
#ifndef ZD_CLI_CTL_H
#define ZD_CLI_CTL_H

#include <signal.h>
#include <stdio.h>

#include "client/cli/admin.h"
#include "client/cli/table.h"

struct zd_ctl {
	const char *endpoints; /* "host:port,..." */
	int endpoints_given;   /* by option */
	enum zd_table_format format;
	uint64_t timeout_ms;
	int yes;
	const char *params, *steps; /* of bench, as typed; NULL: not given */
	FILE *out, *err;
};

/* SIGINT ends zeroctl at once, unless a command has something to clean up: it sets LATER, and looks for NOW.  A second one ends it anyway. */
enum { ZD_CTL_AT_ONCE, ZD_CTL_LATER, ZD_CTL_NOW };
extern volatile sig_atomic_t zd_ctl_interrupt;

/* Calls `visit` once per lane of every daemon, in order, with an open connection.  Returns the first result that is not 0.  Connection errors
 * are printed on ctl->err.  Without `absent` they end the walk, and the timeout is for all of it; with it, it is called for a daemon that
 * cannot be reached, the walk goes on with the next, and the timeout is for each. */
typedef int zd_ctl_visit(struct zd_ctl *ctl, struct zd_admin *a, void *arg);
typedef void zd_ctl_absent(const char *endpoint, void *arg);
int zd_ctl_each_lane(struct zd_ctl *ctl, zd_ctl_visit *visit, zd_ctl_absent *absent, void *arg) ZD_MUST_USE;

/* Writes the report and frees it; the exit code. */
int zd_ctl_finish(struct zd_ctl *ctl, struct zd_report *report);

/* "zeroctl NOUN: ...; see: zeroctl NOUN --help" on ctl->err; returns ZD_CTL_USAGE. */
int zd_ctl_usage(struct zd_ctl *ctl, const char *noun, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Commands: argv is the command's name and the words behind it, without options.  They return the exit code. */
int zd_ctl_status(struct zd_ctl *ctl, int argc, char **argv);
int zd_ctl_lane(struct zd_ctl *ctl, int argc, char **argv);
int zd_ctl_job(struct zd_ctl *ctl, int argc, char **argv);
int zd_ctl_doctor(struct zd_ctl *ctl, int argc, char **argv);
int zd_ctl_bench(struct zd_ctl *ctl, int argc, char **argv);

#endif
