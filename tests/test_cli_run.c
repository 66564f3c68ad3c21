/* links: cli */
/* The output of a run: metrics, its directory, progress, exit codes; signals. */
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/quantity.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "config/config.h"
#include "tests/check.h"
#include "train/metrics.h"
#include "train/preflight.h"
#include "train/run_dir/run_dir.h"

#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The output of a run: metrics, output directory, progress, signals. */

static char *path_in(void *state, const char *name)
{
	return file_join(state, name);
}

static char *read_text(const char *path)
{
	char *text = NULL;
	size_t len;

	check_ok(file_read_all(path, 1 << 20, &text, &len));
	return text;
}

/* ---- metrics ---- */

static struct metrics_step step_row(int64_t step)
{
	return (struct metrics_step){.step = step,
	        .epoch = 0.5,
	        .loss = 2.25,
	        .grad_norm = 1.5,
	        .learning_rate = 1e-4,
	        .target_tokens = 10,
	        .tokens = 20,
	        .step_ms = 3,
	        .tokens_per_s = 4,
	        .host_peak_bytes = 5,
	        .pinned_bytes = 6,
	        .device_peak_bytes = 7,
	        .wait_ms = {[QUEUE_H2D] = 0.5},
	        .disk_wait_ms = 0.25};
}

static int count_lines(const char *text)
{
	int count = 0;

	while (*text)
		count += *text++ == '\n';
	return count;
}

static void write_steps(const char *path, int64_t after, int64_t from, int64_t to)
{
	struct metrics *m;

	check_ok(metrics_open(&m, path, after));
	for (int64_t step = from; step <= to; step++) {
		struct metrics_step row = step_row(step);

		metrics_write_step(m, &row);
	}
	metrics_close(m);
}

static void test_metrics_fields(void **state)
{
	static const char *const fields[] = {"step", "epoch", "loss", "grad_norm", "learning_rate",
	        "target_tokens", "tokens", "step_ms", "tokens_per_s", "host_peak_bytes", "pinned_bytes",
	        "device_peak_bytes", "skipped", "wait_ms", "time"};
	static const char *const queues[] = {"h2d", "d2h", "comm", "cpu", "disk"};
	char *path = path_in(*state, "fields.jsonl"), *text;
	json_t *row;

	write_steps(path, -1, 1, 1);
	text = read_text(path);
	check_ok(json_parse(&row, path, text, strlen(text)));
	assert_int_equal(json_object_size(row), sizeof(fields) / sizeof(*fields));
	for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++)
		assert_non_null(json_object_get(row, fields[i]));
	for (size_t i = 0; i < sizeof(queues) / sizeof(*queues); i++)
		assert_true(json_is_real(json_object_get(json_object_get(row, "wait_ms"), queues[i])));
	assert_true(json_real_value(json_object_get(row, "loss")) == 2.25);
	assert_true(fabs(json_real_value(json_object_get(row, "time")) - (double)time(NULL)) < 100);
	json_decref(row);
	mem_free(text);
	mem_free(path);
}

static void test_metrics_nonfinite(void **state)
{
	char *path = path_in(*state, "nan.jsonl"), *text;
	struct metrics_step row = step_row(1);
	const struct objective_means pairs = {.metric = {1.5, -2, 3.5, NAN, -4, -5}};
	struct metrics_eval eval = {.step = 1, .epoch = 1, .loss = INFINITY, .perplexity = NAN, .tokens = 5};
	struct metrics *m;

	row.loss = NAN;
	row.skipped = 1;
	check_ok(metrics_open(&m, path, 0));
	metrics_write_step(m, &row);
	metrics_write_eval(m, &eval);
	row.step = 2;
	row.objective = eval.objective = &objective_pairs;
	row.means = eval.means = pairs;
	metrics_write_step(m, &row);
	metrics_write_eval(m, &eval);
	metrics_close(m);
	text = read_text(path);
	assert_non_null(
	        strstr(text, "\"rewards/chosen\":1.5,\"rewards/rejected\":-2.0,\"rewards/margins\":3.5,"
	                     "\"rewards/accuracies\":null,\"logps/chosen\":-4.0,\"logps/rejected\":-5.0,"));
	assert_non_null(strstr(text, "\"eval_loss\":null,\"eval_tokens\":5,\"eval_rewards/chosen\":1.5,"));
	assert_non_null(strstr(text, "\"loss\":null"));
	assert_non_null(strstr(text, "\"skipped\":true"));
	assert_non_null(strstr(text, "\"eval_loss\":null,\"eval_perplexity\":null,\"eval_tokens\":5"));
	mem_free(text);
	mem_free(path);
}

