/* Forward and backward of a layer of experts: norm, router, the MLPs of the chosen experts over rows in the
 * order of experts, their weighted sum, and a shared expert for every token. Its ops: device/op_experts.h. */
#include "model/blocks/experts.h"

/* Room for what a norm of this role needs; none without it. */
static struct experts_norm norm_take(int64_t *end, const struct stage_call *call, enum tensor_role role)
{
	int64_t tokens = call_has(call, role) ? call->tokens : 0;
	struct experts_norm n;

	n.rows = layout_take(end, tokens * call->c->C, call->element_bytes);
	n.rstd = layout_take(end, tokens, 4);
	return n;
}

static int shared_is_gated(const struct stage_call *call)
{
	return call_has(call, ROLE_SHARED_GATE_W) || call_has(call, ROLE_SHARED_GATE_UP_W);
}

struct experts_layout experts_layout_of(const struct stage_call *call)
{
	const struct experts_config *x = &call->block->experts;
	int64_t e = call->element_bytes, tokens = call->tokens, rows = experts_rows(call), end = 0;
	int64_t weighed = call_has(call, ROLE_SHARED_WEIGHT_W) ? tokens : 0,
	        divided = experts_are_divided(call),
	        narrow = experts_are_narrow(call) ? tokens * experts_cols(call) : 0;
	struct experts_layout l;

	l.rstd = layout_take(&end, tokens, 4);
	l.mean = layout_take(&end, call->c->norm == NORM_LAYER ? tokens : 0, 4);
	l.norm = layout_take(&end, tokens * call->c->C, e);
	l.logits = layout_take(&end, tokens * x->count, 4);
	l.ids = layout_take(&end, rows, 4);
	l.weights = layout_take(&end, rows, 4);
	l.first = layout_take(&end, x->count + 1, 4);
	l.slot = layout_take(&end, rows, 4);
	l.row = layout_take(&end, rows, 4);
	l.gate_up = layout_take(&end, divided ? 0 : rows * experts_gate_up_cols(call), e);
	l.parts_sum = layout_take(&end, divided ? tokens * call->c->C : 0, 4);
	l.parts_dweights = layout_take(&end, divided ? rows : 0, 4);
	l.parts_shared = layout_take(&end, divided && x->shared ? tokens * call->c->C : 0, e);
	l.shared_gate = layout_take(&end, shared_is_gated(call) ? tokens * x->shared : 0, e);
	l.shared_up = layout_take(&end, tokens * x->shared, e);
	l.shared_logits = layout_take(&end, weighed, 4);
	l.shared_ids = layout_take(&end, weighed, 4);
	l.shared_weights = layout_take(&end, weighed, 4);
	l.input = norm_take(&end, call, ROLE_EXPERTS_NORM_W);
	l.router = norm_take(&end, call, ROLE_ROUTER_NORM_W);
	l.shared = norm_take(&end, call, ROLE_SHARED_POST_NORM_W);
	l.output = norm_take(&end, call, ROLE_EXPERTS_POST_NORM_W);
	l.sum = norm_take(&end, call, ROLE_SUM_POST_NORM_W);
	l.scaled = layout_take(&end, call_has(call, ROLE_EXPERT_SCALE) ? rows : 0, 4);
	l.narrow_in = layout_take(&end, narrow, e);
	l.narrow_sum = layout_take(&end, narrow, e);
	l.bytes = end;
	return l;
}

static int64_t acts_bytes(const struct stage_call *call)
{
	return experts_layout_of(call).bytes;
}

struct experts_scratch experts_scratch_of(const struct stage_call *call)
{
	const struct experts_config *x = &call->block->experts;
	enum stage_kind kind = call->model->stages[call->stage].kind;
	int64_t e = call->element_bytes, end = 0, slots = experts_rows(call), C = call->c->C,
	        W = experts_cols(call), tokens = kind == STAGE_PART ? 0 : call->tokens,
	        rows = kind == STAGE_ROUTER ? 0 : slots,
	        ranks = experts_has_adapters(call) ? rows * call->c->adapter_rank : 0;
	int narrow = experts_are_narrow(call);
	struct experts_scratch s;

