/* Keys of other tools, and what they become here. */
#include "config/foreign.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "comm/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What becomes of a foreign key. In all of them an empty value (null) sets nothing. */
enum foreign_kind {
	FOREIGN_KEY,  /* `arg` under another name */
	FOREIGN_LIST, /* the same, of several data sets: joined by commas */
	FOREIGN_WEAK, /* the same, but a stronger spelling beside it wins */
	FOREIGN_PASS, /* changes nothing here */
	FOREIGN_ONLY, /* changes nothing while it has one of the values in `arg`, else refused with `note` */
	FOREIGN_IF,   /* sets `arg` ("key=value") when on */
	FOREIGN_NOT,  /* the flag `arg`, turned round */
	FOREIGN_NULL, /* `arg`; null switches it off instead of leaving its default */
	FOREIGN_CALL, /* has a function: foreign_calls[] of the same name */
};

struct foreign_key {
	const char *names; /* separated by blanks; a name that ends in * is a prefix */
	enum foreign_kind kind;
	const char *arg, *note;
	unsigned dialects; /* bits; 0 = any. Others are looked at before our own keys. */
};

#define OFF "off false no 0 none null"
#define ADAMW                                                                                                \
	"adamw adamw_torch adamw_torch_fused adamw_hf adamw_apex_fused adamw_anyprecision torch.optim.AdamW"
#define AXOLOTL (1u << DIALECT_AXOLOTL)
#define TORCHTUNE (1u << DIALECT_TORCHTUNE)
#define TRANSFORMERS (1u << DIALECT_TRANSFORMERS)

static const struct foreign_key foreign_keys[] = {
#include "config/foreign_keys.inc"
};

/* ---- one setting ---- */

/* A setting that is being looked at. */
struct item {
	struct foreign *f;
	struct config *c;
	struct config_layer *layer;
	const char *name, *text;
	int line;
};

static int item_set(const struct item *s, const char *key, const char *text, enum config_strength strength)
{
	const struct config_key *own = config_key_find(key);

	if (!config_key_known(own, s->c->verb) && !s->layer->file)
		return err_set(ERR_INPUT, "%s means %s, which is not a key of ferry %s; see ferry %s --help",
		        s->name, key, verb_name(s->c->verb), verb_name(s->c->verb));
	return config_set(s->c, s->layer, own, s->name, s->line, text, strength);
}

/* Behind what the layer has set already, unless it is among that. */
static int item_add(const struct item *s, const char *key)
{
	const struct config_key *own = config_key_find(key);
	const char *before = config_text(s->c, key), *at = strstr(before, s->text);
	unsigned char *seen = &s->layer->seen[own - config_keys];
	char *both;
	int rc;

	if (!*seen)
		return item_set(s, key, s->text, CONFIG_STRONG);
	if (at && (at == before || at[-1] == ',') && strchr(",", at[strlen(s->text)]))
		return 0;
	both = mem_printf("%s,%s", before, s->text);
	if (!both)
		return ERR_NOMEM;
	*seen = 0;
	rc = item_set(s, key, both, CONFIG_STRONG);
	mem_free(both);
	return rc;
}

int foreign_pass(struct foreign *f, const char *name)
{
	str_printf(&f->passed, "%s%s", f->passed.len_bytes ? ", " : "", name);
	return str_check(&f->passed);
}

static int item_pass(const struct item *s)
{
	return foreign_pass(s->f, s->name);
}

static int item_refuse(const struct item *s, const char *why)
{
	struct str place = {0};

	config_place(&place, s->layer, s->line);
	err_set(ERR_UNSUPPORTED, "%s%s=%.80s: %s", place.data ? place.data : "", s->name, s->text, why);
	str_free(&place);
	return ERR_UNSUPPORTED;
}

static int is_off(const char *text)
{
	return !*text || config_name_in(text, OFF);
}

