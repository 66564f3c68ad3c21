#include "checkpoint/save.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/hf_export.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/temp_dir.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* One attempt. */
struct attempt {
	const struct checkpoint_save *save;
	char *temp, *final;        /* directories */
	struct manifest_file file; /* this rank's */
	struct plane_range *whole; /* where save->ranges is NULL */
};

static int agree(const struct checkpoint_save *save, int code)
{
	return save->world.agree ? save->world.agree(save->world.context, code) : code;
}

static int share(const struct checkpoint_save *save, uint64_t *value)
{
	return save->world.share ? save->world.share(save->world.context, value) : 0;
}

static char *step_name(const char *dir, const char *stem, int64_t step)
{
	char name[64];

	snprintf(name, sizeof(name), "%s-%06" PRId64, stem, step);
	return file_join(dir, name);
}

int64_t checkpoint_step_of(const char *name)
{
	static const char stem[] = "checkpoint-";
	const char *digits = name + sizeof(stem) - 1;
	size_t len;

	if (strncmp(name, stem, sizeof(stem) - 1))
		return -1;
	len = strlen(digits);
	if (len < 6 || len > 18 || strspn(digits, "0123456789") != len || (len > 6 && *digits == '0'))
		return -1;
	return strtoll(digits, NULL, 10);
}

/* ---- this rank's shard ---- */

static enum safetensors_dtype plane_dtype(enum plane plane, enum plane_state state)
{
	int width = plane_width(plane, state);

	if (plane == PLANE_LO)
		return SAFETENSORS_I16;
	return width == 4 ? SAFETENSORS_F32 : width == 2 ? SAFETENSORS_BF16 : SAFETENSORS_U8;
}

static void free_decls(struct safetensors_decl *decls, int64_t count)
{
	for (int64_t i = 0; decls && i < count; i++)
		mem_free((char *)decls[i].name);
	mem_free(decls);
}

/* "m:model.norm.weight[0:64]" for each plane and range. */
static int make_decls(struct safetensors_decl **out, int64_t *out_count, const struct attempt *attempt)
{
	const struct manifest_file *file = &attempt->file;
	const struct model *model = attempt->save->model;
	struct safetensors_decl *decls =
	        mem_alloc((size_t)file->range_count * PLANE_COUNT + 1, sizeof(*decls));
	int64_t count = 0;

	if (!decls)
		return ERR_NOMEM;
	for (int o = 0; o < PLANE_COUNT; o++) {
		enum plane plane = plane_file_order(attempt->save->state)[o];

		for (int64_t r = 0; r < file->range_count && attempt->save->planes & 1u << plane; r++) {
			const struct plane_range *range = &file->ranges[r];

			decls[count] = (struct safetensors_decl){
			        .name = mem_printf("%s:%s[%" PRId64 ":%" PRId64 "]", plane_name(plane),
			                model->tensors[range->tensor].name, range->first,
			                range->first + range->count),
			        .dtype = plane_dtype(plane, attempt->save->state),
			        .rank = 1,
			        .shape = {plane_numbers(plane, range->count)}};
			if (!decls[count].name) {
				free_decls(decls, count);
				return ERR_NOMEM;
			}
			count++;
		}
	}
	*out = decls;
	*out_count = count;
	return 0;
}

static int write_planes(const struct attempt *attempt, struct safetensors_writer *writer)
{
	const struct plane_source *source = attempt->save->source;
	void *piece = mem_alloc(PLANE_PIECE_COUNT, 4);
	int err = piece ? 0 : ERR_NOMEM;

	for (int o = 0; !err && o < PLANE_COUNT; o++) {
		enum plane plane = plane_file_order(attempt->save->state)[o];

		for (int64_t r = 0; r < attempt->file.range_count && attempt->save->planes & 1u << plane;
		        r++) {
			struct plane_range at = attempt->file.ranges[r];
			int64_t end = at.first + at.count;

			for (; !err && at.first < end; at.first += at.count) {
				at.count = end - at.first < PLANE_PIECE_COUNT ? end - at.first
				                                              : PLANE_PIECE_COUNT;
				err = source->read(
				        source->context, at.tensor, plane, at.first, at.count, piece);
				if (!err)
					err = safetensors_append(writer, piece,
					        (size_t)plane_bytes(plane, attempt->save->state, at.count));
			}
		}
	}
	mem_free(piece);
	return err;
}

