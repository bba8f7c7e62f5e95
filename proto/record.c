/* SPDX-License-Identifier: Apache-2.0 */
/* Hyper-parameters, records and decisions: checks, comparison bit for bit, and their messages.  What needs libm is in decide.c. */
#include <string.h>

#include "proto/decide.h"

/* All of struct zd_hyper, in the order of the message. */
#define HYPER_FIELDS(X) X(lr) X(weight_decay) X(beta1) X(beta2) X(eps) X(max_norm) X(loss_scale) X(weight)

/* What the kernels take as fp32 stays finite there: lr * weight_decay, and lr / (1 - beta1), which is 2^53 * lr at most. */
#define LR_MAX 1e20
#define DECAY_MAX 1e10
#define EPS_MAX 1e30
#define CLIP_EPS 1e-6  /* of torch.nn.utils.clip_grad_norm_ */
#define EPS_MIN 1e-30  /* well above the smallest normal fp32, so that it is never flushed to a division by zero */

static int same_bits(double a, double b)
{
	return memcmp(&a, &b, sizeof(a)) == 0;
}

const char *zd_hyper_differs(const struct zd_hyper *a, const struct zd_hyper *b)
{
#define X(field)                                                                                                                      \
	if (!same_bits(a->field, b->field))                                                                                           \
		return #field;
	HYPER_FIELDS(X)
#undef X
	return NULL;
}

/* Not-a-number is in no range. */
static int within(double value, double low, double high)
{
	return value >= low && value <= high;
}

static const char *refuse(double *ret_found, double found, const char *expected)
{
	*ret_found = found;
	return expected;
}

const char *zd_hyper_check(const struct zd_hyper *h, double *ret_found)
{
	if (!within(h->lr, 0, LR_MAX))
		return refuse(ret_found, h->lr, "lr must be from 0 to 1e20");
	if (!within(h->weight_decay, 0, DECAY_MAX))
		return refuse(ret_found, h->weight_decay, "weight_decay must be from 0 to 1e10");
	if (!(h->beta1 >= 0 && h->beta1 < 1))
		return refuse(ret_found, h->beta1, "beta1 must be at least 0 and below 1");
	if (!(h->beta2 >= 0 && h->beta2 < 1))
		return refuse(ret_found, h->beta2, "beta2 must be at least 0 and below 1");
	if (!within(h->eps, EPS_MIN, EPS_MAX))
		return refuse(ret_found, h->eps, "eps must be from 1e-30 to 1e30");
	if (!within(h->max_norm, 0, __DBL_MAX__))
		return refuse(ret_found, h->max_norm, "max_norm must be finite and not negative (0: no clipping)");
	if (!within(h->loss_scale, ZD_DIVISOR_MIN, ZD_DIVISOR_MAX))
		return refuse(ret_found, h->loss_scale, "loss_scale must be from 2^-40 to 2^80 (1: not scaled)");
	if (h->weight != 0 && !within(h->weight, ZD_DIVISOR_MIN, ZD_DIVISOR_MAX))
		return refuse(ret_found, h->weight, "weight must be 0 (world times micro-batches) or from 2^-40 to 2^80");
	return NULL;
}

void zd_hyper_from_pb(struct zd_hyper *out, const Zd__Pb__Hyper *in)
{
#define X(field) out->field = in->field;
	HYPER_FIELDS(X)
#undef X
}

void zd_hyper_to_pb(const struct zd_hyper *in, Zd__Pb__Hyper *out)
{
	zd__pb__hyper__init(out);
#define X(field) out->field = in->field;
	HYPER_FIELDS(X)
#undef X
}

double zd_divisor(const struct zd_record *r)
{
	return (r->hyper.weight > 0 ? r->hyper.weight : (double)r->world * (double)r->micro_batches) * r->hyper.loss_scale;
}

double zd_scale(const struct zd_record *r, double norm)
{
	double clip = r->hyper.max_norm > 0 ? r->hyper.max_norm / (norm + CLIP_EPS) : 1;

	return (clip < 1 ? clip : 1) / zd_divisor(r);
}

static struct zd_ballot ballot_from_pb(const Zd__Pb__Ballot *in)
{
	return (struct zd_ballot){.epoch = in->epoch, .attempt = in->attempt};
}

static void ballot_to_pb(struct zd_ballot in, Zd__Pb__Ballot *out)
{
	zd__pb__ballot__init(out);
	out->epoch = in.epoch;
	out->attempt = in.attempt;
}

int zd_record_from_pb(struct zd_record *out, const Zd__Pb__Record *in)
{
	struct zd_record r = {.round = in->round,
			      .ballot = ballot_from_pb(in->ballot),
			      .world = in->world,
			      .micro_batches = in->micro_batches,
			      .nonfinite = in->nonfinite};

	ZD_TRY(zd_normacc_decode(&r.norm, in->norm.data, in->norm.len));
	zd_hyper_from_pb(&r.hyper, in->hyper);
	if (in->nonfinite > 0) {
		r.bad_unit = in->bad_unit;
		r.bad_rank = in->bad_rank;
		r.bad_element = in->bad_element;
	}
	*out = r;
	return 0;
}

void zd_record_to_pb(const struct zd_record *in, Zd__Pb__Record *out, Zd__Pb__Ballot *ballot, Zd__Pb__Hyper *hyper,
		     uint8_t norm_bytes[ZD_NORMACC_BYTES])
{
	int bad = in->nonfinite > 0;

	zd__pb__record__init(out);
	ballot_to_pb(in->ballot, ballot);
	zd_hyper_to_pb(&in->hyper, hyper);
	zd_normacc_encode(norm_bytes, &in->norm);
	out->round = in->round;
	out->ballot = ballot;
	out->hyper = hyper;
	out->world = in->world;
	out->micro_batches = in->micro_batches;
	out->norm.data = norm_bytes;
	out->norm.len = ZD_NORMACC_BYTES;
	out->nonfinite = in->nonfinite;
	out->has_bad_unit = out->has_bad_rank = out->has_bad_element = bad;
	if (bad) {
		out->bad_unit = in->bad_unit;
		out->bad_rank = in->bad_rank;
		out->bad_element = in->bad_element;
	}
}

void zd_decision_from_pb(struct zd_decision *out, const Zd__Pb__Decision *in)
{
	*out = (struct zd_decision){.round = in->round,
				    .ballot = ballot_from_pb(in->ballot),
				    .applied = in->applied != 0,
				    .scale = in->scale,
				    .norm = in->norm,
				    .step = in->step};
}

void zd_decision_to_pb(const struct zd_decision *in, Zd__Pb__Decision *out, Zd__Pb__Ballot *ballot)
{
	zd__pb__decision__init(out);
	ballot_to_pb(in->ballot, ballot);
	out->round = in->round;
	out->ballot = ballot;
	out->applied = in->applied;
	out->scale = in->scale;
	out->norm = in->norm;
	out->step = in->step;
}

int zd_decision_equal(const struct zd_decision *a, const struct zd_decision *b)
{
	return a->round == b->round && zd_ballot_cmp(a->ballot, b->ballot) == 0 && a->applied == b->applied &&
	       same_bits(a->scale, b->scale) && same_bits(a->norm, b->norm) && a->step == b->step;
}

int zd_record_worse(const struct zd_record *a, const struct zd_record *b)
{
	if (a->nonfinite == 0)
		return 0;
	if (!b || b->nonfinite == 0)
		return 1;
	return a->bad_unit < b->bad_unit || (a->bad_unit == b->bad_unit && a->bad_element < b->bad_element);
}
