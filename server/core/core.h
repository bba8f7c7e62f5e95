/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The core of a lane: everything it decides, and nothing it does.
 *
 * One way in, zd_core_step(core, event, actions); one way out, the actions.  The core opens no socket, reads no clock, makes no thread,
 * calls nobody and allocates nothing after zd_core_init: time comes in with every event, memory is the slab it was given.  The shell turns
 * callbacks into events and carries actions out, in order; it decides nothing.
 *
 *     shell                         core                                             module
 *     socket bytes  --BYTES-->      frame reader, one message at a time              conn.c
 *                                   HELLO is the door's; OPEN LOAD SEAL              session.c
 *                                   JOIN: ballots, leases                            join.c
 *                                   PUSH: contributions, order; receive windows      reduce.c, window.c
 *                                   COMMIT APPLY DISCARD: rounds                     round.c
 *                                   FETCH, DATA                                      fetch.c
 *                                   extents: lends, Adam when due                    extent.c
 *                                   STATUS SHOW DROP                                 admin.c
 *                                   jobs, memory, what a store puts back             job.c, slab.c, image.c
 *                                   answers into frames                              emit.c
 *                   <--actions--    SEND CLOSE KERNEL STORE RELEASE LOG
 *
 * Rules of the border
 *  - Connections are named by (slot, generation), never by pointer; events for a dead generation are ignored.  The shell chooses a free
 *    slot below max_conns and a new generation for each connection.
 *  - The core names the memory for the next bytes of a connection (zd_core_window), and the name is good until the next step of that
 *    core: ask, read into it, step BYTES.  (A step may take the place of a payload away, when its ballot has ended.)  An empty window
 *    means: stop reading; zd_core_window after any later step may say otherwise.  It is empty while the place of a payload waits for Adam,
 *    for lent memory or for a free receive window, while a kernel checks what was received, while an answer waits for the store, and
 *    while a step had no more room for answers.
 *  - KERNEL actions run at once, in order, on the lane's thread; the shell feeds one KERNEL event per action, in the order of the
 *    actions over all steps, before anything else.
 *  - Memory in SEND (payload) is lent until the SENT event of that token, or until the CLOSED event of the connection, which the shell sends when
 *    it no longer touches any of it.  A ledger in the extents asserts one writer or many readers.
 *  - TICK comes as soon as zd_core_deadline has passed: one that is late means that the lane did not run.  Between two of them the shell reads
 *    whatever has arrived on connections with a window.
 *  - STORE actions complete with STORED, in order, possibly at once.  An acknowledgement is emitted when the core has seen the completion.
 *
 * Threads: a core belongs to one thread.
 */
#ifndef ZD_CORE_H
#define ZD_CORE_H

#include <stddef.h>
#include <stdint.h>

#include "proto/decide.h"
#include "proto/frame.h"
#include "proto/spec.h"
#include "server/core/time.h"

struct zd_conn_id {
	uint32_t slot;
	uint32_t gen;
};

struct zd_core_config {
	uint32_t lane;	       /* of this daemon, from 0 */
	uint32_t max_conns;    /* 1..1024 */
	uint32_t max_jobs;     /* 1..ZD_JOBS_MAX */
	uint32_t windows;      /* receive windows of ZD_PAYLOAD_MAX bytes each */
	uint64_t job_max_bytes;/* most slab bytes one job may take on this lane, 0: all of it */
	uint64_t uuid_seed;    /* random, from the shell: job uuids derive from it */
	void *slab;	       /* page aligned; planes, windows and gradients live here */
	uint64_t slab_bytes;
	const char *daemon;    /* name, for status and texts; lives as long as the core */
	const char *kernels;
	zd_time now;
};

/* Bytes of the slab that a job takes on lane `lane` of lane_count: tables, planes, gradients, alignment.  Exact. */
uint64_t zd_job_bytes(const struct zd_spec *spec, uint32_t lane_count, uint32_t lane);

/* Bytes of the arena that zd_core_init needs (tables of connections, jobs, extents' bookkeeping): at most a few MiB. */
size_t zd_core_arena_bytes(const struct zd_core_config *config);

struct zd_core;

/* arena: zd_core_arena_bytes() bytes, aligned to 64, zeroed; it holds the core, which needs no fini. */
struct zd_core *zd_core_init(void *arena, const struct zd_core_config *config);

/* ---------------------------------------------------------------- events */

