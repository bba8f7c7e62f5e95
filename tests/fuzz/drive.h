/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is done with bytes that may be anything: the very path that a daemon or client takes with a peer's bytes, with its invariants
 * asserted.  For the fuzz targets, the replay of their corpus and the mutator.  All return 1 if something was accepted, else 0.
 */
#ifndef ZD_TESTS_DRIVE_H
#define ZD_TESTS_DRIVE_H

#include <stddef.h>
#include <stdint.h>

#include "proto/frame.h"

/* Bytes of a connection: reader, decoder and what follows from a message.  `seed` decides where the reads are cut and which payloads
 * are skipped, and where. */
int zd_drive_frames(enum zd_side from, uint64_t seed, const uint8_t *bytes, size_t size);

/* Makes the checksums of the frames in `bytes` right, as far as the lengths allow: otherwise nearly nothing gets past them. */
void zd_drive_fix(uint8_t *bytes, size_t size);

/* One head.  An accepted message encodes to a head that decodes to an equal message. */
int zd_drive_head(uint16_t type, const uint8_t *head, size_t size);

/* The head of an OPEN: specification and layout; every element is owned exactly once. */
int zd_drive_spec(const uint8_t *head, size_t size);

#endif
