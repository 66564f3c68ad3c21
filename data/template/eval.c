/* Evaluates expressions. */
#include "data/template/render.h"

#include <string.h>

void undefined_fail(struct render *r, struct value v)
{
	if (v.u.text)
		sandbox_fail(r->s, "'%.60s' is undefined", v.u.text->data);
	sandbox_fail(r->s, "a value is undefined");
}

static struct value undefined_named(const struct text *name)
{
	struct value v = UNDEFINED;

	memcpy(&v.u.text, &name, sizeof(name));
	return v;
}

/* ---- attributes and items ---- */

static const struct builtin *method_find(struct value of, const char *name)
{
	const struct builtin *table = NULL;

	if (of.kind == VALUE_TEXT)
		table = methods_of_texts;
	else if (of.kind == VALUE_LIST && of.u.list->kind <= LIST_TUPLE)
		table = methods_of_lists;
	else if (of.kind == VALUE_DICT)
		table = methods_of_dicts;
	else if (of.kind == VALUE_LOOP)
		table = methods_of_loops;
	else if (of.kind == VALUE_FLOAT)
		table = methods_of_floats;
	return table ? builtin_find(table, name) : NULL;
}

static struct value loop_attribute(const struct loop *l, const char *name)
{
	int64_t count = l->items->count;
	const struct {
		const char *name;
		struct value value;
	} all[] = {
	        {"index", value_int(l->index + 1)},
	        {"index0", value_int(l->index)},
	        {"revindex", value_int(count - l->index)},
	        {"revindex0", value_int(count - l->index - 1)},
	        {"first", value_bool(l->index == 0)},
	        {"last", value_bool(l->index == count - 1)},
	        {"length", value_int(count)},
	        {"depth", value_int(l->depth + 1)},
	        {"depth0", value_int(l->depth)},
	        {"previtem", l->index > 0 ? l->items->items[l->index - 1] : UNDEFINED},
	        {"nextitem", l->index + 1 < count ? l->items->items[l->index + 1] : UNDEFINED},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (!strcmp(all[i].name, name))
			return all[i].value;
	return ABSENT;
}

/* The result of Python's getattr(), or ABSENT. */
static struct value own_attribute(struct render *r, struct value of, const struct text *name)
{
	const struct builtin *method = method_find(of, name->data);
	struct value found = ABSENT;

	if (method)
		return builtin_bound(r, method, of);
	if (of.kind == VALUE_NAMESPACE && dict_get_named(of.u.dict, name->data, &found))
		return found;
	if (of.kind == VALUE_LOOP)
		return loop_attribute(of.u.loop, name->data);
	if (of.kind == VALUE_MACRO && !strcmp(name->data, "name"))
		return (struct value){.kind = VALUE_TEXT, .u.text = of.u.macro->node->text};
	if (of.kind == VALUE_FUNCTION) {
		const struct function *f = of.u.function;
		const struct builtin *table = methods_of_function(f);

		method = table ? builtin_find(table, name->data) : NULL;
		if (method && !strcmp(method->name, "current"))
			return method->call(r, f->self, NULL, NULL);
		if (method)
			return builtin_bound(r, method, f->self);
	}
	return ABSENT;
}

struct value eval_attribute(struct render *r, struct value of, const struct text *name)
{
	struct value found;

	if (of.kind == VALUE_UNDEFINED)
		undefined_fail(r, of);
	found = own_attribute(r, of, name);
	if (found.kind != VALUE_ABSENT)
		return found;
	if (of.kind == VALUE_DICT && dict_get_named(of.u.dict, name->data, &found))
		return found;
	return undefined_named(name);
}

/* The place of an index in a sequence of `count`, or -1. */
static int64_t place_of(struct value key, int64_t count)
{
	int64_t at = key.u.i < 0 ? key.u.i + count : key.u.i;

	return at >= 0 && at < count ? at : -1;
}

struct value eval_item(struct render *r, struct value of, struct value key)
{
	struct value found = UNDEFINED;
	int64_t at;

