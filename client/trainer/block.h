/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One Transformer block on fp32 weights:
 *
 *   middle = x + proj(attention(qkv(norm1(x))))
 *   out    = middle + down(gelu(up(norm2(middle))))
 *
 * Weights and their gradient are flat vectors, laid out as zd_lm_block_layout says. T below is batch * context tokens, d is dim.
 * Nothing allocates; buffers belong to the caller and do not overlap.
 */
#ifndef ZD_TRAINER_BLOCK_H
#define ZD_TRAINER_BLOCK_H

#include "client/trainer/attention.h"

/* What backward needs of the forward pass, beside the block's input. */
struct zd_block_saved {
	float *inverse1;      /* [T] */
	float *qkv;	      /* [T][3d] */
	float *probabilities; /* [batch][heads][context][context] */
	float *attended;      /* [T][d] */
	float *middle;	      /* [T][d] */
	float *inverse2;      /* [T] */
	float *up;	      /* [T][4d], before the GELU */
};

/* Contents mean nothing between calls. */
struct zd_block_scratch {
	float *normed;	/* [T][d] */
	float *dnormed; /* [T][d] */
	float *hidden;	/* [T][4d] */
	float *dhidden; /* [T][4d] */
	float *square;	/* [context][context] */
};

void zd_block_forward(const struct zd_attention_shape *shape, const float *weights, const float *x, const struct zd_block_saved *saved,
		      const struct zd_block_scratch *scratch, float *out);

/* dx holds the gradient of the block's output and receives that of its input; the weights' gradient is added to dweights. */
void zd_block_backward(const struct zd_attention_shape *shape, const float *weights, const float *x, const struct zd_block_saved *saved,
		       const struct zd_block_scratch *scratch, float *dx, float *dweights);

#endif
