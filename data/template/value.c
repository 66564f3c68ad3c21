/* Makes, compares and iterates over values. */
#include "data/template/value.h"

#include "base/json.h"

#include <limits.h>
#include <string.h>

enum { DICT_SMALL = 8, JSON_DEPTH_MAX = 200 };

struct value value_text_of(struct sandbox *s, const char *data, size_t len_bytes)
{
	struct text *t = sandbox_alloc(s, 1, sizeof(*t));

	*t = (struct text){.data = data, .len_bytes = len_bytes, .char_count = -1};
	return (struct value){.kind = VALUE_TEXT, .u.text = t};
}

struct value value_text(struct sandbox *s, const char *data, size_t len_bytes)
{
	char *copy = sandbox_alloc(s, len_bytes + 1, 1);

	sandbox_step(s, (int64_t)(len_bytes / 1024));
	if (len_bytes)
		memcpy(copy, data, len_bytes);
	return value_text_of(s, copy, len_bytes);
}

struct value value_list(struct sandbox *s, enum list_kind kind, int64_t cap)
{
	struct list *list = sandbox_alloc(s, 1, sizeof(*list));

	list->kind = kind;
	list->cap = cap;
	list->items = sandbox_alloc(s, (size_t)cap, sizeof(*list->items));
	sandbox_step(s, cap / 16);
	return (struct value){.kind = VALUE_LIST, .u.list = list};
}

void list_add(struct sandbox *s, struct list *list, struct value item)
{
	if (list->count == list->cap) {
		int64_t cap = list->cap * 2 + 4;
		struct value *items = sandbox_alloc(s, (size_t)cap, sizeof(*items));

		if (list->count)
			memcpy(items, list->items, (size_t)list->count * sizeof(*items));
		list->items = items;
		list->cap = cap;
	}
	sandbox_step(s, 1);
	list->items[list->count++] = item;
}

/* ---- dicts ---- */

struct value value_dict(struct sandbox *s)
{
	return (struct value){.kind = VALUE_DICT, .u.dict = sandbox_alloc(s, 1, sizeof(struct dict))};
}

static uint64_t hash_bytes(const char *data, size_t len_bytes)
{
	uint64_t hash = 0xcbf29ce484222325u;

	for (size_t i = 0; i < len_bytes; i++)
		hash = (hash ^ (unsigned char)data[i]) * 0x100000001b3u;
	return hash ^ hash >> 29;
}

/* Equal values have equal hashes: 1, 1.0 and true are one key. */
static uint64_t hash_value(struct sandbox *s, struct value v)
{
	double number;

	switch (v.kind) {
	case VALUE_TEXT:
		return hash_bytes(v.u.text->data, v.u.text->len_bytes);
	case VALUE_BOOL:
	case VALUE_INT:
	case VALUE_FLOAT:
	case VALUE_BIG:
		number = value_number(v) + 0.0; /* -0.0 is 0 */
		return hash_bytes((const char *)&number, sizeof(number));
	case VALUE_NONE:
	case VALUE_UNDEFINED:
		return (uint64_t)v.kind;
	case VALUE_LIST:
		if (v.u.list->kind == LIST_TUPLE) {
			uint64_t hash = 7;

			sandbox_enter(s);
			for (int64_t i = 0; i < v.u.list->count; i++)
				hash = hash * 31 + hash_value(s, v.u.list->items[i]);
			sandbox_leave(s);
			return hash;
		}
		/* fall through */
	case VALUE_DICT:
		sandbox_fail(s, "a %s cannot be a key", value_kind_name(v));
	default:
		return hash_bytes((const char *)&v.u.i, sizeof(v.u.i));
	}
}

