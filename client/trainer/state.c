/* SPDX-License-Identifier: Apache-2.0 */
#include "client/trainer/state.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int zd_lm_state_init(struct zd_lm_state *state, const struct zd_lm_state_ops *ops, const struct zd_lm_options *options)
{
	state->ops = ops;
	state->options = options;
	state->units = (uint32_t)zd_lm_units(&options->model);
	state->numel = calloc(state->units, sizeof *state->numel);
	if (!state->numel)
		return ZD_LM_FAILED;
	for (uint32_t u = 0; u < state->units; u++) {
		uint64_t n = zd_lm_unit_numel(&options->model, u);
		state->numel[u] = n;
		state->numel_sum += n;
		state->numel_max = n > state->numel_max ? n : state->numel_max;
	}
	return 0;
}

void zd_lm_state_fini(struct zd_lm_state *state)
{
	free(state->numel);
}

int zd_lm_state_digest(struct zd_lm_state *state, char ret_hex[65])
{
	unsigned char md[32];
	unsigned len = 0;
	int rc = ZD_LM_FAILED;
	float *w = malloc(state->numel_max * sizeof *w);
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	if (!w || !ctx || EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) != 1) {
		snprintf(state->detail, sizeof state->detail, "no memory for the digest");
		goto out;
	}
	for (uint32_t u = 0; u < state->units; u++) {
		rc = state->ops->master(state, u, w);
		if (rc)
			goto out;
		if (EVP_DigestUpdate(ctx, w, state->numel[u] * sizeof *w) != 1) {
			rc = ZD_LM_FAILED;
			goto out;
		}
	}
	rc = EVP_DigestFinal_ex(ctx, md, &len) == 1 && len == sizeof md ? 0 : ZD_LM_FAILED;
	for (unsigned i = 0; rc == 0 && i < len; i++)
		snprintf(ret_hex + 2 * i, 3, "%02x", md[i]);
out:
	EVP_MD_CTX_free(ctx);
	free(w);
	return rc;
}
