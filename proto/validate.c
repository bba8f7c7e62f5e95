/* SPDX-License-Identifier: Apache-2.0 */
/* One function per message.  In a table row: IN is a range with both ends, AT_LEAST has no upper end. */
#include "proto/validate.h"

#include "proto/codec.h"
#include "proto/decide.h"
#include "proto/limits.h"
#include "proto/normacc.h"
#include "proto/text.h"

struct check {
	const char *msg;
	char *text;
	size_t size;
};

#define IN(field, low, high) ZD_TRY(in_range(c, #field, m->field, low, high))
#define AT_LEAST(field, low) ZD_TRY(in_range(c, #field, m->field, low, UINT64_MAX))
#define FINITE(field) ZD_TRY(finite_not_negative(c, #field, m->field))
#define STRING(field, least) ZD_TRY(printable(c, #field, m->field, least))
#define BALLOT(field) ZD_TRY(ballot(c, #field, m->field, 1))
/* Whoever hears of a round goes on with the next one. */
#define ROUND_MAX (UINT64_MAX - 1)

static int in_range(const struct check *c, const char *field, uint64_t value, uint64_t low, uint64_t high)
{
	if (value >= low && value <= high)
		return 0;
	if (high == UINT64_MAX)
		return zd_text_fail(ZD_ERR_BAD_FIELD, c->text, c->size, "%s.%s is %llu, expected at least %llu", c->msg, field,
				    (unsigned long long)value, (unsigned long long)low);
	return zd_text_fail(ZD_ERR_BAD_FIELD, c->text, c->size, "%s.%s is %llu, expected %llu to %llu", c->msg, field,
			    (unsigned long long)value, (unsigned long long)low, (unsigned long long)high);
}

static int wrong(const struct check *c, const char *field, const char *what)
{
	return zd_text_fail(ZD_ERR_BAD_FIELD, c->text, c->size, "%s.%s %s", c->msg, field, what);
}

static int finite_not_negative(const struct check *c, const char *field, double value)
{
	if (value >= 0 && value <= __DBL_MAX__)
		return 0;
	return zd_text_fail(ZD_ERR_BAD_FIELD, c->text, c->size, "%s.%s is %g, expected a finite number from 0", c->msg, field, value);
}

/* Printable ASCII of at least `least` bytes: it ends up in logs and on terminals.  NULL: an optional field that is absent. */
static int printable(const struct check *c, const char *field, const char *string, size_t least)
{
	size_t n = 0;

	if (!string)
		return 0;
	for (; string[n]; n++)
		if (string[n] < ' ' || string[n] > '~')
			return zd_text_fail(ZD_ERR_BAD_FIELD, c->text, c->size, "%s.%s has byte 0x%02x at %zu, expected printable ASCII",
					    c->msg, field, (unsigned char)string[n], n);
	return n >= least ? 0 : wrong(c, field, "is empty");
}

static int ballot(const struct check *c, const char *field, const Zd__Pb__Ballot *b, uint64_t least)
{
	if (b->epoch >= least)
		return 0;
	return zd_text_fail(ZD_ERR_BAD_FIELD, c->text, c->size, "%s.%s has epoch 0, expected at least 1", c->msg, field);
}

/* Elements [first, first + count) of some unit. */
static int range(const struct check *c, uint64_t first, uint64_t count)
{
	if (first <= ZD_NUMEL_MAX && count <= ZD_NUMEL_MAX - first)
		return 0;
	return zd_text_fail(ZD_ERR_BAD_FIELD, c->text, c->size, "%s: range of %llu elements from %llu ends beyond %llu", c->msg,
			    (unsigned long long)count, (unsigned long long)first, (unsigned long long)ZD_NUMEL_MAX);
}

static int hyper(const struct check *c, const Zd__Pb__Hyper *pb)
{
	struct zd_hyper h;
	const char *what;
	double found;

	zd_hyper_from_pb(&h, pb);
	what = zd_hyper_check(&h, &found);
	return what ? zd_text_fail(ZD_ERR_BAD_FIELD, c->text, c->size, "%s.hyper: %s, found %g", c->msg, what, found) : 0;
}

