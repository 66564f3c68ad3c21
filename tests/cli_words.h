/* Checks the output of a command for words. */
#ifndef FERRY_TESTS_CLI_WORDS_H
#define FERRY_TESTS_CLI_WORDS_H

#include "tests/run_fixture.h"

/* Runs "ferry ARGUMENTS" and checks stdout and stderr. `words` are pieces separated by '|'; the output must
 * contain each, or must not contain it if it begins with '!'. Every @ in `arguments` is work_dir. */
static inline void assert_words(int code, const char *arguments, const char *words)
{
	struct str line = {0}, out = {0};
	char list[1000], *word, *rest = list;

	for (const char *at = arguments; *at; at++)
		if (*at == '@')
			str_add(&line, work_dir);
		else
			str_add_char(&line, *at);
	assert_ferry(code, &out, "%s", line.data);
	str_add(&out, ferry_said());
	snprintf(list, sizeof(list), "%s", words);
	while ((word = strsep(&rest, "|"))) {
		int unwanted = *word == '!';

		if ((strstr(out.data ? out.data : "", word + unwanted) != NULL) == unwanted)
			fail_msg("ferry %s: \"%s\" in: %s", line.data, word, out.data ? out.data : "");
	}
	str_free(&line);
	str_free(&out);
}

#define TRAIN "train model=@/tiny data=@/rows.jsonl output_dir=@/said --dry-run "

#endif
