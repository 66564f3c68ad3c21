/* Forward and backward of the final norm, head and loss in chunks of rows, and logits for sampling. */
#include "model/blocks/head.h"

#include "base/size.h"
#include "model/family.h"

struct head_layout {
	int64_t rows;           /* rows of a chunk */
	int64_t x, norm, dnorm; /* [rows, C] gathered input, the same normalised, gradient of either */
	int64_t rstd, mean;     /* F32 [rows] */
	int64_t loss_partial, norm_partial, norm_zeros, norm_sink;
	int64_t dense, act, out;    /* with POOL_W: [rows, C] its product, the activation, behind POOL_NORM */
	int64_t out_rstd, out_mean; /* F32 [rows] */
	int64_t logits;             /* F32 [rows, width] */
	int64_t noise;              /* U64 [rows], with an adapter of the head that drops */
	int64_t bytes;
};

/* Logits of a row: of the vocabulary, or of classes. */
static int64_t logits_width(const struct stage_call *call)
{
	return call_has(call, ROLE_CLASS_W) ? call->c->labels : call->c->V;
}

static int head_drops(const struct stage_call *call)
{
	return linear_has_adapter(call, ROLE_HEAD_W) && call->c->adapter_dropout > 0;
}

static struct head_layout head_layout_of(const struct stage_call *call)
{
	const struct model_config *c = call->c;
	int64_t rows = min_i64(call->targets, call->head_rows), e = call->element_bytes,
	        end = call->scratch.bytes;
	int64_t inner = call_has(call, ROLE_POOL_W) ? rows : 0,
	        normed = call_has(call, ROLE_POOL_NORM_W) ? rows : 0;
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
	h.dense = layout_take(&end, inner * c->C, e);
	h.act = layout_take(&end, inner * c->C, e);
	h.out = layout_take(&end, normed * c->C, e);
	h.out_rstd = layout_take(&end, normed, 4);
	h.out_mean = layout_take(&end, normed, 4);
	h.logits = layout_take(&end, rows * logits_width(call), 4);
	h.noise = layout_take(&end, head_drops(call) ? rows : 0, 8);
	h.bytes = end;
	return h;
}

int64_t head_scratch_bytes(const struct stage_call *call)
{
	return call->targets ? head_layout_of(call).bytes : 0;
}

static struct linear head_of(const struct stage_call *call)
{
	if (call_has(call, ROLE_CLASS_W))
		return (struct linear){ROLE_CLASS_W, ROLE_CLASS_B, call->c->labels, call->c->C, 0, 0, 0};
	return (struct linear){ROLE_HEAD_W, ROLE_HEAD_B, call->c->V, call->c->C, 0, 0, 0};
}

static struct linear pool_of(const struct stage_call *call)
{
	return (struct linear){ROLE_POOL_W, ROLE_POOL_B, call->c->C, call->c->C, 0, 0, 0};
}

static struct norm_place final_norm(const struct stage_call *call, const struct head_layout *h)
{
	return (struct norm_place){ROLE_FINAL_NORM_W, ROLE_FINAL_NORM_B, scratch_at(call, h->rstd),
	        scratch_at(call, h->mean), scratch_at(call, h->norm_zeros)};
}

static struct norm_place pool_norm(const struct stage_call *call, const struct head_layout *h)
{
	return (struct norm_place){ROLE_POOL_NORM_W, ROLE_POOL_NORM_B, scratch_at(call, h->out_rstd),
	        scratch_at(call, h->out_mean), scratch_at(call, h->norm_zeros)};
}

/* The rows behind the final norm, if there is one. */
static struct rows normed_rows(const struct stage_call *call, const struct head_layout *h, int64_t rows)
{
	return (struct rows){
	        scratch_at(call, call_has(call, ROLE_FINAL_NORM_W) ? h->norm : h->x), rows, call->c->C};
}

