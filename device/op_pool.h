/* The largest state of each document, column by column (device/op.h has the rules for all ops). */
#ifndef FERRY_DEVICE_OP_POOL_H
#define FERRY_DEVICE_OP_POOL_H

#include "base/dtype.h"
#include "device/addr.h"

#define OP_POOL_LIST(ROW)                                                                                    \
	ROW(POOL_MAX, pool_max, pool_max)                                                                    \
	ROW(POOL_MAX_GRAD, pool_max_grad, pool_max_grad)

/* Document d has the rows first[d] to last[d] of x. out[d, c] (F32) is the largest of their numbers in column
 * c, and place[d, c] (int32) the row that has it, the first of equal ones; a NaN counts as the largest.
 *
 * Backward: dx[place[d, c], c] += dout[d, c], both F32. No two documents share a row. */
struct op_pool_max {
	dev_addr out, place, x, first, last;
	int64_t documents, cols, rows;
	enum dtype dtype; /* of x */
};
struct op_pool_max_grad {
	dev_addr dx, dout, place;
	int64_t documents, cols, rows;
};

#endif
