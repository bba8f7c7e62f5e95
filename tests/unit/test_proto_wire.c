/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/assert.h"
#include "proto/codec.h"
#include "proto/wire.h"
#include "tests/fuzz/vectors.h"

static jmp_buf violated;

static void on_violation(const char *file, int line, const char *what)
{
	(void)file;
	(void)line;
	(void)what;
	longjmp(violated, 1);
}

/* The head of a vector, exactly as long as it is. */
static uint8_t *head_of(const struct zd_vector *v, size_t *ret_len)
{
	size_t len = protobuf_c_message_get_packed_size(v->msg);
	uint8_t *head = malloc(len + 1);

	assert_int_equal(protobuf_c_message_pack(v->msg, head), len);
	*ret_len = len;
	return realloc(head, len > 0 ? len : 1);
}

static void arena_new(struct zd_arena *a, size_t size)
{
	zd_arena_init(a, malloc(size), size);
}

static void test_every_vector_makes_the_round_trip(void **state)
{
	size_t count;
	const struct zd_vector *v = zd_vectors(&count);
	struct zd_arena a;
	int seen[ZD_MSG_MAX] = {0};

	(void)state;
	arena_new(&a, ZD_ARENA_BYTES);
	for (size_t i = 0; i < count; i++) {
		size_t size = zd_wire_size(v[i].msg);
		uint8_t *out = malloc(size);
		char text[200] = "";
		const ProtobufCMessage *back;
		struct zd_header header;

		assert_int_equal(zd_wire_encode(out, size, v[i].type, 9, v[i].msg, v[i].payload_len, 0x12345678), size);
		assert_int_equal(zd_header_decode(out, zd_vector_side(v[i].type), &header), 0);
		assert_int_equal(header.payload_crc, 0x12345678);
		assert_int_equal(header.stream, 9);
		if (zd_wire_decode(&a, v[i].type, out + ZD_HEADER_BYTES, size - ZD_HEADER_BYTES, &back, text, sizeof(text)) < 0)
			fail_msg("%s: %s", v[i].name, text);
		assert_true(zd_vector_equal(v[i].msg, back));
		assert_true(a.used <= a.size);
		assert_int_equal(zd_wire_check_payload(v[i].type, back, v[i].payload_len, NULL, 0), 0);
		zd_arena_reset(&a);
		free(out);
		seen[v[i].type]++;
	}
	free(a.base);
	for (uint16_t type = 0; type < ZD_MSG_MAX; type++)
		assert_true(strcmp(zd_msg_name(type), "unknown") == 0 ? !seen[type] : seen[type]);
}

/* The comparison that the round trip relies on sees a change in any one byte of the head. */
static void test_the_comparison_can_fail(void **state)
{
	size_t count, len;
	const struct zd_vector *v = zd_vectors(&count);
	const ProtobufCMessage *back;
	struct zd_arena a;
	int differed = 0;

	(void)state;
	arena_new(&a, ZD_ARENA_BYTES);
	for (size_t i = 0; i < zd_vectors_small(); i++) {
		uint8_t *head = head_of(&v[i], &len);

		for (size_t at = 0; at < len; at++) {
			head[at] ^= 1;
			zd_arena_reset(&a);
			if (zd_wire_decode(&a, v[i].type, head, len, &back, NULL, 0) == 0) {
				assert_false(zd_vector_equal(v[i].msg, back));
				differed++;
			}
			head[at] ^= 1;
		}
		free(head);
	}
	free(a.base);
	assert_true(differed > 300);
}

/* A head that ends too early is refused, or everything missing was optional. */
static void test_truncated_heads(void **state)
{
	size_t count, len;
	const struct zd_vector *v = zd_vectors(&count);
	const ProtobufCMessage *back;
	struct zd_arena a;
	char text[200];

	(void)state;
	arena_new(&a, ZD_ARENA_BYTES);
	for (size_t i = 0; i < count; i++) {
		uint8_t *head = head_of(&v[i], &len);

		for (size_t cut = 0; cut < len; cut += len < 600 ? 1 : 211) {
			uint8_t *part = malloc(cut + 1);
			int rc;

			part = realloc(part, cut > 0 ? cut : 1);
			memcpy(part, head, cut);
			zd_arena_reset(&a);
			text[0] = 0;
			rc = zd_wire_decode(&a, v[i].type, part, cut, &back, text, sizeof(text));
			if (rc == 0)
				assert_false(zd_vector_equal(v[i].msg, back) && cut + 2 < len);
			else
				assert_true((rc == -ZD_ERR_BAD_MESSAGE || rc == -ZD_ERR_BAD_FIELD) && strlen(text) > 8);
			free(part);
		}
		free(head);
	}
	free(a.base);
}

