/* Sizes and offsets of activations, scratch and the state of generation. */
#include "model/blocks/block.h"

#include "base/size.h"

enum { LAYOUT_ALIGN_BYTES = 256 };

int64_t layout_take(int64_t *end_bytes, int64_t count, int64_t element_bytes)
{
	int64_t offset = *end_bytes;

	*end_bytes = round_up(offset + count * element_bytes, LAYOUT_ALIGN_BYTES);
	return offset;
}

/* Whether the gradient of a norm's output is a sum, which is made in F32. */
static int sums_dnorm(const struct stage_call *call)
{
	return call->dtype == DTYPE_F32 || call->block->has[ROLE_ROUTER_W] ||
	       call->block->has[ROLE_DELTA_QKV_W] || mlp_sums_gradients(call) || attn_sums_gradients(call);
}

/* The stages of the call's block, in whatever groups they are. */
static void block_stages(const struct stage_call *call, int *first, int *end)
{
	const struct model *model = call->model;
	int from = model->stages[call->stage].group, to = from;

	while (from > 0 && model->groups[from - 1].layer == call->layer)
		from--;
	while (to + 1 < model->group_count && model->groups[to + 1].layer == call->layer)
		to++;
	*first = model->groups[from].first_stage;
	*end = model->groups[to].first_stage + model->groups[to].count;
}

/* The largest that a function finds of the tensors of the call's block. */
typedef int64_t columns_of(const struct model_tensor *tensor);
static int64_t block_columns(const struct stage_call *call, columns_of *of)
{
	const struct model *model = call->model;
	int64_t most = 0;
	int first, end;

	block_stages(call, &first, &end);
	for (int s = first; s < end; s++)
		for (int i = 0; i < model->stages[s].tensor_count; i++) {
			const struct model_tensor *tensor = &model->tensors[model->stages[s].tensor[i]];

			if (tensor->layer == call->layer)
				most = max_i64(most, of(tensor));
		}
	return most;
}

/* The input of an adapter, the output of one with magnitudes, and the wider side of a matrix that multiplies
 * as codes. */
static int64_t adapter_input(const struct model_tensor *t)
{
	return role_facts[t->role].out == DIM_RANK ? t->shape[1] : 0;
}

static int64_t magnitude_output(const struct model_tensor *t)
{
	return role_facts[t->role].kind == KIND_MAGNITUDE ? t->shape[0] : 0;
}

static int64_t coded_side(const struct model_tensor *t)
{
	return t->multiplied ? max_i64(t->shape[0], t->shape[1]) : 0;
}

/* What the adapter of the embedding or of the head needs; the head works on so many rows at once. */
static struct block_scratch outer_scratch_of(const struct stage_call *call)
{
	const struct model_config *c = call->c;
	int is_head = call->model->stages[call->stage].kind == STAGE_HEAD;
	int64_t rows = is_head ? min_i64(call->targets, call->head_rows) : call->tokens,
	        rank = is_head ? c->adapter[ROLE_HEAD_LORA_A].rank : c->adapter[ROLE_EMBED_LORA_A].rank,
	        e = call->element_bytes, end = 0;
	struct block_scratch s = {0};

	if (!c->adapter_rank || !rank || !rows ||
	        (!is_head && call->model->stages[call->stage].kind != STAGE_EMBED))
		return s;
	s.adapter = layout_take(&end, rows * rank, e);
	s.adapter_grad = layout_take(&end, rows * rank, e);
	s.dropped = layout_take(&end, is_head && c->adapter_dropout > 0 ? rows * c->C : 0, e);
	s.scaled = layout_take(&end, is_head && c->adapter_magnitudes ? rows * c->V : 0, e);
	s.bytes = end;
	return s;
}

struct block_scratch block_scratch_of(const struct stage_call *call)
{
	const struct model_config *c = call->c;
	const struct block_config *b = call->block;
	int64_t e = call->element_bytes, tokens = call->tokens, end = 0;
	int64_t partial = norm_scratch_count(tokens, 1, c->C), coded;
	struct block_scratch s = {0};

