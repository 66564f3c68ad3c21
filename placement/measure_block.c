/* Measures the rate of matrix products from a block's forward and backward. */
#include "placement/measure_sample.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/size.h"
#include "model/adapter.h"
#include "model/blocks/blocks.h"
#include "model/join.h"

/* Down to the ENOUGH numbers, a cut leaves the sample typical of the whole. */
enum { TOKENS_ENOUGH = 512, COLUMNS_ENOUGH = 1024, TOKENS_MIN = 64, COLUMNS_MIN = 128, COLUMNS_STEP = 64 };

static const double BLOCK_S = 0.1;

/* The first block of a model, perhaps cut, and its buffers. */
struct block {
	struct sample sample;
	const struct engine_options *options;
	struct model model;        /* a copy of the model with one block and cut sizes in its config */
	struct block_config facts; /* of that block */
	int64_t tokens, document_tokens, divisor;
	dev_addr batch[3];
	struct stage_memory memory;
	dev_addr *weight, *grad;   /* [tensor] */
	struct stage_value *value; /* [value of the model] */
};

static const struct block *block_of(const struct sample *s)
{
	return (const struct block *)s; /* `sample` is its first member */
}

static int in_block(const struct block *b, int tensor)
{
	return b->model.tensors[tensor].layer == 0;
}

/* Most bytes of the block's groups: of scratch or, with acts, of activations. */
static int64_t group_bytes(const struct block *b, int acts)
{
	enum dtype dtype = b->options->policy.compute_dtype;
	int64_t most = 0;

	for (int g = 0; g < b->model.group_count; g++)
		if (b->model.groups[g].layer == 0)
			most = max_i64(
			        most, acts ? model_acts_bytes(&b->model, g, dtype, b->tokens)
			                   : model_scratch_bytes(&b->model, g, dtype, b->tokens, 0, 0));
	return most;
}

/* Elements after a cut: both dimensions of a matrix are cut, but not an adapter's rank. Vectors stay, they
 * take little time. */
static int64_t tensor_count(const struct block *b, int tensor)
{
	const struct model_tensor *t = &b->model.tensors[tensor];

	if (model_tensor_is_adapter(t))
		return t->count / b->divisor;
	if (role_facts[t->role].kind == KIND_FILTER)
		return t->count / b->divisor;
	return t->rank >= 2 ? t->count / (b->divisor * b->divisor) : t->count;
}

static double block_flops(const struct block *b)
{
	const struct model_config *c = &b->model.config;
	double tokens = (double)b->tokens, matrices = 0;

	for (int t = 0; t < b->model.tensor_count; t++)
		if (in_block(b, t) && b->model.tensors[t].rank >= 2 &&
		        role_facts[b->model.tensors[t].role].kind != KIND_FILTER)
			matrices += (model_tensor_is_adapter(&b->model.tensors[t])
			                            ? 4.0 / 3 /* four products, not three */
			                            : 1) *
			            (double)tensor_count(b, t) * model_active_count(&b->model, t) /
			            (double)b->model.tensors[t].count;
	if (!c->block[0].has[ROLE_O_W])
		return 6 * tokens * matrices;
	return 6 * tokens * matrices +
	       7 * tokens * (double)(b->document_tokens * c->block[0].H * c->block[0].D);
}

/* Values that the block makes or reads; those that it reads hold no numbers of a model. */
static void values_lay(struct block *b)
{
	int64_t element = dtype_bytes(b->options->policy.compute_dtype);

	for (int i = 0; i < b->model.stage_count; i++)
		for (int n = 0; n < b->model.stages[i].value_count && b->model.stages[i].layer == 0; n++) {
			int v = b->model.stages[i].value[n];
			int64_t count = b->tokens * b->model.values[v].columns;

			b->value[v].at = sample_take(&b->sample, count * element);
			b->value[v].grad = sample_take(&b->sample, count * 4);
			b->value[v].writes_grad = 1;
		}
}

static void block_lay(struct sample *s)
{
	struct block *b = (struct block *)s;
	enum dtype dtype = b->options->policy.compute_dtype;
	int64_t element = dtype_bytes(dtype), stream = b->tokens * b->model.config.C * element, norms = 0;

	s->flops = block_flops(b);
	for (int t = 0; t < b->model.tensor_count; t++) {
		int list[JOIN_MOST], count = in_block(b, t) ? model_place(list, &b->model, t) : 0;

		for (int i = 0; i < count; i++)
			b->weight[list[i]] = sample_take(s, tensor_count(b, list[i]) * element);
		for (int i = 0; i < count; i++)
			b->grad[list[i]] = sample_take(s, tensor_count(b, list[i]) * 4);
	}
	values_lay(b);
	for (int i = 0; i < 3; i++)
		b->batch[i] = sample_take(s, b->tokens * 4);
	for (int i = 0; i < b->model.stage_count; i++)
		if (b->model.stages[i].layer == 0)
			norms = max_i64(norms, model_row_norms_bytes(&b->model, i));
	b->memory = (struct stage_memory){.dtype = dtype,
	        .weight = b->weight,
	        .grad = b->grad,
	        .value = b->value,
	        .x = sample_take(s, stream),
	        .y = sample_take(s, stream),
	        .dx = sample_take(s, stream),
	        .acts = sample_take(s, group_bytes(b, 1)),
	        .scratch = sample_take(s, group_bytes(b, 0)),
	        .row_norms = sample_take(s, norms),
	        .rope_table = sample_take(s, 4 * model_rope_table_count(&b->model, b->document_tokens)),
	        .rope_positions = b->document_tokens,
	        .grad_scale = 1};
}

