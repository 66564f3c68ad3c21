/* links: cli */
/* ferry report as a program: its arguments, files, messages and JSON, on a run of ferry train. */
#include "tests/cli_words.h"
#include "tests/xml_check.h"

static struct run_model tiny;

static char *page_read(const char *name)
{
	char path[400], *text = NULL;
	size_t len = 0;

	path_of(path, name);
	assert_int_equal(file_read_all(path, 1 << 20, &text, &len), 0);
	return text;
}

/* The page of a run as train leaves it. */
static void test_run(void **state)
{
	char *page;
	json_t *object = NULL, *run;

	(void)state;
	assert_words(0, "report @/one html=@/one.html",
	        "/one: step 6, loss |(best |eval loss |tok/s, host |/one.html: 1 run, | KiB; open it in a "
	        "browser");
	page = page_read("one.html");
	xml_check(page);
	assert_non_null(strstr(page, "<b>Loss</b>"));
	assert_non_null(strstr(page, "<b>Gradient norm before clipping</b>"));
	assert_non_null(strstr(page, "<b>Learning rate</b>"));
	assert_non_null(strstr(page, "<b>Tokens per second</b>"));
	assert_non_null(strstr(page, "<b>Peak memory so far</b>"));
	assert_non_null(strstr(page, "<b>Time of each step</b>"));
	assert_non_null(
	        strstr(page, "<tr class=\"changed\"><th scope=\"row\">learning_rate</th><td>0.01</td>"));
	assert_non_null(strstr(page, "<tr class=\"default\"><th scope=\"row\">lora_rank</th><td>off</td>"));
	assert_non_null(strstr(page, "<tr class=\"default\"><th scope=\"row\">gradient_dtype</th>"));
	assert_non_null(strstr(page, "checkpoint-000006"));
	assert_null(strstr(page, "class=\"note\""));
	mem_free(page);
	assert_ferry_json(&object, "report %s/one --json html=", work_dir);
	assert_true(json_is_null(json_object_get(object, "html")));
	run = json_array_get(json_object_get(object, "runs"), 0);
	assert_int_equal(json_integer_value(json_object_get(run, "step")), 6);
	assert_int_equal(json_integer_value(json_object_get(run, "rows")), 6);
	assert_true(json_real_value(json_object_get(run, "loss")) > 0);
	assert_true(json_real_value(json_object_get(run, "eval_loss")) > 0);
	assert_true(json_integer_value(json_object_get(run, "tokens")) > 0);
	assert_true(json_real_value(json_object_get(run, "seconds")) > 0);
	assert_true(json_integer_value(json_object_get(run, "host_peak_bytes")) > 1 << 20);
	assert_string_equal(json_string_value(json_object_get(run, "result")), "model");
	assert_int_equal(json_array_size(json_object_get(run, "checkpoints")), 1);
	assert_int_equal(json_object_size(json_object_get(run, "wait_share")), 5);
	json_decref(object);
}

/* A resumed run and a running one are runs. Several make one page, in their order. */
static void test_several(void **state)
{
	char *page;

	(void)state;
	assert_words(0, "train @/one/config.yaml output_dir=@/one resume_from_checkpoint=auto max_steps=8",
	        "at step 6");
	assert_words(0, "report @/two @/one/ html=@/both.html",
	        "run  |  learning_rate  |  best eval  |two |one |both.html: 2 runs");
	page = page_read("both.html");
	xml_check(page);
	assert_non_null(strstr(page, "data-name=\"two, training\""));
	assert_non_null(strstr(page,
	        "<tr class=\"differs\"><th scope=\"row\">learning_rate</th><td>0.01</td><td>0.02</td>"));
	mem_free(page);
	write_file("report.yaml", "output_dirs: [%s/one, %s/two]\nhtml: %s/from-file.html\n", work_dir,
	        work_dir, work_dir);
	assert_words(0, "report @/report.yaml", "from-file.html: 2 runs");
	assert_words(0, "report @/report.yaml @/one", "from-file.html: 1 run");
	assert_words(0, "report output_dirs=@/one html=@/by-key.html", "by-key.html: 1 run");
	/* equal names are told apart by their paths */
	assert_words(0, "report @/one @/one html=@/same.html", "same.html: 2 runs");
	page = page_read("same.html");
	assert_non_null(strstr(page, "/one, training\""));
	mem_free(page);
}

/* A folder of runs: sorted by the best evaluation, with the keys that differ, on the terminal, for
 * programs and on the page. */
