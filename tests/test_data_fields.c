/* links: cli */
/* Columns and roles under other names: what field_ and role_ keys find, and what is said where they find
 * nothing. */
#include "tests/run_fixture.h"

/* The rows of a file with these keys; `says` NULL: ids and labels must be those of `usual` without keys, else
 * the run is refused with all of the words, separated by '|'. */
static const struct {
	const char *rows, *keys, *usual, *says;
} cases[] = {
        {"{\"question\":\"Who?\",\"answer\":\"Ben\"}", "field_prompt=question field_completion=answer",
                "{\"prompt\":\"Who?\",\"completion\":\"Ben\"}", NULL},
        {"{\"q\":\"Who?\",\"answer\":\"Ben\"}", "'field_prompt=question, q' field_completion=answer",
                "{\"prompt\":\"Who?\",\"completion\":\"Ben\"}", NULL},
        {"{\"do\":\"Add.\",\"with\":\"2\",\"gives\":\"3\",\"sys\":\"S\",\"text\":\"t\"}",
                "field_instruction=do field_input=with field_output=gives field_system=sys",
                "{\"instruction\":\"Add.\",\"input\":\"2\",\"output\":\"3\",\"system\":\"S\"}", NULL},
        /* named columns come before usual ones of another format */
        {"{\"instruction\":\"Add.\",\"output\":\"3\",\"body\":\"a\"}", "field_text=body", "{\"text\":\"a\"}",
                NULL},
        {"{\"tokens\":[5,6,7],\"mask\":[-100,6,7]}", "field_input_ids=tokens field_labels=mask",
                "{\"input_ids\":[5,6,7],\"labels\":[-100,6,7]}", NULL},
        {"{\"chat\":[{\"who\":\"guest\",\"says\":\"Hi\"},{\"who\":\"agent\",\"says\":\"Yes\"}]}",
                "field_messages=chat field_role=who field_content=says role_user=guest "
                "role_assistant=robot,agent",
                "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":"
                "\"Yes\"}]}",
                NULL},
        {"{\"messages\":[{\"role\":\"guest\",\"content\":\"Hi\"},{\"role\":\"model\",\"content\":\"Yes\"}]}",
                "role_user=guest",
                "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":"
                "\"Yes\"}]}",
                NULL},
        {"{\"question\":\"Who?\",\"answer\":\"Ben\"}", "", NULL,
                "f.jsonl:1|\"question\", \"answer\"|fit no known format|field_prompt="},
        {"{\"question\":\"Who?\",\"answer\":\"Ben\"}", "field_prompt=question field_completion=reply", NULL,
                "f.jsonl:1|no column \"reply\", which field_completion names|\"question\", \"answer\""},
        {"{\"prompt\":\"Who?\",\"completion\":\"Ben\"}\n{\"prompt\":\"Who?\"}", "", NULL,
                "f.jsonl:2|\"completion\" is missing|\"prompt\"|field_completion"},
        {"{\"instruction\":\"a\",\"output\":\"b\"}", "field_system=sys", NULL,
                "field_system=sys: no row|\"instruction\", \"output\"|leave field_system out"},
        {"{\"conversations\":[{\"from\":\"guest\",\"value\":\"Hi\"}]}", "", NULL,
                "f.jsonl:1|conversations[0].from is 'guest'|role_user=guest"},
        {"{\"messages\":[{\"who\":\"guest\",\"text\":\"Hi\"}]}", "", NULL,
                "f.jsonl:1|messages[0] has no text under \"role\"|\"who\", \"text\"|field_role"},
        {"{\"messages\":[{\"role\":\"guest\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":\"Yes\"}"
         "]}",
                "", NULL, "f.jsonl:1|the role 'guest'|role_user=guest"},
};

/* What data show prints of the file's rows; NULL where it refuses. */
static char *shown(const char *rows, const char *keys)
{
	struct str out = {0};
	char *examples = NULL;
	json_t *all = NULL;
	int code;

	write_file("f.jsonl", "%s\n", rows);
	code = ferry_run(&out,
	        "data show model=%s/speaker data=%s/f.jsonl rows=9 chat_template=%s/strict.jinja --json %s",
	        work_dir, work_dir, work_dir, keys);
	if (code == 0) {
		assert_int_equal(json_parse(&all, "out", out.data, out.len_bytes), 0);
		examples = json_dumps(json_object_get(all, "examples"), JSON_SORT_KEYS);
		json_decref(all);
	} else {
		assert_int_equal(code, 2);
	}
	str_free(&out);
	return examples;
}

static void test_fields(void **state)
{
	(void)state;
	write_file("strict.jinja",
	        "{%% for m in messages %%}{%% if m.role not in ['system', 'user', 'assistant'] %%}"
	        "{{ raise_exception('no such role') }}{%% endif %%}<|{{ m.role }}|>{{ m.content "
	        "}}<|endoftext|>"
	        "{%% endfor %%}");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *got = shown(cases[i].rows, cases[i].keys), list[400], *word, *rest = list;

		if (!got != !cases[i].usual)
			fail_msg("%s %s: %s", cases[i].rows, cases[i].keys, got ? got : ferry_said());
		if (cases[i].usual) {
			char *usual = shown(cases[i].usual, "");

			if (!usual)
				fail_msg("%s: %s", cases[i].usual, ferry_said());
			assert_string_equal(got, usual);
			free(usual);
		}
		snprintf(list, sizeof(list), "%s", cases[i].says ? cases[i].says : "");
		while ((word = strsep(&rest, "|")))
			if (!strstr(ferry_said(), word))
				fail_msg("%s: no \"%s\" in: %s", cases[i].rows, word, ferry_said());
		free(got);
	}
}

/* A role that the template has a way with is passed on, and told once. */
static void test_other_role(void **state)
{
	char *got;

	(void)state;
	write_file("roles.jinja",
	        "{%% for m in messages %%}<|{{ m.role }}|>{{ m.content }}<|endoftext|>{%% endfor %%}");
	write_file("f.jsonl", "%s",
	        "{\"messages\":[{\"role\":\"critic\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":"
	        "\"Yes\"}]}\n"
	        "{\"messages\":[{\"role\":\"critic\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":"
	        "\"No\"}]}\n");
	assert_ferry(0, NULL, "data show model=%s/speaker data=%s/f.jsonl chat_template=%s/roles.jinja",
	        work_dir, work_dir, work_dir);
	got = strstr(ferry_said(), "the role 'critic' reaches the chat template as it is");
	assert_non_null(got);
	assert_null(strstr(got + 1, "the role 'critic'"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_fields), cmocka_unit_test(test_other_role)};
	int failed;

	ferry_run_begin("fields");
	speaker_make();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
