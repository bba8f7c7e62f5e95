/* SPDX-License-Identifier: Apache-2.0 */
/* zeroctl job list|show|drop: a job is the sum of its lanes. */
#include "client/cli/ctl.h"

#include <stdlib.h>
#include <string.h>

/* A job as all lanes together have it. */
struct job_row {
	char name[ZD_NAME_MAX + 1];
	uint32_t lanes, lane_count, state, world, joined, attempt;
	uint64_t params, trainable, bytes, decided, step, epoch, pushed, fetched, skipped;
	double norm;
	int sealed;
};

struct job_rows {
	struct job_row row[ZD_JOBS_MAX * 4]; /* several daemons may hold different jobs */
	size_t count;
	const char *only; /* name, or NULL for all */
};

static const char *state_name(uint32_t state)
{
	static const char *const names[] = {"unsealed", "idle", "collecting", "writing", "prepared"};
	return state < sizeof names / sizeof names[0] ? names[state] : "unknown";
}

static void add_lane(struct job_rows *rows, const Zd__Pb__JobStatus *j)
{
	struct job_row *r = NULL;
	if (rows->only && strcmp(rows->only, j->name) != 0)
		return;
	for (size_t i = 0; i < rows->count && !r; i++)
		if (strcmp(rows->row[i].name, j->name) == 0)
			r = &rows->row[i];
	if (!r) {
		if (rows->count == sizeof rows->row / sizeof rows->row[0])
			return;
		r = &rows->row[rows->count++];
		memset(r, 0, sizeof *r);
		snprintf(r->name, sizeof r->name, "%.63s", j->name);
		r->decided = j->decided;
		r->step = j->step;
		r->sealed = 1;
	}
	r->lanes++;
	r->lane_count = j->lane_count;
	r->state = j->state > r->state ? j->state : r->state;
	r->world = j->world > r->world ? j->world : r->world;
	r->joined = j->joined > r->joined ? j->joined : r->joined;
	r->epoch = j->epoch > r->epoch ? j->epoch : r->epoch;
	r->attempt = j->attempt > r->attempt ? j->attempt : r->attempt;
	r->params += j->params;
	r->trainable += j->trainable;
	r->bytes += j->bytes;
	r->decided = j->decided < r->decided ? j->decided : r->decided;
	r->step = j->step < r->step ? j->step : r->step;
	r->pushed += j->pushed_bytes;
	r->fetched += j->fetched_bytes;
	r->skipped = j->skipped > r->skipped ? j->skipped : r->skipped;
	r->norm = j->norm;
	r->sealed &= j->sealed;
}

static int collect(struct zd_ctl *ctl, struct zd_admin *a, void *arg)
{
	Zd__Pb__Status ask = ZD__PB__STATUS__INIT;
	const ProtobufCMessage *answer;
	int rc = zd_admin_ask(a, ZD_MSG_STATUS, &ask.base, ZD_MSG_STATUS_REPLY, &answer, NULL);
	if (rc) {
		fprintf(ctl->err, "zeroctl: %s\n", a->detail);
		return rc;
	}
	const Zd__Pb__StatusReply *s = (const Zd__Pb__StatusReply *)answer;
	for (size_t i = 0; i < s->n_jobs; i++)
		add_lane(arg, s->jobs[i]);
	return 0;
}

static const struct zd_table_column list_columns[] = {
	{"name", "JOB", ZD_KIND_TEXT},
	{"state", "STATE", ZD_KIND_TEXT},
	{"step", "STEP", ZD_KIND_COUNT},
	{"round", "ROUND", ZD_KIND_COUNT},
	{"epoch", "EPOCH", ZD_KIND_COUNT},
	{"joined", "JOINED", ZD_KIND_COUNT},
	{"world", "WORLD", ZD_KIND_COUNT},
	{"lanes", "LANES", ZD_KIND_COUNT},
	{"lane_count", "OF", ZD_KIND_COUNT},
	{"params", "PARAMETERS", ZD_KIND_COUNT},
	{"memory_bytes", "MEMORY", ZD_KIND_BYTES},
	{"pushed_bytes", "PUSHED", ZD_KIND_BYTES},
	{"fetched_bytes", "FETCHED", ZD_KIND_BYTES},
	{"norm", "GRADIENT NORM", ZD_KIND_NUMBER},
	{"skipped", "SKIPPED", ZD_KIND_COUNT},
};

