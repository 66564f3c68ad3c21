/* links: base */
/* Reading a file leaves the page cache unchanged. */
#include "base/mem.h"
#include "base/page_cache.h"
#include "tests/check.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/* Pages of a file come into the page cache and leave it; mincore(2) says which are there. */

enum { PAGE = 4096, PAGES = 1000, LEN_BYTES = PAGES * PAGE - 100 };

static unsigned char seen[PAGES];
static char *path;
static int fd;

static int resident(int first, int count)
{
	void *at = mmap(NULL, LEN_BYTES, PROT_READ, MAP_SHARED, fd, 0);
	int found = 0;

	assert_true(at != MAP_FAILED);
	assert_int_equal(mincore(at, LEN_BYTES, seen), 0);
	munmap(at, LEN_BYTES);
	for (int i = first; i < first + count; i++)
		found += seen[i] & 1;
	return found;
}

static void read_pages(int first, int count)
{
	char *to = mem_alloc((size_t)count, PAGE);

	check_ok(file_read_at(fd, path, to,
	        (size_t)(first + count == PAGES ? count * PAGE - 100 : count * PAGE), (int64_t)first * PAGE));
	mem_free(to);
}

/* A file on a disk, none of it cached; 0 where pages do not leave (a file system in memory). */
static int make_cold(void)
{
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	return resident(0, PAGES) == 0;
}

static int make_file(void **state)
{
	char *bytes;

	check_dir_make(state);
	path = file_join(*state, "file");
	bytes = mem_alloc(LEN_BYTES, 1);
	for (int i = 0; i < LEN_BYTES; i++)
		bytes[i] = (char)(i / 3);
	check_ok(file_write_all(path, bytes, LEN_BYTES));
	mem_free(bytes);
	fd = open(path, O_RDONLY);
	posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM); /* pages that nobody read are nobody's */
	return fd < 0;
}

static int remove_file(void **state)
{
	close(fd);
	mem_free(path);
	return check_dir_remove(state);
}

/* The system may take pages at any time, so one of a few tries must be undisturbed. A try ends at the first
 * line that does not hold; only what holds however the system takes pages is asserted. */
#define HOLDS_HERE(condition)                                                                                \
	do {                                                                                                 \
		if (!(condition))                                                                            \
			return __LINE__;                                                                     \
	} while (0)

static struct page_cache *cache;

static void one_try_holds(int (*attempt)(void))
{
	int line = -1;

	if (!make_cold())
		skip();
	for (int i = 0; i < 10 && line; i++) {
		make_cold();
		line = attempt();
		page_cache_close(cache);
		cache = NULL;
	}
	if (line)
		fail_msg("line %d does not hold in any of ten tries", line);
}

static int try_what_was_not_there(void)
{
	check_ok(page_cache_open(&cache, fd, LEN_BYTES));
	assert_int_equal(page_cache_found_bytes(cache, 0, LEN_BYTES), 0);
	read_pages(0, PAGES);
	HOLDS_HERE(resident(0, PAGES) == PAGES);
	page_cache_restore(cache, 0, 100 * PAGE);
	assert_int_equal(resident(0, 100), 0);
	HOLDS_HERE(resident(100, PAGES - 100) == PAGES - 100);
	page_cache_restore(cache, 100 * PAGE + 1, 100 * PAGE - 2); /* its two border pages stay */
	HOLDS_HERE(resident(100, 100) == 2);
	page_cache_restore(cache, 0, LEN_BYTES);
	assert_int_equal(resident(0, PAGES), 0);
	return 0;
}

static void what_was_not_there_leaves(void **state)
{
	(void)state;
	one_try_holds(try_what_was_not_there);
}

static int try_what_was_there(void)
{
	read_pages(0, PAGES);
	check_ok(page_cache_open(&cache, fd, LEN_BYTES));
	HOLDS_HERE(page_cache_found_bytes(cache, 0, LEN_BYTES) == LEN_BYTES);
	page_cache_expect(cache, 0, LEN_BYTES);
	page_cache_restore(cache, 0, LEN_BYTES);
	HOLDS_HERE(resident(0, PAGES) == PAGES);
	return 0;
}

static void what_was_there_stays(void **state)
{
	(void)state;
	one_try_holds(try_what_was_there);
	page_cache_close(NULL);
	page_cache_expect(NULL, 0, 1);
	page_cache_restore(NULL, 0, 1);
}

/* Runs of every length at every place of a word of bits. */
static int try_what_was_there_in_part(void)
{
	unsigned char before[PAGES];
	int at = 0, found;

	for (int run = 1; PAGES > at + 2 * run; at += 2 * run + run % 3, run += run > 12 ? 29 : 1)
		read_pages(at + run, run);
	read_pages(PAGES - 1, 1);
	found = resident(0, PAGES);
	HOLDS_HERE(found > 100 && found < PAGES - 100);
	memcpy(before, seen, sizeof(before));
	check_ok(page_cache_open(&cache, fd, LEN_BYTES));
	HOLDS_HERE(page_cache_found_bytes(cache, 0, LEN_BYTES) == found * PAGE - 100); /* the last one */
	for (int first = 0, sum; first < PAGES - 50; first += 33) {
		sum = 0;
		for (int i = first; i < first + 50; i++)
			sum += (before[i] & 1) * PAGE;
		HOLDS_HERE(page_cache_found_bytes(cache, first * PAGE, 50 * PAGE) == sum);
		sum -= (before[first] & 1) * 10 + (before[first + 49] & 1) * 20;
		HOLDS_HERE(page_cache_found_bytes(cache, first * PAGE + 10, 50 * PAGE - 30) == sum);
	}
	page_cache_expect(cache, 0, LEN_BYTES);
	read_pages(0, PAGES);
	HOLDS_HERE(resident(0, PAGES) == PAGES);
	for (int first = 0; first < PAGES; first += 37)
		page_cache_restore(cache, first * PAGE, (first + 37 < PAGES ? 37 : PAGES - first) * PAGE);
	HOLDS_HERE(resident(0, PAGES) == found);
	HOLDS_HERE(memcmp(before, seen, sizeof(before)) == 0);
	return 0;
}

static void what_was_there_in_part_is_as_it_was(void **state)
{
	(void)state;
	one_try_holds(try_what_was_there_in_part);
}

static void out_of_memory(void **state)
{
	int64_t n = 0;
	int code;

	(void)state;
	make_cold();
	read_pages(10, 10);
	do {
		mem_fault_arm(++n, MEM_FAULT_ONCE);
		code = page_cache_open(&cache, fd, LEN_BYTES);
		mem_fault_arm(0, MEM_FAULT_ONCE);
		if (code)
			check_fails(code, ERR_NOMEM, "out of memory");
		page_cache_close(cache);
		cache = NULL;
	} while (code);
	assert_true(n > 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(what_was_not_there_leaves),
	        cmocka_unit_test(what_was_there_stays),
	        cmocka_unit_test(what_was_there_in_part_is_as_it_was),
	        cmocka_unit_test(out_of_memory),
	};

	return cmocka_run_group_tests_name("base_page_cache", tests, make_file, remove_file);
}
