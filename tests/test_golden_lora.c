/* links: cli */
/* not: asan */
/* Sums of whole models: test_model_lora and test_run_lora run there. */
/* The program on the golden adapters, command by command, against peft in fp64 on the same files. */
#include "tests/golden_reference.h"

static const char *golden;
static const char *device; /* FERRY_TEST_DEVICE, or host */

static const char *const cases[] = {"lora/plain", "lora/rslora", "lora/conv1d", "lora/patterns", "lora/dora",
        "lora/experts", "nf4/single/lora", "nf4/double/lora"};
enum { CASE_COUNT = sizeof(cases) / sizeof(*cases) };

struct reference {
	char dir[600], base[700], eval_file[700], train_file[700];
	json_t *json;
	struct safetensors *tensors;
};

static const char *text_of(const struct reference *r, const char *key)
{
	const char *text = json_string_value(json_object_get(r->json, key));

	assert_non_null(text);
	return text;
}

static void reference_open(struct reference *r, const char *name)
{
	char path[700];

	snprintf(r->dir, sizeof(r->dir), "%s/%s", golden, name);
	snprintf(path, sizeof(path), "%s/ref.json", r->dir);
	assert_int_equal(json_read_file(&r->json, path, 1 << 26), 0);
	snprintf(path, sizeof(path), "%s/ref.safetensors", r->dir);
	assert_int_equal(safetensors_open(&r->tensors, path), 0);
	snprintf(r->base, sizeof(r->base), "%s/%s/hf", r->dir, text_of(r, "base"));
	snprintf(r->eval_file, sizeof(r->eval_file), "%s/%s", r->dir, text_of(r, "eval_file"));
	snprintf(r->train_file, sizeof(r->train_file), "%s/%s", r->dir, text_of(r, "train_file"));
}

static void reference_close(struct reference *r)
{
	json_decref(r->json);
	safetensors_close(r->tensors);
}

typedef void case_test(const struct reference *r);
static void each_case(case_test *test)
{
	if (!golden)
		skip();
	for (int i = 0; i < CASE_COUNT; i++) {
		struct reference r = {0};

		reference_open(&r, cases[i]);
		golden_begin(cases[i]);
		test(&r);
		reference_close(&r);
	}
}

/* The number at "a.b.c". */
static double deep(const struct reference *r, const char *a, const char *b, const char *c)
{
	const json_t *object = json_object_get(r->json, a);

	return number(b ? json_object_get(object, b) : object, c);
}

/* ---- eval ---- */

static json_t *evaluate(const struct reference *r, const char *model_keys)
{
	json_t *got;

	assert_ferry_json(&got, "eval %s data=%s compute_dtype=fp32 device=%s per_token=on --json",
	        model_keys, r->eval_file, device);
	return got;
}

static void check_loss(const struct reference *r, const char *model_keys, double want, const char *what)
{
	json_t *got = evaluate(r, model_keys);

	assert_relative(number(got, "loss"), want, 1e-6, what);
	json_decref(got);
}

static void eval_case(const struct reference *r)
{
	const json_t *want = json_object_get(json_object_get(r->json, "eval"), "float64");
	char keys[1500];
	json_t *got;

	snprintf(keys, sizeof(keys), "model=%s lora_adapter=%s", r->base, r->dir);
	check_loss(r, keys, number(want, "loss_mean"), "eval");
	got = evaluate(r, keys);
	assert_token_losses(got, json_object_get(want, "row0_token_losses"), r->dir);
	json_decref(got);
	snprintf(keys, sizeof(keys), "model=%s lora_adapter=%s/trained", r->base, r->dir);
	check_loss(r, keys, deep(r, "trained", "eval_loss_mean", "float64"), "eval of the trained adapter");
	snprintf(keys, sizeof(keys), "model=%s", r->base);
	check_loss(r, keys, number(r->json, "loss_mean_without_adapter"), "eval without an adapter");
}

static void test_eval(void **state)
{
	(void)state;
	golden_now.part = "eval";
	each_case(eval_case);
}

/* ---- a step with learning rate 0 ---- */

