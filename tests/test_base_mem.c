/* links: base */
/* Memory: zeroed and aligned blocks, overflow, injected faults, growing strings. */
#include "base/mem.h"
#include "base/size.h"
#include "base/str.h"
#include "tests/check.h"

static int disarm(void **state)
{
	(void)state;
	mem_fault_arm(0, MEM_FAULT_ONCE);
	return 0;
}

static void blocks_are_zeroed(void **state)
{
	unsigned char *block = mem_alloc(1000, 3);

	(void)state;
	for (int i = 0; i < 3000; i++)
		assert_int_equal(block[i], 0);
	mem_free(block);
	mem_free(NULL);
}

static void empty_blocks_are_distinct(void **state)
{
	void *a = mem_alloc(0, 8), *b = mem_alloc(8, 0), *c = mem_alloc_aligned(0, 1, 64);

	(void)state;
	assert_non_null(a);
	assert_non_null(b);
	assert_non_null(c);
	assert_ptr_not_equal(a, b);
	mem_free(a);
	mem_free(b);
	mem_free(c);
}

static void aligned_blocks(void **state)
{
	(void)state;
	for (size_t align = 1; align <= 1 << 16; align *= 2) {
		unsigned char *block = mem_alloc_aligned(3, 77, align);

		assert_non_null(block);
		assert_int_equal((uintptr_t)block % align, 0);
		for (int i = 0; i < 231; i++)
			assert_int_equal(block[i], 0);
		mem_free(block);
	}
}

/* Any length and alignment, with and without bytes that follow later. Bytes beside the target stay unchanged.
 */
static void copies_past_the_cache(void **state)
{
	enum { MOST = 700 };
	unsigned char from[MOST + 80], to[MOST + 160];

	(void)state;
	for (int i = 0; i < MOST + 80; i++)
		from[i] = (unsigned char)(1 + i % 251);
	for (int len = 0; len <= MOST; len += len < 330 ? 1 : 37)
		for (int shift = 0; shift < 64; shift += 1 + len % 9) {
			memset(to, 0, sizeof(to));
			mem_copy_past_cache(to + 64 + shift, from + len % 16, (size_t)len,
			        (size_t)(MOST - len) * (size_t)(shift % 2));
			assert_memory_equal(to + 64 + shift, from + len % 16, (size_t)len);
			assert_int_equal(to[63 + shift], 0);
			assert_int_equal(to[64 + shift + len], 0);
		}
}

static void overflow_is_out_of_memory(void **state)
{
	char *block = mem_alloc(4, 1);

	(void)state;
	memcpy(block, "abc", 4);
	assert_null(mem_alloc(SIZE_MAX / 2, 3));
	assert_non_null(strstr(err_text(), "out of memory"));
	assert_null(mem_alloc(SIZE_MAX, 1));
	assert_null(mem_alloc_aligned(SIZE_MAX / 16 + 1, 16, 64));
	assert_null(mem_resize(block, SIZE_MAX / 4, 8));
	assert_string_equal(block, "abc");
	mem_free(block);
}

static void resize_keeps(void **state)
{
	int *block = mem_resize(NULL, 2, sizeof(*block));

	(void)state;
	block[0] = 5, block[1] = 6;
	block = mem_resize(block, 10000, sizeof(*block));
	assert_int_equal(block[0] + block[1], 11);
	block = mem_resize(block, 1, sizeof(*block));
	assert_int_equal(block[0], 5);
	mem_free(block);
}

static void texts(void **state)
{
	char *a = mem_strdup("héllo"), *b = mem_strndup("abcdef", 3), *c = mem_strndup("ab", 9);
	char *d = mem_printf("%s-%05d", "x", 42);

	(void)state;
	assert_string_equal(a, "héllo");
	assert_string_equal(b, "abc");
	assert_string_equal(c, "ab");
	assert_string_equal(d, "x-00042");
	mem_free(a);
	mem_free(b);
	mem_free(c);
	mem_free(d);
}

static void fault_once(void **state)
{
	void *blocks[4];

	(void)state;
	mem_fault_arm(3, MEM_FAULT_ONCE);
	for (int i = 0; i < 4; i++)
		blocks[i] = mem_alloc(1, 8);
	assert_non_null(blocks[0]);
	assert_non_null(blocks[1]);
	assert_null(blocks[2]);
	assert_non_null(blocks[3]);
	assert_int_equal(mem_fault_arm(0, MEM_FAULT_ONCE), 4);
	for (int i = 0; i < 4; i++)
		mem_free(blocks[i]);
}

