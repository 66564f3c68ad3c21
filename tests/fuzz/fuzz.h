/* Shared by fuzz targets.
 *
 * A target is one file in this folder with LLVMFuzzerTestOneInput. Its first line names the libraries to
 * link, its second the places of its seeds. It is built twice: with clang for libFuzzer, and in every
 * build with run_seeds.c, so that inputs that once failed are tried without clang, too. Its own seeds are
 * in the folder of its name.
 */
#ifndef FERRY_TESTS_FUZZ_FUZZ_H
#define FERRY_TESTS_FUZZ_FUZZ_H

#include "base/err.h"
#include "base/mem.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

#define fuzz_require(holds)                                                                                  \
	do {                                                                                                 \
		if (!(holds)) {                                                                              \
			fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #holds);           \
			abort();                                                                             \
		}                                                                                            \
	} while (0)

/* Checks that a call failed correctly: with a code for users, and a text. */
static inline void fuzz_refused(int err)
{
	fuzz_require(err == ERR_INPUT || err == ERR_UNSUPPORTED || err == ERR_RANGE || err == ERR_NOMEM);
	fuzz_require(*err_text());
}

static inline char *fuzz_dir(void)
{
	static char dir[] = "/tmp/ferry-fuzz-XXXXXX";
	static int made;

	if (!made)
		fuzz_require(mkdtemp(dir));
	made = 1;
	return dir;
}

static char fuzz_path[64];

static inline void fuzz_clean(void)
{
	unlink(fuzz_path);
	rmdir(fuzz_dir());
}

/* The path of a file called `name`, alone in its directory, that contains the input. */
static inline const char *fuzz_file(const char *name, const uint8_t *data, size_t len)
{
	FILE *f;

	if (!*fuzz_path) {
		snprintf(fuzz_path, sizeof(fuzz_path), "%s/%s", fuzz_dir(), name);
		atexit(fuzz_clean);
	}
	f = fopen(fuzz_path, "wb");
	fuzz_require(f && fwrite(data, 1, len, f) == len && !fclose(f));
	return fuzz_path;
}

#endif
