/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's side of the agreement: join, resolve, resume, decide (docs/protocol.md, "A step, exactly once").  The states of a lane as this
 * worker sees it are drawn in state.h.  Answers to an older ballot are dropped everywhere.
 */
#include "client/state.h"

#include <stdio.h>
#include <string.h>

static void try_decide(struct zd_session *s);
static void resolve(struct zd_session *s);

void zd_cagree_pb(struct zd_ballot b, Zd__Pb__Ballot *out)
{
	zd__pb__ballot__init(out);
	out->epoch = b.epoch;
	out->attempt = b.attempt;
}

static struct zd_ballot from_pb(const Zd__Pb__Ballot *b)
{
	return (struct zd_ballot){.epoch = b->epoch, .attempt = b->attempt};
}

static int is_own(const struct zd_session *s, const Zd__Pb__Ballot *b)
{
	return zd_ballot_cmp(from_pb(b), s->ballot) == 0;
}

static int all_in(const struct zd_session *s, enum zd_lane_state ls)
{
	for (uint32_t i = 0; i < s->lane_count; i++)
		if (s->lanes[i]->ls != ls)
			return 0;
	return 1;
}

/* ---------------------------------------------------------------- the end of a round */

/* The first non-finite element over all lanes, by (unit, element). */
static void fill_result(struct zd_session *s, const struct zd_decision *d)
{
	struct zerod_step_result *res = &s->result;
	const struct zd_record *worst = NULL;

	*res = (struct zerod_step_result){.round = d->round, .step = d->step, .norm = d->norm, .scale = d->scale, .skipped = !d->applied};
	for (uint32_t i = 0; i < s->lane_count; i++) {
		const struct zd_record *r = &s->lanes[i]->info.record;

		if (r->round != d->round)
			continue;
		if (zd_record_worse(r, worst))
			worst = r;
		res->nonfinite += r->nonfinite;
	}
	if (worst) {
		res->bad_unit = worst->bad_unit;
		res->bad_rank = worst->bad_rank;
		res->bad_element = worst->bad_element;
	}
}

/* A STEP that was committing before the round began: done, lost, or still to be committed. */
static void settle_step(struct zd_session *s)
{
	if (!s->committing)
		return;
	if (s->commit_round <= s->decided) {
		s->committing = s->step_lost = 0;
		zd_cgather_turn(s);
		if (s->step_req)
			zd_csession_end(s, s->step_req, ZEROD_OK, "%s", "");
		else
			s->unclaimed = 1;
	} else if (s->step_lost) {
		s->committing = s->step_lost = 0;
		s->redo_owed = 1;
		if (s->step_req)
			zd_csession_end(s, s->step_req, ZEROD_REDO, "contributions to round %llu were lost; compute the step again",
				       (unsigned long long)s->commit_round);
	}
}

static void start_round(struct zd_session *s, uint64_t decided, uint64_t step)
{
	s->phase = ZD_PH_ROUND;
	s->round = decided + 1;
	s->decided = decided;
	for (uint32_t i = 0; i < s->lane_count; i++)
		s->lanes[i]->ls = ZD_LS_PUSH;
	zd_cpush_round(s);
	if (s->step != step || !s->connected) {
		s->step = step;
		zd_cgather_version(s);
	}
	s->connected = 1;
	if (s->connect_req)
		zd_csession_end(s, s->connect_req, ZEROD_OK, "%s", "");
	settle_step(s);
	for (uint32_t i = 0; i < s->lane_count; i++)
		zd_cagree_counted(s, s->lanes[i]);
}

/* Every lane has decided the round: they must have decided it alike. */
static void finish_round(struct zd_session *s)
{
	const struct zd_decision *d = &s->lanes[0]->info.decision;

	for (uint32_t i = 1; i < s->lane_count; i++) {
		if (!zd_decision_equal(d, &s->lanes[i]->info.decision)) {
			zd_csession_fail(s, ZEROD_ERR_PROTOCOL, "lanes 0 and %u decided round %llu differently", i,
					(unsigned long long)d->round);
			return;
		}
	}
	if (!s->committing || s->open_pushes > 0) { /* COMMIT follows when everything is counted */
		zd_csession_fail(s, ZEROD_ERR_PROTOCOL, "round %llu was decided without rank %u", (unsigned long long)d->round, s->config.rank);
		return;
	}
	fill_result(s, d);
	for (uint32_t u = 0; u < s->unit_count; u++)
		s->units[u].next_micro = 0;
	s->micro_batches = 0;
	start_round(s, d->round, d->step);
}