static void fault_forever(void **state)
{
	void *first;

	(void)state;
	mem_fault_arm(2, MEM_FAULT_FOREVER);
	first = mem_alloc(1, 1);
	assert_non_null(first);
	assert_null(mem_alloc_aligned(1, 1, 64));
	assert_null(mem_resize(NULL, 1, 1));
	assert_null(mem_strdup("x"));
	assert_null(mem_strndup("x", 1));
	assert_null(mem_printf("x"));
	assert_non_null(strstr(err_text(), "out of memory"));
	assert_int_equal(mem_fault_arm(0, MEM_FAULT_ONCE), 6);
	mem_free(first);
	first = mem_alloc(1, 1);
	assert_non_null(first);
	mem_free(first);
}

static void sizes(void **state)
{
	uint64_t out = 99;

	(void)state;
	check_ok(size_add(&out, UINT64_MAX - 1, 1));
	assert_true(out == UINT64_MAX);
	out = 99;
	check_fails(size_add(&out, UINT64_MAX, 1), ERR_RANGE, "18446744073709551615 + 1");
	check_fails(size_mul(&out, 1ull << 32, 1ull << 32), ERR_RANGE, "4294967296 * 4294967296");
	check_fails(size_align(&out, UINT64_MAX - 6, 8), ERR_RANGE, "rounded up to 8");
	assert_true(out == 99);
	check_ok(size_mul(&out, (1ull << 32) - 1, (1ull << 32) + 1));
	assert_true(out == UINT64_MAX);
	check_ok(size_mul(&out, 0, UINT64_MAX));
	assert_true(out == 0);
	check_ok(size_align(&out, UINT64_MAX - 7, 8));
	assert_true(out == UINT64_MAX - 7);
	for (uint64_t a = 0; a < 70; a++) {
		for (uint64_t align = 1; align <= 64; align *= 2) {
			check_ok(size_align(&out, a, align));
			assert_true(out >= a && out < a + align && out % align == 0);
			assert_int_equal(round_up((int64_t)a, (int64_t)align), out);
		}
		assert_true(round_up((int64_t)a, 12) % 12 == 0);
	}
}

static void strings_grow(void **state)
{
	struct str s = {0};
	char *text;

	(void)state;
	for (int i = 0; i < 1000; i++) {
		str_add(&s, "ab");
		str_add_char(&s, 'c');
		str_printf(&s, "%d", i % 10);
	}
	str_add_bytes(&s, "\0z", 2);
	check_ok(str_check(&s));
	assert_int_equal(s.len_bytes, 4002);
	text = str_take(&s);
	assert_int_equal(s.len_bytes, 0);
	assert_null(s.data);
	for (int i = 0; i < 1000; i++)
		assert_true(!memcmp(text + 4 * i, "abc", 3) && text[4 * i + 3] == '0' + i % 10);
	assert_memory_equal(text + 4000, "\0z", 3);
	mem_free(text);
	text = str_take(&s);
	assert_string_equal(text, "");
	mem_free(text);
	str_add(&s, "");
	assert_string_equal(s.data, "");
	str_free(&s);
	str_free(&s);
	str_free(NULL);
}

static void strings_break_as_a_whole(void **state)
{
	struct str s = {0};

	(void)state;
	str_add(&s, "kept");
	mem_fault_arm(1, MEM_FAULT_ONCE);
	str_printf(&s, "%1000d", 1);
	str_add(&s, "lost too");
	check_fails(str_check(&s), ERR_NOMEM, "out of memory");
	assert_string_equal(s.data, "kept");
	assert_null(str_take(&s));
	check_ok(str_check(&s));
	mem_fault_arm(1, MEM_FAULT_ONCE);
	assert_null(str_take(&s));
	mem_fault_arm(0, MEM_FAULT_ONCE);
	str_free(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(blocks_are_zeroed),
	        cmocka_unit_test(empty_blocks_are_distinct),
	        cmocka_unit_test(aligned_blocks),
	        cmocka_unit_test(copies_past_the_cache),
	        cmocka_unit_test(overflow_is_out_of_memory),
	        cmocka_unit_test(resize_keeps),
	        cmocka_unit_test(texts),
	        cmocka_unit_test_teardown(fault_once, disarm),
	        cmocka_unit_test_teardown(fault_forever, disarm),
	        cmocka_unit_test(sizes),
	        cmocka_unit_test(strings_grow),
	        cmocka_unit_test_teardown(strings_break_as_a_whole, disarm),
	};

	return cmocka_run_group_tests_name("base_mem", tests, NULL, NULL);
}
