/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the session's modules share: one session, its links, its requests.  Private to client/.
 *
 * A request lives in one of three lists: open; ending (its status is known, but a link still holds its memory); done (waiting for room in the
 * actions).  Memory of a request is lent to at most ZD_LENDS_MAX sends per link.
 *
 *     round of one lane, as this worker sees it
 *
 *     NONE --open--> JOIN --JOINED--> JOINED --(all)--> FINISH (APPLY or DISCARD of what an older ballot left) --> JOINED
 *                      |                 \--(all, nothing left)--> PUSH --all counted, step--> COMMIT --PREPARED--> READY
 *                      |  (in a round: by what JOINED shows)                                                         |
 *                      \--> PUSH, READY or DONE                               DONE <--APPLIED-- APPLY <--(all READY)--/
 */
#ifndef ZD_CLIENT_STATE_H
#define ZD_CLIENT_STATE_H

#include "client/session.h"
#include "proto/layout.h"

#define ZD_NO_LANE UINT32_MAX
#define ZD_TEXT_BYTES 512u	   /* of a request's text; a lane's words are cut to it */
#define ZD_REQS_MAX 8192u	   /* open requests: far above what one thread keeps in flight, so that a runaway loop is told */
#define ZD_LENDS_MAX 64u	   /* payload frames handed out per link, for links of tiny frames */
#define ZD_LENT_HIGH (2u << 20)	   /* payload bytes handed out per link at a time; what is behind them waits for control frames */
#define ZD_LENT_LOW (1u << 20)	   /* refilled when no more than this is out, so that writes have a MiB */
#define ZD_PLAN_MAX 4096u
#define ZD_SPARES_MAX 8u	   /* gather buffers kept for the next unit of the same size */
#define ZD_RESTARTS_MAX 16u	   /* of a reader's fetch that met two versions */
#define ZD_BACKOFF_MIN ZD_MS(20)   /* of reconnects: doubled up to the maximum, half of it jitter */
#define ZD_BACKOFF_MAX ZD_MS(2000)
#define ZD_GREET_MIN ZD_MS(1000)   /* to connect, and to get WELCOME and OPENED: half a lease, so that a second try comes before it runs out, */
#define ZD_GREET_MAX ZD_MS(5000)   /* but above any round trip and below people's patience */
#define ZD_PONG_MIN ZD_MS(1000)    /* for PONG, where a quarter of the lease is less: any round trip */

enum zd_phase {
	ZD_PH_NEW,     /* before REQ_CONNECT */
	ZD_PH_MEET,    /* learning how many lanes there are */
	ZD_PH_JOIN,    /* not every lane has answered JOIN of the ballot */
	ZD_PH_RESOLVE, /* finishing or discarding what an older ballot left */
	ZD_PH_ROUND,
	ZD_PH_READ,    /* a reader; no rounds */
	ZD_PH_FAILED
};

enum zd_clink_state {
	ZD_LINK_IDLE,
	ZD_LINK_WAIT,	    /* connects at retry_at */
	ZD_LINK_CONNECTING,
	ZD_LINK_HELLO,
	ZD_LINK_GREETED,    /* waits until the number of lanes is known */
	ZD_LINK_OPENING,
	ZD_LINK_OPEN,
	ZD_LINK_CLOSING	    /* CLOSE is or will be out; DOWN ends it */
};

enum zd_lane_state {
	ZD_LS_NONE,
	ZD_LS_JOIN,
	ZD_LS_JOINED,
	ZD_LS_PUSH,
	ZD_LS_COMMIT,
	ZD_LS_READY,
	ZD_LS_APPLY,
	ZD_LS_DONE,
	ZD_LS_FINISH
};

