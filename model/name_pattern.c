/* Matches whole names by PCRE2. */
#include "model/name_pattern.h"

#include "base/err.h"
#include "base/mem.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

enum { MATCH_LIMIT = 1000000 };

struct name_pattern {
	const char *key, *text;
	pcre2_code *code;
	pcre2_match_data *match;
	pcre2_match_context *context;
};

static int compile(struct name_pattern *p)
{
	PCRE2_UCHAR why[128] = "";
	PCRE2_SIZE at;
	int code;

	p->code = pcre2_compile((PCRE2_SPTR)p->text, PCRE2_ZERO_TERMINATED,
	        PCRE2_ANCHORED | PCRE2_ENDANCHORED, &code, &at, NULL);
	if (!p->code) {
		pcre2_get_error_message(code, why, sizeof(why));
		return err_set(ERR_INPUT, "%s%s%s: invalid regular expression at character %zu: %s%s",
		        p->key ? p->key : "", p->key ? "=" : "", p->text, (size_t)at + 1, (const char *)why,
		        strchr(p->text, '*') ? "; for any text write .* with the dot" : "");
	}
	p->match = pcre2_match_data_create_from_pattern(p->code, NULL);
	p->context = pcre2_match_context_create(NULL);
	if (!p->match || !p->context)
		return err_set(ERR_NOMEM, "out of memory for %s", p->text);
	pcre2_set_match_limit(p->context, MATCH_LIMIT);
	return 0;
}

int name_pattern_open(struct name_pattern **pattern, const char *key, const char *text)
{
	struct name_pattern *p = mem_alloc(1, sizeof(*p));
	int err;

	*pattern = p;
	if (!p)
		return ERR_NOMEM;
	p->key = key;
	p->text = text;
	err = compile(p);
	if (err) {
		name_pattern_close(p);
		*pattern = NULL;
	}
	return err;
}

void name_pattern_close(struct name_pattern *p)
{
	if (!p)
		return;
	pcre2_match_data_free(p->match);
	pcre2_match_context_free(p->context);
	pcre2_code_free(p->code);
	mem_free(p);
}

int name_pattern_matches(const struct name_pattern *p, const char *name)
{
	int rc = pcre2_match(p->code, (PCRE2_SPTR)name, strlen(name), 0, 0, p->match, p->context);

	if (rc >= 0 || rc == PCRE2_ERROR_NOMATCH)
		return rc >= 0;
	return err_set(ERR_INPUT, "%s%s%s: takes too long on %s; make it simpler", p->key ? p->key : "",
	        p->key ? "=" : "", p->text, name);
}
