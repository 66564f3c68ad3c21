/* links: checkpoint */
/* The safetensors reader: truncated, invalid and unusual headers, and a corpus of valid and invalid files. */
#include "base/mem.h"
#include "base/str.h"
#include "checkpoint/file/safetensors.h"
#include "tests/check.h"

#include <sys/stat.h>
#include <unistd.h>

static char *dir;
static int refused_count, accepted_count;

/* ---- files ---- */

static const char *file_of(const char *name)
{
	static char path[4096];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static const char *put_file(const void *bytes, size_t len)
{
	const char *path = file_of("case.safetensors");
	FILE *f = fopen(path, "wb");

	assert_non_null(f);
	assert_true(fwrite(bytes, 1, len, f) == len);
	fclose(f);
	return path;
}

static void add_length(struct str *out, uint64_t n)
{
	for (int i = 0; i < 8; i++)
		str_add_char(out, (char)(n >> 8 * i));
}

/* N, header, data_bytes of data 0, 1, 2 ... */
static void compose(struct str *out, const char *header, size_t header_bytes, size_t data_bytes)
{
	str_free(out);
	add_length(out, header_bytes);
	str_add_bytes(out, header, header_bytes);
	for (size_t i = 0; i < data_bytes; i++)
		str_add_char(out, (char)i);
	check_ok(str_check(out));
}

/* Refused with the place: "PATH: byte N: why", N inside the file or at its end. */
static void refused_bytes(const void *bytes, size_t len, const char *part)
{
	const char *path = put_file(bytes, len), *at;
	struct safetensors *file = (void *)1;
	int code = safetensors_open(&file, path);

	if (code != ERR_INPUT || !strstr(err_text(), part)) {
		print_error("code %d, text \"%s\", wanted \"%s\" of %zu bytes: %.300s\n", code, err_text(),
		        part, len, len > 8 ? (const char *)bytes + 8 : "");
		fail();
	}
	assert_null(file);
	assert_true(!strncmp(err_text(), path, strlen(path)));
	at = strstr(err_text(), ": byte ");
	assert_non_null(at);
	assert_true(strtoull(at + 7, NULL, 10) <= len);
	refused_count++;
}

static void refused(const char *header, size_t data_bytes, const char *part)
{
	struct str s = {0};

	compose(&s, header, strlen(header), data_bytes);
	refused_bytes(s.data, s.len_bytes, part);
	str_free(&s);
}

static struct safetensors *accepted_bytes(const char *header, size_t header_bytes, size_t data_bytes)
{
	struct safetensors *file;
	struct str s = {0};

	compose(&s, header, header_bytes, data_bytes);
	check_ok(safetensors_open(&file, put_file(s.data, s.len_bytes)));
	str_free(&s);
	accepted_count++;
	return file;
}

static struct safetensors *accepted(const char *header, size_t data_bytes)
{
	return accepted_bytes(header, strlen(header), data_bytes);
}

static const char two[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
                          "\"b.weight\":{\"dtype\":\"BF16\",\"shape\":[5],\"data_offsets\":[24,34]}}  ";

/* ---- malformed ---- */

static void lengths(void **state)
{
	static const uint64_t wrong[] = {100000001, 1ull << 31, 1ull << 32, INT64_MAX, 1ull << 63,
	        UINT64_MAX - 8, UINT64_MAX - 7, UINT64_MAX};
	struct str s = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		compose(&s, two, strlen(two), 34);
		for (int b = 0; b < 8; b++)
			s.data[b] = (char)(wrong[i] >> 8 * b);
		refused_bytes(s.data, s.len_bytes, "more than the");
	}
	for (uint64_t n = 0; n < strlen(two) + 64;
	        n++) { /* any N but the right one, of a file that is right */
		if (n >= strlen(two) - 2 && n <= strlen(two))
			continue; /* only the padding is lost or the length right */
		compose(&s, two, strlen(two), 34);
		for (int b = 0; b < 8; b++)
			s.data[b] = (char)(n >> 8 * b);
		refused_bytes(s.data, s.len_bytes, "byte ");
	}
	str_free(&s);
}

static void truncated_at_every_byte(void **state)
{
	struct str s = {0};
	char *cut;

	(void)state;
	compose(&s, two, strlen(two), 34);
	for (size_t len = 0; len < s.len_bytes; len++)
		refused_bytes(s.data, len, "byte ");
	cut = mem_alloc(s.len_bytes + 64, 1);
	memcpy(cut, s.data, s.len_bytes);
	for (size_t more = 1; more <= 16; more++)
		refused_bytes(cut, s.len_bytes + more, "bytes that belong to no tensor");
	mem_free(cut);
	str_free(&s);
}

static void numbers(void **state)
{
	static const char *const wrong[] = {"-1", "-0", "-24", "1.0", "24.0", "1e0", "1E1", "24e0", "2.4e1",
	        "\"24\"", "null", "true", "false", "[]", "{}", "01", "+1", "0x18", ".5", "1.", "NaN",
	        "Infinity", "-Infinity", "18446744073709551616", "9223372036854775808",
	        "18446744073709551615", "99999999999999999999999999", "", " ", "2 4", "24,"};
	static const char *const forms[] = {
	        "{\"a\":{\"dtype\":\"U8\",\"shape\":[%s],\"data_offsets\":[0,24]}}",
	        "{\"a\":{\"dtype\":\"U8\",\"shape\":[24,%s],\"data_offsets\":[0,24]}}",
	        "{\"a\":{\"dtype\":\"U8\",\"shape\":[24],\"data_offsets\":[%s,24]}}",
	        "{\"a\":{\"dtype\":\"U8\",\"shape\":[24],\"data_offsets\":[0,%s]}}",
	        "{\"a\":{\"dtype\":\"U8\",\"shape\":%s,\"data_offsets\":[0,24]}}",
	        "{\"a\":{\"dtype\":\"U8\",\"shape\":[24],\"data_offsets\":%s}}",
	        "{\"a\":{\"dtype\":%s,\"shape\":[24],\"data_offsets\":[0,24]}}",
	        "{\"a\":%s}",
	        "{\"__metadata__\":{\"k\":%s}}",
	};

	(void)state;
	for (size_t f = 0; f < sizeof(forms) / sizeof(*forms); f++) {
		for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
			char header[256];

			if (f == 0 && !*wrong[i]) /* rank 0: a size that does not fit */
				continue;
			if (f == 0 && !strcmp(wrong[i], " "))
				continue;
			if (f == 8 && !strcmp(wrong[i], "\"24\"")) /* the one that is right */
				continue;
			snprintf(header, sizeof(header), forms[f], wrong[i]);
			refused(header, 24, "byte ");
		}
	}
	refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[-24],\"data_offsets\":[0,24]}}", 24,
	        "byte 36: a negative");
	refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[24.0],\"data_offsets\":[0,24]}}", 24,
	        "byte 38: a number with a fraction");
}

