/* The products of adapters (LoRA) beside those of their matrices, and the magnitudes of DoRA. */
#include "model/blocks/linear.h"

#include "device/noise.h"
#include "model/adapter.h"

/* A [rank, in], and the rows of B [out, rank] for this matrix. */
struct adapter {
	int64_t rank;
	double scale;
	dev_addr a, b, a_grad, b_grad;
	dev_addr magnitude, magnitude_grad, norm;
	uint64_t module; /* its number for noise; 0: nothing is dropped */
};

/* By the role of A; NULL: there is none. */
static const struct adapter_config *config_of(const struct stage_call *call, enum tensor_role a)
{
	const struct adapter_config *o = a == ROLE_COUNT ? NULL : config_adapter(call->c, a, call->layer);

	return o && call->c->adapter_rank && o->rank ? o : NULL;
}

static int adapter_of(struct adapter *p, const struct stage_call *call, enum tensor_role a)
{
	const struct adapter_config *o = config_of(call, a);

	if (!o)
		return 0;
	*p = (struct adapter){o->rank, o->scale, weight_of(call, a), weight_of(call, a + 1), grad_of(call, a),
	        grad_of(call, a + 1), DEV_NONE, DEV_NONE, DEV_NONE, 0};
	return 1;
}

/* Where the norms of a stage begin that belong to these magnitudes; ROLE_COUNT: their end. */
static int64_t norms_offset(const struct model *model, int stage, enum tensor_role magnitude)
{
	const struct model_stage *s = &model->stages[stage];
	int64_t end = 0;

	for (int i = 0; i < s->tensor_count; i++) {
		const struct model_tensor *t = &model->tensors[s->tensor[i]];

		if (t->role == magnitude)
			break;
		if (role_facts[t->role].kind == KIND_MAGNITUDE)
			layout_take(&end, t->count, 4);
	}
	return end;
}

static dev_addr norms_of(const struct stage_call *call, enum tensor_role magnitude)
{
	return dev_at(call->memory->row_norms, norms_offset(call->model, call->stage, magnitude));
}

static int adapter_find(struct adapter *p, const struct stage_call *call, const struct linear *linear)
{
	enum tensor_role a = role_adapter(linear->weight);
	int64_t first;

	if (!adapter_of(p, call, a))
		return 0;
	if (call->c->adapter_magnitudes) {
		p->magnitude =
		        linear_bias_at(linear, weight_of(call, role_magnitude(a)), call->element_bytes);
		p->magnitude_grad = linear_bias_at(linear, grad_of(call, role_magnitude(a)), 4);
		p->norm = linear_bias_at(linear, norms_of(call, role_magnitude(a)), 4);
	}
	first = linear->first * p->rank;
	p->b = dev_at(p->b, first * call->element_bytes);
	if (!dev_is_none(p->b_grad))
		p->b_grad = dev_at(p->b_grad, first * 4);
	if (call->c->adapter_dropout > 0 && call->batch && !dev_is_none(call->batch->noise))
		p->module =
		        noise_module(call->model->tensors[model_tensor_of(call->model, a, call->layer)].name);
	return 1;
}

int linear_has_adapter(const struct stage_call *call, enum tensor_role weight)
{
	return config_of(call, role_adapter(weight)) != NULL;
}

/* Rows without the elements that the module drops, those that stay divided by their share. */
static void drop(struct stage_call *call, const struct adapter *p, int64_t columns, struct rows to,
        enum dtype to_dtype, int adds, struct rows from)
{
	call_op(call,
	        &(struct op){.kind = OP_DROPOUT,
	                .dropout = {.dst = to.base,
	                        .src = from.base,
	                        .key = dev_is_none(call->row_noise) ? call->batch->noise : call->row_noise,
	                        .rows = from.count,
	                        .cols = columns,
	                        .dst_stride = to.stride,
	                        .src_stride = from.stride,
	                        .module = p->module,
	                        .share = call->c->adapter_dropout,
	                        .accumulate = adds,
	                        .dst_dtype = to_dtype,
	                        .src_dtype = call->dtype}});
}

