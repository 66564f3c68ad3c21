/* Attention by cuDNN: the ops that its graphs serve, and their plans. */
#include "gpu/cuda_dnn_attention.h"

#include "gpu/cuda_dnn_graph.h" /* IWYU pragma: keep */

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h" /* IWYU pragma: keep */
#include "device/op.h"

#ifdef FERRY_CUDNN

#include <float.h>
#include <inttypes.h>
#include <math.h>

/* A plan runs once for each part of the op's documents and kv heads. */
struct choice {
	struct dnn_sort sort;
	struct dnn_plan plan; /* .plan NULL: not for cuDNN */
	struct cuda_dnn_part part;
	struct choice *next;
};

struct cuda_dnn {
	struct cudnn f;
	cudnnHandle_t handle;
	void *workspace;
	int64_t workspace_bytes;
	/* One for each sort of op so far, without a limit: what runs must not depend on what ran before, or a
	 * resumed run would have other bits. A plan takes a second to make; each number of documents in a
	 * micro-batch is a sort of its own. */
	struct choice *choices;
	/* values that graphs get by address of host memory */
	float masked, one;
	int said_refused;
};

/* ---- open, close ---- */

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
	d->masked = d->f.cudnnGetVersion() >= 91000 ? -INFINITY : -FLT_MAX;
	d->one = 1;
	return 0;
}

int cuda_dnn_open(struct cuda_dnn **dnn, enum device_attention wish, void *workspace, int64_t workspace_bytes)
{
	struct cuda_dnn *d;
	int rc;

	*dnn = NULL;
	if (wish != DEVICE_ATTENTION_CUDNN)
		return 0;
	d = mem_alloc(1, sizeof(*d));
	rc = d ? dnn_start(d) : ERR_NOMEM;
	if (rc) {
		cuda_dnn_close(d);
		if (rc == ERR_NOMEM)
			return rc;
		log_warn("attention=cudnn: %s; attention runs on ferry's own kernels", err_text());
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
	for (struct choice *c = dnn->choices, *next; c; c = next) {
		next = c->next;
		dnn_plan_close(&dnn->f, &c->plan);
		mem_free(c);
	}
	if (dnn->handle)
		dnn->f.cudnnDestroy(dnn->handle);
	mem_free(dnn);
}

/* ---- ops ---- */

/* Both kinds of op in one struct; addresses that forward lacks are DEV_NONE. */
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
	        .bias = o->bias,
	        .scale = o->scale,
	        .score_cap = o->score_cap,
	        .mask = o->mask,
	        .dtype = o->dtype};
}

static struct dnn_sort sort_of(const struct op_attention_grad *o, enum op_kind kind)
{
	return (struct dnn_sort){.documents = o->documents,
	        .tokens = o->document_tokens,
	        .heads = o->heads,
	        .kv_heads = o->kv_heads,
	        .head_dim = o->head_dim,
	        .window = o->window > 0 && o->window < o->document_tokens ? o->window : 0,
	        .qkv_stride = o->qkv_stride,
	        .q_head_stride = o->q_head_stride,
	        .kv_head_stride = o->kv_head_stride,
	        .out_stride = o->out_stride,
	        .lse_stride = o->heads,
	        .scale = (float)o->scale,
	        .is_grad = kind == OP_ATTENTION_GRAD};
}

/* The graphs have the causal mask only, and neither cap nor sink nor bias. */
static int has_graph(const struct op_attention_grad *o)
{
	return o->mask == MASK_CAUSAL && o->score_cap == 0 && dev_is_none(o->sink) && dev_is_none(o->bias);
}

/* bf16, all addresses and strides multiples of 16 bytes, positions in int32. The number of documents times
 * the longest equals the tokens only if all documents have that length. */
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

/* The workspace of cuDNN: the rest of the op's scratch behind delta, or the stream's workspace if that is
 * larger. */
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

static int sort_is(const struct dnn_sort *a, const struct dnn_sort *b)
{
	return a->documents == b->documents && a->tokens == b->tokens && a->heads == b->heads &&
	       a->kv_heads == b->kv_heads && a->head_dim == b->head_dim && a->window == b->window &&
	       a->qkv_stride == b->qkv_stride && a->q_head_stride == b->q_head_stride &&
	       a->kv_head_stride == b->kv_head_stride && a->out_stride == b->out_stride &&
	       a->lse_stride == b->lse_stride && a->scale == b->scale && a->is_grad == b->is_grad;
}

static struct dnn_sort sort_of_part(const struct dnn_sort *whole, struct cuda_dnn_part part)
{
	struct dnn_sort s = *whole;

	s.documents = part.documents;
	s.heads = whole->heads / whole->kv_heads * part.kv_heads;
	s.kv_heads = part.kv_heads;
	return s;
}

static int part_plan(struct choice *c, struct cuda_dnn *d, struct cuda_dnn_part part, int64_t room_bytes)
{
	const struct dnn_target target = {.handle = d->handle};
	struct dnn_sort s = sort_of_part(&c->sort, part);

	c->part = part;
	return dnn_sort_plan(&c->plan, &d->f, &s, &target, room_bytes);
}

/* Plans the whole op if its workspace fits. Otherwise the smallest part shows what a document's kv head
 * takes, and as many as fit make a part. */
