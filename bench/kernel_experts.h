/* The ops of layers of experts, for bench/kernel_cases.c. */
#ifndef FERRY_BENCH_KERNEL_EXPERTS_H
#define FERRY_BENCH_KERNEL_EXPERTS_H

#include "bench/kernel_place.h"

/* op->kind says which; each token is at one of KERNEL_EXPERTS experts. Variant 1 of the products is the
 * gradient of weights. */
void kernel_make_experts(struct op *op, struct kernel_place *place, const struct bench_scale *scale,
        const struct kernel_index *index, enum dtype dtype, int variant);

#endif
