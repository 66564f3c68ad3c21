/* links: cli */
/* Configuration files of other tools: dialects, aliases, refusals. */
#include "cli/cli.h"
#include "tests/cli_round.h"

/* Configurations for other trainers, as people have them. */

static const char axolotl[] =
        "base_model: models/llama\n"
        "model_type: LlamaForCausalLM\n"
        "datasets:\n  - path: rows.jsonl\n    type: alpaca\n"
        "val_set_size: 0.05\noutput_dir: ./out\nexcess_length_strategy: truncate\nsequence_len: "
        "8192\nsample_packing: true\n"
        "pad_to_sequence_len: true\nwandb_project:\nwandb_entity: me\n"
        "gradient_accumulation_steps: 8\nbatch_size: 16\nnum_epochs: 2\noptimizer: adamw_torch\n"
        "lr_scheduler: cosine\nlearning_rate: 2e-5\nbf16: auto\nfp16:\ntf32: false\n"
        "gradient_checkpointing: true\ngradient_checkpointing_kwargs:\n  use_reentrant: false\n"
        "flash_attention: true\nwarmup_steps: 100\nevals_per_epoch: 2\nsaves_per_epoch: 1\ndebug:\n"
        "deepspeed:\nweight_decay: 0.0\nfsdp: [full_shard, auto_wrap]\n"
        "fsdp_config:\n  fsdp_offload_params: true\n  fsdp_state_dict_type: FULL_STATE_DICT\n"
        "special_tokens:\n  pad_token: <|end_of_text|>\n  eos_token: <|eot_id|>\n";
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
        "save_steps: 500\nlogging_strategy: epoch\nlogging_steps: 10\nevaluation_strategy: "
        "'no'\nlogging_dir: logs\nreport_to: [tensorboard, wandb]\nnum_train_epochs: 4\n"
        "fsdp: full_shard auto_wrap offload\nfsdp_config:\n  backward_prefetch: backward_pre\n"
        "  min_num_params: 2000\nlr_scheduler_type: cosine_with_min_lr\n"
        "lr_scheduler_kwargs:\n  min_lr_rate: 0.1\noptim: adamw_torch_fused\nfp16: false\n"
        "batch_size: 3\ndataloader_num_workers: 4\nload_best_model_at_end: false\n";

static const char axolotl_chat[] =
        "base_model: models/llama\ndatasets:\n  - path: rows.jsonl\n    type: chat_template\n"
        "    field_messages: conversations\n    message_property_mappings:\n      role: from\n"
        "      content: value\n    roles:\n      user: [human, guest]\n      assistant: [gpt]\n"
        "    roles_to_train: [assistant]\n    train_on_eos: turn\nchat_template: chatml\nsequence_len: 512\n"
        "output_dir: o\n";
/* axolotl loads the best checkpoint with early stopping, whatever load_best_model_at_end says. */
static const char axolotl_stops[] =
        "base_model: models/llama\ndatasets:\n  - path: rows.jsonl\n    type: alpaca\nval_set_size: 0.1\n"
        "eval_steps: 10\nsave_steps: 20\nearly_stopping_patience: 3\nmetric_for_best_model: eval_loss\n"
        "load_best_model_at_end: false\nsequence_len: 512\noutput_dir: o\n";
static const char factory_stops[] =
        "model_name_or_path: models/l\nstage: sft\nfinetuning_type: full\ndataset: rows.jsonl\nval_size: "
        "0.1\n"
        "cutoff_len: 512\noutput_dir: o\neval_strategy: steps\neval_steps: 5\nsave_steps: 5\n"
        "early_stopping_steps: 2\nload_best_model_at_end: true\n";
static const char trainer_stops[] =
        "model_name_or_path: models/l\ndataset_name: rows.jsonl\noutput_dir: o\nsave_strategy: best\n"
        "eval_strategy: steps\neval_steps: 4\neval_split: 0.1\nmetric_for_best_model: loss\n"
        "greater_is_better: false\nload_best_model_at_end: true\n";
static const char axolotl_columns[] =
        "base_model: models/llama\ndatasets:\n  - path: rows.jsonl\n    type:\n      field_instruction: q\n"
        "      field_input: more\n      field_output: a\n      field_system: sys\nsequence_len: 512\n"
        "output_dir: o\n";
