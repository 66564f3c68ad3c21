/* links: cli */
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/config.h"
#include "cli/config_table.h"
#include "optim/schedule.h"
#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char yaml_path[] = "/tmp/ferry_cli_XXXXXX.yaml";
static char logged[8192];

static void log_take(void *context, enum log_level level, const char *line)
{
	(void)context;
	(void)level;
	snprintf(logged + strlen(logged), sizeof(logged) - strlen(logged), "%s\n", line);
}

/* Words of `args` are separated by blanks; YAML is replaced by the path of a file that holds `yaml`. */
static int parse(struct config *c, enum verb verb, const char *yaml, const char *args)
{
	char *words[64], *text = mem_strdup(args), *rest = text;
	int count = 0, err;
	char *word;

	if (yaml) {
		FILE *f = fopen(yaml_path, "w");

		fputs(yaml, f);
		fclose(f);
		words[count++] = yaml_path;
	}
	logged[0] = 0;
	while ((word = strsep(&rest, " ")) != NULL)
		if (*word)
			words[count++] = word;
	err = config_parse(c, verb, count, words);
	mem_free(text);
	return err;
}

/* err_text() with the file's path written as YAML. */
static const char *message(void)
{
	static char text[2048];
	const char *from = err_text();
	size_t len = 0;

	while (*from && len < sizeof(text) - 8) {
		if (!strncmp(from, yaml_path, strlen(yaml_path))) {
			len += (size_t)sprintf(text + len, "YAML");
			from += strlen(yaml_path);
		} else {
			text[len++] = *from++;
		}
	}
	text[len] = 0;
	return text;
}

/* ---- good settings: what a key is afterwards ---- */

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
        {NULL, "sample_prompt=a=b", "sample_prompt", "a=b"},
        /* numbers */
        {NULL, "max_length=2k", "max_length", "2000"},
        {NULL, "max_samples=1e3", "max_samples", "1000"},
        {NULL, "numel_to_wrap=1e8", "min_num_params", "100000000"},
        {NULL, "min_num_params=2M", "min_num_params", "2000000"},
        {NULL, "seed=9000000000000000", "seed", "9000000000000000"},
        {NULL, "vram_budget=24GiB", "vram_budget", "25769803776"},
        {NULL, "vram_budget=1.5KiB", "vram_budget", "1536"},
        {NULL, "ram_budget=64gb", "ram_budget", "64000000000"},
        {NULL, "vram_budget=auto", "vram_budget", "auto"},
        {NULL, "max_length=off", "max_length", "off"},
        {NULL, "save_steps=0.25", "save_steps", "0.25"},
        {NULL, "save_steps=100", "save_steps", "100"},
        {NULL, "save_total_limit=all", "save_total_limit", "all"},
        {NULL, "warmup_ratio=0.1", "warmup_steps", "0.1"},
        {NULL, "warmup_ratio=0.1 warmup_steps=7", "warmup_steps", "7"},
        {NULL, "warmup_steps=0.03", "warmup_steps", "0.03"},
        {NULL, "max_grad_norm=off", "max_grad_norm", "off"},
        {NULL, "num_epochs=0.5", "num_train_epochs", "0.5"},
        {NULL, "max_steps=10000000000", "max_steps", "10000000000"},
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
		config_free(&c);
	}
}

/* ---- bad settings: the message ---- */

