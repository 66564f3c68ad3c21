/* Builds the graphs of attention for cuDNN. */
#include "gpu/cuda_dnn_graph.h"

#ifdef FERRY_CUDNN

struct builder {
	struct dnn_graph *g;
	const struct dnn_sort *s;
	struct dnn_shape scores, row, one; /* [documents, heads, tokens, tokens], [.., tokens, 1], a number */
};

/* A document ends with its last row or, if heads are farther apart than rows, with its last head. */
static struct dnn_shape shape_of(
        int64_t documents, int64_t heads, int64_t rows, int64_t cols, int64_t head_stride, int64_t row_stride)
{
	int64_t whole = rows * row_stride > heads * head_stride ? rows * row_stride : heads * head_stride;

	return (struct dnn_shape){{documents, heads, rows, cols}, {whole, head_stride, row_stride, 1}};
}

static dnn_tensor memory(struct builder *b, cudnnDataType_t type, struct dnn_shape shape, int64_t uid)
{
	return dnn_tensor_add(b->g, DNN_MEMORY, type, shape, uid, type == CUDNN_DATA_BFLOAT16 ? 16 : 4);
}

static dnn_tensor between(struct builder *b, cudnnDataType_t type, struct dnn_shape shape)
{
	return dnn_tensor_add(b->g, DNN_VIRTUAL, type, shape, 0, 16);
}

static dnn_tensor value(struct builder *b, cudnnDataType_t type, int64_t uid)
{
	return dnn_tensor_add(b->g, DNN_VALUE, type, b->one, uid, 4);
}

static dnn_tensor pointwise(
        struct builder *b, cudnnPointwiseMode_t mode, struct dnn_shape shape, dnn_tensor x, dnn_tensor y)
{
	dnn_tensor out = between(b, CUDNN_DATA_FLOAT, shape);

	dnn_pointwise(b->g, mode, out, x, y, NULL, CUDNN_DATA_FLOAT, -1);
	return out;
}

/* Shapes of q, k, v and tensors with their layout. Transposed: [.., head_dim, tokens] of the same memory. */
static struct dnn_shape q_shape(const struct dnn_sort *s)
{
	return shape_of(s->documents, s->heads, s->tokens, s->head_dim, s->q_head_stride, s->qkv_stride);
}

static struct dnn_shape kv_shape(const struct dnn_sort *s)
{
	return shape_of(s->documents, s->kv_heads, s->tokens, s->head_dim, s->kv_head_stride, s->qkv_stride);
}

static struct dnn_shape out_shape(const struct dnn_sort *s)
{
	return shape_of(s->documents, s->heads, s->tokens, s->head_dim, s->head_dim, s->out_stride);
}

static struct dnn_shape transposed(struct dnn_shape shape)
{
	struct dnn_shape t = shape;

	t.dims[2] = shape.dims[3], t.dims[3] = shape.dims[2];
	t.strides[2] = shape.strides[3], t.strides[3] = shape.strides[2];
	return t;
}

static struct dnn_shape lse_shape(const struct dnn_sort *s)
{
	return shape_of(s->documents, s->heads, s->tokens, 1, 1, s->lse_stride);
}

static dnn_tensor index_of(struct builder *b, dnn_tensor scores, int64_t axis)
{
	dnn_tensor out = between(b, CUDNN_DATA_INT32, b->scores);

	dnn_pointwise(b->g, CUDNN_POINTWISE_GEN_INDEX, out, scores, NULL, NULL, CUDNN_DATA_INT32, axis);
	return out;
}

/* Keeps scores where high >= low (or >, as `compare` says); other scores become `masked`, which softmax
 * ignores. */
static dnn_tensor keep_where(struct builder *b, dnn_tensor scores, dnn_tensor masked,
        cudnnPointwiseMode_t compare, dnn_tensor high, dnn_tensor low)
{
	dnn_tensor keep = between(b, CUDNN_DATA_BOOLEAN, b->scores),
	           out = between(b, CUDNN_DATA_FLOAT, b->scores);

	dnn_pointwise(b->g, compare, keep, high, low, NULL, CUDNN_DATA_BOOLEAN, -1);
	dnn_pointwise(b->g, CUDNN_POINTWISE_BINARY_SELECT, out, scores, masked, keep, CUDNN_DATA_FLOAT, -1);
	return out;
}

