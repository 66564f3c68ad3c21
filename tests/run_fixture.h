/* Runs of `ferry train` on small models: golden ones if they are present, and one that the fixture makes. */
#ifndef FERRY_TESTS_RUN_FIXTURE_H
#define FERRY_TESTS_RUN_FIXTURE_H

#include "tests/ferry_run.h"

#include "base/mem.h"
#include "base/num.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <time.h>

/* A model, and rows for it. */
struct run_model {
	char dir[600], data[620];
};

static inline void path_of(char path[400], const char *name)
{
	snprintf(path, 400, "%s/%s", work_dir, name);
}

__attribute__((format(printf, 2, 3))) static inline void write_file(const char *name, const char *fmt, ...)
{
	char path[400], *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	assert_true(vasprintf(&text, fmt, ap) >= 0);
	va_end(ap);
	snprintf(path, sizeof(path), "%s/%s", work_dir, name);
	assert_int_equal(file_write_all(path, text, strlen(text)), 0);
	free(text);
}

/* Makes a tiny Llama in work_dir/speaker with this repository's golden tokenizer. */
static inline void speaker_make(void)
{
	const char *source = getenv("FERRY_SOURCE");
	char from[500], to[400];

	snprintf(to, sizeof(to), "%s/words", work_dir);
	assert_int_equal(file_make_dir(to), 0);
	snprintf(from, sizeof(from), "%s/tests/golden/tokenizer/plain.json", source ? source : ".");
	snprintf(to, sizeof(to), "%s/words/tokenizer.json", work_dir);
	assert_int_equal(file_copy(from, to), 0);
	write_file("words/tokenizer_config.json", "{\"eos_token\":\"<|endoftext|>\"}");
	write_file("words.json",
	        "{\"model_type\":\"llama\",\"vocab_size\":2000,\"hidden_size\":32,\"intermediate_size\":48,"
	        "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"max_position_embeddings\":128,"
	        "\"tie_word_embeddings\":true}");
	assert_ferry(0, NULL, "init config=%s/words.json tokenizer=%s/words output_dir=%s/speaker", work_dir,
	        work_dir, work_dir);
}

/* Writes `count` rows of 3 to 26 ids below 64. Some labels are masked, and some differ from their ids. */
static inline void write_rows(const char *name, int count, uint64_t seed)
{
	struct str text = {0};
	uint64_t draw = 0;

	for (int row = 0; row < count; row++) {
		int length = 3 + (int)rng_below(seed, 1, draw++, 24);
		int ids[32];

		str_add(&text, "{\"input_ids\":[");
		for (int i = 0; i < length; i++) {
			ids[i] = (int)rng_below(seed, 2, draw++, 64);
			str_printf(&text, "%s%d", i ? "," : "", ids[i]);
		}
		str_add(&text, "],\"labels\":[");
		for (int i = 0; i < length; i++) {
			int label = (int)rng_below(seed, 3, draw++, 64);

			if (label < 8 && i > 1)
				label = -100;
			else if (label < 60)
				label = ids[i];
			str_printf(&text, "%s%d", i ? "," : "", label);
		}
		str_add(&text, "]}\n");
	}
	write_file(name, "%s", text.data);
	str_free(&text);
}

#define TINY_KEYS                                                                                            \
	"\"model_type\":\"llama\",\"vocab_size\":64,\"hidden_size\":32,\"intermediate_size\":48,"            \
	"\"num_hidden_layers\":3,\"num_attention_heads\":4,\"num_key_value_heads\":2,"                       \
	"\"max_position_embeddings\":128,\"tie_word_embeddings\":%s"
#define TINY_CONFIG "{" TINY_KEYS "}"

/* Makes work_dir/tiny and work_dir/rows.jsonl. */
static inline void tiny_model(struct run_model *m)
{
	write_file("tiny.json", TINY_CONFIG, "false");
	write_rows("rows.jsonl", 23, 7);
	assert_ferry(0, NULL, "init config=%s/tiny.json output_dir=%s/tiny seed=1", work_dir, work_dir);
	snprintf(m->dir, sizeof(m->dir), "%s/tiny", work_dir);
	snprintf(m->data, sizeof(m->data), "%s/rows.jsonl", work_dir);
}

