/* The maximum scratch memory of the host device's ops. */
#include "host/op_scratch.h"

/* A worker needs a tile of the product and its operands, in panels or on the stack. If k is cut, there are
 * also parts of c: at most 24 with 256 x 512 elements. */
enum {
	MATMUL_WORKER_BYTES = (256 * 512 + (256 + 512) * 512 + 2 * 16) * 4,
	MATMUL_PARTS_BYTES = 24 * 256 * 512 * 4
};

int64_t scratch_bytes_most(const struct scratch_shape *s, int workers)
{
	int is_one_pass = s->tokens * s->head_dim <= ATTENTION_ONE_PASS_COUNT;
	int64_t packed = s->is_bf16 ? scratch_packed_count(s->tokens, s->kv_heads, s->head_dim) : 0;
	int64_t forward = 4 * (packed + workers * scratch_attention_count(s->head_dim));
	int64_t backward = 4 * workers * scratch_attention_grad_count(s->tokens, s->head_dim, is_one_pass);
	int64_t products = MATMUL_PARTS_BYTES + (int64_t)workers * MATMUL_WORKER_BYTES;
	int64_t loss = s->has_logit_cap ? 4 * workers * s->vocab : 0;
	int64_t delta =
	        s->delta_key_dim
	                ? 4 * workers *
	                          (scratch_delta_count(s->delta_key_dim, s->delta_value_dim) +
	                                  scratch_delta_back_count(s->delta_key_dim, s->delta_value_dim))
	                : 0;

	return max_i64(max_i64(forward, max_i64(backward, delta)), max_i64(products, loss));
}