static int record(const struct check *c, const Zd__Pb__Record *m)
{
	struct zd_normacc norm;

	IN(round, 1, ROUND_MAX);
	BALLOT(ballot);
	ZD_TRY(hyper(c, m->hyper));
	IN(world, 1, ZD_WORLD_MAX);
	IN(micro_batches, 1, ZD_MICRO_MAX);
	if (zd_normacc_decode(&norm, m->norm.data, m->norm.len) < 0)
		return wrong(c, "norm", "is not a sum of squares");
	if (m->nonfinite == 0)
		return 0;
	if (!m->has_bad_unit || !m->has_bad_element || !m->has_bad_rank)
		return wrong(c, "nonfinite", "is not 0, but the first such element is not named");
	IN(bad_unit, 0, ZD_UNITS_MAX - 1);
	IN(bad_element, 0, ZD_NUMEL_MAX - 1);
	IN(bad_rank, 0, m->world - 1);
	return 0;
}

static int decision(const struct check *c, const Zd__Pb__Decision *m)
{
	IN(round, 1, ROUND_MAX);
	BALLOT(ballot);
	FINITE(scale);
	FINITE(norm);
	return m->applied || m->scale == 0 ? 0 : wrong(c, "scale", "is not 0, but the round is skipped");
}

/* Only what makes it safe to handle: what a specification must say is checked by zd_spec_check, whose refusal does not end the
 * connection. */
static int job_spec(const struct check *c, const Zd__Pb__JobSpec *m)
{
	STRING(name, 0);
	for (size_t i = 0; i < m->n_units; i++)
		ZD_TRY(printable(c, "units.name", m->units[i]->name, 0));
	return 0;
}

static int job_status(const struct check *c, const Zd__Pb__JobStatus *m)
{
	STRING(name, 1);
	IN(lane_count, 1, ZD_LANES_MAX);
	IN(lane_index, 0, m->lane_count - 1);
	IN(world, 0, ZD_WORLD_MAX);
	IN(joined, 0, ZD_WORLD_MAX);
	FINITE(norm);
	return 0;
}

static int worker(const struct check *c, const Zd__Pb__Worker *m)
{
	IN(rank, 0, ZD_WORLD_MAX - 1);
	return 0;
}

static int check_hello(const struct check *c, const Zd__Pb__Hello *m)
{
	AT_LEAST(version, 1);
	IN(role, ZD_ROLE_WORKER, ZD_ROLE_ADMIN);
	IN(lane, 0, ZD_LANES_MAX - 1);
	STRING(agent, 0);
	return 0;
}

static int check_welcome(const struct check *c, const Zd__Pb__Welcome *m)
{
	AT_LEAST(version, 1);
	IN(lane_count, 1, ZD_LANES_MAX);
	STRING(daemon, 1);
	IN(payload_max, 1, ZD_PAYLOAD_MAX);
	return 0;
}

static int check_open(const struct check *c, const Zd__Pb__Open *m)
{
	IN(lane_count, 1, ZD_LANES_MAX);
	IN(lane_index, 0, m->lane_count - 1);
	return job_spec(c, m->spec);
}

static int check_join(const struct check *c, const Zd__Pb__Join *m)
{
	BALLOT(ballot);
	IN(world, 1, ZD_WORLD_MAX);
	IN(rank, 0, m->world - 1);
	return 0;
}

static int check_joined(const struct check *c, const Zd__Pb__Joined *m)
{
	BALLOT(ballot);
	IN(credit, 0, ZD_CREDIT_MAX);
	if (m->prepared) {
		ZD_TRY(record(c, m->prepared));
		if (m->prepared->round - 1 != m->decided)
			return wrong(c, "prepared", "is not of the round after the last decided one");
	}
	if (!m->decision)
		return m->decided == 0 ? 0 : wrong(c, "decision", "is missing, but a round is decided");
	ZD_TRY(decision(c, m->decision));
	return m->decision->round == m->decided ? 0 : wrong(c, "decision", "is not of the last decided round");
}

