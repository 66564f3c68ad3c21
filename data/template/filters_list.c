/* Filters over lists and dicts. */
#include "data/template/render.h"

#include <stdlib.h>
#include <string.h>

#define FILTER(name)                                                                                         \
	static struct value name(                                                                            \
	        struct render *r, struct value self, const struct value *arg, const struct arguments *all)
#define UNUSED (void)r, (void)self, (void)arg, (void)all

/* The attribute path `a.b.0` of an item, as filters take it; an integer is an index. */
static struct value attribute_of(struct render *r, struct value item, struct value path)
{
	const char *at, *dot;

	if (path.kind != VALUE_TEXT)
		return eval_item(r, item, path);
	for (at = path.u.text->data;; at = dot + 1) {
		struct value key;
		size_t len;

		dot = strchr(at, '.');
		len = dot ? (size_t)(dot - at) : strlen(at);
		key = value_text(r->s, at, len);
		if (len && strspn(at, "0123456789") >= len)
			key = value_int(strtoll(key.u.text->data, NULL, 10));
		item = eval_item(r, item, key);
		if (!dot)
			return item;
	}
}

static struct value folded(struct render *r, struct value v, int case_sensitive)
{
	return case_sensitive || v.kind != VALUE_TEXT ? v : text_recase(r->s, v.u.text, TEXT_LOWER);
}

static struct value list_copy(struct render *r, struct value v, enum list_kind kind)
{
	const struct list *items = value_items(r->s, v);
	struct value out = value_list(r->s, kind, items->count);

	for (int64_t i = 0; i < items->count; i++)
		list_add(r->s, out.u.list, items->items[i]);
	return out;
}

static struct value pair(struct render *r, struct value a, struct value b)
{
	struct value out = value_list(r->s, LIST_TUPLE, 2);

	list_add(r->s, out.u.list, a);
	list_add(r->s, out.u.list, b);
	return out;
}

FILTER(filter_list)
{
	UNUSED;
	return list_copy(r, self, LIST_LIST);
}

FILTER(filter_first)
{
	const struct list *items = value_items(r->s, self);

	UNUSED;
	return items->count ? items->items[0] : UNDEFINED;
}

FILTER(filter_last)
{
	const struct list *items;

	UNUSED;
	if (self.kind == VALUE_LIST && self.u.list->kind == LIST_GENERATOR)
		sandbox_fail(r->s, "last needs a list; put |list in front");
	items = value_items(r->s, self);
	return items->count ? items->items[items->count - 1] : UNDEFINED;
}

FILTER(filter_reverse)
{
	struct value out = value_list(r->s, LIST_GENERATOR, 0);
	const struct list *items = value_items(r->s, self);
	struct sink sink = {0};

	UNUSED;
	if (self.kind != VALUE_TEXT) {
		for (int64_t i = items->count; i > 0; i--)
			list_add(r->s, out.u.list, items->items[i - 1]);
		return out;
	}
	for (int64_t i = items->count; i > 0; i--)
		sink_add(
		        r->s, &sink, items->items[i - 1].u.text->data, items->items[i - 1].u.text->len_bytes);
	return sink_value(r->s, &sink);
}

FILTER(filter_join)
{
	const struct list *items = value_items(r->s, self);
	struct sink sink = {0};

	UNUSED;
	for (int64_t i = 0; i < items->count; i++) {
		if (i && arg[0].kind != VALUE_ABSENT)
			value_write(r->s, &sink, arg[0]);
		value_write(r->s, &sink,
		        arg[1].kind == VALUE_ABSENT || arg[1].kind == VALUE_NONE
		                ? items->items[i]
		                : attribute_of(r, items->items[i], arg[1]));
	}
	return sink_value(r->s, &sink);
}

FILTER(filter_items)
{
	struct value out = value_list(r->s, LIST_GENERATOR, 0);

	UNUSED;
	if (self.kind == VALUE_UNDEFINED)
		return out;
	if (self.kind != VALUE_DICT)
		sandbox_fail(r->s, "items needs a dict, not %s", value_kind_name(self));
	for (int64_t i = 0; i < self.u.dict->count; i++)
		list_add(r->s, out.u.list, pair(r, self.u.dict->keys[i], self.u.dict->values[i]));
	return out;
}

