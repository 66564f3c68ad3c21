/* links: report train host_cpu device_meta */
/* Reports: what is read of runs, and the page. */
#include "tests/report_check.h"

#include "base/log.h"
#include "base/mem.h"
#include "report/page.h"
#include "train/metrics.h"

#include <math.h>

static const char *dir;
static char logged[4096];

static void log_take(void *context, enum log_level level, const char *line)
{
	size_t at = strlen(logged);

	(void)context;
	(void)level;
	snprintf(logged + at, sizeof(logged) - at, "%s\n", line);
}

/* A file of a run, which is made if it is not there. */
static void put(const char *run, const char *name, const char *text, size_t len)
{
	char *place = file_join(dir, run), *path = file_join(place, name);

	check_ok(file_make_dir(place));
	check_ok(file_write_all(path, text, len));
	mem_free(path);
	mem_free(place);
}

static int read_run(struct report_run *r, const char *name)
{
	char *path = file_join(dir, name);
	int err = report_run_read(r, path);

	mem_free(path);
	return err;
}

/* A run whose metrics.jsonl is this text. */
static int read_text(struct report_run *r, const char *text)
{
	put("text", "metrics.jsonl", text, strlen(text));
	put("text", "config.yaml", "seed: 1\n", 8);
	*logged = 0;
	return read_run(r, "text");
}

/* ---- reading ---- */

/* What train writes is what a report reads, under the same names. */
static void test_round_trip(void **state)
{
	const struct objective_means pairs = {.metric = {3, 1, 2, 0.75}};
	struct metrics_step step = {.learning_rate = 1e-3,
	        .target_tokens = 5,
	        .tokens = 10,
	        .step_ms = 200,
	        .tokens_per_s = 50,
	        .pinned_bytes = 7,
	        .device_peak_bytes = 8,
	        .grad_norm = 2,
	        .wait_ms = {[QUEUE_H2D] = 10, [QUEUE_D2H] = 20, [QUEUE_COMM] = 30, [QUEUE_CPU] = 40},
	        .disk_wait_ms = 50,
	        .objective = &objective_pairs,
	        .means = pairs};
	struct metrics_eval eval = {.objective = &objective_pairs,
	        .means = pairs,
	        .step = 2,
	        .loss = 1.5,
	        .perplexity = 4,
	        .tokens = 3};
	struct report_run r;
	struct metrics *m = NULL;
	char *path = mem_printf("%s/trip/metrics.jsonl", dir);
	json_t *object = NULL;

	(void)state;
	put("trip", "config.yaml", "model: /m/x\n", 12);
	check_ok(metrics_open(&m, path, -1));
	for (int i = 1; i <= 4; i++) {
		step.step = i;
		step.loss = i == 3 ? NAN : 4 - 0.5 * i;
		step.skipped = i == 3;
		step.host_peak_bytes = 100 * i;
		metrics_write_step(m, &step);
		if (i == 2)
			metrics_write_eval(m, &eval);
	}
	metrics_close(m);
	check_ok(read_run(&r, "trip"));
	assert_int_equal(r.totals.row_count, 4);
	assert_int_equal(r.totals.first_step, 1);
	assert_int_equal(r.totals.last_step, 4);
	assert_int_equal(r.totals.skipped_count, 1);
	assert_int_equal(r.totals.is_sampled, 0);
	assert_near(r.totals.loss, 2);
	assert_near(r.totals.best_loss, 2);
	assert_near(r.totals.eval_loss, 1.5);
	assert_near(r.totals.seconds, 0.8);
	assert_near(r.totals.token_count, 40);
	assert_near(r.totals.tokens_per_s, 50);
	assert_near(r.totals.host_bytes, 400);
	assert_near(r.totals.pinned_bytes, 7);
	assert_near(r.totals.device_bytes, 8);
	for (int w = 0; w < REPORT_WAIT_COUNT; w++)
		assert_near(r.totals.wait_ms[w], 40 * (w + 1));
	for (int m2 = 0; m2 < REPORT_METRIC_COUNT; m2++)
		assert_true(r.columns.items[1].values[m2].count == 1);
	assert_int_equal(r.columns.items[2].values[REPORT_LOSS].null_count, 1);
	assert_string_equal(report_run_setting(&r, "model"), "/m/x");
	assert_string_equal(r.label, "trip");
	check_ok(report_run_json(&object, &r));
	assert_near(json_real_value(json_object_get(json_object_get(object, "wait_share"), "disk")), 0.2);
	assert_int_equal(json_integer_value(json_object_get(object, "tokens")), 40);
	json_decref(object);
	report_run_free(&r);
	mem_free(path);
}

