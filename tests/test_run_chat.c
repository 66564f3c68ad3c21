/* links: base */
/* A base model trained on chats: its result says how to write a chat, and which token ends an answer. */
#include "tests/chat_tokenizer.h"
#include "tests/cli_program.h"

#include <poll.h>
#include <pty.h>

static const char config_json[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 105, \"hidden_size\": 32, \"intermediate_size\": 48,\n"
        " \"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 1,\n"
        " \"max_position_embeddings\": 128, \"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": false,\n"
        " \"torch_dtype\": \"float32\", \"bos_token_id\": 96, \"eos_token_id\": 97}\n";

#define CHAT(QUESTION, ANSWER)                                                                               \
	"{\"messages\":[{\"role\":\"user\",\"content\":\"" QUESTION                                          \
	"\"},{\"role\":\"assistant\",\"content\":\"" ANSWER "\"}]}\n"
#define ASK(QUESTION) "'<|im_start|>user\n" QUESTION "<|im_end|>\n<|im_start|>assistant\n'"
#define BASE "model=m data=chats.jsonl init_weights=random "
#define TRAIN                                                                                                \
	"$F train device=host threads=2 compute_dtype=fp32 lr=1e-2 "                                         \
	"batch_size=2 epochs=40 weight_decay=0 "

static void run_ok(const char *command)
{
	struct result r = run(command);

	if (r.code)
		print_error("%s: code %d\n%s\n", command, r.code, r.err);
	assert_int_equal(r.code, 0);
	result_free(&r);
}

static char *text_file(const char *name)
{
	char *path = file_join(dir, name), *text = NULL;
	size_t len;

	check_ok(file_read_all(path, 1 << 20, &text, &len));
	mem_free(path);
	return text;
}

/* eos_token_id of a file, as JSON. */
static void check_ends(const char *name, const char *want)
{
	char *text = text_file(name), *got = NULL;
	json_t *root = NULL;

	check_ok(json_parse(&root, name, text, strlen(text)));
	check_ok(json_write(&got, json_object_get(root, "eos_token_id"), JSON_ENCODE_ANY | JSON_COMPACT));
	assert_string_equal(got, want);
	json_decref(root);
	mem_free(got);
	mem_free(text);
}

static int group_setup(void **state)
{
	static char path[] = "/tmp/ferry_test_run_chat_XXXXXX";
	struct str json = {0};

	(void)state;
	dir = mkdtemp(path);
	chat_tokenizer_json(&json);
	run_ok("mkdir m");
	put("m/config.json", config_json);
	put("m/tokenizer.json", json.data);
	put("m/tokenizer_config.json", "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}");
	put("chats.jsonl", CHAT("hi", "hello") CHAT("bye", "ciao"));
	str_free(&json);
	run_ok(TRAIN BASE "chat_template=chatml save_steps=20 output_dir=a");
	return 0;
}

static int group_teardown(void **state)
{
	(void)state;
	return file_remove_tree(dir);
}

/* Every form of the result has the end-of-turn token among its ends, and the template. */
static void test_files(void **state)
{
	static const char *const dirs[] = {"a/model", "a/checkpoint-000040/hf", "e"};
	char *template = NULL;

	(void)state;
	run_ok("$F export a/checkpoint-000040 output_dir=e");
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		char *config = file_join(dirs[i], "config.json");
		char *generation = file_join(dirs[i], "generation_config.json");
		char *jinja = file_join(dirs[i], "chat_template.jinja"), *text = NULL;

		check_ends(config, "[97,99]");
		check_ends(generation, "[97,99]");
		text = text_file(config); /* numbers stay as short as they were */
		assert_non_null(strstr(text, "\"rms_norm_eps\": 1e-5,"));
		mem_free(text);
		text = text_file(jinja);
		assert_non_null(strstr(text, "<|im_start|>"));
		if (template)
			assert_string_equal(text, template);
		mem_free(template);
		template = text;
		mem_free(config);
		mem_free(generation);
		mem_free(jinja);
	}
	mem_free(template);
}

/* It answers and stops; the base model's end alone would let it go on. */
static void test_stops(void **state)
{
	json_t *answer = run_json("$F generate model=a/model device=host prompt=" ASK("hi") " --json");

	(void)state;
	assert_string_equal(json_string_value(json_object_get(answer, "text")), "hello");
	assert_string_equal(json_string_value(json_object_get(answer, "finish")), "stop");
	json_decref(answer);
}

/* The result is a model with a template: the next run needs no key, and changes nothing of the files. */
static void test_again(void **state)
{
	(void)state;
	run_ok(TRAIN "model=a/model data=chats.jsonl output_dir=b");
	run_ok("cmp a/model/config.json b/model/config.json && cmp a/model/chat_template.jinja "
	       "b/model/chat_template.jinja && cmp a/model/generation_config.json "
	       "b/model/generation_config.json");
}

/* A resumed run reads the rows again, and says the same. */
static void test_resumed(void **state)
{
	(void)state;
	run_ok(TRAIN BASE "chat_template=chatml output_dir=c max_steps=2");
	run_ok(TRAIN BASE "chat_template=chatml output_dir=c max_steps=4 resume_from_checkpoint=auto");
	check_ends("c/model/config.json", "[97,99]");
}

