/* SPDX-License-Identifier: Apache-2.0 */
/* Every variant against the scalar definition: bit for bit, at every length and alignment, between pages that fault. */
#include "tests/kernel/kernel_test.h"

#include <stdio.h>
#include <string.h>

#include "proto/crc32c.h"

/* The arrays of one call.  Index order is also the order of struct world. */
enum array { A16, B16, F16, HI, LO, F32, ACC, M, V, SUMS, ARRAYS };
static const size_t element_bytes[ARRAYS] = { 2, 2, 2, 2, 2, 4, 4, 4, 4, 8 };

#define MOST 139264 /* 34 blocks: one extent and then some */
#define SLACK 128   /* elements of room around what a call may touch */

struct world {
	struct guarded memory[ARRAYS];
	void *at[ARRAYS];
	struct zd_reduce_result result;
	uint32_t crc;
};

static struct world source, want, got;

static int worlds_begin(void **state)
{
	(void)state;
	zd_kernels_thread_init();
	for (int a = 0; a < ARRAYS; a++) {
		zd_test_guarded_init(&source.memory[a], (MOST + SLACK) * element_bytes[a]);
		zd_test_guarded_init(&want.memory[a], (MOST + SLACK) * element_bytes[a]);
		zd_test_guarded_init(&got.memory[a], (MOST + SLACK) * element_bytes[a]);
	}
	return 0;
}

static int worlds_end(void **state)
{
	(void)state;
	for (int a = 0; a < ARRAYS; a++) {
		zd_test_guarded_fini(&source.memory[a]);
		zd_test_guarded_fini(&want.memory[a]);
		zd_test_guarded_fini(&got.memory[a]);
	}
	return 0;
}

static size_t array_elements(int a, size_t n)
{
	return a == SUMS ? (n + ZD_KERNEL_BLOCK - 1) / ZD_KERNEL_BLOCK : n;
}

/* Where the arrays of a call of n elements lie: against the page behind, or a number of elements from the page before. */
#define AGAINST_END SIZE_MAX
static void world_place(struct world *w, size_t n, size_t offset)
{
	for (int a = 0; a < ARRAYS; a++) {
		size_t bytes = array_elements(a, n) * element_bytes[a];
		size_t where = offset == AGAINST_END ? w->memory[a].room_bytes - bytes : offset * element_bytes[a];
		assert_true(where + bytes <= w->memory[a].room_bytes);
		w->at[a] = w->memory[a].room + where;
	}
}

/* A NaN or infinity in at most one input of Adam per element: two different NaNs have no defined payload. */
static void world_fill(struct world *w, size_t n, enum pattern pattern, uint64_t seed)
{
	struct values r = { seed * 0x9e3779b97f4a7c15u + 1 };

	for (size_t i = 0; i < n; i++) {
		enum pattern p[4] = { pattern, pattern, pattern, pattern };
		if (pattern == PATTERN_NONFINITE)
			for (size_t k = 0, keep = zd_test_random(&r) % 4; k < 4; k++)
				p[k] = k == keep ? pattern : PATTERN_TRAINING;
		((uint16_t *)w->at[A16])[i] = zd_test_bf16(&r, pattern);
		((uint16_t *)w->at[B16])[i] = zd_test_bf16(&r, pattern);
		((uint16_t *)w->at[F16])[i] = zd_test_fp16(&r, pattern);
		((float *)w->at[F32])[i] = zd_test_f32(&r, p[0]);
		float master = zd_test_f32(&r, p[1]), m = zd_test_f32(&r, p[2]), v = zd_test_f32(&r, p[3]);
		uint32_t bits = zd_test_bits(master), v_bits = zd_test_bits(v);
		((uint16_t *)w->at[HI])[i] = (uint16_t)(bits >> 16);
		((uint16_t *)w->at[LO])[i] = (uint16_t)bits;
		((float *)w->at[M])[i] = m;
		v_bits &= pattern == PATTERN_BITS && i % 16 == 0 ? 0xffffffff : 0x7fffffff; /* a few broken ones, for the root */
		memcpy((float *)w->at[V] + i, &v_bits, 4);
		float acc = zd_test_f32(&r, pattern);
		memcpy((float *)w->at[ACC] + i, &acc, 4);
	}
	memset(w->at[SUMS], 0x5a, array_elements(SUMS, n) * 8);
}

/* The call's arrays and SLACK elements either side, as far as there is room. */
static void array_span(const struct world *w, int a, size_t n, size_t *first, size_t *bytes)
{
	size_t at = (size_t)((unsigned char *)w->at[a] - w->memory[a].room), slack = SLACK / 2 * element_bytes[a];
	size_t end = at + array_elements(a, n) * element_bytes[a] + slack;

	*first = at > slack ? at - slack : 0;
	*bytes = (end < w->memory[a].room_bytes ? end : w->memory[a].room_bytes) - *first;
}

