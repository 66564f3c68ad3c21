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

/* y = W x (+ bias); dx (+)= W^T dy. */
void linear_product(struct stage_call *call, const struct linear *linear, struct rows y, enum dtype y_dtype,
        dev_addr bias, struct rows x);
void linear_product_back(struct stage_call *call, const struct linear *linear, struct rows dx,
        enum dtype dx_dtype, int adds, struct rows dy);

/* The address of the matrix, or of the bias, within its tensor. */
dev_addr linear_matrix_at(const struct linear *linear, dev_addr tensor, int64_t element_bytes);
dev_addr linear_bias_at(const struct linear *linear, dev_addr tensor, int64_t element_bytes);

/* linear_forward and its two backward functions, without the bias's gradient, of a matrix with magnitudes
 * (DoRA). 0: it has none, and nothing is done. */
int magnitudes_forward(struct stage_call *call, const struct linear *linear, struct rows y,
        enum dtype y_dtype, dev_addr bias, struct rows x);
int magnitudes_backward_input(struct stage_call *call, const struct linear *linear, struct rows dx,
        enum dtype dx_dtype, int adds, struct rows dy);
int magnitudes_backward_weight(
        struct stage_call *call, const struct linear *linear, struct rows dy, struct rows x);

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
