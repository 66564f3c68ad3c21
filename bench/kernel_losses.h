/* The ops of losses of answers, for bench/kernel_cases.c. */
#ifndef FERRY_BENCH_KERNEL_LOSSES_H
#define FERRY_BENCH_KERNEL_LOSSES_H

#include "bench/kernel_place.h"

/* op->kind says which. */
void kernel_make_preference(struct op *op, struct kernel_place *place, const struct bench_scale *scale,
        const struct kernel_index *index);

#endif
