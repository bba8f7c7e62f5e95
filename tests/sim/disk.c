/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store of a lane, as far as agreement needs one: operations become durable in order, each some time after it was asked for.  A crash keeps those that
 * are durable, and of the others a prefix that chance chooses (what had reached the disk although nobody had been told).
 *
 * What is durable: the job with its promise, launch and world; whether it is sealed; decided rounds; the prepared record with its gradient; and the planes, which
 * follow one decision behind: they are those that the next record finds, so that a decision is replayed from the gradient beside it.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world.h"

static void free_planes(struct sim_planes *planes, uint32_t n)
{
	for (uint32_t u = 0; planes && u < n; u++) {
		free(planes[u].hi);
		free(planes[u].lo);
		free(planes[u].m);
		free(planes[u].v);
		free(planes[u].grad);
		memset(&planes[u], 0, sizeof(planes[u]));
	}
}

static void *copy(const void *from, uint64_t bytes)
{
	void *to;

	if (!from || bytes == 0)
		return NULL;
	to = sim_alloc(bytes);
	memcpy(to, from, bytes);
	return to;
}

static struct sim_planes *copy_planes(struct sim_lane *lane, int with_gradient)
{
	const struct sim_config *config = &lane->world->config;
	struct sim_planes *planes = sim_alloc(config->spec.unit_count * sizeof(*planes));

	for (uint32_t u = 0; u < config->spec.unit_count; u++) {
		struct zd_plane_view view;

		if (!zd_core_planes(lane->core, config->spec.name, u, &view))
			continue;
		planes[u].count = view.count;
		planes[u].hi = copy(view.hi, 2 * view.count);
		planes[u].lo = copy(view.lo, 2 * view.count);
		planes[u].m = copy(view.m, 4 * view.count);
		planes[u].v = copy(view.v, 4 * view.count);
		if (with_gradient)
			planes[u].grad = copy(view.grad, 4 * view.count);
	}
	return planes;
}

static struct sim_store_op *last_op(struct sim_disk *disk)
{
	struct sim_store_op *op = disk->first;

	while (op && op->next)
		op = op->next;
	return op;
}

void sim_disk_submit(struct sim_lane *lane, const struct zd_action *a)
{
	struct sim_world *w = lane->world;
	struct sim_disk *disk = &lane->disk;
	struct sim_store_op *op = sim_alloc(sizeof(*op));
	zd_time due = w->now + sim_delay(w, w->config.disk), last = last_op(disk) ? last_op(disk)->due : 0;

	op->token = a->u.store.token;
	op->kind = a->u.store.kind;
	op->ballot = a->u.store.ballot;
	op->due = due > last ? due : last;
	if (a->u.store.record)
		op->record = *a->u.store.record;
	if (a->u.store.decision)
		op->decision = *a->u.store.decision;
	if (op->kind == ZD_STORE_DISCARD)
		sim_check_discard(lane, op->ballot);
	if (w->config.level == SIM_DURABLE) {
		if (!zd_core_image(lane->core, w->config.spec.name, &op->image) && op->kind != ZD_STORE_PROMISE)
			sim_fail(w, "lane %u stores operation %d while an update is half done", lane->index, (int)op->kind);
		op->image.spec = NULL;
		if (op->kind == ZD_STORE_SEAL || op->kind == ZD_STORE_RECORD)
			op->planes = copy_planes(lane, op->kind == ZD_STORE_RECORD);
	} else {
		op->due = w->now;
	}
	*disk->last = op;
	disk->last = &op->next;
	sim_at(w, op->due, SIM_E_STORED, lane, lane->life);
}

static void take_planes(struct sim_lane *lane, struct sim_store_op *op)
{
	free_planes(lane->disk.planes, SIM_UNITS_MAX);
	memcpy(lane->disk.planes, op->planes, lane->world->config.spec.unit_count * sizeof(*op->planes));
	free(op->planes);
	op->planes = NULL;
}

/* The job as it is at its first operation: nothing durable knows of it before. */
static void note_job(struct sim_disk *disk, const struct zd_job_image *image)
{
	if (disk->there)
		return;
	disk->there = 1;
	disk->image = *image;
	disk->image.promise = (struct zd_ballot){0};
}

