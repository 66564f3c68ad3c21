/* The ops: what a device computes, as plain data.
 *
 * An op is a kind and its arguments; stream_op (device/device.h) queues it. OP_LIST names all ops. Its rows
 * stand beside the structs of arguments in the headers below. The kinds, names, the union, the declarations
 * and each backend's dispatch come from this list, so a backend that lacks an op does not link.
 *
 * op_describe_<name> (device/op_facts.h) describes each op once: its requirements, the bytes that it reads
 * and writes, and its arithmetic. op_check, op_access_list and op_cost_of use this description.
 *
 * Names: rows and cols are the sizes of a row-major matrix; m, n and k are those of a product. tokens is the
 * length of a micro-batch. Its documents follow each other without padding. Strides are in elements. A
 * "compute dtype" satisfies dtype_computes(). Sums accumulate in fp32 or more. Their order depends on shapes
 * only, never on threads. Gradients of parameters are fp32 and are added to (+=); gradients of activations
 * are written (=). Optional addresses are DEV_NONE. Outputs must not overlap inputs unless the op allows it.
 */
#ifndef FERRY_DEVICE_OP_H
#define FERRY_DEVICE_OP_H

#include "device/op_act.h"        /* IWYU pragma: export */
#include "device/op_attention.h"  /* IWYU pragma: export */
#include "device/op_coded.h"      /* IWYU pragma: export */
#include "device/op_cost.h"       /* IWYU pragma: export */
#include "device/op_experts.h"    /* IWYU pragma: export */
#include "device/op_loss.h"       /* IWYU pragma: export */
#include "device/op_magnitude.h"  /* IWYU pragma: export */
#include "device/op_matmul.h"     /* IWYU pragma: export */
#include "device/op_move.h"       /* IWYU pragma: export */
#include "device/op_noise.h"      /* IWYU pragma: export */
#include "device/op_norm.h"       /* IWYU pragma: export */
#include "device/op_optim.h"      /* IWYU pragma: export */
#include "device/op_pool.h"       /* IWYU pragma: export */
#include "device/op_preference.h" /* IWYU pragma: export */
#include "device/op_recurrent.h"  /* IWYU pragma: export */
#include "device/op_rope.h"       /* IWYU pragma: export */
#include "device/op_table.h"      /* IWYU pragma: export */

/* ROW(NAME, name, arguments) declares OP_NAME. Its functions end in _name and take a struct op_<arguments>.
 */
#define OP_LIST(ROW)                                                                                         \
	OP_MOVE_LIST(ROW)                                                                                    \
	OP_MATMUL_LIST(ROW)                                                                                  \
	OP_CODED_LIST(ROW)                                                                                   \
	OP_TABLE_LIST(ROW)                                                                                   \
	OP_POOL_LIST(ROW)                                                                                    \
	OP_NORM_LIST(ROW)                                                                                    \
	OP_ROPE_LIST(ROW)                                                                                    \
	OP_ATTENTION_LIST(ROW)                                                                               \
	OP_RECURRENT_LIST(ROW)                                                                               \
	OP_ACT_LIST(ROW)                                                                                     \
	OP_EXPERTS_LIST(ROW)                                                                                 \
	OP_LOSS_LIST(ROW)                                                                                    \
	OP_PREFERENCE_LIST(ROW)                                                                              \
	OP_NOISE_LIST(ROW)                                                                                   \
	OP_MAGNITUDE_LIST(ROW)                                                                               \
	OP_OPTIM_LIST(ROW)

enum op_kind {
#define OP_ENUM(NAME, name, args) OP_##NAME,
	OP_LIST(OP_ENUM)
#undef OP_ENUM
	        OP_KIND_COUNT
};

/* A member for each name, such as op->rope. op->norm shares the bytes of op->rmsnorm and op->layernorm. */
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

/* Checks that shapes are positive, strides are wide enough, dtypes are allowed, and addresses are present
 * and aligned to their elements. Checks that no output overlaps another operand unless the op allows it;
 * operands with gaps are not compared. Returns 0, or ERR_RANGE naming the op and the field. */
int op_check(const struct op *op);

/* Checks an op as op_check does, and lists the byte ranges that it reads and writes. A range may cover the
 * gaps of strides, and may appear twice, for reading and for writing. Returns the number, at most
 * OP_ACCESS_MAX. */
enum { OP_ACCESS_MAX = 24 };
struct op_access {
	dev_addr base;
	int64_t bytes;
	int writes;
};
int op_access_list(const struct op *op, struct op_access *list);

/* The minimum cost of an op; call op_check first. Counts the arithmetic of matrix products, and bytes of
 * device memory without the gaps of strides. For attention it counts the pairs that the mask leaves, with
 * documents of maximum length. */
void op_cost_of(const struct op *op, struct op_cost *cost);

#endif
