/* The configuration of one command: every key that a person can set, typed.
 *
 * Mental model. One table (config/schema.c) says of each key its name, type, default, aliases, the verbs
 * that know it, a line of meaning and which values are refused. The parser, the help, docs/reference/keys.md
 * and the config.yaml that a run leaves are all made from it. Settings come from the table's defaults, then
 * configuration files, then the command line; the later one wins. Of each key the place it was set is
 * remembered, so that a complaint made much later still names file and line (config_where).
 *
 * Words that stand for a number have a value here: `auto` is CONFIG_AUTO, `off` is 0. Texts are owned by the
 * struct, NULL where nothing was set. Texts of files written for other tools are understood too
 * (config/foreign.c).
 */
#ifndef FERRY_CONFIG_CONFIG_H
#define FERRY_CONFIG_CONFIG_H

#include "base/str.h"

#include <stdint.h>

enum verb {
	VERB_TRAIN,
	VERB_EVAL,
	VERB_GENERATE,
	VERB_PLAN,
	VERB_EXPORT,
	VERB_INSPECT,
	VERB_VERIFY,
	VERB_TOKENIZE,
	VERB_DATA,
	VERB_INIT,
	VERB_TOPO,
	VERB_BENCH,
	VERB_COUNT
};

enum { CONFIG_AUTO = -1 };

enum config_init_weights { CONFIG_INIT_WEIGHTS_PRETRAINED, CONFIG_INIT_WEIGHTS_RANDOM };
enum config_data_format {
	CONFIG_DATA_FORMAT_AUTO,
	CONFIG_DATA_FORMAT_TOKENS,
	CONFIG_DATA_FORMAT_TEXT,
	CONFIG_DATA_FORMAT_ALPACA,
	CONFIG_DATA_FORMAT_PROMPT_COMPLETION,
	CONFIG_DATA_FORMAT_MESSAGES,
	CONFIG_DATA_FORMAT_SHAREGPT,
};
enum config_long_rows { CONFIG_LONG_ROWS_TRUNCATE, CONFIG_LONG_ROWS_DROP, CONFIG_LONG_ROWS_ERROR };
enum config_packing { CONFIG_PACKING_OFF, CONFIG_PACKING_BFD };
enum config_dtype { CONFIG_DTYPE_AUTO, CONFIG_DTYPE_BF16, CONFIG_DTYPE_FP32 };
enum config_device { CONFIG_DEVICE_AUTO, CONFIG_DEVICE_CUDA, CONFIG_DEVICE_HOST };
enum config_offload { /* bits of cpu_offload */
	CONFIG_OFFLOAD_PARAMS = 1,
	CONFIG_OFFLOAD_GRADIENTS = 2,
	CONFIG_OFFLOAD_OPTIMIZER = 4,
	CONFIG_OFFLOAD_ACTIVATIONS = 8,
	CONFIG_OFFLOAD_ON = CONFIG_OFFLOAD_PARAMS | CONFIG_OFFLOAD_GRADIENTS | CONFIG_OFFLOAD_OPTIMIZER
};
enum config_activations {
	CONFIG_ACTIVATIONS_RECOMPUTE,
	CONFIG_ACTIVATIONS_KEEP,
	CONFIG_ACTIVATIONS_OFFLOAD,
	CONFIG_ACTIVATIONS_AUTO
};
enum config_schedule { CONFIG_SCHEDULE_LAYER_MAJOR, CONFIG_SCHEDULE_MICRO_BATCH_MAJOR };
enum config_sharding {
	CONFIG_SHARDING_FULL_SHARD,
	CONFIG_SHARDING_SHARD_GRAD_OP,
	CONFIG_SHARDING_NO_SHARD,
	CONFIG_SHARDING_HYBRID_SHARD,
	CONFIG_SHARDING_HYBRID_SHARD_ZERO2
};
enum config_wrap_policy { CONFIG_WRAP_POLICY_TRANSFORMER, CONFIG_WRAP_POLICY_SIZE, CONFIG_WRAP_POLICY_NONE };
enum config_backward_prefetch {
	CONFIG_BACKWARD_PREFETCH_PRE,
	CONFIG_BACKWARD_PREFETCH_POST,
	CONFIG_BACKWARD_PREFETCH_NONE
};
enum config_load { CONFIG_LOAD_AUTO, CONFIG_LOAD_RANK0_ONLY };
enum config_state_dict { CONFIG_STATE_DICT_SHARDED, CONFIG_STATE_DICT_FULL };
enum config_isa { CONFIG_ISA_AUTO, CONFIG_ISA_SCALAR, CONFIG_ISA_AVX2, CONFIG_ISA_AVX512, CONFIG_ISA_NEON };
enum config_input_format { CONFIG_INPUT_FORMAT_LINES, CONFIG_INPUT_FORMAT_JSON, CONFIG_INPUT_FORMAT_WHOLE };

struct config_origin; /* where a key was set */

struct config {
	enum verb verb;

	/* what */
	char *model, *data, *eval_data, *output_dir;
	char *resume_from_checkpoint; /* NULL = off; "auto"; else a path */
	int overwrite_output_dir;
	int init_weights; /* enum config_init_weights, and so on for the names below */
	char *checkpoint, *path, *config_json, *machine, *bench_name;

