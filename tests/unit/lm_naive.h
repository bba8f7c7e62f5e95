/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model of config.h once more, as its description reads: in double precision, token by token, with the C library's
 * functions and no thought of speed. What tests of the real one compare with.
 */
#ifndef ZD_TEST_LM_NAIVE_H
#define ZD_TEST_LM_NAIVE_H

#include "client/trainer/config.h"

/* Mean loss of a batch under weights, all units one after the other; logits [batch * context][256] where not NULL. */
double lm_naive_loss(const struct zd_lm_config *config, const double *weights, const uint8_t *tokens, double *logits);

#endif
