/* Files of rows: written under a lock, renamed when complete, found by their recipe. */
#include "data/rows/row_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/dir_lock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"

enum { KEY_BYTES = 33, WAIT_NS = 100000000, FREE_IN_ROW = 5 };

static const char magic[16] = "ferry rows 1\n";

/* The index file: this header, the recipe, the caller's `fixed` bytes, padding to 16 bytes, the entries. */
struct index_head {
	char magic[16];
	int64_t recipe_bytes, fixed_bytes, entry_count, rows_bytes;
	uint64_t hash; /* of all that follows */
};

struct row_cache {
	char *recipe; /* "": files without a name */
	size_t fixed_bytes;
	char *dir, *rows_path, *index_path, *rows_temp, *index_temp;
	struct dir_lock *lock;
	int rows_fd, index_fd;
	int64_t rows_bytes, entry_count, entries_from;
};

static void key_of(char key[KEY_BYTES], const char *recipe)
{
	XXH128_hash_t h = XXH3_128bits(recipe, strlen(recipe));

	snprintf(key, KEY_BYTES, "%016" PRIx64 "%016" PRIx64, (uint64_t)h.high64, (uint64_t)h.low64);
}

static int64_t entries_from(int64_t recipe_bytes, int64_t fixed_bytes)
{
	return ((int64_t)sizeof(struct index_head) + recipe_bytes + fixed_bytes + 15) / 16 * 16;
}

/* ---- finding ---- */

/* Reads an index file (mem_free); *index NULL: there is none that can be read. ERR_NOMEM. */
static int read_index(void **index, size_t *index_bytes, const char *path)
{
	int64_t len = 0;
	int fd = file_kind_of(path) == FILE_REGULAR ? file_open_read(path, &len) : -1, rc = 0;

	*index = NULL;
	if (fd < 0)
		return 0;
	if (len >= (int64_t)sizeof(struct index_head)) {
		*index = mem_alloc((size_t)len, 1);
		*index_bytes = (size_t)len;
		rc = *index ? 0 : ERR_NOMEM;
	}
	if (*index && file_read_at(fd, path, *index, (size_t)len, 0)) {
		mem_free(*index);
		*index = NULL;
	}
	close(fd);
	return rc;
}

static int index_is_good(const void *index, size_t index_bytes, const char *recipe, size_t fixed_bytes)
{
	const struct index_head *h = index;
	const char *at = (const char *)index + sizeof(*h);
	int64_t from;

	if (memcmp(h->magic, magic, sizeof(magic)) != 0 || h->recipe_bytes < 0 ||
	        h->recipe_bytes > (int64_t)index_bytes ||
	        (recipe && h->recipe_bytes != (int64_t)strlen(recipe)) ||
	        h->fixed_bytes != (int64_t)fixed_bytes || h->entry_count < 1 || h->rows_bytes < 1)
		return 0;
	from = entries_from(h->recipe_bytes, h->fixed_bytes);
	return from <= (int64_t)index_bytes &&
	       ((int64_t)index_bytes - from) / (int64_t)sizeof(struct row_entry) == h->entry_count &&
	       ((int64_t)index_bytes - from) % (int64_t)sizeof(struct row_entry) == 0 &&
	       (!recipe || memcmp(at, recipe, (size_t)h->recipe_bytes) == 0) &&
	       h->hash == XXH3_64bits(at, index_bytes - sizeof(*h));
}

/* On success, *store owns the index and the descriptor. */
static int make_store(struct row_store **store, const struct row_entry **entries, int64_t *entry_count,
        void *fixed, void *index, size_t index_bytes, int fd, const char *path)
{
	const struct index_head *h = index;
	struct row_store *s = row_store_new();

	if (!s)
		return ERR_NOMEM;
	s->path = mem_strdup(path);
	if (!s->path) {
		row_store_release(s);
		return ERR_NOMEM;
	}
	s->fd = fd;
	s->index = index;
	s->index_bytes = index_bytes;
	s->len_bytes = h->rows_bytes;
	memcpy(fixed, (const char *)index + sizeof(*h) + h->recipe_bytes, (size_t)h->fixed_bytes);
	*entries = (const struct row_entry *)(const void *)((const char *)index +
	                                                    entries_from(h->recipe_bytes, h->fixed_bytes));
	*entry_count = h->entry_count;
	*store = s;
	return 1;
}