static void list_row(struct zd_report *report, const struct job_row *r)
{
	struct zd_cell cells[] = {
		ZD_TEXT(r->name),	ZD_TEXT(r->sealed ? state_name(r->state) : "unsealed"), ZD_INTEGER(r->step),
		ZD_INTEGER(r->decided), ZD_INTEGER(r->epoch),	   ZD_INTEGER(r->joined),  ZD_INTEGER(r->world),
		ZD_INTEGER(r->lanes),	ZD_INTEGER(r->lane_count),
		ZD_INTEGER(r->params),	ZD_INTEGER(r->bytes),	   ZD_INTEGER(r->pushed),  ZD_INTEGER(r->fetched),
		ZD_REAL(r->norm),	ZD_INTEGER(r->skipped),
	};
	zd_report_row(report, cells);
}

static int job_list(struct zd_ctl *ctl)
{
	struct job_rows rows = {.count = 0};
	int rc = zd_ctl_each_lane(ctl, collect, NULL, &rows), partial = 0;
	if (rc)
		return rc;
	struct zd_report *report = zd_report_new("job list");
	zd_report_table(report, "jobs", "", list_columns, sizeof list_columns / sizeof list_columns[0]);
	for (size_t i = 0; i < rows.count; i++) {
		list_row(report, &rows.row[i]);
		partial |= rows.row[i].lanes != rows.row[i].lane_count;
	}
	if (partial)
		zd_report_note(report, "a job has lanes on daemons that --endpoints does not name, or has lost some");
	return zd_ctl_finish(ctl, report);
}

/* ---- show */

static const struct zd_table_column unit_columns[] = {
	{"unit", "UNIT", ZD_KIND_COUNT},
	{"name", "NAME", ZD_KIND_TEXT},
	{"numel", "ELEMENTS", ZD_KIND_COUNT},
	{"frozen", "FROZEN", ZD_KIND_BOOL},
};

/* A rank as all lanes together have it. */
struct rank_row {
	uint32_t joined, committed; /* lanes */
	uint64_t silent_ms;	    /* on the lane that has heard it least lately */
	int heard;
};

static const struct zd_table_column rank_columns[] = {
	{"rank", "RANK", ZD_KIND_COUNT},
	{"joined_lanes", "JOINED LANES", ZD_KIND_COUNT},
	{"committed_lanes", "COMMITTED LANES", ZD_KIND_COUNT},
	{"silent_seconds", "SILENT FOR", ZD_KIND_SECONDS},
};

struct show {
	const char *name;
	struct zd_report *report;
	int found;
	uint64_t epoch; /* of the ranks: the highest that a lane has */
	uint32_t world;
	struct rank_row rank[ZD_WORLD_MAX];
};

static const char *optimizer_name(uint32_t o)
{
	return o == 0 ? "none" : o == 1 ? "adamw" : o == 2 ? "adam" : "unknown";
}

static void show_spec(struct zd_report *report, const Zd__Pb__JobSpec *spec)
{
	static const char *const codecs[] = {"bf16", "fp16", "fp32"};
	zd_report_field(report, "optimizer", ZD_KIND_TEXT, ZD_TEXT(optimizer_name(spec->optimizer)));
	zd_report_field(report, "grad_codec", ZD_KIND_TEXT, ZD_TEXT(spec->grad_codec < 3 ? codecs[spec->grad_codec] : "unknown"));
	zd_report_field(report, "extent_elems", ZD_KIND_COUNT, ZD_INTEGER(spec->extent_elems));
	zd_report_field(report, "lease_seconds", ZD_KIND_SECONDS, ZD_REAL(spec->lease_ms / 1e3));
	zd_report_table(report, "units", "", unit_columns, sizeof unit_columns / sizeof unit_columns[0]);
	for (size_t i = 0; i < spec->n_units; i++) {
		struct zd_cell cells[] = {ZD_INTEGER(i), ZD_TEXT(spec->units[i]->name), ZD_INTEGER(spec->units[i]->numel),
					  ZD_BOOL(spec->units[i]->has_frozen && spec->units[i]->frozen)};
		zd_report_row(report, cells);
	}
}

