/* Calls filters, tests, methods and functions by name, and binds their arguments to parameters. */
#include "data/template/render.h"

#include <string.h>

enum { PARAMETERS_MAX = 8 };

const struct builtin *builtin_find(const struct builtin *table, const char *name)
{
	for (; table->name; table++)
		if (!strcmp(table->name, name))
			return table;
	return NULL;
}

struct value builtin_bound(struct render *r, const struct builtin *b, struct value self)
{
	struct function *f = sandbox_alloc(r->s, 1, sizeof(*f));

	*f = (struct function){b, self};
	return (struct value){.kind = VALUE_FUNCTION, .u.function = f};
}

/* The length of the parameter's name at `p`. *required: it has a '!'. */
static size_t parameter(const char *p, int *required)
{
	size_t len = strcspn(p, " !");

	*required = p[len] == '!';
	return len;
}

static void bind_named(
        struct render *r, const struct builtin *b, const struct arguments *all, struct value *arg)
{
	for (int64_t k = 0; k < all->named_count; k++) {
		const struct text *name = all->names[k];
		const char *p = b->parameters;
		int i = 0, required, found = 0;

		while (*p && !found) {
			size_t len = parameter(p, &required);

			found = len == name->len_bytes && !memcmp(p, name->data, len);
			i += !found;
			p += len + (size_t)required;
			p += *p == ' ';
		}
		if (!found || arg[i].kind != VALUE_ABSENT)
			sandbox_fail(r->s, "%s: %s argument '%.40s'", b->name,
			        found ? "there are two of" : "there is no", name->data);
		arg[i] = all->named[k];
	}
}

struct value builtin_call(
        struct render *r, const struct builtin *b, struct value self, const struct arguments *all)
{
	struct value arg[PARAMETERS_MAX];
	const char *p = b->parameters;
	int count = 0, required;

	sandbox_step(r->s, 1);
	if (!p)
		return b->call(r, self, NULL, all);
	for (int i = 0; i < PARAMETERS_MAX; i++)
		arg[i] = ABSENT;
	for (; *p; count++) {
		p += parameter(p, &required);
		p += required;
		p += *p == ' ';
	}
	if (all->count > count)
		sandbox_fail(r->s, "%s takes %d arguments and got %d", b->name, count, (int)all->count);
	for (int64_t i = 0; i < all->count; i++)
		arg[i] = all->positional[i];
	bind_named(r, b, all, arg);
	p = b->parameters;
	for (int i = 0; i < count; i++) {
		size_t len = parameter(p, &required);

		if (required && arg[i].kind == VALUE_ABSENT)
			sandbox_fail(r->s, "%s lacks the argument '%.*s'", b->name, (int)len, p);
		p += len + (size_t)required;
		p += *p == ' ';
	}
	return b->call(r, self, arg, all);
}

static const struct builtin *filter_find(const char *name)
{
	const struct builtin *const tables[] = {filters_of_texts, filters_of_numbers, filters_of_lists};
	const struct builtin *found = NULL;

	for (int i = 0; !found && i < 3; i++)
		found = builtin_find(tables[i], name);
	return found;
}

int filter_exists(const char *name)
{
	return filter_find(name) != NULL;
}

struct value filter_call(struct render *r, const char *name, struct value self, const struct arguments *all)
{
	const struct builtin *b = filter_find(name);

	if (!b)
		sandbox_fail(r->s, "there is no filter '%.40s'", name);
	return builtin_call(r, b, self, all);
}

struct value test_call(struct render *r, const char *name, struct value self, const struct arguments *all)
{
	const struct builtin *b = builtin_find(tests, name);

	if (!b)
		sandbox_fail(r->s, "there is no test '%.40s'", name);
	return builtin_call(r, b, self, all);
}

/* ---- arguments ---- */

struct text *argument_text(struct render *r, struct value v, const char *what)
{
	if (v.kind == VALUE_UNDEFINED)
		undefined_fail(r, v);
	if (v.kind != VALUE_TEXT)
		sandbox_fail(r->s, "%s must be a text, not %s", what, value_kind_name(v));
	return v.u.text;
}

int64_t argument_int(struct render *r, struct value v, int64_t absent)
{
	if (v.kind == VALUE_ABSENT)
		return absent;
	if (v.kind == VALUE_UNDEFINED)
		undefined_fail(r, v);
	if (v.kind == VALUE_BIG)
		sandbox_fail(r->s, "the argument %.40s needs more than 64 bits", v.u.text->data);
	if (!value_is_integer(v))
		sandbox_fail(r->s, "expected an integer, found %s", value_kind_name(v));
	return v.u.i;
}

int argument_flag(struct value v, int absent)
{
	return v.kind == VALUE_ABSENT ? absent : value_truth(v);
}
