/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The decision on a round follows from the prepared records of all lanes, bit for bit, for whoever computes it.  Client side only: it
 * needs libm.
 *
 *   divisor = hyper.weight > 0 ? hyper.weight : world * micro_batches;  times hyper.loss_scale
 *   norm    = sqrt(total) / divisor
 *   clip    = max_norm > 0 ? min(1, max_norm / (norm + 1e-6)) : 1          (as torch.nn.utils.clip_grad_norm_)
 *   scale   = clip / divisor
 *
 * all in fp64.  A record with non-finite values on any lane: skipped, scale 0.
 */
#ifndef ZD_PROTO_DECIDE_H
#define ZD_PROTO_DECIDE_H

#include "proto/normacc.h"
#include "proto/wire.h"

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

/* Combines the records of `count` lanes; step is the last applied step.  0, or -ZD_ERR_DECISION_DIFFERS when the records do not have one name or differ in what
 * must be equal (an agreement violated: never correct to go on), with a text. */
int zd_decide(const struct zd_record *records, size_t count, uint64_t step, struct zd_decision *ret, char *text, size_t text_size) ZD_MUST_USE;

/* Field by field, doubles by their bits: 1 equal, 0 not. */
int zd_decision_equal(const struct zd_decision *a, const struct zd_decision *b);
/* NULL if equal, else the name of the first field that differs ("lr", "max_norm", ...). */
const char *zd_hyper_differs(const struct zd_hyper *a, const struct zd_hyper *b);
/* NULL if usable, else what is wrong ("beta1 must be in [0, 1)"): finite, lr >= 0, betas in [0,1), eps > 0, the rest >= 0, loss_scale > 0. */
const char *zd_hyper_check(const struct zd_hyper *h);

void zd_hyper_from_pb(struct zd_hyper *out, const Zd__Pb__Hyper *in);
void zd_hyper_to_pb(const struct zd_hyper *in, Zd__Pb__Hyper *out);
int zd_record_from_pb(struct zd_record *out, const Zd__Pb__Record *in) ZD_MUST_USE;
/* norm_bytes: memory the message refers to. */
void zd_record_to_pb(const struct zd_record *in, Zd__Pb__Record *out, Zd__Pb__Ballot *ballot, Zd__Pb__Hyper *hyper,
		     uint8_t norm_bytes[ZD_NORMACC_BYTES]);
void zd_decision_from_pb(struct zd_decision *out, const Zd__Pb__Decision *in);
void zd_decision_to_pb(const struct zd_decision *in, Zd__Pb__Decision *out, Zd__Pb__Ballot *ballot);

#endif