/* The second fence: whatever the size of the arena, decoding works or is refused with the numbers, and stays inside. */
static void test_arena_has_a_budget(void **state)
{
	size_t count, len;
	const struct zd_vector *v = zd_vectors(&count);
	const ProtobufCMessage *back;
	uint8_t *head;
	int refused = 0, taken = 0;

	(void)state;
	while (v->type != ZD_MSG_JOINED || v->msg->descriptor != &zd__pb__joined__descriptor || strcmp(v->name, "joined-all") != 0)
		v++;
	head = head_of(v, &len);
	for (size_t size = 1; size < 2000; size += 7) {
		struct zd_arena a;
		char text[200] = "";

		arena_new(&a, size);
		if (zd_wire_decode(&a, v->type, head, len, &back, text, sizeof(text)) < 0) {
			assert_non_null(strstr(text, "does not fit"));
			refused++;
		} else {
			assert_true(zd_vector_equal(v->msg, back));
			taken++;
		}
		assert_true(a.used <= size);
		free(a.base);
	}
	assert_true(refused > 10 && taken > 10);
	free(head);
}

static void test_arena_aligns(void **state)
{
	uint8_t *memory = malloc(1000);

	(void)state;
	for (size_t skew = 0; skew < 17; skew++) {
		struct zd_arena a;
		void *one, *two;

		zd_arena_init(&a, memory + skew, 100);
		one = a.allocator.alloc(a.allocator.allocator_data, 1);
		two = a.allocator.alloc(a.allocator.allocator_data, 5);
		assert_int_equal((uintptr_t)one % 16, 0);
		assert_int_equal((uintptr_t)two % 16, 0);
		assert_true((uint8_t *)two > (uint8_t *)one);
		a.allocator.free(a.allocator.allocator_data, one);
		assert_null(a.allocator.alloc(a.allocator.allocator_data, 100));
		assert_null(a.allocator.alloc(a.allocator.allocator_data, SIZE_MAX));
		zd_arena_reset(&a);
		assert_ptr_equal(a.allocator.alloc(a.allocator.allocator_data, 1), one);
	}
	free(memory);
}

static int encoding_asserts(uint8_t *out, size_t size, uint16_t type, const ProtobufCMessage *msg, uint32_t payload)
{
	if (setjmp(violated))
		return 1;
	zd_wire_encode(out, size, type, 0, msg, payload, 0);
	return 0;
}

/* Our own messages are valid: what is not is our bug, and asserts. */
static void test_encoding_asserts(void **state)
{
	Zd__Pb__Ping ping = ZD__PB__PING__INIT;
	Zd__Pb__Sealed sealed = ZD__PB__SEALED__INIT;
	Zd__Pb__Loaded loaded = ZD__PB__LOADED__INIT;
	Zd__Pb__Data data = ZD__PB__DATA__INIT;
	uint8_t out[200];
	size_t exact = zd_wire_size(&ping.base);
	const struct {
		const ProtobufCMessage *msg;
		uint16_t type;
		size_t size;
		uint32_t payload;
		int fine;
	} cases[] = {
		{&ping.base, ZD_MSG_PING, exact, 0, 1},
		{&ping.base, ZD_MSG_PING, exact - 1, 0, 0},	    /* does not fit */
		{&sealed.base, ZD_MSG_PING, sizeof(out), 0, 0},	    /* another type's message */
		{&ping.base, ZD_MSG_PING, sizeof(out), 1, 0},	    /* a payload where none may be */
		{&loaded.base, ZD_MSG_LOADED, sizeof(out), 0, 0},   /* count is 0 */
		{&data.base, ZD_MSG_DATA, sizeof(out), 0, 1},
		{&data.base, ZD_MSG_DATA, sizeof(out), 2, 0},	    /* more payload than elements */
	};

	(void)state;
	zd_assert_failed = on_violation;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(encoding_asserts(out, cases[i].size, cases[i].type, cases[i].msg, cases[i].payload), !cases[i].fine);
}

static void test_unknown_type(void **state)
{
	struct zd_arena a;
	const ProtobufCMessage *back;
	uint8_t nothing = 0, memory[100];
	char text[100];

	(void)state;
	zd_arena_init(&a, memory, sizeof(memory));
	assert_int_equal(zd_wire_decode(&a, 46, &nothing, 0, &back, text, sizeof(text)), -ZD_ERR_BAD_MESSAGE);
	assert_string_equal(text, "message type 46 is not known");
}

