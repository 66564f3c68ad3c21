/* links: base */
/* The commands train, eval and generate: files of the run, resume, signals, ranks. */
#include "tests/cli_program.h"

#include <signal.h>

/* ferry train from outside: what it leaves, how it is stopped and goes on, and its exit codes. The model and
 * the rows are made here. */

static const char config_json[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 40, \"hidden_size\": 16, \"intermediate_size\": 24,\n"
        " \"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 1,\n"
        " \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": false,\n"
        " \"torch_dtype\": \"float32\", \"eos_token_id\": null}\n";

/* Settings of all runs here. */
#define TRAIN "$F train model=m data=rows.jsonl device=host threads=2 compute_dtype=fp32 lr=1e-3 "

static int count_lines(const char *text)
{
	int count = 0;

	while (*text)
		count += *text++ == '\n';
	return count;
}

static char *read_text(const char *name)
{
	char *path = file_join(dir, name), *text = NULL;
	size_t len;

	check_ok(file_read_all(path, 1 << 24, &text, &len));
	mem_free(path);
	return text;
}

static int exists(const char *name)
{
	char *path = file_join(dir, name);
	int found = file_kind_of(path) != FILE_NONE;

	mem_free(path);
	return found;
}

static void run_ok(const char *command)
{
	struct result r = run(command);

	if (r.code)
		print_error("%s: code %d\n%s\n", command, r.code, r.err);
	assert_int_equal(r.code, 0);
	result_free(&r);
}

static void same_files(const char *a, const char *b)
{
	char *command = mem_printf("cmp %s %s", a, b);

	run_ok(command);
	mem_free(command);
}

/* Losses of a metrics.jsonl, one text a step; asserts that steps are 1, 2, 3 ... */
static char *losses_of(const char *name)
{
	char *text = read_text(name), *line = text, *end;
	struct str losses = {0};
	int64_t step = 0;

	while ((end = strchr(line, '\n')) != NULL) {
		json_t *row = NULL;

		check_ok(json_parse(&row, name, line, (size_t)(end - line)));
		if (json_object_get(row, "loss")) {
			assert_int_equal(json_integer_value(json_object_get(row, "step")), ++step);
			str_printf(&losses, "%a %a\n", json_real_value(json_object_get(row, "loss")),
			        json_real_value(json_object_get(row, "grad_norm")));
		}
		json_decref(row);
		line = end + 1;
	}
	mem_free(text);
	return str_take(&losses);
}

static void test_layout(void **state)
{
	char *metrics;

	(void)state;
	struct result r = run(TRAIN "output_dir=a max_steps=8 save_steps=2 save_total_limit=2");

	assert_int_equal(r.code, 0);
	assert_non_null(strstr(r.err, "removed a/checkpoint-000002 (save_total_limit=2)"));
	assert_non_null(strstr(r.err, "removed a/checkpoint-000004 (save_total_limit=2)"));
	result_free(&r);
	assert_true(exists("a/config.yaml"));
	assert_true(exists("a/checkpoint-000006"));
	assert_true(exists("a/checkpoint-000008"));
	assert_false(exists("a/checkpoint-000004"));
	assert_true(exists("a/model/config.json"));
	metrics = read_text("a/metrics.jsonl");
	assert_int_equal(count_lines(metrics), 8);
	mem_free(metrics);
	run_ok("$F verify a");
	run_ok("$F eval model=a/model data=rows.jsonl compute_dtype=fp32");
	run_ok("$F export a/checkpoint-000008 output_dir=a-export");
	same_files("a/model/model.safetensors", "a-export/model.safetensors");
}

/* The model alone, by the key or as other trainers say it. */
static void test_the_model_alone(void **state)
{
	static const char *const settings[] = {"save_only_model=on save_steps=2", "save_strategy=no"};
	struct result r;

	(void)state;
	for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
		char *command = mem_printf(
		        TRAIN "output_dir=alone max_steps=4 overwrite_output_dir=on %s", settings[i]);

		r = run(command);
		assert_int_equal(r.code, 0);
		assert_non_null(strstr(r.err,
		        "no checkpoint of step 4 was saved, so this run cannot go on; a new one "
		        "can start from model=alone/model"));
		assert_int_equal(
		        i == 0, strstr(r.err, "save_steps has no effect with save_only_model=on") != NULL);
		assert_true(exists("alone/model/config.json"));
		assert_false(exists("alone/checkpoint-000004") || exists("alone/checkpoint-000002"));
		result_free(&r);
		mem_free(command);
	}
	r = run("$F train alone/config.yaml device=host resume_from_checkpoint=auto");
	assert_int_equal(r.code, 2);
	assert_non_null(strstr(r.err, "no checkpoint to resume, but the model of a run that ended"));
	assert_non_null(strstr(r.err, "alone/model and another output_dir"));
	assert_null(strstr(r.err, "has no effect"));
	result_free(&r);
}

