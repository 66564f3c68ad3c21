/* links: host_cpu */
/* Scratch memory of the host device's operations, outside the arena, never exceeds the amount in plans. */
#include "tests/check.h"
#include "tests/sparing.h"

#include "base/mem.h"
#include "device/op.h"
#include "host/cpu/cpu.h"
#include "host/op_scratch.h"

#include <string.h>

/* Bytes of scratch after one operation with the tensors `data`. */
static int64_t taken(struct pool *pool, const struct op *op)
{
	struct cpu_context cx = {.pool = pool};
	int64_t bytes;

	assert_int_equal(cpu_op(&cx, op), 0);
	bytes = cx.scratch_bytes;
	cpu_context_free(&cx);
	return bytes;
}

static dev_addr at(void *data)
{
	return (dev_addr){(uintptr_t)data};
}

/* Fields that attention and its gradient share. */
#define SHAPE                                                                                                \
	.q = at(data), .k = at(data), .v = at(data), .sink = DEV_NONE, .doc_start = at(start),               \
	.doc_end = at(end), .tokens = tokens, .heads = 8, .kv_heads = 4, .head_dim = 64,                     \
	.qkv_stride = stride, .q_head_stride = 64, .kv_head_stride = 64, .out_stride = stride, .scale = 1,   \
	.window = 16, .dtype = dtype

/* q, k, v, out and their gradients lie on each other: zeros stay zeros. */
static void attention(struct pool *pool, int workers, int64_t tokens, enum dtype dtype)
{
	const struct scratch_shape shape = {
	        .tokens = tokens, .kv_heads = 4, .head_dim = 64, .is_bf16 = dtype == DTYPE_BF16};
	int64_t stride = 16 * 64, most = scratch_bytes_most(&shape, workers), forward, backward;
	float *data = mem_alloc((size_t)(tokens * stride), sizeof(*data));
	float *other = mem_alloc((size_t)(tokens * stride), sizeof(*other));
	int32_t *start = mem_alloc((size_t)tokens, sizeof(*start)),
	        *end = mem_alloc((size_t)tokens, sizeof(*end));
	struct op op = {.kind = OP_ATTENTION};

	assert_true(data && other && start && end);
	memset(data, 0, (size_t)(tokens * stride) * sizeof(*data));
	memset(other, 0, (size_t)(tokens * stride) * sizeof(*other));
	for (int64_t t = 0; t < tokens; t++) {
		start[t] = 0;
		end[t] = (int32_t)tokens;
	}
	op.attention = (struct op_attention){.out = at(other), .lse = at(other), SHAPE};
	op.attention.lse = DEV_NONE;
	forward = taken(pool, &op);
	memset(other, 0, (size_t)(tokens * stride) * sizeof(*other));
	op.kind = OP_ATTENTION_GRAD;
	op.attention_grad = (struct op_attention_grad){.dq = at(other),
	        .dk = at(other),
	        .dv = at(other),
	        .dsink = DEV_NONE,
	        .dout = at(data),
	        .out = at(data),
	        .lse = at(data),
	        .scratch = at(data),
	        SHAPE};
	backward = taken(pool, &op);
	print_message("%d workers, %lld tokens, %s: %lld and %lld of %lld bytes\n", workers,
	        (long long)tokens, dtype_name(dtype), (long long)forward, (long long)backward,
	        (long long)most);
	assert_true(forward > 0 && forward <= most && backward > 0 && backward <= most);
	mem_free(data);
	mem_free(other);
	mem_free(start);
	mem_free(end);
}

static void test_attention(void **state)
{
	(void)state;
	for (int workers = 1; workers <= 4; workers *= SANITIZED ? 4 : 2) {
		struct pool *pool;

		assert_int_equal(pool_open(&pool, workers), 0);
		for (enum dtype dtype = 0; dtype < 2; dtype++) {
			attention(pool, workers, 200, dtype ? DTYPE_BF16 : DTYPE_F32);
			if (!SANITIZED)
				attention(pool, workers, 5000, dtype ? DTYPE_BF16 : DTYPE_F32);
		}
		/* beyond one pass */
		if (!SANITIZED)
			attention(pool, workers, ATTENTION_ONE_PASS_COUNT / 64 + 1, DTYPE_BF16);
		pool_close(pool);
	}
}