/* ---- order ---- */

struct sort_item {
	struct value key, value;
};

/* Merge sort: stable, also in reverse. */
static void sort_items(
        struct render *r, struct sort_item *items, struct sort_item *spare, int64_t count, int reverse)
{
	int64_t half = count / 2, a = 0, b = half, at = 0;

	if (count < 2)
		return;
	sort_items(r, items, spare, half, reverse);
	sort_items(r, items + half, spare, count - half, reverse);
	while (a < half || b < count) {
		int take_b = a == half;

		if (a < half && b < count) {
			int order = value_compare(r->s, items[b].key, items[a].key);

			take_b = reverse ? order > 0 : order < 0;
		}
		spare[at++] = take_b ? items[b++] : items[a++];
	}
	memcpy(items, spare, (size_t)count * sizeof(*items));
}

static int64_t count_paths(const struct value *path)
{
	int64_t count = 1;

	for (size_t i = 0; path->kind == VALUE_TEXT && i < path->u.text->len_bytes; i++)
		count += path->u.text->data[i] == ',';
	return count;
}

/* The sort key: the item, one of its attributes, or several ("a,b"). */
static struct value sort_key(
        struct render *r, struct value item, const struct value *path, int case_sensitive)
{
	struct value key;
	const char *at, *comma;

	if (path->kind == VALUE_ABSENT || path->kind == VALUE_NONE)
		return folded(r, item, case_sensitive);
	if (count_paths(path) == 1)
		return folded(r, attribute_of(r, item, *path), case_sensitive);
	key = value_list(r->s, LIST_LIST, 0);
	for (at = path->u.text->data; at; at = comma ? comma + 1 : NULL) {
		comma = strchr(at, ',');
		list_add(r->s, key.u.list,
		        folded(r,
		                attribute_of(r, item,
		                        value_text(r->s, at, comma ? (size_t)(comma - at) : strlen(at))),
		                case_sensitive));
	}
	return key;
}

static struct value sorted(
        struct render *r, const struct list *items, const struct value *path, int case_sensitive, int reverse)
{
	struct sort_item *all = sandbox_alloc(r->s, (size_t)items->count, sizeof(*all));
	struct sort_item *spare = sandbox_alloc(r->s, (size_t)items->count, sizeof(*all));
	struct value out = value_list(r->s, LIST_LIST, items->count);
	int64_t undefined = 0;

	for (int64_t i = 0; i < items->count; i++)
		all[i] = (struct sort_item){
		        sort_key(r, items->items[i], path, case_sensitive), items->items[i]};
	for (int64_t i = 0; i < items->count; i++)
		undefined += all[i].key.kind == VALUE_UNDEFINED;
	for (int64_t i = 0; undefined < items->count && i < items->count; i++)
		if (all[i].key.kind == VALUE_UNDEFINED)
			undefined_fail(r, all[i].key);
	if (!undefined) /* else all are, which is an order */
		sort_items(r, all, spare, items->count, reverse);
	for (int64_t i = 0; i < items->count; i++)
		list_add(r->s, out.u.list, all[i].value);
	return out;
}

FILTER(filter_sort)
{
	UNUSED;
	return sorted(
	        r, value_items(r->s, self), &arg[2], argument_flag(arg[1], 0), argument_flag(arg[0], 0));
}

FILTER(filter_dictsort)
{
	const char *by = arg[1].kind == VALUE_ABSENT ? "key" : argument_text(r, arg[1], "by")->data;
	struct value pairs = value_list(r->s, LIST_LIST, 0), place = value_int(!strcmp(by, "value"));

	UNUSED;
	if (strcmp(by, "key") && strcmp(by, "value"))
		sandbox_fail(r->s, "dictsort: by must be key or value, not '%.20s'", by);
	if (self.kind != VALUE_DICT)
		sandbox_fail(r->s, "dictsort needs a dict, not %s", value_kind_name(self));
	for (int64_t i = 0; i < self.u.dict->count; i++)
		list_add(r->s, pairs.u.list, pair(r, self.u.dict->keys[i], self.u.dict->values[i]));
	return sorted(r, pairs.u.list, &place, argument_flag(arg[0], 0), argument_flag(arg[2], 0));
}