	s.in_rows = layout_take(&end, rows * W, e);
	s.hidden = layout_take(&end, rows * x->F, e);
	s.shared_hidden = layout_take(&end, tokens * x->shared, e);
	s.out_rows = layout_take(&end, rows * W, e);
	s.dhidden = layout_take(&end, rows * x->F, e);
	s.shared_dhidden = layout_take(&end, tokens * x->shared, e);
	s.dweights = layout_take(&end, slots, 4);
	s.dlogits = layout_take(&end, tokens * x->count, 4);
	s.dlogits_cast = layout_take(&end, call->dtype == DTYPE_F32 ? 0 : tokens * x->count, e);
	s.part = layout_take(&end, call_has(call, ROLE_SUM_POST_NORM_W) || narrow ? tokens * C : 0, e);
	s.counts = layout_take(&end, call->c->balance > 0 ? x->count : 0, 4);
	s.adapter = layout_take(&end, ranks, e);
	s.adapter_grad = layout_take(&end, ranks, e);
	s.gate_up = layout_take(&end, kind == STAGE_PART ? rows * experts_gate_up_cols(call) : 0, e);
	s.narrow_dsum = layout_take(&end, narrow ? tokens * W : 0, e);
	s.narrow_din = layout_take(&end, narrow ? tokens * W : 0, 4);
	s.bytes = end;
	return s;
}

static int64_t scratch_bytes(const struct stage_call *call)
{
	return experts_scratch_of(call).bytes;
}

/* ---- parts ---- */

static struct norm_place norm_of(const struct stage_call *call)
{
	return (struct norm_place){ROLE_NORM2_W, ROLE_NORM2_B, acts_at(call, layout(call)->rstd),
	        acts_at(call, layout(call)->mean), scratch_at(call, call->scratch.norm_zeros)};
}

static struct norm_place own_norm(
        const struct stage_call *call, enum tensor_role role, const struct experts_norm *n)
{
	return (struct norm_place){role, ROLE_COUNT, acts_at(call, n->rstd), DEV_NONE,
	        scratch_at(call, call->scratch.norm_zeros)};
}

/* Behind the sum, if there is one. */
static struct norm_place post_norm_of(const struct stage_call *call)
{
	return own_norm(call, ROLE_SUM_POST_NORM_W, &layout(call)->sum);
}

struct rows experts_norm_rows(const struct stage_call *call)
{
	return rows_at(call, acts_at(call, layout(call)->norm), call->c->C);
}

/* What the router and the experts read: norm2's output, or that of a norm of their own. */
struct rows experts_router_rows(const struct stage_call *call)
{
	return call_has(call, ROLE_ROUTER_NORM_W)
	               ? rows_at(call, acts_at(call, layout(call)->router.rows), call->c->C)
	               : experts_norm_rows(call);
}

/* As wide as the stream. */
static struct rows wide_input_rows(const struct stage_call *call)
{
	return call_has(call, ROLE_EXPERTS_NORM_W)
	               ? rows_at(call, acts_at(call, layout(call)->input.rows), call->c->C)
	               : experts_norm_rows(call);
}

static struct rows input_rows(const struct stage_call *call)
{
	return experts_are_narrow(call)
	               ? rows_at(call, acts_at(call, layout(call)->narrow_in), experts_cols(call))
	               : wide_input_rows(call);
}

