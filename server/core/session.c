/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OPEN, LOAD and SEAL: how a job comes into being.
 *
 * Initial weights are of one launch.  Until they are sealed, a grain that was loaded before the promised epoch may be loaded anew with other
 * bytes, and one that was loaded in it may not; SEAL wants all of them from one epoch.  Workers of an older launch load and seal nothing.
 */
#include <string.h>

#include "proto/assert.h"
#include "proto/crc32c.h"
#include "proto/text.h"
#include "server/core/state.h"

static void opened(struct zd_core *core, struct zd_conn *c, const struct zd_job *j)
{
	Zd__Pb__Opened m = ZD__PB__OPENED__INIT;

	m.uuid_hi = j->uuid_hi;
	m.uuid_lo = j->uuid_lo;
	m.timeline = j->timeline;
	m.sealed = j->sealed;
	m.decided = j->decided;
	m.version = j->step;
	zd_emit(core, c, ZD_MSG_OPENED, c->reader.header.stream, &m.base);
}

/* Finds the job that is asked for, or makes it.  NULL: refused. */
static struct zd_job *find_or_create(struct zd_core *core, struct zd_conn *c, const struct zd_spec *spec, const Zd__Pb__Open *m)
{
	uint64_t stream = c->reader.header.stream;
	struct zd_job *j = zd_job_find(core, spec->name);
	int rc;

	if (j && j->failed) {
		zd_emit_error(core, c, stream, ZD_ERR_LOST, ZD_ABOUT_NOTHING,
			      "job %s has stopped on this lane, its store failed: repair the disk and restart the daemon", spec->name);
		return NULL;
	}
	if (j) {
		rc = zd_spec_compare(&j->spec, spec, core->text, sizeof core->text);
		if (rc == 0 && j->lane_index == m->lane_index && j->lane_count == m->lane_count)
			return j;
		if (rc == 0)
			zd_emit_error(core, c, stream, ZD_ERR_JOB_DIFFERS, ZD_ABOUT_NOTHING,
				      "job %s: this lane is %u of %u, asked was %u of %u: give every worker the same daemons in the same order as before, or drop the job",
				      spec->name, j->lane_index, j->lane_count, m->lane_index, m->lane_count);
		else
			zd_emit_error(core, c, stream, ZD_ERR_JOB_DIFFERS, ZD_ABOUT_NOTHING,
				      "job %s: %s: give all ranks the same, choose another name for the job, or drop this one", spec->name, core->text);
		return NULL;
	}
	if (!m->create || c->role == ZD_ROLE_READER) {
		zd_emit_error(core, c, stream, ZD_ERR_NO_JOB, ZD_ABOUT_NOTHING, "job %s does not exist on this lane: a worker that may create must open it first",
			      spec->name);
		return NULL;
	}
	if (core->draining) {
		zd_emit_error(core, c, stream, ZD_ERR_DRAINING, ZD_ABOUT_NOTHING, "job %s is not created: daemon %s is shutting down", spec->name,
			      core->config.daemon);
		return NULL;
	}
	rc = zd_job_create(core, spec, m->lane_index, m->lane_count, &j, core->text, sizeof core->text);
	if (rc < 0) {
		zd_emit_error(core, c, stream, -rc, ZD_ABOUT_NOTHING, "%s", core->text);
		return NULL;
	}
	zd_emit_log(core, ZD_LOG_NOTICE, "event=create job=%s lane=%u/%u params=%llu bytes=%llu", j->spec.name, j->lane_index, j->lane_count,
		    (unsigned long long)j->owned, (unsigned long long)j->bytes);
	return j;
}

