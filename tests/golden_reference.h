/* Compares numbers of the program with those of the golden data. */
#ifndef FERRY_TESTS_GOLDEN_REFERENCE_H
#define FERRY_TESTS_GOLDEN_REFERENCE_H

#include "tests/ferry_run.h"

#include "checkpoint/file/safetensors.h"

#include "base/str.h"

#include <dirent.h>
#include <math.h>

static inline double number(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	assert_true(json_is_number(value));
	return json_number_value(value);
}

static inline double number_at(const json_t *list, size_t at)
{
	const json_t *value = json_array_get(list, at);

	assert_true(json_is_number(value));
	return json_number_value(value);
}

/* What is compared now. With FERRY_GOLDEN_ERRORS each comparison adds a line to that file: model, part, what,
 * error and bound between tabs; scripts/golden_errors.py makes tables of them. */
static struct {
	char model[600];
	const char *part;
} golden_now __attribute__((unused));

static inline void golden_begin(const char *model)
{
	printf("  %s\n", model);
	snprintf(golden_now.model, sizeof(golden_now.model), "%s", model);
}

static inline void golden_note(const char *what, double error, double bound)
{
	const char *path = getenv("FERRY_GOLDEN_ERRORS");
	FILE *f = path && *golden_now.model ? fopen(path, "a") : NULL;

	if (!f)
		return;
	fprintf(f, "%s\t%s\t%s\t%.3g\t%.3g\n", golden_now.model, golden_now.part, what, error, bound);
	fclose(f);
}

/* An error that is no number fails too. */
static inline void assert_error(const char *what, double error, double bound, const char *name)
{
	golden_note(what, error, bound);
	if (!(error <= bound))
		fail_msg("%s: %s of %s: error %.3g > %.3g", golden_now.model, what, name, error, bound);
}

static inline void assert_relative(double got, double want, double bound, const char *what)
{
	golden_note(what, want ? fabs(got - want) / fabs(want) : fabs(got), bound);
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
		assert_error(
		        "a token's loss", fabs(json_number_value(json_array_get(row, at)) - w), 2e-5, what);
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

/* The name of a tensor in the file: the same, or without what a whole model puts before its text part. */
static inline const char *name_in(const struct safetensors *file, const char *name)
{
	static const char part[] = "language_model.";
	static char text[600];
	const char *at = strstr(name, part);

	if (safetensors_find(file, name) || !at)
		return name;
	snprintf(text, sizeof(text), "%.*s%s", (int)(at - name), name, at + sizeof(part) - 1);
	return text;
}

/* Where the whole that a piece belongs to stands in the file: the matrices of all experts in one tensor, of
 * which "...experts.3.up_proj.weight" is one. 0: there is none. */
static inline int whole_of(char *whole, size_t size, int64_t *index, int *part, int *parts, const char *name)
{
	static const char *const gates[] = {"gate_proj.weight", "w1.weight"}, *const ups[] = {
	                                                                              "up_proj.weight",
	                                                                              "w3.weight"};
	const char *at = strstr(name, ".experts.");
	char *end;

	if (!at)
		return 0;
	at += strlen(".experts.");
	*index = strtol(at, &end, 10);
	if (end == at || *end++ != '.')
		return 0;
	*part = 0;
	*parts = 1;
	for (int i = 0; i < 2; i++)
		if (!strcmp(end, gates[i]) || !strcmp(end, ups[i])) {
			*part = !strcmp(end, ups[i]);
			*parts = 2;
		}
	snprintf(whole, size, "%.*s%s", (int)(at - name), name, *parts == 2 ? "gate_up_proj" : "down_proj");
	return 1;
}

/* An expert's part of an adapter of all experts, [E rank, in] or [E out, rank]; *count elements are
 * wanted. */
static inline double *tensor_read_adapter(const struct safetensors *file, const char *name, int64_t *count)
{
	const char *digits = strstr(name, ".experts.") + strlen(".experts.");
	char whole[600], *end;
	int64_t index = strtol(digits, &end, 10), all;
	double *values;

	snprintf(whole, sizeof(whole), "%.*s%s", (int)(digits - name), name, end + 1);
	values = tensor_read(file, name_in(file, whole), &all);
	assert_true(all % *count == 0 && (index + 1) * *count <= all);
	memmove(values, values + index * *count, (size_t)*count * sizeof(*values));
	return values;
}

/* A tensor of that name, of its name in a whole model, or a piece of another. *count: how many elements are
 * wanted, then those that there are. */
static inline double *tensor_read_in(const struct safetensors *file, const char *name, int64_t *count)
{
	const struct safetensors_tensor *t;
	char whole[600];
	int64_t index, all;
	int part, parts;
	double *values;

	if (safetensors_find(file, name_in(file, name)) ||
	        !whole_of(whole, sizeof(whole), &index, &part, &parts, name))
		return tensor_read(file, name_in(file, name), count);
	if (strstr(name, ".lora_"))
		return tensor_read_adapter(file, name, count);
	if (parts == 2 && !safetensors_find(file, name_in(file, whole))) { /* experts without a gate */
		snprintf(strstr(whole, "gate_up_proj"), sizeof("gate_up_proj"), "up_proj");
		part = 0;
		parts = 1;
	}
	values = tensor_read(file, name_in(file, whole), &all);
	t = safetensors_find(file, name_in(file, whole));
	assert_true(index < t->shape[0]);
	*count = all / t->shape[0] / parts;
	memmove(values, values + (index * parts + part) * *count, (size_t)*count * sizeof(*values));
	return values;
}

/* Whether the tensor of the result has the values of the model's file: its bytes or, from bf16, in fp32. */
static inline int is_kept(const struct safetensors *first, const struct safetensors_tensor *was,
        const struct safetensors *result, const struct safetensors_tensor *is)
{
	uint16_t *a = calloc((size_t)was->len_bytes + 2, 1);
	uint32_t *b = calloc((size_t)is->len_bytes + 4, 1);
	int equal = is->count == was->count;

	assert_int_equal(safetensors_read(first, was, a, 0, was->len_bytes), 0);
	assert_int_equal(safetensors_read(result, is, b, 0, is->len_bytes), 0);
	if (is->dtype == was->dtype)
		equal = equal && !memcmp(a, b, (size_t)was->len_bytes);
	else
		for (int64_t i = 0; i < was->count && equal; i++)
			equal = was->dtype == SAFETENSORS_BF16 && is->dtype == SAFETENSORS_F32 &&
			        b[i] == (uint32_t)a[i] << 16;
	free(a);
	free(b);
	return equal;
}

/* Compares what does not train with a file of the model; returns how many tensors of it the result has. */
static inline int untrained_of(const char *path, const struct safetensors *result, const json_t *moves)
{
	struct safetensors *first;
	int kept = 0;

	assert_int_equal(safetensors_open(&first, path), 0);
	for (int i = 0; i < first->tensor_count; i++) {
		const struct safetensors_tensor *was = &first->tensors[i],
		                                *is = safetensors_find(result, name_in(result, was->name));

		if (!is || json_object_get(moves, was->name))
			continue;
		if (!is_kept(first, was, result, is))
			fail_msg("%s: %s is not as it was", path, was->name);
		kept++;
	}
	safetensors_close(first);
	return kept;
}

/* The same, over all files of the model's directory. */
static inline int untrained_are_kept(const char *dir, const struct safetensors *result, const json_t *moves)
{
	char path[900];
	struct dirent **names;
	int count = scandir(dir, &names, NULL, alphasort), kept = 0;

	for (int i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]->d_name);
		if (str_ends_with(path, ".safetensors"))
			kept += untrained_of(path, result, moves);
		free(names[i]);
	}
	free(names);
	return kept;
}

