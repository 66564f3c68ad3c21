/* links: data */
/* Tokens and settings in the files beside tokenizer.json, against recorded results of transformers. */
#include "tests/tokenizer_helpers.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"

static char temp_dir[] = "/tmp/ferry_test_beside_XXXXXX";

static void write_file(const char *name, const char *bytes, size_t len_bytes)
{
	char *path = file_join(temp_dir, name);
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_int_equal(fwrite(bytes, 1, len_bytes, f), len_bytes);
	assert_int_equal(fclose(f), 0);
	mem_free(path);
}

static void empty_dir(void)
{
	char **names = NULL;
	size_t count = 0;

	assert_int_equal(file_list_dir(temp_dir, &names, &count), 0);
	for (size_t i = 0; i < count; i++) {
		char *file = file_join(temp_dir, names[i]);

		unlink(file);
		mem_free(file);
	}
	file_list_free(names, count);
}

/* The files of a row: a tokenizer of tests/golden/tokenizer, and those beside it. */
static int open_row(struct tokenizer **t, const json_t *row)
{
	const char *base = json_string_value(json_object_get(row, "base")), *name;
	char *path = own_path(base), *bytes = NULL;
	size_t len = 0;
	json_t *tree;

	empty_dir();
	assert_int_equal(file_read_all(path, 1 << 24, &bytes, &len), 0);
	write_file(strstr(base, ".model") ? "tokenizer.model" : "tokenizer.json", bytes, len);
	mem_free(bytes);
	mem_free(path);
	json_object_foreach(json_object_get(row, "files"), name, tree)
	{
		char *text = json_dumps(tree, 0);

		write_file(name, text, strlen(text));
		free(text);
	}
	return tokenizer_open(t, temp_dir);
}

static int gives(const struct tokenizer *t, const json_t *text, const json_t *want, enum add_special add)
{
	struct token_list ids = {0};
	int same;

	assert_int_equal(
	        tokenizer_encode(t, &ids, json_string_value(text), json_string_length(text), add), 0);
	same = (size_t)ids.count == json_array_size(want);
	for (int64_t i = 0; same && i < ids.count; i++)
		same = json_integer_value(json_array_get(want, (size_t)i)) == ids.ids[i];
	token_list_free(&ids);
	return same;
}

/* 1 if the row is as transformers says. */
static int check_row(const json_t *row)
{
	const char *taken = json_string_value(json_object_get(row, "taken"));
	const json_t *one, *eos = json_object_get(row, "eos");
	struct tokenizer *t = NULL;
	int rc = open_row(&t, row), good = 1;
	size_t i;

	if (taken) {
		good = rc == ERR_INPUT && strstr(err_text(), taken) && strstr(err_text(), temp_dir);
		tokenizer_close(t);
		return good;
	}
	if (rc < 0)
		return 0;
	json_array_foreach(json_object_get(row, "rows"), i, one) good &=
	        gives(t, json_array_get(one, 0), json_array_get(one, 1), ADD_SPECIAL_NONE) &&
	        gives(t, json_array_get(one, 0), json_array_get(one, 2), ADD_SPECIAL_ALL);
	good &= !json_is_integer(eos) || json_integer_value(eos) == tokenizer_roles(t)->eos;
	tokenizer_close(t);
	return good;
}

static void test_rows(void **state)
{
	char *path = own_path("../added_tokens.jsonl"), line[1 << 16];
	FILE *f = fopen(path, "r");
	int rows = 0, refused = 0, bad = 0;

	(void)state;
	assert_non_null(f);
	for (; fgets(line, sizeof(line), f); rows++) {
		json_t *row = NULL;

		assert_int_equal(json_parse(&row, path, line, strlen(line)), 0);
		refused += json_object_get(row, "taken") != NULL;
		if (!check_row(row) && bad++ < 5)
			print_error("%s:%d: %.300s\n", path, rows + 1, line);
		json_decref(row);
	}
	fclose(f);
	mem_free(path);
	assert_int_equal(bad, 0);
	assert_true(rows >= 100 && refused > 0 && refused < rows / 4);
}

static void test_refused(void **state)
{
	static const struct {
		const char *name, *text, *says;
	} cases[] = {
	        {"tokenizer_config.json", "{\"added_tokens_decoder\":{\"5\":{\"content\":\"<T>\"}}}",
	                "'<T>' has id 5, which is"},
	        {"tokenizer_config.json", "{\"added_tokens_decoder\":{\"x\":{\"content\":\"<T>\"}}}",
	                "\"x\" is not an id"},
	        {"tokenizer_config.json", "{\"added_tokens_decoder\":{\"500\":{\"text\":\"<T>\"}}}",
	                "\"text\""},
	        {"tokenizer_config.json", "{\"added_tokens_decoder\":[]}", "expected an object"},
	        {"tokenizer_config.json", "{\"extra_special_tokens\":7}", "expected a list"},
	        {"tokenizer_config.json", "{\"eos_token\":[]}", "eos_token is neither"},
	        {"tokenizer_config.json", "{\"split_special_tokens\":3}", "split_special_tokens"},
	        {"added_tokens.json", "{\"<T>\":500,\"<U>\":500}", "'<T>' and '<U>' have the same id 500"},
	        {"added_tokens.json", "{\"<T>\":\"a\"}", "'<T>' has a string; expected an id"},
	        {"added_tokens.json", "{\"<|endoftext|>\":3}", "has id 3 here and 0 in"},
	        {"added_tokens.json", "[]", "expected an object"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		json_t *files = json_pack("{s:s, s:{}}", "base", "plain.json", "files");
		struct tokenizer *t = NULL;

		assert_int_equal(open_row(&t, files), 0);
		tokenizer_close(t);
		t = NULL;
		write_file(cases[i].name, cases[i].text, strlen(cases[i].text));
		assert_int_not_equal(tokenizer_open(&t, temp_dir), 0);
		if (!strstr(err_text(), cases[i].says) || !strstr(err_text(), cases[i].name))
			fail_msg("%s: %s", cases[i].text, err_text());
		json_decref(files);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_rows), cmocka_unit_test(test_refused)};
	int rc;

	if (!mkdtemp(temp_dir))
		return 1;
	rc = cmocka_run_group_tests_name("tokenizer_beside", tests, NULL, NULL);
	empty_dir();
	rmdir(temp_dir);
	return rc;
}
