/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A round: from the first contribution to the decision.
 *
 *                      JOIN of a higher ballot, lease, gap, disagreement
 *                +---------------------------------------------------------+
 *                v                                                         |
 *            +-------+  PUSH, COMMIT of the promised ballot b      +-------+-------+
 *   SEAL --> | EMPTY | ------------------------------------------> | COLLECTING r,b|
 *            +-------+                                             +-------+-------+
 *             ^     ^                      all ranks committed, equal, no  |
 *             |     | DISCARD(r,b)         gap, everything added           v
 *             |     | of promise > b                               +---------------+
 *             |     |                                              |  WRITING r,b  |
 *             |     |                                              +-------+-------+
 *             |     |                                        record durable v
 *             |     |                                              +---------------+
 *             |     +--------------------------------------------- |  PREPARED r,b | (JOIN and lease change nothing)
 *             +--------------------------------------------------- +---------------+
 *                                 APPLY(r,b) of promise
 *
 *   UNSEALED    initial weights are not complete; nothing is counted
 *   EMPTY       r = decided + 1 has no contribution; Adam of round `decided` may still be due
 *   COLLECTING  contributions of ballot = promise only; they die with the ballot
 *   WRITING     every extent is complete, no Adam is due, the record is on its way to the store; nothing changes until it is there
 *   PREPARED    the record is durable; it outlives any ballot until it is decided or discarded
 *
 * An applied decision raises decided and step at once; the arithmetic follows, extent by extent (extent.c).
 */
#include <string.h>

#include "proto/assert.h"
#include "proto/text.h"
#include "server/core/state.h"

#define BIT(state) (1u << ZD_ROUND_##state)
static const uint8_t allowed[] = {
	[ZD_ROUND_UNSEALED] = BIT(EMPTY),
	[ZD_ROUND_EMPTY] = BIT(COLLECTING),
	[ZD_ROUND_COLLECTING] = BIT(EMPTY) | BIT(WRITING),
	[ZD_ROUND_WRITING] = BIT(PREPARED),
	[ZD_ROUND_PREPARED] = BIT(EMPTY),
};
static const char *const names[] = {"UNSEALED", "EMPTY", "COLLECTING", "WRITING", "PREPARED"};

static struct zd_ballot ballot_of(const Zd__Pb__Ballot *b)
{
	return (struct zd_ballot){b->epoch, b->attempt};
}

void zd_round_move(struct zd_core *core, struct zd_job *j, enum zd_round_state to)
{
	ZD_ASSERT(allowed[j->state] >> to & 1);
	zd_emit_log(core, ZD_LOG_DEBUG, "event=round job=%s from=%s to=%s round=%llu ballot=%llu.%u step=%llu due=%u", j->spec.name,
		    names[j->state], names[to], (unsigned long long)(j->decided + 1), (unsigned long long)j->promise.epoch,
		    j->promise.attempt, (unsigned long long)j->step, j->due);
	j->state = (uint8_t)to;
	ZD_ASSERT(j->sealed || to == ZD_ROUND_UNSEALED);
	if (to == ZD_ROUND_WRITING || to == ZD_ROUND_PREPARED) {
		ZD_ASSERT(j->left == 0 && j->due == 0 && j->record.round == j->decided + 1);
		ZD_ASSERT(zd_ballot_cmp(j->record.ballot, j->promise) <= 0);
	}
	if (to == ZD_ROUND_EMPTY)
		ZD_ASSERT(j->micro == 0 && j->commits == 0);
}

/* Payloads of contributions that are under way are received to nowhere, and duplicates need no answer any more. */
static void abandon_pushes(struct zd_core *core, struct zd_job *j)
{
	for (uint32_t i = j->conns; i != ZD_NONE; i = core->conn[i].job_next) {
		struct zd_conn *c = &core->conn[i];

		if (c->take.kind == ZD_TAKE_SLOT || c->take.kind == ZD_TAKE_WINDOW)
			zd_conn_abandon(core, c);
		c->take.answer = 0;
	}
}