static void gradients_compare(const struct reference *r, const char *path)
{
	const json_t *gradients = json_object_get(r->json, "gradients");
	int64_t total = 0;
	double global = number(json_object_get(json_object_get(r->json, "eval"), "float64"), "grad_norm");
	struct safetensors *file;
	const char *name;
	json_t *entry;

	assert_int_equal(safetensors_open(&file, path), 0);
	json_object_foreach((json_t *)(uintptr_t)gradients, name, entry)
	{
		static const char prefix[] = "base_model.model.";
		char full[512];
		int64_t count, got_count;
		double error, norm, *want, *got;

		assert_memory_equal(name, prefix, sizeof(prefix) - 1);
		snprintf(full, sizeof(full), "grad.%s", name);
		want = tensor_read(r->tensors, full, &count);
		got_count = count;
		total += count;
		got = tensor_read_in(file, name + sizeof(prefix) - 1, &got_count);
		assert_int_equal(count, got_count);
		error = norm_of_difference(got, want, count);
		norm = fmax(norm_of_difference(want, NULL, count), 0.01 * global);
		assert_error("gradient", error / norm, 2e-5, name);
		free(want);
		free(got);
	}
	for (int i = 0; i < file->tensor_count; i++)
		total -= file->tensors[i].count;
	assert_int_equal(total, 0); /* none of the base */
	safetensors_close(file);
}

/* The adapter comes out with the values that went in. */
static void adapter_compare(const struct reference *r)
{
	char path[700];
	struct safetensors *in, *out;

	snprintf(path, sizeof(path), "%s/adapter_model.safetensors", r->dir);
	assert_int_equal(safetensors_open(&in, path), 0);
	snprintf(path, sizeof(path), "%s/still/adapter/adapter_model.safetensors", work_dir);
	assert_int_equal(safetensors_open(&out, path), 0);
	assert_int_equal(in->tensor_count, out->tensor_count);
	for (int i = 0; i < in->tensor_count; i++) {
		int64_t count, other_count;
		double *a = tensor_read(in, in->tensors[i].name, &count),
		       *b = tensor_read(out, in->tensors[i].name, &other_count);

		assert_int_equal(count, other_count);
		assert_memory_equal(a, b, (size_t)count * sizeof(*a));
		free(a);
		free(b);
	}
	safetensors_close(in);
	safetensors_close(out);
}

static void still_case(const struct reference *r)
{
	char path[300], keys[300];

	for (int batch = 1; batch <= 3; batch += 2) {
		snprintf(path, sizeof(path), "%s/grad.safetensors", work_dir);
		assert_ferry(0, NULL,
		        "train model=%s lora_adapter=%s data=%s output_dir=%s/still compute_dtype=fp32 "
		        "device=%s learning_rate=0 max_steps=1 shuffle=off per_device_train_batch_size=%d "
		        "gradient_accumulation_steps=%d dump_gradients=%s overwrite_output_dir=on "
		        "export_dtype=fp32 vram_budget=off max_grad_norm=0",
		        r->base, r->dir, r->eval_file, work_dir, device, batch, 3 / batch, path);
		gradients_compare(r, path);
		remove(path);
		adapter_compare(r);
	}
	snprintf(keys, sizeof(keys), "model=%s/still/model", work_dir);
	check_loss(r, keys, deep(r, "merged_at_start", NULL, "float64"), "eval of the merged model");
}

static void test_still(void **state)
{
	(void)state;
	golden_now.part = "gradients";
	each_case(still_case);
}

/* ---- training ---- */

static void metrics_compare(const struct reference *r)
{
	const json_t *trace = json_object_get(r->json, "trace"), *want = json_object_get(trace, "float64");
	json_t *rows = rows_with("loss");

	assert_int_equal(json_array_size(rows), 20);
	for (size_t i = 0; i < 20; i++) {
		const json_t *row = json_array_get(rows, i);

		assert_relative(
		        number(row, "loss"), number_at(json_object_get(want, "loss"), i), 1e-6, "loss");
		assert_relative(number(row, "grad_norm"), number_at(json_object_get(want, "grad_norm"), i),
		        1e-5, "grad_norm");
		assert_true(fabs(number(row, "learning_rate") - number_at(json_object_get(trace, "lr"), i)) <=
		            1e-12);
	}
	json_decref(rows);
}

