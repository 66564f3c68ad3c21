/* links: cli */
/* not: asan */
/* Sums of whole models: test_model_preference and test_run_preference run there. */
/* The program on the golden preference pairs, command by command, against fp64 and TRL's losses. */
#include "tests/golden_reference.h"

static const char *golden;
static const char *device; /* FERRY_TEST_DEVICE, or host */

static const char *const variants[] = {"full", "lora"};

struct reference {
	char dir[600], base[700], keys[1500]; /* keys: the adapter, and what its reference is */
	json_t *json;
	struct safetensors *tensors;
};

static void reference_open(struct reference *r, const char *name)
{
	char path[700];

	snprintf(r->dir, sizeof(r->dir), "%s/dpo/%s", golden, name);
	snprintf(path, sizeof(path), "%s/ref.json", r->dir);
	assert_int_equal(json_read_file(&r->json, path, 1 << 26), 0);
	snprintf(path, sizeof(path), "%s/ref.safetensors", r->dir);
	assert_int_equal(safetensors_open(&r->tensors, path), 0);
	snprintf(r->base, sizeof(r->base), "%s/llama2/hf", golden);
	if (!strcmp(name, "lora"))
		snprintf(r->keys, sizeof(r->keys), "lora_adapter=%s preference_reference=base", r->dir);
}

static void reference_close(struct reference *r)
{
	json_decref(r->json);
	safetensors_close(r->tensors);
}

typedef void variant_test(const struct reference *r);
static void each_variant(variant_test *test)
{
	if (!golden)
		skip();
	for (size_t i = 0; i < sizeof(variants) / sizeof(*variants); i++) {
		struct reference r = {0};

		reference_open(&r, variants[i]);
		golden_begin(i ? "dpo/lora" : "dpo/full");
		test(&r);
		reference_close(&r);
	}
}

static const json_t *object_of(const json_t *object, const char *key)
{
	const json_t *found = json_object_get(object, key);

	if (!found)
		fail_msg("the reference has no %s", key);
	return found;
}

static void assert_near(double got, double want, double bound, const char *what)
{
	assert_error(what, fabs(got - want), bound, "a row");
}

/* ---- a step with learning rate 0 on the pairs of eval.jsonl ---- */

static void gradients_compare(const struct reference *r, const char *loss, const char *path)
{
	const json_t *gradients = json_object_get(object_of(r->json, "gradients"), loss);
	static const char prefix[] = "base_model.model.";
	struct safetensors *file;
	const char *name;
	double global = 0;
	json_t *entry;

	if (!gradients)
		return;
	assert_int_equal(safetensors_open(&file, path), 0);
	json_object_foreach((json_t *)(uintptr_t)gradients, name, entry) global +=
	        pow(number(entry, "l2_float64"), 2);
	json_object_foreach((json_t *)(uintptr_t)gradients, name, entry)
	{
		size_t skip = strncmp(name, prefix, sizeof(prefix) - 1) ? 0 : sizeof(prefix) - 1;
		char full[512];
		int64_t count, got_count;
		double error, norm, *want, *got;

		snprintf(full, sizeof(full), "grad.%s.%s", loss, name);
		want = tensor_read(r->tensors, full, &count);
		got = tensor_read(file, name + skip, &got_count);
		assert_int_equal(count, got_count);
		error = norm_of_difference(got, want, count);
		norm = fmax(norm_of_difference(want, NULL, count), 0.01 * sqrt(global));
		assert_error("gradient", error / norm, 2e-5, name);
		free(want);
		free(got);
	}
	assert_int_equal((int64_t)json_object_size(gradients), file->tensor_count);
	safetensors_close(file);
}

static void metrics_compare(const json_t *row, const char *prefix, const json_t *want)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)(uintptr_t)want, key, value)
	{
		char name[80];

		snprintf(name, sizeof(name), "%s%s", prefix, key);
		assert_near(number(row, name), json_number_value(value),
		        strstr(key, "accuracies") ? 0
		        : strstr(key, "logps")    ? 1e-4
		                                  : 2e-5,
		        name);
	}
}

