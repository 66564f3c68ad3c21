/* An objective that ferry does not have, in one file: embeddings of documents, and InfoNCE over those of a
 * micro-batch, all of it on the device.
 *
 * The embedding of a document is the mean of its tokens' states behind the final norm, or the last of them,
 * divided by its length. Documents 2q and 2q + 1 are a query and its answer; all answers of the micro-batch
 * are candidates for each query, and the loss of a query is the cross-entropy of `scale` times its cosines.
 */
#ifndef FERRY_TESTS_EMBEDDING_OBJECTIVE_H
#define FERRY_TESTS_EMBEDDING_OBJECTIVE_H

#include "base/err.h"
#include "base/size.h"
#include "data/batch.h"
#include "model/blocks/block.h"
#include "objective/objective.h"

#include <math.h>

enum { LABEL, DOCUMENT, LAST }; /* arrays */
enum { SCALE, POOLING };        /* settings */
enum embedding_pool { POOLING_MEAN, POOLING_LAST };

/* A query is a target. */
static int64_t embedding_targets(const struct batch_draws *draws, const struct dataset *data, int64_t row)
{
	(void)draws;
	(void)data;
	return row % 2 == 0;
}

static void embedding_add(struct micro_batch *mb, const struct batch_document *document)
{
	int32_t *label = mb->own[LABEL], *index = mb->own[DOCUMENT], *last = mb->own[LAST];
	int32_t count = (int32_t)document->row.token_count;

	for (int32_t t = 0; t < count; t++)
		index[document->first_token + t] = (int32_t)document->index;
	last[document->index] = document->first_token + count - 1;
	if (document->index % 2)
		return;
	label[mb->target_count] = (int32_t)mb->target_count;
	mb->target_rows[mb->target_count++] = last[document->index];
}

/* F32 unless it says else; N documents, Q queries. */
struct places {
	int64_t states, rstd, mean; /* compute dtype [tokens, C], behind the norm or its gradient; [tokens] */
	int64_t picked;             /* compute dtype [N, C] */
	int64_t pooled, unit, lengths;      /* [N, C], the same with a root mean square of 1, [N] */
	int64_t scores, dunit, wide;        /* [Q, Q], [N, C], [tokens, C] */
	int64_t partial, sink, zeros, sort; /* scratch of ops */
	int64_t bytes;
};

static struct places places_of(const struct stage_call *call)
{
	int64_t C = call->c->C, tokens = call->tokens, N = call->documents, Q = call->targets, end = 0;
	int64_t partial = max_i64(norm_scratch_count(tokens, 1, C), norm_scratch_count(N + 1, 1, C));
	struct places p;

	p.states = layout_take(&end, tokens * C, call->element_bytes);
	p.rstd = layout_take(&end, tokens, 4);
	p.mean = layout_take(&end, tokens, 4);
	p.picked = layout_take(&end, N * C, call->element_bytes);
	p.pooled = layout_take(&end, N * C, 4);
	p.unit = layout_take(&end, N * C, 4);
	p.lengths = layout_take(&end, N, 4);
	p.scores = layout_take(&end, Q * Q, 4);
	p.dunit = layout_take(&end, N * C, 4);
	p.wide = layout_take(&end, tokens * C, 4);
	p.partial = layout_take(&end, max_i64(partial, cross_entropy_scratch_count(Q + 1)), 4);
	p.sink = layout_take(&end, max_i64(norm_sink_count(call->model), C), 4);
	p.zeros = layout_take(&end, C, 4);
	p.sort = layout_take(&end, embed_grad_scratch_count(tokens, N + 1), 4);
	p.bytes = end;
	return p;
}

static int64_t embedding_scratch_bytes(const struct stage_call *call)
{
	return places_of(call).bytes;
}

static void zero(struct stage_call *call, dev_addr dst, int64_t bytes)
{
	call_op(call, &(struct op){.kind = OP_FILL, .fill = {.dst = dst, .bytes = bytes}});
}

static void convert(
        struct stage_call *call, dev_addr dst, enum dtype to, dev_addr src, enum dtype from, int64_t count)
{
	if (to == from)
		call_op(call, &(struct op){.kind = OP_COPY, .copy = {dst, src, count * dtype_bytes(to)}});
	else
		call_op(call, &(struct op){.kind = OP_CAST, .cast = {dst, src, count, to, from}});
}

static enum embedding_pool embedding_pool_of(const struct stage_call *call)
{
	return (enum embedding_pool)call->memory->settings[POOLING];
}

static struct norm_place final_norm(const struct stage_call *call, const struct places *p)
{
	return (struct norm_place){ROLE_FINAL_NORM_W, ROLE_FINAL_NORM_B, scratch_at(call, p->rstd),
	        scratch_at(call, p->mean), scratch_at(call, p->zeros)};
}

