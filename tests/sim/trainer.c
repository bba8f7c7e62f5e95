/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a training program does with a session, as zerod.h tells it to: load and seal once; then for each round gather, compare with what training must have
 * given so far, push a gradient that nobody can guess, step; compute again when told; stop when told.
 *
 * A reader fetches whole units for ever and compares them with every version there has been.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world.h"

#define OPEN_PUSHES 24u

/* ---------------------------------------------------------------- ends */

/* What may happen to a worker that did nothing wrong. */
static int allowed(const struct sim_worker *worker, int status)
{
	const struct sim_world *w = worker->world;

	if (status == ZEROD_ERR_STALE)
		return worker->epoch < w->launch_count;
	if (status == ZEROD_ERR_ABORTED)
		return w->faults > 0 || w->launch_count > 1;
	if (status == ZEROD_ERR_REFUSED) /* a version of long ago; weights that a lane lost before they were complete */
		return worker->epoch < w->launch_count || (worker->phase == SIM_T_ENDED && worker->was == SIM_T_SEAL && w->crashes > 0);
	if (status == ZEROD_ERR_LOST)
		return w->config.level == SIM_NONE && w->crashes > 0;
	return 0;
}

static void ended(struct sim_worker *worker, int status, const char *text)
{
	struct sim_world *w = worker->world;

	if (worker->phase == SIM_T_ENDED)
		return;
	worker->was = worker->phase;
	worker->phase = SIM_T_ENDED;
	worker->status = status;
	snprintf(worker->text, sizeof(worker->text), "%s", text);
	w->aborts += status == ZEROD_ERR_ABORTED;
	w->stale += status == ZEROD_ERR_STALE;
	sim_trace(w, "worker %llu.%u stops: %s", (unsigned long long)worker->epoch, worker->rank, text);
	if (!allowed(worker, status))
		sim_fail(w, "rank %u of epoch %llu ended with %d: %s", worker->rank, (unsigned long long)worker->epoch, status, text);
	sim_at(w, w->now, SIM_E_TRAIN, worker, 0); /* not here: a step of its session may be under way */
}

/* ---------------------------------------------------------------- the plan of a round */

static void add(struct sim_worker *worker, enum sim_op_kind kind, uint32_t unit, uint32_t micro, uint8_t flag)
{
	if (worker->op_count < SIM_OPS_MAX)
		worker->ops[worker->op_count++] = (struct sim_op){kind, (uint8_t)unit, (uint8_t)micro, flag};
}

static void shuffle(struct sim_worker *worker, uint32_t *order, uint32_t n)
{
	const struct sim_config *config = &worker->world->config;

	for (uint32_t i = 0; i < n; i++)
		order[i] = n - 1 - i; /* backward */
	if (config->adverse_order)
		for (uint32_t i = 0; i < n; i++)
			order[i] = (i + worker->rank) % n;
	if (config->plain_trainer || config->adverse_order || sim_chance(&worker->rng, 40))
		return;
	for (uint32_t i = n; i > 1; i--) {
		uint32_t at = sim_below(&worker->rng, i), unit = order[i - 1];

		order[i - 1] = order[at];
		order[at] = unit;
	}
}

/* Gathering brings an extent up to date.  A unit that nobody gathers meets its next contribution with the last round's update still due. */
static int is_blind(const struct sim_worker *worker, uint32_t unit)
{
	const struct sim_config *config = &worker->world->config;

	return worker->round > 1 && sim_mix(config->seed ^ (worker->round * SIM_UNITS_MAX + unit)) % 100 < config->blind_percent;
}

