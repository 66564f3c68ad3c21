/* Parses a command line and a YAML file that a test writes. */
#ifndef FERRY_TESTS_CLI_PARSE_H
#define FERRY_TESTS_CLI_PARSE_H

#include "base/log.h"
#include "base/mem.h"
#include "config/config.h"
#include "tests/check.h"

#include <unistd.h>

static char yaml_path[] = "/tmp/ferry_cli_XXXXXX.yaml";
static char logged[8192];

static inline void log_take(void *context, enum log_level level, const char *line)
{
	(void)context;
	(void)level;
	snprintf(logged + strlen(logged), sizeof(logged) - strlen(logged), "%s\n", line);
}

/* Words of `args` are separated by blanks; YAML is replaced by the path of a file that holds `yaml`. */
static inline int parse(struct config *c, enum verb verb, const char *yaml, const char *args)
{
	char *words[64], *text = mem_strdup(args), *rest = text;
	int count = 0, err;
	char *word;

	if (yaml) {
		FILE *f = fopen(yaml_path, "w");

		fputs(yaml, f);
		fclose(f);
		words[count++] = yaml_path;
	}
	logged[0] = 0;
	while ((word = strsep(&rest, " ")) != NULL)
		if (*word)
			words[count++] = word;
	err = config_parse(c, verb, count, words);
	mem_free(text);
	return err;
}

/* err_text() with YAML in place of the file's path. */
static inline const char *message(void)
{
	static char text[8192];
	const char *from = err_text();
	size_t len = 0;

	while (*from && len < sizeof(text) - 8) {
		if (!strncmp(from, yaml_path, strlen(yaml_path))) {
			len += (size_t)sprintf(text + len, "YAML");
			from += strlen(yaml_path);
		} else {
			text[len++] = *from++;
		}
	}
	text[len] = 0;
	return text;
}

/* Runs the group of tests, with the file and the log's sink. */
#define parse_run_tests(tests)                                                                               \
	({                                                                                                   \
		int fd_ = mkstemps(yaml_path, 5), failed_;                                                   \
		if (fd_ < 0)                                                                                 \
			return 1;                                                                            \
		close(fd_);                                                                                  \
		log_set_sink(log_take, NULL);                                                                \
		failed_ = cmocka_run_group_tests(tests, NULL, NULL);                                         \
		unlink(yaml_path);                                                                           \
		failed_;                                                                                     \
	})

#endif
