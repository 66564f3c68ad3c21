/* The CUDA device on the fake runtime: messages without a GPU, order, times and pinning. */
#include "tests/device_program.h"

#include "gpu/cuda_info.h"
#include "tests/simt/cuda_fixture.h"

#include <math.h>

/* ---- messages ---- */

static void check_refused(const struct simt_machine_options *options, int code, const char *part)
{
	struct device *device;

	simt_runtime_set(options);
	check_fails(device_open(&device, "cuda", NULL), code, part);
	assert_null(device);
	check_ok(device_open(&device, "auto", NULL)); /* the next one does */
	assert_string_equal(device_name(device), "meta");
	device_close(device);
}

static void test_no_gpu(void **state)
{
	struct simt_machine_options o = simt_runtime_defaults();

	(void)state;
	o.driver_version = 0;
	check_refused(&o, ERR_UNSUPPORTED, "no NVIDIA driver (libcuda.so.1) was found");
	assert_string_equal(last_warning, "");
	o.driver_version = 11040;
	check_refused(&o, ERR_UNSUPPORTED, "the NVIDIA driver supports CUDA 11.4, but this build needs 12.0");
	o = simt_runtime_defaults();
	o.device_count = 0;
	setenv("CUDA_VISIBLE_DEVICES", "7", 1);
	check_refused(&o, ERR_UNSUPPORTED, "CUDA_VISIBLE_DEVICES is \"7\"");
	unsetenv("CUDA_VISIBLE_DEVICES");
	check_refused(&o, ERR_UNSUPPORTED,
	        "no NVIDIA GPU that this process may use; run where there is one, or use device=host");
	o = simt_runtime_defaults();
	o.capability = 75;
	check_refused(&o, ERR_UNSUPPORTED,
	        "SIMT emulator has compute capability 7.5, but ferry needs at least 8.0");
	assert_string_equal(last_warning, "");
	o = simt_runtime_defaults();
	o.memory_bytes = 1 << 20; /* too little for the reserve: somebody else has it */
	check_refused(&o, ERR_DEVICE, "cuBLASLt");
	assert_non_null(strstr(last_warning, "device=auto: cuda device: "));
}

static void test_gpu_in_use(void **state)
{
	struct device *device;

	(void)state;
	simt_fail_after(1, cudaErrorStubLibrary);
	check_fails(device_open(&device, "cuda", NULL), ERR_UNSUPPORTED, "is a link-time stub");
	simt_fail_after(3, cudaErrorDevicesUnavailable);
	check_fails(device_open(&device, "cuda", NULL), ERR_DEVICE, "cudaErrorDevicesUnavailable");
}

/* What CUDA's text leaves open is said. */
static void test_hints(void **state)
{
	static const struct {
		cudaError_t error;
		const char *hint;
	} list[] = {
	        {cudaErrorMemoryAllocation, "set vram_budget lower"},
	        {cudaErrorNoKernelImageForDevice, "-DFERRY_CUDA_ARCHITECTURES"},
	        {cudaErrorUnsupportedPtxVersion, "update the driver"},
	        {cudaErrorSystemNotReady, "nvidia-fabricmanager"},
	        {cudaErrorSystemDriverMismatch, "reboot"},
	        {cudaErrorCompatNotSupportedOnDevice, "cuda-compat"},
	};
	struct device *device;

	(void)state;
	for (size_t i = 0; i < sizeof(list) / sizeof(*list); i++) {
		simt_fail_after(3, list[i].error);
		check_fails(device_open(&device, "cuda", NULL), ERR_DEVICE, list[i].hint);
	}
}

