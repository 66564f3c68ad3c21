/* Attention backward in blocks, in two passes that recompute the probabilities from lse: one over blocks of
 * queries for dq, one over blocks of keys for dk and dv. One pass would save two of seven products, but then
 * either dq or dk, dv would be added to by several threads, in an order of their own.
 *
 * With p = exp(scale q.k - lse), delta = sum(dout * out):  dv = p^T dout,  ds = p (dout v^T - delta) scale,
 * dq = ds k,  dk = ds^T q. A score s = cap tanh(scale q.k / cap) has the slope 1 - (s / cap)^2 more in ds. A
 * sink has p = exp(sink - lse) of each row and no value, hence dsink = -sum(p delta). */
#include "device/op_attention.h"
#include "host/cpu/attention.h"
#include "host/cpu/matmul.h"

#include "base/err.h"

#include <string.h>

OP_ATTENTION_LIST(CPU_DECLARE)

struct attention_grad_run {
	struct op_attention_grad op;
	struct attention_keys seen;
	float *delta; /* [tokens, heads], the op's scratch */
	int64_t q_blocks, k_blocks;
	float *scratch;
	int64_t scratch_count;
	int by_bf16; /* products of two of q, dout, k, v are those of bf16 */
};

/* A worker's scratch: two score tiles, two accumulators of keys, and room to widen rows of q, dout, k, v. */
struct grad_buffers {
	float *p, *ds, *acc1, *acc2, *q, *dout, *k, *v;
	uint32_t *k_pairs, *v_pairs; /* keys and values packed for products of bf16, in the place of v */
};

/* One side of a tile: rows of q and dout of a query head, or of k and v: as fp32, NULL where nothing reads
 * them so, and as they are. */
struct rows {
	const float *x, *y;
	const void *x_at, *y_at; /* the first of them, stored */
	int64_t x_stride, y_stride, begin, count;
};

static int64_t grad_buffers_count(int64_t head_dim)
{
	return round_up(2 * ATTENTION_Q * ATTENTION_K + (2 * ATTENTION_Q + 4 * ATTENTION_K) * head_dim, 16);
}

static void grad_buffers_init(struct grad_buffers *b, const struct attention_grad_run *run, int worker)
{
	int64_t d = run->op.head_dim;

	b->p = run->scratch + run->scratch_count * worker;
	b->ds = b->p + ATTENTION_Q * ATTENTION_K;
	b->acc1 = b->ds + ATTENTION_Q * ATTENTION_K;
	b->acc2 = b->acc1 + ATTENTION_K * d;
	b->k = b->acc2 + ATTENTION_K * d;
	b->v = b->k + ATTENTION_K * d;
	b->q = b->v + ATTENTION_K * d;
	b->dout = b->q + ATTENTION_Q * d;
	b->k_pairs = (uint32_t *)b->v;
	b->v_pairs = b->k_pairs + ATTENTION_K * d / 2;
}

/* How rows are needed: as they are for the products of bf16 of one with another, as fp32 for others. */
enum widening { WIDEN_NEITHER, WIDEN_X, WIDEN_BOTH };

static void load_queries(struct rows *rows, const struct attention_grad_run *run, struct grad_buffers *b,
        enum widening widening, int64_t h, int64_t q0, int64_t q_end)
{
	const struct op_attention_grad *o = &run->op;
	const struct cpu_kernels *k = cpu_kernels();
	int64_t x_at = q0 * o->qkv_stride + h * o->q_head_stride, y_at = q0 * o->out_stride + h * o->head_dim;

	rows->begin = q0;
	rows->count = min_i64(ATTENTION_Q, q_end - q0);
	rows->x_at = (const uint16_t *)cpu_ptr(o->q) + x_at;
	rows->y_at = (const uint16_t *)cpu_ptr(o->dout) + y_at;
	if (run->by_bf16 && widening == WIDEN_NEITHER)
		return;
	rows->x = attention_load(k, b->q, &rows->x_stride, cpu_ptr(o->q), x_at, o->qkv_stride, rows->count,
	        o->head_dim, o->dtype);
	rows->y = attention_load(k, b->dout, &rows->y_stride, cpu_ptr(o->dout), y_at, o->out_stride,
	        rows->count, o->head_dim, o->dtype);
}

