/* Linear layers: products of rows with a matrix of the table, forward and backward. */
#include "model/blocks/linear.h"

void call_product(struct stage_call *call, const struct product *p)
{
	call_op(call, &(struct op){.kind = OP_MATMUL,
	                      .matmul = {.c = p->y.base,
	                              .a = p->a,
	                              .b = p->b,
	                              .bias = p->bias,
	                              .m = p->y.count,
	                              .n = p->n,
	                              .k = p->k,
	                              .a_stride = p->a_stride,
	                              .b_stride = p->b_stride,
	                              .c_stride = p->y.stride,
	                              .a_layout = p->a_layout,
	                              .b_layout = p->b_layout,
	                              .ab_dtype = call->dtype,
	                              .c_dtype = p->y_dtype,
	                              .accumulate = p->adds}});
}

/* The address of the matrix within its tensor, or of the bias. */
dev_addr linear_matrix_at(const struct linear *linear, dev_addr tensor, int64_t element_bytes)
{
	return dev_is_none(tensor) ? tensor : dev_at(tensor, linear->first * linear->in * element_bytes);
}

dev_addr linear_bias_at(const struct linear *linear, dev_addr tensor, int64_t element_bytes)
{
	return dev_is_none(tensor) ? tensor : dev_at(tensor, linear->first * element_bytes);
}

/* The product in FP8: codes of rows of x, then y (+)= x op(W). 0: the matrix has no codes, and nothing is
 * done. is_back: W^T. */
static int coded_product(struct stage_call *call, const struct linear *linear, struct rows y,
        enum dtype y_dtype, int adds, dev_addr bias, struct rows x, int is_back)
{
	enum { LESS = CODE_BLOCK - 1 };
	dev_addr scales = scales_of(call, linear->weight), codes = scratch_at(call, call->scratch.codes),
	         code_scales = scratch_at(call, call->scratch.code_scales);
	int64_t k = is_back ? linear->out : linear->in, lead = linear->first & LESS,
	        across = coded_blocks(0, linear->in_out ? linear->out : linear->in);
	int turned = !linear->in_out == !is_back; /* along k b's rows are contiguous */

	if (dev_is_none(scales))
		return 0;
	call_op(call, &(struct op){.kind = OP_ENCODE,
	                      .encode = {.codes = codes,
	                              .scales = code_scales,
	                              .src = x.base,
	                              .rows = x.count,
	                              .cols = k,
	                              .src_stride = x.stride,
	                              .block_rows = 1,
	                              .lead = turned ? 0 : lead,
	                              .src_dtype = call->dtype}});
	call_op(call, &(struct op){.kind = OP_CODED_MATMUL,
	                      .coded_matmul = {.c = y.base,
	                              .a = codes,
	                              .a_scales = code_scales,
	                              .b = linear_matrix_at(linear, weight_of(call, linear->weight), 1),
	                              .b_scales = dev_at(scales, linear->first / CODE_BLOCK * across * 4),
	                              .bias = bias,
	                              .m = y.count,
	                              .n = is_back ? linear->in : linear->out,
	                              .k = k,
	                              .c_stride = y.stride,
	                              .b_lead = lead,
	                              .b_layout = turned ? MATMUL_TRANSPOSED : MATMUL_NORMAL,
	                              .bias_dtype = call->dtype,
	                              .c_dtype = y_dtype,
	                              .accumulate = adds}});
	return 1;
}

void linear_product(struct stage_call *call, const struct linear *linear, struct rows y, enum dtype y_dtype,
        dev_addr bias, struct rows x)
{
	if (coded_product(call, linear, y, y_dtype, 0, bias, x, 0))
		return;
	call_product(call,
	        &(struct product){.y = y,
	                .n = linear->out,
	                .k = linear->in,
	                .y_dtype = y_dtype,
	                .a = x.base,
	                .a_stride = x.stride,
	                .b = linear_matrix_at(linear, weight_of(call, linear->weight), call->element_bytes),
	                .b_stride = linear->in_out ? linear->out : linear->in,
	                .b_layout = linear->in_out ? MATMUL_NORMAL : MATMUL_TRANSPOSED,
	                .bias = bias});
}

void linear_product_back(struct stage_call *call, const struct linear *linear, struct rows dx,
        enum dtype dx_dtype, int adds, struct rows dy)
{
	if (coded_product(call, linear, dx, dx_dtype, adds, DEV_NONE, dy, 1))
		return;
	call_product(call,
	        &(struct product){.y = dx,
	                .n = linear->in,
	                .k = linear->out,
	                .y_dtype = dx_dtype,
	                .adds = adds,
	                .a = dy.base,
	                .a_stride = dy.stride,
	                .b = linear_matrix_at(linear, weight_of(call, linear->weight), call->element_bytes),
	                .b_stride = linear->in_out ? linear->out : linear->in,
	                .b_layout = linear->in_out ? MATMUL_TRANSPOSED : MATMUL_NORMAL});
}

