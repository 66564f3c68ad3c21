/* links: host_cpu device_meta model_families model_blocks */
/* Models with adapters, against peft (tests/golden/make_lora.py). */
#include "tests/formula_cases.h"

#include "device/noise.h"
#include "model/adapter.h"
#include "model/families/open.h"

static json_t *golden;
static struct rig_batch rows;

static int is_adapter_name(const char *name, const char *other_name, void *arg)
{
	(void)other_name;
	(void)arg;
	return strstr(name, ".lora_A.") || strstr(name, ".lora_B.") ||
	       strstr(name, ".lora_magnitude_vector") || strstr(name, ".lora_embedding_");
}

/* The model of a case with its adapters, over a frozen base. */
static struct model *adapted(const json_t *test)
{
	struct adapter_options options = {.rank = (int64_t)number(test, "rank"),
	        .alpha = number(test, "scale") * number(test, "rank"),
	        .dropout = json_number_value(json_object_get(test, "dropout")),
	        .use_dora = json_is_true(json_object_get(test, "use_dora")),
	        .parameters = json_object_get(test, "parameters"),
	        .exclude = json_object_get(test, "exclude"),
	        .layers = json_object_get(test, "layers_to_transform"),
	        .layers_pattern = json_object_get(test, "layers_pattern"),
	        .rank_pattern = json_object_get(test, "rank_pattern"),
	        .alpha_pattern = json_object_get(test, "alpha_pattern")};
	struct model *model;
	json_t *targets;
	int64_t trained, want = 0;

	if (json_object_get(test, "alpha")) { /* where modules differ, no scale is that of all */
		options.alpha = number(test, "alpha");
		options.use_rslora = json_is_true(json_object_get(test, "rslora"));
	}
	check_ok(adapter_targets(&targets, json_string_value(json_object_get(test, "targets"))));
	options.targets = json_is_array(targets) && !json_array_size(targets) ? NULL : targets;
	check_ok(model_open(&model, json_object_get(test, "config"), "config.json"));
	check_ok(model_adapt(model, &options));
	json_decref(targets);
	check_ok(model_set_trainable(model, &trained, is_adapter_name, NULL));
	for (int t = 0; t < model->tensor_count; t++) {
		assert_int_equal(model->tensors[t].trainable, model_tensor_is_adapter(&model->tensors[t]));
		want += model->tensors[t].trainable ? model->tensors[t].count : 0;
	}
	assert_int_equal(trained, want);
	return model;
}

/* The adapters are those of peft, with its shapes, each B behind its A. */
static void check_table(const struct model *model, const json_t *tensors)
{
	size_t adapters = 0;

	for (int t = 0; t < model->tensor_count; t++)
		adapters += (size_t)model_tensor_is_adapter(&model->tensors[t]);
	assert_int_equal(adapters, json_array_size(tensors));
	for (int t = 0; t < model->tensor_count; t++) {
		int a = model_adapter_of(model, t), is_embedding = model->tensors[t].role == ROLE_EMBED;

		if (a < 0)
			continue;
		assert_non_null(strstr(
		        model->tensors[a].name, is_embedding ? ".lora_embedding_A" : ".lora_A.weight"));
		assert_non_null(strstr(
		        model->tensors[a + 1].name, is_embedding ? ".lora_embedding_B" : ".lora_B.weight"));
		assert_int_equal(model->tensors[a].layer, model->tensors[t].layer);
	}
}

static int tensor_of(const struct model *model, const json_t *want)
{
	int t = model_find_tensor(model, json_string_value(entry(want, 0)));
	const json_t *shape = entry(want, 1);

	assert_true(t >= 0 && model_tensor_is_adapter(&model->tensors[t]));
	assert_int_equal(model->tensors[t].rank, json_array_size(shape));
	for (int d = 0; d < model->tensors[t].rank; d++)
		assert_int_equal(model->tensors[t].shape[d], json_integer_value(entry(shape, (size_t)d)));
	return t;
}

/* Weights everywhere. The base has no gradients, and those of adapters start as NaN: the first micro-batch
 * writes them; those of magnitudes are added to. kept: where the base's would be. */
static void prepare(struct rig *r, dev_addr *kept)
{
	for (int t = 0; t < r->model->tensor_count; t++) {
		const struct model_tensor *tensor = &r->model->tensors[t];
		float *values = mem_alloc((size_t)tensor->count, sizeof(*values));

		weights_of(values, r->model, tensor);
		rig_set_weight(r, t, values);
		memset(values, tensor->trainable && !model_gradient_is_product(r->model, t) ? 0 : 0xff,
		        (size_t)tensor->count * sizeof(*values));
		rig_upload(r, r->grad[t], values, tensor->count * 4);
		kept[t] = r->grad[t];
		if (!tensor->trainable)
			r->grad[t] = DEV_NONE;
		else
			assert_int_equal(model_gradient_is_product(r->model, t),
			        tensor->rank == 2 && tensor->role != ROLE_EMBED_LORA_A);
		mem_free(values);
	}
}

