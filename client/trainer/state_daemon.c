/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stages 1, 2 and 3: weights come from the daemons and gradients go there; when is the stage.
 *
 *   stage  weights                                     gradients
 *   3      per unit and pass, dropped after            pushed as backward finishes a unit
 *   3 keep per unit in forward, kept for backward      the same
 *   2      all at the start of a round, kept           the same
 *   1      all at the start of a round, kept           kept here, pushed at the end of the round
 *
 * A text at the end needs all weights for each of its bytes.  They are fetched once and held: within the bound on gathered weights if they fit,
 * else in memory beyond it, which zd_lm_state.beyond_bytes says.  Who has no such memory fetches them for each byte.
 *
 * A push borrows its buffer until every lane has counted it: two buffers of the largest unit take turns, so that one is filled while
 * the other is on its way.  Stage 1 has its own memory for everything.
 */
#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/trainer/connect.h"
#include "client/trainer/grad.h"
#include "client/trainer/state.h"

enum { SLOTS = 2 };

struct slot {
	void *data;
	sem_t free;
	int status; /* of the last push, written before free is posted */
};

struct daemon_state {
	struct zd_lm_state base;
	struct zerod_client *client;
	struct slot slot[SLOTS];
	unsigned next;
	uint32_t wire_micro; /* micro-batches that are sent: 1 if they are added up here */
	struct zd_lm_kept kept; /* stage 1 */
	uint32_t *held;		/* per unit: gathers without their release, left behind when a step fails half way */
	/* for a text */
	int all_held;	/* every unit is gathered and stays so */
	uint16_t *copy; /* all units, one behind the other, beyond the bound */
};

static struct daemon_state *self(struct zd_lm_state *s)
{
	return (struct daemon_state *)s;
}

static int failed(struct daemon_state *d, int status)
{
	return zd_lm_connect_failure(d->client, status, d->base.detail, sizeof d->base.detail);
}

static int gather_held(struct daemon_state *d, uint32_t u, const uint16_t **ret_weights)
{
	int status = zerod_gather(d->client, u, ret_weights);
	if (status)
		return failed(d, status);
	d->held[u]++;
	return 0;
}

static int release_held(struct daemon_state *d, uint32_t u, int keep)
{
	int status = zerod_release(d->client, u, keep);
	if (status)
		return failed(d, status);
	d->held[u]--;
	return 0;
}

/* All slots back: every push has completed, or none will within the time for it.  The first status that was not 0. */
static int drain(struct daemon_state *d)
{
	int status = zerod_push_flush(d->client);
	if (status == ZEROD_ERR_TIMEOUT)
		return status; /* they are on their way still: zerod_free ends them */
	for (unsigned i = 0; i < SLOTS; i++) {
		while (sem_wait(&d->slot[i].free) != 0)
			;
		if (!status)
			status = d->slot[i].status;
		d->slot[i].status = 0;
		sem_post(&d->slot[i].free);
	}
	return status;
}

static int release_all(struct daemon_state *d)
{
	int rc = 0;
	for (uint32_t u = 0; u < d->base.units && !rc; u++)
		while (d->held[u] && !rc)
			rc = release_held(d, u, 0);
	return rc;
}

static int begin(struct zd_lm_state *s)
{
	struct daemon_state *d = self(s);
	const uint16_t *w;
	int rc = release_all(d);
	(void)drain(d); /* what a failed step left; its status was reported then */
	for (uint32_t u = 0; u < s->units && s->options->stage != 3 && !rc; u++)
		rc = gather_held(d, u, &w);
	return rc;
}

static int gather(struct zd_lm_state *s, uint32_t u, int backward, const uint16_t **ret_weights)
{
	struct daemon_state *d = self(s);
	(void)backward;
	if (d->copy) {
		*ret_weights = d->copy;
		for (uint32_t before = 0; before < u; before++)
			*ret_weights += s->numel[before];
		return 0;
	}
	if (s->options->stage != 3 || d->all_held) {
		*ret_weights = zerod_weights(d->client, u);
		return 0;
	}
	return gather_held(d, u, ret_weights);
}

