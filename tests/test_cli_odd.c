/* links: cli */
/* Odd conditions of a command: readers of its output that close, rare characters, and facts in a model's
 * files that are easy to overlook. */
#include "tests/run_fixture.h"
#include "tests/sparing.h"

#include "config/table.h"

static struct run_model tiny;

static const char common[] = "per_device_train_batch_size=2 threads=1 device=host learning_rate=1e-3";

/* ---- the reader of the output has gone ---- */

/* A shell's pipe; the exit code of its first command. */
__attribute__((format(printf, 1, 2))) static int pipe_run(const char *fmt, ...)
{
	char args[3000], command[4000];
	va_list ap;
	int status;

	va_start(ap, fmt);
	vsnprintf(args, sizeof(args), fmt, ap);
	va_end(ap);
	/* true ends without reading; the sleep lets it */
	snprintf(command, sizeof(command),
	        "{ { sleep 0.3; '%s' %s 2>'%s/stderr'; echo $? >&3; } | true; } 3>'%s/code'",
	        getenv("FERRY_BINARY"), args, work_dir, work_dir);
	status = system(command);
	assert_true(WIFEXITED(status));
	snprintf(args, sizeof(args), "%s/code", work_dir);
	{
		size_t len;
		char *text = read_file(args, &len);

		status = (int)strtol(text, NULL, 10);
		mem_free(text);
	}
	return status;
}

/* A command with a result completes it. A command with only output ends as other programs do. */
static void test_pipes_that_nobody_reads(void **state)
{
	(void)state;
	assert_int_equal(pipe_run("train model=%s data=%s output_dir=%s/piped max_steps=3 %s", tiny.dir,
	                         tiny.data, work_dir, common),
	        0);
	assert_true(run_has("piped/model/model.safetensors"));
	assert_int_equal(
	        pipe_run("export checkpoint=%s/piped output_dir=%s/piped_export", work_dir, work_dir), 0);
	assert_true(run_has("piped_export/model.safetensors"));
	assert_int_equal(
	        pipe_run("init config=%s/tiny.json output_dir=%s/piped_init --json", work_dir, work_dir), 0);
	assert_true(run_has("piped_init/model.safetensors"));
	assert_int_equal(pipe_run("inspect %s --json", tiny.dir), 128 + SIGPIPE);
}

/* A stdout that is full is no reader that has gone. */
static void test_full_stdout(void **state)
{
	char command[2000];

	(void)state;
	snprintf(command, sizeof(command), "'%s' inspect %s --json >/dev/full 2>'%s/stderr'",
	        getenv("FERRY_BINARY"), tiny.dir, work_dir);
	assert_int_equal(WEXITSTATUS(system(command)), 1);
	assert_non_null(strstr(ferry_said(), "cannot write to stdout"));
}

/* ---- signals ---- */

/* A press of Ctrl-C may come twice, to the process and to its group; so may timeout's signal. The checkpoint
 * that the first one asks for is made. */
static void test_signals_that_come_together(void **state)
{
	static const int pairs[][2] = {
	        {SIGINT, SIGINT}, {SIGTERM, SIGINT}, {SIGINT, SIGTERM}, {SIGUSR1, SIGINT}};
	char command[2000], path[700];

	(void)state;
	write_file("wide.json",
	        "{\"model_type\":\"llama\",\"vocab_size\":40000,\"hidden_size\":32,\"intermediate_size\":48,"
	        "\"num_hidden_layers\":1,\"num_attention_heads\":4,\"max_position_embeddings\":128}");
	assert_ferry(0, NULL, "init config=%s/wide.json output_dir=%s/wide", work_dir, work_dir);
	for (int i = 0; i < 12; i += sparing(5)) {
		const int *pair = pairs[i % 4];
		pid_t pid;
		int code;

		remove_run("asked");
		snprintf(command, sizeof(command),
		        "%s train model=%s/wide data=%s output_dir=%s/asked max_steps=100000 "
		        "save_steps=0 %s",
		        getenv("FERRY_BINARY"), work_dir, tiny.data, work_dir, common);
		pid = run_start(command);
		snprintf(path, sizeof(path), "%s/asked/metrics.jsonl", work_dir);
		while (line_count(path) < 2 && is_running(pid))
			sleep_ms(2);
		kill(pid, pair[0]);
		sleep_ms(1 + 6 * (i / 4));
		kill(pid, pair[1]);
		sleep_ms(2);
		if (is_running(pid))
			kill(pid, pair[1]);
		code = run_wait(pid);
		if (code != 3)
			fail_msg("signals %d and %d: exit code %d", pair[0], pair[1], code);
		assert_ferry(0, NULL, "verify %s/asked", work_dir);
	}
}

