/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The planner's formulas: what sharded training costs in memory, in bytes on
 * the network and in time. Pure functions on numbers, no state, no allocation,
 * safe from any thread. docs/plan.md derives each one and shows its figures.
 *
 * Units: parameters and elements are counts, memory and traffic are bytes,
 * rates are bytes a second, computation is floating-point operations a second,
 * times are seconds. GPU and worker mean the same thing here.
 *
 * Every function returns 0, or a negative code below; outputs (`ret_x`) are
 * written only on success. "Positive" excludes NaN and infinity.
 *
 * The order of operations keeps figures exact: products of integers come
 * before the one division, so that every value below 2^53 with a power of two
 * for divisor has no rounding at all.
 */
#ifndef ZD_CLI_PLAN_FORMULAS_H
#define ZD_CLI_PLAN_FORMULAS_H

#include <stdbool.h>

#define ZD_PLAN_MUST_USE __attribute__((warn_unused_result))

enum {
	ZD_PLAN_OK = 0,
	ZD_PLAN_E_STAGE = -1, /* stage is not 0, 1, 2 or 3 */
	ZD_PLAN_E_RANGE = -2, /* a quantity that must be positive is not */
	ZD_PLAN_E_SHAPE = -3, /* quantities that must divide or fit each other do not */
	ZD_PLAN_E_LARGE = -4, /* an amount reaches ZD_PLAN_BYTES_END */
};

/* Amounts that are counted byte by byte are below this: 2^64. */
#define ZD_PLAN_BYTES_END 18446744073709551616.0

/* What is wrong, for people; the text is static. */
const char *zd_plan_error(int code);

/* Mixed-precision Adam keeps, per parameter, 2 bytes of weights, 2 of gradient
 * and 12 of optimizer (fp32 weights and two moments): K = 12 in the ZeRO paper. */
#define ZD_PLAN_WEIGHT_BYTES 2.0
#define ZD_PLAN_GRAD_BYTES 2.0
#define ZD_PLAN_OPTIMIZER_BYTES 12.0

/* What is trained, N, and what is not, F: weights only, which go wherever the
 * weights go. The papers' formulas are those of F = 0. */
struct zd_plan_size {
	double params, frozen; /* positive; 0 or more */
};

/*
 * Bytes of model state on one of `gpus` GPUs: 16N + 2F; 4N + 12N/n + 2F;
 * 2N + 14N/n + 2F; (16N + 2F)/n for stages 0 to 3. Source: ZeRO, arXiv
 * 1910.02054, figure 1.
 */
ZD_PLAN_MUST_USE int zd_plan_state_bytes(unsigned stage, struct zd_plan_size size, double gpus,
										 double *ret_bytes);

/*
 * Bytes one GPU sends in a step over a ring, f = (n-1)/n: 2Ngf for stage 0 (an
 * all-reduce), N(g+p)f for 1 and 2, (N(g+2p) + 2Fp)f for 3 (two gathers, one
 * reduce-scatter). `weight_bytes` p and `grad_bytes` g are bytes an element.
 * Source: arXiv 1910.02054, section 7.
 */
ZD_PLAN_MUST_USE int zd_plan_ring_bytes(unsigned stage, struct zd_plan_size size, double gpus,
										double weight_bytes, double grad_bytes,
										double *ret_bytes);

struct zd_plan_hybrid {
	double state_bytes; /* of model state on one GPU: 16N/s */
	double cross_bytes; /* one GPU sends to other nodes in a step */
	double replicas;    /* R = gpus / group */
};

/*
 * Sharding inside groups of `group` GPUs, replicas across groups (FSDP's hybrid
 * sharding, arXiv 2304.11277, section 3.2.2). Across nodes of `node` GPUs go
 *   [s > node] 3 (s-1)/s 2N  +  [R > 1] 2 (R-1)/R 2N/s.
 * E_SHAPE unless the group is a whole number that divides the GPUs.
 */
ZD_PLAN_MUST_USE int zd_plan_hybrid(double params, double gpus, double group, double node,
									struct zd_plan_hybrid *ret_hybrid);

struct zd_plan_peak {
	struct zd_plan_size size;
	double gpus;
	double largest_unit;	/* elements gathered together */
	double largest_trained; /* elements of the largest unit with a gradient */
	double activation_bytes;
};

/*
 * Peak of a stage 3 worker that shards its own state: that, two gathered units of
 * bf16 weights (one computing, one in flight), one unit of bf16 gradient, and the
 * activations. `activation_bytes` may be 0; a unit is no larger than the model,
 * or E_SHAPE.
 */
ZD_PLAN_MUST_USE int zd_plan_peak_bytes(const struct zd_plan_peak *in, double *ret_bytes);

/*
 * Seconds of forward and backward for `tokens` tokens: (6N + 4F) tokens / flops,
 * as a frozen weight has no gradient of its own. Without the attention scores, as
 * the Llama 3 report counts it (arXiv 2407.21783).
 */
