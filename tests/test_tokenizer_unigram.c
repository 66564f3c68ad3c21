/* links: data */
/* Unigram on words in parts, against a search over the whole word. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"
#include "tests/tokenizer_helpers.h"

static const struct {
	const char *text;
	double score;
} pieces[] = {{"<unk>", 0}, {"a", -2}, {"aa", -3}, {"b", -2.5}, {"ab", -3}, {"ba", -3.2}, {"abba", -4},
        {"\xe2\x96\x81", -1}, {"\xe4\xb8\xad", -3},
        {"\xe2\x96\x81"
         "a",
                -2}};
enum { PIECES = sizeof(pieces) / sizeof(pieces[0]) };

static struct tokenizer *open_unigram(const char *pretokenizer)
{
	char path[] = "/tmp/ferry_test_unigram_XXXXXX";
	struct str json = {0};
	struct tokenizer *t = NULL;
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	str_printf(&json,
	        "{\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":%s,\"post_processor\":null,"
	        "\"decoder\":null,\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[",
	        pretokenizer);
	for (int i = 0; i < PIECES; i++)
		str_printf(&json, "%s[\"%s\",%g]", i ? "," : "", pieces[i].text, pieces[i].score);
	str_add(&json, "]}}");
	assert_int_equal(write(fd, json.data, json.len_bytes), json.len_bytes);
	close(fd);
	if (tokenizer_open(&t, path) < 0)
		fail_msg("%s", err_text());
	unlink(path);
	str_free(&json);
	return t;
}

/* All ways at once: the best score at each position and the piece that ends there. Unknown neighbours are one
 * id. */
static void naive_unigram(struct token_list *ids, const char *text, size_t len)
{
	double *best = mem_alloc(len + 1, sizeof(*best));
	size_t bytes[PIECES]; /* of each piece: strlen is slow under a sanitizer */
	int8_t *piece = mem_alloc(len + 1, 1), *chosen = mem_alloc(len + 1, 1);
	size_t at;

	for (int i = 0; i < PIECES; i++)
		bytes[i] = strlen(pieces[i].text);
	for (at = 1; at <= len; at++)
		best[at] = -INFINITY;
	for (at = 0; at < len; at++) {
		uint32_t c;
		size_t step = (size_t)utf8_get(text + at, &c);
		int single = 0;

		for (int i = 1; i < PIECES; i++) {
			size_t n = bytes[i];

			if (n > len - at || pieces[i].text[0] != text[at] ||
			        memcmp(pieces[i].text, text + at, n) != 0)
				continue;
			single |= n == step;
			if (best[at] + pieces[i].score > best[at + n]) {
				best[at + n] = best[at] + pieces[i].score;
				piece[at + n] = (int8_t)i;
			}
		}
		if (!single && best[at] - 14 > best[at + step]) {
			best[at + step] = best[at] - 14;
			piece[at + step] = (int8_t)-step;
		}
		at += step - 1;
	}
	for (at = len; at > 0;) {
		int i = piece[at];

		at -= i > 0 ? bytes[i] : (size_t)-i;
		chosen[at] = (int8_t)i;
	}
	for (at = 0; len > at; at += chosen[at] > 0 ? bytes[(int)chosen[at]] : (size_t)-chosen[at])
		if (chosen[at] > 0 || !ids->count || ids->ids[ids->count - 1] != 0)
			assert_int_equal(token_list_add(ids, chosen[at] > 0 ? chosen[at] : 0), 0);
	mem_free(best);
	mem_free(piece);
	mem_free(chosen);
}

/* A word of several parts: ways that meet at once, ways that never do (a and aa), unknown ones, blanks. */
static void test_unigram_long(void **state)
{
	static const char *const pretokenizers[] = {"null",
	        "{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":"
	        "\"never\",\"split\":false}"};
	static const char *const letters[] = {"a", "ab\xe4\xb8\xad", "z", "aab ", " ", "abz", "\xe4\xb8\xad"};
	static const int64_t counts[] = {1500001, 1300000, 1200000, 1600000, 400000, 1100000, 500000};
	struct str text = {0}, marked = {0};

	(void)state;
	for (size_t k = 0; k < sizeof(letters) / sizeof(letters[0]); k++)
		for (int64_t i = 0; i < counts[k]; i++) {
			const char *l = letters[k] + rng_below(21, k, (uint64_t)i, strlen(letters[k]));

			while ((*l & 0xc0) == 0x80)
				l--;
			str_add_bytes(&text, l, *l & 0x80 ? 3 : 1);
			str_add_bytes(
			        &marked, *l == ' ' ? "\xe2\x96\x81" : l, *l & 0x80 || *l == ' ' ? 3 : 1);
		}
	for (int i = 0; i < 2; i++) {
		struct tokenizer *t = open_unigram(pretokenizers[i]);
		struct token_list ids = {0}, naive = {0};
		const struct str *seen = i ? &marked : &text;

		naive_unigram(&naive, seen->data, seen->len_bytes);
		if (tokenizer_encode(t, &ids, text.data, text.len_bytes, ADD_SPECIAL_NONE) < 0)
			fail_msg("%s", err_text());
		assert_int_equal(ids.count, naive.count);
		assert_memory_equal(ids.ids, naive.ids, (size_t)ids.count * sizeof(*ids.ids));
		token_list_free(&ids);
		token_list_free(&naive);
		tokenizer_close(t);
	}
	str_free(&text);
	str_free(&marked);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_unigram_long)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