/* The index of a key; or -1, with *slot free for it. */
static int64_t dict_find(struct sandbox *s, const struct dict *d, struct value key, int64_t *slot)
{
	uint64_t hash = hash_value(s, key);

	*slot = -1;
	if (!d->slots) {
		for (int64_t i = 0; i < d->count; i++)
			if (value_equal(s, d->keys[i], key))
				return i;
		return -1;
	}
	for (uint64_t at = hash;; at++) {
		int64_t place = (int64_t)(at & (uint64_t)(d->slot_count - 1));

		if (!d->slots[place]) {
			*slot = place;
			return -1;
		}
		if (value_equal(s, d->keys[d->slots[place] - 1], key))
			return d->slots[place] - 1;
	}
}

static void dict_grow(struct sandbox *s, struct dict *d)
{
	int64_t cap = d->cap * 2 + 4, slot;
	struct value *keys = sandbox_alloc(s, (size_t)cap, sizeof(*keys));
	struct value *values = sandbox_alloc(s, (size_t)cap, sizeof(*values));

	if (d->count) {
		memcpy(keys, d->keys, (size_t)d->count * sizeof(*keys));
		memcpy(values, d->values, (size_t)d->count * sizeof(*values));
	}
	d->keys = keys;
	d->values = values;
	d->cap = cap;
	if (cap <= DICT_SMALL)
		return;
	d->slot_count = 16;
	while (d->slot_count < cap * 2)
		d->slot_count *= 2;
	d->slots = sandbox_alloc(s, (size_t)d->slot_count, sizeof(*d->slots));
	for (int64_t i = 0; i < d->count; i++) {
		dict_find(s, d, d->keys[i], &slot);
		d->slots[slot] = (int32_t)(i + 1);
	}
}

void dict_set(struct sandbox *s, struct dict *d, struct value key, struct value value)
{
	int64_t slot, at = dict_find(s, d, key, &slot);

	if (at >= 0) {
		d->values[at] = value;
		return;
	}
	if (d->count == d->cap) {
		dict_grow(s, d);
		dict_find(s, d, key, &slot);
	}
	sandbox_step(s, 1);
	d->keys[d->count] = key;
	d->values[d->count++] = value;
	if (d->slots)
		d->slots[slot] = (int32_t)d->count;
}

int dict_get(struct sandbox *s, const struct dict *d, struct value key, struct value *value)
{
	int64_t slot, at = dict_find(s, d, key, &slot);

	if (at < 0)
		return 0;
	*value = d->values[at];
	return 1;
}

int dict_get_named(const struct dict *d, const char *name, struct value *value)
{
	size_t len_bytes = strlen(name);

	for (int64_t i = 0; i < d->count; i++) {
		const struct value *key = &d->keys[i];

		if (key->kind == VALUE_TEXT && key->u.text->len_bytes == len_bytes &&
		        !memcmp(key->u.text->data, name, len_bytes)) {
			*value = d->values[i];
			return 1;
		}
	}
	return 0;
}

/* ---- from JSON ---- */

static struct value from_json(struct sandbox *s, const json_t *json, int depth)
{
	struct value v = NONE, item;
	const json_t *child;
	json_t *object;
	const char *key;
	size_t i, key_bytes;

	if (depth > JSON_DEPTH_MAX)
		sandbox_fail(s, "the data is nested more than %d deep", JSON_DEPTH_MAX);
	switch (json_typeof(json)) {
	case JSON_OBJECT:
		if (json_big_digits(json))
			return value_integer(s, json_big_digits(json), strlen(json_big_digits(json)));
		if (!json_is_map(json))
			sandbox_fail(s, "the data holds bytes that are not UTF-8 text");
		v = value_dict(s);
		memcpy(&object, &json, sizeof(object));
		json_object_keylen_foreach(object, key, key_bytes, child)
		{
			item = from_json(s, child, depth + 1);
			dict_set(s, v.u.dict, value_text(s, key, key_bytes), item);
		}
		return v;
	case JSON_ARRAY:
		v = value_list(s, LIST_LIST, (int64_t)json_array_size(json));
		json_array_foreach(json, i, child) list_add(s, v.u.list, from_json(s, child, depth + 1));
		return v;
	case JSON_STRING:
		return value_text(s, json_string_value(json), json_string_length(json));
	case JSON_INTEGER:
		return value_int(json_integer_value(json));
	case JSON_REAL:
		return value_float(json_real_value(json));
	case JSON_TRUE:
	case JSON_FALSE:
		return value_bool(json_is_true(json));
	case JSON_NULL:
		break;
	}
	return v;
}

