/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/host.h"

#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define HUGE_PAGE (2u << 20)

/* What others may use of a sample before it counts as disturbed: 4 % of one processor, and two ticks of the counters' resolution plus a
 * little for kernel threads. */
#define OTHERS_SHARE 0.04
#define OTHERS_FIXED_S 0.025

static pid_t watched[ZD_HOST_WATCH_MAX];
static double patience_s;

double zd_host_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double zd_host_thread_cpu(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void zd_host_pin(int cpu)
{
	cpu_set_t set;

	if (cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	if (sched_setaffinity(0, sizeof set, &set)) {
		perror("cannot bind to the processor");
		exit(1);
	}
}

int zd_host_cpus(void)
{
	return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

void *zd_host_memory(size_t bytes, size_t skew)
{
	size_t len = bytes + HUGE_PAGE + skew;
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED) {
		perror("cannot map memory for the measurement");
		exit(1);
	}
	(void)madvise(p, len, MADV_HUGEPAGE);
	p = (char *)(((uintptr_t)p + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1)) + skew;
	memset(p, 0, bytes);
	return p;
}

void zd_host_watch(pid_t pid)
{
	for (int i = 0; i < ZD_HOST_WATCH_MAX; i++)
		if (watched[i] == 0) {
			watched[i] = pid;
			return;
		}
	fprintf(stderr, "more than %d processes to watch\n", ZD_HOST_WATCH_MAX);
	exit(1);
}

void zd_host_unwatch(pid_t pid)
{
	for (int i = 0; i < ZD_HOST_WATCH_MAX; i++)
		if (watched[i] == pid)
			watched[i] = 0;
}

static double usage_s(int who)
{
	struct rusage r;

	getrusage(who, &r);
	return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) + 1e-6 * (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

/* Reads a small file of /proc; an empty text if it is not there. */
static void slurp(const char *path, char *text, size_t size)
{
	FILE *f = fopen(path, "r");
	size_t n = 0;

	if (f) {
		n = fread(text, 1, size - 1, f);
		fclose(f);
	}
	text[n] = '\0';
}

/* utime + stime of a whole process: fields 14 and 15, counted behind the command name, which may hold anything. */
static double process_cpu(pid_t pid)
{
	char path[64], text[1024];
	unsigned long user, system;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	slurp(path, text, sizeof text);
	const char *p = strrchr(text, ')');
	if (!p || sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
		return 0;
	return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

struct zd_host_mark zd_host_mark(void)
{
	struct zd_host_mark mark = { 0 };
	double v[8] = { 0 };
	char text[512];

	slurp("/proc/stat", text, sizeof text);
	/* user nice system idle iowait irq softirq steal */
	if (sscanf(text, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", v, v + 1, v + 2, v + 3, v + 4, v + 5, v + 6, v + 7) == 8)
		mark.busy = (v[0] + v[1] + v[2] + v[5] + v[6] + v[7]) / (double)sysconf(_SC_CLK_TCK);
	mark.own = usage_s(RUSAGE_SELF) + usage_s(RUSAGE_CHILDREN);
	for (int i = 0; i < ZD_HOST_WATCH_MAX; i++)
		if (watched[i])
			mark.own += process_cpu(watched[i]);
	mark.wall = zd_host_now();
	return mark;
}

static double others_since(struct zd_host_mark a, double *ret_wall)
{
	struct zd_host_mark b = zd_host_mark();

	*ret_wall = b.wall - a.wall;
	return (b.busy - a.busy) - (b.own - a.own);
}

int zd_host_quiet_since(struct zd_host_mark mark)
{
	double wall, others = others_since(mark, &wall);

	return others < OTHERS_SHARE * wall + OTHERS_FIXED_S;
}

void zd_host_set_patience(double seconds)
{
	patience_s = seconds;
}

int zd_host_wait_quiet(void)
{
	const struct timespec glance = { 0, 50000000 };

	do {
		struct zd_host_mark mark = zd_host_mark();
		double wall;

		nanosleep(&glance, NULL);
		double others = others_since(mark, &wall);
		if (others < 0.015) /* at most one tick of 10 ms in the 50 */
			return 1;
		patience_s -= wall;
	} while (patience_s > 0);
	return 0;
}

void zd_host_isolate(void)
{
	FILE *f;

	/* The leader of a process group stays in its session, and the weight then holds for all of it.  A terminal's Ctrl-C does not reach a
	 * session of our own, but it ends the parent. */
	(void)setsid();
	(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
	f = fopen("/proc/self/autogroup", "w");
	if (!f || fputs("-20", f) < 0 || fclose(f))
		fprintf(stderr, "no right or no way to go before other processes; measuring beside them\n");
}

double zd_host_task_cpu(pid_t pid, pid_t tid)
{
	char path[96], text[128];
	unsigned long long ns;

	snprintf(path, sizeof path, "/proc/%d/task/%d/schedstat", (int)pid, (int)tid);
	slurp(path, text, sizeof text);
	return sscanf(text, "%llu", &ns) == 1 ? 1e-9 * (double)ns : -1;
}

int zd_host_task_sleeps(pid_t pid, pid_t tid)
{
	char path[96], text[512];

	snprintf(path, sizeof path, "/proc/%d/task/%d/stat", (int)pid, (int)tid);
	slurp(path, text, sizeof text);
	const char *p = strrchr(text, ')');
	return p && (p[2] == 'S' || p[2] == 'I');
}