/* A new collection: whatever belongs to the old one is void. */
static void begin_collection(struct zd_core *core, struct zd_job *j)
{
	abandon_pushes(core, j);
	zd_reduce_drop_staged(core, j);
	j->gather++;
	j->micro = j->total = j->commits = 0;
	j->raw = 0;
	j->left = j->trainable_extents;
	zd_normacc_zero(&j->norm);
	j->nonfinite = 0;
	memset(j->pos, 0, sizeof *j->pos * j->world * j->spec.unit_count); /* ranks beyond have counted nothing */
	for (uint32_t r = 0; r < ZD_WORLD_MAX; r++) {
		j->worker[r].committed = 0;
		j->worker[r].micro = j->worker[r].complete = 0;
		j->worker[r].freed += j->worker[r].out; /* what was staged is given back; calls under way find it done */
		j->worker[r].out = 0;
	}
}

void zd_round_void(struct zd_core *core, struct zd_job *j)
{
	begin_collection(core, j);
	if (j->state == ZD_ROUND_COLLECTING)
		zd_round_move(core, j, ZD_ROUND_EMPTY);
}

int zd_round_serves(struct zd_core *core, struct zd_conn *c, uint64_t stream, struct zd_ballot ballot, uint32_t rank)
{
	struct zd_job *j = zd_job_of(core, c);
	int cmp = zd_ballot_cmp(ballot, j->promise);

	if (cmp == 0 && c->joined && rank == c->rank)
		return 1;
	if (cmp == 0 && c->joined && rank != ZD_NONE) {
		zd_emit_error(core, c, stream, ZD_ERR_BAD_FIELD, (struct zd_about){ZD_NONE, c->rank},
			      "message of rank %u on the connection of rank %u: one connection for each rank", rank, c->rank);
		return 0;
	}
	if (cmp == 0 && c->joined)
		return 1;
	if (cmp < 0)
		zd_text_fail(0, core->text, sizeof core->text, "ballot (%llu, %u) is over, this lane serves (%llu, %u): %s",
			     (unsigned long long)ballot.epoch, ballot.attempt, (unsigned long long)j->promise.epoch, j->promise.attempt,
			     ballot.epoch < j->promise.epoch ? "a newer launch has taken the job, stop" : "join that attempt");
	else if (cmp == 0 && j->ended)
		zd_text_fail(0, core->text, sizeof core->text, "%s", j->ended_text);
	else
		zd_text_fail(0, core->text, sizeof core->text, "ballot (%llu, %u) was not joined on this connection: JOIN first",
			     (unsigned long long)ballot.epoch, ballot.attempt);
	zd_emit_aborted(core, c, stream, ballot, cmp < 0 ? ZD_ERR_BALLOT_LOW : cmp == 0 && j->ended ? j->ended_code : ZD_ERR_NOT_JOINED,
			NULL, 0, core->text);
	return 0;
}

void zd_round_end(struct zd_core *core, struct zd_job *j, int code, const uint32_t *missing, size_t missing_count, const char *text)
{
	ZD_ASSERT(j->state == ZD_ROUND_UNSEALED || j->state == ZD_ROUND_EMPTY || j->state == ZD_ROUND_COLLECTING);
	j->ended = 1;
	j->ended_code = code;
	zd_text_fail(0, j->ended_text, sizeof j->ended_text, "%s", text);
	char quoted[ZD_TEXT_QUOTED];

	zd_emit_log(core, ZD_LOG_WARNING, "event=aborted job=%s round=%llu ballot=%llu.%u code=%s text=%s", j->spec.name,
		    (unsigned long long)(j->decided + 1), (unsigned long long)j->promise.epoch, j->promise.attempt, zd_err_name(code),
		    zd_text_quote(quoted, sizeof quoted, j->ended_text));
	for (uint32_t i = j->conns; i != ZD_NONE; i = core->conn[i].job_next)
		if (core->conn[i].joined)
			zd_emit_aborted(core, &core->conn[i], 0, j->promise, code, missing, missing_count, j->ended_text);
	zd_round_void(core, j);
	zd_join_clear(core, j);
	zd_window_settle(core, j);
}

