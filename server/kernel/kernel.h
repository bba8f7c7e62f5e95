/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arithmetic of a lane: reduce, norm, Adam, casts.
 *
 * One definition, written in scalar C (element.h, scalar.c); the AVX2 and AVX-512 variants give the same bits, always.
 * The table kernels.def lists every function of every variant.
 *
 * What it owns: nothing.  Every pointer is lent for the duration of the call; nothing allocates, blocks or fails.
 * Thread: any, many at once on disjoint memory, each after zd_kernels_thread_init().
 * Memory: any alignment of the element type, any n including 0.  Inputs and outputs do not overlap, except that planes and
 * accumulators are updated in place.  Kernels prefetch up to ZD_KERNEL_AHEAD_BYTES past what they were given, which cannot fault,
 * and load and store nothing outside it.
 *
 * Exactness.  Operations are IEEE 754 in round-to-nearest-even, every multiply and add rounded separately (no contraction), with
 * denormal inputs read as zero and denormal results flushed to zero (MXCSR.DAZ and MXCSR.FTZ).  Conversions between formats do not
 * flush: they are exact, and a denormal keeps its bits until an operation reads it.
 */
#ifndef ZD_KERNEL_KERNEL_H
#define ZD_KERNEL_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#include "proto/codec.h"

/* Goes into every redo record and checkpoint: a record is replayed only by arithmetic of the same version.  Raise it with any change
 * that can change a bit of a result. */
#define ZD_MATH_VERSION 1

/* Elements per block of the norm.  Pieces and extents start at multiples of it, so that the block sums of a unit, and with them the
 * bits of its norm, do not depend on how the unit is cut. */
#define ZD_KERNEL_BLOCK 4096

/* How far ahead of the current element each stream is prefetched: about the latency of memory times the rate of one core.  512 to
 * 2048 measure alike. */
#define ZD_KERNEL_AHEAD_BYTES 1024

/* Result of a reduction over the elements of one call; always written whole.  first_nonfinite is an index into this call, valid if
 * nonfinite > 0 (else 0). */
struct zd_reduce_result {
	uint64_t nonfinite;
	uint64_t first_nonfinite;
};

/* Constants of one optimizer step, each rounded once from fp64 to fp32. */
struct zd_adam_consts {
	float scale; /* clip / divisor */
	float b1, b2;
	float omb1, omb2; /* 1-b1, 1-b2 */
	float rbc2;	  /* 1/sqrt(1-b2^t) */
	float eps;
	float step;   /* lr/(1-b1^t) */
	float lrwd;   /* lr*wd, used by AdamW */
	float wd;     /* used by Adam with L2 */
	uint32_t l2;  /* 0 AdamW, 1 Adam with L2 */
};

/* As the user gave them. */
struct zd_adam_params {
	double lr, wd, b1, b2, eps;
	uint32_t l2;
};

/*
 * Constants of step t, counted from 1 (asserted by the caller: t = 0 would divide by zero).  Uses only IEEE operations in fp64 and no
 * function of libm whose last bit depends on the library or the CPU, so every host computes the same constants.  0 <= b1, b2 < 1.
 * Any thread, flushing or not: the bits are the same wherever the constants are normal numbers; one that would be denormal may come
 * out as zero, and counts as zero in every kernel either way.
 */
void zd_adam_consts_init(struct zd_adam_consts *consts, const struct zd_adam_params *params, uint64_t t, double scale);

/* What the gradient of a unit is when Adam reads it. */
enum zd_grad_form {
	ZD_GRAD_BF16_1, /* one contribution as it came */
	ZD_GRAD_BF16_2, /* two contributions as they came, added in the order a + b in fp32 */
	ZD_GRAD_FP32,	/* the fp32 sum */
	ZD_GRAD_FORM_COUNT
};

struct zd_kernels {
	const char *name; /* "scalar", "avx2", "avx512" */

