/* The router of a layer of experts: logits, the choice and its weights, the order of rows, and its
 * gradient. */
#include "model/blocks/experts.h"

static struct linear router_of(const struct stage_call *call)
{
	return (struct linear){ROLE_ROUTER_W, ROLE_ROUTER_B, call->block->experts.count, call->c->C, 0, 0, 0};
}

struct router experts_router(const struct stage_call *call, int is_shared)
{
	const struct experts_layout *l = layout(call);
	const struct experts_config *x = &call->block->experts;

	return is_shared ? (struct router){l->shared_logits, l->shared_ids, l->shared_weights, 1, 1,
	                           experts_shared_of(call, ROLE_SHARED_WEIGHT_W), 1}
	                 : (struct router){
	                           l->logits, l->ids, l->weights, x->count, x->chosen, router_of(call), 0};
}

/* Logits, or their gradient. */
static void scale_logits(struct stage_call *call, const struct router *r, dev_addr logits)
{
	double factor = call->block->experts.logit_scale;

	if (!r->is_shared && factor != 0)
		call_op(call, &(struct op){.kind = OP_SCALE,
		                      .scale = {.dst = logits,
		                              .src = logits,
		                              .count = call->tokens * r->experts,
		                              .factor = factor,
		                              .dtype = DTYPE_F32}});
}

/* The weights of rows: those of the router, or these times EXPERT_SCALE. */
dev_addr experts_row_weights(const struct stage_call *call)
{
	const struct experts_layout *l = layout(call);

	return acts_at(call, call_has(call, ROLE_EXPERT_SCALE) ? l->scaled : l->weights);
}

void experts_scale_weights(struct stage_call *call)
{
	const struct experts_layout *l = layout(call);

	if (!call_has(call, ROLE_EXPERT_SCALE))
		return;
	call_op(call, &(struct op){.kind = OP_COPY,
	                      .copy = {acts_at(call, l->scaled), acts_at(call, l->weights),
	                              experts_rows(call) * 4}});
	call_op(call, &(struct op){.kind = OP_EXPERT_SCALE,
	                      .expert_scale = {acts_at(call, l->scaled), acts_at(call, l->ids),
	                              weight_of(call, ROLE_EXPERT_SCALE), call->tokens,
	                              call->block->experts.chosen, call->block->experts.count, call->dtype}});
}

void experts_scale_weights_backward(struct stage_call *call)
{
	const struct experts_layout *l = layout(call);
	struct experts_scratch s = experts_scratch_of(call);

	if (call_has(call, ROLE_EXPERT_SCALE))
		call_op(call, &(struct op){.kind = OP_EXPERT_SCALE_GRAD,
		                      .expert_scale_grad = {.dweights = experts_dweights(call),
		                              .dscale = grad_or(call, ROLE_EXPERT_SCALE,
		                                      own_scratch_at(call, s.dlogits)),
		                              .weights = acts_at(call, l->weights),
		                              .first = acts_at(call, l->first),
		                              .slot = acts_at(call, l->slot),
		                              .scale = weight_of(call, ROLE_EXPERT_SCALE),
		                              .tokens = call->tokens,
		                              .chosen = call->block->experts.chosen,
		                              .experts = call->block->experts.count,
		                              .dtype = call->dtype}});
}

void experts_route(struct stage_call *call, const struct router *r)
{
	const struct experts_config *x = &call->block->experts;
	dev_addr logits = acts_at(call, r->logits);

	linear_forward(call, &r->linear, rows_at(call, logits, r->experts), DTYPE_F32,
	        r->is_shared ? experts_norm_rows(call) : experts_router_rows(call));
	scale_logits(call, r, logits);
	call_op(call, &(struct op){.kind = OP_ROUTE,
	                      .route = {.ids = acts_at(call, r->ids),
	                              .weights = acts_at(call, r->weights),
	                              .logits = logits,
	                              .bias = r->is_shared ? DEV_NONE : weight_of(call, ROLE_ROUTER_CHOICE_B),
	                              .tokens = call->tokens,
	                              .experts = r->experts,
	                              .chosen = r->chosen,
	                              .groups = r->is_shared ? 1 : x->groups,
	                              .groups_chosen = r->is_shared ? 1 : x->groups_chosen,
	                              .rule = r->is_shared ? ROUTE_SIGMOID : x->rule,
	                              .bias_dtype = call->dtype,
	                              .is_normed = !r->is_shared && x->is_normed,
	                              .scale = r->is_shared ? 1 : x->scale}});
}

void experts_order(struct stage_call *call)
{
	const struct experts_layout *l = layout(call);

	call_op(call, &(struct op){.kind = OP_ORDER,
	                      .order = {.first = acts_at(call, l->first),
	                              .slot = acts_at(call, l->slot),
	                              .row = acts_at(call, l->row),
	                              .ids = acts_at(call, l->ids),
	                              .tokens = call->tokens,
	                              .chosen = call->block->experts.chosen,
	                              .experts = call->block->experts.count}});
}

/* From the gradients of the weights, those of the router; adds that of its input to dnorm, or
 * writes it. */
void experts_route_backward(
        struct stage_call *call, const struct router *r, dev_addr dnorm, enum linear_sum sum)
{
	struct rows input = r->is_shared ? experts_norm_rows(call) : experts_router_rows(call);
	const struct experts_config *x = &call->block->experts;
	struct experts_scratch s = experts_scratch_of(call);
	dev_addr wide = own_scratch_at(call, s.dlogits), cast = own_scratch_at(call, s.dlogits_cast);
	struct rows dlogits = rows_at(call, call->dtype == DTYPE_F32 ? wide : cast, r->experts);

	call_op(call, &(struct op){.kind = OP_ROUTE_GRAD,
	                      .route_grad = {.dlogits = wide,
	                              .dweights = r->is_shared ? own_scratch_at(call, s.dweights)
	                                                       : experts_dweights(call),
	                              .ids = acts_at(call, r->ids),
	                              .logits = acts_at(call, r->logits),
	                              .tokens = call->tokens,
	                              .experts = r->experts,
	                              .chosen = r->chosen,
	                              .rule = r->is_shared ? ROUTE_SIGMOID : x->rule,
	                              .is_normed = !r->is_shared && x->is_normed,
	                              .scale = r->is_shared ? 1 : x->scale}});
	if (!r->is_shared)
		experts_balance_backward(call, wide);
	scale_logits(call, r, wide);
	if (call->dtype != DTYPE_F32)
		call_cast(call, cast, wide, call->tokens * r->experts);
	linear_backward_weight(call, &r->linear, dlogits, input);
	linear_backward_input(call, &r->linear, rows_at(call, dnorm, call->c->C), DTYPE_F32, sum, dlogits);
}
