/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/limits.h"
#include "proto/spec.h"
#include "tests/fuzz/vectors.h"

#define UNITS 4u

/* A specification that is fine, in memory of the caller. */
static struct zd_spec good(struct zd_unit_spec units[UNITS])
{
	struct zd_spec spec = {.name = "demo",
			       .optimizer = ZD_OPT_ADAMW,
			       .grad_codec = ZD_CODEC_BF16,
			       .extent_elems = ZD_EXTENT_ELEMS_MAX,
			       .lease_ms = 10000,
			       .unit_count = UNITS,
			       .units = units};

	memset(units, 0, UNITS * sizeof(*units));
	for (uint32_t i = 0; i < UNITS; i++) {
		snprintf(units[i].name, sizeof(units[i].name), "block.%u", i);
		units[i].numel = 1000 + i;
	}
	return spec;
}

static void refused(const struct zd_spec *spec, const char *says)
{
	char text[200] = "";
	int rc = zd_spec_check(spec, text, sizeof(text));

	if (!says) {
		if (rc != 0)
			fail_msg("refused: %s", text);
		return;
	}
	assert_int_equal(rc, -ZD_ERR_BAD_SPEC);
	if (!strstr(text, says))
		fail_msg("\"%s\" does not say \"%s\"", text, says);
	assert_int_equal(zd_spec_check(spec, text, 10), rc); /* a short text is cut, not overrun */
	assert_int_equal(strlen(text), 9);
}

static void test_names(void **state)
{
	static const struct {
		const char *name;
		int fine;
	} cases[] = {
		{"a", 1},	{"A.b_c-9", 1}, {"0123456789012345678901234567890123456789012345678901234567890ab", 1}, {"", 0}, {" ", 0},
		{"a b", 0},	{"a/b", 0},	{"gr\xc3\xbc", 0}, {"a\n", 0},	{"a\"", 0},	{"..", 1},	{"@", 0},
		{"a[", 0},	{"`", 0},	{"{", 0},	{":", 0},	{"a,", 0},
	};
	struct zd_unit_spec units[UNITS];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct zd_spec spec = good(units);

		snprintf(spec.name, sizeof(spec.name), "%s", cases[i].name);
		refused(&spec, cases[i].fine ? NULL : "job name");
		spec = good(units);
		snprintf(units[2].name, sizeof(units[2].name), "%s", cases[i].name);
		refused(&spec, cases[i].fine ? NULL : "unit 2: name");
	}
	{
		struct zd_spec spec = good(units);

		memset(units[3].name, 'x', sizeof(units[3].name)); /* no end: nothing beyond the array is read */
		units[3].numel = 'x'; /* what lies behind it would do as the end of a name */
		refused(&spec, "unit 3: name");
		spec = good(units);
		memset(spec.name, 'x', sizeof(spec.name));
		refused(&spec, "job name");
	}
}

static void test_numbers(void **state)
{
	struct zd_unit_spec units[UNITS];
	struct zd_spec spec;

	(void)state;
#define TRY(change, says)                                                                                                             \
	do {                                                                                                                          \
		spec = good(units);                                                                                                   \
		change;                                                                                                               \
		refused(&spec, says);                                                                                                 \
	} while (0)
	TRY((void)0, NULL);
	TRY(spec.optimizer = ZD_OPT_NONE, NULL);
	TRY(spec.optimizer = ZD_OPT_ADAM_L2, NULL);
	TRY(spec.optimizer = (enum zd_optimizer)3, "optimizer 3");
	TRY(spec.optimizer = (enum zd_optimizer)UINT32_MAX, "optimizer 4294967295");
	TRY(spec.grad_codec = (enum zd_codec)3, "gradient codec 3");
	TRY(spec.grad_codec = (enum zd_codec)UINT32_MAX, "gradient codec");
	TRY(spec.extent_elems = ZD_BLOCK_ELEMS, NULL);
	TRY(spec.extent_elems = ZD_BLOCK_ELEMS / 2, "extent of 2048 elements, expected a power of two from 4096 to 131072");
	TRY(spec.extent_elems = 0, "extent of 0");
	TRY(spec.extent_elems = 3 * ZD_BLOCK_ELEMS, "extent of 12288");
	TRY(spec.extent_elems = 2 * ZD_EXTENT_ELEMS_MAX, "extent of 262144");
	TRY(spec.grad_codec = ZD_CODEC_FP32, "extent of 131072 elements, expected a power of two from 4096 to 65536");
	TRY((spec.grad_codec = ZD_CODEC_FP32, spec.extent_elems = ZD_GRAIN_ELEMS), NULL);
	TRY(spec.grad_codec = ZD_CODEC_FP16, NULL);
	TRY(spec.lease_ms = 99, "lease of 99 ms");
	TRY(spec.lease_ms = 100, NULL);
	TRY(spec.lease_ms = 3600000, NULL);
	TRY(spec.lease_ms = 3600001, "lease of 3600001 ms");
	TRY(spec.unit_count = 0, "0 units");
	TRY(spec.unit_count = ZD_UNITS_MAX + 1, "1025 units");
	TRY(units[0].numel = 0, "unit 0 \"block.0\": 0 elements");
	TRY(units[3].numel = ZD_NUMEL_MAX, NULL);
	TRY(units[3].numel = ZD_NUMEL_MAX + 1, "unit 3 \"block.3\": 1099511627777 elements");
	TRY(units[0].frozen = units[1].frozen = units[2].frozen = 1, NULL);
	TRY(units[0].frozen = units[1].frozen = units[2].frozen = units[3].frozen = 1, "all 4 units are frozen");
	TRY(memcpy(units[3].name, units[1].name, sizeof(units[3].name)), "units 1 and 3 are both named \"block.1\"");
#undef TRY
	assert_int_equal(zd_spec_default_extent(ZD_CODEC_BF16), ZD_EXTENT_ELEMS_MAX);
	assert_int_equal(zd_spec_default_extent(ZD_CODEC_FP16), ZD_EXTENT_ELEMS_MAX);
	assert_int_equal(zd_spec_default_extent(ZD_CODEC_FP32), ZD_GRAIN_ELEMS);
}

