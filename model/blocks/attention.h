/* What the files of attention share: its activations, the places of q, k and v in a row, and what is done to
 * heads before they meet. Private to them. */
#ifndef FERRY_MODEL_BLOCKS_ATTENTION_H
#define FERRY_MODEL_BLOCKS_ATTENTION_H

#include "model/blocks/block.h"

/* Offsets in bytes; a part that the block does not need has no room. First what levels keep. */
struct attn_layout {
	int64_t kept[ACTS_LEVELS]; /* so many bytes of each level */
	int64_t mixed;             /* [tokens, H D] attention's output */
	int64_t lse;               /* F32 [tokens, H] */
	int64_t qkv;               /* [tokens, stride] q, k (rotated unless a norm comes first), v and the
	                           output's gate: with ATTN_GATE_W last, with attention_gate behind each head
	                           of q */
	int64_t qk;                /* with Q_NORM_W: the same shape, q and k normalised and rotated, and v
	                           normalised with V_NORM_W */
	int64_t clipped;           /* with a clip: the same shape, q, k and v within it, and rotated */
	int64_t q_rstd, k_rstd;    /* with Q_NORM_W: F32 [tokens, H], [tokens, KV] */
	int64_t v_rstd;            /* with V_NORM_W: F32 [tokens, KV] */
	struct latent_low {
		int64_t low, norm; /* [tokens, rank] before and behind its norm; of k and v with the key */
		int64_t rstd;      /* F32 [tokens] */
	} q_low, kv_low;           /* of latent attention */
	int64_t branch;     /* with POST_NORM1_W: [tokens, C] attention's projection, before that norm */
	int64_t rstd, mean; /* F32 [tokens] */
	int64_t norm;       /* [tokens, C] normalised x */
	int64_t post_rstd, post_mean; /* F32 [tokens] */
	int64_t bytes;
};

/* Fused q, k and v by head, where heads of q share k and v. Two products for each k and v put all q first,
 * then k, v of head 0, k, v of head 1, ... */
static inline int qkv_is_by_group(const struct stage_call *call)
{
	const struct block_config *b = call->block;

	return call->c->qkv_by_head && b->KV != b->H && b->KV > 1;
}

/* Whether the block reads keys and values that an earlier one made (model/values.h). */
static inline int attn_reads_kv(const struct stage_call *call)
{
	return !call_has(call, ROLE_K_W) && !call_has(call, ROLE_QKV_W) && !call_has(call, ROLE_KV_B_W);
}

/* Offsets of q, k, v and the gate in a token's row of qkv; offsets and strides in elements. */
struct qkv_place {
	int64_t stride, q, k, v, q_head_stride, kv_head_stride, gate, gate_head_stride;
};

/* Columns of a head of q in its projection, which may have the gate's too. */
static inline int64_t query_dim(const struct stage_call *call)
{
	return (call->block->attention_gate ? 2 : 1) * call->block->D;
}

static inline struct qkv_place qkv_place_of(const struct stage_call *call)
{
	const struct block_config *b = call->block;
	int64_t D = b->D, query = query_dim(call), k = b->H * query, gate = k + 2 * b->KV * D,
	        stride = gate + (b->has[ROLE_ATTN_GATE_W] ? b->H * D : 0);

	if (b->latent.kv_rank)
		return (struct qkv_place){3 * b->H * D, 0, D, 2 * D, 3 * D, 3 * D, 3 * b->H * D, 0};
	if (call->c->qkv_by_head && b->KV == b->H)
		return (struct qkv_place){stride, 0, D, 2 * D, 3 * D, 3 * D, gate, D};
	if (qkv_is_by_group(call))
		return (struct qkv_place){stride, 0, b->H * D, (b->H + 1) * D, D, 2 * D, gate, D};
	return (struct qkv_place){stride, 0, k, k + b->KV * D, query, D, b->attention_gate ? D : gate, query};
}

static inline const struct attn_layout *layout(const struct stage_call *call)
{
	return call->layout;
}

static inline dev_addr column_at(const struct stage_call *call, dev_addr base, int64_t column)
{
	return dev_at(base, column * call->element_bytes);
}

/* The cache of generation: its bytes, the rows that it has and, if a window forgets, those of each text
 * (else 0); and whether it still has all keys that token `at` sees. */
int64_t attn_cache_bytes(const struct stage_call *call, const struct cache_shape *shape);
int64_t attn_cache_rows(const struct stage_call *call, const struct cache_shape *shape);
int64_t attn_cache_kept(const struct stage_call *call, const struct cache_shape *shape);
int attn_cache_goes_back(
        const struct stage_call *call, const struct cache_shape *shape, int64_t reached, int64_t at);

/* Clips q, k and v; and from dqkv, their gradient, takes what is beyond. */
void attn_clip(struct stage_call *call);
void attn_clip_backward(struct stage_call *call, dev_addr dqkv);

/* Latent attention: its part of the activations and of scratch. */
struct latent_scratch {
	int64_t heads;       /* [tokens, H columns] of a product, or their gradient */
	int64_t dnorm, dlow; /* [tokens, rank] gradients of what a latent norm gives and reads */
};
void latent_layout(const struct stage_call *call, int64_t *end, struct attn_layout *l);
struct latent_scratch latent_scratch_of(const struct stage_call *call, int64_t *end);

/* q, k and v of all heads, in the layout of qkv, from attention's input; and from their gradient that of the
 * input, in F32, and those of the matrices. */
void latent_project(struct stage_call *call, const struct latent_scratch *s, dev_addr qkv);
void latent_project_backward(
        struct stage_call *call, const struct latent_scratch *s, dev_addr dnorm, dev_addr dqkv);

/* Values of heads without the columns that attention needs beside them: narrow from wide, or back. */
void latent_narrow(struct stage_call *call, dev_addr narrow, dev_addr wide);
void latent_widen(struct stage_call *call, dev_addr wide, dev_addr narrow);

/* Turns q and k of `base`, in the layout of qkv, by their positions. */
void attn_rotate(struct stage_call *call, dev_addr base, enum rope_direction direction);

/* The norms of heads, if the block has them: qk from qkv. Backward works in dqkv. If k and v are of one
 * product, v's part joins k's. */
void attn_head_norms_forward(struct stage_call *call);
void attn_head_norms_backward(struct stage_call *call, dev_addr dqkv);

#endif