static void world_copy(struct world *to, const struct world *from, size_t n)
{
	for (int a = 0; a < ARRAYS; a++) {
		size_t first, bytes;
		array_span(from, a, n, &first, &bytes);
		memcpy(to->memory[a].room + first, from->memory[a].room + first, bytes);
		to->at[a] = to->memory[a].room + (size_t)((unsigned char *)from->at[a] - from->memory[a].room);
	}
	to->result = (struct zd_reduce_result){ 111, 222 };
	to->crc = 333;
}

struct op {
	const char *name;
	void (*call)(const struct zd_kernels *k, struct world *w, size_t n, const struct op *op);
	int index, sums, two, l2;
	enum array input;
	int checked; /* norm: 1 the first, 2 the second input; Adam: 1 the weights */
};

static void call_set(const struct zd_kernels *k, struct world *w, size_t n, const struct op *op)
{
	k->acc_set[op->index](w->at[ACC], w->at[op->input], n, op->sums ? w->at[SUMS] : NULL, &w->result);
}

static void call_add(const struct zd_kernels *k, struct world *w, size_t n, const struct op *op)
{
	k->acc_add[op->index](w->at[ACC], w->at[op->input], n, op->sums ? w->at[SUMS] : NULL, &w->result);
}

static void call_norm(const struct zd_kernels *k, struct world *w, size_t n, const struct op *op)
{
	const void *checked = op->checked ? w->at[op->checked == 1 ? A16 : B16] : NULL;

	if (op->two)
		k->norm_bf16_2(w->at[A16], w->at[B16], n, w->at[SUMS], &w->result, checked, &w->crc);
	else
		k->norm_bf16_1(w->at[A16], n, w->at[SUMS], &w->result, checked, &w->crc);
	if (checked)
		assert_int_equal(w->crc, zd_crc32c(0, checked, 2 * n));
}

static void call_adam(const struct zd_kernels *k, struct world *w, size_t n, const struct op *op)
{
	const struct zd_adam_params params = { .lr = 3e-3, .wd = 0.1, .b1 = 0.9, .b2 = 0.98, .eps = 1e-8, .l2 = (uint32_t)op->l2 };
	struct zd_adam_consts consts;

	zd_adam_consts_init(&consts, &params, 7, 0.37);
	k->adam[op->index](w->at[HI], w->at[LO], w->at[M], w->at[V], w->at[op->input], op->two ? w->at[B16] : NULL, n, &consts, op->checked ? &w->crc : NULL);
	if (op->checked)
		assert_int_equal(w->crc, zd_crc32c(0, w->at[HI], 2 * n));
}

static void call_split(const struct zd_kernels *k, struct world *w, size_t n, const struct op *op)
{
	k->split[op->index](w->at[HI], w->at[LO], w->at[op->input], n, &w->result);
}

static void call_merge(const struct zd_kernels *k, struct world *w, size_t n, const struct op *op)
{
	(void)op;
	k->merge(w->at[F32], w->at[HI], w->at[LO], n);
}

static void call_widen(const struct zd_kernels *k, struct world *w, size_t n, const struct op *op)
{
	k->widen[op->two](w->at[ACC], w->at[A16], op->two ? w->at[B16] : NULL, n);
}

