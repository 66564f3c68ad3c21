/* Types of elements and storage formats of tensors: one list of each, with their properties.
 *
 * A dtype is the type of one element, named as in safetensors files. A format stores many elements: each as
 * a dtype, or as codes of a dtype with one scale for every `block` elements in a separate array. To add one,
 * add a row. Ops compute in dtypes that satisfy dtype_computes(), and so do sums over ranks.
 */
#ifndef FERRY_BASE_DTYPE_H
#define FERRY_BASE_DTYPE_H

#include <stdint.h>

/* ROW(NAME, bits, exponent bits, fraction bits, 1: ops compute in it). Integers have no exponent; their
 * fraction bits are their digits without the sign. C64, a pair of F32, has neither. */
#define DTYPE_LIST(ROW)                                                                                      \
	ROW(F32, 32, 8, 23, 1)                                                                               \
	ROW(BF16, 16, 8, 7, 1)                                                                               \
	ROW(F16, 16, 5, 10, 0)                                                                               \
	ROW(F64, 64, 11, 52, 0)                                                                              \
	ROW(C64, 64, 0, 0, 0)                                                                                \
	ROW(F8_E4M3, 8, 4, 3, 0)                                                                             \
	ROW(F8_E5M2, 8, 5, 2, 0)                                                                             \
	ROW(F8_E4M3FNUZ, 8, 4, 3, 0)                                                                         \
	ROW(F8_E5M2FNUZ, 8, 5, 2, 0)                                                                         \
	ROW(F8_E8M0, 8, 8, 0, 0)                                                                             \
	ROW(F6_E2M3, 6, 2, 3, 0)                                                                             \
	ROW(F6_E3M2, 6, 3, 2, 0)                                                                             \
	ROW(F4, 4, 2, 1, 0)                                                                                  \
	ROW(I64, 64, 0, 63, 0)                                                                               \
	ROW(I32, 32, 0, 31, 0)                                                                               \
	ROW(I16, 16, 0, 15, 0)                                                                               \
	ROW(I8, 8, 0, 7, 0)                                                                                  \
	ROW(U64, 64, 0, 64, 0)                                                                               \
	ROW(U32, 32, 0, 32, 0)                                                                               \
	ROW(U16, 16, 0, 16, 0)                                                                               \
	ROW(U8, 8, 0, 8, 0)                                                                                  \
	ROW(BOOL, 8, 0, 1, 0)

enum dtype {
#define DTYPE_ENUM(NAME, bits, exponent, fraction, computes) DTYPE_##NAME,
	DTYPE_LIST(DTYPE_ENUM)
#undef DTYPE_ENUM
	        DTYPE_COUNT
};

int dtype_bits(enum dtype dtype);
int64_t dtype_bytes(enum dtype dtype);     /* of one element; only for dtypes of whole bytes */
const char *dtype_name(enum dtype dtype);  /* "F32", "BF16", ... as in safetensors; "?" for no dtype */
int dtype_exponent_bits(enum dtype dtype); /* 0: not a float */
int dtype_fraction_bits(enum dtype dtype); /* without the leading 1 */
int dtype_computes(enum dtype dtype);      /* 1: ops read and write it, and sum in it */
int dtype_find(enum dtype *dtype, const char *name); /* 1 and *dtype, or 0: no dtype has this name */

/* "F32 or BF16": those that ops compute in, for messages. */
const char *dtype_computes_text(void);

/* ROW(NAME, "name", "its name in config.json", dtype of an element or code, elements of a block or 0: no
 * scales, dtype of a scale, 1: ferry reads weights in it) */
#define FORMAT_LIST(ROW)                                                                                     \
	ROW(F32, "fp32", "float32", F32, 0, F32, 1)                                                          \
	ROW(F16, "fp16", "float16", F16, 0, F32, 1)                                                          \
	ROW(BF16, "bf16", "bfloat16", BF16, 0, F32, 1)                                                       \
	ROW(CODES_8, "8bit", "int8", U8, 256, F32, 0)

enum format {
#define FORMAT_ENUM(NAME, ...) FORMAT_##NAME,
	FORMAT_LIST(FORMAT_ENUM)
#undef FORMAT_ENUM
	        FORMAT_COUNT
};

/* FORMAT_BLOCK_NAME: the block of each, as a constant. */
enum {
#define FORMAT_BLOCK(NAME, name, torch_name, element, block, ...) FORMAT_BLOCK_##NAME = block,
	FORMAT_LIST(FORMAT_BLOCK)
#undef FORMAT_BLOCK
};

struct format_facts {
	const char *name, *torch_name; /* "bf16", "bfloat16" */
	enum dtype element, scale;
	int block; /* elements that share a scale, counted from the tensor's start; 0: there are no scales */
	int is_of_weights; /* 1: ferry reads weights in it from files */
};
extern const struct format_facts format_facts[FORMAT_COUNT];

/* Finds the format of weights by the dtype of its elements, or by its name in config.json. Returns 1 and
 * *format, or 0 if there is none. */
int format_of_weights(enum format *format, enum dtype element);
int format_of_torch_name(enum format *format, const char *torch_name);

/* 1 if `dtype` represents every number that the format can store. */
int format_fits(enum format format, enum dtype dtype);

#endif