/* A machine of two NUMA nodes, made up, gives the same files, and the log says what came of it. */
static void test_nodes(void **state)
{
	struct result r = run("OMP_NUM_THREADS=1 FERRY_TOPOLOGY='numa:2 core:1 pu:1' " TRAIN
	                      "output_dir=two-nodes max_steps=3");

	(void)state;
	assert_int_equal(r.code, 0);
	assert_non_null(strstr(r.err, "ignoring OMP_NUM_THREADS=1; 2 threads (the key threads)"));
	assert_non_null(strstr(r.err, "weights and optimizer state by NUMA node: node 0 "));
	assert_non_null(strstr(r.err, "; node 1 "));
	assert_non_null(strstr(r.err, "% of updates by threads of another node"));
	result_free(&r);
	run_ok(TRAIN "output_dir=one-node max_steps=3");
	same_files("one-node/model/model.safetensors", "two-nodes/model/model.safetensors");
}

/* Weights are copied only if cpu_offload, a budget or several NUMA nodes require it. */
static void test_auto_offload(void **state)
{
	static const struct {
		const char *before, *settings;
		int copies;
	} rows[] = {{"", "", 0}, {"", "cpu_offload=auto", 0}, {"", "cpu_offload=off vram_budget=off", 0},
	        {"", "cpu_offload=on", 1}, {"", "vram_budget=off", 1}, {"", "vram_budget=100KiB", 1},
	        {"FERRY_TOPOLOGY='numa:2 core:1 pu:1' ", "", 1},
	        {"FERRY_TOPOLOGY='numa:2 core:1 pu:1' ", "cpu_offload=off", 0}};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		for (int plans = 0; plans < 2; plans++) {
			char command[400];
			json_t *object;
			int64_t pinned;

			snprintf(command, sizeof(command),
			        plans ? "%s$F plan model=m data=rows.jsonl %s --json"
			              : "%s" TRAIN "output_dir=dry %s --dry-run --json",
			        rows[i].before, rows[i].settings);
			object = run_json(command);
			pinned = json_integer_value(json_object_get(object, "pinned_bytes"));
			if ((pinned > 10000) != rows[i].copies)
				fail_msg("%s: %lld bytes wait to be copied", command, (long long)pinned);
			json_decref(object);
		}
}

static void test_config_repeats(void **state)
{
	char *first, *second;

	(void)state;
	run_ok("$F train a/config.yaml output_dir=b");
	same_files("a/model/model.safetensors", "b/model/model.safetensors");
	first = losses_of("a/metrics.jsonl");
	second = losses_of("b/metrics.jsonl");
	assert_string_equal(first, second);
	mem_free(first);
	mem_free(second);
}

static void test_not_empty(void **state)
{
	struct result r = run("$F train a/config.yaml");

	(void)state;
	assert_int_equal(r.code, 2);
	assert_non_null(strstr(r.err, "resume_from_checkpoint=auto"));
	assert_non_null(strstr(r.err, "overwrite_output_dir=on"));
	result_free(&r);
	run_ok("$F train b/config.yaml overwrite_output_dir=on max_steps=1");
	assert_false(exists("b/checkpoint-000008"));
	assert_true(exists("b/checkpoint-000001"));
}

