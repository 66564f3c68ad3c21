/* Which products cuBLASLt computes, what ferry remembers of them, and what happens if it refuses. Numbers
 * are compared only to see who computed them; tests/test_ops_matmul.c checks the numbers. */
#include "tests/check.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/num.h"
#include "device/op.h"
#include "gpu/cuda_matmul.h"
#include "tests/simt/fake_cublaslt.h"
#include "tests/simt/simt_runtime.h"

OP_MATMUL_LIST(CUDA_DECLARE)

enum { ELEMENTS = 64 << 10, OPERANDS = 4, WORKSPACE_BYTES = 8192 };

/* A stream, memory for four operands, and a cuda_blas. */
struct rig {
	struct cuda_launch at;
	unsigned char *memory, *workspace;
	struct fake_cublaslt_stats before;
};

static int warnings;
static char warning[512];

static void keep_warning(void *context, enum log_level level, const char *line)
{
	(void)context;
	if (level != LOG_WARN)
		return;
	warnings++;
	snprintf(warning, sizeof(warning), "%s", line);
}

static void rig_open(struct rig *r)
{
	struct simt_machine_options machine = simt_runtime_defaults();

	*r = (struct rig){.at = {.capability = 90, .sm_count = 2, .shared_bytes_max = 99 << 10}};
	simt_runtime_set(&machine);
	warnings = 0;
	log_set_sink(keep_warning, NULL);
	assert_int_equal(cudaStreamCreateWithFlags(&r->at.stream, cudaStreamNonBlocking), cudaSuccess);
	assert_int_equal(cudaMalloc((void **)&r->memory, OPERANDS * ELEMENTS * 4), cudaSuccess);
	assert_int_equal(cudaMalloc((void **)&r->workspace, WORKSPACE_BYTES), cudaSuccess);
	check_ok(cuda_blas_open(&r->at.blas, r->workspace, WORKSPACE_BYTES));
	fake_cublaslt_get_stats(&r->before);
}

static void rig_close(struct rig *r)
{
	struct fake_cublaslt_stats stats;

	fake_cublaslt_refuse(FAKE_REFUSE_NOTHING, 0);
	cuda_blas_close(r->at.blas);
	fake_cublaslt_get_stats(&stats);
	assert_int_equal(stats.live_count, 0);
	assert_int_equal(stats.finding_count, 0);
	cudaFree(r->memory);
	cudaFree(r->workspace);
	cudaStreamDestroy(r->at.stream);
	assert_int_equal(simt_runtime_live(), 0);
	log_set_sink(NULL, NULL);
}

static dev_addr operand(const struct rig *r, int i, int64_t offset_bytes)
{
	return (dev_addr){
	        (uint64_t)(uintptr_t)(r->memory + (size_t)i * ELEMENTS * 4) + (uint64_t)offset_bytes};
}

static struct op product(const struct rig *r, int64_t m, int64_t n, int64_t k, enum dtype dtype)
{
	struct op op = {.kind = OP_MATMUL,
	        .matmul = {.c = operand(r, 0, 0),
	                .a = operand(r, 1, 0),
	                .b = operand(r, 2, 0),
	                .m = m,
	                .n = n,
	                .k = k,
	                .a_stride = k,
	                .b_stride = n,
	                .c_stride = n,
	                .ab_dtype = dtype,
	                .c_dtype = dtype}};

	check_ok(op_check(&op));
	return op;
}

static int run(const struct rig *r, const struct op *op)
{
	int rc = cuda_matmul(&r->at, &op->matmul);

	assert_int_equal(cudaStreamSynchronize(r->at.stream), cudaSuccess);
	return rc;
}

/* Operands whose sums hang on the order of additions, and what the op leaves in c (F32). */
static void run_filled(struct rig *r, const struct op *op, float *c)
{
	float *a = (float *)(uintptr_t)op->matmul.a.value, *b = (float *)(uintptr_t)op->matmul.b.value;

	for (int64_t i = 0; i < op->matmul.m * op->matmul.k; i++)
		a[i] = 1.0f / (float)(1 + i % 97);
	for (int64_t i = 0; i < op->matmul.k * op->matmul.n; i++)
		b[i] = 1.0f / (float)(1 + i % 89);
	check_ok(run(r, op));
	memcpy(c, (void *)(uintptr_t)op->matmul.c.value, (size_t)(op->matmul.m * op->matmul.n) * 4);
}

