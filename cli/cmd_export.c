/* ferry export: writes a ferry checkpoint as a HuggingFace directory. */
#include "cli/cli.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/num.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/hf_export.h"
#include "checkpoint/hf_import.h"
#include "checkpoint/load.h"
#include "checkpoint/temp_dir.h"
#include "model/families/open.h"

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

/* The weights of a checkpoint that leaves those that did not train to the model's files. */
struct whole {
	struct checkpoint *checkpoint;
	struct plane_source own;
	struct hf_import *base; /* NULL: the checkpoint has all */
	float *values;          /* [PLANE_PIECE_COUNT] */
};

static int whole_read(void *context, int tensor, enum plane plane, int64_t first, int64_t count, void *dst)
{
	struct whole *w = context;
	uint16_t *hi = dst;
	int16_t *lo = dst;
	int err;

	if (checkpoint_manifest(w->checkpoint)->tensors[tensor].planes)
		return w->own.read(w->own.context, tensor, plane, first, count, dst);
	err = hf_import_read(w->base, w->values, tensor, first, count);
	for (int64_t i = 0; i < count && !err; i++) {
		if (plane == PLANE_HI)
			hi[i] = plane_hi(f32_bits(w->values[i]));
		else
			lo[i] = plane_lo(f32_bits(w->values[i]));
	}
	return err;
}

/* Opens the model that the run's adapters were trained on. */
static int whole_open(struct whole *w, const struct config *c, struct model *model)
{
	const struct manifest *m = checkpoint_manifest(w->checkpoint);
	const char *then = json_string_value(json_object_get(m->training, "base"));
	char now[20];
	uint64_t hash;
	int err;

	w->own = checkpoint_source(w->checkpoint);
	if (!checkpoint_leaves_frozen(w->checkpoint))
		return 0;
	if (!c->model)
		return err_set(ERR_INPUT,
		        "%s has an adapter without its model; set model to the one that it was trained on",
		        checkpoint_path(w->checkpoint));
	w->values = mem_alloc(PLANE_PIECE_COUNT, sizeof(*w->values));
	err = w->values ? hf_import_open(&w->base, c->model, model) : ERR_NOMEM;
	if (!err)
		err = hf_import_sample(&hash, w->base);
	if (err || !then)
		return err;
	snprintf(now, sizeof(now), "%016" PRIx64, hash);
	return strcmp(then, now)
	               ? err_set(ERR_INPUT,
	                         "%s=%s has other files of weights than the model that the adapter in "
	                         "%s was trained on",
	                         config_where(c, "model"), c->model, checkpoint_path(w->checkpoint))
	               : 0;
}

int cli_export(const struct config *c)
{
	struct hf_export options = {
	        .dir = c->output_dir, .shard_bytes = c->max_shard_bytes, .is_refused_without_room = 1};
	struct checkpoint *checkpoint = NULL;
	struct model *model = NULL;
	struct side_files side = {0};
	struct whole whole = {0};
	struct plane_source source = {.context = &whole, .read = whole_read};
	char *path = NULL, *dir = NULL;
	int err = find_checkpoint(&path, c->checkpoint);

	if (!err)
		err = checkpoint_open(&checkpoint, path);
	if (!err) {
		dir = checkpoint_model_dir(checkpoint);
		err = dir ? model_open_path(&model, dir) : ERR_NOMEM;
	}
	if (!err)
		err = checkpoint_adapt(checkpoint, model);
	if (!err)
		err = checkpoint_match(checkpoint, model);
	if (!err) {
		whole.checkpoint = checkpoint;
		err = whole_open(&whole, c, model);
	}
	if (!err)
		err = choose_dtype(&options.dtype, c, path);
	if (!err)
		err = side_files_read(&side, dir, NULL);
	if (!err)
		err = hf_config_apply(&side, model);
	if (!err) {
		options.existing = c->overwrite_output_dir ? HF_EXPORT_REPLACE : HF_EXPORT_REFUSE;
		options.side = &side;
		err = hf_export_write(&options, model, &source);
	}
	if (!err)
		err = report(c, checkpoint, options.dtype);
	hf_import_close(whole.base);
	mem_free(whole.values);
	side_files_free(&side);
	model_close(model);
	checkpoint_close(checkpoint);
	mem_free(path);
	mem_free(dir);
	return err;
}
