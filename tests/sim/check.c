/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The invariants of the protocol (their numbers are those of docs/protocol.md's model), as seen from outside: in what lanes say, in what their views show after
 * every event, in what their stores hold.  I6 and I10 come with the comparison to the oracle; I11 and I15 belong to stores that write snapshots.
 */
#include <stdio.h>
#include <string.h>

#include "proto/wire.h"
#include "server/core/state.h"
#include "tests/sim/world.h"

static struct zd_ballot from_pb(const Zd__Pb__Ballot *b)
{
	return (struct zd_ballot){b->epoch, b->attempt};
}

static int named(const struct zd_record *r, uint64_t round, struct zd_ballot ballot)
{
	return r->round == round && zd_ballot_cmp(r->ballot, ballot) == 0;
}

/* ---------------------------------------------------------------- between lanes */

static int has_or_decided(const struct sim_lane *lane, uint64_t round, struct zd_ballot ballot)
{
	if (!lane->core)
		return 1; /* what counts is what its store has */
	if (!lane->known)
		return lane->world->config.level == SIM_NONE && lane->lost;
	return lane->view.decided >= round || (lane->view.state == ZD_ROUND_PREPARED && named(&lane->view.record, round, ballot));
}

static int stored_or_decided(const struct sim_lane *lane, uint64_t round, struct zd_ballot ballot)
{
	const struct zd_job_image *image = &lane->disk.image;

	return lane->disk.there && (image->decided >= round || (image->has_record && named(&image->record, round, ballot)));
}

void sim_check_agreement(struct sim_world *w)
{
	uint64_t round = w->oracle.decided, low = UINT64_MAX, high = 0;
	struct zd_ballot ballot = w->oracle.decisions[round].ballot;

	for (uint32_t i = 0; i < w->lane_count && round > 0; i++) {
		const struct sim_lane *lane = &w->lanes[i];

		if (!has_or_decided(lane, round, ballot))
			sim_fail(w, "I3: round %llu of ballot (%llu, %u) is decided, lane %u has neither decided nor prepared it",
				 (unsigned long long)round, (unsigned long long)ballot.epoch, ballot.attempt, i);
		if (w->config.level == SIM_DURABLE && !stored_or_decided(lane, round, ballot))
			sim_fail(w, "I9: round %llu of ballot (%llu, %u) is decided, a crash of lane %u would lose it", (unsigned long long)round,
				 (unsigned long long)ballot.epoch, ballot.attempt, i);
		if (!lane->core || !lane->known)
			continue;
		low = lane->view.decided < low ? lane->view.decided : low;
		high = lane->view.decided > high ? lane->view.decided : high;
	}
	if (high > 0 && low + 1 < high)
		sim_fail(w, "I5: one lane has decided %llu rounds, another %llu", (unsigned long long)low, (unsigned long long)high);
}

/* Lane `lane` drops the record of this ballot for round decided + 1. */
void sim_check_discard(struct sim_lane *lane, struct zd_ballot record)
{
	struct sim_world *w = lane->world;
	uint64_t round = lane->view.decided + 1;
	int lacks = 0;

	w->discards++;
	lane->discards++;
	for (uint32_t i = 0; i < w->lane_count; i++) {
		const struct sim_lane *k = &w->lanes[i];

		if (k == lane)
			continue;
		if (!k->core) { /* down: it has what its store has */
			lacks |= zd_ballot_cmp(k->disk.image.promise, record) > 0 && !(k->disk.image.has_record && named(&k->disk.image.record, round, record));
			continue;
		}
		lacks |= k->known && zd_ballot_cmp(k->view.promise, record) > 0 && k->view.decided < round &&
			 !(k->view.has_record && named(&k->view.record, round, record));
	}
	if (round <= w->oracle.decided && zd_ballot_cmp(w->oracle.decisions[round].ballot, record) == 0)
		sim_fail(w, "I7: lane %u discards round %llu of ballot (%llu, %u), which is decided", lane->index, (unsigned long long)round,
			 (unsigned long long)record.epoch, record.attempt);
	else if (!lacks)
		sim_fail(w, "I7: lane %u discards round %llu of ballot (%llu, %u), which no lane lacks for good", lane->index,
			 (unsigned long long)round, (unsigned long long)record.epoch, record.attempt);
}

/* ---------------------------------------------------------------- one lane, after each of its events */

static void check_life(struct sim_lane *lane, const struct zd_job_view *was)
{
	struct sim_world *w = lane->world;
	const struct zd_job_view *v = &lane->view;

	if (zd_ballot_cmp(v->promise, was->promise) < 0)
		sim_fail(w, "I1: the promise of lane %u falls from (%llu, %u) to (%llu, %u)", lane->index, (unsigned long long)was->promise.epoch,
			 was->promise.attempt, (unsigned long long)v->promise.epoch, v->promise.attempt);
	if (v->decided != was->decided && v->decided != was->decided + 1)
		sim_fail(w, "lane %u goes from round %llu to %llu", lane->index, (unsigned long long)was->decided, (unsigned long long)v->decided);
	if (v->decided == was->decided && was->has_decision && !zd_decision_equal(&v->decision, &was->decision))
		sim_fail(w, "I10: lane %u changes its decision on round %llu", lane->index, (unsigned long long)v->decided);
	if (was->state == ZD_ROUND_PREPARED && v->decided == was->decided && lane->discards == lane->discards_seen &&
	    !(v->has_record && named(&v->record, was->record.round, was->record.ballot)))
		sim_fail(w, "I8: lane %u has lost its prepared round %llu without a DISCARD", lane->index, (unsigned long long)was->record.round);
	if (v->decided == was->decided + 1 && was->state != ZD_ROUND_PREPARED)
		sim_fail(w, "lane %u decides round %llu, which it had not prepared", lane->index, (unsigned long long)v->decided);
	if (v->timeline != was->timeline)
		sim_fail(w, "the timeline of lane %u changes", lane->index);
}

void sim_check_lane(struct sim_lane *lane)
{
	struct sim_world *w = lane->world;
	struct zd_job_view was = lane->view;
	int known = lane->known;
	struct zd_job_view *v = &lane->view;

	if (!zd_core_job_view(lane->core, w->config.spec.name, v))
		return;
	lane->known = 1;
	if (!known)
		memset(&was, 0, sizeof(was));
	else
		check_life(lane, &was);
	lane->discards_seen = lane->discards;
	if (v->has_record && !(was.has_record && named(&was.record, v->record.round, v->record.ballot)))
		sim_oracle_record(w, lane, &v->record);
	if (w->config.verbose && known && (v->state != was.state || zd_ballot_cmp(v->promise, was.promise) != 0))
		sim_trace(w, "lane %u: state %d round %llu promise %llu.%u", lane->index, (int)v->state, (unsigned long long)v->decided + 1,
			  (unsigned long long)v->promise.epoch, v->promise.attempt);
	if (v->has_decision && v->decided != was.decided && !w->failure[0]) {
		sim_trace(w, "lane %u decides round %llu", lane->index, (unsigned long long)v->decided);
		sim_oracle_decided(w, lane, &v->decision);
		if (!w->failure[0])
			sim_check_agreement(w);
	}
	if (v->due == 0 && v->state != ZD_ROUND_UNSEALED && w->config.spec.optimizer != ZD_OPT_NONE && lane->planes_checked != v->step + 1 &&
	    !w->failure[0]) {
		lane->planes_checked = v->step + 1;
		sim_oracle_planes(w, lane);
	}
}

void sim_check_restart(struct sim_lane *lane)
{
	struct sim_world *w = lane->world;

	lane->planes_checked = 0;
	sim_check_lane(lane);
	if (w->config.level == SIM_DURABLE && zd_ballot_cmp(lane->view.promise, lane->joined) < 0)
		sim_fail(w, "I1: lane %u has answered JOIN of (%llu, %u), after a crash it promises (%llu, %u)", lane->index,
			 (unsigned long long)lane->joined.epoch, lane->joined.attempt, (unsigned long long)lane->view.promise.epoch,
			 lane->view.promise.attempt);
	if (!w->failure[0])
		sim_check_agreement(w);
}

/* ---------------------------------------------------------------- what a lane says */

static const ProtobufCMessage *decode(struct sim_world *w, uint16_t type, const uint8_t *head, uint32_t len)
{
	const ProtobufCMessage *m = NULL;
	char text[256];

	zd_arena_reset(&w->arena);
	if (zd_wire_decode(&w->arena, type, head, len, &m, text, sizeof(text)) < 0)
		sim_fail(w, "a %s cannot be read: %s", zd_msg_name(type), text);
	return m;
}

static void check_told_record(struct sim_conn *c, const Zd__Pb__Record *m, const char *what)
{
	struct sim_world *w = c->world;

	if (w->config.level == SIM_DURABLE && !stored_or_decided(c->lane, m->round, from_pb(m->ballot)))
		sim_fail(w, "I8: lane %u tells the record of round %llu, ballot (%llu, %u), in %s, and its store does not have it", c->lane->index,
			 (unsigned long long)m->round, (unsigned long long)m->ballot->epoch, m->ballot->attempt, what);
}

static void check_joined(struct sim_conn *c, const Zd__Pb__Joined *m)
{
	struct sim_lane *lane = c->lane;
	struct zd_ballot ballot = from_pb(m->ballot);

	sim_trace(c->world, "lane %u -> %llu.%u JOINED %llu.%u decided %llu%s", lane->index, (unsigned long long)c->worker->epoch,
		  c->worker->rank, (unsigned long long)ballot.epoch, ballot.attempt, (unsigned long long)m->decided,
		  m->prepared ? " prepared" : "");
	if (zd_ballot_cmp(ballot, lane->joined) > 0)
		lane->joined = ballot;
	if (c->world->config.level == SIM_DURABLE && zd_ballot_cmp(lane->disk.image.promise, ballot) < 0)
		sim_fail(c->world, "I1: lane %u answers JOIN of (%llu, %u) before that promise is durable", lane->index,
			 (unsigned long long)ballot.epoch, ballot.attempt);
	if (m->prepared)
		check_told_record(c, m->prepared, "JOINED");
}

/* A prefetch that the step overtook is nobody's loss; a gather that a trainer waits for is. */
static int somebody_waits(const struct sim_worker *worker)
{
	for (uint32_t i = 0; i < SIM_OPEN_MAX; i++)
		if (worker->open[i].id && (worker->open[i].type == ZD_SE_REQ_GATHER || worker->open[i].type == ZD_SE_REQ_FETCH))
			return 1;
	return 0;
}

/* Errors that a correct client can meet in a world of faults. */
static int error_allowed(const struct sim_conn *c, const Zd__Pb__Error *m)
{
	const struct sim_world *w = c->world;

	switch (m->code) {
	case ZD_ERR_OUT_OF_ORDER: return w->faults > 0 && strncmp(m->text, "link ", 5) == 0; /* JOIN of an old connection, late */
	case ZD_ERR_TIMED_OUT: return w->faults > 0;
	case ZD_ERR_VERSION_GONE: return c->worker->epoch < w->launch_count || !somebody_waits(c->worker);
	case ZD_ERR_NOT_SEALED: /* what was loaded is gone; a second lane may say so when the first has ended the worker */
		return w->crashes > 0 && (c->worker->phase == SIM_T_SEAL || c->worker->phase == SIM_T_CONNECT ||
					  (c->worker->phase == SIM_T_ENDED && c->worker->was == SIM_T_SEAL));
	case ZD_ERR_NO_JOB: return c->worker->epoch == 0 || (w->config.level == SIM_NONE && w->crashes > 0); /* lost with the lane's memory */
	case ZD_ERR_ALREADY_SEALED: return w->crashes > 0; /* a lane that came back does not know what it had loaded */
	default: return 0;
	}
}

static void check_error(struct sim_conn *c, const Zd__Pb__Error *m)
{
	sim_trace(c->world, "lane %u -> %llu.%u ERROR %s: %s", c->lane->index, (unsigned long long)c->worker->epoch, c->worker->rank,
		  zd_err_name((int)m->code), m->text);
	c->world->errors++;
	if (!error_allowed(c, m))
		sim_fail(c->world, "lane %u answers rank %u of epoch %llu with %s: %s", c->lane->index, c->worker->rank,
			 (unsigned long long)c->worker->epoch, zd_err_name((int)m->code), m->text);
}

static void check_aborted(struct sim_conn *c, const Zd__Pb__Aborted *m)
{
	sim_trace(c->world, "lane %u -> %llu.%u ABORTED %s ended %llu.%u promise %llu.%u", c->lane->index, (unsigned long long)c->worker->epoch,
		  c->worker->rank, zd_err_name((int)m->code), (unsigned long long)m->ended->epoch, m->ended->attempt,
		  (unsigned long long)m->ballot->epoch, m->ballot->attempt);
	if (c->world->faults == 0 && c->world->launch_count == 1)
		sim_fail(c->world, "lane %u aborts without cause: %s: %s", c->lane->index, zd_err_name((int)m->code), m->text);
	if (m->code == ZD_ERR_GAP || m->code == ZD_ERR_MICRO_DIFFERS || m->code == ZD_ERR_HYPER_DIFFERS || m->code == ZD_ERR_DECISION_DIFFERS)
		sim_fail(c->world, "lane %u finds fault with rank %u, which made none: %s", c->lane->index, c->worker->rank, m->text);
}

static void check_discarded(struct sim_conn *c, const Zd__Pb__Discarded *m)
{
	const struct sim_disk *disk = &c->lane->disk;

	sim_trace(c->world, "lane %u -> %llu.%u DISCARDED round %llu of %llu.%u", c->lane->index, (unsigned long long)c->worker->epoch,
		  c->worker->rank, (unsigned long long)m->round, (unsigned long long)m->record->epoch, m->record->attempt);
	if (c->world->config.level == SIM_DURABLE && disk->image.has_record && named(&disk->image.record, m->round, from_pb(m->record)))
		sim_fail(c->world, "lane %u answers DISCARD before that is durable", c->lane->index);
}

void sim_check_down(struct sim_conn *c, uint16_t type, const uint8_t *head, uint32_t len)
{
	struct sim_world *w = c->world;
	const ProtobufCMessage *m;

	if (type == ZD_MSG_DATA || type == ZD_MSG_PUSHED || type == ZD_MSG_LOADED || type == ZD_MSG_PONG)
		return; /* frequent, and checked where they arrive */
	m = decode(w, type, head, len);
	if (!m)
		return;
	switch (type) {
	case ZD_MSG_JOINED: check_joined(c, (const Zd__Pb__Joined *)m); return;
	case ZD_MSG_ERROR: check_error(c, (const Zd__Pb__Error *)m); return;
	case ZD_MSG_ABORTED: check_aborted(c, (const Zd__Pb__Aborted *)m); return;
	case ZD_MSG_DISCARDED: check_discarded(c, (const Zd__Pb__Discarded *)m); return;
	case ZD_MSG_PREPARED:
		sim_trace(w, "lane %u -> %llu.%u PREPARED round %llu", c->lane->index, (unsigned long long)c->worker->epoch, c->worker->rank,
			  (unsigned long long)((const Zd__Pb__Prepared *)m)->record->round);
		check_told_record(c, ((const Zd__Pb__Prepared *)m)->record, "PREPARED");
		return;
	case ZD_MSG_APPLIED:
		sim_trace(w, "lane %u -> %llu.%u %s round %llu", c->lane->index, (unsigned long long)c->worker->epoch, c->worker->rank,
			  ((const Zd__Pb__Applied *)m)->decision->applied ? "APPLIED" : "SKIPPED",
			  (unsigned long long)((const Zd__Pb__Applied *)m)->decision->round);
		return;
	case ZD_MSG_SEALED:
		if (w->config.level == SIM_DURABLE && !c->lane->disk.image.sealed)
			sim_fail(w, "lane %u answers SEAL before version 0 is durable", c->lane->index);
		return;
	default: return;
	}
}

/* ---------------------------------------------------------------- what a session sends */

static void check_push(struct sim_conn *c, const Zd__Pb__Push *m, const uint8_t *payload)
{
	struct sim_worker *worker = c->worker;
	uint32_t elem = zd_codec_bytes(c->world->config.spec.grad_codec);

	for (uint32_t i = 0; i < SIM_OPEN_MAX; i++) {
		const struct sim_request *r = &worker->open[i];

		if (!r->id || r->type != ZD_SE_REQ_PUSH || r->data + m->first * elem != payload || r->unit != m->unit)
			continue;
		if (r->micro != m->micro || m->rank != worker->rank)
			break;
		sim_oracle_pushed(c->world, from_pb(m->ballot), m->round, worker->rank, r);
		return;
	}
	sim_fail(c->world, "rank %u pushes unit %u, micro-batch %u, from memory that no open push lends", worker->rank, m->unit, m->micro);
}

static void note_ballot(struct sim_mark *mark, const Zd__Pb__Ballot *ballot)
{
	mark->has_ballot = 1;
	mark->ballot = from_pb(ballot);
}

static void note_join(struct sim_conn *c, const Zd__Pb__Join *m)
{
	sim_trace(c->world, "%llu.%u -> lane %u JOIN %llu.%u", (unsigned long long)c->worker->epoch, c->worker->rank, c->lane->index,
		  (unsigned long long)m->ballot->epoch, m->ballot->attempt);
	if (m->ballot->attempt > c->world->attempts_max)
		c->world->attempts_max = m->ballot->attempt;
	if (m->ballot->epoch != c->worker->epoch)
		sim_fail(c->world, "I16: rank %u of epoch %llu joins epoch %llu", c->worker->rank, (unsigned long long)c->worker->epoch,
			 (unsigned long long)m->ballot->epoch);
}

void sim_check_up(struct sim_conn *c, uint16_t type, const uint8_t *head, uint32_t len, const uint8_t *payload, struct sim_mark *mark)
{
	const ProtobufCMessage *m;

	if (type != ZD_MSG_PUSH && type != ZD_MSG_JOIN && type != ZD_MSG_COMMIT && type != ZD_MSG_APPLY && type != ZD_MSG_DISCARD)
		return;
	m = decode(c->world, type, head, len);
	if (!m)
		return;
	switch (type) {
	case ZD_MSG_PUSH:
		note_ballot(mark, ((const Zd__Pb__Push *)m)->ballot);
		check_push(c, (const Zd__Pb__Push *)m, payload);
		return;
	case ZD_MSG_JOIN:
		note_ballot(mark, ((const Zd__Pb__Join *)m)->ballot);
		note_join(c, (const Zd__Pb__Join *)m);
		return;
	case ZD_MSG_COMMIT:
		note_ballot(mark, ((const Zd__Pb__Commit *)m)->ballot);
		sim_trace(c->world, "%llu.%u -> lane %u COMMIT round %llu", (unsigned long long)c->worker->epoch, c->worker->rank, c->lane->index,
			  (unsigned long long)((const Zd__Pb__Commit *)m)->round);
		return;
	case ZD_MSG_APPLY:
		note_ballot(mark, ((const Zd__Pb__Apply *)m)->ballot);
		sim_trace(c->world, "%llu.%u -> lane %u APPLY round %llu", (unsigned long long)c->worker->epoch, c->worker->rank, c->lane->index,
			  (unsigned long long)((const Zd__Pb__Apply *)m)->decision->round);
		return;
	default:
		note_ballot(mark, ((const Zd__Pb__Discard *)m)->ballot);
		sim_trace(c->world, "%llu.%u -> lane %u DISCARD round %llu of %llu.%u", (unsigned long long)c->worker->epoch, c->worker->rank,
			  c->lane->index, (unsigned long long)((const Zd__Pb__Discard *)m)->round,
			  (unsigned long long)((const Zd__Pb__Discard *)m)->record->epoch, ((const Zd__Pb__Discard *)m)->record->attempt);
	}
}

/* 1 if these bytes belong to frames of other ballots than the promise only, and the core has nothing else to go on with. */
int sim_check_quiet(struct sim_conn *c, uint64_t from, uint64_t to)
{
	const struct sim_lane *lane = c->lane;
	const struct sim_pipe *p = &c->up;

	if (!lane->known || lane->core->queue_len > 0)
		return 0;
	for (uint32_t i = 0; i < p->mark_count; i++) {
		const struct sim_mark *m = &p->marks[p->mark_first + i];
		int cmp = zd_ballot_cmp(m->ballot, lane->view.promise);

		if (m->end <= from)
			continue;
		if (m->begin >= to)
			return 1;
		if (!m->has_ballot || cmp == 0 || (m->type == ZD_MSG_JOIN && cmp > 0))
			return 0;
	}
	return 1;
}

/* ---------------------------------------------------------------- the end of a run */

void sim_check_end(struct sim_world *w)
{
	for (uint32_t i = 0; i < w->lane_count; i++)
		if (w->config.spec.optimizer != ZD_OPT_NONE && w->lanes[i].planes_checked != w->oracle.version + 1)
			sim_fail(w, "lane %u ended at version %llu, training at %llu", i, (unsigned long long)w->lanes[i].planes_checked - 1,
				 (unsigned long long)w->oracle.version);
	for (uint32_t i = 0; i < w->worker_count; i++) {
		const struct sim_worker *worker = w->workers[i];
		struct zd_session_view view;

		if (worker->epoch == 0 || worker->epoch == w->launch_count || !sim_worker_lives(worker))
			continue;
		zd_session_view(worker->session, &view); /* one that rests has no request that would tell it */
		if (view.failed == 0)
			sim_fail(w, "I16: rank %u of epoch %llu goes on, the last epoch is %u", worker->rank, (unsigned long long)worker->epoch,
				 w->launch_count);
	}
	if (w->attempts_max > 2 + 4 * w->faults)
		sim_fail(w, "I14: %u attempts after %llu faults", w->attempts_max, (unsigned long long)w->faults);
}