static struct cuda_blas_stats stats_of(const struct rig *r)
{
	struct cuda_blas_stats stats;

	cuda_blas_get_stats(r->at.blas, &stats);
	return stats;
}

static int64_t heuristics_of(const struct rig *r)
{
	struct fake_cublaslt_stats stats;

	fake_cublaslt_get_stats(&stats);
	return stats.heuristic_count - r->before.heuristic_count;
}

static uint64_t algorithm(void)
{
	struct fake_cublaslt_stats stats;

	fake_cublaslt_get_stats(&stats);
	return stats.algorithm;
}

/* Products of one sort: the heuristics are asked once, wherever in memory the operands are, as long as they
 * are multiples of 16 bytes; and the bits are the same. */
static void test_remembered(void **state)
{
	static const int64_t moves[] = {0, 16, 48, 256, 1040};
	float first[12 * 20], c[12 * 20];
	struct rig r;

	(void)state;
	rig_open(&r);
	for (size_t i = 0; i < sizeof(moves) / sizeof(*moves); i++) {
		struct op op = product(&r, 12, 20, 300, DTYPE_F32);
		uint64_t before = algorithm();

		op.matmul.a = operand(&r, 1, moves[i]);
		op.matmul.b = operand(&r, 2, moves[i]);
		op.matmul.c = operand(&r, 0, moves[i]);
		run_filled(&r, &op, i ? c : first);
		assert_true(!i || before == algorithm());
		assert_true(!i || !memcmp(first, c, sizeof(c)));
	}
	assert_int_equal(heuristics_of(&r), 1);
	assert_int_equal(stats_of(&r).sort_count, 1);
	assert_int_equal(stats_of(&r).library_count, 5);
	assert_int_equal(stats_of(&r).plain_count, 0);
	rig_close(&r);
}

/* What differs in anything an algorithm may depend on is another sort: also an operand that is aligned less,
 * whichever it is. (The fake has a finding where less was promised than is so.) */
static void test_sorts(void **state)
{
	struct rig r;
	struct op op;

	(void)state;
	rig_open(&r);
	for (int wanted = 1; wanted <= 13; wanted++) {
		op = product(&r, 8, 8, 8, wanted == 12 ? DTYPE_F32 : DTYPE_BF16);
		op.matmul.bias =
		        wanted >= 9 && wanted <= 10 ? operand(&r, 3, wanted == 10 ? 2 : 0) : DEV_NONE;
		if (wanted == 2)
			op.matmul.a = operand(&r, 1, 2);
		if (wanted == 3)
			op.matmul.b = operand(&r, 2, 8);
		if (wanted == 4)
			op.matmul.c = operand(&r, 0, 4);
		if (wanted == 5)
			op.matmul.a_layout = MATMUL_TRANSPOSED;
		if (wanted == 6)
			op.matmul.b_layout = MATMUL_TRANSPOSED;
		if (wanted == 7)
			op.matmul.c_stride = 16;
		if (wanted == 8)
			op.matmul.c_dtype = DTYPE_F32;
		if (wanted == 11)
			op.matmul.c_dtype = DTYPE_F32, op.matmul.accumulate = 1;
		if (wanted == 13)
			op.matmul.accumulate = 1;
		for (int again = 0; again < 2; again++) {
			check_ok(run(&r, &op));
			assert_int_equal(stats_of(&r).sort_count, wanted);
			assert_int_equal(heuristics_of(&r), wanted);
		}
	}
	rig_close(&r);
}

static void test_many_sorts(void **state)
{
	enum { SORTS = 300 };
	struct rig r;

	(void)state;
	rig_open(&r);
	for (int pass = 0; pass < 2; pass++)
		for (int i = 0; i < SORTS; i++) {
			struct op op = product(&r, 1 + i % 20, 1 + i / 20, 3, DTYPE_BF16);

			check_ok(run(&r, &op));
			assert_int_equal(heuristics_of(&r), pass ? SORTS : i + 1);
		}
	assert_int_equal(stats_of(&r).sort_count, SORTS);
	rig_close(&r);
}

