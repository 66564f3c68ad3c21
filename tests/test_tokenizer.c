/* links: data */
/* The tokenizer against recorded results of HF tokenizers, and damaged files. */
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
#include "data/tokenizer/inside.h"
#include "data/tokenizer/pattern.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/unicode.h"
#include "tests/tokenizer_helpers.h"

static char temp_dir[] = "/tmp/ferry_test_tokenizer_XXXXXX";
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

/* All tokenizers there; gemma-3's is packed. */
static const char *const names[] = {"bert-base-uncased", "falcon-7b", "gemma-3", "gpt-neox-20b", "gpt2",
        "llama-2", "llama-3", "mistral-7b-v0.1", "mistral-7b-v0.3", "mistral-nemo", "phi-2", "phi-3-mini",
        "qwen3", "standin-added-flags-bytelevel", "standin-added-flags-prepend", "standin-bos-eos",
        "standin-bytes-missing", "standin-digits", "standin-ignore-merges", "standin-metaspace-always",
        "standin-metaspace-first", "standin-metaspace-never", "standin-metaspace-old",
        "standin-metaspace-split", "standin-no-unk", "standin-prefix-space", "standin-split-contiguous",
        "standin-split-next", "standin-split-previous", "standin-split-removed",
        "standin-split-removed-inverted", "standin-three-splits", "standin-unk-fused", "standin-unk-plain"};

/* The tokenizer.json of a folder, unpacked into the temporary one if it is packed. */
static char *unpacked(const char *dir)
{
	char *json = file_join(dir, "tokenizer.json"), *packed = file_join(dir, "tokenizer.json.xz"),
	     *command;

	if (file_kind_of(json) == FILE_NONE && file_kind_of(packed) != FILE_NONE) {
		mem_free(json);
		json = file_join(temp_dir, "unpacked.json");
		command = mem_printf("xz -dc '%s' >'%s'", packed, json);
		assert_int_equal(system(command), 0);
		mem_free(command);
	}
	mem_free(packed);
	return json;
}

static void check_golden(const char *name, enum pattern_engine engine)
{
	char *dir = shared_path(name), *path, *json;
	struct tokenizer *t = NULL;
	int64_t rows;

	assert_non_null(dir);
	json = unpacked(dir);
	if (tokenizer_open_with(&t, json, engine) < 0)
		fail_msg("%s", err_text());
	mem_free(json);
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
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		check_golden(names[i], PATTERN_ENGINE_BEST);
	check_golden("gpt2", PATTERN_ENGINE_PCRE2);
	check_golden("llama-3", PATTERN_ENGINE_PCRE2);
	check_golden("qwen3", PATTERN_ENGINE_PCRE2);
	assert_int_equal(failures, 0);
}

/* ---- our own golden tokenizers: these run everywhere */

static void check_own_row(const struct tokenizer *t, const json_t *row, const char *path, int64_t line)
{
	check_golden_row(t, row, path, line);
	check_decode(t, row, "decoded_skip", SKIP_SPECIAL_ON, path, line);
}

static void test_own_golden(void **state)
{
	static const char *const own_names[] = {
	        "plain", "rich", "fallback", "unigram", "wordpiece", "wordlevel", "affixed"};

	(void)state;
	failures = 0;
	for (size_t i = 0; i < sizeof(own_names) / sizeof(own_names[0]); i++)
		for (int engine = 0; engine < 2; engine++) {
			char name[64], *path;
			struct tokenizer *t = NULL;

			snprintf(name, sizeof(name), "%s.json", own_names[i]);
			path = own_path(name);
			if (tokenizer_open_with(&t, path, (enum pattern_engine)engine) < 0)
				fail_msg("%s", err_text());
			mem_free(path);
			snprintf(name, sizeof(name), "%s.golden.jsonl", own_names[i]);
			path = own_path(name);
			assert_true(for_each_row(path, check_own_row, t) >= 80);
			mem_free(path);
			tokenizer_close(t);
		}
	assert_int_equal(failures, 0);
}

/* ---- sentencepiece models, against sentencepiece */

static void check_first_special(const struct tokenizer *t, const json_t *row, const char *path, int64_t line)
{
	json_t *ids = json_object_get(row, "ids");

	check_encode(t, row, "ids", ADD_SPECIAL_NONE, path, line);
	json_array_insert_new(ids, 0, json_integer(1)); /* <s> */
	check_encode(t, row, "ids", ADD_SPECIAL_ALL, path, line);
}