static void add_ranks(struct show *show, const Zd__Pb__ShowReply *reply)
{
	if (reply->status->epoch < show->epoch)
		return;
	if (reply->status->epoch > show->epoch)
		memset(show->rank, 0, sizeof show->rank);
	show->epoch = reply->status->epoch;
	show->world = reply->status->world;
	for (size_t i = 0; i < reply->n_workers; i++) {
		const Zd__Pb__Worker *w = reply->workers[i];
		struct rank_row *r = &show->rank[w->rank];
		r->joined += w->joined != 0;
		r->committed += w->committed != 0;
		r->heard |= w->has_heard_ms != 0;
		r->silent_ms = w->has_heard_ms && w->heard_ms > r->silent_ms ? w->heard_ms : r->silent_ms;
	}
}

static void show_ranks(struct show *show)
{
	zd_report_table(show->report, "ranks", "", rank_columns, sizeof rank_columns / sizeof rank_columns[0]);
	for (uint32_t i = 0; i < show->world; i++) {
		const struct rank_row *r = &show->rank[i];
		struct zd_cell cells[] = {ZD_INTEGER(i), ZD_INTEGER(r->joined), ZD_INTEGER(r->committed),
					  r->heard ? ZD_REAL((double)r->silent_ms / 1e3) : ZD_NONE};
		zd_report_row(show->report, cells);
	}
}

static int show_lane(struct zd_ctl *ctl, struct zd_admin *a, void *arg)
{
	struct show *show = arg;
	Zd__Pb__Show ask = ZD__PB__SHOW__INIT;
	const ProtobufCMessage *answer;
	uint32_t code = 0;
	char name[ZD_NAME_MAX + 1];
	snprintf(name, sizeof name, "%.63s", show->name);
	ask.name = name;
	int rc = zd_admin_ask(a, ZD_MSG_SHOW, &ask.base, ZD_MSG_SHOW_REPLY, &answer, &code);
	if (rc == ZD_CTL_REFUSED && code == ZD_ERR_NO_JOB)
		return 0;
	if (rc) {
		fprintf(ctl->err, "zeroctl: %s\n", a->detail);
		return rc;
	}
	if (!show->found)
		show_spec(show->report, ((const Zd__Pb__ShowReply *)answer)->spec);
	show->found = 1;
	add_ranks(show, (const Zd__Pb__ShowReply *)answer);
	return 0;
}

static int job_show(struct zd_ctl *ctl, const char *name)
{
	struct job_rows rows = {.only = name};
	struct show show = {.name = name};
	int rc = zd_ctl_each_lane(ctl, collect, NULL, &rows);
	if (rc)
		return rc;
	if (rows.count == 0) {
		fprintf(ctl->err, "zeroctl: no job '%s' on %s; 'zeroctl job list' shows what is there\n", name, ctl->endpoints);
		return ZD_CTL_REFUSED;
	}
	show.report = zd_report_new("job show");
	zd_report_field(show.report, "name", ZD_KIND_TEXT, ZD_TEXT(name));
	rc = zd_ctl_each_lane(ctl, show_lane, NULL, &show);
	if (rc) {
		zd_report_free(show.report);
		return rc;
	}
	zd_report_table(show.report, "jobs", "", list_columns, sizeof list_columns / sizeof list_columns[0]);
	list_row(show.report, &rows.row[0]);
	show_ranks(&show);
	return zd_ctl_finish(ctl, show.report);
}

/* ---- drop */

struct drop {
	const char *name;
	uint64_t bytes;
	uint32_t lanes, lane_count; /* dropped, and those of the job */
};