/* Makes work_dir/mixture, a Qwen3-MoE whose first layer is dense, and work_dir/rows.jsonl. */
static inline void mixture_model(struct run_model *m)
{
	write_file("mixture.json",
	        "{\"model_type\":\"qwen3_moe\",\"vocab_size\":64,\"hidden_size\":32,\"intermediate_size\":64,"
	        "\"moe_intermediate_size\":32,\"num_hidden_layers\":3,\"mlp_only_layers\":[0],"
	        "\"num_experts\":6,\"num_experts_per_tok\":2,\"norm_topk_prob\":true,"
	        "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":8,"
	        "\"max_position_embeddings\":128,\"initializer_range\":0.2,\"tie_word_embeddings\":false}");
	write_rows("rows.jsonl", 23, 7);
	assert_ferry(0, NULL, "init config=%s/mixture.json output_dir=%s/mixture seed=1", work_dir, work_dir);
	snprintf(m->dir, sizeof(m->dir), "%s/mixture", work_dir);
	snprintf(m->data, sizeof(m->data), "%s/rows.jsonl", work_dir);
}

static inline void golden_model(struct run_model *m, const char *golden, const char *name)
{
	const char *place = golden_place(golden, name);

	snprintf(m->dir, sizeof(m->dir), "%s/hf", place);
	snprintf(m->data, sizeof(m->data), "%s/train.jsonl", place);
}

/* ---- results of a run ---- */

static inline char *read_file(const char *path, size_t *len_bytes)
{
	char *text = NULL;

	if (file_read_all(path, 1 << 28, &text, len_bytes))
		fail_msg("%s cannot be read", path);
	return text;
}

/* Adds a value of metrics.jsonl as text that differs if one bit differs. */
static inline void add_value(struct str *out, const json_t *row, const char *key)
{
	const json_t *value = json_object_get(row, key);
	char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17)) : NULL;

	if (text)
		str_printf(out, " %s %s", key, text);
	free(text);
}

/* The numbers that training wrote to metrics.jsonl, one line per row (mem_free). */
static inline char *run_numbers(const char *name)
{
	static const char *const keys[] = {"step", "epoch", "loss", "grad_norm", "learning_rate",
	        "target_tokens", "tokens", "skipped", "eval_loss", "eval_tokens", "rewards/chosen",
	        "rewards/rejected", "rewards/accuracies", "logps/chosen", "eval_rewards/margins", "aux_loss",
	        "expert_load", "experts_used"};
	char path[400], *text, *at, *end;
	struct str out = {0};
	size_t len;

	snprintf(path, sizeof(path), "%s/%s/metrics.jsonl", work_dir, name);
	text = at = read_file(path, &len);
	while ((end = memchr(at, '\n', len - (size_t)(at - text)))) {
		json_t *row;

		assert_int_equal(json_parse(&row, path, at, (size_t)(end - at)), 0);
		for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
			add_value(&out, row, keys[i]);
		str_add_char(&out, '\n');
		json_decref(row);
		at = end + 1;
	}
	assert_int_equal(at - text, len); /* whole lines only */
	mem_free(text);
	return str_take(&out);
}

/* A number of the last row of a run's metrics.jsonl with this step that has it; NaN: none has. */
static inline double metric_of(const char *run, int64_t step, const char *key)
{
	char path[400], *text, *at, *line;
	double found = NAN;
	size_t len;

	path_of(path, run);
	snprintf(path + strlen(path), sizeof(path) - strlen(path), "/metrics.jsonl");
	text = at = read_file(path, &len);
	while ((line = strsep(&at, "\n"))) {
		json_t *row = json_loads(line, 0, NULL);
		const json_t *value = json_object_get(row, key);

		if (json_is_number(value) && json_integer_value(json_object_get(row, "step")) == step)
			found = json_number_value(value);
		json_decref(row);
	}
	mem_free(text);
	return found;
}

/* Two runs have almost the same losses in steps 1 to `steps`. */
static inline void assert_near_losses(
        const char *a, const char *b, int64_t steps, double most, const char *why)
{
	for (int64_t step = 1; step <= steps; step++) {
		double x = metric_of(a, step, "loss"), y = metric_of(b, step, "loss");

		if (!(fabs(x - y) <= most * fabs(x)))
			fail_msg("%s: step %lld: %.9g, %.9g", why, (long long)step, x, y);
	}
}

static inline void assert_same_files(const char *a, const char *b, const char *why)
{
	size_t a_bytes, b_bytes;
	char *a_data = read_file(a, &a_bytes), *b_data = read_file(b, &b_bytes);

	if (a_bytes != b_bytes || memcmp(a_data, b_data, a_bytes))
		fail_msg("%s and %s differ: %s", a, b, why);
	mem_free(a_data);
	mem_free(b_data);
}

