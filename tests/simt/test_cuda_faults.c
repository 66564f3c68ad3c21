/* The CUDA device on the fake runtime when any call of CUDA, or any piece of work, fails. */
#include "tests/device_program.h"

#include "tests/simt/cuda_fixture.h"

static int count_call(void *context)
{
	++*(int *)context;
	return 0;
}

static int fail_call(void *context)
{
	(void)context;
	return err_set(ERR_NONFINITE, "the first trouble");
}

static void test_call_fails(void **state)
{
	int count = 0;
	struct op fill;
	struct world w;

	(void)state;
	check_ok(world_open(&w, "cuda", NULL));
	fill = fill_op(w.arena, 64, 7);
	check_ok(stream_call(w.stream[QUEUE_CPU], fail_call, NULL, NULL));
	check_ok(stream_call(w.stream[QUEUE_CPU], count_call, &count, NULL));
	check_ok(event_record(w.event[0], w.stream[QUEUE_CPU]));
	check_ok(stream_wait(w.stream[QUEUE_COMPUTE], w.event[0]));
	check_fails(stream_sync(w.stream[QUEUE_COMPUTE]), ERR_NONFINITE, "cpu stream: the first trouble");
	assert_int_equal(count, 0);
	check_fails(stream_op(w.stream[QUEUE_COMPUTE], &fill), ERR_NONFINITE, "the first trouble");
	check_fails(event_record(w.event[0], w.stream[0]), ERR_NONFINITE, "the first trouble");
	check_fails(stream_wait(w.stream[0], w.event[0]), ERR_NONFINITE, "the first trouble");
	check_fails(event_sync(w.event[0]), ERR_NONFINITE, "the first trouble");
	check_fails(device_sync(w.device), ERR_NONFINITE, "the first trouble");
	assert_int_equal(stats_of(&w).flops, 0);
	world_close(&w);
}

/* A step in small: weights come in and are multiplied, the host counts, gradients return. */
static int step_in_small(struct world *w, int *calls)
{
	struct stream *compute = w->stream[QUEUE_COMPUTE];
	struct op fill = fill_op(dev_at(w->arena, 4096), 4096, 0);
	struct op product = {.kind = OP_MATMUL,
	        .matmul = {.c = dev_at(w->arena, 8192),
	                .a = w->arena,
	                .b = dev_at(w->arena, 4096),
	                .m = 8,
	                .n = 8,
	                .k = 8,
	                .a_stride = 8,
	                .b_stride = 8,
	                .c_stride = 8}};
	static int64_t at_ns[2];
	int rc = stream_stamp(w->stream[QUEUE_H2D], &at_ns[0]);

	if (!rc)
		rc = stream_copy_in(w->stream[QUEUE_H2D], w->arena, w->slab, 4096);
	if (!rc)
		rc = event_record(w->event[0], w->stream[QUEUE_H2D]);
	if (!rc)
		rc = stream_op(compute, &fill);
	if (!rc)
		rc = stream_wait(compute, w->event[0]);
	if (!rc)
		rc = stream_op(compute, &product);
	if (!rc)
		rc = event_record(w->event[1], compute);
	if (!rc)
		rc = stream_wait(w->stream[QUEUE_D2H], w->event[1]);
	if (!rc)
		rc = stream_copy_out(w->stream[QUEUE_D2H], w->slab + 4096, dev_at(w->arena, 8192), 256);
	if (!rc)
		rc = event_record(w->event[0], w->stream[QUEUE_D2H]);
	if (!rc)
		rc = stream_wait(w->stream[QUEUE_CPU], w->event[0]);
	if (!rc)
		rc = stream_call(w->stream[QUEUE_CPU], count_call, calls, NULL);
	if (!rc)
		rc = event_record(w->event[1], w->stream[QUEUE_CPU]);
	if (!rc)
		rc = stream_wait(compute, w->event[1]);
	if (!rc)
		rc = stream_discard(compute, w->arena, 4096);
	return rc ? rc : stream_stamp(compute, &at_ns[1]);
}

enum { STEPS_IN_SMALL = 3 };

/* A whole life: open, steps, close. Returns the first error, which is the same from then on. */
static int life(int *calls)
{
	const struct device_options options = {.poison = 1};
	char text[ERR_TEXT_BYTES];
	struct comm *comm = NULL;
	void *slab = NULL;
	struct world w;
	int rc = world_open_sized(&w, "cuda", &options, 1 << 16);

	if (!rc)
		rc = device_slab_open(w.device, &slab, 1 << 20, SLAB_PINNED);
	if (!rc)
		rc = comm_open(&comm, w.device, 0, 1);
	for (int i = 0; i < STEPS_IN_SMALL && !rc; i++) {
		rc = step_in_small(&w, calls);
		if (!rc)
			rc = device_sync(w.device);
		if (!rc)
			stats_of(&w);
	}
	if (!rc)
		rc = device_sync(w.device);
	if (rc == ERR_DEVICE && w.event[1]) { /* all was open: the device itself has the error */
		snprintf(text, sizeof(text), "%s", err_text());
		check_fails(step_in_small(&w, calls), ERR_DEVICE, text);
		check_fails(device_sync(w.device), ERR_DEVICE, text);
		check_fails(event_sync(w.event[0]), ERR_DEVICE, text);
	}
	comm_close(comm);
	world_close(&w);
	return rc;
}

