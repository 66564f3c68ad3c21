/* What attention forward and backward share: which blocks there are, and the scores of one. */
#ifndef FERRY_HOST_CPU_ATTENTION_H
#define FERRY_HOST_CPU_ATTENTION_H

#include "device/op_attention.h"
#include "host/cpu/cpu_inner.h"

/* Queries and keys of a block. */
enum { ATTENTION_Q = 64, ATTENTION_K = 128 };

/* Which keys a token sees. */
struct attention_keys {
	const int32_t *doc_start, *doc_end;
	int64_t tokens, window;
};

/* 0, or ERR_RANGE: documents must lie one after the other and each token within its own. */
int attention_keys_check(const struct attention_keys *mask, const char *op_name);

/* First key that query i sees; it sees all from there to i. Does not decrease with i. */
static inline int64_t attention_first_key(const struct attention_keys *mask, int64_t i)
{
	int64_t first = mask->doc_start[i];

	return mask->window > 0 && i - mask->window + 1 > first ? i - mask->window + 1 : first;
}

/* One past the last query that sees key j. Does not decrease with j. */
static inline int64_t attention_query_end(const struct attention_keys *mask, int64_t j)
{
	int64_t end = mask->doc_end[j];

	return mask->window > 0 && j + mask->window < end ? j + mask->window : end;
}

/* Columns [*begin, *end) of keys [k0, k0 + k_count) that query i sees; none: *begin == *end. */
static inline void attention_columns(const struct attention_keys *mask, int64_t *begin, int64_t *end,
        int64_t i, int64_t k0, int64_t k_count)
{
	int64_t first = attention_first_key(mask, i) - k0, last = i + 1 - k0;

	*begin = first < 0 ? 0 : first;
	*end = last > k_count ? k_count : last;
	if (*begin >= *end)
		*begin = *end = 0;
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
