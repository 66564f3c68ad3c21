/* links: cli */
/* Files that other tools' files name (DeepSpeed's JSON), and trainers with words of their own. */
#include "base/file.h"
#include "cli/cli.h"
#include "tests/cli_round.h"

/* In the directory of the test, which is the working directory. */
#define ZERO_FILE "zero.json"
#define FSDP_FILE "fsdp.json"

static const char zero3[] =
        "{\"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": \"cpu\", \"pin_memory\": "
        "true},\n"
        "  \"offload_param\": {\"device\": \"cpu\"}, \"overlap_comm\": true, \"sub_group_size\": 1e9},\n"
        " \"bf16\": {\"enabled\": \"auto\"}, \"fp16\": {\"enabled\": false, \"loss_scale\": 0},\n"
        " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": \"auto\", \"betas\": [0.8, 0.95], "
        "\"eps\": 1e-7}},\n"
        " \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_num_steps\": 30, \"warmup_type\": "
        "\"linear\"}},\n"
        " \"gradient_clipping\": 0.5, \"train_micro_batch_size_per_gpu\": \"auto\", \"train_batch_size\": "
        "12,\n"
        " \"steps_per_print\": 100}\n";
static const char fsdp[] =
        "{\"fsdp_offload_params\": true, \"backward_prefetch\": \"backward_post\", \"xla\": false}\n";

static const char with_zero[] = "model_name_or_path: m\noptim: adamw_torch\nper_device_train_batch_size: 3\n"
                                "deepspeed: " ZERO_FILE "\n";
static const char accelerate_zero[] = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\n"
                                      "deepspeed_config:\n  deepspeed_config_file: " ZERO_FILE "\n"
                                      "  deepspeed_moe_layer_cls_names: Qwen2MoeSparseMoeBlock\n";
static const char with_fsdp[] =
        "model_name_or_path: m\noptim: adamw_torch\nfsdp: full_shard\nfsdp_config: " FSDP_FILE "\n";
static const char surogate[] =
        "model: m\nrecipe: bf16\nper_device_train_batch_size: 2\nsequence_len: 2048\nsample_packing: true\n"
        "cpu_training: true\nlora: true\nlora_rank: 16\nlora_alpha: 32\nlora_target_modules:\n  - all\n"
        "lora_dtype: bf16\nlmhead_chunks: 4\ngpus: 1\nadamw_beta2: 0.95\nlr_scheduler_type: "
        "cosine\nfinal_lr_fraction: 0.1\n"
        "validation_split_ratio: 0.2\ndatasets:\n  - path: rows.jsonl\n    type: conversation\n"
        "    messages_field: prompt\n    samples: 500\n";
static const char surogate_evaluates[] =
        "model: m\nrecipe: bf16\nlmhead_chunks: 4\nsample_packing: true\neval_steps: 25\n"
        "datasets:\n  - path: rows.jsonl\n    type: auto\n";
static const char version1[] =
        "model: m\nmodel_class: llm\npeft_config:\n  name: lora\n  r: 4\n  lora_alpha: 32\n  target_modules: "
        "all\n"
        "kernel_config:\n  name: auto\ndist_config:\n  name: deepspeed\n  config_file: " ZERO_FILE "\n"
        "train_dataset: rows.jsonl\nmicro_batch_size: 1\ncutoff_len: 2048\nmax_steps: 10\nsample_backend: "
        "hf\n";
static const char pretraining[] =
        "base_model: m\nsequence_len: 512\npretraining_dataset:\n  - path: a.jsonl\n    type: pretrain\n"
        "    text_column: body\n    split: train[:5%]\n";

#define SWIFT "model: m\ntuner_type: lora\nsplit_dataset_ratio: 0\n"
static const char swift[] =
        SWIFT "torch_dtype: bfloat16\nlora_rank: 4\ntarget_modules:\n  - q_proj\n  - v_proj\ndataset:\n"
              "  - a.jsonl#500\n  - b.jsonl#500\nmax_length: 2048\ntruncation_strategy: delete\n"
              "loss_scale: last_round\nmodel_author: x\nmodel_name: y\neval_steps: 50\n"
              "deepspeed: zero3_offload\n";