static void still_case(const struct reference *r)
{
	/* the reference's name, ferry's keys */
	static const char *const losses[][2] = {{"sigmoid", "sigmoid"}, {"ipo", "ipo"}, {"hinge", "hinge"},
	        {"robust", "robust preference_label_smoothing=0.1"},
	        {"cdpo", "sigmoid preference_label_smoothing=0.1"}, {"sigmoid_norm", "sigmoid_norm"},
	        {"simpo", "simpo preference_beta=2 preference_gamma=0.5"}};
	const json_t *eval = object_of(object_of(r->json, "eval"), "float64");

	for (size_t i = 0; i < sizeof(losses) / sizeof(*losses); i++)
		for (int batch = 1; batch <= 4; batch *= 4) {
			double want = number(object_of(object_of(eval, "losses"), losses[i][0]), "loss");
			char path[300];
			json_t *rows;

			snprintf(path, sizeof(path), "%s/grad.safetensors", work_dir);
			remove(path);
			assert_ferry(0, NULL,
			        "train model=%s data=%s/../eval.jsonl eval_data=%s/../eval.jsonl "
			        "output_dir=%s/run "
			        "compute_dtype=fp32 device=%s learning_rate=0 max_steps=1 shuffle=off "
			        "per_device_train_batch_size=%d gradient_accumulation_steps=%d "
			        "dump_gradients=%s "
			        "overwrite_output_dir=on vram_budget=off max_grad_norm=0 eval_steps=1 "
			        "%s preference_loss=%s",
			        r->base, r->dir, r->dir, work_dir, device, batch, 4 / batch, path, r->keys,
			        losses[i][1]);
			rows = rows_with("loss");
			assert_relative(number(json_array_get(rows, 0), "loss"), want, 1e-5, losses[i][0]);
			if (i < 6)
				metrics_compare(json_array_get(rows, 0), "", object_of(eval, "metrics"));
			json_decref(rows);
			rows = rows_with("eval_loss");
			assert_relative(
			        number(json_array_get(rows, 0), "eval_loss"), want, 1e-5, losses[i][0]);
			if (i < 6)
				metrics_compare(json_array_get(rows, 0), "eval_", object_of(eval, "metrics"));
			json_decref(rows);
			gradients_compare(r, losses[i][0], path);
		}
}

static void test_still(void **state)
{
	(void)state;
	golden_now.part = "gradients";
	each_variant(still_case);
}

/* ---- training ---- */

static void trace_compare(const json_t *trace, const char *loss)
{
	static const char *const keys[] = {"loss", "grad_norm", "rewards/margins", "rewards/accuracies"};
	const json_t *want = object_of(object_of(trace, loss), "float64");
	json_t *rows = rows_with("loss");

	assert_int_equal(json_array_size(rows), (size_t)number(trace, "steps"));
	for (size_t step = 0; step < json_array_size(rows); step++) {
		const json_t *row = json_array_get(rows, step);

		for (int k = 0; k < 4; k++) {
			double value = number_at(json_object_get(want, keys[k]), step);

			if (k < 2)
				assert_relative(number(row, keys[k]), value, 2e-5, keys[k]);
			else
				assert_near(number(row, keys[k]), value, k == 2 ? 2e-5 : 0, keys[k]);
		}
		assert_near(number(row, "learning_rate"), number_at(json_object_get(trace, "lr"), step),
		        1e-12, "learning_rate");
	}
	json_decref(rows);
}

static void trace_case(const struct reference *r)
{
	static const char *const losses[] = {"sigmoid", "ipo", "hinge"};
	static const char *const offload[] = {"cpu_offload=off", "cpu_offload=on vram_budget=off"};
	const json_t *trace = object_of(r->json, "trace");

	for (int i = 0; i < 6; i++) {
		assert_ferry(0, NULL,
		        "train model=%s data=%s/../train.jsonl output_dir=%s/run compute_dtype=fp32 "
		        "device=%s "
		        "shuffle=off per_device_train_batch_size=2 gradient_accumulation_steps=2 "
		        "max_steps=10 "
		        "learning_rate=%g lr_scheduler_type=cosine_with_min_lr warmup_steps=2 "
		        "min_lr_rate=0.1 "
		        "adam_beta1=0.9 adam_beta2=0.95 adam_epsilon=1e-8 weight_decay=0.1 max_grad_norm=1.0 "
		        "overwrite_output_dir=on logging_steps=1 preference_loss=%s %s %s",
		        r->base, r->dir, work_dir, device, number(object_of(trace, "settings"), "peak_lr"),
		        losses[i / 2], r->keys, offload[i % 2]);
		trace_compare(trace, losses[i / 2]);
	}
}

static void test_trace(void **state)
{
	(void)state;
	golden_now.part = "steps in fp32";
	each_variant(trace_case);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_still),
	        cmocka_unit_test(test_trace),
	};
	int failed;

	device = getenv("FERRY_TEST_DEVICE") ? getenv("FERRY_TEST_DEVICE") : "host";
	golden = golden_dir("test_golden_dpo");
	ferry_run_begin("golden-dpo");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
