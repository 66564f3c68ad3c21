/* links: data */
/* Rows made of pieces (prompt and answer, alpaca, pairs): their ids decode to the pieces, whatever a
 * tokenizer puts before a text. */
#include "tests/tokenizer_helpers.h"

#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/str.h"
#include "data/dataset.h"
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

int main(void)
{
	static const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_pieces), cmocka_unit_test(test_bytes)};
	int rc;

	if (!mkdtemp(temp_dir))
		return 1;
	rc = cmocka_run_group_tests_name("data_pieces", tests, NULL, NULL);
	return file_remove_tree(temp_dir) || rc;
}