static void check_last_special(const struct tokenizer *t, const json_t *row, const char *path, int64_t line)
{
	json_t *ids = json_object_get(row, "ids");

	check_encode(t, row, "ids", ADD_SPECIAL_NONE, path, line);
	json_array_append_new(ids, json_integer(2)); /* </s> */
	check_encode(t, row, "ids", ADD_SPECIAL_ALL, path, line);
}

static void test_sentencepiece(void **state)
{
	static const char *const files[] = {"bpe.model", "unigram.model"};

	(void)state;
	failures = 0;
	for (int i = 0; i < 2; i++) {
		struct tokenizer *t = open_own(files[i]);
		char rows[64], *path;

		snprintf(rows, sizeof(rows), "%s.jsonl", files[i]);
		path = own_path(rows);
		assert_true(for_each_row(path, i ? check_last_special : check_first_special, t) > 50);
		mem_free(path);
		tokenizer_close(t);
	}
	assert_int_equal(failures, 0);
}

/* Cut off at every byte, and with every byte another: an error, or a tokenizer that works. */
static void test_damaged_models(void **state)
{
	char *path = own_path("bpe.model"), *model = NULL;
	size_t len_bytes;

	(void)state;
	assert_int_equal(file_read_all(path, 1 << 20, &model, &len_bytes), 0);
	for (size_t at = 0; at < len_bytes; at += 7)
		for (int kind = 0; kind < 2; kind++) {
			struct tokenizer *t = NULL;
			struct token_list ids = {0};
			char was = model[at], *file = file_join(temp_dir, "damaged.model");
			int rc;

			model[at] = (char)(was + 1 + (char)(at % 255));
			assert_int_equal(file_write_all(file, model, kind ? len_bytes : at), 0);
			model[at] = was;
			rc = tokenizer_open(&t, file);
			assert_true(rc == 0 ||
			            ((rc == ERR_INPUT || rc == ERR_UNSUPPORTED) && strstr(err_text(), file)));
			if (rc == 0)
				assert_int_equal(
				        tokenizer_encode(t, &ids, "Anna \xe4\xb8\xad", 8, ADD_SPECIAL_ALL),
				        0);
			token_list_free(&ids);
			tokenizer_close(t);
			mem_free(file);
		}
	mem_free(model);
	mem_free(path);
}

/* ---- files that are wrong */

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

static void write_file(const char *name, const char *text, size_t len_bytes)
{
	char *path = file_join(temp_dir, name);

	assert_int_equal(file_write_all(path, text, len_bytes), 0);
	mem_free(path);
}

static const char tiny[] = "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[{"
                           "\"id\":4,\"content\":\"<s>\",\"single_word\":false,"
                           "\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true}],"
                           "\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":"
                           "\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"b+"
                           "\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":"
                           "\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":"
                           "false}]},\"post_processor\":{\"type\":\"TemplateProcessing\","
                           "\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence\":{"
                           "\"id\":\"A\",\"type_id\":0}}],\"pair\":[],\"special_tokens\":"
                           "{\"<s>\":{\"id\":\"<s>\",\"ids\":[4],\"tokens\":[\"<s>\"]}}},\"decoder\":{"
                           "\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
                           "\"trim_offsets\":true,\"use_regex\":true},\"model\":{\"type\":\"BPE\","
                           "\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":"
                           "\"\",\"end_of_word_suffix\":\"\",\"fuse_unk\":false,\"byte_fallback\":false,"
                           "\"ignore_merges\":false,\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,"
                           "\"bb\":3},\"merges\":[\"a b\",[\"b\",\"b\"]]}}";

/* `tiny` with the first occurrence of one text replaced by another. */
static int open_edited(struct tokenizer **t, const char *from, const char *to)
{
	struct str text = {0};
	const char *at = strstr(tiny, from);
	int rc;

	assert_non_null(at);
	str_add_bytes(&text, tiny, (size_t)(at - tiny));
	str_add(&text, to);
	str_add(&text, at + strlen(from));
	write_file("tokenizer.json", text.data, text.len_bytes);
	rc = tokenizer_open(t, temp_dir);
	str_free(&text);
	return rc;
}

