/* SPDX-License-Identifier: Apache-2.0 */
/* What peers can do to a core by what they say together: each of these once ended the daemon, or a connection that had done nothing wrong. */
#include <stdio.h>
#include <stdlib.h>

#include "core_harness.h"
#include "server/kernel/call.h"

/* A page of requests that are refused: each is answered by an ERROR and a line of the log, so that together they fill a step. */
static size_t nonsense(uint8_t *page, uint32_t count)
{
	Zd__Pb__Fetch m = ZD__PB__FETCH__INIT;
	size_t used = 0;

	m.unit = 7;
	m.count = 1;
	m.plane = 1;
	m.mode = 1;
	for (uint32_t i = 0; i < count; i++)
		used += hz_encode(page + used, ZD_LANDING_BYTES - used, ZD_MSG_FETCH, 1, &m.base, NULL, 0);
	return used;
}

/* Bytes that land in one read, whatever follows from them. */
static void land(struct hz *h, uint32_t slot, const uint8_t *bytes, size_t len)
{
	struct zd_event ev = {.type = ZD_EV_BYTES};
	struct zd_span w = zd_core_window(h->core, (struct zd_conn_id){slot, h->conn[slot].gen});

	assert_true(w.len >= len);
	memcpy(w.base, bytes, len);
	ev.u.bytes.id = (struct zd_conn_id){slot, h->conn[slot].gen};
	ev.u.bytes.len = len;
	hz_step(h, &ev);
}

static size_t fetch(uint8_t *at, size_t size, uint64_t stream, uint32_t plane, uint32_t mode, uint64_t count)
{
	Zd__Pb__Fetch m = ZD__PB__FETCH__INIT;

	m.count = count;
	m.version = plane == 3;
	m.plane = plane;
	m.mode = mode;
	return hz_encode(at, size, ZD_MSG_FETCH, stream, &m.base, NULL, 0);
}

static size_t apply(uint8_t *at, size_t size, const struct zd_decision *d)
{
	Zd__Pb__Apply m = ZD__PB__APPLY__INIT;
	Zd__Pb__Ballot b = ZD__PB__BALLOT__INIT, name;
	Zd__Pb__Decision pb;

	zd_decision_to_pb(d, &pb, &name);
	b.epoch = 1;
	m.ballot = &b;
	m.decision = &pb;
	return hz_encode(at, size, ZD_MSG_APPLY, 2, &m.base, NULL, 0);
}

/*
 * Weights that wait behind a kernel call of the same connection, while a round is decided in that very step: they are those of the version
 * that their frame says, and the lane comes to rest.
 */
static void decided_while_data_waits(void **state)
{
	static const int64_t sizes[] = {4096};
	static uint8_t page[ZD_LANDING_BYTES];
	struct hz_who who = {.epoch = 1, .world = 1};
	struct hz *h = hz_new(8, 4u << 20);
	uint16_t before[4096];
	struct zd_decision d;
	struct zd_record record;
	const Zd__Pb__Data *data;
	size_t n;

	(void)state;
	hz_spec(h, "job", ZD_OPT_ADAMW, ZD_CODEC_BF16, 4096, 1, sizes);
	for (uint32_t slot = 0; slot < 5; slot++) {
		hz_connect(h, slot, slot == 0 ? ZD_ROLE_WORKER : ZD_ROLE_READER);
		hz_open(h, slot, 1);
	}
	hz_load_all(h, 0, 1);
	hz_join(h, 0, who);
	hz_fetch(h, 1, 0, 1, 0, before);
	hz_push_unit(h, 0, who, 1, 0, 0, 1);
	hz_send_commit(h, 0, who, 1, 1, &hz_hyper);
	record = hz_prepared(h, 0);
	d = hz_decide(&record, 0);
	/* Three whose answers fill the steps, the reader, the worker with its APPLY: the last two go on in one step. */
	n = nonsense(page, 90);
	for (uint32_t slot = 2; slot < 5; slot++)
		land(h, slot, page, n);
	n = fetch(page, sizeof page, 1, 2, 1, 4096);
	n += fetch(page + n, sizeof page - n, 2, 1, 2, 4096);
	land(h, 1, page, n);
	n = nonsense(page, 65);
	n += apply(page + n, sizeof page - n, &d);
	land(h, 0, page, n);
	hz_idle(h);
	assert_int_equal(hz_view(h).step, 1);
	assert_int_equal(hz_view(h).due, 0);
	hz_recv(h, 1, ZD_MSG_DATA);
	assert_int_equal(h->last.stream, 1);
	data = (const Zd__Pb__Data *)hz_recv(h, 1, ZD_MSG_DATA);
	assert_int_equal(data->version, 0);
	assert_memory_equal(h->last.payload, before, sizeof before);
	hz_free(h);
}

