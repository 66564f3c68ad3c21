/* Reads one column of one row group: decompresses its pages one by one, and decodes values and levels. */
#include "data/source/parquet.h"

#include <inttypes.h>
#include <snappy-c.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "data/source/thrift.h"

enum { HEAD_BYTES_MAX = 1 << 16, PAGE_BYTES_MAX = 1 << 30, PAGE_VALUES_MAX = 1 << 24 };
enum page_type { PAGE_DATA, PAGE_INDEX, PAGE_DICTIONARY, PAGE_DATA_V2 };

/* A page's values and the memory that they point into. */
struct page {
	uint8_t *bytes, *extra;
	union parquet_value *values;
	int64_t value_count;
};

struct parquet_column {
	const struct parquet *p;
	const struct parquet_node *leaf;
	struct parquet_chunk chunk;
	int64_t at_bytes;   /* of the next page in the file */
	int64_t cells_left; /* cells of the chunk in pages not read yet */
	struct page dictionary, page;
	int has_dictionary;
	uint32_t *def, *rep;             /* of the page; NULL: every def is max_def, every rep is 0 */
	int64_t cell_count, cell, value; /* in the page */
};

struct page_head {
	int64_t type, unpacked_bytes, packed_bytes;
	int64_t value_count, encoding;
	int64_t def_encoding, rep_encoding;      /* of PAGE_DATA */
	int64_t def_bytes, rep_bytes, is_packed; /* of PAGE_DATA_V2 */
};

static int column_error(const struct parquet_column *c, int rc)
{
	if (rc == ERR_INPUT || rc == ERR_UNSUPPORTED)
		err_note(rc, "%s: column \"%s\", at byte %" PRId64, c->p->path, c->leaf->name, c->at_bytes);
	return rc;
}

static void page_free(struct page *p)
{
	mem_free(p->bytes);
	mem_free(p->extra);
	mem_free(p->values);
	*p = (struct page){0};
}

static void drop_page(struct parquet_column *c)
{
	page_free(&c->page);
	mem_free(c->def);
	mem_free(c->rep);
	c->def = c->rep = NULL;
	c->cell_count = c->cell = c->value = 0;
}

/* Reads the inner struct of a page's head. The three kinds use different field numbers. */
static void read_inner(struct thrift *t, struct page_head *h, int64_t kind)
{
	struct thrift_field f = {0};

	while (thrift_next(t, &f)) {
		if (f.id == 1)
			h->value_count = thrift_int(t, &f);
		else if (kind == 8 && f.id == 4)
			h->encoding = thrift_int(t, &f);
		else if (kind == 8 && f.id == 5)
			h->def_bytes = thrift_int(t, &f);
		else if (kind == 8 && f.id == 6)
			h->rep_bytes = thrift_int(t, &f);
		else if (kind == 8 && f.id == 7)
			h->is_packed = thrift_bool(t, &f);
		else if (kind != 8 && f.id == 2)
			h->encoding = thrift_int(t, &f);
		else if (kind == 5 && f.id == 3)
			h->def_encoding = thrift_int(t, &f);
		else if (kind == 5 && f.id == 4)
			h->rep_encoding = thrift_int(t, &f);
		else
			thrift_skip(t, f.type);
	}
}

/* Reads the head at at_bytes and moves past it. */
static int read_head(struct parquet_column *c, struct page_head *h)
{
	int64_t left = c->chunk.offset_bytes + c->chunk.len_bytes - c->at_bytes;
	size_t want = left < HEAD_BYTES_MAX ? (size_t)left : HEAD_BYTES_MAX;
	uint8_t *bytes = mem_alloc(want, 1);
	struct thrift t = {.at = bytes, .end = bytes ? bytes + want : NULL};
	struct thrift_field f = {0};
	int rc = bytes ? file_read_at(c->p->fd, c->p->path, bytes, want, c->at_bytes) : ERR_NOMEM;

	*h = (struct page_head){
	        .type = -1, .def_encoding = PARQUET_RLE, .rep_encoding = PARQUET_RLE, .is_packed = 1};
	while (rc == 0 && thrift_next(&t, &f))
		if (f.id == 1)
			h->type = thrift_int(&t, &f);
		else if (f.id == 2)
			h->unpacked_bytes = thrift_int(&t, &f);
		else if (f.id == 3)
			h->packed_bytes = thrift_int(&t, &f);
		else if ((f.id == 5 || f.id == 7 || f.id == 8) && f.type == THRIFT_STRUCT)
			read_inner(&t, h, f.id);
		else
			thrift_skip(&t, f.type);
	c->at_bytes += rc == 0 ? t.at - bytes : 0;
	left -= rc == 0 ? t.at - bytes : 0;
	mem_free(bytes);
	if (rc < 0)
		return rc;
	if (t.failed || h->packed_bytes < 0 || h->packed_bytes > left || h->unpacked_bytes < 0 ||
	        h->unpacked_bytes > PAGE_BYTES_MAX || h->value_count < 0 || h->value_count > PAGE_VALUES_MAX)
		return err_set(ERR_INPUT, "the header of a page is damaged");
	return 0;
}