static void test_wrong_files(void **state)
{
	static const struct {
		const char *from, *to, *says;
		int code;
	} cases[] = {
	        {"\"version\":\"1.0\"", "\"version\":\"2.0\"", "version '2.0'", ERR_UNSUPPORTED},
	        {"\"padding\"", "\"stuffing\"", "\"stuffing\" is not supported", ERR_UNSUPPORTED},
	        {"\"single_word\"", "\"double_word\"", "\"double_word\"", ERR_UNSUPPORTED},
	        {"\"lstrip\":false,", "", "no \"lstrip\"", ERR_INPUT},
	        {"\"content\":\"<s>\",\"sin", "\"content\":\"\",\"sin", "without id or content", ERR_INPUT},
	        {"{\"type\":\"NFC\"}", "{\"type\":\"Upper\"}", "the normalizer Upper", ERR_UNSUPPORTED},
	        {"{\"type\":\"NFC\"}", "{\"type\":\"NFC\",\"x\":1}", "\"x\"", ERR_UNSUPPORTED},
	        {"{\"type\":\"NFC\"}", "{}", "no \"type\"", ERR_INPUT},
	        {"{\"type\":\"NFC\"}", "7", "an integer; expected an object", ERR_INPUT},
	        {"\"Sequence\",\"pre", "\"UnicodeScripts\",\"pre", "UnicodeScripts", ERR_UNSUPPORTED},
	        {"\"Regex\"", "\"Glob\"", "neither Regex nor String", ERR_UNSUPPORTED},
	        {"\"b+\"", "\"(b\"", "'(b'", ERR_INPUT},
	        {"\"b+\"", "\"\\\\h\"", "not supported", ERR_UNSUPPORTED},
	        {"\"Isolated\"", "\"Sideways\"", "Sideways", ERR_UNSUPPORTED},
	        {"\"TemplateProcessing\"", "\"RobertaProcessing\"", "\"single\"", ERR_UNSUPPORTED},
	        {"\"ids\":[4]", "\"ids\":[5]", "the vocabulary lacks", ERR_INPUT},
	        {"\"SpecialToken\":{\"id\":\"<s>\"", "\"SpecialToken\":{\"id\":\"<t>\"", "no ids for '<t>'",
	                ERR_INPUT},
	        {",{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}]", "]", "leaves it out", ERR_UNSUPPORTED},
	        {"\"id\":\"A\"", "\"id\":\"B\"", "holds a text 'B'", ERR_UNSUPPORTED},
	        {"\"decoder\":{\"type\":\"ByteLevel\"", "\"decoder\":{\"type\":\"Infuse\"", "Infuse",
	                ERR_UNSUPPORTED},
	        {"\"type\":\"BPE\"", "\"type\":\"Morse\"", "a Morse tokenizer", ERR_UNSUPPORTED},
	        {"\"dropout\":null", "\"dropout\":0.1", "dropout", ERR_UNSUPPORTED},
	        {"\"unk_token\":null", "\"unk_token\":\"?\"", "unk_token '?'", ERR_INPUT},
	        {"\"fuse_unk\":false", "\"fuse_unk\":3", "fuse_unk", ERR_INPUT},
	        {"\"a\":0", "\"a\":1", "also another entry's", ERR_INPUT},
	        {"\"a\":0", "\"a\":-1", "ids go from 0", ERR_INPUT},
	        {"\"a\":0", "\"a\":99999999999", "ids go from 0", ERR_INPUT},
	        {"\"a\":0", "\"a\":\"0\"", "expected an id", ERR_INPUT},
	        {"\"a b\"", "\"ab\"", "merges[0]", ERR_INPUT},
	        {"\"a b\"", "\"a  b\"", "merges[0]", ERR_INPUT},
	        {"\"a b\"", "\"a c\"", "lacks the right part", ERR_INPUT},
	        {"\"a b\"", "\"b a\"", "lacks both parts together", ERR_INPUT},
	        {"[\"b\",\"b\"]", "[\"b\"]", "merges[1]", ERR_INPUT},
	        {",\"merges\":[\"a b\",[\"b\",\"b\"]]", "", "no merges", ERR_INPUT},
	        {"\"vocab\":{", "\"vocab\":[],\"vocabulary\":{", "not supported", ERR_UNSUPPORTED},
	        {"\"model\":{", "\"model\":[{", "tokenizer.json:", ERR_INPUT},
	        {"{\"version\"", "[{\"version\"", "tokenizer.json:", ERR_INPUT},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct tokenizer *t = NULL;
		int rc = open_edited(&t, cases[i].from, cases[i].to);

		if (rc != cases[i].code || t || !strstr(err_text(), cases[i].says) ||
		        !strstr(err_text(), "tokenizer.json"))
			fail_msg(
			        "%s -> %s gave %d: %s", cases[i].from, cases[i].to, rc, rc ? err_text() : "");
	}
}

