/* LoRA in the words of other trainers: what switches it on, which modules it means, and what each trainer
 * does where its file says nothing. */
#include "config/foreign_item.h"

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ON "on true yes 1"

enum { CONFIG_JSON_BYTES_MAX = 1 << 20 };

/* ---- what switches it on ---- */

static const struct {
	const char *name;
	enum foreign_lora_by by;
	const char *on;
} switches[] = {{"adapter", FOREIGN_LORA_AXOLOTL, "lora"},
        {"finetuning_type", FOREIGN_LORA_LLAMA_FACTORY, "lora"}, {"use_peft", FOREIGN_LORA_TRL, ON},
        {"use_lora", FOREIGN_LORA_ON, ON}, {"lora", FOREIGN_LORA_ON, ON},
        {"model._component_", FOREIGN_LORA_TORCHTUNE, NULL}};

/* Where a file says nothing. NULL: it must be said. */
static const struct {
	const char *tool, *rank, *alpha, *targets, *dropout;
	int alpha_is_times_rank;
} defaults[FOREIGN_LORA_COUNT] = {
        [FOREIGN_LORA_AXOLOTL] = {"axolotl", NULL, NULL, NULL, NULL, 0},
        [FOREIGN_LORA_LLAMA_FACTORY] = {"LLaMA-Factory", "8", "2", "all-linear", NULL, 1},
        [FOREIGN_LORA_TRL] = {"TRL", "16", "32", "peft", "0.05", 0},
        [FOREIGN_LORA_TORCHTUNE] = {"torchtune", "8", "16", NULL, NULL, 0},
        [FOREIGN_LORA_PEFT] = {"PEFT", "8", "8", "peft", NULL, 0},
};

/* PEFT's choice by model_type, for the families of ferry that it knows. Its other families must be told. */
static const struct {
	const char *families, *targets;
} peft_targets[] = {
        {"llama mistral qwen2 qwen3 gemma gemma2 gemma3_text stablelm opt gptj gpt_neo", "q_proj,v_proj"},
        {"phi", "q_proj,v_proj,fc1,fc2"}, {"gpt_neox falcon", "query_key_value"},
        {"gpt2 gpt_bigcode", "c_attn"}};

static int switched(const struct item *s, enum foreign_lora_by by)
{
	struct foreign_lora *lora = &s->f->lora;

	if (lora->by == FOREIGN_LORA_PEFT && by == FOREIGN_LORA_TRL) /* the object says more than use_peft */
		return 0;
	lora->by = by;
	return item_keep(&lora->item, s);
}

int lora_switch(const struct item *s)
{
	size_t i = 0;

	while (!config_name_equal(s->name, switches[i].name) && i + 1 < sizeof(switches) / sizeof(*switches))
		i++;
	if (item_is_off(s->text) || config_name_equal(s->text, "full"))
		return switched(s, FOREIGN_LORA_OFF);
	if (!switches[i].on || config_name_in(s->text, switches[i].on))
		return switched(s, switches[i].by == FOREIGN_LORA_AXOLOTL && s->f->dialect != DIALECT_AXOLOTL
		                           ? FOREIGN_LORA_ON
		                           : switches[i].by);
	if (config_name_equal(s->text, "qlora"))
		return item_refuse(s, ITEM_NOT_QUANTIZED "set it to lora");
	return item_refuse(s, config_name_in("on", switches[i].on) ? "is neither on nor off"
	                                                           : "of adapters only lora is supported");
}

/* ---- which modules ---- */

static int add_target(const struct item *s, const char *name, size_t len)
{
	char word[128];
	struct item one = *s;

	snprintf(word, sizeof(word), "%.*s", (int)len, name);
	one.text = word;
	if (config_name_equal(s->name, "model.lora_attn_modules") && !strcmp(word, "output_proj"))
		one.text = "o_proj";
	if (s->f->dialect == DIALECT_LLAMA_FACTORY && !strcmp(word, "all"))
		one.text = "all-linear";
	return item_add(&one, "lora_target_modules");
}

/* A list as text, "a,b" or ["a", "b"]. */
int lora_targets(const struct item *s)
{
	static const char between[] = " ,[]\"'";
	int rc = 0;

	if (strpbrk(s->text, "\\^$*+?()|{")) /* an expression */
		return item_set(s, "lora_target_modules", s->text, CONFIG_STRONG);
	for (const char *p = s->text + strspn(s->text, between); *p && !rc; p += strspn(p, between)) {
		size_t len = strcspn(p, between);

		rc = add_target(s, p, len);
		p += len;
	}
	return rc;
}

/* Keys that are on for several modules: axolotl's lora_target_linear, torchtune's apply_lora_to_mlp. */
int lora_targets_if(const struct item *s)
{
	struct item named = *s;

	if (item_is_off(s->text))
		return 0;
	if (!config_name_in(s->text, ON))
		return item_refuse(s, "is neither on nor off");
	named.text = config_name_equal(s->name, "lora_target_linear") ? "all-linear"
	                                                              : "gate_proj,up_proj,down_proj";
	return lora_targets(&named);
}

