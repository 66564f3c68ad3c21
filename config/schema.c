/* The table of keys. */
#include "config/table.h"

#include "optim/schedule.h"
#include "optim/state_format.h"

#include <stdint.h>

/* The table of all keys. Order is the order of help, documentation and config.yaml. A row: name, type, field,
 * default, aliases, words, smallest and largest number, verbs, meaning. */

#define T (1u << VERB_TRAIN)
#define E (1u << VERB_EVAL)
#define G (1u << VERB_GENERATE)
#define P (1u << VERB_PLAN)
#define X (1u << VERB_EXPORT)
#define I (1u << VERB_INSPECT)
#define V (1u << VERB_VERIFY)
#define K (1u << VERB_TOKENIZE)
#define D (1u << VERB_DATA)
#define N (1u << VERB_INIT)
#define O (1u << VERB_TOPO)
#define B (1u << VERB_BENCH)
#define ENGINE (T | E | G | P)
#define ALL ((1u << VERB_COUNT) - 1)
#define ONCE VERB_SETTING_ONCE

#define COUNT_MAX 9e15
#define YES "true on yes 1"
#define NO "false off no 0"
#define LATER "is not supported yet"

static const struct config_word init_weights_words[] = {
        {"pretrained", CONFIG_INIT_WEIGHTS_PRETRAINED, NULL, NULL},
        {"random", CONFIG_INIT_WEIGHTS_RANDOM, NULL, NULL},
        {0},
};
static const struct config_word data_format_words[] = {
        {"auto", CONFIG_DATA_FORMAT_AUTO, NULL, NULL},
        {"alpaca", CONFIG_DATA_FORMAT_ALPACA, NULL, NULL},
        {"prompt_completion", CONFIG_DATA_FORMAT_PROMPT_COMPLETION, NULL, NULL},
        {"text", CONFIG_DATA_FORMAT_TEXT, "completion pretrain pretraining", NULL},
        {"tokens", CONFIG_DATA_FORMAT_TOKENS, "tokenized pretokenized input_ids", NULL},
        {"messages", CONFIG_DATA_FORMAT_MESSAGES, "chat chat_template openai", NULL},
        {"sharegpt", CONFIG_DATA_FORMAT_SHAREGPT, NULL, NULL},
        {0},
};
static const struct config_word off_words[] = {{"off", 0, "none no false", NULL}, {0}};
static const struct config_word auto_words[] = {{"auto", CONFIG_AUTO, NULL, NULL}, {0}};
static const struct config_word vram_words[] = {
        {"auto", CONFIG_AUTO, NULL, NULL}, {"off", 0, "none no", NULL}, {0}};
