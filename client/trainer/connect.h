/* SPDX-License-Identifier: Apache-2.0 */
/* A client of the daemons, made from the trainer's options. */
#ifndef ZD_LM_CONNECT_H
#define ZD_LM_CONNECT_H

#include "client/trainer/state.h"

/* Connects and joins; fills state->progress.  resident: elements of weights that the stage keeps at once (stages 1 and 2: all), 0 for the
 * limiter's own bound.  0 or enum zd_lm_failure with a text; *ret_client is set in both cases and may be NULL. */
int zd_lm_connect(struct zerod_client **ret_client, struct zd_lm_state *state, uint64_t resident, char *detail, size_t size) ZEROD_MUST_USE;

/* enum zd_lm_failure of a zerod_status, with the client's words. */
int zd_lm_connect_failure(const struct zerod_client *client, int status, char *detail, size_t size);

#endif
