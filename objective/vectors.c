/* Pooled states of documents as vectors, and their backward. */
#include "objective/vectors.h"

#include "base/err.h"
#include "base/size.h"
#include "data/batch.h"
#include "device/op.h"
#include "model/blocks/block.h"

#include <math.h>
#include <string.h>

int64_t vectors_targets(const struct batch_draws *draws, const struct dataset *data, int64_t row)
{
	(void)draws;
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
	double tokens = (double)count;
	int64_t d = document->index;

	bits = bits == DATASET_IGNORE ? 0 : bits; /* a label of 0 is not stored */
	for (int32_t t = 0; t < count; t++) {
		int32_t at = document->first_token + t;

		index[at] = (int32_t)d;
		type[at] = second != DATASET_IGNORE && t >= second;
		((float *)mb->own[VECTORS_WEIGHT])[at] = (float)((t + 1) * 2 / (tokens * (tokens + 1)));
	}
	memcpy((float *)mb->own[VECTORS_LABEL] + d, &bits, sizeof(bits));
	((float *)mb->own[VECTORS_TOKENS])[d] = (float)count;
	((float *)mb->own[VECTORS_PLACE])[d] = (float)document->place;
	((float *)mb->own[VECTORS_MEAN])[d] = (float)(1 / tokens);
	((float *)mb->own[VECTORS_ROOT])[d] = (float)(1 / sqrt(tokens));
	last[d] = document->first_token + count - 1;
	mb->target_rows[mb->target_count++] = document->first_token;
}

int vectors_check(const struct model *model)
{
	return model->config.pooling.mode_count
	               ? 0
	               : err_set(ERR_UNSUPPORTED, "the model's head gives logits, not vectors");
}

int64_t vectors_width(const struct model *model)
{
	return pooling_width(&model->config.pooling, model->config.C);
}

/* ---- on the device ---- */

/* A layer behind the pooling: its output, its input in the compute dtype, and what backward needs. */
struct layer_place {
	int64_t out;        /* F32 [N, out] */
	int64_t cast;       /* compute dtype [N, in]; F32: not there, the input is it */
	int64_t before;     /* DENSE: F32 [N, out] before the activation. NORM: compute dtype, its output */
	int64_t rstd, mean; /* F32 [N] */
};

/* F32 unless it says else; N documents. `rows` are the tokens that the norm sees: all, or one a document. */
struct places {
	int64_t rows;
	int64_t picked, states, rstd, mean; /* compute dtype [N, C], [rows, C]; [rows] */
	int64_t pooled, wide, weighed;      /* of one pooling [N, C]; [tokens, C] */
	int64_t largest;                    /* I32 [N, C] */
	int64_t input;                      /* [N, width of all poolings] */
	struct layer_place layer[POOL_LAYERS_MAX];
	int64_t gradient[2], cast;          /* [N, the widest]; compute dtype, the same */
	int64_t partial, sink, zeros, sort; /* scratch of ops */
	int64_t bytes;
};

static const struct pooling *pooling_of(const struct stage_call *call)
{
	return &call->c->pooling;
}

static int64_t widest(const struct stage_call *call)
{
	const struct pooling *p = pooling_of(call);
	int64_t most = p->mode_count * call->c->C;

	for (int l = 0; l < p->layer_count; l++)
		most = max_i64(most, p->layer[l].out);
	return most;
}

static void layers_place(struct places *p, const struct stage_call *call, int64_t *end)
{
	const struct pooling *pooling = pooling_of(call);
	int64_t N = call->documents, e = call->element_bytes;
	int is_wide = call->dtype == DTYPE_F32;

	for (int l = 0; l < pooling->layer_count; l++) {
		const struct pool_layer *layer = &pooling->layer[l];
		struct layer_place *at = &p->layer[l];
		int has_cast = layer->kind != POOL_LAYER_UNIT && !is_wide,
		    is_dense = layer->kind == POOL_LAYER_DENSE;

		at->out = layout_take(end, N * layer->out, 4);
		at->cast = layout_take(end, has_cast ? N * layer->in : 0, e);
		at->before = layout_take(
		        end, layer->kind == POOL_LAYER_UNIT ? 0 : N * layer->out, is_dense ? 4 : e);
		at->rstd = layout_take(end, is_dense ? 0 : N, 4);
		at->mean = layout_take(end, is_dense ? 0 : N, 4);
	}
	for (int i = 0; i < 2; i++)
		p->gradient[i] = layout_take(end, pooling->layer_count ? N * widest(call) : 0, 4);
	p->cast = layout_take(end, pooling->layer_count ? N * widest(call) : 0, e);
}

