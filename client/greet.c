/* SPDX-License-Identifier: Apache-2.0 */
/* Getting to know the daemons: how many lanes each has, which lane of the job each of them is, and whether the job is still the same. */
#include "client/state.h"

#include <stdio.h>
#include <string.h>

static int meet_lane(struct zd_session *s, struct zd_link *l, uint32_t index)
{
	uint32_t n = s->unit_count;
	uint64_t *tables = zd_csession_alloc(s, n * (2 * sizeof(*l->counted) + 2 * sizeof(*l->loaded)));

	if (!tables)
		return -1;
	l->counted = tables; /* the block is freed through this pointer */
	l->pushed = tables + n;
	l->loaded = (uint32_t *)(tables + 2 * (size_t)n);
	l->load_sent = l->loaded + n;
	l->index = index;
	s->lanes[index] = l;
	return 0;
}

static int make_lanes(struct zd_session *s, uint32_t total)
{
	uint64_t *load = zd_csession_alloc(s, total * sizeof(*load));
	uint32_t daemons = s->config.daemon_count, index = 0;
	int rc = -1;

	s->lanes = zd_csession_alloc(s, total * sizeof(struct zd_link *));
	s->pieces = zd_csession_alloc(s, (size_t)total * s->unit_count * sizeof(*s->pieces));
	if (!load || !s->lanes || !s->pieces)
		goto out;
	zd_layout_all(&s->spec, total, s->pieces, load);
	for (uint32_t d = 0; d < daemons; d++) {
		for (uint32_t i = 0; i < s->daemon_lanes[d]; i++, index++) {
			if (i > 0 && zd_clink_add(s, d, i) < 0)
				goto out;
			if (meet_lane(s, i > 0 ? s->links[s->link_count - 1] : s->links[d], index) < 0)
				goto out;
		}
	}
	s->lane_count = total;
	rc = 0;
out:
	zd_csession_release(s, load);
	return rc;
}

static void begin_open(struct zd_session *s, struct zd_link *l)
{
	l->state = ZD_LINK_OPENING;
	l->since = s->now;
	l->todo |= ZD_TODO_OPEN;
}

/* All daemons have said how many lanes they have. */
static void meet(struct zd_session *s)
{
	uint64_t total = 0;

	for (uint32_t d = 0; d < s->config.daemon_count; d++) {
		if (s->daemon_lanes[d] == 0)
			return;
		total += s->daemon_lanes[d];
	}
	if (total > ZD_LANES_MAX) {
		zd_csession_fail(s, ZEROD_ERR_REFUSED, "the daemons have %llu lanes together; a job may have %u: name fewer daemons",
				(unsigned long long)total, ZD_LANES_MAX);
		return;
	}
	if (make_lanes(s, (uint32_t)total) < 0) {
		zd_csession_fail(s, ZEROD_ERR_MEMORY, "no memory for the tables of %llu lanes", (unsigned long long)total);
		return;
	}
	if (s->config.world > 0)
		s->phase = ZD_PH_JOIN;
	for (uint32_t i = 0; i < s->config.daemon_count; i++)
		if (s->links[i]->state == ZD_LINK_GREETED)
			begin_open(s, s->links[i]);
	zd_clink_start(s);
}

void zd_cgreet_welcomed(struct zd_session *s, struct zd_link *l, uint32_t lane_count, uint64_t features)
{
	uint32_t *known = &s->daemon_lanes[l->daemon];

	l->features = (uint32_t)(features & s->config.features);
	l->reader.check_payload = (l->features & ZD_FEATURE_PAYLOAD_CRC) != 0;
	l->state = ZD_LINK_GREETED;
	if (lane_count < 1 || lane_count > ZD_LANES_MAX) {
		zd_csession_fail(s, ZEROD_ERR_PROTOCOL, "%s says it has %u lanes; 1 to %u are possible", s->daemons[l->daemon], lane_count,
				ZD_LANES_MAX);
	} else if (*known != 0 && *known != lane_count) {
		zd_csession_lost(s, "%s came back with %u lanes and had %u: the job is laid out for the old number", s->daemons[l->daemon],
				 lane_count, *known);
	} else if (s->lane_count > 0) {
		begin_open(s, l);
	} else {
		*known = lane_count;
		meet(s);
	}
}

void zd_cgreet_welcome(struct zd_session *s, struct zd_link *l, const Zd__Pb__Welcome *m)
{
	if (m->version != ZD_VERSION) {
		zd_csession_fail(s, ZEROD_ERR_CONNECT, "%s speaks version %u of the protocol, this library %u: install the same release",
				s->daemons[l->daemon], m->version, ZD_VERSION);
		return;
	}
	zd_cgreet_welcomed(s, l, m->lane_count, m->features);
}

int zd_cgreet_known(const struct zd_session *s, const struct zd_link *l)
{
	return s->connected && l->known;
}

void zd_cgreet_lost(struct zd_session *s, const struct zd_link *l, const char *why)
{
	char name[320];

	zd_clink_name(s, l, name, sizeof(name));
	zd_csession_lost(s, "%s has lost the state of job \"%s\" (%s)", name, s->spec.name, why);
}

void zd_cgreet_opened(struct zd_session *s, struct zd_link *l, const Zd__Pb__Opened *m)
{
	if (l->state != ZD_LINK_OPENING) {
		zd_csession_fail(s, ZEROD_ERR_PROTOCOL, "%s sent OPENED twice", s->daemons[l->daemon]);
		return;
	}
	if (zd_cgreet_known(s, l) && (l->uuid_hi != m->uuid_hi || l->uuid_lo != m->uuid_lo)) {
		zd_cgreet_lost(s, l, "it was created anew there");
		return;
	}
	l->known = 1;
	l->uuid_hi = m->uuid_hi;
	l->uuid_lo = m->uuid_lo;
	l->info.sealed = m->sealed != 0;
	if (s->config.world == 0) {
		l->info.decided = m->decided;
		l->info.step = m->version;
	}
	l->state = ZD_LINK_OPEN;
	l->tries = 0;
	l->heard = s->now;
	l->reason[0] = '\0';
	zd_cagree_open(s, l);
}
