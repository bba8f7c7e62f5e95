/* SPDX-License-Identifier: Apache-2.0 */
/* What zerod-lm says while it trains and at the end: a line for people, or JSON for programs.  Threads: one. */
#ifndef ZD_LM_REPORT_H
#define ZD_LM_REPORT_H

#include "client/trainer/train.h"

struct zd_lm_report {
	const struct zd_lm_options *options;
	int live;		/* a progress line on stderr */
	double start_s, last_s; /* monotonic */
	uint64_t rounds;
	double first_loss, last_loss;
	uint64_t skipped;
	uint64_t sample_fetched; /* bytes */
};

void zd_lm_report_begin(struct zd_lm_report *r, const struct zd_lm_options *options);
/* Before the first round: says so where a later launch begins from nothing. */
void zd_lm_report_start(const struct zd_lm_options *options, const struct zd_lm_state *state);
/* A zd_lm_observe; arg is the report. */
void zd_lm_report_round(void *arg, const struct zd_lm_state *state, const struct zd_lm_round *round);
/* A zerod_waiting; arg is the report. */
void zd_lm_report_waiting(void *arg, const struct zerod_progress *progress);
/* Ends the progress line before other output. */
void zd_lm_report_clear(struct zd_lm_report *r);
/* Around the generation of a text: what that costs beyond training. */
void zd_lm_report_sample_begin(struct zd_lm_report *r, const struct zd_lm_state *state);
void zd_lm_report_sample_end(struct zd_lm_report *r, const struct zd_lm_state *state);
/* The summary; digest and sample may be NULL. */
void zd_lm_report_end(struct zd_lm_report *r, const struct zd_lm_state *state, const char *digest, const uint8_t *sample, size_t sample_len);

#endif
