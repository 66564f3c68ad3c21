/* The rows of some experts, of rows that are in the order of experts. */
#ifndef FERRY_DEVICE_ROW_RANGE_H
#define FERRY_DEVICE_ROW_RANGE_H

#include "device/addr.h"

#include <stdint.h>

/* Rows first[0] up to first[experts]; `first` is that of op_order (device/op_experts.h) from an expert on.
 * Without it all rows. An op on such rows uses and writes no others. `of` is the number of experts that have
 * all rows: only costs depend on it. */
struct row_range {
	dev_addr first;
	int64_t experts, of;
};

/* How many of `rows` it has, if all experts have as many. */
static inline int64_t row_range_share(const struct row_range *range, int64_t rows)
{
	if (dev_is_none(range->first) || range->experts >= range->of)
		return rows;
	return (int64_t)((double)rows * (double)range->experts / (double)range->of) + 1;
}

#endif
