/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights of units in memory of the client, and what is fetched before it is asked for.
 *
 *     EMPTY --room--> FLIGHT --all DATA in--> HERE --release, eviction, new version--> EMPTY
 *
 * A worker's weights are of the version of its step exactly.  What is held keeps its version until the last release.  Frozen units never
 * change, so they are never asked for again while they are here.  A reader asks whether what it kept is still the newest.
 *
 * A released unit that the plan uses next stays (the last unit of the forward pass is the first of the backward pass).
 */
#include "client/state.h"

#include <stdio.h>
#include <string.h>

enum { MODE_AT_LEAST = 1, MODE_EXACTLY = 2, MODE_IF_NEWER = 3 };

static int is_reader(const struct zd_session *s)
{
	return s->config.world == 0;
}

static int current(const struct zd_session *s, uint32_t unit)
{
	return s->spec.units[unit].frozen || s->gunits[unit].version == s->step;
}

/* ---------------------------------------------------------------- the plan */

static void note_use(struct zd_session *s, uint32_t unit)
{
	if (s->learnt_count < ZD_PLAN_MAX)
		s->learnt[s->learnt_count++] = unit;
	for (uint32_t i = s->plan_at; i < s->plan_count; i++) {
		if (s->plan[i] == unit) {
			s->plan_at = i + 1;
			return;
		}
	}
}

void zd_cgather_plan(struct zd_session *s, const uint32_t *units, uint32_t count)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < count && n < ZD_PLAN_MAX; i++)
		if (units[i] < s->unit_count)
			s->plan[n++] = units[i];
	s->plan_count = n;
	s->plan_at = 0;
	s->plan_told = n > 0;
}

void zd_cgather_turn(struct zd_session *s)
{
	if (!s->plan_told && s->learnt_count > 0) {
		memcpy(s->plan, s->learnt, s->learnt_count * sizeof(*s->plan));
		s->plan_count = s->learnt_count;
	}
	zd_cgather_restart(s);
}

void zd_cgather_restart(struct zd_session *s)
{
	s->plan_at = 0;
	s->learnt_count = 0;
}

/* ---------------------------------------------------------------- gather and release */

static void hand_out(struct zd_session *s, struct zd_req *r)
{
	struct zd_gunit *g = &s->gunits[r->unit];

	g->refs++;
	g->fresh = 0;
	r->weights = g->buf;
	zd_csession_end(s, r, ZEROD_OK, "%s", "");
}

/* What fetches a unit that has a buffer. */
static int start(struct zd_session *s, uint32_t unit, uint32_t mode, uint64_t version)
{
	struct zd_gunit *g = &s->gunits[unit];
	struct zd_fetch *f = zd_cfetch_new(s, unit, ZD_PLANE_WEIGHTS, g->buf);

	if (!f) {
		zd_climit_give(s, unit);
		return -1;
	}
	g->state = ZD_G_FLIGHT;
	zd_cfetch_begin(s, f, mode, version);
	return 1;
}

/* 1 on its way, 0 no room, -1 no memory */
static int bring(struct zd_session *s, uint32_t unit, uint32_t distance)
{
	int rc = zd_climit_take(s, unit, distance);

	if (rc <= 0)
		return rc;
	if (s->spec.units[unit].frozen)
		return start(s, unit, MODE_AT_LEAST, 0);
	return start(s, unit, is_reader(s) ? MODE_AT_LEAST : MODE_EXACTLY, s->step);
}

static void wait_for(struct zd_req **at, struct zd_req *r)
{
	while (*at)
		at = &(*at)->chain;
	*at = r;
	r->chain = NULL;
}

void zd_cgather_request(struct zd_session *s, struct zd_req *r, uint32_t unit)
{
	struct zd_gunit *g = &s->gunits[unit];

	if (s->spec.optimizer == ZD_OPT_NONE) {
		zd_csession_end(s, r, ZEROD_ERR_STATE, "a job without optimizer keeps no weights: there is nothing to gather");
		return;
	}
	note_use(s, unit);
	if (g->state == ZD_G_HERE && (g->refs > 0 || (is_reader(s) ? g->fresh : current(s, unit)))) {
		s->stats.prefetch_hits++;
		hand_out(s, r);
		return;
	}
	s->stats.prefetch_misses++;
	if (g->state == ZD_G_HERE && is_reader(s)) {
		if (start(s, unit, MODE_IF_NEWER, g->version) < 0) {
			zd_csession_end(s, r, ZEROD_ERR_MEMORY, "no memory for a fetch");
			return;
		}
	} else if (g->state == ZD_G_HERE) {
		zd_climit_give(s, unit);
	}
	if (g->state == ZD_G_FLIGHT)
		wait_for(&g->waiters, r);
	else
		wait_for(&s->room_first, r);
}

static int remove_from(struct zd_req **at, const struct zd_req *r)
{
	for (; *at; at = &(*at)->chain) {
		if (*at == r) {
			*at = r->chain;
			return 1;
		}
	}
	return 0;
}

void zd_cgather_forget(struct zd_session *s, struct zd_req *r)
{
	if (r->kind != ZD_SE_REQ_GATHER || r->unit >= s->unit_count)
		return;
	if (!remove_from(&s->gunits[r->unit].waiters, r))
		(void)remove_from(&s->room_first, r);
}

