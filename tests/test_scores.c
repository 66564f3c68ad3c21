/* links: objective */
/* Numbers over the rows of an evaluation beside scikit-learn, SciPy and sentence-transformers
 * (golden/make_scores.py). */
#include "objective/objective.h"
#include "tests/check.h"

#include "base/json.h"
#include "base/mem.h"
#include "model/blocks/blocks.h"
#include "objective/contrast_units.h"

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

/* ---- chunks of words (golden/make_tags.py) ---- */

enum { TAG_WORDS_MAX = 128 };

static struct label_tag tag_of(const json_t *names, size_t i)
{
	const char *name = json_string_value(json_array_get(names, i));
	size_t same = 0;

	while (strcmp(json_string_value(json_array_get(names, same)) + 1, name + 1) != 0)
		same++;
	return (struct label_tag){*name, (int)same};
}

static void test_tags(void **state)
{
	char path[600];
	json_t *root = NULL;
	const json_t *c, *row;
	size_t n, r, word;

	(void)state;
	snprintf(path, sizeof(path), "%s/tests/golden/tags.json", getenv("FERRY_SOURCE"));
	check_ok(json_read_file(&root, path, 1 << 24));
	assert_true(json_array_size(root) > 50);
	json_array_foreach(root, n, c)
	{
		static const char *const scores[] = {"accuracy", "precision", "recall", "f1"};
		const json_t *names = json_object_get(c, "names"), *found = json_object_get(c, "found");
		struct label_tag tag[8];
		int32_t label[TAG_WORDS_MAX], rows[TAG_WORDS_MAX], start[TAG_WORDS_MAX];
		float losses[2 * TAG_WORDS_MAX] = {0};
		struct host_batch batch = {
		        .own = {label}, .target_row = rows, .doc_start = start, .tag = tag};
		double sums[OBJECTIVE_SUMS_MAX] = {0};
		struct scores got = {0};

		for (size_t i = 0; i < json_array_size(names); i++)
			tag[i] = tag_of(names, i);
		json_array_foreach(json_object_get(c, "want"), r, row)
		{
			int32_t begin = (int32_t)batch.targets;

			for (size_t i = 0; i < json_array_size(row); i++, batch.targets++) {
				label[batch.targets] = (int32_t)at(row, i);
				rows[batch.targets] = (int32_t)batch.targets;
				start[batch.targets] = begin;
			}
		}
		word = (size_t)batch.targets;
		json_array_foreach(found, r, row)
		{
			for (size_t i = 0; i < json_array_size(row); i++) {
				int32_t class = (int32_t)at(row, i);

				memcpy(&losses[word++], &class, sizeof(class));
			}
		}
		objective_token_classification.sums_add(sums, NULL, &batch, losses);
		objective_token_classification.scores_of_sums(&got, sums, tag);
		assert_int_equal(got.count, 4);
		for (int k = 0; k < 4; k++) {
			assert_string_equal(got.of[k].name, scores[k]);
			assert_true(fabs(got.of[k].value - json_number_value(json_object_get(c, scores[k]))) <
			            1e-12);
		}
		tag[0].kind = 0; /* labels that name no chunks */
		got.count = 0;
		objective_token_classification.scores_of_sums(&got, sums, tag);
		assert_int_equal(got.count, 1);
	}
	json_decref(root);
}

/* Many texts, all directions nearly the same, so that fp32 cannot tell which are nearer: as a plain search in
 * double finds them. */
