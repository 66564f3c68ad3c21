/* links: base data_template */
/* Chat templates: constructs, failures, limits, spans, built-in templates, and golden results of
 * transformers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/template/moment.h"
#include "data/template/template.h"

/* The variables of every case. */
static const char variables_text[] =
        "{\"messages\": [{\"role\": \"system\", \"content\": \" Be brief. \"}, {\"role\": \"user\", "
        "\"content\": \"Hi\\n\"},"
        " {\"role\": \"assistant\", \"content\": \"Hello!\"}], \"tools\": null, \"add_generation_prompt\": "
        "true,"
        " \"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"n\": 7, \"f\": 2.5, \"w\": [\"b\", \"A\", "
        "\"c\", \"b\"],"
        " \"d\": {\"k\": 1, \"B\": \"x\", \"items\": \"own\"}, \"u\": \"\\u00fc\\u65e5\\ud83d\\ude00\"}";

struct given {
	const char *source, *text; /* or, after "!", the end of the error's text */
};

static int render(struct jinja_output *out, const char *source, const json_t *variables)
{
	struct jinja *t = NULL;
	int rc = jinja_parse(&t, "chat.jinja", source, strlen(source));

	*out = (struct jinja_output){0};
	if (!rc)
		rc = jinja_render(t, out, variables, moment_now());
	jinja_free(t);
	return rc;
}

static json_t *parse(const char *text)
{
	json_t *json = NULL;

	assert_int_equal(json_parse(&json, "test", text, strlen(text)), 0);
	return json;
}

static void check(const struct given *cases, size_t count)
{
	json_t *variables = parse(variables_text);

	for (size_t i = 0; i < count; i++) {
		struct jinja_output out;
		int rc = render(&out, cases[i].source, variables);

		if (cases[i].text[0] == '!') {
			if (rc != ERR_INPUT || !strstr(err_text(), cases[i].text + 1))
				fail_msg(
				        "%s\ngives %d '%s'", cases[i].source, rc, rc ? err_text() : out.text);
		} else if (rc || strcmp(out.text, cases[i].text)) {
			fail_msg("%s\ngives '%s'", cases[i].source, rc ? err_text() : out.text);
		}
		jinja_output_free(&out);
	}
	json_decref(variables);
}