static void load_keys(struct rows *rows, const struct attention_grad_run *run, struct grad_buffers *b,
        enum widening widening, int64_t g, int64_t k0, int64_t k_end)
{
	const struct op_attention_grad *o = &run->op;
	const struct cpu_kernels *k = cpu_kernels();
	int64_t at = k0 * o->qkv_stride + g * o->kv_head_stride;

	rows->begin = k0;
	rows->count = min_i64(ATTENTION_K, k_end - k0);
	if (run->by_bf16) {
		attention_bf16_pack(b->k_pairs, (const uint16_t *)cpu_ptr(o->k) + at, o->qkv_stride,
		        rows->count, o->head_dim);
		attention_bf16_pack(b->v_pairs, (const uint16_t *)cpu_ptr(o->v) + at, o->qkv_stride,
		        rows->count, o->head_dim);
	}
	if (!run->by_bf16 || widening != WIDEN_NEITHER)
		rows->x = attention_load(k, b->k, &rows->x_stride, cpu_ptr(o->k), at, o->qkv_stride,
		        rows->count, o->head_dim, o->dtype);
	if (!run->by_bf16)
		rows->y = attention_load(k, b->v, &rows->y_stride, cpu_ptr(o->v), at, o->qkv_stride,
		        rows->count, o->head_dim, o->dtype);
}

/* The scores of one tile into p, and dout v into ds. */
static void grad_products(const struct attention_grad_run *run, struct grad_buffers *b,
        const struct rows *queries, const struct rows *keys)
{
	const struct op_attention_grad *o = &run->op;

	if (run->by_bf16) {
		attention_bf16_scores(b->p, queries->x_at, o->qkv_stride, b->k_pairs, queries->count,
		        keys->count, o->head_dim, (float)o->scale);
		attention_bf16_scores(b->ds, queries->y_at, o->out_stride, b->v_pairs, queries->count,
		        keys->count, o->head_dim, 1);
		return;
	}
	cpu_sgemm(b->p, queries->x, keys->x, queries->count, keys->count, o->head_dim, ATTENTION_K,
	        queries->x_stride, keys->x_stride, MATMUL_NORMAL, MATMUL_TRANSPOSED, (float)o->scale, 0);
	cpu_sgemm(b->ds, queries->y, keys->y, queries->count, keys->count, o->head_dim, ATTENTION_K,
	        queries->y_stride, keys->y_stride, MATMUL_NORMAL, MATMUL_TRANSPOSED, 1, 0);
}

