/* SPDX-License-Identifier: Apache-2.0 */
/* Memory: the slab's regions, the budget of a job, where planes lie; and what a store puts back. */
#include <stdio.h>
#include <stdlib.h>

#include "core_harness.h"
#include "proto/layout.h"
#include "server/core/slab.h"

static uint8_t slab_memory[64 * ZD_SLAB_PAGE] __attribute__((aligned(4096)));

static void slab_regions(void **state)
{
	struct zd_slab s;
	void *a, *b, *c;

	(void)state;
	zd_slab_init(&s, slab_memory, sizeof slab_memory);
	a = zd_slab_take(&s, 10 * ZD_SLAB_PAGE - 1);
	b = zd_slab_take(&s, 20 * ZD_SLAB_PAGE);
	c = zd_slab_take(&s, 30 * ZD_SLAB_PAGE);
	assert_ptr_equal(a, slab_memory);
	assert_ptr_equal(b, slab_memory + 10 * ZD_SLAB_PAGE);
	assert_ptr_equal(c, slab_memory + 30 * ZD_SLAB_PAGE);
	assert_null(zd_slab_take(&s, 5 * ZD_SLAB_PAGE));
	assert_int_equal(zd_slab_largest(&s), 4 * ZD_SLAB_PAGE);
	assert_int_equal(zd_slab_back(&s, b), 20 * ZD_SLAB_PAGE);
	assert_int_equal(zd_slab_back(&s, a), 10 * ZD_SLAB_PAGE);
	assert_int_equal(zd_slab_largest(&s), 30 * ZD_SLAB_PAGE); /* neighbours became one */
	assert_ptr_equal(zd_slab_take(&s, 30 * ZD_SLAB_PAGE), slab_memory);
	assert_int_equal(zd_slab_back(&s, c), 30 * ZD_SLAB_PAGE);
	assert_int_equal(zd_slab_largest(&s), 34 * ZD_SLAB_PAGE);
	assert_null(zd_slab_take(&s, UINT64_MAX));
	assert_int_equal(s.used, 30 * ZD_SLAB_PAGE);
}

/* At most 16 bytes a trainable parameter and 2 a frozen one, plus 3 % and what the lane may have anyway (24 MiB, windows included). */
static void budget(void **state)
{
	static const struct {
		uint32_t units, lanes, extent;
		uint64_t numel;
		enum zd_optimizer optimizer;
	} table[] = {
		{1, 1, 131072, 1000000, ZD_OPT_ADAMW},	{32, 8, 131072, 200000000, ZD_OPT_ADAMW}, {1024, 1, 131072, 1000, ZD_OPT_ADAMW},
		{1024, 4, 131072, 700000, ZD_OPT_ADAM_L2}, {80, 64, 131072, 855638016, ZD_OPT_ADAMW}, {24, 3, 4096, 7000000, ZD_OPT_ADAMW},
		{12, 2, 65536, 5000000, ZD_OPT_NONE},
	};
	struct zd_unit_spec *units = calloc(ZD_UNITS_MAX, sizeof *units);
	struct zd_piece *pieces = calloc(ZD_UNITS_MAX, sizeof *pieces);
	uint64_t load[ZD_LANES_MAX];
	struct zd_core_config config = {.max_conns = 256, .max_jobs = 16, .windows = 48};

	(void)state;
	assert_true(zd_core_arena_bytes(&config) < 5u << 20);
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		for (uint32_t frozen = 0; frozen < 2; frozen++) {
			struct zd_spec spec = {.name = "b", .optimizer = table[i].optimizer, .extent_elems = table[i].extent, .lease_ms = 1000,
					       .unit_count = table[i].units, .units = units};

			for (uint32_t u = 0; u < spec.unit_count; u++) {
				snprintf(units[u].name, sizeof units[u].name, "u%u", u);
				units[u].numel = table[i].numel;
				units[u].frozen = frozen && u > 0;
			}
			for (uint32_t lane = 0; lane < table[i].lanes; lane++) {
				uint64_t allowed = 0, bytes = zd_job_bytes(&spec, table[i].lanes, lane);

				zd_layout_lane(&spec, table[i].lanes, lane, pieces, load);
				for (uint32_t u = 0; u < spec.unit_count; u++)
					allowed += pieces[u].count * (units[u].frozen ? 2 : 16);
				allowed += allowed / 100 * 3;
				assert_true(bytes <= allowed + (24u << 20) - 48 * ZD_PAYLOAD_MAX - zd_core_arena_bytes(&config) - (1u << 20));
			}
		}
	free(units);
	free(pieces);
}

