/* Private to chat_template*.c. */
#ifndef FERRY_DATA_CHAT_CHAT_TEMPLATE_PARTS_H
#define FERRY_DATA_CHAT_CHAT_TEMPLATE_PARTS_H

#include "data/chat/chat_template.h"

#include "base/err.h"

enum { CHAT_TEMPLATE_ENDS_MAX = 16 };

struct chat_template {
	struct jinja *plain;      /* NULL: there is none */
	struct jinja *with_tools; /* for chats with tools; NULL = the plain one */
	char *name, *text;        /* of the plain one */
	char *tools_text;
	char *prompt; /* what asks for an answer; chat_template_prompt */
	size_t header_bytes;
	char *tail; /* what ends an answer if nothing follows it; NULL: the template itself does */
	int plain_tests_null, tools_test_null; /* whether content is none */
	unsigned plain_parts, tools_parts;     /* the roles whose contents may be lists of parts: bits of
	                                      chat_template_role_bit */
	int64_t moment;
	json_t *variables; /* special tokens, then the options' kwargs */
	struct err why;    /* why the model's own template cannot be used */
	int32_t ends[CHAT_TEMPLATE_ENDS_MAX];
	int end_count;
	int32_t pause;    /* the token behind earlier answers if it is no end; -1: none */
	int32_t call_end; /* the token that ends a chat whose last message calls a tool; -1: none */
};

/* The bit of a role whose content is tried as a list of parts; 0: another role. */
unsigned chat_template_role_bit(const char *role);

/* Finds the roles whose parts the templates write, each in its own text; lists of others are joined. */
int chat_template_find_parts(struct chat_template *t);

/* Finds the end tokens and the tail, once the template and its variables are there. */
int chat_template_find_ends(struct chat_template *t, const struct chat_template_options *o);

#endif
