/* The operators + - * / // % ** for numbers, texts and lists. */
#include "data/template/render.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static struct value concat(struct render *r, struct value a, struct value b)
{
	struct sink sink = {0};

	value_write(r->s, &sink, a);
	value_write(r->s, &sink, b);
	return sink_value(r->s, &sink);
}

static struct value escaped(struct render *r, struct value v)
{
	static const struct arguments none;

	return v.u.text->markup ? v : filter_call(r, "escape", v, &none);
}

static struct value add_lists(struct render *r, const struct list *a, const struct list *b)
{
	struct value out = value_list(r->s, a->kind, a->count + b->count);

	for (int64_t i = 0; i < a->count; i++)
		list_add(r->s, out.u.list, a->items[i]);
	for (int64_t i = 0; i < b->count; i++)
		list_add(r->s, out.u.list, b->items[i]);
	return out;
}

static struct value repeat(struct render *r, struct value what, int64_t count)
{
	struct sink sink = {0};
	struct value out;

	int64_t bytes =
	        (int64_t)(what.kind == VALUE_TEXT ? what.u.text->len_bytes
	                                          : (size_t)what.u.list->count * sizeof(struct value));

	if (count > 0 && bytes > 0 && count > r->s->limit_bytes / bytes)
		sandbox_fail(r->s, "a repetition needs more than %" PRId64 " MiB of memory",
		        r->s->limit_bytes >> 20);
	if (bytes == 0)
		count = 0;
	if (what.kind == VALUE_TEXT) {
		for (int64_t i = 0; i < count; i++)
			sink_add(r->s, &sink, what.u.text->data, what.u.text->len_bytes);
		return sink_value(r->s, &sink);
	}
	out = value_list(r->s, what.u.list->kind, 0);
	for (int64_t i = 0; i < count; i++) {
		sandbox_step(r->s, 1);
		for (int64_t k = 0; k < what.u.list->count; k++)
			list_add(r->s, out.u.list, what.u.list->items[k]);
	}
	return out;
}

static const char *operator_sign(enum node_kind kind)
{
	static const char *const signs[] = {"+", "-", "*", "/", "//", "%", "**"};

	return signs[kind - NODE_ADD];
}

static _Noreturn void no_operator(struct render *r, enum node_kind kind, struct value a, struct value b)
{
	if (a.kind == VALUE_UNDEFINED)
		undefined_fail(r, a);
	if (b.kind == VALUE_UNDEFINED)
		undefined_fail(r, b);
	sandbox_fail(r->s, "%s %s %s cannot be computed", value_kind_name(a), operator_sign(kind),
	        value_kind_name(b));
}

static int64_t power(struct render *r, int64_t base, int64_t exponent)
{
	int64_t out = 1;
	int wrong = 0;

	while (exponent > 0 && !wrong) {
		if (exponent & 1)
			wrong |= __builtin_mul_overflow(out, base, &out);
		exponent >>= 1;
		if (exponent)
			wrong |= __builtin_mul_overflow(base, base, &base);
	}
	if (wrong)
		sandbox_fail(r->s, "an integer needs more than 64 bits");
	return out;
}

static struct value integer_operation(struct render *r, enum node_kind kind, int64_t a, int64_t b)
{
	int64_t out = 0;
	int wrong = 0;

	if ((kind == NODE_FLOOR_DIVIDE || kind == NODE_MODULO) && b == -1) {
		wrong = kind == NODE_FLOOR_DIVIDE && __builtin_sub_overflow(0, a, &out);
	} else if (kind == NODE_FLOOR_DIVIDE) {
		out = a / b - (a % b != 0 && (a < 0) != (b < 0));
	} else if (kind == NODE_MODULO) {
		out = a % b;
		out += out && (out < 0) != (b < 0) ? b : 0;
	} else if (kind == NODE_POWER) {
		out = power(r, a, b);
	} else if (kind == NODE_ADD) {
		wrong = __builtin_add_overflow(a, b, &out);
	} else if (kind == NODE_SUBTRACT) {
		wrong = __builtin_sub_overflow(a, b, &out);
	} else {
		wrong = __builtin_mul_overflow(a, b, &out);
	}
	if (wrong)
		sandbox_fail(r->s, "an integer needs more than 64 bits");
	return value_int(out);
}

