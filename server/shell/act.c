/* SPDX-License-Identifier: Apache-2.0 */
/* One event in, its actions carried out in order, and what completed meanwhile fed back. */
#include <string.h>
#include <sys/mman.h>

#include "proto/assert.h"
#include "server/shell/lane_priv.h"
#include "server/shell/log.h"

static void act_send(struct zd_lane *lane, const struct zd_action *a)
{
	struct zd_link *link = zd_link_find(lane, a->u.send.id);

	/* A connection that is closing gets nothing more; its CLOSED event gives all of its lent memory back. */
	if (link)
		zd_link_send(link, lane->actions->bytes + a->u.send.frame, a->u.send.frame_len, a->u.send.payload, a->u.send.payload_len,
			     a->u.send.token);
}

static void act_close(struct zd_lane *lane, const struct zd_action *a)
{
	struct zd_link *link = zd_link_find(lane, a->u.close.id);

	if (link && a->u.close.flush)
		zd_link_finish(link);
	else if (link)
		zd_link_close(link);
}

static void act_kernel(struct zd_lane *lane, const struct zd_action *a)
{
	uint32_t at = (lane->result_first + lane->result_count) % ZD_LANE_RESULTS;

	ZD_ASSERT(lane->result_count < ZD_LANE_RESULTS);
	zd_kernel_call(lane->config.kernels, &a->u.kernel, lane->scratch, &lane->results[at]);
	lane->result_count++;
}

static void act_store(struct zd_lane *lane, const struct zd_action *a)
{
	struct zd_store_op op = {
		.token = a->u.store.token,
		.kind = a->u.store.kind,
		.spec = a->u.store.spec,
		.ballot = a->u.store.ballot,
		.record = a->u.store.record,
		.decision = a->u.store.decision,
	};

	zd_store_submit(&lane->store, &op);
}

/* Whole pages inside the range go back to the system; the core reads none of it before it is written again. */
static void act_release(const struct zd_action *a)
{
	const uintptr_t page = 4096;
	uintptr_t first = ((uintptr_t)a->u.release.base + page - 1) & ~(page - 1);
	uintptr_t end = ((uintptr_t)a->u.release.base + a->u.release.len) & ~(page - 1);

	if (end > first && madvise((void *)first, end - first, MADV_DONTNEED) < 0)
		zd_log(ZD_LOG_WARNING, "event=release-failed bytes=%zu", (size_t)(end - first));
}

static void carry_out(struct zd_lane *lane)
{
	const struct zd_actions *actions = lane->actions;
	uint32_t i;

	for (i = 0; i < actions->count; i++) {
		const struct zd_action *a = &actions->item[i];

		switch (a->type) {
		case ZD_ACT_SEND:
			act_send(lane, a);
			break;
		case ZD_ACT_CLOSE:
			act_close(lane, a);
			break;
		case ZD_ACT_KERNEL:
			act_kernel(lane, a);
			break;
		case ZD_ACT_STORE:
			act_store(lane, a);
			break;
		case ZD_ACT_RELEASE:
			act_release(a);
			break;
		case ZD_ACT_LOG:
			zd_log(a->u.log.level, "%s lane=%u", (const char *)actions->bytes + a->u.log.text, lane->config.index);
			break;
		}
	}
}

/* The next completion as an event: kernels in the order they ran, then the store's. */
static int next_completion(struct zd_lane *lane, struct zd_event *ret_event)
{
	struct zd_store_completion done;

	if (lane->result_count) {
		zd_kernel_event(&lane->results[lane->result_first], ret_event);
		return 1;
	}
	if (zd_store_next(&lane->store, &done)) {
		*ret_event = (struct zd_event){.type = ZD_EV_STORED};
		ret_event->u.stored.token = done.token;
		ret_event->u.stored.status = done.status;
		return 1;
	}
	return 0;
}

static void step(struct zd_lane *lane, struct zd_event *event)
{
	event->now = uv_hrtime();
	zd_core_step(lane->core, event, lane->actions);
	if (event->type == ZD_EV_KERNEL) {
		/* The result's memory is free once the core has seen it, and an empty queue starts again in warm memory. */
		lane->result_count--;
		lane->result_first = lane->result_count ? (lane->result_first + 1) % ZD_LANE_RESULTS : 0;
	}
	carry_out(lane);
}

void zd_lane_feed(struct zd_lane *lane, struct zd_event *event)
{
	struct zd_event next;

	ZD_ASSERT(!lane->feeding);
	lane->feeding = 1;
	step(lane, event);
	while (next_completion(lane, &next))
		step(lane, &next);
	lane->feeding = 0;
}
