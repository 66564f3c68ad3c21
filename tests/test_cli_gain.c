/* links: cli */
/* not: asan */
/* Planning with alternatives is slow there: test_plan, test_choose and test_plan_draws run its parts. */
/* The eight lines of `ferry plan` for described machines, and the settings that are said to gain. */
#include "tests/plan_examples.h"
#include "tests/sparing.h"

enum { COLUMNS = 80 };

/* Runs ferry plan for people; str_free. */
static void plan_said(struct str *out, const char *model, const char *machine, const char *settings)
{
	assert_ferry(
	        0, out, "plan %s/%s.json machine=%s/%s.yaml %s", models, model, machines, machine, settings);
}

/* Finds the n-th line that begins with this name; NULL: there is none. */
static const char *line_find(const char *out, const char *name, int n)
{
	const char *at = strncmp(out, name, strlen(name)) ? NULL : out;
	char begin[40];

	snprintf(begin, sizeof(begin), "\n%s ", name);
	if (!at) {
		at = strstr(out, begin);
		at = at ? at + 1 : NULL;
	}
	while (at && n--) {
		at = strstr(at, begin);
		at = at ? at + 1 : NULL;
	}
	return at;
}

/* At most eight lines, none of them wide, which name these things. */
static void test_eight_lines(void **state)
{
	static const struct {
		const char *model, *machine, *settings, *words;
	} rows[] = {
	        {"llama-3-8b", "pc-rtx-4070", "",
	                "fits PC with one RTX 4070, 12 GB: llama, 8.03B parameters|GPU |; the GPU has 11.2 "
	                "GiB|host |"
	                "; the machine has 124 GiB; pinned |disk |GiB for 2 and the next|step |for 1024 "
	                "tokens, limited by |"
	                "data |tokens/s: 1M tokens take |1 row a step wastes the machine|"
	                "gradient_accumulation_steps=16: |optimizer_state=8bit: "},
	        {"llama-3-8b", "pc-rtx-4070", "gradient_accumulation_steps=16",
	                "for 16384 tokens|!wastes|!gradient_accumulation_steps"},
	        {"llama-2-70b", "pc-rtx-4090", "lora_rank=16",
	                "69.2B parameters, trains 207M|limited by copies to the GPU"},
	        {"lfm2-1.2b", "laptop-2-cores", "lora_rank=8 optimizer_state=8bit",
	                "GPU      none; the CPU computes|!pinned"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i += (size_t)sparing(2)) {
		char list[1000], *word, *rest = list;
		struct str out = {0};
		int lines = 0;

		plan_said(&out, rows[i].model, rows[i].machine, rows[i].settings);
		for (const char *at = out.data; *at; at += strcspn(at, "\n") + 1, lines++)
			if (strcspn(at, "\n") > COLUMNS)
				fail_msg("too wide: %s", at);
		if (lines > 8)
			fail_msg("%d lines: %s", lines, out.data);
		snprintf(list, sizeof(list), "%s", rows[i].words);
		while ((word = strsep(&rest, "|")))
			if ((strstr(out.data, word + (*word == '!')) != NULL) == (*word == '!'))
				fail_msg("%s %s: \"%s\" in: %s", rows[i].model, rows[i].settings, word,
				        out.data);
		str_free(&out);
	}
}

/* A setting that is said to gain gives what is said: the plan with it is as fast or faster, and takes that
 * much memory. */
static void test_gains_are_true(void **state)
{
	static const struct {
		const char *model, *machine, *settings;
		int gains; /* at least */
	} rows[] = {
	        {"llama-3-8b", "pc-rtx-4070", "max_length=2048", 2},
	        {"llama-3-8b", "workstation-rtx-4090", "", 1},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i += (size_t)sparing(3)) {
		char settings[400];
		json_t *plan, *with, *gain;
		size_t g;

		snprintf(settings, sizeof(settings), "%s --details", rows[i].settings);
		plan = plan_of(rows[i].model, rows[i].machine, settings);
		assert_true(json_array_size(json_object_get(plan, "gains")) >= (size_t)rows[i].gains);
		json_array_foreach(json_object_get(plan, "gains"), g, gain)
		{
			const char *setting = json_string_value(json_object_get(gain, "setting"));

			snprintf(settings, sizeof(settings), "%s %s", rows[i].settings, setting);
			with = plan_of(rows[i].model, rows[i].machine, settings);
			if (real_of(with, "tokens_per_s") < 0.999 * real_of(gain, "tokens_per_s"))
				fail_msg("%s: %s gives %g tokens/s, not %g", rows[i].model, setting,
				        real_of(with, "tokens_per_s"), real_of(gain, "tokens_per_s"));
			if (!strncmp(setting, "optimizer", 9) || !strncmp(setting, "gradient_dtype", 14))
				assert_true(
				        real_of(with, "host_need_bytes") == real_of(gain, "host_need_bytes"));
			json_decref(with);
		}
		json_decref(plan);
	}
}

/* Nothing that is in force, that does not fit or that the data have no rows for is said to gain. */
static void test_no_gain_is_invented(void **state)
{
	struct str out = {0};
	const char *gain;

	(void)state;
	plan_said(&out, "llama-3-8b", "workstation-rtx-4090",
	        "gradient_accumulation_steps=16 max_length=4096 optimizer_state=8bit");
	gain = line_find(out.data, "gain", 0);
	assert_non_null(gain);
	assert_int_equal(strncmp(gain, "gain     no single setting gains 5%\n", 36), 0);
	assert_null(line_find(out.data, "gain", 1));
	str_free(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_eight_lines),
	        cmocka_unit_test(test_gains_are_true),
	        cmocka_unit_test(test_no_gain_is_invented),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
