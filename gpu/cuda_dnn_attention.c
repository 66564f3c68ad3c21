/* Attention by cuDNN: its graphs, and which ops they serve. */
#include "gpu/cuda_dnn_attention.h"

#include "gpu/cuda_dnn.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "device/op.h"

#include <stdlib.h>
#include <string.h>

#ifdef FERRY_CUDNN

#include <float.h>
#include <inttypes.h>
#include <math.h>

/* The tensors that a plan is told the places of. */
enum {
	UID_Q = 1,
	UID_K,
	UID_V,
	UID_OUT,
	UID_LSE,
	UID_SCALE,
	UID_MASKED,
	UID_WINDOW,
	UID_DOUT,
	UID_DQ,
	UID_DK,
	UID_DV,
	UID_DELTA,
	UID_ONE,
	UID_END
};

/* What a graph is made from: `documents` of `tokens` each. No gaps: compared as bytes. */
struct sort {
	int64_t documents, tokens, heads, kv_heads, head_dim, window, qkv_stride, q_head_stride,
	        kv_head_stride, out_stride;
	float scale;
	int32_t is_grad;
};

struct choice {
	struct sort sort;
	struct dnn_plan plan; /* .plan NULL: not for cuDNN */
};

struct cuda_dnn {
	struct cudnn f;
	cudnnHandle_t handle;
	void *workspace;
	int64_t workspace_bytes;
	struct choice *choices;
	int choice_count;
	/* what graphs are passed by value */
	float masked, one;
};

/* ---- graphs ---- */

struct builder {
	struct dnn_graph *g;
	const struct sort *s;
	struct dnn_shape scores, row, one; /* [documents, heads, tokens, tokens], [.., tokens, 1], a number */
};

/* A document ends where its last row does, or, where heads are apart, its last head. */
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

/* q, k, v and what has their layout. Transposed: [.., head_dim, tokens] of the same memory. */
static struct dnn_shape q_shape(const struct sort *s)
{
	return shape_of(s->documents, s->heads, s->tokens, s->head_dim, s->q_head_stride, s->qkv_stride);
}

static struct dnn_shape kv_shape(const struct sort *s)
{
	return shape_of(s->documents, s->kv_heads, s->tokens, s->head_dim, s->kv_head_stride, s->qkv_stride);
}

static struct dnn_shape out_shape(const struct sort *s)
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

static struct dnn_shape lse_shape(const struct sort *s)
{
	return shape_of(s->documents, s->heads, s->tokens, 1, 1, s->heads);
}

static dnn_tensor index_of(struct builder *b, dnn_tensor scores, int64_t axis)
{
	dnn_tensor out = between(b, CUDNN_DATA_INT32, b->scores);

	dnn_pointwise(b->g, CUDNN_POINTWISE_GEN_INDEX, out, scores, NULL, NULL, CUDNN_DATA_INT32, axis);
	return out;
}

/* scores where high >= low (or, strictly, >), otherwise what no softmax sees. */
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
	const struct sort *s = b->s;
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
	const struct sort *s = b->s;
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
 * of dO O. dQ is one product over all columns: engines that add to it block by block, in whatever order, do
 * not take such a graph. delta is written to memory by a multiplication by one, which is what engines look
 * for. */
