/* links: base */
/* What of a chat its text does not have: fields, variables and calls that the template does not write, which
 * are warned about; and messages that are not to be trained, also where all others are. */
#include "tests/chat_tokenizer.h"
#include "tests/cli_program.h"

#define USER "{\"role\":\"user\",\"content\":\"hi\"}"

static int group_setup(void **state)
{
	static char path[] = "/tmp/ferry_test_chat_lost_XXXXXX";
	struct str json = {0};

	(void)state;
	dir = mkdtemp(path);
	chat_tokenizer_json(&json);
	put("tokenizer.json", json.data);
	put("tokenizer_config.json", "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}");
	str_free(&json);
	put("think.jinja",
	        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.thinking and loop.last "
	        "%}{{ '(' + m.thinking + ')' }}{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}"
	        "{{ c | tojson }}{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}"
	        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}");
	put("marked.jinja",
	        "{% for m in messages %}{% if m.role == 'assistant' %}{{ '<|im_start|>assistant\n' }}"
	        "{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}{% else %}"
	        "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}");
	return 0;
}

static int group_teardown(void **state)
{
	(void)state;
	return file_remove_tree(dir);
}

/* The times that a text stands in another. */
static int count_of(const char *text, const char *part)
{
	int count = 0;

	for (const char *at = text; (at = strstr(at, part)); at++)
		count++;
	return count;
}

struct lost_case {
	const char *template, *row; /* twice in the file, so that a warning for each would show */
	const char *says;           /* NULL: no warning */
};

