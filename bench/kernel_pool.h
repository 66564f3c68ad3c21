/* The ops of pooling, for bench/kernel_cases.c. */
#ifndef FERRY_BENCH_KERNEL_POOL_H
#define FERRY_BENCH_KERNEL_POOL_H

#include "bench/kernel_place.h"

/* op->kind says which; documents are the texts of pairs. */
void kernel_make_pool(struct op *op, struct kernel_place *place, const struct bench_scale *scale,
        const struct kernel_index *index, enum dtype dtype);

#endif
