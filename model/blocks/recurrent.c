/* Convolution, recurrence and gated norm of layers with a recurrent state. */
#include "model/blocks/recurrent.h"

#include "base/size.h"

#include <math.h>

/* q and k of a head have length 1 before the gated delta rule; the squares of a vector are summed with this.
 */
static const double LENGTH_EPSILON = 1e-6;

static const struct delta_config *heads_of(const struct stage_call *call)
{
	return &call->block->delta;
}

static int64_t value_cols(const struct stage_call *call)
{
	return delta_value_cols(heads_of(call));
}

/* A scan's norm is over groups of heads, with a weight for each column. */
static int64_t norm_groups(const struct stage_call *call, const struct recurrent_facts *facts)
{
	return facts->rule == DELTA_SCAN ? heads_of(call)->key_heads : heads_of(call)->value_heads;
}

/* ---- scratch ---- */

/* Elements that a sink needs: of each op, all the tensors whose gradients it adds to. */
static int64_t sink_count(const struct stage_call *call, const struct recurrent_facts *f)
{
	const enum tensor_role summed[] = {
	        f->conv_weight, f->conv_bias, f->decay, f->dt_bias, f->skip, f->norm};
	int64_t conv = delta_qkv_cols(heads_of(call)) * (call->block->taps + (f->conv_bias != ROLE_COUNT)),
	        rates = heads_of(call)->value_heads * (2 + (f->skip != ROLE_COUNT)),
	        norm = f->rule == DELTA_SCAN ? value_cols(call) : heads_of(call)->value_dim;
	int is_frozen = 0;

	for (size_t i = 0; i < sizeof(summed) / sizeof(*summed); i++)
		is_frozen |= summed[i] != ROLE_COUNT && call_has_frozen(call, summed[i]);
	return is_frozen ? max_i64(conv, max_i64(rates, norm)) : 0;
}

struct recurrent_scratch recurrent_scratch_of(
        const struct stage_call *call, const struct recurrent_facts *facts, int64_t *end)
{
	const struct delta_config *d = heads_of(call);
	int64_t e = call->element_bytes, tokens = call->tokens, groups = norm_groups(call, facts), work;
	struct recurrent_scratch s;

	work = max_i64(delta_scratch_count(tokens, d->value_heads, d->key_dim, d->value_dim),
	        max_i64(conv_scratch_count(tokens, delta_qkv_cols(d), call->block->taps),
	                gated_norm_scratch_count(tokens, groups, value_cols(call) / groups)));
	s.hidden = layout_take(end, tokens * value_cols(call), e);
	s.hidden_rstd = layout_take(end, tokens * groups, 4);
	s.dconv = layout_take(end, tokens * delta_qkv_cols(d), e);
	s.work = layout_take(end, work, 4);
	s.sink = layout_take(end, sink_count(call, facts), 4);
	return s;
}

/* Its gradient, or a place that nobody reads. */
static dev_addr grad_or_sink(
        const struct stage_call *call, const struct recurrent *r, enum tensor_role role, int64_t first)
{
	return grad_or(call, role, own_scratch_at(call, r->scratch.sink + 4 * first));
}

/* ---- generation ---- */

/* The state of each text, F32, then the window of each text's convolution. */
static int64_t states_bytes(const struct stage_call *call, const struct cache_shape *shape)
{
	const struct delta_config *d = heads_of(call);
	int64_t end = 0;

	layout_take(&end, cache_texts(shape) * d->value_heads * d->key_dim * d->value_dim, 4);
	return end;
}

int64_t recurrent_state_bytes(const struct stage_call *call, const struct cache_shape *shape)
{
	int64_t end = states_bytes(call, shape);

	layout_take(&end, cache_texts(shape) * (call->block->taps - 1) * delta_qkv_cols(heads_of(call)),
	        call->element_bytes);
	return end;
}

int recurrent_goes_back(
        const struct stage_call *call, const struct cache_shape *shape, int64_t reached, int64_t at)
{
	(void)call;
	(void)shape;
	return at == reached;
}

/* ---- the convolution ---- */

#define CONV_ARGUMENTS(call, r)                                                                              \
	.x = (r)->mixed, .weight = weight_of(call, (r)->facts->conv_weight),                                 \
	.bias = weight_of(call, (r)->facts->conv_bias), .doc_start = (call)->batch->doc_start,               \
	.tokens = (call)->tokens, .cols = delta_qkv_cols(heads_of(call)), .taps = (call)->block->taps,       \
	.x_stride = (r)->mixed_stride, .y_stride = delta_qkv_cols(heads_of(call)), .act = CONV_SILU,         \
	.dtype = (call)->dtype

