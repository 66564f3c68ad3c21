/* links: cli */
/* ferry config: the values that it shows, where each comes from, and the YAML and JSON that it prints. */
#include "cli/cli.h"
#include "tests/cli_program.h"
#include "tests/cli_round.h"

/* ---- origins ---- */

/* Files of each tool, with a key, its value, and its origin; Y is the file. */
static const struct {
	const char *yaml, *args, *key, *line;
} origins[] = {
        /* ferry's own words */
        {"lr: 1e-3\n", "", "learning_rate", "learning_rate: 0.001 # Y:1 (as lr)"},
        {"\nseed: 3\n", "", "seed", "seed: 3 # Y:2"},
        {"lr: 1e-3\n", "--lr 1e-4", "learning_rate", "learning_rate: 0.0001 # command line (as lr)"},
        {NULL, "--no-shuffle", "shuffle", "shuffle: off # command line"},
        {NULL, "lr=1 all=on", "max_length", "max_length: 1024 # default"},
        {NULL, "lr=1 all=on", "gradient_dtype", "gradient_dtype: auto # default"},
        {NULL, "lr=1", "max_length", NULL},
        {"seed: ${max_steps}\nmax_steps: 4\n", "", "seed", "seed: 4 # Y:1"},
        {"vram_budget: 12GiB\n", "", "vram_budget", "vram_budget: 12884901888 # Y:1"},
        {"freeze: ['a\\.b', c]\n", "", "freeze", "freeze: a\\.b|c # Y:1"},
        /* what follows from another key */
        {"cpu_offload: [params, activations]\n", "", "activations",
                "activations: offload # Y:1 (as cpu_offload)"},
        {"activations: offload\n", "cpu_offload=params", "cpu_offload",
                "cpu_offload: [params,activations] # command line"},
        {"warmup_steps: 5\n", "warmup_ratio=0.1", "warmup_steps", NULL},
        {"warmup_steps: 5\n", "warmup_ratio=0.1", "warmup_ratio", "warmup_ratio: 0.1 # command line"},
        {"resume: true\n", "", "resume_from_checkpoint", "resume_from_checkpoint: auto # Y:1 (as resume)"},
        {"resume: off\n", "", "resume_from_checkpoint", "resume_from_checkpoint: \"\" # Y:1 (as resume)"},
        {"dry_run: on\n", "", "dry_run", "dry_run: on # Y:1"},
        /* axolotl */
        {"base_model: m\ndatasets:\n  - path: a.jsonl\n    type: alpaca\n", "", "data",
                "data: a.jsonl # Y:3 (as datasets.0.path)"},
        {"base_model: m\nsequence_len: 5\nsaves_per_epoch: 2\n", "", "save_steps",
                "save_steps: 0.5 # Y:3 (as saves_per_epoch)"},
        {"base_model: m\nsequence_len: 5\nsaves_per_epoch: 1\n", "", "save_steps",
                "save_steps: epoch # Y:3 (as saves_per_epoch)"},
        {"sequence_len: 5\nmicro_batch_size: 2\nbatch_size: 8\n", "", "gradient_accumulation_steps",
                "gradient_accumulation_steps: 4 # Y:3 (as batch_size)"},
        {"adapter: lora\nsequence_len: 5\nlora_r: 4\nlora_alpha: 8\nlora_target_linear: true\n", "",
                "lora_target_modules", "lora_target_modules: all-linear # Y:5 (as lora_target_linear)"},
        {"sequence_len: 5\nlora_r: 4\n", "", "lora_rank", "lora_rank: off # Y:2 (as lora_r)"},
        /* LLaMA-Factory */
        {"stage: pt\nfinetuning_type: full\n", "", "packing", "packing: bfd # Y:1 (as stage)"},
        {"stage: pt\nfinetuning_type: full\n", "", "long_rows", "long_rows: split # Y:1 (as stage)"},
        {"stage: sft\nfinetuning_type: lora\n", "", "lora_rank", "lora_rank: 8 # Y:2 (as finetuning_type)"},
        {"stage: sft\nfinetuning_type: full\n", "", "alpaca_form", "alpaca_form: chat # Y (as template)"},
        /* torchtune */
        {"optimizer._component_: torch.optim.AdamW\noptimizer:\n  betas: [0.8, 0.9]\n", "", "adam_beta2",
                "adam_beta2: 0.9 # Y:3 (as optimizer.betas)"},
        {"checkpointer:\n  checkpoint_dir: m\ntokenizer:\n  path: /t/x.model\n", "", "tokenizer",
                "tokenizer: /t/x.model # Y:4 (as tokenizer.path)"},
        /* transformers, TRL */
        {"logging_dir: l\nsave_strategy: epoch\n", "", "save_steps",
                "save_steps: epoch # Y:2 (as save_strategy)"},
        {"logging_dir: l\nsave_strategy: 'no'\n", "", "save_only_model",
                "save_only_model: on # Y:2 (as save_strategy)"},
        {"logging_dir: l\nlogging_strategy: 'no'\nlogging_steps: 3\n", "", "logging_steps",
                "logging_steps: off # Y:2 (as logging_strategy)"},
        {"logging_dir: l\nsave_strategy: epoch\n", "save_steps=7", "save_steps",
                "save_steps: 7 # command line"},
        {"use_peft: true\nlora_target_modules: q_proj\n", "", "lora_rank",
                "lora_rank: 16 # Y:1 (as use_peft)"},
        /* accelerate, DeepSpeed's words */
        {"distributed_type: FSDP\nfsdp_config:\n  fsdp_offload_params: true\n", "", "cpu_offload",
                "cpu_offload: on # Y:3 (as fsdp_config.fsdp_offload_params)"},
        {"distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n  offload_param_device: cpu\n", "",
                "cpu_offload", "cpu_offload: params # Y:4 (as deepspeed_config.offload_param_device)"},
};

