/* links: objective config */
/* Losses of vectors and their gradients beside those of sentence-transformers (golden/make_contrast.py). */
#include "objective/contrast.h"
#include "tests/check.h"

#include "base/json.h"
#include "config/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 5, EACH_MAX = 4, WIDTH_MAX = 10, COUNT_MAX = ROWS * EACH_MAX * WIDTH_MAX };

static void serial(
        struct pool *pool, int64_t count, void (*fn)(void *context, int64_t task, int worker), void *context)
{
	(void)pool;
	for (int64_t i = count - 1; i >= 0; i--) /* in any order */
		fn(context, i, 0);
}

/* The value of a word of a key, 0 if the case has none. */
static int word_of(const json_t *c, const char *name, const char *key)
{
	const char *text = json_string_value(json_object_get(c, name));

	for (const struct config_word *w = config_key_find(key)->words; text && w->name; w++)
		if (!strcmp(w->name, text))
			return w->value;
	assert_null(text);
	return 0;
}

static double real_of(const json_t *c, const char *name, double usual)
{
	const json_t *value = json_object_get(c, name);

	return value ? json_number_value(value) : usual;
}

static int directions_of(const json_t *c)
{
	int bits = 0;
	size_t i;
	json_t *name;

	json_array_foreach(json_object_get(c, "directions"), i, name)
	{
		for (const struct config_word *w = config_key_find("embedding_directions")->words; w->name;
		        w++)
			if (!strcmp(w->name, json_string_value(name)))
				bits |= w->value;
	}
	return bits;
}

static void dims_take(struct contrast *c, const json_t *given)
{
	const json_t *dims = json_object_get(given, "dims"), *weights = json_object_get(given, "weights");

	c->dim_count = (int)json_array_size(dims);
	for (int i = 0; i < c->dim_count; i++) {
		c->dim[i] = json_integer_value(json_array_get(dims, (size_t)i));
		c->dim_weight[i] = weights ? json_number_value(json_array_get(weights, (size_t)i)) : 1;
	}
}

/* A row's label at its first text; labels of MARGIN_MSE at its negatives, as differences. */
static void scores_take(float *score, const struct contrast *c, const json_t *labels)
{
	for (int64_t row = 0; row < c->rows; row++) {
		const json_t *label = json_array_get(labels, (size_t)row);
		int64_t listed = (int64_t)json_array_size(label);

		score[row * c->each] = labels ? (float)json_number_value(label) : 1;
		if (c->kind != CONTRAST_MARGIN_MSE)
			continue;
		for (int64_t k = 2; k < c->each; k++) {
			const json_t *own =
			        listed ? json_array_get(label, (size_t)(k - 2 + (listed == c->each - 1)))
			               : label;
			double first =
			        listed == c->each - 1 ? json_number_value(json_array_get(label, 0)) : 0;

			score[row * c->each + k] =
			        (float)(listed == c->each - 1 ? first - json_number_value(own)
			                                      : json_number_value(own));
		}
	}
}

/* Vectors of a teacher: one for all texts of a row, or one for each. */
static void teacher_take(
        const float **teacher, float *numbers, const struct contrast *c, const json_t *labels)
{
	for (int64_t n = 0; n < c->rows * c->each && c->kind == CONTRAST_MSE; n++) {
		const json_t *label = json_array_get(labels, (size_t)(n / c->each));

		if (json_is_array(json_array_get(label, 0)))
			label = json_array_get(label, (size_t)(n % c->each));
		teacher[n] = numbers + n * c->width;
		assert_int_equal(json_array_size(label), c->width);
		for (int64_t i = 0; i < c->width; i++)
			numbers[n * c->width + i] =
			        (float)json_number_value(json_array_get(label, (size_t)i));
	}
}

static void vectors_make(float *x, const struct contrast *c)
{
	for (int64_t k = 0; k < c->rows * c->each * c->width; k++) {
		int64_t document = k / c->width;

		x[k] = (float)sin((double)(k % 97) * 0.9 + (double)(document % c->each) * 2.3 +
		                  (double)(document / c->each) * 1.7);
	}
}

static void case_check(size_t number, const json_t *given)
{
	float x[COUNT_MAX], gradient[COUNT_MAX] = {0}, score[ROWS * EACH_MAX] = {0}, numbers[COUNT_MAX];
	const float *teacher[ROWS * EACH_MAX] = {0};
	double loss[ROWS] = {0}, mean = 0, wanted = real_of(given, "value", NAN), largest = 0;
	const json_t *slopes = json_object_get(given, "gradient");
	struct contrast c = {.kind = (enum contrast_kind)word_of(given, "loss", "embedding_loss"),
	        .similarity = (enum contrast_similarity)word_of(given, "similarity", "embedding_similarity"),
	        .scale = real_of(given, "scale", 20),
	        .margin = real_of(given, "margin", 0),
	        .directions = directions_of(given),
	        .is_per_direction = word_of(given, "partition", "embedding_partition"),
	        .hardness = (enum contrast_hardness)word_of(given, "hardness", "embedding_hardness"),
	        .hardness_strength = real_of(given, "strength", 0),
	        .rows = ROWS,
	        .each = (int64_t)real_of(given, "each", 0),
	        .width = (int64_t)real_of(given, "width", 0),
	        .vectors = x,
	        .score = score,
	        .teacher = teacher,
	        .loss = loss,
	        .gradient = gradient,
	        .weight = 1.0 / ROWS,
	        .each_task = serial};

	c.stride = c.width;
	dims_take(&c, given);
	if (c.kind == CONTRAST_MSE)
		teacher_take(teacher, numbers, &c, json_object_get(given, "labels"));
	else
		scores_take(score, &c, json_object_get(given, "labels"));
	vectors_make(x, &c);
	check_ok(contrast_losses(&c));
	for (int i = 0; i < ROWS; i++)
		mean += loss[i] / ROWS;
	if (!(fabs(mean - wanted) <= 1e-6 * fmax(1, fabs(wanted))))
		fail_msg("case %zu: the loss is %.12g, wanted %.12g", number, mean, wanted);
	assert_int_equal(json_array_size(slopes), c.rows * c.each * c.width);
	for (size_t k = 0; k < json_array_size(slopes); k++)
		largest = fmax(largest, fabs(json_number_value(json_array_get(slopes, k))));
	assert_true(largest > 0);
	for (size_t k = 0; k < json_array_size(slopes); k++) {
		double slope = json_number_value(json_array_get(slopes, k));

		if (!(fabs((double)gradient[k] - slope) <= 2e-6 * largest))
			fail_msg("case %zu, component %zu: the gradient is %.9g, wanted %.9g", number, k,
			        (double)gradient[k], slope);
	}
}

static void test_cases(void **state)
{
	char path[1000];
	json_t *root = NULL, *given;
	size_t i;

	(void)state;
	snprintf(path, sizeof(path), "%s/tests/golden/contrast.json", getenv("FERRY_SOURCE"));
	check_ok(json_read_file(&root, path, 1 << 26));
	assert_true(json_array_size(json_object_get(root, "cases")) > 50);
	json_array_foreach(json_object_get(root, "cases"), i, given) case_check(i, given);
	json_decref(root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
