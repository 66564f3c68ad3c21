/* The embedding of tokens and of learned positions; and back. */
#include "model/blocks/block.h"

int64_t embed_scratch_bytes(const struct model *model, int64_t tokens)
{
	const struct model_config *c = &model->config;
	int64_t rows = c->V;

	if (c->has[ROLE_POSITION] && c->max_positions > rows)
		rows = c->max_positions;
	return 4 * (tokens + rows + 1);
}

static void gather(
        struct stage_call *call, enum tensor_role role, int64_t table_rows, dev_addr index, int add)
{
	call_op(call, &(struct op){.kind = OP_GATHER,
	                      .gather = {.out = call->memory->y,
	                              .table = weight_of(call, role),
	                              .index = index,
	                              .rows = call->tokens,
	                              .cols = call->c->C,
	                              .table_rows = table_rows,
	                              .dtype = call->dtype,
	                              .accumulate = add}});
}

static void gather_backward(
        struct stage_call *call, enum tensor_role role, int64_t table_rows, dev_addr index, int64_t skip)
{
	dev_addr grad = grad_of(call, role);

	if (!dev_is_none(grad))
		call_op(call, &(struct op){.kind = OP_EMBED_GRAD,
		                      .embed_grad = {.grad = grad,
		                              .dy = call->memory->dx,
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
	gather(call, ROLE_EMBED, call->c->V, call->batch->id, 0);
	if (call->c->has[ROLE_POSITION])
		gather(call, ROLE_POSITION, call->c->max_positions, call->batch->position, 1);
}

void embed_backward(struct stage_call *call)
{
	gather_backward(call, ROLE_EMBED, call->c->V, call->batch->id, call->c->pad_id);
	if (call->c->has[ROLE_POSITION])
		gather_backward(call, ROLE_POSITION, call->c->max_positions, call->batch->position, -1);
}
