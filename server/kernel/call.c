/* SPDX-License-Identifier: Apache-2.0 */
#include "server/kernel/call.h"

#include <string.h>

#include "proto/assert.h"
#include "proto/crc32c.h"

_Static_assert((int)ZD_FORM_BF16_1 == (int)ZD_GRAD_BF16_1 && (int)ZD_FORM_BF16_2 == (int)ZD_GRAD_BF16_2 &&
		       (int)ZD_FORM_FP32 == (int)ZD_GRAD_FP32,
	       "the core and the kernels number the forms of a gradient alike");
_Static_assert(ZD_KERNEL_BLOCK == ZD_BLOCK_ELEMS, "one block");

static const struct zd_adam_consts *adam_consts(struct zd_kernel_scratch *s, const struct zd_kernel_call *c)
{
	struct zd_adam_params params = {.lr = c->hyper.lr, .wd = c->hyper.weight_decay, .b1 = c->hyper.beta1,
					.b2 = c->hyper.beta2, .eps = c->hyper.eps, .l2 = c->l2};

	if (s->adam.valid && s->adam.step == c->step && s->adam.l2 == c->l2 && memcmp(&s->adam.scale, &c->scale, sizeof(c->scale)) == 0 &&
	    memcmp(&s->adam.hyper, &c->hyper, sizeof(c->hyper)) == 0)
		return &s->adam.consts;
	zd_adam_consts_init(&s->adam.consts, &params, c->step, c->scale);
	s->adam.hyper = c->hyper;
	s->adam.step = c->step;
	s->adam.scale = c->scale;
	s->adam.l2 = c->l2;
	s->adam.valid = 1;
	return &s->adam.consts;
}

static void widen(const struct zd_kernels *k, const struct zd_kernel_call *c)
{
	if (c->form == ZD_FORM_FP32)
		memcpy(c->dst, c->a, (size_t)c->n * sizeof(float));
	else
		k->widen[c->form == ZD_FORM_BF16_2](c->dst, c->a, c->b, c->n);
}

void zd_kernel_call(const struct zd_kernels *k, const struct zd_kernel_call *c, struct zd_kernel_scratch *scratch, struct zd_kernel_result *r)
{
	double *sums = c->want_sums ? r->sums : NULL;

	ZD_ASSERT(c->n <= ZD_EXTENT_ELEMS_MAX && c->codec < ZD_CODEC_COUNT && c->form < ZD_GRAD_FORM_COUNT);
	r->token = c->token;
	r->has_sums = c->want_sums;
	r->result = (struct zd_reduce_result){0};
	r->crc = 0;
	switch (c->op) {
	case ZD_KERNEL_ACC_SET:
		k->acc_set[c->codec](c->dst, c->a, c->n, sums, &r->result);
		break;
	case ZD_KERNEL_ACC_ADD:
		k->acc_add[c->codec](c->dst, c->a, c->n, sums, &r->result);
		break;
	case ZD_KERNEL_CHECK:
		r->crc = zd_crc32c(0, c->checked, c->n * sizeof(uint16_t));
		break;
	case ZD_KERNEL_NORM_1:
		k->norm_bf16_1(c->a, c->n, r->sums, &r->result, c->checked, &r->crc);
		break;
	case ZD_KERNEL_NORM_2:
		k->norm_bf16_2(c->a, c->b, c->n, r->sums, &r->result, c->checked, &r->crc);
		break;
	case ZD_KERNEL_ADAM:
		k->adam[c->form](c->hi, c->lo, c->m, c->v, c->a, c->b, c->n, adam_consts(scratch, c), c->checked ? &r->crc : NULL);
		break;
	case ZD_KERNEL_SPLIT:
		k->split[c->codec](c->hi, c->lo, c->a, c->n, &r->result);
		break;
	case ZD_KERNEL_SPLIT_HI:
		k->split[c->codec](c->hi, scratch->lo, c->a, c->n, &r->result);
		break;
	case ZD_KERNEL_MERGE:
		k->merge(c->dst, c->hi, c->lo, c->n);
		break;
	case ZD_KERNEL_WIDEN:
		widen(k, c);
		break;
	}
}

void zd_kernel_event(const struct zd_kernel_result *r, struct zd_event *ret_event)
{
	*ret_event = (struct zd_event){.type = ZD_EV_KERNEL};
	ret_event->u.kernel.token = r->token;
	ret_event->u.kernel.nonfinite = r->result.nonfinite;
	ret_event->u.kernel.first_nonfinite = r->result.first_nonfinite;
	ret_event->u.kernel.crc = r->crc;
	ret_event->u.kernel.block_sums = r->has_sums ? r->sums : NULL;
}
