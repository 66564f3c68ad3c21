/* Compares tokenizing on one core, in documents of 4 KB and all at once, with reading each byte. */
#include "bench/bench.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "data/tokenizer/token_list.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/unicode.h"

#include <string.h>
#include <time.h>

enum { ROUNDS = 5, DOCUMENT_BYTES = 4096, DEFAULT_BYTES = 20000000, WHOLE_BYTES = 2000000 };
static const int64_t text_bytes_max = (int64_t)1 << 30;

struct text {
	char *data;
	size_t len_bytes;
	const struct tokenizer *tokenizer;
	struct token_list ids;
	int64_t documents;
};

/* CPU seconds of this thread, so that other load does not count. */
static double cpu_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* End of the document at `at`: after a line break or before a blank in its second half, else before a
 * character. */
static size_t document_end(const struct text *t, size_t at)
{
	size_t end = at + DOCUMENT_BYTES;

	if (end >= t->len_bytes)
		return t->len_bytes;
	for (size_t cut = end; cut > at + DOCUMENT_BYTES / 2; cut--)
		if (t->data[cut - 1] == '\n' || t->data[cut] == ' ')
			return cut;
	while (((unsigned char)t->data[end] & 0xc0) == 0x80)
		end--;
	return end;
}

static int encode_documents(struct text *t)
{
	int rc = 0;

	t->ids.count = t->documents = 0;
	for (size_t at = 0, end; !rc && at < t->len_bytes; at = end) {
		end = document_end(t, at);
		rc = tokenizer_encode(t->tokenizer, &t->ids, t->data + at, end - at, ADD_SPECIAL_NONE);
		t->documents++;
	}
	return rc;
}

static size_t whole_bytes(const struct text *t)
{
	size_t end = t->len_bytes < WHOLE_BYTES ? t->len_bytes : WHOLE_BYTES;

	while (end < t->len_bytes && ((unsigned char)t->data[end] & 0xc0) == 0x80)
		end--;
	return end;
}

static int encode_whole(struct text *t)
{
	t->ids.count = 0;
	return tokenizer_encode(t->tokenizer, &t->ids, t->data, whole_bytes(t), ADD_SPECIAL_NONE);
}

static int look_at_bytes(struct text *t)
{
	return utf8_check(t->data, t->len_bytes) == t->len_bytes
	               ? 0
	               : err_set(ERR_INPUT, "the text is not valid UTF-8 at byte %zu",
	                         utf8_check(t->data, t->len_bytes));
}

/* Reads the file's text and repeats it to `count` bytes. */
static int read_text(struct text *t, const char *path, int64_t count)
{
	char *file = NULL;
	size_t len = 0, copies;
	int rc = file_read_all(path, text_bytes_max, &file, &len);

	if (!rc && !len)
		rc = err_set(ERR_INPUT, "%s: the file is empty", path);
	if (!rc) {
		copies = ((size_t)count + len - 1) / len;
		t->data = mem_alloc(copies * len + 1, 1);
		rc = t->data ? 0 : ERR_NOMEM;
		for (size_t i = 0; !rc && i < copies; i++)
			memcpy(t->data + i * len, file, len);
		t->len_bytes = copies * len;
	}
	mem_free(file);
	return rc ? rc : look_at_bytes(t);
}

struct way {
	const char *name;
	int (*run)(struct text *t);
};

static int measure(json_t *result, struct text *t)
{
	static const struct way ways[] = {
	        {"documents", encode_documents}, {"whole", encode_whole}, {"look_at_bytes", look_at_bytes}};
	enum { COUNT = sizeof(ways) / sizeof(ways[0]) };
	double cpu[COUNT][ROUNDS], wall[COUNT][ROUNDS];
	json_t *rows = json_array();
	int rc = encode_documents(t); /* fills the tokenizer's caches */

	json_object_set_new(result, "tokens", json_integer(t->ids.count));
	json_object_set_new(result, "documents", json_integer(t->documents));
	for (int round = 0; round < ROUNDS && !rc; round++)
		for (int w = 0; w < COUNT && !rc; w++) {
			double bytes = (double)(ways[w].run == encode_whole ? whole_bytes(t) : t->len_bytes);
			double from = cpu_s();
			int64_t from_ns = clock_now_ns();

			rc = ways[w].run(t);
			cpu[w][round] = bytes / (cpu_s() - from) / 1e6;
			wall[w][round] = bytes / (1e-9 * (double)(clock_now_ns() - from_ns)) / 1e6;
		}
	json_object_set_new(result, "rows", rows);
	for (int w = 0; w < COUNT && !rc; w++)
		json_array_append_new(
		        rows, json_pack("{s:s, s:f, s:f}", "what", ways[w].name, "cpu_MBps",
		                      bench_median(cpu[w], ROUNDS), "MBps", bench_median(wall[w], ROUNDS)));
	return rc;
}

int bench_tokenize(json_t **result, const struct bench_args *args)
{
	struct tokenizer *tokenizer = NULL;
	struct text t = {0};
	struct bench_load load;
	int64_t opened_ns = clock_now_ns();
	int rc = 0;

	if (!args->tokenizer || !args->data)
		return err_set(ERR_INPUT,
		        "set tokenizer=DIR and data=FILE, a file of UTF-8 text: ferry bench tokenize "
		        "tokenizer=DIR data=text.txt");
	bench_load_begin(&load);
	rc = tokenizer_open(&tokenizer, args->tokenizer);
	opened_ns = clock_now_ns() - opened_ns;
	t.tokenizer = tokenizer;
	if (!rc)
		rc = read_text(&t, args->data, args->count ? args->count : DEFAULT_BYTES);
	*result = json_pack("{s:s, s:s, s:I, s:f}", "benchmark", "tokenize", "tokenizer", args->tokenizer,
	        "bytes", (json_int_t)t.len_bytes, "open_s", 1e-9 * (double)opened_ns);
	if (!rc && !*result)
		rc = err_set(ERR_NOMEM, "out of memory for a benchmark's result");
	if (!rc)
		rc = measure(*result, &t);
	if (!rc)
		json_object_set_new(*result, "other_load_cores", json_real(bench_load_end(&load)));
	token_list_free(&t.ids);
	mem_free(t.data);
	tokenizer_close(tokenizer);
	if (rc) {
		json_decref(*result);
		*result = NULL;
	}
	return rc;
}