int zd_round_open(struct zd_core *core, struct zd_job *j, uint32_t micro, uint32_t rank)
{
	uint32_t both[2] = {j->micro_rank, rank};

	if (j->micro == 0) {
		j->micro = micro;
		j->micro_rank = rank;
		j->total = micro * j->world;
		j->raw = j->spec.grad_codec == ZD_CODEC_BF16 && j->total <= 2;
		if (j->state == ZD_ROUND_EMPTY)
			zd_round_move(core, j, ZD_ROUND_COLLECTING);
		return 1;
	}
	if (j->micro == micro)
		return 1;
	zd_text_fail(0, core->text, sizeof core->text, "round %llu: rank %u has %u micro-batches, rank %u has %u: give all ranks the same",
		     (unsigned long long)(j->decided + 1), j->micro_rank, j->micro, rank, micro);
	zd_round_end(core, j, ZD_ERR_MICRO_DIFFERS, both, 2, core->text);
	return 0;
}

/* ---------------------------------------------------------------- COMMIT */

static double hyper_value(const struct zd_hyper *h, const char *field)
{
	static const struct {
		const char *name;
		size_t at;
	} fields[] = {
#define F(name) {#name, offsetof(struct zd_hyper, name)}
		F(lr), F(weight_decay), F(beta1), F(beta2), F(eps), F(max_norm), F(loss_scale), F(weight),
#undef F
	};
	double value = 0;

	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
		if (strcmp(fields[i].name, field) == 0)
			memcpy(&value, (const char *)h + fields[i].at, sizeof value);
	return value;
}

/* 1 if the rank's parameters equal those of the ranks before it; else the attempt was ended. */
static int hyper_agrees(struct zd_core *core, struct zd_job *j, uint32_t rank, const struct zd_hyper *h)
{
	uint32_t other = 0;
	const char *field;

	while (other < j->world && !j->worker[other].committed)
		other++;
	if (other == j->world)
		return 1;
	field = zd_hyper_differs(&j->worker[other].hyper, h);
	if (!field)
		return 1;
	zd_text_fail(0, core->text, sizeof core->text, "round %llu: %s is %.17g on rank %u and %.17g on rank %u: give all ranks the same",
		     (unsigned long long)(j->decided + 1), field, hyper_value(&j->worker[other].hyper, field), other, hyper_value(h, field), rank);
	zd_round_end(core, j, ZD_ERR_HYPER_DIFFERS, (uint32_t[]){other, rank}, 2, core->text);
	return 0;
}

/* 1 if everything that the rank says it pushed was counted; else the attempt was ended. */
static int no_gap(struct zd_core *core, struct zd_job *j, uint32_t rank, const Zd__Pb__Commit *m)
{
	for (uint32_t u = 0; u < j->spec.unit_count; u++) {
		uint64_t want = (uint64_t)j->micro * j->units[u].extents, have = j->pos[(size_t)rank * j->spec.unit_count + u];
		int trainable = !j->spec.units[u].frozen && j->units[u].extents > 0;

		if (!trainable || (have == want && m->counts[u] == j->micro))
			continue;
		if (m->counts[u] != j->micro)
			zd_text_fail(0, core->text, sizeof core->text,
				     "round %llu: rank %u commits %u micro-batches of unit %s, expected %u: push every trainable unit in every micro-batch",
				     (unsigned long long)(j->decided + 1), rank, m->counts[u], j->spec.units[u].name, j->micro);
		else
			zd_text_fail(0, core->text, sizeof core->text,
				     "round %llu: rank %u commits unit %s, of which %llu extents are here and %llu expected: the step must be computed again",
				     (unsigned long long)(j->decided + 1), rank, j->spec.units[u].name, (unsigned long long)have,
				     (unsigned long long)want);
		zd_round_end(core, j, ZD_ERR_GAP, &rank, 1, core->text);
		return 0;
	}
	return 1;
}

