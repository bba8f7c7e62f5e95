/* SPDX-License-Identifier: Apache-2.0 */
/* Every range that a decoded message may rely on: its ends are taken, one beyond is refused, and the text names the field. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "proto/limits.h"
#include "proto/wire.h"
#include "tests/fuzz/vectors.h"

static uint8_t memory[2][ZD_ARENA_BYTES], packed[ZD_HEAD_OPEN_MAX + 100];

static const struct zd_vector *named(const char *name)
{
	size_t count;
	const struct zd_vector *v = zd_vectors(&count);

	for (size_t i = 0; i < count; i++)
		if (strcmp(v[i].name, name) == 0)
			return &v[i];
	fail_msg("no vector %s", name);
	return NULL;
}

/* A copy that may be changed. */
static ProtobufCMessage *copy_of(const struct zd_vector *v)
{
	struct zd_arena a;
	const ProtobufCMessage *copy = NULL;
	size_t len = protobuf_c_message_pack(v->msg, packed);

	zd_arena_init(&a, memory[0], sizeof(memory[0]));
	assert_int_equal(zd_wire_decode(&a, v->type, packed, len, &copy, NULL, 0), 0);
	return (ProtobufCMessage *)(uintptr_t)copy;
}

/* Where "record.ballot.epoch" is; of repeated fields the last entry. */
static void *find(ProtobufCMessage *msg, const char *path, const ProtobufCFieldDescriptor **ret_field)
{
	size_t len = strcspn(path, ".");
	char name[40];
	const ProtobufCFieldDescriptor *field;
	uint8_t *at;

	snprintf(name, sizeof(name), "%.*s", (int)len, path);
	field = protobuf_c_message_descriptor_get_field_by_name(msg->descriptor, name);
	if (!field)
		fail_msg("no field %s in %s", name, msg->descriptor->short_name);
	at = (uint8_t *)msg + field->offset;
	if (field->label == PROTOBUF_C_LABEL_REPEATED) {
		void *list;
		size_t n, size = field->type == PROTOBUF_C_TYPE_UINT32 ? sizeof(uint32_t) : sizeof(void *);

		memcpy(&n, (uint8_t *)msg + field->quantifier_offset, sizeof(n));
		memcpy(&list, at, sizeof(list));
		at = (uint8_t *)list + (n - 1) * size;
	} else if (field->label == PROTOBUF_C_LABEL_OPTIONAL && field->type == PROTOBUF_C_TYPE_UINT32) {
		*(protobuf_c_boolean *)((uint8_t *)msg + field->quantifier_offset) = 1;
	}
	if (path[len] == '.') {
		memcpy(&msg, at, sizeof(msg));
		return find(msg, path + len + 1, ret_field);
	}
	*ret_field = field;
	return at;
}

static void set_number(ProtobufCMessage *msg, const char *path, uint64_t value)
{
	const ProtobufCFieldDescriptor *field;
	void *at = find(msg, path, &field);

	if (field->type == PROTOBUF_C_TYPE_UINT32)
		memcpy(at, &(uint32_t){(uint32_t)value}, sizeof(uint32_t));
	else if (field->type == PROTOBUF_C_TYPE_BOOL)
		memcpy(at, &(protobuf_c_boolean){value != 0}, sizeof(protobuf_c_boolean));
	else
		memcpy(at, &value, sizeof(value));
}

static int decode(uint16_t type, const ProtobufCMessage *msg, char *text, size_t size)
{
	struct zd_arena a;
	const ProtobufCMessage *ignored;
	size_t len = protobuf_c_message_pack(msg, packed);

	text[0] = 0;
	zd_arena_init(&a, memory[1], sizeof(memory[1]));
	return zd_wire_decode(&a, type, packed, len, &ignored, text, size);
}

static void check(const char *vector, const char *path, const ProtobufCMessage *msg, int fine, const char *mention)
{
	char text[300];
	int rc = decode(named(vector)->type, msg, text, sizeof(text));

	if (rc != (fine ? 0 : -ZD_ERR_BAD_FIELD))
		fail_msg("%s.%s: %d \"%s\"", vector, path, rc, text);
	if (!fine && !strstr(text, mention))
		fail_msg("%s.%s: \"%s\" does not say \"%s\"", vector, path, text, mention);
}

#define ANY UINT64_MAX