static void test_resume(void **state)
{
	char *first, *second;

	(void)state;
	run_ok("cp -r a c && rm -r c/checkpoint-000008 c/model");
	run_ok("$F train a/config.yaml output_dir=c resume_from_checkpoint=auto");
	same_files("a/model/model.safetensors", "c/model/model.safetensors");
	first = losses_of("a/metrics.jsonl");
	second = losses_of("c/metrics.jsonl"); /* steps stand there once */
	assert_string_equal(first, second);
	mem_free(first);
	mem_free(second);
	run_ok("$F train a/config.yaml output_dir=d resume_from_checkpoint=a/checkpoint-000006");
	same_files("a/model/model.safetensors", "d/model/model.safetensors");
}

/* Starts a run of 300 steps, waits for some of them, sends the signal; the exit code. */
static struct result stopped_by(const char *signal, const char *out, const char *more)
{
	char *command = mem_printf(TRAIN "output_dir=%s max_steps=300 save_steps=0 %s & pid=$!; "
	                                 "while [ $(cat %s/metrics.jsonl 2>/dev/null | wc -l) -lt 5 ]; do "
	                                 "kill -0 $pid || break; sleep 0.02; done; kill -%s $pid; wait $pid",
	        out, more, out, signal);
	struct result r = run(command);

	mem_free(command);
	return r;
}

static void test_signals(void **state)
{
	static const char *const signals[] = {"TERM", "INT", "USR1"};

	(void)state;
	run_ok(TRAIN "output_dir=whole max_steps=300 save_steps=0");
	for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++) {
		struct result r;
		char out[32], file[64], command[128];
		char *first, *second;

		snprintf(out, sizeof(out), "stop-%s", signals[i]);
		/* a shell without job control starts children with SIGINT ignored; the program takes it back
		 */
		r = stopped_by(signals[i], out, i ? "" : "save_only_model=on"); /* saved all the same */
		if (r.code != 3)
			print_error("%s: code %d\n%s\n", out, r.code, r.err);
		assert_int_equal(r.code, 3);
		assert_non_null(strstr(r.err, "resume_from_checkpoint=auto"));
		result_free(&r);
		snprintf(command, sizeof(command), "$F verify %s", out);
		run_ok(command);
		snprintf(
		        command, sizeof(command), "$F train %s/config.yaml resume_from_checkpoint=auto", out);
		run_ok(command);
		snprintf(file, sizeof(file), "%s/model/model.safetensors", out);
		same_files("whole/model/model.safetensors", file);
		snprintf(file, sizeof(file), "%s/metrics.jsonl", out);
		first = losses_of("whole/metrics.jsonl");
		second = losses_of(file);
		assert_string_equal(first, second);
		mem_free(first);
		mem_free(second);
	}
}

static void test_dry_run(void **state)
{
	int before = entries();
	struct result r = run(TRAIN "output_dir=dry --dry-run");
	json_t *object;

	(void)state;
	assert_int_equal(r.code, 0);
	assert_non_null(strstr(r.out, "row 1: 6 tokens"));
	assert_int_equal(entries(), before);
	result_free(&r);
	object = run_json(TRAIN "output_dir=dry --dry-run --json");
	assert_true(json_integer_value(json_object_get(object, "pinned_bytes")) > 0);
	json_decref(object);
	object = run_json(TRAIN "output_dir=dry --dry-run --json pin_memory=off");
	assert_int_equal(json_integer_value(json_object_get(object, "pinned_bytes")), 0);
	json_decref(object);
	assert_int_equal(entries(), before);
}

static void test_json(void **state)
{
	json_t *object = run_json(TRAIN "output_dir=j max_steps=2 --json");

	(void)state;
	assert_int_equal(json_integer_value(json_object_get(object, "steps")), 2);
	json_decref(object);
}

