/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zeroctl bench: what the daemons and the network between do for a trainer, measured with a job of its own that is dropped at the end.
 * One worker pushes a gradient, takes the step and fetches the weights, with no compute in between.
 */
#include "client/cli/ctl.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/include/zerod.h"

#define UNITS 8u
#define STEPS_DEFAULT 10u
#define STEPS_MAX 1000u

struct bench {
	struct zerod_client *client;
	struct zerod_unit unit[UNITS];
	char unit_name[UNITS][16];
	char job[64];
	uint64_t numel; /* per unit */
	uint32_t steps;
	uint16_t *grad;
	double step_s[STEPS_MAX], push_s[STEPS_MAX], fetch_s[STEPS_MAX];
};

static double now_s(void)
{
	return (double)zd_admin_now_ns() * 1e-9;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *v, size_t n)
{
	qsort(v, n, sizeof *v, by_value);
	return n % 2 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]);
}

static int exit_code(int status)
{
	return status == ZEROD_ERR_CONNECT   ? ZD_CTL_CONNECT
	       : status == ZEROD_ERR_TIMEOUT ? ZD_CTL_TIMEOUT
	       : status == ZEROD_ERR_REFUSED ? ZD_CTL_REFUSED
					     : ZD_CTL_FAILED;
}

static int prepare(struct zd_ctl *ctl, struct bench *b)
{
	struct zerod_options o;
	char detail[512] = "";
	zerod_options_init(&o);
	snprintf(b->job, sizeof b->job, "zeroctl-bench-%ld", (long)getpid());
	for (unsigned u = 0; u < UNITS; u++) {
		snprintf(b->unit_name[u], sizeof b->unit_name[u], "unit.%u", u);
		b->unit[u] = (struct zerod_unit){b->unit_name[u], b->numel, 0};
	}
	o.endpoints = ctl->endpoints;
	o.job = b->job;
	o.optimizer = ZEROD_OPTIMIZER_ADAMW;
	o.grad_codec = ZEROD_BF16;
	o.world = 1;
	o.epoch = 1;
	o.timeout_ms = (uint32_t)ctl->timeout_ms;
	if (ctl->timeout_ms < o.connect_timeout_ms)
		o.connect_timeout_ms = (uint32_t)ctl->timeout_ms;
	o.gather_bytes_max = 2 * UNITS * b->numel;
	o.prefetch = UNITS;
	b->grad = malloc(b->numel * sizeof *b->grad);
	if (!b->grad) {
		fprintf(ctl->err, "zeroctl bench: no memory for a gradient of %llu elements; choose a smaller -n\n", (unsigned long long)b->numel);
		return ZD_CTL_FAILED;
	}
	for (uint64_t i = 0; i < b->numel; i++)
		b->grad[i] = (uint16_t)(0x3c00u + (i * 37u) % 128u);
	int rc = zerod_new(&b->client, &o, b->unit, UNITS, detail, sizeof detail);
	if (rc) {
		fprintf(ctl->err, "zeroctl bench: %s\n", detail);
		return ZD_CTL_FAILED;
	}
	rc = zerod_connect(b->client);
	for (uint32_t u = 0; u < UNITS && !rc; u++)
		rc = zerod_load(b->client, u, ZEROD_BF16, b->grad);
	if (!rc)
		rc = zerod_seal(b->client);
	if (!rc)
		return 0;
	fprintf(ctl->err, "zeroctl bench: %s%s\n", zerod_detail(b->client),
		rc == ZEROD_ERR_REFUSED ? "; -n chooses fewer parameters (16 bytes each on the daemons)" : "");
	return exit_code(rc);
}

static int one_step(struct bench *b, uint32_t s)
{
	struct zerod_hyper h;
	struct zerod_step_result result;
	const uint16_t *weights;
	double t0 = now_s(), t1;
	int rc = 0;
	zerod_hyper_init(&h);
	for (uint32_t u = UNITS; u-- > 0 && !rc;)
		rc = zerod_push_start(b->client, u, 0, 1, b->grad, NULL, NULL);
	if (!rc)
		rc = zerod_push_flush(b->client);
	t1 = now_s();
	if (!rc)
		rc = zerod_step(b->client, &h, 1, &result);
	for (uint32_t u = 0; u < UNITS && !rc; u++) {
		rc = zerod_gather(b->client, u, &weights);
		if (!rc)
			rc = zerod_release(b->client, u, 0);
	}
	b->push_s[s] = t1 - t0;
	b->fetch_s[s] = now_s() - t1;
	b->step_s[s] = now_s() - t0;
	return rc;
}

