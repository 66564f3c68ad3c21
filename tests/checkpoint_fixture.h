/* Fixture for tests of checkpoints: a model of five tensors, and planes in memory.
 *
 * No family of model/ knows this model: the fixture defines the functions of model/ that checkpoint/ calls.
 * *Planes* are the arrays of a tensor's master weights and optimizer moments. Their content is a function of
 * a number.
 */
#ifndef FERRY_TESTS_CHECKPOINT_FIXTURE_H
#define FERRY_TESTS_CHECKPOINT_FIXTURE_H

#include "base/mem.h"
#include "base/num.h"
#include "checkpoint/load.h"
#include "checkpoint/save.h"
#include "model/adapter.h"
#include "model/families/open.h"
#include "model/families/text_part.h"
#include "model/model.h"
#include "tests/check.h"
#include "tests/plane_element.h"

#include <inttypes.h>
#include <unistd.h>

enum { FIXTURE_TENSORS = 5, FIXTURE_ALL_PLANES = PLANES_WEIGHT | PLANES_MOMENT };

static struct model_tensor fixture_tensors[FIXTURE_TENSORS] = {
        {.name = "model.embed.weight",
                .role = ROLE_EMBED,
                .layer = -1,
                .rank = 2,
                .shape = {13, 5},
                .count = 65,
                .trainable = 1},
        {.name = "model.blocks.0.q.weight",
                .role = ROLE_Q_W,
                .rank = 2,
                .shape = {5, 5},
                .count = 25,
                .trainable = 1},
        {.name = "model.blocks.0.q.bias",
                .role = ROLE_Q_B,
                .rank = 1,
                .shape = {5, 1},
                .count = 5,
                .trainable = 1},
        {.name = "model.norm.weight",
                .role = ROLE_FINAL_NORM_W,
                .layer = -1,
                .rank = 1,
                .shape = {5, 1},
                .count = 5,
                .trainable = 1},
        {.name = "lm_head.weight",
                .role = ROLE_HEAD_W,
                .layer = -1,
                .rank = 2,
                .shape = {13, 5},
                .count = 65,
                .trainable = 1},
};

/* A tied model has four tensors, without the head. */
static inline struct model fixture_model(int tied)
{
	struct model model = {.config = {.model_type = "fixture", .tied = tied},
	        .tensors = fixture_tensors,
	        .tensor_count = tied ? FIXTURE_TENSORS - 1 : FIXTURE_TENSORS};

	for (int t = 0; t < model.tensor_count; t++)
		model.parameter_count += fixture_tensors[t].count;
	return model;
}

int model_find_tensor(const struct model *model, const char *name)
{
	if (strstr(name, "inv_freq"))
		return MODEL_NAME_BUFFER;
	for (int t = 0; t < FIXTURE_TENSORS; t++) {
		const char *full = fixture_tensors[t].name, *bare = full + (t < 4 ? 6 : 0);

		if (!strcmp(name, full) || !strcmp(name, bare))
			return t < model->tensor_count ? t : MODEL_NAME_BUFFER;
	}
	return MODEL_NAME_UNKNOWN;
}

const char *model_text_name(const char *name)
{
	return name;
}

/* It reads no images. */
int text_part_config(json_t **text, const char **whole, const json_t *config, const char *where)
{
	(void)where;
	*text = json_incref((json_t *)config);
	*whole = NULL;
	return 0;
}

int families_have_head(const char *name)
{
	return !strcmp(name, "lm_head.weight");
}

int model_tensor_of(const struct model *model, enum tensor_role role, int layer)
{
	(void)layer;
	for (int t = 0; t < model->tensor_count; t++) {
		if (model->tensors[t].role == role)
			return t;
	}
	return -1;
}

int model_untie(struct model *model)
{
	model->config.tied = 0;
	model->parameter_count += fixture_tensors[model->tensor_count++].count;
	return 0;
}

