/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ballots and workers: who may change the job, and until when they are believed to be alive.
 *
 * A lane serves exactly the ballot it has promised.  A higher one is promised at once, which fences everybody else, and answered when the
 * promise is durable.  While a record is written, every JOIN waits: then the record is prepared and can be reported.
 *
 * Leases: workers that have joined stand in a list by the time they were last heard.  A lease that has run out ends the attempt only
 * while somebody waits for that worker: a round is being collected, or some rank has not joined yet.  A worker that left after its
 * last round is not missed, and one whose connection the lane does not read (on hold) is not blamed for its silence.
 *
 * Time in which the lane itself is away (a stopped process, a sleeping machine) does not count.  It shows in a TICK that is late: while leases
 * run, or lent memory is waited for, one is due every BEATth part of the shortest lease, so that no more than this of an absence counts, and less than a lease of several ones
 * between which the lane reads what was said meanwhile.
 */
#include <string.h>

#include "proto/assert.h"
#include "proto/text.h"
#include "server/core/state.h"

#define BEAT 8u /* a client speaks every quarter: with an eighth, more than half a lease is left for a new connection */

/* ---------------------------------------------------------------- the list by time; entries are 1 + rank, 0 ends it */

static void unlink_worker(struct zd_job *j, uint32_t rank)
{
	struct zd_worker *w = &j->worker[rank];

	if (w->prev)
		j->worker[w->prev - 1].next = w->next;
	else
		j->oldest = w->next;
	if (w->next)
		j->worker[w->next - 1].prev = w->prev;
	else
		j->newest = w->prev;
	w->next = w->prev = 0;
}

static void link_newest(struct zd_job *j, uint32_t rank)
{
	struct zd_worker *w = &j->worker[rank];

	w->prev = j->newest;
	w->next = 0;
	if (j->newest)
		j->worker[j->newest - 1].next = (uint8_t)(rank + 1);
	else
		j->oldest = (uint8_t)(rank + 1);
	j->newest = (uint8_t)(rank + 1);
}

void zd_lease_renew(struct zd_core *core, struct zd_conn *c)
{
	struct zd_job *j = zd_job_of(core, c);

	if (!j || !c->joined)
		return;
	j->worker[c->rank].seen = core->now;
	if (j->newest == c->rank + 1)
		return;
	unlink_worker(j, c->rank);
	link_newest(j, c->rank);
}

static int somebody_waits(const struct zd_job *j)
{
	if (j->state == ZD_ROUND_COLLECTING)
		return 1;
	if (j->state == ZD_ROUND_UNSEALED)
		return j->joined > 1; /* any of them may have the weights that are missing */
	return j->state == ZD_ROUND_EMPTY && j->joined > 1 && j->joined < j->world;
}

zd_time zd_lease_deadline(const struct zd_job *j)
{
	if (!j->oldest || !somebody_waits(j))
		return ZD_TIME_NEVER;
	return j->worker[j->oldest - 1].seen + ZD_MS(j->spec.lease_ms);
}

/* The unit that the rank should push next: the last one that is not complete, for backward goes that way. */
static const char *expected_unit(const struct zd_job *j, uint32_t rank)
{
	for (uint32_t u = j->spec.unit_count; u-- > 0;)
		if (!j->spec.units[u].frozen && j->pos[(size_t)rank * j->spec.unit_count + u] < (uint64_t)j->units[u].extents * (j->micro ? j->micro : 1))
			return j->spec.units[u].name;
	return NULL;
}

/* Silence that the lane itself causes, by not reading on, is nobody's death. */
static int is_held(const struct zd_conn *c)
{
	return c && !c->closing && c->hold != ZD_HOLD_NO;
}

static void renew_held(struct zd_core *core, struct zd_job *j)
{
	for (uint32_t n = j->joined; n > 0 && zd_lease_deadline(j) <= core->now; n--) {
		struct zd_conn *c = zd_core_conn(core, j->worker[j->oldest - 1].conn);

		if (!is_held(c))
			return;
		zd_lease_renew(core, c);
	}
}

