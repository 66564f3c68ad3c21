/* The chat template of a model: its choice, its variables, and the token that ends a turn.
 *
 * A model has its own templates in chat_template.jinja, additional_chat_templates/ or tokenizer_config.json.
 * Users may name another: one of the model's, a built-in one, or a file. Without any template, ferry refuses
 * chats; it never guesses one that the model was not trained with.
 *
 * The *end of turn* is the token that the template writes after the assistant's words, and that ends
 * generation. ferry finds it once by rendering a chat of four turns. It is the special token after an
 * answer's words, if it ends both answers or the model's files list it as an end token.
 */
#ifndef FERRY_DATA_CHAT_CHAT_TEMPLATE_H
#define FERRY_DATA_CHAT_CHAT_TEMPLATE_H

#include "data/chat/chat.h"
#include "data/template/template.h"

struct str;
struct tokenizer;
struct chat_template;

struct chat_template_options {
	const char *choice;                /* NULL: the model's own */
	const char *fallback;              /* the choice if the model has none; NULL: none */
	const char *where;                 /* of the choice, for messages; NULL: "chat_template" */
	const char *dir;                   /* of the tokenizer's files; NULL: none */
	const struct tokenizer *tokenizer; /* borrowed */
	const json_t *kwargs;              /* more variables, an object or NULL; borrowed */
	int64_t moment;                    /* the date that it writes: data/template/moment.h */
};

/* A model without a template is not an error here: chat_template_render refuses with the list of names.
 * ERR_INPUT: no such template, or an invalid one. */
int chat_template_open(struct chat_template **t, const struct chat_template_options *options);
void chat_template_close(struct chat_template *t);

/* For messages: "MODEL/chat_template.jinja", "chatml" ... */
const char *chat_template_name(const struct chat_template *t);

/* 1 if the model has no template and none was chosen. */
int chat_template_is_none(const struct chat_template *t);

/* The template's text; NULL if the model has several or none. */
const char *chat_template_text(const struct chat_template *t);

/* The text that renders this chat; NULL: none. */
const char *chat_template_text_for(const struct chat_template *t, const struct chat *chat);

/* 1 if no text of the template has this word; 0 too if there is no template. */
int chat_template_lacks(const struct chat_template *t, const char *word);

/* Appends the name and all texts, which together determine the rendering. */
void chat_template_texts(struct str *out, const struct chat_template *t);

/* 1 if a template may write the date; then appends what it writes at the moment of the options, unless out is
 * NULL. */
int chat_template_dates(struct str *out, const struct chat_template *t);

enum chat_prompt { CHAT_PROMPT_OFF, CHAT_PROMPT_ON };

/* The text of the first message_count messages. `prompt`: add_generation_prompt. */
int chat_template_render(const struct chat_template *t, struct jinja_output *out, const struct chat *chat,
        int64_t message_count, enum chat_prompt prompt);
/* 1 if the template for this chat marks the assistant's words with {% generation %}. */
int chat_template_marks(const struct chat_template *t, const struct chat *chat);

/* Appends the text up to the end-of-turn token that follows earlier answers, where the template writes
 * nothing after the last one. ERR_NOMEM. */
int chat_template_add_tail(const struct chat_template *t, struct jinja_output *out);

/* What add_generation_prompt appends to a chat like this (mem_free), "" if nothing. *header_bytes: how much
 * of it is the header of every answer. */
int chat_template_prompt(
        const struct chat_template *t, const struct chat *chat, char **prompt, size_t *header_bytes);

/* The index of the first or the last end-of-turn token in ids[from .. to), or -1: the token that the template
 * writes after an answer, or else an end token of the model's files. */
enum chat_end { CHAT_END_FIRST, CHAT_END_LAST };
int64_t chat_template_find_end(
        const struct chat_template *t, const int32_t *ids, int64_t from, int64_t to, enum chat_end which);

/* The last place of the token at the end of a chat that ends with a call of a tool: Gemma 4 begins the tool's
 * answer there, and stops. */
int64_t chat_template_find_call_end(
        const struct chat_template *t, const int32_t *ids, int64_t from, int64_t to);

/* The same of the token behind earlier answers, where it is another one and ends no generation (gpt-oss). */
int64_t chat_template_find_pause(
        const struct chat_template *t, const int32_t *ids, int64_t from, int64_t to, enum chat_end which);

#endif