/* The trained adapter beside peft's: error relative to how far the tensor moved. PyTorch's own fp32 is within
 * 3e-6; another order of sums may be ten times as far. */
static void trained_compare(const struct reference *r)
{
	char path[700];
	struct safetensors *first, *want, *got;

	snprintf(path, sizeof(path), "%s/adapter_model.safetensors", r->dir);
	assert_int_equal(safetensors_open(&first, path), 0);
	snprintf(path, sizeof(path), "%s/trained/adapter_model.safetensors", r->dir);
	assert_int_equal(safetensors_open(&want, path), 0);
	snprintf(path, sizeof(path), "%s/run/adapter/adapter_model.safetensors", work_dir);
	assert_int_equal(safetensors_open(&got, path), 0);
	assert_int_equal(want->tensor_count, got->tensor_count);
	for (int i = 0; i < want->tensor_count; i++) {
		const char *name = want->tensors[i].name;
		int64_t count;
		double *a = tensor_read(first, name, &count), *b = tensor_read(want, name, &count),
		       *c = tensor_read(got, name, &count);
		double error = norm_of_difference(c, b, count), moved = norm_of_difference(b, a, count);

		assert_error("weights at the end", error / moved, 3e-5, name);
		free(a);
		free(b);
		free(c);
	}
	safetensors_close(first);
	safetensors_close(want);
	safetensors_close(got);
}

static void trace_run(const struct reference *r, const char *base, const char *more)
{
	assert_ferry(0, NULL,
	        "train model=%s lora_adapter=%s data=%s output_dir=%s/run compute_dtype=fp32 "
	        "device=%s shuffle=off per_device_train_batch_size=2 gradient_accumulation_steps=2 "
	        "max_steps=20 learning_rate=5e-3 lr_scheduler_type=cosine_with_min_lr warmup_steps=4 "
	        "min_lr_rate=0.1 adam_beta1=0.9 adam_beta2=0.95 adam_epsilon=1e-8 weight_decay=0.1 "
	        "max_grad_norm=1.0 overwrite_output_dir=on export_dtype=fp32 logging_steps=1 %s",
	        base, r->dir, r->train_file, work_dir, device, more);
	metrics_compare(r);
	trained_compare(r);
}

static void trace_case(const struct reference *r)
{
	static const char *const offload[] = {"cpu_offload=off", "cpu_offload=on vram_budget=off"};
	char keys[300];

	for (int i = 0; i < 2; i++)
		trace_run(r, r->base, offload[i]);
	snprintf(keys, sizeof(keys), "model=%s/run/model", work_dir);
	check_loss(r, keys, deep(r, "trained", "merged", "float64"), "eval of the merged model");
}

static void test_trace(void **state)
{
	(void)state;
	golden_now.part = "steps in fp32";
	each_case(trace_case);
}

/* The base in bf16, quantized while it loads: the trace over bitsandbytes' own codes. */
static void test_quantizing(void **state)
{
	struct reference r = {0};
	char base[700], keys[800];

	(void)state;
	if (!golden)
		skip();
	golden_begin("nf4/base");
	reference_open(&r, "nf4/double/lora");
	snprintf(base, sizeof(base), "%s/nf4/base/hf", golden);
	trace_run(&r, base, "base_format=nf4");
	trace_run(&r, base, "base_format=nf4 cpu_offload=on vram_budget=off");
	snprintf(keys, sizeof(keys), "model=%s/run/model", work_dir);
	check_loss(&r, keys, deep(&r, "trained", "merged_into_base", "float64"), "eval of the merged model");
	reference_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_eval),
	        cmocka_unit_test(test_still),
	        cmocka_unit_test(test_trace),
	        cmocka_unit_test(test_quantizing),
	};
	int failed;

	device = getenv("FERRY_TEST_DEVICE") ? getenv("FERRY_TEST_DEVICE") : "host";
	golden = golden_dir("test_golden_lora");
	ferry_run_begin("golden-lora");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
