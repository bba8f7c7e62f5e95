/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels in vectors of sixteen elements, written once.  An ISA file defines the types and functions named below and then includes
 * this; every function here is static, so each ISA file gets its own with its own flags.
 *
 *   struct vec       sixteen fp32                    struct squares   sixteen fp64 partial sums, element i in sum i
 *   struct peak      largest magnitudes so far, as integers
 *
 *   vec_load vec_store                               unaligned fp32
 *   vec_bf16 vec_fp16                                unaligned 16-bit to fp32, exact
 *   vec_set1 vec_add vec_sub vec_mul vec_div vec_sqrt
 *   vec_sum                                          a + b with NaN as zd_sum_element has it
 *   master_load master_store                         the split master
 *   vec_load_apart master_load_apart master_store_apart
 *                                                    these in an order of elements that is the ISA's own and spares it permutations
 *   squares_zero squares_add squares_store
 *   squares_add_bf16                                 of sixteen elements of a or, if two, of a + b
 *   peak_zero peak_add peak_max
 *   CRC_BESIDE                                       1: checksums are computed by `crc32` instructions between those of the kernel, which
 *                                                    leave room for them; 0: by a pass of their own, where that is faster
 */
#ifndef ZD_KERNEL_VECTOR_H
#define ZD_KERNEL_VECTOR_H

#include <math.h>
#include <xmmintrin.h>

#include "proto/crc32c.h"

#define STEP 16

/* The address may lie behind the array, where a pointer may not point: hence the integer. */
ALWAYS void ahead(const void *p)
{
	_mm_prefetch((const char *)((uintptr_t)p + ZD_KERNEL_AHEAD_BYTES), _MM_HINT_T0);
}

ALWAYS struct vec vec_codec(const void *x, size_t i, enum zd_codec codec)
{
	if (codec == ZD_CODEC_BF16)
		return vec_bf16((const uint16_t *)x + i);
	if (codec == ZD_CODEC_FP16)
		return vec_fp16((const uint16_t *)x + i);
	return vec_load((const float *)x + i);
}

/* Prefetches the thirty-two elements of x that lie ahead of i. */
ALWAYS void ahead_codec(const void *x, size_t i, enum zd_codec codec)
{
	if (codec != ZD_CODEC_FP32) {
		ahead((const uint16_t *)x + i);
		return;
	}
	ahead((const float *)x + i);
	ahead((const float *)x + i + STEP);
}

/* ---- CRC32C: states are inverted checksums ---- */

/* `bytes` more, a multiple of 8. */
ALWAYS uint64_t crc_words(uint64_t state, const void *p, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += 8) {
		uint64_t word;
		memcpy(&word, (const uint8_t *)p + i, sizeof word);
		state = _mm_crc32_u64(state, word);
	}
	return state;
}

/* ---- what a whole call needs once something in it was not finite; rare, so one element at a time ---- */

static __attribute__((noinline, cold)) void scan_acc(float *acc, size_t n, struct zd_reduce_result *result, int quiet)
{
	for (size_t i = 0; i < n; i++) {
		uint32_t bits = zd_bits(acc[i]);
		if (!zd_nonfinite(bits))
			continue;
		zd_result_note(result, i);
		if (quiet && (bits & ZD_ABS_MASK) != ZD_EXP_MASK)
			acc[i] = zd_f32(ZD_QUIET_NAN);
	}
}

static __attribute__((noinline, cold)) void scan_bf16(const uint16_t *a, const uint16_t *b, size_t n, struct zd_reduce_result *result)
{
	for (size_t i = 0; i < n; i++) {
		float x = zd_f32(zd_bits_bf16(a[i]));
		if (b)
			x = x + zd_f32(zd_bits_bf16(b[i]));
		if (zd_nonfinite(zd_bits(x)))
			zd_result_note(result, i);
	}
}

