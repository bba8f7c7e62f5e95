/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a lane's core is made of, for the modules of the core only.
 *
 *     zd_core
 *      |- conn[max_conns]      one frame reader each, open fetches, sends that are lent out
 *      |- window[windows]      receive windows: payloads on their way into a sum, into planes, or out as fp32
 *      |- job[max_jobs]        specification, ballot, round, workers; points into its region of the slab:
 *      |                         units, extents, grains, counters, then the planes
 *      '- kernels              calls that were emitted and not yet reported, in order
 *
 * Everything here lies in the arena given to zd_core_init or in the slab.
 */
#ifndef ZD_CORE_STATE_H
#define ZD_CORE_STATE_H

#include "proto/layout.h"
#include "proto/wire.h"
#include "server/core/core.h"
#include "server/core/slab.h"

#define ZD_SENDS_MAX 8u	      /* payload frames queued per connection: 2 MiB keep a socket busy while the next are computed */
#define ZD_SENDS_BATCH 4u     /* frames that leave together, if there are as many: sends below 1 MiB are slower */
#define ZD_BIG_HEADS 4u	      /* OPEN heads beyond a page that may be on their way at once */
#define ZD_BIG_HEAD_TIME ZD_SEC(10)

/* How long a connection without a job may be silent: far beyond any client, which opens at once, and any zeroctl, which asks at once. */
#define ZD_GUEST_TIME ZD_SEC(10)
#define ZD_MERGE_WINDOWS 2u   /* windows that no job may reserve: LOAD and fp32 FETCH must always go on */
#define ZD_SINK_BYTES 65536u  /* where payloads that nobody wants go */
#define ZD_PUMP_KERNELS 16u   /* kernel calls after which one step starts no more fetches: about two milliseconds */
#define ZD_NONE16 0xffffu
#define ZD_NONE UINT32_MAX

/* Room that a step keeps for the frame, or the job of a TICK, that it is working on: an ERROR and a CLOSE to each of 1,024 connections (DROP), the
 * largest answer or an ABORTED to each of 64 workers, and a few small ones. */
#define ZD_ACTIONS_SPARE (ZD_ACTIONS_MAX - 128u)
#define ZD_ACTIONS_LOG_MAX 192u /* beyond it, lines of the log are left out */

enum zd_hold { /* why a connection is not read on */
	ZD_HOLD_NO,
	ZD_HOLD_HEAD,	/* for memory for a long head */
	ZD_HOLD_PLACE,	/* for the place of the payload: Adam of the last round, a lend, a window */
	ZD_HOLD_KERNEL,	/* for the kernel that reads the payload first, and with it the checksum */
	ZD_HOLD_STORE,	/* for a store operation, then `wait` is answered */
	ZD_HOLD_BUDGET, /* this step has emitted enough */
};

enum zd_wait { ZD_WAIT_NO, ZD_WAIT_JOIN, ZD_WAIT_SEAL, ZD_WAIT_DISCARD, ZD_WAIT_DROP };

struct zd_join {
	struct zd_ballot ballot;
	uint64_t launch, process, stream;
	uint32_t rank, world, link;
};

struct zd_fetch {
	uint64_t stream, version;
	uint64_t next, end; /* unit coordinates: what is not yet issued */
	uint32_t unit;
	uint8_t plane, mode;
};

enum zd_send_state { ZD_SEND_FREE, ZD_SEND_WAIT, ZD_SEND_OUT };

/* One DATA frame: WAIT until its bytes are there, OUT until they have left. */
struct zd_send {
	uint64_t stream, version, first, token;
	uint32_t unit, count;
	uint32_t extent; /* lent extent */
	uint32_t pending;/* kernel calls that produce the window's bytes */
	uint16_t window; /* of fp32 made for this frame, or ZD_NONE16 */
	uint8_t state, plane, last, area;
	uint8_t lent;	 /* its extent is, by this frame */
};

