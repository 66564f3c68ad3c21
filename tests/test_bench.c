/* links: bench */
#include "check.h"

#include "bench/bench.h"
#include "host/pool.h"

/* Small runs of every benchmark: they work, and their figures are numbers above 0. */
static void check_figures(const json_t *value)
{
	const char *key;
	const json_t *item;
	size_t i;

	if (json_is_real(value))
		assert_true(json_real_value(value) > 0);
	json_array_foreach(value, i, item) check_figures(item);
	if (json_is_object(value))
		json_object_foreach((json_t *)value, key, item) check_figures(item);
}

static void test_every_benchmark(void **state)
{
	struct bench_args args = {.threads = 2, .count = 1000};
	const struct bench *b;

	(void)state;
	check_ok(adamw_isa_find(&args.isa, "auto"));
	for (int i = 0; (b = bench_at(i)); i++) {
		json_t *result = NULL;

		check_ok(bench_run(&result, b->name, &args));
		assert_true(json_is_object(result));
		check_figures(result);
		json_decref(result);
	}
	assert_null(bench_at(-1));
}

static void test_bad(void **state)
{
	struct bench_args args = {.threads = 1, .count = INT64_C(1) << 41};
	json_t *result = (json_t *)state;

	check_fails(bench_run(&result, "nothing", &args), ERR_INPUT, "'nothing': there are list, adam");
	assert_null(result);
	check_fails(bench_run(&result, "adam", &args), ERR_INPUT, "2199023255552 parameters");
	assert_null(result);
}

static void test_median(void **state)
{
	double odd[] = {3, 1, 2}, even[] = {4, 1, 3, 2};

	(void)state;
	assert_true(bench_median(odd, 3) == 2 && bench_median(even, 4) == 2 && bench_median(odd, 1) == 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_every_benchmark),
	        cmocka_unit_test(test_bad),
	        cmocka_unit_test(test_median),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
