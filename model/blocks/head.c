/* Forward and backward of the final norm, head and loss in chunks of rows, and logits for sampling. */
#include "model/blocks/head.h"

#include "base/size.h"

struct head_layout {
	int64_t rows;           /* rows of a chunk */
	int64_t x, norm, dnorm; /* [rows, C] gathered input, the same normalised, gradient of either */
	int64_t rstd, mean;     /* F32 [rows] */
	int64_t loss_partial, norm_partial, norm_zeros, norm_sink;
	int64_t logits; /* F32 [rows, V] */
	int64_t bytes;
};

static struct head_layout head_layout_of(const struct stage_call *call)
{
	const struct model_config *c = call->c;
	int64_t rows = min_i64(call->targets, call->head_rows), e = call->element_bytes, end = 0;
	struct head_layout h = {.rows = rows};

	h.x = layout_take(&end, rows * c->C, e);
	h.norm = layout_take(&end, rows * c->C, e);
	h.dnorm = layout_take(&end, rows * c->C, e);
	h.rstd = layout_take(&end, rows, 4);
	h.mean = layout_take(&end, rows, 4);
	h.loss_partial = layout_take(&end, cross_entropy_scratch_count(rows), 4);
	h.norm_partial = layout_take(&end, norm_scratch_count(rows, 1, c->C), 4);
	h.norm_zeros = layout_take(&end, c->norm_zeros, e);
	h.norm_sink = layout_take(&end, norm_sink_count(call->model), 4);
	h.logits = layout_take(&end, rows * c->V, 4);
	h.bytes = end;
	return h;
}

int64_t head_scratch_bytes(const struct stage_call *call)
{
	return call->targets ? head_layout_of(call).bytes : 0;
}

static struct linear head_of(const struct stage_call *call)
{
	return (struct linear){ROLE_HEAD_W, ROLE_HEAD_B, call->c->V, call->c->C, 0, 0, 0};
}

static struct norm_place final_norm(const struct stage_call *call, const struct head_layout *h)
{
	return (struct norm_place){ROLE_FINAL_NORM_W, ROLE_FINAL_NORM_B, scratch_at(call, h->rstd),
	        scratch_at(call, h->mean), scratch_at(call, h->norm_zeros)};
}

/* Logits of the `rows` rows of x at the token indices in `index`. */
static void chunk_logits(
        struct stage_call *call, const struct head_layout *h, dev_addr logits, dev_addr index, int64_t rows)
{
	const struct model_config *c = call->c;
	struct norm_place norm = final_norm(call, h);
	struct linear head = head_of(call);

	call_op(call, &(struct op){.kind = OP_GATHER,
	                      .gather = {.out = scratch_at(call, h->x),
	                              .table = call->memory->x,
	                              .index = index,
	                              .rows = rows,
	                              .cols = c->C,
	                              .table_rows = call->tokens,
	                              .dtype = call->dtype}});
	norm_forward(call, &norm, scratch_at(call, h->norm), scratch_at(call, h->x), rows);
	if (c->logit_divisor != 0) /* scale the head's input instead of the logits: it is smaller */
		call_scale(call, scratch_at(call, h->norm), scratch_at(call, h->norm), rows * c->C,
		        1 / c->logit_divisor);
	linear_forward(call, &head, (struct rows){logits, rows, c->V}, DTYPE_F32,
	        (struct rows){scratch_at(call, h->norm), rows, c->C});
}

/* From the gradient of the logits, which has overwritten them, computes that of the rows of x. */
static void chunk_backward(struct stage_call *call, const struct head_layout *h, dev_addr index, int64_t rows)
{
	const struct model_config *c = call->c;
	struct norm_place norm = final_norm(call, h);
	struct linear head = head_of(call);
	struct rows dlogits = {scratch_at(call, h->logits), rows, c->V};
	dev_addr dnorm = scratch_at(call, h->dnorm);
	int goes_on = !dev_is_none(call->memory->dx);

	linear_backward_weight(call, &head, dlogits, (struct rows){scratch_at(call, h->norm), rows, c->C});
	if (!goes_on && dev_is_none(grad_of(call, ROLE_FINAL_NORM_W)) &&
	        dev_is_none(grad_of(call, ROLE_FINAL_NORM_B)))
		return;
	linear_backward_input(
	        call, &head, (struct rows){dnorm, rows, c->C}, call->dtype, LINEAR_WRITE, dlogits);
	if (c->logit_divisor != 0)
		call_scale(call, dnorm, dnorm, rows * c->C, 1 / c->logit_divisor);
	norm_backward(call, &norm, dnorm, dnorm, scratch_at(call, h->x), rows, LINEAR_WRITE,
	        scratch_at(call, h->norm_partial), scratch_at(call, h->norm_sink));
	if (!goes_on)
		return;
	call_op(call, &(struct op){.kind = OP_SCATTER,
	                      .scatter = {.out = call->memory->dx,
	                              .x = dnorm,
	                              .index = index,
	                              .rows = rows,
	                              .cols = c->C,
	                              .out_rows = call->tokens,
	                              .dtype = call->dtype}});
}

