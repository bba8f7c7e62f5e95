/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients on their way out: fp32 as the model computes them, to the wire's codec; and the ones that stages 0 and 1 keep until the end
 * of a round.  Threads: one. */
#ifndef ZD_LM_GRAD_H
#define ZD_LM_GRAD_H

#include "client/trainer/state.h"

/* n elements of fp32 to n elements of codec (bf16 rounded to nearest even, or fp32). */
void zd_lm_grad_encode(void *out, const float *grad, uint64_t n, enum zd_codec codec);

/* Gradients of all units of a round.  exact: one encoded copy per micro-batch.  local: one fp32 sum per unit, encoded when it is pushed. */
struct zd_lm_kept {
	const struct zd_lm_state *state;
	uint32_t micro_batches; /* copies: 1 if local */
	enum zd_lm_accumulate mode;
	enum zd_codec codec;
	uint64_t *offset; /* elements before unit u */
	void *coded;	  /* micro_batches * numel_sum elements of codec */
	float *sum;	  /* local: numel_sum elements */
};

int zd_lm_kept_init(struct zd_lm_kept *k, const struct zd_lm_state *state) ZEROD_MUST_USE; /* 0 or ZD_LM_FAILED */
void zd_lm_kept_fini(struct zd_lm_kept *k);
void zd_lm_kept_put(struct zd_lm_kept *k, uint32_t u, uint32_t micro, const float *grad);
/* The encoded gradient of unit u in wire micro-batch `micro`. */
const void *zd_lm_kept_get(struct zd_lm_kept *k, uint32_t u, uint32_t micro);
/* Starts the pushes of all units, micro-batch by micro-batch; a zerod_status.  The memory is borrowed until zerod_push_flush. */
int zd_lm_kept_push(struct zd_lm_kept *k, struct zerod_client *client, uint32_t micro_batches) ZEROD_MUST_USE;

#endif
