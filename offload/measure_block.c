/* A block's forward and backward, on the device and on the clock. */
#include "base/err.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/size.h"
#include "offload/measure.h"

#include <math.h>

enum {
	ALIGN_BYTES = 256,
	CUTS = 40,
	REPEATS = 2,
	FIT_ROUNDS = 30,
	TOKENS_MIN = 64,
	COLUMNS_MIN = 128,
	COLUMNS_STEP = 64
};

static const double FIRST_FLOPS = 4e7, BLOCK_S = 0.025;
static const int64_t MOST_BYTES_HOST = INT64_C(192) << 20, MOST_BYTES = INT64_C(2) << 30,
                     COPIES_BYTES = INT64_C(128) << 20;

/* The first block of a model, cut or not, and where its buffers are. */
struct block {
	struct model model; /* a copy of the model's, but for the numbers of its config */
	enum dtype dtype;
	int64_t tokens, document_tokens, divisor;
	int64_t bytes;
	dev_addr base, batch[3];
	struct stage_memory memory;
	dev_addr *weight, *grad; /* per tensor */
};

static int in_block(const struct block *b, int tensor)
{
	return b->model.tensors[tensor].layer == 0;
}

static dev_addr take(struct block *b, int64_t bytes)
{
	dev_addr at = dev_at(b->base, b->bytes);

	b->bytes = round_up(b->bytes + (bytes ? bytes : 1), ALIGN_BYTES);
	return at;
}

static int64_t scratch_bytes(const struct block *b)
{
	int64_t most = 0;

	for (int i = 0; i < b->model.stage_count; i++) {
		int64_t bytes = b->model.stages[i].layer
		                        ? 0
		                        : model_scratch_bytes(
		                                  &b->model, b->model.stages[i].kind, b->dtype, b->tokens, 0);

		most = bytes > most ? bytes : most;
	}
	return most;
}

/* Both dimensions of a matrix are cut; of a vector it does not matter. */
static int64_t tensor_count(const struct block *b, int tensor)
{
	const struct model_tensor *t = &b->model.tensors[tensor];

	return t->rank == 2 ? t->count / (b->divisor * b->divisor) : t->count;
}

static void block_lay(struct block *b, dev_addr base)
{
	int64_t element = dtype_bytes(b->dtype), stream = b->tokens * b->model.config.C * element;

	b->base = base;
	b->bytes = 0;
	for (int t = 0; t < b->model.tensor_count; t++) {
		if (!in_block(b, t))
			continue;
		b->weight[t] = take(b, tensor_count(b, t) * element);
		b->grad[t] = take(b, tensor_count(b, t) * 4);
	}
	for (int i = 0; i < 3; i++)
		b->batch[i] = take(b, b->tokens * 4);
	b->memory = (struct stage_memory){.dtype = b->dtype,
	        .weight = b->weight,
	        .grad = b->grad,
	        .x = take(b, stream),
	        .y = take(b, stream),
	        .dx = take(b, stream),
	        .acts = take(b, model_acts_bytes(&b->model, b->dtype, b->tokens)),
	        .scratch = take(b, scratch_bytes(b)),
	        .rope_table = take(b, 4 * model_rope_table_count(&b->model, b->document_tokens)),
	        .rope_positions = b->document_tokens,
	        .grad_scale = 1};
}

static double block_flops(const struct block *b)
{
	const struct model_config *c = &b->model.config;
	double tokens = (double)b->tokens, matrices = 0;

	for (int t = 0; t < b->model.tensor_count; t++)
		if (in_block(b, t) && b->model.tensors[t].rank == 2)
			matrices += (double)tensor_count(b, t);
	return 6 * tokens * matrices + 7 * tokens * (double)(b->document_tokens * c->H * c->D);
}

static int divides(const struct model_config *c, int64_t divisor)
{
	return !(c->C % (divisor * COLUMNS_STEP) || c->F % (divisor * COLUMNS_STEP) || c->H % divisor ||
	               c->KV % divisor) &&
	       c->C / divisor >= COLUMNS_MIN;
}

/* Tokens, and documents with them, and columns are halved in turn, as far as either can be; so attention
 * keeps its part of the whole. */
static void block_cut(struct block *b, const struct engine_options *o, int cut)
{
	const struct model_config *whole = &o->model->config;
	struct model_config *c = &b->model.config;

	b->tokens = o->train.max_tokens;
	b->document_tokens = b->tokens < o->policy.rope_positions ? b->tokens : o->policy.rope_positions;
	b->divisor = 1;
	for (int i = 0; i < cut; i++)
		if (i % 2 && divides(whole, 2 * b->divisor))
			b->divisor *= 2;
		else if (i % 2 == 0 && b->tokens >= 2 * TOKENS_MIN) {
			b->tokens /= 2;
			b->document_tokens = (b->document_tokens + 1) / 2;
		}
	*c = *whole;
	c->C /= b->divisor;
	c->F /= b->divisor;
	c->H /= b->divisor;
	c->KV /= b->divisor;
	block_lay(b, DEV_NONE);
}

