/* Makes the benchmarked ops, and has the table of cases. */
#include "bench/kernel_cases.h"
#include "bench/kernel_attention.h"
#include "bench/kernel_experts.h"
#include "bench/kernel_losses.h"
#include "bench/kernel_magnitude.h"
#include "bench/kernel_pool.h"
#include "bench/kernel_recurrent.h"

#include "base/size.h"
#include "model/model.h"
#include "optim/adamw.h"

#include <assert.h>

/* ---- products: `variant` is the row of this table ---- */

enum { SIDE_TOKENS, SIDE_HIDDEN, SIDE_QKV, SIDE_INTERMEDIATE, SIDE_VOCAB, SIDE_ROWS };
enum { PRODUCT_FORWARD, PRODUCT_DX, PRODUCT_DW };

static const struct {
	int m, n, k, use;
} products[] = {
        {SIDE_TOKENS, SIDE_QKV, SIDE_HIDDEN, PRODUCT_FORWARD},
        {SIDE_TOKENS, SIDE_INTERMEDIATE, SIDE_HIDDEN, PRODUCT_FORWARD},
        {SIDE_TOKENS, SIDE_HIDDEN, SIDE_INTERMEDIATE, PRODUCT_FORWARD},
        {SIDE_TOKENS, SIDE_HIDDEN, SIDE_INTERMEDIATE, PRODUCT_DX},
        {SIDE_INTERMEDIATE, SIDE_HIDDEN, SIDE_TOKENS, PRODUCT_DW},
        {SIDE_ROWS, SIDE_VOCAB, SIDE_HIDDEN, PRODUCT_FORWARD},
        {SIDE_ROWS, SIDE_HIDDEN, SIDE_VOCAB, PRODUCT_DX},
        {SIDE_VOCAB, SIDE_HIDDEN, SIDE_ROWS, PRODUCT_DW},
};

/* Rows of logits computed at once, as in a run. */
static int64_t head_rows(const struct bench_scale *s)
{
	return min_i64(s->tokens, model_head_rows(s->vocab, s->piece));
}

static int64_t side_of(const struct bench_scale *s, int side)
{
	switch (side) {
	case SIDE_TOKENS:
		return s->tokens;
	case SIDE_HIDDEN:
		return s->hidden;
	case SIDE_QKV:
		return (s->heads + 2 * s->kv_heads) * s->head_dim;
	case SIDE_INTERMEDIATE:
		return s->intermediate;
	case SIDE_VOCAB:
		return s->vocab;
	default:
		return head_rows(s);
	}
}

static void make_matmul(
        struct op *op, struct kernel_place *p, const struct bench_scale *s, enum dtype dtype, int variant)
{
	int64_t m = side_of(s, products[variant].m), n = side_of(s, products[variant].n),
	        k = side_of(s, products[variant].k);
	int use = products[variant].use, accumulates = use == PRODUCT_DW;
	enum dtype c = accumulates || products[variant].n == SIDE_VOCAB ? DTYPE_F32 : dtype;

	op->matmul = (struct op_matmul){
	        .a = kernel_take(p, m * k, dtype),
	        .b = kernel_take(p, n * k, dtype),
	        .c = kernel_take(p, m * n, c),
	        .m = m,
	        .n = n,
	        .k = k,
	        .a_stride = use == PRODUCT_DW ? m : k,
	        .b_stride = use == PRODUCT_FORWARD ? k : n,
	        .c_stride = n,
	        .a_layout = use == PRODUCT_DW ? MATMUL_TRANSPOSED : MATMUL_NORMAL,
	        .b_layout = use == PRODUCT_FORWARD ? MATMUL_TRANSPOSED : MATMUL_NORMAL,
	        .ab_dtype = dtype,
	        .c_dtype = c,
	        .accumulate = accumulates,
	};
}

