#include "model/stage.h"

#include "base/err.h"
#include "base/size.h"

#include <assert.h>

enum { LAYOUT_ALIGN_BYTES = 256 };

/* ---- layouts ---- */

/* Takes room for count elements at *end. */
static int64_t take(int64_t *end_bytes, int64_t count, int64_t element_bytes)
{
	int64_t offset = *end_bytes;

	*end_bytes = round_up(offset + count * element_bytes, LAYOUT_ALIGN_BYTES);
	return offset;
}

static int64_t larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

struct qkv_place qkv_place_of(const struct model_config *c)
{
	int64_t stride = (c->H + 2 * c->KV) * c->D;

	if (c->qkv == QKV_FUSED_BY_HEAD)
		return (struct qkv_place){stride, 0, c->D, 2 * c->D, 3 * c->D, 3 * c->D};
	return (struct qkv_place){stride, 0, c->H * c->D, (c->H + c->KV) * c->D, c->D, c->D};
}

struct acts_layout acts_layout_of(const struct model *model, enum dtype dtype, int64_t tokens)
{
	const struct model_config *c = &model->config;
	int64_t e = dtype_bytes(dtype), end = 0, stride = qkv_place_of(c).stride;
	int64_t means = c->norm == NORM_LAYER ? tokens : 0;
	struct acts_layout a = {0};

	a.rstd1 = take(&end, tokens, 4);
	a.mean1 = take(&end, means, 4);
	a.norm1 = take(&end, tokens * c->C, e);
	a.qkv = take(&end, tokens * stride, e);
	a.qk = take(&end, c->qk_norm ? tokens * stride : 0, e);
	a.q_rstd = take(&end, c->qk_norm ? tokens * c->H : 0, 4);
	a.k_rstd = take(&end, c->qk_norm ? tokens * c->KV : 0, 4);
	a.mixed = take(&end, tokens * c->H * c->D, e);
	a.lse = take(&end, tokens * c->H, 4);
	a.middle = take(&end, tokens * c->C, e);
	a.rstd2 = take(&end, tokens, 4);
	a.mean2 = take(&end, means, 4);
	a.norm2 = take(&end, tokens * c->C, e);
	a.gate = take(&end, c->gated ? tokens * c->F : 0, e);
	a.up = take(&end, tokens * c->F, e);
	a.bytes = end;
	return a;
}

struct scratch_layout scratch_layout_of(const struct model *model, enum dtype dtype, int64_t tokens)
{
	const struct model_config *c = &model->config;
	int64_t e = dtype_bytes(dtype), end = 0, shared, stride = qkv_place_of(c).stride;
	int64_t partial = norm_scratch_count(tokens, 1, c->C);
	int sums = dtype == DTYPE_F32 || c->gated || c->qkv == QKV_SEPARATE;
	struct scratch_layout s = {0};

	if (c->qk_norm)
		partial = larger(partial, norm_scratch_count(tokens, c->H, c->D));
	s.residual = take(&end, c->parallel_residual ? tokens * c->C : 0, e);
	s.dnorm = take(&end, sums ? tokens * c->C : 0, 4);
	s.dnorm_cast = take(&end, dtype == DTYPE_F32 ? 0 : tokens * c->C, e);
	s.norm_partial = take(&end, partial, 4);
	shared = end;
	s.hidden = take(&end, tokens * c->F, e);
	s.bytes = end;
	end = shared;
	s.dmixed = take(&end, tokens * c->H * c->D, e);
	s.dqkv = take(&end, tokens * stride, e);
	s.attention = take(&end, attention_scratch_count(tokens, c->H, c->D), 4);
	s.bytes = larger(s.bytes, end);
	return s;
}

int64_t model_acts_bytes(const struct model *model, enum dtype dtype, int64_t tokens)
{
	return acts_layout_of(model, dtype, tokens).bytes;
}

int64_t model_scratch_bytes(
        const struct model *model, enum stage_kind kind, enum dtype dtype, int64_t tokens, int64_t targets)
{
	if (kind == STAGE_EMBED)
		return embed_scratch_bytes(model, tokens);
	if (kind == STAGE_HEAD)
		return targets ? head_layout_of(model, dtype, targets).bytes : 0;
	return scratch_layout_of(model, dtype, tokens).bytes;
}

/* ---- one call ---- */

