/* Sizes of the keys and values that generation keeps. */
#include "model/blocks/attention.h"

#include "base/size.h"

int64_t attn_cache_kept(const struct stage_call *call, const struct cache_shape *shape)
{
	int64_t window = call->block->window, kept = window - 1 + shape->pass_tokens;

	return window > 0 && kept < shape->text_rows ? kept : 0;
}

int64_t attn_cache_rows(const struct stage_call *call, const struct cache_shape *shape)
{
	int64_t kept = attn_cache_kept(call, shape);

	return kept ? shape->rows / shape->text_rows * kept : shape->rows;
}

int64_t attn_cache_bytes(const struct stage_call *call, const struct cache_shape *shape)
{
	return attn_cache_rows(call, shape) * attention_cache_row_count(call->block->KV, call->block->D) *
	       call->element_bytes;
}

int attn_cache_goes_back(
        const struct stage_call *call, const struct cache_shape *shape, int64_t reached, int64_t at)
{
	int64_t kept = attn_cache_kept(call, shape);

	return !kept || max_i64(at - call->block->window + 1, 0) >= reached - kept;
}