static const struct {
	const char *yaml, *args, *text;
} bad[] = {
        {NULL, "learning_rte=1", "unknown key \"learning_rte\"; did you mean learning_rate?"},
        {NULL, "--max-lenght 5", "unknown key \"max-lenght\"; did you mean max_length?"},
        {NULL, "bogus_thing=1", "unknown key \"bogus_thing\"; \"ferry train --help\" lists the keys"},
        {"lr: 1\nlearning_rte: 1\n", "", "YAML:2: unknown key \"learning_rte\"; did you mean learning_rate?"},
        {"learning_rte: 1\nseeed: 2\nzzz: 3\n", "",
                "3 problems:\n  YAML:1: unknown key \"learning_rte\"; did you mean learning_rate?\n"
                "  YAML:2: unknown key \"seeed\"; did you mean seed?\n"
                "  YAML:3: unknown key \"zzz\"; \"ferry train --help\" lists the keys"},
        {"learning_rate: fast\n", "", "YAML:1: learning_rate is \"fast\", but wants a number"},
        {"lr: nan\n", "", "YAML:1: lr is \"nan\", but wants a number"},
        {"lr: 0x10\n", "", "YAML:1: lr is \"0x10\", but wants a number"},
        {"lr: -1\n", "", "YAML:1: lr is \"-1\", but must be between 0 and 1000"},
        {NULL, "lr=1e-4x", "lr is \"1e-4x\", but wants a number"},
        {NULL, "lr=", "lr is \"\", but wants a number"},
        {NULL, "seed=1.5", "seed is \"1.5\", but wants a whole number"},
        {NULL, "seed=-1", "seed is \"-1\", but must be at least 0"},
        {NULL, "max_length=-1", "max_length is \"-1\", but must be between 0 and 16777216"},
        {NULL, "max_length=5q",
                "max_length is \"5q\", but wants a whole number; k, M and G may follow it, not \"q\""},
        {NULL, "vram_budget=24G",
                "vram_budget is \"24G\", but the unit \"G\" is none of KiB MiB GiB TiB KB MB GB TB"},
        {NULL, "save_steps=1.5",
                "save_steps is \"1.5\", but wants a number of steps, or a fraction of the run between 0 and "
                "1"},
        {NULL, "shuffle=maybe", "shuffle is \"maybe\", but may be on or off"},
        {NULL, "lr_scheduler=sine",
                "lr_scheduler is \"sine\", but may be linear, cosine, constant, constant_with_warmup, "
                "cosine_with_min_lr, polynomial"},
        {NULL, "cpu_offload=params,foo",
                "cpu_offload is \"params,foo\", but may be auto, on, off, params, gradients, optimizer, "
                "activations"},
        {NULL, "cpu_offload=on,off",
                "cpu_offload is \"on,off\", but may be auto, on, off, params, gradients, optimizer, "
                "activations"},
        {NULL, "cpu_offload=activations activations=keep",
                "cpu_offload names activations, but activations=keep; drop one of them"},
        {"lr: 1\nlearning_rate: 2\n", "",
                "YAML:2: learning_rate was already set on line 1 by lr, to another value; keep one of them"},
        {NULL, "lr=1 lr=2", "learning_rate is given twice with different values (lr and lr)"},
        {"lr: 1\nlr: 1\n", "", "YAML:2: \"lr\" was already set on line 1; keep one of them"},
        {"lr: ${x}\n", "", "YAML:1: lr: ${...} is not filled in here; write the value"},
        {"model: {a: b}\n", "", "YAML:1: unknown key \"model.a\"; \"ferry train --help\" lists the keys"},
        {NULL, "--lr", "--lr wants a value"},
        {NULL, "--lr --seed 3", "--lr wants a value"},
        {NULL, "-x", "\"-x\" is no option; options are --key value"},
        {NULL, "--", "\"--\" is no option; options are --key value"},
        {NULL, "--=3", "\"--=3\" is no option; options are --key value"},
        {NULL, "per_token=on", "per_token is no key of ferry train; \"ferry train --help\" lists the keys"},
        {NULL, "/nonexistent.yaml",
                "/nonexistent.yaml: no such file; settings are written key=value or --key value"},
        {NULL, "lr 1", "lr: no such file; settings are written key=value or --key value"},
        {"- a\n", "", "YAML:1: a mapping (key: value) is wanted here, but there is a list"},
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
		config_free(&c);
	}
}