/* The products of FP8: forward and dx of gate and up, and what makes the codes of their rows. */
static void make_coded(
        struct op *op, struct kernel_place *p, const struct bench_scale *s, enum dtype dtype, int variant)
{
	int64_t m = s->tokens, n = side_of(s, products[variant].n), k = side_of(s, products[variant].k);
	int is_forward = products[variant].use == PRODUCT_FORWARD;
	int64_t blocks = coded_blocks(0, k);

	if (op->kind == OP_ENCODE)
		op->encode = (struct op_encode){kernel_take(p, m * k, DTYPE_U8),
		        kernel_take(p, m * blocks, DTYPE_F32), kernel_take(p, m * k, dtype), m, k, k, 1, 0,
		        dtype};
	else
		op->coded_matmul = (struct op_coded_matmul){.a = kernel_take(p, m * k, DTYPE_U8),
		        .a_scales = kernel_take(p, m * blocks, DTYPE_F32),
		        .b = kernel_take(p, n * k, DTYPE_U8),
		        .b_scales = kernel_take(p, blocks * coded_blocks(0, n), DTYPE_F32),
		        .c = kernel_take(p, m * n, dtype),
		        .m = m,
		        .n = n,
		        .k = k,
		        .c_stride = n,
		        .b_layout = is_forward ? MATMUL_TRANSPOSED : MATMUL_NORMAL,
		        .bias_dtype = dtype,
		        .c_dtype = dtype};
}

/* ---- ops that only move bytes ---- */

static void make_flat(
        struct op *op, struct kernel_place *p, const struct bench_scale *s, enum dtype dtype, int variant)
{
	int64_t count = s->tokens * s->hidden, bytes = count * dtype_bytes(dtype);
	enum dtype other = dtype == DTYPE_F32 ? DTYPE_BF16 : DTYPE_F32;

	(void)variant;
	switch (op->kind) {
	case OP_FILL:
		op->fill = (struct op_fill){kernel_take(p, count, dtype), bytes, 0x3f};
		break;
	case OP_COPY:
		op->copy =
		        (struct op_copy){kernel_take(p, count, dtype), kernel_take(p, count, dtype), bytes};
		break;
	case OP_CAST:
		op->cast = (struct op_cast){
		        kernel_take(p, count, dtype), kernel_take(p, count, other), count, dtype, other};
		break;
	case OP_JOIN:
		op->join = (struct op_join){kernel_take(p, count, DTYPE_F32),
		        kernel_take(p, count, DTYPE_BF16), kernel_take(p, count, DTYPE_I16), count};
		break;
	case OP_EXPAND:
		op->expand = (struct op_expand){kernel_take(p, count, dtype),
		        kernel_take(p, count / 2, DTYPE_I8), kernel_take(p, count / 64, DTYPE_F32), DEV_NONE,
		        1, count, 1, 64, CODE_NF4, CODE_SCALE_F32, dtype};
		break;
	case OP_ADD:
		op->add = (struct op_add){kernel_take(p, count, dtype), kernel_take(p, count, dtype),
		        kernel_take(p, count, dtype), count, dtype};
		break;
	case OP_SCALE:
		op->scale = (struct op_scale){kernel_take(p, count, dtype), kernel_take(p, count, dtype),
		        DEV_NONE, count, 2, 0, dtype};
		break;
	case OP_COLUMNS:
		op->columns = (struct op_columns){kernel_take(p, count, dtype),
		        kernel_take(p, 2 * count, dtype), s->tokens, s->hidden, s->hidden, 2 * s->hidden,
		        dtype, dtype, .accumulate = 0};
		break;
	case OP_CLAMP:
		op->clamp = (struct op_clamp){kernel_take(p, count, dtype), kernel_take(p, count, dtype),
		        s->tokens, s->hidden, s->hidden, s->hidden, 1, dtype};
		break;
	case OP_CLAMP_GRAD:
		op->clamp_grad = (struct op_clamp_grad){kernel_take(p, count, dtype),
		        kernel_take(p, count, dtype), s->tokens, s->hidden, s->hidden, s->hidden, 1, dtype};
		break;
	case OP_COLSUM:
		op->colsum = (struct op_colsum){kernel_take(p, s->hidden, DTYPE_F32),
		        kernel_take(p, count, dtype), s->tokens, s->hidden, s->hidden, dtype};
		break;
	case OP_CAST_SUMSQ:
		op->cast_sumsq = (struct op_cast_sumsq){kernel_take(p, count, DTYPE_BF16),
		        kernel_take(p, count / SUMSQ_BLOCK + 1, DTYPE_F64), kernel_take(p, count, DTYPE_F32),
		        count};
		break;
	case OP_SUMSQ:
		op->sumsq = (struct op_sumsq){kernel_take(p, count / SUMSQ_BLOCK + 1, DTYPE_F64),
		        kernel_take(p, count, dtype), count, dtype};
		break;
	default:
		assert(!"an op that kernel_case_make lists here");
	}
}

