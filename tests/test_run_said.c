/* links: cli */
/* Messages without an error: hints, and limits of the machine. */
#include "tests/run_fixture.h"
#include "tests/sparing.h"

static struct run_model tiny;

/* Words in what was said last, separated by '|'; after '!' words that must not be there. */
static void assert_said(const char *words, const char *arguments)
{
	char list[400], *word, *rest = list;

	snprintf(list, sizeof(list), "%s", words);
	while ((word = strsep(&rest, "|"))) {
		int unwanted = *word == '!';

		if ((strstr(ferry_said(), word + unwanted) != NULL) == unwanted)
			fail_msg("%s: \"%s\" in: %s", arguments, word, ferry_said());
	}
}

/* ---- positions ---- */

static void write_row(const char *name, int tokens)
{
	struct str text = {0};

	str_add(&text, "{\"input_ids\":[1,2,3]}\n{\"input_ids\":[1");
	for (int i = 1; i < tokens; i++)
		str_printf(&text, ",%d", i % 64);
	str_add(&text, "]}\n");
	write_file(name, "%s", text.data);
	str_free(&text);
}

#define LONG_ROWS "long.jsonl: 1 of 2 rows have up to 200 tokens, but the model was made for 128"

/* The model was made for 128: rotary positions go on, with a word. */
static void test_positions(void **state)
{
	static const struct {
		const char *arguments, *words;
	} rows[] = {
	        {"train model=%s/tiny data=%s/long.jsonl output_dir=%s/out --dry-run max_length=512",
	                LONG_ROWS "|max_position_embeddings|max_length=128"},
	        {"train model=%s/tiny data=%s/long.jsonl output_dir=%s/out --dry-run max_length=128",
	                "!was made for"},
	        {"train model=%s/tiny data=%s/long.jsonl output_dir=%s/out --dry-run packing=bfd "
	         "max_length=300",
	                LONG_ROWS},
	        {"train model=%s/tiny data=%s/rows.jsonl output_dir=%s/out --dry-run packing=bfd "
	         "max_length=300",
	                "!was made for"},
	        {"train model=%s/tiny data=%s/rows.jsonl eval_data=%s/long.jsonl output_dir=out --dry-run",
	                LONG_ROWS},
	        {"eval model=%s/tiny data=%s/long.jsonl", LONG_ROWS},
	        {"generate model=%s/tiny prompt_ids=1,2 max_new_tokens=127",
	                "make 129 tokens, but the model was made for 128|max_new_tokens"},
	        {"generate model=%s/tiny prompt_ids=1,2 max_new_tokens=126", "!was made for"},
	        {"plan model=%s/tiny max_length=200",
	                "rows of 200 tokens, but the model was made for 128|max_length=128"},
	        {"plan model=%s/tiny max_length=128", "!was made for"},
	        {"plan model=%s/stretched.json max_length=512", "!was made for"},
	        {"plan model=%s/stretched.json max_length=513",
	                "rows of 513 tokens, but the model was made for 512"},
	};

	(void)state;
	write_row("long.jsonl", 200);
	write_file("stretched.json",
	        "{\"model_type\":\"llama\",\"vocab_size\":64,\"hidden_size\":32,\"intermediate_size\":48,"
	        "\"num_hidden_layers\":3,\"num_attention_heads\":4,\"max_position_embeddings\":128,"
	        "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4}}");
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		char arguments[2000];

		snprintf(arguments, sizeof(arguments), rows[i].arguments, work_dir, work_dir, work_dir);
		assert_ferry(0, NULL, "%s", arguments);
		assert_said(rows[i].words, arguments);
	}
}

/* ---- the plan ---- */

static void test_device_of_a_plan(void **state)
{
	static const struct {
		const char *settings, *device, *words;
	} rows[] = {
	        {"", "host", "device=auto"},
	        {"device=host", "host", "device=host"},
	        {"machine=%s/examples/machines/laptop-2-cores.yaml", "host", "has no GPU"},
	        {"machine=%s/examples/machines/pc-rtx-4090.yaml", "cuda",
	                "\"PC with one RTX 4090\" has 1 GPU"},
	};
	const char *source = getenv("FERRY_SOURCE");

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct str out = {0};
		char settings[600], line[64];
		json_t *plan;
		const char *why;

		snprintf(settings, sizeof(settings), rows[i].settings, source ? source : ".");
		assert_ferry(0, &out, "plan model=%s max_length=16 --details %s", tiny.dir, settings);
		snprintf(line, sizeof(line),
		        "planned for %s: ", strcmp(rows[i].device, "host") ? "a GPU" : "the host");
		assert_non_null(strstr(out.data, line));
		assert_non_null(strstr(out.data, rows[i].words));
		str_free(&out);
		assert_ferry_json(&plan, "plan model=%s max_length=16 --json %s", tiny.dir, settings);
		assert_string_equal(json_string_value(json_object_get(plan, "device")), rows[i].device);
		why = json_string_value(json_object_get(plan, "device_why"));
		assert_true(why && strstr(why, rows[i].words));
		json_decref(plan);
	}
}

/* ---- what is printed ---- */

/* Words of stdout, as assert_said. A plan's first words are the verdict; parts come with --explain and
 * --dry-run. */
