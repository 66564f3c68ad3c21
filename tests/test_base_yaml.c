/* links: base */
/* YAML: scalars, lists, mappings, errors with their places, limits. */
#include "base/mem.h"
#include "base/str.h"
#include "base/yaml.h"
#include "tests/check.h"

static void refused(const char *text, size_t len_bytes, const char *part)
{
	struct yaml_doc doc = {.count = 99};

	check_fails(yaml_parse(&doc, "c.yaml", text, len_bytes), ERR_INPUT, part);
	assert_int_equal(doc.count, 0);
	assert_null(doc.items);
}

#define REFUSED(text, part) refused(text, sizeof(text) - 1, part)

/* One line an item: "path=text" and then what else is set. */
static void reads(const char *text, const char *wanted)
{
	struct yaml_doc doc;
	struct str got = {0};

	check_ok(yaml_parse(&doc, "c.yaml", text, strlen(text)));
	for (size_t i = 0; i < doc.count; i++) {
		const struct yaml_item *item = &doc.items[i];

		str_printf(&got, "%d %s=%s%s%s%s\n", item->line, item->path, item->text,
		        item->is_null ? " null" : "", item->is_list ? " list" : "",
		        item->quoted ? " quoted" : "");
	}
	str_add(&got, "");
	assert_string_equal(got.data, wanted);
	str_free(&got);
	yaml_doc_free(&doc);
}

static void scalars(void **state)
{
	(void)state;
	reads("lr: 2e-5\nname: a b  # comment\n\n# another\nyes: no\nhash: a#b\nn: -1_000\nurl: "
	      "http://x:1/y\n",
	        "1 lr=2e-5\n2 name=a b\n5 yes=no\n6 hash=a#b\n7 n=-1_000\n8 url=http://x:1/y\n");
	reads("a: '2e-5'\nb: \"x\\ty\"\nc: |\n  one\n  two\nd: >-\n  one\n  two\n",
	        "1 a=2e-5 quoted\n2 b=x\ty quoted\n3 c=one\ntwo\n quoted\n6 d=one two quoted\n");
	reads("a:\nb: ~\nc: null\nd: NULL\ne: ''\nf: nul\ng: '~'\n",
	        "1 a= null\n2 b=~ null\n3 c=null null\n4 d=NULL null\n5 e= quoted\n6 f=nul\n7 g=~ quoted\n");
	reads("'quoted key': 1\n\"b\": 2\n12: 3\n", "1 quoted key=1\n2 b=2\n3 12=3\n");
	reads("{\"json\": 1, \"like\": {\"a\": [1, 2]}}", "1 json=1\n1 like.a=1,2 list\n");
	reads("a: 1\r\nb: two\r\n", "1 a=1\n2 b=two\n");
	reads("a: grüße\n", "1 a=grüße\n");
}

static void nothing(void **state)
{
	(void)state;
	reads("", "");
	reads("# only a comment\n", "");
	reads("---\n", "");
	reads("--- ~\n...\n", "");
	reads("{}", "");
	yaml_doc_free(NULL);
}

static void lists(void **state)
{
	(void)state;
	reads("a: [x, 'y', 2e-5]\nb:\n- 1\n- 2\nc: []\nd: [one]\ne: [~, null]\n",
	        "1 a=x,y,2e-5 list\n3 b=1,2 list\n5 c= list\n6 d=one list\n7 e=~,null list\n");
	reads("d:\n  - path: p\n    type: alpaca\n  - path: q\n",
	        "2 d.0.path=p\n3 d.0.type=alpaca\n4 d.1.path=q\n");
	reads("d:\n  - {}\n  - k: [1, 2]\n", "2 d.0= null\n3 d.1.k=1,2 list\n");
	REFUSED("a:\n- [1]\n", "c.yaml:2: \"a\": a list inside a list");
	REFUSED("a:\n- 1\n- [1]\n", "c.yaml:3: \"a\" is a list of plain values");
	REFUSED("a:\n- 1\n- k: 1\n", "c.yaml:3: \"a\" is a list of plain values");
	REFUSED("a:\n- k: 1\n- 1\n", "c.yaml:3: \"a\" is a list of mappings");
	REFUSED("a:\n- 'x,y'\n", "c.yaml:2: \"a\": a list element may not contain a comma");
}

