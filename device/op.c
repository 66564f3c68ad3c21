#include "base/err.h"
#include "device/operand.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

static const char *const op_names[OP_KIND_COUNT] = {
        [OP_FILL] = "fill",
        [OP_COPY] = "copy",
        [OP_CAST] = "cast",
        [OP_JOIN] = "join",
        [OP_ADD] = "add",
        [OP_MATMUL] = "matmul",
        [OP_COLSUM] = "colsum",
        [OP_GATHER] = "gather",
        [OP_SCATTER] = "scatter",
        [OP_EMBED_GRAD] = "embed_grad",
        [OP_RMSNORM] = "rmsnorm",
        [OP_RMSNORM_GRAD] = "rmsnorm_grad",
        [OP_LAYERNORM] = "layernorm",
        [OP_LAYERNORM_GRAD] = "layernorm_grad",
        [OP_ROPE] = "rope",
        [OP_ATTENTION] = "attention",
        [OP_ATTENTION_GRAD] = "attention_grad",
        [OP_GLU] = "glu",
        [OP_GLU_GRAD] = "glu_grad",
        [OP_ACT] = "act",
        [OP_ACT_GRAD] = "act_grad",
        [OP_CROSS_ENTROPY] = "cross_entropy",
        [OP_SUMSQ] = "sumsq",
        [OP_CAST_SUMSQ] = "cast_sumsq",
        [OP_ADAMW] = "adamw",
};

const char *op_name(enum op_kind kind)
{
	return (unsigned)kind < OP_KIND_COUNT ? op_names[kind] : "?";
}

/* Partial sums of dweight and dbias, one row of each per block of rows: 8 rows, more where that would be
 * more than 128 blocks (about one for each multiprocessor of a large GPU). */
int64_t norm_scratch_count(int64_t rows, int64_t groups, int64_t cols)
{
	int64_t blocks, count;

	if (__builtin_mul_overflow(rows, groups, &blocks))
		return INT64_MAX;
	blocks = (blocks - 1) / 8 + 1;
	blocks = blocks > 128 ? 128 : blocks;
	return __builtin_mul_overflow(2 * blocks, cols, &count) ? INT64_MAX : count;
}

/* The largest logit, the factor of the exponentials, and the gradient at the label. */
int64_t cross_entropy_scratch_count(int64_t rows)
{
	int64_t count;

	return __builtin_mul_overflow(3, rows, &count) ? INT64_MAX : count;
}

/* Per token and head: sum of dout * out, and an fp32 row of dq. */
int64_t attention_scratch_count(int64_t tokens, int64_t heads, int64_t head_dim)
{
	int64_t count;

	if (__builtin_mul_overflow(tokens, heads, &count) ||
	        __builtin_mul_overflow(count, head_dim + 1, &count))
		return INT64_MAX;
	return count;
}

/* ---- op_check ---- */

struct field {
	const char *name;
	int64_t value, least;
};

/* Each field at or above its least value; the list ends with a NULL name. */
static int check_fields(const struct op *op, const struct field *fields)
{
	for (const struct field *f = fields; f->name; f++)
		if (f->value < f->least)
			return err_set(ERR_RANGE, "%s: %s is %" PRId64 ", must be at least %" PRId64,
			        op_name(op->kind), f->name, f->value, f->least);
	return 0;
}

static int check_dtype(const struct op *op, const char *name, enum dtype dtype)
{
	if (dtype_computes(dtype))
		return 0;
	return err_set(ERR_RANGE, "%s: %s is %s, must be %s", op_name(op->kind), name, dtype_name(dtype),
	        dtype_computes_text());
}

static int check_act(const struct op *op, enum act_kind act)
{
	if ((unsigned)act <= ACT_RELU2)
		return 0;
	return err_set(ERR_RANGE, "%s: act is %d, which is no activation", op_name(op->kind), (int)act);
}

/* Elements from the first to the last of a row of groups; saturates. */
static int64_t row_span(int64_t groups, int64_t group_stride, int64_t cols)
{
	int64_t span;

	if (groups < 1 || __builtin_mul_overflow(groups - 1, group_stride, &span) ||
	        __builtin_add_overflow(span, cols, &span))
		return INT64_MAX;
	return span;
}

