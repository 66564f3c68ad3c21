/* links: cli */
/* Streaming of text: pieces are whole characters, join to the whole text, and end before a stop string,
 * wherever ids divide it. */
#include "tests/check.h"

#include "base/mem.h"
#include "cli/text_stream.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"gpt2", "llama-2", "llama-3", "phi-3-mini"};
static const char sample[] =
        "Caf\xc3\xa9, \xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e \xf0\x9f\x91\x8d\xf0\x9f\x8f\xbd! one two\n"
        "  three###four \xf0\x9f\xa7\x91\xe2\x80\x8d\xf0\x9f\x9a\x80.";

static struct tokenizer *open_shared(const char *name)
{
	const char *shared = getenv("FERRY_SHARED");
	char *path = mem_printf("%s/tokenizers/%s", shared ? shared : "nowhere", name);
	struct tokenizer *t = NULL;

	if (tokenizer_open(&t, path)) {
		print_message("SKIPPED %s: ../shared absent\n", name);
		mem_free(path);
		skip();
	}
	mem_free(path);
	return t;
}

/* All that a stream gives out for these ids. */
static void run_stream(
        struct str *out, const struct tokenizer *t, const struct token_list *ids, const char *stop)
{
	struct text_stream s = {.tokenizer = t};
	json_t *stops;
	size_t len;

	check_ok(text_stream_stops(&stops, stop));
	s.stops = stops;
	for (int64_t i = 1; i <= ids->count && !s.is_stopped; i++) {
		const char *piece;

		check_ok(text_stream_add(&s, ids->ids, i));
		piece = text_stream_piece(&s, &len);
		assert_null(memmem(piece, len, "\xef\xbf\xbd", 3)); /* no half character */
		str_add_bytes(out, piece, len);
	}
	check_ok(text_stream_end(&s, ids->ids, ids->count));
	{
		const char *rest = text_stream_piece(&s, &len);

		str_add_bytes(out, rest, len);
	}
	check_ok(str_check(out));
	text_stream_free(&s);
	json_decref(stops);
}

static void check_text(const struct str *got, const char *want, size_t want_bytes, const char *what)
{
	if (got->len_bytes != want_bytes || memcmp(got->data ? got->data : "", want, want_bytes))
		fail_msg("%s: \"%.*s\", not \"%.*s\"", what, (int)got->len_bytes, got->data ? got->data : "",
		        (int)want_bytes, want);
}

static void test_pieces(void **state)
{
	(void)state;
	for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
		struct tokenizer *t = open_shared(names[n]);
		struct token_list ids = {0};
		struct str got = {0};
		char *whole = NULL;
		size_t whole_bytes;

		check_ok(tokenizer_encode(t, &ids, sample, strlen(sample), ADD_SPECIAL_NONE));
		check_ok(tokenizer_decode(t, &whole, &whole_bytes, ids.ids, ids.count, SKIP_SPECIAL_ON));
		assert_int_equal(whole_bytes, strlen(sample));
		run_stream(&got, t, &ids, NULL);
		check_text(&got, whole, whole_bytes, names[n]);
		str_free(&got);
		mem_free(whole);
		token_list_free(&ids);
		tokenizer_close(t);
	}
}

/* Every piece of the text of 1 to 5 characters as a stop string. */
static void test_stops(void **state)
{
	struct tokenizer *t = open_shared("llama-3");
	struct token_list ids = {0};

	(void)state;
	check_ok(tokenizer_encode(t, &ids, sample, strlen(sample), ADD_SPECIAL_NONE));
	for (size_t len = 1; len <= 5; len++)
		for (size_t from = 0; from + len <= strlen(sample); from++) {
			char stop[8] = {0};
			struct str got = {0};
			const char *at;

			memcpy(stop, sample + from, len);
			if ((stop[0] & 0xc0) == 0x80 || (sample[from + len] & 0xc0) == 0x80)
				continue; /* half a character is no text */
			at = strstr(sample, stop);
			run_stream(&got, t, &ids, stop);
			check_text(&got, sample, (size_t)(at - sample), stop);
			str_free(&got);
		}
	token_list_free(&ids);
	tokenizer_close(t);
}

/* Several; one that does not come; a half of one at the end is text. */
static void test_several(void **state)
{
	struct tokenizer *t = open_shared("gpt2");
	struct token_list ids = {0};
	struct str got = {0};
	json_t *stops;

	(void)state;
	check_ok(tokenizer_encode(t, &ids, "one two three", 13, ADD_SPECIAL_NONE));
	run_stream(&got, t, &ids, "[\"three four\", \"zzz\"]");
	check_text(&got, "one two three", 13, "half");
	str_free(&got);
	run_stream(&got, t, &ids, "[\"three\", \"two\"]");
	check_text(&got, "one ", 4, "first");
	str_free(&got);
	check_fails(text_stream_stops(&stops, "[\"\"]"), ERR_INPUT, "stop must be");
	json_decref(stops);
	token_list_free(&ids);
	tokenizer_close(t);
}

/* Behind a prompt, the space that the answer begins with is text. */
static void test_continued(void **state)
{
	const char *source = getenv("FERRY_SOURCE");
	char *path = mem_printf("%s/tests/golden/tokenizer/fallback.json", source ? source : ".");
	struct token_list ids = {0};
	struct text_stream s = {.is_continued = 1};
	struct tokenizer *t = NULL;
	const char *piece;
	size_t len;

	(void)state;
	check_ok(tokenizer_open(&t, path));
	check_ok(tokenizer_encode(t, &ids, "Anna has", 8, ADD_SPECIAL_BEFORE));
	s.tokenizer = t;
	s.known = ids.count;
	s.from = tokenizer_context(t, ids.ids, ids.count);
	check_ok(tokenizer_encode_more(t, &ids, " a cat", 6));
	check_ok(text_stream_end(&s, ids.ids, ids.count));
	piece = text_stream_piece(&s, &len);
	assert_int_equal(len, 6);
	assert_memory_equal(piece, " a cat", 6);
	text_stream_free(&s);
	token_list_free(&ids);
	tokenizer_close(t);
	mem_free(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_pieces),
	        cmocka_unit_test(test_stops),
	        cmocka_unit_test(test_several),
	        cmocka_unit_test(test_continued),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
