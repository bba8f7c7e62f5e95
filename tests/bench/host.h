/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine under a measurement: clock, processor, memory, and whether somebody else was using it.
 *
 * Machines that run these programs are often shared.  A measurement therefore waits for a quiet moment, within a patience that is spent
 * once per program and never renewed, and every sample is marked: quiet if processes other than ours used little processor time
 * while it was taken (/proc/stat against our own processes).
 *
 * Threads: the conductor's only, except zd_host_now, _pin and _memory.
 */
#ifndef ZD_BENCH_HOST_H
#define ZD_BENCH_HOST_H

#include <stddef.h>
#include <sys/types.h>

double zd_host_now(void);	 /* seconds, monotonic */
double zd_host_thread_cpu(void); /* seconds of processor time of the calling thread */

/* Binds the calling thread, and what it starts, to one processor; cpu < 0 does nothing. */
void zd_host_pin(int cpu);
int zd_host_cpus(void);

/* Zeroed, touched memory on huge pages where the system has them, at a 2 MiB boundary plus skew (a multiple of 64).  Never freed, never
 * NULL: without memory there is nothing to measure, and the program ends.  Planes that are walked together take different skews, so that
 * they do not fall on the same cache sets; ZD_HOST_SKEW times the plane's number does. */
#define ZD_HOST_SKEW (3u * 4096u + 256u)
void *zd_host_memory(size_t bytes, size_t skew);

/* Processes whose processor time is ours: children that have not been waited for.  At most ZD_HOST_WATCH_MAX at once. */
#define ZD_HOST_WATCH_MAX 32
void zd_host_watch(pid_t pid);
void zd_host_unwatch(pid_t pid);

struct zd_host_mark {
	double wall, busy, own;
};
struct zd_host_mark zd_host_mark(void);
int zd_host_quiet_since(struct zd_host_mark mark); /* 1 quiet, 0 not */

/* How long zd_host_wait_quiet may wait in all, over the life of the program. */
void zd_host_set_patience(double seconds);
/* Returns when the machine was quiet for a moment (1) or patience is spent (0, at once from then on). */
int zd_host_wait_quiet(void);

/* Puts this process, and what it starts, before others that want a processor, as far as it is allowed to: the group of its session gets the
 * highest weight.  Scheduling among our own processes stays as it is.  Others still share caches and memory. */
void zd_host_isolate(void);

/* Processor time of one thread of a process in seconds, from the scheduler's own count; negative if there is no such thread.  Exact only
 * while the thread sleeps. */
double zd_host_task_cpu(pid_t pid, pid_t tid);
/* 1 if that thread sleeps, 0 if it runs or wants to. */
int zd_host_task_sleeps(pid_t pid, pid_t tid);

#endif
