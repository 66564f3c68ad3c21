/* Products of fp32 by oneDNN's BLAS call. */
#include "host/cpu/matmul_onednn.h"

#include <dlfcn.h>
#include <dnnl.h> /* IWYU pragma: keep */

enum matmul_simd onednn_simd(void)
{
#if defined(__x86_64__)
	dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();

	if ((isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core)
		return MATMUL_SIMD_AVX512;
	if ((isa & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2)
		return MATMUL_SIMD_AVX2;
#endif
	return MATMUL_SIMD_BASE;
}

/* oneDNN takes its number of threads from the OpenMP setting of its caller's thread. If oneDNN was built
 * without OpenMP, the function does not exist. */
static void stay_on_this_thread(void)
{
	static void (*set_threads)(int);
	static int looked;
	void (*found)(int) = __atomic_load_n(&set_threads, __ATOMIC_ACQUIRE);

	if (!__atomic_load_n(&looked, __ATOMIC_ACQUIRE)) {
		*(void **)&found = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
		__atomic_store_n(&set_threads, found, __ATOMIC_RELEASE);
		__atomic_store_n(&looked, 1, __ATOMIC_RELEASE);
	}
	if (found)
		found(1);
}

void onednn_sgemm(float *c, const float *a, const float *b, int64_t m, int64_t n, int64_t k, int64_t c_stride,
        int64_t a_stride, int64_t b_stride, enum matmul_layout a_layout, enum matmul_layout b_layout,
        float alpha, float beta)
{
	stay_on_this_thread();
	dnnl_sgemm(a_layout == MATMUL_NORMAL ? 'N' : 'T', b_layout == MATMUL_NORMAL ? 'N' : 'T', m, n, k,
	        alpha, a, a_stride, b, b_stride, beta, c, c_stride);
}