static int find(struct row_store **store, const struct row_entry **entries, int64_t *entry_count, void *fixed,
        size_t fixed_bytes, const char *rows_path, const char *index_path, const char *recipe)
{
	void *index = NULL;
	size_t index_bytes = 0;
	int64_t len = 0;
	int fd = -1, rc = read_index(&index, &index_bytes, index_path);

	if (rc || !index)
		return rc;
	if (index_is_good(index, index_bytes, recipe, fixed_bytes) && file_kind_of(rows_path) == FILE_REGULAR)
		fd = file_open_read(rows_path, &len);
	if (fd >= 0 && len == ((const struct index_head *)index)->rows_bytes)
		rc = make_store(store, entries, entry_count, fixed, index, index_bytes, fd, rows_path);
	if (rc == 1)
		return 1;
	if (fd >= 0)
		close(fd);
	mem_free(index);
	return rc;
}

/* Removes the lock of a writer that was killed after its files were complete. */
static void lock_clean(const char *dir, const char *key)
{
	char *name = mem_printf("%s.lock", key);
	struct dir_lock *left = NULL;

	if (name && file_is_in(dir, name) && !dir_lock_take(&left, dir, name))
		dir_lock_release(left);
	mem_free(name);
}

int row_cache_find(struct row_store **store, const struct row_entry **entries, int64_t *entry_count,
        void *fixed, size_t fixed_bytes, const char *dir, const char *recipe)
{
	char key[KEY_BYTES], *rows_path, *index_path;
	int rc = ERR_NOMEM;

	*store = NULL;
	key_of(key, recipe);
	rows_path = mem_printf("%s/%s.rows", dir, key);
	index_path = mem_printf("%s/%s.index", dir, key);
	if (rows_path && index_path)
		rc = find(store, entries, entry_count, fixed, fixed_bytes, rows_path, index_path, recipe);
	if (rc == 1) {
		(void)utimensat(AT_FDCWD, index_path, NULL, 0); /* used now: row_cache_tidy */
		lock_clean(dir, key);
	}
	mem_free(rows_path);
	mem_free(index_path);
	return rc;
}

int row_cache_open(struct row_store **store, const struct row_entry **entries, int64_t *entry_count,
        void *fixed, size_t fixed_bytes, const char *rows_path)
{
	size_t len = strlen(rows_path) - strlen(".rows");
	char *index_path = mem_printf("%.*s.index", (int)len, rows_path);
	int rc = index_path
	                 ? find(store, entries, entry_count, fixed, fixed_bytes, rows_path, index_path, NULL)
	                 : ERR_NOMEM;

	mem_free(index_path);
	return rc;
}

/* ---- writing ---- */

/* Adds advice to an error of the directory. */
static int advise(int rc, const struct row_cache *c)
{
	return err_reword(rc,
	        "%s; these rows exceed data_memory, so ferry writes them to files: set data_cache to a "
	        "directory with room (now %s), or raise data_memory",
	        err_text(), c->dir);
}

static int take_lock(struct row_cache *c, const char *key)
{
	char *name = mem_printf("%s.lock", key);
	int told = 0, free_in_row = 0, rc = name ? 0 : ERR_NOMEM;

	while (!rc) {
		struct timespec pause = {0, WAIT_NS};

		rc = dir_lock_take(&c->lock, c->dir, name);
		if (rc != ERR_INPUT)
			break;
		/* The lock may be free again between the two calls: then try again. A directory that
		 * cannot be written also looks free, so give up after a few times. */
		free_in_row = dir_lock_look(c->dir, name) == 0 ? free_in_row + 1 : 0;
		if (free_in_row == FREE_IN_ROW)
			break;
		rc = 0;
		if (!free_in_row && !told++)
			log_info("waiting for another ferry that writes the same rows to %s", c->rows_path);
		nanosleep(&pause, NULL);
	}
	mem_free(name);
	return rc;
}

