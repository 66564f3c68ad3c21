/* links: base */
/* JSON: places of errors, limits, getters that refuse other kinds, files. */
#include "base/json.h"
#include "base/mem.h"
#include "tests/check.h"

static json_t *parse(const char *text)
{
	json_t *root = NULL;

	check_ok(json_parse(&root, "t.json", text, strlen(text)));
	assert_non_null(root);
	return root;
}

static void refused(const char *text, size_t len_bytes, const char *part)
{
	json_t *root = (json_t *)1;

	check_fails(json_parse(&root, "t.json", text, len_bytes), ERR_INPUT, part);
	assert_null(root);
}

#define REFUSED(text, part) refused(text, sizeof(text) - 1, part)

static void errors_have_places(void **state)
{
	(void)state;
	REFUSED("", "t.json:1:0: ");
	REFUSED("{\"a\": 1,\n\"b\": }", "t.json:2:6: unexpected token near '}'");
	REFUSED("{\"a\": 1,\n \"a\": 2}", "t.json:2:4: duplicate object key near '\"a\"'");
	REFUSED("{\"x\": {\"a\": 1, \"a\": 1}}", "duplicate object key");
	REFUSED("[1] x", "t.json:1:5: end of file expected near 'x'");
	REFUSED("[1, 2", "t.json:1:5: ");
	REFUSED("[NaN]", "t.json:1:");
	REFUSED("[Infinity]", "t.json:1:");
	REFUSED("[1e999]", "t.json:1:6: real number overflow");
	REFUSED("[\"\xff\"]", "t.json:1:2: unable to decode byte 0xff");
	REFUSED("[\"\\ud800\"]", "t.json:1:");
	REFUSED("{\"a\\u0000b\": 1}", "t.json:1:");
	REFUSED("[1,]", "t.json:1:");
	REFUSED("[01]", "t.json:1:");
	REFUSED("{'a': 1}", "t.json:1:");
	REFUSED("[\"a\nb\"]", "t.json:1:");
	refused("[1]\0", 4, "t.json:1:4: ");
}

static void nesting_is_bounded(void **state)
{
	enum { DEPTH = 100000 };
	char *text = malloc(2 * DEPTH);

	(void)state;
	memset(text, '[', DEPTH);
	memset(text + DEPTH, ']', DEPTH);
	refused(text, 2 * DEPTH, "maximum parsing depth reached");
	memset(text, '[', 1000);
	memset(text + 1000, ']', 1000);
	text[2000] = 0;
	json_decref(parse(text));
	free(text);
}

static void any_kind_on_top(void **state)
{
	static const char *const cases[][2] = {{"{}", "an object"}, {" [ ] ", "an array"},
	        {"\"x\"", "a string"}, {"12", "an integer"}, {"1.5", "a real number"}, {"true", "a boolean"},
	        {"false", "a boolean"}, {"null", "null"}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		json_t *root = parse(cases[i][0]);

		assert_string_equal(json_kind_name(root), cases[i][1]);
		json_decref(root);
	}
	assert_string_equal(json_kind_name(NULL), "nothing");
}

static void large_integers(void **state)
{
	json_t *root = parse(
	        "{\"most\": 9223372036854775807, \"least\": -9223372036854775808, \"s\": "
	        "\"99999999999999999999\","
	        "\"q\\\"\": \"\\\\\", \"one_more\": 9223372036854775808, \"one_less\": -9223372036854775809,"
	        "\"hf\": 1000000000000000019884624838656, \"e\": 99999999999999999999e1, \"r\": "
	        "12345678901234567890.5}");
	int64_t i = 0;
	double x = 0;
	const char *s;

	(void)state;
	assert_int_equal(json_get_int(root, "t", "most", &i), 1);
	assert_true(i == INT64_MAX);
	assert_int_equal(json_get_int(root, "t", "least", &i), 1);
	assert_true(i == INT64_MIN);
	assert_int_equal(json_get_num(root, "t", "one_more", &x), 1);
	assert_true(x == 0x1p63);
	assert_int_equal(json_get_num(root, "t", "one_less", &x), 1);
	assert_true(x == -0x1p63);
	assert_int_equal(json_get_num(root, "t", "hf", &x), 1);
	assert_true(x == 1000000000000000019884624838656.0);
	assert_int_equal(json_get_num(root, "t", "e", &x), 1);
	assert_true(x == 1e21);
	assert_int_equal(json_get_num(root, "t", "r", &x), 1);
	assert_true(x == 12345678901234567890.5);
	assert_int_equal(json_get_str(root, "t", "s", &s), 1);
	assert_string_equal(s, "99999999999999999999");
	check_fails(json_get_int(root, "t", "hf", &i), ERR_INPUT, "t: \"hf\" must be a 64-bit integer");
	check_fails(json_get_int(root, "t", "one_more", &i), ERR_INPUT, "9.2233720368547758e+18");
	json_decref(root);
	REFUSED("[99999999999999999999, 1e999]", "real number overflow");
	REFUSED("[99999999999999999999, --]", "t.json:1:");
}