static void norms_forward(struct stage_call *call)
{
	const struct experts_layout *l = layout(call);
	struct norm_place norm = norm_of(call), input = own_norm(call, ROLE_EXPERTS_NORM_W, &l->input),
	                  router = own_norm(call, ROLE_ROUTER_NORM_W, &l->router);

	norm_forward(call, &norm, experts_norm_rows(call).base, stream_in(call), call->tokens);
	if (call_has(call, ROLE_EXPERTS_NORM_W))
		norm_forward(call, &input, wide_input_rows(call).base, stream_in(call), call->tokens);
	if (call_has(call, ROLE_ROUTER_NORM_W))
		norm_forward(call, &router, experts_router_rows(call).base, stream_in(call), call->tokens);
}

/* Takes the gradient of a norm's output, summed in dnorm, on to the stream. */
static void dnorm_end(struct stage_call *call, const struct norm_place *norm)
{
	dev_addr dnorm = scratch_at(call, call->scratch.dnorm),
	         rounded = scratch_at(call, call->scratch.dnorm_cast);
	int is_wide = call->dtype == DTYPE_F32;

	if (!is_wide)
		call_cast(call, rounded, dnorm, call->tokens * call->c->C);
	norm_backward(call, norm, call->memory->dx, is_wide ? dnorm : rounded, stream_in(call), call->tokens,
	        LINEAR_ADD, scratch_at(call, call->scratch.norm_partial),
	        scratch_at(call, call->scratch.norm_sink));
}

/* Matrices of the shared expert; every other linear layer of it has C columns. */
struct linear experts_shared_of(const struct stage_call *call, enum tensor_role role)
{
	int64_t C = call->c->C, S = call->block->experts.shared;

	if (role == ROLE_SHARED_WEIGHT_W)
		return (struct linear){role, ROLE_COUNT, 1, C, 0, 0, 0};
	if (role != ROLE_SHARED_DOWN_W && call_has(call, ROLE_SHARED_GATE_UP_W)) {
		int is_up = role == ROLE_SHARED_UP_W;

		return (struct linear){ROLE_SHARED_GATE_UP_W, ROLE_COUNT, S, C, 0, is_up ? S : 0, is_up};
	}
	return role == ROLE_SHARED_DOWN_W
	               ? (struct linear){role, ROLE_SHARED_DOWN_B, C, S, 0, 0, 0}
	               : (struct linear){role, role == ROLE_SHARED_UP_W ? ROLE_SHARED_UP_B : ROLE_COUNT, S, C,
	                         0, 0, 0};
}

/* ---- rows ---- */

/* y [rows, W]: a row of x for each slot. */
static void dispatch(struct stage_call *call, dev_addr y, dev_addr x)
{
	call_op(call, &(struct op){.kind = OP_DISPATCH,
	                      .dispatch = {.y = y,
	                              .x = x,
	                              .slot = acts_at(call, layout(call)->slot),
	                              .tokens = call->tokens,
	                              .chosen = call->block->experts.chosen,
	                              .cols = experts_cols(call),
	                              .dtype = call->dtype,
	                              .range = experts_range(call)}});
}

void experts_combine(struct stage_call *call, dev_addr y, enum dtype y_dtype, dev_addr x,
        enum experts_sum sum, int is_reversed)
{
	call_op(call, &(struct op){.kind = OP_COMBINE,
	                      .combine = {.y = y,
	                              .x = x,
	                              .row = acts_at(call, layout(call)->row),
	                              .tokens = call->tokens,
	                              .chosen = call->block->experts.chosen,
	                              .cols = experts_cols(call),
	                              .dtype = call->dtype,
	                              .y_dtype = y_dtype,
	                              .accumulate = sum == EXPERTS_SUM_ADD,
	                              .goes_on = sum == EXPERTS_SUM_GO_ON,
	                              .is_reversed = is_reversed,
	                              .range = experts_range(call)}});
}

/* ---- the shared expert ---- */

int experts_has_shared(const struct stage_call *call)
{
	return call_has(call, ROLE_SHARED_DOWN_W);
}

#define SHARED_GLU(call)                                                                                     \
	.gate = acts_at(call, layout(call)->shared_gate), .up = acts_at(call, layout(call)->shared_up),      \
	.count = (call)->tokens * (call)->block->experts.shared, .act = (call)->c->act,                      \
	.dtype = (call)->dtype

