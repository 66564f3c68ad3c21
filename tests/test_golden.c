/* links: cli */
/* not: asan */
/* Sums of whole models: the operations, test_model_stages and test_checkpoint_hf run there. */
/* The program on every golden model, command by command, against PyTorch in fp64 on the same files. With
 * FERRY_TEST_DEVICE=cuda it runs on the GPU. Tolerances are those of the golden data's README. */
#include "tests/golden_reference.h"
#include "tests/sparing.h"

#include <dirent.h>

static const char *golden;
static const char *own;    /* the project's models in the same format: tests/golden/models */
static const char *device; /* FERRY_TEST_DEVICE, or host */
static const char *only;   /* FERRY_TEST_MODELS: names in commas; NULL: all */

/* One model of the golden data. */
struct reference {
	char dir[600], hf[620];
	json_t *json;
	struct safetensors *tensors;
};

static void reference_open(struct reference *r, const char *dir)
{
	char path[700];

	snprintf(r->dir, sizeof(r->dir), "%s", dir);
	snprintf(r->hf, sizeof(r->hf), "%s/hf", r->dir);
	snprintf(path, sizeof(path), "%s/ref.json", r->dir);
	assert_int_equal(json_read_file(&r->json, path, 1 << 26), 0);
	snprintf(path, sizeof(path), "%s/ref.safetensors", r->dir);
	assert_int_equal(safetensors_open(&r->tensors, path), 0);
}

static void reference_close(struct reference *r)
{
	json_decref(r->json);
	safetensors_close(r->tensors);
}

/* Models of the golden data that eval refuses: one is not supported, an encoder has no losses of tokens. */
static const char *const later[] = {"bert"};
static const char *const says[] = {"encoder (bert)"};

/* Models of its folder modern/ that are supported. */
static const char *const modern[] = {"modern/deepseek_v2", "modern/gemma4", "modern/gemma4_e",
        "modern/gemma4_moe", "modern/gemma4_unified", "modern/glm4_moe", "modern/granitemoehybrid",
        "modern/lfm2", "modern/muse_glimmer", "modern/nemotron_h", "modern/olmoe", "modern/qwen2_moe",
        "modern/qwen3_5", "modern/qwen3_5_moe", "modern/qwen3_5_vl", "modern/qwen3_next"};

static int is_supported(const char *name)
{
	if (!strncmp(name, "modern/", 7)) {
		for (size_t i = 0; i < sizeof(modern) / sizeof(*modern); i++)
			if (!strcmp(modern[i], name))
				return 1;
		return 0;
	}
	for (size_t i = 0; i < sizeof(later) / sizeof(*later); i++)
		if (!strcmp(later[i], name))
			return 0;
	return 1;
}

static int is_asked_for(const char *name)
{
	size_t len = strlen(name);

	if (!only)
		return 1;
	for (const char *at = only; (at = strstr(at, name)); at += len)
		if ((at == only || at[-1] == ',') && (!at[len] || at[len] == ','))
			return 1;
	return 0;
}

/* Each supported model of the directory, and of more/ and modern/ in it. */
typedef void model_test(const struct reference *r);
static int models_in(const char *base, const char *folder, model_test *test)
{
	char path[1600], name[512];
	struct dirent **names;
	int count, found = 0;

	snprintf(path, sizeof(path), "%s/%s", base, folder);
	count = scandir(path, &names, NULL, alphasort);
	assert_true(count > 0);
	for (int i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "%s%s", folder, names[i]->d_name);
		snprintf(path, sizeof(path), "%s/%s/ref.json", base, name);
		if (file_kind_of(path) == FILE_REGULAR && is_asked_for(names[i]->d_name) &&
		        is_supported(name) && found++ % sparing(3) == 0) {
			struct reference r = {0};

			snprintf(path, sizeof(path), "%s/%s", base, name);
			reference_open(&r, path);
			golden_begin(name);
			test(&r);
			reference_close(&r);
		}
		free(names[i]);
	}
	free(names);
	return found;
}

/* Without the golden data, the project's own models. */
static void each_model(model_test *test)
{
	static const char *const folders[] = {"", "more/", "modern/"};
	int found = models_in(own, "", test);

	for (int i = 0; golden && i < 3; i++)
		found += models_in(golden, folders[i], test);
	assert_true(found >= (only || !golden ? 1 : 8));
}

/* ---- eval ---- */

