/* Forward and backward of the MLP: norm, gate and up, activation, down. */
#include "model/blocks/block.h"

/* Gate and up read norm2's output. down reads act(gate) * up, and backward computes that product again. Where
 * gate and up are joined, or fused in one tensor that has the gate's rows first, one product makes both,
 * unless a factor is on the gate. */
static int is_fused(const struct stage_call *call)
{
	return call_has(call, ROLE_GATE_UP_W);
}

static int is_joined(const struct stage_call *call)
{
	return call->block->scales.gate == 0 &&
	       (is_fused(call) || model_joins(call->model, call->layer, JOIN_GATE_UP));
}

/* Gate or up alone. Backward of up comes first. */
static struct linear inner_of(const struct stage_call *call, int is_up)
{
	struct linear l = {.weight = is_up ? ROLE_UP_W : ROLE_GATE_W,
	        .bias = is_up ? ROLE_UP_B : ROLE_GATE_B,
	        .out = call->block->F,
	        .in = call->c->C,
	        .in_out = call->c->weight_in_out};

	if (is_fused(call))
		l = (struct linear){.weight = ROLE_GATE_UP_W,
		        .bias = ROLE_COUNT,
		        .out = call->block->F,
		        .in = call->c->C,
		        .first = is_up ? call->block->F : 0,
		        .is_later = !is_up};
	return l;
}

/* Both of the fused tensor. */
static struct linear both_of(const struct stage_call *call)
{
	return (struct linear){
	        .weight = ROLE_GATE_UP_W, .bias = ROLE_COUNT, .out = 2 * call->block->F, .in = call->c->C};
}

/* Of gate and up in tensors of their own. */
static struct joined joined_of(const struct stage_call *call)
{
	return (struct joined){JOIN_GATE_UP, call->c->C, {call->block->F, call->block->F}};
}

static struct linear down_of(const struct stage_call *call)
{
	return (struct linear){.weight = ROLE_DOWN_W,
	        .bias = ROLE_DOWN_B,
	        .out = call->c->C,
	        .in = call->block->F,
	        .in_out = call->c->weight_in_out};
}

/* What `up` keeps for backward. */
struct mlp_layout {
	/* [tokens, F], rows `stride` apart: joined, up lies in the gaps of gate. Backward of `down`
	 * overwrites them with their gradients. */
	int64_t gate, up, stride;
	int64_t products;   /* so far ACTS_PRODUCTS keeps them */
	int64_t rstd, mean; /* F32 [tokens] */
	int64_t norm;       /* [tokens, C] */
	int64_t bytes;
};

static struct mlp_layout layout_of(const struct stage_call *call)
{
	const struct block_config *b = call->block;
	int64_t tokens = call->tokens, e = call->element_bytes, end = 0;
	int joined = is_joined(call);
	struct mlp_layout l;

	l.gate = layout_take(&end, block_is_gated(b) ? tokens * b->F * (1 + joined) : 0, e);
	l.up = joined ? l.gate + b->F * e : layout_take(&end, tokens * b->F, e);
	l.stride = b->F * (1 + joined);
	l.products = end;
	l.rstd = layout_take(&end, tokens, 4);
	l.mean = layout_take(&end, call->c->norm == NORM_LAYER ? tokens : 0, 4);
	l.norm = layout_take(&end, b->has[ROLE_NORM2_W] ? tokens * call->c->C : 0, e);
	l.bytes = end;
	return l;
}

static int64_t up_kept_bytes(const struct stage_call *call, enum acts_level level)
{
	return level == ACTS_PRODUCTS ? layout_of(call).products : 0;
}

static int64_t up_acts_bytes(const struct stage_call *call)
{
	return layout_of(call).bytes;
}

/* The same as addresses, of any stage of the MLP. */
struct mlp_acts {
	dev_addr rstd, mean, norm, gate, up;
	int64_t stride;
};

static struct mlp_acts acts_of(const struct stage_call *call)
{
	struct stage_call up = call_beside(call, STAGE_UP);
	struct mlp_layout l = layout_of(&up);