static void fields(void **state)
{
	static const char dtype[] = "\"dtype\":\"U8\"", shape[] = "\"shape\":[4]",
	                  at[] = "\"data_offsets\":[0,4]";
	static const struct {
		const char *fields[4], *part;
	} cases[] = {
	        {{""}, "has no dtype"},
	        {{dtype}, "has no shape"},
	        {{shape}, "has no dtype"},
	        {{at}, "has no dtype"},
	        {{dtype, shape}, "has no data_offsets"},
	        {{shape, at}, "has no dtype"},
	        {{dtype, at}, "has no shape"},
	        {{dtype, dtype, shape, at}, "appears twice"},
	        {{dtype, shape, shape, at}, "appears twice"},
	        {{dtype, shape, at, at}, "appears twice"},
	        {{dtype, shape, at, "\"extra\":1"}, "unknown field \"extra\""},
	        {{dtype, shape, at, "\"\":1"}, "unknown field"},
	        {{dtype, shape, at, "\"DTYPE\":\"U8\""}, "unknown field"},
	        {{dtype, shape, at, "\"dtype \":\"U8\""}, "unknown field"},
	        {{"\"offsets\":[0,4]", dtype, shape, at}, "unknown field"},
	        {{dtype, shape, "\"data_offsets\":[0]"}, "byte "},
	        {{dtype, shape, "\"data_offsets\":[]"}, "byte "},
	        {{dtype, shape, "\"data_offsets\":[0,4,4]"}, "']' after two data_offsets"},
	        {{dtype, shape, "\"data_offsets\":[4,0]"}, "before they begin"},
	        {{dtype, shape, "\"data_offsets\":[0,5]"}, "takes 4 bytes, data_offsets give 5"},
	        {{dtype, shape, "\"data_offsets\":[0,3]"}, "takes 4 bytes, data_offsets give 3"},
	        {{dtype, shape, "\"data_offsets\":[1,5]"}, "begins at data byte 1"},
	        {{dtype, "\"shape\":[[4]]", at}, "a dimension"},
	        {{dtype, "\"shape\":[4,]", at}, "a dimension"},
	        {{dtype, "\"shape\":[,4]", at}, "a dimension"},
	        {{dtype, "\"shape\":[1,1,1,1,1,1,1,1,4]", at}, "more than 8 dimensions"},
	        {{dtype, "\"shape\":[4", at}, "byte "},
	        {{"\"dtype\":[\"U8\"]", shape, at}, "the string of a dtype"},
	};
	struct str header = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		str_free(&header);
		str_add(&header, "{\"a\":{");
		for (int f = 0; f < 4 && cases[i].fields[f]; f++)
			str_printf(&header, "%s%s", f ? "," : "", cases[i].fields[f]);
		str_add(&header, "}}");
		refused(header.data, 4, cases[i].part);
	}
	str_free(&header);
}