static void mappings(void **state)
{
	(void)state;
	reads("fsdp_config:\n  fsdp_offload_params: true\n  deep:\n    x: 1\nafter: 2\n",
	        "2 fsdp_config.fsdp_offload_params=true\n4 fsdp_config.deep.x=1\n5 after=2\n");
	reads("empty: {}\nb: 1\n", "1 empty= null\n2 b=1\n");
	reads("a: {x: 1}\nb: {x: 1}\n", "1 a.x=1\n2 b.x=1\n");
}

static void duplicates(void **state)
{
	(void)state;
	REFUSED("a: 1\nb: 2\na: 3\n", "c.yaml:3: \"a\" was already set on line 1");
	REFUSED("m:\n  x: 1\n  y: 2\n  x: 3\n", "c.yaml:4: \"m.x\" was already set on line 2");
	REFUSED("m: {x: 1}\nn: 1\nm: {y: 1}\n", "c.yaml:3: \"m\" was already set on line 1");
	REFUSED("a: 1\nb: 1\nb: 2\na: 2\n", "c.yaml:3: \"b\" was already set on line 2");
	REFUSED("a: 1\na: 2\na: 3\n", "c.yaml:2: \"a\" was already set on line 1");
	REFUSED("a.b: 1\na:\n  b: 2\n", "c.yaml:3: \"a.b\" was already set on line 1");
	REFUSED("a: 1\n'a': 2\n", "c.yaml:2: \"a\" was already set on line 1");
	REFUSED("d:\n- k: 1\n  k: 2\n", "c.yaml:3: \"d.0.k\" was already set on line 2");
}

static void refusals(void **state)
{
	(void)state;
	REFUSED("a: &x 1\nb: *x\n", "c.yaml:1: anchors (&x)");
	REFUSED("a: 1\nb: *x\n", "c.yaml:2: aliases (*x)");
	REFUSED("a: &l [1]\n", "c.yaml:1: anchors (&l)");
	REFUSED("a: &m {x: 1}\n", "c.yaml:1: anchors (&m)");
	REFUSED("a: !!python/object:os.system x\n",
	        "c.yaml:1: tags (tag:yaml.org,2002:python/object:os.system)");
	REFUSED("a: 1\n---\nb: 1\n", "c.yaml:2: a second document");
	REFUSED("just text",
	        "c.yaml:1: expected \"key: value\", with a colon and a space; found \"just text\"");
	REFUSED("'~'", "c.yaml:1: expected \"key: value\"");
	REFUSED("- 1\n- 2\n", "c.yaml:1: expected a mapping (key: value), found a list");
	REFUSED("? [a, b]\n: 1\n", "c.yaml:1: a key must be a plain word");
	REFUSED("? {a: b}\n: 1\n", "c.yaml:1: a key must be a plain word");
	REFUSED("a: 1\n'': 1\n", "c.yaml:2: a key is empty");
	REFUSED("a: \"x\\0y\"\n", "c.yaml:1: a NUL character");
}

static void syntax_has_places(void **state)
{
	(void)state;
	REFUSED("a: 1\nb = 2\nc: 3\n", "c.yaml:2: expected \"key: value\", with a colon and a space");
	REFUSED("a:\n\tb: 1\n", "c.yaml:2: a tab; indent with spaces");
	REFUSED("a: 1\n b: 2\n", "c.yaml:2:3: unexpected colon; quote a value that contains a colon");
	REFUSED("a: [1, 2\nb: 3\n", "c.yaml:2:2: did not find expected ',' or ']'");
	REFUSED("a: 1\n\tb: 2\n", "c.yaml:2:1: found ");
	REFUSED("a: \"open\n", "c.yaml:2:1: found unexpected end of stream");
	REFUSED("ok: 1\nbad: @x\n", "c.yaml:2:6: found character that cannot start any token");
	REFUSED("a: \xff\xfe\n", "c.yaml: byte 3: ");
	refused("a: \0x\n", 6, "c.yaml: byte 3: ");
}

