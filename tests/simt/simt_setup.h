/* Setup and teardown of tests of the CUDA device on the fake runtime: a machine as simt_runtime_defaults
 * says, the last warning kept, and nothing of CUDA's left over. */
#ifndef FERRY_TESTS_SIMT_SETUP_H
#define FERRY_TESTS_SIMT_SETUP_H

#include "base/log.h"
#include "base/mem.h"
#include "tests/simt/simt_runtime.h"

#include <stdio.h>

static char last_warning[2048];

static inline void keep_warning(void *context, enum log_level level, const char *line)
{
	(void)context;
	if (level == LOG_WARN)
		snprintf(last_warning, sizeof(last_warning), "%s", line);
}

static inline int setup(void **state)
{
	const struct simt_machine_options options = simt_runtime_defaults();

	(void)state;
	simt_runtime_set(&options);
	log_set_sink(keep_warning, NULL);
	last_warning[0] = 0;
	return 0;
}

/* Nothing of CUDA's is left over, whatever happened. */
static inline int teardown(void **state)
{
	(void)state;
	mem_fault_arm(0, MEM_FAULT_ONCE);
	log_set_sink(NULL, NULL);
	return simt_runtime_live();
}

#endif
