/* links: cli */
/* Keys from the command line and from files: values, errors with their places, help and docs. */
#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "config/config.h"
#include "config/table.h"
#include "optim/schedule.h"
#include "tests/cli_round.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- good settings: values of keys afterwards ---- */

static const struct {
	const char *yaml, *args, *key, *text;
} good[] = {
        {NULL, "", "learning_rate", "2e-05"},
        {NULL, "", "max_length", "1024"},
        {NULL, "", "cpu_offload", "auto"},
        {NULL, "", "threads", "auto"},
        {NULL, "", "save_total_limit", "2"},
        {NULL, "", "gradient_dtype", "bf16"},
        {NULL, "compute_dtype=fp32", "gradient_dtype", "fp32"},
        {NULL, "compute_dtype=fp32", "export_dtype", "fp32"},
        {NULL, "", "per_device_eval_batch_size", "1"},
        {NULL, "micro_batch_size=4", "per_device_eval_batch_size", "4"},
        /* grammar */
        {NULL, "lr=1e-4", "learning_rate", "0.0001"},
        {NULL, "--lr 1e-4", "learning_rate", "0.0001"},
        {NULL, "--lr=1e-4", "learning_rate", "0.0001"},
        {NULL, "--learning-rate 1e-4", "learning_rate", "0.0001"},
        {NULL, "Learning-Rate=.5", "learning_rate", "0.5"},
        {NULL, "--max_steps -1", "max_steps", "-1"},
        {NULL, "--packing", "packing", "bfd"},
        {NULL, "--packing --lr 1", "packing", "bfd"},
        {NULL, "--packing off", "packing", "off"},
        {NULL, "--no-shuffle", "shuffle", "off"},
        {NULL, "--shuffle off", "shuffle", "off"},
        {NULL, "--shuffle --lr 1", "shuffle", "on"},
        {NULL, "--train-on-inputs YES", "train_on_inputs", "on"},
        {NULL, "--train-on-inputs prompts", "train_on_inputs", "prompts"},
        {NULL, "--train-on-inputs chats,prompts", "train_on_inputs", "on"},
        {NULL, "--train-on-inputs lr=1", "train_on_inputs", "on"},
        {NULL, "--no-train-on-inputs", "train_on_inputs", "off"},
        {NULL, "--no-packing", "packing", "off"},
        {NULL, "sample_prompt=a=b", "sample_prompt", "a=b"},
        /* numbers */
        {NULL, "max_length=2k", "max_length", "2000"},
        {NULL, "max_samples=1e3", "max_samples", "1000"},
        {NULL, "numel_to_wrap=1e8", "min_num_params", "100000000"},
        {NULL, "min_num_params=2M", "min_num_params", "2000000"},
        {NULL, "seed=9000000000000000", "seed", "9000000000000000"},
        {NULL, "vram_budget=24GiB", "vram_budget", "25769803776"},
        {NULL, "vram_budget=1.5KiB", "vram_budget", "1536B"},
        {NULL, "ram_budget=64gb", "ram_budget", "64000000000"},
        {NULL, "vram_budget=auto", "vram_budget", "auto"},
        {NULL, "max_length=off", "max_length", "off"},
        {NULL, "save_steps=0.25", "save_steps", "0.25"},
        {NULL, "save_steps=100", "save_steps", "100"},
        {NULL, "save_total_limit=all", "save_total_limit", "all"},
        {NULL, "warmup_ratio=0.1", "warmup_ratio", "0.1"},
        {"warmup_steps: 5\n", "warmup_ratio=0.1", "warmup_steps", "off"},
        {"warmup_steps: 5\n", "warmup_ratio=0", "warmup_steps", "off"},
        {"warmup_ratio: 0.1\n", "warmup_steps=0", "warmup_ratio", "0"},
        {"warmup_ratio: 0.1\nwarmup_steps: 5\n", "", "warmup_ratio", "0"},
        {NULL, "warmup_ratio=0.1 warmup_steps=7", "warmup_steps", "7"},
        {NULL, "warmup_steps=0.03", "warmup_steps", "0.03"},
        {NULL, "max_grad_norm=off", "max_grad_norm", "off"},
        {NULL, "num_epochs=0.5", "num_train_epochs", "0.5"},
        {NULL, "lr=1 learning_rate=2", "learning_rate", "2"},
        {NULL, "max_steps=10000000000", "max_steps", "10000000000"},
        {"output_dir: ${model}/out\nmodel: m${seed}\nseed: 3\n", "", "output_dir", "m3/out"},
        /* words */
        {NULL, "lr_scheduler=COSINE", "lr_scheduler_type", "cosine"},
        {NULL, "sharding=zero2", "sharding_strategy", "SHARD_GRAD_OP"},
        {NULL, "sharding_strategy=5", "sharding_strategy", "HYBRID_SHARD_ZERO2"},
        {NULL, "mixed_precision=no", "compute_dtype", "fp32"},
        {NULL, "bf16=true", "compute_dtype", "bf16"},
        {NULL, "--bf16", "compute_dtype", "bf16"},
        {NULL, "device=cpu", "device", "host"},
        {NULL, "--bwd-prefetch off", "backward_prefetch", "NO_PREFETCH"},
        {NULL, "--activations in-memory", "activations", "keep"},
        {NULL, "--activations checkpoint", "activations", "recompute"},
        {NULL, "--gradient_checkpointing", "activations", "recompute"},
        {NULL, "gradient_checkpointing=false", "activations", "keep"},
        {NULL, "cpu_offload=on", "cpu_offload", "on"},
        {NULL, "--cpu-offload", "cpu_offload", "on"},
        {NULL, "--cpu-offload off", "cpu_offload", "off"},
        {NULL, "cpu_offload=optimizer", "cpu_offload", "optimizer"},
        {NULL, "cpu_offload=params,optimizer", "cpu_offload", "params,optimizer"},
        {NULL, "cpu_offload=[params,gradients,optimizer]", "cpu_offload", "on"},
        {NULL, "cpu_offload=params,activations", "activations", "offload"},
        {NULL, "cpu_offload=on activations=offload", "cpu_offload", "params,gradients,optimizer,activations"},
        {NULL, "activations=offload", "cpu_offload", "auto"},
        {NULL, "resume_from_checkpoint=true", "resume_from_checkpoint", "auto"},
        {NULL, "resume_from_checkpoint=off", "resume_from_checkpoint", ""},
        {NULL, "resume=out/checkpoint-000500", "resume_from_checkpoint", "out/checkpoint-000500"},
        /* files */
        {"learning_rate: 2e-5\n", "", "learning_rate", "2e-05"},
        {"learning_rate: '2e-5'\n", "", "learning_rate", "2e-05"},
        {"lr: 1e-3\n", "lr=1e-4", "learning_rate", "0.0001"},
        {"learning_rate: null\n", "", "learning_rate", "2e-05"},
        {"cpu_offload: [params, optimizer]\n", "", "cpu_offload", "params,optimizer"},
        {"per_token: on\n", "", "per_token", "on"}, /* of another verb: fine in a file */
        {"bf16: true\nmixed_precision: bf16\n", "", "compute_dtype", "bf16"},
        {"model: 'my model'\n", "", "model", "my model"},
        {"# nothing\n", "", "learning_rate", "2e-05"},
};

