/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What carries payload to the lanes: PUSH and LOAD in the order they were asked for, and SEAL behind the loads.
 *
 * A link walks the list of transfers with a cursor of its own.  For each unit it remembers how many extents it has sent (pushed) and how many the
 * lane has counted, over all micro-batches of the round; a push of micro-batch m is acknowledged there when counted reaches (m + 1) * extents.
 * A connection that comes back begins again at what JOINED shows.
 *
 * Nothing is pushed before the job is known to be sealed.  Another worker may have sealed it, and its trainer told this one, before this session
 * knows: so pushes wait while every lane that is not known to be sealed is asked by PING, and are refused by a PONG that answers a PING sent
 * after they were asked for.
 */
#include "client/state.h"

#include <stdio.h>
#include <string.h>

#include "proto/assert.h"

static struct zd_piece piece_of(const struct zd_session *s, const struct zd_link *l, uint32_t unit)
{
	return s->pieces[(size_t)unit * s->lane_count + l->index];
}

static uint32_t extents_of(const struct zd_session *s, const struct zd_link *l, uint32_t unit)
{
	return zd_piece_extents(piece_of(s, l, unit), s->spec.extent_elems);
}

static uint32_t grains_of(const struct zd_session *s, const struct zd_link *l, uint32_t unit)
{
	return zd_piece_extents(piece_of(s, l, unit), ZD_GRAIN_ELEMS);
}

/* Contributions that have a place of their own on the lane need no receive window (docs/protocol.md, "Credits"). */
static int needs_credit(const struct zd_session *s)
{
	return (uint64_t)s->config.world * s->micro_batches > 2 || s->spec.grad_codec != ZD_CODEC_BF16;
}

/* ---------------------------------------------------------------- the list */

/* Nothing of it is for the lane: it has no piece, or has counted the push when it was asked for before and ran out of time. */
static int is_done_on(const struct zd_session *s, const struct zd_link *l, const struct zd_req *r)
{
	uint32_t extents = extents_of(s, l, r->unit);

	return extents == 0 || (r->kind == ZD_SE_REQ_PUSH && l->counted[r->unit] >= (r->micro + 1ull) * extents);
}

static void append(struct zd_session *s, struct zd_req *r)
{
	r->moving = 1;
	r->before = s->xfer_last;
	if (s->xfer_last)
		s->xfer_last->after = r;
	else
		s->xfer_first = r;
	s->xfer_last = r;
	r->lanes_left = 0;
	for (uint32_t i = 0; i < s->lane_count; i++) {
		struct zd_link *l = s->lanes[i];

		if (is_done_on(s, l, r))
			continue;
		r->lanes_left++;
		if (!l->cursor)
			l->cursor = r;
		if (r->kind == ZD_SE_REQ_PUSH)
			l->open_pushes++;
	}
}

static void unlink_xfer(struct zd_session *s, struct zd_req *r)
{
	for (uint32_t i = 0; i < s->lane_count; i++)
		if (s->lanes[i]->cursor == r)
			s->lanes[i]->cursor = r->after;
	if (r->before)
		r->before->after = r->after;
	else
		s->xfer_first = r->after;
	if (r->after)
		r->after->before = r->before;
	else
		s->xfer_last = r->before;
	r->moving = 0;
}

void zd_cpush_forget(struct zd_session *s, struct zd_req *r)
{
	struct zd_req **at;

	if (!r->moving)
		return;
	unlink_xfer(s, r);
	if (r->kind == ZD_SE_REQ_LOAD) {
		s->units[r->unit].load = NULL;
		s->open_loads--;
		return;
	}
	for (at = &s->units[r->unit].pushes; *at != r; at = &(*at)->chain)
		;
	*at = r->chain;
	s->open_pushes--;
	for (uint32_t i = 0; i < s->lane_count; i++)
		if (!is_done_on(s, s->lanes[i], r))
			s->lanes[i]->open_pushes--;
}

