/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stage 0 (NO_SHARD, as DistributedDataParallel): every worker keeps weights, moments and gradients; the daemons add up the gradients
 * and return the sum.  A worker that dies takes its state with it, so a launch can only begin at round 1.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainer/connect.h"
#include "client/trainer/grad.h"
#include "client/trainer/planes.h"

struct replica_state {
	struct zd_lm_state base;
	struct zerod_client *client;
	struct zd_lm_planes planes;
	struct zd_lm_kept kept;
	float *sum; /* of one unit */
	uint32_t wire_micro;
};

static struct replica_state *self(struct zd_lm_state *s)
{
	return (struct replica_state *)s;
}

/* Of a job that has made steps; %s is its name. */
#define NO_WAY_ON "in stage 0 the weights end with the workers: choose another --job, or drop this one (zeroctl --yes job drop %s)"

static int failed(struct replica_state *r, int status)
{
	char *detail = r->base.detail;
	size_t size = sizeof r->base.detail, len;
	int rc = zd_lm_connect_failure(r->client, status, detail, size);
	if (rc != ZD_LM_AGAIN || r->base.progress.round == 0)
		return rc;
	len = strlen(detail);
	snprintf(detail + len, size - len, "; no launch can go on, " NO_WAY_ON, r->base.options->job);
	return ZD_LM_FAILED;
}

static int begin(struct zd_lm_state *s)
{
	(void)s;
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

static int push(struct zd_lm_state *s, uint32_t u, uint32_t rank, uint32_t micro, const float *grad)
{
	(void)rank;
	zd_lm_kept_put(&self(s)->kept, u, micro, grad);
	return 0;
}

static int step(struct zd_lm_state *s, const struct zerod_hyper *hyper, struct zerod_step_result *ret)
{
	struct replica_state *r = self(s);
	int status = zd_lm_kept_push(&r->kept, r->client, r->wire_micro);
	int flushed = zerod_push_flush(r->client);
	if (!status)
		status = flushed;
	if (!status)
		status = zerod_step(r->client, hyper, r->wire_micro, ret);
	for (uint32_t u = 0; u < s->units && !status && !ret->skipped; u++) {
		status = zerod_fetch_gradient(r->client, u, r->sum);
		if (!status)
			zd_lm_planes_step(&r->planes, u, r->sum, hyper, ret->step, ret->scale);
	}
	if (!status)
		status = zerod_progress(r->client, &s->progress);
	return status ? failed(r, status) : 0;
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
	if (zerod_stats(self(s)->client, ret))
		memset(ret, 0, sizeof *ret);
	ret->gathered_bytes = ret->gathered_bytes_max = ret->gather_bytes_limit = 2 * s->numel_sum;
}

static void free_state(struct zd_lm_state *s)
{
	struct replica_state *r = self(s);
	zerod_free(r->client);
	zd_lm_planes_fini(&r->planes);
	zd_lm_kept_fini(&r->kept);
	free(r->sum);
	zd_lm_state_fini(s);
	free(r);
}

static const struct zd_lm_state_ops ops = {begin, gather, release, push, step, generate, master, stats, free_state};

struct zd_lm_state *zd_lm_state_replica(const struct zd_lm_options *o, int *ret_failure, char *detail, size_t size)
{
	*ret_failure = ZD_LM_FAILED;
	struct replica_state *r = calloc(1, sizeof *r);
	if (!r || zd_lm_state_init(&r->base, &ops, o)) {
		snprintf(detail, size, "no memory");
		free(r);
		return NULL;
	}
	r->wire_micro = o->accumulate == ZD_LM_LOCAL ? 1 : o->micro_batches;
	r->sum = malloc(r->base.numel_max * sizeof *r->sum);
	if (!r->sum || zd_lm_planes_init(&r->planes, &r->base) || zd_lm_kept_init(&r->kept, &r->base)) {
		snprintf(detail, size, "no memory for a replica of %llu parameters; stages 1 to 3 need less", (unsigned long long)r->base.numel_sum);
		goto fail;
	}
	int rc = zd_lm_connect(&r->client, &r->base, 0, detail, size);
	if (rc) {
		*ret_failure = rc;
		goto fail;
	}
	if (r->base.progress.round == 0)
		return &r->base;
	snprintf(detail, size, "job '%s' has decided %llu rounds, expected a new job: " NO_WAY_ON, o->job,
		 (unsigned long long)r->base.progress.round, o->job);
fail:
	free_state(&r->base);
	return NULL;
}
