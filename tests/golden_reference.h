/* Compares numbers of the program with those of the golden data. */
#ifndef FERRY_TESTS_GOLDEN_REFERENCE_H
#define FERRY_TESTS_GOLDEN_REFERENCE_H

#include "tests/ferry_run.h"

#include "checkpoint/safetensors.h"

#include <math.h>

static inline double number(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	assert_true(json_is_number(value));
	return json_number_value(value);
}

static inline void assert_relative(double got, double want, double bound, const char *what)
{
	if (!(fabs(got - want) <= bound * fabs(want)))
		fail_msg("%s: %.10g, reference %.10g, relative error %.3g > %.3g", what, got, want,
		        fabs(got - want) / fabs(want), bound);
}

/* The first row's losses of `ferry eval --json`, which leaves out the tokens whose reference is 0. */
static inline void assert_token_losses(const json_t *got, const json_t *losses, const char *what)
{
	const json_t *row = json_array_get(json_object_get(got, "token_losses"), 0);
	size_t at = 0;

	assert_true(json_array_size(losses) > 0);
	for (size_t t = 0; t < json_array_size(losses); t++) {
		double w = json_number_value(json_array_get(losses, t));

		if (w == 0)
			continue;
		assert_true(at < json_array_size(row));
		if (!(fabs(json_number_value(json_array_get(row, at)) - w) <= 2e-5))
			fail_msg("%s: token %zu: %.9g, reference %.9g", what, t,
			        json_number_value(json_array_get(row, at)), w);
		at++;
	}
	assert_int_equal(at, json_array_size(row));
}

/* A tensor of a safetensors file as doubles. */
static inline double *tensor_read(const struct safetensors *file, const char *name, int64_t *count)
{
	const struct safetensors_tensor *t = safetensors_find(file, name);
	double *values;

	if (!t)
		fail_msg("%s: no tensor %s", file->path, name);
	*count = t->count;
	values = calloc((size_t)t->count + 1, sizeof(*values));
	assert_int_equal(t->dtype, SAFETENSORS_F32);
	float *raw = calloc((size_t)t->count + 1, sizeof(*raw));
	assert_int_equal(safetensors_read(file, t, raw, 0, t->len_bytes), 0);
	for (int64_t i = 0; i < t->count; i++)
		values[i] = raw[i];
	free(raw);
	return values;
}

#endif