static const struct range {
	const char *vector, *path;
	uint64_t low, high;
	const char *says; /* when it is not the field's name: what is wrong may be another field beside this one */
} ranges[] = {
	{"hello", "version", 1, ANY, NULL},
	{"hello", "role", 1, 3, NULL},
	{"hello", "lane", 0, ZD_LANES_MAX - 1, NULL},
	{"welcome", "version", 1, ANY, NULL},
	{"welcome", "lane_count", 1, ZD_LANES_MAX, NULL},
	{"welcome", "payload_max", 1, ZD_PAYLOAD_MAX, NULL},
	{"open", "lane_count", 2, ZD_LANES_MAX, "OPEN.lane_"},
	{"open", "lane_index", 0, 1, NULL},
	{"join", "ballot.epoch", 1, ANY, "epoch"},
	{"join", "ballot.attempt", 0, ANY, NULL},
	{"join", "world", 2, ZD_WORLD_MAX, "JOIN."},
	{"join", "rank", 0, 1, NULL},
	{"joined-all", "ballot.epoch", 1, ANY, NULL},
	{"joined-all", "credit", 0, ZD_CREDIT_MAX, NULL},
	{"joined-all", "decided", 11, 11, "prepared"},
	{"joined-all", "prepared.round", 12, 12, "JOINED."},
	{"joined-all", "decision.round", 11, 11, "JOINED."},
	{"joined-all", "prepared.world", 1, ZD_WORLD_MAX, NULL},
	{"load", "unit", 0, ZD_UNITS_MAX - 1, NULL},
	{"load", "count", 1, ZD_GRAIN_ELEMS, NULL},
	{"load", "codec", 0, 2, NULL},
	{"load", "first", 0, ZD_NUMEL_MAX - 4096, "range"},
	{"loaded", "unit", 0, ZD_UNITS_MAX - 1, NULL},
	{"loaded", "count", 1, ZD_GRAIN_ELEMS, NULL},
	{"loaded", "first", 0, ZD_NUMEL_MAX - 4096, "range"},
	{"fetch", "unit", 0, ZD_UNITS_MAX - 1, NULL},
	{"fetch", "count", 1, ZD_NUMEL_MAX, NULL},
	{"fetch", "first", 0, ZD_NUMEL_MAX - 100000, "range"},
	{"fetch", "plane", 1, 3, NULL},
	{"fetch", "mode", 1, 3, NULL},
	{"data", "unit", 0, ZD_UNITS_MAX - 1, NULL},
	{"data", "first", 0, ZD_NUMEL_MAX - 3000, "range"},
	{"push", "ballot.epoch", 1, ANY, "epoch"},
	{"push", "round", 1, ANY, NULL},
	{"push", "rank", 0, ZD_WORLD_MAX - 1, NULL},
	{"push", "unit", 0, ZD_UNITS_MAX - 1, NULL},
	{"push", "micro_batches", 4, ZD_MICRO_MAX, "PUSH.micro"},
	{"push", "micro", 0, 3, NULL},
	{"push", "codec", 0, 2, NULL},
	{"push", "count", 1, ZD_EXTENT_ELEMS_MAX, NULL},
	{"push", "first", 0, ZD_NUMEL_MAX - 4096, "range"},
	{"pushed", "ballot.epoch", 1, ANY, "epoch"},
	{"pushed", "round", 1, ANY, NULL},
	{"pushed", "unit", 0, ZD_UNITS_MAX - 1, NULL},
	{"commit", "ballot.epoch", 1, ANY, "epoch"},
	{"commit", "round", 1, ANY, NULL},
	{"commit", "rank", 0, ZD_WORLD_MAX - 1, NULL},
	{"commit", "micro_batches", 1, ZD_MICRO_MAX, NULL},
	{"commit", "counts", 0, ZD_MICRO_MAX, NULL},
	{"prepared", "ballot.epoch", 1, ANY, "epoch"},
	{"prepared", "record.ballot.epoch", 1, ANY, "epoch"},
	{"prepared", "record.round", 1, ANY - 1, NULL},
	{"prepared", "record.world", 1, ZD_WORLD_MAX, NULL},
	{"prepared", "record.micro_batches", 1, ZD_MICRO_MAX, NULL},
	{"prepared-large", "record.bad_unit", 0, ZD_UNITS_MAX - 1, NULL},
	{"prepared-large", "record.bad_element", 0, ZD_NUMEL_MAX - 1, NULL},
	{"prepared-large", "record.bad_rank", 0, ZD_WORLD_MAX - 1, NULL},
	{"apply", "ballot.epoch", 1, ANY, "epoch"},
	{"apply", "decision.round", 1, ANY - 1, NULL},
	{"apply", "decision.ballot.epoch", 1, ANY, "epoch"},
	{"applied", "ballot.epoch", 1, ANY, "epoch"},
	{"applied", "decision.round", 1, ANY - 1, NULL},
	{"discard", "ballot.epoch", 1, ANY, "epoch"},
	{"discard", "round", 1, ANY, NULL},
	{"discard", "record.epoch", 1, ANY, "epoch"},
	{"discarded", "ballot.epoch", 1, ANY, "epoch"},
	{"discarded", "round", 1, ANY, NULL},
	{"discarded", "record.epoch", 1, ANY, "epoch"},
	{"aborted", "ballot.epoch", 0, ANY, "epoch"}, /* a lane that has promised nothing */
	{"aborted", "ended.epoch", 1, ANY, "epoch"},
	{"aborted", "code", 1, ANY, NULL},
	{"aborted", "missing", 0, ZD_WORLD_MAX - 1, NULL},
	{"error", "code", 1, ANY, NULL},
	{"status-reply", "lane", 0, ZD_LANES_MAX - 1, NULL},
	{"status-reply", "jobs.lane_count", 2, ZD_LANES_MAX, "STATUS_REPLY.lane_"},
	{"status-reply", "jobs.lane_index", 0, 1, NULL},
	{"status-reply", "jobs.world", 0, ZD_WORLD_MAX, NULL},
	{"status-reply", "jobs.joined", 0, ZD_WORLD_MAX, NULL},
	{"pong", "absent", 0, ZD_WORLD_MAX - 1, NULL},
	{"pong", "behind", 0, ZD_WORLD_MAX - 1, NULL},
	{"show-reply", "workers.rank", 0, ZD_WORLD_MAX - 1, NULL},
	{"show-reply", "status.lane_count", 2, ZD_LANES_MAX, "SHOW_REPLY.lane_"},
};