static void owe_apply(struct zd_link *l, enum zd_lane_state ls, const struct zd_decision *d)
{
	l->apply = *d;
	l->ls = ls;
	l->todo |= ZD_TODO_APPLY;
}

/* PREPARED from all lanes with one name is the decision; where one lane has decided already, that is. */
static void try_decide(struct zd_session *s)
{
	const struct zd_link *decided = NULL;
	struct zd_decision d;
	int rc;

	for (uint32_t i = 0; i < s->lane_count; i++) {
		const struct zd_link *l = s->lanes[i];

		if (l->ls == ZD_LS_DONE)
			decided = l;
		else if (l->ls != ZD_LS_READY && l->ls != ZD_LS_APPLY)
			return;
	}
	if (all_in(s, ZD_LS_DONE)) {
		finish_round(s);
		return;
	}
	if (decided) {
		d = decided->info.decision;
	} else {
		char text[256] = "";
		struct zd_record *records = zd_csession_alloc(s, s->lane_count * sizeof(*records));

		if (!records) {
			zd_csession_fail(s, ZEROD_ERR_MEMORY, "no memory for the records of %u lanes", s->lane_count);
			return;
		}
		for (uint32_t i = 0; i < s->lane_count; i++)
			records[i] = s->lanes[i]->info.record;
		rc = zd_decide(records, s->lane_count, s->step, &d, text, sizeof(text));
		zd_csession_release(s, records);
		if (rc < 0) {
			zd_csession_fail(s, ZEROD_ERR_PROTOCOL, "round %llu cannot be decided: %s", (unsigned long long)s->round, text);
			return;
		}
	}
	for (uint32_t i = 0; i < s->lane_count; i++)
		if (s->lanes[i]->ls == ZD_LS_READY)
			owe_apply(s->lanes[i], ZD_LS_APPLY, &d);
}

/* ---------------------------------------------------------------- resolve: what an older ballot left, with JOINED from all lanes */

/* Lanes that have not decided `most` although another has: they hold its record, and are told.  1: some are, 0: none, -1: failed. */
static int finish_laggards(struct zd_session *s, uint64_t most)
{
	const struct zd_link *ahead = NULL;
	int busy = 0;

	for (uint32_t i = 0; i < s->lane_count; i++)
		if (s->lanes[i]->info.decided == most)
			ahead = s->lanes[i];
	for (uint32_t i = 0; i < s->lane_count; i++) {
		struct zd_link *l = s->lanes[i];
		const struct zd_decision *d = &ahead->info.decision;
		char name[320];

		if (l->info.decided == most)
			continue;
		if (!ahead->info.has_decision || !l->info.has_record || l->info.record.round != most ||
		    zd_ballot_cmp(l->info.record.ballot, d->ballot) != 0) {
			zd_clink_name(s, l, name, sizeof(name));
			zd_csession_lost(s, "%s stands at round %llu and has no prepared round %llu, which lane %u has decided: its state is lost", name,
					 (unsigned long long)l->info.decided, (unsigned long long)most, ahead->index);
			return -1;
		}
		owe_apply(l, ZD_LS_FINISH, d);
		busy = 1;
	}
	return busy;
}

/* All lanes hold one prepared round: 1 and its decision, 0: they do not, -1: failed. */
static int prepared_alike(struct zd_session *s, uint64_t round, struct zd_decision *d)
{
	const struct zd_record *first = &s->lanes[0]->info.record;
	struct zd_record *records;
	char text[256] = "";
	int rc;

	for (uint32_t i = 0; i < s->lane_count; i++) {
		const struct zd_lane_info *info = &s->lanes[i]->info;

		if (!info->has_record || info->record.round != round || zd_ballot_cmp(info->record.ballot, first->ballot) != 0)
			return 0;
	}
	records = zd_csession_alloc(s, s->lane_count * sizeof(*records));
	if (!records) {
		zd_csession_fail(s, ZEROD_ERR_MEMORY, "no memory for the records of %u lanes", s->lane_count);
		return -1;
	}
	for (uint32_t i = 0; i < s->lane_count; i++)
		records[i] = s->lanes[i]->info.record;
	rc = zd_decide(records, s->lane_count, s->lanes[0]->info.step, d, text, sizeof(text));
	zd_csession_release(s, records);
	if (rc < 0) {
		zd_csession_fail(s, ZEROD_ERR_PROTOCOL, "prepared round %llu cannot be decided: %s", (unsigned long long)round, text);
		return -1;
	}
	return 1;
}

