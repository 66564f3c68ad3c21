/* Opens a checkpoint and reads ranges of it through verified blocks. */
#include "checkpoint/load_parts.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/branch.h"
#include "checkpoint/file/hash.h"
#include "checkpoint/file/safetensors.h"
#include "checkpoint/file/temp_dir.h"
#include "checkpoint/save.h"
#include "model/families/open.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- blocks ---- */

int64_t checkpoint_block_bytes(const struct checkpoint *checkpoint, int f, int64_t block)
{
	int64_t left = checkpoint->manifest->files[f].len_bytes - block * SAFETENSORS_BLOCK_BYTES;

	return left < SAFETENSORS_BLOCK_BYTES ? left : SAFETENSORS_BLOCK_BYTES;
}

int checkpoint_fail_block(const struct checkpoint *checkpoint, int f, int64_t block)
{
	return err_set(ERR_INPUT,
	        "%s: byte %" PRId64 ": the %" PRId64
	        " bytes from here differ from what was saved; resume from another checkpoint",
	        checkpoint->files[f]->path, block * SAFETENSORS_BLOCK_BYTES,
	        checkpoint_block_bytes(checkpoint, f, block));
}

static int read_block(struct checkpoint *checkpoint, struct checkpoint_block *slot, int f, int64_t block)
{
	const struct manifest_file *file = &checkpoint->manifest->files[f];
	const struct safetensors *shard = checkpoint->files[f];
	size_t len = (size_t)checkpoint_block_bytes(checkpoint, f, block);
	int err;

	slot->file = -1;
	if (!slot->bytes)
		slot->bytes = mem_alloc(SAFETENSORS_BLOCK_BYTES, 1);
	if (!slot->bytes)
		return ERR_NOMEM;
	err = file_read_at(shard->fd, shard->path, slot->bytes, len, block * SAFETENSORS_BLOCK_BYTES);
	if (err)
		return err;
	if (hash_kernels()->of(slot->bytes, len) != file->hashes[block])
		return checkpoint_fail_block(checkpoint, f, block);
	slot->file = f;
	slot->block = block;
	return 0;
}

static int get_block(struct checkpoint *checkpoint, const unsigned char **bytes, int f, int64_t block)
{
	struct checkpoint_block *slot = &checkpoint->cache[0];
	int err;

	for (int i = 0; i < CHECKPOINT_CACHE_BLOCKS; i++) {
		struct checkpoint_block *other = &checkpoint->cache[i];

		if (other->bytes && other->file == f && other->block == block) {
			other->used = ++checkpoint->clock;
			*bytes = other->bytes;
			return 0;
		}
		if (other->used < slot->used)
			slot = other;
	}
	err = read_block(checkpoint, slot, f, block);
	if (err)
		return err;
	slot->used = ++checkpoint->clock;
	*bytes = slot->bytes;
	return 0;
}

void checkpoint_forget_blocks(struct checkpoint *checkpoint)
{
	for (int i = 0; i < CHECKPOINT_CACHE_BLOCKS; i++) {
		mem_free(checkpoint->cache[i].bytes);
		checkpoint->cache[i] = (struct checkpoint_block){0};
	}
}

/* Reads bytes of one file through the cache. */
static int read_verified(struct checkpoint *checkpoint, void *dst, int f, int64_t offset, int64_t len_bytes)
{
	unsigned char *out = dst;
	int err = 0;

	while (!err && len_bytes) {
		int64_t within = offset % SAFETENSORS_BLOCK_BYTES, part = SAFETENSORS_BLOCK_BYTES - within;
		const unsigned char *bytes;

		if (part > len_bytes)
			part = len_bytes;
		err = get_block(checkpoint, &bytes, f, offset / SAFETENSORS_BLOCK_BYTES);
		if (err)
			return err;
		memcpy(out, bytes + within, (size_t)part);
		out += part;
		offset += part;
		len_bytes -= part;
	}
	return err;
}

/* ---- opening ---- */

