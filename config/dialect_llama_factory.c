/* LLaMA-Factory's keys. */
#include "config/dialect_item.h"

#include "base/file.h"
#include "base/log.h"
#include "base/str.h"
#include "data/template/builtin.h"

#include <stdlib.h>
#include <string.h>

static const struct dialect_marker markers[] = {
        {"finetuning_type stage cutoff_len dataset_dir", 2}, {"template val_size", 1}, {NULL, 0}};

static const struct dialect_default defaults[] = {
        {"per_device_train_batch_size", "8", NULL, DIALECT_ROWS_ANY},
        {"num_train_epochs", "3", NULL, DIALECT_ROWS_ANY},
        {"learning_rate", "5e-5", NULL, DIALECT_ROWS_ANY},
        {"compute_dtype", "fp32", NULL, DIALECT_ROWS_ANY},
        {"max_length", "2048", NULL, DIALECT_ROWS_ANY},
        {"save_total_limit", "all", NULL, DIALECT_ROWS_ANY},
        {0},
};

static const struct dialect_lora lora = {
        .rank = "8",
        .alpha = "2",
        .targets = "all-linear",
        .alpha_is_times_rank = 1,
        .ask = "finetuning_type: lora",
        .full = "finetuning_type=full",
        .unasked = {{"lora_rank", "lora_rank", 0}, {"lora_adapter", "adapter_name_or_path", 1}},
};

static int finetuning(const struct item *s)
{
	return config_name_equal(s->text, "freeze") ? item_refuse(s, ITEM_BY_NAME ITEM_TRAINABLE_EXAMPLE)
	                                            : lora_switch(s, &dialect_llama_factory, "lora");
}

/* It takes several adapters and merges all but the last. */
static int adapter_path(const struct item *s)
{
	if (strchr(s->text, ','))
		return item_refuse(s, "only one adapter is supported; merge the others into the model first");
	return item_set(s, "lora_adapter", s->text, CONFIG_STRONG);
}

static int do_train(const struct item *s)
{
	if (config_trains(s->c) && item_is_off(s->text))
		return item_refuse(s, "ferry train always trains; to measure the loss alone, run ferry eval");
	return item_pass(s);
}

/* Names of templates: most are of models, some are others than ferry's of the same name. */
static int template_name(const struct item *s)
{
#define NAME_AND_BLANK(name) #name " "
	static const char builtin[] = JINJA_BUILTINS(NAME_AND_BLANK);
	int is_builtin = config_name_in(s->text, builtin);
	int begins = config_name_in(s->text, "alpaca vicuna zephyr");

	if (is_builtin ? !begins : strchr(s->text, '/') || strchr(s->text, '.'))
		return item_set(s, "chat_template", s->text, CONFIG_STRONG);
	item_warn(s, "template=%s: %s", s->text,
	        begins ? "LLaMA-Factory begins a chat without a system text with one of its own, ferry does "
	                 "not; give the rows a system text if the model should see one"
	        : config_name_equal(s->text, "default")
	                ? "LLaMA-Factory writes \"Human: ...\" and \"Assistant: ...\"; ferry uses the "
	                  "model's own template"
	                : "ferry has no template of this name and uses the model's own; ferry data show "
	                  "prints a row as it is trained");
	return item_set(s, "chat_template", is_builtin ? s->text : "default", CONFIG_STRONG);
}

/* The first N layers as a pattern. */
static int frozen_layers(const struct item *s)
{
	char *end;
	long count = strtol(s->text, &end, 10);
	struct str why = {0};
	int rc;

	if (item_is_off(s->text))
		return 0;
	if (*end || count < 1 || count > 200)
		return item_refuse(s, ITEM_BY_NAME ITEM_FREEZE_EXAMPLE);
	str_add(&why, ITEM_BY_NAME "freeze='model\\.layers\\.(");
	for (long i = 0; i < count; i++)
		str_printf(&why, "%s%ld", i ? "|" : "", i);
	str_add(&why, ")\\..*'");
	rc = str_check(&why);
	if (!rc)
		rc = item_refuse(s, why.data);
	str_free(&why);
	return rc;
}

/* Only stage dpo reads pref_loss. */
static int pref_loss(const struct item *s)
{
	if (item_is_off(s->text))
		return 0;
	if (!config_name_in(s->text, "sigmoid hinge ipo simpo orpo"))
		return item_refuse(s, "not supported; supported: sigmoid, hinge, ipo, simpo, orpo");
	return item_keep(s, "pref_loss");
}

static int stage(const struct item *s)
{
	static const struct {
		const char *stage, *does;
	} others[] = {{"ppo", "trains by reinforcement learning (PPO)"},
	        {"rm", "trains a reward model; " ITEM_REWARD}};

	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		if (config_name_equal(s->text, others[i].stage))
			return item_method(s, others[i].does);
	return config_name_in(s->text, "sft pt dpo kto")
	               ? item_keep(s, "stage")
	               : item_refuse(s, "not supported; supported: sft, pt, dpo, kto");
}

static int thinking(const struct item *s)
{
	return item_member(s, "chat_template_kwargs", "");
}

static int mix_weights(const struct item *s)
{
	return item_is_off(s->text) ? 0 : dialect_sets_weights(&s->d->sets, s->name, s->text, s->line);
}

static int mix_strategy(const struct item *s)
{
	if (config_name_in(s->text, "interleave_under interleave_over"))
		return item_set(s, "data_mix", s->text, CONFIG_STRONG);
	return config_name_equal(s->text, "concat")
	               ? 0
	               : item_refuse(
	                         s, "not supported; supported: concat, interleave_under, interleave_over");
}

static const struct dialect_key own[] = {
        CALL("lora_target", lora_targets),
        CALL("adapter_name_or_path", adapter_path),
        CALL("pref_loss", pref_loss),
        CALL("do_train", do_train),
        CALL("template", template_name),
        KEYS_END,
};

