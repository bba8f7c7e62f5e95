/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/core_drive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/assert.h"
#include "proto/crc32c.h"
#include "proto/wire.h"
#include "server/kernel/call.h"

#define SLAB_BYTES (2u << 20)	 /* beyond the windows: three of the five jobs at once */
#define PENDING_MAX (1u << 20) /* a peer's socket holds no more */
#define GOOD_NUMEL 4500u /* two extents */
#define IDLES_MAX 100000u

static const struct zd_hyper good_hyper = {
	.lr = 0.01, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .max_norm = 1, .loss_scale = 1};

static void deliver_all(struct cd *d);

/* ---------------------------------------------------------------- specifications */

static void make_spec(struct cd *d, uint32_t i, const char *name, enum zd_optimizer optimizer, enum zd_codec codec, uint32_t extent,
		      const int32_t sizes[4])
{
	struct zd_spec *s = &d->spec[i];
	char text[ZD_TEXT_MAX + 1];
	int rc;

	snprintf(s->name, sizeof(s->name), "%s", name);
	s->optimizer = optimizer;
	s->grad_codec = codec;
	s->extent_elems = extent;
	s->lease_ms = 1000;
	s->units = d->units[i];
	for (; s->unit_count < 4 && sizes[s->unit_count] != 0; s->unit_count++) {
		struct zd_unit_spec *u = &d->units[i][s->unit_count];
		int32_t n = sizes[s->unit_count];

		snprintf(u->name, sizeof(u->name), "u%u", s->unit_count);
		u->numel = (uint64_t)(n < 0 ? -n : n);
		u->frozen = n < 0;
	}
	rc = zd_spec_check(s, text, sizeof(text));
	ZD_ASSERT(rc == 0);
}

static void make_specs(struct cd *d)
{
	make_spec(d, 0, "a", ZD_OPT_ADAMW, ZD_CODEC_BF16, 4096, (int32_t[4]){9000, -5000, 1, 4096});
	make_spec(d, 1, "b", ZD_OPT_NONE, ZD_CODEC_BF16, 4096, (int32_t[4]){8192, 7});
	make_spec(d, 2, "c", ZD_OPT_ADAM_L2, ZD_CODEC_FP32, 8192, (int32_t[4]){20000, 3});
	make_spec(d, 3, "d", ZD_OPT_NONE, ZD_CODEC_FP16, 4096, (int32_t[4]){4097});
	make_spec(d, CD_SPECS, "good", ZD_OPT_ADAMW, ZD_CODEC_BF16, 4096, (int32_t[4]){GOOD_NUMEL});
}

/* ---------------------------------------------------------------- actions */

static int within(const void *at, size_t len, const void *base, uint64_t size)
{
	uintptr_t a = (uintptr_t)at, b = (uintptr_t)base;

	return a >= b && a - b <= size && len <= size - (a - b);
}

static void in_slab(const struct cd *d, const void *at, size_t len)
{
	ZD_ASSERT(within(at, len, d->config.slab, d->config.slab_bytes));
}

static void note_frame(struct cd_conn *c, const struct zd_header *h, const uint8_t *head)
{
	static uint8_t memory[ZD_ARENA_BYTES];
	const ProtobufCMessage *m;
	struct zd_arena arena;
	char text[ZD_TEXT_MAX + 1];
	int rc;

	zd_arena_init(&arena, memory, sizeof(memory));
	rc = zd_wire_decode(&arena, h->type, head, h->head_len, &m, text, sizeof(text));
	ZD_ASSERT(rc == 0);
	rc = zd_wire_check_payload(h->type, m, h->payload_len, text, sizeof(text));
	ZD_ASSERT(rc == 0);
	c->got[h->type]++;
	if (h->type == ZD_MSG_PREPARED)
		ZD_ASSERT(zd_record_from_pb(&c->record, ((const Zd__Pb__Prepared *)m)->record) == 0);
}

