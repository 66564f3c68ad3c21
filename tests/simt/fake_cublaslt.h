/* A cuBLASLt for the emulator. Linked into a program, it replaces the library before main.
 *
 * It computes on the host, in stream order, with its own order of additions. It is stricter than the real
 * one. Descriptors must fit each other and the algorithm. Addresses must be as aligned as the caller told the
 * heuristics. The workspace must exist, and nothing may be missing or left over. A call that breaks a
 * rule fails with CUBLAS_STATUS_EXECUTION_FAILED and counts as a finding. Thread-safe.
 */
#ifndef FERRY_TESTS_SIMT_FAKE_CUBLASLT_H
#define FERRY_TESTS_SIMT_FAKE_CUBLASLT_H

#include <stdint.h>

enum fake_refusal {
	FAKE_REFUSE_NOTHING,
	FAKE_REFUSE_CREATE,    /* cublasLtCreate: NOT_INITIALIZED */
	FAKE_REFUSE_HEURISTIC, /* finds no algorithm */
	FAKE_REFUSE_MATMUL,    /* the algorithm that was found is NOT_SUPPORTED */
	FAKE_FAIL_MATMUL,      /* EXECUTION_FAILED */
	FAKE_NO_MEMORY_CREATE, /* cublasLtCreate: ALLOC_FAILED, */
	FAKE_NO_MEMORY_MATMUL, /* the same of cublasLtMatmul, which loads kernels when it needs them */
};

/* Every n-th call of this sort fails; 0 = none. */
void fake_cublaslt_refuse(enum fake_refusal refusal, int every);

struct fake_cublaslt_stats {
	int64_t live_count; /* handles, descriptors, layouts, preferences not destroyed yet */
	int64_t heuristic_count, matmul_count, finding_count;
	uint64_t algorithm; /* of the last product */
	char finding[256];  /* the last */
};
void fake_cublaslt_get_stats(struct fake_cublaslt_stats *stats);

#endif
