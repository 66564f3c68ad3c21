/* links: base */
/* The JSON and YAML readers on damaged documents.
 *
 * FERRY_FUZZ_SEED and an input's number determine the input. FERRY_FUZZ_COUNT is the number of inputs
 * (default 20000 each). If FERRY_FUZZ_LOG names a file, its last line is the number of the current input:
 * after a crash, that is the failing one.
 */
#include "base/json.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/str.h"
#include "base/yaml.h"
#include "tests/check.h"

static const char *const json_seeds[] = {
        ("{\"architectures\": [\"LlamaForCausalLM\"], \"rope_scaling\": {\"factor\": 8.0, \"type\": "
         "\"yarn\"}, "
         "\"rms_norm_eps\": 1e-05, \"tie\": false, \"x\": null}"),
        "[1, -2, 3.5e+7, \"\\u00e9\\n\\\\\", [[], {}], 1000000000000000019884624838656]",
        ("{\"__metadata__\": {\"format\": \"pt\"}, \"w\": {\"dtype\": \"F32\", \"shape\": [2, 3], "
         "\"data_offsets\": [0, 24]}}"),
        "{\"messages\": [{\"role\": \"user\", \"content\": \"\\ud83d\\ude00 hi\"}]}",
};

static const char *const yaml_seeds[] = {
        ("model: a/b\nlearning_rate: 2e-5\nbetas: [0.9, 0.999]\nfsdp_config:\n  fsdp_offload_params: true\n  "
         "x: ~\n"),
        "datasets:\n  - path: p.json # one\n    type: alpaca\n  - {path: q, n: 1}\n\"quoted\": 'it''s'\n",
        "---\na: |\n  block\n  text\nb: >-\n  folded\n  text\nc: {}\nd: []\n...\n",
        "k: \"\\x41\\u00e9\\t\"\n? complex\n: value\nlist:\n- 1\n- 2\n- ~\n",
};

static const char *const pieces[] = {"{", "}", "[", "]", ":", ": ", ",", "\"", "\\", "'", "\n", "\n  ", "- ",
        "# ", "&a ", "*a", "!!str ", "? ", "| ", "> ", "---\n", "...\n", "%YAML 1.1\n", "~", "null", "true",
        "-", "1e", "e0", "99999999999999999999", "-9223372036854775809", "\\u0000", "\\ud800", "\xef\xbb\xbf",
        "\xff", "\xc3", "\xe2\x80\xa8", "\t", "\r", "\x7f", "\x01", "[[[[[[[[[[",
        "{a: {b: {c: {d: {e: {f: {g: {h: {i: ", "NaN", "<<: "};

enum { COUNT_OF_PIECES = sizeof(pieces) / sizeof(*pieces), TEXT_BYTES_MAX = 4096 };

struct source {
	uint64_t seed, input, drawn;
};

static size_t draw(struct source *s, size_t bound)
{
	return (size_t)rng_below(s->seed, s->input, s->drawn++, bound);
}

/* Replaces `removed` bytes at `at` by `added` ones, where that fits. */
static void splice(char *text, size_t *len, size_t at, size_t removed, const char *bytes, size_t added)
{
	if (*len - removed + added > TEXT_BYTES_MAX)
		return;
	memmove(text + at + added, text + at + removed, *len - at - removed);
	memcpy(text + at, bytes, added);
	*len += added - removed;
}

static void damage(struct source *s, char *text, size_t *len)
{
	char copy[TEXT_BYTES_MAX], byte;
	size_t at = draw(s, *len + 1), part = draw(s, 12);
	const char *piece = pieces[draw(s, COUNT_OF_PIECES)];

	if (part > *len - at)
		part = *len - at;
	switch (draw(s, 5)) {
	case 0: /* change a byte */
		byte = (char)draw(s, 256);
		splice(text, len, at, at < *len, &byte, 1);
		break;
	case 1:
		splice(text, len, at, part, "", 0);
		break;
	case 2:
		splice(text, len, at, part, piece, strlen(piece));
		break;
	case 3: /* repeat a part elsewhere */
		part = draw(s, *len - at + 1);
		memcpy(copy, text + at, part);
		splice(text, len, draw(s, *len + 1), 0, copy, part);
		break;
	default: /* cut the end off */
		if (!draw(s, 4))
			*len = at;
	}
}

