/* The inner loops of making NF4 codes, by instruction set; results are the same bits. */
#ifndef FERRY_OPTIM_WEIGHT_NEAREST_H
#define FERRY_OPTIM_WEIGHT_NEAREST_H

#include <stdint.h>

struct weight_nearest_kernels {
	/* The largest magnitude. */
	float (*largest)(const float *x, int64_t n);
	/* How many of 15 rising thresholds x[i] * factor is greater than. */
	void (*nearest)(uint8_t *codes, const float *x, float factor, const float middles[15], int64_t n);
};

const struct weight_nearest_kernels *weight_nearest_kernels(void);

extern const struct weight_nearest_kernels weight_nearest_scalar;
#ifdef __x86_64__
extern const struct weight_nearest_kernels weight_nearest_avx2;
#endif

#endif
