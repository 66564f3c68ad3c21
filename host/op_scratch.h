/* Scratch memory of the host device's ops, beside the arena. The compute stream keeps enough for the largest
 * op.
 *
 * The sizes of attention and of the delta rule are exact; those of matrix products are a bound.
 */
#ifndef FERRY_HOST_OP_SCRATCH_H
#define FERRY_HOST_OP_SCRATCH_H

#include "base/size.h"

/* Queries and keys of a tile of attention. Backward takes one pass over the tiles of a head if tokens *
 * head_dim is at most ATTENTION_ONE_PASS_COUNT; it then needs sums for all tokens. */
enum { ATTENTION_Q = 64, ATTENTION_K = 128, ATTENTION_ONE_PASS_COUNT = 2 << 20 };

/* fp32 words of a worker. */
static inline int64_t scratch_attention_count(int64_t head_dim)
{
	return round_up(ATTENTION_Q * ATTENTION_K + 2 * (ATTENTION_Q + ATTENTION_K) * head_dim, 16);
}

static inline int64_t scratch_attention_grad_count(int64_t tokens, int64_t head_dim, int is_one_pass)
{
	int64_t sums = is_one_pass ? 3 * tokens : 2 * ATTENTION_K;

	return round_up(
	        2 * ATTENTION_Q * ATTENTION_K + (2 * ATTENTION_Q + 2 * ATTENTION_K + sums) * head_dim, 16);
}

/* Words of all keys and values. If the CPU multiplies bf16, they are packed once for all workers. */
static inline int64_t scratch_packed_count(int64_t tokens, int64_t kv_heads, int64_t head_dim)
{
	return round_up(tokens, ATTENTION_K) * kv_heads * head_dim;
}

/* fp32 words of a worker for the gated delta rule: the arrays of a chunk, those with a state, and what its
 * gradient needs beside these. */
enum { SCRATCH_DELTA_CHUNK = 64 };

static inline int64_t scratch_delta_chunk_count(int64_t key_dim, int64_t value_dim)
{
	return SCRATCH_DELTA_CHUNK *
	       (3 * round_up(key_dim, 16) + 2 * round_up(value_dim, 16) + 3 * SCRATCH_DELTA_CHUNK);
}

static inline int64_t scratch_delta_count(int64_t key_dim, int64_t value_dim)
{
	return round_up(key_dim * value_dim, 16) + scratch_delta_chunk_count(key_dim, value_dim);
}

static inline int64_t scratch_delta_back_count(int64_t key_dim, int64_t value_dim)
{
	return SCRATCH_DELTA_CHUNK *
	               (5 * round_up(key_dim, 16) + 2 * round_up(value_dim, 16) + 3 * SCRATCH_DELTA_CHUNK) +
	       round_up(key_dim * value_dim, 16);
}

/* Sizes of a model and of its largest micro-batch (tokens). delta_: heads of the gated delta rule; 0: none.
 */
struct scratch_shape {
	int64_t tokens, kv_heads, head_dim, vocab;
	int is_bf16, has_logit_cap;
	int64_t delta_key_dim, delta_value_dim;
};

int64_t scratch_bytes_most(const struct scratch_shape *shape, int workers);

#endif
