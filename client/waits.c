/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which ranks a lane waits for, as its last PONG said.  PONGs come every quarter of a lease while this worker waits, so that an operation which runs
 * out of time can name them; before the first one nothing is known.
 */
#include "client/state.h"

#include <stdio.h>

_Static_assert(ZD_WORLD_MAX <= 64, "a set of ranks is one number");

static uint64_t set_of(const uint32_t *ranks, size_t count)
{
	uint64_t set = 0;

	for (size_t i = 0; i < count; i++)
		set |= 1ull << ranks[i];
	return set;
}

void zd_cwaits_pong(struct zd_link *l, const Zd__Pb__Pong *m)
{
	l->absent = set_of(m->absent, m->n_absent);
	l->behind = set_of(m->behind, m->n_behind);
}

static uint64_t behind_of(const struct zd_session *s, const struct zd_link *l)
{
	return l->ls == ZD_LS_COMMIT ? l->behind & ~(1ull << s->config.rank) : 0;
}

void zd_cwaits_add(const struct zd_session *s, const struct zd_link *l, uint64_t *absent, uint64_t *behind)
{
	if (l->state != ZD_LINK_OPEN)
		return;
	*absent |= l->absent;
	*behind |= behind_of(s, l);
}

/* "rank 3", "ranks 0, 4-7" */
static void name_ranks(uint64_t set, char *out, size_t size)
{
	size_t at = (size_t)snprintf(out, size, set & (set - 1) ? "ranks" : "rank");
	const char *before = " ";

	for (uint32_t r = 0; r < ZD_WORLD_MAX && at < size; r++) {
		uint32_t last = r;

		if (!(set >> r & 1))
			continue;
		while (last + 1 < ZD_WORLD_MAX && set >> (last + 1) & 1)
			last++;
		at += (size_t)snprintf(out + at, size - at, last > r ? "%s%u-%u" : "%s%u", before, r, last);
		before = ", ";
		r = last;
	}
}

void zd_cwaits_explain(const struct zd_link *l, uint64_t of, char *out, size_t size)
{
	uint64_t behind = l->behind & of;
	char ranks[256];
	size_t at = 0;

	out[0] = '\0';
	if (l->absent) {
		name_ranks(l->absent, ranks, sizeof(ranks));
		at = (size_t)snprintf(out, size, "%s %s not here (never joined, or silent for longer than the lease)", ranks, l->absent & (l->absent - 1) ? "are" : "is");
	}
	if (behind && at < size) {
		name_ranks(behind, ranks, sizeof(ranks));
		snprintf(out + at, size - at, "%s%s joined, but did not push everything or call zerod_step", at ? "; " : "", ranks);
	}
}
