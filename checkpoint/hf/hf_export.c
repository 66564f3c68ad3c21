/* Writes a model as a HuggingFace directory. */
#include "checkpoint/hf/hf_export.h"

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/quantity.h"
#include "base/size.h"
#include "checkpoint/file/convert.h"
#include "checkpoint/file/weights.h"
#include "checkpoint/hf/hf_config.h"
#include "checkpoint/hf/hf_dtype.h"
#include "checkpoint/hf/hf_outputs.h"
#include "checkpoint/hf/merge.h"
#include "model/family.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { SHARD_NAME_BYTES = 80, PIECE_COUNT = 16 << 10 /* stays in the cache */ };

/* An export in progress, and its staging memory. */
struct work {
	const struct hf_export *options;
	const struct model *model;
	const struct plane_source *source;
	struct result_dir dir;
	struct hf_outputs outputs;
	void *piece;   /* [PIECE_COUNT] fp32 or bf16; carried bytes */
	uint16_t *f16; /* [PIECE_COUNT] */
};

/* Where a folder's file is beside the others: with its folder, which a checkpoint has in the name. */
static int folder_file(char name[SHARD_NAME_BYTES], const struct work *work, const struct hf_output *out)
{
	char *dir;
	int err = 0;

	snprintf(name, SHARD_NAME_BYTES, "%.*s%smodel.safetensors", out->folder_len, out->name,
	        work->options->is_in_checkpoint ? SIDE_FILE_FOLDER : "/");
	if (work->options->is_in_checkpoint)
		return 0;
	dir = mem_printf("%s/%.*s", work->dir.temp, out->folder_len, out->name);
	err = dir ? file_make_dir(dir) : ERR_NOMEM;
	mem_free(dir);
	return err;
}

static void shard_name(char name[SHARD_NAME_BYTES], const struct work *work, int shard)
{
	if (work->outputs.shard_count == 1)
		snprintf(name, SHARD_NAME_BYTES, "model.safetensors");
	else
		snprintf(name, SHARD_NAME_BYTES, "model-%05d-of-%05d.safetensors", shard + 1,
		        work->outputs.shard_count);
}

static int alloc_work(struct work *work)
{
	work->piece = mem_alloc(PIECE_COUNT, sizeof(float));
	work->f16 = mem_alloc(PIECE_COUNT, sizeof(*work->f16));
	return work->piece && work->f16 ? 0 : ERR_NOMEM;
}

static int convert_f16(const struct work *work, const float *value, int tensor, int64_t first, int64_t count)
{
	for (int64_t i = 0; i < count; i++) {
		work->f16[i] = f16_from_f32(value[i]);
		if ((work->f16[i] & 0x7c00) == 0x7c00)
			return err_set(ERR_INPUT,
			        "tensor %s holds %g at element %" PRId64
			        ", beyond the range of fp16; export in bf16 or fp32",
			        work->model->tensors[tensor].name, (double)value[i], first + i);
	}
	return 0;
}

/* Refuses a number that is not finite. The piece is in the file's format; F16: fp32, before it is rounded. */
static int check_finite(const struct work *work, enum format format, const void *piece, int tensor,
        int64_t first, int64_t count)
{
	int is_bf16 = format == FORMAT_BF16;
	int64_t i = 0;

	if (!(is_bf16 ? convert_kernels()->bf16(piece, count) : convert_kernels()->check(piece, count)))
		return 0;
	while (isfinite(is_bf16 ? bf16_to_f32(((const uint16_t *)piece)[i]) : ((const float *)piece)[i]))
		i++;
	return err_set(ERR_NONFINITE,
	        "%s is not finite at element %" PRId64
	        "; the training diverged, or the adapter is damaged or too large; nothing was written to %s",
	        work->model->tensors[tensor].name, first + i, work->options->dir);
}

