/* SPDX-License-Identifier: Apache-2.0 */
/* The training loop: the same for every stage and for the reference, over a zd_lm_state.  Threads: one. */
#ifndef ZD_LM_TRAIN_H
#define ZD_LM_TRAIN_H

#include "client/trainer/state.h"

struct zd_lm_round {
	uint64_t round;
	double loss; /* of this rank (the reference: of rank 0), mean over the round's micro-batches, before the step */
	double lr;
	struct zerod_step_result result;
};

/* Called after every round; `arg` is the caller's. */
typedef void zd_lm_observe(void *arg, const struct zd_lm_state *state, const struct zd_lm_round *round);

/* Trains from the last decided round to options->steps.  0 or enum zd_lm_failure with state->detail. */
int zd_lm_train(struct zd_lm_state *state, zd_lm_observe *observe, void *arg) ZEROD_MUST_USE;

#endif
