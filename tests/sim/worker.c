/* SPDX-License-Identifier: Apache-2.0 */
/* A session and what the pump does for it: events in, actions out, requests with one DONE each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world.h"

#define DONES_MAX (4 * SIM_OPEN_MAX)

struct sim_done {
	uint64_t id;
	int status;
	const uint16_t *weights;
	char text[160];
};

static void *allocate(void *ctx, size_t size)
{
	void *memory;

	(void)ctx;
	return posix_memalign(&memory, 64, size ? size : 1) == 0 ? memory : NULL;
}

static void release(void *ctx, void *memory)
{
	(void)ctx;
	free(memory);
}

int sim_worker_lives(const struct sim_worker *worker)
{
	return worker->session != NULL;
}

struct sim_worker *sim_worker_new(struct sim_world *w, const struct sim_launch *launch, uint32_t rank)
{
	struct sim_worker *worker = sim_alloc(sizeof(*worker));
	const char *names[SIM_HOSTS_MAX];
	char text[SIM_HOSTS_MAX][24];
	struct zd_session_config config;

	for (uint32_t h = 0; h < w->config.hosts; h++) {
		snprintf(text[h], sizeof(text[h]), "host%u:1", h);
		names[h] = text[h];
	}
	worker->world = w;
	worker->rank = rank;
	worker->epoch = launch ? launch->epoch : 0;
	worker->size = launch ? launch->size : 0;
	worker->micro = launch ? launch->micro : 0;
	sim_rng_init(&worker->rng, w->config.seed ^ sim_mix(worker->epoch * 1000 + rank + (launch ? 0 : 500)));
	worker->process = sim_next(&worker->rng);
	worker->tick_at = ZD_TIME_NEVER;
	worker->dones = sim_alloc(DONES_MAX * sizeof(*worker->dones));
	worker->conns = sim_alloc(SIM_LANES_MAX * sizeof(struct sim_conn *));
	config = (struct zd_session_config){
		.spec = &w->config.spec,
		.daemons = names,
		.daemon_count = w->config.hosts,
		.rank = rank,
		.world = worker->size,
		.epoch = worker->epoch,
		.launch = launch ? launch->id : 0,
		.process = worker->process,
		.seed = sim_next(&worker->rng),
		.gather_bytes_max = w->config.gather_bytes,
		.prefetch = w->config.prefetch,
		.create = launch != NULL,
		.features = ZD_FEATURE_PAYLOAD_CRC,
		.alloc = allocate,
		.release = release,
		.now = w->now,
	};
	worker->session = zd_session_new(&config);
	if (!worker->session)
		sim_fail(w, "a session cannot be made");
	return worker;
}

/* ---------------------------------------------------------------- requests */

struct sim_request *sim_worker_request(struct sim_worker *worker, uint64_t id)
{
	for (uint32_t i = 0; i < SIM_OPEN_MAX; i++)
		if (worker->open[i].id == id)
			return &worker->open[i];
	return NULL;
}

/* Names a request and notes it; the caller fills the rest, then feeds the event. */
struct sim_request *sim_worker_post(struct sim_worker *worker, struct zd_session_event *event)
{
	struct sim_request *r = sim_worker_request(worker, 0);

	if (!r) {
		sim_fail(worker->world, "a trainer has more than %u requests open", SIM_OPEN_MAX);
		r = &worker->open[0];
	}
	memset(r, 0, sizeof(*r));
	r->id = event->request = ++worker->requests;
	r->type = event->type;
	r->salt = worker->salt;
	r->round = worker->round;
	event->deadline = ZD_TIME_NEVER;
	worker->open_count++;
	return r;
}

static void tell_done(struct sim_worker *worker, const struct sim_done *d)
{
	struct sim_request *open = sim_worker_request(worker, d->id), request;

	if (!open) {
		sim_fail(worker->world, "request %llu of rank %u has two DONEs", (unsigned long long)d->id, worker->rank);
		return;
	}
	request = *open;
	open->id = 0;
	worker->open_count--;
	sim_trainer_done(worker, &request, d->status, d->text, d->weights);
	free(request.data); /* not before: it may not be touched any more from here on */
}

/* ---------------------------------------------------------------- actions */

static void act_connect(struct sim_worker *worker, const struct zd_session_action *a)
{
	struct sim_world *w = worker->world;
	uint32_t index = a->u.connect.daemon * w->config.lanes_per_host + a->u.connect.lane;

	if (a->slot >= SIM_LANES_MAX || worker->conns[a->slot] || index >= w->lane_count) {
		sim_fail(w, "rank %u connects slot %u, which is not down", worker->rank, a->slot);
		return;
	}
	worker->conns[a->slot] = sim_connect(worker, a->slot, a->gen, &w->lanes[index]);
}

