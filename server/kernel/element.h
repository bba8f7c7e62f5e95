/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The definition of every kernel, one element at a time.  scalar.c loops over these; the vector files use them for what is left over
 * after the last whole vector, and must equal them bit for bit.  Included only by the kernel files, all built with -ffp-contract=off.
 */
#ifndef ZD_KERNEL_ELEMENT_H
#define ZD_KERNEL_ELEMENT_H

#include <string.h>

#include "server/kernel/kernel.h"

#if !defined(__x86_64__) || __FLT_EVAL_METHOD__ != 0
#error "the arithmetic is defined on SSE registers: x86-64 with FLT_EVAL_METHOD 0"
#endif
#if defined(__FAST_MATH__)
#error "-ffast-math changes results"
#endif

#define ZD_ABS_MASK 0x7fffffffu
#define ZD_EXP_MASK 0x7f800000u	  /* also the bits of +infinity */
#define ZD_QUIET_NAN 0x7fc00000u  /* what a NaN sum is stored as */
#define ZD_REFUSE_FROM 0x7f7f8000u /* smallest magnitude whose bf16 rounding is infinite */

static inline float zd_f32(uint32_t bits)
{
	float f;
	memcpy(&f, &bits, sizeof f);
	return f;
}

static inline uint32_t zd_bits(float f)
{
	uint32_t bits;
	memcpy(&bits, &f, sizeof bits);
	return bits;
}

static inline int zd_nonfinite(uint32_t bits)
{
	return (bits & ZD_ABS_MASK) >= ZD_EXP_MASK;
}

static inline uint32_t zd_bits_bf16(uint16_t x)
{
	return (uint32_t)x << 16;
}

/* In integers, so that neither denormals nor NaN depend on the state of the FPU.  A signalling NaN becomes quiet as VCVTPH2PS does. */
static inline uint32_t zd_bits_fp16(uint16_t x)
{
	uint32_t sign = ((uint32_t)x & 0x8000u) << 16, exponent = (x >> 10) & 0x1fu, fraction = x & 0x3ffu;

	if (exponent == 0x1f)
		return sign | ZD_EXP_MASK | (fraction ? 0x00400000u | fraction << 13 : 0);
	if (exponent != 0)
		return sign | (exponent + 112) << 23 | fraction << 13;
	if (fraction == 0)
		return sign;
	/* fraction * 2^-24 with its leading one at bit `top` */
	uint32_t top = 31u - (uint32_t)__builtin_clz(fraction);
	return sign | (top + 103) << 23 | ((fraction << (23 - top)) & 0x007fffffu);
}

/* fp32 bits of element i of x */
static inline uint32_t zd_bits_at(const void *x, size_t i, enum zd_codec codec)
{
	if (codec == ZD_CODEC_BF16)
		return zd_bits_bf16(((const uint16_t *)x)[i]);
	if (codec == ZD_CODEC_FP16)
		return zd_bits_fp16(((const uint16_t *)x)[i]);
	return zd_bits(((const float *)x)[i]);
}

/* One addition of the reduction. */
static inline float zd_sum_element(float a, float b)
{
	float sum = a + b;
	return sum != sum ? zd_f32(ZD_QUIET_NAN) : sum;
}

static inline uint32_t zd_master_merge(uint16_t hi, uint16_t lo)
{
	return ((uint32_t)hi << 16) + (uint32_t)(int32_t)(int16_t)lo;
}

static inline void zd_master_split(uint16_t *hi, uint16_t *lo, uint32_t bits)
{
	*hi = (uint16_t)((bits + 0x8000u) >> 16);
	*lo = (uint16_t)bits;
}

/*
 * One Adam step of one element; the order of operations is the contract.  acc is the reduced gradient before scaling.
 *
 *   g = acc * scale
 *   AdamW:        w = w - lrwd * w
 *   Adam with L2: g = g + wd * w
 *   m = b1 * m + omb1 * g
 *   v = b2 * v + (omb2 * g) * g
 *   w = w - step * (m / (sqrt(v) * rbc2 + eps))
 *
 * Adam: Kingma and Ba 2014; AdamW: Loshchilov and Hutter 2017, decay first as PyTorch does.  The bias corrections are folded into
 * rbc2 and step, so an element costs one square root and one division.
 */
static inline float zd_adam_element(float w, float *m, float *v, float acc, const struct zd_adam_consts *c, int l2)
{
	float g = acc * c->scale;

	if (l2)
		g = g + c->wd * w;
	else
		w = w - c->lrwd * w;
	*m = c->b1 * *m + c->omb1 * g;
	*v = c->b2 * *v + (c->omb2 * g) * g;
	return w - c->step * (*m / (__builtin_sqrtf(*v) * c->rbc2 + c->eps));
}

static inline float zd_grad_at(const void *ga, const void *gb, size_t i, enum zd_grad_form form)
{
	if (form == ZD_GRAD_FP32)
		return ((const float *)ga)[i];
	float a = zd_f32(zd_bits_bf16(((const uint16_t *)ga)[i]));
	return form == ZD_GRAD_BF16_1 ? a : a + zd_f32(zd_bits_bf16(((const uint16_t *)gb)[i]));
}

static inline void zd_adam_at(uint16_t *hi, uint16_t *lo, float *m, float *v, const void *ga, const void *gb, size_t i,
			      const struct zd_adam_consts *c, enum zd_grad_form form, int l2)
{
	float w = zd_f32(zd_master_merge(hi[i], lo[i]));

	w = zd_adam_element(w, &m[i], &v[i], zd_grad_at(ga, gb, i, form), c, l2);
	zd_master_split(&hi[i], &lo[i], zd_bits(w));
}

/* The last step of a block's sum of squares: sixteen partial sums to one, always in this tree. */
static inline double zd_square_tree(double s[16])
{
	for (size_t width = 8; width > 0; width /= 2)
		for (size_t j = 0; j < width; j++)
			s[j] += s[j + width];
	return s[0];
}

static inline void zd_result_note(struct zd_reduce_result *result, size_t i)
{
	if (result->nonfinite++ == 0)
		result->first_nonfinite = i;
}

#endif
