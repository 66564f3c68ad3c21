/* links: host_cpu */
/* also: tsan */
/* Properties of the host's ops only: they refuse indices and documents out of range, report lack of
 * memory, and share a pool and OpenBLAS. */
#include "base/size.h"
#include "host/cpu/matmul.h"
#include "tests/ops_check.h"

#include <pthread.h>

#define ADDR(p) ((dev_addr){(uint64_t)(uintptr_t)(p)})

static void test_bad_documents(void **state)
{
	static const int32_t bad[][4] = {/* token, start, end */
	        {3, 4, 10}, {3, -1, 10}, {3, 0, 3}, {3, 0, 11}, {3, 2, 10}, {9, 0, 9}};
	int32_t start[10], end[10];
	float x[10] = {0}, out[10], lse[10];
	struct op op = {.kind = OP_ATTENTION};

	(void)state;
	op.attention = (struct op_attention){.out = ADDR(out),
	        .lse = ADDR(lse),
	        .q = ADDR(x),
	        .k = ADDR(x),
	        .v = ADDR(x),
	        .doc_start = ADDR(start),
	        .doc_end = ADDR(end),
	        .tokens = 10,
	        .heads = 1,
	        .kv_heads = 1,
	        .head_dim = 1,
	        .qkv_stride = 1,
	        .q_head_stride = 1,
	        .kv_head_stride = 1,
	        .out_stride = 1,
	        .scale = 1};
	for (size_t n = 0; n < sizeof bad / sizeof *bad; n++) {
		for (int i = 0; i < 10; i++) {
			start[i] = 0;
			end[i] = 10;
		}
		check_ok(cpu_op(&case_contexts[0], &op));
		start[bad[n][0]] = bad[n][1];
		end[bad[n][0]] = bad[n][2];
		check_fails(cpu_op(&case_contexts[0], &op), ERR_RANGE, "attention: token ");
	}
}

static void test_bad_label(void **state)
{
	float logits[6] = {0}, loss[2];
	int32_t label[2] = {0, 3};
	struct op op = {.kind = OP_CROSS_ENTROPY};

	(void)state;
	op.cross_entropy = (struct op_cross_entropy){.loss.value = (uint64_t)(uintptr_t)loss,
	        .logits.value = (uint64_t)(uintptr_t)logits,
	        .label.value = (uint64_t)(uintptr_t)label,
	        .rows = 2,
	        .vocab = 3,
	        .grad_scale = 1};
	check_fails(cpu_op(&case_contexts[0], &op), ERR_RANGE, "cross_entropy: index 3 at position 1");
	label[1] = -100;
	check_fails(cpu_op(&case_contexts[0], &op), ERR_RANGE, "index -100");
}

static void test_bad_position(void **state)
{
	float x[8] = {0}, table[8] = {0};
	int32_t position[2] = {0, 2};
	struct op op = {.kind = OP_ROPE};

	(void)state;
	op.rope = (struct op_rope){.x.value = (uint64_t)(uintptr_t)x,
	        .table.value = (uint64_t)(uintptr_t)table,
	        .position.value = (uint64_t)(uintptr_t)position,
	        .tokens = 2,
	        .heads = 1,
	        .stride = 4,
	        .head_stride = 4,
	        .rotary = 4,
	        .table_rows = 2,
	        .dtype = DTYPE_F32};
	check_fails(cpu_op(&case_contexts[0], &op), ERR_RANGE, "rope: index 2 at position 1");
	position[1] = -1;
	check_fails(cpu_op(&case_contexts[0], &op), ERR_RANGE, "rope: index -1");
	position[1] = 1;
	check_ok(cpu_op(&case_contexts[0], &op));
}

static void test_bad_index(void **state)
{
	float a[6] = {0}, b[6] = {0};
	int32_t index[2] = {0, 3}, scratch[8];
	struct op op = {.kind = OP_GATHER};

	(void)state;
	op.gather = (struct op_gather){.out = ADDR(a),
	        .table = ADDR(b),
	        .index = ADDR(index),
	        .rows = 2,
	        .cols = 2,
	        .table_rows = 3};
	check_fails(
	        cpu_op(&case_contexts[0], &op), ERR_RANGE, "gather: index 3 at position 1 is not in [0, 3)");
	op.kind = OP_SCATTER;
	op.scatter = (struct op_scatter){
	        .out = ADDR(a), .x = ADDR(b), .index = ADDR(index), .rows = 2, .cols = 2, .out_rows = 3};
	check_fails(cpu_op(&case_contexts[0], &op), ERR_RANGE, "scatter: index 3 at position 1");
	op.kind = OP_EMBED_GRAD;
	op.embed_grad = (struct op_embed_grad){.grad = ADDR(a),
	        .dy = ADDR(b),
	        .index = ADDR(index),
	        .scratch = ADDR(scratch),
	        .rows = 2,
	        .cols = 2,
	        .table_rows = 3,
	        .skip_index = -1};
	check_fails(cpu_op(&case_contexts[0], &op), ERR_RANGE, "embed_grad: index 3 at position 1");
	index[1] = -1;
	check_fails(cpu_op(&case_contexts[0], &op), ERR_RANGE, "embed_grad: index -1 at position 1");
}

