/* A kind of stage that ferry lacks, and a model of layers that differ in all that they can differ in.
 *
 * A test that includes this has its own table of kinds, in which attention's row stands for two kinds: blocks
 * without V are of the odd one. With act the MLP's activation:
 *
 *     maker   u = K norm(x);  y = x + O (act(u) * u)     u is a value for later layers
 *     reader  q = Q norm(x);  y = x + O (act(q) * u)     its gradient of u joins those of other readers
 *
 * It keeps u or q for backward, has scratch of its own, and a state of generation that cannot go back. */
#ifndef FERRY_TESTS_ODD_STAGE_H
#define FERRY_TESTS_ODD_STAGE_H

#include "tests/model_text.h"

#include "model/blocks/block.h"
#include "model/values.h"

enum { ODD_STATE_BYTES = 512 };

static inline int is_odd(const struct stage_call *call)
{
	return !call->block->has[ROLE_V_W] && !call->block->has[ROLE_QKV_W];
}

static inline int odd_makes(const struct stage_call *call)
{
	return call->block->has[ROLE_K_W];
}

static inline int64_t odd_width(const struct stage_call *call)
{
	return call->block->H * call->block->D;
}

/* ---- layouts ---- */

struct odd_layout {
	int64_t rstd, norm; /* F32 [tokens], [tokens, C] */
	int64_t product;    /* [tokens, H D] u or q */
	int64_t bytes;
};

static inline struct odd_layout odd_layout_of(const struct stage_call *call)
{
	int64_t end = 0;
	struct odd_layout l;

	l.product = layout_take(&end, call->tokens * odd_width(call), call->element_bytes);
	l.rstd = layout_take(&end, call->tokens, 4);
	l.norm = layout_take(&end, call->tokens * call->c->C, call->element_bytes);
	l.bytes = end;
	return l;
}

static int64_t odd_kept_bytes(const struct stage_call *call, enum acts_level level)
{
	return level == ACTS_PRODUCTS ? odd_layout_of(call).rstd : 0;
}

static int odd_keeps_stream(const struct stage_call *call)
{
	(void)call;
	return 0;
}

static int64_t odd_acts_bytes(const struct stage_call *call)
{
	return odd_layout_of(call).bytes;
}

/* The branch's output, its gradient, and that of the product; the gradient of a value in F32. */
struct odd_scratch {
	int64_t out, dproduct, dvalue, wide, bytes;
};

static inline struct odd_scratch odd_scratch_of(const struct stage_call *call)
{
	int64_t count = call->tokens * odd_width(call), end = 0;
	struct odd_scratch s;

	s.out = layout_take(&end, count, call->element_bytes);
	s.dproduct = layout_take(&end, count, call->element_bytes);
	s.dvalue = layout_take(&end, count, call->element_bytes);
	s.wide = layout_take(&end, count, 4);
	s.bytes = end;
	return s;
}

static int64_t odd_scratch_bytes(const struct stage_call *call)
{
	return odd_scratch_of(call).bytes;
}

/* ---- forward and backward ---- */

static inline struct norm_place odd_norm(const struct stage_call *call)
{
	return (struct norm_place){ROLE_NORM1_W, ROLE_COUNT, acts_at(call, odd_layout_of(call).rstd),
	        DEV_NONE, scratch_at(call, call->scratch.norm_zeros)};
}

static inline struct linear odd_product(const struct stage_call *call)
{
	return (struct linear){
	        odd_makes(call) ? ROLE_K_W : ROLE_Q_W, ROLE_COUNT, odd_width(call), call->c->C, 0, 0, 0};
}

static inline struct linear odd_output(const struct stage_call *call)
{
	return (struct linear){ROLE_O_W, ROLE_COUNT, call->c->C, odd_width(call), 0, 0, 0};
}

static inline struct rows odd_rows(const struct stage_call *call, dev_addr base)
{
	return rows_at(call, base, odd_width(call));
}