/* The rows with this key in the metrics.jsonl of the run in `run`. */
static inline json_t *rows_with(const char *key)
{
	char path[300], *line = NULL;
	json_t *rows = json_array();
	size_t cap = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/run/metrics.jsonl", work_dir);
	f = fopen(path, "r");
	assert_non_null(f);
	while (getline(&line, &cap, f) > 0) {
		json_t *row;

		assert_int_equal(json_parse(&row, path, line, strlen(line)), 0);
		if (json_object_get(row, key))
			json_array_append(rows, row);
		json_decref(row);
	}
	free(line);
	fclose(f);
	return rows;
}

/* sqrt(sum((a - b)^2)), fp64; b may be NULL, for 0. */
static inline double norm_of_difference(const double *a, const double *b, int64_t count)
{
	double sum = 0;

	for (int64_t i = 0; i < count; i++)
		sum += (a[i] - (b ? b[i] : 0)) * (a[i] - (b ? b[i] : 0));
	return sqrt(sum);
}

static inline const json_t *list_of(const json_t *run, const char *key)
{
	const json_t *list = json_object_get(run, key);

	assert_true(json_is_array(list));
	return list;
}

/* Some elements of each trained tensor of the run in work_dir, beside how far the tensor moved. */
static inline void assert_trained(const json_t *run)
{
	int is_lora = json_is_true(json_object_get(run, "lora"));
	struct safetensors *file;
	const char *name;
	json_t *want;
	char path[400];

	snprintf(path, sizeof(path), "%s/run/%s", work_dir,
	        is_lora ? "adapter/adapter_model.safetensors" : "model/model.safetensors");
	assert_int_equal(safetensors_open(&file, path), 0);
	json_object_foreach(json_object_get(run, "final"), name, want)
	{
		const json_t *elements = list_of(want, "elements");
		int64_t count, stride = json_integer_value(json_object_get(want, "stride"));
		char full[300];
		double *got;

		snprintf(full, sizeof(full), "%s%s", is_lora ? "base_model.model." : "", name);
		got = tensor_read(file, full, &count);
		for (size_t i = 0; i < json_array_size(elements); i++) {
			double value = number_at(elements, i);

			assert_true((int64_t)i * stride < count);
			if (!(fabs(got[(int64_t)i * stride] - value) <= 1e-4 * number(want, "moved_l2")))
				fail_msg("%s: element %zu of %s is %.10g, reference %.10g",
				        json_string_value(json_object_get(run, "name")), i, name,
				        got[(int64_t)i * stride], value);
		}
		free(got);
	}
	safetensors_close(file);
}

#endif
