/* The minimum cost of a piece of work, for clocks. op_cost_of (device/op.h) computes it for an op; the
 * caller of stream_call fills it. */
#ifndef FERRY_DEVICE_OP_COST_H
#define FERRY_DEVICE_OP_COST_H

/* flops: of matrix products. attention_flops, recurrent_flops: the share of attention, and of recurrent
 * states in bf16, in flops_bf16 and flops_f32. memory_bytes: read and written in device memory. host_bytes:
 * read and written in host memory by a stream_call; 0 for an op. */
struct op_cost {
	double flops_bf16, flops_f32, memory_bytes, host_bytes;
	double attention_flops, recurrent_flops;
};

#endif