static int drop_lane(struct zd_ctl *ctl, struct zd_admin *a, void *arg)
{
	struct drop *drop = arg;
	Zd__Pb__Show show = ZD__PB__SHOW__INIT;
	Zd__Pb__Drop ask = ZD__PB__DROP__INIT;
	const ProtobufCMessage *answer;
	uint32_t code = 0;
	char name[ZD_NAME_MAX + 1];
	snprintf(name, sizeof name, "%.63s", drop->name);
	show.name = ask.name = name;
	int rc = zd_admin_ask(a, ZD_MSG_SHOW, &show.base, ZD_MSG_SHOW_REPLY, &answer, &code);
	if (rc == 0) {
		drop->lane_count = ((const Zd__Pb__ShowReply *)answer)->status->lane_count;
		rc = zd_admin_ask(a, ZD_MSG_DROP, &ask.base, ZD_MSG_DROPPED, &answer, &code);
	}
	if (rc == ZD_CTL_REFUSED && code == ZD_ERR_NO_JOB)
		return 0;
	if (rc) {
		fprintf(ctl->err, "zeroctl: %s\n", a->detail);
		return rc;
	}
	drop->bytes += ((const Zd__Pb__Dropped *)answer)->bytes;
	drop->lanes++;
	return 0;
}

static int job_drop(struct zd_ctl *ctl, const char *name)
{
	struct drop drop = {.name = name};
	if (!ctl->yes) {
		fprintf(ctl->err, "zeroctl: 'job drop %s' destroys the weights and moments of the job on every daemon of --endpoints; "
				  "add --yes if you mean it\n",
			name);
		return ZD_CTL_USAGE;
	}
	int rc = zd_ctl_each_lane(ctl, drop_lane, NULL, &drop);
	if (rc && drop.lanes)
		fprintf(ctl->err, "zeroctl: job '%s' is dropped on %u lanes already, and what is left of it cannot be trained: say this again once every "
				  "daemon of --endpoints answers, or name those that do\n",
			name, drop.lanes);
	if (rc)
		return rc;
	if (drop.lanes == 0) {
		fprintf(ctl->err, "zeroctl: no job '%s' on %s; nothing was dropped\n", name, ctl->endpoints);
		return ZD_CTL_REFUSED;
	}
	struct zd_report *report = zd_report_new("job drop");
	zd_report_field(report, "name", ZD_KIND_TEXT, ZD_TEXT(name));
	zd_report_field(report, "lanes", ZD_KIND_COUNT, ZD_INTEGER(drop.lanes));
	zd_report_field(report, "freed_bytes", ZD_KIND_BYTES, ZD_INTEGER(drop.bytes));
	if (drop.lanes < drop.lane_count)
		zd_report_note(report, "dropped %u of the %u lanes of the job: the others are on daemons that --endpoints does not name, or were lost before",
			       drop.lanes, drop.lane_count);
	return zd_ctl_finish(ctl, report);
}

/* The one name behind `job VERB`; NULL: said what is wrong. */
static const char *job_name(struct zd_ctl *ctl, const char *topic, int argc, char **argv)
{
	size_t len = argc > 2 ? strlen(argv[2]) : 0, printable = 0;
	while (printable < len && argv[2][printable] >= 0x20 && argv[2][printable] < 0x7f)
		printable++;
	if (argc < 3)
		zd_ctl_usage(ctl, topic, "expected the name of a job, found nothing");
	else if (argc > 3)
		zd_ctl_usage(ctl, topic, "expected one name, found '%s' behind it", argv[3]);
	else if (len == 0 || len > ZD_NAME_MAX)
		zd_ctl_usage(ctl, topic, "expected a name of 1 to %u bytes, found %zu", ZD_NAME_MAX, len);
	else if (printable < len) /* the protocol has no such names */
		zd_ctl_usage(ctl, topic, "expected a name in printable ASCII, found byte 0x%02x at %zu", (unsigned char)argv[2][printable], printable);
	else
		return argv[2];
	return NULL;
}

int zd_ctl_job(struct zd_ctl *ctl, int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : NULL, *name;
	if (!verb)
		return zd_ctl_usage(ctl, "job", "expected list, show or drop, found nothing");
	if (strcmp(verb, "list") == 0)
		return argc == 2 ? job_list(ctl) : zd_ctl_usage(ctl, "job list", "expected no argument, found '%s'", argv[2]);
	if (strcmp(verb, "show") == 0)
		return (name = job_name(ctl, "job show", argc, argv)) ? job_show(ctl, name) : ZD_CTL_USAGE;
	if (strcmp(verb, "drop") == 0)
		return (name = job_name(ctl, "job drop", argc, argv)) ? job_drop(ctl, name) : ZD_CTL_USAGE;
	return zd_ctl_usage(ctl, "job", "expected list, show or drop, found '%s'", verb);
}
