/* Reads the metadata at the end of a Parquet file: schema, row groups, and the place of each column. */
#include "data/source/parquet.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "data/source/thrift.h"

enum { TAIL_BYTES = 8, META_BYTES_MAX = 1 << 30, NODES_MAX = 10000, DEPTH_MAX = 64 };

/* Values of ConvertedType and fields of LogicalType in parquet.thrift that ferry uses. */
enum { CONVERTED_MAP = 1, CONVERTED_MAP_KEY_VALUE = 2, CONVERTED_LIST = 3, CONVERTED_DECIMAL = 5 };
enum { CONVERTED_UINT_8 = 11, CONVERTED_UINT_64 = 14, CONVERTED_JSON = 19 };
enum { LOGICAL_MAP = 2, LOGICAL_LIST = 3, LOGICAL_DECIMAL = 5, LOGICAL_INTEGER = 10 };
enum { LOGICAL_JSON = 12, LOGICAL_FLOAT16 = 15 };

static enum parquet_meaning meaning_of_converted(int64_t converted)
{
	if (converted == CONVERTED_MAP || converted == CONVERTED_MAP_KEY_VALUE)
		return PARQUET_MEANING_MAP;
	if (converted == CONVERTED_LIST)
		return PARQUET_MEANING_LIST;
	if (converted == CONVERTED_DECIMAL)
		return PARQUET_MEANING_DECIMAL;
	if (converted >= CONVERTED_UINT_8 && converted <= CONVERTED_UINT_64)
		return PARQUET_MEANING_UNSIGNED;
	if (converted == CONVERTED_JSON)
		return PARQUET_MEANING_JSON;
	return PARQUET_MEANING_NONE;
}

/* LogicalType is a union: a struct with one field. */
static void read_logical(struct thrift *t, struct parquet_node *n)
{
	struct thrift_field f = {0};

	while (thrift_next(t, &f)) {
		struct thrift_field inner = {0};

		if (f.type != THRIFT_STRUCT) {
			thrift_skip(t, f.type);
			continue;
		}
		if (f.id == LOGICAL_MAP)
			n->meaning = PARQUET_MEANING_MAP;
		if (f.id == LOGICAL_LIST)
			n->meaning = PARQUET_MEANING_LIST;
		if (f.id == LOGICAL_JSON)
			n->meaning = PARQUET_MEANING_JSON;
		if (f.id == LOGICAL_FLOAT16)
			n->meaning = PARQUET_MEANING_FLOAT16;
		if (f.id == LOGICAL_DECIMAL)
			n->meaning = PARQUET_MEANING_DECIMAL;
		while (thrift_next(t, &inner)) {
			if (f.id == LOGICAL_DECIMAL && inner.id == 1)
				n->scale = (int)thrift_int(t, &inner);
			else if (f.id == LOGICAL_INTEGER && inner.id == 2)
				n->meaning = thrift_bool(t, &inner) ? PARQUET_MEANING_NONE
				                                    : PARQUET_MEANING_UNSIGNED;
			else
				thrift_skip(t, inner.type);
		}
	}
}

static int read_element(struct thrift *t, struct parquet_node *n)
{
	struct thrift_field f = {0};
	const uint8_t *name = (const uint8_t *)"";
	size_t name_bytes = 0;
	int64_t type = -1, repetition = 0, children = 0, type_bytes = 0;

	while (thrift_next(t, &f))
		if (f.id == 1)
			type = thrift_int(t, &f);
		else if (f.id == 2)
			type_bytes = thrift_int(t, &f);
		else if (f.id == 3)
			repetition = thrift_int(t, &f);
		else if (f.id == 4)
			thrift_binary(t, &f, &name, &name_bytes);
		else if (f.id == 5)
			children = thrift_int(t, &f);
		else if (f.id == 6)
			n->meaning = meaning_of_converted(thrift_int(t, &f));
		else if (f.id == 7)
			n->scale = (int)thrift_int(t, &f);
		else if (f.id == 10 && f.type == THRIFT_STRUCT)
			read_logical(t, n);
		else
			thrift_skip(t, f.type);
	if (t->failed || repetition < 0 || repetition > PARQUET_REPEATED || children < 0 ||
	        children > NODES_MAX || type_bytes < 0 || type_bytes > 1 << 20 ||
	        (!children && type >= PARQUET_TYPE_COUNT) || n->scale < 0 || n->scale > 400)
		return ERR_INPUT;
	n->repetition = (enum parquet_repetition)repetition;
	n->child_count = (int)children;
	n->type = children || type < 0 ? PARQUET_TYPE_COUNT : (enum parquet_type)type;
	n->type_bytes = (int)type_bytes;
	n->name = mem_strndup((const char *)name, name_bytes);
	return n->name ? 0 : ERR_NOMEM;
}

