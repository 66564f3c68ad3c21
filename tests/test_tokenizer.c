/* links: data */
/* The tokenizer against recorded results of HF tokenizers, PCRE2, naive references, and damaged files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/str.h"
#include "data/byte_level.h"
#include "data/nfc.h"
#include "data/pattern.h"
#include "data/tokenizer.h"
#include "data/tokenizer_inside.h"
#include "data/unicode.h"

/* "$FERRY_SHARED/tokenizers/<name>", or NULL where there is no such place. Free with mem_free. */
static char *shared_path(const char *name)
{
	const char *shared = getenv("FERRY_SHARED");
	char *path = shared ? mem_printf("%s/tokenizers/%s", shared, name) : NULL;

	if (path && file_kind_of(path) == FILE_NONE) {
		mem_free(path);
		path = NULL;
	}
	return path;
}

static void skip_absent(const char *name)
{
	print_message("SKIPPED %s: ../shared absent\n", name);
	skip();
}

static int64_t failures;

static void complain(const char *where, int64_t line, const char *what, const char *text)
{
	if (failures++ < 20)
		print_error("%s:%" PRId64 ": %s: %.120s\n", where, line, what, text);
}

static int same_ids(const struct token_list *ids, const json_t *want)
{
	if ((size_t)ids->count != json_array_size(want))
		return 0;
	for (int64_t i = 0; i < ids->count; i++)
		if (json_integer_value(json_array_get(want, (size_t)i)) != ids->ids[i])
			return 0;
	return 1;
}

static void check_encode(const struct tokenizer *t, const json_t *row, const char *key, enum add_special add,
        const char *where, int64_t line)
{
	const json_t *text = json_object_get(row, "text");
	struct token_list ids = {0};

	if (tokenizer_encode(t, &ids, json_string_value(text), json_string_length(text), add) < 0)
		complain(where, line, err_text(), json_string_value(text));
	else if (!same_ids(&ids, json_object_get(row, key)))
		complain(where, line, key, json_string_value(text));
	token_list_free(&ids);
}

static void check_decode(const struct tokenizer *t, const json_t *row, const char *key,
        enum skip_special skip, const char *where, int64_t line)
{
	const json_t *ids = json_object_get(row, "ids"), *want = json_object_get(row, key);
	int64_t count = (int64_t)json_array_size(ids);
	int32_t *list = mem_alloc((size_t)count, sizeof(*list));
	char *text = NULL;
	size_t len_bytes = 0;

	for (int64_t i = 0; i < count; i++)
		list[i] = (int32_t)json_integer_value(json_array_get(ids, (size_t)i));
	if (tokenizer_decode(t, &text, &len_bytes, list, count, skip) < 0)
		complain(where, line, err_text(), key);
	else if (len_bytes != json_string_length(want) ||
	         memcmp(text, json_string_value(want), len_bytes) != 0)
		complain(where, line, key, text);
	mem_free(text);
	mem_free(list);
}

/* Calls with each line of a JSONL file of objects; returns how many. */
static int64_t for_each_row(const char *path,
        void (*check)(const struct tokenizer *, const json_t *, const char *, int64_t),
        const struct tokenizer *t)
{
	char *text = NULL;
	size_t len_bytes;
	int64_t line = 0;

	if (file_read_all(path, 1 << 28, &text, &len_bytes) < 0)
		fail_msg("%s", err_text());
	for (char *at = text, *end; *at; at = end) {
		json_t *row = NULL;

		end = at + strcspn(at, "\n");
		if (json_parse(&row, path, at, (size_t)(end - at)) < 0)
			fail_msg("%s", err_text());
		check(t, row, path, ++line);
		json_decref(row);
		end += *end == '\n';
	}
	mem_free(text);
	return line;
}

static void check_golden_row(const struct tokenizer *t, const json_t *row, const char *path, int64_t line)
{
	check_encode(t, row, "ids", ADD_SPECIAL_NONE, path, line);
	check_encode(t, row, "ids_special", ADD_SPECIAL_ALL, path, line);
	check_decode(t, row, "decoded", SKIP_SPECIAL_OFF, path, line);
}

static void check_decode_row(const struct tokenizer *t, const json_t *row, const char *path, int64_t line)
{
	check_decode(t, row, "decoded", SKIP_SPECIAL_OFF, path, line);
	check_decode(t, row, "decoded_skip", SKIP_SPECIAL_ON, path, line);
}

static const char *const byte_level_names[] = {"gpt2", "llama-3", "qwen3", "mistral-nemo", "gpt-neox-20b",
        "phi-2", "falcon-7b", "standin-added-flags-bytelevel", "standin-bos-eos", "standin-digits",
        "standin-ignore-merges", "standin-prefix-space", "standin-split-contiguous", "standin-split-next",
        "standin-split-previous", "standin-split-removed", "standin-split-removed-inverted",
        "standin-three-splits"};

static void check_golden(const char *name, enum pattern_engine engine)
{
	char *dir = shared_path(name), *path;
	struct tokenizer *t = NULL;
	int64_t rows;

	assert_non_null(dir);
	if (tokenizer_open_with(&t, dir, engine) < 0)
		fail_msg("%s", err_text());
	path = file_join(dir, "golden.jsonl");
	rows = for_each_row(path, check_golden_row, t);
	mem_free(path);
	path = file_join(dir, "decode_golden.jsonl");
	rows += for_each_row(path, check_decode_row, t);
	mem_free(path);
	assert_true(rows > 500);
	mem_free(dir);
	tokenizer_close(t);
}

static void test_golden(void **state)
{
	char *root = shared_path(".");

	(void)state;
	if (!root)
		skip_absent("test_golden");
	mem_free(root);
	failures = 0;
	for (size_t i = 0; i < sizeof(byte_level_names) / sizeof(byte_level_names[0]); i++)
		check_golden(byte_level_names[i], PATTERN_ENGINE_BEST);
	check_golden("gpt2", PATTERN_ENGINE_PCRE2);
	check_golden("llama-3", PATTERN_ENGINE_PCRE2);
	check_golden("qwen3", PATTERN_ENGINE_PCRE2);
	assert_int_equal(failures, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_golden),
	};

	return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