static const struct zd_table_column bench_columns[] = {
	{"name", "MEASURE", ZD_KIND_TEXT},
	{"seconds", "MEDIAN", ZD_KIND_SECONDS},
	{"ns_per_param", "NS/PARAMETER", ZD_KIND_NUMBER},
	{"bytes_per_second", "PAYLOAD RATE", ZD_KIND_RATE},
};

static int report(struct zd_ctl *ctl, struct bench *b)
{
	double n = (double)b->numel * UNITS;
	struct {
		const char *name;
		double *v, bytes;
	} rows[] = {{"push", b->push_s, 2 * n}, {"step + fetch", b->fetch_s, 2 * n}, {"whole step", b->step_s, 4 * n}};
	struct zd_report *r = zd_report_new("bench");
	zd_report_field(r, "params", ZD_KIND_COUNT, ZD_REAL(n));
	zd_report_field(r, "steps", ZD_KIND_COUNT, ZD_INTEGER(b->steps));
	zd_report_table(r, "measures", "", bench_columns, sizeof bench_columns / sizeof bench_columns[0]);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		double s = median(rows[i].v, b->steps);
		struct zd_cell cells[] = {ZD_TEXT(rows[i].name), ZD_REAL(s), ZD_REAL(s * 1e9 / n), ZD_REAL(rows[i].bytes / s)};
		zd_report_row(r, cells);
	}
	zd_report_note(r, "one worker without compute; 'step + fetch' includes Adam, which runs as weights are fetched");
	return zd_ctl_finish(ctl, r);
}

/* A number as typed, or the default; -1: said what is wrong. */
static int number(struct zd_ctl *ctl, const char *option, const char *text, double min, double max, double *value)
{
	char *end;
	double v;
	if (!text)
		return 0;
	v = strtod(text, &end);
	if (end == text || *end || !(v >= min && v <= max)) {
		zd_ctl_usage(ctl, "bench", "%s: expected a number from %g to %g, found '%s'", option, min, max, text);
		return -1;
	}
	*value = v;
	return 0;
}

static int parse(struct zd_ctl *ctl, struct bench *b, int argc, char **argv)
{
	double n = 16e6, steps = STEPS_DEFAULT;
	if (argc > 1)
		return zd_ctl_usage(ctl, "bench", "expected only options, found '%s'", argv[1]);
	if (number(ctl, "-n", ctl->params, UNITS, 1e10, &n) < 0 || number(ctl, "--steps", ctl->steps, 1, STEPS_MAX, &steps) < 0)
		return ZD_CTL_USAGE;
	b->steps = (uint32_t)steps;
	b->numel = (uint64_t)(n / UNITS);
	return 0;
}

/* silent: something else has gone wrong, and was said. */
static int drop(struct zd_ctl *ctl, struct bench *b, int silent)
{
	char word[] = "job", verb[] = "drop";
	char *argv[] = {word, verb, b->job, NULL};
	struct zd_ctl quiet = *ctl;
	quiet.yes = 1;
	quiet.out = fopen("/dev/null", "w");
	if (!quiet.out)
		return ZD_CTL_FAILED;
	if (silent)
		quiet.err = quiet.out;
	int rc = zd_ctl_job(&quiet, 3, argv);
	fclose(quiet.out);
	return rc;
}

static int measure(struct zd_ctl *ctl, struct bench *b)
{
	int status = one_step(b, 0); /* not counted: first touch of all memory */
	for (uint32_t s = 0; s < b->steps && status == 0 && zd_ctl_interrupt != ZD_CTL_NOW; s++)
		status = one_step(b, s);
	if (zd_ctl_interrupt == ZD_CTL_NOW)
		return ZD_CTL_INTERRUPTED;
	if (status)
		fprintf(ctl->err, "zeroctl bench: %s\n", zerod_detail(b->client));
	return status ? exit_code(status) : 0;
}

int zd_ctl_bench(struct zd_ctl *ctl, int argc, char **argv)
{
	struct bench *b = calloc(1, sizeof *b);
	if (!b)
		return ZD_CTL_FAILED;
	int rc = parse(ctl, b, argc, argv);
	if (rc)
		goto out;
	zd_ctl_interrupt = ZD_CTL_LATER;
	rc = prepare(ctl, b);
	int reached = rc != ZD_CTL_CONNECT;
	if (rc == 0)
		rc = measure(ctl, b);
	zerod_free(b->client);
	b->client = NULL;
	if (reached) { /* also where only some daemons took the job */
		int dropped = drop(ctl, b, rc != 0);
		if (rc == 0)
			rc = dropped;
	}
	if (rc == 0)
		rc = report(ctl, b);
out:
	free(b->grad);
	free(b);
	return rc;
}
