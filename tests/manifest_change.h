/* A checkpoint's manifest, changed. */
#ifndef FERRY_TESTS_MANIFEST_CHANGE_H
#define FERRY_TESTS_MANIFEST_CHANGE_H

#include "tests/check.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "checkpoint/manifest.h"

#include <string.h>
#include <xxhash.h>

/* Changes `from` to `to` in a checkpoint's manifest, and writes a matching checksum. */
static inline void manifest_change(const char *path, const char *from, const char *to)
{
	char *file = file_join(path, manifest_name), *text, *at, *cut;
	size_t len;
	struct str out = {0};

	assert_false(file_read_all(file, 1 << 20, &text, &len));
	at = strstr(text, from);
	cut = strstr(text, " \"checksum\"");
	assert_true(at && cut && at < cut);
	str_printf(&out, "%.*s%s%.*s", (int)(at - text), text, to, (int)(cut - at - (int)strlen(from)),
	        at + strlen(from));
	str_printf(&out, " \"checksum\": \"xxh3-64:%016llx\"\n}\n",
	        (unsigned long long)XXH3_64bits(out.data, out.len_bytes));
	assert_false(str_check(&out));
	assert_false(file_write_all(file, out.data, out.len_bytes));
	str_free(&out);
	mem_free(text);
	mem_free(file);
}

#endif