enum zd_event_type {
	ZD_EV_CONN,	/* the door hands over a connection that has said HELLO and got WELCOME */
	ZD_EV_BYTES,	/* bytes were put at the start of its window */
	ZD_EV_CLOSED,	/* the connection is gone, and with it every use of lent memory */
	ZD_EV_SENT,	/* the payload of a SEND has left */
	ZD_EV_KERNEL,	/* a kernel is done */
	ZD_EV_STORED,	/* a store operation is done */
	ZD_EV_TICK,	/* the deadline passed */
	ZD_EV_IDLE,	/* nothing else to do: one extent's worth of due work */
	ZD_EV_DRAIN,	/* SIGTERM: refuse new jobs, rounds end by rule */
};

struct zd_event {
	enum zd_event_type type;
	zd_time now;
	union {
		struct {
			struct zd_conn_id id;
			enum zd_role role;
			uint64_t features;
			const uint8_t *early; /* bytes that the door had read beyond HELLO; copied */
			size_t early_len;     /* at most ZD_LANDING_BYTES */
			const char *peer;     /* for logs, copied (63 bytes) */
		} conn;
		struct {
			struct zd_conn_id id;
			size_t len;
		} bytes;
		struct {
			struct zd_conn_id id;
		} closed;
		struct {
			struct zd_conn_id id;
			uint64_t token;
		} sent;
		struct {
			uint64_t token;
			uint64_t nonfinite;	  /* or refused, for LOAD */
			uint64_t first_nonfinite; /* element index in the call */
			uint32_t crc;		  /* of what the call said is to be checked */
			const double *block_sums; /* of the call, where they were asked for */
		} kernel;
		struct {
			uint64_t token;
			int status; /* 0 or a negative errno */
		} stored;
	} u;
};

/* ---------------------------------------------------------------- actions */

enum zd_kernel_op {
	ZD_KERNEL_ACC_SET,    /* dst acc; a: source of `codec` */
	ZD_KERNEL_ACC_ADD,
	ZD_KERNEL_CHECK,      /* a: bf16, of which nothing but the checksum is wanted */
	ZD_KERNEL_NORM_1,     /* a: bf16 */
	ZD_KERNEL_NORM_2,     /* a, b: bf16, in this order */
	ZD_KERNEL_ADAM,	      /* hi lo m v; a (and b) by `form` */
	ZD_KERNEL_SPLIT,      /* hi lo from a of `codec` */
	ZD_KERNEL_SPLIT_HI,   /* hi from a of `codec` (frozen units have no lo): lo is a scratch of the shell and thrown away */
	ZD_KERNEL_MERGE,      /* dst fp32 from hi lo */
	ZD_KERNEL_WIDEN,      /* dst fp32 from a, or a + b, by `form` */
};

enum zd_grad_form_core { ZD_FORM_BF16_1 = 0, ZD_FORM_BF16_2 = 1, ZD_FORM_FP32 = 2 }; /* same numbers as the kernels' enum zd_grad_form */

struct zd_kernel_call {
	uint64_t token;
	enum zd_kernel_op op;
	uint8_t codec;
	uint8_t form;
	uint8_t want_sums; /* ceil(n / ZD_BLOCK_ELEMS) doubles come back with the event */
	uint32_t n;
	void *dst;
	uint16_t *hi, *lo;
	float *m, *v;
	const void *a, *b;
	const void *checked;   /* a or b (CHECK, NORM) or hi as it is afterwards (ADAM): its CRC32C comes back with the event; NULL: none */
	struct zd_hyper hyper; /* ADAM */
	uint64_t step;	       /* ADAM: t, from 1 */
	double scale;	       /* ADAM */
	uint8_t l2;	       /* ADAM */
};

enum zd_store_kind {
	ZD_STORE_PROMISE,  /* the ballot must be durable before JOINED */
	ZD_STORE_RECORD,   /* the prepared record (and its gradient) must be durable before PREPARED */
	ZD_STORE_DECISION, /* noted; nobody waits for it */
	ZD_STORE_DISCARD,  /* a record is gone; durable before DISCARDED */
	ZD_STORE_SEAL,	   /* version 0 is complete; durable before SEALED */
};

enum zd_log_level { ZD_LOG_ERROR = 3, ZD_LOG_WARNING = 4, ZD_LOG_NOTICE = 5, ZD_LOG_INFO = 6, ZD_LOG_DEBUG = 7 }; /* syslog's */

enum zd_action_type { ZD_ACT_SEND, ZD_ACT_CLOSE, ZD_ACT_KERNEL, ZD_ACT_STORE, ZD_ACT_RELEASE, ZD_ACT_LOG };

