/* Attention forward, by blocks of queries and keys. */
#include "device/op_attention.h"
#include "host/cpu/attention.h"
#include "host/cpu/attention_bf16.h"
#include "host/cpu/matmul.h"

#include "base/err.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

OP_ATTENTION_LIST(CPU_DECLARE)

int attention_keys_check(const struct attention_keys *keys, const char *op_name)
{
	for (int64_t i = 0; i < keys->tokens; i++) {
		int32_t start = keys->doc_start[i], end = keys->doc_end[i];

		if (start < 0 || start > i || end <= i || end > keys->tokens ||
		        (start < i && (start != keys->doc_start[i - 1] || end != keys->doc_end[i - 1])))
			return err_set(ERR_RANGE, "%s: token %lld of %lld has document [%d, %d)", op_name,
			        (long long)i, (long long)keys->tokens, (int)start, (int)end);
	}
	return 0;
}

/* Keeps a running maximum and sum (Milakov and Gimelshein 2018), as in FlashAttention (Dao et al. 2022). A
 * piece is a head and a block of queries. A query sees one run of columns of a block of keys, so masks cost
 * nothing. A token over a cache is a block of its own, so its rows are the query heads that share a key head:
 * the cache is read once for all of them. */
struct attention_run {
	const struct attention_forward *op;
	float *scratch; /* per worker, see attention_piece */
	int64_t scratch_count;
	const struct attention_bf16 *bf16; /* NULL: rows are widened */
	uint32_t *packed; /* [kv_heads][k_blocks]: keys packed, then values; NULL: tiles pack keys */
	int64_t k_blocks; /* blocks of ATTENTION_K keys */
};

/* The rows of a block: query q0 + i * next_query of head h + i * next_head for row i. */
struct attention_block {
	int64_t q0, h, count, next_query, next_head;
};

/* Rows, keys and scores of one tile. q, v and pairs are for bf16 only. */
struct attention_tile {
	const struct attention_block *block;
	const uint16_t *q, *v;
	const uint32_t *pairs;
	float *scores, *acc;
	int64_t q_stride, v_stride, k0, k_count, k_row; /* k_row: where key k0 lies */
};

static int64_t row_query(const struct attention_block *b, int64_t i)
{
	return b->q0 + i * b->next_query;
}

/* Elements from row i to the next. */
static int64_t block_q_stride(const struct attention_forward *o, const struct attention_block *b)
{
	return b->next_query * o->q_stride + b->next_head * o->q_head_stride;
}

/* Words of a block's packed keys, and of its values. */
static int64_t packed_count(int64_t head_dim)
{
	return head_dim / 2 * ATTENTION_K;
}

static void pack_piece(void *context, int64_t piece, int worker)
{
	const struct attention_run *run = context;
	const struct attention_forward *o = run->op;
	int64_t g = piece / run->k_blocks, k0 = piece % run->k_blocks * ATTENTION_K;

	int64_t at = k0 * o->k_stride + g * o->kv_head_stride,
	        count = min_i64(ATTENTION_K, o->seen.tokens - k0);
	uint32_t *keys = run->packed + 2 * piece * packed_count(o->head_dim);
	uint16_t *values = (uint16_t *)(keys + packed_count(o->head_dim));

	(void)worker;
	run->bf16->pack(keys, (const uint16_t *)cpu_ptr(o->k) + at, o->k_stride, count, o->head_dim);
	for (int64_t r = 0; r < count; r++)
		memcpy(values + r * o->head_dim, (const uint16_t *)cpu_ptr(o->v) + at + r * o->k_stride,
		        (size_t)o->head_dim * sizeof *values);
}

static void tile_operands(struct attention_tile *t, const struct attention_run *run, uint32_t *buffer)
{
	const struct attention_forward *o = run->op;
	const struct attention_block *b = t->block;
	int64_t g = b->h / (o->heads / o->kv_heads), at = t->k_row * o->k_stride + g * o->kv_head_stride;

	t->q = (const uint16_t *)cpu_ptr(o->q) + b->q0 * o->q_stride + b->h * o->q_head_stride;
	t->q_stride = block_q_stride(o, b);
	if (run->packed) {
		t->pairs = run->packed +
		           2 * (g * run->k_blocks + t->k0 / ATTENTION_K) * packed_count(o->head_dim);
		t->v = (const uint16_t *)(t->pairs + packed_count(o->head_dim));
		t->v_stride = o->head_dim;
		return;
	}
	run->bf16->pack(buffer, (const uint16_t *)cpu_ptr(o->k) + at, o->k_stride, t->k_count, o->head_dim);
	t->pairs = buffer;
	t->v = (const uint16_t *)cpu_ptr(o->v) + at;
	t->v_stride = o->k_stride;
}

