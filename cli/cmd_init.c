/* ferry init: makes a model with random weights from a config.json. */
#include "cli/cli.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/quantity.h"
#include "checkpoint/hf/hf_config.h"
#include "checkpoint/hf/hf_export.h"
#include "host/pool.h"
#include "host/topology.h"
#include "model/families/open.h"

#include <inttypes.h>
#include <string.h>

enum { STRETCH = 8192 }; /* elements that a thread draws at once */

/* A source of initial weights. */
struct fresh {
	const struct model *model;
	uint64_t seed;
	struct pool *pool;
	float *values; /* the piece being drawn: `count` elements of `tensor` from `first` on */
	int tensor;
	int64_t first, count;
};

static void draw(void *context, int64_t stretch, int worker)
{
	struct fresh *f = context;
	int64_t first = stretch * STRETCH, left = f->count - first,
	        end = first + (left < STRETCH ? left : STRETCH);

	(void)worker;
	for (int64_t i = first; i < end; i++)
		f->values[i] = model_init_value(f->model, f->tensor, f->first + i, f->seed);
}

static int fresh_floats(void *context, int tensor, int64_t first, int64_t count, float *dst)
{
	struct fresh *f = context;

	f->values = dst;
	f->tensor = tensor;
	f->first = first;
	f->count = count;
	pool_run(f->pool, (count + STRETCH - 1) / STRETCH, draw, f);
	return 0;
}

/* Finds the config.json (mem_free). */
static int find_config(char **path, const char *given)
{
	*path = file_kind_of(given) == FILE_DIR ? file_join(given, "config.json") : mem_strdup(given);
	if (!*path)
		return ERR_NOMEM;
	if (file_kind_of(*path) != FILE_REGULAR)
		return err_set(ERR_INPUT, "%s: no such file; expected a config.json", *path);
	return 0;
}

static int report(const struct config *c, const struct model *model, enum safetensors_dtype dtype)
{
	struct str count = {0};
	json_t *object;
	int err;

	if (!c->json) {
		quantity_count(&count, (double)model->parameter_count);
		cli_say(c, "%s: %s, %s parameters, %s, seed %" PRId64 "\n", c->output_dir,
		        model->config.model_type, count.data ? count.data : "", safetensors_dtype_name(dtype),
		        c->seed);
		str_free(&count);
		return 0;
	}
	object = json_pack("{s:o, s:s, s:I, s:s, s:I}", "output_dir", json_of_text(c->output_dir),
	        "model_type", model->config.model_type, "parameters", (json_int_t)model->parameter_count,
	        "dtype", safetensors_dtype_name(dtype), "seed", (json_int_t)c->seed);
	err = object ? cli_print_json(object) : err_set(ERR_NOMEM, "out of memory for JSON");
	json_decref(object);
	return err;
}

int cli_init(const struct config *c)
{
	struct hf_export options = {
	        .dir = c->output_dir, .shard_bytes = c->max_shard_bytes, .is_refused_without_room = 1};
	struct fresh fresh = {.seed = (uint64_t)c->seed};
	struct plane_source source = {.context = &fresh, .floats = fresh_floats};
	struct side_files side = {0};
	struct model *model = NULL;
	struct topology here;
	char *path = NULL;
	int err = find_config(&path, c->config_json);

	if (!err)
		err = model_open_path(&model, path);
	if (!err)
		err = side_files_read(&side, path, c->tokenizer);
	if (!err)
		err = hf_config_apply(&side, model);
	if (!err)
		err = pool_open_here(&fresh.pool, &here, 0, 1);
	if (!err) {
		fresh.model = model;
		options.dtype = hf_export_dtype(c->export_dtype, model);
		options.existing = c->overwrite_output_dir ? HF_EXPORT_REPLACE : HF_EXPORT_REFUSE;
		options.side = &side;
		err = hf_export_write(&options, model, &source);
	}
	if (!err)
		err = report(c, model, options.dtype);
	pool_close(fresh.pool);
	side_files_free(&side);
	model_close(model);
	mem_free(path);
	return err;
}