struct zd_action {
	enum zd_action_type type;
	union {
		struct {
			struct zd_conn_id id;
			uint32_t frame;	     /* offset of header and head in actions->bytes */
			uint32_t frame_len;
			const uint8_t *payload; /* lent */
			uint32_t payload_len;
			uint64_t token;	     /* of the SENT event; only sends with payload have one */
		} send;
		struct {
			struct zd_conn_id id;
			uint8_t flush; /* 1: after what is queued is written (bounded by the shell's linger time); 0: now */
		} close;
		struct zd_kernel_call kernel;
		struct {
			uint64_t token;
			enum zd_store_kind kind;
			const struct zd_spec *spec; /* which job */
			struct zd_ballot ballot;
			const struct zd_record *record;
			const struct zd_decision *decision;
		} store;
		struct {
			void *base; /* slab memory of a dropped job: pages may be given back to the system */
			size_t len;
		} release;
		struct {
			enum zd_log_level level;
			uint32_t text; /* offset of a NUL-terminated "event=... key=value" line in actions->bytes */
		} log;
	} u;
};

/* What one step may emit at most: one answer per connection, or the work of one extent for each of ZD_SENDS_MAX frames. */
#define ZD_ACTIONS_MAX 2304u
#define ZD_ACTION_BYTES (1024u * 1024u)

struct zd_actions {
	uint32_t count;
	uint32_t used; /* of bytes */
	struct zd_action item[ZD_ACTIONS_MAX];
	uint8_t bytes[ZD_ACTION_BYTES];
};

/* Takes one event; *actions is emptied first.  Never fails: a peer's fault is answered by ERROR and CLOSE actions. */
void zd_core_step(struct zd_core *core, const struct zd_event *event, struct zd_actions *actions);

/* ---------------------------------------------------------------- queries, without effect */

struct zd_span zd_core_window(struct zd_core *core, struct zd_conn_id id);
zd_time zd_core_deadline(const struct zd_core *core); /* the next TICK is due then; ZD_TIME_NEVER */
int zd_core_wants_idle(const struct zd_core *core);
int zd_core_drained(const struct zd_core *core);      /* after DRAIN: no round is open any more, no store operation pending */

/* A digest of everything that messages may change in a job, for tests of invariant I2: equal digests mean equal state.  0: no such job. */
uint64_t zd_core_digest(const struct zd_core *core, const char *job);

/* What invariants are checked against; a copy. */
enum zd_round_state { ZD_ROUND_UNSEALED, ZD_ROUND_EMPTY, ZD_ROUND_COLLECTING, ZD_ROUND_WRITING, ZD_ROUND_PREPARED };
struct zd_job_view {
	struct zd_ballot promise;
	enum zd_round_state state;
	uint64_t decided, step, timeline;
	uint8_t has_record, has_decision;
	struct zd_record record;     /* WRITING or PREPARED */
	struct zd_decision decision; /* the last one */
	uint32_t due;		     /* extents whose Adam is due */
	uint64_t owned, trainable;   /* elements */
	uint64_t bytes;
};
int zd_core_job_view(const struct zd_core *core, const char *job, struct zd_job_view *ret_view); /* 1 found, 0 not */

/* ---------------------------------------------------------------- recovery: what a store puts back at start, before any event */

/* A job as the store holds it.  `record` is the prepared one (has_record) or that of the due decision (due).  Planes are those of the
 * version before the decision when `due`: the core then owes Adam of `decision` to every extent, with the gradient that comes back beside
 * the planes. */
struct zd_job_image {
	const struct zd_spec *spec; /* copied */
	uint32_t lane_index, lane_count;
	uint64_t uuid_hi, uuid_lo, timeline, launch;
	struct zd_ballot promise;
	uint32_t world; /* of the promise's epoch, 0: none joined yet */
	uint8_t sealed;
	uint8_t due;
	uint8_t has_record, has_decision;
	uint64_t decided, step;
	struct zd_record record;
	struct zd_decision decision;
	enum zd_grad_form_core grad_form; /* of the record's or the due decision's gradient */
};

/* Where a unit's planes of this lane are; NULL and 0 where it has none (frozen: hi only; optimizer none: grad only). */
struct zd_plane_view {
	uint64_t count;
	uint16_t *hi, *lo;
	float *m, *v;
	uint8_t *grad; /* of the open or due round, 4 bytes an element, per extent: [4 * n_extent bytes] in the form of grad_form */
};

/* 1, and spec is the core's own; 0: no such job, or an update that has reached some extents and not others, which no image can hold. */
int zd_core_image(const struct zd_core *core, const char *job, struct zd_job_image *ret_image);
int zd_core_planes(struct zd_core *core, const char *job, uint32_t unit, struct zd_plane_view *ret_view);

/* Creates the job from an image: 0, or -ZD_ERR_NO_MEMORY / _NO_ROOM / _BAD_SPEC with a text.  The caller then fills the planes. */
int zd_core_restore(struct zd_core *core, const struct zd_job_image *image, char *text, size_t text_size) ZD_MUST_USE;

#endif
