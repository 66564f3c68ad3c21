/* Calls the launcher of an op. */
#include "base/err.h"
#include "device/op.h"
#include "gpu/cuda.h"

OP_LIST(CUDA_DECLARE)

int cuda_op(const struct cuda_launch *at, const struct op *op)
{
	switch (op->kind) {
#define CUDA_CASE(NAME, name, args)                                                                          \
	case OP_##NAME:                                                                                      \
		return cuda_##name(at, &op->name);
		OP_LIST(CUDA_CASE)
#undef CUDA_CASE
	default:
		return err_set(ERR_RANGE, "op kind %d does not exist", (int)op->kind);
	}
}