/* What the last matrix reads: these, or what POOL makes of them. */
static struct rows last_rows(const struct stage_call *call, const struct head_layout *h, int64_t rows)
{
	if (!call_has(call, ROLE_POOL_W))
		return normed_rows(call, h, rows);
	return (struct rows){
	        scratch_at(call, call_has(call, ROLE_POOL_NORM_W) ? h->out : h->act), rows, call->c->C};
}

/* Behind POOL of classes, or of words of the vocabulary. */
static enum act_kind pool_act_of(const struct stage_call *call)
{
	return call_has(call, ROLE_CLASS_W) ? call->c->pool_act : call->c->words_act;
}

static void pool_forward(struct stage_call *call, const struct head_layout *h, int64_t rows)
{
	struct linear pool = pool_of(call);
	struct norm_place norm = pool_norm(call, h);
	dev_addr dense = scratch_at(call, h->dense), act = scratch_at(call, h->act);

	linear_forward(
	        call, &pool, (struct rows){dense, rows, call->c->C}, call->dtype, normed_rows(call, h, rows));
	call_op(call, &(struct op){.kind = OP_ACT,
	                      .act = {act, dense, rows * call->c->C, pool_act_of(call), call->dtype}});
	if (call_has(call, ROLE_POOL_NORM_W))
		norm_forward(call, &norm, scratch_at(call, h->out), act, rows);
}

/* From the gradient of its output, in d, that of its input, which it returns. */
static dev_addr pool_backward(struct stage_call *call, const struct head_layout *h, dev_addr d, int64_t rows)
{
	int64_t C = call->c->C;
	struct linear pool = pool_of(call);
	struct norm_place norm = pool_norm(call, h);
	dev_addr act = scratch_at(call, h->act);

	if (call_has(call, ROLE_POOL_NORM_W))
		norm_backward(call, &norm, d, d, act, rows, LINEAR_WRITE, scratch_at(call, h->norm_partial),
		        scratch_at(call, h->norm_sink));
	call_op(call, &(struct op){.kind = OP_ACT_GRAD,
	                      .act_grad = {d, d, scratch_at(call, h->dense), rows * C, pool_act_of(call),
	                              call->dtype}});
	linear_backward_weight(call, &pool, (struct rows){d, rows, C}, normed_rows(call, h, rows));
	linear_backward_input(call, &pool, (struct rows){act, rows, C}, call->dtype, LINEAR_WRITE,
	        (struct rows){d, rows, C});
	return act;
}

/* Logits of the `rows` rows of x at the token indices in `index`. */
static void chunk_logits(
        struct stage_call *call, const struct head_layout *h, dev_addr logits, dev_addr index, int64_t rows)
{
	const struct model_config *c = call->c;
	struct norm_place norm = final_norm(call, h);
	struct linear head = head_of(call);
	struct rows last = last_rows(call, h, rows);

	call_op(call, &(struct op){.kind = OP_GATHER,
	                      .gather = {.out = scratch_at(call, h->x),
	                              .table = call->memory->x,
	                              .index = index,
	                              .rows = rows,
	                              .cols = c->C,
	                              .table_rows = call->tokens,
	                              .dtype = call->dtype}});
	if (!dev_is_none(call->row_noise)) /* as rows of 8 bytes */
		call_op(call, &(struct op){.kind = OP_GATHER,
		                      .gather = {.out = call->row_noise,
		                              .table = call->batch->noise,
		                              .index = index,
		                              .rows = rows,
		                              .cols = 2,
		                              .table_rows = call->tokens,
		                              .dtype = DTYPE_F32}});
	if (call_has(call, ROLE_FINAL_NORM_W))
		norm_forward(call, &norm, scratch_at(call, h->norm), scratch_at(call, h->x), rows);
	if (call_has(call, ROLE_POOL_W))
		pool_forward(call, h, rows);
	if (c->logit_divisor != 0) /* scale the head's input instead of the logits: it is smaller */
		call_scale(call, last.base, last.base, rows * c->C, 1 / c->logit_divisor);
	linear_forward(call, &head, (struct rows){logits, rows, logits_width(call)}, DTYPE_F32, last);
}

