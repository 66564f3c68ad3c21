/* links: data */
/* Chats that tests/golden/draw_chats.py drew over the templates of ../shared and tests/golden/templates, and
 * the tokenizers of ../shared: ids as transformers makes them, and the trained tokens that it compared with
 * the contents of the messages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/str.h"
#include "tests/chat_lines.h"

static char temp_dir[] = "/tmp/ferry_test_chat_draw_XXXXXX";

static const char *shared_dir(void)
{
	const char *shared = getenv("FERRY_SHARED");

	return shared ? shared : "../shared";
}

/* The folder of a tokenizer; a packed one is unpacked into the temporary folder. */
static char *tokenizer_dir(const char *name)
{
	char *dir = mem_printf("%s/tokenizers/%s", shared_dir(), name);
	char *packed = mem_printf("%s/tokenizer.json.xz", dir), *command;

	if (file_kind_of(packed) == FILE_REGULAR) {
		command = mem_printf("xz -dc '%s' >'%s/tokenizer.json' && cp '%s/tokenizer_config.json' '%s'",
		        packed, temp_dir, dir, temp_dir);
		assert_int_equal(system(command), 0);
		mem_free(command);
		mem_free(dir);
		dir = mem_strdup(temp_dir);
	}
	mem_free(packed);
	return dir;
}

/* FNV-1a, as draw_chats.py has it. */
static void hash_ids(char text[20], const struct dataset *d)
{
	uint64_t hash = 0xcbf29ce484222325u;

	for (int64_t i = 0; i < dataset_row_tokens(d, 0); i++)
		hash = (hash ^ (uint64_t)dataset_row_ids(d, 0)[i]) * 0x100000001b3u;
	snprintf(text, 20, "%016" PRIx64, hash);
}

static int says_no(const json_t *record)
{
	const json_t *message, *weight;
	size_t i;

	json_array_foreach(json_object_get(record, "messages"), i, message)
	{
		weight = json_object_get(message, "weight");
		if (weight && !json_integer_value(weight))
			return 1;
	}
	return 0;
}

static const char *source_dir(void)
{
	const char *source = getenv("FERRY_SOURCE");

	return source ? source : ".";
}

/* Of ../shared, or of the golden folder where the name has a folder. */
static char *template_path(const char *name)
{
	return strchr(name, '/') ? mem_printf("%s/tests/golden/%s", source_dir(), name)
	                         : mem_printf("%s/tokenizers/chat-templates/%s", shared_dir(), name);
}

static void check_row(struct chat_reader *r, const json_t *row, int line)
{
	const char *template = json_string_value(json_object_get(row, "template"));
	char *path = template_path(template), ids[20];
	const json_t *record = json_object_get(row, "record");
	enum dataset_turns turns =
	        json_is_true(json_object_get(row, "last")) ? DATASET_TURNS_LAST : DATASET_TURNS_ALL;
	struct dataset *d = NULL;
	json_t *runs;

	if (chat_reader_open_template(r, path) || chat_reader_read(&d, r, record, 0, turns))
		fail_msg("line %d, %s: %s", line, template, err_text());
	hash_ids(ids, d);
	runs = chat_reader_runs(d);
	if (dataset_row_tokens(d, 0) != json_integer_value(json_object_get(row, "count")) ||
	        strcmp(ids, json_string_value(json_object_get(row, "ids"))))
		fail_msg("line %d, %s: other ids than transformers", line, template);
	if (!json_equal(runs, json_object_get(row, "trained")))
		fail_msg("line %d, %s: other tokens are trained: %s instead of %s", line, template,
		        json_dumps(runs, JSON_COMPACT),
		        json_dumps(json_object_get(row, "trained"), JSON_COMPACT));
	json_decref(runs);
	dataset_close(d);
	/* on request all tokens are trained but those of messages that say no, with the same ends */
	if (chat_reader_read(&d, r, record, DATASET_INPUTS_TRAIN, turns))
		fail_msg("line %d, %s: %s", line, template, err_text());
	if (says_no(record))
		assert_true(d->target_count < dataset_row_tokens(d, 0) - 1);
	else
		assert_int_equal(d->target_count, dataset_row_tokens(d, 0) - 1);
	assert_true(d->counts.turn_end_id_count > 0);
	dataset_close(d);
	mem_free(path);
}

static void test_draw(void **state)
{
	char *path;
	FILE *f;
	struct chat_reader r = {0};
	char *line = NULL, name[64] = "";
	size_t cap = 0;
	ssize_t len;
	int count = 0;

	(void)state;
	if (file_kind_of(shared_dir()) != FILE_DIR) {
		print_message("SKIPPED test_draw: ../shared absent\n");
		skip();
	}
	path = mem_printf("%s/tests/golden/chat_draw.jsonl", source_dir());
	f = fopen(path, "r");
	assert_non_null(f);
	while ((len = getline(&line, &cap, f)) > 0) {
		const char *tokenizer;
		json_t *row = NULL;

		assert_int_equal(json_parse(&row, "chat_draw.jsonl", line, (size_t)len), 0);
		tokenizer = json_string_value(json_object_get(row, "tokenizer"));
		if (strcmp(tokenizer, name)) { /* they follow each other by templates */
			chat_reader_close(&r);
			snprintf(name, sizeof(name), "%s", tokenizer);
			r.dir = tokenizer_dir(name);
			r.rows = mem_printf("%s/rows.jsonl", temp_dir);
			assert_int_equal(tokenizer_open(&r.tokenizer, r.dir), 0);
		}
		check_row(&r, row, ++count);
		json_decref(row);
	}
	chat_reader_close(&r);
	free(line);
	mem_free(path);
	fclose(f);
	assert_true(count >= 100);
}

static int set_up(void **state)
{
	(void)state;
	return !mkdtemp(temp_dir);
}

static int tear_down(void **state)
{
	(void)state;
	return file_remove_tree(temp_dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_draw)};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
