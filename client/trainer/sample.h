/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text from a trained model, byte by byte.
 *
 * Each byte costs one forward pass over a window of `context` bytes: the caller is asked for each unit once per byte and
 * decides whether it keeps them or fetches them anew. One thread; blocks as long as it takes.
 */
#ifndef ZD_TRAINER_SAMPLE_H
#define ZD_TRAINER_SAMPLE_H

#include "client/trainer/config.h"

struct zd_lm_sample {
	const uint8_t *prompt; /* at least one byte; only the last `context` of them count */
	size_t prompt_bytes;
	double temperature; /* above 0: probabilities^(1/temperature); 0: always the likeliest byte (the lowest of equals) */
	uint64_t seed;
	/* The bf16 weights of a unit, valid until the next call; NULL ends the sampling with an error. */
	const uint16_t *(*weights)(void *user, size_t unit);
	void *user;
};

/* Writes count bytes that follow the prompt to out. 0, or -1 with a text: memory, weights(), or a model that yields no number. */
int zd_lm_sample(const struct zd_lm_config *config, const struct zd_lm_sample *sample, uint8_t *out, size_t count, char *text,
		 size_t text_size) ZD_MUST_USE;

#endif