static void convolve(struct stage_call *call, const struct recurrent *r)
{
	const struct cache_shape *cached = &call->memory->cached;
	dev_addr state = call->memory->state;

	if (dev_is_none(state))
		call_op(call, &(struct op){.kind = OP_CONV, .conv = {CONV_ARGUMENTS(call, r), .y = r->conv}});
	else
		call_op(call, &(struct op){.kind = OP_CONV_CACHED,
		                      .conv_cached = {CONV_ARGUMENTS(call, r), .y = r->conv,
		                              .window = dev_at(state, states_bytes(call, cached)),
		                              .doc_end = call->batch->doc_end, .texts = cache_texts(cached),
		                              .text_rows = cache_text_rows(cached)}});
}

static void convolve_backward(struct stage_call *call, const struct recurrent *r)
{
	int64_t weights = delta_qkv_cols(heads_of(call)) * call->block->taps;

	call_op(call, &(struct op){.kind = OP_CONV_GRAD,
	                      .conv_grad = {CONV_ARGUMENTS(call, r), .dx = r->dmixed,
	                              .dweight = grad_or_sink(call, r, r->facts->conv_weight, 0),
	                              .dbias = grad_or_sink(call, r, r->facts->conv_bias, weights),
	                              .dy = own_scratch_at(call, r->scratch.dconv),
	                              .scratch = own_scratch_at(call, r->scratch.work)}});
}

/* ---- the recurrence ---- */

/* The columns of the convolution's output, or of its gradient: q, k, v or, of a scan, x, B, C, which are v, k
 * and q. */
static dev_addr column_at(const struct stage_call *call, dev_addr conv, int64_t column)
{
	return dev_at(conv, column * call->element_bytes);
}

static dev_addr q_at(const struct stage_call *call, const struct recurrent *r, dev_addr conv)
{
	const struct delta_config *d = heads_of(call);

	return r->facts->rule == DELTA_SCAN
	               ? column_at(call, conv, value_cols(call) + d->key_heads * d->key_dim)
	               : conv;
}

static dev_addr k_at(const struct stage_call *call, const struct recurrent *r, dev_addr conv)
{
	const struct delta_config *d = heads_of(call);

	return column_at(
	        call, conv, r->facts->rule == DELTA_SCAN ? value_cols(call) : d->key_heads * d->key_dim);
}

static dev_addr v_at(const struct stage_call *call, const struct recurrent *r, dev_addr conv)
{
	const struct delta_config *d = heads_of(call);

	return r->facts->rule == DELTA_SCAN ? conv : column_at(call, conv, 2 * d->key_heads * d->key_dim);
}

static double scale_of(const struct stage_call *call, const struct recurrent *r)
{
	return r->facts->rule == DELTA_SCAN ? 1 : 1 / sqrt((double)heads_of(call)->key_dim);
}

#define RULE_ARGUMENTS(call, r)                                                                              \
	.q = q_at(call, r, (r)->conv), .k = k_at(call, r, (r)->conv), .v = v_at(call, r, (r)->conv),         \
	.a = (r)->a, .b = (r)->b, .decay = weight_of(call, (r)->facts->decay),                               \
	.dt_bias = weight_of(call, (r)->facts->dt_bias), .skip = weight_of(call, (r)->facts->skip),          \
	.doc_start = (call)->batch->doc_start, .tokens = (call)->tokens,                                     \
	.key_heads = heads_of(call)->key_heads, .value_heads = heads_of(call)->value_heads,                  \
	.key_dim = heads_of(call)->key_dim, .value_dim = heads_of(call)->value_dim,                          \
	.qkv_stride = delta_qkv_cols(heads_of(call)), .gate_stride = (r)->step_stride,                       \
	.out_stride = value_cols(call), .scale = scale_of(call, r),                                          \
	.epsilon = (r)->facts->rule == DELTA_SCAN ? 0 : LENGTH_EPSILON, .low = (call)->block->scan.step_low, \
	.high = (call)->block->scan.step_high, .rule = (r)->facts->rule, .dtype = (call)->dtype

static void recur(struct stage_call *call, const struct recurrent *r)
{
	const struct cache_shape *cached = &call->memory->cached;

	if (dev_is_none(call->memory->state))
		call_op(call,
		        &(struct op){.kind = OP_DELTA, .delta = {RULE_ARGUMENTS(call, r), .out = r->out}});
	else
		call_op(call,
		        &(struct op){.kind = OP_DELTA_CACHED,
		                .delta_cached = {RULE_ARGUMENTS(call, r), .out = r->out,
		                        .state = call->memory->state, .doc_end = call->batch->doc_end,
		                        .texts = cache_texts(cached), .text_rows = cache_text_rows(cached)}});
}