	if (of.kind == VALUE_UNDEFINED)
		undefined_fail(r, of);
	if (of.kind == VALUE_DICT && !(key.kind == VALUE_LIST && key.u.list->kind != LIST_TUPLE) &&
	        key.kind != VALUE_DICT && dict_get(r->s, of.u.dict, key, &found))
		return found;
	if (value_is_integer(key) && of.kind == VALUE_LIST &&
	        (of.u.list->kind <= LIST_TUPLE || of.u.list->kind == LIST_RANGE)) {
		at = place_of(key, of.u.list->count);
		return at < 0 ? UNDEFINED : of.u.list->items[at];
	}
	if (value_is_integer(key) && of.kind == VALUE_TEXT) {
		at = place_of(key, text_length(of.u.text));
		if (at < 0)
			return UNDEFINED;
		size_t from = text_offset(of.u.text, at), to = text_offset(of.u.text, at + 1);

		return value_text(r->s, of.u.text->data + from, to - from);
	}
	if (key.kind == VALUE_TEXT) {
		found = own_attribute(r, of, key.u.text);
		return found.kind == VALUE_ABSENT ? undefined_named(key.u.text) : found;
	}
	return UNDEFINED;
}

/* Python's slice.indices: the first index and the number of steps. */
static int64_t slice_range(
        struct render *r, const struct node *slice, int64_t count, int64_t *first, int64_t *step)
{
	struct value from = slice->a ? eval(r, slice->a) : NONE, to = slice->b ? eval(r, slice->b) : NONE;
	struct value by = slice->c ? eval(r, slice->c) : NONE;
	struct value *const all[] = {&from, &to, &by};
	int64_t start, stop;

	for (int i = 0; i < 3; i++) {
		if (!value_is_whole(*all[i]) && all[i]->kind != VALUE_NONE)
			sandbox_fail(r->s, "a slice needs integers, not %s", value_kind_name(*all[i]));
		if (all[i]->kind == VALUE_BIG)
			*all[i] = value_int(number_index(*all[i]));
	}
	*step = by.kind == VALUE_NONE ? 1 : by.u.i;
	if (*step == 0)
		sandbox_fail(r->s, "a slice has a step of 0");
	if (*step < -count - 1)
		*step = -count - 1; /* enough to leave the sequence, without overflow */
	if (*step > count + 1)
		*step = count + 1;
	int64_t low = *step < 0 ? -1 : 0, high = *step < 0 ? count - 1 : count;

	start = from.kind == VALUE_NONE ? (*step < 0 ? high : low)
	        : from.u.i < 0          ? from.u.i + count
	                                : from.u.i;
	stop = to.kind == VALUE_NONE ? (*step < 0 ? low : high) : to.u.i < 0 ? to.u.i + count : to.u.i;
	start = start < low ? low : start > high ? high : start;
	stop = stop < low ? low : stop > high ? high : stop;
	*first = start;
	if (*step > 0)
		return stop > start ? (stop - start + *step - 1) / *step : 0;
	return start > stop ? (start - stop - *step - 1) / -*step : 0;
}

static struct value eval_slice(struct render *r, struct value of, const struct node *slice)
{
	struct value out;
	int64_t count, first = 0, step = 1, taken;
	struct sink sink = {0};

	if (of.kind == VALUE_UNDEFINED)
		undefined_fail(r, of);
	if (of.kind != VALUE_TEXT &&
	        (of.kind != VALUE_LIST || (of.u.list->kind > LIST_TUPLE && of.u.list->kind != LIST_RANGE)))
		sandbox_fail(r->s, "a value of kind %s cannot be sliced", value_kind_name(of));
	count = value_length(r->s, of);
	taken = slice_range(r, slice, count, &first, &step);
	if (of.kind == VALUE_LIST) {
		out = value_list(r->s, of.u.list->kind, taken);
		for (int64_t i = 0; i < taken; i++)
			list_add(r->s, out.u.list, of.u.list->items[first + i * step]);
		return out;
	}
	if (step == 1) {
		size_t from = text_offset(of.u.text, first), to = text_offset(of.u.text, first + taken);

		return value_text(r->s, of.u.text->data + from, to - from);
	}
	struct list *chars = value_items(r->s, of);

