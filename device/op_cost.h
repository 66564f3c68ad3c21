/* What a piece of work costs at least, for clocks: made from an op by op_cost_of (device/op.h), or filled by
 * whoever queues a stream_call. */
#ifndef FERRY_DEVICE_OP_COST_H
#define FERRY_DEVICE_OP_COST_H

/* flops are those of matrix products; attention_flops are the part of flops_bf16 and flops_f32 that is
 * attention's. memory_bytes: read and written in device memory. host_bytes: read and written in host memory
 * by a stream_call; 0 for an op. */
struct op_cost {
	double flops_bf16, flops_f32, memory_bytes, host_bytes;
	double attention_flops;
};

#endif
