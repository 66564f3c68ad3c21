/* Sizes that config.json gives to the shapes of tensors. */
#include "model/tables.h"

/* Of layers with a recurrent state. */
static int64_t recurrent_dim(const struct block_config *b, enum model_dim dim)
{
	switch (dim) {
	case DIM_SCAN_IN:
		return scan_in_cols(&b->delta);
	case DIM_DELTA_QKV:
		return delta_qkv_cols(&b->delta);
	case DIM_DELTA_V:
		return delta_value_cols(&b->delta);
	case DIM_DELTA_HEADS:
		return b->delta.value_heads;
	default:
		return b->delta.value_dim;
	}
}

/* Of experts. `rank`: of the adapter whose tensor it is. */
static int64_t experts_dim(
        const struct model_config *c, const struct experts_config *e, enum model_dim dim, int64_t rank)
{
	switch (dim) {
	case DIM_EXPERTS:
		return e->count;
	case DIM_EXPERT_INNER:
		return e->F;
	case DIM_EXPERT_INNER_TWICE:
		return 2 * e->F;
	case DIM_EXPERT_RANKS:
		return e->count * rank;
	case DIM_EXPERT_INNERS:
		return e->count * e->F;
	case DIM_EXPERT_INNERS_TWICE:
		return e->count * 2 * e->F;
	case DIM_EXPERT_HIDDENS:
		return e->count * experts_width(e, c->C);
	case DIM_EXPERT_WIDTH:
		return experts_width(e, c->C);
	case DIM_SHARED:
		return e->shared;
	default:
		return 2 * e->shared;
	}
}

int64_t model_dim_of(const struct model_config *c, enum model_dim dim, enum tensor_role role, int layer)
{
	const struct block_config *b = layer >= 0 ? &c->block[layer] : NULL;

	switch (dim) {
	case DIM_ONE:
		return 1;
	case DIM_VOCAB:
		return c->V;
	case DIM_HIDDEN:
		return c->C;
	case DIM_POSITIONS:
		return c->max_positions + c->position_offset;
	case DIM_TYPES:
		return c->types;
	case DIM_LABELS:
	case DIM_DENSE_OUT:
	case DIM_DENSE_IN:
		return model_pool_dim(c, dim, role);
	case DIM_HEADS:
		return b->H;
	case DIM_ALL_HEADS:
		return c->H;
	case DIM_DISTANCES:
		return c->relative_rows;
	case DIM_Q:
		return b->H * (b->latent.kv_rank ? b->latent.value : b->D);
	case DIM_Q_LOW:
		return b->latent.q_rank;
	case DIM_KV_LOW:
		return b->latent.kv_rank;
	case DIM_KV_LOW_KEY:
		return b->latent.kv_rank + b->latent.shared;
	case DIM_KV_HEADS:
		return b->H * (b->latent.own + b->latent.value);
	case DIM_QUERY:
		if (b->latent.kv_rank)
			return b->H * (b->latent.own + b->latent.shared);
		return (b->attention_gate ? 2 : 1) * b->H * b->D;
	case DIM_KV:
		return b->KV * b->D;
	case DIM_QKV:
		return (b->H + 2 * b->KV) * b->D;
	case DIM_Q_NORM:
		return c->qk_norm_whole ? b->H * b->D : b->D;
	case DIM_K_NORM:
		return c->qk_norm_whole ? b->KV * b->D : b->D;
	case DIM_V_NORM:
		return b->D;
	case DIM_INNER:
		return b->F;
	case DIM_INNER_TWICE:
		return 2 * b->F;
	case DIM_EXPERTS:
	case DIM_EXPERT_INNER:
	case DIM_EXPERT_INNER_TWICE:
	case DIM_EXPERT_RANKS:
	case DIM_EXPERT_INNERS:
	case DIM_EXPERT_INNERS_TWICE:
	case DIM_EXPERT_HIDDENS:
	case DIM_EXPERT_WIDTH:
	case DIM_SHARED:
	case DIM_SHARED_TWICE:
		return experts_dim(c, &b->experts, dim, b->adapter[role].rank);
	case DIM_SCAN_IN:
	case DIM_DELTA_QKV:
	case DIM_DELTA_V:
	case DIM_DELTA_HEADS:
	case DIM_DELTA_HEAD:
		return recurrent_dim(b, dim);
	case DIM_CONV_IN:
		return 3 * c->C;
	case DIM_TAPS:
		return b->taps;
	case DIM_INPUTS_VOCAB:
		return c->inputs_vocab;
	case DIM_INPUTS:
		return c->L * c->input_columns;
	case DIM_INPUT:
		return c->input_columns;
	case DIM_RANK:
		return config_adapter(c, role, layer)->rank;
	}
	return 0;
}
