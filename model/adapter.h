/* Low-rank adapters (LoRA) of a model's matrices.
 *
 * A matrix W [out, in] with an adapter computes y = W x + s B (A x), with A [rank, in] and B [out, rank]. Its
 * tensors are rows of the table behind W's, "...q_proj.lora_A.weight" and "...q_proj.lora_B.weight": PEFT's
 * names without "base_model.model.". A starts uniform in +-1 / sqrt(in), B zero, so the model starts as its
 * base.
 *
 * Source: Hu et al. 2021; https://github.com/huggingface/peft.
 */
#ifndef FERRY_MODEL_ADAPTER_H
#define FERRY_MODEL_ADAPTER_H

#include "model/model.h"

struct adapter_options {
	int64_t rank; /* above 0 */
	double scale; /* s: alpha / rank, or alpha / sqrt(rank) (rsLoRA) */
	/* Which matrices: "all-linear" for those of all blocks; else names, "a,b" or a JSON list. A name is
	 * that of a module or its last parts: "q_proj", "self_attn.q_proj",
	 * "model.layers.0.self_attn.q_proj". */
	const char *targets;
};

/* Adds the tensors of the adapters. Call before anything uses the tables. ERR_INPUT: a name that fits no
 * matrix, or not those of all blocks; ERR_RANGE: too many parameters; ERR_NOMEM. The model is unchanged after
 * an error. */
int model_adapt(struct model *model, const struct adapter_options *o);

/* 1 for A and B of an adapter. */
int model_tensor_is_adapter(const struct model_tensor *tensor);

/* The tensor of A, or -1; B is the next one. */
int model_adapter_of(const struct model *model, int tensor);

/* 1 if the files store the matrix [in, out]. */
int model_matrix_is_turned(const struct model *model, const struct model_tensor *matrix);

/* The model without adapters. It shares what `model` owns, which must outlive it. ERR_NOMEM. */
int model_base_open(struct model **base, const struct model *model);
void model_base_close(struct model *base);

#endif