static void eval_one(const struct reference *r, const char *rows, const char *extra)
{
	const json_t *want = json_object_get(json_object_get(r->json, rows), "float64");
	json_t *got, *losses;

	assert_ferry_json(&got,
	        "eval model=%s data=%s/%s.jsonl compute_dtype=fp32 device=%s per_token=on --json %s", r->hf,
	        r->dir, rows, device, extra);
	assert_relative(number(got, "loss"), number(want, "loss_mean"), 1e-6, rows);
	losses = json_object_get(want, "row0_token_losses");
	if (losses)
		assert_token_losses(got, losses, r->dir);
	json_decref(got);
}

static void eval_model(const struct reference *r)
{
	eval_one(r, "eval", "");
	eval_one(r, "eval", "per_device_eval_batch_size=3");
	eval_one(r, "single", "");
	eval_one(r, "packed", "");
	eval_one(r, "packed", "packing=bfd max_length=128");
}

static void test_eval(void **state)
{
	(void)state;
	golden_now.part = "eval";
	each_model(eval_model);
}

/* ---- gradients ---- */

static int is_without_gradient(const struct reference *r, const char *name, int64_t i)
{
	const json_t *ranges = json_object_get(json_object_get(r->json, "without_gradient"), name);

	for (size_t k = 0; k < json_array_size(ranges); k++) {
		const json_t *range = json_array_get(ranges, k);

		if (i >= json_integer_value(json_array_get(range, 0)) &&
		        i < json_integer_value(json_array_get(range, 1)))
			return 1;
	}
	return 0;
}

/* Whether ferry keeps the rows in another order and in several tensors. The traces compare their weights. */
static int is_woven(const char *name)
{
	return str_ends_with(name, "linear_attn.in_proj_qkvz.weight") ||
	       str_ends_with(name, "linear_attn.in_proj_ba.weight");
}

/* The model's dumped gradients against `grad.NAME` of the reference (fp32 run), per tensor in relative L2. */
static void gradients_compare(const struct reference *r, const char *path)
{
	double global = number(json_object_get(json_object_get(r->json, "eval"), "float64"), "grad_norm");
	struct safetensors *file;
	int64_t total = 0;
	const char *name;
	json_t *entry;

	assert_int_equal(safetensors_open(&file, path), 0);
	json_object_foreach(json_object_get(r->json, "gradients"), name, entry)
	{
		char full[512];
		int64_t count, got_count;
		double error = 0, norm = 0, *want, *got;

		snprintf(full, sizeof(full), "grad.%s", name);
		want = tensor_read(r->tensors, full, &count);
		total += count;
		if (is_woven(name)) {
			free(want);
			continue;
		}
		got_count = count;
		got = tensor_read_in(file, name, &got_count);
		assert_int_equal(count, got_count);
		for (int64_t i = 0; i < count; i++) {
			norm += want[i] * want[i];
			if (!is_without_gradient(r, name, i))
				error += (got[i] - want[i]) * (got[i] - want[i]);
		}
		norm = fmax(sqrt(norm), 0.01 * global);
		assert_error("gradient", sqrt(error) / norm, 2e-5, name);
		free(want);
		free(got);
	}
	for (int i = 0; i < file->tensor_count; i++)
		total -= file->tensors[i].count;
	assert_int_equal(total, 0);
	safetensors_close(file);
}

static void gradient_model(const struct reference *r)
{
	char path[300];

	for (int batch = 1; batch <= 3; batch += 2) {
		snprintf(path, sizeof(path), "%s/grad-%d.safetensors", work_dir, batch);
		assert_ferry(0, NULL,
		        "train model=%s data=%s/eval.jsonl output_dir=%s/grad compute_dtype=fp32 device=%s "
		        "learning_rate=0 "
		        "max_steps=1 shuffle=off per_device_train_batch_size=%d "
		        "gradient_accumulation_steps=%d dump_gradients=%s "
		        "overwrite_output_dir=on vram_budget=off",
		        r->hf, r->dir, work_dir, device, batch, 4 / batch, path);
		gradients_compare(r, path);
		remove(path);
	}
}

static void test_gradients(void **state)
{
	(void)state;
	golden_now.part = "gradients";
	each_model(gradient_model);
}

/* ---- training ---- */

#define TRACE_SETTINGS                                                                                       \
	"device=%s shuffle=off per_device_train_batch_size=2 gradient_accumulation_steps=2 max_steps=20 "    \
	"learning_rate=1e-3 lr_scheduler_type=cosine_with_min_lr warmup_steps=4 min_lr_rate=0.1 "            \
	"adam_beta1=0.9 "                                                                                    \
	"adam_beta2=0.95 adam_epsilon=1e-8 weight_decay=%g max_grad_norm=1.0 overwrite_output_dir=on "       \
	"vram_budget=off"

