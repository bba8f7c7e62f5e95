/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A world in one process: real cores, real sessions, and everything between them made up.  No thread, no clock, no socket, no file: one queue of events in
 * simulated time, and one generator of chance.  The same seed gives the same run, byte for byte.
 *
 *     trainer.c   what a training program does: gather, check, push, step, compute again
 *     worker.c    a zd_session and what the pump does for it
 *     net.c       connections: latency, cuts, back-pressure, resets, partitions, ghosts of old connections
 *     lane.c      a zd_core and what the shell does for it: door, kernels, crash and restart
 *     disk.c      what a lane's store holds, durable or not yet
 *     oracle.c    what training must give, computed apart from all of that
 *     check.c     the invariants, after every event
 *     world.c     time, launches, the run
 *     chaos.c     worlds from seeds, and their faults
 *
 * A violated invariant does not stop the process: the first one is kept in world->failure and ends the run.
 */
#ifndef ZD_SIM_WORLD_H
#define ZD_SIM_WORLD_H

#include <stddef.h>
#include <stdint.h>

#include "client/session.h"
#include "proto/layout.h"
#include "server/core/core.h"
#include "server/kernel/call.h"
#include "tests/sim/rng.h"

#define SIM_HOSTS_MAX 64u
#define SIM_LANES_MAX 64u
#define SIM_UNITS_MAX 8u
#define SIM_EPOCHS_MAX 24u
#define SIM_EXTENT 4096u /* the smallest: many extents in small units */

struct sim_world;
struct sim_conn;
struct sim_done;

enum sim_level { SIM_DURABLE, SIM_NONE };

struct sim_config {
	uint64_t seed;
	uint32_t hosts, lanes_per_host;
	struct zd_spec spec;
	struct zd_unit_spec units[SIM_UNITS_MAX];
	enum sim_level level;
	uint32_t windows;      /* of a lane */
	uint32_t max_conns;
	uint32_t prefetch;
	uint64_t gather_bytes; /* 0: the default */
	uint32_t load_codec;   /* of initial weights */
	uint32_t readers;
	uint64_t target;       /* rounds */
	zd_time end;	       /* simulated time after which the world counts as stuck */
	zd_time latency;       /* up to */
	zd_time disk;	       /* up to, for one store operation */
	uint32_t bad_percent;  /* of computations with a value that is not finite */
	uint32_t cut_percent;  /* of deliveries that are cut */
	uint32_t lend_percent; /* of sends that leave late */
	uint32_t blind_percent; /* of units in a round that all ranks push without having gathered them */
	uint8_t plain_trainer; /* always the same order, one gather at a time, no extras: for counting */
	uint8_t adverse_order; /* every rank pushes in another order, the last rank first */
	uint8_t relaunch;      /* the launcher starts a higher epoch when a worker has ended before the target */
	uint8_t verbose;
	uint8_t trace;	       /* keeps a text of what the protocol did, for scenarios */
};

/* ---------------------------------------------------------------- events of the world */

enum sim_event_kind {
	SIM_E_CONNECTED, SIM_E_UP, SIM_E_CDOWN, SIM_E_SCLOSED, SIM_E_DRAIN_UP, SIM_E_DRAIN_DOWN, SIM_E_DELIVER_UP, SIM_E_DELIVER_DOWN,
	SIM_E_WORKER_TICK, SIM_E_LANE_TICK, SIM_E_LANE_IDLE, SIM_E_STORED, SIM_E_RESTART, SIM_E_TRAIN, SIM_E_LAUNCHER, SIM_E_FAULT,
};

struct sim_event {
	zd_time at;
	uint64_t seq;
	enum sim_event_kind kind;
	void *object;
	uint64_t life; /* of a lane, or of nothing */
};

/* ---------------------------------------------------------------- network */

struct sim_mark { /* a frame on its way */
	uint64_t begin, end; /* offsets in the stream */
	uint16_t type;
	uint8_t has_ballot;
	uint8_t hold;	     /* waits for the scenario */
	struct zd_ballot ballot;
};

