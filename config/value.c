/* A text to a value, by the type of its key. */
#include "config/table.h"

#include "base/err.h"
#include "base/mem.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- names and words ---- */

static int fold(int c)
{
	return c == '-' ? '_' : tolower(c);
}

static int equal_span(const char *a, size_t a_len, const char *b, size_t b_len)
{
	if (a_len != b_len)
		return 0;
	for (size_t i = 0; i < a_len; i++)
		if (fold((unsigned char)a[i]) != fold((unsigned char)b[i]))
			return 0;
	return 1;
}

int config_name_equal(const char *a, const char *b)
{
	return equal_span(a, strlen(a), b, strlen(b));
}

static int in_span(const char *name, size_t len, const char *list)
{
	while (list && *list) {
		size_t word = strcspn(list, " ");

		if (equal_span(name, len, list, word))
			return 1;
		list += word;
		list += strspn(list, " ");
	}
	return 0;
}

int config_name_in(const char *name, const char *list)
{
	return in_span(name, strlen(name), list);
}

const struct config_key *config_key_find(const char *name)
{
	for (int i = 0; i < config_key_count; i++)
		if (config_name_equal(config_keys[i].name, name) ||
		        config_name_in(name, config_keys[i].aliases))
			return &config_keys[i];
	return NULL;
}

/* Optimal string alignment over the first 63 characters. */
int config_name_distance(const char *a, const char *b)
{
	enum { LEN = 63 };
	int a_len = (int)strnlen(a, LEN), b_len = (int)strnlen(b, LEN), rows[3][LEN + 1];
	int *before = rows[0], *last = rows[1], *now = rows[2];

	for (int j = 0; j <= b_len; j++)
		last[j] = j;
	for (int i = 1; i <= a_len; i++) {
		int *spare = before;

		now[0] = i;
		for (int j = 1; j <= b_len; j++) {
			int change = fold((unsigned char)a[i - 1]) != fold((unsigned char)b[j - 1]);
			int best = last[j - 1] + change;

			if (last[j] + 1 < best)
				best = last[j] + 1;
			if (now[j - 1] + 1 < best)
				best = now[j - 1] + 1;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
			        before[j - 2] + 1 < best)
				best = before[j - 2] + 1;
			now[j] = best;
		}
		before = last;
		last = now;
		now = spare;
	}
	return last[b_len];
}

static const struct config_word *word_find(const struct config_key *key, const char *text, size_t len)
{
	for (const struct config_word *w = key->words; w && w->name; w++)
		if (equal_span(text, len, w->name, strlen(w->name)) || in_span(text, len, w->aliases))
			return w;
	return NULL;
}

/* ---- numbers ---- */

static const struct {
	const char *name;
	double factor;
} count_units[] = {{"", 1}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"B", 1e9}, {"T", 1e12}},
  byte_units[] = {{"", 1}, {"B", 1}, {"KiB", 1024}, {"MiB", 1048576}, {"GiB", 1073741824},
          {"TiB", 1099511627776}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}};

/* A plain decimal number at the start of text; *rest is what follows it. 0 where there is none: hexadecimal,
 * nan and inf are no numbers here. */
static int number_parse(double *out, const char **rest, const char *text)
{
	const char *p = text + (*text == '-' || *text == '+');
	char *end;

	if (!isdigit((unsigned char)*p) && !(*p == '.' && isdigit((unsigned char)p[1])))
		return 0;
	if (*p == '0' && (p[1] == 'x' || p[1] == 'X'))
		return 0;
	*out = strtod(text, &end);
	*rest = end;
	return isfinite(*out);
}

static int bounds_check(const struct config_key *key, double value)
{
	if (value >= key->min && value <= key->max)
		return 0;
	if (key->max >= 9e15 && value < key->min)
		return err_set(ERR_INPUT, "must be at least %.12g", key->min);
	return err_set(ERR_INPUT, "must be between %.12g and %.12g", key->min, key->max);
}

int config_whole_parse(int64_t *out, const struct config_key *key, const char *text)
{
	int bytes = key->type == TYPE_BYTES;
	const char *unit;
	double value, factor = 0;

	if (!number_parse(&value, &unit, text))
		return err_set(ERR_INPUT, bytes ? "wants a size such as 24GiB" : "wants a whole number");
	unit += strspn(unit, " ");
	for (size_t i = 0; bytes && i < sizeof(byte_units) / sizeof(*byte_units); i++)
		if (!strcasecmp(unit, byte_units[i].name))
			factor = byte_units[i].factor;
	for (size_t i = 0; !bytes && i < sizeof(count_units) / sizeof(*count_units); i++)
		if (!strcasecmp(unit, count_units[i].name))
			factor = count_units[i].factor;
	if (!factor && bytes)
		return err_set(ERR_INPUT, "the unit \"%s\" is none of KiB MiB GiB TiB KB MB GB TB", unit);
	if (!factor)
		return err_set(ERR_INPUT, "wants a whole number; k, M and G may follow it, not \"%s\"", unit);
	value *= factor;
	if (bytes)
		value = floor(value);
	if (value != floor(value))
		return err_set(ERR_INPUT, "wants a whole number");
	if (bounds_check(key, value))
		return ERR_INPUT;
	*out = (int64_t)value;
	return 0;
}

int config_real_parse(double *out, const struct config_key *key, const char *text)
{
	const char *rest;
	double value;

	if (!number_parse(&value, &rest, text) || *rest)
		return err_set(ERR_INPUT, "wants a number");
	if (bounds_check(key, value))
		return ERR_INPUT;
	*out = value;
	return 0;
}

