/* links: cli */
/* Pairs of answers through the commands: data show, tables of data sets, what train and eval refuse. */
#include "tests/run_fixture.h"

#define STRICT                                                                                               \
	"{%% for m in messages %%}{%% if m.role not in ['system', 'user', 'assistant'] %%}"                  \
	"{{ raise_exception('role ' + m.role) }}{%% endif %%}<|{{ m.role }}|>{{ m.content }}<|endoftext|>"   \
	"{%% endfor %%}"

static json_t *shown(const char *file, const char *keys)
{
	struct str out = {0};
	json_t *root = NULL;

	assert_ferry(0, &out,
	        "data show model=%s/speaker data=%s/%s rows=all --json chat_template=%s/strict.jinja %s",
	        work_dir, work_dir, file, work_dir, keys);
	assert_int_equal(json_parse(&root, "stdout", out.data, out.len_bytes), 0);
	str_free(&out);
	return root;
}

static void assert_same_examples(const json_t *a, const json_t *b, const char *why)
{
	const json_t *left = json_object_get(a, "examples"), *right = json_object_get(b, "examples"), *row;
	size_t i;

	if (!json_array_size(left) || json_array_size(left) != json_array_size(right))
		fail_msg("%s: %zu and %zu rows", why, json_array_size(left), json_array_size(right));
	json_array_foreach(left, i, row)
	{
		const json_t *other = json_array_get(right, i);

		if (!json_equal(json_object_get(row, "input_ids"), json_object_get(other, "input_ids")) ||
		        !json_equal(json_object_get(row, "labels"), json_object_get(other, "labels")))
			fail_msg("%s: row %zu is %s, not %s", why, i,
			        json_string_value(json_object_get(row, "text")),
			        json_string_value(json_object_get(other, "text")));
	}
}

#define CHAT_USUAL                                                                                           \
	"{\"prompt\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"Hi\"}],"      \
	"\"completion\":[{\"role\":\"assistant\",\"content\":\"Yes\"}]}\n"                                   \
	"{\"prompt\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"Hi\"}],"      \
	"\"completion\":[{\"role\":\"assistant\",\"content\":\"No\"}]}\n"