struct sim_item { /* given to the transport, not yet taken by it */
	uint8_t *frame;
	uint32_t frame_len, payload_len;
	const uint8_t *payload; /* lent */
	uint64_t token;
	struct sim_item *next;
};

struct sim_segment {
	uint64_t end;
	zd_time at;
};

struct sim_pipe {
	struct sim_item *first, **last;
	uint8_t *bytes; /* from `start`: sent, not delivered, stream offsets [delivered, sent) */
	size_t cap, start;
	uint64_t queued, sent, delivered;
	struct sim_mark *marks;
	uint32_t mark_first, mark_count, mark_cap;
	struct sim_segment *segments;
	uint32_t segment_first, segment_count, segment_cap;
	zd_time last_at;
	uint8_t draining, delivering; /* an event is scheduled */
	uint8_t stalled;	      /* the receiver's window was empty */
};

struct sim_conn {
	struct sim_world *world;
	struct sim_worker *worker; /* or reader */
	struct sim_lane *lane;
	uint32_t slot, gen;	   /* of the session */
	struct zd_conn_id id;	   /* of the core */
	uint8_t client_open;	   /* the session has not had DOWN */
	uint8_t client_up;	   /* UP was told */
	uint8_t client_closing;	   /* nothing moves to or from the session */
	uint8_t server_open;	   /* the core has not had CLOSED */
	uint8_t server_closing;
	uint8_t finishing;	   /* the core closes after what is queued */
	uint8_t cdown_due, sclosed_due;
	uint8_t silent;		   /* the other end will not hear of the end */
	uint32_t patience;	   /* tries before undelivered bytes are given up */
	struct sim_pipe up, down;
};

/* ---------------------------------------------------------------- lanes */

struct sim_planes { /* of one unit's piece */
	uint64_t count;
	uint16_t *hi, *lo;
	float *m, *v;
	uint8_t *grad;
};

struct sim_store_op {
	uint64_t token;
	enum zd_store_kind kind;
	zd_time due;
	struct zd_job_image image; /* as the core had it */
	struct zd_record record;
	struct zd_decision decision;
	struct zd_ballot ballot;
	struct sim_planes *planes; /* SEAL, RECORD: a copy */
	struct sim_store_op *next;
};

struct sim_disk {
	uint8_t there; /* the job exists */
	struct zd_job_image image;
	struct sim_planes planes[SIM_UNITS_MAX];
	struct sim_store_op *first, **last;
	zd_time last_due;
};

struct sim_lane {
	struct sim_world *world;
	uint32_t index, host, lane; /* of the job; of the host */
	struct zd_core *core;	    /* NULL: down */
	void *arena, *slab;
	uint64_t life;
	struct sim_conn **conns;    /* by slot */
	uint32_t gens;
	zd_time tick_at;
	uint8_t idle_due;
	struct sim_disk disk;
	struct zd_kernel_result *results;
	uint32_t result_first, result_count, result_cap;

	/* checks */
	struct zd_job_view view;
	uint8_t known;
	uint64_t planes_checked; /* 1 + version that was compared last */
	struct zd_ballot joined; /* the highest that JOINED has told */
	uint8_t lost;		 /* crashed without a store */
	uint64_t discards, discards_seen;
};

/* ---------------------------------------------------------------- workers */

enum sim_op_kind { SIM_OP_GATHER, SIM_OP_PUSH, SIM_OP_RELEASE, SIM_OP_FLUSH, SIM_OP_FETCH, SIM_OP_STEP };

struct sim_op {
	enum sim_op_kind kind;
	uint8_t unit, micro;
	uint8_t flag; /* RELEASE: keep; PUSH: wait for it; FETCH: plane */
};

#define SIM_OPS_MAX 512u
#define SIM_OPEN_MAX 256u

struct sim_request {
	uint64_t id; /* 0: free */
	enum zd_session_event_type type;
	uint32_t unit, micro;
	uint64_t round, salt, version;
	uint8_t plane, wait;
	uint8_t *data;
	size_t bytes;
};