/* DONEs are told when the session's actions are carried out; what is asked meanwhile may end at once, on top of them. */
static void carry_out(struct sim_worker *worker)
{
	const struct zd_session_actions *actions = worker->world->session_actions;

	for (uint32_t i = 0; i < actions->count; i++) {
		const struct zd_session_action *a = &actions->item[i];
		struct sim_conn *c = a->type == ZD_SA_DONE ? NULL : worker->conns[a->slot];
		struct sim_done *d;

		if (c && c->gen != a->gen)
			c = NULL;
		switch (a->type) {
		case ZD_SA_CONNECT: act_connect(worker, a); break;
		case ZD_SA_SEND:
			if (c && !c->client_closing)
				sim_send(c, 1, actions->bytes + a->u.send.frame, a->u.send.frame_len, a->u.send.payload, a->u.send.payload_len,
					 a->u.send.token);
			break;
		case ZD_SA_CLOSE:
			if (c)
				sim_client_close(c);
			break;
		case ZD_SA_DONE:
			if (worker->done_count == DONES_MAX)
				break;
			d = &worker->dones[worker->done_count++];
			d->id = a->u.done.request;
			d->status = a->u.done.status;
			d->weights = a->u.done.weights;
			snprintf(d->text, sizeof(d->text), "%s", (const char *)actions->bytes + a->u.done.text);
			break;
		}
	}
}

void sim_worker_feed(struct sim_worker *worker, struct zd_session_event *event)
{
	struct sim_world *w = worker->world;
	struct zd_session_event tick = {.type = ZD_SE_TICK};
	uint32_t first = worker->done_count, count;
	zd_time at;

	if (!worker->session || w->failure[0])
		return;
	event->now = tick.now = w->now;
	zd_session_step(worker->session, event, w->session_actions);
	carry_out(worker);
	for (uint32_t n = 0; zd_session_deadline(worker->session) <= w->now; n++) {
		if (n == 1000) {
			sim_fail(w, "the session of rank %u has a deadline that does not pass", worker->rank);
			break;
		}
		zd_session_step(worker->session, &tick, w->session_actions);
		carry_out(worker);
	}
	count = worker->done_count - first;
	for (uint32_t i = 0; i < count && worker->session; i++)
		tell_done(worker, &worker->dones[first + i]);
	worker->done_count = first;
	if (!worker->session)
		return;
	at = zd_session_deadline(worker->session);
	if (at != ZD_TIME_NEVER && at < worker->tick_at) {
		worker->tick_at = at;
		sim_at(w, at, SIM_E_WORKER_TICK, worker, 0);
	}
	if (count > 0)
		sim_trainer_go(worker);
}

void sim_worker_event(struct sim_world *w, const struct sim_event *e)
{
	struct sim_worker *worker = e->object;
	struct zd_session_event tick = {.type = ZD_SE_TICK};

	if (!worker->session)
		return;
	if (worker->paused_until > w->now) {
		sim_at(w, worker->paused_until + 1, e->kind, worker, 0);
		return;
	}
	if (e->kind == SIM_E_TRAIN) {
		worker->training = 0;
		sim_trainer_go(worker);
		return;
	}
	worker->tick_at = ZD_TIME_NEVER;
	sim_worker_feed(worker, &tick);
}

/* ---------------------------------------------------------------- ends */

static void tell_launcher(struct sim_world *w)
{
	if (!w->config.relaunch || w->launcher_due)
		return;
	w->launcher_due = 1;
	sim_at(w, w->now + ZD_MS(50) + sim_delay(w, ZD_MS(500)), SIM_E_LAUNCHER, NULL, 0);
}

/* The process ends, by itself or not: nothing it had not written yet leaves it. */
void sim_worker_kill(struct sim_worker *worker, int silent)
{
	struct sim_world *w = worker->world;
	struct zd_session_event stop = {.type = ZD_SE_REQ_STOP, .now = w->now};
	struct zd_session *s = worker->session;

	if (!s)
		return;
	sim_trace(w, "worker %llu.%u ends (%s)", (unsigned long long)worker->epoch, worker->rank, silent ? "silently" : "process");
	if (worker->phase != SIM_T_ENDED)
		worker->status = -1;
	worker->phase = SIM_T_ENDED;
	worker->session = NULL;
	zd_session_step(s, &stop, w->session_actions);
	for (uint32_t i = 0; i < SIM_LANES_MAX; i++) {
		struct sim_conn *c = worker->conns[i];
		struct zd_session_event down = {.type = ZD_SE_DOWN, .now = w->now, .slot = i};

		if (!c)
			continue;
		worker->conns[i] = NULL;
		sim_client_gone(c, silent);
		down.gen = c->gen;
		zd_session_step(s, &down, w->session_actions);
	}
	zd_session_free(s);
	for (uint32_t i = 0; i < SIM_OPEN_MAX; i++) {
		if (!worker->open[i].id)
			continue;
		free(worker->open[i].data);
		worker->open[i].id = 0;
	}
	tell_launcher(w);
}

void sim_worker_pause(struct sim_worker *worker, zd_time until)
{
	if (worker->session && until > worker->paused_until)
		worker->paused_until = until;
}

void sim_worker_free(struct sim_worker *worker)
{
	uint8_t relaunch = worker->world->config.relaunch;

	worker->world->config.relaunch = 0;
	sim_worker_kill(worker, 1);
	worker->world->config.relaunch = relaunch;
	free(worker->dones);
	free(worker->conns);
	free(worker);
}