static __attribute__((noinline, cold)) void scan_master(const uint16_t *hi, const uint16_t *lo, size_t n, struct zd_reduce_result *refused)
{
	for (size_t i = 0; i < n; i++)
		if ((zd_master_merge(hi[i], lo[i]) & ZD_ABS_MASK) >= ZD_REFUSE_FROM)
			zd_result_note(refused, i);
}

/* ---- reduction ---- */

ALWAYS struct vec acc_step(float *acc, const void *x, size_t i, enum zd_codec codec, int add)
{
	struct vec r = vec_codec(x, i, codec);

	if (add)
		r = vec_add(vec_load(acc + i), r);
	vec_store(acc + i, r);
	return r;
}

ALWAYS void acc_ahead(const float *acc, const void *x, size_t i, enum zd_codec codec)
{
	ahead(acc + i);
	ahead(acc + i + STEP);
	ahead_codec(x, i, codec);
}

ALWAYS float acc_last(float *acc, const void *x, size_t i, enum zd_codec codec, int add)
{
	uint32_t bits = zd_bits_at(x, i, codec);

	if (add)
		bits = zd_bits(acc[i] + zd_f32(bits));
	memcpy(&acc[i], &bits, sizeof bits);
	return zd_f32(bits);
}

/* A block sum is finite exactly if every element is: squares of fp32 are far from the largest fp64, and infinity and NaN stay. */
ALWAYS int sum_finish(double s[STEP], double *block_sum)
{
	double sum = zd_square_tree(s);
	int finite = isfinite(sum);

	*block_sum = finite ? sum : (double)INFINITY;
	return !finite;
}

/* One block with its sum of squares.  Returns whether an element was not finite. */
ALWAYS int acc_block_sum(float *acc, const void *x, size_t first, size_t end, double *block_sum, enum zd_codec codec, int add)
{
	struct squares squares = squares_zero();
	double s[STEP];
	size_t i = first;

	for (; i + 2 * STEP <= end; i += 2 * STEP) {
		acc_ahead(acc, x, i, codec);
		squares = squares_add(squares, acc_step(acc, x, i, codec, add));
		squares = squares_add(squares, acc_step(acc, x, i + STEP, codec, add));
	}
	for (; i + STEP <= end; i += STEP)
		squares = squares_add(squares, acc_step(acc, x, i, codec, add));
	squares_store(s, squares);
	for (size_t j = 0; i < end; i++, j++) {
		double e = (double)acc_last(acc, x, i, codec, add);
		s[j] += e * e;
	}
	return sum_finish(s, block_sum);
}

/* The same without the sum: the largest magnitude tells. */
ALWAYS int acc_plain(float *acc, const void *x, size_t n, enum zd_codec codec, int add)
{
	struct peak peak = peak_zero();
	size_t i = 0;
	int nonfinite = 0;

	for (; i + 2 * STEP <= n; i += 2 * STEP) {
		acc_ahead(acc, x, i, codec);
		peak = peak_add(peak, acc_step(acc, x, i, codec, add));
		peak = peak_add(peak, acc_step(acc, x, i + STEP, codec, add));
	}
	for (; i + STEP <= n; i += STEP)
		peak = peak_add(peak, acc_step(acc, x, i, codec, add));
	for (; i < n; i++)
		nonfinite |= zd_nonfinite(zd_bits(acc_last(acc, x, i, codec, add)));
	return nonfinite | (peak_max(peak) >= ZD_EXP_MASK);
}

ALWAYS void acc_run(float *acc, const void *x, size_t n, double *block_sums, struct zd_reduce_result *result, enum zd_codec codec, int add)
{
	int nonfinite = 0;

	*result = (struct zd_reduce_result){ 0, 0 };
	if (!block_sums)
		nonfinite = acc_plain(acc, x, n, codec, add);
	else
		for (size_t first = 0; first < n; first += ZD_KERNEL_BLOCK) {
			size_t end = n - first < ZD_KERNEL_BLOCK ? n : first + ZD_KERNEL_BLOCK;
			nonfinite |= acc_block_sum(acc, x, first, end, block_sums++, codec, add);
		}
	if (nonfinite)
		scan_acc(acc, n, result, add);
}