static void backward(struct builder *b)
{
	const struct sort *s = b->s;
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

static int plan_make(struct dnn_plan *plan, const struct cudnn *f, const struct sort *s,
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

/* ---- open, close ---- */

/* A plan takes a second to make; each number of documents in a micro-batch is a sort of its own. */
enum { SORTS_MAX = 64 };

static int dnn_start(struct cuda_dnn *d)
{
	cudnnStatus_t status;
	int rc = cuda_library_bind(&d->f, sizeof(d->f), CUDA_LIBRARY_CUDNN);

	if (rc)
		return rc;
	status = d->f.cudnnCreate(&d->handle);
	if (status) {
		d->handle = NULL;
		return err_set(ERR_UNSUPPORTED, "cudnnCreate: %s", d->f.cudnnGetErrorString(status));
	}
	d->choices = mem_alloc(SORTS_MAX, sizeof(*d->choices));
	d->masked = d->f.cudnnGetVersion() >= 91000 ? -INFINITY : -FLT_MAX;
	d->one = 1;
	return d->choices ? 0 : ERR_NOMEM;
}

int cuda_dnn_open(struct cuda_dnn **dnn, void *workspace, int64_t workspace_bytes)
{
	const char *wish = getenv("FERRY_ATTENTION");
	struct cuda_dnn *d;
	int rc;

	*dnn = NULL;
	if (!wish || strcmp(wish, "cudnn"))
		return 0;
	d = mem_alloc(1, sizeof(*d));
	rc = d ? dnn_start(d) : ERR_NOMEM;
	if (rc) {
		cuda_dnn_close(d);
		if (rc == ERR_NOMEM)
			return rc;
		log_warn("FERRY_ATTENTION=cudnn: %s; attention runs on ferry's own kernels", err_text());
		return 0;
	}
	d->workspace = workspace;
	d->workspace_bytes = workspace_bytes;
	*dnn = d;
	return 0;
}

void cuda_dnn_close(struct cuda_dnn *dnn)
{
	if (!dnn)
		return;
	for (int i = 0; i < dnn->choice_count; i++)
		dnn_plan_close(&dnn->f, &dnn->choices[i].plan);
	if (dnn->handle)
		dnn->f.cudnnDestroy(dnn->handle);
	mem_free(dnn->choices);
	mem_free(dnn);
}

/* ---- ops ---- */

/* Both kinds of op, as one; what the forward op lacks is DEV_NONE. */
static struct op_attention_grad both(const struct op *op)
{
	const struct op_attention *o = &op->attention;

	if (op->kind == OP_ATTENTION_GRAD)
		return op->attention_grad;
	return (struct op_attention_grad){.out = o->out,
	        .lse = o->lse,
	        .q = o->q,
	        .k = o->k,
	        .v = o->v,
	        .tokens = o->tokens,
	        .documents = o->documents,
	        .document_tokens = o->document_tokens,
	        .heads = o->heads,
	        .kv_heads = o->kv_heads,
	        .head_dim = o->head_dim,
	        .window = o->window,
	        .qkv_stride = o->qkv_stride,
	        .q_head_stride = o->q_head_stride,
	        .kv_head_stride = o->kv_head_stride,
	        .out_stride = o->out_stride,
	        .sink = o->sink,
	        .scale = o->scale,
	        .score_cap = o->score_cap,
	        .mask = o->mask,
	        .dtype = o->dtype};
}

static struct sort sort_of(const struct op_attention_grad *o, enum op_kind kind)
{
	return (struct sort){.documents = o->documents,
	        .tokens = o->document_tokens,
	        .heads = o->heads,
	        .kv_heads = o->kv_heads,
	        .head_dim = o->head_dim,
	        .window = o->window > 0 && o->window < o->document_tokens ? o->window : 0,
	        .qkv_stride = o->qkv_stride,
	        .q_head_stride = o->q_head_stride,
	        .kv_head_stride = o->kv_head_stride,
	        .out_stride = o->out_stride,
	        .scale = (float)o->scale,
	        .is_grad = kind == OP_ATTENTION_GRAD};
}

/* Our graphs have one mask, and neither cap nor sink. */
static int has_graph(const struct op_attention_grad *o)
{
	return o->mask == MASK_CAUSAL && o->score_cap == 0 && dev_is_none(o->sink);
}

/* bf16, everything in 16 bytes, positions in int32; so many documents, none
 * longer, fill the micro-batch only where all are as long. */
static int is_taken(const struct op_attention_grad *o)
{
	int64_t filled;
	uint64_t addresses = o->q.value | o->k.value | o->v.value | o->out.value | o->dq.value | o->dk.value |
	                     o->dv.value | o->dout.value;

	if (__builtin_mul_overflow(o->documents, o->document_tokens, &filled) || filled != o->tokens)
		return 0;
	return has_graph(o) && o->dtype == DTYPE_BF16 && addresses % 16 == 0 && o->head_dim % 8 == 0 &&
	       o->qkv_stride % 8 == 0 && o->q_head_stride % 8 == 0 && o->kv_head_stride % 8 == 0 &&
	       o->out_stride % 8 == 0 && o->tokens < INT32_MAX / 2;
}

/* Of the op's scratch, delta takes the front; what is left of it, or the workspace, is cuDNN's. */
struct room {
	char *at;
	int64_t bytes;
};

static struct room room_of(const struct cuda_dnn *d, const struct op_attention_grad *o)
{
	const int64_t align_bytes = 256;
	int64_t front_bytes = (o->tokens * o->heads * 4 + align_bytes - 1) / align_bytes * align_bytes,
	        scratch_bytes = attention_scratch_count(o->tokens, o->heads, o->head_dim) * 4;
	uint64_t first =
	        (o->scratch.value + (uint64_t)front_bytes + align_bytes - 1) & ~(uint64_t)(align_bytes - 1);
	int64_t left_bytes = (int64_t)(o->scratch.value - first) + scratch_bytes;

	if (!dev_is_none(o->scratch) && left_bytes > d->workspace_bytes)
		return (struct room){(char *)(uintptr_t)first, left_bytes};
	return (struct room){d->workspace, d->workspace_bytes};
}

static int sort_is(const struct sort *a, const struct sort *b)
{
	return a->documents == b->documents && a->tokens == b->tokens && a->heads == b->heads &&
	       a->kv_heads == b->kv_heads && a->head_dim == b->head_dim && a->window == b->window &&
	       a->qkv_stride == b->qkv_stride && a->q_head_stride == b->q_head_stride &&
	       a->kv_head_stride == b->kv_head_stride && a->out_stride == b->out_stride &&
	       a->scale == b->scale && a->is_grad == b->is_grad;
}

static const struct choice *choice_of(struct cuda_dnn *d, const struct sort *s, int64_t room_bytes)
{
	const struct dnn_target target = {.handle = d->handle};
	struct choice *c;

	for (int i = 0; i < d->choice_count; i++)
		if (sort_is(&d->choices[i].sort, s))
			return &d->choices[i];
	if (d->choice_count == SORTS_MAX)
		return NULL;
	c = &d->choices[d->choice_count++];
	c->sort = *s;
	if (plan_make(&c->plan, &d->f, s, &target, room_bytes))
		log_warn("attention%s of %" PRId64 " documents of %" PRId64 " tokens, %" PRId64
		         " heads of %" PRId64 " runs on ferry's own kernel: %s",
		        s->is_grad ? ", backward," : "", s->documents, s->tokens, s->heads, s->head_dim,
		        err_text());
	return c;
}

struct places {
	int64_t uids[UID_END];
	void *at[UID_END];
	int count;
};

static void place(struct places *p, int64_t uid, const void *at)
{
	p->uids[p->count] = uid;
	p->at[p->count++] = (void *)(uintptr_t)at;
}

static void place_device(struct places *p, int64_t uid, dev_addr at)
{
	place(p, uid, (const void *)(uintptr_t)at.value);
}

static int run(const struct cuda_dnn *d, const struct choice *c, const struct places *p, void *workspace)
{
	const struct cudnn *f = &d->f;
	cudnnBackendDescriptor_t pack = NULL;
	cudnnStatus_t status = f->cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);

	if (!status)
		status = f->cudnnBackendSetAttribute(
		        pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, p->count, p->uids);
	if (!status)
		status = f->cudnnBackendSetAttribute(
		        pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, p->count, p->at);
	if (!status)
		status = f->cudnnBackendSetAttribute(
		        pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
	if (!status)
		status = f->cudnnBackendFinalize(pack);
	if (!status)
		status = f->cudnnBackendExecute(d->handle, c->plan.plan, pack);
	if (pack)
		f->cudnnBackendDestroyDescriptor(pack);
	return status ? err_set(ERR_DEVICE, "attention: cuDNN: %s", f->cudnnGetErrorString(status)) : 0;
}

int cuda_dnn_attention(struct cuda_dnn *dnn, const struct cuda_launch *at, const struct op *op)
{
	const struct op_attention_grad o = both(op);
	const struct sort s = sort_of(&o, op->kind);
	const int32_t window = (int32_t)s.window;
	struct places p = {.count = 0};
	const struct choice *c;
	struct room room;
	cudnnStatus_t status;

	if (!dnn || !is_taken(&o))
		return 1;
	room = room_of(dnn, &o);
	c = choice_of(dnn, &s, room.bytes);
	if (!c || !c->plan.plan || c->plan.workspace_bytes > room.bytes)
		return 1;
	place_device(&p, UID_Q, o.q);
	place_device(&p, UID_K, o.k);
	place_device(&p, UID_V, o.v);
	place_device(&p, UID_OUT, o.out);
	place_device(&p, UID_LSE, o.lse);
	place(&p, UID_SCALE, &s.scale);
	place(&p, UID_MASKED, &dnn->masked);
	if (window)
		place(&p, UID_WINDOW, &window);
	if (s.is_grad) {
		place_device(&p, UID_DOUT, o.dout);
		place_device(&p, UID_DQ, o.dq);
		place_device(&p, UID_DK, o.dk);
		place_device(&p, UID_DV, o.dv);
		place_device(&p, UID_DELTA, o.scratch);
		place(&p, UID_ONE, &dnn->one);
	}
	status = dnn->f.cudnnSetStream(dnn->handle, at->stream);
	if (status)
		return err_set(ERR_DEVICE, "cudnnSetStream: %s", dnn->f.cudnnGetErrorString(status));
	return run(dnn, c, &p, room.at);
}

int cuda_dnn_attention_plan(const struct op *op, const char *properties, int64_t *workspace_bytes)
{
	const struct dnn_target target = {.properties = properties};
	const struct op_attention_grad o = both(op);
	const struct sort s = sort_of(&o, op->kind);
	struct dnn_plan plan;
	struct cudnn f;
	int rc = cuda_library_bind(&f, sizeof(f), CUDA_LIBRARY_CUDNN);

	if (!rc && !has_graph(&o))
		rc = err_set(
		        ERR_UNSUPPORTED, "attention by cuDNN is causal and has neither score cap nor sink");
	if (!rc)
		rc = plan_make(&plan, &f, &s, &target, INT64_MAX);
	if (rc)
		return rc;
	*workspace_bytes = plan.workspace_bytes;
	dnn_plan_close(&f, &plan);
	return 0;
}

#else

int cuda_dnn_open(struct cuda_dnn **dnn, void *workspace, int64_t workspace_bytes)
{
	const char *wish = getenv("FERRY_ATTENTION");

	(void)workspace;
	(void)workspace_bytes;
	*dnn = NULL;
	if (wish && !strcmp(wish, "cudnn"))
		log_warn("FERRY_ATTENTION=cudnn: this build was made without cudnn.h");
	return 0;
}

void cuda_dnn_close(struct cuda_dnn *dnn)
{
	(void)dnn;
}

int cuda_dnn_attention(struct cuda_dnn *dnn, const struct cuda_launch *at, const struct op *op)
{
	(void)dnn;
	(void)at;
	(void)op;
	return 1;
}

int cuda_dnn_attention_plan(const struct op *op, const char *properties, int64_t *workspace_bytes)
{
	(void)op;
	(void)properties;
	(void)workspace_bytes;
	return err_set(ERR_UNSUPPORTED, "this build was made without cudnn.h");
}

#endif
