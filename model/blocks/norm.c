/* The family's norm, its gradient, and the gradient of a branch behind a norm. */
#include "model/blocks/block.h"

#include "base/size.h"

int64_t norm_sink_count(const struct model *model)
{
	int64_t C = model->config.C, most = model->frozen_norm_count;

	return max_i64(most ? C + max_i64(most, C) : 0, model->config.norm_zeros);
}

dev_addr norm_grad_of(const struct stage_call *call, enum tensor_role role, dev_addr sink)
{
	if (role != ROLE_COUNT && call->c->norm_of[role].is_plain)
		return sink;
	return grad_or(call, role, sink);
}

double norm_offset_of(const struct stage_call *call, enum tensor_role role)
{
	return call->c->norm_of[role].is_plain ? 1 : call->c->norm_of[role].weight_offset;
}

dev_addr norm_weight_of(struct stage_call *call, enum tensor_role role, dev_addr zeros)
{
	int64_t count = call->c->norm_zeros;

	if (!call->c->norm_of[role].is_plain)
		return weight_of(call, role);
	call_op(call,
	        &(struct op){.kind = OP_FILL, .fill = {.dst = zeros, .bytes = count * call->element_bytes}});
	return zeros;
}

void norm_forward(
        struct stage_call *call, const struct norm_place *norm, dev_addr y, dev_addr x, int64_t rows)
{
	int is_layer = call->c->norm == NORM_LAYER;
	dev_addr weight = norm_weight_of(call, norm->weight, norm->zeros);

	call_op(call, &(struct op){.kind = is_layer ? OP_LAYERNORM : OP_RMSNORM,
	                      .norm = {.y = y,
	                              .x = x,
	                              .weight = weight,
	                              .bias = is_layer ? weight_of(call, norm->bias) : DEV_NONE,
	                              .rstd = norm->rstd,
	                              .mean = is_layer ? norm->mean : DEV_NONE,
	                              .rows = rows,
	                              .groups = 1,
	                              .cols = call->c->C,
	                              .x_stride = call->c->C,
	                              .y_stride = call->c->C,
	                              .epsilon = call->c->norm_of[norm->weight].epsilon,
	                              .weight_offset = norm_offset_of(call, norm->weight),
	                              .dtype = call->dtype}});
}

void norm_backward(struct stage_call *call, const struct norm_place *norm, dev_addr dx, dev_addr dy,
        dev_addr x, int64_t rows, enum linear_sum sum, dev_addr partial, dev_addr sink)
{
	int is_layer = call->c->norm == NORM_LAYER;
	dev_addr weight = norm_weight_of(call, norm->weight, norm->zeros);

	call_op(call, &(struct op){.kind = is_layer ? OP_LAYERNORM_GRAD : OP_RMSNORM_GRAD,
	                      .norm_grad = {.dx = dx,
	                              .dweight = norm_grad_of(call, norm->weight, sink),
	                              .dbias = is_layer && norm->bias != ROLE_COUNT
	                                               ? norm_grad_of(call, norm->bias,
	                                                         dev_at(sink, 4 * call->c->C))
	                                               : DEV_NONE,
	                              .dy = dy,
	                              .x = x,
	                              .weight = weight,
	                              .rstd = norm->rstd,
	                              .mean = is_layer ? norm->mean : DEV_NONE,
	                              .scratch = partial,
	                              .rows = rows,
	                              .groups = 1,
	                              .cols = call->c->C,
	                              .x_stride = call->c->C,
	                              .y_stride = call->c->C,
	                              .weight_offset = norm_offset_of(call, norm->weight),
	                              .dtype = call->dtype,
	                              .accumulate_dx = sum == LINEAR_ADD}});
}

static double or_one(double scale)
{
	return scale != 0 ? scale : 1;
}

double branch_scale(const struct stage_call *call)
{
	const struct block_scales *s = &call->block->scales;
	double all = or_one(call->c->residual_scale);

	switch (call->model->stages[call->stage].kind) {
	case STAGE_ATTN:
		return all * or_one(s->attention_out);
	case STAGE_SCAN:
		return all * or_one(s->scan_out);
	case STAGE_DOWN:
		return all * or_one(s->down);
	default:
		return all;
	}
}

int block_scales_branches(const struct stage_call *call)
{
	const struct block_scales *s = &call->block->scales;

	return call->c->residual_scale != 0 || s->attention_out != 0 || s->scan_out != 0 || s->down != 0;
}

dev_addr branch_gradient(struct stage_call *call, const struct norm_place *post, dev_addr x)
{
	dev_addr branch = scratch_at(call, call->scratch.branch), dy = call->memory->dx;

	if (call->c->norm_after_sum) { /* stream and branch share the gradient of their sum */
		norm_backward(call, post, dy, dy, x, call->tokens, LINEAR_WRITE,
		        scratch_at(call, call->scratch.norm_partial),
		        scratch_at(call, call->scratch.norm_sink));
		return dy;
	}
	if (branch_scale(call) != 1) {
		call_scale(call, branch, dy, call->tokens * call->c->C, branch_scale(call));
		dy = branch;
	}
	if (!call_has(call, post->weight))
		return dy;
	norm_backward(call, post, branch, dy, x, call->tokens, LINEAR_WRITE,
	        scratch_at(call, call->scratch.norm_partial), scratch_at(call, call->scratch.norm_sink));
	return branch;
}

dev_addr branch_at(const struct stage_call *call, const struct norm_place *post, dev_addr kept)
{
	return call_has(call, post->weight) ? kept : stream_out(call);
}

int branch_is_kept(const struct stage_call *call, const struct norm_place *post, int64_t offset_bytes)
{
	return call_has(call, post->weight) ? acts_are_kept(call, offset_bytes) : stream_is_kept(call);
}

/* From the branch, or with norm_after_sum from its sum with the stream, to stream_out. */
static void stream_end(struct stage_call *call, const struct norm_place *post, dev_addr branch)
{
	dev_addr out = stream_out(call);
	int64_t count = call->tokens * call->c->C;

	if (call_has(call, post->weight))
		norm_forward(call, post, dev_is_none(out) ? scratch_at(call, call->scratch.branch) : out,
		        branch, call->tokens);
	if (dev_is_none(out) || call->c->norm_after_sum)
		return;
	if (branch_scale(call) != 1)
		call_scale(call, out, out, count, branch_scale(call));
	call_add(call, out, out, stream_in(call), count);
}

void branch_end(struct stage_call *call, const struct norm_place *post, dev_addr branch)
{
	if (call->c->norm_after_sum)
		call_add(call, branch, branch, stream_in(call), call->tokens * call->c->C);
	stream_end(call, post, branch);
}

void branch_end_again(struct stage_call *call, const struct norm_place *post, dev_addr branch)
{
	if (call_has(call, post->weight))
		stream_end(call, post, branch);
}