/* Whether a tensor of the head before its last matrix trains. */
static int trains_inside(const struct stage_call *call)
{
	static const enum tensor_role roles[] = {ROLE_FINAL_NORM_W, ROLE_FINAL_NORM_B, ROLE_POOL_W,
	        ROLE_POOL_B, ROLE_POOL_NORM_W, ROLE_POOL_NORM_B};
	int trains = 0;

	for (size_t i = 0; i < sizeof(roles) / sizeof(*roles); i++)
		trains |= !dev_is_none(grad_of(call, roles[i]));
	return trains;
}

/* From the gradient of the logits, which has overwritten them, computes that of the rows of x. */
static void chunk_backward(struct stage_call *call, const struct head_layout *h, dev_addr index, int64_t rows)
{
	const struct model_config *c = call->c;
	struct norm_place norm = final_norm(call, h);
	struct linear head = head_of(call);
	struct rows dlogits = {scratch_at(call, h->logits), rows, logits_width(call)};
	dev_addr d = scratch_at(call, h->dnorm);
	int goes_on = !dev_is_none(call->memory->dx);

	linear_backward_weight(call, &head, dlogits, last_rows(call, h, rows));
	if (!goes_on && !trains_inside(call))
		return;
	linear_backward_input(call, &head, (struct rows){d, rows, c->C}, call->dtype, LINEAR_WRITE, dlogits);
	if (c->logit_divisor != 0)
		call_scale(call, d, d, rows * c->C, 1 / c->logit_divisor);
	if (call_has(call, ROLE_POOL_W))
		d = pool_backward(call, h, d, rows);
	if (call_has(call, ROLE_FINAL_NORM_W))
		norm_backward(call, &norm, d, d, scratch_at(call, h->x), rows, LINEAR_WRITE,
		        scratch_at(call, h->norm_partial), scratch_at(call, h->norm_sink));
	if (!goes_on)
		return;
	call_op(call, &(struct op){.kind = OP_SCATTER,
	                      .scatter = {.out = call->memory->dx,
	                              .x = d,
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
	call.scratch = block_scratch_of(&call);
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
	                        .vocab = logits_width(call),
	                        .grad_scale = call->memory->grad_scale,
	                        .dlogits_dtype = call->memory->dtype,
	                        .cap = call->c->logit_cap,
	                        .weight = dev_is_none(t->weight) ? t->weight : dev_at(t->weight, first * 4),
	                        .smoothing = t->smoothing}});
}

_Static_assert((int)TOKEN_LABELS_MAX <= (int)ROUTE_EXPERTS_MAX, "a router chooses among all labels");

/* The class of the largest logit, as a router chooses one. */
static void chunk_find(struct stage_call *call, const struct head_layout *h, int64_t first, int64_t rows)
{
	call_op(call, &(struct op){.kind = OP_ROUTE,
	                      .route = {.ids = dev_at(call->memory->loss, (call->targets + first) * 4),
	                              .weights = scratch_at(call, h->loss_partial),
	                              .logits = scratch_at(call, h->logits),
	                              .tokens = rows,
	                              .experts = logits_width(call),
	                              .chosen = 1,
	                              .groups = 1,
	                              .groups_chosen = 1,
	                              .rule = ROUTE_CHOSEN,
	                              .scale = 1}});
}

void head_losses(struct stage_call *call, enum head_mode mode, const struct token_losses *t)
{
	struct head_layout h = head_layout_of(call);
	dev_addr dx = call->memory->dx;
	int has_logits = t->is_again && call->targets <= h.rows; /* of the one chunk */

	if (head_drops(call) && !dev_is_none(call->batch->noise))
		call->row_noise = scratch_at(call, h.noise);
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
		if (t->finds && mode == HEAD_LOSS)
			chunk_find(call, &h, first, rows);
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

const struct head_pass head_of_tokens = {tokens_run, head_scratch_bytes, 0};

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