static int is_absent(struct zd_core *core, const struct zd_job *j, const struct zd_worker *w)
{
	return !w->joined || (w->seen + ZD_MS(j->spec.lease_ms) <= core->now && !is_held(zd_core_conn(core, w->conn)));
}

static void pong(struct zd_core *core, struct zd_conn *c, uint64_t stream, uint64_t token)
{
	const struct zd_job *j = zd_job_of(core, c);
	Zd__Pb__Pong m = ZD__PB__PONG__INIT;
	uint32_t absent[ZD_WORLD_MAX], behind[ZD_WORLD_MAX];

	m.token = token;
	m.has_sealed = j != NULL;
	m.sealed = j && j->sealed;
	m.absent = absent;
	m.behind = behind;
	for (uint32_t r = 0; c->joined && r < j->world; r++) {
		if (is_absent(core, j, &j->worker[r]))
			absent[m.n_absent++] = r;
		else if (!j->worker[r].committed && (j->state == ZD_ROUND_EMPTY || j->state == ZD_ROUND_COLLECTING))
			behind[m.n_behind++] = r;
	}
	zd_emit(core, c, ZD_MSG_PONG, stream, &m.base);
}

void zd_join_ping(struct zd_core *core, struct zd_conn *c, const Zd__Pb__Ping *m)
{
	pong(core, c, c->reader.header.stream, m->token);
}

void zd_join_reassure(struct zd_core *core, struct zd_conn *c)
{
	const struct zd_job *j = zd_job_of(core, c);
	zd_time last = c->told > c->heard ? c->told : c->heard;

	if (!j || !c->joined || core->now - last < ZD_MS(j->spec.lease_ms) / 4 || zd_emit_full(core))
		return;
	c->told = core->now;
	pong(core, c, 0, 0);
}

static zd_time later(const struct zd_core *core, zd_time at, zd_time by)
{
	return at < core->now - by ? at + by : core->now;
}

void zd_lease_absence(struct zd_core *core)
{
	zd_time since = core->beat > core->before ? core->beat : core->before;

	if (core->now <= since) /* always, while no TICK is due */
		return;
	core->away += core->now - since;
	for (uint32_t i = 0; i < core->config.max_jobs; i++) {
		struct zd_job *j = &core->job[i];

		if (!j->used)
			continue;
		for (uint32_t at = j->oldest; at; at = j->worker[at - 1].next)
			j->worker[at - 1].seen = later(core, j->worker[at - 1].seen, core->now - since);
	}
}

void zd_lease_beat(struct zd_core *core)
{
	zd_time next = ZD_TIME_NEVER;

	for (uint32_t i = 0; i < core->config.max_jobs; i++) {
		const struct zd_job *j = &core->job[i];
		zd_time at = core->now + ZD_MS(j->spec.lease_ms) / BEAT;

		if (j->used && at < next && (zd_lease_deadline(j) != ZD_TIME_NEVER || zd_fetch_deadline(core, j) != ZD_TIME_NEVER))
			next = at;
	}
	if (next == ZD_TIME_NEVER || next < core->beat || core->beat <= core->ticked)
		core->beat = next;
}