	if (!b)
		return outer_scratch_of(call);
	coded = block_columns(call, coded_side);
	if (b->has[ROLE_Q_NORM_W])
		partial = max_i64(partial, c->qk_norm_whole ? norm_scratch_count(tokens, 1, b->H * b->D)
		                                            : norm_scratch_count(tokens, b->H, b->D));
	partial =
	        max_i64(partial, norm_scratch_count(tokens, 1, max_i64(b->latent.q_rank, b->latent.kv_rank)));
	s.residual = layout_take(&end, c->parallel_residual || scan_is_beside(call) ? tokens * c->C : 0, e);
	s.branch = layout_take(&end,
	        b->has[ROLE_POST_NORM1_W] || b->has[ROLE_POST_NORM2_W] || block_scales_branches(call)
	                ? tokens * c->C
	                : 0,
	        e);
	s.dnorm = layout_take(&end, sums_dnorm(call) ? tokens * c->C : 0, 4);
	s.dnorm_cast = layout_take(&end, call->dtype == DTYPE_F32 ? 0 : tokens * c->C, e);
	s.norm_partial = layout_take(&end, partial, 4);
	s.norm_zeros = layout_take(&end, c->norm_zeros, e);
	s.norm_sink = layout_take(&end, norm_sink_count(call->model), 4);
	s.adapter = layout_take(&end, tokens * c->adapter_rank, e);
	s.adapter_grad = layout_take(&end, tokens * c->adapter_rank, e);
	s.dropped = layout_take(
	        &end, c->adapter_dropout > 0 ? tokens * block_columns(call, adapter_input) : 0, e);
	s.codes = layout_take(&end, tokens * coded, 1);
	s.code_scales = layout_take(&end, coded ? tokens * coded_blocks(CODE_BLOCK - 1, coded) : 0, 4);
	s.scaled = layout_take(
	        &end, c->adapter_magnitudes ? tokens * block_columns(call, magnitude_output) : 0, e);
	s.bytes = end;
	return s;
}

/* ---- activations of a group ---- */

static const struct stage_type *type_of(const struct stage_call *call)
{
	return stage_types[call->model->stages[call->stage].kind];
}

static const struct model_group *group_of(const struct stage_call *call)
{
	return &call->model->groups[call->model->stages[call->stage].group];
}

/* The stages that share the group's activations begin and end here. */
static int stages_begin(const struct stage_call *call)
{
	return call->model->groups[group_of(call)->first].first_stage;
}
static int stages_end(const struct stage_call *call)
{
	const struct model_group *last = &call->model->groups[group_of(call)->last];

	return last->first_stage + last->count;
}

/* Those that have activations: of divided experts, not the parts and their sum, which use the router's. */
static int stages_own_end(const struct stage_call *call)
{
	const struct model_group *first = &call->model->groups[group_of(call)->first];

	return first->first_stage + first->count;
}

/* Whether no later stage of the group writes the stream. */
static int is_last(const struct stage_call *call)
{
	for (int s = call->stage + 1; s < stages_end(call); s++)
		if (stage_types[call->model->stages[s].kind]->writes_stream)
			return 0;
	return 1;
}

static int64_t own_acts_bytes(const struct stage_call *call)
{
	return type_of(call)->acts_bytes ? type_of(call)->acts_bytes(call) : 0;
}

/* The residual stream that a stage leaves, unless the group's output takes it. */
static int64_t stream_bytes(const struct stage_call *call)
{
	int64_t end = 0;

	if (type_of(call)->writes_stream && !is_last(call))
		layout_take(&end, call->tokens * call->c->C, call->element_bytes);
	return end;
}

static int64_t stage_acts_bytes(const struct stage_call *call)
{
	return own_acts_bytes(call) + stream_bytes(call);
}

/* What a level keeps of a stage's own activations, and of the stream that it leaves. */
static int64_t own_kept_bytes(const struct stage_call *call, enum acts_level level)
{
	return level && type_of(call)->kept_bytes ? type_of(call)->kept_bytes(call, level) : 0;
}
static int keeps_stream(const struct stage_call *call, enum acts_level level)
{
	return level == ACTS_PRODUCTS && type_of(call)->keeps_stream && !is_last(call) &&
	       type_of(call)->keeps_stream(call);
}

static int64_t stage_kept_bytes(const struct stage_call *call, enum acts_level level)
{
	return own_kept_bytes(call, level) + (keeps_stream(call, level) ? stream_bytes(call) : 0);
}

struct stage_call call_shape(const struct model *model, int stage, enum dtype dtype, int64_t tokens)
{
	int layer = model->stages[stage].layer;

	return (struct stage_call){.model = model,
	        .c = &model->config,
	        .block = layer >= 0 ? &model->config.block[layer] : NULL,
	        .stage = stage,
	        .layer = layer,
	        .dtype = dtype,
	        .tokens = tokens,
	        .element_bytes = dtype_bytes(dtype)};
}

/* The call for another stage of its group. */
static struct stage_call call_at(const struct stage_call *call, int stage)
{
	struct stage_call other = *call;