/* All lanes stand at one round; they must have come there alike. */
static int agree_so_far(struct zd_session *s, uint64_t most)
{
	const struct zd_lane_info *a = &s->lanes[0]->info;

	if (s->connected && most > s->decided && !s->committing) {
		zd_csession_fail(s, ZEROD_ERR_PROTOCOL, "round %llu was decided without rank %u", (unsigned long long)most, s->config.rank);
		return 0;
	}
	for (uint32_t i = 1; i < s->lane_count; i++) {
		const struct zd_lane_info *b = &s->lanes[i]->info;

		if (a->step != b->step || a->has_decision != b->has_decision ||
		    (a->has_decision && !zd_decision_equal(&a->decision, &b->decision))) {
			zd_csession_lost(s, "lanes 0 and %u decided round %llu differently (steps %llu and %llu): they are not of one job's life", i,
					 (unsigned long long)most, (unsigned long long)a->step, (unsigned long long)b->step);
			return 0;
		}
	}
	return 1;
}

static void resolve(struct zd_session *s)
{
	uint64_t most = 0;
	struct zd_decision d;
	int rc, busy = 0;

	s->phase = ZD_PH_RESOLVE;
	for (uint32_t i = 0; i < s->lane_count; i++)
		if (s->lanes[i]->info.decided > most)
			most = s->lanes[i]->info.decided;
	if (finish_laggards(s, most) != 0 || !agree_so_far(s, most))
		return;
	rc = prepared_alike(s, most + 1, &d);
	if (rc < 0)
		return;
	if (most + (uint64_t)rc < s->decided) { /* a decision is not durable by itself, but what it was taken on is */
		zd_csession_lost(s, "the lanes went back from round %llu to %llu: their state is lost", (unsigned long long)s->decided,
				 (unsigned long long)most);
		return;
	}
	for (uint32_t i = 0; i < s->lane_count; i++) {
		struct zd_link *l = s->lanes[i];

		if (rc > 0) {
			owe_apply(l, ZD_LS_FINISH, &d);
		} else if (l->info.has_record) {
			l->ls = ZD_LS_FINISH;
			l->todo |= ZD_TODO_DISCARD;
			busy = 1;
		}
	}
	if (rc > 0 || busy || (!s->connected && zd_cpush_finish_seal(s)))
		return;
	if (s->lanes[0]->info.has_decision)
		fill_result(s, &s->lanes[0]->info.decision);
	start_round(s, most, s->lanes[0]->info.step);
}

static void lane_resolved(struct zd_session *s, struct zd_link *l)
{
	l->ls = ZD_LS_JOINED;
	if (all_in(s, ZD_LS_JOINED))
		resolve(s);
}

/* ---------------------------------------------------------------- ballots */

static void begin_ballot(struct zd_session *s, uint32_t attempt)
{
	s->ballot.attempt = attempt;
	s->phase = ZD_PH_JOIN;
	for (uint32_t i = 0; i < s->lane_count; i++) {
		struct zd_link *l = s->lanes[i];

		l->todo &= ~(uint32_t)ZD_TODO_ROUND;
		l->ls = ZD_LS_NONE;
		if (l->state == ZD_LINK_OPEN) {
			l->ls = ZD_LS_JOIN;
			l->todo |= ZD_TODO_JOIN;
		}
	}
}

/* Outside a round nothing was sent in this ballot, so nothing is lost with it. */
void zd_cagree_redo(struct zd_session *s, uint32_t attempt)
{
	if (s->phase == ZD_PH_ROUND && s->micro_batches > 0) {
		s->stats.redos++;
		if (s->committing)
			s->step_lost = 1;
		else
			s->redo_owed = 1;
		zd_cpush_abandon(s);
		zd_cgather_restart(s);
	}
	begin_ballot(s, attempt);
}

static int note_info(struct zd_session *s, struct zd_link *l, const Zd__Pb__Joined *m)
{
	struct zd_lane_info *info = &l->info;

	info->decided = m->decided;
	info->step = m->step;
	info->sealed = m->sealed != 0;
	info->has_record = m->prepared != NULL;
	info->has_decision = m->decision != NULL;
	if (m->decision)
		zd_decision_from_pb(&info->decision, m->decision);
	if ((m->prepared && zd_record_from_pb(&info->record, m->prepared) < 0) || (m->decided > 0) != (m->decision != NULL) ||
	    (m->n_counted != s->unit_count && m->n_counted != 0)) {
		zd_csession_fail(s, ZEROD_ERR_PROTOCOL, "lane %u sent a JOINED that contradicts itself (decided %llu, %zu counts for %u units)",
				l->index, (unsigned long long)m->decided, m->n_counted, s->unit_count);
		return -1;
	}
	return 0;
}

