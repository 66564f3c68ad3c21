/* A causal language model as data: its features, its table of tensors, its stages.
 *
 * Mental model. A family (model/families) turns a config.json into a struct model_config, which describes
 * the model in terms that all families share. The table of tensors and the list of stages follow from it. A
 * stage is the smallest piece of forward and backward, such as a block's attention. Files, units, shards,
 * checkpoints and decay take names, shapes and order from these tables. The forward and backward of each
 * stage (model/blocks) exist once, for all features.
 *
 *     model_open_path(&model, "DIR");     (model/families/open.h)
 *     for (int t = 0; t < model->tensor_count; t++)
 *             model->tensors[t].name ...
 *
 * The field's letters: B rows of a batch, T positions of a row, C hidden size, H query heads, KV key/value
 * heads, D head size, F intermediate size, V vocabulary, L blocks. A micro-batch is a concatenation of
 * documents without padding: instead of [B, T, C] ferry uses [tokens, C] and arrays with the start of each
 * document.
 */
#ifndef FERRY_MODEL_MODEL_H
#define FERRY_MODEL_MODEL_H

#include "base/dtype.h"
#include "base/json.h"
#include "device/device.h"
#include "model/model_config.h"
#include "optim/weight_format.h"

#include <stdint.h>

/* One parameter. Order of the table: transformers' module order (state_dict), which is also the order of
 * sums. */
enum { MODEL_RANK_MAX = 3 };
/* PART: A, B, or a module that trains whole. GIVEN: a value for the model's own tensor, which does not
 * train. */
enum { IN_ADAPTER_NOT, IN_ADAPTER_PART, IN_ADAPTER_GIVEN };
struct model_tensor {
	char *name; /* as transformers writes it, with the base-model prefix */
	enum tensor_role role;
	int layer;                     /* block, or -1 */
	int rank;                      /* 1 to MODEL_RANK_MAX */
	int64_t shape[MODEL_RANK_MAX]; /* 1 beyond rank */
	int64_t count;                 /* elements */
	int decay;                     /* weight decay applies: matrices and embeddings */
	int trainable;                 /* 0: keeps its value, and has no gradient and no optimizer state */
	int in_adapter;                /* IN_ADAPTER_: whether an adapter's files hold it */
	enum format storage;           /* format of its first values; F32 if unknown */
	int in_files;                  /* 1: a run has its exact value in the model's files, at any time */
	int first_stage, last_stage;   /* that read it, in forward order */
	/* The format with codes in which the files have it; NULL: it is there in numbers. */
	const struct weight_format *stored;
	int is_stored_turned; /* their codes are of the transposed matrices of each expert */
	int is_new;           /* 1: a head that the model's files lack: it begins with random values */
	/* A frozen tensor's format in memory; NULL: model_tensor_format chooses. */
	const struct weight_format *kept;
	/* The format with codes in which products with activations read it (compute_dtype=fp8); NULL: numbers
	 * in the dtype of the stages. The gradient of the tensor itself is a product of that dtype. */
	const struct weight_format *multiplied;
};

/* The format of a tensor's weights in memory, with stages that compute in this dtype: fp32 if it trains; else
 * the smallest that has all that stages read, and all of its value if that is nowhere else. */
static inline const struct weight_format *model_tensor_format(
        const struct model_tensor *tensor, enum dtype compute_dtype)
{
	int rounds = tensor->in_files && compute_dtype == DTYPE_BF16;

	if (tensor->trainable)
		return &weight_formats[WEIGHT_FP32];
	return tensor->kept ? tensor->kept : weight_format_for(rounds ? FORMAT_BF16 : tensor->storage);
}

/* 1 if it is of a classifier's head. */
static inline int model_tensor_is_of_classes(const struct model_tensor *tensor)
{
	return tensor->role >= ROLE_POOL_W && tensor->role <= ROLE_CLASS_B;
}

/* 1: memory has the transposed matrices of each expert, because it keeps codes that are so. */
static inline int model_tensor_is_turned(const struct model_tensor *tensor)
{
	return tensor->is_stored_turned && tensor->kept && tensor->kept == tensor->stored;
}

/* The rows and columns of a tensor in memory: its last dimension, and all before it. */
static inline int64_t model_tensor_cols(const struct model_tensor *tensor)
{
	return tensor->shape[tensor->rank - 1 - model_tensor_is_turned(tensor)];
}
static inline int64_t model_tensor_rows(const struct model_tensor *tensor)
{
	return tensor->count / model_tensor_cols(tensor);
}

/* 1 if the head reads the embedding's tensor. */
#define model_ties_head(model) ((model)->config.tied && (model)->config.has[ROLE_HEAD_W])