	other.stage = stage;
	stage = stage < stages_own_end(call) ? stage : stages_own_end(call) - 1;
	other.acts = dev_at(call->memory->acts, call->acts_first[stage - stages_begin(call)]);
	if (!call->memory->level)
		return other;
	other.kept = dev_at(call->memory->kept, call->kept_first[stage - stages_begin(call)]);
	other.kept_bytes = own_kept_bytes(&other, call->memory->level);
	return other;
}

void call_place(struct stage_call *call)
{
	struct stage_call each = *call;
	int begin = stages_begin(call);

	for (int i = 0; begin + i + 1 < stages_own_end(call); i++) {
		int64_t kept;

		each.stage = begin + i;
		kept = stage_kept_bytes(&each, call->memory->level);
		call->acts_first[i + 1] = call->acts_first[i] + stage_acts_bytes(&each) - kept;
		call->kept_first[i + 1] = call->kept_first[i] + kept;
	}
	*call = call_at(call, call->stage);
	call->scratch = block_scratch_of(call);
}

struct stage_call call_beside(const struct stage_call *call, enum stage_kind kind)
{
	for (int s = stages_begin(call); s < stages_end(call); s++)
		if (call->model->stages[s].kind == kind)
			return call_at(call, s);
	return (struct stage_call){.stage = -1};
}

dev_addr stream_in(const struct stage_call *call)
{
	for (int s = call->stage - 1; s >= stages_begin(call); s--)
		if (stage_types[call->model->stages[s].kind]->writes_stream) {
			struct stage_call before = call_at(call, s);

			return stream_out(&before);
		}
	return call->memory->x;
}

dev_addr stream_out(const struct stage_call *call)
{
	if (is_last(call))
		return call->memory->y;
	return keeps_stream(call, call->memory->level) ? dev_at(call->kept, call->kept_bytes)
	                                               : acts_at(call, own_acts_bytes(call));
}

int stream_is_kept(const struct stage_call *call)
{
	return call->memory->recompute && keeps_stream(call, call->memory->level);
}

int64_t model_acts_bytes(const struct model *model, int group, enum dtype dtype, int64_t tokens)
{
	const struct model_group *g = &model->groups[group];
	int64_t bytes = 0;

	for (int s = g->first_stage; s < g->first_stage + g->count; s++) {
		struct stage_call call = call_shape(model, s, dtype, tokens);

		bytes += stage_acts_bytes(&call);
	}
	return bytes;
}

int64_t model_kept_bytes(
        const struct model *model, int group, enum acts_level level, enum dtype dtype, int64_t tokens)
{
	const struct model_group *g = &model->groups[group];
	int64_t bytes = 0;

	for (int s = g->first_stage; s < g->first_stage + g->count && level; s++) {
		struct stage_call call = call_shape(model, s, dtype, tokens);

		bytes += stage_kept_bytes(&call, level);
	}
	return bytes;
}

int64_t model_scratch_bytes(const struct model *model, int group, enum dtype dtype, int64_t tokens,
        int64_t targets, int64_t head_rows)
{
	const struct model_group *g = &model->groups[group];
	int64_t most = 0;

	for (int s = g->first_stage; s < g->first_stage + g->count; s++) {
		struct stage_call call = call_shape(model, s, dtype, tokens);
		int64_t bytes;

		call.targets = targets;
		call.head_rows = head_rows;
		bytes = block_scratch_of(&call).bytes;
		if (type_of(&call)->scratch_bytes)
			bytes += type_of(&call)->scratch_bytes(&call);
		most = max_i64(most, bytes);
	}
	return most;
}

int model_writes_output(const struct model *model, int stage)
{
	struct stage_call call = call_shape(model, stage, DTYPE_F32, 1);

	return type_of(&call)->writes_stream && is_last(&call);
}

int model_backward_reads(const struct model *model, int stage)
{
	struct stage_call call = call_shape(model, stage, DTYPE_F32, 1);

	return !type_of(&call)->backward_reads || type_of(&call)->backward_reads(&call);
}

/* ---- the state of generation ---- */

int64_t model_state_bytes(
        const struct model *model, int stage, enum dtype dtype, const struct cache_shape *shape)
{
	struct stage_call call = call_shape(model, stage, dtype, shape->pass_tokens);

	return type_of(&call)->state_bytes ? type_of(&call)->state_bytes(&call, shape) : 0;
}

int model_state_goes_back(
        const struct model *model, const struct cache_shape *shape, int64_t reached, int64_t at)
{
	for (int s = 0; s < model->stage_count; s++) {
		struct stage_call call = call_shape(model, s, DTYPE_F32, shape->pass_tokens);

		if (type_of(&call)->state_goes_back &&
		        !type_of(&call)->state_goes_back(&call, shape, reached, at))
			return 0;
	}
	return 1;
}