	return (struct mlp_acts){acts_at(&up, l.rstd), acts_at(&up, l.mean), acts_at(&up, l.norm),
	        acts_at(&up, l.gate), acts_at(&up, l.up), l.stride};
}

static const struct mlp_acts *acts(const struct stage_call *call)
{
	return call->layout;
}

/* Kept by `down`, with POST_NORM2_W. */
struct down_layout {
	int64_t branch;               /* [tokens, C] the MLP's output, before that norm */
	int64_t products;             /* so far ACTS_PRODUCTS keeps them */
	int64_t post_rstd, post_mean; /* F32 [tokens] */
	int64_t bytes;
};

static struct down_layout down_layout_of(const struct stage_call *call)
{
	int64_t rows = call_has(call, ROLE_POST_NORM2_W) ? call->tokens : 0, end = 0;
	struct down_layout l;

	l.branch = layout_take(&end, rows * call->c->C, call->element_bytes);
	l.products = end;
	l.post_rstd = layout_take(&end, rows, 4);
	l.post_mean = layout_take(&end, call->c->norm == NORM_LAYER ? rows : 0, 4);
	l.bytes = end;
	return l;
}

static int64_t down_acts_bytes(const struct stage_call *call)
{
	return down_layout_of(call).bytes;
}

static int64_t down_kept_bytes(const struct stage_call *call, enum acts_level level)
{
	return level == ACTS_PRODUCTS ? down_layout_of(call).products : 0;
}

/* Behind a norm the stream is cheap to make again. */
static int down_keeps_stream(const struct stage_call *call)
{
	return !call_has(call, ROLE_POST_NORM2_W);
}

/* act(gate) * up, then its gradient */
static int64_t down_scratch_bytes(const struct stage_call *call)
{
	int64_t end = 0;

	layout_take(&end, call->tokens * call->block->F, call->element_bytes);
	return end;
}

static struct norm_place norm2_of(const struct stage_call *call)
{
	return (struct norm_place){ROLE_NORM2_W, ROLE_NORM2_B, acts(call)->rstd, acts(call)->mean,
	        scratch_at(call, call->scratch.norm_zeros)};
}

static struct norm_place post_norm_of(const struct stage_call *call)
{
	struct down_layout l = down_layout_of(call);

	return (struct norm_place){ROLE_POST_NORM2_W, ROLE_POST_NORM2_B, acts_at(call, l.post_rstd),
	        acts_at(call, l.post_mean), scratch_at(call, call->scratch.norm_zeros)};
}

/* norm2's input. */
static dev_addr norm2_input(const struct stage_call *call)
{
	return call->c->parallel_residual ? call->memory->x : stream_in(call);
}

/* The input of gate and up. An MLP parallel to attention and without its own norm shares norm1. */
static dev_addr norm2_output(const struct stage_call *call)
{
	if (call_has(call, ROLE_NORM2_W))
		return acts(call)->norm;
	return call->c->parallel_residual ? attn_input(call) : norm2_input(call);
}

static void first_forward(struct stage_call *call)
{
	struct norm_place norm = norm2_of(call);

	if (call_has(call, ROLE_NORM2_W))
		norm_forward(call, &norm, norm2_output(call), norm2_input(call), call->tokens);
}

/* Takes the complete gradient of norm2's output on to the residual stream. With a parallel residual,
 * attention's backward still needs dx unchanged, so the MLP's part waits in scratch. */
static void first_backward(struct stage_call *call, dev_addr dnorm)
{
	const struct model_config *c = call->c;
	struct norm_place norm = norm2_of(call);
	dev_addr dx = call->memory->dx, residual = scratch_at(call, call->scratch.residual);
	int apart = c->parallel_residual;

	if (call_has(call, ROLE_NORM2_W))
		norm_backward(call, &norm, apart ? residual : dx, dnorm, norm2_input(call), call->tokens,
		        apart ? LINEAR_WRITE : LINEAR_ADD, scratch_at(call, call->scratch.norm_partial),
		        scratch_at(call, call->scratch.norm_sink));
	else if (apart)
		call_op(call, &(struct op){.kind = OP_COPY,
		                      .copy = {.dst = residual,
		                              .src = dnorm,
		                              .bytes = call->tokens * c->C * call->element_bytes}});
	else
		call_add(call, dx, dx, dnorm, call->tokens * c->C);
}