/* The least cut from `first` on with no more arithmetic and memory than that; CUTS: none has. */
static int cut_find(struct block *b, const struct engine_options *o, int first, double flops, int64_t bytes)
{
	int cut = first;

	for (; cut < CUTS; cut++) {
		block_cut(b, o, cut);
		if (b->bytes <= bytes && block_flops(b) <= flops)
			break;
	}
	return cut;
}

static int block_queue(const struct block *b, struct stream *q)
{
	const struct device_batch batch = {.tokens = b->tokens,
	        .documents = (b->tokens + b->document_tokens - 1) / b->document_tokens,
	        .position = b->batch[0],
	        .doc_start = b->batch[1],
	        .doc_end = b->batch[2]};
	int rc = 0;

	for (int i = 0; i < b->model.stage_count && !rc; i++)
		if (b->model.stages[i].layer == 0)
			rc = model_forward(&b->model, i, q, &b->memory, &batch);
	for (int i = b->model.stage_count - 1; i >= 0 && !rc; i--)
		if (b->model.stages[i].layer == 0)
			rc = model_backward(&b->model, i, q, &b->memory, &batch);
	return rc;
}

/* ---- on the device ---- */

/* Small numbers of either sign: a GPU that multiplies zeros is faster than one that works. */
static void numbers_draw(uint16_t *numbers, int64_t count)
{
	uint64_t random = 1;

	for (int64_t i = 0; i < count; i++) {
		random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		numbers[i] = plane_hi(f32_bits((float)(int32_t)(random >> 32) * 0x1p-36f));
	}
}

/* One piece from the host, then copies of what is there, twice as much each time. */
static int numbers_write(dev_addr base, int64_t bytes, struct stream *q)
{
	enum { PIECE_BYTES = 1 << 18 };
	int64_t done = bytes < PIECE_BYTES ? bytes : PIECE_BYTES;
	uint16_t *numbers = mem_alloc(PIECE_BYTES / 2, sizeof(*numbers));
	int rc = numbers ? 0 : ERR_NOMEM;

	if (!rc) {
		numbers_draw(numbers, done / 2);
		rc = stream_copy_in(q, base, numbers, done);
	}
	while (!rc && done < bytes) {
		int64_t more = done < bytes - done ? done : bytes - done;
		struct op op = {.kind = OP_COPY, .copy = {dev_at(base, done), base, more}};

		rc = stream_op(q, &op);
		done += more;
	}
	if (!rc)
		rc = stream_sync(q);
	else
		stream_sync(q);
	mem_free(numbers);
	return rc;
}

/* Documents as long as they can be. */
static int batch_write(const struct block *b, struct stream *q)
{
	int32_t *values = mem_alloc(3 * (size_t)b->tokens, sizeof(*values));
	int rc = values ? 0 : ERR_NOMEM;

	for (int64_t i = 0; i < b->tokens && !rc; i++) {
		int64_t position = i % b->document_tokens, start = i - position,
		        end = start + b->document_tokens;

		values[i] = (int32_t)position;
		values[b->tokens + i] = (int32_t)start;
		values[2 * b->tokens + i] = (int32_t)(end < b->tokens ? end : b->tokens);
	}
	for (int i = 0; i < 3 && !rc; i++)
		rc = stream_copy_in(q, b->batch[i], values + i * b->tokens, 4 * b->tokens);
	if (!rc)
		rc = stream_sync(q);
	else
		stream_sync(q);
	mem_free(values);
	return rc;
}

static int block_time(double *seconds, const struct block *b, struct stream *q)
{
	struct measure_span span;
	int rc = measure_begin(&span, q);

	return measure_end(seconds, &span, rc ? rc : block_queue(b, q));
}

/* The first time, libraries choose their ways. Where that takes long already it has to do. Each time has
 * weights and gradients of its own, as far as there is room: in a step they come from memory, not from a
 * cache. */
