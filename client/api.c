/* SPDX-License-Identifier: Apache-2.0 */
/* zerod.h: arguments checked, requests handed to the pump, blocking calls waited for. */
#include "client/include/zerod.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/options.h"
#include "client/pump.h"

#define WAITING_MS 1000u /* between two calls of zerod_options.waiting */

struct held {
	uint32_t refs;
	const uint16_t *weights;
};

struct zerod_client {
	struct zd_pump *pump;
	struct zd_options parsed;
	pid_t process;	      /* that made it: the pump's thread is not in a forked one */
	pthread_mutex_t lock; /* held, and `done` of waiting calls */
	pthread_cond_t done;
	struct held *held; /* per unit */
};

/* The words of this thread's last call, or of the operation whose callback runs on it: threads that call at once do not take each other's. */
static _Thread_local struct {
	const struct zerod_client *client;
	char text[ZD_DETAIL_BYTES];
} told;

/* An operation on the heap with a callback, or on the stack of a caller that waits. */
struct call {
	struct zd_op op; /* first */
	struct zerod_client *client;
	zerod_done *done;
	void *arg;
	uint8_t waits, finished;
	int status;
	const uint16_t *weights;
	char text[ZD_DETAIL_BYTES];
};

static int fail(const struct zerod_client *client, int status, const char *text)
{
	told.client = client;
	snprintf(told.text, sizeof(told.text), "%s", text);
	return status;
}

static int is_copy(const struct zerod_client *client)
{
	return getpid() != client->process;
}

static int usable(const struct zerod_client *client)
{
	if (!is_copy(client))
		return ZEROD_OK;
	return fail(client, ZEROD_ERR_STATE, "this process was forked from the one that made the client, whose connections and thread stay there: "
					     "make another client here");
}

/* What a caller's thread does for the pump must leave errno to the caller. */
static int post(struct zerod_client *client, struct zd_op *op)
{
	int before = errno, rc = zd_pump_post(client->pump, op);

	errno = before;
	return rc < 0 ? fail(client, ZEROD_ERR_CANCELED, "the client is being freed") : ZEROD_OK;
}

static void *allocate(size_t size)
{
	int before = errno;
	void *memory = malloc(size);

	errno = before;
	return memory;
}

static void finish(struct zd_op *op, int status, const char *text, const uint16_t *weights)
{
	struct call *call = (struct call *)op;
	struct zerod_client *client = call->client;

	pthread_mutex_lock(&client->lock);
	if (weights && status == ZEROD_OK) {
		struct held *held = &client->held[op->event.u.gather.unit];

		held->refs++;
		held->weights = weights;
	}
	if (call->waits) {
		call->status = status;
		call->weights = weights;
		snprintf(call->text, sizeof(call->text), "%s", text);
		call->finished = 1;
		pthread_cond_broadcast(&client->done); /* several threads may wait, each for its own */
		pthread_mutex_unlock(&client->lock);
		return;
	}
	pthread_mutex_unlock(&client->lock);
	if (call->done) {
		(void)fail(client, status, text);
		call->done(client, call->arg, status);
	}
	free(call);
}

/* Returns at once; done may be NULL. */
static int start(struct zerod_client *client, const struct zd_session_event *event, zerod_done *done, void *arg)
{
	struct call *call;
	int rc = usable(client);

	if (rc != ZEROD_OK)
		return rc;
	call = allocate(sizeof(*call));
	if (!call)
		return fail(client, ZEROD_ERR_MEMORY, "no memory for an operation");
	memset(call, 0, offsetof(struct call, text));
	call->op.event = *event;
	call->op.event.deadline = ZD_TIME_NEVER;
	call->op.finish = finish;
	call->client = client;
	call->done = done;
	call->arg = arg;
	rc = post(client, &call->op);
	if (rc != ZEROD_OK)
		free(call);
	return rc;
}

