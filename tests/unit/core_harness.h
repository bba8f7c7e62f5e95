/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A core with nothing around it: frames in, frames out, kernels run by the scalar variant, a store and a network that complete at once or
 * when the test says so.  Every helper fails the test when something else happens than it says.
 */
#ifndef ZD_TEST_CORE_HARNESS_H
#define ZD_TEST_CORE_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "proto/assert.h"
#include "proto/decide.h"
#include "proto/wire.h"
#include "server/core/core.h"

#define HZ_CONNS 8u
#define HZ_FRAMES 512u
#define HZ_UNITS 8u

struct hz_frame {
	uint16_t type;
	uint64_t stream, token;
	uint8_t *bytes; /* header and head */
	uint32_t len;
	uint8_t *payload; /* copy of what was lent, taken when it was sent */
	uint32_t payload_len;
};

struct hz_conn {
	uint32_t gen;
	uint8_t open, closing;
	uint32_t head, count;
	struct hz_frame frame[HZ_FRAMES];
	uint32_t lent_head, lent_count;
	struct {
		uint64_t token;
		const uint8_t *at;
		uint32_t len, crc;
	} lent[64]; /* payloads that have not left */
};

struct hz {
	struct zd_core_config config;
	int mapped; /* the slab is */
	struct zd_core *core;
	struct zd_actions *actions;
	zd_time now;
	int hold_store;	 /* STORED only by hz_stored */
	int hold_sent;	 /* SENT only by hz_sent */
	int hold_closed; /* CLOSED only by hz_closed */
	uint32_t chunk;	 /* bytes are fed in pieces of at most this; 0: whole */
	uint32_t kernels[16]; /* calls, by enum zd_kernel_op */
	uint32_t most_kernels, most_sends; /* in one step */
	uint32_t released;
	uint32_t store_head, store_count;
	struct {
		uint64_t token;
		enum zd_store_kind kind;
	} store[64];
	struct hz_conn conn[HZ_CONNS];
	struct zd_spec spec;
	struct zd_unit_spec units[HZ_UNITS];
	struct zd_arena arena;
	struct hz_frame last; /* what hz_recv returned */
	char logged[65536];
};

/* windows: of the pool; slab: bytes beyond them. */
struct hz *hz_new(uint32_t windows, uint64_t slab);
/* A large slab that costs only what is touched of it; the core begins again over it. */
void hz_large(struct hz *h, uint64_t bytes);
void hz_free(struct hz *h);
/* Another life of the same daemon: a new core over the same, cleared memory.  Connections are gone. */
void hz_restart(struct hz *h);

/* A specification in h->spec: `count` units of these sizes; a size below 0 is a frozen unit. */
void hz_spec(struct hz *h, const char *name, enum zd_optimizer optimizer, enum zd_codec codec, uint32_t extent_elems, int count,
	     const int64_t *sizes);

void hz_step(struct hz *h, struct zd_event *ev);
void hz_connect(struct hz *h, uint32_t slot, enum zd_role role);
void hz_disconnect(struct hz *h, uint32_t slot); /* CLOSED */
void hz_bytes(struct hz *h, uint32_t slot, const void *bytes, size_t len); /* as far as windows are open; fails if some are left */
size_t hz_feed(struct hz *h, uint32_t slot, const void *bytes, size_t len); /* returns how many were taken */
size_t hz_encode(uint8_t *out, size_t size, uint16_t type, uint64_t stream, const ProtobufCMessage *msg, const void *payload, uint32_t len);
void hz_send(struct hz *h, uint32_t slot, uint16_t type, uint64_t stream, const ProtobufCMessage *msg, const void *payload, uint32_t len);
void hz_stored(struct hz *h, int status); /* the oldest one */
void hz_sent(struct hz *h, uint32_t slot);
void hz_idle(struct hz *h); /* until the core wants no more */
void hz_time(struct hz *h, uint64_t ms); /* later, with a TICK at each deadline on the way */
void hz_away(struct hz *h, uint64_t ms); /* later, and the lane has not run meanwhile */
void hz_tick(struct hz *h);		 /* one TICK, if the deadline has passed */