/* A lane is back in the middle of a round: go on from what it shows, or compute again. */
static void resume(struct zd_session *s, struct zd_link *l, const Zd__Pb__Joined *m)
{
	const struct zd_lane_info *info = &l->info;

	if (info->decided + 1 < s->round) { /* it lost a decision that was not durable: resolve again */
		zd_cagree_redo(s, s->ballot.attempt + 1);
		return;
	}
	if (info->decided > s->round) {
		zd_csession_fail(s, ZEROD_ERR_PROTOCOL, "lane %u has decided round %llu without rank %u", l->index,
				(unsigned long long)info->decided, s->config.rank);
		return;
	}
	if (info->decided == s->round) {
		l->ls = ZD_LS_DONE;
		try_decide(s);
		return;
	}
	if (info->has_record) {
		if (info->record.round != s->round || zd_ballot_cmp(info->record.ballot, s->ballot) != 0) { /* a discarded one came back */
			zd_cagree_redo(s, s->ballot.attempt + 1);
			return;
		}
		l->ls = ZD_LS_READY;
		try_decide(s);
		return;
	}
	for (uint32_t u = 0; u < s->unit_count; u++) {
		if (!zd_cpush_count(s, l, u, m->n_counted ? m->counted[u] : 0)) {
			zd_cagree_redo(s, s->ballot.attempt + 1);
			return;
		}
		if (s->failed)
			return;
	}
	zd_cpush_resend(s, l);
	l->ls = ZD_LS_PUSH;
	zd_cagree_counted(s, l);
}

void zd_cagree_joined(struct zd_session *s, struct zd_link *l, const Zd__Pb__Joined *m)
{
	if (!is_own(s, m->ballot) || l->ls != ZD_LS_JOIN || l->todo & ZD_TODO_JOIN)
		return;
	if (note_info(s, l, m) < 0)
		return;
	l->credit = m->credit;
	l->absent = l->behind = 0; /* of another attempt, or connection */
	zd_cpush_joined(s, l);
	if (s->phase == ZD_PH_ROUND)
		resume(s, l, m);
	else
		lane_resolved(s, l);
}

static void reader_open(struct zd_session *s, struct zd_link *l)
{
	l->ls = ZD_LS_JOINED;
	if (!all_in(s, ZD_LS_JOINED) || s->connected)
		return;
	for (uint32_t i = 0; i < s->lane_count; i++) {
		const struct zd_lane_info *info = &s->lanes[i]->info;

		if (info->decided > s->decided)
			s->decided = info->decided;
		if (info->step > s->step)
			s->step = info->step;
	}
	s->phase = ZD_PH_READ;
	s->connected = 1;
	if (s->connect_req)
		zd_csession_end(s, s->connect_req, ZEROD_OK, "%s", "");
}

void zd_cagree_open(struct zd_session *s, struct zd_link *l)
{
	if (s->config.world == 0) {
		reader_open(s, l);
		return;
	}
	l->ls = ZD_LS_JOIN;
	l->todo |= ZD_TODO_JOIN;
	if (s->phase == ZD_PH_RESOLVE)
		s->phase = ZD_PH_JOIN;
}

void zd_cagree_down(struct zd_session *s, struct zd_link *l)
{
	if (s->config.world == 0 && s->connected)
		return;
	l->ls = ZD_LS_NONE;
	if (s->phase == ZD_PH_RESOLVE)
		s->phase = ZD_PH_JOIN;
}

/* ---------------------------------------------------------------- answers */

void zd_cagree_prepared(struct zd_session *s, struct zd_link *l, const Zd__Pb__Prepared *m)
{
	struct zd_record record;

	if (!is_own(s, m->ballot) || s->phase != ZD_PH_ROUND || l->ls != ZD_LS_COMMIT || m->record->round != s->round)
		return;
	if (zd_record_from_pb(&record, m->record) < 0) {
		zd_csession_fail(s, ZEROD_ERR_PROTOCOL, "lane %u sent a record that cannot be read", l->index);
		return;
	}
	if (zd_ballot_cmp(record.ballot, s->ballot) != 0) {
		zd_cagree_redo(s, s->ballot.attempt + 1);
		return;
	}
	l->info.record = record;
	l->info.has_record = 1;
	l->absent = l->behind = 0; /* all ranks have committed */
	l->ls = ZD_LS_READY;
	try_decide(s);
}