static struct rows dropped_rows(const struct stage_call *call, const struct linear *linear, int64_t count)
{
	return (struct rows){scratch_at(call, call->scratch.dropped), count, linear->in};
}

/* What A multiplies: x, or what dropout leaves of it, in scratch. */
static struct rows adapter_input(
        struct stage_call *call, const struct linear *linear, const struct adapter *p, struct rows x)
{
	struct rows left = dropped_rows(call, linear, x.count);

	if (!p->module)
		return x;
	drop(call, p, linear->in, left, call->dtype, 0, x);
	return left;
}

/* s x A^T, in scratch; x is what adapter_input gave */
static dev_addr adapter_inner(
        struct stage_call *call, const struct linear *linear, const struct adapter *p, struct rows x)
{
	dev_addr inner = scratch_at(call, call->scratch.adapter);

	call_product(call, &(struct product){.y = {inner, x.count, p->rank},
	                           .n = p->rank,
	                           .k = linear->in,
	                           .y_dtype = call->dtype,
	                           .a = x.base,
	                           .a_stride = x.stride,
	                           .b = p->a,
	                           .b_stride = linear->in,
	                           .b_layout = MATMUL_TRANSPOSED});
	call_scale(call, inner, inner, x.count * p->rank, p->scale);
	return inner;
}

/* s dy B, in scratch: the gradient of A x. Both steps of backward need it, one after the other, in either
 * order: a step takes once what the other one left. The same step again has another dy, maybe at the same
 * address. */
static dev_addr adapter_inner_grad(struct stage_call *call, const struct linear *linear,
        const struct adapter *p, struct rows dy, enum backward_step step)
{
	dev_addr inner = scratch_at(call, call->scratch.adapter_grad);
	struct inner_grad *kept = &call->inner_grad;
	int is_there = kept->weight == linear->weight && kept->first == linear->first &&
	               kept->dy.value == dy.base.value && kept->step != step && dev_is_none(p->magnitude);

	*kept = (struct inner_grad){linear->weight, linear->first, is_there ? DEV_NONE : dy.base, step};
	if (is_there)
		return inner;
	call_product(call, &(struct product){.y = {inner, dy.count, p->rank},
	                           .n = p->rank,
	                           .k = linear->out,
	                           .y_dtype = call->dtype,
	                           .a = dy.base,
	                           .a_stride = dy.stride,
	                           .b = p->b,
	                           .b_stride = p->rank});
	call_scale(call, inner, inner, dy.count * p->rank, p->scale);
	return inner;
}

/* y (+)= s B A x; x is what adapter_input gave */
static void adapter_add(struct stage_call *call, const struct linear *linear, const struct adapter *p,
        struct rows y, enum dtype y_dtype, int adds, struct rows x)
{
	call_product(call, &(struct product){.y = y,
	                           .n = linear->out,
	                           .k = p->rank,
	                           .y_dtype = y_dtype,
	                           .adds = adds,
	                           .a = adapter_inner(call, linear, p, x),
	                           .a_stride = p->rank,
	                           .b = p->b,
	                           .b_stride = p->rank,
	                           .b_layout = MATMUL_TRANSPOSED});
}

void adapter_forward(struct stage_call *call, const struct linear *linear, struct rows y, enum dtype y_dtype,
        struct rows x)
{
	struct adapter p;

	if (adapter_find(&p, call, linear))
		adapter_add(call, linear, &p, y, y_dtype, 1, adapter_input(call, linear, &p, x));
}

/* dx (+)= s A^T B^T dy */
static void adapter_add_back(struct stage_call *call, const struct linear *linear, const struct adapter *p,
        struct rows dx, enum dtype dx_dtype, int adds, struct rows dy)
{
	call_product(call, &(struct product){.y = dx,
	                           .n = linear->in,
	                           .k = p->rank,
	                           .y_dtype = dx_dtype,
	                           .adds = adds,
	                           .a = adapter_inner_grad(call, linear, p, dy, BACKWARD_INPUT),
	                           .a_stride = p->rank,
	                           .b = p->a,
	                           .b_stride = linear->in});
}

