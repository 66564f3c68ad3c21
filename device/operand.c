#include "device/operand.h"

#include <assert.h>

struct builder {
	struct operand *list;
	int count;
};

/* Sizes saturate: what does not fit 63 bits lies outside every arena, and is refused there. */
static int64_t times(int64_t a, int64_t b)
{
	int64_t r;

	return __builtin_mul_overflow(a, b, &r) ? INT64_MAX : r;
}

static int64_t plus(int64_t a, int64_t b)
{
	int64_t r;

	return __builtin_add_overflow(a, b, &r) ? INT64_MAX : r;
}

/* rows x groups x cols elements; row r, group g starts at r * stride + g * group_stride. */
struct layout {
	int64_t rows, stride, groups, group_stride, cols;
};

static struct operand *put(struct builder *b, const char *name, dev_addr base, enum operand_use use,
        int64_t element_bytes, struct layout l)
{
	struct operand *o = &b->list[b->count++];
	int64_t span = plus(plus(times(l.rows - 1, l.stride), times(l.groups - 1, l.group_stride)), l.cols);

	assert(b->count <= OPERAND_MAX);
	*o = (struct operand){.name = name,
	        .base = base,
	        .bytes = times(span, element_bytes),
	        .dense_bytes = times(times(times(l.rows, l.groups), l.cols), element_bytes),
	        .align_bytes = element_bytes,
	        .use = use};
	o->has_gaps = o->dense_bytes != o->bytes;
	return o;
}

static struct operand *put_flat(struct builder *b, const char *name, dev_addr base, enum operand_use use,
        int64_t element_bytes, int64_t count)
{
	return put(b, name, base, use, element_bytes, (struct layout){1, 0, 1, 0, count});
}

static struct operand *put_rows(struct builder *b, const char *name, dev_addr base, enum operand_use use,
        int64_t element_bytes, int64_t rows, int64_t stride, int64_t cols)
{
	return put(b, name, base, use, element_bytes, (struct layout){rows, stride, 1, 0, cols});
}

/* A table of which the op moves only used_rows rows. */
static void put_table(struct builder *b, const char *name, dev_addr base, enum operand_use use,
        int64_t element_bytes, int64_t table_rows, int64_t used_rows, int64_t cols)
{
	struct operand *o = put_rows(b, name, base, use, element_bytes, table_rows, cols, cols);

	if (used_rows < table_rows)
		o->dense_bytes = times(times(used_rows, cols), element_bytes);
}

static enum operand_use use_written(int accumulate)
{
	return accumulate ? OPERAND_UPDATE : OPERAND_WRITE;
}

static void matmul_operands(struct builder *b, const struct op_matmul *p)
{
	int64_t e = dtype_bytes(p->ab_dtype);
	int a_turned = p->a_layout == MATMUL_TRANSPOSED, b_turned = p->b_layout == MATMUL_TRANSPOSED;

	put_rows(b, "c", p->c, use_written(p->accumulate), dtype_bytes(p->c_dtype), p->m, p->c_stride, p->n);
	put_rows(b, "a", p->a, OPERAND_READ, e, a_turned ? p->k : p->m, p->a_stride, a_turned ? p->m : p->k);
	put_rows(b, "b", p->b, OPERAND_READ, e, b_turned ? p->n : p->k, p->b_stride, b_turned ? p->k : p->n);
	put_flat(b, "bias", p->bias, OPERAND_READ, e, p->n)->optional = 1;
}

static void embed_grad_operands(struct builder *b, const struct op_embed_grad *p)
{
	put_table(b, "grad", p->grad, OPERAND_UPDATE, 4, p->table_rows, p->rows, p->cols);
	put_flat(b, "dy", p->dy, OPERAND_READ, dtype_bytes(p->dtype), times(p->rows, p->cols));
	put_flat(b, "index", p->index, OPERAND_READ, 4, p->rows);
	put_flat(b, "scratch", p->scratch, OPERAND_WRITE, 4, plus(plus(p->rows, p->table_rows), 1));
}

static void norm_operands(struct builder *b, const struct op_norm *p, int is_layer)
{
	struct layout x = {p->rows, p->x_stride, p->groups, p->x_group_stride, p->cols};
	struct layout y = {p->rows, p->y_stride, p->groups, p->y_group_stride, p->cols};
	int64_t e = dtype_bytes(p->dtype);

	put(b, "y", p->y, OPERAND_WRITE, e, y);
	put(b, "x", p->x, OPERAND_READ, e, x);
	put_flat(b, "weight", p->weight, OPERAND_READ, e, p->cols);
	put_flat(b, "rstd", p->rstd, OPERAND_WRITE, 4, times(p->rows, p->groups));
	if (!is_layer)
		return;
	put_flat(b, "bias", p->bias, OPERAND_READ, e, p->cols)->optional = 1;
	put_flat(b, "mean", p->mean, OPERAND_WRITE, 4, times(p->rows, p->groups));
}

