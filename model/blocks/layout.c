/* Sizes and offsets of activations, scratch and KV cache. */
#include "model/blocks/block.h"

#include "base/size.h"

enum { LAYOUT_ALIGN_BYTES = 256 };

int64_t layout_take(int64_t *end_bytes, int64_t count, int64_t element_bytes)
{
	int64_t offset = *end_bytes;

	*end_bytes = round_up(offset + count * element_bytes, LAYOUT_ALIGN_BYTES);
	return offset;
}

struct qkv_place qkv_place_of(const struct model_config *c)
{
	int64_t stride = (c->H + 2 * c->KV) * c->D;

	if (c->qkv_by_head && c->KV == c->H)
		return (struct qkv_place){stride, 0, c->D, 2 * c->D, 3 * c->D, 3 * c->D};
	if (qkv_is_by_group(c))
		return (struct qkv_place){stride, 0, c->H * c->D, (c->H + 1) * c->D, c->D, 2 * c->D};
	return (struct qkv_place){stride, 0, c->H * c->D, (c->H + c->KV) * c->D, c->D, c->D};
}

struct acts_layout acts_layout_of(const struct model *model, enum dtype dtype, int64_t tokens)
{
	const struct model_config *c = &model->config;
	int64_t e = dtype_bytes(dtype), end = 0, stride = qkv_place_of(c).stride;
	int64_t means = c->norm == NORM_LAYER ? tokens : 0;
	struct acts_layout a = {0};

	a.rstd1 = layout_take(&end, tokens, 4);
	a.mean1 = layout_take(&end, means, 4);
	a.norm1 = layout_take(&end, c->has[ROLE_NORM1_W] ? tokens * c->C : 0, e);
	a.qkv = layout_take(&end, tokens * stride, e);
	a.qk = layout_take(&end, c->has[ROLE_Q_NORM_W] ? tokens * stride : 0, e);
	a.q_rstd = layout_take(&end, c->has[ROLE_Q_NORM_W] ? tokens * c->H : 0, 4);
	a.k_rstd = layout_take(&end, c->has[ROLE_Q_NORM_W] ? tokens * c->KV : 0, 4);
	a.mixed = layout_take(&end, tokens * c->H * c->D, e);
	a.branch1 = layout_take(&end, c->has[ROLE_POST_NORM1_W] ? tokens * c->C : 0, e);
	a.post_rstd1 = layout_take(&end, c->has[ROLE_POST_NORM1_W] ? tokens : 0, 4);
	a.lse = layout_take(&end, tokens * c->H, 4);
	a.middle = layout_take(&end, tokens * c->C, e);
	a.rstd2 = layout_take(&end, tokens, 4);
	a.mean2 = layout_take(&end, means, 4);
	a.norm2 = layout_take(&end, c->has[ROLE_NORM2_W] ? tokens * c->C : 0, e);
	a.gate = layout_take(&end, model_is_gated(c) ? tokens * c->F : 0, e);
	a.up = layout_take(&end, tokens * c->F, e);
	a.branch2 = layout_take(&end, c->has[ROLE_POST_NORM2_W] ? tokens * c->C : 0, e);
	a.post_rstd2 = layout_take(&end, c->has[ROLE_POST_NORM2_W] ? tokens : 0, 4);
	a.bytes = end;
	return a;
}

struct scratch_layout scratch_layout_of(const struct model *model, enum dtype dtype, int64_t tokens)
{
	const struct model_config *c = &model->config;
	int64_t e = dtype_bytes(dtype), end = 0, shared, stride = qkv_place_of(c).stride;
	int64_t partial = norm_scratch_count(tokens, 1, c->C);
	int sums = dtype == DTYPE_F32 || model_is_gated(c) || !c->has[ROLE_QKV_W] || qkv_is_by_group(c);
	struct scratch_layout s = {0};

	if (c->has[ROLE_Q_NORM_W])
		partial = max_i64(partial, c->qk_norm_whole ? norm_scratch_count(tokens, 1, c->H * c->D)
		                                            : norm_scratch_count(tokens, c->H, c->D));
	s.residual = layout_take(&end, c->parallel_residual ? tokens * c->C : 0, e);
	s.branch = layout_take(&end,
	        c->has[ROLE_POST_NORM1_W] || c->has[ROLE_POST_NORM2_W] || c->residual_scale != 0
	                ? tokens * c->C
	                : 0,
	        e);
	s.dnorm = layout_take(&end, sums ? tokens * c->C : 0, 4);
	s.dnorm_cast = layout_take(&end, dtype == DTYPE_F32 ? 0 : tokens * c->C, e);
	s.norm_partial = layout_take(&end, partial, 4);
	s.norm_zeros = layout_take(&end, norm_zero_count(c), e);
	s.norm_sink = layout_take(&end, norm_sink_count(model), 4);
	s.adapter = layout_take(&end, tokens * c->adapter_rank, e);
	s.adapter_grad = layout_take(&end, tokens * c->adapter_rank, e);
	shared = end;
	s.hidden = layout_take(&end, tokens * c->F, e);
	s.bytes = end;
	end = shared;
	s.dmixed = layout_take(&end, tokens * c->H * c->D, e);
	s.dqkv = layout_take(&end, tokens * stride, e);
	s.attention = layout_take(&end, attention_scratch_count(tokens, c->H, c->D), 4);
	s.bytes = max_i64(s.bytes, end);
	return s;
}

int64_t model_cache_kept(const struct model *model, int layer, const struct cache_shape *shape)
{
	int64_t window = model->config.block[layer].window, kept = window - 1 + shape->pass_tokens;

	return window > 0 && kept < shape->text_rows ? kept : 0;
}

int64_t model_cache_rows(const struct model *model, int layer, const struct cache_shape *shape)
{
	int64_t kept = model_cache_kept(model, layer, shape);

	return kept ? shape->rows / shape->text_rows * kept : shape->rows;
}

int64_t model_cache_bytes(
        const struct model *model, int layer, enum dtype dtype, const struct cache_shape *shape)
{
	const struct model_config *c = &model->config;

	return model_cache_rows(model, layer, shape) * attention_cache_row_count(c->KV, c->D) *
	       dtype_bytes(dtype);
}

int64_t model_acts_bytes(const struct model *model, enum dtype dtype, int64_t tokens)
{
	return acts_layout_of(model, dtype, tokens).bytes;
}

int64_t model_scratch_bytes(const struct model *model, enum stage_kind kind, enum dtype dtype, int64_t tokens,
        int64_t targets, int64_t head_rows)
{
	if (kind == STAGE_EMBED)
		return embed_scratch_bytes(model, dtype, tokens);
	if (kind == STAGE_HEAD)
		return targets ? head_layout_of(model, dtype, targets, head_rows).bytes : 0;
	return scratch_layout_of(model, dtype, tokens).bytes;
}