/* It has no experts. */
int model_first_experts(const struct model *model)
{
	(void)model;
	return -1;
}

int model_fit_experts(struct model *model, const char *name, int rank, const int64_t *shape)
{
	(void)model, (void)name, (void)rank, (void)shape;
	return 0;
}

/* It has no adapters. */
int model_tensor_is_adapter(const struct model_tensor *tensor)
{
	(void)tensor;
	return 0;
}

int model_adapter_of(const struct model *model, int tensor)
{
	(void)model;
	(void)tensor;
	return -1;
}

int model_matrix_is_turned(const struct model *model, const struct model_tensor *matrix)
{
	(void)model;
	(void)matrix;
	return 0;
}

int model_base_open(struct model **base, const struct model *model)
{
	(void)model;
	*base = NULL;
	return ERR_UNSUPPORTED;
}

void model_base_close(struct model *base)
{
	(void)base;
}

/* ---- planes in memory ---- */

struct fixture_planes {
	const struct model *model;
	uint32_t value[PLANE_COUNT][FIXTURE_TENSORS][128]; /* hi and lo use 16 bits */
};

/* Bits of an element after `number` steps: finite, and different for all arguments. */
static inline uint32_t fixture_value(int64_t number, enum plane plane, int tensor, int64_t index)
{
	uint64_t bits = rng_u64((uint64_t)number, (uint64_t)(plane * 16 + tensor), (uint64_t)index);

	if (plane == PLANE_HI)
		return (uint32_t)(bits & 0xbf7f); /* never inf or NaN: the exponent is not all ones */
	return plane == PLANE_LO ? (uint32_t)(bits & 0xffff) : (uint32_t)bits;
}

static inline void fixture_fill(struct fixture_planes *planes, const struct model *model, int64_t number)
{
	planes->model = model;
	for (int p = 0; p <= PLANE_V; p++) {
		for (int t = 0; t < model->tensor_count; t++) {
			for (int64_t i = 0; i < model->tensors[t].count; i++)
				planes->value[p][t][i] = fixture_value(number, (enum plane)p, t, i);
		}
	}
}

/* The number of elements that differ from those of `number`. */
static inline int64_t fixture_differ(const struct fixture_planes *planes, int64_t number)
{
	int64_t differ = 0;

	for (int p = 0; p <= PLANE_V; p++) {
		for (int t = 0; t < planes->model->tensor_count; t++) {
			for (int64_t i = 0; i < planes->model->tensors[t].count; i++)
				differ +=
				        planes->value[p][t][i] != fixture_value(number, (enum plane)p, t, i);
		}
	}
	return differ;
}

static inline int fixture_read(
        void *context, int tensor, enum plane plane, int64_t first, int64_t count, void *dst)
{
	struct fixture_planes *planes = context;

	assert_true(first >= 0 && count > 0 && first + count <= planes->model->tensors[tensor].count);
	for (int64_t i = 0; i < count; i++)
		element_put(
		        dst, plane_width(plane, ADAMW_STATE_F32), i, planes->value[plane][tensor][first + i]);
	return 0;
}

static inline int fixture_write(
        void *context, int tensor, enum plane plane, int64_t first, int64_t count, const void *src)
{
	struct fixture_planes *planes = context;

	assert_true(first >= 0 && count > 0 && first + count <= planes->model->tensors[tensor].count);
	for (int64_t i = 0; i < count; i++)
		planes->value[plane][tensor][first + i] =
		        element_at(src, plane_width(plane, ADAMW_STATE_F32), i);
	return 0;
}

static inline struct plane_source fixture_source(struct fixture_planes *planes)
{
	return (struct plane_source){.context = planes, .read = fixture_read};
}

static inline struct plane_sink fixture_sink(struct fixture_planes *planes)
{
	return (struct plane_sink){.context = planes, .write = fixture_write};
}

