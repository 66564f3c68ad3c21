/* Parts of the descriptions of ops: checks of sizes and dtypes, operands, sizes that saturate. */
#include "device/op_facts.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

int64_t size_times(int64_t a, int64_t b)
{
	int64_t r;

	return __builtin_mul_overflow(a, b, &r) ? INT64_MAX : r;
}

int64_t size_plus(int64_t a, int64_t b)
{
	int64_t r;

	return __builtin_add_overflow(a, b, &r) ? INT64_MAX : r;
}

int64_t size_of_row(int64_t groups, int64_t group_stride, int64_t cols)
{
	return groups < 1 ? INT64_MAX : size_plus(size_times(groups - 1, group_stride), cols);
}

int op_refuse(const struct op_facts *f, const char *format, ...)
{
	char text[256];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return err_set(ERR_RANGE, "%s: %s", f->name, text);
}

int op_size(const struct op_facts *f, const char *name, int64_t value, int64_t least)
{
	if (value >= least)
		return 0;
	return op_refuse(f, "%s is %" PRId64 ", must be at least %" PRId64, name, value, least);
}

int op_compute_dtype(const struct op_facts *f, const char *name, enum dtype dtype)
{
	if (dtype_computes(dtype))
		return 0;
	return op_refuse(f, "%s is %s, must be %s", name, dtype_name(dtype), dtype_computes_text());
}

int op_operand(struct op_facts *f, enum operand_use use, const char *name, dev_addr base,
        const struct operand_shape *shape)
{
	struct operand *o = &f->operands[f->operand_count];
	int64_t rows = shape->rows ? shape->rows : 1, groups = shape->groups ? shape->groups : 1,
	        stride = shape->stride ? shape->stride : shape->cols,
	        used_rows = shape->used_rows && shape->used_rows < rows ? shape->used_rows : rows,
	        element_bytes = dtype_bytes(shape->dtype),
	        row = size_plus(size_times(groups - 1, shape->group_stride), shape->cols);

	assert(f->operand_count < OPERAND_MAX);
	*o = (struct operand){.name = name,
	        .base = base,
	        .bytes = size_times(size_plus(size_times(rows - 1, stride), row), element_bytes),
	        .dense_bytes = size_times(size_times(size_times(rows, groups), shape->cols), element_bytes),
	        .align_bytes = element_bytes,
	        .use = use,
	        .optional = shape->optional,
	        .may_be = shape->may_be};
	o->has_gaps = o->dense_bytes != o->bytes;
	o->dense_bytes = size_times(size_times(size_times(used_rows, groups), shape->cols), element_bytes);
	return f->operand_count++;
}