#define SHARED_ACT(call)                                                                                     \
	.x = acts_at(call, layout(call)->shared_up),                                                         \
	.count = (call)->tokens * (call)->block->experts.shared, .act = (call)->c->act,                      \
	.dtype = (call)->dtype

static void shared_activate(struct stage_call *call, dev_addr hidden)
{
	if (shared_is_gated(call))
		call_op(call, &(struct op){.kind = OP_GLU, .glu = {SHARED_GLU(call), .out = hidden}});
	else
		call_op(call, &(struct op){.kind = OP_ACT, .act = {SHARED_ACT(call), .out = hidden}});
}

static void shared_inner(struct stage_call *call)
{
	struct linear gate = experts_shared_of(call, ROLE_SHARED_GATE_W),
	              up = experts_shared_of(call, ROLE_SHARED_UP_W);
	int64_t S = call->block->experts.shared;

	if (shared_is_gated(call))
		linear_forward(call, &gate, rows_at(call, acts_at(call, layout(call)->shared_gate), S),
		        call->dtype, experts_norm_rows(call));
	linear_forward(call, &up, rows_at(call, acts_at(call, layout(call)->shared_up), S), call->dtype,
	        experts_norm_rows(call));
	if (call_has(call, ROLE_SHARED_WEIGHT_W)) {
		struct router r = experts_router(call, 1);

		experts_route(call, &r);
	}
}

void experts_shared_forward(struct stage_call *call, dev_addr branch)
{
	struct linear down = experts_shared_of(call, ROLE_SHARED_DOWN_W);
	dev_addr hidden = own_scratch_at(call, experts_scratch_of(call).shared_hidden);
	int64_t S = call->block->experts.shared;

	shared_activate(call, hidden);
	if (call_has(call, ROLE_SHARED_WEIGHT_W))
		call_op(call, &(struct op){.kind = OP_WEIGH,
		                      .weigh = {hidden, acts_at(call, layout(call)->shared_weights), DEV_NONE,
		                              call->tokens, S, .dtype = call->dtype}});
	linear_forward(call, &down, rows_at(call, branch, call->c->C), call->dtype, rows_at(call, hidden, S));
}

/* Adds the gradient of its input to dnorm, or writes it. */
static void shared_backward(struct stage_call *call, struct rows dy, dev_addr dnorm, enum linear_sum sum)
{
	struct experts_scratch s = experts_scratch_of(call);
	struct linear down = experts_shared_of(call, ROLE_SHARED_DOWN_W),
	              gate = experts_shared_of(call, ROLE_SHARED_GATE_W),
	              up = experts_shared_of(call, ROLE_SHARED_UP_W);
	int64_t S = call->block->experts.shared;
	struct rows hidden = rows_at(call, own_scratch_at(call, s.shared_hidden), S),
	            dhidden = rows_at(call, own_scratch_at(call, s.shared_dhidden), S),
	            dgate = rows_at(call, acts_at(call, layout(call)->shared_gate), S),
	            dup = rows_at(call, acts_at(call, layout(call)->shared_up), S),
	            dinput = rows_at(call, dnorm, call->c->C);

	shared_activate(call, hidden.base);
	linear_backward_input(call, &down, dhidden, call->dtype, LINEAR_WRITE, dy);
	if (call_has(call, ROLE_SHARED_WEIGHT_W)) {
		struct router r = experts_router(call, 1);

		call_op(call, &(struct op){.kind = OP_WEIGH_GRAD,
		                      .weigh_grad = {hidden.base, dhidden.base,
		                              own_scratch_at(call, s.dweights), acts_at(call, r.weights),
		                              DEV_NONE, call->tokens, S, .dtype = call->dtype}});
		experts_route_backward(call, &r, dnorm, sum);
		sum = LINEAR_ADD;
	}
	linear_backward_weight(call, &down, dy, hidden);
	if (shared_is_gated(call)) {
		call_op(call, &(struct op){.kind = OP_GLU_GRAD,
		                      .glu_grad = {SHARED_GLU(call), .dgate = dgate.base, .dup = dup.base,
		                              .dout = dhidden.base}});
		linear_backward_weight(call, &gate, dgate, experts_norm_rows(call));
		linear_backward_input(call, &gate, dinput, DTYPE_F32, sum, dgate);
		sum = LINEAR_ADD;
	} else {
		call_op(call, &(struct op){.kind = OP_ACT_GRAD,
		                      .act_grad = {SHARED_ACT(call), .dx = dup.base, .dout = dhidden.base}});
	}
	linear_backward_weight(call, &up, dup, experts_norm_rows(call));
	linear_backward_input(call, &up, dinput, DTYPE_F32, sum, dup);
}