void adapter_backward_input(struct stage_call *call, const struct linear *linear, struct rows dx,
        enum dtype dx_dtype, struct rows dy)
{
	struct rows left = dropped_rows(call, linear, dy.count);
	struct adapter p;

	if (!adapter_find(&p, call, linear))
		return;
	adapter_add_back(
	        call, linear, &p, p.module ? left : dx, p.module ? call->dtype : dx_dtype, !p.module, dy);
	if (p.module)
		drop(call, &p, linear->in, dx, dx_dtype, 1, left);
}

/* The gradients of A and B; x is what adapter_input gave */
static void weights_backward(struct stage_call *call, const struct linear *linear, const struct adapter *p,
        struct rows dy, struct rows x)
{
	if (!dev_is_none(p->b_grad))
		call_product(call, &(struct product){.y = {p->b_grad, linear->out, p->rank},
		                           .n = p->rank,
		                           .k = dy.count,
		                           .y_dtype = DTYPE_F32,
		                           .adds = !call->writes_gradients,
		                           .a = dy.base,
		                           .a_stride = dy.stride,
		                           .a_layout = MATMUL_TRANSPOSED,
		                           .b = adapter_inner(call, linear, p, x),
		                           .b_stride = p->rank});
	if (!dev_is_none(p->a_grad))
		call_product(call, &(struct product){.y = {p->a_grad, p->rank, linear->in},
		                           .n = linear->in,
		                           .k = dy.count,
		                           .y_dtype = DTYPE_F32,
		                           .adds = !call->writes_gradients || linear->is_later,
		                           .a = adapter_inner_grad(call, linear, p, dy, BACKWARD_WEIGHT),
		                           .a_stride = p->rank,
		                           .a_layout = MATMUL_TRANSPOSED,
		                           .b = x.base,
		                           .b_stride = x.stride});
}

void adapter_backward_weight(
        struct stage_call *call, const struct linear *linear, struct rows dy, struct rows x)
{
	struct adapter p;

	if (!adapter_find(&p, call, linear))
		return;
	if (!dev_is_none(p.b_grad) || !dev_is_none(p.a_grad))
		x = adapter_input(call, linear, &p, x);
	weights_backward(call, linear, &p, dy, x);
}

/* ---- with magnitudes m, and n the norms of the rows of W + s B A ----
 *
 * y = W x + bias + (m / n - 1) W x' + m / n s B A x', where x' is what dropout leaves of x. */

/* Norms of all rows of a tensor: matrices that begin at a row of it have theirs there. */
static void row_norms(struct stage_call *call, enum tensor_role matrix, const struct model_tensor *magnitude)
{
	enum tensor_role a = role_adapter(matrix);
	const struct model *model = call->model;
	const struct model_tensor *inner = &model->tensors[model_tensor_of(model, a, call->layer)];
	int64_t out = magnitude->count, in = inner->count / inner->shape[0];
	int w = model_tensor_of(model, matrix, call->layer), /* a tied head has none of its own */
	        in_out = w >= 0 && model_matrix_is_turned(model, &model->tensors[w]);
	struct adapter p;

	if (!adapter_of(&p, call, a))
		return;
	call_op(call, &(struct op){.kind = OP_ROW_NORMS,
	                      .row_norms = {.norm = norms_of(call, magnitude->role),
	                              .w = weight_of(call, matrix),
	                              .a = p.a,
	                              .b = p.b,
	                              .out = out,
	                              .in = in,
	                              .rank = p.rank,
	                              .w_stride = in_out ? out : in,
	                              .scale = p.scale,
	                              .in_out = in_out,
	                              .dtype = call->dtype}});
}

int64_t model_row_norms_bytes(const struct model *model, int stage)
{
	return norms_offset(model, stage, ROLE_COUNT);
}

int model_row_norms(
        const struct model *model, int stage, struct stream *stream, const struct stage_memory *memory)
{
	const struct model_stage *s = &model->stages[stage];
	struct stage_call call = call_shape(model, stage, memory->dtype, 0);

	call.stream = stream;
	call.memory = memory;
	for (int i = 0; i < s->tensor_count; i++)
		for (int role = 0; role < ROLE_COUNT; role++)
			if (role_magnitude(role_adapter((enum tensor_role)role)) ==
			        model->tensors[s->tensor[i]].role)
				row_norms(&call, (enum tensor_role)role, &model->tensors[s->tensor[i]]);
	return call.err;
}