static void norm_grad_operands(struct builder *b, const struct op_norm_grad *p, int is_layer)
{
	struct layout x = {p->rows, p->x_stride, p->groups, p->x_group_stride, p->cols};
	struct layout y = {p->rows, p->y_stride, p->groups, p->y_group_stride, p->cols};
	int64_t e = dtype_bytes(p->dtype);

	put(b, "dx", p->dx, use_written(p->accumulate_dx), e, x);
	put_flat(b, "dweight", p->dweight, OPERAND_UPDATE, 4, p->cols);
	put(b, "dy", p->dy, OPERAND_READ, e, y);
	put(b, "x", p->x, OPERAND_READ, e, x);
	put_flat(b, "weight", p->weight, OPERAND_READ, e, p->cols);
	put_flat(b, "rstd", p->rstd, OPERAND_READ, 4, times(p->rows, p->groups));
	put_flat(b, "scratch", p->scratch, OPERAND_WRITE, 4, norm_scratch_count(p->rows, p->groups, p->cols));
	if (!is_layer)
		return;
	put_flat(b, "dbias", p->dbias, OPERAND_UPDATE, 4, p->cols)->optional = 1;
	put_flat(b, "mean", p->mean, OPERAND_READ, 4, times(p->rows, p->groups));
}

static void attention_operands(struct builder *b, const struct op_attention *p)
{
	struct layout q = {p->tokens, p->qkv_stride, p->heads, p->q_head_stride, p->head_dim};
	struct layout kv = {p->tokens, p->qkv_stride, p->kv_heads, p->kv_head_stride, p->head_dim};
	int64_t e = dtype_bytes(p->dtype);

	put_rows(b, "out", p->out, OPERAND_WRITE, e, p->tokens, p->out_stride, times(p->heads, p->head_dim));
	put_flat(b, "lse", p->lse, OPERAND_WRITE, 4, times(p->tokens, p->heads));
	put(b, "q", p->q, OPERAND_READ, e, q);
	put(b, "k", p->k, OPERAND_READ, e, kv);
	put(b, "v", p->v, OPERAND_READ, e, kv);
	put_flat(b, "doc_start", p->doc_start, OPERAND_READ, 4, p->tokens);
	put_flat(b, "doc_end", p->doc_end, OPERAND_READ, 4, p->tokens);
}

static void attention_grad_operands(struct builder *b, const struct op_attention_grad *p)
{
	struct layout q = {p->tokens, p->qkv_stride, p->heads, p->q_head_stride, p->head_dim};
	struct layout kv = {p->tokens, p->qkv_stride, p->kv_heads, p->kv_head_stride, p->head_dim};
	int64_t e = dtype_bytes(p->dtype), cols = times(p->heads, p->head_dim);

	put(b, "dq", p->dq, OPERAND_WRITE, e, q);
	put(b, "dk", p->dk, OPERAND_WRITE, e, kv);
	put(b, "dv", p->dv, OPERAND_WRITE, e, kv);
	put_rows(b, "dout", p->dout, OPERAND_READ, e, p->tokens, p->out_stride, cols);
	put_rows(b, "out", p->out, OPERAND_READ, e, p->tokens, p->out_stride, cols);
	put_flat(b, "lse", p->lse, OPERAND_READ, 4, times(p->tokens, p->heads));
	put(b, "q", p->q, OPERAND_READ, e, q);
	put(b, "k", p->k, OPERAND_READ, e, kv);
	put(b, "v", p->v, OPERAND_READ, e, kv);
	put_flat(b, "doc_start", p->doc_start, OPERAND_READ, 4, p->tokens);
	put_flat(b, "doc_end", p->doc_end, OPERAND_READ, 4, p->tokens);
	put_flat(b, "scratch", p->scratch, OPERAND_WRITE, 4,
	        attention_scratch_count(p->tokens, p->heads, p->head_dim));
}