void zd_lease_check(struct zd_core *core, struct zd_job *j)
{
	uint32_t missing[ZD_WORLD_MAX], rank;
	size_t n = 0;
	const char *unit;

	if (zd_lease_deadline(j) > core->now)
		return;
	renew_held(core, j);
	if (zd_lease_deadline(j) > core->now)
		return;
	for (uint32_t at = j->oldest; at; at = j->worker[at - 1].next)
		if (is_absent(core, j, &j->worker[at - 1]))
			missing[n++] = at - 1;
	ZD_ASSERT(n > 0);
	rank = missing[0];
	unit = expected_unit(j, rank);
	zd_text_fail(0, core->text, sizeof core->text,
		     "round %llu: rank %u was last heard %llu ms ago, the lease is %u ms; expected next was %s%s: start a higher epoch",
		     (unsigned long long)(j->decided + 1), rank, (unsigned long long)((core->now - j->worker[rank].seen) / 1000000u),
		     j->spec.lease_ms,
		     !j->sealed			? "its part of the initial weights"
		     : unit			? "a push of unit "
		     : j->worker[rank].committed ? "nothing, it has committed"
						 : "its COMMIT",
		     j->sealed && unit ? unit : "");
	zd_round_end(core, j, ZD_ERR_LEASE, missing, n, core->text);
}

/* ---------------------------------------------------------------- joining */

void zd_join_leave(struct zd_core *core, struct zd_conn *c)
{
	struct zd_job *j = zd_job_of(core, c);

	(void)core;
	if (!j || !c->joined)
		return;
	c->joined = 0; /* the worker stays joined: it may come back within its lease */
	if (j->worker[c->rank].conn.slot == c->slot && j->worker[c->rank].conn.gen == c->gen)
		j->worker[c->rank].conn = (struct zd_conn_id){ZD_NONE, 0};
}

void zd_join_clear(struct zd_core *core, struct zd_job *j)
{
	for (uint32_t i = j->conns; i != ZD_NONE; i = core->conn[i].job_next)
		core->conn[i].joined = 0;
	for (uint32_t r = 0; r < ZD_WORLD_MAX; r++) {
		struct zd_worker *w = &j->worker[r];

		w->joined = w->committed = 0;
		w->next = w->prev = 0;
		w->out = 0;
		w->freed = w->told = 0;
		w->conn = (struct zd_conn_id){ZD_NONE, 0};
	}
	j->joined = 0;
	j->oldest = j->newest = 0;
}

static void refuse_low(struct zd_core *core, struct zd_conn *c, const struct zd_job *j, const struct zd_join *m)
{
	int over = zd_ballot_cmp(m->ballot, j->promise) == 0;

	if (over)
		zd_text_fail(0, core->text, sizeof core->text, "%s", j->ended_text);
	else
		zd_text_fail(0, core->text, sizeof core->text, "JOIN of ballot (%llu, %u), this lane has promised (%llu, %u): %s",
			     (unsigned long long)m->ballot.epoch, m->ballot.attempt, (unsigned long long)j->promise.epoch, j->promise.attempt,
			     m->ballot.epoch < j->promise.epoch ? "a newer launch has taken the job, stop" : "join that attempt");
	zd_emit_aborted(core, c, m->stream, m->ballot, over ? j->ended_code : ZD_ERR_BALLOT_LOW, NULL, 0, core->text);
}

/* The way out for a launch that is not the one of the epoch. */
#define NEXT_LAUNCH "start all ranks with epoch %llu (zerod_options.epoch, zerod-lm --epoch), or drop the job (zeroctl --yes job drop %s)"