/* ---- norm without an accumulator ---- */

/* The checksum of a block on its way: quarter q has its next bytes at at + q * ZD_CRC32C_QUARTER. */
struct quarters {
	const uint8_t *at;
	uint64_t a, b, c, d;
};

/* Eight bytes of each quarter: as many as sixteen elements have. */
ALWAYS void quarters_word(struct quarters *q)
{
	q->a = crc_words(q->a, q->at, 8);
	q->b = crc_words(q->b, q->at + ZD_CRC32C_QUARTER, 8);
	q->c = crc_words(q->c, q->at + 2 * ZD_CRC32C_QUARTER, 8);
	q->d = crc_words(q->d, q->at + 3 * ZD_CRC32C_QUARTER, 8);
	q->at += 8;
}

/* q: NULL, or the checksum of this block, which is then a whole one. */
ALWAYS int norm_block(const uint16_t *a, const uint16_t *b, size_t first, size_t end, double *block_sum, int two, struct quarters *q)
{
	struct squares squares = squares_zero();
	double s[STEP];
	size_t i = first;

	for (; i + 2 * STEP <= end; i += 2 * STEP) {
		ahead(a + i);
		if (two)
			ahead(b + i);
		squares = squares_add_bf16(squares, a + i, two ? b + i : NULL, two);
		if (q)
			quarters_word(q);
		squares = squares_add_bf16(squares, a + i + STEP, two ? b + i + STEP : NULL, two);
		if (q)
			quarters_word(q);
	}
	for (; i + STEP <= end; i += STEP)
		squares = squares_add_bf16(squares, a + i, two ? b + i : NULL, two);
	squares_store(s, squares);
	for (size_t j = 0; i < end; i++, j++) {
		double e = (double)zd_grad_at(a, b, i, two ? ZD_GRAD_BF16_2 : ZD_GRAD_BF16_1);
		s[j] += e * e;
	}
	return sum_finish(s, block_sum);
}

ALWAYS void norm_run(const uint16_t *a, const uint16_t *b, size_t n, double *block_sums, struct zd_reduce_result *result, int two,
		     const uint16_t *checked, uint32_t *crc)
{
	uint32_t state = UINT32_MAX;
	int nonfinite = 0;

	_Static_assert(ZD_KERNEL_BLOCK * sizeof *checked == 4 * ZD_CRC32C_QUARTER, "a block of the norm is one of the checksum");
	*result = (struct zd_reduce_result){ 0, 0 };
	for (size_t first = 0; first < n; first += ZD_KERNEL_BLOCK) {
		size_t end = n - first < ZD_KERNEL_BLOCK ? n : first + ZD_KERNEL_BLOCK;

		if (CRC_BESIDE && checked && end - first == ZD_KERNEL_BLOCK) {
			struct quarters q = { (const uint8_t *)(checked + first), state, 0, 0, 0 };
			nonfinite |= norm_block(a, b, first, end, block_sums++, two, &q);
			state = zd_crc32c_join(q.a, q.b, q.c, q.d);
			continue;
		}
		if (checked)
			state = ~zd_crc32c(~state, checked + first, (end - first) * sizeof *checked);
		nonfinite |= norm_block(a, b, first, end, block_sums++, two, NULL);
	}
	if (checked)
		*crc = ~state;
	if (nonfinite)
		scan_bf16(a, b, n, result);
}

/* ---- Adam ---- */

struct adam_vecs {
	struct vec scale, b1, b2, omb1, omb2, rbc2, eps, step, decay;
};

