/* OP_MATMUL by cuBLASLt. */
#include "gpu/cuda_matmul.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "device/op_matmul.h"
#include "gpu/cuda_library.h"

#include <cublasLt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

OP_MATMUL_LIST(CUDA_DECLARE)

/* cuBLASLt's matrices are column-major. ferry's row-major c[m,n] is its D[n,m], and D = op(b)' * op(a)'. So b
 * is its A and a is its B, and nothing is moved. A bias per column of c is one per row of D, which its
 * epilogue adds.
 *
 * The same product has the same bits. If an algorithm cuts k, it must put its parts in the workspace in fp32
 * and add them in order (REDUCTION_SCHEME_COMPUTE_TYPE). An algorithm may depend on the alignment of
 * operands, so alignment is part of a sort. It has two classes: a multiple of 16 bytes, which the widest
 * loads need, or of an element. Buffers of a plan start at multiples of 256 bytes, and tensors in them at
 * multiples of 64 elements. So an operand's class is the same at every place in the plan: offload, wrap
 * policy and prefetch cannot change an algorithm. */

struct cublaslt {
	CUBLASLT_FUNCTIONS(CUDA_LIBRARY_FIELD)
};

/* All that an algorithm may depend on. It has no gaps, because it is compared as bytes. */
struct sort {
	int64_t m, n, k, a_stride, b_stride, c_stride;
	int32_t a_layout, b_layout, ab_dtype, c_dtype, accumulate, has_bias, a_align, b_align, c_align, pad;
};

enum choice_kind { CHOICE_NONE, CHOICE_LIBRARY, CHOICE_PLAIN };

/* The algorithm for a sort of products, and the descriptors for calls of cuBLASLt. */
struct choice {
	struct sort sort;
	enum choice_kind kind;
	cublasLtMatmulAlgo_t algo;
	size_t workspace_bytes;
	cublasLtMatmulDesc_t product;
	cublasLtMatrixLayout_t a, b, c; /* cuBLASLt's B, A and D */
};

struct cuda_blas {
	struct cublaslt lt;
	cublasLtHandle_t handle; /* NULL: only ferry's own kernel */
	void *workspace;
	int64_t workspace_bytes;
	struct choice *choices; /* a hash table, open addressing; capacity a power of two */
	size_t choice_count, choice_capacity;
	struct cuda_blas_stats stats;
};

/* ---- open, close ---- */

static const char *status_text(const struct cuda_blas *blas, cublasStatus_t status)
{
	return blas->lt.cublasLtGetStatusString(status);
}

static int blas_start(struct cuda_blas *blas)
{
	const char *wish = getenv("FERRY_MATMUL");
	cublasStatus_t status;
	int rc;

	if (wish && !strcmp(wish, "plain"))
		return 0;
	rc = cuda_library_bind(&blas->lt, sizeof(blas->lt), CUDA_LIBRARY_CUBLASLT);
	if (rc == ERR_NOMEM)
		return rc;
	if (!rc) {
		status = blas->lt.cublasLtCreate(&blas->handle);
		if (status != CUBLAS_STATUS_SUCCESS) {
			blas->handle = NULL;
			if (status == CUBLAS_STATUS_ALLOC_FAILED)
				return err_set(ERR_NOMEM,
				        "cuda device: no memory to load cuBLASLt (%s); another process may "
				        "hold GPU memory (nvidia-smi lists them): end it",
				        status_text(blas, status));
			rc = err_set(ERR_DEVICE, "cublasLtCreate: %s", status_text(blas, status));
		}
	}
	if (rc)
		log_warn("%s; matrix products run on ferry's own kernel, which is many times slower",
		        err_text());
	return 0;
}

int cuda_blas_open(struct cuda_blas **blas, void *workspace, int64_t workspace_bytes)
{
	struct cuda_blas *b = mem_alloc(1, sizeof(*b));
	int rc = b ? blas_start(b) : ERR_NOMEM;

	if (rc) {
		mem_free(b);
		return rc;
	}
	b->workspace = workspace;
	b->workspace_bytes = workspace_bytes;
	*blas = b;
	return 0;
}