void linear_forward(struct stage_call *call, const struct linear *linear, struct rows y, enum dtype y_dtype,
        struct rows x)
{
	dev_addr bias = linear_bias_at(linear, weight_of(call, linear->bias), call->element_bytes);

	if (magnitudes_forward(call, linear, y, y_dtype, bias, x))
		return;
	linear_product(call, linear, y, y_dtype, bias, x);
	adapter_forward(call, linear, y, y_dtype, x);
}

void linear_backward_input(struct stage_call *call, const struct linear *linear, struct rows dx,
        enum dtype dx_dtype, enum linear_sum sum, struct rows dy)
{
	if (magnitudes_backward_input(call, linear, dx, dx_dtype, sum == LINEAR_ADD, dy))
		return;
	linear_product_back(call, linear, dx, dx_dtype, sum == LINEAR_ADD, dy);
	adapter_backward_input(call, linear, dx, dx_dtype, dy);
}

/* The gradients of the bias and, without what an adapter adds, of the weight. */
static void bias_backward(struct stage_call *call, const struct linear *linear, struct rows dy)
{
	dev_addr bias = grad_of(call, linear->bias);

	if (!dev_is_none(bias))
		call_op(call, &(struct op){.kind = OP_COLSUM,
		                      .colsum = {.sum = linear_bias_at(linear, bias, 4),
		                              .x = dy.base,
		                              .rows = dy.count,
		                              .cols = linear->out,
		                              .x_stride = dy.stride,
		                              .dtype = call->dtype}});
}

static void weight_backward(
        struct stage_call *call, const struct linear *linear, struct rows dy, struct rows x)
{
	struct rows a = linear->in_out ? x : dy, b = linear->in_out ? dy : x;
	int64_t m = linear->in_out ? linear->in : linear->out, n = linear->in_out ? linear->out : linear->in;
	dev_addr weight = grad_of(call, linear->weight);

	if (!dev_is_none(weight))
		call_product(call, &(struct product){.y = {linear_matrix_at(linear, weight, 4), m, n},
		                           .n = n,
		                           .k = dy.count,
		                           .y_dtype = DTYPE_F32,
		                           .adds = !call->writes_gradients,
		                           .a = a.base,
		                           .a_stride = a.stride,
		                           .a_layout = MATMUL_TRANSPOSED,
		                           .b = b.base,
		                           .b_stride = b.stride});
}

void linear_backward_weight(
        struct stage_call *call, const struct linear *linear, struct rows dy, struct rows x)
{
	bias_backward(call, linear, dy);
	if (magnitudes_backward_weight(call, linear, dy, x))
		return;
	weight_backward(call, linear, dy, x);
	adapter_backward_weight(call, linear, dy, x);
}

/* ---- joined matrices ---- */

/* The matrix n of a join, and the column of its first output. */
static struct linear part_of(int64_t *column, const struct joined *j, int n)
{
	*column = 0;
	for (int i = 0; i < n; i++)
		*column += j->out[i];
	return (struct linear){.weight = join_role(j->join, JOIN_MATRIX, n),
	        .bias = join_role(j->join, JOIN_BIAS, n),
	        .out = j->out[n],
	        .in = j->in};
}

/* All as one matrix, and its bias, which begin where the first ones do. */
static struct linear whole_of(const struct joined *j)
{
	int64_t column, last;
	struct linear whole = part_of(&column, j, 0), end = part_of(&last, j, join_count(j->join) - 1);

	whole.out = last + end.out;
	return whole;
}

static struct rows columns_at(struct rows rows, int64_t column, enum dtype dtype)
{
	rows.base = dev_at(rows.base, column * dtype_bytes(dtype));
	return rows;
}

void joined_forward(struct stage_call *call, const struct joined *j, struct rows y, struct rows x)
{
	struct linear whole = whole_of(j), part;
	int64_t column;

	linear_product(call, &whole, y, call->dtype,
	        linear_bias_at(&whole, weight_of(call, whole.bias), call->element_bytes), x);
	for (int n = 0; n < join_count(j->join); n++) {
		part = part_of(&column, j, n);
		adapter_forward(call, &part, columns_at(y, column, call->dtype), call->dtype, x);
	}
}

void joined_backward(struct stage_call *call, const struct joined *j, struct rows dx, enum dtype dx_dtype,
        struct rows dy, struct rows x)
{
	struct linear whole = whole_of(j), part;
	int64_t column;

	bias_backward(call, &whole, dy);
	weight_backward(call, &whole, dy, x);
	linear_product_back(call, &whole, dx, dx_dtype, 0, dy);
	for (int n = 0; n < join_count(j->join); n++) {
		part = part_of(&column, j, n);
		adapter_backward_weight(call, &part, columns_at(dy, column, call->dtype), x);
		adapter_backward_input(call, &part, dx, dx_dtype, columns_at(dy, column, call->dtype));
	}
}

int joined_has_adapter(const struct stage_call *call, enum role_join join)
{
	for (int n = 0; n < join_count(join); n++)
		if (linear_has_adapter(call, join_role(join, JOIN_MATRIX, n)))
			return 1;
	return 0;
}
