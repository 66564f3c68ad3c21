/* What a result's directory has beside its weights: config.json, tokenizer, how texts and turns end. */
#include "train/session.h"

#include "data/chat/chat_template.h"
#include "data/tokenizer/tokenizer.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/hf/hf_config.h"
#include "comm/world.h"

static void keep_end(struct session *s, int32_t id)
{
	if (s->chat.end_id_count < HF_CHAT_END_IDS_MAX)
		s->chat.end_ids[s->chat.end_id_count++] = id;
}

int session_keep_chat(struct session *s, const struct dataset *d, const struct chat_template *t)
{
	const struct config *c = s->config;
	const char *text = d->counts.chats ? chat_template_text(t) : NULL;

	if (c->eos_token && *c->eos_token && s->tokenizer) {
		s->chat.eos_token = c->eos_token;
		keep_end(s, tokenizer_roles(s->tokenizer)->eos);
	}
	for (int i = 0; d->counts.chats && i < d->counts.turn_end_id_count; i++)
		keep_end(s, d->counts.turn_end_ids[i]);
	for (int i = 0; i < s->model->config.eos_count; i++)
		s->chat.text_end_ids[s->chat.text_end_id_count++] = (int32_t)s->model->config.eos_ids[i];
	if (text)
		s->chat.template_text = mem_strdup(text);
	if (d->counts.chats && c->chat_template_kwargs && *c->chat_template_kwargs)
		log_warn("the result's chat template does not contain %s; pass it whenever you render chats "
		         "for the result",
		        config_where(c, "chat_template_kwargs"));
	return text && !s->chat.template_text ? ERR_NOMEM : 0;
}

int session_open_side(struct session *s)
{
	const struct config *c = s->config;
	int rc;

	if (world_self()->rank)
		return 0; /* only rank 0 writes them */
	rc = side_files_read(&s->side, c->model, c->tokenizer);
	if (!rc)
		rc = hf_config_apply(&s->side, s->model);
	if (!rc && c->objective)
		rc = labels_complete(&s->side, &s->labels, s->model);
	if (!rc && c->embedding_loss)
		rc = sentence_dir_complete(&s->side, &s->sentence, s->model->config.C);
	return rc ? rc : hf_chat_apply(&s->chat, &s->side);
}
