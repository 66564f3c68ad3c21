/* Forward and backward of the inputs of layers: what a table and a product say of each token, by layer. */
#include "model/blocks/block.h"

#include "base/num.h"

#include <math.h>

static int64_t columns_of(const struct stage_call *call)
{
	return call->c->L * call->c->input_columns;
}

static struct linear product_of(const struct stage_call *call)
{
	return (struct linear){
	        ROLE_INPUTS_W, ROLE_COUNT, columns_of(call), call->c->C, call->c->weight_in_out, 0, 0};
}

struct inputs_layout {
	int64_t product; /* [tokens, columns] times C^-0.5, before the norm */
	int64_t rstd;    /* F32 [tokens, L] */
	int64_t bytes;
};

static struct inputs_layout layout_of(const struct stage_call *call)
{
	int64_t end = 0;
	struct inputs_layout l;

	l.product = layout_take(&end, call->tokens * columns_of(call), call->element_bytes);
	l.rstd = layout_take(&end, call->tokens * call->c->L, 4);
	l.bytes = end;
	return l;
}

static int64_t inputs_acts_bytes(const struct stage_call *call)
{
	return layout_of(call).bytes;
}

/* Forward: the norm's output and the table's rows. Backward: the gradient of their sum, that of either, the
 * product's part of dx, and what the ops need. */
struct inputs_scratch {
	int64_t sum, rows, dx, norm_partial, norm_sink, sorted, bytes;
};

static struct inputs_scratch scratch_of(const struct stage_call *call)
{
	const struct model_config *c = call->c;
	int64_t count = call->tokens * columns_of(call), e = call->element_bytes, end = 0;
	struct inputs_scratch s;

	s.sum = layout_take(&end, count, e);
	s.rows = layout_take(&end, count, e);
	s.dx = layout_take(&end, call->tokens * c->C, e);
	s.norm_partial = layout_take(&end, norm_scratch_count(call->tokens, c->L, c->input_columns), 4);
	s.norm_sink = layout_take(&end, norm_sink_count(call->model), 4);
	s.sorted = layout_take(&end, embed_grad_scratch_count(call->tokens, c->inputs_vocab), 4);
	s.bytes = end;
	return s;
}

static int64_t inputs_scratch_bytes(const struct stage_call *call)
{
	return scratch_of(call).bytes;
}

/* Rounded to the compute dtype, as transformers does with this factor and not with the two others. */
static double table_scale(const struct stage_call *call)
{
	float factor = (float)sqrt((double)call->c->input_columns);

	return (double)(call->dtype == DTYPE_BF16 ? bf16_to_f32(bf16_from_f32(factor)) : factor);
}

static double product_scale(const struct stage_call *call)
{
	return 1 / sqrt((double)call->c->C);
}

static void scale_all(struct stage_call *call, dev_addr at, double factor)
{
	call_scale(call, at, at, call->tokens * columns_of(call), factor);
}

/* sum = norm of the product, layer by layer */
static void project(struct stage_call *call, dev_addr sum)
{
	const struct model_config *c = call->c;
	struct linear product = product_of(call);
	int64_t columns = columns_of(call);
	dev_addr to = acts_at(call, layout_of(call).product);

	linear_forward(call, &product, rows_at(call, to, columns), call->dtype,
	        rows_at(call, call->memory->x, c->C));
	scale_all(call, to, product_scale(call));
	call_op(call, &(struct op){.kind = OP_RMSNORM,
	                      .norm = {.y = sum,
	                              .x = to,
	                              .weight = weight_of(call, ROLE_INPUTS_NORM_W),
	                              .rstd = acts_at(call, layout_of(call).rstd),
	                              .rows = call->tokens,
	                              .groups = c->L,
	                              .cols = c->input_columns,
	                              .x_stride = columns,
	                              .y_stride = columns,
	                              .x_group_stride = c->input_columns,
	                              .y_group_stride = c->input_columns,
	                              .epsilon = c->norm_of[ROLE_INPUTS_NORM_W].epsilon,
	                              .weight_offset = norm_offset_of(call, ROLE_INPUTS_NORM_W),
	                              .dtype = call->dtype}});
}