static void test_good(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		struct config c;
		int err = parse(&c, VERB_TRAIN, good[i].yaml, good[i].args);

		if (err || strcmp(config_text(&c, good[i].key), good[i].text))
			print_error("case %zu: %s %s: %s=\"%s\" %s\n", i, good[i].yaml ? good[i].yaml : "",
			        good[i].args, good[i].key, err ? "" : config_text(&c, good[i].key),
			        err ? err_text() : "");
		assert_int_equal(err, 0);
		assert_string_equal(config_text(&c, good[i].key), good[i].text);
		assert_round_trip(good[i].yaml, good[i].args);
		config_free(&c);
	}
}

/* ---- bad settings: the message ---- */

static const struct {
	const char *yaml, *args, *text;
} bad[] = {
        {NULL, "learning_rte=1", "unknown key \"learning_rte\"; did you mean learning_rate?"},
        {NULL, "--max-lenght 5", "unknown key \"max-lenght\"; did you mean max_length?"},
        {NULL, "bogus_thing=1", "unknown key \"bogus_thing\"; see ferry train --help"},
        {"lr: 1\nlearning_rte: 1\n", "", "YAML:2: unknown key \"learning_rte\"; did you mean learning_rate?"},
        {"learning_rte: 1\nseeed: 2\nzzz: 3\n", "",
                "YAML: unknown keys: learning_rte (line 1; did you mean learning_rate?), seeed (line 2; did "
                "you "
                "mean seed?), zzz (line 3); see ferry train --help"},
        {"learning_rate: fast\n", "", "YAML:1: learning_rate=fast is not a number"},
        {"lr: nan\n", "", "YAML:1: lr=nan is not a number"},
        {"lr: 0x10\n", "", "YAML:1: lr=0x10 is not a number"},
        {"lr: -1\n", "", "YAML:1: lr=-1 must be between 0 and 1000"},
        {NULL, "lr=1e-4x", "lr=1e-4x is not a number"},
        {NULL, "lr=", "lr= is not a number"},
        {NULL, "seed=1.5", "seed=1.5 is not a whole number"},
        {NULL, "seed=-1", "seed=-1 must be at least 0"},
        {NULL, "max_length=-1", "max_length=-1 must be between 0 and 16777216"},
        {NULL, "max_length=5q", "max_length=5q has the unknown unit \"q\"; supported: k M G T"},
        {NULL, "vram_budget=24G",
                "vram_budget=24G has the unknown unit \"G\"; supported: KiB MiB GiB TiB KB MB GB TB"},
        {NULL, "save_steps=1.5",
                "save_steps=1.5 is neither a number of steps nor a fraction of the run between 0 and 1"},
        {NULL, "shuffle=maybe", "shuffle=maybe is neither on nor off"},
        {NULL, "lr_scheduler=sine",
                "lr_scheduler=sine is not supported; supported: linear, cosine, constant, "
                "constant_with_warmup, "
                "cosine_with_min_lr, polynomial"},
        {NULL, "cpu_offload=params,foo",
                "cpu_offload=params,foo is not supported; supported: auto, on, off, or a list of params, "
                "gradients, "
                "optimizer, "
                "activations"},
        {NULL, "cpu_offload=on,off",
                "cpu_offload=on,off is not supported; supported: auto, on, off, or a list of params, "
                "gradients, "
                "optimizer, "
                "activations"},
        {NULL, "cpu_offload=activations activations=keep",
                "cpu_offload names activations, but activations=keep; drop one of them"},
        {"lr: 1\nlearning_rate: 2\n", "",
                "YAML:2: learning_rate was already set on line 1 by lr, to another value; keep one of them"},
        {"lr: 1\nlr: 1\n", "", "YAML:2: \"lr\" was already set on line 1; keep one of them"},
        {"output_dir: [a, b]\n", "", "YAML:1: output_dir takes one value, not a list"},
        {"lr: ${x}\n", "", "YAML:1: lr: ${x} refers to no key of this file; write the value"},
        {"model: {a: b}\n", "", "YAML:1: unknown key \"model.a\"; see ferry train --help"},
        {NULL, "--lr", "--lr needs a value"},
        {NULL, "--lr --", "--lr needs a value; if it begins with dashes, write --lr=VALUE"},
        {NULL, "--lr --seed 3", "--lr needs a value; if it begins with dashes, write --lr=VALUE"},
        {NULL, "-x",
                "\"-x\" is not an option; write --key value, and put a path that begins with a dash after "
                "--"},
        {NULL, "-- --lr=3", "--lr=3: no such file; settings are written key=value or --key value"},
        {NULL, "--=3", "\"--=3\" is not an option; write --key value"},
        {NULL, "per_token=on", "per_token is not a key of ferry train; see ferry train --help"},
        {NULL, "/nonexistent.yaml",
                "/nonexistent.yaml: no such file; settings are written key=value or --key value"},
        {NULL, "lr 1", "lr needs a value; write lr=VALUE"},
        {"- a\n", "", "YAML:1: expected a mapping (key: value), found a list"},
};

