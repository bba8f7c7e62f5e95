/* SPDX-License-Identifier: Apache-2.0 */
/* Runs measurements and prints JSON lines; tests/bench/run builds it and makes a table of them. */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/bench.h"
#include "tests/bench/host.h"

static const struct {
	const char *name;
	void (*run)(const struct zd_bench *b);
	const char *what;
} table[] = {
	{ "crc", zd_bench_crc, "CRC32C in cache and from memory against a plain read" },
	{ "stream", zd_bench_stream, "the bare libuv stream over loopback" },
	{ "minimal", zd_bench_minimal, "the minimal shard server with one and two workers" },
	{ "update", zd_bench_update, "the pure in-place update of a shard's planes on one and two processors" },
	{ "step", zd_bench_step, "push, reduce, step and fetch through the daemon against the minimal server" },
	{ "push", zd_bench_push, "one large push against the bare stream" },
	{ "adam", zd_bench_adam, "Adam over a whole shard in the daemon against the pure in-place update" },
	{ "checksum", zd_bench_checksum, "a push and a step with checksums against the same without" },
	{ "wire", zd_bench_wire, "bytes and frames of a step against the planner" },
};
#define TABLE_LEN (sizeof table / sizeof *table)

struct choice {
	struct zd_bench bench;
	double patience;
	uint8_t wanted[TABLE_LEN];
	int any;
};

enum { OPT_QUICK = 256, OPT_PIN, OPT_ZEROD, OPT_UNCHECKED, OPT_WAIT, OPT_PARAMS, OPT_ROUNDS, OPT_WORKERS, OPT_LANES, OPT_ISOLATE, OPT_LIST };

static const struct argp_option options[] = {
	{ "quick", OPT_QUICK, 0, 0, "Smaller and fewer samples", 0 },
	{ "pin", OPT_PIN, 0, 0, "Server on processor 0, workers on processor 1", 0 },
	{ "isolate", OPT_ISOLATE, 0, 0, "Go before other processes (needs root); for machines that are never quiet", 0 },
	{ "zerod", OPT_ZEROD, "PROGRAM", 0, "The daemon to measure", 0 },
	{ "unchecked", OPT_UNCHECKED, "PROGRAM", 0, "The same that can do without checksums", 0 },
	{ "wait", OPT_WAIT, "SECONDS", 0, "How long to wait for a quiet machine, in all (60)", 0 },
	{ "params", OPT_PARAMS, "N", 0, "Parameters of a step (50000000)", 0 },
	{ "rounds", OPT_ROUNDS, "N", 0, "Turns of baseline and product (10)", 0 },
	{ "workers", OPT_WORKERS, "N", 0, "Only cases with N workers", 0 },
	{ "lanes", OPT_LANES, "N", 0, "Only cases with N lanes", 0 },
	{ "list", OPT_LIST, 0, 0, "List the measurements", 0 },
	{ 0 },
};

static void list(void)
{
	for (size_t i = 0; i < TABLE_LEN; i++)
		printf("%-10s %s\n", table[i].name, table[i].what);
	exit(0);
}

static int want(struct choice *c, const char *name)
{
	for (size_t i = 0; i < TABLE_LEN; i++)
		if (!strcmp(table[i].name, name)) {
			c->wanted[i] = 1;
			c->any = 1;
			return 0;
		}
	return -1;
}

static double number(const char *text, double least, double most, const char *what, struct argp_state *state)
{
	char *end;
	double v = strtod(text, &end);

	if (end == text || *end || !(v >= least && v <= most))
		argp_error(state, "%s: expected a number from %g to %g, found '%s'", what, least, most, text);
	return v;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct choice *c = state->input;

	switch (key) {
	case OPT_QUICK:
		c->bench.quick = 1;
		break;
	case OPT_PIN:
		c->bench.pin = 1;
		break;
	case OPT_ISOLATE:
		zd_host_isolate();
		break;
	case OPT_ZEROD:
		c->bench.zerod = arg;
		break;
	case OPT_UNCHECKED:
		c->bench.unchecked = arg;
		break;
	case OPT_WAIT:
		c->patience = number(arg, 0, 86400, "--wait", state);
		break;
	case OPT_PARAMS:
		c->bench.params = (size_t)number(arg, 1 << 20, 1e10, "--params", state);
		break;
	case OPT_ROUNDS:
		c->bench.rounds = (uint32_t)number(arg, 1, 100, "--rounds", state);
		break;
	case OPT_WORKERS:
		c->bench.workers = (uint32_t)number(arg, 1, 2, "--workers", state);
		break;
	case OPT_LANES:
		c->bench.lanes = (uint32_t)number(arg, 1, 2, "--lanes", state);
		break;
	case OPT_LIST:
		list();
		break;
	case ARGP_KEY_ARG:
		if (want(c, arg))
			argp_error(state, "no measurement '%s'; --list names them", arg);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

int main(int argc, char **argv)
{
	static const struct argp argp = { options, parse, "[MEASUREMENT...]", "Measures zerod against what the machine can do.", 0, 0, 0 };
	struct choice c = { .patience = 60 };

	argp_err_exit_status = 2;
	argp_parse(&argp, argc, argv, 0, NULL, &c);
	if (c.bench.params == 0)
		c.bench.params = c.bench.quick ? 12u << 20 : 50000000;
	if (c.bench.rounds == 0)
		c.bench.rounds = c.bench.quick ? 3 : 10;
	zd_host_set_patience(c.patience);
	for (size_t i = 0; i < TABLE_LEN; i++)
		if (c.wanted[i] || !c.any)
			table[i].run(&c.bench);
	return 0;
}