static void recur_backward(struct stage_call *call, const struct recurrent *r)
{
	dev_addr dconv = own_scratch_at(call, r->scratch.dconv);
	int64_t heads = heads_of(call)->value_heads;

	call_op(call, &(struct op){.kind = OP_DELTA_GRAD,
	                      .delta_grad = {RULE_ARGUMENTS(call, r), .dq = q_at(call, r, dconv),
	                              .dk = k_at(call, r, dconv), .dv = v_at(call, r, dconv), .da = r->da,
	                              .db = r->db, .ddecay = grad_or_sink(call, r, r->facts->decay, 0),
	                              .ddt_bias = grad_or_sink(call, r, r->facts->dt_bias, heads),
	                              .dskip = grad_or_sink(call, r, r->facts->skip, 2 * heads),
	                              .dout = own_scratch_at(call, r->scratch.hidden),
	                              .scratch = own_scratch_at(call, r->scratch.work)}});
}

/* ---- the norm and the gate ---- */

#define NORM_ARGUMENTS(call, r)                                                                              \
	.x = (r)->out, .gate = (r)->gate, .weight = weight_of(call, (r)->facts->norm),                       \
	.rstd = own_scratch_at(call, (r)->scratch.hidden_rstd), .rows = (call)->tokens,                      \
	.groups = norm_groups(call, (r)->facts), .cols = value_cols(call) / norm_groups(call, (r)->facts),   \
	.weight_groups = (r)->facts->rule == DELTA_SCAN ? norm_groups(call, (r)->facts) : 1,                 \
	.x_stride = value_cols(call), .gate_stride = (r)->gate_stride, .y_stride = value_cols(call),         \
	.order = (r)->facts->rule == DELTA_SCAN && !(call)->block->scan.norm_first ? GATE_BEFORE_NORM        \
	                                                                           : GATE_AFTER_NORM,        \
	.dtype = (call)->dtype

/* Of a scan without a norm. */
#define GATE_ARGUMENTS(call, r)                                                                              \
	.x = (r)->out, .gate = (r)->gate, .rows = (call)->tokens, .groups = 1, .cols = value_cols(call),     \
	.x_stride = value_cols(call), .y_stride = value_cols(call), .gate_stride = (r)->gate_stride,         \
	.gate_group_stride = value_cols(call), .act = ACT_SILU, .dtype = (call)->dtype

struct rows recurrent_hidden(struct stage_call *call, const struct recurrent *r)
{
	dev_addr hidden = own_scratch_at(call, r->scratch.hidden);

	if (!call_has(call, r->facts->norm))
		call_op(call, &(struct op){.kind = OP_GATE, .gate = {GATE_ARGUMENTS(call, r), .y = hidden}});
	else
		call_op(call, &(struct op){.kind = OP_GATED_NORM,
		                      .gated_norm = {NORM_ARGUMENTS(call, r), .y = hidden,
		                              .epsilon = call->c->norm_epsilon}});
	return rows_at(call, hidden, value_cols(call));
}

/* hidden's gradient becomes that of the recurrence's output, in place. */
static void norm_gate_backward(struct stage_call *call, const struct recurrent *r)
{
	dev_addr hidden = own_scratch_at(call, r->scratch.hidden);

	if (!call_has(call, r->facts->norm)) {
		call_op(call, &(struct op){.kind = OP_GATE_GRAD,
		                      .gate_grad = {GATE_ARGUMENTS(call, r), .dx = hidden, .dgate = r->dgate,
		                              .dy = hidden}});
		return;
	}
	call_op(call, &(struct op){.kind = OP_GATED_NORM_GRAD,
	                      .gated_norm_grad = {NORM_ARGUMENTS(call, r), .dx = hidden, .dgate = r->dgate,
	                              .dweight = grad_or_sink(call, r, r->facts->norm, 0), .dy = hidden,
	                              .scratch = own_scratch_at(call, r->scratch.work)}});
}

void recurrent_forward(struct stage_call *call, const struct recurrent *r)
{
	convolve(call, r);
	recur(call, r);
}

void recurrent_backward(struct stage_call *call, const struct recurrent *r)
{
	norm_gate_backward(call, r);
	recur_backward(call, r);
	convolve_backward(call, r);
}