static void test_bad(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct config c;
		int err = parse(&c, VERB_TRAIN, bad[i].yaml, bad[i].args);

		if (!err)
			print_error("case %zu: %s %s\n", i, bad[i].yaml ? bad[i].yaml : "", bad[i].args);
		assert_true(err < 0);
		assert_int_equal(cli_exit_code(err), CLI_EXIT_USAGE);
		assert_string_equal(message(), bad[i].text);
		assert_round_trip(bad[i].yaml, bad[i].args);
		config_free(&c);
	}
}

/* Behind "--" no word is an option. */
static void test_end_of_options(void **state)
{
	static const struct {
		enum verb verb;
		const char *args, *key, *text;
	} rows[] = {
	        {VERB_INSPECT, "-- -x", "path", "-x"},
	        {VERB_INSPECT, "-- --json", "path", "--json"},
	        {VERB_INSPECT, "--json -- --help", "path", "--help"},
	        {VERB_INSPECT, "-- -x=3", "path", "-x=3"},
	        {VERB_VERIFY, "-- --", "path", "--"},
	        {VERB_TOKENIZE, "model=m -- -", "path", "-"},
	        {VERB_TOKENIZE, "-- model=-m -f.txt", "model", "-m"},
	        {VERB_TRAIN, "lr=1 --", "learning_rate", "1"},
	        {VERB_TRAIN, "-- model=--m", "model", "--m"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct config c;

		check_ok(parse(&c, rows[i].verb, NULL, rows[i].args));
		assert_string_equal(config_text(&c, rows[i].key), rows[i].text);
		assert_false(c.help);
		config_free(&c);
	}
}

static void test_many_unknown(void **state)
{
	char yaml[8192] = "";
	struct config c;

	(void)state;
	for (int i = 0; i < 300; i++)
		sprintf(yaml + strlen(yaml), "unknown_%d: 1\n", i);
	assert_int_equal(parse(&c, VERB_TRAIN, yaml, ""), ERR_INPUT);
	assert_non_null(strstr(message(), "YAML: unknown keys: unknown_0 (line 1), unknown_1 (line 2), "));
	assert_non_null(strstr(message(), " more"));
	config_free(&c);
}

/* ---- checks of meaning ---- */

static const char needed[] = " model=m data=d.jsonl output_dir=o ";
static const struct {
	enum verb verb;
	const char *args, *text; /* text NULL = fine */
} checks[] = {
        {VERB_TRAIN, "", NULL},
        {VERB_TRAIN, "sample_packing=on cutoff_len=off", "sample_packing=on needs max_length; set it"},
        {VERB_TRAIN, "packing=yes packing=True max_length=0", "packing=True needs max_length; set it"},
        {VERB_TRAIN, "embedding_loss=mnrl matryoshka_dims='[2,1]' packing=on",
                "packing=on is set, but texts of embedding_loss are not packed; set packing=off"},
        {VERB_TRAIN, "max_steps=0",
                "max_steps=0 trains nothing; max_steps must be -1 or above 0, num_train_epochs above 0"},
        {VERB_TRAIN, "epochs=0",
                "epochs=0 trains nothing; max_steps must be -1 or above 0, num_train_epochs above 0"},
        {VERB_TRAIN, "epochs=0 max_steps=3", NULL},
        {VERB_TRAIN, "optimizer_state=8bit", NULL},
        {VERB_TRAIN, "optimizer_state=bf16", NULL},
        {VERB_TRAIN, "device=cuda", NULL},
        {VERB_TRAIN, "mixed_precision=fp16",
                "mixed_precision=fp16 is not supported yet; supported: bf16, fp32, fp8"},
        {VERB_TRAIN, "data_format=sharegpt chat_template=llama3 train_on_last_turn=on", NULL},
        {VERB_TRAIN, "data_format=messages", NULL},
        {VERB_TRAIN, "lr_scheduler=inverse_sqrt",
                "lr_scheduler=inverse_sqrt is not supported yet; try linear"},
        {VERB_TRAIN, "load=rank0_only state_dict_type=full", NULL},
        {VERB_TRAIN, "trace=3", NULL},
        {VERB_TRAIN, "compute_dtype=fp32 gradient_dtype=bf16",
                "gradient_dtype=bf16 would round the gradients of compute_dtype=fp32; use fp32"},
        {VERB_TRAIN, "eval_split=0.1 eval_data=e.jsonl",
                "eval_split=0.1 holds back rows, but eval_data is set too; use one of them"},
        {VERB_TRAIN, "eval_steps=5", "eval_steps=5 needs rows to evaluate on; set eval_data or eval_split"},
        {VERB_TRAIN, "resume=auto overwrite_output_dir=on",
                "overwrite_output_dir=on would delete what resume_from_checkpoint needs; use one of them"},
};

static void test_checks(void **state)
{
	struct config c;

	(void)state;
	for (size_t i = 0; i < sizeof(checks) / sizeof(*checks); i++) {
		char args[512];
		int err;

		snprintf(args, sizeof(args), "%s%s", needed, checks[i].args);
		assert_int_equal(parse(&c, checks[i].verb, NULL, args), 0);
		err = config_check(&c);
		if (!err != !checks[i].text)
			print_error("case %zu: %s: %s\n", i, checks[i].args, err ? err_text() : "accepted");
		assert_int_equal(!err, !checks[i].text);
		if (err) {
			assert_string_equal(message(), checks[i].text);
			assert_int_equal(cli_exit_code(err), CLI_EXIT_USAGE);
		}
		config_free(&c);
	}
	assert_int_equal(parse(&c, VERB_TRAIN, NULL, "data=x"), 0);
	assert_int_equal(config_check(&c), ERR_INPUT);
	assert_string_equal(message(),
	        "model, output_dir are not set; usage: ferry train [CONFIG.yaml] [key=value | "
	        "--key value]...");
	config_free(&c);
	assert_int_equal(parse(&c, VERB_GENERATE, NULL, "prompt=x"), 0);
	assert_int_equal(config_check(&c), ERR_INPUT);
	assert_non_null(strstr(message(), "model is not set"));
	config_free(&c);
	assert_int_equal(parse(&c, VERB_TRAIN, "model: m\ncompute_dtype: fp16\n", ""), 0);
	assert_int_equal(config_check(&c), ERR_UNSUPPORTED);
	assert_string_equal(
	        message(), "YAML:2: compute_dtype=fp16 is not supported yet; supported: bf16, fp32, fp8");
	config_free(&c);
	assert_int_equal(parse(&c, VERB_TRAIN, NULL, needed), 0);
	assert_int_equal(config_check(&c), 0);
	assert_null(strstr(logged, "deterministic"));
	config_free(&c);
	assert_int_equal(
	        parse(&c, VERB_TRAIN, "model: m\ndata: d\noutput_dir: o\ndeterministic: off\n", ""), 0);
	assert_int_equal(config_check(&c), 0);
	assert_non_null(strstr(logged, "deterministic=off changes nothing; every run gives the same bits"));
	config_free(&c);
}

static void test_several_ranks(void **state)
{
	struct config c;

	(void)state;
	assert_int_equal(parse(&c, VERB_TRAIN, NULL, needed), 0);
	setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
	setenv("OMPI_COMM_WORLD_RANK", "0", 1);
	assert_int_equal(config_check(&c), 0);
	setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
	assert_int_equal(config_check(&c), 0); /* start-up joins them */
	c.verb = VERB_GENERATE;
	c.prompt = mem_strdup("once");
	check_fails(config_check(&c), ERR_UNSUPPORTED, "runs as one process, not 4 (OMPI_COMM_WORLD_SIZE)");
	c.verb = VERB_TRAIN;
	setenv("WORLD_SIZE", "2", 1);
	setenv("LOCAL_RANK", "0", 1);
	assert_int_equal(config_check(&c), 0); /* scripts set them under mpirun */
	unsetenv("OMPI_COMM_WORLD_SIZE");
	check_fails(config_check(&c), ERR_UNSUPPORTED, "the 2 processes of torchrun (WORLD_SIZE)");
	unsetenv("WORLD_SIZE");
	unsetenv("LOCAL_RANK");
	unsetenv("OMPI_COMM_WORLD_RANK");
	config_free(&c);
}

/* ---- the table of keys, and its outputs ---- */

static void test_table(void **state)
{
	(void)state;
	for (int i = 0; i < config_key_count; i++) {
		const struct config_key *key = &config_keys[i];
		char name[64];
		const char *alias = key->aliases;

		assert_ptr_equal(config_key_find(key->name), key);
		assert_true(key->verbs & ((1u << VERB_COUNT) - 1));
		assert_true(*key->meaning);
		while (alias && *alias) { /* no alias leads elsewhere */
			size_t len = strcspn(alias, " ");

			snprintf(name, sizeof(name), "%.*s", (int)len, alias);
			assert_ptr_equal(config_key_find(name), key);
			alias += len;
			alias += strspn(alias, " ");
		}
	}
	for (int v = 0; v < VERB_COUNT; v++) {
		const char *nearest, *positional = verb_infos[v].positional;

		assert_int_equal(verb_find(verb_infos[v].name, &nearest), v);
		if (positional)
			assert_true(config_key_find(positional)->verbs >> v & 1);
	}
}

/* What must be said beside a key. */
static const char *beside(const char *key)
{
	if (!strcmp(key, "merge_base") || (!strncmp(key, "lora_", 5) && strcmp(key, "lora_rank")))
		return "lora_rank=1";
	return !strcmp(key, "matryoshka_weights") ? "embedding_loss=mnrl matryoshka_dims=8"
	       : strstr(key, "_prompt") || strstr(key, "matryoshka") || strstr(key, "data_keys") ||
	                       strstr(key, "data_names")
	               ? "embedding_loss=mnrl"
	               : "";
}

/* A command of train is one of plan with another verb; keys of other verbs are still refused. */
static void test_plan_takes_keys_of_train(void **state)
{
	char args[200];
	struct config c;

	(void)state;
	for (int i = 0; i < config_key_count; i++) {
		const struct config_key *key = &config_keys[i];
		const char *text = strstr(key->name, "_date") ? "2026-11-27"
		                   : strstr(key->name, "matryoshka") || !strcmp(key->name, "data_keys")
		                           ? "[]"
		                           : "test";
		const char *value = *key->default_text ? key->default_text : text;
		int is_known = (key->verbs >> VERB_TRAIN & 1) || (key->verbs >> VERB_PLAN & 1), err;

		snprintf(args, sizeof(args), "%s %s %s=%s", strcmp(key->name, "model") ? "model=m" : "",
		        beside(key->name), key->name, value);
		err = parse(&c, VERB_PLAN, NULL, args);
		if (!err)
			err = config_check(&c);
		if (is_known != !err)
			fail_msg("plan %s: %d, %s", args, err, err ? message() : "");
		config_free(&c);
	}
	assert_int_equal(parse(&c, VERB_PLAN, NULL, "model=m eval_steps=5"), 0);
	check_fails(config_check(&c), ERR_INPUT, "set eval_data or eval_split");
	config_free(&c);
	check_fails(parse(&c, VERB_PLAN, NULL, "model=m lr=fast"), ERR_INPUT, "lr=fast is not");
	config_free(&c);
}

/* config.yaml reads back to the same configuration, for any settings. */
static void test_yaml_round_trip(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		struct config a, b;
		struct str first = {0}, second = {0};

		assert_int_equal(parse(&a, VERB_TRAIN, good[i].yaml, good[i].args), 0);
		config_write_yaml(&first, &a);
		check_ok(parse(&b, VERB_TRAIN, first.data, ""));
		config_write_yaml(&second, &b);
		assert_string_equal(first.data, second.data);
		assert_true(
		        a.learning_rate == b.learning_rate && a.seed == b.seed && a.max_steps == b.max_steps);
		str_free(&first);
		str_free(&second);
		config_free(&a);
		config_free(&b);
	}
}

