/* Low-rank adapters (LoRA) of a model's matrices.
 *
 * A matrix W [out, in] with an adapter computes y = W x + s B (A x), with A [rank, in] and B [out, rank]. Its
 * tensors are rows of the table behind W's, "...q_proj.lora_A.weight" and "...q_proj.lora_B.weight": PEFT's
 * names without "base_model.model.". A starts uniform in +-1 / sqrt(in), B zero, so the model starts as its
 * base. The embedding's adapter adds s B A[:, token], with "...embed_tokens.lora_embedding_A" [rank, tokens],
 * zero at first, and B normal.
 *
 * With magnitudes m [out] (DoRA; "...q_proj.lora_magnitude_vector") y = m / n (W x + s B (A x)), where n are
 * the norms of the rows of W + s B A, which gradients take for constant. m starts as the norms of W's rows.
 * With dropout see model/blocks/lora.c.
 *
 * Sources: Hu et al. 2021; Liu et al. 2024; https://github.com/huggingface/peft.
 */
#ifndef FERRY_MODEL_ADAPTER_H
#define FERRY_MODEL_ADAPTER_H

#include "base/json.h"
#include "model/model.h"

/* As in PEFT's adapter_config.json. Names of modules are whole, or their last parts: "q_proj",
 * "self_attn.q_proj", "model.layers.0.self_attn.q_proj". */
struct adapter_options {
	int64_t rank;   /* above 0; of modules that rank_pattern does not name */
	double alpha;   /* above 0; the same for alpha_pattern */
	int use_rslora; /* s is alpha / sqrt(rank); 0: alpha / rank */
	int use_dora;   /* 1: matrices have magnitudes (DoRA) */
	double dropout; /* in [0, 1): share of the elements of A's input that training drops (device/noise.h) */
	/* Which matrices: an array of names; "all-linear", those of all blocks; one name; or a regular
	 * expression for whole names. */
	const json_t *targets;
	/* A list of the ends of parameters' names, beside targets or, with targets NULL, alone:
	 * "mlp.experts.gate_up_proj", whose experts' gate and up get one A. NULL: none. */
	const json_t *parameters;
	const json_t *exclude; /* names or an expression: not these; NULL: none */
	const json_t *layers;  /* a number of a block, or an array of them: only these; NULL: all */
	/* Names of lists of blocks, or one, as expressions: "layers". Only with `layers`; NULL: any list. */
	const json_t *layers_pattern;
	/* Other ranks and alphas, as {"q_proj": 16}. A key is a regular expression for the last parts of a
	 * name; the first that fits counts. NULL: none. */
	const json_t *rank_pattern, *alpha_pattern;
	/* Ends of names of modules that train whole, in place of an adapter; NULL: none. */
	const json_t *saved;
	const json_t *given; /* names of tensors that the adapter's files have values for; NULL: none */
	int is_asked; /* refuse a pattern or an exclusion that names no module, and warn of other names of
	                 none; 0: PEFT's file has such */
	struct {
		const char *targets, *parameters, *exclude, *layers, *layers_pattern, *rank_pattern,
		        *alpha_pattern, *saved, *dora;
	} called; /* in messages */
};
enum { ADAPTER_RANK_MAX = 65536 };

/* s of modules that no pattern names; 0 without a rank. */
double adapter_scale(const struct adapter_options *o);

/* The targets of a text: names between commas, a JSON array, or an expression. ERR_INPUT, ERR_NOMEM. */
int adapter_targets(json_t **targets, const char *text);

/* Adds the tensors of the adapters. Call before anything uses the tables. ERR_INPUT: a name that fits no
 * matrix; ERR_RANGE: too many parameters; ERR_NOMEM. The model is
 * unchanged after an error. */
int model_adapt(struct model *model, const struct adapter_options *o);

/* Marks a tensor as IN_ADAPTER_GIVEN. */
void model_give(struct model *model, int tensor);

/* 1 for A and B of an adapter, and for its magnitudes. */
int model_tensor_is_adapter(const struct model_tensor *tensor);

/* Whether matrices of this role can have an adapter. */
int model_may_adapt(const struct model *model, enum tensor_role role);

/* Whether transformers 5 has this matrix as a parameter of a module that is no linear layer, as most routers.
 * PEFT adapts it by target_parameters only, without dropout and magnitudes. */
int model_is_parameter(const struct model *model, enum tensor_role role);

/* The tensor of A, or -1; B is the next one. */
int model_adapter_of(const struct model *model, int tensor);

/* 1 if the files store the matrix [in, out]. */
int model_matrix_is_turned(const struct model *model, const struct model_tensor *matrix);

/* The model without adapters. It shares what `model` owns, which must outlive it. ERR_NOMEM. */
int model_base_open(struct model **base, const struct model *model);
void model_base_close(struct model *base);

#endif