static const char swift_quantized[] = SWIFT "dataset: a.jsonl\nquant_method: bnb\nquant_bits: 8\n";
#define SWIFT_PAIRS SWIFT "dataset: a.jsonl\nrlhf_type: "
static const char studio[] =
        "model: m\ndata:\n  dataset: a.jsonl\n  format_type: chatml\ntraining:\n  training_type: lora\n"
        "  load_in_4bit: true\n  num_epochs: 0\n  max_steps: 30\n  batch_size: 2\n  optim: adamw_8bit\n"
        "  train_on_completions: false\n  random_seed: 3407\nlora:\n  lora_r: 64\n  lora_alpha: 16\n"
        "  target_modules: \"q_proj,v_proj\"\n  use_loftq: false\nlogging:\n  log_frequency: 10\n"
        "  enable_tensorboard: true\n";
static const char studio_full[] =
        "model: m\ntraining:\n  training_type: full\n  random_seed: 3407\n  max_steps: 0\n"
        "  train_on_completions: true\nlora:\n  lora_r: 64\n  target_modules: \"\"\n  use_loftq: false\n";
#define MLX_MODEL "mlx.json"
static const char mlx[] =
        "model: " MLX_MODEL "\ntrain: true\nfine_tune_type: lora\ndata: rows\nnum_layers: 2\n"
        "batch_size: 4\niters: 1000\ngrad_accumulation_steps: 4\nsteps_per_report: 10\n"
        "adapter_path: adapters\nlora_parameters:\n  keys: [self_attn.q_proj]\n  rank: 4\n  scale: 10.0\n"
        "  dropout: 0.0\nlr_schedule:\n  name: cosine_decay\n  warmup: 100\n"
        "  arguments: [1e-5, 1000, 1e-6]\n";
#define MLX "model: " MLX_MODEL "\nfine_tune_type: lora\ndata: rows\n"
static const char mlx_linear[] = MLX "lr_schedule:\n  name: linear_schedule\n"
                                     "  arguments: [1e-4, 1e-5, 1000]\n";
static const char mlx_full[] =
        "model: " MLX_MODEL "\nfine_tune_type: full\ndata: rows\nmask_prompt: true\nnum_layers: 1\n";