FILTER(filter_unique)
{
	const struct list *items = value_items(r->s, self);
	struct value out = value_list(r->s, LIST_GENERATOR, 0), seen = value_dict(r->s), ignored;

	UNUSED;
	for (int64_t i = 0; i < items->count; i++) {
		struct value key = sort_key(r, items->items[i], &arg[1], argument_flag(arg[0], 0));

		if (dict_get(r->s, seen.u.dict, key, &ignored))
			continue;
		dict_set(r->s, seen.u.dict, key, NONE);
		list_add(r->s, out.u.list, items->items[i]);
	}
	return out;
}

static struct value extreme(struct render *r, struct value self, const struct value *arg, int sign)
{
	const struct list *items = value_items(r->s, self);
	int64_t best = 0;

	if (!items->count)
		return UNDEFINED;
	for (int64_t i = 1; i < items->count; i++)
		if (sign * value_compare(r->s,
		                   sort_key(r, items->items[i], &arg[1], argument_flag(arg[0], 0)),
		                   sort_key(r, items->items[best], &arg[1], argument_flag(arg[0], 0))) >
		        0)
			best = i;
	return items->items[best];
}

FILTER(filter_max)
{
	UNUSED;
	return extreme(r, self, arg, 1);
}

FILTER(filter_min)
{
	UNUSED;
	return extreme(r, self, arg, -1);
}

FILTER(filter_sum)
{
	const struct list *items = value_items(r->s, self);
	struct value sum = arg[1].kind == VALUE_ABSENT ? value_int(0) : arg[1];

	UNUSED;
	for (int64_t i = 0; i < items->count; i++)
		sum = value_add(r, sum,
		        arg[0].kind == VALUE_ABSENT || arg[0].kind == VALUE_NONE
		                ? items->items[i]
		                : attribute_of(r, items->items[i], arg[0]));
	return sum;
}

FILTER(filter_groupby)
{
	struct value items = sorted(r, value_items(r->s, self), &arg[0], argument_flag(arg[2], 0), 0);
	struct value out = value_list(r->s, LIST_LIST, 0), last = ABSENT, group = ABSENT;

	UNUSED;
	for (int64_t i = 0; i < items.u.list->count; i++) {
		struct value item = items.u.list->items[i], key = attribute_of(r, item, arg[0]);

		if (key.kind == VALUE_UNDEFINED && arg[1].kind != VALUE_ABSENT)
			key = arg[1];
		struct value same = folded(r, key, argument_flag(arg[2], 0));

		if (last.kind == VALUE_ABSENT || !value_equal(r->s, last, same)) {
			group = value_list(r->s, LIST_LIST, 0);
			list_add(r->s, out.u.list, pair(r, key, group));
			last = same;
		}
		list_add(r->s, group.u.list, item);
	}
	return out;
}

FILTER(filter_batch)
{
	const struct list *items = value_items(r->s, self);
	int64_t size = argument_int(r, arg[0], 1);
	struct value out = value_list(r->s, LIST_GENERATOR, 0), row = UNDEFINED;

	UNUSED;
	if (size < 1)
		sandbox_fail(r->s, "batch needs rows of at least 1");
	for (int64_t i = 0; i < items->count; i++) {
		if (i % size == 0) {
			row = value_list(r->s, LIST_LIST, 0);
			list_add(r->s, out.u.list, row);
		}
		list_add(r->s, row.u.list, items->items[i]);
	}
	while (items->count && arg[1].kind != VALUE_ABSENT && arg[1].kind != VALUE_NONE &&
	        row.u.list->count < size)
		list_add(r->s, row.u.list, arg[1]);
	return out;
}

FILTER(filter_slice)
{
	const struct list *items = value_items(r->s, self);
	int64_t slices = argument_int(r, arg[0], 1), at = 0;
	struct value out = value_list(r->s, LIST_GENERATOR, 0);

	UNUSED;
	if (slices < 1)
		sandbox_fail(r->s, "slice needs at least 1 slice");
	for (int64_t i = 0; i < slices; i++) {
		struct value row = value_list(r->s, LIST_LIST, 0);
		int64_t count = items->count / slices + (i < items->count % slices);

		for (int64_t k = 0; k < count; k++)
			list_add(r->s, row.u.list, items->items[at++]);
		if (arg[1].kind != VALUE_ABSENT && arg[1].kind != VALUE_NONE && i >= items->count % slices)
			list_add(r->s, row.u.list, arg[1]);
		list_add(r->s, out.u.list, row);
	}
	return out;
}