static int release(struct zd_lm_state *s, uint32_t u, int backward)
{
	if (s->options->stage != 3 || self(s)->copy || self(s)->all_held)
		return 0;
	return release_held(self(s), u, !backward && !s->options->reshard);
}

static void pushed(struct zerod_client *client, void *arg, int status)
{
	struct slot *slot = arg;
	(void)client;
	slot->status = status;
	sem_post(&slot->free);
}

/* The slot's last push has completed, with this status.  A push itself may take for ever; what waits for it may not. */
static int wait_for(struct daemon_state *d, struct slot *slot)
{
	uint32_t ms = d->base.options->timeout_ms / 2; /* flushing, which can say what is the matter, has its own time */
	struct timespec until;
	int rc;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += ms / 1000;
	until.tv_nsec += (long)(ms % 1000) * 1000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	do {
		rc = d->base.options->timeout_ms ? sem_timedwait(&slot->free, &until) : sem_wait(&slot->free);
		if (rc && errno == ETIMEDOUT) {
			int status = zerod_push_flush(d->client);
			if (status == ZEROD_ERR_TIMEOUT)
				return status;
			rc = sem_wait(&slot->free); /* it has completed */
		}
	} while (rc);
	int status = slot->status;
	slot->status = 0;
	sem_post(&slot->free);
	return status;
}

static int push_now(struct daemon_state *d, uint32_t u, uint32_t micro, const float *grad)
{
	struct slot *slot = &d->slot[d->next++ % SLOTS];
	int status = wait_for(d, slot);
	if (!status) {
		(void)sem_trywait(&slot->free); /* is there: only this thread takes it */
		zd_lm_grad_encode(slot->data, grad, d->base.numel[u], d->base.options->grad_codec);
		status = zerod_push_start(d->client, u, micro, d->wire_micro, slot->data, pushed, slot);
		if (status)
			sem_post(&slot->free);
	}
	return status ? failed(d, status) : 0;
}

static int push(struct zd_lm_state *s, uint32_t u, uint32_t rank, uint32_t micro, const float *grad)
{
	struct daemon_state *d = self(s);
	(void)rank; /* the client's own */
	if (s->options->stage > 1)
		return push_now(d, u, micro, grad);
	zd_lm_kept_put(&d->kept, u, micro, grad);
	return 0;
}

static int step(struct zd_lm_state *s, const struct zerod_hyper *hyper, struct zerod_step_result *ret)
{
	struct daemon_state *d = self(s);
	int status = 0;
	if (s->options->stage == 1)
		status = zd_lm_kept_push(&d->kept, d->client, d->wire_micro);
	if (!status)
		status = drain(d);
	else
		drain(d);
	if (!status)
		status = zerod_step(d->client, hyper, d->wire_micro, ret);
	if (!status)
		status = zerod_progress(d->client, &s->progress);
	return status ? failed(d, status) : release_all(d);
}

/* All weights in memory of our own. */
static int copy_all(struct daemon_state *d)
{
	uint64_t at = 0;
	uint16_t *copy = malloc(d->base.numel_sum * sizeof *copy);
	int status = copy ? 0 : ZEROD_ERR_MEMORY;
	for (uint32_t u = 0; u < d->base.units && !status; u++) {
		status = zerod_fetch_weights(d->client, u, copy + at);
		at += d->base.numel[u];
	}
	if (!status) {
		d->copy = copy;
		d->base.beyond_bytes = d->base.numel_sum * sizeof *copy;
		return 0;
	}
	free(copy);
	if (status != ZEROD_ERR_MEMORY)
		return failed(d, status);
	snprintf(d->base.detail, sizeof d->base.detail,
		 "--sample: no memory for the %llu bytes of all weights; --sample-weights=fetch needs no more than training does",
		 (unsigned long long)(d->base.numel_sum * sizeof *copy));
	return ZD_LM_FAILED;
}

