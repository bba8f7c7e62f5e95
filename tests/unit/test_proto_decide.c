/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "proto/decide.h"
#include "tests/fuzz/rng.h"

static const struct zd_hyper plain = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .loss_scale = 1};

static struct zd_record record(double sum_of_squares)
{
	struct zd_record r = {.round = 5, .ballot = {3, 1}, .hyper = plain, .world = 2, .micro_batches = 4};

	zd_normacc_add(&r.norm, sum_of_squares);
	return r;
}

static void test_by_hand(void **state)
{
	/* Numbers chosen so that every intermediate result is exact, or is written as the formula of decide.h says. */
	static const struct {
		const char *what;
		double squares, max_norm, loss_scale, weight;
		double norm, scale;
	} cases[] = {
		{"mean of 8", 6400, 0, 1, 0, 10, 0.125},
		{"clip far above", 6400, 1e9, 1, 0, 10, 0.125},
		{"clipped to a quarter", 6400, 2.5, 1, 0, 10, (2.5 / (10 + 1e-6)) / 8},
		{"clip at the norm still shrinks by the 1e-6", 6400, 10, 1, 0, 10, (10 / (10 + 1e-6)) / 8},
		{"loss scale", 6400.0 * 1024 * 1024, 0, 1024, 0, 10, 1.0 / 8192},
		{"weights instead of a count", 6400, 0, 1, 16, 5, 0.0625},
		{"weights and loss scale", 6400.0 * 4, 0, 2, 16, 5, 0.03125},
		{"no gradient", 0, 0, 1, 0, 0, 0.125},
		{"no gradient, clipped", 0, 1, 1, 0, 0, 0.125},
		{"tiny clip", 6400, 0x1p-1074, 1, 0, 10, 0},
		{"three", 3, 0, 1, 3, 0x1.279a74590331cp-1, 1.0 / 3}, /* sqrt(3) / 3 */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct zd_record r = record(cases[i].squares);
		struct zd_decision d;
		char text[200];

		r.hyper.max_norm = cases[i].max_norm;
		r.hyper.loss_scale = cases[i].loss_scale;
		r.hyper.weight = cases[i].weight;
		assert_int_equal(zd_decide(&r, 1, 17, &d, text, sizeof(text)), 0);
		if (d.norm != cases[i].norm || d.scale != cases[i].scale)
			fail_msg("%s: norm %a scale %a, expected %a %a", cases[i].what, d.norm, d.scale, cases[i].norm, cases[i].scale);
		assert_int_equal(d.applied, 1);
		assert_int_equal(d.step, 18);
		assert_int_equal(d.round, 5);
		assert_int_equal(zd_ballot_cmp(d.ballot, r.ballot), 0);
	}
}

static void test_skipped(void **state)
{
	struct zd_record r[3] = {record(6400), record(0), record(0)};
	struct zd_decision d;
	char text[200];

	(void)state;
	assert_false(zd_record_worse(&r[0], NULL) || zd_record_worse(&r[0], &r[1]));
	r[1].nonfinite = 2;
	r[1].bad_unit = 4;
	r[1].bad_element = 9;
	assert_int_equal(zd_decide(r, 3, 17, &d, text, sizeof(text)), 0);
	assert_int_equal(d.applied, 0);
	assert_true(d.scale == 0 && d.norm == 10);
	assert_int_equal(d.step, 17);
	assert_true(zd_record_worse(&r[1], NULL) && zd_record_worse(&r[1], &r[0]) && !zd_record_worse(&r[0], &r[1]));
	r[2] = r[0];
	r[2].nonfinite = 1;
	r[2].bad_unit = 3;
	r[2].bad_element = 100;
	assert_true(zd_record_worse(&r[2], &r[1]) && !zd_record_worse(&r[1], &r[2]));
	r[0].nonfinite = 1;
	r[0].bad_unit = 3;
	r[0].bad_element = 99;
	assert_true(zd_record_worse(&r[0], &r[2]) && !zd_record_worse(&r[2], &r[0]));
	r[0].bad_element = 101;
	assert_true(zd_record_worse(&r[2], &r[0]) && !zd_record_worse(&r[0], &r[2]) && !zd_record_worse(&r[2], &r[2]));
}

/* The same block sums over one to seven lanes, in any order of lanes: one decision. */
static void test_any_number_of_lanes(void **state)
{
	struct zd_rng rng = {1};
	char text[200];

	(void)state;
	for (int round = 0; round < 50; round++) {
		double blocks[200];
		struct zd_decision first, d;

		for (int i = 0; i < 200; i++)
			blocks[i] = ldexp((double)(zd_rng_next(&rng) >> 11), (int)zd_rng_below(&rng, 200) - 200);
		for (size_t lanes = 1; lanes <= 7; lanes++) {
			struct zd_record r[7];

			for (size_t l = 0; l < lanes; l++) {
				r[l] = record(0);
				r[l].hyper.max_norm = 0.5;
			}
			for (int i = 0; i < 200; i++)
				zd_normacc_add(&r[zd_rng_below(&rng, lanes)].norm, blocks[i]);
			assert_int_equal(zd_decide(r, lanes, 3, &d, text, sizeof(text)), 0);
			if (lanes == 1)
				first = d;
			assert_true(zd_decision_equal(&first, &d));
		}
	}
}

