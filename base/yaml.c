/* Reads YAML through libyaml and flattens it into keys with lines. */
#include "base/yaml.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum { FILE_BYTES_MAX = 1 << 20, DEPTH_MAX = 8, KEY_BYTES_MAX = 256, KEY_COUNT_MAX = 10000 };

/* A key of the file, kept to find duplicates. */
struct seen {
	char *path;
	int line;
};

struct reader {
	yaml_parser_t parser;
	yaml_event_t event; /* the current one */
	const char *where, *text;
	size_t len_bytes;
	struct yaml_doc *doc;
	struct str path; /* dotted keys from the root to the current node */
	struct seen *seen;
	size_t seen_count, seen_cap, item_cap;
};

static int read_node(struct reader *r, int depth);

/* ERR_INPUT with "where:line: text" and the line of the current event. */
static int refuse(const struct reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int refuse(const struct reader *r, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	err_setv(ERR_INPUT, fmt, ap);
	va_end(ap);
	return err_note(ERR_INPUT, "%s:%zu", r->where, r->event.start_mark.line + 1);
}

static int is_tab(const struct reader *r)
{
	size_t at = r->parser.problem_mark.index;

	return at < r->len_bytes && r->text[at] == '\t';
}

static int syntax_error(const struct reader *r)
{
	const yaml_parser_t *p = &r->parser;
	const char *problem = p->problem ? p->problem : "not YAML";

	if (p->error == YAML_MEMORY_ERROR)
		return err_set(ERR_NOMEM, "%s: out of memory while reading YAML", r->where);
	if (p->error == YAML_READER_ERROR)
		return err_set(ERR_INPUT, "%s: byte %zu: %s", r->where, p->problem_offset, problem);
	/* libyaml notices a missing colon only on the next line */
	if (strstr(problem, "could not find expected ':'"))
		return err_set(ERR_INPUT, "%s:%zu: expected \"key: value\", with a colon and a space",
		        r->where, p->context_mark.line + 1);
	if (strstr(problem, "mapping values are not allowed"))
		return err_set(ERR_INPUT,
		        "%s:%zu:%zu: unexpected colon; quote a value that contains a colon, and indent all "
		        "keys of a level equally",
		        r->where, p->problem_mark.line + 1, p->problem_mark.column + 1);
	if (strstr(problem, "cannot start any token") && is_tab(r))
		return err_set(
		        ERR_INPUT, "%s:%zu: a tab; indent with spaces", r->where, p->problem_mark.line + 1);
	return err_set(ERR_INPUT, "%s:%zu:%zu: %s%s%s", r->where, p->problem_mark.line + 1,
	        p->problem_mark.column + 1, problem, p->context ? ", " : "", p->context ? p->context : "");
}

/* Moves to the next event. Refuses what is not allowed anywhere, such as aliases. */
static int next_event(struct reader *r)
{
	const char *tag = NULL;

	yaml_event_delete(&r->event);
	if (!yaml_parser_parse(&r->parser, &r->event))
		return syntax_error(r);
	switch (r->event.type) {
	case YAML_ALIAS_EVENT:
		return refuse(r, "aliases (*%s) are not supported; write the value out",
		        r->event.data.alias.anchor);
	case YAML_SCALAR_EVENT:
		if (r->event.data.scalar.anchor)
			return refuse(r, "anchors (&%s) are not supported", r->event.data.scalar.anchor);
		if (strlen((char *)r->event.data.scalar.value) != r->event.data.scalar.length)
			return refuse(r, "a NUL character inside a value");
		tag = (char *)r->event.data.scalar.tag;
		break;
	case YAML_SEQUENCE_START_EVENT:
		if (r->event.data.sequence_start.anchor)
			return refuse(
			        r, "anchors (&%s) are not supported", r->event.data.sequence_start.anchor);
		tag = (char *)r->event.data.sequence_start.tag;
		break;
	case YAML_MAPPING_START_EVENT:
		if (r->event.data.mapping_start.anchor)
			return refuse(
			        r, "anchors (&%s) are not supported", r->event.data.mapping_start.anchor);
		tag = (char *)r->event.data.mapping_start.tag;
		break;
	default:
		break;
	}
	if (tag)
		return refuse(r, "tags (%s) are not supported; write the plain value", tag);
	return 0;
}

static void path_cut(struct reader *r, size_t len_bytes)
{
	r->path.len_bytes = len_bytes;
	if (r->path.data)
		r->path.data[len_bytes] = 0;
}

static int path_push(struct reader *r, const char *key)
{
	if (r->path.len_bytes)
		str_add_char(&r->path, '.');
	str_add(&r->path, key);
	return str_check(&r->path);
}

/* Doubles the capacity of a full list. */
static int list_grow(void **list, size_t *cap, size_t count, size_t size_bytes)
{
	size_t more = *cap ? *cap * 2 : 32;
	void *grown;

	if (count < *cap)
		return 0;
	grown = mem_resize(*list, more, size_bytes);
	if (!grown)
		return ERR_NOMEM;
	*list = grown;
	*cap = more;
	return 0;
}

/* Adds an item with the current path and no text. The doc owns *item. */
static int item_add(struct reader *r, struct yaml_item **item)
{
	struct yaml_doc *doc = r->doc;
	struct yaml_item *new;

	if (list_grow((void **)&doc->items, &r->item_cap, doc->count, sizeof(*doc->items)))
		return ERR_NOMEM;
	new = &doc->items[doc->count];
	memset(new, 0, sizeof(*new));
	new->line = (int)r->event.start_mark.line + 1;
	new->path = mem_strdup(r->path.data);
	if (!new->path)
		return ERR_NOMEM;
	doc->count++;
	*item = new;
	return 0;
}

static int is_null_text(const char *text)
{
	return !*text || !strcmp(text, "~") || !strcmp(text, "null") || !strcmp(text, "Null") ||
	       !strcmp(text, "NULL");
}

static int read_scalar(struct reader *r)
{
	const char *text = (char *)r->event.data.scalar.value;
	struct yaml_item *item;
	int err = item_add(r, &item);

	if (err)
		return err;
	item->text = mem_strdup(text);
	item->quoted = r->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
	item->is_null = !item->quoted && is_null_text(text);
	return item->text ? 0 : ERR_NOMEM;
}

/* Reads the elements of a list of scalars; the current event is the first. */
static int read_scalars(struct reader *r, struct str *text)
{
	int err = 0;

	for (int first = 1; r->event.type != YAML_SEQUENCE_END_EVENT; first = 0) {
		const char *element = (char *)r->event.data.scalar.value;

		if (r->event.type != YAML_SCALAR_EVENT)
			return refuse(r,
			        "\"%s\" is a list of plain values, but one element is a list or mapping",
			        r->path.data);
		if (strchr(element, ','))
			return refuse(r, "\"%s\": a list element may not contain a comma", r->path.data);
		if (!first)
			str_add_char(text, ',');
		str_add(text, element);
		err = next_event(r);
		if (err)
			return err;
	}
	return str_check(text);
}

static int read_mappings(struct reader *r, int depth)
{
	size_t base = r->path.len_bytes;
	char index[24];
	int err = 0;

	for (size_t i = 0; r->event.type != YAML_SEQUENCE_END_EVENT; i++) {
		if (r->event.type != YAML_MAPPING_START_EVENT)
			return refuse(
			        r, "\"%s\" is a list of mappings, but one element is not", r->path.data);
		snprintf(index, sizeof(index), "%zu", i);
		err = path_push(r, index);
		if (!err)
			err = read_node(r, depth + 1);
		path_cut(r, base);
		if (!err)
			err = next_event(r);
		if (err)
			return err;
	}
	return 0;
}

static int read_list(struct reader *r, int depth)
{
	struct str text = {0};
	struct yaml_item *item;
	int err;

	err = next_event(r);
	if (err)
		return err;
	if (r->event.type == YAML_SEQUENCE_START_EVENT)
		return refuse(r, "\"%s\": a list inside a list is not supported", r->path.data);
	if (r->event.type == YAML_MAPPING_START_EVENT)
		return read_mappings(r, depth);
	err = item_add(r, &item);
	if (err)
		return err;
	item->is_list = 1;
	err = read_scalars(r, &text);
	if (!err) {
		item->text = str_take(&text);
		err = item->text ? 0 : ERR_NOMEM;
	}
	str_free(&text);
	return err;
}

/* Takes the current event as a key: appends it to the path and remembers it. */
static int read_key(struct reader *r)
{
	const char *key = (char *)r->event.data.scalar.value;
	struct seen *seen;

	if (r->event.type != YAML_SCALAR_EVENT)
		return refuse(r, "a key must be a plain word, not a list or mapping");
	if (!*key)
		return refuse(r, "a key is empty");
	if (strlen(key) > KEY_BYTES_MAX)
		return refuse(r, "a key of %zu bytes; the limit is %d", strlen(key), KEY_BYTES_MAX);
	if (r->seen_count >= KEY_COUNT_MAX)
		return refuse(r, "more than %d keys", KEY_COUNT_MAX);
	if (path_push(r, key) || list_grow((void **)&r->seen, &r->seen_cap, r->seen_count, sizeof(*r->seen)))
		return ERR_NOMEM;
	seen = &r->seen[r->seen_count];
	seen->line = (int)r->event.start_mark.line + 1;
	seen->path = mem_strdup(r->path.data);
	if (!seen->path)
		return ERR_NOMEM;
	r->seen_count++;
	return 0;
}

/* In a path, the name of a mapping that is a number would be a place in a list of mappings. */
static int number_check(const struct reader *r, size_t base)
{
	const char *key = r->path.data + base + (base > 0);

	if (r->event.type != YAML_MAPPING_START_EVENT || key[strspn(key, "0123456789")])
		return 0;
	return err_set(ERR_INPUT, "%s:%d: \"%s\": let a name that is a number begin with a letter", r->where,
	        r->seen[r->seen_count - 1].line, r->path.data);
}

static int read_mapping(struct reader *r, int depth)
{
	size_t base = r->path.len_bytes, count = 0;
	struct yaml_item *item;
	int err;

	while (!(err = next_event(r)) && r->event.type != YAML_MAPPING_END_EVENT) {
		err = read_key(r);
		if (!err)
			err = next_event(r);
		if (!err)
			err = number_check(r, base);
		if (!err)
			err = read_node(r, depth + 1);
		if (err)
			return err;
		path_cut(r, base);
		count++;
	}
	if (err || count || !base)
		return err;
	err = item_add(r, &item); /* {} has no settings, but its key must not be lost */
	if (err)
		return err;
	item->is_null = 1;
	item->text = mem_strdup("");
	return item->text ? 0 : ERR_NOMEM;
}

/* Reads the node that begins at the current event, up to its last event. */
static int read_node(struct reader *r, int depth)
{
	if (r->event.type == YAML_SCALAR_EVENT)
		return read_scalar(r);
	if (depth > DEPTH_MAX)
		return refuse(r, "nested deeper than %d", DEPTH_MAX);
	return r->event.type == YAML_SEQUENCE_START_EVENT ? read_list(r, depth) : read_mapping(r, depth);
}

static int compare_seen(const void *a, const void *b)
{
	const struct seen *x = a, *y = b;
	int order = strcmp(x->path, y->path);

	return order ? order : (x->line > y->line) - (x->line < y->line);
}

/* Refuses the first duplicate key in the file. Sorting keeps this fast for any file. */
static int check_duplicates(struct reader *r)
{
	const struct seen *first = NULL, *again = NULL;

	if (!r->seen_count)
		return 0;
	qsort(r->seen, r->seen_count, sizeof(*r->seen), compare_seen);
	for (size_t i = 1; i < r->seen_count; i++) {
		if (strcmp(r->seen[i - 1].path, r->seen[i].path) || (again && again->line <= r->seen[i].line))
			continue;
		first = &r->seen[i - 1];
		again = &r->seen[i];
	}
	if (!again)
		return 0;
	return err_set(ERR_INPUT, "%s:%d: \"%s\" was already set on line %d; keep one of them", r->where,
	        again->line, again->path, first->line);
}

static int read_stream(struct reader *r)
{
	int err;

	err = next_event(r); /* stream start */
	if (!err)
		err = next_event(r);
	if (err || r->event.type == YAML_STREAM_END_EVENT)
		return err;
	err = next_event(r); /* after document start */
	if (err)
		return err;
	if (r->event.type == YAML_SCALAR_EVENT) {
		if (r->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE ||
		        !is_null_text((char *)r->event.data.scalar.value))
			return refuse(r, "expected \"key: value\", with a colon and a space; found \"%.60s\"",
			        (char *)r->event.data.scalar.value);
	} else if (r->event.type == YAML_MAPPING_START_EVENT) {
		err = read_mapping(r, 1);
	} else {
		return refuse(r, "expected a mapping (key: value), found a list");
	}
	if (!err)
		err = next_event(r); /* document end */
	if (!err)
		err = next_event(r);
	if (!err && r->event.type != YAML_STREAM_END_EVENT)
		return refuse(r, "a second document (---) begins here; only one is supported");
	return err ? err : check_duplicates(r);
}

int yaml_parse(struct yaml_doc *doc, const char *where, const char *text, size_t len_bytes)
{
	struct reader r = {.where = where, .text = text, .len_bytes = len_bytes, .doc = doc};
	int err;

	memset(doc, 0, sizeof(*doc));
	if (len_bytes > FILE_BYTES_MAX)
		return err_set(ERR_INPUT, "%s: has %zu bytes; a configuration has at most %d", where,
		        len_bytes, FILE_BYTES_MAX);
	if (!yaml_parser_initialize(&r.parser))
		return err_set(ERR_NOMEM, "%s: out of memory while reading YAML", where);
	yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, len_bytes);
	err = read_stream(&r);
	yaml_event_delete(&r.event);
	yaml_parser_delete(&r.parser);
	for (size_t i = 0; i < r.seen_count; i++)
		mem_free(r.seen[i].path);
	mem_free(r.seen);
	str_free(&r.path);
	if (err)
		yaml_doc_free(doc);
	return err;
}

int yaml_read_file(struct yaml_doc *doc, const char *path)
{
	char *text = NULL;
	size_t len = 0;
	int err;

	memset(doc, 0, sizeof(*doc));
	err = file_read_all(path, FILE_BYTES_MAX, &text, &len);
	if (!err)
		err = yaml_parse(doc, path, text, len);
	mem_free(text);
	return err;
}

void yaml_doc_free(struct yaml_doc *doc)
{
	if (!doc)
		return;
	for (size_t i = 0; i < doc->count; i++) {
		mem_free(doc->items[i].path);
		mem_free(doc->items[i].text);
	}
	mem_free(doc->items);
	memset(doc, 0, sizeof(*doc));
}
