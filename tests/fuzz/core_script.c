/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes as a script for core_drive: an operation, a connection, and a byte for every field, of which 0 means "as it should be".  A few
 * operations do what takes a well-behaved worker many frames, so that short inputs reach every state of a round.
 */
#include <stdlib.h>
#include <string.h>

#include "proto/assert.h"
#include "proto/crc32c.h"
#include "proto/layout.h"
#include "proto/wire.h"
#include "tests/fuzz/core_drive.h"
#include "tests/fuzz/drive.h"
#include "tests/fuzz/vectors.h"

#define FRAME_MAX (ZD_HEADER_BYTES + ZD_HEAD_OPEN_MAX + ZD_PAYLOAD_MAX)
#define FRAMES_MAX 4096u /* of one script: an input costs at most so much */

struct script {
	struct cd *d;
	const uint8_t *at, *end;
	uint32_t slot;
	uint8_t damage; /* how the next frame is damaged, 0: not */
	uint8_t usual;	/* fields are as they should be and take no byte of the script */
	uint32_t frames;
};

static uint8_t byte(struct script *s)
{
	return s->at < s->end && !s->usual ? *s->at++ : 0;
}

/* A number as it should be, one beside it, or one that nobody expects. */
static uint64_t number(struct script *s, uint64_t usual)
{
	static const uint64_t odd[] = {0, 1, 2, 3, 63, 64, 65, 255, 4095, 4096, 4097, 65535, 65536, 65537, 0x7fffffff, 0x80000000,
				       0xffffffff, 0x100000000, 1ull << 40, (1ull << 40) - 1, (1ull << 40) + 1, UINT64_MAX >> 1,
				       UINT64_MAX - 1, UINT64_MAX};
	uint8_t b = byte(s);

	if (b < 208)
		return usual;
	if (b < 224)
		return usual + b - 216; /* may wrap */
	return odd[(b - 224) % (sizeof(odd) / sizeof(odd[0]))];
}

static uint32_t number32(struct script *s, uint64_t usual)
{
	return (uint32_t)number(s, usual);
}

static double real(struct script *s, double usual)
{
	static const double odd[] = {0, -0.0, 1, -1, 1e-45, 1e30, 1e31, 1e300, __builtin_inf(), -__builtin_inf(), 0x1p-41, 0x1p81};
	uint8_t b = byte(s);

	if (b < 208)
		return usual;
	return b == 255 ? __builtin_nan("") : odd[(b - 208) % (sizeof(odd) / sizeof(odd[0]))];
}

static struct cd_conn *conn(struct script *s)
{
	return &s->d->conn[s->slot];
}

static const struct zd_spec *spec(struct script *s)
{
	return &s->d->spec[conn(s)->spec];
}

static struct zd_job_view view(struct script *s)
{
	struct zd_job_view v;

	if (!cd_view(s->d, conn(s)->spec, &v))
		memset(&v, 0, sizeof(v));
	return v;
}

/* ---------------------------------------------------------------- frames */

static void post(struct script *s, uint8_t *frame, size_t len)
{
	uint8_t damage = s->damage;

	s->damage = 0;
	if (s->frames++ >= FRAMES_MAX)
		return;
	if (damage & 1) { /* before the checksums */
		frame[number(s, byte(s)) % len] ^= byte(s);
		zd_drive_fix(frame, len);
	}
	if (damage & 2) /* after them */
		frame[number(s, byte(s)) % len] ^= byte(s);
	if (damage & 4)
		len = number(s, byte(s)) % (len + 1);
	cd_post(s->d, s->slot, frame, len);
	if (damage & 8)
		cd_post(s->d, s->slot, frame, len);
}

/* Not zd_wire_encode, which would refuse most of what is said here. */
static size_t pack(uint8_t *out, uint16_t type, const ProtobufCMessage *m, uint32_t payload_len)
{
	struct zd_header h = {.version = ZD_VERSION, .type = type, .payload_len = payload_len, .stream = 1};

	h.head_len = (uint32_t)protobuf_c_message_pack(m, out + ZD_HEADER_BYTES);
	h.payload_crc = payload_len ? zd_crc32c(0, out + ZD_HEADER_BYTES + h.head_len, payload_len) : 0;
	zd_header_encode(out, &h, out + ZD_HEADER_BYTES);
	return ZD_HEADER_BYTES + h.head_len + payload_len;
}

static void say(struct script *s, uint16_t type, const ProtobufCMessage *m, uint32_t payload_len, uint8_t fill)
{
	static uint8_t frame[FRAME_MAX];
	size_t head = zd_wire_size(m);

	if (head + payload_len > sizeof(frame))
		return;
	for (uint32_t i = 0; i < payload_len; i++)
		frame[head + i] = i % 2 ? (uint8_t)(0x3c ^ fill) : (uint8_t)(i * 13 + fill);
	post(s, frame, pack(frame, type, m, payload_len));
}