static void test_what_is_printed(void **state)
{
	static const struct {
		int code;
		const char *arguments, *words;
	} rows[] = {
	        {0, "plan model=%s max_length=16",
	                "fits this machine: llama, |\nGPU      none; the CPU computes\nhost     |\ndisk     |"
	                "\nstep     |\ndata     |tokens/s: 1M tokens take |\ngain     |!memory by "
	                "part|!int4"},
	        {0, "plan model=%s max_length=16 --details",
	                "fits this machine: |memory by part|!peaks during|!alignment and gaps|!int4"},
	        {0, "plan model=%s max_length=16 --explain", "peaks during operation|alignment and gaps"},
	        {5, "plan model=%s max_length=16 ram_budget=1KiB",
	                "does not fit this machine: |!gain |!memory by part"},
	        {5, "plan model=%s max_length=16 vram_budget=20KiB", "does not fit |!memory by part"},
	        {5, "plan model=%s max_length=16 vram_budget=20KiB --details",
	                "does not fit |the smallest plan with these settings:|memory by part"},
	        {0, "plan model=%s max_length=16 device=cuda",
	                "fits an assumed machine (machine=FILE describes yours): "},
	        {0, "plan model=%s max_length=16 device=cuda --details",
	                "an assumed machine: bf16 products 100000 GFLOP/s|GPU memory without a limit; to "
	                "plan for "
	                "yours, set machine=FILE|a step on the assumed machine"},
	        {0, "train model=%s data=%s output_dir=%s/printed max_steps=1 gradient_accumulation_steps=2",
	                "run      1 step of 2 rows (batch 1 x accumulation 2), |device   host (CPU), |memory "
	                "  |"
	                "disk     |!rope table|!by part"},
	        {0, "train model=%s data=%s output_dir=%s/dry --dry-run", "rope table|memory by part"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct str out = {0};
		char arguments[2000], list[400], *word, *rest = list;

		snprintf(arguments, sizeof(arguments), rows[i].arguments, tiny.dir, tiny.data, work_dir);
		assert_ferry(rows[i].code, &out, "%s", arguments);
		snprintf(list, sizeof(list), "%s", rows[i].words);
		while ((word = strsep(&rest, "|")))
			if ((strstr(out.data, word + (*word == '!')) != NULL) == (*word == '!'))
				fail_msg("%s: \"%s\" in: %s", arguments, word, out.data);
		str_free(&out);
	}
}

/* The result for programs has the last step's loss. */
static void test_result_for_programs(void **state)
{
	char path[400], *rows = NULL, *last;
	json_t *object, *row;
	size_t len;

	(void)state;
	assert_ferry_json(&object, "train model=%s data=%s output_dir=%s/json max_steps=3 --json", tiny.dir,
	        tiny.data, work_dir);
	snprintf(path, sizeof(path), "%s/json/metrics.jsonl", work_dir);
	assert_int_equal(file_read_all(path, 1 << 20, &rows, &len), 0);
	rows[len - 1] = 0;
	last = strrchr(rows, '\n') + 1;
	assert_int_equal(json_parse(&row, path, last, strlen(last)), 0);
	assert_int_equal(json_integer_value(json_object_get(row, "step")), 3);
	assert_true(json_real_value(json_object_get(object, "loss")) ==
	            json_real_value(json_object_get(row, "loss")));
	mem_free(rows);
	json_decref(row);
	json_decref(object);
}

/* ---- a limit on addresses ---- */

static int run_within(int64_t mib, const char *arguments)
{
	const char *binary = getenv("FERRY_BINARY");
	char command[3000];
	int status;

	snprintf(command, sizeof(command), "ulimit -c 0; ulimit -v %lld; %s %s >/dev/null 2>%s/stderr",
	        (long long)mib * 1024, binary ? binary : "build/ferry", arguments, work_dir);
	status = system(command);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Too little is said, by the limit's name: before anything is allocated where a plan can tell. */
static void test_address_limit(void **state)
{
	static const struct {
		int more_mib, code;
		const char *arguments, *words;
	} rows[] = {
	        {24, 1, "train model=%s/tiny data=%s/rows.jsonl output_dir=%s/limited threads=64",
	                "(ulimit -v)"},
	        {450, 5, "train model=%s/tiny data=%s/rows.jsonl output_dir=%s/limited threads=2",
	                "ulimit -v is |threads=1"},
	        {800, 5,
	                "train model=%s/large.json data=%s/rows.jsonl output_dir=%s/limited threads=2 "
	                "init_weights=random",
	                "(ulimit -v)|of host memory"},
	        {800, 0, "train model=%s/tiny data=%s/rows.jsonl output_dir=%s/a max_steps=1 threads=2", ""},
	        {800, 0,
	                "train model=%s/tiny data=%s/rows.jsonl output_dir=%s/b max_steps=1 threads=2 "
	                "compute_dtype=fp32",
	                ""},
	};
	json_t *topo;
	int64_t used_mib;

	(void)state;
	if (SANITIZED)
		skip();
	write_file("large.json",
	        "{\"model_type\":\"llama\",\"vocab_size\":4096,\"hidden_size\":1024,\"intermediate_size\":"
	        "4096,\"num_hidden_layers\":4,\"num_attention_heads\":8,\"max_position_embeddings\":128}");
	assert_ferry_json(&topo, "topo --json");
	assert_true(json_is_null(json_object_get(topo, "address_bytes")));
	used_mib = json_integer_value(json_object_get(topo, "address_used_bytes")) >> 20;
	json_decref(topo);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		char arguments[2000];

		snprintf(arguments, sizeof(arguments), rows[i].arguments, work_dir, work_dir, work_dir);
		if (run_within(used_mib + rows[i].more_mib, arguments) != rows[i].code)
			fail_msg("%s: %s", arguments, ferry_said());
		assert_said(rows[i].words, arguments);
	}
	assert_false(run_has("limited"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_positions),
	        cmocka_unit_test(test_device_of_a_plan),
	        cmocka_unit_test(test_what_is_printed),
	        cmocka_unit_test(test_result_for_programs),
	        cmocka_unit_test(test_address_limit),
	};
	int failed;

	ferry_run_begin("run-said");
	tiny_model(&tiny);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