static double decay_of(const struct reference *r)
{
	return number(json_object_get(json_object_get(r->json, "trace"), "settings"), "weight_decay");
}

/* metrics.jsonl beside the lists `loss` and `grad_norm` of a trace. */
static void metrics_compare(
        const struct reference *r, const json_t *want, double loss_bound, double norm_bound)
{
	const json_t *rates = json_object_get(json_object_get(r->json, "trace"), "lr");
	json_t *rows = rows_with("loss");

	assert_int_equal(json_array_size(rows), 20);
	for (size_t i = 0; i < 20; i++) {
		const json_t *row = json_array_get(rows, i);

		assert_int_equal(number(row, "step"), i + 1);
		assert_relative(
		        number(row, "loss"), number_at(json_object_get(want, "loss"), i), loss_bound, "loss");
		assert_relative(number(row, "grad_norm"), number_at(json_object_get(want, "grad_norm"), i),
		        norm_bound, "grad_norm");
		assert_true(fabs(number(row, "learning_rate") - number_at(rates, i)) <= 1e-12);
	}
	json_decref(rows);
}

/* output_dir/model beside the final weights of the fp32 reference: error relative to how far the tensor
 * moved. */
static void weights_compare(const struct reference *r)
{
	const json_t *moves =
	        json_object_get(json_object_get(json_object_get(r->json, "trace"), "a"), "final_weights");
	struct safetensors *file;
	char path[300];
	const char *name;
	json_t *move;

	snprintf(path, sizeof(path), "%s/run/model/model.safetensors", work_dir);
	assert_int_equal(safetensors_open(&file, path), 0);
	json_object_foreach(
	        json_object_get(json_object_get(json_object_get(r->json, "trace"), "a"), "final_weights"),
	        name, move)
	{
		double bound = fmax(10 * number(move, "error_to_moved_float32"), 2e-3), error = 0, *want,
		       *got;
		char full[512];
		int64_t count, got_count;

		snprintf(full, sizeof(full), "final.%s", name);
		want = tensor_read(r->tensors, full, &count);
		got = tensor_read(file, name_in(file, name), &got_count);
		assert_int_equal(count, got_count);
		for (int64_t i = 0; i < count; i++)
			if (!is_without_gradient(r, name, i))
				error += (got[i] - want[i]) * (got[i] - want[i]);
		assert_error("weights at the end", sqrt(error) / number(move, "moved_l2"), bound, name);
		free(want);
		free(got);
	}
	assert_int_equal((int64_t)json_object_size(moves) + untrained_are_kept(r->hf, file, moves),
	        file->tensor_count);
	safetensors_close(file);
}

static void trace_a_model(const struct reference *r)
{
	const json_t *a = json_object_get(json_object_get(r->json, "trace"), "a");

	assert_ferry(0, NULL,
	        "train model=%s data=%s/train.jsonl output_dir=%s/run compute_dtype=fp32 " TRACE_SETTINGS,
	        r->hf, r->dir, work_dir, device, decay_of(r));
	metrics_compare(r, json_object_get(a, "float64"), 1e-5, 1e-5);
	weights_compare(r);
}

/* Largest relative distance of a column of metrics.jsonl, or of another trace, from the fp64 trace. */
static double distance(const json_t *values, const json_t *truth, const char *key)
{
	const json_t *a = json_object_get(truth, key), *b = json_object_get(values, key);
	double most = 0;

	assert_int_equal(json_array_size(a), json_array_size(b));
	for (size_t i = 0; i < json_array_size(a); i++) {
		double want = number_at(a, i), got = number_at(b, i);

		assert_true(isfinite(got));
		most = fmax(most, fabs(got - want) / fabs(want));
	}
	return most;
}

static json_t *metrics_columns(void)
{
	json_t *columns = json_pack("{s:[],s:[]}", "loss", "grad_norm"), *rows = rows_with("loss");

	for (size_t i = 0; i < json_array_size(rows); i++) {
		const json_t *row = json_array_get(rows, i);

		json_array_append(json_object_get(columns, "loss"), json_object_get(row, "loss"));
		json_array_append(json_object_get(columns, "grad_norm"), json_object_get(row, "grad_norm"));
	}
	json_decref(rows);
	return columns;
}

/* Two bf16 programs differ from each other and from the truth; ours must not be farther from fp64 than
 * PyTorch's own two bf16 paths are, with room for the luck of 20 steps. */
