/* Runs the program like a user: a command line, its exit code, its output. */
#ifndef FERRY_TESTS_FERRY_RUN_H
#define FERRY_TESTS_FERRY_RUN_H

#include "base/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/str.h"

/* The test's own directory; ferry_run_end removes it. */
static char work_dir[256];

static inline void ferry_run_begin(const char *name)
{
	snprintf(work_dir, sizeof(work_dir), "/tmp/ferry-%s-XXXXXX", name);
	assert_non_null(mkdtemp(work_dir));
}

static inline void ferry_run_end(void)
{
	if (*work_dir)
		file_remove_tree(work_dir);
}

/* FERRY_SHARED/golden. If it is absent: NULL, and a line that names the test. */
static inline const char *golden_dir(const char *test)
{
	static char dir[512];
	const char *shared = getenv("FERRY_SHARED");

	snprintf(dir, sizeof(dir), "%s/golden", shared ? shared : "../shared");
	if (file_kind_of(dir) == FILE_DIR)
		return dir;
	printf("SKIPPED %s: ../shared absent\n", test);
	return NULL;
}

/* The project's own models in the format of the golden data. */
static inline const char *own_golden_dir(void)
{
	static char dir[512];
	const char *source = getenv("FERRY_SOURCE");

	snprintf(dir, sizeof(dir), "%s/tests/golden/models", source ? source : ".");
	return dir;
}

/* A model of the golden data, or "own/NAME". Valid until the next call. */
static inline const char *golden_place(const char *golden, const char *name)
{
	static char dir[590];
	int is_own = !strncmp(name, "own/", 4);

	snprintf(dir, sizeof(dir), "%s/%s", is_own ? own_golden_dir() : golden, is_own ? name + 4 : name);
	return dir;
}

/* Runs "ferry ARGS" with stdout in *out (NULL: dropped) and stderr in work_dir/stderr. Returns the exit
 * code. */
__attribute__((format(printf, 2, 3))) static inline int ferry_run(struct str *out, const char *fmt, ...)
{
	const char *binary = getenv("FERRY_BINARY");
	char args[4096], command[5120], piece[4096];
	va_list ap;
	FILE *pipe;
	size_t n;
	int status;

	va_start(ap, fmt);
	vsnprintf(args, sizeof(args), fmt, ap);
	va_end(ap);
	snprintf(command, sizeof(command), "%s %s 2>%s/stderr", binary ? binary : "build/ferry", args,
	        work_dir);
	pipe = popen(command, "r");
	assert_non_null(pipe);
	while ((n = fread(piece, 1, sizeof(piece), pipe)) > 0)
		if (out)
			str_add_bytes(out, piece, n);
	status = pclose(pipe);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* stderr of the last command; valid until the next call. */
static inline const char *ferry_said(void)
{
	static char *text;
	char path[300];

	free(text);
	text = NULL;
	snprintf(path, sizeof(path), "%s/stderr", work_dir);
	FILE *f = fopen(path, "r");
	size_t cap = 0;
	ssize_t len = f ? getdelim(&text, &cap, 0, f) : -1;

	if (f)
		fclose(f);
	return len >= 0 ? text : "";
}

/* Fails the test with the program's stderr unless it exits with `code`. */
#define assert_ferry(code, ...)                                                                              \
	do {                                                                                                 \
		int got_ = ferry_run(__VA_ARGS__);                                                           \
		if (got_ != (code))                                                                          \
			fail_msg("exit code %d, expected %d: %s", got_, (code), ferry_said());               \
	} while (0)

/* Runs a command with --json, and parses the JSON object that it prints. */
#define assert_ferry_json(object, ...)                                                                       \
	do {                                                                                                 \
		struct str out_ = {0};                                                                       \
		assert_ferry(0, &out_, __VA_ARGS__);                                                         \
		assert_int_equal(json_parse(object, "stdout", out_.data, out_.len_bytes), 0);                \
		str_free(&out_);                                                                             \
	} while (0)

#endif
