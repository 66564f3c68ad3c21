/* links: checkpoint model_families */
/* HuggingFace directories: ferry reads golden models, and Python reads what ferry exports. */
#include "base/mem.h"
#include "base/num.h"
#include "base/str.h"
#include "checkpoint/hf/hf_dir.h"
#include "checkpoint/hf/hf_export.h"
#include "checkpoint/hf/hf_import.h"
#include "model/families/open.h"
#include "tests/check.h"

#include <math.h>
#include <unistd.h>

static char *dir;
static char *golden; /* NULL: absent */

static const char *const names[] = {"llama2", "llama3", "qwen2", "qwen3", "mistral", "gpt2", "gpt_neox"};
enum { NAME_COUNT = sizeof(names) / sizeof(*names) };

static int make_dir(void **state)
{
	const char *shared = getenv("FERRY_SHARED");
	int err = check_dir_make(state);

	dir = *state;
	if (shared)
		golden = file_join(shared, "golden");
	if (golden && file_kind_of(golden) != FILE_DIR) {
		mem_free(golden);
		golden = NULL;
	}
	return err;
}

/* hi and lo of every tensor, as the store would hold them. */
struct planes {
	const struct model *model;
	uint16_t **hi;
	int16_t **lo;
};

static void planes_alloc(struct planes *planes, const struct model *model)
{
	planes->model = model;
	planes->hi = mem_alloc((size_t)model->tensor_count, sizeof(*planes->hi));
	planes->lo = mem_alloc((size_t)model->tensor_count, sizeof(*planes->lo));
	for (int t = 0; t < model->tensor_count; t++) {
		planes->hi[t] = mem_alloc((size_t)model->tensors[t].count, 2);
		planes->lo[t] = mem_alloc((size_t)model->tensors[t].count, 2);
	}
}

static void planes_free(struct planes *planes)
{
	for (int t = 0; t < planes->model->tensor_count; t++) {
		mem_free(planes->hi[t]);
		mem_free(planes->lo[t]);
	}
	mem_free(planes->hi);
	mem_free(planes->lo);
}

static int planes_write(void *context, int t, enum plane plane, int64_t first, int64_t count, const void *src)
{
	struct planes *planes = context;

	assert_true(plane == PLANE_HI || plane == PLANE_LO);
	memcpy(plane == PLANE_HI ? (void *)(planes->hi[t] + first) : (void *)(planes->lo[t] + first), src,
	        (size_t)count * 2);
	return 0;
}

static int planes_read(void *context, int t, enum plane plane, int64_t first, int64_t count, void *dst)
{
	struct planes *planes = context;

	assert_true(plane == PLANE_HI || plane == PLANE_LO);
	memcpy(dst, plane == PLANE_HI ? (void *)(planes->hi[t] + first) : (void *)(planes->lo[t] + first),
	        (size_t)count * 2);
	return 0;
}

static float value_at(const struct planes *planes, int t, int64_t i)
{
	return f32_from_bits(plane_join(planes->hi[t][i], planes->lo[t][i]));
}

static void load(struct planes *planes, struct model **model, const char *from)
{
	struct plane_sink sink = {.context = planes, .write = planes_write};
	struct hf_import *import;

	check_ok(model_open_path(model, from));
	check_ok(hf_import_open(&import, from, *model));
	planes_alloc(planes, *model);
	check_ok(hf_import_load(import, &sink, NULL, 0, NULL));
	hf_import_close(import);
}

static char *checkpoint_of(const char *name)
{
	char *model = file_join(golden, name), *path = file_join(model, "hf");

	mem_free(model);
	return path;
}

/* binary16 by its definition */
static double half_value(uint16_t h)
{
	int exponent = h >> 10 & 31, fraction = h & 1023;
	double value = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);

	return h & 0x8000 ? -value : value;
}