/*
 * The sum of a round is made into fp32 for a reader, while in that very step the next round is decided and the one after it begins, in the memory
 * of the first: the reader gets what it asked for.
 */
static void overwritten_while_it_is_widened(void **state)
{
	static const int64_t sizes[] = {64};
	static uint8_t page[ZD_LANDING_BYTES];
	struct hz_who who = {.epoch = 1, .world = 1};
	struct hz *h = hz_new(8, 4u << 20);
	uint16_t one[64], three[64];
	struct zd_decision d;
	struct zd_record record;
	size_t n;

	(void)state;
	hz_spec(h, "job", ZD_OPT_NONE, ZD_CODEC_BF16, 4096, 1, sizes);
	for (uint32_t slot = 0; slot < 5; slot++) {
		hz_connect(h, slot, slot == 0 ? ZD_ROLE_WORKER : ZD_ROLE_READER);
		hz_open(h, slot, 1);
	}
	hz_join(h, 0, who);
	hz_round(h, who, 1, 1, &hz_hyper);
	hz_gradient(h, 1, 0, 0, 0, one);
	hz_gradient(h, 3, 0, 0, 0, three);
	hz_push_unit(h, 0, who, 2, 0, 0, 1);
	hz_send_commit(h, 0, who, 2, 1, &hz_hyper);
	record = hz_prepared(h, 0);
	d = hz_decide(&record, 1);
	/* As above: the last two go on in one step. */
	n = nonsense(page, 90);
	for (uint32_t slot = 2; slot < 5; slot++)
		land(h, slot, page, n);
	n = fetch(page, sizeof page, 1, 3, 2, 64);
	land(h, 1, page, n);
	n = nonsense(page, 65);
	n += apply(page + n, sizeof page - n, &d);
	n += hz_encode_push(h, page + n, sizeof page - n, (struct hz_push){1, 0, 3, 0, 0, 0, 1, 0, 64}, three);
	land(h, 0, page, n);
	hz_idle(h);
	assert_int_equal(hz_view(h).decided, 2);
	assert_int_equal(hz_view(h).state, ZD_ROUND_COLLECTING);
	assert_int_equal(((const Zd__Pb__Data *)hz_recv(h, 1, ZD_MSG_DATA))->version, 1);
	for (uint32_t i = 0; i < 64; i++)
		assert_int_equal(h->last.payload[4 * i + 2] | h->last.payload[4 * i + 3] << 8, one[i]);
	hz_free(h);
}

/* A dropped job's memory is named by the store operations that are under way: it goes when they are done. */
static void drop_waits_for_the_store(void **state)
{
	static const int64_t sizes[] = {4096};
	struct hz *h = hz_new(8, 4u << 20);
	Zd__Pb__Drop m = ZD__PB__DROP__INIT;

	(void)state;
	m.name = (char *)"job";
	hz_spec(h, "job", ZD_OPT_ADAMW, ZD_CODEC_BF16, 4096, 1, sizes);
	hz_connect(h, 0, ZD_ROLE_WORKER);
	hz_connect(h, 1, ZD_ROLE_ADMIN);
	hz_open(h, 0, 1);
	h->hold_store = 1;
	hz_send_join(h, 0, (struct hz_who){.epoch = 1, .world = 1});
	hz_send(h, 1, ZD_MSG_DROP, 5, &m.base, NULL, 0);
	hz_nothing(h, 1);
	assert_int_equal(h->released, 0);
	hz_connect(h, 0, ZD_ROLE_WORKER);
	hz_open(h, 0, 1); /* the next of that name, in memory of its own */
	hz_stored(h, 0);
	hz_recv(h, 1, ZD_MSG_DROPPED);
	assert_int_equal(h->released, 1);
	h->hold_store = 0;
	hz_join(h, 0, (struct hz_who){.epoch = 1, .world = 1});
	hz_free(h);
}