static void test_yaml_texts(void **state)
{
	static const char *const texts[] = {"plain", "two words", "a: b", "#x", "- x", "null", "yes",
	        "tab\there", "q\"uo\\te", "line\nbreak", "'", " lead", "trail ", "[x]", "{a}", "caf\xc3\xa9",
	        "&a", "*a", "!t", "%x", "@x", "`", "a #b", "~", "x:", "?", "${seed}", "#o ${x}", "a\\${x}",
	        "${", "$"};
	struct config a, b;

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		struct str text = {0};

		assert_int_equal(parse(&a, VERB_TRAIN, NULL, ""), 0);
		a.sample_prompt = mem_strdup(texts[i]);
		config_write_yaml(&text, &a);
		assert_int_equal(parse(&b, VERB_TRAIN, text.data, ""), 0);
		assert_string_equal(b.sample_prompt, texts[i]);
		str_free(&text);
		config_free(&a);
		config_free(&b);
	}
}

static void test_where(void **state)
{
	struct config c;
	char text[600];

	(void)state;
	assert_int_equal(parse(&c, VERB_TRAIN, "\nlr: 1\n", "--max-steps 3"), 0);
	snprintf(text, sizeof(text), "%s:2: lr", yaml_path);
	assert_string_equal(config_where(&c, "learning_rate"), text);
	assert_string_equal(config_where(&c, "max_steps"), "max-steps");
	assert_string_equal(config_where(&c, "seed"), "seed (default)");
	assert_true(config_was_set(&c, "max_steps"));
	assert_false(config_was_set(&c, "seed"));
	config_free(&c);
}

