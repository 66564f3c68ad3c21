/* links: host_cpu */
/* also: cuda */
/* The products of adapters: a few columns or a short sum, added to activations of the compute dtype. */
#include "tests/product_case.h"

static const int64_t ranks[] = {1, 3, 8, 64}, tokens[] = {1, 7, 70}, widths[] = {5, 96, 200};
enum { RANKS = 4, TOKENS = 3, WIDTHS = 3 };

/* All sizes in both dtypes. The dtype of an added c is that of activations, or fp32 where a norm follows. */
static void each_size(
        void (*try)(int64_t rank, int64_t count, int64_t width, struct product *p, uint64_t seed))
{
	uint64_t seed = 0;

	for (int r = 0; r < RANKS; r++)
		for (int t = 0; t < TOKENS; t++)
			for (int w = 0; w < WIDTHS; w++)
				for (int d = 0; d < 3; d++, seed++) {
					struct product p = {.ab_dtype = d ? DTYPE_BF16 : DTYPE_F32,
					        .c_dtype = d == 1 ? DTYPE_BF16 : DTYPE_F32,
					        .gaps = (int)(seed & 1)};

					if (seed % (uint64_t)sparing(3) == 0)
						try(ranks[r], tokens[t], widths[w], &p, seed);
				}
}

/* y += inner B^T: k is the rank. */
static void forward(int64_t rank, int64_t count, int64_t width, struct product *p, uint64_t seed)
{
	p->m = count, p->n = width, p->k = rank;
	p->b_layout = MATMUL_TRANSPOSED;
	p->accumulate = 1;
	product_try(p, seed);
}

static void test_forward(void **state)
{
	(void)state;
	each_size(forward);
}

/* dx += inner A */
static void backward_input(int64_t rank, int64_t count, int64_t width, struct product *p, uint64_t seed)
{
	p->m = count, p->n = width, p->k = rank;
	p->accumulate = 1;
	product_try(p, seed);
}

static void test_backward_input(void **state)
{
	(void)state;
	each_size(backward_input);
}

/* x A^T and dy B: n is the rank. */
static void inner(int64_t rank, int64_t count, int64_t width, struct product *p, uint64_t seed)
{
	p->m = count, p->n = rank, p->k = width;
	p->c_dtype = p->ab_dtype;
	p->b_layout = seed % 2 ? MATMUL_TRANSPOSED : MATMUL_NORMAL;
	product_try(p, seed);
}

static void test_inner(void **state)
{
	(void)state;
	each_size(inner);
}

/* Gradients in fp32, of A [rank, width] and of B [width, rank]; written first, then added to. */
static void gradients(int64_t rank, int64_t count, int64_t width, struct product *p, uint64_t seed)
{
	p->m = seed % 2 ? rank : width, p->n = seed % 2 ? width : rank, p->k = count;
	p->a_layout = MATMUL_TRANSPOSED;
	p->c_dtype = DTYPE_F32;
	p->accumulate = (int)(seed / 2 % 2);
	product_try(p, seed);
}

static void test_gradients(void **state)
{
	(void)state;
	each_size(gradients);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_forward),
	        cmocka_unit_test(test_backward_input),
	        cmocka_unit_test(test_inner),
	        cmocka_unit_test(test_gradients),
	};

	return cmocka_run_group_tests(tests, ops_setup, ops_teardown);
}
