/* A GPU's sensors, read beside work: idle moments, and a sensor that a card lacks. */
#include "tests/check.h"

#include "device/backend.h"
#include "gpu/cuda_probe.h"
#include "gpu/cuda_sensors.h"
#include "tests/simt/cuda_fixture.h"

#include <time.h>

extern const struct backend backend_cuda;

/* The second reading finds the GPU idle, at 210 MHz. The mean is of the others. */
static void test_idle_does_not_count(void **state)
{
	struct cuda_sensors *s = cuda_sensors_open("0000:01:00.0");
	struct device_condition c;

	(void)state;
	assert_non_null(s);
	assert_int_equal(cuda_sensors_read(s, &c), 1);
	assert_true(c.sm_mhz == 1500);
	nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
	assert_int_equal(cuda_sensors_read(s, &c), 1);
	assert_true(c.sm_mhz == 1500);
	assert_true(c.memory_mhz == 2619);
	assert_true(c.watts == 0);
	assert_int_equal(c.slowed, 1 << DEVICE_SLOW_POWER | 1 << DEVICE_SLOW_HEAT);
	cuda_sensors_close(s);
}

static int keep_names(void *context, const struct cuda_probe_row *row)
{
	char *names = context;
	size_t used = strlen(names);

	snprintf(names + used, 2000 - used, "%s ", row->name);
	return 0;
}

/* A probe has no row for a sensor that the card lacks. */
static void test_probe_without_power(void **state)
{
	char names[2000] = "";

	(void)state;
	check_ok(cuda_probe(keep_names, names, 1 << 16, DEVICE_ATTENTION_FERRY));
	assert_non_null(strstr(names, " sm_clock memory_clock temperature "));
	assert_null(strstr(names, " power "));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CUDA_TEST(test_idle_does_not_count),
	        CUDA_TEST(test_probe_without_power),
	};

	device_register(&backend_cuda);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