static void test_records_that_differ(void **state)
{
	char text[200];
	struct zd_decision d;

	(void)state;
	for (int field = 0; field < 13; field++) {
		static const char *const names[] = {"round", "ballot", "ballot", "world", "micro_batches", "lr", "weight_decay", "beta1",
						    "beta2", "eps", "max_norm", "loss_scale", "weight"};
		struct zd_record r[3] = {record(1), record(2), record(3)};
		double *hyper[] = {&r[2].hyper.lr, &r[2].hyper.weight_decay, &r[2].hyper.beta1, &r[2].hyper.beta2,
				   &r[2].hyper.eps, &r[2].hyper.max_norm, &r[2].hyper.loss_scale, &r[2].hyper.weight};
		char expected[60];

		r[2].round += field == 0;
		r[2].ballot.epoch += field == 1;
		r[2].ballot.attempt += field == 2;
		r[2].world += field == 3;
		r[2].micro_batches += field == 4;
		if (field >= 5)
			*hyper[field - 5] = nextafter(*hyper[field - 5], 1e9);
		assert_int_equal(zd_decide(r, 2, 0, &d, text, sizeof(text)), 0);
		assert_int_equal(zd_decide(r, 3, 0, &d, text, sizeof(text)), -ZD_ERR_DECISION_DIFFERS);
		snprintf(expected, sizeof(expected), "differ in %s: lane 0", names[field]);
		assert_non_null(strstr(text, expected));
		assert_non_null(strstr(text, "lane 2"));
	}
}

/* By their bits: -0 is not 0, and a NaN equals itself. */
static void test_comparison_is_of_bits(void **state)
{
	struct zd_hyper a = plain, b = plain;
	struct zd_decision d = {.round = 1, .ballot = {1, 0}, .applied = 1, .scale = 1, .norm = 2, .step = 3}, e = d;

	(void)state;
	assert_null(zd_hyper_differs(&a, &b));
	b.max_norm = -0.0;
	assert_string_equal(zd_hyper_differs(&a, &b), "max_norm");
	a.weight = NAN;
	b = a;
	assert_null(zd_hyper_differs(&a, &b));

	assert_true(zd_decision_equal(&d, &e));
	for (int field = 0; field < 7; field++) {
		e = d;
		e.round += field == 0;
		e.ballot.epoch += field == 1;
		e.ballot.attempt += field == 2;
		e.applied = (uint8_t)(field != 3);
		e.scale = field == 4 ? nextafter(1, 2) : 1;
		e.norm = field == 5 ? -2 : 2;
		e.step += field == 6;
		assert_false(zd_decision_equal(&d, &e));
	}
}

static void test_hyper_check(void **state)
{
	static const struct {
		size_t field;
		double value;
		const char *says; /* NULL: usable */
	} cases[] = {
#define AT(name) offsetof(struct zd_hyper, name)
		{AT(lr), 0, NULL},
		{AT(lr), 1e20, NULL},
		{AT(lr), 1.1e20, "lr must"},
		{AT(lr), -1e-9, "lr must"},
		{AT(lr), NAN, "lr must"},
		{AT(lr), INFINITY, "lr must"},
		{AT(weight_decay), 0, NULL},
		{AT(weight_decay), 1e10, NULL},
		{AT(weight_decay), 1.1e10, "weight_decay must"},
		{AT(weight_decay), -1, "weight_decay must"},
		{AT(weight_decay), NAN, "weight_decay must"},
		{AT(beta1), 0, NULL},
		{AT(beta1), 0x1.fffffffffffffp-1, NULL},
		{AT(beta1), 1, "beta1 must be at least 0 and below 1"},
		{AT(beta1), -0x1p-1074, "beta1 must"},
		{AT(beta1), NAN, "beta1 must"},
		{AT(beta2), 0, NULL},
		{AT(beta2), 1, "beta2 must"},
		{AT(beta2), NAN, "beta2 must"},
		{AT(eps), 1e-30, NULL},
		{AT(eps), 0, "eps must"},
		{AT(eps), 1e-31, "eps must"},
		{AT(eps), NAN, "eps must"},
		{AT(max_norm), 0, NULL},
		{AT(max_norm), 1e300, NULL},
		{AT(max_norm), INFINITY, "max_norm must"},
		{AT(max_norm), -1, "max_norm must"},
		{AT(loss_scale), 65536, NULL},
		{AT(loss_scale), ZD_DIVISOR_MIN, NULL},
		{AT(loss_scale), ZD_DIVISOR_MAX, NULL},
		{AT(loss_scale), 0, "loss_scale must"},
		{AT(loss_scale), ZD_DIVISOR_MIN / 2, "loss_scale must"},
		{AT(loss_scale), ZD_DIVISOR_MAX * 2, "loss_scale must"},
		{AT(loss_scale), NAN, "loss_scale must"},
		{AT(weight), 0, NULL},
		{AT(weight), 8192, NULL},
		{AT(weight), -1, "weight must"},
		{AT(weight), ZD_DIVISOR_MIN / 2, "weight must"},
		{AT(weight), ZD_DIVISOR_MAX * 2, "weight must"},
		{AT(weight), NAN, "weight must"},
#undef AT
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct zd_hyper h = plain;
		const char *what;
		double found;

		memcpy((char *)&h + cases[i].field, &cases[i].value, sizeof(double));
		what = zd_hyper_check(&h, &found);
		if (!cases[i].says) {
			assert_null(what);
			continue;
		}
		assert_true(what && strncmp(what, cases[i].says, strlen(cases[i].says)) == 0);
		assert_memory_equal(&found, &cases[i].value, sizeof found);
	}
}

