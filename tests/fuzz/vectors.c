/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/vectors.h"

#include <stdio.h>
#include <string.h>

#include "proto/assert.h"
#include "proto/codec.h"
#include "proto/crc32c.h"
#include "proto/limits.h"
#include "proto/normacc.h"

#define TEXT63 "a-name-as-long-as-names-may-be.0123456789_ABCDEFGHIJKLMNOPQRSTU"
_Static_assert(sizeof(TEXT63) == ZD_NAME_MAX + 1, "the longest name");

#define PART(Pb, pb, name, ...)                                                                                                       \
	static Zd__Pb__##Pb name = {.base = PROTOBUF_C_MESSAGE_INIT(&zd__pb__##pb##__descriptor), __VA_ARGS__}

static uint8_t norm_bytes[ZD_NORMACC_BYTES] = {[4] = 1, [41] = 200, [74] = 3};
static uint8_t norm_large[ZD_NORMACC_BYTES];
static char long_text[ZD_TEXT_MAX + 1];
static uint64_t counted[ZD_UNITS_MAX];
static uint32_t counts[ZD_UNITS_MAX], missing[ZD_WORLD_MAX];

PART(Ballot, ballot, little, .epoch = 1, .attempt = 0);
PART(Ballot, ballot, ballot, .epoch = 7, .attempt = 2);
PART(Ballot, ballot, largest, .epoch = UINT64_MAX, .attempt = UINT32_MAX);

PART(Hyper, hyper, hyper, .lr = 3e-4, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .max_norm = 1.0, .loss_scale = 1.0);

PART(Record, record, record, .round = 12, .ballot = &ballot, .hyper = &hyper, .world = 2, .micro_batches = 4,
     .norm = {sizeof(norm_bytes), norm_bytes});
PART(Record, record, record_large, .round = UINT64_MAX - 1, .ballot = &largest, .hyper = &hyper, .world = ZD_WORLD_MAX,
     .micro_batches = ZD_MICRO_MAX, .norm = {sizeof(norm_large), norm_large}, .nonfinite = UINT64_MAX, .has_bad_unit = 1,
     .bad_unit = ZD_UNITS_MAX - 1, .has_bad_element = 1, .bad_element = ZD_NUMEL_MAX - 1, .has_bad_rank = 1,
     .bad_rank = ZD_WORLD_MAX - 1);

PART(Decision, decision, decision, .round = 11, .ballot = &ballot, .applied = 1, .scale = 0.125, .norm = 1.75, .step = 10);
PART(Decision, decision, decision_large, .round = UINT64_MAX - 2, .ballot = &largest, .applied = 1, .scale = 0x1p80, .norm = 0x1p200,
     .step = UINT64_MAX);

PART(Unit, unit, embedding, .name = (char *)"embedding", .numel = 65536);
PART(Unit, unit, block, .name = (char *)"block.0", .numel = 100000, .has_frozen = 1, .frozen = 1);
static Zd__Pb__Unit *two_units[] = {&embedding, &block};
PART(JobSpec, job_spec, spec, .name = (char *)"demo", .n_units = 2, .units = two_units, .optimizer = 1, .grad_codec = ZD_CODEC_BF16,
     .extent_elems = 131072, .lease_ms = 10000);

static char unit_names[ZD_UNITS_MAX][ZD_NAME_MAX + 1];
static Zd__Pb__Unit unit_messages[ZD_UNITS_MAX];
static Zd__Pb__Unit *many_units[ZD_UNITS_MAX];
PART(JobSpec, job_spec, spec_large, .name = (char *)TEXT63, .n_units = ZD_UNITS_MAX, .units = many_units, .optimizer = 2,
     .grad_codec = ZD_CODEC_FP32, .extent_elems = 65536, .lease_ms = 3600000);