void zd_session_open(struct zd_core *core, struct zd_conn *c, const Zd__Pb__Open *m)
{
	uint64_t stream = c->reader.header.stream;
	struct zd_spec spec;
	struct zd_job *j;
	int rc;

	if (c->job != ZD_NONE) {
		zd_emit_error(core, c, stream, ZD_ERR_OUT_OF_ORDER, ZD_ABOUT_NOTHING, "OPEN of %s on a connection that has opened %s: use one connection per job",
			      m->spec->name, zd_job_of(core, c)->spec.name);
		return;
	}
	rc = zd_spec_from_pb(&spec, core->asked, ZD_UNITS_MAX, m->spec, core->text, sizeof core->text);
	if (rc < 0) {
		zd_emit_error(core, c, stream, -rc, ZD_ABOUT_NOTHING, "%s", core->text);
		return;
	}
	if (m->lane_count < 1 || m->lane_count > ZD_LANES_MAX || m->lane_index >= m->lane_count) {
		zd_emit_error(core, c, stream, ZD_ERR_BAD_SPEC, ZD_ABOUT_NOTHING, "lane %u of %u, expected an index below a count of 1 to %u",
			      m->lane_index, m->lane_count, ZD_LANES_MAX);
		return;
	}
	j = find_or_create(core, c, &spec, m);
	if (!j)
		return;
	zd_job_attach(core, j, c);
	zd_conn_guests(core, 0); /* one less */
	opened(core, c, j);
}

/* The range must be a whole grain of the piece; its end may be short.  Returns the grain, or ZD_NONE after an error. */
static uint32_t grain_of(struct zd_core *core, struct zd_conn *c, const struct zd_job *j, const Zd__Pb__Load *m)
{
	const struct zd_unit *u = &j->units[m->unit];
	uint64_t at = m->first - u->piece.first, rest = u->piece.count - at;

	if (m->first >= u->piece.first && at < u->piece.count && at % ZD_GRAIN_ELEMS == 0 &&
	    m->count == (rest < ZD_GRAIN_ELEMS ? rest : ZD_GRAIN_ELEMS))
		return u->grain + (uint32_t)(at / ZD_GRAIN_ELEMS);
	zd_emit_error(core, c, c->reader.header.stream, ZD_ERR_BAD_RANGE, (struct zd_about){m->unit, ZD_NONE},
		      "LOAD of unit %s [%llu, +%u): this lane owns [%llu, +%llu), load it in grains of %u from its first element",
		      j->spec.units[m->unit].name, (unsigned long long)m->first, m->count, (unsigned long long)u->piece.first,
		      (unsigned long long)u->piece.count, ZD_GRAIN_ELEMS);
	return ZD_NONE;
}

/* 1, and it has been told. */
static int is_of_an_older_launch(struct zd_core *core, struct zd_conn *c, const struct zd_job *j)
{
	return c->has_rank && c->ballot.epoch < j->promise.epoch && !zd_round_serves(core, c, c->reader.header.stream, c->ballot, ZD_NONE);
}

void zd_session_load(struct zd_core *core, struct zd_conn *c, const Zd__Pb__Load *m)
{
	struct zd_job *j = zd_job_of(core, c);
	uint64_t stream = c->reader.header.stream;
	struct zd_taking *t = &c->take;

	if (is_of_an_older_launch(core, c, j))
		return;
	if (m->unit >= j->spec.unit_count) {
		zd_emit_error(core, c, stream, ZD_ERR_NO_UNIT, ZD_ABOUT_NOTHING, "LOAD of unit %u, job %s has %u", m->unit, j->spec.name,
			      j->spec.unit_count);
		return;
	}
	if (j->spec.optimizer == ZD_OPT_NONE) {
		zd_emit_error(core, c, stream, ZD_ERR_ALREADY_SEALED, (struct zd_about){m->unit, ZD_NONE},
			      "job %s has no optimizer and holds no weights: nothing is to be loaded", j->spec.name);
		return;
	}
	if (grain_of(core, c, j, m) == ZD_NONE)
		return;
	t->kind = ZD_TAKE_LOAD;
	t->codec = (uint8_t)m->codec;
	t->unit = m->unit;
	t->first = m->first;
	t->count = m->count;
	t->stream = stream;
	zd_session_load_place(core, c);
}

void zd_session_load_place(struct zd_core *core, struct zd_conn *c)
{
	int held = c->hold == ZD_HOLD_PLACE;
	uint16_t w = zd_window_take(core, NULL);

	if (w == ZD_NONE16) {
		c->hold = ZD_HOLD_PLACE;
		return;
	}
	c->hold = ZD_HOLD_NO;
	c->take.window = w;
	zd_reader_payload(&c->reader, zd_window_memory(core, w));
	if (held)
		zd_conn_run(core, c);
}

