/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of the layout over many random specifications, and a few layouts worked out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/layout.h"
#include "proto/limits.h"
#include "tests/fuzz/rng.h"

#define B ((uint64_t)ZD_BLOCK_ELEMS)

static struct zd_unit_spec units[ZD_UNITS_MAX];
static struct zd_piece pieces[ZD_UNITS_MAX * ZD_LANES_MAX], again[ZD_UNITS_MAX * ZD_LANES_MAX], mine[ZD_UNITS_MAX];
static uint64_t scratch[ZD_LANES_MAX];

static struct zd_spec spec_of(const uint64_t *numel, const uint8_t *frozen, uint32_t count)
{
	struct zd_spec spec = {.name = "job",
			       .optimizer = ZD_OPT_ADAMW,
			       .grad_codec = ZD_CODEC_BF16,
			       .extent_elems = ZD_EXTENT_ELEMS_MAX,
			       .lease_ms = 1000,
			       .unit_count = count,
			       .units = units};

	for (uint32_t i = 0; i < count; i++) {
		snprintf(units[i].name, sizeof(units[i].name), "u%u", i);
		units[i].numel = numel[i];
		units[i].frozen = frozen ? frozen[i] : 0;
	}
	return spec;
}

static void assert_piece(uint32_t lanes, uint32_t unit, uint32_t lane, uint64_t first, uint64_t count)
{
	struct zd_piece p = pieces[unit * lanes + lane];

	if (p.count != count || (count > 0 && p.first != first))
		fail_msg("unit %u lane %u of %u: [%llu, +%llu), expected [%llu, +%llu)", unit, lane, lanes, (unsigned long long)p.first,
			 (unsigned long long)p.count, (unsigned long long)first, (unsigned long long)count);
}

static void test_by_hand(void **state)
{
	/* 24 blocks and one element; small; small; 64 Ki: the first that is split in two; three lanes. */
	const uint64_t numel[] = {24 * B * 3 + 1, 5000, 65535, 65536, 100};
	struct zd_spec spec = spec_of(numel, NULL, 5);

	(void)state;
	zd_layout_all(&spec, 3, pieces, scratch);
	/* 73 blocks, the last of one element: 25 + 24 + 24; loads then in elements: 25 B, 24 B, 23 B + 1 */
	assert_piece(3, 0, 0, 0, 25 * B);
	assert_piece(3, 0, 1, 25 * B, 24 * B);
	assert_piece(3, 0, 2, 49 * B, 23 * B + 1);
	/* lane 2 owns least and gets the small unit whole: 23 B + 5001 */
	assert_piece(3, 1, 2, 0, 5000);
	assert_piece(3, 1, 0, 0, 0);
	assert_piece(3, 1, 1, 0, 0);
	/* lane 1 (24 B) owns less than lane 2 (23 B + 5001 = 24 B + 905) */
	assert_piece(3, 2, 1, 0, 65535);
	/* 16 blocks on the two that own least, lanes 2 and 0, in that order */
	assert_piece(3, 3, 2, 0, 8 * B);
	assert_piece(3, 3, 0, 8 * B, 8 * B);
	assert_piece(3, 3, 1, 0, 0);
	/* lane 2 now has 32 B + 905, lane 0 33 B, lane 1 40 B - 1 */
	assert_piece(3, 4, 2, 0, 100);
}

static void test_ties_go_to_the_lower_lane(void **state)
{
	const uint64_t numel[] = {100, 100, 100, 100, 100};
	struct zd_spec spec = spec_of(numel, NULL, 5);

	(void)state;
	zd_layout_all(&spec, 4, pieces, scratch);
	for (uint32_t u = 0; u < 5; u++)
		assert_piece(4, u, u % 4, 0, 100);
}

/* A trainable element weighs eight times a frozen one. */
static void test_frozen_units_weigh_less(void **state)
{
	const uint64_t numel[] = {8000, 1000, 6999, 10, 2};
	const uint8_t frozen[] = {1, 0, 1, 0, 1};
	struct zd_spec spec = spec_of(numel, frozen, 5);

	(void)state;
	zd_layout_all(&spec, 3, pieces, scratch);
	assert_piece(3, 0, 0, 0, 8000); /* 8000 */
	assert_piece(3, 1, 1, 0, 1000); /* 8000 */
	assert_piece(3, 2, 2, 0, 6999); /* 6999 */
	assert_piece(3, 3, 2, 0, 10);	/* 7079: still least */
	assert_piece(3, 4, 2, 0, 2);
}

static void test_one_lane_owns_everything(void **state)
{
	const uint64_t numel[] = {1, ZD_NUMEL_MAX, 4097};
	struct zd_spec spec = spec_of(numel, NULL, 3);

	(void)state;
	zd_layout_all(&spec, 1, pieces, scratch);
	for (uint32_t u = 0; u < 3; u++)
		assert_piece(1, u, 0, 0, numel[u]);
}