/* The payload that is being received. */
enum zd_take { ZD_TAKE_NO, ZD_TAKE_SKIP, ZD_TAKE_SLOT, ZD_TAKE_WINDOW, ZD_TAKE_LOAD };

struct zd_taking {
	uint8_t kind;	   /* enum zd_take */
	uint8_t answer;	   /* SKIP: PUSHED is due at its end */
	uint8_t late;	   /* SKIP: APPLIED is due at its end, the round was decided meanwhile */
	uint8_t codec;
	uint16_t window;
	uint32_t unit, extent, k; /* PUSH: which contribution */
	uint64_t first, stream;	  /* LOAD */
	uint32_t count;
};

struct zd_conn {
	struct zd_reader reader;
	uint32_t slot, gen;
	uint8_t used, closing;
	uint8_t role, hold, wait;
	uint8_t joined;	   /* to the promise of its job, as `rank` */
	uint8_t has_rank;  /* rank, process and link are known */
	uint8_t at_header; /* the reader is between frames */
	uint8_t big_head;  /* 1 + index of the buffer it has */
	uint8_t queued;	   /* in core->queue */
	uint8_t blocked;   /* a fetch waits for lent memory or a window */
	uint8_t check_payload;
	uint32_t rank, link;
	uint64_t process;
	struct zd_ballot ballot; /* that it joined last */
	zd_time big_since;
	zd_time heard; /* the last head, or the beginning */
	zd_time told;  /* the last PONG that nobody asked for */
	uint32_t job;	   /* slot, or ZD_NONE */
	uint32_t job_next, job_prev;
	struct zd_taking take;
	struct zd_join join;	 /* WAIT_JOIN */
	uint64_t wait_stream;	 /* WAIT_SEAL, WAIT_DISCARD, WAIT_DROP */
	uint64_t wait_round;	 /* WAIT_DISCARD */
	struct zd_ballot wait_record;
	uint32_t fetch_count;
	uint32_t send_head, send_count; /* ring */
	struct zd_fetch fetch[ZD_FETCHES_MAX];
	struct zd_send send[ZD_SENDS_MAX];
	char peer[64];
};

enum zd_window_state { ZD_WINDOW_FREE, ZD_WINDOW_TAKING, ZD_WINDOW_STAGED, ZD_WINDOW_KERNEL, ZD_WINDOW_OUT };

struct zd_window {
	uint8_t state;
	uint8_t reserved; /* counts against a job's reservation */
	uint8_t report;	  /* PUSHED is due when it is given back */
	uint16_t next;	  /* free list, or the staged list of an extent */
	uint32_t job;	  /* whose reservation it was taken from, or ZD_NONE */
	uint32_t k;	  /* STAGED */
	uint64_t stream;
};

struct zd_extent {
	uint64_t step;	   /* optimizer steps its planes have seen */
	uint64_t gather;   /* the collection that the fields below belong to; another one than the job's: they are void */
	uint64_t mark;	   /* running digest of what was counted */
	uint64_t crc_step; /* crc is that of hi after this many steps; UINT64_MAX: unknown */
	uint64_t nonfinite;
	zd_time wanted_since; /* of the lane's time */
	uint32_t crc;
	uint32_t counted;  /* contributions that are here */
	uint32_t reduced;  /* of them in the sum; not where they stay as they came */
	uint32_t bad_element, bad_rank;
	uint32_t unit;
	uint32_t lends[2]; /* readers of hi ([0]), or of the gradient area */
	uint16_t staged;   /* windows that wait for their turn */
	uint8_t have;	   /* raw: which contributions are here */
	uint8_t busy;	   /* an Adam call is under way */
	uint8_t wanted;	   /* 1 + area: somebody waits for the lends of that */
};

struct zd_grain {
	uint64_t epoch; /* promised when it was loaded */
	uint32_t crc;
	uint8_t codec; /* 1 + enum zd_codec; 0: not loaded */
	uint8_t busy;
};

