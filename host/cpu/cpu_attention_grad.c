/* Attention backward, by blocks of queries and keys. */
#include "device/op_attention.h"
#include "host/cpu/attention.h"
#include "host/cpu/matmul.h"

#include "base/err.h"

#include <math.h>
#include <string.h>

OP_ATTENTION_LIST(CPU_DECLARE)

/* Probabilities are recomputed from lse. A tile of queries and keys adds to dq of the queries and to dk and
 * dv of the keys. If each worker has kv heads of its own, one pass computes each tile once, in order of keys.
 * Else two passes compute it twice: one over blocks of queries for dq, one over blocks of keys for dk and dv.
 * Both ways have the same tiles and order of sums, so the number of workers changes no bit.
 *
 * With p = exp(scale q.k - lse), delta = sum(dout * out):  dv = p^T dout, ds = p (dout v^T - delta) scale,
 * dq = ds k,  dk = ds^T q. If a score is s = cap tanh(scale q.k / cap), ds has the factor 1 - (s / cap)^2
 * too. A sink has p = exp(sink - lse) in each row and no value, hence dsink = -sum(p delta). The gradient of
 * the bias of a distance is the sum of ds / scale over its pairs. One worker adds those of a head, in the
 * order of one pass; beside two passes that is a third. */
struct attention_grad_run {
	struct op_attention_grad op;
	struct attention_keys seen;
	float *delta; /* [tokens, heads], the op's scratch */
	int64_t q_blocks, k_blocks;
	float *scratch;
	int64_t scratch_count;
	const struct attention_bf16 *bf16; /* NULL: rows are widened */
	int is_one_pass;
};

/* A worker's scratch: two score tiles, rows of q, dout, k and v, and sums. Rows are fp32. If run->bf16 is set
 * they are bf16, and packed rows of k and v follow them. */
struct grad_buffers {
	float *p, *ds, *q, *dout, *k, *v;
	float *sums;  /* dk and dv of a block of keys, or dq of a block of queries; in one pass dq, dk and dv
	                of a head */
	float *dbias; /* of the tile's head, where distance 0 lies; NULL: not wanted */
};

/* One side of a tile: rows of q and dout of a query head, or of k and v. bf16 if run->bf16 is set, else fp32.
 */
struct rows {
	const void *x, *y;
	int64_t x_stride, y_stride, begin, count;
	int64_t first; /* of keys: no query of the tile sees earlier ones */
};

static void grad_buffers_init(struct grad_buffers *b, const struct attention_grad_run *run, int worker)
{
	int64_t d = run->op.head_dim;

	b->p = run->scratch + run->scratch_count * worker;
	b->ds = b->p + ATTENTION_Q * ATTENTION_K;
	b->k = b->ds + ATTENTION_Q * ATTENTION_K;
	b->v = b->k + ATTENTION_K * d;
	b->q = b->v + ATTENTION_K * d;
	b->dout = b->q + ATTENTION_Q * d;
	b->sums = b->dout + ATTENTION_Q * d;
	b->dbias = NULL;
}

/* Loads rows of a head for the products. bf16 rows are copied next to each other, because rows at a distance
 * of a multiple of 512 bytes share too few lines of the cache. */
static const void *load(const struct attention_grad_run *run, float *buffer, int64_t *to_stride, dev_addr x,
        int64_t at, int64_t stride, int64_t count)
{
	int64_t d = run->op.head_dim;
	uint16_t *to = (uint16_t *)buffer;

	if (!run->bf16)
		return attention_load(
		        cpu_kernels(), buffer, to_stride, cpu_ptr(x), at, stride, count, d, run->op.dtype);
	for (int64_t r = 0; r < count; r++)
		memcpy(to + r * d, (const uint16_t *)cpu_ptr(x) + at + r * stride, (size_t)d * sizeof *to);
	*to_stride = d;
	return to;
}

/* Packed rows follow the rows. */
static uint32_t *packed_rows(const struct attention_grad_run *run, float *buffer)
{
	return (uint32_t *)buffer + ATTENTION_K * run->op.head_dim / 2;
}