/* Rows of every tenth step stand for ten steps, the first one too. */
static void test_sampled(void **state)
{
	struct report_run r;

	(void)state;
	check_ok(read_text(&r, "{\"step\":10,\"loss\":1,\"step_ms\":100,\"tokens\":5}\n"
	                       "{\"step\":20,\"loss\":1,\"step_ms\":200,\"tokens\":7}\n"));
	assert_int_equal(r.totals.is_sampled, 1);
	assert_near(r.totals.seconds, 3);
	assert_near(r.totals.token_count, 120);
	report_run_free(&r);
	/* a resumed run elsewhere: no step before its first row */
	check_ok(read_text(&r, "{\"step\":1001,\"loss\":1,\"step_ms\":100}\n"
	                       "{\"step\":1002,\"loss\":1,\"step_ms\":100}\n"));
	assert_near(r.totals.seconds, 0.2);
	report_run_free(&r);
}

static const struct {
	const char *text, *said; /* part of the log; "" = nothing is said */
	int rows;                /* -1: an error that contains `said` */
} odd[] = {
        {"", "has no row yet", -1},
        {"\n\n", "has no row yet", -1},
        {"{\"step\":1", "has no row yet", -1},
        {"hello\n", "has no row yet", -1},
        {"[1]\n{}\n3\n{\"step\":1}\n{\"loss\":1}\n", "has no row yet", -1},
        {"{\"step\":1,\"loss\":1}", "", 1},
        {"{\"step\":1,\"loss\":1}\n{\"step\":2,\"lo", ":2: the last line is not complete", 1},
        {"{\"step\":1,\"loss\":NaN}\n{\"step\":2,\"loss\":1}\n", ":1: 1 line is no row of metrics", 1},
        {"{\"step\":1,\"loss\":1}\nx\n\n{\"step\":2,\"loss\":\"a\"}\n", ":2: 2 lines are no rows of metrics",
                1},
        {"{\"step\":-1,\"loss\":1}\n{\"step\":1,\"loss\":1}\n", ":1: 1 line is no row", 1},
        {"{\"step\":9000000000000000000,\"loss\":1}\n{\"step\":1,\"loss\":1}\n", ":1: 1 line is no row", 1},
        {"{\"step\":1,\"loss\":1e300,\"wait_ms\":7,\"step_ms\":null}\n", "", 1},
        {"{\"step\":1,\"loss\":1,\"wait_ms\":{\"h2d\":\"x\"},\"tokens\":[],\"skipped\":3}\n", "", 1},
        {"{\"step\":2,\"loss\":1}\n{\"step\":1,\"loss\":2}\n{\"step\":1,\"loss\":3}\n", "", 3},
        {"{\"step\":1000000000000000,\"loss\":1}\n{\"step\":1,\"loss\":2}\n", "", 2},
        {"{\"step\":0,\"eval_loss\":1}\n", "", 0},
        {"\xff\xfe\n{\"step\":1,\"loss\":1}\n", ":1: 1 line is no row", 1},
};

/* Whatever metrics.jsonl holds, the page is whole. */
static void test_odd_rows(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++) {
		struct report_run r;
		struct str page = {0};
		int err = read_text(&r, odd[i].text);

		if (odd[i].rows < 0) {
			assert_int_equal(err, ERR_INPUT);
			assert_has(err_text(), odd[i].said);
			report_run_free(&r);
			continue;
		}
		check_ok(err);
		if (*odd[i].said)
			assert_has(logged, odd[i].said);
		else
			assert_string_equal(logged, "");
		assert_int_equal(r.totals.row_count, odd[i].rows);
		check_ok(page_write(&page, &r, 1));
		xml_check(page.data);
		assert_null(strstr(page.data, "nan"));
		assert_null(strstr(page.data, "inf"));
		str_free(&page);
		report_run_free(&r);
	}
}

