/* One chat of a line of JSON as a run reads it: its ids and the runs of trained tokens. */
#ifndef FERRY_TESTS_CHAT_LINES_H
#define FERRY_TESTS_CHAT_LINES_H

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/chat/chat_template.h"
#include "data/rows/dataset.h"
#include "data/template/moment.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/dataset_rows.h"

#include <string.h>

/* The moment of all renderings: 2026-11-27T12:00:00. */
#define CHAT_LINES_MOMENT 1795780800

struct chat_reader {
	struct tokenizer *tokenizer;
	struct chat_template *template;
	char *dir;  /* of the tokenizer */
	char *path; /* of the template, as opened */
	char *rows; /* a file to write */
};

static inline void chat_reader_close(struct chat_reader *r)
{
	chat_template_close(r->template);
	tokenizer_close(r->tokenizer);
	mem_free(r->dir);
	mem_free(r->path);
	mem_free(r->rows);
	*r = (struct chat_reader){0};
}

static inline int chat_reader_open_template(struct chat_reader *r, const char *path)
{
	struct chat_template_options o = {
	        .choice = path, .dir = r->dir, .tokenizer = r->tokenizer, .moment = CHAT_LINES_MOMENT};

	if (r->path && !strcmp(r->path, path))
		return 0;
	chat_template_close(r->template);
	mem_free(r->path);
	r->template = NULL;
	r->path = mem_strdup(path);
	return r->path ? chat_template_open(&r->template, &o) : ERR_NOMEM;
}

/* inputs: enum dataset_inputs; turns: those to train. */
static inline int chat_reader_read(struct dataset **d, const struct chat_reader *r, const json_t *record,
        int inputs, enum dataset_turns turns)
{
	struct dataset_options o = {.path = r->rows,
	        .tokenizer = r->tokenizer,
	        .chat_template = r->template,
	        .inputs = inputs,
	        .turns = turns};
	char *text = NULL;
	int rc = json_write(&text, record, JSON_COMPACT);

	*d = NULL;
	if (!rc)
		rc = file_write_all(r->rows, text, strlen(text));
	mem_free(text);
	return rc ? rc : dataset_open(d, &o);
}

/* The first and one past the last of each run of trained tokens. */
static inline json_t *chat_reader_runs(const struct dataset *d)
{
	json_t *runs = json_array();
	int64_t from = -1, count = dataset_row_tokens(d, 0);

	for (int64_t i = 0; i <= count; i++) {
		int trained = i < count && dataset_label(d, 0, i) != DATASET_IGNORE;

		if (trained && from < 0)
			from = i;
		if (!trained && from >= 0) {
			json_array_append_new(runs, json_pack("[I, I]", (json_int_t)from, (json_int_t)i));
			from = -1;
		}
	}
	return runs;
}

#endif
