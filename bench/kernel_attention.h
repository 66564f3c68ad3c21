/* The ops of attention, for bench/kernel_cases.c. */
#ifndef FERRY_BENCH_KERNEL_ATTENTION_H
#define FERRY_BENCH_KERNEL_ATTENTION_H

#include "bench/kernel_place.h"

/* op->kind says which. variant: 1 has a window, 2 a bias by distance and sees both sides. */
void kernel_make_attention(struct op *op, struct kernel_place *place, const struct bench_scale *scale,
        const struct kernel_index *index, enum dtype dtype, int variant);

#endif
