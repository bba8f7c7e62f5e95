/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bare libuv stream over loopback TCP between two processes: the ceiling of a push.  The sender keeps ZD_UVSTREAM_WRITES writes of
 * 1 MiB queued, always from the same buffer; the receiver reads into one buffer of 1 MiB and looks at nothing.
 */
#ifndef ZD_BENCH_UVSTREAM_H
#define ZD_BENCH_UVSTREAM_H

#include "tests/bench/actor.h"

#define ZD_UVSTREAM_BYTES (1u << 20)
#define ZD_UVSTREAM_WRITES 4

struct zd_uvstream {
	struct zd_actor sender, receiver;
};

void zd_uvstream_start(struct zd_uvstream *s, int sender_cpu, int receiver_cpu);
/* Moves that many bytes, a multiple of ZD_UVSTREAM_BYTES; returns bytes per second as the receiver saw them. */
double zd_uvstream_run(struct zd_uvstream *s, uint64_t bytes);
void zd_uvstream_stop(struct zd_uvstream *s);

#endif