static void plan_micro(struct sim_worker *worker, uint32_t micro)
{
	const struct sim_world *w = worker->world;
	uint32_t n = w->config.spec.unit_count, order[SIM_UNITS_MAX];
	int none = w->config.spec.optimizer == ZD_OPT_NONE, plain = w->config.plain_trainer;

	for (uint32_t u = 0; u < n && !none; u++) {
		if (is_blind(worker, u))
			continue;
		add(worker, SIM_OP_GATHER, u, micro, 0);
		add(worker, SIM_OP_RELEASE, u, micro, !plain && sim_chance(&worker->rng, 30));
	}
	shuffle(worker, order, n);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t u = order[i];
		int gathers = !none && !is_blind(worker, u);

		if (gathers)
			add(worker, SIM_OP_GATHER, u, micro, 0);
		if (!w->config.units[u].frozen)
			add(worker, SIM_OP_PUSH, u, micro, !plain && sim_chance(&worker->rng, 15));
		if (gathers)
			add(worker, SIM_OP_RELEASE, u, micro, 0);
		if (!plain && !none && sim_chance(&worker->rng, 5))
			add(worker, SIM_OP_FETCH, u, micro, ZD_PLANE_MASTER);
		if (!plain && sim_chance(&worker->rng, 3))
			add(worker, SIM_OP_FLUSH, 0, 0, 0);
	}
}

static void tell_plan(struct sim_worker *worker)
{
	uint32_t units[SIM_OPS_MAX], n = 0;
	struct zd_session_event ev = {.type = ZD_SE_REQ_PLAN};

	for (uint32_t i = 0; i < worker->op_count; i++)
		if (worker->ops[i].kind == SIM_OP_GATHER)
			units[n++] = worker->ops[i].unit;
	if (n == 0 || worker->world->config.plain_trainer || sim_chance(&worker->rng, 50))
		return;
	ev.u.plan.units = units;
	ev.u.plan.count = n;
	sim_worker_feed(worker, &ev);
}

static void release(struct sim_worker *worker, uint32_t unit, uint8_t keep)
{
	struct zd_session_event ev = {.type = ZD_SE_REQ_RELEASE};

	worker->held[unit]--;
	ev.u.gather.unit = unit;
	ev.u.gather.keep = keep;
	sim_worker_feed(worker, &ev);
}

/* What a computation that is given up holds. */
static void give_back(struct sim_worker *worker)
{
	for (uint32_t u = 0; u < SIM_UNITS_MAX; u++)
		while (worker->held[u] > 0)
			release(worker, u, 0);
}

static void begin_round(struct sim_worker *worker)
{
	struct sim_world *w = worker->world;
	struct zd_session_view view;

	zd_session_view(worker->session, &view);
	worker->phase = SIM_T_ROUND;
	worker->round = view.decided + 1;
	worker->version = view.step;
	worker->fetched_round = worker->again ? 0 : worker->fetched_round;
	worker->again = 0;
	worker->op_count = worker->op_at = 0;
	worker->salt = sim_mix(worker->process ^ ++worker->computations) | 1;
	give_back(worker);
	if (view.decided >= w->target) {
		worker->phase = SIM_T_REST;
		return;
	}
	if (w->config.spec.optimizer == ZD_OPT_NONE && worker->fetched_round > 0 && worker->round == worker->fetched_round + 1)
		for (uint32_t u = 0; u < w->config.spec.unit_count; u++)
			if (!w->config.units[u].frozen)
				add(worker, SIM_OP_FETCH, u, 0, ZD_PLANE_GRADIENT);
	for (uint32_t m = 0; m < worker->micro; m++)
		plan_micro(worker, m);
	add(worker, SIM_OP_STEP, 0, 0, 0);
	tell_plan(worker);
}

/* ---------------------------------------------------------------- operations */

static void gather(struct sim_worker *worker, uint32_t unit)
{
	struct zd_session_event ev = {.type = ZD_SE_REQ_GATHER};
	struct sim_request *r = sim_worker_post(worker, &ev);

	r->unit = ev.u.gather.unit = unit;
	worker->waiting = 1;
	sim_worker_feed(worker, &ev);
}

static void push(struct sim_worker *worker, uint32_t unit, uint32_t micro, int wait)
{
	struct sim_world *w = worker->world;
	struct zd_session_event ev = {.type = ZD_SE_REQ_PUSH};
	struct sim_request *r = sim_worker_post(worker, &ev);

	r->unit = ev.u.push.unit = unit;
	r->micro = ev.u.push.micro = micro;
	ev.u.push.micro_batches = worker->micro;
	ev.u.push.tells = r->wait = wait != 0;
	r->bytes = w->config.units[unit].numel * zd_codec_bytes(w->config.spec.grad_codec);
	ev.u.push.data = r->data = malloc(r->bytes);
	sim_gradient(w, worker->salt, worker->round, worker->rank, worker->size, micro, unit, r->data);
	worker->waiting = wait != 0;
	sim_worker_feed(worker, &ev);
}

