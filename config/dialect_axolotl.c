/* axolotl's keys. */
#include "config/dialect_item.h"

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_JSON_BYTES_MAX = 64 << 20 };

static const struct dialect_marker markers[] = {
        {"datasets datasets.* sequence_len sample_packing dataset_prepared_path is_*_derived_model", 2},
        {"adapter lora_target_linear lora_mlp_kernel lora_qkv_kernel lora_o_kernel", 2},
        {"base_model micro_batch_size val_set_size num_epochs saves_per_epoch", 1}, {NULL, 0}};

static const struct dialect_default defaults[] = {
        {"lr_scheduler_type", "cosine", NULL, DIALECT_ROWS_ANY},
        {"max_length", "512", NULL, DIALECT_ROWS_ANY},
        {"warmup_ratio", "0.03, at most 100 steps", "warmup_steps", DIALECT_ROWS_ANY},
        {"save_total_limit", "4", NULL, DIALECT_ROWS_ANY},
        {"long_rows", "drop", NULL, DIALECT_ROWS_ANY},
        {0},
};

static const struct dialect_lora lora = {
        .need_rank = "needs lora_r, for which axolotl has no default",
        .need_alpha = "needs lora_alpha, for which axolotl has no default",
        .need_targets = "needs lora_target_linear: true, or lora_target_modules",
        .ask = "adapter: lora",
        .unasked = {{"lora_rank", "lora_r", 0}, {"lora_adapter", "lora_model_dir", 0}},
};

/* Another tool's `adapter` asks for LoRA too, but not for axolotl's defaults. */
static int adapter(const struct item *s)
{
	return lora_switch(s, s->d->layer == &dialect_axolotl ? &dialect_axolotl : NULL, "lora");
}

static int target_linear(const struct item *s)
{
	struct item all = *s;

	if (item_is_off(s->text))
		return 0;
	if (!config_name_in(s->text, ITEM_ON))
		return item_refuse(s, "is neither on nor off");
	all.text = "all-linear";
	return lora_targets(&all);
}

static int total_batch(const struct item *s)
{
	return item_step_rows(s, "total_batch");
}

/* chat_template: jinja, with the template or its file in chat_template_jinja */
static int chat_template(const struct item *s)
{
	if (config_name_equal(s->name, "chat_template") && config_name_equal(s->text, "jinja"))
		return 0;
	if (strchr(s->text, '{'))
		return item_refuse(s, "write the template to a file and name it: chat_template=FILE");
	return item_set(s, "chat_template", s->text, CONFIG_STRONG);
}

/* Columns of a format of its own, whose text is the two fields with blanks behind them. */
static int own_instruction(const struct item *s)
{
	int rc = item_set(s, "alpaca_form", "stanford", CONFIG_WEAK);

	if (!rc && s->c->alpaca_form == CONFIG_ALPACA_FORM_STANFORD)
		item_warn(s,
		        "%s: axolotl writes these rows as \"{instruction} {input} \", ferry in Stanford's "
		        "words; for that text make rows of prompt and completion",
		        s->name);
	return rc ? rc : item_add(s, "field_instruction");
}

/* Patterns that match from a name's beginning. Ours match whole names. */
static int unfrozen(const struct item *s)
{
	const char *p = s->text;
	struct str pattern = {0};
	int rc = 0;

	while (!rc) {
		size_t len;

		p += strspn(p, p == s->text ? " [\"'" : " ,]\"'");
		len = strcspn(p, ",\"'");
		if (!len)
			break;
		if (memchr(p, ':', len)) {
			str_free(&pattern);
			return item_refuse(s, "ferry trains whole parameters; remove the range of rows");
		}
		str_printf(&pattern, "%s(%.*s)%s", pattern.len_bytes ? "|" : "", (int)len, p,
		        p[len - 1] == '$' ? "" : ".*");
		p += len;
	}
	rc = str_check(&pattern);
	if (!rc && pattern.len_bytes)
		rc = item_keep(s, "unfrozen");
	if (!rc && pattern.len_bytes)
		rc = item_set(s, "trainable", pattern.data, CONFIG_STRONG);
	str_free(&pattern);
	return rc;
}

static int end_tokens(const struct item *s)
{
	if (!item_is_off(s->text))
		item_warn(s, "%s=%s: ferry trains on the end-of-turn token that the chat template writes",
		        s->name, s->text);
	return 0;
}

static int bos_token(const struct item *s)
{
	return item_keep(s, "bos_token");
}