static int steps_parse(double *out, const struct config_key *key, const char *text)
{
	const char *rest;
	int64_t count;
	double value;

	if (number_parse(&value, &rest, text) && !*rest && value > 0 && value < 1) {
		*out = value;
		return 0;
	}
	if (config_whole_parse(&count, key, text))
		return err_set(
		        ERR_INPUT, "wants a number of steps, or a fraction of the run between 0 and 1");
	*out = (double)count;
	return 0;
}

/* ---- fields ---- */

static void *field(const struct config *c, const struct config_key *key)
{
	return (char *)c + key->offset;
}

static int words_refuse(const struct config_key *key)
{
	struct str list = {0};

	for (const struct config_word *w = key->words; w && w->name; w++)
		if (!w->refusal)
			str_printf(&list, "%s%s", list.len_bytes ? ", " : "", w->name);
	err_set(ERR_INPUT, "may be %s", list.data ? list.data : "");
	str_free(&list);
	return ERR_INPUT;
}

static int set_parse(int *out, const struct config_key *key, const char *text)
{
	const struct config_word *word = word_find(key, text, strlen(text));
	int bits = 0;

	if (word) {
		*out = word->value;
		return 0;
	}
	text += *text == '[';
	while (*text && *text != ']') {
		size_t len;

		text += strspn(text, " ,");
		len = strcspn(text, " ,]");
		if (!len)
			break;
		word = word_find(key, text, len);
		if (!word || word->value <= 0 || (word->value & (word->value - 1)))
			return words_refuse(key);
		bits |= word->value;
		text += len;
	}
	if (!bits)
		return words_refuse(key);
	*out = bits;
	return 0;
}

static int text_set(char **out, const char *text)
{
	char *copy = NULL;

	if (*text) {
		copy = mem_strdup(text);
		if (!copy)
			return ERR_NOMEM;
	}
	mem_free(*out);
	*out = copy;
	return 0;
}

/* A word that stands for a number. A whole number that happens to be a word of the list ("0") is left to the
 * number reader, so that "1" never means "true" there. */
static int number_set(struct config *c, const struct config_key *key, const char *text)
{
	const struct config_word *word = word_find(key, text, strlen(text));
	void *at = field(c, key);

	if (key->type == TYPE_REAL || key->type == TYPE_STEPS) {
		if (word)
			*(double *)at = word->value;
		else if (key->type == TYPE_REAL)
			return config_real_parse(at, key, text);
		else
			return steps_parse(at, key, text);
		return 0;
	}
	if (!word)
		return config_whole_parse(at, key, text);
	*(int64_t *)at = word->value;
	return 0;
}

int config_value_set(
        struct config *c, const struct config_key *key, const char *text, const struct config_word **refused)
{
	const struct config_word *word;
	void *at = field(c, key);

	*refused = NULL;
	switch (key->type) {
	case TYPE_TEXT:
		return text_set(at, text);
	case TYPE_FLAG:
		if (config_name_in(text, "on true yes 1"))
			*(int *)at = 1;
		else if (config_name_in(text, "off false no 0"))
			*(int *)at = 0;
		else
			return err_set(ERR_INPUT, "may be on or off");
		return 0;
	case TYPE_ENUM:
		word = word_find(key, text, strlen(text));
		if (!word)
			return words_refuse(key);
		*(int *)at = word->value;
		*refused = word->refusal ? word : NULL;
		return 0;
	case TYPE_SET:
		return set_parse(at, key, text);
	default:
		return number_set(c, key, text);
	}
}

/* ---- and back ---- */

static const struct config_word *word_of_value(const struct config_key *key, double value)
{
	for (const struct config_word *w = key->words; w && w->name; w++)
		if (w->value == value && !w->refusal)
			return w;
	return NULL;
}

/* Shortest decimal that reads back to the same double. */
static void real_text(struct str *out, double value)
{
	char text[40];

	if (value == floor(value) && fabs(value) < 1e15) {
		str_printf(out, "%.0f", value);
		return;
	}
	for (int digits = 1; digits <= 17; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, value);
		if (strtod(text, NULL) == value)
			break;
	}
	str_add(out, text);
}

static void set_text(struct str *out, const struct config_key *key, int value)
{
	const struct config_word *word = word_of_value(key, value);
	const char *comma = "";

	if (word) {
		str_add(out, word->name);
		return;
	}
	for (const struct config_word *w = key->words; w && w->name; w++) {
		if (w->value <= 0 || (w->value & (w->value - 1)) || !(value & w->value))
			continue;
		str_printf(out, "%s%s", comma, w->name);
		comma = ",";
	}
}

void config_value_text(struct str *out, const struct config *c, const struct config_key *key)
{
	const void *at = field(c, key);
	const struct config_word *word;

	switch (key->type) {
	case TYPE_TEXT:
		str_add(out, *(char *const *)at ? *(char *const *)at : "");
		break;
	case TYPE_FLAG:
		str_add(out, *(const int *)at ? "on" : "off");
		break;
	case TYPE_ENUM:
		word = word_of_value(key, *(const int *)at);
		str_add(out, word ? word->name : "");
		break;
	case TYPE_SET:
		set_text(out, key, *(const int *)at);
		break;
	case TYPE_REAL:
	case TYPE_STEPS:
		word = word_of_value(key, *(const double *)at);
		if (word)
			str_add(out, word->name);
		else
			real_text(out, *(const double *)at);
		break;
	default:
		word = word_of_value(key, (double)*(const int64_t *)at);
		if (word)
			str_add(out, word->name);
		else
			str_printf(out, "%lld", (long long)*(const int64_t *)at);
	}
}