/* The largest specification there is: no sum overflows. */
static void test_largest(void **state)
{
	static uint64_t numel[ZD_UNITS_MAX];
	struct zd_spec spec;

	(void)state;
	for (uint32_t i = 0; i < ZD_UNITS_MAX; i++)
		numel[i] = ZD_NUMEL_MAX;
	spec = spec_of(numel, NULL, ZD_UNITS_MAX);
	zd_layout_all(&spec, 1, pieces, scratch);
	assert_piece(1, ZD_UNITS_MAX - 1, 0, 0, ZD_NUMEL_MAX);
	zd_layout_all(&spec, ZD_LANES_MAX, pieces, scratch);
	for (uint32_t l = 0; l < ZD_LANES_MAX; l++)
		assert_piece(ZD_LANES_MAX, ZD_UNITS_MAX - 1, l, l * (ZD_NUMEL_MAX / ZD_LANES_MAX), ZD_NUMEL_MAX / ZD_LANES_MAX);
}

static int by_first(const void *a, const void *b)
{
	const struct zd_piece *x = a, *y = b;

	return (x->first > y->first) - (x->first < y->first);
}

/* Pieces of one unit: owned exactly once, from block borders, as many and as large as layout.h says. */
static void check_unit(uint64_t numel, const struct zd_piece *row, uint32_t lanes)
{
	static struct zd_piece sorted[ZD_LANES_MAX];
	uint64_t blocks = (numel + B - 1) / B, at = 0, wanted = numel / ZD_PIECE_ELEMS_MIN;
	uint32_t k = 0;

	for (uint32_t l = 0; l < lanes; l++)
		if (row[l].count > 0)
			sorted[k++] = row[l];
	assert_int_equal(k, wanted < 1 ? 1 : wanted > lanes ? lanes : wanted);
	qsort(sorted, k, sizeof(sorted[0]), by_first);
	for (uint32_t i = 0; i < k; i++) {
		assert_int_equal(sorted[i].first, at);
		assert_int_equal(sorted[i].first % B, 0);
		assert_true((sorted[i].count + B - 1) / B == blocks / k + (i < blocks % k));
		at += sorted[i].count;
	}
	assert_int_equal(at, numel);
}

static void check_spread(const struct zd_spec *spec, uint32_t lanes, const struct zd_piece *all)
{
	static uint64_t load[ZD_LANES_MAX];
	uint64_t most = 0, least = UINT64_MAX;

	memset(load, 0, sizeof(load));
	for (uint32_t u = 0; u < spec->unit_count; u++)
		for (uint32_t l = 0; l < lanes; l++)
			load[l] += all[u * lanes + l].count * (spec->units[u].frozen ? 2 : 16);
	for (uint32_t l = 0; l < lanes; l++) {
		most = load[l] > most ? load[l] : most;
		least = load[l] < least ? load[l] : least;
	}
	if (most - least > ZD_LAYOUT_SPREAD)
		fail_msg("%u units on %u lanes: loads differ by %llu", spec->unit_count, lanes, (unsigned long long)(most - least));
}

/* Sizes of one kind: around blocks, around the size that is split, odd, large. */
static uint64_t random_numel(struct zd_rng *rng, uint64_t kind)
{
	switch (kind) {
	case 0:
		return 1 + zd_rng_below(rng, 70000);
	case 1:
		return B * (1 + zd_rng_below(rng, 40)) + zd_rng_below(rng, 3) - 1;
	case 2:
		return ZD_PIECE_ELEMS_MIN * (1 + zd_rng_below(rng, 20)) + zd_rng_below(rng, 3) - 1;
	case 3:
		return 2 * ZD_PIECE_ELEMS_MIN * 8 - B + 1; /* always the same short block: it must not add up on one lane */
	default:
		return 1 + zd_rng_below(rng, (uint64_t)1 << (1 + zd_rng_below(rng, 34)));
	}
}

static void test_properties(void **state)
{
	static uint64_t numel[ZD_UNITS_MAX];
	static uint8_t frozen[ZD_UNITS_MAX];

	(void)state;
	for (uint64_t seed = 0; seed < 400; seed++) {
		struct zd_rng rng = {seed};
		uint64_t kind = seed % 6;
		uint32_t lanes = (uint32_t)(1 + zd_rng_below(&rng, seed % 3 ? 9 : 100));
		uint32_t count = (uint32_t)(1 + zd_rng_below(&rng, seed % 7 ? 40 : ZD_UNITS_MAX));
		struct zd_spec spec;

		for (uint32_t i = 0; i < count; i++) {
			numel[i] = random_numel(&rng, kind == 5 ? zd_rng_below(&rng, 5) : kind);
			frozen[i] = i > 0 && zd_rng_below(&rng, 4) == 0;
		}
		spec = spec_of(numel, frozen, count);
		zd_layout_all(&spec, lanes, pieces, scratch);
		for (uint32_t u = 0; u < count; u++)
			check_unit(numel[u], pieces + u * lanes, lanes);
		check_spread(&spec, lanes, pieces);

		/* The same again, whatever was in the memory before; and lane by lane. */
		memset(again, 0xa5, sizeof(again[0]) * count * lanes);
		memset(scratch, 0x5a, sizeof(scratch));
		zd_layout_all(&spec, lanes, again, scratch);
		assert_memory_equal(pieces, again, sizeof(again[0]) * count * lanes);
		for (uint32_t l = 0; l < lanes; l++) {
			memset(mine, 0xa5, sizeof(mine));
			zd_layout_lane(&spec, lanes, l, mine, scratch);
			for (uint32_t u = 0; u < count; u++)
				assert_memory_equal(&mine[u], &pieces[u * lanes + l], sizeof(mine[u]));
		}
	}
}

