/* A model's adapters as PEFT stores them: adapter_config.json and adapter_model.safetensors.
 *
 * Names are "base_model.model." and the model's, values fp32. The config has the keys that PEFT needs; others
 * keep PEFT's defaults.
 *
 * Source: https://github.com/huggingface/peft (src/peft/utils/save_and_load.py).
 */
#ifndef FERRY_CHECKPOINT_HF_PEFT_H
#define FERRY_CHECKPOINT_HF_PEFT_H

#include "checkpoint/file/plane_io.h"
#include "checkpoint/hf/result_dir.h"
#include "checkpoint/hf/side_files.h"
#include "model/adapter.h"

#define PEFT_CONFIG_NAME "adapter_config.json"
#define PEFT_WEIGHTS_NAME "adapter_model.safetensors"
#define PEFT_PREFIX "base_model.model." /* of the names of tensors */
#define PEFT_WITHIN ".base_layer"       /* behind the name of a module that has an adapter */

/* How the files hold adapters of experts (peft_experts.h). AUTO: per expert where PEFT loads that, unless
 * they were named by parameters. */
enum peft_experts { PEFT_EXPERTS_AUTO, PEFT_EXPERTS_FUSED, PEFT_EXPERTS_EACH };

/* 0: PEFT loads the adapters of experts only if they are fused. */
int peft_loads_per_expert(const struct model *model);

struct peft_export {
	const char *dir;
	enum hf_export_existing existing;
	const char *base; /* the model's path or name */
	int64_t rank; /* r and lora_alpha of the file; modules with others stand in its patterns. rank 0: */
	double scale; /* those of the first module. scale: alpha / rank */
	/* All but config.json are written too: the tokenizer, how answers end. */
	enum peft_experts experts;
	const struct side_files *side;
	/* Of a model that also reads images or sound: 1: for the class of its text part alone, without the
	   files of its processor. 0: for the class of the whole. */
	int is_text_only;
	int (*may_appear)(void); /* as in checkpoint/save.h */
};

/* Writes the adapters' master weights. The directory appears whole or not at all. ERR_INPUT (dir exists),
 * ERR_NONFINITE, ERR_IO, ERR_NOMEM, the source's errors. */
int peft_write(
        const struct peft_export *options, const struct model *model, const struct plane_source *source);

/* What adapter_config.json says of the adapters. */
struct peft_config {
	json_t *json; /* the keys that say it, with PEFT's names: r, lora_alpha, target_modules, ... */
	struct adapter_options options; /* points into json */
};
#define PEFT_GIVEN "embedding_layers" /* a key of our own: adapter_options.given */

/* From an object with PEFT's names; `where` is the file's name in messages. ERR_INPUT names the key.
 * ERR_UNSUPPORTED: a kind of adapter that ferry lacks. Free with peft_config_free. */
int peft_config_of(struct peft_config *config, const json_t *object, const char *where);
/* Warns of keys that are unknown. */
int peft_config_read(struct peft_config *config, const char *dir);
void peft_config_free(struct peft_config *config);

/* With save_embedding_layers (by itself after the vocabulary was resized) PEFT stores embedding and head,
 * which it puts into the model on loading. Marks these tensors of an adapted model as IN_ADAPTER_GIVEN, and
 * notes them. ERR_INPUT: the vocabulary has another size; safetensors_open's. */
int peft_find_given(struct peft_config *config, const char *dir, struct model *model);

/* The model's tensor of this name in the file: with PEFT_PREFIX, and maybe PEFT_WITHIN, before ".weight"; or
 * MODEL_NAME_. */
int peft_find_tensor(const struct model *model, const char *name);

/* The embedding or head that the file's tensor of this name is, a tied head as the embedding; else -1. */
int peft_given_tensor(const struct model *model, const char *name);

/* The values of adapter_model.safetensors. */
struct peft;

/* `model` has the adapters and must outlive this. ERR_INPUT: a tensor is missing, unknown, or has another
 * shape. */
int peft_open(struct peft **peft, const char *dir, const struct model *model);
void peft_close(struct peft *peft);

/* Reads elements [first, first + count) of an adapter's tensor as fp32; count is at most PLANE_PIECE_COUNT.
 * ERR_INPUT: a value is not finite. One thread at a time. */
int peft_read(struct peft *peft, float *dst, int tensor, int64_t first, int64_t count);

/* Reads these ranges of adapters' tensors into HI and LO. Errors as peft_open and peft_read. */
int peft_load(const char *dir, const struct model *model, const struct plane_sink *sink,
        const struct plane_range *ranges, int64_t range_count);

#endif
