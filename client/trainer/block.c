/* SPDX-License-Identifier: Apache-2.0 */
#include "client/trainer/block.h"

#include <string.h>

#include "client/trainer/config.h"
#include "client/trainer/matrix.h"
#include "client/trainer/ops.h"

static struct zd_matrix packed(const float *data, size_t columns)
{
	return (struct zd_matrix){ .data = data, .ld = columns };
}

void zd_block_forward(const struct zd_attention_shape *shape, const float *weights, const float *x, const struct zd_block_saved *saved,
		      const struct zd_block_scratch *scratch, float *out)
{
	struct zd_lm_block_layout at = zd_lm_block_layout((uint32_t)shape->dim);
	size_t tokens = shape->batch * shape->context, d = shape->dim, wide = ZD_LM_WIDEN * d;

	zd_ops_norm(tokens, d, x, weights + at.norm1, saved->inverse1, scratch->normed);
	zd_matrix_product(tokens, 3 * d, d, 1.0f, packed(scratch->normed, d), packed(weights + at.qkv, 3 * d), 0.0f, saved->qkv, 3 * d);
	zd_attention_forward(shape, saved->qkv, saved->probabilities, saved->attended);
	memcpy(saved->middle, x, tokens * d * sizeof(*x));
	zd_matrix_product(tokens, d, d, 1.0f, packed(saved->attended, d), packed(weights + at.proj, d), 1.0f, saved->middle, d);

	zd_ops_norm(tokens, d, saved->middle, weights + at.norm2, saved->inverse2, scratch->normed);
	zd_matrix_product(tokens, wide, d, 1.0f, packed(scratch->normed, d), packed(weights + at.up, wide), 0.0f, saved->up, wide);
	zd_ops_gelu(tokens * wide, saved->up, scratch->hidden);
	memcpy(out, saved->middle, tokens * d * sizeof(*out));
	zd_matrix_product(tokens, d, wide, 1.0f, packed(scratch->hidden, wide), packed(weights + at.down, d), 1.0f, out, d);
}

/* Through the MLP and its norm: dx from the gradient of the block's output to that of middle. */
static void backward_mlp(const struct zd_attention_shape *shape, const float *weights, const struct zd_block_saved *saved,
			 const struct zd_block_scratch *scratch, float *dx, float *dweights)
{
	struct zd_lm_block_layout at = zd_lm_block_layout((uint32_t)shape->dim);
	size_t tokens = shape->batch * shape->context, d = shape->dim, wide = ZD_LM_WIDEN * d;

	zd_matrix_product_bt(tokens, wide, d, 1.0f, packed(dx, d), packed(weights + at.down, d), 0.0f, scratch->dhidden, wide);
	zd_ops_gelu_backward(tokens * wide, saved->up, scratch->hidden, scratch->dhidden);
	zd_matrix_product_at(wide, d, tokens, 1.0f, packed(scratch->hidden, wide), packed(dx, d), 1.0f, dweights + at.down, d);

	zd_ops_norm(tokens, d, saved->middle, weights + at.norm2, saved->inverse2, scratch->normed);
	zd_matrix_product_at(d, wide, tokens, 1.0f, packed(scratch->normed, d), packed(scratch->dhidden, wide), 1.0f, dweights + at.up, wide);
	zd_matrix_product_bt(tokens, d, wide, 1.0f, packed(scratch->dhidden, wide), packed(weights + at.up, wide), 0.0f, scratch->dnormed,
			     d);
	zd_ops_norm_backward(tokens, d, saved->middle, weights + at.norm2, saved->inverse2, scratch->dnormed, dx, dweights + at.norm2);
}

/* Through attention and its norm: dx from the gradient of middle to that of the block's input. */
static void backward_attention(const struct zd_attention_shape *shape, const float *weights, const float *x,
			       const struct zd_block_saved *saved, const struct zd_block_scratch *scratch, float *dx, float *dweights)
{
	struct zd_lm_block_layout at = zd_lm_block_layout((uint32_t)shape->dim);
	size_t tokens = shape->batch * shape->context, d = shape->dim;
	float *dqkv = scratch->hidden; /* 3d of its 4d columns' room */

	zd_matrix_product_bt(tokens, d, d, 1.0f, packed(dx, d), packed(weights + at.proj, d), 0.0f, scratch->dnormed, d);
	zd_matrix_product_at(d, d, tokens, 1.0f, packed(saved->attended, d), packed(dx, d), 1.0f, dweights + at.proj, d);
	zd_attention_backward(shape, saved->qkv, saved->probabilities, scratch->dnormed, dqkv, scratch->square);

	zd_ops_norm(tokens, d, x, weights + at.norm1, saved->inverse1, scratch->normed);
	zd_matrix_product_at(d, 3 * d, tokens, 1.0f, packed(scratch->normed, d), packed(dqkv, 3 * d), 1.0f, dweights + at.qkv, 3 * d);
	zd_matrix_product_bt(tokens, d, 3 * d, 1.0f, packed(dqkv, 3 * d), packed(weights + at.qkv, 3 * d), 0.0f, scratch->dnormed, d);
	zd_ops_norm_backward(tokens, d, x, weights + at.norm1, saved->inverse1, scratch->dnormed, dx, dweights + at.norm1);
}

void zd_block_backward(const struct zd_attention_shape *shape, const float *weights, const float *x, const struct zd_block_saved *saved,
		       const struct zd_block_scratch *scratch, float *dx, float *dweights)
{
	backward_mlp(shape, weights, saved, scratch, dx, dweights);
	backward_attention(shape, weights, x, saved, scratch, dx, dweights);
}
