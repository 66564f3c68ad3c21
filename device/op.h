/* The ops: what a device computes, as plain data.
 *
 * An op is a kind and its arguments; stream_op (device/device.h) queues it. One list names them all: it is
 * made of the rows that stand beside the arguments' structs in the headers below, and from it come the kinds,
 * names, the union, the declarations and the dispatch of each backend. What an op requires of its arguments,
 * which bytes it reads and writes and what it computes is described once, by op_describe_<name>
 * (device/op_facts.h); op_check, op_access_list and op_cost_of are read off that. A backend that lacks an op
 * does not link.
 *
 * Letters: rows/cols of a row-major matrix, m n k of a product, tokens of a micro-batch whose documents stand
 * one after the other without padding. Strides are in elements. "compute dtype" is one for which
 * dtype_computes() holds. Sums accumulate in fp32 (or more) and in an order that depends on shapes only,
 * never on threads. Gradients of parameters are fp32 and are added to (+=); gradients of activations are
 * written (=). Optional addresses are DEV_NONE. Outputs may not overlap inputs unless it says so.
 */
#ifndef FERRY_DEVICE_OP_H
#define FERRY_DEVICE_OP_H

#include "device/op_act.h"
#include "device/op_attention.h"
#include "device/op_cost.h"
#include "device/op_loss.h"
#include "device/op_matmul.h"
#include "device/op_move.h"
#include "device/op_norm.h"
#include "device/op_optim.h"
#include "device/op_rope.h"
#include "device/op_table.h"

/* ROW(NAME, name, arguments): OP_NAME; its functions end in _name; its arguments are a struct op_<arguments>.
 */
#define OP_LIST(ROW)                                                                                         \
	OP_MOVE_LIST(ROW)                                                                                    \
	OP_MATMUL_LIST(ROW)                                                                                  \
	OP_TABLE_LIST(ROW)                                                                                   \
	OP_NORM_LIST(ROW)                                                                                    \
	OP_ROPE_LIST(ROW)                                                                                    \
	OP_ATTENTION_LIST(ROW)                                                                               \
	OP_ACT_LIST(ROW)                                                                                     \
	OP_LOSS_LIST(ROW)                                                                                    \
	OP_OPTIM_LIST(ROW)

enum op_kind {
#define OP_ENUM(NAME, name, args) OP_##NAME,
	OP_LIST(OP_ENUM)
#undef OP_ENUM
	        OP_KIND_COUNT
};

/* A member for each name, as op->rope; op->norm is the same bytes as op->rmsnorm and op->layernorm. */
struct op {
	enum op_kind kind;
	union {
#define OP_MEMBER(NAME, name, args) struct op_##args name;
		OP_LIST(OP_MEMBER)
#undef OP_MEMBER
		struct op_norm norm;
		struct op_norm_grad norm_grad;
	};
};

const char *op_name(enum op_kind kind);

/* Shapes positive, strides wide enough, dtypes allowed, addresses there and aligned to their elements,
 * nothing written over an operand that may not be (of those without gaps): 0, or ERR_RANGE naming the op and
 * the field. */
int op_check(const struct op *op);

/* Byte ranges that an op reads and writes (a range may cover the gaps of strides); op_check has accepted it.
 * A range may be listed twice, once for reading and once for writing. Returns the number, at most
 * OP_ACCESS_MAX.
 */
enum { OP_ACCESS_MAX = 20 };
struct op_access {
	dev_addr base;
	int64_t bytes;
	int writes;
};
int op_access_list(const struct op *op, struct op_access *list);

/* What an op costs at least, that op_check has accepted: arithmetic of matrix products (attention included:
 * the pairs that its mask leaves of documents that are as long as they can be), and bytes of device memory
 * without the gaps of strides. */
void op_cost_of(const struct op *op, struct op_cost *cost);

#endif