static void make_table(struct op *op, struct kernel_place *p, const struct bench_scale *s,
        const struct kernel_index *index, enum dtype dtype)
{
	int64_t rows = s->tokens, cols = s->hidden;

	switch (op->kind) {
	case OP_GATHER:
		op->gather = (struct op_gather){.out = kernel_take(p, rows * cols, dtype),
		        .table = kernel_take(p, s->vocab * cols, dtype),
		        .index = index->id,
		        .rows = rows,
		        .cols = cols,
		        .table_rows = s->vocab,
		        .dtype = dtype};
		break;
	case OP_SCATTER:
		op->scatter = (struct op_scatter){kernel_take(p, rows * cols, dtype),
		        kernel_take(p, rows * cols, dtype), index->order, rows, cols, rows, dtype};
		break;
	case OP_EMBED_GRAD:
		op->embed_grad = (struct op_embed_grad){kernel_take(p, s->vocab * cols, DTYPE_F32),
		        kernel_take(p, rows * cols, dtype), index->id,
		        kernel_take(p, rows + s->vocab + 1, DTYPE_I32), rows, cols, s->vocab, -1, dtype, 0};
		break;
	default:
		assert(!"an op that kernel_case_make lists here");
	}
}

/* ---- norms: variant 1 normalises each head of a fused projection ---- */

static void make_norm(
        struct op *op, struct kernel_place *p, const struct bench_scale *s, enum dtype dtype, int variant)
{
	int64_t groups = variant ? s->heads : 1, cols = variant ? s->head_dim : s->hidden,
	        stride = variant ? side_of(s, SIDE_QKV) : s->hidden, stats = s->tokens * groups;
	int centred = op->kind == OP_LAYERNORM || op->kind == OP_LAYERNORM_GRAD;
	dev_addr x = kernel_take(p, s->tokens * stride, dtype), y = kernel_take(p, s->tokens * stride, dtype),
	         weight = kernel_take(p, cols, dtype), bias = kernel_take(p, cols, dtype),
	         rstd = kernel_take(p, stats, DTYPE_F32), mean = kernel_take(p, stats, DTYPE_F32);

	if (op->kind == OP_RMSNORM || op->kind == OP_LAYERNORM) {
		op->norm = (struct op_norm){y, x, weight, centred ? bias : DEV_NONE, rstd,
		        centred ? mean : DEV_NONE, s->tokens, groups, cols, stride, stride, cols, cols, 1e-5,
		        0, dtype};
		return;
	}
	op->norm_grad = (struct op_norm_grad){.dx = kernel_take(p, s->tokens * stride, dtype),
	        .dweight = kernel_take(p, cols, DTYPE_F32),
	        .dbias = centred ? kernel_take(p, cols, DTYPE_F32) : DEV_NONE,
	        .dy = y,
	        .x = x,
	        .weight = weight,
	        .rstd = rstd,
	        .mean = centred ? mean : DEV_NONE,
	        .scratch = kernel_take(p, norm_scratch_count(s->tokens, groups, cols), DTYPE_F32),
	        .rows = s->tokens,
	        .groups = groups,
	        .cols = cols,
	        .x_stride = stride,
	        .y_stride = stride,
	        .x_group_stride = cols,
	        .y_group_stride = cols,
	        .dtype = dtype};
}