/* Every expected text below is what transformers 5.18 with Jinja 3.1.6 gives. */
static void test_constructs(void **state)
{
	static const struct given cases[] = {
	        {"a{# note #}b\n", "ab"},
	        {"{% if n > 3 %}\n  big\n{% else %}\nsmall\n{% endif %}\nend", "  big\nend"},
	        {"  {% set x = 1 %}\n  {{ x }}\n", "  1"},
	        {"a  \n {%- if true -%}  b {%- endif +%}\nc", "ab\nc"},
	        {"{% raw %}{{ n }}{% endraw %}", "{{ n }}"},
	        {"{% for m in messages %}{{ loop.index }}{{ m.role[0] }}{{ ',' if not loop.last }}{% endfor "
	         "%}",
	                "1s,2u,3a"},
	        {"{% for m in messages if m.role != 'user' %}{{ loop.length }}{{ m['content'] | trim }};{% "
	         "endfor %}",
	                "2Be brief.;2Hello!;"},
	        {"{% for x in [] %}a{% else %}none{% endfor %}", "none"},
	        {"{% for k, v in d.items() %}{{ k }}={{ v }} {% endfor %}", "k=1 B=x items=own "},
	        {"{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i > 4 %}{% break %}{% "
	         "endif %}{{ i }}"
	         "{% endfor %}",
	                "0134"},
	        {"{% set ns = namespace(last=0) %}{% for m in messages %}{% set ns.last = loop.index0 %}{% "
	         "set lost = 1 %}"
	         "{% endfor %}{{ ns.last }}{{ lost is defined }}",
	                "2False"},
	        {"{% macro tag(a, b='z') %}<{{ a }}{{ b }}{{ caller() if caller }}>{% endmacro %}{{ tag('x') "
	         "}}{{ tag(b=1, a=2) }}"
	         "{% call tag('c') %}in{% endcall %}",
	                "<xz><21><czin>"},
	        {"{% set s %}a{{ n }}{% endset %}{{ s | upper }}{% set t | trim %}  b {% endset %}{{ t }}",
	                "A7b"},
	        {"{% with a = 1, b = n %}{{ a + b }}{% endwith %}{{ a is defined }}", "8False"},
	        {"{% filter upper %}x{{ n }}{% endfilter %}", "X7"},
	        {"{% for x in [[1, [2]], 3] recursive %}{% if x is number %}{{ x }}{% else %}({{ loop(x) "
	         "}}){% endif %}{% endfor %}",
	                "(1(2))3"},
	        {"{{ messages[-1].content[1:4] }}{{ messages[::-1][0]['role'] }}{{ w[1:][-1] }}{{ "
	         "'abc'[::-1] }}",
	                "ellassistantbcba"},
	        {"{{ u[1] }}{{ u | length }}{{ u[::-1] }}{{ u | upper }}", "日3😀日üÜ日😀"},
	        {"{{ 7 // -2 }} {{ 7 % -3 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 7 / 2 }} {{ -n }} {{ 1e3 }} {{ "
	         "1_000 }} {{ 0.1 + 0.2 }}",
	                "-4 -2 1024 0.5 3.5 -7 1000.0 1000 0.30000000000000004"},
	        {"{{ 1 < n <= 7 }}{{ 'i' in 'Hi' }}{{ 3 not in [1, 2] }}{{ 'k' in d }}{{ 1 == 1.0 }}{{ not n "
	         "}}",
	                "TrueTrueTrueTrueTrueFalse"},
	        {"{{ 'a' ~ 1 ~ none }}{{ 'a' 'b' }}{{ 'x' * 3 }}{{ [1] + [2] }}", "a1Noneabxxx[1, 2]"},
	        {"{{ missing }}{{ missing is defined }}{{ d.zz | default('q') }}{{ none | default('r', true) "
	         "}}",
	                "Falseqr"},
	        {"{{ d }}{{ (1, 'a\\'b') }}{{ [none, true, 1.0] }}",
	                "{'k': 1, 'B': 'x', 'items': 'own'}(1, \"a'b\")[None, True, 1.0]"},
	        {"{{ d | tojson }}{{ u | tojson }}{{ '<a&\\'\\n\\x1f' | tojson }}",
	                "{\"k\": 1, \"B\": \"x\", \"items\": \"own\"}\"ü日😀\"\"<a&'\\n\\u001f\""},
	        {"{{ {'a': [1, {}]} | tojson(indent=2) }}{{ {'b': 1, 'a': 2} | tojson(sort_keys=true, "
	         "separators=(',', ':')) }}",
	                "{\n  \"a\": [\n    1,\n    {}\n  ]\n}{\"a\":2,\"b\":1}"},
	        {"{{ u | tojson(ensure_ascii=true) }}", "\"\\u00fc\\u65e5\\ud83d\\ude00\""},
	        {"{{ messages | map(attribute='role') | join('|') }}{{ w | sort | join }}{{ w | unique | "
	         "list | length }}",
	                "system|user|assistantAbbc3"},
	        {"{{ messages | selectattr('role', 'equalto', 'user') | list | length }}"
	         "{{ messages | rejectattr('tool_calls', 'defined') | map(attribute='content') | map('trim') "
	         "| list }}",
	                "1['Be brief.', 'Hi', 'Hello!']"},
	        {"{{ d | dictsort }}{{ d | items | list | first }}{{ w | reverse | list }}",
	                "[('B', 'x'), ('items', 'own'), ('k', 1)]('k', 1)['b', 'c', 'A', 'b']"},
	        {"{{ 'a b  c'.split() }}{{ 'a,b,c'.split(',', 1) }}{{ 'x</think>y'.split('</think>')[-1] "
	         "}}{{ ' a '.strip() }}",
	                "['a', 'b', 'c']['a', 'b,c']ya"},
	        {"{{ 'hello world' | title }}{{ 'ß' | upper }}{{ 'aXa'.replace('a', 'b', 1) }}{{ "
	         "'ab'.startswith(('x', 'a')) }}",
	                "Hello WorldSSbXaTrue"},
	        {"{{ '%s-%05.1f' | format('a', f) }}{{ '{0}{x!r:>5}'.format(1, x='q') }}{{ '%d%%' % n }}",
	                "a-002.51  'q'7%"},
	        {"{{ '3' | int + 1 }}{{ 'x' | int(9) }}{{ 2.5 | round }}{{ 3.456 | round(2) }}{{ '2.50' | "
	         "float }}",
	                "492.03.462.5"},
	        {"{{ 'a\nb\n\nc' | indent(2) }}", "a\n  b\n\n  c"},
	        {"{{ n is odd }}{{ n is divisibleby 7 }}{{ f is float }}{{ d is mapping }}{{ u is iterable "
	         "}}{{ none is none }}"
	         "{{ w is sequence and w is not string }}{{ true is boolean }}",
	                "TrueTrueTrueTrueTrueTrueTrueTrue"},
	        {"{{ d.items is callable }}{{ d['items'] }}{{ dict(a=1, **d)['k'] }}", "Trueown1"},
	        {"{{ joiner }}{% set j = joiner('/') %}{{ j() }}a{{ j() }}b{% set c = cycler(1, 2) %}{{ "
	         "c.next() }}{{ c.next() }}{{ c.next() }}",
	                "<function>a/b121"},
	        {"\r\na\rb\r\n", "\na\nb"},
	        {"{{ {'a': {'b': 1}}['a'] }}{{ '}}' }}", "{'b': 1}}}"},
	};

	(void)state;
	check(cases, sizeof(cases) / sizeof(cases[0]));
}