static void fetch(struct sim_worker *worker, uint32_t unit, uint8_t plane)
{
	struct zd_session_event ev = {.type = ZD_SE_REQ_FETCH};
	struct sim_request *r = sim_worker_post(worker, &ev);

	r->unit = ev.u.fetch.unit = unit;
	r->plane = plane;
	ev.u.fetch.plane = (enum zd_plane)plane;
	r->bytes = worker->world->config.units[unit].numel * (plane == ZD_PLANE_WEIGHTS ? 2 : 4);
	r->data = malloc(r->bytes);
	ev.u.fetch.dst = r->data;
	worker->waiting = 1;
	sim_worker_feed(worker, &ev);
}

static void flush(struct sim_worker *worker)
{
	struct zd_session_event ev = {.type = ZD_SE_REQ_FLUSH};

	sim_worker_post(worker, &ev);
	worker->waiting = 1;
	sim_worker_feed(worker, &ev);
}

static void step(struct sim_worker *worker)
{
	struct zd_session_event ev = {.type = ZD_SE_REQ_STEP};

	sim_worker_post(worker, &ev);
	ev.u.step.hyper = sim_hyper(worker->world, worker->epoch, worker->round);
	ev.u.step.micro_batches = worker->micro;
	worker->waiting = 1;
	sim_worker_feed(worker, &ev);
}

/* ---------------------------------------------------------------- the way to version 0 */

static void load(struct sim_worker *worker)
{
	struct sim_world *w = worker->world;
	struct zd_session_event ev = {.type = ZD_SE_REQ_LOAD};
	uint32_t unit = worker->load_next++;
	struct sim_request *r = sim_worker_post(worker, &ev);
	uint64_t n = w->config.units[unit].numel;

	r->unit = ev.u.load.unit = unit;
	ev.u.load.codec = w->config.load_codec;
	r->bytes = n * zd_codec_bytes((enum zd_codec)w->config.load_codec);
	r->data = malloc(r->bytes);
	for (uint64_t i = 0; i < n; i++) {
		uint32_t bits;

		memcpy(&bits, &w->oracle.initial[unit][i], 4);
		if (w->config.load_codec == ZD_CODEC_FP32)
			memcpy(r->data + 4 * i, &bits, 4);
		else
			memcpy(r->data + 2 * i, (uint16_t[]){(uint16_t)(bits >> 16)}, 2);
	}
	ev.u.load.data = r->data;
	worker->loads_open++;
	sim_worker_feed(worker, &ev);
}

static void after_connect(struct sim_worker *worker)
{
	struct zd_session_view view;

	zd_session_view(worker->session, &view);
	if (worker->epoch == 0 || view.sealed || worker->world->config.spec.optimizer == ZD_OPT_NONE || !worker->loader)
		begin_round(worker);
	else
		worker->phase = SIM_T_LOAD;
}

static void seal(struct sim_worker *worker)
{
	struct zd_session_event ev = {.type = ZD_SE_REQ_SEAL};

	worker->phase = SIM_T_SEAL;
	sim_worker_post(worker, &ev);
	worker->waiting = 1;
	sim_worker_feed(worker, &ev);
}

void sim_trainer_start(struct sim_worker *worker)
{
	struct zd_session_event ev = {.type = ZD_SE_REQ_CONNECT};

	worker->phase = SIM_T_CONNECT;
	worker->waiting = 1;
	/* One loads for all; others may help. */
	worker->loader = worker->rank == 0 || (!worker->world->config.plain_trainer && sim_chance(&worker->rng, 30));
	sim_worker_post(worker, &ev);
	sim_worker_feed(worker, &ev);
}

/* ---------------------------------------------------------------- completions */

/* The version with these bits, or -1. */
static long long version_of(const struct sim_world *w, uint32_t unit, const void *weights)
{
	for (uint64_t v = 0; weights && v <= w->oracle.version; v++)
		if (memcmp(weights, w->oracle.weights[unit][v], 2 * w->config.units[unit].numel) == 0)
			return (long long)v;
	return -1;
}

