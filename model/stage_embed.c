#include "model/stage.h"

int64_t embed_scratch_bytes(const struct model *model, int64_t tokens)
{
	const struct model_config *c = &model->config;
	int64_t rows = c->V;

	if (c->learned_positions && c->max_positions > rows)
		rows = c->max_positions;
	return 4 * (tokens + rows + 1);
}

static void gather(struct stage_run *run, enum tensor_role role, int64_t table_rows, dev_addr index, int add)
{
	run_op(run, &(struct op){.kind = OP_GATHER,
	                    .gather = {.out = run->memory->y,
	                            .table = weight_of(run, role),
	                            .index = index,
	                            .rows = run->tokens,
	                            .cols = run->c->C,
	                            .table_rows = table_rows,
	                            .dtype = run->dtype,
	                            .accumulate = add}});
}

static void gather_backward(
        struct stage_run *run, enum tensor_role role, int64_t table_rows, dev_addr index, int64_t skip)
{
	run_op(run, &(struct op){.kind = OP_EMBED_GRAD,
	                    .embed_grad = {.grad = grad_of(run, role),
	                            .dy = run->memory->dx,
	                            .index = index,
	                            .scratch = run->memory->scratch,
	                            .rows = run->tokens,
	                            .cols = run->c->C,
	                            .table_rows = table_rows,
	                            .skip_index = skip,
	                            .dtype = run->dtype}});
}

void embed_forward(struct stage_run *run)
{
	gather(run, ROLE_EMBED, run->c->V, run->batch->id, 0);
	if (run->c->learned_positions)
		gather(run, ROLE_POSITION, run->c->max_positions, run->batch->position, 1);
}

void embed_backward(struct stage_run *run)
{
	gather_backward(run, ROLE_EMBED, run->c->V, run->batch->id, run->c->pad_id);
	if (run->c->learned_positions)
		gather_backward(run, ROLE_POSITION, run->c->max_positions, run->batch->position, -1);
}