/* The round must be the open one; everything else is answered here. */
static int commit_is_due(struct zd_core *core, struct zd_conn *c, struct zd_job *j, uint64_t round)
{
	uint64_t stream = c->reader.header.stream;

	if (round <= j->decided) {
		zd_emit_applied(core, c, stream);
		return 0;
	}
	if (round > j->decided + 1) {
		zd_text_fail(0, core->text, sizeof core->text, "COMMIT of round %llu, this lane expects round %llu: resolve first",
			     (unsigned long long)round, (unsigned long long)(j->decided + 1));
		zd_emit_aborted(core, c, stream, j->promise, ZD_ERR_WRONG_ROUND, NULL, 0, core->text);
		return 0;
	}
	if (j->state != ZD_ROUND_WRITING && j->state != ZD_ROUND_PREPARED)
		return 1;
	if (zd_ballot_cmp(j->record.ballot, j->promise) != 0) {
		zd_text_fail(0, core->text, sizeof core->text, "round %llu is prepared by ballot (%llu, %u): finish or discard that record first",
			     (unsigned long long)round, (unsigned long long)j->record.ballot.epoch, j->record.ballot.attempt);
		zd_emit_aborted(core, c, stream, j->promise, ZD_ERR_WRONG_ROUND, NULL, 0, core->text);
	} else if (j->state == ZD_ROUND_PREPARED) {
		zd_emit_prepared(core, c, stream);
	}
	return 0; /* WRITING: PREPARED goes to every worker when the record is durable */
}

void zd_round_commit(struct zd_core *core, struct zd_conn *c, const Zd__Pb__Commit *m)
{
	struct zd_job *j = zd_job_of(core, c);
	uint64_t stream = c->reader.header.stream;
	struct zd_about about = {ZD_NONE, m->rank};
	struct zd_hyper hyper;
	const char *wrong;
	double found;

	if (!zd_round_serves(core, c, stream, ballot_of(m->ballot), m->rank) || !commit_is_due(core, c, j, m->round))
		return;
	zd_hyper_from_pb(&hyper, m->hyper);
	wrong = zd_hyper_check(&hyper, &found);
	if (wrong) {
		zd_emit_error(core, c, stream, ZD_ERR_BAD_FIELD, about, "COMMIT of round %llu: %s, found %g", (unsigned long long)m->round, wrong, found);
		return;
	}
	if (m->n_counts != j->spec.unit_count || m->micro_batches < 1 || m->micro_batches > ZD_MICRO_MAX) {
		zd_emit_error(core, c, stream, ZD_ERR_BAD_FIELD, about,
			      "COMMIT of round %llu has %zu counts and %u micro-batches, expected %u and 1 to %u", (unsigned long long)m->round,
			      m->n_counts, m->micro_batches, j->spec.unit_count, ZD_MICRO_MAX);
		return;
	}
	if (!j->sealed) {
		zd_emit_error(core, c, stream, ZD_ERR_NOT_SEALED, about, "COMMIT before the initial weights are complete: LOAD and SEAL first");
		return;
	}
	if (!zd_round_open(core, j, m->micro_batches, m->rank) || !no_gap(core, j, m->rank, m) || !hyper_agrees(core, j, m->rank, &hyper))
		return;
	if (j->worker[m->rank].committed)
		return;
	j->worker[m->rank].committed = 1;
	j->worker[m->rank].hyper = hyper;
	j->commits++;
	zd_round_try_prepare(core, j);
}

void zd_round_try_prepare(struct zd_core *core, struct zd_job *j)
{
	struct zd_record *r = &j->record;

	if (j->state != ZD_ROUND_COLLECTING || j->commits < j->world || j->left > 0)
		return;
	ZD_ASSERT(j->commits == j->world && j->due == 0);
	memset(r, 0, sizeof *r);
	r->round = j->decided + 1;
	r->ballot = j->promise;
	r->hyper = j->worker[0].hyper;
	r->world = j->world;
	r->micro_batches = j->micro;
	r->norm = j->norm;
	r->nonfinite = j->nonfinite;
	if (j->nonfinite > 0) {
		r->bad_unit = j->bad_unit;
		r->bad_element = j->bad_element;
		r->bad_rank = j->bad_rank;
	}
	j->update.form = (uint8_t)(!j->raw ? ZD_FORM_FP32 : j->total == 2 ? ZD_FORM_BF16_2 : ZD_FORM_BF16_1);
	zd_round_move(core, j, ZD_ROUND_WRITING);
	zd_emit_store(core, j, ZD_STORE_RECORD);
}

