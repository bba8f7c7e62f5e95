/* SPDX-License-Identifier: Apache-2.0 */
#include "client/trainer/train.h"

#include <stdio.h>
#include <stdlib.h>

#include "client/trainer/matrix.h"
#include "client/trainer/model.h"
#include "client/trainer/text.h"

struct training {
	struct zd_lm_state *state;
	struct zd_text *text;
	struct zd_lm *model;
	uint8_t *tokens;
	float *grad; /* of the largest unit */
};

static int open_training(struct training *t, struct zd_lm_state *state)
{
	const struct zd_lm_options *o = state->options;
	t->state = state;
	if (zd_text_open(o->text, o->model.context, &t->text, state->detail, sizeof state->detail) < 0)
		return ZD_LM_FAILED;
	t->model = zd_lm_new(&o->model);
	t->tokens = malloc((size_t)o->model.batch * (o->model.context + 1));
	t->grad = malloc(state->numel_max * sizeof *t->grad);
	if (t->model && t->tokens && t->grad)
		return 0;
	snprintf(state->detail, sizeof state->detail,
		 "no memory for the model: expected %zu bytes, and %zu of address space for matrix products; choose a smaller --batch or --recompute, or "
		 "raise the limit (ulimit -v)",
		 zd_lm_memory(&o->model), ZD_MATRIX_MEMORY);
	return ZD_LM_FAILED;
}

static void close_training(struct training *t)
{
	zd_text_close(t->text);
	zd_lm_free(t->model);
	free(t->tokens);
	free(t->grad);
}

/* Forward and backward of one rank's micro-batch. */
static int micro_batch(struct training *t, uint64_t step, uint32_t micro, uint32_t rank, double *ret_loss)
{
	struct zd_lm_state *s = t->state;
	const struct zd_lm_options *o = s->options;
	struct zd_text_place place = {.seed = o->seed,
				      .step = step,
				      .micro_batch = micro,
				      .micro_batches = o->micro_batches,
				      .rank = rank,
				      .world = o->launch.world,
				      .batch = o->model.batch};
	const uint16_t *w;
	if (zd_text_batch(t->text, &place, t->tokens, s->detail, sizeof s->detail) < 0)
		return ZD_LM_FAILED;
	zd_lm_set_batch(t->model, t->tokens);
	for (uint32_t u = 0; u < s->units; u++) {
		int rc = s->ops->gather(s, u, 0, &w);
		if (rc)
			return rc;
		zd_lm_forward_unit(t->model, u, w);
		rc = s->ops->release(s, u, 0);
		if (rc)
			return rc;
	}
	*ret_loss = zd_lm_loss(t->model);
	for (uint32_t u = s->units; u-- > 0;) {
		int rc = s->ops->gather(s, u, 1, &w);
		if (rc)
			return rc;
		zd_lm_backward_unit(t->model, u, w, t->grad, false);
		rc = s->ops->push(s, u, rank, micro, t->grad);
		if (!rc)
			rc = s->ops->release(s, u, 1);
		if (rc)
			return rc;
	}
	return 0;
}

static int one_round(struct training *t, struct zd_lm_round *r)
{
	struct zd_lm_state *s = t->state;
	const struct zd_lm_options *o = s->options;
	int all = o->command == ZD_LM_REFERENCE;
	uint32_t first = all ? 0 : o->launch.rank, count = all ? o->launch.world : 1;
	double sum = 0;
	int rc = s->ops->begin(s);
	for (uint32_t m = 0; m < o->micro_batches && !rc; m++)
		for (uint32_t rank = first; rank < first + count && !rc; rank++) {
			double loss = 0;
			rc = micro_batch(t, s->progress.round, m, rank, &loss);
			sum += rank == first ? loss : 0;
		}
	if (rc)
		return rc;
	struct zerod_hyper h;
	zerod_hyper_init(&h);
	r->lr = zd_schedule_rate(&o->schedule, s->progress.step + 1);
	h.lr = r->lr;
	h.weight_decay = o->weight_decay;
	h.beta1 = o->beta1;
	h.beta2 = o->beta2;
	h.eps = o->eps;
	h.max_norm = o->max_norm;
	r->loss = sum / o->micro_batches;
	return s->ops->step(s, &h, &r->result);
}

int zd_lm_train(struct zd_lm_state *state, zd_lm_observe *observe, void *arg)
{
	struct training t = {0};
	int rc = open_training(&t, state);
	while (!rc && state->progress.round < state->options->steps) {
		struct zd_lm_round round = {.round = state->progress.round + 1};
		rc = one_round(&t, &round);
		if (rc == ZD_LM_REDO) {
			rc = 0; /* contributions were lost on the way: the same data again */
			continue;
		}
		if (!rc && observe)
			observe(arg, state, &round);
	}
	close_training(&t);
	return rc;
}