static int divides(const struct model_config *c, int64_t divisor)
{
	const struct block_config *first = &c->block[0];

	return !(c->C % (divisor * COLUMNS_STEP) || first->F % (divisor * COLUMNS_STEP) ||
	               first->experts.F % divisor || first->experts.shared % divisor || first->H % divisor ||
	               first->KV % divisor || c->input_columns % divisor ||
	               first->delta.key_heads % divisor || first->delta.value_heads % divisor) &&
	       c->C / divisor >= COLUMNS_MIN;
}

/* Attention has its own rate, so its share of the block may shrink with the documents. */
static void block_cut(struct sample *s, int cut)
{
	struct block *b = (struct block *)s;
	const struct engine_options *o = b->options;
	const struct model_config *whole = &o->model->config;
	struct model_config *c = &b->model.config;

	b->tokens = o->train.max_tokens;
	b->divisor = 1;
	for (int i = 0; i < cut; i++) {
		int divisible = divides(whole, 2 * b->divisor);

		if (b->tokens >= 2 * TOKENS_ENOUGH)
			b->tokens /= 2;
		else if (divisible && whole->C / (2 * b->divisor) >= COLUMNS_ENOUGH)
			b->divisor *= 2;
		else if (i % 2 == 0 && b->tokens >= 2 * TOKENS_MIN)
			b->tokens /= 2;
		else if (i % 2 && divisible)
			b->divisor *= 2;
	}
	b->document_tokens = b->tokens < o->policy.rope_positions ? b->tokens : o->policy.rope_positions;
	*c = *whole;
	c->L = 1;
	c->block = &b->facts;
	b->facts = whole->block[0];
	c->C /= b->divisor;
	c->input_columns /= b->divisor;
	b->facts.F /= b->divisor;
	b->facts.experts.F /= b->divisor;
	b->facts.experts.shared /= b->divisor;
	b->facts.H /= b->divisor;
	b->facts.KV /= b->divisor;
	b->facts.delta.key_heads /= b->divisor;
	b->facts.delta.value_heads /= b->divisor;
}

static int block_queue(const struct sample *s, struct stream *q)
{
	const struct block *b = block_of(s);
	const struct device_batch batch = {.tokens = b->tokens,
	        .documents = (b->tokens + b->document_tokens - 1) / b->document_tokens,
	        .position = b->batch[0],
	        .doc_start = b->batch[1],
	        .doc_end = b->batch[2]};
	int rc = 0;

	for (int i = 0; i < b->model.stage_count && !rc; i++)
		if (b->model.stages[i].layer == 0)
			rc = model_forward(&b->model, i, q, &b->memory, &batch);
	for (int i = b->model.stage_count - 1; i >= 0 && !rc; i--)
		if (b->model.stages[i].layer == 0)
			rc = model_backward(&b->model, i, q, &b->memory, &batch);
	return rc;
}

/* Writes documents of maximum length. */
static int batch_write(const struct sample *s, struct stream *q)
{
	const struct block *b = block_of(s);
	int32_t *values = mem_alloc(3 * (size_t)b->tokens, sizeof(*values));
	int rc = values ? 0 : ERR_NOMEM;

	for (int64_t i = 0; i < b->tokens && !rc; i++) {
		int64_t position = i % b->document_tokens, start = i - position,
		        end = start + b->document_tokens;

		values[i] = (int32_t)position;
		values[b->tokens + i] = (int32_t)start;
		values[2 * b->tokens + i] = (int32_t)(end < b->tokens ? end : b->tokens);
	}
	for (int i = 0; i < 3 && !rc; i++)
		rc = stream_copy_in(q, b->batch[i], values + i * b->tokens, 4 * b->tokens);
	if (!rc)
		rc = stream_sync(q);
	else
		stream_sync(q);
	mem_free(values);
	return rc;
}

int measure_block(struct device_speed *speed, const struct engine_options *o, int64_t most_bytes)
{
	struct block b = {
	        .sample = {.cut = block_cut, .lay = block_lay, .write = batch_write, .queue = block_queue},
	        .options = o,
	        .model = *o->model};
	double *const rates[] = {&speed->matmul_flops_bf16, &speed->matmul_flops_f32, NULL};
	double seconds = 0;
	int rc;

	b.weight = mem_alloc((size_t)b.model.tensor_count, sizeof(*b.weight));
	b.grad = mem_alloc((size_t)b.model.tensor_count, sizeof(*b.grad));
	b.value = mem_alloc((size_t)b.model.config.value_count + 1, sizeof(*b.value));
	rc = b.weight && b.grad && b.value ? 0 : ERR_NOMEM;
	if (!rc)
		rc = sample_measure(&seconds, &b.sample, o->device, most_bytes, BLOCK_S);
	if (!rc && !(seconds > 0))
		rc = err_set(ERR_FIT, "too little memory to measure a block in");
	if (!rc)
		rc = sample_fit(speed, rates, &b.sample, seconds);
	mem_free(b.weight);
	mem_free(b.grad);
	mem_free(b.value);
	return rc;
}