void run_op(struct stage_run *run, const struct op *op)
{
	if (!run->err)
		run->err = stream_op(run->stream, op);
}

dev_addr acts_at(const struct stage_run *run, int64_t offset_bytes)
{
	return dev_at(run->memory->acts, offset_bytes);
}

dev_addr scratch_at(const struct stage_run *run, int64_t offset_bytes)
{
	return dev_at(run->memory->scratch, offset_bytes);
}

static dev_addr address_of(const struct stage_run *run, enum tensor_role role, const dev_addr *table)
{
	int tensor;

	if (role == ROLE_COUNT)
		return DEV_NONE;
	if (role == ROLE_HEAD_W && run->c->tied)
		role = ROLE_EMBED;
	tensor = model_tensor_of(run->model, role, run->layer);
	return tensor < 0 ? DEV_NONE : table[tensor];
}

dev_addr weight_of(const struct stage_run *run, enum tensor_role role)
{
	return address_of(run, role, run->memory->weight);
}

dev_addr grad_of(const struct stage_run *run, enum tensor_role role)
{
	return address_of(run, role, run->memory->grad);
}

void run_add(struct stage_run *run, dev_addr dst, dev_addr a, dev_addr b, int64_t count)
{
	run_op(run, &(struct op){.kind = OP_ADD,
	                    .add = {.dst = dst, .a = a, .b = b, .count = count, .dtype = run->dtype}});
}

void run_cast(struct stage_run *run, dev_addr dst, dev_addr src, int64_t count)
{
	run_op(run, &(struct op){.kind = OP_CAST,
	                    .cast = {.dst = dst,
	                            .src = src,
	                            .count = count,
	                            .dst_dtype = run->dtype,
	                            .src_dtype = DTYPE_F32}});
}

/* ---- linear layers ---- */

void linear_forward(
        struct stage_run *run, const struct linear *linear, struct rows y, enum dtype y_dtype, struct rows x)
{
	run_op(run, &(struct op){.kind = OP_MATMUL,
	                    .matmul = {.c = y.base,
	                            .a = x.base,
	                            .b = weight_of(run, linear->weight),
	                            .bias = weight_of(run, linear->bias),
	                            .m = y.count,
	                            .n = linear->out,
	                            .k = linear->in,
	                            .a_stride = x.stride,
	                            .b_stride = linear->in_out ? linear->out : linear->in,
	                            .c_stride = y.stride,
	                            .b_layout = linear->in_out ? MATMUL_NORMAL : MATMUL_TRANSPOSED,
	                            .ab_dtype = run->dtype,
	                            .c_dtype = y_dtype}});
}

void linear_backward_input(struct stage_run *run, const struct linear *linear, struct rows dx,
        enum dtype dx_dtype, enum linear_sum sum, struct rows dy)
{
	run_op(run, &(struct op){.kind = OP_MATMUL,
	                    .matmul = {.c = dx.base,
	                            .a = dy.base,
	                            .b = weight_of(run, linear->weight),
	                            .m = dy.count,
	                            .n = linear->in,
	                            .k = linear->out,
	                            .a_stride = dy.stride,
	                            .b_stride = linear->in_out ? linear->out : linear->in,
	                            .c_stride = dx.stride,
	                            .b_layout = linear->in_out ? MATMUL_TRANSPOSED : MATMUL_NORMAL,
	                            .ab_dtype = run->dtype,
	                            .c_dtype = dx_dtype,
	                            .accumulate = sum == LINEAR_ADD}});
}

void linear_backward_weight(struct stage_run *run, const struct linear *linear, struct rows dy, struct rows x)
{
	struct rows a = linear->in_out ? x : dy, b = linear->in_out ? dy : x;
	int64_t m = linear->in_out ? linear->in : linear->out, n = linear->in_out ? linear->out : linear->in;
	dev_addr bias = grad_of(run, linear->bias);

	run_op(run, &(struct op){.kind = OP_MATMUL,
	                    .matmul = {.c = grad_of(run, linear->weight),
	                            .a = a.base,
	                            .b = b.base,
	                            .m = m,
	                            .n = n,
	                            .k = dy.count,
	                            .a_stride = a.stride,
	                            .b_stride = b.stride,
	                            .c_stride = n,
	                            .a_layout = MATMUL_TRANSPOSED,
	                            .ab_dtype = run->dtype,
	                            .c_dtype = DTYPE_F32,
	                            .accumulate = 1}});
	if (!dev_is_none(bias))
		run_op(run, &(struct op){.kind = OP_COLSUM,
		                    .colsum = {.sum = bias,
		                            .x = dy.base,
		                            .rows = dy.count,
		                            .cols = linear->out,
		                            .x_stride = dy.stride,
		                            .dtype = run->dtype}});
}