static int write_piece(struct work *work, struct safetensors_writer *writer, enum format format, int tensor,
        int64_t first, int64_t count)
{
	int is_f16 = format == FORMAT_F16;
	const void *out;
	int err = weights_get(
	        &out, work->source, is_f16 ? FORMAT_F32 : format, tensor, first, count, work->piece);

	if (!err)
		err = check_finite(work, format, out, tensor, first, count);
	if (!err && is_f16) {
		err = convert_f16(work, out, tensor, first, count);
		out = work->f16;
	}
	if (err)
		return err;
	return safetensors_append(writer, out, (size_t)(count * dtype_bytes(format_facts[format].element)));
}

/* Copies the bytes of a tensor that no stage reads, and leaves the page cache as it was. */
static int carry(struct work *work, struct safetensors_writer *writer, const struct hf_entry *entry)
{
	enum { PIECE_BYTES = PIECE_COUNT * sizeof(float) };
	const struct safetensors_tensor *t = entry->tensor;
	int err = 0;

	for (int64_t at = 0, len; !err && at < t->len_bytes; at += len) {
		len = min_i64(PIECE_BYTES, t->len_bytes - at);
		err = safetensors_read(entry->file, t, work->piece, at, len);
		if (!err)
			err = safetensors_append(writer, work->piece, (size_t)len);
		page_cache_restore(entry->file->cache, t->begin_bytes + at, len);
	}
	return err;
}

static int write_output(struct work *work, struct safetensors_writer *writer, const struct hf_output *out)
{
	enum format format;
	int err = 0;

	if (out->carried)
		return carry(work, writer, out->carried);
	(void)format_of_weights(&format, (enum dtype)out->dtype);
	for (int r = 0; !err && r < out->range_count; r++) {
		const struct file_range *range = &out->range[r];

		for (int64_t at = 0, count; !err && at < range->count; at += count) {
			count = min_i64(PIECE_COUNT, range->count - at);
			err = write_piece(work, writer, format, range->tensor, range->first + at, count);
		}
	}
	return err;
}

static int write_shard(struct work *work, int shard)
{
	static const struct safetensors_text metadata = {"format", "pt"};
	const struct hf_outputs *o = &work->outputs;
	struct safetensors_writer *writer = NULL;
	struct safetensors_decl *decls = mem_alloc((size_t)o->count + 1, sizeof(*decls));
	char name[SHARD_NAME_BYTES];
	int64_t count = 0;
	char *path = NULL;
	int err;

	err = decls ? 0 : ERR_NOMEM;
	shard_name(name, work, shard);
	for (int64_t i = 0; !err && i < o->count; i++) {
		const struct hf_output *out = &o->output[i];

		if (out->shard != shard)
			continue;
		if (out->folder_len && !count)
			err = folder_file(name, work, out);
		decls[count] = (struct safetensors_decl){
		        .name = out->name + (out->folder_len ? out->folder_len + 1 : 0),
		        .dtype = out->dtype,
		        .rank = out->rank};
		memcpy(decls[count++].shape, out->shape, sizeof(out->shape));
	}
	path = file_join(work->dir.temp, name);
	err = err || path ? err : ERR_NOMEM;
	if (!err)
		err = safetensors_create(&writer, path, decls, count, &metadata, 1, SAFETENSORS_PLAIN);
	for (int64_t i = 0; !err && i < o->count; i++)
		if (o->output[i].shard == shard)
			err = write_output(work, writer, &o->output[i]);
	if (!err)
		err = safetensors_finish(writer);
	safetensors_writer_free(writer);
	mem_free(decls);
	mem_free(path);
	return err;
}

static int write_index(struct work *work)
{
	const struct hf_outputs *o = &work->outputs;
	json_t *map = json_object(), *root = NULL;
	char name[SHARD_NAME_BYTES];
	char *text = NULL, *path = NULL;
	int err = map ? 0 : ERR_NOMEM;

	for (int64_t i = 0; !err && i < o->count; i++) {
		if (o->output[i].folder_len)
			continue;
		shard_name(name, work, o->output[i].shard);
		err = json_object_set_new(map, o->output[i].name, json_string(name)) ? ERR_NOMEM : 0;
	}
	root = json_pack("{s:{s:I,s:I},s:O}", "metadata", "total_parameters", (json_int_t)o->elements,
	        "total_size", (json_int_t)o->bytes, "weight_map", map);
	path = file_join(work->dir.temp, "model.safetensors.index.json");
	if (!path)
		err = ERR_NOMEM;
	if (!err)
		err = json_write(&text, root, JSON_INDENT(2) | JSON_SORT_KEYS);
	if (!err)
		err = file_write_all(path, text, strlen(text));
	mem_free(text);
	mem_free(path);
	json_decref(root);
	json_decref(map);
	return err;
}