/* Whatever passes the check gives a scale that fp32 can hold, whatever the norm. */
static void test_scale_is_always_finite(void **state)
{
	static const double extremes[] = {ZD_DIVISOR_MIN, 1, ZD_DIVISOR_MAX};
	char text[200];
	double unused;

	(void)state;
	for (int i = 0; i < 27; i++) {
		struct zd_record r = record(i / 9 == 0 ? 0 : i / 9 == 1 ? 0x1p-298 : 0x1.fffffffffffffp299);
		struct zd_decision d;

		r.hyper.loss_scale = extremes[i % 3];
		r.hyper.weight = extremes[i / 3 % 3];
		r.hyper.max_norm = i % 2 ? 1 : 0;
		assert_null(zd_hyper_check(&r.hyper, &unused));
		assert_int_equal(zd_decide(&r, 1, 0, &d, text, sizeof(text)), 0);
		assert_true(isfinite((float)d.scale) && d.scale >= 0 && isfinite(d.norm));
	}
}

static void test_messages(void **state)
{
	struct zd_record r = record(6400), back;
	struct zd_decision d = {.round = 9, .ballot = {8, 7}, .applied = 1, .scale = 0.1, .norm = 0.2, .step = 6}, d_back;
	Zd__Pb__Record pb;
	Zd__Pb__Decision pb_decision;
	Zd__Pb__Ballot ballot;
	Zd__Pb__Hyper hyper;
	uint8_t norm[ZD_NORMACC_BYTES];

	(void)state;
	r.hyper = (struct zd_hyper){1, 2, 0.3, 0.4, 5, 6, 7, 8}; /* all different: a swap shows */
	for (int bad = 0; bad < 2; bad++) {
		r.nonfinite = bad ? 3 : 0;
		r.bad_unit = bad ? 4 : 0;
		r.bad_rank = bad ? 1 : 0;
		r.bad_element = bad ? 55 : 0;
		zd_record_to_pb(&r, &pb, &ballot, &hyper, norm);
		assert_int_equal(pb.has_bad_unit && pb.has_bad_rank && pb.has_bad_element, bad);
		assert_true(hyper.lr == 1 && hyper.weight_decay == 2 && hyper.beta1 == 0.3 && hyper.beta2 == 0.4 && hyper.eps == 5 &&
			    hyper.max_norm == 6 && hyper.loss_scale == 7 && hyper.weight == 8);
		memset(&back, 0xaa, sizeof(back));
		assert_int_equal(zd_record_from_pb(&back, &pb), 0);
		assert_null(zd_hyper_differs(&r.hyper, &back.hyper));
		assert_int_equal(zd_ballot_cmp(r.ballot, back.ballot), 0);
		assert_memory_equal(&r.norm, &back.norm, sizeof(r.norm));
		assert_true(back.round == 5 && back.world == 2 && back.micro_batches == 4 && back.nonfinite == r.nonfinite &&
			    back.bad_unit == r.bad_unit && back.bad_rank == r.bad_rank && back.bad_element == r.bad_element);
	}
	pb.norm.len = 79;
	assert_int_equal(zd_record_from_pb(&back, &pb), -ZD_ERR_BAD_FIELD);

	zd_decision_to_pb(&d, &pb_decision, &ballot);
	zd_decision_from_pb(&d_back, &pb_decision);
	assert_true(zd_decision_equal(&d, &d_back));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_by_hand),
		cmocka_unit_test(test_skipped),
		cmocka_unit_test(test_any_number_of_lanes),
		cmocka_unit_test(test_records_that_differ),
		cmocka_unit_test(test_comparison_is_of_bits),
		cmocka_unit_test(test_hyper_check),
		cmocka_unit_test(test_scale_is_always_finite),
		cmocka_unit_test(test_messages),
	};

	return cmocka_run_group_tests_name("proto: decision", tests, NULL, NULL);
}
