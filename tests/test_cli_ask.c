/* links: base */
/* ferry config without arguments: questions, answers from a pipe, and the file that it writes. */
#include "tests/cli_program.h"

#include <pty.h>

/* Good answers, in the order of the questions: model, data, length, what trains, epochs, results, file. */
#define MODEL "speaker\n"
#define DATA "rows.jsonl\n"

/* Runs ferry config with these answers (printf's format), in a fresh directory with a model and rows. */
static struct result ask(const char *before, const char *answers, const char *after)
{
	char *command =
	        mem_printf("rm -rf at && mkdir at && cd at && ln -s ../speaker ../rows.jsonl . && { %s; } && "
	                   "printf '%s' | $F config && { %s; }",
	                *before ? before : ":", answers, *after ? after : ":");
	struct result r = run(command);

	mem_free(command);
	return r;
}

/* The same on a terminal, where the answers are typed in advance: *out is what the terminal shows. */
static int ask_terminal(struct str *out, const char *before, const char *answers)
{
	char *command =
	        mem_printf("cd '%s' && rm -rf at && mkdir at && cd at && ln -s ../speaker ../rows.jsonl . && "
	                   "{ %s; } && '%s' config",
	                dir, *before ? before : ":", getenv("FERRY_BINARY"));
	char part[4096];
	int terminal, status;
	ssize_t len;
	pid_t pid = forkpty(&terminal, NULL, NULL, NULL);

	if (pid < 0) { /* a chroot without /dev/pts */
		print_message("SKIPPED test_cli_ask: no pseudo terminals here\n");
		skip();
	}
	if (!pid) {
		execl("/bin/sh", "sh", "-c", command, NULL);
		_exit(99);
	}
	assert_int_equal(write(terminal, answers, strlen(answers)), strlen(answers));
	while ((len = read(terminal, part, sizeof(part) - 1)) > 0) {
		part[len] = 0;
		str_add(out, part);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	close(terminal);
	mem_free(command);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Words in the output, separated by |; those with ! are not there. */
static void assert_asked(
        const char *before, const char *answers, const char *after, int code, const char *words)
{
	struct result r = ask(before, answers, after);
	char *both = mem_printf("%s%s", r.out, r.err), *list = mem_strdup(words), *rest = list, *word;

	if (r.code != code)
		fail_msg("%s: code %d\n%s", answers, r.code, both);
	while ((word = strsep(&rest, "|")))
		if ((strstr(both, word + (*word == '!')) != NULL) == (*word == '!'))
			fail_msg("%s: \"%s\" in\n%s", answers, word, both);
	mem_free(both);
	mem_free(list);
	result_free(&r);
}

/* Only defaults: the first model and rows of the directory. The file trains. */
static void test_defaults(void **state)
{
	(void)state;
	assert_asked("", "\\n\\n\\n\\n\\n\\n\\n",
	        "cat run.yaml; $F plan run.yaml; $F train run.yaml && test -e out/model/config.json", 0,
	        "[speaker]: |llama, |[rows.jsonl]: |3 rows of prompt_completion; the first has |[64]: "
	        "|adapter  |all      | of host memory; this process may use |[all]: |[1]: |[out]: "
	        "|[run.yaml]: "
	        "|wrote run.yaml. |ferry plan run.yaml\n|ferry train run.yaml\n|model: speaker |"
	        "data: rows.jsonl |max_length: 64 |num_train_epochs: 1 |learning_rate: 2e-05 |"
	        "gradient_accumulation_steps: 1 |output_dir: out |done: out/model|!lora_rank: ");
}

static void test_adapter(void **state)
{
	(void)state;
	assert_asked("", MODEL DATA "32\nadapter\n2.5\nresults/here\nmine\n",
	        "$F config mine.yaml; $F train mine.yaml && test -d results/here/adapter", 0,
	        "wrote mine.yaml. |lora_rank: 16 |lora_alpha: auto |learning_rate: 0.0002 |num_train_epochs: "
	        "2.5 "
	        "|max_length: 32 |output_dir: results/here |mine.yaml:5");
}

/* Pairs of answers are found, and want other settings. */
static void test_pairs(void **state)
{
	(void)state;
	assert_asked("printf '{\"prompt\":\"the\",\"chosen\":\" sea\",\"rejected\":\" old ship\"}\\n' > "
	             "pairs.jsonl",
	        MODEL "pairs.jsonl\n\nadapter\n\n\n\n",
	        "cat run.yaml; $F train run.yaml && test -e out/reference.safetensors", 0,
	        "1 pair of preference; |wrote run.yaml. |preference_loss: sigmoid |learning_rate: 1e-05 "
	        "|loss 0.6931");
}

/* Each wrong answer is explained, and the question comes again. */
static void test_wrong_answers(void **state)
{
	static const struct {
		const char *before, *answers, *says;
	} rows[] = {
	        {"", "nowhere/at/all.bin\n" MODEL DATA "\n\n\n\n\n",
	                "model=nowhere/at/all.bin: no such file"},
	        {"", "org/name\n" MODEL DATA "\n\n\n\n\n", "hf download org/name"},
	        {"mkdir none", "none\n" MODEL DATA "\n\n\n\n\n", "model=none has no config.json"},
	        {"mkdir odd; printf '{\"model_type\":\"t5\"}' > odd/config.json",
	                "odd\n" MODEL DATA "\n\n\n\n\n", "t5"},
	        {"mkdir odd; printf '{\"mod' > odd/config.json", "odd\n" MODEL DATA "\n\n\n\n\n",
	                "odd/config.json"},
	        {"mkdir odd; cp speaker/config.json odd", "odd\n" MODEL DATA "\n\n\n\n\n", "odd"},
	        {"", MODEL "none.jsonl\n" DATA "\n\n\n\n\n", "data=none.jsonl: no such file"},
	        {": > empty.jsonl", MODEL "empty.jsonl\n" DATA "\n\n\n\n\n", "empty.jsonl"},
	        {"printf '{\"prompt\": \"a\", \"comp' > half.jsonl", MODEL "half.jsonl\n" DATA "\n\n\n\n\n",
	                "half.jsonl:1"},
	        {"printf '{\"x\": 1}\\n' > x.jsonl", MODEL "x.jsonl\n" DATA "\n\n\n\n\n", "x.jsonl"},
	        {"", MODEL DATA "many\n32\n\n\n\n\n", "max_length=many is not a whole number"},
	        {"", MODEL DATA "-3\n32\n\n\n\n\n", "max_length=-3 must be between"},
	        {"", MODEL DATA "nan\n32\n\n\n\n\n", "max_length=nan is not"},
	        {"", MODEL DATA "\nsome\nall\n\n\n\n", "write all or adapter"},
	        {"", MODEL DATA "\n\nnan\n1\n\n\n", "num_train_epochs=nan is not a number"},
	        {"", MODEL DATA "\n\n0\n1\n\n\n", "num_train_epochs=0 trains nothing"},
	        {"", MODEL DATA "\n\n1e99\n1\n\n\n", "num_train_epochs=1e99 must be"},
	        {"mkdir full; : > full/x", MODEL DATA "\n\n\nfull\n\n\n", "output_dir=full is not empty"},
	        {": > file", MODEL DATA "\n\n\nfile\n\n\n", "output_dir=file"},
	        {"", MODEL DATA "\n\n\n\nno/such/run.yaml\n\n", "no/such/run.yaml: cannot create"},
	        {"mkdir x.yaml", MODEL DATA "\n\n\n\nx\n\n", "x.yaml is not a file"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		char *words = mem_printf("%s|answer |no file was written|!wrote run.yaml", rows[i].says);
		struct str out = {0};

		assert_asked(
		        rows[i].before, rows[i].answers, "", 2, words); /* later answers are not shifted */
		assert_int_equal(ask_terminal(&out, rows[i].before, rows[i].answers), 0);
		if (!strstr(out.data, rows[i].says) || !strstr(out.data, "wrote run.yaml"))
			fail_msg("%s: \"%s\" in %s", rows[i].answers, rows[i].says, out.data);
		str_free(&out);
		mem_free(words);
	}
}

/* Rows of chats for a model without a template: the built-in ones that the tokenizer can end are offered,
 * and one that it cannot is refused. */
static void test_template(void **state)
{
	static const char chats[] = "printf '{\"messages\":[{\"role\":\"user\",\"content\":\"Who?\"},"
	                            "{\"role\":\"assistant\",\"content\":\"I.\"}]}\\n' > chats.jsonl";
	struct str out = {0};

	(void)state;
	assert_asked(chats, MODEL "chats.jsonl\n\n\n\n\n\n\n", "cat run.yaml; $F train run.yaml", 0,
	        "no chat template; its tokenizer works with llama2, mistral, |!works with chatml|Chat "
	        "template, one of "
	        "these or a file [llama2]: llama2|1 row of messages; |chat_template: llama2 |done: "
	        "out/model");
	assert_asked(
	        chats, MODEL "chats.jsonl\nzephyr\n\n\n\n\n\n", "cat run.yaml", 0, "chat_template: zephyr ");
	assert_asked(chats, MODEL "chats.jsonl\nchatml\n\n\n\n\n\n", "", 2,
	        "answer 3: |the template chatml writes no end-of-turn token|no file was written");
	assert_int_equal(ask_terminal(&out, chats, MODEL "chats.jsonl\nchatml\nmine\nvicuna\n\n\n\n\n\n"), 0);
	assert_non_null(strstr(out.data, "the template chatml writes no end-of-turn token"));
	assert_non_null(strstr(out.data, "chat_template=mine is not a file"));
	assert_non_null(strstr(out.data, "wrote run.yaml"));
	str_free(&out);
	/* other rows, and a model with its own template, need none */
	assert_asked("", MODEL DATA "\n\n\n\n\n", "cat run.yaml", 0,
	        "wrote run.yaml|!Chat template|!chat_template");
	assert_asked("cp -r speaker/ own; printf '{%% for m in messages %%}{{ m.content }}{{ eos_token }}{%% "
	             "endfor %%}' "
	             "> own/chat_template.jinja",
	        "own\nrows.jsonl\n\n\n\n\n\n", "", 0, "wrote run.yaml|!Chat template");
}

/* Wherever the answers end there is no file, and the message says so. */
static void test_end_of_input(void **state)
{
	static const char *const answers[] = {"", "\n", MODEL, MODEL DATA, MODEL DATA "32", MODEL DATA "\n\n",
	        MODEL DATA "\n\n\n", MODEL DATA "\n\n\n\n"};

	(void)state;
	for (size_t i = 0; i < sizeof(answers) / sizeof(*answers); i++) {
		struct result r = ask("", answers[i], "");

		if (r.code != 2 || !strstr(r.err, "the answers ended, and no file was written"))
			fail_msg("%s: %d %s%s", answers[i], r.code, r.out, r.err);
		result_free(&r);
		r = run("ls at");
		assert_string_equal(r.out, "rows.jsonl\nspeaker\n");
		result_free(&r);
	}
}

/* Without a model or rows here, an empty answer is none. */
static void test_nothing_here(void **state)
{
	struct str out = {0};

	(void)state;
	assert_asked(
	        "rm speaker rows.jsonl", "\n\n", "", 2, "weights: |answer 1 is empty; no file was written");
	assert_int_equal(
	        ask_terminal(&out, "rm speaker rows.jsonl", "\n\n../speaker\n\n../rows.jsonl\n\n\n\n\n\n\n"),
	        0);
	assert_non_null(strstr(out.data, "write an answer; Ctrl-C ends this"));
	assert_non_null(strstr(out.data, "wrote run.yaml"));
	str_free(&out);
}

/* A file that exists stays, unless the answer is yes. What is proposed does not exist. */
static void test_existing_file(void **state)
{
	struct str out = {0};

	(void)state;
	assert_asked("echo old > run.yaml; echo old > out", MODEL DATA "\n\n\n\n\n", "cat run.yaml", 0,
	        "[out-2]: |[run-2.yaml]: |wrote run-2.yaml|old\n");
	assert_asked("echo old > run.yaml", MODEL DATA "\n\n\n\nrun.yaml\n\nrun\n", "", 2,
	        "run.yaml exists. Replace it, yes or no [no]: |answer 8: run.yaml stays as it is; name "
	        "another file");
	assert_int_equal(
	        ask_terminal(&out, "echo old > run.yaml", MODEL DATA "\n\n\n\nrun.yaml\n\nrun\nno\nother\n"),
	        0);
	assert_non_null(strstr(out.data, "run.yaml stays as it is; name another file"));
	assert_non_null(strstr(out.data, "wrote other.yaml"));
	str_free(&out);
	assert_asked("echo old > run.yaml", MODEL DATA "\n\n\n\nrun.yaml\nyes\n", "cat run.yaml", 0,
	        "wrote run.yaml|!old\n|model: speaker");
	assert_asked("echo old > run.yaml", MODEL DATA "\n\n\n\nrun.yaml\n", "", 2, "no file was written");
}

/* A place where nobody writes, not even root. */
static void test_unwritable(void **state)
{
	(void)state;
	assert_asked(
	        "", MODEL DATA "\n\n\n\n/proc/run.yaml\n", "", 2, "/proc/run.yaml: |no file was written");
}

/* Names with quotes, blanks and signs of YAML and of the shell. The commands that it prints work as they are.
 */
static void test_odd_names(void **state)
{
	static const char *const names[] = {
	        "it is \"a\" <b> & c", "# hash: x", "caf\xc3\xa9", "${model}", "a=b", "-x", "[y]", "~z"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		char *before = mem_printf("rm speaker; ln -s ../speaker ./'%s'; cp rows.jsonl ./'%s.jsonl'",
		        names[i], names[i]);
		char *answers = mem_printf(
		        "./%s\n%s.jsonl\n\n\n\n%s out\n%s\n", names[i], names[i], names[i], names[i]);

		assert_asked(before, answers,
		        "set -- *.yaml; $F train ./\"$1\" && $F config ./\"$1\" > again.yaml && "
		        "test -e *out/model/config.json && $F plan again.yaml",
		        0, "wrote |done: ");
		mem_free(before);
		mem_free(answers);
	}
}

/* The printed commands begin with the program's name, and the file's name is one word of them. */
static void test_commands_printed(void **state)
{
	(void)state;
	assert_asked("", MODEL DATA "\n\n\n\nit is=so\n", "", 0,
	        " plan './it is=so.yaml'\n| train './it is=so.yaml'\n");
	assert_asked("", MODEL DATA "\n\n\n\n-x\n", "", 0, " plan ./-x.yaml\n");
}

/* Bytes that are no text in YAML. */
static void test_not_text(void **state)
{
	(void)state;
	assert_asked("", MODEL DATA "\n\n\no\\377\n\n", "", 2, "answer 6: |is not UTF-8 at byte 1");
	assert_asked("", MODEL DATA "\n\n\no\\0x\n\n", "", 2, "answer 6 is empty");
}

/* The file that config prints for another trainer's file trains the same model, to the bit. */
static void test_same_run(void **state)
{
	struct result r;

	(void)state;
	put("ax.yml", "base_model: speaker\ndatasets:\n  - path: rows.jsonl\nsequence_len: "
	              "16\nmicro_batch_size: 2\n"
	              "batch_size: 4\nnum_epochs: 4\nlr_scheduler: cosine\nwarmup_steps: 1\nadapter: "
	              "lora\nlora_r: 4\n"
	              "lora_alpha: 8\nlora_target_modules: [q_proj, v_proj]\nsaves_per_epoch: 2\nseed: 7\n");
	r = run("$F config ax.yml > own.yaml && $F train ax.yml output_dir=a && $F train own.yaml "
	        "output_dir=b && "
	        "cmp a/model/model.safetensors b/model/model.safetensors && "
	        "cmp a/adapter/adapter_model.safetensors b/adapter/adapter_model.safetensors && "
	        "for d in a b; do grep -v '^#\\|^output_dir' $d/config.yaml > $d.txt; done && cmp a.txt "
	        "b.txt");
	if (r.code)
		fail_msg("%s%s", r.out, r.err);
	result_free(&r);
}

static int setup(void **state)
{
	int err = check_dir_make(state);
	struct result r;

	dir = *state;
	if (err)
		return err;
	put("words.json",
	        "{\"model_type\":\"llama\",\"vocab_size\":2000,\"hidden_size\":32,\"intermediate_size\":48,"
	        "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"max_position_embeddings\":128,"
	        "\"tie_word_embeddings\":true}");
	put("rows.jsonl", "{\"prompt\":\"The sea\",\"completion\":\" is "
	                  "wide\"}\n{\"prompt\":\"A\",\"completion\":\" b\"}\n"
	                  "{\"prompt\":\"One two three\",\"completion\":\" four five\"}\n");
	r = run("mkdir words && cp \"$FERRY_SOURCE/tests/golden/tokenizer/plain.json\" words/tokenizer.json "
	        "&& echo "
	        "'{\"eos_token\":\"<|endoftext|>\"}' > words/tokenizer_config.json && $F init "
	        "config=words.json "
	        "tokenizer=words output_dir=speaker");
	err = r.code;
	result_free(&r);
	return err;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_defaults),
	        cmocka_unit_test(test_adapter),
	        cmocka_unit_test(test_pairs),
	        cmocka_unit_test(test_wrong_answers),
	        cmocka_unit_test(test_template),
	        cmocka_unit_test(test_end_of_input),
	        cmocka_unit_test(test_nothing_here),
	        cmocka_unit_test(test_existing_file),
	        cmocka_unit_test(test_unwritable),
	        cmocka_unit_test(test_odd_names),
	        cmocka_unit_test(test_commands_printed),
	        cmocka_unit_test(test_not_text),
	        cmocka_unit_test(test_same_run),
	};

	return cmocka_run_group_tests(tests, setup, check_dir_remove);
}
