/* SPDX-License-Identifier: Apache-2.0 */
#include "client/trainer/connect.h"

#include <stdio.h>
#include <stdlib.h>

int zd_lm_connect_failure(const struct zerod_client *client, int status, char *detail, size_t size)
{
	const char *words = client ? zerod_detail(client) : "";
	snprintf(detail, size, "%s%s%s", zerod_status_text(status), *words ? ": " : "", words);
	if (status == ZEROD_REDO)
		return ZD_LM_REDO;
	return status == ZEROD_ERR_ABORTED || status == ZEROD_ERR_CONNECT || status == ZEROD_ERR_TIMEOUT ? ZD_LM_AGAIN : ZD_LM_FAILED;
}

/* Forward in order, backward in reverse: what the prefetcher needs to know before the first step has shown it. */
static int plan(struct zerod_client *client, const struct zd_lm_state *state)
{
	uint32_t n = state->units, *order = malloc(2 * n * sizeof *order);
	if (!order)
		return ZEROD_ERR_MEMORY;
	for (uint32_t u = 0; u < n; u++) {
		order[u] = u;
		order[2 * n - 1 - u] = u;
	}
	int status = zerod_plan_gathers(client, order, state->options->stage == 3 ? 2 * n : n);
	free(order);
	return status;
}

int zd_lm_connect(struct zerod_client **ret_client, struct zd_lm_state *state, uint64_t resident, char *detail, size_t size)
{
	const struct zd_lm_options *o = state->options;
	struct zerod_options z;
	struct zerod_unit *units = calloc(state->units, sizeof *units);
	char(*names)[ZD_LM_UNIT_NAME] = calloc(state->units, sizeof *names);
	*ret_client = NULL;
	if (!units || !names) {
		snprintf(detail, size, "no memory");
		free(units);
		free(names);
		return ZD_LM_FAILED;
	}
	for (uint32_t u = 0; u < state->units; u++)
		units[u] = (struct zerod_unit){zd_lm_unit_name(&o->model, u, names[u]), state->numel[u], 0};
	zerod_options_init(&z);
	z.endpoints = o->endpoints;
	z.job = o->job;
	z.optimizer = o->stage == 0 ? ZEROD_OPTIMIZER_NONE : o->l2 ? ZEROD_OPTIMIZER_ADAM : ZEROD_OPTIMIZER_ADAMW;
	z.grad_codec = (uint32_t)o->grad_codec;
	z.rank = o->launch.rank;
	z.world = o->launch.world;
	z.epoch = o->launch.epoch;
	z.launch = o->launch.nonce;
	z.lease_ms = o->lease_ms;
	z.timeout_ms = o->timeout_ms;
	if (o->timeout_ms && o->timeout_ms < z.connect_timeout_ms)
		z.connect_timeout_ms = o->timeout_ms;
	z.gather_bytes_max = o->gather_bytes ? o->gather_bytes : o->stage == 3 && o->reshard ? 0 : 2 * resident;
	z.waiting = o->waiting;
	z.waiting_arg = o->waiting_arg;
	z.prefetch = o->stage == 3 ? o->prefetch : state->units;
	int status = zerod_new(ret_client, &z, units, state->units, detail, size);
	free(units);
	free(names);
	if (status)
		return status == ZEROD_ERR_ARGUMENT ? ZD_LM_USAGE : ZD_LM_FAILED;
	if (o->stage != 0)
		status = plan(*ret_client, state);
	if (!status)
		status = zerod_connect(*ret_client);
	if (!status)
		status = zerod_progress(*ret_client, &state->progress);
	if (!status)
		return 0;
	/* Who cannot reach a daemon at the start has the wrong options more often than bad luck; a round that was ended is the launch's. */
	(void)zd_lm_connect_failure(*ret_client, status, detail, size);
	return status == ZEROD_ERR_ABORTED ? ZD_LM_AGAIN : ZD_LM_FAILED;
}
