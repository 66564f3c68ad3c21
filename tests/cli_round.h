/* Checks that ferry config agrees with ferry train: on the values, on the mistakes, and on its own output. */
#ifndef FERRY_TESTS_CLI_ROUND_H
#define FERRY_TESTS_CLI_ROUND_H

#include "base/err.h"
#include "base/str.h"
#include "config/table.h"
#include "config/write.h"
#include "tests/cli_parse.h"

/* The keys of a run have the same values in both. */
static inline void assert_same_values(const struct config *a, const struct config *b, const char *why)
{
	for (int i = 0; i < config_key_count; i++) {
		struct str a_text = {0}, b_text = {0};

		if (!(config_keys[i].verbs >> VERB_TRAIN & 1))
			continue;
		config_value_text(&a_text, a, &config_keys[i]);
		config_value_text(&b_text, b, &config_keys[i]);
		if (strcmp(a_text.data ? a_text.data : "", b_text.data ? b_text.data : ""))
			fail_msg("%s is \"%s\", then \"%s\", after\n%s", config_keys[i].name, a_text.data,
			        b_text.data, why);
		str_free(&a_text);
		str_free(&b_text);
	}
}

/* ferry train takes what ferry config prints, and trains the same. */
static inline void assert_taken_back(const struct config *trained, struct config *shown)
{
	for (int all = 0; all < 2; all++) {
		struct config again;
		struct str text = {0};
		int err;

		shown->show_all = all;
		config_write_origins(&text, shown);
		check_ok(str_check(&text));
		err = parse(&again, VERB_TRAIN, text.data ? text.data : "", "");
		if (err)
			fail_msg("%s, in:\n%s", err_text(), text.data);
		assert_same_values(trained, &again, text.data);
		if (strstr(logged, "reading it as")) /* it is ferry's own file now */
			fail_msg("%s", logged);
		config_free(&again);
		str_free(&text);
	}
}

static inline char *error_of(int err)
{
	char *text = mem_strdup(err ? err_text() : "");

	assert_non_null(text);
	return text;
}

/* Parses both ways. Mistakes have the same text. */
static inline void assert_round_trip(const char *yaml, const char *args)
{
	struct config trained, shown;
	int train_err = parse(&trained, VERB_TRAIN, yaml, args), show_err;
	char *train_text, *show_text;

	if (!train_err) {
		train_err = config_check(&trained);
		if (train_err && strstr(err_text(), "not set; usage"))
			train_err = 0;
	}
	train_text = error_of(train_err);
	show_err = parse(&shown, VERB_CONFIG, yaml, args);
	if (!show_err)
		show_err = config_check(&shown);
	show_text = error_of(show_err);
	assert_string_equal(train_text, show_text);
	assert_int_equal(train_err, show_err);
	if (!show_err) {
		assert_same_values(&trained, &shown, args);
		assert_taken_back(&trained, &shown);
	}
	mem_free(train_text);
	mem_free(show_text);
	config_free(&trained);
	config_free(&shown);
}

#endif
