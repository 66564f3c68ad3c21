/* Filters with a number as result. */
#include "data/template/render.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILTER(name)                                                                                         \
	static struct value name(                                                                            \
	        struct render *r, struct value self, const struct value *arg, const struct arguments *all)
#define UNUSED (void)r, (void)self, (void)arg, (void)all

FILTER(filter_int)
{
	struct value fallback = arg[0].kind == VALUE_ABSENT ? value_int(0) : arg[0], out;
	int64_t base = arg[1].kind == VALUE_ABSENT ? 10 : value_is_integer(arg[1]) ? arg[1].u.i : -1;

	UNUSED;
	if (value_is_integer(self))
		return value_int(self.u.i);
	if (self.kind == VALUE_BIG)
		return self;
	if (self.kind == VALUE_UNDEFINED)
		undefined_fail(r, self);
	if (self.kind == VALUE_TEXT) {
		if (number_read_integer(r->s, self.u.text, base, &out))
			return out;
		if (!number_read_real(r->s, self.u.text, &out) || isinf(out.u.f))
			return fallback;
		self = out;
	}
	if (self.kind != VALUE_FLOAT || isnan(self.u.f))
		return fallback;
	if (isinf(self.u.f))
		sandbox_fail(r->s, "int: infinity is not an integer");
	return value_whole(r->s, self.u.f);
}

FILTER(filter_float)
{
	struct value out;

	UNUSED;
	if (self.kind == VALUE_BIG && isinf(value_number(self)))
		sandbox_fail(r->s, "float: the integer is too large");
	if (value_is_number(self))
		return value_float(value_number(self));
	if (self.kind == VALUE_UNDEFINED)
		undefined_fail(r, self);
	if (self.kind == VALUE_TEXT && number_read_real(r->s, self.u.text, &out))
		return out;
	return arg[0].kind == VALUE_ABSENT ? value_float(0) : arg[0];
}

FILTER(filter_abs)
{
	UNUSED;
	if (self.kind == VALUE_UNDEFINED)
		undefined_fail(r, self);
	if (!value_is_number(self))
		sandbox_fail(r->s, "abs needs a number, not %s", value_kind_name(self));
	if (self.kind == VALUE_FLOAT)
		return value_float(fabs(self.u.f));
	if (self.kind == VALUE_BIG)
		return self.u.text->data[0] == '-' ? number_negative(r->s, self) : self;
	return self.u.i < 0 ? arithmetic(r, NODE_SUBTRACT, value_int(0), value_int(self.u.i))
	                    : value_int(self.u.i);
}

/* ---- round ---- */

/* An integer to a multiple of 10^zeros, halves to even. */
static struct value round_integer(struct render *r, int64_t i, int64_t zeros)
{
	__int128 unit = 1, rest, out;
	char digits[48];

	if (zeros > 19) /* 10^20 is more than twice any */
		return value_int(0);
	while (zeros-- > 0)
		unit *= 10;
	rest = i % unit;
	out = i - rest;
	rest = rest < 0 ? -rest : rest;
	if (rest * 2 > unit || (rest * 2 == unit && out / unit % 2))
		out += i < 0 ? -unit : unit;
	if (out >= INT64_MIN && out <= INT64_MAX)
		return value_int((int64_t)out);
	snprintf(digits, sizeof(digits), "%s%lld%09lld", out < 0 ? "-" : "",
	        (long long)((out < 0 ? -out : out) / 1000000000),
	        (long long)((out < 0 ? -out : out) % 1000000000));
	return value_integer(r->s, digits, strlen(digits));
}

/* A real number, exactly as its decimal digits say; halves to even. */
static double round_real(double f, int64_t places)
{
	char digits[800];
	int64_t whole =
	        snprintf(digits, sizeof(digits), "%.0f", trunc(fabs(f))); /* digits before the point */

	if (!isfinite(f) || places > 323) /* of 5e-324, the smallest double */
		return f;
	if (places >= 0) {
		snprintf(digits, sizeof(digits), "%.*f", (int)places, f);
	} else if (whole + places > 0) {
		snprintf(digits, sizeof(digits), "%.*e", (int)(whole + places - 1), f);
	} else if (whole + places < 0) {
		return copysign(0, f);
	} else { /* 0, or the next power of ten */
		int is_half =
		        digits[0] == '5' && strspn(digits + 1, "0") == (size_t)whole - 1 && trunc(f) == f;

		if (digits[0] < '5' || is_half)
			return copysign(0, f);
		snprintf(digits, sizeof(digits), "%s1e%d", f < 0 ? "-" : "", (int)whole);
	}
	return strtod(digits, NULL);
}

FILTER(filter_round)
{
	int64_t places = argument_int(r, arg[0], 0);
	const char *method =
	        arg[1].kind == VALUE_ABSENT ? "common" : argument_text(r, arg[1], "method")->data;
	double scale = pow(10, (double)places), scaled;

	UNUSED;
	if (self.kind == VALUE_UNDEFINED)
		undefined_fail(r, self);
	if (!value_is_number(self))
		sandbox_fail(r->s, "round needs a number, not %s", value_kind_name(self));
	if (strcmp(method, "common") && strcmp(method, "ceil") && strcmp(method, "floor"))
		sandbox_fail(r->s, "round: the method must be common, ceil or floor, not '%.20s'", method);
	if (!strcmp(method, "common")) {
		if (self.kind == VALUE_FLOAT)
			scaled = round_real(self.u.f, places);
		else if (places >= 0)
			return self.kind == VALUE_BIG ? self : value_int(self.u.i);
		else if (self.kind == VALUE_BIG)
			sandbox_fail(r->s, "round: %.40s has more than 64 bits", self.u.text->data);
		else
			return round_integer(r, self.u.i, places < -400 ? 400 : -places); /* 0 beyond 19 */
		if (isinf(scaled) && isfinite(self.u.f))
			sandbox_fail(r->s, "round: the result is too large");
		return value_float(scaled);
	}
	if (self.kind != VALUE_FLOAT && places >= 0)
		return filter_float(r, self, &(struct value){.kind = VALUE_ABSENT}, all);
	scaled = value_number(self) * scale;
	if (places > 22) /* 10^23 is no double */
		sandbox_fail(r->s, "round: %s with more than 22 places is not supported", method);
	if (!isfinite(scaled) || scale == 0)
		sandbox_fail(r->s, "round: %s with precision %lld has no result", method, (long long)places);
	scaled = strcmp(method, "ceil") ? floor(scaled) : ceil(scaled);
	return value_float(
	        (scaled + 0.0) / scale); /* + 0.0: Python's ceil and floor give integers, which have no -0 */
}

const struct builtin filters_of_numbers[] = {
        {"abs", "", filter_abs},
        {"float", "default", filter_float},
        {"int", "default base", filter_int},
        {"round", "precision method", filter_round},
        {0},
};
