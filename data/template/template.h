/* Chat templates: Jinja, as the files of models use it, with what transformers adds.
 *
 * A template is a text in a sandboxed Jinja (https://jinja.palletsprojects.com/templates): trim_blocks and
 * lstrip_blocks on, no autoescape, loop controls, `generation` blocks, raise_exception, strftime_now, and a
 * tojson that keeps characters as they are. It sees the variables that it is given, and nothing else: no
 * files, no imports, no environment. Steps, memory and depth are bounded, so any template ends.
 *
 *     jinja_parse(&t, "chat_template.jinja", text, len_bytes);
 *     jinja_render(t, &out, variables);      // {"messages": [...], "add_generation_prompt": true, ...}
 *     ... out.text ...
 *     jinja_output_free(&out);
 *     jinja_free(t);
 *
 * A parsed template is read-only: any number of threads may render it. Nothing here knows of tokens.
 */
#ifndef FERRY_DATA_TEMPLATE_TEMPLATE_H
#define FERRY_DATA_TEMPLATE_TEMPLATE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct jinja;

/* where: the template's name in messages. ERR_INPUT with "where:line: what". */
int jinja_parse(struct jinja **t, const char *where, const char *source, size_t len_bytes);
void jinja_free(struct jinja *t);

/* 1 where the template marks what the assistant says by {% generation %}. */
int jinja_has_generation(const struct jinja *t);

/* Bytes [start, end) of an output. */
struct jinja_span {
	size_t start, end;
};

struct jinja_output {
	char *text; /* NUL behind it */
	size_t len_bytes;
	struct jinja_span *spans; /* what {% generation %} wrote, in order */
	int64_t span_count;
};

/* variables: an object. ERR_INPUT where the template fails or refuses the chat, or goes beyond a bound; *out
 * is empty then. */
int jinja_render(const struct jinja *t, struct jinja_output *out, const json_t *variables);
void jinja_output_free(struct jinja_output *out);

/* The built-in template of this name, or NULL. jinja_builtin_name(i) is NULL behind the last. */
const char *jinja_builtin(const char *name);
const char *jinja_builtin_name(int i);

#endif