static const struct {
	const char *yaml, *key, *text;
} understood[] = {
        {swift, "lora_target_modules", "q_proj,v_proj"},
        {swift, "lora_alpha", "32"},
        {swift, "lora_dropout", "0.05"},
        {swift, "data", "a.jsonl,b.jsonl"},
        {swift, "max_samples", "500"},
        {swift, "long_rows", "drop"},
        {swift, "train_on_last_turn", "on"},
        {swift, "compute_dtype", "bf16"},
        {swift, "sharding_strategy", "FULL_SHARD"},
        {swift, "cpu_offload", "on"},
        {swift, "model", "m"},
        {swift, "eval_steps", "off"},
        {swift, "field_output", "output,response"},
        {SWIFT_PAIRS "dpo\n", "field_chosen", "chosen,response"},
        {swift_quantized, "base_format", "int8"},
        {SWIFT_PAIRS "dpo\nbeta: 0.3\n", "preference_loss", "sigmoid"},
        {SWIFT_PAIRS "dpo\nbeta: 0.3\n", "preference_beta", "0.3"},
        {SWIFT_PAIRS "orpo\n", "preference_own_tokens", "all"},
        {SWIFT_PAIRS "cpo\nloss_type: sigmoid\n", "preference_loss", "cpo"},
        {SWIFT "dataset: [a.jsonl, a.jsonl]\n", "data", "a.jsonl,a.jsonl"},
        {SWIFT_PAIRS "cpo\nloss_type: simpo\n", "preference_own_weight", "1"},
        {SWIFT_PAIRS "cpo\nloss_type: simpo\n", "preference_gamma", "1"},
        {SWIFT_PAIRS "simpo\nloss_type: sigmoid\n", "preference_loss", "cpo"},
        {SWIFT_PAIRS "orpo\npreference_loss: simpo\n", "preference_loss", "simpo"},
        {SWIFT_PAIRS "simpo\n", "preference_beta", "2"},
        {SWIFT_PAIRS "simpo\n", "preference_gamma", "1"},
        {SWIFT_PAIRS "kto\ndesirable_weight: 2\n", "preference_desirable_weight", "2"},
        {studio, "data", "a.jsonl"},
        {"data:\n  dataset: a.jsonl\n  local_dataset: []\ntraining:\n  training_type: lora\n  random_seed: "
         "1\n"
         "lora:\n  target_modules: all-linear\n",
                "data", "a.jsonl"},
        {studio, "data_format", "messages"},
        {studio, "base_format", "nf4"},
        {studio, "max_steps", "30"},
        {studio, "num_train_epochs", "1"},
        {studio, "train_on_inputs", "on"},
        {studio, "optimizer_state", "8bit"},
        {studio, "lora_rank", "64"},
        {studio, "seed", "3407"},
        {studio, "report_to", "tensorboard"},
        {studio_full, "lora_rank", "off"},
        {mlx, "lora_layers", "[2,3]"},
        {mlx, "lora_alpha", "40"},
        {mlx, "max_steps", "250"},
        {mlx, "output_dir", "adapters"},
        {mlx, "train_on_inputs", "on"},
        {mlx, "learning_rate", "1e-05"},
        {mlx, "min_lr_rate", "0.1"},
        {mlx, "lr_scheduler_type", "cosine_with_min_lr"},
        {mlx, "warmup_steps", "100"},
        {mlx_linear, "learning_rate", "0.0001"},
        {mlx_linear, "lr_scheduler_type", "linear"},
        {mlx_full, "trainable", "model\\.layers\\.(3)\\..*"},
        {mlx_full, "train_on_inputs", "off"},
        {mlx_full, "lora_rank", "off"},
        {surogate_evaluates, "eval_split", "0.1"},
        {zero3, "sharding_strategy", "FULL_SHARD"},
        {zero3, "cpu_offload", "on"},
        {zero3, "adam_beta1", "0.8"},
        {zero3, "adam_beta2", "0.95"},
        {zero3, "adam_epsilon", "1e-07"},
        {zero3, "max_grad_norm", "0.5"},
        {zero3, "warmup_steps", "30"},
        {zero3, "lr_scheduler_type", "constant_with_warmup"},
        {zero3, "per_device_train_batch_size", "12"},
        {with_zero, "sharding_strategy", "FULL_SHARD"},
        {with_zero, "cpu_offload", "on"},
        {with_zero, "per_device_train_batch_size", "3"},
        {with_zero, "gradient_accumulation_steps", "4"},
        {accelerate_zero, "cpu_offload", "on"},
        {accelerate_zero, "max_grad_norm", "0.5"},
        {"zero_optimization:\n  stage: 2\n  offload_optimizer:\n    device: cpu\n", "cpu_offload",
                "gradients,optimizer"},
        {"zero_optimization:\n  stage: 3\n  offload_optimizer:\n    device: none\n", "cpu_offload", "off"},
        {"zero_optimization:\n  stage: 1\nscheduler:\n  type: WarmupCosineLR\n  params:\n    cos_min_ratio: "
         "0.1\n",
                "min_lr_rate", "0.1"},
        {"zero_optimization:\n  stage: 1\n", "sharding_strategy", "SHARD_GRAD_OP"},
        {"compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\n", "sharding_strategy",
                "NO_SHARD"},
        {with_fsdp, "cpu_offload", "on"},
        {with_fsdp, "backward_prefetch", "BACKWARD_POST"},
        {with_fsdp, "sharding_strategy", "FULL_SHARD"},
        {"base_model: m\nsequence_len: 9\ngradient_checkpointing: false\nfsdp_config:\n"
         "  activation_checkpointing: true\n",
                "activations", "recompute"},
        {"base_model: m\nsequence_len: 9\nfsdp_config:\n  fsdp_activation_checkpointing: true\n"
         "gradient_checkpointing: false\n",
                "activations", "recompute"},
        {surogate, "lora_rank", "16"},
        {surogate, "lora_target_modules", "all-linear"},
        {surogate, "cpu_offload", "on"},
        {surogate, "packing", "bfd"},
        {surogate, "adam_beta2", "0.95"},
        {surogate, "min_lr_rate", "0.1"},
        {surogate, "eval_split", "0.2"},
        {surogate, "max_samples", "500"},
        {surogate, "field_messages", "prompt"},
        {surogate, "data_format", "messages"},
        {version1, "lora_rank", "4"},
        {version1, "lora_target_modules", "all-linear"},
        {version1, "data", "rows.jsonl"},
        {version1, "cpu_offload", "on"},
        {version1, "max_length", "2048"},
        {pretraining, "data", "a.jsonl"},
        {pretraining, "field_text", "body"},
        {pretraining, "data_format", "text"},
        {pretraining, "long_rows", "split"},
        {pretraining, "data_split", "train[:5%]"},
        {"optim: adamw_torch\ndataset_name: a.jsonl\nmax_length: null\n", "max_length", "off"},
        {"sequence_len: 500_000\nbase_model: m\n", "max_length", "500000"},
};

