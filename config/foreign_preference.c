/* Preference training (DPO and its relatives) in the words of other trainers. */
#include "config/foreign_item.h"

#include "base/err.h"
#include "base/log.h"

#include <string.h>

/* 1 for a loss of pairs, as preference_loss names it. */
static int is_pair_loss(const char *text)
{
	const struct config_word *word = config_key_find("preference_loss")->words;

	for (; word->name; word++)
		if (word->value &&
		        (config_name_equal(word->name, text) || config_name_in(text, word->aliases)))
			return 1;
	return 0;
}

/* TRL: loss_type of DPOConfig and of SFTConfig */
int preference_loss_type(const struct item *s)
{
	if (item_is_off(s->text) || config_name_in(s->text, "nll chunked_nll ce cross_entropy"))
		return 0;
	return is_pair_loss(s->text) ? item_set(s, "preference_loss", s->text, CONFIG_STRONG)
	                             : item_refuse(s, "only cross-entropy and one loss of pairs are "
	                                              "supported; set one");
}

/* axolotl */
int preference_rl(const struct item *s)
{
	if (item_is_off(s->text))
		return 0;
	if (!config_name_in(s->text, "dpo ipo simpo"))
		return item_refuse(s, "not supported; supported: dpo, ipo, simpo");
	if (config_name_equal(s->text, "simpo") && item_keep(&s->f->preference.rl_simpo, s))
		return ERR_NOMEM;
	return item_set(s, "preference_loss", s->text,
	        config_name_equal(s->text, "dpo") ? CONFIG_WEAK : CONFIG_STRONG);
}

/* TRL's CPO adds so much of the chosen answer's own loss; 1 unless it is set. */
int preference_cpo_alpha(const struct item *s)
{
	s->f->preference.cpo_alpha_said = 1;
	return config_name_in(s->text, "0 0.0")
	               ? 0
	               : item_refuse(s, "the loss of the chosen answer cannot be added; set it to 0");
}

/* LLaMA-Factory: only stage dpo reads pref_loss. */
int preference_pref_loss(const struct item *s)
{
	if (item_is_off(s->text))
		return 0;
	if (!config_name_in(s->text, "sigmoid hinge ipo simpo"))
		return item_refuse(s, "not supported; supported: sigmoid, hinge, ipo, simpo");
	return item_keep(&s->f->preference.pref_loss, s);
}

int preference_stage(const struct item *s)
{
	struct foreign_preference *p = &s->f->preference;

	item_kept_free(&p->stage);
	item_kept_free(&s->f->pretrains);
	if (config_name_equal(s->text, "pt"))
		return item_keep(&s->f->pretrains, s);
	if (config_name_equal(s->text, "dpo"))
		return item_keep(&p->stage, s);
	return config_name_equal(s->text, "sft") ? 0
	                                         : item_refuse(s, "not supported; supported: sft, pt, dpo");
}

/* axolotl's types of pairs. The first word is the chat template; field: the column of the question, if it is
 * a text. */
int preference_set_type(const char **format, const struct item *s)
{
	static const struct {
		const char *types, *field;
	} known[] = {{"chatml.intel llama3.intel", "question"}, {"chatml.icr llama3.icr", "input"},
	        {"chatml.prompt_pairs llama3.prompt_pairs", "prompt"},
	        {"chatml.argilla llama3.argilla", "prompt,input,question,instruction"},
	        {"chatml.ultra llama3.ultra chatml.argilla_chat llama3.argilla_chat chat_template.default "
	         "chat_template.argilla_chat passthrough",
	                NULL}};
	const char *dot = strchr(s->text, '.');
	struct item field = *s;
	char template[16] = "";
	size_t i = 0;
	int rc = 0;

	while (i < sizeof(known) / sizeof(*known) && !config_name_in(s->text, known[i].types))
		i++;
	if (i == sizeof(known) / sizeof(*known))
		return 0;
	*format = "preference";
	if (dot && (size_t)(dot - s->text) < sizeof(template))
		memcpy(template, s->text, (size_t)(dot - s->text));
	if (config_name_in(template, "chatml llama3"))
		rc = item_set(s, "chat_template", template, CONFIG_WEAK);
	field.text = known[i].field;
	if (!rc && field.text)
		rc = item_add(&field, "field_instruction");
	if (!rc && field.text)
		rc = item_set(s, "alpaca_form", "chat", CONFIG_WEAK);
	return rc;
}

/* TRL's `beta` is a key of several losses, none of which is the default of its other trainers. */
static int check_beta(const struct config *c)
{
	const struct config_origin *beta = &c->origins[config_key_find("preference_beta") - config_keys];

	if (!beta->place || !config_name_equal(beta->as, "beta") || config_was_set(c, "preference_loss") ||
	        (c->verb != VERB_TRAIN && c->verb != VERB_PLAN && c->verb != VERB_CONFIG))
		return 0;
	return err_set(ERR_INPUT, "%s=%s does not say which loss; for DPO set loss_type to sigmoid",
	        config_where(c, "preference_beta"), config_text(c, "preference_beta"));
}

int foreign_preference_finish(struct foreign *f, struct config *c)
{
	const struct foreign_preference *p = &f->preference;
	int rc = check_beta(c);

	if (rc)
		return rc;

	if (p->rl_simpo.text && !p->cpo_alpha_said)
		log_warn("rl=simpo: axolotl adds the chosen answer's own loss unless cpo_alpha is 0; ferry "
		         "does not");
	if (p->pref_loss.text && !p->stage.text)
		log_warn("pref_loss=%s has no effect without stage=dpo", p->pref_loss.text);
	if (!p->stage.text || config_was_set(c, "preference_loss"))
		return 0;
	return p->pref_loss.text ? item_meant(c, &p->pref_loss, "preference_loss", p->pref_loss.text)
	                         : item_meant(c, &p->stage, "preference_loss", "sigmoid");
}

void foreign_preference_free(struct foreign_preference *p)
{
	item_kept_free(&p->stage);
	item_kept_free(&p->pref_loss);
	item_kept_free(&p->rl_simpo);
}