static int keep_hashes(struct manifest_file *file, const struct safetensors_writer *writer)
{
	const uint64_t *hashes = safetensors_writer_hashes(writer, &file->block_count);

	file->len_bytes = safetensors_writer_bytes(writer);
	file->hashes = mem_alloc((size_t)file->block_count, sizeof(*hashes));
	if (!file->hashes)
		return ERR_NOMEM;
	memcpy(file->hashes, hashes, (size_t)file->block_count * sizeof(*hashes));
	return 0;
}

static int write_shard(struct attempt *attempt)
{
	static const struct safetensors_text metadata = {"format", "ferry planes"};
	struct safetensors_writer *writer = NULL;
	struct safetensors_decl *decls = NULL;
	int64_t decl_count = 0;
	char *path = NULL;
	int err;

	attempt->file.name = mem_printf("rank-%05d.safetensors", attempt->save->world.rank);
	path = attempt->file.name ? file_join(attempt->temp, attempt->file.name) : NULL;
	err = path ? make_decls(&decls, &decl_count, attempt) : ERR_NOMEM;
	if (!err)
		err = safetensors_create(&writer, path, decls, decl_count, &metadata, 1, SAFETENSORS_HASHED);
	if (!err)
		err = write_planes(attempt, writer);
	if (!err)
		err = safetensors_finish(writer);
	if (!err)
		err = keep_hashes(&attempt->file, writer);
	safetensors_writer_free(writer);
	free_decls(decls, decl_count);
	mem_free(path);
	return err;
}

static char *part_path(const struct attempt *attempt, int rank)
{
	char name[64];

	snprintf(name, sizeof(name), "rank-%05d.json", rank);
	return file_join(attempt->temp, name);
}

/* Tells rank 0 what this rank wrote. */
static int write_part(const struct attempt *attempt)
{
	char *path = part_path(attempt, attempt->save->world.rank);
	int err = path ? manifest_write_part(path, &attempt->file) : ERR_NOMEM;

	mem_free(path);
	return err;
}

/* ---- rank 0 ---- */

static int64_t planes_bytes(const struct checkpoint_save *save)
{
	int64_t bytes = 0;

	for (int p = 0; p < PLANE_COUNT; p++)
		if (save->planes & 1u << p)
			bytes += plane_bytes((enum plane)p, save->state, save->model->parameter_count);
	return bytes;
}

static void warn_of_space(const struct checkpoint_save *save)
{
	int64_t free_bytes = 0, wanted = planes_bytes(save) + (1 << 20);

	if (!file_space(save->output_dir, &free_bytes) && free_bytes < wanted)
		log_warn("%s: a checkpoint takes %.1f MB, and %.1f MB are free: saving will probably fail; "
		         "make room or lower save_total_limit",
		        save->output_dir, (double)wanted * 1e-6, (double)free_bytes * 1e-6);
}

static int prepare(const struct checkpoint_save *save)
{
	int err = file_make_dir(save->output_dir);

	if (!err)
		err = temp_dir_clean(save->output_dir, "step-");
	if (!err)
		warn_of_space(save);
	return err;
}

static int add_shards(struct manifest *manifest, const struct attempt *attempt)
{
	int err = 0;

	for (int r = 0; !err && r < attempt->save->world.size; r++) {
		char *path = part_path(attempt, r);

		err = path ? manifest_add_part(manifest, path) : ERR_NOMEM;
		if (!err)
			err = file_remove_tree(path);
		mem_free(path);
	}
	return err;
}

