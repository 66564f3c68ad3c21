/* links: cli */
/* Frozen weights of files with more precision than compute_dtype: memory has them rounded, results exactly.
 *
 * A model in fp32, fp16 and, rounded as the device gets it, in bf16. The runs of all three compute the same.
 * The results have the files' own numbers, where they are not trained. */
#include "tests/run_fixture.h"
#include "tests/sparing.h"

#include "checkpoint/file/safetensors.h"

static struct run_model tiny;

#define RUN                                                                                                  \
	"learning_rate=1e-2 per_device_train_batch_size=2 gradient_accumulation_steps=2 max_steps=4 "        \
	"threads=1 logging_steps=1 lr_scheduler_type=constant overwrite_output_dir=on export_dtype=fp32 "

static const char *const adapters = "lora_rank=3 lora_alpha=6",
                         *const part = "'trainable=.*layers\\.2\\..*|.*q_proj.*'";

/* Writes the weights of work_dir/f32 in fp16. */
static void halve(const char *dir)
{
	static const struct safetensors_text metadata = {"format", "pt"};
	struct safetensors_decl decls[64];
	struct safetensors_writer *writer;
	struct safetensors *file;
	char path[1200];

	snprintf(path, sizeof(path), "cp -r %s/f32 %s/%s && rm %s/%s/*.safetensors", work_dir, work_dir, dir,
	        work_dir, dir);
	assert_int_equal(system(path), 0);
	snprintf(path, sizeof(path), "%s/f32/model.safetensors", work_dir);
	assert_int_equal(safetensors_open(&file, path), 0);
	assert_true(file->tensor_count <= 64);
	for (int64_t i = 0; i < file->tensor_count; i++) {
		const struct safetensors_tensor *t = &file->tensors[i];

		decls[i] =
		        (struct safetensors_decl){.name = t->name, .dtype = SAFETENSORS_F16, .rank = t->rank};
		memcpy(decls[i].shape, t->shape, (size_t)t->rank * sizeof(*t->shape));
	}
	snprintf(path, sizeof(path), "%s/%s/model.safetensors", work_dir, dir);
	assert_int_equal(
	        safetensors_create(&writer, path, decls, file->tensor_count, &metadata, 1, SAFETENSORS_PLAIN),
	        0);
	for (int64_t i = 0; i < file->tensor_count; i++) {
		const struct safetensors_tensor *t = &file->tensors[i];
		float *from = malloc((size_t)t->len_bytes);
		uint16_t *to = malloc((size_t)t->len_bytes / 2);

		assert_int_equal(safetensors_read(file, t, from, 0, t->len_bytes), 0);
		for (int64_t e = 0; e < t->len_bytes / 4; e++)
			to[e] = f16_from_f32(from[e]);
		assert_int_equal(safetensors_append(writer, to, (size_t)t->len_bytes / 2), 0);
		free(from);
		free(to);
	}
	assert_int_equal(safetensors_finish(writer), 0);
	safetensors_writer_free(writer);
	safetensors_close(file);
}

static void train(const char *model, const char *out, const char *more, const char *how)
{
	assert_ferry(0, NULL, "train model=%s/%s data=%s output_dir=%s/%s " RUN "%s %s", work_dir, model,
	        tiny.data, work_dir, out, how, more);
}

static int64_t plan_bytes(const char *model, const char *keys)
{
	int64_t bytes;
	json_t *plan;

	assert_ferry_json(&plan, "plan model=%s/%s device=host vram_budget=off cpu_offload=on %s --json",
	        work_dir, model, keys);
	bytes = json_integer_value(json_object_get(plan, "store_bytes"));
	assert_true(bytes > 0);
	json_decref(plan);
	return bytes;
}

