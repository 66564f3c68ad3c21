/* Runs the program in the shell, in the test's own directory. */
#ifndef FERRY_TESTS_CLI_PROGRAM_H
#define FERRY_TESTS_CLI_PROGRAM_H

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "tests/check.h"

#include <sys/wait.h>
#include <unistd.h>

struct result {
	int code;
	char *out, *err;
};

static const char *dir; /* set by the group setup */

static inline char *take(const char *name)
{
	char *path = file_join(dir, name), *text = NULL;
	size_t len;

	check_ok(file_read_all(path, 64 << 20, &text, &len));
	unlink(path);
	mem_free(path);
	return text;
}

/* Runs a shell command; $F is the program, $S the shared directory. */
static inline struct result run(const char *command)
{
	char *line = mem_printf("cd '%s' && export F='%s' S='%s' && ( %s ) > '%s/.out' 2> '%s/.err'", dir,
	        getenv("FERRY_BINARY"), getenv("FERRY_SHARED"), command, dir, dir);
	int status = system(line);
	struct result r = {WIFEXITED(status) ? WEXITSTATUS(status) : -1, take(".out"), take(".err")};

	mem_free(line);
	return r;
}

static inline void result_free(struct result *r)
{
	mem_free(r->out);
	mem_free(r->err);
}

static inline void put(const char *name, const char *text)
{
	char *path = file_join(dir, name);

	check_ok(file_write_all(path, text, strlen(text)));
	mem_free(path);
}

static inline int entries(void)
{
	char **names;
	size_t count;

	check_ok(file_list_dir(dir, &names, &count));
	file_list_free(names, count);
	return (int)count;
}

/* Runs a command that must succeed, and returns the JSON object on its stdout. */
static inline json_t *run_json(const char *command)
{
	struct result r = run(command);
	json_t *root = NULL;

	if (r.code)
		print_error("%s: code %d: %s\n", command, r.code, r.err);
	assert_int_equal(r.code, 0);
	check_ok(json_parse(&root, "stdout", r.out, strlen(r.out)));
	result_free(&r);
	return root;
}

static inline const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	assert_non_null(text);
	return text;
}

#endif