/* Verifies the blocks with the header. */
static int verify_header(struct checkpoint *checkpoint, int f)
{
	int64_t end = 8 + checkpoint->files[f]->header_bytes;
	const unsigned char *bytes;
	int err = 0;

	for (int64_t b = 0; !err && b * SAFETENSORS_BLOCK_BYTES < end; b++)
		err = get_block(checkpoint, &bytes, f, b);
	return err;
}

/* Adds the entry for this range of this plane, a tensor of the shard. */
static int add_entry(struct checkpoint *checkpoint, int f, enum plane plane, const struct plane_range *range)
{
	const struct manifest_tensor *tensor = &checkpoint->manifest->tensors[range->tensor];
	const struct safetensors *shard = checkpoint->files[f];
	const struct safetensors_tensor *found;
	char *name = mem_printf("%s:%s[%" PRId64 ":%" PRId64 "]", plane_name(plane), tensor->name,
	        range->first, range->first + range->count);

	if (!name)
		return ERR_NOMEM;
	found = safetensors_find(shard, name);
	mem_free(name);
	if (!found || found->len_bytes != plane_bytes(plane, checkpoint->manifest->state, range->count))
		return err_set(ERR_INPUT, "%s: lacks \"%s\" of %s from element %" PRId64, shard->path,
		        plane_name(plane), tensor->name, range->first);
	checkpoint->entries[checkpoint->entry_count++] =
	        (struct checkpoint_entry){plane, *range, f, found->begin_bytes};
	return 0;
}

static int open_shard(struct checkpoint *checkpoint, int f)
{
	const struct manifest_file *file = &checkpoint->manifest->files[f];
	char *path = file_join(checkpoint->path, file->name);
	int err = path ? safetensors_open(&checkpoint->files[f], path) : ERR_NOMEM;

	if (!err && checkpoint->files[f]->file_bytes != file->len_bytes)
		err = err_set(ERR_INPUT, "%s: has %" PRId64 " bytes, not the %" PRId64 " that were saved",
		        path, checkpoint->files[f]->file_bytes, file->len_bytes);
	mem_free(path);
	if (!err)
		err = verify_header(checkpoint, f);
	for (int p = 0; !err && p < PLANE_SAVED_COUNT; p++) {
		for (int64_t r = 0; !err && r < file->range_count; r++)
			if (checkpoint->manifest->tensors[file->ranges[r].tensor].planes & 1u << p)
				err = add_entry(checkpoint, f, (enum plane)p, &file->ranges[r]);
	}
	return err;
}

/* Checks a file of the model's directory. Weights there are a copy for other programs, which no load reads,
 * so their length is enough. */
static int check_side_file(const struct checkpoint *checkpoint, const struct manifest_file *file)
{
	const char *end = strrchr(file->name, '.');
	char *path;
	int64_t len = 0;
	int fd, err;

	if (!end || strcmp(end, ".safetensors") != 0)
		return manifest_verify_file(checkpoint->path, file);
	path = file_join(checkpoint->path, file->name);
	fd = path ? file_open_read(path, &len) : ERR_NOMEM;
	err = fd < 0 ? fd : 0;
	if (fd >= 0)
		file_abandon(fd, path);
	if (!err && len != file->len_bytes)
		err = err_set(ERR_INPUT, "%s: has %" PRId64 " bytes, not the %" PRId64 " that were saved",
		        path, len, file->len_bytes);
	mem_free(path);
	return err;
}

static int compare_entries(const void *a, const void *b)
{
	const struct checkpoint_entry *left = a, *right = b;

	if (left->plane != right->plane)
		return left->plane < right->plane ? -1 : 1;
	if (left->range.tensor != right->range.tensor)
		return left->range.tensor < right->range.tensor ? -1 : 1;
	return left->range.first < right->range.first ? -1 : left->range.first > right->range.first;
}