static void test_steps(void **state)
{
	(void)state;
	assert_int_equal(config_steps(500, 1000, 7), 500);
	assert_int_equal(config_steps(0.1, 1000, 7), 100);
	assert_int_equal(config_steps(0.1, 15, 7), 2); /* rounded up, as transformers does */
	assert_int_equal(config_steps(0, 15, 7), 0);
	assert_int_equal(config_steps(CONFIG_EACH_EPOCH, 15, 7), 7);
}

static void test_help(void **state)
{
	(void)state;
	for (int v = 0; v < VERB_COUNT; v++) {
		struct config c;
		struct str text = {0};

		assert_int_equal(parse(&c, v, NULL, "--nonsense --help"), 0);
		assert_true(c.help);
		config_write_help(&text, v);
		assert_non_null(strstr(text.data, verb_infos[v].name));
		assert_non_null(strstr(text.data, "json"));
		str_free(&text);
		config_free(&c);
	}
}

static void test_documentation_is_current(void **state)
{
	static const struct {
		const char *path;
		void (*write)(struct str *out);
	} rows[] = {{"docs/reference/keys.md", config_write_markdown}, {"docs/ferry.1", config_write_man},
	        {"docs/ferry.bash", config_write_completion}};
	const char *source = getenv("FERRY_SOURCE");

	(void)state;
	assert_non_null(source);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct str made = {0};
		char *path = file_join(source, rows[i].path), *text = NULL;
		size_t len = 0;

		check_ok(file_read_all(path, 1 << 20, &text, &len));
		rows[i].write(&made);
		if (strcmp(made.data, text))
			print_error("%s is not current: make docs\n", rows[i].path);
		assert_true(!strcmp(made.data, text));
		str_free(&made);
		mem_free(text);
		mem_free(path);
	}
}

