/* Functions, and methods of lists, dicts and loops. */
#include "base/err.h"
#include "data/template/moment.h"
#include "data/template/render.h"

#include <math.h>
#include <string.h>

#define FUNCTION(name)                                                                                       \
	static struct value name(                                                                            \
	        struct render *r, struct value self, const struct value *arg, const struct arguments *all)
#define UNUSED (void)r, (void)self, (void)arg, (void)all

enum { RANGE_MAX = 100000 };

/* ---- dicts and lists ---- */

static struct value dict_view(struct render *r, const struct dict *d, enum list_kind kind)
{
	struct value out = value_list(r->s, kind, d->count);

	for (int64_t i = 0; i < d->count; i++) {
		struct value item = kind == LIST_VALUES ? d->values[i] : d->keys[i];

		if (kind == LIST_ITEMS) {
			item = value_list(r->s, LIST_TUPLE, 2);
			list_add(r->s, item.u.list, d->keys[i]);
			list_add(r->s, item.u.list, d->values[i]);
		}
		list_add(r->s, out.u.list, item);
	}
	return out;
}

FUNCTION(dict_items)
{
	UNUSED;
	return dict_view(r, self.u.dict, LIST_ITEMS);
}

FUNCTION(dict_keys)
{
	UNUSED;
	return dict_view(r, self.u.dict, LIST_KEYS);
}

FUNCTION(dict_values)
{
	UNUSED;
	return dict_view(r, self.u.dict, LIST_VALUES);
}

FUNCTION(dict_get_method)
{
	struct value found;

	UNUSED;
	if (dict_get(r->s, self.u.dict, arg[0], &found))
		return found;
	return arg[1].kind == VALUE_ABSENT ? NONE : arg[1];
}

FUNCTION(dict_copy)
{
	struct value out = value_dict(r->s);

	UNUSED;
	for (int64_t i = 0; i < self.u.dict->count; i++)
		dict_set(r->s, out.u.dict, self.u.dict->keys[i], self.u.dict->values[i]);
	return out;
}

const struct builtin methods_of_dicts[] = {
        {"copy", "", dict_copy},
        {"get", "key! default", dict_get_method},
        {"items", "", dict_items},
        {"keys", "", dict_keys},
        {"values", "", dict_values},
        {0},
};

FUNCTION(list_index)
{
	UNUSED;
	for (int64_t i = 0; i < self.u.list->count; i++)
		if (value_equal(r->s, self.u.list->items[i], arg[0]))
			return value_int(i);
	sandbox_fail(r->s, "index: the list does not contain it");
}

FUNCTION(list_count)
{
	int64_t count = 0;

	UNUSED;
	for (int64_t i = 0; i < self.u.list->count; i++)
		count += value_equal(r->s, self.u.list->items[i], arg[0]);
	return value_int(count);
}

FUNCTION(list_copy)
{
	UNUSED;
	return self; /* lists do not change */
}

const struct builtin methods_of_lists[] = {
        {"copy", "", list_copy},
        {"count", "value!", list_count},
        {"index", "value!", list_index},
        {0},
};

FUNCTION(float_is_integer)
{
	UNUSED;
	return value_bool(isfinite(self.u.f) && self.u.f == floor(self.u.f));
}

const struct builtin methods_of_floats[] = {{"is_integer", "", float_is_integer}, {0}};

/* ---- loops ---- */

FUNCTION(loop_cycle)
{
	UNUSED;
	if (!all->count)
		sandbox_fail(r->s, "loop.cycle needs values");
	return all->positional[self.u.loop->index % all->count];
}

FUNCTION(loop_changed)
{
	struct value now = value_list(r->s, LIST_TUPLE, all->count);
	struct loop *l = self.u.loop;
	int changed;

	UNUSED;
	for (int64_t i = 0; i < all->count; i++)
		list_add(r->s, now.u.list, all->positional[i]);
	changed = l->changed.kind == VALUE_ABSENT || !value_equal(r->s, l->changed, now);
	l->changed = now;
	return value_bool(changed);
}

const struct builtin methods_of_loops[] = {
        {"changed", NULL, loop_changed},
        {"cycle", NULL, loop_cycle},
        {0},
};

/* A cycler is a function over a list: its position, then the values. */
FUNCTION(cycler_current)
{
	struct list *l = self.u.list;

	UNUSED;
	return l->items[1 + l->items[0].u.i % (l->count - 1)];
}

FUNCTION(cycler_next)
{
	struct value now = cycler_current(r, self, arg, all);

	self.u.list->items[0].u.i++;
	return now;
}

FUNCTION(cycler_reset)
{
	UNUSED;
	self.u.list->items[0].u.i = 0;
	return NONE;
}

static const struct builtin methods_of_cyclers[] = {
        {"current", "", cycler_current},
        {"next", "", cycler_next},
        {"reset", "", cycler_reset},
        {0},
};

