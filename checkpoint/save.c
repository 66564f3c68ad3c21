/* Saves a checkpoint: the protocol of the ranks, the manifest, removal of old checkpoints. */
#include "checkpoint/save.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/size.h"
#include "checkpoint/file/temp_dir.h"
#include "checkpoint/hf/result_dir.h"
#include "checkpoint/save_parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

static char *part_path(const struct checkpoint_saving *s, int rank)
{
	char name[64];

	snprintf(name, sizeof(name), "rank-%05d.json", rank);
	return file_join(s->temp, name);
}

/* Gives rank 0 the entry of this rank's file. Rank 0 has its own. */
static int write_part(const struct checkpoint_saving *s)
{
	char *path;
	int err;

	if (!s->save.world.rank)
		return 0;
	path = part_path(s, s->save.world.rank);
	err = path ? manifest_write_part(path, &s->file) : ERR_NOMEM;

	mem_free(path);
	return err;
}

/* ---- rank 0 ---- */

/* Bytes of these planes for so many elements. */
static int64_t set_bytes(unsigned planes, enum adamw_state state, int64_t count)
{
	int64_t bytes = 0;

	for (int p = 0; p < PLANE_SAVED_COUNT; p++)
		if (planes & 1u << p)
			bytes += plane_bytes((enum plane)p, state, count);
	return bytes;
}

int64_t checkpoint_save_bytes(const struct checkpoint_save *save)
{
	int64_t bytes = 0;

	for (int t = 0; t < save->model->tensor_count; t++)
		bytes += set_bytes(save_planes_of(save, t), save->state, save->model->tensors[t].count);
	if (save->weights)
		bytes += save->model->parameter_count * safetensors_dtype_bits(save->weights->dtype) / 8;
	return bytes;
}

static int prepare(const struct checkpoint_saving *s)
{
	const struct checkpoint_save *save = &s->save;
	static int is_told;
	int err = file_make_dir(save->output_dir);

	if (!err && temp_dir_clean(save->output_dir, "step-", TEMP_DIR_NUMBERED) && !is_told) {
		is_told = 1;
		log_warn("cannot remove the files of an unfinished save: %s", err_text());
	}
	return err;
}

static int add_shards(struct manifest *manifest, const struct checkpoint_saving *s)
{
	int err = manifest_add_copy(manifest, &s->file);

	for (int r = 1; !err && r < s->save.world.size; r++) {
		char *path = part_path(s, r);

		err = path ? manifest_add_part(manifest, path) : ERR_NOMEM;
		if (!err)
			err = file_remove_tree(path);
		mem_free(path);
	}
	return err;
}

/* Writes hf/: config.json, the tokenizer and so on, and the weights if asked for. */
static int write_model_dir(const char *dir, const struct checkpoint_save *save)
{
	struct hf_export export;
	int err;

	if (!save->weights) {
		err = file_make_dir(dir);
		if (!err)
			err = side_files_write(save->side, dir, NULL);
		return err;
	}
	export = *save->weights;
	export.dir = dir;
	export.existing = HF_EXPORT_REFUSE;
	export.side = save->side;
	export.is_in_checkpoint = 1;
	return hf_export_write(
	        &export, save->model, save->weights_source ? save->weights_source : save->source);
}

/* Writes hf/ and adds its files to the manifest. */
static int add_model_files(struct manifest *manifest, const struct checkpoint_saving *s)
{
	const struct checkpoint_save *save = &s->save;
	char *dir = file_join(s->temp, "hf"), **names = NULL;
	size_t count = 0;
	int err = dir ? write_model_dir(dir, save) : ERR_NOMEM;

	if (!err)
		err = file_list_dir(dir, &names, &count);
	for (size_t i = 0; !err && i < count; i++) {
		struct manifest_file *file = manifest_add_file(manifest);

		if (file)
			file->name = mem_printf("hf/%s", names[i]);
		err = file && file->name ? manifest_hash_file(s->temp, file) : ERR_NOMEM;
	}
	if (!err)
		err = file_sync_dir(dir);
	file_list_free(names, count);
	mem_free(dir);
	return err;
}

static int fill_tensors(struct manifest *manifest, const struct checkpoint_save *save)
{
	const struct model *model = save->model;

	manifest->model_type = mem_strdup(model->config.model_type);
	manifest->tensors = mem_alloc((size_t)model->tensor_count, sizeof(*manifest->tensors));
	if (!manifest->model_type || !manifest->tensors)
		return ERR_NOMEM;
	for (int t = 0; t < model->tensor_count; t++) {
		struct manifest_tensor *tensor = &manifest->tensors[t];

		tensor->name = mem_strdup(model->tensors[t].name);
		tensor->rank = model->tensors[t].rank;
		memcpy(tensor->shape, model->tensors[t].shape, sizeof(tensor->shape));
		tensor->count = model->tensors[t].count;
		tensor->trainable = model->tensors[t].trainable;
		tensor->planes = save_planes_of(save, t);
		manifest->tensor_count++;
		if (!tensor->name)
			return ERR_NOMEM;
	}
	return 0;
}

