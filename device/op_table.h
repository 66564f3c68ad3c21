/* Ops on indexed rows: embedding, its gradient, rows with a target (device/op.h has the rules for all ops).
 */
#ifndef FERRY_DEVICE_OP_TABLE_H
#define FERRY_DEVICE_OP_TABLE_H

#include "base/dtype.h"
#include "device/addr.h"

#define OP_TABLE_LIST(ROW)                                                                                   \
	ROW(GATHER, gather, gather)                                                                          \
	ROW(SCATTER, scatter, scatter)                                                                       \
	ROW(EMBED_GRAD, embed_grad, embed_grad)

/* out[i,:] (= or, with accumulate, +=) table[index[i],:]. The caller guarantees 0 <= index < table_rows; the
 * host backend checks it. For embedding lookup, and to pick the rows with a target. */
struct op_gather {
	dev_addr out, table, index;
	int64_t rows, cols, table_rows;
	enum dtype dtype;
	int accumulate;
	int is_turned; /* 1: table is stored [cols, table_rows]; not with accumulate */
};

/* out[index[i],:] = x[i,:]. No two indices are equal. Other rows of out keep their values. */
struct op_scatter {
	dev_addr out, x, index;
	int64_t rows, cols, out_rows;
	enum dtype dtype;
};

/* grad[index[i],:] (F32) += dy[i,:], in ascending i for equal indices; rows with the index skip_index add
 * nothing (-1: skips none). scratch: I32 [embed_grad_scratch_count(rows, table_rows)] for backends that
 * sort. */
struct op_embed_grad {
	dev_addr grad, dy, index, scratch;
	int64_t rows, cols, table_rows, skip_index;
	enum dtype dtype;
	int is_turned; /* 1: grad is stored [cols, table_rows] */
};
int64_t embed_grad_scratch_count(int64_t rows, int64_t table_rows);

#endif
