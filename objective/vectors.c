/* Pooled states of documents as vectors, and their backward. */
#include "objective/vectors.h"

#include "base/err.h"
#include "base/size.h"
#include "data/batch.h"
#include "device/op.h"
#include "model/blocks/block.h"

#include <math.h>
#include <string.h>

int64_t vectors_targets(const struct dataset *data, int64_t row)
{
	(void)data;
	(void)row;
	return 1;
}

void vectors_add(struct micro_batch *mb, const struct batch_document *document)
{
	const struct row_view *row = &document->row;
	int32_t *index = mb->own[VECTORS_DOCUMENT], *last = mb->own[VECTORS_LAST],
	        *type = mb->own[VECTORS_TYPE];
	int32_t count = (int32_t)row->token_count, bits = row_label(row, 0),
	        second = count > 1 ? row_label(row, 1) : DATASET_IGNORE;
	int64_t d = document->index;

	bits = bits == DATASET_IGNORE ? 0 : bits; /* a label of 0 is not stored */
	for (int32_t t = 0; t < count; t++) {
		index[document->first_token + t] = (int32_t)d;
		type[document->first_token + t] = second != DATASET_IGNORE && t >= second;
	}
	memcpy((float *)mb->own[VECTORS_LABEL] + d, &bits, sizeof(bits));
	((float *)mb->own[VECTORS_TOKENS])[d] = (float)count;
	((float *)mb->own[VECTORS_PLACE])[d] = (float)document->place;
	last[d] = document->first_token + count - 1;
	mb->target_rows[mb->target_count++] = document->first_token;
}

int vectors_check(const struct model *model)
{
	return model->config.pool == POOL_NONE
	               ? err_set(ERR_UNSUPPORTED, "the model's head gives logits, not vectors")
	               : 0;
}

int64_t vectors_width(const struct model *model)
{
	const struct model_config *c = &model->config;

	return c->has[ROLE_CLASS_W] ? c->labels : c->C;
}

double vectors_scale(const struct model *model, double tokens)
{
	return model->config.pool == POOL_MEAN            ? 1 / tokens
	       : model->config.pool == POOL_MEAN_SQRT_LEN ? 1 / sqrt(tokens)
	                                                  : 1;
}

/* ---- on the device ---- */

/* F32 unless it says else; N documents. `rows` are the tokens that the norm sees: all, or one a document. */
struct places {
	int64_t rows;
	int64_t picked, states, rstd, mean; /* compute dtype [N, C], [rows, C]; [rows] */
	int64_t pooled, wide;               /* [N, C], [tokens, C] */
	int64_t input, hidden, act, spare;  /* with classes, compute dtype [N, C] */
	int64_t dvector, dact;              /* compute dtype [N, width], [N, C] */
	int64_t partial, sink, zeros, sort; /* scratch of ops */
	int64_t bytes;
};

static int picks_a_token(const struct stage_call *call)
{
	return call->c->pool == POOL_CLS || call->c->pool == POOL_LASTTOKEN;
}

static struct places places_of(const struct stage_call *call)
{
	int64_t C = call->c->C, N = call->documents, e = call->element_bytes, end = 0;
	struct places p = {.rows = picks_a_token(call) ? N : call->tokens};

	p.picked = layout_take(&end, p.rows == N ? N * C : 0, e);
	p.states = layout_take(&end, p.rows * C, e);
	p.rstd = layout_take(&end, p.rows, 4);
	p.mean = layout_take(&end, p.rows, 4);
	p.pooled = layout_take(&end, N * C, 4);
	p.wide = layout_take(&end, p.rows * C, 4);
	p.partial = layout_take(&end, norm_scratch_count(p.rows, 1, C), 4);
	p.sink = layout_take(&end, norm_sink_count(call->model), 4);
	p.zeros = layout_take(&end, call->c->norm_zeros, e);
	p.sort = layout_take(&end, embed_grad_scratch_count(call->tokens, N), 4);
	if (call_has(call, ROLE_CLASS_W)) {
		p.input = layout_take(&end, N * C, e);
		p.hidden = layout_take(&end, N * C, e);
		p.act = layout_take(&end, N * C, e);
		p.spare = layout_take(&end, N * C, e);
		p.dvector = layout_take(&end, N * call->c->labels, e);
		p.dact = layout_take(&end, N * C, e);
	}
	p.bytes = end;
	return p;
}

static int64_t scratch_bytes(const struct stage_call *call)
{
	return call->documents ? places_of(call).bytes : 0;
}

static void zero(struct stage_call *call, dev_addr dst, int64_t bytes)
{
	call_op(call, &(struct op){.kind = OP_FILL, .fill = {.dst = dst, .bytes = bytes}});
}

static void columns(struct stage_call *call, struct rows dst, enum dtype dst_dtype, struct rows src,
        enum dtype src_dtype, int64_t cols)
{
	call_op(call, &(struct op){.kind = OP_COLUMNS,
	                      .columns = {.dst = dst.base,
	                              .src = src.base,
	                              .rows = dst.count,
	                              .cols = cols,
	                              .dst_stride = dst.stride,
	                              .src_stride = src.stride,
	                              .dst_dtype = dst_dtype,
	                              .src_dtype = src_dtype}});
}