static void test_many_unknown(void **state)
{
	char yaml[8192] = "";
	struct config c;

	(void)state;
	for (int i = 0; i < 200; i++)
		sprintf(yaml + strlen(yaml), "unknown_%d: 1\n", i);
	assert_int_equal(parse(&c, VERB_TRAIN, yaml, ""), ERR_INPUT);
	assert_non_null(strstr(message(), "200 problems:"));
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
        {VERB_TRAIN, "packing=bfd max_length=off",
                "packing=bfd packs up to max_length tokens, which is off; set it"},
        {VERB_TRAIN, "max_steps=0",
                "max_steps=0 trains nothing; max_steps must be -1 or above 0, num_train_epochs above 0"},
        {VERB_TRAIN, "epochs=0",
                "epochs=0 trains nothing; max_steps must be -1 or above 0, num_train_epochs above 0"},
        {VERB_TRAIN, "epochs=0 max_steps=3", NULL},
        {VERB_TRAIN, "optimizer_state=8bit", "optimizer_state=8bit is not done in this version; fp32 is"},
        {VERB_TRAIN, "optimizer_state=bf16", "optimizer_state=bf16 is not done in this version; fp32 is"},
        {VERB_TRAIN, "device=cuda", "device=cuda is not in this build; host is"},
        {VERB_TRAIN, "mixed_precision=fp16",
                "mixed_precision=fp16 is not done in this version; bf16 and fp32 are"},
        {VERB_TRAIN, "data_format=sharegpt",
                "data_format=sharegpt is not done in this version; alpaca, prompt_completion, text and "
                "tokens are"},
        {VERB_TRAIN, "data_format=messages",
                "data_format=messages is not done in this version; alpaca, prompt_completion, text and "
                "tokens are"},
        {VERB_TRAIN, "chat_template=llama3", "chat_template=llama3 is not done in this version; alpaca is"},
        {VERB_TRAIN, "chat_template=llama3 data_format=alpaca", NULL},
        {VERB_TRAIN, "lr_scheduler=inverse_sqrt",
                "lr_scheduler=inverse_sqrt is not done in this version; linear is"},
        {VERB_TRAIN, "load=rank0_only", "load=rank0_only is not done in this version; auto is"},
        {VERB_TRAIN, "trace=3", NULL},
        {VERB_TRAIN, "compute_dtype=fp32 gradient_dtype=bf16",
                "gradient_dtype=bf16 would round the gradients of compute_dtype=fp32; use fp32"},
        {VERB_TRAIN, "eval_split=0.1 eval_data=e.jsonl",
                "eval_split=0.1 holds back rows, but eval_data is set too; use one of them"},
        {VERB_TRAIN, "eval_steps=5", "eval_steps=5 wants rows to evaluate on; set eval_data or eval_split"},
        {VERB_TRAIN, "resume=auto overwrite_output_dir=on",
                "overwrite_output_dir=on would delete what resume_from_checkpoint wants to go on from; use "
                "one of "
                "them"},
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
	assert_int_equal(parse(&c, VERB_GENERATE, NULL, "model=x"), 0);
	assert_int_equal(config_check(&c), ERR_INPUT);
	assert_non_null(strstr(message(), "prompt or prompt_ids is not set"));
	config_free(&c);
	assert_int_equal(parse(&c, VERB_TRAIN, "model: m\noptimizer_state: 8bit\n", ""), 0);
	assert_int_equal(config_check(&c), ERR_UNSUPPORTED);
	assert_string_equal(message(), "YAML:2: optimizer_state=8bit is not done in this version; fp32 is");
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
	check_fails(config_check(&c), ERR_UNSUPPORTED, "one of 4 ranks (OMPI_COMM_WORLD_SIZE)");
	unsetenv("OMPI_COMM_WORLD_SIZE");
	unsetenv("OMPI_COMM_WORLD_RANK");
	config_free(&c);
}

/* ---- files of other trainers ---- */

static const char axolotl[] =
        "base_model: models/llama\n"
        "model_type: LlamaForCausalLM\n"
        "datasets:\n  - path: rows.jsonl\n    type: alpaca\n"
        "val_set_size: 0.05\noutput_dir: ./out\nsequence_len: 8192\nsample_packing: true\n"
        "pad_to_sequence_len: true\nwandb_project:\nwandb_entity: me\n"
        "gradient_accumulation_steps: 8\nbatch_size: 16\nnum_epochs: 2\noptimizer: adamw_torch\n"
        "lr_scheduler: cosine\nlearning_rate: 2e-5\nbf16: auto\nfp16:\ntf32: false\n"
        "gradient_checkpointing: true\ngradient_checkpointing_kwargs:\n  use_reentrant: false\n"
        "flash_attention: true\nwarmup_steps: 100\nevals_per_epoch: 2\nsaves_per_epoch: 1\ndebug:\n"
        "deepspeed:\nweight_decay: 0.0\nfsdp: [full_shard, auto_wrap]\n"
        "fsdp_config:\n  fsdp_offload_params: true\n  fsdp_state_dict_type: FULL_STATE_DICT\n"
        "special_tokens:\n  pad_token: <|end_of_text|>\n";
static const char accelerate[] =
        "compute_environment: LOCAL_MACHINE\ndebug: false\ndistributed_type: FSDP\ndowncast_bf16: 'no'\n"
        "enable_cpu_affinity: false\nfsdp_config:\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
        "  fsdp_backward_prefetch: BACKWARD_POST\n  fsdp_cpu_ram_efficient_loading: true\n"
        "  fsdp_forward_prefetch: false\n  fsdp_offload_params: true\n  fsdp_sharding_strategy: 2\n"
        "  fsdp_state_dict_type: SHARDED_STATE_DICT\n  fsdp_sync_module_states: true\n"
        "  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer\n  fsdp_use_orig_params: true\n"
        "machine_rank: 0\nmain_training_function: main\nmixed_precision: bf16\nnum_machines: 1\n"
        "num_processes: 8\nrdzv_backend: static\nsame_network: true\ntpu_env: []\ntpu_use_cluster: false\n"
        "use_cpu: false\n";