/* Includes narrow products with a long k, which is cut. */
static void test_products(void **state)
{
	static const int64_t shapes[][3] = {{256, 512, 64}, {16, 48, 20000}, {300, 260, 4200},
	        {700, 500, 4096}, {1, 3000, 4096}, {257, 513, 4097}};
	const struct scratch_shape shape = {.tokens = 1, .kv_heads = 1, .head_dim = 64};
	float *data = mem_alloc(16 << 20, sizeof(*data));

	(void)state;
	assert_non_null(data);
	memset(data, 0, (size_t)(16 << 20) * sizeof(*data));
	for (int workers = 1; workers <= 3; workers += 2) {
		struct pool *pool;
		int64_t most = scratch_bytes_most(&shape, workers);

		assert_int_equal(pool_open(&pool, workers), 0);
		for (size_t i = 0; i < 4 * sizeof(shapes) / sizeof(*shapes); i += (size_t)sparing(5)) {
			const int64_t *s = shapes[i / 4];
			struct op op = {.kind = OP_MATMUL};
			int64_t bytes;

			op.matmul = (struct op_matmul){.c = at(data),
			        .a = at(data + (4 << 20)),
			        .b = at(data + (4 << 20)),
			        .bias = DEV_NONE,
			        .m = s[0],
			        .n = s[1],
			        .k = s[2],
			        .c_stride = s[1],
			        .a_layout = i % 4 / 2 ? MATMUL_TRANSPOSED : MATMUL_NORMAL,
			        .a_stride = i % 4 / 2 ? s[0] : s[2],
			        .b_layout = MATMUL_NORMAL,
			        .b_stride = s[1],
			        .ab_dtype = i % 2 ? DTYPE_BF16 : DTYPE_F32,
			        .c_dtype = DTYPE_F32};
			bytes = taken(pool, &op);
			if (bytes > most)
				fail_msg("%lld x %lld x %lld: %lld of %lld bytes", (long long)s[0],
				        (long long)s[1], (long long)s[2], (long long)bytes, (long long)most);
		}
		pool_close(pool);
	}
	mem_free(data);
}

/* The gradient of the gated delta rule takes what its counts say, which is all that is planned for it where
 * the rest is small. */
static void test_delta(void **state)
{
	enum { TOKENS = 130, HEADS = 3, KEY = 384, VALUE = 500, WORKERS = 40 };
	const struct scratch_shape shape = {.tokens = TOKENS,
	        .kv_heads = 1,
	        .head_dim = 8,
	        .delta_key_dim = KEY,
	        .delta_value_dim = VALUE};
	int64_t stride = HEADS * (2 * KEY + VALUE), each, bytes;
	float *data = mem_alloc((size_t)(TOKENS * stride), sizeof(*data)),
	      *scratch = mem_alloc((size_t)delta_scratch_count(TOKENS, HEADS, KEY, VALUE), sizeof(*scratch)),
	      *out = mem_alloc((size_t)(TOKENS * stride), sizeof(*out));
	int32_t start[TOKENS];
	struct op op = {.kind = OP_DELTA_GRAD};

	(void)state;
	assert_true(data && scratch && out);
	memset(data, 0, (size_t)(TOKENS * stride) * sizeof(*data));
	memset(out, 0, (size_t)(TOKENS * stride) * sizeof(*out));
	for (int t = 0; t < TOKENS; t++)
		start[t] = t < 100 ? 0 : 100;
	op.delta_grad = (struct op_delta_grad){.dq = at(out),
	        .dk = at(out),
	        .dv = at(out),
	        .da = at(out),
	        .db = at(out),
	        .ddecay = at(out),
	        .ddt_bias = at(out),
	        .dout = at(data),
	        .q = at(data),
	        .k = at(data),
	        .v = at(data),
	        .a = at(data),
	        .b = at(data),
	        .decay = at(data),
	        .dt_bias = at(data),
	        .doc_start = at(start),
	        .scratch = at(scratch),
	        .tokens = TOKENS,
	        .key_heads = HEADS,
	        .value_heads = HEADS,
	        .key_dim = KEY,
	        .value_dim = VALUE,
	        .qkv_stride = stride,
	        .gate_stride = HEADS,
	        .out_stride = HEADS * VALUE,
	        .scale = 1,
	        .epsilon = 1e-6,
	        .dtype = DTYPE_F32};
	for (int workers = 1; workers <= 2; workers++) {
		struct pool *pool;

		assert_int_equal(pool_open(&pool, workers), 0);
		bytes = taken(pool, &op);
		pool_close(pool);
		each = 4 * (scratch_delta_count(KEY, VALUE) + scratch_delta_back_count(KEY, VALUE));
		assert_true(bytes >= each * workers && bytes <= scratch_bytes_most(&shape, workers));
		assert_int_equal(scratch_bytes_most(&shape, WORKERS), each * WORKERS);
	}
	mem_free(data);
	mem_free(scratch);
	mem_free(out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_attention), cmocka_unit_test(test_products),
	        cmocka_unit_test(test_delta)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
