/* ferry export: writes a ferry checkpoint as a HuggingFace directory. */
#include "cli/cli.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/file/temp_dir.h"
#include "checkpoint/hf/hf_config.h"
#include "checkpoint/hf/hf_export.h"
#include "checkpoint/hf/overlay.h"
#include "checkpoint/hf/sentence_dir.h"
#include "checkpoint/load.h"
#include "host/topology.h"
#include "model/families/open.h"
#include "train/adapters.h"
#include "train/inputs/tokenizer_fit.h"

#include <inttypes.h>
#include <string.h>

/* Finds the checkpoint: the given one, or the newest in an output_dir. */
static int find_checkpoint(char **path, const char *given)
{
	char *manifest = file_join(given, manifest_name);
	int is_checkpoint = manifest && file_kind_of(manifest) != FILE_NONE, err = 0;

	if (!manifest)
		return ERR_NOMEM;
	mem_free(manifest);
	if (is_checkpoint) {
		*path = mem_strdup(given);
		return *path ? 0 : ERR_NOMEM;
	}
	err = checkpoint_find_newest(path, given, INT64_MAX);
	if (!err && !*path)
		err = err_set(ERR_INPUT, "%s is not a ferry checkpoint and contains none", given);
	return err;
}

/* What the run said that wrote the checkpoint: the config.yaml beside it. */
struct run {
	int export_dtype; /* CONFIG_AUTO: unknown */
	int export_text_only;
	char *model; /* NULL: unknown */
};

static int run_read(struct run *run, const struct config *asked, const char *checkpoint)
{
	char *parent = NULL, *name = NULL, *file = NULL;
	struct config c = {0};
	int err = temp_dir_split(&parent, &name, checkpoint);

	*run = (struct run){.export_dtype = CONFIG_AUTO};
	if (!err) {
		file = file_join(parent, "config.yaml");
		err = file ? 0 : ERR_NOMEM;
	}
	if (!err && file_kind_of(file) == FILE_REGULAR) {
		if (config_parse(&c, VERB_TRAIN, 1, &file)) {
			if (asked->export_dtype == CONFIG_AUTO)
				log_warn("%s; exporting in bf16", err_text());
		} else {
			run->export_dtype = c.export_dtype;
			run->export_text_only = c.export_text_only;
			run->model = file_kind_of(c.model) == FILE_DIR ? mem_strdup(c.model) : NULL;
		}
		config_free(&c);
	}
	mem_free(parent);
	mem_free(name);
	mem_free(file);
	return err;
}

static enum safetensors_dtype choose_dtype(const struct config *c, const struct run *run)
{
	int wanted = c->export_dtype == CONFIG_AUTO ? run->export_dtype : c->export_dtype;

	return wanted == CONFIG_AUTO ? SAFETENSORS_BF16 : (enum safetensors_dtype)wanted;
}

static int report(const struct config *c, struct checkpoint *checkpoint, enum safetensors_dtype dtype)
{
	const struct manifest *m = checkpoint_manifest(checkpoint);
	json_t *object;
	int err;

	if (!c->json) {
		cli_say(c, "%s: step %" PRId64 " of %s, %s\n", c->output_dir, m->step,
		        checkpoint_path(checkpoint), safetensors_dtype_name(dtype));
		return 0;
	}
	object = json_pack("{s:o, s:o, s:I, s:s}", "output_dir", json_of_text(c->output_dir), "checkpoint",
	        json_of_text(checkpoint_path(checkpoint)), "step", (json_int_t)m->step, "dtype",
	        safetensors_dtype_name(dtype));
	err = object ? cli_print_json(object) : err_set(ERR_NOMEM, "out of memory for JSON");
	json_decref(object);
	return err;
}

static int checkpoint_has(const void *checkpoint, int tensor)
{
	return checkpoint_manifest(checkpoint)->tensors[tensor].planes != 0;
}

/* The hash of the model's files that the result needs besides the checkpoint: for frozen weights, or for what
 * the files hold besides the model. NULL: none, or unknown. */
static const char *files_then(struct checkpoint *checkpoint, int is_text_only)
{
	const json_t *training = checkpoint_manifest(checkpoint)->training;
	const char *key = checkpoint_leaves_frozen(checkpoint) ? "base" : is_text_only ? "" : SESSION_CARRIED;

	return json_string_value(json_object_get(training, key));
}

