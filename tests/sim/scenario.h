/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs for worlds that are led through one story: what is held back, what fails when, and what must be in the trace. */
#ifndef ZD_SIM_SCENARIO_H
#define ZD_SIM_SCENARIO_H

#include "tests/sim/world.h"

#define ANY UINT32_MAX

/* Two lanes on two hosts, each with a whole unit; bf16, AdamW; nothing happens by chance but the order of what is at the same time. */
struct sim_world *story_new(uint64_t seed);
struct sim_world *story_new_with(const struct sim_config *config);
void story_config(struct sim_config *config, uint64_t seed);
void story_end(struct sim_world *w); /* fails the test if an invariant was violated */

/* Frames of this type, to or from this lane, of this worker, stay on the wire until story_release. */
void story_hold(struct sim_world *w, int up, uint16_t type, uint32_t lane, uint64_t epoch, uint32_t rank);
void story_release(struct sim_world *w);

/* Runs until the trace has this line (a part of it is enough), not counting what is before `from`; returns the place behind it. */
size_t story_until(struct sim_world *w, size_t from, const char *line);
void story_run(struct sim_world *w, zd_time time);
void story_finish(struct sim_world *w, uint64_t rounds); /* until all lanes have decided so many */
/* These lines in this order, others between them. */
void story_expect(struct sim_world *w, const char *const *lines, size_t count);
void story_never(struct sim_world *w, const char *line);
void story_kill(struct sim_world *w, uint64_t epoch);

#endif