/* Memory that a connection still sends from is only free when that connection is gone. */
static void close_lenders(struct zd_session *s, const struct zd_req *r)
{
	for (uint32_t i = 0; i < s->lane_count; i++) {
		struct zd_link *l = s->lanes[i];

		for (uint32_t k = 0; k < l->lend_count; k++) {
			if (l->lends[(l->lend_head + k) % ZD_LENDS_MAX].req == r) {
				zd_clink_lose(s, l, "closed to give back memory of an operation that timed out");
				break;
			}
		}
	}
}

/* ---------------------------------------------------------------- requests */

/* The first unit that is missing in a micro-batch before this one, or NULL.  The lanes insist on that order: receive windows would deadlock. */
static const struct zd_unit_spec *unit_behind(const struct zd_session *s, uint32_t micro)
{
	for (uint32_t u = 0; micro > 0 && u < s->unit_count; u++)
		if (!s->spec.units[u].frozen && s->units[u].next_micro < micro)
			return &s->spec.units[u];
	return NULL;
}

static int push_wrong(struct zd_session *s, struct zd_req *r, uint32_t micro_batches)
{
	const struct zd_unit_spec *unit = &s->spec.units[r->unit];
	uint32_t next = s->units[r->unit].next_micro;
	const struct zd_unit_spec *behind = unit_behind(s, r->micro);

	if (unit->frozen)
		zd_csession_end(s, r, ZEROD_ERR_ARGUMENT, "unit \"%s\" is frozen: it takes no gradient", unit->name);
	else if (s->committing)
		zd_csession_end(s, r, ZEROD_ERR_STATE, "push of unit \"%s\" while zerod_step is under way", unit->name);
	else if (micro_batches < 1 || micro_batches > ZD_MICRO_MAX)
		zd_csession_end(s, r, ZEROD_ERR_ARGUMENT, "micro_batches is %u; 1 to %u are possible", micro_batches, ZD_MICRO_MAX);
	else if (s->micro_batches != 0 && s->micro_batches != micro_batches)
		zd_csession_end(s, r, ZEROD_ERR_ARGUMENT, "micro_batches is %u and was %u in earlier pushes of this step", micro_batches,
			       s->micro_batches);
	else if (r->micro != next || r->micro >= micro_batches)
		zd_csession_end(s, r, ZEROD_ERR_ARGUMENT, "micro-batch %u of unit \"%s\": expected is %u of %u", r->micro, unit->name, next,
			       micro_batches);
	else if (behind)
		zd_csession_end(s, r, ZEROD_ERR_ARGUMENT,
				"micro-batch %u of unit \"%s\": unit \"%s\" was not pushed in micro-batch %u; push all units of a micro-batch before the next one",
				r->micro, unit->name, behind->name, r->micro - 1);
	else
		return 0;
	return 1;
}

/* A push has ended without being counted: those of later micro-batches end with it, for they must not overtake it when it is made again. */
static void end_later(struct zd_session *s, uint32_t micro, int status)
{
	struct zd_req *next;

	for (uint32_t u = 0; u < s->unit_count; u++) {
		struct zd_req *r = s->units[u].pushes;

		while (r && r->micro <= micro)
			r = r->chain;
		if (r)
			s->units[u].next_micro = r->micro;
		for (; r; r = next) {
			next = r->chain;
			close_lenders(s, r);
			zd_csession_end(s, r, status, "push of unit \"%s\", micro-batch %u: one of micro-batch %u has failed; push again from there",
					s->spec.units[u].name, r->micro, micro);
		}
	}
}

void zd_cpush_request(struct zd_session *s, struct zd_req *r, const struct zd_session_event *ev)
{
	struct zd_unit *unit = &s->units[r->unit];
	struct zd_req **at = &unit->pushes;

	r->micro = ev->u.push.micro;
	r->data = ev->u.push.data;
	r->tells = ev->u.push.tells;
	if (s->redo_owed) {
		zd_csession_end(s, r, ZEROD_REDO, "contributions to round %llu were lost; compute the step again", (unsigned long long)s->decided + 1);
		return;
	}
	if (push_wrong(s, r, ev->u.push.micro_batches))
		return;
	s->micro_batches = ev->u.push.micro_batches;
	s->unclaimed = 0;
	r->number = ++s->push_counter;
	unit->next_micro++;
	while (*at)
		at = &(*at)->chain;
	*at = r;
	s->open_pushes++;
	append(s, r);
	if (r->lanes_left == 0)
		zd_csession_end(s, r, ZEROD_OK, "%s", "");
}