/* The n-th call of CUDA fails, until there is none of that number. */
static void fail_each_call_of(struct simt_machine_options machine, cudaError_t error, uint64_t seed)
{
	int failed = 0, is_reached = 1, n;

	machine.seed = seed;
	for (n = 1; is_reached && n < 2000; n++) {
		int calls = 0, rc;

		simt_runtime_set(&machine);
		simt_fail_after(n, error);
		rc = life(&calls);
		is_reached = simt_fail_after(0, cudaSuccess) >= n;
		assert_int_equal(simt_runtime_live(), 0);
		assert_true(calls <= STEPS_IN_SMALL);
		if (!rc) { /* it closed by then, or pinned nothing, or had only asked for the time */
			assert_int_equal(calls, STEPS_IN_SMALL);
			continue;
		}
		failed++;
		assert_true(rc == ERR_DEVICE || (rc == ERR_NOMEM && error == cudaErrorMemoryAllocation));
		assert_true(rc == ERR_NOMEM || strstr(err_text(), cudaGetErrorName(error)) != NULL);
		assert_true(rc == ERR_NOMEM || strstr(err_text(), "cuda") != NULL);
	}
	assert_in_range(n, 100, 1999);
	assert_in_range(failed, 80, n);
}

static void fail_each_call(cudaError_t error, uint64_t seed)
{
	fail_each_call_of(simt_runtime_defaults(), error, seed);
}

static void test_each_call_fails(void **state)
{
	struct simt_machine_options bounces = simt_runtime_defaults();

	(void)state;
	bounces.refuses_register = bounces.refuses_alloc = 1;
	fail_each_call_of(bounces, cudaErrorIllegalAddress, 4);
	fail_each_call_of(bounces, cudaErrorMemoryAllocation, 5);
	fail_each_call(cudaErrorIllegalAddress, 0);
	fail_each_call(cudaErrorUnknown, 1);
	fail_each_call(cudaErrorMemoryAllocation, 2);
	fail_each_call(cudaErrorDevicesUnavailable, 3);
}

/* The GPU is lost at the n-th piece of work; whoever syncs next hears of it. */
static void test_gpu_is_lost(void **state)
{
	struct simt_machine_options machine = simt_runtime_defaults();
	int failed = 0, is_reached = 1, n;

	(void)state;
	for (n = 1; is_reached && n < 2000; n++) {
		int calls = 0, rc;

		machine.seed = (uint64_t)n;
		simt_runtime_set(&machine);
		simt_fail_work_after(n, cudaErrorECCUncorrectable);
		rc = life(&calls);
		is_reached = simt_fail_work_after(0, cudaSuccess) >= n;
		assert_int_equal(simt_runtime_live(), 0);
		failed += rc < 0;
		assert_true(!rc || rc == ERR_DEVICE);
		if (rc)
			assert_non_null(strstr(err_text(), "uncorrectable ECC error"));
	}
	assert_in_range(n, 50, 1999);
	assert_in_range(failed, 40, n);
}

static void test_out_of_host_memory(void **state)
{
	int rc = -1, n;

	(void)state;
	for (n = 1; rc && n < 1000; n++) {
		int calls = 0;

		mem_fault_arm(n, MEM_FAULT_ONCE);
		rc = life(&calls);
		mem_fault_arm(0, MEM_FAULT_ONCE);
		assert_true(!rc || rc == ERR_NOMEM);
		assert_int_equal(simt_runtime_live(), 0);
	}
	assert_in_range(n, 10, 999);
}

/* The runtime finds what the device must never do: the tester's own test. */
static void test_tester(void **state)
{
	const void *base;
	int64_t bytes;
	void *at;

	(void)state;
	assert_int_equal(cudaMalloc(&at, 100), cudaSuccess);
	assert_int_equal(simt_runtime_live(), 1);
	assert_true(simt_runtime_find((char *)at + 99, &base, &bytes) && base == at && bytes == 100);
	assert_false(simt_runtime_find((char *)at + 100, &base, &bytes));
	assert_int_equal(cudaMemsetAsync((char *)at + 50, 0, 51, NULL), cudaErrorInvalidValue);
	assert_int_equal(cudaFree(at), cudaSuccess);
	assert_int_equal(simt_fail_after(0, cudaSuccess) > 0, 1);
	simt_fail_after(2, cudaErrorLaunchFailure);
	assert_int_equal(cudaMalloc(&at, 100), cudaSuccess);
	assert_int_equal(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
	assert_int_equal(cudaDeviceSynchronize(), cudaErrorLaunchFailure); /* it sticks */
	cudaFree(at);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CUDA_TEST(test_call_fails),
	        CUDA_TEST(test_each_call_fails),
	        CUDA_TEST(test_gpu_is_lost),
	        CUDA_TEST(test_out_of_host_memory),
	        CUDA_TEST(test_tester),
	};

	setenv("FERRY_MATMUL", "plain", 1); /* a library of the machine would look for a GPU */
	device_register(&backend_cuda);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