static void take_send(struct cd *d, const struct zd_action *a)
{
	struct cd_conn *c = &d->conn[a->u.send.id.slot];
	const uint8_t *frame = d->actions->bytes + a->u.send.frame;
	struct zd_header h;
	uint32_t at;

	ZD_ASSERT(a->u.send.id.gen == c->gen && c->open && !c->closing);
	ZD_ASSERT(zd_header_decode(frame, ZD_SIDE_SERVER, &h) == 0);
	ZD_ASSERT(h.head_len + ZD_HEADER_BYTES == a->u.send.frame_len && h.payload_len == a->u.send.payload_len);
	note_frame(c, &h, frame + ZD_HEADER_BYTES);
	if (h.payload_len == 0)
		return;
	in_slab(d, a->u.send.payload, h.payload_len);
	ZD_ASSERT(c->lent_count < CD_LENT && a->u.send.token != 0);
	at = (c->lent_at + c->lent_count++) % CD_LENT;
	c->lent[at].token = a->u.send.token;
	c->lent[at].at = a->u.send.payload;
	c->lent[at].len = h.payload_len;
	c->lent[at].crc = zd_crc32c(0, a->u.send.payload, h.payload_len);
	ZD_ASSERT(h.payload_crc == c->lent[at].crc || h.payload_crc == 0);
	c->data_crc = zd_crc32c(c->data_crc, a->u.send.payload, h.payload_len);
}

static void check_operands(const struct cd *d, const struct zd_kernel_call *c)
{
	static const uint8_t a_bytes[] = {[ZD_FORM_BF16_1] = 2, [ZD_FORM_BF16_2] = 2, [ZD_FORM_FP32] = 4};
	size_t n = c->n, a = zd_codec_bytes((enum zd_codec)c->codec);

	ZD_ASSERT(n > 0 && n <= ZD_EXTENT_ELEMS_MAX);
	if (c->op == ZD_KERNEL_ADAM || c->op == ZD_KERNEL_WIDEN)
		a = a_bytes[c->form];
	if (c->op == ZD_KERNEL_CHECK || c->op == ZD_KERNEL_NORM_1 || c->op == ZD_KERNEL_NORM_2)
		a = 2;
	if (c->checked)
		in_slab(d, c->checked, n * 2);
	if (c->op != ZD_KERNEL_MERGE)
		in_slab(d, c->a, n * a);
	if (c->b)
		in_slab(d, c->b, n * 2);
	if (c->op == ZD_KERNEL_ACC_SET || c->op == ZD_KERNEL_ACC_ADD || c->op == ZD_KERNEL_MERGE || c->op == ZD_KERNEL_WIDEN)
		in_slab(d, c->dst, n * 4);
	if (c->op == ZD_KERNEL_ADAM || c->op == ZD_KERNEL_SPLIT || c->op == ZD_KERNEL_MERGE) {
		in_slab(d, c->hi, n * 2);
		in_slab(d, c->lo, n * 2);
	}
	if (c->op == ZD_KERNEL_ADAM) {
		in_slab(d, c->m, n * 4);
		in_slab(d, c->v, n * 4);
	}
}

#define RESULTS 2048u
static struct {
	uint32_t head, count;
	struct zd_kernel_result result[RESULTS];
} results;

static void take_store(struct cd *d, const struct zd_action *a)
{
	uint32_t at = (d->store_at + d->store_count) % CD_STORES;

	ZD_ASSERT(d->store_count < CD_STORES);
	d->store[at].token = a->u.store.token;
	d->store[at].good = strcmp(a->u.store.spec->name, "good") == 0;
	d->store_count++;
}

static void carry_out(struct cd *d)
{
	static struct zd_kernel_scratch scratch;
	for (uint32_t i = 0; i < d->actions->count; i++) {
		const struct zd_action *a = &d->actions->item[i];
		uint32_t at = (results.head + results.count) % RESULTS;

		switch (a->type) {
		case ZD_ACT_SEND: take_send(d, a); break;
		case ZD_ACT_CLOSE:
			ZD_ASSERT(d->conn[a->u.close.id.slot].gen == a->u.close.id.gen && !d->conn[a->u.close.id.slot].closing);
			d->conn[a->u.close.id.slot].closing = 1;
			break;
		case ZD_ACT_KERNEL:
			ZD_ASSERT(results.count < RESULTS);
			check_operands(d, &a->u.kernel);
			zd_kernel_call(zd_kernels_scalar(), &a->u.kernel, &scratch, &results.result[at]);
			results.count++;
			break;
		case ZD_ACT_STORE: take_store(d, a); break;
		case ZD_ACT_RELEASE:
			in_slab(d, a->u.release.base, a->u.release.len);
			memset(a->u.release.base, 0xdb, a->u.release.len);
			break;
		case ZD_ACT_LOG: ZD_ASSERT(memchr(d->actions->bytes + a->u.log.text, 0, ZD_TEXT_MAX + 1) != NULL); break;
		}
	}
}

