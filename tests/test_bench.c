/* links: bench */
/* not: asan */
/* It times operations that have their own tests there. */
/* Benchmarks: rows, medians, and each kernel case and each benchmark once with small sizes. */
#include "check.h"

#include "base/file.h"
#include "bench/bench.h"
#include "bench/kernel_cases.h"
#include "host/pool.h"
#include "tests/sparing.h"

#include <math.h>

#ifdef FERRY_TEST_CUDA
#include "device/backend.h"
#define TEST_DEVICE "cuda"
#define TEST_KIND DEVICE_CUDA
#else
#define TEST_DEVICE "host"
#define TEST_KIND DEVICE_HOST
#endif

/* Small runs: they work, and their figures are numbers, none negative. */
static void check_figures(const json_t *value)
{
	const char *key;
	const json_t *item;
	size_t i;

	if (json_is_real(value))
		assert_true(json_real_value(value) >= 0);
	json_array_foreach(value, i, item) check_figures(item);
	if (json_is_object(value))
		json_object_foreach((json_t *)value, key, item) check_figures(item);
}

static void test_rows(void **state)
{
	static const char *const names[] = {
	        "adam", "adam-f32", "adam-bf16", "adam-8bit", "pool", "load", "load-f32", "load-checkpoint"};
	struct bench_args args = {.threads = 2, .count = 20000};

	(void)state;
	check_ok(adamw_isa_find(&args.isa, "auto"));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		json_t *result = NULL;

		check_ok(bench_run(&result, names[i], &args));
		assert_true(json_is_object(result));
		check_figures(result);
		json_decref(result);
	}
	assert_null(bench_at(-1));
	for (int i = 0; bench_at(i); i++)
		assert_true(*bench_at(i)->name && *bench_at(i)->what && bench_at(i)->run);
}

/* A text file goes through a tokenizer, once repeated to the size that was asked for. */
static void test_tokenize(void **state)
{
	const char *source = getenv("FERRY_SOURCE");
	char tokenizer[500], text[500];
	struct bench_args args = {.threads = 1, .count = 50000};
	json_t *result = NULL, *rows;

	(void)state;
	snprintf(tokenizer, sizeof(tokenizer), "%s/tests/golden/tokenizer/plain.json", source ? source : ".");
	snprintf(text, sizeof(text), "%s/README.md", source ? source : ".");
	check_fails(bench_run(&result, "tokenize", &args), ERR_INPUT, "set tokenizer=DIR and data=FILE");
	args.tokenizer = tokenizer;
	args.data = "/no/such/text";
	check_fails(bench_run(&result, "tokenize", &args), ERR_INPUT, "/no/such/text");
	args.data = text;
	check_ok(bench_run(&result, "tokenize", &args));
	rows = json_object_get(result, "rows");
	assert_int_equal(json_array_size(rows), 3);
	assert_true(json_integer_value(json_object_get(result, "bytes")) >= 50000);
	assert_true(json_integer_value(json_object_get(result, "tokens")) > 5000);
	for (size_t i = 0; i < 3; i++)
		assert_true(json_real_value(json_object_get(json_array_get(rows, i), "cpu_MBps")) > 0);
	json_decref(result);
}

/* The clock predicts a longer step where copies are slower. How near it is depends on what else runs. */
static void test_every_op(void **state)
{
	const struct kernel_case *k;
	int counts[OP_KIND_COUNT] = {0};

	(void)state;
	for (int i = 0; (k = kernel_case_at(i)); i++)
		counts[k->kind]++;
	for (int kind = 0; kind < OP_KIND_COUNT; kind++)
		if (!counts[kind])
			fail_msg("%s is in no row of bench/kernel_cases.c", op_name((enum op_kind)kind));
}

