/* An empty library under the name of NCCL or cuBLASLt, for tests of the search for libraries.
 *
 * It is built several times: PLANTED_NCCL selects NCCL, PLANTED_CUDNN cuDNN, PLANTED_VERSION sets the
 * version. PLANTED_LACKS omits the function that is used last.
 */
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
#elif defined(PLANTED_CUDNN)
#define cudnnGetVersion planted_version
CUDNN_FUNCTIONS(STUB)
#undef cudnnGetVersion
__attribute__((visibility("default"))) size_t cudnnGetVersion(void);

size_t cudnnGetVersion(void)
{
	return PLANTED_VERSION;
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
