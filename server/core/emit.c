/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/assert.h"
#include "proto/text.h"
#include "server/core/state.h"

static struct zd_action *add(struct zd_core *core, enum zd_action_type type)
{
	struct zd_actions *a = core->act;
	struct zd_action *item;

	ZD_ASSERT(a->count < ZD_ACTIONS_MAX);
	item = &a->item[a->count++];
	memset(item, 0, sizeof *item);
	item->type = type;
	return item;
}

int zd_emit_full(const struct zd_core *core)
{
	const struct zd_actions *a = core->act;

	/* Released memory is wiped when the step is over: until then nobody may have it again. */
	return core->released || a->count > ZD_ACTIONS_MAX - ZD_ACTIONS_SPARE || a->used > ZD_ACTION_BYTES / 2 || core->kernel_len > core->kernel_cap / 2;
}

static struct zd_action *send(struct zd_core *core, struct zd_conn *c, uint16_t type, uint64_t stream, const ProtobufCMessage *msg,
			      uint32_t payload_len, uint32_t payload_crc)
{
	struct zd_actions *a = core->act;
	struct zd_action *item;
	size_t size = zd_wire_size(msg), n;

	ZD_ASSERT(a->used + size <= ZD_ACTION_BYTES);
	item = add(core, ZD_ACT_SEND);
	n = zd_wire_encode(a->bytes + a->used, size, type, stream, msg, payload_len, payload_crc);
	item->u.send.id = (struct zd_conn_id){c->slot, c->gen};
	item->u.send.frame = a->used;
	item->u.send.frame_len = (uint32_t)n;
	a->used += (uint32_t)n;
	core->frames_out++;
	core->bytes_out += n + payload_len;
	return item;
}

void zd_emit(struct zd_core *core, struct zd_conn *c, uint16_t type, uint64_t stream, const ProtobufCMessage *msg)
{
	if (!c->closing)
		send(core, c, type, stream, msg, 0, 0);
}

void zd_emit_data(struct zd_core *core, struct zd_conn *c, const struct zd_send *s, const uint8_t *payload, uint32_t len, uint32_t crc)
{
	Zd__Pb__Data m = ZD__PB__DATA__INIT;
	struct zd_action *item;

	m.unit = s->unit;
	m.first = s->first;
	m.count = s->count;
	m.version = s->version;
	m.last = s->last;
	item = send(core, c, ZD_MSG_DATA, s->stream, &m.base, len, crc);
	item->u.send.payload = payload;
	item->u.send.payload_len = len;
	item->u.send.token = s->token;
}

void zd_emit_close(struct zd_core *core, struct zd_conn *c, int flush)
{
	struct zd_action *item;

	if (c->closing)
		return;
	item = add(core, ZD_ACT_CLOSE);
	item->u.close.id = (struct zd_conn_id){c->slot, c->gen};
	item->u.close.flush = flush != 0;
	zd_conn_abandon(core, c);
	zd_conn_free_head(core, c);
	zd_join_leave(core, c);
	c->fetch_count = 0;
	c->wait = ZD_WAIT_NO;
	c->closing = 1;
}

struct zd_kernel_call *zd_emit_kernel(struct zd_core *core, const struct zd_kernel_open *open)
{
	struct zd_action *item = add(core, ZD_ACT_KERNEL);
	struct zd_kernel_open *k;

	ZD_ASSERT(core->kernel_len < core->kernel_cap);
	k = &core->kernel[(core->kernel_at + core->kernel_len++) % core->kernel_cap];
	*k = *open;
	k->token = ++core->tokens;
	core->job[k->job].kernels++;
	item->u.kernel.token = k->token;
	return &item->u.kernel;
}