	for (int64_t i = 0; i < taken; i++) {
		const struct text *c = chars->items[first + i * step].u.text;

		sink_add(r->s, &sink, c->data, c->len_bytes);
	}
	return sink_value(r->s, &sink);
}

/* ---- operators ---- */

static struct value negative(struct render *r, struct value v, int sign)
{
	if (v.kind == VALUE_UNDEFINED)
		undefined_fail(r, v);
	if (v.kind == VALUE_FLOAT)
		return value_float(sign * v.u.f);
	if (v.kind == VALUE_BIG)
		return sign > 0 ? v : number_negative(r->s, v);
	if (!value_is_integer(v))
		sandbox_fail(r->s, "a value of kind %s cannot have a sign", value_kind_name(v));
	return arithmetic(r, NODE_MULTIPLY, value_int(sign), value_int(v.u.i));
}

/* ---- comparisons ---- */

int value_contains(struct render *r, struct value in, struct value what)
{
	struct value ignored;

	if (in.kind == VALUE_TEXT) {
		if (what.kind != VALUE_TEXT)
			sandbox_fail(r->s, "'in' a text needs a text, not %s", value_kind_name(what));
		sandbox_step(r->s, (int64_t)(in.u.text->len_bytes / 1024));
		return text_find(in.u.text, what.u.text, 0) >= 0;
	}
	if (in.kind == VALUE_DICT)
		return dict_get(r->s, in.u.dict, what, &ignored);
	if (!value_is_iterable(in) || in.kind == VALUE_LOOP)
		sandbox_fail(r->s, "'in' needs a text, list or dict, not %s", value_kind_name(in));
	struct list *items = value_items(r->s, in);

	for (int64_t i = 0; i < items->count; i++)
		if (value_equal(r->s, items->items[i], what))
			return 1;
	return 0;
}

static int compare(struct render *r, enum compare which, struct value a, struct value b)
{
	int order;

	if (which == COMPARE_EQ || which == COMPARE_NE)
		return value_equal(r->s, a, b) == (which == COMPARE_EQ);
	if (which == COMPARE_IN || which == COMPARE_NOT_IN)
		return value_contains(r, b, a) == (which == COMPARE_IN);
	if (a.kind == VALUE_UNDEFINED || b.kind == VALUE_UNDEFINED)
		undefined_fail(r, a.kind == VALUE_UNDEFINED ? a : b);
	if (value_is_number(a) && value_is_number(b) && (value_is_nan(a) || value_is_nan(b)))
		return 0;
	order = value_compare(r->s, a, b);
	return which == COMPARE_LT   ? order < 0
	       : which == COMPARE_LE ? order <= 0
	       : which == COMPARE_GT ? order > 0
	                             : order >= 0;
}

static struct value eval_compare(struct render *r, const struct node *node)
{
	struct value left = eval(r, node->a), right;

	for (const struct node *o = node->list; o; o = o->next) {
		right = eval(r, o->a);
		if (!compare(r, (enum compare)o->id, left, right))
			return value_bool(0);
		left = right;
	}
	return value_bool(1);
}

/* ---- calls ---- */

static void arguments_name(
        struct render *r, struct arguments *all, struct text *name, struct value value, int64_t cap)
{
	for (int64_t i = 0; i < all->named_count; i++)
		if (!strcmp(all->names[i]->data, name->data))
			sandbox_fail(r->s, "argument '%.40s' is given twice", name->data);
	if (all->named_count == cap)
		sandbox_fail(r->s, "a call has too many arguments");
	all->names[all->named_count] = name;
	all->named[all->named_count++] = value;
}

static void arguments_eval(struct render *r, struct arguments *all, const struct node *list)
{
	enum { NAMED_MAX = 64 };
	struct value positional = value_list(r->s, LIST_LIST, 4), v;

	*all = (struct arguments){0};
	for (const struct node *n = list; n; n = n->next) {
		v = eval(r, n->a);
		if ((n->text || n->id == ARGUMENT_STAR_STAR) && !all->names) {
			all->names = sandbox_alloc(r->s, NAMED_MAX, sizeof(struct text *));
			all->named = sandbox_alloc(r->s, NAMED_MAX, sizeof(struct value));
		}
		if (n->text) {
			arguments_name(r, all, n->text, v, NAMED_MAX);
		} else if (n->id == ARGUMENT_STAR) {
			struct list *items = value_items(r->s, v);

			for (int64_t i = 0; i < items->count; i++)
				list_add(r->s, positional.u.list, items->items[i]);
		} else if (n->id == ARGUMENT_STAR_STAR) {
			if (v.kind != VALUE_DICT)
				sandbox_fail(r->s, "** needs a dict, not %s", value_kind_name(v));
			for (int64_t i = 0; i < v.u.dict->count; i++)
				arguments_name(r, all, argument_text(r, v.u.dict->keys[i], "a keyword"),
				        v.u.dict->values[i], NAMED_MAX);
		} else {
			list_add(r->s, positional.u.list, v);
		}
	}
	all->positional = positional.u.list->items;
	all->count = positional.u.list->count;
}

struct value eval_call(struct render *r, struct value callee, const struct arguments *all)
{
	if (callee.kind == VALUE_UNDEFINED)
		undefined_fail(r, callee);
	if (callee.kind == VALUE_MACRO)
		return exec_macro(r, callee.u.macro, all);
	if (callee.kind == VALUE_FUNCTION)
		return builtin_call(r, callee.u.function->builtin, callee.u.function->self, all);
	if (callee.kind == VALUE_LOOP) {
		if (!callee.u.loop->node->id || all->count != 1)
			sandbox_fail(r->s, "loop(items) is for loops that say 'recursive'");
		return exec_loop(r, callee.u.loop, all->positional[0]);
	}
	sandbox_fail(r->s, "a value of kind %s cannot be called", value_kind_name(callee));
}

struct value eval_filters(struct render *r, const struct node *filter, struct value body)
{
	struct arguments all;
	struct value self;