static const struct op ops[] = {
	{ "set bf16", call_set, ZD_CODEC_BF16, 0, 0, 0, A16, 0 },	   { "set bf16 sums", call_set, ZD_CODEC_BF16, 1, 0, 0, A16, 0 },
	{ "set fp16", call_set, ZD_CODEC_FP16, 0, 0, 0, F16, 0 },	   { "set fp16 sums", call_set, ZD_CODEC_FP16, 1, 0, 0, F16, 0 },
	{ "set fp32", call_set, ZD_CODEC_FP32, 0, 0, 0, F32, 0 },	   { "set fp32 sums", call_set, ZD_CODEC_FP32, 1, 0, 0, F32, 0 },
	{ "add bf16", call_add, ZD_CODEC_BF16, 0, 0, 0, A16, 0 },	   { "add bf16 sums", call_add, ZD_CODEC_BF16, 1, 0, 0, A16, 0 },
	{ "add fp16", call_add, ZD_CODEC_FP16, 0, 0, 0, F16, 0 },	   { "add fp16 sums", call_add, ZD_CODEC_FP16, 1, 0, 0, F16, 0 },
	{ "add fp32", call_add, ZD_CODEC_FP32, 0, 0, 0, F32, 0 },	   { "add fp32 sums", call_add, ZD_CODEC_FP32, 1, 0, 0, F32, 0 },
	{ "norm 1", call_norm, 0, 1, 0, 0, A16, 0 },		   { "norm 2", call_norm, 0, 1, 1, 0, A16, 0 },
	{ "adamw bf16 1", call_adam, ZD_GRAD_BF16_1, 0, 0, 0, A16, 0 }, { "adam bf16 1", call_adam, ZD_GRAD_BF16_1, 0, 0, 1, A16, 0 },
	{ "adamw bf16 2", call_adam, ZD_GRAD_BF16_2, 0, 1, 0, A16, 0 }, { "adam bf16 2", call_adam, ZD_GRAD_BF16_2, 0, 1, 1, A16, 0 },
	{ "adamw fp32", call_adam, ZD_GRAD_FP32, 0, 0, 0, F32, 0 },   { "adam fp32", call_adam, ZD_GRAD_FP32, 0, 0, 1, F32, 0 },
	{ "split bf16", call_split, ZD_CODEC_BF16, 0, 0, 0, A16, 0 }, { "split fp16", call_split, ZD_CODEC_FP16, 0, 0, 0, F16, 0 },
	{ "split fp32", call_split, ZD_CODEC_FP32, 0, 0, 0, F32, 0 }, { "merge", call_merge, 0, 0, 0, 0, HI, 0 },
	{ "widen 1", call_widen, 0, 0, 0, 0, A16, 0 },		   { "widen 2", call_widen, 0, 0, 1, 0, A16, 0 },
	{ "norm 1 checked", call_norm, 0, 1, 0, 0, A16, 1 },
	{ "norm 2 first checked", call_norm, 0, 1, 1, 0, A16, 1 },
	{ "norm 2 second checked", call_norm, 0, 1, 1, 0, A16, 2 },
	{ "adamw bf16 1 checked", call_adam, ZD_GRAD_BF16_1, 0, 0, 0, A16, 1 },
	{ "adam bf16 2 checked", call_adam, ZD_GRAD_BF16_2, 0, 1, 1, A16, 1 },
	{ "adamw fp32 checked", call_adam, ZD_GRAD_FP32, 0, 0, 0, F32, 1 },
};

static void compare(const char *variant, const struct op *op, size_t n, size_t offset, enum pattern pattern)
{
	if (want.result.nonfinite != got.result.nonfinite || want.result.first_nonfinite != got.result.first_nonfinite)
		fail_msg("%s %s n=%zu offset=%zd pattern=%d: result %llu at %llu, scalar %llu at %llu", variant, op->name, n, (ssize_t)offset,
			 pattern, (unsigned long long)got.result.nonfinite, (unsigned long long)got.result.first_nonfinite,
			 (unsigned long long)want.result.nonfinite, (unsigned long long)want.result.first_nonfinite);
	for (int a = 0; a < ARRAYS; a++) {
		size_t first, bytes, i = 0;
		array_span(&want, a, n, &first, &bytes);
		const unsigned char *x = want.memory[a].room + first, *y = got.memory[a].room + first;
		if (memcmp(x, y, bytes) == 0)
			continue;
		while (x[i] == y[i])
			i++;
		fail_msg("%s %s n=%zu offset=%zd pattern=%d: array %d differs at element %td", variant, op->name, n, (ssize_t)offset, pattern, a,
			 (x + i - (unsigned char *)want.at[a]) / (ptrdiff_t)element_bytes[a]);
	}
}

/* Adam's gradient is finite by contract, and two NaNs in one element have no defined payload, so bf16 gradients of the non-finite
 * pattern stay out of it. */
static int op_takes(const struct op *op, enum pattern pattern)
{
	return !(pattern == PATTERN_NONFINITE && op->call == call_adam && op->input == A16);
}

static void check(const struct variant *variants, size_t n, size_t offset, enum pattern pattern)
{
	world_place(&source, n, offset);
	world_fill(&source, n, pattern, n + 1000 * pattern);
	for (size_t o = 0; o < COUNT(ops); o++) {
		if (!op_takes(&ops[o], pattern))
			continue;
		world_copy(&want, &source, n);
		ops[o].call(zd_kernels_scalar(), &want, n, &ops[o]);
		for (size_t i = 0; i < VARIANTS; i++) {
			if (!variants[i].kernels)
				continue;
			world_copy(&got, &source, n);
			ops[o].call(variants[i].kernels, &got, n, &ops[o]);
			compare(variants[i].name, &ops[o], n, offset, pattern);
		}
	}
}