static void pb_ballot(struct script *s, Zd__Pb__Ballot *b)
{
	zd__pb__ballot__init(b);
	b->epoch = number(s, conn(s)->ballot.epoch);
	b->attempt = number32(s, conn(s)->ballot.attempt);
}

/* ---------------------------------------------------------------- coming in */

static void say_open(struct script *s, uint8_t which)
{
	Zd__Pb__Open m = ZD__PB__OPEN__INIT;
	Zd__Pb__JobSpec pb;
	Zd__Pb__Unit units[4], *ptrs[4];

	conn(s)->spec = (uint8_t)(which % CD_SPECS);
	zd_spec_to_pb(spec(s), &pb, units, ptrs);
	pb.optimizer = number32(s, pb.optimizer);
	pb.grad_codec = number32(s, pb.grad_codec);
	pb.extent_elems = number32(s, pb.extent_elems);
	pb.n_units = number(s, pb.n_units) % 5;
	if (pb.n_units > spec(s)->unit_count)
		pb.n_units = spec(s)->unit_count;
	if (pb.n_units > 0) {
		units[0].numel = number(s, units[0].numel);
		units[0].frozen = units[0].has_frozen = number32(s, units[0].frozen != 0) & 1;
	}
	m.spec = &pb;
	m.lane_index = number32(s, 0);
	m.lane_count = number32(s, 1);
	m.has_create = 1;
	m.create = (number32(s, 1) & 1) != 0;
	say(s, ZD_MSG_OPEN, &m.base, 0, 0);
}

static void say_join(struct script *s)
{
	struct cd_conn *c = conn(s);
	Zd__Pb__Join m = ZD__PB__JOIN__INIT;
	Zd__Pb__Ballot b;
	struct zd_job_view v = view(s);
	uint8_t how = byte(s);

	c->ballot = v.promise.epoch ? v.promise : (struct zd_ballot){1, 0};
	if (how & 1)
		c->ballot.attempt++;
	if (how & 2)
		c->ballot.epoch++;
	c->world = (uint8_t)(how >> 2 & 3 ? how >> 2 & 3 : 1);
	c->rank = (uint8_t)((how >> 4 & 3) % c->world);
	pb_ballot(s, &b);
	m.ballot = &b;
	m.launch = number(s, 5);
	m.process = number(s, 100 + c->rank);
	m.rank = number32(s, c->rank);
	m.world = number32(s, c->world);
	m.link = number32(s, ++c->link);
	say(s, ZD_MSG_JOIN, &m.base, 0, 0);
}

static void say_load(struct script *s, uint32_t unit)
{
	Zd__Pb__Load m = ZD__PB__LOAD__INIT;
	uint64_t n = unit < spec(s)->unit_count ? spec(s)->units[unit].numel : 1;

	m.unit = number32(s, unit);
	m.first = number(s, 0);
	m.count = number32(s, n);
	m.codec = number32(s, ZD_CODEC_BF16);
	say(s, ZD_MSG_LOAD, &m.base, number32(s, 2 * (uint64_t)m.count), byte(s) & 0x7f);
}

static void load_all(struct script *s)
{
	for (uint32_t u = 0; u < spec(s)->unit_count; u++) {
		Zd__Pb__Load m = ZD__PB__LOAD__INIT;

		m.unit = u;
		m.count = (uint32_t)spec(s)->units[u].numel;
		m.codec = ZD_CODEC_BF16;
		say(s, ZD_MSG_LOAD, &m.base, 2 * m.count, 0);
	}
}

static void say_seal(struct script *s)
{
	Zd__Pb__Seal m = ZD__PB__SEAL__INIT;

	say(s, ZD_MSG_SEAL, &m.base, 0, 0);
}

/* ---------------------------------------------------------------- reading */

static void say_fetch(struct script *s)
{
	Zd__Pb__Fetch m = ZD__PB__FETCH__INIT;
	struct zd_job_view v = view(s);
	int none = spec(s)->optimizer == ZD_OPT_NONE;
	uint32_t unit = byte(s) % spec(s)->unit_count;
	uint8_t how = byte(s);

	m.unit = number32(s, unit);
	m.first = number(s, 0);
	m.count = number(s, spec(s)->units[unit].numel);
	m.plane = number32(s, none ? 3 : 1 + (how & 1));
	m.mode = number32(s, 1 + (how >> 1) % 3);
	m.version = number(s, (none ? v.decided : v.step) + (how >> 4 & 1));
	say(s, ZD_MSG_FETCH, &m.base, 0, 0);
}

/* ---------------------------------------------------------------- rounds */

