/* Parquet reader in three layers: metadata, then the pages of one column, then rows of all columns.
 *
 * A file has row groups. A row group has one chunk for each leaf of the schema. A chunk is a sequence of
 * pages; the first may be a dictionary. Each value of a leaf has two levels (Dremel, Melnik et al. 2010):
 * `def` counts the optional and repeated nodes above it that are present. `rep` is the repeated node at
 * which the value begins a new element (0: a new row). From these, parquet_records.c joins leaves into
 * JSON objects.
 *
 * Supported: strings, integers, floats, booleans, decimals, JSON, lists, structs and maps; the encodings
 * PLAIN, dictionary, RLE, DELTA_* and BYTE_STREAM_SPLIT; pages of version 1 and 2; uncompressed, snappy,
 * gzip, zstd. Anything else is refused by name. Source: the Parquet project's format/README.md, Encodings.md,
 * LogicalTypes.md and parquet.thrift.
 */
#ifndef FERRY_DATA_SOURCE_PARQUET_H
#define FERRY_DATA_SOURCE_PARQUET_H

#include <stddef.h>
#include <stdint.h>

enum parquet_type {
	PARQUET_BOOLEAN,
	PARQUET_INT32,
	PARQUET_INT64,
	PARQUET_INT96,
	PARQUET_FLOAT,
	PARQUET_DOUBLE,
	PARQUET_BYTE_ARRAY,
	PARQUET_FIXED,
	PARQUET_TYPE_COUNT
};

enum parquet_repetition { PARQUET_REQUIRED, PARQUET_OPTIONAL, PARQUET_REPEATED };

/* The meaning that a node's annotation gives to its values. */
enum parquet_meaning {
	PARQUET_MEANING_NONE,
	PARQUET_MEANING_LIST,
	PARQUET_MEANING_MAP,
	PARQUET_MEANING_DECIMAL,
	PARQUET_MEANING_UNSIGNED,
	PARQUET_MEANING_FLOAT16,
	PARQUET_MEANING_JSON
};

/* A node of the schema, in depth-first order; node 0 is the root. */
struct parquet_node {
	char *name;
	enum parquet_repetition repetition;
	enum parquet_meaning meaning;
	int child_count; /* 0: a leaf */
	int end;         /* the first node after its descendants */
	int leaf;        /* the number of this leaf, or of the first leaf below */
	int leaf_end;    /* leaves below: [leaf, leaf_end) */
	int max_def, max_rep;
	enum parquet_type type; /* leaves only, like the next two fields */
	int type_bytes;         /* of PARQUET_FIXED */
	int scale;              /* of a decimal */
};

struct parquet_chunk {
	int64_t offset_bytes, len_bytes; /* in the file, the dictionary included */
	int64_t value_count;             /* levels, nulls included */
	int codec;
};

struct parquet {
	const char *path;
	int fd;
	int64_t file_bytes;
	struct parquet_node *nodes;
	int node_count, leaf_count;
	int *leaf_nodes; /* [leaf_count] */
	int group_count;
	int64_t *group_rows;          /* [group_count] */
	struct parquet_chunk *chunks; /* [group_count][leaf_count] */
};

/* Reads the metadata. ERR_INPUT: not a Parquet file, or damaged; ERR_UNSUPPORTED: encrypted. */
int parquet_open(struct parquet *p, const char *path);
void parquet_close(struct parquet *p); /* a zeroed one is allowed */

/* ---- one column of one row group ---- */

union parquet_value {
	int64_t i;
	double d;
	struct {
		const uint8_t *data; /* in the page or the dictionary */
		uint32_t len_bytes;
	} bytes;
};

/* A cell: the two levels, and the value if def is the leaf's max_def (else NULL). */
struct parquet_cell {
	int def, rep;
	const union parquet_value *value;
};

struct parquet_column;

int parquet_column_open(struct parquet_column **c, const struct parquet *p, int group, int leaf);
void parquet_column_close(struct parquet_column *c); /* NULL is allowed */

/* The next cell, without consuming it: 1, 0 at the end of the chunk, or a negative ERR_*. Its value is valid
 * until the next peek after a take. */
int parquet_column_peek(struct parquet_column *c, struct parquet_cell *cell);
void parquet_column_take(struct parquet_column *c);

/* ---- decoding, for parquet_column.c only ---- */

enum parquet_encoding {
	PARQUET_PLAIN = 0,
	PARQUET_PLAIN_DICTIONARY = 2,
	PARQUET_RLE = 3,
	PARQUET_BIT_PACKED = 4,
	PARQUET_DELTA_INT = 5,
	PARQUET_DELTA_LENGTH = 6,
	PARQUET_DELTA_BYTES = 7,
	PARQUET_RLE_DICTIONARY = 8,
	PARQUET_STREAM_SPLIT = 9
};

/* Decodes runs and packed groups of RLE: count numbers of `bits` bits (at most 32) from [*at, end). *at moves
 * past them. 0, or ERR_INPUT if the bytes end too early. */
int parquet_decode_rle(uint32_t *out, int64_t count, int bits, const uint8_t **at, const uint8_t *end);

/* Decodes the values of a page. `dictionary` belongs to the chunk (NULL: none). *extra is memory for
 * DELTA_BYTE_ARRAY and BYTE_STREAM_SPLIT; the caller frees it with mem_free. 0, ERR_INPUT (damaged),
 * ERR_UNSUPPORTED (the encoding); messages lack file and column. */
int parquet_decode_values(union parquet_value *out, int64_t count, int encoding,
        const struct parquet_node *leaf, const uint8_t *at, const uint8_t *end,
        const union parquet_value *dictionary, int64_t dictionary_count, uint8_t **extra);

#endif