/* Saves the planes of `step` as a single rank, with {"number": step} as training state. */
static inline int fixture_save(const char *output_dir, const char *files_from, int64_t step, int total_limit)
{
	struct model model = fixture_model(0);
	struct fixture_planes planes;
	struct plane_source source = fixture_source(&planes);
	json_t *training = json_pack("{s:I}", "number", (json_int_t)step);
	struct side_files side = {0};
	struct checkpoint_save save = {.output_dir = output_dir,
	        .step = step,
	        .model = &model,
	        .source = &source,
	        .planes = FIXTURE_ALL_PLANES,
	        .training = training,
	        .side = files_from ? &side : NULL,
	        .total_limit = total_limit,
	        .world = {.size = 1}};
	int err = training ? 0 : ERR_NOMEM;

	if (!err && files_from)
		err = side_files_read(&side, files_from, NULL);
	fixture_fill(&planes, &model, step);
	if (!err)
		err = checkpoint_save(&save, NULL);
	json_decref(training);
	side_files_free(&side);
	return err;
}

/* *step of the newest checkpoint, after a check that its content is complete and of this step; 0 = none. */
static inline int fixture_load_newest(int64_t *step, const char *output_dir)
{
	struct model model = fixture_model(0);
	struct fixture_planes planes = {.model = &model};
	struct plane_sink sink = fixture_sink(&planes);
	struct checkpoint *checkpoint = NULL;
	char *path = NULL;
	int err = checkpoint_find_newest(&path, output_dir, INT64_MAX);

	*step = 0;
	if (err || !path)
		return err;
	err = checkpoint_open(&checkpoint, path);
	if (!err)
		err = checkpoint_match(checkpoint, &model);
	if (!err)
		err = checkpoint_load(checkpoint, &sink, NULL, 0, NULL);
	if (!err) {
		const struct manifest *manifest = checkpoint_manifest(checkpoint);

		*step = manifest->step;
		if (fixture_differ(&planes, *step) ||
		        json_integer_value(json_object_get(manifest->training, "number")) != *step)
			err = err_set(ERR_INTERNAL, "%s: loads, with the wrong content", path);
	}
	checkpoint_close(checkpoint);
	mem_free(path);
	return err;
}

static inline void fixture_put(const char *dir, const char *name, const char *text)
{
	char *path = file_join(dir, name);

	check_ok(file_write_all(path, text, strlen(text)));
	mem_free(path);
}

/* A directory with the files of a model, without its weights. */
static inline char *fixture_model_files(const char *dir)
{
	char *path = file_join(dir, "base-model");

	check_ok(file_make_dir(path));
	fixture_put(path, "config.json", "{\"model_type\": \"fixture\"}\n");
	fixture_put(path, "tokenizer.json", "{\"version\": \"1.0\"}");
	fixture_put(path, "README.md", "not copied");
	return path;
}

/* Uses memory (/dev/shm) if possible: faster than a disk, and these tests do not check fsync. */
static inline int fixture_dir_make(void **state)
{
	if (!getenv("TMPDIR") && !access("/dev/shm", W_OK))
		setenv("TMPDIR", "/dev/shm", 1);
	return check_dir_make(state);
}

/* A new empty directory below `dir`. */
static inline char *fixture_sub_dir(const char *dir, const char *name)
{
	char *path = file_join(dir, name);

	check_ok(file_remove_tree(path));
	check_ok(file_make_dir(path));
	return path;
}

static inline int fixture_open_files(void)
{
	char **names = NULL;
	size_t count = 0;

	check_ok(file_list_dir("/proc/self/fd", &names, &count));
	file_list_free(names, count);
	return (int)count;
}

static inline int fixture_names_with(const char *dir, const char *part)
{
	char **names = NULL;
	size_t count = 0;
	int found = 0;

	check_ok(file_list_dir(dir, &names, &count));
	for (size_t i = 0; i < count; i++)
		found += !!strstr(names[i], part);
	file_list_free(names, count);
	return found;
}

#endif