PART(JobStatus, job_status, job, .name = (char *)"demo", .lane_index = 1, .lane_count = 2, .params = 165536, .norm = 0.5);
PART(JobStatus, job_status, job_large, .name = (char *)TEXT63, .lane_index = ZD_LANES_MAX - 1, .lane_count = ZD_LANES_MAX,
     .params = UINT64_MAX, .trainable = UINT64_MAX, .bytes = UINT64_MAX, .decided = UINT64_MAX, .step = UINT64_MAX,
     .state = UINT32_MAX, .sealed = 1, .epoch = UINT64_MAX, .attempt = UINT32_MAX, .world = ZD_WORLD_MAX, .joined = ZD_WORLD_MAX,
     .pushed_bytes = UINT64_MAX, .fetched_bytes = UINT64_MAX, .norm = 1e300, .skipped = UINT64_MAX, .timeline = UINT64_MAX);
PART(Worker, worker, first_worker, .rank = 0, .joined = 1, .committed = 1, .has_heard_ms = 1, .heard_ms = 250);
PART(Worker, worker, second_worker, .rank = 1);
static Zd__Pb__Worker *two_workers[] = {&first_worker, &second_worker};
static Zd__Pb__Worker worker_messages[ZD_WORLD_MAX];
static Zd__Pb__Worker *many_workers[ZD_WORLD_MAX];
static Zd__Pb__JobStatus *one_job[] = {&job};
static Zd__Pb__JobStatus *many_jobs[ZD_JOBS_MAX];