void zd_round_recorded(struct zd_core *core, struct zd_job *j)
{
	zd_round_move(core, j, ZD_ROUND_PREPARED);
	for (uint32_t r = 0; r < j->world; r++) {
		struct zd_conn *c = zd_core_conn(core, j->worker[r].conn);

		if (j->worker[r].joined && c && c->joined)
			zd_emit_prepared(core, c, 0);
	}
	zd_join_resume(core, j);
}

/* ---------------------------------------------------------------- APPLY */

static void decide(struct zd_core *core, struct zd_job *j, const struct zd_decision *d)
{
	for (uint32_t i = j->conns; i != ZD_NONE; i = core->conn[i].job_next)
		if (core->conn[i].take.kind == ZD_TAKE_SKIP && core->conn[i].take.answer)
			core->conn[i].take.late = 1; /* a resent PUSH under way: APPLIED answers it */
	j->decided = d->round;
	j->step = d->step;
	j->decision = *d;
	j->has_decision = 1;
	if (j->spec.optimizer == ZD_OPT_NONE) {
		j->grad_round = d->round;
		j->grad_form[d->round & 1] = j->update.form;
	} else if (d->applied) {
		j->update.hyper = j->record.hyper;
		j->update.scale = d->scale;
		j->update.step = d->step;
		j->due = j->trainable_extents;
		j->due_cursor = 0;
		j->idle_blocked = 0;
	}
	j->skipped += !d->applied;
	begin_collection(core, j);
	zd_round_move(core, j, ZD_ROUND_EMPTY);
	zd_emit_store(core, j, ZD_STORE_DECISION);
	if (!d->applied)
		zd_emit_log(core, ZD_LOG_NOTICE, "event=skipped job=%s round=%llu nonfinite=%llu", j->spec.name, (unsigned long long)d->round,
			    (unsigned long long)j->record.nonfinite);
	zd_fetch_wake(core, j);
}

/* NULL if the decision can follow from the record, else what is wrong. */
static const char *implausible(const struct zd_job *j, const struct zd_decision *d)
{
	if (d->applied != (j->record.nonfinite == 0) && d->applied)
		return "applied, though this lane counted values that are not finite";
	if (d->step != j->step + d->applied)
		return "the optimizer step does not follow the last one";
	if (d->applied && d->scale != zd_scale(&j->record, d->norm))
		return "the scale is not the one that follows from its norm and the record";
	return NULL;
}

void zd_round_apply(struct zd_core *core, struct zd_conn *c, const Zd__Pb__Apply *m)
{
	struct zd_job *j = zd_job_of(core, c);
	uint64_t stream = c->reader.header.stream;
	struct zd_decision d;
	const char *wrong;

	if (!zd_round_serves(core, c, stream, ballot_of(m->ballot), ZD_NONE))
		return;
	zd_decision_from_pb(&d, m->decision);
	if (d.round < j->decided || (d.round == j->decided && j->has_decision && zd_decision_equal(&d, &j->decision))) {
		if (j->has_decision)
			zd_emit_applied(core, c, stream);
		return;
	}
	if (d.round == j->decided) {
		wrong = "another one was taken for this round";
	} else if (d.round != j->decided + 1 || j->state != ZD_ROUND_PREPARED || zd_ballot_cmp(d.ballot, j->record.ballot) != 0) {
		zd_text_fail(0, core->text, sizeof core->text,
			     "APPLY of round %llu as prepared by ballot (%llu, %u): this lane is in state %s of round %llu and does not have that record; "
			     "join a new attempt and compute the step again",
			     (unsigned long long)d.round, (unsigned long long)d.ballot.epoch, d.ballot.attempt, names[j->state],
			     (unsigned long long)(j->decided + 1));
		zd_emit_aborted(core, c, stream, j->promise, ZD_ERR_LOST, NULL, 0, core->text);
		return;
	} else {
		wrong = implausible(j, &d);
	}
	if (wrong) {
		zd_text_fail(0, core->text, sizeof core->text, "decision %s of round %llu (scale %.17g, step %llu): %s", d.applied ? "apply" : "skip",
			     (unsigned long long)d.round, d.scale, (unsigned long long)d.step, wrong);
		zd_emit_aborted(core, c, stream, j->promise, ZD_ERR_DECISION_DIFFERS, NULL, 0, core->text);
		return;
	}
	decide(core, j, &d);
	zd_emit_applied(core, c, stream);
}