static int check_matmul(const struct op *op)
{
	const struct op_matmul *p = &op->matmul;
	const struct field fields[] = {
	        {"m", p->m, 1},
	        {"n", p->n, 1},
	        {"k", p->k, 1},
	        {"a_stride", p->a_stride, p->a_layout == MATMUL_TRANSPOSED ? p->m : p->k},
	        {"b_stride", p->b_stride, p->b_layout == MATMUL_TRANSPOSED ? p->k : p->n},
	        {"c_stride", p->c_stride, p->n},
	        {NULL, 0, 0},
	};
	int rc = check_fields(op, fields);

	if (!rc)
		rc = check_dtype(op, "ab_dtype", p->ab_dtype);
	if (!rc)
		rc = check_dtype(op, "c_dtype", p->c_dtype);
	if (!rc && p->c_dtype != DTYPE_F32 && p->c_dtype != p->ab_dtype)
		rc = err_set(ERR_RANGE, "matmul: c_dtype BF16 needs ab_dtype BF16");
	if (!rc && p->accumulate && p->c_dtype != DTYPE_F32)
		rc = err_set(ERR_RANGE, "matmul: accumulate needs c_dtype F32");
	if (!rc && p->accumulate && !dev_is_none(p->bias))
		rc = err_set(ERR_RANGE, "matmul: accumulate and bias exclude each other");
	return rc;
}

static int check_norm(const struct op *op, const struct field *shape, enum dtype dtype)
{
	int64_t groups = shape[1].value, cols = shape[2].value;
	int rc = check_fields(op, (struct field[]){shape[0], shape[1], shape[2], {NULL, 0, 0}});
	int64_t x_group = shape[4].value, y_group = shape[6].value, least = groups > 1 ? cols : 0;

	if (!rc)
		rc = check_fields(op, (struct field[]){
		                              {"x_group_stride", x_group, least},
		                              {"y_group_stride", y_group, least},
		                              {"x_stride", shape[3].value, row_span(groups, x_group, cols)},
		                              {"y_stride", shape[5].value, row_span(groups, y_group, cols)},
		                              {NULL, 0, 0},
		                      });
	return rc ? rc : check_dtype(op, "dtype", dtype);
}

/* op_norm and op_norm_grad name the same shape. */
#define NORM_SHAPE(p)                                                                                        \
	(const struct field[])                                                                               \
	{                                                                                                    \
		{"rows", (p)->rows, 1}, {"groups", (p)->groups, 1}, {"cols", (p)->cols, 1},                  \
		        {"x_stride", (p)->x_stride, 0}, {"x_group_stride", (p)->x_group_stride, 0},          \
		        {"y_stride", (p)->y_stride, 0}, {"y_group_stride", (p)->y_group_stride, 0},          \
	}

static int check_rope(const struct op *op)
{
	const struct op_rope *p = &op->rope;
	int rc = check_fields(op,
	        (struct field[]){{"tokens", p->tokens, 1}, {"heads", p->heads, 1}, {"rotary", p->rotary, 2},
	                {"table_rows", p->table_rows, 1},
	                {"head_stride", p->head_stride, p->heads > 1 ? p->rotary : 0},
	                {"stride", p->stride, row_span(p->heads, p->head_stride, p->rotary)}, {NULL, 0, 0}});

	if (!rc && p->rotary % 2)
		rc = err_set(ERR_RANGE, "rope: rotary is %" PRId64 ", must be even", p->rotary);
	return rc ? rc : check_dtype(op, "dtype", p->dtype);
}

/* Forward and backward have the same shape; they are passed as the forward's struct. */
static int check_attention(const struct op *op, const struct op_attention *p)
{
	int64_t cols;
	int rc = check_fields(op, (struct field[]){{"tokens", p->tokens, 1}, {"documents", p->documents, 0},
	                                  {"document_tokens", p->document_tokens, 0}, {"heads", p->heads, 1},
	                                  {"kv_heads", p->kv_heads, 1}, {"head_dim", p->head_dim, 1},
	                                  {"window", p->window, 0}, {NULL, 0, 0}});

	if (rc)
		return rc;
	if (p->heads % p->kv_heads)
		return err_set(ERR_RANGE,
		        "%s: heads is %" PRId64 ", must be a multiple of kv_heads, which is %" PRId64,
		        op_name(op->kind), p->heads, p->kv_heads);
	if (__builtin_mul_overflow(p->heads, p->head_dim, &cols))
		cols = INT64_MAX;
	rc = check_fields(op,
	        (struct field[]){
	                {"q_head_stride", p->q_head_stride, p->heads > 1 ? p->head_dim : 0},
	                {"kv_head_stride", p->kv_head_stride, p->kv_heads > 1 ? p->head_dim : 0},
	                {"out_stride", p->out_stride, cols},
	                {"qkv_stride", p->qkv_stride, row_span(p->heads, p->q_head_stride, p->head_dim)},
	                {"qkv_stride", p->qkv_stride, row_span(p->kv_heads, p->kv_head_stride, p->head_dim)},
	                {NULL, 0, 0},
	        });
	return rc ? rc : check_dtype(op, "dtype", p->dtype);
}