void zd_cpush_load(struct zd_session *s, struct zd_req *r, const struct zd_session_event *ev)
{
	const struct zd_unit_spec *unit = &s->spec.units[r->unit];

	r->codec = ev->u.load.codec;
	r->data = ev->u.load.data;
	if (r->codec >= ZD_CODEC_COUNT) {
		zd_csession_end(s, r, ZEROD_ERR_ARGUMENT, "codec %u does not exist: 0 bf16, 1 fp16, 2 fp32", r->codec);
		return;
	}
	if (s->spec.optimizer == ZD_OPT_NONE) {
		zd_csession_end(s, r, ZEROD_ERR_STATE, "a job without optimizer keeps no weights: there is nothing to load");
		return;
	}
	if (s->units[r->unit].load || s->seal_req) {
		zd_csession_end(s, r, ZEROD_ERR_STATE, "unit \"%s\" is being %s already", unit->name, s->seal_req ? "sealed" : "loaded");
		return;
	}
	r->stream = ZD_STREAM(ZD_STREAM_LOAD, ++s->load_counter * ZD_UNITS_MAX + r->unit);
	s->units[r->unit].load = r;
	s->open_loads++;
	append(s, r);
	for (uint32_t i = 0; i < s->lane_count; i++) {
		struct zd_link *l = s->lanes[i];

		l->loaded[r->unit] = l->load_sent[r->unit] = 0;
		if (s->sealed && piece_of(s, l, r->unit).count > 0) { /* another launch loaded it; a lane that others are behind compares */
			l->loaded[r->unit] = l->load_sent[r->unit] = grains_of(s, l, r->unit);
			r->lanes_left--;
		}
	}
	if (r->lanes_left == 0)
		zd_csession_end(s, r, ZEROD_OK, "%s", "");
}

void zd_cpush_seal(struct zd_session *s, struct zd_req *r)
{
	if (s->seal_req) {
		zd_csession_end(s, r, ZEROD_ERR_STATE, "sealing is under way already");
		return;
	}
	s->seal_req = r;
	for (uint32_t i = 0; i < s->lane_count; i++)
		s->lanes[i]->seal_sent = 0;
}

static int holds_weights(const struct zd_session *s, const struct zd_link *l)
{
	for (uint32_t u = 0; u < s->unit_count; u++)
		if (piece_of(s, l, u).count > 0)
			return 1;
	return 0; /* such a lane is born sealed */
}

int zd_cpush_finish_seal(struct zd_session *s)
{
	int begun = 0, asked = 0;

	for (uint32_t i = 0; i < s->lane_count && !begun; i++)
		begun = s->lanes[i]->info.sealed && holds_weights(s, s->lanes[i]);
	for (uint32_t i = 0; i < s->lane_count && begun; i++) {
		struct zd_link *l = s->lanes[i];

		if (l->info.sealed || l->seal_sent) /* sent, and the lane was not: it has lost what was loaded */
			continue;
		l->seal_sent = 1;
		l->ls = ZD_LS_FINISH;
		l->todo |= ZD_TODO_SEAL;
		asked = 1;
	}
	return asked;
}

void zd_cpush_flush(struct zd_session *s, struct zd_req *r)
{
	if (s->flush_req)
		zd_csession_end(s, r, ZEROD_ERR_STATE, "a flush is under way already");
	else
		s->flush_req = r;
}

static int pushes_end(const struct zd_session *s)
{
	if (s->open_pushes > 0)
		return 0;
	for (const struct zd_req *r = s->ending.first; r; r = r->next)
		if (r->kind == ZD_SE_REQ_PUSH)
			return 0;
	return 1;
}

/* A SEAL of this session's own is waited for. */
static void ask_sealed(struct zd_session *s, struct zd_link *l)
{
	if (s->open_pushes == 0 || s->seal_req || l->info.sealed || l->state != ZD_LINK_OPEN || l->ls != ZD_LS_PUSH || l->asked == s->push_counter)
		return;
	l->asked = s->push_counter;
	l->todo |= ZD_TODO_PING;
}

