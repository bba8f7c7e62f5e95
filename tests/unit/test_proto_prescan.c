/* SPDX-License-Identifier: Apache-2.0 */
/* What the pre-scan refuses, what it lets through, and that its cost does not depend on what a peer wrote. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/limits.h"
#include "proto/prescan.h"
#include "proto/wire.h"
#include "tests/fuzz/vectors.h"

#define HOSTILE_BYTES 65536u

struct bytes {
	size_t len;
	uint8_t at[2 * ZD_HEAD_OPEN_MAX];
};

static struct bytes buffer, other; /* too large for a stack */

static void put(struct bytes *b, const void *data, size_t len)
{
	assert_true(len <= sizeof(b->at) - b->len);
	memcpy(b->at + b->len, data, len);
	b->len += len;
}

static void put_varint(struct bytes *b, uint64_t value)
{
	for (; value >= 0x80; value >>= 7)
		put(b, &(uint8_t){(uint8_t)(value | 0x80)}, 1);
	put(b, &(uint8_t){(uint8_t)value}, 1);
}

static int scan(const ProtobufCMessageDescriptor *of, const struct bytes *b, struct zd_prescan_work *work, char *text, size_t size)
{
	uint8_t *exact = malloc(b->len > 0 ? b->len : 1);
	int rc;

	memcpy(exact, b->at, b->len);
	text[0] = 0;
	rc = zd_prescan(of, exact, b->len, work, text, size);
	free(exact);
	return rc;
}

