/* links: data */
/* Datasets of text: alpaca against recorded rows; what ferry appends, masks, cuts and refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/rows/dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/dataset_rows.h"
#include "tests/sparing.h"

static void skip_absent(const char *name)
{
	print_message("SKIPPED %s: ../shared absent\n", name);
	skip();
}

/* "$FERRY_SHARED/<name>", or NULL if it does not exist. Free it with mem_free. */
static char *shared_path(const char *name)
{
	const char *shared = getenv("FERRY_SHARED");
	char *path = shared ? mem_printf("%s/%s", shared, name) : NULL;

	if (path && file_kind_of(path) == FILE_NONE) {
		mem_free(path);
		path = NULL;
	}
	return path;
}

static void check_alpaca_row(const struct dataset *d, const json_t *golden, const char *name)
{
	int64_t row = json_integer_value(json_object_get(golden, "index"));
	const json_t *want = json_object_get(json_object_get(golden, name), "separate");
	const json_t *ids = json_object_get(want, "input_ids"), *labels = json_object_get(want, "labels");

	assert_int_equal(dataset_row_tokens(d, row), json_array_size(ids));
	for (int64_t t = 0; t < dataset_row_tokens(d, row); t++) {
		assert_int_equal(
		        dataset_row_ids(d, row)[t], json_integer_value(json_array_get(ids, (size_t)t)));
		assert_int_equal(
		        dataset_label(d, row, t), json_integer_value(json_array_get(labels, (size_t)t)));
	}
}

static void check_alpaca(const char *name)
{
	char *dir = mem_printf("%s/tokenizers/%s", getenv("FERRY_SHARED"), name), *line = NULL;
	char *data = shared_path("data/alpaca_1k.json"), *golden = shared_path("data/alpaca_golden.jsonl");
	struct tokenizer *t = NULL;
	struct dataset *d = NULL;
	size_t cap = 0;
	int64_t rows = 0;
	FILE *f;

	assert_int_equal(tokenizer_open(&t, dir), 0);
	struct dataset_options options = {.path = data, .tokenizer = t};

	if (dataset_open(&d, &options) < 0)
		fail_msg("%s", err_text());
	assert_int_equal(d->format, DATASET_FORMAT_ALPACA);
	assert_int_equal(d->row_count, 1000);
	f = fopen(golden, "r");
	assert_non_null(f);
	for (ssize_t len; (len = getline(&line, &cap, f)) > 0; rows++) {
		json_t *row = NULL;

		assert_int_equal(json_parse(&row, golden, line, (size_t)len), 0);
		check_alpaca_row(d, row, name);
		json_decref(row);
	}
	assert_int_equal(rows, 50);
	fclose(f);
	free(line);
	dataset_close(d);
	tokenizer_close(t);
	mem_free(golden);
	mem_free(data);
	mem_free(dir);
}

static void test_alpaca_golden(void **state)
{
	char *golden = shared_path("data/alpaca_golden.jsonl");

	(void)state;
	if (!golden)
		skip_absent("test_alpaca_golden");
	mem_free(golden);
	check_alpaca("gpt2");
	check_alpaca("llama-3");
}

/* ---- rows of a tokenizer that is easily read: one id per ASCII letter, 1 in front of every text, 2 as its
 * end */

static char temp_dir[] = "/tmp/ferry_test_text_XXXXXX";

static int make_temp_dir(void **state)
{
	(void)state;
	return mkdtemp(temp_dir) ? 0 : -1;
}

static int remove_temp_dir(void **state)
{
	(void)state;
	return file_remove_tree(temp_dir);
}

static void write_file(const char *name, const char *text)
{
	char *path = file_join(temp_dir, name);

	assert_int_equal(file_write_all(path, text, strlen(text)), 0);
	mem_free(path);
}

/* Letters a to z are 10 to 35; what else occurs in a text vanishes. */
static struct tokenizer *letters(const char *config)
{
	struct str spec = {0};
	struct tokenizer *t = NULL;

