/* Measures the rate of attention: its forward and backward over one document of maximum length. */
#include "placement/measure_sample.h"

#include "base/err.h"
#include "base/mem.h"
#include "device/op.h"

enum { TOKENS_ENOUGH = 1024, TOKENS_MIN = 16 };

static const double ATTENTION_S = 0.02;

struct attention {
	struct sample sample;
	const struct engine_options *options;
	const struct block_config *block; /* the first with attention */
	int64_t tokens, heads, kv_heads;
	dev_addr batch[2]; /* doc_start, doc_end */
	struct op forward, backward;
};

static double op_flops(const struct op *op)
{
	struct op_cost cost;

	op_cost_of(op, &cost);
	return cost.attention_flops;
}

static void attention_lay(struct sample *s)
{
	struct attention *a = (struct attention *)s;
	enum dtype dtype = a->options->policy.compute_dtype;
	int64_t element = dtype_bytes(dtype), width = a->heads * a->block->D,
	        kv_width = a->kv_heads * a->block->D, stride = width + 2 * kv_width;
	dev_addr qkv = sample_take(s, a->tokens * stride * element),
	         dqkv = sample_take(s, a->tokens * stride * element),
	         out = sample_take(s, a->tokens * width * element),
	         dout = sample_take(s, a->tokens * width * element),
	         lse = sample_take(s, a->tokens * a->heads * 4);
	struct op_attention o = {.out = out,
	        .lse = lse,
	        .q = qkv,
	        .k = dev_at(qkv, width * element),
	        .v = dev_at(qkv, (width + kv_width) * element),
	        .doc_start = a->batch[0] = sample_take(s, a->tokens * 4),
	        .doc_end = a->batch[1] = sample_take(s, a->tokens * 4),
	        .tokens = a->tokens,
	        .documents = 1,
	        .document_tokens = a->tokens,
	        .heads = a->heads,
	        .kv_heads = a->kv_heads,
	        .head_dim = a->block->D,
	        .window = a->block->window,
	        .qkv_stride = stride,
	        .q_head_stride = a->block->D,
	        .kv_head_stride = a->block->D,
	        .out_stride = width,
	        .scale = 0.1,
	        .dtype = dtype};

	a->forward = (struct op){.kind = OP_ATTENTION, .attention = o};
	a->backward = (struct op){.kind = OP_ATTENTION_GRAD,
	        .attention_grad = {.dq = dqkv,
	                .dk = dev_at(dqkv, width * element),
	                .dv = dev_at(dqkv, (width + kv_width) * element),
	                .dout = dout,
	                .out = out,
	                .lse = lse,
	                .q = o.q,
	                .k = o.k,
	                .v = o.v,
	                .doc_start = o.doc_start,
	                .doc_end = o.doc_end,
	                .scratch =
	                        sample_take(s, 4 * attention_scratch_count(a->tokens, a->heads, a->block->D)),
	                .tokens = o.tokens,
	                .documents = o.documents,
	                .document_tokens = o.document_tokens,
	                .heads = o.heads,
	                .kv_heads = o.kv_heads,
	                .head_dim = o.head_dim,
	                .window = o.window,
	                .qkv_stride = o.qkv_stride,
	                .q_head_stride = o.q_head_stride,
	                .kv_head_stride = o.kv_head_stride,
	                .out_stride = o.out_stride,
	                .scale = o.scale,
	                .dtype = o.dtype}};
	s->flops = op_flops(&a->forward) + op_flops(&a->backward);
}

/* Cuts the document, then the heads, then the document below TOKENS_ENOUGH. */
static void attention_cut(struct sample *s, int cut)
{
	struct attention *a = (struct attention *)s;
	const struct engine_options *o = a->options;

	a->tokens = o->train.max_tokens < o->policy.rope_positions ? o->train.max_tokens
	                                                           : o->policy.rope_positions;
	a->heads = a->block->H;
	a->kv_heads = a->block->KV;
	for (int i = 0; i < cut; i++)
		if (a->tokens >= 2 * TOKENS_ENOUGH || (a->kv_heads % 2 && a->tokens >= 2 * TOKENS_MIN)) {
			a->tokens /= 2;
		} else if (a->kv_heads % 2 == 0) {
			a->heads /= 2;
			a->kv_heads /= 2;
		}
}

static int batch_write(const struct sample *s, struct stream *q)
{
	const struct attention *a = (const struct attention *)s;
	int32_t *values = mem_alloc(2 * (size_t)a->tokens, sizeof(*values));
	int rc = values ? 0 : ERR_NOMEM, synced;

	for (int64_t i = 0; i < a->tokens && !rc; i++)
		values[a->tokens + i] = (int32_t)a->tokens;
	for (int i = 0; i < 2 && !rc; i++)
		rc = stream_copy_in(q, a->batch[i], values + i * a->tokens, 4 * a->tokens);
	synced = stream_sync(q);
	mem_free(values);
	return rc ? rc : synced;
}

static int attention_queue(const struct sample *s, struct stream *q)
{
	const struct attention *a = (const struct attention *)s;
	int rc = stream_op(q, &a->forward);

	return rc ? rc : stream_op(q, &a->backward);
}

static const struct block_config *attention_block(const struct model *model)
{
	for (int s = 0; s < model->stage_count; s++)
		if (model->stages[s].kind == STAGE_ATTN)
			return &model->config.block[model->stages[s].layer];
	return NULL;
}

int measure_attention(struct device_speed *speed, const struct engine_options *o, int64_t most_bytes)
{
	struct attention a = {.sample = {.cut = attention_cut,
	                              .lay = attention_lay,
	                              .write = batch_write,
	                              .queue = attention_queue},
	        .options = o,
	        .block = attention_block(o->model)};
	double *const rates[] = {&speed->attention_flops, NULL};
	double seconds = 0;
	int rc;

	if (!a.block)
		return 0;
	rc = sample_measure(&seconds, &a.sample, o->device, most_bytes, ATTENTION_S);

	if (!rc && !(seconds > 0))
		rc = err_set(ERR_FIT, "too little memory to measure attention in");
	return rc ? rc : sample_fit(speed, rates, &a.sample, seconds);
}
