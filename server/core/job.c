/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs and their memory.  One region of the slab each:
 *
 *   | units | unit names | extents | grains | counters | unit 0: hi lo m v grad | unit 1: ... |
 *
 * The planes of a unit's piece are contiguous, each aligned to a cache line, and begin at least SPREAD bytes apart modulo a page:
 * Adam walks over all five at once, and loads that agree with stores in their low twelve bits wait for them.
 * Frozen units have hi only.  Without optimizer there is no plane but the gradient, twice: round r + 1 is collected while r is read.
 */
#include <string.h>

#include "proto/assert.h"
#include "proto/text.h"
#include "server/core/state.h"

#define LINE 64u
#define SPREAD 256u
#define PLANES_MAX 5u

/* Walks over the region; base NULL only counts. */
struct cut {
	uint8_t *base;
	uint64_t at;
	uint32_t taken; /* planes of the unit under way */
	uint32_t low[PLANES_MAX];
};

static void *place(struct cut *cut, uint64_t at, uint64_t size)
{
	cut->at = at + size;
	return cut->base ? cut->base + at : NULL;
}

static void *table(struct cut *cut, uint64_t size)
{
	return place(cut, (cut->at + LINE - 1) / LINE * LINE, size);
}

static void *plane(struct cut *cut, uint64_t size)
{
	uint64_t at = (cut->at + LINE - 1) / LINE * LINE;

	for (uint32_t i = 0; i < cut->taken; i++) {
		uint32_t d = ((uint32_t)at - cut->low[i]) % ZD_SLAB_PAGE;

		if (d < SPREAD || d > ZD_SLAB_PAGE - SPREAD) {
			at += LINE;
			i = UINT32_MAX; /* from the first again; ends: four planes forbid less than half a page */
		}
	}
	ZD_ASSERT(cut->taken < PLANES_MAX);
	cut->low[cut->taken++] = (uint32_t)at % ZD_SLAB_PAGE;
	return place(cut, at, size);
}

static void unit_planes(struct cut *cut, const struct zd_spec *spec, struct zd_unit *u, int frozen)
{
	uint64_t n = u->piece.count;

	cut->taken = 0;
	if (n == 0)
		return;
	if (spec->optimizer != ZD_OPT_NONE) {
		u->hi = plane(cut, 2 * n);
		if (frozen)
			return;
		u->lo = plane(cut, 2 * n);
		u->m = plane(cut, 4 * n);
		u->v = plane(cut, 4 * n);
		u->grad[0] = u->grad[1] = plane(cut, 4 * n);
	} else if (!frozen) {
		u->grad[0] = plane(cut, 4 * n);
		u->grad[1] = plane(cut, 4 * n);
	}
}

static uint64_t pieces_of(uint64_t count, uint32_t size)
{
	return (count + size - 1) / size;
}

/* Lays the job out in j->region, or only counts with a region of NULL.  Returns the bytes. */
static uint64_t lay_out(struct zd_job *j, const struct zd_spec *spec, const struct zd_piece *pieces)
{
	struct cut cut = {j->region, 0, 0, {0}};
	uint64_t extents = 0, grains = 0;
	uint32_t extent = 0, grain = 0;

	for (uint32_t i = 0; i < spec->unit_count; i++) {
		extents += pieces_of(pieces[i].count, spec->extent_elems);
		grains += pieces_of(pieces[i].count, ZD_GRAIN_ELEMS);
	}
	j->extent_count = (uint32_t)extents;
	j->grain_count = (uint32_t)grains;
	j->units = table(&cut, spec->unit_count * sizeof *j->units);
	j->spec.units = table(&cut, spec->unit_count * sizeof *j->spec.units);
	j->extents = table(&cut, extents * sizeof *j->extents);
	j->grains = table(&cut, grains * sizeof *j->grains);
	j->pos = table(&cut, (uint64_t)spec->unit_count * ZD_WORLD_MAX * sizeof *j->pos);
	if (cut.base)
		memset(cut.base, 0, cut.at);
	for (uint32_t i = 0; i < spec->unit_count; i++) {
		struct zd_unit local = {0}, *u = cut.base ? &j->units[i] : &local;

		u->piece = pieces[i];
		u->extent = extent;
		u->extents = (uint32_t)pieces_of(pieces[i].count, spec->extent_elems);
		u->grain = grain;
		u->grains = (uint32_t)pieces_of(pieces[i].count, ZD_GRAIN_ELEMS);
		extent += u->extents;
		grain += u->grains;
		unit_planes(&cut, spec, u, spec->units[i].frozen);
	}
	return (cut.at + ZD_SLAB_PAGE - 1) / ZD_SLAB_PAGE * ZD_SLAB_PAGE;
}