static void loaded(struct zd_core *core, struct zd_conn *c, uint64_t stream, uint32_t unit, uint64_t first, uint32_t count)
{
	Zd__Pb__Loaded m = ZD__PB__LOADED__INIT;

	m.unit = unit;
	m.first = first;
	m.count = count;
	zd_emit(core, c, ZD_MSG_LOADED, stream, &m.base);
}

static void split(struct zd_core *core, struct zd_conn *c, struct zd_job *j, uint32_t grain, uint32_t crc)
{
	struct zd_taking *t = &c->take;
	struct zd_unit *u = &j->units[t->unit];
	uint64_t at = t->first - u->piece.first;
	struct zd_kernel_open open = {
		.kind = ZD_K_LOAD, .job = j->slot, .extent = t->unit, .conn = {c->slot, c->gen}, .stream = t->stream, .first = t->first,
		.count = t->count, .window = t->window, .k = grain, .crc = crc,
	};
	struct zd_kernel_call *call = zd_emit_kernel(core, &open);

	call->op = u->lo ? ZD_KERNEL_SPLIT : ZD_KERNEL_SPLIT_HI;
	call->codec = t->codec;
	call->n = t->count;
	call->hi = u->hi + at;
	call->lo = u->lo ? u->lo + at : NULL;
	call->a = zd_window_memory(core, t->window);
	core->window[t->window].state = ZD_WINDOW_KERNEL;
	if (u->m) { /* the slab is not clean after a drop */
		memset(u->m + at, 0, 4 * (size_t)t->count);
		memset(u->v + at, 0, 4 * (size_t)t->count);
	}
	j->grains[grain] = (struct zd_grain){j->promise.epoch, crc, (uint8_t)(t->codec + 1), 1};
	t->window = ZD_NONE16;
}

/* The payload of a LOAD is complete. */
void zd_session_loaded(struct zd_core *core, struct zd_conn *c)
{
	struct zd_job *j = zd_job_of(core, c);
	struct zd_taking *t = &c->take;
	const struct zd_unit *u = &j->units[t->unit];
	uint32_t grain = u->grain + (uint32_t)((t->first - u->piece.first) / ZD_GRAIN_ELEMS);
	struct zd_grain *g = &j->grains[grain];
	uint32_t crc = c->check_payload ? c->reader.header.payload_crc
					: zd_crc32c(0, zd_window_memory(core, t->window), c->reader.header.payload_len);
	int same = g->codec == t->codec + 1 && g->crc == crc, open = !j->sealed && !j->sealing;

	if (is_of_an_older_launch(core, c, j)) { /* by now */
		zd_window_back(core, t->window);
		t->window = ZD_NONE16;
		return;
	}
	if (open && (!g->codec || (g->busy ? same : !same && g->epoch < j->promise.epoch))) {
		split(core, c, j, grain, crc);
		return;
	}
	zd_window_back(core, t->window);
	t->window = ZD_NONE16;
	if (open && same)
		g->epoch = j->promise.epoch;
	if (same)
		loaded(core, c, t->stream, t->unit, t->first, t->count);
	else
		zd_emit_error(core, c, t->stream, g->codec ? ZD_ERR_LOAD_DIFFERS : ZD_ERR_ALREADY_SEALED, (struct zd_about){t->unit, ZD_NONE},
			      "LOAD of unit %s [%llu, +%u) with checksum %08x as codec %u, loaded before was %08x as codec %d: every worker must start "
			      "from equal weights%s",
			      j->spec.units[t->unit].name, (unsigned long long)t->first, t->count, crc, t->codec, g->crc, (int)g->codec - 1,
			      j->sealed ? ", to begin with others drop the job" : "; a launch with a higher epoch may load others");
}

