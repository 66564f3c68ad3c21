/* A model's adapters as PEFT stores them: adapter_config.json and adapter_model.safetensors.
 *
 * Names are "base_model.model." and the model's, values fp32. The config has the keys that PEFT needs; others
 * keep PEFT's defaults.
 *
 * Source: https://github.com/huggingface/peft (src/peft/utils/save_and_load.py).
 */
#ifndef FERRY_CHECKPOINT_PEFT_H
#define FERRY_CHECKPOINT_PEFT_H

#include "checkpoint/plane_io.h"
#include "checkpoint/result_dir.h"
#include "model/model.h"

#define PEFT_CONFIG_NAME "adapter_config.json"
#define PEFT_WEIGHTS_NAME "adapter_model.safetensors"

struct peft_export {
	const char *dir;
	enum hf_export_existing existing;
	const char *base;        /* the model's path or name */
	int (*may_appear)(void); /* as in checkpoint/save.h */
};

/* Writes the adapters' master weights. The directory appears whole or not at all. ERR_INPUT (dir exists),
 * ERR_IO, ERR_NOMEM, the source's errors. */
int peft_write(
        const struct peft_export *options, const struct model *model, const struct plane_source *source);

/* The rank, the scale and the module names of an adapter directory. */
struct peft_config {
	int64_t rank;
	double scale;
	char *targets; /* "all-linear", a name or a JSON list (model/adapter.h) */
};

/* ERR_INPUT names file and key. ERR_UNSUPPORTED: a kind of adapter that ferry lacks. Free with
 * peft_config_free. */
int peft_config_read(struct peft_config *config, const char *dir);
void peft_config_free(struct peft_config *config);

/* Loads the values of adapter_model.safetensors into these ranges of adapters' tensors. ERR_INPUT: a tensor
 * is missing, unknown, or has another shape; a value that is not finite. */
int peft_load(const char *dir, const struct model *model, const struct plane_sink *sink,
        const struct plane_range *ranges, int64_t range_count);

#endif