/* ---- norms ---- */

void norm_forward(struct stage_run *run, const struct norm_place *norm, dev_addr y, dev_addr x, int64_t rows)
{
	int is_layer = run->c->norm == NORM_LAYER;

	run_op(run, &(struct op){.kind = is_layer ? OP_LAYERNORM : OP_RMSNORM,
	                    .norm = {.y = y,
	                            .x = x,
	                            .weight = weight_of(run, norm->weight),
	                            .bias = is_layer ? weight_of(run, norm->bias) : DEV_NONE,
	                            .rstd = norm->rstd,
	                            .mean = is_layer ? norm->mean : DEV_NONE,
	                            .rows = rows,
	                            .groups = 1,
	                            .cols = run->c->C,
	                            .x_stride = run->c->C,
	                            .y_stride = run->c->C,
	                            .epsilon = run->c->norm_epsilon,
	                            .dtype = run->dtype}});
}

void norm_backward(struct stage_run *run, const struct norm_place *norm, dev_addr dx, dev_addr dy, dev_addr x,
        int64_t rows, enum linear_sum sum, dev_addr partial)
{
	int is_layer = run->c->norm == NORM_LAYER;

	run_op(run, &(struct op){.kind = is_layer ? OP_LAYERNORM_GRAD : OP_RMSNORM_GRAD,
	                    .norm_grad = {.dx = dx,
	                            .dweight = grad_of(run, norm->weight),
	                            .dbias = is_layer ? grad_of(run, norm->bias) : DEV_NONE,
	                            .dy = dy,
	                            .x = x,
	                            .weight = weight_of(run, norm->weight),
	                            .rstd = norm->rstd,
	                            .mean = is_layer ? norm->mean : DEV_NONE,
	                            .scratch = partial,
	                            .rows = rows,
	                            .groups = 1,
	                            .cols = run->c->C,
	                            .x_stride = run->c->C,
	                            .y_stride = run->c->C,
	                            .dtype = run->dtype,
	                            .accumulate_dx = sum == LINEAR_ADD}});
}

/* ---- dispatch ---- */

static struct stage_run run_of(const struct model *model, int stage, struct stream *stream,
        const struct stage_memory *memory, const struct device_batch *batch)
{
	enum dtype dtype = memory->dtype;

	return (struct stage_run){.model = model,
	        .c = &model->config,
	        .stream = stream,
	        .memory = memory,
	        .batch = batch,
	        .layer = model->stages[stage].layer,
	        .dtype = dtype,
	        .tokens = batch->tokens,
	        .element_bytes = dtype_bytes(dtype),
	        .acts = acts_layout_of(model, dtype, batch->tokens),
	        .scratch = scratch_layout_of(model, dtype, batch->tokens)};
}

int model_forward(const struct model *model, int stage, struct stream *stream,
        const struct stage_memory *memory, const struct device_batch *batch)
{
	static void (*const forward[])(struct stage_run *) = {
	        [STAGE_EMBED] = embed_forward,
	        [STAGE_ATTN] = attn_forward,
	        [STAGE_GATE] = gate_forward,
	        [STAGE_UP] = up_forward,
	        [STAGE_DOWN] = down_forward,
	};
	struct stage_run run = run_of(model, stage, stream, memory, batch);

	assert(model->stages[stage].kind != STAGE_HEAD);
	forward[model->stages[stage].kind](&run);
	return run.err;
}

int model_backward(const struct model *model, int stage, struct stream *stream,
        const struct stage_memory *memory, const struct device_batch *batch)
{
	static void (*const backward[])(struct stage_run *) = {
	        [STAGE_EMBED] = embed_backward,
	        [STAGE_ATTN] = attn_backward,
	        [STAGE_GATE] = gate_backward,
	        [STAGE_UP] = up_backward,
	        [STAGE_DOWN] = down_backward,
	};
	struct stage_run run = run_of(model, stage, stream, memory, batch);

	assert(model->stages[stage].kind != STAGE_HEAD);
	backward[model->stages[stage].kind](&run);
	return run.err;
}
