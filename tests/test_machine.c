/* links: placement */
/* Descriptions of machines: they read back as written, with the measured rates. */
#include "check.h"

#include "base/file.h"
#include "base/mem.h"
#include "placement/machine.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

static const struct device_speed gpu = {.matmul_flops_bf16 = 612.3e12,
        .matmul_flops_f32 = 51e12,
        .attention_flops = 333e12,
        .attention_grad_flops = 211e12,
        .copies_beside = 0.5,
        .memory_bytes = 2.71e12,
        .h2d_bytes = 51.3e9,
        .d2h_bytes = 49.9e9,
        .host_memory_bytes = 301e9,
        .host_update_bytes = 188e9,
        .copies_bytes = 77e9,
        .launch_s = 2.125e-6,
        .call_s = 11.5e-6,
        .pin_bytes = 3.5e9};
static const struct device_speed host = {.matmul_flops_bf16 = 151e9,
        .matmul_flops_f32 = 151e9,
        .memory_bytes = 40e9,
        .h2d_bytes = 20e9,
        .d2h_bytes = 20e9,
        .host_memory_bytes = 40e9,
        .host_update_bytes = 31e9,
        .comm_bytes = 20e9,
        .host_computes = 1};

static void assert_same(double a, double b)
{
	assert_true(fabs(a - b) <= 1e-12 * fabs(b));
}

static void assert_same_speed(const struct device_speed *a, const struct device_speed *b)
{
	assert_same(a->matmul_flops_bf16, b->matmul_flops_bf16);
	assert_same(a->matmul_flops_f32, b->matmul_flops_f32);
	assert_same(a->attention_flops, b->attention_flops);
	assert_same(a->attention_grad_flops, b->attention_grad_flops);
	assert_same(a->copies_beside, b->copies_beside);
	assert_same(a->memory_bytes, b->memory_bytes);
	assert_same(a->h2d_bytes, b->h2d_bytes);
	assert_same(a->d2h_bytes, b->d2h_bytes);
	assert_same(a->host_memory_bytes, b->host_memory_bytes);
	assert_same(a->host_update_bytes, b->host_update_bytes);
	assert_same(a->copies_bytes, b->copies_bytes);
	assert_same(a->launch_s, b->launch_s);
	assert_same(a->call_s, b->call_s);
	assert_same(a->pin_bytes, b->pin_bytes);
	assert_int_equal(a->host_computes, b->host_computes);
}

static void test_written_and_read(void **state)
{
	static const struct device_speed *const speeds[] = {&gpu, &host};
	char path[64];

	(void)state;
	snprintf(path, sizeof(path), "/tmp/ferry-test-machine-%d.yaml", (int)getpid());
	for (int i = 0; i < 2; i++) {
		struct machine m = {.name = "it's: #1",
		        .gpu_count = !i,
		        .gpu_memory_bytes = i ? 0 : 85899345920,
		        .host_memory_bytes = 549755813888,
		        .host_reserve_bytes = i ? 0 : (int64_t)4 << 30};
		struct device_speed speed;
		struct machine *read;

		machine_of_speed(&m, speeds[i]);
		check_ok(machine_write(&m, "a test: 'quoted'", path));
		check_ok(machine_read(&read, path));
		assert_string_equal(read->name, m.name);
		assert_int_equal(read->gpu_count, m.gpu_count);
		assert_int_equal(read->gpu_memory_bytes, m.gpu_memory_bytes);
		assert_int_equal(read->host_memory_bytes, m.host_memory_bytes);
		assert_int_equal(read->host_reserve_bytes, m.host_reserve_bytes);
		machine_speed(&speed, read, 1);
		assert_same_speed(&speed, speeds[i]);
		machine_free(read);
	}
	check_fails(
	        machine_write(&(struct machine){.name = "x"}, "", "/none/x.yaml"), ERR_INPUT, "/none/x.yaml");
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_written_and_read)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
