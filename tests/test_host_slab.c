/* links: host */
/* Slabs of host memory: exact sizes, and refusals. */
#include "check.h"

#include "host/slab.h"

#include <unistd.h>

/* Mapped kB and flags of the mapping that holds `at`, from /proc/self/smaps. */
static long mapped_kib(const void *at, int *is_huge)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	unsigned long first, end;
	char line[512];
	long kib = -1;
	int inside = 0;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &first, &end) == 2)
			inside = first <= (uintptr_t)at && (uintptr_t)at < end;
		if (inside && strncmp(line, "Size:", 5) == 0)
			kib = atol(line + 5);
		if (inside && strncmp(line, "VmFlags:", 8) == 0)
			*is_huge = strstr(line, " hg") != NULL;
	}
	fclose(f);
	return kib;
}

/* 33 MiB and a byte take 33 MiB and a page: no power of two. The neighbours may be merged into one mapping,
 * so the difference is what counts. */
static void test_exact_size(void **state)
{
	const int64_t bytes = (33 << 20) + 1;
	int is_huge = 0;
	char *base;
	void *at;

	(void)state;
	check_ok(slab_map(&at, bytes, "a slab"));
	base = at;
	for (int64_t i = 0; i < bytes; i += 1 << 20)
		assert_int_equal(base[i], 0);
	base[0] = base[bytes - 1] = 1;
	assert_true(mapped_kib(base, &is_huge) < 64 * 1024);
	assert_true(is_huge || access("/sys/kernel/mm/transparent_hugepage", R_OK) != 0);
	slab_unmap(base, bytes);
	slab_unmap(NULL, 5);
}

static void test_refused(void **state)
{
	void *base = state;

	(void)state;
	check_fails(slab_map(&base, INT64_C(1) << 60, "a plane"), ERR_NOMEM,
	        "a plane of 1152921504606846976 bytes");
	assert_null(base);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_exact_size),
	        cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