enum sim_phase { SIM_T_CONNECT, SIM_T_LOAD, SIM_T_SEAL, SIM_T_ROUND, SIM_T_REST, SIM_T_ENDED };

struct sim_worker {
	struct sim_world *world;
	uint64_t epoch; /* 0: a reader */
	uint32_t rank, size, micro;
	uint64_t process;
	struct zd_session *session; /* NULL: ended */
	struct sim_conn **conns;    /* by slot */
	zd_time tick_at;
	zd_time paused_until;
	struct sim_rng rng;

	enum sim_phase phase, was;
	uint32_t held[SIM_UNITS_MAX];
	uint64_t fetched_round;
	int status; /* why it ended; -1: killed */
	char text[256];
	uint64_t requests;
	struct sim_request open[SIM_OPEN_MAX];
	uint32_t open_count;
	struct sim_done *dones; /* of this step of the session, not yet told */
	uint32_t done_count;
	struct sim_op ops[SIM_OPS_MAX];
	uint32_t op_count, op_at;
	uint8_t waiting;	/* for a DONE before the next operation */
	uint8_t again;		/* told to compute again */
	uint8_t training;	/* SIM_E_TRAIN is scheduled */
	uint8_t loader;
	uint32_t load_next, loads_open;
	uint64_t computations, salt;
	uint64_t round, version; /* being computed */
	uint64_t done_rounds, redos;
	uint64_t sums[SIM_UNITS_MAX]; /* reader: fetches per unit */
};

/* ---------------------------------------------------------------- oracle */

struct sim_candidate { /* what a record of this name must hold */
	uint64_t round;
	struct zd_ballot ballot;
	uint64_t *salts; /* [rank][micro][unit]; 0: nothing was sent */
	uint8_t computed[SIM_UNITS_MAX];
	float *sums[SIM_UNITS_MAX];
	struct zd_normacc norms[SIM_LANES_MAX];
	uint64_t nonfinite[SIM_LANES_MAX];
	uint32_t bad_unit[SIM_LANES_MAX], bad_rank[SIM_LANES_MAX];
	uint64_t bad_element[SIM_LANES_MAX];
};

struct sim_oracle {
	struct sim_candidate **candidates;
	uint32_t candidate_count, candidate_cap;
	struct zd_piece pieces[SIM_UNITS_MAX * SIM_LANES_MAX];
	float *initial[SIM_UNITS_MAX];
	uint16_t *hi[SIM_UNITS_MAX], *lo[SIM_UNITS_MAX];
	float *m[SIM_UNITS_MAX], *v[SIM_UNITS_MAX];
	uint16_t **weights[SIM_UNITS_MAX]; /* [version] */
	uint32_t version_cap;
	uint64_t version, decided;
	struct zd_decision *decisions; /* [round] */
	uint32_t decision_cap;
};

struct sim_launch {
	uint64_t epoch;
	uint32_t size, micro;
	uint64_t id;
};

struct sim_counts {
	uint64_t up[ZD_MSG_MAX], down[ZD_MSG_MAX]; /* frames, over all lanes */
	uint64_t lane_frames[SIM_LANES_MAX];
};

/* ---------------------------------------------------------------- the world */

struct sim_world {
	struct sim_config config;
	struct sim_rng rng;
	zd_time now;
	struct sim_event *heap;
	uint32_t heap_count, heap_cap;
	uint64_t seq, steps;
	uint64_t hash; /* of everything that happened */

	struct sim_lane *lanes;
	uint32_t lane_count;
	struct sim_worker **workers; /* all that ever were; readers too */
	uint32_t worker_count, worker_cap;
	struct sim_conn **conns;
	uint32_t conn_count, conn_cap;
	struct sim_launch launches[SIM_EPOCHS_MAX];
	uint32_t launch_count;
	zd_time launch_after;
	uint8_t launcher_due;

