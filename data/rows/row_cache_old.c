/* Removes files of rows that no run uses any more. */
#include "data/rows/row_cache.h"

#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"

enum { KEY_DIGITS = 32, KEEP_SECONDS = ROW_CACHE_KEEP_DAYS * 24 * 60 * 60 };

/* 1 for an index of a cache; the directory may hold other files. */
static int is_index(const char *name)
{
	return strspn(name, "0123456789abcdef") == KEY_DIGITS && !strcmp(name + KEY_DIGITS, ".index");
}

static int64_t size_of(const char *path)
{
	struct stat st;

	return stat(path, &st) ? 0 : (int64_t)st.st_size;
}

/* Counts a data set, or removes it if it is old. The index goes first: without it, no process opens the rows.
 * A process that reads the rows has them open, and keeps them. */
static int look_at(struct row_cache_use *use, const char *dir, const char *name)
{
	char *index = file_join(dir, name), *rows = mem_printf("%s/%.*s.rows", dir, KEY_DIGITS, name);
	struct stat st;
	int rc = index && rows ? 0 : ERR_NOMEM;

	if (!rc && !stat(index, &st)) {
		int64_t bytes = (int64_t)st.st_size + size_of(rows);
		int is_old = time(NULL) - st.st_mtim.tv_sec > KEEP_SECONDS;

		if (is_old && !unlink(index)) {
			unlink(rows);
			use->removed++;
			use->removed_bytes += bytes;
		} else {
			use->count++;
			use->bytes += bytes;
		}
	}
	mem_free(index);
	mem_free(rows);
	return rc;
}

int row_cache_tidy(struct row_cache_use *use, const char *dir)
{
	char **names = NULL;
	size_t count = 0;
	int rc = file_list_dir(dir, &names, &count);

	*use = (struct row_cache_use){0};
	for (size_t i = 0; i < count && !rc; i++)
		if (is_index(names[i]))
			rc = look_at(use, dir, names[i]);
	file_list_free(names, count);
	return rc;
}
