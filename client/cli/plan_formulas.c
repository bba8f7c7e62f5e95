/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/plan_formulas.h"

#include <math.h>

#define MIB 1048576.0

/* Slack and fixed cost per lane of the memory promise; see zd_plan_daemon_ram. */
#define BUDGET_SLACK 1.03
#define BUDGET_LANE_BYTES (24.0 * MIB)

#define DEEPSPEED_BUFFER_FACTOR 1.5

static bool positive(double x)
{
	return isfinite(x) && x > 0.0;
}

static bool not_negative(double x)
{
	return isfinite(x) && x >= 0.0;
}

const char *zd_plan_error(int code)
{
	switch (code) {
	case ZD_PLAN_OK: return "no error";
	case ZD_PLAN_E_STAGE: return "expected stage 0, 1, 2 or 3";
	case ZD_PLAN_E_RANGE: return "expected a positive, finite quantity";
	case ZD_PLAN_E_SHAPE: return "expected quantities that fit each other";
	case ZD_PLAN_E_LARGE: return "expected amounts below 2^64 bytes";
	default: return "unknown error";
	}
}

static bool valid(struct zd_plan_size size)
{
	return positive(size.params) && not_negative(size.frozen);
}

int zd_plan_state_bytes(unsigned stage, struct zd_plan_size size, double gpus, double *ret_bytes)
{
	const double params = size.params, fixed = ZD_PLAN_WEIGHT_BYTES * size.frozen;
	const double w = ZD_PLAN_WEIGHT_BYTES, g = ZD_PLAN_GRAD_BYTES, k = ZD_PLAN_OPTIMIZER_BYTES;

	if (stage > 3)
		return ZD_PLAN_E_STAGE;
	if (!valid(size) || !positive(gpus))
		return ZD_PLAN_E_RANGE;
	switch (stage) {
	case 0: *ret_bytes = (w + g + k) * params + fixed; break;
	case 1: *ret_bytes = (w + g) * params + fixed + k * params / gpus; break;
	case 2: *ret_bytes = w * params + fixed + (g + k) * params / gpus; break;
	default: *ret_bytes = ((w + g + k) * params + fixed) / gpus; break;
	}
	return ZD_PLAN_OK;
}

int zd_plan_ring_bytes(unsigned stage, struct zd_plan_size size, double gpus, double weight_bytes,
					   double grad_bytes, double *ret_bytes)
{
	double per_param, fixed = stage == 3 ? 2.0 * weight_bytes * size.frozen : 0.0;

	if (stage > 3)
		return ZD_PLAN_E_STAGE;
	if (!valid(size) || !positive(gpus) || gpus < 1.0 || !positive(weight_bytes) ||
		!positive(grad_bytes))
		return ZD_PLAN_E_RANGE;
	if (stage == 0)
		per_param = 2.0 * grad_bytes;
	else if (stage == 3)
		per_param = grad_bytes + 2.0 * weight_bytes;
	else
		per_param = grad_bytes + weight_bytes;
	*ret_bytes = (size.params * per_param + fixed) * (gpus - 1.0) / gpus;
	return ZD_PLAN_OK;
}

int zd_plan_hybrid(double params, double gpus, double group, double node,
				   struct zd_plan_hybrid *ret_hybrid)
{
	double replicas, cross = 0.0;

	if (!positive(params) || !positive(gpus) || !positive(group) || !positive(node))
		return ZD_PLAN_E_RANGE;
	if (group > gpus || group != rint(group) || fmod(gpus, group) != 0.0)
		return ZD_PLAN_E_SHAPE;
	replicas = gpus / group;
	if (group > node)
		cross += 3.0 * (2.0 * params) * (group - 1.0) / group;
	if (replicas > 1.0)
		cross += 2.0 * (2.0 * params) * (replicas - 1.0) / replicas / group;
	ret_hybrid->state_bytes = 16.0 * params / group;
	ret_hybrid->cross_bytes = cross;
	ret_hybrid->replicas = replicas;
	return ZD_PLAN_OK;
}