/* A file of this name, or a directory with files of others, is kept. */
static int keep_foreign(const char *final)
{
	enum file_kind kind = file_kind_of(final);
	int err = kind == FILE_REGULAR ? err_set(ERR_INPUT, "%s is not a directory", final)
	          : kind == FILE_DIR   ? checkpoint_check_own(final)
	                               : 0; /* nothing is there, or nothing is known */

	return err == ERR_INPUT ? temp_dir_set_aside(final) : err;
}

static int commit(const struct checkpoint_saving *s)
{
	const struct checkpoint_save *save = &s->save;
	struct manifest *manifest = mem_alloc(1, sizeof(*manifest)), *read_back = NULL;
	int err = manifest ? fill_tensors(manifest, save) : ERR_NOMEM;

	if (err)
		goto out;
	manifest->step = save->step;
	manifest->world_size = save->world.size;
	manifest->planes = save->planes;
	manifest->state = save->state;
	manifest->training = json_incref(save->training);
	err = add_shards(manifest, s);
	if (!err && save->side)
		err = add_model_files(manifest, s);
	if (!err)
		err = file_sync_dir(s->temp);
	if (!err)
		err = manifest_write(s->temp, manifest);
	if (!err) /* read it back as a loader will */
		err = manifest_read(&read_back, s->temp);
	if (!err && save->may_appear)
		err = save->may_appear();
	if (!err)
		err = keep_foreign(s->final);
	if (!err)
		err = temp_dir_commit(s->temp, s->final);
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

static int is_own(const char *path, const char *name)
{
	enum file_kind kind = file_kind_of(path);

	if (*name == '.')
		return 1;
	if (!strcmp(name, "hf"))
		return kind == FILE_DIR;
	return kind == FILE_REGULAR && (!strcmp(name, manifest_name) || !strncmp(name, "rank-", 5));
}

static int is_own_in_hf(const char *path, const char *name)
{
	return *name == '.' || result_dir_owns(path, name);
}

int checkpoint_check_own(const char *path)
{
	struct stat st;
	char *hf;
	int err;

	if (!stat(path, &st) && !(st.st_mode & 0222))
		return err_set(ERR_INPUT, "%s is write-protected", path);
	err = temp_dir_check(path, is_own);
	hf = file_join(path, "hf");
	if (!hf)
		err = ERR_NOMEM;
	else if (!err && file_kind_of(hf) == FILE_DIR)
		err = temp_dir_check(hf, is_own_in_hf);
	mem_free(hf);
	return err;
}

/* Whether ferry may not remove the checkpoint. Warns once for each. */
static int must_stay(const char *output_dir, const char *name)
{
	static int64_t told_step = -1;
	char *path = file_join(output_dir, name);
	int is_staying = path && file_kind_of(path) == FILE_DIR && checkpoint_check_own(path) == ERR_INPUT;

	if (is_staying && checkpoint_step_of(name) > told_step) {
		told_step = checkpoint_step_of(name);
		log_warn("%s; ferry keeps this checkpoint beyond save_total_limit", err_text());
	}
	mem_free(path);
	return is_staying;
}

/* Finds the steps of checkpoints beyond total_limit, oldest first. The new one and the best one are never
 * among them, and both stay where the limit is 1. */
static int find_surplus(int64_t **out, uint64_t *out_count, const struct checkpoint_save *save)
{
	char **names = NULL;
	size_t count = 0, used = 0, stay = 1;
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

		if (step < 0 || step == save->step)
			continue;
		if (step > 0 && step == save->best_step)
			stay++;
		else if (!must_stay(save->output_dir, names[i]))
			steps[used++] = step;
	}
	file_list_free(names, count);
	if (err)
		return err;
	qsort(steps, used, sizeof(*steps), compare_steps);
	*out = steps;
	if (used + stay > (size_t)save->total_limit)
		*out_count = min_i64((int64_t)used, (int64_t)(used + stay) - save->total_limit);
	return 0;
}

/* The new checkpoint is complete, so a failure to remove old ones is only a warning. */
static void remove_surplus(const struct checkpoint_save *save, const int64_t *steps, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		char *path = step_name(save->output_dir, "checkpoint", steps[i]);

		if (!path || temp_dir_remove(path, "step-"))
			log_warn("cannot remove an old checkpoint: %s", err_text());
		else
			log_info("removed %s (save_total_limit=%d)", path, save->total_limit);
		mem_free(path);
	}
}

int checkpoint_rotate(const char *output_dir, int64_t step, int64_t best_step, int total_limit)
{
	const struct checkpoint_save save = {
	        .output_dir = output_dir, .step = step, .best_step = best_step, .total_limit = total_limit};
	int64_t *steps = NULL;
	uint64_t count = 0;
	int err = total_limit > 0 ? find_surplus(&steps, &count, &save) : 0;

	if (!err)
		remove_surplus(&save, steps, count);
	mem_free(steps);
	return err;
}

/* ---- the protocol ---- */

/* Removes the temporary directory. Only rank 0 does: a rank that lost another one may get here while rank 0
 * commits, and would take files out of a checkpoint. What stays, the next save removes. */
