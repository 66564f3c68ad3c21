/* Storage of rows of ids and labels: in memory, or in a file that is read row by row.
 *
 * A row is a *record* of a multiple of four bytes, the same in memory and in files:
 *
 *     uint32  bit 0: the record has its own labels; bits 1..31: checksum of the rest (0 in memory)
 *     int32   ids[count]
 *     int32   labels[count], only if a label is neither DATASET_IGNORE nor the token's id
 *     bits    trained[count], in whole bytes, padded with zeros: the label is not DATASET_IGNORE
 *     float   vector[vector_count], the same number in all records of a data set; mostly 0
 *
 * An index has the start of each record. Records and index are written once, front to back, and only read
 * afterwards, by any thread. Records of a file are read into a buffer (pread), so memory holds one row, not
 * all rows read so far. The index of a file is read into memory: a mapped one would end the process if
 * somebody cut the file.
 *
 * A record that is damaged or cannot be read costs the file its name, so that the next process writes it
 * again. `mend` does so at once.
 */
#ifndef FERRY_DATA_ROWS_ROW_STORE_H
#define FERRY_DATA_ROWS_ROW_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "data/chat/label.h"

/* One entry of the index. */
struct row_entry {
	int64_t start_bytes;
	int32_t token_count, target_count;
};

struct row_store {
	int refs;
	uint8_t *memory; /* records; NULL if they are in a file */
	int64_t len_bytes;
	int fd; /* -1: in memory */
	char *path;
	void *index; /* the index file's bytes */
	size_t index_bytes;
	/* Puts a file with the same records behind `fd` (row_store_replace). NULL: reading fails instead.
	 * Called by the thread that reads, with the reason as the error text; returns 0 or an error. */
	int (*mend)(void *context, const struct row_store *s);
	void *mend_context;
};

/* A new empty store in memory, with one reference; NULL: out of memory. */
struct row_store *row_store_new(void);
struct row_store *row_store_share(struct row_store *s);
void row_store_release(struct row_store *s); /* NULL is allowed */

/* A view of a row. The pointers are valid as long as the store, or until the buffer is reused. */
struct row_view {
	int64_t token_count;
	const int32_t *ids;
	const int32_t *labels; /* NULL: each is its id, or DATASET_IGNORE */
	const uint8_t *trained;
	const float *vector; /* [vector_count] */
};

/* Zero-initialise; for one thread. */
struct row_buffer {
	void *block;
	size_t cap_bytes;
};
void row_buffer_free(struct row_buffer *b);

/* 0, ERR_NOMEM, ERR_IO (also for a damaged file). */
int row_store_read(struct row_view *view, struct row_buffer *buffer, const struct row_store *s,
        const struct row_entry *entry, int64_t vector_count);

/* The label at a position, not shifted. */
static inline int32_t row_label(const struct row_view *v, int64_t position)
{
	if (!(v->trained[position / 8] >> (position % 8) & 1))
		return DATASET_IGNORE;
	return v->labels ? v->labels[position] : v->ids[position];
}

/* Lets `s` read the file of `from`, which has the same records, from now on. ERR_IO. */
int row_store_replace(const struct row_store *s, const struct row_store *from);

/* ---- writing ---- */

enum row_labels { ROW_LABELS_SHARED, ROW_LABELS_OWN };
int64_t row_record_bytes(int64_t token_count, enum row_labels labels, int64_t vector_count);

/* Writes a record without its vector, and returns where that goes; labels NULL: the first `masked` are
 * DATASET_IGNORE and the others the ids. */
float *row_record_write(void *record, const int32_t *ids, const int32_t *labels, int64_t token_count,
        int64_t masked, enum row_labels own);

/* Puts the checksum into a record for a file. */
void row_record_seal(void *record, int64_t len_bytes);

#endif