static void test_ranges(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		const char *path = ranges[i].path, *dot = strrchr(path, '.');
		const char *says = ranges[i].says ? ranges[i].says : dot ? dot + 1 : path;
		const uint64_t tried[] = {ranges[i].low, ranges[i].high, ranges[i].low - 1, ranges[i].high + 1, UINT64_MAX};

		for (size_t k = 0; k < 5; k++) {
			const ProtobufCFieldDescriptor *field;
			ProtobufCMessage *msg = copy_of(named(ranges[i].vector));
			uint64_t value = tried[k];

			find(msg, path, &field);
			if (field->type == PROTOBUF_C_TYPE_UINT32)
				value = (uint32_t)value;
			set_number(msg, path, value);
			check(ranges[i].vector, path, msg, value >= ranges[i].low && value <= ranges[i].high, says);
		}
	}
}

static void test_doubles(void **state)
{
	static const struct {
		const char *vector, *path;
	} cases[] = {
		{"apply", "decision.scale"}, {"apply", "decision.norm"}, {"applied", "decision.norm"}, {"status-reply", "jobs.norm"},
	};
	static const struct {
		double value;
		int fine;
	} values[] = {{0, 1}, {1, 1}, {0x1.fffffffffffffp1023, 1}, {INFINITY, 0}, {NAN, 0}, {-1, 0}, {-0x1p-1074, 0}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (size_t k = 0; k < sizeof(values) / sizeof(values[0]); k++) {
			ProtobufCMessage *msg = copy_of(named(cases[i].vector));
			uint64_t bits;

			memcpy(&bits, &values[k].value, sizeof(bits));
			set_number(msg, cases[i].path, bits);
			check(cases[i].vector, cases[i].path, msg, values[k].fine, strrchr(cases[i].path, '.') + 1);
		}
	}
}

static void set_hyper(const char *vector, const char *path, double value, int fine)
{
	ProtobufCMessage *msg = copy_of(named(vector));
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	set_number(msg, path, bits);
	check(vector, path, msg, fine, strrchr(path, '.') + 1);
}

