/* links: host_cpu device_meta model_families model_blocks */
/* Models from config.json files of every family, against transformers. */
#include "tests/model_rig.h"

#include "base/file.h"
#include "base/json.h"
#include "model/families/families.h"
#include "model/families/open.h"

#include <math.h>

/* Odd config.json files of every family against what transformers makes of them
 * (tests/golden/make_config_golden.py). */

static json_t *golden;
static struct rig_batch rows;

static uint64_t splitmix(uint64_t x)
{
	x += 0x9E3779B97F4A7C15;
	x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
	x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
	return x ^ (x >> 31);
}

/* The script's weight_of: norms scale by something around 1. */
static void weights_of(float *values, const struct model *model, const struct model_tensor *t)
{
	uint64_t seed = 0xCBF29CE484222325;
	size_t len = strlen(t->name);
	int is_norm = t->rank == 1 && len > 6 && !strcmp(t->name + len - 6, "weight");

	for (const char *c = t->name; *c; c++)
		seed = (seed ^ (unsigned char)*c) * 0x100000001B3;
	for (int64_t i = 0; i < t->count; i++)
		values[i] = (float)(splitmix(seed + (uint64_t)i) >> 40) / (1 << 24) - 0.5f +
		            (is_norm ? 1 - (float)model->config.norm_weight_offset : 0);
}

static double number(const json_t *object, const char *key)
{
	json_t *value = json_object_get(object, key);

	assert_true(json_is_number(value));
	return json_number_value(value);
}

static const json_t *entry(const json_t *array, size_t index)
{
	const json_t *value = json_array_get(array, index);

	assert_non_null(value);
	return value;
}

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
	assert_int_equal(t->decay, t->rank == 2);
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

/* How near a dtype comes: token losses absolute, gradients relative to the tensor's norm or a part of that of
 * all. */
struct bounds {
	enum dtype dtype;
	double loss, gradient, floor;
};

static void check_gradient(
        struct rig *r, int tensor, const json_t *want, double all, const struct bounds *bounds)
{
	const struct model_tensor *t = &r->model->tensors[tensor];
	const json_t *index = entry(want, 3), *value = entry(want, 4);
	double norm = json_number_value(entry(want, 2)), sum = 0;
	double bound = bounds->gradient * fmax(norm, bounds->floor * all);
	float *got = mem_alloc((size_t)t->count, sizeof(*got));

	rig_get_grad(r, tensor, got);
	for (int64_t i = 0; i < t->count; i++)
		sum += (double)got[i] * got[i];
	for (size_t i = 0; i <= json_array_size(index); i++) {
		double a = i ? got[json_integer_value(entry(index, i - 1))] : sqrt(sum);
		double b = i ? json_number_value(entry(value, i - 1)) : norm;

		if (!(fabs(a - b) <= bound)) {
			print_error("gradient of %s: %s is %g, wanted %g within %g\n", t->name,
			        i ? "an element" : "norm", a, b, bound);
			fail();
		}
	}
	mem_free(got);
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
		float *values = mem_alloc((size_t)model->tensors[t].count, sizeof(*values));

		check_shape(&model->tensors[t], json_string_value(entry(want, 0)), entry(want, 1));
		all += pow(json_number_value(entry(want, 2)), 2);
		weights_of(values, model, &model->tensors[t]);
		rig_set_weight(&r, t, values);
		mem_free(values);
	}
	rig_run(&r, got, &rows, HEAD_TRAIN, RIG_RECOMPUTE, 1 / (float)rows.targets);
	for (int64_t i = 0; i < rows.targets; i++) {
		double want = json_number_value(entry(losses, (size_t)i));

		if (!(fabs(got[i] - want) <= bounds->loss)) {
			print_error("token loss %lld is %.9g, wanted %.9g\n", (long long)i, got[i], want);
			fail();
		}
	}
	for (int t = 0; t < model->tensor_count; t++)
		check_gradient(&r, t, entry(tensors, (size_t)t), sqrt(all), bounds);
	rig_check_guards(&r);
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

static void test_case(void **state)
{
	const json_t *test = *state;
	struct model *model;

	check_ok(model_open(&model, json_object_get(test, "config"), "config.json"));
	check_files(model, json_object_get(test, "files"));
	check_settings(&model->config, json_object_get(test, "settings"));
	if (json_object_get(test, "losses")) {
		check_run(model, test, &(struct bounds){DTYPE_F32, 2e-5, 2e-5, 0.01});
		check_run(model, test, &(struct bounds){DTYPE_BF16, 0.3, 0.15, 0.2});
	} else
		check_shapes(model, test);
	model_close(model);
}

static void read_rows(void)
{
	const json_t *list = json_object_get(golden, "rows");
	int32_t ids[64], labels[64];

	for (size_t r = 0; r < json_array_size(list); r++) {
		const json_t *row = entry(list, r), *id = json_object_get(row, "input_ids");
		size_t count = json_array_size(id);

		assert_true(count <= 64);
		for (size_t i = 0; i < count; i++) {
			ids[i] = (int32_t)json_integer_value(entry(id, i));
			labels[i] = (int32_t)json_integer_value(entry(json_object_get(row, "labels"), i));
		}
		rig_batch_add(&rows, ids, labels, (int64_t)count);
	}
}

static int has_case(const json_t *cases, const char *family)
{
	for (size_t i = 0; i < json_array_size(cases); i++)
		if (!strcmp(json_string_value(json_object_get(
		                    json_object_get(entry(cases, i), "config"), "model_type")),
		            family))
			return 1;
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

/* Returns the number of families without a case, or without a word in the list for users. */
static int families_left(const json_t *cases)
{
#define FAMILY_NAME(name) #name,
	static const char *const names[] = {FAMILY_LIST(FAMILY_NAME)};
#undef FAMILY_NAME
	int left = 0;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!has_case(cases, names[i])) {
			fprintf(stderr, "%s has no row in tests/golden/make_config_golden.py\n", names[i]);
			left++;
		}
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!is_listed(names[i])) {
			fprintf(stderr, "docs/reference/models.md does not list %s\n", names[i]);
			left++;
		}
	return left;
}

int main(void)
{
	char path[4096];
	const json_t *cases;
	struct CMUnitTest *tests;
	size_t count;
	int failed;

	snprintf(path, sizeof(path), "%s/tests/golden/config_golden.json", getenv("FERRY_SOURCE"));
	if (json_read_file(&golden, path, 16 << 20)) {
		fprintf(stderr, "%s\n", err_text());
		return 1;
	}
	read_rows();
	cases = json_object_get(golden, "cases");
	count = json_array_size(cases);
	tests = mem_alloc(count, sizeof(*tests));
	for (size_t i = 0; i < count; i++)
		tests[i] = (struct CMUnitTest){
		        .name = json_string_value(json_object_get(entry(cases, i), "name")),
		        .test_func = test_case,
		        .initial_state = json_array_get(cases, i)};
	failed = _cmocka_run_group_tests("config_golden", tests, count, NULL, NULL) + families_left(cases);
	mem_free(tests);
	rig_batch_free(&rows);
	json_decref(golden);
	return failed || !count;
}
