/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that take part in a measurement: one that conducts, and actors that sleep until they are called.
 *
 * Baseline and product must be measured in turns, so both stay alive with all their memory for the whole run, and the one that is not being
 * measured sleeps in the kernel.  An actor shares one box with the conductor: a command goes in, times and a status come out.
 *
 *     conductor                              actor
 *     zd_actor_start  -- fork -->            body(box, state)
 *     zd_actor_call(a, command, n)  ---->    zd_actor_next(box) returns 1
 *     zd_actor_wait(a)              <----    zd_actor_done(box, status)
 *     zd_actor_stop(a)              ---->    zd_actor_next(box) returns 0, the body returns
 *
 * An actor that dies or hangs ends the whole program with a message; actors die with the conductor.  Actors are forked before the conductor makes
 * threads or large memory.
 */
#ifndef ZD_BENCH_ACTOR_H
#define ZD_BENCH_ACTOR_H

#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <sys/types.h>

#define ZD_ACTOR_TIMES_MAX 256

struct zd_actor_box {
	sem_t go, done;
	int stop;
	int command;	/* meaning is the actor's */
	uint64_t count; /* how often, or how many bytes */
	int status;	/* 0, or not, and then text says why */
	uint32_t times; /* entries of begin and end */
	double begin[ZD_ACTOR_TIMES_MAX], end[ZD_ACTOR_TIMES_MAX];
	double cpu;	       /* seconds of processor time the command took, where the actor counts it */
	uint64_t number[16]; /* meaning is the actor's */
	char text[256];
};

typedef void zd_actor_body(struct zd_actor_box *box, void *state);

struct zd_actor {
	const char *name;
	pid_t pid;
	struct zd_actor_box *box;
};

/* Forks.  cpu: where it runs, -1 anywhere.  state is copied with the process. */
void zd_actor_start(struct zd_actor *a, const char *name, int cpu, zd_actor_body *body, void *state);
void zd_actor_call(struct zd_actor *a, int command, uint64_t count);
/* Ends the program if the actor dies, reports a status other than 0, or says nothing for ZD_ACTOR_TIMEOUT_S. */
#define ZD_ACTOR_TIMEOUT_S 120
void zd_actor_wait(struct zd_actor *a);
void zd_actor_stop(struct zd_actor *a);

/* In the actor. */
int zd_actor_next(struct zd_actor_box *box);
void zd_actor_done(struct zd_actor_box *box, int status);

/* Memory that actors share, zeroed; and a barrier in it. */
void *zd_actor_shared(size_t bytes);
pthread_barrier_t *zd_actor_barrier(unsigned actors);

#endif