/* The line is the template's own, and the reason comes first. */
static void test_failures(void **state)
{
	static const struct given cases[] = {
	        {"a\n{{ raise_exception('No ' ~ n) }}", "!chat.jinja:2: the template refuses the chat: No 7"},
	        {"{% if %}", "!chat.jinja:1: expected an expression, found %}"},
	        {"\n\n{% for x in w %}", "!chat.jinja:3: expected endfor, found the end of the template"},
	        {"{% include 'x' %}", "!{% include %} is not supported"},
	        {"{% endif %}", "!ends a block that is not open"},
	        {"{{ 'a' + 1 }}", "!str + int cannot be computed"},
	        {"{{ missing.attr }}", "!'missing' is undefined"},
	        {"{{ d.none_such + 'x' }}", "!'none_such' is undefined"},
	        {"{{ w.append(1) }}", "!'append' is undefined"},
	        {"{{ n | nofilter }}", "!there is no filter 'nofilter'"},
	        {"{{ n is notest }}", "!there is no test 'notest'"},
	        {"{{ missing | tojson }}", "!tojson: a value of kind Undefined"},
	        {"{% set d.x = 1 %}", "!'d' is not a namespace"},
	        {"{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "!macro 'f' takes 1 arguments"},
	        {"{{ w[::, 1] }}", "!a slice must stand alone in its brackets"},
	        {"{{ 1 // 0 }}", "!division by zero"},
	        {"{{ 9223372036854775807 + 1 }}", "!more than 64 bits"},
	        {"{{ 'abc", "!the string is not closed"},
	        {"{{ '\\U00110000' }}", "!a string has an escape that is not a character"},
	        {"{{ '\\UFFFFFFFF' }}", "!a string has an escape that is not a character"},
	        {"{# abc", "!the comment is not closed"},
	        {"{% break %}", "!break is outside a loop"},
	        {"{{ [1)] }}", "!')' closes nothing"},
	        {"{{ 1 1 }}", "!expected '}}', found a number"},
	        {"\xff", "!not UTF-8"},
	};

	(void)state;
	check(cases, sizeof(cases) / sizeof(cases[0]));
}

/* Nothing that a template does is without an end. */
static void test_bounds(void **state)
{
	static const struct given cases[] = {
	        {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "!nested more than"},
	        {"{% set a = range(90000) %}{% for x in a %}{% for y in a %}{% endfor %}{% endfor %}",
	                "!more than 10000000 steps"},
	        {"{{ range(100000000) }}", "!range: more than"},
	        {"{{ 'x' * 9000000000000 }}", "!more than"},
	        {"{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(27) %}{% set ns.s = ns.s ~ ns.s "
	         "%}{% endfor %}",
	                "!MiB of memory"},
	        {"{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}{% endfor "
	         "%}{{ ns.l }}",
	                "!nested more than"},
	        {"{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}{% endfor "
	         "%}{{ ns.l | tojson }}",
	                "!nested more than"},
	        {"{% set ns = namespace(a=1) %}{% set ns.a = ns %}{{ ns }}", "!nested more than"},
	        {"{{ '%999999999d' | format(1) }}", "!wider than"},
	};
	struct str deep = {0};
	struct jinja *t = NULL;

	(void)state;
	check(cases, sizeof(cases) / sizeof(cases[0]));
	str_add(&deep, "{{ ");
	for (int i = 0; i < 190; i++)
		str_add(&deep, "(");
	str_add(&deep, "1");
	for (int i = 0; i < 190; i++)
		str_add(&deep, ")");
	str_add(&deep, " }}");
	assert_int_equal(jinja_parse(&t, "chat.jinja", deep.data, deep.len_bytes), ERR_INPUT);
	assert_non_null(strstr(err_text(), "nested more than"));
	str_free(&deep);
	for (int i = 0; i < 5000; i++)
		str_add(&deep, "{% if 1 %}");
	assert_int_equal(jinja_parse(&t, "chat.jinja", deep.data, deep.len_bytes), ERR_INPUT);
	str_free(&deep);
}

/* What {% generation %} writes, in bytes, and only in the main text. */
static void test_generation(void **state)
{
	json_t *variables = parse(variables_text);
	struct jinja_output out;

	(void)state;
	assert_int_equal(render(&out,
	                         "{{ u }}{% for i in [1, 2] %}|{% generation %}{{ u }}{% set x = 1 %}{% "
	                         "endgeneration %}"
	                         "{{ x is defined }}{% endfor %}",
	                         variables),
	        0);
	assert_string_equal(out.text, "ü日😀|ü日😀False|ü日😀False");
	assert_int_equal(out.span_count, 2);
	assert_int_equal(out.spans[0].start, 10);
	assert_int_equal(out.spans[0].end, 19);
	assert_int_equal(out.spans[1].start, 25);
	assert_int_equal(out.spans[1].end, 34);
	jinja_output_free(&out);
	assert_int_equal(
	        render(&out, "{% set x %}{% generation %}a{% endgeneration %}{% endset %}", variables),
	        ERR_INPUT);
	json_decref(variables);
}

/* Every request for memory may fail. */
static void test_memory(void **state)
{
	json_t *variables = parse(variables_text);
	struct jinja_output out;
	int rc = ERR_NOMEM, failures = 0;

	(void)state;
	for (int64_t n = 1; rc == ERR_NOMEM; n++) {
		mem_fault_arm(n, MEM_FAULT_ONCE);
		rc = render(&out, "{% for m in messages %}{{ m.content | upper }}{% endfor %}", variables);
		mem_fault_arm(0, MEM_FAULT_ONCE);
		failures += rc == ERR_NOMEM;
		jinja_output_free(&out);
	}
	assert_int_equal(rc, 0);
	assert_true(failures > 4);
	json_decref(variables);
}

/* ---- goldens ---- */

static char *shared_path(const char *rest)
{
	const char *shared = getenv("FERRY_SHARED");

	if (!shared || file_kind_of(shared) != FILE_DIR)
		return NULL;
	return file_join(shared, rest);
}

static json_t *special_tokens(const char *dir)
{
	static const char *const names[] = {"bos_token", "eos_token", "unk_token", "pad_token"};
	char *path = file_join(dir, "tokenizer_config.json");
	json_t *config = NULL, *out = json_object();

	assert_int_equal(json_read_file(&config, path, 1 << 24), 0);
	for (size_t i = 0; i < 4; i++) {
		json_t *value = json_object_get(config, names[i]);

		if (json_is_object(value))
			value = json_object_get(value, "content");
		if (json_is_string(value))
			json_object_set(out, names[i], value);
	}
	json_object_set_new(out, "date_string", json_string("26 Jul 2024"));
	json_object_set_new(out, "tools", json_null());
	json_decref(config);
	mem_free(path);
	return out;
}

static struct jinja *golden_template(const char *name)
{
	char *rest = mem_printf("tokenizers/chat-templates/%s.jinja", name), *path = shared_path(rest), *text;
	struct jinja *t;
	size_t len_bytes;

	assert_int_equal(file_read_all(path, 1 << 20, &text, &len_bytes), 0);
	assert_int_equal(jinja_parse(&t, name, text, len_bytes), 0);
	mem_free(text);
	mem_free(path);
	mem_free(rest);
	return t;
}

static void check_row(const json_t *row, const json_t *special, const struct jinja *t)
{
	json_t *variables = json_copy((json_t *)(uintptr_t)special);
	struct jinja_output out;
	const char *text = json_string_value(json_object_get(row, "text"));
	int rc;

	json_object_set(variables, "messages", json_object_get(row, "messages"));
	json_object_set(variables, "add_generation_prompt", json_object_get(row, "add_generation_prompt"));
	rc = jinja_render(t, &out, variables, moment_now());
	if (!text)
		assert_int_equal(rc, ERR_INPUT);
	else if (rc || out.len_bytes != json_string_length(json_object_get(row, "text")) ||
	         strcmp(out.text, text))
		fail_msg("wanted '%s' and got '%s'", text, rc ? err_text() : out.text);
	jinja_output_free(&out);
	json_decref(variables);
}

/* Rows of the template `only` (NULL: of all), rendered by it or by the built-in template of that name. */
static int check_folder(const char *dir, const char *only, const char *builtin)
{
	char *path = file_join(dir, "chat_golden.jsonl"), *text = NULL, *line, *next;
	json_t *special, *row = NULL;
	struct jinja *t = NULL;
	char name[256] = "";
	size_t len_bytes;
	int rows = 0;

	if (file_kind_of(path) != FILE_REGULAR) {
		mem_free(path);
		return 0;
	}
	special = special_tokens(dir);
	assert_int_equal(file_read_all(path, 1 << 26, &text, &len_bytes), 0);
	for (line = text; line && *line; line = next) {
		const char *of;

		next = strchr(line, '\n');
		assert_int_equal(
		        json_parse(&row, path, line, next ? (size_t)(next++ - line) : strlen(line)), 0);
		of = json_string_value(json_object_get(row, "template"));
		if (!only || !strcmp(only, of)) {
			if (strcmp(name, of)) {
				jinja_free(t);
				if (builtin)
					assert_int_equal(jinja_parse(&t, builtin, jinja_builtin(builtin),
					                         strlen(jinja_builtin(builtin))),
					        0);
				else
					t = golden_template(of);
				snprintf(name, sizeof(name), "%s", of);
			}
			check_row(row, special, t);
			rows++;
		}
		json_decref(row);
	}
	jinja_free(t);
	json_decref(special);
	mem_free(text);
	mem_free(path);
	return rows;
}

static int check_folders(const char *only, const char *builtin)
{
	char *root = shared_path("tokenizers");
	struct dirent *entry;
	DIR *dir;
	int rows = 0;

	if (!root) {
		print_message("SKIPPED test_template: ../shared absent\n");
		skip();
	}
	dir = opendir(root);
	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		char *path = file_join(root, entry->d_name);

		if (entry->d_name[0] != '.')
			rows += check_folder(path, only, builtin);
		mem_free(path);
	}
	closedir(dir);
	mem_free(root);
	return rows;
}

