/* Preference training (DPO and its relatives) in the words of other trainers. */
#include "config/dialect_item.h"

#include "base/err.h"
#include "base/log.h"
#include "device/preference.h"

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
static int loss_type(const struct item *s)
{
	if (item_is_off(s->text) || config_name_in(s->text, "nll chunked_nll ce cross_entropy"))
		return 0;
	return is_pair_loss(s->text) ? item_set(s, "preference_loss", s->text, CONFIG_STRONG)
	                             : item_refuse(s, "only cross-entropy and one loss of pairs are "
	                                              "supported; set one");
}

/* axolotl */
static int rl(const struct item *s)
{
	if (item_is_off(s->text))
		return 0;
	if (config_name_in(s->text, "grpo gdpo ebft ppo"))
		return item_method(s, "trains by reinforcement learning");
	if (!config_name_in(s->text, "dpo ipo simpo orpo kto"))
		return item_refuse(s, "not supported; supported: dpo, ipo, simpo, orpo, kto");
	if (config_name_in(s->text, "simpo orpo") && item_keep(s, "rl_own"))
		return ERR_NOMEM;
	return item_set(s, "preference_loss", s->text,
	        config_name_equal(s->text, "dpo") ? CONFIG_WEAK : CONFIG_STRONG);
}

/* With it TRL's CPOTrainer trains, whose sigmoid has no reference; 1 unless it is set. */
static int cpo_alpha(const struct item *s)
{
	return item_keep(s, "cpo") ? ERR_NOMEM : item_set(s, "preference_own_weight", s->text, CONFIG_STRONG);
}

/* TRL's weights of KTO, whose loss_type is kto unless it is set. */
static int judged_weight(const struct item *s)
{
	int is_good = config_name_equal(s->name, "desirable_weight");

	return item_keep(s, "judged")
	               ? ERR_NOMEM
	               : item_set(s,
	                         is_good ? "preference_desirable_weight" : "preference_undesirable_weight",
	                         s->text, CONFIG_STRONG);
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
	         "chat_template.argilla chat_template.argilla_chat passthrough",
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
	rc = item_keep(s, "set_type");
	if (dot && (size_t)(dot - s->text) < sizeof(template))
		memcpy(template, s->text, (size_t)(dot - s->text));
	if (!rc && config_name_in(template, "chatml llama3"))
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
	        config_where(c, "preference_beta"), config_said(c, "preference_beta"));
}

/* TRL's trainer reads label_smoothing in some losses only; ferry's sigmoid is conservative DPO with it. */
static void tell_smoothing(const struct config *c)
{
	const struct config_origin *o =
	        &c->origins[config_key_find("preference_label_smoothing") - config_keys];

	if (!o->place || !config_name_equal(o->as, "label_smoothing") || c->preference_label_smoothing == 0 ||
	        (c->preference_loss != PREFERENCE_SIGMOID && c->preference_loss != PREFERENCE_SIGMOID_NORM))
		return;
	log_warn("%s=%s: TRL 1.16 ignores it with loss_type=%s, and ferry applies it; remove it for TRL's "
	         "loss",
	        config_where(c, "preference_label_smoothing"), config_said(c, "preference_label_smoothing"),
	        config_text(c, "preference_loss"));
}

/* The chosen answer's own loss, where a trainer adds it unasked. */
static int own_loss(const struct dialect_state *d, struct config *c)
{
	const struct dialect_kept *rl = dialect_kept(d, "rl_own"), *cpo = dialect_kept(d, "cpo");

	if (rl && c->preference_loss == PREFERENCE_ORPO && !config_was_set(c, "preference_own_tokens"))
		return kept_set(c, rl, "preference_own_tokens", "all");
	if (rl && c->preference_loss == PREFERENCE_SIMPO && !config_was_set(c, "preference_own_weight"))
		return kept_set(c, rl, "preference_own_weight", "1");
	if (cpo && c->preference_loss && c->preference_loss != PREFERENCE_SIGMOID &&
	        c->preference_loss != PREFERENCE_SIMPO && c->preference_loss != PREFERENCE_CPO)
		return kept_error(ERR_UNSUPPORTED, cpo,
		        "asks for CPO, of which only loss_type sigmoid and simpo are supported");
	if (cpo && c->preference_loss == PREFERENCE_SIGMOID)
		return kept_set(c, cpo, "preference_loss", "cpo");
	return 0;
}