static struct rows norm2_rows(const struct stage_call *call)
{
	return rows_at(call, norm2_output(call), call->c->C);
}

/* The gate, or its gradient, where its rows have no gaps. */
static void gate_scale(struct stage_call *call)
{
	if (call->block->scales.gate != 0)
		call_scale(call, acts(call)->gate, acts(call)->gate, call->tokens * call->block->F,
		        call->block->scales.gate);
}

static int up_is_kept(const struct stage_call *call)
{
	return acts_are_kept(call, layout_of(call).up);
}

static void up_forward(struct stage_call *call)
{
	struct mlp_acts a = acts_of(call);
	struct linear gate = inner_of(call, 0), up = inner_of(call, 1), both = both_of(call);
	struct joined joined = joined_of(call);
	struct rows inner;

	call->layout = &a;
	inner = rows_at(call, a.gate, a.stride);
	first_forward(call);
	if (up_is_kept(call))
		return;
	if (is_joined(call)) {
		if (is_fused(call))
			linear_forward(call, &both, inner, call->dtype, norm2_rows(call));
		else
			joined_forward(call, &joined, inner, norm2_rows(call));
		return;
	}
	if (block_is_gated(call->block)) {
		linear_forward(call, &gate, inner, call->dtype, norm2_rows(call));
		gate_scale(call);
	}
	linear_forward(call, &up, rows_at(call, a.up, a.stride), call->dtype, norm2_rows(call));
}

/* Arguments that all four activation ops share. */
#define ACT_ARGUMENTS(call)                                                                                  \
	.count = (call)->tokens * (call)->block->F, .act = (call)->c->act, .dtype = (call)->dtype
#define GLU_ARGUMENTS(call)                                                                                  \
	ACT_ARGUMENTS(call), .gate = acts(call)->gate, .up = acts(call)->up,                                 \
	                     .cols = is_joined(call) ? (call)->block->F : 0,                                 \
	                     .stride = is_joined(call) ? acts(call)->stride : 0

static void activate(struct stage_call *call, dev_addr hidden)
{
	if (block_is_gated(call->block))
		call_op(call, &(struct op){.kind = OP_GLU, .glu = {.out = hidden, GLU_ARGUMENTS(call)}});
	else
		call_op(call, &(struct op){.kind = OP_ACT,
		                      .act = {.out = hidden, .x = acts(call)->up, ACT_ARGUMENTS(call)}});
}

/* The stream + down(act(gate) * up) */
static void down_forward(struct stage_call *call)
{
	struct mlp_acts a = acts_of(call);
	struct linear down = down_of(call);
	struct norm_place post = post_norm_of(call);
	dev_addr hidden = own_scratch_at(call, 0),
	         branch = branch_at(call, &post, acts_at(call, down_layout_of(call).branch));

	if (dev_is_none(branch))
		return;
	if (branch_is_kept(call, &post, down_layout_of(call).branch)) {
		branch_end_again(call, &post, branch);
		return;
	}
	call->layout = &a;
	activate(call, hidden);
	linear_forward(call, &down, rows_at(call, branch, call->c->C), call->dtype,
	        rows_at(call, hidden, call->block->F));
	branch_end(call, &post, branch);
}

