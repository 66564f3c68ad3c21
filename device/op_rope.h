/* Rotary position embedding (device/op.h has the rules for all ops). */
#ifndef FERRY_DEVICE_OP_ROPE_H
#define FERRY_DEVICE_OP_ROPE_H

#include "base/dtype.h"
#include "device/addr.h"
#include "device/rope_pairs.h"

#define OP_ROPE_LIST(ROW) ROW(ROPE, rope, rope)

/* Rotates pairs of elements of each head in place. Head h of a token lies at x + token * stride + h *
 * head_stride. Pair j, j < rotary / 2, is (x[j], x[j + rotary / 2]) for ROPE_HALVES and (x[2 j], x[2 j + 1])
 * for ROPE_NEIGHBOURS. table is F32 [table_rows, rotary]: each row holds rotary / 2 cosines, then the sines.
 * Pair j uses the j-th cosine and sine of row position[token]. ROPE_BACKWARD rotates back (the gradient). */
enum rope_direction { ROPE_FORWARD, ROPE_BACKWARD };
struct op_rope {
	dev_addr x, table, position;
	int64_t tokens, heads, stride, head_stride, rotary, table_rows;
	enum rope_direction direction;
	enum dtype dtype;
	enum rope_pairs pairs;
};

#endif
