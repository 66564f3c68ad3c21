/* Shared by the tokenizer's test programs. */
#ifndef FERRY_TESTS_TOKENIZER_HELPERS_H
#define FERRY_TESTS_TOKENIZER_HELPERS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/num.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/unicode.h"

/* "$FERRY_SHARED/tokenizers/<name>", or NULL if it does not exist. Free it with mem_free. */
static inline char *shared_path(const char *name)
{
	const char *shared = getenv("FERRY_SHARED");
	char *path = shared ? mem_printf("%s/tokenizers/%s", shared, name) : NULL;

	if (path && file_kind_of(path) == FILE_NONE) {
		mem_free(path);
		path = NULL;
	}
	return path;
}

static inline void skip_absent(const char *name)
{
	print_message("SKIPPED %s: ../shared absent\n", name);
	skip();
}

static inline char *own_path(const char *name)
{
	return mem_printf(
	        "%s/tests/golden/tokenizer/%s", getenv("FERRY_SOURCE") ? getenv("FERRY_SOURCE") : ".", name);
}

static inline struct tokenizer *open_own(const char *name)
{
	char *path = own_path(name);
	struct tokenizer *t = NULL;

	if (tokenizer_open(&t, path) < 0)
		fail_msg("%s", err_text());
	mem_free(path);
	return t;
}

/* A random text of characters that the patterns treat differently. */
static inline size_t random_text(char *text, uint64_t seed, uint64_t trial, int max_chars)
{
	static const uint32_t chars[] = {' ', ' ', '\n', '\r', '\t', '\'', '\'', 's', 'S', 't', 'r', 'e', 'l',
	        'L', 'v', 'm', 'd', 'a', 'Z', '0', '7', '.', '!', '_', 0x17f, 0xe9, 0xa0, 0x85, 0x2028,
	        0x3000, 0x180e, 0x4e2d, 0x301, 0xb2, 0x661, 0x1f600, 0x31350, 0x11f50, 0x200d, 0};
	int count = (int)rng_below(seed, trial, 0, (uint64_t)max_chars + 1);
	size_t len = 0;

	for (int i = 0; i < count; i++)
		len += (size_t)utf8_put(text + len,
		        chars[rng_below(seed, trial, 1 + (uint64_t)i, sizeof(chars) / sizeof(chars[0]))]);
	return len;
}

#endif
