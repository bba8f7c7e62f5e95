/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The decision on a round follows from the prepared records of all lanes, bit for bit, for whoever computes it.  zd_decide
 * is for the client side only (libm, decide.c); records, hyper-parameters and decisions are for both (record.c).
 *
 *   divisor = hyper.weight > 0 ? hyper.weight : world * micro_batches;  times hyper.loss_scale
 *   norm    = sqrt(total) / divisor
 *   clip    = max_norm > 0 ? min(1, max_norm / (norm + 1e-6)) : 1          (as torch.nn.utils.clip_grad_norm_)
 *   scale   = clip / divisor
 *
 * all in fp64.  A record with non-finite values on any lane: skipped, scale 0 (the norm is then that of the finite blocks).
 */
#ifndef ZD_PROTO_DECIDE_H
#define ZD_PROTO_DECIDE_H

#include "proto/normacc.h"
#include "proto/wire.h"

#define ZD_DIVISOR_MIN 0x1p-40
#define ZD_DIVISOR_MAX 0x1p80

struct zd_hyper {
	double lr, weight_decay, beta1, beta2, eps, max_norm, loss_scale, weight;
};

struct zd_record {
	uint64_t round;
	struct zd_ballot ballot;
	struct zd_hyper hyper;
	uint32_t world, micro_batches;
	struct zd_normacc norm;
	uint64_t nonfinite;
	uint32_t bad_unit, bad_rank; /* of the first non-finite element, by (unit, element); with nonfinite > 0 */
	uint64_t bad_element;
};

struct zd_decision {
	uint64_t round;
	struct zd_ballot ballot;
	uint8_t applied;
	double scale, norm;
	uint64_t step;
};

/* Combines the records of `count` lanes (at least one); step is the last applied step.  0, or -ZD_ERR_DECISION_DIFFERS when the records
 * do not have one name or differ in what must be equal (an agreement violated: never correct to go on), with a text that names the
 * lane and the field. */
int zd_decide(const struct zd_record *records, size_t count, uint64_t step, struct zd_decision *ret, char *text,
	      size_t text_size) ZD_MUST_USE;

/* Of any of the records, which agree in it; the scale of a round with that norm, if it is applied. */
double zd_divisor(const struct zd_record *r);
double zd_scale(const struct zd_record *r, double norm);

/* Whether a has a non-finite element that comes before b's first one, in (unit, element) order; b may be NULL or have none. */
int zd_record_worse(const struct zd_record *a, const struct zd_record *b);

/* Field by field, doubles by their bits: 1 equal, 0 not. */
int zd_decision_equal(const struct zd_decision *a, const struct zd_decision *b);
/* NULL if equal, else the name of the first field that differs ("lr", "max_norm", ...). */
const char *zd_hyper_differs(const struct zd_hyper *a, const struct zd_hyper *b);
/* NULL if usable, else what is wrong ("beta1 must be at least 0 and below 1") and in *ret_found the value: lr from 0 to 1e20,
 * weight_decay from 0 to 1e10, betas in [0, 1), eps from 1e-30 to 1e30, max_norm >= 0 and finite, loss_scale in
 * ZD_DIVISOR_MIN..ZD_DIVISOR_MAX, weight too or 0.  The kernels take them as fp32: the bounds keep every derived number finite there.
 * The wire refuses what this refuses. */
const char *zd_hyper_check(const struct zd_hyper *h, double *ret_found);

void zd_hyper_from_pb(struct zd_hyper *out, const Zd__Pb__Hyper *in);
void zd_hyper_to_pb(const struct zd_hyper *in, Zd__Pb__Hyper *out);
int zd_record_from_pb(struct zd_record *out, const Zd__Pb__Record *in) ZD_MUST_USE;
/* norm_bytes: memory the message refers to. */
void zd_record_to_pb(const struct zd_record *in, Zd__Pb__Record *out, Zd__Pb__Ballot *ballot, Zd__Pb__Hyper *hyper,
		     uint8_t norm_bytes[ZD_NORMACC_BYTES]);
void zd_decision_from_pb(struct zd_decision *out, const Zd__Pb__Decision *in);
void zd_decision_to_pb(const struct zd_decision *in, Zd__Pb__Decision *out, Zd__Pb__Ballot *ballot);

#endif
