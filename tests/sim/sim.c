/* SPDX-License-Identifier: Apache-2.0 */
/* The driver: many random worlds, or one again with all it did.
 *
 *     sim --seed N [--runs M] [--calm] [--verbose]
 *     sim --table        counts of messages, for docs/benchmarks.md
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/count.h"
#include "tests/sim/world.h"

static uint64_t number(const char *text, const char *option)
{
	char *end;
	uint64_t n = text ? strtoull(text, &end, 10) : 0;

	if (!text || *end || end == text) {
		fprintf(stderr, "sim: %s wants a number\n", option);
		exit(2);
	}
	return n;
}

static void print_totals(void)
{
	const struct sim_totals *t = &sim_totals;

	printf("%llu worlds, %llu rounds, %llu events, %llu faults: %llu crashes, %llu resets, %llu redos, %llu aborted and %llu stale workers, "
	       "%llu skipped rounds, %llu discards\n",
	       (unsigned long long)t->worlds, (unsigned long long)t->rounds, (unsigned long long)t->events, (unsigned long long)t->faults,
	       (unsigned long long)t->crashes, (unsigned long long)t->resets, (unsigned long long)t->redos, (unsigned long long)t->aborts,
	       (unsigned long long)t->stale, (unsigned long long)t->skipped, (unsigned long long)t->discards);
}

int main(int argc, char **argv)
{
	uint64_t seed = 1, runs = 1, failures = 0, hash;
	int faults = 1, verbose = 0, keep_going = 0;
	char text[512];

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--seed") == 0) {
			seed = number(i + 1 < argc ? argv[++i] : NULL, "--seed");
		} else if (strcmp(argv[i], "--runs") == 0) {
			runs = number(i + 1 < argc ? argv[++i] : NULL, "--runs");
		} else if (strcmp(argv[i], "--calm") == 0) {
			faults = 0;
		} else if (strcmp(argv[i], "--verbose") == 0) {
			verbose = 1;
		} else if (strcmp(argv[i], "--keep-going") == 0) {
			keep_going = 1;
		} else if (strcmp(argv[i], "--table") == 0) {
			return sim_count_table(stdout);
		} else {
			fprintf(stderr, "usage: sim [--seed N] [--runs M] [--calm] [--verbose] [--keep-going] | --table\n");
			return 2;
		}
	}
	for (uint64_t n = 0; n < runs && (failures == 0 || keep_going); n++) {
		if (sim_chaos_run(seed + n, faults, verbose, text, sizeof(text), &hash) == 0)
			continue;
		failures++;
		printf("seed %llu: %s\n    replay: sim --seed %llu%s --verbose\n", (unsigned long long)(seed + n), text,
		       (unsigned long long)(seed + n), faults ? "" : " --calm");
		fflush(stdout);
	}
	print_totals();
	sim_pages_free();
	return failures > 0;
}