/* The line of a key, with one blank for several, and Y for the file. NULL: there is none. */
static const char *line_of(const char *text, const char *key)
{
	static char line[400];
	size_t len = strlen(key), to = 0;

	for (const char *at = text; at && *at; at = strchr(at, '\n'), at += at != NULL) {
		if (strncmp(at, key, len) != 0 || at[len] != ':')
			continue;
		for (const char *end = at + strcspn(at, "\n"); at < end && to < sizeof(line) - 1; at++)
			if (!strncmp(at, yaml_path, strlen(yaml_path))) {
				line[to++] = 'Y';
				at += strlen(yaml_path) - 1;
			} else if (*at != ' ' || !to || line[to - 1] != ' ') {
				line[to++] = *at;
			}
		line[to] = 0;
		return line;
	}
	return NULL;
}

static void test_origins(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(origins) / sizeof(*origins); i++) {
		struct config c;
		struct str text = {0};
		const char *line;
		int err = parse(&c, VERB_CONFIG, origins[i].yaml, origins[i].args);

		if (err)
			fail_msg("%s: %s", origins[i].yaml ? origins[i].yaml : "", err_text());
		config_write_origins(&text, &c);
		line = line_of(text.data, origins[i].key);
		if (!origins[i].line && line)
			fail_msg("%s is shown: %s", origins[i].key, line);
		if (origins[i].line && (!line || strcmp(line, origins[i].line)))
			fail_msg("expected \"%s\" in:\n%s", origins[i].line, text.data);
		str_free(&text);
		config_free(&c);
		if (!strstr(origins[i].args, "all="))
			assert_round_trip(origins[i].yaml, origins[i].args);
	}
}

/* Settings of other verbs are named; the keys that are not shown are counted. */
static void test_what_is_not_shown(void **state)
{
	struct config c;
	struct str some = {0}, all = {0};
	int hidden = 0;

	(void)state;
	check_ok(parse(&c, VERB_CONFIG, "lr: 1\nper_token: on\nseed: 3\nshow_tokens: on\n", ""));
	config_write_origins(&some, &c);
	assert_non_null(strstr(some.data, "# not keys of ferry train: per_token, /tmp/"));
	assert_non_null(strstr(some.data, "; show_tokens, /tmp/"));
	for (int i = 0; i < config_key_count; i++)
		hidden += (config_keys[i].verbs >> VERB_TRAIN & 1) && strcmp(config_keys[i].name, "json") &&
		          strcmp(config_keys[i].name, "help");
	assert_true(hidden > 100);
	assert_int_equal(atoi(strstr(some.data, "\n# ") ? strrchr(some.data, '#') + 2 : ""), hidden - 2);
	c.show_all = 1;
	config_write_origins(&all, &c);
	assert_null(strstr(all.data, "other keys"));
	assert_non_null(strstr(all.data, "\n\n# optimizer\nlearning_rate: 1 "));
	assert_null(line_of(all.data, "json"));
	str_free(&some);
	str_free(&all);
	config_free(&c);
}

/* ---- odd texts ---- */