/* Sums instead of means: their lengths are divided out. */
static void pool(struct stage_call *call, const struct places *p)
{
	const struct device_batch *b = call->batch;
	int64_t C = call->c->C;
	dev_addr states = scratch_at(call, p->states), picked = scratch_at(call, p->picked),
	         pooled = scratch_at(call, p->pooled);

	if (embedding_pool_of(call) == POOLING_MEAN) {
		zero(call, pooled, b->documents * C * 4);
		call_op(call,
		        &(struct op){.kind = OP_EMBED_GRAD,
		                .embed_grad = {pooled, states, b->own[DOCUMENT], scratch_at(call, p->sort),
		                        b->tokens, C, b->documents, -1, call->dtype}});
		return;
	}
	call_op(call, &(struct op){.kind = OP_GATHER,
	                      .gather = {picked, states, b->own[LAST], b->documents, C, b->tokens,
	                              call->dtype, 0}});
	convert(call, pooled, DTYPE_F32, picked, call->dtype, b->documents * C);
}

static void unpool(struct stage_call *call, const struct places *p)
{
	const struct device_batch *b = call->batch;
	int64_t C = call->c->C;
	dev_addr states = scratch_at(call, p->states), picked = scratch_at(call, p->picked),
	         wide = scratch_at(call, p->wide), dpooled = scratch_at(call, p->dunit);

	if (embedding_pool_of(call) == POOLING_MEAN) {
		call_op(call, &(struct op){.kind = OP_GATHER,
		                      .gather = {wide, dpooled, b->own[DOCUMENT], b->tokens, C, b->documents,
		                              DTYPE_F32, 0}});
		convert(call, states, call->dtype, wide, DTYPE_F32, b->tokens * C);
		return;
	}
	zero(call, states, b->tokens * C * call->element_bytes);
	convert(call, picked, call->dtype, dpooled, DTYPE_F32, b->documents * C);
	call_op(call,
	        &(struct op){.kind = OP_SCATTER,
	                .scatter = {states, picked, b->own[LAST], b->documents, C, b->tokens, call->dtype}});
}

static struct op product(dev_addr c, dev_addr a, dev_addr b, int64_t m, int64_t n, int64_t k)
{
	return (struct op){.kind = OP_MATMUL,
	        .matmul = {.c = c,
	                .a = a,
	                .b = b,
	                .bias = DEV_NONE,
	                .m = m,
	                .n = n,
	                .k = k,
	                .ab_dtype = DTYPE_F32,
	                .c_dtype = DTYPE_F32}};
}

/* Queries and answers are every other row of `unit`. */
static void scores_find(struct stage_call *call, const struct places *p)
{
	int64_t C = call->c->C, Q = call->targets;
	dev_addr unit = scratch_at(call, p->unit), scores = scratch_at(call, p->scores);
	struct op op = product(scores, unit, dev_at(unit, 4 * C), Q, Q, C);

	op.matmul.a_stride = op.matmul.b_stride = 2 * C;
	op.matmul.c_stride = Q;
	op.matmul.b_layout = MATMUL_TRANSPOSED;
	call_op(call, &op);
}

static void scores_scale(struct stage_call *call, const struct places *p)
{
	dev_addr scores = scratch_at(call, p->scores);

	call_op(call, &(struct op){.kind = OP_SCALE,
	                      .scale = {.dst = scores,
	                              .src = scores,
	                              .count = call->targets * call->targets,
	                              .factor = call->memory->settings[SCALE] / (double)call->c->C,
	                              .dtype = DTYPE_F32}});
}

static void scores_backward(struct stage_call *call, const struct places *p)
{
	int64_t C = call->c->C, Q = call->targets;
	dev_addr unit = scratch_at(call, p->unit), scores = scratch_at(call, p->scores),
	         dunit = scratch_at(call, p->dunit);

	for (int side = 0; side < 2; side++) { /* queries, answers */
		struct op op = product(
		        dev_at(dunit, side * 4 * C), scores, dev_at(unit, (1 - side) * 4 * C), Q, C, Q);

		op.matmul.a_stride = Q;
		op.matmul.b_stride = op.matmul.c_stride = 2 * C;
		op.matmul.a_layout = side ? MATMUL_TRANSPOSED : MATMUL_NORMAL;
		call_op(call, &op);
	}
}

