/* Shared by the files of the fake runtime. */
#ifndef FERRY_TESTS_SIMT_SIMT_RUNTIME_PARTS_H
#define FERRY_TESTS_SIMT_SIMT_RUNTIME_PARTS_H

#include "tests/simt/simt.h"
#include "tests/simt/simt_runtime.h"

struct simt_runtime {
	struct simt_machine_options options;
	cudaError_t last, sticky;
	int64_t call_count, fail_at; /* fail_at 0: never */
	cudaError_t fail_with;
	int64_t work_count, fail_work_at;
	cudaError_t fail_work_with;
	int64_t host_ns; /* the virtual time of the caller */
	int64_t memory_bytes, pinned_bytes, malloc_count;
	int has_started, connections; /* the environment at the first call */
	int64_t blocked_ns;           /* with calls_block: when the last host function returned */
	int calls_waiting;            /* host functions that were queued and have not run */
	int live_count, current;      /* the device that was set */
};
extern struct simt_runtime simt_runtime;

/* Begins a call: cudaSuccess, or the error to return at once. */
cudaError_t simt_enter(void);

/* Ends a call; remembers the error. */
cudaError_t simt_leave(cudaError_t error);

/* From now on, every call returns this error. */
void simt_break(cudaError_t error);

/* Runs all that was queued, in all streams. */
cudaError_t simt_finish_all(void);

/* Checks the guard zones: cudaErrorIllegalAddress if one has changed. */
cudaError_t simt_check_guards(void);

/* cudaErrorInvalidValue unless the range lies in device memory. For host memory: unless it lies in one
 * registered range, or begins in none. */
cudaError_t simt_check_device_range(const void *at, size_t bytes);
cudaError_t simt_check_host_range(const void *at, size_t bytes);
int simt_is_registered(const void *at);

#endif
