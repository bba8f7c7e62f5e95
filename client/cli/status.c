/* SPDX-License-Identifier: Apache-2.0 */
/* zeroctl status, zeroctl lane list: one line per daemon or per lane. */
#include "client/cli/ctl.h"

#include <stdlib.h>
#include <string.h>

struct lane_row {
	char daemon[ZD_NAME_MAX + 1];
	char kernels[16];
	char endpoint[300];
	uint32_t lane, jobs, connections;
	uint64_t slab, used, uptime_ms, bytes_in, bytes_out, frames_in, frames_out, errors;
	int draining, absent;
};

struct lane_rows {
	struct lane_row *row;
	size_t count, room;
};

/* NULL: no memory. */
static struct lane_row *add(struct lane_rows *rows)
{
	struct lane_row *row;
	if (rows->count == rows->room) {
		size_t room = rows->room ? 2 * rows->room : 16;
		struct lane_row *more = realloc(rows->row, room * sizeof *more);
		if (!more)
			return NULL;
		rows->row = more;
		rows->room = room;
	}
	row = &rows->row[rows->count++];
	memset(row, 0, sizeof *row);
	return row;
}

static void absent(const char *endpoint, void *arg)
{
	struct lane_row *r = add(arg);
	if (!r)
		return;
	snprintf(r->endpoint, sizeof r->endpoint, "%s", endpoint);
	r->absent = 1;
}

static int collect(struct zd_ctl *ctl, struct zd_admin *a, void *arg)
{
	struct lane_rows *rows = arg;
	Zd__Pb__Status ask = ZD__PB__STATUS__INIT;
	const ProtobufCMessage *answer;
	int rc = zd_admin_ask(a, ZD_MSG_STATUS, &ask.base, ZD_MSG_STATUS_REPLY, &answer, NULL);
	if (rc) {
		fprintf(ctl->err, "zeroctl: %s\n", a->detail);
		return rc;
	}
	const Zd__Pb__StatusReply *s = (const Zd__Pb__StatusReply *)answer;
	struct lane_row *r = add(rows);
	if (!r)
		return ZD_CTL_FAILED;
	snprintf(r->daemon, sizeof r->daemon, "%.63s", s->daemon);
	snprintf(r->kernels, sizeof r->kernels, "%.15s", s->kernels);
	snprintf(r->endpoint, sizeof r->endpoint, "%s", a->endpoint);
	r->lane = s->lane;
	r->jobs = (uint32_t)s->n_jobs;
	r->connections = s->connections;
	r->slab = s->slab_bytes;
	r->used = s->slab_used;
	r->uptime_ms = s->uptime_ms;
	r->bytes_in = s->bytes_in;
	r->bytes_out = s->bytes_out;
	r->frames_in = s->frames_in;
	r->frames_out = s->frames_out;
	r->errors = s->errors;
	r->draining = s->draining;
	return 0;
}

/* Lanes of one daemon become one row: sums, the shortest uptime, draining if any lane drains. */
static void merge_daemon(struct lane_row *sum, const struct lane_row *r)
{
	sum->jobs = r->jobs > sum->jobs ? r->jobs : sum->jobs;
	sum->connections += r->connections;
	sum->slab += r->slab;
	sum->used += r->used;
	sum->bytes_in += r->bytes_in;
	sum->bytes_out += r->bytes_out;
	sum->errors += r->errors;
	sum->draining |= r->draining;
}

static const struct zd_table_column status_columns[] = {
	{"endpoint", "ENDPOINT", ZD_KIND_TEXT},	    {"daemon", "DAEMON", ZD_KIND_TEXT},	   {"state", "STATE", ZD_KIND_TEXT},
	{"lanes", "LANES", ZD_KIND_COUNT},	    {"jobs", "JOBS", ZD_KIND_COUNT},	   {"connections", "CONNECTIONS", ZD_KIND_COUNT},
	{"memory_used_bytes", "MEMORY USED", ZD_KIND_BYTES}, {"memory_bytes", "BUDGET", ZD_KIND_BYTES}, {"uptime_seconds", "UPTIME", ZD_KIND_SECONDS},
	{"kernels", "KERNELS", ZD_KIND_TEXT},	    {"errors", "ERRORS", ZD_KIND_COUNT},
};

