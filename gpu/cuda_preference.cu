/* Weights of token losses, from the losses of preference pairs, and log probabilities of texts. */
#include "gpu/kernel.cuh"

extern "C" {
#include "device/op_preference.h"
}

OP_PREFERENCE_LIST(CUDA_DECLARE)

/* A block has a pair, a warp each of its texts. The warp adds token after token, as the host does, so that
 * the log probabilities have the host's bits: before the first update they are those of the reference. Lanes
 * load neighbouring tokens and pass them around; every lane has the same sum.
 *
 * Bytes: 4 read and 4 written for a token. Time: that of the additions in double, which wait for each other:
 * some 30 cycles a token of the longest text. */

enum { PAIR_THREADS = 2 * WARP };

static __device__ __forceinline__ double sum_in_order(const float *values, int64_t count)
{
	const int lane = (int)threadIdx.x % WARP;
	float next = lane < count ? values[lane] : 0.0f;
	double sum = 0;

	for (int64_t at = 0; at < count; at += WARP) {
		const float here = next;
		const int64_t ahead = at + WARP + lane;

		next = ahead < count ? values[ahead] : 0.0f;
#pragma unroll
		for (int i = 0; i < WARP; i++) /* 0 behind the end adds nothing, and no sum is -0 */
			sum += (double)__shfl_sync(0xffffffffu, here, i);
	}
	return sum;
}

static __global__ void __launch_bounds__(PAIR_THREADS) preference_weights(struct op_preference o)
{
	SHARED(double, policy, 2);
	SHARED(double, own, 1);
	const int32_t *first = dev_ptr<const int32_t>(o.first) + 2 * (int64_t)blockIdx.x;
	const int32_t *answer = dev_ptr<const int32_t>(o.answer) + 2 * (int64_t)blockIdx.x;
	const double *reference = dev_ptr<const double>(o.reference) + 2 * (int64_t)blockIdx.x;
	const float *nll = dev_ptr<const float>(o.nll);
	const int text = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
	const int64_t begin = answer[text], end = first[text + 1];
	const double sum = sum_in_order(nll + begin, end - begin);
	struct preference_pair pair;
	double grad[2], own_grad;
	float weight;

	/* the rejected text's warp takes the chosen text whole, while the other one waits */
	if (text && answer[0] > first[0]) {
		const double whole = sum_in_order(nll + first[0], first[1] - first[0]);

		if (lane == 0)
			own[0] = -whole;
	} else if (!text && lane == 0 && answer[0] == first[0])
		own[0] = -sum;
	if (lane == 0)
		policy[text] = -sum;
	__syncthreads();
	for (int i = 0; i < 2; i++) {
		pair.count[i] = first[i + 1] - answer[i];
		pair.policy[i] = policy[i];
		pair.reference[i] = reference[i];
	}
	pair.own = own[0];
	pair.own_count = first[1] - first[0];
	preference_loss(&o.loss, &pair, grad, &own_grad);
	for (int64_t t = first[text] + lane; t < begin; t += WARP)
		dev_ptr<float>(o.weight)[t] = (float)-own_grad;
	weight = (float)-(text ? grad[1] : grad[0] + own_grad);
	for (int64_t t = begin + lane; t < end; t += WARP)
		dev_ptr<float>(o.weight)[t] = weight;
}

extern "C" int cuda_preference(const struct cuda_launch *at, const struct op_preference *o)
{
	return cuda_start(
	        at, "preference", preference_weights, dim3((unsigned)o->pairs), PAIR_THREADS, 0, *o);
}

/* A warp has a text. */
static __global__ void __launch_bounds__(WARP) log_ratio_texts(struct op_log_ratio o)
{
	const int64_t text = blockIdx.x;
	const int32_t *first = dev_ptr<const int32_t>(o.first) + text;
	const double sum = sum_in_order(dev_ptr<const float>(o.nll) + first[0], first[1] - first[0]);
	const double value = -sum - dev_ptr<const double>(o.reference)[text];
	const float high = (float)value;

	if (threadIdx.x > 0)
		return;
	dev_ptr<float>(o.ratio)[2 * text] = high;
	dev_ptr<float>(o.ratio)[2 * text + 1] = (float)(value - (double)high);
}

extern "C" int cuda_log_ratio(const struct cuda_launch *at, const struct op_log_ratio *o)
{
	return cuda_start(at, "log_ratio", log_ratio_texts, dim3((unsigned)o->texts), WARP, 0, *o);
}