/*
 * A job is made in the very step in which another gives its memory back: the pages go to the system when that step is over, and nothing of the
 * new job may be among them.
 */
static void memory_of_a_drop_in_its_step(void **state)
{
	static const int64_t sizes[] = {4096};
	static uint8_t page[ZD_LANDING_BYTES];
	struct hz_who who = {.epoch = 1, .world = 1};
	struct hz *h = hz_new(8, 4u << 20);
	Zd__Pb__Drop drop = ZD__PB__DROP__INIT;
	Zd__Pb__Open open = ZD__PB__OPEN__INIT;
	Zd__Pb__JobSpec spec;
	Zd__Pb__Unit units[HZ_UNITS], *ptrs[HZ_UNITS];
	size_t n;

	(void)state;
	hz_spec(h, "job", ZD_OPT_ADAMW, ZD_CODEC_BF16, 4096, 1, sizes);
	hz_connect(h, 0, ZD_ROLE_WORKER);
	hz_open(h, 0, 1);
	hz_disconnect(h, 0);
	hz_connect(h, 1, ZD_ROLE_ADMIN);
	drop.name = h->spec.name;
	n = hz_encode(page, sizeof page, ZD_MSG_DROP, 5, &drop.base, NULL, 0);
	zd_spec_to_pb(&h->spec, &spec, units, ptrs);
	open.spec = &spec;
	open.lane_count = 1;
	open.has_create = open.create = 1;
	n += hz_encode(page + n, sizeof page - n, ZD_MSG_OPEN, 6, &open.base, NULL, 0);
	land(h, 1, page, n);
	hz_recv(h, 1, ZD_MSG_DROPPED);
	hz_idle(h);
	hz_recv(h, 1, ZD_MSG_OPENED);
	hz_connect(h, 0, ZD_ROLE_WORKER);
	hz_open(h, 0, 0);
	hz_join(h, 0, who);
	hz_load_all(h, 0, 1);
	hz_round(h, who, 1, 1, &hz_hyper);
	hz_free(h);
}

static size_t fetch_master(uint8_t *at, size_t size, uint32_t unit, uint64_t count)
{
	Zd__Pb__Fetch m = ZD__PB__FETCH__INIT;

	m.unit = unit;
	m.count = count;
	m.plane = 2;
	m.mode = 1;
	return hz_encode(at, size, ZD_MSG_FETCH, 1, &m.base, NULL, 0);
}

static size_t show_nothing(uint8_t *page, uint32_t count)
{
	Zd__Pb__Show m = ZD__PB__SHOW__INIT;
	size_t used = 0;

	m.name = (char *)"none";
	for (uint32_t i = 0; i < count; i++)
		used += hz_encode(page + used, ZD_LANDING_BYTES - used, ZD_MSG_SHOW, 1, &m.base, NULL, 0);
	return used;
}

/*
 * A job is dropped in the very step in which its contribution is added: the window of that is in use until the kernel call is done.  Others find
 * as many windows as there are, and the other job those that it has reserved.
 */