static void dtypes(void **state)
{
	static const char *const wrong[] = {"", "f32", "F 32", "FP32", "float32", "F31", "BF32", "INT8",
	        "I128", "U4", "F8", "F8_E4", "F8_E4M3FN", "F6", "F4_E2M1", "C128", "bool", "BOOLEAN", "F32 ",
	        " F32", "F\\u0033", "Q4_0", "STR"};
	char header[512];

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		snprintf(header, sizeof(header),
		        "{\"a\":{\"dtype\":\"%s\",\"shape\":[1],\"data_offsets\":[0,4]}}", wrong[i]);
		refused(header, 4, "unknown dtype");
	}
	/* each dtype with a byte too many, one too few, and bits that fill no byte */
	for (int d = 0; d < SAFETENSORS_DTYPE_COUNT; d++) {
		int bits = safetensors_dtype_bits((enum safetensors_dtype)d);

		for (int more = -1; more <= 1; more += 2) {
			snprintf(header, sizeof(header),
			        "{\"a\":{\"dtype\":\"%s\",\"shape\":[8],\"data_offsets\":[0,%d]}}",
			        safetensors_dtype_name((enum safetensors_dtype)d), bits + more);
			refused(header, (size_t)(bits + more), "data_offsets give");
		}
		if (bits % 8) {
			snprintf(header, sizeof(header),
			        "{\"a\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,2]}}",
			        safetensors_dtype_name((enum safetensors_dtype)d));
			refused(header, 2, "do not fill whole bytes");
		}
	}
}

static void layouts(void **state)
{
	static const struct {
		int begin[3], end[3], data;
		const char *part;
	} cases[] = {
	        {{0, 4, 8}, {4, 8, 12}, 11, "ends at data byte 12, the file at 11"},
	        {{0, 4, 8}, {4, 8, 12}, 13, "1 bytes that belong to no tensor"},
	        {{0, 4, 9}, {4, 8, 13}, 13, "begins at data byte 9"},
	        {{1, 5, 9}, {5, 9, 13}, 13, "begins at data byte 1"},
	        {{0, 2, 8}, {4, 6, 12}, 12, "begins at data byte 2"},
	        {{0, 0, 4}, {4, 4, 8}, 8, "begins at data byte 0"},
	        {{0, 4, 4}, {4, 8, 8}, 8, "begins at data byte 4"},
	        {{8, 4, 1}, {12, 8, 5}, 12, "begins at data byte 1"},
	        {{0, 4, 12}, {4, 8, 16}, 16, "begins at data byte 12"},
	        {{0, 4, 8}, {4, 8, 12}, 0, "the file at 0"},
	};
	struct str header = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		str_free(&header);
		for (int t = 0; t < 3; t++)
			str_printf(&header,
			        "%s\"t%d\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[%d,%d]}",
			        t ? "," : "{", t, cases[i].begin[t], cases[i].end[t]);
		str_add(&header, "}");
		refused(header.data, (size_t)cases[i].data, cases[i].part);
	}
	str_free(&header);
}