/* Sets levels, ends and leaf numbers of a node and its descendants. Returns the next node, or ERR_INPUT. */
static int settle(struct parquet *p, int at, int def, int rep, int depth)
{
	struct parquet_node *n;
	int next = at + 1;

	if (at >= p->node_count || depth > DEPTH_MAX)
		return ERR_INPUT;
	n = &p->nodes[at];
	if (at > 0) { /* the root's repetition has no meaning */
		def += n->repetition != PARQUET_REQUIRED;
		rep += n->repetition == PARQUET_REPEATED;
	}
	n->max_def = def;
	n->max_rep = rep;
	n->leaf = p->leaf_count;
	if (at > 0 && n->child_count == 0) {
		if (n->type == PARQUET_TYPE_COUNT)
			return ERR_INPUT;
		p->leaf_nodes[p->leaf_count++] = at;
	}
	for (int i = 0; i < n->child_count; i++) {
		next = settle(p, next, def, rep, depth + 1);
		if (next < 0)
			return next;
	}
	n->leaf_end = p->leaf_count;
	n->end = next;
	return next;
}

static int read_schema(struct parquet *p, struct thrift *t, const struct thrift_field *f)
{
	int64_t count = thrift_list(t, f, THRIFT_STRUCT);
	int rc = 0;

	if (p->nodes || count < 1 || count > NODES_MAX)
		return ERR_INPUT;
	p->nodes = mem_alloc((size_t)count, sizeof(*p->nodes));
	p->leaf_nodes = mem_alloc((size_t)count, sizeof(*p->leaf_nodes));
	if (!p->nodes || !p->leaf_nodes)
		return ERR_NOMEM;
	for (; p->node_count < count && rc == 0; p->node_count++)
		rc = read_element(t, &p->nodes[p->node_count]);
	if (rc == 0 && settle(p, 0, 0, 0, 0) != p->node_count)
		rc = ERR_INPUT;
	return rc;
}

static int read_chunk_meta(struct parquet *p, struct thrift *t, struct parquet_chunk *c)
{
	struct thrift_field f = {0};
	int64_t data = -1, dictionary = 0, len = -1, codec = 0;

	while (thrift_next(t, &f))
		if (f.id == 4)
			codec = thrift_int(t, &f);
		else if (f.id == 5)
			c->value_count = thrift_int(t, &f);
		else if (f.id == 7)
			len = thrift_int(t, &f);
		else if (f.id == 9)
			data = thrift_int(t, &f);
		else if (f.id == 11)
			dictionary = thrift_int(t, &f);
		else
			thrift_skip(t, f.type);
	c->offset_bytes = dictionary > 0 && dictionary < data ? dictionary : data;
	c->len_bytes = len;
	c->codec = (int)codec;
	if (t->failed || c->value_count < 0 || c->offset_bytes < 0 || len < 0 ||
	        c->offset_bytes > p->file_bytes || len > p->file_bytes - c->offset_bytes)
		return ERR_INPUT;
	return 0;
}

static int read_group(struct parquet *p, struct thrift *t, int group)
{
	struct thrift_field f = {0};
	int64_t chunk_count = -1;
	int rc = 0;

	while (rc == 0 && thrift_next(t, &f)) {
		if (f.id == 3) {
			p->group_rows[group] = thrift_int(t, &f);
		} else if (f.id == 1 && chunk_count < 0) {
			chunk_count = thrift_list(t, &f, THRIFT_STRUCT);
			if (chunk_count != p->leaf_count)
				return ERR_INPUT;
			for (int64_t i = 0; rc == 0 && i < chunk_count; i++) {
				struct parquet_chunk *c = &p->chunks[(int64_t)group * p->leaf_count + i];
				struct thrift_field g = {0};

				c->offset_bytes = -1;
				while (rc == 0 && thrift_next(t, &g))
					if (g.id == 3 && g.type == THRIFT_STRUCT)
						rc = read_chunk_meta(p, t, c);
					else if (g.id == 1) /* file_path: the bytes are in another file */
						return err_set(
						        ERR_UNSUPPORTED, "its columns are in other files");
					else
						thrift_skip(t, g.type);
				if (rc == 0 && c->offset_bytes < 0)
					rc = ERR_INPUT;
			}
		} else {
			thrift_skip(t, f.type);
		}
	}
	return rc ? rc : t->failed || chunk_count < 0 || p->group_rows[group] < 0 ? ERR_INPUT : 0;
}

