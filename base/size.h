/* Arithmetic on sizes that checks for overflow. Every size from a file or a user passes through here.
 *
 * Each function returns 0 and writes *out, or returns ERR_RANGE with a text and leaves *out unchanged.
 */
#ifndef FERRY_BASE_SIZE_H
#define FERRY_BASE_SIZE_H

#include <stddef.h>
#include <stdint.h>

int size_add(uint64_t *out, uint64_t a, uint64_t b);
int size_mul(uint64_t *out, uint64_t a, uint64_t b);

/* Next multiple of align (a power of two) at or above a. */
int size_align(uint64_t *out, uint64_t a, uint64_t align);

/* Like size_align for any multiple, without a check: only for values known to be small. */
static inline int64_t round_up(int64_t a, int64_t multiple)
{
	return (a + multiple - 1) / multiple * multiple;
}

static inline int64_t min_i64(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static inline int64_t max_i64(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

#endif