uint64_t zd_job_bytes(const struct zd_spec *spec, uint32_t lane_count, uint32_t lane)
{
	struct zd_piece pieces[ZD_UNITS_MAX];
	uint64_t load[ZD_LANES_MAX];
	struct zd_job j;

	j.region = NULL;
	zd_layout_lane(spec, lane_count, lane, pieces, load);
	return lay_out(&j, spec, pieces);
}

/* As many as an index of 32 bits tells apart; only frozen units without optimizer, which have no planes, could be more in any memory. */
static int extents_fit(const struct zd_spec *spec, const struct zd_piece *pieces)
{
	uint64_t extents = 0;

	for (uint32_t i = 0; i < spec->unit_count; i++)
		extents += pieces_of(pieces[i].count, spec->extent_elems);
	return extents <= UINT32_MAX;
}

struct zd_job *zd_job_find(const struct zd_core *core, const char *name)
{
	for (uint32_t i = 0; i < core->config.max_jobs; i++)
		if (core->job[i].used && strcmp(core->job[i].spec.name, name) == 0)
			return (struct zd_job *)&core->job[i];
	return NULL;
}

struct zd_job *zd_job_of(struct zd_core *core, const struct zd_conn *c)
{
	return c->job == ZD_NONE ? NULL : &core->job[c->job];
}

/* splitmix64: any mixing function would do, the seed is random. */
static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

/* What is counted once and never changes. */
static void count_up(struct zd_job *j)
{
	for (uint32_t i = 0; i < j->spec.unit_count; i++) {
		const struct zd_unit *u = &j->units[i];

		j->owned += u->piece.count;
		if (!j->spec.units[i].frozen) {
			j->trainable += u->piece.count;
			j->trainable_extents += u->extents;
			j->trainable_units += u->extents > 0;
		}
		for (uint32_t e = u->extent; e < u->extent + u->extents; e++) {
			j->extents[e].unit = i;
			j->extents[e].staged = ZD_NONE16;
			j->extents[e].crc_step = UINT64_MAX;
		}
	}
}

static struct zd_job *free_slot(struct zd_core *core)
{
	for (uint32_t i = 0; i < core->config.max_jobs; i++)
		if (!core->job[i].used && !core->job[i].dropped)
			return &core->job[i];
	return NULL;
}

static int no_memory(const struct zd_core *core, uint64_t need, const char *name, char *text, size_t size)
{
	uint64_t max = core->config.job_max_bytes, budget = core->slab.size - (uint64_t)core->config.windows * ZD_PAYLOAD_MAX;

	if (max > 0 && need > max)
		return zd_text_fail(ZD_ERR_NO_MEMORY, text, size,
				    "job %s needs %llu bytes on this lane, a job may take at most %llu: use more lanes, or raise the limit of jobs",
				    name, (unsigned long long)need, (unsigned long long)max);
	return zd_text_fail(ZD_ERR_NO_MEMORY, text, size,
			    "job %s needs %llu bytes on this lane, free are %llu (%llu in one piece) of a budget of %llu: use more lanes, drop a "
			    "job, or raise the memory of the daemon",
			    name, (unsigned long long)need, (unsigned long long)(core->slab.size - core->slab.used),
			    (unsigned long long)zd_slab_largest(&core->slab), (unsigned long long)budget);
}