static int check_load(const struct check *c, const Zd__Pb__Load *m)
{
	IN(unit, 0, ZD_UNITS_MAX - 1);
	IN(count, 1, ZD_GRAIN_ELEMS);
	IN(codec, 0, ZD_CODEC_COUNT - 1);
	return range(c, m->first, m->count);
}

static int check_loaded(const struct check *c, const Zd__Pb__Loaded *m)
{
	IN(unit, 0, ZD_UNITS_MAX - 1);
	IN(count, 1, ZD_GRAIN_ELEMS);
	return range(c, m->first, m->count);
}

static int check_fetch(const struct check *c, const Zd__Pb__Fetch *m)
{
	IN(unit, 0, ZD_UNITS_MAX - 1);
	IN(count, 1, ZD_NUMEL_MAX);
	IN(plane, 1, 3);
	IN(mode, 1, 3);
	return range(c, m->first, m->count);
}

static int check_data(const struct check *c, const Zd__Pb__Data *m)
{
	IN(unit, 0, ZD_UNITS_MAX - 1);
	return range(c, m->first, m->count);
}

static int check_push(const struct check *c, const Zd__Pb__Push *m)
{
	BALLOT(ballot);
	AT_LEAST(round, 1);
	IN(rank, 0, ZD_WORLD_MAX - 1);
	IN(unit, 0, ZD_UNITS_MAX - 1);
	IN(micro_batches, 1, ZD_MICRO_MAX);
	IN(micro, 0, m->micro_batches - 1);
	IN(codec, 0, ZD_CODEC_COUNT - 1);
	IN(count, 1, ZD_PAYLOAD_MAX / zd_codec_bytes((enum zd_codec)m->codec));
	return range(c, m->first, m->count);
}

static int check_pushed(const struct check *c, const Zd__Pb__Pushed *m)
{
	BALLOT(ballot);
	AT_LEAST(round, 1);
	IN(unit, 0, ZD_UNITS_MAX - 1);
	return 0;
}

static int check_commit(const struct check *c, const Zd__Pb__Commit *m)
{
	BALLOT(ballot);
	AT_LEAST(round, 1);
	IN(rank, 0, ZD_WORLD_MAX - 1);
	IN(micro_batches, 1, ZD_MICRO_MAX);
	ZD_TRY(hyper(c, m->hyper));
	for (size_t i = 0; i < m->n_counts; i++)
		IN(counts[i], 0, ZD_MICRO_MAX);
	return 0;
}

static int check_prepared(const struct check *c, const Zd__Pb__Prepared *m)
{
	BALLOT(ballot);
	return record(c, m->record);
}

static int check_apply(const struct check *c, const Zd__Pb__Apply *m)
{
	BALLOT(ballot);
	return decision(c, m->decision);
}

static int check_applied(const struct check *c, const Zd__Pb__Applied *m)
{
	BALLOT(ballot);
	return decision(c, m->decision);
}

static int check_discard(const struct check *c, const Zd__Pb__Discard *m)
{
	BALLOT(ballot);
	AT_LEAST(round, 1);
	BALLOT(record);
	return 0;
}

static int check_discarded(const struct check *c, const Zd__Pb__Discarded *m)
{
	BALLOT(ballot);
	AT_LEAST(round, 1);
	BALLOT(record);
	return 0;
}

static int check_aborted(const struct check *c, const Zd__Pb__Aborted *m)
{
	ZD_TRY(ballot(c, "ballot", m->ballot, 0)); /* a lane that was never joined has promised nothing: epoch 0 */
	BALLOT(ended);
	AT_LEAST(code, 1);
	STRING(text, 0);
	for (size_t i = 0; i < m->n_missing; i++)
		IN(missing[i], 0, ZD_WORLD_MAX - 1);
	return 0;
}