/* 1 if it has the value of the model's files throughout a run: neither trained nor an adapter's. */
static inline int model_tensor_is_of_base(const struct model_tensor *tensor)
{
	return !tensor->trainable && !tensor->in_adapter;
}

/* Smallest piece of forward and backward. A kind that the block lacks leaves its tensors to the kind that
 * stands in for it (model/roles.h): the norm before the MLP belongs to up, or to experts where there is no
 * MLP. A tied head reads the embedding's tensor. */
enum { STAGE_TENSORS_MAX = ROLE_COUNT };
struct model_stage {
	enum stage_kind kind;
	int layer; /* block, or -1 */
	int group; /* that it is in */
	int part;  /* PART: its place among those of the block */
	int tally; /* its place among the layers of a tally (model/blocks/balance.h); -1: no experts */
	const int *tensor; /* indices into the table, at most STAGE_TENSORS_MAX */
	int tensor_count;
	const int *value; /* indices into the model's values: those that it makes, then those that it reads */
	int value_count;
};

/* A value [tokens, columns] that stages of later groups read (model/values.h). */
struct model_value {
	int64_t columns;
	int maker; /* stage */
	int reader_count;
};

/* Stages that run one after the other in forward and backward, while the weights of all of them are on the
 * device: mostly a block. A part of a block, the embedding and the head are others; a model may lack these
 * two. Between groups passes only the residual stream, except where a block's experts are divided: its groups
 * then share their activations and the stream before the first of them. */
struct model_group {
	int first_stage, count;
	int layer;       /* block, or -1 */
	int part, parts; /* of its block */
	int first, last; /* groups that share activations: mostly only itself */
	int place;       /* of `first` among such: groups that share some have one place */
};

enum { TEXT_PART_REPLACED = 3 }; /* images, videos, sounds */
struct model {
	struct model_config config;
	struct model_tensor *tensors;
	int tensor_count;
	int64_t parameter_count;
	int64_t frozen_norm_count; /* elements of the largest frozen norm; 0: none is frozen */
	int *role_tensor; /* [L + 1][ROLE_COUNT]: tensor of a role in a block; row L: outside of blocks; -1:
	                     none */
	struct model_stage *stages; /* embed, the stages of each block, head */
	int stage_count;
	struct model_group *groups; /* in the order of stages */
	int group_count;
	int tally_layers;      /* stages with a place in a tally */
	int block_group_count; /* places of blocks: as many as blocks, unless a family divides one */
	struct model_value *values;
	int *stage_value;   /* the lists of all stages, one after the other */
	int *stage_tensor;  /* the lists of all stages, one after the other */
	const char *prefix; /* "model.", "transformer.", "gpt_neox." */
	const struct model_family *family;
	int *by_name;        /* tensors in order of their names */
	enum format storage; /* of the weights, by config.json; FORMAT_COUNT: unknown */
	/* Ids that no row may have: the whole model reads another token in their place. -1: none */
	int64_t replaced[TEXT_PART_REPLACED];
	const char *whole; /* model_type of a model that also reads images or sound, and this is its text
	                        part;   NULL: a text model */
	int is_untied;     /* config.json says tied, and the weights have a head of their own (model_untie) */
};

void model_close(struct model *model);

/* Index of the tensor with this name in a checkpoint (with all, a part or none of the prefix, or an older
 * spelling), -1 if none. MODEL_NAME_BUFFER for a known non-parameter (inv_freq, masks) and for a tied head.
 */
enum { MODEL_NAME_UNKNOWN = -1, MODEL_NAME_BUFFER = -2 };
int model_find_tensor(const struct model *model, const char *name);

/* What any version of transformers puts before the names of the text part in a whole model; ends with NULL.
 */
extern const char *const model_text_prefixes[];

/* The name of a tensor in a checkpoint without what a whole model puts before the names of its text part. The
 * text class of transformers may save such names, too. */
const char *model_text_name(const char *name);

/* Gives the model a separate head: for a checkpoint with a head that differs from the embedding although
 * config.json says tied. Call before anything uses the tables. ERR_NOMEM leaves the model unchanged;
 * ERR_RANGE if it has too many parameters. */
int model_untie(struct model *model);

/* Where files may have the matrices of all experts in either orientation: takes that of the tensor of this
 * name and shape, if it is one of theirs. Equal sides count as [out, in], as in transformers. Call before
 * anything uses the tables. Errors and effect as model_untie. */
int model_fit_experts(struct model *model, const char *name, int rank, const int64_t *shape);
int model_turn_experts(struct model *model);
int model_first_experts(const struct model *model); /* the first tensor of such matrices; -1: none */