/* Two bytes a frozen parameter from all three; four where fp32 computes and the files have more than bf16. */
static void test_bytes(void **state)
{
	static const char *const models[] = {"f32", "f16", "bf16"};
	const char *const ways[] = {adapters, part};
	char keys[200];

	(void)state;
	for (int w = 0; w < 2; w++) {
		int64_t bf16 = plan_bytes("bf16", ways[w]), wide;

		for (int m = 0; m < 3; m++) {
			assert_int_equal(plan_bytes(models[m], ways[w]), bf16);
			snprintf(keys, sizeof(keys), "compute_dtype=fp32 %s", ways[w]);
			wide = plan_bytes(models[m], keys);
			snprintf(keys, sizeof(keys), "compute_dtype=fp32 init_weights=random %s", ways[w]);
			assert_true(m < 2 ? wide == plan_bytes(models[m], keys)
			                  : wide < plan_bytes(models[m], keys));
		}
	}
	/* random weights are nowhere else */
	snprintf(keys, sizeof(keys), "init_weights=random %s", adapters);
	assert_true(plan_bytes("f16", keys) > plan_bytes("f16", adapters));
}

static void assert_same_numbers(const char *a, const char *b, const char *why)
{
	char *of_a = run_numbers(a), *of_b = run_numbers(b);

	if (strcmp(of_a, of_b))
		fail_msg("%s: other numbers:\n%s\n%s", why, of_a, of_b);
	mem_free(of_a);
	mem_free(of_b);
}

static struct safetensors *weights_of(const char *dir)
{
	struct safetensors *file;
	char path[500];

	snprintf(path, sizeof(path), "%s/%s/model.safetensors", work_dir, dir);
	assert_int_equal(safetensors_open(&file, path), 0);
	return file;
}

/* Counts the tensors with the numbers of the file; both are fp32. */
static int unmoved_count(const char *result, const char *source)
{
	struct safetensors *is = weights_of(result), *was = weights_of(source);
	int count = 0;

	for (int64_t i = 0; i < is->tensor_count; i++) {
		const struct safetensors_tensor *t = &is->tensors[i], *s = safetensors_find(was, t->name);
		char *a = malloc((size_t)t->len_bytes), *b = malloc((size_t)t->len_bytes);

		assert_non_null(s);
		assert_int_equal(t->dtype, SAFETENSORS_F32);
		assert_int_equal(s->len_bytes, t->len_bytes);
		assert_int_equal(safetensors_read(is, t, a, 0, t->len_bytes), 0);
		assert_int_equal(safetensors_read(was, s, b, 0, t->len_bytes), 0);
		count += !memcmp(a, b, (size_t)t->len_bytes);
		free(a);
		free(b);
	}
	safetensors_close(is);
	safetensors_close(was);
	return count;
}

static void assert_same(const char *a, const char *b, const char *why)
{
	char a_path[500], b_path[500];

	snprintf(a_path, sizeof(a_path), "%s/%s", work_dir, a);
	snprintf(b_path, sizeof(b_path), "%s/%s", work_dir, b);
	assert_same_files(a_path, b_path, why);
}

/* The adapters are the same, and merging them adds to the exact weights, as ferry merge does. */
static void test_adapters(void **state)
{
	static const char *const models[] = {"f32", "f16"};

	(void)state;
	train("bf16", "rounded", adapters, "");
	for (int m = 0; m < 2; m++) {
		train(models[m], "exact", adapters, m ? "cpu_offload=off" : "cpu_offload=on vram_budget=off");
		if (!m) { /* fp16 has other weights, rounded otherwise */
			assert_same_numbers("rounded", "exact", models[m]);
			assert_same("rounded/adapter/adapter_model.safetensors",
			        "exact/adapter/adapter_model.safetensors", models[m]);
		}
		remove_run("merged");
		assert_ferry(0, NULL,
		        "merge model=%s/%s lora_adapter=%s/exact/adapter output_dir=%s/merged "
		        "export_dtype=fp32",
		        work_dir, models[m], work_dir, work_dir);
		assert_same("merged/model.safetensors", "exact/model/model.safetensors", models[m]);
		if (!m) /* embedding, head and norms */
			assert_int_equal(unmoved_count("exact/model", "f32"), 2 + 2 * 3 + 1);
	}
	remove_run("exact/config.yaml");
	remove_run("merged");
	assert_ferry(2, NULL, "export checkpoint=%s/exact output_dir=%s/merged", work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "has an adapter without its model; set model"));
}