/* ---- rotary positions ---- */

static void make_rope(struct op *op, struct kernel_place *p, const struct bench_scale *s,
        const struct kernel_index *index, enum dtype dtype, int variant)
{
	op->rope = (struct op_rope){.x = kernel_take(p, s->tokens * side_of(s, SIDE_QKV), dtype),
	        .table = index->rope,
	        .position = index->position,
	        .tokens = s->tokens,
	        .heads = s->heads + s->kv_heads,
	        .stride = side_of(s, SIDE_QKV),
	        .head_stride = s->head_dim,
	        .rotary = s->head_dim,
	        .table_rows = s->document_tokens,
	        .direction = variant ? ROPE_BACKWARD : ROPE_FORWARD,
	        .dtype = dtype};
}

/* ---- activations ---- */

static void make_act(
        struct op *op, struct kernel_place *p, const struct bench_scale *s, enum dtype dtype, int variant)
{
	int64_t F = s->intermediate, count = s->tokens * F;
	dev_addr a = kernel_take(p, count, dtype), b = kernel_take(p, count, dtype);
	enum act_kind act = (enum act_kind)variant;

	switch (op->kind) {
	case OP_GLU:
		op->glu = (struct op_glu){kernel_take(p, count, dtype), a, b, count, act, dtype, 0, 0};
		break;
	case OP_GLU_GRAD: /* not in place: repeated use would shrink the numbers to 0 */
		op->glu_grad =
		        (struct op_glu_grad){kernel_take(p, count, dtype), kernel_take(p, count, dtype),
		                kernel_take(p, count, dtype), a, b, count, act, dtype, 0, 0, DEV_NONE};
		break;
	case OP_ACT:
		op->act = (struct op_act){a, b, count, act, dtype};
		break;
	case OP_ACT_GRAD:
		op->act_grad = (struct op_act_grad){kernel_take(p, count, dtype), a, b, count, act, dtype};
		break;
	case OP_GATE:
		op->gate = (struct op_gate){
		        kernel_take(p, count, dtype), a, b, s->tokens, 1, F, F, F, F, F, act, .dtype = dtype};
		break;
	case OP_GATE_GRAD:
		op->gate_grad = (struct op_gate_grad){kernel_take(p, count, dtype),
		        kernel_take(p, count, dtype), kernel_take(p, count, dtype), a, b, s->tokens, 1, F, F,
		        F, F, F, act, .dtype = dtype};
		break;
	case OP_GLU_LIMITED:
		op->glu_limited = (struct op_glu_limited){a, kernel_take(p, 2 * count, dtype), s->tokens, F,
		        1.702, 7, GLU_BY_TURNS, .dtype = dtype};
		break;
	case OP_GLU_LIMITED_GRAD:
		op->glu_limited_grad = (struct op_glu_limited_grad){kernel_take(p, 2 * count, dtype), a,
		        kernel_take(p, 2 * count, dtype), s->tokens, F, 1.702, 7, GLU_BY_TURNS,
		        .dtype = dtype};
		break;
	default:
		assert(!"an op that kernel_case_make lists here");
	}
}

/* ---- loss and optimizer ---- */

static void make_cross_entropy(struct op *op, struct kernel_place *p, const struct bench_scale *s,
        const struct kernel_index *index, enum dtype dtype)
{
	int64_t rows = head_rows(s);

	op->cross_entropy = (struct op_cross_entropy){kernel_take(p, rows, DTYPE_F32),
	        kernel_take(p, rows * s->vocab, dtype), kernel_take(p, rows * s->vocab, DTYPE_F32),
	        index->label, kernel_take(p, cross_entropy_scratch_count(rows), DTYPE_F32), rows, s->vocab,
	        1.0f / 1024, dtype, 0, DEV_NONE, 0};
}