static void test_clock(void **state)
{
	struct bench_args args = {.threads = 2, .count = 1, .models = "tiny"};
	json_t *result = NULL, *rows;

	(void)state;
	check_ok(adamw_isa_find(&args.isa, "auto"));
	check_ok(bench_run(&result, "clock", &args));
	check_figures(result);
	rows = json_object_get(result, "rates");
	assert_true(json_real_value(json_object_get(json_array_get(rows, 1), "predicted_ms")) >
	            json_real_value(json_object_get(json_array_get(rows, 2), "predicted_ms")));
	json_decref(result);
}

/* Nine budgets, none exceeded. Each peak is the planned one. With a larger budget the chosen step is not
 * longer, for any measured machine. */
static void test_budget(void **state)
{
	struct bench_args args = {.threads = 2, .count = 1, .models = "tiny", .copy_gbps = 4};
	json_t *result = NULL, *rows, *row;
	double predicted_ms = INFINITY;
	size_t i;

	(void)state;
	if (SANITIZED) {
		print_message(
		        "SKIPPED test_budget under a sanitizer: test_run_budget runs such plans there\n");
		skip();
	}
	check_ok(adamw_isa_find(&args.isa, "auto"));
	check_ok(bench_run(&result, "budget", &args));
	check_figures(result);
	assert_true(json_is_true(json_object_get(result, "same_losses")));
	rows = json_object_get(result, "budgets");
	json_array_foreach(rows, i, row)
	{
		json_int_t budget = json_integer_value(json_object_get(row, "budget_bytes")),
		           arena = json_integer_value(json_object_get(row, "arena_bytes")),
		           peak = json_integer_value(json_object_get(row, "peak_bytes"));

		double step_ms = json_real_value(json_object_get(row, "predicted_ms"));

		assert_true(arena <= budget && peak == arena);
		assert_true(step_ms > 0 && step_ms <= predicted_ms * (1 + 2e-6));
		predicted_ms = step_ms;
	}
	assert_int_equal(i, 9);
	json_decref(result);
	args.models = "huge";
	check_fails(bench_run(&result, "budget", &args), ERR_INPUT, "model 'huge'");
}

/* Saves of a small state: all of it is read back by nobody, but the figures are there, and nothing is left.
 */
static void test_save(void **state)
{
	struct bench_args args = {.threads = 2, .count = 400000, .models = *state};
	char **names = NULL;
	json_t *result = NULL;
	size_t count;

	check_ok(adamw_isa_find(&args.isa, "auto"));
	check_ok(bench_run(&result, "save", &args));
	check_figures(result);
	assert_true(json_real_value(json_object_get(result, "save_of_raw")) > 0);
	json_decref(result);
	check_ok(file_list_dir(*state, &names, &count));
	assert_int_equal(count, 0);
	file_list_free(names, count);
	args.count = 1;
	check_fails(bench_run(&result, "save", &args), ERR_INPUT, "saving 1 bytes");
}

/* The step benchmark on a shape that takes milliseconds; it fails by itself where the batch is not learned.
 */
static void test_step(void **state)
{
	const struct bench_shape shape = {64, 2, 4, 128, 500, 32, 2, 1, 0, 0};
	struct bench_args args = {.threads = 2, .count = 4};

	(void)state;
	check_ok(adamw_isa_find(&args.isa, "auto"));
	for (int offload = 0; offload <= 1; offload++) {
		json_t *result = NULL;

		check_ok(bench_step(
		        &result, &args, &shape, (struct bench_variant){DTYPE_F32, offload, ACTIVATION_KEEP}));
		check_figures(result);
		assert_true(json_real_value(json_object_get(result, "loss_first")) > 5.5); /* ln 500 = 6.2 */
		assert_true(json_number_value(json_object_get(result, "tokens")) == 64);
		json_decref(result);
	}
	args.count = 5000;
	check_fails(bench_step(&(json_t *){NULL}, &args, &shape, (struct bench_variant){0}), ERR_INPUT,
	        "at most 1000");
}

/* Memory that a device budget covers beside the arena. */
static int64_t reserve_bytes(void)
{
	struct device_reserve list[DEVICE_RESERVES_MAX];
	int64_t bytes = 0;

	for (int i = device_reserve_list(list, TEST_KIND, NULL); i--;)
		bytes += list[i].bytes;
	return bytes;
}