static void test_tiny(void **state)
{
	struct tokenizer *t = NULL;
	struct token_list ids = {0};
	static const int32_t want[] = {4, 0, 3, 1, 0, 4};
	int32_t id;

	(void)state;
	if (open_edited(&t, "", "") < 0)
		fail_msg("%s", err_text());
	/* c is in no entry and vanishes; Split keeps a and b apart */
	assert_int_equal(tokenizer_encode(t, &ids, "acbbbca<s>", 10, ADD_SPECIAL_ALL), 0);
	assert_int_equal(ids.count, 6);
	assert_memory_equal(ids.ids, want, sizeof(want));
	assert_int_equal(tokenizer_vocab_count(t), 5);
	assert_true(tokenizer_find(t, &id, "<s>") && id == 4);
	assert_true(tokenizer_find(t, &id, "bb") && id == 3);
	assert_false(tokenizer_find(t, &id, "c"));
	token_list_free(&ids);
	tokenizer_close(t);
}

/* Two texts, with each of the four ways to define the tokens around them. */
static void test_pairs(void **state)
{
	static const struct {
		const char *name;
		int32_t around[6]; /* before, between and after; -1 ends each */
	} cases[] = {{"plain", {-1, -1, -1}}, {"wordpiece", {2, -1, 3, -1, 3, -1}},
	        {"fallback", {1, -1, 1, -1, -1}}, {"unigram", {-1, -1, -1}}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char name[64];
		struct tokenizer *t;
		struct token_list want = {0}, ids = {0};
		const int32_t *around = cases[i].around;

		snprintf(name, sizeof(name), "%s.json", cases[i].name);
		t = open_own(name);
		for (int part = 0; part < 3; part++, around++) {
			for (; *around >= 0; around++)
				assert_int_equal(token_list_add(&want, *around), 0);
			if (part < 2)
				assert_int_equal(tokenizer_encode(t, &want, part ? "the cat" : "Anna has",
				                         part ? 7 : 8, ADD_SPECIAL_NONE),
				        0);
		}
		assert_int_equal(
		        tokenizer_encode_pair(t, &ids, "Anna has", 8, "the cat", 7, ADD_SPECIAL_ALL), 0);
		assert_int_equal(ids.count, want.count);
		assert_memory_equal(ids.ids, want.ids, (size_t)want.count * sizeof(*want.ids));
		token_list_free(&want);
		token_list_free(&ids);
		tokenizer_close(t);
	}
}

static void test_roles(void **state)
{
	static const struct {
		const char *name, *text;
	} files[] = {
	        {"tokenizer_config.json",
	                "{\"eos_token\":{\"content\":\"<s>\",\"lstrip\":false},\"bos_token\":null}"},
	        {"generation_config.json", "{\"eos_token_id\":[4,3],\"bos_token_id\":2}"},
	        {"config.json", "{\"eos_token_id\":1,\"bos_token_id\":1,\"pad_token_id\":-1}"},
	};
	struct tokenizer *t = NULL;
	const struct tokenizer_roles *roles;

	(void)state;
	assert_int_equal(open_edited(&t, "", ""), 0);
	assert_int_equal(tokenizer_roles(t)->eos, -1);
	tokenizer_close(t);
	for (int i = 0; i < 3; i++)
		write_file(files[i].name, files[i].text, strlen(files[i].text));
	assert_int_equal(open_edited(&t, "", ""), 0);
	roles = tokenizer_roles(t);
	assert_int_equal(roles->eos, 4);
	assert_int_equal(roles->bos, 2);
	assert_int_equal(roles->pad, -1);
	tokenizer_close(t);
	write_file(files[0].name, "{\"eos_token\":\"<nowhere>\"}", 25);
	assert_int_equal(open_edited(&t, "", ""), 0);
	assert_int_equal(tokenizer_roles(t)->eos, 5); /* the next free id */
	assert_int_equal(tokenizer_vocab_count(t), 6);
	tokenizer_close(t);
	for (int i = 0; i < 3; i++) {
		char *path = file_join(temp_dir, files[i].name);

		unlink(path);
		mem_free(path);
	}
}