static void test_exit_codes(void **state)
{
	static const struct {
		const char *command;
		int code;
		const char *text;
	} rows[] = {
	        {TRAIN "output_dir=x1 lr=1000 max_steps=50 nonfinite_limit=2 weight_decay=1000", 4, "finite"},
	        {TRAIN "output_dir=x2 vram_budget=1KiB max_steps=1", 5, "vram_budget"},
	        {TRAIN "output_dir=x3 ram_budget=1KiB max_steps=1", 5, "ram_budget"},
	        {TRAIN "output_dir=x4 resume_from_checkpoint=nothere", 2,
	                "resume_from_checkpoint=nothere: no such"},
	        {TRAIN "output_dir=x4 resume_from_checkpoint=m", 2, "m"},
	        {TRAIN "output_dir=x4 data=bad.jsonl", 2, "bad.jsonl:1"},
	        {TRAIN "output_dir=/proc/x4 max_steps=1", 2, "/proc/x4"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		char *command = mem_printf("%s", rows[i].command), *lr = strstr(command, "lr=1e-3 ");
		struct result r;

		if (i == 0) /* a key is given once */
			memset(lr, ' ', 8);
		if (strstr(command, "data=bad"))
			memset(strstr(command, "data=rows.jsonl"), ' ', 15);
		r = run(command);
		if (r.code != rows[i].code || !strstr(r.err, rows[i].text))
			print_error("%s: code %d\n%s\n", command, r.code, r.err);
		assert_int_equal(r.code, rows[i].code);
		assert_non_null(strstr(r.err, rows[i].text));
		assert_false(rows[i].code == 2 && exists("x4"));
		assert_false(rows[i].code == 5 && (exists("x2") || exists("x3")));
		mem_free(command);
		result_free(&r);
	}
}

/* ---- generate and eval of the result ---- */

static void test_generate(void **state)
{
	json_t *first = run_json("$F generate model=a/model prompt_ids=1,2,3 max_new_tokens=6 --json");
	json_t *again =
	        run_json("$F generate model=a/model prompt_ids=[1,2,3] max_new_tokens=6 threads=1 --json");
	json_t *sampled = run_json(
	        "$F generate model=a/model prompt_ids=1,2,3 max_new_tokens=6 temperature=5 seed=3 --json");
	struct result r = run("$F generate model=a/model prompt_ids=1,40");

	(void)state;
	assert_int_equal(json_array_size(json_object_get(first, "prompt_ids")), 3);
	assert_int_equal(json_array_size(json_object_get(first, "ids")), 6);
	assert_string_equal(text_of(first, "finish"), "length");
	assert_true(json_equal(first, again));
	assert_false(json_equal(json_object_get(first, "ids"), json_object_get(sampled, "ids")));
	assert_int_equal(r.code, 2);
	assert_non_null(strstr(r.err, "40 is outside the vocabulary of 40"));
	result_free(&r);
	r = run("$F generate model=a/model prompt=hi");
	assert_int_equal(r.code, 2);
	assert_non_null(strstr(r.err, "tokenizer"));
	result_free(&r);
	json_decref(first);
	json_decref(again);
	json_decref(sampled);
}

/* generation_config.json says what ends a text, before config.json. */
static void test_generate_ends(void **state)
{
	static const char command[] =
	        "$F generate model=g prompt_ids=1,2,3 max_new_tokens=6 temperature=0 --json";
	static const struct {
		const char *generation_config;
		int by_generation_config;
	} cases[] = {{"{\"eos_token_id\": [39, %d], \"do_sample\": true}", 1},
	        {"{\"eos_token_id\": 64, \"_\": %d}", -1}, /* ends nothing */
	        {"{\"eos_token_id\": null, \"_\": %d}", 0}, {"{\"_\": %d}", 0}};
	json_t *whole, *ids;
	char *config;

	(void)state;
	run_ok("cp -r a/model g && rm -f g/generation_config.json");
	whole = run_json(command);
	ids = json_object_get(whole, "ids");
	assert_int_equal(json_array_size(ids), 6);
	assert_false(json_equal(json_array_get(ids, 0), json_array_get(ids, 1)));
	config = mem_printf("sed -i 's/\"eos_token_id\": null/\"eos_token_id\": %d/' g/config.json",
	        (int)json_integer_value(json_array_get(ids, 0)));
	run_ok(config);
	mem_free(config);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char *text = mem_printf(
		        cases[i].generation_config, (int)json_integer_value(json_array_get(ids, 1)));
		size_t want =
		        cases[i].by_generation_config < 0 ? 6 : (size_t)cases[i].by_generation_config + 1;
		json_t *got;

		put("g/generation_config.json", text);
		got = run_json(command);
		assert_int_equal(json_array_size(json_object_get(got, "ids")), want);
		assert_string_equal(text_of(got, "finish"), want < 6 ? "stop" : "length");
		json_decref(got);
		mem_free(text);
	}
	json_decref(whole);
}