/* Removes the temporary files of a process that ended. */
static int remove_old(const struct row_cache *c)
{
	int rc = file_remove_tree(c->rows_temp);

	return rc ? rc : file_remove_tree(c->index_temp);
}

static int make_paths(struct row_cache *c, const char *key)
{
	c->rows_path = mem_printf("%s/%s.rows", c->dir, key);
	c->index_path = mem_printf("%s/%s.index", c->dir, key);
	c->rows_temp = mem_printf("%s/%s.rows.tmp", c->dir, key);
	c->index_temp = mem_printf("%s/%s.index.tmp", c->dir, key);
	return c->rows_path && c->index_path && c->rows_temp && c->index_temp ? 0 : ERR_NOMEM;
}

/* Checks again after taking the lock: another process may have completed the files meanwhile. */
static int is_whole(const struct row_cache *c)
{
	const struct row_entry *entries;
	struct row_store *made = NULL;
	void *fixed = mem_alloc(1, c->fixed_bytes);
	int64_t count;
	int rc = fixed ? find(&made, &entries, &count, fixed, c->fixed_bytes, c->rows_path, c->index_path,
	                         c->recipe)
	               : ERR_NOMEM;

	row_store_release(made);
	mem_free(fixed);
	return rc;
}

/* Returns 1 if the files are complete already. Files without a recipe need no lock: each process has its
 * own. */
static int lock(struct row_cache *c)
{
	char key[KEY_BYTES + 24];
	int rc;

	if (!*c->recipe) {
		snprintf(key, sizeof(key), "pipe-%ld-%lld", (long)getpid(), (long long)clock_now_ns());
		rc = make_paths(c, key);
		return rc ? rc : file_make_dir(c->dir);
	}
	key_of(key, c->recipe);
	rc = make_paths(c, key);
	if (!rc)
		rc = take_lock(c, key);
	return rc ? rc : is_whole(c);
}

static int create_files(struct row_cache *c)
{
	int rc = remove_old(c);

	if (rc)
		return rc;
	c->rows_fd = file_create(c->rows_temp);
	if (c->rows_fd < 0)
		return c->rows_fd;
	c->index_fd = file_create(c->index_temp);
	if (c->index_fd < 0)
		return c->index_fd;
	return *c->recipe ? 0 : remove_old(c);
}

int row_cache_begin(struct row_cache **out, const char *dir, const char *recipe, size_t fixed_bytes)
{
	struct row_cache *c = mem_alloc(1, sizeof(*c));
	int rc;

	*out = NULL;
	if (!c)
		return ERR_NOMEM;
	c->rows_fd = c->index_fd = -1;
	c->fixed_bytes = fixed_bytes;
	c->dir = mem_strdup(dir);
	c->recipe = mem_strdup(recipe);
	rc = c->dir && c->recipe ? lock(c) : ERR_NOMEM;
	if (!rc)
		rc = create_files(c);
	if (rc < 0 && rc != ERR_NOMEM)
		rc = advise(rc, c);
	if (rc) {
		row_cache_close(c);
		return rc;
	}
	c->entries_from = entries_from((int64_t)strlen(recipe), (int64_t)fixed_bytes);
	*out = c;
	return 0;
}

int64_t row_cache_bytes(const struct row_cache *c)
{
	return c->rows_bytes + c->entry_count * (int64_t)sizeof(struct row_entry);
}

const char *row_cache_path(const struct row_cache *c)
{
	return c->rows_path;
}

int row_cache_append(struct row_cache *c, uint8_t *records, int64_t len_bytes,
        const struct row_entry *entries, int64_t entry_count)
{
	int64_t entry_bytes = (int64_t)sizeof(*entries);
	int rc;

	for (int64_t i = 0; i < entry_count; i++) {
		int64_t from = entries[i].start_bytes - c->rows_bytes;
		int64_t to = i + 1 < entry_count ? entries[i + 1].start_bytes - c->rows_bytes : len_bytes;

		row_record_seal(records + from, to - from);
	}
	rc = file_write_at(c->rows_fd, c->rows_temp, records, (size_t)len_bytes, c->rows_bytes);
	if (!rc)
		rc = file_write_at(c->index_fd, c->index_temp, entries, (size_t)(entry_count * entry_bytes),
		        c->entries_from + c->entry_count * entry_bytes);
	if (!rc) /* now, or all pages of a long build would wait for the sync at its end */
		rc = file_write_back(c->rows_fd, c->rows_temp, c->rows_bytes, len_bytes);
	if (rc)
		return advise(rc, c);
	c->rows_bytes += len_bytes;
	c->entry_count += entry_count;
	return 0;
}