static void choice_drop(const struct cuda_blas *blas, struct choice *c)
{
	if (c->a)
		blas->lt.cublasLtMatrixLayoutDestroy(c->a);
	if (c->b)
		blas->lt.cublasLtMatrixLayoutDestroy(c->b);
	if (c->c)
		blas->lt.cublasLtMatrixLayoutDestroy(c->c);
	if (c->product)
		blas->lt.cublasLtMatmulDescDestroy(c->product);
	c->a = c->b = c->c = NULL;
	c->product = NULL;
}

void cuda_blas_close(struct cuda_blas *blas)
{
	if (!blas)
		return;
	for (size_t i = 0; i < blas->choice_capacity; i++)
		choice_drop(blas, &blas->choices[i]);
	if (blas->handle)
		blas->lt.cublasLtDestroy(blas->handle);
	mem_free(blas->choices);
	mem_free(blas);
}

void cuda_blas_get_stats(const struct cuda_blas *blas, struct cuda_blas_stats *stats)
{
	*stats = blas->stats;
	stats->sort_count = (int64_t)blas->choice_count;
}

/* ---- sorts of products ---- */

static int32_t align_class(dev_addr at, enum dtype dtype)
{
	return at.value % 16 ? (int32_t)dtype_bytes(dtype) : 16;
}

/* cuBLASLt adds a bias of c's type only; another is added by a kernel afterwards. */
static int bias_is_fused(const struct op_matmul *o)
{
	return !dev_is_none(o->bias) && o->c_dtype == o->ab_dtype;
}

static struct sort sort_of(const struct op_matmul *o)
{
	struct sort s = {
	        .m = o->m,
	        .n = o->n,
	        .k = o->k,
	        .a_stride = o->a_stride,
	        .b_stride = o->b_stride,
	        .c_stride = o->c_stride,
	        .a_layout = (int32_t)o->a_layout,
	        .b_layout = (int32_t)o->b_layout,
	        .ab_dtype = (int32_t)o->ab_dtype,
	        .c_dtype = (int32_t)o->c_dtype,
	        .accumulate = o->accumulate != 0,
	        .has_bias = bias_is_fused(o),
	        .a_align = align_class(o->a, o->ab_dtype),
	        .b_align = align_class(o->b, o->ab_dtype),
	        .c_align = align_class(o->c, o->c_dtype),
	};

	/* an epilogue reads the bias with the alignment that is given for D */
	if (s.has_bias && align_class(o->bias, o->ab_dtype) < s.c_align)
		s.c_align = align_class(o->bias, o->ab_dtype);
	return s;
}

static uint64_t sort_hash(const struct sort *s)
{
	uint64_t word, hash = 0;

	for (size_t at = 0; at < sizeof(*s); at += sizeof(word)) {
		memcpy(&word, (const char *)s + at, sizeof(word));
		hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
		hash ^= hash >> 29;
	}
	return hash;
}

/* The place of the sort, or the free place for it. */
static struct choice *choice_find(struct choice *choices, size_t capacity, const struct sort *s)
{
	size_t at = sort_hash(s) & (capacity - 1);

	while (choices[at].kind != CHOICE_NONE && memcmp(&choices[at].sort, s, sizeof(*s)))
		at = (at + 1) & (capacity - 1);
	return &choices[at];
}

/* Keeps at least half of the table free. */
static int choices_grow(struct cuda_blas *blas)
{
	size_t capacity = blas->choice_capacity ? 2 * blas->choice_capacity : 64;
	struct choice *choices;

	if (2 * (blas->choice_count + 1) <= blas->choice_capacity)
		return 0;
	choices = mem_alloc(capacity, sizeof(*choices));
	if (!choices)
		return ERR_NOMEM;
	for (size_t i = 0; i < blas->choice_capacity; i++)
		if (blas->choices[i].kind != CHOICE_NONE)
			*choice_find(choices, capacity, &blas->choices[i].sort) = blas->choices[i];
	mem_free(blas->choices);
	blas->choices = choices;
	blas->choice_capacity = capacity;
	return 0;
}