/* ---- characters ---- */

/* config.yaml repeats the run, for any characters in the path of its directory. */
static void test_paths_with_odd_characters(void **state)
{
	static const char *const names[] = {"next\xc2\x85line", "line\xe2\x80\xa8separator",
	        "paragraph\xe2\x80\xa9", "c1\xc2\x9b", "bom\xef\xbb\xbf", "\xef\xbf\xbe", "tab\there",
	        "caf\xc3\xa9", "\xf0\x9f\x98\x80", "a: b", "quo\"te\\", "new\nline", "del\x7f"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		remove_run(names[i]);
		assert_ferry(0, NULL, "train model=%s data=%s 'output_dir=%s/%s' max_steps=1 %s", tiny.dir,
		        tiny.data, work_dir, names[i], common);
		assert_ferry(0, NULL, "train '%s/%s/config.yaml' resume_from_checkpoint=auto max_steps=2",
		        work_dir, names[i]);
		assert_non_null(strstr(ferry_said(), "checkpoint-000002"));
	}
}

static void test_byte_order_mark(void **state)
{
	struct str plain = {0}, marked = {0};

	(void)state;
	write_file("rows.txt", "one two three\n");
	assert_ferry(0, &plain, "data show model=%s/speaker data=%s/rows.txt --json", work_dir, work_dir);
	write_file("rows.txt", "\xef\xbb\xbfone two three\n");
	assert_ferry(0, &marked, "data show model=%s/speaker data=%s/rows.txt --json", work_dir, work_dir);
	assert_non_null(strstr(plain.data, "one two three"));
	assert_string_equal(plain.data, marked.data);
	str_free(&plain);
	str_free(&marked);
}

/* ---- what words and files say ---- */

/* off is the number that has no effect, which is not 0 for each key; a key that takes off is listed here. */
static void test_off_is_without_effect(void **state)
{
	static const struct {
		const char *key;
		double none;
	} offs[] = {{"max_length", 0}, {"eval_split", 0}, {"warmup_steps", 0}, {"max_grad_norm", 0},
	        {"watchdog_timeout", 0}, {"check_replicas", 0}, {"save_steps", 0}, {"logging_steps", 0},
	        {"eval_steps", 0}, {"sample_steps", 0}, {"trace", 0}, {"top_k", 0}, {"top_p", 1},
	        {"host_copy_gbps", 0}, {"stream_delay_seed", 0}, {"vram_budget", 0}, {"max_samples", 0},
	        {"save_total_limit", 0}, {"data_memory", 0}, {"lora_rank", 0},
	        {"early_stopping_patience", 0}};

	(void)state;
	for (int i = 0; i < config_key_count; i++) {
		const struct config_key *key = &config_keys[i];
		int is_number = key->type != TYPE_ENUM && key->type != TYPE_SET && key->words;
		const struct config_word *w = key->words;
		size_t at = 0;

		while (is_number && w->name && strcmp(w->name, "off") && !config_name_in("off", w->aliases))
			w++;
		if (!is_number || !w->name)
			continue;
		while (at < sizeof(offs) / sizeof(*offs) && strcmp(offs[at].key, key->name))
			at++;
		if (at == sizeof(offs) / sizeof(*offs))
			fail_msg("%s takes off: list the value that has no effect", key->name);
		if (w->value != offs[at].none)
			fail_msg("%s=off is %d, and %g has no effect", key->name, w->value, offs[at].none);
	}
}

static void gpt2_with(const char *keys)
{
	remove_run("gpt2");
	write_file("gpt2.json",
	        "{\"model_type\":\"gpt2\",\"vocab_size\":64,\"n_embd\":16,\"n_layer\":1,\"n_head\":2,\"n_"
	        "positions\":64%s}",
	        keys);
	assert_ferry(0, NULL, "init config=%s/gpt2.json output_dir=%s/gpt2", work_dir, work_dir);
}

