/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A real client session whose lanes are played by the input: an operation, a connection, and a byte for every field, of which 0 means "as it
 * should be".  Lanes answer what the session sent, rightly or not, or say what nobody asked for; connections come and go; memory runs out.
 *
 * Oracle, beside the session's own assertions and the sanitizers: every request ends exactly once, with a text if it failed; what the session
 * sends can be decoded by a lane; it comes to rest; after its end nothing is allocated any more.
 */
#include <stdlib.h>
#include <string.h>

#include "client/session.h"
#include "proto/assert.h"
#include "proto/crc32c.h"
#include "proto/wire.h"
#include "tests/fuzz/drive.h"
#include "tests/fuzz/fuzz.h"

#define LINKS 4u
#define SENT 64u	/* frames that a lane remembers */
#define REQUESTS 512u
#define TURNS_MAX 10000u
#define NUMEL 9000u
#define FRAME_MAX (ZD_HEADER_BYTES + 8192u + ZD_PAYLOAD_MAX)

struct sent {
	uint16_t type;
	uint64_t stream;
	uint8_t head[512];
	uint32_t head_len;
};

struct link {
	uint32_t gen; /* 0: there is none */
	uint8_t up, closed;
	struct sent sent[SENT];
	uint32_t sent_at, sent_count; /* unanswered */
	uint64_t lent[128];
	uint32_t lent_at, lent_count;
};

struct play {
	const uint8_t *at, *end;
	struct zd_session *session;
	struct zd_session_actions *actions;
	zd_time now;
	struct link link[LINKS];
	uint32_t slot;
	uint8_t damage;
	uint64_t requests;
	uint8_t kind[REQUESTS], done[REQUESTS];
	uint32_t gathered[2]; /* times, by unit */
	size_t allocated;
	uint32_t allocations, fail_at;
};

static uint8_t buffers[2][NUMEL * 4]; /* of requests: lent to the session */

static uint8_t byte(struct play *p)
{
	return p->at < p->end ? *p->at++ : 0;
}

static uint64_t number(struct play *p, uint64_t usual)
{
	static const uint64_t odd[] = {0, 1, 2, 3, 5, 63, 64, 1023, 1024, 4096, 65536, 0xffffffff, 1ull << 40, UINT64_MAX - 1, UINT64_MAX};
	uint8_t b = byte(p);

	if (b < 208)
		return usual;
	return b < 224 ? usual + b - 216 : odd[(b - 224) % (sizeof(odd) / sizeof(odd[0]))];
}

static uint32_t number32(struct play *p, uint64_t usual)
{
	return (uint32_t)number(p, usual);
}

/* ---------------------------------------------------------------- memory */

static void *allocate(void *ctx, size_t size)
{
	struct play *p = ctx;

	if (++p->allocations == p->fail_at)
		return NULL;
	p->allocated++;
	return aligned_alloc(64, (size + 64) & ~(size_t)63);
}

static void release(void *ctx, void *memory)
{
	((struct play *)ctx)->allocated -= memory != NULL;
	free(memory);
}

/* ---------------------------------------------------------------- actions */

static void take_send(struct play *p, const struct zd_session_action *a)
{
	static uint8_t memory[ZD_ARENA_BYTES];
	const uint8_t *frame = p->actions->bytes + a->u.send.frame;
	const ProtobufCMessage *m;
	struct zd_header h;
	struct zd_arena arena;
	struct link *l = &p->link[a->slot];
	struct sent *s = &l->sent[(l->sent_at + l->sent_count) % SENT];
	char text[ZD_TEXT_MAX + 1];
	int rc;

	ZD_ASSERT(a->slot < LINKS && l->gen == a->gen && !l->closed);
	ZD_ASSERT(zd_header_decode(frame, ZD_SIDE_CLIENT, &h) == 0 && h.payload_len == a->u.send.payload_len);
	zd_arena_init(&arena, memory, sizeof(memory));
	rc = zd_wire_decode(&arena, h.type, frame + ZD_HEADER_BYTES, h.head_len, &m, text, sizeof(text));
	ZD_ASSERT(rc == 0);
	if (h.payload_len > 0) {
		ZD_ASSERT(l->lent_count < 128);
		l->lent[(l->lent_at + l->lent_count++) % 128] = a->u.send.token;
	}
	*s = (struct sent){.type = h.type, .stream = h.stream};
	s->head_len = h.head_len < sizeof(s->head) ? h.head_len : 0;
	memcpy(s->head, frame + ZD_HEADER_BYTES, s->head_len);
	if (l->sent_count < SENT)
		l->sent_count++;
	else
		l->sent_at = (l->sent_at + 1) % SENT;
}

