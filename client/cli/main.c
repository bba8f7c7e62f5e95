/* SPDX-License-Identifier: Apache-2.0 */
/* zeroctl: options that hold for every command, the command, and options again. */
#include <argp.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/ctl.h"
#include "client/cli/help.h"
#include "client/cli/plan.h"
#include "client/cli/simulate.h"
#include "proto/program.h"

static const char *const default_endpoints = "127.0.0.1:7410";

#define WORDS_MAX 8 /* of a command; none has that many */

enum { K_STEPS = 256 };

static const char examples[] =
	"Examples:\n"
	"  zeroctl status\n"
	"  zeroctl --endpoints a:7410,b:7410 job list\n"
	"  zeroctl -o json job show llama-7b\n"
	"  zeroctl --yes job drop old-run\n"
	"  zeroctl plan memory -N 7.5e9 -n 64\n"
	"  zeroctl simulate stage3\n"
	"\n";

static const char doc[] =
	"Administers zerod shard daemons, and plans for them.\v"
	"Commands:\n"
	"  status                 the daemons: memory, jobs, connections\n"
	"  job list|show|drop     jobs over all daemons\n"
	"  lane list              the lanes of every daemon\n"
	"  plan memory|comm|hybrid|step\n"
	"                         what ZeRO, FSDP and zerod need\n"
	"  simulate adam|stage3   teaching simulations\n"
	"  doctor                 checks this host, and daemons if --endpoints is given\n"
	"  bench                  measures push, step and fetch with a job of its own\n"
	"\n"
	"zeroctl COMMAND --help says more about one.\n"
	"Environment: ZEROCTL_ENDPOINTS, ZEROCTL_OUTPUT, ZEROCTL_TIMEOUT; options win.\n"
	"Exit status: 0 done, 1 failed, 2 usage, 3 cannot connect, 4 refused, 5 unhealthy, 124 timed out, 130 interrupted.";

/* clang-format off */
#define OPTIONS                                                                             \
	{"endpoints", 'e', "HOST:PORT,...", 0, "daemons to ask (127.0.0.1:7410)", 0},       \
	{"output", 'o', "table|json|csv", 0, "how answers are written (table)", 0},         \
	{"timeout", 't', "SECONDS", 0, "bound on the whole command (10)", 0},               \
	{"yes", 'y', NULL, 0, "go through with what destroys", 0},                          \
	ZD_PROGRAM_OPTIONS,                                                                 \
	{0}
/* clang-format on */

static const struct argp_option options[] = {OPTIONS};
static const struct argp_option bench_options[] = {
	{NULL, 'n', "PARAMETERS", 0, "of the job (16e6)", 0},
	{"steps", K_STEPS, "N", 0, "to measure (10)", 0},
	OPTIONS,
};

struct command_line {
	struct zd_ctl *ctl;
	int command; /* its index among all arguments */
	int help;    /* asked for, behind the command */
	int argc;    /* its words: without options */
	char *argv[WORDS_MAX + 1];
};

static int set_format(struct zd_ctl *ctl, const char *text)
{
	static const char *const names[] = {"table", "json", "csv"};
	for (unsigned i = 0; i < 3; i++)
		if (strcmp(text, names[i]) == 0) {
			ctl->format = (enum zd_table_format)i;
			return 0;
		}
	return -1;
}

static int set_timeout(struct zd_ctl *ctl, const char *text)
{
	char *end;
	errno = 0;
	double s = strtod(text, &end);
	if (end == text || *end || errno || !(s > 0) || s > 86400)
		return -1;
	ctl->timeout_ms = (uint64_t)ceil(s * 1e3); /* 0 would be no bound */
	return 0;
}

static error_t parse(int key, char *arg, struct zd_ctl *ctl, struct argp_state *state)
{
	switch (key) {
	case 'e':
		ctl->endpoints = arg;
		ctl->endpoints_given = 1;
		return 0;
	case 'o':
		if (set_format(ctl, arg) < 0)
			argp_error(state, "--output: expected table, json or csv, found '%s'", arg);
		return 0;
	case 't':
		if (set_timeout(ctl, arg) < 0)
			argp_error(state, "--timeout: expected seconds between 0 and 86400, found '%s'", arg);
		return 0;
	case 'y':
		ctl->yes = 1;
		return 0;
	default:
		return zd_program_help(key, examples, state) ? 0 : ARGP_ERR_UNKNOWN;
	}
}

