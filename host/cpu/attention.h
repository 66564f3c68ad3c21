/* Shared by attention forward and backward: the keys that a query sees, and rows of a head as fp32. */
#ifndef FERRY_HOST_CPU_ATTENTION_H
#define FERRY_HOST_CPU_ATTENTION_H

#include "device/op_attention.h"
#include "host/cpu/attention_bf16.h"
#include "host/cpu/cpu_inner.h"
#include "host/op_scratch.h"

_Static_assert(ATTENTION_K == (int)ATTENTION_BF16_COLUMNS, "keys of a block are packed together");

/* The keys that a token sees. */
struct attention_keys {
	const int32_t *doc_start, *doc_end;
	int64_t tokens, window;
	enum attention_mask mask;
	int is_cached;                /* keys are rows of a cache, and doc_end is one past the token's own */
	int64_t text_rows, kept_rows; /* of that cache; kept_rows 0: all */
};

/* Returns the row of key j of query i. *count holds the number of keys wanted from j on; it is lowered to the
 * keys in consecutive rows. */
static inline int64_t attention_key_row(
        const struct attention_keys *keys, int64_t i, int64_t j, int64_t *count)
{
	int64_t text, at;

	if (!keys->kept_rows)
		return j;
	text = keys->doc_start[i] / keys->text_rows;
	at = (j - keys->doc_start[i]) % keys->kept_rows;
	*count = min_i64(*count, keys->kept_rows - at);
	return text * keys->kept_rows + at;
}

/* The key that belongs to query i. */
static inline int64_t attention_own_key(const struct attention_keys *keys, int64_t i)
{
	return keys->is_cached ? keys->doc_end[i] - 1 : i;
}

/* Checks that documents follow each other and each token lies within its own. Returns 0 or ERR_RANGE. */
int attention_keys_check(const struct attention_keys *keys, const char *op_name);

/* First key that query i sees, and one past the last; it sees all between. Neither decreases with i. */
static inline int64_t attention_first_key(const struct attention_keys *keys, int64_t i)
{
	int64_t first = keys->doc_start[i], own = attention_own_key(keys, i);

	return keys->window > 0 && own - keys->window + 1 > first ? own - keys->window + 1 : first;
}

static inline int64_t attention_key_end(const struct attention_keys *keys, int64_t i)
{
	int64_t end = keys->doc_end[i];

	if (keys->mask == MASK_CAUSAL)
		return attention_own_key(keys, i) + 1;
	return keys->window > 0 && i + keys->window < end ? i + keys->window : end;
}

/* First query that sees key j, and one past the last. Neither decreases with j. */
static inline int64_t attention_first_query(const struct attention_keys *keys, int64_t j)
{
	return keys->mask == MASK_CAUSAL ? j : attention_first_key(keys, j);
}

static inline int64_t attention_query_end(const struct attention_keys *keys, int64_t j)
{
	int64_t end = keys->doc_end[j];

	return keys->window > 0 && j + keys->window < end ? j + keys->window : end;
}

/* Columns [*begin, *end) of keys [k0, k0 + k_count) that query i sees; none: *begin == *end. */
static inline void attention_columns(const struct attention_keys *keys, int64_t *begin, int64_t *end,
        int64_t i, int64_t k0, int64_t k_count)
{
	int64_t first = attention_first_key(keys, i) - k0, last = attention_key_end(keys, i) - k0;

	*begin = first < 0 ? 0 : first;
	*end = last > k_count ? k_count : last;
	if (*begin >= *end)
		*begin = *end = 0;
}

/* The forward pass, by blocks of queries. Each block sees one run of keys. Rows of k and v are k_stride
 * elements apart, heads kv_head_stride. lse may be DEV_NONE. */
struct attention_forward {
	struct attention_keys seen;
	dev_addr out, lse, q, k, v, sink, bias;
	int64_t heads, kv_heads, head_dim;
	int64_t q_stride, q_head_stride, k_stride, kv_head_stride, out_stride;
	double scale, score_cap;
	enum dtype dtype;
	const int32_t *block; /* [block_count + 1] first query of each block, at most ATTENTION_Q apart */
	int64_t block_count;
};
int attention_forward_run(struct cpu_context *cx, const struct attention_forward *forward);

/* The sink of a head as fp32. */
static inline float attention_sink(const struct cpu_kernels *k, dev_addr sink, int64_t h, enum dtype dtype)
{
	float buffer;

	return *cpu_load(k, &buffer, cpu_ptr(sink), h, 1, dtype);
}

/* Adds the bias of head h to the scores of query i and `count` keys from j on. */
static inline void attention_add_bias(const struct cpu_kernels *k, float *scores, dev_addr bias,
        int64_t tokens, int64_t h, int64_t i, int64_t j, int64_t count, enum dtype dtype)
{
	float buffer[ATTENTION_K];

	if (!dev_is_none(bias) && count > 0)
		k->add(scores, scores,
		        cpu_load(k, buffer, cpu_ptr(bias), (2 * h + 1) * tokens + j - i, count, dtype),
		        count);
}

/* Rows of one head as fp32: in place, or widened into buffer. */
static inline const float *attention_load(const struct cpu_kernels *k, float *buffer, int64_t *stride,
        const void *x, int64_t at, int64_t x_stride, int64_t rows, int64_t cols, enum dtype dtype)
{
	if (dtype == DTYPE_F32) {
		*stride = x_stride;
		return (const float *)x + at;
	}
	for (int64_t r = 0; r < rows; r++)
		k->widen(buffer + r * cols, (const uint16_t *)x + at + r * x_stride, cols);
	*stride = cols;
	return buffer;
}

#endif
