/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of zerod-lm, checked. */
#ifndef ZD_LM_OPTIONS_H
#define ZD_LM_OPTIONS_H

#include <stdint.h>

#include "client/include/zerod.h"
#include "client/trainer/launch.h"
#include "client/trainer/model.h"
#include "client/trainer/schedule.h"
#include "proto/codec.h"

enum zd_lm_command { ZD_LM_TRAIN, ZD_LM_REFERENCE };
enum zd_lm_accumulate { ZD_LM_EXACT, ZD_LM_LOCAL };

struct zd_lm_options {
	enum zd_lm_command command;
	struct zd_lm_config model;
	struct zd_launch launch; /* rank, world, epoch, launch id */
	struct zd_schedule schedule;
	const char *endpoints, *job, *text;
	uint32_t stage;		     /* 0..3 */
	uint32_t reshard;	     /* stage 3: drop weights between forward and backward */
	uint32_t micro_batches;	     /* gradient accumulation */
	enum zd_lm_accumulate accumulate;
	uint32_t steps;		     /* rounds to reach */
	uint64_t seed;
	enum zd_codec grad_codec;
	double weight_decay, beta1, beta2, eps, max_norm;
	uint32_t l2;		     /* Adam with L2 instead of AdamW */
	uint64_t gather_bytes;	     /* rate limiter, 0: two largest units */
	uint32_t prefetch;
	uint32_t lease_ms, timeout_ms;
	uint32_t sample;	     /* bytes of text to generate at the end */
	uint32_t sample_hold;	     /* stage 3: with all weights held, else fetched for each byte */
	const char *result;	     /* file for the digest */
	int json;
	int progress;		     /* -1 on a terminal only, 0 never, 1 always */
	const char *kernels;	     /* mask for zd_kernels_select */
	zerod_waiting *waiting;	     /* for zerod_options; not an option of the command line */
	void *waiting_arg;
};

/* Parses argv; prints usage errors and exits 2, prints help and exits 0, as argp does. */
void zd_lm_options_parse(struct zd_lm_options *options, int argc, char **argv);

#endif