static void make_durable(struct sim_lane *lane, struct sim_store_op *op)
{
	struct sim_disk *disk = &lane->disk;
	struct zd_job_image *image = &disk->image;

	switch (op->kind) {
	case ZD_STORE_PROMISE:
		/* An image is not to be had while updates are half done; then the job is durable long since. */
		if (op->image.lane_count > 0)
			note_job(disk, &op->image);
		image->promise = op->ballot;
		if (op->image.lane_count > 0) {
			image->launch = op->image.launch;
			image->world = op->image.world;
		} else {
			image->launch = sim_launch_of(lane->world, op->ballot.epoch)->id;
			image->world = sim_launch_of(lane->world, op->ballot.epoch)->size;
		}
		return;
	case ZD_STORE_SEAL:
		note_job(disk, &op->image);
		image->sealed = 1;
		take_planes(lane, op);
		return;
	case ZD_STORE_RECORD:
		image->has_record = 1;
		image->due = 0;
		image->record = op->record;
		image->grad_form = op->image.grad_form;
		take_planes(lane, op);
		return;
	case ZD_STORE_DECISION:
		image->has_record = 0;
		image->has_decision = 1;
		image->decision = op->decision;
		image->decided = op->decision.round;
		image->step = op->decision.step;
		image->due = op->decision.applied && lane->world->config.spec.optimizer != ZD_OPT_NONE;
		return;
	case ZD_STORE_DISCARD:
		image->has_record = 0;
		return;
	}
}

static struct sim_store_op *take_op(struct sim_disk *disk)
{
	struct sim_store_op *op = disk->first;

	disk->first = op->next;
	if (!disk->first)
		disk->last = &disk->first;
	return op;
}

static void free_op(struct sim_world *w, struct sim_store_op *op)
{
	free_planes(op->planes, w->config.spec.unit_count);
	free(op->planes);
	free(op);
}

int sim_disk_done(struct sim_lane *lane, uint64_t *ret_token)
{
	struct sim_disk *disk = &lane->disk;
	struct sim_store_op *op;

	if (!disk->first || disk->first->due > lane->world->now)
		return 0;
	op = take_op(disk);
	*ret_token = op->token;
	if (lane->world->config.level == SIM_DURABLE)
		make_durable(lane, op);
	free_op(lane->world, op);
	return 1;
}

void sim_disk_crash(struct sim_lane *lane, int keep_percent)
{
	struct sim_world *w = lane->world;
	struct sim_disk *disk = &lane->disk;
	int keep = w->config.level == SIM_DURABLE;

	while (disk->first) {
		struct sim_store_op *op = take_op(disk);

		keep = keep && (int)sim_below(&w->rng, 100) < keep_percent;
		if (keep)
			make_durable(lane, op);
		free_op(w, op);
	}
}

static void put(void *to, const void *from, uint64_t bytes)
{
	if (to && from)
		memcpy(to, from, bytes);
}

void sim_disk_restore(struct sim_lane *lane)
{
	struct sim_world *w = lane->world;
	struct sim_disk *disk = &lane->disk;
	char text[256] = "";

	if (!disk->there)
		return;
	disk->image.spec = &w->config.spec;
	if (zd_core_restore(lane->core, &disk->image, text, sizeof(text)) < 0) {
		sim_fail(w, "lane %u cannot restore what it stored: %s", lane->index, text);
		return;
	}
	for (uint32_t u = 0; u < w->config.spec.unit_count; u++) {
		const struct sim_planes *p = &disk->planes[u];
		struct zd_plane_view view;

		if (!zd_core_planes(lane->core, w->config.spec.name, u, &view)) {
			sim_fail(w, "lane %u has no unit %u after its restart", lane->index, u);
			return;
		}
		put(view.hi, p->hi, 2 * p->count);
		put(view.lo, p->lo, 2 * p->count);
		put(view.m, p->m, 4 * p->count);
		put(view.v, p->v, 4 * p->count);
		put(view.grad, p->grad, 4 * p->count);
	}
}

void sim_disk_fini(struct sim_lane *lane)
{
	while (lane->disk.first)
		free_op(lane->world, take_op(&lane->disk));
	free_planes(lane->disk.planes, SIM_UNITS_MAX);
}