/* Contributions and the agreement need all ranks; weights need somebody to seal them, and then nobody. */
static int needs_ranks(enum zd_session_event_type type, const struct zerod_progress *progress)
{
	return type == ZD_SE_REQ_STEP || type == ZD_SE_REQ_PUSH || type == ZD_SE_REQ_FLUSH || !progress->sealed;
}

/* Tells the caller's function whom this call waits for, if it is for somebody. */
static void tell_waiting(struct zerod_client *client, enum zd_session_event_type type)
{
	struct zerod_progress progress;

	if (zerod_progress(client, &progress) == ZEROD_OK && (progress.absent || progress.behind) && needs_ranks(type, &progress))
		client->parsed.waiting(client->parsed.waiting_arg, &progress);
}

static void wait_finished(struct zerod_client *client, const struct call *call)
{
	zd_time next = zd_pump_now() + ZD_MS(WAITING_MS);

	pthread_mutex_lock(&client->lock);
	while (!call->finished) {
		struct timespec until = {.tv_sec = (time_t)(next / ZD_MS(1000)), .tv_nsec = (long)(next % ZD_MS(1000))};

		if (!client->parsed.waiting) {
			pthread_cond_wait(&client->done, &client->lock);
		} else if (pthread_cond_timedwait(&client->done, &client->lock, &until) == ETIMEDOUT && !call->finished) {
			pthread_mutex_unlock(&client->lock);
			tell_waiting(client, call->op.event.type);
			next = zd_pump_now() + ZD_MS(WAITING_MS);
			pthread_mutex_lock(&client->lock);
		}
	}
	pthread_mutex_unlock(&client->lock);
}

/* The session ends every request by its deadline, so that this wait ends too, and not before borrowed memory is free. */
static int wait_within(struct zerod_client *client, const struct zd_session_event *event, uint32_t timeout_ms, struct call *call)
{
	int rc = usable(client);

	memset(call, 0, offsetof(struct call, text));
	if (rc != ZEROD_OK)
		return rc;
	if (zd_pump_is_own_thread(client->pump))
		return fail(client, ZEROD_ERR_STATE, "a blocking call from a callback: use the _start form there");
	call->op.event = *event;
	call->op.event.deadline = timeout_ms ? zd_pump_now() + ZD_MS(timeout_ms) : ZD_TIME_NEVER;
	call->op.finish = finish;
	call->client = client;
	call->waits = 1;
	rc = post(client, &call->op);
	if (rc != ZEROD_OK)
		return rc;
	wait_finished(client, call);
	return fail(client, call->status, call->text);
}

static int wait_for(struct zerod_client *client, const struct zd_session_event *event)
{
	struct call call;

	return wait_within(client, event, client->parsed.timeout_ms, &call);
}

static int bad_unit(const struct zerod_client *client, uint32_t unit)
{
	char text[80];

	if (unit < client->parsed.spec.unit_count)
		return 0;
	snprintf(text, sizeof(text), "unit %u does not exist: the job has %u, from 0", unit, client->parsed.spec.unit_count);
	(void)fail(client, ZEROD_ERR_ARGUMENT, text);
	return 1;
}

/* What the session looked like after its last event. */
static int look(struct zerod_client *client, const void *ret, const char *if_null, struct zd_pump_view *view)
{
	int rc;

	if (!client)
		return ZEROD_ERR_ARGUMENT;
	if (!ret)
		return fail(client, ZEROD_ERR_ARGUMENT, if_null);
	rc = usable(client);
	if (rc == ZEROD_OK)
		zd_pump_look(client->pump, view);
	return rc;
}

/* ---------------------------------------------------------------- life */

/* The clock of zd_pump_now, for waits with an end. */
static int make_condition(pthread_cond_t *ret_condition)
{
	pthread_condattr_t attr;
	int rc;

	if (pthread_condattr_init(&attr) != 0)
		return -1;
	rc = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	if (rc == 0)
		rc = pthread_cond_init(ret_condition, &attr);
	pthread_condattr_destroy(&attr);
	return rc == 0 ? 0 : -1;
}

