/* links: checkpoint */
/* Hostile safetensors headers: large and malformed ones are refused cheaply; random damage. */
#include "base/json.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/str.h"
#include "checkpoint/file/safetensors.h"
#include "tests/check.h"
#include "tests/sparing.h"

#include <inttypes.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char path[4096];

/* ---- large and malformed: time and memory ---- */

/* Refuses `header` in a child process, and measures seconds of CPU and growth of resident memory. */
static void refused_cheaply(const char *name, struct str *header)
{
	struct str s = {0};
	int status;
	pid_t pid;

	check_ok(str_check(header));
	for (int i = 0; i < 8; i++)
		str_add_char(&s, (char)(header->len_bytes >> 8 * i));
	str_add_bytes(&s, header->data, header->len_bytes);
	check_ok(str_check(&s));
	check_ok(file_write_all(path, s.data, s.len_bytes));
	str_free(&s);
	str_free(header);
	malloc_trim(0);
	pid = fork();
	if (!pid) {
		struct rusage before, after;
		struct timespec t0, t1;
		struct safetensors *file;
		double seconds, grown;
		struct stat st;
		int code;

		stat(path, &st);
		getrusage(RUSAGE_SELF, &before);
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t0);
		code = safetensors_open(&file, path);
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t1);
		getrusage(RUSAGE_SELF, &after);
		seconds = (double)(t1.tv_sec - t0.tv_sec) + (double)(t1.tv_nsec - t0.tv_nsec) * 1e-9;
		grown = (double)(after.ru_maxrss - before.ru_maxrss) * 1024;
		fprintf(stderr, "%-28s %5.1f MB: %.3f s, %.1f x the file\n", name, (double)st.st_size / 1e6,
		        seconds, grown / (double)st.st_size);
		if (code != ERR_INPUT || !strstr(err_text(), ": byte ")) {
			fprintf(stderr, "code %d: %s\n", code, err_text());
			_exit(1);
		}
		if (!SANITIZED && !(grown <= 64e6 + 6.0 * (double)st.st_size))
			_exit(2);
		_exit(seconds <= (SANITIZED ? 10 : 1) ? 0 : 3);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void large_headers_cost_little(void **state)
{
	enum { LARGE = 12 << 20 };
	struct str h = {0};

	(void)state;
	for (str_add(&h, "{"); h.len_bytes < LARGE;)
		str_printf(
		        &h, "\"%zx\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]},", h.len_bytes);
	refused_cheaply("tensors without end", &h);
	for (str_add(&h, "{\"x\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}");
	        h.len_bytes < LARGE;)
		str_printf(
		        &h, ",\"%zx\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", h.len_bytes);
	str_add(&h, ",\"x\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}");
	refused_cheaply("one of many names twice", &h);
	for (str_add(&h, "{\"__metadata__\":{\"\":\"\""); h.len_bytes < LARGE;)
		str_printf(&h, ",\"%zx\":\"\"", h.len_bytes);
	str_add(&h, ",\"\":\"\"}}");
	refused_cheaply("a key of many twice", &h);
	for (str_add(&h, "{\"a\":"); h.len_bytes < LARGE;)
		str_add(&h, "[[[[[[[[[[[[[[[[");
	refused_cheaply("brackets", &h);
	for (str_add(&h, "{\"a\":"); h.len_bytes < LARGE;)
		str_add(&h, "{\"a\":{\"a\":{\"a\":");
	refused_cheaply("nested objects", &h);
	for (str_add(&h, "{\""); h.len_bytes < LARGE;)
		str_add(&h, "\\u00e9\\\\\\n");
	refused_cheaply("a string of escapes", &h);
	while (h.len_bytes < LARGE)
		str_add(&h, "               \n");
	refused_cheaply("white space", &h);
	for (str_add(&h, "{\"a\":{\"dtype\":\"U8\",\"shape\":["); h.len_bytes < LARGE;)
		str_add(&h, "1,1,1,1,1,1,1,1,");
	refused_cheaply("dimensions", &h);
	for (str_add(&h, "{\"a\":{\"dtype\":\"U8\",\"shape\":["); h.len_bytes < LARGE;)
		str_add(&h, "1111111111111111");
	refused_cheaply("digits", &h);
}

/* ---- random damage ---- */

