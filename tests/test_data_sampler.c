/* links: data base */
/* The sampler: the rows of each step, and a uniform shuffle. */
#include "tests/check.h"

#include <math.h>

#include "base/mem.h"
#include "data/sampler.h"

static struct sampler make_sampler(int64_t rows, int64_t batch, int64_t accumulation, int world, int rank)
{
	struct sampler s = {.row_count = rows,
	        .order = SAMPLER_ORDER_SHUFFLE,
	        .seed = 7,
	        .batch_rows = batch,
	        .accumulation = accumulation,
	        .world_size = world,
	        .rank = rank};

	assert_int_equal(sampler_init(&s), 0);
	return s;
}

static void test_permutation_is_one(void **state)
{
	(void)state;
	for (int64_t count = 1; count < 300; count += count < 40 ? 1 : 37) {
		uint8_t seen[300] = {0};

		for (int64_t i = 0; i < count; i++) {
			int64_t x = permutation_at(3, (uint64_t)count, count, i);

			assert_in_range(x, 0, count - 1);
			assert_int_equal(seen[x], 0);
			seen[x] = 1;
		}
	}
}

/* A resumed run goes on in the order that it began with: another order needs another SHUFFLE_VERSION. */
static void test_permutation_stays(void **state)
{
	static const int64_t wanted[] = {2, 7, 4, 8, 3, 5, 0, 6, 9, 1};

	(void)state;
	for (int64_t i = 0; i < 10; i++)
		assert_int_equal(permutation_at(42, PERMUTATION_STREAM_EPOCH, 10, i), wanted[i]);
}

/* Chi-square of counts that should all be `expected`, in standard deviations from its mean. */
static double chi_square_z(const int32_t *counts, int64_t cells, double expected, double freedom)
{
	double chi = 0;

	for (int64_t i = 0; i < cells; i++)
		chi += (counts[i] - expected) * (counts[i] - expected) / expected;
	return (chi - freedom) / sqrt(2 * freedom);
}

/* Which row stands at each place, and how far each row stands from the one before, over many epochs. The
 * seeds are fixed, so the bound of 4.5 is met or not, always alike. */
static void uniform_check(int64_t rows, int64_t epochs)
{
	struct sampler s = make_sampler(rows, 1, 1, 1, 0);
	int32_t *places = mem_alloc((size_t)(rows * rows), sizeof(*places)),
	        *steps = mem_alloc((size_t)rows, sizeof(*steps));
	double n = (double)rows, z_places, z_steps = 0;

	assert_non_null(places);
	assert_non_null(steps);
	for (int64_t epoch = 0; epoch < epochs; epoch++)
		for (int64_t place = 0, last = 0; place < rows; place++) {
			int64_t row = sampler_draw(&s, epoch, place);

			places[place * rows + row]++;
			if (place)
				steps[(row - last + rows) % rows]++;
			last = row;
		}
	z_places = chi_square_z(places, rows * rows, (double)epochs / n, (n - 1) * (n - 1));
	if (rows > 2) /* a step of 0 is none: rows - 1 cells */
		z_steps = chi_square_z(steps + 1, rows - 1, (double)epochs, n - 2);
	if (!(fabs(z_places) < 4.5) || !(fabs(z_steps) < 4.5))
		fail_msg("%d rows: places are %.1f, neighbours %.1f deviations from uniform", (int)rows,
		        z_places, z_steps);
	mem_free(places);
	mem_free(steps);
}

static void test_permutation_is_uniform(void **state)
{
	static const int64_t rows[] = {2, 3, 4, 5, 7, 12, 16, 17, 31, 64, 100};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		uniform_check(rows[i], 200000 / rows[i]);
}

/* All orders of five rows are equally likely, not only all places. */
static void test_permutation_orders(void **state)
{
	enum { ROWS = 5, ORDERS = 120, EPOCHS = ORDERS * 200, CODES = 5 * 5 * 5 * 5 };
	struct sampler s = make_sampler(ROWS, 1, 1, 1, 0);
	int32_t counts[CODES] = {0}, met[ORDERS];
	int orders = 0;

	(void)state;
	for (int epoch = 0; epoch < EPOCHS; epoch++) {
		int64_t code = 0;

		for (int place = 0; place < ROWS - 1; place++) /* the last follows from the others */
			code = code * ROWS + sampler_draw(&s, epoch, place);
		counts[code]++;
	}
	for (int i = 0; i < CODES; i++)
		if (counts[i]) {
			assert_true(orders < ORDERS);
			met[orders++] = counts[i];
		}
	assert_int_equal(orders, ORDERS);
	assert_true(fabs(chi_square_z(met, ORDERS, EPOCHS / ORDERS, ORDERS - 1)) < 4.5);
}