/* Shapes with a product that overflows to a size that would fit. */
static void wrapping_shapes(void **state)
{
	static const struct {
		const char *shape, *dtype;
		int bytes;
	} cases[] = {
	        {"4194305,4194305,211106198978564", "U8", 4},
	        {"4194305,4194305,211106198978564", "F32", 16},
	        {"4294967296,4294967296", "U8", 0},
	        {"9223372036854775807,9223372036854775807", "U8", 1},
	        {"4611686018427387904,4", "U8", 0},
	        {"4611686018427387904,4,1", "F32", 0},
	        {"2305843009213693952,8", "F32", 0},
	        {"4611686018427387904", "F32", 0},
	        {"2305843009213693953", "F64", 8},
	        {"4611686018427387905", "F32", 4},
	        {"9223372036854775807", "F4", 4},
	        {"3,6148914691236517206", "U8", 2},
	        {"3,6148914691236517205,2", "U8", 0},
	        {"65536,65536,65536,65536", "U8", 0},
	        {"65537,65537,65537,65537", "U8", 1},
	        {"4294967296,4294967296,0", "U8", 0},
	        {"1152921504606846976,16", "BF16", 0},
	        {"1152921504606846977", "C64", 8},
	};
	char header[256];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		snprintf(header, sizeof(header),
		        "{\"a\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[0,%d]}}", cases[i].dtype,
		        cases[i].shape, cases[i].bytes);
		refused(header, (size_t)cases[i].bytes, "not fit 64 bits");
	}
}

static void syntax(void **state)
{
	static const char *const headers[] = {"", " ", "x", "\"a\"", "[]", "null", "0", "{", "}", "{}{}",
	        "{},", "{} x", "{}\xc2\xa0", "\xef\xbb\xbf{}", "{,}", "{\"a\"}", "{\"a\":}", "{\"a\":{}",
	        "{a:{}}", "{'a':{}}", "{\"a\":{},}", "{\"a\" {}}", "{\"a\"::{}}", "{\"__metadata__\":[]}",
	        "{\"__metadata__\":null}", "{\"__metadata__\":\"x\"}", "{\"__metadata__\":{\"a\":{}}}",
	        "{\"__metadata__\":{\"a\":\"b\",}}", "{\"__metadata__\":{\"a\"}}",
	        "{\"__metadata__\":{\"a\":\"b\"", "{\"__metadata__\":{},\"__metadata__\":{}}",
	        "{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}",
	        "{\"__metadata__\":{\"a\":\"1\",\"\\u0061\":\"2\"}}", "{\"__metadata__\":{\"a\":[\"b\"]}}",
	        "{/**/}", "{}//", "{\"a\":[\"U8\",[],[0,0]]}", "{\"a\":[]}", "{\"a\":[[[[[[[[]]]]]]]]}",
	        "{\"a\":{\"a\":{\"a\":{}}}}", "{{}}", "[{}]", "{}\f", "{}\v", "{\t}}", "\v{}",
	        "{\"\\u005f_metadata__\":{},\"__metadata__\":{}}"};
	static const char *const strings[] = {"\\u0000", "a\\u0000b", "\\", "\\x41", "\\u12", "\\u123g",
	        "\\ud800", "\\udc00", "\\ud800x", "\\ud800\\u0041", "\\ud800\\ud800", "\\uD83D", "\\U0041",
	        "\\'", "\\a", "\\0", "\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc3", "\xc3(", "\xe0\x80\x80",
	        "\xe0\x9f\xbf", "\xe2\x82", "\xe2(\xa1", "\xed\xa0\x80", "\xed\xbf\xbf", "\xf0\x80\x80\x80",
	        "\xf0\x8f\xbf\xbf", "\xf0\x9f\x98", "\xf0(\x8c\xbc", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80",
	        "\xf8\x88\x80\x80\x80", "\xfe", "\xff", "a\xff", "\xff\xfe"};
	char header[512];

	(void)state;
	for (size_t i = 0; i < sizeof(headers) / sizeof(*headers); i++)
		refused(headers[i], 0, "byte ");
	for (size_t i = 0; i < sizeof(strings) / sizeof(*strings);
	        i++) { /* in a name, a key, a value, a dtype */
		snprintf(header, sizeof(header),
		        "{\"%s\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", strings[i]);
		refused(header, 1, "byte ");
		snprintf(header, sizeof(header), "{\"__metadata__\":{\"%s\":\"b\"}}", strings[i]);
		refused(header, 0, "byte ");
		snprintf(header, sizeof(header), "{\"__metadata__\":{\"a\":\"%s\"}}", strings[i]);
		refused(header, 0, "byte ");
	}
	for (int c = 1; c < 32; c++) {
		snprintf(header, sizeof(header),
		        "{\"a%c\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", c);
		refused(header, 1, "control character");
		snprintf(header, sizeof(header), "{\"__metadata__\":{\"a\":\"%c\"}}", c);
		refused(header, 0, "control character");
	}
}