/* p and ds of one tile [queries, ATTENTION_K]; 0 where a query does not see a key. */
static void grad_tile(const struct attention_grad_run *run, struct grad_buffers *b,
        const struct rows *queries, const struct rows *keys, int64_t h)
{
	const struct op_attention_grad *o = &run->op;
	const struct cpu_kernels *k = cpu_kernels();
	const float *lse = cpu_ptr(o->lse);
	float cap = (float)o->score_cap, slope[ATTENTION_K];

	grad_products(run, b, queries, keys);
	for (int64_t i = 0; i < queries->count; i++) {
		float *p = b->p + i * ATTENTION_K, *ds = b->ds + i * ATTENTION_K;
		int64_t begin, end, at = (queries->begin + i) * o->heads + h;

		attention_columns(&run->seen, &begin, &end, queries->begin + i, keys->begin, keys->count);
		memset(p, 0, (size_t)begin * sizeof *p);
		memset(ds, 0, (size_t)begin * sizeof *ds);
		attention_cap(p + begin, end - begin, cap);
		if (cap > 0)
			for (int64_t j = begin; j < end; j++)
				slope[j] = 1 - p[j] / cap * (p[j] / cap);
		k->exp_scaled(p + begin, p + begin, lse[at], 1, end - begin);
		k->softmax_grad(
		        ds + begin, p + begin, ds + begin, run->delta[at], (float)o->scale, end - begin);
		if (cap > 0)
			for (int64_t j = begin; j < end; j++)
				ds[j] *= slope[j];
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

static void dq_piece(void *context, int64_t piece, int worker)
{
	const struct attention_grad_run *run = context;
	const struct op_attention_grad *o = &run->op;
	int64_t h = piece % o->heads, g = h / (o->heads / o->kv_heads), d = o->head_dim;
	int64_t q0 = (run->q_blocks - 1 - piece / o->heads) * ATTENTION_Q, k_end;
	struct grad_buffers b;
	struct rows queries, keys;

	grad_buffers_init(&b, run, worker);
	load_queries(&queries, run, &b, WIDEN_NEITHER, h, q0, o->tokens);
	memset(b.acc1, 0, (size_t)(queries.count * d) * sizeof *b.acc1);
	k_end = attention_key_end(&run->seen, q0 + queries.count - 1);
	for (int64_t k0 = attention_first_key(&run->seen, q0); k0 < k_end; k0 += ATTENTION_K) {
		load_keys(&keys, run, &b, WIDEN_X, g, k0, k_end);
		grad_tile(run, &b, &queries, &keys, h);
		cpu_sgemm(b.acc1, b.ds, keys.x, queries.count, d, keys.count, d, ATTENTION_K, keys.x_stride,
		        MATMUL_NORMAL, MATMUL_NORMAL, 1, 1);
	}
	grad_store(o, o->dq, q0 * o->qkv_stride + h * o->q_head_stride, b.acc1, queries.count);
}

static void dkv_piece(void *context, int64_t piece, int worker)
{
	const struct attention_grad_run *run = context;
	const struct op_attention_grad *o = &run->op;
	int64_t g = piece % o->kv_heads, group = o->heads / o->kv_heads, d = o->head_dim;
	int64_t k0 = piece / o->kv_heads * ATTENTION_K, k_count, q_end,
	        q_first = attention_first_query(&run->seen, k0);
	struct grad_buffers b;
	struct rows queries, keys;

	grad_buffers_init(&b, run, worker);
	load_keys(&keys, run, &b, WIDEN_NEITHER, g, k0, o->tokens);
	k_count = keys.count;
	q_end = attention_query_end(&run->seen, k0 + k_count - 1);
	memset(b.acc1, 0, (size_t)(k_count * d) * sizeof *b.acc1);
	memset(b.acc2, 0, (size_t)(k_count * d) * sizeof *b.acc2);
	for (int64_t h = g * group; h < (g + 1) * group; h++)
		for (int64_t q0 = q_first; q0 < q_end; q0 += ATTENTION_Q) {
			load_queries(&queries, run, &b, WIDEN_BOTH, h, q0, q_end);
			/* the last key that these queries see */
			keys.count =
			        min_i64(k_count, attention_key_end(&run->seen, q0 + queries.count - 1) - k0);
			grad_tile(run, &b, &queries, &keys, h);
			cpu_sgemm(b.acc1, b.ds, queries.x, keys.count, d, queries.count, d, ATTENTION_K,
			        queries.x_stride, MATMUL_TRANSPOSED, MATMUL_NORMAL, 1, 1);
			cpu_sgemm(b.acc2, b.p, queries.y, keys.count, d, queries.count, d, ATTENTION_K,
			        queries.y_stride, MATMUL_TRANSPOSED, MATMUL_NORMAL, 1, 1);
		}
	grad_store(o, o->dk, k0 * o->qkv_stride + g * o->kv_head_stride, b.acc1, k_count);
	grad_store(o, o->dv, k0 * o->qkv_stride + g * o->kv_head_stride, b.acc2, k_count);
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
	run.by_bf16 = o->dtype == DTYPE_BF16 && attention_bf16_fits(o->head_dim);
	run.delta = cpu_ptr(o->scratch);
	run.q_blocks = cpu_pieces(o->tokens, ATTENTION_Q);
	run.k_blocks = cpu_pieces(o->tokens, ATTENTION_K);
	run.scratch_count = grad_buffers_count(o->head_dim);
	run.scratch = cpu_scratch(cx, run.scratch_count * cpu_workers(cx) * 4);
	if (!run.scratch)
		return ERR_NOMEM;
	cpu_run(cx, run.q_blocks, delta_piece, &run);
	if (!dev_is_none(o->sink))
		cpu_run(cx, o->heads, sink_piece, &run);
	cpu_run(cx, run.q_blocks * o->heads, dq_piece, &run);
	cpu_run(cx, run.k_blocks * o->kv_heads, dkv_piece, &run);
	return 0;
}