/* At file scope such a literal is static, and its address a constant. */
#define V(NAME, TYPE, PAYLOAD, Pb, pb, ...)                                                                                           \
	{NAME, ZD_MSG_##TYPE,                                                                                                         \
	 (const ProtobufCMessage *)&(Zd__Pb__##Pb){.base = PROTOBUF_C_MESSAGE_INIT(&zd__pb__##pb##__descriptor), ##__VA_ARGS__}, PAYLOAD}

static const struct zd_vector table[] = {
	V("hello", HELLO, 0, Hello, hello, .version = 1, .features = 1, .role = 1, .agent = (char *)"zerod-lm/0.1.0"),
	V("hello-least", HELLO, 0, Hello, hello, .version = 1, .role = 3),
	V("welcome", WELCOME, 0, Welcome, welcome, .version = 1, .features = 1, .lane_count = 2, .daemon = (char *)"zerod-0",
	  .payload_max = ZD_PAYLOAD_MAX),
	V("open", OPEN, 0, Open, open, .spec = &spec, .lane_index = 1, .lane_count = 2, .has_create = 1, .create = 1),
	V("opened", OPENED, 0, Opened, opened, .uuid_hi = 0x0123456789abcdef, .uuid_lo = 0xfedcba9876543210, .sealed = 1, .decided = 4,
	  .version = 3),
	V("join", JOIN, 0, Join, join, .ballot = &little, .launch = 99, .process = 0x8000000000000001, .rank = 1, .world = 2),
	V("joined", JOINED, 0, Joined, joined, .ballot = &little, .credit = 4),
	V("joined-all", JOINED, 0, Joined, joined, .ballot = &ballot, .decided = 11, .step = 10, .sealed = 1, .prepared = &record,
	  .decision = &decision, .n_counted = 2, .counted = counted, .credit = 8),
	V("load", LOAD, 8192, Load, load, .unit = 0, .first = 4096, .count = 4096, .codec = ZD_CODEC_FP16),
	V("load-fp32", LOAD, 4, Load, load, .unit = 1, .count = 1, .codec = ZD_CODEC_FP32),
	V("loaded", LOADED, 0, Loaded, loaded, .unit = 0, .first = 4096, .count = 4096),
	V("seal", SEAL, 0, Seal, seal),
	V("sealed", SEALED, 0, Sealed, sealed, .version = 0),
	V("fetch", FETCH, 0, Fetch, fetch, .unit = 1, .first = 0, .count = 100000, .plane = 1, .mode = 1, .version = 3),
	V("data", DATA, 6000, Data, data, .unit = 1, .first = 98304, .count = 3000, .version = 3, .last = 1),
	V("data-same", DATA, 0, Data, data, .unit = 1, .version = 3, .last = 1),
	V("push", PUSH, 8192, Push, push, .ballot = &ballot, .round = 12, .rank = 1, .unit = 0, .micro = 3, .micro_batches = 4,
	  .first = 8192, .count = 4096, .codec = ZD_CODEC_BF16),
	V("push-least", PUSH, 2, Push, push, .ballot = &little, .round = 1, .micro_batches = 1, .count = 1),
	V("pushed", PUSHED, 0, Pushed, pushed, .ballot = &ballot, .round = 12, .unit = 0, .counted = 17, .freed = 3),
	V("commit", COMMIT, 0, Commit, commit, .ballot = &ballot, .round = 12, .rank = 1, .micro_batches = 4, .hyper = &hyper,
	  .n_counts = 2, .counts = counts),
	V("prepared", PREPARED, 0, Prepared, prepared, .ballot = &ballot, .record = &record),
	V("apply", APPLY, 0, Apply, apply, .ballot = &ballot, .decision = &decision),
	V("applied", APPLIED, 0, Applied, applied, .ballot = &ballot, .decision = &decision),
	V("discard", DISCARD, 0, Discard, discard, .ballot = &ballot, .round = 12, .record = &little),
	V("discarded", DISCARDED, 0, Discarded, discarded, .ballot = &ballot, .round = 12, .record = &little),
	V("aborted", ABORTED, 0, Aborted, aborted, .ballot = &ballot, .ended = &little, .code = ZD_ERR_LEASE,
	  .text = (char *)"rank 1 was last heard of 10000 ms ago", .n_missing = 1, .missing = missing),
	V("ping", PING, 0, Ping, ping, .token = 0),
	V("pong", PONG, 0, Pong, pong, .token = 12345678901234567890u, .n_absent = 2, .absent = missing, .n_behind = 1, .behind = missing + 2),
	V("error", ERROR, 0, Error, error, .code = ZD_ERR_NO_UNIT, .text = (char *)"unit 9, this job has 2", .job = (char *)"demo",
	  .has_rank = 1, .rank = 1),
	V("status", STATUS, 0, Status, status),
	V("status-reply", STATUS_REPLY, 0, StatusReply, status_reply, .daemon = (char *)"zerod-0", .kernels = (char *)"avx2",
	  .slab_bytes = 1 << 30, .n_jobs = 1, .jobs = one_job),
	V("show", SHOW, 0, Show, show, .name = (char *)"demo"),
	V("show-reply", SHOW_REPLY, 0, ShowReply, show_reply, .spec = &spec, .status = &job, .n_workers = 2, .workers = two_workers),
	V("drop", DROP, 0, Drop, drop, .name = (char *)"demo"),
	V("dropped", DROPPED, 0, Dropped, dropped, .name = (char *)"demo", .bytes = 1986432),
#define SMALL_COUNT 35

	V("hello-large", HELLO, 0, Hello, hello, .version = UINT32_MAX, .features = UINT64_MAX, .role = 3, .lane = ZD_LANES_MAX - 1,
	  .agent = (char *)TEXT63),
	V("welcome-large", WELCOME, 0, Welcome, welcome, .version = UINT32_MAX, .features = UINT64_MAX, .lane_count = ZD_LANES_MAX,
	  .daemon = (char *)TEXT63, .payload_max = ZD_PAYLOAD_MAX),
	V("open-large", OPEN, 0, Open, open, .spec = &spec_large, .lane_index = ZD_LANES_MAX - 1, .lane_count = ZD_LANES_MAX,
	  .has_create = 1, .create = 1),
	V("opened-large", OPENED, 0, Opened, opened, .uuid_hi = UINT64_MAX, .uuid_lo = UINT64_MAX, .timeline = UINT64_MAX, .sealed = 1,
	  .decided = UINT64_MAX, .version = UINT64_MAX),
	V("join-large", JOIN, 0, Join, join, .ballot = &largest, .launch = UINT64_MAX, .process = UINT64_MAX, .rank = ZD_WORLD_MAX - 1,
	  .world = ZD_WORLD_MAX, .link = UINT32_MAX),
	V("joined-large", JOINED, 0, Joined, joined, .ballot = &largest, .decided = UINT64_MAX - 2, .step = UINT64_MAX, .sealed = 1,
	  .prepared = &record_large, .decision = &decision_large, .n_counted = ZD_UNITS_MAX, .counted = counted,
	  .credit = ZD_CREDIT_MAX),
	V("load-large", LOAD, ZD_PAYLOAD_MAX, Load, load, .unit = ZD_UNITS_MAX - 1, .first = ZD_NUMEL_MAX - ZD_GRAIN_ELEMS,
	  .count = ZD_GRAIN_ELEMS, .codec = ZD_CODEC_FP32),
	V("loaded-large", LOADED, 0, Loaded, loaded, .unit = ZD_UNITS_MAX - 1, .first = ZD_NUMEL_MAX - ZD_GRAIN_ELEMS,
	  .count = ZD_GRAIN_ELEMS),
	V("sealed-large", SEALED, 0, Sealed, sealed, .version = UINT64_MAX),
	V("fetch-large", FETCH, 0, Fetch, fetch, .unit = ZD_UNITS_MAX - 1, .count = ZD_NUMEL_MAX, .plane = 3, .mode = 3,
	  .version = UINT64_MAX),
	V("data-large", DATA, ZD_PAYLOAD_MAX, Data, data, .unit = ZD_UNITS_MAX - 1, .first = ZD_NUMEL_MAX - ZD_EXTENT_ELEMS_MAX,
	  .count = ZD_EXTENT_ELEMS_MAX, .version = UINT64_MAX, .last = 1),
	V("push-large", PUSH, ZD_PAYLOAD_MAX, Push, push, .ballot = &largest, .round = UINT64_MAX, .rank = ZD_WORLD_MAX - 1,
	  .unit = ZD_UNITS_MAX - 1, .micro = ZD_MICRO_MAX - 1, .micro_batches = ZD_MICRO_MAX,
	  .first = ZD_NUMEL_MAX - ZD_EXTENT_ELEMS_MAX, .count = ZD_EXTENT_ELEMS_MAX, .codec = ZD_CODEC_BF16),
	V("pushed-large", PUSHED, 0, Pushed, pushed, .ballot = &largest, .round = UINT64_MAX, .unit = ZD_UNITS_MAX - 1,
	  .counted = ZD_NUMEL_MAX / ZD_BLOCK_ELEMS * ZD_MICRO_MAX, .freed = UINT64_MAX),
	V("commit-large", COMMIT, 0, Commit, commit, .ballot = &largest, .round = UINT64_MAX, .rank = ZD_WORLD_MAX - 1,
	  .micro_batches = ZD_MICRO_MAX, .hyper = &hyper, .n_counts = ZD_UNITS_MAX, .counts = counts),
	V("prepared-large", PREPARED, 0, Prepared, prepared, .ballot = &largest, .record = &record_large),
	V("apply-large", APPLY, 0, Apply, apply, .ballot = &largest, .decision = &decision_large),
	V("applied-large", APPLIED, 0, Applied, applied, .ballot = &largest, .decision = &decision_large),
	V("discard-large", DISCARD, 0, Discard, discard, .ballot = &largest, .round = UINT64_MAX, .record = &largest),
	V("discarded-large", DISCARDED, 0, Discarded, discarded, .ballot = &largest, .round = UINT64_MAX, .record = &largest),
	V("aborted-large", ABORTED, 0, Aborted, aborted, .ballot = &largest, .ended = &largest, .code = UINT32_MAX, .text = long_text,
	  .n_missing = ZD_WORLD_MAX, .missing = missing),
	V("ping-large", PING, 0, Ping, ping, .token = UINT64_MAX),
	V("pong-large", PONG, 0, Pong, pong, .token = UINT64_MAX, .has_sealed = 1, .sealed = 1, .n_absent = ZD_WORLD_MAX,
	  .absent = missing, .n_behind = ZD_WORLD_MAX, .behind = missing),
	V("error-large", ERROR, 0, Error, error, .code = UINT32_MAX, .text = long_text, .job = (char *)TEXT63, .unit = (char *)TEXT63,
	  .has_step = 1, .step = UINT64_MAX, .has_rank = 1, .rank = UINT32_MAX),
	V("status-reply-large", STATUS_REPLY, 0, StatusReply, status_reply, .daemon = (char *)TEXT63, .lane = ZD_LANES_MAX - 1,
	  .slab_bytes = UINT64_MAX, .slab_used = UINT64_MAX, .connections = UINT32_MAX, .uptime_ms = UINT64_MAX,
	  .kernels = (char *)TEXT63, .draining = 1, .frames_in = UINT64_MAX, .frames_out = UINT64_MAX, .bytes_in = UINT64_MAX,
	  .bytes_out = UINT64_MAX, .errors = UINT64_MAX, .n_jobs = ZD_JOBS_MAX, .jobs = many_jobs),
	V("show-large", SHOW, 0, Show, show, .name = (char *)TEXT63),
	V("show-reply-large", SHOW_REPLY, 0, ShowReply, show_reply, .spec = &spec_large, .status = &job_large, .n_workers = ZD_WORLD_MAX,
	  .workers = many_workers),
	V("drop-large", DROP, 0, Drop, drop, .name = (char *)TEXT63),
	V("dropped-large", DROPPED, 0, Dropped, dropped, .name = (char *)TEXT63, .bytes = UINT64_MAX),
};

static void build(void)
{
	memset(norm_large, 0xff, sizeof(norm_large));
	norm_large[ZD_NORMACC_BYTES - 1] = norm_large[ZD_NORMACC_BYTES - 2] = 0; /* below what a lane may have */
	norm_large[ZD_NORMACC_BYTES - 3] = 0x0f;
	memset(long_text, 'x', ZD_TEXT_MAX);
	for (uint32_t i = 0; i < ZD_JOBS_MAX; i++)
		many_jobs[i] = &job_large;
	for (uint32_t i = 0; i < ZD_WORLD_MAX; i++) {
		missing[i] = ZD_WORLD_MAX - 1 - i;
		zd__pb__worker__init(&worker_messages[i]);
		worker_messages[i].rank = i;
		worker_messages[i].joined = worker_messages[i].committed = 1;
		worker_messages[i].has_heard_ms = 1;
		worker_messages[i].heard_ms = UINT64_MAX;
		many_workers[i] = &worker_messages[i];
	}
	for (uint32_t i = 0; i < ZD_UNITS_MAX; i++) {
		counted[i] = ZD_NUMEL_MAX / ZD_BLOCK_ELEMS * ZD_MICRO_MAX - i;
		counts[i] = ZD_MICRO_MAX - i;
		snprintf(unit_names[i], sizeof(unit_names[i]), "%.58s.%04u", TEXT63, i);
		zd__pb__unit__init(&unit_messages[i]);
		unit_messages[i].name = unit_names[i];
		unit_messages[i].numel = ZD_NUMEL_MAX - i;
		unit_messages[i].has_frozen = 1;
		unit_messages[i].frozen = i > 0;
		many_units[i] = &unit_messages[i];
	}
}

const struct zd_vector *zd_vectors(size_t *ret_count)
{
	if (!many_units[0])
		build();
	*ret_count = sizeof(table) / sizeof(table[0]);
	return table;
}

size_t zd_vectors_small(void)
{
	return SMALL_COUNT;
}

enum zd_side zd_vector_side(uint16_t type)
{
	enum { C = ZD_SIDE_CLIENT, S = ZD_SIDE_SERVER };

	switch (type) {
#define X(name, number, from, head_max, pl_min, pl_max, Pb, pb)                                                                       \
	case number:                                                                                                                  \
		return (enum zd_side)from;
#include "proto/msg.def"
#undef X
	default:
		ZD_ASSERT(0);
		return ZD_SIDE_CLIENT;
	}
}

size_t zd_vector_size(const struct zd_vector *v)
{
	return zd_wire_size(v->msg) + v->payload_len;
}

uint8_t zd_vector_byte(uint64_t stream, size_t i)
{
	return (uint8_t)((i * 2654435761u >> 7) ^ (stream * 31));
}

size_t zd_vector_frame(const struct zd_vector *v, uint64_t stream, uint8_t *out, size_t size)
{
	size_t head_end = zd_wire_size(v->msg), total = zd_vector_size(v);

	ZD_ASSERT(total <= size);
	for (size_t i = 0; i < v->payload_len; i++)
		out[head_end + i] = zd_vector_byte(stream, i);
	zd_wire_encode(out, size, v->type, stream, v->msg, v->payload_len, zd_crc32c(0, out + head_end, v->payload_len));
	return total;
}

static size_t scalar_size(const ProtobufCFieldDescriptor *field)
{
	switch (field->type) {
	case PROTOBUF_C_TYPE_UINT32:
		return sizeof(uint32_t);
	case PROTOBUF_C_TYPE_BOOL:
		return sizeof(protobuf_c_boolean);
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_DOUBLE:
		return sizeof(uint64_t);
	default:
		return sizeof(void *);
	}
}

static int value_equal(const ProtobufCFieldDescriptor *field, const void *a, const void *b)
{
	const void *pa, *pb;

	if (field->type == PROTOBUF_C_TYPE_BYTES) {
		const ProtobufCBinaryData *x = a, *y = b;

		return x->len == y->len && memcmp(x->data, y->data, x->len) == 0;
	}
	if (field->type != PROTOBUF_C_TYPE_STRING && field->type != PROTOBUF_C_TYPE_MESSAGE)
		return memcmp(a, b, scalar_size(field)) == 0;
	memcpy(&pa, a, sizeof(pa));
	memcpy(&pb, b, sizeof(pb));
	if (!pa || !pb)
		return pa == pb;
	return field->type == PROTOBUF_C_TYPE_STRING ? strcmp(pa, pb) == 0 : zd_vector_equal(pa, pb);
}

static int field_equal(const ProtobufCFieldDescriptor *field, const uint8_t *a, const uint8_t *b)
{
	const uint8_t *va = a + field->offset, *vb = b + field->offset;

	if (field->label == PROTOBUF_C_LABEL_REPEATED) {
		const uint8_t *list_a, *list_b;
		size_t na, nb;

		memcpy(&na, a + field->quantifier_offset, sizeof(na));
		memcpy(&nb, b + field->quantifier_offset, sizeof(nb));
		memcpy(&list_a, va, sizeof(list_a));
		memcpy(&list_b, vb, sizeof(list_b));
		if (na != nb)
			return 0;
		for (size_t i = 0; i < na; i++)
			if (!value_equal(field, list_a + i * scalar_size(field), list_b + i * scalar_size(field)))
				return 0;
		return 1;
	}
	if (field->label == PROTOBUF_C_LABEL_OPTIONAL && field->type != PROTOBUF_C_TYPE_STRING && field->type != PROTOBUF_C_TYPE_MESSAGE) {
		protobuf_c_boolean ha, hb;

		memcpy(&ha, a + field->quantifier_offset, sizeof(ha));
		memcpy(&hb, b + field->quantifier_offset, sizeof(hb));
		if (ha != hb)
			return 0;
		if (!ha)
			return 1;
	}
	return value_equal(field, va, vb);
}

int zd_vector_equal(const ProtobufCMessage *a, const ProtobufCMessage *b)
{
	if (a->descriptor != b->descriptor)
		return 0;
	for (unsigned i = 0; i < a->descriptor->n_fields; i++)
		if (!field_equal(&a->descriptor->fields[i], (const uint8_t *)a, (const uint8_t *)b))
			return 0;
	return 1;
}
