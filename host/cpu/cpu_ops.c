/* Calls the function of an op. */
#include "base/err.h"
#include "device/op.h"
#include "host/cpu/cpu.h"

OP_LIST(CPU_DECLARE)

int cpu_op(struct cpu_context *cx, const struct op *op)
{
	switch (op->kind) {
#define CPU_CASE(NAME, name, args)                                                                           \
	case OP_##NAME:                                                                                      \
		return cpu_##name(cx, &op->name);
		OP_LIST(CPU_CASE)
#undef CPU_CASE
	default:
		return err_set(ERR_RANGE, "op kind %d does not exist", (int)op->kind);
	}
}