static int generate(struct zd_lm_state *s, int hold)
{
	struct daemon_state *d = self(s);
	struct zerod_stats st;
	const uint16_t *w;
	int rc = 0;
	if (s->options->stage != 3)
		return begin(s);
	if (!hold)
		return 0;
	if (zerod_stats(d->client, &st) || 2 * s->numel_sum > st.gather_bytes_limit)
		return copy_all(d);
	for (uint32_t u = 0; u < s->units && !rc; u++)
		rc = gather_held(d, u, &w);
	d->all_held = !rc;
	return rc;
}

static int master(struct zd_lm_state *s, uint32_t u, float *ret_weights)
{
	int status = zerod_fetch_master(self(s)->client, u, ret_weights);
	return status ? failed(self(s), status) : 0;
}

static void stats(struct zd_lm_state *s, struct zerod_stats *ret)
{
	if (zerod_stats(self(s)->client, ret))
		memset(ret, 0, sizeof *ret);
}

static void free_state(struct zd_lm_state *s)
{
	struct daemon_state *d = self(s);
	zerod_free(d->client);
	for (unsigned i = 0; i < SLOTS; i++) {
		free(d->slot[i].data);
		sem_destroy(&d->slot[i].free);
	}
	zd_lm_kept_fini(&d->kept);
	free(d->held);
	free(d->copy);
	zd_lm_state_fini(s);
	free(d);
}

static const struct zd_lm_state_ops ops = {begin, gather, release, push, step, generate, master, stats, free_state};

/* Rank 0 loads the initial weights, if no earlier launch has; the others' first gather waits for it. */
static int load_initial(struct daemon_state *d)
{
	const struct zd_lm_options *o = d->base.options;
	int status = 0;
	if (d->base.progress.sealed || o->launch.rank != 0)
		return 0;
	float *w = malloc(d->base.numel_max * sizeof *w);
	if (!w)
		return ZEROD_ERR_MEMORY;
	for (uint32_t u = 0; u < d->base.units && !status; u++) {
		zd_lm_init_unit(&o->model, o->seed, u, w);
		status = zerod_load(d->client, u, ZEROD_FP32, w);
	}
	free(w);
	return status ? status : zerod_seal(d->client);
}

struct zd_lm_state *zd_lm_state_daemon(const struct zd_lm_options *o, int *ret_failure, char *detail, size_t size)
{
	*ret_failure = ZD_LM_FAILED;
	struct daemon_state *d = calloc(1, sizeof *d);
	if (!d || zd_lm_state_init(&d->base, &ops, o)) {
		snprintf(detail, size, "no memory");
		free(d);
		return NULL;
	}
	d->wire_micro = o->stage == 1 && o->accumulate == ZD_LM_LOCAL ? 1 : o->micro_batches;
	d->held = calloc(d->base.units, sizeof *d->held);
	int ok = d->held != NULL;
	for (unsigned i = 0; i < SLOTS; i++) {
		sem_init(&d->slot[i].free, 0, 1);
		d->slot[i].data = malloc(d->base.numel_max * zd_codec_bytes(o->grad_codec));
		ok &= d->slot[i].data != NULL;
	}
	if (o->stage == 1)
		ok &= zd_lm_kept_init(&d->kept, &d->base) == 0;
	if (!ok) {
		snprintf(detail, size, "no memory for gradients of %llu elements", (unsigned long long)d->base.numel_sum);
		goto fail;
	}
	int rc = zd_lm_connect(&d->client, &d->base, d->base.numel_sum, detail, size);
	if (rc) {
		*ret_failure = rc;
		goto fail;
	}
	int status = load_initial(d);
	if (!status)
		status = zerod_progress(d->client, &d->base.progress);
	if (!status)
		return &d->base;
	*ret_failure = zd_lm_connect_failure(d->client, status, detail, size);
fail:
	free_state(&d->base);
	return NULL;
}
