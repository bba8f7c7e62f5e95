/* SPDX-License-Identifier: Apache-2.0 */
#include "client/trainer/attention.h"

#include <math.h>

#include "client/trainer/matrix.h"
#include "client/trainer/ops.h"

static float score_scale(const struct zd_attention_shape *shape)
{
	return 1.0f / sqrtf((float)(shape->dim / shape->heads));
}

/* Columns from `first` on of a matrix whose rows have ld elements. */
static struct zd_matrix slice(const float *rows, size_t ld, size_t first)
{
	return (struct zd_matrix){ .data = rows + first, .ld = ld };
}

void zd_attention_forward(const struct zd_attention_shape *shape, const float *qkv, float *probabilities, float *out)
{
	size_t context = shape->context, dim = shape->dim, width = dim / shape->heads;

	for (size_t sequence = 0; sequence < shape->batch; sequence++) {
		const float *rows = qkv + sequence * context * 3 * dim;
		float *out_rows = out + sequence * context * dim;

		for (size_t head = 0; head < shape->heads; head++, probabilities += context * context) {
			struct zd_matrix q = slice(rows, 3 * dim, head * width);
			struct zd_matrix k = slice(rows, 3 * dim, dim + head * width);
			struct zd_matrix v = slice(rows, 3 * dim, 2 * dim + head * width);
			struct zd_matrix p = slice(probabilities, context, 0);

			zd_matrix_product_bt(context, context, width, score_scale(shape), q, k, 0.0f, probabilities, context);
			zd_ops_causal_softmax(context, probabilities);
			zd_matrix_product(context, width, context, 1.0f, p, v, 0.0f, out_rows + head * width, dim);
		}
	}
}

void zd_attention_backward(const struct zd_attention_shape *shape, const float *qkv, const float *probabilities, const float *dout, float *dqkv,
			   float *square)
{
	size_t context = shape->context, dim = shape->dim, width = dim / shape->heads;

	for (size_t sequence = 0; sequence < shape->batch; sequence++) {
		const float *rows = qkv + sequence * context * 3 * dim;
		float *drows = dqkv + sequence * context * 3 * dim;

		for (size_t head = 0; head < shape->heads; head++, probabilities += context * context) {
			size_t at_q = head * width, at_k = dim + at_q, at_v = 2 * dim + at_q;
			struct zd_matrix p = slice(probabilities, context, 0);
			struct zd_matrix ds = slice(square, context, 0);
			struct zd_matrix dhead = slice(dout + sequence * context * dim, dim, at_q);

			zd_matrix_product_at(context, width, context, 1.0f, p, dhead, 0.0f, drows + at_v, 3 * dim);
			zd_matrix_product_bt(context, context, width, 1.0f, dhead, slice(rows, 3 * dim, at_v), 0.0f, square, context);
			zd_ops_causal_softmax_backward(context, probabilities, score_scale(shape), square);
			zd_matrix_product(context, width, context, 1.0f, ds, slice(rows, 3 * dim, at_k), 0.0f, drows + at_q, 3 * dim);
			zd_matrix_product_at(context, width, context, 1.0f, ds, slice(rows, 3 * dim, at_q), 0.0f, drows + at_k,
					     3 * dim);
		}
	}
}