/* Every element of every file, read on another way, is in the planes. */
static void compare_with_files(const struct planes *planes, const char *from)
{
	struct hf_dir *files;
	int seen = 0;

	check_ok(hf_dir_open(&files, from));
	for (int f = 0; f < files->file_count; f++) {
		size_t len;
		char *bytes;

		check_ok(file_read_all(files->files[f]->path, 1 << 24, &bytes, &len));
		for (int64_t i = 0; i < files->files[f]->tensor_count; i++) {
			const struct safetensors_tensor *tensor = &files->files[f]->tensors[i];
			int t = model_find_tensor(planes->model, tensor->name);

			assert_true(t >= 0);
			seen++;
			for (int64_t e = 0; e < tensor->count; e++) {
				int wide = tensor->dtype == SAFETENSORS_F32;
				uint32_t raw = 0;
				double wanted;

				memcpy(&raw, bytes + tensor->begin_bytes + e * (wide ? 4 : 2), wide ? 4 : 2);
				wanted = wide ? (double)f32_from_bits(raw)
				         : tensor->dtype == SAFETENSORS_BF16
				                 ? (double)f32_from_bits(raw << 16)
				                 : half_value((uint16_t)raw);
				assert_true((double)value_at(planes, t, e) == wanted);
			}
		}
		mem_free(bytes);
	}
	assert_int_equal(seen, planes->model->tensor_count);
	hf_dir_close(files);
}

static void golden_models(void **state)
{
	(void)state;
	if (!golden) {
		print_message("SKIPPED golden_models: ../shared absent\n");
		skip();
	}
	for (int n = 0; n < NAME_COUNT; n++) {
		char *from = checkpoint_of(names[n]), *to = file_join(dir, names[n]);

		for (int64_t shard_bytes = 0; shard_bytes <= 50000; shard_bytes += 50000) {
			struct planes planes, back;
			struct side_files side;
			struct plane_source source = {.context = &planes, .read = planes_read};
			struct hf_export options = {.dir = to,
			        .existing = HF_EXPORT_REPLACE,
			        .dtype = SAFETENSORS_F32,
			        .shard_bytes = shard_bytes,
			        .side = &side};
			struct model *model, *again;

			load(&planes, &model, from);
			compare_with_files(&planes, from);
			check_ok(side_files_read(&side, from, NULL));
			check_ok(hf_export_write(&options, model, &source));
			side_files_free(&side);
			load(&back, &again, to);
			assert_int_equal(again->tensor_count, model->tensor_count);
			for (int t = 0; t < model->tensor_count; t++) {
				assert_memory_equal(
				        planes.hi[t], back.hi[t], (size_t)model->tensors[t].count * 2);
				assert_memory_equal(
				        planes.lo[t], back.lo[t], (size_t)model->tensors[t].count * 2);
			}
			planes_free(&planes);
			planes_free(&back);
			model_close(model);
			model_close(again);
		}
		mem_free(from);
		mem_free(to);
	}
}

/* The safetensors library for Python agrees with the exports above. */
static void python_agrees(void **state)
{
	const char *source = getenv("FERRY_SOURCE");
	struct str command = {0};

	(void)state;
	if (!golden) {
		print_message("SKIPPED python_agrees: ../shared absent\n");
		skip();
	}
	if (system("python3 -c 'import safetensors, torch' >/dev/null 2>&1")) {
		print_message("SKIPPED python_agrees: no python3 with safetensors and torch\n");
		skip();
	}
	str_printf(&command, "python3 %s/tests/check_same_weights.py", source ? source : ".");
	for (int n = 0; n < NAME_COUNT; n++) {
		char *from = checkpoint_of(names[n]);

		str_printf(&command, " %s %s/%s", from, dir, names[n]);
		mem_free(from);
	}
	assert_int_equal(system(command.data), 0);
	str_free(&command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(golden_models),
	        cmocka_unit_test(python_agrees),
	};

	return cmocka_run_group_tests_name("checkpoint_golden", tests, make_dir, check_dir_remove);
}
