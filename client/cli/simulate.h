/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Teaching simulations of sharded training, small enough to read: all ranks live
 * in one process and their collectives are loops. They show, and check, that
 * sharding changes where things are and not one bit of the result.
 *
 * In fp64. Ranks are summed in rank order, the first one as it is; then the sum is
 * divided by their number: the order of docs/numerics.md. Arrays are caller's,
 * row-major, borrowed during the call and never written unless named ret_x.
 *
 * Functions return 0 or a negative code; outputs are written only on success,
 * except that arrays may hold anything after E_MEMORY. Any thread.
 */
#ifndef ZD_CLI_SIMULATE_H
#define ZD_CLI_SIMULATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define ZD_SIMULATE_MUST_USE __attribute__((warn_unused_result))

enum {
	ZD_SIMULATE_OK = 0,
	ZD_SIMULATE_E_RANGE = -1, /* a size that is 0, or a hyper-parameter out of its range */
	ZD_SIMULATE_E_MEMORY = -2,
};

/* Mistakes that can be made on purpose, to see that the checks find them. */
enum zd_simulate_mistake {
	ZD_SIMULATE_NO_MISTAKE,
	ZD_SIMULATE_SUM,   /* gradients are added up, not averaged */
	ZD_SIMULATE_SHIFT, /* each rank takes the gradient of its neighbour element */
	ZD_SIMULATE_KEEP,  /* stage 3: gathered layers are not dropped after use */
};

struct zd_simulate_piece {
	size_t first, count;
};

/* Piece `part` of `n` elements cut into `parts` (from 1) as numpy.array_split
 * does: the first n mod parts pieces have one more. */
struct zd_simulate_piece zd_simulate_split(size_t n, size_t parts, size_t part);

/* Elements of a and b that are not equal (a NaN equals nothing, so it counts).
 * *ret_largest: the largest difference; NaN if one is. May be NULL. */
size_t zd_simulate_differ(const double *a, const double *b, size_t n, double *ret_largest);

/* --- the sharded Adam step (ZeRO stage 1 and up) --- */

struct zd_simulate_adam {
	size_t n, ranks;	 /* from 1 */
	const double *weights;	 /* n */
	const double *m, *v;	 /* n: first and second moment */
	const double *gradients; /* ranks x n */
	uint64_t step;		 /* from 1 */
	double lr, beta1, beta2, eps; /* lr and eps above 0, betas in [0, 1) */
	enum zd_simulate_mistake mistake;
};

/*
 * Every rank averages its own piece of all gradients (reduce-scatter), steps its
 * own piece of weights and moments, and all pieces are put together again
 * (all-gather). ret_x have n elements and overlap no input. Adam as Kingma and Ba,
 * arXiv 1412.6980, algorithm 1, bias correction included.
 */
ZD_SIMULATE_MUST_USE int zd_simulate_adam_sharded(const struct zd_simulate_adam *in, double *ret_weights,
						  double *ret_m, double *ret_v);

/* The same step by one process that holds everything; ignores `mistake`. */
ZD_SIMULATE_MUST_USE int zd_simulate_adam_plain(const struct zd_simulate_adam *in, double *ret_weights,
						double *ret_m, double *ret_v);

/* --- stage 3: forward and backward over sharded weights --- */

/*
 * A stack of `layers` layers h = tanh(W h) of `width` inputs and outputs; each
 * rank has `batch` samples; the loss of a rank is the mean over its samples of
 * |h - target|^2 / 2.
 */
struct zd_simulate_stage3 {
	size_t layers, width, batch, ranks; /* from 1 */
	const double *weights;		    /* layers x width x width: W[out][in] */
	const double *inputs, *targets;	    /* ranks x batch x width */
	enum zd_simulate_mistake mistake;
};

struct zd_simulate_counts {
	size_t resident_layers;	  /* most gathered layers that one rank held at once */
	size_t resident_elements; /* the same in elements */
	size_t gathered_elements; /* put together by one rank over the whole step */
	double loss;		  /* mean over ranks */
};

/*
 * Each rank holds 1/ranks of every layer. A layer is gathered before it is used
 * and dropped after; the last one stays from forward to backward. Backward
 * reduce-scatters its gradient at once. ret_gradient, layers x width x width, is
 * what the ranks' shards are when laid side by side.
 */
ZD_SIMULATE_MUST_USE int zd_simulate_stage3_sharded(const struct zd_simulate_stage3 *in, double *ret_gradient,
						    struct zd_simulate_counts *ret_counts);

/* Plain data parallelism: every rank has all weights, gradients are averaged.
 * Ignores `mistake`. *ret_loss: mean over ranks. */
ZD_SIMULATE_MUST_USE int zd_simulate_stage3_plain(const struct zd_simulate_stage3 *in, double *ret_gradient,
						  double *ret_loss);

/* --- the command --- */

/*
 * `zeroctl simulate adam|stage3`: runs a simulation on random numbers from --seed
 * beside the unsharded computation. Arguments as zd_cli_plan's. Exit code 0 if
 * all checks hold, 1 if not, 2 for usage.
 */
int zd_cli_simulate(int argc, char **argv, FILE *out, FILE *err);

#endif