static void test_payload_lengths(void **state)
{
	Zd__Pb__Push push = ZD__PB__PUSH__INIT;
	Zd__Pb__Load load = ZD__PB__LOAD__INIT;
	Zd__Pb__Data data = ZD__PB__DATA__INIT;
	Zd__Pb__Ping ping = ZD__PB__PING__INIT;
	const struct {
		const ProtobufCMessage *msg;
		uint16_t type;
		uint32_t codec, payload;
		int fine;
	} cases[] = {
		{&push.base, ZD_MSG_PUSH, ZD_CODEC_BF16, 200, 1}, {&push.base, ZD_MSG_PUSH, ZD_CODEC_BF16, 198, 0},
		{&push.base, ZD_MSG_PUSH, ZD_CODEC_BF16, 400, 0}, {&push.base, ZD_MSG_PUSH, ZD_CODEC_FP32, 400, 1},
		{&push.base, ZD_MSG_PUSH, ZD_CODEC_FP32, 200, 0}, {&push.base, ZD_MSG_PUSH, ZD_CODEC_FP16, 200, 1},
		{&push.base, ZD_MSG_PUSH, ZD_CODEC_FP16, 0, 0},	  {&load.base, ZD_MSG_LOAD, ZD_CODEC_BF16, 200, 1},
		{&load.base, ZD_MSG_LOAD, ZD_CODEC_FP32, 400, 1}, {&load.base, ZD_MSG_LOAD, ZD_CODEC_FP32, 402, 0},
		{&data.base, ZD_MSG_DATA, 0, 0, 1},		  {&data.base, ZD_MSG_DATA, 0, 200, 1},
		{&data.base, ZD_MSG_DATA, 0, 400, 1},		  {&data.base, ZD_MSG_DATA, 0, 100, 0},
		{&data.base, ZD_MSG_DATA, 0, 402, 0},		  {&ping.base, ZD_MSG_PING, 0, 0, 1},
		{&ping.base, ZD_MSG_PING, 0, 2, 0},
	};
	char text[100];

	(void)state;
	push.count = load.count = data.count = 100;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		push.codec = load.codec = cases[i].codec;
		assert_int_equal(zd_wire_check_payload(cases[i].type, cases[i].msg, cases[i].payload, text, sizeof(text)),
				 cases[i].fine ? 0 : -ZD_ERR_BAD_LENGTH);
	}
	/* No product of the two can wrap around. */
	data.count = 0x80000000u;
	assert_int_equal(zd_wire_check_payload(ZD_MSG_DATA, &data.base, 0x40000000u, NULL, 0), -ZD_ERR_BAD_LENGTH);
	push.codec = ZD_CODEC_FP32;
	push.count = 0x40000001u;
	assert_int_equal(zd_wire_check_payload(ZD_MSG_PUSH, &push.base, 4, text, sizeof(text)), -ZD_ERR_BAD_LENGTH);
	assert_string_equal(text, "PUSH announces 1073741825 elements of 4 bytes, but has 4 bytes of payload");
}

static void test_ballots(void **state)
{
	static const struct {
		struct zd_ballot a, b;
		int order;
	} cases[] = {
		{{1, 0}, {1, 0}, 0},  {{1, 0}, {1, 1}, -1},	       {{1, 1}, {1, 0}, 1},
		{{1, 9}, {2, 0}, -1}, {{UINT64_MAX, 0}, {0, 9}, 1},   {{1, UINT32_MAX}, {1, 0}, 1},
		{{0, 0}, {0, 0}, 0},  {{1ull << 40, 0}, {1, 0}, 1},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int cmp = zd_ballot_cmp(cases[i].a, cases[i].b);

		assert_int_equal((cmp > 0) - (cmp < 0), cases[i].order);
	}
}

static void test_errors(void **state)
{
	(void)state;
	assert_string_equal(zd_err_name(ZD_ERR_GAP), "GAP");
	assert_string_equal(zd_err_name(-ZD_ERR_GAP), "GAP");
	assert_string_equal(zd_err_text(-ZD_ERR_GAP), "a contribution is missing at COMMIT");
	assert_int_equal(zd_err_class(ZD_ERR_GAP), ZD_ERR_CLASS_ABORT);
	assert_int_equal(zd_err_class(ZD_ERR_BAD_MAGIC), ZD_ERR_CLASS_CLOSE);
	assert_int_equal(zd_err_class(-ZD_ERR_NO_MEMORY), ZD_ERR_CLASS_REFUSE);
	assert_string_equal(zd_err_name(9999), "UNKNOWN");
	assert_string_equal(zd_err_text(INT32_MIN), "unknown error");
	assert_int_equal(zd_err_class(9999), ZD_ERR_CLASS_NONE);
	assert_string_equal(zd_err_name(0), "OK");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_vector_makes_the_round_trip),
		cmocka_unit_test(test_the_comparison_can_fail),
		cmocka_unit_test(test_truncated_heads),
		cmocka_unit_test(test_arena_has_a_budget),
		cmocka_unit_test(test_arena_aligns),
		cmocka_unit_test(test_encoding_asserts),
		cmocka_unit_test(test_unknown_type),
		cmocka_unit_test(test_payload_lengths),
		cmocka_unit_test(test_ballots),
		cmocka_unit_test(test_errors),
	};

	return cmocka_run_group_tests_name("proto: messages, checksum, errors", tests, NULL, NULL);
}