static void drop_beside_a_kernel_call(void **state)
{
	static const int64_t sizes[] = {64, 16384};
	static uint8_t page[ZD_LANDING_BYTES];
	static uint16_t g[64];
	struct hz *h = hz_new(5, 8u << 20);
	struct hz_push push = {1, 0, 1, 0, 0, 0, 3, 0, 64};
	Zd__Pb__Drop drop = ZD__PB__DROP__INIT;
	size_t n;

	(void)state;
	hz_connect(h, 1, ZD_ROLE_ADMIN);
	for (uint32_t slot = 3; slot < 4; slot--) { /* job b on 3 and 2, then a on 0 */
		if (slot == 1)
			continue;
		hz_spec(h, slot == 0 ? "a" : "b", ZD_OPT_ADAMW, ZD_CODEC_BF16, 4096, 2, sizes);
		hz_connect(h, slot, slot == 2 ? ZD_ROLE_READER : ZD_ROLE_WORKER);
		hz_open(h, slot, 1);
		if (slot == 2)
			continue;
		hz_load_all(h, slot, 1);
		assert_int_equal(hz_join(h, slot, (struct hz_who){.epoch = 1, .world = 1})->credit, 1);
	}
	/* Four whose answers fill their steps; what follows goes on in one: PUSH of a, DROP of a, FETCH of four windows, PUSH of b. */
	n = nonsense(page, 65);
	land(h, 0, page, n + hz_encode_push(h, page + n, sizeof page - n, push, g));
	n = show_nothing(page, 65);
	drop.name = (char *)"a";
	land(h, 1, page, n + hz_encode(page + n, sizeof page - n, ZD_MSG_DROP, 5, &drop.base, NULL, 0));
	n = nonsense(page, 65);
	land(h, 2, page, n + fetch_master(page + n, sizeof page - n, 1, 16384));
	n = nonsense(page, 65);
	land(h, 3, page, n + hz_encode_push(h, page + n, sizeof page - n, push, g));
	for (uint32_t slot = 0; slot < 4; slot++)
		hz_drain(h, slot);
	hz_idle(h);
	hz_error(h, 0, ZD_ERR_DROPPED, "", 1);
	assert_int_equal(((const Zd__Pb__Pushed *)hz_recv(h, 3, ZD_MSG_PUSHED))->counted, 1);
	for (int i = 0; i < 4; i++)
		hz_recv(h, 2, ZD_MSG_DATA);
	hz_recv(h, 1, ZD_MSG_DROPPED);
	hz_free(h);
}

/* Extents are counted in 64 bits before memory is chosen for them: 2^32 of them are not none. */
static void extents_beyond_32_bits(void **state)
{
	static struct zd_unit_spec units[17];
	struct zd_spec spec = {.name = "huge", .optimizer = ZD_OPT_NONE, .grad_codec = ZD_CODEC_BF16, .extent_elems = 4096, .lease_ms = 1000,
			       .unit_count = 17, .units = units};
	char text[ZD_TEXT_MAX + 1];

	(void)state;
	for (uint32_t i = 0; i < 17; i++) {
		snprintf(units[i].name, sizeof units[i].name, "u%u", i);
		units[i].numel = i ? ZD_NUMEL_MAX : 1;
		units[i].frozen = i > 0; /* without optimizer they have no plane at all */
	}
	assert_int_equal(zd_spec_check(&spec, text, sizeof text), 0);
	assert_true(zd_job_bytes(&spec, 1, 0) > (1ull << 32) * 32);
}

/* ---------------------------------------------------------------- a thousand connections */

#define CROWD 1000u

static void trap(const char *file, int line, const char *what)
{
	print_error("assertion %s at %s:%d\n", what, file, line);
	_fail(file, line);
}

struct crowd {
	struct zd_core_config config;
	struct zd_core *core;
	struct zd_actions *actions;
	uint32_t joined, closed;
	uint64_t store; /* token of the operation under way */
};

static void crowd_step(struct crowd *w, struct zd_event *ev)
{
	struct zd_header h;

	ev->now = 1;
	zd_core_step(w->core, ev, w->actions);
	for (uint32_t i = 0; i < w->actions->count; i++) {
		const struct zd_action *a = &w->actions->item[i];

		w->closed += a->type == ZD_ACT_CLOSE;
		if (a->type == ZD_ACT_STORE)
			w->store = a->u.store.token;
		if (a->type != ZD_ACT_SEND)
			continue;
		assert_int_equal(zd_header_decode(w->actions->bytes + a->u.send.frame, ZD_SIDE_SERVER, &h), 0);
		w->joined += h.type == ZD_MSG_JOINED;
	}
}

static void crowd_bytes(struct crowd *w, uint32_t slot, const uint8_t *bytes, size_t len)
{
	while (len > 0) {
		struct zd_event ev = {.type = ZD_EV_BYTES};
		struct zd_span span = zd_core_window(w->core, (struct zd_conn_id){slot, 1});
		size_t n = span.len < len ? span.len : len;

		assert_true(n > 0);
		memcpy(span.base, bytes, n);
		bytes += n;
		len -= n;
		ev.u.bytes.id = (struct zd_conn_id){slot, 1};
		ev.u.bytes.len = n;
		crowd_step(w, &ev);
	}
}

