/* Makes HuggingFace directories of all kinds for a test, and checks that ferry loads or refuses them. */
#ifndef FERRY_TESTS_CHECKPOINT_HF_RIG_H
#define FERRY_TESTS_CHECKPOINT_HF_RIG_H

#include "tests/checkpoint_fixture.h"

#include "base/log.h"
#include "base/str.h"
#include "checkpoint/hf/hf_import.h"

#include <math.h>

static char *dir;
static char last_warning[2048];

static void keep_warning(void *context, enum log_level level, const char *line)
{
	(void)context;
	if (level == LOG_WARN)
		snprintf(last_warning, sizeof(last_warning), "%s", line);
}

static int make_dir(void **state)
{
	int err = fixture_dir_make(state);

	dir = *state;
	log_set_sink(keep_warning, NULL);
	return err;
}

/* A tensor of a file: `name` has the values of the fixture's tensor `tensor`, times `scale`. */
struct given {
	const char *name;
	int tensor;
	enum safetensors_dtype dtype;
	float scale;
};

/* A value that is exact in every dtype. */
static float given_value(int tensor, int64_t index)
{
	return (float)((index * 7 + tensor * 3) % 61 - 30) * 0.125f;
}

static void put_shard(const char *in, const char *file, const struct given *given, int count)
{
	struct safetensors_decl decls[8] = {0};
	struct safetensors_writer *writer;
	char *path = file_join(in, file);

	for (int g = 0; g < count; g++) {
		const struct model_tensor *tensor = &fixture_tensors[given[g].tensor];

		decls[g] = (struct safetensors_decl){
		        given[g].name, given[g].dtype, tensor->rank, {tensor->shape[0], tensor->shape[1]}};
	}
	check_ok(file_remove_tree(path));
	check_ok(safetensors_create(&writer, path, decls, count, NULL, 0, SAFETENSORS_PLAIN));
	for (int g = 0; g < count; g++) {
		for (int64_t i = 0; i < fixture_tensors[given[g].tensor].count; i++) {
			float value = given_value(given[g].tensor, i) * given[g].scale;
			uint16_t half = given[g].dtype == SAFETENSORS_BF16 ? bf16_from_f32(value)
			                                                   : f16_from_f32(value);
			int64_t wide = (int64_t)value;

			if (given[g].dtype == SAFETENSORS_F32)
				check_ok(safetensors_append(writer, &value, 4));
			else if (safetensors_dtype_bits(given[g].dtype) == 16)
				check_ok(safetensors_append(writer, &half, 2));
			else
				check_ok(safetensors_append(
				        writer, &wide, (size_t)safetensors_dtype_bits(given[g].dtype) / 8));
		}
	}
	check_ok(safetensors_finish(writer));
	safetensors_writer_free(writer);
	mem_free(path);
}

/* Writes {"weight_map": {name: file, ...}} from pairs. */
static void put_index(const char *in, const char *const (*pairs)[2], int count)
{
	struct str text = {0};

	str_add(&text, "{\"weight_map\":{");
	for (int i = 0; i < count; i++)
		str_printf(&text, "%s\"%s\":\"%s\"", i ? "," : "", pairs[i][0], pairs[i][1]);
	str_add(&text, "}}");
	fixture_put(in, "model.safetensors.index.json", text.data);
	str_free(&text);
}

static const struct given all[FIXTURE_TENSORS] = {
        {"model.embed.weight", 0, SAFETENSORS_BF16, 1},
        {"model.blocks.0.q.weight", 1, SAFETENSORS_F16, 1},
        {"model.blocks.0.q.bias", 2, SAFETENSORS_F32, 1},
        {"model.norm.weight", 3, SAFETENSORS_F16, 1},
        {"lm_head.weight", 4, SAFETENSORS_BF16, 1},
};

static void check_loads(const char *from, struct model *model)
{
	struct fixture_planes planes = {.model = model};
	struct plane_sink sink = fixture_sink(&planes);
	struct hf_import *import;

	check_ok(hf_import_open(&import, from, model));
	check_ok(hf_import_load(import, &sink, NULL, 0, NULL));
	hf_import_close(import);
	for (int t = 0; t < model->tensor_count; t++) {
		for (int64_t i = 0; i < model->tensors[t].count; i++) {
			uint32_t bits = plane_join((uint16_t)planes.value[PLANE_HI][t][i],
			        (int16_t)planes.value[PLANE_LO][t][i]);

			if (!(f32_from_bits(bits) == given_value(t, i))) {
				print_error("tensor %d, element %" PRId64 ": %g\n", t, i,
				        (double)f32_from_bits(bits));
				fail();
			}
		}
	}
}

static void refuses(const char *from, int tied, int code, const char *part)
{
	struct model model = fixture_model(tied);
	struct hf_import *import = (void *)1;

	check_fails(hf_import_open(&import, from, &model), code, part);
	assert_null(import);
}

#endif