static void planes_do_not_alias(void **state)
{
	static const int64_t sizes[] = {4096 * 16, 5, 4096 * 33 + 7};
	struct hz *h = hz_new(8, 8u << 20);

	(void)state;
	hz_spec(h, "planes", ZD_OPT_ADAMW, ZD_CODEC_BF16, 65536, 3, sizes);
	hz_connect(h, 0, ZD_ROLE_WORKER);
	hz_open(h, 0, 1);
	for (uint32_t u = 0; u < 3; u++) {
		struct zd_plane_view v;
		const uint8_t *at[5];
		uint64_t size[5];

		assert_int_equal(zd_core_planes(h->core, "planes", u, &v), 1);
		assert_int_equal(v.count, sizes[u]);
		at[0] = (uint8_t *)v.hi, at[1] = (uint8_t *)v.lo, at[2] = (uint8_t *)v.m, at[3] = (uint8_t *)v.v, at[4] = v.grad;
		for (int i = 0; i < 5; i++) {
			size[i] = v.count * (i < 2 ? 2 : 4);
			assert_int_equal((uintptr_t)at[i] % 64, 0);
			assert_true(at[i] + size[i] <= (uint8_t *)h->config.slab + h->config.slab_bytes);
			for (int k = 0; k < i; k++) {
				uint32_t d = (uint32_t)((uintptr_t)at[i] - (uintptr_t)at[k]) % 4096;

				assert_true(at[k] + size[k] <= at[i]);
				assert_true(d >= 256 && d <= 4096 - 256);
			}
		}
	}
	hz_free(h);
}

/* ---------------------------------------------------------------- images */

#define N 20000
static const int64_t sizes[] = {N};
static const struct hz_who one = {.epoch = 1, .world = 1};

struct saved {
	struct zd_job_image image;
	struct zd_spec spec;
	struct zd_unit_spec units[1];
	uint8_t plane[5][4 * N];
};

static void copy_planes(struct hz *h, struct saved *s, int back)
{
	struct zd_plane_view v;
	void *at[5];

	assert_int_equal(zd_core_planes(h->core, "job", 0, &v), 1);
	at[0] = v.hi, at[1] = v.lo, at[2] = v.m, at[3] = v.v, at[4] = v.grad;
	for (int i = 0; i < 5; i++)
		memcpy(back ? at[i] : s->plane[i], back ? s->plane[i] : at[i], (i < 2 ? 2 : 4) * N);
}

static void save(struct hz *h, struct saved *s)
{
	assert_int_equal(zd_core_image(h->core, "job", &s->image), 1);
	s->spec = *s->image.spec;
	memcpy(s->units, s->spec.units, sizeof s->units);
	s->spec.units = s->units;
	s->image.spec = &s->spec;
	copy_planes(h, s, 0);
}

static void restore(struct hz *h, struct saved *s)
{
	char text[ZD_TEXT_MAX + 1] = "";

	hz_restart(h);
	assert_int_equal(zd_core_restore(h->core, &s->image, text, sizeof text), 0);
	copy_planes(h, s, 1);
	hz_connect(h, 0, ZD_ROLE_WORKER);
	hz_open(h, 0, 0);
}

static struct hz *up(void)
{
	struct hz *h = hz_new(8, 4u << 20);

	hz_spec(h, "job", ZD_OPT_ADAMW, ZD_CODEC_BF16, 4096, 1, sizes);
	hz_connect(h, 0, ZD_ROLE_WORKER);
	hz_open(h, 0, 1);
	hz_join(h, 0, one);
	hz_load_all(h, 0, 3);
	return h;
}

static struct zd_decision prepare(struct hz *h, uint64_t round)
{
	struct zd_record record;

	hz_push_unit(h, 0, one, round, 0, 0, 1);
	hz_send_commit(h, 0, one, round, 1, &hz_hyper);
	record = hz_prepared(h, 0);
	return hz_decide(&record, hz_view(h).step);
}

