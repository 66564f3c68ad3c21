/* Applies freeze= and trainable= to parameter names, and suggests names if a pattern matches none. */
#include "model/freeze.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/quantity.h"
#include "base/size.h"
#include "base/str.h"
#include "model/adapter.h"
#include "model/module_names.h"
#include "model/name_pattern.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES_SHOWN = 3, NAME_MOST = 256, GROUPS_MOST = 6 };

struct pattern {
	const char *key, *text; /* text NULL: no pattern */
	struct name_pattern *names;
	int matched; /* number of matching names */
};

/* Whether the tensor's name matches, or its other name. 1, 0 or ERR_INPUT. */
static int pattern_matches(struct pattern *p, const char *name, const char *other_name)
{
	int rc = p->text ? name_pattern_matches(p->names, name) : 0;

	if (!rc && p->text && other_name) {
		rc = name_pattern_matches(p->names, other_name);
		if (rc > 0)
			log_warn("%s=%s matches %s; it also applies to %s, which is tied to it", p->key,
			        p->text, other_name, name);
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

/* ---- similar names ---- */

static int least(int a, int b)
{
	return a < b ? a : b;
}

/* Levenshtein distance from `text` to the nearest part of `name`. */
static int distance(const char *text, const char *name)
{
	int row[NAME_MOST + 1] = {0}; /* 0: the part may begin anywhere */
	int best, m = least((int)strlen(text), NAME_MOST), n = least((int)strlen(name), NAME_MOST);

	for (int i = 1; i <= m; i++) {
		int corner = row[0];

		row[0] = i;
		for (int j = 1; j <= n; j++) {
			int changed = corner + (text[i - 1] != name[j - 1]);

			corner = row[j];
			row[j] = least(changed, 1 + least(row[j], row[j - 1]));
		}
	}
	best = row[0];
	for (int j = 1; j <= n; j++) /* the part may end anywhere */
		best = least(best, row[j]);
	return best;
}

/* Appends the names with the smallest distance, in the model's order. */
static void add_nearest(struct str *out, const char *text, const struct model *model)
{
	int shown[NAMES_SHOWN], count = 0;

	while (count < NAMES_SHOWN && count < model->tensor_count) {
		int best = -1, best_distance = 0;

		for (int t = 0; t < model->tensor_count; t++) {
			int d = distance(text, model->tensors[t].name), seen = 0;

			for (int i = 0; i < count; i++)
				seen |= shown[i] == t;
			if (!seen && (best < 0 || d < best_distance)) {
				best = t;
				best_distance = d;
			}
		}
		str_printf(out, "%s%s", count ? ", " : "", model->tensors[best].name);
		shown[count++] = best;
	}
}

/* Counts the names with a part that matches; *first is the first of them. */
static int count_parts(const char **first, const char *text, const struct model *model)
{
	char *somewhere = mem_printf(".*(?:%s).*", text);
	struct name_pattern *p = NULL;
	int count = 0;

	if (somewhere && name_pattern_open(&p, "", somewhere))
		p = NULL;
	for (int t = 0; p && t < model->tensor_count; t++)
		if (name_pattern_matches(p, model->tensors[t].name) > 0 && !count++)
			*first = model->tensors[t].name;
	name_pattern_close(p);
	mem_free(somewhere);
	return count;
}

/* How often one side of a text in names is at a dot or the name's end (whole), at the name's end (outer), and
 * in all. */
struct border {
	int whole, outer, all;
};

static void border_add(struct border *b, int at_dot, int at_end)
{
	b->whole += at_dot || at_end;
	b->outer += at_end;
	b->all++;
}

/* The pattern for the rest of the name on one side of the text. */
static const char *border_pattern(const struct border *b, const char *dotted, const char *maybe)
{
	if (!b->whole)
		return ".*";
	return !b->outer ? dotted : b->outer == b->whole ? "" : maybe;
}

/* Appends a pattern for the names that contain this text. If the text occurs as whole words, the pattern asks
 * for whole words, so that layers.1 does not match layers.10. Returns 0 if no name contains it. */
static int add_word_pattern(struct str *out, const char *text, const struct model *model)
{
	struct border left = {0}, right = {0};
	size_t len = strlen(text);

	for (int t = 0; t < model->tensor_count; t++) {
		const char *name = model->tensors[t].name;

		for (const char *at = name; (at = strstr(at, text)); at++) {
			border_add(&left, at > name && at[-1] == '.', at == name);
			border_add(&right, at[len] == '.', !at[len]);
		}
	}
	if (!left.all)
		return 0;
	str_add(out, border_pattern(&left, ".*\\.", "(.*\\.)?"));
	for (; *text; text++)
		str_printf(out, *text == '.' ? "\\." : "%c", *text);
	str_add(out, border_pattern(&right, "\\..*", "(\\..*)?"));
	return 1;
}

/* Appends a pattern to use instead of one that matches only parts of names. A plain text, with or without
 * escaped dots, becomes whole words; a regular expression gets .* around it. */
static void add_advice(struct str *out, const char *pattern, const struct model *model)
{
	int many = strchr(pattern, '|') != NULL;
	struct str text = {0};

	for (const char *p = pattern; *p; p++)
		if (*p != '\\' || p[1] != '.')
			str_add_char(&text, *p);
	if (str_check(&text) || text.data[strcspn(text.data, "\\^$*+?()[]{}|")] ||
	        !add_word_pattern(out, text.data, model))
		str_printf(out, ".*%s%s%s.*", many ? "(" : "", pattern, many ? ")" : "");
	str_free(&text);
}

/* Several patterns that were written as one: commas outside of braces, which count repeats. As a list of
 * JSON; 0: it is none. */
static int add_list(struct str *out, const char *text)
{
	size_t len = strlen(text);
	int count = 0, commas = 0;

	for (const char *p = text; *p; p++)
		commas += *p == ',' && !(p > text && p[-1] >= '0' && p[-1] <= '9' && strchr(p, '}'));
	if (!commas)
		return 0;
	if (*text == '[' && text[len - 1] == ']')
		text++, len -= 2;
	str_add(out, "[");
	while (len) {
		size_t word = 0, skip = 0;

		while (skip < len && strchr(" ,\"'", text[skip]))
			skip++;
		text += skip, len -= skip;
		while (word < len && !strchr(",\"'", text[word]))
			word++;
		if (word)
			str_add(out, count++ ? ", \"" : "\"");
		for (size_t i = 0; i < word; i++)
			str_add(out, text[i] == '\\' ? "\\" : ""), str_add_char(out, text[i]);
		if (word)
			str_add(out, "\"");
		text += word, len -= word;
	}
	str_add(out, "]");
	return 1;
}

/* A pattern must match a whole name; most who miss that wrote a part of one. */
static int fail_unmatched(const struct pattern *p, const struct model *model)
{
	const char *first = NULL;
	struct str text = {0};
	int is_list = add_list(&text, p->text), rc;
	int parts = is_list ? 0 : count_parts(&first, p->text, model);

	if (is_list) {
		rc = err_set(ERR_INPUT,
		        "%s=%s matches no whole parameter name; a list of patterns is written %s='%s'",
		        p->key, p->text, p->key, text.data ? text.data : "");
	} else if (parts && parts < model->tensor_count) {
		add_advice(&text, p->text, model);
		rc = err_set(ERR_INPUT,
		        "%s=%s matches no whole parameter name, only a part (first in %s); write '%s=%s'",
		        p->key, p->text, first, p->key, text.data ? text.data : "");
	} else {
		add_nearest(&text, p->text, model);
		rc = err_set(ERR_INPUT, "%s=%s matches no whole parameter name; the nearest are %s", p->key,
		        p->text, text.data ? text.data : "");
	}
	str_free(&text);
	return rc;
}

int model_freeze(struct model *model, const char *freeze, const char *trainable)
{
	struct patterns p = {{.key = "freeze", .text = freeze}, {.key = "trainable", .text = trainable}};
	int64_t count = 0;
	int rc = freeze ? name_pattern_open(&p.freeze.names, p.freeze.key, freeze) : 0;

	if (!rc && trainable)
		rc = name_pattern_open(&p.trainable.names, p.trainable.key, trainable);
	if (!rc && (freeze || trainable))
		rc = model_set_trainable(model, &count, is_trainable, &p);
	if (!rc && freeze && !p.freeze.matched)
		rc = fail_unmatched(&p.freeze, model);
	if (!rc && trainable && !p.trainable.matched)
		rc = fail_unmatched(&p.trainable, model);
	if (!rc && (freeze || trainable) && !count)
		rc = err_set(ERR_INPUT, "%s=%s leaves no parameter to train", freeze ? "freeze" : "trainable",
		        freeze ? freeze : trainable);
	name_pattern_close(p.freeze.names);
	name_pattern_close(p.trainable.names);
	return rc;
}

/* ---- trained parameters as text ---- */

/* Length of the shortest prefix of a name, up to a dot, such that every tensor with this prefix trains. */
static size_t whole_prefix(const struct model *model, const char *name)
{
	const char *dot = name;

	while ((dot = strchr(dot, '.'))) {
		size_t len = (size_t)(dot - name) + 1;
		int all = 1;

		for (int t = 0; t < model->tensor_count && all; t++)
			all = model->tensors[t].trainable || strncmp(model->tensors[t].name, name, len) != 0;
		if (all)
			return len - 1;
		dot++;
	}
	return strlen(name);
}

/* A name, and a range of numbers in place of its first number. */
struct name_group {
	const char *name;
	size_t len, number_at, number_len; /* number_len 0: the name has no number */
	long first, last;
};

static struct name_group group_of(const char *name, size_t len)
{
	struct name_group g = {.name = name, .len = len};

	for (size_t i = 1; i < len && !g.number_len; i++)
		if (name[i - 1] == '.' && strspn(name + i, "0123456789")) {
			g.number_at = i;
			g.number_len = strspn(name + i, "0123456789");
			g.first = g.last = strtol(name + i, NULL, 10);
		}
	return g;
}

/* Extends g by `next` if its number continues g's range. Returns 1 if it did. */
static int group_join(struct name_group *g, const struct name_group *next)
{
	size_t rest = g->number_at + g->number_len, next_rest = next->number_at + next->number_len;

	if (g->number_at != next->number_at || !g->number_len || !next->number_len ||
	        strncmp(g->name, next->name, g->number_at) != 0 || g->len - rest != next->len - next_rest ||
	        strncmp(g->name + rest, next->name + next_rest, g->len - rest) != 0)
		return 0;
	if (next->first < g->first || next->first > g->last + 1)
		return 0;
	g->last = next->first > g->last ? next->first : g->last;
	return 1;
}

static void add_group(struct str *out, const struct name_group *g)
{
	size_t rest = g->number_at + g->number_len;

	if (g->first == g->last) {
		str_add_bytes(out, g->name, g->len);
		return;
	}
	str_add_bytes(out, g->name, g->number_at);
	str_printf(out, "%ld-%ld", g->first, g->last);
	str_add_bytes(out, g->name + rest, g->len - rest);
}

/* is_first 0: adapters stand before them. */
static void add_names(struct str *out, const struct model *model, int is_first)
{
	struct name_group groups[GROUPS_MOST];
	int count = 0, more = 0;

	for (int t = 0; t < model->tensor_count; t++) {
		const char *name = model->tensors[t].name;
		struct name_group g;
		int joined = 0;

		if (!model->tensors[t].trainable ||
		        (!is_first && model_tensor_is_adapter(&model->tensors[t])))
			continue;
		g = group_of(name, whole_prefix(model, name));
		for (int i = 0; i < count && !joined; i++)
			joined = (groups[i].len == g.len && !strncmp(groups[i].name, g.name, g.len)) ||
			         group_join(&groups[i], &g);
		if (!joined && count < GROUPS_MOST)
			groups[count++] = g;
		else if (!joined)
			more++;
	}
	for (int i = 0; i < count; i++) {
		str_add(out, i || !is_first ? ", " : "");
		add_group(out, &groups[i]);
	}
	if (more)
		str_printf(out, " and %d more tensor%s", more, plural_s(more));
}

/* Whether there are adapters, and all of them train. */
static int adapters_train(const struct model *model)
{
	for (int t = 0; t < model->tensor_count; t++)
		if (model_tensor_is_adapter(&model->tensors[t]) && !model->tensors[t].trainable)
			return 0;
	return model->config.adapter_rank > 0;
}

/* The modules with adapters, by the last parts of their names, and the adapters' ranks. */
static void add_adapters(struct str *out, const struct model *model)
{
	int64_t least = INT64_MAX, most = 0;

	for (int t = 0; t < model->tensor_count; t++) {
		int64_t rank;

		if (!role_is_a(model->tensors[t].role))
			continue;
		rank = config_adapter(&model->config, model->tensors[t].role, model->tensors[t].layer)->rank;
		least = min_i64(least, rank);
		most = max_i64(most, rank);
	}
	str_printf(out, "adapters of rank %" PRId64, least);
	if (most > least)
		str_printf(out, " to %" PRId64, most);
	str_add(out, " on ");
	model_list_modules(out, model, 1);
}

int64_t model_trained_count(const struct model *model)
{
	int64_t count = 0;

	for (int t = 0; t < model->tensor_count; t++)
		count += model->tensors[t].trainable ? model->tensors[t].count : 0;
	return count;
}

void model_trained_words(struct str *out, const struct model *model)
{
	quantity_count(out, (double)model_trained_count(model));
	str_add(out, " of ");
	quantity_count(out, (double)model->parameter_count);
	str_add(out, " parameters (");
	quantity_count(out, (double)(model->parameter_count - model_trained_count(model)));
	str_add(out, " frozen): ");
	if (adapters_train(model))
		add_adapters(out, model);
	add_names(out, model, !adapters_train(model));
}