static int strategy(const struct item *s)
{
	int save = config_name_equal(s->name, "save_strategy");

	if (config_name_equal(s->text, "steps"))
		return 0;
	if (is_off(s->text))
		return save ? item_set(s, "save_only_model", "on", CONFIG_WEAK)
		            : item_set(s, "eval_steps", "0", CONFIG_WEAK);
	if (!config_name_equal(s->text, "epoch"))
		return item_refuse(s, "not supported; supported: no, steps, epoch");
	*(save ? &s->f->save_by_epoch : &s->f->eval_by_epoch) = 1;
	return 0;
}

static int per_epoch(const struct item *s)
{
	char *end;
	double count = strtod(s->text, &end);

	if (*end || !(count >= 0) || count > 1e6)
		return item_refuse(s, "not a number");
	*(config_name_equal(s->name, "saves_per_epoch") ? &s->f->saves_per_epoch : &s->f->evals_per_epoch) =
	        count;
	return 0;
}

/* transformers: fsdp="full_shard auto_wrap offload"; axolotl: the same as a list */
static int fsdp_words(const struct item *s)
{
	const char *p = s->text;
	char word[40];
	int err = 0;

	if (is_off(s->text))
		return 0;
	while (*p && !err) {
		size_t len;

		p += strspn(p, " ,[]\"'");
		len = strcspn(p, " ,[]\"'");
		if (!len)
			break;
		snprintf(word, sizeof(word), "%.*s", (int)len, p);
		p += len;
		if (config_name_equal(word, "offload"))
			err = item_set(s, "cpu_offload", "on", CONFIG_WEAK);
		else if (!config_name_equal(word, "auto_wrap"))
			err = item_set(s, "sharding_strategy", word, CONFIG_WEAK);
	}
	return err;
}

static int reshard(const struct item *s)
{
	if (config_name_in(s->text, "on true yes 1"))
		return item_set(s, "sharding_strategy", "FULL_SHARD", CONFIG_WEAK);
	if (is_off(s->text))
		return item_set(s, "sharding_strategy", "SHARD_GRAD_OP", CONFIG_WEAK);
	return item_set(s, "sharding_strategy", s->text, CONFIG_WEAK);
}

static int zero(const struct item *s)
{
	static const char *const stages[] = {"NO_SHARD", NULL, "SHARD_GRAD_OP", "FULL_SHARD"};
	const char *what = strchr(s->name, '.') + 1;

	if (config_name_equal(what, "zero_stage")) {
		if (strlen(s->text) != 1 || !strchr("023", *s->text))
			return item_refuse(s, "not supported; supported: 0, 2, 3");
		return item_set(s, "sharding_strategy", stages[*s->text - '0'], CONFIG_WEAK);
	}
	if (is_off(s->text))
		return 0;
	if (!config_name_equal(s->text, "cpu"))
		return item_refuse(s, "not supported; supported: cpu, none");
	s->f->zero_offload |= config_name_equal(what, "offload_param_device")
	                              ? CONFIG_OFFLOAD_PARAMS
	                              : CONFIG_OFFLOAD_OPTIMIZER | CONFIG_OFFLOAD_GRADIENTS;
	return 0;
}

static int total_batch(const struct item *s)
{
	char *end;
	long rows = strtol(s->text, &end, 10);

	if (*end || rows < 1 || rows > 1000000)
		return item_refuse(s, "not a number of rows");
	s->f->total_batch = rows;
	return 0;
}

/* Of a Python name the last part says what it is. */
static int component(const struct item *s)
{
	const char *dot = strrchr(s->text, '.'), *last = dot ? dot + 1 : s->text;

	if (config_name_equal(s->name, "model._component_"))
		return strstr(last, "lora")
		               ? item_refuse(s, "this trains LoRA adapters, which ferry does not support yet")
		               : item_pass(s);
	if (config_name_equal(s->name, "loss._component_"))
		return strstr(last, "CrossEntropy") || strstr(last, "CEWithChunked")
		               ? item_pass(s)
		               : item_refuse(s, "only cross-entropy is supported");
	if (config_name_equal(s->name, "lr_scheduler._component_"))
		return item_set(s, "lr_scheduler_type", last, CONFIG_STRONG);
	if (config_name_equal(s->name, "dataset.source"))
		return config_name_in(s->text, "json text csv parquet")
		               ? 0
		               : item_set(s, "data", s->text, CONFIG_WEAK);
	if (config_name_in(last, "alpaca_dataset alpaca_cleaned_dataset")) {
		int err = item_set(s, "train_on_inputs", "on", CONFIG_WEAK); /* the default of these two */

		return err ? err : item_set(s, "data_format", "alpaca", CONFIG_STRONG);
	}
	if (config_name_equal(last, "text_completion_dataset"))
		return item_set(s, "data_format", "text", CONFIG_STRONG);
	if (config_name_equal(last, "chat_dataset"))
		return item_set(s, "data_format", "messages", CONFIG_WEAK);
	return item_refuse(
	        s, "not supported; supported: alpaca_dataset, chat_dataset, text_completion_dataset");
}