/* Names of the most units there may be, all distinct; then every pair in turn the same. */
static void test_distinct_names(void **state)
{
	struct zd_unit_spec *units = calloc(ZD_UNITS_MAX, sizeof(*units));
	struct zd_unit_spec some[UNITS];
	struct zd_spec spec = good(some);
	char expected[60];

	(void)state;
	spec.units = units;
	spec.unit_count = ZD_UNITS_MAX;
	for (uint32_t i = 0; i < ZD_UNITS_MAX; i++) {
		snprintf(units[i].name, sizeof(units[i].name), "%u", i);
		units[i].numel = 1;
	}
	refused(&spec, NULL);
	for (uint32_t i = 1; i < ZD_UNITS_MAX; i += 31) {
		uint32_t with = i * 7 % i;

		snprintf(units[i].name, sizeof(units[i].name), "%u", with);
		snprintf(expected, sizeof(expected), "units %u and %u are both named \"%u\"", with, i, with);
		refused(&spec, expected);
		snprintf(units[i].name, sizeof(units[i].name), "%u", i);
	}
	free(units);
}

static void test_comparison_names_the_first_difference(void **state)
{
	struct zd_unit_spec have_units[UNITS], units[UNITS];
	struct zd_spec have = good(have_units), spec;
	char text[200];

	(void)state;
	spec = good(units);
	assert_int_equal(zd_spec_compare(&have, &spec, text, sizeof(text)), 0);
#define TRY(change, expected)                                                                                                         \
	do {                                                                                                                          \
		spec = good(units);                                                                                                   \
		change;                                                                                                               \
		assert_int_equal(zd_spec_compare(&have, &spec, text, sizeof(text)), -ZD_ERR_JOB_DIFFERS);                             \
		assert_string_equal(text, expected);                                                                                  \
	} while (0)
	TRY(spec.name[0] = 'x', "name is \"demo\" on the lane, asked for \"xemo\"");
	TRY(spec.optimizer = ZD_OPT_NONE, "optimizer is 1 on the lane, asked for 0");
	TRY(spec.grad_codec = ZD_CODEC_FP16, "grad_codec is 0 on the lane, asked for 1");
	TRY(spec.extent_elems = 4096, "extent_elems is 131072 on the lane, asked for 4096");
	TRY(spec.lease_ms = 5, "lease_ms is 10000 on the lane, asked for 5");
	TRY(spec.unit_count = 3, "number of units is 4 on the lane, asked for 3");
	TRY(units[3].name[0] = 'B', "unit 3 is \"block.3\" on the lane, asked for \"Block.3\"");
	TRY(units[1].numel = 7, "unit 1 \"block.1\" has 1001 elements on the lane, asked for 7");
	TRY(units[2].frozen = 1, "unit 2 \"block.2\" is trained on the lane, asked for frozen");
	TRY((units[3].numel = 7, units[2].frozen = 1), "unit 2 \"block.2\" is trained on the lane, asked for frozen");
#undef TRY
	spec = good(units);
	have_units[0].frozen = 1;
	units[0].frozen = 2; /* any value but 0 says the same */
	assert_int_equal(zd_spec_compare(&have, &spec, text, sizeof(text)), 0);
}

static void test_messages(void **state)
{
	struct zd_unit_spec units[UNITS], back_units[UNITS];
	struct zd_spec spec = good(units), back;
	Zd__Pb__JobSpec pb;
	Zd__Pb__Unit pb_units[UNITS], *ptrs[UNITS];
	char text[200], too_long[100];

	(void)state;
	units[1].frozen = 1;
	zd_spec_to_pb(&spec, &pb, pb_units, ptrs);
	assert_int_equal(zd_spec_from_pb(&back, back_units, UNITS, &pb, text, sizeof(text)), 0);
	assert_int_equal(zd_spec_compare(&spec, &back, text, sizeof(text)), 0);
	assert_ptr_equal(back.units, back_units);

	assert_int_equal(zd_spec_from_pb(&back, back_units, UNITS - 1, &pb, text, sizeof(text)), -ZD_ERR_BAD_SPEC);
	assert_string_equal(text, "4 units, there is room for 3");
	pb.optimizer = 9; /* what the message says is checked like all else */
	assert_int_equal(zd_spec_from_pb(&back, back_units, UNITS, &pb, text, sizeof(text)), -ZD_ERR_BAD_SPEC);
	pb.optimizer = 1;
	memset(too_long, 'n', sizeof(too_long));
	too_long[64] = 0;
	ptrs[2]->name = too_long;
	assert_int_equal(zd_spec_from_pb(&back, back_units, UNITS, &pb, text, sizeof(text)), -ZD_ERR_BAD_SPEC);
	assert_non_null(strstr(text, "unit 2: name"));
	too_long[63] = 0;
	assert_int_equal(zd_spec_from_pb(&back, back_units, UNITS, &pb, text, sizeof(text)), 0);
	pb.name = too_long;
	too_long[63] = 'n';
	assert_int_equal(zd_spec_from_pb(&back, back_units, UNITS, &pb, text, sizeof(text)), -ZD_ERR_BAD_SPEC);
	assert_non_null(strstr(text, "job name"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_distinct_names),
		cmocka_unit_test(test_comparison_names_the_first_difference),
		cmocka_unit_test(test_messages),
	};

	return cmocka_run_group_tests_name("proto: job specification", tests, NULL, NULL);
}
