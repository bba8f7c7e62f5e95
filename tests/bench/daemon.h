/* SPDX-License-Identifier: Apache-2.0 */
/* A zerod process of the measurement's own, on loopback, on a port of its own; what it logs goes to stderr. */
#ifndef ZD_BENCH_DAEMON_H
#define ZD_BENCH_DAEMON_H

#include <stdint.h>
#include <sys/types.h>

#define ZD_DAEMON_TASKS_MAX 16

struct zd_daemon {
	pid_t pid;
	uint16_t port;
	uint32_t tasks; /* threads besides the main one: lanes, and what libraries made */
	pid_t task[ZD_DAEMON_TASKS_MAX];
};

struct zd_daemon_options {
	const char *program;
	uint32_t lanes;
	uint64_t budget_bytes;	   /* of memory for jobs */
	int cpu;		   /* where all of it runs, -1 anywhere */
	int pin;		   /* one processor per lane */
};

/* Returns when it listens; ends the program if it does not. */
void zd_daemon_start(struct zd_daemon *d, const struct zd_daemon_options *options);
/* SIGTERM, and the exit status must be 0. */
void zd_daemon_stop(struct zd_daemon *d);

/* Processor time of every task; exact while they sleep. */
void zd_daemon_cpu(const struct zd_daemon *d, double ret_seconds[ZD_DAEMON_TASKS_MAX]);
/* Waits until all lanes have slept for a moment; returns 0, or -1 after 30 s. */
int zd_daemon_settle(const struct zd_daemon *d);

#endif
