/* Writes vectors as a Parquet file: pages, then the metadata in Thrift's compact protocol. */
#include "data/source/parquet_vectors.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/source/parquet.h"
#include "data/source/thrift.h"

/* Values of parquet.thrift. */
enum { CONVERTED_LIST = 3, LOGICAL_LIST = 3, CODEC_NONE = 0, DATA_PAGE = 0, FORMAT_VERSION = 2 };
enum { DEFINED = 3, LEVEL_BYTES_MAX = 16 };

struct group {
	int64_t start_bytes, len_bytes, rows;
};

struct parquet_vectors {
	parquet_put *put;
	void *context;
	int64_t width, page_rows;         /* of a page at most */
	float *page;                      /* [page_rows, width] */
	int64_t rows, all_rows, at_bytes; /* in the page, in the file; bytes put so far */
	int pages;                        /* of the present group */
	struct group *groups;
	int64_t group_count, group_cap;
};

/* ---- Thrift ---- */

static void varint(struct str *out, uint64_t value)
{
	for (; value > 127; value >>= 7)
		str_add_char(out, (char)(value | 128));
	str_add_char(out, (char)value);
}

static void zigzag(struct str *out, int64_t value)
{
	varint(out, (uint64_t)value << 1 ^ (uint64_t)(value >> 63));
}

/* The head of a field; *last is the id of the one before in its struct. */
static void field(struct str *out, int *last, int id, enum thrift_type type)
{
	str_add_char(out, (char)((id - *last) << 4 | (int)type));
	*last = id;
}

static void field_int(struct str *out, int *last, int id, enum thrift_type type, int64_t value)
{
	field(out, last, id, type);
	zigzag(out, value);
}

static void binary(struct str *out, const char *text)
{
	varint(out, strlen(text));
	str_add(out, text);
}

static void list(struct str *out, int64_t count, enum thrift_type of)
{
	enum { MANY = 15 };

	str_add_char(out, (char)((count < MANY ? count : MANY) << 4 | (int)of));
	if (count >= MANY)
		varint(out, (uint64_t)count);
}

static void stop(struct str *out)
{
	str_add_char(out, THRIFT_STOP);
}

/* ---- pages ---- */

static int put(struct parquet_vectors *w, const void *bytes, size_t len_bytes)
{
	w->at_bytes += (int64_t)len_bytes;
	return w->put(w->context, bytes, len_bytes);
}

/* A run of one level, in the hybrid of runs and packed numbers. */
static void run(struct str *out, int64_t count, int level)
{
	if (!count)
		return;
	varint(out, (uint64_t)count << 1);
	str_add_char(out, (char)level);
}

/* Levels behind their length: each row begins anew and goes on, and all values are there. */
static void levels(struct str *out, const struct parquet_vectors *w)
{
	struct str repetition = {0}, definition = {0};

	for (int64_t i = 0; i < w->rows; i++) {
		run(&repetition, 1, 0);
		run(&repetition, w->width - 1, 1);
	}
	run(&definition, w->rows * w->width, DEFINED);
	for (int i = 0; i < 2; i++) {
		const struct str *of = i ? &definition : &repetition;

		for (int shift = 0; shift < 32; shift += 8)
			str_add_char(out, (char)(of->len_bytes >> shift));
		str_add_bytes(out, of->data, of->len_bytes);
	}
	str_free(&repetition);
	str_free(&definition);
}

static void page_head(struct str *out, const struct parquet_vectors *w, int64_t len_bytes)
{
	int last = 0, inner = 0;

	field_int(out, &last, 1, THRIFT_I32, DATA_PAGE);
	field_int(out, &last, 2, THRIFT_I32, len_bytes);
	field_int(out, &last, 3, THRIFT_I32, len_bytes);
	field(out, &last, 5, THRIFT_STRUCT);
	field_int(out, &inner, 1, THRIFT_I32, w->rows * w->width);
	field_int(out, &inner, 2, THRIFT_I32, PARQUET_PLAIN);
	field_int(out, &inner, 3, THRIFT_I32, PARQUET_RLE);
	field_int(out, &inner, 4, THRIFT_I32, PARQUET_RLE);
	stop(out);
	stop(out);
}

static int group_begin(struct parquet_vectors *w)
{
	if (w->group_count == w->group_cap) {
		int64_t cap = 2 * w->group_cap + 16;
		struct group *grown = mem_resize(w->groups, (size_t)cap, sizeof(*grown));

		if (!grown)
			return ERR_NOMEM;
		w->groups = grown;
		w->group_cap = cap;
	}
	w->groups[w->group_count++] = (struct group){.start_bytes = w->at_bytes};
	return 0;
}

static int page_end(struct parquet_vectors *w)
{
	size_t value_bytes = (size_t)(w->rows * w->width) * sizeof(float);
	struct str head = {0}, level = {0};
	struct group *g;
	int rc = w->rows && !w->pages ? group_begin(w) : 0;

	if (rc || !w->rows)
		return rc;
	levels(&level, w);
	page_head(&head, w, (int64_t)(level.len_bytes + value_bytes));
	rc = str_check(&level);
	rc = rc ? rc : str_check(&head);
	if (!rc)
		rc = put(w, head.data, head.len_bytes);
	if (!rc)
		rc = put(w, level.data, level.len_bytes);
	if (!rc)
		rc = put(w, w->page, value_bytes);
	g = &w->groups[w->group_count - 1];
	g->len_bytes = w->at_bytes - g->start_bytes;
	g->rows += w->rows;
	w->all_rows += w->rows;
	w->rows = 0;
	w->pages = (w->pages + 1) % PARQUET_GROUP_PAGES;
	str_free(&head);
	str_free(&level);
	return rc;
}

/* ---- metadata ---- */

