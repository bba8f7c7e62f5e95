/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causal multi-head attention between the projections (Vaswani et al. 2017), forward and backward, on packed rows of
 * tokens: batch sequences of context tokens each. Heads are slices of dim / heads columns.
 *
 *   qkv            [batch * context][3 * dim]                queries, keys, values side by side
 *   probabilities  [batch][heads][context][context]          kept from forward for backward
 *   out            [batch * context][dim]
 *
 * Nothing allocates; any thread.
 */
#ifndef ZD_TRAINER_ATTENTION_H
#define ZD_TRAINER_ATTENTION_H

#include <stddef.h>

struct zd_attention_shape {
	size_t batch, context, heads, dim;
};

void zd_attention_forward(const struct zd_attention_shape *shape, const float *qkv, float *probabilities, float *out);

/* Writes the gradient of qkv; square is scratch of context^2 floats. */
void zd_attention_backward(const struct zd_attention_shape *shape, const float *qkv, const float *probabilities, const float *dout, float *dqkv,
			   float *square);

#endif