/* Control frames that a link owes, in the order they are sent. */
enum zd_todo {
	ZD_TODO_CLOSE = 1 << 0,
	ZD_TODO_HELLO = 1 << 1,
	ZD_TODO_OPEN = 1 << 2,
	ZD_TODO_JOIN = 1 << 3,
	ZD_TODO_DISCARD = 1 << 4,
	ZD_TODO_APPLY = 1 << 5,
	ZD_TODO_SEAL = 1 << 6,
	ZD_TODO_COMMIT = 1 << 7,
	ZD_TODO_PING = 1 << 8,
};
#define ZD_TODO_ROUND (ZD_TODO_DISCARD | ZD_TODO_APPLY | ZD_TODO_COMMIT)

/* The first byte of a stream says what it belongs to. */
enum zd_stream_kind {
	ZD_STREAM_OPEN = 1,
	ZD_STREAM_JOIN,
	ZD_STREAM_SEAL,
	ZD_STREAM_COMMIT,
	ZD_STREAM_APPLY,
	ZD_STREAM_DISCARD,
	ZD_STREAM_LOAD,	 /* + counter * ZD_UNITS_MAX + unit */
	ZD_STREAM_PUSH,	 /* + unit */
	ZD_STREAM_FETCH, /* + counter * 64 + slot */
};
#define ZD_STREAM(kind, value) ((uint64_t)(kind) << 56 | (uint64_t)(value))
#define ZD_STREAM_KIND(stream) ((uint32_t)((stream) >> 56))
#define ZD_STREAM_VALUE(stream) ((stream) & 0xffffffffffffffu)

struct zd_req {
	struct zd_req *prev, *next; /* open, ending or done */
	uint64_t id;
	zd_time deadline, started;
	enum zd_session_event_type kind;
	uint8_t ended;
	uint8_t tells;
	uint8_t moving; /* in the list of transfers */
	int status;
	uint32_t unit, micro, codec;
	uint32_t lanes_left; /* PUSH, LOAD: lanes that have not acknowledged all of it */
	uint32_t lent;	     /* sends that hold its memory */
	uint64_t stream;     /* LOAD */
	uint64_t number;     /* PUSH: they are counted */
	const uint8_t *data;
	const uint16_t *weights;
	struct zd_fetch *fetch;
	struct zd_req *chain;	       /* PUSH: the next of the same unit; GATHER: the next waiting for the same unit or for room */
	struct zd_req *before, *after; /* transfers, oldest first */
	char text[ZD_TEXT_BYTES];
};

struct zd_reqs {
	struct zd_req *first, *last;
	uint32_t count;
};

/* A FETCH of one unit from all lanes that have a piece. */
struct zd_part {
	struct zd_fetch *fetch;
	uint64_t next, end; /* unit coordinates: arrived up to, ends at */
	uint64_t stream;
	uint8_t sent, done;
};

struct zd_fetch {
	struct zd_fetch *prev, *next;
	struct zd_req *req; /* of the caller; NULL: of a gather buffer, or canceled */
	uint8_t *dst;
	uint32_t unit;
	uint32_t elem; /* bytes */
	uint32_t mode;
	enum zd_plane plane;
	uint64_t version, low, high; /* asked; met */
	uint32_t lanes_left, restarts;
	uint8_t met, canceled, parked; /* parked: asks again when the step has ended */
	int status;
	char text[ZD_TEXT_BYTES];
	struct zd_part part[]; /* one per lane */
};

struct zd_lane_info {
	uint64_t decided, step;
	uint8_t sealed, has_record, has_decision;
	struct zd_record record;
	struct zd_decision decision;
};

struct zd_lend {
	struct zd_req *req;
	uint32_t bytes;
};

struct zd_link {
	uint32_t slot, gen;
	uint32_t daemon, lane; /* lane of the daemon */
	uint32_t index;	       /* lane of the job */
	enum zd_clink_state state;
	enum zd_lane_state ls;
	uint32_t todo;
	uint32_t tries;	  /* since it was last open */
	uint32_t link_no; /* JOIN.link */
	uint32_t features;
	zd_time retry_at, since; /* since: of the state */
	zd_time heard, sent, pinged;
	zd_time asked_at; /* the first PING since it was heard, if there is one */
	zd_time acked;	  /* the last acknowledgement that is known of */
	char reason[160]; /* why it was lost */
	uint8_t own;	  /* for want of something here */
	uint8_t stopped;  /* trying again is pointless */