static void test_metrics_resume(void **state)
{
	char *path = path_in(*state, "resume.jsonl"), *text;
	struct metrics_eval eval = {.step = 3, .epoch = 1, .loss = 1, .perplexity = 1, .tokens = 5};
	struct metrics *m;
	FILE *f;

	write_steps(path, 0, 1, 3);
	check_ok(metrics_open(&m, path, 3));
	metrics_write_eval(m, &eval);
	metrics_close(m);
	write_steps(path, 3, 4, 5);
	f = fopen(path, "a");
	fputs("{\"step\": 6, \"lo", f); /* torn */
	fclose(f);
	text = read_text(path);
	assert_int_equal(count_lines(text), 6);
	mem_free(text);

	write_steps(path, 3, 4, 8); /* cuts steps 4, 5 and the torn line; the eval row of step 3 stays */
	text = read_text(path);
	assert_int_equal(count_lines(text), 9);
	assert_null(strstr(text, "\"lo{"));
	mem_free(text);

	write_steps(path, 0, 1, 2);
	text = read_text(path);
	assert_int_equal(count_lines(text), 2);
	mem_free(text);
	mem_free(path);
}

/* ---- output directory ---- */

static void parse(struct config *c, const char *dir, const char *more)
{
	char model[600], out[600];
	char *words[8] = {model, "data=d.jsonl", out};
	char *extra = mem_strdup(more), *rest = extra, *word;
	int count = 3;

	snprintf(model, sizeof(model), "model=%s/run/model", dir);
	snprintf(out, sizeof(out), "output_dir=%s/run", dir);
	while ((word = strsep(&rest, " ")) != NULL)
		if (*word)
			words[count++] = word;
	check_ok(config_parse(c, VERB_TRAIN, count, words));
	mem_free(extra);
}

static int exists(const char *dir, const char *name)
{
	char *path = file_join(dir, name);
	int found = file_kind_of(path) != FILE_NONE;

	mem_free(path);
	return found;
}

static void test_run_dir(void **state)
{
	struct run_branch branch;
	struct config c, again;
	char run[600], file[700];
	char *words[1] = {file};

	snprintf(run, sizeof(run), "%s/run", (char *)*state);
	parse(&c, *state, "lr=1e-4");
	check_ok(run_branch_open(&branch, &c, NULL, NULL));
	check_ok(run_dir_check(&c));
	assert_false(exists(*state, "run")); /* checking writes nothing */
	check_ok(run_dir_open(&c, &branch));
	assert_true(exists(run, "config.yaml"));

	/* config.yaml repeats the run */
	snprintf(file, sizeof(file), "%s/config.yaml", run);
	check_ok(config_parse(&again, VERB_TRAIN, 1, words));
	assert_true(again.learning_rate == 1e-4);
	assert_string_equal(again.output_dir, run);
	check_fails(run_dir_check(&again), ERR_INPUT, "resume_from_checkpoint=auto");
	check_fails(run_dir_check(&again), ERR_INPUT, "overwrite_output_dir=on");
	config_free(&again);
	config_free(&c);

	parse(&c, *state, "resume=auto");
	check_ok(run_dir_check(&c));
	config_free(&c);

	/* overwriting removes ferry's files and leaves the others */
	snprintf(file, sizeof(file), "%s/notes.txt", run);
	check_ok(file_write_all(file, "x", 1));
	snprintf(file, sizeof(file), "%s/checkpoint-best", run);
	check_ok(file_make_dir(file));
	snprintf(file, sizeof(file), "%s/checkpoint-000005", run);
	check_ok(file_make_dir(file));
	parse(&c, *state,
	        "overwrite_output_dir=on"); /* a directory of that name is not yet a checkpoint of ours */
	check_fails(run_dir_check(&c), ERR_INPUT, "contains checkpoint-000005, which ferry did not write");
	config_free(&c);
	snprintf(file, sizeof(file), "%s/checkpoint-000005/manifest.json", run);
	check_ok(file_write_all(file, "x", 1));
	parse(&c, *state, "overwrite_output_dir=on");
	check_ok(run_dir_check(&c));
	check_ok(run_dir_open(&c, &branch));
	assert_true(exists(run, "notes.txt"));
	assert_true(exists(run, "checkpoint-best"));
	assert_false(exists(run, "checkpoint-000005"));

	/* but not what this run reads */
	snprintf(file, sizeof(file), "%s/model", run);
	check_ok(file_make_dir(file));
	check_fails(run_dir_check(&c), ERR_INPUT, "which this run reads");
	config_free(&c);

	snprintf(file, sizeof(file), "%s/run2", (char *)*state);
	check_ok(file_write_all(file, "x", 1));
	snprintf(file, sizeof(file), "output_dir=%s/run2", (char *)*state);
	check_ok(config_parse(&c, VERB_TRAIN, 1, words));
	check_fails(run_dir_check(&c), ERR_INPUT, "is a file; expected a directory");
	config_free(&c);
	run_branch_close(&branch);
}