static int gunzip(uint8_t *out, size_t out_bytes, const uint8_t *in, size_t in_bytes)
{
	z_stream z = {.next_in = (uint8_t *)in, .avail_in = (unsigned)in_bytes, .next_out = out};
	int rc;

	z.avail_out = (unsigned)out_bytes;
	if (inflateInit2(&z, 15 + 32) != Z_OK) /* gzip or zlib */
		return err_set(ERR_NOMEM, "out of memory");
	rc = inflate(&z, Z_FINISH);
	inflateEnd(&z);
	return rc == Z_STREAM_END && z.avail_out == 0 ? 0 : ERR_INPUT;
}

static int unpack(int codec, uint8_t *out, size_t out_bytes, const uint8_t *in, size_t in_bytes)
{
	static const char *const names[] = {
	        "uncompressed", "snappy", "gzip", "LZO", "Brotli", "LZ4", "zstd", "LZ4"};
	size_t len = out_bytes;
	int rc = 0;

	switch (codec) {
	case 0:
		if (in_bytes == out_bytes)
			memcpy(out, in, in_bytes);
		rc = in_bytes == out_bytes ? 0 : ERR_INPUT;
		break;
	case 1:
		rc = snappy_uncompressed_length((const char *)in, in_bytes, &len) == SNAPPY_OK &&
		                     len == out_bytes &&
		                     snappy_uncompress((const char *)in, in_bytes, (char *)out, &len) ==
		                             SNAPPY_OK
		             ? 0
		             : ERR_INPUT;
		break;
	case 2:
		rc = gunzip(out, out_bytes, in, in_bytes);
		break;
	case 6:
		rc = ZSTD_decompress(out, out_bytes, in, in_bytes) == out_bytes ? 0 : ERR_INPUT;
		break;
	default:
		return err_set(ERR_UNSUPPORTED,
		        "compressed with %s; ferry reads snappy, gzip, zstd and uncompressed columns",
		        codec >= 0 && codec < (int)(sizeof(names) / sizeof(names[0])) ? names[codec]
		                                                                      : "an unknown method");
	}
	return rc == ERR_INPUT ? err_set(rc, "a page cannot be unpacked") : rc;
}

/* Reads a page and decompresses it from byte `plain_bytes` on: levels of version 2 are never compressed. */
static int read_bytes(struct parquet_column *c, const struct page_head *h, size_t plain_bytes, uint8_t **out)
{
	size_t packed_bytes = (size_t)h->packed_bytes, unpacked_bytes = (size_t)h->unpacked_bytes;
	uint8_t *packed = mem_alloc(packed_bytes, 1), *bytes = mem_alloc(unpacked_bytes, 1);
	int rc = packed && bytes ? 0 : ERR_NOMEM;

	if (rc == 0 && (plain_bytes > packed_bytes || plain_bytes > unpacked_bytes))
		rc = err_set(ERR_INPUT, "the header of a page is damaged");
	if (rc == 0)
		rc = file_read_at(c->p->fd, c->p->path, packed, packed_bytes, c->at_bytes);
	if (rc == 0) {
		memcpy(bytes, packed, plain_bytes);
		if (unpacked_bytes > plain_bytes || packed_bytes > plain_bytes)
			rc = unpack(h->is_packed ? c->chunk.codec : 0, bytes + plain_bytes,
			        unpacked_bytes - plain_bytes, packed + plain_bytes,
			        packed_bytes - plain_bytes);
	}
	mem_free(packed);
	if (rc < 0) {
		mem_free(bytes);
		bytes = NULL;
	}
	*out = bytes;
	return rc;
}

static int read_dictionary(struct parquet_column *c, const struct page_head *h)
{
	struct page *d = &c->dictionary;
	int rc;

	if (c->has_dictionary)
		return err_set(ERR_INPUT, "the column has a second dictionary");
	rc = read_bytes(c, h, 0, &d->bytes);
	if (rc == 0 && !(d->values = mem_alloc((size_t)h->value_count, sizeof(*d->values))))
		rc = ERR_NOMEM;
	if (rc == 0)
		rc = parquet_decode_values(d->values, h->value_count, PARQUET_PLAIN, c->leaf, d->bytes,
		        d->bytes + h->unpacked_bytes, NULL, 0, &d->extra);
	d->value_count = h->value_count;
	c->has_dictionary = rc == 0;
	return rc;
}

static int bits_for(int max)
{
	int bits = 0;

	while (max >> bits)
		bits++;
	return bits;
}