static int open_files(struct checkpoint *checkpoint)
{
	const struct manifest *manifest = checkpoint->manifest;
	int64_t count = 0;
	int err = 0;

	for (int f = 0; f < manifest->file_count; f++)
		count += manifest->files[f].range_count * PLANE_SAVED_COUNT;
	checkpoint->files = mem_alloc((size_t)manifest->file_count, sizeof(*checkpoint->files));
	checkpoint->entries = mem_alloc((size_t)count, sizeof(*checkpoint->entries));
	if (!checkpoint->files || !checkpoint->entries)
		return ERR_NOMEM;
	for (int f = 0; !err && f < manifest->file_count; f++)
		err = manifest->files[f].is_shard ? open_shard(checkpoint, f)
		                                  : check_side_file(checkpoint, &manifest->files[f]);
	if (!err)
		qsort(checkpoint->entries, (size_t)checkpoint->entry_count, sizeof(*checkpoint->entries),
		        compare_entries);
	return err;
}

int checkpoint_open(struct checkpoint **out, const char *path)
{
	struct checkpoint *checkpoint = mem_alloc(1, sizeof(*checkpoint));
	int err;

	*out = NULL;
	if (!checkpoint)
		return ERR_NOMEM;
	checkpoint->path = mem_strdup(path);
	err = checkpoint->path ? manifest_read(&checkpoint->manifest, path) : ERR_NOMEM;
	if (!err)
		err = open_files(checkpoint);
	if (err)
		checkpoint_close(checkpoint);
	else
		*out = checkpoint;
	return err;
}

void checkpoint_close(struct checkpoint *checkpoint)
{
	if (!checkpoint)
		return;
	for (int f = 0; checkpoint->files && f < checkpoint->manifest->file_count; f++)
		safetensors_close(checkpoint->files[f]);
	checkpoint_forget_blocks(checkpoint);
	mem_free(checkpoint->files);
	mem_free(checkpoint->entries);
	manifest_free(checkpoint->manifest);
	mem_free(checkpoint->path);
	mem_free(checkpoint);
}

static int compare_steps_falling(const void *a, const void *b)
{
	int64_t left = checkpoint_step_of(*(char *const *)a), right = checkpoint_step_of(*(char *const *)b);

	return left < right ? 1 : -(left > right);
}

/* Checks that the checkpoint is on the current line; without one (NULL) any is. */
static int check_line(const struct checkpoint *checkpoint, const json_t *in_force)
{
	const struct manifest *m = checkpoint->manifest;
	json_t *line = NULL;
	int err = in_force ? branch_of_training(&line, m->training, checkpoint->path) : 0;

	if (!err && line && branch_common(line, in_force) < m->step)
		err = err_set(ERR_INPUT, "it belongs to a branch that the run has left");
	json_decref(line);
	return err;
}

int checkpoint_check_name(const struct checkpoint *checkpoint)
{
	int64_t step = checkpoint->manifest->step, named;
	char *parent = NULL, *name = NULL;
	int err = temp_dir_split(&parent, &name, checkpoint->path);

	named = err ? -1 : checkpoint_step_of(name);
	if (named >= 0 && named != step)
		err = err_set(ERR_INPUT, "%s holds step %" PRId64 "; rename it to checkpoint-%06" PRId64,
		        checkpoint->path, step, step);
	mem_free(parent);
	mem_free(name);
	return err;
}

void checkpoint_warn_skipped(const char *path, int err)
{
	const char *text = err_text();
	size_t len = strlen(path);

	if (!file_is_in(path, manifest_name))
		log_warn("skipping %s: incomplete (no %s)", path, manifest_name);
	else if (err == ERR_INPUT && !strncmp(text, path, len) && text[len] == '/')
		log_warn("skipping %s: damaged: %s", path, text + len + 1);
	else
		log_warn("skipping %s: %s%s", path, err == ERR_INPUT ? "damaged: " : "", text);
}

/* 1 if the checkpoint opens and is valid, 0 with a warning if not, ERR_IO or ERR_NOMEM if that is unknown. */
static int is_whole(const char *path, const json_t *in_force)
{
	struct checkpoint *checkpoint;
	int damage = checkpoint_open(&checkpoint, path), err = damage;

	if (!err)
		err = checkpoint_check_name(checkpoint);
	if (!err)
		err = check_line(checkpoint, in_force);
	checkpoint_close(checkpoint);
	if (err == ERR_IO || err == ERR_NOMEM)
		return err;
	if (err)
		checkpoint_warn_skipped(path, damage);
	return !err;
}