static void test_preflight(void **state)
{
	static const struct {
		const char *model, *text;
	} rows[] = {
	        {"meta-llama/Llama-3.2-1B", "hf download meta-llama/Llama-3.2-1B --local-dir Llama-3.2-1B"},
	        {"gpt2", "pip install -U huggingface_hub"},
	        {"./gpt2", "model=./gpt2: no such file or directory"},
	        {"a/b/c", "model=a/b/c: no such file or directory"},
	        {"model.safetensors", "model=model.safetensors: no such file or directory"},
	        {"/dev/null", "is a file; expected a directory"},
	};
	struct config c;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		char model[128];
		char *words[] = {model, "data=x", "output_dir=/nonexistent/o"};

		snprintf(model, sizeof(model), "model=%s", rows[i].model);
		check_ok(config_parse(&c, VERB_TRAIN, 3, words));
		check_fails(preflight_check(&c), ERR_INPUT, rows[i].text);
		config_free(&c);
	}
}

/* ---- progress ---- */

static void test_progress_texts(void **state)
{
	static const struct {
		int64_t bytes;
		const char *text;
	} bytes[] = {{0, "0 B"}, {1023, "1023 B"}, {1024, "1.0 KiB"}, {1536, "1.5 KiB"},
	        {200 << 20, "200 MiB"}, {(int64_t)3 << 40, "3.0 TiB"}};
	static const struct {
		double seconds;
		const char *text;
	} seconds[] = {
	        {0, "0:00"}, {59.6, "1:00"}, {3599, "59:59"}, {3723, "1:02:03"}, {90061, "1d 1:01:01"}};
	static const struct {
		double count;
		const char *text;
	} counts[] = {{0, "0"}, {56, "56"}, {9.5, "9.5"}, {523, "523"}, {12345, "12.3k"}, {2.5e9, "2.50B"},
	        {9999, "9999"}, {999900, "1.00M"}, {113088, "113k"}};
	struct str s = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(bytes) / sizeof(*bytes); i++) {
		str_free(&s);
		quantity_bytes(&s, bytes[i].bytes);
		assert_string_equal(s.data, bytes[i].text);
	}
	for (size_t i = 0; i < sizeof(seconds) / sizeof(*seconds); i++) {
		str_free(&s);
		quantity_seconds(&s, seconds[i].seconds);
		assert_string_equal(s.data, seconds[i].text);
	}
	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		str_free(&s);
		quantity_count(&s, counts[i].count);
		assert_string_equal(s.data, counts[i].text);
	}
	str_free(&s);
}

static void test_progress_line(void **state)
{
	const struct objective_means pairs = {.metric = {[2] = 0.25, [3] = 0.75}};
	struct metrics_step row = {.step_ms = 1520,
	        .planned_ms = 1480,
	        .wait_ms = {[QUEUE_H2D] = 20, [QUEUE_CPU] = 110, [QUEUE_COMM] = 1},
	        .has_condition = 1,
	        .condition = {1755, 2619, 640, 71, 1U << DEVICE_SLOW_POWER}};
	struct progress_step step = {
	        7, 2.5, 1.25, 2e-5, 1234, (int64_t)3 << 30, 1 << 20, 0.125, NULL, NULL, NULL, NULL};
	struct str s = {0};

	(void)state;
	progress_format(&s, &step, 100, 65);
	assert_string_equal(s.data,
	        "step 7/100  loss 2.5000  grad 1.25  lr 2.00e-05  1234 tok/s  eta 1:05  device 1.0 MiB  "
	        "host 3.0 GiB  wait 12%");
	str_free(&s);
	step = (struct progress_step){7, NAN, NAN, 0, NAN, -1, -1, NAN, NULL, NULL, "not finite", NULL};
	progress_format(&s, &step, 100, -1);
	assert_string_equal(s.data, "step 7/100  skipped: not finite  lr 0.00e+00");
	str_free(&s);
	step = (struct progress_step){
	        7, 0.5, NAN, NAN, NAN, -1, -1, NAN, &objective_pairs, &pairs, NULL, NULL};
	progress_format(&s, &step, 100, -1);
	assert_string_equal(s.data, "step 7/100  loss 0.5000  right 75%  margin 0.25");
	str_free(&s);
	step = (struct progress_step){7, 2.5, NAN, NAN, NAN, -1, -1, 0.086, NULL, NULL, NULL, &row};
	progress_format(&s, &step, 100, -1);
	assert_string_equal(s.data,
	        "step 7/100  loss 2.5000  wait 9% (h2d 20, cpu 110 ms)  step 1520 ms, planned 1480 ms  "
	        "gpu 1755 MHz 640 W 71 C, slowed by power limit");
	str_free(&s);
	row.condition.watts = 0; /* a card without this sensor */
	progress_format(&s, &step, 100, -1);
	assert_non_null(strstr(s.data, "  gpu 1755 MHz 71 C, slowed"));
	str_free(&s);
	const struct metrics_step fast = {.step_ms = 8, .wait_ms = {[QUEUE_D2H] = 0.4, [QUEUE_COMM] = 0.3}};

	step.row = &fast; /* what rounds to 0 ms is no cause */
	progress_format(&s, &step, 100, -1);
	assert_string_equal(s.data, "step 7/100  loss 2.5000  wait 9%");
	str_free(&s);
}

