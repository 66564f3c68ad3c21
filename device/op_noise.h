/* Ops with random numbers (device/noise.h; device/op.h has the rules for all ops). */
#ifndef FERRY_DEVICE_OP_NOISE_H
#define FERRY_DEVICE_OP_NOISE_H

#include "base/dtype.h"
#include "device/addr.h"

#define OP_NOISE_LIST(ROW)                                                                                   \
	ROW(DROPOUT, dropout, dropout)                                                                       \
	ROW(NEFTUNE, neftune, neftune)

/* dst (+)= src / (1 - share) where the module keeps an element of the token, else 0; row r is that of the
 * token with key[r]. key: U64 [rows]. share in [0, 1): of elements that are dropped. */
struct op_dropout {
	dev_addr dst, src, key;
	int64_t rows, cols, dst_stride, src_stride;
	uint64_t module;
	double share;
	int accumulate;
	enum dtype dst_dtype, src_dtype;
};

/* x += alpha / sqrt(n * cols) * u, u uniform in (-1, 1), n the number of tokens of the row's document (Jain
 * et al. 2023). x: [rows, cols]. doc_start, doc_end: I32 [rows]; key as above. */
struct op_neftune {
	dev_addr x, key, doc_start, doc_end;
	int64_t rows, cols;
	double alpha;
	enum dtype dtype;
};

#endif
