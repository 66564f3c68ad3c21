/* Cache files for rows beyond memory: written once, and found again by their inputs.
 *
 * A cache directory has two files for each data set: KEY.rows with the records (data/rows/row_store.h) and
 * KEY.index with their index and the dataset's other facts. KEY is a hash of a *recipe*: a text with the
 * input files, their size and time, the tokenizer, the template and every key that changes a row. The index
 * contains the recipe itself, so a hash collision is detected.
 *
 * Files are written under temporary names and renamed when complete, the index last, so an interrupted build
 * is never taken for a cache. One process builds at a time, by a lock (base/dir_lock.h); others wait and use
 * its result. With an empty recipe (input from a pipe) the open files have no names.
 */
#ifndef FERRY_DATA_ROWS_ROW_CACHE_H
#define FERRY_DATA_ROWS_ROW_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include "data/rows/row_store.h"

struct row_cache; /* being written */

/* Looks for complete files of the recipe. Returns 1 with *store, *entries, *entry_count and `fixed` (the
 * writer's fixed_bytes), 0 if there are none, or ERR_NOMEM. Ignores files of another recipe, size or
 * version. */
int row_cache_find(struct row_store **store, const struct row_entry **entries, int64_t *entry_count,
        void *fixed, size_t fixed_bytes, const char *dir, const char *recipe);

/* Begins to write. Waits while another process writes the same files; returns 1 when it has finished, and
 * row_cache_find opens them. Else 0 with *cache, or ERR_INPUT / ERR_IO with the directory and the key to
 * set. */
int row_cache_begin(struct row_cache **cache, const char *dir, const char *recipe, size_t fixed_bytes);

/* Appends records and entries; start_bytes of an entry counts from the first record of all. Seals the
 * records. */
int row_cache_append(struct row_cache *c, uint8_t *records, int64_t len_bytes,
        const struct row_entry *entries, int64_t entry_count);

int64_t row_cache_bytes(const struct row_cache *c); /* written so far */
const char *row_cache_path(const struct row_cache *c);

/* Opens the written files, as row_cache_find; row_cache_publish then completes them under their names. */
int row_cache_open_written(struct row_cache *c, struct row_store **store, const struct row_entry **entries,
        int64_t *entry_count);
int row_cache_publish(struct row_cache *c, const struct row_store *store, const void *fixed);

/* Opens files that are known to be complete, by the path of their rows: 1 or 0, as row_cache_find. */
int row_cache_open(struct row_store **store, const struct row_entry **entries, int64_t *entry_count,
        void *fixed, size_t fixed_bytes, const char *rows_path);

/* Closes the cache, and removes it if incomplete. NULL is allowed. */
void row_cache_close(struct row_cache *c);

/* Removes data sets that no run used for ROW_CACHE_KEEP_DAYS (row_cache_find stores the time in the index
 * file), and counts the rest. Keeps other files of the directory. ERR_IO, ERR_NOMEM. */
enum { ROW_CACHE_KEEP_DAYS = 30 };
struct row_cache_use {
	int count, removed; /* data sets */
	int64_t bytes, removed_bytes;
};
int row_cache_tidy(struct row_cache_use *use, const char *dir);

#endif
