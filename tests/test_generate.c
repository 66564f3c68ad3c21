/* links: base */
/* ferry generate: the ids of transformers' generate, all forms of prompts, chats with several turns. */
#include "tests/chat_tokenizer.h"
#include "tests/cli_program.h"

/* Rows of `golden` as a file of prompts. */
static void put_prompts(const json_t *rows)
{
	struct str lines = {0};
	const json_t *row;
	size_t i;

	json_array_foreach(rows, i, row)
	{
		char *ids = NULL;

		check_ok(json_write(&ids, json_object_get(row, "prompt"), JSON_COMPACT));
		str_printf(&lines, "{\"input_ids\": %s}\n", ids);
		mem_free(ids);
	}
	put("prompts.jsonl", lines.data);
	str_free(&lines);
}

/* The JSON lines of stdout, as an array. */
static json_t *run_lines(const char *command)
{
	struct result r = run(command);
	json_t *list = json_array();
	char *line = r.out, *end;

	if (r.code)
		fail_msg("%s: code %d: %s", command, r.code, r.err);
	for (; (end = strchr(line, '\n')); line = end + 1) {
		json_t *object = NULL;

		check_ok(json_parse(&object, "stdout", line, (size_t)(end - line)));
		json_array_append_new(list, object);
	}
	result_free(&r);
	return list;
}

static void check_ids(const json_t *rows, const char *settings, const char *model)
{
	char *command =
	        mem_printf("$F generate model=\"$S/golden/%s/hf\" prompt_file=prompts.jsonl device=host "
	                   "threads=2 compute_dtype=fp32 temperature=0 max_new_tokens=24 --json %s",
	                model, settings);
	json_t *got = run_lines(command), *answer;
	size_t i;

	assert_int_equal(json_array_size(got), json_array_size(rows));
	json_array_foreach(got, i, answer)
	{
		const json_t *row = json_array_get(rows, i);

		if (!json_equal(json_object_get(answer, "ids"), json_object_get(row, "ids")))
			fail_msg("%s %s: row %zu differs from transformers", model, settings, i);
		assert_true(
		        json_equal(json_object_get(answer, "prompt_ids"), json_object_get(row, "prompt")));
	}
	json_decref(got);
	mem_free(command);
}

/* Prompts of different lengths together, two at a time, with weights on the device and streamed to it,
 * windows (mistral) and experts among them: tests/golden/make_greedy_golden.py. */
static void test_transformers(void **state)
{
	const char *source = getenv("FERRY_SOURCE"), *shared = getenv("FERRY_SHARED");
	char *path;
	json_t *root = NULL, *model;
	size_t i;

	(void)state;
	if (!shared || file_kind_of(shared) != FILE_DIR) {
		print_message("SKIPPED test_transformers: ../shared absent\n");
		skip();
	}
	path = mem_printf("%s/tests/golden/greedy.json", source ? source : ".");
	check_ok(json_read_file(&root, path, 1 << 24));
	json_array_foreach(json_object_get(root, "models"), i, model)
	{
		const char *name = json_string_value(json_object_get(model, "model"));
		const json_t *rows = json_object_get(model, "rows");

		put_prompts(rows);
		check_ids(rows, "", name);
		check_ids(rows, "eval_batch_size=2 cpu_offload=off cache_tokens=90", name);
		check_ids(rows, "cpu_offload=on vram_budget=off", name);
	}
	json_decref(root);
	mem_free(path);
}

/* ---- a model that has learned two answers ---- */

#define CHAT(QUESTION, ANSWER)                                                                               \
	"{\"messages\":[{\"role\":\"user\",\"content\":\"" QUESTION                                          \
	"\"},{\"role\":\"assistant\",\"content\":\"" ANSWER "\"}]}\n"
#define ASK "$F generate model=a/model device=host threads=2 compute_dtype=fp32 "

