/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/series.h"

#include <stdio.h>
#include <stdlib.h>

void zd_series_add(struct zd_series *s, double value, int quiet)
{
	if (s->count == ZD_SERIES_MAX)
		return;
	s->value[s->count] = value;
	s->quiet[s->count] = (uint8_t)quiet;
	s->count++;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

struct zd_summary zd_series_summary(const struct zd_series *s)
{
	double v[ZD_SERIES_MAX];
	struct zd_summary r = { .quiet = 1 };

	for (uint32_t i = 0; i < s->count; i++)
		if (s->quiet[i])
			v[r.count++] = s->value[i];
	if (r.count < ZD_SERIES_QUIET_MIN && r.count < s->count) {
		r.quiet = 0;
		for (r.count = 0; r.count < s->count; r.count++)
			v[r.count] = s->value[r.count];
	}
	if (r.count == 0)
		return r;
	qsort(v, r.count, sizeof *v, ascending);
	r.min = v[0];
	r.max = v[r.count - 1];
	r.median = 0.5 * (v[(r.count - 1) / 2] + v[r.count / 2]);
	return r;
}

static void print_ratio(double baseline, double ratio, double target)
{
	printf(",\"baseline\":%.6g,\"ratio\":%.4f", baseline, ratio);
	if (target > 0)
		printf(",\"target\":%.6g,\"met\":%d", target, ratio >= target);
	else
		printf(",\"target\":null,\"met\":null");
}

void zd_series_report(const char *name, const char *unit, enum zd_better better, const struct zd_series *value,
		      const struct zd_series *baseline, double target)
{
	struct zd_summary v = zd_series_summary(value), b;
	int quiet = v.quiet;

	printf("{\"name\":\"%s\",\"value\":%.6g,\"unit\":\"%s\"", name, v.median, unit);
	if (baseline) {
		b = zd_series_summary(baseline);
		quiet = quiet && b.quiet;
		print_ratio(b.median, better == ZD_LOWER_IS_BETTER ? b.median / v.median : v.median / b.median, target);
		printf(",\"min\":%.6g,\"max\":%.6g,\"baseline_min\":%.6g,\"baseline_max\":%.6g", v.min, v.max, b.min, b.max);
	} else {
		printf(",\"baseline\":null,\"ratio\":null,\"target\":null,\"met\":null,\"min\":%.6g,\"max\":%.6g", v.min, v.max);
	}
	printf(",\"samples\":%u,\"quiet\":%d}\n", v.count, quiet);
	fflush(stdout);
}

void zd_series_report_number(const char *name, const char *unit, double value, double baseline, double ratio, double target, int quiet)
{
	printf("{\"name\":\"%s\",\"value\":%.9g,\"unit\":\"%s\"", name, value, unit);
	print_ratio(baseline, ratio, target);
	printf(",\"samples\":1,\"quiet\":%d}\n", quiet);
	fflush(stdout);
}
