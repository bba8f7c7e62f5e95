/* SPDX-License-Identifier: Apache-2.0 */
#include "client_script.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/crc32c.h"

static void *allocate(void *ctx, size_t size)
{
	struct cs *c = ctx;

	if (++c->allocations == c->fail_at)
		return NULL;
	return aligned_alloc(64, (size + 64) & ~(size_t)63);
}

static void release(void *ctx, void *memory)
{
	(void)ctx;
	free(memory);
}

void cs_init(struct cs *c, const struct cs_options *o)
{
	static const char *const names[] = {"one:1", "two:2", "three:3", "four:4"};
	struct zd_session_config config = {
		.spec = o->spec, .daemons = names, .daemon_count = o->daemons, .rank = o->rank, .world = o->world, .epoch = o->epoch, .launch = 5,
		.process = 6, .seed = 7, .gather_bytes_max = o->gather_bytes_max, .prefetch = o->prefetch, .create = 1,
		.features = ZD_FEATURE_PAYLOAD_CRC, .alloc = allocate, .release = release, .alloc_ctx = c, .now = ZD_SEC(1),
	};

	memset(c, 0, sizeof(*c));
	c->now = ZD_SEC(1);
	c->actions = malloc(sizeof(*c->actions));
	assert_non_null(c->actions);
	c->fail_at = o->fail_at;
	c->session = zd_session_new(&config);
	assert_true(c->session || c->fail_at);
	zd_arena_init(&c->arena, c->arena_memory, sizeof(c->arena_memory));
}

void cs_fini(struct cs *c)
{
	struct zd_session_event stop = {.type = ZD_SE_REQ_STOP};

	if (c->session)
		cs_step(c, &stop);
	for (uint32_t i = 0; i < CS_LINKS; i++)
		if (c->gen[i])
			cs_down(c, i);
	zd_session_free(c->session);
	free(c->actions);
}

static void note_frame(struct cs *c, const struct zd_session_action *a)
{
	struct cs_frame *f = &c->frame[a->slot][c->got[a->slot] % CS_FRAMES];
	const uint8_t *bytes = c->actions->bytes + a->u.send.frame;
	struct zd_header h;

	assert_true(c->got[a->slot] - c->seen[a->slot] < CS_FRAMES);
	assert_int_equal(a->gen, c->gen[a->slot]);
	assert_int_equal(zd_header_decode(bytes, ZD_SIDE_CLIENT, &h), 0);
	assert_int_equal(h.head_len + ZD_HEADER_BYTES, a->u.send.frame_len);
	assert_int_equal(h.payload_len, a->u.send.payload_len);
	if (h.payload_len > 0)
		assert_int_equal(h.payload_crc, zd_crc32c(0, a->u.send.payload, h.payload_len));
	*f = (struct cs_frame){.type = h.type, .stream = h.stream, .payload = a->u.send.payload, .payload_len = h.payload_len,
			       .token = a->u.send.token, .head_len = h.head_len};
	assert_true(h.head_len <= sizeof(f->head));
	memcpy(f->head, bytes + ZD_HEADER_BYTES, h.head_len);
	c->got[a->slot]++;
}

void cs_step(struct cs *c, struct zd_session_event *ev)
{
	struct zd_session_event tick = {.type = ZD_SE_TICK};

	do {
		ev->now = c->now;
		zd_session_step(c->session, ev, c->actions);
		for (uint32_t i = 0; i < c->actions->count; i++) {
			const struct zd_session_action *a = &c->actions->item[i];

			if (a->type == ZD_SA_CONNECT) {
				c->gen[a->slot] = a->gen;
				c->closed[a->slot] = 0;
			} else if (a->type == ZD_SA_CLOSE) {
				c->closed[a->slot] = 1;
			} else if (a->type == ZD_SA_SEND) {
				note_frame(c, a);
			} else {
				struct cs_end *e = &c->end[c->ends++ % CS_ENDS];

				*e = (struct cs_end){.request = a->u.done.request, .status = a->u.done.status, .weights = a->u.done.weights};
				snprintf(e->text, sizeof(e->text), "%s", (const char *)c->actions->bytes + a->u.done.text);
			}
		}
		ev = &tick;
	} while (zd_session_deadline(c->session) <= c->now);
}

