/* links: data */
/* Steps of several data sets that stay apart: lengths of an epoch, every row of each set, the same order
 * on ranks and after resuming. */
#include "data/turns.h"
#include "tests/check.h"

#include <string.h>

enum { SETS = 3, BATCH = 8, ROWS_MAX = 43 };
static const int64_t set_rows[SETS] = {43, 27, 16};

static struct sampler sampler_make(
        int64_t rows, uint64_t stream, int64_t batch_rows, int world_size, int rank)
{
	struct sampler s = {.row_count = rows,
	        .order = SAMPLER_ORDER_SHUFFLE,
	        .seed = 7,
	        .stream = stream,
	        .batch_rows = batch_rows,
	        .accumulation = 1,
	        .world_size = world_size,
	        .rank = rank};

	check_ok(sampler_init(&s));
	return s;
}

/* A sampler of the sets' turns; the caller closes *t. */
static struct sampler turns_make(
        struct turns **t, enum turns_order order, int64_t batch_rows, int world_size, int rank)
{
	struct sampler all = sampler_make(43 + 27 + 16, 0, batch_rows, world_size, rank);
	struct turns_set sets[SETS];
	int64_t first = 0;

	for (int i = 0; i < SETS; i++) {
		sets[i] = (struct turns_set){
		        sampler_make(set_rows[i], PERMUTATION_STREAM_APART(i), batch_rows, world_size, rank),
		        first};
		first += set_rows[i];
	}
	check_ok(turns_open(t, sets, SETS, order, 7));
	sampler_use(&all, turns_steps(*t));
	return all;
}

static int64_t first_of(int set)
{
	return set ? first_of(set - 1) + set_rows[set - 1] : 0;
}

/* Counts each row of an epoch, and checks that a step has rows of one set. */
static void epoch_count(int seen[SETS][ROWS_MAX], int64_t steps[SETS], const struct sampler *s, int64_t epoch)
{
	memset(seen, 0, SETS * sizeof(*seen));
	memset(steps, 0, SETS * sizeof(*steps));
	for (int64_t at = 0; at < s->steps_per_epoch; at++) {
		int64_t step = epoch * s->steps_per_epoch + at;
		int set = sampler_step_set(s, step);

		steps[set]++;
		assert_true(sampler_step_rows(s, step) > 0 && sampler_step_rows(s, step) <= BATCH);
		for (int64_t i = 0; i < sampler_step_rows(s, step); i++) {
			int64_t row = sampler_step_row(s, step, i) - first_of(set);

			assert_true(row >= 0 && row < set_rows[set]);
			seen[set][row]++;
		}
	}
}

/* Every row of every set once an epoch, in another order each time. */
static void test_proportional(void **state)
{
	struct turns *t;
	struct sampler s = turns_make(&t, TURNS_PROPORTIONAL, BATCH, 1, 0);
	int seen[SETS][ROWS_MAX], differ = 0, alternations = 0;
	int64_t steps[SETS];

	(void)state;
	assert_int_equal(s.steps_per_epoch, 6 + 4 + 2);
	assert_int_equal(s.row_count, 43 + 27 + 16);
	for (int64_t epoch = 0; epoch < 5; epoch++) {
		epoch_count(seen, steps, &s, epoch);
		for (int i = 0; i < SETS; i++) {
			assert_int_equal(steps[i], (set_rows[i] + BATCH - 1) / BATCH);
			for (int64_t row = 0; row < set_rows[i]; row++)
				assert_int_equal(seen[i][row], 1);
		}
	}
	for (int64_t step = 0; step < 12; step++) {
		differ += sampler_step_set(&s, step) != sampler_step_set(&s, 12 + step);
		alternations += step && sampler_step_set(&s, step) != sampler_step_set(&s, step - 1);
	}
	assert_true(differ > 2 && alternations > 4);
	turns_close(t);
}

/* As many steps of each set as the smallest has; another epoch has other rows of the large ones. */
static void test_round_robin(void **state)
{
	struct turns *t;
	struct sampler s = turns_make(&t, TURNS_ROUND_ROBIN, BATCH, 1, 0);
	int seen[SETS][ROWS_MAX], again[SETS][ROWS_MAX];
	int64_t steps[SETS];

	(void)state;
	assert_int_equal(s.steps_per_epoch, 2 * SETS);
	assert_int_equal(s.row_count, 16 * SETS);
	epoch_count(seen, steps, &s, 0);
	for (int i = 0; i < SETS; i++)
		assert_int_equal(steps[i], 2);
	for (int64_t step = 0; step < 12; step++)
		assert_int_equal(sampler_step_set(&s, step), step % SETS);
	for (int64_t row = 0; row < set_rows[0]; row++)
		assert_true(seen[0][row] <= 1);
	for (int64_t row = 0; row < 16; row++)
		assert_int_equal(seen[2][row], 1);
	epoch_count(again, steps, &s, 1);
	assert_memory_not_equal(seen[0], again[0], sizeof(seen[0]));
	turns_close(t);
}

/* A step has the same rows in one piece and on ranks, whoever asks for which step first. */
static void test_ranks(void **state)
{
	struct turns *one, *other;
	struct sampler whole = turns_make(&one, TURNS_PROPORTIONAL, BATCH, 1, 0),
	               late = turns_make(&other, TURNS_PROPORTIONAL, BATCH, 1, 0);

	(void)state;
	for (int64_t step = 29; step >= 0; step--)
		assert_int_equal(sampler_step_set(&late, step), sampler_step_set(&whole, step));
	for (int rank = 0; rank < 2; rank++) {
		struct turns *t;
		struct sampler s = turns_make(&t, TURNS_PROPORTIONAL, BATCH / 2, 2, rank);
		int64_t rows[BATCH];

		assert_int_equal(s.steps_per_epoch, whole.steps_per_epoch);
		for (int64_t step = 0; step < 30; step++) {
			int64_t count = sampler_rows(&s, rows, step, 0);

			assert_int_equal(sampler_step_set(&s, step), sampler_step_set(&whole, step));
			for (int64_t i = 0; i < count; i++)
				assert_int_equal(
				        rows[i], sampler_step_row(&whole, step, rank * BATCH / 2 + i));
		}
		turns_close(t);
	}
	turns_close(one);
	turns_close(other);
}

/* An evaluation goes through the sets one after the other. */
static void test_file_order(void **state)
{
	struct turns *t;
	struct sampler s = turns_make(&t, TURNS_FILE, BATCH, 1, 0);

	(void)state;
	assert_int_equal(s.steps_per_epoch, 12);
	for (int64_t step = 0; step < 12; step++)
		assert_int_equal(sampler_step_set(&s, step), step < 6 ? 0 : step < 10 ? 1 : 2);
	turns_close(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_proportional),
	        cmocka_unit_test(test_round_robin), cmocka_unit_test(test_ranks),
	        cmocka_unit_test(test_file_order)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