int zd_job_create(struct zd_core *core, const struct zd_spec *spec, uint32_t lane_index, uint32_t lane_count, struct zd_job **ret_job,
		  char *text, size_t text_size)
{
	struct zd_piece pieces[ZD_UNITS_MAX];
	uint64_t load[ZD_LANES_MAX], need = zd_job_bytes(spec, lane_count, lane_index);
	struct zd_job *j = free_slot(core);
	void *region = NULL;
	uint32_t slot, gen;

	if (!j)
		return zd_text_fail(ZD_ERR_NO_ROOM, text, text_size, "job %s would be one more than the %u jobs of this daemon: drop one", spec->name,
				    core->config.max_jobs);
	zd_layout_lane(spec, lane_count, lane_index, pieces, load);
	if ((core->config.job_max_bytes == 0 || need <= core->config.job_max_bytes) && extents_fit(spec, pieces))
		region = zd_slab_take(&core->slab, need);
	if (!region)
		return no_memory(core, need, spec->name, text, text_size);
	slot = j->slot;
	gen = j->gen + 1;
	memset(j, 0, sizeof *j);
	j->slot = slot;
	j->gen = gen;
	j->used = 1;
	j->spec = *spec;
	j->region = region;
	j->bytes = j->region_len = need;
	lay_out(j, spec, pieces); /* also where the copies of the units go */
	memcpy(j->spec.units, spec->units, spec->unit_count * sizeof *spec->units);
	j->lane_index = lane_index;
	j->lane_count = lane_count;
	j->conns = ZD_NONE;
	j->gather = 1;
	j->timeline = 1;
	j->wanted_since = ZD_TIME_NEVER;
	j->uuid_hi = mix(core->config.uuid_seed + 2 * core->uuids);
	j->uuid_lo = mix(core->config.uuid_seed + 2 * core->uuids + 1);
	core->uuids++;
	count_up(j);
	j->left = j->trainable_extents;
	j->sealed = spec->optimizer == ZD_OPT_NONE || j->owned == 0; /* nothing to load: nobody need wait for a SEAL */
	j->state = j->sealed ? ZD_ROUND_EMPTY : ZD_ROUND_UNSEALED;
	*ret_job = j;
	return 0;
}

void zd_job_attach(struct zd_core *core, struct zd_job *j, struct zd_conn *c)
{
	ZD_ASSERT(c->job == ZD_NONE);
	c->job = j->slot;
	c->job_prev = ZD_NONE;
	c->job_next = j->conns;
	if (j->conns != ZD_NONE)
		core->conn[j->conns].job_prev = c->slot;
	j->conns = c->slot;
	j->conn_count++;
}

void zd_job_detach(struct zd_core *core, struct zd_conn *c)
{
	struct zd_job *j = zd_job_of(core, c);

	if (!j)
		return;
	if (c->job_prev != ZD_NONE)
		core->conn[c->job_prev].job_next = c->job_next;
	else
		j->conns = c->job_next;
	if (c->job_next != ZD_NONE)
		core->conn[c->job_next].job_prev = c->job_prev;
	c->job = c->job_next = c->job_prev = ZD_NONE;
	j->conn_count--;
	if (j->dropped)
		zd_job_try_free(core, j);
	else if (core->draining && j->conn_count == 0 && j->state == ZD_ROUND_COLLECTING)
		zd_round_void(core, j); /* nobody is left to go on with it */
}

void zd_job_drop(struct zd_core *core, struct zd_job *j)
{
	uint32_t next;

	zd_emit_log(core, ZD_LOG_NOTICE, "event=drop job=%s bytes=%llu decided=%llu", j->spec.name, (unsigned long long)j->bytes,
		    (unsigned long long)j->decided);
	for (uint32_t i = j->conns; i != ZD_NONE; i = next) {
		struct zd_conn *c = &core->conn[i];

		next = c->job_next;
		zd_emit_error(core, c, 0, ZD_ERR_DROPPED, ZD_ABOUT_NOTHING, "job %s was dropped by an administrator", j->spec.name);
	}
	zd_reduce_drop_staged(core, j);
	zd_window_unreserve(core, j);
	j->used = 0;
	j->dropped = 1;
	zd_job_try_free(core, j);
}

void zd_job_try_free(struct zd_core *core, struct zd_job *j)
{
	if (j->conn_count > 0 || j->kernels > 0 || j->stores > 0)
		return;
	zd_emit_release(core, j->region, zd_slab_back(&core->slab, j->region));
	j->dropped = 0;
	for (uint32_t i = 0; i < core->conn_count; i++) { /* whoever asked for the drop */
		struct zd_conn *c = &core->conn[i];
		Zd__Pb__Dropped m = ZD__PB__DROPPED__INIT;

		if (!c->used || c->wait != ZD_WAIT_DROP || c->wait_round != j->slot)
			continue;
		c->wait = ZD_WAIT_NO;
		c->heard = core->now;
		m.name = j->spec.name;
		m.bytes = j->bytes;
		zd_emit(core, c, ZD_MSG_DROPPED, c->wait_stream, &m.base);
		c->hold = ZD_HOLD_BUDGET;
		zd_core_queue(core, c);
	}
}