/* ---- the stage ---- */

/* Whether the shared expert and the experts have norms of their own before the sum. */
static int parts_are_apart(const struct stage_call *call)
{
	return call_has(call, ROLE_SUM_POST_NORM_W);
}

/* The sum of both parts behind their norms; `part` is room for one. */
static void join(struct stage_call *call, dev_addr sum, dev_addr part)
{
	const struct experts_layout *l = layout(call);
	struct norm_place shared = own_norm(call, ROLE_SHARED_POST_NORM_W, &l->shared),
	                  output = own_norm(call, ROLE_EXPERTS_POST_NORM_W, &l->output);

	norm_forward(call, &shared, sum, acts_at(call, l->shared.rows), call->tokens);
	norm_forward(call, &output, part, acts_at(call, l->output.rows), call->tokens);
	call_add(call, sum, sum, part, call->tokens * call->c->C);
}

/* The gradient of a part from dy, that of the sum: dy itself, or through the part's norm into scratch. */
static dev_addr part_gradient(
        struct stage_call *call, dev_addr dy, enum tensor_role role, const struct experts_norm *n)
{
	struct norm_place norm = own_norm(call, role, n);
	dev_addr part = own_scratch_at(call, experts_scratch_of(call).part);

	if (!parts_are_apart(call))
		return dy;
	norm_backward(call, &norm, part, dy, acts_at(call, n->rows), call->tokens, LINEAR_WRITE,
	        scratch_at(call, call->scratch.norm_partial), scratch_at(call, call->scratch.norm_sink));
	return part;
}

/* Rows are multiplied by their weights before the product with down or, if it has biases, which these weigh
 * too, behind it. */
static int weighs_output(const struct stage_call *call)
{
	return call_has(call, ROLE_EXPERTS_DOWN_B);
}

static void weigh(struct stage_call *call, dev_addr rows, int64_t cols)
{
	call_op(call, &(struct op){.kind = OP_WEIGH,
	                      .weigh = {rows, experts_row_weights(call), acts_at(call, layout(call)->slot),
	                              experts_rows(call), cols, call->dtype, experts_range(call)}});
}

/* From the gradient of weighted rows, that of the rows, in its place, and of the weights; weighs the rows. */
static void weigh_backward(struct stage_call *call, dev_addr rows, dev_addr drows, int64_t cols)
{
	call_op(call, &(struct op){.kind = OP_WEIGH_GRAD,
	                      .weigh_grad = {rows, drows, experts_dweights(call), experts_row_weights(call),
	                              acts_at(call, layout(call)->slot), experts_rows(call), cols,
	                              call->dtype, experts_range(call)}});
}

static void down_product(
        struct stage_call *call, const struct experts_scratch *s, dev_addr out, dev_addr hidden)
{
	struct experts_linear down = experts_down_of(call);

	experts_linear_forward(call, &down, out, hidden);
	experts_adapt_down(call, s, out, hidden);
}