static int check_pong(const struct check *c, const Zd__Pb__Pong *m)
{
	for (size_t i = 0; i < m->n_absent; i++)
		IN(absent[i], 0, ZD_WORLD_MAX - 1);
	for (size_t i = 0; i < m->n_behind; i++)
		IN(behind[i], 0, ZD_WORLD_MAX - 1);
	return 0;
}

static int check_error(const struct check *c, const Zd__Pb__Error *m)
{
	AT_LEAST(code, 1);
	STRING(text, 0);
	STRING(job, 0);
	STRING(unit, 0);
	return 0;
}

static int check_status_reply(const struct check *c, const Zd__Pb__StatusReply *m)
{
	STRING(daemon, 1);
	IN(lane, 0, ZD_LANES_MAX - 1);
	STRING(kernels, 0);
	for (size_t i = 0; i < m->n_jobs; i++)
		ZD_TRY(job_status(c, m->jobs[i]));
	return 0;
}

static int check_show(const struct check *c, const Zd__Pb__Show *m)
{
	STRING(name, 1);
	return 0;
}

static int check_show_reply(const struct check *c, const Zd__Pb__ShowReply *m)
{
	ZD_TRY(job_spec(c, m->spec));
	for (size_t i = 0; i < m->n_workers; i++)
		ZD_TRY(worker(c, m->workers[i]));
	return job_status(c, m->status);
}

static int check_drop(const struct check *c, const Zd__Pb__Drop *m)
{
	STRING(name, 1);
	return 0;
}

static int check_dropped(const struct check *c, const Zd__Pb__Dropped *m)
{
	STRING(name, 1);
	return 0;
}

/* Any value will do in these. */
#define ANYTHING(Pb, pb)                                                                                                              \
	static int check_##pb(const struct check *c, const Zd__Pb__##Pb *m)                                                           \
	{                                                                                                                             \
		(void)c;                                                                                                              \
		(void)m;                                                                                                              \
		return 0;                                                                                                             \
	}
ANYTHING(Opened, opened)
ANYTHING(Seal, seal)
ANYTHING(Sealed, sealed)
ANYTHING(Ping, ping)
ANYTHING(Status, status)

int zd_validate(uint16_t type, const ProtobufCMessage *msg, char *text, size_t text_size)
{
	struct check c = {zd_msg_name(type), text, text_size};

	switch (type) {
#define X(name, number, from, head_max, pl_min, pl_max, Pb, pb)                                                                       \
	case number:                                                                                                                  \
		return check_##pb(&c, (const Zd__Pb__##Pb *)msg);
#include "proto/msg.def"
#undef X
	default:
		return wrong(&c, "type", "is not known");
	}
}

int zd_wire_check_payload(uint16_t type, const ProtobufCMessage *msg, uint32_t payload_len, char *text, size_t text_size)
{
	uint32_t count = 0, bytes = 0; /* of an element */

	switch (type) {
	case ZD_MSG_PUSH:
		count = ((const Zd__Pb__Push *)msg)->count;
		bytes = zd_codec_bytes((enum zd_codec)((const Zd__Pb__Push *)msg)->codec);
		break;
	case ZD_MSG_LOAD:
		count = ((const Zd__Pb__Load *)msg)->count;
		bytes = zd_codec_bytes((enum zd_codec)((const Zd__Pb__Load *)msg)->codec);
		break;
	case ZD_MSG_DATA:
		count = ((const Zd__Pb__Data *)msg)->count;
		bytes = payload_len == 0 ? 0 : payload_len == (uint64_t)count * 4 ? 4 : 2;
		break;
	default:
		break;
	}
	if (payload_len == (uint64_t)count * bytes)
		return 0;
	return zd_text_fail(ZD_ERR_BAD_LENGTH, text, text_size, "%s announces %u elements of %u bytes, but has %u bytes of payload",
			    zd_msg_name(type), count, bytes, payload_len);
}