static void crowd_init(struct crowd *w)
{
	size_t size;

	memset(w, 0, sizeof *w);
	zd_assert_failed = trap;
	w->config = (struct zd_core_config){.max_conns = CROWD, .max_jobs = 1, .windows = 8, .daemon = "test", .kernels = "scalar"};
	w->config.slab_bytes = (64u << 20) + 8ull * ZD_PAYLOAD_MAX;
	w->config.slab = aligned_alloc(4096, w->config.slab_bytes);
	size = (zd_core_arena_bytes(&w->config) + 63) / 64 * 64;
	w->core = aligned_alloc(64, size);
	w->actions = malloc(sizeof *w->actions);
	assert_true(w->config.slab && w->core && w->actions);
	memset((void *)w->core, 0, size);
	zd_core_init(w->core, &w->config);
}

static void crowd_fini(struct crowd *w)
{
	free(w->core);
	free(w->actions);
	free(w->config.slab);
}

static size_t crowd_open(uint8_t *frame, size_t size)
{
	static Zd__Pb__Unit units[ZD_UNITS_MAX];
	static Zd__Pb__Unit *ptrs[ZD_UNITS_MAX];
	static char names[ZD_UNITS_MAX][8];
	Zd__Pb__JobSpec spec = ZD__PB__JOB_SPEC__INIT;
	Zd__Pb__Open m = ZD__PB__OPEN__INIT;

	for (uint32_t i = 0; i < ZD_UNITS_MAX; i++) {
		zd__pb__unit__init(&units[i]);
		snprintf(names[i], sizeof names[i], "u%u", i);
		units[i].name = names[i];
		units[i].numel = 1;
		ptrs[i] = &units[i];
	}
	spec.name = (char *)"job";
	spec.units = ptrs;
	spec.n_units = ZD_UNITS_MAX;
	spec.optimizer = ZD_OPT_ADAMW;
	spec.extent_elems = 4096;
	spec.lease_ms = 1000;
	m.spec = &spec;
	m.lane_count = 1;
	m.has_create = m.create = 1;
	return hz_encode(frame, size, ZD_MSG_OPEN, 1, &m.base, NULL, 0);
}

/* A process that reconnects a thousand times while the promise is written: all JOINs are answered, over as many steps as that takes. */
static void joins_of_a_crowd(void **state)
{
	static uint8_t frame[ZD_HEAD_OPEN_MAX];
	struct zd_event ev = {.type = ZD_EV_STORED};
	Zd__Pb__Join join = ZD__PB__JOIN__INIT;
	Zd__Pb__Ballot b = ZD__PB__BALLOT__INIT;
	struct crowd w;
	size_t n;

	(void)state;
	crowd_init(&w);
	b.epoch = 1;
	join.ballot = &b;
	join.world = 1;
	for (uint32_t i = CROWD; i-- > 0;) { /* the last one to come is the first in the job's list */
		struct zd_event conn = {.type = ZD_EV_CONN};

		conn.u.conn.id = (struct zd_conn_id){i, 1};
		conn.u.conn.role = ZD_ROLE_WORKER;
		crowd_step(&w, &conn);
		n = crowd_open(frame, sizeof frame);
		crowd_bytes(&w, i, frame, n);
		join.link = i;
		crowd_bytes(&w, i, frame, hz_encode(frame, sizeof frame, ZD_MSG_JOIN, 1, &join.base, NULL, 0));
	}
	assert_int_equal(w.joined, 0);
	ev.u.stored.token = w.store;
	crowd_step(&w, &ev);
	ev.type = ZD_EV_IDLE;
	for (uint32_t i = 0; zd_core_wants_idle(w.core); i++) {
		assert_true(i < CROWD);
		crowd_step(&w, &ev);
	}
	assert_int_equal(w.joined, CROWD);
	assert_int_equal(w.closed, CROWD - 1);
	crowd_fini(&w);
}

/* ---------------------------------------------------------------- jobs that end together */

#define TOGETHER 4u	     /* jobs */
#define MEMBERS 256u	     /* connections of each */
#define RANKS ZD_WORLD_MAX /* of them workers, the first ones */