/* Whether config.json needs no word: the tensors have the files' dtype. */
static int keeps_dtype(const struct hf_export *options)
{
	return options->layout && format_facts[options->layout->format].element == (enum dtype)options->dtype;
}

static int write_all(struct work *work)
{
	const struct hf_export *options = work->options;
	int err = alloc_work(work);

	for (int s = 0; !err && s < work->outputs.file_count; s++)
		err = write_shard(work, s);
	if (!err && work->outputs.shard_count > 1)
		err = write_index(work);
	if (!err)
		err = options->is_in_checkpoint
		              ? side_files_write(options->side, work->dir.temp, NULL)
		              : side_files_write_result(options->side, work->dir.temp, NULL);
	if (!err && work->model->whole && !options->layout)
		err = hf_config_leave_text(work->dir.temp);
	if (!err && !keeps_dtype(options))
		err = hf_dtype_write(options->dtype, work->dir.temp);
	if (!err && options->may_appear)
		err = options->may_appear();
	return err ? err : result_dir_commit(&work->dir);
}

static int check_room(const struct work *work)
{
	int64_t need_bytes = work->outputs.bytes + work->outputs.folder_bytes;
	struct str need = {0}, left = {0};
	int64_t free_bytes;
	int err = 0;

	if (!work->options->is_refused_without_room || file_space(work->dir.temp, &free_bytes) ||
	        free_bytes >= need_bytes)
		return 0;
	quantity_bytes(&need, need_bytes);
	quantity_bytes(&left, free_bytes);
	err = str_check(&need) || str_check(&left) ? ERR_NOMEM : 0;
	if (!err)
		err = err_set(ERR_FIT,
		        "output_dir=%s has %s free, but the model takes %s; free space or choose another "
		        "output_dir",
		        work->options->dir, left.data, need.data);
	str_free(&need);
	str_free(&left);
	return err;
}

static int export_write(
        const struct hf_export *options, const struct model *model, const struct plane_source *source)
{
	struct work work = {.options = options, .model = model, .source = source};
	enum format format;
	int err;

	if (!format_of_weights(&format, (enum dtype)options->dtype))
		return err_set(ERR_RANGE, "export in %s", safetensors_dtype_name(options->dtype));
	err = result_dir_open(&work.dir, options->dir, options->existing);
	if (err)
		return err;
	if (model->family && model->family->only_whole && !options->layout)
		log_warn("%s: transformers loads a %s model only as a part of a whole one; ferry reads it",
		        options->dir, model->family->model_type);
	err = hf_outputs_open(&work.outputs, options->layout, model, options->dtype, options->shard_bytes);
	if (!err)
		err = check_room(&work);
	if (!err)
		err = write_all(&work);
	result_dir_close(&work.dir);
	hf_outputs_close(&work.outputs);
	mem_free(work.piece);
	mem_free(work.f16);
	return err;
}

enum safetensors_dtype hf_export_dtype(int wanted, const struct model *model)
{
	if (wanted >= 0)
		return (enum safetensors_dtype)wanted;
	return model->storage == FORMAT_COUNT ? SAFETENSORS_BF16
	                                      : (enum safetensors_dtype)format_facts[model->storage].element;
}

int hf_export_write(
        const struct hf_export *options, const struct model *model, const struct plane_source *source)
{
	struct merge *merge;
	int err;

	if (!model->config.adapter_rank)
		return export_write(options, model, source);
	err = merge_open(&merge, model, source, options->pool);
	if (!err)
		err = export_write(options, merge_model(merge), merge_source(merge));
	merge_close(merge);
	return err;
}
