/* ferry generate: continues a prompt. */
#include "cli/cli.h"

#include "base/err.h"
#include "base/mem.h"
#include "train/sample.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* "1,2,3", "[1, 2, 3]" or "1 2 3". */
static int ids_parse(struct token_list *ids, const char *text, int64_t vocab)
{
	const char *p = text;

	while (*p) {
		char *end;
		long id;

		p += strspn(p, " ,[]\t\n");
		if (!*p)
			break;
		errno = 0;
		id = strtol(p, &end, 10);
		if (end == p)
			return err_set(ERR_INPUT, "prompt_ids: \"%.20s\" is not a list of ids like 1,2,3", p);
		if (errno || id < 0 || id >= vocab)
			return err_set(ERR_INPUT, "prompt_ids: id %.*s is outside the vocabulary of %lld",
			        (int)(end - p), p, (long long)vocab);
		if (token_list_add(ids, (int32_t)id))
			return ERR_NOMEM;
		p = end;
	}
	return 0;
}

static int prompt_read(struct session *s, struct token_list *ids)
{
	const struct config *c = s->config;
	int rc = c->prompt_ids ? ids_parse(ids, c->prompt_ids, s->model->config.V)
	                       : sample_prompt_ids(s, ids, c->prompt);

	if (!rc && !ids->count)
		rc = err_set(ERR_INPUT, "the prompt is empty: nothing to continue");
	for (int64_t i = 0; i < ids->count && !rc; i++)
		if (ids->ids[i] >= s->model->config.V)
			rc = err_set(ERR_INPUT,
			        "the tokenizer's id %d is outside the model's vocabulary of %lld",
			        ids->ids[i], (long long)s->model->config.V);
	return rc;
}

static int engine_prepare(struct session *s, int64_t max_tokens)
{
	struct engine_options o;
	int rc;

	session_engine_options(s, &o);
	o.policy.rope_positions = max_tokens;
	o.logits = (struct engine_sizes){max_tokens, 1};
	rc = session_open_engine(s, &o);
	if (!rc)
		rc = session_start_engine(s);
	return rc ? rc : session_load_weights(s);
}

static json_t *id_array(const int32_t *ids, int64_t count)
{
	json_t *list = json_array();

	for (int64_t i = 0; i < count; i++)
		json_array_append_new(list, json_integer(ids[i]));
	return list;
}

static int report(
        struct session *s, const struct token_list *ids, int64_t prompt_count, enum sample_finish finish)
{
	const struct config *c = s->config;
	int64_t count = ids->count - prompt_count;
	json_t *object;
	char *text = NULL;
	int rc = 0;

	if (!c->prompt_ids || !session_need_tokenizer(s))
		rc = tokenizer_decode(
		        s->tokenizer, &text, NULL, ids->ids + prompt_count, count, SKIP_SPECIAL_ON);
	if (rc)
		return rc;
	if (!c->json) {
		if (text)
			cli_say(c, "%s\n", text);
		else
			for (int64_t i = 0; i < count; i++)
				cli_say(c, "%d%s", ids->ids[prompt_count + i], i + 1 < count ? " " : "\n");
		mem_free(text);
		return 0;
	}
	object = json_object();
	json_object_set_new(object, "prompt_ids", id_array(ids->ids, prompt_count));
	json_object_set_new(object, "ids", id_array(ids->ids + prompt_count, count));
	json_object_set_new(object, "text", text ? json_string(text) : json_null());
	json_object_set_new(object, "finish", json_string(finish == SAMPLE_STOP ? "stop" : "length"));
	rc = cli_print_json(object);
	json_decref(object);
	mem_free(text);
	return rc;
}

int cli_generate(const struct config *c)
{
	struct session s = {0};
	struct token_list ids = {0};
	enum sample_finish finish;
	int64_t prompt_count;
	int rc = session_open_model(&s, c, SESSION_WEIGHTS_MODEL);

	if (!rc)
		rc = prompt_read(&s, &ids);
	if (!rc)
		rc = session_open_device(&s, NULL);
	if (!rc)
		rc = engine_prepare(&s, ids.count + c->max_new_tokens);
	prompt_count = ids.count;
	if (!rc)
		rc = sample_continue(&s, &ids, &finish, c->max_new_tokens);
	if (!rc)
		rc = report(&s, &ids, prompt_count, finish);
	token_list_free(&ids);
	session_close(&s);
	return rc;
}
