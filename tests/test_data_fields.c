/* links: cli */
/* Other names of columns and roles: what field_ and role_ keys find, and the messages if they find
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
        {"{\"instruction\":\"Who?\",\"output\":\"Ben\"}", "field_prompt=instruction field_completion=reply",
                NULL, "no column \"reply\" (set by field_completion)"},
        {"{\"question\":\"Who?\",\"answer\":\"Ben\"}", "field_prompt=question field_completion=reply", NULL,
                "f.jsonl:1|no column \"reply\" (set by field_completion)|\"question\", \"answer\""},
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

/* The output of data show for the rows of a file; NULL if it refuses. */
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

/* An unknown role reaches the template unchanged, with one warning. */
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
	got = strstr(ferry_said(), "the chat template gets the role 'critic' unchanged");
	assert_non_null(got);
	assert_null(strstr(got + 1, "the chat template gets the role"));
}

/* Files of additional_chat_templates are chosen by name. */
static void test_named_template(void **state)
{
	char path[400];
	char *got;

	(void)state;
	snprintf(path, sizeof(path), "%s/speaker/additional_chat_templates", work_dir);
	assert_int_equal(mkdir(path, 0700), 0);
	write_file("speaker/additional_chat_templates/loud.jinja",
	        "{%% for m in messages %%}<|{{ m.role }}|>{{ m.content | upper }}<|endoftext|>{%% endfor "
	        "%%}");
	write_file("f.jsonl", "%s",
	        "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":"
	        "\"Yes\"}]}\n");
	assert_ferry(
	        0, NULL, "data show model=%s/speaker data=%s/f.jsonl chat_template=loud", work_dir, work_dir);
	assert_ferry(
	        2, NULL, "data show model=%s/speaker data=%s/f.jsonl chat_template=soft", work_dir, work_dir);
	got = strstr(ferry_said(), "not a template of the model (loud), and not one of chatml");
	assert_non_null(got);
	snprintf(path, sizeof(path), "%s/speaker/additional_chat_templates", work_dir);
	assert_int_equal(file_remove_tree(path), 0);
}

/* Sets of dataset_info.json: the tokens are those of usual rows; `says`: what refuses a name. */
static void test_dataset_info(void **state)
{
	static const struct {
		const char *set, *says;
	} wrong[] = {
	        {"pictures", "pictures has images: only text is supported"},
	        {"tests", "set data to its files, and data_split=test"},
	        {"nothing", "nothing is not a file, and"},
	};
	struct str named = {0}, usual = {0};

	(void)state;
	write_file("table.json",
	        "{\"tasks\": {\"file_name\": \"tasks.jsonl\", \"columns\": {\"prompt\": \"do\", "
	        "\"response\": "
	        "\"gives\", \"system\": \"sys\"}},\n"
	        "\"plain\": {\"file_name\": \"plain.jsonl\"},\n"
	        "\"talks\": {\"file_name\": \"talks.jsonl\", \"formatting\": \"sharegpt\", \"columns\": "
	        "{\"messages\": \"chat\"}, \"tags\": {\"role_tag\": \"who\", \"content_tag\": \"says\", "
	        "\"user_tag\": \"guest\", \"assistant_tag\": \"agent\"}},\n"
	        "\"texts\": {\"file_name\": \"texts.jsonl\", \"columns\": {\"prompt\": \"body\"}},\n"
	        "\"pictures\": {\"file_name\": \"plain.jsonl\", \"columns\": {\"images\": \"i\"}},\n"
	        "\"tests\": {\"file_name\": \"plain.jsonl\", \"split\": \"test\"}}\n");
	write_file("tasks.jsonl", "{\"do\":\"Add.\",\"input\":\"2\",\"gives\":\"3\",\"sys\":\"S\"}\n");
	write_file("texts.jsonl", "{\"body\":\"Once.\"}\n");
	write_file("plain.jsonl", "{\"instruction\":\"Say.\",\"output\":\"Hi\"}\n");
	write_file("talks.jsonl",
	        "{\"chat\":[{\"who\":\"guest\",\"says\":\"Hi\"},{\"who\":\"agent\",\"says\":\"Yes\"}]}\n");
	write_file("usual.jsonl",
	        "{\"instruction\":\"Add.\",\"input\":\"2\",\"output\":\"3\",\"system\":\"S\"}\n"
	        "{\"instruction\":\"Say.\",\"output\":\"Hi\"}\n");
	write_file("usual2.jsonl",
	        "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":"
	        "\"Yes\"}]}\n");
	assert_ferry(0, &named,
	        "data show model=%s/speaker dataset_dir=%s/table.json data=tasks,plain,talks rows=9 "
	        "chat_template=%s/strict.jinja show_tokens=on",
	        work_dir, work_dir, work_dir);
	assert_ferry(0, &usual,
	        "data show model=%s/speaker data=%s/usual.jsonl,%s/usual2.jsonl rows=9 "
	        "chat_template=%s/strict.jinja show_tokens=on",
	        work_dir, work_dir, work_dir, work_dir);
	assert_non_null(strstr(usual.data, "\nrow 3:"));
	assert_string_equal(strstr(named.data, "\nrow 1:"), strstr(usual.data, "\nrow 1:"));
	str_free(&usual);
	assert_ferry(0, &usual, "data show model=%s/speaker dataset_dir=%s/table.json data=texts", work_dir,
	        work_dir);
	assert_non_null(strstr(usual.data, ": text, 1 row, "));
	assert_non_null(strstr(usual.data, "Once."));
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_ferry(2, NULL, "data show model=%s/speaker dataset_info=%s/table.json data=%s",
		        work_dir, work_dir, wrong[i].set);
		if (!strstr(ferry_said(), wrong[i].says))
			fail_msg("%s: %s", wrong[i].set, ferry_said());
	}
	str_free(&named);
	str_free(&usual);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_fields), cmocka_unit_test(test_dataset_info),
	        cmocka_unit_test(test_named_template), cmocka_unit_test(test_other_role)};
	int failed;

	ferry_run_begin("fields");
	speaker_make();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
