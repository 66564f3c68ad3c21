/* Descriptions of the convolution, the delta rule and the norm with a gate. */
#include "device/op_recurrent.h"

#include "device/op_facts.h"

#include <inttypes.h>
#include <math.h>

OP_RECURRENT_LIST(OP_DESCRIBED)

/* ---- convolution ---- */

/* Sums of dweight and dbias, a row for each block of 64 tokens or, for more than 128 blocks, of more. */
int64_t conv_scratch_count(int64_t tokens, int64_t cols, int64_t taps)
{
	int64_t blocks = tokens > 0 ? (tokens - 1) / 64 + 1 : 1;

	return size_times(blocks > 128 ? 128 : blocks, size_times(cols, size_plus(taps, 1)));
}

static int check_act(const struct op_facts *f, enum conv_act act)
{
	return (unsigned)act < CONV_ACT_COUNT
	               ? 0
	               : op_refuse(f, "act is %d, not an activation of conv", (int)act);
}

static int check_taps(const struct op_facts *f, int64_t taps)
{
	return taps <= CONV_TAPS_MAX
	               ? 0
	               : op_refuse(f, "taps is %" PRId64 ", must be at most %d", taps, CONV_TAPS_MAX);
}

#define CONV_SIZES                                                                                           \
	(SIZE(tokens, 1) || SIZE(cols, 1) || SIZE(taps, 1) || check_taps(f, p->taps) ||                      \
	        SIZE(x_stride, p->cols) || SIZE(y_stride, p->cols) || check_act(f, p->act) ||                \
	        COMPUTE_DTYPE(dtype))
#define CONV_X .dtype = p->dtype, .rows = p->tokens, .stride = p->x_stride, .cols = p->cols
#define CONV_Y .dtype = p->dtype, .rows = p->tokens, .stride = p->y_stride, .cols = p->cols
#define CONV_WEIGHTS .dtype = p->dtype, .rows = p->cols, .cols = p->taps
#define TOKENS .dtype = DTYPE_I32, .cols = p->tokens

int op_describe_conv(struct op_facts *f, const struct op_conv *p)
{
	if (CONV_SIZES)
		return ERR_RANGE;
	READ(x, CONV_X);
	READ(weight, CONV_WEIGHTS);
	READ(bias, .dtype = p->dtype, .cols = p->cols, .optional = 1);
	READ(doc_start, TOKENS);
	WRITE(y, CONV_Y);
	return 0;
}

int op_describe_conv_grad(struct op_facts *f, const struct op_conv_grad *p)
{
	if (CONV_SIZES)
		return ERR_RANGE;
	if (dev_is_none(p->bias) != dev_is_none(p->dbias))
		return op_refuse(f, "bias and dbias go together");
	READ(dy, CONV_Y);
	READ(x, CONV_X);
	READ(weight, CONV_WEIGHTS);
	READ(bias, .dtype = p->dtype, .cols = p->cols, .optional = 1);
	READ(doc_start, TOKENS);
	WRITE(dx, CONV_X);
	UPDATE(dweight, .dtype = DTYPE_F32, .rows = p->cols, .cols = p->taps);
	UPDATE(dbias, .dtype = DTYPE_F32, .cols = p->cols, .optional = 1);
	WRITE(scratch, .dtype = DTYPE_F32, .cols = conv_scratch_count(p->tokens, p->cols, p->taps));
	return 0;
}

int op_describe_conv_cached(struct op_facts *f, const struct op_conv_cached *p)
{
	if (CONV_SIZES || SIZE(texts, 1) || SIZE(text_rows, 1) || SIZE(taps, 2))
		return ERR_RANGE;
	READ(x, CONV_X);
	READ(weight, CONV_WEIGHTS);
	READ(bias, .dtype = p->dtype, .cols = p->cols, .optional = 1);
	READ(doc_start, TOKENS);
	READ(doc_end, TOKENS);
	UPDATE(window, .dtype = p->dtype, .rows = size_times(p->texts, p->taps - 1), .cols = p->cols);
	WRITE(y, CONV_Y);
	return 0;
}

/* ---- the delta rule ---- */

int64_t delta_scratch_count(int64_t tokens, int64_t value_heads, int64_t key_dim, int64_t value_dim)
{
	int64_t size = size_times(key_dim, value_dim), states = size_times(delta_states(tokens), size);
	int64_t keys = size_times(2 * tokens, key_dim);
	/* a count that overflows is refused by the size of the states or of q */
	int64_t row = size == INT64_MAX || size_times(key_dim, 4) == INT64_MAX
	                      ? INT64_MAX
	                      : delta_row_count(key_dim, value_dim);
	int64_t by_chunk = size_plus(states, size_times(tokens, size_plus(row, 3)));
	int64_t by_token = size_plus(keys, size_times(tokens, 2 * DELTA_TILE + 4));

	return size_times(value_heads, by_chunk > by_token ? by_chunk : by_token);
}