	str_add(&spec, "{\"added_tokens\":[");
	for (int i = 0; i < 3; i++)
		str_printf(&spec,
		        "%s{\"id\":%d,\"content\":\"<%d>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":"
		        "false,"
		        "\"normalized\":false,\"special\":true}",
		        i ? "," : "", i, i);
	str_add(&spec, "],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":"
	               "false,\"trim_offsets\":true},"
	               "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{"
	               "\"id\":\"<1>\",\"type_id\":0}},"
	               "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],\"special_tokens\":{\"<1>\":"
	               "{\"id\":\"<1>\",\"ids\":[1],"
	               "\"tokens\":[\"<1>\"]}}},\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":"
	               "\"BPE\",\"merges\":[],\"vocab\":{"
	               "\"<0>\":0,\"<1>\":1,\"<2>\":2");
	for (int i = 0; i < 26; i++)
		str_printf(&spec, ",\"%c\":%d", 'a' + i, 10 + i);
	str_add(&spec, "}}}");
	write_file("tokenizer.json", spec.data);
	write_file("tokenizer_config.json", config);
	str_free(&spec);
	if (tokenizer_open(&t, temp_dir) < 0)
		fail_msg("%s", err_text());
	return t;
}

static struct dataset *open_text(const char *name, const char *text, struct dataset_options options)
{
	char *path = file_join(temp_dir, name);
	struct dataset *d = NULL;

	write_file(name, text);
	options.path = path;
	if (dataset_open(&d, &options) < 0)
		fail_msg("%s", err_text());
	mem_free(path);
	return d;
}

/* A row as "ids / labels", -100 as a dot. */
static void check_row(const struct dataset *d, int64_t row, const char *want)
{
	struct str text = {0};

	for (int64_t t = 0; t < dataset_row_tokens(d, row); t++)
		str_printf(&text, "%d ", dataset_row_ids(d, row)[t]);
	str_add(&text, "/");
	for (int64_t t = 0; t < dataset_row_tokens(d, row); t++) {
		if (dataset_label(d, row, t) == DATASET_IGNORE)
			str_add(&text, " .");
		else
			str_printf(&text, " %d", dataset_label(d, row, t));
	}
	assert_string_equal(text.data, want);
	str_free(&text);
}

static const char with_eos[] = "{\"eos_token\":\"<2>\"}";

static void test_text_rows(void **state)
{
	struct tokenizer *t = letters(with_eos);
	struct dataset_options options = {.tokenizer = t};
	struct dataset *d = open_text(
	        "a.jsonl", "{\"text\":\"abc\",\"id\":7}\n{\"text\":\"\"}\n{\"text\":\"d<2>\"}\n", options);

	(void)state;
	assert_int_equal(d->format, DATASET_FORMAT_TEXT);
	assert_int_equal(d->row_count, 3);
	check_row(d, 0, "1 10 11 12 2 / 1 10 11 12 2");
	check_row(d, 1, "1 2 / 1 2");
	check_row(d, 2, "1 13 2 / 1 13 2"); /* the end is there already */
	dataset_close(d);
	options.names.fields[ROW_FIELD_TEXT] = "body";
	options.max_length_tokens = 3;
	d = open_text("b.json", "[{\"body\":\"abc\", \"text\":\"zzz\"}]", options);
	check_row(d, 0, "1 10 11 / 1 10 11");
	assert_int_equal(d->counts.truncated, 1);
	dataset_close(d);
	options.long_rows = DATASET_LONG_ROWS_SPLIT;
	d = open_text("b.json", "[{\"body\":\"abcabc\"}, {\"body\":\"a\"}]", options);
	assert_int_equal(d->row_count, 4);
	check_row(d, 0, "1 10 11 / 1 10 11");
	check_row(d, 1, "12 10 11 / 12 10 11");
	check_row(d, 2, "12 2 / 12 2");
	check_row(d, 3, "1 10 2 / 1 10 2");
	assert_int_equal(d->counts.split, 1);
	assert_int_equal(d->counts.truncated, 0);
	dataset_close(d);
	tokenizer_close(t);
	t = letters("{}");
	options = (struct dataset_options){.tokenizer = t};
	d = open_text("c.jsonl", "{\"text\":\"abc\"}", options);
	check_row(d, 0, "1 10 11 12 / 1 10 11 12"); /* no end is known */
	dataset_close(d);
	tokenizer_close(t);
}