/* Ops that need scratch say so when there is none, and run once there is. */
static void test_no_memory(void **state)
{
	static float x[64], rstd[8], weight[8];
	struct cpu_context cx = {.pool = case_pools[1]};
	struct op norm = {.kind = OP_RMSNORM}, product = {.kind = OP_MATMUL};

	(void)state;
	norm.norm = (struct op_norm){.y = ADDR(x),
	        .x = ADDR(x),
	        .weight = ADDR(weight),
	        .rstd = ADDR(rstd),
	        .rows = 8,
	        .groups = 1,
	        .cols = 8,
	        .x_stride = 8,
	        .y_stride = 8,
	        .epsilon = 1e-5};
	product.matmul = (struct op_matmul){.c = ADDR(x),
	        .a = ADDR(weight),
	        .b = ADDR(weight),
	        .m = 8,
	        .n = 8,
	        .k = 1,
	        .a_stride = 1,
	        .b_stride = 8,
	        .c_stride = 8,
	        .ab_dtype = DTYPE_F32,
	        .c_dtype = DTYPE_F32};
	mem_fault_arm(1, MEM_FAULT_FOREVER);
	assert_int_equal(cpu_op(&cx, &norm), ERR_NOMEM);
	assert_int_equal(cpu_op(&cx, &product), ERR_NOMEM);
	mem_fault_arm(0, MEM_FAULT_ONCE);
	check_ok(cpu_op(&cx, &norm));
	check_ok(cpu_op(&cx, &product));
	cpu_context_free(&cx);
	cpu_context_free(&cx);
	cpu_context_free(NULL);
}

/* Pieces cover c and k once, sizes are even, and every product of some size has a dozen of them, or some for
 * each worker. Workers do not change how k is cut. */
static void test_tiling(void **state)
{
	struct ops_case c;

	(void)state;
	case_begin(&c, "tiling", 7);
	for (int i = 0; i < 20000; i++) {
		int64_t m = case_int(&c, 1, 5000), n = case_int(&c, 1, 5000), k = case_int(&c, 1, 40000);
		int workers = i % 2 ? (int)case_int(&c, 1, 64) : 0;
		struct matmul_tiling t, alone;

		matmul_tiling(&alone, m, n, k, 0);
		matmul_tiling(&t, m, n, k, workers);
		assert_true(t.m >= 1 && t.m <= 256 && t.n >= 1 && t.n <= (workers ? 1024 : 512) && t.k >= 1);
		assert_true(t.k == alone.k && t.count_k == alone.count_k);
		assert_true((t.count_m - 1) * t.m < m && t.count_m * t.m >= m);
		assert_true((t.count_n - 1) * t.n < n && t.count_n * t.n >= n);
		assert_true((t.count_k - 1) * t.k < k && t.count_k * t.k >= k);
		assert_true(workers || t.count_k == 1 || t.count_m * t.count_n * t.count_k <= 24);
		if (m * n >= 12 * 16384 && k >= 256)
			assert_true(5 * t.count_m * t.count_n * t.count_k >=
			            (workers ? 4 * min_i64(workers, 12) : 45));
	}
}

enum { CALLERS = 4, CALLS = 12, SIDE = 150 };

struct caller {
	pthread_t thread;
	float *c;
	const float *a, *b;
	int rc;
};

static void *caller_main(void *context)
{
	struct caller *caller = context;
	struct cpu_context cx = {.pool = case_pools[2]};
	struct op op = {.kind = OP_MATMUL};

	op.matmul = (struct op_matmul){.c.value = (uint64_t)(uintptr_t)caller->c,
	        .a.value = (uint64_t)(uintptr_t)caller->a,
	        .b.value = (uint64_t)(uintptr_t)caller->b,
	        .m = SIDE,
	        .n = SIDE,
	        .k = SIDE,
	        .a_stride = SIDE,
	        .b_stride = SIDE,
	        .c_stride = SIDE,
	        .ab_dtype = DTYPE_F32,
	        .c_dtype = DTYPE_F32};
	for (int i = 0; i < CALLS && !caller->rc; i++)
		caller->rc = cpu_op(&cx, &op);
	cpu_context_free(&cx);
	return NULL;
}

/* Streams share a pool, and OpenBLAS: products at the same time are the product alone. */
static void test_callers(void **state)
{
	struct caller callers[CALLERS] = {0}, alone = {0};
	float *memory = mem_alloc((CALLERS + 3) * SIDE * SIDE, sizeof *memory);

	(void)state;
	assert_non_null(memory);
	for (int i = 0; i < 2 * SIDE * SIDE; i++)
		memory[i] = (float)rng_uniform(1, 1, (uint64_t)i);
	alone = (struct caller){.a = memory, .b = memory + SIDE * SIDE, .c = memory + 2 * SIDE * SIDE};
	caller_main(&alone);
	for (int i = 0; i < CALLERS; i++) {
		callers[i] = alone;
		callers[i].c = alone.c + (i + 1) * SIDE * SIDE;
		assert_int_equal(pthread_create(&callers[i].thread, NULL, caller_main, &callers[i]), 0);
	}
	for (int i = 0; i < CALLERS; i++) {
		assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
		assert_int_equal(callers[i].rc, 0);
		assert_memory_equal(callers[i].c, alone.c, SIDE * SIDE * sizeof(float));
	}
	mem_free(memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_bad_documents),
	        cmocka_unit_test(test_bad_label),
	        cmocka_unit_test(test_bad_position),
	        cmocka_unit_test(test_bad_index),
	        cmocka_unit_test(test_no_memory),
	        cmocka_unit_test(test_tiling),
	        cmocka_unit_test(test_callers),
	};

	return cmocka_run_group_tests(tests, ops_setup, ops_teardown);
}
