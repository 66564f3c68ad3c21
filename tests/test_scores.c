/* links: objective */
/* Numbers over the rows of an evaluation beside scikit-learn, SciPy and sentence-transformers
 * (golden/make_scores.py). */
#include "objective/scores.h"
#include "tests/check.h"

#include "base/json.h"
#include "base/mem.h"
#include "model/blocks/blocks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void serial(
        struct pool *pool, int64_t count, void (*fn)(void *context, int64_t task, int worker), void *context)
{
	(void)pool;
	for (int64_t i = count - 1; i >= 0; i--) /* in any order */
		fn(context, i, 0);
}

static json_t *golden(void)
{
	char path[600];
	json_t *root = NULL;

	snprintf(path, sizeof(path), "%s/tests/golden/scores.json", getenv("FERRY_SOURCE"));
	check_ok(json_read_file(&root, path, 1 << 24));
	return root;
}

static double at(const json_t *list, size_t i)
{
	return json_number_value(json_array_get(list, i));
}

/* Both have the same names and values; null: undefined. */
static void scores_check(const struct scores *got, const json_t *scores)
{
	assert_int_equal(got->count, json_object_size(scores));
	for (int i = 0; i < got->count; i++) {
		const json_t *value = json_object_get(scores, got->of[i].name);

		if (!value)
			fail_msg("%s is not in the golden file", got->of[i].name);
		if (json_is_null(value) ? !isnan(got->of[i].value)
		                        : !(fabs(got->of[i].value - json_number_value(value)) <= 1e-12))
			fail_msg("%s: %.17g, golden %.17g", got->of[i].name, got->of[i].value,
			        json_number_value(value));
	}
}

/* Logits of which the largest is at the found class, twice, so that the first of them counts. */
static void test_classes(void **state)
{
	json_t *root = golden();
	const json_t *c;
	size_t n;

	(void)state;
	json_array_foreach(json_object_get(root, "classes"), n, c)
	{
		const json_t *label = json_object_get(c, "label"), *found = json_object_get(c, "found");
		int64_t count = (int64_t)json_array_size(label),
		        width = json_integer_value(json_object_get(c, "classes")),
		        stride = width + VECTOR_FACTS;
		float *row = mem_alloc((size_t)(count * stride), sizeof(*row));
		struct scored rows = {.rows = count, .each = 1, .width = width, .stride = stride, .row = row};
		struct scores got = {0};

		for (int64_t i = 0; i < count; i++) {
			int64_t right = (int64_t)at(found, (size_t)i);

			for (int64_t k = 0; k < width; k++)
				row[i * stride + k] = k < right ? -3 : 2;
			row[i * stride + width + VECTOR_LABEL] = (float)at(label, (size_t)i);
		}
		assert_int_equal(scores_of_logits(&got, &rows), 0);
		scores_check(&got, json_object_get(c, "scores"));
		row[width + VECTOR_LABEL] = (float)width;
		assert_int_not_equal(scores_of_logits(&got, &rows), 0);
		mem_free(row);
	}
	json_decref(root);
}

static void test_numbers(void **state)
{
	json_t *root = golden();
	const json_t *c;
	size_t n;

	(void)state;
	json_array_foreach(json_object_get(root, "numbers"), n, c)
	{
		const json_t *label = json_object_get(c, "label"), *found = json_object_get(c, "found");
		float row[8][1 + VECTOR_FACTS] = {{0}};
		struct scored rows = {.rows = (int64_t)json_array_size(label),
		        .each = 1,
		        .width = 1,
		        .stride = 1 + VECTOR_FACTS,
		        .row = row[0]};
		struct scores got = {0};

		for (size_t i = 0; i < (size_t)rows.rows; i++) {
			row[i][0] = (float)at(found, i);
			row[i][1 + VECTOR_LABEL] = (float)at(label, i);
		}
		assert_int_equal(scores_of_numbers(&got, &rows), 0);
		scores_check(&got, json_object_get(c, "scores"));
	}
	json_decref(root);
}

/* The first row with this name. */
static int64_t first_of(const json_t *names, int64_t each, int64_t n)
{
	const char *name = json_string_value(
	        json_array_get(json_array_get(names, (size_t)(n / each)), (size_t)(n % each)));

	for (int64_t i = 0; i < n; i++)
		if (!strcmp(name, json_string_value(json_array_get(
		                          json_array_get(names, (size_t)(i / each)), (size_t)(i % each)))))
			return i;
	return n;
}

static void vectors_check(const json_t *c, int64_t width)
{
	const json_t *names = json_object_get(c, "names"), *label = json_object_get(c, "label");
	const char *kind = json_string_value(json_object_get(c, "kind"));
	int64_t each = (int64_t)json_array_size(json_array_get(names, 0)),
	        count = (int64_t)json_array_size(names) * each, stride = width + VECTOR_FACTS;
	float *row = mem_alloc((size_t)(count * stride), sizeof(*row));
	int64_t *text = mem_alloc((size_t)count, sizeof(*text));
	struct scored rows = {.rows = count,
	        .each = each,
	        .width = width,
	        .stride = stride,
	        .row = row,
	        .text = text,
	        .each_task = serial};
	struct scores got = {0};

	for (int64_t n = 0; n < count; n++) {
		int64_t of = text[n] = first_of(names, each, n);

		for (int64_t i = 0; i < width; i++)
			row[n * stride + i] =
			        (float)sin((double)(of * width + i) * 0.9 + (double)(of % each) * 2.3 +
			                   (double)(of / each) * 1.7);
		row[n * stride + width + VECTOR_LABEL] = (float)at(label, (size_t)(n / each));
	}
	assert_int_equal(!strcmp(kind, "pairs")      ? scores_of_pairs(&got, &rows)
	                 : !strcmp(kind, "triplets") ? scores_of_triplets(&got, &rows)
	                                             : scores_of_retrieval(&got, &rows),
	        0);
	scores_check(&got, json_object_get(c, "scores"));
	mem_free(row);
	mem_free(text);
}

static void test_vectors(void **state)
{
	json_t *root = golden();
	const json_t *c;
	size_t n;

	(void)state;
	json_array_foreach(json_object_get(root, "vectors"), n, c)
	        vectors_check(c, json_integer_value(json_object_get(root, "width")));
	json_decref(root);
}

/* Without rows each gives its names, undefined. */
static void test_names(void **state)
{
	int (*const of[])(struct scores *, const struct scored *) = {scores_of_logits, scores_of_numbers,
	        scores_of_pairs, scores_of_triplets, scores_of_retrieval};
	static const int counts[] = {7, 3, 2, 1, 7};

	(void)state;
	for (size_t i = 0; i < sizeof(of) / sizeof(*of); i++) {
		struct scored none = {.each = 2, .width = 3, .stride = 3 + VECTOR_FACTS, .each_task = serial};
		struct scores got = {0};

		assert_int_equal(of[i](&got, &none), 0);
		assert_int_equal(got.count, counts[i]);
		for (int k = 0; k < got.count; k++)
			assert_true(isnan(got.of[k].value));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_classes), cmocka_unit_test(test_numbers),
	        cmocka_unit_test(test_vectors), cmocka_unit_test(test_names)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
