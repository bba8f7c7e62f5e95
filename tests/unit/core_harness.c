/* SPDX-License-Identifier: Apache-2.0 */
#include "core_harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "proto/crc32c.h"
#include "server/kernel/call.h"

const struct zd_hyper hz_hyper = {.lr = 0.01, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .max_norm = 1, .loss_scale = 1};

static void failed(const char *file, int line, const char *what)
{
	print_error("assertion %s at %s:%d\n", what, file, line);
	_fail(file, line);
}

static void make_core(struct hz *h)
{
	size_t size = (zd_core_arena_bytes(&h->config) + 63) / 64 * 64;
	void *arena = aligned_alloc(64, size);

	assert_non_null(arena);
	memset(arena, 0, size);
	h->core = zd_core_init(arena, &h->config);
	assert_ptr_equal((void *)h->core, arena);
}

struct hz *hz_new(uint32_t windows, uint64_t slab)
{
	struct hz *h = calloc(1, sizeof *h);

	assert_non_null(h);
	zd_assert_failed = failed;
	zd_kernels_thread_init();
	h->actions = malloc(sizeof *h->actions);
	h->config.max_conns = HZ_CONNS;
	h->config.max_jobs = 4;
	h->config.windows = windows;
	h->config.uuid_seed = 42;
	h->config.daemon = "test";
	h->config.kernels = "scalar";
	h->config.slab_bytes = slab + (uint64_t)windows * ZD_PAYLOAD_MAX;
	h->config.slab = aligned_alloc(4096, (h->config.slab_bytes + 4095) / 4096 * 4096);
	assert_non_null(h->config.slab);
	memset(h->config.slab, 0xa5, h->config.slab_bytes); /* the slab need not be clean */
	h->now = ZD_SEC(1000);
	h->config.now = h->now;
	make_core(h);
	zd_arena_init(&h->arena, malloc(ZD_ARENA_BYTES), ZD_ARENA_BYTES);
	return h;
}

static void free_slab(struct hz *h)
{
	if (h->mapped)
		munmap(h->config.slab, h->config.slab_bytes);
	else
		free(h->config.slab);
}

void hz_large(struct hz *h, uint64_t bytes)
{
	free(h->core);
	free_slab(h);
	h->config.slab_bytes = bytes;
	h->config.slab = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_ptr_not_equal(h->config.slab, MAP_FAILED);
	h->mapped = 1;
	make_core(h);
}

static void free_frame(struct hz_frame *f)
{
	free(f->bytes);
	free(f->payload);
	memset(f, 0, sizeof *f);
}

void hz_drain(struct hz *h, uint32_t slot)
{
	struct hz_conn *c = &h->conn[slot];

	while (c->count > 0) {
		free_frame(&c->frame[c->head]);
		c->head = (c->head + 1) % HZ_FRAMES;
		c->count--;
	}
}

void hz_free(struct hz *h)
{
	for (uint32_t i = 0; i < HZ_CONNS; i++)
		hz_drain(h, i);
	free_frame(&h->last);
	free(h->arena.base);
	free(h->core);
	free_slab(h);
	free(h->actions);
	free(h);
}

void hz_restart(struct hz *h)
{
	for (uint32_t i = 0; i < HZ_CONNS; i++) {
		hz_drain(h, i);
		h->conn[i].open = h->conn[i].closing = 0;
		h->conn[i].lent_count = h->conn[i].lent_head = 0;
	}
	h->store_count = h->store_head = 0;
	free(h->core);
	memset(h->config.slab, 0x5a, h->config.slab_bytes);
	make_core(h);
}

void hz_spec(struct hz *h, const char *name, enum zd_optimizer optimizer, enum zd_codec codec, uint32_t extent_elems, int count,
	     const int64_t *sizes)
{
	char text[ZD_TEXT_MAX + 1];

	memset(&h->spec, 0, sizeof h->spec);
	snprintf(h->spec.name, sizeof h->spec.name, "%s", name);
	h->spec.optimizer = optimizer;
	h->spec.grad_codec = codec;
	h->spec.extent_elems = extent_elems;
	h->spec.lease_ms = 1000;
	h->spec.unit_count = (uint32_t)count;
	h->spec.units = h->units;
	memset(h->units, 0, sizeof h->units);
	for (int i = 0; i < count; i++) {
		snprintf(h->units[i].name, sizeof h->units[i].name, "u%d", i);
		h->units[i].numel = (uint64_t)(sizes[i] < 0 ? -sizes[i] : sizes[i]);
		h->units[i].frozen = sizes[i] < 0;
	}
	assert_int_equal(zd_spec_check(&h->spec, text, sizeof text), 0);
}

