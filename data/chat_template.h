/* The chat template of a model: which one it is, what it sees, and which token ends a turn.
 *
 * A model brings its own in chat_template.jinja, additional_chat_templates/ or tokenizer_config.json; users
 * may name another: one of the model's, one of the built-in ones, or a file. Where neither is there, chats
 * are refused: a template that the model was not trained with is never guessed.
 *
 * The *end of turn* is the token that the template writes behind the assistant's words and that ends a text
 * when the model generates. It is found once, by rendering a chat of four turns: the special token that
 * follows the words of an answer, if it ends both answers or the model's files call it an end.
 */
#ifndef FERRY_DATA_CHAT_TEMPLATE_H
#define FERRY_DATA_CHAT_TEMPLATE_H

#include "data/chat.h"
#include "data/template/template.h"

struct str;
struct tokenizer;
struct chat_template;

struct chat_template_options {
	const char *choice;                /* NULL: the model's own */
	const char *dir;                   /* of the tokenizer's files; NULL: none */
	const struct tokenizer *tokenizer; /* borrowed */
	const json_t *kwargs;              /* more variables, an object or NULL; borrowed */
};

/* A model without a template is no error here: chat_template_render refuses, with the list of names.
 * ERR_INPUT: no such template or a wrong one. */
int chat_template_open(struct chat_template **t, const struct chat_template_options *options);
void chat_template_close(struct chat_template *t);

/* For messages: "MODEL/chat_template.jinja", "chatml" ... */
const char *chat_template_name(const struct chat_template *t);

/* The template's text; NULL where the model brings several or none. */
const char *chat_template_text(const struct chat_template *t);

/* The text that renders this chat; NULL where there is none. */
const char *chat_template_text_for(const struct chat_template *t, const struct chat *chat);

/* Appends the name and all texts: what decides how chats are written. */
void chat_template_texts(struct str *out, const struct chat_template *t);

enum chat_prompt { CHAT_PROMPT_OFF, CHAT_PROMPT_ON };

/* The text of the first message_count messages. `prompt`: add_generation_prompt. */
int chat_template_render(const struct chat_template *t, struct jinja_output *out, const struct chat *chat,
        int64_t message_count, enum chat_prompt prompt);
/* 1 where what the assistant says is marked by {% generation %} in the template for this chat. */
int chat_template_marks(const struct chat_template *t, const struct chat *chat);

/* The last of ids[from .. to) that ends a turn, or -1: the token that the template writes behind an answer,
 * or, where it is not there, one that the model's files call an end. */
int64_t chat_template_find_end(const struct chat_template *t, const int32_t *ids, int64_t from, int64_t to);

#endif