/* Weighted rows of down's output. */
static void down_forward(
        struct stage_call *call, const struct experts_scratch *s, dev_addr out, dev_addr hidden)
{
	if (!weighs_output(call))
		weigh(call, hidden, call->block->experts.F);
	down_product(call, s, out, hidden);
	if (weighs_output(call))
		weigh(call, out, experts_cols(call));
}

/* From dout, the gradient of weighted rows, the gradients of hidden and of the weights, and those of down.
 * `room` is for rows of the output, which are made again where these are weighed. */
static void down_backward(struct stage_call *call, const struct experts_scratch *s, dev_addr dhidden,
        dev_addr dout, dev_addr hidden, dev_addr room)
{
	struct experts_linear down = experts_down_of(call);

	if (weighs_output(call)) {
		down_product(call, s, room, hidden);
		weigh_backward(call, room, dout, experts_cols(call));
	}
	experts_linear_backward_input(call, &down, dhidden, dout);
	experts_adapt_down_input(call, s, dhidden, dout);
	if (!weighs_output(call))
		weigh_backward(call, hidden, dhidden, call->block->experts.F);
	experts_linear_backward_weight(call, &down, dout, hidden);
	experts_adapt_down_weights(call, s, dout, hidden);
}

void experts_begin(struct stage_call *call)
{
	struct router router = experts_router(call, 0);

	norms_forward(call);
	experts_route(call, &router);
	experts_order(call);
	experts_tally(call);
	experts_scale_weights(call);
	if (experts_are_narrow(call))
		experts_narrow_forward(call, wide_input_rows(call));
	if (experts_has_shared(call))
		shared_inner(call);
}

/* Gates and ups. */
static void rows_inner(struct stage_call *call)
{
	struct experts_scratch s = experts_scratch_of(call);
	dev_addr rows = own_scratch_at(call, s.in_rows), gate_up = experts_gate_up_at(call);
	struct experts_linear wide = experts_gate_up_of(call);

	dispatch(call, rows, input_rows(call).base);
	experts_linear_forward(call, &wide, gate_up, rows);
	experts_adapt_gate_up(call, &s, gate_up, rows, own_scratch_at(call, s.hidden));
}

static void rows_outer(struct stage_call *call)
{
	struct experts_scratch s = experts_scratch_of(call);
	dev_addr hidden = own_scratch_at(call, s.hidden);

	experts_activate(call, hidden);
	down_forward(call, &s, own_scratch_at(call, s.in_rows), hidden);
}

void experts_rows_forward(struct stage_call *call)
{
	rows_inner(call);
	rows_outer(call);
}

static void forward(struct stage_call *call)
{
	const struct experts_layout *l = layout(call);
	struct experts_scratch s = experts_scratch_of(call);
	struct norm_place post = post_norm_of(call);
	dev_addr branch = branch_at(call, &post, acts_at(call, l->sum.rows));
	int is_apart = parts_are_apart(call);

	experts_begin(call);
	rows_inner(call);
	if (experts_are_narrow(call)) { /* backward needs this sum */
		rows_outer(call);
		experts_combine(call, acts_at(call, l->narrow_sum), call->dtype,
		        own_scratch_at(call, s.in_rows), EXPERTS_SUM_WRITE, 0);
	}
	if (dev_is_none(branch))
		return;
	if (experts_has_shared(call))
		experts_shared_forward(call, is_apart ? acts_at(call, l->shared.rows) : branch);
	if (experts_are_narrow(call)) {
		experts_widen_forward(call, branch, own_scratch_at(call, s.part));
	} else {
		rows_outer(call);
		experts_combine(call, is_apart ? acts_at(call, l->output.rows) : branch, call->dtype,
		        own_scratch_at(call, s.in_rows),
		        experts_has_shared(call) && !is_apart ? EXPERTS_SUM_ADD : EXPERTS_SUM_WRITE, 0);
	}
	if (is_apart)
		join(call, branch, own_scratch_at(call, s.part));
	branch_end(call, &post, branch);
}

