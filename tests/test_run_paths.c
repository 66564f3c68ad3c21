/* links: cli */
/* Names of a model and data: folders and their splits, patterns, pipes, the home directory, names relative
 * to the configuration file, hub ids in the HuggingFace cache. */
#include "tests/run_fixture.h"

enum { TINY_ROWS = 23 }; /* tiny_model's */

static struct run_model tiny;

static void make_dir(const char *name)
{
	char path[800];

	snprintf(path, sizeof(path), "%s/%s", work_dir, name);
	assert_int_equal(file_make_dir(path), 0);
}

/* Checks the number of rows in the output of "ferry data show ARGS --json". */
static void check_rows(int64_t wanted, const char *args)
{
	json_t *object;
	int64_t rows = -1;

	assert_ferry_json(&object, "data show --json show_rows=0 %s", args);
	json_get_int(object, "data show", "rows", &rows);
	if (rows != wanted)
		fail_msg("%s: %d rows, %d wanted", args, (int)rows, (int)wanted);
	json_decref(object);
}

static void check_refused(const char *args, const char *said)
{
	assert_ferry(2, NULL, "%s", args);
	if (!strstr(ferry_said(), said))
		fail_msg("%s: no \"%s\" in: %s", args, said, ferry_said());
}

static void test_folders(void **state)
{
	struct str said = {0};
	char args[900];

	(void)state;
	make_dir("set/data");
	write_rows("set/data/train-00000-of-00002.jsonl", 5, 1);
	write_rows("set/data/train-00001-of-00002.jsonl", 6, 2);
	write_rows("set/data/validation.jsonl", 3, 3);
	snprintf(args, sizeof(args), "data=%s/set", work_dir);
	check_rows(11, args);
	snprintf(args, sizeof(args), "data=%s/set split=validation", work_dir);
	check_rows(3, args);
	snprintf(args, sizeof(args), "'data=%s/set/data/*-of-*'", work_dir);
	check_rows(11, args);
	snprintf(args, sizeof(args), "data show data=%s/set data_split=test", work_dir);
	check_refused(args, "no files of the split test; there are train, validation");
	/* eval_data takes validation by itself */
	assert_ferry(0, &said,
	        "train model=%s data=%s/set eval_data=%s/set output_dir=%s/folder max_steps=1 device=host",
	        tiny.dir, work_dir, work_dir, work_dir);
	assert_non_null(strstr(said.data, "set: 3 rows"));
	str_free(&said);
}

static void test_pipe(void **state)
{
	char args[900];

	(void)state;
	snprintf(args, sizeof(args), "data=- < %s", tiny.data);
	check_rows(TINY_ROWS, args);
}

static void test_home_and_file(void **state)
{
	char args[900], old_home[400], text[900];

	(void)state;
	snprintf(old_home, sizeof(old_home), "%s", getenv("HOME") ? getenv("HOME") : "");
	setenv("HOME", work_dir, 1);
	check_rows(TINY_ROWS, "data='~/rows.jsonl'");
	setenv("HOME", old_home, 1);
	make_dir("beside");
	write_rows("beside/mine.jsonl", 4, 1);
	snprintf(text, sizeof(text), "model: %s\ndata: mine.jsonl\n", tiny.dir);
	write_file("beside/run.yaml", "%s", text);
	snprintf(args, sizeof(args), "%s/beside/run.yaml", work_dir);
	check_rows(4, args);
	write_file("beside/run.yaml", "data: other.jsonl\n");
	snprintf(args, sizeof(args), "data show %s/beside/run.yaml", work_dir);
	check_refused(args, "run.yaml:1: data=other.jsonl");
}

/* A saved config.yaml means the same wherever it is read: a run that was given relative paths goes on from
 * another folder. */
static void test_saved_paths(void **state)
{
	static const char *const says[] = {"\ndata: %s/rows.jsonl\n", "\nmodel: %s/tiny\n",
	        "\noutput_dir: %s/own\n", "\nsave_fallback_dir: %s/spare\n",
	        "\neval_data: %s/beside/*.jsonl,%s/rows.jsonl\n", "\nchat_template: chatml\n"};
	char *binary = realpath(getenv("FERRY_BINARY"), NULL), command[2000], path[400], want[900], *text;
	size_t len;

	(void)state;
	assert_non_null(binary);
	snprintf(command, sizeof(command),
	        "cd %s && %s train model=./tiny data=rows.jsonl 'eval_data=beside/*.jsonl,rows.jsonl' "
	        "output_dir=own save_fallback_dir=spare chat_template=chatml max_steps=2 device=host "
	        ">/dev/null 2>stderr",
	        work_dir, binary);
	if (system(command))
		fail_msg("%s: %s", command, ferry_said());
	free(binary);
	path_of(path, "own/config.yaml");
	text = read_file(path, &len);
	for (size_t i = 0; i < sizeof(says) / sizeof(*says); i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		snprintf(want, sizeof(want), says[i], work_dir, work_dir);
#pragma GCC diagnostic pop
		if (!strstr(text, want))
			fail_msg("no%sin %s", want, text);
	}
	mem_free(text);
	assert_ferry(0, NULL, "train %s resume_from_checkpoint=auto max_steps=3", path);
	assert_true(run_has("own/checkpoint-000003"));
	assert_int_equal(file_kind_of("own"), FILE_NONE);
}

static void test_hub(void **state)
{
	char command[1200], home[400];

	(void)state;
	make_dir("hf/hub/models--some--tiny/refs");
	make_dir("hf/hub/models--some--tiny/snapshots");
	make_dir("hf/hub/datasets--some--rows/snapshots/1");
	write_file("hf/hub/models--some--tiny/refs/main", "abc\n");
	write_rows("hf/hub/datasets--some--rows/snapshots/1/train.jsonl", 7, 1);
	snprintf(command, sizeof(command), "cp -r %s %s/hf/hub/models--some--tiny/snapshots/abc", tiny.dir,
	        work_dir);
	assert_int_equal(system(command), 0);
	snprintf(home, sizeof(home), "%s/hf", work_dir);
	setenv("HF_HOME", home, 1);
	check_rows(7, "model=some/tiny data=some/rows");
	assert_ferry(0, NULL, "eval model=some/tiny data=some/rows device=host");
	check_refused("eval model=some/other data=some/rows", "hf download some/other");
	unsetenv("HF_HOME");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_folders),
	        cmocka_unit_test(test_pipe),
	        cmocka_unit_test(test_home_and_file),
	        cmocka_unit_test(test_saved_paths),
	        cmocka_unit_test(test_hub),
	};
	int failed;

	ferry_run_begin("paths");
	tiny_model(&tiny);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