/* For many rows: neighbours in the file are neighbours in an epoch twice on average. The rows of each eighth
 * of an epoch come evenly from all eighths of the file. */
static void test_permutation_of_many(void **state)
{
	static const int64_t rows[] = {1000, 16384, 100000};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct sampler s = make_sampler(rows[i], 1, 1, 1, 0);
		int64_t epochs = 2000000 / rows[i], followed = 0;
		int32_t parts[64] = {0};
		double mean = 2.0 * (double)(rows[i] - 1) / (double)rows[i] * (double)epochs;

		for (int64_t epoch = 0; epoch < epochs; epoch++)
			for (int64_t place = 0, last = -9; place < rows[i]; place++) {
				int64_t row = sampler_draw(&s, epoch, place);

				followed += row == last + 1 || row == last - 1;
				parts[place * 8 / rows[i] * 8 + row * 8 / rows[i]]++;
				last = row;
			}
		assert_true(fabs((double)followed - mean) < 4.5 * sqrt(mean));
		/* parts of a permutation vary less than free draws: only too much is wrong */
		assert_true(chi_square_z(parts, 64, (double)(rows[i] * epochs) / 64, 49) < 4.5);
	}
}

static void test_sampler_covers_epochs(void **state)
{
	static const int64_t cases[][3] = {{1, 1, 1}, {10, 3, 2}, {12, 3, 2}, {7, 10, 4}, {100, 1, 8}};

	(void)state;
	for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++)
		for (int world = 1; world <= 3; world++) {
			struct sampler s = make_sampler(cases[c][0], cases[c][1], cases[c][2], world, 0);
			int64_t rows[16], step_count;

			assert_int_equal(sampler_run_steps(&step_count, &s, 2.0, -1), 0);
			assert_int_equal(step_count, 2 * s.steps_per_epoch);
			for (int64_t step = 0, drawn = 0; step < step_count; step++) {
				if (step % s.steps_per_epoch == 0)
					drawn = 0;
				/* all ranks of a micro-batch together are the next stretch of the epoch */
				for (int64_t m = 0; m < sampler_micro_count(&s, step); m++)
					for (s.rank = 0; s.rank < world; s.rank++) {
						int64_t count = sampler_rows(&s, rows, step, m);

						for (int64_t i = 0; i < count; i++)
							assert_int_equal(rows[i],
							        sampler_draw(&s, step / s.steps_per_epoch,
							                drawn++));
					}
				if (step % s.steps_per_epoch == s.steps_per_epoch - 1)
					assert_int_equal(drawn, s.row_count);
			}
			s.rank = 0;
		}
}

static void test_sampler_counts(void **state)
{
	struct sampler s = make_sampler(10, 2, 2, 1, 0), bad = {.row_count = 0};
	int64_t steps;

	(void)state;
	assert_int_equal(s.steps_per_epoch, 3);
	assert_int_equal(sampler_micro_count(&s, 0), 2);
	assert_int_equal(sampler_micro_count(&s, 2), 1); /* two rows are left */
	assert_true(sampler_epochs_done(&s, 3) == 1.0);
	assert_true(sampler_epochs_done(&s, 4) == 1.4);
	assert_int_equal(sampler_run_steps(&steps, &s, 1.0, 5), 0);
	assert_int_equal(steps, 5);
	assert_int_equal(sampler_run_steps(&steps, &s, 0.5, -1), 0);
	assert_int_equal(steps, 2);
	assert_int_equal(sampler_run_steps(&steps, &s, 0, -1), ERR_RANGE);
	assert_int_equal(sampler_init(&bad), ERR_RANGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_permutation_is_one),
	        cmocka_unit_test(test_permutation_stays),
	        cmocka_unit_test(test_permutation_is_uniform),
	        cmocka_unit_test(test_permutation_orders),
	        cmocka_unit_test(test_permutation_of_many),
	        cmocka_unit_test(test_sampler_covers_epochs),
	        cmocka_unit_test(test_sampler_counts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