struct together {
	struct zd_core_config config;
	struct zd_core *core;
	struct zd_actions *actions;
	zd_time now;
	uint32_t aborted, timed_out, data;
	uint32_t kernels, stores;
	uint64_t store[64];
	struct zd_kernel_result result[256];
};

static void together_step(struct together *t, struct zd_event *ev)
{
	static struct zd_kernel_scratch scratch;
	struct zd_header h;

	ev->now = t->now;
	zd_core_step(t->core, ev, t->actions);
	for (uint32_t i = 0; i < t->actions->count; i++) {
		const struct zd_action *a = &t->actions->item[i];

		if (a->type == ZD_ACT_KERNEL)
			zd_kernel_call(zd_kernels_scalar(), &a->u.kernel, &scratch, &t->result[t->kernels++]);
		if (a->type == ZD_ACT_STORE)
			t->store[t->stores++] = a->u.store.token;
		if (a->type != ZD_ACT_SEND)
			continue;
		assert_int_equal(zd_header_decode(t->actions->bytes + a->u.send.frame, ZD_SIDE_SERVER, &h), 0);
		t->aborted += h.type == ZD_MSG_ABORTED;
		t->timed_out += h.type == ZD_MSG_ERROR;
		t->data += h.type == ZD_MSG_DATA;
	}
}

/* With what follows from it; nothing that is lent comes back. */
static void together_event(struct together *t, struct zd_event *ev)
{
	together_step(t, ev);
	while (t->kernels > 0 || t->stores > 0 || zd_core_wants_idle(t->core)) {
		struct zd_event next = {.type = ZD_EV_IDLE};

		for (uint32_t i = 0, n = t->kernels; i < n; i++) {
			zd_kernel_event(&t->result[i], &next);
			t->kernels -= i + 1 == n ? n : 0;
			together_step(t, &next);
		}
		if (next.type == ZD_EV_IDLE && t->stores > 0) {
			next.type = ZD_EV_STORED;
			next.u.stored.token = t->store[0];
			memmove(t->store, t->store + 1, --t->stores * sizeof *t->store);
		}
		if (next.type != ZD_EV_KERNEL)
			together_step(t, &next);
	}
}

static void together_send(struct together *t, uint32_t slot, uint16_t type, const ProtobufCMessage *m, const void *payload, uint32_t len)
{
	uint8_t frame[512];
	struct zd_event ev = {.type = ZD_EV_BYTES};
	struct zd_span w = zd_core_window(t->core, (struct zd_conn_id){slot, 1});

	ev.u.bytes.id = (struct zd_conn_id){slot, 1};
	ev.u.bytes.len = hz_encode(frame, sizeof frame, type, 1, m, payload, len);
	assert_true(w.len >= ev.u.bytes.len);
	memcpy(w.base, frame, ev.u.bytes.len);
	together_event(t, &ev);
}

static void together_open(struct together *t, uint32_t slot, uint32_t job)
{
	struct zd_event ev = {.type = ZD_EV_CONN};
	char name[] = {'j', (char)('0' + job), 0};
	Zd__Pb__JobSpec spec = ZD__PB__JOB_SPEC__INIT;
	Zd__Pb__Unit unit = ZD__PB__UNIT__INIT, *units[] = {&unit};
	Zd__Pb__Open m = ZD__PB__OPEN__INIT;

	ev.u.conn.id = (struct zd_conn_id){slot, 1};
	ev.u.conn.role = slot % MEMBERS < RANKS ? ZD_ROLE_WORKER : ZD_ROLE_READER;
	ev.u.conn.features = ZD_FEATURE_PAYLOAD_CRC;
	together_event(t, &ev);
	unit.name = spec.name = name;
	unit.numel = 1;
	spec.units = units;
	spec.n_units = 1;
	spec.optimizer = ZD_OPT_ADAMW;
	spec.extent_elems = 4096;
	spec.lease_ms = 1000;
	m.spec = &spec;
	m.lane_count = 1;
	m.has_create = m.create = 1;
	together_send(t, slot, ZD_MSG_OPEN, &m.base, NULL, 0);
}

