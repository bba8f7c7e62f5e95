/* SPDX-License-Identifier: Apache-2.0 */
#include "client/trainer/model.h"

#include <stdlib.h>
#include <string.h>

#include "client/trainer/bf16.h"
#include "client/trainer/block.h"
#include "client/trainer/matrix.h"
#include "client/trainer/ops.h"
#include "proto/assert.h"

#define ALIGN_FLOATS 16 /* 64 bytes: a cache line, and the widest vector there is */

struct zd_lm {
	struct zd_lm_config config;
	struct zd_attention_shape shape;
	size_t tokens; /* batch * context */
	size_t units;

	/*
	 * Where the micro-batch stands: units done, forward and then backward, so below `units` forward comes next, from
	 * there on backward, and at 2 * units nothing. NO_BATCH before the first.
	 */
	size_t done;
	double loss_sum;

	uint8_t *inputs, *targets;     /* [T] each */
	float *weights;		       /* the unit at work, widened */
	float *stream;		       /* [layers + 1][T][d]: input of each block, then of the head */
	float *dstream;		       /* [T][d] */
	float *logits;		       /* [T][256]: probabilities after forward */
	float *inverse;		       /* [T], the head's norm */
	struct zd_block_scratch scratch;
	struct zd_block_saved saved[]; /* one for each block; with recompute all are the same memory */
};

#define NO_BATCH SIZE_MAX

/* One allocation, handed out piece by piece; without a base it only counts. */
struct carve {
	float *base;
	size_t used;
};