/* Finds the adapter, if it has magnitudes. */
static int magnitudes_find(struct adapter *p, const struct stage_call *call, const struct linear *linear)
{
	return adapter_find(p, call, linear) && !dev_is_none(p->magnitude);
}

static struct rows scaled_rows(const struct stage_call *call, const struct linear *linear, int64_t count)
{
	return (struct rows){scratch_at(call, call->scratch.scaled), count, linear->out};
}

/* How rows are scaled: to (+)= (m / n - minus) from + bias. */
struct scaling {
	double minus;
	int adds;
	dev_addr bias;
	enum dtype to_dtype, from_dtype;
};

static void rescale(struct stage_call *call, const struct linear *linear, const struct adapter *p,
        const struct scaling *s, struct rows to, struct rows from)
{
	call_op(call, &(struct op){.kind = OP_MAGNITUDE,
	                      .magnitude = {.dst = to.base,
	                              .src = from.base,
	                              .magnitude = p->magnitude,
	                              .norm = p->norm,
	                              .bias = s->bias,
	                              .rows = from.count,
	                              .cols = linear->out,
	                              .dst_stride = to.stride,
	                              .src_stride = from.stride,
	                              .minus = s->minus,
	                              .accumulate = s->adds,
	                              .dtype = call->dtype,
	                              .dst_dtype = s->to_dtype,
	                              .src_dtype = s->from_dtype}});
}

int magnitudes_forward(struct stage_call *call, const struct linear *linear, struct rows y,
        enum dtype y_dtype, dev_addr bias, struct rows x)
{
	struct rows part = scaled_rows(call, linear, x.count);
	struct adapter p;

	if (!magnitudes_find(&p, call, linear))
		return 0;
	if (!p.module) {
		linear_product(call, linear, y, y_dtype, DEV_NONE, x);
		adapter_add(call, linear, &p, y, y_dtype, 1, x);
		rescale(call, linear, &p, &(struct scaling){0, 0, bias, y_dtype, y_dtype}, y, y);
		return 1;
	}
	linear_product(call, linear, y, y_dtype, bias, x);
	x = adapter_input(call, linear, &p, x);
	linear_product(call, linear, part, call->dtype, DEV_NONE, x);
	rescale(call, linear, &p, &(struct scaling){1, 1, DEV_NONE, y_dtype, call->dtype}, y, part);
	adapter_add(call, linear, &p, part, call->dtype, 0, x);
	rescale(call, linear, &p, &(struct scaling){0, 1, DEV_NONE, y_dtype, call->dtype}, y, part);
	return 1;
}

int magnitudes_backward_input(struct stage_call *call, const struct linear *linear, struct rows dx,
        enum dtype dx_dtype, int adds, struct rows dy)
{
	struct rows part = scaled_rows(call, linear, dy.count), left = dropped_rows(call, linear, dy.count);
	struct scaling s = {0, 0, DEV_NONE, call->dtype, call->dtype};
	struct adapter p;

	if (!magnitudes_find(&p, call, linear))
		return 0;
	if (!p.module) {
		rescale(call, linear, &p, &s, part, dy);
		linear_product_back(call, linear, dx, dx_dtype, adds, part);
		adapter_add_back(call, linear, &p, dx, dx_dtype, 1, part);
		return 1;
	}
	linear_product_back(call, linear, dx, dx_dtype, adds, dy);
	rescale(call, linear, &p, &s, part, dy);
	adapter_add_back(call, linear, &p, left, call->dtype, 0, part);
	s.minus = 1;
	rescale(call, linear, &p, &s, part, dy);
	linear_product_back(call, linear, left, call->dtype, 1, part);
	drop(call, &p, linear->in, dx, dx_dtype, 1, left);
	return 1;
}

