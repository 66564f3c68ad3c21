/* The ops of layers with a recurrent state, for bench/kernel_cases.c. */
#ifndef FERRY_BENCH_KERNEL_RECURRENT_H
#define FERRY_BENCH_KERNEL_RECURRENT_H

#include "bench/kernel_place.h"

/* op->kind says which op of the three families; its arrays are taken from `place`. */
void kernel_make_recurrent(struct op *op, struct kernel_place *place, const struct bench_scale *scale,
        const struct kernel_index *index, enum dtype dtype);

#endif