static void together_push(struct together *t, uint32_t slot, Zd__Pb__Ballot *b, uint64_t round)
{
	Zd__Pb__Push m = ZD__PB__PUSH__INIT;

	m.ballot = b;
	m.round = round;
	m.rank = slot % MEMBERS;
	m.micro_batches = m.count = 1;
	together_send(t, slot, ZD_MSG_PUSH, &m.base, (uint16_t[]){0}, 2);
}

static void together_commit(struct together *t, uint32_t slot, Zd__Pb__Ballot *b)
{
	Zd__Pb__Commit m = ZD__PB__COMMIT__INIT;
	Zd__Pb__Hyper hyper;
	uint32_t one[] = {1};

	zd_hyper_to_pb(&hz_hyper, &hyper);
	m.ballot = b;
	m.round = 1;
	m.rank = slot % MEMBERS;
	m.micro_batches = 1;
	m.hyper = &hyper;
	m.counts = one;
	m.n_counts = 1;
	together_send(t, slot, ZD_MSG_COMMIT, &m.base, NULL, 0);
}

/* A job whose weights are lent to all its connections and wanted for the next round, of which one contribution is there. */
static void together_begin(struct together *t, uint32_t job)
{
	uint32_t first = job * MEMBERS;
	Zd__Pb__Load load = ZD__PB__LOAD__INIT;
	Zd__Pb__Seal seal = ZD__PB__SEAL__INIT;
	Zd__Pb__Join join = ZD__PB__JOIN__INIT;
	Zd__Pb__Fetch fetch = ZD__PB__FETCH__INIT;
	Zd__Pb__Ballot b = ZD__PB__BALLOT__INIT;
	Zd__Pb__Decision d = ZD__PB__DECISION__INIT;
	Zd__Pb__Apply apply = ZD__PB__APPLY__INIT;

	b.epoch = 1;
	load.count = 1;
	fetch.count = 1;
	fetch.plane = fetch.mode = 1;
	load.codec = ZD_CODEC_FP32;
	join.ballot = d.ballot = apply.ballot = &b;
	join.world = RANKS;
	for (uint32_t i = 0; i < MEMBERS; i++)
		together_open(t, first + i, job);
	together_send(t, first, ZD_MSG_LOAD, &load.base, (float[]){0}, 4);
	together_send(t, first, ZD_MSG_SEAL, &seal.base, NULL, 0);
	for (uint32_t i = 0; i < MEMBERS; i++) {
		join.rank = i;
		if (i < RANKS)
			together_send(t, first + i, ZD_MSG_JOIN, &join.base, NULL, 0);
		together_send(t, first + i, ZD_MSG_FETCH, &fetch.base, NULL, 0);
	}
	for (uint32_t i = 0; i < RANKS; i++)
		together_push(t, first + i, &b, 1);
	for (uint32_t i = 0; i < RANKS; i++)
		together_commit(t, first + i, &b);
	d.round = d.step = 1;
	d.applied = 1;
	d.scale = 1.0 / RANKS;
	apply.decision = &d;
	together_send(t, first, ZD_MSG_APPLY, &apply.base, NULL, 0);
	together_push(t, first, &b, 2);
}

/*
 * A network fails: everybody is silent, and nobody has read the weights for whose memory the next round waits.  Leases and patience end with one
 * TICK, and all that is to be said takes as many steps as it needs.
 */
static void silence_of_a_crowd(void **state)
{
	struct together *t = calloc(1, sizeof *t);
	size_t size;

	(void)state;
	zd_assert_failed = trap;
	zd_kernels_thread_init();
	t->config = (struct zd_core_config){.max_conns = TOGETHER * MEMBERS, .max_jobs = TOGETHER, .windows = 520, .daemon = "test", .kernels = "scalar"};
	t->config.slab_bytes = (8u << 20) + 520ull * ZD_PAYLOAD_MAX;
	t->config.slab = aligned_alloc(4096, t->config.slab_bytes);
	size = (zd_core_arena_bytes(&t->config) + 63) / 64 * 64;
	t->core = aligned_alloc(64, size);
	t->actions = malloc(sizeof *t->actions);
	assert_true(t->config.slab && t->core && t->actions);
	memset((void *)t->core, 0, size);
	zd_core_init(t->core, &t->config);
	for (uint32_t job = 0; job < TOGETHER; job++)
		together_begin(t, job);
	assert_int_equal(t->data, TOGETHER * MEMBERS);
	assert_int_equal(t->aborted + t->timed_out, 0);
	for (uint32_t i = 0; zd_core_deadline(t->core) <= ZD_SEC(1); i++) {
		assert_true(i < 8 + TOGETHER); /* the beats of a lease, and what one step has no room for */
		t->now = zd_core_deadline(t->core) > t->now ? zd_core_deadline(t->core) : t->now;
		together_event(t, &(struct zd_event){.type = ZD_EV_TICK});
	}
	assert_int_equal(t->aborted, TOGETHER * RANKS);
	assert_int_equal(t->timed_out, TOGETHER * MEMBERS);
	free(t->config.slab);
	free(t->core);
	free(t->actions);
	free(t);
}

