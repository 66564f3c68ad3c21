/* Values of a template: Python's, as far as templates see them.
 *
 * A value is 16 bytes and is copied freely; what it points to lives in the sandbox and never changes, except
 * namespaces and the place of a generator. Texts are valid UTF-8 and are counted in characters. Integers have
 * 64 bits; what would exceed them is an error.
 */
#ifndef FERRY_DATA_TEMPLATE_VALUE_H
#define FERRY_DATA_TEMPLATE_VALUE_H

#include "data/template/sandbox.h"

#include <jansson.h>

enum value_kind {
	VALUE_UNDEFINED, /* u.text: what is undefined, or NULL */
	VALUE_NONE,
	VALUE_BOOL,
	VALUE_INT,
	VALUE_FLOAT,
	VALUE_TEXT,
	VALUE_LIST, /* every kind of sequence: see list_kind */
	VALUE_DICT,
	VALUE_NAMESPACE,
	VALUE_LOOP,
	VALUE_MACRO,
	VALUE_FUNCTION, /* a global, a method, or the like */
	VALUE_ABSENT,   /* an argument that was not given */
};

enum list_kind { LIST_LIST, LIST_TUPLE, LIST_GENERATOR, LIST_KEYS, LIST_VALUES, LIST_ITEMS, LIST_RANGE };

struct value {
	enum value_kind kind;
	union {
		int64_t i; /* BOOL, INT */
		double f;
		struct text *text;
		struct list *list;
		struct dict *dict; /* DICT, NAMESPACE */
		struct loop *loop;
		struct macro *macro;
		struct function *function;
	} u;
};

struct text {
	const char *data; /* NUL behind it */
	size_t len_bytes;
	int64_t char_count; /* -1 = not counted yet */
	int markup;         /* came from |safe or |escape: joining escapes what is joined to it */
};

struct list {
	struct value *items;
	int64_t count, cap;
	enum list_kind kind;
};

/* In order of insertion; a hash table over keys where they are many. */
struct dict {
	struct value *keys, *values;
	int64_t count, cap;
	int32_t *slots; /* index + 1, 0 = free; NULL for small ones */
	int64_t slot_count;
};

#define UNDEFINED ((struct value){.kind = VALUE_UNDEFINED})
#define NONE ((struct value){.kind = VALUE_NONE})
#define ABSENT ((struct value){.kind = VALUE_ABSENT})

static inline struct value value_bool(int yes)
{
	return (struct value){.kind = VALUE_BOOL, .u.i = yes != 0};
}
static inline struct value value_int(int64_t i)
{
	return (struct value){.kind = VALUE_INT, .u.i = i};
}
static inline struct value value_float(double f)
{
	return (struct value){.kind = VALUE_FLOAT, .u.f = f};
}
static inline int value_is_number(struct value v)
{
	return v.kind == VALUE_BOOL || v.kind == VALUE_INT || v.kind == VALUE_FLOAT;
}
static inline int value_is_integer(struct value v)
{
	return v.kind == VALUE_BOOL || v.kind == VALUE_INT;
}

/* The bytes are copied, or are those of something that lives as long as the sandbox. */
struct value value_text(struct sandbox *s, const char *data, size_t len_bytes);
struct value value_text_of(struct sandbox *s, const char *data, size_t len_bytes);
struct value value_list(struct sandbox *s, enum list_kind kind, int64_t cap);
void list_add(struct sandbox *s, struct list *list, struct value item);
struct value value_dict(struct sandbox *s);
void dict_set(struct sandbox *s, struct dict *d, struct value key, struct value value);
/* 1 and *value, or 0; fails when a key cannot be one (a list). */
int dict_get(struct sandbox *s, const struct dict *d, struct value key, struct value *value);
int dict_get_named(const struct dict *d, const char *name, struct value *value);

struct value value_of_json(struct sandbox *s, const json_t *json);

int value_truth(struct value v);
int value_equal(struct sandbox *s, struct value a, struct value b);
/* Below 0, 0, above 0; fails where Python has no order. */
int value_compare(struct sandbox *s, struct value a, struct value b);
double value_number(struct value v);

/* "str", "dict", ... as in Python's messages. */
const char *value_kind_name(struct value v);

/* len(v); fails where it has none. */
int64_t value_length(struct sandbox *s, struct value v);

/* What `for` would go over: lists as they are, keys of a dict, characters of a text. A generator is used up.
 */
struct list *value_items(struct sandbox *s, struct value v);
int value_is_iterable(struct value v);

/* A growing text in the sandbox. */
struct sink {
	char *data;
	size_t len_bytes, cap_bytes;
};
void sink_add(struct sandbox *s, struct sink *sink, const char *data, size_t len_bytes);
void sink_text(struct sandbox *s, struct sink *sink, const char *text);
struct value sink_value(struct sandbox *s, struct sink *sink);

/* str(v) and repr(v). */
void value_write(struct sandbox *s, struct sink *sink, struct value v);
void value_write_repr(struct sandbox *s, struct sink *sink, struct value v);
struct text *value_str(struct sandbox *s, struct value v);
enum { FLOAT_BYTES = 64 };
void float_write(char out[FLOAT_BYTES], double f);

/* ---- texts ---- */

int64_t text_length(struct text *t);
/* Byte offset of a character, 0 <= at <= text_length. */
size_t text_offset(struct text *t, int64_t at);
int char_is_space(int32_t c);
int char_is_printable(int32_t c);
/* The character at a place of valid UTF-8, and its length in bytes. */
int char_at(const char *at, const char *end, int32_t *c);

enum text_case { TEXT_UPPER, TEXT_LOWER, TEXT_CAPITALIZE, TEXT_TITLE, TEXT_SWAP };
struct value text_recase(struct sandbox *s, const struct text *t, enum text_case to);

enum text_side { TEXT_LEFT = 1, TEXT_RIGHT = 2, TEXT_BOTH = 3 };
/* Without the characters of `chars` (NULL: white space) at its ends. */
struct value text_strip(
        struct sandbox *s, const struct text *t, const struct text *chars, enum text_side side);

/* Byte offset of the first `needle` from `from` on, or -1; of the last one that begins before `before`. */
int64_t text_find(const struct text *t, const struct text *needle, size_t from);
int64_t text_find_last(const struct text *t, const struct text *needle, size_t before);

#endif
