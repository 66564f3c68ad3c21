/* Runs that follow golden traces: what the tests of embedders and of classifiers share. */
#ifndef FERRY_TESTS_GOLDEN_TRACE_H
#define FERRY_TESTS_GOLDEN_TRACE_H

#include "tests/golden_reference.h"
#include "tests/run_fixture.h"

/* The settings of the golden traces (../shared/golden), but for the objective and the batch. */
#define TRACE_KEYS                                                                                           \
	"shuffle=off compute_dtype=fp32 max_steps=20 learning_rate=1e-3 "                                    \
	"lr_scheduler_type=cosine_with_min_lr min_lr_rate=0.1 warmup_steps=4 adam_beta2=0.95 "               \
	"weight_decay=0.1 max_grad_norm=1"

/* A file of a run's directory; the caller frees it. */
static inline char *file_of(const char *run, const char *name)
{
	char *path = mem_printf("%s/%s/%s", work_dir, run, name), *text = NULL;
	size_t len = 0;

	assert_non_null(path);
	assert_int_equal(file_read_all(path, 1 << 24, &text, &len), 0);
	mem_free(path);
	return text;
}

/* Checks each step's loss and, unless its bound is 0, gradient norm to relative bounds, and that the metric
 * `share` (NULL: none) is between 0 and 1. */
static inline void trace_follow(
        const char *run, const json_t *trace, double loss_bound, double norm_bound, const char *share)
{
	const json_t *losses = json_object_get(trace, "loss"), *norms = json_object_get(trace, "grad_norm");
	size_t steps = json_array_size(losses);
	char what[80];

	assert_true(steps >= 12);
	for (size_t i = 0; i < steps; i++) {
		int64_t step = (int64_t)i + 1;

		snprintf(what, sizeof(what), "%s: loss", run);
		assert_relative(metric_of(run, step, "loss"), number_at(losses, i), loss_bound, what);
		snprintf(what, sizeof(what), "%s: grad_norm", run);
		if (norm_bound)
			assert_relative(
			        metric_of(run, step, "grad_norm"), number_at(norms, i), norm_bound, what);
		if (share)
			assert_true(metric_of(run, step, share) >= 0 && metric_of(run, step, share) <= 1);
	}
}

static inline void trace_check(const char *run, const json_t *trace, const char *share)
{
	trace_follow(run, trace, 1e-5, 1e-5, share);
}

/* Two runs have the same result, byte for byte. */
static inline void same_weights(const char *a, const char *b)
{
	char command[900];

	snprintf(command, sizeof(command), "cmp %s/%s/model/model.safetensors %s/%s/model/model.safetensors",
	        work_dir, a, work_dir, b);
	assert_int_equal(system(command), 0);
}

#endif