static const char torchtune_chat[] =
        "dataset:\n  _component_: torchtune.datasets.chat_dataset\n  source: json\n  data_files: rows.json\n"
        "  conversation_column: dialogue\n  conversation_style: sharegpt\n  train_on_input: False\n"
        "checkpointer:\n  checkpoint_dir: models/l\noutput_dir: o\n";
/* The output of TrainingArguments(...).to_json_string(): defaults and nulls, some of them unknown to
 * ferry. */
static const char arguments[] =
        "{\"output_dir\": \"x\", \"per_device_train_batch_size\": 8, \"num_train_epochs\": 3.0, "
        "\"learning_rate\": 5e-05,"
        " \"lr_scheduler_kwargs\": null, \"optim\": \"adamw_torch_fused\", \"optim_args\": null, "
        "\"max_grad_norm\": 1.0,"
        " \"label_smoothing_factor\": 0.0, \"bf16\": false, \"fp16\": false, \"tf32\": null, \"use_cache\": "
        "false,"
        " \"activation_checkpointing_kwargs\": null, \"liger_kernel_config\": null, \"project\": "
        "\"huggingface\","
        " \"trackio_space_id\": null, \"trackio_bucket_id\": null, \"trackio_static_space_id\": null,"
        " \"eval_do_concat_batches\": true, \"eval_use_gather_object\": false, \"batch_eval_metrics\": false,"
        " \"include_for_metrics\": [], \"save_total_limit\": null, \"enable_jit_checkpoint\": false,"
        " \"parallelism_config\": null, \"train_sampling_strategy\": \"random\", \"fsdp\": null, \"debug\": "
        "\"\","
        " \"do_train\": false, \"do_eval\": false, \"invented_yesterday\": null, \"local_rank\": -1}";