static void load_queries(struct rows *rows, const struct attention_grad_run *run, struct grad_buffers *b,
        int64_t h, int64_t q0)
{
	const struct op_attention_grad *o = &run->op;

	rows->begin = q0;
	rows->count = min_i64(ATTENTION_Q, o->tokens - q0);
	rows->x = load(run, b->q, &rows->x_stride, o->q, q0 * o->qkv_stride + h * o->q_head_stride,
	        o->qkv_stride, rows->count);
	rows->y = load(run, b->dout, &rows->y_stride, o->dout, q0 * o->out_stride + h * o->head_dim,
	        o->out_stride, rows->count);
}

static void load_keys(struct rows *rows, const struct attention_grad_run *run, struct grad_buffers *b,
        int64_t g, int64_t k0)
{
	const struct op_attention_grad *o = &run->op;
	int64_t at = k0 * o->qkv_stride + g * o->kv_head_stride;

	rows->begin = k0;
	rows->count = min_i64(ATTENTION_K, o->tokens - k0);
	rows->x = load(run, b->k, &rows->x_stride, o->k, at, o->qkv_stride, rows->count);
	rows->y = load(run, b->v, &rows->y_stride, o->v, at, o->qkv_stride, rows->count);
	if (run->bf16) {
		run->bf16->pack(packed_rows(run, b->k), rows->x, rows->x_stride, rows->count, o->head_dim);
		run->bf16->pack(packed_rows(run, b->v), rows->y, rows->y_stride, rows->count, o->head_dim);
	}
}

static const void *row_at(const struct attention_grad_run *run, const void *x, int64_t stride, int64_t row)
{
	return (const char *)x + row * stride * (run->bf16 ? 2 : 4);
}

/* Reduces a block to the keys that the queries see, from a multiple of 16 on. Returns 0 if there are none. */
static int keys_clip(struct rows *seen, const struct attention_grad_run *run, const struct rows *keys,
        const struct rows *queries)
{
	int64_t first = attention_first_key(&run->seen, queries->begin) - keys->begin;
	int64_t end = attention_key_end(&run->seen, queries->begin + queries->count - 1) - keys->begin;

	*seen = *keys;
	seen->first = first > 0 ? first / 16 * 16 : 0;
	seen->count = min_i64(keys->count, end);
	return seen->first < seen->count;
}

/* Computes the scores of one tile in p, and dout v^T in ds. */
static void grad_products(const struct attention_grad_run *run, struct grad_buffers *b,
        const struct rows *queries, const struct rows *keys)
{
	const struct op_attention_grad *o = &run->op;
	int64_t first = keys->first, n = keys->count - first;

	if (run->bf16) {
		run->bf16->scores(b->p + first, queries->x, queries->x_stride, packed_rows(run, b->k) + first,
		        queries->count, n, o->head_dim, (float)o->scale);
		run->bf16->scores(b->ds + first, queries->y, queries->y_stride,
		        packed_rows(run, b->v) + first, queries->count, n, o->head_dim, 1);
		return;
	}
	cpu_sgemm(b->p + first, queries->x, row_at(run, keys->x, keys->x_stride, first), queries->count, n,
	        o->head_dim, ATTENTION_K, queries->x_stride, keys->x_stride, MATMUL_NORMAL, MATMUL_TRANSPOSED,
	        (float)o->scale, 0);
	cpu_sgemm(b->ds + first, queries->y, row_at(run, keys->y, keys->y_stride, first), queries->count, n,
	        o->head_dim, ATTENTION_K, queries->y_stride, keys->y_stride, MATMUL_NORMAL, MATMUL_TRANSPOSED,
	        1, 0);
}

/* sum[m][head_dim] += op(tile) x. The tile is [n][ATTENTION_K] with MATMUL_TRANSPOSED, else [m][ATTENTION_K].
 */
static void grad_add(const struct attention_grad_run *run, float *sum, const float *tile,
        enum matmul_layout layout, const void *x, int64_t x_stride, int64_t m, int64_t n)
{
	int64_t d = run->op.head_dim;

	if (run->bf16)
		run->bf16->add(sum, tile, layout == MATMUL_NORMAL ? ATTENTION_K : 1,
		        layout == MATMUL_NORMAL ? 1 : ATTENTION_K, x, x_stride, m, n, d);
	else
		cpu_sgemm(sum, tile, x, m, d, n, d, ATTENTION_K, x_stride, layout, MATMUL_NORMAL, 1, 1);
}

/* Adds the gradients of scores to those of the bias, from distance `first` on. */
static void bias_add(
        const struct grad_buffers *b, const float *ds, int64_t first, int64_t count, double factor)
{
	for (int64_t n = 0; b->dbias && n < count; n++)
		b->dbias[first + n] += ds[n] * (float)factor;
}