static int make_locks(struct zerod_client *client)
{
	if (pthread_mutex_init(&client->lock, NULL) != 0)
		return -1;
	if (make_condition(&client->done) == 0)
		return 0;
	pthread_mutex_destroy(&client->lock);
	return -1;
}

static int make_client(struct zerod_client **ret_client, const struct zerod_options *options, const struct zerod_unit *units, uint32_t unit_count,
		       char *detail, size_t detail_size)
{
	struct zerod_client *client;
	struct zd_session_config config;
	const char *lacks = "no memory for a client";
	int rc = ZEROD_ERR_MEMORY;

	if (detail && detail_size > 0)
		detail[0] = '\0';
	client = ret_client ? calloc(1, sizeof(*client)) : NULL;
	if (!client) {
		zd_options_tell(detail, detail_size, "%s", ret_client ? lacks : "ret_client is NULL");
		return ret_client ? ZEROD_ERR_MEMORY : ZEROD_ERR_ARGUMENT;
	}
	rc = zd_options_parse(&client->parsed, options, units, unit_count, detail, detail_size);
	if (rc != ZEROD_OK)
		goto no_options;
	rc = ZEROD_ERR_MEMORY;
	client->held = calloc(unit_count, sizeof(*client->held));
	if (!client->held)
		goto no_held;
	if (make_locks(client) < 0)
		goto no_held;
	zd_options_config(&client->parsed, &config);
	rc = zd_pump_new(&client->pump, &config, client->parsed.endpoints, &lacks);
	if (rc != ZEROD_OK)
		goto no_pump;
	client->process = getpid();
	if (told.client == client) /* words of one that was freed, whose memory this is */
		told.client = NULL;
	*ret_client = client;
	return ZEROD_OK;
no_pump:
	pthread_cond_destroy(&client->done);
	pthread_mutex_destroy(&client->lock);
no_held:
	zd_options_tell(detail, detail_size, "%s", lacks);
	free(client->held);
	zd_options_fini(&client->parsed);
no_options:
	free(client);
	return rc;
}

int zerod_new(struct zerod_client **ret_client, const struct zerod_options *options, const struct zerod_unit *units, uint32_t unit_count,
	      char *detail, size_t detail_size)
{
	int before = errno, rc = make_client(ret_client, options, units, unit_count, detail, detail_size);

	errno = before;
	return rc;
}

void zerod_free(struct zerod_client *client)
{
	int before = errno;

	/* In a copy nothing may be touched: its loop is the other process's, its locks may be held by a thread that is not here. */
	if (!client || is_copy(client) || zd_pump_is_own_thread(client->pump))
		return;
	zd_pump_free(client->pump);
	pthread_cond_destroy(&client->done);
	pthread_mutex_destroy(&client->lock);
	free(client->held);
	zd_options_fini(&client->parsed);
	free(client);
	errno = before;
}

const char *zerod_detail(const struct zerod_client *client)
{
	return client && told.client == client ? told.text : "";
}

int zerod_connect_start(struct zerod_client *client, zerod_done *done, void *arg)
{
	const struct zd_session_event ev = {.type = ZD_SE_REQ_CONNECT};

	return client ? start(client, &ev, done, arg) : ZEROD_ERR_ARGUMENT;
}

int zerod_connect(struct zerod_client *client)
{
	const struct zd_session_event ev = {.type = ZD_SE_REQ_CONNECT};
	struct call call;

	return client ? wait_within(client, &ev, client->parsed.connect_timeout_ms, &call) : ZEROD_ERR_ARGUMENT;
}

int zerod_progress(struct zerod_client *client, struct zerod_progress *ret_progress)
{
	struct zd_pump_view view;
	int rc = look(client, ret_progress, "ret_progress is NULL", &view);

	if (rc != ZEROD_OK)
		return rc;
	if (!view.session.connected)
		return fail(client, ZEROD_ERR_STATE, "not connected: call zerod_connect first");
	*ret_progress = (struct zerod_progress){.round = view.session.decided,
						.step = view.session.step,
						.sealed = view.session.sealed,
						.lanes = view.session.lanes,
						.absent = view.session.absent,
						.behind = view.session.behind};
	return ZEROD_OK;
}