/* axolotl's types of answers have the names of those of pairs. A row has a question, one answer and a label,
 * or both as a chat. */
static int judged_set(const struct dialect_kept *type, struct config *c)
{
	static const char *const text[][2] = {
	        {"data_format", "alpaca"}, {"field_output", "completion"}, {"alpaca_form", "chat"}};
	static const char *const chat[][2] = {{"data_format", "messages"}, {"field_messages", "completion"}};
	int is_chat = config_name_in(type->text, "chatml.argilla_chat llama3.argilla_chat"), rc = 0;

	for (size_t i = 0; is_chat && !rc && i < sizeof(chat) / sizeof(*chat); i++)
		rc = kept_set(c, type, chat[i][0], chat[i][1]);
	for (size_t i = 0; !is_chat && !rc && i < sizeof(text) / sizeof(*text); i++)
		rc = kept_set(c, type, text[i][0], text[i][1]);
	return rc || is_chat || config_was_set(c, "field_instruction")
	               ? rc
	               : kept_set(c, type, "field_instruction", "prompt");
}

static int finish(struct dialect_state *d, struct config *c)
{
	const struct dialect_kept *type = dialect_kept(d, "set_type"), *judged = dialect_kept(d, "judged");
	int rc = 0;

	if (judged && !config_was_set(c, "preference_loss"))
		rc = kept_set(c, judged, "preference_loss", "kto");
	if (!rc && type && c->preference_loss == PREFERENCE_KTO)
		rc = judged_set(type, c);
	if (rc)
		return rc;
	if (config_trains(c))
		tell_smoothing(c);
	rc = own_loss(d, c);
	return rc ? rc : check_beta(c);
}

static const struct dialect_key keys[] = {
        CALL("loss loss_type", loss_type),
        CALL("rl", rl),
        CALL("cpo_alpha", cpo_alpha),
        CALL("desirable_weight undesirable_weight", judged_weight),
        KEY("beta trl.beta", "preference_beta"),
        KEY("label_smoothing", "preference_label_smoothing"),
        ONLY("pref_bco_weight", ITEM_OFF " 0.0", "losses cannot be added up; remove it"),
        ONLY("loss_weights dpo_loss_weights", ITEM_OFF " 1 1.0", "only one loss is supported; remove it"),
        ONLY("ref_model ref_model_adapters ref_model_quantization_bit reference_model ref_adapter_name "
             "force_use_ref_model",
                ITEM_OFF, "the reference is the model as it is before training; remove it"),
        ONLY("reference_free", ITEM_OFF,
                "only preference_loss=simpo, cpo and orpo have no reference; set one of them"),
        ONLY("sync_ref_model", ITEM_OFF, "the reference stays the model before training; remove it"),
        ONLY("f_divergence_type", "reverse_kl", "only reverse_kl is supported"),
        ONLY("discopop_tau", "0.05", "only 0.05 is supported; remove it"),
        ONLY("ld_alpha", ITEM_OFF " 1 1.0", "tokens of an answer count alike; remove it"),
        ONLY("use_weighting dpo_use_weighting dpo_norm_loss", ITEM_OFF, "pairs are not weighted; remove it"),
        WEAK("orpo_alpha", "preference_beta"),
        ONLY("max_prompt_length max_prompt_len max_completion_length max_target_length", ITEM_OFF,
                "only max_length limits a row, prompt and answer together; remove it"),
        ONLY("truncation_mode", "keep_start", "long rows are cut at the end; set it to keep_start"),
        ONLY("is_encoder_decoder", ITEM_OFF, "only decoders are supported"),
        ONLY("label_pad_token_id", "-100", "labels of -100 are left out; remove it"),
        PASS("precompute_ref_log_probs precompute_ref_batch_size ref_model_sync_steps ref_model_mixup_alpha "
             "ref_model_init_kwargs ref_model_init_kwargs.* model_adapter_name f_alpha_divergence_coef "
             "generate_during_eval padding_value rl_adapter_ref_model dpo_use_logits_to_keep "
             "dpo_padding_free use_logits_to_keep ppo_*"),
        KEYS_END,
};

const struct dialect dialect_preference = {.keys = keys, .finish = finish};
