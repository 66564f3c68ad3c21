/* Latent attention (DeepSeek's MLA): q, k and v of heads from narrow rows with norms of their own.
 *
 *     q  = Q_B norm(Q_A x), or Q x         each head: own columns, then columns that rotate
 *     kv = KV_A x                          KV_LOW columns, then the rotating columns of every head's key
 *     k, v = KV_B norm(kv's first columns) each head: own columns of its key, then its value
 *
 * Attention then sees heads of equal width D: columns that a head lacks are 0. */
#include "model/blocks/attention.h"

#include "base/size.h"

/* A narrow row: its product, its norm, and where both are kept. */
struct low {
	enum tensor_role weight, bias, norm;
	int64_t columns, rank; /* of the product; of them with a norm */
	struct latent_low at;
};

static struct low low_of(const struct stage_call *call, int is_kv)
{
	const struct latent_config *c = &call->block->latent;
	const struct attn_layout *l = layout(call);

	return is_kv ? (struct low){ROLE_KV_A_W, ROLE_KV_A_B, ROLE_KV_A_NORM_W, c->kv_rank + c->shared,
	                       c->kv_rank, l->kv_low}
	             : (struct low){ROLE_Q_A_W, ROLE_Q_A_B, ROLE_Q_A_NORM_W, c->q_rank, c->q_rank, l->q_low};
}

static struct latent_low low_take(int64_t *end, const struct stage_call *call, int64_t columns, int64_t rank)
{
	struct latent_low low;

	low.low = layout_take(end, call->tokens * columns, call->element_bytes);
	low.norm = layout_take(end, call->tokens * rank, call->element_bytes);
	low.rstd = layout_take(end, rank ? call->tokens : 0, 4);
	return low;
}

void latent_layout(const struct stage_call *call, int64_t *end, struct attn_layout *l)
{
	const struct latent_config *c = &call->block->latent;

	l->q_low = low_take(end, call, c->q_rank, c->q_rank);
	l->kv_low = low_take(end, call, c->kv_rank ? c->kv_rank + c->shared : 0, c->kv_rank);
}

struct latent_scratch latent_scratch_of(const struct stage_call *call, int64_t *end)
{
	const struct latent_config *c = &call->block->latent;
	int64_t e = call->element_bytes, rank = max_i64(c->q_rank, c->kv_rank),
	        head = c->own + max_i64(c->shared, c->value);
	struct latent_scratch s;

	s.heads = layout_take(end, call->tokens * call->block->H * (c->kv_rank ? head : 0), e);
	s.dnorm = layout_take(end, call->tokens * rank, e);
	s.dlow = layout_take(
	        end, call->tokens * max_i64(c->q_rank, c->kv_rank ? c->kv_rank + c->shared : 0), e);
	return s;
}

/* ---- products ---- */

static struct linear low_linear(const struct stage_call *call, const struct low *low)
{
	return (struct linear){low->weight, low->bias, low->columns, call->c->C, 0, 0, 0};
}

static int has_low_q(const struct stage_call *call)
{
	return call->block->latent.q_rank > 0;
}

static struct linear query_linear(const struct stage_call *call)
{
	const struct latent_config *c = &call->block->latent;

	return (struct linear){has_low_q(call) ? ROLE_Q_B_W : ROLE_Q_W, ROLE_COUNT,
	        call->block->H * (c->own + c->shared), has_low_q(call) ? c->q_rank : call->c->C, 0, 0, 0};
}

static struct linear key_value_linear(const struct stage_call *call)
{
	const struct latent_config *c = &call->block->latent;

	return (struct linear){
	        ROLE_KV_B_W, ROLE_COUNT, call->block->H * (c->own + c->value), c->kv_rank, 0, 0, 0};
}

static struct rows input_rows(const struct stage_call *call)
{
	return rows_at(call, attn_input(call), call->c->C);
}

/* The normed narrow rows, which the second product reads. */
static struct rows norm_rows(const struct stage_call *call, const struct low *low)
{
	return rows_at(call, acts_at(call, low->at.norm), low->rank);
}