static void note_decision(struct zd_link *l, const struct zd_decision *d)
{
	l->info.decision = *d;
	l->info.has_decision = 1;
	l->info.decided = d->round;
	l->info.step = d->step;
	l->info.has_record = 0;
	l->info.sealed = 1; /* before that there is no round */
}

void zd_cagree_applied(struct zd_session *s, struct zd_link *l, const Zd__Pb__Applied *m)
{
	struct zd_decision d;

	if (!is_own(s, m->ballot))
		return;
	zd_decision_from_pb(&d, m->decision);
	if (s->phase != ZD_PH_ROUND) {
		if (l->ls != ZD_LS_FINISH || l->todo & ZD_TODO_APPLY || d.round != l->apply.round)
			return;
		note_decision(l, &d);
		lane_resolved(s, l);
		return;
	}
	if (d.round != s->round || l->ls == ZD_LS_NONE || l->ls == ZD_LS_JOIN)
		return;
	note_decision(l, &d);
	l->ls = ZD_LS_DONE;
	l->todo &= ~(uint32_t)ZD_TODO_ROUND;
	try_decide(s);
}

void zd_cagree_discarded(struct zd_session *s, struct zd_link *l, const Zd__Pb__Discarded *m)
{
	if (!is_own(s, m->ballot) || s->phase == ZD_PH_ROUND || l->ls != ZD_LS_FINISH || l->todo & ZD_TODO_DISCARD ||
	    m->round != l->info.record.round)
		return;
	l->info.has_record = 0;
	lane_resolved(s, l);
}

void zd_cagree_seal_answered(struct zd_session *s, struct zd_link *l)
{
	if (s->phase != ZD_PH_ROUND && l->ls == ZD_LS_FINISH && !l->info.has_record) /* with a record, that is what is being finished */
		lane_resolved(s, l);
}

static int can_redo(int code)
{
	return code == ZD_ERR_BALLOT_LOW || code == ZD_ERR_NOT_JOINED || code == ZD_ERR_LOST;
}

void zd_cagree_aborted(struct zd_session *s, struct zd_link *l, const Zd__Pb__Aborted *m)
{
	struct zd_ballot promise = from_pb(m->ballot);
	int cmp = zd_ballot_cmp(promise, s->ballot), code = (int)m->code;
	char name[320];

	zd_clink_name(s, l, name, sizeof(name));
	if (promise.epoch > s->ballot.epoch) {
		zd_csession_fail(s, ZEROD_ERR_STALE, "epoch %llu has begun (%s says so) and this worker belongs to epoch %llu: it must stop; to start again, give all ranks a higher epoch than both (zerod_options.epoch, zerod-lm --epoch)",
				(unsigned long long)promise.epoch, name, (unsigned long long)s->ballot.epoch);
		return;
	}
	if (cmp < 0)
		return;
	if (cmp > 0) {
		zd_cagree_redo(s, promise.attempt);
		return;
	}
	if (!is_own(s, m->ended))
		return;
	if (can_redo(code))
		zd_cagree_redo(s, s->ballot.attempt + 1);
	else
		zd_csession_fail(s, ZEROD_ERR_ABORTED, "%s ended the round: %s: %s", name, zd_err_text(code), m->text);
}

/* ---------------------------------------------------------------- the step */

void zd_cagree_counted(struct zd_session *s, struct zd_link *l)
{
	if (s->phase != ZD_PH_ROUND || l->ls != ZD_LS_PUSH || !s->committing || s->commit_round != s->round || l->open_pushes > 0)
		return;
	l->ls = ZD_LS_COMMIT;
	l->todo |= ZD_TODO_COMMIT;
	l->behind = 0; /* as of while this rank computed: others have gone on since */
}