/* A bias of bf16 on an fp32 c is no epilogue: a kernel adds it. */
static void test_bias(void **state)
{
	struct rig r;
	struct op op;
	const float *c;
	uint16_t *bias;

	(void)state;
	rig_open(&r);
	memset(r.memory, 0, OPERANDS * ELEMENTS * 4);
	op = product(&r, 40, 300, 8, DTYPE_BF16);
	op.matmul.c_dtype = DTYPE_F32;
	op.matmul.c_stride = 301;
	op.matmul.bias = operand(&r, 3, 2);
	bias = (uint16_t *)(uintptr_t)op.matmul.bias.value;
	c = (const float *)(uintptr_t)op.matmul.c.value;
	for (int j = 0; j < 300; j++)
		bias[j] = (uint16_t)(0x3f80 + (j & 3)); /* 1 and a little */
	check_ok(run(&r, &op));
	assert_int_equal(stats_of(&r).library_count, 1);
	for (int i = 0; i < 40; i++)
		for (int j = 0; j < 300; j++)
			assert_true(c[i * 301 + j] == 1 + (float)(j & 3) / 128);
	rig_close(&r);
}

/* Adding to a c of bf16, as adapters do: by the library and by our kernel, the sum is rounded once. */
static void test_added(void **state)
{
	(void)state;
	for (int is_plain = 0; is_plain < 2; is_plain++) {
		struct rig r;
		struct op op;
		uint16_t *a, *b, *c;

		rig_open(&r);
		op = product(&r, 5, 9, 3, DTYPE_BF16);
		op.matmul.accumulate = 1;
		a = (uint16_t *)(uintptr_t)op.matmul.a.value;
		b = (uint16_t *)(uintptr_t)op.matmul.b.value;
		c = (uint16_t *)(uintptr_t)op.matmul.c.value;
		for (int i = 0; i < 5 * 3; i++)
			a[i] = bf16_from_f32(0x1p-5f);
		for (int i = 0; i < 3 * 9; i++)
			b[i] = bf16_from_f32(0x1p-4f);
		for (int i = 0; i < 5 * 9; i++)
			c[i] = bf16_from_f32(1 + (float)(i % 3));
		fake_cublaslt_refuse(is_plain ? FAKE_REFUSE_HEURISTIC : FAKE_REFUSE_NOTHING, 1);
		check_ok(run(&r, &op));
		fake_cublaslt_refuse(FAKE_REFUSE_NOTHING, 0);
		assert_int_equal(stats_of(&r).plain_count, is_plain);
		/* 3 x 2^-9 is less than half an ulp of 2 and 3, and more than half of one of 1, which is
		 * 2^-7: each of the terms alone is lost */
		for (int i = 0; i < 5 * 9; i++)
			assert_true(bf16_to_f32(c[i]) == (i % 3 ? 1 + (float)(i % 3) : 1 + 0x1p-7f));
		rig_close(&r);
	}
}

/* What cuBLASLt refuses, when it is asked or when it should run, our kernel does from then on. */
static void test_refused(void **state)
{
	static const enum fake_refusal refusals[] = {FAKE_REFUSE_HEURISTIC, FAKE_REFUSE_MATMUL};

	(void)state;
	for (int i = 0; i < 2; i++) {
		float by_library[9 * 33], by_kernel[9 * 33], again[9 * 33];
		struct rig r;
		struct op op;

		rig_open(&r);
		op = product(&r, 9, 33, 200, DTYPE_F32);
		run_filled(&r, &op, by_library);
		op.matmul.accumulate = 0;
		op.matmul.b = operand(&r, 2, 4); /* another sort */
		fake_cublaslt_refuse(refusals[i], 1);
		run_filled(&r, &op, by_kernel);
		fake_cublaslt_refuse(FAKE_REFUSE_NOTHING, 0);
		run_filled(&r, &op, again);
		assert_int_equal(stats_of(&r).library_count, 1);
		assert_int_equal(stats_of(&r).plain_count, 2);
		assert_int_equal(warnings, 1);
		assert_non_null(strstr(warning, "m=9 n=33 k=200"));
		assert_non_null(strstr(warning, "ferry's own kernel")); /* as bench/gpu_check.sh looks for */
		assert_memory_equal(by_kernel, again, sizeof(again));
		for (int e = 0; e < 9 * 33; e++)
			assert_true(
			        by_library[e] - by_kernel[e] < 1e-4f && by_kernel[e] - by_library[e] < 1e-4f);
		rig_close(&r);
	}
}

