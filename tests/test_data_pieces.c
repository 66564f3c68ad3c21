/* links: data */
/* Rows made of pieces (prompt and answer, alpaca, pairs): their ids decode to the pieces, whatever a
 * tokenizer puts before a text. */
#include "tests/tokenizer_helpers.h"

#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/str.h"
#include "data/rows/dataset.h"
#include "tests/dataset_rows.h"

static char temp_dir[] = "/tmp/ferry_test_pieces_XXXXXX";
static struct tokenizer *tokenizer;

static char *write_file(const char *name, const char *text)
{
	char *path = file_join(temp_dir, name);

	assert_int_equal(file_write_all(path, text, strlen(text)), 0);
	return path;
}

/* Replaces the value of a key, up to the key that follows it. */
static void put_value(struct str *text, const char *key, const char *next, const char *value)
{
	char *at = strstr(text->data, key), *end = at ? strstr(at, next) : NULL;
	struct str edited = {0};

	assert_non_null(end);
	at += strlen(key);
	str_add_bytes(&edited, text->data, (size_t)(at - text->data));
	str_add(&edited, value);
	str_add(&edited, end);
	str_free(text);
	*text = edited;
}

/* A tokenizer of tests/golden/tokenizer with three more tokens. pretokenizer: instead of the steps of
 * fallback.json; NULL: keeps them. */
static void open_with(const char *name, const char *pretokenizer)
{
	char *path = own_path(name), *bytes = NULL;
	struct str text = {0};
	size_t len = 0;

	assert_int_equal(file_read_all(path, 1 << 24, &bytes, &len), 0);
	str_add_bytes(&text, bytes, len);
	if (pretokenizer) {
		put_value(&text, "\"normalizer\":", ",\"post_processor\"", "null");
		put_value(&text, "\"pre_tokenizer\":", ",\"model\"", pretokenizer);
	}
	mem_free(write_file("tokenizer.json", text.data));
	mem_free(write_file("tokenizer_config.json",
	        "{\"eos_token\":\"<end>\",\"extra_special_tokens\":[\"<think>\",\"<tool_call>\"]}"));
	str_free(&text);
	mem_free(bytes);
	mem_free(path);
	if (tokenizer_open(&tokenizer, temp_dir))
		fail_msg("%s", err_text());
}

static struct dataset *open_row(const json_t *row, enum dataset_alpaca alpaca)
{
	char *text = json_dumps(row, 0), *path = write_file("rows.jsonl", text);
	struct dataset_options o = {.path = path, .tokenizer = tokenizer, .alpaca = alpaca};
	struct dataset *d = NULL;

	o.pairs = json_object_get(row, "chosen") ? DATASET_PAIRS_ONLY : DATASET_PAIRS_NONE;
	if (dataset_open(&d, &o))
		fail_msg("%s: %s", text, err_text());
	free(text);
	mem_free(path);
	return d;
}

/* The text of ids[from, to) of a row, behind those before. */
static void check_text(const struct dataset *d, int64_t row, int64_t from, int64_t to, const char *want)
{
	char *text = NULL;

	assert_int_equal(tokenizer_decode_more(
	                         tokenizer, &text, NULL, dataset_row_ids(d, row), from, to, SKIP_SPECIAL_OFF),
	        0);
	if (strcmp(text, want) != 0)
		fail_msg("row %d: \"%s\" instead of \"%s\"", (int)row, text, want);
	mem_free(text);
}

/* A row is a prompt that is not trained, and an answer with its end. */
static void check_row(const struct dataset *d, int64_t row, const char *prompt, const char *answer)
{
	int64_t count = dataset_row_tokens(d, row), border = 0;
	struct token_list ids = {0};
	char *whole = mem_printf("%s%s<end>", prompt, answer);

	while (border < count && dataset_label(d, row, border) == DATASET_IGNORE)
		border++;
	assert_int_equal(tokenizer_encode(tokenizer, &ids, prompt, strlen(prompt), ADD_SPECIAL_BEFORE), 0);
	assert_int_equal(ids.count, border); /* those that generate gives the prompt */
	assert_memory_equal(ids.ids, dataset_row_ids(d, row), (size_t)border * sizeof(*ids.ids));
	ids.count = 0;
	assert_int_equal(tokenizer_encode(tokenizer, &ids, "", 0, ADD_SPECIAL_BEFORE), 0);
	check_text(d, row, ids.count, count, whole);
	check_text(d, row, border, count - 1, answer);
	mem_free(whole);
	token_list_free(&ids);
}