	if (!filter)
		return body;
	sandbox_enter(r->s);
	self = filter->kind != NODE_FILTER ? eval(r, filter) : eval_filters(r, filter->a, body);
	sandbox_leave(r->s);
	if (filter->kind != NODE_FILTER)
		return self;
	arguments_eval(r, &all, filter->list);
	r->s->line = filter->line;
	return filter_call(r, filter->text->data, self, &all);
}

/* ---- all of them ---- */

static struct value eval_name(struct render *r, const struct node *node)
{
	const struct builtin *global;
	struct value v;

	if (scope_get(r, node->id, &v))
		return v;
	global = builtin_find(globals, r->ast->names[node->id]->data);
	if (global)
		return builtin_bound(r, global, NONE);
	return undefined_named(r->ast->names[node->id]);
}

static struct value eval_elements(struct render *r, const struct node *node)
{
	struct value out;

	if (node->kind == NODE_CONCAT) {
		struct sink sink = {0};

		for (const struct node *n = node->list; n; n = n->next)
			value_write(r->s, &sink, eval(r, n));
		return sink_value(r->s, &sink);
	}
	if (node->kind == NODE_DICT) {
		out = value_dict(r->s);
		for (const struct node *n = node->list; n; n = n->next->next) {
			struct value key = eval(r, n);

			dict_set(r->s, out.u.dict, key, eval(r, n->next));
		}
		return out;
	}
	out = value_list(r->s, node->kind == NODE_LIST ? LIST_LIST : LIST_TUPLE, 0);
	for (const struct node *n = node->list; n; n = n->next)
		list_add(r->s, out.u.list, eval(r, n));
	return out;
}

static struct value eval_test(struct render *r, const struct node *node)
{
	struct value self = eval(r, node->a);
	struct arguments all;

	arguments_eval(r, &all, node->list);
	r->s->line = node->line;
	return test_call(r, node->text->data, self, &all);
}

static struct value eval_inside(struct render *r, const struct node *node)
{
	struct value a, b;
	struct arguments all;

	switch (node->kind) {
	case NODE_CONST:
		return node->value;
	case NODE_NAME:
		return eval_name(r, node);
	case NODE_LIST:
	case NODE_TUPLE:
	case NODE_DICT:
	case NODE_CONCAT:
		return eval_elements(r, node);
	case NODE_NOT:
		return value_bool(!value_truth(eval(r, node->a)));
	case NODE_NEGATIVE:
	case NODE_POSITIVE:
		return negative(r, eval(r, node->a), node->kind == NODE_NEGATIVE ? -1 : 1);
	case NODE_AND:
	case NODE_OR:
		a = eval(r, node->a);
		return value_truth(a) == (node->kind == NODE_OR) ? a : eval(r, node->b);
	case NODE_COMPARE:
		return eval_compare(r, node);
	case NODE_CONDITION:
		if (value_truth(eval(r, node->b)))
			return eval(r, node->a);
		return node->c ? eval(r, node->c) : UNDEFINED;
	case NODE_ATTRIBUTE:
		return eval_attribute(r, eval(r, node->a), node->text);
	case NODE_ITEM:
		a = eval(r, node->a);
		if (node->b->kind == NODE_SLICE)
			return eval_slice(r, a, node->b);
		return eval_item(r, a, eval(r, node->b));
	case NODE_CALL:
		a = eval(r, node->a);
		arguments_eval(r, &all, node->list);
		r->s->line = node->line;
		return eval_call(r, a, &all);
	case NODE_FILTER:
		return eval_filters(r, node, UNDEFINED);
	case NODE_TEST:
		return eval_test(r, node);
	case NODE_SLICE:
		sandbox_fail(r->s, "a slice must stand alone in its brackets");
	default:
		a = eval(r, node->a);
		b = eval(r, node->b);
		r->s->line = node->line;
		return arithmetic(r, node->kind, a, b);
	}
}

struct value eval(struct render *r, const struct node *node)
{
	struct value v;

	sandbox_step(r->s, 1);
	sandbox_enter(r->s);
	r->s->line = node->line;
	v = eval_inside(r, node);
	sandbox_leave(r->s);
	return v;
}
