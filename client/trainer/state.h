/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the training state lives, as the training loop sees it: somebody gives the bf16 weights of a unit, takes gradients, makes the step.
 *
 *   daemon   stages 1, 2, 3: the daemons own weights and moments (state_daemon.c)
 *   replica  stage 0: the daemons only reduce, this process owns everything (state_replica.c)
 *   local    no daemon: this process plays all ranks and does the reduction itself (state_local.c), the reference
 *
 * All three use the same kernels and the same decision, so they end with the same bits.
 *
 * Errors: functions return 0 or a negative enum zd_lm_failure, with words in zd_lm_state.detail.  Threads: one.
 */
#ifndef ZD_LM_STATE_H
#define ZD_LM_STATE_H

#include <stdint.h>

#include "client/include/zerod.h"
#include "client/trainer/options.h"

enum zd_lm_failure {
	ZD_LM_FAILED = -1,
	ZD_LM_AGAIN = -2,	/* the launch is over; starting again with a higher epoch goes on from the last decided round */
	ZD_LM_REDO = -3,	/* compute this step again */
	ZD_LM_USAGE = -4,	/* an option is wrong; only from making a state */
};

struct zd_lm_state;

struct zd_lm_state_ops {
	/* Before the first micro-batch of a round. */
	int (*begin)(struct zd_lm_state *);
	/* Weights of unit u, valid until release.  backward: 0 in the forward pass, 1 in the backward pass. */
	int (*gather)(struct zd_lm_state *, uint32_t u, int backward, const uint16_t **ret_weights);
	int (*release)(struct zd_lm_state *, uint32_t u, int backward);
	/* The gradient (fp32, numel elements) of unit u that `rank` computed in micro-batch `micro`; copied before it returns. */
	int (*push)(struct zd_lm_state *, uint32_t u, uint32_t rank, uint32_t micro, const float *grad);
	int (*step)(struct zd_lm_state *, const struct zerod_hyper *, struct zerod_step_result *);
	/* Training is over and a text is to be generated: from here on forward passes only.  hold: fetch each unit once and keep all of them until
	 * free, beyond the bound on gathered weights where that is less; else unit by unit, as in training. */
	int (*generate)(struct zd_lm_state *, int hold);
	/* fp32 master weights of unit u. */
	int (*master)(struct zd_lm_state *, uint32_t u, float *ret_weights);
	void (*stats)(struct zd_lm_state *, struct zerod_stats *);
	void (*free)(struct zd_lm_state *);
};

struct zd_lm_state {
	const struct zd_lm_state_ops *ops;
	const struct zd_lm_options *options;
	struct zerod_progress progress; /* after open and after each step */
	uint32_t units;
	uint64_t *numel;     /* per unit */
	uint64_t numel_max, numel_sum;
	uint64_t beyond_bytes; /* bf16 weights in memory of this process that the client does not count */
	char detail[1024];
};

/* NULL, with a text in `detail`, if it cannot be made; *ret_failure is why. */
struct zd_lm_state *zd_lm_state_daemon(const struct zd_lm_options *options, int *ret_failure, char *detail, size_t size);
struct zd_lm_state *zd_lm_state_replica(const struct zd_lm_options *options, int *ret_failure, char *detail, size_t size);
/* NULL for lack of memory only. */
struct zd_lm_state *zd_lm_state_local(const struct zd_lm_options *options, char *detail, size_t size);

/* For the implementations: fills the common part from the model's configuration; 0 or ZD_LM_FAILED (no memory). */
int zd_lm_state_init(struct zd_lm_state *state, const struct zd_lm_state_ops *ops, const struct zd_lm_options *options);
void zd_lm_state_fini(struct zd_lm_state *state);

/* SHA-256 over the fp32 master weights of all units in order, as 64 hexadecimal digits. */
int zd_lm_state_digest(struct zd_lm_state *state, char ret_hex[65]);

#endif