static void take_done(struct play *p, const struct zd_session_action *a)
{
	uint64_t id = a->u.done.request;
	const char *text = (const char *)p->actions->bytes + a->u.done.text;

	ZD_ASSERT(id > 0 && id <= p->requests && !p->done[id % REQUESTS]);
	p->done[id % REQUESTS] = 1;
	ZD_ASSERT((a->u.done.status == 0) == (text[0] == 0));
	ZD_ASSERT((a->u.done.weights != NULL) == (p->kind[id % REQUESTS] == ZD_SE_REQ_GATHER && a->u.done.status == 0));
}

static void carry_out(struct play *p)
{
	for (uint32_t i = 0; i < p->actions->count; i++) {
		const struct zd_session_action *a = &p->actions->item[i];

		switch (a->type) {
		case ZD_SA_CONNECT:
			if (a->slot < LINKS)
				p->link[a->slot] = (struct link){.gen = a->gen};
			break;
		case ZD_SA_CLOSE:
			if (a->slot < LINKS)
				p->link[a->slot].closed = 1;
			break;
		case ZD_SA_SEND: take_send(p, a); break;
		case ZD_SA_DONE: take_done(p, a); break;
		}
	}
}

static void step(struct play *p, struct zd_session_event *ev)
{
	struct zd_session_event tick = {.type = ZD_SE_TICK};

	for (uint32_t turns = 0;; turns++) {
		ZD_ASSERT(turns < TURNS_MAX); /* a deadline that stays in the past would make the pump spin */
		ev->now = p->now;
		zd_session_step(p->session, ev, p->actions);
		carry_out(p);
		if (zd_session_deadline(p->session) > p->now)
			return;
		ev = &tick;
	}
}

/* ---------------------------------------------------------------- lanes speak */

static void down(struct play *p, uint32_t slot, uint8_t how)
{
	struct zd_session_event ev = {.type = ZD_SE_DOWN, .slot = slot, .gen = p->link[slot].gen,
				      .u.down = {.text = "connection reset", .fatal = how == 255, .own = how == 254}};

	if (p->link[slot].gen == 0)
		return;
	p->link[slot] = (struct link){0};
	step(p, &ev);
}

static void deliver(struct play *p, const uint8_t *bytes, size_t len)
{
	uint32_t slot = p->slot, gen = p->link[slot].gen;

	while (len > 0 && p->link[slot].gen == gen && gen != 0 && p->link[slot].up) {
		struct zd_session_event ev = {.type = ZD_SE_BYTES, .slot = slot, .gen = gen};
		struct zd_span w = zd_session_window(p->session, slot, gen);
		size_t n = len < w.len ? len : w.len;

		if (w.len == 0) {
			ZD_ASSERT(p->link[slot].closed);
			return;
		}
		memcpy(w.base, bytes, n);
		bytes += n;
		len -= n;
		ev.u.bytes.len = n;
		step(p, &ev);
	}
}

/* Not zd_wire_encode, which refuses what no lane says. */
static void say(struct play *p, uint16_t type, uint64_t stream, const ProtobufCMessage *m, uint32_t payload_len)
{
	static uint8_t frame[FRAME_MAX];
	struct zd_header h = {.version = ZD_VERSION, .type = type, .payload_len = payload_len, .stream = number(p, stream)};
	size_t len;
	uint8_t damage = p->damage;

	if (zd_wire_size(m) + payload_len > sizeof(frame))
		return;
	h.head_len = (uint32_t)protobuf_c_message_pack(m, frame + ZD_HEADER_BYTES);
	memset(frame + ZD_HEADER_BYTES + h.head_len, 0x3c, payload_len);
	h.payload_crc = payload_len ? zd_crc32c(0, frame + ZD_HEADER_BYTES + h.head_len, payload_len) : 0;
	len = ZD_HEADER_BYTES + h.head_len + payload_len;
	zd_header_encode(frame, &h, frame + ZD_HEADER_BYTES);
	p->damage = 0;
	if (damage & 1) {
		frame[byte(p) % len] ^= byte(p);
		zd_drive_fix(frame, len);
	}
	if (damage & 2)
		frame[byte(p) % len] ^= byte(p);
	deliver(p, frame, damage & 4 ? byte(p) % len : len);
	if (damage & 8)
		deliver(p, frame, len);
}

