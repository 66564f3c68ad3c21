/* Reads and writes JSON through jansson, safely when memory runs out, and gets typed values. */
#include "base/json.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static _Thread_local int starved; /* 1: a request of jansson failed */

/* jansson cannot handle a failed request: it drops bytes or ends the program by an assertion. So a failure of
 * base/mem (a limit, or a test) is only noted here, and the whole call fails at its end. */
static void *json_alloc(size_t len_bytes)
{
	void *block = mem_resize(NULL, len_bytes, 1);

	if (block)
		return block;
	starved = 1;
	return malloc(len_bytes ? len_bytes : 1);
}

static void json_use_mem(void)
{
	json_set_alloc_funcs(json_alloc, mem_free);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

static int is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Whether the integer literal of `len` bytes, sign included, exceeds int64. */
static int is_beyond_int64(const char *literal, size_t len)
{
	const char *limit = literal[0] == '-' ? "9223372036854775808" : "9223372036854775807";

	if (literal[0] == '-')
		literal++, len--;
	return len > 19 || (len == 19 && memcmp(literal, limit, 19) > 0);
}

/* ---- integers beyond int64 ---- */

enum big { BIG_IS_REAL, BIG_IS_EXACT };

/* The key of the object that stands for such an integer, or for bytes. Random, so that no text has it. */
static char big_key[64];

static void make_big_key(void)
{
	uint64_t random[2] = {0};

	if (getrandom(random, sizeof(random), 0) != sizeof(random)) { /* an old kernel: hard to guess, too */
		random[0] = (uint64_t)(uintptr_t)big_key;
		random[1] = (uint64_t)clock_now_ns();
	}
	snprintf(big_key, sizeof(big_key), "integer-%016" PRIx64 "%016" PRIx64, random[0], random[1]);
}

static const char *get_big_key(void)
{
	static pthread_once_t made = PTHREAD_ONCE_INIT;

	pthread_once(&made, make_big_key);
	return big_key;
}

const char *json_big_digits(const json_t *value)
{
	return json_object_size(value) == 1 ? json_string_value(json_object_get(value, get_big_key())) : NULL;
}

static int is_binary(const json_t *value)
{
	return json_object_size(value) == 1 && json_is_integer(json_object_get(value, get_big_key()));
}

json_t *json_of_binary(size_t len_bytes)
{
	return json_pack("{s:I}", get_big_key(), (json_int_t)len_bytes);
}

int json_is_map(const json_t *value)
{
	return json_is_object(value) && !json_big_digits(value) && !is_binary(value);
}

json_t *json_big_integer(const char *digits)
{
	return json_pack("{s:s}", get_big_key(), digits);
}

/* Appends "e0" to each integer beyond int64, so that it becomes a real: tokenizer_config.json files have
 * "model_max_length": 1000000000000000019884624838656. Or makes an object with its digits. */
static int widen_integers(struct str *out, const char *text, size_t len, enum big big)
{
	size_t i = 0, start;
	int in_string = 0;

	while (i < len) {
		start = i++;
		if (in_string) {
			if (text[start] == '\\' && i < len)
				i++;
			in_string = text[start] != '"';
		} else if (text[start] == '"') {
			in_string = 1;
		} else if (text[start] == '-' || is_digit(text[start])) {
			int integer = 1;

			for (; i < len && (is_digit(text[i]) || strchr("+-.eE", text[i])) && text[i]; i++)
				integer &= is_digit(text[i]);
			integer = integer && is_beyond_int64(text + start, i - start);
			if (integer && big == BIG_IS_EXACT && i - start > JSON_BIG_DIGITS_MAX)
				return err_set(
				        ERR_INPUT, "an integer has more than %d digits", JSON_BIG_DIGITS_MAX);
			if (integer && big == BIG_IS_EXACT)
				str_printf(out, "{\"%s\":\"%.*s\"}", get_big_key(), (int)(i - start),
				        text + start);
			else
				str_add_bytes(out, text + start, i - start);
			if (integer && big == BIG_IS_REAL)
				str_add(out, "e0");
			continue;
		}
		str_add_bytes(out, text + start, i - start);
	}
	return str_check(out);
}

/* Advice for frequent errors of jansson. */
static const char *json_advice(const char *text, size_t len_bytes, const char *problem)
{
	if (file_is_lfs_pointer(text, len_bytes))
		return "; this is a git-lfs pointer instead of the file; run git lfs pull";
	if (strstr(problem, "unable to decode byte"))
		return "; the file is not UTF-8; convert it, as with iconv -f LATIN1 -t UTF-8";
	if (strstr(problem, "near '\''"))
		return "; JSON needs double quotes around strings";
	return "";
}

int json_parse(json_t **root, const char *where, const char *text, size_t len_bytes)
{
	return json_parse_piece(root, where, text, len_bytes, 1);
}

static int parse(
        json_t **root, const char *where, const char *text, size_t len_bytes, int64_t line, enum big big)
{
	const size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL;
	struct str widened = {0};
	json_error_t error;
	json_t *tree;
	int err = 0;

	pthread_once(&once, json_use_mem);
	*root = NULL;
	if (len_bytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) /* skips a byte order mark */
		text += 3, len_bytes -= 3;
	starved = 0;
	tree = json_loadb(text, len_bytes, flags, &error);
	if (!tree && json_error_code(&error) == json_error_numeric_overflow) {
		err = widen_integers(&widened, text, len_bytes, big);
		if (err == ERR_INPUT)
			err_note(err, "%s:%" PRId64, where, line);
		if (err)
			goto out;
		tree = json_loadb(widened.data, widened.len_bytes, flags, &error);
	}
	if (starved) {
		json_decref(tree);
		err = err_set(ERR_NOMEM, "%s: out of memory while reading JSON", where);
		goto out;
	}
	if (tree)
		*root = tree;
	else if (json_error_code(&error) == json_error_out_of_memory)
		err = err_set(ERR_NOMEM, "%s: out of memory while reading JSON", where);
	else
		err = err_set(ERR_INPUT, "%s:%" PRId64 ":%d: %s%s", where, line + error.line - 1,
		        error.column, error.text, json_advice(text, len_bytes, error.text));
out:
	str_free(&widened);
	return err;
}

int json_parse_piece(json_t **root, const char *where, const char *text, size_t len_bytes, int64_t line)
{
	return parse(root, where, text, len_bytes, line, BIG_IS_REAL);
}

int json_parse_exact(json_t **root, const char *where, const char *text, size_t len_bytes, int64_t line)
{
	return parse(root, where, text, len_bytes, line, BIG_IS_EXACT);
}

int json_write(char **text, const json_t *value, size_t flags)
{
	pthread_once(&once, json_use_mem);
	starved = 0;
	*text = value ? json_dumps(value, flags | JSON_ENCODE_ANY) : NULL;
	if (*text && !starved)
		return 0;
	mem_free(*text);
	*text = NULL;
	return err_set(ERR_NOMEM, "out of memory while writing JSON");
}

/* Python's word for a number that JSON lacks, at the text's begin; NULL: none. */
static const char *python_word(const char *text, size_t len)
{
	static const char *const words[] = {"Infinity", "-Infinity", "NaN"};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (len >= strlen(words[i]) && !memcmp(text, words[i], strlen(words[i])))
			return words[i];
	return NULL;
}

static int put_python_words(struct str *out, const char *text, size_t len)
{
	size_t start = 0, i = 0;

	for (int in_string = 0; i < len; i++) {
		const char *word = in_string ? NULL : python_word(text + i, len - i);

		if (in_string && text[i] == '\\' && i + 1 < len) {
			i++;
		} else if (text[i] == '"') {
			in_string = !in_string;
		} else if (word) {
			str_add_bytes(out, text + start, i - start);
			str_printf(out, "{\"__float__\":\"%s\"}", word);
			i += strlen(word) - 1;
			start = i + 1;
		}
	}
	str_add_bytes(out, text + start, len - start);
	return str_check(out);
}

static int read_file(json_t **root, const char *path, int64_t max_bytes, int is_python)
{
	struct str changed = {0};
	char *text = NULL;
	size_t len = 0;
	int err;

	*root = NULL;
	err = file_read_all(path, max_bytes, &text, &len);
	if (!err && is_python)
		err = put_python_words(&changed, text, len);
	if (!err)
		err = is_python ? json_parse(root, path, changed.data ? changed.data : "", changed.len_bytes)
		                : json_parse(root, path, text, len);
	str_free(&changed);
	mem_free(text);
	return err;
}

int json_read_file(json_t **root, const char *path, int64_t max_bytes)
{
	return read_file(root, path, max_bytes, 0);
}

int json_read_python(json_t **root, const char *path, int64_t max_bytes)
{
	return read_file(root, path, max_bytes, 1);
}

json_t *json_of_number(double value)
{
	return value == floor(value) && fabs(value) < 1e15 ? json_integer((json_int_t)value)
	                                                   : json_real(value);
}

json_t *json_finite(double value)
{
	return isfinite(value) ? json_real(value) : json_null();
}

const char *json_kind_name(const json_t *value)
{
	if (!value)
		return "nothing";
	if (json_big_digits(value))
		return "an integer";
	if (is_binary(value))
		return "binary, not UTF-8 text";
	switch (json_typeof(value)) {
	case JSON_OBJECT:
		return "an object";
	case JSON_ARRAY:
		return "an array";
	case JSON_STRING:
		return "a string";
	case JSON_INTEGER:
		return "an integer";
	case JSON_REAL:
		return "a real number";
	case JSON_TRUE:
	case JSON_FALSE:
		return "a boolean";
	case JSON_NULL:
		return "null";
	}
	return "nothing";
}

static int wrong_kind(const char *where, const char *key, const char *wanted, const json_t *value)
{
	return err_set(
	        ERR_INPUT, "%s: \"%s\" must be %s, but is %s", where, key, wanted, json_kind_name(value));
}

/* 1 and *value, 0 if the key is absent or null, or ERR_INPUT if `object` is not an object. */
static int find(json_t **value, const json_t *object, const char *where, const char *key)
{
	*value = NULL;
	if (!json_is_object(object))
		return err_set(ERR_INPUT, "%s: expected an object with \"%s\", found %s", where, key,
		        json_kind_name(object));
	*value = json_object_get(object, key);
	return *value && !json_is_null(*value);
}

int json_get_int(const json_t *object, const char *where, const char *key, int64_t *out)
{
	json_t *value;
	int found = find(&value, object, where, key);
	double real;

	if (found <= 0)
		return found;
	if (json_is_integer(value)) {
		*out = json_integer_value(value);
		return 1;
	}
	if (!json_is_real(value))
		return wrong_kind(where, key, "an integer", value);
	real = json_real_value(value);
	if (!(real >= -0x1p63 && real < 0x1p63) || real != floor(real))
		return err_set(
		        ERR_INPUT, "%s: \"%s\" must be a 64-bit integer, but is %.17g", where, key, real);
	*out = (int64_t)real;
	return 1;
}

int json_get_num(const json_t *object, const char *where, const char *key, double *out)
{
	json_t *value;
	int found = find(&value, object, where, key);

	if (found <= 0)
		return found;
	if (!json_is_number(value))
		return wrong_kind(where, key, "a number", value);
	*out = json_number_value(value);
	return 1;
}

int json_get_bool(const json_t *object, const char *where, const char *key, int *out)
{
	json_t *value;
	int found = find(&value, object, where, key);

	if (found <= 0)
		return found;
	if (!json_is_boolean(value))
		return wrong_kind(where, key, "true or false", value);
	*out = json_is_true(value);
	return 1;
}

int json_get_str(const json_t *object, const char *where, const char *key, const char **out)
{
	json_t *value;
	int found = find(&value, object, where, key);

	if (found <= 0)
		return found;
	if (!json_is_string(value))
		return wrong_kind(where, key, "a string", value);
	if (strlen(json_string_value(value)) != json_string_length(value))
		return err_set(ERR_INPUT, "%s: \"%s\" holds a NUL character", where, key);
	*out = json_string_value(value);
	return 1;
}

int json_get_object(const json_t *object, const char *where, const char *key, json_t **out)
{
	json_t *value;
	int found = find(&value, object, where, key);

	if (found <= 0)
		return found;
	if (!json_is_object(value))
		return wrong_kind(where, key, "an object", value);
	*out = value;
	return 1;
}

int json_get_array(const json_t *object, const char *where, const char *key, json_t **out)
{
	json_t *value;
	int found = find(&value, object, where, key);

	if (found <= 0)
		return found;
	if (!json_is_array(value))
		return wrong_kind(where, key, "an array", value);
	*out = value;
	return 1;
}

json_t *json_of_text(const char *text)
{
	json_t *value = json_string(text);
	char *copy = value ? NULL : mem_strdup(text);

	for (char *c = copy; c && *c; c++)
		if ((unsigned char)*c > 127)
			*c = '?';
	value = copy ? json_string(copy) : value;
	mem_free(copy);
	return value;
}

json_t *json_ints(const int64_t *values, int count)
{
	json_t *list = json_array();

	for (int i = 0; list && i < count; i++) {
		if (json_array_append_new(list, json_integer(values[i]))) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}