static void check_completion(const char *prompt, const char *answer)
{
	json_t *row = json_pack("{s:s, s:s}", "prompt", prompt, "completion", answer);
	struct dataset *d = open_row(row, DATASET_ALPACA_CHAT);

	check_row(d, 0, prompt, answer);
	dataset_close(d);
	json_decref(row);
}

static void check_pair(const char *prompt, const char *chosen, const char *rejected, int has_prompt)
{
	char *a = mem_printf("%s%s", prompt, chosen), *b = mem_printf("%s%s", prompt, rejected);
	json_t *row = has_prompt ? json_pack("{s:s, s:s, s:s}", "prompt", prompt, "chosen", chosen,
	                                   "rejected", rejected)
	                         : json_pack("{s:s, s:s}", "chosen", a, "rejected", b);
	struct dataset *d = open_row(row, DATASET_ALPACA_CHAT);

	assert_int_equal(d->row_count, 2);
	check_row(d, 0, prompt, chosen);
	check_row(d, 1, prompt, rejected);
	dataset_close(d);
	json_decref(row);
	mem_free(a);
	mem_free(b);
}

static void check_alpaca(void)
{
	json_t *row = json_pack("{s:s, s:s, s:s, s:[[s, s]]}", "instruction", "the cat", "output", "Anna",
	        "system", "S", "history", "a", "b");
	struct dataset *d = open_row(row, DATASET_ALPACA_STANFORD_NEWLINE);
	struct token_list ids = {0};

	assert_int_equal(tokenizer_encode(tokenizer, &ids, "", 0, ADD_SPECIAL_BEFORE), 0);
	check_text(d, 0, ids.count, dataset_row_tokens(d, 0),
	        "S\n\n### Instruction:\na\n\n### Response:\nb<end>\n\n### Instruction:\nthe cat\n\n### "
	        "Response:\nAnna<end>");
	token_list_free(&ids);
	dataset_close(d);
	json_decref(row);
}

static void check_all(void)
{
	static const char *const texts[][2] = {{"The answer is:", " yes"}, {"The answer is:", "yes"},
	        {"The answer is: ", "yes"}, {"The answer is:", "  yes"}, {"a\n", "\nb"}, {"a\n", " b"},
	        {"", "yes"}, {"a", ""}, {"caf", "\xc3\xa9"}, {"x ", " "}};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		check_completion(texts[i][0], texts[i][1]);
	check_pair("The answer is:", " yes", "no", 1);
	check_pair("The answer is:", " yes", " no", 0);
	check_pair("The answer is:\n", "yes", "no", 0);
	check_pair("a\n", "<think>", "<tool_call>", 0); /* both begin with '<' and 't' */
	check_pair("a:", " <think>", " <tool_call>", 0);
	check_pair("a\n<think>", "b", "c", 0);
	check_pair("a: ", "\xc3\xa9", "\xc3\xa8", 1);
	check_alpaca();
	tokenizer_close(tokenizer);
}

static void test_pieces(void **state)
{
	static const char *const schemes[] = {"first", "always"};

	(void)state;
	open_with("fallback.json", NULL); /* Prepend and Replace, as Llama 2 */
	check_all();
	for (int i = 0; i < 4; i++) {
		char *steps = mem_printf("{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\","
		                         "\"prepend_scheme\":\"%s\",\"split\":%s}",
		        schemes[i % 2], i < 2 ? "false" : "true");

		open_with("fallback.json", steps);
		mem_free(steps);
		check_all();
	}
	open_with("plain.json", NULL);
	check_all();
}

