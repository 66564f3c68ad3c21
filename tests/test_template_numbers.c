/* links: base data_template */
/* Numbers in chat templates. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "data/template/moment.h"
#include "data/template/template.h"

struct given {
	const char *source, *text; /* or, after "!", a part of the error's text */
};

/* Numbers at the borders of what computers hold; expected is what transformers 5.18 gives. `big` is 2^64.
 * scripts/compare_templates.py --numbers draws more. */
static const struct given cases[] = {
        {"{{ 'zz'|int(0,99) }}", "0"},
        {"{{ 'zz'|int(7, 36) }}", "1295"},
        {"{{ '12'|int(5, 4294967306) }}", "12"},
        {"{{ '0x1F'|int(0, 16) }}", "31"},
        {"{{ '0b11'|int(0, 0) }}", "3"},
        {"{{ '1_0'|int(4, 16) }}", "16"},
        {"{{ '1__0'|int(4) }}", "4"},
        {"{{ '12345678901234567890'|int }}", "12345678901234567890"},
        {"{{ '-9223372036854775809'|int }}", "-9223372036854775809"},
        {"{{ '-9223372036854775808'|int }}", "-9223372036854775808"},
        {"{{ 1e22|int }}", "10000000000000000000000"},
        {"{{ 9.5e18|int }}", "9500000000000000000"},
        {"{{ 'nan'|int(3) }}", "3"},
        {"{{ '1e400'|int(3) }}", "3"},
        {"{{ ' 1_0.5 '|float }}", "10.5"},
        {"{{ '0x1p3'|float(2) }}", "2"},
        {"{{ big }}", "18446744073709551616"},
        {"{{ big|tojson }}", "18446744073709551616"},
        {"{{ [big, -big]|string }}", "[18446744073709551616, -18446744073709551616]"},
        {"{{ big|abs }}", "18446744073709551616"},
        {"{{ (-big)|abs }}", "18446744073709551616"},
        {"{{ big|int }}", "18446744073709551616"},
        {"{{ big|float }}", "1.8446744073709552e+19"},
        {"{{ big|round(2) }}", "18446744073709551616"},
        {"{{ big == 18446744073709551616 }}", "True"},
        {"{{ big == 18446744073709551616.0 }}", "True"},
        {"{{ big > 1.5 }}", "True"},
        {"{{ -big < -9223372036854775808 }}", "True"},
        {"{{ 9007199254740993 == 9007199254740992.0 }}", "False"},
        {"{{ {big: 1}[2 ** 62] is defined }}", "False"},
        {"{{ {big: 1}[18446744073709551616.0] }}", "1"},
        {"{{ big is integer }}", "True"},
        {"{{ big is number }}", "True"},
        {"{{ '%d' % big }}", "18446744073709551616"},
        {"{{ '%+.25d' % big }}", "+0000018446744073709551616"},
        {"{{ '{:>25}'.format(big) }}", "     18446744073709551616"},
        {"{{ '%.3e' % big }}", "1.845e+19"},
        {"{{ 9223372036854775807 }}", "9223372036854775807"},
        {"{{ -9223372036854775808 }}", "-9223372036854775808"},
        {"{{ 9223372036854775808 }}", "9223372036854775808"},
        {"{{ 12345|round(-2) }}", "12300"},
        {"{{ 25|round(-1) }}", "20"},
        {"{{ 35|round(-1) }}", "40"},
        {"{{ 9223372036854775807|round(-19) }}", "10000000000000000000"},
        {"{{ 5|round(-400) }}", "0"},
        {"{{ 1234.5678|round(-2) }}", "1200.0"},
        {"{{ 2.675|round(2) }}", "2.67"},
        {"{{ 0.5|round(400) }}", "0.5"},
        {"{{ 1e308|round(-308) }}", "1e+308"},
        {"{{ 7|round(400, 'ceil') }}", "7.0"},
        {"{{ 2.1|round(1, 'ceil') }}", "2.1"},
        {"{{ 'abc'.center(-9223372036854775808) }}", "abc"},
        {"{{ 'abc'.ljust(-9223372036854775808) ~ 'abc'.rjust(-9223372036854775807) ~ "
         "'abc'.zfill(-9223372036854775808) }}",
                "abcabcabc"},
        {"{{ 'abcdef'|truncate(3, true, '', 9223372036854775807) }}", "abcdef"},
        {"{{ 'ab cd ef gh'|truncate(8, true, '', 1) }}", "ab cd ef"},
        {"{{ 'abc'[-big:big] }}", "abc"},
        {"{{ 'abcabc'.find('b', big) }}", "-1"},
        {"{{ '%.120f' % 0.1 }}", "0."
                                 "1000000000000000055511151231257827021181583404541015625000000000000"
                                 "00000000000000000000000000000000000000000000000000000"},
        {"{{ '%05d|%-5d|%+d' % (-3, 4, 5) }}", "-0003|4    |+5"},
        {"{{ '{:#010x}'.format(255) }}", "0x000000ff"},
        {"{{ '{:=+6}'.format(7) }}", "+    7"},
        {"{{ '{:<05}'.format(3) }}", "30000"},
        {"{{ '{:.3}'.format(100.0) }}", "1e+02"},
        {"{{ '{:.3}'.format(2.0) }}", "2.0"},
        {"{{ '%d' % 1e22 }}", "10000000000000000000000"},
        {"{{ '%010f' % ('-nan'|float) }}", "0000000nan"},
        {"{{ '{:+}'.format(5) }}", "+5"},
        {"{{ '{:05}'.format('a') }}", "a0000"},
        {"{{ (2 ** 62) // 3 }}", "1537228672809129301"},
        {"{{ (-9223372036854775807 - 1) % -1 }}", "0"},
        {"{{ [1.5, big, 3]|sort }}", "[1.5, 3, 18446744073709551616]"},
        {"{{ [big, 1]|max }}", "18446744073709551616"},
        {"{{ big ~ '' }}", "18446744073709551616"},
        {"{{ big + 1 }}", "!chat.jinja:1: 18446744073709551616 has more than 64 bits"},
        {"{{ 9223372036854775807 + 1 }}", "!chat.jinja:1: an integer needs more than 64 bits"},
        {"{{ 'abc' | indent(big) }}", "!chat.jinja:1: the argument 18446744073709551616 needs more"},
        /* failures in transformers, too */
        {"{{ 'inf'|float|int }}", "!chat.jinja:1: "},
        {"{{ 0 ** -1 }}", "!chat.jinja:1: "},
        {"{{ 10.0 ** 400 }}", "!chat.jinja:1: "},
        {"{{ '%x' % 1.5 }}", "!chat.jinja:1: "},
        {"{{ '{:d}'.format(1.5) }}", "!chat.jinja:1: "},
        {"{{ '{:.2}'.format(3) }}", "!chat.jinja:1: "},
        {"{{ '{:s}'.format(3) }}", "!chat.jinja:1: "},
        {"{{ '{99999999999999999999}'.format(1) }}", "!chat.jinja:1: "},
        {"{{ 2.5|round(400, 'ceil') }}", "!chat.jinja:1: "},
        {"{{ big / 0 }}", "!chat.jinja:1: "},
};

static void test_numbers(void **state)
{
	static const char text[] = "{\"big\": 18446744073709551616}";
	json_t *variables = NULL;

	(void)state;
	assert_int_equal(json_parse_exact(&variables, "test", text, strlen(text), 1), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct given *c = &cases[i];
		struct jinja_output out = {0};
		struct jinja *t = NULL;
		int rc = jinja_parse(&t, "chat.jinja", c->source, strlen(c->source));

		if (!rc)
			rc = jinja_render(t, &out, variables, moment_now());
		if (c->text[0] == '!' ? rc != ERR_INPUT || !strstr(err_text(), c->text + 1)
		                      : rc || strcmp(out.text, c->text))
			fail_msg("%s\ngives %d '%s'", c->source, rc, rc ? err_text() : out.text);
		jinja_output_free(&out);
		jinja_free(t);
	}
	json_decref(variables);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