static void ballot(struct play *p, Zd__Pb__Ballot *b, const struct zd_ballot *usual)
{
	zd__pb__ballot__init(b);
	b->epoch = number(p, usual->epoch);
	b->attempt = number32(p, usual->attempt);
}

static struct zd_session_view view(const struct play *p)
{
	struct zd_session_view v;

	zd_session_view(p->session, &v);
	return v;
}

struct pb_record {
	Zd__Pb__Record record;
	Zd__Pb__Ballot name;
	Zd__Pb__Hyper hyper;
	uint8_t norm[ZD_NORMACC_BYTES];
};

static void a_record(struct play *p, struct pb_record *r)
{
	struct zd_session_view v = view(p);
	struct zd_record record = {.round = v.decided + 1, .ballot = v.ballot, .world = 2, .micro_batches = 1,
				   .hyper = {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .loss_scale = 1}};

	zd_record_to_pb(&record, &r->record, &r->name, &r->hyper, r->norm);
	r->record.round = number(p, r->record.round);
	ballot(p, &r->name, &v.ballot);
	r->record.world = number32(p, 2);
	r->record.micro_batches = number32(p, 1);
	r->record.nonfinite = number(p, 0);
	r->record.has_bad_unit = r->record.has_bad_element = r->record.has_bad_rank = r->record.nonfinite > 0;
	r->record.bad_unit = number32(p, 0);
	r->norm[20] = byte(p);
}

static void say_joined(struct play *p, uint64_t stream)
{
	static const struct zd_ballot first = {1, 0};
	struct zd_session_view v = view(p);
	Zd__Pb__Joined m = ZD__PB__JOINED__INIT;
	Zd__Pb__Ballot b, name = ZD__PB__BALLOT__INIT;
	Zd__Pb__Decision d = ZD__PB__DECISION__INIT;
	struct pb_record r;
	uint64_t counted[4] = {number(p, 0), number(p, 0)};
	uint8_t how = byte(p);

	ballot(p, &b, v.ballot.epoch ? &v.ballot : &first);
	m.ballot = &b;
	m.decided = number(p, v.decided + (how >> 1 & 1));
	m.step = number(p, v.step);
	m.sealed = (number32(p, 1) & 1) != 0;
	m.credit = number32(p, 4);
	m.counted = counted;
	m.n_counted = number(p, 2) % 4;
	if (how & 1) {
		a_record(p, &r);
		m.prepared = &r.record;
	}
	if (m.decided > 0) {
		name.epoch = 1;
		d.round = number(p, m.decided);
		d.ballot = &name;
		d.applied = how >> 2 & 1;
		d.scale = d.applied;
		d.step = m.step;
		m.decision = &d;
	}
	say(p, ZD_MSG_JOINED, stream, &m.base, 0);
}

static void say_data(struct play *p, const struct sent *s)
{
	static uint8_t memory[4096];
	const ProtobufCMessage *head = NULL;
	const Zd__Pb__Fetch *f;
	struct zd_arena arena;
	Zd__Pb__Data m = ZD__PB__DATA__INIT;
	char text[ZD_TEXT_MAX + 1];

	zd_arena_init(&arena, memory, sizeof(memory));
	if (zd_wire_decode(&arena, ZD_MSG_FETCH, s->head, s->head_len, &head, text, sizeof(text)) < 0)
		return;
	f = (const Zd__Pb__Fetch *)head;
	for (uint64_t at = 0; at < f->count && at < 4 * 4096; at += 4096) {
		m.unit = number32(p, f->unit);
		m.first = number(p, f->first + at);
		m.count = number32(p, f->count - at < 4096 ? f->count - at : 4096);
		m.version = number(p, f->version);
		m.last = (number32(p, f->count - at <= 4096) & 1) != 0;
		say(p, ZD_MSG_DATA, s->stream, &m.base, number32(p, (uint64_t)m.count * (f->plane == 1 ? 2 : 4)));
	}
}

