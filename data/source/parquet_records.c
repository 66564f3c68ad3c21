/* Rows of a Parquet file as JSON objects: reads all columns of a row group at once, and joins their
 * levels.
 *
 * Objects inside a column lose their null members: all objects of a column have the same keys in Arrow, so a
 * null is mostly a key of other rows, as in the arguments of tool calls. One null stays: the content of a
 * message (OpenAI's form beside tool calls), because some templates test for it. Values of type JSON keep
 * every null. */
#include "data/source/records.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/num.h"
#include "data/source/parquet.h"

struct parquet_records {
	char *path;
	struct parquet p;
	struct parquet_column **columns; /* [leaf_count]; NULL between row groups */
	int group;                       /* the next to open */
	int64_t rows_left, row;          /* in the open group; rows returned of the file */
	int depth;                       /* objects around the value that is read, the row counted as one */
};

/* A repeated node: an object, or what Parquet puts around each element of a list or pair of a map. */
enum repeated { REPEATED_VALUE, REPEATED_FRAME };

static int is_mine(const struct record_file *f)
{
	return memcmp(f->head, "PAR1", 4) == 0 || memcmp(f->head, "PARE", 4) == 0;
}

static void close_group(struct parquet_records *r)
{
	for (int i = 0; r->columns && i < r->p.leaf_count; i++)
		parquet_column_close(r->columns[i]);
	mem_free(r->columns);
	r->columns = NULL;
}

static void records_close_file(void *reader)
{
	struct parquet_records *r = reader;

	if (!r)
		return;
	close_group(r);
	parquet_close(&r->p);
	mem_free(r->path);
	mem_free(r);
}

/* Needs a file, not a pipe, because Parquet is read from its end. Compression is inside the format. */
static int records_open_file(void **reader, struct record_file *f)
{
	struct parquet_records *r = mem_alloc(1, sizeof(*r));
	int rc;

	if (!r)
		return ERR_NOMEM;
	r->path = mem_strdup(f->path);
	rc = r->path ? parquet_open(&r->p, r->path) : ERR_NOMEM;
	if (rc < 0) {
		records_close_file(r);
		return rc;
	}
	*reader = r;
	return 0;
}

static json_t *number(double x)
{
	return isfinite(x) ? json_real(x) : json_null(); /* JSON has no NaN */
}

/* Integers are the decimal's digits; bytes hold them as a big-endian integer. */
static json_t *decimal(const struct parquet_node *n, const union parquet_value *v)
{
	double x;

	if (n->type == PARQUET_INT32 || n->type == PARQUET_INT64) {
		x = (double)v->i;
	} else {
		x = v->bytes.len_bytes && v->bytes.data[0] & 0x80 ? -1 : 0;
		for (uint32_t i = 0; i < v->bytes.len_bytes; i++)
			x = x * 256 + v->bytes.data[i];
	}
	return number(x / pow(10, n->scale));
}

/* Bytes that are not text, such as images, get their own form: JSON cannot hold them. */
static json_t *plain_value(const struct parquet_node *n, const union parquet_value *v)
{
	json_t *text;
	char digits[24];

	if (n->meaning == PARQUET_MEANING_DECIMAL)
		return decimal(n, v);
	switch (n->type) {
	case PARQUET_BOOLEAN:
		return json_boolean(v->i);
	case PARQUET_INT32:
		return json_integer(v->i);
	case PARQUET_INT64:
		if (n->meaning != PARQUET_MEANING_UNSIGNED || v->i >= 0)
			return json_integer(v->i);
		snprintf(digits, sizeof(digits), "%" PRIu64, (uint64_t)v->i);
		return json_big_integer(digits);
	case PARQUET_FLOAT:
	case PARQUET_DOUBLE:
		return number(v->d);
	case PARQUET_BYTE_ARRAY:
		text = json_stringn((const char *)v->bytes.data, v->bytes.len_bytes);
		return text ? text : json_of_binary(v->bytes.len_bytes);
	case PARQUET_FIXED:
		if (n->meaning == PARQUET_MEANING_FLOAT16 && n->type_bytes == 2)
			return number(
			        (double)f16_to_f32((uint16_t)(v->bytes.data[0] | v->bytes.data[1] << 8)));
		return json_null();
	default:
		return json_null();
	}
}

static int damaged(const struct parquet_records *r, const char *what)
{
	return err_set(ERR_INPUT, "%s: row %" PRId64 ": damaged: %s", r->path, r->row + 1, what);
}

/* The next cell of a leaf; an error if there is none. */
static int peek(struct parquet_records *r, int leaf, struct parquet_cell *cell)
{
	int rc = parquet_column_peek(r->columns[leaf], cell);

	return rc == 0 ? damaged(r, "a column ends before the others") : rc < 0 ? rc : 0;
}