/* Values that YAML or ferry would read as something else. */
static void test_odd_values(void **state)
{
	static const char *const values[] = {"it's", "a \"b\" <c> & d", "# no comment", "a # b", "a: b",
	        "null", "~", "~/x", "-", "- a", "[a]", "{a}", "a,b", "${model}", "\\${model}", "*x", "&x",
	        "!x", "%x", "@x", "`x`", "a\nb", "a\tb", "a\\b", "\xc3\xa9\xe2\x80\xa8", "trailing ",
	        " leading", "?", "a:", "|", ">", "1e3", "off", "true", "\xf0\x9f\x90\xa6"};

	(void)state;
	for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
		char *word = mem_printf("sample_prompt=%s", values[i]), *words[] = {word};
		struct config c = {0}, trained = {0};

		check_ok(config_parse(&c, VERB_CONFIG, 1, words));
		check_ok(config_parse(&trained, VERB_TRAIN, 1, words));
		assert_string_equal(trained.sample_prompt, values[i]);
		assert_taken_back(&trained, &c);
		config_free(&trained);
		config_free(&c);
		mem_free(word);
	}
}

/* ---- the program ---- */

/* Files with odd names: the comment stays one that YAML takes. */
static void test_odd_files(void **state)
{
	static const char *const names[] = {"a'b <c>&.yaml", "two\nlines.yaml", "caf\xc3\xa9.yaml",
	        "bad\xff.yaml", "x # y: z.yaml", "\xe2\x80\xa8.yaml"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		char *path = file_join(dir, names[i]);
		struct str word = {0}, command = {0};
		struct result r;

		check_ok(file_write_all(path, "lr: 1\nseed: 5\n", 14));
		cli_add_word(&word, names[i]);
		str_printf(&command, "$F config %s > shown.yaml && $F config shown.yaml seed=6 --json",
		        word.data);
		r = run(command.data);
		if (r.code)
			fail_msg("%s: %d %s%s", names[i], r.code, r.out, r.err);
		assert_non_null(strstr(r.out, "\"origin\": \"shown.yaml:"));
		assert_non_null(strstr(
		        r.out, "\"seed\": {\"value\": 6, \"origin\": \"command line\", \"as\": null}"));
		result_free(&r);
		unlink(path);
		mem_free(path);
		str_free(&word);
		str_free(&command);
	}
}

static void test_json(void **state)
{
	json_t *root, *one;

	(void)state;
	put("run.yaml",
	        "num_epochs: 3\nsave_steps: epoch\nshuffle: off\nvram_budget: 1KiB\neval_steps: 0.25\n"
	        "model: M\nresume: off\ncpu_offload: [params, optimizer]\nval_set_size: 10\n");
	root = run_json("$F config run.yaml max_length=off --json");
	assert_int_equal(json_object_size(root), 10);
	one = json_object_get(root, "num_train_epochs");
	assert_true(json_number_value(json_object_get(one, "value")) == 3);
	assert_string_equal(text_of(one, "origin"), "run.yaml:1");
	assert_string_equal(text_of(one, "as"), "num_epochs");
	assert_string_equal(text_of(json_object_get(root, "save_steps"), "value"), "epoch");
	assert_true(json_is_null(json_object_get(json_object_get(root, "save_steps"), "as")));
	assert_true(json_is_false(json_object_get(json_object_get(root, "shuffle"), "value")));
	assert_int_equal(
	        json_integer_value(json_object_get(json_object_get(root, "vram_budget"), "value")), 1024);
	assert_true(json_real_value(json_object_get(json_object_get(root, "eval_steps"), "value")) == 0.25);
	assert_string_equal(text_of(json_object_get(root, "max_length"), "value"), "off");
	assert_string_equal(text_of(json_object_get(root, "max_length"), "origin"), "command line");
	assert_true(json_is_null(json_object_get(json_object_get(root, "resume_from_checkpoint"), "value")));
	assert_string_equal(text_of(json_object_get(root, "cpu_offload"), "value"), "params,optimizer");
	json_decref(root);
	root = run_json("$F config run.yaml all=on --json");
	assert_true(json_object_size(root) > 100);
	assert_string_equal(text_of(json_object_get(root, "packing"), "origin"), "default");
	json_decref(root);
}

