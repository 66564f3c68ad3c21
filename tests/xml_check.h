/* Checks that a text is well-formed XML, in the part of XML that ferry writes. */
#ifndef FERRY_TESTS_XML_CHECK_H
#define FERRY_TESTS_XML_CHECK_H

#include "tests/check.h"

#include <ctype.h>

enum { XML_DEPTH_MAX = 64, XML_NAME_BYTES = 64 };

struct xml {
	char open[XML_DEPTH_MAX][XML_NAME_BYTES];
	int depth;
	const char *text; /* the whole, for messages */
};

static inline void xml_fail(const struct xml *x, const char *at, const char *why)
{
	int line = 1;

	for (const char *c = x->text; c < at; c++)
		line += *c == '\n';
	fail_msg("line %d: %s: %.80s", line, why, at);
}

static inline size_t xml_name(const char *at)
{
	size_t len = 0;

	while (isalnum((unsigned char)at[len]) || (at[len] && strchr("_-:", at[len])))
		len++;
	return len;
}

/* Text up to `end`, or up to its end: no bare <, every & begins a known entity. Returns what follows. */
static inline const char *xml_text(const struct xml *x, const char *at, char end)
{
	static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&quot;"};

	for (; *at && *at != end; at++) {
		int known = 0;

		if ((unsigned char)*at < ' ' && *at != '\n' && *at != '\t')
			xml_fail(x, at, "a control character");
		if (*at == '<')
			xml_fail(x, at, "a bare <");
		for (size_t i = 0; *at == '&' && i < sizeof(entities) / sizeof(*entities); i++)
			known |= !strncmp(at, entities[i], strlen(entities[i]));
		if (*at == '&' && !known)
			xml_fail(x, at, "an unknown entity");
	}
	return at;
}

/* A tag; `at` is behind its <. */
static inline const char *xml_tag(struct xml *x, const char *at)
{
	int closes = *at == '/';
	size_t len = xml_name(at += closes);

	if (!len || len >= XML_NAME_BYTES)
		xml_fail(x, at, "no name of a tag");
	if (closes) {
		x->depth--;
		if (x->depth < 0 || strncmp(x->open[x->depth], at, len) || x->open[x->depth][len])
			xml_fail(x, at, "closes another tag");
	} else if (x->depth == XML_DEPTH_MAX) {
		xml_fail(x, at, "too deep");
	} else {
		snprintf(x->open[x->depth++], XML_NAME_BYTES, "%.*s", (int)len, at);
	}
	at += len;
	while (!closes && isspace((unsigned char)*at)) {
		at += strspn(at, " \n\t");
		at += xml_name(at);
		if (at[0] != '=' || at[1] != '"')
			xml_fail(x, at, "an attribute without a quoted value");
		at = xml_text(x, at + 2, '"');
		at += *at == '"';
	}
	if (*at == '/' && !closes) {
		x->depth--;
		at++;
	}
	if (*at != '>')
		xml_fail(x, at, "a tag that does not end");
	return at + 1;
}

static inline void xml_check(const char *text)
{
	static const char doctype[] = "<!DOCTYPE html>\n";
	struct xml x = {.text = text};
	const char *at = text;

	if (!strncmp(at, doctype, strlen(doctype)))
		at += strlen(doctype);
	while (*at) {
		at = xml_text(&x, at, '<');
		if (*at)
			at = xml_tag(&x, at + 1);
		if (*at && !x.depth && at[strspn(at, "\n")])
			xml_fail(&x, at, "something behind the end");
	}
	if (x.depth)
		xml_fail(&x, at, "tags are open at the end");
}

#endif