/* One event and the kernels that follow from it. */
static void step(struct cd *d, struct zd_event *ev)
{
	struct zd_event done;

	ZD_ASSERT(results.count == 0);
	ev->now = d->now;
	zd_core_step(d->core, ev, d->actions);
	carry_out(d);
	while (results.count > 0) {
		zd_kernel_event(&results.result[results.head], &done);
		done.now = d->now;
		zd_core_step(d->core, &done, d->actions);
		results.head = (results.head + 1) % RESULTS;
		results.count--;
		carry_out(d);
	}
}

/* ---------------------------------------------------------------- completions */

static void complete_store(struct cd *d, int status)
{
	struct zd_event ev = {.type = ZD_EV_STORED};

	ev.u.stored.token = d->store[d->store_at].token;
	ev.u.stored.status = d->store[d->store_at].good ? 0 : status;
	d->store_at = (d->store_at + 1) % CD_STORES;
	d->store_count--;
	step(d, &ev);
}

static void check_lent(const struct cd_conn *c)
{
	const uint32_t at = c->lent_at;

	ZD_ASSERT(c->lent[at].crc == zd_crc32c(0, c->lent[at].at, c->lent[at].len));
}

static void complete_sent(struct cd *d, uint32_t slot)
{
	struct zd_event ev = {.type = ZD_EV_SENT};
	struct cd_conn *c = &d->conn[slot];

	check_lent(c);
	ev.u.sent.id = (struct zd_conn_id){slot, c->gen};
	ev.u.sent.token = c->lent[c->lent_at].token;
	c->lent_at = (c->lent_at + 1) % CD_LENT;
	c->lent_count--;
	step(d, &ev);
}

static void complete_closed(struct cd *d, uint32_t slot)
{
	struct zd_event ev = {.type = ZD_EV_CLOSED};
	struct cd_conn *c = &d->conn[slot];

	for (; c->lent_count > 0; c->lent_count--) {
		check_lent(c);
		c->lent_at = (c->lent_at + 1) % CD_LENT;
	}
	c->open = 0;
	c->pending_len = 0;
	ev.u.closed.id = (struct zd_conn_id){slot, c->gen};
	step(d, &ev);
}

static int complete_one(struct cd *d)
{
	if (d->store_count > 0 && !d->hold_store) {
		complete_store(d, 0);
		return 1;
	}
	for (uint32_t i = 0; i < CD_CONNS; i++) {
		if (d->conn[i].open && d->conn[i].closing) {
			complete_closed(d, i);
			return 1;
		}
		if (d->conn[i].open && d->conn[i].lent_count > 0 && (!d->hold_sent || i == CD_GOOD)) {
			complete_sent(d, i);
			return 1;
		}
	}
	return 0;
}

/* As much of what waits as the core reads: 1 if anything was. */
static int deliver(struct cd *d, uint32_t slot)
{
	struct cd_conn *c = &d->conn[slot];
	struct zd_event ev = {.type = ZD_EV_BYTES};
	struct zd_span w;
	size_t n = c->pending_len;

	if (!c->open || c->closing || n == 0)
		return 0;
	w = zd_core_window(d->core, (struct zd_conn_id){slot, c->gen});
	if (w.len == 0)
		return 0;
	ZD_ASSERT(within(w.base, w.len, d->config.slab, d->config.slab_bytes) || within(w.base, w.len, d->core, d->arena_bytes));
	n = n < w.len ? n : w.len;
	if (d->chunk > 0 && n > d->chunk)
		n = d->chunk;
	memcpy(w.base, c->pending + c->pending_at, n);
	c->pending_at += n;
	c->pending_len -= n;
	ev.u.bytes.id = (struct zd_conn_id){slot, c->gen};
	ev.u.bytes.len = n;
	step(d, &ev);
	return 1;
}

