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
	((float *)mb->own[VECTORS_SHARE])[d] = 1 / (float)count;
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
	return model->config.C;
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
	p.zeros = layout_take(&end, norm_zero_count(call->c), e);
	p.sort = layout_take(&end, embed_grad_scratch_count(call->tokens, N), 4);
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

static void vectors_find(struct stage_call *call, const struct places *p)
{
	int64_t C = call->c->C, N = call->documents, stride = vectors_width(call->model) + VECTOR_FACTS;
	dev_addr states = states_find(call, p, rows_pick(call, p)), pooled = scratch_at(call, p->pooled),
	         to = call->memory->vectors;

	if (picks_a_token(call)) {
		columns(call, (struct rows){to, N, stride}, DTYPE_F32, (struct rows){states, N, C},
		        call->dtype, C);
	} else {
		zero(call, pooled, N * C * 4);
		call_op(call,
		        &(struct op){.kind = OP_EMBED_GRAD,
		                .embed_grad = {pooled, states, call->batch->own[VECTORS_DOCUMENT],
		                        scratch_at(call, p->sort), call->tokens, C, N, -1, call->dtype}});
		columns(call, (struct rows){to, N, stride}, DTYPE_F32, (struct rows){pooled, N, C}, DTYPE_F32,
		        C);
	}
	for (int fact = 0; fact < VECTOR_FACTS; fact++)
		columns(call, (struct rows){dev_at(to, 4 * (stride - VECTOR_FACTS + fact)), N, stride},
		        DTYPE_F32, (struct rows){call->batch->own[VECTORS_LABEL + fact], N, 1}, DTYPE_F32, 1);
}

/* The gradient of the states: `rows` of them. */
static void states_gradient(struct stage_call *call, const struct places *p, dev_addr to)
{
	int64_t C = call->c->C, N = call->documents, stride = vectors_width(call->model) + VECTOR_FACTS;
	dev_addr pooled = scratch_at(call, p->pooled), wide = scratch_at(call, p->wide);
	struct rows from = {call->memory->vectors, N, stride};

	if (picks_a_token(call)) {
		columns(call, (struct rows){to, N, C}, call->dtype, from, DTYPE_F32, C);
		return;
	}
	columns(call, (struct rows){pooled, N, C}, DTYPE_F32, from, DTYPE_F32, C);
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
	dev_addr x = rows_pick(call, p), states = scratch_at(call, p->states), dx = call->memory->dx;

	if (dev_is_none(dx) && dev_is_none(grad_of(call, ROLE_FINAL_NORM_W)) &&
	        dev_is_none(grad_of(call, ROLE_FINAL_NORM_B)))
		return;
	(void)states_find(call, p, x); /* for the norm's numbers by row */
	states_gradient(call, p, states);
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