static void test_sweep(void **state)
{
	json_t *object = NULL, *runs, *run;
	struct str out = {0};
	const char *at;
	double last = 0;
	char *page;
	size_t i;

	(void)state;
	write_file("sweep.sh",
	        "for lr in 1e-5 0.02 1e-3; do %s train %s/one/config.yaml output_dir=%s/sweep/lr-$lr "
	        "learning_rate=$lr > /dev/null || exit 1; done; mkdir %s/sweep/other",
	        getenv("FERRY_BINARY"), work_dir, work_dir, work_dir);
	{
		char command[400];

		snprintf(command, sizeof(command), "sh %s/sweep.sh", work_dir);
		assert_int_equal(system(command), 0);
	}
	assert_ferry(0, &out, "report %s/sweep html=%s/sweep.html", work_dir, work_dir);
	assert_non_null(strstr(out.data, "  learning_rate  best eval"));
	assert_non_null(strstr(out.data, "3 runs"));
	assert_null(strstr(out.data, "output_dir"));
	page = page_read("sweep.html");
	xml_check(page);
	assert_non_null(strstr(page, "<th class=\"text\">learning_rate</th>"));
	assert_non_null(strstr(page, "<b>Loss over tokens</b>"));
	assert_non_null(strstr(page, "<b>Loss over time</b>"));
	mem_free(page);
	assert_ferry_json(&object, "report %s/sweep --json html=", work_dir);
	assert_int_equal(json_array_size(json_object_get(object, "differs")), 1);
	assert_string_equal(
	        json_string_value(json_array_get(json_object_get(object, "differs"), 0)), "learning_rate");
	runs = json_object_get(object, "runs");
	at = out.data;
	assert_int_equal(json_array_size(runs), 3);
	json_array_foreach(runs, i, run)
	{
		double loss = json_real_value(json_object_get(run, "best_eval_loss"));

		assert_true(loss >= last);
		last = loss;
		at = strstr(at, strrchr(json_string_value(json_object_get(run, "path")), '/') + 1);
		assert_non_null(at); /* the table has the same order */
		assert_non_null(json_object_get(json_object_get(run, "config"), "learning_rate"));
	}
	json_decref(object);
	str_free(&out);
	assert_words(2, "report @/sweep/other",
	        "has no metrics.jsonl; name the output_dir of a run, or a folder of runs");
}

/* Replaces a former report, and nothing else. */
static void test_existing(void **state)
{
	char *page;

	(void)state;
	write_file("mine.html", "<html>mine</html>");
	assert_words(2, "report @/one html=@/mine.html",
	        "mine.html exists and is no report of ferry; remove it or name another file");
	page = page_read("mine.html");
	assert_string_equal(page, "<html>mine</html>");
	mem_free(page);
	assert_words(2, "report @/one html=@/one", "/one is a directory; name a file in it");
	assert_words(2, "report @/one html=/dev/null", "/dev/null exists and is no report");
	assert_words(2, "report @/one html=@/none/x.html", "none/x.html");
	assert_words(0, "report @/one html=@/again.html", "");
	assert_words(0, "report @/two html=@/again.html", "again.html: 1 run");
}

static void test_mistakes(void **state)
{
	(void)state;
	assert_words(2, "report", "output_dirs is not set; usage: ferry report OUTPUT_DIR...");
	assert_words(2, "report @/none", "/none: cannot be accessed: No such file");
	assert_words(2, "report @/tiny", "/tiny has no metrics.jsonl; name the output_dir of a run");
	assert_words(2, "report @/one/metrics.jsonl", "is a file; expected the output_dir of a run");
	assert_words(
	        2, "report output_dir=@/one", "output_dir is not a key of ferry report; set output_dirs");
	assert_words(2, "train model=@/tiny data=@/rows.jsonl output_dirs=@/x", "set output_dir");
	assert_words(2, "report output_dirs=[]", "names 0 runs; a page shows 1 to 32");
	assert_words(2, "report 'output_dirs=[\"\"]'", "a directory has no name");
	assert_words(2, "report $(yes @/one | head -33)", "names 33 runs; a page shows 1 to 32");
	assert_words(2, "report \"$(printf 'a\\377')\"", "is not UTF-8; rename it");
	assert_words(2, "report @/one @/none html=@/half.html", "/none: cannot be accessed");
	assert_words(2, "inspect @/one @/two", "unexpected argument \"");
	assert_words(2, "plot @/one", "unknown verb \"plot\"; write ferry report OUTPUT_DIR");
	assert_words(0, "report --help", "ferry report OUTPUT_DIR...|html = report.html");
}

/* A reader of the output who has gone does not keep the page from being written. */
static void test_unread(void **state)
{
	char command[1000], *page;

	(void)state;
	snprintf(command, sizeof(command), "report %1$s/one html=%1$s/unread.html | true", work_dir);
	assert_ferry(0, NULL, "%s", command);
	page = page_read("unread.html");
	xml_check(page);
	mem_free(page);
}

/* A name that looks like a list, or like markup, is a name. */
static void test_names(void **state)
{
	char from[400], to[400], *page;

	(void)state;
	path_of(from, "two");
	path_of(to, "[\"<b>\"]");
	assert_int_equal(file_rename(from, to), 0);
	assert_words(0, "report '@/[\"<b>\"]' html=@/names.html", "/[\"<b>\"]: step 4");
	page = page_read("names.html");
	xml_check(page);
	assert_non_null(strstr(page, "<title>[&quot;&lt;b&gt;&quot;]"));
	mem_free(page);
	assert_int_equal(file_rename(to, from), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_run),
	        cmocka_unit_test(test_several),
	        cmocka_unit_test(test_sweep),
	        cmocka_unit_test(test_existing),
	        cmocka_unit_test(test_mistakes),
	        cmocka_unit_test(test_unread),
	        cmocka_unit_test(test_names),
	};
	int failed;

	ferry_run_begin("report");
	tiny_model(&tiny);
	assert_words(0,
	        "train model=@/tiny data=@/rows.jsonl output_dir=@/one max_steps=6 learning_rate=0.01 "
	        "eval_split=2 "
	        "eval_steps=2 seed=3",
	        "");
	assert_words(0,
	        "train model=@/tiny data=@/rows.jsonl output_dir=@/two max_steps=4 learning_rate=0.02", "");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