/* Up to the command, which stays for somebody else. */
static error_t parse_first(int key, char *arg, struct argp_state *state)
{
	struct command_line *line = state->input;
	if (key != ARGP_KEY_ARG)
		return parse(key, arg, line->ctl, state);
	line->command = state->next - 1; /* it and everything behind it is its own */
	state->next = state->argc;
	return 0;
}

/* From the command on: its words and the same options. */
static error_t parse_command(int key, char *arg, struct argp_state *state)
{
	struct command_line *line = state->input;
	switch (key) {
	case ARGP_KEY_ARG:
		if (line->argc == WORDS_MAX)
			argp_error(state, "expected at most %d words, found '%s' as one more", WORDS_MAX, arg);
		line->argv[line->argc++] = arg;
		return 0;
	case 'n':
		line->ctl->params = arg;
		return 0;
	case K_STEPS:
		line->ctl->steps = arg;
		return 0;
	case '?':
	case 'h':
		line->help = 1; /* its verb may come yet */
		return 0;
	default: return parse(key, arg, line->ctl, state);
	}
}

int zd_ctl_usage(struct zd_ctl *ctl, const char *noun, const char *format, ...)
{
	va_list args;
	fprintf(ctl->err, "zeroctl %s: ", noun);
	va_start(args, format);
	vfprintf(ctl->err, format, args);
	va_end(args);
	fprintf(ctl->err, "; see: zeroctl %s --help\n", noun);
	return ZD_CTL_USAGE;
}

static int environment(struct zd_ctl *ctl)
{
	const char *e = getenv("ZEROCTL_ENDPOINTS"), *o = getenv("ZEROCTL_OUTPUT"), *t = getenv("ZEROCTL_TIMEOUT");
	ctl->endpoints = e && *e ? e : default_endpoints;
	if (o && *o && set_format(ctl, o) < 0) {
		fprintf(stderr, "zeroctl: ZEROCTL_OUTPUT: expected table, json or csv, found '%s'\n", o);
		return ZD_CTL_USAGE;
	}
	if (t && *t && set_timeout(ctl, t) < 0) {
		fprintf(stderr, "zeroctl: ZEROCTL_TIMEOUT: expected seconds between 0 and 86400, found '%s'\n", t);
		return ZD_CTL_USAGE;
	}
	return 0;
}

static int each_lane_of(struct zd_ctl *ctl, const char *endpoint, uint64_t deadline, zd_ctl_visit *visit, void *arg)
{
	uint32_t lanes = 1;
	int rc = 0;
	for (uint32_t lane = 0; lane < lanes && rc == 0; lane++) {
		struct zd_admin a;
		rc = zd_admin_open(&a, endpoint, lane, deadline);
		if (rc) {
			fprintf(ctl->err, "zeroctl: %s\n", a.detail);
		} else {
			lanes = a.lane_count;
			rc = visit(ctl, &a, arg);
		}
		zd_admin_close(&a);
	}
	return rc;
}

static uint64_t deadline_from_now(const struct zd_ctl *ctl)
{
	return zd_admin_now_ns() + ctl->timeout_ms * 1000000u;
}

int zd_ctl_each_lane(struct zd_ctl *ctl, zd_ctl_visit *visit, zd_ctl_absent *absent, void *arg)
{
	uint64_t deadline = deadline_from_now(ctl);
	char *list = strdup(ctl->endpoints), *rest = list, *endpoint;
	int first = list ? 0 : ZD_CTL_FAILED;
	while ((first == 0 || absent) && (endpoint = strsep(&rest, ",")) != NULL) {
		int rc = each_lane_of(ctl, endpoint, absent ? deadline_from_now(ctl) : deadline, visit, arg);
		if (rc && absent && (rc == ZD_CTL_CONNECT || rc == ZD_CTL_TIMEOUT))
			absent(endpoint, arg);
		else if (rc)
			absent = NULL;
		first = first ? first : rc;
	}
	free(list);
	return first;
}

int zd_ctl_finish(struct zd_ctl *ctl, struct zd_report *report)
{
	int rc = zd_report_write(report, ctl->format, ctl->out);
	zd_report_free(report);
	if (rc == 0)
		return ZD_CTL_OK;
	fprintf(ctl->err, "zeroctl: the answer cannot be written: %s\n", ferror(ctl->out) ? "check where standard output goes" : "no memory for it");
	return ZD_CTL_FAILED;
}