static void say_push(struct script *s, uint32_t unit, uint32_t extent, uint32_t micro, uint32_t micros, uint8_t fill)
{
	const struct zd_spec *sp = spec(s);
	uint64_t n = sp->units[unit].numel, first = (uint64_t)extent * sp->extent_elems;
	Zd__Pb__Push m = ZD__PB__PUSH__INIT;
	Zd__Pb__Ballot b;
	uint64_t left = first < n ? n - first : 1;

	pb_ballot(s, &b);
	m.ballot = &b;
	m.round = number(s, view(s).decided + 1);
	m.rank = number32(s, conn(s)->rank);
	m.unit = number32(s, unit);
	m.micro = number32(s, micro);
	m.micro_batches = number32(s, micros);
	m.first = number(s, first);
	m.count = number32(s, left < sp->extent_elems ? left : sp->extent_elems);
	m.codec = number32(s, sp->grad_codec);
	say(s, ZD_MSG_PUSH, &m.base, number32(s, (uint64_t)m.count * (sp->grad_codec == ZD_CODEC_FP32 ? 4 : 2)), fill);
}

static void push_one(struct script *s)
{
	uint32_t unit = byte(s) % spec(s)->unit_count, extent = byte(s) % 4, micro = byte(s) % 3, micros = 1 + byte(s) % 3;

	say_push(s, unit, extent, micro, micros, byte(s));
}

/* Everything of one micro-batch, as it should be. */
static void push_all(struct script *s)
{
	const struct zd_spec *sp = spec(s);
	uint32_t micro = byte(s) % 3, micros = micro + 1 + byte(s) % 2;

	s->usual = 1;
	for (uint32_t u = 0; u < sp->unit_count; u++)
		for (uint32_t e = 0; !sp->units[u].frozen && (uint64_t)e * sp->extent_elems < sp->units[u].numel; e++)
			say_push(s, u, e, micro, micros, 0);
	s->usual = 0;
}

static void say_commit(struct script *s)
{
	static uint32_t counts[8];
	const struct zd_spec *sp = spec(s);
	Zd__Pb__Commit m = ZD__PB__COMMIT__INIT;
	Zd__Pb__Ballot b;
	Zd__Pb__Hyper hyper = ZD__PB__HYPER__INIT;
	uint32_t micros = 1 + byte(s) % 3;

	pb_ballot(s, &b);
	m.ballot = &b;
	m.round = number(s, view(s).decided + 1);
	m.rank = number32(s, conn(s)->rank);
	m.micro_batches = number32(s, micros);
	hyper.lr = real(s, 0.01);
	hyper.beta1 = real(s, 0.9);
	hyper.beta2 = 0.95;
	hyper.eps = real(s, 1e-8);
	hyper.max_norm = real(s, 1);
	hyper.loss_scale = real(s, 1);
	m.hyper = &hyper;
	m.n_counts = number(s, sp->unit_count) % 8;
	for (uint32_t u = 0; u < m.n_counts; u++)
		counts[u] = number32(s, u < sp->unit_count && sp->units[u].frozen ? 0 : micros);
	m.counts = counts;
	say(s, ZD_MSG_COMMIT, &m.base, 0, 0);
}

static void say_apply(struct script *s)
{
	Zd__Pb__Apply m = ZD__PB__APPLY__INIT;
	Zd__Pb__Ballot b, name;
	Zd__Pb__Decision pb;
	struct zd_decision d = {0};
	struct zd_job_view v = view(s);
	char text[ZD_TEXT_MAX + 1];

	if (v.has_record && v.record.world > 0 && zd_decide(&v.record, 1, v.step, &d, text, sizeof(text)) < 0)
		return;
	if (!v.has_record)
		d = v.decision;
	zd_decision_to_pb(&d, &pb, &name);
	pb.round = number(s, pb.round);
	pb.step = number(s, pb.step);
	pb.applied = (number32(s, pb.applied != 0) & 1) != 0;
	pb.scale = real(s, pb.scale);
	name.attempt = number32(s, name.attempt);
	pb_ballot(s, &b);
	m.ballot = &b;
	m.decision = &pb;
	say(s, ZD_MSG_APPLY, &m.base, 0, 0);
}

static void say_discard(struct script *s)
{
	Zd__Pb__Discard m = ZD__PB__DISCARD__INIT;
	Zd__Pb__Ballot b, name = ZD__PB__BALLOT__INIT;
	struct zd_job_view v = view(s);

	pb_ballot(s, &b);
	m.ballot = &b;
	m.round = number(s, v.decided + 1);
	name.epoch = number(s, v.has_record ? v.record.ballot.epoch : 1);
	name.attempt = number32(s, v.record.ballot.attempt);
	m.record = &name;
	say(s, ZD_MSG_DISCARD, &m.base, 0, 0);
}

/* ---------------------------------------------------------------- people, and noise */