static void test_failure(void **state)
{
	struct rig r;
	struct op op;

	(void)state;
	rig_open(&r);
	op = product(&r, 4, 4, 4, DTYPE_F32);
	fake_cublaslt_refuse(FAKE_FAIL_MATMUL, 1);
	check_fails(run(&r, &op), ERR_DEVICE, "cublasLtMatmul");
	assert_int_equal(stats_of(&r).plain_count, 0);
	rig_close(&r);
}

/* A library that finds no memory to load is no library that is missing: the run ends, and says why. */
static void test_no_memory(void **state)
{
	struct cuda_blas *blas;
	struct rig r;
	struct op op;

	(void)state;
	rig_open(&r);
	op = product(&r, 4, 4, 4, DTYPE_F32);
	fake_cublaslt_refuse(FAKE_NO_MEMORY_MATMUL, 1);
	check_fails(run(&r, &op), ERR_NOMEM, "no GPU memory to load cuBLASLt's kernels");
	assert_int_equal(stats_of(&r).plain_count, 0);
	fake_cublaslt_refuse(FAKE_NO_MEMORY_CREATE, 1);
	check_fails(cuda_blas_open(&blas, NULL, 0), ERR_NOMEM, "no memory to load cuBLASLt");
	assert_int_equal(warnings, 0);
	rig_close(&r);
}

/* Without cuBLASLt, or with FERRY_MATMUL=plain, which says nothing. */
static void test_absent(void **state)
{
	float c[4 * 4];
	struct rig r;
	struct op op;

	(void)state;
	fake_cublaslt_refuse(FAKE_REFUSE_CREATE, 1);
	for (int wish = 0; wish < 2; wish++) {
		if (wish)
			setenv("FERRY_MATMUL", "plain", 1);
		rig_open(&r);
		op = product(&r, 4, 4, 100, DTYPE_F32);
		run_filled(&r, &op, c);
		assert_int_equal(stats_of(&r).plain_count, 1);
		assert_int_equal(stats_of(&r).library_count, 0);
		assert_int_equal(heuristics_of(&r), 0);
		assert_int_equal(warnings, !wish);
		assert_true(wish || strstr(warning, "cublasLtCreate"));
		rig_close(&r);
		fake_cublaslt_refuse(FAKE_REFUSE_CREATE, 1);
	}
	fake_cublaslt_refuse(FAKE_REFUSE_NOTHING, 0);
	unsetenv("FERRY_MATMUL");
}

/* Without a workspace only algorithms that need none are chosen (the fake has a finding otherwise). */
static void test_no_workspace(void **state)
{
	float c[4 * 4];
	struct rig r;
	struct op op;

	(void)state;
	rig_open(&r);
	cuda_blas_close(r.at.blas);
	check_ok(cuda_blas_open(&r.at.blas, NULL, 0));
	op = product(&r, 4, 4, 300, DTYPE_F32);
	run_filled(&r, &op, c);
	assert_int_equal(stats_of(&r).library_count, 1);
	rig_close(&r);
}

static void test_out_of_memory(void **state)
{
	struct rig r;
	struct op op;
	int64_t after = 0;
	int rc = ERR_NOMEM;

	(void)state;
	rig_open(&r);
	cuda_blas_close(r.at.blas);
	r.at.blas = NULL;
	op = product(&r, 4, 4, 4, DTYPE_F32);
	while (rc == ERR_NOMEM) {
		cuda_blas_close(r.at.blas);
		r.at.blas = NULL;
		assert_true(++after < 20);
		mem_fault_arm(after, MEM_FAULT_ONCE);
		rc = cuda_blas_open(&r.at.blas, r.workspace, WORKSPACE_BYTES);
		if (!rc)
			rc = run(&r, &op);
		mem_fault_arm(0, MEM_FAULT_ONCE);
	}
	check_ok(rc);
	assert_true(after >= 2);
	rig_close(&r);
	cuda_blas_close(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_remembered),
	        cmocka_unit_test(test_sorts),
	        cmocka_unit_test(test_many_sorts),
	        cmocka_unit_test(test_bias),
	        cmocka_unit_test(test_added),
	        cmocka_unit_test(test_refused),
	        cmocka_unit_test(test_failure),
	        cmocka_unit_test(test_no_memory),
	        cmocka_unit_test(test_absent),
	        cmocka_unit_test(test_no_workspace),
	        cmocka_unit_test(test_out_of_memory),
	};

	unsetenv("FERRY_MATMUL");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