static const struct {
	const char *yaml, *key, *text;
} foreign[] = {
        {axolotl_chat, "data_format", "messages"},
        {axolotl_chat, "field_messages", "conversations"},
        {axolotl_chat, "field_role", "from"},
        {axolotl_chat, "field_content", "value"},
        {axolotl_chat, "role_user", "human,guest"},
        {axolotl_chat, "role_assistant", "gpt"},
        {axolotl_columns, "field_instruction", "q"},
        {axolotl_columns, "field_input", "more"},
        {axolotl_columns, "alpaca_form", "stanford"},
        {axolotl_columns, "field_output", "a"},
        {axolotl_columns, "field_system", "sys"},
        {torchtune_chat, "field_messages", "dialogue"},
        {torchtune_chat, "data", "rows.json"},
        {axolotl, "model", "models/llama"},
        {axolotl_stops, "early_stopping_patience", "3"},
        {axolotl_stops, "load_best_model_at_end", "on"},
        {axolotl_stops, "metric_for_best_model", "eval_loss"},
        {factory_stops, "early_stopping_patience", "2"},
        {factory_stops, "load_best_model_at_end", "on"},
        {trainer_stops, "save_steps", "best"},
        {trainer_stops, "metric_for_best_model", "loss"},
        {trainer_stops, "greater_is_better", "off"},
        {trainer_stops, "load_best_model_at_end", "on"},
        {axolotl, "data", "rows.jsonl"},
        {axolotl, "data_format", "alpaca"},
        {axolotl, "eval_split", "0.05"},
        {axolotl, "max_length", "8192"},
        {axolotl, "packing", "bfd"},
        {axolotl, "per_device_train_batch_size", "2"},
        {axolotl, "per_device_eval_batch_size", "2"},
        {axolotl, "save_steps", "epoch"},
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
        {torchtune, "max_grad_norm", "off"},
        {torchtune, "train_on_inputs", "on"},
        {torchtune, "max_length", "off"},
        {"dataset:\n  _component_: torchtune.datasets.alpaca_dataset\n  train_on_input: False\n",
                "train_on_inputs", "off"},
        {"dataset:\n  train_on_input: False\n  _component_: torchtune.datasets.alpaca_dataset\n",
                "train_on_inputs", "off"},
        {"dataset:\n  _component_: torchtune.datasets.alpaca_dataset\n  source: ../alpaca.json\n", "data",
                "../alpaca.json"},
        {"output_dir: /tmp/${seed}\nseed: 3\ncheckpointer:\n  output_dir: ${output_dir}\nmetric_logger:\n"
         "  log_dir: ${output_dir}/logs\n",
                "output_dir", "/tmp/3"},
        {arguments, "max_grad_norm", "1"},
        {arguments, "learning_rate", "5e-05"},
        {arguments, "compute_dtype", "fp32"},
        {"optim: adamw_torch\nmax_grad_norm: null\n", "max_grad_norm", "off"},
        {"optim: adamw_bnb_8bit\n", "optimizer_state", "8bit"},
        {"optimizer: adamw_torch_4bit\n", "optimizer_state", "8bit"},
        {"optim: paged_adamw_8bit\noptimizer_state: bf16\n", "optimizer_state", "bf16"},
        {"optimizer:\n  _component_: bitsandbytes.optim.PagedAdamW8bit\n", "optimizer_state", "8bit"},
        {"optim: paged_adamw_32bit\n", "optimizer_state", "fp32"},
        {"datasets:\n  - path: a.jsonl\n    type: chat_template\n    field_messages: messages\n"
         "    message_field_role: role\n    message_field_content: content\n    roles_to_train: "
         "[\"assistant\"]\n"
         "    train_on_eos: turn\n",
                "data", "a.jsonl"},
        {"datasets:\n  - path: a.jsonl\nmicro_batch_size: 2\nbatch_size: 8\n", "gradient_accumulation_steps",
                "4"},
        {"datasets:\n  - path: a.jsonl\nmicro_batch_size: 2\nbatch_size: 4\ngradient_accumulation_steps: 2\n",
                "per_device_train_batch_size", "2"},
        {"model: m\nmodel_class: llm\nglobal_batch_size: 8\n", "gradient_accumulation_steps", "8"},
        {"model: m\nmodel_class: llm\nglobal_batch_size: 8\nmicro_batch_size: 2\nranks: 2\n",
                "gradient_accumulation_steps", "2"},
        {"dataset_name: d\ndataset_streaming: true\n", "shuffle", "off"},
        {"dataset_name: d\ndataset_streaming: true\nshuffle_dataset: true\n", "shuffle", "on"},
        {"dataset_name: d\ndataset_streaming: false\nshuffle_dataset: false\n", "shuffle", "on"},
        {llama_factory, "max_length", "2048"},
        {llama_factory, "alpaca_form", "chat"},
        {"stage: pt\nfinetuning_type: full\n", "long_rows", "split"},
        {"stage: pt\nfinetuning_type: full\n", "packing", "bfd"},
        {"stage: pt\nfinetuning_type: full\npacking: false\n", "packing", "off"},
        {"stage: sft\nfinetuning_type: full\ntemplate: llama3\n", "chat_template", "llama3"},
        {"stage: sft\nfinetuning_type: full\ntemplate: qwen2_vl\n", "chat_template", "default"},
        {"base_model: m\nmicro_batch_size: 1\nlr_scheduler: cosine\ncosine_min_lr_ratio: 0.1\n",
                "lr_scheduler_type", "cosine_with_min_lr"},
        {"base_model: m\nmicro_batch_size: 1\nchat_template: jinja\nchat_template_jinja: t.jinja\n",
                "chat_template", "t.jinja"},
        {"datasets:\n  - path: a.jsonl\n    type: completion\nmicro_batch_size: 1\n", "long_rows", "split"},
        {"optim: adamw_torch\neval_strategy: 'no'\ndtype: float32\nbf16: true\n", "compute_dtype", "bf16"},
        {"loss:\n  _component_: torchtune.modules.loss.CEWithChunkedOutputLoss\n  num_output_chunks: 8\n"
         "clip_grad_norm: 0.5\n",
                "max_grad_norm", "0.5"},
        {llama_factory, "warmup_ratio", "0.1"},
        {llama_factory, "chat_template", "alpaca"},
        {llama_factory, "eval_split", "0.1"},
        {llama_factory, "learning_rate", "1e-05"},
        {"dataset_name: d\nassistant_only_loss: false\n", "train_on_inputs", "chats"},
        {"dataset_name: d\ncompletion_only_loss: true\nassistant_only_loss: false\n", "train_on_inputs",
                "chats"},
        {"dataset_name: d\nassistant_only_loss: true\ncompletion_only_loss: false\n", "train_on_inputs",
                "prompts"},
        {"completion_only_loss: false\nassistant_only_loss: false\n", "train_on_inputs", "on"},
        {"assistant_only_loss: true\ncompletion_only_loss: true\ntrain_on_inputs: off\n", "train_on_inputs",
                "off"},
        {"train_on_inputs: [prompts, chats]\n", "train_on_inputs", "on"},
        {"base_model: m\nmicro_batch_size: 1\nchat_template: chatml\ndatasets:\n  - path: a.jsonl\n    type: "
         "alpaca\n",
                "alpaca_form", "stanford_newline"},
        {"datasets:\n  - path: a.jsonl\n    type: alpaca\nalpaca_form: chat\n", "alpaca_form", "chat"},
        {"seed: 7\ndata_seed: 7\noptim: adamw_torch\n", "seed", "7"},
        {"tokenizer:\n  path: /tmp/t.model\ncheckpointer:\n  checkpoint_dir: /tmp/m\n", "tokenizer",
                "/tmp/t.model"},
        {"tokenizer:\n  path: /tmp/m/original/t.model\ncheckpointer:\n  checkpoint_dir: /tmp/m/\n",
                "tokenizer", ""},
        {"unfrozen_parameters:\n  - ^lm_head.weight$\n  - model.layers.3.\n", "trainable",
                "(^lm_head.weight$)|(model.layers.3.).*"},
        {"warmup: 10\n", "warmup_steps", "10"},
        {"precision: bf16-mixed\n", "compute_dtype", "bf16"},
        {"chat_template_path: a.jinja\n", "chat_template", "a.jinja"},
        {"enable_thinking: false\n", "chat_template_kwargs", "{\"enable_thinking\":false}"},
        {"chat_template_kwargs:\n  a: 1\n  b: x\n", "chat_template_kwargs", "{\"a\":1,\"b\":\"x\"}"},
        {transformers, "save_steps", "epoch"},
        {transformers, "logging_steps", "epoch"},
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
		assert_round_trip(foreign[i].yaml, "");
		config_free(&c);
	}
}

