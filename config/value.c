/* Parses a text into a value by the type of its key, and writes it back. */
#include "config/table.h"

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/name.h"
#include "base/quantity.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- names and words ---- */

static int equal_span(const char *a, size_t a_len, const char *b, size_t b_len)
{
	if (a_len != b_len)
		return 0;
	for (size_t i = 0; i < a_len; i++)
		if (name_fold((unsigned char)a[i]) != name_fold((unsigned char)b[i]))
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

static const struct config_word *word_find(const struct config_key *key, const char *text, size_t len)
{
	for (const struct config_word *w = key->words; w && w->name; w++)
		if (equal_span(text, len, w->name, strlen(w->name)) || in_span(text, len, w->aliases))
			return w;
	return NULL;
}

/* ---- numbers ---- */

enum { SMALLEST_PLAIN_BYTES = 4096 }; /* a smaller size without a unit was probably meant in GiB */

static const struct {
	const char *name;
	double factor;
} count_units[] = {{"", 1}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"B", 1e9}, {"T", 1e12}},
  byte_units[] = {{"", 1}, {"B", 1}, {"KiB", 1024}, {"MiB", 1048576}, {"GiB", 1073741824},
          {"TiB", 1099511627776}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}};

/* 500_000 is 500000, as in YAML 1.1 and Python. */
static void without_underscores(char *plain, size_t room_bytes, const char *text)
{
	size_t len = 0;

	for (const char *p = text; *p && len + 1 < room_bytes; p++)
		if (*p != '_' || p == text || !isdigit((unsigned char)p[-1]) || !isdigit((unsigned char)p[1]))
			plain[len++] = *p;
	plain[len] = 0;
}

/* Reads a decimal number at the start of text; *rest is the text after it. Returns 0 if there is none.
 * Hexadecimal, nan and inf are refused. */
static int number_parse(double *out, const char **rest, const char *text)
{
	const char *p = text + (*text == '-' || *text == '+');
	char plain[128], *end;

	without_underscores(plain, sizeof(plain), text);
	if (!isdigit((unsigned char)*p) && !(*p == '.' && isdigit((unsigned char)p[1])))
		return 0;
	if (*p == '0' && (p[1] == 'x' || p[1] == 'X'))
		return 0;
	*out = strtod(plain, &end);
	*rest = text;
	for (const char *at = plain; at < end; ++*rest)
		at += **rest == *at; /* passes underscores by */
	return isfinite(*out);
}

static int bounds_check(const struct config_key *key, double value)
{
	if (value >= key->min && value <= key->max)
		return 0;
	if (key->max >= 9e15 && value < key->min) {
		struct str least = {0};

		if (key->type == TYPE_BYTES && key->min > 1)
			quantity_bytes(&least, (int64_t)key->min);
		else
			str_printf(&least, "%.12g", key->min);
		err_set(ERR_INPUT, "must be at least %s", least.data ? least.data : "");
		str_free(&least);
		return ERR_INPUT;
	}
	return err_set(ERR_INPUT, "must be between %.12g and %.12g", key->min, key->max);
}

int config_whole_parse(int64_t *out, const struct config_key *key, const char *text)
{
	int bytes = key->type == TYPE_BYTES;
	const char *unit;
	double value, factor = 0;

	if (!number_parse(&value, &unit, text))
		return err_set(ERR_INPUT, bytes ? "is not a size such as 24GiB" : "is not a whole number");
	unit += strspn(unit, " ");
	for (size_t i = 0; bytes && i < sizeof(byte_units) / sizeof(*byte_units); i++)
		if (!strcasecmp(unit, byte_units[i].name))
			factor = byte_units[i].factor;
	for (size_t i = 0; !bytes && i < sizeof(count_units) / sizeof(*count_units); i++)
		if (!strcasecmp(unit, count_units[i].name))
			factor = count_units[i].factor;
	if (bytes && !*unit && value > 0 && value < SMALLEST_PLAIN_BYTES)
		return err_set(ERR_INPUT, "has no unit; %.12g GiB is %.12gGiB, bytes are %.12gB", value,
		        value, value);
	if (!factor && bytes)
		return err_set(ERR_INPUT,
		        "has the unknown unit \"%s\"; supported: KiB MiB GiB TiB KB MB GB TB", unit);
	if (!factor)
		return err_set(ERR_INPUT, "has the unknown unit \"%s\"; supported: k M G T", unit);
	value *= factor;
	if (bytes)
		value = floor(value);
	if (value != floor(value))
		return err_set(ERR_INPUT, "is not a whole number");
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
		return err_set(ERR_INPUT, "is not a number");
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
		        ERR_INPUT, "is neither a number of steps nor a fraction of the run between 0 and 1");
	*out = (double)count;
	return 0;
}

/* ---- fields ---- */

static void *field(const struct config *c, const struct config_key *key)
{
	return (char *)c + key->offset;
}