static inline dev_addr odd_value(const struct stage_call *call)
{
	return odd_makes(call) ? acts_at(call, odd_layout_of(call).product) : value_of(call, 0)->at;
}

static inline void odd_mix(struct stage_call *call, dev_addr out)
{
	call_op(call, &(struct op){.kind = OP_GLU,
	                      .glu = {.out = out,
	                              .gate = acts_at(call, odd_layout_of(call).product),
	                              .up = odd_value(call),
	                              .count = call->tokens * odd_width(call),
	                              .act = call->c->act,
	                              .dtype = call->dtype}});
}

static void odd_forward(struct stage_call *call)
{
	struct odd_layout l = odd_layout_of(call);
	struct norm_place norm = odd_norm(call),
	                  post = {ROLE_POST_NORM1_W, ROLE_COUNT, DEV_NONE, DEV_NONE, DEV_NONE};
	struct linear product = odd_product(call), output = odd_output(call);
	dev_addr out = own_scratch_at(call, odd_scratch_of(call).out),
	         branch = branch_at(call, &post, DEV_NONE);

	norm_forward(call, &norm, acts_at(call, l.norm), stream_in(call), call->tokens);
	if (!acts_are_kept(call, l.product))
		linear_forward(call, &product, odd_rows(call, acts_at(call, l.product)), call->dtype,
		        rows_at(call, acts_at(call, l.norm), call->c->C));
	if (odd_makes(call))
		call_op(call,
		        &(struct op){.kind = OP_COPY,
		                .copy = {.dst = value_of(call, 0)->at,
		                        .src = acts_at(call, l.product),
		                        .bytes = call->tokens * odd_width(call) * call->element_bytes}});
	if (dev_is_none(branch))
		return;
	odd_mix(call, out);
	linear_forward(call, &output, rows_at(call, branch, call->c->C), call->dtype, odd_rows(call, out));
	branch_end(call, &post, branch);
}

static inline void odd_cast(
        struct stage_call *call, dev_addr dst, enum dtype to, dev_addr src, enum dtype from)
{
	int64_t count = call->tokens * odd_width(call);

	if (to == from)
		call_op(call, &(struct op){.kind = OP_COPY,
		                      .copy = {.dst = dst, .src = src, .bytes = count * dtype_bytes(to)}});
	else
		call_op(call, &(struct op){.kind = OP_CAST,
		                      .cast = {.dst = dst,
		                              .src = src,
		                              .count = count,
		                              .dst_dtype = to,
		                              .src_dtype = from}});
}

static inline void odd_add_wide(struct stage_call *call, dev_addr dst, dev_addr other)
{
	call_op(call, &(struct op){.kind = OP_ADD,
	                      .add = {dst, dst, other, call->tokens * odd_width(call), DTYPE_F32}});
}

/* A reader's part of the value's gradient. */
static inline void odd_give_back(struct stage_call *call, dev_addr dvalue)
{
	const struct stage_value *value = value_of(call, 0);
	dev_addr wide = own_scratch_at(call, odd_scratch_of(call).wide);

	if (dev_is_none(value->grad))
		return;
	odd_cast(call, value->writes_grad ? value->grad : wide, DTYPE_F32, dvalue, call->dtype);
	if (!value->writes_grad)
		odd_add_wide(call, value->grad, wide);
}

/* The maker's: of both places where it used u, and the sum of the readers. */
static inline void odd_take_back(struct stage_call *call, dev_addr dproduct, dev_addr dvalue)
{
	dev_addr wide = own_scratch_at(call, odd_scratch_of(call).wide);

	call_add(call, dproduct, dproduct, dvalue, call->tokens * odd_width(call));
	if (dev_is_none(value_of(call, 0)->grad))
		return;
	odd_cast(call, wide, DTYPE_F32, dproduct, call->dtype);
	odd_add_wide(call, wide, value_of(call, 0)->grad);
	odd_cast(call, dproduct, call->dtype, wide, DTYPE_F32);
}