static void low_forward(struct stage_call *call, const struct low *low)
{
	struct linear linear = low_linear(call, low);

	linear_forward(call, &linear, rows_at(call, acts_at(call, low->at.low), low->columns), call->dtype,
	        input_rows(call));
	call_op(call, &(struct op){.kind = OP_RMSNORM,
	                      .norm = {.y = acts_at(call, low->at.norm),
	                              .x = acts_at(call, low->at.low),
	                              .weight = norm_weight_of(
	                                      call, low->norm, scratch_at(call, call->scratch.norm_zeros)),
	                              .rstd = acts_at(call, low->at.rstd),
	                              .rows = call->tokens,
	                              .groups = 1,
	                              .cols = low->rank,
	                              .x_stride = low->columns,
	                              .y_stride = low->rank,
	                              .epsilon = call->c->norm_of[low->norm].epsilon,
	                              .weight_offset = norm_offset_of(call, low->norm),
	                              .dtype = call->dtype}});
}

/* From dnorm in scratch; with a key's gradient behind the columns of dlow. */
static void low_backward(struct stage_call *call, const struct latent_scratch *s, const struct low *low,
        dev_addr dinput, enum linear_sum sum)
{
	struct linear linear = low_linear(call, low);
	struct rows dlow = rows_at(call, own_scratch_at(call, s->dlow), low->columns);

	call_op(call, &(struct op){.kind = OP_RMSNORM_GRAD,
	                      .norm_grad = {.dx = dlow.base,
	                              .dweight = norm_grad_of(
	                                      call, low->norm, scratch_at(call, call->scratch.norm_sink)),
	                              .dy = own_scratch_at(call, s->dnorm),
	                              .x = acts_at(call, low->at.low),
	                              .weight = norm_weight_of(
	                                      call, low->norm, scratch_at(call, call->scratch.norm_zeros)),
	                              .rstd = acts_at(call, low->at.rstd),
	                              .scratch = scratch_at(call, call->scratch.norm_partial),
	                              .rows = call->tokens,
	                              .groups = 1,
	                              .cols = low->rank,
	                              .x_stride = low->columns,
	                              .y_stride = low->rank,
	                              .weight_offset = norm_offset_of(call, low->norm),
	                              .dtype = call->dtype}});
	linear_backward_weight(call, &linear, dlow, input_rows(call));
	linear_backward_input(call, &linear, rows_at(call, dinput, call->c->C), DTYPE_F32, sum, dlow);
}

/* ---- heads ---- */

/* Columns of each head: `columns` from src to dst, both at the first head. */
static void heads_move(struct stage_call *call, dev_addr dst, int64_t dst_stride, dev_addr src,
        int64_t src_stride, int64_t columns)
{
	call_op(call, &(struct op){.kind = OP_COLUMNS,
	                      .columns = {.dst = dst,
	                              .src = src,
	                              .rows = call->tokens * call->block->H,
	                              .cols = columns,
	                              .dst_stride = dst_stride,
	                              .src_stride = src_stride,
	                              .dst_dtype = call->dtype,
	                              .src_dtype = call->dtype}});
}

/* The key that heads share: to each of them, or the sum of their gradients. */
static void shared_key_move(struct stage_call *call, dev_addr qkv, dev_addr low, int is_backward)
{
	const struct latent_config *c = &call->block->latent;
	int64_t D = call->block->D, H = call->block->H, columns = c->kv_rank + c->shared;
	dev_addr heads = column_at(call, qkv, D + c->own), one = column_at(call, low, c->kv_rank);

	call_op(call, &(struct op){.kind = OP_COLUMNS,
	                      .columns = {.dst = is_backward ? one : heads,
	                              .src = is_backward ? heads : one,
	                              .rows = call->tokens * (is_backward ? 1 : H),
	                              .cols = c->shared,
	                              .dst_stride = is_backward ? columns : 3 * D,
	                              .src_stride = is_backward ? 3 * D : columns,
	                              .dst_dtype = call->dtype,
	                              .src_dtype = call->dtype,
	                              .spread = is_backward ? 1 : H,
	                              .fold = is_backward ? H : 1}});
}