/* Gives the model a head that makes a vector of a document, instead of logits. Call before anything uses the
 * tables. Errors and effect as model_untie. */
int model_pool(struct model *model, const struct pooling *pooling);

/* The same for a head that gives the logits of classes, or one number: of texts or tokens, HEAD_OF_
 * (model/family.h). */
int model_classify(struct model *model, int head, int64_t labels);

/* Builds the tables again for this config: that of the model with other tensors. Tensors of both keep
 * `trainable` and `storage`. Errors and effect as model_untie. */
int model_rebuild(struct model *model, const struct model_config *config);

/* The same for a copy of a struct model, whose old tables stay with the original. For model/adapter.h. */
int model_rebuild_copy(struct model *model, const struct model_config *config);
void model_tables_free(struct model *model);

/* The tensor of a role in block `layer` (-1: outside of blocks); -1 if the model has none. */
int model_tensor_of(const struct model *model, enum tensor_role role, int layer);

/* Parts of a tensor: one for each stage that reads some of its experts; else 1. model_tensor_part gives the
 * elements of one. */
int model_tensor_parts(const struct model *model, int tensor);
void model_tensor_part(const struct model *model, int tensor, int part, int64_t *first, int64_t *count);

/* Which of two learning rates a tensor has: LoRA+ (Hayou et al. 2024) trains B, and what has one dimension,
 * at a multiple of the usual one. */
enum { LR_USUAL, LR_LORAPLUS, LR_COUNT };
int model_tensor_lr(const struct model_tensor *tensor);

/* 1: the tensor's gradient is a product of matrices. The first micro-batch writes all of it in the tensor's
 * stage or, for a tied embedding, in the head. 0: stages add to it. */
int model_gradient_is_product(const struct model *model, int tensor);

/* Sets `trainable` of every tensor by its name. is_trainable returns 1, 0, or an ERR_* that ends the call.
 * other_name is the head's name for a tied embedding, else NULL. Call before anything uses the tables.
 * *count: trained elements. */
int model_set_trainable(struct model *model, int64_t *count,
        int (*is_trainable)(const char *name, const char *other_name, void *arg), void *arg);

/* Initial value of a new model: element `index` of `tensor` is a pure function of the seed. Norms scale by
 * 1, biases and the pad row of the embedding 0, the rest normal with initializer_range (GPT-2's residual
 * projections: residual_initializer_range). */
float model_init_value(const struct model *model, int tensor, int64_t index, uint64_t seed);

/* Elements of the tensor that one token's products use: of experts only the chosen ones'. */
double model_active_count(const struct model *model, int tensor);

/* Floating-point operations of forward + backward per token at a row length, without recomputation. The usual
 * count is 6 * (block matrices + C * V) + 6 * H * D * T of each block with attention, and of each other block
 * 18 times the numbers in its recurrent state, which a token scales, reads twice and adds to. */
double model_flops_per_token(const struct model *model, int64_t row_tokens);

/* Rows of logits that the head computes at once. Depends only on V and the kind of device, so that no other
 * size and no budget changes a sum. Small vocabularies get more rows than the device's piece, up to 32 MiB
 * of logits. */
int64_t model_head_rows(int64_t V, struct device_piece piece);

/* ---- rotary table ---- */

/* Cosines and sines for positions 0 .. position_count-1 in the layout of op_rope (device/op.h): F32 [rows,
 * rotary] for each rotary setting, computed in double. There are position_count rows; with longrope twice as
 * many, first for short documents, then for long ones. The count is in elements, 0 without rotary positions.
 */
int64_t model_rope_table_count(const struct model *model, int64_t position_count);
void model_rope_table(const struct model *model, float *table, int64_t position_count);

/* The first element of the rows of setting `rope`, for k and for q, and the number of rows. Both have the
 * same rows unless a position scales q. */
int64_t model_rope_table_first(const struct model *model, int rope, int64_t position_count);
int64_t model_rope_query_first(const struct model *model, int rope, int64_t position_count);
int64_t model_rope_table_rows(const struct model *model, int64_t position_count);

/* Documents with more tokens use other angles (longrope). INT64_MAX: all use the same. */
int64_t model_rope_short_tokens(const struct model *model);

/* row[i] is the table row of token i, from its position and the borders of its document. For learned
 * positions it is the position. With longrope it depends on the document's length, as in transformers with
 * one document per batch. */
void model_position_rows(const struct model *model, int32_t *row, const int32_t *position,
        const int32_t *doc_start, const int32_t *doc_end, int64_t tokens, int64_t position_count);

#endif