static void inputs_forward(struct stage_call *call)
{
	const struct model_config *c = call->c;
	struct inputs_scratch s = scratch_of(call);
	int64_t columns = columns_of(call), e = call->element_bytes;
	dev_addr sum = own_scratch_at(call, s.sum), rows = own_scratch_at(call, s.rows);

	project(call, sum);
	if (call->memory->recompute) /* the values are there still */
		return;
	rows_forward(call, ROLE_INPUTS_TABLE, rows);
	scale_all(call, rows, table_scale(call));
	call_add(call, sum, sum, rows, call->tokens * columns);
	scale_all(call, sum, sqrt(0.5));
	for (int64_t l = 0; l < c->L; l++)
		call_columns(call, value_of(call, (int)l)->at, c->input_columns, call->dtype,
		        dev_at(sum, l * c->input_columns * e), columns, call->dtype, c->input_columns, 0);
	if (!dev_is_none(stream_out(call)))
		call_op(call, &(struct op){.kind = OP_COPY,
		                      .copy = {.dst = stream_out(call),
		                              .src = call->memory->x,
		                              .bytes = call->tokens * c->C * e}});
}

/* From the gradient of the sum computes that of the product, in `to`. */
static void project_backward(
        struct stage_call *call, dev_addr to, dev_addr dsum, const struct inputs_scratch *s)
{
	const struct model_config *c = call->c;
	int64_t columns = columns_of(call);

	call_op(call, &(struct op){.kind = OP_RMSNORM_GRAD,
	                      .norm_grad = {.dx = to,
	                              .dweight = norm_grad_of(
	                                      call, ROLE_INPUTS_NORM_W, own_scratch_at(call, s->norm_sink)),
	                              .dy = dsum,
	                              .x = acts_at(call, layout_of(call).product),
	                              .weight = weight_of(call, ROLE_INPUTS_NORM_W),
	                              .rstd = acts_at(call, layout_of(call).rstd),
	                              .scratch = own_scratch_at(call, s->norm_partial),
	                              .rows = call->tokens,
	                              .groups = c->L,
	                              .cols = c->input_columns,
	                              .x_stride = columns,
	                              .y_stride = columns,
	                              .x_group_stride = c->input_columns,
	                              .y_group_stride = c->input_columns,
	                              .weight_offset = norm_offset_of(call, ROLE_INPUTS_NORM_W),
	                              .dtype = call->dtype}});
	scale_all(call, to, product_scale(call));
}

static void inputs_backward(struct stage_call *call)
{
	const struct model_config *c = call->c;
	struct inputs_scratch s = scratch_of(call);
	struct linear product = product_of(call);
	int64_t columns = columns_of(call);
	dev_addr dsum = own_scratch_at(call, s.sum), dx = call->memory->dx;
	struct rows dproduct = rows_at(call, own_scratch_at(call, s.rows), columns),
	            part = rows_at(call, own_scratch_at(call, s.dx), c->C);

	for (int64_t l = 0; l < c->L; l++)
		call_columns(call, dev_at(dsum, l * c->input_columns * call->element_bytes), columns,
		        call->dtype, value_of(call, (int)l)->grad, c->input_columns, DTYPE_F32,
		        c->input_columns, 0);
	scale_all(call, dsum, sqrt(0.5));
	project_backward(call, dproduct.base, dsum, &s);
	linear_backward_weight(call, &product, dproduct, rows_at(call, call->memory->x, c->C));
	linear_backward_input(call, &product, part, call->dtype, LINEAR_WRITE, dproduct);
	call_add(call, dx, dx, part.base, call->tokens * c->C);
	rows_backward(call, ROLE_INPUTS_TABLE, dsum, table_scale(call), own_scratch_at(call, s.sorted));
}

const struct stage_type stage_inputs = {.forward = inputs_forward,
        .backward = inputs_backward,
        .writes_stream = 1,
        .acts_bytes = inputs_acts_bytes,
        .scratch_bytes = inputs_scratch_bytes};