	uint8_t known; /* uuid is set */
	uint64_t uuid_hi, uuid_lo;
	struct zd_lane_info info;
	struct zd_decision apply;
	uint8_t seal_sent;
	uint64_t absent, behind; /* ranks as bits: of the last PONG, see waits.c */
	uint64_t asked; /* pushes up to this number: whether the lane is sealed was asked on this connection */

	struct zd_lend lends[ZD_LENDS_MAX];
	uint32_t lend_head, lend_count;
	uint64_t lend_token; /* of the next lend */
	uint32_t lent_bytes;
	uint8_t refill;

	uint32_t credit; /* windows free at JOINED; windows_freed counts from there, those that an older connection had filled included */
	uint64_t windows_sent, windows_freed;
	uint64_t *counted, *pushed;	/* per unit: extents acknowledged and sent, over all micro-batches of the round */
	uint32_t *loaded, *load_sent;	/* per unit: grains of the open LOAD */
	struct zd_req *cursor;		/* the first transfer that may have something to send here */
	uint32_t open_pushes;		/* not yet acknowledged here */

	struct zd_part *slots[ZD_FETCHES_MAX];
	uint32_t slots_used, fetch_owed; /* parts to be asked for */
	struct zd_part *rx;		 /* of the DATA whose payload is arriving */
	uint32_t rx_count;
	uint8_t rx_last;

	struct zd_reader reader;
	uint8_t head_mem[ZD_HEAD_JOINED_MAX];
};

enum zd_cgather_state { ZD_G_EMPTY, ZD_G_FLIGHT, ZD_G_HERE };

struct zd_gunit {
	uint16_t *buf;
	uint64_t bytes, version;
	uint32_t refs;
	enum zd_cgather_state state;
	uint8_t fresh;		 /* prefetched and not used yet */
	struct zd_req *waiters;	 /* gathers that wait for it, by chain */
};

struct zd_unit {
	struct zd_req *pushes; /* open ones, in micro-batch order, by chain */
	uint32_t next_micro;
	struct zd_req *load;
};

struct zd_session {
	struct zd_session_config config; /* pointers in it are the session's own or NULL */
	struct zd_spec spec;
	uint32_t unit_count;
	zd_time now;
	struct zd_session_actions *out;
	uint8_t hungry; /* the last step ran out of room */
	uint64_t random;

	char (*daemons)[256];
	uint32_t *daemon_lanes; /* 0: not known */
	struct zd_link **links; /* by slot: lane 0 of every daemon first */
	struct zd_link **lanes; /* by lane of the job */
	uint32_t link_count, lane_count;
	struct zd_piece *pieces; /* [unit * lane_count + lane] */
	Zd__Pb__Unit *pb_units;	 /* scratch of OPEN */
	Zd__Pb__Unit **pb_unit_ptrs;
	uint32_t *counts; /* scratch of COMMIT */
	struct zd_arena arena;
	uint8_t *sink;

	enum zd_phase phase;
	uint8_t connected;
	struct zd_ballot ballot;
	uint64_t round; /* being pushed */
	uint64_t decided, step;
	uint8_t sealed;
	struct zerod_step_result result;
	int failed;
	char failure[ZD_TEXT_BYTES];

	/* the step */
	uint32_t micro_batches; /* 0: nothing pushed yet */
	uint8_t committing;	/* COMMIT is allowed: hyper and micro_batches are fixed */
	uint8_t passed;		/* and some lane has applied it: what it served before is gone there, what comes after is not known here */
	uint8_t step_lost;	/* contributions of the step that commits are lost; its outcome shows when the new ballot is resolved */
	uint8_t unclaimed;	/* a round was decided whose STEP had timed out */
	uint8_t redo_owed;	/* pushes end with REDO until the trainer was told */
	uint64_t commit_round;
	uint32_t commit_micro; /* its micro-batches */
	struct zd_hyper hyper;
	struct zd_req *step_req, *flush_req, *seal_req, *connect_req;
	int push_status; /* the first that failed since it was last told */
	char push_text[ZD_TEXT_BYTES];