void zd_cpush_settle(struct zd_session *s)
{
	uint8_t sealed = 1;

	if (s->flush_req && pushes_end(s)) {
		if (s->redo_owed)
			zd_csession_end(s, s->flush_req, ZEROD_REDO, "contributions to round %llu were lost; compute the step again",
					(unsigned long long)s->decided + 1);
		else
			zd_csession_end(s, s->flush_req, s->push_status, "%s", s->push_status ? s->push_text : "");
	}
	if (s->sealed && !s->seal_req)
		return;
	for (uint32_t i = 0; i < s->lane_count; i++) {
		struct zd_link *l = s->lanes[i];

		sealed &= l->info.sealed;
		ask_sealed(s, l);
		if (!s->seal_req || s->open_loads > 0 || l->info.sealed || l->seal_sent || l->state != ZD_LINK_OPEN)
			continue;
		l->seal_sent = 1;
		l->todo |= ZD_TODO_SEAL;
	}
	s->sealed = sealed && s->lane_count > 0;
	if (s->sealed && s->seal_req && s->open_loads == 0)
		zd_csession_end(s, s->seal_req, ZEROD_OK, "%s", "");
}

static void push_timeout_text(const struct zd_session *s, const struct zd_req *r, char *out, size_t size)
{
	const uint64_t own = 1ull << s->config.rank;

	for (uint32_t i = 0; i < s->lane_count; i++) {
		const struct zd_link *l = s->lanes[i];
		uint32_t extents = r->kind == ZD_SE_REQ_LOAD ? grains_of(s, l, r->unit) : extents_of(s, l, r->unit);
		uint64_t base = (uint64_t)r->micro * extents, done = l->loaded[r->unit];
		char name[320], missing[300], why[420] = "";

		if (r->kind == ZD_SE_REQ_PUSH)
			done = l->counted[r->unit] > base ? l->counted[r->unit] - base : 0;
		if (done >= extents)
			continue;
		zd_clink_name(s, l, name, sizeof(name));
		zd_cwaits_explain(l, r->micro ? ~own : own - 1, missing, sizeof(missing)); /* contributions are added by micro-batch, then rank */
		if (l->state != ZD_LINK_OPEN)
			zd_clink_explain(s, l, why, sizeof(why));
		else if (r->kind == ZD_SE_REQ_PUSH && !s->sealed)
			snprintf(why, sizeof(why), "whether the job is sealed is not known yet");
		else if (r->kind == ZD_SE_REQ_PUSH && needs_credit(s) && l->windows_sent >= l->credit + l->windows_freed)
			snprintf(why, sizeof(why), "its receive windows are full: %s", missing[0] ? missing : "a lower rank or micro-batch is missing");
		snprintf(out, size, "%s has %llu of %u %s%s%s", name, (unsigned long long)done, extents, r->kind == ZD_SE_REQ_LOAD ? "grains" : "extents",
			 why[0] ? "; " : "", why);
		return;
	}
	snprintf(out, size, "the last bytes are still being sent");
}

