/* SPDX-License-Identifier: Apache-2.0 */
/* One session whose lanes are played by the test: it says what the lanes send and looks at what the session sent. */
#ifndef ZD_TEST_CLIENT_SCRIPT_H
#define ZD_TEST_CLIENT_SCRIPT_H

#include "client/session.h"
#include "proto/wire.h"

#define CS_LINKS 4
#define CS_FRAMES 256
#define CS_ENDS 64

struct cs_frame {
	uint16_t type;
	uint64_t stream;
	const uint8_t *payload;
	uint32_t payload_len;
	uint64_t token;
	uint8_t head[512];
	uint32_t head_len;
};

struct cs_end {
	uint64_t request;
	int status;
	char text[512];
	const uint16_t *weights;
};

struct cs {
	struct zd_session *session; /* NULL: no memory for one */
	struct zd_session_actions *actions;
	zd_time now;
	uint32_t gen[CS_LINKS];	  /* of the connection, 0: none was asked for */
	uint8_t closed[CS_LINKS]; /* CLOSE was seen */
	struct cs_frame frame[CS_LINKS][CS_FRAMES];
	uint32_t got[CS_LINKS], seen[CS_LINKS]; /* frames, and how many of them the test has looked at */
	struct cs_end end[CS_ENDS];
	uint32_t ends;
	uint64_t requests;
	uint32_t allocations, fail_at;
	struct zd_arena arena;
	uint8_t arena_memory[65536];
};

struct cs_options {
	const struct zd_spec *spec;
	uint32_t daemons, rank, world, prefetch;
	uint64_t epoch, gather_bytes_max;
	uint32_t fail_at; /* so many allocations succeed, the next one fails; 0: none does */
};

void cs_init(struct cs *c, const struct cs_options *o);
void cs_fini(struct cs *c);

void cs_step(struct cs *c, struct zd_session_event *ev);
uint64_t cs_ask(struct cs *c, struct zd_session_event *ev); /* the number of the request */
const struct cs_end *cs_ended(const struct cs *c, uint64_t request); /* NULL: not yet */
void cs_up(struct cs *c, uint32_t slot, uint32_t lane_count);
void cs_down(struct cs *c, uint32_t slot);
void cs_tick(struct cs *c, zd_time later);
/* A frame from a lane, delivered in pieces of 7 bytes (payloads at once). */
void cs_say(struct cs *c, uint32_t slot, uint16_t type, uint64_t stream, const ProtobufCMessage *msg, const void *payload, uint32_t len);
/* All payloads of a slot have left. */
void cs_sent(struct cs *c, uint32_t slot);

/* The next frame that the session sent on the slot; fails the test if it is another type or there is none.  Decoded in *ret_msg if not NULL, until the
 * next call. */
const struct cs_frame *cs_expect(struct cs *c, uint32_t slot, uint16_t type, const ProtobufCMessage **ret_msg);
void cs_expect_nothing(struct cs *c, uint32_t slot);

/* Messages of lanes. */
struct cs_joined {
	struct zd_ballot ballot;
	uint64_t decided;
	uint64_t record_round; /* 0: none prepared */
	struct zd_ballot record_ballot, decision_ballot; /* the decision's: zero means (1, 0) */
	uint32_t credit;
	uint8_t unsealed;
	const uint64_t *counted; /* per unit, or NULL */
};
struct zd_record cs_record(uint64_t round, struct zd_ballot ballot);
struct zd_decision cs_decision(uint64_t round, struct zd_ballot ballot);
void cs_opened(struct cs *c, uint32_t slot, uint64_t life);
void cs_joined(struct cs *c, uint32_t slot, const struct cs_joined *j);
void cs_pushed(struct cs *c, uint32_t slot, struct zd_ballot ballot, uint64_t round, uint32_t unit, uint64_t counted, uint64_t freed);
void cs_pong(struct cs *c, uint32_t slot, uint64_t token, int sealed);
void cs_pong_ranks(struct cs *c, uint32_t slot, uint64_t absent, uint64_t behind); /* of a sealed job; sets of ranks, as bits */
void cs_prepared(struct cs *c, uint32_t slot, struct zd_ballot ballot, const struct zd_record *record);
void cs_applied(struct cs *c, uint32_t slot, struct zd_ballot ballot, const struct zd_decision *d);
void cs_discarded(struct cs *c, uint32_t slot, struct zd_ballot ballot, uint64_t round, struct zd_ballot record);
void cs_aborted(struct cs *c, uint32_t slot, struct zd_ballot promise, struct zd_ballot ended, int code, const char *text);
void cs_error(struct cs *c, uint32_t slot, uint64_t stream, int code, const char *text);

#endif