/* Each field of a message, and each variable of a row, that leaves no trace in the text. */
static void test_fields(void **state)
{
	static const struct lost_case cases[] = {
	        {"chatml",
	                "[" USER
	                ",{\"role\":\"assistant\",\"content\":\"a\",\"reasoning_content\":\"because\"}]",
	                "r.jsonl:1: messages[1].reasoning_content is lost: the template chatml does not "
	                "write it"},
	        {"chatml", "[" USER ",{\"role\":\"assistant\",\"content\":\"a\",\"thinking\":\"because\"}]",
	                "messages[1].thinking is lost"},
	        {"chatml", "[" USER ",{\"role\":\"assistant\",\"content\":\"a\",\"reasoning\":\"because\"}]",
	                "messages[1].reasoning is lost"},
	        {"chatml",
	                "[{\"role\":\"user\",\"content\":\"hi\",\"name\":\"Ann\"},{\"role\":\"assistant\","
	                "\"content\":\"a\"}]",
	                "messages[0].name is lost"},
	        {"chatml", "[" USER ",{\"role\":\"assistant\",\"content\":\"a\",\"mood\":7}]",
	                "messages[1].mood is lost"},
	        {"chatml",
	                "[" USER
	                ",{\"role\":\"assistant\",\"content\":\"x\",\"train\":false,\"tool_calls\":[{"
	                "\"function\":{\"name\":\"f\",\"arguments\":{}}}]}," USER
	                ",{\"role\":\"assistant\",\"content\":\"a\"}]",
	                "messages[1].tool_calls is lost"},
	        {"chatml",
	                "[" USER ",{\"role\":\"assistant\",\"content\":\"a\",\"thinking\":\" \",\"mood\":[],"
	                "\"name\":null}]",
	                NULL},
	        {"chatml",
	                "[" USER
	                ",{\"role\":\"assistant\",\"content\":\"a\"}],\"chat_template_kwargs\":{\"deep\":1}",
	                "chat_template_kwargs: deep has no effect: the template chatml does not use it"},
	        {"think.jinja",
	                "[" USER ",{\"role\":\"assistant\",\"content\":\"a\",\"reasoning\":\"because\"}]",
	                NULL},
	        {"think.jinja",
	                "[" USER ",{\"role\":\"assistant\",\"content\":\"a\",\"reasoning\":\"because\"}," USER
	                ",{\"role\":\"assistant\",\"content\":\"a\"}]",
	                "messages[1].reasoning is lost"},
	        {"think.jinja",
	                "[" USER ",{\"role\":\"assistant\",\"content\":\"a\",\"train\":false,\"reasoning\":"
	                "\"b\"}," USER ",{\"role\":\"assistant\",\"content\":\"a\"}]",
	                NULL},
	        {"think.jinja",
	                "[" USER
	                ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":"
	                "\"f\",\"arguments\":\"not JSON\"}}]}]",
	                "messages[1].tool_calls[0].arguments is not a JSON object"},
	        {"think.jinja",
	                "[" USER
	                ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":"
	                "\"f\",\"arguments\":[1]}}]}]",
	                "messages[1].tool_calls[0].arguments is not a JSON object"},
	        {"think.jinja",
	                "[" USER
	                ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":"
	                "\"f\",\"arguments\":\"{}\"}}]}]",
	                NULL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const struct lost_case *c = &cases[i];
		char *rows = mem_printf("{\"messages\":%s}\n{\"messages\":%s}\n", c->row, c->row);
		char *command =
		        mem_printf("$F data show tokenizer=. data=r.jsonl chat_template=%s", c->template);
		struct result r;

		put("r.jsonl", rows);
		r = run(command);
		if (r.code || count_of(r.err, "warning:") != (c->says != NULL) ||
		        (c->says && !strstr(r.err, c->says)))
			fail_msg("%s\n%s\ncode %d: %s", c->template, c->row, r.code, r.err);
		result_free(&r);
		mem_free(command);
		mem_free(rows);
	}
}

/* The same in ShareGPT's turns, in prompts, and where a chat is only tokenized. */
static void test_places(void **state)
{
	static const char *const commands[] = {
	        "$F data show tokenizer=. data=s.jsonl chat_template=chatml",
	        "$F tokenize --chat tokenizer=. chat_template=chatml s.jsonl",
	};

	(void)state;
	put("s.jsonl",
	        "{\"conversations\":[{\"from\":\"human\",\"value\":\"hi\"},{\"from\":\"gpt\",\"value\":\"a\","
	        "\"reasoning\":\"because\"}]}\n");
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
		struct result r = run(commands[i]);

		if (r.code || !strstr(r.err, "s.jsonl:1: messages[1].reasoning is lost"))
			fail_msg("%s: code %d: %s", commands[i], r.code, r.err);
		result_free(&r);
	}
}

/* Variables of the key. */
static void test_variables(void **state)
{
	struct result r;

	(void)state;
	put("r.jsonl", "{\"messages\":[" USER ",{\"role\":\"assistant\",\"content\":\"a\"}]}\n");
	r = run("$F data show tokenizer=. data=r.jsonl chat_template=chatml "
	        "chat_template_kwargs='{\"messages\": 1, "
	        "\"enable_thinkng\": false}'");
	assert_int_equal(r.code, 0);
	assert_non_null(strstr(r.err, "chat_template_kwargs: enable_thinkng has no effect"));
	assert_int_equal(count_of(r.err, "warning:"), 1);
	result_free(&r);
}

/* Documents are part of the task, as tools are. */
static void test_documents(void **state)
{
	struct result r;

	(void)state;
	put("r.jsonl", "{\"messages\":[" USER ",{\"role\":\"assistant\",\"content\":\"a\"}],\"documents\":[{"
	               "\"title\":\"t\",\"text\":\"x\"}]}\n");
	r = run("$F data show tokenizer=. data=r.jsonl chat_template=chatml");
	assert_int_equal(r.code, 2);
	assert_non_null(strstr(r.err, "r.jsonl:1: the template chatml does not write the row's documents"));
	result_free(&r);
}