/* One rank, one GPU: a rank too many is refused, but where a launcher showed each rank a GPU of its own. */
static void test_more_ranks_than_gpus(void **state)
{
	struct simt_machine_options machine = simt_runtime_defaults();
	struct device_options options = {.index = 1};
	struct device *device;
	int current = -1;

	(void)state;
	unsetenv("CUDA_VISIBLE_DEVICES");
	check_fails(device_open(&device, "cuda", &options), ERR_INPUT, "at most 1 rank on this host");
	machine.device_count = 2;
	simt_runtime_set(&machine);
	check_ok(device_open(&device, "cuda", &options));
	device_close(device);
	cudaGetDevice(&current);
	assert_int_equal(current, 1);
	options.index = 2;
	check_fails(device_open(&device, "cuda", &options), ERR_INPUT, "and 2 are here");
	setenv("CUDA_VISIBLE_DEVICES", "4,5", 1);
	check_fails(device_open(&device, "cuda", &options), ERR_INPUT, "at most 2 ranks on this host");
	machine.device_count = 1;
	machine.name = "NVIDIA A100-SXM4-40GB MIG 1g.5gb";
	simt_runtime_set(&machine);
	setenv("CUDA_VISIBLE_DEVICES", "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f", 1);
	check_ok(device_open(&device, "cuda", &options));
	device_close(device);
	unsetenv("CUDA_VISIBLE_DEVICES");
	check_fails(device_open(&device, "cuda", &options), ERR_INPUT, "a MIG slice counts as one");
}

/* A GPU that nobody compiled for runs what the driver makes of the nearest code, and this is said. */
static void test_architectures(void **state)
{
	struct simt_machine_options machine = simt_runtime_defaults();
	struct device *device;

	(void)state;
	assert_int_equal(cuda_code_for(80, "80;90"), CUDA_CODE_READY);
	assert_int_equal(cuda_code_for(89, "80;90"), CUDA_CODE_READY);
	assert_int_equal(cuda_code_for(90, "80"), CUDA_CODE_COMPILED_BY_DRIVER);
	assert_int_equal(cuda_code_for(120, "80;90"), CUDA_CODE_COMPILED_BY_DRIVER);
	assert_int_equal(cuda_code_for(120, "80;120"), CUDA_CODE_READY);
	assert_int_equal(cuda_code_for(86, "89;90"), CUDA_CODE_NONE);
	assert_int_equal(cuda_code_for(86, ""), CUDA_CODE_NONE);
	assert_int_equal(cuda_code_for(100, "80-real,90-real,120"), CUDA_CODE_NONE);
	assert_int_equal(cuda_code_for(103, "90-real,100-virtual,120-real"), CUDA_CODE_COMPILED_BY_DRIVER);
	assert_int_equal(cuda_code_for(89, "80-real,120"), CUDA_CODE_READY);
	machine.capability = 120;
	simt_runtime_set(&machine);
	check_ok(device_open(&device, "cuda", NULL));
	device_close(device);
	assert_non_null(strstr(last_warning, "the driver compiles them for compute capability 12.0"));
	last_warning[0] = 0;
	machine.capability = 89;
	simt_runtime_set(&machine);
	check_ok(device_open(&device, "cuda", NULL));
	device_close(device);
	assert_string_equal(last_warning, "");
}

/* What another process holds is not free, and an arena that would need it says what to do. */
static void test_memory_taken(void **state)
{
	struct simt_machine_options o = simt_runtime_defaults();
	struct device *device;
	dev_addr arena;

	(void)state;
	o.memory_bytes = 200 << 20;
	simt_runtime_set(&o);
	check_ok(device_open(&device, "cuda", NULL));
	assert_int_equal(device_free_bytes(device), o.memory_bytes);
	o.taken_bytes = 100 << 20; /* it came after the plan was made */
	simt_runtime_set(&o);
	assert_int_equal(device_free_bytes(device), 100 << 20);
	check_fails(device_arena_open(device, &arena, 160 << 20), ERR_NOMEM,
	        "needs 160 MiB of GPU memory in one piece; 68 MiB are free now");
	assert_non_null(strstr(err_text(), "set vram_budget lower"));
	device_close(device);
}