uint64_t cs_ask(struct cs *c, struct zd_session_event *ev)
{
	ev->request = ++c->requests;
	if (ev->deadline == 0)
		ev->deadline = ZD_TIME_NEVER;
	cs_step(c, ev);
	return ev->request;
}

const struct cs_end *cs_ended(const struct cs *c, uint64_t request)
{
	for (uint32_t i = 0; i < CS_ENDS; i++)
		if (c->end[i].request == request && request != 0)
			return &c->end[i];
	return NULL;
}

void cs_up(struct cs *c, uint32_t slot, uint32_t lane_count)
{
	struct zd_session_event ev = {.type = ZD_SE_UP, .slot = slot, .gen = c->gen[slot],
				      .u.up = {.greeted = 1, .lane_count = lane_count, .features = ZD_FEATURE_PAYLOAD_CRC}};

	assert_true(c->gen[slot] != 0);
	cs_step(c, &ev);
}

void cs_down(struct cs *c, uint32_t slot)
{
	struct zd_session_event ev = {.type = ZD_SE_DOWN, .slot = slot, .gen = c->gen[slot], .u.down.text = "connection reset"};

	c->gen[slot] = 0;
	c->seen[slot] = c->got[slot];
	cs_step(c, &ev);
}

void cs_tick(struct cs *c, zd_time later)
{
	struct zd_session_event ev = {.type = ZD_SE_TICK};

	c->now += later;
	cs_step(c, &ev);
}

void cs_sent(struct cs *c, uint32_t slot)
{
	uint32_t first = c->got[slot] > CS_FRAMES ? c->got[slot] - CS_FRAMES : 0;

	for (uint32_t i = first; i < c->got[slot]; i++) {
		struct cs_frame *f = &c->frame[slot][i % CS_FRAMES];
		struct zd_session_event ev = {.type = ZD_SE_SENT, .slot = slot, .gen = c->gen[slot], .u.sent.token = f->token};

		f->token = 0;
		if (ev.u.sent.token)
			cs_step(c, &ev);
	}
}

static void deliver(struct cs *c, uint32_t slot, const uint8_t *data, size_t len, size_t piece)
{
	while (len > 0) {
		struct zd_span w = zd_session_window(c->session, slot, c->gen[slot]);
		struct zd_session_event ev = {.type = ZD_SE_BYTES, .slot = slot, .gen = c->gen[slot]};
		size_t n = len < piece ? len : piece;

		if (w.len == 0)
			return; /* the session closed it */
		n = n < w.len ? n : w.len;
		memcpy(w.base, data, n);
		ev.u.bytes.len = n;
		data += n;
		len -= n;
		cs_step(c, &ev);
	}
}

void cs_say(struct cs *c, uint32_t slot, uint16_t type, uint64_t stream, const ProtobufCMessage *msg, const void *payload, uint32_t len)
{
	uint8_t bytes[8192];
	size_t n = zd_wire_encode(bytes, sizeof(bytes), type, stream, msg, len, len ? zd_crc32c(0, payload, len) : 0);

	deliver(c, slot, bytes, n, 7);
	if (len > 0)
		deliver(c, slot, payload, len, len);
}

const struct cs_frame *cs_expect(struct cs *c, uint32_t slot, uint16_t type, const ProtobufCMessage **ret_msg)
{
	const struct cs_frame *f = &c->frame[slot][c->seen[slot] % CS_FRAMES];
	char text[200] = "";

	if (c->seen[slot] == c->got[slot])
		fail_msg("slot %u: expected %s, nothing was sent", slot, zd_msg_name(type));
	if (f->type != type)
		fail_msg("slot %u: expected %s, sent was %s", slot, zd_msg_name(type), zd_msg_name(f->type));
	c->seen[slot]++;
	if (ret_msg) {
		zd_arena_reset(&c->arena);
		if (zd_wire_decode(&c->arena, type, f->head, f->head_len, ret_msg, text, sizeof(text)) < 0)
			fail_msg("%s", text);
	}
	return f;
}

