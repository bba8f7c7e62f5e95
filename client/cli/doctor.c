/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zeroctl doctor: the start-up checks of the daemon, on this host, without starting one; and whether the daemons that were named answer.
 * The checks are the daemon's own (server/shell/check.h), so the two never say different things.
 */
#include "client/cli/ctl.h"

#include <stdlib.h>
#include <string.h>

#include "server/kernel/kernel.h"
#include "server/shell/check.h"
#include "server/shell/log.h"

static const struct zd_table_column columns[] = {
	{"level", "LEVEL", ZD_KIND_TEXT},
	{"finding", "FINDING", ZD_KIND_TEXT},
};

static struct {
	struct zd_report *report;
	unsigned warnings, errors;
} doctor; /* the log's sink has no argument */

static void finding(enum zd_log_level level, const char *line)
{
	static const char prefix[] = "event=check ";
	const char *text = strncmp(line, prefix, sizeof prefix - 1) == 0 ? line + sizeof prefix - 1 : line;
	struct zd_cell cells[] = {ZD_TEXT(level <= ZD_LOG_ERROR ? "error" : level == ZD_LOG_WARNING ? "warning" : "ok"), ZD_TEXT(text)};
	doctor.errors += level <= ZD_LOG_ERROR;
	doctor.warnings += level == ZD_LOG_WARNING;
	zd_report_row(doctor.report, cells);
}

static int answers(struct zd_ctl *ctl, struct zd_admin *a, void *arg)
{
	char line[512];
	(void)ctl;
	(void)arg;
	snprintf(line, sizeof line, "daemon=%s endpoint=%s lane=%u of %u answers", a->daemon, a->endpoint, a->lane, a->lane_count);
	finding(ZD_LOG_INFO, line);
	return 0;
}

static void check_host(void)
{
	struct zd_conf conf;
	struct zd_memory memory;
	char text[512];
	uint64_t budget = 0;
	const struct zd_kernels *kernels = zd_kernels_select(NULL);
	zd_conf_defaults(&conf);
	zd_memory_read(&memory, "");
	if (zd_memory_budget(&memory, 0, &budget, text, sizeof text) < 0)
		finding(ZD_LOG_ERROR, text);
	zd_check_log(&conf, &memory, budget, kernels);
}

int zd_ctl_doctor(struct zd_ctl *ctl, int argc, char **argv)
{
	const char *named = getenv("ZEROCTL_ENDPOINTS");
	int ask = ctl->endpoints_given || (named && *named), rc = 0;
	if (argc > 1)
		return zd_ctl_usage(ctl, "doctor", "expected no argument, found '%s'", argv[1]);
	doctor.report = zd_report_new("doctor");
	zd_report_table(doctor.report, "findings", "", columns, sizeof columns / sizeof columns[0]);
	zd_log_sink = finding;
	check_host();
	if (ask)
		rc = zd_ctl_each_lane(ctl, answers, NULL, NULL);
	zd_log_sink = NULL;
	zd_report_field(doctor.report, "warnings", ZD_KIND_COUNT, ZD_INTEGER(doctor.warnings));
	int written = zd_ctl_finish(ctl, doctor.report);
	if (rc)
		return rc;
	return written ? written : doctor.errors ? ZD_CTL_UNHEALTHY : ZD_CTL_OK;
}
