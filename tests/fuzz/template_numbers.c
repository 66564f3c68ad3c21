/* links: base data_template */
/* seeds: */
/* seconds: 8 */
/* Calls in chat templates with extreme numbers: each byte picks a part of an expression. */
#include "tests/fuzz/fuzz.h"

#include "base/json.h"
#include "base/str.h"
#include "data/template/moment.h"
#include "data/template/template.h"

static const char *const values[] = {"0", "1", "-1", "2", "3", "7", "36", "37", "-5", "99", "2147483647",
        "2147483648", "-2147483648", "4294967306", "9007199254740993", "9223372036854775807",
        "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "18446744073709551616", "big",
        "-big", "0.0", "-0.0", "0.5", "2.5", "1e16", "1e22", "1e308", "-1e308", "5e-324", "1e999", "-1e999",
        "nan", "true", "none", "'x'", "'0x1F'", "'1_000'", "'-9223372036854775808'", "'12345678901234567890'",
        "'nan'", "'a b,c'", "'%.9d%5s'", "'{:>9.3}{:d}'", "[1, 2, 3]", "[1.5, big, 2]", "{'a': 1}",
        "range(3)", "nothing", "'\xc3\xa4\xe2\x82\xac'"};
static const char *const calls[] = {"int", "float", "abs", "round", "center", "indent", "truncate", "replace",
        "batch", "slice", "sum", "tojson", "string", "format", "sort", "max", "min", "join", "default", "map",
        "select", "length", "first", "last", "list", "unique", "dictsort", "attr", "wordcount", "upper",
        ".center", ".ljust", ".rjust", ".zfill", ".find", ".rfind", ".count", ".index", ".split", ".rsplit",
        ".replace", ".format", ".startswith", ".splitlines", ".get", ".is_integer", "+", "-", "*", "/", "//",
        "%", "**", "==", "<", "in", "~", "[]", "[:]", "range", "divisibleby", "odd", "gt", "sameas",
        "cycler"};

enum { VALUE_COUNT = sizeof(values) / sizeof(*values), CALL_COUNT = sizeof(calls) / sizeof(*calls) };

static const char *value(uint8_t byte)
{
	return values[byte % VALUE_COUNT];
}

/* Appends one expression from the next bytes. */
static void add_expression(struct str *out, const uint8_t b[6])
{
	const char *call = calls[b[0] % CALL_COUNT], *self = value(b[1]),
	           *arguments[3] = {value(b[2]), value(b[3]), value(b[4])};
	int count = b[5] % 4;

	if (!strcmp(call, "[]")) {
		str_printf(out, "(%s)[%s]", self, arguments[0]);
	} else if (!strcmp(call, "[:]")) {
		str_printf(out, "((%s)[%s:%s:%s]) | list", self, arguments[0], arguments[1], arguments[2]);
	} else if (strspn(call, "+-*/%=<~") || !strcmp(call, "in")) {
		str_printf(out, "(%s) %s (%s)", self, call, arguments[0]);
	} else {
		int is_test = !strcmp(call, "divisibleby") || !strcmp(call, "odd") || !strcmp(call, "gt") ||
		              !strcmp(call, "sameas");
		int is_function = !strcmp(call, "range") || !strcmp(call, "cycler");

		if (is_function)
			str_add(out, call);
		else
			str_printf(out, "(%s)%s%s", self, is_test ? " is " : *call == '.' ? "" : " | ", call);
		str_add(out, "(");
		for (int i = 0; i < count; i++)
			str_printf(out, "%s%s", i ? ", " : "", arguments[i]);
		str_add(out, is_function ? ") | string" : ")");
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static const char chat[] = "{\"big\": 18446744073709551616}";
	static json_t *variables;
	struct jinja_output out = {0};
	struct jinja *t = NULL;
	struct str source = {0};
	int err;

	if (!variables)
		fuzz_require(!json_parse_exact(&variables, "chat", chat, strlen(chat), 1));
	str_add(&source, "{% set nan = 'nan' | float %}");
	for (size_t i = 0; i + 6 <= len && i < 48; i += 6) {
		str_add(&source, "{{ ");
		add_expression(&source, data + i);
		str_add(&source, " }}");
	}
	fuzz_require(!str_check(&source));
	err = jinja_parse(&t, "fuzz", source.data, source.len_bytes);
	if (!err)
		err = jinja_render(t, &out, variables, moment_now());
	if (err)
		fuzz_refused(err);
	else
		fuzz_require(strlen(out.text) <= out.len_bytes);
	jinja_output_free(&out);
	jinja_free(t);
	str_free(&source);
	return 0;
}
