/* Parses and renders templates, each time in a new sandbox. */
#include "data/template/template.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/template/moment.h"
#include "data/template/render.h"

#include <string.h>
#include <utf8proc.h>

/* Limits. For comparison: a chat template has about 10 KiB, and a long chat takes about 10,000 steps. */
enum {
	SOURCE_BYTES_MAX = 1 << 20,
	PARSE_BYTES_MAX = 256 << 20,
	RENDER_BYTES_MAX = 1 << 30,
	STEPS_MAX = 10 * 1000 * 1000,
	PARSE_DEPTH_MAX = 150,
	RENDER_DEPTH_MAX = 1000,
};

struct jinja {
	struct sandbox s; /* holds the tree */
	struct ast ast;
	char *where;
};

static int parse_inside(struct jinja *t, const char *source, size_t len_bytes)
{
	if (setjmp(t->s.escape))
		return t->s.rc;
	parser_run(&t->s, &t->ast, source, len_bytes);
	return 0;
}

static int check_source(const char *where, const char *source, size_t len_bytes)
{
	utf8proc_ssize_t at = 0, len;
	utf8proc_int32_t c;

	if (len_bytes > SOURCE_BYTES_MAX)
		return err_set(ERR_INPUT, "%s: a template of %zu bytes; the limit is %d", where, len_bytes,
		        SOURCE_BYTES_MAX);
	while (at < (utf8proc_ssize_t)len_bytes) {
		len = utf8proc_iterate(
		        (const utf8proc_uint8_t *)source + at, (utf8proc_ssize_t)len_bytes - at, &c);
		if (len <= 0 || c == 0)
			return err_set(ERR_INPUT, "%s: byte %lld is not UTF-8 text", where, (long long)at);
		at += len;
	}
	return 0;
}

int jinja_parse(struct jinja **out, const char *where, const char *source, size_t len_bytes)
{
	struct jinja *t;
	int rc = check_source(where, source, len_bytes);

	*out = NULL;
	if (rc)
		return rc;
	t = mem_alloc(1, sizeof(*t));
	if (!t)
		return ERR_NOMEM;
	t->where = mem_strdup(where);
	if (!t->where) {
		mem_free(t);
		return ERR_NOMEM;
	}
	t->s.where = t->where;
	t->s.limit_bytes = PARSE_BYTES_MAX;
	t->s.limit_steps = STEPS_MAX;
	t->s.limit_depth = PARSE_DEPTH_MAX;
	rc = parse_inside(t, source, len_bytes);
	if (rc) {
		jinja_free(t);
		return rc;
	}
	*out = t;
	return 0;
}

void jinja_free(struct jinja *t)
{
	if (!t)
		return;
	sandbox_free(&t->s);
	mem_free(t->where);
	mem_free(t);
}

int jinja_has_generation(const struct jinja *t)
{
	return t->ast.has_generation;
}

/* ---- the date ---- */

/* Appends what each text constant that could be a format writes. */
static void add_dates(struct str *out, const struct node *first, int64_t moment)
{
	char text[512];
	size_t len;

	for (const struct node *n = first; n; n = n->next) {
		if (n->kind == NODE_CONST && n->value.kind == VALUE_TEXT &&
		        strchr(n->value.u.text->data, '%') &&
		        !moment_format(&len, text, sizeof(text), n->value.u.text->data, moment))
			str_printf(out, "%s\n", text);
		add_dates(out, n->a, moment);
		add_dates(out, n->b, moment);
		add_dates(out, n->c, moment);
		add_dates(out, n->list, moment);
		add_dates(out, n->other, moment);
	}
}

int jinja_writes_date(struct str *out, const struct jinja *t, int64_t moment)
{
	int writes = ast_find(&t->ast, "strftime_now") >= 0;

	if (writes && out)
		add_dates(out, t->ast.body, moment);
	return writes;
}

/* ---- rendering ---- */

static void bind_variables(struct render *r, const json_t *variables)
{
	json_t *object;
	const json_t *value;
	const char *key;

	memcpy(&object, &variables, sizeof(object));
	json_object_foreach(object, key, value)
	{
		int id = ast_find(r->ast, key);

		if (id >= 0)
			scope_set(r, id, value_of_json(r->s, value));
	}
}

static int render_inside(const struct jinja *t, struct sandbox *s, struct render *r, struct sink *sink,
        const json_t *variables, int64_t moment)
{
	struct scope *top;

	if (setjmp(s->escape))
		return s->rc;
	top = sandbox_alloc(s, 1, sizeof(*top));
	*r = (struct render){
	        .s = s, .ast = &t->ast, .scope = top, .out = sink, .main = sink, .moment = moment};
	bind_variables(r, variables);
	exec_all(r, t->ast.body);
	return 0;
}

int jinja_render(const struct jinja *t, struct jinja_output *out, const json_t *variables, int64_t moment)
{
	struct sandbox s = {
	        .where = t->where,
	        .limit_bytes = RENDER_BYTES_MAX,
	        .limit_steps = STEPS_MAX,
	        .limit_depth = RENDER_DEPTH_MAX,
	};
	struct render r;
	struct sink sink = {0};
	int rc;

	*out = (struct jinja_output){0};
	rc = render_inside(t, &s, &r, &sink, variables, moment);
	if (!rc) {
		out->text = mem_alloc(sink.len_bytes + 1, 1);
		out->spans = mem_alloc((size_t)r.span_count, sizeof(*out->spans));
		if (!out->text || !out->spans) {
			jinja_output_free(out);
			rc = ERR_NOMEM;
		}
	}
	if (!rc) {
		if (sink.len_bytes)
			memcpy(out->text, sink.data, sink.len_bytes);
		if (r.span_count)
			memcpy(out->spans, r.spans, (size_t)r.span_count * sizeof(*out->spans));
		out->len_bytes = sink.len_bytes;
		out->span_count = r.span_count;
	}
	sandbox_free(&s);
	return rc;
}

void jinja_output_free(struct jinja_output *out)
{
	mem_free(out->text);
	mem_free(out->spans);
	*out = (struct jinja_output){0};
}