static void bounds(void **state)
{
	struct str text = {0};
	struct yaml_doc doc;

	(void)state;
	reads("a:\n b:\n  c:\n   d:\n    e:\n     f:\n      g:\n       h: 1\n", "8 a.b.c.d.e.f.g.h=1\n");
	REFUSED("a:\n b:\n  c:\n   d:\n    e:\n     f:\n      g:\n       h:\n        i: 1\n",
	        "c.yaml:9: nested deeper than 8");
	REFUSED("{a: {b: {c: {d: {e: {f: {g: {h: {i: {}}}}}}}}}}", "nested deeper than 8");
	REFUSED("a:\n  1:\n    b: x\n", "c.yaml:2: \"a.1\": let a name that is a number begin with a letter");
	reads("a: {1: x}\n", "1 a.1=x\n");
	for (int i = 0; i < 100000; i++)
		str_add(&text, i ? "{a: " : "a: ");
	refused(text.data, text.len_bytes, "c.yaml:1: nested deeper than 8");
	str_free(&text);
	str_add(&text, "a: ");
	for (int i = 0; i < 1000000; i++)
		str_add_char(&text, '[');
	refused(text.data, text.len_bytes, "c.yaml:1: ");
	str_free(&text);
	for (int i = 0; i < 257; i++)
		str_add_char(&text, 'k');
	str_add(&text, ": 1\n");
	refused(text.data, text.len_bytes, "c.yaml:1: a key of 257 bytes; the limit is 256");
	check_ok(yaml_parse(&doc, "c.yaml", text.data + 1, text.len_bytes - 1));
	yaml_doc_free(&doc);
	str_free(&text);
	for (int i = 0; i < 10001; i++)
		str_printf(&text, "k%d: 1\n", i);
	refused(text.data, text.len_bytes, "c.yaml:10001: more than 10000 keys");
	str_free(&text);
	str_add(&text, "a: ");
	while (text.len_bytes < (1 << 20) - 1)
		str_add_char(&text, 'x');
	str_add_char(&text, '\n');
	check_ok(yaml_parse(&doc, "c.yaml", text.data, text.len_bytes));
	assert_int_equal(strlen(doc.items[0].text), (1 << 20) - 4);
	yaml_doc_free(&doc);
	str_add_char(&text, '\n');
	refused(text.data, text.len_bytes, "c.yaml: has 1048577 bytes");
	str_free(&text);
}

static void files(void **state)
{
	char *path = file_join(*state, "c.yaml");
	struct yaml_doc doc;

	check_fails(yaml_read_file(&doc, path), ERR_INPUT, "c.yaml: cannot open");
	assert_int_equal(doc.count, 0);
	check_ok(file_write_all(path, "a: 1\nb: [\n", 10));
	check_fails(yaml_read_file(&doc, path), ERR_INPUT, "c.yaml:3:1: ");
	check_ok(file_write_all(path, "a: 1\n", 5));
	check_ok(yaml_read_file(&doc, path));
	assert_int_equal(doc.count, 1);
	yaml_doc_free(&doc);
	mem_free(path);
}

static void out_of_memory(void **state)
{
	static const char text[] = "a: 1\nb: [x, y]\nc: {d: {}, e: 'f'}\ng:\n- h: 1\n- h: 2\n";
	int err = ERR_NOMEM, turns = 0;
	struct yaml_doc doc;

	(void)state;
	for (int n = 1; err; n++, turns++) {
		mem_fault_arm(n, MEM_FAULT_ONCE);
		err = yaml_parse(&doc, "c.yaml", text, sizeof(text) - 1);
		mem_fault_arm(0, MEM_FAULT_ONCE);
		if (err) {
			assert_int_equal(err, ERR_NOMEM);
			assert_int_equal(doc.count, 0);
			assert_non_null(strstr(err_text(), "out of memory"));
		}
	}
	assert_true(turns > 15);
	assert_int_equal(doc.count, 6);
	yaml_doc_free(&doc);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(scalars),
	        cmocka_unit_test(nothing),
	        cmocka_unit_test(lists),
	        cmocka_unit_test(mappings),
	        cmocka_unit_test(duplicates),
	        cmocka_unit_test(refusals),
	        cmocka_unit_test(syntax_has_places),
	        cmocka_unit_test(bounds),
	        cmocka_unit_test_setup_teardown(files, check_dir_make, check_dir_remove),
	        cmocka_unit_test(out_of_memory),
	};

	return cmocka_run_group_tests_name("base_yaml", tests, NULL, NULL);
}