/* A node above the leaves is null or an empty list. Each leaf has one cell for that: consumes it. */
static int take_absent(struct parquet_records *r, const struct parquet_node *n)
{
	for (int leaf = n->leaf; leaf < n->leaf_end; leaf++) {
		struct parquet_cell cell;
		int rc = peek(r, leaf, &cell);

		if (rc < 0)
			return rc;
		if (cell.def >= n->max_def)
			return damaged(r, "columns disagree about what is null");
		parquet_column_take(r->columns[leaf]);
	}
	return 0;
}

static int new_value(json_t *value, json_t **out)
{
	*out = value;
	return value ? 0 : err_set(ERR_NOMEM, "out of memory");
}

static int leaf_value(
        struct parquet_records *r, const struct parquet_node *n, const union parquet_value *v, json_t **out)
{
	char where[64];
	int rc;

	if (n->meaning != PARQUET_MEANING_JSON || n->type != PARQUET_BYTE_ARRAY || !v->bytes.len_bytes)
		return new_value(plain_value(n, v), out);
	snprintf(where, sizeof(where), "column \"%.40s\", of type JSON", n->name);
	rc = json_parse_exact(out, where, (const char *)v->bytes.data, v->bytes.len_bytes, 1);
	return rc == ERR_INPUT ? err_note(rc, "%s: row %" PRId64, r->path, r->row + 1) : rc;
}

/* Reads the value of a node and its descendants. After an error, *out may hold a part: json_decref it. */
static int read_node(struct parquet_records *r, int at, json_t **out);

/* Whether a null member stays; the file's head says why. */
static int keeps_null(const struct parquet_records *r, const char *name, enum repeated kind)
{
	enum { ROW = 1, MESSAGE = 2 };

	return kind == REPEATED_FRAME || r->depth == ROW || (r->depth == MESSAGE && !strcmp(name, "content"));
}

/* Reads one element of a node that is present: a leaf's value, or the children by name. */
static int read_present(struct parquet_records *r, int at, enum repeated kind, json_t **out)
{
	const struct parquet_node *n = &r->p.nodes[at];
	struct parquet_cell cell;
	int rc = 0;

	if (n->child_count == 0) {
		rc = peek(r, n->leaf, &cell);
		if (rc == 0 && !cell.value)
			rc = damaged(r, "a value is missing");
		if (rc == 0)
			rc = leaf_value(r, n, cell.value, out);
		if (rc == 0)
			parquet_column_take(r->columns[n->leaf]);
		return rc;
	}
	rc = new_value(json_object(), out);
	r->depth += kind == REPEATED_VALUE;
	for (int child = at + 1; rc == 0 && child < n->end; child = r->p.nodes[child].end) {
		json_t *value = NULL;

		rc = read_node(r, child, &value);
		if (rc < 0 || (json_is_null(value) && !keeps_null(r, r->p.nodes[child].name, kind)))
			json_decref(value);
		else if (json_object_set_new(*out, r->p.nodes[child].name, value) < 0)
			rc = err_set(ERR_INPUT, "%s: the name of a column is not UTF-8", r->path);
	}
	r->depth -= kind == REPEATED_VALUE;
	return rc;
}

/* Reads the elements of a repeated node as an array. */
static int read_repeated(struct parquet_records *r, int at, enum repeated kind, json_t **out)
{
	const struct parquet_node *n = &r->p.nodes[at];
	struct parquet_cell cell;
	int rc = new_value(json_array(), out);

	if (rc == 0)
		rc = peek(r, n->leaf, &cell);
	if (rc < 0)
		return rc;
	if (cell.def < n->max_def)
		return take_absent(r, n);
	do {
		json_t *value = NULL;

		rc = read_present(r, at, kind, &value);
		if (rc < 0 || json_array_append_new(*out, value) < 0) {
			json_decref(rc < 0 ? value : NULL);
			return rc < 0 ? rc : err_set(ERR_NOMEM, "out of memory");
		}
		rc = parquet_column_peek(r->columns[n->leaf], &cell);
	} while (rc > 0 && cell.rep == n->max_rep);
	return rc < 0 ? rc : 0;
}

/* A list is an annotated group around one repeated node: the schema has {"list": [{"element": x}]}, users
 * expect [x]. Older writers leave out the inner node; then the repeated node is the element (LogicalTypes.md,
 * Lists). */
static int read_list(struct parquet_records *r, int at, json_t **out)
{
	const struct parquet_node *n = &r->p.nodes[at], *repeated = &r->p.nodes[at + 1];
	const char *element = repeated->child_count == 1 ? r->p.nodes[at + 2].name : NULL;
	size_t name_len = strlen(n->name);
	int is_element = !element || strcmp(repeated->name, "array") == 0 ||
	                 (strncmp(repeated->name, n->name, name_len) == 0 &&
	                         strcmp(repeated->name + name_len, "_tuple") == 0);
	json_t *list = NULL;
	int rc = read_repeated(r, at + 1, is_element ? REPEATED_VALUE : REPEATED_FRAME, &list);

	*out = list;
	if (rc < 0 || is_element)
		return rc;
	for (size_t i = 0; i < json_array_size(list); i++) {
		json_t *value = json_incref(json_object_get(json_array_get(list, i), element));

		if (json_array_set_new(list, i, value) < 0)
			return err_set(ERR_NOMEM, "out of memory");
	}
	return 0;
}