int zd_ctl_status(struct zd_ctl *ctl, int argc, char **argv)
{
	struct lane_rows rows = {0};
	if (argc > 1)
		return zd_ctl_usage(ctl, "status", "expected no argument, found '%s'", argv[1]);
	int rc = zd_ctl_each_lane(ctl, collect, absent, &rows), draining = 0, written;
	if (rc && rc != ZD_CTL_CONNECT && rc != ZD_CTL_TIMEOUT)
		goto out;
	struct zd_report *report = zd_report_new("status");
	zd_report_table(report, "daemons", "", status_columns, sizeof status_columns / sizeof status_columns[0]);
	for (size_t i = 0; i < rows.count;) {
		struct lane_row sum = rows.row[i];
		size_t lanes = 1;
		if (sum.absent) {
			struct zd_cell cells[sizeof status_columns / sizeof status_columns[0]] = {ZD_TEXT(sum.endpoint), ZD_NONE, ZD_TEXT("unreachable")};
			zd_report_row(report, cells);
			i++;
			continue;
		}
		while (i + lanes < rows.count && rows.row[i + lanes].lane != 0 && !rows.row[i + lanes].absent)
			merge_daemon(&sum, &rows.row[i + lanes++]);
		draining |= sum.draining;
		struct zd_cell cells[] = {
			ZD_TEXT(sum.endpoint),	  ZD_TEXT(sum.daemon),	ZD_TEXT(sum.draining ? "draining" : "ready"),
			ZD_INTEGER(lanes),	  ZD_INTEGER(sum.jobs), ZD_INTEGER(sum.connections),
			ZD_INTEGER(sum.used),	  ZD_INTEGER(sum.slab), ZD_REAL((double)sum.uptime_ms / 1e3),
			ZD_TEXT(sum.kernels),	  ZD_INTEGER(sum.errors),
		};
		zd_report_row(report, cells);
		i += lanes;
	}
	written = zd_ctl_finish(ctl, report);
	rc = rc ? rc : written ? written : draining ? ZD_CTL_UNHEALTHY : ZD_CTL_OK;
out:
	free(rows.row);
	return rc;
}

static const struct zd_table_column lane_columns[] = {
	{"endpoint", "ENDPOINT", ZD_KIND_TEXT},	      {"daemon", "DAEMON", ZD_KIND_TEXT},	 {"lane", "LANE", ZD_KIND_COUNT},
	{"jobs", "JOBS", ZD_KIND_COUNT},	      {"connections", "CONNECTIONS", ZD_KIND_COUNT}, {"memory_used_bytes", "MEMORY USED", ZD_KIND_BYTES},
	{"memory_bytes", "BUDGET", ZD_KIND_BYTES},    {"bytes_in", "BYTES IN", ZD_KIND_BYTES},	 {"bytes_out", "BYTES OUT", ZD_KIND_BYTES},
	{"frames_in", "FRAMES IN", ZD_KIND_COUNT},    {"frames_out", "FRAMES OUT", ZD_KIND_COUNT}, {"errors", "ERRORS", ZD_KIND_COUNT},
};

int zd_ctl_lane(struct zd_ctl *ctl, int argc, char **argv)
{
	struct lane_rows rows = {0};
	if (argc < 2 || strcmp(argv[1], "list") != 0)
		return zd_ctl_usage(ctl, "lane", "expected list, found %s%s%s", argc < 2 ? "nothing" : "'", argc < 2 ? "" : argv[1],
				    argc < 2 ? "" : "'");
	if (argc > 2)
		return zd_ctl_usage(ctl, "lane list", "expected no argument, found '%s'", argv[2]);
	int rc = zd_ctl_each_lane(ctl, collect, NULL, &rows);
	if (rc == 0) {
		struct zd_report *report = zd_report_new("lane list");
		zd_report_table(report, "lanes", "", lane_columns, sizeof lane_columns / sizeof lane_columns[0]);
		for (size_t i = 0; i < rows.count; i++) {
			const struct lane_row *r = &rows.row[i];
			struct zd_cell cells[] = {
				ZD_TEXT(r->endpoint),	      ZD_TEXT(r->daemon),      ZD_INTEGER(r->lane),	ZD_INTEGER(r->jobs),
				ZD_INTEGER(r->connections),   ZD_INTEGER(r->used),     ZD_INTEGER(r->slab),	ZD_INTEGER(r->bytes_in),
				ZD_INTEGER(r->bytes_out),     ZD_INTEGER(r->frames_in), ZD_INTEGER(r->frames_out), ZD_INTEGER(r->errors),
			};
			zd_report_row(report, cells);
		}
		rc = zd_ctl_finish(ctl, report);
	}
	free(rows.row);
	return rc;
}