struct value value_of_json(struct sandbox *s, const json_t *json)
{
	return json ? from_json(s, json, 0) : NONE;
}

/* ---- properties ---- */

const char *value_kind_name(struct value v)
{
	static const char *const names[] = {
	        [VALUE_UNDEFINED] = "Undefined",
	        [VALUE_NONE] = "NoneType",
	        [VALUE_BOOL] = "bool",
	        [VALUE_INT] = "int",
	        [VALUE_FLOAT] = "float",
	        [VALUE_BIG] = "int",
	        [VALUE_TEXT] = "str",
	        [VALUE_DICT] = "dict",
	        [VALUE_NAMESPACE] = "namespace",
	        [VALUE_LOOP] = "loop",
	        [VALUE_MACRO] = "macro",
	        [VALUE_FUNCTION] = "function",
	        [VALUE_ABSENT] = "nothing",
	};
	static const char *const lists[] = {
	        [LIST_LIST] = "list",
	        [LIST_TUPLE] = "tuple",
	        [LIST_GENERATOR] = "generator",
	        [LIST_KEYS] = "dict_keys",
	        [LIST_VALUES] = "dict_values",
	        [LIST_ITEMS] = "dict_items",
	        [LIST_RANGE] = "range",
	};

	return v.kind == VALUE_LIST ? lists[v.u.list->kind] : names[v.kind];
}

int value_truth(struct value v)
{
	switch (v.kind) {
	case VALUE_UNDEFINED:
	case VALUE_NONE:
	case VALUE_ABSENT:
		return 0;
	case VALUE_BOOL:
	case VALUE_INT:
		return v.u.i != 0;
	case VALUE_FLOAT:
		return v.u.f != 0;
	case VALUE_BIG:
		return 1;
	case VALUE_TEXT:
		return v.u.text->len_bytes > 0;
	case VALUE_LIST:
		return v.u.list->kind == LIST_GENERATOR || v.u.list->count > 0;
	case VALUE_DICT:
		return v.u.dict->count > 0;
	default:
		return 1;
	}
}

static int lists_equal(struct sandbox *s, const struct list *a, const struct list *b)
{
	int equal = a->count == b->count && a->kind == b->kind;

	for (int64_t i = 0; equal && i < a->count; i++)
		equal = value_equal(s, a->items[i], b->items[i]);
	return equal;
}

static int dicts_equal(struct sandbox *s, const struct dict *a, const struct dict *b)
{
	int equal = a->count == b->count;
	struct value other;

	for (int64_t i = 0; equal && i < a->count; i++)
		equal = dict_get(s, b, a->keys[i], &other) && value_equal(s, a->values[i], other);
	return equal;
}

int value_equal(struct sandbox *s, struct value a, struct value b)
{
	int equal;

	sandbox_step(s, 1);
	if (value_is_number(a) && value_is_number(b))
		return !value_is_nan(a) && !value_is_nan(b) && !number_compare(a, b);
	if (a.kind != b.kind)
		return 0;
	switch (a.kind) {
	case VALUE_UNDEFINED:
	case VALUE_NONE:
		return 1;
	case VALUE_TEXT:
		return a.u.text->len_bytes == b.u.text->len_bytes &&
		       !memcmp(a.u.text->data, b.u.text->data, a.u.text->len_bytes);
	case VALUE_LIST:
	case VALUE_DICT:
		if (a.u.list == b.u.list)
			return 1;
		if (a.kind == VALUE_LIST && a.u.list->kind == LIST_GENERATOR)
			return 0;
		sandbox_enter(s);
		equal = a.kind == VALUE_LIST ? lists_equal(s, a.u.list, b.u.list)
		                             : dicts_equal(s, a.u.dict, b.u.dict);
		sandbox_leave(s);
		return equal;
	default:
		return a.u.list == b.u.list;
	}
}

