/* The inner loops of making codes, by instruction set; results are the same bits. */
#ifndef FERRY_OPTIM_WEIGHT_NEAREST_H
#define FERRY_OPTIM_WEIGHT_NEAREST_H

#include <stdint.h>

/* Elements that `nearest` takes at once. */
enum { NEAREST_STEP = 32 };

struct weight_nearest_kernels {
	/* The largest magnitude. */
	float (*largest)(const float *x, int64_t n);
	/* Ranks of x[i] * factor among 15 rising thresholds: how many it is greater than. Two ranks a byte,
	 * the first in the high half, and of that byte `byte[]`. n: a multiple of NEAREST_STEP. */
	void (*nearest)(uint8_t *codes, const float *x, float factor, const float thresholds[15],
	        const uint8_t byte[256], int64_t n);
	/* code_e4m3 of x[i] / scale; 0 with a scale that is not used (base/codes.h). */
	void (*e4m3)(uint8_t *codes, const float *x, float scale, int64_t n);
	/* bf16 to fp32. Returns 1 if one is not finite. */
	int (*widen)(float *dst, const uint16_t *src, int64_t n);
};

const struct weight_nearest_kernels *weight_nearest_kernels(void);

extern const struct weight_nearest_kernels weight_nearest_scalar;
#ifdef __x86_64__
extern const struct weight_nearest_kernels weight_nearest_avx2;
#endif

#endif