ZD_PLAN_MUST_USE int zd_plan_compute_seconds(struct zd_plan_size size, double tokens, double flops,
											 double *ret_seconds);

ZD_PLAN_MUST_USE int zd_plan_transfer_seconds(double bytes, double rate, double *ret_seconds);

/*
 * Tokens per GPU and step from which the bytes of stage 3 over a ring of any
 * length hide behind (6N + 4F) tokens operations: flops / rate in bf16, where N and
 * F cancel, and (N(g+2p) + 2Fp) / (6N + 4F) of that else.
 */
ZD_PLAN_MUST_USE int zd_plan_hiding_tokens(struct zd_plan_size size, double weight_bytes, double grad_bytes,
										   double flops, double rate, double *ret_tokens);

struct zd_plan_batch {
	double tokens;           /* per GPU and step */
	double compute_seconds;
	double transfer_seconds; /* stage 3, bf16 */
	double ratio;            /* transfer / compute: above 1, it cannot hide */
};

/* A batch of `batch_tokens` over `gpus` GPUs in stage 3. */
ZD_PLAN_MUST_USE int zd_plan_batch(struct zd_plan_size size, double batch_tokens, double gpus, double flops,
								   double rate, struct zd_plan_batch *ret_batch);

struct zd_plan_shape {
	double layers, hidden, heads, seq, batch; /* batch: sequences at once */
};

struct zd_plan_activations {
	double full_bytes;       /* s b h (34 + 5 a s/h) a layer: everything kept */
	double fused_bytes;      /* 34 s b h a layer: no attention scores */
	double checkpoint_bytes; /* 2 s b h a layer: full recomputation */
};

/*
 * Bytes of activations of a Transformer in 16 bits. Source: Korthikanti et al.,
 * arXiv 2205.05198, equations 1, 6 and section 5 without tensor parallelism.
 * Llama 3 70B (80 layers, hidden 8192, 64 heads), one sequence of 8192: the
 * fused form (FlashAttention, or selective recomputation) gives 182.5 GB, full
 * recomputation 10.7 GB; keeping the scores too would take 1.9 TB. E_LARGE where
 * that reaches ZD_PLAN_BYTES_END.
 */
ZD_PLAN_MUST_USE int zd_plan_activations(const struct zd_plan_shape *shape,
										 struct zd_plan_activations *ret_activations);

struct zd_plan_volume {
	double forward_gather_bytes, backward_gather_bytes, gradient_bytes;
};

/*
 * ZeRO++ (arXiv 2306.10209, table 1): bytes across nodes per step of a model of
 * M = 2N bytes. Plain ZeRO-3 moves M three times; int8 blocks halve the forward
 * gather, a second copy of the weights inside the node makes the backward one
 * free, int4 blocks quarter the gradients. What is frozen is gathered, too.
 */
ZD_PLAN_MUST_USE int zd_plan_zeropp(struct zd_plan_size size, bool int8_weights, bool node_copy,
									bool int4_gradients, struct zd_plan_volume *ret_volume);

struct zd_plan_deepspeed {
	double gpu_bytes; /* per GPU */
	double cpu_bytes; /* per node */
};

/*
 * What DeepSpeed's own estimators print for its model states, with their buffer
 * factor of 1.5 and their rounding down to a byte, for comparison. Source:
 * DeepSpeed documentation, "Memory Requirements".
 */
ZD_PLAN_MUST_USE int zd_plan_deepspeed_zero2(double params, double gpus_per_node, double nodes,
											 bool offload_optimizer,
											 struct zd_plan_deepspeed *ret_estimate);

struct zd_plan_zero3 {
	double params, largest_layer, gpus_per_node, nodes;
	bool offload_optimizer;
	bool offload_params;   /* only together with offload_optimizer */
	bool partitioned_init; /* built under deepspeed.zero.Init */
};

ZD_PLAN_MUST_USE int zd_plan_deepspeed_zero3(const struct zd_plan_zero3 *in,
											 struct zd_plan_deepspeed *ret_estimate);

struct zd_plan_daemon_ram {
	double rest_bytes;   /* 12N/k: hi, lo, m, v */
	double round_bytes;  /* 4N/k more while a round is open */
	double frozen_bytes; /* 2 a frozen parameter */
	double budget_bytes; /* 1.03 of all of these, and 24 MiB a lane */
};

/*
 * RAM of one of `daemons` zerod daemons with `lanes` lanes each. `trainable` and
 * `frozen` are parameters of the whole job; either may be 0, not both.
 * `budget_bytes` is the product's promise, not an estimate.
 */
ZD_PLAN_MUST_USE int zd_plan_daemon_ram(double trainable, double frozen, double daemons,
										double lanes, struct zd_plan_daemon_ram *ret_ram);

#endif
