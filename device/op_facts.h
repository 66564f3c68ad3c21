/* The description of an op and its arguments. Checks, byte ranges and costs all come from it.
 *
 * Each op has a function op_describe_<name> (op_rope.c for op_rope.h). It first checks sizes and dtypes and
 * stops if one is wrong. It then lists the operands; an operand comes before an output that may overwrite it.
 * For a matrix product it also gives the arithmetic. For example:
 *
 *     int op_describe_add(struct op_facts *f, const struct op_add *p)
 *     {
 *             int a, b;
 *
 *             if (SIZE(count, 1) || COMPUTE_DTYPE(dtype))
 *                     return ERR_RANGE;
 *             a = READ(a, .dtype = p->dtype, .cols = p->count);
 *             b = READ(b, .dtype = p->dtype, .cols = p->count);
 *             WRITE(dst, .dtype = p->dtype, .cols = p->count, .may_be = BIT(a) | BIT(b));
 *             return 0;
 *     }
 *
 * Sizes saturate: a size beyond 63 bits is outside every arena, so the device refuses it. Only device/ and
 * its tests include this.
 */
#ifndef FERRY_DEVICE_OP_FACTS_H
#define FERRY_DEVICE_OP_FACTS_H

#include "base/dtype.h"
#include "base/err.h"
#include "device/addr.h"
#include "device/row_range.h"

#include <stdint.h>

struct op; /* device/op.h includes this header, not the other way round */

enum operand_use { OPERAND_READ = 1, OPERAND_WRITE = 2, OPERAND_UPDATE = 3 };

/* rows x groups x cols elements; row r, group g starts at r * stride + g * group_stride. 0 means the
 * default: one row, one group, rows without gaps. */
struct operand_shape {
	enum dtype dtype;
	int64_t rows, stride, groups, group_stride, cols;
	int64_t used_rows; /* of a table: how many rows the op moves at most */
	int optional;
	unsigned may_be; /* bits of the operands that this output may overwrite, starting at the same address
	                  */
};

struct operand {
	const char *name;
	dev_addr base;       /* DEV_NONE: absent */
	int64_t bytes;       /* first to last, gaps of strides included; saturates at INT64_MAX */
	int64_t dense_bytes; /* bytes that the op moves: without gaps, and only the used rows of a table */
	int64_t align_bytes;
	enum operand_use use;
	int optional, has_gaps;
	unsigned may_be;
};

enum { OPERAND_MAX = 20 };

struct op_facts {
	const char *name; /* of the op */
	struct operand operands[OPERAND_MAX];
	int operand_count;
	double flops;           /* of matrix products */
	enum dtype flops_dtype; /* of their factors */
	int is_attention;       /* 1: they are products of attention */
	int is_recurrent;       /* 1: of the delta rule or the scan, in bf16 by chunks */
};

/* 0 with *f filled, or ERR_RANGE naming the op and the field. */
int op_describe(struct op_facts *f, const struct op *op);

/* Declares the descriptions of all ops in a list, for example OP_ACT_LIST(OP_DESCRIBED). */
#define OP_DESCRIBED(NAME, name, args) int op_describe_##name(struct op_facts *f, const struct op_##args *p);

/* ---- for descriptions: `f` and `p` are those of the function ---- */

#define SIZE(field, least) op_size(f, #field, p->field, least)
#define COMPUTE_DTYPE(field) op_compute_dtype(f, #field, p->field)
#define READ(field, ...) op_operand(f, OPERAND_READ, #field, p->field, &(struct operand_shape){__VA_ARGS__})
#define WRITE(field, ...) op_operand(f, OPERAND_WRITE, #field, p->field, &(struct operand_shape){__VA_ARGS__})
#define UPDATE(field, ...)                                                                                   \
	op_operand(f, OPERAND_UPDATE, #field, p->field, &(struct operand_shape){__VA_ARGS__})

/* Written; also read before if it accumulates. */
#define WRITE_OR_ADD(field, adds, ...)                                                                       \
	op_operand(f, (adds) ? OPERAND_UPDATE : OPERAND_WRITE, #field, p->field,                             \
	        &(struct operand_shape){__VA_ARGS__})
#define BIT(operand) (1u << (operand))

/* Where a range of rows begins and ends; how many rows the op uses. */
#define RANGE                                                                                                \
	op_operand(f, OPERAND_READ, "range.first", p->range.first,                                           \
	        &(struct operand_shape){                                                                     \
	                .dtype = DTYPE_I32, .cols = size_plus(p->range.experts, 1), .optional = 1})
#define RANGE_SIZE (!dev_is_none(p->range.first) && op_size(f, "range.experts", p->range.experts, 1))
#define RANGE_ROWS(rows) .used_rows = row_range_share(&p->range, rows)

/* 0, or ERR_RANGE with the text. */
int op_size(const struct op_facts *f, const char *name, int64_t value, int64_t least);
int op_compute_dtype(const struct op_facts *f, const char *name, enum dtype dtype);
int op_refuse(const struct op_facts *f, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The number of the operand, for BIT. */
int op_operand(struct op_facts *f, enum operand_use use, const char *name, dev_addr base,
        const struct operand_shape *shape);

/* Products and sums of sizes that are not negative; saturate. */
int64_t size_times(int64_t a, int64_t b);
int64_t size_plus(int64_t a, int64_t b);

/* Elements from the first to the last of a row of groups. */
int64_t size_of_row(int64_t groups, int64_t group_stride, int64_t cols);

#endif