static struct op_attention attention_shape_of(const struct op_attention_grad *p)
{
	return (struct op_attention){.tokens = p->tokens,
	        .documents = p->documents,
	        .document_tokens = p->document_tokens,
	        .heads = p->heads,
	        .kv_heads = p->kv_heads,
	        .head_dim = p->head_dim,
	        .window = p->window,
	        .qkv_stride = p->qkv_stride,
	        .q_head_stride = p->q_head_stride,
	        .kv_head_stride = p->kv_head_stride,
	        .out_stride = p->out_stride,
	        .dtype = p->dtype};
}

/* count elements of one dtype. */
static int check_flat(const struct op *op, const char *name, int64_t count, enum dtype dtype)
{
	int rc = check_fields(op, (struct field[]){{name, count, 1}, {NULL, 0, 0}});

	return rc ? rc : check_dtype(op, "dtype", dtype);
}

static int check_act_op(const struct op *op, enum act_kind act, int64_t count, enum dtype dtype)
{
	int rc = check_flat(op, "count", count, dtype);

	return rc ? rc : check_act(op, act);
}

static int check_cast(const struct op *op)
{
	int rc = check_flat(op, "count", op->cast.count, op->cast.src_dtype);

	return rc ? rc : check_dtype(op, "dst_dtype", op->cast.dst_dtype);
}

static int check_table(const struct op *op, int64_t rows, int64_t cols, const char *name, int64_t table_rows,
        enum dtype dtype)
{
	int rc = check_fields(op,
	        (struct field[]){{"rows", rows, 1}, {"cols", cols, 1}, {name, table_rows, 1}, {NULL, 0, 0}});

	return rc ? rc : check_dtype(op, "dtype", dtype);
}

static int check_cross_entropy(const struct op *op)
{
	const struct op_cross_entropy *p = &op->cross_entropy;
	int rc = check_fields(
	        op, (struct field[]){{"rows", p->rows, 1}, {"vocab", p->vocab, 1}, {NULL, 0, 0}});

	return rc ? rc : check_dtype(op, "dlogits_dtype", p->dlogits_dtype);
}

static int check_colsum(const struct op *op)
{
	const struct op_colsum *p = &op->colsum;
	int rc = check_fields(op, (struct field[]){{"rows", p->rows, 1}, {"cols", p->cols, 1},
	                                  {"x_stride", p->x_stride, p->cols}, {NULL, 0, 0}});

	return rc ? rc : check_dtype(op, "dtype", p->dtype);
}

static int check_adamw(const struct op *op)
{
	const struct op_adamw *p = &op->adamw;
	int rc = check_fields(op, (struct field[]){{"count", p->count, 1}, {"first", p->first, 0},
	                                  {"tensor", p->tensor, 0}, {NULL, 0, 0}});

	if (!rc)
		rc = check_dtype(op, "grad_dtype", p->grad_dtype);
	if (!rc && (unsigned)p->state >= ADAMW_STATE_COUNT)
		return err_set(ERR_RANGE, "adamw: state is %d", (int)p->state);
	if (!rc && adamw_state_has_scales(p->state) && p->first % ADAMW_BLOCK)
		return err_set(ERR_RANGE, "adamw: first is %" PRId64 ", must be a multiple of %d", p->first,
		        ADAMW_BLOCK);
	return rc;
}

/* Everything but the addresses. */
static int check_scalars(const struct op *op)
{
	struct op_attention attention;

	switch (op->kind) {
	case OP_FILL:
		return check_flat(op, "bytes", op->fill.bytes, DTYPE_F32);
	case OP_COPY:
		return check_flat(op, "bytes", op->copy.bytes, DTYPE_F32);
	case OP_CAST:
		return check_cast(op);
	case OP_JOIN:
		return check_flat(op, "count", op->join.count, DTYPE_F32);
	case OP_ADD:
		return check_flat(op, "count", op->add.count, op->add.dtype);
	case OP_MATMUL:
		return check_matmul(op);
	case OP_COLSUM:
		return check_colsum(op);
	case OP_GATHER:
		return check_table(op, op->gather.rows, op->gather.cols, "table_rows", op->gather.table_rows,
		        op->gather.dtype);
	case OP_SCATTER:
		return check_table(op, op->scatter.rows, op->scatter.cols, "out_rows", op->scatter.out_rows,
		        op->scatter.dtype);
	case OP_EMBED_GRAD:
		return check_table(op, op->embed_grad.rows, op->embed_grad.cols, "table_rows",
		        op->embed_grad.table_rows, op->embed_grad.dtype);
	case OP_RMSNORM:
	case OP_LAYERNORM:
		return check_norm(op, NORM_SHAPE(&op->norm), op->norm.dtype);
	case OP_RMSNORM_GRAD:
	case OP_LAYERNORM_GRAD:
		return check_norm(op, NORM_SHAPE(&op->norm_grad), op->norm_grad.dtype);
	case OP_ROPE:
		return check_rope(op);
	case OP_ATTENTION:
		return check_attention(op, &op->attention);
	case OP_ATTENTION_GRAD:
		attention = attention_shape_of(&op->attention_grad);
		return check_attention(op, &attention);
	case OP_GLU:
		return check_act_op(op, op->glu.act, op->glu.count, op->glu.dtype);
	case OP_GLU_GRAD:
		return check_act_op(op, op->glu_grad.act, op->glu_grad.count, op->glu_grad.dtype);
	case OP_ACT:
		return check_act_op(op, op->act.act, op->act.count, op->act.dtype);
	case OP_ACT_GRAD:
		return check_act_op(op, op->act_grad.act, op->act_grad.count, op->act_grad.dtype);
	case OP_CROSS_ENTROPY:
		return check_cross_entropy(op);
	case OP_SUMSQ:
		return check_flat(op, "count", op->sumsq.count, op->sumsq.dtype);
	case OP_CAST_SUMSQ:
		return check_flat(op, "count", op->cast_sumsq.count, DTYPE_F32);
	case OP_ADAMW:
		return check_adamw(op);
	default:
		return err_set(ERR_RANGE, "op kind %d does not exist", (int)op->kind);
	}
}

