/* Counts the weights by dtype as accelerate does. */
#include "placement/estimate.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/size.h"
#include "model/families/open.h"

#include <string.h>

enum { CONFIG_BYTES_MAX = 16 << 20, F32_BYTES = 4 };

static const struct {
	const char *name;
	int divisor; /* of the float32 bytes */
} dtypes[] = {{"float32", 1}, {"float16", 2}, {"int8", 4}, {"int4", 8}};
enum { DTYPES = sizeof(dtypes) / sizeof(dtypes[0]) };

/* AutoModel has neither head, nor what a head of classes or masked words has before its last matrix. */
static int is_counted(const struct model_tensor *tensor)
{
	enum model_part part = role_facts[tensor->role].part;

	return part != MODEL_PART_HEAD && part != MODEL_PART_POOLER && tensor->role != ROLE_POOL_NORM_W &&
	       tensor->role != ROLE_POOL_NORM_B;
}

void estimate_of_model(struct estimate *e, const struct model *model)
{
	const struct model_config *c = &model->config;
	int64_t block = 0;

	*e = (struct estimate){.total_bytes = F32_BYTES * c->rope[0].rotary};
	for (int t = 0; t < model->tensor_count; t++) {
		const struct model_tensor *tensor = &model->tensors[t];
		int64_t bytes = F32_BYTES * tensor->count;

		if (!is_counted(tensor))
			continue;
		if (t && tensor->layer != model->tensors[t - 1].layer)
			block = 0;
		block += bytes;
		e->total_bytes += bytes;
		e->largest_bytes = max_i64(e->largest_bytes, tensor->layer < 0 ? bytes : block);
	}
}

/* ---- BERT ---- */

/* Adds what only transformers' BertModel has. The tables of words, positions and types with their norm form
 * one group, which accelerate does not split, with two int64 buffers that have one number for each position.
 * A pooler follows the blocks. */
static void bert_add(struct estimate *e, const struct model *model)
{
	const struct model_config *c = &model->config;
	int64_t buffers_bytes = 2 * 8 * c->max_positions, embeddings_bytes = buffers_bytes;

	for (int t = 0; t < model->tensor_count; t++)
		if (model->tensors[t].layer < 0 && is_counted(&model->tensors[t]))
			embeddings_bytes += F32_BYTES * model->tensors[t].count;
	e->total_bytes += F32_BYTES * (c->C + 1) * c->C + buffers_bytes;
	e->largest_bytes = max_i64(e->largest_bytes, embeddings_bytes);
}

/* Keys with values that ferry cannot train, but that change no number of weights. */
static int bert_read(struct estimate *e, const json_t *json, const char *path)
{
	json_t *counted = json_deep_copy(json);
	struct model *model = NULL;
	int rc = counted ? 0 : ERR_NOMEM;

	json_object_del(counted, "position_embedding_type");
	json_object_del(counted, "hidden_act");
	json_object_del(counted, "is_decoder");
	if (!rc)
		rc = model_open(&model, counted, path);
	if (!rc) {
		estimate_of_model(e, model);
		bert_add(e, model);
	}
	model_close(model);
	json_decref(counted);
	return rc;
}

int estimate_read(struct estimate *e, const char *path)
{
	char *file = file_kind_of(path) == FILE_DIR ? file_join(path, "config.json") : mem_strdup(path);
	const char *type = NULL;
	struct model *model = NULL;
	json_t *json = NULL;
	int rc = file ? json_read_file(&json, file, CONFIG_BYTES_MAX) : ERR_NOMEM;

	*e = (struct estimate){0};
	if (!rc)
		rc = json_get_str(json, file, "model_type", &type);
	rc = rc > 0 ? 0 : rc;
	if (!rc && type && !strcmp(type, "bert"))
		rc = bert_read(e, json, file);
	else if (!rc)
		rc = model_open(&model, json, file);
	if (model)
		estimate_of_model(e, model);
	if (!rc) {
		e->model_type = mem_strdup(type);
		rc = e->model_type ? 0 : ERR_NOMEM;
	}
	model_close(model);
	json_decref(json);
	mem_free(file);
	return rc;
}

void estimate_free(struct estimate *e)
{
	mem_free(e->model_type);
	e->model_type = NULL;
}

/* ---- tables ---- */

/* Two decimals, as in accelerate; its MB are MiB here. */
static const char *bytes_text(char text[32], int64_t bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
	double value = (double)bytes;
	int unit = 0;

	while (value >= 1024 && unit < 5) {
		value /= 1024;
		unit++;
	}
	snprintf(text, 32, "%.2f %s", value, units[unit]);
	return text;
}

void estimate_text(struct str *out, const struct estimate *e)
{
	str_printf(out, "  %-24s%14s%14s%20s\n", "weights without head", "largest layer", "total",
	        "training with Adam");
	for (int i = 0; i < DTYPES; i++) {
		int64_t total = e->total_bytes / dtypes[i].divisor;
		char texts[3][32];

		str_printf(out, "    %-22s%14s%14s%20s\n", dtypes[i].name,
		        bytes_text(texts[0], e->largest_bytes / dtypes[i].divisor),
		        bytes_text(texts[1], total), bytes_text(texts[2], 4 * total));
	}
}

json_t *estimate_json(const struct estimate *e)
{
	json_t *rows = json_array();

	for (int i = 0; rows && i < DTYPES; i++) {
		json_int_t total = e->total_bytes / dtypes[i].divisor;

		json_array_append_new(
		        rows, json_pack("{s:s,s:I,s:I,s:I}", "dtype", dtypes[i].name, "largest_layer_bytes",
		                      (json_int_t)(e->largest_bytes / dtypes[i].divisor), "total_bytes",
		                      total, "adam_bytes", 4 * total));
	}
	return rows;
}