static void test_many(void **state)
{
	enum { UNITS = 700, WIDTH = 37, STRIDE = WIDTH + VECTOR_FACTS };
	float *row = mem_alloc((size_t)2 * UNITS * STRIDE, sizeof(*row));
	int64_t *text = mem_alloc((size_t)2 * UNITS, sizeof(*text));
	struct scored rows = {2 * UNITS, 2, WIDTH, STRIDE, row, text, NULL, serial};

	(void)state;
	for (int nearness = 0; nearness < 4; nearness++) {
		double mrr = 0, map = 0, noise = pow(10, -3 * nearness);
		struct scores got = {0};

		for (int64_t n = 0; n < 2 * UNITS; n++) {
			text[n] = n;
			for (int64_t i = 0; i < WIDTH; i++)
				row[n * STRIDE + i] =
				        (float)(1 + i % 3 + noise * sin((double)(n * n + 7 * i * n + i)));
		}
		for (int64_t q = 0; q < UNITS; q++) {
			double own = 0;
			int64_t before = 0;

			for (int pass = 0; pass < 2; pass++)
				for (int64_t d = pass ? 0 : q; d < (pass ? UNITS : q + 1); d++) {
					const float *x = row + 2 * q * STRIDE,
					            *y = row + (2 * d + 1) * STRIDE;
					double length = sqrt(units_dot(y, y, WIDTH)),
					       near = units_dot(x, y, WIDTH) / length;

					own = pass ? own : near;
					before += pass && (near > own || (near == own && d < q));
				}
			mrr += before < 10 ? 1 / (double)(before + 1) : 0;
			map += before < 100 ? 1 / (double)(before + 1) : 0;
		}
		assert_int_equal(scores_of_retrieval(&got, &rows), 0);
		assert_string_equal(got.of[4].name, "cosine_mrr@10");
		assert_true(fabs(got.of[4].value - mrr / UNITS) < 1e-12);
		assert_string_equal(got.of[6].name, "cosine_map@100");
		assert_true(fabs(got.of[6].value - map / UNITS) < 1e-12);
	}
	mem_free(row);
	mem_free(text);
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

/* A model that gives NaN, or vectors with infinity, has no score: none looks like a good one. */
static void test_not_finite(void **state)
{
	int (*const of[])(struct scores *, const struct scored *) = {scores_of_logits, scores_of_numbers,
	        scores_of_pairs, scores_of_triplets, scores_of_retrieval};
	enum { ROWS = 12, WIDTH = 3, STRIDE = WIDTH + VECTOR_FACTS, LOGITS = 0, VECTORS = 2, CASES = 5 };

	(void)state;
	for (int i = 0; i < CASES * 4; i++) {
		int which = i / 4, at = i % 2, is_infinite = i % 4 > 1;
		float row[ROWS][STRIDE];
		int64_t text[ROWS];
		struct scored rows = {.rows = ROWS,
		        .each = 3,
		        .width = WIDTH,
		        .stride = STRIDE,
		        .row = row[0],
		        .text = text,
		        .each_task = serial};
		struct scores got = {0};

		for (int64_t n = 0; n < ROWS; n++) {
			for (int64_t k = 0; k < STRIDE; k++)
				row[n][k] = (float)((n * 7 + k * 5) % 3);
			text[n] = n;
		}
		if (is_infinite && which < VECTORS) /* a number, or the largest logit */
			continue;
		row[3 + at][which == LOGITS] = is_infinite ? INFINITY : NAN;
		assert_int_equal(of[which](&got, &rows), 0);
		assert_true(got.count > 0);
		for (int k = 0; k < got.count; k++)
			if (!isnan(got.of[k].value))
				fail_msg("%s: %g", got.of[k].name, got.of[k].value);
	}
}

/* NaN, which has either sign, is no right answer. */
static void test_nan_is_not_right(void **state)
{
	const float losses[] = {0.5F, -0.5F, NAN, -NAN};
	const struct host_batch batch = {.targets = 4};
	double sums[OBJECTIVE_SUMS_MAX] = {0}, metrics[OBJECTIVE_METRICS_MAX] = {0};

	(void)state;
	objective_classification.sums_add(sums, NULL, &batch, losses);
	objective_classification.metrics_find(metrics, sums, 4);
	assert_true(isnan(sums[0]));
	assert_true(metrics[0] == 0.25);
}

/* Two queries at the ends of a fan of documents, which are nearest in ascending and in descending order. */
static void test_far_places(void **state)
{
	enum { DOCUMENTS = 250, WIDTH = 2, STRIDE = WIDTH + VECTOR_FACTS };
	static float row[2 * DOCUMENTS][STRIDE];
	int64_t text[2 * DOCUMENTS], first[2] = {0, 2}, place[2][DOCUMENTS], count[2] = {0, 0};
	struct scored rows = {.rows = 2 * DOCUMENTS,
	        .each = 2,
	        .width = WIDTH,
	        .stride = STRIDE,
	        .row = row[0],
	        .text = text,
	        .each_task = serial};
	struct scores got = {0};
	double map = 0, ndcg = 0;

	(void)state;
	for (int64_t d = 0; d < DOCUMENTS; d++) {
		int of = d % 3 == 1;
		double size = 1 + (double)(d % 5), angle = 0.005 * (double)d;

		text[2 * d] = first[of];
		text[2 * d + 1] = 2 * d + 1;
		row[2 * d][0] = (float)cos(of ? 0.005 * DOCUMENTS : 0);
		row[2 * d][1] = (float)sin(of ? 0.005 * DOCUMENTS : 0);
		row[2 * d + 1][0] = (float)(size * cos(angle));
		row[2 * d + 1][1] = (float)(size * sin(angle));
		place[of][count[of]++] = of ? DOCUMENTS - 1 - d : d;
	}
	for (int of = 0; of < 2; of++) {
		double hits = 0, best = 0, gain = 0, sum = 0;

		for (int64_t p = 0; p < 100; p++)
			for (int64_t i = 0; i < count[of]; i++)
				if (place[of][i] == p) {
					sum += ++hits / (double)(p + 1);
					gain += p < 10 ? 1 / log2((double)(p + 2)) : 0;
				}
		for (int i = 0; i < 10; i++)
			best += 1 / log2(i + 2.0);
		ndcg += gain / best / 2;
		map += sum / (double)(count[of] < 100 ? count[of] : 100) / 2;
	}
	assert_int_equal(scores_of_retrieval(&got, &rows), 0);
	assert_string_equal(got.of[5].name, "cosine_ndcg@10");
	assert_true(fabs(got.of[5].value - ndcg) <= 1e-12);
	assert_true(fabs(got.of[6].value - map) <= 1e-12);
	assert_true(map > 0.2 && map < 0.8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_classes), cmocka_unit_test(test_numbers),
	        cmocka_unit_test(test_vectors), cmocka_unit_test(test_many), cmocka_unit_test(test_tags),
	        cmocka_unit_test(test_names), cmocka_unit_test(test_not_finite),
	        cmocka_unit_test(test_nan_is_not_right), cmocka_unit_test(test_far_places)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