static void test_long_line(void **state)
{
	size_t len = 3 << 20;
	char *text = mem_alloc(len + 100, 1);
	struct report_run r;

	(void)state;
	memset(text, 'x', len);
	strcpy(text + len, "\n{\"step\":1,\"loss\":1}\n");
	check_ok(read_text(&r, text));
	assert_has(logged, ":1: 1 line is no row of metrics");
	assert_int_equal(r.totals.row_count, 1);
	report_run_free(&r);
	mem_free(text);
}

static void test_odd_directories(void **state)
{
	static const char row[] = "{\"step\":1,\"loss\":1}\n";
	char *path = file_join(dir, "odd/metrics.jsonl");
	struct report_run r;

	(void)state;
	check_fails(read_run(&r, "none"), ERR_INPUT, "none: cannot be accessed: No such file");
	report_run_free(&r);
	put("odd", "x", "", 0);
	check_fails(read_run(&r, "odd"), ERR_INPUT, "odd has no metrics.jsonl; name the output_dir of a run");
	report_run_free(&r);
	check_fails(read_run(&r, "odd/x"), ERR_INPUT, "is a file; expected the output_dir of a run");
	report_run_free(&r);
	check_ok(file_make_dir(path));
	assert_int_equal(read_run(&r, "odd"), ERR_INPUT);
	report_run_free(&r);
	check_ok(file_remove_tree(path));
	mem_free(path);
	put("odd", "metrics.jsonl", row, strlen(row));
	*logged = 0;
	check_ok(read_run(&r, "odd//"));
	assert_has(logged, "odd/config.yaml is missing; the report shows no configuration");
	assert_has(r.notes.data, "config.yaml is missing");
	assert_string_equal(r.label, "odd");
	report_run_free(&r);
	put("odd", "config.yaml", "a: [\n", 5);
	put("odd/checkpoint-000100", "x", "", 0);
	put("odd/checkpoint-000020", "x", "", 0);
	put("odd/adapter", "x", "", 0);
	*logged = 0;
	check_ok(read_run(&r, "odd"));
	assert_has(logged, "odd/config.yaml:");
	assert_int_equal(r.checkpoint_count, 2);
	assert_string_equal(r.checkpoints[0], "checkpoint-000020");
	assert_string_equal(r.checkpoints[1], "checkpoint-000100");
	assert_string_equal(r.result, "adapter");
	report_run_free(&r);
}

/* ---- the page ---- */

/* Writes a run with names that need escaping, and returns it read. */
static void odd_run(struct report_run *r, const char *name, const char *rate, int64_t steps)
{
	struct str rows = {0}, config = {0};

	for (int64_t i = 1; i <= steps; i++)
		str_printf(&rows,
		        "{\"step\":%lld,\"loss\":%g,\"grad_norm\":1,\"learning_rate\":1e-5,\"tokens_per_s\":%"
		        "lld,"
		        "\"host_peak_bytes\":1000,\"pinned_bytes\":10,\"device_peak_bytes\":5000000000,"
		        "\"step_ms\":10,\"wait_ms\":{\"h2d\":%g,\"d2h\":1,\"comm\":0.5,\"cpu\":1,\"disk\":0."
		        "1}}\n",
		        (long long)i, i == steps / 3 ? 40 : 1 + 1.0 / (double)i, (long long)(100 + i % 7),
		        0.1 * (double)(i % 5));
	put(name, "metrics.jsonl", rows.data, rows.len_bytes);
	str_printf(&config,
	        "model: '/models/<i>&\"q\"/x'\nlearning_rate: %s\nseed: 42\nlora_rank: 8\n"
	        "sample_prompt: \"</td><script>alert(1)</script>\\uffff%0400d\"\nmystery: 1\n",
	        rate, 7);
	put(name, "config.yaml", config.data, config.len_bytes);
	check_ok(str_check(&rows));
	check_ok(read_run(r, name));
	str_free(&rows);
	str_free(&config);
}

static size_t place_of(const char *text, const char *part)
{
	assert_has(text, part);
	return (size_t)(strstr(text, part) - text);
}