void cs_expect_nothing(struct cs *c, uint32_t slot)
{
	if (c->seen[slot] != c->got[slot])
		fail_msg("slot %u: expected nothing, sent was %s", slot, zd_msg_name(c->frame[slot][c->seen[slot] % CS_FRAMES].type));
}

/* ---------------------------------------------------------------- messages */

static Zd__Pb__Ballot pb(struct zd_ballot b)
{
	Zd__Pb__Ballot out = ZD__PB__BALLOT__INIT;

	out.epoch = b.epoch;
	out.attempt = b.attempt;
	return out;
}

struct zd_record cs_record(uint64_t round, struct zd_ballot ballot)
{
	struct zd_record r = {.round = round, .ballot = ballot, .world = 2, .micro_batches = 1,
			      .hyper = {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .loss_scale = 1}};

	zd_normacc_add(&r.norm, 4.0);
	return r;
}

struct zd_decision cs_decision(uint64_t round, struct zd_ballot ballot)
{
	return (struct zd_decision){.round = round, .ballot = ballot, .applied = 1, .scale = 0.5, .norm = 1, .step = round};
}

void cs_opened(struct cs *c, uint32_t slot, uint64_t life)
{
	Zd__Pb__Opened m = ZD__PB__OPENED__INIT;

	m.uuid_hi = m.uuid_lo = life;
	m.timeline = 1; /* sealed: as JOINED says */
	cs_say(c, slot, ZD_MSG_OPENED, 0, &m.base, NULL, 0);
}

void cs_joined(struct cs *c, uint32_t slot, const struct cs_joined *j)
{
	Zd__Pb__Joined m = ZD__PB__JOINED__INIT;
	Zd__Pb__Record record = ZD__PB__RECORD__INIT;
	Zd__Pb__Decision decision = ZD__PB__DECISION__INIT;
	Zd__Pb__Hyper hyper = ZD__PB__HYPER__INIT;
	Zd__Pb__Ballot ballot = pb(j->ballot), rb = ZD__PB__BALLOT__INIT, db = ZD__PB__BALLOT__INIT;
	struct zd_record r = cs_record(j->record_round, j->record_ballot);
	struct zd_decision d = cs_decision(j->decided, j->decision_ballot.epoch ? j->decision_ballot : (struct zd_ballot){1, 0});
	uint8_t norm[ZD_NORMACC_BYTES];
	uint64_t counted[16] = {0};

	m.ballot = &ballot;
	m.decided = m.step = j->decided;
	m.sealed = !j->unsealed;
	m.credit = j->credit;
	m.n_counted = 3;
	m.counted = counted;
	if (j->counted)
		memcpy(counted, j->counted, 3 * sizeof(*counted));
	zd_record_to_pb(&r, &record, &rb, &hyper, norm);
	zd_decision_to_pb(&d, &decision, &db);
	m.prepared = j->record_round ? &record : NULL;
	m.decision = j->decided ? &decision : NULL;
	cs_say(c, slot, ZD_MSG_JOINED, 0, &m.base, NULL, 0);
}

void cs_pushed(struct cs *c, uint32_t slot, struct zd_ballot ballot, uint64_t round, uint32_t unit, uint64_t counted, uint64_t freed)
{
	Zd__Pb__Pushed m = ZD__PB__PUSHED__INIT;
	Zd__Pb__Ballot b = pb(ballot);

	m.ballot = &b;
	m.round = round;
	m.unit = unit;
	m.counted = counted;
	m.freed = freed;
	cs_say(c, slot, ZD_MSG_PUSHED, 0, &m.base, NULL, 0);
}