int zerod_stats(struct zerod_client *client, struct zerod_stats *ret_stats)
{
	struct zd_pump_view view;
	int rc = look(client, ret_stats, "ret_stats is NULL", &view);

	if (rc == ZEROD_OK)
		*ret_stats = view.stats;
	return rc;
}

/* ---------------------------------------------------------------- load, seal */

static int load_event(struct zerod_client *client, uint32_t unit, uint32_t codec, const void *data, struct zd_session_event *ev)
{
	if (!client)
		return ZEROD_ERR_ARGUMENT;
	if (bad_unit(client, unit))
		return ZEROD_ERR_ARGUMENT;
	if (!data)
		return fail(client, ZEROD_ERR_ARGUMENT, "data is NULL");
	*ev = (struct zd_session_event){.type = ZD_SE_REQ_LOAD, .u.load = {.unit = unit, .codec = codec, .data = data}};
	return ZEROD_OK;
}

int zerod_load_start(struct zerod_client *client, uint32_t unit, uint32_t codec, const void *data, zerod_done *done, void *arg)
{
	struct zd_session_event ev;
	int rc = load_event(client, unit, codec, data, &ev);

	return rc == ZEROD_OK ? start(client, &ev, done, arg) : rc;
}

int zerod_load(struct zerod_client *client, uint32_t unit, uint32_t codec, const void *data)
{
	struct zd_session_event ev;
	int rc = load_event(client, unit, codec, data, &ev);

	return rc == ZEROD_OK ? wait_for(client, &ev) : rc;
}

int zerod_seal_start(struct zerod_client *client, zerod_done *done, void *arg)
{
	const struct zd_session_event ev = {.type = ZD_SE_REQ_SEAL};

	return client ? start(client, &ev, done, arg) : ZEROD_ERR_ARGUMENT;
}

int zerod_seal(struct zerod_client *client)
{
	const struct zd_session_event ev = {.type = ZD_SE_REQ_SEAL};

	return client ? wait_for(client, &ev) : ZEROD_ERR_ARGUMENT;
}

/* ---------------------------------------------------------------- gather */

int zerod_gather_start(struct zerod_client *client, uint32_t unit, zerod_done *done, void *arg)
{
	const struct zd_session_event ev = {.type = ZD_SE_REQ_GATHER, .u.gather.unit = unit};

	if (!client || bad_unit(client, unit))
		return ZEROD_ERR_ARGUMENT;
	return start(client, &ev, done, arg);
}

int zerod_gather(struct zerod_client *client, uint32_t unit, const uint16_t **ret_weights)
{
	const struct zd_session_event ev = {.type = ZD_SE_REQ_GATHER, .u.gather.unit = unit};
	struct call call;
	int rc;

	if (!client || bad_unit(client, unit))
		return ZEROD_ERR_ARGUMENT;
	rc = wait_within(client, &ev, client->parsed.timeout_ms, &call);
	if (rc == ZEROD_OK && ret_weights)
		*ret_weights = call.weights;
	return rc;
}

const uint16_t *zerod_weights(struct zerod_client *client, uint32_t unit)
{
	const uint16_t *weights;

	if (!client || unit >= client->parsed.spec.unit_count || is_copy(client))
		return NULL;
	pthread_mutex_lock(&client->lock);
	weights = client->held[unit].weights;
	pthread_mutex_unlock(&client->lock);
	return weights;
}