/* Opens the model that the run began with, in `dir`. */
static int open_base(struct hf_import **files, const struct config *c, const char *dir,
        struct checkpoint *checkpoint, struct model *model, const char *then)
{
	char now[HF_HASH_BYTES];
	const char *has = model->config.adapter_rank ? "an adapter" : "what the run trained";
	int err;

	if (!dir && !checkpoint_leaves_frozen(checkpoint))
		return err_set(ERR_INPUT,
		        "%s has only the text part of its model; set model to the one that the run began "
		        "with, "
		        "or export_text_only=on",
		        checkpoint_path(checkpoint));
	if (!dir)
		return err_set(ERR_INPUT,
		        "%s has %s without its model; set model to the one that the run began with",
		        checkpoint_path(checkpoint), has);
	err = hf_import_open(files, dir, model);
	if (!err)
		err = hf_import_hash(now, *files);
	if (err || !then || !strcmp(then, now))
		return err;
	return err_set(ERR_INPUT,
	        "%s=%s has other files of weights than the model that the run of %s began with",
	        c->model ? config_where(c, "model") : "model", dir, checkpoint_path(checkpoint));
}

/* A checkpoint of an embedder has no head that gives logits. */
static int embedder_find(struct model *model, struct checkpoint *checkpoint, const char *dir)
{
	struct sentence_dir sentence;
	int err;

	if (checkpoint_manifest(checkpoint)->tensor_count == model->tensor_count)
		return 0;
	err = sentence_dir_read(&sentence, dir, model->config.C);
	if (!err && sentence.is_there)
		err = model_pool(model, &sentence.pooling);
	sentence_dir_free(&sentence);
	return err;
}

int cli_export(const struct config *c)
{
	struct hf_export options = {
	        .dir = c->output_dir, .shard_bytes = c->max_shard_bytes, .is_refused_without_room = 1};
	struct checkpoint *checkpoint = NULL;
	struct model *model = NULL;
	struct side_files side = {0};
	struct hf_import *files = NULL, *values = NULL;
	struct overlay overlay;
	struct plane_source own;
	struct topology here;
	struct run run = {0};
	char *path = NULL, *dir = NULL;
	const char *base;
	int is_text_only = 0;
	int err = find_checkpoint(&path, c->checkpoint);

	if (!err)
		err = checkpoint_open(&checkpoint, path);
	if (!err) {
		dir = checkpoint_model_dir(checkpoint);
		err = dir ? model_open_path(&model, dir) : ERR_NOMEM;
	}
	if (!err)
		err = embedder_find(model, checkpoint, dir);
	if (!err)
		err = run_read(&run, c, path);
	base = c->model ? c->model : run.model;
	if (!err)
		err = checkpoint_adapt(checkpoint, model);
	if (!err)
		err = checkpoint_match(checkpoint, model);
	if (!err)
		own = checkpoint_source(checkpoint);
	is_text_only = config_was_set(c, "export_text_only") ? c->export_text_only : run.export_text_only;
	if (!err && (checkpoint_leaves_frozen(checkpoint) || files_then(checkpoint, is_text_only)))
		err = open_base(&files, c, base, checkpoint, model, files_then(checkpoint, is_text_only));
	if (!err && files && c->merge_base)
		err = hf_import_open_values(&values, c->merge_base, model);
	if (!err && files)
		err = pool_open_here(&options.pool, &here, 0, 1);
	if (!err)
		err = side_files_read(&side, dir, NULL);
	if (!err)
		err = tokenizer_fit_check(dir, model->config.V);
	if (!err)
		err = hf_config_apply(&side, model);
	if (!err) {
		options.dtype = choose_dtype(c, &run);
		options.existing = c->overwrite_output_dir ? HF_EXPORT_REPLACE : HF_EXPORT_REFUSE;
		options.side = &side;
		options.layout = is_text_only ? NULL : hf_import_layout(files);
		overlay_set(&overlay, values ? values : files, &own, checkpoint_has, checkpoint);
		err = hf_export_write(
		        &options, model, checkpoint_leaves_frozen(checkpoint) ? &overlay.source : &own);
	}
	if (err == ERR_NONFINITE) /* of what was read */
		err = err_reword(ERR_INPUT, "%s", err_text());
	if (!err)
		err = report(c, checkpoint, options.dtype);
	hf_import_close(values);
	hf_import_close(files);
	pool_close(options.pool);
	side_files_free(&side);
	model_close(model);
	checkpoint_close(checkpoint);
	mem_free(run.model);
	mem_free(path);
	mem_free(dir);
	return err;
}
