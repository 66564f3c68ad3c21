/* A cuBLASLt for the emulator: linked into a program, it takes the library's place there before main.
 *
 * It computes on the host, in stream order, in an order of additions of its own, and is stricter than the
 * real one: descriptors must fit each other and the algorithm, addresses must be as aligned as the heuristics
 * were told, the workspace must be there, nothing may be missing or left over. What breaks a rule is refused
 * with CUBLAS_STATUS_EXECUTION_FAILED and counted as a finding. Any thread.
 */
#ifndef FERRY_TESTS_SIMT_FAKE_CUBLASLT_H
#define FERRY_TESTS_SIMT_FAKE_CUBLASLT_H

#include <stdint.h>

enum fake_refusal {
	FAKE_REFUSE_NOTHING,
	FAKE_REFUSE_CREATE,    /* cublasLtCreate: NOT_INITIALIZED */
	FAKE_REFUSE_HEURISTIC, /* no algorithm is found */
	FAKE_REFUSE_MATMUL,    /* the algorithm found is NOT_SUPPORTED after all */
	FAKE_FAIL_MATMUL,      /* EXECUTION_FAILED */
	FAKE_NO_MEMORY_CREATE, /* cublasLtCreate: ALLOC_FAILED, */
	FAKE_NO_MEMORY_MATMUL, /* and cublasLtMatmul, which loads its kernels when it first needs them */
};

/* Every n-th call of that sort is refused; 0: none. */
void fake_cublaslt_refuse(enum fake_refusal refusal, int every);

struct fake_cublaslt_stats {
	int64_t live_count; /* handles, descriptors, layouts, preferences not destroyed yet */
	int64_t heuristic_count, matmul_count, finding_count;
	uint64_t algorithm; /* what the last product ran with */
	char finding[256];  /* the last */
};
void fake_cublaslt_get_stats(struct fake_cublaslt_stats *stats);

#endif
