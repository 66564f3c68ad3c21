/* links: cli */
/* TensorBoard's event file: the bytes of its own writer (tests/golden/make_events.py), files that were cut,
 * damaged, full or moved, resumed runs; and run.json. */
#include "tests/event_file.h"
#include "tests/run_fixture.h"

#include "base/err.h"
#include "train/events.h"
#include "train/run_dir/run_dir.h"

#include <errno.h>

static struct run_model tiny;
static char golden[600];

#define TENSORBOARD "report_to=tensorboard eval_split=4 eval_steps=2 save_steps=2 save_total_limit=all "

static void train(int code, const char *out, const char *settings)
{
	assert_ferry(code, NULL, "train model=%s data=%s output_dir=%s/%s %s", tiny.dir, tiny.data, work_dir,
	        out, settings);
}

static void golden_follow(const char *dir)
{
	char metrics[700];
	struct events *e;

	snprintf(metrics, sizeof(metrics), "%s/metrics.jsonl", golden);
	e = events_open(dir, metrics);
	assert_non_null(e);
	events_follow(e);
	events_follow(e);
	events_close(e);
}

static void assert_golden(const char *why)
{
	char got[400], want[700];

	path_of(got, "e/" EVENTS_NAME);
	snprintf(want, sizeof(want), "%s/" EVENTS_NAME, golden);
	assert_same_files(got, want, why);
}

/* Whatever stands in the file before, its bytes are those of TensorBoard's writer. */
static void test_bytes(void **state)
{
	char dir[400], path[400], want[700], *data;
	size_t len = 0;

	(void)state;
	path_of(dir, "e");
	assert_int_equal(file_make_dir(dir), 0);
	golden_follow(dir);
	assert_golden("a new file");
	snprintf(want, sizeof(want), "%s/" EVENTS_NAME, golden);
	data = read_file(want, &len);
	path_of(path, "e/" EVENTS_NAME);
	for (size_t cut = 0; cut <= len; cut += cut < 40 ? 1 : 37) {
		assert_int_equal(file_write_all(path, data, cut), 0);
		golden_follow(dir);
		assert_golden("a file that was cut");
		data[cut < len ? cut : 0] ^= 1;
		assert_int_equal(file_write_all(path, data, len), 0);
		data[cut < len ? cut : 0] ^= 1;
		golden_follow(dir);
		assert_golden("a damaged file");
	}
	free(data);
	data = calloc(3, len);
	assert_int_equal(file_write_all(path, data, 3 * len), 0);
	free(data);
	golden_follow(dir);
	assert_golden("a longer file");
}

/* ---- a disk that is full at one write ---- */

static int refusals;

static int full_hook(void *context, const struct file_call *call)
{
	(void)context;
	if (call->kind != FILE_CALL_WRITE || !call->path || !strstr(call->path, EVENTS_NAME) || !refusals)
		return 0;
	return refusals-- & 1 ? FILE_HOOK_SHORT : ENOSPC;
}

static void test_full_disk(void **state)
{
	char dir[400], metrics[700];
	struct events *e;

	(void)state;
	path_of(dir, "e");
	remove_run("e");
	assert_int_equal(file_make_dir(dir), 0);
	snprintf(metrics, sizeof(metrics), "%s/metrics.jsonl", golden);
	file_hook_set(full_hook, NULL);
	refusals = 3;
	e = events_open(dir, metrics);
	events_follow(e);
	events_follow(e);
	file_hook_set(NULL, NULL);
	events_follow(e);
	events_close(e);
	assert_golden("a disk that was full");
}

/* ---- runs ---- */

static void test_resumed(void **state)
{
	char dir[400];

	(void)state;
	path_of(dir, "a");
	train(0, "a", TENSORBOARD "max_steps=6");
	assert_events(dir, "a whole run");
	train(0, "a", TENSORBOARD "max_steps=9 resume_from_checkpoint=auto");
	assert_events(dir, "resumed at its end");
	assert_ferry(0, NULL, "train %s/config.yaml resume_from_checkpoint=%s/checkpoint-000004 max_steps=7",
	        dir, dir);
	assert_events(dir, "resumed at an older checkpoint");
	assert_ferry(
	        0, NULL, "train %s/config.yaml resume_from_checkpoint=auto max_steps=8 report_to=off", dir);
	assert_ferry(0, NULL,
	        "train %s/config.yaml resume_from_checkpoint=auto max_steps=10 report_to=tensorboard", dir);
	assert_events(dir, "on again");
	train(0, "a", "max_steps=1 overwrite_output_dir=on");
	assert_false(run_has("a/" EVENTS_NAME));
}

static void test_wandb_is_refused(void **state)
{
	(void)state;
	train(2, "w", "max_steps=1 report_to=wandb");
	assert_non_null(
	        strstr(ferry_said(), "report_to=wandb would send data to a service, which ferry never does; "
	                             "set report_to=tensorboard, and after the run: wandb sync OUTPUT_DIR"));
	assert_false(run_has("w"));
}

/* ---- run.json ---- */

static json_t *note_of(const char *name)
{
	char path[400];
	json_t *note;

	path_of(path, name);
	assert_int_equal(json_read_file(&note, path, 1 << 20), 0);
	return note;
}

static const char *text_of(const json_t *note, const char *key)
{
	const char *text = json_string_value(json_object_get(note, key));

	assert_non_null(text);
	return text;
}

static void test_run_json(void **state)
{
	json_t *note, *again, *list;

	(void)state;
	remove_run("a");
	train(0, "a", "max_steps=2 seed=7");
	note = note_of("a/run.json");
	assert_string_equal(text_of(note, "version"), FERRY_VERSION);
	assert_int_equal(strlen(text_of(note, "started")), strlen("2026-11-28T08:15:02Z"));
	assert_non_null(strstr(text_of(note, "command"), "max_steps=2 seed=7"));
	assert_int_equal(strlen(text_of(note, "data_hash")), 16);
	assert_true(*text_of(note, "host") && *text_of(note, "device"));
	assert_null(json_object_get(note, "resumed"));
	train(0, "a", "max_steps=4 seed=7 resume_from_checkpoint=auto");
	again = note_of("a/run.json");
	list = json_object_get(again, "resumed");
	assert_int_equal(json_array_size(list), 1);
	assert_int_equal(json_integer_value(json_object_get(json_array_get(list, 0), "step")), 2);
	assert_non_null(strstr(text_of(json_array_get(list, 0), "command"), "max_steps=4"));
	assert_string_equal(text_of(again, "started"), text_of(note, "started"));
	json_object_del(again, "resumed");
	assert_true(json_equal(note, again));
	json_decref(note);
	json_decref(again);
	write_file("a/run.json", "{\"version\": ");
	train(0, "a", "max_steps=5 seed=7 resume_from_checkpoint=auto");
	note = note_of("a/run.json");
	assert_string_equal(text_of(note, "version"), FERRY_VERSION);
	json_decref(note);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_bytes), cmocka_unit_test(test_full_disk),
	        cmocka_unit_test(test_resumed), cmocka_unit_test(test_wandb_is_refused),
	        cmocka_unit_test(test_run_json)};
	const char *source = getenv("FERRY_SOURCE");
	int failed;

	snprintf(golden, sizeof(golden), "%s/tests/golden/events", source ? source : ".");
	ferry_run_begin("events");
	tiny_model(&tiny);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
