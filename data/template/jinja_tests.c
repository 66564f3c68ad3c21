/* Tests: `x is NAME`. */
#include "data/template/render.h"

#include <string.h>

#include <utf8proc.h>

#define TEST(name)                                                                                           \
	static struct value name(                                                                            \
	        struct render *r, struct value self, const struct value *arg, const struct arguments *all)
#define UNUSED (void)r, (void)self, (void)arg, (void)all

/* Defines a test by a condition on `self`. */
#define KIND_TEST(name, condition)                                                                           \
	TEST(name)                                                                                           \
	{                                                                                                    \
		UNUSED;                                                                                      \
		return value_bool(condition);                                                                \
	}

KIND_TEST(is_defined, self.kind != VALUE_UNDEFINED)
KIND_TEST(is_undefined, self.kind == VALUE_UNDEFINED)
KIND_TEST(is_none, self.kind == VALUE_NONE)
KIND_TEST(is_boolean, self.kind == VALUE_BOOL)
KIND_TEST(is_true, self.kind == VALUE_BOOL && self.u.i)
KIND_TEST(is_false, self.kind == VALUE_BOOL && !self.u.i)
KIND_TEST(is_integer, self.kind == VALUE_INT || self.kind == VALUE_BIG)
KIND_TEST(is_float, self.kind == VALUE_FLOAT)
KIND_TEST(is_number, value_is_number(self))
KIND_TEST(is_string, self.kind == VALUE_TEXT)
KIND_TEST(is_mapping, self.kind == VALUE_DICT)
KIND_TEST(is_iterable, value_is_iterable(self))
KIND_TEST(is_sequence, self.kind == VALUE_UNDEFINED || self.kind == VALUE_TEXT || self.kind == VALUE_DICT ||
                               (self.kind == VALUE_LIST &&
                                       (self.u.list->kind <= LIST_TUPLE || self.u.list->kind == LIST_RANGE)))
KIND_TEST(is_callable, self.kind == VALUE_UNDEFINED || self.kind == VALUE_MACRO ||
                               self.kind == VALUE_FUNCTION || self.kind == VALUE_LOOP)
KIND_TEST(is_escaped, self.kind == VALUE_TEXT && self.u.text->markup)
KIND_TEST(is_filter, self.kind == VALUE_TEXT && filter_exists(self.u.text->data))
KIND_TEST(is_test, self.kind == VALUE_TEXT && builtin_find(tests, self.u.text->data) != NULL)
KIND_TEST(is_equal, value_equal(r->s, self, arg[0]))
KIND_TEST(is_unequal, !value_equal(r->s, self, arg[0]))
KIND_TEST(is_in, value_contains(r, arg[0], self))
KIND_TEST(is_same, self.kind == arg[0].kind && value_equal(r->s, self, arg[0]) &&
                           (self.kind < VALUE_LIST || self.u.list == arg[0].u.list))

static int order(struct render *r, struct value a, struct value b)
{
	if (a.kind == VALUE_UNDEFINED || b.kind == VALUE_UNDEFINED)
		undefined_fail(r, a.kind == VALUE_UNDEFINED ? a : b);
	return value_compare(r->s, a, b);
}

KIND_TEST(is_less, order(r, self, arg[0]) < 0)
KIND_TEST(is_less_or_equal, order(r, self, arg[0]) <= 0)
KIND_TEST(is_greater, order(r, self, arg[0]) > 0)
KIND_TEST(is_greater_or_equal, order(r, self, arg[0]) >= 0)
KIND_TEST(is_odd, value_equal(r->s, arithmetic(r, NODE_MODULO, self, value_int(2)), value_int(1)))
KIND_TEST(is_even, value_equal(r->s, arithmetic(r, NODE_MODULO, self, value_int(2)), value_int(0)))
KIND_TEST(is_divisible, value_equal(r->s, arithmetic(r, NODE_MODULO, self, arg[0]), value_int(0)))

/* 1 if a text has cased characters, all of this case. */
static int is_cased(struct render *r, struct value self, int upper)
{
	const struct text *t = value_str(r->s, self);
	const char *at = t->data, *end = at + t->len_bytes;
	int found = 0;
	int32_t c;

	while (at < end) {
		at += char_at(at, end, &c);
		if ((upper ? utf8proc_toupper(c) : utf8proc_tolower(c)) != c)
			return 0;
		found |= (upper ? utf8proc_tolower(c) : utf8proc_toupper(c)) != c;
	}
	return found;
}

KIND_TEST(is_upper, is_cased(r, self, 1))
KIND_TEST(is_lower, is_cased(r, self, 0))

const struct builtin tests[] = {
        {"boolean", "", is_boolean},
        {"callable", "", is_callable},
        {"defined", "", is_defined},
        {"divisibleby", "num!", is_divisible},
        {"escaped", "", is_escaped},
        {"even", "", is_even},
        {"false", "", is_false},
        {"filter", "", is_filter},
        {"float", "", is_float},
        {"in", "seq!", is_in},
        {"integer", "", is_integer},
        {"iterable", "", is_iterable},
        {"lower", "", is_lower},
        {"mapping", "", is_mapping},
        {"none", "", is_none},
        {"number", "", is_number},
        {"odd", "", is_odd},
        {"sameas", "other!", is_same},
        {"sequence", "", is_sequence},
        {"string", "", is_string},
        {"test", "", is_test},
        {"true", "", is_true},
        {"undefined", "", is_undefined},
        {"upper", "", is_upper},
        {"==", "b!", is_equal},
        {"eq", "b!", is_equal},
        {"equalto", "b!", is_equal},
        {"!=", "b!", is_unequal},
        {"ne", "b!", is_unequal},
        {">", "b!", is_greater},
        {"gt", "b!", is_greater},
        {"greaterthan", "b!", is_greater},
        {">=", "b!", is_greater_or_equal},
        {"ge", "b!", is_greater_or_equal},
        {"<", "b!", is_less},
        {"lt", "b!", is_less},
        {"lessthan", "b!", is_less},
        {"<=", "b!", is_less_or_equal},
        {"le", "b!", is_less_or_equal},
        {0},
};