static const char torchtune[] =
        "output_dir: /tmp/out\n"
        "tokenizer:\n  _component_: torchtune.models.llama3.llama3_tokenizer\n  path: /tmp/t.model\n"
        "  max_seq_len: null\n"
        "dataset:\n  _component_: torchtune.datasets.alpaca_dataset\n  packed: False\n  source: json\n"
        "  data_files: rows.json\n"
        "seed: null\nshuffle: True\nmodel:\n  _component_: torchtune.models.llama3_1.llama3_1_8b\n"
        "checkpointer:\n  _component_: torchtune.training.FullModelHFCheckpointer\n"
        "  checkpoint_dir: models/l\n  checkpoint_files: [a.safetensors, b.safetensors]\n"
        "  recipe_checkpoint: null\n  output_dir: /tmp/out\n  model_type: LLAMA3\n"
        "resume_from_checkpoint: False\nbatch_size: 2\nepochs: 1\n"
        "optimizer:\n  _component_: torch.optim.AdamW\n  lr: 3e-5\n  fused: True\n  betas: [0.8, 0.95]\n"
        "loss:\n  _component_: torchtune.modules.loss.CEWithChunkedOutputLoss\n"
        "max_steps_per_epoch: null\ngradient_accumulation_steps: 4\nclip_grad_norm: null\ncompile: False\n"
        "optimizer_in_bwd: False\nenable_activation_checkpointing: True\n"
        "enable_activation_offloading: True\nfsdp_cpu_offload: True\ndtype: bf16\n"
        "metric_logger:\n  _component_: torchtune.training.metric_logging.DiskLogger\n  log_dir: /tmp/logs\n"
        "log_every_n_steps: 10\nlog_peak_memory_stats: True\n"
        "profiler:\n  _component_: torchtune.training.setup_torch_profiler\n  enabled: False\n";
static const char llama_factory[] =
        "model_name_or_path: models/l\ntrust_remote_code: true\nstage: sft\ndo_train: true\n"
        "finetuning_type: full\ndataset: rows.json\ntemplate: alpaca\ncutoff_len: 2048\nmax_samples: 1000\n"
        "overwrite_cache: true\npreprocessing_num_workers: 16\noutput_dir: saves\nlogging_steps: 10\n"
        "save_steps: 500\nplot_loss: true\noverwrite_output_dir: true\nsave_only_model: false\n"
        "report_to: none\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 2\n"
        "learning_rate: 1.0e-5\nnum_train_epochs: 3.0\nlr_scheduler_type: cosine\nwarmup_ratio: 0.1\n"
        "bf16: true\nddp_timeout: 180000000\nresume_from_checkpoint: null\nval_size: 0.1\n"
        "per_device_eval_batch_size: 1\neval_strategy: steps\neval_steps: 500\n";
static const char transformers[] =
        "model_name_or_path: models/l\ndataset_name: rows.jsonl\noutput_dir: o\nsave_strategy: epoch\n"
        "evaluation_strategy: 'no'\nlogging_dir: logs\nreport_to: [tensorboard, wandb]\nnum_train_epochs: 4\n"
        "fsdp: full_shard auto_wrap offload\nfsdp_config:\n  backward_prefetch: backward_pre\n"
        "  min_num_params: 2000\nlr_scheduler_type: cosine_with_min_lr\n"
        "lr_scheduler_kwargs:\n  min_lr_rate: 0.1\noptim: adamw_torch_fused\nfp16: false\n"
        "batch_size: 3\ndataloader_num_workers: 4\nload_best_model_at_end: false\n";