static int quant_method(const struct item *s)
{
	return config_name_in(s->text, "bnb bitsandbytes hqq eetq")
	               ? item_quant_method(s)
	               : item_refuse(s, ITEM_NOT_QUANTIZED "take the model that it was made of");
}

static const struct dialect_key keys[] = {
        CALL("finetuning_type", finetuning),
        CALL("freeze_layers", frozen_layers),
        ONLY("freeze_trainable_* freeze_extra_modules unfreeze_*", ITEM_OFF,
                ITEM_BY_NAME ITEM_TRAINABLE_EXAMPLE),
        ONLY("freeze_*", ITEM_OFF, ITEM_BY_NAME ITEM_FREEZE_EXAMPLE),
        ONLY("create_new_adapter", ITEM_OFF,
                "training goes on with the adapter that is named; for a new one merge it into the model "
                "first"),
        ONLY("adapter_folder", ITEM_OFF, "name the folder itself in adapter_name_or_path"),
        PASS("pissa_iter"),
        ONLY("new_special_tokens add_tokens", ITEM_OFF, "adding tokens is not supported yet"),
        CALL("enable_thinking", thinking),
        KEY("early_stopping_steps", "early_stopping_patience"),
        CALL("stage", stage),
        METHOD("use_galore use_apollo use_badam use_adam_mini use_muon use_llama_pro mixture_of_depths "
               "use_asft_loss "
               "use_dft_loss use_eaft_loss oft_target oft_block_size oft_rank",
                ITEM_OFF, "trains by a method of its own"),
        METHOD("use_kt use_mca use_megatron", ITEM_OFF,
                "trains with another program's engine (KTransformers, Megatron)"),
        METHOD("export_dir", ITEM_OFF, "exports a model; for an adapter use ferry merge"),
        METHOD("infer_backend", ITEM_OFF, "chats with a model; use ferry generate chat=on"),
        ONLY("pure_bf16 shift_attn split_special_tokens freeze_language_model", ITEM_OFF,
                "not supported; remove it"),
        PASS("image_max_pixels image_min_pixels video_max_pixels video_min_pixels video_fps video_maxlen "
             "crop_to_patches "
             "use_v1_kernels freeze_vision_tower freeze_multi_modal_projector "
             "ray_* use_reentrant_gc fp8_backend"),
        CALL("interleave_probs", mix_weights),
        CALL("mix_strategy", mix_strategy),
        PASS("do_eval do_predict predict_with_generate media_dir overwrite_cache "
             "preprocessing_num_workers preprocessing_batch_size plot_loss use_unsloth "
             "enable_liger_kernel use_fast_tokenizer disable_gradient_checkpointing low_cpu_mem_usage "
             "include_num_input_tokens_seen include_tokens_per_second tokenized_path flash_attn"),
        CALL("double_quantization", item_quant_double),
        CALL("quantization_type", item_quant_type),
        CALL("quantization_method", quant_method),
        KEYS_END,
};

/* ---- after all settings ---- */

/* Stage pt joins texts and cuts them at cutoff_len. Full bins of split texts are next to that. */
static int pretraining_apply(const struct dialect_kept *stage, struct config *c)
{
	int rc = 0;

	if (!config_was_set(c, "long_rows"))
		rc = kept_set(c, stage, "long_rows", "split");
	if (!rc && !config_was_set(c, "packing"))
		rc = kept_set(c, stage, "packing", "bfd");
	return rc;
}

static int preference_apply(
        const struct dialect_kept *stage, const struct dialect_kept *loss, struct config *c)
{
	int is_judged = stage && config_name_equal(stage->text, "kto");

	if (!stage || !config_name_equal(stage->text, "dpo")) {
		if (loss)
			log_warn("pref_loss=%s has no effect without stage=dpo", loss->text);
		return is_judged && !config_was_set(c, "preference_loss")
		               ? kept_set(c, stage, "preference_loss", "kto")
		               : 0;
	}
	if (config_was_set(c, "preference_loss"))
		return 0;
	return kept_set(c, loss ? loss : stage, "preference_loss", loss ? loss->text : "sigmoid");
}

/* It looks for data/dataset_info.json if the file names no other directory. */
static int dataset_dir_apply(const struct dialect_state *d, struct config *c)
{
	if (config_was_set(c, "dataset_info") || !c->data ||
	        strpbrk(c->data, "/*?[") || /* a path, a pattern, an id of the Hub */
	        file_kind_of(c->data) != FILE_NONE || file_kind_of("data/dataset_info.json") != FILE_REGULAR)
		return 0;
	log_info("looking for data in data/dataset_info.json, as LLaMA-Factory does without dataset_dir");
	return config_set_meant(c, d->file_path, "dataset_info", "dataset_dir", 0, "data");
}

static int finish(struct dialect_state *d, struct config *c)
{
	const struct dialect_kept *s = dialect_kept(d, "stage");
	int rc = preference_apply(s, dialect_kept(d, "pref_loss"), c);

	if (!rc && s && config_name_equal(s->text, "pt"))
		rc = pretraining_apply(s, c);
	if (rc || d->file != &dialect_llama_factory)
		return rc;
	rc = dataset_dir_apply(d, c);
	if (!rc && !config_was_set(c, "alpaca_form")) /* all rows go through the template */
		rc = config_set_meant(c, d->file_path, "alpaca_form", "template", 0, "chat");
	return rc;
}

const struct dialect dialect_llama_factory = {.name = "LLaMA-Factory",
        .base = &dialect_transformers,
        .markers = markers,
        .own = own,
        .keys = keys,
        .defaults = defaults,
        .lora = &lora,
        .finish = finish};
