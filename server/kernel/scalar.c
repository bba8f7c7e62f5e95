/* SPDX-License-Identifier: Apache-2.0 */
/* The scalar variant: the definition of every kernel. */
#include "server/kernel/element.h"

#include <math.h>

#include "proto/crc32c.h"
#include "server/kernel/tables.h"

/*
 * Sum of squares of up to one block.  Sixteen fp64 partial sums, all +0 at first; element i adds its square to partial sum i mod 16, in
 * ascending order; a short block counts its missing elements as +0; then the tree: s[j] += s[j+8] for j < 8, s[j+4], s[j+2], s[j+1].
 * The product of two fp32 numbers is exact in fp64, so each step rounds once.
 */
static double zd_square_sum(const float *x, size_t count)
{
	double s[16] = { 0 };

	for (size_t i = 0; i < count; i++) {
		double e = (double)x[i];
		s[i % 16] += e * e;
	}
	double sum = zd_square_tree(s);
	return isfinite(sum) ? sum : (double)INFINITY;
}

static void acc_finish(const float *acc, size_t n, double *block_sums, struct zd_reduce_result *result)
{
	*result = (struct zd_reduce_result){ 0, 0 };
	for (size_t i = 0; i < n; i++)
		if (zd_nonfinite(zd_bits(acc[i])))
			zd_result_note(result, i);
	if (!block_sums)
		return;
	for (size_t first = 0; first < n; first += ZD_KERNEL_BLOCK)
		*block_sums++ = zd_square_sum(acc + first, n - first < ZD_KERNEL_BLOCK ? n - first : ZD_KERNEL_BLOCK);
}

/* The bits go through integers: an fp32 signalling NaN must not become quiet on the way. */
static inline void acc_set(float *acc, const void *x, size_t n, double *block_sums, struct zd_reduce_result *result, enum zd_codec codec)
{
	for (size_t i = 0; i < n; i++) {
		uint32_t bits = zd_bits_at(x, i, codec);
		memcpy(&acc[i], &bits, sizeof bits);
	}
	acc_finish(acc, n, block_sums, result);
}

static inline void acc_add(float *acc, const void *x, size_t n, double *block_sums, struct zd_reduce_result *result, enum zd_codec codec)
{
	for (size_t i = 0; i < n; i++)
		acc[i] = zd_sum_element(acc[i], zd_f32(zd_bits_at(x, i, codec)));
	acc_finish(acc, n, block_sums, result);
}

#define ACC(op, suffix, codec)                                                                                                     \
	static void op##_##suffix##_scalar(float *acc, const void *x, size_t n, double *block_sums, struct zd_reduce_result *result) \
	{                                                                                                                          \
		op(acc, x, n, block_sums, result, codec);                                                                          \
	}
ACC(acc_set, bf16, ZD_CODEC_BF16)
ACC(acc_set, fp16, ZD_CODEC_FP16)
ACC(acc_set, fp32, ZD_CODEC_FP32)
ACC(acc_add, bf16, ZD_CODEC_BF16)
ACC(acc_add, fp16, ZD_CODEC_FP16)
ACC(acc_add, fp32, ZD_CODEC_FP32)

/* The fp32 values that an accumulator would hold, one block at a time. */
static void norm_blocks(const uint16_t *a, const uint16_t *b, size_t n, double *block_sums, struct zd_reduce_result *result,
			const uint16_t *checked, uint32_t *crc)
{
	float block[ZD_KERNEL_BLOCK];

	*result = (struct zd_reduce_result){ 0, 0 };
	for (size_t first = 0; first < n; first += ZD_KERNEL_BLOCK) {
		size_t count = n - first < ZD_KERNEL_BLOCK ? n - first : ZD_KERNEL_BLOCK;
		for (size_t i = 0; i < count; i++) {
			block[i] = zd_f32(zd_bits_bf16(a[first + i]));
			if (b)
				block[i] = zd_sum_element(block[i], zd_f32(zd_bits_bf16(b[first + i])));
			if (zd_nonfinite(zd_bits(block[i])))
				zd_result_note(result, first + i);
		}
		*block_sums++ = zd_square_sum(block, count);
	}
	if (checked)
		*crc = zd_crc32c(0, checked, n * sizeof *checked);
}

static void norm_bf16_1_scalar(const uint16_t *a, size_t n, double *block_sums, struct zd_reduce_result *result, const uint16_t *checked,
			       uint32_t *crc)
{
	norm_blocks(a, NULL, n, block_sums, result, checked, crc);
}

static void norm_bf16_2_scalar(const uint16_t *a, const uint16_t *b, size_t n, double *block_sums, struct zd_reduce_result *result,
			       const uint16_t *checked, uint32_t *crc)
{
	norm_blocks(a, b, n, block_sums, result, checked, crc);
}

#define ADAM(suffix, form)                                                                                                           \
	static void adam_##suffix##_scalar(uint16_t *hi, uint16_t *lo, float *m, float *v, const void *ga, const void *gb, size_t n, \
					   const struct zd_adam_consts *consts, uint32_t *crc)                                       \
	{                                                                                                                            \
		for (size_t i = 0; i < n; i++)                                                                                       \
			zd_adam_at(hi, lo, m, v, ga, gb, i, consts, form, consts->l2 != 0);                                          \
		if (crc)                                                                                                             \
			*crc = zd_crc32c(0, hi, n * sizeof *hi);                                                                     \
	}
ADAM(bf16_1, ZD_GRAD_BF16_1)
ADAM(bf16_2, ZD_GRAD_BF16_2)
ADAM(fp32, ZD_GRAD_FP32)

#define SPLIT(suffix, codec)                                                                                                         \
	static void split_##suffix##_scalar(uint16_t *hi, uint16_t *lo, const void *x, size_t n, struct zd_reduce_result *refused) \
	{                                                                                                                          \
		*refused = (struct zd_reduce_result){ 0, 0 };                                                                      \
		for (size_t i = 0; i < n; i++) {                                                                                   \
			uint32_t bits = zd_bits_at(x, i, codec);                                                                   \
			zd_master_split(&hi[i], &lo[i], bits);                                                                     \
			if ((bits & ZD_ABS_MASK) >= ZD_REFUSE_FROM)                                                                \
				zd_result_note(refused, i);                                                                        \
		}                                                                                                                  \
	}
SPLIT(bf16, ZD_CODEC_BF16)
SPLIT(fp16, ZD_CODEC_FP16)
SPLIT(fp32, ZD_CODEC_FP32)

static void merge_scalar(float *w, const uint16_t *hi, const uint16_t *lo, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint32_t bits = zd_master_merge(hi[i], lo[i]);
		memcpy(&w[i], &bits, sizeof bits);
	}
}

static void widen_1_scalar(float *out, const uint16_t *a, const uint16_t *b, size_t n)
{
	(void)b;
	for (size_t i = 0; i < n; i++) {
		uint32_t bits = zd_bits_bf16(a[i]);
		memcpy(&out[i], &bits, sizeof bits);
	}
}

static void widen_2_scalar(float *out, const uint16_t *a, const uint16_t *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		out[i] = zd_sum_element(zd_f32(zd_bits_bf16(a[i])), zd_f32(zd_bits_bf16(b[i])));
}

const struct zd_kernels zd_kernels_table_scalar = {
	.name = "scalar",
#define ZD_KERNELS_SCALAR(slot, function) .slot = function,
#include "server/kernel/kernels.def"
};