/* The rule as layout.h has it, in the plainest way: look for the least loaded lane, k times. */
static void model(const struct zd_spec *spec, uint32_t lanes, struct zd_piece *out)
{
	static uint64_t load[ZD_LANES_MAX];
	static uint8_t taken[ZD_LANES_MAX];

	memset(load, 0, sizeof(load));
	memset(out, 0, sizeof(*out) * spec->unit_count * lanes);
	for (uint32_t u = 0; u < spec->unit_count; u++) {
		uint64_t numel = spec->units[u].numel, blocks = (numel + B - 1) / B, at = 0;
		uint64_t k = numel / ZD_PIECE_ELEMS_MIN;

		k = k < 1 ? 1 : k > lanes ? lanes : k;
		memset(taken, 0, sizeof(taken));
		for (uint64_t i = 0; i < k; i++) {
			uint64_t count = B * (blocks / k + (i < blocks % k));
			uint32_t least = lanes;

			for (uint32_t l = 0; l < lanes; l++)
				if (!taken[l] && (least == lanes || load[l] < load[least]))
					least = l;
			taken[least] = 1;
			count = count < numel - at ? count : numel - at;
			out[u * lanes + least] = (struct zd_piece){at, count};
			at += count;
			load[least] += count * (spec->units[u].frozen ? 2 : 16);
		}
	}
}

static void test_against_the_plain_rule(void **state)
{
	static uint64_t numel[ZD_UNITS_MAX];
	static uint8_t frozen[ZD_UNITS_MAX];

	(void)state;
	for (uint64_t seed = 1000; seed < 1400; seed++) {
		struct zd_rng rng = {seed};
		uint32_t lanes = (uint32_t)(1 + zd_rng_below(&rng, 40)), count = (uint32_t)(1 + zd_rng_below(&rng, 60));
		struct zd_spec spec;

		for (uint32_t i = 0; i < count; i++) {
			numel[i] = random_numel(&rng, seed % 6 == 5 ? zd_rng_below(&rng, 5) : seed % 6);
			frozen[i] = i > 0 && zd_rng_below(&rng, 4) == 0;
		}
		spec = spec_of(numel, frozen, count);
		model(&spec, lanes, again);
		zd_layout_all(&spec, lanes, pieces, scratch);
		for (uint32_t i = 0; i < count * lanes; i++)
			assert_true(pieces[i].count == again[i].count && pieces[i].first == again[i].first);
	}
}

/* Units placed later do not move what was placed before: a job's layout is that of its first units, and more. */
static void test_later_units_change_nothing(void **state)
{
	const uint64_t numel[] = {300000, 7, 65536, 123456, 40000, 1 << 20};
	struct zd_spec spec = spec_of(numel, NULL, 6);

	(void)state;
	zd_layout_all(&spec, 4, pieces, scratch);
	for (uint32_t count = 1; count < 6; count++) {
		spec.unit_count = count;
		zd_layout_all(&spec, 4, again, scratch);
		assert_memory_equal(pieces, again, sizeof(again[0]) * 4 * count);
	}
}

static void test_extents(void **state)
{
	static const struct {
		uint64_t count;
		uint32_t extent, expected;
	} cases[] = {{0, 4096, 0},	       {1, 4096, 1},	   {4096, 4096, 1},
		     {4097, 4096, 2},	       {131072, 131072, 1}, {131073, 131072, 2},
		     {1ull << 40, 131072, 8388608}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(zd_piece_extents((struct zd_piece){0, cases[i].count}, cases[i].extent), cases[i].expected);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_by_hand),
		cmocka_unit_test(test_ties_go_to_the_lower_lane),
		cmocka_unit_test(test_frozen_units_weigh_less),
		cmocka_unit_test(test_one_lane_owns_everything),
		cmocka_unit_test(test_largest),
		cmocka_unit_test(test_properties),
		cmocka_unit_test(test_against_the_plain_rule),
		cmocka_unit_test(test_later_units_change_nothing),
		cmocka_unit_test(test_extents),
	};

	return cmocka_run_group_tests_name("proto: layout", tests, NULL, NULL);
}