/* ---------------------------------------------------------------- actions */

static void take_send(struct hz *h, const struct zd_action *a)
{
	struct hz_conn *c = &h->conn[a->u.send.id.slot];
	struct hz_frame *f;
	struct zd_header header;

	assert_int_equal(a->u.send.id.gen, c->gen);
	assert_true(c->open && !c->closing);
	assert_true(c->count < HZ_FRAMES);
	f = &c->frame[(c->head + c->count++) % HZ_FRAMES];
	f->len = a->u.send.frame_len;
	f->bytes = malloc(f->len);
	memcpy(f->bytes, h->actions->bytes + a->u.send.frame, f->len);
	assert_int_equal(zd_header_decode(f->bytes, ZD_SIDE_SERVER, &header), 0);
	assert_int_equal(header.payload_len, a->u.send.payload_len);
	assert_int_equal(header.head_len + ZD_HEADER_BYTES, f->len);
	f->type = header.type;
	f->stream = header.stream;
	f->token = a->u.send.token;
	f->payload_len = a->u.send.payload_len;
	if (f->payload_len == 0) {
		assert_int_equal(f->token, 0);
		return;
	}
	f->payload = malloc(f->payload_len);
	memcpy(f->payload, a->u.send.payload, f->payload_len);
	assert_int_equal(header.payload_crc, zd_crc32c(0, f->payload, f->payload_len));
	assert_true(c->lent_count < 8); /* ZD_SENDS_MAX */
	c->lent[(c->lent_head + c->lent_count) % 64].token = f->token;
	c->lent[(c->lent_head + c->lent_count) % 64].at = a->u.send.payload;
	c->lent[(c->lent_head + c->lent_count) % 64].len = f->payload_len;
	c->lent[(c->lent_head + c->lent_count) % 64].crc = header.payload_crc;
	c->lent_count++;
}

/* Bytes that were lent must be what they were when they were sent. */
static void check_lent(struct hz *h)
{
	for (uint32_t i = 0; i < HZ_CONNS; i++)
		for (uint32_t n = 0; n < h->conn[i].lent_count; n++) {
			uint32_t at = (h->conn[i].lent_head + n) % 64;

			assert_int_equal(h->conn[i].lent[at].crc, zd_crc32c(0, h->conn[i].lent[at].at, h->conn[i].lent[at].len));
		}
}

struct queue {
	uint32_t head, count;
	struct zd_kernel_result result[512];
};

/* What the pages hold then is nothing: whoever has them again must not have written before. */
static void give_back(struct hz *h, const struct zd_action *a)
{
	if (h->mapped)
		assert_int_equal(madvise(a->u.release.base, a->u.release.len, MADV_DONTNEED), 0);
	else
		memset(a->u.release.base, 0, a->u.release.len);
}

static void carry_out(struct hz *h, struct queue *q)
{
	static struct zd_kernel_scratch scratch;
	uint32_t kernels = 0, sends = 0;

	for (uint32_t i = 0; i < h->actions->count; i++) {
		const struct zd_action *a = &h->actions->item[i];
		uint32_t at = (q->head + q->count) % 512;

		switch (a->type) {
		case ZD_ACT_SEND:
			take_send(h, a);
			sends += a->u.send.payload_len > 0;
			break;
		case ZD_ACT_CLOSE: h->conn[a->u.close.id.slot].closing = 1; break;
		case ZD_ACT_KERNEL:
			h->kernels[a->u.kernel.op]++;
			zd_kernel_call(zd_kernels_scalar(), &a->u.kernel, &scratch, &q->result[at]);
			q->count++;
			kernels++;
			break;
		case ZD_ACT_STORE:
			h->store[(h->store_head + h->store_count) % 64].token = a->u.store.token;
			h->store[(h->store_head + h->store_count++) % 64].kind = a->u.store.kind;
			break;
		case ZD_ACT_RELEASE:
			h->released++;
			give_back(h, a);
			break;
		case ZD_ACT_LOG: snprintf(h->logged, sizeof h->logged, "%s", (char *)h->actions->bytes + a->u.log.text); break;
		}
	}
	h->most_kernels = kernels > h->most_kernels ? kernels : h->most_kernels;
	h->most_sends = sends > h->most_sends ? sends : h->most_sends;
	check_lent(h);
}

