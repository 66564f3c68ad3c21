/* Cases of tests/golden: small models with weights by a formula, and what another program computes for them.
 */
#ifndef FERRY_TESTS_FORMULA_CASES_H
#define FERRY_TESTS_FORMULA_CASES_H

#include "tests/model_rig.h"

#include "base/json.h"

#include <math.h>

static inline uint64_t splitmix(uint64_t x)
{
	x += 0x9E3779B97F4A7C15;
	x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
	x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
	return x ^ (x >> 31);
}

/* The script's weight_of: norms scale by something around 1. */
static inline void weights_of(float *values, const struct model *model, const struct model_tensor *t)
{
	uint64_t seed = 0xCBF29CE484222325;
	size_t len = strlen(t->name);
	int is_norm = t->rank == 1 && ((len > 6 && !strcmp(t->name + len - 6, "weight")) ||
	                                      role_facts[t->role].kind == KIND_SCALAR);

	for (const char *c = t->name; *c; c++)
		seed = (seed ^ (unsigned char)*c) * 0x100000001B3;
	for (int64_t i = 0; i < t->count; i++)
		values[i] = (float)(splitmix(seed + (uint64_t)i) >> 40) / (1 << 24) - 0.5f +
		            (is_norm ? 1 - (float)model->config.norm_of[t->role].weight_offset : 0);
}

static inline double number(const json_t *object, const char *key)
{
	json_t *value = json_object_get(object, key);

	assert_true(json_is_number(value));
	return json_number_value(value);
}

static inline const json_t *entry(const json_t *array, size_t index)
{
	const json_t *value = json_array_get(array, index);

	assert_non_null(value);
	return value;
}

/* How near a dtype comes: token losses absolute, gradients relative to the tensor's norm or a part of that of
 * all. */
struct bounds {
	enum dtype dtype;
	double loss, gradient, floor;
};

static inline void check_losses(const float *got, const json_t *want, double bound)
{
	for (size_t i = 0; i < json_array_size(want); i++)
		if (!(fabs(got[i] - json_number_value(entry(want, i))) <= bound))
			fail_msg("token loss %zu is %.9g, wanted %.9g", i, got[i],
			        json_number_value(entry(want, i)));
}

/* The gradient after `times` equal micro-batches. */
static inline void check_gradient(
        struct rig *r, int tensor, const json_t *want, double times, double all, const struct bounds *bounds)
{
	const struct model_tensor *t = &r->model->tensors[tensor];
	const json_t *index = entry(want, 3), *value = entry(want, 4);
	double norm = json_number_value(entry(want, 2)), sum = 0;
	double bound = bounds->gradient * fmax(norm, bounds->floor * all);
	float *got = mem_alloc((size_t)t->count, sizeof(*got));

	rig_get_grad(r, tensor, got);
	for (int64_t i = 0; i < t->count; i++)
		sum += got[i] / times * (got[i] / times);
	for (size_t i = 0; i <= json_array_size(index); i++) {
		double a = i ? got[json_integer_value(entry(index, i - 1))] / times : sqrt(sum);
		double b = i ? json_number_value(entry(value, i - 1)) : norm;

		if (!(fabs(a - b) <= bound)) {
			print_error("gradient of %s: %s is %g, wanted %g within %g\n", t->name,
			        i ? "an element" : "norm", a, b, bound);
			fail();
		}
	}
	mem_free(got);
}

/* The rows of all cases. */
static inline void read_rows(struct rig_batch *rows, const json_t *golden)
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
		rig_batch_add(rows, ids, labels, (int64_t)count);
	}
}

/* The file's cases as tests; the state of each is its case. Returns the number of failures, or 1 without a
 * case. */
static inline int formula_cases_run(const json_t *golden, const char *group, CMUnitTestFunction test)
{
	const json_t *cases = json_object_get(golden, "cases");
	size_t count = json_array_size(cases);
	struct CMUnitTest *tests = mem_alloc(count + 1, sizeof(*tests));
	int failed;

	for (size_t i = 0; i < count; i++)
		tests[i] = (struct CMUnitTest){
		        .name = json_string_value(json_object_get(entry(cases, i), "name")),
		        .test_func = test,
		        .initial_state = json_array_get(cases, i)};
	failed = _cmocka_run_group_tests(group, tests, count, NULL, NULL);
	mem_free(tests);
	return failed || !count;
}

#endif