static const struct {
	const char *yaml, *key, *text;
} foreign[] = {
        {axolotl, "model", "models/llama"},
        {axolotl, "data", "rows.jsonl"},
        {axolotl, "data_format", "alpaca"},
        {axolotl, "eval_split", "0.05"},
        {axolotl, "max_length", "8192"},
        {axolotl, "packing", "bfd"},
        {axolotl, "per_device_train_batch_size", "2"},
        {axolotl, "per_device_eval_batch_size", "2"},
        {axolotl, "save_steps", "0.5"},
        {axolotl, "eval_steps", "0.25"},
        {axolotl, "cpu_offload", "on"},
        {axolotl, "compute_dtype", "bf16"},
        {axolotl, "lr_scheduler_type", "cosine"},
        {accelerate, "cpu_offload", "on"},
        {accelerate, "sharding_strategy", "SHARD_GRAD_OP"},
        {accelerate, "backward_prefetch", "BACKWARD_POST"},
        {accelerate, "forward_prefetch", "off"},
        {accelerate, "wrap_policy", "transformer"},
        {accelerate, "compute_dtype", "bf16"},
        {torchtune, "model", "models/l"},
        {torchtune, "data", "rows.json"},
        {torchtune, "data_format", "alpaca"},
        {torchtune, "packing", "off"},
        {torchtune, "per_device_train_batch_size", "2"},
        {torchtune, "learning_rate", "3e-05"},
        {torchtune, "adam_beta1", "0.8"},
        {torchtune, "adam_beta2", "0.95"},
        {torchtune, "activations", "offload"},
        {torchtune, "logging_steps", "10"},
        {torchtune, "max_grad_norm", "1"},
        {llama_factory, "max_length", "2048"},
        {llama_factory, "warmup_steps", "0.1"},
        {llama_factory, "chat_template", "alpaca"},
        {llama_factory, "eval_split", "0.1"},
        {llama_factory, "learning_rate", "1e-05"},
        {transformers, "save_steps", "0.25"},
        {transformers, "eval_steps", "off"},
        {transformers, "cpu_offload", "on"},
        {transformers, "min_num_params", "2000"},
        {transformers, "min_lr_rate", "0.1"},
        {transformers, "per_device_train_batch_size", "3"},
};

static void test_foreign(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(foreign) / sizeof(*foreign); i++) {
		struct config c;
		int err = parse(&c, VERB_TRAIN, foreign[i].yaml, "");

		if (err || strcmp(config_text(&c, foreign[i].key), foreign[i].text))
			print_error("case %zu: %s=\"%s\" %s\n", i, foreign[i].key,
			        err ? "" : config_text(&c, foreign[i].key), err ? err_text() : "");
		assert_int_equal(err, 0);
		assert_string_equal(config_text(&c, foreign[i].key), foreign[i].text);
		config_free(&c);
	}
}

static void test_dialects(void **state)
{
	static const struct {
		const char *yaml, *name;
	} rows[] = {{axolotl, "axolotl"}, {accelerate, "accelerate"}, {torchtune, "torchtune"},
	        {llama_factory, "LLaMA-Factory"}, {transformers, "transformers"},
	        {"lr: 1\nmodel: m\n", NULL}};
	struct config c;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		char line[64];

		assert_int_equal(parse(&c, VERB_TRAIN, rows[i].yaml, ""), 0);
		if (!rows[i].name) {
			assert_null(strstr(logged, "read as"));
		} else {
			snprintf(line, sizeof(line), "read as a configuration for %s", rows[i].name);
			assert_non_null(strstr(logged, line));
		}
		config_free(&c);
	}
	assert_int_equal(parse(&c, VERB_TRAIN, axolotl, ""), 0);
	assert_non_null(strstr(logged,
	        "these change nothing here: model_type, pad_to_sequence_len, wandb_entity, tf32, "
	        "gradient_checkpointing_kwargs.use_reentrant, flash_attention, special_tokens.pad_token\n"));
	config_free(&c);
}

static const struct {
	const char *yaml, *text;
} refused[] = {
        {"load_in_4bit: true\n", "YAML:1: load_in_4bit=true: quantized weights are not done"},
        {"adapter: lora\n", "YAML:1: adapter=lora: adapters (LoRA) are not done; every weight is trained"},
        {"lora_r: 8\n", "YAML:1: lora_r=8: adapters (LoRA) are not done; every weight is trained"},
        {"finetuning_type: lora\n",
                "YAML:1: finetuning_type=lora: every weight is trained: finetuning_type full"},
        {"stage: dpo\n", "YAML:1: stage=dpo: only supervised fine-tuning (sft) is done"},
        {"rl: dpo\n", "YAML:1: rl=dpo: preference training is not done; supervised fine-tuning is"},
        {"optim: adafactor\n", "YAML:1: optim=adafactor: only AdamW is done"},
        {"fp16: true\n", "YAML:1: fp16=true: fp16 and fp8 are not done; bf16 and fp32 are"},
        {"deepspeed: ds.json\n",
                "YAML:1: deepspeed=ds.json: a DeepSpeed configuration is not read; set sharding_strategy and "
                "cpu_offload"},
        {"neftune_noise_alpha: 5\n", "YAML:1: neftune_noise_alpha=5: it is not done"},
        {"datasets:\n  - path: a.jsonl\n  - path: b.jsonl\n",
                "YAML:3: datasets.1.path=b.jsonl: only one data set is read, with path, type and field; join "
                "the files"},
        {"model:\n  _component_: torchtune.models.llama3.lora_llama3_8b\n",
                "YAML:2: model._component_=torchtune.models.llama3.lora_llama3_8b: adapters (LoRA) are not "
                "done"},
        {"datasets:\n  - path: a.jsonl\nbatch_size: 3\ngradient_accumulation_steps: 2\n",
                "batch_size 3 is no multiple of gradient_accumulation_steps 2: in axolotl it is the rows of "
                "a whole "
                "step on one device"},
};

