/* ferry generate: continues prompts, or chats with the user. */
#include "cli/answer.h"
#include "cli/cli.h"
#include "cli/prompts.h"
#include "cli/talk.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/quantity.h"
#include "base/size.h"
#include "train/generation/sample_defaults.h"
#include "train/sample.h"

#include <inttypes.h>
#include <string.h>

enum { TEXTS_AT_ONCE = 8, PASS_TOKENS = 2048, TALK_TOKENS = 4096 };

/* Whether to chat: chat=on without a prompt. */
static int talks(const struct config *c)
{
	return c->chat && !config_was_set(c, "prompt") && !c->prompt_file;
}

/* Checks that each prompt and its answer fit the cache. With drop_oldest cuts the begin of longer prompts. */
static int prompts_fit(struct prompts *p, int64_t room, int64_t max_new_tokens)
{
	const struct config *c = p->session->config;

	for (int64_t i = 0; i < p->count; i++) {
		struct token_list *ids = &p->list[i].ids;
		int64_t over = ids->count - room;

		if (over <= 0)
			continue;
		if (room < 1)
			return err_set(ERR_FIT,
			        "max_new_tokens=%" PRId64
			        " leaves no room for a prompt in cache_tokens=%" PRId64
			        "; lower max_new_tokens or raise cache_tokens",
			        max_new_tokens, c->cache_tokens);
		if (!c->drop_oldest)
			return err_set(ERR_FIT,
			        "a prompt has %" PRId64 " tokens; with max_new_tokens=%" PRId64
			        " that is more than cache_tokens=%" PRId64 "; raise it or set drop_oldest=on",
			        ids->count, max_new_tokens, c->cache_tokens);
		log_warn("dropped the first %" PRId64 " tokens of a prompt to fit cache_tokens", over);
		memmove(ids->ids, ids->ids + over, (size_t)room * sizeof(*ids->ids));
		ids->count = room;
	}
	return 0;
}

/* Sets the cache's room for the longest prompt and its answer. */
static int generation_fit(struct generation *g, struct prompts *p, int64_t texts)
{
	const struct config *c = p->session->config;
	int64_t longest = 1, total = 0, limit = p->session->model->config.max_positions;

	for (int64_t i = 0; i < p->count; i++) {
		longest = max_i64(longest, p->list[i].ids.count);
		total += p->list[i].ids.count;
	}
	g->text_tokens = c->cache_tokens > 0 ? c->cache_tokens : longest + g->max_new_tokens;
	if (talks(c) && c->cache_tokens <= 0) {
		g->text_tokens = limit > 0 && limit < TALK_TOKENS ? limit : TALK_TOKENS;
		g->max_new_tokens = min_i64(g->max_new_tokens, g->text_tokens / 2);
	}
	g->pass_tokens = max_i64(min_i64(talks(c) ? g->text_tokens : total, PASS_TOKENS), texts);
	return talks(c) ? 0 : prompts_fit(p, g->text_tokens - g->max_new_tokens, g->max_new_tokens);
}

/* Logs the size of the cache and, if weights do not stay on the device, the bytes copied for each token. */
static void costs_say(const struct session *s, const struct generation *g, int64_t texts)
{
	const struct plan *p = engine_plan(s->engine, PLAN_LOGITS);
	int64_t rows = plan_bytes_of(p, SPACE_DEVICE, BUFFER_ROWS); /* of a table, for a whole pass */
	int64_t streamed = p->h2d_bytes - plan_batch_bytes(&p->policy) - rows;
	struct str cache = {0}, room = {0}, weights = {0};

	quantity_bytes(&cache, plan_bytes_of(p, SPACE_DEVICE, BUFFER_CACHE));
	str_printf(&room, "%" PRId64 " tokens", g->text_tokens);
	if (texts > 1)
		str_printf(&room, " of each of %" PRId64 " texts", texts);
	log_info("KV cache: %s%s, for %s", cache.data ? cache.data : "",
	        s->device_memory.is_host ? "" : " of GPU memory", room.data ? room.data : "");
	if (streamed > 0) {
		quantity_bytes(&weights, streamed + rows / p->policy.max_tokens * texts);
		log_info("the weights do not stay on the device: each new token copies %s to it%s",
		        weights.data ? weights.data : "", texts > 1 ? ", for all texts together" : "");
	}
	str_free(&cache);
	str_free(&room);
	str_free(&weights);
}