static void odd_backward(struct stage_call *call)
{
	struct odd_layout l = odd_layout_of(call);
	struct odd_scratch s = odd_scratch_of(call);
	struct norm_place norm = odd_norm(call);
	struct linear product = odd_product(call), output = odd_output(call);
	dev_addr out = own_scratch_at(call, s.out), dproduct = own_scratch_at(call, s.dproduct),
	         dvalue = own_scratch_at(call, s.dvalue), dx = call->memory->dx;
	dev_addr dnorm =
	        scratch_at(call, call->dtype == DTYPE_F32 ? call->scratch.dnorm : call->scratch.dnorm_cast);
	struct rows dy = rows_at(call, dx, call->c->C);

	odd_mix(call, out);
	linear_backward_weight(call, &output, dy, odd_rows(call, out));
	linear_backward_input(call, &output, odd_rows(call, out), call->dtype, LINEAR_WRITE, dy);
	call_op(call, &(struct op){.kind = OP_GLU_GRAD,
	                      .glu_grad = {.dgate = dproduct,
	                              .dup = dvalue,
	                              .dout = out,
	                              .gate = acts_at(call, l.product),
	                              .up = odd_value(call),
	                              .count = call->tokens * odd_width(call),
	                              .act = call->c->act,
	                              .dtype = call->dtype}});
	if (odd_makes(call))
		odd_take_back(call, dproduct, dvalue);
	else
		odd_give_back(call, dvalue);
	linear_backward_weight(
	        call, &product, odd_rows(call, dproduct), rows_at(call, acts_at(call, l.norm), call->c->C));
	linear_backward_input(call, &product, rows_at(call, dnorm, call->c->C), call->dtype, LINEAR_WRITE,
	        odd_rows(call, dproduct));
	norm_backward(call, &norm, dx, dnorm, stream_in(call), call->tokens, LINEAR_ADD,
	        scratch_at(call, call->scratch.norm_partial), scratch_at(call, call->scratch.norm_sink));
}

static int64_t odd_state_bytes(const struct stage_call *call, const struct cache_shape *shape)
{
	return shape->rows ? ODD_STATE_BYTES * call->block->H : 0;
}

static int odd_goes_back(
        const struct stage_call *call, const struct cache_shape *shape, int64_t reached, int64_t at)
{
	(void)call;
	(void)shape;
	return at == reached;
}

static const struct stage_type stage_odd = {odd_forward, odd_backward, 1, odd_acts_bytes, odd_kept_bytes,
        odd_keeps_stream, odd_scratch_bytes, NULL, odd_state_bytes, odd_goes_back};

/* ---- the table: attention's row chooses by block ---- */

#define ODD_CHOICE(result, name, parameters, arguments)                                                      \
	static result choice_##name parameters                                                               \
	{                                                                                                    \
		return (is_odd(call) ? &stage_odd : &stage_attn)->name arguments;                            \
	}
ODD_CHOICE(void, forward, (struct stage_call * call), (call))
ODD_CHOICE(void, backward, (struct stage_call * call), (call))
ODD_CHOICE(int64_t, acts_bytes, (const struct stage_call *call), (call))
ODD_CHOICE(int64_t, kept_bytes, (const struct stage_call *call, enum acts_level level), (call, level))
ODD_CHOICE(int, keeps_stream, (const struct stage_call *call), (call))
ODD_CHOICE(int64_t, scratch_bytes, (const struct stage_call *call), (call))
ODD_CHOICE(
        int64_t, state_bytes, (const struct stage_call *call, const struct cache_shape *shape), (call, shape))
ODD_CHOICE(int, state_goes_back,
        (const struct stage_call *call, const struct cache_shape *shape, int64_t reached, int64_t at),
        (call, shape, reached, at))

