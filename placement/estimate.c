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

void estimate_of_model(struct estimate *e, const struct model *model)
{
	const struct model_config *c = &model->config;
	int64_t block = 0;

	*e = (struct estimate){.total_bytes = F32_BYTES * c->rope[0].rotary};
	for (int t = 0; t < model->tensor_count; t++) {
		const struct model_tensor *tensor = &model->tensors[t];
		int64_t bytes = F32_BYTES * tensor->count;

		if (role_facts[tensor->role].part == MODEL_PART_HEAD)
			continue;
		if (t && tensor->layer != model->tensors[t - 1].layer)
			block = 0;
		block += bytes;
		e->total_bytes += bytes;
		e->largest_bytes = max_i64(e->largest_bytes, tensor->layer < 0 ? bytes : block);
	}
}

/* ---- BERT ---- */

static int bert_get(int64_t *value, const json_t *json, const char *path, const char *key, int64_t otherwise)
{
	int found;

	*value = otherwise;
	found = json_get_int(json, path, key, value);
	if (found < 0)
		return found;
	if (*value < 1 || *value > 1 << 24)
		return err_set(ERR_INPUT, "%s: %s must be between 1 and %d", path, key, 1 << 24);
	return 0;
}

/* The tables of words, positions and types with their norm form one group, which accelerate does not split. A
 * block has attention (four matrices and a norm) and an MLP (two and a norm). A pooler follows. Two int64
 * buffers have one number for each position. */
static int bert_read(struct estimate *e, const json_t *json, const char *path)
{
	enum { V, C, L, F, POSITIONS, TYPES, SIZES };
	static const struct {
		const char *key;
		int64_t otherwise; /* as in transformers' BertConfig */
	} keys[SIZES] = {{"vocab_size", 30522}, {"hidden_size", 768}, {"num_hidden_layers", 12},
	        {"intermediate_size", 3072}, {"max_position_embeddings", 512}, {"type_vocab_size", 2}};
	int64_t n[SIZES], embeddings, block, buffers_bytes;
	uint64_t elements;

	for (int i = 0; i < SIZES; i++) {
		int rc = bert_get(&n[i], json, path, keys[i].key, keys[i].otherwise);

		if (rc)
			return rc;
	}
	embeddings = (n[V] + n[POSITIONS] + n[TYPES] + 2) * n[C];
	block = 4 * (n[C] + 1) * n[C] + 2 * n[C] + (n[C] + 1) * n[F] + (n[F] + 1) * n[C] + 2 * n[C];
	buffers_bytes = 2 * 8 * n[POSITIONS];
	if (size_mul(&elements, (uint64_t)block, (uint64_t)n[L]) || elements > INT64_MAX / 64)
		return err_set(ERR_INPUT, "%s: more parameters than ferry can count", path);
	e->total_bytes = F32_BYTES * ((int64_t)elements + embeddings + (n[C] + 1) * n[C]) + buffers_bytes;
	e->largest_bytes = max_i64(F32_BYTES * embeddings + buffers_bytes, F32_BYTES * block);
	return 0;
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