static void test_eval(void **state)
{
	json_t *eval =
	        run_json("$F eval model=a/model data=rows.jsonl compute_dtype=fp32 per_token=on --json");
	const json_t *losses = json_object_get(eval, "token_losses");
	double sum = 0;
	int64_t count = 0;

	(void)state;
	assert_int_equal(json_array_size(losses), 48);
	for (size_t row = 0; row < json_array_size(losses); row++)
		for (size_t i = 0; i < json_array_size(json_array_get(losses, row)); i++, count++)
			sum += json_number_value(json_array_get(json_array_get(losses, row), i));
	assert_int_equal(json_integer_value(json_object_get(eval, "target_tokens")), count);
	sum = sum / (double)count - json_real_value(json_object_get(eval, "loss"));
	assert_true(sum < 1e-6 && sum > -1e-6);
	json_decref(eval);
}

/* 48 rows of 6 to 29 ids; what follows an id is mostly a function of it, so there is something to learn. */
static void put_rows(void)
{
	struct str text = {0};
	uint32_t random = 1;

	for (int row = 0; row < 48; row++) {
		uint32_t id = (uint32_t)row % 37;

		str_add(&text, "{\"input_ids\": [");
		for (int i = 0; i < 6 + row / 2; i++) {
			random = random * 1664525 + 1013904223;
			id = random >> 30 ? (id * 5 + 3) % 40 : random >> 8 & 31;
			str_printf(&text, i ? ", %u" : "%u", id);
		}
		str_add(&text, "]}\n");
	}
	put("rows.jsonl", text.data);
	str_free(&text);
}

static int setup(void **state)
{
	if (check_dir_make(state))
		return -1;
	dir = *state;
	put("config.json", config_json);
	put("bad.jsonl", "{\"input_ids\": [1, 2, 40]}\n");
	put_rows();
	run_ok("$F init config.json output_dir=m seed=7");
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_layout),
	        cmocka_unit_test(test_the_model_alone),
	        cmocka_unit_test(test_nodes),
	        cmocka_unit_test(test_auto_offload),
	        cmocka_unit_test(test_config_repeats),
	        cmocka_unit_test(test_not_empty),
	        cmocka_unit_test(test_resume),
	        cmocka_unit_test(test_signals),
	        cmocka_unit_test(test_dry_run),
	        cmocka_unit_test(test_json),
	        cmocka_unit_test(test_generate),
	        cmocka_unit_test(test_generate_ends),
	        cmocka_unit_test(test_eval),
	        cmocka_unit_test(test_exit_codes),
	};

	if (!getenv("FERRY_BINARY")) {
		fprintf(stderr, "FERRY_BINARY is not set\n");
		return 1;
	}
	signal(SIGINT, SIG_DFL);
	return cmocka_run_group_tests(tests, setup, check_dir_remove);
}