int row_cache_open_written(
        struct row_cache *c, struct row_store **store, const struct row_entry **entries, int64_t *entry_count)
{
	int64_t len = c->entries_from + c->entry_count * (int64_t)sizeof(struct row_entry);
	struct row_store *s = row_store_new();
	int rc = 0;

	*store = NULL;
	if (!s)
		return ERR_NOMEM;
	s->path = mem_strdup(c->rows_path);
	s->index = mem_alloc((size_t)len, 1);
	s->index_bytes = (size_t)len;
	s->fd = dup(c->rows_fd);
	if (!s->path || !s->index)
		rc = ERR_NOMEM;
	else if (s->fd < 0)
		rc = err_set(ERR_IO, "%s: cannot open it twice: %s", c->rows_temp, strerror(errno));
	else
		rc = file_read_at(c->index_fd, c->index_temp, s->index, (size_t)len, 0);
	if (rc) {
		row_store_release(s);
		return rc;
	}
	s->len_bytes = c->rows_bytes;
	*entries = (const struct row_entry *)(const void *)((const char *)s->index + c->entries_from);
	*entry_count = c->entry_count;
	*store = s;
	return 0;
}

static int write_head(struct row_cache *c, char *index, const void *fixed)
{
	struct index_head h = {.recipe_bytes = (int64_t)strlen(c->recipe),
	        .fixed_bytes = (int64_t)c->fixed_bytes,
	        .entry_count = c->entry_count,
	        .rows_bytes = c->rows_bytes};
	int64_t len = c->entries_from + c->entry_count * (int64_t)sizeof(struct row_entry);
	int rc = file_write_at(
	        c->index_fd, c->index_temp, c->recipe, (size_t)h.recipe_bytes, (int64_t)sizeof(h));

	if (!rc)
		rc = file_write_at(c->index_fd, c->index_temp, fixed, c->fixed_bytes,
		        (int64_t)sizeof(h) + h.recipe_bytes);
	if (rc)
		return rc;
	memcpy(h.magic, magic, sizeof(magic));
	memcpy(index + sizeof(h), c->recipe, (size_t)h.recipe_bytes);
	memcpy(index + sizeof(h) + h.recipe_bytes, fixed, c->fixed_bytes);
	h.hash = XXH3_64bits(index + sizeof(h), (size_t)len - sizeof(h));
	return file_write_at(c->index_fd, c->index_temp, &h, sizeof(h), 0);
}

/* Renames the index last: it makes the files complete. */
static int rename_both(struct row_cache *c)
{
	int rc = file_sync(c->rows_fd, c->rows_temp);

	if (!rc)
		rc = file_sync(c->index_fd, c->index_temp);
	if (!rc)
		rc = file_rename(c->rows_temp, c->rows_path);
	if (!rc)
		rc = file_rename(c->index_temp, c->index_path);
	return rc ? rc : file_sync_dir(c->dir);
}

int row_cache_publish(struct row_cache *c, const struct row_store *store, const void *fixed)
{
	int rc = write_head(c, store->index, fixed);

	if (!rc && *c->recipe)
		rc = rename_both(c);
	return rc < 0 && rc != ERR_NOMEM ? advise(rc, c) : rc;
}

void row_cache_close(struct row_cache *c)
{
	if (!c)
		return;
	if (c->rows_fd >= 0 || c->index_fd >= 0)
		(void)remove_old(c);
	if (c->rows_fd >= 0)
		close(c->rows_fd);
	if (c->index_fd >= 0)
		close(c->index_fd);
	dir_lock_release(c->lock);
	mem_free(c->recipe);
	mem_free(c->dir);
	mem_free(c->rows_path);
	mem_free(c->index_path);
	mem_free(c->rows_temp);
	mem_free(c->index_temp);
	mem_free(c);
}
