/* Opens a device for measuring, with an arena of random numbers, and measures the machine's limits. */
#include "bench/rig.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/num.h"
#include "device/backend.h"

enum { ROUNDS_MAX = 32, CALLS_MAX = 256, PIECE_BYTES = 8 << 20, CALIBRATE_CALLS = 4 };

void bench_scale_init(struct bench_scale *scale, enum device_kind kind, int64_t tokens)
{
	static const struct bench_scale cpu = {512, 256, 768, 12, 4, 64, 2048, 32000, INT64_C(64) << 20,
	        INT64_C(48) << 20, 1024, 0.01, 5, {0, 0}};
	static const struct bench_scale gpu = {8192, 4096, 4096, 32, 8, 128, 14336, 128256,
	        INT64_C(512) << 20, INT64_C(256) << 20, 8192, 0.004, 7, {0, 0}};
	static const struct bench_scale tiny = {
	        32, 16, 64, 4, 2, 32, 96, 320, 1 << 16, 1 << 12, 64, 0, 2, {0, 0}};

	if (tokens > 0 && tokens < BENCH_TINY_TOKENS)
		*scale = tiny;
	else
		*scale = device_facts_of(kind)->is_host ? cpu : gpu;
	scale->piece = device_facts_of(kind)->piece;
	if (tokens > 0)
		scale->tokens = tokens;
	if (scale->document_tokens > scale->tokens)
		scale->document_tokens = scale->tokens;
}

int bench_device_open(struct device **device, const struct bench_args *args, struct pool *pool)
{
	const struct device_options o = {.pool = pool,
	        .threads = args->threads,
	        .host_copy_gbps = args->copy_gbps,
	        .attention = args->attention};

	int rc;

	device_register(&backend_host);
	rc = device_open(device, args->device ? args->device : "host", &o);
	if (!rc && o.attention == DEVICE_ATTENTION_CUDNN && device_kind_of(*device) != DEVICE_CUDA) {
		device_close(*device);
		*device = NULL;
		rc = err_set(ERR_INPUT, "attention=cudnn: no GPU computes here; leave it out");
	}
	return rc;
}

int bench_device_find(enum device_kind *kind, const struct bench_args *args, struct pool *pool)
{
	struct device *device = NULL;
	int rc = bench_device_open(&device, args, pool);

	if (!rc)
		*kind = device_kind_of(device);
	device_close(device);
	return rc;
}

/* ---- random contents ---- */

/* Copies one piece from the host, then doubles it on the device. Copies start at shifted offsets, so that no
 * two rows of a matrix are alike. */
static int random_fill(struct bench_rig *rig, dev_addr base, int64_t bytes)
{
	int64_t piece = bytes < PIECE_BYTES ? bytes : PIECE_BYTES, done = piece;
	uint16_t *numbers = mem_alloc(PIECE_BYTES / 2, sizeof(*numbers));
	uint64_t random = 1;
	int rc = numbers ? 0 : ERR_NOMEM;

	if (rc)
		return rc;
	for (int64_t i = 0; i < piece / 2; i++) {
		random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		numbers[i] = (uint16_t)(f32_bits((float)(int32_t)(random >> 32) * 0x1p-31f) >> 16);
	}
	rc = stream_copy_in(rig->stream, base, numbers, piece);
	while (!rc && done < bytes) {
		int64_t more = done - 512 > 512 ? done - 512 : done; /* skewed by 512 bytes */
		struct op op = {.kind = OP_COPY};

		more = more < bytes - done ? more : bytes - done;
		op.copy = (struct op_copy){dev_at(base, done), base, more};
		if (done - 512 > 512)
			op.copy.src = dev_at(base, 512);
		rc = stream_op(rig->stream, &op);
		done += more;
	}
	if (!rc)
		rc = stream_sync(rig->stream);
	mem_free(numbers);
	return rc;
}

/* ---- the rig ---- */

/* Places the factors in the copy's source, and the product in its destination. */
static int64_t limits_set(struct bench_rig *rig, enum dtype dtype)
{
	int64_t side = rig->scale.product_side, factor = side * side * dtype_bytes(dtype),
	        half = rig->scale.copy_bytes;

	if (half < 2 * factor)
		half = 2 * factor;
	rig->copy.kind = OP_COPY;
	rig->copy.copy = (struct op_copy){dev_at(rig->limits, half), rig->limits, rig->scale.copy_bytes};
	rig->product.kind = OP_MATMUL;
	rig->product.matmul = (struct op_matmul){
	        .a = rig->limits,
	        .b = dev_at(rig->limits, factor),
	        .c = dev_at(rig->limits, half),
	        .m = side,
	        .n = side,
	        .k = side,
	        .a_stride = side,
	        .b_stride = side,
	        .c_stride = side,
	        .b_layout = MATMUL_TRANSPOSED,
	        .ab_dtype = dtype,
	        .c_dtype = dtype,
	};
	return 2 * half;
}