	struct zd_reqs open, ending, done;
	struct zd_req *xfer_first, *xfer_last;
	uint32_t open_pushes, open_loads;
	struct zd_unit *units;

	struct zd_fetch *fetch_first, *fetch_last;
	uint32_t parked;
	uint64_t fetch_counter, load_counter, push_counter;

	/* the limiter */
	uint64_t limit, used, used_max, spare_bytes;
	struct zd_gunit *gunits;
	struct zd_req *room_first; /* gathers that wait for room, by chain */
	struct {
		void *buf;
		uint64_t bytes;
	} spares[ZD_SPARES_MAX];
	uint32_t spare_count;
	uint32_t *plan, *learnt;
	uint32_t plan_count, plan_at, learnt_count;
	uint8_t plan_told;

	struct zerod_stats stats;
};

/* ---------------------------------------------------------------- session.c */

void *zd_csession_alloc(struct zd_session *s, size_t size); /* zeroed */
void zd_csession_release(struct zd_session *s, void *memory);
/* Ends a request; it is gone for the caller of this function unless memory is lent.  format may be "". */
void zd_csession_end(struct zd_session *s, struct zd_req *r, int status, const char *format, ...) __attribute__((format(printf, 4, 5)));
void zd_csession_unlend(struct zd_session *s, struct zd_req *r);
/* Nothing goes on: every request ends with status, every link closes.  The first failure stays. */
void zd_csession_fail(struct zd_session *s, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same with ZEROD_ERR_LOST, and the way out behind the text. */
void zd_csession_lost(struct zd_session *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
uint64_t zd_csession_random(struct zd_session *s);

/* ---------------------------------------------------------------- link.c */

int zd_clink_add(struct zd_session *s, uint32_t daemon, uint32_t lane); /* 0, or -1 without memory */
void zd_clink_start(struct zd_session *s);
void zd_clink_up(struct zd_session *s, const struct zd_session_event *ev);
void zd_clink_bytes(struct zd_session *s, const struct zd_session_event *ev);
void zd_clink_sent(struct zd_session *s, const struct zd_session_event *ev);
void zd_clink_down(struct zd_session *s, const struct zd_session_event *ev);
void zd_clink_acked(struct zd_session *s, const struct zd_session_event *ev);
int zd_clink_doubtful(const struct zd_session *s, const struct zd_link *l, zd_time now);
void zd_clink_doubt(struct zd_session *s, struct zd_link *l);
void zd_clink_tick(struct zd_session *s, struct zd_link *l);
zd_time zd_clink_deadline(const struct zd_session *s, const struct zd_link *l);
struct zd_link *zd_clink_find(struct zd_session *s, uint32_t slot, uint32_t gen);
/* The peer or the transport is at fault: closes, and connects again later. */
void zd_clink_lose(struct zd_session *s, struct zd_link *l, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Says what is wrong with a link or what it waits for: "127.0.0.1:7000 does not answer (connection refused)". */
void zd_clink_explain(const struct zd_session *s, const struct zd_link *l, char *out, size_t size);
/* "lane 3 (127.0.0.1:7000, its lane 1)" into one of four rotating buffers of the link's session-independent scratch. */
void zd_clink_name(const struct zd_session *s, const struct zd_link *l, char *out, size_t size);

/* ---------------------------------------------------------------- greet.c: HELLO, WELCOME, OPEN, OPENED; the number of lanes */

void zd_cgreet_welcomed(struct zd_session *s, struct zd_link *l, uint32_t lane_count, uint64_t features);
void zd_cgreet_welcome(struct zd_session *s, struct zd_link *l, const Zd__Pb__Welcome *m);
void zd_cgreet_opened(struct zd_session *s, struct zd_link *l, const Zd__Pb__Opened *m);
int zd_cgreet_known(const struct zd_session *s, const struct zd_link *l); /* this session has given the lane something, or seen it there */
void zd_cgreet_lost(struct zd_session *s, const struct zd_link *l, const char *why);

/* ---------------------------------------------------------------- emit.c: what links owe, within the room of the actions */

/* 0, or -1 when there is no room: then the session is hungry. */
int zd_cemit_frame(struct zd_session *s, struct zd_link *l, uint16_t type, uint64_t stream, const ProtobufCMessage *msg,
		  const uint8_t *payload, uint32_t payload_len, struct zd_req *lender);
int zd_cemit_connect(struct zd_session *s, struct zd_link *l);
int zd_cemit_done(struct zd_session *s, const struct zd_req *r);
void zd_cemit_link(struct zd_session *s, struct zd_link *l);

/* ---------------------------------------------------------------- agree.c: ballots, rounds */

void zd_cagree_open(struct zd_session *s, struct zd_link *l);
void zd_cagree_down(struct zd_session *s, struct zd_link *l);
void zd_cagree_joined(struct zd_session *s, struct zd_link *l, const Zd__Pb__Joined *m);
void zd_cagree_prepared(struct zd_session *s, struct zd_link *l, const Zd__Pb__Prepared *m);
void zd_cagree_applied(struct zd_session *s, struct zd_link *l, const Zd__Pb__Applied *m);
void zd_cagree_discarded(struct zd_session *s, struct zd_link *l, const Zd__Pb__Discarded *m);
void zd_cagree_aborted(struct zd_session *s, struct zd_link *l, const Zd__Pb__Aborted *m);
void zd_cagree_seal_answered(struct zd_session *s, struct zd_link *l); /* one that zd_cpush_finish_seal asked for */
void zd_cagree_step(struct zd_session *s, struct zd_req *r, const struct zd_session_event *ev);
/* A lane has counted everything that is open: COMMIT if the step has begun. */
void zd_cagree_counted(struct zd_session *s, struct zd_link *l);
/* Contributions are lost: a new attempt, which the trainer is told about. */
void zd_cagree_redo(struct zd_session *s, uint32_t attempt);
void zd_cagree_explain(const struct zd_session *s, char *out, size_t size); /* what the step or the connect waits for */
void zd_cagree_pb(struct zd_ballot b, Zd__Pb__Ballot *out);

/* ---------------------------------------------------------------- waits.c: which ranks a lane waits for */

void zd_cwaits_pong(struct zd_link *l, const Zd__Pb__Pong *m);
/* Adds the ranks that this lane misses to two sets. */
void zd_cwaits_add(const struct zd_session *s, const struct zd_link *l, uint64_t *absent, uint64_t *behind);
/* Ranks that are absent, and those of the set `of` that are behind; "" if none is known. */
void zd_cwaits_explain(const struct zd_link *l, uint64_t of, char *out, size_t size);

/* ---------------------------------------------------------------- push.c: PUSH, LOAD, SEAL */

void zd_cpush_request(struct zd_session *s, struct zd_req *r, const struct zd_session_event *ev);
void zd_cpush_load(struct zd_session *s, struct zd_req *r, const struct zd_session_event *ev);
void zd_cpush_seal(struct zd_session *s, struct zd_req *r);
/* A launch that died while it sealed had loaded every lane: those that are not sealed are asked to.  1: some are, and are in ZD_LS_FINISH. */
int zd_cpush_finish_seal(struct zd_session *s);
void zd_cpush_flush(struct zd_session *s, struct zd_req *r);
void zd_cpush_pushed(struct zd_session *s, struct zd_link *l, const Zd__Pb__Pushed *m);
void zd_cpush_loaded(struct zd_session *s, struct zd_link *l, const Zd__Pb__Loaded *m, uint64_t stream);
void zd_cpush_sealed(struct zd_session *s, struct zd_link *l);
void zd_cpush_pong(struct zd_session *s, struct zd_link *l, const Zd__Pb__Pong *m);
void zd_cpush_refused(struct zd_session *s, struct zd_link *l, uint64_t stream, int err, const char *words); /* LOAD, SEAL */
void zd_cpush_joined(struct zd_session *s, struct zd_link *l); /* credit is new, nothing is on the way */
void zd_cpush_resend(struct zd_session *s, struct zd_link *l); /* what is not counted goes out again */
void zd_cpush_rewind(struct zd_session *s, struct zd_link *l); /* the connection is gone */
/* The lane shows `counted` extents of the unit; 1: more than before, or as many; 0: fewer. */
int zd_cpush_count(struct zd_session *s, struct zd_link *l, uint32_t unit, uint64_t counted);
void zd_cpush_round(struct zd_session *s); /* a round begins: counts are zero */
void zd_cpush_abandon(struct zd_session *s); /* open pushes end with REDO, counts are zero */
void zd_cpush_forget(struct zd_session *s, struct zd_req *r); /* takes a request out of the tables, however it ends */
void zd_cpush_timeout(struct zd_session *s, struct zd_req *r);
void zd_cpush_emit(struct zd_session *s, struct zd_link *l);
void zd_cpush_settle(struct zd_session *s); /* after each event: SEAL or FLUSH may go on; is the job sealed, or who is to be asked? */

/* ---------------------------------------------------------------- fetch.c */

struct zd_fetch *zd_cfetch_new(struct zd_session *s, uint32_t unit, enum zd_plane plane, void *dst); /* NULL without memory */
void zd_cfetch_begin(struct zd_session *s, struct zd_fetch *f, uint32_t mode, uint64_t version);
void zd_cfetch_request(struct zd_session *s, struct zd_req *r, const struct zd_session_event *ev);
void zd_cfetch_emit(struct zd_session *s, struct zd_link *l);
/* Head of a DATA frame: 0 and the place for the payload (NULL without payload), or -1: the link was closed. */
int zd_cfetch_data(struct zd_session *s, struct zd_link *l, const Zd__Pb__Data *m, uint64_t stream, uint32_t payload_len, uint8_t **ret_place);
void zd_cfetch_frame(struct zd_session *s, struct zd_link *l);
void zd_cfetch_refused(struct zd_session *s, struct zd_link *l, uint64_t stream, int err, const char *words);
void zd_cfetch_rewind(struct zd_session *s, struct zd_link *l);
void zd_cfetch_cancel(struct zd_session *s, struct zd_fetch *f, int status, const char *text); /* the request ends when no frame can arrive any more */
void zd_cfetch_explain(const struct zd_session *s, const struct zd_fetch *f, char *out, size_t size);
void zd_cfetch_drop(struct zd_session *s, struct zd_fetch *f);
/* For the end of the step: until then there is no version of the unit to ask for. */
int zd_cfetch_waits(const struct zd_session *s, uint32_t unit);
void zd_cfetch_settle(struct zd_session *s);

/* ---------------------------------------------------------------- gather.c, limit.c */

void zd_cgather_request(struct zd_session *s, struct zd_req *r, uint32_t unit);
void zd_cgather_release(struct zd_session *s, uint32_t unit, int keep);
void zd_cgather_plan(struct zd_session *s, const uint32_t *units, uint32_t count);
void zd_cgather_fetched(struct zd_session *s, struct zd_fetch *f);
void zd_cgather_forget(struct zd_session *s, struct zd_req *r); /* a waiting gather ends */
void zd_cgather_version(struct zd_session *s); /* weights have a new version */
void zd_cgather_turn(struct zd_session *s);    /* a step ended: what it gathered is the plan of the next */
void zd_cgather_restart(struct zd_session *s); /* the step is computed again */
void zd_cgather_settle(struct zd_session *s);   /* room for those that wait, then prefetch */
void zd_cgather_explain(const struct zd_session *s, const struct zd_req *r, char *out, size_t size);

/* Makes room for a unit: 1 and gunits[unit].buf, 0 no room, -1 no memory.  Buffers that the plan uses in fewer than `distance` entries stay. */
int zd_climit_take(struct zd_session *s, uint32_t unit, uint32_t distance);
void zd_climit_give(struct zd_session *s, uint32_t unit);
void zd_climit_fini(struct zd_session *s);

#endif