/* Compares the numbers of every step, and every byte of the resulting model. */
static inline void assert_same_runs(const char *a, const char *b, const char *why)
{
	char *a_numbers = run_numbers(a), *b_numbers = run_numbers(b), a_path[400], b_path[400];

	if (strcmp(a_numbers, b_numbers))
		fail_msg("%s: other numbers.\n%s:\n%s\n%s:\n%s", why, a, a_numbers, b, b_numbers);
	mem_free(a_numbers);
	mem_free(b_numbers);
	snprintf(a_path, sizeof(a_path), "%s/%s/model/model.safetensors", work_dir, a);
	snprintf(b_path, sizeof(b_path), "%s/%s/model/model.safetensors", work_dir, b);
	assert_same_files(a_path, b_path, why);
}

static inline void remove_run(const char *name)
{
	char path[400];

	snprintf(path, sizeof(path), "%s/%s", work_dir, name);
	assert_int_equal(file_remove_tree(path), 0);
}

/* Makes work_dir/NAME with copies of all files of the model. */
static inline void model_copy(const struct run_model *m, const char *name)
{
	char command[1500];

	remove_run(name);
	snprintf(command, sizeof(command), "cp -r %s %s/%s", m->dir, work_dir, name);
	assert_int_equal(system(command), 0);
}

static inline int run_has(const char *name)
{
	char path[400];

	snprintf(path, sizeof(path), "%s/%s", work_dir, name);
	return file_kind_of(path) != FILE_NONE;
}

/* ---- stopping runs ---- */

static inline void sleep_ms(int ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000L};

	nanosleep(&t, NULL);
}

/* Starts a command line (after "exec"), with output in work_dir/stderr. */
static inline pid_t run_start(const char *command)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		char line[5000], path[300];
		int fd;

		snprintf(path, sizeof(path), "%s/stderr", work_dir);
		fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
		dup2(fd, STDERR_FILENO);
		dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
		snprintf(line, sizeof(line), "exec %s", command);
		execl("/bin/sh", "sh", "-c", line, (char *)NULL);
		_exit(127);
	}
	return pid;
}

static inline int run_wait(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static inline int is_running(pid_t pid)
{
	siginfo_t info = {0};

	return !waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) && !info.si_pid;
}

/* Stops the process until SIGCONT. */
static inline void run_halt(pid_t pid)
{
	siginfo_t info;

	assert_int_equal(kill(pid, SIGSTOP), 0);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WSTOPPED | WEXITED | WNOWAIT), 0);
	assert_int_equal(info.si_code, CLD_STOPPED);
}

/* Waits until the run has printed `text`. */
static inline void run_wait_for_words(pid_t pid, const char *text)
{
	while (!strstr(ferry_said(), text) && is_running(pid))
		sleep_ms(5);
	if (!strstr(ferry_said(), text))
		fail_msg("it ended without \"%s\": %s", text, ferry_said());
}

/* The number of times that `text` contains `part`. */
static inline int count_of(const char *text, const char *part)
{
	int count = 0;

	for (; (text = strstr(text, part)); text++)
		count++;
	return count;
}

static inline int line_count(const char *path)
{
	FILE *f = fopen(path, "r");
	int count = 0, c;

	while (f && (c = getc(f)) != EOF)
		count += c == '\n';
	if (f)
		fclose(f);
	return count;
}

/* Sends `signal` delay_ms after metrics.jsonl of the run has `lines` lines, and waits for the end of the run.
 */
static inline int run_signal(pid_t pid, int signal, const char *name, int lines, int delay_ms)
{
	char path[400];

	snprintf(path, sizeof(path), "%s/%s/metrics.jsonl", work_dir, name);
	while (line_count(path) < lines && is_running(pid))
		sleep_ms(2);
	sleep_ms(delay_ms);
	kill(pid, signal);
	return run_wait(pid);
}

/* The last line on stderr of the last command; valid until the next call. */
static inline const char *last_line(void)
{
	static char line[4096];
	const char *text = ferry_said();
	size_t len = strlen(text);

	while (len && text[len - 1] == '\n')
		len--;
	while (len && text[len - 1] != '\n')
		len--;
	snprintf(line, sizeof(line), "%s", text + len);
	line[strcspn(line, "\n")] = 0;
	return line;
}

#endif
