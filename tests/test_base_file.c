/* links: base */
/* Files: errors have names, failed calls leave nothing behind, paths are joined. */
#include "base/file.h"
#include "base/mem.h"
#include "tests/check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char *in_dir(void **state, const char *name)
{
	char *path = file_join(*state, name);

	assert_non_null(path);
	return path;
}

static void write_and_read(void **state)
{
	enum { LEN_BYTES = 3 << 20 };
	char *path = in_dir(state, "whole.bin"), *data = malloc(LEN_BYTES), *back = NULL;
	size_t len = 0, count = 0;
	char **names = NULL;

	for (int i = 0; i < LEN_BYTES; i++)
		data[i] = (char)(i * 7 + i / 1000);
	check_ok(file_write_all(path, "old", 3));
	check_ok(file_write_all(path, data, LEN_BYTES));
	check_ok(file_read_all(path, LEN_BYTES, &back, &len));
	assert_int_equal(len, LEN_BYTES);
	assert_memory_equal(back, data, LEN_BYTES);
	assert_int_equal(back[LEN_BYTES], 0);
	mem_free(back);
	check_fails(
	        file_read_all(path, LEN_BYTES - 1, &back, &len), ERR_INPUT, "whole.bin: has 3145728 bytes");
	check_ok(file_write_all(path, NULL, 0));
	check_ok(file_read_all(path, 0, &back, &len));
	assert_int_equal(len, 0);
	assert_string_equal(back, "");
	check_ok(file_list_dir(*state, &names, &count)); /* no temporary is left */
	assert_int_equal(count, 1);
	file_list_free(names, count);
	mem_free(back);
	mem_free(path);
	free(data);
}

/* What a killed writer leaves is removed; files with like names are not. */
static void cleans_parts(void **state)
{
	static const char *const names[] = {"a.json.tmp-12-0", "a.json.tmp-1-33", "a.json", "a.json.tmp-12",
	        "a.json.tmp--0", "a.json.tmp-12-0x", "b.json.tmp-12-0", "a.json.tmp-x-0"};

	for (int i = 0; i < 8; i++) {
		char *path = in_dir(state, names[i]);
		FILE *f = fopen(path, "w");

		assert_non_null(f);
		fclose(f);
		mem_free(path);
	}
	file_clean_parts(*state, names + 2, 1);
	for (int i = 0; i < 8; i++)
		assert_int_equal(file_is_in(*state, names[i]), i > 1);
	file_clean_parts("/absent", names + 2, 1);
}

static void write_fails_whole(void **state)
{
	char *absent = in_dir(state, "absent/x"), *dir = in_dir(state, "a-directory"), **names = NULL;
	size_t count = 0;

	check_fails(file_write_all(absent, "x", 1), ERR_INPUT, "absent/x: cannot create: No such file");
	check_ok(file_make_dir(dir));
	check_fails(file_write_all(dir, "x", 1), ERR_INPUT, "a-directory: cannot replace");
	check_ok(file_list_dir(*state, &names, &count));
	assert_int_equal(count, 1);
	file_list_free(names, count);
	mem_free(absent);
	mem_free(dir);
}

static void only_regular_files_open(void **state)
{
	char *fifo = in_dir(state, "fifo"), *link = in_dir(state, "link"), *loop = in_dir(state, "loop");
	char *plain = in_dir(state, "plain");
	int64_t len = 0;
	int fd;

	check_fails(
	        file_open_read("/no/such/file", NULL), ERR_INPUT, "/no/such/file: cannot open: No such file");
	check_fails(file_open_read(*state, NULL), ERR_INPUT, "is a directory");
	check_fails(file_open_read("/dev/null", NULL), ERR_INPUT, "/dev/null: is a pipe, socket or device");
	assert_int_equal(mkfifo(fifo, 0600), 0);
	check_fails(file_open_read(fifo, NULL), ERR_INPUT, "is a pipe"); /* and did not wait for a writer */
	assert_int_equal(symlink("loop", loop), 0);
	check_fails(file_open_read(loop, NULL), ERR_INPUT, "cannot open");
	check_ok(file_write_all(plain, "12345", 5));
	check_fails(file_open_read("", NULL), ERR_INPUT, "cannot open");
	assert_int_equal(symlink("plain", link), 0);
	fd = file_open_read(link, &len);
	assert_true(fd >= 0);
	assert_int_equal(len, 5);
	close(fd);
	assert_int_equal(file_kind_of(link), FILE_REGULAR);
	assert_int_equal(file_kind_of(fifo), FILE_OTHER);
	assert_int_equal(file_kind_of(*state), FILE_DIR);
	assert_int_equal(file_kind_of(loop), FILE_NONE);
	mem_free(fifo);
	mem_free(link);
	mem_free(loop);
	mem_free(plain);
}

