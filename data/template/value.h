/* Values of a template: Python's values, as far as templates need them.
 *
 * A value is 16 bytes and is copied freely. It points to memory of the sandbox that never changes, except for
 * namespaces, generators, and the state of loops, cyclers and joiners. Texts are valid UTF-8 and are counted
 * in characters. Integers have 64 bits. Larger ones keep their digits: they are written and compared exactly,
 * and arithmetic with them is an error.
 */
#ifndef FERRY_DATA_TEMPLATE_VALUE_H
#define FERRY_DATA_TEMPLATE_VALUE_H

#include "data/template/sandbox.h"

#include <jansson.h>

enum value_kind {
	VALUE_UNDEFINED, /* u.text: the undefined name, or NULL */
	VALUE_NONE,
	VALUE_BOOL,
	VALUE_INT,
	VALUE_FLOAT,
	VALUE_BIG, /* an integer beyond 64 bits; u.text: its digits, as Python writes them */
	VALUE_TEXT,
	VALUE_LIST, /* any kind of sequence: see list_kind */
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
	const char *data; /* with a NUL at the end */
	size_t len_bytes;
	int64_t char_count; /* -1 = not counted yet */
	int markup;         /* from |safe or |escape: texts that are joined to it get escaped */
};

struct list {
	struct value *items;
	int64_t count, cap;
	enum list_kind kind;
};

/* In order of insertion. If there are many keys, a hash table finds them. */
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
	return v.kind == VALUE_BOOL || v.kind == VALUE_INT || v.kind == VALUE_FLOAT || v.kind == VALUE_BIG;
}
/* An integer that u.i holds. */
static inline int value_is_integer(struct value v)
{
	return v.kind == VALUE_BOOL || v.kind == VALUE_INT;
}
static inline int value_is_whole(struct value v) /* of any size */
{
	return value_is_integer(v) || v.kind == VALUE_BIG;
}
static inline int value_is_nan(struct value v)
{
	return v.kind == VALUE_FLOAT && v.u.f != v.u.f;
}

/* value_text copies the bytes. value_text_of borrows them: they must live as long as the sandbox. */
struct value value_text(struct sandbox *s, const char *data, size_t len_bytes);
struct value value_text_of(struct sandbox *s, const char *data, size_t len_bytes);
struct value value_list(struct sandbox *s, enum list_kind kind, int64_t cap);
void list_add(struct sandbox *s, struct list *list, struct value item);
struct value value_dict(struct sandbox *s);
void dict_set(struct sandbox *s, struct dict *d, struct value key, struct value value);
/* 1 and *value, or 0; fails if the key cannot be one (a list). */
int dict_get(struct sandbox *s, const struct dict *d, struct value key, struct value *value);
int dict_get_named(const struct dict *d, const char *name, struct value *value);

struct value value_of_json(struct sandbox *s, const json_t *json);

int value_truth(struct value v);
int value_equal(struct sandbox *s, struct value a, struct value b);
/* Below 0, 0 or above 0; fails if Python has no order for the values. */
int value_compare(struct sandbox *s, struct value a, struct value b);
double value_number(struct value v); /* rounded; infinite if the integer is too large */

/* ---- numbers ---- */

/* An integer of any size from its decimal digits, at most NUMBER_DIGITS_MAX (Python's limit); a minus may
 * precede them. */
enum { NUMBER_DIGITS_MAX = 4300 };
struct value value_integer(struct sandbox *s, const char *digits, size_t len_bytes);

struct value number_negative(struct sandbox *s, struct value big);

/* An integer as an index, where Python cuts it to what an index can be: bounds of slices and searches. */
int64_t number_index(struct value v);

/* The integer part of a finite number. */
struct value value_whole(struct sandbox *s, double f);

/* Reads a text as Python's int() and float() do: 1, or 0 if it is invalid. A base that int() does not know
 * makes every text invalid. */
int number_read_integer(struct sandbox *s, const struct text *t, int64_t base, struct value *out);
int number_read_real(struct sandbox *s, const struct text *t, struct value *out);

/* Below 0, 0 or above 0, exactly; 0 beside NaN. */
int number_compare(struct value a, struct value b);

/* "str", "dict", ... as in Python's messages. */
const char *value_kind_name(struct value v);

/* len(v); fails if v has no length. */
int64_t value_length(struct sandbox *s, struct value v);

/* The items that `for` iterates over: of a list, keys of a dict, characters of a text. Empties a
 * generator. */
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
/* Byte offset of character `at`, 0 <= at <= text_length. */
size_t text_offset(struct text *t, int64_t at);
int char_is_space(int32_t c);
int char_is_printable(int32_t c);
/* Reads the character at a place of valid UTF-8; returns its length in bytes. */
int char_at(const char *at, const char *end, int32_t *c);

enum text_case { TEXT_UPPER, TEXT_LOWER, TEXT_CAPITALIZE, TEXT_TITLE, TEXT_SWAP };
struct value text_recase(struct sandbox *s, const struct text *t, enum text_case to);

enum text_side { TEXT_LEFT = 1, TEXT_RIGHT = 2, TEXT_BOTH = 3 };
/* Removes the characters of `chars` (NULL: white space) from the ends of a text. */
struct value text_strip(
        struct sandbox *s, const struct text *t, const struct text *chars, enum text_side side);

/* Byte offset of the first `needle` at or after `from`, or -1. text_find_last: of the last one that begins
 * before `before`. */
int64_t text_find(const struct text *t, const struct text *needle, size_t from);
int64_t text_find_last(const struct text *t, const struct text *needle, size_t before);

#endif
