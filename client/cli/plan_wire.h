/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one worker puts on the wire and takes from it in one step of zerod: the
 * number that the trainer's byte counter is compared with. Payload bytes are
 * exact. Frames and what they add are upper bounds that hold wherever the
 * lanes' pieces begin, so that no layout has to be computed here.
 *
 *   mode              push payload   fetch payload
 *   stage 0           M N g          4N        (the gradient sum, fp32)
 *   stage 1           M N g          2N
 *   stage 2           M N g          2N
 *   stage 3, keeping  M N g          M 2 (N + F)
 *   stage 3           M N g          M 2 (2 (N + F) - last)
 *
 * N: trainable elements, F: frozen ones, M: micro-batches, g: bytes of an
 * element of gradient; workers of stages 0 and 1 that add up their micro-batches
 * themselves (accumulate=local) push N g. `last` is the last unit: still resident
 * when backward begins with it, so gathered once. A worker may as well keep the
 * first unit from backward to the forward of the next micro-batch, which spares
 * (M - 1) 2 first. "Keeping" is reshard-after-forward=no.
 * Frozen units are never pushed; in stages 0 to 2 a worker keeps them from the
 * first step on, so a step does not fetch them either.
 *
 * Pure; any thread. Counts are per worker and step. Session set-up (HELLO, OPEN,
 * JOIN, LOAD), heartbeats and what is resent after a fault are no part of it.
 */
#ifndef ZD_CLI_PLAN_WIRE_H
#define ZD_CLI_PLAN_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/cli/plan_formulas.h"

struct zd_plan_unit {
	uint64_t numel; /* from 1 */
	bool frozen;
};

/* Units that a stage 3 worker does not gather again though it could. */
enum {
	ZD_PLAN_REUSE_LAST = 1,	 /* the last one, from forward to backward */
	ZD_PLAN_REUSE_FIRST = 2, /* the first one, from backward to the next forward */
};

struct zd_plan_wire_spec {
	const struct zd_plan_unit *units; /* in the order of forward; borrowed */
	size_t unit_count;
	unsigned stage;			  /* 0 to 3 */
	bool keep_after_forward;	  /* stage 3 only: reshard-after-forward=no */
	bool sum_locally;		  /* stages 0 and 1 only: accumulate=local */
	unsigned reuse;			  /* ZD_PLAN_REUSE_x; means something in stage 3 without keeping */
	uint32_t micro_batches;		  /* from 1 */
	uint32_t lanes;			  /* of all daemons together, from 1 */
	unsigned grad_bytes;		  /* an element of a pushed gradient: 2 or 4 */
};

struct zd_plan_wire {
	uint64_t push_bytes;	/* payload of PUSH */
	uint64_t fetch_bytes;	/* payload of DATA */
	uint64_t push_frames;	/* PUSH, at most; as many PUSHED come back, at most */
	uint64_t fetch_frames;	/* FETCH: one a piece and pass */
	uint64_t data_frames;	/* DATA, at most */
	uint64_t step_frames;	/* COMMIT, PREPARED, APPLY, APPLIED: one each a lane */
	uint64_t sent_extra;	/* headers, heads and messages on top of push_bytes, at most */
	uint64_t received_extra; /* the same on top of fetch_bytes */
	double extra_ratio;	/* both extras to both payloads */
};

/*
 * Fills *ret_wire. E_STAGE for a stage above 3; E_RANGE for no units, a zero
 * count, grad_bytes other than 2 or 4, or totals beyond 64 bits; E_SHAPE for
 * keep_after_forward or sum_locally in a stage that knows no such thing.
 */
ZD_PLAN_MUST_USE int zd_plan_wire_compute(const struct zd_plan_wire_spec *spec,
					  struct zd_plan_wire *ret_wire);

/*
 * How far counted bytes, sent and received together, lie above the planned payload
 * (push_bytes + fetch_bytes), as a fraction: the product's promise is less than
 * 0.001. One direction alone may have more: with many micro-batches in stage 2, what
 * comes back is mostly answers to pushes. Negative if fewer bytes were counted than planned,
 * which means that something was not sent. `planned` from 1.
 */
double zd_plan_wire_excess(uint64_t planned, uint64_t counted);

#endif