static void test_plain_text(void **state)
{
	struct tokenizer *t = letters(with_eos);
	struct dataset_options options = {.tokenizer = t, .max_length_tokens = 4};
	struct dataset *d = open_text("a.TXT", "ab cd\nefg", options);

	(void)state;
	assert_int_equal(d->row_count, 2); /* 1 a b c | d e f g | and an end alone */
	check_row(d, 0, "1 10 11 12 / 1 10 11 12");
	check_row(d, 1, "13 14 15 16 / 13 14 15 16");
	dataset_close(d);
	options.max_samples = 1;
	d = open_text("a.txt", "ab cd\nefgh", options);
	assert_int_equal(d->row_count, 1);
	dataset_close(d);
	options = (struct dataset_options){.tokenizer = t};
	d = open_text("a.txt", "[{",
	        options); /* not JSON, whatever it looks like; nothing of it is in the vocabulary */
	check_row(d, 0, "1 2 / 1 2");
	dataset_close(d);
	tokenizer_close(t);
}

/* ---- a text larger than one window ---- */

/* Words, figures, code, other scripts; long and empty lines, and stretches without any blank. */
static void make_long_text(struct str *text)
{
	static const char *const pieces[] = {"the ", "River's ", " stone", "\n", "\n\n", "  ", "12345 ",
	        "x_y->z(1);\n", "\xe6\x9d\xb1\xe4\xba\xac", "na\xc3\xafve ", "...", "\t", " a", "!",
	        "\xf0\x9f\x98\x80", "ing ", "e\xcc\x81 ", "\r\n", "HTTP", "<s>", "</s> "};
	enum { COUNT = sizeof(pieces) / sizeof(pieces[0]) };
	uint32_t x = 1;

	for (int i = 0; i < 40000; i++) {
		x = x * 1664525 + 1013904223;
		str_add(text, pieces[(x >> 16) % COUNT]);
		for (int k = 0; k < 3000 && i % 10000 == 9999; k++)
			str_add(text, i % 20000 == 19999 ? "\xe6\x9d\xb1" : "ab");
	}
}

static void check_windows(const char *dir, const char *text, int has_words)
{
	struct tokenizer *t = NULL;

	if (tokenizer_open(&t, dir) < 0)
		fail_msg("%s", err_text());
	for (int64_t length = 0; length <= 100; length += 100) {
		struct dataset_options options = {
		        .tokenizer = t, .max_length_tokens = length, .has_words = has_words};
		struct dataset *whole = open_text("long.txt", text, options), *pieces;
		int64_t compared = 0, going = 0;

		options.text_window_bytes = 16384;
		pieces = open_text("long.txt", text, options);
		if (whole->row_count != pieces->row_count || whole->token_count != pieces->token_count)
			fail_msg("%s: %lld tokens at once, %lld in pieces", dir,
			        (long long)whole->token_count, (long long)pieces->token_count);
		for (int64_t row = 0; row < whole->row_count; row++) {
			struct row_view a = *dataset_row_view(whole, row), b = *dataset_row_view(pieces, row);

			assert_int_equal(a.token_count, b.token_count);
			assert_memory_equal(a.ids, b.ids, (size_t)a.token_count * sizeof(*a.ids));
			for (int64_t i = 0; i < a.token_count; i++) {
				if (!tokenizer_is_special(t, a.ids[i]))
					assert_int_equal(row_label(&a, i), row_label(&b, i));
				going += row_label(&a, i) >= DATASET_GOES_ON;
			}
			compared += a.token_count;
		}
		assert_int_equal(compared, whole->token_count);
		assert_true(has_words ? going > compared / 4 : !going);
		dataset_close(whole);
		dataset_close(pieces);
	}
	tokenizer_close(t);
}