void zd_session_load_done(struct zd_core *core, struct zd_job *j, const struct zd_kernel_open *k, uint64_t refused, uint64_t first)
{
	struct zd_conn *c = zd_core_conn(core, k->conn);
	uint32_t unit = k->extent;

	zd_window_back(core, k->window);
	if (!j->used)
		return;
	j->grains[k->k].busy = 0;
	if (refused > 0)
		j->grains[k->k].codec = 0;
	if (!c)
		return;
	if (refused == 0)
		loaded(core, c, k->stream, unit, k->first, k->count);
	else
		zd_emit_error(core, c, k->stream, ZD_ERR_BAD_VALUE, (struct zd_about){unit, ZD_NONE},
			      "unit %s has %llu values that are not finite, or round to infinity, in [%llu, +%u), the first at element %llu: "
			      "initial weights must be finite",
			      j->spec.units[unit].name, (unsigned long long)refused, (unsigned long long)k->first, k->count,
			      (unsigned long long)(k->first + first));
}

static void sealed(struct zd_core *core, struct zd_conn *c, uint64_t stream)
{
	Zd__Pb__Sealed m = ZD__PB__SEALED__INIT;

	m.version = zd_job_of(core, c)->step;
	zd_emit(core, c, ZD_MSG_SEALED, stream, &m.base);
}

/* The first range that is missing, or of another launch than the latest that loaded: 1 and an error, else 0. */
static int missing(struct zd_core *core, struct zd_conn *c, const struct zd_job *j)
{
	uint64_t epoch = 0;

	for (uint32_t g = 0; g < j->grain_count; g++)
		epoch = j->grains[g].codec && j->grains[g].epoch > epoch ? j->grains[g].epoch : epoch;
	for (uint32_t i = 0; i < j->spec.unit_count; i++)
		for (uint32_t g = 0; g < j->units[i].grains; g++) {
			const struct zd_grain *x = &j->grains[j->units[i].grain + g];
			uint64_t at = (uint64_t)g * ZD_GRAIN_ELEMS, rest = j->units[i].piece.count - at;
			int here = x->codec && !x->busy;
			char other[80] = "";

			if (here && x->epoch == epoch)
				continue;
			if (here)
				zd_text_fail(0, other, sizeof other, "loaded before epoch %llu and others in it: load it again", (unsigned long long)epoch);
			zd_emit_error(core, c, c->reader.header.stream, ZD_ERR_NOT_SEALED, (struct zd_about){i, ZD_NONE},
				      "unit %s [%llu, +%llu) was %s, then seal", j->spec.units[i].name, (unsigned long long)(j->units[i].piece.first + at),
				      (unsigned long long)(rest < ZD_GRAIN_ELEMS ? rest : ZD_GRAIN_ELEMS),
				      here ? other : "not loaded on this lane: load it");
			return 1;
		}
	return 0;
}

void zd_session_seal(struct zd_core *core, struct zd_conn *c)
{
	struct zd_job *j = zd_job_of(core, c);

	if (is_of_an_older_launch(core, c, j))
		return;
	if (j->sealed) { /* another worker was first: the same weights, or its LOAD would have been refused */
		sealed(core, c, c->reader.header.stream);
		return;
	}
	if (!j->sealing && missing(core, c, j))
		return;
	c->hold = ZD_HOLD_STORE;
	c->wait = ZD_WAIT_SEAL;
	c->wait_stream = c->reader.header.stream;
	if (j->sealing)
		return;
	j->sealing = 1;
	zd_emit_store(core, j, ZD_STORE_SEAL);
}

void zd_session_sealed(struct zd_core *core, struct zd_job *j)
{
	uint32_t next;

	j->sealing = 0;
	j->sealed = 1;
	zd_round_move(core, j, ZD_ROUND_EMPTY);
	for (uint32_t i = j->conns; i != ZD_NONE; i = next) {
		struct zd_conn *c = &core->conn[i];

		next = c->job_next;
		if (c->wait != ZD_WAIT_SEAL)
			continue;
		c->wait = ZD_WAIT_NO;
		c->hold = ZD_HOLD_BUDGET;
		zd_core_queue(core, c);
		sealed(core, c, c->wait_stream);
	}
	zd_fetch_wake(core, j);
}