static void file_put(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void test_understood(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(understood) / sizeof(*understood); i++) {
		struct config c;

		if (parse(&c, VERB_TRAIN, understood[i].yaml, ""))
			fail_msg("case %zu (%s): %s", i, understood[i].key, err_text());
		if (strcmp(config_text(&c, understood[i].key), understood[i].text))
			fail_msg("case %zu: %s is %s, not %s", i, understood[i].key,
			        config_text(&c, understood[i].key), understood[i].text);
		config_free(&c);
		assert_round_trip(understood[i].yaml, "");
	}
}

/* Values that stand in two files and differ are named with both places. */
static void test_contradiction(void **state)
{
	struct config c;

	(void)state;
	assert_int_equal(
	        parse(&c, VERB_TRAIN, "max_grad_norm: 1\ndeepspeed: " ZERO_FILE "\n", ""), ERR_INPUT);
	assert_string_equal(message(),
	        ZERO_FILE ":6: gradient_clipping was already set at YAML:1 by max_grad_norm, to "
	                  "another value; keep one of them");
	config_free(&c);
}

static void test_said(void **state)
{
	static const struct {
		const char *yaml, *says;
	} rows[] = {{zero3, "reading it as a configuration of DeepSpeed"},
	        {surogate, "reading it as a configuration of Surogate"},
	        {version1, "reading it as a configuration of LLaMA-Factory (version 1)"},
	        {swift, "reading it as a configuration of ms-swift"},
	        {SWIFT_PAIRS "dpo\n", "\nlora_dropout=0.05: ms-swift trains pairs without dropout"},
	        {studio, "reading it as a configuration of Unsloth"},
	        {studio_full, "lora.lora_r=64 has no effect without training_type: lora"},
	        {mlx, "reading it as a configuration of mlx-lm"}, {mlx, "ferry's schedule ends with the run"},
	        {mlx_linear, "ferry's schedule ends with the run, and at 0"},
	        {swift, "ferry takes the first ones, and ms-swift draws them"},
	        {"zero_optimization:\n  stage: 2\nscheduler:\n  type: WarmupLR\n", "ferry warms up linearly"},
	        {"base_model: m\nsequence_len: 9\neot_tokens: [a]\n",
	                "eot_tokens=a: ferry trains on the end-of-turn token that the chat template writes"},
	        {"optim: adamw_torch\npush_to_hub: true\n", "push_to_hub=true: ferry uploads nothing"},
	        {"base_model: m\nsequence_len: 9\nevals_per_epoch: 4\n",
	                "evals_per_epoch=4 has no effect without rows to evaluate on"},
	        {"base_model: m\nsequence_len: 9\nspecial_tokens:\n  bos_token: <s>\n",
	                "special_tokens.bos_token=<s>: ferry takes the model's own"},
	        {"base_model: m\nsequence_len: 9\ngradient_checkpointing: false\nfsdp_config:\n"
	         "  activation_checkpointing: true\n",
	                "fsdp_config.activation_checkpointing=true: activations are computed again, "
	                "though "}};
	struct config c;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		if (parse(&c, VERB_TRAIN, rows[i].yaml, ""))
			fail_msg("case %zu: %s", i, err_text());
		if (!strstr(logged, rows[i].says))
			fail_msg("case %zu: %s", i, logged);
		config_free(&c);
	}
}