void zd_emit_store(struct zd_core *core, struct zd_job *j, enum zd_store_kind kind)
{
	struct zd_action *item = add(core, ZD_ACT_STORE);
	struct zd_store_open *s;

	ZD_ASSERT(core->store_len < ZD_STORES_MAX);
	s = &core->store[(core->store_at + core->store_len++) % ZD_STORES_MAX];
	*s = (struct zd_store_open){++core->tokens, j->slot, j->gen, (uint8_t)kind};
	j->stores++;
	item->u.store.token = s->token;
	item->u.store.kind = kind;
	item->u.store.spec = &j->spec;
	item->u.store.ballot = kind == ZD_STORE_DISCARD ? j->discard_ballot : j->promise;
	item->u.store.record = kind == ZD_STORE_RECORD ? &j->record : NULL;
	item->u.store.decision = kind == ZD_STORE_DECISION ? &j->decision : NULL;
}

void zd_emit_release(struct zd_core *core, void *base, uint64_t len)
{
	struct zd_action *item = add(core, ZD_ACT_RELEASE);

	item->u.release.base = base;
	item->u.release.len = (size_t)len;
	core->released = 1;
}

void zd_emit_log(struct zd_core *core, enum zd_log_level level, const char *format, ...)
{
	struct zd_actions *a = core->act;
	struct zd_action *item;
	size_t room = ZD_ACTION_BYTES - a->used;
	va_list args;
	int n;

	if (a->count >= ZD_ACTIONS_LOG_MAX || room < ZD_TEXT_MAX + 1) /* a line may be lost, an answer never */
		return;
	item = add(core, ZD_ACT_LOG);
	item->u.log.level = level;
	item->u.log.text = a->used;
	va_start(args, format);
	n = vsnprintf((char *)a->bytes + a->used, ZD_TEXT_MAX + 1, format, args);
	va_end(args);
	ZD_ASSERT(n >= 0);
	a->used += (uint32_t)(n > (int)ZD_TEXT_MAX ? (int)ZD_TEXT_MAX : n) + 1;
}

void zd_emit_error(struct zd_core *core, struct zd_conn *c, uint64_t stream, int code, struct zd_about about, const char *format, ...)
{
	Zd__Pb__Error m = ZD__PB__ERROR__INIT;
	struct zd_job *j = zd_job_of(core, c);
	va_list args;

	if (c->closing)
		return;
	va_start(args, format);
	vsnprintf(core->text2, sizeof core->text2, format, args);
	va_end(args);
	/* A prefetch that another worker's APPLY overtakes is no fault of anybody. */
	enum zd_log_level level = code == ZD_ERR_VERSION_GONE ? ZD_LOG_DEBUG : ZD_LOG_WARNING;

	core->errors += level == ZD_LOG_WARNING;
	m.code = (uint32_t)code;
	m.text = core->text2;
	if (j) {
		m.job = j->spec.name;
		m.has_step = 1;
		m.step = j->step;
		if (about.unit < j->spec.unit_count)
			m.unit = j->spec.units[about.unit].name;
	}
	if (about.rank != ZD_NONE) {
		m.has_rank = 1;
		m.rank = about.rank;
	}
	zd_emit(core, c, ZD_MSG_ERROR, stream, &m.base);
	char quoted[ZD_TEXT_QUOTED];

	zd_emit_log(core, level, "event=error code=%s peer=%s job=%s text=%s", zd_err_name(code), c->peer, j ? j->spec.name : "-",
		    zd_text_quote(quoted, sizeof quoted, core->text2));
	if (zd_err_class(code) == ZD_ERR_CLASS_CLOSE)
		zd_emit_close(core, c, 1);
}

static Zd__Pb__Ballot ballot_pb(struct zd_ballot b)
{
	Zd__Pb__Ballot pb = ZD__PB__BALLOT__INIT;

	pb.epoch = b.epoch;
	pb.attempt = b.attempt;
	return pb;
}

