/* links: data */
/* Single parts of the tokenizer: UTF-8, character classes, NFC, patterns, splitters, merges. */
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

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/str.h"
#include "data/tokenizer/bpe_encode.h"
#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/inside.h"
#include "data/tokenizer/normal_form.h"
#include "data/tokenizer/pattern.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/unicode.h"
#include "tests/tokenizer_helpers.h"

/* ---- Unicode */

static const struct bpe *bpe_of(const struct tokenizer *t)
{
	return t->model.state;
}

static void test_utf8(void **state)
{
	static const struct {
		const char *text;
		size_t len_bytes, bad_at;
		const char *lossy;
	} cases[] = {
	        {"abc\x80", 4, 3, "abc\xef\xbf\xbd"},
	        {"\xc0\x80", 2, 0, "\xef\xbf\xbd\xef\xbf\xbd"},
	        {"\xe2\x82", 2, 0, "\xef\xbf\xbd"},
	        {"\xe2\x82z", 3, 0, "\xef\xbf\xbdz"},
	        {"12345678\xf0\x9f\x98", 11, 8, "12345678\xef\xbf\xbd"},
	        {"\xf0\x80\x80\x80", 4, 0, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
	        {"\xed\xa0\x80", 3, 0, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
	        {"\xf4\x90\x80\x80", 4, 0, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
	        {"\xf5", 1, 0, "\xef\xbf\xbd"},
	        {"\xff\xfe", 2, 0, "\xef\xbf\xbd\xef\xbf\xbd"},
	        {"\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80", 9, 9, "\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80"},
	};
	struct tokenizer *t = open_own("plain.json");

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct token_list ids = {0};
		int32_t bytes[16];
		char *text = NULL, expected[40];
		int rc = tokenizer_encode(t, &ids, cases[i].text, cases[i].len_bytes, ADD_SPECIAL_NONE);

		assert_int_equal(utf8_check(cases[i].text, cases[i].len_bytes), cases[i].bad_at);
		assert_int_equal(rc, cases[i].bad_at == cases[i].len_bytes ? 0 : ERR_INPUT);
		snprintf(expected, sizeof(expected), "at byte %zu", cases[i].bad_at);
		assert_true(rc == 0 || strstr(err_text(), expected));
		for (size_t k = 0; k < cases[i].len_bytes; k++)
			bytes[k] = bpe_of(t)->byte_ids[(unsigned char)cases[i].text[k]];
		assert_int_equal(tokenizer_decode(t, &text, NULL, bytes, (int64_t)cases[i].len_bytes,
		                         SKIP_SPECIAL_OFF),
		        0);
		assert_string_equal(text, cases[i].lossy);
		mem_free(text);
		token_list_free(&ids);
	}
	tokenizer_close(t);
}

static void test_utf8_round_trip(void **state)
{
	(void)state;
	for (uint32_t c = 0; c < UNICODE_END; c++) {
		char text[5] = {0};
		int len = utf8_put(text, c);
		uint32_t back = 0;

		if (c >= 0xd800 && c < 0xe000)
			continue;
		assert_int_equal(utf8_check(text, (size_t)len), len);
		assert_int_equal(utf8_get(text, &back), len);
		assert_int_equal(back, c);
		assert_int_equal(utf8_get_before(text + len, &back), len);
		assert_int_equal(back, c);
	}
}

static void test_byte_alphabet(void **state)
{
	(void)state;
	for (int byte = 0; byte < 256; byte++)
		assert_int_equal(byte_level_byte(byte_level_char((unsigned char)byte)), byte);
	assert_int_equal(byte_level_char(' '), 0x120);
	assert_int_equal(byte_level_char('\n'), 0x10a);
	assert_int_equal(byte_level_char(0x7f), 0x121);
	assert_int_equal(byte_level_char(0xad), 0x143);
	assert_int_equal(byte_level_byte(0x144), -1);
	assert_int_equal(byte_level_byte(0xad), -1);
	assert_int_equal(byte_level_byte(' '), -1);
}

/* Every scalar value: does our table hold it in exactly the classes of the recorded ranges? */
static void check_class(const json_t *ranges, unsigned class, const char *name)
{
	uint8_t *member = mem_alloc(UNICODE_END, 1);
	const json_t *range;
	size_t i;

	json_array_foreach(ranges, i, range)
	{
		int64_t last = json_integer_value(json_array_get(range, 1));

		for (int64_t c = json_integer_value(json_array_get(range, 0)); c <= last; c++)
			member[c] = 1;
	}
	assert_true(json_array_size(ranges) > 0);
	for (uint32_t c = 0; c < UNICODE_END; c++)
		if (unicode_is(c, class) != member[c])
			fail_msg("U+%04X and %s", c, name);
	mem_free(member);
}

static void test_unicode_classes(void **state)
{
	static const struct {
		const char *name;
		unsigned class;
	} classes[] = {{"\\p{L}", UNICODE_L}, {"\\p{N}", UNICODE_N}, {"\\p{M}", UNICODE_M},
	        {"\\p{Lu}", UNICODE_LU}, {"\\p{Ll}", UNICODE_LL}, {"\\p{Lt}", UNICODE_LT},
	        {"\\p{Lm}", UNICODE_LM}, {"\\p{Lo}", UNICODE_LO}, {"\\p{P}", UNICODE_P},
	        {"\\p{S}", UNICODE_S}, {"\\s", UNICODE_SPACE}, {"\\w", UNICODE_WORD}};
	char *path = shared_path("unicode.json");
	json_t *facts = NULL;

	(void)state;
	if (!path)
		skip_absent("test_unicode_classes");
	unicode_init();
	assert_int_equal(json_read_file(&facts, path, 1 << 24), 0);
	for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
		check_class(json_object_get(json_object_get(facts, "regex_classes"), classes[i].name),
		        classes[i].class, classes[i].name);
	check_class(json_object_get(facts, "added_token_word"), UNICODE_ADDED_WORD, "added_token_word");
	check_class(json_object_get(facts, "added_token_space"), UNICODE_SPACE, "added_token_space");
	json_decref(facts);
	mem_free(path);
}

/* NFC of every single character; marks newer than Unicode 9.0 keep their place. */
/* Pages give each character the flags of its run. */
static void test_unicode_pages(void **state)
{
	int run = 0, differ = 0;

	(void)state;
	unicode_init();
	for (uint32_t c = 0; c < UNICODE_END; c++) {
		run += run + 1 < unicode_run_count && unicode_runs[run + 1].first == c;
		differ += unicode_flags(c) != unicode_runs[run].flags;
	}
	assert_int_equal(run, unicode_run_count - 1);
	assert_int_equal(differ, 0);
}

static void test_nfc_characters(void **state)
{
	char *path = shared_path("unicode.json");
	json_t *facts = NULL;

	(void)state;
	if (!path)
		skip_absent("test_nfc_characters");
	unicode_init();
	assert_int_equal(json_read_file(&facts, path, 1 << 24), 0);
	for (uint32_t c = 0; c < UNICODE_END; c++) {
		struct str out = {0}, want = {0};
		char text[4], key[8];
		int len = utf8_put(text, c);
		const json_t *changed, *part;
		size_t i;

		if (c >= 0xd800 && c < 0xe000)
			continue;
		snprintf(key, sizeof(key), "%04X", c);
		changed = json_object_get(json_object_get(facts, "nfc_changed"), key);
		if (!changed)
			str_add_bytes(&want, text, (size_t)len);
		json_array_foreach(changed, i, part)
		{
			char encoded[4];
			int part_len =
			        utf8_put(encoded, (uint32_t)strtoul(json_string_value(part), NULL, 16));

			str_add_bytes(&want, encoded, (size_t)part_len);
		}
		assert_int_equal(normal_form_append(&out, NORMAL_FORM_C, text, (size_t)len), 0);
		if (out.len_bytes != want.len_bytes || memcmp(out.data, want.data, want.len_bytes) != 0)
			fail_msg("NFC of U+%04X", c);
		str_free(&out);
		str_free(&want);
	}
	json_decref(facts);
	mem_free(path);
}

static void test_nfc(void **state)
{
	static const char *const cases[][2] = {
	        {"", ""},
	        {"plain", "plain"},
	        {"cafe\u0301", "caf\u00e9"},
	        {"a\u0301\u0323b", "\u1ea1\u0301b"},
	        {"\u212b", "\u00c5"},
	        {"\u1112\u1161\u11ab", "\ud55c"},
	        {"\uac00\u11a8", "\uac01"},
	        {"\u0344", "\u0308\u0301"},
	        {"\u0958", "\u0915\u093c"},
	        {"x\u0301", "x\u0301"},
	        /* U+08D3 came after 9.0: the acute does not cross it, U+0316 before it is not moved behind
	           the acute */
	        {"e\u08d3\u0301", "e\u08d3\u0301"},
	        {"e\u0301\u08d3\u0316", "\u00e9\u08d3\u0316"},
	        {"e\u0301\u0316", "e\u0316\u0301"},
	        {"\U00011935\U00011930", "\U00011935\U00011930"},
	};

	(void)state;
	unicode_init();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct str out = {0};
		const char *want = cases[i][1];

		if (strcmp(cases[i][0], "e\u0301\u0316") == 0)
			want = "\u00e9\u0316"; /* the grave below is moved first, and the acute then joins */
		str_add(&out, "");
		assert_int_equal(
		        normal_form_append(&out, NORMAL_FORM_C, cases[i][0], strlen(cases[i][0])), 0);
		assert_string_equal(out.data, want);
		str_free(&out);
	}
}

/* ---- patterns */

/* Matches of a pattern in a text as "start-end " pairs. */
static void list_matches(struct str *out, const struct pattern *p, const char *text, size_t len_bytes)
{
	struct pattern_search search = {.text = text, .len_bytes = len_bytes};
	size_t start, end;
	int rc;

	while ((rc = pattern_next(p, &search, &start, &end)) > 0)
		str_printf(out, "%zu-%zu ", start, end);
	if (rc < 0)
		str_printf(out, "error %d", rc);
	pattern_search_end(&search);
}

static void test_splitters_equal_pcre2(void **state)
{
	static const char *const patterns[] = {pattern_gpt2, pattern_llama3, pattern_qwen2};

	(void)state;
	for (int i = 0; i < 3; i++) {
		struct pattern *fast = NULL, *slow = NULL;

		assert_int_equal(
		        pattern_open(&fast, PATTERN_KIND_REGEX, patterns[i], PATTERN_ENGINE_BEST), 0);
		assert_int_equal(
		        pattern_open(&slow, PATTERN_KIND_REGEX, patterns[i], PATTERN_ENGINE_PCRE2), 0);
		for (uint64_t trial = 0; trial < 10000; trial++) {
			char text[128];
			size_t len = random_text(text, 5, trial, 24);
			struct str a = {0}, b = {0};

			str_add(&a, "");
			str_add(&b, "");
			list_matches(&a, fast, text, len);
			list_matches(&b, slow, text, len);
			if (strcmp(a.data, b.data) != 0)
				fail_msg("pattern %d, '%.*s': %s instead of %s", i, (int)len, text, a.data,
				        b.data);
			str_free(&a);
			str_free(&b);
		}
		pattern_close(fast);
		pattern_close(slow);
	}
}

static void test_patterns(void **state)
{
	/* what Oniguruma finds, by HF tokenizers */
	static const struct {
		const char *pattern, *text, *matches;
	} cases[] = {
	        {"a", "bab", "1-2 "},
	        {"\\s*", "a b", "0-0 1-2 3-3 "},
	        {"^b", "a\nb", "2-3 "},
	        {"a$", "a\nb", "0-1 "},
	        {".", "a\n", "0-1 "},
	        {"a{,2}", "aaa", "0-2 2-3 "},
	        {"a{1}b", "ab", "0-2 "},
	        {"[a\\-z]", "-", "0-1 "},
	        {"[^\\S]", "a ", "1-2 "},
	        {"\\p{^L}", "a1", "1-2 "},
	        {"\\P{L}", "a1", "1-2 "},
	        {"(?<=a)b", "ab b", "1-2 "},
	        {"[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++", ".ab1c", "0-3 4-5 "},
	        {"(?i:ab|[cd])", "AbxC", "0-2 3-4 "},
	        {"\\x{4e2d}|\\u4e2d|\\x41", "A\xe4\xb8\xad", "0-1 1-4 "},
	        {"a|", "ab", "0-1 2-2 "},
	        {"{|}|]", "{}]", "0-1 1-2 2-3 "},
	        {"\\d\\D", "a1b\xd9\xa1\xc2\xb2", "1-3 3-7 "},
	        {"\\p{Han}+", "a\xe4\xb8\xad\xe4\xb8\xad b", "1-7 "},
	        {"\\ufeff?x", "\xef\xbb\xbfx", "0-4 "},
	};
	static const char *const refused[] = {"[a&&b]", "[[a]b]", "\\h", "(?i)a", "(?m)a", "(a)\\1", "a{2}+",
	        "a**", "[]a]", "(?i:ss)", "(?i:\\p{L})", "(?i:\xc3\xa9)", "\\p{Greek}", "(?P<n>a)", "\\K",
	        "[a-\\s]", "\\R", "(?i:[^a])", "*a", "\\xff", "a{2}?", "[[:alpha:]]", "(?#x)", "\\x{110000}",
	        "\\ud800"};
	static const char *const broken[] = {"(a", "a)", "[a", "(?<=a+)b", ""};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct pattern *p = NULL;
		struct str found = {0};

		if (pattern_open(&p, PATTERN_KIND_REGEX, cases[i].pattern, PATTERN_ENGINE_BEST) < 0)
			fail_msg("%s", err_text());
		list_matches(&found, p, cases[i].text, strlen(cases[i].text));
		if (!found.data || strcmp(found.data, cases[i].matches) != 0)
			fail_msg("'%s' in '%s': %s", cases[i].pattern, cases[i].text, found.data);
		str_free(&found);
		pattern_close(p);
	}
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		struct pattern *p = NULL;

		if (pattern_open(&p, PATTERN_KIND_REGEX, refused[i], PATTERN_ENGINE_BEST) !=
		                ERR_UNSUPPORTED ||
		        p || !strstr(err_text(), refused[i]))
			fail_msg("'%s': %s", refused[i], err_text());
	}
	for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
		struct pattern *p = NULL;

		assert_int_equal(
		        pattern_open(&p, PATTERN_KIND_REGEX, broken[i], PATTERN_ENGINE_BEST), ERR_INPUT);
	}
}