/* A unit as this lane has it.  Planes: see job.c. */
struct zd_unit {
	struct zd_piece piece;
	uint32_t extent, extents; /* of job->extents */
	uint32_t grain, grains;	  /* of job->grains */
	uint16_t *hi, *lo;
	float *m, *v;
	uint8_t *grad[2]; /* equal, except in jobs without optimizer, which alternate */
};

struct zd_worker {
	uint64_t process;
	uint32_t link;
	struct zd_conn_id conn;
	zd_time seen;
	uint8_t known;	   /* process and link are valid in this epoch */
	uint8_t joined;	   /* to the promise */
	uint8_t committed;
	uint8_t next, prev; /* in order of `seen`; 1 + rank, 0: end */
	uint32_t micro, complete; /* of the open round: micro-batch that it pushes, units complete in it */
	uint32_t out;	    /* windows in use */
	uint64_t freed;	    /* since JOINED */
	uint64_t told;	    /* of freed */
	struct zd_hyper hyper;
};

/* What a decided round owes to extents whose step is behind the job's. */
struct zd_update {
	struct zd_hyper hyper;
	double scale;
	uint64_t step;
	uint8_t form;
};

struct zd_job {
	uint8_t used;	 /* has a name */
	uint8_t dropped; /* memory is waited for */
	uint8_t sealed, sealing;
	uint8_t state;	 /* enum zd_round_state */
	uint8_t promising, discarding; /* store operation under way */
	uint8_t ended;	 /* the promise's attempt is over */
	uint8_t failed;	 /* the store failed: nothing is served any more */
	uint8_t has_decision;
	uint8_t raw;	 /* contributions stay as they came */
	uint8_t idle_blocked;
	uint32_t slot, gen;
	struct zd_spec spec;
	uint32_t lane_index, lane_count;
	uint64_t uuid_hi, uuid_lo, timeline;

	void *region;
	uint64_t region_len, bytes;
	struct zd_unit *units;
	struct zd_extent *extents;
	struct zd_grain *grains;
	uint64_t *pos; /* [rank * unit_count + unit]: next expected extent, over all micro-batches */
	uint32_t extent_count, trainable_extents, trainable_units, grain_count;
	uint64_t owned, trainable; /* elements */

	struct zd_ballot promise;
	uint64_t launch;
	uint32_t world;	   /* of the promise's epoch; 0: nobody has joined */
	uint32_t joined;   /* workers, of the promise */
	uint32_t credit;   /* windows a worker has */
	uint32_t reserved; /* windows of the pool */
	int ended_code;
	char ended_text[512];
	struct zd_worker worker[ZD_WORLD_MAX];
	uint8_t oldest, newest; /* joined workers by `seen`; 1 + rank */

	uint64_t decided, step;
	uint64_t gather;   /* counts collections: raised when contributions become void */
	uint32_t micro, micro_rank; /* micro-batches of the round and who said so; 0: not known */
	uint32_t total;	   /* contributions to each extent */
	uint32_t commits;
	uint32_t left;	   /* trainable extents that are not complete */
	struct zd_normacc norm;
	uint64_t nonfinite;
	uint32_t bad_unit, bad_rank;
	uint64_t bad_element;
	struct zd_record record; /* WRITING, PREPARED, and of the decision while due > 0 */
	struct zd_decision decision;
	struct zd_ballot discard_ballot;
	struct zd_update update;
	uint32_t due;	       /* extents */
	uint32_t due_cursor;
	uint64_t grad_round;   /* no optimizer: the decided round whose sum is held; 0: none */
	uint8_t grad_form[2];  /* of the areas */
	uint32_t wanted;       /* extents that are wanted while lent */
	zd_time wanted_since;  /* of none of them earlier, of the lane's time; NEVER: whoever holds them is on its way out */

