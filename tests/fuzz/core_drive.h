/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A real lane core between hostile peers and one worker that behaves: what bytes say happens to it, in the order they say it.
 *
 *   connections 0 .. CD_PEERS - 1   the peers: whatever the script says, as frames with right checksums, damaged frames or raw bytes
 *   connection CD_GOOD              a worker of a job of its own, "good", whose steps must go on and end in the very same bits
 *
 * Kernels run at once, as the shell does it; store operations and sent payloads complete at once or when the script says so.
 * What is asserted after every step, beside what the core itself asserts: every frame that it sends can be decoded by a client, operands of
 * kernels and windows for bytes lie in the memory that is theirs, lent payloads stay unchanged, time that has come is spent.
 */
#ifndef ZD_TESTS_CORE_DRIVE_H
#define ZD_TESTS_CORE_DRIVE_H

#include <stddef.h>
#include <stdint.h>

#include "proto/decide.h"
#include "proto/spec.h"
#include "server/core/core.h"

#define CD_PEERS 6u
#define CD_GOOD CD_PEERS
#define CD_CONNS (CD_PEERS + 1u)
#define CD_SPECS 4u
#define CD_WINDOWS_MAX 32u
#define CD_LENT 8u /* ZD_SENDS_MAX of the core */
#define CD_STORES 256u

struct cd_conn {
	uint32_t gen, link;
	uint8_t open, closing, role;
	uint8_t spec;	/* what it opened last, for its next messages */
	uint8_t rank, world;
	struct zd_ballot ballot;
	uint8_t *pending; /* bytes on their way to the core */
	size_t pending_at, pending_len, pending_cap;
	uint32_t lent_at, lent_count;
	struct {
		uint64_t token;
		const uint8_t *at;
		uint32_t len, crc;
	} lent[CD_LENT];
	uint32_t got[ZD_MSG_MAX];  /* frames by type */
	struct zd_record record;   /* of the last PREPARED */
	uint32_t data_crc;	   /* over the payloads of DATA so far */
};

struct cd {
	struct zd_core_config config;
	struct zd_core *core;
	struct zd_actions *actions;
	size_t arena_bytes;
	zd_time now;
	uint8_t hold_store, hold_sent, draining;
	uint32_t chunk; /* bytes delivered at once, 0: as many as fit */
	struct cd_conn conn[CD_CONNS];
	uint32_t store_at, store_count;
	struct {
		uint64_t token;
		uint8_t good; /* belongs to the good job */
	} store[CD_STORES];
	uint64_t frames; /* from peers */
	uint64_t good_rounds;
	struct zd_spec spec[CD_SPECS + 1]; /* the last one is the good worker's */
	struct zd_unit_spec units[CD_SPECS + 1][4];
};

/* A core with so many windows (at most CD_WINDOWS_MAX), and the good worker, who has made its first step. */
void cd_init(struct cd *d, uint32_t windows);
void cd_fini(struct cd *d);

/* Everything late completes, the peers stay connected: the good worker makes its step and reads it back. */
void cd_finish(struct cd *d);

void cd_connect(struct cd *d, uint32_t slot, enum zd_role role, uint64_t features);
void cd_disconnect(struct cd *d, uint32_t slot);
/* Bytes of a peer: delivered as far as the core reads, the rest waits. */
void cd_post(struct cd *d, uint32_t slot, const uint8_t *bytes, size_t len);
void cd_stored(struct cd *d, int status); /* the oldest operation; the good job's never fails */
void cd_sent(struct cd *d, uint32_t slot);
void cd_time(struct cd *d, uint64_t ms);
void cd_idle(struct cd *d, uint32_t times);
void cd_drain(struct cd *d);
int cd_view(const struct cd *d, uint32_t spec, struct zd_job_view *ret_view);

/* core_script.c: what the bytes say; returns at their end. */
void cd_script(struct cd *d, const uint8_t *bytes, size_t size);

#endif