static dnn_tensor masked_scores(struct builder *b, dnn_tensor scores)
{
	dnn_tensor masked = value(b, CUDNN_DATA_FLOAT, UID_MASKED);
	dnn_tensor row = index_of(b, scores, 2), col = index_of(b, scores, 3), shifted;

	scores = keep_where(b, scores, masked, CUDNN_POINTWISE_CMP_GE, row, col);
	if (b->s->window > 0) {
		shifted = between(b, CUDNN_DATA_INT32, b->scores);
		dnn_pointwise(b->g, CUDNN_POINTWISE_ADD, shifted, col, value(b, CUDNN_DATA_INT32, UID_WINDOW),
		        NULL, CUDNN_DATA_INT32, -1);
		scores = keep_where(b, scores, masked, CUDNN_POINTWISE_CMP_GT, shifted, row);
	}
	return scores;
}

/* q k' scale, masked; k transposed. */
static dnn_tensor scores_of(struct builder *b, dnn_tensor q, dnn_tensor k)
{
	dnn_tensor raw = between(b, CUDNN_DATA_FLOAT, b->scores), scaled;

	dnn_matmul(b->g, raw, q, k);
	scaled = pointwise(b, CUDNN_POINTWISE_MUL, b->scores, raw, value(b, CUDNN_DATA_FLOAT, UID_SCALE));
	return masked_scores(b, scaled);
}

static dnn_tensor reduced(struct builder *b, cudnnReduceTensorOp_t op, dnn_tensor x)
{
	dnn_tensor out = between(b, CUDNN_DATA_FLOAT, b->row);

	dnn_reduce(b->g, op, out, x);
	return out;
}

static void forward(struct builder *b)
{
	const struct dnn_sort *s = b->s;
	const cudnnDataType_t bf16 = CUDNN_DATA_BFLOAT16, f32 = CUDNN_DATA_FLOAT;
	dnn_tensor q = memory(b, bf16, q_shape(s), UID_Q),
	           k = memory(b, bf16, transposed(kv_shape(s)), UID_K),
	           v = memory(b, bf16, kv_shape(s), UID_V), out = memory(b, bf16, out_shape(s), UID_OUT),
	           lse = memory(b, f32, lse_shape(s), UID_LSE), p = between(b, bf16, b->scores);
	dnn_tensor scores = scores_of(b, q, k), high = reduced(b, CUDNN_REDUCE_TENSOR_MAX, scores);
	dnn_tensor e = pointwise(b, CUDNN_POINTWISE_EXP, b->scores,
	        pointwise(b, CUDNN_POINTWISE_SUB, b->scores, scores, high), NULL);
	dnn_tensor sum = reduced(b, CUDNN_REDUCE_TENSOR_ADD, e);

	dnn_pointwise(b->g, CUDNN_POINTWISE_ADD, lse, high,
	        pointwise(b, CUDNN_POINTWISE_LOG, b->row, sum, NULL), NULL, f32, -1);
	dnn_pointwise(b->g, CUDNN_POINTWISE_DIV, p, e, sum, NULL, f32, -1);
	dnn_matmul(b->g, out, p, v);
}

/* x' of a tensor of scores, as the first factor of a product. */
static dnn_tensor turned(struct builder *b, dnn_tensor x)
{
	dnn_tensor out = between(b, CUDNN_DATA_BFLOAT16, transposed(b->scores));

	dnn_reshape(b->g, out, x);
	return out;
}