/* All units must have been pushed for every micro-batch: the lanes would say so too, but only some ranks and minutes later. */
static int complete(struct zd_session *s, struct zd_req *r, uint32_t micro_batches)
{
	for (uint32_t u = 0; u < s->unit_count; u++) {
		const struct zd_unit_spec *unit = &s->spec.units[u];

		if (unit->frozen || s->units[u].next_micro == micro_batches)
			continue;
		zd_csession_end(s, r, ZEROD_ERR_STATE, "unit \"%s\" was pushed for %u of %u micro-batches%s%s", unit->name,
			       s->units[u].next_micro, micro_batches, s->push_status ? "; a push failed: " : "",
			       s->push_status ? s->push_text : "");
		return 0;
	}
	return 1;
}

void zd_cagree_step(struct zd_session *s, struct zd_req *r, const struct zd_session_event *ev)
{
	const struct zd_hyper *h = &ev->u.step.hyper;
	double found = 0;
	const char *wrong = zd_hyper_check(h, &found);
	uint32_t micro_batches = ev->u.step.micro_batches;

	if (s->redo_owed) {
		zd_csession_end(s, r, ZEROD_REDO, "contributions to round %llu were lost; compute the step again", (unsigned long long)s->decided + 1);
	} else if (s->step_req) {
		zd_csession_end(s, r, ZEROD_ERR_STATE, "a step is under way already");
	} else if (s->unclaimed && s->micro_batches == 0) {
		s->unclaimed = 0;
		zd_csession_end(s, r, ZEROD_OK, "%s", "");
	} else if (s->committing) {
		if (zd_hyper_differs(h, &s->hyper) || micro_batches != s->commit_micro)
			zd_csession_end(s, r, ZEROD_ERR_STATE, "round %llu was committed with other parameters: repeat the call with those",
				       (unsigned long long)s->commit_round);
		else
			s->step_req = r;
	} else if (wrong) {
		zd_csession_end(s, r, ZEROD_ERR_ARGUMENT, "%s, found %g", wrong, found);
	} else if (micro_batches < 1 || micro_batches > ZD_MICRO_MAX) {
		zd_csession_end(s, r, ZEROD_ERR_ARGUMENT, "micro_batches must be 1 to %u, found %u", ZD_MICRO_MAX, micro_batches);
	} else if (complete(s, r, micro_batches)) {
		s->step_req = r;
		s->committing = 1;
		s->passed = 0;
		s->commit_round = s->decided + 1;
		s->hyper = *h;
		s->commit_micro = micro_batches;
		for (uint32_t i = 0; i < s->lane_count; i++)
			zd_cagree_counted(s, s->lanes[i]);
	}
}

/* ---------------------------------------------------------------- what is waited for */

static void explain_lane(const struct zd_session *s, const struct zd_link *l, char *out, size_t size)
{
	char name[320], why[420];

	zd_clink_name(s, l, name, sizeof(name));
	if (l->state != ZD_LINK_OPEN) {
		zd_clink_explain(s, l, why, sizeof(why));
		snprintf(out, size, "%s", why);
		return;
	}
	zd_cwaits_explain(l, l->ls == ZD_LS_COMMIT ? ~(1ull << s->config.rank) : 0, why, sizeof(why));
	switch (l->ls) {
	case ZD_LS_JOIN:
		snprintf(out, size, "%s has not answered JOIN", name);
		return;
	case ZD_LS_PUSH:
		snprintf(out, size, "%s has not counted %u pushes of rank %u%s%s", name, l->open_pushes, s->config.rank, why[0] ? "; " : "", why);
		return;
	case ZD_LS_COMMIT:
		if (!why[0])
			snprintf(why, sizeof(why), "one has not joined, not pushed everything, or not called zerod_step");
		snprintf(out, size, "%s has not prepared round %llu: of %u ranks, %s", name, (unsigned long long)s->round, s->config.world, why);
		return;
	case ZD_LS_APPLY:
	case ZD_LS_FINISH:
		snprintf(out, size, "%s has not answered the decision", name);
		return;
	default:
		snprintf(out, size, "%s is ready", name);
	}
}

void zd_cagree_explain(const struct zd_session *s, char *out, size_t size)
{
	const struct zd_link *worst = NULL;

	for (uint32_t i = 0; i < s->link_count; i++) {
		const struct zd_link *l = s->links[i];

		if (l->state == ZD_LINK_OPEN && (l->ls == ZD_LS_JOINED || l->ls == ZD_LS_READY || l->ls == ZD_LS_DONE))
			continue;
		if (!worst || l->state < worst->state || (l->state == worst->state && l->ls < worst->ls))
			worst = l;
	}
	if (worst)
		explain_lane(s, worst, out, size);
	else
		snprintf(out, size, "every lane is ready");
}