static void make_noise(struct op *op, struct kernel_place *p, const struct bench_scale *s,
        const struct kernel_index *index, enum dtype dtype)
{
	int64_t cols = s->intermediate, count = s->tokens * cols;
	dev_addr x = kernel_take(p, count, dtype), key = kernel_take(p, s->tokens, DTYPE_F64);

	if (op->kind == OP_DROPOUT)
		op->dropout = (struct op_dropout){kernel_take(p, count, dtype), x, key, s->tokens, cols, cols,
		        cols, 1, 0.05, 0, dtype, dtype};
	else
		op->neftune = (struct op_neftune){
		        x, key, index->doc_start, index->doc_end, s->tokens, cols, 5, dtype};
}

/* v's random numbers have either sign, and negative ones have no root. With beta2 = 0 v is the square of the
 * gradient from the first call on. */
static void make_adamw(struct op *op, struct kernel_place *p, const struct bench_scale *s, enum dtype dtype,
        enum adamw_state state)
{
	const struct adamw_options options = {.beta1 = 0.9, .beta2 = 0, .epsilon = 1e-8, .weight_decay = 0.1};
	int64_t count = s->hidden * s->intermediate,
	        scales = adamw_state_has_scales(state) ? count / ADAMW_BLOCK + 1 : 0;
	struct adamw_step step;

	adamw_step_init(&step, &options, 1e-4, 10, 0.5);
	op->adamw = (struct op_adamw){.hi = kernel_take(p, count, DTYPE_BF16),
	        .lo = kernel_take(p, count, DTYPE_I16),
	        .m = kernel_take(p, count, adamw_state_dtype(state)),
	        .v = kernel_take(p, count, adamw_state_dtype(state)),
	        .m_scale = scales ? kernel_take(p, scales, DTYPE_F32) : DEV_NONE,
	        .v_scale = scales ? kernel_take(p, scales, DTYPE_F32) : DEV_NONE,
	        .grad = kernel_take(p, count, dtype),
	        .count = count,
	        .decay = 1,
	        .grad_dtype = dtype,
	        .state = state,
	        .step = step};
}

/* ---- the table ---- */

