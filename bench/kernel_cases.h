/* The ops as a model calls them: one row for each op and variant, in the shapes of a scale (rig.h). */
#ifndef FERRY_BENCH_KERNEL_CASES_H
#define FERRY_BENCH_KERNEL_CASES_H

#include "bench/kernel_place.h" /* IWYU pragma: export */

enum kernel_limit { KERNEL_COPY, KERNEL_PRODUCT };

struct kernel_case {
	const char *name;
	enum op_kind kind;
	enum dtype dtype;
	int variant; /* its meaning depends on the op */
	enum kernel_limit limit;
};

/* Rows in order; NULL after the last. */
const struct kernel_case *kernel_case_at(int index);

/* Fills in the op, with operands from `place`. */
void kernel_case_make(const struct kernel_case *k, struct op *op, struct kernel_place *place,
        const struct bench_scale *scale, const struct kernel_index *index);

#endif
