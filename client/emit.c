/* SPDX-License-Identifier: Apache-2.0 */
/* From what links owe to actions.  What finds no room stays owed; the shell comes back at once, because the session then is hungry. */
#include "client/state.h"

#include <string.h>

#include "proto/assert.h"
#include "proto/crc32c.h"

static int room(struct zd_session *s, size_t bytes)
{
	if (s->out->count < ZD_SESSION_ACTIONS_MAX && s->out->used + bytes <= ZD_SESSION_BYTES_MAX)
		return 1;
	s->hungry = 1;
	return 0;
}

static struct zd_session_action *add(struct zd_session *s, enum zd_session_action_type type, const struct zd_link *l)
{
	struct zd_session_action *a = &s->out->item[s->out->count++];

	*a = (struct zd_session_action){.type = type};
	if (l) {
		a->slot = l->slot;
		a->gen = l->gen;
	}
	return a;
}

static void note_lend(struct zd_link *l, struct zd_req *lender, uint32_t bytes)
{
	ZD_ASSERT(l->lend_count < ZD_LENDS_MAX);
	l->lends[(l->lend_head + l->lend_count) % ZD_LENDS_MAX] = (struct zd_lend){lender, bytes};
	l->lend_count++;
	l->lend_token++;
	l->lent_bytes += bytes;
	lender->lent++;
}

int zd_cemit_frame(struct zd_session *s, struct zd_link *l, uint16_t type, uint64_t stream, const ProtobufCMessage *msg,
		  const uint8_t *payload, uint32_t payload_len, struct zd_req *lender)
{
	size_t size = zd_wire_size(msg);
	struct zd_session_action *a;
	uint32_t crc = 0;

	if (!room(s, size))
		return -1;
	if (payload_len > 0 && l->features & ZD_FEATURE_PAYLOAD_CRC)
		crc = zd_crc32c(0, payload, payload_len);
	a = add(s, ZD_SA_SEND, l);
	a->u.send.frame = s->out->used;
	a->u.send.frame_len = (uint32_t)zd_wire_encode(s->out->bytes + s->out->used, size, type, stream, msg, payload_len, crc);
	s->out->used += (uint32_t)size;
	if (payload_len > 0) {
		a->u.send.payload = payload;
		a->u.send.payload_len = payload_len;
		a->u.send.token = l->lend_token;
		note_lend(l, lender, payload_len);
	}
	l->sent = s->now;
	s->stats.frames_sent++;
	s->stats.wire_sent += size + payload_len;
	s->stats.payload_sent += payload_len;
	return 0;
}

int zd_cemit_done(struct zd_session *s, const struct zd_req *r)
{
	size_t len = strlen(r->text) + 1;
	struct zd_session_action *a;

	if (!room(s, len))
		return -1;
	a = add(s, ZD_SA_DONE, NULL);
	a->u.done.request = r->id;
	a->u.done.status = r->status;
	a->u.done.text = s->out->used;
	a->u.done.weights = r->weights;
	memcpy(s->out->bytes + s->out->used, r->text, len);
	s->out->used += (uint32_t)len;
	return 0;
}

int zd_cemit_connect(struct zd_session *s, struct zd_link *l)
{
	struct zd_session_action *a;

	if (!room(s, 0))
		return -1;
	l->gen++;
	l->link_no++;
	l->state = ZD_LINK_CONNECTING;
	l->since = s->now;
	l->todo = 0;
	l->lend_head = l->lend_count = 0;
	l->lend_token = 1;
	l->rx = NULL;
	a = add(s, ZD_SA_CONNECT, l);
	a->u.connect.daemon = l->daemon;
	a->u.connect.lane = l->lane;
	return 0;
}

static int emit_close(struct zd_session *s, struct zd_link *l)
{
	if (!room(s, 0))
		return -1;
	add(s, ZD_SA_CLOSE, l);
	return 0;
}

static int emit_hello(struct zd_session *s, struct zd_link *l)
{
	Zd__Pb__Hello m = ZD__PB__HELLO__INIT;
	static char agent[] = "libzerod/" ZD_RELEASE;

	m.version = ZD_VERSION;
	m.features = s->config.features;
	m.role = s->config.world > 0 ? ZD_ROLE_WORKER : ZD_ROLE_READER;
	m.lane = l->lane;
	m.agent = agent;
	return zd_cemit_frame(s, l, ZD_MSG_HELLO, 0, &m.base, NULL, 0, NULL);
}

static int emit_open(struct zd_session *s, struct zd_link *l)
{
	Zd__Pb__Open m = ZD__PB__OPEN__INIT;
	Zd__Pb__JobSpec spec = ZD__PB__JOB_SPEC__INIT;

	zd_spec_to_pb(&s->spec, &spec, s->pb_units, s->pb_unit_ptrs);
	m.spec = &spec;
	m.lane_index = l->index;
	m.lane_count = s->lane_count;
	m.has_create = 1;
	m.create = s->config.create && !zd_cgreet_known(s, l); /* what was there and is gone is lost, and not to be had by making it again */
	return zd_cemit_frame(s, l, ZD_MSG_OPEN, ZD_STREAM(ZD_STREAM_OPEN, 0), &m.base, NULL, 0, NULL);
}

