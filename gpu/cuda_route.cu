/* The choice of a router, its gradient, and the order of rows by experts. */
#include "gpu/kernel.cuh"

extern "C" {
#include "device/op_experts.h"
}

OP_EXPERTS_LIST(CUDA_DECLARE)

namespace
{

enum { ROUTE_BLOCK = 64, ORDER_BLOCK = 256 };

__device__ __forceinline__ float sigmoid_of(float x)
{
	return 1 / (1 + expf(-x));
}

/* ---- scores ---- */

struct softmax {
	float most, sum;
};

__device__ softmax softmax_of(const float *logits, int64_t experts)
{
	softmax s = {logits[0], 0};

	for (int64_t e = 1; e < experts; e++)
		s.most = fmaxf(s.most, logits[e]);
	for (int64_t e = 0; e < experts; e++)
		s.sum += expf(logits[e] - s.most);
	return s;
}

__device__ void scores_of(
        float *score, const float *logits, const int32_t *ids, int64_t experts, int64_t chosen, int rule)
{
	softmax s = {logits[ids[0]], 0};

	if (rule == ROUTE_SOFTMAX)
		s = softmax_of(logits, experts);
	for (int64_t j = 0; j < chosen && rule == ROUTE_CHOSEN; j++)
		s.sum += expf(logits[ids[j]] - s.most);
	for (int64_t j = 0; j < chosen; j++)
		score[j] = rule == ROUTE_SIGMOID ? sigmoid_of(logits[ids[j]])
		                                 : expf(logits[ids[j]] - s.most) / s.sum;
}

/* ---- the choice ---- */

template <class B>
__device__ __forceinline__ float value_of(const float *logits, const B *bias, int rule, int64_t e)
{
	return rule == ROUTE_SIGMOID ? sigmoid_of(logits[e]) + (bias ? to_float(bias[e]) : 0) : logits[e];
}

/* What a group counts. */
template <class B>
__device__ float group_value(const float *logits, const B *bias, int rule, int64_t first, int64_t each)
{
	float best = -INFINITY, next = -INFINITY;

	for (int64_t e = first; e < first + each; e++) {
		float value = value_of(logits, bias, rule, e);

		if (value > best) {
			next = best;
			best = value;
		} else {
			next = fmaxf(next, value);
		}
	}
	return rule == ROUTE_SIGMOID && each > 1 ? best + next : best;
}

/* The groups that take part, as bits. */
template <class B> __device__ uint64_t groups_of(const struct op_route &o, const float *logits, const B *bias)
{
	int64_t each = o.experts / o.groups;
	uint64_t taken = 0;

	for (int64_t i = 0; i < o.groups_chosen && o.groups > 1; i++) {
		float most = -INFINITY;
		int64_t found = 0;

		for (int64_t g = 0; g < o.groups; g++) {
			float value = group_value(logits, bias, o.rule, g * each, each);

			if (!(taken >> g & 1) && value > most) {
				most = value;
				found = g;
			}
		}
		taken |= (uint64_t)1 << found;
	}
	return o.groups > 1 ? taken : 1;
}

__device__ __forceinline__ int is_taken(const int32_t *ids, int64_t count, int64_t e)
{
	for (int64_t j = 0; j < count; j++)
		if (ids[j] == e)
			return 1;
	return 0;
}

template <class B>
__device__ void choose(const struct op_route &o, int32_t *ids, const float *logits, const B *bias)
{
	uint64_t groups = groups_of(o, logits, bias);
	int64_t each = o.experts / o.groups;

	for (int64_t j = 0; j < o.chosen; j++) {
		float most = -INFINITY;
		int64_t found = 0;

		for (int64_t e = 0; e < o.experts; e++) {
			float value = value_of(logits, bias, o.rule, e);

			if (value > most && (groups >> e / each & 1) && !is_taken(ids, j, e)) {
				most = value;
				found = e;
			}
		}
		ids[j] = (int32_t)found;
	}
}

template <class B>
__global__ void __launch_bounds__(ROUTE_BLOCK)
        route_kernel(int32_t *all_ids, float *weights, const float *logits, const B *bias, struct op_route o)
{
	const int64_t t = (int64_t)blockIdx.x * ROUTE_BLOCK + threadIdx.x;
	float score[ROUTE_CHOSEN_MAX], sum = (float)o.norm_epsilon;
	int32_t ids[ROUTE_CHOSEN_MAX];

	if (t >= o.tokens)
		return;
	logits += t * o.experts;
	choose(o, ids, logits, bias);
	scores_of(score, logits, ids, o.experts, o.chosen, o.rule);
	for (int64_t j = 0; j < o.chosen; j++)
		sum += score[j];
	for (int64_t j = 0; j < o.chosen; j++) {
		all_ids[t * o.chosen + j] = ids[j];
		weights[t * o.chosen + j] = (float)o.scale * score[j] / (o.is_normed ? sum : 1);
	}
}

/* ---- its gradient ---- */

/* From the gradients of the chosen ones' weights, in place, those of their scores. */
__device__ void scores_grad(const struct op_route_grad &o, float *grad, const float *score)
{
	float sum = (float)o.norm_epsilon, mean = 0;

	for (int64_t j = 0; j < o.chosen; j++) {
		grad[j] *= (float)o.scale;
		sum += score[j];
	}
	for (int64_t j = 0; j < o.chosen; j++)
		mean += grad[j] * score[j] / sum;
	for (int64_t j = 0; j < o.chosen && o.is_normed; j++)
		grad[j] = (grad[j] - mean) / sum;
}

__global__ void __launch_bounds__(ROUTE_BLOCK) route_grad_kernel(float *dlogits, const float *dweights,
        const int32_t *ids, const float *logits, struct op_route_grad o)
{
	const int64_t t = (int64_t)blockIdx.x * ROUTE_BLOCK + threadIdx.x;
	float score[ROUTE_CHOSEN_MAX], grad[ROUTE_CHOSEN_MAX], mean = 0;

	if (t >= o.tokens)
		return;
	dlogits += t * o.experts;
	logits += t * o.experts;
	ids += t * o.chosen;
	scores_of(score, logits, ids, o.experts, o.chosen, o.rule);
	for (int64_t j = 0; j < o.chosen; j++)
		grad[j] = dweights[t * o.chosen + j];
	scores_grad(o, grad, score);
	for (int64_t j = 0; j < o.chosen && o.rule != ROUTE_SIGMOID; j++)
		mean += grad[j] * score[j];
	softmax s = softmax_of(logits, o.experts);
	for (int64_t e = 0; e < o.experts; e++)
		dlogits[e] = o.rule == ROUTE_SOFTMAX ? -mean * expf(logits[e] - s.most) / s.sum : 0;
	for (int64_t j = 0; j < o.chosen; j++)
		dlogits[ids[j]] = o.rule == ROUTE_SIGMOID ? grad[j] * score[j] * (1 - score[j])
		                                          : score[j] * (grad[j] - mean);
}

/* ---- the order of rows ---- */

/* A block has one expert. It counts the slots of earlier experts and then places its own, in their order. */
__global__ void __launch_bounds__(ORDER_BLOCK) order_kernel(
        int32_t *first, int32_t *slot, int32_t *row, const int32_t *ids, int64_t slots, int64_t experts)
{
	SHARED(int32_t, counts, ORDER_BLOCK);
	SHARED(int32_t, warps, ORDER_BLOCK / WARP);
	const int32_t e = (int32_t)blockIdx.x;
	const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
	int32_t next = 0;

	counts[threadIdx.x] = 0;
	for (int64_t s = threadIdx.x; s < slots; s += ORDER_BLOCK)
		counts[threadIdx.x] += ids[s] < e;
	__syncthreads();
	for (int i = 0; i < ORDER_BLOCK; i++)
		next += counts[i];
	if (threadIdx.x == 0) {
		first[e] = next;
		if (e == experts - 1)
			first[experts] = (int32_t)slots;
	}
	for (int64_t base = 0; base < slots; base += ORDER_BLOCK) {
		const int64_t s = base + threadIdx.x;
		const int is_own = s < slots && ids[s] == e;
		const unsigned votes = __ballot_sync(0xffffffffu, is_own);
		int32_t before = 0, all = 0;

		if (lane == 0)
			warps[warp] = __popc(votes);
		__syncthreads();
		for (int w = 0; w < ORDER_BLOCK / WARP; w++) {
			before += w < warp ? warps[w] : 0;
			all += warps[w];
		}
		if (is_own) {
			const int32_t at = next + before + __popc(votes & ((1u << lane) - 1));

			row[s] = at;
			slot[at] = (int32_t)s;
		}
		next += all;
		__syncthreads();
	}
}

template <class B> int route_start(const struct cuda_launch *at, const struct op_route *o)
{
	return cuda_start(at, "route", route_kernel<B>, dim3((unsigned)ceil_div(o->tokens, ROUTE_BLOCK)),
	        ROUTE_BLOCK, 0, dev_ptr<int32_t>(o->ids), dev_ptr<float>(o->weights),
	        dev_ptr<const float>(o->logits), dev_ptr<const B>(o->bias), *o);
}

} // namespace

extern "C" int cuda_route(const struct cuda_launch *at, const struct op_route *o)
{
	return o->bias_dtype == DTYPE_F32 ? route_start<float>(at, o) : route_start<bf16>(at, o);
}

extern "C" int cuda_route_grad(const struct cuda_launch *at, const struct op_route_grad *o)
{
	return cuda_start(at, "route_grad", route_grad_kernel,
	        dim3((unsigned)ceil_div(o->tokens, ROUTE_BLOCK)), ROUTE_BLOCK, 0, dev_ptr<float>(o->dlogits),
	        dev_ptr<const float>(o->dweights), dev_ptr<const int32_t>(o->ids),
	        dev_ptr<const float>(o->logits), *o);
}

extern "C" int cuda_order(const struct cuda_launch *at, const struct op_order *o)
{
	return cuda_start(at, "order", order_kernel, dim3((unsigned)o->experts), ORDER_BLOCK, 0,
	        dev_ptr<int32_t>(o->first), dev_ptr<int32_t>(o->slot), dev_ptr<int32_t>(o->row),
	        dev_ptr<const int32_t>(o->ids), o->tokens * o->chosen, o->experts);
}
