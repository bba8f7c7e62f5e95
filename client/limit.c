/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rate limiter: bytes of weights that are gathered, in flight or kept never exceed the bound, and neither do these and the spare buffers
 * together.  A buffer in flight is never taken away; one that nobody holds is, the one whose next use in the plan is farthest first.
 */
#include "client/state.h"

#include <string.h>

/* Entries of the plan until the unit is used again; UINT32_MAX: not in it. */
static uint32_t next_use(const struct zd_session *s, uint32_t unit)
{
	for (uint32_t i = s->plan_at; i < s->plan_count; i++)
		if (s->plan[i] == unit)
			return i - s->plan_at;
	return UINT32_MAX;
}

static void drop_spare(struct zd_session *s)
{
	uint32_t i = --s->spare_count;

	s->spare_bytes -= s->spares[i].bytes;
	zd_csession_release(s, s->spares[i].buf);
}

void zd_climit_give(struct zd_session *s, uint32_t unit)
{
	struct zd_gunit *g = &s->gunits[unit];

	s->used -= g->bytes;
	g->state = ZD_G_EMPTY;
	if (s->spare_count < ZD_SPARES_MAX && !s->failed) {
		s->spares[s->spare_count].buf = g->buf;
		s->spares[s->spare_count++].bytes = g->bytes;
		s->spare_bytes += g->bytes;
	} else {
		zd_csession_release(s, g->buf);
	}
	g->buf = NULL;
}

/* Gives up the unheld buffer whose next use is farthest, if that is at least `distance` entries ahead; 0: there is none. */
static int evict(struct zd_session *s, uint32_t distance)
{
	uint32_t victim = UINT32_MAX, latest = 0;

	for (uint32_t u = 0; u < s->unit_count; u++) {
		const struct zd_gunit *g = &s->gunits[u];
		uint32_t use;

		if (g->state != ZD_G_HERE || g->refs > 0)
			continue;
		use = next_use(s, u);
		if (victim == UINT32_MAX || use > latest) {
			victim = u;
			latest = use;
		}
	}
	if (victim == UINT32_MAX || latest < distance)
		return 0;
	zd_climit_give(s, victim);
	return 1;
}

static void *take_spare(struct zd_session *s, uint64_t bytes)
{
	for (uint32_t i = 0; i < s->spare_count; i++) {
		void *buf = s->spares[i].buf;

		if (s->spares[i].bytes != bytes)
			continue;
		s->spares[i] = s->spares[--s->spare_count];
		s->spare_bytes -= bytes;
		return buf;
	}
	return NULL;
}

int zd_climit_take(struct zd_session *s, uint32_t unit, uint32_t distance)
{
	struct zd_gunit *g = &s->gunits[unit];
	void *buf;

	while (s->used + g->bytes > s->limit)
		if (!evict(s, distance))
			return 0;
	buf = take_spare(s, g->bytes);
	while (!buf && s->spare_count > 0 && s->used + s->spare_bytes + g->bytes > s->limit)
		drop_spare(s);
	if (!buf)
		buf = s->config.alloc(s->config.alloc_ctx, g->bytes);
	while (!buf && s->spare_count > 0) {
		drop_spare(s);
		buf = s->config.alloc(s->config.alloc_ctx, g->bytes);
	}
	if (!buf)
		return -1;
	g->buf = buf;
	s->used += g->bytes;
	if (s->used > s->used_max)
		s->used_max = s->used;
	return 1;
}

void zd_climit_fini(struct zd_session *s)
{
	while (s->spare_count > 0)
		drop_spare(s);
	for (uint32_t u = 0; u < s->unit_count; u++)
		zd_csession_release(s, s->gunits[u].buf);
}