/* Rows in other trainers' forms have the ids and labels of prompts and completions. */
static void test_forms(void **state)
{
	static const struct {
		const char *rows, *keys, *usual;
	} cases[] = {
	        {"{\"prompt\":\"2+2=\",\"chosen\":\" 4\",\"rejected\":\" 5\"}", "train_on_inputs=on",
	                "{\"prompt\":\"2+2=\",\"completion\":\" 4\"}\n{\"prompt\":\"2+2=\",\"completion\":\" "
	                "5\"}"},
	        {"{\"q\":\"2+2=\",\"good\":\" 4\",\"bad\":\" 5\"}",
	                "field_prompt=q field_chosen=good field_rejected=bad",
	                "{\"prompt\":\"2+2=\",\"completion\":\" 4\"}\n{\"prompt\":\"2+2=\",\"completion\":\" "
	                "5\"}"},
	        {"{\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":"
	         "\"Hi\"},{\"role\":\"assistant\",\"content\":\"Yes\"}],\"rejected_response\":\"No\"}",
	                "", CHAT_USUAL},
	        {"{\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":"
	         "\"Hi\"},{\"role\":\"assistant\",\"content\":\"Yes\"}],\"rejected_messages\":[{\"role\":"
	         "\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":"
	         "\"assistant\","
	         "\"content\":\"No\"}]}",
	                "field_chosen=better,best", CHAT_USUAL},
	        {"{\"system\":\"S\",\"question\":\"Hi\",\"chosen\":\"Yes\",\"rejected\":\"No\"}",
	                "field_instruction=question alpaca_form=chat", CHAT_USUAL},
	        {"{\"system\":\"S\",\"input\":\"Hi\",\"chosen\":\"Yes\",\"rejected\":\"No\"}",
	                "field_instruction=input alpaca_form=chat", CHAT_USUAL},
	        {"{\"system\":\"S\",\"conversations\":[{\"from\":\"human\",\"value\":\"Hi\"}],"
	         "\"chosen\":{\"from\":\"gpt\",\"value\":\"Yes\"},\"rejected\":{\"from\":\"gpt\",\"value\":"
	         "\"No\"}}",
	                "", CHAT_USUAL},
	        {"{\"talk\":[{\"who\":\"rules\",\"says\":\"S\"},{\"who\":\"guest\",\"says\":\"Hi\"}],"
	         "\"chosen\":[{\"who\":\"agent\",\"says\":\"Yes\"}],\"rejected\":[{\"who\":\"agent\","
	         "\"says\":"
	         "\"No\"}]}",
	                "field_messages=talk field_role=who field_content=says role_user=guest "
	                "role_assistant=agent role_system=rules",
	                CHAT_USUAL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		json_t *pairs, *usual;

		write_file("f.jsonl", "%s\n", cases[i].rows);
		write_file("usual.jsonl", "%s\n", cases[i].usual);
		pairs = shown("f.jsonl", cases[i].keys);
		usual = shown("usual.jsonl", "");
		assert_string_equal(json_string_value(json_object_get(pairs, "format")), "preference");
		assert_same_examples(pairs, usual, cases[i].rows);
		json_decref(pairs);
		json_decref(usual);
	}
}

static void test_show(void **state)
{
	static const char *const says[] = {"p.jsonl: preference, 2 pairs, ",
	        "left out, an answer without a target: 1 pair, the first at ", "p.jsonl:3\n",
	        "with equal answers: 1 pair, the first at ", "p.jsonl:2\n",
	        "\npair 1, chosen: ", "\n- 2+2=\n+  4", "\npair 1, rejected: "};
	struct str text = {0};
	json_t *root, *row;

	(void)state;
	write_file("p.jsonl", "%s",
	        "{\"prompt\":\"2+2=\",\"chosen\":\" 4\",\"rejected\":\" 5\"}\n"
	        "{\"prompt\":\"2+3=\",\"chosen\":\" 5\",\"rejected\":\" 5\"}\n"
	        "{\"prompt\":\"a long, long, long, long, long prompt\",\"chosen\":\" 5\",\"rejected\":\" "
	        "5\"}\n");
	assert_ferry(0, &text, "data show model=%s/speaker data=%s/p.jsonl max_length=8 rows=1", work_dir,
	        work_dir);
	for (size_t i = 0; i < sizeof(says) / sizeof(*says); i++)
		if (!strstr(text.data, says[i]))
			fail_msg("no \"%s\" in %s", says[i], text.data);
	assert_null(strstr(text.data, "pair 2"));
	assert_null(strstr(text.data, "packing"));
	assert_non_null(
	        strstr(ferry_said(), "1 of 3 pairs are left out: an answer has no token to train on"));
	assert_non_null(strstr(ferry_said(), "; a larger max_length may help"));
	assert_non_null(strstr(ferry_said(), "1 of 2 pairs have equal answers and teach nothing"));
	str_free(&text);
	root = shown("p.jsonl", "");
	assert_int_equal(json_integer_value(json_object_get(root, "pairs")), 3);
	assert_int_equal(json_integer_value(json_object_get(root, "rows")), 6);
	assert_int_equal(json_integer_value(json_object_get(root, "equal_pairs")), 2);
	assert_int_equal(json_array_size(json_object_get(root, "examples")), 6);
	row = json_array_get(json_object_get(root, "examples"), 3);
	assert_int_equal(json_integer_value(json_object_get(row, "pair")), 1);
	assert_string_equal(json_string_value(json_object_get(row, "answer")), "rejected");
	json_decref(root);
}

/* LLaMA-Factory's table: sets with ranking. */
static void test_dataset_info(void **state)
{
	static const char *const sets[] = {"tasks", "talks"};

	(void)state;
	write_file("table.json",
	        "{\"tasks\": {\"file_name\": \"tasks.jsonl\", \"ranking\": true, \"columns\": {\"prompt\": "
	        "\"do\", \"system\": \"system\", \"chosen\": \"good\", \"rejected\": \"bad\"}},\n"
	        "\"talks\": {\"file_name\": \"talks.jsonl\", \"ranking\": true, \"formatting\": "
	        "\"sharegpt\", "
	        "\"columns\": {\"messages\": \"chat\", \"chosen\": \"good\", \"rejected\": \"bad\"}}}\n");
	write_file("tasks.jsonl", "{\"system\":\"S\",\"do\":\"Hi\",\"good\":\"Yes\",\"bad\":\"No\"}\n");
	write_file("talks.jsonl",
	        "{\"chat\":[{\"from\":\"system\",\"value\":\"S\"},{\"from\":\"human\",\"value\":\"Hi\"}],"
	        "\"good\":{\"from\":\"gpt\",\"value\":\"Yes\"},\"bad\":{\"from\":\"gpt\",\"value\":\"No\"}}"
	        "\n");
	write_file("usual.jsonl", "%s", CHAT_USUAL);
	for (size_t i = 0; i < sizeof(sets) / sizeof(*sets); i++) {
		struct str out = {0};
		json_t *usual = shown("usual.jsonl", ""), *pairs = NULL;

		assert_ferry(0, &out,
		        "data show model=%s/speaker dataset_info=%s/table.json data=%s rows=all --json "
		        "alpaca_form=chat chat_template=%s/strict.jinja",
		        work_dir, work_dir, sets[i], work_dir);
		assert_int_equal(json_parse(&pairs, "stdout", out.data, out.len_bytes), 0);
		assert_same_examples(pairs, usual, sets[i]);
		json_decref(pairs);
		json_decref(usual);
		str_free(&out);
	}
}

static void write_pairs(const char *name, int count)
{
	struct str text = {0};

	for (int i = 0; i < count; i++)
		str_printf(
		        &text, "{\"prompt\":\"%d+1=\",\"chosen\":\" %d\",\"rejected\":\" no\"}\n", i, i + 1);
	write_file(name, "%s", text.data);
	str_free(&text);
}

static void test_refused(void **state)
{
	static const struct {
		const char *args, *says; /* @: the directory of the files */
	} cases[] = {
	        {"train data=@p.jsonl", "p.jsonl:1: pairs of a chosen and a rejected answer; set "
	                                "preference_loss=sigmoid to train on pairs"},
	        {"eval data=@p.jsonl", "p.jsonl:1: pairs of a chosen and a rejected answer"},
	        {"train data=@t.jsonl preference_loss=sigmoid",
	                "t.jsonl:1: rows of the format text; preference_loss needs pairs, with the columns "
	                "chosen "
	                "and rejected"},
	        {"train data=@p.jsonl preference_loss=sigmoid eval_data=@t.jsonl",
	                "t.jsonl:1: rows of the format text; preference_loss needs pairs"},
	        {"train data=@p.jsonl:1,@t.jsonl:1 preference_loss=sigmoid",
	                "t.jsonl:1: rows of the format text; preference_loss needs pairs"},
	        {"data show data=@p.jsonl,@t.jsonl",
	                "/t.jsonl does not; all data sets must hold pairs, or none"},
	        {"train data=@p.jsonl preference_loss=sigmoid packing=bfd",
	                "packing=bfd is set, but pairs are not packed; set packing=off"},
	        {"data show data=@p.jsonl packing=bfd", "packing=bfd: pairs are not packed; set packing=off"},
	        {"train data=@p.jsonl preference_loss=sigmoid eval_split=9",
	                "eval_split=9 of 9 pairs: set a fraction below 1 or a whole number of pairs, and "
	                "leave "
	                "pairs to train on"},
	        {"train data=@p.jsonl preference_loss=sigmoid preference_own_tokens=all",
	                "preference_own_tokens=all is only supported with a preference_loss without a "
	                "reference: orpo, cpo or simpo"},
	        {"train data=@p.jsonl preference_label_smoothing=0.1",
	                "preference_label_smoothing=0.1 has no effect without preference_loss"},
	};

	(void)state;
	write_pairs("p.jsonl", 9);
	write_file("t.jsonl", "{\"text\":\"abc\"}\n");
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct str args = {0};
		int code;

		for (const char *from = cases[i].args; *from; from++)
			if (*from == '@')
				str_printf(&args, "%s/", work_dir);
			else
				str_add_char(&args, *from);
		if (!strncmp(args.data, "train", 5))
			str_printf(&args, " output_dir=%s/never", work_dir);
		code = ferry_run(NULL, "%s model=%s/speaker", args.data, work_dir);
		if (code != 2 || !strstr(ferry_said(), cases[i].says))
			fail_msg("%s gave %d: %s", cases[i].args, code, ferry_said());
		str_free(&args);
	}
}

