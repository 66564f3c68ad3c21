/* Tiles of a product by oneDNN: bf16 by its matmul primitive, fp32 by its BLAS call. */
#include "host/cpu/matmul_onednn.h"

#include "base/err.h"
#include "base/mem.h"

#include <dlfcn.h>
#include <dnnl.h>
#include <pthread.h>
#include <stdlib.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

struct onednn_product {
	dnnl_primitive_t primitive;
	dnnl_primitive_desc_t desc;
};

static dnnl_engine_t engine;

/* Some virtual machines show AMX's instructions but not the sizes of its tiles (leaf 0x1d). oneDNN sets up
 * its tiles from these sizes, so its AMX kernels stop at an illegal instruction there. Its AVX-512 kernels do
 * not need them. ONEDNN_MAX_CPU_ISA, if set, stays in force. */
static void avoid_amx_without_tiles(void)
{
#if defined(__x86_64__)
	unsigned a, b, c, d, palettes;

	if (getenv("ONEDNN_MAX_CPU_ISA") || getenv("DNNL_MAX_CPU_ISA"))
		return;
	if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 24 & 1)) /* AMX-TILE */
		return;
	if (!__get_cpuid_count(0x1d, 0, &palettes, &b, &c, &d) || palettes == 0)
		dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16);
#endif
}

static void engine_start(void)
{
	avoid_amx_without_tiles();
	if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success)
		engine = NULL;
}

static void engine_open(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, engine_start);
}

enum matmul_simd onednn_simd(void)
{
#if defined(__x86_64__)
	dnnl_cpu_isa_t isa;

	engine_open();
	isa = dnnl_get_effective_cpu_isa();
	if ((isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core)
		return MATMUL_SIMD_AVX512;
	if ((isa & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2)
		return MATMUL_SIMD_AVX2;
#endif
	return MATMUL_SIMD_BASE;
}

/* oneDNN takes its number of threads from the OpenMP setting of its caller's thread, when a primitive is made
 * and when it runs. If oneDNN was built without OpenMP, the function does not exist. */
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

/* Functions that oneDNN 3 renamed. */
#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t memory_desc;
typedef const_dnnl_memory_desc_t memory_desc_view;
static int desc_init(
        memory_desc *md, const dnnl_dims_t dims, dnnl_data_type_t type, const dnnl_dims_t strides)
{
	return dnnl_memory_desc_create_with_strides(md, 2, dims, type, strides) == dnnl_success;
}
static void desc_free(memory_desc *md)
{
	if (*md)
		dnnl_memory_desc_destroy(*md);
}
static int sum_append(dnnl_post_ops_t ops)
{
	return dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef) == dnnl_success;
}
static int product_desc(dnnl_primitive_desc_t *pd, memory_desc md[3], dnnl_primitive_attr_t attr)
{
	return dnnl_matmul_primitive_desc_create(pd, engine, md[0], md[1], NULL, md[2], attr) == dnnl_success;
}
#else
typedef dnnl_memory_desc_t memory_desc;
typedef const dnnl_memory_desc_t *memory_desc_view;
static int desc_init(
        memory_desc *md, const dnnl_dims_t dims, dnnl_data_type_t type, const dnnl_dims_t strides)
{
	return dnnl_memory_desc_init_by_strides(md, 2, dims, type, strides) == dnnl_success;
}
static void desc_free(memory_desc *md)
{
	(void)md;
}
static int sum_append(dnnl_post_ops_t ops)
{
	return dnnl_post_ops_append_sum(ops, 1) == dnnl_success;
}
static int product_desc(dnnl_primitive_desc_t *pd, memory_desc md[3], dnnl_primitive_attr_t attr)
{
	dnnl_matmul_desc_t d;

	return dnnl_matmul_desc_init(&d, &md[0], &md[1], NULL, &md[2]) == dnnl_success &&
	       dnnl_primitive_desc_create(pd, &d, attr, engine, NULL) == dnnl_success;
}
#endif

/* Describes op(x), rows x cols, with x stored by rows or by columns. */
static int operand_init(
        memory_desc *md, int64_t rows, int64_t cols, int64_t stride, enum matmul_layout layout)
{
	dnnl_dims_t dims = {rows, cols}, strides = {stride, 1};

	if (layout == MATMUL_TRANSPOSED) {
		strides[0] = 1;
		strides[1] = stride;
	}
	return desc_init(md, dims, dnnl_bf16, strides);
}

static int attr_init(dnnl_primitive_attr_t *attr, int accumulate)
{
	dnnl_post_ops_t ops = NULL;
	int ok = dnnl_primitive_attr_create(attr) == dnnl_success &&
	         dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user) == dnnl_success;