static const struct kernel_case cases[] = {
        {"matmul qkv", OP_MATMUL, DTYPE_BF16, 0, KERNEL_PRODUCT},
        {"matmul gate, up", OP_MATMUL, DTYPE_BF16, 1, KERNEL_PRODUCT},
        {"matmul down", OP_MATMUL, DTYPE_BF16, 2, KERNEL_PRODUCT},
        {"matmul dx of gate, up", OP_MATMUL, DTYPE_BF16, 3, KERNEL_PRODUCT},
        {"matmul dw of gate, up", OP_MATMUL, DTYPE_BF16, 4, KERNEL_PRODUCT},
        {"matmul head", OP_MATMUL, DTYPE_BF16, 5, KERNEL_PRODUCT},
        {"matmul dx of head", OP_MATMUL, DTYPE_BF16, 6, KERNEL_PRODUCT},
        {"matmul dw of head", OP_MATMUL, DTYPE_BF16, 7, KERNEL_PRODUCT},
        {"coded_matmul gate, up", OP_CODED_MATMUL, DTYPE_BF16, 1, KERNEL_PRODUCT},
        {"coded_matmul dx of gate, up", OP_CODED_MATMUL, DTYPE_BF16, 3, KERNEL_PRODUCT},
        {"encode", OP_ENCODE, DTYPE_BF16, 1, KERNEL_COPY},
        {"attention", OP_ATTENTION, DTYPE_BF16, 0, KERNEL_PRODUCT},
        {"attention_grad", OP_ATTENTION_GRAD, DTYPE_BF16, 0, KERNEL_PRODUCT},
        {"attention window", OP_ATTENTION, DTYPE_BF16, 1, KERNEL_PRODUCT},
        {"attention_grad window", OP_ATTENTION_GRAD, DTYPE_BF16, 1, KERNEL_PRODUCT},
        {"attention bias", OP_ATTENTION, DTYPE_BF16, 2, KERNEL_PRODUCT},
        {"attention_grad bias", OP_ATTENTION_GRAD, DTYPE_BF16, 2, KERNEL_PRODUCT},
        {"relative", OP_RELATIVE, DTYPE_BF16, 0, KERNEL_COPY},
        {"relative_grad", OP_RELATIVE_GRAD, DTYPE_BF16, 0, KERNEL_COPY},
        {"attention_cached, a token", OP_ATTENTION_CACHED, DTYPE_BF16, 0, KERNEL_COPY},
        {"pool_max", OP_POOL_MAX, DTYPE_BF16, 0, KERNEL_COPY},
        {"pool_max_grad", OP_POOL_MAX_GRAD, DTYPE_BF16, 0, KERNEL_COPY},
        {"route", OP_ROUTE, DTYPE_BF16, 0, KERNEL_COPY},
        {"route_grad", OP_ROUTE_GRAD, DTYPE_BF16, 0, KERNEL_COPY},
        {"router_shares", OP_ROUTER_SHARES, DTYPE_BF16, 0, KERNEL_COPY},
        {"balance_grad", OP_BALANCE_GRAD, DTYPE_BF16, 0, KERNEL_COPY},
        {"order", OP_ORDER, DTYPE_BF16, 0, KERNEL_COPY},
        {"dispatch", OP_DISPATCH, DTYPE_BF16, 0, KERNEL_COPY},
        {"combine", OP_COMBINE, DTYPE_BF16, 0, KERNEL_COPY},
        {"weigh", OP_WEIGH, DTYPE_BF16, 0, KERNEL_COPY},
        {"weigh_grad", OP_WEIGH_GRAD, DTYPE_BF16, 0, KERNEL_COPY},
        {"grouped rows", OP_GROUPED, DTYPE_BF16, 0, KERNEL_PRODUCT},
        {"grouped weights", OP_GROUPED, DTYPE_BF16, 1, KERNEL_PRODUCT},
        {"expert_scale", OP_EXPERT_SCALE, DTYPE_BF16, 0, KERNEL_COPY},
        {"expert_scale_grad", OP_EXPERT_SCALE_GRAD, DTYPE_BF16, 0, KERNEL_COPY},
        {"grouped_colsum", OP_GROUPED_COLSUM, DTYPE_BF16, 0, KERNEL_COPY},
        {"glu_limited", OP_GLU_LIMITED, DTYPE_BF16, 0, KERNEL_COPY},
        {"glu_limited_grad", OP_GLU_LIMITED_GRAD, DTYPE_BF16, 0, KERNEL_COPY},
        {"conv silu", OP_CONV, DTYPE_BF16, 0, KERNEL_COPY},
        {"conv_grad silu", OP_CONV_GRAD, DTYPE_BF16, 0, KERNEL_COPY},
        {"conv_cached, a token", OP_CONV_CACHED, DTYPE_BF16, 0, KERNEL_COPY},
        {"delta", OP_DELTA, DTYPE_BF16, 0, KERNEL_PRODUCT},
        {"delta_grad", OP_DELTA_GRAD, DTYPE_BF16, 0, KERNEL_PRODUCT},
        {"delta_cached, a token", OP_DELTA_CACHED, DTYPE_BF16, 0, KERNEL_COPY},
        {"gated_norm", OP_GATED_NORM, DTYPE_BF16, 0, KERNEL_COPY},
        {"gated_norm_grad", OP_GATED_NORM_GRAD, DTYPE_BF16, 0, KERNEL_COPY},
        {"rope", OP_ROPE, DTYPE_BF16, 0, KERNEL_COPY},
        {"rope backward", OP_ROPE, DTYPE_BF16, 1, KERNEL_COPY},
        {"rmsnorm", OP_RMSNORM, DTYPE_BF16, 0, KERNEL_COPY},
        {"rmsnorm_grad", OP_RMSNORM_GRAD, DTYPE_BF16, 0, KERNEL_COPY},
        {"rmsnorm of heads", OP_RMSNORM, DTYPE_BF16, 1, KERNEL_COPY},
        {"rmsnorm_grad of heads", OP_RMSNORM_GRAD, DTYPE_BF16, 1, KERNEL_COPY},
        {"layernorm", OP_LAYERNORM, DTYPE_BF16, 0, KERNEL_COPY},
        {"layernorm_grad", OP_LAYERNORM_GRAD, DTYPE_BF16, 0, KERNEL_COPY},
        {"glu silu", OP_GLU, DTYPE_BF16, ACT_SILU, KERNEL_COPY},
        {"glu_grad silu", OP_GLU_GRAD, DTYPE_BF16, ACT_SILU, KERNEL_COPY},
        {"act gelu_tanh", OP_ACT, DTYPE_BF16, ACT_GELU_TANH, KERNEL_COPY},
        {"act_grad gelu_tanh", OP_ACT_GRAD, DTYPE_BF16, ACT_GELU_TANH, KERNEL_COPY},
        {"gate sigmoid", OP_GATE, DTYPE_BF16, ACT_SIGMOID, KERNEL_COPY},
        {"gate_grad sigmoid", OP_GATE_GRAD, DTYPE_BF16, ACT_SIGMOID, KERNEL_COPY},
        {"cross_entropy", OP_CROSS_ENTROPY, DTYPE_BF16, 0, KERNEL_COPY},
        {"preference", OP_PREFERENCE, DTYPE_BF16, 0, KERNEL_COPY},
        {"log_ratio", OP_LOG_RATIO, DTYPE_BF16, 0, KERNEL_COPY},
        {"dropout", OP_DROPOUT, DTYPE_BF16, 0, KERNEL_COPY},
        {"neftune", OP_NEFTUNE, DTYPE_BF16, 0, KERNEL_COPY},
        {"row_norms", OP_ROW_NORMS, DTYPE_BF16, 0, KERNEL_COPY},
        {"magnitude", OP_MAGNITUDE, DTYPE_BF16, 0, KERNEL_COPY},
        {"magnitude_grad", OP_MAGNITUDE_GRAD, DTYPE_BF16, 0, KERNEL_COPY},
        {"gather", OP_GATHER, DTYPE_BF16, 0, KERNEL_COPY},
        {"scatter", OP_SCATTER, DTYPE_BF16, 0, KERNEL_COPY},
        {"embed_grad", OP_EMBED_GRAD, DTYPE_BF16, 0, KERNEL_COPY},
        {"add", OP_ADD, DTYPE_BF16, 0, KERNEL_COPY},
        {"scale", OP_SCALE, DTYPE_BF16, 0, KERNEL_COPY},
        {"columns", OP_COLUMNS, DTYPE_BF16, 0, KERNEL_COPY},
        {"clamp", OP_CLAMP, DTYPE_BF16, 0, KERNEL_COPY},
        {"clamp_grad", OP_CLAMP_GRAD, DTYPE_BF16, 0, KERNEL_COPY},
        {"colsum", OP_COLSUM, DTYPE_BF16, 0, KERNEL_COPY},
        {"sumsq", OP_SUMSQ, DTYPE_BF16, 0, KERNEL_COPY},
        {"sumsq", OP_SUMSQ, DTYPE_F32, 0, KERNEL_COPY},
        {"cast_sumsq", OP_CAST_SUMSQ, DTYPE_BF16, 0, KERNEL_COPY},
        {"cast to", OP_CAST, DTYPE_BF16, 0, KERNEL_COPY},
        {"cast to", OP_CAST, DTYPE_F32, 0, KERNEL_COPY},
        {"join", OP_JOIN, DTYPE_F32, 0, KERNEL_COPY},
        {"expand", OP_EXPAND, DTYPE_BF16, 0, KERNEL_COPY},
        {"copy", OP_COPY, DTYPE_BF16, 0, KERNEL_COPY},
        {"fill", OP_FILL, DTYPE_F32, 0, KERNEL_COPY},
        {"adamw", OP_ADAMW, DTYPE_BF16, ADAMW_STATE_F32, KERNEL_COPY},
        {"adamw state bf16", OP_ADAMW, DTYPE_BF16, ADAMW_STATE_BF16, KERNEL_COPY},
        {"adamw state 8bit", OP_ADAMW, DTYPE_BF16, ADAMW_STATE_8BIT, KERNEL_COPY},
        {"adamw", OP_ADAMW, DTYPE_F32, ADAMW_STATE_F32, KERNEL_COPY},
        {"attention", OP_ATTENTION, DTYPE_F32, 0, KERNEL_PRODUCT},
        {"attention_grad", OP_ATTENTION_GRAD, DTYPE_F32, 0, KERNEL_PRODUCT},
        {"rmsnorm", OP_RMSNORM, DTYPE_F32, 0, KERNEL_COPY},
        {"rmsnorm_grad", OP_RMSNORM_GRAD, DTYPE_F32, 0, KERNEL_COPY},
        {"glu silu", OP_GLU, DTYPE_F32, ACT_SILU, KERNEL_COPY},
};