static double real_operation(struct render *r, enum node_kind kind, double a, double b)
{
	double rest;

	switch (kind) {
	case NODE_ADD:
		return a + b;
	case NODE_SUBTRACT:
		return a - b;
	case NODE_MULTIPLY:
		return a * b;
	case NODE_DIVIDE:
		return a / b;
	case NODE_POWER:
		rest = pow(a, b);
		if (isnan(rest) && !isnan(a) && !isnan(b))
			sandbox_fail(r->s, "a power is not a real number");
		if (isinf(rest) && !isinf(a) && !isinf(b))
			sandbox_fail(r->s, "a power is too large");
		return rest;
	default:
		rest = fmod(a, b);
		if (rest == 0)
			rest = copysign(0, b);
		else if ((rest < 0) != (b < 0))
			rest += b;
		if (kind == NODE_MODULO)
			return rest;
		rest = round((a - rest) / b);
		return rest == 0 ? copysign(0, a / b) : rest;
	}
}

struct value arithmetic(struct render *r, enum node_kind kind, struct value a, struct value b)
{
	int divides = kind == NODE_DIVIDE || kind == NODE_FLOOR_DIVIDE || kind == NODE_MODULO;

	if (value_is_number(a) && value_is_number(b)) {
		if ((divides && value_number(b) == 0) ||
		        (kind == NODE_POWER && value_number(a) == 0 && value_number(b) < 0))
			sandbox_fail(r->s, "division by zero");
		if (a.kind == VALUE_BIG || b.kind == VALUE_BIG)
			sandbox_fail(r->s, "%.40s has more than 64 bits; ferry does not compute with it",
			        (a.kind == VALUE_BIG ? a : b).u.text->data);
		if (a.kind != VALUE_FLOAT && b.kind != VALUE_FLOAT && kind != NODE_DIVIDE &&
		        !(kind == NODE_POWER && b.u.i < 0))
			return integer_operation(r, kind, a.u.i, b.u.i);
		return value_float(real_operation(r, kind, value_number(a), value_number(b)));
	}
	if (kind == NODE_ADD && a.kind == VALUE_TEXT && b.kind == VALUE_TEXT) {
		if (!a.u.text->markup && !b.u.text->markup)
			return concat(r, a, b);
		a = concat(r, escaped(r, a), escaped(r, b));
		a.u.text->markup = 1;
		return a;
	}
	if (kind == NODE_ADD && a.kind == VALUE_LIST && b.kind == VALUE_LIST &&
	        a.u.list->kind == b.u.list->kind && a.u.list->kind <= LIST_TUPLE)
		return add_lists(r, a.u.list, b.u.list);
	if (kind == NODE_MULTIPLY && value_is_integer(a)) {
		struct value swap = a;

		a = b;
		b = swap;
	}
	if (kind == NODE_MULTIPLY && value_is_integer(b) &&
	        (a.kind == VALUE_TEXT || (a.kind == VALUE_LIST && a.u.list->kind <= LIST_TUPLE)))
		return repeat(r, a, b.u.i);
	if (kind == NODE_MODULO && a.kind == VALUE_TEXT) {
		struct arguments all = {.positional = &b, .count = 1};

		if (b.kind == VALUE_LIST && b.u.list->kind == LIST_TUPLE)
			all = (struct arguments){.positional = b.u.list->items, .count = b.u.list->count};
		return format_percent(r, a.u.text, &all);
	}
	no_operator(r, kind, a, b);
}

struct value value_add(struct render *r, struct value a, struct value b)
{
	return arithmetic(r, NODE_ADD, a, b);
}