/* ---- the rest ---- */

int lora_dropout(const struct item *s)
{
	char *end;
	double share = strtod(s->text, &end);

	if (*end || !(share >= 0 && share < 1))
		return item_refuse(s, "must be a number from 0 to below 1");
	return item_keep(&s->f->lora.dropout, s);
}

/* LLaMA-Factory takes several adapters and merges all but the last. */
int lora_path(const struct item *s)
{
	if (strchr(s->text, ','))
		return item_refuse(s, "only one adapter is supported; merge the others into the model first");
	return item_set(s, "lora_adapter", s->text, CONFIG_STRONG);
}

/* PEFT's LoraConfig as an object. */
int lora_object(const struct item *s)
{
	const char *last = strrchr(s->name, '.') + 1;
	int rc = switched(s, FOREIGN_LORA_PEFT);

	if (rc)
		return rc;
	if (config_name_equal(last, "target_modules"))
		return lora_targets(s);
	if (config_name_equal(last, "lora_dropout"))
		return lora_dropout(s);
	return item_set(s,
	        config_name_equal(last, "r")                 ? "lora_rank"
	        : config_name_equal(last, "lora_alpha")      ? "lora_alpha"
	        : config_name_equal(last, "use_rslora")      ? "use_rslora"
	        : config_name_equal(last, "exclude_modules") ? "lora_exclude_modules"
	                                                     : "lora_modules_to_save",
	        s->text, CONFIG_STRONG);
}

void foreign_lora_free(struct foreign_lora *lora)
{
	item_kept_free(&lora->item);
	item_kept_free(&lora->dropout);
}

/* ---- after all settings ---- */

/* An error in the place of the key that asks for LoRA. */
static int missing(const struct foreign_lora *lora, const char *what)
{
	const struct foreign_item *item = &lora->item;

	err_set(ERR_INPUT, "%s=%s: %s", item->name, item->text, what);
	return item->file ? err_note(ERR_INPUT, "%s:%d", item->file, item->line) : ERR_INPUT;
}

/* PEFT's modules for the model's family; NULL if it has none or no config.json says the family. */
static const char *family_targets(const struct config *c)
{
	char *path = NULL;
	json_t *root = NULL;
	const char *family = NULL, *targets = NULL;

	if (c->model && file_kind_of(c->model) == FILE_DIR)
		path = file_join(c->model, "config.json");
	else if (c->model)
		path = mem_strdup(c->model);
	if (path && file_kind_of(path) == FILE_REGULAR && !json_read_file(&root, path, CONFIG_JSON_BYTES_MAX))
		family = json_string_value(json_object_get(root, "model_type"));
	for (size_t i = 0; family && i < sizeof(peft_targets) / sizeof(*peft_targets); i++)
		if (config_name_in(family, peft_targets[i].families))
			targets = peft_targets[i].targets;
	json_decref(root);
	mem_free(path);
	return targets;
}

static int default_set(struct config *c, const struct foreign_lora *lora, const char *key, const char *text)
{
	return config_set_meant(
	        c, lora->item.file, key, lora->item.name ? lora->item.name : key, lora->item.line, text);
}

static int default_targets(const struct foreign_lora *lora, struct config *c)
{
	const char *targets = defaults[lora->by].targets;

	if (config_was_set(c, "lora_target_modules"))
		return 0;
	if (!targets)
		return missing(lora, lora->by == FOREIGN_LORA_TORCHTUNE
		                             ? "needs lora_attn_modules, as in [q_proj, v_proj]"
		                             : "needs lora_target_linear: true, or lora_target_modules");
	if (!strcmp(targets, "peft"))
		targets = family_targets(c);
	if (!targets)
		return missing(lora, "PEFT names no modules for this model; set lora_target_modules, as in "
		                     "[q_proj, v_proj], or all-linear");
	return default_set(c, lora, "lora_target_modules", targets);
}