void zd_emit_aborted(struct zd_core *core, struct zd_conn *c, uint64_t stream, struct zd_ballot ended, int code, const uint32_t *missing,
		     size_t missing_count, const char *text)
{
	Zd__Pb__Aborted m = ZD__PB__ABORTED__INIT;
	Zd__Pb__Ballot promise = ballot_pb(zd_job_of(core, c)->promise), end = ballot_pb(ended);
	uint32_t ranks[ZD_WORLD_MAX];

	ZD_ASSERT(missing_count <= ZD_WORLD_MAX);
	if (missing_count > 0)
		memcpy(ranks, missing, missing_count * sizeof *ranks);
	m.ballot = &promise;
	m.ended = &end;
	m.code = (uint32_t)code;
	m.text = (char *)text;
	m.missing = ranks;
	m.n_missing = missing_count;
	core->errors++;
	zd_emit(core, c, ZD_MSG_ABORTED, stream, &m.base);
}

void zd_emit_joined(struct zd_core *core, struct zd_conn *c, uint64_t stream)
{
	struct zd_job *j = zd_job_of(core, c);
	const struct zd_worker *w = &j->worker[c->rank];
	Zd__Pb__Joined m = ZD__PB__JOINED__INIT;
	Zd__Pb__Record record;
	Zd__Pb__Decision decision;
	Zd__Pb__Ballot promise = ballot_pb(j->promise), record_ballot, decision_ballot;
	Zd__Pb__Hyper hyper;
	uint8_t norm[ZD_NORMACC_BYTES];

	m.ballot = &promise;
	m.decided = j->decided;
	m.step = j->step;
	m.sealed = j->sealed;
	if (j->state == ZD_ROUND_PREPARED) {
		zd_record_to_pb(&j->record, &record, &record_ballot, &hyper, norm);
		m.prepared = &record;
	}
	if (j->has_decision) {
		zd_decision_to_pb(&j->decision, &decision, &decision_ballot);
		m.decision = &decision;
	}
	memcpy(core->counted, j->pos + (size_t)c->rank * j->spec.unit_count, j->spec.unit_count * sizeof *core->counted);
	m.counted = core->counted;
	m.n_counted = j->spec.unit_count;
	m.credit = j->credit > w->out ? j->credit - w->out : 0;
	zd_emit(core, c, ZD_MSG_JOINED, stream, &m.base);
}

void zd_emit_pushed(struct zd_core *core, struct zd_conn *c, uint64_t stream, uint32_t unit)
{
	struct zd_job *j = zd_job_of(core, c);
	struct zd_worker *w = &j->worker[c->rank];
	Zd__Pb__Pushed m = ZD__PB__PUSHED__INIT;
	Zd__Pb__Ballot promise = ballot_pb(j->promise);

	m.ballot = &promise;
	m.round = j->decided + 1;
	m.unit = unit;
	m.counted = j->pos[(size_t)c->rank * j->spec.unit_count + unit];
	m.freed = w->freed;
	w->told = w->freed;
	zd_emit(core, c, ZD_MSG_PUSHED, stream, &m.base);
}

void zd_emit_prepared(struct zd_core *core, struct zd_conn *c, uint64_t stream)
{
	struct zd_job *j = zd_job_of(core, c);
	Zd__Pb__Prepared m = ZD__PB__PREPARED__INIT;
	Zd__Pb__Record record;
	Zd__Pb__Ballot promise = ballot_pb(j->promise), ballot;
	Zd__Pb__Hyper hyper;
	uint8_t norm[ZD_NORMACC_BYTES];

	zd_record_to_pb(&j->record, &record, &ballot, &hyper, norm);
	m.ballot = &promise;
	m.record = &record;
	zd_emit(core, c, ZD_MSG_PREPARED, stream, &m.base);
}

void zd_emit_applied(struct zd_core *core, struct zd_conn *c, uint64_t stream)
{
	struct zd_job *j = zd_job_of(core, c);
	Zd__Pb__Applied m = ZD__PB__APPLIED__INIT;
	Zd__Pb__Decision decision;
	Zd__Pb__Ballot promise = ballot_pb(j->promise), ballot;

	ZD_ASSERT(j->has_decision);
	zd_decision_to_pb(&j->decision, &decision, &ballot);
	m.ballot = &promise;
	m.decision = &decision;
	zd_emit(core, c, ZD_MSG_APPLIED, stream, &m.base);
}