static void test_page(void **state)
{
	struct report_run runs[2];
	struct str page = {0}, again = {0};

	(void)state;
	odd_run(&runs[0], "<one>&\"1\"", "1e-5", 20);
	odd_run(&runs[1], "two", "2e-5", 30);
	check_ok(page_write(&page, runs, 2));
	check_ok(page_write(&again, runs, 2));
	assert_string_equal(page.data, again.data);
	xml_check(page.data);
	assert_true(place_of(page.data, page_marker) < 500);
	assert_has(page.data, "&lt;one&gt;&amp;&quot;1&quot;");
	assert_has(page.data, "title=\"/models/&lt;i&gt;&amp;&quot;q&quot;/x\"");
	assert_null(strstr(page.data, "<script>alert"));
	assert_null(strstr(page.data, "http://www.w3.org/1999/xlink"));
	assert_null(strstr(page.data, "src="));
	assert_has(page.data, "\xe2\x80\xa6 <small>"); /* the long prompt is cut */
	/* differing keys come first, then those that are not the default */
	assert_has(page.data, "<tr class=\"differs\"><th scope=\"row\">learning_rate</th><td>1e-5</td>"
	                      "<td>2e-5</td></tr>");
	assert_has(page.data, "<tr class=\"changed\"><th scope=\"row\">mystery</th>");
	assert_has(page.data, "<tr class=\"default\"><th scope=\"row\">seed</th>");
	assert_true(
	        place_of(page.data, "row\">learning_rate</th>") < place_of(page.data, "row\">model</th>"));
	assert_true(place_of(page.data, ">mystery</th>") < place_of(page.data, ">seed</th>"));
	assert_has(page.data, "class=\"l c1 d0\" data-name=\"two, training\"");
	str_free(&page);
	str_free(&again);
	report_run_free(&runs[0]);
	report_run_free(&runs[1]);
}

/* A page of many long runs stays below a megabyte, and shows a spike. */
static void test_size(void **state)
{
	struct report_run runs[PAGE_RUNS_MAX];
	struct str page = {0};

	(void)state;
	odd_run(&runs[0], "many", "1e-5", 3000);
	check_ok(page_write(&page, runs, 1));
	assert_has(page.data, "data-y=\"0 40 ");
	assert_true(page.len_bytes < 500000);
	str_free(&page);
	for (int i = 1; i < PAGE_RUNS_MAX; i++)
		check_ok(read_run(&runs[i], "many"));
	check_ok(page_write(&page, runs, PAGE_RUNS_MAX));
	assert_true(page.len_bytes < 1000000);
	xml_check(page.data);
	str_free(&page);
	for (int i = 0; i < PAGE_RUNS_MAX; i++)
		report_run_free(&runs[i]);
}

/* ---- memory ---- */

/* Every request of memory may fail: an error, and nothing is lost. */
static void test_memory_faults(void **state)
{
	struct report_run r;
	struct str page = {0};
	char *path = file_join(dir, "poor");
	int err = ERR_NOMEM;

	(void)state;
	odd_run(&r, "poor", "1e-5", 3);
	report_run_free(&r);
	put("poor/checkpoint-000001", "x", "", 0);
	for (int64_t n = 1; err && n < 20000; n++) {
		json_t *object = NULL;

		mem_fault_arm(n, MEM_FAULT_ONCE);
		err = report_run_read(&r, path);
		if (!err)
			err = page_write(&page, &r, 1);
		if (!err)
			err = report_run_json(&object, &r);
		mem_fault_arm(0, MEM_FAULT_ONCE);
		if (err)
			assert_int_equal(err, ERR_NOMEM);
		json_decref(object);
		report_run_free(&r);
		if (err)
			str_free(&page);
	}
	check_ok(err);
	xml_check(page.data);
	str_free(&page);
	mem_free(path);
}

static int setup(void **state)
{
	if (check_dir_make(state))
		return -1;
	dir = *state;
	log_set_sink(log_take, NULL);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_round_trip),
	        cmocka_unit_test(test_sampled),
	        cmocka_unit_test(test_odd_rows),
	        cmocka_unit_test(test_long_line),
	        cmocka_unit_test(test_odd_directories),
	        cmocka_unit_test(test_page),
	        cmocka_unit_test(test_size),
	        cmocka_unit_test(test_memory_faults),
	};

	return cmocka_run_group_tests(tests, setup, check_dir_remove);
}