ALWAYS struct vec grad_step(const void *ga, const void *gb, size_t i, enum zd_grad_form form)
{
	if (form == ZD_GRAD_FP32)
		return vec_load((const float *)ga + i);
	struct vec a = vec_bf16((const uint16_t *)ga + i);
	return form == ZD_GRAD_BF16_1 ? a : vec_add(a, vec_bf16((const uint16_t *)gb + i));
}

/* zd_adam_element, sixteen at a time and in two halves: first the moments and what m is divided by ... */
ALWAYS void adam_moments(const uint16_t *hi, const uint16_t *lo, float *m, float *v, float *root, struct vec g, const struct adam_vecs *c,
			 int l2)
{
	g = vec_mul(g, c->scale);
	if (l2)
		g = vec_add(g, vec_mul(c->decay, master_load(hi, lo)));
	struct vec v1 = vec_add(vec_mul(c->b2, vec_load(v)), vec_mul(vec_mul(c->omb2, g), g));

	vec_store(m, vec_add(vec_mul(c->b1, vec_load(m)), vec_mul(c->omb1, g)));
	vec_store(v, v1);
	vec_store(root, vec_add(vec_mul(vec_sqrt(v1), c->rbc2), c->eps));
}

/* ... then the weights. */
ALWAYS void adam_weights(uint16_t *hi, uint16_t *lo, const float *m, const float *root, const struct adam_vecs *c, int l2)
{
	struct vec w = master_load_apart(hi, lo);

	if (!l2)
		w = vec_sub(w, vec_mul(c->decay, w));
	master_store_apart(hi, lo, vec_sub(w, vec_mul(c->step, vec_div(vec_load_apart(m), vec_load_apart(root)))));
}

ALWAYS void adam_ahead(const uint16_t *hi, const uint16_t *lo, const float *m, const float *v, const void *ga, const void *gb, size_t i,
		       enum zd_grad_form form)
{
	ahead(hi + i);
	ahead(lo + i);
	ahead(m + i);
	ahead(m + i + STEP);
	ahead(v + i);
	ahead(v + i + STEP);
	ahead_codec(ga, i, form == ZD_GRAD_FP32 ? ZD_CODEC_FP32 : ZD_CODEC_BF16);
	if (form == ZD_GRAD_BF16_2)
		ahead((const uint16_t *)gb + i);
}

/* The halves take turns over a stretch of the planes that stays in the first-level cache.  In one loop the square root and the division
 * of an element form a chain that fills the scheduler of some processors: 1.2 times slower on AMD Zen 1. */
#define ADAM_STRETCH ((size_t)256)

/* crc, where it is computed beside: of the stretch before, whose bytes are at rest, between the divisions of this one. */
ALWAYS void adam_loop(uint16_t *hi, uint16_t *lo, float *m, float *v, const void *ga, const void *gb, size_t n,
		      const struct zd_adam_consts *consts, enum zd_grad_form form, int l2, uint32_t *crc)
{
	const struct adam_vecs c = {
		.scale = vec_set1(consts->scale), .b1 = vec_set1(consts->b1),	  .b2 = vec_set1(consts->b2),
		.omb1 = vec_set1(consts->omb1),	  .omb2 = vec_set1(consts->omb2), .rbc2 = vec_set1(consts->rbc2),
		.eps = vec_set1(consts->eps),	  .step = vec_set1(consts->step), .decay = vec_set1(l2 ? consts->wd : consts->lrwd),
	};
	_Alignas(64) float root[ADAM_STRETCH];
	uint64_t state = UINT32_MAX;
	size_t i = 0, summed = 0;

	while (n - i >= STEP) {
		size_t k = 0, end = n - i < ADAM_STRETCH ? (n - i) / STEP * STEP : ADAM_STRETCH;

		for (; k + 2 * STEP <= end; k += 2 * STEP) {
			size_t a = i + k, b = a + STEP;

			adam_ahead(hi, lo, m, v, ga, gb, a, form);
			adam_moments(hi + a, lo + a, m + a, v + a, root + k, grad_step(ga, gb, a, form), &c, l2);
			adam_moments(hi + b, lo + b, m + b, v + b, root + k + STEP, grad_step(ga, gb, b, form), &c, l2);
		}
		if (k < end)
			adam_moments(hi + i + k, lo + i + k, m + i + k, v + i + k, root + k, grad_step(ga, gb, i + k, form), &c, l2);
		if (CRC_BESIDE && crc && i > 0 && end == ADAM_STRETCH) {
			for (k = 0; k < ADAM_STRETCH; k += STEP) {
				state = crc_words(state, hi + summed + k, STEP * sizeof *hi);
				adam_weights(hi + i + k, lo + i + k, m + i + k, root + k, &c, l2);
			}
			summed = i;
		} else {
			for (k = 0; k < end; k += STEP)
				adam_weights(hi + i + k, lo + i + k, m + i + k, root + k, &c, l2);
		}
		i += end;
	}
	for (; i < n; i++)
		zd_adam_at(hi, lo, m, v, ga, gb, i, consts, form, l2);
	if (crc)
		*crc = zd_crc32c(~(uint32_t)state, hi + summed, (n - summed) * sizeof *hi);
}