static void cross_entropy_operands(struct builder *b, const struct op_cross_entropy *p)
{
	int64_t count = times(p->rows, p->vocab);

	put_flat(b, "loss", p->loss, OPERAND_WRITE, 4, p->rows);
	put_flat(b, "logits", p->logits, OPERAND_READ, 4, count);
	put_flat(b, "label", p->label, OPERAND_READ, 4, p->rows);
	put_flat(b, "dlogits", p->dlogits, OPERAND_WRITE, dtype_bytes(p->dlogits_dtype), count)->optional = 1;
	put_flat(b, "scratch", p->scratch, OPERAND_WRITE, 4, cross_entropy_scratch_count(p->rows));
}

static void adamw_operands(struct builder *b, const struct op_adamw *p)
{
	put_flat(b, "hi", p->hi, OPERAND_UPDATE, 2, p->count);
	put_flat(b, "lo", p->lo, OPERAND_UPDATE, 2, p->count);
	put_flat(b, "m", p->m, OPERAND_UPDATE, adamw_state_bytes(p->state), p->count);
	put_flat(b, "v", p->v, OPERAND_UPDATE, adamw_state_bytes(p->state), p->count);
	if (adamw_state_has_scales(p->state)) {
		put_flat(b, "m_scale", p->m_scale, OPERAND_UPDATE, 4, (p->count - 1) / ADAMW_BLOCK + 1);
		put_flat(b, "v_scale", p->v_scale, OPERAND_UPDATE, 4, (p->count - 1) / ADAMW_BLOCK + 1);
	}
	put_flat(b, "grad", p->grad, OPERAND_READ, dtype_bytes(p->grad_dtype), p->count);
}

/* Ops whose operands are flat arrays or rows. */
static void simple_operands(struct builder *b, const struct op *op)
{
	switch (op->kind) {
	case OP_FILL:
		put_flat(b, "dst", op->fill.dst, OPERAND_WRITE, 1, op->fill.bytes);
		break;
	case OP_COPY:
		put_flat(b, "dst", op->copy.dst, OPERAND_WRITE, 1, op->copy.bytes);
		put_flat(b, "src", op->copy.src, OPERAND_READ, 1, op->copy.bytes);
		break;
	case OP_CAST:
		put_flat(b, "dst", op->cast.dst, OPERAND_WRITE, dtype_bytes(op->cast.dst_dtype),
		        op->cast.count);
		put_flat(b, "src", op->cast.src, OPERAND_READ, dtype_bytes(op->cast.src_dtype),
		        op->cast.count);
		break;
	case OP_JOIN:
		put_flat(b, "dst", op->join.dst, OPERAND_WRITE, 4, op->join.count);
		put_flat(b, "hi", op->join.hi, OPERAND_READ, 2, op->join.count);
		put_flat(b, "lo", op->join.lo, OPERAND_READ, 2, op->join.count);
		break;
	case OP_ADD:
		put_flat(b, "dst", op->add.dst, OPERAND_WRITE, dtype_bytes(op->add.dtype), op->add.count);
		put_flat(b, "a", op->add.a, OPERAND_READ, dtype_bytes(op->add.dtype), op->add.count);
		put_flat(b, "b", op->add.b, OPERAND_READ, dtype_bytes(op->add.dtype), op->add.count);
		break;
	case OP_COLSUM:
		put_flat(b, "sum", op->colsum.sum, OPERAND_UPDATE, 4, op->colsum.cols);
		put_rows(b, "x", op->colsum.x, OPERAND_READ, dtype_bytes(op->colsum.dtype), op->colsum.rows,
		        op->colsum.x_stride, op->colsum.cols);
		break;
	case OP_SUMSQ:
		put_flat(
		        b, "partial", op->sumsq.partial, OPERAND_WRITE, 8, (op->sumsq.count - 1) / 65536 + 1);
		put_flat(b, "x", op->sumsq.x, OPERAND_READ, dtype_bytes(op->sumsq.dtype), op->sumsq.count);
		break;
	case OP_CAST_SUMSQ:
		put_flat(b, "dst", op->cast_sumsq.dst, OPERAND_WRITE, 2, op->cast_sumsq.count);
		put_flat(b, "partial", op->cast_sumsq.partial, OPERAND_WRITE, 8,
		        (op->cast_sumsq.count - 1) / 65536 + 1);
		put_flat(b, "src", op->cast_sumsq.src, OPERAND_READ, 4, op->cast_sumsq.count);
		break;
	default:
		assert(!"an op without operands");
	}
}