/* The text of the only row, what is trained in { }. */
static void show(struct str *out, const char *command)
{
	json_t *shown = run_json(command), *row = json_array_get(json_object_get(shown, "examples"), 0), *id;
	json_t *labels = json_object_get(row, "labels"), *text = json_object_get(row, "text");
	size_t i, at = 0;
	int trained = 0;

	json_array_foreach(json_object_get(row, "input_ids"), i, id)
	{
		static const char *const special[] = {"<s>", "</s>", "<|im_start|>", "<|im_end|>"};
		json_int_t token = json_integer_value(id);
		int now = json_integer_value(json_array_get(labels, i)) >= 0;
		size_t bytes = token >= 96 ? strlen(special[token - 96]) : 1;

		if (now != trained)
			str_add(out, now ? "{" : "}");
		trained = now;
		str_add_bytes(out, json_string_value(text) + at, bytes);
		at += bytes;
	}
	str_add(out, trained ? "}" : "");
	json_decref(shown);
}

/* train: false of a message wins over train_on_inputs: the message and its end are not trained. */
static void test_flags(void **state)
{
	static const char *const cases[][3] = {
	        {"chatml",
	                "[" USER ",{\"role\":\"assistant\",\"content\":\"one\",\"train\":false}," USER
	                ",{\"role\":\"assistant\",\"content\":\"two\"}]",
	                "{<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n}one<|im_end|>{\n<|im_start|"
	                ">user\n"
	                "hi<|im_end|>\n<|im_start|>assistant\ntwo<|im_end|>\n}"},
	        {"think.jinja",
	                "[" USER ",{\"role\":\"assistant\",\"content\":\"one\"}," USER
	                ",{\"role\":\"assistant\",\"content\":\"two\",\"weight\":0,\"thinking\":\"hm\"}]",
	                "{<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\none<|im_end|>\n<|im_start|>"
	                "user\n"
	                "hi<|im_end|>\n<|im_start|>assistant\n}(hm)two<|im_end|>{\n}"},
	        {"marked.jinja",
	                "[{\"role\":\"user\",\"content\":\"hi\",\"train\":false},{\"role\":\"assistant\","
	                "\"content\":\"one\"}]",
	                "{<|im_start|>user\n}hi<|im_end|>{\n<|im_start|>assistant\none<|im_end|>\n}"},
	        {"marked.jinja", "[" USER ",{\"role\":\"assistant\",\"content\":\"one\",\"training\":false}]",
	                "{<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n}one<|im_end|>{\n}"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char *row = mem_printf("{\"messages\":%s}\n", cases[i][1]);
		char *command = mem_printf(
		        "$F data show tokenizer=. data=r.jsonl chat_template=%s train_on_inputs=on --json",
		        cases[i][0]);
		struct str got = {0};

		put("r.jsonl", row);
		show(&got, command);
		assert_string_equal(got.data, cases[i][2]);
		str_free(&got);
		mem_free(command);
		mem_free(row);
	}
}

/* A turn that cannot be found in the text is not trained silently either. */
static void test_flag_not_found(void **state)
{
	struct result r;

	(void)state;
	put("mixed.jinja", "{% for m in messages %}{{ m.content + '<|im_end|>' }}{% endfor %}{{ "
	                   "messages[1].content + '<|im_end|>' }}");
	put("r.jsonl",
	        "{\"messages\":[" USER ",{\"role\":\"assistant\",\"content\":\"one\",\"train\":false}," USER
	        ",{\"role\":\"assistant\",\"content\":\"two\"}]}\n");
	r = run("$F data show tokenizer=. data=r.jsonl chat_template=mixed.jinja train_on_inputs=on");
	assert_int_equal(r.code, 2);
	assert_non_null(strstr(r.err, "r.jsonl:1: a message is not to be trained (train, weight)"));
	result_free(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_fields),
	        cmocka_unit_test(test_places),
	        cmocka_unit_test(test_variables),
	        cmocka_unit_test(test_documents),
	        cmocka_unit_test(test_flags),
	        cmocka_unit_test(test_flag_not_found),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