static void names(void **state)
{
	static const char entry[] = "{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}";
	static const char *const twice[][2] = {{"a", "a"}, {"a", "\\u0061"}, {"", ""}, {"\\/", "/"},
	        {"\xc3\xa9", "\\u00e9"}, {"\xf0\x9f\x98\x80", "\\ud83d\\ude00"}, {"\\t", "\\u0009"}};
	static const char zero[] = "{\"a\0b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}";
	struct str header = {0}, s = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(twice) / sizeof(*twice); i++) {
		str_free(&header);
		str_printf(&header, "{\"%s\":%s,\"middle\":%s,\"%s\":%s}", twice[i][0], entry, entry,
		        twice[i][1], entry);
		refused(header.data, 0, "appears twice");
	}
	compose(&s, zero, sizeof(zero) - 1, 0);
	refused_bytes(s.data, s.len_bytes, "byte 11: a control character");
	for (int len = SAFETENSORS_NAME_MAX_BYTES + 1; len < 2 << 20; len = len * 3 + 1) {
		str_free(&header);
		str_add(&header, "{\"");
		for (int i = 0; i < len; i++)
			str_add_char(&header, 'n');
		str_printf(&header, "\":%s}", entry);
		refused(header.data, 0, "name of more than");
	}
	str_free(&header);
	str_free(&s);
}

static void not_regular_files(void **state)
{
	struct safetensors *file;

	(void)state;
	assert_int_equal(mkfifo(file_of("fifo"), 0600), 0);
	check_fails(safetensors_open(&file, file_of("fifo")), ERR_INPUT, "pipe");
	check_fails(safetensors_open(&file, dir), ERR_INPUT, "directory");
	check_fails(safetensors_open(&file, "/dev/zero"), ERR_INPUT, "device");
	check_fails(safetensors_open(&file, file_of("absent")), ERR_INPUT, "absent: cannot open");
	refused_count += 4;
}

/* ---- odd, but valid ---- */

static void odd_but_valid(void **state)
{
	static const char *const empty[] = {"{}", " {}", "\n\t\r {}", "{ }", "{}        ", "{\n}\n",
	        "{\"__metadata__\":{}}", "{\"__metadata__\":{\"format\":\"pt\"}}",
	        "{\"__metadata__\":{\"\":\"\"}}", "{ \"__metadata__\" : { \"a\" : \"b\" , \"c\" : \"d\" } }",
	        "{\"\\u005f_metadata__\":{\"a\":\"b\"}}",
	        "{\"__metadata__\":{\"a\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00\"}}"};
	static const char *const one[] = {
	        "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
	        "{\"a\":{\"data_offsets\":[0,4],\"shape\":[4],\"dtype\":\"U8\"}}",
	        "{\"a\":{\"shape\":[1,1,1,1,1,1,1,4],\"dtype\":\"U8\",\"data_offsets\":[0,4]}}",
	        "{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}",
	        "{\"a\":{\"d\\u0074ype\":\"F\\u00332\",\"shape\":[1],\"data_offsets\":[0,4]}}",
	        "{\"a\" : { \"dtype\" : \"F32\" ,\n\"shape\" : [ 1 , 1 ] , \"data_offsets\" : [ 0 , 4 ] } }",
	        "{\"\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
	        "{\"a b/c\\n\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
	        "{\"\xe6\xa8\xa1\xe5\x9e\x8b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
	        "{\"dtype\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
	        "{\"metadata\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
	        "{\"a\":{\"dtype\":\"F4\",\"shape\":[2,4],\"data_offsets\":[0,4]}}",
	        "{\"a\":{\"dtype\":\"BOOL\",\"shape\":[2,2],\"data_offsets\":[0,4]},\"__metadata__\":{}}",
	        /* empty tensors, anywhere */
	        "{\"z\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
	        "\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
	        "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
	        "\"y\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[4,4]},"
	        "\"z\":{\"dtype\":\"F4\",\"shape\":[9223372036854775807,0],\"data_offsets\":[4,4]}}",
	        /* not in the order of the data, not aligned */
	        "{\"b\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[1,3]},"
	        "\"c\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[3,4]},"
	        "\"a\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
	};
	char header[SAFETENSORS_NAME_MAX_BYTES + 256], name[SAFETENSORS_NAME_MAX_BYTES + 1];

	(void)state;
	for (size_t i = 0; i < sizeof(empty) / sizeof(*empty); i++)
		safetensors_close(accepted(empty[i], 0));
	for (size_t i = 0; i < sizeof(one) / sizeof(*one); i++)
		safetensors_close(accepted(one[i], 4));
	for (int d = 0; d < SAFETENSORS_DTYPE_COUNT; d++) { /* all dtypes; 6-bit ones fill bytes by fours */
		int bytes = safetensors_dtype_bits((enum safetensors_dtype)d) * 12 / 8;

		snprintf(header, sizeof(header),
		        "{\"a\":{\"dtype\":\"%s\",\"shape\":[3,4],\"data_offsets\":[0,%d]}}",
		        safetensors_dtype_name((enum safetensors_dtype)d), bytes);
		safetensors_close(accepted(header, (size_t)bytes));
	}
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	snprintf(header, sizeof(header), "{\"%s\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}",
	        name);
	safetensors_close(accepted(header, 1));
}