/* Training in transformers drops values at random; ferry does not, and says so. Evaluation drops none. */
static void test_dropout(void **state)
{
	static const char none[] = ",\"resid_pdrop\":0,\"embd_pdrop\":0.0,\"attn_pdrop\":0";

	(void)state;
	gpt2_with("");
	assert_ferry(0, NULL, "train model=%s/gpt2 data=%s output_dir=%s/dropout --dry-run %s", work_dir,
	        tiny.data, work_dir, common);
	assert_non_null(strstr(ferry_said(), "resid_pdrop is 0.1: ferry trains without dropout"));
	assert_ferry(0, NULL, "eval model=%s/gpt2 data=%s device=host", work_dir, tiny.data);
	assert_null(strstr(ferry_said(), "dropout"));
	gpt2_with(none);
	assert_ferry(0, NULL, "train model=%s/gpt2 data=%s output_dir=%s/dropout --dry-run %s", work_dir,
	        tiny.data, work_dir, common);
	assert_null(strstr(ferry_said(), "dropout;"));
	assert_null(strstr(ferry_said(), "without dropout"));
	write_file("tiny/config.json", TINY_CONFIG, "false,\"attention_dropout\":0.25");
	assert_ferry(0, NULL, "train model=%s data=%s output_dir=%s/dropout --dry-run %s", tiny.dir,
	        tiny.data, work_dir, common);
	assert_non_null(strstr(ferry_said(), "attention_dropout is 0.25: ferry trains without dropout"));
	write_file("tiny/config.json", TINY_CONFIG, "false");
}

/* Against transformers, by tests/golden/make_prefix_space.py. */
static void test_prefix_space(void **state)
{
	const char *source = getenv("FERRY_SOURCE");
	json_t *rows, *row, *tokenizer;
	char path[700], *text;
	size_t i, len;

	(void)state;
	snprintf(path, sizeof(path), "%s/tests/golden/prefix_space.json", source ? source : ".");
	text = read_file(path, &len);
	assert_int_equal(json_parse(&rows, path, text, len), 0);
	mem_free(text);
	snprintf(path, sizeof(path), "%s/tests/golden/tokenizer/plain.json", source ? source : ".");
	text = read_file(path, &len);
	assert_int_equal(json_parse(&tokenizer, path, text, len), 0);
	mem_free(text);
	assert_true(json_array_size(rows) > 30);
	write_file("hello.txt", "%s\n", json_string_value(json_object_get(json_array_get(rows, 0), "text")));
	snprintf(path, sizeof(path), "%s/prefixed", work_dir);
	assert_int_equal(file_make_dir(path), 0);
	json_array_foreach(rows, i, row)
	{
		json_t *config =
		               json_pack("{s:O}", "tokenizer_class", json_object_get(row, "tokenizer_class")),
		       *said;
		const json_t *prefix = json_object_get(row, "add_prefix_space");

		if (!json_is_null(prefix))
			json_object_set(config, "add_prefix_space", (json_t *)prefix);
		json_object_set(tokenizer, "pre_tokenizer", json_object_get(row, "pre_tokenizer"));
		text = json_dumps(tokenizer, 0);
		write_file("prefixed/tokenizer.json", "%s", text);
		free(text);
		text = json_dumps(config, 0);
		write_file("prefixed/tokenizer_config.json", "%s", text);
		assert_ferry_json(
		        &said, "tokenize --json tokenizer=%s/prefixed %s/hello.txt", work_dir, work_dir);
		if (!json_equal(json_object_get(said, "ids"), json_object_get(row, "ids")))
			fail_msg("row %zu, %s: other ids than transformers", i, text);
		free(text);
		json_decref(said);
		json_decref(config);
	}
	json_decref(rows);
	json_decref(tokenizer);
}

static int begin(void **state)
{
	(void)state;
	ferry_run_begin("cli-odd");
	tiny_model(&tiny);
	speaker_make();
	return 0;
}

static int end(void **state)
{
	(void)state;
	ferry_run_end();
	return 0;
}

int main(void)
{
	signal(SIGINT, SIG_DFL); /* which a shell without job control starts its children without */

	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_pipes_that_nobody_reads),
	        cmocka_unit_test(test_full_stdout),
	        cmocka_unit_test(test_signals_that_come_together),
	        cmocka_unit_test(test_paths_with_odd_characters),
	        cmocka_unit_test(test_byte_order_mark),
	        cmocka_unit_test(test_off_is_without_effect),
	        cmocka_unit_test(test_dropout),
	        cmocka_unit_test(test_prefix_space),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