/* Tokenizers that put nothing before a text: a text that goes on has the ids that it has alone. */
static void test_bytes(void **state)
{
	static const char *const own[] = {"plain.json", "rich.json"};
	char text[4096];

	(void)state;
	for (int k = 0; k < 2; k++) {
		struct tokenizer *t = open_own(own[k]);

		for (uint64_t trial = 0; trial < 300; trial++) {
			size_t len = random_text(text, 5, trial, 30);
			struct token_list alone = {0}, more = {0};

			assert_int_equal(tokenizer_encode(t, &alone, text, len, ADD_SPECIAL_NONE), 0);
			assert_int_equal(tokenizer_encode_more(t, &more, text, len), 0);
			assert_int_equal(alone.count, more.count);
			if (alone.count)
				assert_memory_equal(
				        alone.ids, more.ids, (size_t)more.count * sizeof(*more.ids));
			token_list_free(&alone);
			token_list_free(&more);
		}
		tokenizer_close(t);
	}
}

/* ---- long rows ---- */

/* Ids up to a limit are those of the whole text. */
static void check_limit(const struct tokenizer *t, const char *text, size_t len, int64_t limit)
{
	struct token_list all = {0}, some = {.limit = limit};

	assert_int_equal(tokenizer_encode(t, &all, text, len, ADD_SPECIAL_NONE), 0);
	assert_int_equal(tokenizer_encode(t, &some, text, len, ADD_SPECIAL_NONE), 0);
	assert_true(some.count == all.count || some.count >= limit);
	assert_true(some.count <= all.count);
	if (some.count)
		assert_memory_equal(all.ids, some.ids, (size_t)some.count * sizeof(*some.ids));
	token_list_free(&all);
	token_list_free(&some);
}

static void test_limit(void **state)
{
	static const char *const own[] = {"plain.json", "rich.json", "fallback.json", "unigram.json",
	        "wordpiece.json", "wordlevel.json", "affixed.json", "bpe.model", "unigram.model"};
	static const int64_t limits[] = {1, 2, 7, 40, 300};
	char *text = mem_alloc(1, 1 << 16);

	(void)state;
	for (size_t k = 0; k < sizeof(own) / sizeof(own[0]); k++) {
		struct tokenizer *t = open_own(own[k]);

		for (uint64_t trial = 0; trial < 120; trial++) {
			size_t len = random_text(text, 9, trial, 60);

			while (trial % 3 == 0 && len > 0 && len < 6000) { /* long words, and many of them */
				memcpy(text + len, text, len);
				len *= 2;
			}
			check_limit(t, text, len, limits[trial % 5]);
		}
		memset(text, 'a', 1 << 15); /* one word of many windows */
		for (int i = 0; i < 5; i++)
			check_limit(t, text, 1 << 15, limits[i]);
		tokenizer_close(t);
	}
	mem_free(text);
}

/* A text of 5 MiB in one row: only as many tokens as max_length asks for are made. */
static void test_long_text(void **state)
{
	enum { BYTES = 5 << 20 };
	struct str row = {0};
	struct dataset *d = NULL;
	struct dataset_options o = {.max_length_tokens = 16};
	char *path;

	(void)state;
	open_with("plain.json", NULL);
	str_add(&row, "{\"prompt\":\"a\",\"completion\":\"");
	while (row.len_bytes < BYTES)
		str_add(&row, "the cat of Anna ");
	str_add(&row, "\"}");
	path = write_file("rows.jsonl", row.data);
	o.path = path;
	o.tokenizer = tokenizer;
	assert_int_equal(dataset_open(&d, &o), 0);
	assert_int_equal(dataset_row_tokens(d, 0), 16);
	assert_int_equal(d->counts.truncated, 1);
	assert_int_equal(d->counts.is_longest_cut, 1);
	assert_true(d->counts.longest_tokens > 16 && d->counts.longest_tokens < 100);
	check_text(d, 0, 0, 3, "athe");
	dataset_close(d);
	o.long_rows = DATASET_LONG_ROWS_ERROR;
	assert_int_equal(dataset_open(&d, &o), ERR_INPUT);
	assert_non_null(strstr(err_text(), "has at least "));
	tokenizer_close(tokenizer);
	str_free(&row);
	mem_free(path);
}