void zd_cpush_timeout(struct zd_session *s, struct zd_req *r)
{
	unsigned long long ms = (s->now - r->started) / 1000000u;
	struct zd_unit *unit;
	struct zd_req *next;
	uint32_t micro;
	char text[ZD_TEXT_BYTES - 128];

	if (r->kind == ZD_SE_REQ_FLUSH) {
		struct zd_req *oldest = s->xfer_first;

		while (oldest && oldest->kind != ZD_SE_REQ_PUSH)
			oldest = oldest->after;
		if (!oldest) {
			zd_csession_end(s, r, ZEROD_ERR_TIMEOUT, "the last bytes of pushes are still being sent after %llu ms", ms);
			return;
		}
		push_timeout_text(s, oldest, text, sizeof(text));
		zd_csession_end(s, r, ZEROD_ERR_TIMEOUT, "%u pushes of rank %u are open after %llu ms, the first of unit \"%s\": %s", s->open_pushes,
				s->config.rank, ms, s->spec.units[oldest->unit].name, text);
		return;
	}
	if (r->kind == ZD_SE_REQ_SEAL) {
		zd_csession_end(s, r, ZEROD_ERR_TIMEOUT, "not sealed after %llu ms: a lane has not answered SEAL, or loads are open", ms);
		return;
	}
	push_timeout_text(s, r, text, sizeof(text));
	unit = &s->units[r->unit];
	if (r->kind == ZD_SE_REQ_LOAD) {
		close_lenders(s, r);
		zd_csession_end(s, r, ZEROD_ERR_TIMEOUT, "unit \"%s\" not loaded after %llu ms: %s", s->spec.units[r->unit].name, ms, text);
		return;
	}
	micro = r->micro;
	unit->next_micro = micro; /* it may be pushed again, and with it those behind it */
	for (; r; r = next) {
		next = r->chain;
		close_lenders(s, r);
		zd_csession_end(s, r, ZEROD_ERR_TIMEOUT, "push of unit \"%s\", micro-batch %u, rank %u not counted after %llu ms: %s",
			       s->spec.units[r->unit].name, r->micro, s->config.rank, ms, text);
	}
	end_later(s, micro, ZEROD_ERR_TIMEOUT);
}

/* ---------------------------------------------------------------- answers */

int zd_cpush_count(struct zd_session *s, struct zd_link *l, uint32_t unit, uint64_t counted)
{
	uint64_t extents = extents_of(s, l, unit), before = l->counted[unit];
	struct zd_req *next;

	if (counted > l->pushed[unit]) {
		zd_csession_fail(s, ZEROD_ERR_PROTOCOL, "lane %u counts %llu extents of unit \"%s\" of which %llu were sent", l->index,
				(unsigned long long)counted, s->spec.units[unit].name, (unsigned long long)l->pushed[unit]);
		return 1;
	}
	if (counted < before)
		return 0;
	l->counted[unit] = counted;
	for (struct zd_req *r = s->units[unit].pushes; r; r = next) {
		uint64_t end = (r->micro + 1) * extents;

		next = r->chain;
		if (end <= before)
			continue;
		if (end > counted)
			break;
		l->open_pushes--;
		if (--r->lanes_left == 0)
			zd_csession_end(s, r, ZEROD_OK, "%s", "");
	}
	return 1;
}

void zd_cpush_pushed(struct zd_session *s, struct zd_link *l, const Zd__Pb__Pushed *m)
{
	struct zd_ballot ballot = {.epoch = m->ballot->epoch, .attempt = m->ballot->attempt};

	if (zd_ballot_cmp(ballot, s->ballot) != 0 || s->phase != ZD_PH_ROUND || l->ls == ZD_LS_NONE || l->ls == ZD_LS_JOIN)
		return;
	if (m->freed > l->windows_sent + ZD_CREDIT_MAX || m->unit >= s->unit_count) { /* it may free what an older connection sent */
		zd_csession_fail(s, ZEROD_ERR_PROTOCOL, "lane %u gives back %llu receive windows of which %llu were used (unit %u of %u)", l->index,
				(unsigned long long)m->freed, (unsigned long long)l->windows_sent, m->unit, s->unit_count);
		return;
	}
	if (m->freed > l->windows_freed)
		l->windows_freed = m->freed;
	if (m->round != s->round || l->ls != ZD_LS_PUSH)
		return;
	(void)zd_cpush_count(s, l, m->unit, m->counted); /* an older answer changes nothing */
	zd_cagree_counted(s, l);
}

static struct zd_req *load_of(const struct zd_session *s, uint64_t stream)
{
	uint32_t unit = (uint32_t)(ZD_STREAM_VALUE(stream) % ZD_UNITS_MAX);
	struct zd_req *r = unit < s->unit_count ? s->units[unit].load : NULL;

	return r && r->stream == stream ? r : NULL; /* NULL: of a LOAD that ended */
}

void zd_cpush_loaded(struct zd_session *s, struct zd_link *l, const Zd__Pb__Loaded *m, uint64_t stream)
{
	struct zd_req *r = load_of(s, stream);

	if (!r || r->unit != m->unit || l->state != ZD_LINK_OPEN)
		return;
	if (l->loaded[m->unit] >= l->load_sent[m->unit] ||
	    m->first != piece_of(s, l, m->unit).first + (uint64_t)l->loaded[m->unit] * ZD_GRAIN_ELEMS)
		return;
	if (++l->loaded[m->unit] == grains_of(s, l, m->unit) && --r->lanes_left == 0)
		zd_csession_end(s, r, ZEROD_OK, "%s", "");
}