static void test_progress_styles(void **state)
{
	struct progress_step step = {1, 2.5, 1, 1e-5, 10, -1, -1, 0, NULL, NULL, NULL, NULL};
	char *path = path_in(*state, "progress"), *text;
	struct progress *p;
	FILE *f = fopen(path, "w");

	check_ok(progress_open(&p, f, 2, PROGRESS_STYLE_AUTO)); /* a file: lines */
	progress_show(p, &step);
	step.step = 2;
	progress_show(p, &step);
	progress_close(p);
	fclose(f);
	text = read_text(path);
	assert_int_equal(count_lines(text), 2);
	assert_null(strchr(text, '\r'));
	mem_free(text);

	f = fopen(path, "w");
	check_ok(progress_open(&p, f, 2, PROGRESS_STYLE_UPDATE));
	progress_show(p, &step);
	progress_show(p, &step);
	progress_close(p);
	fclose(f);
	text = read_text(path);
	assert_int_equal(count_lines(text), 1); /* the end */
	assert_non_null(strstr(text, "\r\033[Kstep 2/2"));
	mem_free(text);
	mem_free(path);
}

static void test_progress_of_work(void **state)
{
	static const struct {
		struct work_state work;
		double step_s;
		const char *text;
	} cases[] = {
	        {{.what = "loading weights", .done = 30, .total = 120, .seconds = 15}, 0,
	                "loading weights: 25%, 0:15 of about 1:00"},
	        {{.what = "loading weights", .done = 1, .total = 120, .seconds = 15}, 0,
	                "loading weights: 1%, 0:15"},
	        {{.what = "allocating", .seconds = 65}, 7, "allocating: 1:05"},
	        {{.what = work_step,
	                 .done = 50,
	                 .total = 100,
	                 .layer = 3,
	                 .layer_count = 32,
	                 .micro = 2,
	                 .micro_count = 8,
	                 .is_backward = 1,
	                 .seconds = 20},
	                0, "step 8/116: backward, layer 3/32, micro-batch 2/8, 50%, 0:20 of about 0:40"},
	        {{.what = work_step,
	                 .done = 10,
	                 .total = 100,
	                 .layer = 3,
	                 .layer_count = 32,
	                 .micro = 1,
	                 .micro_count = 1,
	                 .seconds = 20},
	                90, "step 8/116: forward, layer 3/32, 10%, 0:20 of about 1:30"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct str s = {0};

		progress_work_format(&s, &cases[i].work, 7, 116, cases[i].step_s);
		assert_string_equal(s.data, cases[i].text);
		str_free(&s);
	}
}

/* On a terminal, work that takes longer than a second is shown, and the losses before it stay. */
static void test_progress_ticks(void **state)
{
	struct progress_step step = {1, 2.5, 1, 1e-5, 10, -1, -1, 0, NULL, NULL, NULL, NULL};
	char *path = path_in(*state, "ticks"), *text;
	struct work_state work;
	struct progress *p;
	FILE *f = fopen(path, "w");

	check_ok(progress_open(&p, f, 2, PROGRESS_STYLE_UPDATE));
	assert_false(work_now(&work));
	work_begin("loading weights", 4);
	work_add(1);
	nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 600000000}, NULL);
	assert_true(work_now(&work));
	assert_int_equal(work.done, 1);
	work_end();
	progress_begin(p, 0);
	progress_show(p, &step);
	work_begin(work_step, 10);
	work_add(11);
	work_at(5, 7, 2, 3, 1);
	nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 600000000}, NULL);
	work_end();
	step.step = 2;
	progress_show(p, &step);
	progress_close(p);
	fclose(f);
	text = read_text(path);
	assert_non_null(strstr(text, "\r\033[Kloading weights: 25%, 0:01"));
	assert_non_null(strstr(text, "step 1/2  loss 2.5000"));
	assert_non_null(strstr(text, "\n\r\033[Kstep 2/2: backward, layer 5/7, micro-batch 2/3, 100%, 0:01"));
	assert_int_equal(count_lines(text), 2);
	mem_free(text);
	mem_free(path);
}

