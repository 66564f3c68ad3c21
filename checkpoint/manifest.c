/* Writes and reads manifest.json, and checks every value. */
#include "checkpoint/manifest.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "checkpoint/file/safetensors.h"
#include "checkpoint/file/sealed.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char manifest_name[] = "manifest.json";

static const char format_name[] = "ferry checkpoint";
enum { FORMAT_VERSION = 1, HASH_DIGITS = 16 };

/* ---- to JSON ---- */

static json_t *blocks_to_json(const struct manifest_file *file)
{
	struct str hex = {0};
	json_t *value;

	str_add(&hex, "");
	for (int64_t i = 0; i < file->block_count; i++)
		str_printf(&hex, "%016" PRIx64, file->hashes[i]);
	value = hex.broken ? NULL : json_stringn(hex.data, hex.len_bytes);
	str_free(&hex);
	return value;
}

/* [[tensor, first, count], ...] */
static json_t *ranges_to_json(const struct manifest_file *file)
{
	json_t *list = json_array();

	for (int64_t i = 0; list && i < file->range_count; i++) {
		const struct plane_range *range = &file->ranges[i];

		if (json_array_append_new(list, json_pack("[i,I,I]", range->tensor, (json_int_t)range->first,
		                                        (json_int_t)range->count))) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

static json_t *file_to_json(const struct manifest_file *file)
{
	if (!file->is_shard)
		return json_pack("{s:s,s:I,s:o}", "name", file->name, "bytes", (json_int_t)file->len_bytes,
		        "blocks", blocks_to_json(file));
	return json_pack("{s:s,s:I,s:o,s:o}", "name", file->name, "bytes", (json_int_t)file->len_bytes,
	        "ranges", ranges_to_json(file), "blocks", blocks_to_json(file));
}

static json_t *planes_to_json(unsigned planes)
{
	json_t *list = json_array();

	for (int p = 0; list && p < PLANE_SAVED_COUNT; p++) {
		if (planes & 1u << p && json_array_append_new(list, json_string(plane_name((enum plane)p)))) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

/* A frozen tensor lists its planes; others have all. */
static json_t *tensor_to_json(const struct manifest_tensor *tensor)
{
	json_t *entry =
	        json_pack("{s:s,s:o}", "name", tensor->name, "shape", json_ints(tensor->shape, tensor->rank));

	if (entry && !tensor->trainable &&
	        json_object_set_new(entry, "frozen", planes_to_json(tensor->planes))) {
		json_decref(entry);
		return NULL;
	}
	return entry;
}

static json_t *tensors_to_json(const struct manifest *manifest)
{
	json_t *list = json_array();

	for (int t = 0; list && t < manifest->tensor_count; t++) {
		if (json_array_append_new(list, tensor_to_json(&manifest->tensors[t]))) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

static json_t *files_to_json(const struct manifest *manifest)
{
	json_t *list = json_array();

	for (int f = 0; list && f < manifest->file_count; f++) {
		if (json_array_append_new(list, file_to_json(&manifest->files[f]))) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

int manifest_write(const char *dir, const struct manifest *manifest)
{
	char *path = file_join(dir, manifest_name);
	json_t *root = json_pack("{s:s,s:i,s:I,s:s,s:i,s:o,s:s,s:i,s:O,s:o,s:o}", "format", format_name,
	        "version", FORMAT_VERSION, "step", (json_int_t)manifest->step, "model_type",
	        manifest->model_type, "world_size", manifest->world_size, "planes",
	        planes_to_json(manifest->planes), "optimizer_state", adamw_state_saved_name(manifest->state),
	        "block_bytes", SAFETENSORS_BLOCK_BYTES, "training", manifest->training, "tensors",
	        tensors_to_json(manifest), "files", files_to_json(manifest));
	int err = path ? sealed_write(path, root) : ERR_NOMEM;

	json_decref(root);
	mem_free(path);
	return err;
}

int manifest_write_part(const char *path, const struct manifest_file *file)
{
	json_t *root = file_to_json(file);
	int err = sealed_write(path, root);

	json_decref(root);
	return err;
}

/* ---- from JSON ---- */

/* Refuses a missing value. */
static int need(int got, const char *where, const char *key)
{
	return got > 0 ? 0 : got < 0 ? got : err_set(ERR_INPUT, "%s: \"%s\" is missing", where, key);
}

static int need_int(const json_t *object, const char *where, const char *key, int64_t *out, int64_t most)
{
	int err = need(json_get_int(object, where, key, out), where, key);

	if (!err && (*out < 0 || *out > most))
		err = err_set(ERR_INPUT, "%s: \"%s\" is %" PRId64 "; expected 0 to %" PRId64, where, key,
		        *out, most);
	return err;
}

static int need_text(const json_t *object, const char *where, const char *key, char **out)
{
	const char *text = NULL;
	int err = need(json_get_str(object, where, key, &text), where, key);

	if (err)
		return err;
	*out = mem_strdup(text);
	return *out ? 0 : ERR_NOMEM;
}

static int need_array(const json_t *object, const char *where, const char *key, json_t **out)
{
	return need(json_get_array(object, where, key, out), where, key);
}

static int hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int read_blocks(struct manifest_file *file, const json_t *object, const char *where)
{
	const char *hex = NULL;
	int err = need(json_get_str(object, where, "blocks", &hex), where, "blocks");

	if (err)
		return err;
	file->block_count =
	        file->len_bytes / SAFETENSORS_BLOCK_BYTES + (file->len_bytes % SAFETENSORS_BLOCK_BYTES != 0);
	if (strlen(hex) / HASH_DIGITS != (uint64_t)file->block_count || strlen(hex) % HASH_DIGITS)
		return err_set(ERR_INPUT,
		        "%s: file %s has %zu digits of checksums; expected %" PRId64 " blocks of %d", where,
		        file->name, strlen(hex), file->block_count, HASH_DIGITS);
	file->hashes = mem_alloc((size_t)file->block_count, sizeof(*file->hashes));
	if (!file->hashes)
		return ERR_NOMEM;
	for (int64_t i = 0; i < file->block_count * HASH_DIGITS; i++) {
		int digit = hex_digit(hex[i]);

		if (digit < 0)
			return err_set(ERR_INPUT, "%s: file %s has a checksum with '%c'; expected 0-9, a-f",
			        where, file->name, hex[i]);
		file->hashes[i / HASH_DIGITS] = file->hashes[i / HASH_DIGITS] << 4 | (uint64_t)digit;
	}
	return 0;
}

static int read_range(
        struct plane_range *range, const json_t *entry, const struct manifest *manifest, const char *where)
{
	int block = adamw_state_block(manifest->state);
	json_int_t value[3] = {0};
	int good = json_is_array(entry) && json_array_size(entry) == 3;

	for (size_t i = 0; good && i < 3; i++) {
		good = json_is_integer(json_array_get(entry, i));
		value[i] = json_integer_value(json_array_get(entry, i));
	}
	good = good && value[0] >= 0 && value[0] < manifest->tensor_count && value[1] >= 0 && value[2] > 0 &&
	       value[2] <= manifest->tensors[value[0]].count &&
	       value[1] <= manifest->tensors[value[0]].count - value[2];
	if (!good)
		return err_set(
		        ERR_INPUT, "%s: \"ranges\" has an entry that is not [tensor, first, count]", where);
	*range = (struct plane_range){(int)value[0], value[1], value[2]};
	if (manifest->planes & PLANES_SCALE &&
	        (range->first % block ||
	                (range->count % block &&
	                        range->first + range->count != manifest->tensors[range->tensor].count)))
		return err_set(ERR_INPUT, "%s: \"ranges\" cuts a block of %d elements of tensor %s", where,
		        block, manifest->tensors[range->tensor].name);
	return 0;
}

static int read_ranges(
        struct manifest_file *file, const struct manifest *manifest, const json_t *list, const char *where)
{
	int err = 0;

	file->is_shard = 1;
	file->range_count = (int64_t)json_array_size(list);
	file->ranges = mem_alloc((size_t)file->range_count, sizeof(*file->ranges));
	if (!file->ranges)
		return ERR_NOMEM;
	for (int64_t i = 0; !err && i < file->range_count; i++)
		err = read_range(&file->ranges[i], json_array_get(list, (size_t)i), manifest, where);
	return err;
}

/* Allows a plain name, or one below "hf/". */
static int check_file_name(const char *name, const char *where)
{
	const char *plain = strncmp(name, "hf/", 3) ? name : name + 3;

	if (*plain && *plain != '.' && !strchr(plain, '/'))
		return 0;
	return err_set(ERR_INPUT, "%s: invalid file name \"%s\"", where, safetensors_name_show(name).text);
}

static int read_file_entry(struct manifest *manifest, const json_t *object, const char *where)
{
	struct manifest_file *file = manifest_add_file(manifest);
	json_t *ranges = NULL;
	int err;

	if (!file)
		return ERR_NOMEM;
	if (!json_is_object(object))
		return err_set(ERR_INPUT, "%s: \"files\" has an entry that is not an object", where);
	err = need_text(object, where, "name", &file->name);
	if (!err)
		err = check_file_name(file->name, where);
	if (!err)
		err = need_int(object, where, "bytes", &file->len_bytes, INT64_MAX / 2);
	if (!err)
		err = read_blocks(file, object, where);
	if (err)
		return err;
	err = json_get_array(object, where, "ranges", &ranges);
	return err > 0 ? read_ranges(file, manifest, ranges, where) : err;
}

int manifest_add_part(struct manifest *manifest, const char *path)
{
	json_t *root = NULL;
	int err = sealed_read(&root, path);

	if (!err)
		err = read_file_entry(manifest, root, path);
	json_decref(root);
	return err;
}

int manifest_add_copy(struct manifest *manifest, const struct manifest_file *file)
{
	json_t *root = file_to_json(file);
	int err = root ? read_file_entry(manifest, root, file->name) : err_set(ERR_NOMEM, "out of memory");

	json_decref(root);
	return err;
}

static int unknown_plane(const char *name, const char *where)
{
	struct str names = {0};

	for (int p = 0; p < PLANE_SAVED_COUNT; p++)
		str_printf(&names, " %s", plane_name((enum plane)p));
	err_set(ERR_INPUT, "%s: unknown array \"%s\"; expected%s", where,
	        name ? safetensors_name_show(name).text : "", names.data ? names.data : "");
	str_free(&names);
	return ERR_INPUT;
}

static int read_planes(unsigned *planes, const json_t *list, const char *where)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *name = json_string_value(json_array_get(list, i));
		int p = 0;

		while (p < PLANE_SAVED_COUNT && (!name || strcmp(name, plane_name((enum plane)p))))
			p++;
		if (p == PLANE_SAVED_COUNT)
			return unknown_plane(name, where);
		*planes |= 1u << p;
	}
	return 0;
}

/* Frozen tensors have no optimizer state, and a low half only if it is not zero; nothing if they are in the
 * model's files. */
static int read_frozen(struct manifest_tensor *tensor, const struct manifest *manifest, const json_t *entry,
        const char *where)
{
	json_t *list = NULL;
	int err = json_get_array(entry, where, "frozen", &list);

	tensor->trainable = err <= 0;
	tensor->planes = err > 0 ? 0 : manifest->planes;
	if (err <= 0)
		return err;
	err = read_planes(&tensor->planes, list, where);
	if (!err && tensor->planes &&
	        (!(tensor->planes >> PLANE_HI & 1) ||
	                tensor->planes & ~(manifest->planes & (unsigned)PLANES_WEIGHT)))
		err = err_set(ERR_INPUT,
		        "%s: tensor %s has an invalid \"frozen\"; expected nothing, hi, or hi and lo", where,
		        safetensors_name_show(tensor->name).text);
	return err;
}

static int read_tensor(struct manifest_tensor *tensor, const struct manifest *manifest, const json_t *entry,
        const char *where)
{
	json_t *shape = NULL;
	int err, good;

	if (!json_is_object(entry))
		return err_set(ERR_INPUT, "%s: \"tensors\" has an entry that is not an object", where);
	err = need_text(entry, where, "name", &tensor->name);
	if (!err)
		err = need_array(entry, where, "shape", &shape);
	if (err)
		return err;
	tensor->rank = (int)json_array_size(shape);
	tensor->count = 1;
	good = tensor->rank >= 1 && tensor->rank <= MODEL_RANK_MAX;
	for (int i = 0; i < MODEL_RANK_MAX && good; i++) {
		tensor->shape[i] =
		        i < tensor->rank ? json_integer_value(json_array_get(shape, (size_t)i)) : 1;
		good = tensor->shape[i] > 0 && tensor->count <= INT64_MAX / 8 / tensor->shape[i];
		if (good)
			tensor->count *= tensor->shape[i];
	}
	if (!good)
		return err_set(ERR_INPUT, "%s: tensor %s has an invalid shape", where,
		        safetensors_name_show(tensor->name).text);
	return read_frozen(tensor, manifest, entry, where);
}

static int read_tensors(struct manifest *manifest, const json_t *root, const char *where)
{
	json_t *list = NULL;
	int err = need_array(root, where, "tensors", &list);

	if (err)
		return err;
	if (json_array_size(list) > INT32_MAX)
		return err_set(ERR_INPUT, "%s: too many tensors", where);
	manifest->tensors = mem_alloc(json_array_size(list), sizeof(*manifest->tensors));
	if (!manifest->tensors)
		return ERR_NOMEM;
	for (size_t i = 0; !err && i < json_array_size(list); i++) {
		manifest->tensor_count++;
		err = read_tensor(&manifest->tensors[i], manifest, json_array_get(list, i), where);
	}
	return err;
}

/* Reads the format of m and v; the oldest manifests lack it. */
static int read_state(struct manifest *manifest, const json_t *root, const char *where)
{
	const char *name = NULL;
	int err = json_get_str(root, where, "optimizer_state", &name), state = 0;
	unsigned scales = manifest->planes & PLANES_SCALE, moments = manifest->planes & PLANES_MOMENT;

	if (err < 0)
		return err;
	while (err && state < ADAMW_STATE_COUNT &&
	        strcmp(name, adamw_state_saved_name((enum adamw_state)state)))
		state++;
	if (state == ADAMW_STATE_COUNT && strcmp(name, "8bit") == 0) /* bitsandbytes' maps, until 2026-11 */
		return err_set(ERR_UNSUPPORTED,
		        "%s: 8-bit optimizer state of an older ferry; resume or export it with the ferry "
		        "that "
		        "wrote it",
		        where);
	if (state == ADAMW_STATE_COUNT)
		return err_set(ERR_UNSUPPORTED,
		        "%s: optimizer_state \"%s\" is not supported; use a newer ferry", where,
		        safetensors_name_show(name).text);
	manifest->state = (enum adamw_state)state;
	if (adamw_state_has_scales(manifest->state) && moments
	                ? scales != PLANES_SCALE || moments != PLANES_MOMENT
	                : scales != 0)
		return err_set(ERR_INPUT, "%s: \"planes\" does not match optimizer_state \"%s\"", where,
		        adamw_state_saved_name(manifest->state));
	return 0;
}

static int compare_ranges(const void *a, const void *b)
{
	const struct plane_range *left = a, *right = b;

	if (left->tensor != right->tensor)
		return left->tensor < right->tensor ? -1 : 1;
	return left->first < right->first ? -1 : left->first > right->first;
}

/* Checks that the ranges of all shards cover each tensor once. */
static int check_cover(const struct manifest *manifest, const char *where)
{
	struct plane_range *all;
	int64_t count = 0, used = 0, at = 0;
	int tensor = 0, err = 0;

	for (int f = 0; f < manifest->file_count; f++)
		count += manifest->files[f].range_count;
	all = mem_alloc((size_t)count, sizeof(*all));
	if (!all)
		return ERR_NOMEM;
	for (int f = 0; f < manifest->file_count; f++) {
		const struct manifest_file *file = &manifest->files[f];

		if (file->range_count)
			memcpy(all + used, file->ranges, (size_t)file->range_count * sizeof(*all));
		used += file->range_count;
	}
	qsort(all, (size_t)count, sizeof(*all), compare_ranges);
	for (int64_t i = 0; i <= count && !err; i++) {
		if (tensor < manifest->tensor_count && at == manifest->tensors[tensor].count)
			tensor++, at = 0;
		if (i < count ? all[i].tensor != tensor || all[i].first != at
		              : tensor != manifest->tensor_count)
			err = err_set(ERR_INPUT,
			        "%s: tensor %s is missing or stored twice, from element %" PRId64, where,
			        tensor < manifest->tensor_count ? manifest->tensors[tensor].name : "(none)",
			        at);
		else if (i < count)
			at += all[i].count;
	}
	mem_free(all);
	return err;
}

static int read_head(struct manifest *manifest, const json_t *root, const char *where)
{
	int64_t version = 0, block_bytes = 0, world_size = 0;
	const char *format = NULL;
	int err = need(json_get_str(root, where, "format", &format), where, "format");

	if (!err && strcmp(format, format_name))
		err = err_set(
		        ERR_INPUT, "%s: has format \"%s\"; expected \"%s\"", where, format, format_name);
	if (!err)
		err = need_int(root, where, "version", &version, INT32_MAX);
	if (!err && version != FORMAT_VERSION)
		err = err_set(ERR_UNSUPPORTED, "%s: has version %" PRId64 "; this ferry reads version %d",
		        where, version, FORMAT_VERSION);
	if (!err)
		err = need_int(root, where, "block_bytes", &block_bytes, INT32_MAX);
	if (!err && block_bytes != SAFETENSORS_BLOCK_BYTES)
		err = err_set(ERR_UNSUPPORTED, "%s: block_bytes=%" PRId64 " is not supported; supported: %d",
		        where, block_bytes, SAFETENSORS_BLOCK_BYTES);
	if (!err)
		err = need_int(root, where, "step", &manifest->step, INT64_MAX);
	if (!err)
		err = need_int(root, where, "world_size", &world_size, 1 << 20);
	if (!err)
		err = need_text(root, where, "model_type", &manifest->model_type);
	manifest->world_size = (int)world_size;
	return err;
}

static int read_manifest(struct manifest *manifest, const json_t *root, const char *where)
{
	json_t *list = NULL;
	int err = read_head(manifest, root, where);

	if (!err)
		err = need_array(root, where, "planes", &list);
	if (!err)
		err = read_planes(&manifest->planes, list, where);
	if (!err)
		err = read_state(manifest, root, where);
	if (!err)
		err = read_tensors(manifest, root, where);
	if (!err)
		err = need(json_get_object(root, where, "training", &manifest->training), where, "training");
	json_incref(manifest->training);
	if (!err)
		err = need_array(root, where, "files", &list);
	for (size_t i = 0; !err && i < json_array_size(list); i++)
		err = read_file_entry(manifest, json_array_get(list, i), where);
	return err ? err : check_cover(manifest, where);
}

int manifest_read(struct manifest **out, const char *dir)
{
	struct manifest *manifest = mem_alloc(1, sizeof(*manifest));
	char *path = file_join(dir, manifest_name);
	json_t *root = NULL;
	int err = manifest && path ? sealed_read(&root, path) : ERR_NOMEM;

	*out = NULL;
	if (!err) {
		err = read_manifest(manifest, root, path);
		if (err == ERR_INPUT)
			err_reword(err, "%s; use another checkpoint", err_text());
	}
	json_decref(root);
	mem_free(path);
	if (err)
		manifest_free(manifest);
	else
		*out = manifest;
	return err;
}

void manifest_free(struct manifest *manifest)
{
	if (!manifest)
		return;
	for (int t = 0; t < manifest->tensor_count; t++)
		mem_free(manifest->tensors[t].name);
	for (int f = 0; f < manifest->file_count; f++) {
		mem_free(manifest->files[f].name);
		mem_free(manifest->files[f].hashes);
		mem_free(manifest->files[f].ranges);
	}
	mem_free(manifest->tensors);
	mem_free(manifest->files);
	mem_free(manifest->model_type);
	json_decref(manifest->training);
	mem_free(manifest);
}

struct manifest_file *manifest_add_file(struct manifest *manifest)
{
	size_t count = (size_t)manifest->file_count;
	struct manifest_file *grown = mem_resize(manifest->files, count + 1, sizeof(*grown));

	if (!grown)
		return NULL;
	manifest->files = grown;
	manifest->file_count++;
	memset(&grown[count], 0, sizeof(*grown));
	return &grown[count];
}