	/* text */
	int data_format;
	char *chat_template, *chat_template_kwargs; /* NULL: the model's own; none */
	int train_on_last_turn;
	int64_t max_length; /* 0 = rows are never cut */
	int long_rows, packing;
	int train_on_inputs, shuffle;
	int64_t max_samples; /* 0 = all */
	char *text_field, *tokenizer;
	char *data_split, *eval_data_split; /* NULL: train, and validation */
	double eval_split;                  /* below 1 a fraction, from 1 on rows, 0 = none */

	/* batch */
	int64_t per_device_train_batch_size;
	int64_t per_device_eval_batch_size; /* after parsing never 0 */
	int64_t gradient_accumulation_steps;
	double num_train_epochs;
	int64_t max_steps; /* -1 = by epochs */

	/* optimizer */
	double learning_rate;
	int lr_scheduler_type; /* enum schedule_kind of optim/schedule.h */
	double min_lr_rate;
	double warmup_steps; /* a count, or below 1 a fraction of the run: config_steps; holds warmup_ratio */
	double warmup_ratio;
	double weight_decay, adam_beta1, adam_beta2, adam_epsilon;
	double max_grad_norm; /* 0 = off */
	int optimizer_state;
	int skip_nonfinite;
	int64_t nonfinite_limit;

	/* numbers */
	int compute_dtype;  /* never AUTO */
	int gradient_dtype; /* after parsing never AUTO */
	int reduce_dtype;
	int export_dtype; /* after parsing of `train` never AUTO */
	int64_t seed;
	int deterministic;

	/* device */
	int device;
	int64_t threads; /* CONFIG_AUTO */
	int cpu_offload; /* bits of enum config_offload, or CONFIG_AUTO; ACTIVATIONS is set exactly where
	                    activations == CONFIG_ACTIVATIONS_OFFLOAD, but never beside CONFIG_AUTO */
	int activations;
	int64_t vram_budget_bytes, ram_budget_bytes; /* CONFIG_AUTO */
	int pin_memory, schedule;

	/* sharding */
	int sharding_strategy, wrap_policy;
	int64_t min_num_params;
	int backward_prefetch, forward_prefetch;
	int64_t prefetch_units; /* CONFIG_AUTO */
	int load;
	int64_t ranks_per_node, watchdog_timeout_s, check_replicas;
	int64_t world_size; /* of `plan`; CONFIG_AUTO: one, or each GPU of the described machine */

	/* saving: steps are a count, or below 1 a fraction of the run: config_steps */
	double save_steps;
	int64_t save_total_limit; /* 0 = all are kept */
	int state_dict_type, save_first_step;
	int64_t max_shard_bytes;

	/* watching */
	double logging_steps, eval_steps, sample_steps;
	char *sample_prompt, *dump_gradients, *freeze, *trainable;
	int64_t trace; /* steps; 0 = off */
	char *trace_file;
	int per_token;

	/* generation */
	char *prompt, *prompt_ids;
	int64_t max_new_tokens;
	double temperature, top_p;
	int64_t top_k;

	/* tokenize, data */
	int input_format, add_special_tokens, skip_special_tokens, decode;
	int64_t show_rows;
	int show_tokens, chat, add_generation_prompt;
	int64_t bench_count; /* 0 = the benchmark's own choice */
	char *bench_models, *bench_tokens;

	/* testing */
	double host_copy_gbps;     /* 0 = off */
	int64_t stream_delay_seed; /* 0 = off */
	int isa;

	/* how this call behaves */
	int dry_run, estimate, explain, json, help;

	struct config_origin *origins; /* one per key of the table */
};

/* What stands after `ferry VERB`. Reads the configuration files that are named, resolves keys that depend on
 * each other, and leaves checks of meaning to config_check. With --help only c->help is set.
 *
 * Lines for people about files of other tools go to log_info. ERR_INPUT or ERR_UNSUPPORTED with a text that
 * names file, line and key; all unknown keys at once. *c can be freed in any case. */
int config_parse(struct config *c, enum verb verb, int argc, char *const argv[]);
void config_free(struct config *c);

/* Keys that the verb needs, values that are understood and not done (ERR_UNSUPPORTED, by name), and settings
 * that contradict each other (ERR_INPUT). Reads no file and writes none. */
int config_check(const struct config *c);

/* A number of steps: `value` itself, or ceil(value * total_steps) where it is below 1 (transformers' rule).
 */
int64_t config_steps(double value, int64_t total_steps);

/* Where a key (canonical name) was set: "run.yaml:12: lr" or "learning_rate on the command line" or
 * "learning_rate (default)". Valid for the next seven calls of config_where and config_text by the same
 * thread. */
const char *config_where(const struct config *c, const char *key);

/* "run.yaml:3" where a file set the key, "" where the command line did, NULL where nobody did. */
const char *config_set_at(const struct config *c, const char *key);

/* 1 where a key was set by a file or the command line. */
int config_was_set(const struct config *c, const char *key);

/* The value of a key as it would be written in a file; "" when it has none. Valid as config_where. */
const char *config_text(const struct config *c, const char *key);

/* The resolved configuration as a file: `ferry train` of it repeats the run. What only concerns one call
 * (resume, overwrite, dry run) is left out. */
void config_write_yaml(struct str *out, const struct config *c);

/* `ferry VERB --help`; docs/reference/keys.md, docs/ferry.1, docs/ferry.bash. */
void config_write_help(struct str *out, enum verb verb);
void config_write_markdown(struct str *out);
void config_write_man(struct str *out);
void config_write_completion(struct str *out);

const char *verb_name(enum verb verb);
/* VERB_COUNT when there is none of that name; *nearest is then a similar one or NULL. */
enum verb verb_find(const char *name, const char **nearest);

#endif
