/* freeze= and trainable=: patterns on parameter names, and what to say where they match nothing. */
#include "model/freeze.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

enum { MATCH_LIMIT = 1000000, NAMES_SHOWN = 3, NAME_MOST = 256 };

struct pattern {
	const char *key, *text; /* text NULL: none is set */
	pcre2_code *code;
	pcre2_match_data *match;
	pcre2_match_context *context;
	int matched; /* names */
};

static int pattern_open(struct pattern *p)
{
	PCRE2_UCHAR why[128] = "";
	PCRE2_SIZE at;
	int code;

	if (!p->text)
		return 0;
	p->code = pcre2_compile((PCRE2_SPTR)p->text, PCRE2_ZERO_TERMINATED,
	        PCRE2_ANCHORED | PCRE2_ENDANCHORED, &code, &at, NULL);
	if (!p->code) {
		pcre2_get_error_message(code, why, sizeof(why));
		return err_set(ERR_INPUT, "%s=%s: no regular expression, at character %zu: %s", p->key,
		        p->text, (size_t)at + 1, (const char *)why);
	}
	p->match = pcre2_match_data_create_from_pattern(p->code, NULL);
	p->context = pcre2_match_context_create(NULL);
	if (!p->match || !p->context)
		return err_set(ERR_NOMEM, "out of memory for %s", p->key);
	pcre2_set_match_limit(p->context, MATCH_LIMIT);
	return 0;
}

static void pattern_close(struct pattern *p)
{
	pcre2_match_data_free(p->match);
	pcre2_match_context_free(p->context);
	pcre2_code_free(p->code);
}

/* 1, 0 or ERR_INPUT. */
static int name_matches(struct pattern *p, const char *name)
{
	int rc = pcre2_match(p->code, (PCRE2_SPTR)name, strlen(name), 0, 0, p->match, p->context);

	if (rc >= 0 || rc == PCRE2_ERROR_NOMATCH)
		return rc >= 0;
	return err_set(ERR_INPUT, "%s=%s: takes too long on %s; make it simpler", p->key, p->text, name);
}

/* Does the tensor's name match, or the other one that it goes by? */
static int pattern_matches(struct pattern *p, const char *name, const char *other_name)
{
	int rc = p->text ? name_matches(p, name) : 0;

	if (!rc && p->text && other_name) {
		rc = name_matches(p, other_name);
		if (rc > 0)
			log_warn("%s=%s: %s is tied, and so is %s", p->key, p->text, other_name, name);
	}
	p->matched += rc > 0;
	return rc;
}

struct patterns {
	struct pattern freeze, trainable;
};

static int is_trainable(const char *name, const char *other_name, void *arg)
{
	struct patterns *p = arg;
	int frozen = pattern_matches(&p->freeze, name, other_name);
	int chosen = pattern_matches(&p->trainable, name, other_name);

	if (frozen < 0 || chosen < 0)
		return frozen < 0 ? frozen : chosen;
	return !frozen && (chosen || !p->trainable.text);
}

/* ---- names that are near ---- */

static int least(int a, int b)
{
	return a < b ? a : b;
}

/* Letters to insert, to take away or to change (Levenshtein). */
static int distance(const char *a, const char *b)
{
	int row[NAME_MOST + 1], m = least((int)strlen(a), NAME_MOST), n = least((int)strlen(b), NAME_MOST);

	for (int j = 0; j <= n; j++)
		row[j] = j;
	for (int i = 1; i <= m; i++) {
		int corner = row[0];

		row[0] = i;
		for (int j = 1; j <= n; j++) {
			int changed = corner + (a[i - 1] != b[j - 1]);

			corner = row[j];
			row[j] = least(changed, 1 + least(row[j], row[j - 1]));
		}
	}
	return row[n];
}

static int fail_unmatched(const struct pattern *p, const struct model *model)
{
	int shown[NAMES_SHOWN], count = 0, rc;
	struct str text = {0};

	while (count < NAMES_SHOWN && count < model->tensor_count) {
		int best = -1, best_distance = 0;

		for (int t = 0; t < model->tensor_count; t++) {
			int d = distance(p->text, model->tensors[t].name), seen = 0;

			for (int i = 0; i < count; i++)
				seen |= shown[i] == t;
			if (!seen && (best < 0 || d < best_distance)) {
				best = t;
				best_distance = d;
			}
		}
		str_printf(&text, "%s%s", count ? ", " : "", model->tensors[best].name);
		shown[count++] = best;
	}
	rc = err_set(ERR_INPUT, "%s=%s matches the whole name of no parameter; the nearest are %s", p->key,
	        p->text, text.data ? text.data : "");
	str_free(&text);
	return rc;
}

int model_freeze(struct model *model, const char *freeze, const char *trainable)
{
	struct patterns p = {{.key = "freeze", .text = freeze}, {.key = "trainable", .text = trainable}};
	int64_t count = 0;
	int rc = pattern_open(&p.freeze);

	if (!rc)
		rc = pattern_open(&p.trainable);
	if (!rc && (freeze || trainable))
		rc = model_set_trainable(model, &count, is_trainable, &p);
	if (!rc && freeze && !p.freeze.matched)
		rc = fail_unmatched(&p.freeze, model);
	if (!rc && trainable && !p.trainable.matched)
		rc = fail_unmatched(&p.trainable, model);
	if (!rc && (freeze || trainable) && !count)
		rc = err_set(ERR_INPUT, "%s=%s leaves no parameter to train", freeze ? "freeze" : "trainable",
		        freeze ? freeze : trainable);
	pattern_close(&p.freeze);
	pattern_close(&p.trainable);
	return rc;
}
