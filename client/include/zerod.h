/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libzerod: the client side of zerod, for trainers.
 *
 * A trainer describes its model as units (flat vectors that are gathered and reduced together, like FSDP's), connects to the daemons
 * that own the fp32 master weights and the Adam moments, and then repeats:
 *
 *     for each unit, forward:    zerod_gather -> compute -> zerod_release
 *     for each unit, backward:   zerod_gather -> compute -> zerod_push (bf16 gradient) -> zerod_release
 *     zerod_step                 the two-phase commit of all workers and all lanes
 *
 * The library prefetches the next units in the order they were used last time, never holds more gathered bytes than the rate limiter
 * allows, reconnects and resends when a connection drops, and tells when a step must be computed again.
 *
 * Units are named by their index in zerod_new.  Tensors are plain arrays, aligned as their elements are.
 *
 * Threads: the library runs one thread of its own per client (the pump).  Every function may be called from any thread, from several at once
 * and from callbacks; operations begin in the order of the calls.  zerod_free is the last call on a client: none may be under way.
 * Completions run on the pump thread, one at a time, and hold up everything until they return: blocking functions return ZEROD_ERR_STATE there.
 * A forked child has no pump: every function but zerod_free returns ZEROD_ERR_STATE there, and it makes clients of its own.  Until it
 * ends or execs it holds copies of the connections, so that daemons notice the end of its parent by the lease only.
 *
 * Buffers handed in are borrowed until the operation completes; what is sent must stay unchanged until then, what is fetched may be written to
 * in any order.  Memory that functions return belongs to the client unless they say otherwise.
 * Nothing here prints, exits, aborts on bad input, touches errno or signal handlers.
 *
 * Every operation has a form that returns at once (_start) and reports through a callback, and a blocking form built on it.  Where _start
 * returns 0, `done` is called exactly once, maybe before _start returns; where it does not, never.  `done` may be NULL.  At most 8192
 * operations may be open.  zerod_push_flush waits for the pushes that were started.
 * Timeouts: zerod_options.timeout_ms bounds each blocking call, connect_timeout_ms zerod_connect (0: no bound); what was waited for is in
 * zerod_detail.  Operations that were started have no bound.
 */
#ifndef ZEROD_H
#define ZEROD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#ifdef __GNUC__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow" /* some structs have the name of the function that fills them */
#endif
#endif

#if defined(__GNUC__)
#define ZEROD_API __attribute__((visibility("default")))
#define ZEROD_MUST_USE __attribute__((warn_unused_result))
#else
#define ZEROD_API
#define ZEROD_MUST_USE
#endif

/* Results.  0 is success; the numbers are stable. */
enum zerod_status {
	ZEROD_OK = 0,
	ZEROD_ERR_ARGUMENT = 1,	   /* the call itself is wrong; nothing was sent */
	ZEROD_ERR_STATE = 2,	   /* not allowed now (push after commit, gather before connect, ...) */
	ZEROD_ERR_MEMORY = 3,
	ZEROD_ERR_CONNECT = 4,	   /* a daemon cannot be reached, or is not a zerod */
	ZEROD_ERR_TIMEOUT = 5,	   /* the detail names lane, rank and unit waited for */
	ZEROD_ERR_REFUSED = 6,	   /* a daemon refused the job, the worker or the operation: detail has its words */
	/* The next four are final: every later operation of the client ends with the same. */
	ZEROD_ERR_ABORTED = 7,	   /* the step was ended for all: a worker's lease ran out, parameters differ, ...; start a higher epoch */
	ZEROD_ERR_STALE = 8,	   /* a higher epoch exists: this worker must stop */
	ZEROD_ERR_LOST = 9,	   /* daemons lost the job's state: no later launch can go on either, the job must be dropped and begun anew */
	ZEROD_ERR_PROTOCOL = 10,   /* a peer broke the protocol */
	ZEROD_REDO = 11,	   /* not an error: contributions were lost with a connection or a lane; compute this step again */
	ZEROD_ERR_CANCELED = 12,   /* zerod_free came before its end */
};

ZEROD_API const char *zerod_status_text(int status);
ZEROD_API const char *zerod_version(void); /* "0.1.0" */

enum zerod_codec { ZEROD_BF16 = 0, ZEROD_FP16 = 1, ZEROD_FP32 = 2 };
enum zerod_optimizer {
	ZEROD_OPTIMIZER_NONE = 0,  /* stage 0: the daemons only reduce; the worker keeps weights and optimizer */
	ZEROD_OPTIMIZER_ADAMW = 1,
	ZEROD_OPTIMIZER_ADAM = 2,  /* Adam with L2 */
};

struct zerod_client;

/* Where the job stands. */
struct zerod_progress {
	uint64_t round;	 /* last decided round: the data loader goes on with round + 1 */
	uint64_t step;	 /* optimizer steps applied = version of the weights */
	uint32_t sealed; /* initial weights are complete */
	uint32_t lanes;
	uint64_t absent; /* bit r: rank r never joined this epoch, or is silent for longer than the lease; as the daemons said last, every quarter of a lease */
	uint64_t behind; /* bit r: rank r joined, but has not pushed everything or called zerod_step; while this rank's own step waits, else 0 */
};

/* Called about once a second on the thread of a blocking call, of each that waits, while ranks are absent or behind, so that a person can be told.
 * It must not call the client. */
typedef void zerod_waiting(void *arg, const struct zerod_progress *progress);

struct zerod_options {
	size_t size;		  /* sizeof(struct zerod_options); set by zerod_options_init */
	const char *endpoints;	  /* "host:port,host:port": the daemons, in an order that all workers share */
	const char *job;	  /* 1 to 63 letters, digits, ".", "_", "-" */
	uint32_t optimizer;	  /* enum zerod_optimizer, default AdamW */
	uint32_t grad_codec;	  /* enum zerod_codec of gradients on the wire, default bf16 */
	uint32_t rank, world;	  /* default 0 of 1, at most 64; world 0: a reader, which can only gather and fetch */
	uint64_t epoch;		  /* of this launch, from 1, the default, to 2^63 - 1; a launcher raises it at each restart */
	uint64_t launch;	  /* id of the launch, equal on all ranks; 0 if there is none */
	uint32_t lease_ms;	  /* silence of a worker after which the step ends for those that wait for it: 100 to 3600000, default 10000 */
	uint32_t timeout_ms;	  /* of blocking calls, default 60000; 0: wait for ever */
	uint32_t connect_timeout_ms; /* of zerod_connect, default 10000; 0: wait for ever */
	uint64_t gather_bytes_max; /* rate limiter: bytes of gathered and in-flight weights, at least the largest unit; 0: the two largest units */
	uint32_t prefetch;	  /* units fetched ahead, default 1; bounded by gather_bytes_max too */
	uint32_t extent_elems;	  /* elements that one frame carries, a power of two from 4096; 0: the most, 131072 (65536 if gradients are fp32) */
	uint32_t create;	  /* 1: create the job where it does not exist, default 1 */
	zerod_waiting *waiting;	  /* NULL, the default: nobody is told */
	void *waiting_arg;
};

ZEROD_API void zerod_options_init(struct zerod_options *options);

struct zerod_unit {
	const char *name; /* as of jobs; no two are equal */
	uint64_t numel;	  /* elements, 1 to 2^40 */
	uint32_t frozen;  /* 1: has no gradient and no moments */
};

/* Creates a client of 1 to 1024 units, at least one of them trained; copies everything.  ZEROD_ERR_ARGUMENT, or ZEROD_ERR_MEMORY where descriptors,
 * threads or memory are short: `detail` (may be NULL) says what is wrong. */
ZEROD_API int zerod_new(struct zerod_client **ret_client, const struct zerod_options *options, const struct zerod_unit *units,
			uint32_t unit_count, char *detail, size_t detail_size) ZEROD_MUST_USE;

/* Ends the pump, closes the connections, frees everything.  Operations that were open complete with ZEROD_ERR_CANCELED first.  NULL is allowed.
 * From a callback it does nothing; in a forked child it leaves the client to the parent. */
ZEROD_API void zerod_free(struct zerod_client *client);

/* What the calling thread's last call failed with, in words: expected, found, what to do.  In a callback: what the operation failed with, until a
 * call of the callback's own fails.  "" where that was another client's.  Valid until the thread's next call. */
ZEROD_API const char *zerod_detail(const struct zerod_client *client);

/* ---- operations */

/* Completion of an operation, on the pump thread. */
typedef void zerod_done(struct zerod_client *client, void *arg, int status);

/* Connects to every lane, opens the job, joins the ballot (workers) and resolves what an earlier launch left, a seal that it had begun included.
 * After it, zerod_progress tells where the job stands.  When its time is over (ZEROD_ERR_TIMEOUT, or
 * ZEROD_ERR_CONNECT while some daemon has not answered at all) it goes on trying: call it again, or give up.  A refusal is final. */
ZEROD_API int zerod_connect_start(struct zerod_client *client, zerod_done *done, void *arg) ZEROD_MUST_USE;
ZEROD_API int zerod_connect(struct zerod_client *client) ZEROD_MUST_USE;

/* As far as this client has seen: a reader sees what came with its last gather or fetch.  ZEROD_ERR_STATE before zerod_connect. */
ZEROD_API int zerod_progress(struct zerod_client *client, struct zerod_progress *ret_progress) ZEROD_MUST_USE;

/* Initial weights of a whole unit: numel finite elements of codec.  Any worker may load any unit; what two of them load must be equal.  A launch that
 * was not the one to seal leaves nothing: the next one may load other weights, and must load all of them.  Once zerod_progress.sealed is 1 it
 * is too late: ZEROD_OK, and the data is neither taken nor compared. */
ZEROD_API int zerod_load_start(struct zerod_client *client, uint32_t unit, uint32_t codec, const void *data, zerod_done *done, void *arg) ZEROD_MUST_USE;
ZEROD_API int zerod_load(struct zerod_client *client, uint32_t unit, uint32_t codec, const void *data) ZEROD_MUST_USE;
/* Makes version 0, after the loads of this client; every unit must be loaded, by whomever.  ZEROD_OK if that is so already. */
ZEROD_API int zerod_seal_start(struct zerod_client *client, zerod_done *done, void *arg) ZEROD_MUST_USE;
ZEROD_API int zerod_seal(struct zerod_client *client) ZEROD_MUST_USE;

/* Weights of a unit at the current version (zerod_progress.step), bf16, numel elements, in memory of the client until zerod_release.
 * Blocks while the rate limiter has no room and until the unit is here, before the seal until that is made; prefetched units are here already.
 * While a step is under way they are of the version before it or after.  Calls nest: each gather needs its release.  A unit that is held keeps its
 * version, also for those who gather it then, until the last release.  `ret_weights` may be NULL. */
ZEROD_API int zerod_gather_start(struct zerod_client *client, uint32_t unit, zerod_done *done, void *arg) ZEROD_MUST_USE;
ZEROD_API int zerod_gather(struct zerod_client *client, uint32_t unit, const uint16_t **ret_weights) ZEROD_MUST_USE;
/* The memory of a unit whose gather has completed; NULL after its last release. */
ZEROD_API const uint16_t *zerod_weights(struct zerod_client *client, uint32_t unit);
/* keep = 1: the weights may stay until the version changes if the limiter has room (reshard_after_forward=False); 0: dropped, unless they are the
 * next to be gathered.  Either way the memory is not the caller's any more. */
ZEROD_API int zerod_release(struct zerod_client *client, uint32_t unit, int keep) ZEROD_MUST_USE;
/* Tells the order of a step's gathers, for prefetching; at most 4096 entries, copied.  Without it (or again with 0 entries) the order of the last
 * step is used. */
ZEROD_API int zerod_plan_gathers(struct zerod_client *client, const uint32_t *units, uint32_t count) ZEROD_MUST_USE;

/* Fetches into the caller's memory, outside the rate limiter: numel elements of the current version (while a step is under way: before it or after);
 * master weights in fp32, weights in bf16.  If it fails, what is in that memory is undefined. */
ZEROD_API int zerod_fetch_master_start(struct zerod_client *client, uint32_t unit, float *dst, zerod_done *done, void *arg) ZEROD_MUST_USE;
ZEROD_API int zerod_fetch_master(struct zerod_client *client, uint32_t unit, float *dst) ZEROD_MUST_USE;
ZEROD_API int zerod_fetch_weights_start(struct zerod_client *client, uint32_t unit, uint16_t *dst, zerod_done *done, void *arg) ZEROD_MUST_USE;
ZEROD_API int zerod_fetch_weights(struct zerod_client *client, uint32_t unit, uint16_t *dst) ZEROD_MUST_USE;
/* Jobs without optimizer: the sum of the gradients of the last decided round (not divided: zerod_step_result.scale does that). */
ZEROD_API int zerod_fetch_gradient_start(struct zerod_client *client, uint32_t unit, float *dst, zerod_done *done, void *arg) ZEROD_MUST_USE;
ZEROD_API int zerod_fetch_gradient(struct zerod_client *client, uint32_t unit, float *dst) ZEROD_MUST_USE;

/* This rank's gradient of a unit in one micro-batch (from 0) of `micro_batches`, 1 to 65536: numel elements of grad_codec.  All trainable units of a
 * micro-batch go before the first of the next one, in any order.  Completes when every lane has counted it; the buffer is borrowed until then.
 * ZEROD_ERR_STATE before some worker has sealed.  After ZEROD_ERR_TIMEOUT some lanes may have counted it: push the same values again, and what was
 * open behind it, of its unit or of later micro-batches.
 * Completes with ZEROD_REDO if the step must be computed again: then every push completes with it, until zerod_push, zerod_push_flush or the step has
 * returned it (or, as zerod_step_start, reported it); from then on the step may be pushed anew, from its first micro-batch. */
ZEROD_API int zerod_push_start(struct zerod_client *client, uint32_t unit, uint32_t micro, uint32_t micro_batches, const void *grad,
			       zerod_done *done, void *arg) ZEROD_MUST_USE;
ZEROD_API int zerod_push(struct zerod_client *client, uint32_t unit, uint32_t micro, uint32_t micro_batches, const void *grad) ZEROD_MUST_USE;
/* Waits until no push borrows memory any more; the first status that was not 0 of those that were started since the last flush or step. */
ZEROD_API int zerod_push_flush(struct zerod_client *client) ZEROD_MUST_USE;

struct zerod_hyper {
	double lr, weight_decay, beta1, beta2, eps; /* bounds: docs/protocol.md, "A step"; ZEROD_ERR_ARGUMENT beyond them */
	double max_norm;   /* 0: no clipping */
	double loss_scale; /* 1: not scaled */
	double weight;	   /* 0: mean over world size times micro-batches; else the divisor of the sum (tokens, ...) */
};
ZEROD_API void zerod_hyper_init(struct zerod_hyper *hyper); /* torch.optim.AdamW's defaults, no clipping */

struct zerod_step_result {
	uint64_t round, step;
	double norm;	    /* of the mean gradient, before clipping; skipped: of what was finite */
	double scale;	    /* factor on the gradient sum: clip / divisor; skipped: 0 */
	uint32_t skipped;   /* 1: a gradient was not finite, the weights are unchanged */
	uint32_t bad_unit;  /* skipped in this launch: the first non-finite element */
	uint32_t bad_rank;
	uint64_t bad_element;
	uint64_t nonfinite; /* elements */
};
/* The two-phase step: COMMIT to all lanes, PREPARED from all, the decision, APPLIED from all.  All ranks must call it with equal
 * hyper-parameters.  Waits for the open pushes first; every unit that is not frozen must be pushed, else ZEROD_ERR_STATE.  Returns ZEROD_REDO if the
 * step must be computed again from its first micro-batch.  After ZEROD_ERR_TIMEOUT the step goes on: call it again with the same parameters.
 * `ret_result` may be NULL. */
ZEROD_API int zerod_step_start(struct zerod_client *client, const struct zerod_hyper *hyper, uint32_t micro_batches, zerod_done *done, void *arg) ZEROD_MUST_USE;
ZEROD_API int zerod_step(struct zerod_client *client, const struct zerod_hyper *hyper, uint32_t micro_batches,
			 struct zerod_step_result *ret_result) ZEROD_MUST_USE;
/* Result of the last step that was decided, by an earlier launch maybe; all 0 if there was none. */
ZEROD_API int zerod_step_result(struct zerod_client *client, struct zerod_step_result *ret_result) ZEROD_MUST_USE;

struct zerod_stats {
	uint64_t payload_sent, payload_received; /* tensor bytes */
	uint64_t wire_sent, wire_received;	 /* all bytes of frames */
	uint64_t frames_sent, frames_received;
	uint64_t gathered_bytes, gathered_bytes_max, gather_bytes_limit; /* weights resident and in flight: now, most ever, bound */
	uint64_t prefetch_hits, prefetch_misses; /* gathers that did not wait, and that did */
	uint64_t reconnects, redos;
};
ZEROD_API int zerod_stats(struct zerod_client *client, struct zerod_stats *ret_stats) ZEROD_MUST_USE;

#ifdef __cplusplus
#ifdef __GNUC__
#pragma GCC diagnostic pop
#endif
}
#endif

#endif
