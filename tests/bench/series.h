/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples and what is said about them: one JSON object a line on stdout, for programs; tests/bench/run makes the table for people.
 *
 *     {"name":"step_w1","value":1.60,"unit":"ns/param","baseline":1.70,"ratio":1.06,"target":1.05,"met":1,
 *      "min":..,"max":..,"baseline_min":..,"baseline_max":..,"samples":36,"quiet":1}
 *
 * Value and baseline are medians of samples that were taken in turns.  A ratio above 1 means that the value is better than the baseline,
 * whichever way its unit points.  Samples taken while others used the machine are left out if enough quiet ones remain (quiet 1); if not,
 * all count and the line says so (quiet 0).
 */
#ifndef ZD_BENCH_SERIES_H
#define ZD_BENCH_SERIES_H

#include <stddef.h>
#include <stdint.h>

#define ZD_SERIES_MAX 1024

struct zd_series {
	uint32_t count; /* samples beyond ZD_SERIES_MAX are dropped */
	double value[ZD_SERIES_MAX];
	uint8_t quiet[ZD_SERIES_MAX];
};

void zd_series_add(struct zd_series *s, double value, int quiet);

struct zd_summary {
	double min, median, max;
	uint32_t count; /* of the samples used */
	int quiet;	/* only quiet ones were used */
};

/* At least one sample.  Quiet ones alone if there are ZD_SERIES_QUIET_MIN of them. */
#define ZD_SERIES_QUIET_MIN 5
struct zd_summary zd_series_summary(const struct zd_series *s);

enum zd_better { ZD_LOWER_IS_BETTER, ZD_HIGHER_IS_BETTER };

/* baseline NULL: nothing to compare with.  target 0: none. */
void zd_series_report(const char *name, const char *unit, enum zd_better better, const struct zd_series *value,
		      const struct zd_series *baseline, double target);
/* A single number and what it is measured against, where there is nothing to sample (bytes on the wire, scaling).  ratio as given. */
void zd_series_report_number(const char *name, const char *unit, double value, double baseline, double ratio, double target, int quiet);

#endif