/* Where the gradient of the bias of head h has distance 0; NULL: it is not wanted. */
static float *dbias_of(const struct op_attention_grad *o, int64_t h)
{
	return dev_is_none(o->dbias) ? NULL : (float *)cpu_ptr(o->dbias) + (2 * h + 1) * o->tokens;
}

/* Computes p and ds of one tile [queries, ATTENTION_K], from keys->first on. Both are 0 where a query does
 * not see a key. */
static void grad_tile(const struct attention_grad_run *run, struct grad_buffers *b,
        const struct rows *queries, const struct rows *keys, int64_t h)
{
	const struct op_attention_grad *o = &run->op;
	const struct cpu_kernels *k = cpu_kernels();
	const float *lse = cpu_ptr(o->lse);
	float cap = (float)o->score_cap, capped[ATTENTION_K];

	grad_products(run, b, queries, keys);
	for (int64_t i = 0; i < queries->count; i++) {
		float *p = b->p + i * ATTENTION_K, *ds = b->ds + i * ATTENTION_K;
		int64_t begin, end, at = (queries->begin + i) * o->heads + h, in_front;

		attention_columns(&run->seen, &begin, &end, queries->begin + i, keys->begin, keys->count);
		if (begin == end)
			begin = end = keys->first;
		in_front = (begin - keys->first) * (int64_t)sizeof *p;
		memset(p + keys->first, 0, (size_t)in_front);
		memset(ds + keys->first, 0, (size_t)in_front);
		if (cap > 0) {
			k->soft_cap(p + begin, p + begin, cap, end - begin);
			memcpy(capped, p + begin, (size_t)(end - begin) * sizeof *p);
		}
		attention_add_bias(k, p + begin, o->bias, o->tokens, h, queries->begin + i,
		        keys->begin + begin, end - begin, o->dtype);
		k->exp_scaled(p + begin, p + begin, lse[at], 1, end - begin);
		k->softmax_grad(
		        ds + begin, p + begin, ds + begin, run->delta[at], (float)o->scale, end - begin);
		if (cap > 0)
			k->soft_cap_grad(ds + begin, capped, cap, end - begin);
		bias_add(b, ds + begin, keys->begin + begin - queries->begin - i, end - begin, 1 / o->scale);
		memset(p + end, 0, (size_t)(keys->count - end) * sizeof *p);
		memset(ds + end, 0, (size_t)(keys->count - end) * sizeof *ds);
	}
}

static void grad_store(
        const struct op_attention_grad *o, dev_addr dst, int64_t at, const float *value, int64_t rows)
{
	const struct cpu_kernels *k = cpu_kernels();

	for (int64_t r = 0; r < rows; r++, at += o->qkv_stride, value += o->head_dim) {
		if (o->dtype == DTYPE_F32)
			memcpy((float *)cpu_ptr(dst) + at, value, (size_t)o->head_dim * sizeof *value);
		cpu_store(k, cpu_ptr(dst), at, value, o->head_dim, o->dtype);
	}
}

static void delta_piece(void *context, int64_t block, int worker)
{
	const struct attention_grad_run *run = context;
	const struct op_attention_grad *o = &run->op;
	const struct cpu_kernels *k = cpu_kernels();
	int64_t d = o->head_dim, end = min_i64((block + 1) * ATTENTION_Q, o->tokens);
	struct grad_buffers b;

	grad_buffers_init(&b, run, worker);
	for (int64_t t = block * ATTENTION_Q; t < end; t++)
		for (int64_t h = 0; h < o->heads; h++) {
			int64_t at = t * o->out_stride + h * d;

			run->delta[t * o->heads + h] =
			        (float)k->dot(cpu_load(k, b.q, cpu_ptr(o->dout), at, d, o->dtype),
			                cpu_load(k, b.k, cpu_ptr(o->out), at, d, o->dtype), d);
		}
}

static void sink_piece(void *context, int64_t h, int worker)
{
	const struct attention_grad_run *run = context;
	const struct op_attention_grad *o = &run->op;
	const float *lse = cpu_ptr(o->lse);
	double sink = attention_sink(cpu_kernels(), o->sink, h, o->dtype), sum = 0;

	(void)worker;
	for (int64_t at = h; at < o->tokens * o->heads; at += o->heads)
		sum += exp(sink - lse[at]) * run->delta[at];
	((float *)cpu_ptr(o->dsink))[h] -= (float)sum;
}