static int block_run(double *seconds, struct block *b, struct device *device, int repeats, int64_t most_bytes)
{
	int64_t bytes = b->bytes, room = most_bytes < COPIES_BYTES ? most_bytes : COPIES_BYTES;
	int64_t copies = room < bytes ? 1 : room / bytes < repeats + 1 ? room / bytes : repeats + 1;
	struct stream *q = NULL;
	dev_addr base;
	int rc = device_arena_open(device, &base, copies * bytes);

	if (rc)
		return rc;
	rc = stream_open(&q, device, QUEUE_COMPUTE);
	if (!rc)
		rc = numbers_write(base, copies * bytes, q);
	for (int i = 0; i <= repeats && !rc && (!i || *seconds < 4 * BLOCK_S); i++) {
		double again;

		block_lay(b, dev_at(base, i % copies * bytes));
		rc = batch_write(b, q);
		if (!rc)
			rc = block_time(&again, b, q);
		*seconds = rc ? 0 : i ? fmin(*seconds, again) : again;
	}
	stream_close(q);
	device_arena_close(device);
	return rc;
}

/* From little to as much as takes BLOCK_S, or to all of it. *seconds 0: there is no memory for any. */
static int block_measure(double *seconds, struct block *b, const struct engine_options *o, int64_t most_bytes)
{
	double flops = FIRST_FLOPS, spent_s = 0;
	int cut = CUTS, rc = 0;

	*seconds = 0;
	do {
		int next = cut_find(b, o, 0, flops, most_bytes);

		if (next == CUTS && cut == CUTS) /* even the least is more: as little as there is */
			next = cut_find(b, o, CUTS - 1, INFINITY, most_bytes);
		if (next >= cut)
			break;
		cut = next;
		rc = block_run(seconds, b, o->device, 1, most_bytes);
		if (rc)
			return rc;
		flops = block_flops(b) / *seconds * BLOCK_S;
		spent_s += *seconds;
	} while (cut && *seconds < BLOCK_S / 3 && spent_s < BLOCK_S);
	if (cut == CUTS)
		return 0;
	block_cut(b, o, cut);
	return *seconds < 2 * BLOCK_S ? block_run(seconds, b, o->device, REPEATS, most_bytes) : 0;
}

/* ---- on the clock ---- */

static int block_predict(double *seconds, double *flops, struct block *b, const struct device_speed *speed)
{
	const struct device_options options = {.speed = *speed};
	struct device *device = NULL;
	struct stream *q = NULL;
	struct device_stats stats;
	struct stream_work work;
	dev_addr base;
	int rc = device_open(&device, "meta", &options);

	if (!rc)
		rc = device_arena_open(device, &base, b->bytes);
	if (!rc)
		rc = stream_open(&q, device, QUEUE_COMPUTE);
	if (!rc) {
		block_lay(b, base);
		rc = block_queue(b, q);
	}
	if (!rc) {
		stream_get_work(q, &work);
		device_get_stats(device, &stats);
		*seconds = 1e-9 * (double)work.alone_ns;
		*flops = stats.flops;
	}
	stream_close(q);
	device_close(device);
	return rc;
}

/* By halving, from the rate at which nothing but products takes time. Where passes over memory alone take
 * longer on the clock than all of it did, because here they stay within caches, the rate stays near that. */
static int rate_fit(struct device_speed *speed, struct block *b, double measured_s)
{
	double predicted_s, flops, slow, fast;
	int rc = block_predict(&predicted_s, &flops, b, speed);

	slow = rc ? 0 : flops / measured_s;
	fast = 4 * slow;
	for (int i = 0; i < FIT_ROUNDS && !rc; i++) {
		double middle = 0.5 * (slow + fast);

		speed->matmul_flops_bf16 = speed->matmul_flops_f32 = middle;
		rc = block_predict(&predicted_s, &flops, b, speed);
		*(predicted_s > measured_s ? &slow : &fast) = middle;
	}
	return rc;
}

int measure_block(struct device_speed *speed, const struct engine_options *o, int64_t host_bytes)
{
	struct block b = {.model = *o->model, .dtype = o->policy.compute_dtype};
	int64_t most_bytes = speed->host_computes ? MOST_BYTES_HOST : MOST_BYTES;
	double seconds = 0;
	int rc;

	if (o->device_budget_bytes > 0 && o->device_budget_bytes < most_bytes)
		most_bytes = o->device_budget_bytes;
	if (speed->host_computes && host_bytes && host_bytes < most_bytes)
		most_bytes = host_bytes;
	b.weight = mem_alloc((size_t)b.model.tensor_count, sizeof(*b.weight));
	b.grad = mem_alloc((size_t)b.model.tensor_count, sizeof(*b.grad));
	rc = b.weight && b.grad ? 0 : ERR_NOMEM;
	if (!rc)
		rc = block_measure(&seconds, &b, o, most_bytes);
	if (!rc && !(seconds > 0))
		rc = err_set(ERR_FIT, "too little memory to measure a block in");
	if (!rc)
		rc = rate_fit(speed, &b, seconds);
	mem_free(b.weight);
	mem_free(b.grad);
	return rc;
}