int checkpoint_find_newest(char **path, const char *output_dir, int64_t before)
{
	char **names = NULL;
	size_t count = 0;
	json_t *in_force = NULL;
	int err;

	*path = NULL;
	if (file_kind_of(output_dir) == FILE_NONE)
		return 0;
	err = branch_read(&in_force, output_dir);
	if (!err)
		err = file_list_dir(output_dir, &names, &count);
	if (count)
		qsort(names, count, sizeof(*names), compare_steps_falling);
	for (size_t i = 0; i < count && checkpoint_step_of(names[i]) >= 0; i++) {
		char *candidate;

		if (checkpoint_step_of(names[i]) >= before)
			continue;
		candidate = file_join(output_dir, names[i]);
		err = candidate ? is_whole(candidate, in_force) : ERR_NOMEM;
		if (err > 0)
			*path = candidate;
		else
			mem_free(candidate);
		if (err)
			break;
	}
	json_decref(in_force);
	file_list_free(names, count);
	return err < 0 ? err : 0;
}

const struct manifest *checkpoint_manifest(const struct checkpoint *checkpoint)
{
	return checkpoint->manifest;
}

const char *checkpoint_path(const struct checkpoint *checkpoint)
{
	return checkpoint->path;
}

char *checkpoint_model_dir(const struct checkpoint *checkpoint)
{
	return file_join(checkpoint->path, "hf");
}

/* ---- matching a model ---- */

static int has_head(const struct manifest *manifest)
{
	for (int t = 0; t < manifest->tensor_count; t++) {
		if (families_have_head(manifest->tensors[t].name))
			return 1;
	}
	return 0;
}

int checkpoint_match(const struct checkpoint *checkpoint, struct model *model)
{
	const struct manifest *manifest = checkpoint->manifest;
	int err = model->config.tied && has_head(manifest) ? model_untie(model) : 0;

	for (int t = 0; t < manifest->tensor_count && !err; t++)
		err = model_fit_experts(model, manifest->tensors[t].name, manifest->tensors[t].rank,
		        manifest->tensors[t].shape);
	if (err)
		return err;
	for (int t = 0; t < manifest->tensor_count && t < model->tensor_count; t++) {
		const struct manifest_tensor *saved = &manifest->tensors[t];
		const struct model_tensor *wanted = &model->tensors[t];

		if (strcmp(saved->name, wanted->name))
			return err_set(ERR_INPUT,
			        "%s: belongs to another model: its tensor %d is %s, the model's is %s",
			        checkpoint->path, t, saved->name, wanted->name);
		if (saved->rank != wanted->rank ||
		        memcmp(saved->shape, wanted->shape, (size_t)wanted->rank * sizeof(*saved->shape)))
			return err_set(ERR_INPUT,
			        "%s: belongs to another model: tensor %s has shape %s, the model's %s",
			        checkpoint->path, saved->name,
			        safetensors_shape_show(saved->shape, saved->rank).text,
			        safetensors_shape_show(wanted->shape, wanted->rank).text);
	}
	if (manifest->tensor_count != model->tensor_count)
		return err_set(ERR_INPUT, "%s: belongs to another model: it has %d tensors, the model %d",
		        checkpoint->path, manifest->tensor_count, model->tensor_count);
	return 0;
}

int checkpoint_leaves_frozen(const struct checkpoint *checkpoint)
{
	const struct manifest *manifest = checkpoint->manifest;

	for (int t = 0; t < manifest->tensor_count; t++)
		if (!manifest->tensors[t].planes)
			return 1;
	return 0;
}