ALWAYS void adam_run(uint16_t *hi, uint16_t *lo, float *m, float *v, const void *ga, const void *gb, size_t n,
		     const struct zd_adam_consts *consts, enum zd_grad_form form, uint32_t *crc)
{
	if (consts->l2)
		adam_loop(hi, lo, m, v, ga, gb, n, consts, form, 1, crc);
	else
		adam_loop(hi, lo, m, v, ga, gb, n, consts, form, 0, crc);
}

/* ---- casts ---- */

ALWAYS void split_run(uint16_t *hi, uint16_t *lo, const void *x, size_t n, struct zd_reduce_result *refused, enum zd_codec codec)
{
	struct peak peak = peak_zero();
	size_t i = 0;
	int refuse = 0;

	*refused = (struct zd_reduce_result){ 0, 0 };
	for (; i + STEP <= n; i += STEP) {
		struct vec w = vec_codec(x, i, codec);
		ahead_codec(x, i, codec);
		peak = peak_add(peak, w);
		master_store(hi + i, lo + i, w);
	}
	for (; i < n; i++) {
		uint32_t bits = zd_bits_at(x, i, codec);
		refuse |= (bits & ZD_ABS_MASK) >= ZD_REFUSE_FROM;
		zd_master_split(&hi[i], &lo[i], bits);
	}
	if (refuse || peak_max(peak) >= ZD_REFUSE_FROM)
		scan_master(hi, lo, n, refused);
}

ALWAYS void merge_run(float *w, const uint16_t *hi, const uint16_t *lo, size_t n)
{
	size_t i = 0;

	for (; i + STEP <= n; i += STEP) {
		ahead(hi + i);
		ahead(lo + i);
		vec_store(w + i, master_load(hi + i, lo + i));
	}
	for (; i < n; i++) {
		uint32_t bits = zd_master_merge(hi[i], lo[i]);
		memcpy(&w[i], &bits, sizeof bits);
	}
}

ALWAYS void widen_run(float *out, const uint16_t *a, const uint16_t *b, size_t n, int two)
{
	size_t i = 0;

	for (; i + STEP <= n; i += STEP) {
		ahead(a + i);
		if (two)
			ahead(b + i);
		vec_store(out + i, two ? vec_sum(vec_bf16(a + i), vec_bf16(b + i)) : vec_bf16(a + i));
	}
	for (; i < n; i++) {
		uint32_t bits = zd_bits_bf16(a[i]);
		if (two)
			bits = zd_bits(zd_sum_element(zd_f32(bits), zd_f32(zd_bits_bf16(b[i]))));
		memcpy(&out[i], &bits, sizeof bits);
	}
}

