/* links: checkpoint */
/* Runs whose chat template writes the date go on on another day with the date that they began with. */
#include "checkpoint/file/sealed.h"
#include "tests/chat_tokenizer.h"
#include "tests/cli_program.h"

static const char config_json[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 105, \"hidden_size\": 32, \"intermediate_size\": 48,\n"
        " \"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 1,\n"
        " \"max_position_embeddings\": 128, \"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": false,\n"
        " \"torch_dtype\": \"float32\", \"bos_token_id\": 96, \"eos_token_id\": 97}\n";

#define DAY(FORMAT)                                                                                          \
	"{{ strftime_now('" FORMAT                                                                           \
	"') + '\\n' }}{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + "                          \
	"m.content + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ "                   \
	"'<|im_start|>assistant\\n' }}{% endif %}"
#define CHAT(QUESTION, ANSWER)                                                                               \
	"{\"messages\":[{\"role\":\"user\",\"content\":\"" QUESTION                                          \
	"\"},{\"role\":\"assistant\",\"content\":\"" ANSWER "\"}]}\n"
#define PAIR(QUESTION, GOOD, BAD)                                                                            \
	"{\"prompt\":[{\"role\":\"user\",\"content\":\"" QUESTION                                            \
	"\"}],\"chosen\":[{\"role\":\"assistant\",\"content\":\"" GOOD                                       \
	"\"}],\"rejected\":[{\"role\":\"assistant\",\"content\":\"" BAD "\"}]}\n"

/* Two days lie between the first and the last of these zones, at any time. */
#define DAY_1 "TZ=AAA24 "
#define DAY_2 "TZ=AAA0 "
#define DAY_3 "TZ=AAA-24 "
#define TRAIN                                                                                                \
	"$F train device=host threads=2 compute_dtype=fp32 lr=1e-2 model=m init_weights=random "             \
	"batch_size=2 "                                                                                      \
	"max_steps=6 save_steps=2 save_total_limit=9 "
#define RUN TRAIN "data=chats.jsonl chat_template=day.jinja "

static void run_ok(const char *command)
{
	struct result r = run(command);

	if (r.code)
		print_error("%s: code %d\n%s\n", command, r.code, r.err);
	assert_int_equal(r.code, 0);
	result_free(&r);
}

/* The command fails, and says all of the texts (up to NULL). */
static void run_fails(const char *command, const char *const *texts)
{
	struct result r = run(command);

	assert_int_equal(r.code, 2);
	for (; *texts; texts++)
		if (!strstr(r.err, *texts))
			fail_msg("%s does not say \"%s\": %s", command, *texts, r.err);
	result_free(&r);
}

static int group_setup(void **state)
{
	static char path[] = "/tmp/ferry_test_run_date_XXXXXX";
	struct str json = {0};

	(void)state;
	dir = mkdtemp(path);
	chat_tokenizer_json(&json);
	run_ok("mkdir m");
	put("m/config.json", config_json);
	put("m/tokenizer.json", json.data);
	put("m/tokenizer_config.json", "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}");
	put("chats.jsonl", CHAT("hi", "hello") CHAT("bye", "ciao") CHAT("one", "two") CHAT("red", "blue"));
	put("pairs.jsonl", PAIR("hi", "hello", "go") PAIR("bye", "ciao", "no") PAIR("one", "two", "x"));
	run_ok("for i in 1 2 3 4 5 6 7 8 9 10; do cat chats.jsonl; done > ten.jsonl && for i in $(seq 200); "
	       "do cat ten.jsonl; done "
	       "> big.jsonl");
	put("day.jinja", DAY("%d %b %Y"));
	put("minute.jinja", DAY("%Y-%m-%d %H:%M:%S"));
	str_free(&json);
	return 0;
}

static int group_teardown(void **state)
{
	(void)state;
	return file_remove_tree(dir);
}

/* A run over three days gives the weights of a run on one day, with the command of the first day. */
static void test_days(void **state)
{
	static const char *const more[] = {"", "eval_split=0.25 eval_steps=2 ",
	        "data=big.jsonl data_memory=1MiB data_cache=cache ", "ranks=2 batch_size=1 ",
	        "data=pairs.jsonl preference_loss=sigmoid ", "chat_template=minute.jinja "};

	(void)state;
	for (size_t i = 0; i < sizeof(more) / sizeof(*more); i++) {
		char *command = mem_printf(DAY_1 RUN
		        "output_dir=a %s && cp -r a b && " DAY_2 RUN
		        "output_dir=b resume_from_checkpoint=b/checkpoint-000002 %s && " DAY_3 RUN
		        "output_dir=b resume_from_checkpoint=b/checkpoint-000004 %s && "
		        "cmp a/model/model.safetensors b/model/model.safetensors && "
		        "grep -c chat_template_date: b/config.yaml",
		        more[i], more[i], more[i]);

		assert_non_null(command);
		run_ok(command);
		run_ok("rm -r a b");
		mem_free(command);
	}
}

/* config.yaml repeats the rows of its run; a date by hand does too. */
static void test_repeats(void **state)
{
	(void)state;
	run_ok(DAY_1 RUN "output_dir=c");
	run_ok(DAY_3 "$F train c/config.yaml output_dir=d");
	run_ok("cmp c/model/model.safetensors d/model/model.safetensors");
	run_ok("D=$(sed -n 's/^chat_template_date: //p' c/config.yaml) && " DAY_3 RUN
	       "chat_template_date=${D%T*} output_dir=f && cmp c/model/model.safetensors "
	       "f/model/model.safetensors");
	run_ok(DAY_3 RUN "output_dir=g && ! cmp -s c/model/model.safetensors g/model/model.safetensors");
	/* a new run has the new day; nothing else about the date is kept where no template writes it */
	run_ok(TRAIN "data=chats.jsonl chat_template=chatml output_dir=h");
	run_ok("! grep -q chat_template_date h/config.yaml");
}

static void test_says(void **state)
{
	static const char *const other[] = {
	        "chat_template_date was ", " and is 2020-01-02; set chat_template_date=", NULL};
	static const char *const old[] = {
	        "the chat template writes the date", "set chat_template_date=YYYY-MM-DD", NULL};
	static const char *const odd[] = {"chat_template_date=2026-02-30 is no date", NULL};
	json_t *root = NULL;
	struct result r;
	char *path;

	(void)state;
	run_ok(DAY_1 RUN "output_dir=k");
	run_fails(RUN "output_dir=k chat_template_date=2020-01-02 resume_from_checkpoint=k/checkpoint-000002",
	        other);
	/* as an older ferry wrote it */
	path = file_join(dir, "k/checkpoint-000002/manifest.json");
	check_ok(sealed_read(&root, path));
	assert_int_equal(json_object_del(json_object_get(json_object_get(root, "training"), "settings"),
	                         "chat_template_date"),
	        0);
	assert_int_equal(json_object_del(root, "checksum"), 0);
	check_ok(sealed_write(path, root));
	json_decref(root);
	mem_free(path);
	run_fails(DAY_3 RUN "output_dir=k resume_from_checkpoint=k/checkpoint-000002", old);
	run_ok("D=$(sed -n 's/^chat_template_date: //p' k/config.yaml) && " DAY_3 RUN
	       "output_dir=k chat_template_date=${D%T*} resume_from_checkpoint=k/checkpoint-000002");
	run_fails(RUN "output_dir=n chat_template_date=2026-02-30", odd);
	r = run(TRAIN "data=chats.jsonl chat_template=chatml chat_template_date=2026-02-03 output_dir=o");
	assert_int_equal(r.code, 0);
	assert_non_null(strstr(r.err, "chat_template_date=2026-02-03 has no effect"));
	result_free(&r);
}

/* The cache of rows serves a day, or a second where the template writes it. */
static void test_cache(void **state)
{
	static const char again[] = "of an earlier run";
	struct result r;
	char *second;

	(void)state;
	for (int i = 0; i < 2; i++) {
		const char *template = i ? "minute.jinja" : "day.jinja";
		char *command = mem_printf(
		        "$F data show tokenizer=m data=big.jsonl chat_template=%s data_memory=1MiB "
		        "data_cache=rows%d chat_template_date=",
		        template, i);

		assert_non_null(command);
		for (int k = 0; k < 3; k++) {
			static const char *const dates[] = {
			        "2026-02-03T04:05:06", "2026-02-03T04:05:07", "2026-02-04"};
			static const int found[2][3] = {{0, 1, 0}, {0, 0, 0}};

			second = mem_printf("%s%s", command, dates[k]);
			r = run(second);
			assert_int_equal(r.code, 0);
			assert_int_equal(strstr(r.err, again) != NULL, found[i][k]);
			result_free(&r);
			mem_free(second);
		}
		mem_free(command);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_days),
	        cmocka_unit_test(test_repeats),
	        cmocka_unit_test(test_says),
	        cmocka_unit_test(test_cache),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