/* stdout is the YAML alone; it means the same from elsewhere; examples are taken back. */
static void test_streams_and_paths(void **state)
{
	static const char *const good[] = {
	        "mkdir -p sub data && echo '{\"text\":\"x\"}' > sub/rows.jsonl && printf 'base_model: "
	        "m\\nsequence_len: 9\\noutput_dir: o\\nwandb_project: w\\ndatasets:\\n  - path: "
	        "rows.jsonl\\n    "
	        "type: completion\\n' > sub/ax.yml && $F config sub/ax.yml > b.yaml 2> said && grep -q "
	        "'axolotl' "
	        "said && grep -q 'wandb_project' said && ! grep -q 'reading' b.yaml && grep -q '^data: "
	        "sub/rows.jsonl ' b.yaml",
	        "$F config b.yaml > c.yaml 2> said && ! test -s said && sed 's/ *#.*//' b.yaml > b && sed "
	        "'s/ "
	        "*#.*//' c.yaml > c && cmp b c",
	        "for f in \"$FERRY_SOURCE\"/examples/demo/*.yaml; do $F config \"$f\" > d.yaml && $F config "
	        "d.yaml > e.yaml && sed 's/ *#.*//' d.yaml > d && sed 's/ *#.*//' e.yaml > e && cmp d e || "
	        "exit "
	        "9; done",
	        "printf '{\"rows\": {\"file_name\": \"r.json\", \"columns\": {\"prompt\": \"q\", "
	        "\"response\": "
	        "\"a\"}}}' > data/dataset_info.json && printf 'stage: sft\\nfinetuning_type: full\\ndataset: "
	        "rows\\ncutoff_len: 9\\n' > lf.yml && $F config lf.yml > f.yaml 2> said && grep -q '^data: "
	        "data/r.json  *# lf.yml:3 (as dataset)$' f.yaml && grep -q '^field_output: a  *# "
	        "data/dataset_info.json (as response)$' f.yaml && grep -q '^dataset_info: data  *# lf.yml "
	        "(as "
	        "dataset_dir)$' f.yaml && echo '[]' > data/r.json && $F config f.yaml > g.yaml && sed 's/ "
	        "*#.*//' "
	        "f.yaml > f && sed 's/ *#.*//' g.yaml > g && cmp f g"};
	static const struct {
		const char *command, *text;
		int code;
	} bad[] = {
	        {"$F config none.yaml", "none.yaml: no such file", 2},
	        {": > empty.yaml; $F config empty.yaml", "empty.yaml is empty: it sets no key", 0},
	        {"printf 'lr: 1\\nlr' > half.yaml; $F config half.yaml", "half.yaml:", 2},
	        {"printf 'a\\0b' > odd.yaml; $F config odd.yaml", "odd.yaml:", 2},
	        {"$F config lr=nan", "lr=nan is not a number", 2},
	        {"$F config lr=1e99999", "lr=1e99999 is not a number", 2},
	        {"$F config eval_steps=5", "eval_steps=5 needs rows to evaluate on", 2},
	        {"$F config mixed_precision=fp16", "mixed_precision=fp16 is not supported yet", 2},
	        {"$F config lora_target_modules=", "lora_target_modules= names no module", 2},
	        {"$F train lora_target_modules= model=m data=d output_dir=o", "names no module", 2},
	        {"$F config per_token=on", "per_token is not a key of ferry train", 2},
	        {"$F config lrr=1", "did you mean", 2},
	        {"$F config lr=1 > /dev/full", "cannot write to stdout", 1},
	        {"$F train lr=1 all=on", "all is not a key of ferry train", 2},
	        {"mkdir -p dir.yaml; $F config dir.yaml", "dir.yaml is a directory", 2},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		struct result r = run(good[i]);

		if (r.code)
			fail_msg("%s: %d\n%s%s", good[i], r.code, r.out, r.err);
		result_free(&r);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct result r = run(bad[i].command);

		if (r.code != bad[i].code || !strstr(r.err, bad[i].text))
			fail_msg("%s: %d\n%s%s", bad[i].command, r.code, r.out, r.err);
		result_free(&r);
	}
}

static int setup(void **state)
{
	int err = check_dir_make(state);

	dir = *state;
	return err;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_origins),
	        cmocka_unit_test(test_what_is_not_shown),
	        cmocka_unit_test(test_odd_values),
	        cmocka_unit_test(test_odd_files),
	        cmocka_unit_test(test_json),
	        cmocka_unit_test(test_streams_and_paths),
	};
	int fd = mkstemps(yaml_path, 5), failed;

	if (fd < 0)
		return 1;
	close(fd);
	log_set_sink(log_take, NULL);
	failed = cmocka_run_group_tests(tests, setup, check_dir_remove);
	unlink(yaml_path);
	return failed;
}
