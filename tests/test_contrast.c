/* links: objective host */
/* Losses of embeddings: values of sentence-transformers, and gradients by differences. */
#include "objective/contrast.h"
#include "tests/check.h"

#include "host/pool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 4, WIDTH = 16, EACH = 3, COUNT = ROWS * EACH * WIDTH };
/* At the first text of each row. */
static const float scores[ROWS * 2] = {0.1f, 0, 0.9f, 0, 0.5f, 0, 0.3f},
                                 labels[ROWS * 2] = {1, 0, 0, 0, 0, 0, 1};

static const float turned[ROWS * 2] = {0, 0, 1, 0, 1};
/* At the negative of each. */
static const float margins[ROWS * EACH] = {0, 0, 0.1f, 0, 0, -1, 0, 0, 2, 0, 0, 0.3f};

/* A teacher's vectors; NULL: another rank's, whose text adds nothing. */
static const float wanted[2][WIDTH] = {{0.5f, -1, 2}, {-0.25f, 0, 1.5f, 3}};
static const float *const teacher[ROWS * EACH] = {wanted[0], wanted[1], wanted[0], wanted[1], NULL, wanted[0],
        wanted[0], NULL, wanted[1], wanted[1], wanted[0], NULL};

/* q = sin(1 + k), p = cos(k / 2), n = sin(2 + 0.7 k) with k = 16 * row + column. */
static void vectors_make(float *to, int each)
{
	for (int row = 0; row < ROWS; row++)
		for (int c = 0; c < WIDTH; c++) {
			double k = WIDTH * row + c, x[EACH] = {sin(1 + k), cos(0.5 * k), sin(2 + 0.7 * k)};

			for (int i = 0; i < each; i++)
				to[(row * each + i) * WIDTH + c] = (float)x[i];
		}
}

static void serial(
        struct pool *pool, int64_t count, void (*fn)(void *context, int64_t task, int worker), void *context)
{
	(void)pool;
	for (int64_t i = count - 1; i >= 0; i--) /* in any order */
		fn(context, i, 0);
}

/* The mean over rows of the loss. */
static double loss_of(struct contrast *c, const float *vectors, float *gradient)
{
	double loss[ROWS] = {0}, sum = 0;

	c->vectors = vectors;
	c->loss = loss;
	c->gradient = gradient;
	c->rows = ROWS;
	c->width = c->width ? c->width : WIDTH;
	c->stride = WIDTH;
	c->weight = 1.0 / ROWS;
	c->each_task = serial;
	check_ok(contrast_losses(c));
	for (int i = 0; i < ROWS; i++)
		sum += loss[i] / ROWS;
	return sum;
}

static const struct {
	struct contrast c;
	double wanted; /* 0: only its gradient is checked */
} cases[] = {
        {{.kind = CONTRAST_MNRL, .scale = 20, .each = 3}, 3.9591087663131974},
        {{.kind = CONTRAST_MNRL, .scale = 5, .each = 2}, 0},
        {{.kind = CONTRAST_SYMMETRIC_MNRL, .scale = 20, .each = 3}, 0},
        {{.kind = CONTRAST_COSENT, .scale = 20, .each = 2, .score = scores}, 7.266747422955665},
        {{.kind = CONTRAST_COSINE, .each = 2, .score = scores}, 0},
        {{.kind = CONTRAST_CONTRASTIVE, .each = 2, .score = labels}, 0},
        {{.kind = CONTRAST_CONTRASTIVE, .each = 2, .score = labels, .margin = 1.5}, 0},
        {{.kind = CONTRAST_ONLINE_CONTRASTIVE, .each = 2, .score = turned, .margin = 1.5}, 0},
        {{.kind = CONTRAST_ANGLE, .scale = 2, .each = 2, .score = scores}, 0},
        {{.kind = CONTRAST_MARGIN_MSE, .each = 3, .score = margins}, 0},
        {{.kind = CONTRAST_MSE, .each = 3, .teacher = teacher}, 0},
        {{.kind = CONTRAST_MSE, .each = 1, .teacher = teacher}, 0},
        {{.kind = CONTRAST_TRIPLET, .each = 3}, 0},
        {{.kind = CONTRAST_TRIPLET, .each = 3, .margin = 0.25}, 0},
};

static void test_values(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct contrast c = cases[i].c;
		float vectors[COUNT];
		double got;

		vectors_make(vectors, (int)c.each);
		got = loss_of(&c, vectors, NULL);
		if (cases[i].wanted != 0 && !(fabs(got - cases[i].wanted) <= 1e-6 * cases[i].wanted))
			fail_msg("case %zu: %.15g, wanted %.15g", i, got, cases[i].wanted);
		assert_true(got > 0);
	}
}

/* Formulas in their usual form, for one row after the other. */
static void test_formulas(void **state)
{
	struct contrast c = {.kind = CONTRAST_TRIPLET, .each = 3, .margin = 5};
	float x[COUNT];
	double sum = 0, both, one, other;

	(void)state;
	vectors_make(x, 3);
	for (int row = 0; row < ROWS; row++) {
		double near = 0, far = 0;

		for (int i = 0; i < WIDTH; i++) {
			const float *a = x + row * 3 * WIDTH + i;

			near += ((double)a[0] - (double)a[WIDTH]) * ((double)a[0] - (double)a[WIDTH]);
			far += ((double)a[0] - (double)a[2 * WIDTH]) * ((double)a[0] - (double)a[2 * WIDTH]);
		}
		sum += fmax(0, sqrt(near) - sqrt(far) + 5) / ROWS;
	}
	assert_true(fabs(loss_of(&c, x, NULL) - sum) < 1e-9);
	c.margin = 0; /* the usual one */
	assert_true(fabs(loss_of(&c, x, NULL) - sum) < 1e-9);

	/* symmetric: the mean of both directions, where a swapped pair of texts gives the other one */
	vectors_make(x, 2);
	c = (struct contrast){.kind = CONTRAST_MNRL, .scale = 20, .each = 2};
	one = loss_of(&c, x, NULL);
	c.kind = CONTRAST_SYMMETRIC_MNRL;
	both = loss_of(&c, x, NULL);
	for (int row = 0; row < ROWS; row++)
		for (int i = 0; i < WIDTH; i++) {
			float *a = x + row * 2 * WIDTH + i, kept = a[0];

			a[0] = a[WIDTH];
			a[WIDTH] = kept;
		}
	c.kind = CONTRAST_MNRL;
	other = loss_of(&c, x, NULL);
	assert_true(fabs(both - (one + other) / 2) < 1e-6 * both);
}