/* ---------------------------------------------------------------- DISCARD */

static void discarded(struct zd_core *core, struct zd_conn *c, uint64_t stream, uint64_t round, struct zd_ballot record)
{
	struct zd_job *j = zd_job_of(core, c);
	Zd__Pb__Discarded m = ZD__PB__DISCARDED__INIT;
	Zd__Pb__Ballot promise = ZD__PB__BALLOT__INIT, name = ZD__PB__BALLOT__INIT;

	promise.epoch = j->promise.epoch;
	promise.attempt = j->promise.attempt;
	name.epoch = record.epoch;
	name.attempt = record.attempt;
	m.ballot = &promise;
	m.round = round;
	m.record = &name;
	zd_emit(core, c, ZD_MSG_DISCARDED, stream, &m.base);
}

static void wait_for_discard(struct zd_conn *c, uint64_t round, struct zd_ballot record)
{
	c->hold = ZD_HOLD_STORE;
	c->wait = ZD_WAIT_DISCARD;
	c->wait_stream = c->reader.header.stream;
	c->wait_round = round;
	c->wait_record = record;
}

void zd_round_discard(struct zd_core *core, struct zd_conn *c, const Zd__Pb__Discard *m)
{
	struct zd_job *j = zd_job_of(core, c);
	uint64_t stream = c->reader.header.stream;
	struct zd_ballot record = ballot_of(m->record);

	if (!zd_round_serves(core, c, stream, ballot_of(m->ballot), ZD_NONE))
		return;
	if (m->round <= j->decided) {
		zd_emit_applied(core, c, stream);
		return;
	}
	if (j->discarding) {
		wait_for_discard(c, m->round, record);
		return;
	}
	if (j->state != ZD_ROUND_PREPARED || j->record.round != m->round || zd_ballot_cmp(j->record.ballot, record) != 0) {
		discarded(core, c, stream, m->round, record);
		return;
	}
	if (zd_ballot_cmp(record, j->promise) >= 0) {
		zd_emit_error(core, c, stream, ZD_ERR_OUT_OF_ORDER, (struct zd_about){ZD_NONE, c->rank},
			      "DISCARD of round %llu prepared by ballot (%llu, %u), which is the promise itself: only records of older ballots may go",
			      (unsigned long long)m->round, (unsigned long long)record.epoch, record.attempt);
		return;
	}
	j->discarding = 1;
	j->discard_ballot = record;
	wait_for_discard(c, m->round, record);
	begin_collection(core, j);
	zd_round_move(core, j, ZD_ROUND_EMPTY);
	zd_emit_store(core, j, ZD_STORE_DISCARD);
}

void zd_round_discarded(struct zd_core *core, struct zd_job *j)
{
	j->discarding = 0;
	for (uint32_t i = j->conns; i != ZD_NONE; i = core->conn[i].job_next) {
		struct zd_conn *c = &core->conn[i];

		if (c->wait != ZD_WAIT_DISCARD)
			continue;
		c->wait = ZD_WAIT_NO;
		c->hold = ZD_HOLD_BUDGET;
		zd_core_queue(core, c);
		discarded(core, c, c->wait_stream, c->wait_round, c->wait_record);
	}
}
