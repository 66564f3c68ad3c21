/* Forward and backward of the embedding of tokens and of learned positions. */
#include "model/blocks/block.h"

#include "base/num.h"

/* Scratch: the sorted indices, then dx times embed_scale. */
struct embed_layout {
	int64_t scaled, bytes;
};

static struct embed_layout embed_layout_of(const struct model *model, enum dtype dtype, int64_t tokens)
{
	const struct model_config *c = &model->config;
	int64_t rows = c->V, end = 0;
	struct embed_layout e;

	if (c->has[ROLE_POSITION] && c->max_positions > rows)
		rows = c->max_positions;
	layout_take(&end, embed_grad_scratch_count(tokens, rows), 4);
	e.scaled = layout_take(&end, c->embed_scale != 0 ? tokens * c->C : 0, dtype_bytes(dtype));
	e.bytes = end;
	return e;
}

int64_t embed_scratch_bytes(const struct model *model, enum dtype dtype, int64_t tokens)
{
	return embed_layout_of(model, dtype, tokens).bytes;
}

/* Rounds the factor to the compute dtype, as transformers does. */
static void scale(struct stage_call *call, dev_addr dst, dev_addr src)
{
	float factor = (float)call->c->embed_scale;

	if (call->dtype == DTYPE_BF16)
		factor = bf16_to_f32(bf16_from_f32(factor));
	call_scale(call, dst, src, call->tokens * call->c->C, (double)factor);
}

/* The row of position 0 in the table of learned positions, or in its gradient. */
static dev_addr positions_at(const struct stage_call *call, dev_addr table, int64_t element_bytes)
{
	int64_t first = call->c->position_offset * call->c->C;

	return dev_is_none(table) ? table : dev_at(table, first * element_bytes);
}

static void gather(struct stage_call *call, dev_addr table, int64_t table_rows, dev_addr index, int add)
{
	call_op(call, &(struct op){.kind = OP_GATHER,
	                      .gather = {.out = call->memory->y,
	                              .table = table,
	                              .index = index,
	                              .rows = call->tokens,
	                              .cols = call->c->C,
	                              .table_rows = table_rows,
	                              .dtype = call->dtype,
	                              .accumulate = add}});
}

static void gather_backward(
        struct stage_call *call, dev_addr grad, int64_t table_rows, dev_addr index, int64_t skip, dev_addr dy)
{
	if (!dev_is_none(grad))
		call_op(call, &(struct op){.kind = OP_EMBED_GRAD,
		                      .embed_grad = {.grad = grad,
		                              .dy = dy,
		                              .index = index,
		                              .scratch = call->memory->scratch,
		                              .rows = call->tokens,
		                              .cols = call->c->C,
		                              .table_rows = table_rows,
		                              .skip_index = skip,
		                              .dtype = call->dtype}});
}

void embed_forward(struct stage_call *call)
{
	const struct model_config *c = call->c;
	dev_addr y = call->memory->y;

	gather(call, weight_of(call, ROLE_EMBED), c->V, call->batch->id, 0);
	if (c->embed_scale != 0)
		scale(call, y, y);
	if (c->has[ROLE_POSITION])
		gather(call, positions_at(call, weight_of(call, ROLE_POSITION), call->element_bytes),
		        c->max_positions, call->batch->position, 1);
}

void embed_backward(struct stage_call *call)
{
	const struct model_config *c = call->c;
	dev_addr dx = call->memory->dx, scaled = dx;

	if (c->embed_scale != 0 && !dev_is_none(grad_of(call, ROLE_EMBED))) {
		struct embed_layout e = embed_layout_of(call->model, call->dtype, call->tokens);

		scaled = dev_at(call->memory->scratch, e.scaled);
		scale(call, scaled, dx);
	}
	gather_backward(call, grad_of(call, ROLE_EMBED), c->V, call->batch->id, c->pad_id, scaled);
	if (c->has[ROLE_POSITION])
		gather_backward(call, positions_at(call, grad_of(call, ROLE_POSITION), 4), c->max_positions,
		        call->batch->position, -1, dx);
}