/* config.json, tokenizer and so on into hf/, each a file of the manifest. */
static int add_model_files(struct manifest *manifest, const struct attempt *attempt)
{
	const struct checkpoint_save *save = attempt->save;
	char *dir = file_join(attempt->temp, "hf"), **names = NULL;
	size_t count = 0;
	int err = dir ? file_make_dir(dir) : ERR_NOMEM;

	if (!err)
		err = hf_export_copy_files(save->files_from, save->config_path, dir);
	if (!err)
		err = file_list_dir(dir, &names, &count);
	for (size_t i = 0; !err && i < count; i++) {
		struct manifest_file *file = manifest_add_file(manifest);

		if (file)
			file->name = mem_printf("hf/%s", names[i]);
		err = file && file->name ? manifest_hash_file(attempt->temp, file) : ERR_NOMEM;
	}
	if (!err)
		err = file_sync_dir(dir);
	file_list_free(names, count);
	mem_free(dir);
	return err;
}

static int fill_tensors(struct manifest *manifest, const struct model *model)
{
	manifest->model_type = mem_strdup(model->config.model_type);
	manifest->tensors = mem_alloc((size_t)model->tensor_count, sizeof(*manifest->tensors));
	if (!manifest->model_type || !manifest->tensors)
		return ERR_NOMEM;
	for (int t = 0; t < model->tensor_count; t++) {
		struct manifest_tensor *tensor = &manifest->tensors[t];

		tensor->name = mem_strdup(model->tensors[t].name);
		tensor->rank = model->tensors[t].rank;
		tensor->shape[0] = model->tensors[t].shape[0];
		tensor->shape[1] = tensor->rank == 2 ? model->tensors[t].shape[1] : 1;
		tensor->count = model->tensors[t].count;
		manifest->tensor_count++;
		if (!tensor->name)
			return ERR_NOMEM;
	}
	return 0;
}

static int commit(const struct attempt *attempt)
{
	const struct checkpoint_save *save = attempt->save;
	struct manifest *manifest = mem_alloc(1, sizeof(*manifest)), *read_back = NULL;
	int err = manifest ? fill_tensors(manifest, save->model) : ERR_NOMEM;

	if (err)
		goto out;
	manifest->step = save->step;
	manifest->world_size = save->world.size;
	manifest->planes = save->planes;
	manifest->state = save->state;
	manifest->training = json_incref(save->training);
	err = add_shards(manifest, attempt);
	if (!err && (save->files_from || save->config_path))
		err = add_model_files(manifest, attempt);
	if (!err)
		err = file_sync_dir(attempt->temp);
	if (!err)
		err = manifest_write(attempt->temp, manifest);
	if (!err) /* it says what a loader will believe */
		err = manifest_read(&read_back, attempt->temp);
	if (!err)
		err = temp_dir_commit(attempt->temp, attempt->final);
out:
	manifest_free(manifest);
	manifest_free(read_back);
	return err;
}

/* ---- rotation ---- */

static int compare_steps(const void *a, const void *b)
{
	int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;

	return left < right ? -1 : left > right;
}

/* Steps of the checkpoints that are one too many, oldest first; the new one is never among them. */
static int find_surplus(int64_t **out, size_t *out_count, const struct checkpoint_save *save)
{
	char **names = NULL;
	size_t count = 0, used = 0;
	int64_t *steps = NULL;
	int err = file_list_dir(save->output_dir, &names, &count);

	*out_count = 0;
	if (err)
		return err;
	steps = mem_alloc(count, sizeof(*steps));
	if (!steps)
		err = ERR_NOMEM;
	for (size_t i = 0; !err && i < count; i++) {
		int64_t step = checkpoint_step_of(names[i]);

		if (step >= 0 && step != save->step)
			steps[used++] = step;
	}
	file_list_free(names, count);
	if (err)
		return err;
	qsort(steps, used, sizeof(*steps), compare_steps);
	*out = steps;
	if (used + 1 > (size_t)save->total_limit)
		*out_count = used + 1 - (size_t)save->total_limit;
	return 0;
}

/* The new one stands, so trouble with the old ones is no failure. */
static void remove_surplus(const struct checkpoint_save *save, const int64_t *steps, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		char *path = step_name(save->output_dir, "checkpoint", steps[i]);

		if (!path || temp_dir_remove(path, "step-"))
			log_warn("an old checkpoint could not be removed: %s", err_text());
		mem_free(path);
	}
}

