/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extents: who reads them, and the update they are owed.
 *
 * The ledger: an extent has one writer (an Adam call: busy) or many readers (DATA frames that lend hi, or a gradient area, to the shell:
 * lends).  Kernel calls run in order, so what reads inside a call need not be in the ledger, unless the core may write there in the same
 * step: contributions that stay as they came (fetch.c).
 *
 * A round that was applied owes Adam to every trainable extent: those whose step is behind the job's.  It runs when the extent is
 * fetched, before a contribution of the next round lands in it, or when there is nothing else to do.
 */
#include "proto/assert.h"
#include "server/core/state.h"

uint64_t zd_extent_first(const struct zd_job *j, uint32_t extent)
{
	const struct zd_unit *u = &j->units[j->extents[extent].unit];

	return u->piece.first + (uint64_t)(extent - u->extent) * j->spec.extent_elems;
}

uint32_t zd_extent_count(const struct zd_job *j, uint32_t extent)
{
	const struct zd_unit *u = &j->units[j->extents[extent].unit];
	uint64_t rest = u->piece.count - (uint64_t)(extent - u->extent) * j->spec.extent_elems;

	return rest < j->spec.extent_elems ? (uint32_t)rest : j->spec.extent_elems;
}

uint8_t *zd_extent_grad(const struct zd_job *j, uint32_t extent, uint32_t area)
{
	const struct zd_unit *u = &j->units[j->extents[extent].unit];

	return u->grad[area] + 4 * (uint64_t)(extent - u->extent) * j->spec.extent_elems;
}

int zd_extent_due(const struct zd_job *j, uint32_t extent)
{
	const struct zd_extent *x = &j->extents[extent];

	return j->due > 0 && x->step != j->step && !j->spec.units[x->unit].frozen;
}

void zd_extent_touch(struct zd_job *j, struct zd_extent *x)
{
	if (x->gather == j->gather)
		return;
	x->gather = j->gather;
	x->mark = 0;
	x->nonfinite = 0;
	x->counted = x->reduced = 0;
	x->bad_element = x->bad_rank = ZD_NONE;
	x->staged = ZD_NONE16;
	x->have = 0;
}

void zd_extent_want(struct zd_core *core, struct zd_job *j, uint32_t extent, uint32_t area)
{
	struct zd_extent *x = &j->extents[extent];

	if (x->wanted)
		return;
	x->wanted = (uint8_t)(1 + area);
	x->wanted_since = core->now - core->away;
	j->wanted++;
	if (j->wanted_since == ZD_TIME_NEVER)
		j->wanted_since = x->wanted_since;
}

int zd_extent_update(struct zd_core *core, struct zd_job *j, uint32_t extent, struct zd_conn *c, int check)
{
	struct zd_extent *x = &j->extents[extent];
	const struct zd_unit *u = &j->units[x->unit];
	struct zd_kernel_open open = {.kind = ZD_K_ADAM, .job = j->slot, .extent = extent, .window = ZD_NONE16};
	struct zd_kernel_call *call;
	uint64_t at;

	if (!zd_extent_due(j, extent) || x->busy)
		return 0;
	if (x->lends[0] > 0) {
		zd_extent_want(core, j, extent, 0);
		return -1;
	}
	ZD_ASSERT(x->step + 1 == j->update.step);
	open.checked = check != 0;
	open.conn = c ? (struct zd_conn_id){c->slot, c->gen} : (struct zd_conn_id){ZD_NONE, 0};
	x->busy = 1;
	at = (uint64_t)(extent - u->extent) * j->spec.extent_elems;
	call = zd_emit_kernel(core, &open);
	call->op = ZD_KERNEL_ADAM;
	call->form = j->update.form;
	call->n = zd_extent_count(j, extent);
	call->hi = u->hi + at;
	call->lo = u->lo + at;
	call->m = u->m + at;
	call->v = u->v + at;
	call->a = zd_extent_grad(j, extent, 0);
	call->b = call->form == ZD_FORM_BF16_2 ? (const uint8_t *)call->a + 2 * (size_t)call->n : NULL;
	call->checked = check ? call->hi : NULL;
	call->hyper = j->update.hyper;
	call->step = j->update.step;
	call->scale = j->update.scale;
	call->l2 = j->spec.optimizer == ZD_OPT_ADAM_L2;
	return 0;
}

void zd_extent_updated(struct zd_core *core, struct zd_job *j, const struct zd_kernel_open *k, const struct zd_event *ev)
{
	struct zd_extent *x = &j->extents[k->extent];
	struct zd_conn *c = zd_core_conn(core, k->conn);

	ZD_ASSERT(x->busy);
	x->busy = 0;
	if (!j->used)
		return;
	ZD_ASSERT(j->due > 0 && x->lends[0] == 0);
	x->step = j->update.step;
	if (k->checked) {
		x->crc = ev->u.kernel.crc;
		x->crc_step = x->step;
	}
	j->due--;
	if (c && !c->closing)
		zd_core_queue(core, c);
}

void zd_extent_lend(struct zd_job *j, uint32_t extent, uint32_t area)
{
	struct zd_extent *x = &j->extents[extent];

	ZD_ASSERT(!x->busy && x->lends[area] < UINT32_MAX);
	x->lends[area]++;
}

void zd_extent_back(struct zd_core *core, struct zd_job *j, uint32_t extent, uint32_t area)
{
	struct zd_extent *x = &j->extents[extent];

	ZD_ASSERT(x->lends[area] > 0);
	if (--x->lends[area] > 0 || !j->used)
		return;
	j->idle_blocked = 0;
	if (x->wanted != 1 + area)
		return;
	x->wanted = 0;
	if (--j->wanted == 0)
		j->wanted_since = ZD_TIME_NEVER;
	zd_reduce_advance(core, j, extent);
	zd_fetch_wake(core, j);
}

void zd_extent_idle(struct zd_core *core)
{
	for (uint32_t i = 0; i < core->config.max_jobs; i++) {
		struct zd_job *j = &core->job[i];

		if (!j->used || j->due == 0 || j->idle_blocked)
			continue;
		for (uint32_t n = 0; n < j->extent_count; n++) {
			uint32_t e = j->due_cursor;

			j->due_cursor = (e + 1) % j->extent_count;
			if (zd_extent_due(j, e) && !j->extents[e].busy && j->extents[e].lends[0] == 0) {
				zd_extent_update(core, j, e, NULL, 0);
				return;
			}
		}
		j->idle_blocked = 1; /* until something that was lent is back */
	}
}

int zd_extent_wants_idle(const struct zd_core *core)
{
	for (uint32_t i = 0; i < core->config.max_jobs; i++)
		if (core->job[i].used && core->job[i].due > 0 && !core->job[i].idle_blocked)
			return 1;
	return 0;
}
