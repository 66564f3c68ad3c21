/* links: checkpoint base */
/* Hub ids, and their directories in a HuggingFace cache. */
#include "tests/check.h"

#include "base/mem.h"
#include "checkpoint/hf/hub_cache.h"

static void make(const char *root, const char *name, const char *text)
{
	char *path = mem_printf("%s/%s", root, name), *slash;

	assert_non_null(path);
	slash = strrchr(path, '/');
	*slash = 0;
	check_ok(file_make_dir(path));
	*slash = '/';
	check_ok(file_write_all(path, text, strlen(text)));
	mem_free(path);
}

/* *wanted: the path below root; NULL: not there. */
static void check_found(const char *root, const char *id, enum hub_kind kind, const char *wanted)
{
	char *dir = NULL;

	check_ok(hub_cache_find(&dir, id, kind));
	if (!wanted)
		assert_null(dir);
	else if (!dir || strncmp(dir, root, strlen(root)) != 0 || strcmp(dir + strlen(root) + 1, wanted) != 0)
		fail_msg("%s: %s", id, dir ? dir : "not found");
	mem_free(dir);
}

static void test_ids(void **state)
{
	static const char *const ids[] = {"Qwen/Qwen2.5-0.5B", "gpt2", "a_b/c-d.e", "o/n@main", "o/n@v1.0"};
	static const char *const others[] = {"", "/a", "a/", "a/b/c", "./a", "../a", "~/a", "a b", "a/.b",
	        "-a/b", "a/b.", "o/n@", "a\xc3\xa4", "@x"};

	(void)state;
	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++)
		if (!hub_is_id(ids[i]))
			fail_msg("%s is an id", ids[i]);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (hub_is_id(others[i]))
			fail_msg("%s is not an id", others[i]);
}

static void test_cache(void **state)
{
	char *root = file_join(*state, "home"), *hub = file_join(root, "hub"),
	     *elsewhere = file_join(*state, "cache");
	char *dir = NULL;

	setenv("HF_HOME", root, 1);
	unsetenv("HF_HUB_CACHE");
	unsetenv("HUGGINGFACE_HUB_CACHE");
	check_found(hub, "org/name", HUB_MODEL, NULL);
	make(hub, "models--org--name/refs/main", "abc\n");
	make(hub, "models--org--name/refs/v1", "def");
	check_found(hub, "org/name", HUB_MODEL, NULL); /* named, and its files are not there */
	make(hub, "models--org--name/snapshots/abc/config.json", "{}");
	make(hub, "models--org--name/snapshots/def/config.json", "{}");
	check_found(hub, "org/name", HUB_MODEL, "models--org--name/snapshots/abc");
	check_found(hub, "org/name@v1", HUB_MODEL, "models--org--name/snapshots/def");
	check_found(hub, "org/name@def", HUB_MODEL, "models--org--name/snapshots/def");
	check_found(hub, "org/name", HUB_DATASET, NULL);
	check_found(hub, "org/other", HUB_MODEL, NULL);
	check_fails(hub_cache_find(&dir, "org/name@v2", HUB_MODEL), ERR_INPUT, "abc, def");
	check_fails(hub_cache_find(&dir, "org/name@../../x", HUB_MODEL), ERR_INPUT,
	        "not in the HuggingFace cache");
	make(hub, "models--gpt2/snapshots/123/config.json", "{}"); /* no ref: the only one */
	check_found(hub, "gpt2", HUB_MODEL, "models--gpt2/snapshots/123");
	make(hub, "models--gpt2/snapshots/456/config.json", "{}");
	check_fails(hub_cache_find(&dir, "gpt2", HUB_MODEL), ERR_INPUT, "name one: gpt2@REVISION (123, 456)");
	make(elsewhere, "datasets--o--rows/snapshots/9/rows.jsonl", "");
	setenv("HF_HUB_CACHE", elsewhere, 1); /* goes before HF_HOME */
	check_found(elsewhere, "o/rows", HUB_DATASET, "datasets--o--rows/snapshots/9");
	check_found(elsewhere, "gpt2", HUB_MODEL, NULL);
	mem_free(root);
	mem_free(hub);
	mem_free(elsewhere);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_ids),
	        cmocka_unit_test(test_cache),
	};

	return cmocka_run_group_tests(tests, check_dir_make, check_dir_remove);
}