int zerod_release(struct zerod_client *client, uint32_t unit, int keep)
{
	const struct zd_session_event ev = {.type = ZD_SE_REQ_RELEASE, .u.gather = {.unit = unit, .keep = keep != 0}};
	struct held *held;
	int rc;

	if (!client || bad_unit(client, unit))
		return ZEROD_ERR_ARGUMENT;
	rc = usable(client);
	if (rc != ZEROD_OK)
		return rc;
	held = &client->held[unit];
	pthread_mutex_lock(&client->lock);
	rc = held->refs > 0 ? start(client, &ev, NULL, NULL) : fail(client, ZEROD_ERR_STATE, "release of a unit that is not gathered");
	if (rc == ZEROD_OK && --held->refs == 0)
		held->weights = NULL;
	pthread_mutex_unlock(&client->lock);
	return rc;
}

static void plan_finish(struct zd_op *op, int status, const char *text, const uint16_t *weights)
{
	(void)status, (void)text, (void)weights;
	free(op);
}

int zerod_plan_gathers(struct zerod_client *client, const uint32_t *units, uint32_t count)
{
	struct zd_op *op;
	uint32_t *copy;
	int rc;

	if (!client)
		return ZEROD_ERR_ARGUMENT;
	if (!units && count > 0)
		return fail(client, ZEROD_ERR_ARGUMENT, "units is NULL");
	if (count > 4096)
		return fail(client, ZEROD_ERR_ARGUMENT, "a plan has at most 4096 units");
	for (uint32_t i = 0; i < count; i++)
		if (bad_unit(client, units[i]))
			return ZEROD_ERR_ARGUMENT;
	rc = usable(client);
	if (rc != ZEROD_OK)
		return rc;
	op = allocate(sizeof(*op) + count * sizeof(*copy));
	if (!op)
		return fail(client, ZEROD_ERR_MEMORY, "no memory for the plan");
	copy = (uint32_t *)(op + 1);
	if (count > 0)
		memcpy(copy, units, count * sizeof(*copy));
	*op = (struct zd_op){.finish = plan_finish, .event = {.type = ZD_SE_REQ_PLAN, .u.plan = {.units = copy, .count = count}}};
	rc = post(client, op);
	if (rc != ZEROD_OK)
		free(op);
	return rc;
}

/* ---------------------------------------------------------------- fetch */

static int fetch_event(struct zerod_client *client, uint32_t unit, enum zd_plane plane, void *dst, struct zd_session_event *ev)
{
	if (!client || bad_unit(client, unit))
		return ZEROD_ERR_ARGUMENT;
	if (!dst)
		return fail(client, ZEROD_ERR_ARGUMENT, "dst is NULL");
	*ev = (struct zd_session_event){.type = ZD_SE_REQ_FETCH, .u.fetch = {.unit = unit, .plane = plane, .dst = dst}};
	return ZEROD_OK;
}

static int fetch_start(struct zerod_client *client, uint32_t unit, enum zd_plane plane, void *dst, zerod_done *done, void *arg)
{
	struct zd_session_event ev;
	int rc = fetch_event(client, unit, plane, dst, &ev);

	return rc == ZEROD_OK ? start(client, &ev, done, arg) : rc;
}

static int fetch(struct zerod_client *client, uint32_t unit, enum zd_plane plane, void *dst)
{
	struct zd_session_event ev;
	int rc = fetch_event(client, unit, plane, dst, &ev);

	return rc == ZEROD_OK ? wait_for(client, &ev) : rc;
}

int zerod_fetch_master_start(struct zerod_client *client, uint32_t unit, float *dst, zerod_done *done, void *arg)
{
	return fetch_start(client, unit, ZD_PLANE_MASTER, dst, done, arg);
}

int zerod_fetch_master(struct zerod_client *client, uint32_t unit, float *dst)
{
	return fetch(client, unit, ZD_PLANE_MASTER, dst);
}

int zerod_fetch_weights_start(struct zerod_client *client, uint32_t unit, uint16_t *dst, zerod_done *done, void *arg)
{
	return fetch_start(client, unit, ZD_PLANE_WEIGHTS, dst, done, arg);
}

int zerod_fetch_weights(struct zerod_client *client, uint32_t unit, uint16_t *dst)
{
	return fetch(client, unit, ZD_PLANE_WEIGHTS, dst);
}