static void refuse(const char *path, const char *says)
{
	struct dataset_options o = {.path = path, .tokenizer = tokenizer};
	struct dataset *d = NULL;

	assert_int_equal(dataset_open(&d, &o), ERR_UNSUPPORTED);
	if (!strstr(err_text(), says) || !strstr(err_text(), path))
		fail_msg("%s", err_text());
}

static void test_row_limits(void **state)
{
	struct str row = {0};
	char *path, *csv;

	(void)state;
	open_with("plain.json", NULL);
	path = write_file("rows.jsonl", "{\"text\":\"a\"}\n{\"text\":\"");
	assert_int_equal(truncate(path, (int64_t)300 << 20), 0); /* a line of NULs */
	refuse(path, "rows.jsonl:2: the row that begins here has more than 256 MiB");
	mem_free(path);
	csv = write_file("rows.csv", "text\na\n\"");
	assert_int_equal(truncate(csv, (int64_t)300 << 20), 0);
	refuse(csv, "rows.csv:3: the row that begins here has more than 256 MiB");
	mem_free(csv);
	str_add(&row, "{\"text\":\"a\",\"other\":[0");
	while (row.len_bytes < 18000000)
		str_add(&row, ",0,0,0,0,0,0,0,0");
	str_add(&row, "]}");
	path = write_file("rows.jsonl", row.data);
	refuse(path, "rows.jsonl:1: the row has more than 8000000 numbers");
	mem_free(path);
	str_free(&row);
	str_add(&row, "{\"messages\":[{\"role\":\"user\",\"content\":\"");
	while (row.len_bytes < 34 << 20)
		str_add(&row, "the cat of Anna ");
	str_add(&row, "\"},{\"role\":\"assistant\",\"content\":\"b\"}]}");
	path = write_file("rows.jsonl", row.data);
	refuse(path, "rows.jsonl:1: the chat has more than 32 MiB");
	mem_free(path);
	str_free(&row);
	tokenizer_close(tokenizer);
}

/* Replace steps that multiply a text end at a limit; a text that grows by the factors of real normalizers
 * does not. */
static void test_growth(void **state)
{
	static const char twice[] =
	        "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aa\"}";
	struct str steps = {0}, text = {0};
	struct token_list ids = {.limit = 10};
	char *path = own_path("fallback.json"), *bytes = NULL;
	size_t len;

	(void)state;
	assert_int_equal(file_read_all(path, 1 << 24, &bytes, &len), 0);
	for (int count = 4; count <= 28; count += 24) {
		str_add_bytes(&text, bytes, len);
		str_add(&steps, "{\"type\":\"Sequence\",\"normalizers\":[");
		for (int i = 0; i < count; i++) {
			str_add(&steps, i ? "," : "");
			str_add(&steps, twice);
		}
		str_add(&steps, "]}");
		put_value(&text, "\"normalizer\":", ",\"post_processor\"", steps.data);
		mem_free(write_file("tokenizer.json", text.data));
		assert_int_equal(tokenizer_open(&tokenizer, temp_dir), 0);
		assert_int_equal(tokenizer_encode(tokenizer, &ids, "aaaa", 4, ADD_SPECIAL_NONE),
		        count == 4 ? 0 : ERR_UNSUPPORTED);
		if (count > 4)
			assert_non_null(strstr(err_text(), "normalizer makes a text longer than 16 MiB"));
		tokenizer_close(tokenizer);
		str_free(&steps);
		str_free(&text);
	}
	token_list_free(&ids);
	mem_free(bytes);
	mem_free(path);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {cmocka_unit_test(test_pieces), cmocka_unit_test(test_bytes),
	        cmocka_unit_test(test_limit), cmocka_unit_test(test_long_text),
	        cmocka_unit_test(test_row_limits), cmocka_unit_test(test_growth)};
	int rc;

	if (!mkdtemp(temp_dir))
		return 1;
	rc = cmocka_run_group_tests_name("data_pieces", tests, NULL, NULL);
	return file_remove_tree(temp_dir) || rc;
}
