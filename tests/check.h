/* Every test program includes this: cmocka with the headers that it needs, and a temporary directory for
 * files. */
#ifndef FERRY_TESTS_CHECK_H
#define FERRY_TESTS_CHECK_H

#include "base/err.h"
#include "base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Fails unless `call` returns `code` and this thread's error text contains `part`. */
#define check_fails(call, code, part)                                                                        \
	do {                                                                                                 \
		int check_code_ = (call);                                                                    \
		if (check_code_ != (code) || !strstr(err_text(), (part))) {                                  \
			print_error("%s: code %d, text \"%s\"; wanted %d and \"%s\"\n", #call, check_code_,  \
			        err_text(), (code), (part));                                                 \
			fail();                                                                              \
		}                                                                                            \
	} while (0)

/* Fails with the error text unless `call` returns 0. */
#define check_ok(call)                                                                                       \
	do {                                                                                                 \
		int check_code_ = (call);                                                                    \
		if (check_code_) {                                                                           \
			print_error("%s: code %d, text \"%s\"\n", #call, check_code_, err_text());           \
			fail();                                                                              \
		}                                                                                            \
	} while (0)

/* Group setup and teardown: *state is the path of a new directory (char *), removed at the end. */
static inline int check_dir_make(void **state)
{
	const char *tmp = getenv("TMPDIR");
	char path[4096];

	snprintf(path, sizeof(path), "%s/ferry-test-XXXXXX", tmp && *tmp ? tmp : "/tmp");
	if (!mkdtemp(path))
		return -1;
	*state = strdup(path);
	return *state ? 0 : -1;
}

static inline int check_dir_remove(void **state)
{
	int err = file_remove_tree(*state);

	free(*state);
	return err;
}

#endif