/* Rows of a tile that are computed together, and the columns that one of them sees. */
struct attention_rows {
	int64_t i, count, begin, end;
};

/* The rows from i on: all that are left, or a few where each row sees one key more, or less, than the row
 * before. */
static struct attention_rows rows_from(
        const struct attention_run *run, const struct attention_tile *t, int64_t i)
{
	const struct attention_keys *seen = &run->op->seen;
	const struct attention_block *b = t->block;
	int64_t first = attention_first_key(seen, row_query(b, i)) - t->k0, left = b->count - i;
	struct attention_rows r = {.i = i, .begin = first > 0 ? first / 16 * 16 : 0};
	int is_whole = attention_key_end(seen, row_query(b, i)) >= t->k0 + t->k_count &&
	               attention_first_key(seen, row_query(b, b->count - 1)) <= t->k0 + r.begin;

	r.count = is_whole ? left : min_i64(run->bf16->diagonal_rows, left);
	r.end = min_i64(t->k_count, attention_key_end(seen, row_query(b, i + r.count - 1)) - t->k0);
	return r;
}

static void tile_scores(
        const struct attention_run *run, const struct attention_tile *t, const struct attention_rows *r)
{
	const struct attention_forward *o = run->op;

	run->bf16->scores(t->scores + r->i * ATTENTION_K + r->begin, t->q + r->i * t->q_stride, t->q_stride,
	        t->pairs + r->begin, r->count, r->end - r->begin, o->head_dim, (float)o->scale);
}

static void tile_values(
        const struct attention_run *run, const struct attention_tile *t, const struct attention_rows *r)
{
	int64_t d = run->op->head_dim;

	run->bf16->add(t->acc + r->i * d, t->scores + r->i * ATTENTION_K + r->begin, ATTENTION_K, 1,
	        t->v + r->begin * t->v_stride, t->v_stride, r->count, r->end - r->begin, d);
}

/* Turns a row of scores into probabilities relative to the running maximum; other columns become 0. */
static void softmax_row(const struct cpu_kernels *k, float *score, float *acc, float *max, double *sum,
        int64_t begin, int64_t end, int64_t k_count, int64_t head_dim)
{
	memset(score, 0, (size_t)begin * sizeof *score);
	if (begin < end) {
		float block_max = k->max(score + begin, end - begin);
		float new_max = block_max > *max ? block_max : *max;
		float keep = *max == new_max ? 1.0f : expf(*max - new_max);

		*sum = *sum * keep + k->softmax_part(score + begin, score + begin, new_max, end - begin);
		if (keep != 1.0f)
			k->scale(acc, acc, keep, head_dim);
		*max = new_max;
	}
	memset(score + end, 0, (size_t)(k_count - end) * sizeof *score);
}

static void tile_softmax(const struct attention_forward *o, const struct attention_tile *t,
        const struct attention_rows *r, float *max, double *sum)
{
	const struct cpu_kernels *k = cpu_kernels();
	int64_t d = o->head_dim;

	for (int64_t i = r->i; i < r->i + r->count; i++) {
		float *row = t->scores + i * ATTENTION_K;
		int64_t begin, end;

		attention_columns(&o->seen, &begin, &end, row_query(t->block, i), t->k0, t->k_count);
		if (begin == end)
			begin = end = r->begin;
		if (o->score_cap > 0)
			k->soft_cap(row + begin, row + begin, (float)o->score_cap, end - begin);
		attention_add_bias(k, row + begin, o->bias, o->seen.tokens,
		        t->block->h + i * t->block->next_head, row_query(t->block, i), t->k0 + begin,
		        end - begin, o->dtype);
		softmax_row(k, row + r->begin, t->acc + i * d, &max[i], &sum[i], begin - r->begin,
		        end - r->begin, r->end - r->begin, d);
	}
}

/* The products of bf16. */
static void tile_run(const struct attention_run *run, const struct attention_tile *t, float *max, double *sum)
{
	for (int64_t i = 0; i < t->block->count;) {
		struct attention_rows r = rows_from(run, t, i);

		if (r.begin < r.end) {
			tile_scores(run, t, &r);
			tile_softmax(run->op, t, &r, max, sum);
			tile_values(run, t, &r);
		}
		i += r.count;
	}
}