void cs_pong(struct cs *c, uint32_t slot, uint64_t token, int sealed)
{
	Zd__Pb__Pong m = ZD__PB__PONG__INIT;

	m.token = token;
	m.has_sealed = 1;
	m.sealed = sealed;
	cs_say(c, slot, ZD_MSG_PONG, 0, &m.base, NULL, 0);
}

void cs_pong_ranks(struct cs *c, uint32_t slot, uint64_t absent, uint64_t behind)
{
	Zd__Pb__Pong m = ZD__PB__PONG__INIT;
	uint32_t ranks[2][ZD_WORLD_MAX];

	for (uint32_t r = 0; r < ZD_WORLD_MAX; r++) {
		if (absent >> r & 1)
			ranks[0][m.n_absent++] = r;
		if (behind >> r & 1)
			ranks[1][m.n_behind++] = r;
	}
	m.absent = ranks[0];
	m.behind = ranks[1];
	cs_say(c, slot, ZD_MSG_PONG, 0, &m.base, NULL, 0);
}

void cs_prepared(struct cs *c, uint32_t slot, struct zd_ballot ballot, const struct zd_record *r)
{
	Zd__Pb__Prepared m = ZD__PB__PREPARED__INIT;
	Zd__Pb__Record record = ZD__PB__RECORD__INIT;
	Zd__Pb__Hyper hyper = ZD__PB__HYPER__INIT;
	Zd__Pb__Ballot b = pb(ballot), rb = ZD__PB__BALLOT__INIT;
	uint8_t norm[ZD_NORMACC_BYTES];

	zd_record_to_pb(r, &record, &rb, &hyper, norm);
	m.ballot = &b;
	m.record = &record;
	cs_say(c, slot, ZD_MSG_PREPARED, 0, &m.base, NULL, 0);
}

void cs_applied(struct cs *c, uint32_t slot, struct zd_ballot ballot, const struct zd_decision *d)
{
	Zd__Pb__Applied m = ZD__PB__APPLIED__INIT;
	Zd__Pb__Decision decision = ZD__PB__DECISION__INIT;
	Zd__Pb__Ballot b = pb(ballot), db = ZD__PB__BALLOT__INIT;

	zd_decision_to_pb(d, &decision, &db);
	m.ballot = &b;
	m.decision = &decision;
	cs_say(c, slot, ZD_MSG_APPLIED, 0, &m.base, NULL, 0);
}

void cs_discarded(struct cs *c, uint32_t slot, struct zd_ballot ballot, uint64_t round, struct zd_ballot record)
{
	Zd__Pb__Discarded m = ZD__PB__DISCARDED__INIT;
	Zd__Pb__Ballot b = pb(ballot), r = pb(record);

	m.ballot = &b;
	m.round = round;
	m.record = &r;
	cs_say(c, slot, ZD_MSG_DISCARDED, 0, &m.base, NULL, 0);
}

void cs_aborted(struct cs *c, uint32_t slot, struct zd_ballot promise, struct zd_ballot ended, int code, const char *text)
{
	Zd__Pb__Aborted m = ZD__PB__ABORTED__INIT;
	Zd__Pb__Ballot b = pb(promise), e = pb(ended);
	char words[200];

	snprintf(words, sizeof(words), "%s", text);
	m.ballot = &b;
	m.ended = &e;
	m.code = (uint32_t)code;
	m.text = words;
	cs_say(c, slot, ZD_MSG_ABORTED, 0, &m.base, NULL, 0);
}

void cs_error(struct cs *c, uint32_t slot, uint64_t stream, int code, const char *text)
{
	Zd__Pb__Error m = ZD__PB__ERROR__INIT;
	char words[200];

	snprintf(words, sizeof(words), "%s", text);
	m.code = (uint32_t)code;
	m.text = words;
	cs_say(c, slot, ZD_MSG_ERROR, stream, &m.base, NULL, 0);
}