void zd_cpush_sealed(struct zd_session *s, struct zd_link *l)
{
	l->info.sealed = 1;
	zd_cagree_seal_answered(s, l);
}

/* Ends a push and those behind it; nothing of them was sent. */
static void too_early(struct zd_session *s, const struct zd_link *l, struct zd_req *r)
{
	struct zd_req *next;
	uint32_t micro = r->micro;
	char name[320];

	zd_clink_name(s, l, name, sizeof(name));
	s->units[r->unit].next_micro = micro;
	for (; r; r = next) {
		next = r->chain;
		zd_csession_end(s, r, ZEROD_ERR_STATE,
				"push of unit \"%s\": expected was a job with initial weights, %s is not sealed: let one worker zerod_load every unit and "
				"zerod_seal, then push again",
				s->spec.units[r->unit].name, name);
	}
	end_later(s, micro, ZEROD_ERR_STATE);
}

void zd_cpush_pong(struct zd_session *s, struct zd_link *l, const Zd__Pb__Pong *m)
{
	uint8_t begun = 0;

	if (s->sealed || l->info.sealed || l->state != ZD_LINK_OPEN)
		return;
	if (m->sealed) {
		l->info.sealed = 1;
		return;
	}
	if (s->seal_req) { /* if that fails, it is asked again */
		l->asked = 0;
		return;
	}
	for (uint32_t u = 0; u < s->unit_count; u++) {
		struct zd_req *r = s->units[u].pushes;

		if (r && r->number <= m->token)
			too_early(s, l, r);
		begun |= s->units[u].next_micro > 0;
	}
	if (!begun)
		s->micro_batches = 0;
}

void zd_cpush_refused(struct zd_session *s, struct zd_link *l, uint64_t stream, int err, const char *words)
{
	struct zd_req *r = ZD_STREAM_KIND(stream) == ZD_STREAM_LOAD ? load_of(s, stream) : s->seal_req;
	char name[320];

	if (err == ZD_ERR_ALREADY_SEALED) { /* and the lane does not know any more with what; with other weights would be LOAD_DIFFERS */
		l->info.sealed = 1;
		if (r && r->kind == ZD_SE_REQ_LOAD && l->loaded[r->unit] < grains_of(s, l, r->unit)) {
			l->loaded[r->unit] = l->load_sent[r->unit] = grains_of(s, l, r->unit);
			if (--r->lanes_left == 0)
				zd_csession_end(s, r, ZEROD_OK, "%s", "");
		}
		return;
	}
	if (!r) {
		if (ZD_STREAM_KIND(stream) == ZD_STREAM_SEAL)
			zd_cagree_seal_answered(s, l);
		return;
	}
	zd_clink_name(s, l, name, sizeof(name));
	zd_csession_end(s, r, ZEROD_ERR_REFUSED, "%s: %s: %s", name, zd_err_text(err), words);
}

/* ---------------------------------------------------------------- connections and rounds */

void zd_cpush_joined(struct zd_session *s, struct zd_link *l)
{
	l->windows_sent = l->windows_freed = 0;
	l->cursor = s->xfer_first;
}

void zd_cpush_resend(struct zd_session *s, struct zd_link *l)
{
	memcpy(l->pushed, l->counted, s->unit_count * sizeof(*l->pushed));
}

void zd_cpush_rewind(struct zd_session *s, struct zd_link *l)
{
	l->seal_sent = 0;
	l->asked = 0;
	if (!l->loaded)
		return;
	memcpy(l->load_sent, l->loaded, s->unit_count * sizeof(*l->loaded));
	l->cursor = s->xfer_first;
}

void zd_cpush_round(struct zd_session *s)
{
	for (uint32_t i = 0; i < s->lane_count; i++) {
		struct zd_link *l = s->lanes[i];

		memset(l->counted, 0, s->unit_count * sizeof(*l->counted));
		memset(l->pushed, 0, s->unit_count * sizeof(*l->pushed));
		l->cursor = s->xfer_first;
	}
}