static void read_and_write_at(void **state)
{
	char *path = in_dir(state, "at"), bytes[4] = "";
	int fd = open(path, O_RDWR | O_CREAT, 0600);

	assert_true(fd >= 0);
	check_ok(file_write_at(fd, path, "wxyz", 4, 6));
	check_ok(file_write_at(fd, path, "ab", 2, 0));
	check_ok(file_read_at(fd, path, bytes, 3, 5));
	assert_memory_equal(bytes, "\0wx", 3);
	check_ok(file_read_at(fd, path, bytes, 0, 1000));
	check_fails(file_read_at(fd, path, bytes, 4, 8), ERR_IO, "at: ends at byte 10, 2 bytes short");
	check_ok(file_sync(fd, path));
	close(fd);
	fd = open(path, O_RDONLY);
	check_fails(file_write_at(fd, path, "x", 1, 3), ERR_IO, "at: cannot write 1 bytes at offset 3");
	close(fd);
	check_fails(file_read_at(fd, path, bytes, 1, 3), ERR_IO, "at: cannot read 1 bytes at offset 3");
	check_fails(file_sync(-1, path), ERR_IO, "at: cannot flush to disk");
	mem_free(path);
}

static void full_disk_is_named(void **state)
{
	int fd = open("/dev/full", O_WRONLY);

	(void)state;
	if (fd < 0) {
		print_message("SKIPPED full_disk_is_named: no /dev/full\n");
		skip();
	}
	check_fails(file_write_at(fd, "f", "x", 1, 0), ERR_IO,
	        "f: cannot write 1 bytes at offset 0: No space left");
	close(fd);
}

static void copies(void **state)
{
	char *from = in_dir(state, "from"), *to = in_dir(state, "to"), *back = NULL,
	     *data = calloc(1, 2500001);
	size_t len = 0;

	data[0] = 1, data[2500000] = 2;
	check_ok(file_write_all(from, data, 2500001));
	check_ok(file_copy(from, to));
	check_ok(file_read_all(to, 1 << 22, &back, &len));
	assert_int_equal(len, 2500001);
	assert_memory_equal(back, data, len);
	mem_free(back);
	check_ok(file_write_all(from, "other", 5));
	check_ok(file_copy(from, to)); /* replaces it */
	check_ok(file_read_all(to, 1 << 22, &back, &len));
	assert_string_equal(back, "other");
	mem_free(back);
	check_fails(file_copy(*state, to), ERR_INPUT, "is a directory");
	mem_free(from);
	mem_free(to);
	free(data);
}