	uint32_t conns, conn_count; /* list */
	uint32_t kernels;      /* calls under way */
	uint32_t stores;       /* operations under way: they name the specification and the record */
	uint64_t pushed_bytes, fetched_bytes, skipped;
};

enum zd_kernel_kind {
	ZD_K_ADAM,
	ZD_K_ACC,
	ZD_K_RAW,  /* reads a raw contribution first: its checksum, and the norm if `last`; the connection waits for it */
	ZD_K_NORM, /* of raw contributions that are checked and counted */
	ZD_K_LOAD,
	ZD_K_MERGE,
};

struct zd_kernel_open {
	uint64_t token, gather;
	uint64_t stream, first; /* LOAD */
	uint32_t job, extent, k, count;
	struct zd_conn_id conn;
	uint32_t send;	   /* MERGE: index in the connection's ring */
	uint32_t crc;	   /* LOAD */
	uint16_t window;
	uint8_t kind, last, report, codec;
	uint8_t checked;   /* ADAM: the checksum of hi comes with it */
};

struct zd_store_open {
	uint64_t token;
	uint32_t job, gen;
	uint8_t kind;
};

/* One of each kind for each job at most, and DECISION, which nobody waits for, behind the next RECORD at the latest. */
#define ZD_STORES_MAX (ZD_JOBS_MAX * 8u)

struct zd_core {
	struct zd_core_config config;
	zd_time now, before; /* of this event and of the one before */
	zd_time ticked;	     /* of the last TICK */
	zd_time beat;	     /* a TICK is due, whatever else is; NEVER while nobody's time runs */
	zd_time away;	     /* how long the lane did not run while one was due: now - away is the lane's time */
	zd_time guest_check; /* when connections without a job are looked at again */
	struct zd_actions *act; /* of the step under way */
	uint8_t draining;
	uint8_t released; /* the step gives memory back */
	struct zd_slab slab;
	uint64_t tokens;
	uint32_t uuids;

	struct zd_conn *conn;
	uint32_t conn_count;
	uint32_t *queue; /* connections with something to go on with: ring of max_conns */
	uint32_t queue_at, queue_len;

	uint8_t *windows; /* in the slab */
	struct zd_window *window;
	uint32_t window_reserved, window_other; /* reserved by jobs; in use outside reservations */
	uint16_t window_free;
	uint32_t window_waiters;
	uint32_t window_turn; /* slot that may try first when one comes back */

	struct zd_job job[ZD_JOBS_MAX];

	struct zd_kernel_open *kernel; /* ring */
	uint32_t kernel_cap, kernel_at, kernel_len;
	struct zd_store_open store[ZD_STORES_MAX];
	uint32_t store_at, store_len;

	uint32_t sends_waiting; /* DATA frames in WAIT: for kernel calls, so none once those are done */

	uint64_t frames_in, frames_out, bytes_in, bytes_out, errors;

	uint8_t big_head_used[ZD_BIG_HEADS];
	uint8_t *big_head[ZD_BIG_HEADS];
	uint8_t *sink;
	struct zd_arena arena; /* of the message under way */
	struct zd_unit_spec *asked; /* ZD_UNITS_MAX entries: the specification of an OPEN under way */
	Zd__Pb__Unit *pb_units;
	Zd__Pb__Unit **pb_ptrs;
	uint64_t *counted; /* ZD_UNITS_MAX entries, for JOINED */
	char text[ZD_TEXT_MAX + 1];
	char text2[ZD_TEXT_MAX + 1];
};

/* ---- core.c */
struct zd_conn *zd_core_conn(struct zd_core *core, struct zd_conn_id id); /* NULL: dead */
void zd_core_queue(struct zd_core *core, struct zd_conn *c);		  /* goes on with it at the end of the step, or later */
void zd_core_unqueue(struct zd_core *core, struct zd_conn *c);

