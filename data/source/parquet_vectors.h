/* Writes vectors of one length as a Parquet file, front to back.
 *
 *     parquet_vectors_open(&w, width, put, context);
 *     parquet_vectors_add(w, row);    of each row
 *     parquet_vectors_end(w);         the metadata, which come last
 *     parquet_vectors_close(w);
 *
 * The schema is what pyarrow makes of lists of fp32: one column, `embedding: list<element: float>`. Values
 * are PLAIN and uncompressed, because vectors hardly compress. A page has whole rows, at most
 * PARQUET_PAGE_BYTES of values or one row, and is in memory; a group of rows has PARQUET_GROUP_PAGES pages.
 * Source: the Parquet project's parquet.thrift, Encodings.md and LogicalTypes.md.
 */
#ifndef FERRY_DATA_SOURCE_PARQUET_VECTORS_H
#define FERRY_DATA_SOURCE_PARQUET_VECTORS_H

#include <stddef.h>
#include <stdint.h>

enum { PARQUET_PAGE_BYTES = 1 << 20, PARQUET_GROUP_PAGES = 64 };

struct parquet_vectors;

/* Gets the next bytes of the file; an error ends the writing. */
typedef int parquet_put(void *context, const void *bytes, size_t len_bytes);

/* width: at least 1. ERR_NOMEM, ERR_UNSUPPORTED (a row is larger than a page can be), errors of `put`. */
int parquet_vectors_open(struct parquet_vectors **w, int64_t width, parquet_put *put, void *context);
int parquet_vectors_add(struct parquet_vectors *w, const float *row);
int parquet_vectors_end(struct parquet_vectors *w);
void parquet_vectors_close(struct parquet_vectors *w); /* NULL is allowed */

#endif
