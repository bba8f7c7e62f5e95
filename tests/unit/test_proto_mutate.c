/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A million mutated frames through reader, pre-scan, decoder, validator and what follows from a message: under the sanitizers this
 * shows that no peer can make the codec do anything but accept or refuse.  Everything follows from the seed; ZD_SEED runs another one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/bytes.h"
#include "tests/fuzz/drive.h"
#include "tests/fuzz/rng.h"
#include "tests/fuzz/vectors.h"

#define FRAMES 1000000u
#define SEEDS_MAX 64u

static struct seed {
	uint8_t *frame;
	size_t size, head_end;
	enum zd_side side;
} seeds[SEEDS_MAX];
static size_t seed_count;

static uint8_t mutant[32768];
static size_t mutant_size;

static int make_seeds(void **state)
{
	size_t count;
	const struct zd_vector *v = zd_vectors(&count);

	(void)state;
	for (size_t i = 0; i < count && seed_count < SEEDS_MAX; i++) {
		size_t size = zd_vector_size(&v[i]);
		struct seed *s = &seeds[seed_count];

		if (size > sizeof(mutant) / 2)
			continue;
		s->frame = malloc(size);
		s->size = zd_vector_frame(&v[i], i, s->frame, size);
		s->head_end = zd_wire_size(v[i].msg);
		s->side = zd_vector_side(v[i].type);
		seed_count++;
	}
	return 0;
}

static int free_seeds(void **state)
{
	(void)state;
	for (size_t i = 0; i < seed_count; i++)
		free(seeds[i].frame);
	return 0;
}

/* Mostly where the meaning is: header and head. */
static size_t a_place(struct zd_rng *rng, const struct seed *s)
{
	size_t end = zd_rng_below(rng, 8) ? s->head_end : mutant_size;

	end = end < mutant_size ? end : mutant_size;
	return end > 0 ? zd_rng_below(rng, end) : 0;
}

static void insert(size_t at, size_t n, const uint8_t *from)
{
	if (mutant_size + n > sizeof(mutant))
		return;
	memmove(mutant + at + n, mutant + at, mutant_size - at);
	memcpy(mutant + at, from, n);
	mutant_size += n;
}

static void erase(size_t at, size_t n)
{
	n = n < mutant_size - at ? n : mutant_size - at;
	memmove(mutant + at, mutant + at + n, mutant_size - at - n);
	mutant_size -= n;
}

static void mutate_once(struct zd_rng *rng, const struct seed *s)
{
	static const uint32_t numbers[] = {0, 1, 2, 0x7f, 0x80, 0xff, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, 4096, 262144, 262145};
	uint8_t copy[64];
	size_t at = a_place(rng, s), from, n;

	if (mutant_size == 0)
		return;
	switch (zd_rng_below(rng, 9)) {
	case 0:
	case 1:
		mutant[at] ^= (uint8_t)(1u << zd_rng_below(rng, 8));
		break;
	case 2:
		mutant[at] = (uint8_t)zd_rng_next(rng);
		break;
	case 3:
		mutant[at] = (uint8_t)(mutant[at] + 1 - 2 * zd_rng_below(rng, 2));
		break;
	case 4: /* a piece of itself somewhere else */
		n = 1 + zd_rng_below(rng, sizeof(copy) < mutant_size ? sizeof(copy) : mutant_size);
		from = zd_rng_below(rng, mutant_size - n + 1);
		memcpy(copy, mutant + from, n);
		insert(at, n, copy);
		break;
	case 5:
		erase(at, 1 + zd_rng_below(rng, 16));
		break;
	case 6: /* a number of the header */
		if (mutant_size >= ZD_HEADER_BYTES)
			zd_put32(mutant + 4 * zd_rng_below(rng, 8), numbers[zd_rng_below(rng, sizeof(numbers) / sizeof(numbers[0]))]);
		break;
	case 7: /* a piece of another frame */
		s = &seeds[zd_rng_below(rng, seed_count)];
		from = zd_rng_below(rng, s->head_end);
		n = s->head_end - from < sizeof(copy) ? s->head_end - from : sizeof(copy);
		insert(at, n, s->frame + from);
		break;
	default: /* a long number */
		memset(copy, 0xff, 10);
		copy[9] = (uint8_t)zd_rng_below(rng, 3);
		insert(at, 10, copy);
		break;
	}
}

/* The lengths of the head follow what was inserted or deleted, so that the frame stays whole and gets past the header. */
static void repair(const struct seed *s)
{
	size_t grown;

	if (mutant_size < ZD_HEADER_BYTES)
		return;
	memcpy(mutant, s->frame, ZD_HEADER_BYTES);
	grown = mutant_size - s->size; /* may be negative, modulo 2^64 */
	zd_put32(mutant + 8, (uint32_t)(s->head_end - ZD_HEADER_BYTES + grown));
}

static void test_a_million_mutants(void **state)
{
	const char *wanted = getenv("ZD_SEED");
	uint64_t seed = wanted ? strtoull(wanted, NULL, 0) : 1;
	struct zd_rng rng = {seed};
	uint32_t accepted = 0;

	(void)state;
	for (uint32_t i = 0; i < FRAMES; i++) {
		/* The rare large ones cost as much as all others together. */
		const struct seed *s = &seeds[zd_rng_below(&rng, seed_count)];
		uint64_t changes;

		if (s->size > 2000 && zd_rng_below(&rng, 8))
			s = &seeds[zd_rng_below(&rng, 12)];
		memcpy(mutant, s->frame, s->size);
		mutant_size = s->size;
		for (changes = 1 + zd_rng_below(&rng, 4); changes > 0; changes--)
			mutate_once(&rng, s);
		if (zd_rng_below(&rng, 4))
			repair(s);
		if (zd_rng_below(&rng, 8))
			zd_drive_fix(mutant, mutant_size);
		accepted += (uint32_t)zd_drive_frames(s->side, zd_rng_next(&rng), mutant, mutant_size);
	}
	print_message("seed %llu: %u mutants accepted, %u refused\n", (unsigned long long)seed, accepted, FRAMES - accepted);
	/* Both ways out are taken often, or the mutator does not do its work. */
	assert_true(accepted > FRAMES / 20);
	assert_true(FRAMES - accepted > FRAMES / 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_million_mutants),
	};

	return cmocka_run_group_tests_name("proto: mutated frames", tests, make_seeds, free_seeds);
}