static void say_pushed(struct play *p, const struct sent *s)
{
	static uint8_t memory[4096];
	const ProtobufCMessage *head = NULL;
	const Zd__Pb__Push *push;
	struct zd_arena arena;
	struct zd_session_view v = view(p);
	Zd__Pb__Pushed m = ZD__PB__PUSHED__INIT;
	Zd__Pb__Ballot b;
	char text[ZD_TEXT_MAX + 1];

	zd_arena_init(&arena, memory, sizeof(memory));
	if (zd_wire_decode(&arena, ZD_MSG_PUSH, s->head, s->head_len, &head, text, sizeof(text)) < 0)
		return;
	push = (const Zd__Pb__Push *)head;
	ballot(p, &b, &v.ballot);
	m.ballot = &b;
	m.round = number(p, push->round);
	m.unit = number32(p, push->unit);
	m.counted = number(p, push->first / 4096 + 1);
	m.freed = number(p, 1);
	say(p, ZD_MSG_PUSHED, s->stream, &m.base, 0);
}

static void say_applied(struct play *p, const struct sent *s)
{
	static uint8_t memory[4096];
	const ProtobufCMessage *head = NULL;
	struct zd_arena arena;
	struct zd_session_view v = view(p);
	Zd__Pb__Applied m = ZD__PB__APPLIED__INIT;
	Zd__Pb__Ballot b;
	char text[ZD_TEXT_MAX + 1];

	zd_arena_init(&arena, memory, sizeof(memory));
	if (zd_wire_decode(&arena, ZD_MSG_APPLY, s->head, s->head_len, &head, text, sizeof(text)) < 0)
		return;
	ballot(p, &b, &v.ballot);
	m.ballot = &b;
	m.decision = ((const Zd__Pb__Apply *)head)->decision;
	m.decision->round = number(p, m.decision->round);
	m.decision->step = number(p, m.decision->step);
	say(p, ZD_MSG_APPLIED, s->stream, &m.base, 0);
}

static void say_small(struct play *p, uint16_t type, uint64_t stream)
{
	Zd__Pb__Welcome welcome = ZD__PB__WELCOME__INIT;
	Zd__Pb__Opened opened = ZD__PB__OPENED__INIT;
	Zd__Pb__Loaded loaded = ZD__PB__LOADED__INIT;
	Zd__Pb__Sealed sealed = ZD__PB__SEALED__INIT;
	Zd__Pb__Pong pong = ZD__PB__PONG__INIT;
	Zd__Pb__Discarded discarded = ZD__PB__DISCARDED__INIT;
	Zd__Pb__Prepared prepared = ZD__PB__PREPARED__INIT;
	struct zd_session_view v = view(p);
	Zd__Pb__Ballot b, name;
	struct pb_record r;
	uint32_t rank;

	switch (type) {
	case ZD_MSG_WELCOME:
		welcome.version = number32(p, ZD_VERSION);
		welcome.features = number(p, ZD_FEATURE_PAYLOAD_CRC);
		welcome.lane_count = number32(p, 1 + byte(p) % 2);
		welcome.daemon = (char *)"d";
		welcome.payload_max = number32(p, ZD_PAYLOAD_MAX);
		say(p, type, stream, &welcome.base, 0);
		break;
	case ZD_MSG_OPENED:
		opened.uuid_lo = number(p, 7);
		opened.sealed = (number32(p, 1) & 1) != 0;
		opened.decided = number(p, 0);
		opened.version = number(p, 0);
		say(p, type, stream, &opened.base, 0);
		break;
	case ZD_MSG_LOADED:
		loaded.unit = number32(p, byte(p) % 2);
		loaded.count = number32(p, NUMEL);
		loaded.first = number(p, 0);
		say(p, type, stream, &loaded.base, 0);
		break;
	case ZD_MSG_SEALED:
		sealed.version = number(p, 0);
		say(p, type, stream, &sealed.base, 0);
		break;
	case ZD_MSG_PREPARED:
		a_record(p, &r);
		ballot(p, &b, &v.ballot);
		prepared.ballot = &b;
		prepared.record = &r.record;
		say(p, type, stream, &prepared.base, 0);
		break;
	case ZD_MSG_DISCARDED:
		ballot(p, &b, &v.ballot);
		ballot(p, &name, &v.ballot);
		discarded.ballot = &b;
		discarded.record = &name;
		discarded.round = number(p, v.decided + 1);
		say(p, type, stream, &discarded.base, 0);
		break;
	default:
		pong.token = number(p, 1); /* which answers for the pushes so far, or for none */
		pong.has_sealed = 1;
		pong.sealed = (number32(p, 1) & 1) != 0;
		rank = (uint32_t)(pong.token % ZD_WORLD_MAX); /* no byte of its own: older inputs mean what they meant */
		pong.n_absent = pong.n_behind = pong.token & 1;
		pong.absent = pong.behind = &rank;
		say(p, ZD_MSG_PONG, stream, &pong.base, 0);
	}
}

