/* Rotary position embedding (device/op.h says what all ops have in common). */
#ifndef FERRY_DEVICE_OP_ROPE_H
#define FERRY_DEVICE_OP_ROPE_H

#include "base/dtype.h"
#include "device/addr.h"
#include "device/rope_pairs.h"

#define OP_ROPE_LIST(ROW) ROW(ROPE, rope, rope)

/* In place: for each token and each of `heads` heads (head h at x + token * stride + h * head_stride), the
 * pairs (x[j], x[j + rotary / 2]), or (x[2 j], x[2 j + 1]), j < rotary / 2, turn by the angle whose cosine
 * and sine stand at table[position[token]]: table is F32 [table_rows, rotary], the rotary/2 cosines first,
 * then the sines. ROPE_BACKWARD turns back (the gradient). */
enum rope_direction { ROPE_FORWARD, ROPE_BACKWARD };
struct op_rope {
	dev_addr x, table, position;
	int64_t tokens, heads, stride, head_stride, rotary, table_rows;
	enum rope_direction direction;
	enum dtype dtype;
	enum rope_pairs pairs;
};

#endif