	/* network faults, by host: until when nothing passes from ([0]) or to ([1]) the workers whose (rank & 1) is in the mask */
	zd_time blocked[SIM_HOSTS_MAX][2];
	uint32_t blocked_ranks[SIM_HOSTS_MAX][2];
	uint32_t slow_percent; /* of drains that take long */

	void (*fault)(struct sim_world *w); /* on SIM_E_FAULT */
	void (*on_frame)(struct sim_world *w, struct sim_conn *c, int up, struct sim_mark *mark); /* scenario's look at every frame */
	void *scenario;
	uint64_t faults, target;
	zd_time faults_end;
	uint8_t calm; /* faults are over */

	struct sim_oracle oracle;
	struct sim_counts counts;
	uint64_t redos, aborts, skipped, crashes, discards, stale, errors, resets;
	uint32_t attempts_max;

	struct zd_actions *actions;
	struct zd_session_actions *session_actions;
	struct zd_arena arena;

	char failure[512]; /* "": none */
	char *trace;
	size_t trace_len, trace_cap;
};

/* ---- world.c */
struct sim_world *sim_new(const struct sim_config *config);
void sim_free(struct sim_world *w);
void sim_at(struct sim_world *w, zd_time at, enum sim_event_kind kind, void *object, uint64_t life);
void sim_after(struct sim_world *w, zd_time delay_max, enum sim_event_kind kind, void *object, uint64_t life); /* 0 .. delay_max */
int sim_turn(struct sim_world *w); /* one event; 0: none left or failed */
int sim_run_until(struct sim_world *w, int (*done)(struct sim_world *w), zd_time within); /* 1: done */
int sim_reached(struct sim_world *w); /* every lane has decided the target and everything settled */
void sim_fail(struct sim_world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_trace(struct sim_world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_hash(struct sim_world *w, uint64_t x);
zd_time sim_delay(struct sim_world *w, zd_time max);
struct sim_launch *sim_launch(struct sim_world *w, uint32_t size, uint32_t micro); /* the next epoch, with its workers */
const struct sim_launch *sim_launch_of(const struct sim_world *w, uint64_t epoch);
void sim_add_reader(struct sim_world *w, uint32_t number);
struct sim_worker *sim_worker_of(struct sim_world *w, uint64_t epoch, uint32_t rank);
void *sim_alloc(size_t size); /* zeroed; never NULL */
void *sim_grow(void *old, uint32_t count, uint32_t *cap, size_t size);

/* ---- net.c */
struct sim_conn *sim_connect(struct sim_worker *worker, uint32_t slot, uint32_t gen, struct sim_lane *lane);
void sim_send(struct sim_conn *c, int up, const uint8_t *frame, uint32_t frame_len, const uint8_t *payload, uint32_t payload_len, uint64_t token);
void sim_net_event(struct sim_world *w, const struct sim_event *e);
void sim_client_close(struct sim_conn *c);			   /* by the session */
void sim_server_close(struct sim_conn *c, int flush);		   /* by the core */
void sim_reset(struct sim_conn *c, int ghost, int half_open);	   /* by the network */
void sim_client_gone(struct sim_conn *c, int silent);		   /* the process died */
void sim_server_gone(struct sim_conn *c, int silent);		   /* the daemon died */
void sim_kick(struct sim_conn *c);				   /* the core's window may have opened */
void sim_release_holds(struct sim_world *w);
void sim_block(struct sim_world *w, uint32_t host, int up, uint32_t ranks, zd_time until);
void sim_unblock(struct sim_world *w);
void sim_conn_free(struct sim_conn *c);

/* ---- lane.c */
void sim_lane_init(struct sim_lane *lane);
void sim_lane_start(struct sim_lane *lane);
void sim_lane_crash(struct sim_lane *lane, int silent, int keep_percent, zd_time down);
void sim_lane_feed(struct sim_lane *lane, struct zd_event *event);
void sim_lane_event(struct sim_world *w, const struct sim_event *e);
void sim_lane_fini(struct sim_lane *lane);
void *sim_pages(size_t bytes);
void sim_pages_back(void *base);
void sim_pages_free(void); /* what is kept for later worlds */

/* ---- disk.c */
void sim_disk_submit(struct sim_lane *lane, const struct zd_action *action);
int sim_disk_done(struct sim_lane *lane, uint64_t *ret_token); /* the first operation, if it is due: becomes durable */
void sim_disk_crash(struct sim_lane *lane, int keep_percent);
void sim_disk_restore(struct sim_lane *lane);
void sim_disk_fini(struct sim_lane *lane);

/* ---- worker.c */
struct sim_worker *sim_worker_new(struct sim_world *w, const struct sim_launch *launch, uint32_t rank); /* launch NULL: a reader */
void sim_worker_feed(struct sim_worker *worker, struct zd_session_event *event);
void sim_worker_event(struct sim_world *w, const struct sim_event *e);
void sim_worker_kill(struct sim_worker *worker, int silent);
void sim_worker_pause(struct sim_worker *worker, zd_time until);
void sim_worker_free(struct sim_worker *worker);
int sim_worker_lives(const struct sim_worker *worker);
struct sim_request *sim_worker_post(struct sim_worker *worker, struct zd_session_event *event); /* a request; fills id */
struct sim_request *sim_worker_request(struct sim_worker *worker, uint64_t id);

/* ---- trainer.c */
void sim_trainer_start(struct sim_worker *worker);
void sim_trainer_done(struct sim_worker *worker, struct sim_request *request, int status, const char *text, const uint16_t *weights);
void sim_trainer_go(struct sim_worker *worker);

/* ---- oracle.c */
void sim_oracle_init(struct sim_world *w);
void sim_oracle_fini(struct sim_world *w);
struct zd_hyper sim_hyper(const struct sim_world *w, uint64_t epoch, uint64_t round);
void sim_gradient(const struct sim_world *w, uint64_t salt, uint64_t round, uint32_t rank, uint32_t size, uint32_t micro, uint32_t unit, void *out);
struct sim_candidate *sim_candidate(struct sim_world *w, uint64_t round, struct zd_ballot ballot);
void sim_oracle_pushed(struct sim_world *w, struct zd_ballot ballot, uint64_t round, uint32_t rank, const struct sim_request *request);
void sim_oracle_record(struct sim_world *w, struct sim_lane *lane, const struct zd_record *record);
void sim_oracle_decided(struct sim_world *w, struct sim_lane *lane, const struct zd_decision *decision);
void sim_oracle_planes(struct sim_world *w, struct sim_lane *lane);
void sim_oracle_result(struct sim_world *w, struct sim_worker *worker, const struct zerod_step_result *result);

/* ---- check.c */
void sim_check_lane(struct sim_lane *lane);			   /* after every event of the lane */
void sim_check_agreement(struct sim_world *w);			   /* I3, I5, I9 */
void sim_check_down(struct sim_conn *c, uint16_t type, const uint8_t *head, uint32_t len); /* what a lane says */
void sim_check_up(struct sim_conn *c, uint16_t type, const uint8_t *head, uint32_t len, const uint8_t *payload, struct sim_mark *mark);
void sim_check_discard(struct sim_lane *lane, struct zd_ballot record);
void sim_check_end(struct sim_world *w);			   /* I14, I16, when the run is over */
int sim_check_quiet(struct sim_conn *c, uint64_t from, uint64_t to); /* I2: only frames of other ballots than the promise */
void sim_check_restart(struct sim_lane *lane);

/* ---- chaos.c */
void sim_chaos_config(struct sim_config *config, uint64_t seed, int faults);
/* Runs the world of this seed; 0, or 1 with a text of what was violated.  ret_hash: of the trace. */
int sim_chaos_run(uint64_t seed, int faults, int verbose, char *text, size_t text_size, uint64_t *ret_hash);
struct sim_totals {
	uint64_t worlds, rounds, events, faults, crashes, resets, redos, aborts, skipped, discards, stale;
};
extern struct sim_totals sim_totals;

#endif