static void test_hyper_parameters_are_checked_wherever_they_travel(void **state)
{
	(void)state;
	set_hyper("commit", "hyper.lr", 1, 1);
	set_hyper("commit", "hyper.lr", -1, 0);
	set_hyper("commit", "hyper.lr", NAN, 0);
	set_hyper("commit", "hyper.beta1", 1, 0);
	set_hyper("commit", "hyper.eps", 0, 0);
	set_hyper("commit", "hyper.loss_scale", 0, 0);
	set_hyper("prepared", "record.hyper.max_norm", INFINITY, 0);
	set_hyper("joined-all", "prepared.hyper.weight", -1, 0);
}

/* What a count may be depends on the codec: the payload must fit a frame. */
static void test_push_fits_a_frame(void **state)
{
	ProtobufCMessage *msg = copy_of(named("push"));

	(void)state;
	set_number(msg, "codec", 2);
	set_number(msg, "count", ZD_GRAIN_ELEMS);
	check("push", "count", msg, 1, "");
	set_number(msg, "count", ZD_GRAIN_ELEMS + 1);
	check("push", "count", msg, 0, "PUSH.count is 65537, expected 1 to 65536");
}

static void test_fields_that_go_together(void **state)
{
	ProtobufCMessage *msg;

	(void)state;
	msg = copy_of(named("apply"));
	set_number(msg, "decision.applied", 0);
	check("apply", "scale", msg, 0, "the round is skipped");
	set_number(msg, "decision.scale", 0);
	check("apply", "scale", msg, 1, "");

	msg = copy_of(named("prepared"));
	set_number(msg, "record.nonfinite", 1);
	check("prepared", "nonfinite", msg, 0, "not named");

	msg = copy_of(named("joined-all"));
	((Zd__Pb__Joined *)msg)->decision = NULL;
	check("joined-all", "decision", msg, 0, "decision is missing");
	((Zd__Pb__Joined *)msg)->prepared = NULL;
	((Zd__Pb__Joined *)msg)->decided = 0;
	check("joined-all", "decision", msg, 1, "");
}

static void test_norms(void **state)
{
	ProtobufCMessage *msg = copy_of(named("prepared"));
	Zd__Pb__Record *record = ((Zd__Pb__Prepared *)msg)->record;

	(void)state;
	record->norm.len = 79;
	check("prepared", "norm", msg, 0, "PREPARED.norm is not a sum of squares");
	record->norm.len = 0;
	check("prepared", "norm", msg, 0, "norm");
	record->norm.len = 80;
	check("prepared", "norm", msg, 1, "");
	record->norm.data[79] = 1; /* more than all elements that can be */
	check("prepared", "norm", msg, 0, "norm");
}

static void test_strings(void **state)
{
	static const struct {
		const char *vector, *path;
		int may_be_empty;
	} cases[] = {
		{"hello", "agent", 1},	  {"welcome", "daemon", 0},	   {"open", "spec.name", 1},	  {"open", "spec.units.name", 1},
		{"aborted", "text", 1},	  {"error", "text", 1},		   {"error", "job", 1},		  {"error", "unit", 1},
		{"show", "name", 0},	  {"drop", "name", 0},		   {"dropped", "name", 0},	  {"status-reply", "daemon", 0},
		{"status-reply", "kernels", 1}, {"status-reply", "jobs.name", 0}, {"show-reply", "spec.name", 1},
	};
	static const struct {
		const char *text;
		int fine;
	} values[] = {{"", 2}, {"a", 1}, {" ~", 1}, {"a\n", 0}, {"\x1b[2J", 0}, {"\x7f", 0}, {"gr\xc3\xbc\xc3\x9f", 0}, {"\x1f", 0}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (size_t k = 0; k < sizeof(values) / sizeof(values[0]); k++) {
			const ProtobufCFieldDescriptor *field;
			ProtobufCMessage *msg = copy_of(named(cases[i].vector));
			const char *last = strrchr(cases[i].path, '.');

			memcpy(find(msg, cases[i].path, &field), &values[k].text, sizeof(char *));
			check(cases[i].vector, cases[i].path, msg, values[k].fine == 2 ? cases[i].may_be_empty : values[k].fine,
			      last ? last + 1 : cases[i].path);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_doubles),
		cmocka_unit_test(test_hyper_parameters_are_checked_wherever_they_travel),
		cmocka_unit_test(test_push_fits_a_frame),
		cmocka_unit_test(test_fields_that_go_together),
		cmocka_unit_test(test_norms),
		cmocka_unit_test(test_strings),
	};

	return cmocka_run_group_tests_name("proto: ranges of fields", tests, NULL, NULL);
}
