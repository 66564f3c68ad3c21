/* Makes the codes of weights: the formats that base_format names (optim/weight_format.h).
 *
 * Sources: NF4 and FP4 as bitsandbytes 0.50 makes them (functional.py, csrc/kernels.cu): a block's largest
 * |x| is its scale, x * (1 / scale) takes the nearest value of the table; at a midpoint the lower one. A
 * block of zeros gets the code of 0. I8: scale = largest |x| / 127, to nearest even (LLM.int8() without
 * outliers). E4M3: scale = largest |x| / 448, as DeepSeek-V3 publishes. E2M1: OCP Microscaling Formats 1.0,
 * 6.3: the exponent of the largest |x| less 2, to nearest even, at most 6.
 */
#ifndef FERRY_OPTIM_WEIGHT_CODES_H
#define FERRY_OPTIM_WEIGHT_CODES_H

#include "optim/weight_format.h"

/* The `put` of these formats. */
void weight_codes_put(const struct weight_format *format, void *codes, float *scales, const float *src,
        int64_t rows, int64_t cols);

/* The codes of FP8 products, of bf16 weights: rows [rows, cols] of a matrix that share scales, at most
 * CODE_BLOCK of them. scales [ceil(cols / CODE_BLOCK)]. The same bits as op ENCODE (device/op_coded.h), NaN
 * among them. */
void weight_codes_multiplied(uint8_t *codes, float *scales, const uint16_t *hi, int64_t rows, int64_t cols);

#endif