static int check_delta_heads(const struct op_facts *f, int64_t key_heads, int64_t value_heads)
{
	if (value_heads % key_heads == 0)
		return 0;
	return op_refuse(f, "value_heads is %" PRId64 ", must be a multiple of key_heads, which is %" PRId64,
	        value_heads, key_heads);
}

static int check_rule(const struct op_facts *f, enum delta_rule rule, double low, double high)
{
	if ((unsigned)rule >= DELTA_RULE_COUNT)
		return op_refuse(f, "rule is %d, not a rule", (int)rule);
	return rule == DELTA_GATED || (low >= 0 && low <= high)
	               ? 0
	               : op_refuse(f, "low is %g and high %g, must be 0 <= low <= high", low, high);
}

static int check_numbers(const struct op_facts *f, double scale, double epsilon, enum delta_rule rule)
{
	if (!isfinite(scale))
		return op_refuse(f, "scale is %g", scale);
	return rule == DELTA_SCAN || (epsilon > 0 && isfinite(epsilon))
	               ? 0
	               : op_refuse(f, "epsilon is %g, must be above 0", epsilon);
}

/* The scan has no b, the gated rule no skip. */
static int check_other(const struct op_facts *f, enum delta_rule rule, dev_addr b, dev_addr skip)
{
	if (dev_is_none(rule == DELTA_SCAN ? b : skip))
		return 0;
	return op_refuse(f, rule == DELTA_SCAN ? "b is not of a scan" : "skip is of a scan");
}

#define DELTA_SIZES                                                                                          \
	(SIZE(tokens, 1) || SIZE(key_heads, 1) || SIZE(value_heads, 1) || SIZE(key_dim, 1) ||                \
	        SIZE(value_dim, 1) || check_delta_heads(f, p->key_heads, p->value_heads) ||                  \
	        SIZE(qkv_stride, size_times(p->key_heads, p->key_dim)) ||                                    \
	        SIZE(qkv_stride, size_times(p->value_heads, p->value_dim)) ||                                \
	        SIZE(gate_stride, p->value_heads) ||                                                         \
	        SIZE(out_stride, size_times(p->value_heads, p->value_dim)) || COMPUTE_DTYPE(dtype) ||        \
	        check_rule(f, p->rule, p->low, p->high) ||                                                   \
	        check_numbers(f, p->scale, p->epsilon, p->rule) || check_other(f, p->rule, p->b, p->skip))
#define DELTA_QK                                                                                             \
	.dtype = p->dtype, .rows = p->tokens, .stride = p->qkv_stride,                                       \
	.cols = size_times(p->key_heads, p->key_dim)
#define DELTA_V                                                                                              \
	.dtype = p->dtype, .rows = p->tokens, .stride = p->qkv_stride,                                       \
	.cols = size_times(p->value_heads, p->value_dim)
#define DELTA_OUT                                                                                            \
	.dtype = p->dtype, .rows = p->tokens, .stride = p->out_stride,                                       \
	.cols = size_times(p->value_heads, p->value_dim)
#define DELTA_GATE .dtype = p->dtype, .rows = p->tokens, .stride = p->gate_stride, .cols = p->value_heads
#define DELTA_READS                                                                                          \
	do {                                                                                                 \
		READ(q, DELTA_QK);                                                                           \
		READ(k, DELTA_QK);                                                                           \
		READ(v, DELTA_V);                                                                            \
		READ(a, DELTA_GATE);                                                                         \
		READ(b, DELTA_GATE, .optional = p->rule == DELTA_SCAN);                                      \
		READ(decay, .dtype = p->dtype, .cols = p->value_heads);                                      \
		READ(dt_bias, .dtype = p->dtype, .cols = p->value_heads);                                    \
		READ(skip, .dtype = p->dtype, .cols = p->value_heads, .optional = p->rule != DELTA_SCAN);    \
		READ(doc_start, TOKENS);                                                                     \
	} while (0)

/* Products of chunk x chunk and of chunk x state for each chunk, in fp32. */
static void delta_products(struct op_facts *f, int count, enum dtype dtype, int64_t tokens, int64_t heads,
        int64_t key_dim, int64_t value_dim)
{
	f->flops_dtype = DTYPE_F32;
	f->is_recurrent = dtype == DTYPE_BF16;
	f->flops = (double)count * (double)tokens * (double)heads *
	           ((double)DELTA_CHUNK * (double)(key_dim + value_dim) +
	                   2.0 * (double)key_dim * (double)value_dim);
}

int op_describe_delta(struct op_facts *f, const struct op_delta *p)
{
	if (DELTA_SIZES)
		return ERR_RANGE;
	DELTA_READS;
	WRITE(out, DELTA_OUT);
	delta_products(f, p->rule == DELTA_SCAN ? 2 : 3, p->dtype, p->tokens, p->value_heads, p->key_dim,
	        p->value_dim);
	return 0;
}

