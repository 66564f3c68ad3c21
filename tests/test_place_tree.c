/* links: offload */
/* The lowest free place among those taken for a time is that of a search through all offsets. */
#include "tests/check.h"

#include "offload/place_tree.h"

enum { PLACES = 300, OPS = 60 };

static int64_t by_force(const struct place *list, int count, int64_t base, int64_t bytes, int first, int last)
{
	for (int64_t at = base;; at++) {
		int fits = 1;

		for (int i = 0; i < count && fits; i++)
			fits = list[i].offset >= at + bytes || list[i].end <= at || list[i].first > last ||
			       list[i].last < first;
		if (fits)
			return at;
	}
}

static uint32_t draw(uint32_t *state, uint32_t below)
{
	*state = *state * 1664525u + 1013904223u;
	return (*state >> 8) % below;
}

/* Mixes long and short times, and sizes that leave gaps; ends are rounded up to `align`. */
static void fill(struct place_tree *tree, uint32_t seed, int align)
{
	struct place list[PLACES];
	uint32_t state = seed;

	place_tree_clear(tree);
	for (int i = 0; i < PLACES; i++) {
		int64_t bytes = 1 + draw(&state, i % 3 ? 7 : 23), at;
		int first = (int)draw(&state, OPS), last = first + (int)draw(&state, i % 4 ? 4 : OPS);

		at = place_tree_find(tree, 5, bytes, first, last);
		assert_int_equal(at, by_force(list, i, 5, bytes, first, last));
		list[i] = (struct place){at, at + (bytes + align - 1) / align * align, first, last};
		place_tree_add(tree, &list[i]);
	}
}

static void test_lowest(void **state)
{
	struct place_tree tree;

	(void)state;
	assert_int_equal(place_tree_open(&tree, PLACES), 0);
	for (uint32_t seed = 1; seed <= 200; seed++)
		fill(&tree, seed, seed % 2 ? 1 : 4);
	place_tree_close(&tree);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_lowest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
