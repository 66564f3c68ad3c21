/* Data sets of pairs for tests, with a tokenizer of letters and the template chatml. */
#ifndef FERRY_TESTS_PAIR_ROWS_H
#define FERRY_TESTS_PAIR_ROWS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/chat/chat_template.h"
#include "data/rows/dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/chat_tokenizer.h"
#include "tests/dataset_rows.h"

static char temp_dir[] = "/tmp/ferry_test_pairs_XXXXXX";
static struct tokenizer *letters;
static struct chat_template *chatml;

static inline char *write_file(const char *name, const char *text)
{
	char *path = file_join(temp_dir, name);

	assert_int_equal(file_write_all(path, text, strlen(text)), 0);
	return path;
}

static inline int set_up(void **state)
{
	struct chat_template_options o = {.choice = "chatml", .dir = temp_dir};
	struct str json = {0};

	(void)state;
	if (!mkdtemp(temp_dir))
		return -1;
	chat_tokenizer_json(&json);
	mem_free(write_file("tokenizer.json", json.data));
	str_free(&json);
	mem_free(write_file("tokenizer_config.json", "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}"));
	if (tokenizer_open(&letters, temp_dir))
		return -1;
	o.tokenizer = letters;
	return chat_template_open(&chatml, &o);
}

static inline int clean_up(void **state)
{
	(void)state;
	chat_template_close(chatml);
	tokenizer_close(letters);
	return file_remove_tree(temp_dir);
}

static inline int open_rows(struct dataset **d, const char *rows, struct dataset_options o)
{
	char *path = write_file("rows.jsonl", rows);
	int rc;

	o.path = path;
	o.tokenizer = letters;
	o.chat_template = chatml;
	rc = dataset_open(d, &o);
	mem_free(path);
	return rc;
}

static inline struct dataset *open_good(const char *rows, struct dataset_options o)
{
	struct dataset *d = NULL;

	if (open_rows(&d, rows, o))
		fail_msg("%s\n%s", rows, err_text());
	return d;
}

/* The text of a row, its trained stretches in { }. */
static inline void show(struct str *out, const struct dataset *d, int64_t row)
{
	int trained = 0;

	for (int64_t i = 0; i < dataset_row_tokens(d, row); i++) {
		int now = dataset_label(d, row, i) != DATASET_IGNORE;
		char *text = NULL;

		if (now)
			assert_int_equal(dataset_label(d, row, i), dataset_row_ids(d, row)[i]);
		if (now != trained)
			str_add(out, now ? "{" : "}");
		trained = now;
		assert_int_equal(tokenizer_decode(letters, &text, NULL, dataset_row_ids(d, row) + i, 1,
		                         SKIP_SPECIAL_OFF),
		        0);
		str_add(out, text);
		mem_free(text);
	}
	str_add(out, trained ? "}" : "");
}

#endif