static int engine_prepare(struct session *s, struct generation *g, int64_t texts)
{
	struct engine_options o;
	int rc;

	session_engine_options(s, &o);
	o.policy.rope_positions = 1;
	generation_sizes(g, texts, &o);
	rc = session_open_engine(s, &o);
	if (!rc)
		costs_say(s, g, texts);
	if (!rc)
		rc = session_start_engine(s);
	if (!rc)
		rc = session_load_weights(s);
	if (!rc)
		(void)!session_need_tokenizer(s); /* prompts of ids need no tokenizer; answers are then ids */
	sample_attach(g, s);
	return rc;
}

/* Runs prompts [first, first + count) together. */
static int group_run(struct generation *g, struct prompts *p, struct answers *a, int64_t first, int64_t count)
{
	struct generation_text *texts = mem_alloc((size_t)count, sizeof(*texts));
	int rc = texts ? 0 : ERR_NOMEM;

	for (int64_t i = 0; i < count && texts; i++) {
		texts[i].ids = p->list[first + i].ids;
		texts[i].number = first + i;
		p->list[first + i].ids = (struct token_list){0};
		if (!p->list[first + i].is_chat)
			answers_continue(a, i);
		answers_title(a, i, p->count > 1 ? p->list[first + i].where : NULL);
	}
	if (!rc)
		rc = generation_run(g, texts, count);
	for (int64_t i = 0; i < count && !rc; i++)
		rc = answers_finish(a, i, &texts[i]);
	answers_reset(a);
	for (int64_t i = 0; i < count && texts; i++)
		token_list_free(&texts[i].ids);
	mem_free(texts);
	return rc;
}

static int continue_all(struct generation *g, struct prompts *p, int64_t texts)
{
	struct answers a = {0};
	int rc = answers_open(&a, p->session->config, p->session->tokenizer, texts);

	g->heard = answers_heard;
	g->context = &a;
	for (int64_t first = 0; first < p->count && !rc; first += texts)
		rc = group_run(g, p, &a, first, min_i64(texts, p->count - first));
	answers_close(&a);
	return rc;
}

/* Checks that a chat has a template, before anything large is opened. */
static int template_check(struct prompts *p)
{
	json_t *messages = json_pack("[{s:s,s:s}]", "role", "user", "content", "hello");
	struct token_list ids = {0};
	struct chat chat = {0};
	int rc = chat_add_messages(&chat, messages, "messages");

	if (!rc)
		rc = prompts_encode_chat(p, &ids, &chat);
	chat_free(&chat);
	token_list_free(&ids);
	json_decref(messages);
	return rc;
}

int cli_generate(const struct config *c)
{
	struct session s = {0};
	struct prompts prompts = {.session = &s};
	struct generation g = {0};
	int64_t most = config_was_set(c, "per_device_eval_batch_size") ? c->per_device_eval_batch_size
	                                                               : TEXTS_AT_ONCE;
	int64_t texts;
	int rc = session_open_model(&s, c, SESSION_WEIGHTS_MODEL);

	if (!rc)
		rc = session_infer(&s);
	if (!rc)
		rc = sample_defaults(&g.choose, &g.max_new_tokens, c, s.model_dir);
	if (!rc)
		rc = talks(c) ? template_check(&prompts) : prompts_read(&prompts);
	texts = max_i64(min_i64(prompts.count, most), 1);
	if (!rc)
		rc = generation_fit(&g, &prompts, texts);
	if (!rc)
		rc = session_open_device(&s, NULL);
	if (!rc)
		rc = engine_prepare(&s, &g, texts);
	if (!rc)
		rc = talks(c) ? talk(&g, &prompts) : continue_all(&g, &prompts, texts);
	prompts_free(&prompts);
	session_close(&s);
	return rc;
}