static void test_refusals(void **state)
{
	static const struct {
		const char *what;
		const ProtobufCMessageDescriptor *of;
		const char *bytes;
		size_t len;
		const char *text; /* NULL: accepted */
	} cases[] = {
#define CASE(what, pb, bytes, text) {what, &zd__pb__##pb##__descriptor, bytes, sizeof(bytes) - 1, text}
		CASE("plain", ping, "\x08\x05", NULL),
		CASE("nothing in it", seal, "", NULL),
		CASE("required field missing", ping, "", "Ping.token: missing"),
		CASE("twice", ping, "\x08\x05\x08\x05", "Ping.token: present twice"),
		CASE("largest 64-bit number", ping, "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", NULL),
		CASE("65 bits", ping, "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", "more than 64 bits"),
		CASE("eleven bytes", ping, "\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", "more than 64 bits"),
		CASE("not the shortest form", ping, "\x08\x85\x00", "not in its shortest form"),
		CASE("ends in a number", ping, "\x08\x85", "ends inside a number"),
		CASE("ends after the tag", ping, "\x08", "ends inside a number"),
		CASE("ends in the tag", ping, "\x88", "ends inside a number"),
		CASE("field number 0", ping, "\x00\x05", "field number outside"),
		CASE("field number 2^29", ping, "\x08\x05\x80\x80\x80\x80\x10\x05", "field number outside"),
		CASE("field number 2^29 - 1", ping, "\x08\x05\xf8\xff\xff\xff\x0f\x05", NULL),
		CASE("group", ping, "\x0b\x0c", "unknown wire type"),
		CASE("end of a group", ping, "\x0c", "unknown wire type"),
		CASE("wire type 6", ping, "\x0e", "unknown wire type"),
		CASE("wire type 7", ping, "\x0f", "unknown wire type"),
		CASE("number as fixed 64", ping, "\x09\x05\0\0\0\0\0\0\0", "Ping.token: encoded as another type"),
		CASE("number as bytes", ping, "\x0a\x01\x05", "Ping.token: encoded as another type"),
		CASE("string as number", drop, "\x08\x05", "Drop.name: encoded as another type"),
		CASE("message as number", open, "\x08\x05", "Open.spec: encoded as another type"),
		CASE("unknown number", ping, "\x08\x05\x78\x01", NULL),
		CASE("unknown fixed 64", ping, "\x08\x05\x79\0\0\0\0\0\0\0\0", NULL),
		CASE("unknown fixed 64, cut", ping, "\x08\x05\x79\0\0\0\0\0\0\0", "(unknown field): longer than the message"),
		CASE("unknown fixed 32", ping, "\x08\x05\x7d\0\0\0\0", NULL),
		CASE("unknown fixed 32, cut", ping, "\x08\x05\x7d\0\0\0", "(unknown field): longer than the message"),
		CASE("unknown bytes", ping, "\x08\x05\x7a\x03ooo", NULL),
		CASE("unknown bytes, cut", ping, "\x08\x05\x7a\x04ooo", "(unknown field): longer than the message"),
		CASE("unknown field twice", ping, "\x08\x05\x78\x01\x78\x01", NULL),
		CASE("length of 2^63", drop, "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "Drop.name: longer than the message"),
		CASE("length of 2^64 - 1", drop, "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "longer than the message"),
		CASE("NUL in a string", drop, "\x0a\x03" "a\0b", "Drop.name: NUL in a string"),
		CASE("empty string", drop, "\x0a\x00", NULL),
		CASE("bool of 2", sealed, "\x08\x02", NULL), /* not a bool: a control for the next */
		CASE("bool of 2", data, "\x08\x00\x10\x00\x18\x00\x20\x00\x28\x02", "Data.last: number outside its type"),
		CASE("bool of 1", data, "\x08\x00\x10\x00\x18\x00\x20\x00\x28\x01", NULL),
		CASE("uint32 of 2^32", data, "\x08\x80\x80\x80\x80\x10", "Data.unit: number outside its type"),
		CASE("uint32 of 2^32 - 1", data, "\x08\xff\xff\xff\xff\x0f\x10\x00\x18\x00\x20\x00\x28\x01", NULL),
		CASE("packed uint32 of 2^32", commit, "\x32\x06\x05\x80\x80\x80\x80\x10", "Commit.counts: number outside its type"),
		CASE("packed number beyond its field", commit, "\x32\x02\x05\x80\x01", "Commit.counts: the message ends inside a number"),
		CASE("inner field missing", apply, "\x0a\x02\x08\x01", "Ballot.attempt: missing"),
		CASE("inner message longer", apply, "\x0a\x05\x08\x01\x10\x00", "Apply.ballot: longer than the message"),
#undef CASE
	};
	struct zd_prescan_work work;
	char text[200];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		buffer.len = 0;
		put(&buffer, cases[i].bytes, cases[i].len);
		if (scan(cases[i].of, &buffer, &work, text, sizeof(text)) != (cases[i].text ? -ZD_ERR_BAD_MESSAGE : 0))
			fail_msg("%s: \"%s\"", cases[i].what, text);
		if (cases[i].text && !strstr(text, cases[i].text))
			fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].what, text, cases[i].text);
	}
}

/* Strings and bytes: the longest is taken, one more is not. */
static void test_lengths_of_strings(void **state)
{
	static const struct {
		const ProtobufCMessageDescriptor *of;
		const char *before;
		uint8_t tag;
		size_t max;
		const char *after;
	} cases[] = {
		{&zd__pb__drop__descriptor, "", 0x0a, ZD_NAME_MAX, ""},
		{&zd__pb__error__descriptor, "\x08\x01", 0x12, ZD_TEXT_MAX, ""},
		{&zd__pb__error__descriptor, "\x08\x01\x12\x01x", 0x1a, ZD_NAME_MAX, ""},
		{&zd__pb__unit__descriptor, "\x10\x01", 0x0a, ZD_NAME_MAX, ""},
		{&zd__pb__hello__descriptor, "\x08\x01\x10\x01\x18\x01\x20\x01", 0x2a, ZD_NAME_MAX, ""},
	};
	struct zd_prescan_work work;
	char text[200], string[ZD_TEXT_MAX + 1];

	(void)state;
	memset(string, 'x', sizeof(string));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (size_t more = 0; more < 2; more++) {
			buffer.len = 0;
			put(&buffer, cases[i].before, strlen(cases[i].before));
			put(&buffer, &cases[i].tag, 1);
			put_varint(&buffer, cases[i].max + more);
			put(&buffer, string, cases[i].max + more);
			assert_int_equal(scan(cases[i].of, &buffer, &work, text, sizeof(text)), more ? -ZD_ERR_BAD_MESSAGE : 0);
			if (more)
				assert_non_null(strstr(text, "longer than the protocol allows"));
		}
	}
}

