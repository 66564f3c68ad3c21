/* The shares of experts in a router's probabilities, and the gradient of a loss of even use. */
#include "gpu/kernel.cuh"

extern "C" {
#include "device/op_experts.h"
}

OP_EXPERTS_LIST(CUDA_DECLARE)

namespace
{

/* A warp has one token. */
enum { BALANCE_WARPS = 4, COUNTS_BLOCK = 128 };

struct softmax {
	float most, sum;
};

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

__global__ void __launch_bounds__(BALANCE_WARPS *WARP)
        shares_kernel(float *shares, const float *logits, int64_t tokens, int64_t experts)
{
	const int lane = (int)threadIdx.x % WARP;
	const int64_t t = (int64_t)blockIdx.x * BALANCE_WARPS + threadIdx.x / WARP;
	softmax s;

	if (t >= tokens)
		return;
	shares += t * experts;
	logits += t * experts;
	s = softmax_of(logits, experts);
	for (int64_t e = lane; e < experts; e += WARP)
		shares[e] = expf(logits[e] - s.most) / s.sum;
}

__global__ void __launch_bounds__(COUNTS_BLOCK)
        counts_kernel(float *counts, const int32_t *first, int64_t experts, int64_t layers, int64_t stride)
{
	const int64_t e = (int64_t)blockIdx.x * COUNTS_BLOCK + threadIdx.x;
	int64_t rows = 0;

	if (e >= experts)
		return;
	for (int64_t l = 0; l < layers; l++)
		rows += first[l * stride + e + 1] - first[l * stride + e];
	counts[e] = (float)rows;
}

__global__ void __launch_bounds__(BALANCE_WARPS *WARP) balance_grad_kernel(float *dlogits,
        const float *logits, const float *counts, int64_t tokens, int64_t experts, float factor)
{
	const int lane = (int)threadIdx.x % WARP;
	const int64_t t = (int64_t)blockIdx.x * BALANCE_WARPS + threadIdx.x / WARP;
	float mean = 0;
	softmax s;

	if (t >= tokens)
		return;
	dlogits += t * experts;
	logits += t * experts;
	s = softmax_of(logits, experts);
	for (int64_t e = lane; e < experts; e += WARP)
		mean += counts[e] * (expf(logits[e] - s.most) / s.sum);
	mean = warp_sum(mean);
	for (int64_t e = lane; e < experts; e += WARP)
		dlogits[e] += factor * (expf(logits[e] - s.most) / s.sum) * (counts[e] - mean);
}

dim3 token_blocks(int64_t tokens)
{
	return dim3((unsigned)ceil_div(tokens, BALANCE_WARPS));
}

} // namespace

extern "C" int cuda_router_shares(const struct cuda_launch *at, const struct op_router_shares *o)
{
	return cuda_start(at, "router_shares", shares_kernel, token_blocks(o->tokens), BALANCE_WARPS * WARP,
	        0, dev_ptr<float>(o->shares), dev_ptr<const float>(o->logits), o->tokens, o->experts);
}

extern "C" int cuda_balance_grad(const struct cuda_launch *at, const struct op_balance_grad *o)
{
	const int rc = cuda_start(at, "balance_counts", counts_kernel,
	        dim3((unsigned)ceil_div(o->experts, COUNTS_BLOCK)), COUNTS_BLOCK, 0,
	        dev_ptr<float>(o->counts), dev_ptr<const int32_t>(o->first), o->experts, o->layers,
	        o->stride);

	return rc ? rc
	          : cuda_start(at, "balance_grad", balance_grad_kernel, token_blocks(o->tokens),
	                    BALANCE_WARPS * WARP, 0, dev_ptr<float>(o->dlogits),
	                    dev_ptr<const float>(o->logits), dev_ptr<const float>(o->counts), o->tokens,
	                    o->experts, (float)o->factor);
}