static void dq_add(const struct attention_grad_run *run, const struct grad_buffers *b, float *dq,
        const struct rows *queries, const struct rows *keys)
{
	grad_add(run, dq, b->ds + keys->first, MATMUL_NORMAL,
	        row_at(run, keys->x, keys->x_stride, keys->first), keys->x_stride, queries->count,
	        keys->count - keys->first);
}

/* Adds the tiles of a block of keys and all queries of a head to dk and dv of the block. Adds to dq of the
 * head unless it is NULL.
 */
static void block_add(const struct attention_grad_run *run, struct grad_buffers *b, const struct rows *keys,
        int64_t h, float *dk, float *dv, float *dq)
{
	int64_t d = run->op.head_dim, q_end = attention_query_end(&run->seen, keys->begin + keys->count - 1);
	int64_t q_first = attention_first_query(&run->seen, keys->begin) / ATTENTION_Q * ATTENTION_Q;

	for (int64_t q0 = q_first; q0 < q_end; q0 += ATTENTION_Q) {
		struct rows queries, seen;

		load_queries(&queries, run, b, h, q0);
		if (!keys_clip(&seen, run, keys, &queries))
			continue;
		grad_tile(run, b, &queries, &seen, h);
		grad_add(run, dk + seen.first * d, b->ds + seen.first, MATMUL_TRANSPOSED, queries.x,
		        queries.x_stride, seen.count - seen.first, queries.count);
		grad_add(run, dv + seen.first * d, b->p + seen.first, MATMUL_TRANSPOSED, queries.y,
		        queries.y_stride, seen.count - seen.first, queries.count);
		if (dq)
			dq_add(run, b, dq + q0 * d, &queries, &seen);
	}
}

/* One pass: all gradients of a kv head. */
static void head_piece(void *context, int64_t g, int worker)
{
	const struct attention_grad_run *run = context;
	const struct op_attention_grad *o = &run->op;
	int64_t group = o->heads / o->kv_heads, d = o->head_dim, count = o->tokens * d;
	struct grad_buffers b;
	float *dq, *dk, *dv;

	grad_buffers_init(&b, run, worker);
	dq = b.sums;
	dk = dq + count;
	dv = dk + count;
	memset(dk, 0, (size_t)(2 * count) * sizeof *dk);
	for (int64_t h = g * group; h < (g + 1) * group; h++) {
		memset(dq, 0, (size_t)count * sizeof *dq);
		b.dbias = dbias_of(o, h);
		for (int64_t k0 = 0; k0 < o->tokens; k0 += ATTENTION_K) {
			struct rows keys;

			load_keys(&keys, run, &b, g, k0);
			block_add(run, &b, &keys, h, dk + k0 * d, dv + k0 * d, dq);
		}
		grad_store(o, o->dq, h * o->q_head_stride, dq, o->tokens);
	}
	grad_store(o, o->dk, g * o->kv_head_stride, dk, o->tokens);
	grad_store(o, o->dv, g * o->kv_head_stride, dv, o->tokens);
}

static void dq_piece(void *context, int64_t piece, int worker)
{
	const struct attention_grad_run *run = context;
	const struct op_attention_grad *o = &run->op;
	int64_t h = piece / run->q_blocks, g = h / (o->heads / o->kv_heads);
	int64_t q0 = (run->q_blocks - 1 - piece % run->q_blocks) * ATTENTION_Q, k_first, k_end;
	struct grad_buffers b;
	struct rows queries;

	grad_buffers_init(&b, run, worker);
	load_queries(&queries, run, &b, h, q0);
	memset(b.sums, 0, (size_t)(queries.count * o->head_dim) * sizeof *b.sums);
	k_first = attention_first_key(&run->seen, q0) / ATTENTION_K * ATTENTION_K;
	k_end = attention_key_end(&run->seen, q0 + queries.count - 1);
	for (int64_t k0 = k_first; k0 < k_end; k0 += ATTENTION_K) {
		struct rows keys, seen;

		load_keys(&keys, run, &b, g, k0);
		if (!keys_clip(&seen, run, &keys, &queries))
			continue;
		grad_tile(run, &b, &queries, &seen, h);
		dq_add(run, &b, b.sums, &queries, &seen);
	}
	grad_store(o, o->dq, q0 * o->qkv_stride + h * o->q_head_stride, b.sums, queries.count);
}