static dev_addr token_index(const struct stage_call *call)
{
	return call->c->pool == POOL_CLS ? call->batch->target_row : call->batch->own[VECTORS_LAST];
}

static struct norm_place final_norm(const struct stage_call *call, const struct places *p)
{
	return (struct norm_place){ROLE_FINAL_NORM_W, ROLE_FINAL_NORM_B, scratch_at(call, p->rstd),
	        scratch_at(call, p->mean), scratch_at(call, p->zeros)};
}

/* The rows of the last block's output that the head reads. */
static dev_addr rows_pick(struct stage_call *call, const struct places *p)
{
	if (!picks_a_token(call))
		return call->memory->x;
	call_op(call, &(struct op){.kind = OP_GATHER,
	                      .gather = {scratch_at(call, p->picked), call->memory->x, token_index(call),
	                              p->rows, call->c->C, call->tokens, call->dtype, 0}});
	return scratch_at(call, p->picked);
}

/* The states behind the final norm, if there is one. */
static dev_addr states_find(struct stage_call *call, const struct places *p, dev_addr x)
{
	struct norm_place norm = final_norm(call, p);

	if (!call_has(call, ROLE_FINAL_NORM_W))
		return x;
	norm_forward(call, &norm, scratch_at(call, p->states), x, p->rows);
	return scratch_at(call, p->states);
}

/* The pooled states as F32 rows. */
static void pool(struct stage_call *call, const struct places *p, struct rows to, enum dtype dtype)
{
	int64_t C = call->c->C, N = call->documents;
	dev_addr states = states_find(call, p, rows_pick(call, p)), pooled = scratch_at(call, p->pooled);

	if (picks_a_token(call)) {
		columns(call, to, dtype, (struct rows){states, N, C}, call->dtype, C);
		return;
	}
	zero(call, pooled, N * C * 4);
	call_op(call, &(struct op){.kind = OP_EMBED_GRAD,
	                      .embed_grad = {pooled, states, call->batch->own[VECTORS_DOCUMENT],
	                              scratch_at(call, p->sort), call->tokens, C, N, -1, call->dtype}});
	columns(call, to, dtype, (struct rows){pooled, N, C}, DTYPE_F32, C);
}

/* ---- layers behind the pooling ---- */

static struct linear pool_layer(const struct stage_call *call)
{
	return (struct linear){ROLE_POOL_W, ROLE_POOL_B, call->c->C, call->c->C, 0, 0, 0};
}

static struct linear class_layer(const struct stage_call *call)
{
	return (struct linear){ROLE_CLASS_W, ROLE_CLASS_B, call->c->labels, call->c->C, 0, 0, 0};
}

/* out = tanh(x) */
static void activate(struct stage_call *call, dev_addr out, dev_addr x, int64_t count)
{
	call_op(call, &(struct op){.kind = OP_SCALE,
	                      .scale = {.dst = out,
	                              .src = x,
	                              .by = DEV_NONE,
	                              .count = count,
	                              .factor = 1,
	                              .cap = 1,
	                              .dtype = call->dtype}});
}

static void product(struct stage_call *call, dev_addr out, dev_addr a, dev_addr b, int64_t count)
{
	call_op(call, &(struct op){.kind = OP_GLU,
	                      .glu = {.out = out,
	                              .gate = a,
	                              .up = b,
	                              .count = count,
	                              .act = ACT_LINEAR,
	                              .dtype = call->dtype}});
}

/* d -= d y^2: from the gradient of y = tanh(x) that of x, in its place. Overwrites x. */
static void activate_backward(
        struct stage_call *call, const struct places *p, dev_addr d, dev_addr y, dev_addr x, int64_t count)
{
	dev_addr spare = scratch_at(call, p->spare);

	product(call, spare, y, y, count);
	product(call, x, spare, d, count);
	call_scale(call, x, x, count, -1);
	call_add(call, d, d, x, count);
}

/* From `input` to the vectors; leaves hidden and act for backward. Returns the input of the last layer. */
static dev_addr layers_forward(struct stage_call *call, const struct places *p)
{
	int64_t C = call->c->C, N = call->documents;
	dev_addr input = scratch_at(call, p->input), hidden = scratch_at(call, p->hidden),
	         act = scratch_at(call, p->act);
	struct linear layer = pool_layer(call);

	pool(call, p, (struct rows){input, N, C}, call->dtype);
	if (!call_has(call, ROLE_POOL_W))
		return input;
	linear_forward(call, &layer, (struct rows){hidden, N, C}, call->dtype, (struct rows){input, N, C});
	activate(call, act, hidden, N * C);
	return act;
}