/* Entries of repeated fields: as many as may be are taken, packed, unpacked and mixed; one more is not. */
static void test_bounds_of_repeated_fields(void **state)
{
	static const struct {
		const ProtobufCMessageDescriptor *of;
		const char *before;
		size_t before_len;
		uint8_t field;
		uint32_t max;
	} cases[] = {
		{&zd__pb__joined__descriptor, "\x0a\x04\x08\x01\x10\x00\x10\x00\x18\x00\x20\x00\x40\x00", 14, 7, ZD_UNITS_MAX},
		{&zd__pb__aborted__descriptor, "\x0a\x04\x08\x01\x10\x00\x12\x04\x08\x01\x10\x00\x18\x01\x22\x00", 16, 5, ZD_WORLD_MAX},
		{&zd__pb__pong__descriptor, "\x08\x01", 2, 3, ZD_WORLD_MAX},
		{&zd__pb__pong__descriptor, "\x08\x01", 2, 4, ZD_WORLD_MAX},
	};
	struct zd_prescan_work work;
	char text[200];

	(void)state;
	for (size_t i = 0; i < 8 * sizeof(cases) / sizeof(cases[0]); i++) {
		uint32_t max = cases[i / 8].max, field = cases[i / 8].field, more = i % 2, unpacked = i / 2 % 4 * (max / 3);

		buffer.len = 0;
		put(&buffer, cases[i / 8].before, cases[i / 8].before_len);
		for (uint32_t k = 0; k < unpacked; k++)
			put(&buffer, &(uint8_t[]){(uint8_t)(field << 3), 5}, 2);
		if (max - unpacked + more > 0) {
			put_varint(&buffer, field << 3 | 2);
			put_varint(&buffer, max - unpacked + more);
			for (uint32_t k = 0; k < max - unpacked + more; k++)
				put(&buffer, "\x07", 1);
		}
		assert_int_equal(scan(cases[i / 8].of, &buffer, &work, text, sizeof(text)), more ? -ZD_ERR_BAD_MESSAGE : 0);
		if (more)
			assert_non_null(strstr(text, "more entries than the protocol allows"));
	}
}

static void test_units_and_jobs_are_bounded(void **state)
{
	struct zd_prescan_work work;
	char text[200];

	(void)state;
	for (uint32_t more = 0; more < 2; more++) {
		buffer.len = 0;
		put(&buffer, "\x0a\x01j\x18\x01\x20\x01\x28\x01\x30\x01", 11);
		for (uint32_t i = 0; i < ZD_UNITS_MAX + more; i++)
			put(&buffer, "\x12\x05\x0a\x01u\x10\x01", 7);
		assert_int_equal(scan(&zd__pb__job_spec__descriptor, &buffer, &work, text, sizeof(text)), more ? -ZD_ERR_BAD_MESSAGE : 0);
		if (more)
			assert_string_equal(text, "JobSpec.units: more entries than the protocol allows");
	}
}

/* Ours cannot nest that deep, so one of its own kind shows it. */
static const ProtobufCMessageDescriptor recursive;
static const ProtobufCFieldDescriptor recursive_fields[] = {
	{.name = "again", .id = 1, .label = PROTOBUF_C_LABEL_OPTIONAL, .type = PROTOBUF_C_TYPE_MESSAGE, .descriptor = &recursive},
};
static const ProtobufCIntRange recursive_ranges[] = {{1, 0}, {0, 1}};
static const ProtobufCMessageDescriptor recursive = {.magic = PROTOBUF_C__MESSAGE_DESCRIPTOR_MAGIC,
						     .short_name = "Recursive",
						     .n_fields = 1,
						     .fields = recursive_fields,
						     .n_field_ranges = 1,
						     .field_ranges = recursive_ranges};