/* A part of the model trains: the rest comes out as it was. Its checkpoint holds what trains. */
static void test_part(void **state)
{
	struct safetensors *file;

	(void)state;
	train("bf16", "rounded", part, "");
	file = weights_of("f32");
	for (int i = 0; i < 2; i++) {
		train("f32", "exact", part, i ? "state_dict_type=FULL_STATE_DICT" : "cpu_offload=off");
		assert_true(unmoved_count("exact/model", "f32") == file->tensor_count - 9 - 2);
		assert_ferry(0, NULL, "verify %s/exact", work_dir);
		remove_run("exported");
		assert_ferry(
		        0, NULL, "export checkpoint=%s/exact output_dir=%s/exported", work_dir, work_dir);
		assert_same("exported/model.safetensors", "exact/model/model.safetensors", "export");
		if (i)
			assert_same("exact/checkpoint-000004/hf/model.safetensors",
			        "exact/model/model.safetensors", "weights in the checkpoint");
	}
	safetensors_close(file);
}

/* Resumed runs, of one rank and of two that read nothing themselves. */
static void test_resumed(void **state)
{
	const char *const ways[] = {adapters, part};
	const char *const ranks[] = {"", "ranks=2 gradient_accumulation_steps=1 load=rank0_only"};

	(void)state;
	for (int w = 0; w < 2; w++)
		for (int r = 0; r < 2; r += sparing(2)) {
			char more[300];

			snprintf(more, sizeof(more), "save_steps=2 %s", ranks[r]);
			train("f32", "whole", ways[w], more);
			remove_run("rest");
			assert_ferry(0, NULL,
			        "train %s/whole/config.yaml "
			        "resume_from_checkpoint=%s/whole/checkpoint-000002 "
			        "output_dir=%s/rest overwrite_output_dir=off",
			        work_dir, work_dir, work_dir);
			assert_same("whole/model/model.safetensors", "rest/model/model.safetensors", more);
			assert_same("whole/checkpoint-000004/rank-00000.safetensors",
			        "rest/checkpoint-000004/rank-00000.safetensors", more);
			remove_run("exported");
			assert_ferry(0, NULL, "export checkpoint=%s/rest output_dir=%s/exported", work_dir,
			        work_dir);
			assert_same("exported/model.safetensors", "rest/model/model.safetensors", more);
		}
	/* other frozen weights than those that the run began with */
	assert_ferry(2, NULL,
	        "train %s/whole/config.yaml model=%s/f16 resume_from_checkpoint=auto max_steps=5 "
	        "overwrite_output_dir=off",
	        work_dir, work_dir);
	assert_non_null(
	        strstr(ferry_said(), "has other files of weights than the model that the run began with"));
}

/* Without the files of a model, checkpoints keep the frozen weights. */
static void test_random(void **state)
{
	(void)state;
	train("f32", "whole", part, "init_weights=random save_steps=2");
	remove_run("rest");
	assert_ferry(0, NULL,
	        "train %s/whole/config.yaml resume_from_checkpoint=%s/whole/checkpoint-000002 "
	        "output_dir=%s/rest overwrite_output_dir=off",
	        work_dir, work_dir, work_dir);
	assert_same("whole/model/model.safetensors", "rest/model/model.safetensors", "random");
	remove_run("exported");
	assert_ferry(0, NULL, "export checkpoint=%s/rest output_dir=%s/exported", work_dir, work_dir);
	assert_same("exported/model.safetensors", "rest/model/model.safetensors", "random");
}

int main(void)
{
	static const char *const dtypes[][2] = {{"f32", "fp32"}, {"bf16", "bf16"}};
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_bytes),
	        cmocka_unit_test(test_adapters),
	        cmocka_unit_test(test_part),
	        cmocka_unit_test(test_resumed),
	        cmocka_unit_test(test_random),
	};
	int failed;

	ferry_run_begin("frozen");
	tiny_model(&tiny);
	for (int i = 0; i < 2; i++)
		assert_ferry(0, NULL, "init config=%s/tiny.json output_dir=%s/%s seed=1 export_dtype=%s",
		        work_dir, work_dir, dtypes[i][0], dtypes[i][1]);
	halve("f16");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
