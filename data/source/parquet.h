/* Parquet, as its reader is cut: metadata, then the pages of one column, then rows of all columns.
 *
 * A file is row groups; a row group has one chunk for each leaf of the schema; a chunk is pages, one after
 * another, the first maybe a dictionary. A leaf's values come with two levels (Dremel, Melnik et al. 2010):
 * `def`, how many of the optional and repeated nodes above it are there, and `rep`, at which repeated node
 * the value begins a new element (0: a new row). parquet_records.c joins the leaves into JSON objects with
 * them.
 *
 * Supported: strings, integers, floats, booleans, decimals, lists, structs and maps; the encodings PLAIN,
 * dictionary, RLE, DELTA_* and BYTE_STREAM_SPLIT; pages of version 1 and 2; uncompressed, snappy, gzip, zstd.
 * Other things are refused by name. Source: the Parquet project's format/README.md, Encodings.md,
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

/* What a node's annotation makes of it. */
enum parquet_meaning {
	PARQUET_MEANING_NONE,
	PARQUET_MEANING_LIST,
	PARQUET_MEANING_MAP,
	PARQUET_MEANING_DECIMAL,
	PARQUET_MEANING_UNSIGNED,
	PARQUET_MEANING_FLOAT16
};

/* A node of the schema, in depth-first order; node 0 is the root. */
struct parquet_node {
	char *name;
	enum parquet_repetition repetition;
	enum parquet_meaning meaning;
	int child_count; /* 0: a leaf */
	int end;         /* first node behind those below this one */
	int leaf;        /* of a leaf its number, else of the first leaf below */
	int leaf_end;    /* leaves below: [leaf, leaf_end) */
	int max_def, max_rep;
	enum parquet_type type; /* of a leaf, as the next two */
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

/* Reads the metadata. ERR_INPUT: no Parquet file, or damaged; ERR_UNSUPPORTED: encrypted. */
int parquet_open(struct parquet *p, const char *path);
void parquet_close(struct parquet *p); /* takes a zeroed one */

/* ---- one column of one row group ---- */

union parquet_value {
	int64_t i;
	double d;
	struct {
		const uint8_t *data; /* in the page or the dictionary */
		uint32_t len_bytes;
	} bytes;
};

/* A level triple: `value` only where def is the leaf's max_def. */
struct parquet_cell {
	int def, rep;
	const union parquet_value *value;
};

struct parquet_column;

int parquet_column_open(struct parquet_column **c, const struct parquet *p, int group, int leaf);
void parquet_column_close(struct parquet_column *c); /* takes NULL */

/* The next triple without taking it: 1, 0 at the end of the chunk, or a negative ERR_*. Its value is valid
 * until the column's next peek after a take. */
int parquet_column_peek(struct parquet_column *c, struct parquet_cell *cell);
void parquet_column_take(struct parquet_column *c);

/* ---- decoding, by parquet_column.c alone ---- */

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

/* The runs and packed groups of RLE: count numbers of `bits` bits (at most 32) from [*at, end); *at moves
 * behind them. 0, or ERR_INPUT where the bytes end too early. */
int parquet_decode_rle(uint32_t *out, int64_t count, int bits, const uint8_t **at, const uint8_t *end);

/* Values of a page. `dictionary` is that of the chunk (NULL: none); *extra is memory that byte arrays of
 * DELTA_BYTE_ARRAY lie in (mem_free). 0, ERR_INPUT (damaged), ERR_UNSUPPORTED (the encoding), without file
 * and column. */
int parquet_decode_values(union parquet_value *out, int64_t count, int encoding,
        const struct parquet_node *leaf, const uint8_t *at, const uint8_t *end,
        const union parquet_value *dictionary, int64_t dictionary_count, uint8_t **extra);

#endif