static void test_nesting_is_bounded(void **state)
{
	static const uint8_t bytes[] = {0x0a, 6, 0x0a, 4, 0x0a, 2, 0x0a, 0};
	struct zd_prescan_work work;
	char text[200];

	(void)state;
	for (size_t depth = 1; depth <= 5; depth++) { /* 1: an empty message */
		size_t len = 2 * (depth - 1);

		buffer.len = 0;
		put(&buffer, bytes + sizeof(bytes) - len, len);
		assert_int_equal(scan(&recursive, &buffer, &work, text, sizeof(text)), depth > ZD_DEPTH_MAX ? -ZD_ERR_BAD_MESSAGE : 0);
		if (depth > ZD_DEPTH_MAX)
			assert_string_equal(text, "Recursive: nested too deep");
	}
}

/* Every message we have: without any one required field, with any one singular field twice, it is refused by name. */
static void drop_or_double(const struct zd_vector *v, const struct bytes *head, int doubled)
{
	struct zd_prescan_work work;
	char text[200], name[100];
	size_t at = 0;

	while (at < head->len) {
		size_t begin = at, value = 0;
		unsigned shift = 0, number = head->at[at] >> 3, wire = head->at[at] & 7; /* field numbers below 16, or two bytes */
		const ProtobufCFieldDescriptor *field;

		if (head->at[at++] & 0x80) {
			number = (number & 15) | (unsigned)head->at[at] << 4;
			at++;
		}
		if (wire == 1) {
			at += 8;
		} else {
			do
				value |= (size_t)(head->at[at] & 0x7f) << shift, shift += 7;
			while (head->at[at++] & 0x80);
			at += wire == 2 ? value : 0;
		}
		field = protobuf_c_message_descriptor_get_field(v->msg->descriptor, number);
		assert_non_null(field);
		if (field->label == PROTOBUF_C_LABEL_REPEATED || (!doubled && field->label == PROTOBUF_C_LABEL_OPTIONAL))
			continue;
		other.len = 0;
		put(&other, head->at, doubled ? at : begin);
		put(&other, head->at + (doubled ? begin : at), head->len - (doubled ? begin : at));
		assert_int_equal(scan(v->msg->descriptor, &other, &work, text, sizeof(text)), -ZD_ERR_BAD_MESSAGE);
		snprintf(name, sizeof(name), "%s.%s: %s", v->msg->descriptor->short_name, field->name, doubled ? "present twice" : "missing");
		assert_string_equal(text, name);
	}
}

static void test_required_and_singular_fields(void **state)
{
	size_t count;
	const struct zd_vector *v = zd_vectors(&count);

	(void)state;
	for (size_t i = 0; i < count; i++) {
		buffer.len = protobuf_c_message_pack(v[i].msg, buffer.at);
		drop_or_double(&v[i], &buffer, 0);
		drop_or_double(&v[i], &buffer, 1);
	}
}