static void fill_zero(struct stage_call *call, dev_addr base, int64_t count)
{
	call_op(call,
	        &(struct op){.kind = OP_FILL, .fill = {.dst = base, .bytes = count * call->element_bytes}});
}

void latent_project(struct stage_call *call, const struct latent_scratch *s, dev_addr qkv)
{
	const struct latent_config *c = &call->block->latent;
	int64_t D = call->block->D, key = c->own + c->shared, both = c->own + c->value;
	struct low q_low = low_of(call, 0), kv_low = low_of(call, 1);
	struct linear query = query_linear(call), key_value = key_value_linear(call);
	dev_addr heads = own_scratch_at(call, s->heads);

	if (key != D || c->value != D)
		fill_zero(call, qkv, call->tokens * qkv_place_of(call).stride);
	if (has_low_q(call))
		low_forward(call, &q_low);
	linear_forward(call, &query, rows_at(call, heads, query.out), call->dtype,
	        has_low_q(call) ? norm_rows(call, &q_low) : input_rows(call));
	heads_move(call, qkv, 3 * D, heads, key, key);
	low_forward(call, &kv_low);
	linear_forward(
	        call, &key_value, rows_at(call, heads, key_value.out), call->dtype, norm_rows(call, &kv_low));
	heads_move(call, column_at(call, qkv, D), 3 * D, heads, both, c->own);
	heads_move(call, column_at(call, qkv, 2 * D), 3 * D, column_at(call, heads, c->own), both, c->value);
	shared_key_move(call, qkv, acts_at(call, kv_low.at.low), 0);
}

void latent_project_backward(
        struct stage_call *call, const struct latent_scratch *s, dev_addr dnorm, dev_addr dqkv)
{
	const struct latent_config *c = &call->block->latent;
	int64_t D = call->block->D, key = c->own + c->shared, both = c->own + c->value;
	struct low q_low = low_of(call, 0), kv_low = low_of(call, 1);
	struct linear query = query_linear(call), key_value = key_value_linear(call);
	dev_addr heads = own_scratch_at(call, s->heads), dlow = own_scratch_at(call, s->dnorm);
	struct rows dheads = rows_at(call, heads, key_value.out);

	heads_move(call, heads, both, column_at(call, dqkv, D), 3 * D, c->own);
	heads_move(call, column_at(call, heads, c->own), both, column_at(call, dqkv, 2 * D), 3 * D, c->value);
	linear_backward_weight(call, &key_value, dheads, norm_rows(call, &kv_low));
	linear_backward_input(
	        call, &key_value, rows_at(call, dlow, c->kv_rank), call->dtype, LINEAR_WRITE, dheads);
	shared_key_move(call, dqkv, own_scratch_at(call, s->dlow), 1);
	low_backward(call, s, &kv_low, dnorm, LINEAR_WRITE);

	dheads = rows_at(call, heads, query.out);
	heads_move(call, heads, key, dqkv, 3 * D, key);
	linear_backward_weight(
	        call, &query, dheads, has_low_q(call) ? norm_rows(call, &q_low) : input_rows(call));
	if (!has_low_q(call)) {
		linear_backward_input(
		        call, &query, rows_at(call, dnorm, call->c->C), DTYPE_F32, LINEAR_ADD, dheads);
		return;
	}
	linear_backward_input(
	        call, &query, rows_at(call, dlow, c->q_rank), call->dtype, LINEAR_WRITE, dheads);
	low_backward(call, s, &q_low, dnorm, LINEAR_ADD);
}

void latent_narrow(struct stage_call *call, dev_addr narrow, dev_addr wide)
{
	int64_t value = call->block->latent.value;

	heads_move(call, narrow, value, wide, call->block->D, value);
}

void latent_widen(struct stage_call *call, dev_addr wide, dev_addr narrow)
{
	int64_t value = call->block->latent.value, D = call->block->D;

	fill_zero(call, wide, call->tokens * call->block->H * D);
	heads_move(call, wide, D, narrow, value, value);
}
