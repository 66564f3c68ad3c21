/* The choice of a router, its gradient, and the order of rows by experts. */
#include "gpu/kernel.cuh"

extern "C" {
#include "device/op_experts.h"
}

OP_EXPERTS_LIST(CUDA_DECLARE)

namespace
{

/* A warp has one token. Lane l has slots l and l + WARP of it. */
enum { ROUTE_WARPS = 4, ROUTE_OWN = ROUTE_CHOSEN_MAX / WARP, ORDER_BLOCK = 256 };

__device__ __forceinline__ float sigmoid_of(float x)
{
	return 1 / (1 + expf(-x));
}

/* ---- scores ---- */

struct softmax {
	float most, sum;
};

/* fmaxf skips NaN; the sum shows it. */
__device__ softmax softmax_of(const float *logits, int64_t experts)
{
	const int lane = (int)threadIdx.x % WARP;
	softmax s = {-INFINITY, 0};

	for (int64_t e = lane; e < experts; e += WARP)
		s.most = fmaxf(s.most, logits[e]);
	s.most = warp_max(s.most);
	for (int64_t e = lane; e < experts; e += WARP)
		s.sum += expf(logits[e] - s.most);
	s.sum = warp_sum(s.sum);
	return s;
}

/* The scores of a lane's slots; 0 where it has none. */
__device__ void scores_of(float score[ROUTE_OWN], const float *logits, const int32_t *ids, int64_t experts,
        int64_t chosen, int rule)
{
	const int lane = (int)threadIdx.x % WARP;
	softmax s = {logits[ids[0]], 0};

	if (rule == ROUTE_SOFTMAX)
		s = softmax_of(logits, experts);
	for (int i = 0; i < ROUTE_OWN; i++) {
		const int j = lane + i * WARP;
		const float x = j < chosen ? logits[ids[j]] : 0;

		score[i] = j >= chosen ? 0 : rule == ROUTE_SIGMOID ? sigmoid_of(x) : expf(x - s.most);
		if (rule == ROUTE_CHOSEN)
			s.sum += score[i];
	}
	if (rule == ROUTE_CHOSEN)
		s.sum = warp_sum(s.sum);
	for (int i = 0; i < ROUTE_OWN && rule != ROUTE_SIGMOID; i++)
		score[i] = score[i] / s.sum;
}

/* ---- the choice ---- */

/* A number that grows with x. NaN is the largest; 0 is below all. */
__device__ __forceinline__ uint32_t key_of(float x)
{
	const uint32_t bits = __float_as_uint(x + 0.0f); /* -0 becomes 0 */

	if (x != x)
		return 0xffffffffu;
	return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* The first of the largest keys, for all lanes; its key becomes 0. */
__device__ int32_t key_take(uint32_t *keys, int64_t count)
{
	const int lane = (int)threadIdx.x % WARP;
	uint32_t best = 0;
	int32_t found = INT32_MAX;

	for (int64_t i = lane; i < count; i += WARP)
		if (keys[i] > best) {
			best = keys[i];
			found = (int32_t)i;
		}
	for (int lanes = WARP / 2; lanes; lanes /= 2) {
		const uint32_t other = __shfl_xor_sync(0xffffffffu, best, lanes);
		const int32_t other_found = __shfl_xor_sync(0xffffffffu, found, lanes);

		if (other > best || (other == best && other_found < found)) {
			best = other;
			found = other_found;
		}
	}
	__syncwarp();
	if (lane == 0)
		keys[found] = 0;
	__syncwarp();
	return found;
}

template <class B>
__device__ __forceinline__ float value_of(const float *logits, const B *bias, int rule, int64_t e)
{
	return rule == ROUTE_SIGMOID ? sigmoid_of(logits[e]) + (bias ? to_float(bias[e]) : 0) : logits[e];
}

/* What a group counts. */
template <class B>
__device__ float group_value(const float *logits, const B *bias, int rule, int64_t first, int64_t each)
{
	float best = value_of(logits, bias, rule, first), next = -INFINITY;

	for (int64_t e = first + 1; e < first + each; e++) {
		float value = value_of(logits, bias, rule, e);

		if (key_of(value) > key_of(best)) {
			next = best;
			best = value;
		} else if (key_of(value) > key_of(next)) {
			next = value;
		}
	}
	return rule == ROUTE_SIGMOID && each > 1 ? best + next : best;
}

/* Zeroes the keys of experts whose groups do not take part. */
template <class B>
__device__ void groups_drop(
        const struct op_route &o, uint32_t *keys, uint32_t *group, const float *logits, const B *bias)
{
	const int lane = (int)threadIdx.x % WARP;
	const int64_t each = o.experts / o.groups;

	for (int64_t g = lane; g < o.groups; g += WARP)
		group[g] = key_of(group_value(logits, bias, o.rule, g * each, each));
	__syncwarp();
	for (int64_t i = 0; i < o.groups_chosen; i++)
		key_take(group, o.groups);
	for (int64_t e = lane; e < o.experts; e += WARP)
		if (group[e / each])
			keys[e] = 0;
	__syncwarp();
}

template <class B>
__global__ void __launch_bounds__(ROUTE_WARPS *WARP)
        route_kernel(int32_t *ids, float *weights, const float *logits, const B *bias, struct op_route o)
{
	SHARED_DYNAMIC(uint32_t, all); /* a key for each expert and group of each token */
	const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
	const int64_t t = (int64_t)blockIdx.x * (blockDim.x / WARP) + warp;
	uint32_t *keys = all + warp * (o.experts + o.groups);
	float score[ROUTE_OWN], sum = 0;

	if (t >= o.tokens)
		return;
	logits += t * o.experts;
	ids += t * o.chosen;
	for (int64_t e = lane; e < o.experts; e += WARP)
		keys[e] = key_of(value_of(logits, bias, o.rule, e));
	__syncwarp();
	if (o.groups > 1)
		groups_drop(o, keys, keys + o.experts, logits, bias);
	for (int64_t j = 0; j < o.chosen; j++) {
		const int32_t id = key_take(keys, o.experts);

		if (lane == 0)
			ids[j] = id;
	}
	__syncwarp();
	scores_of(score, logits, ids, o.experts, o.chosen, o.rule);
	for (int i = 0; i < ROUTE_OWN; i++)
		sum += score[i];
	sum = warp_sum(sum) + (float)o.norm_epsilon;
	for (int i = 0; i < ROUTE_OWN; i++)
		if (lane + i * WARP < o.chosen)
			weights[t * o.chosen + lane + i * WARP] =
			        (float)o.scale * score[i] / (o.is_normed ? sum : 1);
}

/* ---- its gradient ---- */

/* From the gradients of a lane's weights, in place, those of their scores. */
__device__ void scores_grad(
        const struct op_route_grad &o, float grad[ROUTE_OWN], const float score[ROUTE_OWN])
{
	float sum = 0, mean = 0;

	for (int i = 0; i < ROUTE_OWN; i++) {
		grad[i] *= (float)o.scale;
		sum += score[i];
	}
	if (!o.is_normed)
		return;
	sum = warp_sum(sum) + (float)o.norm_epsilon;
	for (int i = 0; i < ROUTE_OWN; i++)
		mean += grad[i] * (score[i] / sum);
	mean = warp_sum(mean);
	for (int i = 0; i < ROUTE_OWN; i++)
		grad[i] = (grad[i] - mean) / sum;
}

__global__ void __launch_bounds__(ROUTE_WARPS *WARP) route_grad_kernel(float *dlogits, const float *dweights,
        const int32_t *ids, const float *logits, struct op_route_grad o)
{
	const int lane = (int)threadIdx.x % WARP;
	const int64_t t = (int64_t)blockIdx.x * ROUTE_WARPS + threadIdx.x / WARP;
	float score[ROUTE_OWN], grad[ROUTE_OWN], mean = 0;
	softmax s = {0, 1};

	if (t >= o.tokens)
		return;
	dlogits += t * o.experts;
	logits += t * o.experts;
	ids += t * o.chosen;
	scores_of(score, logits, ids, o.experts, o.chosen, o.rule);
	for (int i = 0; i < ROUTE_OWN; i++)
		grad[i] = lane + i * WARP < o.chosen ? dweights[t * o.chosen + lane + i * WARP] : 0;
	scores_grad(o, grad, score);
	for (int i = 0; i < ROUTE_OWN && o.rule != ROUTE_SIGMOID; i++)
		mean += grad[i] * score[i];
	mean = warp_sum(mean);
	if (o.rule == ROUTE_SOFTMAX)
		s = softmax_of(logits, o.experts);
	for (int64_t e = lane; e < o.experts; e += WARP)
		dlogits[e] = o.rule == ROUTE_SOFTMAX ? -mean * (expf(logits[e] - s.most) / s.sum) : 0;
	__syncwarp();
	for (int i = 0; i < ROUTE_OWN; i++)
		if (lane + i * WARP < o.chosen)
			dlogits[ids[lane + i * WARP]] = o.rule == ROUTE_SIGMOID
			                                        ? grad[i] * score[i] * (1 - score[i])
			                                        : score[i] * (grad[i] - mean);
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
	const int64_t token_bytes = (o->experts + o->groups) * (int64_t)sizeof(uint32_t);
	const int warps = token_bytes * ROUTE_WARPS <= (48 << 10) ? ROUTE_WARPS : 1;

	return cuda_start(at, "route", route_kernel<B>, dim3((unsigned)ceil_div(o->tokens, warps)),
	        warps * WARP, token_bytes * warps, dev_ptr<int32_t>(o->ids), dev_ptr<float>(o->weights),
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
	        dim3((unsigned)ceil_div(o->tokens, ROUTE_WARPS)), ROUTE_WARPS * WARP, 0,
	        dev_ptr<float>(o->dlogits), dev_ptr<const float>(o->dweights), dev_ptr<const int32_t>(o->ids),
	        dev_ptr<const float>(o->logits), *o);
}

extern "C" int cuda_order(const struct cuda_launch *at, const struct op_order *o)
{
	return cuda_start(at, "order", order_kernel, dim3((unsigned)o->experts), ORDER_BLOCK, 0,
	        dev_ptr<int32_t>(o->first), dev_ptr<int32_t>(o->slot), dev_ptr<int32_t>(o->row),
	        dev_ptr<const int32_t>(o->ids), o->tokens * o->chosen, o->experts);
}