int zd_plan_peak_bytes(const struct zd_plan_peak *in, double *ret_bytes)
{
	double state;
	int rc = zd_plan_state_bytes(3, in->size, in->gpus, &state);

	if (rc != ZD_PLAN_OK)
		return rc;
	if (!positive(in->largest_unit) || !positive(in->largest_trained) || !not_negative(in->activation_bytes))
		return ZD_PLAN_E_RANGE;
	if (in->largest_unit > in->size.params + in->size.frozen || in->largest_trained > in->size.params)
		return ZD_PLAN_E_SHAPE;
	*ret_bytes = state + 2.0 * ZD_PLAN_WEIGHT_BYTES * in->largest_unit + ZD_PLAN_GRAD_BYTES * in->largest_trained +
		     in->activation_bytes;
	return ZD_PLAN_OK;
}

int zd_plan_compute_seconds(struct zd_plan_size size, double tokens, double flops, double *ret_seconds)
{
	if (!valid(size) || !positive(tokens) || !positive(flops))
		return ZD_PLAN_E_RANGE;
	*ret_seconds = (6.0 * size.params + 4.0 * size.frozen) * tokens / flops;
	return ZD_PLAN_OK;
}

int zd_plan_transfer_seconds(double bytes, double rate, double *ret_seconds)
{
	if (!not_negative(bytes) || !positive(rate))
		return ZD_PLAN_E_RANGE;
	*ret_seconds = bytes / rate;
	return ZD_PLAN_OK;
}

int zd_plan_hiding_tokens(struct zd_plan_size size, double weight_bytes, double grad_bytes, double flops, double rate,
						  double *ret_tokens)
{
	double bytes = size.params * (grad_bytes + 2.0 * weight_bytes) + 2.0 * weight_bytes * size.frozen;

	if (!valid(size) || !positive(weight_bytes) || !positive(grad_bytes) || !positive(flops) || !positive(rate))
		return ZD_PLAN_E_RANGE;
	*ret_tokens = flops / rate * (bytes / (6.0 * size.params + 4.0 * size.frozen));
	return ZD_PLAN_OK;
}

int zd_plan_batch(struct zd_plan_size size, double batch_tokens, double gpus, double flops, double rate,
				  struct zd_plan_batch *ret_batch)
{
	struct zd_plan_batch batch;
	double bytes;
	int rc;

	if (!positive(batch_tokens))
		return ZD_PLAN_E_RANGE;
	rc = zd_plan_ring_bytes(3, size, gpus, ZD_PLAN_WEIGHT_BYTES, ZD_PLAN_GRAD_BYTES, &bytes);
	if (rc != ZD_PLAN_OK)
		return rc;
	batch.tokens = batch_tokens / gpus;
	rc = zd_plan_compute_seconds(size, batch.tokens, flops, &batch.compute_seconds);
	if (rc != ZD_PLAN_OK)
		return rc;
	rc = zd_plan_transfer_seconds(bytes, rate, &batch.transfer_seconds);
	if (rc != ZD_PLAN_OK)
		return rc;
	batch.ratio = batch.transfer_seconds / batch.compute_seconds;
	*ret_batch = batch;
	return ZD_PLAN_OK;
}

int zd_plan_activations(const struct zd_plan_shape *shape,
						struct zd_plan_activations *ret_activations)
{
	double sbh, full, layers = shape->layers;

	if (!positive(layers) || !positive(shape->hidden) || !positive(shape->heads) ||
		!positive(shape->seq) || !positive(shape->batch))
		return ZD_PLAN_E_RANGE;
	sbh = shape->seq * shape->batch * shape->hidden;
	full = layers * sbh * (34.0 + 5.0 * shape->heads * shape->seq / shape->hidden);
	if (!(full < ZD_PLAN_BYTES_END))
		return ZD_PLAN_E_LARGE;
	ret_activations->full_bytes = full;
	ret_activations->fused_bytes = layers * sbh * 34.0;
	ret_activations->checkpoint_bytes = layers * sbh * 2.0;
	return ZD_PLAN_OK;
}