static void table_operands(struct builder *b, const struct op *op)
{
	if (op->kind == OP_GATHER) {
		const struct op_gather *p = &op->gather;
		int64_t e = dtype_bytes(p->dtype);

		put_flat(b, "out", p->out, use_written(p->accumulate), e, times(p->rows, p->cols));
		put_table(b, "table", p->table, OPERAND_READ, e, p->table_rows, p->rows, p->cols);
		put_flat(b, "index", p->index, OPERAND_READ, 4, p->rows);
	} else if (op->kind == OP_SCATTER) {
		const struct op_scatter *p = &op->scatter;
		int64_t e = dtype_bytes(p->dtype);

		put_table(b, "out", p->out, OPERAND_WRITE, e, p->out_rows, p->rows, p->cols);
		put_flat(b, "x", p->x, OPERAND_READ, e, times(p->rows, p->cols));
		put_flat(b, "index", p->index, OPERAND_READ, 4, p->rows);
	} else { /* OP_ROPE */
		const struct op_rope *p = &op->rope;

		put(b, "x", p->x, OPERAND_UPDATE, dtype_bytes(p->dtype),
		        (struct layout){p->tokens, p->stride, p->heads, p->head_stride, p->rotary});
		put_table(b, "table", p->table, OPERAND_READ, 4, p->table_rows, p->tokens, p->rotary);
		put_flat(b, "position", p->position, OPERAND_READ, 4, p->tokens);
	}
}

static void act_operands(struct builder *b, const struct op *op)
{
	const struct op_glu *glu = &op->glu;
	const struct op_glu_grad *glu_grad = &op->glu_grad;
	const struct op_act *act = &op->act;
	const struct op_act_grad *act_grad = &op->act_grad;

	if (op->kind == OP_GLU) {
		put_flat(b, "out", glu->out, OPERAND_WRITE, dtype_bytes(glu->dtype), glu->count);
		put_flat(b, "gate", glu->gate, OPERAND_READ, dtype_bytes(glu->dtype), glu->count);
		put_flat(b, "up", glu->up, OPERAND_READ, dtype_bytes(glu->dtype), glu->count);
	} else if (op->kind == OP_GLU_GRAD) {
		int64_t e = dtype_bytes(glu_grad->dtype);

		put_flat(b, "dgate", glu_grad->dgate, OPERAND_WRITE, e, glu_grad->count);
		put_flat(b, "dup", glu_grad->dup, OPERAND_WRITE, e, glu_grad->count);
		put_flat(b, "dout", glu_grad->dout, OPERAND_READ, e, glu_grad->count);
		put_flat(b, "gate", glu_grad->gate, OPERAND_READ, e, glu_grad->count);
		put_flat(b, "up", glu_grad->up, OPERAND_READ, e, glu_grad->count);
	} else if (op->kind == OP_ACT) {
		put_flat(b, "out", act->out, OPERAND_WRITE, dtype_bytes(act->dtype), act->count);
		put_flat(b, "x", act->x, OPERAND_READ, dtype_bytes(act->dtype), act->count);
	} else { /* OP_ACT_GRAD */
		int64_t e = dtype_bytes(act_grad->dtype);

		put_flat(b, "dx", act_grad->dx, OPERAND_WRITE, e, act_grad->count);
		put_flat(b, "dout", act_grad->dout, OPERAND_READ, e, act_grad->count);
		put_flat(b, "x", act_grad->x, OPERAND_READ, e, act_grad->count);
	}
}

int op_operands(const struct op *op, struct operand *list)
{
	struct builder b = {list, 0};

	switch (op->kind) {
	case OP_MATMUL:
		matmul_operands(&b, &op->matmul);
		break;
	case OP_GATHER:
	case OP_SCATTER:
	case OP_ROPE:
		table_operands(&b, op);
		break;
	case OP_EMBED_GRAD:
		embed_grad_operands(&b, &op->embed_grad);
		break;
	case OP_RMSNORM:
	case OP_LAYERNORM:
		norm_operands(&b, &op->norm, op->kind == OP_LAYERNORM);
		break;
	case OP_RMSNORM_GRAD:
	case OP_LAYERNORM_GRAD:
		norm_grad_operands(&b, &op->norm_grad, op->kind == OP_LAYERNORM_GRAD);
		break;
	case OP_ATTENTION:
		attention_operands(&b, &op->attention);
		break;
	case OP_ATTENTION_GRAD:
		attention_grad_operands(&b, &op->attention_grad);
		break;
	case OP_GLU:
	case OP_GLU_GRAD:
	case OP_ACT:
	case OP_ACT_GRAD:
		act_operands(&b, op);
		break;
	case OP_CROSS_ENTROPY:
		cross_entropy_operands(&b, &op->cross_entropy);
		break;
	case OP_ADAMW:
		adamw_operands(&b, &op->adamw);
		break;
	default:
		simple_operands(&b, op);
	}
	return b.count;
}