int value_compare(struct sandbox *s, struct value a, struct value b)
{
	sandbox_step(s, 1);
	if (value_is_number(a) && value_is_number(b))
		return number_compare(a, b);
	if (a.kind == VALUE_TEXT && b.kind == VALUE_TEXT) { /* UTF-8 bytes sort like characters */
		const struct text *x = a.u.text, *y = b.u.text;
		size_t shared = x->len_bytes < y->len_bytes ? x->len_bytes : y->len_bytes;
		int order = memcmp(x->data, y->data, shared);

		return order ? order : (x->len_bytes > y->len_bytes) - (x->len_bytes < y->len_bytes);
	}
	if (a.kind == VALUE_LIST && b.kind == VALUE_LIST && a.u.list->kind == b.u.list->kind &&
	        a.u.list->kind <= LIST_TUPLE) {
		const struct list *x = a.u.list, *y = b.u.list;
		int order = 0;

		sandbox_enter(s);
		for (int64_t i = 0; !order && i < x->count && i < y->count; i++)
			if (!value_equal(s, x->items[i], y->items[i]))
				order = value_compare(s, x->items[i], y->items[i]);
		sandbox_leave(s);
		return order ? order : (x->count > y->count) - (x->count < y->count);
	}
	sandbox_fail(s, "%s and %s cannot be compared", value_kind_name(a), value_kind_name(b));
}

int64_t value_length(struct sandbox *s, struct value v)
{
	if (v.kind == VALUE_UNDEFINED)
		return 0;
	if (v.kind == VALUE_TEXT)
		return text_length(v.u.text);
	if (v.kind == VALUE_DICT)
		return v.u.dict->count;
	if (v.kind == VALUE_LIST && v.u.list->kind != LIST_GENERATOR)
		return v.u.list->count;
	sandbox_fail(s, "a value of kind %s has no length", value_kind_name(v));
}

int value_is_iterable(struct value v)
{
	return v.kind == VALUE_UNDEFINED || v.kind == VALUE_TEXT || v.kind == VALUE_LIST ||
	       v.kind == VALUE_DICT || v.kind == VALUE_LOOP;
}

struct list *value_items(struct sandbox *s, struct value v)
{
	struct value out;

	if (v.kind == VALUE_LIST && v.u.list->kind != LIST_GENERATOR)
		return v.u.list;
	if (v.kind == VALUE_LIST) { /* a generator gives its items once */
		out = value_list(s, LIST_LIST, 0);
		*out.u.list = *v.u.list;
		v.u.list->count = v.u.list->cap = 0;
		return out.u.list;
	}
	if (v.kind == VALUE_UNDEFINED)
		return value_list(s, LIST_LIST, 0).u.list;
	if (v.kind == VALUE_DICT) {
		out = value_list(s, LIST_LIST, v.u.dict->count);
		for (int64_t i = 0; i < v.u.dict->count; i++)
			list_add(s, out.u.list, v.u.dict->keys[i]);
		return out.u.list;
	}
	if (v.kind == VALUE_TEXT) {
		const char *at = v.u.text->data, *end = at + v.u.text->len_bytes;
		int32_t c;

		out = value_list(s, LIST_LIST, text_length(v.u.text));
		while (at < end) {
			int len = char_at(at, end, &c);

			list_add(s, out.u.list, value_text_of(s, at, (size_t)len));
			at += len;
		}
		return out.u.list;
	}
	sandbox_fail(s, "a value of kind %s cannot be iterated", value_kind_name(v));
}
