/* Attention of new tokens over a cache of keys and values. */
#include "device/op_attention.h"
#include "host/cpu/attention.h"

#include "base/err.h"
#include "base/mem.h"

#include <string.h>

OP_ATTENTION_LIST(CPU_DECLARE)

static struct attention_keys keys_of(const struct op_attention_cached *o)
{
	return (struct attention_keys){.doc_start = cpu_ptr(o->doc_start),
	        .doc_end = cpu_ptr(o->doc_end),
	        .tokens = o->tokens,
	        .window = o->window,
	        .mask = MASK_CAUSAL,
	        .is_cached = 1,
	        .text_rows = o->text_rows,
	        .kept_rows = o->kept_rows};
}

/* Goes from the last token to the first, so that `last` is the end of the token's text. */
static int rows_check(const struct op_attention_cached *o, const struct attention_keys *keys)
{
	int64_t rows = o->kept_rows ? o->cache_rows / o->kept_rows * o->text_rows : o->cache_rows, last = 0;

	for (int64_t t = o->tokens - 1; t >= 0; t--) {
		int32_t start = keys->doc_start[t], end = keys->doc_end[t];

		if (t + 1 == o->tokens || keys->doc_start[t + 1] != start)
			last = end;
		if (start < 0 || start >= end || end > rows)
			return err_set(ERR_RANGE,
			        "attention_cached: token %lld has rows [%d, %d) of a cache of %lld",
			        (long long)t, (int)start, (int)end, (long long)rows);
		if (o->kept_rows && (start % o->text_rows || end - start > o->text_rows ||
		                            last - attention_first_key(keys, t) > o->kept_rows))
			return err_set(ERR_RANGE,
			        "attention_cached: token %lld has rows [%d, %d); texts have %lld, and %lld "
			        "are "
			        "kept",
			        (long long)t, (int)start, (int)end, (long long)o->text_rows,
			        (long long)o->kept_rows);
	}
	return 0;
}

/* Copies keys or values of the new tokens to their rows. */
static void rows_store(
        const struct op_attention_cached *o, const struct attention_keys *keys, dev_addr from, int64_t column)
{
	int64_t element = dtype_bytes(o->dtype), row = attention_cache_row_count(o->kv_heads, o->head_dim);

	for (int64_t t = 0; t < o->tokens; t++) {
		int64_t one = 1, at = attention_key_row(keys, t, keys->doc_end[t] - 1, &one) * row + column;

		for (int64_t g = 0; g < o->kv_heads; g++)
			memcpy((char *)cpu_ptr(o->cache) + (at + g * o->head_dim) * element,
			        (const char *)cpu_ptr(from) +
			                (t * o->qkv_stride + g * o->kv_head_stride) * element,
			        (size_t)(o->head_dim * element));
	}
}

/* Finds the blocks of queries and returns their number. The queries of a block belong to one text. */
static int64_t blocks_find(int32_t *block, const struct op_attention_cached *o)
{
	const int32_t *start = cpu_ptr(o->doc_start), *end = cpu_ptr(o->doc_end);
	int64_t count = 0;

	for (int64_t t = 0; t < o->tokens; t++)
		if (!t || t - block[count - 1] == ATTENTION_Q || start[t] != start[t - 1] ||
		        end[t] != end[t - 1] + 1)
			block[count++] = (int32_t)t;
	block[count] = (int32_t)o->tokens;
	return count;
}

int cpu_attention_cached(struct cpu_context *cx, const struct op_attention_cached *o)
{
	int64_t value = o->kv_heads * o->head_dim;
	struct attention_forward f = {
	        .seen = keys_of(o),
	        .out = o->out,
	        .lse = DEV_NONE,
	        .q = o->q,
	        .k = o->cache,
	        .v = dev_at(o->cache, value * dtype_bytes(o->dtype)),
	        .sink = o->sink,
	        .heads = o->heads,
	        .kv_heads = o->kv_heads,
	        .head_dim = o->head_dim,
	        .q_stride = o->qkv_stride,
	        .q_head_stride = o->q_head_stride,
	        .k_stride = 2 * value,
	        .kv_head_stride = o->head_dim,
	        .out_stride = o->out_stride,
	        .scale = o->scale,
	        .score_cap = o->score_cap,
	        .dtype = o->dtype,
	};
	int rc = rows_check(o, &f.seen);
	int32_t *block = rc ? NULL : mem_alloc((size_t)o->tokens + 1, sizeof(*block));

	if (!block)
		return rc ? rc : ERR_NOMEM;
	rows_store(o, &f.seen, o->k, 0);
	rows_store(o, &f.seen, o->v, value);
	f.block = block;
	f.block_count = blocks_find(block, o);
	rc = attention_forward_run(cx, &f);
	mem_free(block);
	return rc;
}