static int next_event(struct hz *h, struct queue *q, struct zd_event *ev)
{
	memset(ev, 0, sizeof *ev);
	ev->now = h->now;
	if (q->count > 0) {
		zd_kernel_event(&q->result[q->head], ev);
		ev->now = h->now;
		q->head = (q->head + 1) % 512;
		q->count--;
		return 1;
	}
	if (h->store_count > 0 && !h->hold_store) {
		ev->type = ZD_EV_STORED;
		ev->u.stored.token = h->store[h->store_head].token;
		h->store_head = (h->store_head + 1) % 64;
		h->store_count--;
		return 1;
	}
	for (uint32_t i = 0; i < HZ_CONNS; i++) {
		struct hz_conn *c = &h->conn[i];

		if (c->open && c->closing && !h->hold_closed) {
			ev->type = ZD_EV_CLOSED;
			ev->u.closed.id = (struct zd_conn_id){i, c->gen};
			c->open = 0;
			c->lent_count = 0;
			return 1;
		}
		if (c->open && c->lent_count > 0 && !h->hold_sent) {
			ev->type = ZD_EV_SENT;
			ev->u.sent.id = (struct zd_conn_id){i, c->gen};
			ev->u.sent.token = c->lent[c->lent_head].token;
			c->lent_head = (c->lent_head + 1) % 64;
			c->lent_count--;
			return 1;
		}
	}
	return 0;
}

void hz_step(struct hz *h, struct zd_event *ev)
{
	static struct queue q;
	struct zd_event next;

	assert_int_equal(q.count, 0);
	ev->now = h->now;
	zd_core_step(h->core, ev, h->actions);
	carry_out(h, &q);
	while (next_event(h, &q, &next)) {
		zd_core_step(h->core, &next, h->actions);
		carry_out(h, &q);
	}
}

/* ---------------------------------------------------------------- events */

void hz_connect(struct hz *h, uint32_t slot, enum zd_role role)
{
	struct zd_event ev = {.type = ZD_EV_CONN};
	struct hz_conn *c = &h->conn[slot];

	assert_false(c->open);
	hz_drain(h, slot);
	c->gen++;
	c->open = 1;
	c->closing = 0;
	c->lent_count = 0;
	ev.u.conn.id = (struct zd_conn_id){slot, c->gen};
	ev.u.conn.role = role;
	ev.u.conn.features = ZD_FEATURE_PAYLOAD_CRC;
	ev.u.conn.peer = "peer";
	hz_step(h, &ev);
}

void hz_disconnect(struct hz *h, uint32_t slot)
{
	struct zd_event ev = {.type = ZD_EV_CLOSED};

	assert_true(h->conn[slot].open);
	h->conn[slot].open = 0;
	h->conn[slot].lent_count = 0;
	ev.u.closed.id = (struct zd_conn_id){slot, h->conn[slot].gen};
	hz_step(h, &ev);
}

size_t hz_feed(struct hz *h, uint32_t slot, const void *bytes, size_t len)
{
	const uint8_t *at = bytes;
	size_t left = len;

	while (left > 0) {
		struct zd_event ev = {.type = ZD_EV_BYTES};
		struct zd_span w = zd_core_window(h->core, (struct zd_conn_id){slot, h->conn[slot].gen});
		size_t n = w.len < left ? w.len : left;

		if (w.len == 0)
			break;
		if (h->chunk > 0 && n > h->chunk)
			n = h->chunk;
		memcpy(w.base, at, n);
		at += n;
		left -= n;
		ev.u.bytes.id = (struct zd_conn_id){slot, h->conn[slot].gen};
		ev.u.bytes.len = n;
		hz_step(h, &ev);
	}
	return len - left;
}

void hz_bytes(struct hz *h, uint32_t slot, const void *bytes, size_t len)
{
	size_t n = hz_feed(h, slot, bytes, len);

	if (!h->conn[slot].closing)
		assert_int_equal(n, len);
}

size_t hz_encode(uint8_t *out, size_t size, uint16_t type, uint64_t stream, const ProtobufCMessage *msg, const void *payload, uint32_t len)
{
	size_t n = zd_wire_encode(out, size, type, stream, msg, len, len ? zd_crc32c(0, payload, len) : 0);

	assert_true(n + len <= size);
	if (len > 0)
		memcpy(out + n, payload, len);
	return n + len;
}

void hz_send(struct hz *h, uint32_t slot, uint16_t type, uint64_t stream, const ProtobufCMessage *msg, const void *payload, uint32_t len)
{
	static uint8_t buf[ZD_PAYLOAD_MAX + ZD_HEAD_OPEN_MAX + 64];

	hz_bytes(h, slot, buf, hz_encode(buf, sizeof buf, type, stream, msg, payload, len));
}