	if (ok && accumulate)
		ok = dnnl_post_ops_create(&ops) == dnnl_success && sum_append(ops) &&
		     dnnl_primitive_attr_set_post_ops(*attr, ops) == dnnl_success;
	if (ops)
		dnnl_post_ops_destroy(ops);
	return ok;
}

/* In oneDNN 2.6 and 2.7 these products stop at an illegal instruction on AMX if m and n end inside a block:
 * https://github.com/uxlfoundation/oneDNN/issues/1661 */
static int ends_in_sigill(int64_t k)
{
	return k == 63;
}

struct onednn_product *onednn_product_open(
        const struct op_matmul *op, int64_t m, int64_t n, int64_t k, int64_t c_stride, int accumulate)
{
	struct onednn_product *p = mem_alloc(1, sizeof *p);
	dnnl_primitive_attr_t attr = NULL;
	memory_desc md[3] = {0};
	int ok = p && !ends_in_sigill(k);

	engine_open();
	stay_on_this_thread();
	ok = ok && engine && operand_init(&md[0], m, k, op->a_stride, op->a_layout);
	ok = ok && operand_init(&md[1], k, n, op->b_stride, op->b_layout);
	ok = ok && desc_init(&md[2], (dnnl_dims_t){m, n}, dnnl_f32, (dnnl_dims_t){c_stride, 1});
	ok = ok && attr_init(&attr, accumulate) && product_desc(&p->desc, md, attr);
	ok = ok && dnnl_primitive_create(&p->primitive, p->desc) == dnnl_success;
	for (int i = 0; i < 3; i++)
		desc_free(&md[i]);
	if (attr)
		dnnl_primitive_attr_destroy(attr);
	if (!ok) {
		onednn_product_close(p);
		p = NULL;
	}
	return p;
}

void onednn_product_close(struct onednn_product *p)
{
	if (!p)
		return;
	if (p->primitive)
		dnnl_primitive_destroy(p->primitive);
	if (p->desc)
		dnnl_primitive_desc_destroy(p->desc);
	mem_free(p);
}

static memory_desc_view query(const struct onednn_product *p, dnnl_query_t what)
{
	return dnnl_primitive_desc_query_md(p->desc, what, 0);
}

int64_t onednn_product_scratch_bytes(const struct onednn_product *p)
{
	memory_desc_view md = query(p, dnnl_query_scratchpad_md);

	return md ? (int64_t)dnnl_memory_desc_get_size(md) : 0;
}

int onednn_product_run(const struct onednn_product *p, void *c, const void *a, const void *b, void *scratch)
{
	static const struct {
		dnnl_query_t query;
		int arg;
	} operands[4] = {{dnnl_query_src_md, DNNL_ARG_SRC}, {dnnl_query_weights_md, DNNL_ARG_WEIGHTS},
	        {dnnl_query_dst_md, DNNL_ARG_DST}, {dnnl_query_scratchpad_md, DNNL_ARG_SCRATCHPAD}};
	void *const data[4] = {(void *)(uintptr_t)a, (void *)(uintptr_t)b, c, scratch};
	dnnl_exec_arg_t args[4];
	dnnl_stream_t stream = NULL;
	int made = 0, ok;

	stay_on_this_thread();
	ok = dnnl_stream_create(&stream, engine, dnnl_stream_default_flags) == dnnl_success;
	for (; ok && made < 4; made += ok) {
		args[made].arg = operands[made].arg;
		ok = dnnl_memory_create(&args[made].memory, query(p, operands[made].query), engine,
		             data[made]) == dnnl_success;
	}
	ok = ok && dnnl_primitive_execute(p->primitive, stream, 4, args) == dnnl_success;
	ok = ok && dnnl_stream_wait(stream) == dnnl_success;
	while (made > 0)
		dnnl_memory_destroy(args[--made].memory);
	if (stream)
		dnnl_stream_destroy(stream);
	return ok ? 0 : err_set(ERR_DEVICE, "matmul: oneDNN could not run a product that it had accepted");
}
