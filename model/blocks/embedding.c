/* Forward and backward of the embedding of tokens and of learned positions, of the norm behind it, and of a
 * bias by distance for attention. */
#include "model/blocks/block.h"

#include "base/num.h"

/* Scratch: the sorted indices, then dx times embed_scale. With EMBED_NORM_W the sum of the embeddings, the
 * gradient of that sum, and what norms need. */
struct embed_layout {
	int64_t sorted, scaled, sum, dsum, rstd, mean, norm_partial, norm_zeros, norm_sink, bytes;
};

static struct embed_layout embed_layout_of(const struct stage_call *call)
{
	const struct model_config *c = call->c;
	int64_t rows = c->V, end = call->scratch.bytes, e = call->element_bytes, tokens = call->tokens;
	struct embed_layout l = {0};

	if (call_has(call, ROLE_POSITION) && c->max_positions > rows)
		rows = c->max_positions;
	l.sorted = layout_take(&end, embed_grad_scratch_count(tokens, rows), 4);
	l.scaled = layout_take(&end, c->embed_scale != 0 ? tokens * c->C : 0, e);
	if (call_has(call, ROLE_EMBED_NORM_W)) {
		l.sum = layout_take(&end, tokens * c->C, e);
		l.dsum = layout_take(&end, tokens * c->C, e);
		l.rstd = layout_take(&end, tokens, 4);
		l.mean = layout_take(&end, tokens, 4);
		l.norm_partial = layout_take(&end, norm_scratch_count(tokens, 1, c->C), 4);
		l.norm_zeros = layout_take(&end, c->norm_zeros, e);
		l.norm_sink = layout_take(&end, norm_sink_count(call->model), 4);
	}
	l.bytes = end;
	return l;
}

static int64_t embed_scratch_bytes(const struct stage_call *call)
{
	return embed_layout_of(call).bytes;
}

/* Only the norm behind the embedding, whose input is gathered again, and an adapter. */
static int embed_backward_reads(const struct stage_call *call)
{
	return call_has(call, ROLE_EMBED_NORM_W) || linear_has_adapter(call, ROLE_EMBED);
}

/* Where transformers has the factor as a tensor, it is rounded to the compute dtype. */
static void scale(struct stage_call *call, dev_addr dst, dev_addr src)
{
	float factor = (float)call->c->embed_scale;

	if (call->c->embed_scale_rounds && call->dtype == DTYPE_BF16)
		factor = bf16_to_f32(bf16_from_f32(factor));
	call_scale(call, dst, src, call->tokens * call->c->C, (double)factor);
}

/* The row of position 0 in the table of learned positions, or in its gradient. */
static dev_addr positions_at(const struct stage_call *call, dev_addr table, int64_t element_bytes)
{
	int64_t first = call->c->position_offset * call->c->C;

	return dev_is_none(table) ? table : dev_at(table, first * element_bytes);
}

static void gather(
        struct stage_call *call, dev_addr out, dev_addr table, int64_t table_rows, dev_addr index, int add)
{
	call_op(call, &(struct op){.kind = OP_GATHER,
	                      .gather = {.out = out,
	                              .table = table,
	                              .index = index,
	                              .rows = call->tokens,
	                              .cols = call->c->C,
	                              .table_rows = table_rows,
	                              .dtype = call->dtype,
	                              .accumulate = add}});
}

static void gather_backward(struct stage_call *call, const struct embed_layout *l, dev_addr grad,
        int64_t table_rows, dev_addr index, int64_t skip, dev_addr dy)
{
	if (!dev_is_none(grad))
		call_op(call, &(struct op){.kind = OP_EMBED_GRAD,
		                      .embed_grad = {.grad = grad,
		                              .dy = dy,
		                              .index = index,
		                              .scratch = scratch_at(call, l->sorted),
		                              .rows = call->tokens,
		                              .cols = call->c->C,
		                              .table_rows = table_rows,
		                              .skip_index = skip,
		                              .dtype = call->dtype}});
}

/* y = the embeddings of tokens and positions */
static void sum_embeddings(struct stage_call *call, dev_addr y)
{
	const struct model_config *c = call->c;

	gather(call, y, weight_of(call, ROLE_EMBED), c->V, call->batch->id, 0);
	adapter_embed(call, y);
	if (c->embed_scale != 0)
		scale(call, y, y);
	if (!dev_is_none(call->batch->noise) && call->memory->neftune_alpha > 0)
		call_op(call, &(struct op){.kind = OP_NEFTUNE,
		                      .neftune = {.x = y,
		                              .key = call->batch->noise,
		                              .doc_start = call->batch->doc_start,
		                              .doc_end = call->batch->doc_end,
		                              .rows = call->tokens,
		                              .cols = c->C,
		                              .alpha = call->memory->neftune_alpha,
		                              .dtype = call->dtype}});
	if (call_has(call, ROLE_POSITION))
		gather(call, y, positions_at(call, weight_of(call, ROLE_POSITION), call->element_bytes),
		        c->max_positions, call->batch->position, 1);
	if (call_has(call, ROLE_TYPE))
		gather(call, y, weight_of(call, ROLE_TYPE), c->types, call->batch->type, 1);
}

