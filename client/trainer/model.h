/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model that zerod-lm trains, forward and backward, one unit at a time (config.h has the units).
 *
 * Weights come as the bf16 vector of one unit and are needed only during the call; inside they are widened to fp32 into
 * one buffer of the size of the largest unit. All activations and gradients are fp32. Gradients leave as the flat fp32
 * vector of one unit, of the mean loss over the batch's tokens.
 *
 * One micro-batch:
 *
 *   zd_lm_set_batch
 *   zd_lm_forward_unit   unit 0, 1, .. units - 1
 *   zd_lm_loss           any time after the last forward
 *   zd_lm_backward_unit  unit units - 1, .. 1, 0, with the weights that forward had
 *
 * A batch may be given up at any point by the next zd_lm_set_batch; another order is a bug and asserts.
 *
 * Same inputs, same bits: one thread, fixed order of every sum, memory aligned to 64 bytes, BLAS held to one thread. Bits may
 * differ between machines whose BLAS picks other kernels; nothing else in here depends on the machine.
 * A non-finite weight or sum is not caught here: it travels on into the loss and the gradient, where the lanes see it.
 *
 * Memory, in floats, with T = batch * context tokens, L layers and H heads:
 *
 *   activations   L * T * (10 d + H * context + 2)     recompute: L * T * d, and the rest of one block
 *   shared        T * (12 d + 257) + context^2 + numel of the largest unit
 *
 * zd_lm_memory says it exactly.
 *
 * A handle belongs to one thread at a time; different handles do not touch each other.
 */
#ifndef ZD_TRAINER_MODEL_H
#define ZD_TRAINER_MODEL_H

#include "client/trainer/config.h"

struct zd_lm;

/* Bytes that zd_lm_new allocates for this configuration. */
size_t zd_lm_memory(const struct zd_lm_config *config);

/* NULL when memory is short. The configuration is copied and must have passed zd_lm_config_check. */
struct zd_lm *zd_lm_new(const struct zd_lm_config *config);
void zd_lm_free(struct zd_lm *lm); /* NULL is fine */

/* The next micro-batch: batch rows of context + 1 bytes. Byte i + 1 of a row is the target of byte i. Copied. */
void zd_lm_set_batch(struct zd_lm *lm, const uint8_t *tokens);

/* Forward through one unit; weights are its numel bf16 values. */
void zd_lm_forward_unit(struct zd_lm *lm, size_t unit, const uint16_t *weights);

/* Mean cross-entropy of the batch in nats. */
double zd_lm_loss(const struct zd_lm *lm);

/* Backward through one unit: writes its gradient into grad (numel floats), or adds it to what is there. */
void zd_lm_backward_unit(struct zd_lm *lm, size_t unit, const uint16_t *weights, float *grad, bool accumulate);

/* After the last forward: the 256 probabilities of the byte that follows position `at` of sequence `row`. */
const float *zd_lm_probabilities(const struct zd_lm *lm, uint32_t row, uint32_t at);

#endif