/* A part of a list of data sets, named by its last word. */
static int data_set(const struct item *s)
{
	static const char *const parts[] = {"path", "data_files", "weight", "type"};
	const char *last = strrchr(s->name, '.') + 1;

	for (int part = 0; part < FOREIGN_SET_PARTS; part++)
		if (config_name_equal(last, parts[part]))
			return foreign_sets_add(
			        &s->f->sets, (enum foreign_set_part)part, s->name, s->text, s->line);
	return err_set(ERR_INTERNAL, "no meaning for %s", s->name);
}

static int mix_weights(const struct item *s)
{
	return is_off(s->text) ? 0 : foreign_sets_weights(&s->f->sets, s->name, s->text, s->line);
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

/* torchtune: of a chat_dataset. Both readers look at the messages themselves. */
static int conversation_style(const struct item *s)
{
	if (config_name_in(s->text, "openai sharegpt"))
		return 0;
	return item_refuse(s, "not supported; supported: openai, sharegpt");
}

static int optimizer(const struct item *s)
{
	const char *dot = strrchr(s->text, '.'), *last = dot ? dot + 1 : s->text;

	if (!*s->text || config_name_in(s->text, ADAMW) || config_name_in(last, "AdamW"))
		return 0;
	if (config_name_in(last, "paged_adamw paged_adamw_32bit PagedAdamW PagedAdamW32bit"))
		return item_pass(s); /* moments are in host memory anyway */
	if (config_name_in(last,
	            "adamw_8bit adamw_bnb_8bit adamw_torch_8bit paged_adamw_8bit AdamW8bit PagedAdamW8bit")) {
		log_info("%s=%s: reading it as optimizer_state=8bit", s->name, s->text);
		return item_set(s, "optimizer_state", "8bit", CONFIG_WEAK);
	}
	return item_refuse(s, "only AdamW is supported");
}

/* Ranks are started by mpirun or srun, not by a file. */
static int processes(const struct item *s)
{
	char *end;
	long count = strtol(s->text, &end, 10);
	struct str place = {0};
	struct launch launch;

	if (*end || count < 1 || count > 1000000)
		return item_refuse(s, "must be a number of processes");
	launch_read_any(&launch);
	if (count == 1 || s->c->verb != VERB_TRAIN || launch.size > 1)
		return 0;
	config_place(&place, s->layer, s->line);
	log_warn("%s%s=%ld has no effect: one rank trains, with 1/%ld of the rows of a step; for %ld ranks "
	         "set ranks=%ld",
	        place.data ? place.data : "", s->name, count, count, count, count);
	str_free(&place);
	return 0;
}

static int betas(const struct item *s)
{
	char first[32];
	const char *comma = strchr(s->text, ',');
	int err;

	if (!comma || comma - s->text >= (int)sizeof(first))
		return item_refuse(s, "not two numbers");
	snprintf(first, sizeof(first), "%.*s", (int)(comma - s->text), s->text);
	err = item_set(s, "adam_beta1", first + strspn(first, "[( "), CONFIG_STRONG);
	return err ? err : item_set(s, "adam_beta2", comma + 1 + strspn(comma + 1, " "), CONFIG_STRONG);
}

static const struct {
	const char *names;
	int (*call)(const struct item *s);
} foreign_calls[] = {
        {"save_strategy eval_strategy evaluation_strategy", strategy},
        {"saves_per_epoch evals_per_epoch", per_epoch},
        {"fsdp", fsdp_words},
        {"fsdp.reshard_after_forward", reshard},
        {"deepspeed_config.*", zero},
        {"batch_size", total_batch},
        {"model._component_ dataset._component_ dataset.source loss._component_ lr_scheduler._component_",
                component},
        {"dataset.conversation_style", conversation_style},
        {"datasets.* data.* dataset_mixture.*", data_set},
        {"interleave_probs", mix_weights},
        {"mix_strategy", mix_strategy},
        {"optimizer.betas", betas},
        {"optimizer._component_ optim optimizer", optimizer},
        {"num_processes", processes},
};

static int item_apply(const struct item *s, const struct foreign_key *key, const char *name)
{
	char target[64];
	const char *equals;

	switch (key->kind) {
	case FOREIGN_KEY:
	case FOREIGN_NULL:
		return item_set(s, key->arg, s->text, CONFIG_STRONG);
	case FOREIGN_LIST:
		return item_add(s, key->arg);
	case FOREIGN_WEAK:
		return item_set(s, key->arg, s->text, CONFIG_WEAK);
	case FOREIGN_PASS:
		return item_pass(s);
	case FOREIGN_ONLY:
		return !*s->text || config_name_in(s->text, key->arg) ? 0 : item_refuse(s, key->note);
	case FOREIGN_IF:
		if (is_off(s->text))
			return 0;
		equals = strchr(key->arg, '=');
		snprintf(target, sizeof(target), "%.*s", (int)(equals - key->arg), key->arg);
		s->layer->seen[config_key_find(target) - config_keys] = 0; /* it is the stronger one */
		return item_set(s, target, equals + 1, CONFIG_STRONG);
	case FOREIGN_NOT:
		return item_set(s, key->arg, is_off(s->text) ? "on" : "off", CONFIG_STRONG);
	case FOREIGN_CALL:
		for (size_t i = 0; i < sizeof(foreign_calls) / sizeof(*foreign_calls); i++)
			if (foreign_name_matches(name, foreign_calls[i].names))
				return foreign_calls[i].call(s);
	}
	return err_set(ERR_INTERNAL, "no meaning for %s", s->name);
}

static const struct foreign_key *find(const char *name, enum foreign_scope scope, enum dialect dialect)
{
	for (size_t i = 0; i < sizeof(foreign_keys) / sizeof(*foreign_keys); i++) {
		const struct foreign_key *key = &foreign_keys[i];

		if (scope == FOREIGN_OWN_MEANING ? !(key->dialects >> dialect & 1) : key->dialects != 0)
			continue;
		if (foreign_name_matches(name, key->names))
			return key;
	}
	return NULL;
}

int foreign_set(struct foreign *f, struct config *c, struct config_layer *layer, const char *name,
        const char *text, int line, int is_null, enum foreign_scope scope)
{
	struct item s = {f, c, layer, name, text, line};
	const struct foreign_key *key = NULL;
	const char *rest = NULL;
	char fsdp[160];
	int err;

	if (!strncmp(name, "fsdp_config.fsdp_", 17))
		rest = name + 17;
	else if (!strncmp(name, "fsdp_config.", 12))
		rest = name + 12;
	else if (!strncmp(name, "fsdp_", 5) || !strncmp(name, "fsdp-", 5))
		rest = name + 5;
	if (rest) {
		snprintf(fsdp, sizeof(fsdp), "fsdp.%.140s", rest);
		key = find(fsdp, scope, f->dialect);
	}
	if (key)
		name = fsdp;
	else
		key = find(name, scope, f->dialect);
	if (!key)
		return FOREIGN_UNKNOWN;
	if (is_null && key->kind != FOREIGN_NULL)
		return FOREIGN_TAKEN;
	if (is_null)
		s.text = "off";
	err = item_apply(&s, key, name);
	return err ? err : FOREIGN_TAKEN;
}

void foreign_free(struct foreign *f)
{
	str_free(&f->passed);
	foreign_sets_free(&f->sets);
}
