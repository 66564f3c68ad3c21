/* Libraries that are opened while the program runs, if the machine has them: cuBLASLt, cuDNN, NCCL.
 *
 * Nothing links to them, so one binary runs everywhere. ferry searches for a library once, in this order:
 *
 * - the directories of FERRY_LIBRARY_PATH; each may also be the root of a toolkit or of a python3
 * - the places where the loader looks
 * - lib64 and lib below CUDA_HOME, CUDA_PATH, /usr/local/cuda* and NVIDIA's HPC SDK
 * - the nvidia/<part>/lib folders that pip makes in the packages of a python3
 *
 * A python3 may be that of VIRTUAL_ENV, CONDA_PREFIX or PATH (and its link's target), or be in PYTHONPATH,
 * HOME, /usr/local, /usr, /opt or /venv.
 *
 * It never starts python3. It takes a file if it loads, has every function of the list below and reports a
 * version that ferry knows. Otherwise it tries the next one.
 *
 * This file knows only the lists of functions. A caller includes the library's header and gets typed
 * functions from the same list:
 *
 * 	struct cublaslt {
 * 		CUBLASLT_FUNCTIONS(CUDA_LIBRARY_FIELD)
 * 	} lt;
 * 	rc = cuda_library_bind(&lt, sizeof(lt), CUDA_LIBRARY_CUBLASLT);
 * 	lt.cublasLtCreate(&handle);
 *
 * Any thread may call the functions of this header.
 */
#ifndef FERRY_GPU_CUDA_LIBRARY_H
#define FERRY_GPU_CUDA_LIBRARY_H

#include <stddef.h>

enum cuda_library_kind { CUDA_LIBRARY_CUBLASLT, CUDA_LIBRARY_CUDNN, CUDA_LIBRARY_NCCL, CUDA_LIBRARY_COUNT };

/* The functions that ferry uses; the first one tells the version. Available since CUDA 12.0, cuDNN 9.0, NCCL
 * 2.14.
 */
#define CUBLASLT_FUNCTIONS(X)                                                                                \
	X(cublasLtGetVersion)                                                                                \
	X(cublasLtGetStatusString)                                                                           \
	X(cublasLtCreate)                                                                                    \
	X(cublasLtDestroy)                                                                                   \
	X(cublasLtMatmulDescCreate)                                                                          \
	X(cublasLtMatmulDescDestroy)                                                                         \
	X(cublasLtMatmulDescSetAttribute)                                                                    \
	X(cublasLtMatrixLayoutCreate)                                                                        \
	X(cublasLtMatrixLayoutDestroy)                                                                       \
	X(cublasLtMatmulPreferenceCreate)                                                                    \
	X(cublasLtMatmulPreferenceDestroy)                                                                   \
	X(cublasLtMatmulPreferenceSetAttribute)                                                              \
	X(cublasLtMatmulAlgoGetHeuristic)                                                                    \
	X(cublasLtMatmul)

#define CUDNN_FUNCTIONS(X)                                                                                   \
	X(cudnnGetVersion)                                                                                   \
	X(cudnnGetErrorString)                                                                               \
	X(cudnnGetLastErrorString)                                                                           \
	X(cudnnCreate)                                                                                       \
	X(cudnnDestroy)                                                                                      \
	X(cudnnSetStream)                                                                                    \
	X(cudnnBackendCreateDescriptor)                                                                      \
	X(cudnnBackendDestroyDescriptor)                                                                     \
	X(cudnnBackendSetAttribute)                                                                          \
	X(cudnnBackendGetAttribute)                                                                          \
	X(cudnnBackendFinalize)                                                                              \
	X(cudnnBackendExecute)

#define NCCL_FUNCTIONS(X)                                                                                    \
	X(ncclGetVersion)                                                                                    \
	X(ncclGetUniqueId)                                                                                   \
	X(ncclGetErrorString)                                                                                \
	X(ncclGetLastError)                                                                                  \
	X(ncclCommInitRankConfig)                                                                            \
	X(ncclCommGetAsyncError)                                                                             \
	X(ncclCommFinalize)                                                                                  \
	X(ncclCommDestroy)                                                                                   \
	X(ncclCommAbort)                                                                                     \
	X(ncclAllGather)                                                                                     \
	X(ncclReduceScatter)                                                                                 \
	X(ncclAllReduce)                                                                                     \
	X(ncclBroadcast)

/* Member of a struct of a library's functions, typed by the library's own header. */
#define CUDA_LIBRARY_FIELD(function) __typeof__(&function) function;

/* Fills a struct of fields made from the library's list; bytes is its size. The library stays open as long as
 * the program runs. Returns 0, ERR_UNSUPPORTED (not found; the text names the places and what was wrong with
 * files found there) or ERR_NOMEM. */
int cuda_library_bind(void *functions, size_t bytes, enum cuda_library_kind kind);

/* "cuBLASLt 13.0.2, /usr/local/cuda/lib64/libcublasLt.so.13" or "cuBLASLt: not found (...)", for people. It
 * searches even if this build was made without the library's header and cannot use it. Free it with mem_free.
 * NULL: ERR_NOMEM.
 */
char *cuda_library_describe(enum cuda_library_kind kind);

/* ---- for tests ---- */

/* Searches once and does not remember the result. `root` NULL is the machine; otherwise it is a prefix of
 * /usr/local, /usr and /opt, and the loader's own places are left out. */
struct cuda_library {
	void **functions; /* in the order of the list; NULL: nothing was found */
	void *handle;     /* dlopen's */
	int version;      /* major * 10000 + minor * 100 + patch */
	char *path;       /* of the file, as the loader knows it */
	char *why;        /* why nothing was found */
};
int cuda_library_search(struct cuda_library *library, enum cuda_library_kind kind, const char *root);
void cuda_library_close(struct cuda_library *library);

/* Replaces the library by these functions (in the order of the list), without a search. They must stay valid
 * until the program ends. Call before the first use of the library. */
void cuda_library_replace(enum cuda_library_kind kind, void *const *functions, int version);

#endif
