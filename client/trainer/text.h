/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The training text: a file read as bytes, and which pieces of it a step reads.
 *
 * Sequences are windows of context + 1 bytes at places drawn from a counter: the place is a function of (seed, g), where g
 * numbers all sequences that training has read before,
 *
 *   g = ((step * micro_batches + micro_batch) * world + rank) * batch + index
 *
 * so a run goes on from any step with nothing but its number, no two ranks share a sequence except by chance, and a step of
 * W ranks and M micro-batches reads the same sequences in the same order as one of W' and M' with W * M = W' * M'.
 *
 * The file is read as it is needed, so its size does not matter; it must not change during a run. Only regular files: a
 * pipe cannot be read twice. A handle belongs to one thread at a time.
 */
#ifndef ZD_TRAINER_TEXT_H
#define ZD_TRAINER_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"

struct zd_text;

/* Whose sequences. All ranks of a step must agree on everything but rank and micro_batch. */
struct zd_text_place {
	uint64_t seed;
	uint64_t step;	      /* decided rounds before this one */
	uint32_t micro_batch; /* below micro_batches */
	uint32_t micro_batches;
	uint32_t rank; /* below world */
	uint32_t world;
	uint32_t batch; /* sequences of one rank in one micro-batch */
};

/* 0, or -1 with a text that says what was expected of the file, what was found and what to do. The caller closes *ret_text. */
int zd_text_open(const char *path, uint32_t context, struct zd_text **ret_text, char *text, size_t text_size) ZD_MUST_USE;
void zd_text_close(struct zd_text *handle); /* NULL is fine */

/* Bytes of the file when it was opened. */
uint64_t zd_text_bytes(const struct zd_text *handle);

/* Where sequence `index` of the place begins; at most bytes - (context + 1). */
uint64_t zd_text_offset(const struct zd_text *handle, const struct zd_text_place *place, uint32_t index);

/* Fills place->batch rows of context + 1 bytes each. 0, or -1 with a text: the file has become shorter or cannot be read. */
int zd_text_batch(const struct zd_text *handle, const struct zd_text_place *place, uint8_t *tokens, char *text,
		  size_t text_size) ZD_MUST_USE;

#endif