/* A file for training says 4 bits; its model is measured as it is stored. */
static void test_measured(void **state)
{
	struct config c;

	(void)state;
	check_ok(parse(&c, VERB_EVAL, "model_name_or_path: m\noptim: adamw_torch\nload_in_4bit: true\n", ""));
	assert_non_null(strstr(logged, "load_in_4bit=true: the model is read as it is stored"));
	config_free(&c);
	check_ok(parse(&c, VERB_EVAL, "model_name_or_path: m\noptim: adamw_torch\nload_in_4bit: true\n",
	        "base_format=nf4"));
	assert_null(strstr(logged, "as it is stored"));
	config_free(&c);
}

/* A command line without a file is read in the words of the program that it was written for. */
static void test_command_line(void **state)
{
	struct config c;

	(void)state;
	check_ok(parse(&c, VERB_TRAIN, NULL,
	        "--model_name_or_path m --stage sft --finetuning_type lora --lora_target all --template qwen "
	        "--dataset a.jsonl --lazy_preprocess true --lora_rank 8 --lora_alpha 16"));
	assert_string_equal(config_text(&c, "lora_target_modules"), "all-linear");
	assert_string_equal(config_text(&c, "lora_rank"), "8");
	config_free(&c);
	check_ok(parse(&c, VERB_TRAIN, NULL,
	        "--model m --tuner_type lora --dataset a.jsonl#100 b.jsonl#100 --target_modules q_proj "
	        "v_proj "
	        "--split_dataset_ratio 0 --eval_steps 5"));
	assert_string_equal(config_text(&c, "data"), "a.jsonl,b.jsonl");
	assert_string_equal(config_text(&c, "lora_target_modules"), "q_proj,v_proj");
	assert_string_equal(config_text(&c, "max_samples"), "100");
	config_free(&c);
	check_ok(parse(&c, VERB_TRAIN, NULL, "--model m --rlhf_type dpo --dataset a.jsonl"));
	assert_string_equal(config_text(&c, "lora_rank"), "8"); /* ms-swift trains adapters unasked */
	assert_string_equal(config_text(&c, "lora_dropout"), "0");
	assert_non_null(strstr(logged, "their defaults differ from those of ms-swift"));
	config_free(&c);
	/* counts more than its file */
	check_ok(parse(&c, VERB_TRAIN, mlx, "lora_layers=[0] learning_rate=3e-5 lr_scheduler_type=linear"));
	assert_string_equal(config_text(&c, "lora_layers"), "[0]");
	assert_string_equal(config_text(&c, "learning_rate"), "3e-05");
	assert_string_equal(config_text(&c, "lr_scheduler_type"), "linear");
	config_free(&c);
	check_ok(parse(&c, VERB_TRAIN, NULL,
	        "--model " MLX_MODEL
	        " --train --data rows --fine-tune-type lora --iters 600 --num-layers 1"));
	assert_string_equal(config_text(&c, "max_steps"), "600");
	assert_string_equal(config_text(&c, "lora_layers"), "[3]");
	assert_string_equal(config_text(&c, "train_on_inputs"), "on");
	config_free(&c);
}