static void say_no(struct play *p)
{
	struct zd_session_view v = view(p);
	Zd__Pb__Error error = ZD__PB__ERROR__INIT;
	Zd__Pb__Aborted aborted = ZD__PB__ABORTED__INIT;
	Zd__Pb__Ballot b, ended;
	struct link *l = &p->link[p->slot];
	uint32_t missing[2] = {1, 0};
	uint8_t how = byte(p);

	error.code = aborted.code = number32(p, byte(p) % 53);
	error.text = aborted.text = (char *)"no";
	if (how & 1) {
		ballot(p, &b, &v.ballot);
		ballot(p, &ended, &v.ballot);
		aborted.ballot = &b;
		aborted.ended = &ended;
		aborted.missing = missing;
		aborted.n_missing = how >> 1 & 1;
		say(p, ZD_MSG_ABORTED, how & 4 && l->sent_count ? l->sent[l->sent_at].stream : 0, &aborted.base, 0);
	} else {
		say(p, ZD_MSG_ERROR, how & 4 && l->sent_count ? l->sent[l->sent_at].stream : 0, &error.base, 0);
	}
}

/* The lane answers the oldest frame, as it should but for what the bytes say. */
static void answer(struct play *p)
{
	struct link *l = &p->link[p->slot];
	struct sent s;

	if (l->gen == 0 || !l->up || l->sent_count == 0)
		return;
	s = l->sent[l->sent_at];
	l->sent_at = (l->sent_at + 1) % SENT;
	l->sent_count--;
	switch (s.type) {
	case ZD_MSG_JOIN: say_joined(p, s.stream); break;
	case ZD_MSG_FETCH: say_data(p, &s); break;
	case ZD_MSG_PUSH: say_pushed(p, &s); break;
	case ZD_MSG_APPLY: say_applied(p, &s); break;
	default: say_small(p, (uint16_t)(s.type + 1), s.stream); break;
	}
}

/* ---------------------------------------------------------------- what else happens */

static void ask(struct play *p, enum zd_session_event_type type)
{
	struct zd_session_event ev = {.type = type, .request = p->requests + 1, .deadline = ZD_TIME_NEVER};
	uint8_t how = byte(p);
	uint32_t unit = how & 1;
	static const uint32_t plan[] = {1, 0, 1};

	if (p->requests + 1 >= REQUESTS)
		return;
	if (how & 128)
		ev.deadline = p->now + ZD_MS(how);
	switch (type) {
	case ZD_SE_REQ_LOAD: ev.u.load.unit = unit, ev.u.load.codec = how >> 1 & 1, ev.u.load.data = buffers[0]; break;
	case ZD_SE_REQ_GATHER: ev.u.gather.unit = unit; break;
	case ZD_SE_REQ_PLAN: ev.u.plan.units = plan, ev.u.plan.count = 1 + how % 3; break;
	case ZD_SE_REQ_FETCH:
		ev.u.fetch.unit = unit;
		ev.u.fetch.plane = how & 2 ? ZD_PLANE_MASTER : ZD_PLANE_WEIGHTS;
		ev.u.fetch.dst = buffers[1];
		break;
	case ZD_SE_REQ_PUSH:
		ev.u.push.micro = how >> 1 & 1;
		ev.u.push.micro_batches = 1u + (how >> 1 & 1u) + (how >> 2 & 1u);
		ev.u.push.data = buffers[0];
		ev.u.push.tells = how >> 3 & 1;
		break;
	case ZD_SE_REQ_STEP:
		ev.u.step.micro_batches = 1 + how % 2;
		ev.u.step.hyper = (struct zd_hyper){.lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .loss_scale = 1};
		break;
	default: break;
	}
	if (type == ZD_SE_REQ_PLAN)
		ev.request = 0;
	else
		p->kind[++p->requests % REQUESTS] = (uint8_t)type;
	step(p, &ev);
}

