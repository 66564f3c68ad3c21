/* What fuzz targets share.
 *
 * A target is one file here: its first line names the libraries that it links, its second the places of its
 * seeds, and it has LLVMFuzzerTestOneInput. It is built twice: with clang for libFuzzer, and by every build
 * with run_seeds.c, so that inputs that once broke something are tried without clang too. Seeds of its own
 * stand in the folder of its name.
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

/* A call failed as calls may: a code for users, with a text. */
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

/* The path of a file of that name, alone in its directory, that holds the input. */
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
