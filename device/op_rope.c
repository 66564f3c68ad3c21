/* Description of rotary position embedding: requirements and operands. */
#include "device/op_rope.h"

#include "device/op_facts.h"

#include <inttypes.h>

OP_ROPE_LIST(OP_DESCRIBED)

int op_describe_rope(struct op_facts *f, const struct op_rope *p)
{
	if (SIZE(tokens, 1) || SIZE(heads, 1) || SIZE(rotary, 2) || SIZE(table_rows, 1) ||
	        SIZE(head_stride, p->heads > 1 ? p->rotary : 0) ||
	        SIZE(stride, size_of_row(p->heads, p->head_stride, p->rotary)))
		return ERR_RANGE;
	if (p->rotary % 2)
		return op_refuse(f, "rotary is %" PRId64 ", must be even", p->rotary);
	if (COMPUTE_DTYPE(dtype))
		return ERR_RANGE;
	READ(table, .dtype = DTYPE_F32, .rows = p->table_rows, .cols = p->rotary, .used_rows = p->tokens);
	READ(position, .dtype = DTYPE_I32, .cols = p->tokens);
	UPDATE(x, .dtype = p->dtype, .rows = p->tokens, .stride = p->stride, .groups = p->heads,
	        .group_stride = p->head_stride, .cols = p->rotary);
	return 0;
}
