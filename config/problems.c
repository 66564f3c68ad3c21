/* What is wrong with a configuration, all of it in one message. */
#include "config/problems.h"

#include "config/args.h"
#include "config/dialect.h"
#include "config/table.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/name.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>

enum { BYTES_SHOWN = 3600 };

int problems_insert(struct problems *p, int at, int err)
{
	char *text;

	if (err != ERR_INPUT && err != ERR_UNSUPPORTED)
		return err;
	if (p->count == p->cap) {
		int cap = p->cap * 2 + 16;
		char **grown = mem_resize(p->lines, (size_t)cap, sizeof(*grown));

		if (!grown)
			return ERR_NOMEM;
		p->lines = grown;
		p->cap = cap;
	}
	text = mem_strdup(err_text());
	if (!text)
		return ERR_NOMEM;
	memmove(p->lines + at + 1, p->lines + at, (size_t)(p->count - at) * sizeof(*p->lines));
	p->lines[at] = text;
	p->count++;
	return 0;
}

void problems_cut(struct problems *p, int count)
{
	while (p->count > count)
		mem_free(p->lines[--p->count]);
}

int problems_report(const struct problems *p)
{
	struct str text = {0};
	int shown = 0, err;

	if (!p->count)
		return 0;
	if (p->count == 1)
		return err_set(ERR_INPUT, "%s", p->lines[0]);
	for (; shown < p->count; shown++) {
		if (text.len_bytes + strlen(p->lines[shown]) > BYTES_SHOWN)
			break;
		str_printf(&text, "\n  %s", p->lines[shown]);
	}
	if (shown < p->count)
		str_printf(&text, "\n  and %d more", p->count - shown);
	err = str_check(&text);
	if (!err)
		err = err_set(ERR_INPUT, "%d problems:%s", p->count, text.data);
	str_free(&text);
	return err;
}

void problems_free(struct problems *p)
{
	for (int i = 0; i < p->count; i++)
		mem_free(p->lines[i]);
	mem_free(p->lines);
	*p = (struct problems){0};
}

/* ---- keys that are near ---- */

static int alias_distance(const char *name, const char *aliases)
{
	int best = 1000;

	while (aliases && *aliases) {
		char word[ARGUMENT_NAME_BYTES];
		size_t len = strcspn(aliases, " ");
		int distance;

		snprintf(word, sizeof(word), "%.*s", (int)len, aliases);
		distance = name_distance(name, word);
		if (distance < best)
			best = distance;
		aliases += len;
		aliases += strspn(aliases, " ");
	}
	return best;
}

const char *config_key_nearest(const char *name, enum verb verb)
{
	const char *dot = strrchr(name, '.'), *best = NULL;
	int best_distance;

	if (dot) {
		if (!dialect_knows_section(name, (size_t)(dot - name)))
			return NULL;
		name = dot + 1;
	}
	best_distance = name_near(name) + 1;
	for (int i = 0; i < config_key_count; i++) {
		const struct config_key *key = &config_keys[i];
		int distance = name_distance(name, key->name);
		int other = alias_distance(name, key->aliases);

		if (!config_key_known(key, verb))
			continue;
		if (other < distance)
			distance = other;
		if (distance < best_distance) {
			best_distance = distance;
			best = key->name;
		}
	}
	return best;
}