int zerod_fetch_gradient_start(struct zerod_client *client, uint32_t unit, float *dst, zerod_done *done, void *arg)
{
	return fetch_start(client, unit, ZD_PLANE_GRADIENT, dst, done, arg);
}

int zerod_fetch_gradient(struct zerod_client *client, uint32_t unit, float *dst)
{
	return fetch(client, unit, ZD_PLANE_GRADIENT, dst);
}

/* ---------------------------------------------------------------- push, step */

static int push_event(struct zerod_client *client, uint32_t unit, uint32_t micro, uint32_t micro_batches, const void *grad,
		      struct zd_session_event *ev)
{
	if (!client || bad_unit(client, unit))
		return ZEROD_ERR_ARGUMENT;
	if (!grad)
		return fail(client, ZEROD_ERR_ARGUMENT, "grad is NULL");
	*ev = (struct zd_session_event){.type = ZD_SE_REQ_PUSH,
					.u.push = {.unit = unit, .micro = micro, .micro_batches = micro_batches, .data = grad}};
	return ZEROD_OK;
}

int zerod_push_start(struct zerod_client *client, uint32_t unit, uint32_t micro, uint32_t micro_batches, const void *grad, zerod_done *done,
		     void *arg)
{
	struct zd_session_event ev;
	int rc = push_event(client, unit, micro, micro_batches, grad, &ev);

	return rc == ZEROD_OK ? start(client, &ev, done, arg) : rc;
}

int zerod_push(struct zerod_client *client, uint32_t unit, uint32_t micro, uint32_t micro_batches, const void *grad)
{
	struct zd_session_event ev;
	int rc = push_event(client, unit, micro, micro_batches, grad, &ev);

	if (rc != ZEROD_OK)
		return rc;
	ev.u.push.tells = 1;
	return wait_for(client, &ev);
}

int zerod_push_flush(struct zerod_client *client)
{
	const struct zd_session_event ev = {.type = ZD_SE_REQ_FLUSH};

	return client ? wait_for(client, &ev) : ZEROD_ERR_ARGUMENT;
}

static int step_event(struct zerod_client *client, const struct zerod_hyper *h, uint32_t micro_batches, struct zd_session_event *ev)
{
	if (!client)
		return ZEROD_ERR_ARGUMENT;
	if (!h)
		return fail(client, ZEROD_ERR_ARGUMENT, "hyper is NULL");
	*ev = (struct zd_session_event){.type = ZD_SE_REQ_STEP,
					.u.step = {.hyper = {.lr = h->lr,
							     .weight_decay = h->weight_decay,
							     .beta1 = h->beta1,
							     .beta2 = h->beta2,
							     .eps = h->eps,
							     .max_norm = h->max_norm,
							     .loss_scale = h->loss_scale,
							     .weight = h->weight},
						   .micro_batches = micro_batches}};
	return ZEROD_OK;
}

int zerod_step_start(struct zerod_client *client, const struct zerod_hyper *hyper, uint32_t micro_batches, zerod_done *done, void *arg)
{
	struct zd_session_event ev;
	int rc = step_event(client, hyper, micro_batches, &ev);

	return rc == ZEROD_OK ? start(client, &ev, done, arg) : rc;
}

int zerod_step(struct zerod_client *client, const struct zerod_hyper *hyper, uint32_t micro_batches, struct zerod_step_result *ret_result)
{
	struct zd_session_event ev;
	int rc = step_event(client, hyper, micro_batches, &ev);

	if (rc == ZEROD_OK)
		rc = wait_for(client, &ev);
	if (rc == ZEROD_OK && ret_result)
		rc = zerod_step_result(client, ret_result);
	return rc;
}

int zerod_step_result(struct zerod_client *client, struct zerod_step_result *ret_result)
{
	struct zd_pump_view view;
	int rc = look(client, ret_result, "ret_result is NULL", &view);

	if (rc == ZEROD_OK)
		*ret_result = view.result;
	return rc;
}
