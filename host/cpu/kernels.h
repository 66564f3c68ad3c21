/* Inner loops of the host ops: runs of contiguous fp32, one thread, no allocation.
 *
 * One template (kernels.inc) is compiled for each instruction set; cpu_kernels() returns the widest that this
 * CPU runs. All tables give the same bits: elementwise code has only explicit fma and no reassociation. Sums
 * use 16 interleaved lanes of double and a fixed tree, whatever the vector width. The caller widens bf16 into
 * a buffer first and rounds the results once.
 *
 * `n` is a count of elements. An output may be the same array as an input, but not one shifted against it.
 */
#ifndef FERRY_HOST_CPU_KERNELS_H
#define FERRY_HOST_CPU_KERNELS_H

#include "device/act_kind.h"

#include <stdint.h>

struct cpu_kernels {
	const char *name;
	void (*widen)(float *dst, const uint16_t *src, int64_t n);
	void (*narrow)(uint16_t *dst, const float *src, int64_t n); /* nearest even, NaN stays NaN */
	void (*join)(float *dst, const uint16_t *hi, const int16_t *lo, int64_t n);
	void (*add)(float *out, const float *a, const float *b, int64_t n);
	void (*scale)(float *out, const float *x, float factor, int64_t n);
	void (*multiply_add)(float *sum, const float *a, const float *b, int64_t n); /* sum += a * b */
	void (*act)(float *out, const float *x, int64_t n, enum act_kind act);
	void (*act_grad)(float *dx, const float *dout, const float *x, int64_t n, enum act_kind act);
	void (*glu)(float *out, const float *gate, const float *up, int64_t n, enum act_kind act);
	void (*glu_grad)(float *dgate, float *dup, const float *dout, const float *gate, const float *up,
	        int64_t n, enum act_kind act);
	/* op_glu_limited (device/op_act.h) */
	void (*glu_limited)(
	        float *out, const float *gate, const float *up, int64_t n, float alpha, float limit);
	void (*glu_limited_grad)(float *dgate, float *dup, const float *dout, const float *gate,
	        const float *up, int64_t n, float alpha, float limit);
	/* x is a and b by turns: 2 n elements */
	void (*turns_split)(float *a, float *b, const float *x, int64_t n);
	void (*turns_join)(float *x, const float *a, const float *b, int64_t n);

	/* Sums in double. about: sum of (x - mean)^2. */
	double (*sum)(const float *x, int64_t n);
	double (*sumsq_about)(const float *x, int64_t n, double mean);
	double (*dot)(const float *a, const float *b, int64_t n);
	float (*dot_bf16)(const uint16_t *a, const uint16_t *b, int64_t n); /* in 32 lanes of fp32 */
	/* narrow, and the sum of squares of its results as in sumsq_blocks (optim/adamw.h); n at most 4096.
	 */
	double (*narrow_sumsq)(uint16_t *dst, const float *src, int64_t n);
	/* acc[c] (double) += x[c] */
	void (*accumulate)(double *acc, const float *x, int64_t n);

	/* y = (x - mean) * rstd * weight (+ bias, may be NULL) */
	void (*norm)(float *y, const float *x, const float *weight, const float *bias, int64_t n, float mean,
	        float rstd);
	/* sums[0] = sum of dy * weight, sums[1] = sum of dy * weight * (x - mean) * rstd */
	void (*norm_sums)(double sums[2], const float *dy, const float *x, const float *weight, int64_t n,
	        float mean, float rstd);
	/* dx = rstd * (dy * weight - mean_g - xhat * mean_gx), xhat = (x - mean) * rstd */
	void (*norm_dx)(float *dx, const float *dy, const float *x, const float *weight, int64_t n,
	        float mean, float rstd, float mean_g, float mean_gx);
	/* dweight += dy * xhat, dbias += dy (may be NULL) */
	void (*norm_dw)(float *dweight, float *dbias, const float *dy, const float *x, int64_t n, float mean,
	        float rstd);

	/* (a, b) = (a cos - b sin, b cos + a sin) for `n` pairs */
	void (*rotate)(float *a, float *b, const float *cosine, const float *sine, int64_t n);

	float (*max)(const float *x, int64_t n); /* skips NaN: the sum will show it */
	/* Where x is above most, or the first NaN, it becomes most, and place `row`. */
	void (*keep_largest)(float *most, int32_t *place, const float *x, int32_t row, int64_t n);
	/* out = exp(x - offset); returns the sum in double. exp_sum writes nothing. */
	double (*softmax_part)(float *out, const float *x, float offset, int64_t n);
	double (*exp_sum)(const float *x, float offset, int64_t n);
	/* out = exp(x - offset) * factor */
	void (*exp_scaled)(float *out, const float *x, float offset, float factor, int64_t n);
	/* out = cap tanh(x / cap); dx *= its slope at the x that gave y */
	void (*soft_cap)(float *out, const float *x, float cap, int64_t n);
	void (*soft_cap_grad)(float *dx, const float *y, float cap, int64_t n);
	/* ds = p * (dp - delta) * scale */
	void (*softmax_grad)(float *ds, const float *p, const float *dp, float delta, float scale, int64_t n);
};

/* The widest table this CPU runs; decided once. */
const struct cpu_kernels *cpu_kernels(void);

/* One table by name ("scalar", "avx2", "avx512"), or NULL if this CPU or build lacks it. For tests. */
const struct cpu_kernels *cpu_kernels_find(const char *name);

#endif