/* A crash at the two instants that matter: record durable, and decided with all of Adam due. */
static void lives(void **state)
{
	static uint16_t whole[N], after[N];
	struct saved *s = calloc(1, sizeof *s);

	(void)state;
	for (int crash = 0; crash < 3; crash++) {
		struct hz *h = up();
		struct zd_decision d;

		hz_round(h, one, 1, 1, &hz_hyper);
		d = prepare(h, 2);
		if (crash == 1) {
			const Zd__Pb__Joined *m;

			save(h, s);
			assert_true(s->image.has_record && !s->image.due);
			restore(h, s);
			m = hz_join(h, 0, (struct hz_who){.epoch = 1, .world = 1, .link = 1});
			assert_int_equal(m->prepared->round, 2);
			assert_int_equal(m->decided, 1);
			assert_int_equal(m->counted[0], 5);
		}
		hz_send_apply(h, 0, one, &d);
		hz_applied(h, 0, 2);
		if (crash == 2) {
			uint64_t digest;

			save(h, s);
			assert_true(s->image.due && !s->image.has_record);
			restore(h, s);
			assert_int_equal(hz_view(h).due, 5);
			digest = zd_core_digest(h->core, "job");
			assert_true(digest != 0);
			hz_join(h, 0, (struct hz_who){.epoch = 1, .world = 1, .link = 1});
			hz_send_apply(h, 0, one, &d);
			hz_applied(h, 0, 2);
		}
		hz_round(h, one, 3, 1, &hz_hyper);
		hz_fetch(h, 0, 0, 1, 3, crash ? after : whole);
		if (crash)
			assert_memory_equal(whole, after, sizeof whole);
		hz_free(h);
	}
	free(s);
}

static void half_an_update_has_no_image(void **state)
{
	struct hz *h = up();
	struct zd_job_image image;

	(void)state;
	hz_round(h, one, 1, 1, &hz_hyper);
	assert_int_equal(zd_core_image(h->core, "job", &image), 1);
	assert_int_equal(image.due, 1);
	hz_send_fetch(h, 0, 1, 0, 0, 4096, 1, 1, 1);
	assert_int_equal(hz_view(h).due, 4);
	assert_int_equal(zd_core_image(h->core, "job", &image), 0);
	hz_idle(h);
	assert_int_equal(zd_core_image(h->core, "job", &image), 1);
	assert_int_equal(image.due, 0);
	hz_free(h);
}

static void contradictions_are_refused(void **state)
{
	struct hz *h = up();
	struct saved *s = calloc(1, sizeof *s);
	char text[256];

	(void)state;
	prepare(h, 1);
	save(h, s);
	hz_restart(h);
	s->image.record.round = 7;
	assert_int_equal(zd_core_restore(h->core, &s->image, text, sizeof text), -ZD_ERR_BAD_SPEC);
	s->image.record.round = 1;
	s->image.lane_index = 1;
	assert_int_equal(zd_core_restore(h->core, &s->image, text, sizeof text), -ZD_ERR_BAD_SPEC);
	s->image.lane_index = 0;
	assert_int_equal(zd_core_restore(h->core, &s->image, text, sizeof text), 0);
	assert_int_equal(zd_core_restore(h->core, &s->image, text, sizeof text), -ZD_ERR_BAD_SPEC);
	free(s);
	hz_free(h);
}

/* Extents over all micro-batches are more than 32 bits count. */
static void counts_beyond_32_bits(void **state)
{
	static const int64_t wide[] = {(65536 + 1) * 4096}; /* one extent more than 65,536 micro-batches leave room for */
	struct hz *h = hz_new(8, 4u << 20);
	struct zd_job_image image = {.spec = &h->spec, .lane_count = 1, .timeline = 1, .world = 1, .sealed = 1, .promise = {1, 0}, .has_record = 1};
	char text[256];

	(void)state;
	hz_spec(h, "job", ZD_OPT_NONE, ZD_CODEC_BF16, 4096, 1, wide);
	image.record = (struct zd_record){.round = 1, .ballot = {1, 0}, .hyper = hz_hyper, .world = 1, .micro_batches = ZD_MICRO_MAX};
	hz_large(h, zd_job_bytes(&h->spec, 1, 0) + (16u << 20));
	assert_int_equal(zd_core_restore(h->core, &image, text, sizeof text), 0);
	hz_connect(h, 0, ZD_ROLE_WORKER);
	hz_open(h, 0, 0);
	assert_int_equal(hz_join(h, 0, one)->counted[0], 65537ull * 65536);
	hz_send_push(h, 0, (struct hz_push){1, 0, 1, 0, 0, 0, ZD_MICRO_MAX, 0, 4096}, (uint16_t[4096]){0});
	assert_int_equal(((const Zd__Pb__Pushed *)hz_recv(h, 0, ZD_MSG_PUSHED))->counted, 65537ull * 65536);
	hz_free(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(slab_regions), cmocka_unit_test(budget),
		cmocka_unit_test(planes_do_not_alias), cmocka_unit_test(lives),
		cmocka_unit_test(half_an_update_has_no_image), cmocka_unit_test(contradictions_are_refused),
		cmocka_unit_test(counts_beyond_32_bits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