static void down_backward(struct stage_call *call)
{
	struct mlp_acts a = acts_of(call);
	struct linear down = down_of(call);
	struct norm_place post = post_norm_of(call);
	dev_addr hidden = own_scratch_at(call, 0), branch = acts_at(call, down_layout_of(call).branch);
	struct rows dy = rows_at(call, branch_gradient(call, &post, branch), call->c->C);

	struct rows rows = rows_at(call, hidden, call->block->F);

	call->layout = &a;
	if (block_is_gated(call->block)) { /* what `down` multiplied overwrites its gradient */
		linear_backward_input(call, &down, rows, call->dtype, LINEAR_WRITE, dy);
		call_op(call, &(struct op){.kind = OP_GLU_GRAD,
		                      .glu_grad = {.dgate = a.gate,
		                              .dup = a.up,
		                              .dout = hidden,
		                              .out = hidden,
		                              GLU_ARGUMENTS(call)}});
		linear_backward_weight(call, &down, dy, rows);
		return;
	}
	activate(call, hidden);
	linear_backward_weight(call, &down, dy, rows);
	linear_backward_input(call, &down, rows, call->dtype, LINEAR_WRITE, dy);
	call_op(call, &(struct op){.kind = OP_ACT_GRAD,
	                      .act_grad = {.dx = a.up, .dout = hidden, .x = a.up, ACT_ARGUMENTS(call)}});
}

/* One product gives the gradient of norm2's output in the compute dtype, unless adapters add to it. */
static int is_one_product(const struct stage_call *call)
{
	int has_adapter = is_fused(call) ? linear_has_adapter(call, ROLE_GATE_UP_W)
	                                 : joined_has_adapter(call, JOIN_GATE_UP);

	return !block_is_gated(call->block) || (is_joined(call) && !has_adapter);
}

int mlp_sums_gradients(const struct stage_call *call)
{
	return !is_one_product(call);
}

/* From the gradients of gate and up, those of the weights, and that of norm2's output, to dnorm. With a gate
 * that is not joined its part is added in fp32 before the sum is rounded. */
static void inner_backward(struct stage_call *call, struct rows dnorm, enum dtype dtype)
{
	struct linear up = inner_of(call, 1), gate = inner_of(call, 0), both = both_of(call);
	struct joined joined = joined_of(call);
	struct rows dup = rows_at(call, acts(call)->up, acts(call)->stride),
	            dgate = rows_at(call, acts(call)->gate, acts(call)->stride);

	if (is_joined(call) && is_fused(call)) {
		linear_backward_weight(call, &both, dgate, norm2_rows(call));
		linear_backward_input(call, &both, dnorm, dtype, LINEAR_WRITE, dgate);
		return;
	}
	if (is_joined(call)) {
		joined_backward(call, &joined, dnorm, dtype, dgate, norm2_rows(call));
		return;
	}
	linear_backward_weight(call, &up, dup, norm2_rows(call));
	linear_backward_input(call, &up, dnorm, dtype, LINEAR_WRITE, dup);
	if (!block_is_gated(call->block))
		return;
	gate_scale(call);
	linear_backward_weight(call, &gate, dgate, norm2_rows(call));
	linear_backward_input(call, &gate, dnorm, dtype, LINEAR_ADD, dgate);
}

static void up_backward(struct stage_call *call)
{
	struct mlp_acts a = acts_of(call);
	dev_addr rounded = scratch_at(call, call->scratch.dnorm_cast),
	         wide = scratch_at(call, call->scratch.dnorm);

	call->layout = &a;
	if (call->dtype != DTYPE_F32 && is_one_product(call)) {
		inner_backward(call, rows_at(call, rounded, call->c->C), call->dtype);
		first_backward(call, rounded);
		return;
	}
	inner_backward(call, rows_at(call, wide, call->c->C), DTYPE_F32);
	if (call->dtype != DTYPE_F32)
		call_cast(call, rounded, wide, call->tokens * call->c->C);
	first_backward(call, call->dtype == DTYPE_F32 ? wide : rounded);
}

const struct stage_type stage_up = {.forward = up_forward,
        .backward = up_backward,
        .acts_bytes = up_acts_bytes,
        .kept_bytes = up_kept_bytes};
const struct stage_type stage_down = {.forward = down_forward,
        .backward = down_backward,
        .writes_stream = 1,
        .acts_bytes = down_acts_bytes,
        .kept_bytes = down_kept_bytes,
        .keeps_stream = down_keeps_stream,
        .scratch_bytes = down_scratch_bytes};
