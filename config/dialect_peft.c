/* LoRA in PEFT's words and in everybody's: what switches it on, which modules it means, and what each trainer
 * does where its file says nothing. */
#include "config/dialect_item.h"

#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* PEFT's choice by model_type, for the families of ferry that it knows. Its other families must be told. */
static const struct {
	const char *families, *targets;
} peft_targets[] = {
        {"llama mistral qwen2 qwen3 gemma gemma2 gemma3_text stablelm opt gptj gpt_neo", "q_proj,v_proj"},
        {"phi", "q_proj,v_proj,fc1,fc2"}, {"gpt_neox falcon", "query_key_value"},
        {"gpt2 gpt_bigcode", "c_attn"}};

/* ---- what switches it on ---- */

/* Asked for in nobody's words. */
static const struct dialect_lora nobody = {
        .need_rank = "needs lora_rank",
        .need_alpha = "needs lora_alpha",
        .need_targets = "needs lora_target_modules",
};

static int switched(const struct item *s, enum dialect_lora_asked asked, const struct dialect *by)
{
	if (s->d->lora_by == &dialect_peft && by == &dialect_trl) /* the object says more than use_peft */
		return 0;
	s->d->lora = asked;
	s->d->lora_by = asked == DIALECT_LORA_ON ? by : NULL;
	return item_keep(s, "lora");
}

int lora_switch(const struct item *s, const struct dialect *by, const char *on)
{
	int is_off = item_is_off(s->text) || config_name_equal(s->text, "full");

	int is_qlora = config_name_equal(s->text, "qlora");

	if (is_qlora && item_quantized(s))
		return ERR_NOMEM;
	if (!is_off && !is_qlora && on && !config_name_in(s->text, on))
		return item_refuse(s, config_name_in("on", on) ? "is neither on nor off"
		                                               : "of adapters only lora is supported");
	return switched(s, is_off ? DIALECT_LORA_OFF : DIALECT_LORA_ON, by);
}

/* ---- which modules ---- */

int lora_targets(const struct item *s)
{
	static const char between[] = " ,[]\"'";
	static const struct {
		const char *from, *to;
	} renamed[] = {
	        {"output_proj", "o_proj"}, {"all", "all-linear"}}; /* torchtune; LLaMA-Factory, Surogate */
	struct item one = *s;
	char word[128];
	int rc = 0;

	if (strpbrk(s->text, "\\^$*+?()|{")) /* an expression */
		return item_set(s, "lora_target_modules", s->text, CONFIG_STRONG);
	one.text = word;
	if (!s->text[strspn(s->text, between)]) /* none, beside lora_target_parameters */
		return item_set(s, "lora_target_modules", "", CONFIG_STRONG);
	for (const char *p = s->text + strspn(s->text, between); *p && !rc; p += strspn(p, between)) {
		size_t len = strcspn(p, between);

		snprintf(word, sizeof(word), "%.*s", (int)len, p);
		for (size_t i = 0; i < sizeof(renamed) / sizeof(*renamed); i++)
			if (config_name_equal(word, renamed[i].from))
				snprintf(word, sizeof(word), "%s", renamed[i].to);
		rc = item_add(&one, "lora_target_modules");
		p += len;
	}
	return rc;
}

/* ---- the rest ---- */

int lora_dropout(const struct item *s)
{
	char *end;
	double share = strtod(s->text, &end);

	if (*end || !(share >= 0 && share < 1))
		return item_refuse(s, "must be a number from 0 to below 1");
	return item_set(s, "lora_dropout", s->text, CONFIG_STRONG);
}

/* PEFT's LoraConfig as an object. */
static int lora_config(const struct item *s)
{
	static const struct {
		const char *name, *key; /* key NULL: has a function */
	} parts[] = {{"r", "lora_rank"}, {"lora_alpha", "lora_alpha"}, {"use_rslora", "use_rslora"},
	        {"use_dora", "use_dora"}, {"exclude_modules", "lora_exclude_modules"},
	        {"modules_to_save", "lora_modules_to_save"}, {"target_parameters", "lora_target_parameters"},
	        {"target_modules", NULL}, {"lora_dropout", NULL}};
	const char *last = strrchr(s->name, '.') + 1;
	size_t i = 0;

	if (switched(s, DIALECT_LORA_ON, &dialect_peft))
		return ERR_NOMEM;
	while (!config_name_equal(last, parts[i].name))
		i++;
	return parts[i].key                                ? item_set(s, parts[i].key, s->text, CONFIG_STRONG)
	       : config_name_equal(last, "target_modules") ? lora_targets(s)
	                                                   : lora_dropout(s);
}

static int template_member(const struct item *s)
{
	return item_member(s, "chat_template_kwargs", "chat_template_kwargs.");
}

static int rank_member(const struct item *s)
{
	return item_member(
	        s, "lora_rank_pattern", *s->name == 'p' ? "peft_config.rank_pattern." : "lora_rank_pattern.");
}

static int alpha_member(const struct item *s)
{
	return item_member(s, "lora_alpha_pattern",
	        *s->name == 'p' ? "peft_config.alpha_pattern." : "lora_alpha_pattern.");
}