/* ---- emit.c: actions.  Frames are encoded into the list's bytes at once. */
void zd_emit(struct zd_core *core, struct zd_conn *c, uint16_t type, uint64_t stream, const ProtobufCMessage *msg);
void zd_emit_data(struct zd_core *core, struct zd_conn *c, const struct zd_send *s, const uint8_t *payload, uint32_t len, uint32_t crc);
void zd_emit_close(struct zd_core *core, struct zd_conn *c, int flush);
struct zd_kernel_call *zd_emit_kernel(struct zd_core *core, const struct zd_kernel_open *open); /* the caller fills the operands */
void zd_emit_store(struct zd_core *core, struct zd_job *j, enum zd_store_kind kind);
void zd_emit_release(struct zd_core *core, void *base, uint64_t len);
void zd_emit_log(struct zd_core *core, enum zd_log_level level, const char *format, ...) __attribute__((format(printf, 3, 4)));
int zd_emit_full(const struct zd_core *core); /* this step should start nothing more */

/* What an ERROR names beside its text: ZD_NONE for what does not apply. */
struct zd_about {
	uint32_t unit, rank;
};
#define ZD_ABOUT_NOTHING ((struct zd_about){ZD_NONE, ZD_NONE})
/* Sends ERROR; closes the connection too, after the frame has left, if the code's class is CLOSE. */
void zd_emit_error(struct zd_core *core, struct zd_conn *c, uint64_t stream, int code, struct zd_about about, const char *format, ...)
	__attribute__((format(printf, 6, 7)));
/* ended: the ballot that this ends or refuses. */
void zd_emit_aborted(struct zd_core *core, struct zd_conn *c, uint64_t stream, struct zd_ballot ended, int code, const uint32_t *missing,
		     size_t missing_count, const char *text);
void zd_emit_joined(struct zd_core *core, struct zd_conn *c, uint64_t stream);
void zd_emit_pushed(struct zd_core *core, struct zd_conn *c, uint64_t stream, uint32_t unit);
void zd_emit_prepared(struct zd_core *core, struct zd_conn *c, uint64_t stream);
void zd_emit_applied(struct zd_core *core, struct zd_conn *c, uint64_t stream);

/* ---- conn.c */
void zd_conn_open(struct zd_core *core, const struct zd_event *ev);
void zd_conn_bytes(struct zd_core *core, struct zd_conn *c, size_t n);
void zd_conn_run(struct zd_core *core, struct zd_conn *c); /* goes on with what was read, unless it is on hold */
void zd_conn_closed(struct zd_core *core, struct zd_conn *c);
void zd_conn_fail(struct zd_core *core, struct zd_conn *c, int rc); /* a frame is damaged: ERROR, then closed */
void zd_conn_abandon(struct zd_core *core, struct zd_conn *c); /* the payload under way becomes unwanted: the rest is skipped */
void zd_conn_free_head(struct zd_core *core, struct zd_conn *c); /* the memory of a long head, if it has one; a decoded message does not need it */
zd_time zd_conn_deadline(const struct zd_core *core);
void zd_conn_tick(struct zd_core *core);
/* Notes when the next connection without a job will have been silent too long.  end: ends those that have been, as far as the step has
 * room.  One that is sending a long head is not silent, and has a limit of its own. */
void zd_conn_guests(struct zd_core *core, int end);

/* ---- session.c, admin.c: requests.  Decoded messages live until the handler returns. */
void zd_session_open(struct zd_core *core, struct zd_conn *c, const Zd__Pb__Open *m);
void zd_session_load(struct zd_core *core, struct zd_conn *c, const Zd__Pb__Load *m);
void zd_session_load_place(struct zd_core *core, struct zd_conn *c);
void zd_session_loaded(struct zd_core *core, struct zd_conn *c);
void zd_session_load_done(struct zd_core *core, struct zd_job *j, const struct zd_kernel_open *k, uint64_t refused, uint64_t first);
void zd_session_seal(struct zd_core *core, struct zd_conn *c);
void zd_session_sealed(struct zd_core *core, struct zd_job *j);
void zd_admin_status(struct zd_core *core, struct zd_conn *c);
void zd_admin_show(struct zd_core *core, struct zd_conn *c, const Zd__Pb__Show *m);
void zd_admin_drop(struct zd_core *core, struct zd_conn *c, const Zd__Pb__Drop *m);