static void test_memory(void **state)
{
	struct simt_machine_options o = simt_runtime_defaults();
	struct device_reserve reserves[DEVICE_RESERVES_MAX];
	struct device_stats stats;
	struct device *device;
	dev_addr arena;

	(void)state;
	o.memory_bytes = 100 << 20;
	simt_runtime_set(&o);
	check_ok(device_open(&device, "cuda", NULL));
	assert_int_equal(device_free_bytes(device), o.memory_bytes);
	device_get_stats(device, &stats);
	assert_true(device_reserve_list(reserves, DEVICE_CUDA, NULL) > 0);
	assert_int_equal(stats.reserve_bytes, reserves[0].bytes);
	check_fails(device_arena_open(device, &arena, 80 << 20), ERR_NOMEM, "80 MiB");
	assert_non_null(strstr(err_text(), "68 MiB are free now: another process may hold some"));
	check_ok(device_arena_open(device, &arena, 68 << 20));
	assert_int_equal(arena.value % 256, 0);
	assert_int_equal(device_free_bytes(device), o.memory_bytes);
	device_close(device);
}

/* ---- order ---- */

/* Whatever stream goes on first, bytes are those of sequential C; and the work is meta's. */
static void test_random_programs(void **state)
{
	struct device_options options = {.check_races = 1};
	struct simt_machine_options machine = simt_runtime_defaults();
	struct device_stats cuda, meta;
	struct world w;

	(void)state;
	for (uint64_t seed = 1; seed <= 12; seed++) {
		machine.seed = 100 * seed;
		machine.schedule = seed % 4 ? SIMT_LAZY : SIMT_EAGER;
		simt_runtime_set(&machine);
		check_ok(world_open(&w, "cuda", &options));
		assert_true(run_program(&w, 1 + seed / 2, -1) > 0);
		cuda = stats_of(&w);
		world_close(&w);
		check_ok(world_open(&w, "meta", &options));
		assert_true(run_program(&w, 1 + seed / 2, -1) > 0);
		meta = stats_of(&w);
		world_close(&w);
		assert_int_equal(cuda.arena_touched_bytes, meta.arena_touched_bytes);
		assert_int_equal(cuda.copied_in_bytes, meta.copied_in_bytes);
		assert_int_equal(cuda.copied_out_bytes, meta.copied_out_bytes);
		assert_true(cuda.flops == meta.flops);
	}
}

/* A wait left out is refused by the race check, or was implied by others: then the bytes are right. */
static void test_missing_waits(void **state)
{
	const struct device_options options = {.check_races = 1};
	int wait_count, found = 0;
	struct world w;

	(void)state;
	check_ok(world_open(&w, "cuda", &options));
	wait_count = run_program(&w, 1, -1);
	world_close(&w);
	for (int skip = 0; skip < wait_count; skip += 29) {
		int rc;

		check_ok(world_open(&w, "cuda", &options));
		rc = run_program(&w, 1, skip);
		world_close(&w);
		assert_true(rc == wait_count || rc == ERR_DEVICE);
		found += rc == ERR_DEVICE;
	}
	assert_in_range(found, 5, wait_count / 29 - 5);
}

/* Without the race check nobody refuses it, and some schedule shows it in the bytes: the fake runtime is as
 * lazy as a GPU may be. */
static void test_lazy_schedules_show_a_race(void **state)
{
	struct simt_machine_options machine = simt_runtime_defaults();
	int shown = 0;

	(void)state;
	for (machine.seed = 1; machine.seed <= 20; machine.seed++) {
		struct op fill;
		struct world w;

		simt_runtime_set(&machine);
		check_ok(world_open(&w, "cuda", NULL));
		fill = fill_op(w.arena, 64, 9);
		memset(w.slab, 0, 64);
		check_ok(stream_copy_in(w.stream[QUEUE_H2D], w.arena, w.slab, 64));
		check_ok(stream_op(w.stream[QUEUE_COMPUTE], &fill)); /* nothing orders the two */
		check_ok(device_sync(w.device));
		check_ok(stream_copy_out(w.stream[QUEUE_D2H], w.slab, w.arena, 64));
		check_ok(device_sync(w.device));
		shown += w.slab[0] != 9;
		world_close(&w);
	}
	assert_in_range(shown, 3, 17);
}