	/*
	 * Reduction, indexed by enum zd_codec of x.  set: acc = x exactly (-0, denormals, NaN payloads kept; a signalling fp16 NaN becomes
	 * quiet).  add: acc = acc + x; a result that is NaN is stored as 0x7fc00000, because which operand's payload IEEE arithmetic keeps
	 * is the compiler's choice.
	 * block_sums: NULL, or one double for each block of ZD_KERNEL_BLOCK elements begun, which receives the sum of squares of the
	 * resulting acc of that block as zd_square_sum in scalar.c defines it; +infinity if any of its elements is not finite.
	 * The result counts the elements of the resulting acc that are infinite or NaN.
	 */
	void (*acc_set[ZD_CODEC_COUNT])(float *acc, const void *x, size_t n, double *block_sums, struct zd_reduce_result *result);
	void (*acc_add[ZD_CODEC_COUNT])(float *acc, const void *x, size_t n, double *block_sums, struct zd_reduce_result *result);

	/* The block sums and result that acc_set of a (and then acc_add of b) would give, without an accumulator.  block_sums required.
	 * checked: NULL, or a or b, whose CRC32C (proto/crc32c.h) goes to *crc: in the same pass it costs a third of a pass of its own at most. */
	void (*norm_bf16_1)(const uint16_t *a, size_t n, double *block_sums, struct zd_reduce_result *result, const uint16_t *checked,
			    uint32_t *crc);
	void (*norm_bf16_2)(const uint16_t *a, const uint16_t *b, size_t n, double *block_sums, struct zd_reduce_result *result,
			    const uint16_t *checked, uint32_t *crc);

	/*
	 * One Adam or AdamW step over the planes of a range, in place; indexed by enum zd_grad_form.  ga: const uint16_t * or, for
	 * ZD_GRAD_FP32, const float *; gb: NULL except for ZD_GRAD_BF16_2.  The order of operations is at zd_adam_element in element.h.
	 * The gradient must be finite (its reduction counted no non-finite element).  With other input the same elements of the same
	 * planes become non-finite in every variant; only the payload of a NaN made from two different NaNs may differ.
	 * crc: NULL, or receives the CRC32C of hi as it is after the step.
	 */
	void (*adam[ZD_GRAD_FORM_COUNT])(uint16_t *hi, uint16_t *lo, float *m, float *v, const void *ga, const void *gb, size_t n,
					 const struct zd_adam_consts *consts, uint32_t *crc);

	/*
	 * The split master, by codec of the source: bits(w) = (hi << 16) + sext(lo).  hi is w rounded to bf16, ties away from zero; a
	 * source in bf16 gives lo = 0.  Exact for every bit pattern, so merge(split(x)) = x.  refused counts what a load must refuse: NaN,
	 * infinity, and finite values whose hi would be infinite (0x7f7f8000 and above); the planes then hold them exactly, too.
	 */
	void (*split[ZD_CODEC_COUNT])(uint16_t *hi, uint16_t *lo, const void *x, size_t n, struct zd_reduce_result *refused);
	void (*merge)(float *w, const uint16_t *hi, const uint16_t *lo, size_t n);

	/* fp32 of contributions: [0] out = a exactly, b unused; [1] out = a + b, NaN as acc_add stores it. */
	void (*widen[2])(float *out, const uint16_t *a, const uint16_t *b, size_t n);
};

/* The variants; NULL if not built for this target or not runnable on this CPU and operating system.  The scalar one always exists. */
const struct zd_kernels *zd_kernels_scalar(void);
const struct zd_kernels *zd_kernels_avx2(void);
const struct zd_kernels *zd_kernels_avx512(void);

/* The best runnable variant, but at most the one named by mask ("scalar", "avx2", "avx512"; NULL or "" for no limit).  NULL if mask is
 * another word.  Static storage. */
const struct zd_kernels *zd_kernels_select(const char *mask);

/* Puts the calling thread into the state that every kernel requires: flush denormals both ways, round to nearest even.  A library
 * linked with -ffast-math may set or clear these bits, so each lane sets them at its start and asserts zd_kernels_thread_ok(). */
void zd_kernels_thread_init(void);
int zd_kernels_thread_ok(void);

#endif