/* What an op writes that may stand in the very place of what it reads: from the same address on. */
static const struct {
	enum op_kind kind;
	const char *written, *read;
} in_place[] = {
        {OP_ADD, "dst", "a"},
        {OP_ADD, "dst", "b"},
        {OP_RMSNORM_GRAD, "dx", "dy"},
        {OP_LAYERNORM_GRAD, "dx", "dy"},
        {OP_GLU_GRAD, "dgate", "gate"},
        {OP_GLU_GRAD, "dup", "up"},
        {OP_GLU_GRAD, "dup", "dout"},
        {OP_ACT, "out", "x"},
        {OP_ACT_GRAD, "dx", "dout"},
        {OP_ACT_GRAD, "dx", "x"},
        {OP_CROSS_ENTROPY, "dlogits", "logits"},
};

static int is_in_place(const struct op *op, const struct operand *written, const struct operand *read)
{
	const struct op_norm_grad *n = &op->norm_grad;
	int is_norm = op->kind == OP_RMSNORM_GRAD || op->kind == OP_LAYERNORM_GRAD;

	if (written->base.value != read->base.value)
		return 0;
	if (is_norm &&
	        (n->accumulate_dx || n->x_stride != n->y_stride || n->x_group_stride != n->y_group_stride))
		return 0;
	for (size_t i = 0; i < sizeof(in_place) / sizeof(in_place[0]); i++)
		if (in_place[i].kind == op->kind && !strcmp(in_place[i].written, written->name) &&
		        !strcmp(in_place[i].read, read->name))
			return 1;
	return 0;
}

/* Operands with gaps may lie in each other's gaps (q, k and v of one projection): those are not compared. */
static int overlap(const struct operand *a, const struct operand *b)
{
	if (dev_is_none(a->base) || dev_is_none(b->base) || a->has_gaps || b->has_gaps)
		return 0;
	return a->base.value - b->base.value < (uint64_t)b->bytes ||
	       b->base.value - a->base.value < (uint64_t)a->bytes;
}

static int check_overlaps(const struct op *op, const struct operand *o, int count)
{
	for (int i = 0; i < count; i++)
		for (int j = 0; j < count; j++) {
			if (i == j || !(o[i].use & OPERAND_WRITE) || !overlap(&o[i], &o[j]))
				continue;
			if (!is_in_place(op, &o[i], &o[j]) && !is_in_place(op, &o[j], &o[i]))
				return err_set(ERR_RANGE, "%s: %s, which is written, overlaps %s",
				        op_name(op->kind), o[i].name, o[j].name);
		}
	return 0;
}

int op_check(const struct op *op)
{
	struct operand o[OPERAND_MAX];
	int rc = check_scalars(op), count;

	if (rc)
		return rc;
	count = op_operands(op, o);
	for (int i = 0; i < count; i++) {
		if (dev_is_none(o[i].base) && !o[i].optional)
			return err_set(ERR_RANGE, "%s: %s has no address", op_name(op->kind), o[i].name);
		if (o[i].base.value % (uint64_t)o[i].align_bytes)
			return err_set(ERR_RANGE,
			        "%s: %s is not aligned to its elements of %" PRId64 " bytes",
			        op_name(op->kind), o[i].name, o[i].align_bytes);
	}
	return check_overlaps(op, o, count);
}
