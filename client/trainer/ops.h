/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of a Transformer that are no matrix products: RMS norm, GELU, softmax, cross-entropy, each with its gradient.
 *
 * All on rows of fp32, row-major and packed. Sums run in eight interleaved partial sums that are added as a fixed tree, so
 * the compiler may use vectors and the bits stay the same. exp is computed here, from additions and multiplications, for
 * the same two reasons; its relative error is below 2^-22 for arguments within +-64, beyond which it stays constant.
 *
 * Non-finite input yields non-finite output. Nothing allocates; any thread.
 */
#ifndef ZD_TRAINER_OPS_H
#define ZD_TRAINER_OPS_H

#include <stddef.h>
#include <stdint.h>

/* Added to the mean square before its root is taken, so that a row of zeros has a norm. */
#define ZD_OPS_NORM_EPSILON 1e-5f

/* RMS norm (Zhang, Sennrich 2019): out = x * inverse * gain with inverse[row] = 1 / sqrt(mean of x^2 + epsilon). */
void zd_ops_norm(size_t rows, size_t dim, const float *x, const float *gain, float *inverse, float *out);

/* Adds the gradients of x and gain; inverse is what the forward pass left. */
void zd_ops_norm_backward(size_t rows, size_t dim, const float *x, const float *gain, const float *inverse, const float *dout, float *dx,
			  float *dgain);

/* GELU in its tanh form (Hendrycks, Gimpel 2016): out = x * sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3)). */
void zd_ops_gelu(size_t count, const float *x, float *out);

/* Turns the gradient of the output, in grad, into that of the input; computes out anew beside it. */
void zd_ops_gelu_backward(size_t count, const float *x, float *out, float *grad);

/* Causal softmax in place over one square of scores: row i over columns 0..i, the rest becomes 0. */
void zd_ops_causal_softmax(size_t context, float *scores);

/* Turns the gradient of the probabilities, in grad, into that of the scores, times scale; columns beyond i become 0. */
void zd_ops_causal_softmax_backward(size_t context, const float *probabilities, float scale, float *grad);

/* Softmax in place over rows of logits; returns the sum over rows of -ln(probability of the row's target). */
double zd_ops_cross_entropy(size_t rows, size_t classes, float *logits, const uint8_t *targets);

/* Turns those probabilities into the gradient of the mean loss by the logits, in place. */
void zd_ops_cross_entropy_backward(size_t rows, size_t classes, float *probabilities, const uint8_t *targets);

/* to += from */
void zd_ops_add(size_t count, float *to, const float *from);

#endif