static void discard(const struct checkpoint_saving *s, int err)
{
	struct err kept = {0};

	if (s->save.world.rank || !s->temp || s->is_committed)
		return;
	err_take(&kept, err);
	(void)!file_remove_tree(s->temp);
	err_give(&kept);
}

static int name_directories(struct checkpoint_saving *s)
{
	const struct checkpoint_save *save = &s->save;
	uint64_t id = save->world.rank ? 0 : temp_dir_id();
	char stem[64];
	int err = agree(save, share(save, &id));

	if (err)
		return err;
	snprintf(stem, sizeof(stem), "step-%06" PRId64, save->step);
	s->temp = temp_dir_name(save->output_dir, stem, id);
	s->final = step_name(save->output_dir, "checkpoint", save->step);
	if (!s->temp || !s->final)
		return ERR_NOMEM;
	return save->world.rank ? 0 : file_make_dir(s->temp);
}

static int begin(struct checkpoint_saving *s, const struct checkpoint_save *save)
{
	const struct plane_range *ranges = save->ranges;
	int64_t count = save->range_count;

	s->save = *save;
	if (!ranges) {
		count = save->model->tensor_count;
		s->whole = mem_alloc((size_t)count, sizeof(*s->whole));
		if (!s->whole)
			return ERR_NOMEM;
		for (int t = 0; t < count; t++)
			s->whole[t] = (struct plane_range){t, 0, save->model->tensors[t].count};
		ranges = s->whole;
	}
	s->file.is_shard = 1;
	s->file.ranges = (struct plane_range *)ranges; /* neither written nor freed */
	s->file.range_count = count;
	return 0;
}

int checkpoint_saving_open(struct checkpoint_saving **out, const struct checkpoint_save *save)
{
	struct checkpoint_saving *s = mem_alloc(1, sizeof(*s));
	int err = agree(save, s ? begin(s, save) : ERR_NOMEM);

	*out = NULL;
	if (!err)
		err = agree(save, save->world.rank ? 0 : prepare(s));
	if (!err)
		err = agree(save, name_directories(s));
	if (err)
		checkpoint_saving_close(s);
	else
		*out = s;
	return err;
}

int checkpoint_saving_write(struct checkpoint_saving *s)
{
	int err = save_write_shard(s);

	if (!err)
		err = write_part(s);
	if (err)
		err_take(&s->err, err);
	return err;
}

int checkpoint_saving_commit(struct checkpoint_saving *s)
{
	const struct checkpoint_save *save = &s->save;
	int err = agree(save, err_give(&s->err));

	if (!err)
		err = agree(save, save->world.rank ? 0 : commit(s));
	if (err) {
		discard(s, err); /* at once, not at close: its room may be what the next save lacks */
		return err;
	}
	s->is_committed = 1;
	if (save->total_limit <= 0)
		return 0;
	if (!save->world.rank)
		err = find_surplus(&s->surplus, &s->surplus_count, save);
	err = agree(save, err);
	return err ? err : agree(save, share(save, &s->surplus_count));
}

int checkpoint_saving_verify(struct checkpoint_saving *s)
{
	int err = s->surplus_count ? manifest_verify_file(s->final, &s->file) : 0;

	if (err)
		err_take(&s->err, err);
	return err;
}

/* Removes a checkpoint that differs when read back, so that no run resumes it. The planes are still in memory
 * for another save. */
static void take_back(const struct checkpoint_saving *s, int err)
{
	struct err kept = {0};

	err_take(&kept, err);
	if (temp_dir_remove(s->final, "step-"))
		log_warn("cannot remove a damaged checkpoint: %s", err_text());
	else
		log_warn("%s was damaged when read back; removing it", s->final);
	err_give(&kept);
}

int checkpoint_saving_rotate(struct checkpoint_saving *s, char **path)
{
	const struct checkpoint_save *save = &s->save;
	int err = s->surplus_count ? agree(save, err_give(&s->err)) : 0;

	if ((err == ERR_INPUT || err == ERR_IO) && !save->world.rank)
		take_back(s, err);
	if (err)
		return err;
	if (!save->world.rank)
		remove_surplus(save, s->surplus, s->surplus_count);
	if (path) {
		*path = s->final;
		s->final = NULL;
	}
	return 0;
}

void checkpoint_saving_close(struct checkpoint_saving *s)
{
	if (!s)
		return;
	discard(s, ERR_IO);
	mem_free(s->temp);
	mem_free(s->final);
	mem_free(s->file.name);
	mem_free(s->file.hashes);
	mem_free(s->whole);
	mem_free(s->surplus);
	mem_free(s);
}

int checkpoint_save(const struct checkpoint_save *save, char **path)
{
	struct checkpoint_saving *s = NULL;
	int err = checkpoint_saving_open(&s, save);

	if (err)
		return err;
	(void)!checkpoint_saving_write(s); /* commit returns its error on all ranks */
	err = checkpoint_saving_commit(s);
	if (!err) {
		(void)!checkpoint_saving_verify(s);
		err = checkpoint_saving_rotate(s, path);
	}
	checkpoint_saving_close(s);
	return err;
}