/* Changes a few bytes: random ones, structure, numbers, pieces copied or taken out. */
static size_t mutate(char *text, size_t len, size_t cap, uint64_t number)
{
	static const char alphabet[] = "{}[],:\"\\0123456789eE.-+ntu/ \n\tabFUIBO\x80\xc3\xff";
	int times = 1 + (int)rng_below(11, number, 0, 4);

	for (int i = 1; i <= times; i++) {
		uint64_t at = rng_below(11, number, (uint64_t)i * 8, len + 1);
		uint64_t other = rng_below(11, number, (uint64_t)i * 8 + 1, len + 1);
		size_t part = rng_below(11, number, (uint64_t)i * 8 + 2, 12) + 1;
		char c = alphabet[rng_below(11, number, (uint64_t)i * 8 + 3, sizeof(alphabet) - 1)];

		switch (rng_below(11, number, (uint64_t)i * 8 + 4, 4)) {
		case 0:
			if (at < len)
				text[at] = c;
			break;
		case 1:
			if (len < cap) {
				memmove(text + at + 1, text + at, len - at);
				text[at] = c;
				len++;
			}
			break;
		case 2:
			if (at + part <= len) {
				memmove(text + at, text + at + part, len - at - part);
				len -= part;
			}
			break;
		default:
			if (at + part <= len && other + part <= len)
				memmove(text + at, text + other, part);
			break;
		}
	}
	return len;
}

/* Checks an accepted file against the format, without the scanner. */
static void check_accepted(const struct safetensors *file, const char *text, size_t len, int64_t data_bytes)
{
	json_t *root = NULL;
	int64_t at = 8 + (int64_t)len;
	size_t named = 0;

	check_ok(json_parse(&root, "header", text, len));
	assert_true(json_is_object(root));
	for (int64_t t = 0; t < file->tensor_count; t++) {
		const struct safetensors_tensor *tensor = &file->tensors[t];
		json_t *entry = json_object_get(root, tensor->name), *shape = json_object_get(entry, "shape");
		json_t *offsets = json_object_get(entry, "data_offsets");
		json_int_t begin = json_integer_value(json_array_get(offsets, 0)), count = 1;

		assert_non_null(entry);
		assert_int_equal(json_object_size(entry), 3);
		assert_string_equal(json_string_value(json_object_get(entry, "dtype")),
		        safetensors_dtype_name(tensor->dtype));
		assert_int_equal(json_array_size(shape), tensor->rank);
		for (int d = 0; d < tensor->rank; d++) {
			assert_true(json_integer_value(json_array_get(shape, (size_t)d)) == tensor->shape[d]);
			count *= tensor->shape[d];
		}
		assert_true(count == tensor->count);
		assert_true(tensor->begin_bytes == at && begin == at - 8 - (int64_t)len);
		assert_true(tensor->len_bytes * 8 == count * safetensors_dtype_bits(tensor->dtype));
		at += tensor->len_bytes;
		assert_ptr_equal(safetensors_find(file, tensor->name), tensor);
		named++;
	}
	assert_true(at == 8 + (int64_t)len + data_bytes);
	assert_int_equal(json_object_size(root), named + !!json_object_get(root, "__metadata__"));
	json_decref(root);
}

static void random_damage(void **state)
{
	static const char *const seeds[] = {
	        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
	        "\"b.weight\":{\"dtype\":\"BF16\",\"shape\":[5],\"data_offsets\":[24,34]}}  ",
	        "{\"__metadata__\":{\"format\":\"pt\",\"k\":\"\\u00e9\\ud83d\\ude00\"},"
	        "\"a\":{\"dtype\":\"F16\",\"shape\":[2,2,2],\"data_offsets\":[0,16]},"
	        "\"b\":{\"dtype\":\"F4\",\"shape\":[36],\"data_offsets\":[16,34]}}",
	        "{\"a\":{\"dtype\":\"U8\",\"shape\":[34],\"data_offsets\":[0,34]},"
	        "\"b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[34,34]}}"};
	const char *asked = getenv("FERRY_CAMPAIGN_FUZZ");
	int64_t count = asked ? strtoll(asked, NULL, 10) : SANITIZED ? 20000 : 200000, good = 0;

	(void)state;
	for (int64_t i = 0; i < count; i++) {
		const char *seed = seeds[i % 3];
		size_t len = strlen(seed), cap = len + 64;
		char *text = mem_alloc(cap, 1), *copy = mem_alloc(cap, 1);
		struct safetensors *file;
		int code;

		memcpy(text, seed, len);
		len = mutate(text, len, cap, (uint64_t)i);
		memcpy(copy, text, len);
		code = safetensors_parse(&file, "fuzz", text, len, 8 + len + 34);
		assert_true(code == 0 || code == ERR_INPUT);
		if (code)
			assert_non_null(strstr(err_text(), "fuzz: byte "));
		else
			check_accepted(file, copy, len, 34);
		good += !code;
		safetensors_close(file);
		mem_free(copy);
	}
	print_message("%" PRId64 " damaged headers, %" PRId64 " of them still valid\n", count, good);
	assert_true(good > count / 100);
}

static int make_dir(void **state)
{
	int err = check_dir_make(state);

	snprintf(path, sizeof(path), "%s/case.safetensors", (const char *)*state);
	return err;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(large_headers_cost_little),
	        cmocka_unit_test(random_damage),
	};

	return cmocka_run_group_tests_name("safetensors_damage", tests, make_dir, check_dir_remove);
}
