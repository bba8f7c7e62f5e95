/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The smallest possible shard server, the yardstick of a full step.
 *
 * W worker processes push bf16 gradients over loopback TCP; the server, one thread, runs the fused reduce and AdamW kernel as soon as
 * chunk c of all workers is there, and streams the bf16 weights back while later chunks still come in.  Push, step and fetch overlap; there is
 * no frame, no checksum, no commit, no norm, no clipping, no second tier, and a lost byte would go unnoticed.
 *
 *     worker w: send all 2n bytes in 1 MiB writes, receive 2n bytes, at the same time
 *     server:   recv into chunk[w] -> all W full? -> step(chunk) -> send to all as far as the sockets take it
 *
 * A step's time is the server's: from the word "go" to the workers until the last byte is handed to the kernel.
 */
#ifndef ZD_BENCH_MINSERVER_H
#define ZD_BENCH_MINSERVER_H

#include <stddef.h>
#include <stdint.h>

#include "tests/bench/actor.h"
#include "tests/bench/rate.h"

struct zd_minserver {
	/* set by the caller */
	uint32_t workers;     /* 1..ZD_RATE_WORKERS_MAX */
	size_t params;	      /* rounded down to whole chunks */
	size_t chunk_bytes;   /* of bf16; 0: 256 KiB, which measures best */
	int server_cpu, worker_cpu; /* -1: anywhere */
	/* filled in */
	struct zd_actor server;
	pid_t worker[ZD_RATE_WORKERS_MAX];
};

/* Starts server and workers; returns when all are connected.  The command is the number of steps: zd_actor_call(&m->server, 0, steps);
 * box->cpu is the server's processor time for all of them. */
void zd_minserver_start(struct zd_minserver *m);
void zd_minserver_stop(struct zd_minserver *m);

#endif