/* Damaged files must end in an error or a tokenizer that works, under the sanitizers. */
static void test_mutations(void **state)
{
	struct str damaged = {0};
	int opened = 0;

	(void)state;
	for (uint64_t trial = 0; trial < 1000; trial++) {
		struct tokenizer *t = NULL;
		struct token_list ids = {0};
		char text[128], *back = NULL;
		size_t len = random_text(text, 9, trial, 24);
		uint64_t edits = 1 + rng_below(7, trial, 0, 3);
		int rc;

		damaged.len_bytes = 0;
		str_add_bytes(&damaged, tiny, sizeof(tiny) - 1);
		for (uint64_t i = 0; i < edits; i++) {
			size_t at = (size_t)rng_below(7, trial, 3 * i + 1, damaged.len_bytes);
			size_t from = (size_t)rng_below(7, trial, 3 * i + 2, sizeof(tiny) - 9);
			uint64_t kind = rng_below(7, trial, 3 * i + 3, 3);

			if (kind == 0)
				damaged.data[at] = "{}[],:\"0159aen-\\\x80"[rng_below(7, trial, 100 + i, 17)];
			else if (kind == 1 && at + 8 <= damaged.len_bytes)
				memcpy(damaged.data + at, tiny + from, 8);
			else
				damaged.len_bytes = at + 1;
		}
		write_file("tokenizer.json", damaged.data, damaged.len_bytes);
		rc = tokenizer_open(&t, temp_dir);
		assert_true(rc == 0 || rc == ERR_INPUT || rc == ERR_UNSUPPORTED || rc == ERR_RANGE);
		assert_true(rc == 0 || *err_text());
		if (rc == 0) {
			opened++;
			assert_int_equal(tokenizer_encode(t, &ids, text, len, ADD_SPECIAL_ALL), 0);
			assert_int_equal(
			        tokenizer_decode(t, &back, NULL, ids.ids, ids.count, SKIP_SPECIAL_ON), 0);
		}
		mem_free(back);
		token_list_free(&ids);
		tokenizer_close(t);
	}
	assert_true(opened > 5);
	str_free(&damaged);
}

/* Every allocation on the way fails once, then all later ones. */
static void test_no_memory(void **state)
{
	(void)state;
	write_file("tokenizer.json", tiny, sizeof(tiny) - 1);
	for (int kind = 0; kind < 2; kind++)
		for (int64_t n = 1;; n++) {
			struct tokenizer *t = NULL;
			struct token_list ids = {0};
			char *text = NULL;
			int rc;

			mem_fault_arm(n, kind ? MEM_FAULT_FOREVER : MEM_FAULT_ONCE);
			rc = tokenizer_open(&t, temp_dir);
			if (rc == 0)
				rc = tokenizer_encode(t, &ids, "abbba<s>b\u0301", 11, ADD_SPECIAL_ALL);
			if (rc == 0)
				rc = tokenizer_decode(t, &text, NULL, ids.ids, ids.count, SKIP_SPECIAL_OFF);
			mem_fault_arm(0, MEM_FAULT_ONCE);
			mem_free(text);
			token_list_free(&ids);
			tokenizer_close(t);
			if (rc == 0)
				break;
			assert_in_range(n, 1, 5000);
			assert_true(rc < 0 && *err_text());
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_golden),
	        cmocka_unit_test(test_own_golden),
	        cmocka_unit_test(test_tiny),
	        cmocka_unit_test(test_pairs),
	        cmocka_unit_test(test_sentencepiece),
	        cmocka_unit_test(test_damaged_models),
	        cmocka_unit_test(test_roles),
	        cmocka_unit_test(test_wrong_files),
	        cmocka_unit_test(test_mutations),
	        cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests_name("tokenizer", tests, make_temp_dir, remove_temp_dir);
}