/* ---- signals ---- */

/* A child that catches, sends itself `first`, then `second`, and ends with 10 + the pending signal. */
static int child(int first, int second)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		FILE *quiet = freopen("/dev/null", "w", stderr);

		(void)quiet;
		signals_start(SIGNALS_SAY);
		raise(first);
		if (second)
			raise(second);
		_exit(10 + signals_pending(9));
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/* A signal between the end of a run and that of its process changes no exit code. */
static int child_after_stop(void)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		signals_start(SIGNALS_SAY);
		signals_stop();
		raise(SIGTERM);
		raise(SIGINT);
		raise(SIGUSR1);
		raise(SIGHUP);
		_exit(0);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/* Ctrl-C pressed `presses` times, pause_ms apart. Each press gives two signals. */
static int child_of_presses(int presses, int pause_ms)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		signals_start(SIGNALS_QUIET);
		for (int i = 0; i < presses; i++) {
			raise(SIGINT);
			raise(SIGINT);
			usleep((unsigned)pause_ms * 1000);
		}
		_exit(10 + signals_pending(9));
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void test_signals(void **state)
{
	(void)state;
	assert_int_equal(child(SIGTERM, 0), 10 + SIGTERM);
	assert_int_equal(child(SIGINT, 0), 10 + SIGINT);
	assert_int_equal(child(SIGUSR1, 0), 10 + SIGUSR1);
	assert_int_equal(child(SIGUSR2, 0), 10 + SIGUSR2);
	assert_int_equal(child(SIGXCPU, 0), 10 + SIGXCPU);
	assert_int_equal(child(SIGTERM, SIGTERM), 10 + SIGTERM);
	assert_int_equal(child(SIGTERM, SIGUSR1), 10 + SIGTERM);
	assert_int_equal(child(SIGPIPE, 0), 10);
	assert_int_equal(child(SIGINT, SIGINT), 10 + SIGINT); /* timeout signals child and group */
	assert_int_equal(child(SIGTERM, SIGINT), 10 + SIGTERM);
	assert_int_equal(child_of_presses(2, 1200), 10 + SIGINT); /* two requests */
	assert_int_equal(child_of_presses(3, 800), 10 + SIGINT);  /* three within two seconds */
	assert_int_equal(child_of_presses(3, 1200), -SIGINT);
	assert_int_equal(child_after_stop(), 0);
}

static void test_exit_codes(void **state)
{
	(void)state;
	assert_int_equal(cli_exit_code(0), 0);
	assert_int_equal(cli_exit_code(ERR_IO), 1);
	assert_int_equal(cli_exit_code(ERR_NOMEM), 1);
	assert_int_equal(cli_exit_code(ERR_DEVICE), 1);
	assert_int_equal(cli_exit_code(ERR_INPUT), 2);
	assert_int_equal(cli_exit_code(ERR_UNSUPPORTED), 2);
	assert_int_equal(cli_exit_code(ERR_STOPPED), 3);
	assert_int_equal(cli_exit_code(ERR_NONFINITE), 4);
	assert_int_equal(cli_exit_code(ERR_FIT), 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_metrics_fields),
	        cmocka_unit_test(test_metrics_nonfinite),
	        cmocka_unit_test(test_metrics_resume),
	        cmocka_unit_test(test_run_dir),
	        cmocka_unit_test(test_preflight),
	        cmocka_unit_test(test_progress_texts),
	        cmocka_unit_test(test_progress_line),
	        cmocka_unit_test(test_progress_styles),
	        cmocka_unit_test(test_progress_of_work),
	        cmocka_unit_test(test_progress_ticks),
	        cmocka_unit_test(test_signals),
	        cmocka_unit_test(test_exit_codes),
	};

	return cmocka_run_group_tests(tests, check_dir_make, check_dir_remove);
}
