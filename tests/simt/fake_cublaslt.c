/* A cuBLASLt for tests: checks its calls, and multiplies on the host. */
#include "tests/simt/fake_cublaslt.h"

#include "base/num.h"
#include "gpu/cuda_library.h"
#include "tests/simt/simt.h"
#include "tests/simt/simt_runtime.h"

#include <cublasLt.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fake_product {
	cublasComputeType_t compute;
	cudaDataType_t scale;
	cublasOperation_t transa, transb;
	cublasLtEpilogue_t epilogue;
	const void *bias;
};

struct fake_layout {
	cudaDataType_t type;
	uint64_t rows, cols;
	int64_t ld;
};

struct fake_preference {
	uint64_t workspace_bytes;
	uint32_t scheme_mask, align[4]; /* of A, B, C, D */
};

/* A product as it was described to the heuristics; its hash is what the algorithm carries, so that an
 * algorithm is found out when it runs something else. */
struct described {
	struct fake_layout a, b, c, d;
	int64_t transa, transb, epilogue;
};

enum { FAKE_WORKSPACE_BYTES = 4096, FAKE_PARTS = 3 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fake_cublaslt_stats stats;
static enum fake_refusal refusal;
static int refusal_every, refusal_calls;
static const void *workspace_in_use;
static struct run *queued;

/* ---- findings, refusals, counts ---- */

static cublasStatus_t __attribute__((format(printf, 1, 2))) finding(const char *fmt, ...)
{
	va_list ap;

	pthread_mutex_lock(&lock);
	va_start(ap, fmt);
	vsnprintf(stats.finding, sizeof(stats.finding), fmt, ap);
	va_end(ap);
	stats.finding_count++;
	fprintf(stderr, "fake cuBLASLt: %s\n", stats.finding);
	pthread_mutex_unlock(&lock);
	return CUBLAS_STATUS_EXECUTION_FAILED;
}

static int refuses(enum fake_refusal kind)
{
	int yes = 0;

	pthread_mutex_lock(&lock);
	if (refusal == kind && refusal_every)
		yes = ++refusal_calls % refusal_every == 0;
	pthread_mutex_unlock(&lock);
	return yes;
}

void fake_cublaslt_refuse(enum fake_refusal kind, int every)
{
	pthread_mutex_lock(&lock);
	refusal = kind;
	refusal_every = every;
	refusal_calls = 0;
	pthread_mutex_unlock(&lock);
}

void fake_cublaslt_get_stats(struct fake_cublaslt_stats *out)
{
	pthread_mutex_lock(&lock);
	*out = stats;
	pthread_mutex_unlock(&lock);
}

static void count(int64_t *counter, int64_t by)
{
	pthread_mutex_lock(&lock);
	*counter += by;
	pthread_mutex_unlock(&lock);
}

static cublasStatus_t create(void *object, size_t bytes)
{
	void *made = calloc(1, bytes);

	if (!made)
		return CUBLAS_STATUS_ALLOC_FAILED;
	memcpy(object, &made, sizeof(made));
	count(&stats.live_count, 1);
	return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t destroy(void *object)
{
	if (!object)
		return finding("nothing to destroy");
	free(object);
	count(&stats.live_count, -1);
	return CUBLAS_STATUS_SUCCESS;
}

/* ---- objects ---- */

size_t cublasLtGetVersion(void)
{
	return 130000;
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
	return status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported (fake)" : "failed (fake)";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
	if (refuses(FAKE_NO_MEMORY_CREATE))
		return CUBLAS_STATUS_ALLOC_FAILED;
	return refuses(FAKE_REFUSE_CREATE) ? CUBLAS_STATUS_NOT_INITIALIZED : create(handle, 1);
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
	return destroy(handle);
}

cublasStatus_t cublasLtMatmulDescCreate(
        cublasLtMatmulDesc_t *desc, cublasComputeType_t compute, cudaDataType_t scale)
{
	cublasStatus_t status = create(desc, sizeof(**desc));

	if (!status)
		**desc = (struct fake_product){.compute = compute, .scale = scale};
	return status;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
	return destroy(desc);
}

static cublasStatus_t set(void *field, size_t field_bytes, const void *value, size_t bytes)
{
	if (bytes != field_bytes)
		return finding("an attribute of %zu bytes was given %zu", field_bytes, bytes);
	memcpy(field, value, bytes);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(
        cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const void *value, size_t bytes)
{
	switch (attribute) {
	case CUBLASLT_MATMUL_DESC_TRANSA:
		return set(&desc->transa, sizeof(desc->transa), value, bytes);
	case CUBLASLT_MATMUL_DESC_TRANSB:
		return set(&desc->transb, sizeof(desc->transb), value, bytes);
	case CUBLASLT_MATMUL_DESC_EPILOGUE:
		return set(&desc->epilogue, sizeof(desc->epilogue), value, bytes);
	case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
		return set(&desc->bias, sizeof(desc->bias), value, bytes);
	}
	return finding("attribute %d of a product", (int)attribute);
}

cublasStatus_t cublasLtMatrixLayoutCreate(
        cublasLtMatrixLayout_t *layout, cudaDataType_t type, uint64_t rows, uint64_t cols, int64_t ld)
{
	cublasStatus_t status = create(layout, sizeof(**layout));

	if (!status)
		**layout = (struct fake_layout){.type = type, .rows = rows, .cols = cols, .ld = ld};
	return status;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
	return destroy(layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
	cublasStatus_t status = create(preference, sizeof(**preference));

	if (!status)
		**preference = (struct fake_preference){
		        .scheme_mask = CUBLASLT_REDUCTION_SCHEME_MASK, .align = {256, 256, 256, 256}};
	return status;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
	return destroy(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
        cublasLtMatmulPreferenceAttributes_t attribute, const void *value, size_t bytes)
{
	if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
		return set(&preference->workspace_bytes, sizeof(preference->workspace_bytes), value, bytes);
	if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
		return set(&preference->scheme_mask, sizeof(preference->scheme_mask), value, bytes);
	if (attribute < CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES ||
	        attribute > CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES)
		return finding("attribute %d of a preference", (int)attribute);
	return set(&preference->align[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
	        sizeof(*preference->align), value, bytes);
}

/* ---- what fits ---- */

static size_t type_bytes(cudaDataType_t type)
{
	return type == CUDA_R_16BF ? 2 : 4;
}

/* op(A) is [D's rows, k], op(B) [k, D's columns]; *k is what both agree on. */
static cublasStatus_t shapes_check(const struct fake_product *p, const struct fake_layout *a,
        const struct fake_layout *b, const struct fake_layout *c, const struct fake_layout *d, uint64_t *k)
{
	int a_turned = p->transa == CUBLAS_OP_T, b_turned = p->transb == CUBLAS_OP_T;
	const struct fake_layout *all[] = {a, b, c, d};

	*k = a_turned ? a->rows : a->cols;
	if (p->compute != CUBLAS_COMPUTE_32F || p->scale != CUDA_R_32F)
		return finding("products are computed in fp32");
	for (int i = 0; i < 4; i++) {
		if (all[i]->type != CUDA_R_32F && all[i]->type != CUDA_R_16BF)
			return finding("matrix %d has type %d", i, (int)all[i]->type);
		if (!all[i]->rows || !all[i]->cols || all[i]->ld < (int64_t)all[i]->rows)
			return finding("matrix %d has a leading dimension of %lld for %llu rows", i,
			        (long long)all[i]->ld, (unsigned long long)all[i]->rows);
	}
	if (a->type != b->type || c->type != d->type || (a->type == CUDA_R_32F && d->type != CUDA_R_32F))
		return finding("types %d %d %d %d", (int)a->type, (int)b->type, (int)c->type, (int)d->type);
	if ((a_turned ? a->cols : a->rows) != d->rows || (b_turned ? b->rows : b->cols) != d->cols ||
	        (b_turned ? b->cols : b->rows) != *k || c->rows != d->rows || c->cols != d->cols)
		return finding("shapes do not fit each other");
	if (p->epilogue != CUBLASLT_EPILOGUE_DEFAULT && p->epilogue != CUBLASLT_EPILOGUE_BIAS)
		return finding("epilogue %d", (int)p->epilogue);
	return CUBLAS_STATUS_SUCCESS;
}

static uint64_t described_hash(const struct fake_product *p, const struct fake_layout *a,
        const struct fake_layout *b, const struct fake_layout *c, const struct fake_layout *d)
{
	struct described it;
	const unsigned char *bytes = (const unsigned char *)&it;
	uint64_t hash = 1469598103934665603u;

	memset(&it, 0, sizeof(it));
	it.a = *a, it.b = *b, it.c = *c, it.d = *d;
	it.transa = p->transa, it.transb = p->transb, it.epilogue = p->epilogue;
	for (size_t i = 0; i < sizeof(it); i++)
		hash = (hash ^ bytes[i]) * 1099511628211u;
	return hash;
}

/* Algorithms: [0] is the hash, [1] how many parts k is cut into, [2 ...] the alignments. What is chosen
 * depends on shapes and alignments, as in the real one. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
        cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
        cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int requested,
        cublasLtMatmulHeuristicResult_t results[], int *found)
{
	cublasLtMatmulHeuristicResult_t *r = results;
	uint64_t k;
	cublasStatus_t status = shapes_check(desc, a, b, c, d, &k);
	int wide = preference->align[0] >= 16 && preference->align[1] >= 16;

	*found = 0;
	if (status || !handle || requested < 1)
		return status ? status : CUBLAS_STATUS_INVALID_VALUE;
	if (preference->scheme_mask & ~(uint32_t)CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
		return finding("sums may be in an order that nobody knows");
	count(&stats.heuristic_count, 1);
	if (refuses(FAKE_REFUSE_HEURISTIC))
		return CUBLAS_STATUS_NOT_SUPPORTED;
	*r = (cublasLtMatmulHeuristicResult_t){.state = CUBLAS_STATUS_SUCCESS};
	r->algo.data[0] = described_hash(desc, a, b, c, d);
	r->algo.data[1] =
	        wide && k > 64 && preference->workspace_bytes >= FAKE_WORKSPACE_BYTES ? FAKE_PARTS : 1;
	r->workspaceSize = r->algo.data[1] > 1 ? FAKE_WORKSPACE_BYTES : 0;
	for (int i = 0; i < 4; i++)
		r->algo.data[2 + i] = preference->align[i];
	*found = 1;
	return CUBLAS_STATUS_SUCCESS;
}

/* ---- the product ---- */

struct run {
	struct fake_product product;
	struct fake_layout a, b, d;
	uint64_t k, parts;
	const unsigned char *a_at, *b_at, *c_at;
	unsigned char *d_at;
	float alpha, beta;
	unsigned char *workspace;
	size_t workspace_bytes;
	struct run *next; /* of those that were queued and will perhaps never run */
};

static float element(const unsigned char *at, cudaDataType_t type, int64_t i)
{
	uint16_t half;
	float value;

	if (type == CUDA_R_16BF) {
		memcpy(&half, at + 2 * i, 2);
		return bf16_to_f32(half);
	}
	memcpy(&value, at + 4 * i, 4);
	return value;
}

static void element_set(unsigned char *at, cudaDataType_t type, int64_t i, float value)
{
	uint16_t half = bf16_from_f32(value);

	if (type == CUDA_R_16BF)
		memcpy(at + 2 * i, &half, 2);
	else
		memcpy(at + 4 * i, &value, 4);
}

static float dot(const struct run *r, int64_t row, int64_t col)
{
	int a_turned = r->product.transa == CUBLAS_OP_T, b_turned = r->product.transb == CUBLAS_OP_T;
	int64_t k = (int64_t)r->k, depth = (k + (int64_t)r->parts - 1) / (int64_t)r->parts;
	float sum = 0;

	for (int64_t from = 0; from < k; from += depth) {
		float part = 0;

		for (int64_t l = from; l < k && l < from + depth; l++)
			part += element(r->a_at, r->a.type,
			                a_turned ? row * r->a.ld + l : l * r->a.ld + row) *
			        element(r->b_at, r->b.type, b_turned ? l * r->b.ld + col : col * r->b.ld + l);
		sum += part;
	}
	return sum;
}

static void run_keep(struct run *r)
{
	pthread_mutex_lock(&lock);
	r->next = queued;
	queued = r;
	pthread_mutex_unlock(&lock);
}

static void run_free(struct run *r)
{
	struct run **at = &queued;

	pthread_mutex_lock(&lock);
	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	pthread_mutex_unlock(&lock);
	free(r);
}

static void run_product(void *context)
{
	struct run *r = context;

	pthread_mutex_lock(&lock);
	if (r->workspace_bytes && workspace_in_use == r->workspace) {
		pthread_mutex_unlock(&lock);
		finding("two products at once in one workspace");
		pthread_mutex_lock(&lock);
	}
	workspace_in_use = r->workspace_bytes ? r->workspace : NULL;
	pthread_mutex_unlock(&lock);
	memset(r->workspace, 0xff, r->workspace_bytes); /* whoever keeps something there finds NaN */
	for (int64_t j = 0; j < (int64_t)r->d.cols; j++) {
		for (int64_t i = 0; i < (int64_t)r->d.rows; i++) {
			float sum = r->alpha * dot(r, i, j);

			if (r->beta != 0)
				sum += r->beta * element(r->c_at, r->d.type, j * r->d.ld + i);
			if (r->product.epilogue == CUBLASLT_EPILOGUE_BIAS)
				sum += element(r->product.bias, r->d.type, i);
			element_set(r->d_at, r->d.type, j * r->d.ld + i, sum);
		}
	}
	/* gaps between columns included: the emulator keeps few notes */
	simt_note_write(
	        r->d_at, ((size_t)(r->d.cols - 1) * (size_t)r->d.ld + r->d.rows) * type_bytes(r->d.type));
	pthread_mutex_lock(&lock);
	workspace_in_use = NULL;
	pthread_mutex_unlock(&lock);
	run_free(r);
}

/* All of a matrix lies in one allocation of device memory. */
static cublasStatus_t place_check(const void *at, const struct fake_layout *l)
{
	const void *base;
	int64_t bytes,
	        end = ((int64_t)(l->cols - 1) * l->ld + (int64_t)l->rows) * (int64_t)type_bytes(l->type);

	if (simt_runtime_find(at, &base, &bytes) && (const char *)at - (const char *)base + end <= bytes)
		return CUBLAS_STATUS_SUCCESS;
	return finding("a matrix of %lld bytes at %p lies outside device memory", (long long)end, at);
}

static cublasStatus_t alignment_check(const cublasLtMatmulAlgo_t *algo, const struct fake_product *p,
        const void *a, const void *b, const void *c, const void *d)
{
	const void *all[] = {a, b, c, d};

	for (int i = 0; i < 4; i++)
		if (!all[i] || (uintptr_t)all[i] % algo->data[2 + i])
			return finding("matrix %d at %p, of which an alignment of %d was promised", i, all[i],
			        (int)algo->data[2 + i]);
	if (p->epilogue == CUBLASLT_EPILOGUE_BIAS && (!p->bias || (uintptr_t)p->bias % algo->data[5]))
		return finding("bias at %p, aligned less than D", p->bias);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
        const void *a, cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
        const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
        cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo, void *workspace,
        size_t workspace_bytes, cudaStream_t stream)
{
	struct run *r;
	uint64_t k;
	cublasStatus_t status = shapes_check(desc, a_layout, b_layout, c_layout, d_layout, &k);

	if (!status && !handle)
		status = CUBLAS_STATUS_NOT_INITIALIZED;
	if (!status && algo->data[0] != described_hash(desc, a_layout, b_layout, c_layout, d_layout))
		status = finding("the algorithm is another product's");
	if (!status)
		status = alignment_check(algo, desc, a, b, c, d);
	if (!status)
		status = place_check(a, a_layout);
	if (!status)
		status = place_check(b, b_layout);
	if (!status)
		status = place_check(d, d_layout);
	if (!status && algo->data[1] > 1 &&
	        (!workspace || workspace_bytes < FAKE_WORKSPACE_BYTES || (uintptr_t)workspace % 256))
		status = finding("a workspace of %zu bytes at %p", workspace_bytes, workspace);
	if (!status && refuses(FAKE_REFUSE_MATMUL))
		return CUBLAS_STATUS_NOT_SUPPORTED;
	if (!status && refuses(FAKE_FAIL_MATMUL))
		return CUBLAS_STATUS_EXECUTION_FAILED;
	if (!status && refuses(FAKE_NO_MEMORY_MATMUL))
		return CUBLAS_STATUS_ALLOC_FAILED;
	r = status ? NULL : calloc(1, sizeof(*r));
	if (!r)
		return status ? status : CUBLAS_STATUS_ALLOC_FAILED;
	*r = (struct run){.product = *desc,
	        .a = *a_layout,
	        .b = *b_layout,
	        .d = *d_layout,
	        .k = k,
	        .parts = algo->data[1],
	        .a_at = a,
	        .b_at = b,
	        .c_at = c,
	        .d_at = d,
	        .alpha = *(const float *)alpha,
	        .beta = *(const float *)beta,
	        .workspace = workspace,
	        .workspace_bytes = algo->data[1] > 1 ? workspace_bytes : 0};
	pthread_mutex_lock(&lock);
	stats.matmul_count++;
	stats.algorithm = algo->data[0] ^ algo->data[1] << 60;
	pthread_mutex_unlock(&lock);
	run_keep(r);
	if (cudaLaunchHostFunc(stream, run_product, r) == cudaSuccess)
		return CUBLAS_STATUS_SUCCESS;
	run_free(r);
	return CUBLAS_STATUS_EXECUTION_FAILED;
}

static void __attribute__((constructor)) fake_install(void)
{
#define ADDRESS(function) (void *)(uintptr_t)function,
	static void *functions[] = {CUBLASLT_FUNCTIONS(ADDRESS)};

	cuda_library_replace(CUDA_LIBRARY_CUBLASLT, functions, (int)cublasLtGetVersion());
}