static void deliver_all(struct cd *d)
{
	int again = 1;

	while (again) {
		again = 0;
		for (uint32_t i = 0; i < CD_CONNS; i++)
			again |= deliver(d, i);
		while (complete_one(d))
			again = 1;
	}
}

/* ---------------------------------------------------------------- what may happen */

void cd_connect(struct cd *d, uint32_t slot, enum zd_role role, uint64_t features)
{
	struct zd_event ev = {.type = ZD_EV_CONN};
	struct cd_conn *c = &d->conn[slot];

	if (c->open)
		cd_disconnect(d, slot);
	c->gen++;
	c->open = 1;
	c->closing = 0;
	c->role = (uint8_t)role;
	c->lent_count = 0;
	c->pending_len = 0;
	ev.u.conn.id = (struct zd_conn_id){slot, c->gen};
	ev.u.conn.role = role;
	ev.u.conn.features = features;
	ev.u.conn.peer = "peer";
	step(d, &ev);
	deliver_all(d);
}

void cd_disconnect(struct cd *d, uint32_t slot)
{
	if (!d->conn[slot].open)
		return;
	complete_closed(d, slot);
	deliver_all(d);
}

void cd_post(struct cd *d, uint32_t slot, const uint8_t *bytes, size_t len)
{
	struct cd_conn *c = &d->conn[slot];

	if (len == 0 || !c->open || c->closing || c->pending_len + len > PENDING_MAX)
		return;
	if (c->pending_len > 0)
		memmove(c->pending, c->pending + c->pending_at, c->pending_len);
	c->pending_at = 0;
	if (c->pending_len + len > c->pending_cap) {
		c->pending_cap = 2 * (c->pending_len + len);
		c->pending = realloc(c->pending, c->pending_cap);
		ZD_ASSERT(c->pending != NULL);
	}
	memcpy(c->pending + c->pending_len, bytes, len);
	c->pending_len += len;
	d->frames += slot != CD_GOOD;
	deliver_all(d);
}

void cd_stored(struct cd *d, int status)
{
	if (d->store_count > 0)
		complete_store(d, status);
	deliver_all(d);
}

void cd_sent(struct cd *d, uint32_t slot)
{
	if (d->conn[slot].open && d->conn[slot].lent_count > 0)
		complete_sent(d, slot);
	deliver_all(d);
}

void cd_time(struct cd *d, uint64_t ms)
{
	struct zd_event ev = {.type = ZD_EV_TICK};
	zd_time to = d->now + ZD_MS(ms), at;

	while ((at = zd_core_deadline(d->core)) <= to) {
		d->now = at > d->now ? at : d->now;
		step(d, &ev);
		ZD_ASSERT(zd_core_deadline(d->core) > d->now); /* one that stays in the past makes a lane spin */
		deliver_all(d);
	}
	d->now = to;
	deliver_all(d);
}

void cd_idle(struct cd *d, uint32_t times)
{
	for (; times > 0 && zd_core_wants_idle(d->core); times--) {
		struct zd_event ev = {.type = ZD_EV_IDLE};

		step(d, &ev);
		deliver_all(d);
	}
}

void cd_drain(struct cd *d)
{
	struct zd_event ev = {.type = ZD_EV_DRAIN};

	d->draining = 1;
	step(d, &ev);
	deliver_all(d);
	zd_core_drained(d->core);
}

int cd_view(const struct cd *d, uint32_t spec, struct zd_job_view *ret_view)
{
	return zd_core_job_view(d->core, d->spec[spec].name, ret_view);
}

/* ---------------------------------------------------------------- the worker that behaves */

static void say(struct cd *d, uint16_t type, const ProtobufCMessage *m, const void *payload, uint32_t len)
{
	static uint8_t frame[ZD_PAYLOAD_MAX];
	size_t n = zd_wire_encode(frame, sizeof(frame), type, 1, m, len, len ? zd_crc32c(0, payload, len) : 0);

	if (len > 0)
		memcpy(frame + n, payload, len);
	cd_post(d, CD_GOOD, frame, n + len);
	cd_idle(d, IDLES_MAX);
}

