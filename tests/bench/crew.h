/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The product under measurement: one daemon and W worker processes that use it through libzerod, as trainers do, with no compute in
 * between.
 *
 *     for each unit, last first: zerod_push_start        (the order of a backward pass)
 *     zerod_step                                         commit, decision, apply, by all workers
 *     for each unit, first first: zerod_gather, release  (the order of the next forward pass)
 *
 * A step's time runs from the moment when the first worker starts to push to the moment when the last worker has the last unit.
 */
#ifndef ZD_BENCH_CREW_H
#define ZD_BENCH_CREW_H

#include <stddef.h>
#include <stdint.h>

#include "tests/bench/actor.h"
#include "tests/bench/daemon.h"

#define ZD_CREW_WORKERS_MAX 4
#define ZD_CREW_UNITS_MAX 64

struct zd_crew {
	/* set by the caller */
	const char *program; /* of the daemon */
	uint32_t workers, lanes, units;
	size_t params;	     /* of the model; split into equal units */
	uint32_t prefetch;   /* units; 0 and nothing is fetched that is not asked for */
	int server_cpu, worker_cpu, pin_lanes;
	int unchecked;	     /* workers offer no checksums: the program is zd_bench_unchecked */
	/* filled in */
	uint64_t numel[ZD_CREW_UNITS_MAX];
	struct zd_daemon daemon;
	struct zd_actor worker[ZD_CREW_WORKERS_MAX];
	pthread_barrier_t *barrier;
	char endpoint[32];
	uint32_t rank; /* in a worker's copy */
};

/* What workers do, `count` times, with begin and end of each. */
enum zd_crew_command {
	ZD_CREW_STEP, /* a whole step, timed from end to end */
	ZD_CREW_PUSH, /* timed: the pushes until every lane has counted them; then the rest of the step, untimed */
	ZD_CREW_APPLY,/* pushes, then a pause until the conductor goes on, then commit and apply without fetching */
};

/* Starts everything, loads weights and seals; returns when the first step could start. */
void zd_crew_start(struct zd_crew *c);
void zd_crew_run(struct zd_crew *c, enum zd_crew_command command, uint32_t count);
void zd_crew_stop(struct zd_crew *c);

/* Seconds of the i-th of the last run: first begin to last end over the workers. */
double zd_crew_seconds(const struct zd_crew *c, uint32_t i);

/* What one worker's library has counted in the steps of the last ZD_CREW_STEP run. */
struct zd_crew_traffic {
	uint64_t wire_bytes, payload_bytes, frames;
	uint64_t gathered_bytes_max;
};
struct zd_crew_traffic zd_crew_traffic(const struct zd_crew *c, uint32_t worker);

#endif