/* The command line is stronger than a file, in whichever way each says how often. */
static void test_strategies_by_layer(void **state)
{
	static const struct {
		const char *yaml, *words, *key, *text;
	} rows[] = {{"save_strategy: epoch\nsave_steps: 500\n", "save_steps=7", "save_steps", "7"},
	        {"save_steps: 500\n", "save_strategy=epoch", "save_steps", "epoch"},
	        {"save_strategy: epoch\nsave_steps: 500\n", "save_strategy=steps", "save_steps", "500"},
	        {"save_steps: 500\nsave_strategy: epoch\n", "", "save_steps", "epoch"},
	        {"save_strategy: 'no'\n", "", "save_only_model", "on"},
	        {"save_strategy: 'no'\n", "save_strategy=epoch", "save_only_model", "off"},
	        {"eval_split: 2\neval_strategy: epoch\n", "eval_strategy=no", "eval_steps", "off"},
	        {"eval_split: 2\neval_strategy: 'no'\neval_steps: 100\n", "", "eval_steps", "off"},
	        {"eval_split: 2\neval_strategy: 'no'\n", "eval_steps=5", "eval_steps", "5"},
	        {"logging_strategy: 'no'\nlogging_steps: 5\n", "", "logging_steps", "off"},
	        {"logging_strategy: 'no'\n", "logging_strategy=epoch", "logging_steps", "epoch"},
	        {"stage: pt\nfinetuning_type: full\n", "stage=sft", "packing", "off"}};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		char yaml[200];
		struct config c;

		snprintf(yaml, sizeof(yaml), "optim: adamw_torch\nnum_train_epochs: 4\n%s", rows[i].yaml);
		assert_int_equal(parse(&c, VERB_TRAIN, yaml, rows[i].words), 0);
		assert_string_equal(config_text(&c, rows[i].key), rows[i].text);
		assert_round_trip(yaml, rows[i].words);
		config_free(&c);
	}
}

/* What a file only means is in the resolved configuration too. */
static void test_meaning_is_kept(void **state)
{
	struct str yaml = {0};
	struct config c;

	(void)state;
	assert_int_equal(parse(&c, VERB_TRAIN, llama_factory, ""), 0);
	config_write_yaml(&yaml, &c);
	assert_non_null(strstr(yaml.data, "\nalpaca_form: chat\n"));
	str_free(&yaml);
	config_free(&c);
}