/* ---- round.c: the state of a job's round */
/* Whether a message of this ballot and rank is served; else it was answered. */
int zd_round_serves(struct zd_core *core, struct zd_conn *c, uint64_t stream, struct zd_ballot ballot, uint32_t rank);
void zd_round_move(struct zd_core *core, struct zd_job *j, enum zd_round_state to);
void zd_round_void(struct zd_core *core, struct zd_job *j); /* contributions are dropped */
/* Begins the round if it is not open; 0 if its micro-batch count differs: then the attempt was ended. */
int zd_round_open(struct zd_core *core, struct zd_job *j, uint32_t micro, uint32_t rank);
/* Ends the promise's attempt: everybody who joined is told. */
void zd_round_end(struct zd_core *core, struct zd_job *j, int code, const uint32_t *missing, size_t missing_count, const char *text);
void zd_round_commit(struct zd_core *core, struct zd_conn *c, const Zd__Pb__Commit *m);
void zd_round_try_prepare(struct zd_core *core, struct zd_job *j);
void zd_round_recorded(struct zd_core *core, struct zd_job *j);
void zd_round_apply(struct zd_core *core, struct zd_conn *c, const Zd__Pb__Apply *m);
void zd_round_discard(struct zd_core *core, struct zd_conn *c, const Zd__Pb__Discard *m);
void zd_round_discarded(struct zd_core *core, struct zd_job *j);

/* ---- join.c: ballots, workers, leases */
void zd_join_request(struct zd_core *core, struct zd_conn *c, const Zd__Pb__Join *m);
void zd_join_ping(struct zd_core *core, struct zd_conn *c, const Zd__Pb__Ping *m); /* also says whom the job waits for */
void zd_join_reassure(struct zd_core *core, struct zd_conn *c); /* payload comes: a PONG unasked, once no frame has ended for a quarter of the lease */
void zd_join_resume(struct zd_core *core, struct zd_job *j); /* answers JOINs that waited for a store operation */
void zd_join_go_on(struct zd_core *core, struct zd_conn *c); /* those for which that step had no room */
void zd_join_leave(struct zd_core *core, struct zd_conn *c); /* the connection is no longer that of its rank */
void zd_join_clear(struct zd_core *core, struct zd_job *j);  /* nobody is joined any more */
void zd_lease_renew(struct zd_core *core, struct zd_conn *c);
zd_time zd_lease_deadline(const struct zd_job *j);
void zd_lease_check(struct zd_core *core, struct zd_job *j);
void zd_lease_absence(struct zd_core *core); /* before each event: time in which the lane did not run counts against nobody */
void zd_lease_beat(struct zd_core *core);    /* after each event: when the next TICK is due, to notice that */

/* ---- reduce.c: contributions */
void zd_reduce_push(struct zd_core *core, struct zd_conn *c, const Zd__Pb__Push *m);
void zd_reduce_place(struct zd_core *core, struct zd_conn *c); /* tries again to find the place of a payload */
void zd_reduce_received(struct zd_core *core, struct zd_conn *c);
void zd_reduce_read(struct zd_core *core, struct zd_job *j, const struct zd_kernel_open *k, const struct zd_event *ev);
void zd_reduce_advance(struct zd_core *core, struct zd_job *j, uint32_t extent);
void zd_reduce_done(struct zd_core *core, struct zd_job *j, const struct zd_kernel_open *k, const struct zd_event *ev);
void zd_reduce_drop_staged(struct zd_core *core, struct zd_job *j);