static int emit_join(struct zd_session *s, struct zd_link *l)
{
	Zd__Pb__Join m = ZD__PB__JOIN__INIT;
	Zd__Pb__Ballot ballot;

	zd_cagree_pb(s->ballot, &ballot);
	m.ballot = &ballot;
	m.launch = s->config.launch;
	m.process = s->config.process;
	m.rank = s->config.rank;
	m.world = s->config.world;
	m.link = l->link_no;
	return zd_cemit_frame(s, l, ZD_MSG_JOIN, ZD_STREAM(ZD_STREAM_JOIN, 0), &m.base, NULL, 0, NULL);
}

static int emit_discard(struct zd_session *s, struct zd_link *l)
{
	Zd__Pb__Discard m = ZD__PB__DISCARD__INIT;
	Zd__Pb__Ballot ballot, record;

	zd_cagree_pb(s->ballot, &ballot);
	zd_cagree_pb(l->info.record.ballot, &record);
	m.ballot = &ballot;
	m.round = l->info.record.round;
	m.record = &record;
	return zd_cemit_frame(s, l, ZD_MSG_DISCARD, ZD_STREAM(ZD_STREAM_DISCARD, 0), &m.base, NULL, 0, NULL);
}

static int emit_apply(struct zd_session *s, struct zd_link *l)
{
	Zd__Pb__Apply m = ZD__PB__APPLY__INIT;
	Zd__Pb__Decision decision = ZD__PB__DECISION__INIT;
	Zd__Pb__Ballot ballot, record = ZD__PB__BALLOT__INIT;

	zd_cagree_pb(s->ballot, &ballot);
	zd_decision_to_pb(&l->apply, &decision, &record);
	m.ballot = &ballot;
	m.decision = &decision;
	return zd_cemit_frame(s, l, ZD_MSG_APPLY, ZD_STREAM(ZD_STREAM_APPLY, 0), &m.base, NULL, 0, NULL);
}

static int emit_seal(struct zd_session *s, struct zd_link *l)
{
	Zd__Pb__Seal m = ZD__PB__SEAL__INIT;

	return zd_cemit_frame(s, l, ZD_MSG_SEAL, ZD_STREAM(ZD_STREAM_SEAL, 0), &m.base, NULL, 0, NULL);
}

static int emit_commit(struct zd_session *s, struct zd_link *l)
{
	Zd__Pb__Commit m = ZD__PB__COMMIT__INIT;
	Zd__Pb__Hyper hyper = ZD__PB__HYPER__INIT;
	Zd__Pb__Ballot ballot;

	zd_cagree_pb(s->ballot, &ballot);
	zd_hyper_to_pb(&s->hyper, &hyper);
	for (uint32_t u = 0; u < s->unit_count; u++)
		s->counts[u] = s->spec.units[u].frozen ? 0 : s->commit_micro;
	m.ballot = &ballot;
	m.round = s->commit_round;
	m.rank = s->config.rank;
	m.micro_batches = s->commit_micro;
	m.hyper = &hyper;
	m.n_counts = s->unit_count;
	m.counts = s->counts;
	return zd_cemit_frame(s, l, ZD_MSG_COMMIT, ZD_STREAM(ZD_STREAM_COMMIT, 0), &m.base, NULL, 0, NULL);
}

static int emit_ping(struct zd_session *s, struct zd_link *l)
{
	Zd__Pb__Ping m = ZD__PB__PING__INIT;

	m.token = s->push_counter; /* the answer tells whether these may go, see zd_cpush_pong */
	if (zd_cemit_frame(s, l, ZD_MSG_PING, 0, &m.base, NULL, 0, NULL) < 0)
		return -1;
	if (l->pinged <= l->heard)
		l->asked_at = s->now;
	l->pinged = s->now;
	return 0;
}

void zd_cemit_link(struct zd_session *s, struct zd_link *l)
{
	static const struct {
		uint32_t todo;
		int (*emit)(struct zd_session *s, struct zd_link *l);
	} order[] = {
		{ZD_TODO_CLOSE, emit_close},	 {ZD_TODO_HELLO, emit_hello}, {ZD_TODO_OPEN, emit_open},
		{ZD_TODO_JOIN, emit_join},	 {ZD_TODO_DISCARD, emit_discard}, {ZD_TODO_APPLY, emit_apply},
		{ZD_TODO_SEAL, emit_seal},	 {ZD_TODO_COMMIT, emit_commit},	  {ZD_TODO_PING, emit_ping},
	};

	if (l->state == ZD_LINK_WAIT && l->retry_at <= s->now)
		zd_cemit_connect(s, l);
	for (size_t i = 0; l->todo && i < sizeof(order) / sizeof(order[0]); i++) {
		if (!(l->todo & order[i].todo))
			continue;
		if (order[i].emit(s, l) < 0)
			return;
		l->todo &= ~order[i].todo;
	}
	if (l->state != ZD_LINK_OPEN)
		return;
	zd_cfetch_emit(s, l);
	zd_cpush_emit(s, l);
}