/* ---- after all settings ---- */

/* An error in the place of the key that asks for LoRA. */
static int missing(const struct dialect_kept *item, const char *what)
{
	err_set(ERR_INPUT, "%s=%s: %s", item->name, item->text, what);
	return item->file ? err_note(ERR_INPUT, "%s:%d", item->file, item->line) : ERR_INPUT;
}

/* PEFT's modules for the model's family; NULL if it has none or no config.json says the family. */
static const char *family_targets(const struct config *c)
{
	json_t *root = item_model_json(c);
	const char *family = json_string_value(json_object_get(root, "model_type")), *targets = NULL;

	for (size_t i = 0; family && i < sizeof(peft_targets) / sizeof(*peft_targets); i++)
		if (config_name_in(family, peft_targets[i].families))
			targets = peft_targets[i].targets;
	json_decref(root);
	return targets;
}

/* `by` asks for LoRA at `at`; at NULL: it trains adapters unless its file says otherwise. */
struct asked {
	const struct dialect_lora *by;
	const char *name; /* of the trainer */
	const struct dialect_kept *at;
};

static int default_set(struct config *c, const struct asked *a, const char *key, const char *text)
{
	return a->at ? kept_set(c, a->at, key, text) : config_set_meant(c, NULL, key, key, 0, text);
}

static int default_targets(const struct asked *a, struct config *c)
{
	const char *targets = a->by->targets;

	if (config_was_set(c, "lora_target_modules"))
		return 0;
	if (c->lora_target_parameters) /* PEFT then adapts these alone */
		return default_set(c, a, "lora_target_modules", "");
	if (!targets)
		return missing(a->at, a->by->need_targets);
	if (!strcmp(targets, "peft"))
		targets = family_targets(c);
	if (!targets)
		return missing(a->at, "PEFT names no modules for this model; set lora_target_modules, as in "
		                      "[q_proj, v_proj], or all-linear");
	return default_set(c, a, "lora_target_modules", targets);
}

/* What the trainer of the file does where nothing is said. */
static int defaults_apply(const struct asked *a, struct config *c)
{
	const char *rank = a->by->rank, *alpha = a->by->alpha;
	int rc = 0, rank_said = config_was_set(c, "lora_rank"), alpha_said = config_was_set(c, "lora_alpha");
	int targets_said = config_was_set(c, "lora_target_modules");
	int dropout_said = config_was_set(c, "lora_dropout") || !a->by->dropout;
	char text[40];

	if (rank_said && (!c->lora_rank || a->by == &nobody)) /* 0: trains every weight after all */
		return 0;
	if (!rank_said && !rank)
		return missing(a->at, a->by->need_rank);
	if (!alpha_said && !alpha)
		return missing(a->at, a->by->need_alpha);
	if (!rank_said)
		rc = default_set(c, a, "lora_rank", rank);
	snprintf(text, sizeof(text), "%.17g",
	        alpha ? strtod(alpha, NULL) * (a->by->alpha_is_times_rank ? (double)c->lora_rank : 1) : 0);
	if (!rc && (!alpha_said || (c->lora_alpha == 0 && a->by->alpha_is_times_rank)))
		rc = default_set(c, a, "lora_alpha", text);
	if (!rc)
		rc = default_targets(a, c);
	if (!rc && !dropout_said)
		rc = default_set(c, a, "lora_dropout", a->by->dropout);
	if (!rc && !(rank_said && alpha_said && targets_said && dropout_said))
		log_info("LoRA, with the defaults of %s where nothing is set: lora_rank=%s, lora_alpha=%s, "
		         "lora_target_modules=%s%s%s",
		        a->name, config_text(c, "lora_rank"), config_text(c, "lora_alpha"),
		        config_text(c, "lora_target_modules"), a->by->dropout ? ", lora_dropout=" : "",
		        a->by->dropout ? config_text(c, "lora_dropout") : "");
	return rc;
}

/* What its trainer does with a setting of LoRA in a file that does not ask for LoRA. */
static int check_unasked(const struct dialect_state *d, struct config *c)
{
	const struct dialect_lora *lora = d->file ? d->file->lora : NULL;

	for (size_t i = 0; lora && i < sizeof(lora->unasked) / sizeof(*lora->unasked); i++) {
		const char *key = lora->unasked[i].key;
		const struct config_origin *o = key ? &c->origins[config_key_find(key) - config_keys] : NULL;
		int is_rank = key && config_name_equal(key, "lora_rank");

		if (!o || !o->place || !*o->place || !config_name_equal(o->as, lora->unasked[i].as) ||
		        (is_rank ? !c->lora_rank : !c->lora_adapter))
			continue;
		if (lora->unasked[i].is_error)
			return err_set(ERR_INPUT,
			        "%s=%s has no effect without %s; add that, or remove the key",
			        config_where(c, key), config_said(c, key), lora->ask);
		log_warn("%s=%s has no effect without %s, as in %s: every weight is trained",
		        config_where(c, key), config_said(c, key), lora->ask, dialect_name(d->file));
		if (is_rank) {
			c->lora_rank = 0;
		} else {
			mem_free(c->lora_adapter);
			c->lora_adapter = NULL;
		}
	}
	return 0;
}

