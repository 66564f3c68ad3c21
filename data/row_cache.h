/* Rows beyond memory, in files: written once, found again by what they were made from.
 *
 * A cache directory has two files for each data set: KEY.rows with the records (data/row_store.h) and
 * KEY.index with their index and what else a dataset knows. KEY is a hash of a *recipe*, a text that names
 * the files that were read with size and time, the tokenizer, the template and every key that changes a row;
 * the index holds the recipe itself, so that no hash decides alone.
 *
 * Files are written under temporary names and renamed when they are whole, the index last: an interrupted
 * build leaves nothing that is taken for a cache. One process builds at a time, by a lock (base/dir_lock.h);
 * others wait for it and use what it made. With an empty recipe (a pipe was read) the files have no names
 * once they are open.
 */
#ifndef FERRY_DATA_ROW_CACHE_H
#define FERRY_DATA_ROW_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include "data/row_store.h"

struct row_cache; /* being written */

/* Looks for whole files of the recipe: 1 with *store, *entries, *entry_count and `fixed` (fixed_bytes of what
 * the writer left), 0 where there are none, ERR_NOMEM. Files of another recipe, size or version count as
 * none. */
int row_cache_find(struct row_store **store, const struct row_entry **entries, int64_t *entry_count,
        void *fixed, size_t fixed_bytes, const char *dir, const char *recipe);

/* Begins to write. Waits while another process writes the same; 1: it has finished, and row_cache_find has
 * it. 0 with *cache, or ERR_INPUT / ERR_IO with the directory and what to set. */
int row_cache_begin(struct row_cache **cache, const char *dir, const char *recipe, size_t fixed_bytes);

/* Appends records and entries, whose start_bytes count from the first record of all. Seals the records. */
int row_cache_append(struct row_cache *c, uint8_t *records, int64_t len_bytes,
        const struct row_entry *entries, int64_t entry_count);

int64_t row_cache_bytes(const struct row_cache *c); /* written so far */
const char *row_cache_path(const struct row_cache *c);

/* Opens what was written, as row_cache_find; row_cache_publish then makes it whole under its name. */
int row_cache_open_written(struct row_cache *c, struct row_store **store, const struct row_entry **entries,
        int64_t *entry_count);
int row_cache_publish(struct row_cache *c, const struct row_store *store, const void *fixed);

/* Files that are known to be whole, by the path of their rows: 1 or 0, as row_cache_find. */
int row_cache_open(struct row_store **store, const struct row_entry **entries, int64_t *entry_count,
        void *fixed, size_t fixed_bytes, const char *rows_path);

/* Ends, whether it is whole or not: what is not is removed. NULL is allowed. */
void row_cache_close(struct row_cache *c);

/* Removes data sets that no run has used for ROW_CACHE_KEEP_DAYS (row_cache_find notes the time in the index
 * file), and counts what stays. Other files of the directory are left alone. ERR_IO, ERR_NOMEM. */
enum { ROW_CACHE_KEEP_DAYS = 30 };
struct row_cache_use {
	int count, removed; /* data sets */
	int64_t bytes, removed_bytes;
};
int row_cache_tidy(struct row_cache_use *use, const char *dir);

#endif