int op_describe_delta_grad(struct op_facts *f, const struct op_delta_grad *p)
{
	if (DELTA_SIZES || check_other(f, p->rule, p->db, p->dskip))
		return ERR_RANGE;
	READ(dout, DELTA_OUT);
	DELTA_READS;
	WRITE(dq, DELTA_QK);
	WRITE(dk, DELTA_QK);
	WRITE(dv, DELTA_V);
	WRITE(da, DELTA_GATE);
	WRITE(db, DELTA_GATE, .optional = p->rule == DELTA_SCAN);
	UPDATE(ddecay, .dtype = DTYPE_F32, .cols = p->value_heads);
	UPDATE(ddt_bias, .dtype = DTYPE_F32, .cols = p->value_heads);
	UPDATE(dskip, .dtype = DTYPE_F32, .cols = p->value_heads, .optional = p->rule != DELTA_SCAN);
	WRITE(scratch, .dtype = DTYPE_F32,
	        .cols = delta_scratch_count(p->tokens, p->value_heads, p->key_dim, p->value_dim));
	delta_products(f, p->rule == DELTA_SCAN ? 6 : 9, p->dtype, p->tokens, p->value_heads, p->key_dim,
	        p->value_dim);
	return 0;
}

int op_describe_delta_cached(struct op_facts *f, const struct op_delta_cached *p)
{
	if (DELTA_SIZES || SIZE(texts, 1) || SIZE(text_rows, 1))
		return ERR_RANGE;
	DELTA_READS;
	READ(doc_end, TOKENS);
	UPDATE(state, .dtype = DTYPE_F32, .rows = p->texts,
	        .cols = size_times(p->value_heads, size_times(p->key_dim, p->value_dim)));
	WRITE(out, DELTA_OUT);
	f->flops_dtype = DTYPE_F32;
	f->flops = 6.0 * (double)p->tokens * (double)p->value_heads * (double)(p->key_dim * p->value_dim);
	return 0;
}

/* ---- the norm with a gate ---- */

int64_t gated_norm_scratch_count(int64_t rows, int64_t groups, int64_t cols)
{
	int64_t blocks = rows > 0 ? (rows - 1) / 8 + 1 : 1;

	return size_times(blocks > 128 ? 128 : blocks, size_times(groups, cols));
}

static int check_order(const struct op_facts *f, enum gate_order order)
{
	return (unsigned)order < GATE_ORDER_COUNT ? 0 : op_refuse(f, "order is %d, not an order", (int)order);
}

static int check_weight_groups(const struct op_facts *f, int64_t weight_groups, int64_t groups)
{
	if (weight_groups == 1 || weight_groups == groups)
		return 0;
	return op_refuse(f, "weight_groups is %" PRId64 ", must be 1 or groups", weight_groups);
}

#define GATED_SIZES                                                                                          \
	(SIZE(rows, 1) || SIZE(groups, 1) || SIZE(cols, 1) ||                                                \
	        check_weight_groups(f, p->weight_groups, p->groups) ||                                       \
	        SIZE(x_stride, size_times(p->groups, p->cols)) ||                                            \
	        SIZE(gate_stride, size_times(p->groups, p->cols)) ||                                         \
	        SIZE(y_stride, size_times(p->groups, p->cols)) || check_order(f, p->order) ||                \
	        COMPUTE_DTYPE(dtype))
#define GATED(which)                                                                                         \
	.dtype = p->dtype, .rows = p->rows, .stride = p->which##_stride,                                     \
	.cols = size_times(p->groups, p->cols)

int op_describe_gated_norm(struct op_facts *f, const struct op_gated_norm *p)
{
	if (GATED_SIZES)
		return ERR_RANGE;
	READ(x, GATED(x));
	READ(gate, GATED(gate));
	READ(weight, .dtype = p->dtype, .cols = size_times(p->weight_groups, p->cols));
	WRITE(y, GATED(y));
	WRITE(rstd, .dtype = DTYPE_F32, .rows = p->rows, .cols = p->groups);
	return 0;
}

int op_describe_gated_norm_grad(struct op_facts *f, const struct op_gated_norm_grad *p)
{
	int dy, x, gate;

	if (GATED_SIZES)
		return ERR_RANGE;
	dy = READ(dy, GATED(y));
	x = READ(x, GATED(x));
	gate = READ(gate, GATED(gate));
	READ(weight, .dtype = p->dtype, .cols = size_times(p->weight_groups, p->cols));
	READ(rstd, .dtype = DTYPE_F32, .rows = p->rows, .cols = p->groups);
	WRITE(dx, GATED(x), .may_be = BIT(x) | (p->x_stride == p->y_stride ? BIT(dy) : 0));
	WRITE(dgate, GATED(gate), .may_be = BIT(gate));
	UPDATE(dweight, .dtype = DTYPE_F32, .cols = size_times(p->weight_groups, p->cols));
	WRITE(scratch, .dtype = DTYPE_F32, .cols = gated_norm_scratch_count(p->rows, p->groups, p->cols));
	return 0;
}
