/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference: one process plays all ranks, adds up their gradients in the order (micro-batch, rank) and makes the step, with the
 * kernels and the decision that daemons and clients use, and nothing else of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainer/grad.h"
#include "client/trainer/planes.h"
#include "proto/decide.h"

struct local_state {
	struct zd_lm_state base;
	struct zd_lm_planes planes;
	float *sum;	    /* numel_sum: gradient sums of the open round */
	float *own;	    /* local accumulation: world * numel_sum, each rank's own sum */
	void *coded;	    /* one unit on its way through the wire's codec */
	double *blocks;	    /* block sums of one unit */
	struct zd_normacc norm;
	uint64_t nonfinite, bad_element;
	uint32_t bad_unit, bad_rank;
	uint64_t round, step;
};

static struct local_state *self(struct zd_lm_state *s)
{
	return (struct local_state *)s;
}

static int begin(struct zd_lm_state *s)
{
	struct local_state *l = self(s);
	zd_normacc_zero(&l->norm);
	l->nonfinite = 0;
	return 0;
}

static int gather(struct zd_lm_state *s, uint32_t u, int backward, const uint16_t **ret_weights)
{
	(void)backward;
	*ret_weights = zd_lm_planes_weights(&self(s)->planes, u);
	return 0;
}

static int release(struct zd_lm_state *s, uint32_t u, int backward)
{
	(void)s;
	(void)u;
	(void)backward;
	return 0;
}

/* Adds contribution `k` (of all micro-batches and ranks) of unit u; `last` of them: the norm. */
static void reduce(struct local_state *l, uint32_t u, uint32_t k, int last, uint32_t rank, const float *grad)
{
	const struct zd_lm_options *o = l->base.options;
	const struct zd_kernels *kernels = l->planes.kernels;
	uint64_t n = l->base.numel[u];
	float *sum = l->sum + l->planes.offset[u];
	struct zd_reduce_result result = {0};
	zd_lm_grad_encode(l->coded, grad, n, o->grad_codec);
	(k == 0 ? kernels->acc_set : kernels->acc_add)[o->grad_codec](sum, l->coded, n, last ? l->blocks : NULL, &result);
	if (result.nonfinite && (l->nonfinite == 0 || u < l->bad_unit)) {
		l->bad_unit = u;
		l->bad_element = result.first_nonfinite;
		l->bad_rank = rank;
	}
	if (last)
		l->nonfinite += result.nonfinite;
	for (uint64_t b = 0; last && !result.nonfinite && b < (n + ZD_BLOCK_ELEMS - 1) / ZD_BLOCK_ELEMS; b++)
		zd_normacc_add(&l->norm, l->blocks[b]);
}

static int push(struct zd_lm_state *s, uint32_t u, uint32_t rank, uint32_t micro, const float *grad)
{
	struct local_state *l = self(s);
	const struct zd_lm_options *o = s->options;
	uint32_t world = o->launch.world;
	if (o->accumulate == ZD_LM_EXACT) {
		reduce(l, u, micro * world + rank, micro + 1 == o->micro_batches && rank + 1 == world, rank, grad);
		return 0;
	}
	float *own = l->own + rank * s->numel_sum + l->planes.offset[u];
	if (micro == 0)
		memcpy(own, grad, s->numel[u] * sizeof *own);
	else
		for (uint64_t i = 0; i < s->numel[u]; i++)
			own[i] += grad[i];
	if (micro + 1 == o->micro_batches)
		reduce(l, u, rank, rank + 1 == world, rank, own);
	return 0;
}

static int step(struct zd_lm_state *s, const struct zerod_hyper *h, struct zerod_step_result *ret)
{
	struct local_state *l = self(s);
	const struct zd_lm_options *o = s->options;
	struct zd_decision d;
	struct zd_record record = {
		.round = l->round + 1,
		.ballot = {1, 0},
		.hyper = {h->lr, h->weight_decay, h->beta1, h->beta2, h->eps, h->max_norm, h->loss_scale, h->weight},
		.world = o->launch.world,
		.micro_batches = o->accumulate == ZD_LM_LOCAL ? 1 : o->micro_batches,
		.norm = l->norm,
		.nonfinite = l->nonfinite,
		.bad_unit = l->bad_unit,
		.bad_rank = l->bad_rank,
		.bad_element = l->bad_element,
	};
	if (zd_decide(&record, 1, l->step, &d, s->detail, sizeof s->detail) < 0)
		return ZD_LM_FAILED;
	for (uint32_t u = 0; u < s->units && d.applied; u++)
		zd_lm_planes_step(&l->planes, u, l->sum + l->planes.offset[u], h, d.step, d.scale);
	l->round = d.round;
	l->step = d.step;
	s->progress.round = l->round;
	s->progress.step = l->step;
	*ret = (struct zerod_step_result){.round = d.round,
					  .step = d.step,
					  .norm = d.norm,
					  .scale = d.scale,
					  .skipped = !d.applied,
					  .bad_unit = l->bad_unit,
					  .bad_rank = l->bad_rank,
					  .bad_element = l->bad_element,
					  .nonfinite = l->nonfinite};
	return 0;
}

static int generate(struct zd_lm_state *s, int hold)
{
	(void)s;
	(void)hold; /* all weights are here anyway */
	return 0;
}

static int master(struct zd_lm_state *s, uint32_t u, float *ret_weights)
{
	zd_lm_planes_master(&self(s)->planes, u, ret_weights);
	return 0;
}

static void stats(struct zd_lm_state *s, struct zerod_stats *ret)
{
	memset(ret, 0, sizeof *ret);
	ret->gathered_bytes = ret->gathered_bytes_max = ret->gather_bytes_limit = 2 * s->numel_sum;
}

static void free_state(struct zd_lm_state *s)
{
	struct local_state *l = self(s);
	zd_lm_planes_fini(&l->planes);
	free(l->sum);
	free(l->own);
	free(l->coded);
	free(l->blocks);
	zd_lm_state_fini(s);
	free(l);
}

static const struct zd_lm_state_ops ops = {begin, gather, release, push, step, generate, master, stats, free_state};

struct zd_lm_state *zd_lm_state_local(const struct zd_lm_options *o, char *detail, size_t size)
{
	struct local_state *l = calloc(1, sizeof *l);
	if (!l || zd_lm_state_init(&l->base, &ops, o)) {
		snprintf(detail, size, "no memory");
		free(l);
		return NULL;
	}
	l->sum = malloc(l->base.numel_sum * sizeof *l->sum);
	l->own = o->accumulate == ZD_LM_LOCAL ? malloc(o->launch.world * l->base.numel_sum * sizeof *l->own) : NULL;
	l->coded = malloc(l->base.numel_max * sizeof(float));
	l->blocks = malloc((l->base.numel_max / ZD_BLOCK_ELEMS + 1) * sizeof *l->blocks);
	l->base.progress.sealed = 1;
	if (l->sum && l->coded && l->blocks && (l->own || o->accumulate == ZD_LM_EXACT) && zd_lm_planes_init(&l->planes, &l->base) == 0)
		return &l->base;
	snprintf(detail, size, "no memory for %llu parameters", (unsigned long long)l->base.numel_sum);
	free_state(&l->base);
	return NULL;
}