/* The next frame to `slot`; it must be of this type.  Valid until the next call. */
const ProtobufCMessage *hz_recv(struct hz *h, uint32_t slot, uint16_t type);
void hz_nothing(struct hz *h, uint32_t slot); /* no frame is there */
void hz_drain(struct hz *h, uint32_t slot);   /* forgets what is there */
/* ERROR or ABORTED of this code, with this in its text.  close: the connection must be closing. */
void hz_error(struct hz *h, uint32_t slot, int code, const char *part, int close);
void hz_aborted(struct hz *h, uint32_t slot, int code, uint64_t epoch, uint32_t attempt, const char *part);

/* ---- conversation, with job h->spec */
void hz_open(struct hz *h, uint32_t slot, int create);
void hz_send_open(struct hz *h, uint32_t slot, int create, uint32_t lane, uint32_t lanes);
struct hz_who {
	uint64_t epoch;
	uint32_t attempt;
	uint64_t launch, process;
	uint32_t rank, world, link;
};
void hz_send_join(struct hz *h, uint32_t slot, struct hz_who who);
const Zd__Pb__Joined *hz_join(struct hz *h, uint32_t slot, struct hz_who who);
void hz_send_load(struct hz *h, uint32_t slot, uint32_t unit, uint64_t first, uint32_t count, uint32_t codec, const void *values);
/* Values of every unit from `seed`, then SEAL. */
void hz_load_all(struct hz *h, uint32_t slot, uint32_t seed);
void hz_seal(struct hz *h, uint32_t slot);
struct hz_push {
	uint64_t epoch;
	uint32_t attempt;
	uint64_t round;
	uint32_t rank, unit, micro, micros;
	uint64_t first;
	uint32_t count;
};
size_t hz_encode_push(struct hz *h, uint8_t *out, size_t size, struct hz_push p, const void *values);
void hz_send_push(struct hz *h, uint32_t slot, struct hz_push p, const void *values);
/* The whole unit, extent after extent; values from hz_gradient.  Expects PUSHED at the end. */
void hz_push_unit(struct hz *h, uint32_t slot, struct hz_who who, uint64_t round, uint32_t unit, uint32_t micro, uint32_t micros);
void hz_send_commit(struct hz *h, uint32_t slot, struct hz_who who, uint64_t round, uint32_t micros, const struct zd_hyper *hyper);
struct zd_record hz_prepared(struct hz *h, uint32_t slot);
struct zd_decision hz_decide(const struct zd_record *record, uint64_t step);
void hz_send_apply(struct hz *h, uint32_t slot, struct hz_who who, const struct zd_decision *d);
void hz_applied(struct hz *h, uint32_t slot, uint64_t round);
void hz_send_discard(struct hz *h, uint32_t slot, struct hz_who who, uint64_t round, uint64_t epoch, uint32_t attempt);
void hz_send_fetch(struct hz *h, uint32_t slot, uint64_t stream, uint32_t unit, uint64_t first, uint64_t count, uint32_t plane, uint32_t mode,
		   uint64_t version);
/* Fetches a whole unit and puts its bytes together. */
void hz_fetch(struct hz *h, uint32_t slot, uint32_t unit, uint32_t plane, uint64_t version, void *out);
struct zd_job_view hz_view(const struct hz *h);
/* A whole round of `world` ranks on slots 0..world-1: pushes, commits, applies at rank 0, and says so to all. */
struct zd_decision hz_round(struct hz *h, struct hz_who who, uint64_t round, uint32_t micros, const struct zd_hyper *hyper);

extern const struct zd_hyper hz_hyper;
/* Gradient of (round, rank, micro, unit), in the job's codec: reproducible, finite, of both signs. */
void hz_gradient(const struct hz *h, uint64_t round, uint32_t rank, uint32_t micro, uint32_t unit, void *out);
void hz_weights(const struct hz *h, uint32_t unit, uint32_t seed, float *out);

/* ---- what the lane must compute, by the scalar kernels alone, one unit at a time */
struct hz_model {
	uint64_t n;
	uint16_t *hi, *lo;
	float *m, *v, *acc;
};
void hz_model_init(struct hz *h, struct hz_model *m, uint32_t unit, uint32_t seed);
void hz_model_fini(struct hz_model *m);
void hz_model_round(struct hz *h, struct hz_model *m, uint32_t unit, uint64_t round, uint32_t world, uint32_t micros);
void hz_model_step(struct hz *h, struct hz_model *m, const struct zd_hyper *hyper, const struct zd_decision *d);

#endif