/* Reads one kind of levels from [*at, end). len_bytes -1: their length stands before them. */
static int read_levels(
        uint32_t **levels, int64_t count, int max, int64_t len_bytes, const uint8_t **at, const uint8_t *end)
{
	const uint8_t *from = *at;
	int rc;

	if (max == 0 && len_bytes < 0)
		return 0;
	if (len_bytes < 0) {
		if (end - from < 4)
			return err_set(ERR_INPUT, "a page ends inside its levels");
		len_bytes = from[0] | from[1] << 8 | from[2] << 16 | (int64_t)from[3] << 24;
		from += 4;
	}
	if (len_bytes > end - from)
		return err_set(ERR_INPUT, "a page ends inside its levels");
	*at = from + len_bytes;
	if (max == 0)
		return 0;
	*levels = mem_alloc((size_t)count, sizeof(**levels));
	rc = *levels ? parquet_decode_rle(*levels, count, bits_for(max), &from, *at) : ERR_NOMEM;
	for (int64_t i = 0; rc == 0 && i < count; i++)
		if ((*levels)[i] > (uint32_t)max)
			rc = err_set(ERR_INPUT, "a level exceeds the maximum of the schema");
	return rc;
}

static int read_data(struct parquet_column *c, const struct page_head *h)
{
	int is_v2 = h->type == PAGE_DATA_V2, rc;
	const uint8_t *at, *end;

	if (h->value_count > c->cells_left)
		return err_set(ERR_INPUT, "more values than the metadata says");
	if (h->def_bytes < 0 || h->rep_bytes < 0 || h->def_bytes + h->rep_bytes > h->packed_bytes)
		return err_set(ERR_INPUT, "the header of a page is damaged");
	if (!is_v2 && ((c->leaf->max_def && h->def_encoding != PARQUET_RLE) ||
	                      (c->leaf->max_rep && h->rep_encoding != PARQUET_RLE)))
		return err_set(ERR_UNSUPPORTED, "levels in the old encoding BIT_PACKED are not supported");
	rc = read_bytes(c, h, is_v2 ? (size_t)(h->def_bytes + h->rep_bytes) : 0, &c->page.bytes);
	if (rc < 0)
		return rc;
	at = c->page.bytes;
	end = at + h->unpacked_bytes;
	c->cell_count = h->value_count;
	rc = read_levels(&c->rep, c->cell_count, c->leaf->max_rep, is_v2 ? h->rep_bytes : -1, &at, end);
	if (rc == 0)
		rc = read_levels(
		        &c->def, c->cell_count, c->leaf->max_def, is_v2 ? h->def_bytes : -1, &at, end);
	c->page.value_count = c->cell_count;
	for (int64_t i = 0; rc == 0 && c->def && i < c->cell_count; i++)
		c->page.value_count -= c->def[i] != (uint32_t)c->leaf->max_def;
	if (rc == 0 && !(c->page.values = mem_alloc((size_t)c->page.value_count, sizeof(*c->page.values))))
		rc = ERR_NOMEM;
	if (rc == 0)
		rc = parquet_decode_values(c->page.values, c->page.value_count, (int)h->encoding, c->leaf, at,
		        end, c->has_dictionary ? c->dictionary.values : NULL, c->dictionary.value_count,
		        &c->page.extra);
	c->cells_left -= c->cell_count;
	return rc;
}

int parquet_column_open(struct parquet_column **out, const struct parquet *p, int group, int leaf)
{
	struct parquet_column *c = mem_alloc(1, sizeof(*c));

	*out = c;
	if (!c)
		return ERR_NOMEM;
	c->p = p;
	c->leaf = &p->nodes[p->leaf_nodes[leaf]];
	c->chunk = p->chunks[(int64_t)group * p->leaf_count + leaf];
	c->at_bytes = c->chunk.offset_bytes;
	c->cells_left = c->chunk.value_count;
	return 0;
}

void parquet_column_close(struct parquet_column *c)
{
	if (!c)
		return;
	drop_page(c);
	page_free(&c->dictionary);
	mem_free(c);
}

int parquet_column_peek(struct parquet_column *c, struct parquet_cell *cell)
{
	struct page_head h;

	while (c->cell == c->cell_count) {
		int rc;

		drop_page(c);
		if (c->cells_left == 0)
			return 0;
		if (c->at_bytes == c->chunk.offset_bytes + c->chunk.len_bytes)
			return column_error(c, err_set(ERR_INPUT, "fewer values than the metadata says"));
		rc = read_head(c, &h);
		if (rc == 0 && h.type == PAGE_DICTIONARY)
			rc = read_dictionary(c, &h);
		else if (rc == 0 && (h.type == PAGE_DATA || h.type == PAGE_DATA_V2))
			rc = read_data(c, &h);
		if (rc < 0)
			return column_error(c, rc);
		c->at_bytes += h.packed_bytes;
	}
	cell->def = c->def ? (int)c->def[c->cell] : c->leaf->max_def;
	cell->rep = c->rep ? (int)c->rep[c->cell] : 0;
	cell->value = cell->def == c->leaf->max_def ? &c->page.values[c->value] : NULL;
	return 1;
}

void parquet_column_take(struct parquet_column *c)
{
	c->value += !c->def || c->def[c->cell] == (uint32_t)c->leaf->max_def;
	c->cell++;
}