static int per_epoch(const struct item *s)
{
	int is_save = config_name_equal(s->name, "saves_per_epoch");
	char *end;
	double count = strtod(s->text, &end);

	if (*end || !(count >= 0) || count > 1e6)
		return item_refuse(s, "not a number");
	if (is_save)
		return item_keep(s, "saves_per_epoch");
	dialect_forget(s->d, "evaluates");
	return item_keep(s, "evals_per_epoch");
}

/* axolotl's callback ends a run; its patience alone says nothing. */
static int watchdog(const struct item *s)
{
	if (!item_is_off(s->text))
		item_warn(s,
		        "%s=%s: axolotl stops where the loss stays above it, and ferry does not; ferry stops "
		        "only "
		        "where loss or gradients are not finite (nonfinite_limit)",
		        s->name, s->text);
	return 0;
}

/* Kernels change nothing; other plugins train in their own way. */
static int plugins(const struct item *s)
{
	static const struct {
		const char *part, *does;
	} known[] = {{".kd.", "distills a teacher"}, {".diffusion.", "trains by a method of its own"},
	        {".llm_compressor.", "prunes the model"}, {".spectrum.", "chooses layers by their noise"}};

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (strstr(s->text, known[i].part))
			return item_method(s, known[i].does);
	return item_pass(s);
}

static int use_tensorboard(const struct item *s)
{
	return item_is_off(s->text) ? 0 : item_set(s, "report_to", "tensorboard", CONFIG_STRONG);
}

static int patience_keep(const struct item *s)
{
	int rc = item_set(s, "early_stopping_patience", s->text, CONFIG_STRONG);

	return rc || item_is_off(s->text) ? rc : item_keep(s, "patience");
}

static const struct dialect_key own[] = {
        CALL("batch_size", total_batch),
        CALL("chat_template chat_template_jinja", chat_template),
        CALL("datasets.*.type.field_instruction", own_instruction),
        CALL("lora_target_modules", lora_targets),
        CALL("early_stopping_patience", patience_keep),
        KEYS_END,
};

static int balance(const struct item *s)
{
	return item_keep(s, "balance");
}

static int balance_coef(const struct item *s)
{
	return item_keep(s, "balance_coef");
}