/* A map with texts as keys becomes an object. Any other map stays a list of keys and values. */
static int read_map(struct parquet_records *r, int at, json_t **out)
{
	const struct parquet_node *repeated = &r->p.nodes[at + 1];
	json_t *list = NULL, *object = json_object();
	size_t i;
	int rc = object ? read_repeated(r, at + 1, REPEATED_FRAME, &list)
	                : err_set(ERR_NOMEM, "out of memory");

	*out = list;
	if (rc < 0 || repeated->child_count != 2) {
		json_decref(object);
		return rc;
	}
	for (i = 0; i < json_array_size(list); i++) {
		json_t *pair = json_array_get(list, i);
		const char *key = json_string_value(json_object_get(pair, r->p.nodes[at + 2].name));
		json_t *value = json_object_get(pair, r->p.nodes[r->p.nodes[at + 2].end].name);

		if (!key ||
		        strlen(key) != json_string_length(json_object_get(pair, r->p.nodes[at + 2].name)) ||
		        json_object_set(object, key, value) < 0)
			break;
	}
	if (i < json_array_size(list)) {
		json_decref(object);
		return 0;
	}
	json_decref(list);
	*out = object;
	return 0;
}

static int read_node(struct parquet_records *r, int at, json_t **out)
{
	const struct parquet_node *n = &r->p.nodes[at];
	struct parquet_cell cell;
	int rc;

	if (n->leaf == n->leaf_end) /* a group without columns below */
		return new_value(json_object(), out);
	if (n->repetition == PARQUET_REPEATED)
		return read_repeated(r, at, REPEATED_VALUE, out);
	if (n->repetition == PARQUET_OPTIONAL) {
		rc = peek(r, n->leaf, &cell);
		if (rc < 0)
			return rc;
		if (cell.def < n->max_def) {
			*out = json_null();
			return take_absent(r, n);
		}
	}
	if (n->child_count == 1 && r->p.nodes[at + 1].repetition == PARQUET_REPEATED) {
		if (n->meaning == PARQUET_MEANING_LIST)
			return read_list(r, at, out);
		if (n->meaning == PARQUET_MEANING_MAP)
			return read_map(r, at, out);
	}
	return read_present(r, at, REPEATED_VALUE, out);
}

/* Opens the next row group: 1, or 0 after the last. The previous one must have been read to its end. */
static int next_group(struct parquet_records *r)
{
	struct parquet_cell cell;
	int rc = 0;

	for (int i = 0; r->columns && i < r->p.leaf_count && rc == 0; i++)
		rc = parquet_column_peek(r->columns[i], &cell);
	if (rc != 0)
		return rc < 0 ? rc : damaged(r, "a column has more rows than the others");
	close_group(r);
	if (r->group == r->p.group_count)
		return 0;
	r->columns = mem_alloc((size_t)r->p.leaf_count, sizeof(*r->columns));
	if (!r->columns)
		return ERR_NOMEM;
	for (int i = 0; i < r->p.leaf_count && rc == 0; i++)
		rc = parquet_column_open(&r->columns[i], &r->p, r->group, i);
	if (rc < 0)
		return rc;
	r->rows_left = r->p.leaf_count ? r->p.group_rows[r->group] : 0;
	r->group++;
	return 1;
}

/* Checks that every column begins a new row. */
static int check_row_begins(struct parquet_records *r)
{
	struct parquet_cell cell;

	for (int i = 0; i < r->p.leaf_count; i++) {
		int rc = peek(r, i, &cell);

		if (rc < 0)
			return rc;
		if (cell.rep != 0)
			return damaged(r, "columns disagree about where a row ends");
	}
	return 0;
}

static int records_next_row(void *reader, json_t **record, char *where)
{
	struct parquet_records *r = reader;
	int rc = 1;

	while (r->rows_left == 0 && rc > 0)
		rc = next_group(r);
	if (rc <= 0)
		return rc;
	rc = check_row_begins(r);
	r->depth = 0;
	if (rc == 0)
		rc = read_present(r, 0, REPEATED_VALUE, record);
	if (rc < 0) {
		json_decref(*record);
		*record = NULL;
		return rc;
	}
	r->rows_left--;
	r->row++;
	snprintf(where, RECORDS_WHERE_BYTES, "%.400s: row %" PRId64, r->path, r->row);
	return 1;
}

const struct record_kind record_kind_parquet = {
        "Parquet", ".parquet", is_mine, records_open_file, records_next_row, records_close_file};