static void say_name(struct script *s, uint16_t type)
{
	Zd__Pb__Show show = ZD__PB__SHOW__INIT;
	Zd__Pb__Drop drop = ZD__PB__DROP__INIT;
	uint8_t which = byte(s);

	show.name = drop.name = which < 208 ? s->d->spec[which % CD_SPECS].name : (char *)"nobody";
	say(s, type, type == ZD_MSG_SHOW ? &show.base : &drop.base, 0, 0);
}

/* Many small requests in one read: more answers than one step may give. */
static void burst(struct script *s)
{
	static uint8_t frames[ZD_LANDING_BYTES];
	Zd__Pb__Show show = ZD__PB__SHOW__INIT;
	size_t n = 0, size;

	show.name = (char *)"nobody";
	size = zd_wire_size(&show.base);
	while (n + size <= sizeof(frames))
		n += pack(frames + n, ZD_MSG_SHOW, &show.base, 0);
	post(s, frames, n);
}

static void raw(struct script *s)
{
	uint8_t bytes[256];
	size_t n = byte(s), left = (size_t)(s->end - s->at);

	n = n < left ? n : left;
	memcpy(bytes, s->at, n);
	s->at += n;
	if (n > 0)
		post(s, bytes, n);
}

static void vector(struct script *s)
{
	static uint8_t frame[FRAME_MAX];
	size_t count;
	const struct zd_vector *v = zd_vectors(&count);

	v += byte(s) % count;
	if (zd_vector_size(v) <= sizeof(frame))
		post(s, frame, zd_vector_frame(v, byte(s), frame, sizeof(frame)));
}

static void ping_or_status(struct script *s)
{
	Zd__Pb__Ping ping = ZD__PB__PING__INIT;
	Zd__Pb__Status status = ZD__PB__STATUS__INIT;

	if (byte(s) & 1)
		say(s, ZD_MSG_STATUS, &status.base, 0, 0);
	else
		say(s, ZD_MSG_PING, &ping.base, 0, 0);
}

static void connect_as(struct script *s)
{
	static const enum zd_role roles[] = {ZD_ROLE_WORKER, ZD_ROLE_READER, ZD_ROLE_ADMIN};
	uint8_t how = byte(s);

	cd_connect(s->d, s->slot, roles[how % 3], how & 128 ? 0 : ZD_FEATURE_PAYLOAD_CRC);
}

/* The whole way to a job that can be pushed to. */
static void come_in(struct script *s)
{
	uint8_t which = byte(s);

	cd_connect(s->d, s->slot, ZD_ROLE_WORKER, ZD_FEATURE_PAYLOAD_CRC);
	s->usual = 1;
	say_open(s, which);
	load_all(s);
	say_seal(s);
	s->usual = 0;
}

static void say_something(struct script *s, uint8_t what)
{
	switch (what) {
	case 0: connect_as(s); break;
	case 1: say_open(s, byte(s)); break;
	case 2: say_join(s); break;
	case 3: say_load(s, byte(s) % 4); break;
	case 4: load_all(s); break;
	case 5: say_seal(s); break;
	case 6: say_fetch(s); break;
	case 7: push_one(s); break;
	case 8: push_all(s); break;
	case 9: say_commit(s); break;
	case 10: say_apply(s); break;
	case 11: say_discard(s); break;
	case 12: ping_or_status(s); break;
	case 13: say_name(s, ZD_MSG_SHOW); break;
	case 14: say_name(s, ZD_MSG_DROP); break;
	case 15: raw(s); break;
	case 16: vector(s); break;
	case 17: burst(s); break;
	default: come_in(s); break;
	}
}

static void happen(struct script *s, uint8_t what)
{
	static const uint16_t ms[] = {0, 1, 10, 100, 999, 1000, 1001, 10000};
	uint8_t how = byte(s);

	switch (what) {
	case 0: cd_stored(s->d, how == 255 ? -5 : 0); break;
	case 1: cd_sent(s->d, s->slot); break;
	case 2: cd_disconnect(s->d, s->slot); break;
	case 3: cd_time(s->d, ms[how % 8]); break;
	case 4: cd_idle(s->d, 1 + how % 8); break;
	case 5:
		s->d->hold_store = how & 1;
		s->d->hold_sent = how >> 1 & 1;
		break;
	case 6: s->d->chunk = 13u * how; break;
	case 7: s->damage = how; break;
	default:
		if (how == 0x5a)
			cd_drain(s->d);
	}
}

void cd_script(struct cd *d, const uint8_t *bytes, size_t size)
{
	struct script s = {.d = d, .at = bytes, .end = bytes + size};

	while (s.at < s.end) {
		uint8_t op = byte(&s);

		s.slot = op / 32 % CD_PEERS;
		op %= 32;
		if (op < 19)
			say_something(&s, op);
		else
			happen(&s, op - 19);
	}
}