/* A template of one's own, by file; an end that the model has already; rows that are no chats. */
static void test_others(void **state)
{
	char *text;

	(void)state;
	put("own.jinja", "{% for m in messages %}{{ m.content + eos_token }}{% endfor %}");
	run_ok(TRAIN BASE "chat_template=own.jinja output_dir=d max_steps=1");
	check_ends("d/model/config.json", "97");
	check_ends("d/model/generation_config.json", "97");
	text = text_file("d/model/chat_template.jinja");
	assert_non_null(strstr(text, "m.content + eos_token"));
	mem_free(text);
	put("plain.jsonl", "{\"text\": \"hello hello\"}\n{\"text\": \"hello\"}\n");
	run_ok(TRAIN "model=m data=plain.jsonl init_weights=random output_dir=f max_steps=1");
	run_ok("cmp m/config.json f/model/config.json && test ! -e f/model/chat_template.jinja");
}

/* The result is used in the same way whichever tokens are trained, and where max_length cuts the ends of all
 * turns. */
static void test_inputs(void **state)
{
	static const char pairs[] = "{\"prompt\":[{\"role\":\"user\",\"content\":\"hi\"}],"
	                            "\"completion\":[{\"role\":\"assistant\",\"content\":\"hello\"}]}\n";
	static const char *const runs[] = {"data=chats.jsonl train_on_inputs=on",
	        "data=chats.jsonl train_on_inputs=chats", "data=pairs.jsonl train_on_inputs=prompts",
	        "data=alpaca.jsonl train_on_inputs=on", "data=chats.jsonl max_length=24",
	        "data=chats.jsonl train_on_inputs=on max_length=24",
	        "data=chats.jsonl train_on_inputs=on lora_rank=2"};

	(void)state;
	put("pairs.jsonl", pairs);
	put("alpaca.jsonl", "{\"instruction\":\"hi\",\"output\":\"hello\"}\n");
	for (size_t i = 0; i < sizeof(runs) / sizeof(*runs); i++) {
		char *command = mem_printf(TRAIN
		        "model=m init_weights=random max_steps=1 chat_template=chatml output_dir=in "
		        "%s && cmp in/model/chat_template.jinja a/model/chat_template.jinja && "
		        "$F generate model=in/model chat=on prompt=hi max_new_tokens=1",
		        runs[i]);

		assert_non_null(command);
		run_ok(command);
		check_ends("in/model/generation_config.json", "[97,99]");
		check_ends("in/model/config.json", "[97,99]");
		mem_free(command);
		if (strstr(runs[i], "lora"))
			run_ok("cmp in/adapter/chat_template.jinja a/model/chat_template.jinja");
		run_ok("rm -r in");
	}
	for (size_t i = 0; i < 4; i++) { /* its end of turn is no token here */
		char *command = mem_printf(TRAIN
		        "model=m init_weights=random max_steps=1 chat_template=llama3 output_dir=in %s",
		        runs[i]);
		struct result r = run(command);

		assert_int_equal(r.code, 2);
		assert_non_null(strstr(r.err, "writes no end-of-turn token of this tokenizer"));
		result_free(&r);
		mem_free(command);
	}
}

enum { SILENT_MS = 120000 };

/* What the terminal shows from `from` on, until it has `wanted`; fails where the program ends before, or is
 * silent for minutes. */
static size_t screen_wait(int terminal, struct str *screen, size_t from, const char *wanted)
{
	const char *at;

	while (screen->len_bytes <= from || !(at = strstr(screen->data + from, wanted))) {
		struct pollfd comes = {.fd = terminal, .events = POLLIN};
		char part[256];
		ssize_t n = poll(&comes, 1, SILENT_MS) > 0 ? read(terminal, part, sizeof(part)) : 0;

		if (n <= 0)
			print_error("\"%s\" does not come: %s\n", wanted, screen->data ? screen->data : "");
		assert_true(n > 0);
		str_printf(screen, "%.*s", (int)n, part);
	}
	return (size_t)(at - screen->data) + strlen(wanted);
}

/* In a terminal Ctrl-C ends an answer, and the talk goes on; also where no answer is growing. */
static void test_terminal(void **state)
{
	struct str screen = {0};
	int terminal, status;
	size_t at;
	pid_t pid;

	(void)state;
	run_ok("$F init m/config.json output_dir=r seed=3 tokenizer=m");
	pid = forkpty(&terminal, NULL, NULL, NULL);
	if (pid < 0) { /* a chroot without /dev/pts */
		print_message("SKIPPED test_terminal: no pseudo terminals here\n");
		skip();
	}
	if (!pid) {
		if (!chdir(dir))
			execl(getenv("FERRY_BINARY"), "ferry", "generate", "model=r", "chat=on",
			        "chat_template=chatml", "device=host", "cpu_offload=on",
			        "host_copy_gbps=0.002", "temperature=0", "max_new_tokens=4000",
			        "cache_tokens=4096", NULL);
		_exit(9);
	}
	at = screen_wait(terminal, &screen, 0, "\n> ");
	assert_int_equal(write(terminal, "hi\n", 3), 3);
	at = screen_wait(terminal, &screen, at, "\n");
	while (screen.len_bytes < at + 4) /* of the answer */
		screen_wait(terminal, &screen, screen.len_bytes, "");
	assert_int_equal(write(terminal, "\003", 1), 1);
	at = screen_wait(terminal, &screen, at, "\n> ");
	assert_int_equal(write(terminal, "typed\003", 6), 6); /* a moment too late */
	at = screen_wait(terminal, &screen, at, "Ctrl-D ends the chat");
	screen_wait(terminal, &screen, at, "\n> ");
	assert_int_equal(write(terminal, "\004", 1), 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	close(terminal);
	str_free(&screen);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_files),
	        cmocka_unit_test(test_stops),
	        cmocka_unit_test(test_again),
	        cmocka_unit_test(test_resumed),
	        cmocka_unit_test(test_others),
	        cmocka_unit_test(test_inputs),
	        cmocka_unit_test(test_terminal),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