enum { ARENA_BYTES = 900000 }; /* for part of the tiny model */

/* The benchmarks of a device, smallest shapes. */
static void test_device(void **state)
{
	static const char *const keys[] = {"kernels", "copies", "settings"};
	static const char *const names[] = {"kernels", "copy", "offload"};
	static const size_t rows[] = {40, 8, 6};
	struct bench_args args = {.threads = 2,
	        .device = TEST_DEVICE,
	        .models = "tiny",
	        .micro_batches = 2,
	        .max_grad_norm = 1,
	        .device_budget_bytes = reserve_bytes() + ARENA_BYTES};
	const int64_t counts[] = {32, 65536, 3};

	(void)state;
	check_ok(adamw_isa_find(&args.isa, "auto"));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		json_t *result = NULL;

		args.count = counts[i];
		args.models = i == 2 ? "tiny" : NULL;
		args.tokens = i == 2 ? "32,96" : NULL;
		check_ok(bench_run(&result, names[i], &args));
		check_figures(result);
		assert_true(json_array_size(json_object_get(result, keys[i])) >= rows[i]);
		if (i == 2) {
			const json_t *pairs = json_object_get(result, "pairs"),
			             *settings = json_object_get(result, "settings");

			const char *const ways[] = {"streamed", "resident", "filled"};
			for (size_t k = 0; k < json_array_size(settings); k++) {
				const json_t *row = json_array_get(settings, k);

				/* neither device's code takes any */
				assert_int_equal(
				        json_integer_value(json_object_get(row, "device_beside_bytes")), 0);
				assert_string_equal(
				        json_string_value(json_object_get(row, "way")), ways[k % 3]);
				if (k % 3 == 2) {
					assert_true(json_integer_value(json_object_get(
					                    row, "device_plan_bytes")) <= ARENA_BYTES);
					/* some weights or activations stay, whatever the rates choose */
					assert_true(json_integer_value(json_object_get(row, "h2d_bytes")) <
					            json_integer_value(json_object_get(
					                    json_array_get(settings, k - 2), "h2d_bytes")));
				}
			}
			assert_int_equal(json_array_size(pairs), 6);
			for (size_t p = 0; p < 6; p++)
				assert_true(json_is_true(
				        json_object_get(json_array_get(pairs, p), "same_losses")));
		}
		json_decref(result);
	}
}

/* What fits is not filled, nor is what has no room; updates inside backward have the same bits. */
static void test_offload_ways(void **state)
{
	struct bench_args args = {
	        .threads = 2, .device = TEST_DEVICE, .models = "tiny", .tokens = "64", .count = 2};
	const json_t *settings;
	json_t *result = NULL;

	(void)state;
	check_ok(adamw_isa_find(&args.isa, "auto"));
	check_ok(bench_run(&result, "offload", &args));
	assert_int_equal(json_array_size(json_object_get(result, "settings")), 2);
	assert_true(json_is_true(
	        json_object_get(json_array_get(json_object_get(result, "pairs"), 0), "same_losses")));
	json_decref(result);
	args.device_budget_bytes = reserve_bytes() + 1000;
	check_ok(bench_run(&result, "offload", &args));
	settings = json_object_get(result, "settings");
	assert_int_equal(json_array_size(settings), 3);
	assert_true(json_is_false(json_object_get(json_array_get(settings, 2), "fits")));
	assert_non_null(strstr(
	        json_string_value(json_object_get(json_array_get(settings, 2), "why")), "the budget is"));
	json_decref(result);
	args.ways = "filled";
	args.device_budget_bytes = 0;
	check_ok(bench_run(&result, "offload", &args));
	settings = json_object_get(result, "settings");
	assert_int_equal(json_array_size(settings), 1);
	assert_string_equal(json_string_value(json_object_get(json_array_get(settings, 0), "way")), "filled");
	json_decref(result);
	args.ways = "filled,empty";
	result = NULL;
	check_fails(bench_run(&result, "offload", &args), ERR_INPUT, "unknown way 'empty'");
	args.ways = NULL;
	args.host_budget_bytes = 1000; /* the user's value counts, not the available memory */
	check_ok(bench_run(&result, "offload", &args));
	settings = json_object_get(result, "settings");
	assert_true(json_is_false(json_object_get(json_array_get(settings, 0), "fits")));
	assert_non_null(strstr(
	        json_string_value(json_object_get(json_array_get(settings, 0), "why")), "is ram_budget"));
	json_decref(result);
	args.micro_batches = INT64_C(1) << 40;
	result = NULL;
	check_fails(
	        bench_run(&result, "offload", &args), ERR_INPUT, "gradient_accumulation_steps=1099511627776");
}

