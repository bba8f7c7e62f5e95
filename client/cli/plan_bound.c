/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/plan_bound.h"

#include <math.h>

#define DAY_SECONDS 86400.0
#define YEAR_DAYS 365.0

/* hi, lo, m, v once each way */
#define STATE_READ 12.0
#define STATE_WRITTEN 12.0

const char *zd_plan_resource_name(enum zd_plan_resource resource)
{
	static const char *const names[ZD_PLAN_RESOURCES] = {
		[ZD_PLAN_COMPUTE] = "compute",
		[ZD_PLAN_WORKER_NETWORK] = "worker network",
		[ZD_PLAN_DAEMON_NETWORK] = "daemon network",
		[ZD_PLAN_DAEMON_MEMORY] = "daemon memory",
		[ZD_PLAN_DAEMON_DISK] = "daemon disk",
	};

	return resource < ZD_PLAN_RESOURCES ? names[resource] : "unknown";
}

static bool positive(double x)
{
	return isfinite(x) && x > 0.0;
}

static bool not_negative(double x)
{
	return isfinite(x) && x >= 0.0;
}

static int check(const struct zd_plan_run *run, const struct zd_plan_machine *m)
{
	if (run->stage > 3)
		return ZD_PLAN_E_STAGE;
	if (!positive(run->trainable) || !not_negative(run->frozen) || !positive(run->workers) || !positive(run->daemons) ||
	    !positive(run->micro_batches) || !not_negative(run->sent) ||
	    !not_negative(run->received) || (run->grad_bytes != 2 && run->grad_bytes != 4))
		return ZD_PLAN_E_RANGE;
	if (!not_negative(m->flops) || !not_negative(m->worker_rate) ||
	    !not_negative(m->daemon_rate) || !not_negative(m->memory_rate) ||
	    !not_negative(m->disk_rate) || !not_negative(m->disk_bytes) ||
	    !not_negative(m->drive_writes) || !not_negative(m->rated_years))
		return ZD_PLAN_E_RANGE;
	if (run->sum_locally && run->stage > 1)
		return ZD_PLAN_E_SHAPE;
	if (m->flops > 0.0 && !positive(run->tokens))
		return ZD_PLAN_E_RANGE;
	if (m->flops + m->worker_rate + m->daemon_rate + m->memory_rate + m->disk_rate == 0.0)
		return ZD_PLAN_E_RANGE;
	return ZD_PLAN_OK;
}

static double contributions(const struct zd_plan_run *run)
{
	return run->sum_locally ? run->workers : run->workers * run->micro_batches;
}

/* Bytes of the gradient that Adam, or the log, reads: what the reduction left. */
static double gradient_bytes(const struct zd_plan_run *run)
{
	return contributions(run) > 1.0 ? 4.0 : (double)run->grad_bytes;
}

/* Contributions that fit the four bytes of a sum wait there as they came. */
static bool reduces(const struct zd_plan_run *run)
{
	return run->stage == 0 || contributions(run) * run->grad_bytes > 4.0;
}

static double memory_per_param(const struct zd_plan_run *run)
{
	double g = run->grad_bytes, bytes = 0.0;

	if (reduces(run))
		bytes += (g + 4.0) + (contributions(run) - 1.0) * (g + 8.0);
	if (run->stage > 0)
		bytes += STATE_READ + STATE_WRITTEN + gradient_bytes(run);
	return bytes;
}

static double seconds(double bytes, double rate)
{
	return rate > 0.0 ? bytes / rate : 0.0;
}

static void disk_wear(const struct zd_plan_machine *m, struct zd_plan_bound *b)
{
	b->drive_writes_a_day = 0.0;
	b->rated_life_seconds = 0.0;
	if (m->disk_bytes == 0.0 || b->written_bytes == 0.0)
		return;
	b->drive_writes_a_day = b->written_bytes / b->step_seconds * DAY_SECONDS / m->disk_bytes;
	b->rated_life_seconds = m->drive_writes * m->rated_years * YEAR_DAYS * m->disk_bytes /
				b->written_bytes * b->step_seconds;
}

int zd_plan_bound_compute(const struct zd_plan_run *run, const struct zd_plan_machine *machine,
			  struct zd_plan_bound *ret_bound)
{
	struct zd_plan_bound b = { .slowest = ZD_PLAN_COMPUTE };
	double owned, tokens;
	int rc = check(run, machine);

	if (rc != ZD_PLAN_OK)
		return rc;
	owned = run->trainable / run->daemons;
	tokens = run->tokens * run->micro_batches;
	b.daemon_in_bytes = run->sent * run->workers / run->daemons;
	b.daemon_out_bytes = run->received * run->workers / run->daemons;
	b.memory_bytes = memory_per_param(run) * owned;
	if (machine->disk_rate > 0.0 && run->stage > 0) {
		double log = run->log ? gradient_bytes(run) : 0.0;

		b.written_bytes = (STATE_WRITTEN + log) * owned;
		b.disk_bytes = STATE_READ * owned + b.written_bytes;
	}
	b.seconds[ZD_PLAN_COMPUTE] =
		seconds((6.0 * run->trainable + 4.0 * run->frozen) * tokens, machine->flops);
	b.seconds[ZD_PLAN_WORKER_NETWORK] = seconds(fmax(run->sent, run->received), machine->worker_rate);
	b.seconds[ZD_PLAN_DAEMON_NETWORK] =
		seconds(fmax(b.daemon_in_bytes, b.daemon_out_bytes), machine->daemon_rate);
	b.seconds[ZD_PLAN_DAEMON_MEMORY] = seconds(b.memory_bytes, machine->memory_rate);
	b.seconds[ZD_PLAN_DAEMON_DISK] = seconds(b.disk_bytes, machine->disk_rate);
	for (int r = 0; r < ZD_PLAN_RESOURCES; r++) {
		b.serial_seconds += b.seconds[r];
		if (b.seconds[r] > b.step_seconds) {
			b.step_seconds = b.seconds[r];
			b.slowest = (enum zd_plan_resource)r;
		}
	}
	disk_wear(machine, &b);
	*ret_bound = b;
	return ZD_PLAN_OK;
}
