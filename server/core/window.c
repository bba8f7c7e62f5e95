/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool of receive windows, ZD_PAYLOAD_MAX bytes each.
 *
 *   FREE -> TAKING (a payload is received) -> STAGED (waits for its turn) -> KERNEL -> FREE       contributions, reserved by jobs
 *   FREE -> TAKING -> KERNEL -> FREE                                                              LOAD
 *   FREE -> KERNEL -> OUT (lent to the shell) -> FREE                                             fp32 FETCH
 *
 * A job reserves `credit` windows for each worker, so that contributions never compete with anything else; free windows are at least
 * the reserved ones that are not in use, because the others may take only what is neither reserved nor in use.  It takes at most half of
 * what is there, so that the next job finds some, too, and keeps them only while workers are connected or contributions are held.
 * A window that is in use when its job's reservation ends is nobody's reservation any more, and counts like those of the others until it is back.
 */
#include "proto/assert.h"
#include "server/core/state.h"

uint8_t *zd_window_memory(const struct zd_core *core, uint16_t w)
{
	ZD_ASSERT(w < core->config.windows);
	return core->windows + (size_t)w * ZD_PAYLOAD_MAX;
}

uint32_t zd_window_available(const struct zd_core *core)
{
	uint32_t taken = core->window_reserved + core->window_other;

	return core->config.windows > taken ? core->config.windows - taken : 0;
}

uint16_t zd_window_take(struct zd_core *core, const struct zd_job *j)
{
	uint16_t w = core->window_free;

	if ((!j && zd_window_available(core) == 0) || w == ZD_NONE16) {
		ZD_ASSERT(!j);
		core->window_waiters = 1;
		return ZD_NONE16;
	}
	ZD_ASSERT(core->window[w].state == ZD_WINDOW_FREE);
	core->window_free = core->window[w].next;
	core->window_other += !j;
	core->window[w].state = ZD_WINDOW_TAKING;
	core->window[w].reserved = j != NULL;
	core->window[w].job = j ? j->slot : ZD_NONE;
	core->window[w].next = ZD_NONE16;
	return w;
}

/* Once something is available: everybody who found the pool empty, which is rare; each time another one is the first to try again, and will have the window. */
static void wake(struct zd_core *core)
{
	uint32_t turn = core->window_turn, first = core->conn_count;

	if (!core->window_waiters || zd_window_available(core) == 0)
		return;
	core->window_waiters = 0;
	for (uint32_t n = 0; n < core->conn_count; n++) {
		struct zd_conn *c = &core->conn[(turn + n) % core->conn_count];

		if (!c->used || !(c->hold == ZD_HOLD_PLACE || c->blocked))
			continue;
		zd_core_queue(core, c);
		first = first < core->conn_count ? first : c->slot;
	}
	core->window_turn = first + 1;
}

void zd_window_back(struct zd_core *core, uint16_t w)
{
	struct zd_window *x = &core->window[w];

	ZD_ASSERT(x->state != ZD_WINDOW_FREE);
	core->window_other -= !x->reserved;
	x->state = ZD_WINDOW_FREE;
	x->next = core->window_free;
	core->window_free = w;
	wake(core);
}

/* What kernel calls still read goes on outside the reservation. */
static void release(struct zd_core *core, const struct zd_job *j)
{
	for (uint32_t i = 0; i < core->config.windows && j->reserved > 0; i++) {
		struct zd_window *x = &core->window[i];

		if (x->state != ZD_WINDOW_KERNEL || !x->reserved || x->job != j->slot)
			continue;
		x->reserved = 0;
		core->window_other++;
	}
	core->window_reserved -= j->reserved;
}

int zd_window_reserve(struct zd_core *core, struct zd_job *j, uint32_t world)
{
	uint32_t have = zd_window_available(core) + j->reserved, credit;

	if (have < world + ZD_MERGE_WINDOWS)
		return -1;
	credit = (have - ZD_MERGE_WINDOWS) / 2 / world;
	j->credit = credit < 1 ? 1 : credit < ZD_CREDIT_MAX ? credit : ZD_CREDIT_MAX;
	release(core, j);
	j->reserved = j->credit * world;
	core->window_reserved += j->reserved;
	return 0;
}

void zd_window_unreserve(struct zd_core *core, struct zd_job *j)
{
	release(core, j);
	j->reserved = 0;
	j->credit = 0;
	wake(core);
}

void zd_window_settle(struct zd_core *core, struct zd_job *j)
{
	for (uint32_t i = j->conns; i != ZD_NONE; i = core->conn[i].job_next)
		if (core->conn[i].role == ZD_ROLE_WORKER)
			return;
	if (j->state != ZD_ROUND_COLLECTING)
		zd_window_unreserve(core, j);
}
