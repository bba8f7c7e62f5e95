/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One worker's whole training step against one lane, frame by frame over a raw peer: HELLO, OPEN, LOAD, SEAL, JOIN, PUSH, COMMIT, APPLY,
 * FETCH.  Used where the peer has to stop, vanish or be cut off at a chosen point.
 */
#ifndef ZD_TESTS_RAW_JOB_H
#define ZD_TESTS_RAW_JOB_H

#include "proto/decide.h"
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

struct raw_job {
	const char *name;
	enum zd_role role;
	uint64_t round; /* from 1; FETCH asks for the version that round makes */
	uint32_t pattern; /* of the gradient, from 1 */
	int why;	/* what came instead of an answer: RAW_CLOSED, RAW_TIMED_OUT, RAW_BROKEN or a frame's type */
	uint32_t sum;	/* CRC32C of the weights fetched last */
	struct zd_record record;
	struct zd_decision decision; /* of the last APPLY */
};

/* What the job is loaded with, and what is pushed: the k-th element of a pattern in bf16. */
float raw_job_weight(uint32_t k);
uint16_t raw_job_grad(uint32_t pattern, uint32_t k);
/* The hyper-parameters of every COMMIT. */
extern const struct zd_hyper raw_job_hyper;

void raw_job_init(struct raw_job *job, const char *name);

/* Runs the stages [first, end) on a connected peer.  Returns `end`, or the stage that was not answered as it should be. */
int raw_job_run(struct raw_job *job, struct raw_peer *p, enum raw_stage first, enum raw_stage end);

/* The two halves of one stage: all frames of its request, all frames of its answer (0, or -1 with job->why). */
void raw_job_ask(struct raw_job *job, struct raw_peer *p, enum raw_stage stage);
int raw_job_hear(struct raw_job *job, struct raw_peer *p, enum raw_stage stage);

#endif