/* Only the kernels with names that begin so. */
static void test_some_kernels(void **state)
{
	struct bench_args args = {.threads = 2, .device = TEST_DEVICE, .models = "rope", .count = 32};
	const json_t *row;
	json_t *result = NULL;
	size_t i;

	(void)state;
	check_ok(bench_run(&result, "kernels", &args));
	json_array_foreach(json_object_get(result, "kernels"), i, row)
	        assert_memory_equal(json_string_value(json_object_get(row, "name")), "rope", 4);
	assert_true(i >= 2);
	json_decref(result);
	args.models = "ropes";
	check_fails(bench_run(&result, "kernels", &args), ERR_INPUT, "begins with 'ropes'");
	args.models = "rope";
	args.tokens = "3x48";
	check_ok(bench_run(&result, "kernels", &args));
	assert_int_equal(json_integer_value(json_object_get(result, "tokens")), 144);
	assert_int_equal(json_integer_value(json_object_get(result, "document_tokens")), 48);
	json_decref(result);
}

static void test_bad(void **state)
{
	struct bench_args args = {.threads = 1, .count = INT64_C(1) << 41};
	json_t *result = (json_t *)state;

	check_fails(bench_run(&result, "nothing", &args), ERR_INPUT, "unknown benchmark 'nothing'");
	assert_null(result);
	check_fails(bench_run(&result, "adam", &args), ERR_INPUT, "2199023255552 parameters");
	assert_null(result);
	check_fails(bench_run(&result, "copy", &args), ERR_INPUT, "2199023255552 bytes");
	args.count = 2;
	args.models = "70b";
	check_fails(bench_run(&result, "offload", &args), ERR_INPUT, "model '70b'");
	args.models = "tiny";
	args.tokens = "12x";
	check_fails(bench_run(&result, "offload", &args), ERR_INPUT, "'12x'");
	check_fails(bench_run(&result, "kernels", &args), ERR_INPUT, "'12x' must be rows x tokens");
	args.tokens = "1x64";
	check_fails(bench_run(&result, "step", &args), ERR_INPUT, "model 'tiny'; available: 15m");
	args.ways = "bf16,float";
	check_fails(bench_run(&result, "step", &args), ERR_INPUT, "unknown way 'float'; available: bf16");
	args.device = "none";
	check_fails(bench_run(&result, "kernels", &args), ERR_INPUT, "none");
	args.device = "host";
	args.attention = DEVICE_ATTENTION_CUDNN;
	check_fails(bench_run(&result, "kernels", &args), ERR_INPUT, "attention=cudnn: no GPU computes here");
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
#ifdef FERRY_TEST_CUDA
	device_register(&backend_cuda);
#endif
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_rows),
	        cmocka_unit_test(test_tokenize),
	        cmocka_unit_test(test_budget),
	        cmocka_unit_test(test_every_op),
	        cmocka_unit_test(test_clock),
	        cmocka_unit_test(test_step),
	        cmocka_unit_test_setup_teardown(test_save, check_dir_make, check_dir_remove),
	        cmocka_unit_test(test_device),
	        cmocka_unit_test(test_offload_ways),
	        cmocka_unit_test(test_some_kernels),
	        cmocka_unit_test(test_bad),
	        cmocka_unit_test(test_median),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