static int read_groups(struct parquet *p, struct thrift *t, const struct thrift_field *f)
{
	int64_t count = thrift_list(t, f, THRIFT_STRUCT);
	int rc = 0;

	if (!p->nodes || p->group_rows || count > 1 << 24 ||
	        count * p->leaf_count > (t->end - t->at)) /* a byte for each chunk at least */
		return ERR_INPUT;
	p->group_rows = mem_alloc((size_t)count, sizeof(*p->group_rows));
	p->chunks = mem_alloc((size_t)(count * p->leaf_count), sizeof(*p->chunks));
	if (!p->group_rows || !p->chunks)
		return ERR_NOMEM;
	for (; p->group_count < count && rc == 0; p->group_count++)
		rc = read_group(p, t, p->group_count);
	return rc;
}

static int read_file_meta(struct parquet *p, struct thrift *t)
{
	struct thrift_field f = {0};
	int rc = 0;

	while (rc == 0 && thrift_next(t, &f))
		if (f.id == 2)
			rc = read_schema(p, t, &f);
		else if (f.id == 4)
			rc = read_groups(p, t, &f);
		else
			thrift_skip(t, f.type);
	return rc ? rc : t->failed || !p->nodes || !p->group_rows ? ERR_INPUT : 0;
}

int parquet_open(struct parquet *p, const char *path)
{
	uint8_t tail[TAIL_BYTES] = {0}, *meta = NULL;
	struct thrift t = {0};
	int64_t meta_bytes;
	int rc;

	*p = (struct parquet){.path = path};
	rc = p->fd = file_open_read(path, &p->file_bytes);
	if (rc < 0)
		return rc;
	err_set(ERR_INPUT, "its metadata is damaged"); /* default for the checks below */
	rc = p->file_bytes < 2 * TAIL_BYTES - 4
	             ? ERR_INPUT
	             : file_read_at(p->fd, path, tail, TAIL_BYTES, p->file_bytes - TAIL_BYTES);
	if (rc == 0 && memcmp(tail + 4, "PARE", 4) == 0)
		rc = err_set(ERR_UNSUPPORTED, "it is encrypted");
	else if (rc == 0 && memcmp(tail + 4, "PAR1", 4) != 0)
		rc = err_set(ERR_INPUT, "it does not end like a Parquet file; was the copy complete?");
	meta_bytes = tail[0] | tail[1] << 8 | tail[2] << 16 | (int64_t)tail[3] << 24;
	if (rc == 0 && (meta_bytes > META_BYTES_MAX || meta_bytes > p->file_bytes - TAIL_BYTES))
		rc = ERR_INPUT;
	if (rc == 0) {
		meta = mem_alloc((size_t)meta_bytes, 1);
		rc = meta ? file_read_at(p->fd, path, meta, (size_t)meta_bytes,
		                    p->file_bytes - TAIL_BYTES - meta_bytes)
		          : ERR_NOMEM;
	}
	if (rc == 0) {
		t = (struct thrift){.at = meta, .end = meta + meta_bytes};
		err_set(ERR_INPUT, "its metadata is damaged");
		rc = read_file_meta(p, &t);
	}
	mem_free(meta);
	if (rc < 0) {
		if (rc == ERR_INPUT || rc == ERR_UNSUPPORTED)
			err_note(rc, "%s", path);
		parquet_close(p);
	}
	return rc;
}

void parquet_close(struct parquet *p)
{
	if (p->path && p->fd >= 0)
		close(p->fd);
	for (int i = 0; i < p->node_count; i++)
		mem_free(p->nodes[i].name);
	mem_free(p->nodes);
	mem_free(p->leaf_nodes);
	mem_free(p->group_rows);
	mem_free(p->chunks);
	*p = (struct parquet){0};
}
