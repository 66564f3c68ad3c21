/* ferry export: writes a ferry checkpoint as a HuggingFace directory. */
#include "cli/cli.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/hf_export.h"
#include "checkpoint/load.h"
#include "checkpoint/overlay.h"
#include "checkpoint/temp_dir.h"
#include "host/topology.h"
#include "model/families/open.h"
#include "train/tokenizer_fit.h"

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

/* For auto, takes the run's export_dtype from the config.yaml beside the checkpoint. */
static int choose_dtype(enum safetensors_dtype *dtype, const struct config *c, const char *checkpoint)
{
	int wanted = c->export_dtype, err;
	char *parent = NULL, *name = NULL, *file = NULL;
	struct config run = {0};

	err = temp_dir_split(&parent, &name, checkpoint);
	if (!err) {
		file = file_join(parent, "config.yaml");
		err = file ? 0 : ERR_NOMEM;
	}
	if (!err && wanted == CONFIG_AUTO && file_kind_of(file) == FILE_REGULAR) {
		if (config_parse(&run, VERB_TRAIN, 1, &file))
			log_warn("%s; exporting in bf16", err_text());
		else
			wanted = run.export_dtype;
		config_free(&run);
	}
	*dtype = wanted == CONFIG_AUTO ? SAFETENSORS_BF16 : (enum safetensors_dtype)wanted;
	mem_free(parent);
	mem_free(name);
	mem_free(file);
	return err;
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

static int checkpoint_has(void *checkpoint, int tensor)
{
	return checkpoint_manifest(checkpoint)->tensors[tensor].planes != 0;
}

/* The frozen weights are in the files of `model`; names of a whole model's text part are as those files have.
 */
static int take_whole(struct model *model, const struct config *c)
{
	struct model *base = NULL;
	int err = model_open_path(&base, c->model);

	if (!err)
		model->whole = base->whole;
	model_close(base);
	return err;
}

/* Opens the model that the run's adapters were trained on. */
static int open_base(struct overlay **overlay, const struct config *c, struct checkpoint *checkpoint,
        struct model *model, const struct plane_source *own)
{
	const char *then =
	        json_string_value(json_object_get(checkpoint_manifest(checkpoint)->training, "base"));
	char now[HF_HASH_BYTES];
	int err;

	if (!c->model)
		return err_set(ERR_INPUT,
		        "%s has an adapter without its model; set model to the one that it was trained on",
		        checkpoint_path(checkpoint));
	err = overlay_open(overlay, c->model, model, own, checkpoint_has);
	if (!err)
		err = hf_import_hash(now, overlay_import(*overlay));
	if (err || !then || !strcmp(then, now))
		return err;
	return err_set(ERR_INPUT,
	        "%s=%s has other files of weights than the model that the adapter in %s was trained on",
	        config_where(c, "model"), c->model, checkpoint_path(checkpoint));
}

int cli_export(const struct config *c)
{
	struct hf_export options = {
	        .dir = c->output_dir, .shard_bytes = c->max_shard_bytes, .is_refused_without_room = 1};
	struct checkpoint *checkpoint = NULL;
	struct model *model = NULL;
	struct side_files side = {0};
	struct overlay *overlay = NULL;
	struct plane_source own;
	struct topology here;
	char *path = NULL, *dir = NULL;
	int err = find_checkpoint(&path, c->checkpoint);

	if (!err)
		err = checkpoint_open(&checkpoint, path);
	if (!err) {
		dir = checkpoint_model_dir(checkpoint);
		err = dir ? model_open_path(&model, dir) : ERR_NOMEM;
	}
	if (!err && c->model && checkpoint_leaves_frozen(checkpoint))
		err = take_whole(model, c);
	if (!err)
		err = checkpoint_adapt(checkpoint, model);
	if (!err)
		err = checkpoint_match(checkpoint, model);
	if (!err)
		own = checkpoint_source(checkpoint);
	if (!err && checkpoint_leaves_frozen(checkpoint))
		err = open_base(&overlay, c, checkpoint, model, &own);
	if (!err && overlay)
		err = pool_open_here(&options.pool, &here, 0, 1);
	if (!err)
		err = choose_dtype(&options.dtype, c, path);
	if (!err)
		err = side_files_read(&side, dir, NULL);
	if (!err)
		err = tokenizer_fit_check(dir, model->config.V);
	if (!err)
		err = hf_config_apply(&side, model);
	if (!err) {
		options.existing = c->overwrite_output_dir ? HF_EXPORT_REPLACE : HF_EXPORT_REFUSE;
		options.side = &side;
		err = hf_export_write(&options, model, overlay ? overlay_source(overlay) : &own);
	}
	if (err == ERR_NONFINITE) /* of what was read */
		err = err_reword(ERR_INPUT, "%s", err_text());
	if (!err)
		err = report(c, checkpoint, options.dtype);
	overlay_close(overlay);
	pool_close(options.pool);
	side_files_free(&side);
	model_close(model);
	checkpoint_close(checkpoint);
	mem_free(path);
	mem_free(dir);
	return err;
}