/* Heads go one after the other, so their keys stay in the cache; within a head the last blocks, which see the
 * most keys, go first. Returns 0 if the rows of the piece belong to another one. */
static int block_find(struct attention_block *b, const struct attention_forward *o, int64_t piece)
{
	int64_t n = o->block_count - 1 - piece % o->block_count, group = o->heads / o->kv_heads, at;

	*b = (struct attention_block){.q0 = o->block[n],
	        .h = piece / o->block_count,
	        .count = o->block[n + 1] - o->block[n],
	        .next_query = 1};
	if (!o->seen.is_cached || b->count > 1)
		return 1;
	at = b->h % group;
	b->next_query = 0;
	b->next_head = 1;
	b->count = min_i64(ATTENTION_Q, group - at);
	return at % ATTENTION_Q == 0;
}

static void block_store(const struct attention_forward *o, const struct attention_block *b, float *acc,
        const float *max, const double *sum)
{
	const struct cpu_kernels *k = cpu_kernels();
	int64_t d = o->head_dim;

	for (int64_t i = 0; i < b->count; i++, acc += d) {
		int64_t q = row_query(b, i), h = b->h + i * b->next_head, to = q * o->out_stride + h * d;

		if (!dev_is_none(o->lse))
			((float *)cpu_ptr(o->lse))[q * o->heads + h] = (float)(max[i] + log(sum[i]));
		k->scale(acc, acc, (float)(1 / sum[i]), d);
		if (o->dtype == DTYPE_F32)
			memcpy((float *)cpu_ptr(o->out) + to, acc, (size_t)d * sizeof *acc);
		cpu_store(k, cpu_ptr(o->out), to, acc, d, o->dtype);
	}
}

/* What a piece keeps while it walks over the keys. Scratch memory of a worker in the order of its fields. */
struct attention_piece {
	struct attention_block block;
	float *scores, *acc, *q, *k, *v;
	float max[ATTENTION_Q];
	double sum[ATTENTION_Q];
};

/* The next keys from k0 on that lie one after the other. */
static struct attention_tile tile_next(
        const struct attention_forward *o, struct attention_piece *p, int64_t k0, int64_t k_end)
{
	struct attention_tile t = {.block = &p->block,
	        .scores = p->scores,
	        .acc = p->acc,
	        .k0 = k0,
	        .k_count = min_i64(ATTENTION_K, k_end - k0)};

	t.k_row = attention_key_row(&o->seen, p->block.q0, k0, &t.k_count);
	return t;
}

static void piece_walk_bf16(
        const struct attention_run *run, struct attention_piece *p, int64_t k_first, int64_t k_end)
{
	int64_t k0 = run->packed ? k_first / ATTENTION_K * ATTENTION_K : k_first;

	while (k0 < k_end) {
		struct attention_tile t = tile_next(run->op, p, k0, k_end);

		tile_operands(&t, run, (uint32_t *)p->k);
		tile_run(run, &t, p->max, p->sum);
		k0 += t.k_count;
	}
}

static void piece_walk_f32(
        const struct attention_run *run, struct attention_piece *p, int64_t k_first, int64_t k_end)
{
	const struct attention_forward *o = run->op;
	const struct cpu_kernels *k = cpu_kernels();
	const struct attention_block *b = &p->block;
	int64_t g = b->h / (o->heads / o->kv_heads), d = o->head_dim, q_stride = 0, k_stride, v_stride;
	const float *q = attention_load(k, p->q, &q_stride, cpu_ptr(o->q),
	        b->q0 * o->q_stride + b->h * o->q_head_stride, block_q_stride(o, b), b->count, d, o->dtype);

	while (k_first < k_end) {
		struct attention_tile t = tile_next(o, p, k_first, k_end);
		struct attention_rows all = {.count = b->count, .end = t.k_count};
		int64_t at = t.k_row * o->k_stride + g * o->kv_head_stride;
		const float *keys = attention_load(
		        k, p->k, &k_stride, cpu_ptr(o->k), at, o->k_stride, t.k_count, d, o->dtype);
		const float *values = attention_load(
		        k, p->v, &v_stride, cpu_ptr(o->v), at, o->k_stride, t.k_count, d, o->dtype);

		cpu_sgemm(p->scores, q, keys, b->count, t.k_count, d, ATTENTION_K, q_stride, k_stride,
		        MATMUL_NORMAL, MATMUL_TRANSPOSED, (float)o->scale, 0);
		tile_softmax(o, &t, &all, p->max, p->sum);
		cpu_sgemm(p->acc, p->scores, values, b->count, d, t.k_count, d, ATTENTION_K, v_stride,
		        MATMUL_NORMAL, MATMUL_NORMAL, 1, 1);
		k_first += t.k_count;
	}
}