static void byte_order_mark(void **state)
{
	json_t *root = parse("\xef\xbb\xbf{\"a\": 1}");

	(void)state;
	json_decref(root);
	REFUSED("\xef\xbb\xbf", "t.json:1:");
}

static void getters(void **state)
{
	json_t *root = parse("{\"i\": 7, \"whole\": 1e6, \"part\": 0.5, \"t\": true, \"f\": false, \"s\": "
	                     "\"x\", \"z\": null,"
	                     "\"o\": {\"k\": 1}, \"a\": [1, 2], \"nul\": \"a\\u0000b\"}");
	json_t *tree = NULL;
	const char *s = NULL;
	int64_t i = -1;
	double x = -1;
	int b = -1;

	(void)state;
	assert_int_equal(json_get_int(root, "t", "i", &i), 1);
	assert_int_equal(i, 7);
	assert_int_equal(json_get_int(root, "t", "whole", &i), 1);
	assert_int_equal(i, 1000000);
	check_fails(json_get_int(root, "t", "part", &i), ERR_INPUT,
	        "t: \"part\" must be a 64-bit integer, but is 0.5");
	assert_int_equal(json_get_num(root, "t", "i", &x), 1);
	assert_true(x == 7);
	assert_int_equal(json_get_num(root, "t", "part", &x), 1);
	assert_true(x == 0.5);
	assert_int_equal(json_get_bool(root, "t", "t", &b), 1);
	assert_int_equal(b, 1);
	assert_int_equal(json_get_bool(root, "t", "f", &b), 1);
	assert_int_equal(b, 0);
	assert_int_equal(json_get_str(root, "t", "s", &s), 1);
	assert_string_equal(s, "x");
	assert_int_equal(json_get_object(root, "t", "o", &tree), 1);
	assert_int_equal(json_object_size(tree), 1);
	assert_int_equal(json_get_array(root, "t", "a", &tree), 1);
	assert_int_equal(json_array_size(tree), 2);
	check_fails(json_get_str(root, "t", "nul", &s), ERR_INPUT, "t: \"nul\" holds a NUL character");
	json_decref(root);
}

static void getters_leave_absent_alone(void **state)
{
	json_t *root = parse("{\"z\": null}"), *list = parse("[]"), *tree = list;
	const char *s = "before";
	int64_t i = -1;
	double x = -1;
	int b = -1;

	(void)state;
	for (int turn = 0; turn < 2; turn++) {
		const char *key = turn ? "z" : "absent";

		assert_int_equal(json_get_int(root, "t", key, &i), 0);
		assert_int_equal(json_get_num(root, "t", key, &x), 0);
		assert_int_equal(json_get_bool(root, "t", key, &b), 0);
		assert_int_equal(json_get_str(root, "t", key, &s), 0);
		assert_int_equal(json_get_object(root, "t", key, &tree), 0);
		assert_int_equal(json_get_array(root, "t", key, &tree), 0);
	}
	assert_true(i == -1 && x == -1 && b == -1 && tree == list && !strcmp(s, "before"));
	check_fails(json_get_int(list, "t", "k", &i), ERR_INPUT,
	        "t: expected an object with \"k\", found an array");
	check_fails(json_get_str(NULL, "t", "k", &s), ERR_INPUT, "found nothing");
	json_decref(root);
	json_decref(list);
}