static const struct config_word auto_zero_words[] = {{"auto", 0, NULL, NULL}, {0}};
static const struct config_word all_words[] = {{"all", 0, "off none", NULL}, {0}};
static const struct config_word show_rows_words[] = {{"all", 1000000000, NULL, NULL}, {0}};
static const struct config_word long_rows_words[] = {
        {"truncate", CONFIG_LONG_ROWS_TRUNCATE, "cut", NULL},
        {"drop", CONFIG_LONG_ROWS_DROP, "skip", NULL},
        {"error", CONFIG_LONG_ROWS_ERROR, "raise", NULL},
        {0},
};
static const struct config_word packing_words[] = {
        {"off", CONFIG_PACKING_OFF, "false no 0 none", NULL},
        {"bfd", CONFIG_PACKING_BFD, YES, NULL},
        {"wrapped", CONFIG_PACKING_BFD, NULL, LATER "; bfd packs rows and keeps them apart"},
        {0},
};
static const struct config_word lr_scheduler_words[] = {
        {"linear", SCHEDULE_LINEAR, "get_linear_schedule_with_warmup", NULL},
        {"cosine", SCHEDULE_COSINE, "get_cosine_schedule_with_warmup", NULL},
        {"constant", SCHEDULE_CONSTANT, "none get_constant_schedule", NULL},
        {"constant_with_warmup", SCHEDULE_CONSTANT_WITH_WARMUP, "get_constant_schedule_with_warmup", NULL},
        {"cosine_with_min_lr", SCHEDULE_COSINE_WITH_MIN_LR, "get_cosine_with_min_lr_schedule_with_warmup",
                NULL},
        {"polynomial", SCHEDULE_POLYNOMIAL, "get_polynomial_decay_schedule_with_warmup", NULL},
        {"cosine_with_restarts", SCHEDULE_COSINE, NULL, LATER "; try cosine"},
        {"inverse_sqrt", SCHEDULE_LINEAR, NULL, LATER "; try linear"},
        {"reduce_lr_on_plateau", SCHEDULE_LINEAR, NULL, LATER "; try linear"},
        {"warmup_stable_decay", SCHEDULE_LINEAR, "wsd", LATER "; try constant_with_warmup"},
        {0},
};
static const struct config_word optimizer_state_words[] = {
#define WORD(id, format, name, other) {name, ADAMW_STATE_##id, other, NULL},
        ADAMW_STATES(WORD)
#undef WORD
                {0},
};
static const struct config_word compute_dtype_words[] = {
        {"bf16", CONFIG_DTYPE_BF16, "bfloat16 auto " YES, NULL},
        {"fp32", CONFIG_DTYPE_FP32, "float32 none " NO, NULL},
        {"fp16", CONFIG_DTYPE_BF16, "float16", LATER "; supported: bf16, fp32"},
        {"fp8", CONFIG_DTYPE_BF16, "float8", LATER "; supported: bf16, fp32"},
        {0},
};
static const struct config_word dtype_words[] = {
        {"auto", CONFIG_DTYPE_AUTO, NULL, NULL},
        {"bf16", CONFIG_DTYPE_BF16, "bfloat16", NULL},
        {"fp32", CONFIG_DTYPE_FP32, "float32", NULL},
        {"fp16", CONFIG_DTYPE_AUTO, "float16", LATER "; supported: bf16, fp32"},
        {0},
};
static const struct config_word reduce_dtype_words[] = {
        {"fp32", CONFIG_DTYPE_FP32, "float32 auto", NULL},
        {"bf16", CONFIG_DTYPE_BF16, "bfloat16", NULL},
        {0},
};
static const struct config_word device_words[] = {
        {"auto", CONFIG_DEVICE_AUTO, NULL, NULL},
        {"host", CONFIG_DEVICE_HOST, "cpu", NULL},
        {"cuda", CONFIG_DEVICE_CUDA, "gpu cuda:0", NULL},
        {0},
};
static const struct config_word cpu_offload_words[] = {
        {"auto", CONFIG_AUTO, NULL, NULL},
        {"on", CONFIG_OFFLOAD_ON, "true yes 1", NULL},
        {"off", 0, "false no 0 none", NULL},
        {"params", CONFIG_OFFLOAD_PARAMS, "parameters weights", NULL},
        {"gradients", CONFIG_OFFLOAD_GRADIENTS, "grads", NULL},
        {"optimizer", CONFIG_OFFLOAD_OPTIMIZER, NULL, NULL},
        {"activations", CONFIG_OFFLOAD_ACTIVATIONS, NULL, NULL},
        {0},
};
static const struct config_word activations_words[] = {
        {"auto", CONFIG_ACTIVATIONS_AUTO, NULL, NULL},
        {"recompute", CONFIG_ACTIVATIONS_RECOMPUTE, "checkpoint " YES, NULL},
        {"keep", CONFIG_ACTIVATIONS_KEEP, "in_memory " NO, NULL},
        {"offload", CONFIG_ACTIVATIONS_OFFLOAD, NULL, NULL},
        {0},
};
static const struct config_word schedule_words[] = {
        {"layer_major", CONFIG_SCHEDULE_LAYER_MAJOR, NULL, NULL},
        {"micro_batch_major", CONFIG_SCHEDULE_MICRO_BATCH_MAJOR, "microbatch_major", NULL},
        {0},
};
static const struct config_word sharding_words[] = {
        {"FULL_SHARD", CONFIG_SHARDING_FULL_SHARD, "zero3 1", NULL},
        {"SHARD_GRAD_OP", CONFIG_SHARDING_SHARD_GRAD_OP, "zero2 2", NULL},
        {"NO_SHARD", CONFIG_SHARDING_NO_SHARD, "ddp zero0 3", NULL},
        {"HYBRID_SHARD", CONFIG_SHARDING_HYBRID_SHARD, "4", NULL},
        {"HYBRID_SHARD_ZERO2", CONFIG_SHARDING_HYBRID_SHARD_ZERO2, "5", NULL},
        {0},
};
static const struct config_word wrap_policy_words[] = {
        {"transformer", CONFIG_WRAP_POLICY_TRANSFORMER, "TRANSFORMER_BASED_WRAP", NULL},
        {"size", CONFIG_WRAP_POLICY_SIZE, "SIZE_BASED_WRAP", NULL},
        {"none", CONFIG_WRAP_POLICY_NONE, "NO_WRAP off", NULL},
        {0},
};
static const struct config_word backward_prefetch_words[] = {
        {"BACKWARD_PRE", CONFIG_BACKWARD_PREFETCH_PRE, "pre on true", NULL},
        {"BACKWARD_POST", CONFIG_BACKWARD_PREFETCH_POST, "post", NULL},
        {"NO_PREFETCH", CONFIG_BACKWARD_PREFETCH_NONE, "none off false", NULL},
        {0},
};
static const struct config_word load_words[] = {
        {"auto", CONFIG_LOAD_AUTO, NULL, NULL},
        {"rank0_only", CONFIG_LOAD_RANK0_ONLY, NULL, NULL},
        {0},
};
static const struct config_word state_dict_words[] = {
        {"SHARDED_STATE_DICT", CONFIG_STATE_DICT_SHARDED, "sharded", NULL},
        {"FULL_STATE_DICT", CONFIG_STATE_DICT_FULL, "full", NULL},
        {"LOCAL_STATE_DICT", CONFIG_STATE_DICT_SHARDED, "local", LATER "; use SHARDED_STATE_DICT"},
        {0},
};
static const struct config_word isa_words[] = {
        {"auto", CONFIG_ISA_AUTO, NULL, NULL},
        {"scalar", CONFIG_ISA_SCALAR, NULL, NULL},
        {"avx2", CONFIG_ISA_AVX2, NULL, NULL},
        {"avx512", CONFIG_ISA_AVX512, NULL, NULL},
        {"neon", CONFIG_ISA_NEON, NULL, LATER "; scalar runs everywhere"},
        {0},
};
static const struct config_word input_format_words[] = {
        {"lines", CONFIG_INPUT_FORMAT_LINES, NULL, NULL},
        {"json", CONFIG_INPUT_FORMAT_JSON, "jsonl", NULL},
        {"whole", CONFIG_INPUT_FORMAT_WHOLE, "file", NULL},
        {0},
};