static void dkv_piece(void *context, int64_t piece, int worker)
{
	const struct attention_grad_run *run = context;
	const struct op_attention_grad *o = &run->op;
	int64_t g = piece / run->k_blocks, group = o->heads / o->kv_heads;
	int64_t k0 = piece % run->k_blocks * ATTENTION_K, at = k0 * o->qkv_stride + g * o->kv_head_stride;
	struct grad_buffers b;
	struct rows keys;
	float *dk, *dv;

	grad_buffers_init(&b, run, worker);
	load_keys(&keys, run, &b, g, k0);
	dk = b.sums;
	dv = dk + ATTENTION_K * o->head_dim;
	memset(dk, 0, (size_t)(2 * ATTENTION_K * o->head_dim) * sizeof *dk);
	for (int64_t h = g * group; h < (g + 1) * group; h++)
		block_add(run, &b, &keys, h, dk, dv, NULL);
	grad_store(o, o->dk, at, dk, keys.count);
	grad_store(o, o->dv, at, dv, keys.count);
}

/* The gradient of a head's bias, where no pass has all tiles of the head. */
static void bias_piece(void *context, int64_t h, int worker)
{
	const struct attention_grad_run *run = context;
	const struct op_attention_grad *o = &run->op;
	struct grad_buffers b;

	grad_buffers_init(&b, run, worker);
	b.dbias = dbias_of(o, h);
	for (int64_t k0 = 0; k0 < o->tokens; k0 += ATTENTION_K) {
		struct rows keys, queries, seen;
		int64_t q_end, q0;

		load_keys(&keys, run, &b, h / (o->heads / o->kv_heads), k0);
		q_end = attention_query_end(&run->seen, keys.begin + keys.count - 1);
		q0 = attention_first_query(&run->seen, keys.begin) / ATTENTION_Q * ATTENTION_Q;
		for (; q0 < q_end; q0 += ATTENTION_Q) {
			load_queries(&queries, run, &b, h, q0);
			if (keys_clip(&seen, run, &keys, &queries))
				grad_tile(run, &b, &queries, &seen, h);
		}
	}
}

/* 1 if whole kv heads divide well among the workers and the sums of a head are small enough for scratch. */
static int fits_one_pass(const struct op_attention_grad *o, int64_t workers)
{
	return (o->kv_heads % workers == 0 || o->kv_heads >= 4 * workers) &&
	       o->tokens * o->head_dim <= ATTENTION_ONE_PASS_COUNT;
}

int cpu_attention_grad(struct cpu_context *cx, const struct op_attention_grad *op)
{
	struct attention_grad_run run = {.op = *op};
	const struct op_attention_grad *o = &run.op;
	int rc;

	run.seen = (struct attention_keys){.doc_start = cpu_ptr(o->doc_start),
	        .doc_end = cpu_ptr(o->doc_end),
	        .tokens = o->tokens,
	        .window = o->window,
	        .mask = o->mask};
	rc = attention_keys_check(&run.seen, "attention_grad");
	if (rc < 0)
		return rc;
	run.bf16 = o->dtype == DTYPE_BF16 ? attention_bf16(o->head_dim, ATTENTION_Q) : NULL;
	run.delta = cpu_ptr(o->scratch);
	run.q_blocks = cpu_pieces(o->tokens, ATTENTION_Q);
	run.k_blocks = cpu_pieces(o->tokens, ATTENTION_K);
	run.is_one_pass = fits_one_pass(o, cpu_workers(cx));
	run.scratch_count = scratch_attention_grad_count(o->tokens, o->head_dim, run.is_one_pass);
	run.scratch = cpu_scratch(cx, run.scratch_count * cpu_workers(cx) * 4);
	if (!run.scratch)
		return ERR_NOMEM;
	cpu_run(cx, run.q_blocks, delta_piece, &run);
	if (!dev_is_none(o->sink))
		cpu_run(cx, o->heads, sink_piece, &run);
	if (run.is_one_pass) {
		cpu_run(cx, o->kv_heads, head_piece, &run);
		return 0;
	}
	cpu_run(cx, run.q_blocks * o->heads, dq_piece, &run);
	cpu_run(cx, run.k_blocks * o->kv_heads, dkv_piece, &run);
	if (!dev_is_none(o->dbias))
		cpu_run(cx, o->heads, bias_piece, &run);
	return 0;
}
