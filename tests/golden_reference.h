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
