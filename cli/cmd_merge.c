/* ferry merge: writes a model with an adapter merged into it as a HuggingFace directory. */
#include "cli/cli.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/hf/hf_config.h"
#include "checkpoint/hf/hf_export.h"
#include "checkpoint/hf/overlay.h"
#include "checkpoint/hf/peft.h"
#include "host/topology.h"
#include "model/families/open.h"
#include "train/inputs/tokenizer_fit.h"

/* What a merge reads. */
struct parts {
	struct model *model;
	struct peft_config adapter;
	struct peft *values;
	struct hf_import *files;
	struct hf_import *base; /* of merge_base; NULL: the same */
	struct overlay overlay;
	struct plane_source of_adapter;
	struct side_files side;
};

static int adapter_has(const void *context, int tensor)
{
	const struct parts *p = context;

	return p->model->tensors[tensor].in_adapter;
}

static int adapter_floats(void *context, int tensor, int64_t first, int64_t count, float *dst)
{
	struct parts *p = context;

	return peft_read(p->values, dst, tensor, first, count);
}

static int parts_open(struct parts *p, const struct config *c)
{
	int err = model_open_path(&p->model, c->model);

	if (!err)
		err = peft_config_read(&p->adapter, c->lora_adapter);
	if (!err)
		err = model_adapt(p->model, &p->adapter.options);
	if (!err)
		err = peft_find_given(&p->adapter, c->lora_adapter, p->model);
	if (!err) {
		p->of_adapter = (struct plane_source){.context = p, .floats = adapter_floats};
		err = peft_open(&p->values, c->lora_adapter, p->model);
	}
	if (err && err != ERR_NOMEM)
		err = err_note(err, "%s", config_where(c, "lora_adapter"));
	if (!err)
		err = hf_import_open(&p->files, c->model, p->model);
	if (!err && c->merge_base)
		err = hf_import_open_values(&p->base, c->merge_base, p->model);
	if (!err && !c->merge_base && hf_import_coded_name(p->files))
		log_info("%s is quantized (%s): merging into the values of its codes; merge_base=DIR merges "
		         "into "
		         "the model in full precision",
		        c->model, hf_import_coded_name(p->files));
	overlay_set(&p->overlay, p->base ? p->base : p->files, &p->of_adapter, adapter_has, p);
	return err;
}

static void parts_close(struct parts *p)
{
	hf_import_close(p->base);
	hf_import_close(p->files);
	peft_close(p->values);
	peft_config_free(&p->adapter);
	model_close(p->model);
	side_files_free(&p->side);
}

static int has_tokenizer(const struct side_files *side)
{
	return side_files_find(side, "tokenizer.json") || side_files_find(side, "tokenizer.model");
}

/* The tokenizer is that of the key, or the one that trainers save beside the adapter, with the chat template
 * of the training, or the model's. generation_config.json says where answers end; the adapter's wins. */
static int read_side(struct parts *p, const struct config *c)
{
	static const char generation[] = "generation_config.json";
	struct side_files beside;
	const struct side_file *file;
	int err = side_files_read(&beside, c->lora_adapter, NULL), is_beside;

	if (err)
		return err;
	is_beside = !c->tokenizer && has_tokenizer(&beside);
	err = side_files_read(&p->side, c->model, is_beside ? c->lora_adapter : c->tokenizer);
	if (!err && is_beside)
		log_info("tokenizer and chat template are those of %s", c->lora_adapter);
	file = side_files_find(&beside, generation);
	if (!err && file) {
		char *copy = mem_strndup(file->data, file->len_bytes);

		err = copy ? side_files_put(&p->side, generation, copy, file->len_bytes) : ERR_NOMEM;
	}
	side_files_free(&beside);
	if (!err)
		err = tokenizer_fit_check(is_beside      ? c->lora_adapter
		                          : c->tokenizer ? c->tokenizer
		                                         : c->model,
		        p->model->config.V);
	return err ? err : hf_config_apply(&p->side, p->model);
}

static int report(const struct config *c, enum safetensors_dtype dtype)
{
	const char *name = safetensors_dtype_name(dtype);
	json_t *object;
	int err;

	if (!c->json) {
		cli_say(c, "%s: %s with the adapter of %s, %s\n", c->output_dir, c->model, c->lora_adapter,
		        name);
		return 0;
	}
	object = json_pack("{s:o, s:o, s:o, s:s}", "output_dir", json_of_text(c->output_dir), "model",
	        json_of_text(c->model), "lora_adapter", json_of_text(c->lora_adapter), "dtype", name);
	err = object ? cli_print_json(object) : err_set(ERR_NOMEM, "out of memory for JSON");
	json_decref(object);
	return err;
}

int cli_merge(const struct config *c)
{
	struct hf_export options = {.dir = c->output_dir,
	        .existing = c->overwrite_output_dir ? HF_EXPORT_REPLACE : HF_EXPORT_REFUSE,
	        .shard_bytes = c->max_shard_bytes,
	        .is_refused_without_room = 1};
	struct parts parts = {0};
	struct topology here;
	int err = parts_open(&parts, c);

	if (!err)
		err = read_side(&parts, c);
	if (!err)
		err = pool_open_here(&options.pool, &here, 0, 1);
	if (!err) {
		options.dtype = hf_export_dtype(c->export_dtype, parts.model);
		options.side = &parts.side;
		options.layout = c->export_text_only ? NULL : hf_import_layout(parts.files);
		err = hf_export_write(&options, parts.model, &parts.overlay.source);
	}
	if (err == ERR_NONFINITE) /* of what was read */
		err = err_reword(ERR_INPUT, "%s", err_text());
	if (!err)
		err = report(c, options.dtype);
	pool_close(options.pool);
	parts_close(&parts);
	return err;
}
