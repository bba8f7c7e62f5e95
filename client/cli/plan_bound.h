/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lower bound on the time of a zerod step, and what sets it: the slowest of
 * the resources that a step must pass through, each working alone at the rate
 * given for it. Nothing is faster; how near a run comes is for measuring.
 *
 *   compute         (6 N + 4 F) tokens M / flops, on each worker: a frozen parameter F
 *                   has no gradient of its own
 *   worker network  the larger of what a worker sends and receives (full duplex)
 *   daemon network  the larger of what its W workers send it and receive, 1/k each
 *   daemon memory   Adam and the reduction: see below, N/k parameters
 *   daemon disk     24 bytes a parameter read and written, and the redo log
 *
 * Memory traffic a parameter and step, with C = W M contributions (W where workers
 * of stages 0 and 1 add up their micro-batches themselves):
 *   Adam reads and writes hi, lo, m, v: 24; and reads the gradient: 2 bytes with
 *   one contribution, else 4 (two bf16 or their fp32 sum).
 *   The reduction: nothing for C <= 2, which stay as they came; then the first is
 *   widened (2 + 4) and each other one added (2 + 4 + 4): 10 C - 4. With fp32
 *   gradients 8 and 12.
 * What the network stack copies is not counted. Stage 0 runs no Adam in the
 * daemon; it sums always.
 *
 * Pure; any thread.
 */
#ifndef ZD_CLI_PLAN_BOUND_H
#define ZD_CLI_PLAN_BOUND_H

#include "client/cli/plan_wire.h"

enum zd_plan_resource {
	ZD_PLAN_COMPUTE,
	ZD_PLAN_WORKER_NETWORK,
	ZD_PLAN_DAEMON_NETWORK,
	ZD_PLAN_DAEMON_MEMORY,
	ZD_PLAN_DAEMON_DISK,
	ZD_PLAN_RESOURCES,
};

/* "worker network" and so on; static. */
const char *zd_plan_resource_name(enum zd_plan_resource resource);

/* Rates; 0 leaves a resource out (no compute figure, state in RAM). */
struct zd_plan_machine {
	double flops;	     /* one worker */
	double worker_rate;  /* bytes a second, each direction */
	double daemon_rate;  /* bytes a second, each direction, one daemon */
	double memory_rate;  /* bytes a second, one daemon, all lanes */
	double disk_rate;    /* bytes a second, half reads and half writes, one daemon */
	double disk_bytes;   /* capacity of one daemon's disks; 0: no wear figures */
	double drive_writes; /* a day that the disk is rated for (DWPD); 0: unknown */
	double rated_years;  /* of that rating */
};

struct zd_plan_run {
	double trainable, frozen; /* parameters of the job */
	double workers, daemons, micro_batches;
	double tokens;	  /* a worker and micro-batch; only with flops */
	unsigned stage;
	unsigned grad_bytes; /* 2 or 4 */
	bool sum_locally;    /* stages 0 and 1 only: accumulate=local */
	bool log;	     /* redo log written: durability `step` */
	double sent, received; /* bytes on one worker's wire a step */
};

struct zd_plan_bound {
	double seconds[ZD_PLAN_RESOURCES]; /* 0 where left out */
	enum zd_plan_resource slowest;
	double step_seconds;   /* the slowest alone: everything overlaps */
	double serial_seconds; /* their sum: nothing does */
	double daemon_in_bytes, daemon_out_bytes; /* one daemon, a step */
	double memory_bytes, disk_bytes, written_bytes; /* one daemon, a step */
	double drive_writes_a_day; /* at step_seconds; 0 without a capacity */
	double rated_life_seconds; /* until the rated writes are used up; 0: unknown */
};

/*
 * E_STAGE; E_SHAPE for sum_locally above stage 1; E_RANGE for a count that is not positive, a rate that is negative or
 * not finite, no resource at all, or flops without tokens.
 */
ZD_PLAN_MUST_USE int zd_plan_bound_compute(const struct zd_plan_run *run,
					   const struct zd_plan_machine *machine,
					   struct zd_plan_bound *ret_bound);

#endif