static void gathered(struct sim_worker *worker, const struct sim_request *r, const uint16_t *weights)
{
	struct sim_world *w = worker->world;
	uint64_t n = w->config.units[r->unit].numel;
	struct zd_session_view view;

	worker->held[r->unit]++;
	zd_session_view(worker->session, &view);
	if (view.decided + 1 != worker->round || view.step != worker->version)
		sim_fail(w, "rank %u computes round %llu with version %llu, its session stands at round %llu, version %llu", worker->rank,
			 (unsigned long long)worker->round, (unsigned long long)worker->version, (unsigned long long)view.decided + 1,
			 (unsigned long long)view.step);
	else if (worker->version > w->oracle.version || !weights ||
		 memcmp(weights, w->oracle.weights[r->unit][worker->version], 2 * n) != 0)
		sim_fail(w, "I13: rank %u gathers unit %u at version %llu with other bits than training gives (those of version %lld)", worker->rank,
			 r->unit, (unsigned long long)worker->version, version_of(w, r->unit, weights));
}

static void fetched(struct sim_worker *worker, const struct sim_request *r)
{
	struct sim_world *w = worker->world;
	const struct sim_oracle *o = &w->oracle;
	uint64_t n = w->config.units[r->unit].numel;

	if (r->plane == ZD_PLANE_GRADIENT) {
		struct sim_candidate *c = sim_candidate(w, worker->round - 1, o->decisions[worker->round - 1].ballot);

		if (c->sums[r->unit] && memcmp(r->data, c->sums[r->unit], 4 * n) != 0) /* of rounds long decided it is not kept */
			sim_fail(w, "rank %u fetches another gradient of round %llu than the sum", worker->rank,
				 (unsigned long long)worker->round - 1);
	} else if (r->plane == ZD_PLANE_MASTER && worker->version == o->version) {
		for (uint64_t i = 0; i < n; i++) {
			uint32_t bits, want = ((uint32_t)o->hi[r->unit][i] << 16) + (uint32_t)(int32_t)(int16_t)o->lo[r->unit][i];

			memcpy(&bits, r->data + 4 * i, 4);
			if (bits != want) {
				sim_fail(w, "rank %u fetches master weights of version %llu that differ at unit %u element %llu", worker->rank,
					 (unsigned long long)worker->version, r->unit, (unsigned long long)i);
				return;
			}
		}
	}
}

/* A reader's copy must be one version, whichever: never a mixture. */
static void read(struct sim_worker *worker, const struct sim_request *r)
{
	struct sim_world *w = worker->world;

	if (version_of(w, r->unit, r->data) < 0)
		sim_fail(w, "I13: a reader got unit %u with bits that no version has", r->unit);
	else
		worker->sums[r->unit]++;
}

static void stepped(struct sim_worker *worker)
{
	struct sim_world *w = worker->world;
	struct zerod_step_result result;

	zd_session_result(worker->session, &result);
	if (result.round != worker->round)
		sim_fail(w, "rank %u is told the end of round %llu after stepping round %llu", worker->rank, (unsigned long long)result.round,
			 (unsigned long long)worker->round);
	sim_oracle_result(w, worker, &result);
	sim_check_agreement(w);
	sim_trace(w, "worker %llu.%u has finished round %llu", (unsigned long long)worker->epoch, worker->rank,
		  (unsigned long long)worker->round);
	worker->done_rounds++;
	worker->fetched_round = worker->round; /* its gradient is fetched next, if there is no optimizer; once */
	worker->op_at = worker->op_count = 0;
}

static void succeeded(struct sim_worker *worker, const struct sim_request *r, const uint16_t *weights)
{
	switch (r->type) {
	case ZD_SE_REQ_CONNECT:
		after_connect(worker);
		break;
	case ZD_SE_REQ_LOAD:
		worker->loads_open--;
		return;
	case ZD_SE_REQ_SEAL:
		begin_round(worker);
		break;
	case ZD_SE_REQ_GATHER:
		gathered(worker, r, weights);
		break;
	case ZD_SE_REQ_FETCH:
		worker->epoch ? fetched(worker, r) : read(worker, r);
		break;
	case ZD_SE_REQ_STEP:
		stepped(worker);
		break;
	case ZD_SE_REQ_PUSH:
		if (!r->wait)
			return;
		break;
	default:
		break;
	}
	worker->waiting = 0;
}

