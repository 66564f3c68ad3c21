/* Continues a prompt while a model trains. */
#include "train/sample.h"

#include "train/generation/sample_defaults.h"
#include "train/inputs/data_config.h"
#include "train/ranks/ranks_share.h"

#include "base/err.h"
#include "base/size.h"
#include "comm/world.h"
#include "placement/ranks.h"

#include <string.h>

void sample_attach(struct generation *g, const struct session *s)
{
	g->model = s->model;
	g->tokenizer = s->tokenizer;
	g->engine = s->engine;
	g->ends_by_rank0 = s->config->load == CONFIG_LOAD_RANK0_ONLY;
}

/* Without a cache: each new token runs forward over the whole text. */
int sample_continue(
        struct session *s, struct token_list *ids, enum generation_finish *finish, int64_t max_new_tokens)
{
	struct generation_text text = {.ids = *ids};
	struct generation g = {.choose = sample_choose_options(s->config),
	        .pass_tokens = ids->count + max_new_tokens,
	        .max_new_tokens = max_new_tokens};
	int rc;

	sample_attach(&g, s);
	rc = generation_run(&g, &text, 1);
	*ids = text.ids;
	*finish = text.finish;
	return rc;
}

/* With rows of instructions the prompt is an instruction too. */
static int asks_by_instruction(const struct session *s)
{
	return s->config->data_format == DATASET_FORMAT_ALPACA ||
	       (s->train.data && s->train.data->format == DATASET_FORMAT_ALPACA);
}

static int prompt_encode(struct session *s, struct token_list *ids, const char *prompt, size_t len_bytes)
{
	enum dataset_alpaca alpaca = data_config_alpaca(s->config);
	struct str text = {0};
	int rc = session_need_tokenizer(s);

	if (rc)
		return rc;
	if (asks_by_instruction(s) && alpaca == DATASET_ALPACA_CHAT && s->config->verb == VERB_GENERATE)
		return err_set(ERR_INPUT,
		        "alpaca rows are chats here (alpaca_form, chat_template): set chat=on instead of "
		        "data_format=alpaca");
	if (asks_by_instruction(s) && alpaca != DATASET_ALPACA_CHAT)
		dataset_alpaca_prompt(&text, alpaca, prompt, len_bytes, "", 0);
	else
		str_add_bytes(&text, prompt, len_bytes);
	rc = str_check(&text);
	if (!rc)
		rc = tokenizer_encode(
		        s->tokenizer, ids, text.data ? text.data : "", text.len_bytes, ADD_SPECIAL_BEFORE);
	str_free(&text);
	return rc;
}

int sample_prompt_ids(struct session *s, struct token_list *ids, const char *prompt, size_t len_bytes)
{
	int rc = ranks_reads_files(s->config, world_self()) ? prompt_encode(s, ids, prompt, len_bytes) : 0;

	rc = world_agree(rc);
	return rc ? rc : ranks_share_tokens(s->config, ids);
}

int sample_add_sizes(struct session *s, struct engine_options *o)
{
	const struct config *c = s->config;
	struct token_list prompt = {0};
	int64_t tokens;
	int rc = 0;

	if (!c->sample_prompt)
		return 0;
	if (c->verb == VERB_PLAN && !s->tokenizer)
		rc = data_config_tokenizer(&s->tokenizer, c, TOKENIZER_OPTIONAL);
	tokens = (int64_t)strlen(c->sample_prompt) + 1;
	if (!rc && (c->verb != VERB_PLAN || s->tokenizer)) {
		rc = sample_prompt_ids(s, &prompt, c->sample_prompt, strlen(c->sample_prompt));
		tokens = prompt.count;
	}
	token_list_free(&prompt);
	o->logits = (struct engine_sizes){tokens + c->max_new_tokens, 1, 1};
	o->policy.rope_positions = max_i64(o->policy.rope_positions, o->logits.max_tokens);
	return rc;
}

int sample_run_sizes(struct session *s, struct engine_options *o)
{
	const struct session_rows *evaluated[] = {&s->eval, &s->pass, &s->eval_pass};

	o->policy.rope_positions = s->train.limits.doc_tokens;
	o->train = session_rows_sizes(&s->train);
	for (size_t i = 0; i < sizeof(evaluated) / sizeof(*evaluated); i++) {
		const struct engine_sizes sizes = session_rows_sizes(evaluated[i]);

		if (!evaluated[i]->data)
			continue;
		o->policy.rope_positions = max_i64(o->policy.rope_positions, evaluated[i]->limits.doc_tokens);
		o->eval.max_tokens = max_i64(o->eval.max_tokens, sizes.max_tokens);
		o->eval.max_targets = max_i64(o->eval.max_targets, sizes.max_targets);
		o->eval.max_documents = max_i64(o->eval.max_documents, sizes.max_documents);
	}
	return sample_add_sizes(s, o);
}