/* Whether the word may be combined with others in a set. */
static int is_bit(const struct config_word *w)
{
	return w->value > 0 && !(w->value & (w->value - 1));
}

/* A word with at most two letters changed, of short ones one; NULL: none. */
static const char *nearest_word(const struct config_key *key, const char *text)
{
	int best = name_near(text) + 1;
	const char *near = NULL;

	for (const struct config_word *w = key->words; w && w->name; w++) {
		int distance = name_distance(text, w->name);

		if (!w->refusal && strlen(w->name) > 2 && distance < best) {
			best = distance;
			near = w->name;
		}
	}
	return near;
}

static int words_refuse(const struct config_key *key, const char *text)
{
	const char *near = nearest_word(key, text);
	struct str list = {0};
	int lists = 0;

	for (const struct config_word *w = key->words; w && w->name; w++) {
		const char *flag = config_name_in("true", w->aliases)    ? "on"
		                   : config_name_in("false", w->aliases) ? "off"
		                                                         : NULL;

		if (w->refusal)
			continue;
		if (key->type == TYPE_SET && is_bit(w) && !lists++)
			str_add(&list, ", or a list of ");
		else if (list.len_bytes)
			str_add(&list, ", ");
		str_add(&list, w->name);
		if (flag && !config_name_equal(w->name, flag))
			str_printf(&list, " (%s)", flag);
	}
	err_set(ERR_INPUT, "is not supported; %s%s%ssupported: %s", near ? "did you mean " : "",
	        near ? near : "", near ? "? " : "", list.data ? list.data : "");
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
		if (!word || !is_bit(word))
			return words_refuse(key, text);
		bits |= word->value;
		text += len;
	}
	if (!bits)
		return words_refuse(key, text);
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

/* Turns a JSON list of regular expressions into alternatives; any other text is one expression. */
static int pattern_set(char **out, const char *text)
{
	struct str joined = {0};
	json_t *list = NULL, *item;
	size_t i;
	int err;

	if (*text != '[' || json_parse(&list, "", text, strlen(text)))
		return text_set(out, text);
	json_array_foreach(list, i, item) str_printf(
	        &joined, "%s%s", i ? "|" : "", json_is_string(item) ? json_string_value(item) : "");
	err = str_check(&joined);
	if (!err)
		err = text_set(out, joined.data ? joined.data : "");
	str_free(&joined);
	json_decref(list);
	return err;
}

/* A number, or a word that stands for one. */
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
	case TYPE_TEXTS:
		return text_set(at, text);
	case TYPE_PATTERN:
		return pattern_set(at, text);
	case TYPE_FLAG:
		if (config_name_in(text, "on true yes 1"))
			*(int *)at = 1;
		else if (config_name_in(text, "off false no 0"))
			*(int *)at = 0;
		else
			return err_set(ERR_INPUT, "is neither on nor off");
		return 0;
	case TYPE_ENUM:
		word = word_find(key, text, strlen(text));
		if (!word)
			return words_refuse(key, text);
		*(int *)at = word->value;
		*refused = word->refusal ? word : NULL;
		return 0;
	case TYPE_SET:
		return set_parse(at, key, text);
	default:
		return number_set(c, key, text);
	}
}

/* ---- values to text ---- */

void config_value_shown(struct str *out, const char *text)
{
	for (size_t i = 0; text[i] && i < 80; i++)
		if (text[i] == '\n')
			str_add(out, "\\n");
		else
			str_add_char(out, text[i]);
}

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
	case TYPE_PATTERN:
	case TYPE_TEXTS:
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
			str_printf(out, "%lld%s", (long long)*(const int64_t *)at,
			        key->type == TYPE_BYTES && *(const int64_t *)at < SMALLEST_PLAIN_BYTES ? "B"
			                                                                               : "");
	}
}

double config_number(const struct config *c, const char *name)
{
	const struct config_key *key = config_key_find(name);
	const void *at = field(c, key);

	switch (key->type) {
	case TYPE_FLAG:
	case TYPE_ENUM:
	case TYPE_SET:
		return *(const int *)at;
	case TYPE_REAL:
	case TYPE_STEPS:
		return *(const double *)at;
	case TYPE_COUNT:
	case TYPE_BYTES:
		return (double)*(const int64_t *)at;
	default:
		return 0;
	}
}

int config_numbers(double *out, int most, const char *text)
{
	int count = 0, has_bracket;

	text += strspn(text, " ");
	has_bracket = *text == '[';
	text += has_bracket;
	for (text += strspn(text, " "); *text && *text != ']';) {
		char *end = NULL;
		double value = strtod(text, &end);

		if (end == text || !isfinite(value) || count == most)
			return -1;
		out[count++] = value;
		text = end + strspn(end, " ");
		if (*text == ',')
			text += 1 + strspn(text + 1, " ");
		else if (*text && *text != ']')
			return -1;
	}
	if ((*text == ']') != has_bracket)
		return -1;
	return has_bracket && text[1 + strspn(text + 1, " ")] ? -1 : count;
}
