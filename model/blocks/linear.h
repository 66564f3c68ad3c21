/* Products that linear.c and lora.c share; private to them. */
#ifndef FERRY_MODEL_BLOCKS_LINEAR_H
#define FERRY_MODEL_BLOCKS_LINEAR_H

#include "model/blocks/block.h"

/* y (+)= op(a) op(b), shapes as in op_matmul. */
struct product {
	struct rows y;
	int64_t n, k;
	enum dtype y_dtype;
	int adds;
	dev_addr a, b, bias;
	int64_t a_stride, b_stride;
	enum matmul_layout a_layout, b_layout;
};
void call_product(struct stage_call *call, const struct product *p);

/* The adapter's part of linear_forward and of its two backward functions; nothing if the matrix has none. */
void adapter_forward(struct stage_call *call, const struct linear *linear, struct rows y, enum dtype y_dtype,
        struct rows x);
void adapter_backward_input(struct stage_call *call, const struct linear *linear, struct rows dx,
        enum dtype dx_dtype, struct rows dy);
/* Of A and B, those that train. A [rank, in] of a fused tensor gets a part of its gradient from each of the
 * tensor's matrices. */
void adapter_backward_weight(
        struct stage_call *call, const struct linear *linear, struct rows dy, struct rows x);

#endif