/* Long runs, which a backtracking engine could give up on or take for ever. */
static void test_long_runs(void **state)
{
	static const char *const texts[] = {" ", "a", "\n", " \n", "1", "!", "\xe4\xb8\xad", "'s"};
	size_t len_bytes = 400000;
	char *text = mem_alloc(len_bytes, 1);
	struct tokenizer *t = open_own("rich.json");

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct token_list ids = {0};
		size_t unit = strlen(texts[i]), used = len_bytes / unit * unit, decoded_bytes;
		char *back = NULL;

		for (size_t at = 0; at < used; at += unit)
			memcpy(text + at, texts[i], unit);
		if (tokenizer_encode(t, &ids, text, used, ADD_SPECIAL_NONE) < 0)
			fail_msg("%s", err_text());
		assert_int_equal(
		        tokenizer_decode(t, &back, &decoded_bytes, ids.ids, ids.count, SKIP_SPECIAL_OFF), 0);
		assert_int_equal(decoded_bytes, used);
		assert_memory_equal(back, text, used);
		mem_free(back);
		token_list_free(&ids);
	}
	mem_free(text);
	tokenizer_close(t);
}

/* ---- BPE */

/* Merges by looking for the lowest rank among all pairs again and again. */
static int64_t naive_merge(const struct bpe *b, int32_t *ids, int64_t count)
{
	for (;;) {
		const struct bpe_merge *best = NULL;
		int64_t at = -1;

		for (int64_t i = 0; i + 1 < count; i++)
			for (int64_t k = 0; k < b->merge_slots; k++) {
				const struct bpe_merge *m = &b->merges[k];

				if (m->left == ids[i] && m->right == ids[i + 1] &&
				        (!best || m->rank < best->rank)) {
					best = m;
					at = i;
				}
			}
		if (!best)
			return count;
		ids[at] = best->id;
		count--;
		memmove(ids + at + 1, ids + at + 2, (size_t)(count - at - 1) * sizeof(*ids));
	}
}

