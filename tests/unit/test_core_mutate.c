/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A million frames into a lane, most of them changed: right checksums over wrong contents, wrong checksums, cut short, twice, in any order and
 * state, from several peers at once; with stores and sends that complete late.  Under the sanitizers this shows that no peer can make a
 * lane do anything but accept or refuse, and that a worker of another job never notices.  Everything follows from the seed, which is
 * printed; ZD_SEED runs another one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/fuzz/core_drive.h"
#include "tests/fuzz/rng.h"

#define FRAMES 1000000u
#define SCRIPT_MAX 40000u /* bytes for one core */

/* Operations of core_script.c, by how often: speaking, which is what it is about, much more than happenings. */
static uint8_t an_operation(struct zd_rng *rng)
{
	static const uint8_t ops[] = {0, 1, 2, 2, 2, 3, 5, 6, 6, 6, 7, 7, 7, 9, 9, 10, 10, 11, 12, 12, 13, 13, 15, 16, 16, 16, 26, 26, 26, 26,
				      26, 26, 26, 26, 26, 26, 26, 26, 19, 19, 20, 20, 22, 23};
	static const uint8_t rare[] = {4, 8, 14, 17, 18, 21, 24, 25};
	uint64_t slot = zd_rng_below(rng, CD_PEERS);

	if (zd_rng_below(rng, 24) == 0)
		return (uint8_t)(slot * 32 + rare[zd_rng_below(rng, sizeof(rare))]);
	return (uint8_t)(slot * 32 + ops[zd_rng_below(rng, sizeof(ops))]);
}

/* Fields are mostly as they should be: a script of plain noise gets nowhere. */
static uint8_t a_field(struct zd_rng *rng)
{
	uint64_t r = zd_rng_next(rng);

	if (r % 16 == 0)
		return (uint8_t)(208 + (r >> 8) % 48);
	return (uint8_t)((r >> 8) % 4 ? 0 : (r >> 16) % 208);
}

/* What leads to the end of a round, for one connection: operations of core_script.c with their first fields; the rest is as usual. */
static size_t a_course(struct zd_rng *rng, uint8_t *out)
{
	static const struct {
		uint8_t op, fields;
	} course[] = {{18, 1}, {2, 8}, {8, 2}, {9, 16}, {10, 7}, {6, 8}, {11, 5}};
	uint8_t slot = (uint8_t)(32 * zd_rng_below(rng, CD_PEERS)), first = 0;
	size_t n = 0;

	if (zd_rng_below(rng, 3) == 0) /* the next round of a job that is there */
		first = 1;
	for (size_t i = first; i < sizeof(course) / sizeof(course[0]); i++) {
		if (zd_rng_below(rng, 16) == 0)
			continue;
		out[n++] = (uint8_t)(slot + course[i].op);
		for (uint32_t k = 0; k < course[i].fields; k++)
			out[n++] = zd_rng_below(rng, 60) ? 0 : a_field(rng);
		if (course[i].op == 18)
			out[n - 1] = (uint8_t)zd_rng_below(rng, CD_SPECS);
		else if (course[i].op == 2)
			out[n - 8] = (uint8_t)zd_rng_below(rng, 4); /* this ballot, or a higher one */
	}
	return n;
}

static size_t make_script(struct zd_rng *rng, uint8_t *out)
{
	size_t n = 0;

	while (n < SCRIPT_MAX - 128) {
		uint64_t fields = zd_rng_below(rng, 14);

		if (zd_rng_below(rng, 12) == 0)
			n += a_course(rng, out + n);

		out[n++] = an_operation(rng);
		while (fields-- > 0)
			out[n++] = a_field(rng);
	}
	return n;
}

static uint64_t heard[ZD_MSG_MAX]; /* answers to peers, by type */

static void note_answers(const struct cd *d)
{
	for (uint32_t i = 0; i < CD_PEERS; i++)
		for (uint32_t type = 0; type < ZD_MSG_MAX; type++)
			heard[type] += d->conn[i].got[type];
}

static void test_a_million_frames(void **state)
{
	static uint8_t script[SCRIPT_MAX];
	static const uint16_t answers[] = {ZD_MSG_OPENED,    ZD_MSG_JOINED,  ZD_MSG_LOADED,  ZD_MSG_SEALED, ZD_MSG_DATA,
					   ZD_MSG_PUSHED,    ZD_MSG_PREPARED, ZD_MSG_APPLIED, ZD_MSG_DISCARDED, ZD_MSG_ABORTED,
					   ZD_MSG_PONG,	     ZD_MSG_ERROR,   ZD_MSG_STATUS_REPLY, ZD_MSG_SHOW_REPLY, ZD_MSG_DROPPED};
	static struct cd d;
	const char *wanted = getenv("ZD_SEED");
	uint64_t seed = wanted ? strtoull(wanted, NULL, 0) : 1, frames = 0, cores = 0;
	struct zd_rng rng = {seed};

	(void)state;
	print_message("seed %llu\n", (unsigned long long)seed);
	while (frames < FRAMES) {
		cd_init(&d, 6 + (uint32_t)zd_rng_below(&rng, 20));
		cd_script(&d, script, make_script(&rng, script));
		frames += d.frames;
		cores++;
		note_answers(&d);
		cd_finish(&d);
		cd_fini(&d);
	}
	print_message("%llu frames, %llu cores\n", (unsigned long long)frames, (unsigned long long)cores);
	/* Every answer there is was given: the script gets to the end of rounds, or it does not do its work. */
	for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++)
		if (heard[answers[i]] < 10)
			fail_msg("%s was answered %llu times only", zd_msg_name(answers[i]), (unsigned long long)heard[answers[i]]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_million_frames),
	};

	return cmocka_run_group_tests_name("core: mutated frames", tests, NULL, NULL);
}
