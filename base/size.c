/* Arithmetic on sizes that checks for overflow. */
#include "base/size.h"

#include "base/err.h"

#include <assert.h>
#include <inttypes.h>

int size_add(uint64_t *out, uint64_t a, uint64_t b)
{
	uint64_t sum;

	if (__builtin_add_overflow(a, b, &sum))
		return err_set(ERR_RANGE, "%" PRIu64 " + %" PRIu64 " does not fit 64 bits", a, b);
	*out = sum;
	return 0;
}

int size_mul(uint64_t *out, uint64_t a, uint64_t b)
{
	uint64_t product;

	if (__builtin_mul_overflow(a, b, &product))
		return err_set(ERR_RANGE, "%" PRIu64 " * %" PRIu64 " does not fit 64 bits", a, b);
	*out = product;
	return 0;
}

int size_align(uint64_t *out, uint64_t a, uint64_t align)
{
	uint64_t sum;

	assert(align && !(align & (align - 1)));
	if (__builtin_add_overflow(a, align - 1, &sum))
		return err_set(
		        ERR_RANGE, "%" PRIu64 " rounded up to %" PRIu64 " does not fit 64 bits", a, align);
	*out = sum & ~(align - 1);
	return 0;
}
