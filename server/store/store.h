/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a lane's state becomes durable.  The core emits STORE actions; the shell submits them here and turns completions into STORED
 * events, in the order of submission.  A completion is always an event of its own, never the return of the submission, so that nothing
 * in the core depends on how fast a store is.
 *
 * Backend `none`: nothing is kept, state lives in memory alone, and every operation is complete at once.
 *
 * Threads: a store belongs to its lane's thread.  It knows no libuv: a backend whose completions come later offers a descriptor to
 * watch (zd_store_fd), which becomes readable when zd_store_next has something.
 */
#ifndef ZD_STORE_STORE_H
#define ZD_STORE_STORE_H

#include <stdint.h>

#include "server/core/core.h"

/* Operations that may be open at once: a core has at most one per job and kind in flight, and zd_store_submit asserts it. */
#define ZD_STORE_OPEN_MAX 128u

struct zd_store_op {
	uint64_t token; /* comes back with the completion */
	enum zd_store_kind kind;
	/* Lent for the duration of zd_store_submit; a backend copies what it needs. */
	const struct zd_spec *spec;
	struct zd_ballot ballot;
	const struct zd_record *record;
	const struct zd_decision *decision;
};

struct zd_store_completion {
	uint64_t token;
	int status; /* 0 or a negative errno */
};

struct zd_store;

struct zd_store_backend {
	const char *name;
	void (*submit)(struct zd_store *store, const struct zd_store_op *op);
	int (*fd)(const struct zd_store *store); /* -1: completions are there as soon as submit returns */
	void (*fini)(struct zd_store *store);
};

struct zd_store {
	const struct zd_store_backend *backend;
	uint32_t first, count; /* ring of completions not yet taken */
	struct zd_store_completion done[ZD_STORE_OPEN_MAX];
};

/* Embedded in its owner.  The backend `none` needs nothing and cannot fail. */
void zd_store_init_none(struct zd_store *store);
void zd_store_fini(struct zd_store *store);

const char *zd_store_name(const struct zd_store *store);
void zd_store_submit(struct zd_store *store, const struct zd_store_op *op);
/* The next completion: 1 taken, 0 none. */
int zd_store_next(struct zd_store *store, struct zd_store_completion *ret_completion);
int zd_store_fd(const struct zd_store *store);

/* For backends: notes that an operation is complete. */
void zd_store_complete(struct zd_store *store, uint64_t token, int status);

#endif
