/* links: cli */
/* Encoders through the commands, each beside 20 steps of transformers (tests/golden/make_encoders.py):
 * offload, ranks, resuming, adapters, the result. */
#include "tests/golden_trace.h"

#define STEPS                                                                                                \
	"shuffle=off compute_dtype=fp32 export_dtype=fp32 max_steps=20 learning_rate=1e-2 "                  \
	"lr_scheduler_type=constant weight_decay=0 max_grad_norm=0 adam_epsilon=1e-5"
#define PIECES "per_device_train_batch_size=2 gradient_accumulation_steps=2 "

static const struct {
	const char *name, *objective;
} cases[] = {{"bert", "classification"}, {"distilbert", "classification"}, {"modernbert", "classification"},
        {"modernbert_odd", "classification"}};
enum { CASES = sizeof(cases) / sizeof(*cases) };

static char *golden_path(const char *name, const char *file)
{
	const char *source = getenv("FERRY_SOURCE");

	return mem_printf("%s/tests/golden/encoders/%s%s", source ? source : ".", name, file);
}

static void train(int i, const char *run, const char *keys)
{
	char *model = golden_path(cases[i].name, ""), *rows = golden_path(cases[i].name, "/train.jsonl");

	assert_ferry(0, NULL, "train model=%s data=%s output_dir=%s/%s objective=%s " STEPS " %s", model,
	        rows, work_dir, run, cases[i].objective, keys);
	mem_free(model);
	mem_free(rows);
}

static void trace_follow(int i, const char *run)
{
	char *path = golden_path(cases[i].name, "/ref.json"), *rows = file_of(run, "metrics.jsonl"),
	     *at = rows;
	json_t *ref = NULL;
	size_t step = 0;

	assert_int_equal(json_read_file(&ref, path, 1 << 20), 0);
	for (char *line; (line = strsep(&at, "\n")) && *line; step++) {
		json_t *row = NULL;

		assert_int_equal(json_parse(&row, "row", line, strlen(line)), 0);
		assert_relative(number(row, "loss"), number_at(json_object_get(ref, "loss"), step), 2e-5,
		        cases[i].name);
		assert_relative(number(row, "grad_norm"), number_at(json_object_get(ref, "grad_norm"), step),
		        1e-4, cases[i].name);
		json_decref(row);
	}
	assert_int_equal(step, 20);
	json_decref(ref);
	mem_free(path);
	mem_free(rows);
}

static void test_traces(void **state)
{
	(void)state;
	for (int i = 0; i < CASES; i++) {
		char again[400];

		train(i, "one", PIECES "overwrite_output_dir=on");
		trace_follow(i, "one");
		train(i, "offload",
		        PIECES
		        "overwrite_output_dir=on cpu_offload=on activations=recompute stream_delay_seed=5");
		same_weights("one", "offload");
		train(i, "ranks", "per_device_train_batch_size=2 ranks=2 overwrite_output_dir=on");
		trace_follow(i, "ranks");
		train(i, "again", PIECES "save_steps=7 save_total_limit=9 overwrite_output_dir=on");
		path_of(again, "again/checkpoint-000020");
		assert_int_equal(file_remove_tree(again), 0);
		path_of(again, "again/model");
		assert_int_equal(file_remove_tree(again), 0);
		train(i, "again", PIECES "save_steps=7 save_total_limit=9 resume=auto");
		same_weights("one", "again");
	}
}

/* Adapters on all layers, and the result is read again. */
static void test_adapters(void **state)
{
	(void)state;
	for (int i = 0; i < CASES; i++) {
		char *rows = golden_path(cases[i].name, "/train.jsonl");

		train(i, "lora", "per_device_train_batch_size=4 lora_rank=2 overwrite_output_dir=on");
		assert_ferry(0, NULL, "eval model=%s/lora/model data=%s objective=%s", work_dir, rows,
		        cases[i].objective);
		mem_free(rows);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_traces), cmocka_unit_test(test_adapters)};
	int failed;

	ferry_run_begin("encoders");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