/* ---- map, select, reject ---- */

/* The arguments after the first `from`. */
static struct arguments rest_of(const struct arguments *all, int64_t from)
{
	struct arguments rest = *all;

	rest.positional += from;
	rest.count -= from;
	return rest;
}

static struct value named_argument(const struct arguments *all, const char *name)
{
	for (int64_t i = 0; i < all->named_count; i++)
		if (!strcmp(all->names[i]->data, name))
			return all->named[i];
	return ABSENT;
}

FILTER(filter_map)
{
	const struct list *items = value_items(r->s, self);
	struct value out = value_list(r->s, LIST_GENERATOR, 0), path = named_argument(all, "attribute"), v;
	struct value fallback = named_argument(all, "default");
	struct arguments rest;

	UNUSED;
	if (!all->count && path.kind == VALUE_ABSENT)
		sandbox_fail(r->s, "map needs the name of a filter, or attribute=");
	for (int64_t i = 0; i < items->count; i++) {
		if (all->count) {
			rest = rest_of(all, 1);
			v = filter_call(r, argument_text(r, all->positional[0], "a filter's name")->data,
			        items->items[i], &rest);
		} else {
			v = attribute_of(r, items->items[i], path);
			if (v.kind == VALUE_UNDEFINED && fallback.kind != VALUE_ABSENT)
				v = fallback;
		}
		list_add(r->s, out.u.list, v);
	}
	return out;
}

/* select and reject; with the name of an attribute first, selectattr and rejectattr. */
static struct value choose(
        struct render *r, struct value self, const struct arguments *all, int by_attribute, int want)
{
	const struct list *items = value_items(r->s, self);
	struct value out = value_list(r->s, LIST_GENERATOR, 0);
	struct arguments rest = rest_of(all, all->count > by_attribute ? by_attribute + 1 : all->count);

	if (all->count < by_attribute)
		sandbox_fail(r->s, "selectattr and rejectattr need the name of an attribute");
	for (int64_t i = 0; i < items->count; i++) {
		struct value v =
		        by_attribute ? attribute_of(r, items->items[i], all->positional[0]) : items->items[i];

		if (all->count > by_attribute)
			v = test_call(r,
			        argument_text(r, all->positional[by_attribute], "a test's name")->data, v,
			        &rest);
		if (value_truth(v) == want)
			list_add(r->s, out.u.list, items->items[i]);
	}
	return out;
}

FILTER(filter_select)
{
	UNUSED;
	return choose(r, self, all, 0, 1);
}

FILTER(filter_reject)
{
	UNUSED;
	return choose(r, self, all, 0, 0);
}

FILTER(filter_selectattr)
{
	UNUSED;
	return choose(r, self, all, 1, 1);
}

FILTER(filter_rejectattr)
{
	UNUSED;
	return choose(r, self, all, 1, 0);
}

const struct builtin filters_of_lists[] = {
        {"batch", "linecount! fill_with", filter_batch},
        {"dictsort", "case_sensitive by reverse", filter_dictsort},
        {"first", "", filter_first},
        {"groupby", "attribute! default case_sensitive", filter_groupby},
        {"items", "", filter_items},
        {"join", "d attribute", filter_join},
        {"last", "", filter_last},
        {"list", "", filter_list},
        {"map", NULL, filter_map},
        {"max", "case_sensitive attribute", filter_max},
        {"min", "case_sensitive attribute", filter_min},
        {"reject", NULL, filter_reject},
        {"rejectattr", NULL, filter_rejectattr},
        {"reverse", "", filter_reverse},
        {"select", NULL, filter_select},
        {"selectattr", NULL, filter_selectattr},
        {"slice", "slices! fill_with", filter_slice},
        {"sort", "reverse case_sensitive attribute", filter_sort},
        {"sum", "attribute start", filter_sum},
        {"unique", "case_sensitive attribute", filter_unique},
        {0},
};