/* Out of memory at every request: an error or a whole configuration, and nothing lost (under ASan). */
static void test_no_memory(void **state)
{
	char *argv[] = {yaml_path, "lr=3", "--cpu-offload", "on", "unknown=3"};
	struct config c;
	int64_t count;

	(void)state;
	assert_int_equal(
	        parse(&c, VERB_TRAIN, "model: m\nlr: 1\ncpu_offload: [params]\nrun_name: x\n", ""), 0);
	config_free(&c);
	mem_fault_arm(0, MEM_FAULT_ONCE);
	(void)config_parse(&c, VERB_TRAIN, 5, argv);
	config_free(&c);
	count = mem_fault_arm(0, MEM_FAULT_ONCE);
	assert_true(count > 30);
	for (int64_t i = 1; i <= count; i += 3) {
		mem_fault_arm(i, MEM_FAULT_FOREVER);
		assert_true(config_parse(&c, VERB_TRAIN, 5, argv) < 0);
		config_free(&c);
		mem_fault_arm(0, MEM_FAULT_ONCE);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_good), cmocka_unit_test(test_bad),
	        cmocka_unit_test(test_end_of_options), cmocka_unit_test(test_many_unknown),
	        cmocka_unit_test(test_checks), cmocka_unit_test(test_several_ranks),
	        cmocka_unit_test(test_table), cmocka_unit_test(test_plan_takes_keys_of_train),
	        cmocka_unit_test(test_yaml_round_trip), cmocka_unit_test(test_yaml_texts),
	        cmocka_unit_test(test_where), cmocka_unit_test(test_steps), cmocka_unit_test(test_help),
	        cmocka_unit_test(test_documentation_is_current), cmocka_unit_test(test_no_memory)};

	return parse_run_tests(tests);
}