static const char config_json[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 105, \"hidden_size\": 32, \"intermediate_size\": 48,\n"
        " \"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 1,\n"
        " \"max_position_embeddings\": 128, \"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": false,\n"
        " \"torch_dtype\": \"float32\", \"bos_token_id\": 96, \"eos_token_id\": 97}\n";

static void check_said(const char *command, const char *out)
{
	struct result r = run(command);

	if (r.code || strcmp(r.out, out))
		fail_msg("%s: code %d, said \"%s\", not \"%s\"; %s", command, r.code, r.out, out, r.err);
	result_free(&r);
}

static void check_refused(const char *command, const char *why)
{
	struct result r = run(command);

	if (!r.code || !strstr(r.err, why))
		fail_msg("%s: code %d, no \"%s\" in \"%s\"", command, r.code, why, r.err);
	result_free(&r);
}

static void test_prompts(void **state)
{
	(void)state;
	check_said(ASK "chat=on prompt=hi", "hello\n");
	check_said("echo hi | " ASK "chat=on prompt=-", "hello\n");
	put("asked.txt", "hi\nbye\n\nhi\n");
	check_said(ASK "chat=on prompt_file=asked.txt", "==> asked.txt:1 <==\nhello\n\n==> asked.txt:2 <==\n"
	                                                "ciao\n\n==> asked.txt:4 <==\nhello\n");
	put("one.txt", "hi\r\n");
	check_said(ASK "chat=on prompt_file=one.txt", "hello\n");
	put("asked.jsonl", "{\"prompt\": \"bye\"}\n{\"messages\": [{\"role\": \"user\", \"content\": "
	                   "\"hi\"}]}\n\"hi\"\n");
	for (int at_once = 1; at_once <= 3; at_once++) {
		char *command = mem_printf(ASK "chat=on prompt_file=asked.jsonl eval_batch_size=%d", at_once);

		check_said(command, "==> asked.jsonl:1 <==\nciao\n\n==> asked.jsonl:2 <==\nhello\n\n"
		                    "==> asked.jsonl:3 <==\nhello\n");
		mem_free(command);
	}
	put("asked.csv", "n,prompt\n1,bye\n2,hi\n");
	check_said("gzip -k asked.csv && " ASK "chat=on prompt_file=asked.csv.gz",
	        "==> asked.csv.gz:2 <==\nciao\n\n==> asked.csv.gz:3 <==\nhello\n");
	check_said(
	        "printf '<|im_start|>user\\nhi<|im_end|>\\n<|im_start|>assistant\\n\\n' | " ASK, "hello\n");
	check_said(ASK "chat=on prompt=hi stop=ll", "he\n");
	check_said(ASK "chat=on prompt=hi 'stop=[\"zz\", \"lo\"]'", "hel\n");
	check_said(ASK "chat=on prompt=hi max_new_tokens=2", "he\n");
	check_refused(ASK "prompt_file=nothere.txt", "nothere.txt: cannot open: No such file");
	check_refused("printf 'a\\0b' > bytes; " ASK "prompt_file=bytes", "bytes:1: this is not text");
	put("wrong.jsonl", "{\"prompt\": \"a\"}\n{\"text\": 1}\n");
	check_refused(ASK "prompt_file=wrong.jsonl", "wrong.jsonl:2: expected a text");
	check_refused("$F generate model=m init_weights=random device=host chat=on prompt=hi",
	        "has no chat template");
}

/* A line of a file has the ids of the same text as `prompt`, with and without a newline at the file's end. */
static void test_prompt_lines(void **state)
{
	static const char *const how[] = {"", "data_format=alpaca "}, *const prompts[] = {"hi you", "bye"};

	(void)state;
	put("lines.txt", "hi you\r\n\nbye");
	for (size_t n = 0; n < sizeof how / sizeof *how; n++) {
		char *command = mem_printf(ASK "max_new_tokens=1 --json %sprompt_file=lines.txt", how[n]);
		json_t *together = run_lines(command);

		mem_free(command);
		assert_int_equal(json_array_size(together), 2);
		for (size_t i = 0; i < 2; i++) {
			json_t *one, *ids = json_object_get(json_array_get(together, i), "prompt_ids");

			command = mem_printf(ASK "max_new_tokens=1 --json %sprompt='%s'", how[n], prompts[i]);
			one = run_lines(command);
			assert_true(json_equal(json_object_get(json_array_get(one, 0), "prompt_ids"), ids));
			json_decref(one);
			mem_free(command);
		}
		json_decref(together);
	}
}

/* Answers to one prompt differ when they are drawn, also those of other micro-batches, and do not depend on
 * how many run at once. */
static void test_draws(void **state)
{
	json_t *one, *three;

	(void)state;
	put("same.jsonl", "\"hi\"\n\"hi\"\n\"hi\"\n\"hi\"\n");
	one = run_lines(ASK "prompt_file=same.jsonl temperature=3 max_new_tokens=8 eval_batch_size=1 --json");
	three = run_lines(
	        ASK "prompt_file=same.jsonl temperature=3 max_new_tokens=8 eval_batch_size=3 --json");
	assert_int_equal(json_array_size(one), 4);
	assert_true(json_equal(one, three));
	for (size_t i = 0; i < 4; i++)
		for (size_t j = 0; j < i; j++)
			assert_false(json_equal(json_array_get(one, i), json_array_get(one, j)));
	json_decref(one);
	json_decref(three);
}

/* What generation_config.json says: taken, or named. An end token of `stop` without text ends an answer. */
static void test_generation_config(void **state)
{
	json_t *answer, *ids;

	(void)state;
	check_said("cp -r a/model g", "");
	put("g/generation_config.json", "{\"max_new_tokens\": 3, \"num_beams\": 4, \"typical_p\": 1.0, "
	                                "\"suppress_tokens\": [], \"no_repeat_ngram_size\": 2}");
	answer = run_lines("$F generate model=g device=host compute_dtype=fp32 prompt_ids=5 --json 2>said");
	assert_int_equal(json_array_size(json_object_get(json_array_get(answer, 0), "ids")), 3);
	json_decref(answer);
	check_said("grep -c 'ignoring no_repeat_ngram_size, num_beams; the text may differ' said", "1\n");
	put("g/generation_config.json", "{\"temperature\": 1e-9, \"top_k\": 1}");
	check_said("$F generate model=g device=host compute_dtype=fp32 chat=on prompt=hi do_sample=on",
	        "hello\n");
	/* <|im_end|> is 99, and ends nothing in this model */
	check_said("cp m/config.json g", "");
	answer = run_lines(
	        "$F generate model=g device=host compute_dtype=fp32 temperature=0 chat=on prompt=hi "
	        "'stop=<|im_end|>' --json");
	ids = json_object_get(json_array_get(answer, 0), "ids");
	assert_int_equal(json_integer_value(json_array_get(ids, json_array_size(ids) - 1)), 99);
	assert_string_equal(json_string_value(json_object_get(json_array_get(answer, 0), "finish")), "stop");
	json_decref(answer);
	answer = run_lines(ASK "chat=on system= prompt=hi --json");
	ids = json_object_get(json_array_get(answer, 0), "prompt_ids");
	assert_true(json_array_size(ids) > 10);
	json_decref(answer);
	check_refused(ASK "prompt= < /dev/null", "the prompt is empty: nothing to continue");
}

#define LONG                                                                                                 \
	"$F generate model=long device=host threads=2 compute_dtype=fp32 temperature=0 --json prompt_ids="

/* A text becomes long for longrope while it grows, or is so from the begin, in several passes: the same ids.
 */
static void test_long_text(void **state)
{
	struct result r;
	json_t *grown, *whole, *ids;
	char *command;

	(void)state;
	put("long.json", "{\"model_type\": \"phi3\", \"vocab_size\": 64, \"hidden_size\": 16, "
	                 "\"intermediate_size\": 16, "
	                 "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
	                 "\"max_position_embeddings\": 8192, \"original_max_position_embeddings\": 2100, "
	                 "\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1, 1.1, 1.2, 1.3], "
	                 "\"long_factor\": [2, 2.5, 3, 3.5]}, \"rms_norm_eps\": 1e-5, \"pad_token_id\": 0, "
	                 "\"tie_word_embeddings\": false, \"bos_token_id\": 1, \"eos_token_id\": 63}");
	r = run("$F init long.json output_dir=long seed=5");
	assert_int_equal(r.code, 0);
	result_free(&r);
	grown = run_lines(LONG "$(seq -s, 2098 | sed 's/[0-9]*/9/g') max_new_tokens=6");
	ids = json_object_get(json_array_get(grown, 0), "ids");
	assert_int_equal(json_array_size(ids), 6);
	command = mem_printf(LONG "$(seq -s, 2098 | sed 's/[0-9]*/9/g'),%d,%d,%d max_new_tokens=3",
	        (int)json_integer_value(json_array_get(ids, 0)),
	        (int)json_integer_value(json_array_get(ids, 1)),
	        (int)json_integer_value(json_array_get(ids, 2)));
	whole = run_lines(command);
	for (size_t i = 0; i < 3; i++)
		assert_true(json_equal(json_array_get(ids, 3 + i),
		        json_array_get(json_object_get(json_array_get(whole, 0), "ids"), i)));
	mem_free(command);
	json_decref(grown);
	json_decref(whole);
}

/* Turns are kept, and each answer is the one that the whole chat would get. */
static void test_talk(void **state)
{
	json_t *turns, *whole;

	(void)state;
	check_said("printf 'hi\\nbye\\n' | " ASK "chat=on", "hello\nciao\n");
	turns = run_lines("printf 'hi\\nbye\\n' | " ASK "chat=on --json");
	put("chat.jsonl",
	        "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":"
	        "\"hello\"},{\"role\":\"user\",\"content\":\"bye\"}]}\n");
	whole = run_lines(ASK "chat=on prompt_file=chat.jsonl --json");
	assert_true(json_equal(json_array_get(turns, 1), json_array_get(whole, 0)));
	json_decref(turns);
	json_decref(whole);
	turns = run_lines("echo hi | " ASK "chat=on system=S --json");
	assert_int_equal(json_integer_value(
	                         json_array_get(json_object_get(json_array_get(turns, 0), "prompt_ids"), 0)),
	        98); /* <|im_start|>, then system */
	json_decref(turns);
	check_refused("printf 'hi\\nbye\\nhi\\n' | " ASK "chat=on cache_tokens=70 max_new_tokens=8 && false",
	        "more than cache_tokens=70; raise it or set drop_oldest=on");
	check_said("printf 'hi\\nbye\\nhi\\n' | " ASK
	           "chat=on cache_tokens=70 max_new_tokens=8 drop_oldest=on",
	        "hello\nciao\nhello\n");
	check_refused("echo hi | $F generate model=m init_weights=random device=host chat=on",
	        "has no chat template");
}

#define WINDOW                                                                                               \
	"$F generate model=w chat=on chat_template=chatml device=host threads=2 compute_dtype=fp32 "         \
	"temperature=0 max_new_tokens=30 --json "

/* Each turn of a chat gets the same answer as the whole chat in one prompt. Some turns have a shorter text
 * than the cache had. `make`: makes the model w. */
static void turns_compare(const char *make)
{
	static const char *const asked[] = {"hi", "bye", "how are you all today", "x"};
	json_t *turns, *messages = json_array();
	struct result r;

	r = run(make);
	if (r.code)
		fail_msg("%s", r.err);
	result_free(&r);
	turns = run_lines("printf 'hi\nbye\nhow are you all today\nx\n' | " WINDOW "cache_tokens=900");
	assert_int_equal(json_array_size(turns), 4);
	for (size_t i = 0; i < 4; i++) {
		json_t *chat, *whole, *turn = json_array_get(turns, i);
		char *line = NULL;

		json_array_append_new(messages, json_pack("{s:s,s:s}", "role", "user", "content", asked[i]));
		chat = json_pack("{s:O}", "messages", messages);
		check_ok(json_write(&line, chat, JSON_COMPACT));
		put("whole.jsonl", line);
		whole = run_lines(WINDOW "prompt_file=whole.jsonl");
		assert_true(json_equal(json_object_get(turn, "prompt_ids"),
		        json_object_get(json_array_get(whole, 0), "prompt_ids")));
		assert_true(json_equal(
		        json_object_get(turn, "ids"), json_object_get(json_array_get(whole, 0), "ids")));
		json_array_append_new(messages, json_pack("{s:s,s:O}", "role", "assistant", "content",
		                                        json_object_get(turn, "text")));
		json_decref(whole);
		json_decref(chat);
		mem_free(line);
	}
	json_decref(turns);
	json_decref(messages);
}

/* Blocks with a window keep fewer rows than the text has. */
static void test_window(void **state)
{
	struct result r;

	(void)state;
	turns_compare(
	        "mkdir wc && cp m/tokenizer* wc && sed 's/\"llama\"/\"mistral\", \"sliding_window\": 8/;"
	        "s/embeddings\": 128/embeddings\": 4096/' m/config.json > wc/config.json && "
	        "$F init wc/config.json output_dir=w seed=5 tokenizer=wc");
	/* 8 - 1 rows and those of a pass, here the 20 tokens of the prompt, of 2 x 16 fp32 in 2 blocks */
	r = run("$F generate model=w device=host threads=2 compute_dtype=fp32 temperature=0 "
	        "max_new_tokens=80 "
	        "prompt_ids=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20");
	assert_int_equal(r.code, 0);
	assert_non_null(strstr(r.err, "KV cache: 6.8 KiB, for 100 tokens\n"));
	result_free(&r);
}

/* The same with recurrent states; several texts at once have one each. */
static void test_recurrence(void **state)
{
	static const char *const prompts[] = {"1,2,3", "9,8,7,6,5,4,3,2,1,9,8,7", "5"};
	json_t *all, *alone;
	char *command;

	(void)state;
	turns_compare(
	        "mkdir rc && cp m/tokenizer* rc && sed 's/\"llama\"/\"qwen3_5_text\", \"head_dim\": 16, "
	        "\"full_attention_interval\": 2, \"linear_num_key_heads\": 1, \"linear_num_value_heads\": 3, "
	        "\"linear_key_head_dim\": 8, \"linear_value_head_dim\": 12/;s/1e-5/1e-3/;"
	        "s/embeddings\": 128/embeddings\": 4096/' m/config.json > rc/config.json && rm -r w && "
	        "$F init rc/config.json output_dir=w seed=5 tokenizer=rc");
	put("prompts.jsonl",
	        "{\"input_ids\":[1,2,3]}\n{\"input_ids\":[9,8,7,6,5,4,3,2,1,9,8,7]}\n{\"input_ids\":[5]}\n");
	all = run_lines("$F generate model=w device=host threads=2 compute_dtype=fp32 temperature=0 "
	                "max_new_tokens=20 --json prompt_file=prompts.jsonl");
	assert_int_equal(json_array_size(all), 3);
	for (size_t i = 0; i < 3; i++) {
		command = mem_printf(
		        "$F generate model=w device=host threads=2 compute_dtype=fp32 temperature=0 "
		        "max_new_tokens=20 --json prompt_ids=%s",
		        prompts[i]);
		alone = run_lines(command);
		assert_true(json_equal(json_object_get(json_array_get(all, i), "ids"),
		        json_object_get(json_array_get(alone, 0), "ids")));
		json_decref(alone);
		mem_free(command);
	}
	json_decref(all);
}

/* What the cache takes: 2 blocks, rows of 2 x 16 fp32; and what each token copies where weights are streamed.
 */
static void test_costs(void **state)
{
	struct result r = run(ASK "cpu_offload=on vram_budget=off prompt_ids=1,2 max_new_tokens=6");

	(void)state;
	assert_int_equal(r.code, 0);
	assert_non_null(strstr(r.err, "KV cache: 2.0 KiB, for 8 tokens\n"));
	assert_non_null(strstr(r.err, "the weights do not stay on the device: each new token copies "));
	result_free(&r);
	r = run(ASK "cpu_offload=off prompt_ids=1,2 max_new_tokens=6");
	assert_int_equal(r.code, 0);
	assert_null(strstr(r.err, "each new token copies"));
	result_free(&r);
}

/* generation_config.json samples where nobody says otherwise. */
static void test_defaults(void **state)
{
	struct result r;

	(void)state;
	put("a/model/generation_config.json",
	        "{\"eos_token_id\": [97, 99], \"do_sample\": true, \"temperature\": 0.5, \"top_k\": 1}");
	r = run(ASK "chat=on prompt=hi");
	assert_string_equal(r.out, "hello\n");
	assert_non_null(strstr(r.err, "temperature=0.5 top_k=1"));
	result_free(&r);
	r = run(ASK "chat=on prompt=hi temperature=0");
	assert_null(strstr(r.err, "sampling as"));
	result_free(&r);
	put("a/model/generation_config.json",
	        "{\"eos_token_id\": [97, 99], \"do_sample\": true, \"top_p\": 7}");
	check_refused(ASK "chat=on prompt=hi", "out of range");
	put("a/model/generation_config.json", "{\"eos_token_id\": [97, 99]}");
}

static int group_setup(void **state)
{
	static char path[] = "/tmp/ferry_test_generate_XXXXXX";
	struct str json = {0};
	struct result r;

	(void)state;
	dir = mkdtemp(path);
	chat_tokenizer_json(&json);
	r = run("mkdir m");
	result_free(&r);
	put("m/config.json", config_json);
	put("m/tokenizer.json", json.data);
	put("m/tokenizer_config.json", "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}");
	put("chats.jsonl", CHAT("hi", "hello") CHAT(
	                           "bye", "ciao") "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},{"
	                                          "\"role\":\"assistant\",\"content\":\"hello\"},"
	                                          "{\"role\":\"user\",\"content\":\"bye\"},{\"role\":"
	                                          "\"assistant\",\"content\":\"ciao\"},"
	                                          "{\"role\":\"user\",\"content\":\"hi\"},{\"role\":"
	                                          "\"assistant\",\"content\":\"hello\"}]}\n"
	                                          "{\"messages\":[{\"role\":\"user\",\"content\":\"bye\"},{"
	                                          "\"role\":\"assistant\",\"content\":\"ciao\"},"
	                                          "{\"role\":\"user\",\"content\":\"hi\"},{\"role\":"
	                                          "\"assistant\",\"content\":\"hello\"}]}\n");
	str_free(&json);
	r = run("$F train model=m data=chats.jsonl init_weights=random chat_template=chatml device=host "
	        "threads=2 "
	        "compute_dtype=fp32 export_dtype=fp32 lr=1e-2 batch_size=4 epochs=60 weight_decay=0 "
	        "output_dir=a");
	if (r.code)
		print_error("%s", r.err);
	assert_int_equal(r.code, 0);
	result_free(&r);
	return 0;
}

static int group_teardown(void **state)
{
	(void)state;
	return file_remove_tree(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_transformers),
	        cmocka_unit_test(test_prompts),
	        cmocka_unit_test(test_prompt_lines),
	        cmocka_unit_test(test_long_text),
	        cmocka_unit_test(test_draws),
	        cmocka_unit_test(test_generation_config),
	        cmocka_unit_test(test_talk),
	        cmocka_unit_test(test_window),
	        cmocka_unit_test(test_recurrence),
	        cmocka_unit_test(test_costs),
	        cmocka_unit_test(test_defaults),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
