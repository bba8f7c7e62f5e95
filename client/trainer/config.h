/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shape of the model and its cut into units.
 *
 * A decoder-only Transformer over bytes: learned token and position embeddings, `layers` blocks of causal attention and a
 * GELU MLP four times as wide, each behind an RMS norm and added to the residual stream, then a last norm and an output
 * matrix of its own (not tied to the embedding). No bias vectors.
 *
 * Units, each one flat vector, in the order in which forward needs them; d is dim, matrices are row-major [in][out]:
 *
 *   0            "embed"     token [256][d], position [context][d]
 *   1..layers    "block.i"   norm1 [d], qkv [d][3d], proj [d][d], norm2 [d], up [d][4d], down [4d][d]     i from 0
 *   layers + 1   "head"      norm [d], out [d][256]
 *
 * Pure functions; any thread.
 */
#ifndef ZD_TRAINER_CONFIG_H
#define ZD_TRAINER_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"

#define ZD_LM_VOCAB 256
#define ZD_LM_WIDEN 4 /* hidden width of the MLP over dim */

/* Limits keep every product of a shape within int, which is what CBLAS takes, and a slip of the finger from asking for a terabyte. */
#define ZD_LM_LAYERS_MAX 512
#define ZD_LM_DIM_MAX 8192
#define ZD_LM_CONTEXT_MAX 8192
#define ZD_LM_BATCH_MAX 4096
#define ZD_LM_TOKENS_MAX (1u << 20) /* batch * context */

struct zd_lm_config {
	uint32_t layers;
	uint32_t dim;	  /* a multiple of heads */
	uint32_t heads;
	uint32_t context; /* bytes of a sequence */
	uint32_t batch;	  /* sequences of one micro-batch on one rank */
	bool recompute;	  /* keep each block's input only and compute the rest again in backward: same bits, less memory */
};

/* What zerod-lm trains unless told otherwise: 0.9 million parameters, a step of a tenth of a second on one core. */
struct zd_lm_config zd_lm_config_default(void);

/* 0, or -1 with a text (option, limit, value found); every other function of the model wants a checked configuration. */
int zd_lm_config_check(const struct zd_lm_config *config, char *text, size_t text_size) ZD_MUST_USE;

size_t zd_lm_units(const struct zd_lm_config *config);
size_t zd_lm_unit_numel(const struct zd_lm_config *config, size_t unit);
size_t zd_lm_largest_unit(const struct zd_lm_config *config); /* numel */
size_t zd_lm_numel(const struct zd_lm_config *config);	      /* all units */

/* Writes the unit's name with its end into name (ZD_LM_UNIT_NAME bytes) and returns name. */
#define ZD_LM_UNIT_NAME 24
const char *zd_lm_unit_name(const struct zd_lm_config *config, size_t unit, char name[ZD_LM_UNIT_NAME]);

/* Where the tensors of a block, of "embed" and of "head" begin, in elements from the start of their unit. */
struct zd_lm_block_layout {
	size_t norm1, qkv, proj, norm2, up, down, numel;
};
struct zd_lm_block_layout zd_lm_block_layout(uint32_t dim);
size_t zd_lm_embed_position(const struct zd_lm_config *config);
size_t zd_lm_head_out(const struct zd_lm_config *config);

/*
 * Initial fp32 weights of a unit, numel elements. A function of configuration, seed and unit alone: whoever calls it, on
 * whatever machine and for whatever world size, gets the same bits (integers and correctly rounded operations only).
 * Norm gains are 1; matrices have mean 0 and deviation 1/sqrt(in), those that write into the residual stream
 * 1/sqrt(2 * layers) of that (GPT-2's rule, which keeps the stream's size independent of depth); token embeddings 0.5;
 * position embeddings start as sines and cosines of amplitude 0.5 and are learned from there.
 */
void zd_lm_init_unit(const struct zd_lm_config *config, uint64_t seed, size_t unit, float *weights);

#endif
