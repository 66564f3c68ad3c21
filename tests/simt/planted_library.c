/* A library that has the names of one of ours and does nothing: for tests of how libraries are found. Built
 * several times over: PLANTED_NCCL or (without) cuBLASLt, PLANTED_VERSION, and PLANTED_LACKS leaves out the
 * function that comes last in use. */
#include "gpu/cuda_library.h"

#define STUB(function)                                                                                       \
	__attribute__((visibility("default"))) void function(void);                                          \
	void function(void) {}

#ifdef PLANTED_LACKS
#define cublasLtMatmul planted_other
#endif

#ifdef PLANTED_NCCL
#define ncclGetVersion planted_version
NCCL_FUNCTIONS(STUB)
#undef ncclGetVersion
__attribute__((visibility("default"))) int ncclGetVersion(int *version);

int ncclGetVersion(int *version)
{
	*version = PLANTED_VERSION;
	return 0;
}
#else
#define cublasLtGetVersion planted_version
CUBLASLT_FUNCTIONS(STUB)
#undef cublasLtGetVersion
__attribute__((visibility("default"))) size_t cublasLtGetVersion(void);

size_t cublasLtGetVersion(void)
{
	return PLANTED_VERSION;
}
#endif