/* ferry has one number of rows for all sets. */
static void test_rows_of_sets(void **state)
{
	static const char *const rows[] = {SWIFT "dataset: a.jsonl#5,b.jsonl\n",
	        SWIFT "dataset: b.jsonl,a.jsonl#5\n", SWIFT "dataset: a.jsonl#5x\n",
	        SWIFT "dataset: a.jsonl\nval_dataset: v.jsonl#5\n",
	        SWIFT "dataset: a.jsonl#5\nval_dataset: v.jsonl\n",
	        SWIFT "dataset: a.jsonl#5\nval_dataset: v.jsonl#6\n"};
	struct config c;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		if (!parse(&c, VERB_TRAIN, rows[i], "") ||
		        !strstr(message(), "number of rows for each data set"))
			fail_msg("case %zu: %s", i, message());
		config_free(&c);
	}
}

static void test_refused(void **state)
{
	static const struct {
		const char *yaml, *says;
	} rows[] = {{SWIFT_PAIRS "cpo\nloss_type: hinge\n",
	                    "rlhf_type=cpo asks for CPO, of which only loss_type sigmoid and simpo"},
	        {SWIFT_PAIRS "simpo\nloss_type: ipo\n", "rlhf_type=simpo asks for CPO"},
	        {SWIFT_PAIRS "orpo\nloss_type: sigmoid\n",
	                "rlhf_type=orpo has a loss of its own; remove loss_type"},
	        {MLX "num_layers: few\n", "num_layers=few is not a number of layers"},
	        {MLX "iters: 10x\n", "iters=10x is not a number of iterations"},
	        {MLX "lora_parameters:\n  scale: large\n",
	                "lora_parameters.scale=large is not a number above 0"}};
	struct config c;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		if (!parse(&c, VERB_TRAIN, rows[i].yaml, "") || !strstr(message(), rows[i].says))
			fail_msg("case %zu: %s", i, message());
		config_free(&c);
	}
}

/* Of words behind an option, those that are neither files nor options belong to a key that takes a list. */
static void test_word_lists(void **state)
{
	struct config c;

	(void)state;
	check_ok(parse(&c, VERB_TRAIN, "max_steps: 3\n",
	        "--lora_rank 8 --lora_target_modules q_proj v_proj data=x"));
	assert_string_equal(config_text(&c, "lora_target_modules"), "[\"q_proj\",\"v_proj\"]");
	assert_string_equal(config_text(&c, "max_steps"), "3");
	config_free(&c);
	assert_int_equal(parse(&c, VERB_TRAIN, NULL, "--output_dir a b"), ERR_INPUT);
	assert_string_equal(message(), "output_dir takes one value, not a list");
	config_free(&c);
	check_ok(parse(&c, VERB_TRAIN, NULL, "--trainable x y{1}"));
	assert_string_equal(config_text(&c, "trainable"), "x|y{1}");
	config_free(&c);
	assert_int_equal(parse(&c, VERB_TRAIN, NULL, "--trainable x{1,2} y"), ERR_INPUT);
	assert_non_null(strstr(message(), "trainable: a word of a list may not contain a comma"));
	config_free(&c);
	assert_int_equal(parse(&c, VERB_TRAIN, NULL, "--max_steps 5 6"), ERR_INPUT);
	assert_non_null(strstr(message(), "6: no such file"));
	config_free(&c);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {cmocka_unit_test(test_understood),
	        cmocka_unit_test(test_contradiction), cmocka_unit_test(test_said),
	        cmocka_unit_test(test_command_line), cmocka_unit_test(test_measured),
	        cmocka_unit_test(test_rows_of_sets), cmocka_unit_test(test_refused),
	        cmocka_unit_test(test_word_lists)};
	char dir[] = "/tmp/ferry_cli_XXXXXX";
	int failed;

	assert_non_null(mkdtemp(dir));
	assert_int_equal(chdir(dir), 0);
	file_put(ZERO_FILE, zero3);
	file_put(FSDP_FILE, fsdp);
	file_put(MLX_MODEL, "{\"model_type\": \"llama\", \"num_hidden_layers\": 4}");
	failed = parse_run_tests(tests);
	file_remove_tree(dir);
	return failed;
}