static const struct dialect_key keys[] = {
        CALL("adapter", adapter),
        CALL("lora_target_linear", target_linear),
        CALL("unfrozen_parameters", unfrozen),
        CALL("saves_per_epoch evals_per_epoch", per_epoch),
        KEY("test_datasets.0.path", "eval_data"),
        PASS("test_datasets.0.type test_datasets.0.split test_datasets.0.ds_type "
             "auto_resume_from_checkpoints "
             "resize_token_embeddings_to_32x"),
        CALL("model_config.router_aux_loss_coef", balance_coef),
        CALL("model_config.output_router_logits", balance),
        CALL("bnb_config_kwargs.bnb_4bit_quant_type", item_quant_type),
        CALL("bnb_config_kwargs.bnb_4bit_use_double_quant", item_quant_double),
        CALL("bnb_config_kwargs.bnb_4bit_compute_dtype", item_quant_dtype),
        PASS("bnb_config_kwargs bnb_config_kwargs.*"),
        PASS("lora_fan_in_fan_out lora_mlp_kernel lora_qkv_kernel lora_o_kernel lora_embedding_kernel "
             "lora_on_cpu peft_autocast_adapter_dtype merge_lora merge_method "
             "qlora_sharded_model_loading"),
        PASS("special_tokens.pad_token special_tokens.unk_token special_tokens"),
        KEY("special_tokens.eos_token", "eos_token"),
        CALL("special_tokens.bos_token tokens.bos_token", bos_token),
        KEY("tokens.eos_token", "eos_token"),
        PASS("tokens.pad_token tokens.unk_token"),
        ONLY("tokens added_tokens_overrides special_tokens.* tokens.* resize_vocab", ITEM_OFF,
                "adding tokens is not supported yet"),
        ONLY("s2_attention", ITEM_OFF, "shifted attention is not supported; remove it"),
        CALL("eot_tokens", end_tokens),
        CALL("use_tensorboard", use_tensorboard),
        METHOD("reward_model", ITEM_OFF, "trains a reward model; " ITEM_REWARD),
        METHOD("process_reward_model", ITEM_OFF, "trains a reward model of single steps"),
        METHOD("qat qat.*", ITEM_OFF, "trains with rounding to a quantized format"),
        METHOD("ebft ebft.* diffusion diffusion.* lisa_n_layers lisa_step_interval use_eaft", ITEM_OFF,
                "trains by a method of its own"),
        METHOD("kd_trainer kd_ce_alpha kd_alpha kd_temperature", ITEM_OFF, "distills a teacher"),
        METHOD("vllm vllm.* trl.reward_funcs trl.num_generations trl.use_vllm grpo_*", ITEM_OFF,
                "trains by reinforcement learning"),
        METHOD("llmcompressor llmcompressor.*", ITEM_OFF, "prunes the model"),
        METHOD("provider project_name volumes.* dockerfile_commands", ITEM_OFF,
                "starts jobs on rented machines"),
        METHOD("reinit_weights", ITEM_OFF, "trains a model from random weights; make one by ferry init"),
        METHOD("use_onebitllms", ITEM_OFF, "trains with rounding to a quantized format"),
        KEY("pretraining_dataset", "data"),
        PASS("model_quantization_config model_quantization_config_kwargs.* freeze_mm_modules"),
        ONLY("tensor_parallel_size context_parallel_size sequence_parallel_degree expert_parallel_size",
                "0 1 " ITEM_OFF, "tensor, context and expert parallelism are not supported"),
        CALL("dp_shard_size dp_replicate_size", item_processes),
        CALL("loss_watchdog_threshold", watchdog),
        PASS("shuffle_merged_datasets"), /* the sampler shuffles all the same */
        ONLY("dataset_exact_deduplication", ITEM_OFF,
                "rows are taken as they are; remove the duplicates from the data"),
        ONLY("min_sample_len", "0 1 2 " ITEM_OFF, "short rows are kept; remove them from the data"),
        ONLY("max_packed_sequence_len", ITEM_OFF, "set sequence_len and sample_packing"),
        ONLY("cosine_constant_lr_ratio lr_quadratic_warmup jagged_restart_steps jagged_restart_warmup_steps",
                ITEM_OFF " 0.0", "this learning-rate schedule is not supported"),
        CALL("plugins", plugins),
        ONLY("float16", ITEM_OFF, "fp16 is not supported; bf16 needs no loss scale: set bf16"),
        PASS("liger_* cut_cross_entropy unsloth_* flash_attention xformers_attention "
             "sdp_attention eager_attention flash_attn_* pad_to_sequence_len eval_sample_packing "
             "dataset_prepared_path model_type tokenizer_type model_config_type is_*_derived_model "
             "eval_table_size eval_max_new_tokens loss_watchdog_* strict tokenizer_use_fast "
             "tokenizer_legacy special_tokens_* sample_packing_* multipack_real_batches "
             "dataset_processes gc_steps processor_type skip_prepare_dataset quantize_moe_experts "
             "tokenizer_use_mistral_common flex_attn_compile_kwargs flex_attn_compile_kwargs.* "
             "fused_attn_kernel "
             "gemma4_hybrid_attn_impl use_scattermoe use_sonicmoe experts_implementation torchdistx_path "
             "gptq_groupsize "
             "gptq_model_v1 push_dataset_to_hub flash_optimum "
             "timeout_preprocess secrets volumes use_ray ray_num_workers streaming "
             "streaming_multipack_buffer_size use_otel_metrics "
             "otel_metrics_* "
             "tiled_mlp experimental_skip_move_to_device llama4_linearized_experts "
             "base_model_ignore_patterns pretrain_multipack_attn bfloat16 ddp gpu_memory_limit sdp_kernel "
             "save_first_step tokenizer_save_jinja_files use_dsv4_kernels "
             "use_glm_dsa_kernels"),
        KEYS_END,
};

/* Sets steps for so many times an epoch. */
static int each_epoch(const struct dialect_state *d, struct config *c, const char *slot, const char *key)
{
	const struct dialect_kept *kept = dialect_kept(d, slot);
	double times = kept ? strtod(kept->text, NULL) : 0, share = 1 / (times * c->num_train_epochs);
	char text[40];
	int rc;

	if (!kept || config_set_at(c, key) || !(times * c->num_train_epochs > 0))
		return 0;
	if (times == 1)
		return kept_set(c, kept, key, "epoch");
	snprintf(text, sizeof(text), "%.17g", share < 1 ? share : 0); /* 0: once, at the end */
	rc = kept_set(c, kept, key, text);
	if (!rc && c->max_steps > 0)
		log_warn("ferry takes %s=%s, a share of the run: with max_steps it does not know the steps "
		         "of a part of an epoch; set a number of steps",
		        key, config_text(c, key));
	return rc;
}

