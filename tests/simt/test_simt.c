/* The test of the emulator: each sort of bug, planted in a small kernel, is found and named in every order
 * of threads. The same kernel without the bug passes. Results of warps and of matrix fragments are
 * compared with plain C. */
#include "tests/check.h"

#include "base/mem.h"
#include "base/num.h"
#include "tests/simt/planted.h"
#include "tests/simt/simt.h"
#include "tests/simt/simt_runtime.h"

#include <math.h>

enum { ORDERS = 7 };

static float *arena, *in, *out, *host;

static void start_again(void)
{
	struct simt_machine_options o = simt_runtime_defaults();

	simt_runtime_set(&o);
	simt_forget();
}

static int setup(void **state)
{
	(void)state;
	start_again();
	host = mem_alloc(PLANTED_COUNT, sizeof(*host));
	assert_non_null(host);
	assert_int_equal(cudaMalloc((void **)&arena, 4096 * sizeof(float)), cudaSuccess);
	in = arena + 1024;
	out = arena + 2048;
	for (int i = 0; i < PLANTED_COUNT; i++)
		in[i] = host[i] = (float)i;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	cudaFree(arena);
	mem_free(host);
	return 0;
}

static void set_access(void)
{
	const struct simt_access list[] = {
	        {(uint64_t)(uintptr_t)in, PLANTED_COUNT * sizeof(float), 0},
	        {(uint64_t)(uintptr_t)out, PLANTED_COUNT * sizeof(float), 1},
	};

	simt_set_access(list, 2);
}

static const struct {
	const char *name, *text;
} sorts[] = {
#define SORT(name, text) {#name, text},
        PLANTED(SORT)
#undef SORT
};

static void test_planted(void **state)
{
	int wrong = 0;

	(void)state;
	assert_int_equal(simt_has_checks(), 1);
	simt_set_loud(0);
	for (int sort = 0; sort < PLANTED_KINDS; sort++) {
		for (int run = 0; run < 2 * ORDERS; run++) {
			int bug = run % 2;
			cudaError_t error;

			start_again();
			set_access();
			simt_set_order((uint64_t)run / 2);
			check_ok(planted_start((enum planted)sort, bug, out, in, host));
			error = cudaStreamSynchronize(NULL);
			if ((error != cudaSuccess) != bug ||
			        (bug && !strstr(simt_finding(), sorts[sort].text)) ||
			        (bug && !strstr(simt_finding(), sorts[sort].name)) ||
			        (!bug && *simt_finding())) {
				print_error("%s, %s its bug, order %d: %s: \"%s\", wanted \"%s\"\n",
				        sorts[sort].name, bug ? "with" : "without", run / 2,
				        cudaGetErrorName(error), simt_finding(), bug ? sorts[sort].text : "");
				wrong++;
			}
		}
	}
	simt_set_loud(1);
	simt_set_order(0);
	simt_set_access(NULL, -1);
	start_again();
	assert_int_equal(wrong, 0);
}

/* Block, thread, address: all that one needs to look for it. */
static void test_text(void **state)
{
	char address[64];

	(void)state;
	simt_set_loud(0);
	set_access();
	check_ok(planted_start(PLANTED_read_past_end, 1, out, in, host));
	assert_int_equal(cudaStreamSynchronize(NULL), cudaErrorIllegalAddress);
	simt_set_loud(1);
	simt_set_access(NULL, -1);
	assert_non_null(strstr(simt_finding(), "block (1, 0, 0), thread (63, 0, 0)"));
	snprintf(address, sizeof(address), "at %p, 4 bytes past the end of 512 bytes",
	        (void *)(in + PLANTED_COUNT));
	assert_non_null(strstr(simt_finding(), address));
	assert_non_null(strstr(simt_finding(), "addr2line -pie "));
	assert_string_equal(cudaGetErrorString(cudaErrorIllegalAddress), simt_finding());
	start_again();
}

/* What an op writes by a memset, its kernels may read; what was there before it, not. */
static void test_memset(void **state)
{
	(void)state;
	simt_set_loud(0);
	for (int by_op = 0; by_op < 2; by_op++) {
		start_again();
		simt_set_access(NULL, 0);
		check_ok(planted_start(PLANTED_trap, 1, out, in, host)); /* another op */
		assert_int_not_equal(cudaStreamSynchronize(NULL), cudaSuccess);
		start_again();
		if (by_op)
			assert_int_equal(
			        cudaMemsetAsync(out, 0, PLANTED_COUNT * sizeof(float), NULL), cudaSuccess);
		set_access();
		check_ok(planted_start(PLANTED_read_of_output, 1, out, in, host));
		assert_int_equal(cudaStreamSynchronize(NULL) == cudaSuccess, by_op);
	}
	simt_set_loud(1);
	simt_set_access(NULL, -1);
	start_again();
}

static void test_warp(void **state)
{
	(void)state;
	for (uint64_t order = 0; order < ORDERS; order++) {
		simt_set_order(order);
		check_ok(planted_start_warp(out));
		assert_int_equal(cudaStreamSynchronize(NULL), cudaSuccess);
		for (int lane = 0; lane < SIMT_WARP; lane++) {
			int up = lane < 2 ? lane : lane - 2, down = lane % 16 < 14 ? lane + 2 : lane;
			int want = 3 + ((lane & ~7) | 1) + up + down + (int)(1.5 * (31 - lane)) + 11 + 1 +
			           496 + (lane < 30 ? 5 : 2) + (lane < 7 ? 100 : 0) + 9;

			assert_int_equal((int)out[lane], want);
		}
	}
	simt_set_order(0);
}