static void test_long_text(void **state)
{
	char *root = shared_path("tokenizers"), **names = NULL;
	struct str text = {0};
	size_t count = 0, checked = 0;

	(void)state;
	if (!root)
		skip_absent("test_long_text");
	make_long_text(&text);
	assert_true(text.len_bytes > 100000);
	assert_int_equal(file_list_dir(root, &names, &count), 0);
	for (size_t i = 0; i < count; i += (size_t)sparing(3)) {
		char *dir = file_join(root, names[i]), *json = file_join(dir, "tokenizer.json");

		if (file_kind_of(json) == FILE_REGULAR) {
			check_windows(dir, text.data, 0);
			checked++;
		}
		mem_free(json);
		mem_free(dir);
	}
	assert_true(checked > 20 / (size_t)sparing(3));
	file_list_free(names, count);
	str_free(&text);
	mem_free(root);
}

/* Where words begin, too. */
static void test_long_words(void **state)
{
	static const char *const names[] = {"bert", "roberta", "modernbert", "xlm_roberta"};
	const char *source = getenv("FERRY_SOURCE");
	struct str text = {0};

	(void)state;
	make_long_text(&text);
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		char *dir = mem_printf("%s/tests/golden/whole_words/%s", source ? source : ".", names[i]);

		check_windows(dir, text.data, 1);
		mem_free(dir);
	}
	str_free(&text);
}

static void test_prompt_completion(void **state)
{
	static const char text[] =
	        "{\"prompt\":\"ab\",\"completion\":\"c\"}\n{\"completion\":\"d<2>\",\"prompt\":\"\"}";
	struct tokenizer *t = letters(with_eos);
	struct dataset_options options = {.tokenizer = t};
	struct dataset *d = open_text("a.jsonl", text, options);

	(void)state;
	assert_int_equal(d->format, DATASET_FORMAT_PROMPT_COMPLETION);
	check_row(d, 0, "1 10 11 12 2 / . . . 12 2");
	check_row(d, 1, "1 13 2 / . 13 2");
	dataset_close(d);
	options.inputs = DATASET_INPUTS_TRAIN;
	d = open_text("a.jsonl", text, options);
	check_row(d, 0, "1 10 11 12 2 / 1 10 11 12 2");
	dataset_close(d);
	options.inputs = DATASET_INPUTS_CHATS;
	d = open_text("a.jsonl", text, options);
	check_row(d, 0, "1 10 11 12 2 / . . . 12 2");
	dataset_close(d);
	options.inputs = DATASET_INPUTS_PROMPTS;
	d = open_text("a.jsonl", text, options);
	check_row(d, 0, "1 10 11 12 2 / 1 10 11 12 2");
	dataset_close(d);
	options.inputs = DATASET_INPUTS_MASK;
	options.max_length_tokens = 3; /* the first row loses its answer */
	d = open_text("a.jsonl", text, options);
	check_row(d, 0, "1 10 11 / . . .");
	assert_int_equal(d->counts.without_target, 1);
	dataset_close(d);
	tokenizer_close(t);
}

