/* Attention graphs with the real cuDNN, if it is installed, for a GPU described only by its properties.
 *
 * cuDNN checks every descriptor, accepts or refuses the graph, and names engines. It compiles engines only
 * with a driver; without one the test ends there. With the stub of a driver in a CUDA toolkit
 * (FERRY_DRIVER_STUB), it compiles engines but does not load them.
 */
#include "tests/check.h"

#include "base/mem.h"
#include "device/op.h"
#include "gpu/cuda_dnn_attention.h"
#include "gpu/cuda_library.h"

/* An H100, as cuDNN describes one. */
static const char h100[] =
        "{\"deviceVer\": 900, \"driverVer\": 13000, \"cudaDeviceId\": 0, \"multiProcessorCount\": 132,"
        " \"deviceName\": \"NVIDIA H100 80GB HBM3\", \"totalGlobalMem\": 85000000000, \"warpSize\": 32,"
        " \"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64],"
        " \"regsPerBlock\": 65536, \"maxSharedMemoryPerBlock\": 49152, \"maxRegistersPerSM\": 65536,"
        " \"maxSharedMemoryPerBlockOptin\": 232448, \"reservedSharedMemoryPerBlock\": 1024,"
        " \"maxCtasPerSM\": 32, \"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048,"
        " \"pciDeviceId\": 0, \"isTccDriver\": 0, \"supportCoopLaunch\": 1, \"l2CacheSize\": 52428800,"
        " \"smClockRateKHz\": 1980000, \"memClockRateKHz\": 2619000}";

static struct op attention(int is_grad, int64_t documents, int64_t tokens, int64_t heads, int64_t kv_heads,
        int64_t head_dim, int64_t window)
{
	int64_t qkv_stride = (heads + 2 * kv_heads) * head_dim;

	if (is_grad)
		return (struct op){.kind = OP_ATTENTION_GRAD,
		        .attention_grad = {.tokens = documents * tokens,
		                .documents = documents,
		                .document_tokens = tokens,
		                .heads = heads,
		                .kv_heads = kv_heads,
		                .head_dim = head_dim,
		                .window = window,
		                .qkv_stride = qkv_stride,
		                .q_head_stride = head_dim,
		                .kv_head_stride = head_dim,
		                .out_stride = heads * head_dim,
		                .scale = 0.1,
		                .dtype = DTYPE_BF16}};
	return (struct op){.kind = OP_ATTENTION,
	        .attention = {.tokens = documents * tokens,
	                .documents = documents,
	                .document_tokens = tokens,
	                .heads = heads,
	                .kv_heads = kv_heads,
	                .head_dim = head_dim,
	                .window = window,
	                .qkv_stride = qkv_stride,
	                .q_head_stride = head_dim,
	                .kv_head_stride = head_dim,
	                .out_stride = heads * head_dim,
	                .scale = 0.1,
	                .dtype = DTYPE_BF16}};
}

/* 1 where cuDNN is there and this build can use it. */
static int has_cudnn(void)
{
	char *text = cuda_library_describe(CUDA_LIBRARY_CUDNN);
	int has = text && !strstr(text, "not found") && !strstr(text, "not used");

	if (!has)
		print_message("SKIPPED cuDNN: %s\n", text ? text : "out of memory");
	mem_free(text);
	return has;
}

/* A plan; or every descriptor was taken, and engines could not be compiled here, or one that gives the same
 * bits each time was compiled, and is not for the GPU that is here. */
static void expect_taken(const struct op *op, const struct cuda_dnn_part *part)
{
	int64_t workspace_bytes = -1;
	int rc = cuda_dnn_attention_plan(&workspace_bytes, op, part, h100);

	if (!rc)
		assert_true(workspace_bytes >= 0);
	else if (rc != ERR_UNSUPPORTED || strstr(err_text(), " 0 of them deterministic") ||
	         !strstr(err_text(), "cuLibraryLoadData"))
		if (getenv("FERRY_DRIVER_STUB") || !strstr(err_text(), "libcuda"))
			fail_msg("%s", err_text());
}

static void test_graphs(void **state)
{
	static const int64_t shapes[][6] = {
	        {4, 4096, 32, 8, 128, 0}, {1, 1000, 12, 12, 64, 0}, {3, 777, 16, 2, 128, 256}};

	(void)state;
	if (!has_cudnn())
		skip();
	for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
		for (int is_grad = 0; is_grad < 2; is_grad++) {
			const int64_t *s = shapes[i];
			struct op op = attention(is_grad, s[0], s[1], s[2], s[3], s[4], s[5]);

			expect_taken(&op, NULL);
			/* a kv head of one document, in memory that holds them all; engines take their time
			 * to compile */
			if (!i)
				expect_taken(&op, &(struct cuda_dnn_part){1, 1});
		}
}

/* What cuDNN does not take is said, not made. */
static void test_refused(void **state)
{
	struct op op = attention(0, 1, 64, 4, 3, 64, 0); /* heads that cannot be shared */
	int64_t workspace_bytes;

	(void)state;
	if (!has_cudnn())
		skip();
	assert_int_equal(cuda_dnn_attention_plan(&workspace_bytes, &op, NULL, h100), ERR_UNSUPPORTED);
	for (int n = 0; n < 3; n++) { /* nothing of an op is left out in silence */
		op = attention(0, 1, 64, 4, 4, 64, 0);
		op.attention.mask = n == 0 ? MASK_BIDIRECTIONAL : MASK_CAUSAL;
		op.attention.score_cap = n == 1 ? 30 : 0;
		op.attention.sink.value = n == 2 ? 4096 : 0;
		check_fails(cuda_dnn_attention_plan(&workspace_bytes, &op, NULL, h100), ERR_UNSUPPORTED,
		        "is causal");
	}
	op = attention(0, 1, 64, 4, 4, 64, 0);
	check_fails(cuda_dnn_attention_plan(&workspace_bytes, &op, NULL, "{}"), ERR_UNSUPPORTED,
	        "the properties of a GPU");
}

/* Without the wish there is nothing to open, and nothing takes ops. */
static void test_not_wished(void **state)
{
	const struct op op = attention(0, 1, 64, 4, 4, 64, 0);
	struct cuda_dnn *dnn;

	(void)state;
	check_ok(cuda_dnn_open(&dnn, DEVICE_ATTENTION_FERRY, NULL, 0));
	assert_null(dnn);
	assert_int_equal(cuda_dnn_attention(dnn, NULL, &op), 1);
	cuda_dnn_close(dnn);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_graphs),
	        cmocka_unit_test(test_refused),
	        cmocka_unit_test(test_not_wished),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