static void normalise(struct stage_call *call, const struct places *p)
{
	int64_t C = call->c->C;

	zero(call, scratch_at(call, p->zeros), C * 4);
	call_op(call, &(struct op){.kind = OP_RMSNORM,
	                      .norm = {.y = scratch_at(call, p->unit),
	                              .x = scratch_at(call, p->pooled),
	                              .weight = scratch_at(call, p->zeros),
	                              .bias = DEV_NONE,
	                              .rstd = scratch_at(call, p->lengths),
	                              .mean = DEV_NONE,
	                              .rows = call->documents,
	                              .groups = 1,
	                              .cols = C,
	                              .x_stride = C,
	                              .y_stride = C,
	                              .epsilon = 1e-24,
	                              .weight_offset = 1,
	                              .dtype = DTYPE_F32}});
}

static void normalise_backward(struct stage_call *call, const struct places *p)
{
	int64_t C = call->c->C;
	dev_addr dunit = scratch_at(call, p->dunit);

	zero(call, scratch_at(call, p->sink), C * 4);
	zero(call, scratch_at(call, p->zeros), C * 4);
	call_op(call, &(struct op){.kind = OP_RMSNORM_GRAD,
	                      .norm_grad = {.dx = dunit,
	                              .dweight = scratch_at(call, p->sink),
	                              .dbias = DEV_NONE,
	                              .dy = dunit,
	                              .x = scratch_at(call, p->pooled),
	                              .weight = scratch_at(call, p->zeros),
	                              .rstd = scratch_at(call, p->lengths),
	                              .mean = DEV_NONE,
	                              .scratch = scratch_at(call, p->partial),
	                              .rows = call->documents,
	                              .groups = 1,
	                              .cols = C,
	                              .x_stride = C,
	                              .y_stride = C,
	                              .weight_offset = 1,
	                              .dtype = DTYPE_F32}});
}

static void embedding_run(struct stage_call *call, enum head_mode mode)
{
	struct places p = places_of(call);
	struct norm_place norm = final_norm(call, &p);
	dev_addr states = scratch_at(call, p.states), scores = scratch_at(call, p.scores),
	         dx = call->memory->dx;

	if (!call->targets) {
		if (mode == HEAD_TRAIN && !dev_is_none(dx))
			zero(call, dx, call->tokens * call->c->C * call->element_bytes);
		return;
	}
	norm_forward(call, &norm, states, call->memory->x, call->tokens);
	pool(call, &p);
	normalise(call, &p);
	scores_find(call, &p);
	scores_scale(call, &p);
	call_op(call, &(struct op){.kind = OP_CROSS_ENTROPY,
	                      .cross_entropy = {.loss = call->memory->loss,
	                              .dlogits = mode == HEAD_TRAIN ? scores : DEV_NONE,
	                              .logits = scores,
	                              .label = call->batch->own[LABEL],
	                              .scratch = scratch_at(call, p.partial),
	                              .rows = call->targets,
	                              .vocab = call->targets,
	                              .grad_scale = call->memory->grad_scale,
	                              .dlogits_dtype = DTYPE_F32,
	                              .weight = DEV_NONE}});
	if (mode != HEAD_TRAIN)
		return;
	scores_scale(call, &p);
	scores_backward(call, &p);
	normalise_backward(call, &p);
	unpool(call, &p);
	norm_backward(call, &norm, dev_is_none(dx) ? states : dx, states, call->memory->x, call->tokens,
	        LINEAR_WRITE, scratch_at(call, p.partial), scratch_at(call, p.sink));
}

static const struct head_pass embedding_head = {embedding_run, embedding_scratch_bytes, 0};

static int embedding_check(const struct model *model)
{
	return model->config.has[ROLE_HEAD_W]
	               ? err_set(ERR_UNSUPPORTED, "embeddings are not made by a head that gives logits")
	               : 0;
}

/* Queries that their own answer has more than half of the probability. */
enum { SUM_LOSS, SUM_SURE, SUM_COUNT };

static void embedding_sums_add(
        double *sums, const double *settings, const struct host_batch *batch, const float *losses)
{
	(void)settings;
	for (int64_t q = 0; q < batch->targets; q++) {
		sums[SUM_LOSS] += losses[q];
		sums[SUM_SURE] += (double)losses[q] < log(2);
	}
}

static void embedding_metrics(double *metrics, const double *sums, double count)
{
	metrics[0] = sums[SUM_SURE] / count;
}

static const struct objective objective_in_batch = {
        .name = "in_batch",
        .batch = {.array = {[LABEL] = {"label", DTYPE_I32, PER_TARGET},
                          [DOCUMENT] = {"document", DTYPE_I32, PER_TOKEN},
                          [LAST] = {"last token", DTYPE_I32, PER_DOCUMENT}},
                .targets = embedding_targets,
                .add = embedding_add},
        .row_documents = 2,
        .is_mean_of_rows = 1,
        .check = embedding_check,
        .head = &embedding_head,
        .sum_count = SUM_COUNT,
        .sums_add = embedding_sums_add,
        .metrics = {"sure"},
        .metrics_find = embedding_metrics,
};

#endif