static uint64_t setting(const char *name, uint64_t usual)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 10) : usual;
}

/* Makes input after input and hands it to `try_one` as a block of its exact size. */
static void run(const char *const *seeds, size_t seed_count, int (*try_one)(const char *text, size_t len))
{
	uint64_t count = setting("FERRY_FUZZ_COUNT", 20000), taken = 0;
	const char *log_path = getenv("FERRY_FUZZ_LOG");

	for (uint64_t i = 0; i < count; i++) {
		struct source s = {.seed = setting("FERRY_FUZZ_SEED", 1), .input = i};
		const char *seed = seeds[draw(&s, seed_count)];
		char text[TEXT_BYTES_MAX], *exact;
		size_t len = strlen(seed);

		memcpy(text, seed, len);
		for (size_t turn = 0, turns = 1 + draw(&s, 6); turn < turns; turn++)
			damage(&s, text, &len);
		if (log_path) {
			char number[32];
			int digits = snprintf(number, sizeof(number), "%llu", (unsigned long long)i);

			check_ok(file_write_all(log_path, number, (size_t)digits));
		}
		exact = malloc(len ? len : 1); /* no NUL after it, so that ASan reports a read past its end */
		memcpy(exact, text, len);
		taken += (uint64_t)try_one(exact, len);
		free(exact);
	}
	/* both ways are gone: some documents survive, most do not */
	if (count >= 1000)
		assert_true(taken > count / 100 && taken < count - count / 100);
}

static int try_json(const char *text, size_t len)
{
	json_t *root = NULL, *again = NULL;
	int err = json_parse(&root, "fuzz", text, len);
	char *dump;

	if (err) {
		assert_int_equal(err, ERR_INPUT);
		assert_null(root);
		assert_memory_equal(err_text(), "fuzz:", 5);
		return 0;
	}
	dump = json_dumps(root, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
	assert_non_null(dump);
	check_ok(json_parse(&again, "again", dump, strlen(dump)));
	assert_true(json_equal(root, again));
	json_decref(root);
	json_decref(again);
	mem_free(dump);
	return 1;
}

static int try_yaml(const char *text, size_t len)
{
	struct yaml_doc doc;
	int err = yaml_parse(&doc, "fuzz", text, len), lines = 1;

	if (err) {
		assert_int_equal(err, ERR_INPUT);
		assert_int_equal(doc.count, 0);
		assert_memory_equal(err_text(), "fuzz:", 5);
		return 0;
	}
	for (size_t i = 0; i < len; i++)
		lines += text[i] == '\n' || text[i] == '\r' || text[i] == '\x85' || text[i] == '\xa8' ||
		         text[i] == '\xa9'; /* bytes of all that YAML takes for a line's end */
	for (size_t i = 0; i < doc.count; i++) {
		const struct yaml_item *item = &doc.items[i];
		int depth = 1;

		assert_true(item->path && *item->path && item->text);
		assert_true(item->line >= 1 && item->line <= lines + 1); /* the end counts as a line's end */
		assert_true(!item->is_null || (!item->is_list && !item->quoted));
		assert_true(strlen(item->text) <= len);
		for (const char *c = item->path; *c; c++)
			depth += *c == '.';
		assert_true(depth <= 64);
		for (size_t j = 0; j < i; j++)
			assert_string_not_equal(item->path, doc.items[j].path);
	}
	yaml_doc_free(&doc);
	return 1;
}

static void json_survives(void **state)
{
	(void)state;
	run(json_seeds, sizeof(json_seeds) / sizeof(*json_seeds), try_json);
}

static void yaml_survives(void **state)
{
	(void)state;
	run(yaml_seeds, sizeof(yaml_seeds) / sizeof(*yaml_seeds), try_yaml);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(json_survives),
	        cmocka_unit_test(yaml_survives),
	};

	return cmocka_run_group_tests_name("base_fuzz", tests, NULL, NULL);
}