/* ---- the functions of kernels.def, with the ISA as suffix ---- */

#define VECTOR_ACC(op, suffix, isa, codec, add)                                                                                   \
	static void op##_##suffix##_##isa(float *acc, const void *x, size_t n, double *block_sums, struct zd_reduce_result *result) \
	{                                                                                                                         \
		acc_run(acc, x, n, block_sums, result, codec, add);                                                               \
	}
#define VECTOR_ADAM(suffix, isa, form)                                                                                              \
	static void adam_##suffix##_##isa(uint16_t *hi, uint16_t *lo, float *m, float *v, const void *ga, const void *gb, size_t n, \
					  const struct zd_adam_consts *consts, uint32_t *crc)                                       \
	{                                                                                                                           \
		adam_run(hi, lo, m, v, ga, gb, n, consts, form, crc);                                                               \
	}
#define VECTOR_SPLIT(suffix, isa, codec)                                                                                          \
	static void split_##suffix##_##isa(uint16_t *hi, uint16_t *lo, const void *x, size_t n, struct zd_reduce_result *refused) \
	{                                                                                                                         \
		split_run(hi, lo, x, n, refused, codec);                                                                          \
	}
#define VECTOR_REST(isa)                                                                                                     \
	static void norm_bf16_1_##isa(const uint16_t *a, size_t n, double *block_sums, struct zd_reduce_result *result,      \
				      const uint16_t *checked, uint32_t *crc)                                                \
	{                                                                                                                    \
		norm_run(a, NULL, n, block_sums, result, 0, checked, crc);                                                   \
	}                                                                                                                    \
	static void norm_bf16_2_##isa(const uint16_t *a, const uint16_t *b, size_t n, double *block_sums,                    \
				      struct zd_reduce_result *result, const uint16_t *checked, uint32_t *crc)               \
	{                                                                                                                    \
		norm_run(a, b, n, block_sums, result, 1, checked, crc);                                                      \
	}                                                                                                                    \
	static void merge_##isa(float *w, const uint16_t *hi, const uint16_t *lo, size_t n)                                 \
	{                                                                                                                    \
		merge_run(w, hi, lo, n);                                                                                     \
	}                                                                                                                    \
	static void widen_1_##isa(float *out, const uint16_t *a, const uint16_t *b, size_t n)                               \
	{                                                                                                                    \
		widen_run(out, a, b, n, 0);                                                                                  \
	}                                                                                                                    \
	static void widen_2_##isa(float *out, const uint16_t *a, const uint16_t *b, size_t n)                               \
	{                                                                                                                    \
		widen_run(out, a, b, n, 1);                                                                                  \
	}
#define VECTOR_KERNELS(isa)                              \
	VECTOR_ACC(acc_set, bf16, isa, ZD_CODEC_BF16, 0) \
	VECTOR_ACC(acc_set, fp16, isa, ZD_CODEC_FP16, 0) \
	VECTOR_ACC(acc_set, fp32, isa, ZD_CODEC_FP32, 0) \
	VECTOR_ACC(acc_add, bf16, isa, ZD_CODEC_BF16, 1) \
	VECTOR_ACC(acc_add, fp16, isa, ZD_CODEC_FP16, 1) \
	VECTOR_ACC(acc_add, fp32, isa, ZD_CODEC_FP32, 1) \
	VECTOR_ADAM(bf16_1, isa, ZD_GRAD_BF16_1)         \
	VECTOR_ADAM(bf16_2, isa, ZD_GRAD_BF16_2)         \
	VECTOR_ADAM(fp32, isa, ZD_GRAD_FP32)             \
	VECTOR_SPLIT(bf16, isa, ZD_CODEC_BF16)           \
	VECTOR_SPLIT(fp16, isa, ZD_CODEC_FP16)           \
	VECTOR_SPLIT(fp32, isa, ZD_CODEC_FP32)           \
	VECTOR_REST(isa)

#endif