static float *take(struct carve *carve, size_t floats)
{
	float *piece = carve->base != NULL ? carve->base + carve->used : NULL;

	carve->used += (floats + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
	return piece;
}

static struct zd_block_saved take_saved(struct carve *carve, const struct zd_lm_config *config)
{
	size_t tokens = (size_t)config->batch * config->context, d = config->dim;
	struct zd_block_saved saved;

	saved.inverse1 = take(carve, tokens);
	saved.qkv = take(carve, tokens * 3 * d);
	saved.probabilities = take(carve, tokens * config->heads * config->context);
	saved.attended = take(carve, tokens * d);
	saved.middle = take(carve, tokens * d);
	saved.inverse2 = take(carve, tokens);
	saved.up = take(carve, tokens * ZD_LM_WIDEN * d);
	return saved;
}

/* Fills the pointers of lm, which has room for config->layers saved blocks, or counts only (lm NULL). */
static void take_all(struct carve *carve, const struct zd_lm_config *config, struct zd_lm *lm)
{
	size_t tokens = (size_t)config->batch * config->context, d = config->dim;
	struct zd_lm all = { 0 };
	struct zd_block_saved shared = { 0 };

	all.inputs = (uint8_t *)take(carve, (tokens + sizeof(float) - 1) / sizeof(float));
	all.targets = (uint8_t *)take(carve, (tokens + sizeof(float) - 1) / sizeof(float));
	all.weights = take(carve, zd_lm_largest_unit(config));
	all.stream = take(carve, ((size_t)config->layers + 1) * tokens * d);
	all.dstream = take(carve, tokens * d);
	all.logits = take(carve, tokens * ZD_LM_VOCAB);
	all.inverse = take(carve, tokens);
	all.scratch.normed = take(carve, tokens * d);
	all.scratch.dnormed = take(carve, tokens * d);
	all.scratch.hidden = take(carve, tokens * ZD_LM_WIDEN * d);
	all.scratch.dhidden = take(carve, tokens * ZD_LM_WIDEN * d);
	all.scratch.square = take(carve, (size_t)config->context * config->context);
	if (lm != NULL)
		*lm = all;

	if (config->recompute)
		shared = take_saved(carve, config);
	for (uint32_t i = 0; i < config->layers; i++) {
		struct zd_block_saved saved = config->recompute ? shared : take_saved(carve, config);

		if (lm != NULL)
			lm->saved[i] = saved;
	}
}

static size_t handle_bytes(const struct zd_lm_config *config)
{
	return sizeof(struct zd_lm) + config->layers * sizeof(struct zd_block_saved);
}

size_t zd_lm_memory(const struct zd_lm_config *config)
{
	struct carve carve = { .base = NULL, .used = 0 };

	take_all(&carve, config, NULL);
	return carve.used * sizeof(float) + handle_bytes(config);
}

struct zd_lm *zd_lm_new(const struct zd_lm_config *config)
{
	struct carve carve = { .base = NULL, .used = 0 };

	take_all(&carve, config, NULL);
	float *base = aligned_alloc(ALIGN_FLOATS * sizeof(float), carve.used * sizeof(float));
	struct zd_lm *lm = malloc(handle_bytes(config));
	if (base == NULL || lm == NULL || zd_matrix_begin() < 0) {
		free(base);
		free(lm);
		return NULL;
	}
	carve = (struct carve){ .base = base, .used = 0 };
	take_all(&carve, config, lm);
	ZD_ASSERT((void *)lm->inputs == (void *)base); /* the piece that zd_lm_free gives back */

	lm->config = *config;
	lm->shape = (struct zd_attention_shape){
		.batch = config->batch, .context = config->context, .heads = config->heads, .dim = config->dim
	};
	lm->tokens = (size_t)config->batch * config->context;
	lm->units = zd_lm_units(config);
	lm->done = NO_BATCH;
	return lm;
}

void zd_lm_free(struct zd_lm *lm)
{
	if (lm == NULL)
		return;
	free(lm->inputs);
	free(lm);
}

void zd_lm_set_batch(struct zd_lm *lm, const uint8_t *tokens)
{
	size_t context = lm->config.context;

	for (size_t row = 0; row < lm->config.batch; row++, tokens += context + 1) {
		memcpy(lm->inputs + row * context, tokens, context);
		memcpy(lm->targets + row * context, tokens + 1, context);
	}
	lm->done = 0;
}

static float *stream_at(const struct zd_lm *lm, size_t layer)
{
	return lm->stream + layer * lm->tokens * lm->config.dim;
}

static struct zd_matrix packed(const float *data, size_t columns)
{
	return (struct zd_matrix){ .data = data, .ld = columns };
}

static void forward_embed(struct zd_lm *lm)
{
	size_t d = lm->config.dim;
	const float *positions = lm->weights + zd_lm_embed_position(&lm->config);
	float *out = stream_at(lm, 0);

	for (size_t token = 0; token < lm->tokens; token++, out += d) {
		memcpy(out, lm->weights + lm->inputs[token] * d, d * sizeof(*out));
		zd_ops_add(d, out, positions + token % lm->config.context * d);
	}
}

static void backward_embed(struct zd_lm *lm, float *grad)
{
	size_t d = lm->config.dim;
	float *positions = grad + zd_lm_embed_position(&lm->config);
	const float *from = lm->dstream;

	for (size_t token = 0; token < lm->tokens; token++, from += d) {
		zd_ops_add(d, grad + lm->inputs[token] * d, from);
		zd_ops_add(d, positions + token % lm->config.context * d, from);
	}
}

static void forward_head(struct zd_lm *lm)
{
	size_t d = lm->config.dim;
	const float *out = lm->weights + zd_lm_head_out(&lm->config);

	zd_ops_norm(lm->tokens, d, stream_at(lm, lm->config.layers), lm->weights, lm->inverse, lm->scratch.normed);
	zd_matrix_product(lm->tokens, ZD_LM_VOCAB, d, 1.0f, packed(lm->scratch.normed, d), packed(out, ZD_LM_VOCAB), 0.0f, lm->logits,
			  ZD_LM_VOCAB);
	lm->loss_sum = zd_ops_cross_entropy(lm->tokens, ZD_LM_VOCAB, lm->logits, lm->targets);
}

static void backward_head(struct zd_lm *lm, float *grad)
{
	size_t d = lm->config.dim;
	const float *out = lm->weights + zd_lm_head_out(&lm->config);
	const float *x = stream_at(lm, lm->config.layers);

	zd_ops_cross_entropy_backward(lm->tokens, ZD_LM_VOCAB, lm->logits, lm->targets);
	zd_ops_norm(lm->tokens, d, x, lm->weights, lm->inverse, lm->scratch.normed);
	zd_matrix_product_at(d, ZD_LM_VOCAB, lm->tokens, 1.0f, packed(lm->scratch.normed, d), packed(lm->logits, ZD_LM_VOCAB), 1.0f,
			     grad + zd_lm_head_out(&lm->config), ZD_LM_VOCAB);
	zd_matrix_product_bt(lm->tokens, d, ZD_LM_VOCAB, 1.0f, packed(lm->logits, ZD_LM_VOCAB), packed(out, ZD_LM_VOCAB), 0.0f,
			     lm->scratch.dnormed, d);
	memset(lm->dstream, 0, lm->tokens * d * sizeof(*lm->dstream));
	zd_ops_norm_backward(lm->tokens, d, x, lm->weights, lm->inverse, lm->scratch.dnormed, lm->dstream, grad);
}

static void forward_block(struct zd_lm *lm, size_t layer, float *out)
{
	zd_block_forward(&lm->shape, lm->weights, stream_at(lm, layer), &lm->saved[layer], &lm->scratch, out);
}

void zd_lm_forward_unit(struct zd_lm *lm, size_t unit, const uint16_t *weights)
{
	ZD_ASSERT(lm->done == unit && unit < lm->units);
	zd_bf16_widen(lm->weights, weights, zd_lm_unit_numel(&lm->config, unit));
	if (unit == 0)
		forward_embed(lm);
	else if (unit < lm->units - 1)
		forward_block(lm, unit - 1, stream_at(lm, unit));
	else
		forward_head(lm);
	lm->done++;
}

double zd_lm_loss(const struct zd_lm *lm)
{
	ZD_ASSERT(lm->done != NO_BATCH && lm->done >= lm->units);
	return lm->loss_sum / (double)lm->tokens;
}

void zd_lm_backward_unit(struct zd_lm *lm, size_t unit, const uint16_t *weights, float *grad, bool accumulate)
{
	size_t numel = zd_lm_unit_numel(&lm->config, unit);

	ZD_ASSERT(lm->done >= lm->units && lm->done == 2 * lm->units - 1 - unit);
	zd_bf16_widen(lm->weights, weights, numel);
	if (!accumulate)
		memset(grad, 0, numel * sizeof(*grad));
	if (unit == 0) {
		backward_embed(lm, grad);
	} else if (unit < lm->units - 1) {
		/* What forward left was of the last block. Its output is not wanted: dnormed is scratch that forward leaves alone. */
		if (lm->config.recompute)
			forward_block(lm, unit - 1, lm->scratch.dnormed);
		zd_block_backward(&lm->shape, lm->weights, stream_at(lm, unit - 1), &lm->saved[unit - 1], &lm->scratch, lm->dstream, grad);
	} else {
		backward_head(lm, grad);
	}
	lm->done++;
}

const float *zd_lm_probabilities(const struct zd_lm *lm, uint32_t row, uint32_t at)
{
	ZD_ASSERT(lm->done == lm->units && row < lm->config.batch && at < lm->config.context);
	return lm->logits + ((size_t)row * lm->config.context + at) * ZD_LM_VOCAB;
}