static void vectors_find(struct stage_call *call, const struct places *p)
{
	int64_t N = call->documents, width = vectors_width(call->model), stride = width + VECTOR_FACTS;
	dev_addr to = call->memory->vectors;
	struct rows rows = {to, N, stride};
	struct linear layer = class_layer(call);

	if (call_has(call, ROLE_CLASS_W))
		linear_forward(
		        call, &layer, rows, DTYPE_F32, (struct rows){layers_forward(call, p), N, layer.in});
	else
		pool(call, p, rows, DTYPE_F32);
	for (int fact = 0; fact < VECTOR_FACTS; fact++)
		columns(call, (struct rows){dev_at(to, 4 * (width + fact)), N, stride}, DTYPE_F32,
		        (struct rows){call->batch->own[VECTORS_LABEL + fact], N, 1}, DTYPE_F32, 1);
}

/* The gradient of the pooled states, compute dtype [N, C], from that of the vectors. */
static dev_addr layers_backward(struct stage_call *call, const struct places *p)
{
	int64_t C = call->c->C, N = call->documents, width = call->c->labels;
	struct linear classes = class_layer(call), layer = pool_layer(call);
	dev_addr last = layers_forward(call, p), input = scratch_at(call, p->input);
	int has_pool = call_has(call, ROLE_POOL_W);
	struct rows dvector = {scratch_at(call, p->dvector), N, width},
	            dlast = {has_pool ? scratch_at(call, p->dact) : input, N, C};

	columns(call, dvector, call->dtype, (struct rows){call->memory->vectors, N, width + VECTOR_FACTS},
	        DTYPE_F32, width);
	linear_backward_weight(call, &classes, dvector, (struct rows){last, N, C});
	linear_backward_input(call, &classes, dlast, call->dtype, LINEAR_WRITE, dvector);
	if (!has_pool)
		return input;
	activate_backward(call, p, dlast.base, scratch_at(call, p->act), scratch_at(call, p->hidden), N * C);
	linear_backward_weight(call, &layer, dlast, (struct rows){input, N, C});
	linear_backward_input(call, &layer, (struct rows){input, N, C}, call->dtype, LINEAR_WRITE, dlast);
	return input;
}

/* The gradient of the states: `rows` of them. */
static void states_gradient(
        struct stage_call *call, const struct places *p, struct rows from, enum dtype dtype, dev_addr to)
{
	int64_t C = call->c->C, N = call->documents;
	dev_addr pooled = scratch_at(call, p->pooled), wide = scratch_at(call, p->wide);

	if (picks_a_token(call)) {
		columns(call, (struct rows){to, N, C}, call->dtype, from, dtype, C);
		return;
	}
	columns(call, (struct rows){pooled, N, C}, DTYPE_F32, from, dtype, C);
	call_op(call, &(struct op){.kind = OP_GATHER,
	                      .gather = {wide, pooled, call->batch->own[VECTORS_DOCUMENT], call->tokens, C, N,
	                              DTYPE_F32, 0}});
	columns(call, (struct rows){to, call->tokens, C}, call->dtype, (struct rows){wide, call->tokens, C},
	        DTYPE_F32, C);
}

static void gradients_find(struct stage_call *call, const struct places *p)
{
	int64_t C = call->c->C;
	struct norm_place norm = final_norm(call, p);
	dev_addr x, states = scratch_at(call, p->states), dx = call->memory->dx;
	struct rows from = {
	        call->memory->vectors, call->documents, vectors_width(call->model) + VECTOR_FACTS};
	enum dtype dtype = DTYPE_F32;

	if (call_has(call, ROLE_CLASS_W)) {
		from = (struct rows){layers_backward(call, p), call->documents, C};
		dtype = call->dtype;
	}
	x = rows_pick(call, p);
	if (dev_is_none(dx) && dev_is_none(grad_of(call, ROLE_FINAL_NORM_W)) &&
	        dev_is_none(grad_of(call, ROLE_FINAL_NORM_B)))
		return;
	(void)states_find(call, p, x); /* for the norm's numbers by row */
	states_gradient(call, p, from, dtype, states);
	if (call_has(call, ROLE_FINAL_NORM_W))
		norm_backward(call, &norm, states, states, x, p->rows, LINEAR_WRITE,
		        scratch_at(call, p->partial), scratch_at(call, p->sink));
	if (dev_is_none(dx))
		return;
	if (!picks_a_token(call)) {
		call_op(call, &(struct op){.kind = OP_COPY,
		                      .copy = {dx, states, call->tokens * C * call->element_bytes}});
		return;
	}
	zero(call, dx, call->tokens * C * call->element_bytes);
	call_op(call,
	        &(struct op){.kind = OP_SCATTER,
	                .scatter = {dx, states, token_index(call), p->rows, C, call->tokens, call->dtype}});
}

static void run(struct stage_call *call, enum head_mode mode)
{
	struct places p = places_of(call);

	if (mode == HEAD_VECTORS)
		vectors_find(call, &p);
	else
		gradients_find(call, &p);
}

const struct head_pass vectors_head = {run, scratch_bytes};
