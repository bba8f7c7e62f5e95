/* SPDX-License-Identifier: Apache-2.0 */
#include "client/trainer/planes.h"

#include <stdlib.h>

int zd_lm_planes_init(struct zd_lm_planes *p, const struct zd_lm_state *state)
{
	const struct zd_lm_options *o = state->options;
	uint64_t n = state->numel_sum, before = 0;
	struct zd_reduce_result refused;
	p->state = state;
	p->kernels = zd_kernels_select(o->kernels);
	p->offset = calloc(state->units, sizeof *p->offset);
	p->hi = malloc(n * sizeof *p->hi);
	p->lo = malloc(n * sizeof *p->lo);
	p->m = calloc(n, sizeof *p->m);
	p->v = calloc(n, sizeof *p->v);
	float *w = malloc(state->numel_max * sizeof *w);
	int ok = p->kernels && p->offset && p->hi && p->lo && p->m && p->v && w;
	for (uint32_t u = 0; ok && u < state->units; u++) {
		p->offset[u] = before;
		zd_lm_init_unit(&o->model, o->seed, u, w);
		p->kernels->split[ZD_CODEC_FP32](p->hi + before, p->lo + before, w, state->numel[u], &refused);
		before += state->numel[u];
	}
	free(w);
	return ok ? 0 : ZD_LM_FAILED;
}

void zd_lm_planes_fini(struct zd_lm_planes *p)
{
	free(p->offset);
	free(p->hi);
	free(p->lo);
	free(p->m);
	free(p->v);
}

const uint16_t *zd_lm_planes_weights(const struct zd_lm_planes *p, uint32_t u)
{
	return p->hi + p->offset[u];
}

void zd_lm_planes_master(const struct zd_lm_planes *p, uint32_t u, float *ret_weights)
{
	uint64_t at = p->offset[u];
	p->kernels->merge(ret_weights, p->hi + at, p->lo + at, p->state->numel[u]);
}

void zd_lm_planes_step(struct zd_lm_planes *p, uint32_t u, const float *sum, const struct zerod_hyper *h, uint64_t t, double scale)
{
	struct zd_adam_consts consts;
	struct zd_adam_params params = {h->lr, h->weight_decay, h->beta1, h->beta2, h->eps, p->state->options->l2};
	uint64_t at = p->offset[u];
	zd_adam_consts_init(&consts, &params, t, scale);
	p->kernels->adam[ZD_GRAD_FP32](p->hi + at, p->lo + at, p->m + at, p->v + at, sum, NULL, p->state->numel[u], &consts, NULL);
}