void zd_cpush_abandon(struct zd_session *s)
{
	struct zd_req *next;

	for (struct zd_req *r = s->xfer_first; r; r = next) {
		next = r->after;
		if (r->kind == ZD_SE_REQ_PUSH)
			zd_csession_end(s, r, ZEROD_REDO, "contributions to round %llu were lost; compute the step again",
				       (unsigned long long)s->round);
	}
	for (uint32_t u = 0; u < s->unit_count; u++)
		s->units[u].next_micro = 0;
	s->micro_batches = 0;
	zd_cpush_round(s);
}

/* ---------------------------------------------------------------- sending */

/* 1: sent, 0: nothing left here, -1: no room or no credit now. */
static int send_push(struct zd_session *s, struct zd_link *l, struct zd_req *r)
{
	struct zd_piece piece = piece_of(s, l, r->unit);
	uint32_t extents = extents_of(s, l, r->unit), elem = zd_codec_bytes(s->spec.grad_codec);
	uint64_t base = (uint64_t)r->micro * extents, first = (l->pushed[r->unit] - base) * s->spec.extent_elems;
	Zd__Pb__Push m = ZD__PB__PUSH__INIT;
	Zd__Pb__Ballot ballot;
	int credit = needs_credit(s);

	if (extents == 0 || l->pushed[r->unit] >= base + extents)
		return 0;
	if (!s->sealed || s->phase != ZD_PH_ROUND || l->ls != ZD_LS_PUSH || (credit && l->windows_sent >= l->credit + l->windows_freed))
		return -1;
	ZD_ASSERT(l->pushed[r->unit] >= base);
	zd_cagree_pb(s->ballot, &ballot);
	m.ballot = &ballot;
	m.round = s->round;
	m.rank = s->config.rank;
	m.unit = r->unit;
	m.micro = r->micro;
	m.micro_batches = s->micro_batches;
	m.first = piece.first + first;
	m.count = (uint32_t)(piece.count - first < s->spec.extent_elems ? piece.count - first : s->spec.extent_elems);
	m.codec = s->spec.grad_codec;
	if (zd_cemit_frame(s, l, ZD_MSG_PUSH, ZD_STREAM(ZD_STREAM_PUSH, r->unit), &m.base, r->data + m.first * elem, m.count * elem, r) < 0)
		return -1;
	l->pushed[r->unit]++;
	l->windows_sent += (uint64_t)credit;
	return 1;
}

static int send_load(struct zd_session *s, struct zd_link *l, struct zd_req *r)
{
	struct zd_piece piece = piece_of(s, l, r->unit);
	uint32_t grain = l->load_sent[r->unit], elem = zd_codec_bytes((enum zd_codec)r->codec);
	uint64_t first = (uint64_t)grain * ZD_GRAIN_ELEMS;
	Zd__Pb__Load m = ZD__PB__LOAD__INIT;

	if (grain >= grains_of(s, l, r->unit))
		return 0;
	m.unit = r->unit;
	m.first = piece.first + first;
	m.count = (uint32_t)(piece.count - first < ZD_GRAIN_ELEMS ? piece.count - first : ZD_GRAIN_ELEMS);
	m.codec = r->codec;
	if (zd_cemit_frame(s, l, ZD_MSG_LOAD, r->stream, &m.base, r->data + m.first * elem, m.count * elem, r) < 0)
		return -1;
	l->load_sent[r->unit]++;
	return 1;
}

void zd_cpush_emit(struct zd_session *s, struct zd_link *l)
{
	if (l->lent_bytes > ZD_LENT_LOW)
		return;
	while (l->cursor && l->lent_bytes < ZD_LENT_HIGH && l->lend_count < ZD_LENDS_MAX) {
		struct zd_req *r = l->cursor;
		int rc = r->kind == ZD_SE_REQ_PUSH ? send_push(s, l, r) : send_load(s, l, r);

		if (rc < 0)
			return;
		if (rc == 0)
			l->cursor = r->after;
	}
}