static void test_golden(void **state)
{
	(void)state;
	assert_true(check_folders(NULL, NULL) >= 1344);
}

static void test_builtin_golden(void **state)
{
	static const struct {
		const char *builtin, *golden;
	} pairs[] = {
	        {"llama2", "llama-2-chat"},
	        {"llama3", "llama-3"},
	        {"mistral", "mixtral-8x7b-instruct-v0.1-system"},
	        {"gemma", "gemma-2"},
	        {"phi3", "phi-3-mini"},
	        {"zephyr", "zephyr"},
	        {"alpaca", "alpaca"},
	        {"vicuna", "vicuna"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
		assert_true(check_folders(pairs[i].golden, pairs[i].builtin) >= 64);
}

/* Built-in templates mark the assistant's words and the end of its turn, and nothing else. */
static void test_builtin_spans(void **state)
{
	static const struct {
		const char *name, *said;
	} cases[] = {
	        {"chatml", "Hello!<|im_end|>"},
	        {"llama2", " Hello! </s>"},
	        {"llama3", "Hello!<|eot_id|>"},
	        {"mistral", " Hello!</s>"},
	        {"phi3", "Hello!<|end|>"},
	        {"zephyr", "Hello!</s>"},
	        {"alpaca", "Hello!</s>"},
	        {"vicuna", " Hello!</s>"},
	};
	json_t *variables = parse(variables_text);
	struct jinja_output out;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(render(&out, jinja_builtin(cases[i].name), variables), 0);
		assert_int_equal(out.span_count, 1);
		assert_int_equal(out.spans[0].end - out.spans[0].start, strlen(cases[i].said));
		assert_memory_equal(out.text + out.spans[0].start, cases[i].said, strlen(cases[i].said));
		jinja_output_free(&out);
	}
	assert_null(jinja_builtin("none such"));
	json_decref(variables);
}

static void check_moment(const char *text, const char *again)
{
	char got[MOMENT_TEXT_BYTES];
	int64_t moment;

	if (!again) {
		assert_int_equal(moment_parse(&moment, text), ERR_INPUT);
		return;
	}
	assert_int_equal(moment_parse(&moment, text), 0);
	moment_text(got, moment);
	assert_string_equal(got, again);
}

/* Each directive of Python's strftime, and texts that are none. */
static void test_directives(void **state)
{
	static const char format[] =
	        "%a|%A|%b|%B|%c|%C|%d|%D|%e|%F|%g|%G|%h|%H|%I|%j|%k|%l|%m|%M|%p|%P|%r|%R|%S|%T|%u|%U|%V|%w|%"
	        "W|%x|%X|%y|%Y|%z|%Z|%%|%f|%-d|%_m|%^a|%#p|%03d|%Ey|%Od|%-H",
	                  wanted[] = "Sat|Saturday|Nov|November|Sat Nov  7 22:09:05 2026|20|07|11/07/26| "
	                             "7|2026-11-07|26|2026|Nov|22|10|311|22|10|11|09|PM|pm|10:09:05 "
	                             "PM|22:09|05|22:09:05|6|44|45|6|44|11/07/"
	                             "26|22:09:05|26|2026|||%|000000|7|11|SAT|pm|007|26|07|22";
	static const char *const none[] = {
	        "%Q", "%", "at %", "%:d", "%-f", "%N", "%9999d", "%00000000000000000000000000d"};
	char out[512];
	int64_t moment = 0;
	size_t len;

	(void)state;
	assert_int_equal(moment_parse(&moment, "2026-11-07T22:09:05"), 0);
	assert_int_equal(moment_format(&len, out, sizeof(out), format, moment), 0);
	assert_string_equal(out, wanted);
	assert_int_equal(len, strlen(wanted));
	assert_int_equal(moment_format(&len, out, 9, "%F", moment), ERR_INPUT);
	assert_int_equal(moment_format(&len, out, 11, "%F", moment), 0);
	assert_int_equal(moment_format(&len, out, sizeof(out), "%Z", moment), 0);
	for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++)
		if (moment_format(&len, out, sizeof(out), none[i], moment) != ERR_INPUT)
			fail_msg("%s gives %s", none[i], out);
}

