/* links: data */
/* Values in rows of chats: nulls that Arrow puts there, JSON in texts, integers of any size, calls without
 * arguments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/chat/chat_template.h"
#include "data/rows/dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/chat_tokenizer.h"
#include "tests/dataset_rows.h"

static char temp_dir[] = "/tmp/ferry_test_values_XXXXXX";
static struct str warnings;

static void take_warning(void *context, enum log_level level, const char *line)
{
	(void)context;
	if (level == LOG_WARN)
		str_printf(&warnings, "%s\n", line);
}

static char *write_file(const char *name, const char *text)
{
	char *path = file_join(temp_dir, name);
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_int_equal(fputs(text, f) < 0, 0);
	assert_int_equal(fclose(f), 0);
	return path;
}

/* Writes tools, contents and arguments as JSON. */
static const char plain[] =
        "{{ tools | tojson if tools }}{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' "
        "}}{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name }}{{ "
        "c.function.arguments | tojson }}{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}{% if "
        "add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/* The text of all rows of a file, or of a part of its error. */
static void render_file(struct str *out, const char *path, const char *source)
{
	char *template_file = write_file("own.jinja", source);
	struct str json = {0};
	struct tokenizer *t = NULL;
	struct chat_template *template = NULL;
	struct dataset *d = NULL;
	int rc;

	str_free(&warnings);
	chat_tokenizer_json(&json);
	mem_free(write_file("tokenizer.json", json.data));
	mem_free(write_file("tokenizer_config.json", "{\"eos_token\":\"</s>\"}"));
	str_free(&json);
	assert_int_equal(tokenizer_open(&t, temp_dir), 0);
	rc = chat_template_open(&template,
	        &(struct chat_template_options){.choice = template_file, .dir = temp_dir, .tokenizer = t});
	if (!rc)
		rc = dataset_open(&d,
		        &(struct dataset_options){.path = path, .tokenizer = t, .chat_template = template});
	if (rc)
		str_add(out, err_text());
	for (int64_t row = 0; !rc && row < d->row_count; row++) {
		const struct row_view *v = dataset_row_view(d, row);
		char *text = NULL;

		assert_int_equal(
		        tokenizer_decode(t, &text, NULL, v->ids, v->token_count, SKIP_SPECIAL_OFF), 0);
		str_printf(out, "%s#", text);
		mem_free(text);
	}
	dataset_close(d);
	chat_template_close(template);
	tokenizer_close(t);
	mem_free(template_file);
}

static void render_rows(struct str *out, const char *rows)
{
	char *path = write_file("rows.jsonl", rows);

	render_file(out, path, plain);
	mem_free(path);
}

static void check(const char *rows, const char *wanted, const char *warning)
{
	struct str got = {0};

	render_rows(&got, rows);
	if (!strstr(got.data, wanted))
		fail_msg("%s\ngives\n%s\nwithout\n%s", rows, got.data, wanted);
	if (warning ? !warnings.data || !strstr(warnings.data, warning) : warnings.len_bytes > 0)
		fail_msg("%s\nwarns: %s", rows, warnings.data ? warnings.data : "not");
	str_free(&got);
}

/* datasets writes the same rows in six ways; all of them mean the same. */
static void test_arrow(void **state)
{
	static const char *const names[] = {"structs.parquet", "structs.jsonl", "json-arguments.parquet",
	        "json-messages.parquet", "json-columns.parquet", "json-texts.jsonl"};
	char *dir = mem_printf("%s/tests/golden/tool_rows", getenv("FERRY_SOURCE")),
	     *path = file_join(dir, "rows.json");
	struct str wanted = {0};

	(void)state;
	render_file(&wanted, path, plain);
	assert_null(strstr(wanted.data, "null"));
	assert_non_null(strstr(wanted.data, "clock{\"zone\": \"UTC\", \"dst\": false}"));
	assert_non_null(strstr(wanted.data, "clock{}"));
	mem_free(path);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct str got = {0};

		path = file_join(dir, names[i]);
		render_file(&got, path, plain);
		if (strcmp(got.data, wanted.data))
			fail_msg("%s\ngives\n%s\nwanted\n%s", names[i], got.data, wanted.data);
		assert_int_equal(warnings.len_bytes > 0, !strcmp(names[i], "structs.jsonl"));
		str_free(&got);
		mem_free(path);
	}
	str_free(&wanted);
	mem_free(dir);
}

#define TOOL(name, properties)                                                                               \
	"{\"type\":\"function\",\"function\":{\"name\":\"" name                                              \
	"\",\"parameters\":{\"properties\":" properties "}}}"
