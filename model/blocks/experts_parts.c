/* Divided experts (model/experts_parts.h): the router, some experts after others, and their sum. */
#include "model/blocks/experts.h"

struct experts_share experts_share_of(const struct stage_call *call)
{
	const struct experts_config *x = &call->block->experts;
	const struct model_stage *stage = &call->model->stages[call->stage];
	int64_t begin;

	if (stage->kind != STAGE_PART)
		return (struct experts_share){0, x->count};
	begin = stage->part * x->part;
	return (struct experts_share){begin, x->part < x->count - begin ? x->part : x->count - begin};
}

dev_addr experts_first(const struct stage_call *call)
{
	return acts_at(call, layout(call)->first + 4 * experts_share_of(call).begin);
}

struct row_range experts_range(const struct stage_call *call)
{
	struct experts_share share = experts_share_of(call);
	int64_t all = call->block->experts.count;

	return share.count == all ? (struct row_range){DEV_NONE, all, all}
	                          : (struct row_range){experts_first(call), share.count, all};
}

/* `at` is the address of a piece, or of a whole tensor. */
static dev_addr share_at(
        const struct stage_call *call, enum tensor_role role, dev_addr at, int64_t element_bytes)
{
	int64_t begin = experts_share_of(call).begin;
	int t;

	if (dev_is_none(at) || !begin)
		return at;
	t = model_tensor_of(call->model, role, call->layer);
	return model_tensor_parts(call->model, t) > 1
	               ? at
	               : dev_at(at, begin * (call->model->tensors[t].count / call->block->experts.count) *
	                                    element_bytes);
}

dev_addr experts_weight_of(const struct stage_call *call, enum tensor_role role)
{
	return share_at(call, role, weight_of(call, role), call->element_bytes);
}

dev_addr experts_grad_of(const struct stage_call *call, enum tensor_role role)
{
	return share_at(call, role, grad_of(call, role), 4);
}

static int64_t acts_bytes(const struct stage_call *call)
{
	return experts_layout_of(call).bytes;
}

static int64_t scratch_bytes(const struct stage_call *call)
{
	return experts_scratch_of(call).bytes;
}

/* The gradient of the experts' sum: no norm is behind it. */
static dev_addr gradient_of(struct stage_call *call)
{
	struct norm_place none = {ROLE_SUM_POST_NORM_W, ROLE_COUNT, DEV_NONE, DEV_NONE, DEV_NONE};

	return branch_gradient(call, &none, DEV_NONE);
}

static dev_addr parts_sum(const struct stage_call *call)
{
	return acts_at(call, layout(call)->parts_sum);
}

/* ---- the router ---- */

static void router_forward(struct stage_call *call)
{
	const struct experts_layout l = experts_layout_of(call);

	call->layout = &l;
	experts_begin(call);
	if (experts_has_shared(call) && !call->memory->recompute)
		experts_shared_forward(call, acts_at(call, l.parts_shared));
}

static void router_backward(struct stage_call *call)
{
	const struct experts_layout l = experts_layout_of(call);

	call->layout = &l;
	call_op(call, &(struct op){.kind = OP_COPY,
	                      .copy = {scratch_at(call, call->scratch.dnorm), parts_sum(call),
	                              4 * call->tokens * call->c->C}});
	experts_end_backward(call, gradient_of(call));
}

const struct stage_type stage_router = {.forward = router_forward,
        .backward = router_backward,
        .acts_bytes = acts_bytes,
        .scratch_bytes = scratch_bytes};

/* ---- a part ---- */

static int is_last_part(const struct stage_call *call)
{
	struct experts_share share = experts_share_of(call);

	return share.begin + share.count == call->block->experts.count;
}

static void part_forward(struct stage_call *call)
{
	const struct experts_layout l = experts_layout_of(call);

	call->layout = &l;
	experts_rows_forward(call);
	experts_combine(call, parts_sum(call), DTYPE_F32,
	        own_scratch_at(call, experts_scratch_of(call).in_rows),
	        experts_share_of(call).begin ? EXPERTS_SUM_GO_ON : EXPERTS_SUM_WRITE, 0);
}

static void part_backward(struct stage_call *call)
{
	const struct experts_layout l = experts_layout_of(call);

	call->layout = &l;
	experts_rows_backward(call, gradient_of(call), parts_sum(call),
	        is_last_part(call) ? EXPERTS_SUM_WRITE : EXPERTS_SUM_GO_ON);
}

const struct stage_type stage_part = {
        .forward = part_forward, .backward = part_backward, .scratch_bytes = scratch_bytes};

/* ---- the sum ---- */

static void sum_forward(struct stage_call *call)
{
	const struct experts_layout l = experts_layout_of(call);
	struct norm_place none = {ROLE_SUM_POST_NORM_W, ROLE_COUNT, DEV_NONE, DEV_NONE, DEV_NONE};
	dev_addr branch = stream_out(call);
	int64_t C = call->c->C;

	call->layout = &l;
	if (experts_has_shared(call))
		call_op(call, &(struct op){.kind = OP_COPY,
		                      .copy = {branch, acts_at(call, l.parts_shared),
		                              call->tokens * C * call->element_bytes}});
	call_columns(
	        call, branch, C, call->dtype, parts_sum(call), C, DTYPE_F32, C, experts_has_shared(call));
	branch_end(call, &none, branch);
}

static void sum_backward(struct stage_call *call)
{
	(void)call;
}

static int sum_backward_reads(const struct stage_call *call)
{
	(void)call;
	return 0;
}

const struct stage_type stage_sum = {.forward = sum_forward,
        .backward = sum_backward,
        .writes_stream = 1,
        .backward_reads = sum_backward_reads};
