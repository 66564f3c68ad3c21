/* Reads Thrift's compact protocol, the form of Parquet's metadata.
 *
 *     struct thrift_field f = {0};
 *     while (thrift_next(t, &f))
 *             if (f.id == 3) rows = thrift_int(t, &f);
 *             else thrift_skip(t, f.type);
 *
 * The reader never reads past the end. The first error sets `failed`; after it, every call returns zero, so
 * loops end. Source: the Thrift project's specification, thrift-compact-protocol.md.
 */
#ifndef FERRY_DATA_SOURCE_THRIFT_H
#define FERRY_DATA_SOURCE_THRIFT_H

#include <stddef.h>
#include <stdint.h>

struct thrift {
	const uint8_t *at, *end;
	int failed;
};

enum thrift_type {
	THRIFT_STOP,
	THRIFT_TRUE,
	THRIFT_FALSE,
	THRIFT_I8,
	THRIFT_I16,
	THRIFT_I32,
	THRIFT_I64,
	THRIFT_DOUBLE,
	THRIFT_BINARY,
	THRIFT_LIST,
	THRIFT_SET,
	THRIFT_MAP,
	THRIFT_STRUCT
};

struct thrift_field {
	int64_t id;
	enum thrift_type type;
};

/* The next field of a struct: 1, or 0 at its end or after an error. */
int thrift_next(struct thrift *t, struct thrift_field *f);

/* The value of a field. Another type in the file is an error. */
int64_t thrift_int(struct thrift *t, const struct thrift_field *f);
int thrift_bool(struct thrift *t, const struct thrift_field *f);
void thrift_binary(struct thrift *t, const struct thrift_field *f, const uint8_t **bytes, size_t *len_bytes);

/* The number of elements, which follow. `of` is their required type: read each like a field of it. */
int64_t thrift_list(struct thrift *t, const struct thrift_field *f, enum thrift_type of);

void thrift_skip(struct thrift *t, enum thrift_type type);

/* Unsigned LEB128; pages use it, too. */
uint64_t thrift_varint(struct thrift *t);
int64_t thrift_zigzag(struct thrift *t);

#endif