static void test_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
		struct config c;
		int err = parse(&c, VERB_TRAIN, refused[i].yaml, "");

		assert_true(err == ERR_INPUT || err == ERR_UNSUPPORTED);
		assert_string_equal(message(), refused[i].text);
		config_free(&c);
	}
}

/* ---- the table and what is made from it ---- */

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

/* config.yaml reads back to the same configuration, whatever was set. */
static void test_yaml_round_trip(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		struct config a, b;
		struct str first = {0}, second = {0};

		assert_int_equal(parse(&a, VERB_TRAIN, good[i].yaml, good[i].args), 0);
		config_write_yaml(&first, &a);
		assert_int_equal(parse(&b, VERB_TRAIN, first.data, ""), 0);
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
	        "&a", "*a", "!t", "%x", "@x", "`", "a #b", "~", "x:", "?"};
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
	assert_int_equal(config_steps(500, 1000), 500);
	assert_int_equal(config_steps(0.1, 1000), 100);
	assert_int_equal(config_steps(0.1, 15), 2); /* rounded up, as transformers does */
	assert_int_equal(config_steps(0, 15), 0);
}

static void test_distance(void **state)
{
	(void)state;
	assert_int_equal(config_name_distance("abc", "abc"), 0);
	assert_int_equal(config_name_distance("a-c", "a_c"), 0);
	assert_int_equal(config_name_distance("abc", "acb"), 1);
	assert_int_equal(config_name_distance("", "acb"), 3);
	assert_int_equal(config_name_distance("kitten", "sitting"), 3);
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
		const char *path, *option;
		void (*write)(struct str *out);
	} rows[] = {{"docs/configuration.md", "--markdown", config_write_markdown},
	        {"docs/ferry.1", "--man", config_write_man},
	        {"docs/ferry.bash", "--completion", config_write_completion}};
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
			print_error("%s is not current: build/ferry help %s > %s\n", rows[i].path,
			        rows[i].option, rows[i].path);
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
	assert_int_equal(parse(&c, VERB_TRAIN, transformers, ""), 0);
	config_free(&c);
	mem_fault_arm(0, MEM_FAULT_ONCE);
	(void)config_parse(&c, VERB_TRAIN, 5, argv);
	config_free(&c);
	count = mem_fault_arm(0, MEM_FAULT_ONCE);
	assert_true(count > 50);
	for (int64_t i = 1; i <= count; i += 3) {
		mem_fault_arm(i, MEM_FAULT_FOREVER);
		assert_true(config_parse(&c, VERB_TRAIN, 5, argv) < 0);
		config_free(&c);
		mem_fault_arm(0, MEM_FAULT_ONCE);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_good),
	        cmocka_unit_test(test_bad),
	        cmocka_unit_test(test_many_unknown),
	        cmocka_unit_test(test_checks),
	        cmocka_unit_test(test_several_ranks),
	        cmocka_unit_test(test_foreign),
	        cmocka_unit_test(test_dialects),
	        cmocka_unit_test(test_refused),
	        cmocka_unit_test(test_table),
	        cmocka_unit_test(test_yaml_round_trip),
	        cmocka_unit_test(test_yaml_texts),
	        cmocka_unit_test(test_where),
	        cmocka_unit_test(test_steps),
	        cmocka_unit_test(test_distance),
	        cmocka_unit_test(test_help),
	        cmocka_unit_test(test_documentation_is_current),
	        cmocka_unit_test(test_no_memory),
	};
	int fd = mkstemps(yaml_path, 5), failed;

	if (fd < 0)
		return 1;
	close(fd);
	log_set_sink(log_take, NULL);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(yaml_path);
	return failed;
}
