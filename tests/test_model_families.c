/* links: host_cpu device_meta model_families model_blocks */
/* Models from config.json files of every family, against transformers. */
#include "tests/formula_cases.h"

#include "base/file.h"
#include "model/families/families.h"
#include "model/families/open.h"

/* Odd config.json files of every family against what transformers makes of them
 * (tests/golden/make_config_golden.py). */

static json_t *golden;
static int is_other_draw; /* 1: settings that no one has seen, which may lose digits; in bf16 too many */
static struct rig_batch rows;

static void equal(const char *what, double got, double want)
{
	if (!(got == want)) {
		print_error("%s is %.17g, wanted %.17g\n", what, got, want);
		fail();
	}
}

static void check_settings(const struct model_config *c, const json_t *want)
{
	const json_t *window = json_object_get(want, "window"), *eos = json_object_get(want, "eos");

	equal("H", (double)c->H, number(want, "H"));
	equal("KV", (double)c->KV, number(want, "KV"));
	equal("D", (double)c->D, number(want, "D"));
	equal("norm_epsilon", c->norm_epsilon, number(want, "norm_epsilon"));
	equal("initializer_range", c->initializer_range, number(want, "initializer_range"));
	equal("max_positions", (double)c->max_positions, number(want, "max_positions"));
	equal("tied", c->tied, number(want, "tied"));
	equal("bos", (double)c->bos_id, number(want, "bos"));
	equal("L", (double)c->L, (double)json_array_size(window));
	for (int64_t l = 0; l < c->L; l++)
		equal("window", (double)c->block[l].window, json_number_value(entry(window, (size_t)l)));
	equal("eos_count", c->eos_count, (double)json_array_size(eos));
	for (int i = 0; i < c->eos_count; i++)
		equal("eos", (double)c->eos_ids[i], json_number_value(entry(eos, (size_t)i)));
	if (json_object_get(want, "theta"))
		equal("theta", c->rope[0].theta, number(want, "theta"));
}

static void check_shape(const struct model_tensor *t, const char *name, const json_t *shape)
{
	assert_string_equal(t->name, name);
	assert_int_equal(t->rank, json_array_size(shape));
	for (int d = 0; d < t->rank; d++)
		assert_int_equal(t->shape[d], json_integer_value(entry(shape, (size_t)d)));
	assert_int_equal(t->decay, t->rank >= 2 && !strstr(name, "_bias")); /* of experts: [E, out] */
}

/* Models too large to run: the named ones of the table, and how many there are. */
static void check_shapes(const struct model *model, const json_t *test)
{
	const json_t *shapes = json_object_get(test, "shapes");

	assert_int_equal(model->tensor_count, (int64_t)number(test, "parameter_count"));
	assert_int_equal(model->parameter_count, (int64_t)number(test, "element_count"));
	for (size_t i = 0; i < json_array_size(shapes); i++) {
		const char *name = json_string_value(entry(entry(shapes, i), 0));
		int tensor = model_find_tensor(model, name);

		assert_true(tensor >= 0);
		check_shape(&model->tensors[tensor], name, entry(entry(shapes, i), 1));
	}
}

static void weights_set(struct rig *r, const struct model *model)
{
	for (int t = 0; t < model->tensor_count; t++) {
		float *values = mem_alloc((size_t)model->tensors[t].count, sizeof(*values));

		weights_of(values, model, &model->tensors[t]);
		rig_set_weight(r, t, values);
		mem_free(values);
	}
}

/* Whatever level of activations is kept, gradients are those of a recomputation of all, to the bit. */
static void check_levels(struct rig *want, const struct model *model, const struct bounds *bounds)
{
	float *losses = mem_alloc((size_t)rows.targets, sizeof(*losses));

	for (int level = 1; level < ACTS_LEVELS; level++) {
		struct rig r;

		rig_open(&r, "host", model, bounds->dtype, rows.tokens, rows.targets);
		weights_set(&r, model);
		rig_run(&r, losses, &rows, HEAD_TRAIN, (enum rig_acts)(RIG_RECOMPUTE + level),
		        1 / (float)rows.targets);
		for (int t = 0; t < model->tensor_count; t++) {
			size_t bytes = (size_t)model->tensors[t].count * 4;
			float *a = mem_alloc(bytes, 1), *b = mem_alloc(bytes, 1);

			rig_get_grad(want, t, a);
			rig_get_grad(&r, t, b);
			if (memcmp(a, b, bytes))
				fail_msg("level %s: another gradient of %s",
				        acts_level_name((enum acts_level)level), model->tensors[t].name);
			mem_free(a);
			mem_free(b);
		}
		rig_check_guards(&r);
		rig_close(&r);
	}
	mem_free(losses);
}