void zd_cgather_release(struct zd_session *s, uint32_t unit, int keep)
{
	struct zd_gunit *g;

	if (unit >= s->unit_count || s->gunits[unit].refs == 0)
		return;
	g = &s->gunits[unit];
	if (--g->refs > 0)
		return;
	if (s->plan_at < s->plan_count && s->plan[s->plan_at] == unit)
		keep = 1;
	if (!keep || (!is_reader(s) && !current(s, unit)))
		zd_climit_give(s, unit);
}

void zd_cgather_fetched(struct zd_session *s, struct zd_fetch *f)
{
	uint32_t unit = f->unit;
	struct zd_gunit *g = &s->gunits[unit];
	int gone = f->status != ZEROD_OK && f->version == s->step;

	g->version = f->high;
	if (gone && f->status == ZEROD_ERR_STATE && zd_cfetch_waits(s, unit)) {
		while (g->waiters) {
			struct zd_req *r = g->waiters;

			g->waiters = r->chain;
			wait_for(&s->room_first, r);
		}
		zd_cfetch_drop(s, f);
		zd_climit_give(s, unit);
		return;
	}
	if (f->status != ZEROD_OK && (gone || s->spec.units[unit].frozen || is_reader(s))) {
		while (g->waiters)
			zd_csession_end(s, g->waiters, f->status, "%s", f->text);
		zd_cfetch_drop(s, f);
		zd_climit_give(s, unit);
		return;
	}
	if (f->status != ZEROD_OK || (!is_reader(s) && !current(s, unit))) { /* a step ended meanwhile */
		if (!g->waiters) {
			zd_cfetch_drop(s, f);
			zd_climit_give(s, unit);
			return;
		}
		f->status = ZEROD_OK;
		zd_cfetch_begin(s, f, MODE_EXACTLY, s->step);
		return;
	}
	zd_cfetch_drop(s, f);
	g->state = ZD_G_HERE;
	g->fresh = 1;
	while (g->waiters)
		hand_out(s, g->waiters);
}

void zd_cgather_version(struct zd_session *s)
{
	for (uint32_t u = 0; u < s->unit_count; u++) {
		const struct zd_gunit *g = &s->gunits[u];

		if (g->state == ZD_G_HERE && g->refs == 0 && !current(s, u))
			zd_climit_give(s, u);
	}
}

/* ---------------------------------------------------------------- room and prefetch */

/* 1: the gather goes on without waiting for room any more. */
static int serve(struct zd_session *s, struct zd_req *r)
{
	struct zd_gunit *g = &s->gunits[r->unit];
	int rc = 1;

	if (g->state == ZD_G_EMPTY)
		rc = zd_cfetch_waits(s, r->unit) ? 0 : bring(s, r->unit, 0);
	if (rc == 0)
		return 0;
	if (rc < 0) {
		zd_csession_end(s, r, ZEROD_ERR_MEMORY, "no memory for the %llu bytes of unit \"%s\"", (unsigned long long)g->bytes,
			       s->spec.units[r->unit].name);
		return 1;
	}
	if (g->state == ZD_G_HERE) {
		hand_out(s, r);
		return 1;
	}
	(void)remove_from(&s->room_first, r);
	wait_for(&g->waiters, r);
	return 1;
}

static void prefetch(struct zd_session *s)
{
	uint32_t ahead = 0;

	for (uint32_t i = s->plan_at; i < s->plan_count && ahead < s->config.prefetch; i++) {
		uint32_t unit = s->plan[i];
		struct zd_gunit *g = &s->gunits[unit];

		if (g->refs > 0)
			continue;
		ahead++;
		if (g->state == ZD_G_EMPTY && bring(s, unit, i - s->plan_at + 1) <= 0)
			return;
	}
}

void zd_cgather_settle(struct zd_session *s)
{
	if (s->failed)
		return;
	while (s->room_first)
		if (!serve(s, s->room_first))
			return; /* a gather that waits comes before any prefetch */
	if (s->connected && s->spec.optimizer != ZD_OPT_NONE && s->config.prefetch > 0 && !s->committing)
		prefetch(s);
}

void zd_cgather_explain(const struct zd_session *s, const struct zd_req *r, char *out, size_t size)
{
	const struct zd_gunit *g = &s->gunits[r->unit];
	uint64_t held = 0;
	uint32_t units = 0;

	if (g->state == ZD_G_FLIGHT) {
		for (const struct zd_fetch *f = s->fetch_first; f; f = f->next)
			if (f->unit == r->unit && f->dst == (const uint8_t *)g->buf)
				zd_cfetch_explain(s, f, out, size);
		return;
	}
	if (zd_cfetch_waits(s, r->unit)) {
		zd_cagree_explain(s, out, size);
		return;
	}
	for (uint32_t u = 0; u < s->unit_count; u++) {
		if (s->gunits[u].refs == 0)
			continue;
		held += s->gunits[u].bytes;
		units++;
	}
	snprintf(out, size, "the limiter has no room: %u units held by the caller take %llu of %llu bytes; release one or raise gather_bytes_max",
		 units, (unsigned long long)held, (unsigned long long)s->limit);
}