/* The plan of a run counts pairs, and holds whole ones back. */
static void test_dry_run(void **state)
{
	static const char *const says[] = {"p.jsonl:1,", ": 18 pairs, ",
	        "mix      an epoch has 14 pairs: 5 of ", " of 4 pairs (batch 2 x accumulation 2)",
	        "\npair 1, chosen: ", "\npair 1, rejected: "};
	struct str text = {0};

	(void)state;
	write_pairs("p.jsonl", 9);
	assert_ferry(0, &text,
	        "train model=%s/speaker data=%s/p.jsonl:1,%s/p.jsonl:2 output_dir=%s/never "
	        "preference_loss=sigmoid "
	        "per_device_train_batch_size=2 gradient_accumulation_steps=2 --dry-run",
	        work_dir, work_dir, work_dir, work_dir);
	for (size_t i = 0; i < sizeof(says) / sizeof(*says); i++)
		if (!strstr(text.data, says[i]))
			fail_msg("no \"%s\" in %s", says[i], text.data);
	str_free(&text);
	assert_ferry(0, &text,
	        "train model=%s/speaker data=%s/p.jsonl output_dir=%s/never preference_loss=sigmoid "
	        "eval_split=0.3 "
	        "train_on_inputs=on --dry-run",
	        work_dir, work_dir, work_dir);
	assert_non_null(strstr(text.data, ": 6 pairs, "));
	assert_non_null(strstr(text.data, "eval     held back: 3 pairs, "));
	assert_non_null(
	        strstr(ferry_said(), "train_on_inputs=on has no effect: with preference_loss only answers"));
	str_free(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_forms), cmocka_unit_test(test_show),
	        cmocka_unit_test(test_dataset_info), cmocka_unit_test(test_refused),
	        cmocka_unit_test(test_dry_run)};
	int failed;

	ferry_run_begin("pairs");
	speaker_make();
	write_file("strict.jinja", STRICT);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