/* Several times an epoch are a share of the run, which max_steps may end elsewhere. */
static void test_epochs_and_max_steps(void **state)
{
	struct config c;

	(void)state;
	assert_int_equal(
	        parse(&c, VERB_TRAIN, "datasets:\n  - path: a.jsonl\nsaves_per_epoch: 4\nmax_steps: 9\n", ""),
	        0);
	assert_string_equal(config_text(&c, "save_steps"), "0.25");
	assert_non_null(strstr(logged, "ferry takes save_steps=0.25, a share of the run"));
	config_free(&c);
	assert_int_equal(
	        parse(&c, VERB_TRAIN, "datasets:\n  - path: a.jsonl\nsaves_per_epoch: 1\nmax_steps: 9\n", ""),
	        0);
	assert_string_equal(config_text(&c, "save_steps"), "epoch");
	assert_null(strstr(logged, "a share of the run"));
	config_free(&c);
}

static void test_dialects(void **state)
{
	static const struct {
		const char *yaml, *name;
	} rows[] = {{axolotl, "axolotl"}, {accelerate, "accelerate"}, {torchtune, "torchtune"},
	        {llama_factory, "LLaMA-Factory"}, {transformers, "TRL"},
	        {arguments, "transformers (TrainingArguments)"},
	        {"packing: bfd\nmax_length: 512\nmodel: m\n", NULL}, {"lr: 1\nmodel: m\n", NULL}};
	struct config c;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		char line[64];

		assert_int_equal(parse(&c, VERB_TRAIN, rows[i].yaml, ""), 0);
		if (!rows[i].name) {
			assert_null(strstr(logged, "reading it as"));
		} else {
			snprintf(line, sizeof(line), "reading it as a configuration of %s", rows[i].name);
			assert_non_null(strstr(logged, line));
		}
		assert_round_trip(rows[i].yaml, "");
		config_free(&c);
	}
	assert_int_equal(parse(&c, VERB_TRAIN, axolotl, ""), 0);
	assert_non_null(strstr(logged,
	        "ignoring keys without effect on results: model_type, pad_to_sequence_len, wandb_entity, "
	        "tf32, "
	        "gradient_checkpointing_kwargs.use_reentrant, flash_attention, special_tokens.pad_token\n"));
	assert_string_equal(c.eos_token, "<|eot_id|>");
	config_free(&c);
}

/* If a trainer's default differs from ferry's, the output says so. */
static void test_other_defaults(void **state)
{
	static const struct {
		const char *yaml, *args, *says;
	} rows[] = {
	        {"{\"output_dir\": \"o\", \"bf16\": true, \"remove_unused_columns\": false}", "num_epochs=1",
	                "these keys are not set, and their defaults differ from those of transformers "
	                "(TrainingArguments) (in brackets): per_device_train_batch_size 1 (8), learning_rate "
	                "2e-05 (5e-5), save_total_limit 2 (all)\n"},
	        {"dataset_name: d\nbf16: true\nnum_train_epochs: 1\n", "",
	                "those of TRL (in brackets): per_device_train_batch_size 1 (8), "
	                "train_on_inputs off (chats), save_total_limit 2 (all)\n"},
	        {"dataset_name: d\ncompletion_only_loss: true\nnum_train_epochs: 1\n", "",
	                "per_device_train_batch_size 1 (8), train_on_inputs off (chats), save_total_limit 2 "
	                "(all)\n"},
	        {"dataset_name: d\nassistant_only_loss: true\nbatch_size: 8\nnum_train_epochs: 1\n",
	                "save_total_limit=3", NULL},
	        {"dataset_name: d\nbatch_size: 8\nnum_train_epochs: 1\n",
	                "train_on_inputs=off save_total_limit=3", NULL},
	        {axolotl_columns, "",
	                "datasets.0.type.field_instruction: axolotl writes these rows as "
	                "\"{instruction} {input} \", ferry in Stanford's words"},
	        {"# nothing\n", "", "is empty: it sets no key\n"},
	        {axolotl, "save_total_limit=3", NULL},
	        {"datasets:\n  - path: a.jsonl\n", "",
	                "lr_scheduler_type linear (cosine), max_length 1024 (512), warmup_ratio 0 (0.03, at "
	                "most 100 steps), save_total_limit 2 (4), long_rows truncate (drop)\n"},
	        {"datasets:\n  - path: a.jsonl\nwarmup_steps: 10\n", "",
	                "lr_scheduler_type linear (cosine), max_length 1024 (512), save_total_limit 2 (4), "
	                "long_rows truncate (drop)\n"},
	        {torchtune, "",
	                "lr_scheduler_type linear (constant), weight_decay 0 (0.01), save_total_limit 2 "
	                "(all)\n"},
	        {"lr: 1\n", "", NULL},
	        {accelerate, "", NULL},
	        {accelerate, "",
	                "num_processes=8 has no effect: one rank trains, with 1/8 of the rows of a step; for "
	                "8 ranks set ranks=8"},
	};
	struct config c;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		assert_int_equal(parse(&c, VERB_TRAIN, rows[i].yaml, rows[i].args), 0);
		if (rows[i].says ? !strstr(logged, rows[i].says) : strstr(logged, "defaults differ") != NULL)
			fail_msg("case %zu: %s", i, logged);
		assert_round_trip(rows[i].yaml, rows[i].args);
		config_free(&c);
	}
	assert_int_equal(parse(&c, VERB_TRAIN, NULL, "lr=1 --learning-rate 2 seed=3"), 0);
	assert_string_equal(logged, "learning_rate is set twice; using learning-rate=2\n");
	config_free(&c);
}