FUNCTION(cycler_call)
{
	UNUSED;
	sandbox_fail(r->s, "use a cycler through .next() and .current");
}

static const struct builtin made_cycler = {"cycler()", NULL, cycler_call};

const struct builtin *methods_of_function(const struct function *f)
{
	return f->builtin == &made_cycler ? methods_of_cyclers : NULL;
}

FUNCTION(make_cycler)
{
	struct value state = value_list(r->s, LIST_LIST, all->count + 1);

	UNUSED;
	if (!all->count)
		sandbox_fail(r->s, "cycler needs values");
	list_add(r->s, state.u.list, value_int(0));
	for (int64_t i = 0; i < all->count; i++)
		list_add(r->s, state.u.list, all->positional[i]);
	return builtin_bound(r, &made_cycler, state);
}

/* A joiner is a function over a list: the separator, then whether it was called. */
FUNCTION(joiner_call)
{
	struct list *state = self.u.list;

	UNUSED;
	if (state->items[1].u.i++)
		return state->items[0];
	return value_text(r->s, "", 0);
}

FUNCTION(make_joiner)
{
	static const struct builtin made = {"joiner()", "", joiner_call};
	struct value state = value_list(r->s, LIST_LIST, 2);

	UNUSED;
	list_add(r->s, state.u.list, arg[0].kind == VALUE_ABSENT ? value_text(r->s, ", ", 2) : arg[0]);
	list_add(r->s, state.u.list, value_int(0));
	return builtin_bound(r, &made, state);
}

/* ---- functions ---- */

FUNCTION(make_range)
{
	int64_t first = 0, end, step = 1, count = 0;
	struct value out = value_list(r->s, LIST_RANGE, 0);

	UNUSED;
	end = argument_int(r, arg[0], 0);
	if (arg[1].kind != VALUE_ABSENT) {
		first = end;
		end = argument_int(r, arg[1], 0);
		step = argument_int(r, arg[2], 1);
	}
	if (!step)
		sandbox_fail(r->s, "range: the step is 0");
	for (int64_t i = first; step > 0 ? i < end : i > end; count++) {
		if (count == RANGE_MAX)
			sandbox_fail(r->s, "range: more than %d numbers", RANGE_MAX);
		list_add(r->s, out.u.list, value_int(i));
		if (__builtin_add_overflow(i, step, &i))
			break;
	}
	return out;
}

/* dict(pairs or dict, name=value ...) */
static struct value dict_of(struct render *r, const struct arguments *all)
{
	struct value out = value_dict(r->s);

	if (all->count > 1)
		sandbox_fail(r->s, "dict and namespace take one argument without a name");
	if (all->count && all->positional[0].kind == VALUE_DICT) {
		out = dict_copy(r, all->positional[0], NULL, NULL);
	} else if (all->count) {
		const struct list *pairs = value_items(r->s, all->positional[0]);

		for (int64_t i = 0; i < pairs->count; i++) {
			const struct list *pair = value_items(r->s, pairs->items[i]);

			if (pair->count != 2)
				sandbox_fail(r->s, "dict needs pairs");
			dict_set(r->s, out.u.dict, pair->items[0], pair->items[1]);
		}
	}
	for (int64_t i = 0; i < all->named_count; i++)
		dict_set(r->s, out.u.dict, (struct value){.kind = VALUE_TEXT, .u.text = all->names[i]},
		        all->named[i]);
	return out;
}

FUNCTION(make_dict)
{
	UNUSED;
	return dict_of(r, all);
}

FUNCTION(make_namespace)
{
	struct value out = dict_of(r, all);

	UNUSED;
	for (int64_t i = 0; i < out.u.dict->count; i++)
		if (out.u.dict->keys[i].kind == VALUE_TEXT && out.u.dict->keys[i].u.text->data[0] == '_')
			sandbox_fail(r->s, "a namespace allows no names that begin with '_'");
	out.kind = VALUE_NAMESPACE;
	return out;
}

FUNCTION(raise_exception)
{
	const struct text *message = value_str(r->s, arg[0]);

	UNUSED;
	sandbox_fail(r->s, "the template refuses the chat: %.700s", message->data);
}

FUNCTION(strftime_now)
{
	const struct text *format = argument_text(r, arg[0], "the format");
	char out[512];
	size_t len;

	UNUSED;
	if (!format->len_bytes)
		return value_text(r->s, "", 0);
	if (moment_format(&len, out, sizeof(out), format->data, r->moment))
		sandbox_fail(r->s, "strftime_now: %s", err_text());
	return value_text(r->s, out, len);
}

const struct builtin globals[] = {
        {"cycler", NULL, make_cycler},
        {"dict", NULL, make_dict},
        {"joiner", "sep", make_joiner},
        {"namespace", NULL, make_namespace},
        {"raise_exception", "message!", raise_exception},
        {"range", "start! stop step", make_range},
        {"strftime_now", "format!", strftime_now},
        {0},
};