static struct norm_place embed_norm_of(const struct stage_call *call, const struct embed_layout *l)
{
	return (struct norm_place){ROLE_EMBED_NORM_W, ROLE_EMBED_NORM_B, scratch_at(call, l->rstd),
	        scratch_at(call, l->mean), scratch_at(call, l->norm_zeros)};
}

/* y = norm(sum), or the sum alone */
static void embed(struct stage_call *call, const struct embed_layout *l, dev_addr y)
{
	struct norm_place norm = embed_norm_of(call, l);
	dev_addr sum = scratch_at(call, l->sum);

	if (!call_has(call, ROLE_EMBED_NORM_W)) {
		sum_embeddings(call, y);
		return;
	}
	sum_embeddings(call, sum);
	norm_forward(call, &norm, y, sum, call->tokens);
}

/* Computes the sum's gradient from dx. The sum and its statistics are computed again. */
static dev_addr embed_norm_backward(struct stage_call *call, const struct embed_layout *l)
{
	struct norm_place norm = embed_norm_of(call, l);
	dev_addr dsum = scratch_at(call, l->dsum);

	embed(call, l, dsum);
	norm_backward(call, &norm, dsum, call->memory->dx, scratch_at(call, l->sum), call->tokens,
	        LINEAR_WRITE, scratch_at(call, l->norm_partial), scratch_at(call, l->norm_sink));
	return dsum;
}

static void embed_forward(struct stage_call *call)
{
	struct embed_layout l = embed_layout_of(call);

	embed(call, &l, call->memory->y);
	if (call_has(call, ROLE_RELATIVE))
		call_op(call, &(struct op){.kind = OP_RELATIVE,
		                      .relative = {.out = value_of(call, 0)->at,
		                              .table = weight_of(call, ROLE_RELATIVE),
		                              .tokens = call->tokens,
		                              .heads = call->c->H,
		                              .table_rows = call->c->relative_rows,
		                              .rule = call->c->relative,
		                              .dtype = call->dtype}});
}

/* From the sum of the gradients of all layers' attention. */
static void relative_backward(struct stage_call *call)
{
	dev_addr grad = grad_of(call, ROLE_RELATIVE);

	if (!dev_is_none(grad) && !dev_is_none(value_of(call, 0)->grad))
		call_op(call, &(struct op){.kind = OP_RELATIVE_GRAD,
		                      .relative_grad = {.dtable = grad,
		                              .dout = value_of(call, 0)->grad,
		                              .tokens = call->tokens,
		                              .heads = call->c->H,
		                              .table_rows = call->c->relative_rows,
		                              .rule = call->c->relative}});
}

static void embed_backward(struct stage_call *call)
{
	const struct model_config *c = call->c;
	struct embed_layout l = embed_layout_of(call);
	dev_addr dx = call_has(call, ROLE_EMBED_NORM_W) ? embed_norm_backward(call, &l) : call->memory->dx,
	         scaled = dx;

	if (c->embed_scale != 0 &&
	        (!dev_is_none(grad_of(call, ROLE_EMBED)) || linear_has_adapter(call, ROLE_EMBED))) {
		scaled = scratch_at(call, l.scaled);
		scale(call, scaled, dx);
	}
	gather_backward(call, &l, grad_of(call, ROLE_EMBED), c->V, call->batch->id, c->pad_id, scaled);
	adapter_embed_backward(call, scaled, scratch_at(call, l.sorted));
	if (call_has(call, ROLE_POSITION))
		gather_backward(call, &l, positions_at(call, grad_of(call, ROLE_POSITION), 4),
		        c->max_positions, call->batch->position, -1, dx);
	if (call_has(call, ROLE_TYPE))
		gather_backward(call, &l, grad_of(call, ROLE_TYPE), c->types, call->batch->type, -1, dx);
	if (call_has(call, ROLE_RELATIVE))
		relative_backward(call);
}

const struct stage_type stage_embed = {.forward = embed_forward,
        .backward = embed_backward,
        .writes_stream = 1,
        .scratch_bytes = embed_scratch_bytes,
        .backward_reads = embed_backward_reads};