/* ---- extent.c: lends, Adam */
uint32_t zd_extent_count(const struct zd_job *j, uint32_t extent); /* elements */
uint64_t zd_extent_first(const struct zd_job *j, uint32_t extent); /* in unit coordinates */
int zd_extent_due(const struct zd_job *j, uint32_t extent);
/* Emits Adam if it is due, with the checksum of the weights if they are to be sent: 0 the planes are (or will be, before any later call)
 * current; -1 lent, and noted as wanted. */
int zd_extent_update(struct zd_core *core, struct zd_job *j, uint32_t extent, struct zd_conn *c, int check);
void zd_extent_updated(struct zd_core *core, struct zd_job *j, const struct zd_kernel_open *k, const struct zd_event *ev);
void zd_extent_lend(struct zd_job *j, uint32_t extent, uint32_t area);
void zd_extent_back(struct zd_core *core, struct zd_job *j, uint32_t extent, uint32_t area);
void zd_extent_want(struct zd_core *core, struct zd_job *j, uint32_t extent, uint32_t area);
void zd_extent_idle(struct zd_core *core);
int zd_extent_wants_idle(const struct zd_core *core);
uint8_t *zd_extent_grad(const struct zd_job *j, uint32_t extent, uint32_t area);
void zd_extent_touch(struct zd_job *j, struct zd_extent *e); /* makes the fields of the current collection valid */

/* ---- fetch.c */
void zd_fetch_request(struct zd_core *core, struct zd_conn *c, const Zd__Pb__Fetch *m);
void zd_fetch_pump(struct zd_core *core, struct zd_conn *c);
void zd_fetch_sent(struct zd_core *core, struct zd_conn *c, uint64_t token);
void zd_fetch_merged(struct zd_core *core, const struct zd_kernel_open *k);
void zd_fetch_flush(struct zd_core *core); /* all kernel calls are done: so is what waited for them */
void zd_fetch_close(struct zd_core *core, struct zd_conn *c); /* everything that was lent is back */
void zd_fetch_wake(struct zd_core *core, struct zd_job *j);   /* versions or lends changed */
zd_time zd_fetch_deadline(const struct zd_core *core, const struct zd_job *j);
void zd_fetch_tick(struct zd_core *core, struct zd_job *j);

/* ---- window.c: the pool */
uint8_t *zd_window_memory(const struct zd_core *core, uint16_t w);
uint32_t zd_window_available(const struct zd_core *core); /* neither reserved nor in use */
/* Of the reservation of a job, which must have one left, or with NULL of what is available; ZD_NONE16: none. */
uint16_t zd_window_take(struct zd_core *core, const struct zd_job *j);
void zd_window_back(struct zd_core *core, uint16_t w);
int zd_window_reserve(struct zd_core *core, struct zd_job *j, uint32_t world); /* -1: the pool is too small */
void zd_window_settle(struct zd_core *core, struct zd_job *j); /* gives them back if no worker is connected and nothing is held */
void zd_window_unreserve(struct zd_core *core, struct zd_job *j);

/* ---- job.c */
struct zd_job *zd_job_find(const struct zd_core *core, const char *name);
struct zd_job *zd_job_of(struct zd_core *core, const struct zd_conn *c); /* NULL: none opened */
/* 0, or a negative error and a text. */
int zd_job_create(struct zd_core *core, const struct zd_spec *spec, uint32_t lane_index, uint32_t lane_count, struct zd_job **ret_job,
		  char *text, size_t text_size) ZD_MUST_USE;
void zd_job_attach(struct zd_core *core, struct zd_job *j, struct zd_conn *c);
void zd_job_detach(struct zd_core *core, struct zd_conn *c);
void zd_job_drop(struct zd_core *core, struct zd_job *j);
void zd_job_try_free(struct zd_core *core, struct zd_job *j); /* a dropped job whose memory nobody uses any more */

#endif
