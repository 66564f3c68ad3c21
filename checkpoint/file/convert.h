/* Converts weights between file formats and planes, and merges: the hot loops of loading and exporting. Each
 * is compiled for several instruction sets, and convert_kernels picks the best of this machine. All give the
 * same bits.
 *
 * Conversions into planes return 0 if all numbers are finite. Else they return 1, and the output is
 * undefined.
 */
#ifndef FERRY_CHECKPOINT_FILE_CONVERT_H
#define FERRY_CHECKPOINT_FILE_CONVERT_H

#include <stdint.h>

struct convert_kernels {
	const char *name;
	int (*f32)(uint16_t *hi, int16_t *lo, const float *src, int64_t count);
	int (*f16)(uint16_t *hi, int16_t *lo, const uint16_t *src, int64_t count);
	int (*bf16)(const uint16_t *src, int64_t count); /* only checks: src is already hi, and lo is 0 */
	int (*check)(const float *src, int64_t count);   /* 1 if a number is not finite */
	void (*join)(float *dst, const uint16_t *hi, const int16_t *lo, int64_t count);
	/* sum[i] += a * b[i], rounded once. */
	void (*add_product)(float *sum, float a, const float *b, int64_t count);
};

const struct convert_kernels *convert_kernels(void);

/* All kernels that this machine can run, for tests; NULL after the last. */
const struct convert_kernels *convert_kernels_at(int index);

#endif