/* The sum over the query heads that share a kv head. */
static void product_of_groups(struct builder *b, dnn_tensor out, dnn_tensor left, dnn_tensor right)
{
	const struct dnn_sort *s = b->s;
	dnn_tensor full;

	if (s->heads == s->kv_heads) {
		dnn_matmul(b->g, out, left, right);
		return;
	}
	full = between(b, CUDNN_DATA_BFLOAT16,
	        shape_of(s->documents, s->heads, s->tokens, s->head_dim, s->tokens * s->head_dim,
	                s->head_dim));
	dnn_matmul(b->g, full, left, right);
	dnn_reduce(b->g, CUDNN_REDUCE_TENSOR_ADD, out, full);
}

/* Dao 2023: P from lse, dV = P' dO, dS = P (dO V' - delta) scale, dK = dS' Q, dQ = dS K; delta the row sums
 * of dO O. dQ is one product over all columns, so engines that add to it block by block in any order do not
 * accept the graph. A multiplication by one writes delta to memory, because engines look for this form. */
static void backward(struct builder *b)
{
	const struct dnn_sort *s = b->s;
	const cudnnDataType_t bf16 = CUDNN_DATA_BFLOAT16, f32 = CUDNN_DATA_FLOAT;
	dnn_tensor q = memory(b, bf16, q_shape(s), UID_Q),
	           k = memory(b, bf16, transposed(kv_shape(s)), UID_K),
	           v = memory(b, bf16, transposed(kv_shape(s)), UID_V),
	           out = memory(b, bf16, out_shape(s), UID_OUT),
	           dout = memory(b, bf16, out_shape(s), UID_DOUT),
	           lse = memory(b, f32, lse_shape(s), UID_LSE), dq = memory(b, bf16, q_shape(s), UID_DQ),
	           dk = memory(b, bf16, kv_shape(s), UID_DK), dv = memory(b, bf16, kv_shape(s), UID_DV),
	           delta = memory(b, f32, b->row, UID_DELTA);
	struct dnn_shape flat = shape_of(
	        s->documents, s->heads, s->tokens, s->head_dim, s->tokens * s->head_dim, s->head_dim);
	dnn_tensor p, dp, ds, k_plain;

	dnn_pointwise(b->g, CUDNN_POINTWISE_MUL, delta,
	        reduced(b, CUDNN_REDUCE_TENSOR_ADD, pointwise(b, CUDNN_POINTWISE_MUL, flat, dout, out)),
	        value(b, f32, UID_ONE), NULL, f32, -1);
	p = pointwise(b, CUDNN_POINTWISE_EXP, b->scores,
	        pointwise(b, CUDNN_POINTWISE_SUB, b->scores, scores_of(b, q, k), lse), NULL);
	product_of_groups(b, dv, turned(b, p), dout);
	dp = between(b, f32, b->scores);
	dnn_matmul(b->g, dp, dout, v);
	ds = pointwise(b, CUDNN_POINTWISE_MUL, b->scores,
	        pointwise(b, CUDNN_POINTWISE_SUB, b->scores, dp, delta), p);
	ds = pointwise(b, CUDNN_POINTWISE_MUL, b->scores, ds, value(b, f32, UID_SCALE));
	product_of_groups(b, dk, turned(b, ds), q);
	k_plain = between(b, bf16, kv_shape(s));
	dnn_reshape(b->g, k_plain, k);
	dnn_matmul(b->g, dq, ds, k_plain);
}

int dnn_sort_plan(struct dnn_plan *plan, const struct cudnn *f, const struct dnn_sort *s,
        const struct dnn_target *target, int64_t workspace_bytes_max)
{
	struct dnn_graph g = {.f = f};
	struct builder b = {.g = &g, .s = s};
	int rc;

	b.scores = shape_of(s->documents, s->heads, s->tokens, s->tokens, s->tokens * s->tokens, s->tokens);
	b.row = shape_of(s->documents, s->heads, s->tokens, 1, s->tokens, 1);
	b.one = shape_of(1, 1, 1, 1, 1, 1);
	if (s->is_grad)
		backward(&b);
	else
		forward(&b);
	rc = dnn_plan_open(plan, &g, target, workspace_bytes_max);
	dnn_graph_close(&g);
	return rc;
}

#endif