/* Collective: where something is to go, every rank reads its own file back first. */
static int rotate(const struct attempt *attempt)
{
	const struct checkpoint_save *save = attempt->save;
	int64_t *steps = NULL;
	size_t count = 0;
	uint64_t surplus;
	int err = save->world.rank ? 0 : find_surplus(&steps, &count, save);

	surplus = count;
	err = agree(save, err);
	if (!err)
		err = agree(save, share(save, &surplus));
	if (!err && surplus) {
		err = agree(save, manifest_verify_file(attempt->final, &attempt->file));
		if (!err && !save->world.rank)
			remove_surplus(save, steps, count);
	}
	mem_free(steps);
	return err;
}

/* ---- the protocol ---- */

static void discard(const struct attempt *attempt, int err)
{
	struct err kept = {0};

	if (attempt->save->world.rank || !attempt->temp)
		return;
	err_take(&kept, err);
	(void)!file_remove_tree(attempt->temp);
	err_give(&kept);
}

static int name_directories(struct attempt *attempt)
{
	const struct checkpoint_save *save = attempt->save;
	uint64_t id = save->world.rank ? 0 : temp_dir_id();
	char stem[64];
	int err = agree(save, share(save, &id));

	if (err)
		return err;
	snprintf(stem, sizeof(stem), "step-%06" PRId64, save->step);
	attempt->temp = temp_dir_name(save->output_dir, stem, id);
	attempt->final = step_name(save->output_dir, "checkpoint", save->step);
	if (!attempt->temp || !attempt->final)
		return ERR_NOMEM;
	return save->world.rank ? 0 : file_make_dir(attempt->temp);
}

static int save_once(struct attempt *attempt)
{
	const struct checkpoint_save *save = attempt->save;
	int err = agree(save, save->world.rank ? 0 : prepare(save));

	if (!err)
		err = agree(save, name_directories(attempt));
	if (err)
		goto out;
	err = write_shard(attempt);
	if (!err)
		err = write_part(attempt);
	err = agree(save, err);
	if (err)
		goto out;
	err = agree(save, save->world.rank ? 0 : commit(attempt));
out:
	if (err)
		discard(attempt, err);
	return err;
}

static int begin_attempt(struct attempt *attempt, const struct checkpoint_save *save)
{
	const struct plane_range *ranges = save->ranges;
	int64_t count = save->range_count;

	*attempt = (struct attempt){.save = save};
	if (!ranges) {
		count = save->model->tensor_count;
		attempt->whole = mem_alloc((size_t)count, sizeof(*attempt->whole));
		if (!attempt->whole)
			return ERR_NOMEM;
		for (int t = 0; t < count; t++)
			attempt->whole[t] = (struct plane_range){t, 0, save->model->tensors[t].count};
		ranges = attempt->whole;
	}
	attempt->file.is_shard = 1;
	attempt->file.ranges = (struct plane_range *)ranges; /* not written to, not freed */
	attempt->file.range_count = count;
	return 0;
}

static void end_attempt(struct attempt *attempt)
{
	mem_free(attempt->temp);
	mem_free(attempt->final);
	mem_free(attempt->file.name);
	mem_free(attempt->file.hashes);
	mem_free(attempt->whole);
}

int checkpoint_save(const struct checkpoint_save *save, char **path)
{
	struct attempt attempt;
	int err;

	for (int tries = 0; tries < 2; tries++) {
		err = agree(save, begin_attempt(&attempt, save));
		if (!err)
			err = save_once(&attempt);
		if (err != ERR_IO || tries)
			break;
		if (!save->world.rank)
			log_warn("step %" PRId64 ": saving failed and is tried once more, from the start: %s",
			        save->step, err_text());
		end_attempt(&attempt);
	}
	if (!err && save->total_limit > 0)
		err = rotate(&attempt);
	if (!err && path) {
		*path = attempt.final;
		attempt.final = NULL;
	}
	end_attempt(&attempt);
	return err;
}