static void trace_b_model(const struct reference *r)
{
	static const struct {
		const char *key;
		double room;
	} columns[] = {{"loss", 1.5}, {"grad_norm", 2}};
	const json_t *trace = json_object_get(r->json, "trace");
	const json_t *truth = json_object_get(json_object_get(trace, "a"), "float64"),
	             *b = json_object_get(trace, "b");
	json_t *ours;

	assert_ferry(0, NULL,
	        "train model=%s data=%s/train.jsonl output_dir=%s/run compute_dtype=bf16 " TRACE_SETTINGS,
	        r->hf, r->dir, work_dir, device, decay_of(r));
	/* torch's bf16 is farther from the truth in some later families, and gpt-oss spreads more */
	metrics_compare(r, json_object_get(b, "bfloat16"), strstr(r->dir, "gpt_oss") ? 6e-3 : 5e-3,
	        strstr(r->dir, "/modern/")  ? 0.2
	        : strstr(r->dir, "gpt_oss") ? 6e-2
	                                    : 5e-2);
	ours = metrics_columns();
	for (size_t i = 0; i < 2; i++) {
		double torch = fmax(distance(json_object_get(b, "bfloat16"), truth, columns[i].key),
		        distance(json_object_get(b, "autocast"), truth, columns[i].key));
		double got = distance(ours, truth, columns[i].key);

		assert_error(i ? "grad_norm from fp64" : "loss from fp64", got, columns[i].room * torch,
		        columns[i].key);
	}
	json_decref(ours);
}

static void test_trace_a(void **state)
{
	(void)state;
	golden_now.part = "steps in fp32";
	each_model(trace_a_model);
}

static void test_trace_b(void **state)
{
	(void)state;
	golden_now.part = "steps in bf16";
	each_model(trace_b_model);
}

/* ---- generate ---- */

static void generate_model(const struct reference *r)
{
	const json_t *want = json_object_get(r->json, "generate");
	json_t *prompt = json_object_get(want, "prompt"), *got;
	char *ids = json_dumps(prompt, JSON_COMPACT);

	assert_ferry_json(&got,
	        "generate model=%s prompt_ids='%s' max_new_tokens=%zu temperature=0 compute_dtype=fp32 "
	        "device=%s --json",
	        r->hf, ids, json_array_size(json_object_get(want, "new_tokens")), device);
	assert_true(json_equal(json_object_get(got, "prompt_ids"), prompt));
	assert_error("ids", !json_equal(json_object_get(got, "ids"), json_object_get(want, "new_tokens")), 0,
	        json_dumps(json_object_get(got, "ids"), JSON_COMPACT));
	json_decref(got);
	free(ids);
}

static void test_generate(void **state)
{
	(void)state;
	golden_now.part = "text";
	each_model(generate_model);
}

/* ---- adapters ---- */

static void adapter_gradients_compare(const struct reference *r, const char *path)
{
	static const char prefix[] = "base_model.model.";
	double global = number(json_object_get(r->json, "float64"), "grad_norm");
	struct safetensors *file;
	const char *name;
	json_t *entry;

	assert_int_equal(safetensors_open(&file, path), 0);
	json_object_foreach(json_object_get(r->json, "gradients"), name, entry)
	{
		char full[512];
		int64_t count, got_count;
		double *want, *got;

		snprintf(full, sizeof(full), "grad.%s", name);
		want = tensor_read(r->tensors, full, &count);
		got_count = count;
		got = tensor_read_in(file, name + strlen(prefix), &got_count);
		assert_int_equal(count, got_count);
		assert_error("gradient",
		        norm_of_difference(got, want, count) /
		                fmax(norm_of_difference(want, NULL, count), 0.01 * global),
		        2e-5, name);
		free(want);
		free(got);
	}
	assert_int_equal(
	        (int64_t)json_object_size(json_object_get(r->json, "gradients")), file->tensor_count);
	safetensors_close(file);
}