static struct stage_call head_call(const struct model *model, struct stream *stream,
        const struct stage_memory *memory, const struct batch_sizes *sizes)
{
	struct stage_call call = call_shape(model, model->stage_count - 1, memory->dtype, sizes->tokens);

	call.stream = stream;
	call.memory = memory;
	call.targets = sizes->targets;
	call.documents = sizes->documents;
	call.head_rows = memory->head_rows;
	call.writes_gradients = memory->first_gradient;
	return call;
}

/* Token losses of rows [first, first + rows), and the gradient of their logits in the logits' place. */
static void chunk_loss(struct stage_call *call, const struct head_layout *h, const struct token_losses *t,
        int64_t first, int64_t rows, enum head_mode mode)
{
	dev_addr logits = scratch_at(call, h->logits);

	call_op(call,
	        &(struct op){.kind = OP_CROSS_ENTROPY,
	                .cross_entropy = {.loss = dev_at(call->memory->loss, first * 4),
	                        .dlogits = mode == HEAD_TRAIN ? logits : DEV_NONE,
	                        .logits = logits,
	                        .label = dev_at(t->label, first * 4),
	                        .scratch = scratch_at(call, h->loss_partial),
	                        .rows = rows,
	                        .vocab = call->c->V,
	                        .grad_scale = call->memory->grad_scale,
	                        .dlogits_dtype = call->memory->dtype,
	                        .cap = call->c->logit_cap,
	                        .weight = dev_is_none(t->weight) ? t->weight : dev_at(t->weight, first * 4),
	                        .smoothing = t->smoothing}});
}

void head_losses(struct stage_call *call, enum head_mode mode, const struct token_losses *t)
{
	struct head_layout h = head_layout_of(call);
	dev_addr dx = call->memory->dx;
	int has_logits = t->is_again && call->targets <= h.rows; /* of the one chunk */

	if (mode == HEAD_TRAIN && !dev_is_none(dx))
		call_op(call, &(struct op){.kind = OP_FILL,
		                      .fill = {.dst = dx,
		                              .bytes = call->tokens * call->c->C * call->element_bytes}});
	for (int64_t first = 0; first < call->targets; first += h.rows) {
		int64_t rows = min_i64(h.rows, call->targets - first);
		dev_addr index = dev_at(call->batch->target_row, first * 4);

		if (!has_logits)
			chunk_logits(call, &h, scratch_at(call, h.logits), index, rows);
		chunk_loss(call, &h, t, first, rows, mode);
		if (mode == HEAD_TRAIN) {
			chunk_backward(call, &h, index, rows);
			call->writes_gradients = 0;
		}
	}
}

static void tokens_run(struct stage_call *call, enum head_mode mode)
{
	const double *settings = call->memory->settings;

	head_losses(call, mode,
	        &(struct token_losses){.label = call->batch->own[0],
	                .weight = DEV_NONE,
	                .smoothing = settings ? settings[0] : 0});
}

const struct head_pass head_of_tokens = {tokens_run, head_scratch_bytes};

int model_head(const struct model *model, const struct head_pass *pass, enum head_mode mode,
        struct stream *stream, const struct stage_memory *memory, const struct device_batch *batch)
{
	struct stage_call call = head_call(model, stream, memory,
	        &(struct batch_sizes){batch->tokens, batch->targets, batch->documents});

	call.batch = batch;
	pass->run(&call, mode);
	return call.err;
}

int64_t model_head_scratch_bytes(const struct model *model, const struct head_pass *pass, enum dtype dtype,
        const struct batch_sizes *most, int64_t head_rows)
{
	struct stage_memory memory = {.dtype = dtype, .head_rows = head_rows};
	struct stage_call call = head_call(model, NULL, &memory, most);

	return pass->scratch_bytes(&call);
}

int model_logits(const struct model *model, struct stream *stream, const struct stage_memory *memory,
        dev_addr logits, dev_addr rows, int64_t row_count, int64_t tokens)
{
	struct stage_call call =
	        head_call(model, stream, memory, &(struct batch_sizes){tokens, row_count, 0});
	struct head_layout h = head_layout_of(&call);

	for (int64_t first = 0; first < row_count; first += h.rows) {
		int64_t left = row_count - first, count = left < h.rows ? left : h.rows;

		dev_addr part = dev_at(logits, first * model->config.V * 4);

		chunk_logits(&call, &h, part, dev_at(rows, first * 4), count);
		if (model->config.logit_cap > 0)
			call_op(&call, &(struct op){.kind = OP_SCALE,
			                       .scale = {.dst = part,
			                               .src = part,
			                               .count = count * model->config.V,
			                               .factor = 1,
			                               .cap = model->config.logit_cap,
			                               .dtype = DTYPE_F32}});
	}
	return call.err;
}

/* Both directions at once: model_head. */
const struct stage_type stage_head = {.scratch_bytes = head_scratch_bytes};