#define ROW(name, group, type, field, preset, aliases, words, min, max, verbs, meaning)                      \
	{                                                                                                    \
#name, group, type, offsetof(struct config, field), preset, aliases, words, min, max, verbs, \
		        meaning, CONFIG_PATH_NONE                                                            \
	}
#define ROW_PATH(path, name, field, group, preset, aliases, verbs, meaning)                                  \
	{                                                                                                    \
#name, group, TYPE_TEXT, offsetof(struct config, field), preset, aliases, NULL, 0, 0, verbs, \
		        meaning, CONFIG_PATH_##path                                                          \
	}
#define ROW_TEXT(name, group, preset, aliases, verbs, meaning)                                               \
	ROW(name, group, TYPE_TEXT, name, preset, aliases, NULL, 0, 0, verbs, meaning)
#define ROW_FLAG(name, group, preset, aliases, verbs, meaning)                                               \
	ROW(name, group, TYPE_FLAG, name, preset, aliases, NULL, 0, 1, verbs, meaning)
#define ROW_ENUM(name, group, preset, aliases, words, verbs, meaning)                                        \
	ROW(name, group, TYPE_ENUM, name, preset, aliases, words, 0, 0, verbs, meaning)
#define ROW_COUNT(name, group, preset, aliases, words, min, max, verbs, meaning)                             \
	ROW(name, group, TYPE_COUNT, name, preset, aliases, words, min, max, verbs, meaning)