/* ---- choosing ---- */

static cudaDataType_t type_of(enum dtype dtype)
{
	return dtype == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* A stored row-major matrix, which cuBLASLt sees transposed. */
static cublasStatus_t layout_create(const struct cublaslt *lt, cublasLtMatrixLayout_t *layout,
        enum dtype dtype, int64_t rows, int64_t cols, int64_t stride)
{
	return lt->cublasLtMatrixLayoutCreate(layout, type_of(dtype), (uint64_t)cols, (uint64_t)rows, stride);
}

static cublasStatus_t product_create(const struct cublaslt *lt, struct choice *c)
{
	const struct sort *s = &c->sort;
	const cublasOperation_t of_a = s->b_layout == MATMUL_TRANSPOSED ? CUBLAS_OP_T : CUBLAS_OP_N,
	                        of_b = s->a_layout == MATMUL_TRANSPOSED ? CUBLAS_OP_T : CUBLAS_OP_N;
	const cublasLtEpilogue_t epilogue = s->has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
	cublasStatus_t status = lt->cublasLtMatmulDescCreate(&c->product, CUBLAS_COMPUTE_32F, CUDA_R_32F);

	if (!status)
		status = lt->cublasLtMatmulDescSetAttribute(
		        c->product, CUBLASLT_MATMUL_DESC_TRANSA, &of_a, sizeof(of_a));
	if (!status)
		status = lt->cublasLtMatmulDescSetAttribute(
		        c->product, CUBLASLT_MATMUL_DESC_TRANSB, &of_b, sizeof(of_b));
	if (!status)
		status = lt->cublasLtMatmulDescSetAttribute(
		        c->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue));
	return status;
}

static cublasStatus_t layouts_create(const struct cublaslt *lt, struct choice *c)
{
	const struct sort *s = &c->sort;
	int a_turned = s->a_layout == MATMUL_TRANSPOSED, b_turned = s->b_layout == MATMUL_TRANSPOSED;
	cublasStatus_t status;

	status = layout_create(
	        lt, &c->a, s->ab_dtype, a_turned ? s->k : s->m, a_turned ? s->m : s->k, s->a_stride);
	if (!status)
		status = layout_create(
		        lt, &c->b, s->ab_dtype, b_turned ? s->n : s->k, b_turned ? s->k : s->n, s->b_stride);
	if (!status)
		status = layout_create(lt, &c->c, s->c_dtype, s->m, s->n, s->c_stride);
	return status;
}

static cublasStatus_t preference_fill(
        const struct cuda_blas *blas, cublasLtMatmulPreference_t preference, const struct sort *s)
{
	const struct cublaslt *lt = &blas->lt;
	const uint64_t workspace_bytes = (uint64_t)blas->workspace_bytes;
	const struct {
		cublasLtMatmulPreferenceAttributes_t attribute;
		uint32_t value;
	} settings[] = {
	        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE},
	        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, (uint32_t)s->b_align},
	        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (uint32_t)s->a_align},
	        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, (uint32_t)s->c_align},
	        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, (uint32_t)s->c_align},
	};
	cublasStatus_t status = lt->cublasLtMatmulPreferenceSetAttribute(preference,
	        CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes, sizeof(workspace_bytes));

	for (size_t i = 0; i < sizeof(settings) / sizeof(*settings) && !status; i++)
		status = lt->cublasLtMatmulPreferenceSetAttribute(
		        preference, settings[i].attribute, &settings[i].value, sizeof(settings[i].value));
	return status;
}

