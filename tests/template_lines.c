/* Renders templates for scripts/compare_templates.py: each line of stdin is {"template", "variables"}, each
 * line of stdout {"text", "spans"} or {"error"}. */
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/template/moment.h"
#include "data/template/template.h"

#include <stdio.h>
#include <stdlib.h>

static json_t *render(const char *source, size_t len_bytes, const json_t *variables)
{
	struct jinja_output out = {0};
	struct jinja *t = NULL;
	json_t *spans, *line;
	int rc = jinja_parse(&t, "template", source, len_bytes);

	if (!rc)
		rc = jinja_render(t, &out, variables, moment_now());
	jinja_free(t);
	if (rc)
		return json_pack("{s:o}", "error", json_of_text(err_text()));
	spans = json_array();
	for (int64_t i = 0; i < out.span_count; i++)
		json_array_append_new(spans,
		        json_pack("[I, I]", (json_int_t)out.spans[i].start, (json_int_t)out.spans[i].end));
	line = json_pack("{s:o, s:o}", "text", json_stringn(out.text, out.len_bytes), "spans", spans);
	jinja_output_free(&out);
	return line;
}

int main(void)
{
	char *line = NULL, *text;
	size_t cap = 0;
	ssize_t len;

	while ((len = getline(&line, &cap, stdin)) > 0) {
		json_t *in = NULL, *out, *source;

		if (json_parse_exact(&in, "stdin", line, (size_t)len, 1)) {
			fprintf(stderr, "%s\n", err_text());
			return 1;
		}
		source = json_object_get(in, "template");
		out = render(json_string_value(source), json_string_length(source),
		        json_object_get(in, "variables"));
		if (json_write(&text, out, JSON_ENSURE_ASCII | JSON_COMPACT)) {
			fprintf(stderr, "%s\n", err_text());
			return 1;
		}
		puts(text);
		fflush(stdout);
		mem_free(text);
		json_decref(out);
		json_decref(in);
	}
	free(line);
	return 0;
}