/* Who passes the door and then says nothing gives its place back; who talks, or has opened a job, keeps it. */
static void silent_guests(void **state)
{
	static const int64_t one[] = {5000};
	struct hz *h = hz_new(8, 8u << 20);
	Zd__Pb__Status ask = ZD__PB__STATUS__INIT;

	(void)state;
	hz_spec(h, "job", ZD_OPT_ADAMW, ZD_CODEC_BF16, 4096, 1, one);
	hz_connect(h, 0, ZD_ROLE_WORKER);
	hz_connect(h, 1, ZD_ROLE_ADMIN);
	hz_connect(h, 2, ZD_ROLE_WORKER);
	hz_open(h, 2, 1);
	hz_time(h, 9999);
	hz_nothing(h, 0);
	hz_send(h, 1, ZD_MSG_STATUS, 1, &ask.base, NULL, 0);
	hz_recv(h, 1, ZD_MSG_STATUS_REPLY);
	hz_time(h, 1);
	hz_error(h, 0, ZD_ERR_TIMED_OUT, "expected OPEN", 1);
	hz_nothing(h, 1);
	hz_time(h, 9998);
	hz_nothing(h, 1);
	hz_time(h, 1);
	hz_error(h, 1, ZD_ERR_TIMED_OUT, "expected a request", 1);
	hz_time(h, 100000);
	hz_nothing(h, 2);
	assert_true(h->conn[2].open && !h->conn[2].closing);
	hz_free(h);
}

/* Nor is it silence to wait for the answer to a DROP, while a connection of the job takes its time to close. */
static void who_waits_is_no_silent_guest(void **state)
{
	static const int64_t one[] = {5000};
	struct hz *h = hz_new(8, 8u << 20);
	Zd__Pb__Drop drop = ZD__PB__DROP__INIT;

	(void)state;
	hz_spec(h, "job", ZD_OPT_ADAMW, ZD_CODEC_BF16, 4096, 1, one);
	hz_connect(h, 0, ZD_ROLE_WORKER);
	hz_open(h, 0, 1);
	hz_connect(h, 1, ZD_ROLE_ADMIN);
	drop.name = h->spec.name;
	h->hold_closed = 1; /* timeouts.linger may be ten minutes */
	hz_send(h, 1, ZD_MSG_DROP, 5, &drop.base, NULL, 0);
	hz_time(h, 45000);
	hz_nothing(h, 1);
	h->hold_closed = 0;
	hz_disconnect(h, 0);
	hz_recv(h, 1, ZD_MSG_DROPPED);
	hz_idle(h);
	hz_time(h, 9999); /* and there is time for the next request */
	hz_nothing(h, 1);
	hz_time(h, 10000);
	hz_error(h, 1, ZD_ERR_TIMED_OUT, "expected a request", 1);
	hz_free(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(silent_guests),
		cmocka_unit_test(who_waits_is_no_silent_guest),
		cmocka_unit_test(decided_while_data_waits),
		cmocka_unit_test(overwritten_while_it_is_widened),
		cmocka_unit_test(drop_waits_for_the_store),
		cmocka_unit_test(memory_of_a_drop_in_its_step),
		cmocka_unit_test(drop_beside_a_kernel_call),
		cmocka_unit_test(extents_beyond_32_bits),
		cmocka_unit_test(joins_of_a_crowd),
		cmocka_unit_test(silence_of_a_crowd),
	};

	return cmocka_run_group_tests_name("core: hostile peers together", tests, NULL, NULL);
}