/* The adapter beside a model, if it has one. */
static void lora_model(const struct reference *base)
{
	const json_t *want;
	char path[700];
	struct reference r;
	json_t *got, *rows;

	snprintf(path, sizeof(path), "%s/lora/ref.json", base->dir);
	if (file_kind_of(path) != FILE_REGULAR)
		return;
	snprintf(path, sizeof(path), "%s/lora", base->dir);
	reference_open(&r, path);
	assert_ferry_json(&got,
	        "eval model=%s lora_adapter=%s data=%s/eval.jsonl compute_dtype=fp32 device=%s --json",
	        base->hf, r.dir, base->dir, device);
	assert_relative(
	        number(got, "loss"), number(json_object_get(r.json, "float64"), "loss_mean"), 1e-6, "lora");
	json_decref(got);
	snprintf(path, sizeof(path), "%s/grad.safetensors", work_dir);
	assert_ferry(0, NULL,
	        "train model=%s lora_adapter=%s data=%s/eval.jsonl output_dir=%s/grad compute_dtype=fp32 "
	        "device=%s "
	        "learning_rate=0 max_steps=1 shuffle=off per_device_train_batch_size=3 dump_gradients=%s "
	        "overwrite_output_dir=on vram_budget=off",
	        base->hf, r.dir, base->dir, work_dir, device, path);
	adapter_gradients_compare(&r, path);
	remove(path);
	assert_ferry(0, NULL,
	        "train model=%s lora_adapter=%s data=%s/train.jsonl output_dir=%s/run compute_dtype=fp32 "
	        "device=%s shuffle=off per_device_train_batch_size=2 gradient_accumulation_steps=2 "
	        "max_steps=10 "
	        "learning_rate=5e-3 lr_scheduler_type=constant adam_beta1=0.9 adam_beta2=0.95 "
	        "adam_epsilon=1e-8 "
	        "weight_decay=0.1 max_grad_norm=1.0 overwrite_output_dir=on logging_steps=1 vram_budget=off",
	        base->hf, r.dir, base->dir, work_dir, device);
	want = json_object_get(json_object_get(r.json, "trace"), "float64");
	rows = rows_with("loss");
	assert_int_equal(json_array_size(rows), 10);
	for (size_t i = 0; i < 10; i++) {
		const json_t *row = json_array_get(rows, i);

		assert_relative(
		        number(row, "loss"), number_at(json_object_get(want, "loss"), i), 1e-5, "loss");
		assert_relative(number(row, "grad_norm"), number_at(json_object_get(want, "grad_norm"), i),
		        3e-5, "grad_norm");
	}
	json_decref(rows);
	reference_close(&r);
}

static void test_lora(void **state)
{
	(void)state;
	golden_now.part = "adapter";
	each_model(lora_model);
}

/* ---- rows that a whole model reads otherwise ---- */

/* Gemma 4 embeds the pad token where a text has one of its tokens for images, videos and sounds. */
static void test_tokens_for_images_are_refused(void **state)
{
	static const int ids[] = {242, 243, 246};
	char path[300];

	(void)state;
	if (!golden)
		skip();
	snprintf(path, sizeof(path), "%s/image.jsonl", work_dir);
	for (size_t i = 0; i < sizeof(ids) / sizeof(*ids); i++) {
		FILE *f = fopen(path, "w");

		assert_non_null(f);
		fprintf(f, "{\"input_ids\":[5,6,%d,7]}\n", ids[i]);
		assert_int_equal(fclose(f), 0);
		assert_ferry(2, NULL, "eval model=%s/modern/gemma4/hf data=%s", golden, path);
		assert_non_null(strstr(ferry_said(), "stands for an image, a video or a sound"));
	}
}

/* ---- families of later versions ---- */

static void test_others_are_refused(void **state)
{
	(void)state;
	if (!golden)
		skip();
	for (size_t i = 0; i < sizeof(later) / sizeof(*later); i++) {
		assert_ferry(2, NULL, "eval model=%s/%s/hf data=%s/%s/eval.jsonl", golden, later[i], golden,
		        later[i]);
		assert_non_null(strstr(ferry_said(), says[i]));
	}
}

/* transformers has no class of Muse Glimmer's text part alone. */
static void test_text_part_without_a_class(void **state)
{
	static const char *const models[] = {"muse_glimmer", "qwen3_5_vl"};

	(void)state;
	if (!golden)
		skip();
	for (int m = 0; m < 2; m++) {
		assert_ferry(0, NULL,
		        "train model=%s/modern/%s/hf data=%s/modern/%s/eval.jsonl output_dir=%s/text%d "
		        "max_steps=1 export_text_only=on",
		        golden, models[m], golden, models[m], work_dir, m);
		assert_int_equal(strstr(ferry_said(), "only as a part of a whole one") != NULL, m == 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_eval),
	        cmocka_unit_test(test_gradients),
	        cmocka_unit_test(test_trace_a),
	        cmocka_unit_test(test_trace_b),
	        cmocka_unit_test(test_generate),
	        cmocka_unit_test(test_lora),
	        cmocka_unit_test(test_tokens_for_images_are_refused),
	        cmocka_unit_test(test_others_are_refused),
	        cmocka_unit_test(test_text_part_without_a_class),
	};
	int failed;

	golden = golden_dir("test_golden");
	own = own_golden_dir();
	device = getenv("FERRY_TEST_DEVICE") ? getenv("FERRY_TEST_DEVICE") : "host";
	only = getenv("FERRY_TEST_MODELS");
	ferry_run_begin("golden");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