/* The answer must have come by now, and nothing that says no. */
static void expect(const struct cd *d, uint16_t type, uint32_t count)
{
	const struct cd_conn *c = &d->conn[CD_GOOD];

	ZD_ASSERT(c->got[ZD_MSG_ERROR] == 0 && c->got[ZD_MSG_ABORTED] == 0);
	ZD_ASSERT(c->got[type] == count);
}

static void good_open(struct cd *d)
{
	static float weights[GOOD_NUMEL];
	Zd__Pb__Open open = ZD__PB__OPEN__INIT;
	Zd__Pb__Load load = ZD__PB__LOAD__INIT;
	Zd__Pb__Seal seal = ZD__PB__SEAL__INIT;
	Zd__Pb__Join join = ZD__PB__JOIN__INIT;
	Zd__Pb__Ballot ballot = ZD__PB__BALLOT__INIT;
	Zd__Pb__JobSpec spec;
	Zd__Pb__Unit units[4], *ptrs[4];

	cd_connect(d, CD_GOOD, ZD_ROLE_WORKER, ZD_FEATURE_PAYLOAD_CRC);
	zd_spec_to_pb(&d->spec[CD_SPECS], &spec, units, ptrs);
	open.spec = &spec;
	open.lane_count = 1;
	open.has_create = open.create = 1;
	say(d, ZD_MSG_OPEN, &open.base, NULL, 0);
	expect(d, ZD_MSG_OPENED, 1);
	for (uint32_t i = 0; i < GOOD_NUMEL; i++)
		weights[i] = (float)(i % 97) * 0.125f - 6.0f;
	load.count = GOOD_NUMEL;
	load.codec = ZD_CODEC_FP32;
	say(d, ZD_MSG_LOAD, &load.base, weights, sizeof(weights));
	expect(d, ZD_MSG_LOADED, 1);
	say(d, ZD_MSG_SEAL, &seal.base, NULL, 0);
	expect(d, ZD_MSG_SEALED, 1);
	ballot.epoch = 1;
	join.ballot = &ballot;
	join.world = 1;
	say(d, ZD_MSG_JOIN, &join.base, NULL, 0);
	expect(d, ZD_MSG_JOINED, 1);
}

static void good_push(struct cd *d, Zd__Pb__Ballot *ballot, uint64_t round)
{
	static uint16_t grad[GOOD_NUMEL];
	Zd__Pb__Push push = ZD__PB__PUSH__INIT;

	for (uint32_t i = 0; i < GOOD_NUMEL; i++)
		grad[i] = (uint16_t)(0x3c00 + (i * 7 + round) % 512); /* around 0.01 */
	push.ballot = ballot;
	push.round = round;
	push.micro_batches = 1;
	push.codec = ZD_CODEC_BF16;
	for (uint32_t at = 0; at < GOOD_NUMEL; at += 4096) {
		push.first = at;
		push.count = GOOD_NUMEL - at < 4096 ? GOOD_NUMEL - at : 4096;
		say(d, ZD_MSG_PUSH, &push.base, grad + at, 2 * push.count);
	}
	expect(d, ZD_MSG_PUSHED, (uint32_t)round);
}

static void good_round(struct cd *d)
{
	uint64_t round = ++d->good_rounds;
	Zd__Pb__Ballot ballot = ZD__PB__BALLOT__INIT, name;
	Zd__Pb__Commit commit = ZD__PB__COMMIT__INIT;
	Zd__Pb__Apply apply = ZD__PB__APPLY__INIT;
	Zd__Pb__Decision pb;
	Zd__Pb__Hyper hyper;
	uint32_t counts[1] = {1};
	struct zd_decision decision;
	char text[ZD_TEXT_MAX + 1];
	int rc;

	ballot.epoch = 1;
	good_push(d, &ballot, round);
	zd_hyper_to_pb(&good_hyper, &hyper);
	commit.ballot = &ballot;
	commit.round = round;
	commit.micro_batches = 1;
	commit.hyper = &hyper;
	commit.counts = counts;
	commit.n_counts = 1;
	say(d, ZD_MSG_COMMIT, &commit.base, NULL, 0);
	expect(d, ZD_MSG_PREPARED, (uint32_t)round);
	rc = zd_decide(&d->conn[CD_GOOD].record, 1, round - 1, &decision, text, sizeof(text));
	ZD_ASSERT(rc == 0 && decision.applied);
	zd_decision_to_pb(&decision, &pb, &name);
	apply.ballot = &ballot;
	apply.decision = &pb;
	say(d, ZD_MSG_APPLY, &apply.base, NULL, 0);
	expect(d, ZD_MSG_APPLIED, (uint32_t)round);
}

