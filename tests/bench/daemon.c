/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/daemon.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/host.h"

static void die(const char *what)
{
	fprintf(stderr, "zerod: %s\n", what);
	exit(1);
}

static void exec_daemon(const struct zd_daemon_options *o, int port_fd)
{
	char count[48], bytes[64], file[64];

	snprintf(count, sizeof count, "lanes.count=%u", o->lanes);
	snprintf(bytes, sizeof bytes, "memory.budget=%llu", (unsigned long long)o->budget_bytes);
	snprintf(file, sizeof file, "/dev/fd/%d", port_fd);
	zd_host_pin(o->cpu);
	execl(o->program, o->program, "--set", "daemon.name=bench", "--set", "listen.port=0", "--set", "log.level=warning", "--set", count,
	      "--set", bytes, "--set", o->pin ? "lanes.pin=yes" : "lanes.pin=no", "--port-file", file, (char *)NULL);
	fprintf(stderr, "cannot run %s\n", o->program);
	_exit(127);
}

static void find_tasks(struct zd_daemon *d)
{
	char path[64];
	struct dirent *e;
	DIR *dir;

	snprintf(path, sizeof path, "/proc/%d/task", (int)d->pid);
	dir = opendir(path);
	if (!dir)
		die("its threads cannot be seen in /proc");
	while ((e = readdir(dir)) && d->tasks < ZD_DAEMON_TASKS_MAX) {
		pid_t tid = (pid_t)strtol(e->d_name, NULL, 10);

		if (tid > 0 && tid != d->pid)
			d->task[d->tasks++] = tid;
	}
	closedir(dir);
}

void zd_daemon_start(struct zd_daemon *d, const struct zd_daemon_options *options)
{
	pid_t parent = getpid();
	unsigned port = 0;
	int fd[2];

	memset(d, 0, sizeof *d);
	if (!options->program)
		die("--zerod PROGRAM is needed for this measurement");
	if (pipe(fd))
		die("pipe");
	fflush(NULL);
	d->pid = fork();
	if (d->pid < 0)
		die("fork");
	if (d->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		close(fd[0]);
		exec_daemon(options, fd[1]);
	}
	close(fd[1]);
	FILE *f = fdopen(fd[0], "r");
	if (!f || fscanf(f, "%u", &port) != 1)
		die("did not say its port");
	fclose(f);
	d->port = (uint16_t)port;
	zd_host_watch(d->pid);
	find_tasks(d);
}

void zd_daemon_stop(struct zd_daemon *d)
{
	int status = 0;

	kill(d->pid, SIGTERM);
	waitpid(d->pid, &status, 0);
	zd_host_unwatch(d->pid);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		die("did not end with status 0");
}

void zd_daemon_cpu(const struct zd_daemon *d, double ret_seconds[ZD_DAEMON_TASKS_MAX])
{
	for (uint32_t i = 0; i < d->tasks; i++)
		ret_seconds[i] = zd_host_task_cpu(d->pid, d->task[i]);
}

int zd_daemon_settle(const struct zd_daemon *d)
{
	const struct timespec glance = { 0, 2000000 };
	double end = zd_host_now() + 30, before = -1;
	int still = 0;

	/* Still: asleep, and no processor time used since the last glance, five times. */
	while (still < 5) {
		double cpu[ZD_DAEMON_TASKS_MAX], sum = 0;
		int asleep = 1;

		nanosleep(&glance, NULL);
		if (zd_host_now() > end)
			return -1;
		zd_daemon_cpu(d, cpu);
		for (uint32_t i = 0; i < d->tasks; i++) {
			sum += cpu[i];
			asleep &= zd_host_task_sleeps(d->pid, d->task[i]);
		}
		still = asleep && sum - before < 1e-4 ? still + 1 : 0;
		before = sum;
	}
	return 0;
}
