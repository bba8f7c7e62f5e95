/* SPDX-License-Identifier: Apache-2.0 */
#include "client/trainer/schedule.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "client/trainer/trig.h"

#define HALF_PI 0x1.921fb54442d18p0

int zd_schedule_check(const struct zd_schedule *schedule, char *text, size_t text_size)
{
	if (!isfinite(schedule->peak) || schedule->peak <= 0.0) {
		(void)snprintf(text, text_size, "learning rate: expected a number above 0, found %g", schedule->peak);
		return -1;
	}
	if (!(schedule->floor >= 0.0 && schedule->floor <= schedule->peak)) {
		(void)snprintf(text, text_size,
			       "floor of the learning rate: expected 0 to the peak of %g, found %g; lower it or raise the peak", schedule->peak,
			       schedule->floor);
		return -1;
	}
	if (schedule->steps < 1) {
		(void)snprintf(text, text_size, "steps: expected at least 1, found %" PRIu64, schedule->steps);
		return -1;
	}
	if (schedule->warmup > schedule->steps) {
		(void)snprintf(text, text_size,
			       "warm-up: expected at most the %" PRIu64 " steps of the run, found %" PRIu64 "; shorten it or train longer",
			       schedule->steps, schedule->warmup);
		return -1;
	}
	return 0;
}

/* (1 + cos(pi x)) / 2 for x in 0..1, by cos^2 and sin^2 of the half angle: exactly 1 at 0, 0 at 1. */
static double half_cosine(double x)
{
	double sine = zd_trig_sine(HALF_PI * (x <= 0.5 ? x : 1.0 - x));

	return x <= 0.5 ? 1.0 - sine * sine : sine * sine;
}

double zd_schedule_rate(const struct zd_schedule *schedule, uint64_t t)
{
	if (t <= schedule->warmup)
		return t == schedule->warmup ? schedule->peak : schedule->peak * ((double)t / (double)schedule->warmup);
	if (t >= schedule->steps)
		return schedule->floor;
	double x = (double)(t - schedule->warmup) / (double)(schedule->steps - schedule->warmup);
	return schedule->floor + (schedule->peak - schedule->floor) * half_cosine(x);
}