const struct kernel_case *kernel_case_at(int index)
{
	return index >= 0 && index < (int)(sizeof(cases) / sizeof(*cases)) ? &cases[index] : NULL;
}

#define CASE(NAME, name, args) case OP_##NAME:

void kernel_case_make(const struct kernel_case *k, struct op *op, struct kernel_place *place,
        const struct bench_scale *scale, const struct kernel_index *index)
{
	*op = (struct op){.kind = k->kind};
	switch (k->kind) { /* without a default, so that the compiler names a missing op */
	case OP_MATMUL:
		make_matmul(op, place, scale, k->dtype, k->variant);
		break;
		OP_CODED_LIST(CASE)
		make_coded(op, place, scale, k->dtype, k->variant);
		break;
		OP_TABLE_LIST(CASE)
		make_table(op, place, scale, index, k->dtype);
		break;
		OP_POOL_LIST(CASE)
		kernel_make_pool(op, place, scale, index, k->dtype);
		break;
		OP_NORM_LIST(CASE)
		make_norm(op, place, scale, k->dtype, k->variant);
		break;
	case OP_ROPE:
		make_rope(op, place, scale, index, k->dtype, k->variant);
		break;
		OP_ATTENTION_LIST(CASE)
		kernel_make_attention(op, place, scale, index, k->dtype, k->variant);
		break;
		OP_RECURRENT_LIST(CASE)
		kernel_make_recurrent(op, place, scale, index, k->dtype);
		break;
		OP_ACT_LIST(CASE)
		make_act(op, place, scale, k->dtype, k->variant);
		break;
	case OP_CROSS_ENTROPY:
		make_cross_entropy(op, place, scale, index, k->dtype);
		break;
		OP_PREFERENCE_LIST(CASE)
		kernel_make_preference(op, place, scale, index);
		break;
		OP_NOISE_LIST(CASE)
		make_noise(op, place, scale, index, k->dtype);
		break;
		OP_MAGNITUDE_LIST(CASE)
		kernel_make_magnitude(op, place, scale, k->dtype);
		break;
	case OP_ADAMW:
		make_adamw(op, place, scale, k->dtype, (enum adamw_state)k->variant);
		break;
		OP_MOVE_LIST(CASE)
	case OP_SUMSQ:
	case OP_CAST_SUMSQ:
		make_flat(op, place, scale, k->dtype, k->variant);
		break;
		OP_EXPERTS_LIST(CASE)
		kernel_make_experts(op, place, scale, index, k->dtype, k->variant);
		break;
	case OP_KIND_COUNT:
		break;
	}
}