/* type < 0: a node with one child. */
static void schema_node(struct str *out, const char *name, enum parquet_repetition repetition, int type)
{
	int last = 0;

	if (type >= 0)
		field_int(out, &last, 1, THRIFT_I32, type);
	field_int(out, &last, 3, THRIFT_I32, repetition);
	field(out, &last, 4, THRIFT_BINARY);
	binary(out, name);
	if (type < 0)
		field_int(out, &last, 5, THRIFT_I32, 1);
}

static void schema(struct str *out)
{
	int last = 6, logical = 0;

	list(out, 4, THRIFT_STRUCT);
	schema_node(out, "schema", PARQUET_REQUIRED, -1);
	stop(out);
	schema_node(out, "embedding", PARQUET_OPTIONAL, -1);
	str_add_char(out, 1 << 4 | THRIFT_I32); /* field 6 behind 5 */
	zigzag(out, CONVERTED_LIST);
	field(out, &last, 10, THRIFT_STRUCT);
	field(out, &logical, LOGICAL_LIST, THRIFT_STRUCT);
	stop(out); /* ListType */
	stop(out); /* LogicalType */
	stop(out);
	schema_node(out, "list", PARQUET_REPEATED, -1);
	stop(out);
	schema_node(out, "element", PARQUET_OPTIONAL, PARQUET_FLOAT);
	stop(out);
}

static void column(struct str *out, const struct parquet_vectors *w, const struct group *g)
{
	int last = 0, inner = 0;

	field_int(out, &last, 2, THRIFT_I64, 0); /* no copy of the column's metadata elsewhere */
	field(out, &last, 3, THRIFT_STRUCT);
	field_int(out, &inner, 1, THRIFT_I32, PARQUET_FLOAT);
	field(out, &inner, 2, THRIFT_LIST);
	list(out, 2, THRIFT_I32);
	zigzag(out, PARQUET_PLAIN);
	zigzag(out, PARQUET_RLE);
	field(out, &inner, 3, THRIFT_LIST);
	list(out, 3, THRIFT_BINARY);
	binary(out, "embedding");
	binary(out, "list");
	binary(out, "element");
	field_int(out, &inner, 4, THRIFT_I32, CODEC_NONE);
	field_int(out, &inner, 5, THRIFT_I64, g->rows * w->width);
	field_int(out, &inner, 6, THRIFT_I64, g->len_bytes);
	field_int(out, &inner, 7, THRIFT_I64, g->len_bytes);
	field_int(out, &inner, 9, THRIFT_I64, g->start_bytes);
	stop(out);
	stop(out);
}

static void metadata(struct str *out, const struct parquet_vectors *w)
{
	int last = 0;

	field_int(out, &last, 1, THRIFT_I32, FORMAT_VERSION);
	field(out, &last, 2, THRIFT_LIST);
	schema(out);
	field_int(out, &last, 3, THRIFT_I64, w->all_rows);
	field(out, &last, 4, THRIFT_LIST);
	list(out, w->group_count, THRIFT_STRUCT);
	for (int64_t i = 0; i < w->group_count; i++) {
		const struct group *g = &w->groups[i];
		int inner = 0;

		field(out, &inner, 1, THRIFT_LIST);
		list(out, 1, THRIFT_STRUCT);
		column(out, w, g);
		field_int(out, &inner, 2, THRIFT_I64, g->len_bytes);
		field_int(out, &inner, 3, THRIFT_I64, g->rows);
		stop(out);
	}
	field(out, &last, 6, THRIFT_BINARY);
	binary(out, "ferry");
	stop(out);
}

/* ---- the file ---- */

static const char magic[] = "PAR1";

int parquet_vectors_open(struct parquet_vectors **out, int64_t width, parquet_put *to, void *context)
{
	int64_t row_bytes = width * (int64_t)sizeof(float);
	struct parquet_vectors *w = NULL;
	int rc = 0;

	*out = NULL;
	if (width > INT32_MAX / (int64_t)sizeof(float) - LEVEL_BYTES_MAX)
		return err_set(ERR_UNSUPPORTED,
		        "a row of %lld numbers is larger than a page of Parquet can be; write .npy",
		        (long long)width);
	w = mem_alloc(1, sizeof(*w));
	if (!w)
		return ERR_NOMEM;
	*w = (struct parquet_vectors){.put = to,
	        .context = context,
	        .width = width,
	        .page_rows = row_bytes < PARQUET_PAGE_BYTES ? PARQUET_PAGE_BYTES / row_bytes : 1};
	w->page = mem_alloc((size_t)(w->page_rows * width), sizeof(*w->page));
	rc = w->page ? put(w, magic, strlen(magic)) : ERR_NOMEM;
	if (rc) {
		parquet_vectors_close(w);
		return rc;
	}
	*out = w;
	return 0;
}

int parquet_vectors_add(struct parquet_vectors *w, const float *row)
{
	memcpy(w->page + w->rows * w->width, row, (size_t)w->width * sizeof(*row));
	return ++w->rows == w->page_rows ? page_end(w) : 0;
}

int parquet_vectors_end(struct parquet_vectors *w)
{
	struct str meta = {0};
	int rc = page_end(w);
	size_t len_bytes;

	metadata(&meta, w);
	len_bytes = meta.len_bytes;
	for (int shift = 0; shift < 32; shift += 8)
		str_add_char(&meta, (char)(len_bytes >> shift));
	str_add(&meta, magic);
	rc = rc ? rc : str_check(&meta);
	if (!rc)
		rc = put(w, meta.data, meta.len_bytes);
	str_free(&meta);
	return rc;
}

void parquet_vectors_close(struct parquet_vectors *w)
{
	if (!w)
		return;
	mem_free(w->page);
	mem_free(w->groups);
	mem_free(w);
}