static cublasStatus_t algorithm_choose(const struct cuda_blas *blas, struct choice *c)
{
	const struct cublaslt *lt = &blas->lt;
	cublasLtMatmulPreference_t preference = NULL;
	cublasLtMatmulHeuristicResult_t found = {0};
	int count = 0;
	cublasStatus_t status = lt->cublasLtMatmulPreferenceCreate(&preference);

	if (!status)
		status = preference_fill(blas, preference, &c->sort);
	if (!status)
		status = lt->cublasLtMatmulAlgoGetHeuristic(
		        blas->handle, c->product, c->b, c->a, c->c, c->c, preference, 1, &found, &count);
	if (!status)
		status = count < 1 ? CUBLAS_STATUS_NOT_SUPPORTED : found.state;
	c->algo = found.algo;
	c->workspace_bytes = found.workspaceSize;
	if (preference)
		lt->cublasLtMatmulPreferenceDestroy(preference);
	return status;
}

/* From here on ferry's own kernel computes the sort. */
static void choice_refuse(struct cuda_blas *blas, struct choice *c, cublasStatus_t status)
{
	const struct sort *s = &c->sort;

	choice_drop(blas, c);
	c->kind = CHOICE_PLAIN;
	log_warn("cuBLASLt does not take the product of m=%" PRId64 " n=%" PRId64 " k=%" PRId64
	         " %s (%s); it runs on ferry's own kernel, which is many times slower",
	        s->m, s->n, s->k, dtype_name(s->ab_dtype), status_text(blas, status));
}

static struct choice *choice_of(struct cuda_blas *blas, const struct op_matmul *o)
{
	const struct sort s = sort_of(o);
	struct choice *c;
	cublasStatus_t status;

	if (choices_grow(blas))
		return NULL;
	c = choice_find(blas->choices, blas->choice_capacity, &s);
	if (c->kind != CHOICE_NONE)
		return c;
	blas->choice_count++;
	c->sort = s;
	c->kind = CHOICE_LIBRARY;
	status = product_create(&blas->lt, c);
	if (!status)
		status = layouts_create(&blas->lt, c);
	if (!status)
		status = algorithm_choose(blas, c);
	if (status)
		choice_refuse(blas, c, status);
	return c;
}

/* ---- running ---- */

static const void *address(dev_addr a)
{
	return (const void *)(uintptr_t)a.value;
}

static cublasStatus_t product_queue(
        const struct cuda_blas *blas, const struct choice *c, const struct op_matmul *o, cudaStream_t stream)
{
	const struct cublaslt *lt = &blas->lt;
	const float alpha = 1, beta = o->accumulate ? 1 : 0;
	const void *bias = address(o->bias);
	void *out = (void *)(uintptr_t)o->c.value;
	cublasStatus_t status = CUBLAS_STATUS_SUCCESS;

	if (c->sort.has_bias)
		status = lt->cublasLtMatmulDescSetAttribute(
		        c->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias));
	if (!status)
		status = lt->cublasLtMatmul(blas->handle, c->product, &alpha, address(o->b), c->b,
		        address(o->a), c->a, &beta, out, c->c, out, c->c, &c->algo, blas->workspace,
		        c->workspace_bytes, stream);
	return status;
}

int cuda_matmul(const struct cuda_launch *at, const struct op_matmul *o)
{
	struct cuda_blas *blas = at->blas;
	struct choice *c = NULL;
	cublasStatus_t status;

	if (blas->handle) {
		c = choice_of(blas, o);
		if (!c)
			return ERR_NOMEM;
	}
	if (!c || c->kind == CHOICE_PLAIN) {
		blas->stats.plain_count++;
		return cuda_matmul_plain(at, o);
	}
	status = product_queue(blas, c, o, at->stream);
	if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) {
		choice_refuse(blas, c, status);
		blas->stats.plain_count++;
		return cuda_matmul_plain(at, o);
	}
	if (status == CUBLAS_STATUS_ALLOC_FAILED)
		return err_set(ERR_NOMEM, "matmul: no GPU memory to load cuBLASLt's kernels; set vram_budget "
		                          "lower, or end other processes (nvidia-smi lists them)");
	if (status)
		return err_set(ERR_DEVICE, "matmul: cublasLtMatmul: %s", status_text(blas, status));
	blas->stats.library_count++;
	return dev_is_none(o->bias) || c->sort.has_bias ? 0 : cuda_matmul_bias(at, o);
}
