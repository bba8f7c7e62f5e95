/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/decide.h"

#include <math.h>

#include "proto/assert.h"
#include "proto/text.h"

static int differs(char *text, size_t text_size, size_t lane, const char *field, const struct zd_record *a, const struct zd_record *b)
{
	return zd_text_fail(ZD_ERR_DECISION_DIFFERS, text, text_size,
			    "prepared records differ in %s: lane 0 has round %llu of ballot (%llu, %u), lane %zu round %llu of ballot (%llu, %u)",
			    field, (unsigned long long)a->round, (unsigned long long)a->ballot.epoch, a->ballot.attempt, lane,
			    (unsigned long long)b->round, (unsigned long long)b->ballot.epoch, b->ballot.attempt);
}

/* NULL, or what differs among the things that all lanes must say alike. */
static const char *record_differs(const struct zd_record *a, const struct zd_record *b)
{
	if (a->round != b->round)
		return "round";
	if (zd_ballot_cmp(a->ballot, b->ballot) != 0)
		return "ballot";
	if (a->world != b->world)
		return "world";
	if (a->micro_batches != b->micro_batches)
		return "micro_batches";
	return zd_hyper_differs(&a->hyper, &b->hyper);
}

int zd_decide(const struct zd_record *records, size_t count, uint64_t step, struct zd_decision *ret, char *text, size_t text_size)
{
	struct zd_normacc total;
	double norm;
	int applied = 1;

	ZD_ASSERT(count > 0);
	zd_normacc_zero(&total);
	for (size_t i = 0; i < count; i++) {
		const char *field = record_differs(&records[0], &records[i]);

		if (field)
			return differs(text, text_size, i, field, &records[0], &records[i]);
		zd_normacc_merge(&total, &records[i].norm);
		applied &= records[i].nonfinite == 0;
	}
	norm = sqrt(zd_normacc_round(&total)) / zd_divisor(&records[0]);
	*ret = (struct zd_decision){.round = records[0].round,
				    .ballot = records[0].ballot,
				    .applied = (uint8_t)applied,
				    .scale = applied ? zd_scale(&records[0], norm) : 0,
				    .norm = norm,
				    .step = step + (uint64_t)applied};
	return 0;
}