static struct places places_of(const struct stage_call *call)
{
	const struct pooling *pooling = pooling_of(call);
	int64_t C = call->c->C, N = call->documents, e = call->element_bytes, end = 0,
	        wide = call->tokens * C;
	int picks = pooling_picks(pooling);
	struct places p = {.rows = picks ? N : call->tokens};

	p.picked = layout_take(&end, N * C, e);
	p.states = layout_take(&end, p.rows * C, e);
	p.rstd = layout_take(&end, p.rows, 4);
	p.mean = layout_take(&end, p.rows, 4);
	p.pooled = layout_take(&end, N * C, 4);
	p.wide = layout_take(&end, picks ? 0 : wide, 4);
	p.weighed = layout_take(&end, pooling_has(pooling, POOL_WEIGHTED_MEAN) ? wide : 0, 4);
	p.largest = layout_take(&end, pooling_has(pooling, POOL_MAX) ? N * C : 0, 4);
	p.input = layout_take(&end, N * C * pooling->mode_count, 4);
	layers_place(&p, call, &end);
	p.partial = layout_take(
	        &end, max_i64(norm_scratch_count(p.rows, 1, C), norm_scratch_count(N, 1, widest(call))), 4);
	p.sink = layout_take(&end, max_i64(norm_sink_count(call->model), widest(call)), 4);
	p.zeros = layout_take(&end, max_i64(call->c->norm_zeros, widest(call)), 4);
	p.sort = layout_take(&end,
	        max_i64(embed_grad_scratch_count(call->tokens, N), embed_grad_scratch_count(N, call->tokens)),
	        4);
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

static struct norm_place final_norm(const struct stage_call *call, const struct places *p)
{
	return (struct norm_place){ROLE_FINAL_NORM_W, ROLE_FINAL_NORM_B, scratch_at(call, p->rstd),
	        scratch_at(call, p->mean), scratch_at(call, p->zeros)};
}

/* ---- poolings ---- */

static dev_addr token_index(const struct stage_call *call, enum pool_mode mode)
{
	return mode == POOL_CLS ? call->batch->target_row : call->batch->own[VECTORS_LAST];
}

/* Rows of a document's first or last token. */
static void rows_gather(struct stage_call *call, dev_addr out, dev_addr table, enum pool_mode mode)
{
	call_op(call, &(struct op){.kind = OP_GATHER,
	                      .gather = {.out = out,
	                              .table = table,
	                              .index = token_index(call, mode),
	                              .rows = call->documents,
	                              .cols = call->c->C,
	                              .table_rows = call->tokens,
	                              .dtype = call->dtype}});
}

/* The rows of the last block's output that the head reads. */
static dev_addr rows_pick(struct stage_call *call, const struct places *p)
{
	dev_addr picked = scratch_at(call, p->picked);

	if (!pooling_picks(pooling_of(call)))
		return call->memory->x;
	rows_gather(call, picked, call->memory->x, pooling_of(call)->mode[0]);
	return picked;
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

static void weigh(struct stage_call *call, dev_addr x, int weights, int64_t rows)
{
	call_op(call, &(struct op){.kind = OP_WEIGH,
	                      .weigh = {.x = x,
	                              .weights = call->batch->own[weights],
	                              .slot = DEV_NONE,
	                              .rows = rows,
	                              .cols = call->c->C,
	                              .dtype = DTYPE_F32}});
}

/* pooled, F32 [N, C], = the sum of each document's rows. */
static void documents_sum(struct stage_call *call, const struct places *p, dev_addr rows, enum dtype dtype)
{
	int64_t C = call->c->C, N = call->documents;
	dev_addr pooled = scratch_at(call, p->pooled);

	zero(call, pooled, N * C * 4);
	call_op(call, &(struct op){.kind = OP_EMBED_GRAD,
	                      .embed_grad = {pooled, rows, call->batch->own[VECTORS_DOCUMENT],
	                              scratch_at(call, p->sort), call->tokens, C, N, -1, dtype, 0}});
}

/* One of the poolings: states of all tokens become F32 rows. */
static void mode_pool(
        struct stage_call *call, const struct places *p, enum pool_mode mode, dev_addr states, struct rows to)
{
	int64_t C = call->c->C, N = call->documents, tokens = call->tokens;
	dev_addr pooled = scratch_at(call, p->pooled), picked = scratch_at(call, p->picked),
	         weighed = scratch_at(call, p->weighed);

	if (mode == POOL_CLS || mode == POOL_LASTTOKEN) {
		rows_gather(call, picked, states, mode);
		columns(call, to, DTYPE_F32, (struct rows){picked, N, C}, call->dtype, C);
		return;
	}
	if (mode == POOL_MAX) {
		call_op(call, &(struct op){.kind = OP_POOL_MAX,
		                      .pool_max = {pooled, scratch_at(call, p->largest), states,
		                              call->batch->target_row, call->batch->own[VECTORS_LAST], N, C,
		                              tokens, call->dtype}});
	} else if (mode == POOL_WEIGHTED_MEAN) {
		columns(call, (struct rows){weighed, tokens, C}, DTYPE_F32, (struct rows){states, tokens, C},
		        call->dtype, C);
		weigh(call, weighed, VECTORS_WEIGHT, tokens);
		documents_sum(call, p, weighed, DTYPE_F32);
	} else {
		documents_sum(call, p, states, call->dtype);
		weigh(call, pooled, mode == POOL_MEAN ? VECTORS_MEAN : VECTORS_ROOT, N);
	}
	columns(call, to, DTYPE_F32, (struct rows){pooled, N, C}, DTYPE_F32, C);
}

static void pool(struct stage_call *call, const struct places *p)
{
	const struct pooling *pooling = pooling_of(call);
	int64_t C = call->c->C, N = call->documents;
	dev_addr states = states_find(call, p, rows_pick(call, p)), input = scratch_at(call, p->input);

	if (pooling_picks(pooling)) {
		columns(call, (struct rows){input, N, C}, DTYPE_F32, (struct rows){states, N, C}, call->dtype,
		        C);
		return;
	}
	for (int m = 0; m < pooling->mode_count; m++)
		mode_pool(call, p, pooling->mode[m], states,
		        (struct rows){dev_at(input, 4 * m * C), N, pooling->mode_count * C});
}

/* Adds to `wide`, F32 [tokens, C], from the gradient of one of the poolings, F32 [N, C], which it changes. */
static void mode_backward(struct stage_call *call, const struct places *p, enum pool_mode mode)
{
	int64_t C = call->c->C, N = call->documents, tokens = call->tokens;
	dev_addr pooled = scratch_at(call, p->pooled), wide = scratch_at(call, p->wide),
	         weighed = scratch_at(call, p->weighed), document = call->batch->own[VECTORS_DOCUMENT];

	if (mode == POOL_CLS || mode == POOL_LASTTOKEN)
		call_op(call, &(struct op){.kind = OP_EMBED_GRAD,
		                      .embed_grad = {wide, pooled, token_index(call, mode),
		                              scratch_at(call, p->sort), N, C, tokens, -1, DTYPE_F32, 0}});
	else if (mode == POOL_MAX)
		call_op(call,
		        &(struct op){.kind = OP_POOL_MAX_GRAD,
		                .pool_max_grad = {wide, pooled, scratch_at(call, p->largest), N, C, tokens}});
	else if (mode == POOL_WEIGHTED_MEAN) {
		call_op(call, &(struct op){.kind = OP_GATHER,
		                      .gather = {.out = weighed,
		                              .table = pooled,
		                              .index = document,
		                              .rows = tokens,
		                              .cols = C,
		                              .table_rows = N,
		                              .dtype = DTYPE_F32}});
		weigh(call, weighed, VECTORS_WEIGHT, tokens);
		call_op(call, &(struct op){.kind = OP_ADD,
		                      .add = {.dst = wide,
		                              .a = wide,
		                              .b = weighed,
		                              .count = tokens * C,
		                              .dtype = DTYPE_F32}});
	} else {
		weigh(call, pooled, mode == POOL_MEAN ? VECTORS_MEAN : VECTORS_ROOT, N);
		call_op(call, &(struct op){.kind = OP_GATHER,
		                      .gather = {.out = wide,
		                              .table = pooled,
		                              .index = document,
		                              .rows = tokens,
		                              .cols = C,
		                              .table_rows = N,
		                              .dtype = DTYPE_F32,
		                              .accumulate = 1}});
	}
}

/* The gradient of the states, `rows` of them, from that of the pooled ones. */
static void pool_backward(struct stage_call *call, const struct places *p, struct rows from, dev_addr to)
{
	const struct pooling *pooling = pooling_of(call);
	int64_t C = call->c->C, N = call->documents, tokens = call->tokens;
	dev_addr wide = scratch_at(call, p->wide);

	if (pooling_picks(pooling)) {
		columns(call, (struct rows){to, N, C}, call->dtype, from, DTYPE_F32, C);
		return;
	}
	zero(call, wide, tokens * C * 4);
	for (int m = 0; m < pooling->mode_count; m++) {
		struct rows own = {dev_at(from.base, 4 * m * C), N, from.stride};

		columns(call, (struct rows){scratch_at(call, p->pooled), N, C}, DTYPE_F32, own, DTYPE_F32, C);
		mode_backward(call, p, pooling->mode[m]);
	}
	columns(call, (struct rows){to, tokens, C}, call->dtype, (struct rows){wide, tokens, C}, DTYPE_F32,
	        C);
}

/* ---- layers behind the pooling ---- */

static dev_addr layer_input(const struct stage_call *call, const struct places *p, int l)
{
	return scratch_at(call, l ? p->layer[l - 1].out : p->input);
}

/* Its input in the compute dtype. */
static struct rows layer_cast(struct stage_call *call, const struct places *p, int l)
{
	int64_t in = pooling_of(call)->layer[l].in, N = call->documents;
	struct rows x = {layer_input(call, p, l), N, in}, cast = {scratch_at(call, p->layer[l].cast), N, in};

	if (call->dtype == DTYPE_F32)
		return x;
	columns(call, cast, call->dtype, x, DTYPE_F32, in);
	return cast;
}

static struct linear linear_of(const struct pool_layer *layer)
{
	return (struct linear){(enum tensor_role)layer->weight, (enum tensor_role)layer->bias, layer->out,
	        layer->in, 0, 0, 0};
}

static struct norm_place norm_of(const struct stage_call *call, const struct places *p, int l)
{
	const struct pool_layer *layer = &pooling_of(call)->layer[l];

	return (struct norm_place){(enum tensor_role)layer->weight, (enum tensor_role)layer->bias,
	        scratch_at(call, p->layer[l].rstd), scratch_at(call, p->layer[l].mean),
	        scratch_at(call, p->zeros)};
}

/* x / |x| is the RMS norm of x with a weight of 1 / sqrt(width). */
static void unit_forward(struct stage_call *call, const struct places *p, int l)
{
	int64_t width = pooling_of(call)->layer[l].in;

	zero(call, scratch_at(call, p->zeros), width * 4);
	call_op(call, &(struct op){.kind = OP_RMSNORM,
	                      .norm = {.y = scratch_at(call, p->layer[l].out),
	                              .x = layer_input(call, p, l),
	                              .weight = scratch_at(call, p->zeros),
	                              .bias = DEV_NONE,
	                              .rstd = scratch_at(call, p->layer[l].rstd),
	                              .mean = DEV_NONE,
	                              .rows = call->documents,
	                              .groups = 1,
	                              .cols = width,
	                              .x_stride = width,
	                              .y_stride = width,
	                              .epsilon = 1e-24 / (double)width,
	                              .weight_offset = 1 / sqrt((double)width),
	                              .dtype = DTYPE_F32}});
}

static void unit_backward(struct stage_call *call, const struct places *p, int l, dev_addr dx, dev_addr dy)
{
	int64_t width = pooling_of(call)->layer[l].in;

	zero(call, scratch_at(call, p->zeros), width * 4);
	zero(call, scratch_at(call, p->sink), width * 4);
	call_op(call, &(struct op){.kind = OP_RMSNORM_GRAD,
	                      .norm_grad = {.dx = dx,
	                              .dweight = scratch_at(call, p->sink),
	                              .dbias = DEV_NONE,
	                              .dy = dy,
	                              .x = layer_input(call, p, l),
	                              .weight = scratch_at(call, p->zeros),
	                              .rstd = scratch_at(call, p->layer[l].rstd),
	                              .mean = DEV_NONE,
	                              .scratch = scratch_at(call, p->partial),
	                              .rows = call->documents,
	                              .groups = 1,
	                              .cols = width,
	                              .x_stride = width,
	                              .y_stride = width,
	                              .weight_offset = 1 / sqrt((double)width),
	                              .dtype = DTYPE_F32}});
}

static void layer_forward(struct stage_call *call, const struct places *p, int l)
{
	const struct pool_layer *layer = &pooling_of(call)->layer[l];
	int64_t N = call->documents;
	dev_addr out = scratch_at(call, p->layer[l].out), before = scratch_at(call, p->layer[l].before);
	struct linear linear = linear_of(layer);
	struct norm_place norm = norm_of(call, p, l);

	if (layer->kind == POOL_LAYER_UNIT) {
		unit_forward(call, p, l);
	} else if (layer->kind == POOL_LAYER_NORM) {
		norm_forward(call, &norm, before, layer_cast(call, p, l).base, N);
		columns(call, (struct rows){out, N, layer->out}, DTYPE_F32,
		        (struct rows){before, N, layer->out}, call->dtype, layer->out);
	} else {
		linear_forward(call, &linear, (struct rows){before, N, layer->out}, DTYPE_F32,
		        layer_cast(call, p, l));
		call_op(call, &(struct op){.kind = OP_ACT,
		                      .act = {out, before, N * layer->out, layer->act, DTYPE_F32}});
	}
}

/* From the gradient of its output, which it changes, that of its input; both F32. */
static void layer_backward(struct stage_call *call, const struct places *p, int l, dev_addr dx, dev_addr dy)
{
	const struct pool_layer *layer = &pooling_of(call)->layer[l];
	int64_t N = call->documents;
	struct rows cast = {scratch_at(call, p->cast), N, layer->out},
	            x = {call->dtype == DTYPE_F32 ? layer_input(call, p, l)
	                                          : scratch_at(call, p->layer[l].cast),
	                    N, layer->in};
	struct linear linear = linear_of(layer);
	struct norm_place norm = norm_of(call, p, l);

	if (layer->kind == POOL_LAYER_UNIT) {
		unit_backward(call, p, l, dx, dy);
		return;
	}
	if (layer->kind == POOL_LAYER_DENSE)
		call_op(call, &(struct op){.kind = OP_ACT_GRAD,
		                      .act_grad = {dy, dy, scratch_at(call, p->layer[l].before),
		                              N * layer->out, layer->act, DTYPE_F32}});
	columns(call, cast, call->dtype, (struct rows){dy, N, layer->out}, DTYPE_F32, layer->out);
	if (layer->kind == POOL_LAYER_NORM) {
		norm_backward(call, &norm, cast.base, cast.base, x.base, N, LINEAR_WRITE,
		        scratch_at(call, p->partial), scratch_at(call, p->sink));
		columns(call, (struct rows){dx, N, layer->in}, DTYPE_F32, cast, call->dtype, layer->in);
		return;
	}
	linear_backward_weight(call, &linear, cast, x);
	linear_backward_input(call, &linear, (struct rows){dx, N, layer->in}, DTYPE_F32, LINEAR_WRITE, cast);
}

/* ---- both ways ---- */

static void all_forward(struct stage_call *call, const struct places *p)
{
	pool(call, p);
	for (int l = 0; l < pooling_of(call)->layer_count; l++)
		layer_forward(call, p, l);
}

static void vectors_find(struct stage_call *call, const struct places *p)
{
	int64_t N = call->documents, width = vectors_width(call->model), stride = width + VECTOR_FACTS;
	dev_addr to = call->memory->vectors;

	all_forward(call, p);
	columns(call, (struct rows){to, N, stride}, DTYPE_F32,
	        (struct rows){layer_input(call, p, pooling_of(call)->layer_count), N, width}, DTYPE_F32,
	        width);
	for (int fact = 0; fact < VECTOR_FACTS; fact++)
		columns(call, (struct rows){dev_at(to, 4 * (width + fact)), N, stride}, DTYPE_F32,
		        (struct rows){call->batch->own[VECTORS_LABEL + fact], N, 1}, DTYPE_F32, 1);
}

/* The gradient of the pooled states, from that of the vectors. */
static struct rows layers_backward(struct stage_call *call, const struct places *p)
{
	int64_t N = call->documents, width = vectors_width(call->model);
	struct rows from = {call->memory->vectors, N, width + VECTOR_FACTS},
	            d = {scratch_at(call, p->gradient[0]), N, width};
	int l = pooling_of(call)->layer_count;

	if (!l)
		return from;
	columns(call, d, DTYPE_F32, from, DTYPE_F32, width);
	while (l-- > 0) {
		struct rows dx = {scratch_at(call, p->gradient[1]), N, pooling_of(call)->layer[l].in};

		if (d.base.value == dx.base.value)
			dx.base = scratch_at(call, p->gradient[0]);
		layer_backward(call, p, l, dx.base, d.base);
		d = dx;
	}
	return d;
}

static void gradients_find(struct stage_call *call, const struct places *p)
{
	int64_t C = call->c->C;
	struct norm_place norm = final_norm(call, p);
	dev_addr x, states = scratch_at(call, p->states), dx = call->memory->dx;
	struct rows from;

	all_forward(call, p); /* what backward reads of it */
	from = layers_backward(call, p);
	if (dev_is_none(dx) && dev_is_none(grad_of(call, ROLE_FINAL_NORM_W)) &&
	        dev_is_none(grad_of(call, ROLE_FINAL_NORM_B)))
		return;
	x = pooling_picks(pooling_of(call)) ? scratch_at(call, p->picked) : call->memory->x;
	pool_backward(call, p, from, states);
	if (call_has(call, ROLE_FINAL_NORM_W))
		norm_backward(call, &norm, states, states, x, p->rows, LINEAR_WRITE,
		        scratch_at(call, p->partial), scratch_at(call, p->sink));
	if (dev_is_none(dx))
		return;
	if (!pooling_picks(pooling_of(call))) {
		call_op(call, &(struct op){.kind = OP_COPY,
		                      .copy = {dx, states, call->tokens * C * call->element_bytes}});
		return;
	}
	zero(call, dx, call->tokens * C * call->element_bytes);
	call_op(call, &(struct op){.kind = OP_SCATTER,
	                      .scatter = {dx, states, token_index(call, pooling_of(call)->mode[0]), p->rows,
	                              C, call->tokens, call->dtype}});
}

static void run(struct stage_call *call, enum head_mode mode)
{
	struct places p = places_of(call);

	if (mode == HEAD_VECTORS)
		vectors_find(call, &p);
	else
		gradients_find(call, &p);
}

const struct head_pass vectors_head = {run, scratch_bytes, 0};