static const struct stage_type stage_choice = {.forward = choice_forward,
        .backward = choice_backward,
        .writes_stream = 1,
        .acts_bytes = choice_acts_bytes,
        .kept_bytes = choice_kept_bytes,
        .keeps_stream = choice_keeps_stream,
        .scratch_bytes = choice_scratch_bytes,
        .state_bytes = choice_state_bytes,
        .state_goes_back = choice_state_goes_back};

/* Links instead of model/blocks/stage_types.c. */
const struct stage_type *const stage_types[STAGE_COUNT] = {[STAGE_EMBED] = &stage_embed,
        [STAGE_ATTN] = &stage_choice,
        [STAGE_DELTA] = &stage_delta,
        [STAGE_SCAN] = &stage_scan,
        [STAGE_UP] = &stage_up,
        [STAGE_DOWN] = &stage_down,
        [STAGE_SCALE] = &stage_scale,
        [STAGE_INPUTS] = &stage_inputs,
        [STAGE_INPUT] = &stage_input,
        [STAGE_HEAD] = &stage_head};

/* ---- the model ---- */

enum { ODD_LAYERS = 7, ODD_VOCAB = 70 };

static inline void odd_drop(struct block_config *b, const enum tensor_role *roles, int count)
{
	for (int i = 0; i < count; i++)
		b->has[roles[i]] = 0;
}
#define ODD_DROP(b, ...)                                                                                     \
	odd_drop(b, (const enum tensor_role[]){__VA_ARGS__},                                                 \
	        sizeof((const enum tensor_role[]){__VA_ARGS__}) / sizeof(enum tensor_role))

/* Attention and the MLP of a block as two groups. */
static inline void odd_divide(struct block_config *b)
{
	const struct block_stage list[] = {{STAGE_ATTN, 0}, {STAGE_UP, 1}, {STAGE_DOWN, 0}};

	memcpy(b->stage, list, sizeof(list));
	b->stage_count = 3;
}

/* Layers: 0 a wider MLP; 1 the maker alone; 2 a reader, divided; 3 attention alone, with other heads; 4 a
 * reader; 5 an MLP alone, narrower; 6 as Llama has them, divided. */
static inline struct model *odd_model(void)
{
	struct model *model = model_from(
	        "{\"model_type\":\"llama\",\"vocab_size\":70,\"hidden_size\":32,\"intermediate_size\":48,"
	        "\"num_hidden_layers\":7,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
	        "\"max_position_embeddings\":64,\"initializer_range\":0.2}");
	struct model_config c = model->config;
	struct block_config *b = c.block;
	int value;

	b[0].F = 96;
	ODD_DROP(&b[1], ROLE_Q_W, ROLE_V_W, ROLE_NORM2_W, ROLE_GATE_W, ROLE_UP_W, ROLE_DOWN_W);
	b[1].KV = b[1].H;
	ODD_DROP(&b[2], ROLE_K_W, ROLE_V_W);
	odd_divide(&b[2]);
	b[3].H = 2;
	b[3].KV = 1;
	b[3].D = 16; /* rotary positions turn half of it */
	ODD_DROP(&b[3], ROLE_NORM2_W, ROLE_GATE_W, ROLE_UP_W, ROLE_DOWN_W);
	ODD_DROP(&b[4], ROLE_K_W, ROLE_V_W);
	ODD_DROP(&b[5], ROLE_NORM1_W, ROLE_Q_W, ROLE_K_W, ROLE_V_W, ROLE_O_W);
	b[5].F = 16;
	odd_divide(&b[6]);
	value = config_value_add(&c, b[1].H * b[1].D, (struct stage_place){STAGE_ATTN, 1});
	assert_true(value >= 0);
	check_ok(config_value_read(&c, value, (struct stage_place){STAGE_ATTN, 2}));
	check_ok(config_value_read(&c, value, (struct stage_place){STAGE_ATTN, 4}));
	check_ok(model_rebuild(model, &c));
	return model;
}

#endif