static void directories(void **state)
{
	char *deep = in_dir(state, "a//b/c/"), *a = in_dir(state, "a"), *file = in_dir(state, "a/file");
	char *under = in_dir(state, "a/file/x"), *link = in_dir(state, "a/b/up"),
	     *outside = in_dir(state, "kept");
	char **names = NULL;
	size_t count = 0;

	check_ok(file_make_dir(deep));
	check_ok(file_make_dir(deep));
	check_ok(file_make_dir("/"));
	check_fails(file_make_dir(""), ERR_INPUT, "empty path");
	check_ok(file_write_all(file, "x", 1));
	check_fails(file_make_dir(file), ERR_INPUT, "a/file: cannot create the directory");
	check_fails(file_make_dir(under), ERR_INPUT, "cannot create the directory");
	check_ok(file_list_dir(a, &names, &count));
	assert_int_equal(count, 2);
	assert_string_equal(names[0], "b");
	assert_string_equal(names[1], "file");
	file_list_free(names, count);
	check_fails(file_list_dir(file, &names, &count), ERR_INPUT, "a/file: cannot list");
	check_ok(file_make_dir(outside));
	assert_int_equal(symlink("../../kept", link), 0);
	check_ok(file_sync_dir(a));
	check_fails(file_sync_dir(file), ERR_INPUT, "cannot open");
	check_ok(file_remove_tree(a));
	assert_int_equal(file_kind_of(a), FILE_NONE);
	assert_int_equal(file_kind_of(outside), FILE_DIR); /* links are removed, not followed */
	check_ok(file_remove_tree(a));
	check_ok(file_remove_tree(outside));
	check_ok(file_list_dir(*state, &names, &count));
	assert_int_equal(count, 0);
	file_list_free(names, count);
	mem_free(deep);
	mem_free(a);
	mem_free(file);
	mem_free(under);
	mem_free(link);
	mem_free(outside);
}

static void joins(void **state)
{
	static const char *const cases[][3] = {
	        {"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"/", "b", "/b"}, {"", "b", "b"}};

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		char *path = file_join(cases[i][0], cases[i][1]);

		assert_string_equal(path, cases[i][2]);
		mem_free(path);
	}
}

static void list_many(void **state)
{
	char **names = NULL, name[32];
	size_t count = 0;

	for (int i = 0; i < 200; i++) {
		char *path;

		snprintf(name, sizeof(name), "f%03d", (i * 77) % 200);
		path = in_dir(state, name);
		int fd = open(path, O_CREAT | O_WRONLY, 0600);

		assert_true(fd >= 0);
		close(fd);
		mem_free(path);
	}
	check_ok(file_list_dir(*state, &names, &count));
	assert_int_equal(count, 200);
	for (size_t i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "f%03zu", i);
		assert_string_equal(names[i], name);
	}
	file_list_free(names, count);
}

/* Every allocation of every call fails once: the code says so and nothing leaks or is left behind. */
static void out_of_memory(void **state)
{
	char *from = in_dir(state, "from"), *to = in_dir(state, "to"), *dir = in_dir(state, "d/e"), **names,
	     *data;
	size_t count, len;

	check_ok(file_write_all(from, "abc", 3));
	for (int call = 0; call < 5; call++) {
		int err = ERR_NOMEM, turns = 0;

		for (int n = 1; err; n++, turns++) {
			check_ok(file_remove_tree(to));
			mem_fault_arm(n, MEM_FAULT_ONCE);
			switch (call) {
			case 0:
				err = file_read_all(from, 100, &data, &len);
				break;
			case 1:
				err = file_write_all(to, "x", 1);
				break;
			case 2:
				err = file_copy(from, to);
				break;
			case 3:
				err = file_make_dir(dir);
				break;
			default:
				err = file_list_dir(*state, &names, &count);
			}
			mem_fault_arm(0, MEM_FAULT_ONCE);
			if (err) {
				assert_int_equal(err, ERR_NOMEM);
				assert_non_null(strstr(err_text(), "out of memory"));
				if (call == 2 && file_kind_of(to) != FILE_NONE) { /* then it is whole */
					check_ok(file_read_all(to, 100, &data, &len));
					assert_string_equal(data, "abc");
					mem_free(data);
				}
			}
		}
		assert_true(turns > 0);
		if (call == 0)
			mem_free(data);
		if (call == 4)
			file_list_free(names, count);
	}
	mem_free(from);
	mem_free(to);
	mem_free(dir);
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, check_dir_make, check_dir_remove)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        IN_DIR(write_and_read),
	        IN_DIR(cleans_parts),
	        IN_DIR(write_fails_whole),
	        IN_DIR(only_regular_files_open),
	        IN_DIR(read_and_write_at),
	        cmocka_unit_test(full_disk_is_named),
	        IN_DIR(copies),
	        IN_DIR(directories),
	        cmocka_unit_test(joins),
	        IN_DIR(list_many),
	        IN_DIR(out_of_memory),
	};

	return cmocka_run_group_tests_name("base_file", tests, NULL, NULL);
}