/* Losses of a cosine, row by row: its square distance from the score; by the label, that of the distance from
 * 0 or from the margin, halved. */
static void test_cosines(void **state)
{
	struct contrast cosine = {.kind = CONTRAST_COSINE, .each = 2, .score = scores},
	                contrastive = {.kind = CONTRAST_CONTRASTIVE, .each = 2, .score = labels};
	double want[3] = {0};
	float x[COUNT];

	(void)state;
	vectors_make(x, 2);
	for (int row = 0; row < ROWS; row++) {
		double dot = 0, square[2] = {0}, distance, y = (double)labels[2 * row];

		for (int i = 0; i < WIDTH; i++) {
			const double a = (double)x[row * 2 * WIDTH + i],
			             b = (double)x[(row * 2 + 1) * WIDTH + i];

			dot += a * b;
			square[0] += a * a;
			square[1] += b * b;
		}
		distance = 1 - dot / sqrt(square[0] * square[1]);
		want[0] += pow(1 - distance - (double)scores[2 * row], 2) / ROWS;
		for (int i = 0; i < 2; i++) {
			double left = fmax(0, (i ? 1.5 : 0.5) - distance);

			want[1 + i] += 0.5 * (y * distance * distance + (1 - y) * left * left) / ROWS;
		}
	}
	assert_true(fabs(loss_of(&cosine, x, NULL) - want[0]) < 1e-6);
	assert_true(fabs(loss_of(&contrastive, x, NULL) - want[1]) < 1e-6);
	contrastive.margin = 1.5;
	assert_true(fabs(loss_of(&contrastive, x, NULL) - want[2]) < 1e-6);
}

static void test_gradients(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct contrast c = cases[i].c;
		int count = ROWS * (int)c.each * WIDTH;
		float x[COUNT], gradient[COUNT] = {0};

		vectors_make(x, (int)c.each);
		loss_of(&c, x, gradient);
		for (int k = 0; k < count; k++) {
			const float here = x[k], up = here + 1e-2f, down = here - 1e-2f;
			double rise, slope;

			x[k] = up;
			rise = loss_of(&c, x, NULL);
			x[k] = down;
			rise -= loss_of(&c, x, NULL);
			x[k] = here;
			slope = rise / ((double)up - (double)down);
			if (!(fabs((double)gradient[k] - slope) <= 3e-3 * (1 + fabs(slope))))
				fail_msg("case %zu, element %d: %g, by differences %g", i, k,
				        (double)gradient[k], slope);
		}
	}
}

/* A loss of vectors with a NaN is NaN, and so is their gradient: a run with skip_nonfinite sees it. */
static void test_nan(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		for (int text = 0; text < (int)cases[i].c.each; text++) {
			struct contrast c = cases[i].c;
			float x[COUNT], gradient[COUNT] = {0};
			int count = 0;

			vectors_make(x, (int)c.each);
			x[text * WIDTH] = NAN;
			if (!isnan(loss_of(&c, x, gradient)))
				fail_msg("case %zu, text %d: the loss is a number", i, text);
			for (int k = 0; k < COUNT; k++)
				count += isnan(gradient[k]);
			if (!count)
				fail_msg("case %zu, text %d: the gradient has numbers only", i, text);
		}
}

/* More rows than are ranked at once, on threads: the bits of one thread. A vector of zeros gives no NaN. */
static void test_many(void **state)
{
	enum { MANY = 150, WIDE = 70 };
	static float x[MANY * 2 * WIDE], one[MANY * 2 * WIDE], all[MANY * 2 * WIDE];
	double loss_one[MANY] = {0}, loss_all[MANY] = {0};
	struct contrast c = {.kind = CONTRAST_MNRL,
	        .scale = 20,
	        .rows = MANY,
	        .each = 2,
	        .width = WIDE,
	        .stride = WIDE,
	        .vectors = x,
	        .loss = loss_one,
	        .gradient = one,
	        .weight = 1,
	        .each_task = serial};

	(void)state;
	for (int i = 0; i < MANY * 2 * WIDE; i++)
		x[i] = i < WIDE ? 0 : (float)sin(i * 1.7);
	check_ok(contrast_losses(&c));
	check_ok(pool_open(&c.pool, 3));
	c.loss = loss_all;
	c.gradient = all;
	c.each_task = pool_run;
	check_ok(contrast_losses(&c));
	pool_close(c.pool);
	assert_memory_equal(loss_one, loss_all, sizeof(loss_one));
	assert_memory_equal(one, all, sizeof(one));
	for (int i = 0; i < MANY * 2 * WIDE; i++)
		assert_true(isfinite(one[i]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_formulas),
	        cmocka_unit_test(test_cosines), cmocka_unit_test(test_gradients), cmocka_unit_test(test_nan),
	        cmocka_unit_test(test_many)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