#define ROW_REAL(name, group, preset, aliases, min, max, verbs, meaning)                                     \
	ROW(name, group, TYPE_REAL, name, preset, aliases, NULL, min, max, verbs, meaning)
#define ROW_STEPS(name, group, preset, aliases, verbs, meaning)                                              \
	ROW(name, group, TYPE_STEPS, name, preset, aliases, off_words, 0, COUNT_MAX, verbs, meaning)

const struct config_key config_keys[] = {
        ROW_PATH(MODEL, model, model, "what", "", "model_name_or_path base_model model_name", ENGINE | K | D,
                "HuggingFace model directory; a config.json is enough where no weights are read"),
        ROW_PATH(DATA, data, data, "what", "", "dataset train_file data_path dataset_path", T | E | D | P,
                "file, folder or pattern: .jsonl .json .csv .tsv .parquet .txt .md, also .gz and .zst"),
        ROW_PATH(DATA, eval_data, eval_data, "what", "", "eval_dataset validation_file eval_file", T | P,
                "the same, to evaluate on while training"),
        ROW_PATH(WRITE, output_dir, output_dir, "what", "", "save_dir", T | X | N, "directory for results"),
        ROW_PATH(READ, resume_from_checkpoint, resume_from_checkpoint, "what", "off", "resume", T | ONCE,
                "a checkpoint's path; auto = the newest complete one in output_dir"),
        ROW_FLAG(overwrite_output_dir, "what", "off", "overwrite", T | X | N | ONCE,
                "replace the run in output_dir (export, init: the model)"),
        ROW_ENUM(init_weights, "what", "pretrained", NULL, init_weights_words, T | E | G,
                "random = new weights from the seed"),
        ROW_TEXT(freeze, "what", "", NULL, T | P,
                "regular expression: parameters whose whole name matches keep their values"),
        ROW_TEXT(trainable, "what", "", NULL, T | P,
                "regular expression: only parameters whose whole name matches are trained"),
        ROW_PATH(READ, checkpoint, checkpoint, "what", "", NULL, X, "ferry checkpoint to export"),
        ROW_PATH(READ, path, path, "what", "", "file dir", I | V | K, "file or directory to read"),
        ROW_PATH(READ, config, config_json, "what", "", "config_json", N,
                "config.json of the new model, or its directory"),
        ROW_PATH(READ, machine, machine, "what", "", NULL, T | P | B,
                "description of a machine (examples/machines); train uses its rates instead of measuring"),
        ROW(name, "what", TYPE_TEXT, bench_name, "", "benchmark", NULL, 0, 0, B,
                "benchmark to run; list shows all"),

        ROW_ENUM(data_format, "text", "auto", "dataset_format", data_format_words, T | E | G | D | P,
                "format of a row; auto = from the first row's keys (generate: alpaca wraps the prompt)"),
        ROW_PATH(READ, chat_template, chat_template, "text", "", "template", T | E | K | D | P,
                "template of chats: chatml, llama2, llama3, mistral, gemma, phi3, zephyr, alpaca, vicuna, a "
                "name of the model's, or a file; default: the model's own"),
        ROW_TEXT(chat_template_kwargs, "text", "", NULL, T | E | K | D | P,
                "variables for the chat template, a JSON object"),
        ROW_COUNT(max_length, "text", "1024",
                "sequence_len seq_length seq_len max_seq_length max_seq_len cutoff_len model_max_length "
                "block_size",
                off_words, 0, 16777216, ENGINE | D, "maximum tokens of a row; off = no limit"),
        ROW_ENUM(long_rows, "text", "truncate", "excess_length_strategy", long_rows_words, T | E | D | P,
                "what to do with longer rows"),
        ROW_ENUM(packing, "text", "off", "sample_packing neat_packing packed", packing_words, T | E | D | P,
                "bfd = several rows share max_length tokens, separated from each other"),
        ROW_FLAG(train_on_inputs, "text", "off", "train_on_input train_on_prompt", T | E | D | P,
                "train on prompts too"),
        ROW_FLAG(train_on_last_turn, "text", "off", "mask_history", T | E | D | P,
                "train only on the last assistant turn of a chat"),
        ROW_FLAG(shuffle, "text", "on", NULL, T | P, "a new order in every epoch, from the seed"),
        ROW_COUNT(max_samples, "text", "all", NULL, all_words, 0, COUNT_MAX, T | E | D | P,
                "use only the first N rows"),
        ROW_TEXT(text_field, "text", "text", "dataset_text_field text_column", T | E | D | P,
                "key of the text if data_format=text"),
        ROW_TEXT(data_split, "text", "", "split dataset_split dataset_train_split train_split", T | E | D | P,
                "files of a data folder to read: train, validation or test; default: train"),
        ROW_TEXT(eval_data_split, "text", "", "eval_split_name dataset_test_split", T | P,
                "the same for an eval_data folder; default: validation"),
        ROW_PATH(MODEL, tokenizer, tokenizer, "text", "",
                "tokenizer_name tokenizer_path tokenizer_name_or_path", T | E | G | K | D | N | P,
                "directory with a tokenizer.json; default: the model's"),
        ROW(eval_split, "text", TYPE_REAL, eval_split, "0", "val_set_size val_size validation_split",
                off_words, 0, COUNT_MAX, T | P,
                "rows held back for evaluation: a fraction, or a number of rows above 1"),

        ROW_COUNT(per_device_train_batch_size, "batch", "1",
                "micro_batch_size per_device_batch_size batch_size train_batch_size", NULL, 1, 1e6, T | P,
                "rows (with packing: bins) of a micro-batch on each device"),
        ROW_COUNT(per_device_eval_batch_size, "batch", "auto", "eval_batch_size", auto_zero_words, 0, 1e6,
                T | E | P, "rows of a micro-batch in evaluation; auto = as in training"),
        ROW_COUNT(gradient_accumulation_steps, "batch", "1", "grad_accumulation_steps grad_accum", NULL, 1,
                1e6, T | P | B, "micro-batches in each optimizer step"),
        ROW_REAL(num_train_epochs, "batch", "1", "num_epochs epochs", 0, 1e9, T | P,
                "passes over the data; may be a fraction"),
        ROW_COUNT(max_steps, "batch", "-1", NULL, NULL, -1, COUNT_MAX, T | P,
                "optimizer steps; overrides num_train_epochs; -1 = from epochs"),

        ROW_REAL(learning_rate, "optimizer", "2e-5", "lr", 0, 1e3, T, "peak learning rate"),
        ROW_ENUM(lr_scheduler_type, "optimizer", "linear", "lr_scheduler scheduler", lr_scheduler_words, T,
                "learning-rate schedule, as in transformers"),
        ROW_REAL(min_lr_rate, "optimizer", "0", "cosine_min_lr_ratio min_lr_ratio", 0, 1, T,
                "final share of learning_rate with cosine_with_min_lr"),
        ROW_STEPS(warmup_steps, "optimizer", "0", "num_warmup_steps lr_warmup_steps", T,
                "warm-up steps; below 1: a fraction of the run"),
        ROW_REAL(warmup_ratio, "optimizer", "0", NULL, 0, 1, T,
                "warm-up as a fraction of the run, if warmup_steps is 0"),
        ROW_REAL(weight_decay, "optimizer", "0", NULL, 0, 1e3, T, "weight decay of matrices and embeddings"),
        ROW_REAL(
                adam_beta1, "optimizer", "0.9", "beta1", 0, 0.9999999999, T, "decay of AdamW's first moment"),
        ROW_REAL(adam_beta2, "optimizer", "0.999", "beta2", 0.01, 0.9999999999, T,
                "decay of AdamW's second moment"),
        ROW_REAL(adam_epsilon, "optimizer", "1e-8", "adam_eps", 1e-30, 1, T, "AdamW's epsilon"),
        ROW(max_grad_norm, "optimizer", TYPE_REAL, max_grad_norm, "1.0", "clip_grad_norm gradient_clipping",
                off_words, 0, 1e30, T | P | B, "clip the gradient to this norm; 0 = off"),
        ROW_ENUM(optimizer_state, "optimizer", "fp32", NULL, optimizer_state_words, T | P,
                "storage of AdamW's moments: 8, 4 or 2 bytes a parameter"),
        ROW_FLAG(skip_nonfinite, "optimizer", "on", NULL, T | P, "skip steps whose gradient is not finite"),
        ROW_COUNT(nonfinite_limit, "optimizer", "5", NULL, NULL, 1, 1e9, T,
                "end with exit code 4 after this many skipped steps in a row"),

        ROW_ENUM(compute_dtype, "numbers", "bf16", "mixed_precision bf16", compute_dtype_words, ENGINE,
                "dtype of weights on the device, activations and products; sums are fp32"),
        ROW_ENUM(gradient_dtype, "numbers", "auto", NULL, dtype_words, T | P,
                "dtype of a step's gradient; auto = compute_dtype"),
        ROW_ENUM(reduce_dtype, "numbers", "fp32", NULL, reduce_dtype_words, T | P,
                "dtype of gradients sent between ranks; sums are fp32"),
        ROW_ENUM(export_dtype, "numbers", "auto", "save_dtype", dtype_words, T | X | N,
                "dtype of the exported model; auto = compute_dtype (init: config.json's, else bf16)"),
        ROW_COUNT(seed, "numbers", "42", NULL, NULL, 0, COUNT_MAX, T | E | G | P | D | N,
                "seed of all random numbers"),
        ROW_FLAG(deterministic, "numbers", "on", NULL, ENGINE,
                "the same bits from every run; off has no effect yet"),

        ROW_ENUM(device, "device", "auto", NULL, device_words, ENGINE | B, "device that computes"),
        ROW_COUNT(threads, "device", "auto", "num_threads", auto_words, 1, 4096, ENGINE | D | B,
                "CPU threads; auto = one for each core that this process may use"),
        ROW(cpu_offload, "device", TYPE_SET, cpu_offload, "auto", "fsdp_cpu_offload", cpu_offload_words, 0, 0,
                ENGINE | B,
                "what stays in host memory: a list of params, gradients, optimizer, activations; on = the "
                "first three"),
        ROW_ENUM(activations, "device", "auto",
                "gradient_checkpointing activation_checkpointing enable_activation_checkpointing",
                activations_words, T | P,
                "what a block keeps for backward; auto = the fastest within the budgets, recompute without "
                "one"),
        ROW(vram_budget, "device", TYPE_BYTES, vram_budget_bytes, "auto", NULL, vram_words, 1, 9e18,
                ENGINE | B,
                "maximum GPU memory; auto = all that is free; off = the same, but keep nothing extra on the "
                "GPU"),
        ROW(ram_budget, "device", TYPE_BYTES, ram_budget_bytes, "auto", NULL, auto_words, 1, 9e18, ENGINE,
                "maximum host memory; auto = all that is available"),
        ROW_FLAG(pin_memory, "device", "on", NULL, ENGINE, "pin host memory that is copied to the GPU"),
        ROW_ENUM(schedule, "device", "layer_major", NULL, schedule_words, T | P,
                "layer_major = all micro-batches pass a layer before the next is fetched"),

        ROW_ENUM(sharding_strategy, "sharding", "FULL_SHARD", "sharding", sharding_words, ENGINE | B,
                "what is sharded over the ranks"),
        ROW_ENUM(wrap_policy, "sharding", "transformer", "auto_wrap_policy", wrap_policy_words, ENGINE,
                "which tensors are copied and updated together"),
        ROW_COUNT(min_num_params, "sharding", "1e8", "numel_to_wrap", NULL, 1, COUNT_MAX, ENGINE,
                "minimum parameters of a group if wrap_policy=size"),
        ROW_ENUM(backward_prefetch, "sharding", "BACKWARD_PRE", "bwd_prefetch", backward_prefetch_words,
                T | P, "when backward prefetches the next layer"),
        ROW_FLAG(forward_prefetch, "sharding", "on", "fwd_prefetch", ENGINE, "prefetch in forward too"),
        ROW_COUNT(prefetch_units, "sharding", "auto", NULL, auto_words, 1, 64, ENGINE,
                "layers to prefetch; auto = the fastest within the budgets, 2 without one"),
        ROW_ENUM(load, "sharding", "auto", NULL, load_words, T | E | G,
                "auto = each rank reads its part; rank0_only = rank 0 reads all files"),
        ROW_COUNT(ranks_per_node, "sharding", "auto", NULL, auto_words, 1, 1e6, ENGINE | B,
                "ranks of a group in HYBRID strategies; auto = those of a host"),
        ROW(watchdog_timeout, "sharding", TYPE_COUNT, watchdog_timeout_s, "600", NULL, off_words, 0, 1e9,
                T | E, "seconds until a stuck rank ends the job"),
        ROW_COUNT(check_replicas, "sharding", "0", NULL, off_words, 0, 1e9, T,
                "compare replicas every N steps; 0 = never"),
        ROW_COUNT(world_size, "sharding", "auto", "ranks", auto_words, 1, 1e6, P,
                "number of ranks; auto = one for each GPU of the machine"),

        ROW_STEPS(save_steps, "saving", "500", "checkpointing_steps ckpt_freq", T,
                "save a checkpoint every N steps; below 1: a fraction of the run; 0 = only at the end"),
        ROW_COUNT(save_total_limit, "saving", "2", "keep_last_n_checkpoints", all_words, 0, 1e9, T,
                "checkpoints to keep; all = delete none"),
        ROW_ENUM(state_dict_type, "saving", "SHARDED_STATE_DICT", NULL, state_dict_words, T,
                "FULL_STATE_DICT = rank 0 writes all, with a HuggingFace directory in each checkpoint"),
        ROW_FLAG(save_first_step, "saving", "off", NULL, T,
                "save a checkpoint after the first step, as a test"),
        ROW(max_shard_size, "saving", TYPE_BYTES, max_shard_bytes, "5GB", NULL, NULL, 1024, 9e18, T | X | N,
                "maximum file size of an exported model"),

        ROW_STEPS(
                logging_steps, "watching", "1", "log_every_n_steps log_freq", T, "log metrics every N steps"),
        ROW_STEPS(eval_steps, "watching", "0", NULL, T,
                "evaluate every N steps; below 1: a fraction of the run; 0 = only at the end"),
        ROW_TEXT(sample_prompt, "watching", "", NULL, T | P, "prompt to continue while training"),
        ROW_STEPS(sample_steps, "watching", "0", NULL, T,
                "continue sample_prompt every N steps; 0 = at start and end"),
        ROW_COUNT(trace, "watching", "off", NULL, off_words, 0, 1e6, T,
                "number of steps to record as a Chrome/Perfetto trace"),
        ROW_PATH(WRITE, trace_file, trace_file, "watching", "", NULL, P,
                "file for the planned step as a Chrome/Perfetto trace"),
        ROW_PATH(WRITE, dump_gradients, dump_gradients, "watching", "", NULL, T | P,
                "file for the first step's gradients before clipping, fp32 safetensors"),
        ROW_FLAG(per_token, "watching", "off", NULL, E, "add the loss of every target to the JSON"),

        ROW_TEXT(prompt, "generation", "", NULL, G, "prompt to continue"),
        ROW_TEXT(prompt_ids, "generation", "", NULL, G, "prompt as token ids: 1,2,3"),
        ROW_COUNT(max_new_tokens, "generation", "128", "max_tokens", NULL, 1, 16777216, G | T | P,
                "maximum tokens to generate"),
        ROW_REAL(temperature, "generation", "0", NULL, 0, 1e6, G | T, "sampling temperature; 0 = greedy"),
        ROW(top_p, "generation", TYPE_REAL, top_p, "1", NULL, off_words, 0, 1, G | T,
                "sample from the most likely tokens with this total probability"),
        ROW_COUNT(top_k, "generation", "0", NULL, off_words, 0, 1e9, G | T,
                "sample from the N most likely tokens; 0 = all"),

        ROW_ENUM(input_format, "input", "lines", NULL, input_format_words, K,
                "lines = one text a line; json = one JSON string a line; whole = the file is one text"),
        ROW_FLAG(decode, "input", "off", NULL, K, "decode: each line is a JSON array of ids"),
        ROW_FLAG(add_special_tokens, "input", "on", NULL, K, "add the tokenizer's special tokens"),
        ROW_FLAG(skip_special_tokens, "input", "off", NULL, K, "leave special tokens out of decoded text"),
        ROW_FLAG(chat, "input", "off", NULL, K,
                "each line is a chat, as a row of messages; it is rendered by the chat template"),
        ROW_FLAG(add_generation_prompt, "input", "off", NULL, K, "with chat: end where an answer begins"),
        ROW_COUNT(show_rows, "input", "2", "rows", show_rows_words, 0, 1e9, D, "number of rows to show; all"),
        ROW_FLAG(show_tokens, "input", "off", NULL, D,
                "show each token of these rows with its id and its label"),
        ROW(count, "input", TYPE_COUNT, bench_count, "auto", NULL, auto_zero_words, 1, 1e12, B,
                "size of the benchmark, in its own unit; auto = its default"),
        ROW(models, "input", TYPE_TEXT, bench_models, "", NULL, NULL, 0, 0, B,
                "offload: tiny, 0.1b, 1b, 3b, 8b-8l, 8b, separated by commas; empty = default"),
        ROW(micro_batch_tokens, "input", TYPE_TEXT, bench_tokens, "", NULL, NULL, 0, 0, B,
                "offload: tokens of a micro-batch, separated by commas; empty = default"),

        ROW(host_copy_gbps, "testing", TYPE_REAL, host_copy_gbps, "off", NULL, off_words, 0, 1e6, ENGINE | B,
                "limit the host device's copies each way, in 1e9 bytes/s"),
        ROW_COUNT(stream_delay_seed, "testing", "off", NULL, off_words, 0, COUNT_MAX, ENGINE,
                "seed of random delays on the host device's streams"),
        ROW_ENUM(isa, "testing", "auto", NULL, isa_words, ENGINE | B, "instruction set of the CPU loops"),

        ROW_FLAG(dry_run, "call", "off", NULL, T | ONCE,
                "check everything, print the plan and the first row, write nothing"),
        ROW_FLAG(estimate, "call", "off", NULL, P | ONCE,
                "count only the weights by dtype, as accelerate estimate-memory does"),
        ROW_FLAG(explain, "call", "off", NULL, P | ONCE,
                "list every operation and the candidates, and prove the plan"),
        ROW_FLAG(json, "call", "off", NULL, ALL | ONCE,
                "print one JSON object on stdout, {\"error\": text} on failure; all else on stderr"),
        ROW_FLAG(help, "call", "off", NULL, ALL | ONCE, "list the keys"),
};

const int config_key_count = sizeof(config_keys) / sizeof(*config_keys);
