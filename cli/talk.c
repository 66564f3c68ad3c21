/* Chats with the user in turns. */
#include "cli/talk.h"

#include "base/err.h"
#include "base/log.h"
#include "cli/answer.h"
#include "cli/signals.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct talk {
	struct generation *generation;
	struct prompts *prompts;
	struct answers answers;
	struct generation_text text;
	json_t *messages; /* the chat so far */
	int has_system, is_terminal;
};

/* Ctrl-C ends the answer, not the chat. */
static int heard(void *context, int64_t text, const struct generation_text *grown)
{
	int rc = answers_heard(context, text, grown);

	return rc ? rc : signals_interrupted();
}

static int message_add(json_t *messages, const char *role, const char *text, size_t len_bytes)
{
	json_t *message = json_pack("{s:s,s:s%}", "role", role, "content", text, len_bytes);

	if (!message)
		return err_set(ERR_INPUT, "your message is not valid UTF-8");
	return json_array_append_new(messages, message) ? err_set(ERR_NOMEM, "out of memory for a chat") : 0;
}

/* Encodes the chat so far, up to the begin of the answer. */
static int render(struct talk *t, struct token_list *ids)
{
	struct chat chat = {0};
	int rc = chat_add_messages(&chat, t->messages, "messages");

	if (!rc)
		rc = prompts_encode_chat(t->prompts, ids, &chat);
	chat_free(&chat);
	return rc;
}

/* Drops the oldest question and its answer. 0 if only the last question is left. */
static int drop_turn(struct talk *t)
{
	size_t first = (size_t)t->has_system;

	if (json_array_size(t->messages) <= first + 1)
		return 0;
	json_array_remove(t->messages, first);
	json_array_remove(t->messages, first);
	return 1;
}

/* Encodes the chat so that an answer still has room. */
static int render_fitting(struct talk *t, struct token_list *ids)
{
	const struct config *c = t->prompts->session->config;
	int64_t room = t->generation->text_tokens - t->generation->max_new_tokens, dropped = 0;
	int rc = render(t, ids);

	while (!rc && ids->count > room && c->drop_oldest && drop_turn(t)) {
		dropped++;
		ids->count = 0;
		rc = render(t, ids);
	}
	if (!rc && ids->count > room)
		rc = err_set(ERR_FIT,
		        "the chat has %" PRId64 " tokens; with max_new_tokens=%" PRId64
		        " that is more than cache_tokens=%" PRId64 "; raise it%s",
		        ids->count, t->generation->max_new_tokens, t->generation->text_tokens,
		        c->drop_oldest ? "" : " or set drop_oldest=on");
	else if (!rc && dropped)
		log_info("the oldest %" PRId64 " questions and answers were dropped to make room", dropped);
	return rc;
}

/* Asks a question and writes the answer. Forgets a question that cannot be asked. */
static int turn(struct talk *t, const char *line, size_t len_bytes)
{
	struct token_list ids = {0};
	size_t before = json_array_size(t->messages);
	int rc = message_add(t->messages, "user", line, len_bytes);

	if (!rc)
		rc = render_fitting(t, &ids);
	if (rc == ERR_INPUT || rc == ERR_FIT) {
		log_warn("%s", err_text());
		while (json_array_size(t->messages) > before)
			json_array_remove(t->messages, before);
		token_list_free(&ids);
		return 0;
	}
	if (!rc) {
		generation_text_set(t->generation, &t->text, &ids);
		if (t->is_terminal)
			signals_interrupt_begin(0);
		rc = generation_run(t->generation, &t->text, 1);
		if (t->is_terminal)
			signals_interrupt_end();
	}
	if (!rc)
		rc = answers_finish(&t->answers, 0, &t->text);
	if (!rc) {
		const struct str *said = answers_text(&t->answers, 0);

		rc = message_add(t->messages, "assistant", said->data ? said->data : "", said->len_bytes);
	}
	answers_reset(&t->answers);
	token_list_free(&ids);
	return rc;
}

static int talk_open(struct talk *t)
{
	const struct session *s = t->prompts->session;
	const char *system = prompts_system(s->config);
	int rc = 0;

	t->messages = json_array();
	if (!t->messages)
		return err_set(ERR_NOMEM, "out of memory for a chat");
	if (system)
		rc = message_add(t->messages, "system", system, strlen(system));
	t->has_system = system != NULL;
	if (!rc)
		rc = answers_open(&t->answers, s->config, s->tokenizer, 1);
	t->generation->heard = heard;
	t->generation->context = &t->answers;
	return rc;
}

/* Reads a message, -1 at the end of the chat. Ctrl-C drops what was typed: it may be meant for an answer that
 * has just ended. */
static ssize_t ask(const struct talk *t, char **line, size_t *cap)
{
	ssize_t len;

	if (!t->is_terminal)
		return getline(line, cap, stdin);
	for (;;) {
		signals_interrupt_begin(1);
		fputs("> ", stderr);
		len = signals_interrupt_wait(STDIN_FILENO) ? getline(line, cap, stdin) : -1;
		signals_interrupt_end();
		if (len >= 0 || !signals_interrupted())
			return len;
		clearerr(stdin);
		fputs("\n", stderr);
		log_info("Ctrl-D ends the chat");
	}
}

int talk(struct generation *g, struct prompts *prompts)
{
	struct talk t = {.generation = g, .prompts = prompts, .is_terminal = isatty(STDIN_FILENO)};
	int rc = talk_open(&t);
	char *line = NULL;
	size_t cap = 0;
	ssize_t len = 0;

	if (!rc && t.is_terminal)
		log_info("write a message and press Enter; Ctrl-C stops an answer, Ctrl-D ends the chat");
	while (!rc && len >= 0) {
		len = ask(&t, &line, &cap);
		while (len > 0 && (line[len - 1] == '\n' || line[len - 1] == '\r'))
			len--;
		if (len > 0)
			rc = turn(&t, line, (size_t)len);
	}
	if (t.is_terminal)
		fputs("\n", stderr);
	free(line);
	answers_close(&t.answers);
	token_list_free(&t.text.ids);
	json_decref(t.messages);
	return rc;
}