/* Dropout where the file asks for it, but its trainer would not do it: without adapters, and on pairs, for
 * which trainers switch all dropout off. */
static void dropout_end(const struct dialect_state *d, struct config *c)
{
	const struct dialect_kept *off = dialect_kept(d, "disable_dropout"), *asked = dialect_kept(d, "lora");
	const struct config_origin *o = &c->origins[config_key_find("lora_dropout") - config_keys];
	int is_default = asked && o->as && config_name_equal(o->as, asked->name); /* nobody wrote it */
	int has_adapters = c->lora_rank || c->lora_adapter;
	int is_of_pairs = c->preference_loss && !(off && item_is_off(off->text));

	if (!d->file || !(c->lora_dropout > 0) || (has_adapters && !is_of_pairs))
		return;
	if (!has_adapters)
		log_warn("%s=%s has no effect without adapters: every weight is trained",
		        config_where(c, "lora_dropout"), config_said(c, "lora_dropout"));
	else
		log_info("%s=%s: %s trains pairs without dropout, and so does ferry",
		        is_default ? "lora_dropout" : config_where(c, "lora_dropout"),
		        is_default ? config_text(c, "lora_dropout") : config_said(c, "lora_dropout"),
		        dialect_name(d->file));
	c->lora_dropout = has_adapters ? 0 : -1;
}

static int finish(struct dialect_state *d, struct config *c)
{
	struct asked a = {&nobody, NULL, dialect_kept(d, "lora")};
	int rc = 0;

	if (!config_trains(c) && c->verb != VERB_PLAN) {
		quantized_say(d, c);
		return 0;
	}
	if (d->lora == DIALECT_LORA_UNSAID && d->file && d->file->lora && d->file->lora->full) {
		d->lora = DIALECT_LORA_ON;
		d->lora_by = d->file;
		if (!config_was_set(c, "lora_rank") && !c->lora_adapter)
			log_warn("%s: %s trains LoRA adapters unless its file says otherwise; for every "
			         "weight set %s",
			        dialect_place(d), dialect_name(d->file), d->file->lora->full);
	}
	if (d->lora_by) {
		a.by = d->lora_by->lora;
		a.name = dialect_name(d->lora_by);
	}
	rc = quantized_apply(d, c, d->lora == DIALECT_LORA_ON);
	if (!rc && d->lora != DIALECT_LORA_ON)
		rc = check_unasked(d, c);
	else if (!rc && !c->lora_adapter)
		rc = defaults_apply(&a, c);
	if (!rc)
		dropout_end(d, c);
	return rc;
}

static int keep_disable_dropout(const struct item *s)
{
	return item_keep(s, "disable_dropout");
}

static const struct dialect_key keys[] = {
        CALL("disable_dropout", keep_disable_dropout),
        CALL("peft_config.r peft_config.lora_alpha peft_config.target_modules peft_config.lora_dropout "
             "peft_config.use_rslora peft_config.use_dora peft_config.exclude_modules "
             "peft_config.modules_to_save peft_config.target_parameters",
                lora_config),
        CALL("chat_template_kwargs.*", template_member),
        CALL("lora_rank_pattern.* peft_config.rank_pattern.*", rank_member),
        CALL("lora_alpha_pattern.* peft_config.alpha_pattern.*", alpha_member),
        KEY("peft_use_rslora", "use_rslora"),
        KEY("peft_config.layers_to_transform", "lora_layers"),
        KEY("peft_config.layers_pattern", "lora_layers_pattern"),
        KEY("model.use_dora", "use_dora"),
        ONLY("peft_config.bias lora_bias peft_config.lora_bias", ITEM_OFF,
                "adapters here train no biases; set bias to none"),
        ONLY("lora_task_type peft_config.task_type", "CAUSAL_LM", "only CAUSAL_LM is supported"),
        PASS("loraplus_lr_embedding"), /* an adapter of the embedding is refused with LoRA+ */
        PASS("peft_config.name"),      /* LLaMA-Factory's v1 looks at it */
        ONLY("peft_config.peft_type", "LORA", "of adapters only LoRA is supported"),
        ONLY("peft_init_lora_weights peft_config.init_lora_weights", "true on yes 1",
                "only PEFT's own start is supported: A at random, B zero; remove it"),
        PASS("peft_config.fan_in_fan_out peft_config.inference_mode peft_config.peft_version "
             "peft_config.base_model_name_or_path peft_config.revision peft_config.auto_mapping "
             "peft_config.megatron_config peft_config.megatron_core peft_config.qalora_group_size "
             "peft_config.runtime_config.*"),
        ONLY("relora relora_* qlora peft peft.* peft_config peft_config.* lora_* peft_* pissa_*",
                ITEM_OFF " [] {}",
                "this form of LoRA is not supported; plain LoRA, use_rslora and use_dora are"),
        KEYS_END,
};

static const struct dialect_lora peft_lora = {.rank = "8", .alpha = "8", .targets = "peft"};

const struct dialect dialect_peft = {.name = "PEFT", .keys = keys, .lora = &peft_lora, .finish = finish};
