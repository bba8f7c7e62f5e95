/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One worker's whole training step against one lane, frame by frame over a raw peer: HELLO, OPEN, LOAD, SEAL, JOIN, PUSH, COMMIT, APPLY,
 * FETCH.  Used where the peer has to stop, vanish or be cut off at a chosen point.
 */
#ifndef ZD_TESTS_RAW_JOB_H
#define ZD_TESTS_RAW_JOB_H

#include "tests/unit/raw_peer.h"

/* One unit of three extents, the last one short: 2.25 extents. */
#define RAW_JOB_NUMEL (2u * ZD_EXTENT_ELEMS_MAX + ZD_EXTENT_ELEMS_MAX / 4)

enum raw_stage {
	RAW_HELLO,
	RAW_OPEN,
	RAW_LOAD,
	RAW_SEAL,
	RAW_JOIN,
	RAW_PUSH,
	RAW_COMMIT,
	RAW_APPLY,
	RAW_FETCH,
	RAW_STAGES,
};

/* Runs the stages below `end` of job `name` on a connected peer.  Returns how many were answered as they should: `end`, or less if the
 * connection ended; *ret_why is then one of RAW_CLOSED, RAW_TIMED_OUT, RAW_BROKEN, or the type of the frame that came instead.
 * With end == RAW_STAGES and success *ret_sum is the CRC32C of the fetched weights. */
int raw_job(struct raw_peer *p, const char *name, int end, int *ret_why, uint32_t *ret_sum);

/* Sends the request of one stage (all of its frames; not RAW_APPLY, which needs the record) without waiting for the answer. */
void raw_job_ask(struct raw_peer *p, const char *name, enum raw_stage stage);

#endif