static void attention_piece(void *context, int64_t piece, int worker)
{
	const struct attention_run *run = context;
	const struct attention_forward *o = run->op;
	int64_t d = o->head_dim, k_first, k_end;
	struct attention_piece p;
	struct attention_block *b = &p.block;
	int has_sink = !dev_is_none(o->sink);

	if (!block_find(b, o, piece))
		return;
	p.scores = run->scratch + run->scratch_count * worker;
	p.acc = p.scores + ATTENTION_Q * ATTENTION_K;
	p.q = p.acc + ATTENTION_Q * d;
	p.k = p.q + ATTENTION_Q * d;
	p.v = p.k + ATTENTION_K * d;
	for (int64_t i = 0; i < b->count; i++) { /* a sink is the first score and has no value */
		p.max[i] = has_sink
		                   ? attention_sink(cpu_kernels(), o->sink, b->h + i * b->next_head, o->dtype)
		                   : -INFINITY;
		p.sum[i] = has_sink;
	}
	memset(p.acc, 0, (size_t)(b->count * d) * sizeof *p.acc);
	k_first = attention_first_key(&o->seen, b->q0);
	k_end = attention_key_end(&o->seen, row_query(b, b->count - 1));
	(run->bf16 ? piece_walk_bf16 : piece_walk_f32)(run, &p, k_first, k_end);
	block_store(o, b, p.acc, p.max, p.sum);
}

int attention_forward_run(struct cpu_context *cx, const struct attention_forward *o)
{
	struct attention_run run = {.op = o,
	        .bf16 = o->dtype == DTYPE_BF16 ? attention_bf16(o->head_dim, o->block[1] - o->block[0])
	                                       : NULL};

	int64_t packed = 0;

	run.scratch_count = scratch_attention_count(o->head_dim);
	run.k_blocks = cpu_pieces(o->seen.tokens, ATTENTION_K);
	if (run.bf16 && !o->seen.is_cached) /* in a cache few queries see each key */
		packed = scratch_packed_count(o->seen.tokens, o->kv_heads, o->head_dim);
	run.scratch = cpu_scratch(cx, (packed + run.scratch_count * cpu_workers(cx)) * 4);
	if (!run.scratch)
		return ERR_NOMEM;
	if (packed) {
		run.packed = (uint32_t *)run.scratch;
		run.scratch += packed;
		cpu_run(cx, o->kv_heads * run.k_blocks, pack_piece, &run);
	}
	cpu_run(cx, o->block_count * o->heads, attention_piece, &run);
	return 0;
}

int cpu_attention(struct cpu_context *cx, const struct op_attention *o)
{
	struct attention_forward f = {
	        .seen = {.doc_start = cpu_ptr(o->doc_start),
	                .doc_end = cpu_ptr(o->doc_end),
	                .tokens = o->tokens,
	                .window = o->window,
	                .mask = o->mask},
	        .out = o->out,
	        .lse = o->lse,
	        .q = o->q,
	        .k = o->k,
	        .v = o->v,
	        .sink = o->sink,
	        .bias = o->bias,
	        .heads = o->heads,
	        .kv_heads = o->kv_heads,
	        .head_dim = o->head_dim,
	        .q_stride = o->qkv_stride,
	        .q_head_stride = o->q_head_stride,
	        .k_stride = o->qkv_stride,
	        .kv_head_stride = o->kv_head_stride,
	        .out_stride = o->out_stride,
	        .scale = o->scale,
	        .score_cap = o->score_cap,
	        .dtype = o->dtype,
	        .block_count = cpu_pieces(o->tokens, ATTENTION_Q),
	};
	int rc = attention_keys_check(&f.seen, "attention");
	int32_t *block = rc ? NULL : mem_alloc((size_t)f.block_count + 1, sizeof(*block));

	if (!block)
		return rc ? rc : ERR_NOMEM;
	for (int64_t b = 0; b <= f.block_count; b++)
		block[b] = (int32_t)min_i64(b * ATTENTION_Q, o->tokens);
	f.block = block;
	rc = attention_forward_run(cx, &f);
	mem_free(block);
	return rc;
}