int magnitudes_backward_weight(
        struct stage_call *call, const struct linear *linear, struct rows dy, struct rows x)
{
	struct rows part = scaled_rows(call, linear, dy.count);
	struct adapter p;

	if (!magnitudes_find(&p, call, linear))
		return 0;
	x = adapter_input(call, linear, &p, x);
	if (!dev_is_none(p.magnitude_grad)) {
		linear_product(call, linear, part, call->dtype, DEV_NONE, x);
		adapter_add(call, linear, &p, part, call->dtype, 1, x);
		call_op(call, &(struct op){.kind = OP_MAGNITUDE_GRAD,
		                      .magnitude_grad = {.grad = p.magnitude_grad,
		                              .dy = dy.base,
		                              .y = part.base,
		                              .norm = p.norm,
		                              .rows = dy.count,
		                              .cols = linear->out,
		                              .dy_stride = dy.stride,
		                              .y_stride = part.stride,
		                              .dtype = call->dtype}});
	}
	rescale(call, linear, &p, &(struct scaling){0, 0, DEV_NONE, call->dtype, call->dtype}, part, dy);
	weights_backward(call, linear, &p, part, x);
	return 1;
}

/* ---- of the embedding: y += s B A[:, id], as PEFT without dropout ---- */

/* s A[:, id] of each token, in scratch */
static dev_addr tokens_inner(struct stage_call *call, const struct adapter *p)
{
	dev_addr inner = scratch_at(call, call->scratch.adapter);

	call_op(call, &(struct op){.kind = OP_GATHER,
	                      .gather = {.out = inner,
	                              .table = p->a,
	                              .index = call->batch->id,
	                              .rows = call->tokens,
	                              .cols = p->rank,
	                              .table_rows = call->c->V,
	                              .dtype = call->dtype,
	                              .is_turned = 1}});
	call_scale(call, inner, inner, call->tokens * p->rank, p->scale);
	return inner;
}

static struct linear embedding_of(const struct stage_call *call)
{
	return (struct linear){ROLE_EMBED, ROLE_COUNT, call->c->C, call->c->V, 0, 0, 0};
}

void adapter_embed(struct stage_call *call, dev_addr y)
{
	struct adapter p;

	if (adapter_of(&p, call, ROLE_EMBED_LORA_A))
		call_product(call, &(struct product){.y = rows_at(call, y, call->c->C),
		                           .n = call->c->C,
		                           .k = p.rank,
		                           .y_dtype = call->dtype,
		                           .adds = 1,
		                           .a = tokens_inner(call, &p),
		                           .a_stride = p.rank,
		                           .b = p.b,
		                           .b_stride = p.rank,
		                           .b_layout = MATMUL_TRANSPOSED});
}

void adapter_embed_backward(struct stage_call *call, dev_addr dy, dev_addr sorted)
{
	struct linear embedding = embedding_of(call);
	struct rows rows = rows_at(call, dy, call->c->C);
	struct adapter p;

	if (!adapter_of(&p, call, ROLE_EMBED_LORA_A))
		return;
	if (!dev_is_none(p.b_grad))
		call_product(call, &(struct product){.y = {p.b_grad, call->c->C, p.rank},
		                           .n = p.rank,
		                           .k = call->tokens,
		                           .y_dtype = DTYPE_F32,
		                           .adds = !call->writes_gradients,
		                           .a = dy,
		                           .a_stride = call->c->C,
		                           .a_layout = MATMUL_TRANSPOSED,
		                           .b = tokens_inner(call, &p),
		                           .b_stride = p.rank});
	if (!dev_is_none(p.a_grad))
		call_op(call,
		        &(struct op){.kind = OP_EMBED_GRAD,
		                .embed_grad = {.grad = p.a_grad,
		                        .dy = adapter_inner_grad(call, &embedding, &p, rows, BACKWARD_WEIGHT),
		                        .index = call->batch->id,
		                        .scratch = sorted,
		                        .rows = call->tokens,
		                        .cols = p.rank,
		                        .table_rows = call->c->V,
		                        .skip_index = call->c->pad_id,
		                        .dtype = call->dtype,
		                        .is_turned = 1}});
}
