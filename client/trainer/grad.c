/* SPDX-License-Identifier: Apache-2.0 */
#include "client/trainer/grad.h"

#include <stdlib.h>
#include <string.h>

#include "client/trainer/bf16.h"

void zd_lm_grad_encode(void *out, const float *grad, uint64_t n, enum zd_codec codec)
{
	if (codec == ZD_CODEC_FP32)
		memcpy(out, grad, n * sizeof *grad);
	else
		zd_bf16_round(out, grad, n);
}

int zd_lm_kept_init(struct zd_lm_kept *k, const struct zd_lm_state *state)
{
	const struct zd_lm_options *o = state->options;
	uint64_t before = 0;
	k->state = state;
	k->mode = o->accumulate;
	k->codec = o->grad_codec;
	k->micro_batches = k->mode == ZD_LM_LOCAL ? 1 : o->micro_batches;
	k->offset = calloc(state->units, sizeof *k->offset);
	k->coded = malloc(k->micro_batches * state->numel_sum * zd_codec_bytes(k->codec));
	k->sum = k->mode == ZD_LM_LOCAL ? malloc(state->numel_sum * sizeof *k->sum) : NULL;
	if (!k->offset || !k->coded || (k->mode == ZD_LM_LOCAL && !k->sum))
		return ZD_LM_FAILED;
	for (uint32_t u = 0; u < state->units; u++) {
		k->offset[u] = before;
		before += state->numel[u];
	}
	return 0;
}

void zd_lm_kept_fini(struct zd_lm_kept *k)
{
	free(k->offset);
	free(k->coded);
	free(k->sum);
}

static void *coded(const struct zd_lm_kept *k, uint32_t u, uint32_t micro)
{
	uint64_t element = micro * k->state->numel_sum + k->offset[u];
	return (char *)k->coded + element * zd_codec_bytes(k->codec);
}

void zd_lm_kept_put(struct zd_lm_kept *k, uint32_t u, uint32_t micro, const float *grad)
{
	uint64_t n = k->state->numel[u];
	if (k->mode == ZD_LM_EXACT) {
		zd_lm_grad_encode(coded(k, u, micro), grad, n, k->codec);
		return;
	}
	float *sum = k->sum + k->offset[u];
	if (micro == 0)
		memcpy(sum, grad, n * sizeof *sum);
	else
		for (uint64_t i = 0; i < n; i++)
			sum[i] += grad[i];
}

const void *zd_lm_kept_get(struct zd_lm_kept *k, uint32_t u, uint32_t micro)
{
	if (k->mode == ZD_LM_LOCAL)
		zd_lm_grad_encode(coded(k, u, 0), k->sum + k->offset[u], k->state->numel[u], k->codec);
	return coded(k, u, micro);
}

int zd_lm_kept_push(struct zd_lm_kept *k, struct zerod_client *client, uint32_t micro_batches)
{
	for (uint32_t m = 0; m < micro_batches; m++)
		for (uint32_t u = k->state->units; u-- > 0;) {
			int status = zerod_push_start(client, u, m, micro_batches, zd_lm_kept_get(k, u, m), NULL, NULL);
			if (status)
				return status;
		}
	return 0;
}
