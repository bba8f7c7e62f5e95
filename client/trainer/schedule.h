/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The learning rate of a step: linear warm-up, then half a cosine down to a floor, which stays.
 *
 *   peak |      /--_
 *        |    /      \
 *   floor|  /          `-________       rate(t), t from 1
 *        +-/----|----------|-----
 *             warmup     steps
 *
 *   t <= warmup            peak * t / warmup
 *   warmup < t < steps     floor + (peak - floor) * (1 + cos(pi * (t - warmup) / (steps - warmup))) / 2
 *   t >= steps             floor     (warm-up goes first where the two meet)
 *
 * Pure functions; any thread. All ranks must hand in the same rate bit for bit, also where their C libraries differ, so the
 * cosine is computed here from additions, multiplications and divisions alone (error below 4 units in the last place of 1).
 */
#ifndef ZD_TRAINER_SCHEDULE_H
#define ZD_TRAINER_SCHEDULE_H

#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"

struct zd_schedule {
	double peak;  /* above 0 */
	double floor; /* 0 .. peak */
	uint64_t warmup; /* steps; 0: starts at the peak */
	uint64_t steps;	 /* where the cosine ends; at least warmup and 1 */
};

/* 0, or -1 with a text. */
int zd_schedule_check(const struct zd_schedule *schedule, char *text, size_t text_size) ZD_MUST_USE;

/* The rate of step t, counted from 1 as Adam counts. The schedule has passed the check. */
double zd_schedule_rate(const struct zd_schedule *schedule, uint64_t t);

#endif