static const struct {
	const char *yaml, *text;
} refused[] = {
        {"datasets:\n  - path: a.jsonl\nmicro_batch_size: 2\nbatch_size: 8\ngradient_accumulation_steps: 2\n",
                "YAML:4: batch_size=8 is not micro_batch_size 2 x gradient_accumulation_steps 2; it counts "
                "the "
                "rows of a whole step; change one of them"},
        {"output_dir: ${nowhere}/x\n",
                "YAML:1: output_dir: ${nowhere} refers to no key of this file; write the value"},
        {"seed: ${seed}\n", "YAML:1: seed: ${seed} refers to no key of this file; write the value"},
        {"finetuning_type: freeze\n",
                "YAML:1: finetuning_type=freeze: ferry chooses parameters by name; write "
                "trainable='model\\.layers\\.3[01]\\..*' (layers 30 and 31), with finetuning_type=full"},
        {"freeze_layers: 2\n", "YAML:1: freeze_layers=2: ferry chooses parameters by name; write "
                               "freeze='model\\.layers\\.(0|1)\\..*'"},
        {"finetuning_type: freeze\nfreeze_trainable_layers: 2\n",
                "YAML:1: finetuning_type=freeze, freeze_trainable_layers=2 (line 2): ferry chooses "
                "parameters by "
                "name; write trainable='model\\.layers\\.3[01]\\..*' (layers 30 and 31), with "
                "finetuning_type=full"},
        {"unfrozen_parameters:\n  - a$[:32000]\n",
                "YAML:2: unfrozen_parameters=a$[:32000]: ferry trains whole parameters; remove the range of "
                "rows"},
        {"xyzzy: 1\nplugh: 2\nlearning_rate: x\n", "2 problems:\n  YAML:3: learning_rate=x is not a number\n "
                                                   " YAML: unknown keys: xyzzy (line 1), "
                                                   "plugh (line 2); see ferry train --help"},
        {"zero_optimization:\n  stage: 3\nfp16:\n  enabled: true\n",
                "YAML:4: fp16.enabled=true: fp16 is not supported; bf16 needs no loss scale: set bf16"},
        {"train_micro_batch_size_per_gpu: auto\nxyzzy: 1\n",
                "YAML:2: unknown key \"xyzzy\"; see ferry train --help"},
        {"zero_optimization:\n  stage: 4\n  offload_param:\n    device: nvme\n",
                "2 problems:\n  YAML:2: zero_optimization.stage=4: not supported; supported: 0, 1, 2, 3\n  "
                "YAML:4: zero_optimization.offload_param.device=nvme: weights and optimizer state on a disk "
                "are not supported yet; set it to cpu"},
        {"train_micro_batch_size_per_gpu: 4\ngradient_accumulation_steps: 2\ntrain_batch_size: 9\n",
                "YAML:3: train_batch_size=9 is not train_micro_batch_size_per_gpu 4 x "
                "gradient_accumulation_steps 2; it counts the rows of a whole step; change one of them"},
        {"train_micro_batch_size_per_gpu: 4\ncompression_training:\n  layer_reduction:\n    enabled: true\n"
         "xyzzy: 1\n",
                "YAML:4: compression_training.layer_reduction.enabled=true: this file compresses or drops "
                "parts of the model while it trains, which ferry cannot do"},
        {"train_on_inputs: on\ncompletion_only_loss: true\n",
                "YAML:2: completion_only_loss was already set on line 1 by train_on_inputs, to another "
                "value; keep one of them"},
        {"completion_only_loss: maybe\n", "YAML:1: completion_only_loss=maybe: is neither on nor off"},
        {"optim: adamw_torch\nseed: 3\ndata_seed: 7\n",
                "YAML:3: data_seed=7 differs from seed, by which ferry orders rows; remove it or set seed"},
        {"optim: adamw_torch\nsave_strategy: epoch\neval_strategy: epoch\n",
                "YAML:3: eval_strategy=epoch needs rows to evaluate on; set eval_data or eval_split"},
        {"sequence_len: 5\nmax_samples: 1__0\nlearnin_rate: 1\nxyzzy: 2\n",
                "2 problems:\n  YAML:2: max_samples=1__0 has the unknown unit \"__0\"; supported: k M G T\n  "
                "YAML: unknown keys: learnin_rate (line 3; did you mean learning_rate?), xyzzy (line 4); see "
                "ferry train --help"},
        {"flex.mode: 1\nfsdp_config:\n  cpu_offlod: on\n",
                "YAML: unknown keys: flex.mode (line 1), fsdp_config.cpu_offlod (line 3; did you mean "
                "cpu_offload?); see ferry train --help"},
        {"datasets:\n  - path: a.jsonl\n    split: train\n  - path: b.jsonl\n    split: test\n",
                "YAML:5: datasets.1.split=test: data sets with different splits are not supported; name "
                "their files in data"},
        {"datasets:\n  - path: a.jsonl\n    field_thinking: thinking\n",
                "YAML:3: datasets.0.field_thinking=thinking renames a member of messages; members keep "
                "their names: rename it in the rows"},
        {"fsdp_config: /nowhere.json\n",
                "YAML:1: fsdp_config=/nowhere.json: /nowhere.json: cannot open: No such file or directory"},
        {"reward_model: true\nxyzzy: 1\nlearning_rate: x\n",
                "YAML:1: reward_model=true: this file trains a reward model; write a file of ferry's keys "
                "with objective=reward"},
        {"base_model: m\nsequence_len: 9\nplugins:\n  - axolotl.integrations.kd.KDPlugin\n",
                "YAML:4: plugins=axolotl.integrations.kd.KDPlugin: this file distills a teacher, which ferry "
                "cannot do"},
        {"adapter: lora\nlora_r: 8\nlora_alpha: 8\nlora_target_linear: true\nunfrozen_parameters: [a]\n",
                "YAML:5: unfrozen_parameters=a beside an adapter trains weights of the base too; remove one "
                "of "
                "the two"},
        {"base_model: m\nsequence_len: 9\nfloat16: true\n",
                "YAML:3: float16=true: fp16 is not supported; bf16 needs no loss scale: set bf16"},
        {"stage: sft\nexport_dir: o\n",
                "YAML:2: export_dir=o: this file exports a model; for an adapter use ferry merge"},
        {"recipe: bf16\ntrain_router: true\n", "YAML:2: train_router=true: not supported; remove it"},
        {"train_dataset: a.jsonl\nbatching_strategy: dynamic_batching\n",
                "YAML:2: batching_strategy=dynamic_batching: micro-batches of varying size are not "
                "supported"},
        {"s2_attention: true\n", "YAML:1: s2_attention=true: shifted attention is not supported; remove it"},
        {"datasets:\n  - path: a.jsonl\n    type:\n      format: \"Q: {instruction}\\nA:\"\n",
                "YAML:4: datasets.0.type.format=Q: {instruction}\\nA:: ferry writes instructions in "
                "Stanford's words, or as chats with alpaca_form=chat; remove it"},
        {"datasets:\n  - path: a.jsonl\n    split: train\n    type: alpaca_chat.load_qa\n",
                "YAML:4: datasets.0.type=alpaca_chat.load_qa is not supported; supported: auto, tokens, "
                "messages, sharegpt, alpaca, prompt_completion, text, preference, texts, labels"},
        {"data_format: mesages\n",
                "YAML:1: data_format=mesages is not supported; did you mean messages? supported: auto, "
                "tokens, messages, sharegpt, alpaca, prompt_completion, text, preference, texts, labels"},
        {"gradient_acumulation: 4\n",
                "YAML:1: unknown key \"gradient_acumulation\"; did you mean gradient_accumulation_steps?"},
        {"loss: focal\n",
                "YAML:1: loss=focal: only cross-entropy and one loss of pairs are supported; set one"},
        {"loss:\n  z_loss: 0.1\n",
                "YAML:2: loss.z_loss=0.1: only plain cross-entropy is supported; remove it"},
        {"stage: ppo\n",
                "YAML:1: stage=ppo: this file trains by reinforcement learning (PPO), which ferry cannot do"},
        {"stage: kt\n", "YAML:1: stage=kt: not supported; supported: sft, pt, dpo, kto"},
        {"rl: ppo\n", "YAML:1: rl=ppo: this file trains by reinforcement learning, which ferry cannot do"},
        {"rl: other\n", "YAML:1: rl=other: not supported; supported: dpo, ipo, simpo, orpo, kto"},
        {"optim: adafactor\n", "YAML:1: optim=adafactor: only AdamW is supported"},
        {"fp16: true\n", "YAML:1: fp16=true: fp16 is not supported; bf16 needs no loss scale: set bf16"},
        {"deepspeed: /nowhere.json\n",
                "YAML:1: deepspeed=/nowhere.json: /nowhere.json: cannot open: No such file or directory"},
        {"neftune_noise_alpha: -5\n", "YAML:1: neftune_noise_alpha=-5 must be between 0 and 1000000"},
        {"datasets:\n  - path: a.jsonl\n    shards: 4\n  - path: b.jsonl\n",
                "YAML:3: datasets.0.shards=4: of a data set, path, data_files, type, split, weight and its "
                "columns are supported"},
        {"datasets:\n  - path: a.jsonl\n  - type: alpaca\n", "YAML:2: data set 2 has no path"},
        {"dataset: a,b,c\ninterleave_probs: 0.5,0.5\nstage: sft\nfinetuning_type: full\n",
                "YAML:2: interleave_probs=0.5,0.5 must have one weight for each data set of a,b,c"},
        {"datasets:\n  - path: a.jsonl\nbatch_size: 3\ngradient_accumulation_steps: 2\n",
                "YAML:3: batch_size=3 is not a multiple of gradient_accumulation_steps 2; it counts the rows "
                "of a whole step; change one of them"},
        {"model: m\nmodel_class: llm\nglobal_batch_size: 9\nmicro_batch_size: 2\n",
                "YAML:3: global_batch_size=9 is not a multiple of micro_batch_size 2; it counts the rows of "
                "a whole step; change one of them"},
        {"model: m\nmodel_class: llm\nglobal_batch_size: many\n",
                "YAML:3: global_batch_size=many: not a number of rows"},
        {"stage: sft\nfinetuning_type: full\ndo_train: false\n",
                "YAML:3: do_train=false: ferry train always trains; to measure the loss alone, run ferry "
                "eval"},
};

static void test_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
		struct config c;
		int err = parse(&c, VERB_TRAIN, refused[i].yaml, "");

		if (err != ERR_INPUT && err != ERR_UNSUPPORTED)
			fail_msg("case %zu is not refused: %s", i, refused[i].text);
		assert_string_equal(message(), refused[i].text);
		assert_round_trip(refused[i].yaml, "");
		config_free(&c);
	}
}

/* Refused for training, not for what the file asks for. */
static void test_do_train(void **state)
{
	struct config c;

	(void)state;
	assert_int_equal(
	        parse(&c, VERB_EVAL, "model: m\nstage: sft\ndo_train: false\ndo_eval: true\n", ""), 0);
	config_free(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_foreign),
	        cmocka_unit_test(test_strategies_by_layer),
	        cmocka_unit_test(test_meaning_is_kept),
	        cmocka_unit_test(test_epochs_and_max_steps),
	        cmocka_unit_test(test_dialects),
	        cmocka_unit_test(test_other_defaults),
	        cmocka_unit_test(test_refused),
	        cmocka_unit_test(test_do_train),
	};

	return parse_run_tests(tests);
}