static void test_fragments(void **state)
{
	uint16_t *a = (uint16_t *)in, *b = a + 16 * 16;

	(void)state;
	for (int i = 0; i < 16 * 16; i++)
		a[i] = bf16_from_f32((float)rng_below(1, 1, (uint64_t)i, 64) - 32);
	for (int i = 0; i < 16 * 8; i++)
		b[i] = bf16_from_f32((float)rng_below(1, 2, (uint64_t)i, 64) - 32);
	for (int load = 0; load < 3; load++) {
		simt_set_order((uint64_t)load);
		check_ok(planted_start_product(out, a, b, (enum fragment_load)load));
		assert_int_equal(cudaStreamSynchronize(NULL), cudaSuccess);
		for (int m = 0; m < 16; m++)
			for (int n = 0; n < 8; n++) {
				float want = 0; /* whole numbers: exact */

				for (int k = 0; k < 16; k++)
					want += bf16_to_f32(a[m * 16 + k]) * bf16_to_f32(b[k * 8 + n]);
				assert_true(out[m * 8 + n] == want);
			}
	}
	simt_set_order(0);
	for (int i = 0; i < 16 * 16; i++)
		a[i] = bf16_from_f32(i % 16 == 0 ? 1 : i % 16 == 1 ? 0x1.8p-24f : 0);
	for (int i = 0; i < 16 * 8; i++)
		b[i] = bf16_from_f32(i % 2 ? -1 : 1);
	check_ok(planted_start_product(out, a, b, LOAD_LDMATRIX));
	assert_int_equal(cudaStreamSynchronize(NULL), cudaSuccess);
	for (int i = 0; i < 16 * 8; i++) /* towards zero: to nearest, it were 1 + 2^-23 */
		assert_true(out[i] == (i % 2 ? -1 : 1));
	for (int i = 0; i < PLANTED_COUNT; i++)
		in[i] = (float)i;
}

/* As far off as a GPU may be, both ways, and no further; exact where a GPU is. */
static void test_inexact(void **state)
{
	int above = 0, below = 0;

	(void)state;
	for (int i = 0; i < PLANTED_COUNT; i++)
		in[i] = (float)(i - 64) / 3;
	check_ok(planted_start_inexact(out, in));
	assert_int_equal(cudaStreamSynchronize(NULL), cudaSuccess);
	for (int i = 0; i < PLANTED_COUNT; i++) {
		double want = i % 2 ? exp((double)in[i]) : exp2((double)in[i]), off = out[i] / want - 1;

		assert_true(fabs(off) <= 0x1.5p-22);
		above += off > 0x1p-24;
		below += off < -0x1p-24;
	}
	assert_true(out[64] == 1);
	assert_true(above > PLANTED_COUNT / 4 && below > PLANTED_COUNT / 4);
	for (int i = 0; i < PLANTED_COUNT; i++)
		in[i] = (float)i;
}

/* What a block may have is the GPU's. */
static void test_shared_limit(void **state)
{
	static const struct {
		int capability, kib;
	} gpus[] = {{80, 163}, {86, 99}, {90, 227}, {120, 99}};
	struct simt_machine_options o = simt_runtime_defaults();
	int bytes;

	(void)state;
	for (size_t i = 0; i < sizeof(gpus) / sizeof(*gpus); i++) {
		o.capability = gpus[i].capability;
		simt_runtime_set(&o);
		assert_int_equal(
		        cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0), 0);
		assert_int_equal(bytes, gpus[i].kib << 10);
		check_ok(planted_start_large(out, bytes, 2));
		assert_int_equal(cudaStreamSynchronize(NULL), cudaSuccess);
		assert_int_not_equal(planted_start_large(out, bytes + 16, 2), 0);
	}
	start_again();
}

static void test_dynamic_limit(void **state)
{
	(void)state;
	assert_int_not_equal(planted_start_large(out, 60 << 10, 0), 0); /* nobody asked for it */
	start_again();
	assert_int_not_equal(planted_start_large(out, 60 << 10, 1), 0); /* without the carve-out */
	start_again();
	check_ok(planted_start_large(out, 60 << 10, 2));
	assert_int_equal(cudaStreamSynchronize(NULL), cudaSuccess);
	assert_int_not_equal(planted_start_large(out, simt_shared_max() + 16, 2), 0);
	start_again();
	check_ok(planted_start_beside(out, 32 << 10, 0)); /* 48 KiB with its array */
	assert_int_equal(cudaStreamSynchronize(NULL), cudaSuccess);
	check_ok(planted_start_beside(out, (32 << 10) + 16, 0));
	assert_int_not_equal(cudaStreamSynchronize(NULL), cudaSuccess);
	start_again();
	check_ok(planted_start_beside(out, (32 << 10) + 16, 2));
	assert_int_equal(cudaStreamSynchronize(NULL), cudaSuccess);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_planted),
	        cmocka_unit_test(test_text),
	        cmocka_unit_test(test_memset),
	        cmocka_unit_test(test_warp),
	        cmocka_unit_test(test_fragments),
	        cmocka_unit_test(test_inexact),
	        cmocka_unit_test(test_dynamic_limit),
	        cmocka_unit_test(test_shared_limit),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
