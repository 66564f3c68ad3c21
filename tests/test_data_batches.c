/* links: data */
/* Steps without duplicates: each row once an epoch, no text twice in a step, the same on ranks and after
 * resuming. */
#include "data/batches.h"
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS = 203, EACH = 3 };

static struct sampler sampler_of(int64_t batch_rows, int64_t accumulation, int world_size, int rank)
{
	struct sampler s = {.row_count = ROWS,
	        .order = SAMPLER_ORDER_SHUFFLE,
	        .seed = 5,
	        .batch_rows = batch_rows,
	        .accumulation = accumulation,
	        .world_size = world_size,
	        .rank = rank};

	check_ok(sampler_init(&s));
	return s;
}

/* Row r has an anchor of `anchors` different ones, a positive of its own, and a negative of `others`. */
static void texts_make(uint64_t *text, int anchors, int others)
{
	for (int r = 0; r < ROWS; r++) {
		text[r * EACH] = (uint64_t)(r % anchors) << 40 | 7;
		text[r * EACH + 1] = (uint64_t)r << 20 | 3;
		text[r * EACH + 2] = (uint64_t)(r * 5 % others) << 40 | 11;
	}
}

static void epoch_check(struct batches *b, const struct sampler *s, const uint64_t *text, int64_t epoch)
{
	int seen[ROWS] = {0};
	int64_t before = 0;

	for (int64_t step = 0; step < batches_per_epoch(b); step++) {
		const int64_t *rows;
		int64_t count;

		assert_int_equal(batches_rows_before(b, epoch, step), before);
		count = batches_rows(b, &rows, epoch, step);
		assert_true(count > 0 && count <= s->step_rows);
		for (int64_t i = 0; i < count; i++) {
			seen[rows[i]]++;
			for (int64_t k = 0; k < i * EACH; k++)
				for (int t = 0; t < EACH; t++)
					assert_true(text[rows[i] * EACH + t] !=
					            text[rows[k / EACH] * EACH + k % EACH]);
		}
		before += count;
	}
	assert_int_equal(before, ROWS);
	for (int r = 0; r < ROWS; r++)
		assert_int_equal(seen[r], 1);
}

static void test_groups(void **state)
{
	static const struct {
		int anchors, others;
		int64_t rows, steps; /* steps 0: as few as rows allow, or a few more */
	} cases[] = {{ROWS, ROWS, 8, 26}, {100, 150, 8, 0}, {60, ROWS, 16, 0}, {3, ROWS, 16, 68},
	        {1, 1, 16, ROWS}, {ROWS, ROWS, 1, ROWS}, {ROWS, ROWS, 300, 1}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct sampler s = sampler_of(cases[i].rows, 1, 1, 0);
		uint64_t text[ROWS * EACH];
		struct batches *b;

		texts_make(text, cases[i].anchors, cases[i].others);
		check_ok(batches_open(&b, &s, text, EACH));
		if (cases[i].steps)
			assert_int_equal(batches_per_epoch(b), cases[i].steps);
		else
			assert_in_range(batches_per_epoch(b), s.steps_per_epoch, s.steps_per_epoch + 6);
		for (int64_t epoch = 0; epoch < 6; epoch++)
			epoch_check(b, &s, text, epoch);
		batches_close(b);
	}
}

/* Every rank has its part of the same steps, in any order of asking, and epochs differ. */
static void test_ranks(void **state)
{
	struct sampler one = sampler_of(8, 1, 1, 0),
	               two[2] = {sampler_of(2, 2, 2, 0), sampler_of(2, 2, 2, 1)};
	uint64_t text[ROWS * EACH];
	struct batches *b[3];
	int64_t differ = 0;

	(void)state;
	texts_make(text, 20, ROWS);
	check_ok(batches_open(&b[0], &one, text, EACH));
	sampler_use(&one, batches_steps(b[0]));
	for (int r = 0; r < 2; r++) {
		check_ok(batches_open(&b[1 + r], &two[r], text, EACH));
		sampler_use(&two[r], batches_steps(b[1 + r]));
	}
	for (int64_t step = 3 * one.steps_per_epoch - 1; step >= 0; step--) {
		int64_t all = sampler_step_rows(&one, step), got = 0;

		assert_int_equal(sampler_micro_count(&two[0], step), (all - 1) / 4 + 1);
		for (int64_t m = 0; m < sampler_micro_count(&two[0], step); m++)
			for (int r = 0; r < 2; r++) {
				int64_t rows[2], count = sampler_rows(&two[r], rows, step, m);

				for (int64_t i = 0; i < count; i++)
					assert_int_equal(rows[i], sampler_step_row(&one, step, got++));
			}
		assert_int_equal(got, all);
		differ += step >= one.steps_per_epoch &&
		          sampler_step_row(&one, step, 0) !=
		                  sampler_step_row(&one, step % one.steps_per_epoch, 0);
	}
	assert_true(differ > one.steps_per_epoch);
	assert_true(sampler_epochs_done(&one, 2 * one.steps_per_epoch) == 2);
	for (int i = 0; i < 3; i++)
		batches_close(b[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_groups), cmocka_unit_test(test_ranks)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