static void test_every_length(void **state)
{
	struct variant variants[VARIANTS];

	(void)state;
	zd_test_variants(variants);
	for (size_t n = 0; n <= 300; n++)
		for (enum pattern p = 0; p < PATTERN_COUNT; p++) {
			check(variants, n, AGAINST_END, p);
			check(variants, n, 0, p);
		}
}

static void test_block_lengths(void **state)
{
	static const size_t lengths[] = { 4095, 4096, 4097, 4098, 4099, 4100, 8191, 8192, 8193, 12305, 131072, 131072 + 4111 };
	struct variant variants[VARIANTS];

	(void)state;
	zd_test_variants(variants);
	for (size_t i = 0; i < COUNT(lengths); i++)
		for (enum pattern p = 0; p < PATTERN_COUNT; p++) {
			check(variants, lengths[i], AGAINST_END, p);
			check(variants, lengths[i], 0, p);
		}
}

static void test_every_alignment(void **state)
{
	static const size_t lengths[] = { 1, 15, 16, 17, 33, 64, 100, 300 };
	struct variant variants[VARIANTS];

	(void)state;
	zd_test_variants(variants);
	for (size_t offset = 0; offset < 64; offset++) {
		for (size_t i = 0; i < COUNT(lengths); i++)
			check(variants, lengths[i], offset, (enum pattern)((offset + i) % PATTERN_COUNT));
		check(variants, 4099, offset, (enum pattern)(offset % PATTERN_COUNT));
	}
}

/* All 65536 bit patterns of both 16-bit formats, in both operands of an addition. */
static void test_every_half(void **state)
{
	struct variant variants[VARIANTS];

	(void)state;
	zd_test_variants(variants);
	world_place(&source, 65536, 0);
	world_fill(&source, 65536, PATTERN_TRAINING, 5);
	for (uint32_t i = 0; i < 65536; i++) {
		((uint16_t *)source.at[A16])[i] = ((uint16_t *)source.at[F16])[i] = (uint16_t)i;
		((uint16_t *)source.at[B16])[i] = (uint16_t)(i * 40503u);
	}
	for (size_t o = 0; o < COUNT(ops); o++)
		for (size_t i = 0; i < VARIANTS; i++) {
			if (!variants[i].kernels || ops[o].call == call_adam)
				continue;
			world_copy(&want, &source, 65536);
			ops[o].call(zd_kernels_scalar(), &want, 65536, &ops[o]);
			world_copy(&got, &source, 65536);
			ops[o].call(variants[i].kernels, &got, 65536, &ops[o]);
			compare(variants[i].name, &ops[o], 65536, 0, PATTERN_BITS);
		}
}

/* One bad element at each place of a short and of a long call: counted and found wherever it hides. */
static void test_every_place_of_a_nan(void **state)
{
	static const size_t lengths[] = { 37, 100, 4096 + 53 };
	struct variant variants[VARIANTS];

	(void)state;
	zd_test_variants(variants);
	for (size_t l = 0; l < COUNT(lengths); l++) {
		size_t n = lengths[l], stride = n > 200 ? 13 : 1;
		for (size_t at = 0; at < n; at += stride) {
			for (size_t i = 0; i < VARIANTS; i++) {
				if (!variants[i].kernels)
					continue;
				const struct zd_kernels *k = variants[i].kernels;
				world_place(&got, n, AGAINST_END);
				memset(got.at[ACC], 0, 4 * n);
				memset(got.at[F32], 0, 4 * n);
				((float *)got.at[F32])[at] = zd_test_float(0x7f800000);
				k->acc_add[ZD_CODEC_FP32](got.at[ACC], got.at[F32], n, NULL, &got.result);
				assert_int_equal(got.result.nonfinite, 1);
				assert_int_equal(got.result.first_nonfinite, at);
				((float *)got.at[F32])[at] = zd_test_float(0xff800000);
				k->acc_add[ZD_CODEC_FP32](got.at[ACC], got.at[F32], n, got.at[SUMS], &got.result);
				assert_int_equal(got.result.first_nonfinite, at);
				assert_int_equal(zd_test_bits(((float *)got.at[ACC])[at]), 0x7fc00000);
				((float *)got.at[F32])[at] = zd_test_float(0x7f7f8000);
				k->split[ZD_CODEC_FP32](got.at[HI], got.at[LO], got.at[F32], n, &got.result);
				assert_int_equal(got.result.nonfinite, 1);
				assert_int_equal(got.result.first_nonfinite, at);
			}
		}
	}
}

int zd_test_group_variants(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_length),	     cmocka_unit_test(test_block_lengths), cmocka_unit_test(test_every_alignment),
		cmocka_unit_test(test_every_half),	     cmocka_unit_test(test_every_place_of_a_nan),
	};
	return cmocka_run_group_tests_name("kernel variants", tests, worlds_begin, worlds_end);
}
