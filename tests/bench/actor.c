/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/actor.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/host.h"

void *zd_actor_shared(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED) {
		perror("cannot map shared memory");
		exit(1);
	}
	return p;
}

pthread_barrier_t *zd_actor_barrier(unsigned actors)
{
	pthread_barrier_t *b = zd_actor_shared(sizeof *b);
	pthread_barrierattr_t attr;

	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(b, &attr, actors);
	pthread_barrierattr_destroy(&attr);
	return b;
}

void zd_actor_start(struct zd_actor *a, const char *name, int cpu, zd_actor_body *body, void *state)
{
	pid_t parent = getpid();

	a->name = name;
	a->box = zd_actor_shared(sizeof *a->box);
	sem_init(&a->box->go, 1, 0);
	sem_init(&a->box->done, 1, 0);
	fflush(NULL);
	a->pid = fork();
	if (a->pid < 0) {
		perror("cannot fork");
		exit(1);
	}
	if (a->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		zd_host_pin(cpu);
		body(a->box, state);
		_exit(0);
	}
	zd_host_watch(a->pid);
}

void zd_actor_call(struct zd_actor *a, int command, uint64_t count)
{
	a->box->command = command;
	a->box->count = count;
	a->box->times = 0;
	sem_post(&a->box->go);
}

static void give_up(const struct zd_actor *a, const char *why)
{
	fprintf(stderr, "%s (process %d): %s %s\n", a->name, (int)a->pid, why, a->box->text);
	exit(1);
}

void zd_actor_wait(struct zd_actor *a)
{
	/* One second at a time, to notice an actor that died. */
	for (int s = 0; s < ZD_ACTOR_TIMEOUT_S; s++) {
		struct timespec until;

		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec++;
		while (sem_timedwait(&a->box->done, &until)) {
			if (errno == EINTR)
				continue;
			if (waitpid(a->pid, NULL, WNOHANG) == a->pid)
				give_up(a, "died;");
			goto next;
		}
		if (a->box->status)
			give_up(a, "failed:");
		return;
	next:;
	}
	give_up(a, "does not answer;");
}

void zd_actor_stop(struct zd_actor *a)
{
	a->box->stop = 1;
	sem_post(&a->box->go);
	waitpid(a->pid, NULL, 0);
	zd_host_unwatch(a->pid);
	sem_destroy(&a->box->go);
	sem_destroy(&a->box->done);
	munmap(a->box, sizeof *a->box);
}

int zd_actor_next(struct zd_actor_box *box)
{
	while (sem_wait(&box->go) && errno == EINTR)
		;
	return !box->stop;
}

void zd_actor_done(struct zd_actor_box *box, int status)
{
	box->status = status;
	sem_post(&box->done);
}