int checkpoint_match_trained(const struct checkpoint *checkpoint, struct model *model)
{
	const struct manifest *manifest = checkpoint->manifest;

	for (int t = 0; t < manifest->tensor_count; t++) {
		const struct manifest_tensor *saved = &manifest->tensors[t];
		struct model_tensor *wanted = &model->tensors[t];

		if (saved->trainable != wanted->trainable)
			return err_set(ERR_INPUT,
			        "%s: %s was %s there but is %s here; resume with the same freeze= and "
			        "trainable=",
			        checkpoint->path, saved->name, saved->trainable ? "trained" : "frozen",
			        wanted->trainable ? "trained" : "frozen");
		if (!saved->planes) /* as in the model's files */
			continue;
		wanted->storage =
		        saved->trainable || saved->planes >> PLANE_LO & 1 ? FORMAT_F32 : FORMAT_BF16;
	}
	return 0;
}

/* ---- planes ---- */

/* The entries of a plane are sorted and cover every tensor with this plane, so a search for `first` always
 * finds one. */
const struct checkpoint_entry *checkpoint_find_entry(
        const struct checkpoint *checkpoint, int tensor, enum plane plane, int64_t first)
{
	struct checkpoint_entry key = {.plane = plane, .range = {tensor, first, 0}};
	int64_t low = 0, high = checkpoint->entry_count; /* finds the last entry at or before the key */

	while (high - low > 1) {
		int64_t middle = low + (high - low) / 2;

		if (compare_entries(&checkpoint->entries[middle], &key) <= 0)
			low = middle;
		else
			high = middle;
	}
	return &checkpoint->entries[low];
}

int checkpoint_read(
        struct checkpoint *checkpoint, int tensor, enum plane plane, int64_t first, int64_t count, void *dst)
{
	const struct manifest *manifest = checkpoint->manifest;
	int err = 0;
	char *out = dst;

	assert(tensor >= 0 && tensor < manifest->tensor_count);
	assert(first >= 0 && count >= 0 && first <= manifest->tensors[tensor].count - count);
	if (plane == PLANE_LO && !(manifest->tensors[tensor].planes & 1u << plane) &&
	        !manifest->tensors[tensor].trainable) {
		memset(dst, 0, (size_t)plane_bytes(plane, manifest->state, count)); /* a frozen bf16 number */
		return 0;
	}
	if (!(manifest->tensors[tensor].planes & 1u << plane))
		return err_set(ERR_INPUT, "%s: does not contain \"%s\" of %s", checkpoint->path,
		        plane_name(plane), manifest->tensors[tensor].name);
	while (!err && count) {
		const struct checkpoint_entry *entry =
		        checkpoint_find_entry(checkpoint, tensor, plane, first);
		int64_t within = first - entry->range.first, part = entry->range.count - within, bytes;

		if (part > count)
			part = count;
		bytes = plane_bytes(plane, manifest->state, part);
		err = read_verified(checkpoint, out, entry->file,
		        entry->begin_bytes + plane_bytes(plane, manifest->state, within), bytes);
		out += bytes;
		first += part;
		count -= part;
	}
	return err;
}

static int source_read(void *context, int tensor, enum plane plane, int64_t first, int64_t count, void *dst)
{
	return checkpoint_read(context, tensor, plane, first, count, dst);
}

struct plane_source checkpoint_source(struct checkpoint *checkpoint)
{
	return (struct plane_source){.context = checkpoint, .read = source_read};
}

int checkpoint_verify(const char *path, checkpoint_report *report, void *context)
{
	struct manifest *manifest = NULL;
	struct checkpoint *checkpoint = NULL;
	struct err first = {0};
	int err = manifest_read(&manifest, path);

	if (err)
		return err;
	for (int f = 0; f < manifest->file_count; f++) {
		err = manifest_verify_file(path, &manifest->files[f]);
		if (err && report)
			report(context, manifest->files[f].name, err_text());
		if (err)
			err_take(&first, err);
	}
	manifest_free(manifest);
	if (first.code)
		return err_give(&first);
	err = checkpoint_open(&checkpoint, path); /* all bytes are as saved; check their meaning too */
	checkpoint_close(checkpoint);
	return err;
}