/* The date that a template writes is the one of its caller, without a zone as in Python. */
static void test_moment(void **state)
{
	static const char source[] = "{{ strftime_now('%d %b %Y %H:%M|%z|%Z') }}";
	struct str day = {0}, other = {0};
	json_t *variables = parse("{}");
	struct jinja_output out;
	struct jinja *t = NULL;
	int64_t moment = 0;

	(void)state;
	check_moment("2026-11-27", "2026-11-27T00:00:00");
	check_moment("2024-02-29T23:59:59", "2024-02-29T23:59:59");
	check_moment("2024-02-29 23:59:59", "2024-02-29T23:59:59");
	check_moment("2026-02-29", NULL);
	check_moment("2026-1-2", NULL);
	check_moment("2026-11-27T24:00:00", NULL);
	check_moment("2026-11-27T10:00", NULL);
	check_moment("27.11.2026", NULL);
	check_moment("", NULL);
	assert_int_equal(moment_parse(&moment, "2026-11-27T08:09:10"), 0);
	assert_int_equal(jinja_parse(&t, "t", source, strlen(source)), 0);
	assert_int_equal(jinja_render(t, &out, variables, moment), 0);
	assert_string_equal(out.text, "27 Nov 2026 08:09||");
	jinja_output_free(&out);
	/* the same minute is the same date for this template */
	assert_int_equal(jinja_writes_date(&day, t, moment), 1);
	assert_int_equal(jinja_writes_date(&other, t, moment + 49), 1);
	assert_string_equal(day.data, other.data);
	str_free(&other);
	assert_int_equal(jinja_writes_date(&other, t, moment + 50), 1);
	assert_string_not_equal(day.data, other.data);
	str_free(&day);
	str_free(&other);
	jinja_free(t);
	json_decref(variables);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_moment),
	        cmocka_unit_test(test_directives),
	        cmocka_unit_test(test_constructs),
	        cmocka_unit_test(test_failures),
	        cmocka_unit_test(test_bounds),
	        cmocka_unit_test(test_generation),
	        cmocka_unit_test(test_memory),
	        cmocka_unit_test(test_golden),
	        cmocka_unit_test(test_builtin_golden),
	        cmocka_unit_test(test_builtin_spans),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