static void happen(struct play *p, uint8_t what)
{
	static const uint16_t ms[] = {1, 20, 100, 300, 1000, 2000, 10000, 40000};
	struct zd_session_event ev = {.slot = p->slot, .gen = p->link[p->slot].gen, .type = ZD_SE_TICK};
	struct link *l = &p->link[p->slot];

	switch (what) {
	case 0:
		if (l->gen == 0 || l->up)
			return;
		ev.type = ZD_SE_UP;
		ev.u.up.greeted = byte(p) & 1;
		ev.u.up.lane_count = 1 + byte(p) % 2;
		ev.u.up.features = ZD_FEATURE_PAYLOAD_CRC;
		l->up = 1;
		break;
	case 1:
		if (l->lent_count == 0)
			return;
		ev.type = ZD_SE_SENT;
		ev.u.sent.token = l->lent[l->lent_at];
		l->lent_at = (l->lent_at + 1) % 128;
		l->lent_count--;
		break;
	case 2: down(p, p->slot, byte(p)); return;
	case 3: p->now += ZD_MS(ms[byte(p) % 8]); break;
	case 4: p->damage = byte(p); return;
	case 5:
		ev.type = ZD_SE_ACKED;
		ev.u.acked.at = p->now;
		break;
	default:
		ev.type = ZD_SE_REQ_RELEASE;
		ev.u.gather.unit = byte(p) & 1;
		ev.u.gather.keep = byte(p) & 1;
	}
	step(p, &ev);
}

static void raw(struct play *p)
{
	size_t n = byte(p), left = (size_t)(p->end - p->at);

	n = n < left ? n : left;
	deliver(p, p->at, n);
	p->at += n;
}

static void run(struct play *p)
{
	static const enum zd_session_event_type asks[] = {ZD_SE_REQ_CONNECT, ZD_SE_REQ_LOAD, ZD_SE_REQ_SEAL, ZD_SE_REQ_GATHER, ZD_SE_REQ_PLAN,
							  ZD_SE_REQ_FETCH, ZD_SE_REQ_PUSH, ZD_SE_REQ_FLUSH, ZD_SE_REQ_STEP};
	static const uint16_t small[] = {ZD_MSG_WELCOME, ZD_MSG_OPENED, ZD_MSG_LOADED, ZD_MSG_SEALED, ZD_MSG_PREPARED, ZD_MSG_DISCARDED, ZD_MSG_PONG};

	while (p->at < p->end) {
		uint8_t op = byte(p);

		p->slot = op / 64;
		op %= 64;
		if (op < 24)
			answer(p);
		else if (op < 33)
			ask(p, asks[op - 24]);
		else if (op < 45)
			happen(p, (uint8_t)(op == 44 ? 6 : (op - 33) % 6));
		else if (op < 52)
			say_small(p, small[op - 45], 0);
		else if (op < 56)
			say_no(p);
		else if (op < 58)
			say_joined(p, 0);
		else
			raw(p);
	}
}

/* The end: everything that was asked for has ended, and nothing is left. */
static void finish(struct play *p)
{
	struct zd_session_event stop = {.type = ZD_SE_REQ_STOP};

	step(p, &stop);
	for (uint32_t i = 0; i < LINKS; i++)
		down(p, i, 0);
	for (uint64_t i = 1; i <= p->requests; i++)
		ZD_ASSERT(p->done[i % REQUESTS]);
	zd_session_free(p->session);
	ZD_ASSERT(p->allocated == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct zd_session_actions actions;
	static struct play play;
	static const char *const names[] = {"one:1", "two:2"};
	struct zd_unit_spec units[] = {{.name = "a", .numel = NUMEL}, {.name = "b", .numel = 5000, .frozen = 1}};
	struct zd_spec spec = {.name = "job", .optimizer = ZD_OPT_ADAMW, .grad_codec = ZD_CODEC_BF16, .extent_elems = 4096, .lease_ms = 1000,
			       .unit_count = 2, .units = units};
	struct play *p = &play;
	uint8_t how = size > 0 ? data[0] : 0;
	struct zd_session_config config = {.spec = &spec, .daemons = names, .daemon_count = 1 + (how & 1), .rank = how >> 1 & 1,
					   .world = how & 4 ? 0 : 2, .epoch = 1, .launch = 5, .process = 6, .seed = 7, .prefetch = how >> 3 & 1,
					   .create = 1, .features = ZD_FEATURE_PAYLOAD_CRC, .alloc = allocate, .release = release,
					   .alloc_ctx = p, .now = ZD_SEC(1)};

	if (size < 2)
		return 0;
	memset(p, 0, sizeof(*p));
	p->at = data + 2;
	p->end = data + size;
	p->now = config.now;
	p->actions = &actions;
	p->fail_at = how & 128 ? 1 + data[1] : 0;
	p->session = zd_session_new(&config);
	if (!p->session) {
		ZD_ASSERT(p->fail_at && p->allocated == 0);
		return 0;
	}
	run(p);
	finish(p);
	return 0;
}