/* plan and simulate know no daemons: they take their own options and are given the format where it was set before the command. */
static int pure_command(struct zd_ctl *ctl, int (*run)(int, char **, FILE *, FILE *), int argc, char **argv)
{
	static char output[] = "-o";
	char *with[64];
	const char *const names[] = {"table", "json", "csv"};
	if (argc + 3 > (int)(sizeof with / sizeof with[0])) {
		fprintf(ctl->err, "zeroctl %s: too many arguments\n", argv[0]);
		return ZD_CTL_USAGE;
	}
	if (argc < 2 || ctl->format == ZD_FORMAT_TABLE)
		return run(argc, argv, ctl->out, ctl->err);
	/* "-o FORMAT" behind the sub-command, before its own options, so that those win */
	char *format = strdup(names[ctl->format]);
	if (!format)
		return ZD_CTL_FAILED;
	int n = 0;
	with[n++] = argv[0];
	with[n++] = argv[1];
	with[n++] = output;
	with[n++] = format;
	for (int i = 2; i < argc; i++)
		with[n++] = argv[i];
	with[n] = NULL;
	int rc = run(n, with, ctl->out, ctl->err);
	free(format);
	return rc;
}

volatile sig_atomic_t zd_ctl_interrupt;

static void interrupted(int signal)
{
	(void)signal;
	if (zd_ctl_interrupt != ZD_CTL_LATER)
		_exit(ZD_CTL_INTERRUPTED);
	zd_ctl_interrupt = ZD_CTL_NOW;
}

/* argv: the command and everything behind it. */
static int daemon_command(struct zd_ctl *ctl, int (*run)(struct zd_ctl *, int, char **), int argc, char **argv)
{
	const struct argp argp = {run == zd_ctl_bench ? bench_options : options, parse_command, "", NULL, NULL, NULL, NULL};
	struct command_line line = {.ctl = ctl, .argc = 1, .argv = {argv[0]}};
	char name[64];
	snprintf(name, sizeof name, "zeroctl %s", argv[0]);
	argv[0] = name; /* what argp's messages begin with */
	argp_parse(&argp, argc, argv, ARGP_NO_HELP, NULL, &line);
	if (!line.help)
		return run(ctl, line.argc, line.argv);
	fputs(zd_ctl_help(line.argv[0], line.argc > 1 ? line.argv[1] : NULL), stdout);
	return ZD_CTL_OK;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(struct zd_ctl *, int, char **);
	} commands[] = {
		{"status", zd_ctl_status}, {"job", zd_ctl_job}, {"lane", zd_ctl_lane}, {"doctor", zd_ctl_doctor}, {"bench", zd_ctl_bench},
	};
	struct zd_ctl ctl = {.timeout_ms = 10000, .out = stdout, .err = stderr};
	struct command_line line = {.ctl = &ctl, .command = argc};
	const struct argp argp = {options, parse_first, "COMMAND ...", doc, NULL, NULL, NULL};
	zd_program_begin("zeroctl");
	int rc = environment(&ctl);
	if (rc)
		return rc;
	signal(SIGINT, interrupted);
	argp_err_exit_status = ZD_CTL_USAGE;
	argv[0] = program_invocation_short_name;
	argp_parse(&argp, argc, argv, ARGP_IN_ORDER | ARGP_NO_HELP, NULL, &line);
	argc -= line.command;
	argv += line.command;
	if (argc == 0) {
		fprintf(stderr, "zeroctl: a command is missing; 'zeroctl --help' shows them\n");
		return ZD_CTL_USAGE;
	}
	for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
		if (strcmp(argv[0], commands[i].name) == 0)
			return daemon_command(&ctl, commands[i].run, argc, argv);
	if (strcmp(argv[0], "plan") == 0)
		return pure_command(&ctl, zd_cli_plan, argc, argv);
	if (strcmp(argv[0], "simulate") == 0)
		return pure_command(&ctl, zd_cli_simulate, argc, argv);
	fprintf(stderr, "zeroctl: no command '%s'; expected status, job, lane, plan, simulate, doctor or bench; see: zeroctl --help\n", argv[0]);
	return ZD_CTL_USAGE;
}