static uint32_t good_weights(struct cd *d)
{
	Zd__Pb__Fetch fetch = ZD__PB__FETCH__INIT;

	fetch.count = GOOD_NUMEL;
	fetch.plane = 2;
	fetch.mode = 2;
	fetch.version = d->good_rounds;
	d->conn[CD_GOOD].data_crc = 0;
	say(d, ZD_MSG_FETCH, &fetch.base, NULL, 0);
	expect(d, ZD_MSG_DATA, 2);
	return d->conn[CD_GOOD].data_crc;
}

/* ---------------------------------------------------------------- all of it */

/* Mapped once: a fuzzer makes a hundred cores a second.  One lives at a time. */
static void borrow_memory(struct cd *d)
{
	static void *slab, *actions;

	if (!slab) {
		uint64_t most = SLAB_BYTES + (uint64_t)CD_WINDOWS_MAX * ZD_PAYLOAD_MAX;

		slab = aligned_alloc(4096, most);
		actions = malloc(sizeof(*d->actions));
		ZD_ASSERT(slab && actions);
		memset(slab, 0xa5, most); /* the slab need not be clean */
	}
	d->config.slab = slab;
	d->actions = actions;
}

static void make(struct cd *d, uint32_t windows)
{
	memset(d, 0, sizeof(*d));
	ZD_ASSERT(windows <= CD_WINDOWS_MAX);
	zd_kernels_thread_init();
	make_specs(d);
	d->now = ZD_SEC(1000);
	d->config = (struct zd_core_config){.max_conns = CD_CONNS, .max_jobs = 4, .windows = windows, .uuid_seed = 42, .daemon = "test",
					    .kernels = "scalar", .now = d->now};
	d->config.slab_bytes = SLAB_BYTES + (uint64_t)windows * ZD_PAYLOAD_MAX;
	borrow_memory(d);
	d->arena_bytes = (zd_core_arena_bytes(&d->config) + 63) / 64 * 64;
	d->core = aligned_alloc(64, d->arena_bytes); /* exactly as large as the core asked for */
	ZD_ASSERT(d->core != NULL);
	memset((void *)d->core, 0, d->arena_bytes);
	ZD_ASSERT(zd_core_init(d->core, &d->config) == d->core);
	good_open(d);
	good_round(d);
}

void cd_fini(struct cd *d)
{
	for (uint32_t i = 0; i < CD_CONNS; i++)
		free(d->conn[i].pending);
	free(d->core);
}

/* What the good worker must read after two rounds, whatever the peers did meanwhile. */
static uint32_t undisturbed(void)
{
	static uint32_t crc;
	static int known;
	struct cd d;

	if (known)
		return crc;
	make(&d, 8);
	good_round(&d);
	crc = good_weights(&d);
	cd_fini(&d);
	known = 1;
	return crc;
}

void cd_init(struct cd *d, uint32_t windows)
{
	undisturbed();
	make(d, windows);
}

void cd_finish(struct cd *d)
{
	d->hold_store = d->hold_sent = 0;
	d->chunk = 0;
	deliver_all(d);
	cd_idle(d, IDLES_MAX);
	ZD_ASSERT(!zd_core_wants_idle(d->core));
	ZD_ASSERT(d->store_count == 0);
	if (!d->draining)
		good_round(d);
	if (d->good_rounds == 2)
		ZD_ASSERT(good_weights(d) == undisturbed());
	for (uint32_t i = 0; i < CD_CONNS; i++)
		cd_disconnect(d, i);
	cd_idle(d, IDLES_MAX);
	ZD_ASSERT(!zd_core_wants_idle(d->core));
}