static void check_untouched(struct rig *r, const dev_addr *kept)
{
	for (int t = 0; t < r->model->tensor_count; t++) {
		int64_t bytes = r->model->tensors[t].count * 4;
		unsigned char *got;

		if (!dev_is_none(r->grad[t]))
			continue;
		got = mem_alloc((size_t)bytes, 1);
		rig_download(r, got, kept[t], bytes);
		for (int64_t i = 0; i < bytes; i++)
			if (got[i] != 0xff)
				fail_msg("%s is frozen and got a gradient", r->model->tensors[t].name);
		mem_free(got);
	}
}

static void put_keys(struct rig *r)
{
	uint64_t *key = mem_alloc((size_t)rows.tokens, sizeof(*key));
	int64_t row = (int64_t)number(golden, "first_row") - 1;

	for (int64_t t = 0; t < rows.tokens; t++) {
		row += rows.position[t] == 0;
		key[t] = noise_token(
		        (uint64_t)number(golden, "step"), (uint64_t)row, (uint64_t)rows.position[t]);
	}
	rig_upload(r, r->noise, key, rows.tokens * 8);
	r->has_noise = 1;
	mem_free(key);
}

static void check_run(
        const struct model *model, const json_t *test, enum rig_acts acts, const struct bounds *bounds)
{
	const json_t *losses = json_object_get(test, "losses"), *tensors = json_object_get(test, "tensors");
	float *got = mem_alloc((size_t)rows.targets, sizeof(*got));
	dev_addr *kept = mem_alloc((size_t)model->tensor_count, sizeof(*kept));
	double all = 0;
	struct rig r;

	assert_int_equal(rows.targets, json_array_size(losses));
	for (size_t i = 0; i < json_array_size(tensors); i++)
		all += pow(json_number_value(entry(entry(tensors, i), 2)), 2);
	rig_open(&r, "host", model, bounds->dtype, rows.tokens, rows.targets);
	prepare(&r, kept);
	if (json_object_get(test, "dropout"))
		put_keys(&r);
	for (int n = 1; n <= 2; n++) {
		r.first_gradient = n == 1;
		r.head_rows = n == 1 ? r.head_rows : 3; /* then the head works in several chunks */
		rig_run(&r, got, &rows, HEAD_TRAIN, acts, 1 / (float)rows.targets);
		check_losses(got, losses, bounds->loss);
		for (size_t i = 0; i < json_array_size(tensors); i++)
			check_gradient(&r, tensor_of(model, entry(tensors, i)), entry(tensors, i), n,
			        sqrt(all), bounds);
	}
	check_untouched(&r, kept);
	rig_check_guards(&r);
	rig_close(&r);
	mem_free(kept);
	mem_free(got);
}

static void test_case(void **state)
{
	const json_t *test = *state;
	struct model *model = adapted(test);

	check_table(model, json_object_get(test, "tensors"));
	check_run(model, test, RIG_RECOMPUTE, &(struct bounds){DTYPE_F32, 2e-5, 2e-5, 0.01});
	check_run(model, test, RIG_KEEP, &(struct bounds){DTYPE_F32, 2e-5, 2e-5, 0.01});
	/* in bf16 a token may go to another expert */
	if (model->tally_layers) {
		model_close(model);
		return;
	}
	/* the models with dropout amplify roundings: torch's gradients in bf16 are as far off */
	check_run(model, test, RIG_RECOMPUTE,
	        json_object_get(test, "dropout") ? &(struct bounds){DTYPE_BF16, 0.5, 0.3, 1}
	                                         : &(struct bounds){DTYPE_BF16, 0.3, 0.15, 0.2});
	model_close(model);
}

int main(void)
{
	char path[4096];
	int failed;

	snprintf(path, sizeof(path), "%s/tests/golden/lora.json", getenv("FERRY_SOURCE"));
	if (json_read_file(&golden, path, 16 << 20)) {
		fprintf(stderr, "%s\n", err_text());
		return 1;
	}
	read_rows(&rows, golden);
	failed = formula_cases_run(golden, "lora", test_case);
	rig_batch_free(&rows);
	json_decref(golden);
	return failed;
}