static void test_text_refused(void **state)
{
	static const struct {
		const char *name, *text, *says;
		int code;
	} cases[] = {
	        {"a.jsonl", "{\"text\":7}", "a.jsonl:1: \"text\"", ERR_INPUT},
	        {"a.jsonl", "{\"text\":\"a\"}\n{\"texts\":\"a\"}", "a.jsonl:2: \"text\" is missing",
	                ERR_INPUT},
	        {"a.jsonl", "{\"text\":\"\xff\"}", "a.jsonl:1", ERR_INPUT},
	        {"a.txt", "ab\xff", "a.txt: the text is not valid UTF-8 at byte 2", ERR_INPUT},
	        {"a.txt", "", "the file is empty", ERR_INPUT},
	        {"a.jsonl", "{\"instruction\":\"a\",\"output\":\"b\",\"system\":7}", "\"system\"", ERR_INPUT},
	        {"a.jsonl", "{\"instruction\":\"a\",\"output\":\"b\",\"history\":[[\"c\"]]}",
	                "history[0] must be a list of two texts", ERR_INPUT},
	        {"a.jsonl", "{\"instruction\":\"a\",\"output\":\"b\"}\n{\"instruction\":\"a\"}",
	                ":2: \"output\" is missing", ERR_INPUT},
	        {"a.jsonl", "{\"instruction\":\"a\",\"output\":\"b\",\"input\":[]}", "\"input\"", ERR_INPUT},
	        {"a.jsonl", "{\"prompt\":[],\"completion\":\"a\"}", "both be texts, or both lists",
	                ERR_INPUT},
	        {"a.jsonl", "{\"prompt\":[],\"completion\":[]}", "chats need a chat template", ERR_INPUT},
	        {"a.jsonl", "{\"prompt\":\"a\",\"completion\":null}", "\"completion\" is null; give",
	                ERR_INPUT},
	        {"a.jsonl", "{\"prompt\":\"a\",\"completion\":\"b\",\"tools\":[{\"name\":\"f\"}]}",
	                "a.jsonl:1: \"tools\" of the row would be lost", ERR_INPUT},
	        {"a.jsonl", "{\"instruction\":\"a\",\"output\":\"b\",\"tools\":\"[{}]\"}",
	                "a.jsonl:1: \"tools\" of the row would be lost", ERR_INPUT},
	        {"a.jsonl", "{\"text\":\"a\"}\n{\"text\":[1\n{\"text\":\"a\"}",
	                "']' expected near end of line; repair or remove this row", ERR_INPUT},
	        {"a.csv", "messages,id\nhello,1\n", "fit no known format", ERR_INPUT},
	        {"a.csv", "messages\n\"[{'role': 'user'}]\"\n",
	                "a.csv:2: \"messages\" is a text that begins with [ and is not JSON: ", ERR_INPUT},
	};
	struct tokenizer *t = letters(with_eos);

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *path = file_join(temp_dir, cases[i].name);
		struct dataset_options options = {.path = path, .tokenizer = t};
		struct dataset *d = NULL;
		int rc;

		write_file(cases[i].name, cases[i].text);
		rc = dataset_open(&d, &options);
		if (rc != cases[i].code || d || !strstr(err_text(), cases[i].says))
			fail_msg("%s gave %d: %s", cases[i].text, rc, err_text());
		mem_free(path);
	}
	tokenizer_close(t);
}

static void test_text_needs(void **state)
{
	struct tokenizer *t = letters("{}");
	char *path = file_join(temp_dir, "a.jsonl");
	struct dataset_options options = {.path = path};
	struct dataset *d = NULL;

	(void)state;
	write_file("a.jsonl", "{\"prompt\":\"a\",\"completion\":\"b\"}");
	assert_int_equal(dataset_open(&d, &options), ERR_INPUT);
	assert_non_null(strstr(err_text(), "needs a tokenizer"));
	options.tokenizer = t;
	assert_int_equal(dataset_open(&d, &options), ERR_INPUT);
	assert_non_null(strstr(err_text(), "no eos_token"));
	tokenizer_close(t);
	options.tokenizer = t = letters(with_eos);
	options.vocab_count = 11; /* a model that is smaller than its tokenizer */
	assert_int_equal(dataset_open(&d, &options), ERR_INPUT);
	assert_non_null(strstr(err_text(), "has id 11, but the model has ids 0 to 10; resize"));
	tokenizer_close(t);
	mem_free(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_alpaca_golden),
	        cmocka_unit_test(test_text_rows),
	        cmocka_unit_test(test_plain_text),
	        cmocka_unit_test(test_long_text),
	        cmocka_unit_test(test_long_words),
	        cmocka_unit_test(test_prompt_completion),
	        cmocka_unit_test(test_text_refused),
	        cmocka_unit_test(test_text_needs),
	};

	return cmocka_run_group_tests_name("data_text", tests, make_temp_dir, remove_temp_dir);
}