/* Words of letters that merge a lot, short ones and ones that need the heap. */
static void test_bpe_equals_naive(void **state)
{
	struct tokenizer *t = open_own("plain.json");
	struct bpe_scratch scratch = {0};

	(void)state;
	for (uint64_t trial = 0; trial < 300; trial++) {
		char word[128];
		int32_t naive[128];
		int64_t len = 1 + (int64_t)rng_below(8, trial, 0, trial % 3 ? 30 : 120), count;
		struct token_list ids = {0};

		for (int64_t i = 0; i < len; i++) {
			word[i] = " aeinrsotlTh"[rng_below(8, trial, 1 + (uint64_t)i, 12)];
			naive[i] = bpe_of(t)->byte_ids[(unsigned char)word[i]];
		}
		assert_int_equal(bpe_encode(bpe_of(t), &scratch, &ids, word, (size_t)len), 0);
		count = naive_merge(bpe_of(t), naive, len);
		assert_int_equal(ids.count, count);
		assert_memory_equal(ids.ids, naive, (size_t)count * sizeof(*naive));
		token_list_free(&ids);
	}
	bpe_scratch_free(&scratch);
	tokenizer_close(t);
}

/* Pieces of many windows, against all symbols merged at once: runs, repetitions and letters at random. */
static void test_long_pieces(void **state)
{
	enum { LONG = 20000 };
	struct tokenizer *t = open_own("plain.json");
	struct bpe_scratch scratch = {0};
	char *word = mem_alloc(LONG, 1);
	struct token_list ids = {0}, all = {0};

	(void)state;
	for (uint64_t trial = 0; trial < 60; trial++) {
		int64_t len = 1 + (int64_t)rng_below(18, trial, 0, LONG), count = len;
		uint64_t letters = 1 + trial % 12,
		         period = trial % 3 ? LONG : 1 + rng_below(18, trial, 1, 40);

		scratch.window =
		        trial % 2 ? 0 : 2 + (int64_t)(trial % 9); /* small ones, so that borders fail */
		ids.count = all.count = 0;
		for (int64_t i = 0; i < len; i++) {
			word[i] = "anetosirhl T"[rng_below(18, trial, 2 + (uint64_t)i % period, letters)];
			assert_int_equal(
			        token_list_add(&all, bpe_of(t)->byte_ids[(unsigned char)word[i]]), 0);
		}
		assert_int_equal(bpe_encode(bpe_of(t), &scratch, &ids, word, (size_t)len), 0);
		assert_int_equal(bpe_merge_symbols(bpe_of(t), &scratch, all.ids, &count), 0);
		assert_int_equal(ids.count, count);
		assert_memory_equal(ids.ids, all.ids, (size_t)count * sizeof(*all.ids));
	}
	token_list_free(&ids);
	token_list_free(&all);
	mem_free(word);
	bpe_scratch_free(&scratch);
	tokenizer_close(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_utf8),
	        cmocka_unit_test(test_utf8_round_trip),
	        cmocka_unit_test(test_byte_alphabet),
	        cmocka_unit_test(test_unicode_classes),
	        cmocka_unit_test(test_unicode_pages),
	        cmocka_unit_test(test_nfc_characters),
	        cmocka_unit_test(test_nfc),
	        cmocka_unit_test(test_splitters_equal_pcre2),
	        cmocka_unit_test(test_patterns),
	        cmocka_unit_test(test_long_runs),
	        cmocka_unit_test(test_bpe_equals_naive),
	        cmocka_unit_test(test_long_pieces),
	};

	return cmocka_run_group_tests_name("tokenizer parts", tests, NULL, NULL);
}
