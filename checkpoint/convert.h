/* Weights as files have them, made into planes and back: the loops that loading and exporting spend their
 * time in besides the system's own copy. Each is compiled for several instruction sets; convert_kernels picks
 * the best of this machine. All give the same bits.
 *
 * Into planes: 0 where all numbers are finite. Where one is not, 1, and what was written is of no use.
 */
#ifndef FERRY_CHECKPOINT_CONVERT_H
#define FERRY_CHECKPOINT_CONVERT_H

#include <stdint.h>

struct convert_kernels {
	const char *name;
	int (*f32)(uint16_t *hi, int16_t *lo, const float *src, int64_t count);
	int (*f16)(uint16_t *hi, int16_t *lo, const uint16_t *src, int64_t count);
	int (*bf16)(const uint16_t *src, int64_t count); /* is hi as it stands, and lo 0: only looked at */
	void (*join)(float *dst, const uint16_t *hi, const int16_t *lo, int64_t count);
};

const struct convert_kernels *convert_kernels(void);

/* All that this machine can run, for tests; NULL behind the last. */
const struct convert_kernels *convert_kernels_at(int index);

#endif