/* What must hold for a rank, world and launch within one epoch: 0, else an error was sent. */
static int check_epoch(struct zd_core *core, struct zd_conn *c, const struct zd_job *j, const struct zd_join *m)
{
	const struct zd_worker *w = &j->worker[m->rank];
	struct zd_about about = {ZD_NONE, m->rank};
	unsigned long long epoch = m->ballot.epoch;

	if (m->ballot.epoch != j->promise.epoch || j->world == 0)
		return 0;
	if (m->launch != j->launch) {
		zd_emit_error(core, c, m->stream, ZD_ERR_LAUNCH_DIFFERS, about,
			      "epoch %llu belongs to launch %016llx, rank %u comes from launch %016llx: " NEXT_LAUNCH, epoch,
			      (unsigned long long)j->launch, m->rank, (unsigned long long)m->launch, epoch + 1, j->spec.name);
		return -1;
	}
	if (m->world != j->world) {
		zd_emit_error(core, c, m->stream, ZD_ERR_WORLD_DIFFERS, about,
			      "rank %u says %u workers, epoch %llu has %u: if their number is to change, " NEXT_LAUNCH, m->rank, m->world, epoch,
			      j->world, epoch + 1, j->spec.name);
		return -1;
	}
	if (w->known && w->process != m->process) {
		zd_emit_error(core, c, m->stream, ZD_ERR_RANK_TAKEN, about,
			      "rank %u of epoch %llu is process %016llx, this is process %016llx: if no two workers were given one rank, " NEXT_LAUNCH,
			      m->rank, epoch, (unsigned long long)w->process, (unsigned long long)m->process, epoch + 1, j->spec.name);
		return -1;
	}
	if (w->known && (w->conn.slot != c->slot || w->conn.gen != c->gen) &&
	    (m->link < w->link || (m->link == w->link && (!c->has_rank || c->link != m->link)))) {
		zd_emit_error(core, c, m->stream, ZD_ERR_OUT_OF_ORDER, about,
			      "link %u of rank %u is older than its link %u: count connections upward", m->link, m->rank, w->link);
		return -1;
	}
	return 0;
}

static int reserve(struct zd_core *core, struct zd_conn *c, struct zd_job *j, const struct zd_join *m)
{
	if (zd_window_reserve(core, j, m->world) == 0)
		return 0;
	zd_emit_error(core, c, m->stream, ZD_ERR_NO_ROOM, (struct zd_about){ZD_NONE, m->rank},
		      "%u workers need a receive window each and %u more, free are %u of %u: raise memory.windows, or drop a job", m->world,
		      ZD_MERGE_WINDOWS, zd_window_available(core) + j->reserved, core->config.windows);
	return -1;
}

/* Promises the ballot: from here on nobody else is served. */
static int promise(struct zd_core *core, struct zd_conn *c, struct zd_job *j, const struct zd_join *m)
{
	struct zd_ballot old = j->promise;
	int new_epoch = m->ballot.epoch != j->promise.epoch || j->world == 0;

	if ((new_epoch || j->reserved == 0) && reserve(core, c, j, m) < 0)
		return -1;
	zd_text_fail(0, core->text, sizeof core->text, "ballot (%llu, %u) is over: rank %u has begun (%llu, %u)", (unsigned long long)old.epoch,
		     old.attempt, m->rank, (unsigned long long)m->ballot.epoch, m->ballot.attempt);
	zd_round_void(core, j);
	j->promise = m->ballot;
	for (uint32_t i = j->conns; i != ZD_NONE; i = core->conn[i].job_next)
		if (core->conn[i].joined && &core->conn[i] != c)
			zd_emit_aborted(core, &core->conn[i], 0, old, ZD_ERR_BALLOT_LOW, NULL, 0, core->text);
	zd_join_clear(core, j);
	if (new_epoch) {
		j->launch = m->launch;
		j->world = m->world;
		for (uint32_t r = 0; r < ZD_WORLD_MAX; r++)
			j->worker[r].known = 0;
	}
	j->ended = 0;
	j->promising = 1;
	zd_emit_log(core, ZD_LOG_INFO, "event=promise job=%s ballot=%llu.%u rank=%u world=%u credit=%u", j->spec.name,
		    (unsigned long long)j->promise.epoch, j->promise.attempt, m->rank, j->world, j->credit);
	zd_emit_store(core, j, ZD_STORE_PROMISE);
	return 0;
}