static void test_event_outlives_stream(void **state)
{
	struct op fill;
	struct stream *s;
	struct world w;

	(void)state;
	check_ok(world_open(&w, "cuda", NULL));
	fill = fill_op(w.arena, 64, 7);
	check_ok(stream_wait(w.stream[QUEUE_H2D], w.event[0])); /* never recorded */
	check_ok(event_sync(w.event[0]));
	check_ok(stream_open(&s, w.device, QUEUE_COMM));
	check_ok(stream_op(s, &fill));
	check_ok(event_record(w.event[0], s));
	stream_close(s);
	check_ok(stream_wait(w.stream[QUEUE_COMPUTE], w.event[0]));
	check_ok(event_sync(w.event[0]));
	check_ok(stream_op(w.stream[QUEUE_COMPUTE], &fill));
	check_ok(stream_sync(w.stream[QUEUE_COMPUTE]));
	world_close(&w);
}

static void test_poison(void **state)
{
	const struct device_options options = {.poison = 1};
	struct world w;
	float f;

	(void)state;
	check_ok(world_open(&w, "cuda", &options));
	check_ok(stream_copy_out(w.stream[0], w.slab, w.arena, 64));
	check_ok(stream_sync(w.stream[0]));
	memcpy(&f, w.slab, sizeof(f));
	assert_true(isnan(f) && isnan(bf16_to_f32(0xffff)));
	memset(w.slab, 1, 64);
	check_ok(stream_copy_in(w.stream[0], w.arena, w.slab, 64));
	check_ok(stream_discard(w.stream[0], dev_at(w.arena, 3), 30));
	check_ok(stream_copy_out(w.stream[0], w.slab, w.arena, 64));
	check_ok(stream_sync(w.stream[0]));
	for (int i = 0; i < 64; i++)
		assert_int_equal(w.slab[i], i < 3 || i >= 33 ? 1 : 0xff);
	assert_int_equal(stats_of(&w).arena_touched_bytes, 64);
	world_close(&w);
}

/* ---- times: copies of 1 byte a nanosecond, calls of a microsecond ---- */

static int do_nothing(void *context)
{
	(void)context;
	return 0;
}

static int64_t microseconds(int64_t ns)
{
	return llround((double)ns / 1000);
}

static void test_times(void **state)
{
	struct device_stats before, after;
	int64_t at_ns[4];
	struct world w;

	(void)state;
	check_ok(world_open(&w, "cuda", NULL));
	before = stats_of(&w);
	/* copies of 30 us and 20 us; compute stands for the first, works 8 us, and waits for the second */
	check_ok(stream_stamp(w.stream[QUEUE_H2D], &at_ns[0]));
	check_ok(stream_copy_in(w.stream[QUEUE_H2D], w.arena, w.slab, 30000));
	check_ok(event_record(w.event[0], w.stream[QUEUE_H2D]));
	check_ok(stream_copy_in(w.stream[QUEUE_H2D], dev_at(w.arena, 30000), w.slab, 20000));
	check_ok(event_record(w.event[1], w.stream[QUEUE_H2D]));
	check_ok(stream_wait(w.stream[QUEUE_COMPUTE], w.event[0]));
	check_ok(stream_stamp(w.stream[QUEUE_COMPUTE], &at_ns[1]));
	check_ok(stream_copy_out(w.stream[QUEUE_COMPUTE], w.slab + 50000, w.arena, 8000));
	check_ok(stream_stamp(w.stream[QUEUE_COMPUTE], &at_ns[2]));
	check_ok(stream_wait(w.stream[QUEUE_COMPUTE], w.event[1]));
	check_ok(event_record(w.event[0], w.stream[QUEUE_COMPUTE]));
	/* the cpu queue calls twice after it; compute waits for that too */
	check_ok(stream_wait(w.stream[QUEUE_CPU], w.event[0]));
	for (int i = 0; i < 2; i++)
		check_ok(stream_call(w.stream[QUEUE_CPU], do_nothing, NULL, NULL));
	check_ok(event_record(w.event[1], w.stream[QUEUE_CPU]));
	check_ok(stream_wait(w.stream[QUEUE_COMPUTE], w.event[1]));
	check_ok(stream_stamp(w.stream[QUEUE_COMPUTE], &at_ns[3]));
	check_ok(device_sync(w.device));
	after = stats_of(&w);
	assert_int_equal(microseconds(at_ns[1] - at_ns[0]), 30);
	assert_int_equal(microseconds(at_ns[2] - at_ns[0]), 38);
	assert_int_equal(microseconds(at_ns[3] - at_ns[0]), 52);
	assert_int_equal(microseconds(after.now_ns - before.now_ns), 52);
	assert_int_equal(microseconds(after.busy_ns[QUEUE_H2D]), 50);
	assert_int_equal(microseconds(after.busy_ns[QUEUE_COMPUTE]), 8);
	assert_int_equal(microseconds(after.busy_ns[QUEUE_CPU]), 2);
	assert_int_equal(microseconds(after.busy_ns[QUEUE_D2H]), 0);
	assert_int_equal(microseconds(after.wait_ns[QUEUE_H2D]), 42);
	assert_int_equal(microseconds(after.wait_ns[QUEUE_CPU]), 2);
	assert_int_equal(after.wait_ns[QUEUE_D2H], 0);
	world_close(&w);
}

