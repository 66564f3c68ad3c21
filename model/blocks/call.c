/* One call of a stage: addresses, and ops that any stage queues. */
#include "model/blocks/block.h"

#include "base/size.h"

void call_op(struct stage_call *call, const struct op *op)
{
	if (!call->err)
		call->err = stream_op(call->stream, op);
}

dev_addr acts_at(const struct stage_call *call, int64_t offset_bytes)
{
	return offset_bytes < call->kept_bytes ? dev_at(call->kept, offset_bytes)
	                                       : dev_at(call->acts, offset_bytes - call->kept_bytes);
}

int acts_are_kept(const struct stage_call *call, int64_t offset_bytes)
{
	return call->memory->recompute && offset_bytes < call->kept_bytes;
}

dev_addr scratch_at(const struct stage_call *call, int64_t offset_bytes)
{
	return dev_at(call->memory->scratch, offset_bytes);
}

dev_addr own_scratch_at(const struct stage_call *call, int64_t offset_bytes)
{
	return scratch_at(call, call->scratch.bytes + offset_bytes);
}

static dev_addr address_of(const struct stage_call *call, enum tensor_role role, const dev_addr *table)
{
	const struct model_stage *stage = &call->model->stages[call->stage];

	if (role == ROLE_HEAD_W && call->c->tied)
		role = ROLE_EMBED;
	for (int i = 0; i < stage->tensor_count && role != ROLE_COUNT; i++)
		if (call->model->tensors[stage->tensor[i]].role == role)
			return table[stage->tensor[i]];
	return DEV_NONE;
}

dev_addr weight_of(const struct stage_call *call, enum tensor_role role)
{
	return address_of(call, role, call->memory->weight);
}

dev_addr scales_of(const struct stage_call *call, enum tensor_role role)
{
	return call->memory->scales ? address_of(call, role, call->memory->scales) : DEV_NONE;
}

dev_addr grad_of(const struct stage_call *call, enum tensor_role role)
{
	return address_of(call, role, call->memory->grad);
}

/* Whether memory has only rows of the tensor, or takes them of its gradient. */
static int has_rows(const struct stage_call *call, enum tensor_role role, const uint8_t *by_tensor)
{
	return by_tensor && by_tensor[model_tensor_of(call->model, role, call->layer)];
}

static const struct model_tensor *table_of(const struct stage_call *call, enum tensor_role role)
{
	return &call->model->tensors[model_tensor_of(call->model, role, call->layer)];
}

void rows_forward(struct stage_call *call, enum tensor_role role, dev_addr out)
{
	const struct model_tensor *t = table_of(call, role);
	int alone = has_rows(call, role, call->memory->weight_rows);

	call_op(call, &(struct op){.kind = OP_GATHER,
	                      .gather = {.out = out,
	                              .table = weight_of(call, role),
	                              .index = alone ? call->batch->row : call->batch->id,
	                              .rows = call->tokens,
	                              .cols = t->shape[1],
	                              .table_rows = alone ? min_i64(call->tokens, t->shape[0]) : t->shape[0],
	                              .dtype = call->dtype}});
}

void rows_backward(
        struct stage_call *call, enum tensor_role role, dev_addr dy, double factor, dev_addr sorted)
{
	const struct model_tensor *t = table_of(call, role);
	dev_addr grad = grad_of(call, role);
	int alone = has_rows(call, role, call->memory->grad_rows);

	if (dev_is_none(grad))
		return;
	call_scale(call, alone ? grad : dy, dy, call->tokens * t->shape[1], factor);
	if (!alone)
		call_op(call, &(struct op){.kind = OP_EMBED_GRAD,
		                      .embed_grad = {.grad = grad,
		                              .dy = dy,
		                              .index = call->batch->id,
		                              .scratch = sorted,
		                              .rows = call->tokens,
		                              .cols = t->shape[1],
		                              .table_rows = t->shape[0],
		                              .skip_index = call->c->pad_id,
		                              .dtype = call->dtype}});
}

int call_has_frozen(const struct stage_call *call, enum tensor_role role)
{
	int t = model_tensor_of(call->model, role, call->layer);

	return t >= 0 && !call->model->tensors[t].trainable;
}

dev_addr grad_or(const struct stage_call *call, enum tensor_role role, dev_addr sink)
{
	dev_addr grad = grad_of(call, role);

	return !dev_is_none(grad) || dev_is_none(weight_of(call, role)) ? grad : sink;
}

const struct stage_value *value_of(const struct stage_call *call, int n)
{
	return &call->memory->value[call->model->stages[call->stage].value[n]];
}

void call_add(struct stage_call *call, dev_addr dst, dev_addr a, dev_addr b, int64_t count)
{
	call_op(call, &(struct op){.kind = OP_ADD,
	                      .add = {.dst = dst, .a = a, .b = b, .count = count, .dtype = call->dtype}});
}

void call_columns(struct stage_call *call, dev_addr dst, int64_t dst_stride, enum dtype dst_dtype,
        dev_addr src, int64_t src_stride, enum dtype src_dtype, int64_t columns, int adds)
{
	call_op(call, &(struct op){.kind = OP_COLUMNS,
	                      .columns = {.dst = dst,
	                              .src = src,
	                              .rows = call->tokens,
	                              .cols = columns,
	                              .dst_stride = dst_stride,
	                              .src_stride = src_stride,
	                              .dst_dtype = dst_dtype,
	                              .src_dtype = src_dtype,
	                              .accumulate = adds}});
}

void call_scale(struct stage_call *call, dev_addr dst, dev_addr src, int64_t count, double factor)
{
	call_op(call, &(struct op){.kind = OP_SCALE,
	                      .scale = {.dst = dst,
	                              .src = src,
	                              .count = count,
	                              .factor = factor,
	                              .dtype = call->dtype}});
}

void call_cast(struct stage_call *call, dev_addr dst, dev_addr src, int64_t count)
{
	call_op(call, &(struct op){.kind = OP_CAST,
	                      .cast = {.dst = dst,
	                              .src = src,
	                              .count = count,
	                              .dst_dtype = call->dtype,
	                              .src_dtype = DTYPE_F32}});
}