void hz_stored(struct hz *h, int status)
{
	struct zd_event ev = {.type = ZD_EV_STORED};

	assert_true(h->store_count > 0);
	ev.u.stored.token = h->store[h->store_head].token;
	ev.u.stored.status = status;
	h->store_head = (h->store_head + 1) % 64;
	h->store_count--;
	hz_step(h, &ev);
}

void hz_sent(struct hz *h, uint32_t slot)
{
	struct zd_event ev = {.type = ZD_EV_SENT};
	struct hz_conn *c = &h->conn[slot];

	assert_true(c->lent_count > 0);
	ev.u.sent.id = (struct zd_conn_id){slot, c->gen};
	ev.u.sent.token = c->lent[c->lent_head].token;
	c->lent_head = (c->lent_head + 1) % 64;
	c->lent_count--;
	hz_step(h, &ev);
}

void hz_idle(struct hz *h)
{
	for (int i = 0; zd_core_wants_idle(h->core); i++) {
		struct zd_event ev = {.type = ZD_EV_IDLE};

		assert_true(i < 10000);
		hz_step(h, &ev);
	}
}

void hz_away(struct hz *h, uint64_t ms)
{
	h->now += ZD_MS(ms);
}

void hz_tick(struct hz *h)
{
	struct zd_event ev = {.type = ZD_EV_TICK};

	if (zd_core_deadline(h->core) <= h->now)
		hz_step(h, &ev);
}

void hz_time(struct hz *h, uint64_t ms)
{
	zd_time to = h->now + ZD_MS(ms), at;

	while ((at = zd_core_deadline(h->core)) <= to) {
		h->now = at > h->now ? at : h->now;
		hz_tick(h);
		assert_true(zd_core_deadline(h->core) > h->now); /* one that stays in the past makes a lane spin */
	}
	h->now = to;
}

/* ---------------------------------------------------------------- frames out */

const ProtobufCMessage *hz_recv(struct hz *h, uint32_t slot, uint16_t type)
{
	struct hz_conn *c = &h->conn[slot];
	const ProtobufCMessage *m;
	char text[ZD_TEXT_MAX + 1];

	if (c->count == 0) {
		print_error("slot %u: expected %s, found nothing\n", slot, zd_msg_name(type));
		fail();
	}
	free_frame(&h->last);
	h->last = c->frame[c->head];
	memset(&c->frame[c->head], 0, sizeof c->frame[0]);
	c->head = (c->head + 1) % HZ_FRAMES;
	c->count--;
	zd_arena_reset(&h->arena);
	assert_int_equal(zd_wire_decode(&h->arena, h->last.type, h->last.bytes + ZD_HEADER_BYTES, h->last.len - ZD_HEADER_BYTES, &m, text,
					sizeof text),
			 0);
	if (h->last.type != type) {
		const char *words = h->last.type == ZD_MSG_ERROR     ? ((const Zd__Pb__Error *)m)->text
				    : h->last.type == ZD_MSG_ABORTED ? ((const Zd__Pb__Aborted *)m)->text
								     : "";

		print_error("slot %u: expected %s, found %s %s\n", slot, zd_msg_name(type), zd_msg_name(h->last.type), words);
		fail();
	}
	return m;
}

void hz_nothing(struct hz *h, uint32_t slot)
{
	struct hz_conn *c = &h->conn[slot];

	if (c->count > 0)
		print_error("slot %u: expected nothing, found %s\n", slot, zd_msg_name(c->frame[c->head].type));
	assert_int_equal(c->count, 0);
}

static void contains(const char *text, const char *part)
{
	if (!strstr(text, part))
		print_error("expected \"%s\" in \"%s\"\n", part, text);
	assert_non_null(strstr(text, part));
}

void hz_error(struct hz *h, uint32_t slot, int code, const char *part, int close)
{
	const Zd__Pb__Error *m = (const Zd__Pb__Error *)hz_recv(h, slot, ZD_MSG_ERROR);

	assert_string_equal(zd_err_name((int)m->code), zd_err_name(code));
	contains(m->text, part);
	assert_int_equal(h->conn[slot].closing, close);
}

void hz_aborted(struct hz *h, uint32_t slot, int code, uint64_t epoch, uint32_t attempt, const char *part)
{
	const Zd__Pb__Aborted *m = (const Zd__Pb__Aborted *)hz_recv(h, slot, ZD_MSG_ABORTED);

	assert_string_equal(zd_err_name((int)m->code), zd_err_name(code));
	contains(m->text, part);
	assert_int_equal(m->ended->epoch, epoch);
	assert_int_equal(m->ended->attempt, attempt);
	assert_false(h->conn[slot].closing);
}