/* The bos_token of a model's tokenizer_config.json: a text, or an object with one. */
static int bos_check(const struct dialect_kept *bos, const struct config *c)
{
	char *path = c->model ? file_join(c->model, "tokenizer_config.json") : NULL;
	json_t *root = NULL, *token = NULL;
	const char *text = NULL;
	int rc = 0;

	if (path && file_kind_of(path) == FILE_REGULAR && !json_read_file(&root, path, CONFIG_JSON_BYTES_MAX))
		token = json_object_get(root, "bos_token");
	text = json_string_value(json_is_object(token) ? json_object_get(token, "content") : token);
	if (text && strcmp(text, bos->text))
		rc = kept_error(ERR_UNSUPPORTED, bos,
		        "is not the model's own token; changing tokens is not supported yet");
	else if (!text && config_trains(c))
		log_warn("%s=%s: ferry takes the model's own; they must be the same", bos->name, bos->text);
	json_decref(root);
	mem_free(path);
	return rc;
}

/* axolotl takes the best checkpoint, unless the file says no, if checkpoints come at evaluations; with early
 * stopping also if it says no. */
static int best_apply(const struct dialect_state *d, struct config *c)
{
	const struct dialect_kept *patience = dialect_kept(d, "patience");
	int64_t save = (int64_t)c->save_steps, every = (int64_t)c->eval_steps;
	int is_possible = (c->eval_data || c->eval_split > 0) && config_was_set(c, "save_steps") &&
	                  config_was_set(c, "eval_steps") && every > 0 && save > 0 && save % every == 0;

	if (d->file != &dialect_axolotl || !is_possible || c->load_best_model_at_end || !config_trains(c))
		return 0;
	if (patience)
		return kept_set(c, patience, "load_best_model_at_end", "on");
	if (!config_was_set(c, "load_best_model_at_end"))
		log_warn("axolotl ends with the best checkpoint here, ferry with the last model; set "
		         "load_best_model_at_end=on, or =off to silence this");
	return 0;
}

/* These two replace what config.json says. */
static int balance_apply(struct dialect_state *d, struct config *c)
{
	const struct dialect_kept *asks = dialect_kept(d, "balance"), *coef = dialect_kept(d, "balance_coef");

	if (config_was_set(c, "router_aux_loss_coef"))
		return 0;
	if (!asks && coef && config_trains(c))
		log_warn("%s=%s has no effect without model_config.output_router_logits; if config.json sets "
		         "that, set router_aux_loss_coef=%s",
		        coef->name, coef->text, coef->text);
	if (!asks)
		return 0;
	if (item_is_off(asks->text))
		return kept_set(c, asks, "router_aux_loss_coef", "0");
	return kept_set(c, coef ? coef : asks, "router_aux_loss_coef", coef ? coef->text : "model");
}

static int finish(struct dialect_state *d, struct config *c)
{
	const struct dialect_kept *total = dialect_kept(d, "total_batch"),
	                          *evals = dialect_kept(d, "evals_per_epoch");
	int rc = 0;

	if (evals && !c->eval_data && !(c->eval_split > 0)) { /* axolotl does not evaluate then */
		if (strtod(evals->text, NULL) > 0 && config_trains(c))
			log_warn("%s=%s has no effect without rows to evaluate on; set eval_split or "
			         "eval_data",
			        evals->name, evals->text);
		dialect_forget(d, "evals_per_epoch");
	}
	rc = each_epoch(d, c, "saves_per_epoch", "save_steps");

	if (!rc)
		rc = each_epoch(d, c, "evals_per_epoch", "eval_steps");
	if (!rc)
		rc = best_apply(d, c);
	if (!rc)
		rc = balance_apply(d, c);
	if (!rc && dialect_kept(d, "unfrozen") && d->lora == DIALECT_LORA_ON)
		rc = kept_error(ERR_UNSUPPORTED, dialect_kept(d, "unfrozen"),
		        "beside an adapter trains weights of the base too; remove one of the two");
	if (!rc && dialect_kept(d, "bos_token"))
		rc = bos_check(dialect_kept(d, "bos_token"), c);
	return rc || !total ? rc : kept_step_rows(c, total, STEP_OF_RANK, 0);
}

const struct dialect dialect_axolotl = {.name = "axolotl",
        .base = &dialect_transformers,
        .markers = markers,
        .own = own,
        .keys = keys,
        .defaults = defaults,
        .lora = &lora,
        .cosine_has_floor = 1,
        .finish = finish};