/* What the trainer of the file does where nothing is said. */
static int defaults_apply(const struct foreign_lora *lora, struct config *c)
{
	const char *rank = defaults[lora->by].rank, *alpha = defaults[lora->by].alpha;
	int rc = 0, rank_said = config_was_set(c, "lora_rank"), alpha_said = config_was_set(c, "lora_alpha");
	int targets_said = config_was_set(c, "lora_target_modules");
	char text[40];

	if (rank_said &&
	        (!c->lora_rank || lora->by == FOREIGN_LORA_ON)) /* 0: trains every weight after all */
		return 0;
	if (!rank_said && !rank)
		return missing(lora, lora->by == FOREIGN_LORA_AXOLOTL
		                             ? "needs lora_r, for which axolotl has no default"
		                             : "needs lora_rank");
	if (!alpha_said && !alpha)
		return missing(lora, "needs lora_alpha, for which axolotl has no default");
	if (!rank_said)
		rc = default_set(c, lora, "lora_rank", rank);
	snprintf(text, sizeof(text), "%.17g",
	        alpha ? strtod(alpha, NULL) *
	                        (defaults[lora->by].alpha_is_times_rank ? (double)c->lora_rank : 1)
	              : 0);
	if (!rc && (!alpha_said || (c->lora_alpha == 0 && lora->by == FOREIGN_LORA_LLAMA_FACTORY)))
		rc = default_set(c, lora, "lora_alpha", text);
	if (!rc)
		rc = default_targets(lora, c);
	if (!rc && !(rank_said && alpha_said && targets_said))
		log_info("LoRA, with the defaults of %s where nothing is set: lora_rank=%s, lora_alpha=%s, "
		         "lora_target_modules=%s",
		        defaults[lora->by].tool, config_text(c, "lora_rank"), config_text(c, "lora_alpha"),
		        config_text(c, "lora_target_modules"));
	return rc;
}

/* What its trainer does with a setting of LoRA in a file that does not ask for LoRA. */
static const struct unasked {
	enum dialect dialect;
	const char *key, *as, *ask;
	int is_error; /* else it has no effect there */
} unasked[] = {
        {DIALECT_AXOLOTL, "lora_rank", "lora_r", "adapter: lora", 0},
        {DIALECT_AXOLOTL, "lora_adapter", "lora_model_dir", "adapter: lora", 0},
        {DIALECT_LLAMA_FACTORY, "lora_rank", "lora_rank", "finetuning_type: lora", 0},
        {DIALECT_LLAMA_FACTORY, "lora_adapter", "adapter_name_or_path", "finetuning_type: lora", 1},
        {DIALECT_TRL, "lora_rank", "lora_r", "use_peft: true", 1}, /* it may be meant for ferry */
        {DIALECT_TRANSFORMERS, "lora_rank", "lora_r", "use_peft: true", 1},
        {DIALECT_TORCHTUNE, "lora_rank", "model.lora_rank", "a model._component_ of LoRA", 1},
};

static int check_unasked(const struct foreign *f, struct config *c)
{
	for (size_t i = 0; i < sizeof(unasked) / sizeof(*unasked); i++) {
		const struct unasked *u = &unasked[i];
		const struct config_origin *o = &c->origins[config_key_find(u->key) - config_keys];
		int is_rank = config_name_equal(u->key, "lora_rank");

		if (f->file_dialect != u->dialect || !o->place || !*o->place ||
		        !config_name_equal(o->as, u->as) || (is_rank ? !c->lora_rank : !c->lora_adapter))
			continue;
		if (u->is_error)
			return err_set(ERR_INPUT,
			        "%s=%s has no effect without %s; add that, or remove the key",
			        config_where(c, u->key), config_text(c, u->key), u->ask);
		log_warn("%s=%s has no effect without %s, as in %s: every weight is trained",
		        config_where(c, u->key), config_text(c, u->key), u->ask, dialect_name(u->dialect));
		if (is_rank) {
			c->lora_rank = 0;
		} else {
			mem_free(c->lora_adapter);
			c->lora_adapter = NULL;
		}
	}
	return 0;
}

/* ferry has no dropout: one line where the file asks for it. */
static void say_dropout(const struct foreign_lora *lora)
{
	const struct foreign_item *item = &lora->dropout;

	if (item->text && strtod(item->text, NULL) > 0 && item->file)
		log_warn("%s:%d: %s=%s: ferry trains without dropout", item->file, item->line, item->name,
		        item->text);
	else if (item->text && strtod(item->text, NULL) > 0)
		log_warn("%s=%s: ferry trains without dropout", item->name, item->text);
	else if (!item->text && defaults[lora->by].dropout)
		log_warn("lora_dropout is not set, and %s would train with %s: ferry trains without dropout",
		        defaults[lora->by].tool, defaults[lora->by].dropout);
}

int foreign_lora_finish(struct foreign *f, struct config *c)
{
	struct foreign_lora *lora = &f->lora;
	int rc = 0;

	if (!config_trains(c) && c->verb != VERB_PLAN)
		return 0;
	if (lora->by == FOREIGN_LORA_UNSAID && f->file_dialect == DIALECT_LLAMA_FACTORY) {
		lora->by = FOREIGN_LORA_LLAMA_FACTORY;
		if (!config_was_set(c, "lora_rank") && !c->lora_adapter)
			log_warn("%s: without finetuning_type, LLaMA-Factory trains LoRA adapters; for every "
			         "weight set finetuning_type=full",
			        f->file);
	}
	if (lora->by == FOREIGN_LORA_UNSAID || lora->by == FOREIGN_LORA_OFF)
		rc = check_unasked(f, c);
	else if (!c->lora_adapter)
		rc = defaults_apply(lora, c);
	if (!rc && (c->lora_rank || c->lora_adapter))
		say_dropout(lora);
	return rc;
}