static void check_run(const struct model *model, const json_t *test, const struct bounds *bounds)
{
	const json_t *losses = json_object_get(test, "losses"), *tensors = json_object_get(test, "tensors");
	float *got = mem_alloc((size_t)rows.targets, sizeof(*got));
	double all = 0;
	struct rig r;

	assert_int_equal(model->tensor_count, json_array_size(tensors));
	assert_int_equal(rows.targets, json_array_size(losses));
	rig_open(&r, "host", model, bounds->dtype, rows.tokens, rows.targets);
	for (int t = 0; t < model->tensor_count; t++) {
		const json_t *want = entry(tensors, (size_t)t);

		check_shape(&model->tensors[t], json_string_value(entry(want, 0)), entry(want, 1));
		all += pow(json_number_value(entry(want, 2)), 2);
	}
	weights_set(&r, model);
	rig_run(&r, got, &rows, HEAD_TRAIN, RIG_RECOMPUTE, 1 / (float)rows.targets);
	check_losses(got, losses, bounds->loss);
	for (int t = 0; t < model->tensor_count; t++)
		check_gradient(&r, t, entry(tensors, (size_t)t), 1, sqrt(all), bounds);
	rig_check_guards(&r);
	check_levels(&r, model, bounds);
	rig_close(&r);
	mem_free(got);
}

/* The names that transformers writes for the text part of a whole model: one for each tensor. */
static void check_files(const struct model *model, const json_t *names)
{
	assert_int_equal(model->whole != NULL, names != NULL);
	for (size_t i = 0; i < json_array_size(names); i++) {
		const char *name = json_string_value(entry(names, i));

		for (size_t k = 0; k < i; k++)
			assert_true(model_find_tensor(model, name) !=
			            model_find_tensor(model, json_string_value(entry(names, k))));
		assert_true(model_find_tensor(model, name) >= 0);
	}
	if (names)
		assert_int_equal(model->tensor_count, json_array_size(names));
}

/* In bf16 a token may go to another expert, and its loss is then another. */
static int has_experts(const struct model *model)
{
	for (int l = 0; l < model->config.L; l++)
		if (model_tensor_of(model, ROLE_ROUTER_W, l) >= 0)
			return 1;
	return 0;
}

static void test_case(void **state)
{
	const json_t *test = *state;
	double off = is_other_draw ? 1e-4 : 2e-5;
	struct model *model;

	check_ok(model_open(&model, json_object_get(test, "config"), "config.json"));
	check_files(model, json_object_get(test, "files"));
	check_settings(&model->config, json_object_get(test, "settings"));
	if (json_object_get(test, "losses")) {
		check_run(model, test, &(struct bounds){DTYPE_F32, off, off, 0.01});
		if (!has_experts(model) && !is_other_draw)
			check_run(model, test, &(struct bounds){DTYPE_BF16, 0.3, 0.15, 0.2});
	} else
		check_shapes(model, test);
	model_close(model);
}

static int has_case(const json_t *cases, const char *family)
{
	for (size_t i = 0; i < json_array_size(cases); i++) {
		const json_t *config = json_object_get(entry(cases, i), "config"),
		             *text = json_object_get(config, "text_config");
		const char *type = json_string_value(json_object_get(text ? text : config, "model_type"));

		if (type && !strcmp(type, family))
			return 1;
	}
	return 0;
}

static int is_listed(const char *family)
{
	char path[4096], word[80], *text;
	size_t len;
	int found;

	snprintf(path, sizeof(path), "%s/docs/reference/models.md", getenv("FERRY_SOURCE"));
	snprintf(word, sizeof(word), "`%s`", family);
	check_ok(file_read_all(path, 1 << 20, &text, &len));
	found = strstr(text, word) != NULL;
	mem_free(text);
	return found;
}

/* Returns the number of families without a case, or without a word in the list for users. Encoders have no
 * losses of tokens: test_run_embedding.c has them. */
static int families_left(const json_t *cases)
{
#define FAMILY_OF(name) &family_##name,
	static const struct model_family *const families[] = {FAMILY_LIST(FAMILY_OF)};
#undef FAMILY_OF
	int left = 0;

	for (size_t i = 0; i < sizeof(families) / sizeof(*families); i++) {
		const char *name = families[i]->model_type;

		if (!families[i]->defaults.is_encoder && !has_case(cases, name)) {
			fprintf(stderr, "%s has no row in tests/golden/make_config_golden.py\n", name);
			left++;
		}
		if (!is_listed(name)) {
			fprintf(stderr, "docs/reference/models.md does not list %s\n", name);
			left++;
		}
	}
	return left;
}

/* Returns how many cases failed. */
static int run_file(const char *path, int has_all)
{
	int failed;

	if (json_read_file(&golden, path, 64 << 20)) {
		fprintf(stderr, "%s\n", err_text());
		return 1;
	}
	read_rows(&rows, golden);
	failed = formula_cases_run(golden, "config_golden", test_case);
	if (has_all)
		failed += families_left(json_object_get(golden, "cases"));
	rig_batch_free(&rows);
	json_decref(golden);
	return failed;
}

int main(void)
{
	const char *other = getenv("FERRY_CONFIG_GOLDEN"), *source = getenv("FERRY_SOURCE");
	char path[4096];
	int failed;

	is_other_draw = other != NULL;
	if (other)
		return run_file(other, 0) != 0;
	snprintf(path, sizeof(path), "%s/tests/golden/config_draws.json", source);
	failed = run_file(path, 0);
	snprintf(path, sizeof(path), "%s/tests/golden/config_golden.json", source);
	return failed + run_file(path, 1) != 0;
}