static void joined(struct zd_core *core, struct zd_conn *c, struct zd_job *j, const struct zd_join *m)
{
	struct zd_worker *w = &j->worker[m->rank];
	struct zd_conn *old = zd_core_conn(core, w->conn);

	if (old && old != c) {
		zd_emit_log(core, ZD_LOG_INFO, "event=fence job=%s rank=%u link=%u older=%u", j->spec.name, m->rank, m->link, w->link);
		zd_emit_close(core, old, 0);
	}
	if (w->joined) {
		unlink_worker(j, m->rank);
	} else {
		w->joined = 1;
		j->joined++;
	}
	link_newest(j, m->rank);
	w->seen = core->now;
	w->known = 1;
	w->process = m->process;
	w->link = m->link;
	w->conn = (struct zd_conn_id){c->slot, c->gen};
	w->freed = w->told = 0;
	c->joined = c->has_rank = 1;
	c->rank = m->rank;
	c->link = m->link;
	c->process = m->process;
	c->ballot = j->promise;
	zd_emit_joined(core, c, m->stream);
}

/* Answers a JOIN, or makes it wait for the store. */
static void serve(struct zd_core *core, struct zd_conn *c, struct zd_job *j, const struct zd_join *m)
{
	int cmp = zd_ballot_cmp(m->ballot, j->promise);

	if (cmp < 0 || (cmp == 0 && j->ended)) {
		refuse_low(core, c, j, m);
		return;
	}
	if (check_epoch(core, c, j, m) < 0)
		return;
	if (cmp == 0 && j->reserved == 0 && reserve(core, c, j, m) < 0)
		return;
	if (cmp == 0 && !j->promising && j->state != ZD_ROUND_WRITING) {
		joined(core, c, j, m);
		return;
	}
	if (cmp > 0 && !j->promising && j->state != ZD_ROUND_WRITING && promise(core, c, j, m) < 0)
		return;
	c->join = *m;
	c->wait = ZD_WAIT_JOIN;
	c->hold = ZD_HOLD_STORE;
}

void zd_join_request(struct zd_core *core, struct zd_conn *c, const Zd__Pb__Join *m)
{
	struct zd_job *j = zd_job_of(core, c);
	struct zd_join join = {
		.ballot = {m->ballot->epoch, m->ballot->attempt}, .launch = m->launch, .process = m->process, .stream = c->reader.header.stream,
		.rank = m->rank, .world = m->world, .link = m->link,
	};

	if (m->world < 1 || m->world > ZD_WORLD_MAX || m->rank >= m->world || join.ballot.epoch == 0) {
		zd_emit_error(core, c, join.stream, ZD_ERR_BAD_FIELD, ZD_ABOUT_NOTHING,
			      "JOIN of rank %u of %u in epoch %llu, expected a rank below a world of 1 to %u and an epoch from 1", m->rank, m->world,
			      (unsigned long long)join.ballot.epoch, ZD_WORLD_MAX);
		return;
	}
	if (c->has_rank && (c->rank != m->rank || c->process != m->process)) {
		zd_emit_error(core, c, join.stream, ZD_ERR_OUT_OF_ORDER, (struct zd_about){ZD_NONE, m->rank},
			      "JOIN of rank %u on the connection of rank %u: use one connection for each worker", m->rank, c->rank);
		return;
	}
	serve(core, c, j, &join);
}

static void resume(struct zd_core *core, struct zd_conn *c, struct zd_job *j)
{
	c->wait = ZD_WAIT_NO;
	c->hold = ZD_HOLD_BUDGET;
	zd_core_queue(core, c);
	serve(core, c, j, &c->join);
}

void zd_join_go_on(struct zd_core *core, struct zd_conn *c)
{
	struct zd_job *j = zd_job_of(core, c);

	if (c->wait == ZD_WAIT_JOIN && !j->promising && j->state != ZD_ROUND_WRITING)
		resume(core, c, j);
}

void zd_join_resume(struct zd_core *core, struct zd_job *j)
{
	uint32_t next;

	for (uint32_t i = j->conns; i != ZD_NONE; i = next) {
		struct zd_conn *c = &core->conn[i];

		next = c->job_next;
		if (c->wait != ZD_WAIT_JOIN)
			continue;
		if (zd_emit_full(core))
			zd_core_queue(core, c); /* a later step answers it */
		else
			resume(core, c, j);
	}
}
