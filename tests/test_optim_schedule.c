/* links: optim */
/* Learning-rate schedules against those of transformers. */
#include "check.h"

#include "base/json.h"
#include "optim/schedule.h"

#include <math.h>
#include <unistd.h>

static void check_rate(double got, double wanted)
{
	if (!(fabs(got - wanted) <= 4e-16 * fabs(wanted))) {
		print_error("rate %.17g, wanted %.17g\n", got, wanted);
		fail();
	}
}

static const struct {
	const char *name;
	enum schedule_kind kind;
} kinds[] = {
        {"linear", SCHEDULE_LINEAR},
        {"cosine", SCHEDULE_COSINE},
        {"constant", SCHEDULE_CONSTANT},
        {"constant_with_warmup", SCHEDULE_CONSTANT_WITH_WARMUP},
        {"cosine_with_min_lr", SCHEDULE_COSINE_WITH_MIN_LR},
        {"polynomial", SCHEDULE_POLYNOMIAL},
};

/* Every rate that transformers.get_scheduler gave. */
static void test_golden(void **state)
{
	const char *shared = getenv("FERRY_SHARED");
	char path[4096];
	json_t *root = NULL, *all = NULL;
	struct lr_schedule s = {0};

	(void)state;
	snprintf(path, sizeof(path), "%s/golden/schedules.json", shared ? shared : "");
	if (!shared || access(path, R_OK)) {
		print_message("SKIPPED test_golden: ../shared absent\n");
		skip();
	}
	check_ok(json_read_file(&root, path, 1 << 20));
	assert_int_equal(json_get_int(root, path, "num_warmup_steps", &s.warmup_steps), 1);
	assert_int_equal(json_get_int(root, path, "num_training_steps", &s.total_steps), 1);
	assert_int_equal(json_get_num(root, path, "lr", &s.learning_rate), 1);
	assert_int_equal(json_get_object(root, path, "schedules", &all), 1);
	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
		json_t *one = NULL, *options = NULL, *rates = NULL;

		assert_int_equal(json_get_object(all, path, kinds[k].name, &one), 1);
		assert_int_equal(json_get_object(one, path, "options", &options), 1);
		assert_int_equal(json_get_array(one, path, "lr", &rates), 1);
		assert_int_equal(json_array_size(rates), s.total_steps);
		s.kind = kinds[k].kind;
		s.min_lr_rate = s.polynomial_end = s.polynomial_power = 0;
		json_get_num(options, path, "min_lr_rate", &s.min_lr_rate);
		json_get_num(options, path, "lr_end", &s.polynomial_end);
		json_get_num(options, path, "power", &s.polynomial_power);
		for (int64_t step = 1; step <= s.total_steps; step++)
			check_rate(lr_schedule_rate(&s, step),
			        json_number_value(json_array_get(rates, (size_t)step - 1)));
	}
	json_decref(root);
}

static void test_warmup(void **state)
{
	(void)state;
	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
		struct lr_schedule s = {
		        .kind = kinds[k].kind, .learning_rate = 8, .warmup_steps = 4, .total_steps = 100};

		for (int step = 1; step <= 5; step++)
			check_rate(
			        lr_schedule_rate(&s, step), s.kind == SCHEDULE_CONSTANT ? 8 : 2 * (step - 1));
	}
}

static void test_points(void **state)
{
	struct lr_schedule s = {.learning_rate = 2, .total_steps = 100};

	(void)state;
	s.kind = SCHEDULE_LINEAR;
	check_rate(lr_schedule_rate(&s, 1), 2);
	check_rate(lr_schedule_rate(&s, 26), 1.5);
	check_rate(lr_schedule_rate(&s, 101), 0);
	check_rate(lr_schedule_rate(&s, 1000), 0);
	s.kind = SCHEDULE_COSINE;
	check_rate(lr_schedule_rate(&s, 1), 2);
	check_rate(lr_schedule_rate(&s, 51), 1);
	assert_true(fabs(lr_schedule_rate(&s, 26) - (1 + M_SQRT1_2)) < 1e-15);
	check_rate(lr_schedule_rate(&s, 101), 0);
	s.kind = SCHEDULE_COSINE_WITH_MIN_LR;
	s.min_lr_rate = 0.5;
	check_rate(lr_schedule_rate(&s, 51), 1.5);
	check_rate(lr_schedule_rate(&s, 101), 1);
	s.kind = SCHEDULE_POLYNOMIAL;
	check_rate(lr_schedule_rate(&s, 1), 2);
	check_rate(lr_schedule_rate(&s, 51), (2 - 1e-7) * 0.5 + 1e-7);
	check_rate(lr_schedule_rate(&s, 101), 1e-7);
	check_rate(lr_schedule_rate(&s, 200), 1e-7);
}

/* Nothing to train, warm-up as long as or longer than the run, rate 0: finite numbers. */
static void test_edges(void **state)
{
	(void)state;
	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
		for (int warmup = 0; warmup <= 3; warmup++)
			for (int total = 0; total <= 2; total++)
				for (int step = 1; step <= 5; step++) {
					struct lr_schedule s = {.kind = kinds[k].kind,
					        .learning_rate = 1,
					        .warmup_steps = warmup,
					        .total_steps = total};
					double rate = lr_schedule_rate(&s, step);

					assert_true(rate >= 0 && rate <= 1);
					s.learning_rate = 0;
					assert_true(lr_schedule_rate(&s, step) == 0);
				}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_golden),
	        cmocka_unit_test(test_warmup),
	        cmocka_unit_test(test_points),
	        cmocka_unit_test(test_edges),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