/* 64 KiB of one pattern after a valid beginning or none. */
static void test_hostile_patterns(void **state)
{
	static const struct {
		const char *what;
		const ProtobufCMessageDescriptor *of;
		const char *pattern;
		size_t len;
	} cases[] = {
#define CASE(what, pb, pattern) {what, &zd__pb__##pb##__descriptor, pattern, sizeof(pattern) - 1}
		CASE("zeros", open, "\0"),
		CASE("ones", open, "\xff"),
		CASE("endless number", open, "\x80"),
		CASE("empty units", job_spec, "\x12\x00"),
		CASE("least units", job_spec, "\x12\x05\x0a\x01u\x10\x01"),
		CASE("the same message again", open, "\x0a\x00"),
		CASE("the same ballot again", push, "\x0a\x04\x08\x01\x10\x00"),
		CASE("the same number again", push, "\x10\x01"),
		CASE("unknown numbers", ping, "\x78\x01"),
		CASE("unknown empty strings", ping, "\x7a\x00"),
		CASE("unknown large field numbers", ping, "\xf8\xff\xff\xff\x0f\x01"),
		CASE("unknown messages in each other", ping, "\x7a\x7f\x7a\x7d"),
		CASE("numbers one by one", commit, "\x30\x01"),
		CASE("packed numbers, chunk by chunk", commit, "\x32\x01\x01"),
		CASE("packed nothing", commit, "\x32\x00"),
		CASE("packed numbers of ten bytes", joined, "\x3a\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
		CASE("groups", ping, "\x7b"),
		CASE("jobs", status_reply, "\x72\x00"),
		CASE("missing ranks", aborted, "\x28\x01"),
#undef CASE
	};
	struct zd_prescan_work work;
	char text[200];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		buffer.len = 0;
		while (buffer.len + cases[i].len <= HOSTILE_BYTES)
			put(&buffer, cases[i].pattern, cases[i].len);
		if (scan(cases[i].of, &buffer, &work, text, sizeof(text)) != -ZD_ERR_BAD_MESSAGE)
			fail_msg("%s: accepted", cases[i].what);
		/* What this costs is known: at ten nanoseconds for each of these, a quarter of a millisecond. */
		assert_true(work.fields <= ZD_FIELDS_MAX + 1);
		assert_true(work.varints <= 2 * (ZD_FIELDS_MAX + 1) + ZD_UNITS_MAX);
		assert_true(work.bytes <= ZD_UNITS_MAX * ZD_NAME_MAX);
	}
}

/* One packed field that fills the head costs as many numbers as may be, not as many as there are. */
static void test_hostile_packed_field(void **state)
{
	struct zd_prescan_work work;
	char text[200];

	(void)state;
	buffer.len = 0;
	put(&buffer, "\x32", 1);
	put_varint(&buffer, HOSTILE_BYTES);
	memset(buffer.at + buffer.len, 1, HOSTILE_BYTES);
	buffer.len += HOSTILE_BYTES;
	assert_int_equal(scan(&zd__pb__commit__descriptor, &buffer, &work, text, sizeof(text)), -ZD_ERR_BAD_MESSAGE);
	assert_string_equal(text, "Commit.counts: more entries than the protocol allows");
	assert_true(work.varints <= ZD_UNITS_MAX + 3);
}

/* As many unknown fields as are let through: the arena is what stops them, or they fit. */
static void test_many_unknown_fields(void **state)
{
	uint8_t *memory = malloc(ZD_ARENA_BYTES);
	struct zd_arena a;
	const ProtobufCMessage *msg;
	char text[200];
	int refused = 0, taken = 0;

	(void)state;
	zd_arena_init(&a, memory, ZD_ARENA_BYTES);
	for (uint32_t n = 0; n < ZD_FIELDS_MAX; n += n < 64 ? 1 : 512) {
		int rc;

		buffer.len = 0;
		put(&buffer, "\x08\x05", 2);
		for (uint32_t i = 0; i < n; i++)
			put(&buffer, "\x7a\x03xyz", 5);
		zd_arena_reset(&a);
		rc = zd_wire_decode(&a, ZD_MSG_PING, buffer.at, buffer.len, &msg, text, sizeof(text));
		assert_true(rc == 0 || rc == -ZD_ERR_BAD_MESSAGE);
		if (rc == 0)
			assert_int_equal(((const Zd__Pb__Ping *)msg)->token, 5);
		refused += rc != 0;
		taken += rc == 0;
	}
	assert_true(taken >= 64 && refused > 0);
	free(memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_lengths_of_strings),
		cmocka_unit_test(test_bounds_of_repeated_fields),
		cmocka_unit_test(test_units_and_jobs_are_bounded),
		cmocka_unit_test(test_nesting_is_bounded),
		cmocka_unit_test(test_required_and_singular_fields),
		cmocka_unit_test(test_hostile_patterns),
		cmocka_unit_test(test_hostile_packed_field),
		cmocka_unit_test(test_many_unknown_fields),
	};

	return cmocka_run_group_tests_name("proto: pre-scan", tests, NULL, NULL);
}