/* Hours of the device's clock: the steps of a float of milliseconds do not add up. */
static void test_long_runs(void **state)
{
	struct simt_machine_options machine = simt_runtime_defaults();
	int64_t first_ns, at_ns;
	struct world w;

	(void)state;
	machine.copy_bytes_per_ns = 1e-9; /* a byte takes a second */
	simt_runtime_set(&machine);
	check_ok(world_open(&w, "cuda", NULL));
	first_ns = stats_of(&w).now_ns;
	for (int i = 0; i < 100; i++) {
		check_ok(stream_copy_in(w.stream[QUEUE_H2D], w.arena, w.slab, 60));
		check_ok(device_sync(w.device));
		stats_of(&w); /* asks the time, which moves the base */
	}
	check_ok(stream_call(w.stream[QUEUE_H2D], do_nothing, NULL, NULL));
	check_ok(stream_stamp(w.stream[QUEUE_H2D], &at_ns));
	check_ok(device_sync(w.device));
	assert_true(llabs(at_ns - first_ns - 6000000001000) < 10000);
	world_close(&w);
}

/* Marks of a stream that nobody synchronises are read as they are reached, and their events used again. */
static void test_many_waits(void **state)
{
	struct simt_machine_options machine = simt_runtime_defaults();
	struct world w;

	(void)state;
	if (getenv("FERRY_CALLS")) /* a thread does not return from calls as soon as they are queued */
		return;
	machine.schedule = SIMT_EAGER;
	simt_runtime_set(&machine);
	check_ok(world_open(&w, "cuda", NULL));
	for (int i = 0; i < 20000; i++) {
		check_ok(stream_copy_in(w.stream[QUEUE_H2D], w.arena, w.slab, 1000));
		check_ok(event_record(w.event[0], w.stream[QUEUE_H2D]));
		check_ok(stream_wait(w.stream[QUEUE_COMPUTE], w.event[0]));
		check_ok(stream_call(w.stream[QUEUE_COMPUTE], do_nothing, NULL, NULL));
	}
	assert_true(simt_runtime_live() < 3000);
	check_ok(device_sync(w.device));
	assert_int_equal(microseconds(stats_of(&w).busy_ns[QUEUE_H2D]), 20000);
	assert_int_equal(microseconds(stats_of(&w).busy_ns[QUEUE_COMPUTE]), 20000);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CUDA_TEST(test_no_gpu),
	        CUDA_TEST(test_gpu_in_use),
	        CUDA_TEST(test_hints),
	        CUDA_TEST(test_more_ranks_than_gpus),
	        CUDA_TEST(test_architectures),
	        CUDA_TEST(test_memory_taken),
	        CUDA_TEST(test_memory),
	        CUDA_TEST(test_random_programs),
	        CUDA_TEST(test_missing_waits),
	        CUDA_TEST(test_lazy_schedules_show_a_race),
	        CUDA_TEST(test_event_outlives_stream),
	        CUDA_TEST(test_poison),
	        CUDA_TEST(test_times),
	        CUDA_TEST(test_long_runs),
	        CUDA_TEST(test_many_waits),
	};

	setenv("FERRY_MATMUL", "plain", 1); /* a library of the machine would look for a GPU */
	device_register(&backend_cuda);
	device_register(&backend_meta);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