int bench_rig_open(struct bench_rig *rig, const struct bench_args *args, struct pool *pool, int64_t tokens,
        enum dtype product_dtype)
{
	int rc;

	*rig = (struct bench_rig){.product_dtype = product_dtype};
	rc = bench_device_open(&rig->device, args, pool);
	if (!rc)
		rc = stream_open(&rig->stream, rig->device, QUEUE_COMPUTE);
	if (!rc)
		bench_scale_init(&rig->scale, device_kind_of(rig->device), tokens);
	return rc;
}

int bench_rig_fill(struct bench_rig *rig, int64_t work_bytes)
{
	int64_t limits_bytes = limits_set(rig, rig->product_dtype);
	int rc = device_arena_open(rig->device, &rig->limits, limits_bytes + work_bytes);

	if (rc)
		return rc;
	limits_set(rig, rig->product_dtype);
	rig->work = dev_at(rig->limits, limits_bytes);
	rc = random_fill(rig, rig->limits, limits_bytes + work_bytes);
	if (!rc)
		rc = bench_rig_calls(rig, &rig->copy_calls, &rig->copy, 1);
	return rc ? rc : bench_rig_calls(rig, &rig->product_calls, &rig->product, 1);
}

void bench_rig_close(struct bench_rig *rig)
{
	stream_close(rig->stream);
	device_close(rig->device);
	rig->stream = NULL;
	rig->device = NULL;
}

/* ---- time ---- */

int bench_rig_time(struct bench_rig *rig, double *seconds, const struct op *ops, int op_count, int calls)
{
	int64_t begin_ns, end_ns;
	int rc = stream_stamp(rig->stream, &begin_ns);

	for (int i = 0; i < calls && !rc; i++)
		rc = stream_op(rig->stream, &ops[i % op_count]);
	if (!rc)
		rc = stream_stamp(rig->stream, &end_ns);
	if (!rc)
		rc = stream_sync(rig->stream);
	else
		stream_sync(rig->stream); /* the stream still writes the stamps */
	if (!rc)
		*seconds = (double)(end_ns - begin_ns) * 1e-9 / calls;
	return rc;
}

int bench_rig_calls(struct bench_rig *rig, int *calls, const struct op *ops, int op_count)
{
	int first = op_count > CALIBRATE_CALLS ? op_count : CALIBRATE_CALLS;
	double seconds = 0;
	int rc;

	*calls = op_count;
	rc = bench_rig_time(rig, &seconds, ops, op_count, op_count); /* libraries choose algorithms */
	if (!rc && rig->scale.batch_s > 0 && seconds * first < rig->scale.batch_s)
		rc = bench_rig_time(rig, &seconds, ops, op_count, first);
	if (rc)
		return rc;
	if (rig->scale.batch_s > seconds * op_count)
		*calls = seconds * CALLS_MAX > rig->scale.batch_s ? (int)(rig->scale.batch_s / seconds) + 1
		                                                  : CALLS_MAX;
	if (*calls < op_count)
		*calls = op_count;
	return 0;
}

static int rate_of(struct bench_rig *rig, double *per_s, const struct op *op, int calls, double work)
{
	double seconds = 0;
	int rc = bench_rig_time(rig, &seconds, op, 1, calls);

	*per_s = seconds > 0 ? work / seconds : 0;
	return rc;
}

int bench_rig_copy_rate(struct bench_rig *rig, double *bytes_per_s)
{
	return rate_of(rig, bytes_per_s, &rig->copy, rig->copy_calls, 2.0 * (double)rig->scale.copy_bytes);
}

int bench_rig_product_rate(struct bench_rig *rig, double *flops_per_s)
{
	double side = (double)rig->scale.product_side;

	return rate_of(rig, flops_per_s, &rig->product, rig->product_calls, 2 * side * side * side);
}

int bench_limits_measure(struct bench_limits *limits, const struct bench_args *args, struct pool *pool,
        int64_t tokens, enum dtype product_dtype)
{
	double copy[ROUNDS_MAX], product[ROUNDS_MAX];
	struct bench_rig rig;
	int rc = bench_rig_open(&rig, args, pool, tokens, product_dtype);

	if (!rc)
		rc = bench_rig_fill(&rig, 0);
	for (int i = -1; i < rig.scale.rounds && !rc; i++) { /* the first is a warm-up */
		rc = bench_rig_copy_rate(&rig, &copy[i < 0 ? 0 : i]);
		if (!rc)
			rc = bench_rig_product_rate(&rig, &product[i < 0 ? 0 : i]);
	}
	if (!rc)
		*limits = (struct bench_limits){
		        bench_median(copy, rig.scale.rounds), bench_median(product, rig.scale.rounds)};
	bench_rig_close(&rig);
	return rc;
}
