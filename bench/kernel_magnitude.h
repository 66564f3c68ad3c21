/* The ops of magnitudes, for bench/kernel_cases.c. */
#ifndef FERRY_BENCH_KERNEL_MAGNITUDE_H
#define FERRY_BENCH_KERNEL_MAGNITUDE_H

#include "bench/kernel_place.h"

/* op->kind says which; of a matrix [intermediate, hidden], and of products with it. */
void kernel_make_magnitude(
        struct op *op, struct kernel_place *place, const struct bench_scale *scale, enum dtype dtype);

#endif
