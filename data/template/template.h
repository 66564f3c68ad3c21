/* Chat templates: Jinja as models' files use it, with the additions of transformers.
 *
 * A template is a text in a sandboxed Jinja (https://jinja.palletsprojects.com/templates): trim_blocks and
 * lstrip_blocks on, no autoescape, loop controls, `generation` blocks, raise_exception, strftime_now, and a
 * tojson that does not escape characters. It sees only the variables that the caller passes: no files, no
 * imports, no environment. Steps, memory and depth are limited, so any template ends.
 *
 *     jinja_parse(&t, "chat_template.jinja", text, len_bytes);
 *     jinja_render(t, &out, variables, moment_now()); // {"messages": [...], "add_generation_prompt": true
 * ...}
 *     ... out.text ...
 *     jinja_output_free(&out);
 *     jinja_free(t);
 *
 * A parsed template is read-only: any number of threads may render it. This code knows nothing of tokens.
 */
#ifndef FERRY_DATA_TEMPLATE_TEMPLATE_H
#define FERRY_DATA_TEMPLATE_TEMPLATE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct jinja;
struct str;

/* where: the template's name in messages. ERR_INPUT with "where:line: what". */
int jinja_parse(struct jinja **t, const char *where, const char *source, size_t len_bytes);
void jinja_free(struct jinja *t);

/* 1 if the template marks the assistant's words with {% generation %}. */
int jinja_has_generation(const struct jinja *t);

/* 1 if the template calls strftime_now. Then appends what its formats write at this moment: two moments with
 * the same text give the same renderings. out NULL: appends nothing. */
int jinja_writes_date(struct str *out, const struct jinja *t, int64_t moment);

/* Bytes [start, end) of an output. */
struct jinja_span {
	size_t start, end;
};

struct jinja_output {
	char *text; /* with a NUL at the end */
	size_t len_bytes;
	struct jinja_span *spans; /* the output of {% generation %}, in order */
	int64_t span_count;
};

/* variables: an object. moment: what strftime_now writes (data/template/moment.h). ERR_INPUT if the template
 * fails, refuses the chat or exceeds a limit; *out is empty then. */
int jinja_render(const struct jinja *t, struct jinja_output *out, const json_t *variables, int64_t moment);
void jinja_output_free(struct jinja_output *out);

/* The built-in template of this name, or NULL. jinja_builtin_name(i) is NULL after the last. */
const char *jinja_builtin(const char *name);
const char *jinja_builtin_name(int i);

#endif