/* Each getter against a value of each kind: it takes its own and names the others. */
static void getters_refuse_other_kinds(void **state)
{
	static const char *const kinds[] = {"string", "integer", "real", "boolean", "object", "array"};
	static const char *const takes[] = {
	        "integer", "integer real", "boolean", "string", "object", "array"};
	json_t *root = parse("{\"string\": \"1\", \"integer\": 1, \"real\": 1.5, \"boolean\": true, "
	                     "\"object\": {}, \"array\": []}");
	json_t *tree;
	const char *s;
	int64_t i;
	double x;
	int b;

	(void)state;
	for (int getter = 0; getter < 6; getter++) {
		for (int kind = 0; kind < 6; kind++) {
			const char *key = kinds[kind];
			int got;

			switch (getter) {
			case 0:
				got = json_get_int(root, "t", key, &i);
				break;
			case 1:
				got = json_get_num(root, "t", key, &x);
				break;
			case 2:
				got = json_get_bool(root, "t", key, &b);
				break;
			case 3:
				got = json_get_str(root, "t", key, &s);
				break;
			case 4:
				got = json_get_object(root, "t", key, &tree);
				break;
			default:
				got = json_get_array(root, "t", key, &tree);
			}
			assert_int_equal(got, strstr(takes[getter], key) ? 1 : ERR_INPUT);
			if (got < 0) {
				char front[64];

				snprintf(front, sizeof(front), "t: \"%s\" must be ", key);
				assert_memory_equal(err_text(), front, strlen(front));
			}
		}
	}
	check_fails(
	        json_get_bool(root, "t", "string", &b), ERR_INPUT, "must be true or false, but is a string");
	json_decref(root);
}

static void files(void **state)
{
	char *path = file_join(*state, "a.json");
	json_t *root = NULL;

	check_fails(json_read_file(&root, path, 100), ERR_INPUT, "a.json: cannot open");
	check_ok(file_write_all(path, "{\n\"a\" 1}", 8));
	check_fails(json_read_file(&root, path, 100), ERR_INPUT, "a.json:2:5: ':' expected near '1'");
	check_fails(json_read_file(&root, path, 7), ERR_INPUT, "a.json: has 8 bytes");
	check_ok(file_write_all(path, "{\"a\":1}", 7));
	check_ok(json_read_file(&root, path, 7));
	json_decref(root);
	mem_free(path);
}

static void text_of_any_bytes(void **state)
{
	static const char *const rows[][2] = {
	        {"", ""}, {"a\xc3\xa4", "a\xc3\xa4"}, {"a\xff z\xc3\xa4", "a? z??"}};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		json_t *value = json_of_text(rows[i][0]);

		assert_string_equal(json_string_value(value), rows[i][1]);
		json_decref(value);
	}
}

static void out_of_memory(void **state)
{
	static const char text[] =
	        "{\"a\": [1, 2.5, \"text\", {\"b\": null}], \"c\": 1000000000000000019884624838656}";
	json_t *root = NULL;
	int err = ERR_NOMEM, turns = 0;

	(void)state;
	for (int n = 1; err; n++, turns++) {
		mem_fault_arm(n, MEM_FAULT_ONCE);
		err = json_parse(&root, "t", text, sizeof(text) - 1);
		mem_fault_arm(0, MEM_FAULT_ONCE);
		if (err) {
			assert_int_equal(err, ERR_NOMEM);
			assert_null(root);
			assert_non_null(strstr(err_text(), "out of memory"));
		}
	}
	assert_true(turns > 10);
	json_decref(root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(errors_have_places),
	        cmocka_unit_test(nesting_is_bounded),
	        cmocka_unit_test(any_kind_on_top),
	        cmocka_unit_test(large_integers),
	        cmocka_unit_test(byte_order_mark),
	        cmocka_unit_test(getters),
	        cmocka_unit_test(getters_leave_absent_alone),
	        cmocka_unit_test(getters_refuse_other_kinds),
	        cmocka_unit_test_setup_teardown(files, check_dir_make, check_dir_remove),
	        cmocka_unit_test(text_of_any_bytes),
	        cmocka_unit_test(out_of_memory),
	};

	return cmocka_run_group_tests_name("base_json", tests, NULL, NULL);
}