#define CALL(name, arguments) "{\"function\":{\"name\":\"" name "\",\"arguments\":" arguments "}}"
#define ROW(tools, calls)                                                                                    \
	"{\"tools\":" tools ",\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\","  \
	"\"content\":\"\",\"tool_calls\":[" calls "]}]}"

/* A null that the user may have written stays; one that only Arrow writes takes the others with it. */
static void test_nulls(void **state)
{
	static const char warning[] =
	        "rows.jsonl:1: members that are null in tool calls and schemas are left out";

	(void)state;
	check(ROW("[" TOOL("f", "{\"x\":{}}") "]", CALL("f", "{\"x\":null}")), "f{\"x\": null}", NULL);
	check(ROW("[" TOOL("f", "{\"x\":{\"default\":null}}") "]", CALL("f", "{\"x\":1}")),
	        "{\"default\": null}", NULL);
	check(ROW("[" TOOL("f", "{\"x\":{}}") "]", CALL("f", "{\"x\":1,\"y\":null}")), "f{\"x\": 1}",
	        warning);
	check(ROW("[" TOOL("f", "{\"x\":{\"default\":null},\"y\":null}") "]", CALL("f", "{\"x\":1}")),
	        "\"properties\": {\"x\": {}}}}}]", warning);
	check(ROW("null", CALL("f", "{\"x\":1,\"y\":null}") "," CALL("g", "{\"x\":null,\"y\":[1,null]}")),
	        "f{\"x\": 1}g{\"y\": [1, null]}", warning);
	check(ROW("null", CALL("f", "{\"x\":1,\"y\":null}") "," CALL("f", "{\"x\":null,\"y\":2}")),
	        "f{\"x\": 1, \"y\": null}f{\"x\": null, \"y\": 2}", NULL);
	check(ROW("null", CALL("f", "\"{\\\"x\\\": null}\"")), "f{\"x\": null}", NULL);
}

static void test_calls(void **state)
{
	static const char warning[] =
	        "rows.jsonl:1: messages[1].tool_calls[0].arguments is not a JSON object";

	(void)state;
	check(ROW("null", CALL("f", "{\"x\":12345678901234567890}")), "f{\"x\": 12345678901234567890}", NULL);
	check(ROW("null", CALL("f", "\"{\\\"x\\\": -12345678901234567890}\"")),
	        "f{\"x\": -12345678901234567890}", NULL);
	check(ROW("null", CALL("f", "{\"x\":1e22,\"y\":1e5,\"z\":0.1}")),
	        "{\"x\": 1e+22, \"y\": 100000.0, \"z\": 0.1}", NULL);
	check(ROW("null", CALL("f", "\"\"")), "f\"\"", warning);
	check(ROW("null", CALL("f", "\"{x: 1}\"")), "f\"{x: 1}\"", warning);
	check(ROW("null", CALL("f", "\"[1]\"")), "f\"[1]\"", warning);
	check(ROW("null", "\""
	                  "{\\\"function\\\":{\\\"name\\\":\\\"f\\\",\\\"arguments\\\":{}}}"
	                  "\""),
	        "f{}", NULL);
	check(ROW("\"[12345678901234567890]\"", CALL("f", "{}")),
	        "tools[0] is an integer; expected an object", NULL);
	check("{\"messages\":[{\"role\":\"user\",\"content\":12345678901234567890}]}",
	        "messages[0].content is an integer; expected a text", NULL);
}

/* The null of OpenAI's calls is named where the template fails on it. */
static void test_null_content(void **state)
{
	static const char row[] =
	        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":"
	        "null,\"tool_calls\":[" CALL("f", "{}") "]}]}";
	char *path = write_file("rows.jsonl", row);
	struct str got = {0};

	(void)state;
	render_file(&got, path, "{% for m in messages %}{{ m.role + m.content }}{% endfor %}");
	assert_non_null(strstr(got.data,
	        "rows.jsonl:1: messages[1].content is null, which the chat template does not take ("));
	assert_non_null(strstr(got.data, "); write \"\" there"));
	str_free(&got);
	mem_free(path);
}

static int set_up(void **state)
{
	(void)state;
	log_set_sink(take_warning, NULL);
	return mkdtemp(temp_dir) ? 0 : 1;
}

static int tear_down(void **state)
{
	static const char *const names[] = {
	        "own.jinja", "rows.jsonl", "tokenizer.json", "tokenizer_config.json"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char *path = file_join(temp_dir, names[i]);

		unlink(path);
		mem_free(path);
	}
	str_free(&warnings);
	return rmdir(temp_dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_arrow),
	        cmocka_unit_test(test_nulls),
	        cmocka_unit_test(test_calls),
	        cmocka_unit_test(test_null_content),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
