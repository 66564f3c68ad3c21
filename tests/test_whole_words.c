/* links: data_tokenizer */
/* Words of texts among tokens, beside transformers (golden/make_whole_words.py). */
#include "data/tokenizer/tokenizer.h"
#include "tests/check.h"

#include "base/json.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static const char *source_dir(void)
{
	const char *source = getenv("FERRY_SOURCE");

	return source ? source : ".";
}

/* Behind a special token each begins a word, whatever the tokenizer says. */
static void text_check(const struct tokenizer *t, const char *name, const json_t *given)
{
	const json_t *text = json_object_get(given, "text"), *ids = json_object_get(given, "ids"),
	             *begins = json_object_get(given, "begins");
	struct token_list got = {0}, starts = {0};
	int64_t before = -1;

	check_ok(tokenizer_encode_words(
	        t, &got, &starts, json_string_value(text), json_string_length(text), ADD_SPECIAL_ALL));
	assert_int_equal(got.count, json_array_size(ids));
	assert_int_equal(got.count, starts.count);
	for (int64_t i = 0; i < got.count; i++) {
		int64_t wanted = json_integer_value(json_array_get(begins, (size_t)i));

		assert_int_equal(got.ids[i], json_integer_value(json_array_get(ids, (size_t)i)));
		assert_int_equal(tokenizer_is_special(t, got.ids[i]), wanted < 0);
		if (wanted >= 0 && before >= 0 && starts.ids[i] != wanted)
			fail_msg("%s: token %lld of \"%s\" %s", name, (long long)i, json_string_value(text),
			        wanted ? "begins a word" : "goes on");
		assert_true(wanted < 0 || before >= 0 || wanted == 1);
		before = wanted;
	}
	token_list_free(&got);
	token_list_free(&starts);
}

static void test_words(void **state)
{
	static const char *const names[] = {"bert", "word_level", "roberta", "modernbert", "xlm_roberta"};

	(void)state;
	for (size_t n = 0; n < sizeof(names) / sizeof(*names); n++) {
		char *dir = mem_printf("%s/tests/golden/whole_words/%s", source_dir(), names[n]),
		     *path = mem_printf("%s/words.json", dir);
		struct tokenizer *t = NULL;
		json_t *texts = NULL, *text;
		size_t i;

		check_ok(tokenizer_open(&t, dir));
		assert_int_equal(json_read_file(&texts, path, 1 << 20), 0);
		assert_true(json_array_size(texts) > 10);
		json_array_foreach(texts, i, text)
		{
			text_check(t, names[n], text);
		}
		json_decref(texts);
		tokenizer_close(t);
		mem_free(path);
		mem_free(dir);
	}
}

/* Tokens that reach over white space have no words. */
static void test_refusal(void **state)
{
	static const char json[] = "{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a b\":0,\"a\":1,\"b\":2,"
	                           "\"?\":3},\"unk_token\":\"?\"}}";
	char path[] = "/tmp/ferry-words-XXXXXX";
	struct token_list ids = {0}, begins = {0};
	struct tokenizer *t = NULL;
	int fd = mkstemp(path);
	FILE *file = fdopen(fd, "w");

	(void)state;
	assert_non_null(file);
	assert_true(fputs(json, file) >= 0 && fclose(file) == 0);
	check_ok(tokenizer_open(&t, path));
	remove(path);
	assert_int_equal(
	        tokenizer_encode_words(t, &ids, &begins, "a b", 3, ADD_SPECIAL_NONE), ERR_UNSUPPORTED);
	assert_non_null(strstr(err_text(), "reach over white space"));
	token_list_free(&ids);
	token_list_free(&begins);
	tokenizer_close(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_words), cmocka_unit_test(test_refusal)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
