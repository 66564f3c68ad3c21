/* Setup and teardown for tests of the CUDA device on the fake runtime. Setup gives the default machine and
 * keeps the last warning. Teardown fails if an object of CUDA is left. */
#ifndef FERRY_TESTS_SIMT_CUDA_FIXTURE_H
#define FERRY_TESTS_SIMT_CUDA_FIXTURE_H

#include "base/log.h"
#include "base/mem.h"
#include "tests/simt/simt_runtime.h"

#include <stdio.h>

static char last_warning[2048];

static void keep_warning(void *context, enum log_level level, const char *line)
{
	(void)context;
	if (level == LOG_WARN)
		snprintf(last_warning, sizeof(last_warning), "%s", line);
}

static int cuda_setup(void **state)
{
	const struct simt_machine_options options = simt_runtime_defaults();

	(void)state;
	simt_runtime_set(&options);
	log_set_sink(keep_warning, NULL);
	last_warning[0] = 0;
	return 0;
}

static int cuda_teardown(void **state)
{
	(void)state;
	mem_fault_arm(0, MEM_FAULT_ONCE);
	log_set_sink(NULL, NULL);
	return simt_runtime_live();
}

#define CUDA_TEST(name) cmocka_unit_test_setup_teardown(name, cuda_setup, cuda_teardown)

#endif