void sim_trainer_done(struct sim_worker *worker, struct sim_request *r, int status, const char *text, const uint16_t *weights)
{
	struct sim_world *w = worker->world;

	sim_hash(w, (uint64_t)status << 32 | r->id);
	if (worker->phase == SIM_T_ENDED)
		return;
	if (status == ZEROD_OK) {
		succeeded(worker, r, weights);
		return;
	}
	if (status == ZEROD_REDO) {
		if (r->type == ZD_SE_REQ_PUSH && !r->wait)
			return; /* STEP, or a push that is waited for, will say so */
		if (r->type != ZD_SE_REQ_PUSH && r->type != ZD_SE_REQ_STEP && r->type != ZD_SE_REQ_FLUSH)
			sim_fail(w, "REDO ends a request of type %d", (int)r->type);
		w->redos++;
		worker->redos++;
		worker->again = 1;
		worker->waiting = 0;
		sim_trace(w, "worker %llu.%u computes round %llu again", (unsigned long long)worker->epoch, worker->rank,
			  (unsigned long long)worker->round);
		return;
	}
	if (worker->epoch == 0 && worker->phase == SIM_T_CONNECT && status == ZEROD_ERR_REFUSED) { /* the job is not there yet */
		ended(worker, ZEROD_ERR_STALE, text);
		return;
	}
	ended(worker, status, text);
}

/* ---------------------------------------------------------------- going on */

static void operate(struct sim_worker *worker)
{
	const struct sim_op *op = &worker->ops[worker->op_at++];

	switch (op->kind) {
	case SIM_OP_GATHER: gather(worker, op->unit); return;
	case SIM_OP_PUSH: push(worker, op->unit, op->micro, op->flag); return;
	case SIM_OP_RELEASE: release(worker, op->unit, op->flag); return;
	case SIM_OP_FLUSH: flush(worker); return;
	case SIM_OP_FETCH: fetch(worker, op->unit, op->flag); return;
	case SIM_OP_STEP: step(worker); return;
	}
}

static int go_once(struct sim_worker *worker)
{
	struct sim_world *w = worker->world;

	if (worker->phase == SIM_T_ENDED) {
		sim_worker_kill(worker, 0);
		return 0;
	}
	if (worker->waiting || worker->open_count > OPEN_PUSHES || w->failure[0])
		return 0;
	switch (worker->phase) {
	case SIM_T_LOAD:
		if (worker->load_next < w->config.spec.unit_count)
			load(worker);
		else if (worker->loads_open == 0)
			seal(worker);
		else
			return 0;
		return 1;
	case SIM_T_ROUND:
		if (worker->epoch == 0) {
			uint32_t unit = sim_below(&worker->rng, w->config.spec.unit_count);

			if (w->config.spec.optimizer != ZD_OPT_NONE)
				fetch(worker, unit, ZD_PLANE_WEIGHTS);
			return w->config.spec.optimizer != ZD_OPT_NONE;
		}
		if (worker->again || worker->op_at == worker->op_count)
			begin_round(worker);
		else
			operate(worker);
		return 1;
	case SIM_T_REST: /* the target may have been raised */
		if (w->target > worker->round - 1)
			begin_round(worker);
		return worker->phase == SIM_T_ROUND;
	default:
		return 0;
	}
}

void sim_trainer_go(struct sim_worker *worker)
{
	struct sim_world *w = worker->world;

	if (worker->training || !worker->session)
		return;
	worker->training = 1; /* completions of what is posted here come back through this function */
	while (worker->session && go_once(worker)) {
		/* Computing takes time, sometimes. */
		if (worker->epoch == 0 || (!w->config.plain_trainer && sim_chance(&worker->rng, 20))) {
			sim_after(w, (worker->epoch ? 4 : 100) * w->config.latency, SIM_E_TRAIN, worker, 0);
			return;
		}
	}
	worker->training = 0;
}