static int parts_plan(struct choice *c, struct cuda_dnn *d, int64_t room_bytes)
{
	const struct cuda_dnn_part all = {c->sort.documents, c->sort.kv_heads}, one = {1, 1};
	struct cuda_dnn_part part;
	struct dnn_plan least;
	int rc = part_plan(c, d, all, room_bytes);

	if (!rc || !c->sort.is_grad || (all.documents == 1 && all.kv_heads == 1))
		return rc;
	rc = part_plan(c, d, one, room_bytes);
	part = rc ? one : cuda_dnn_part_choose(all, c->plan.workspace_bytes, room_bytes);
	if (rc || (part.documents == 1 && part.kv_heads == 1))
		return rc;
	least = c->plan;
	c->plan = (struct dnn_plan){0};
	if (!part_plan(c, d, part, room_bytes)) {
		dnn_plan_close(&d->f, &least);
		return 0;
	}
	c->plan = least;
	c->part = one;
	return 0;
}

/* NULL without memory. */
static const struct choice *choice_of(struct cuda_dnn *d, const struct dnn_sort *s, int64_t room_bytes)
{
	struct choice *c;

	for (c = d->choices; c; c = c->next)
		if (sort_is(&c->sort, s))
			return c;
	c = mem_alloc(1, sizeof(*c));
	if (!c)
		return NULL;
	*c = (struct choice){.sort = *s, .next = d->choices};
	d->choices = c;
	if (parts_plan(c, d, room_bytes))
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

static int run_part(
        const struct cuda_dnn *d, const struct choice *c, const struct op_attention_grad *o, void *workspace)
{
	const int32_t window = (int32_t)c->sort.window;
	struct places p = {.count = 0};

	place_device(&p, UID_Q, o->q);
	place_device(&p, UID_K, o->k);
	place_device(&p, UID_V, o->v);
	place_device(&p, UID_OUT, o->out);
	place_device(&p, UID_LSE, o->lse);
	place(&p, UID_SCALE, &c->sort.scale);
	place(&p, UID_MASKED, &d->masked);
	if (window)
		place(&p, UID_WINDOW, &window);
	if (c->sort.is_grad) {
		place_device(&p, UID_DOUT, o->dout);
		place_device(&p, UID_DQ, o->dq);
		place_device(&p, UID_DK, o->dk);
		place_device(&p, UID_DV, o->dv);
		place_device(&p, UID_DELTA, o->scratch);
		place(&p, UID_ONE, &d->one);
	}
	return run(d, c, &p, workspace);
}

/* Warns once: the user's choice has no effect on such micro-batches. */
static int refuse(struct cuda_dnn *d, const struct op_attention_grad *o)
{
	if (!d->said_refused++)
		log_warn("attention=cudnn: %s on ferry's own kernel",
		        o->dtype != DTYPE_BF16 ? "attention in fp32 runs"
		        : !has_graph(o) ? "attention with a score cap, sinks or a bias, or not causal, runs"
		                        : "micro-batches with documents of different lengths, or with "
		                          "heads of a size that is no multiple of 8, run");
	return 1;
}

int cuda_dnn_attention(struct cuda_dnn *dnn, const struct cuda_launch *at, const struct op *op)
{
	const struct op_attention_grad o = both(op);
	const struct dnn_sort s = sort_of(&o, op->kind);
	const struct choice *c;
	cudnnStatus_t status;
	struct room room;
	int rc = 0;

	if (!dnn)
		return 1;
	if (!is_taken(&o))
		return refuse(dnn, &o);
	room = room_of(dnn, &o);
	c = choice_of(dnn, &s, room.bytes);
	if (!c)
		return ERR_NOMEM;
	if (!c->plan.plan || c->plan.workspace_bytes > room.bytes)
		return 1;
	status = dnn->f.cudnnSetStream(dnn->handle, at->stream);
	if (status)
		return err_set(ERR_DEVICE, "cudnnSetStream: %s", dnn->f.cudnnGetErrorString(status));
	for (int64_t document = 0; document < o.documents && !rc; document += c->part.documents)
		for (int64_t head = 0; head < o.kv_heads && !rc; head += c->part.kv_heads) {
			struct op_attention_grad part = cuda_dnn_part_of(&o, document, head);

			rc = run_part(dnn, c, &part, room.at);
		}
	return rc;
}

int cuda_dnn_attention_plan(int64_t *workspace_bytes, const struct op *op, const struct cuda_dnn_part *part,
        const char *properties)
{
	const struct dnn_target target = {.properties = properties};
	const struct op_attention_grad o = both(op);
	struct dnn_sort s = sort_of(&o, op->kind);
	struct dnn_plan plan;
	struct cudnn f;
	int rc = cuda_library_bind(&f, sizeof(f), CUDA_LIBRARY_CUDNN);

	if (!rc && !has_graph(&o))
		rc = err_set(
		        ERR_UNSUPPORTED, "attention by cuDNN is causal and has no score cap, sink or bias");
	if (part)
		s = sort_of_part(&s, *part);
	if (!rc)
		rc = dnn_sort_plan(&plan, &f, &s, &target, INT64_MAX);
	if (rc)
		return rc;
	*workspace_bytes = plan.workspace_bytes;
	dnn_plan_close(&f, &plan);
	return 0;
}

#else

int cuda_dnn_open(struct cuda_dnn **dnn, enum device_attention wish, void *workspace, int64_t workspace_bytes)
{
	(void)workspace;
	(void)workspace_bytes;
	*dnn = NULL;
	if (wish == DEVICE_ATTENTION_CUDNN)
		log_warn("attention=cudnn: this build was made without cudnn.h; attention runs "
		         "on ferry's own kernels");
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

int cuda_dnn_attention_plan(int64_t *workspace_bytes, const struct op *op, const struct cuda_dnn_part *part,
        const char *properties)
{
	(void)op;
	(void)part;
	(void)properties;
	(void)workspace_bytes;
	return err_set(ERR_UNSUPPORTED, "this build was made without cudnn.h");
}

#endif
