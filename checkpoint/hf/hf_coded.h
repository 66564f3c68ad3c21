/* Quantized weights in HuggingFace files: which tensors hold codes and scales, and the matrix they stand for.
 *
 * Mental model. A matrix P.weight may lie in the files as codes and scales in tensors beside it:
 *
 *     bitsandbytes, 4 bits    P.weight (bytes), .absmax, .quant_map, .quant_state.bitsandbytes__nf4 (JSON),
 *                             .nested_absmax and .nested_quant_map with double quantization
 *     bitsandbytes, 8 bits    P.weight (I8), P.SCB, P.weight_format
 *     FP8 in blocks           P.weight (F8_E4M3), P.weight_scale_inv
 *     compressed-tensors      P.weight (F8_E4M3), P.weight_scale; P.weight_packed (MXFP4), P.weight_scale
 *     gpt-oss                 P_blocks (MXFP4, [E, out, in / 32, 16]), P_scales: of P, which is [E, in, out]
 *
 * hf_coded_find matches them, checks dtypes, shapes and tables, and refuses what does not fit by name. Each
 * matrix gets a tensor `as`, its name and shape as if it lay there in bf16, which the layout (hf_layout.h)
 * has. hf_coded_read gives values, exactly code * scale in fp32; hf_coded_store gives codes and scales as
 * they are.
 */
#ifndef FERRY_CHECKPOINT_HF_HF_CODED_H
#define FERRY_CHECKPOINT_HF_HF_CODED_H

#include "checkpoint/file/weights.h"
#include "checkpoint/hf/hf_dir.h"

/* A tensor and the file that has it. */
struct hf_place {
	const struct safetensors *file;
	const struct safetensors_tensor *tensor; /* NULL: there is none */
};

struct hf_coded {
	const struct weight_format *format;
	struct safetensors_tensor as;
	char *own_name; /* of `as`, where the files have another name */
	struct hf_place codes, scales, outer;
	float offset;  /* of NESTED scales */
	float factor;  /* scales are multiplied by it; 1 for most */
	int is_one;    /* one scale for the whole matrix */
	int is_turned; /* codes are [E, out, in] of matrices [E, in, out] */
	float *map;    /* of NESTED scales, if it is not nested_map(); [256] */
};

struct hf_coded_set {
	const struct hf_dir *dir;
	struct hf_coded *coded;
	int64_t count, room;
	int64_t **
	        of; /* [file][tensor]: 0; 1 + the index in coded of its codes; or minus that, of a companion */
};

/* ERR_INPUT, ERR_UNSUPPORTED, ERR_IO, ERR_NOMEM. The directory must outlive the set. */
int hf_coded_find(struct hf_coded_set *set, const struct hf_dir *dir);
void hf_coded_free(struct hf_coded_set *set);

/* The matrix of which a tensor has the codes, or (companion 1) something else. NULL: of none. */
const struct hf_coded *hf_coded_of(
        const struct hf_coded_set *set, int file_index, int64_t tensor, int companion);

/* The format in which weights of elements [at, at + count) of the matrix can be kept with these codes, as a
 * tensor of so many rows and columns of their own: NULL if blocks do not begin and end there. */
const struct weight_format *hf_coded_format(
        const struct hf_coded *coded, int64_t at, int64_t rows, int64_t cols);

/* Elements of the matrix as fp32. Does not check values. */
int hf_coded_read(const struct hf_coded *coded, float *dst, int64_t first, int64_t count);

/* Puts codes and scales of elements of the matrix into a tensor that is kept in hf_coded_format: from the
 * matrix's element `at` to the tensor's `first`, whole granules. ERR_INPUT for codes or scales that are no
 * numbers. */
int hf_coded_store(const struct hf_coded *coded, struct weights_target *target, int tensor, int64_t first,
        int64_t at, int64_t count);

/* What P.weight.quant_state.bitsandbytes__TYPE says. */
struct hf_quant_state {
	enum code code;
	int64_t shape[2], block;
	int is_nested;
	float offset;
};
int hf_quant_state_parse(struct hf_quant_state *state, const char *where, const char *text, size_t len_bytes);

#endif
