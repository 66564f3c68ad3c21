/* Labels chats for tests/golden/draw_chats.py: each line of stdin is {"template": FILE, "record", "inputs",
 * "last"}, each line of stdout {"ids", "trained", "ends"} or {"error"}. Arguments: the tokenizer's directory,
 * a file to write. */
#include "tests/chat_lines.h"

#include <stdio.h>
#include <stdlib.h>

static json_t *label(struct chat_reader *r, const json_t *in)
{
	const char *path = json_string_value(json_object_get(in, "template"));
	enum dataset_turns turns =
	        json_is_true(json_object_get(in, "last")) ? DATASET_TURNS_LAST : DATASET_TURNS_ALL;
	json_t *ids, *ends, *out;
	struct dataset *d = NULL;
	int rc = chat_reader_open_template(r, path);

	if (!rc)
		rc = chat_reader_read(&d, r, json_object_get(in, "record"),
		        (int)json_integer_value(json_object_get(in, "inputs")), turns);
	if (rc)
		return json_pack("{s:i, s:o}", "code", rc, "error", json_of_text(err_text()));
	ids = json_array();
	ends = json_array();
	for (int64_t i = 0; i < dataset_row_tokens(d, 0); i++)
		json_array_append_new(ids, json_integer(dataset_row_ids(d, 0)[i]));
	for (int i = 0; i < d->counts.turn_end_id_count; i++)
		json_array_append_new(ends, json_integer(d->counts.turn_end_ids[i]));
	out = json_pack("{s:o, s:o, s:o}", "ids", ids, "trained", chat_reader_runs(d), "ends", ends);
	dataset_close(d);
	return out;
}

int main(int argc, char *argv[])
{
	struct chat_reader r = {0};
	char *line = NULL, *text;
	size_t cap = 0;
	ssize_t len;

	if (argc != 3 || tokenizer_open(&r.tokenizer, argv[1])) {
		fprintf(stderr, "chat_lines TOKENIZER FILE: %s\n", argc == 3 ? err_text() : "");
		return 1;
	}
	r.dir = mem_strdup(argv[1]);
	r.rows = mem_strdup(argv[2]);
	while ((len = getline(&line, &cap, stdin)) > 0) {
		json_t *in = NULL, *out;

		if (json_parse(&in, "stdin", line, (size_t)len) || !(out = label(&r, in)) ||
		        json_write(&text, out, JSON_ENSURE_ASCII | JSON_COMPACT)) {
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
	chat_reader_close(&r);
	return 0;
}