int zd_plan_zeropp(struct zd_plan_size size, bool int8_weights, bool node_copy, bool int4_gradients,
				   struct zd_plan_volume *ret_volume)
{
	double gradients = ZD_PLAN_GRAD_BYTES * size.params, model = ZD_PLAN_WEIGHT_BYTES * (size.params + size.frozen);

	if (!valid(size))
		return ZD_PLAN_E_RANGE;
	ret_volume->forward_gather_bytes = int8_weights ? 0.5 * model : model;
	ret_volume->backward_gather_bytes = node_copy ? 0.0 : model;
	ret_volume->gradient_bytes = int4_gradients ? 0.25 * gradients : gradients;
	return ZD_PLAN_OK;
}

int zd_plan_deepspeed_zero2(double params, double gpus_per_node, double nodes,
							bool offload_optimizer, struct zd_plan_deepspeed *ret_estimate)
{
	double gpus = gpus_per_node * nodes;

	if (!positive(params) || !positive(gpus_per_node) || !positive(nodes))
		return ZD_PLAN_E_RANGE;
	if (offload_optimizer) {
		ret_estimate->gpu_bytes = 2.0 * params;
		ret_estimate->cpu_bytes = params * fmax(4.0 * gpus, 16.0) * DEEPSPEED_BUFFER_FACTOR;
	} else {
		ret_estimate->gpu_bytes = 4.0 * params + floor(16.0 * params / gpus);
		ret_estimate->cpu_bytes = params * 4.0 * gpus_per_node * DEEPSPEED_BUFFER_FACTOR;
	}
	return ZD_PLAN_OK;
}

int zd_plan_deepspeed_zero3(const struct zd_plan_zero3 *in, struct zd_plan_deepspeed *ret_estimate)
{
	double gpus = in->gpus_per_node * in->nodes, replicated = 4.0 * in->gpus_per_node;
	double layer = 4.0 * in->largest_layer, held, cpu;

	if (!positive(in->params) || !positive(in->largest_layer) || !positive(in->gpus_per_node) ||
		!positive(in->nodes))
		return ZD_PLAN_E_RANGE;
	if (in->largest_layer > in->params || (in->offload_params && !in->offload_optimizer))
		return ZD_PLAN_E_SHAPE;
	if (!in->offload_optimizer) {
		held = in->partitioned_init ? in->largest_layer : in->params;
		ret_estimate->gpu_bytes = layer + floor(18.0 * in->params / gpus);
		ret_estimate->cpu_bytes = held * replicated * DEEPSPEED_BUFFER_FACTOR;
		return ZD_PLAN_OK;
	}
	cpu = (in->offload_params ? 18.0 : 16.0) / in->nodes;
	if (!in->partitioned_init)
		cpu = fmax(replicated, cpu);
	ret_estimate->gpu_bytes = layer;
	if (!in->offload_params)
		ret_estimate->gpu_bytes += floor(2.0 * in->params / gpus);
	ret_estimate->cpu_bytes = in->params * cpu * DEEPSPEED_BUFFER_FACTOR;
	return ZD_PLAN_OK;
}

int zd_plan_daemon_ram(double trainable, double frozen, double daemons, double lanes,
					   struct zd_plan_daemon_ram *ret_ram)
{
	struct zd_plan_daemon_ram ram;

	if (!not_negative(trainable) || !not_negative(frozen) || !positive(trainable + frozen) ||
		!positive(daemons) || !positive(lanes))
		return ZD_PLAN_E_RANGE;
	ram.rest_bytes = 12.0 * trainable / daemons;
	ram.round_bytes = 4.0 * trainable / daemons;
	ram.frozen_bytes = 2.0 * frozen / daemons;
	ram.budget_bytes = BUDGET_SLACK * (ram.rest_bytes + ram.round_bytes + ram.frozen_bytes) +
					   BUDGET_LANE_BYTES * lanes;
	*ret_ram = ram;
	return ZD_PLAN_OK;
}
