/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of a fault-free run: what every lane and every step costs, whatever the number of lanes. */
#ifndef ZD_SIM_COUNT_H
#define ZD_SIM_COUNT_H

#include <stdint.h>
#include <stdio.h>

struct sim_count {
	uint32_t lanes, workers;
	uint64_t frames;    /* of one step, over all lanes, both ways */
	double per_lane;    /* frames / lanes */
	uint64_t lane_max;  /* of the busiest lane */
	uint64_t push, pushed, commit, prepared, apply, applied, fetch, data, other;
	uint64_t expect;    /* what the formula gives for all lanes */
	uint64_t pushed_min, pushed_max;
};

/* Counts the messages of one step of the fixed model; 0, or -1 with a text. */
int sim_count(uint32_t lanes, uint32_t workers, struct sim_count *ret_count, char *text, size_t text_size);
int sim_count_table(FILE *out);

#endif