dev_addr experts_dweights(const struct stage_call *call)
{
	return experts_are_divided(call) ? acts_at(call, layout(call)->parts_dweights)
	                                 : own_scratch_at(call, experts_scratch_of(call).dweights);
}

void experts_rows_backward(struct stage_call *call, dev_addr dy, dev_addr dnorm, enum experts_sum sum)
{
	struct experts_scratch s = experts_scratch_of(call);
	dev_addr in = own_scratch_at(call, s.in_rows), out = own_scratch_at(call, s.out_rows),
	         hidden = own_scratch_at(call, s.hidden), dhidden = own_scratch_at(call, s.dhidden),
	         dgate_up = experts_gate_up_at(call);
	struct experts_linear wide = experts_gate_up_of(call);

	if (experts_are_divided(call))
		rows_inner(call);
	experts_activate(call, hidden);
	dispatch(call, out, dy);
	down_backward(call, &s, dhidden, out, hidden, in);
	experts_activate_backward(call, dhidden);
	dispatch(call, in, input_rows(call).base);
	experts_linear_backward_weight(call, &wide, dgate_up, in);
	experts_linear_backward_input(call, &wide, out, dgate_up);
	experts_adapt_gate_up_backward(call, &s, out, dgate_up, in, dhidden);
	experts_combine(call, dnorm, DTYPE_F32, out, sum, 1);
}

void experts_end_backward(struct stage_call *call, dev_addr dy)
{
	const struct experts_layout *l = layout(call);
	struct norm_place norm = norm_of(call), input = own_norm(call, ROLE_EXPERTS_NORM_W, &l->input),
	                  own_router = own_norm(call, ROLE_ROUTER_NORM_W, &l->router);
	struct router router = experts_router(call, 0);
	dev_addr dnorm = scratch_at(call, call->scratch.dnorm);
	int has_input = call_has(call, ROLE_EXPERTS_NORM_W), has_router = call_has(call, ROLE_ROUTER_NORM_W);

	if (has_input)
		dnorm_end(call, &input);
	experts_scale_weights_backward(call);
	experts_route_backward(call, &router, dnorm, has_input ? LINEAR_WRITE : LINEAR_ADD);
	if (has_router)
		dnorm_end(call, &own_router);
	if (experts_has_shared(call))
		shared_backward(call,
		        rows_at(call, part_gradient(call, dy, ROLE_SHARED_POST_NORM_W, &l->shared),
		                call->c->C),
		        dnorm, has_router ? LINEAR_WRITE : LINEAR_ADD);
	dnorm_end(call, &norm);
}

static void backward(struct stage_call *call)
{
	const struct experts_layout *l = layout(call);
	struct norm_place post = post_norm_of(call);
	dev_addr dy = branch_gradient(call, &post, acts_at(call, l->sum.rows)),
	         dnorm = scratch_at(call, call->scratch.dnorm);

	if (experts_are_narrow(call)) {
		experts_rows_backward(call, experts_widen_backward(call, dy),
		        own_scratch_at(call, experts_scratch_of(call).narrow_din), EXPERTS_SUM_WRITE);
		experts_narrow_backward(call, dnorm, wide_input_rows(call));
	} else {
		experts_rows_backward(call, part_gradient(call, dy, ROLE_EXPERTS_POST_NORM_W, &l->output),
		        dnorm, EXPERTS_SUM_WRITE);
	}
	experts_end_backward(call, dy);
}

static void experts_forward(struct stage_call *call)
{
	const struct experts_layout l = experts_layout_of(call);

	call->layout = &l;
	forward(call);
}

static void experts_backward(struct stage_call *call)
{
	const struct experts_layout l = experts_layout_of(call);

	call->layout = &l;
	backward(call);
}

const struct stage_type stage_experts = {.forward = experts_forward,
        .backward = experts_backward,
        .writes_stream = 1,
        .acts_bytes = acts_bytes,
        .scratch_bytes = scratch_bytes};
