/* Whole runs beside those of other trainers, as a file of tests/golden lists them. */
#ifndef FERRY_TESTS_GOLDEN_RUNS_H
#define FERRY_TESTS_GOLDEN_RUNS_H

#include "tests/golden_reference.h"

static char golden[600];   /* tests/golden */
static const char *device; /* FERRY_TEST_DEVICE, or host */

static inline void golden_runs_begin(const char *name)
{
	const char *source = getenv("FERRY_SOURCE");

	device = getenv("FERRY_TEST_DEVICE") ? getenv("FERRY_TEST_DEVICE") : "host";
	snprintf(golden, sizeof(golden), "%s/tests/golden", source ? source : ".");
	ferry_run_begin(name);
}

/* Trains each of the `count` runs of the file, without offload and with it by turns, and compares it. */
static inline void golden_runs_check(const char *file, size_t count,
        void (*train)(const json_t *run, const char *more), void (*compare)(const json_t *run))
{
	static const char *const more[] = {"cpu_offload=off", "cpu_offload=on vram_budget=off"};
	char path[700];
	json_t *root, *run;
	size_t i;

	snprintf(path, sizeof(path), "%s/%s", golden, file);
	assert_int_equal(json_read_file(&root, path, 1 << 24), 0);
	assert_int_equal(json_array_size(json_object_get(root, "runs")), count);
	json_array_foreach(json_object_get(root, "runs"), i, run)
	{
		train(run, more[i % 2]);
		compare(run);
		assert_trained(run);
	}
	json_decref(root);
}

#endif