static void contents(void **state)
{
	struct safetensors *file =
	        accepted("{\"__metadata__\":{\"z\":\"1\",\"format\":\"p\\u0074\"},"
	                 "\"b\":{\"dtype\":\"F16\",\"shape\":[3,1],\"data_offsets\":[6,12]},"
	                 "\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[6],\"data_offsets\":[0,6]}}",
	                12);
	const struct safetensors_tensor *a = safetensors_find(file, "a"), *b = safetensors_find(file, "b");
	unsigned char bytes[6];

	(void)state;
	assert_int_equal(file->tensor_count, 2);
	assert_ptr_equal(a, &file->tensors[0]);
	assert_ptr_equal(b, &file->tensors[1]);
	assert_null(safetensors_find(file, "c"));
	assert_null(safetensors_find(file, ""));
	assert_int_equal(b->dtype, SAFETENSORS_F16);
	assert_true(
	        b->rank == 2 && b->shape[0] == 3 && b->shape[1] == 1 && b->count == 3 && b->len_bytes == 6);
	assert_int_equal(b->begin_bytes, 8 + file->header_bytes + 6);
	check_ok(safetensors_read(file, b, bytes, 1, 5));
	assert_memory_equal(bytes, "\x07\x08\x09\x0a\x0b", 5);
	check_ok(safetensors_read(file, a, bytes, 0, 6));
	assert_memory_equal(bytes, "\0\1\2\3\4\5", 6);
	assert_int_equal(file->metadata_count, 2);
	assert_string_equal(file->metadata[0].key, "format");
	assert_string_equal(file->metadata[0].value, "pt");
	/* a file that shrinks under us is an error */
	assert_int_equal(truncate(file->path, file->file_bytes - 1), 0);
	check_ok(safetensors_read(file, b, bytes, 0, 5));
	check_fails(safetensors_read(file, b, bytes, 0, 6), ERR_IO, "1 bytes short");
	safetensors_close(file);
	safetensors_close(NULL);
}

static void out_of_memory(void **state)
{
	struct safetensors *file;
	struct str s = {0};
	int64_t n = 0;
	int code;

	(void)state;
	compose(&s, two, strlen(two), 34);
	put_file(s.data, s.len_bytes);
	str_free(&s);
	do {
		mem_fault_arm(++n, MEM_FAULT_ONCE);
		code = safetensors_open(&file, file_of("case.safetensors"));
		mem_fault_arm(0, MEM_FAULT_ONCE);
		assert_true(code == 0 || (code == ERR_NOMEM && !file));
	} while (code);
	safetensors_close(file);
	assert_true(n > 3);
}

static void corpus_is_large(void **state)
{
	(void)state;
	print_message("%d malformed files refused, %d odd ones accepted\n", refused_count, accepted_count);
	assert_true(refused_count >= 500);
	assert_true(accepted_count >= 30);
}

static int make_dir(void **state)
{
	int err = check_dir_make(state);

	dir = *state;
	return err;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(lengths),
	        cmocka_unit_test(truncated_at_every_byte),
	        cmocka_unit_test(numbers),
	        cmocka_unit_test(fields),
	        cmocka_unit_test(dtypes),
	        cmocka_unit_test(layouts),
	        cmocka_unit_test(wrapping_shapes),
	        cmocka_unit_test(syntax),
	        cmocka_unit_test(names),
	        cmocka_unit_test(not_regular_files),
	        cmocka_unit_test(odd_but_valid),
	        cmocka_unit_test(contents),
	        cmocka_unit_test(out_of_memory),
	        cmocka_unit_test(corpus_is_large),
	};

	return cmocka_run_group_tests_name("safetensors", tests, make_dir, check_dir_remove);
}
