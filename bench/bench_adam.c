/* Compares AdamW with memory bandwidth. */
#include "bench/bench.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/num.h"
#include "base/size.h"
#include "host/pool.h"
#include "host/slab.h"
#include "optim/adamw.h"

#include <string.h>

/* The limit is three arrays read and written in place, because AdamW uses memory so. STREAM's triad would be
 * a lower limit: it reads twice what it writes and pays for write-allocate. A second limit reads and writes
 * AdamW's own planes without computing. It differs with fp32 state, because more is read than written, and
 * planes of two and four bytes an element are mixed. */

enum { CHUNK = 65536, CACHED = 8192, ROUNDS = 9, STREAMS = 3, STRETCH = 64 /* elements */ };

typedef float vec __attribute__((vector_size(16)));
typedef uint32_t uvec __attribute__((vector_size(16)));

struct work {
	struct adamw_span span;
	struct adamw_step step;
	enum adamw_isa isa;
	float *stream[STREAMS];
	int64_t count;
	uint32_t zero; /* 0, unknown to the compiler */
	void *base;    /* one slab for all */
	int64_t bytes;
};

static int64_t chunk_count(const struct work *w, int64_t chunk)
{
	int64_t rest = w->count - chunk * CHUNK;

	return rest < CHUNK ? rest : CHUNK;
}

static void adam_task(void *ctx, int64_t chunk, int worker)
{
	const struct work *w = ctx;
	struct adamw_span s = w->span;

	(void)worker;
	s.count = w->count;
	adamw_span_advance(&s, chunk * CHUNK);
	s.count = chunk_count(w, chunk);
	adamw_update(&s, &w->step, w->isa);
}

/* The same work in cache: each worker repeats one small piece. */
static void cached_task(void *ctx, int64_t chunk, int worker)
{
	const struct work *w = ctx;
	struct adamw_span s = w->span;

	s.count = w->count;
	adamw_span_advance(&s, worker * (int64_t)CACHED);
	s.count = CACHED;
	for (int64_t done = 0; done < chunk_count(w, chunk); done += CACHED)
		adamw_update(&s, &w->step, w->isa);
}

static void rmw_task(void *ctx, int64_t chunk, int worker)
{
	const struct work *w = ctx;
	vec *a = (vec *)(w->stream[0] + chunk * CHUNK), *b = (vec *)(w->stream[1] + chunk * CHUNK),
	    *c = (vec *)(w->stream[2] + chunk * CHUNK);
	int64_t count = chunk_count(w, chunk) / 4;

	(void)worker;
	for (int64_t i = 0; i < count; i++) {
		a[i] = a[i] * 0.5f + 1.0f;
		b[i] = b[i] * 0.5f + 2.0f;
		c[i] = c[i] * 0.5f + 3.0f;
	}
}

/* Reads elements [first, first + STRETCH) of a plane and writes them back. */
static void plane_touch(void *plane, int64_t first, int bytes, uvec zero)
{
	uvec *at = (uvec *)((char *)plane + first * bytes);

	for (int i = 0; i < STRETCH * bytes / (int)sizeof(*at); i++)
		at[i] |= zero;
}

static void planes_task(void *ctx, int64_t chunk, int worker)
{
	const struct work *w = ctx;
	const struct adamw_span *s = &w->span;
	const int state_bytes = adamw_state_bytes(s->state), grad_bytes = (int)dtype_bytes(s->grad_dtype);
	const uvec zero = (uvec){} + w->zero;
	int64_t first = chunk * CHUNK, end = first + chunk_count(w, chunk);
	uvec grads = zero;

	(void)worker;
	for (int64_t i = first; i + STRETCH <= end; i += STRETCH) {
		const uvec *grad = (const uvec *)((const char *)s->grad + i * grad_bytes);

		plane_touch(s->hi, i, 2, zero);
		plane_touch(s->lo, i, 2, zero);
		plane_touch(s->m, i, state_bytes, zero);
		plane_touch(s->v, i, state_bytes, zero);
		for (int k = 0; k < STRETCH * grad_bytes / (int)sizeof(*grad); k++)
			grads |= grad[k];
	}
	s->hi[first] |= (uint16_t)(grads[0] & zero[0]);
}

/* Fills weights and gradients with ordinary numbers, m and v with 0. Touches all memory. */
static void fill_task(void *ctx, int64_t chunk, int worker)
{
	const struct work *w = ctx;
	const struct adamw_span *s = &w->span;
	int64_t first = chunk * CHUNK, end = first + chunk_count(w, chunk);
	uint64_t random = rng_u64(1, 2, (uint64_t)chunk);
	int bytes = adamw_state_bytes(s->state);

	(void)worker;
	memset((char *)s->m + first * bytes, 0, (size_t)((end - first) * bytes));
	memset((char *)s->v + first * bytes, 0, (size_t)((end - first) * bytes));
	for (int64_t i = first; adamw_state_has_scales(s->state) && i < end; i += ADAMW_BLOCK)
		s->m_scale[i / ADAMW_BLOCK] = s->v_scale[i / ADAMW_BLOCK] = 0;
	for (int64_t i = first; i < end; i++) {
		uint32_t weight, grad;

		random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		weight = f32_bits((float)(int32_t)(random >> 32) * 0x1p-36f);
		grad = f32_bits((float)(int32_t)(random >> 20) * 0x1p-40f);
		s->hi[i] = plane_hi(weight);
		s->lo[i] = plane_lo(weight);
		if (s->grad_dtype == DTYPE_BF16)
			((uint16_t *)s->grad)[i] = (uint16_t)(grad >> 16);
		else
			((uint32_t *)s->grad)[i] = grad;
		for (int k = 0; k < STREAMS; k++)
			w->stream[k][i] = 1;
	}
}

/* Fills m, v and gradients of one piece with ordinary numbers. Or fills them so that every gradient or its
 * square, and every m and v before and after an update, would be subnormal. */
static void piece_fill(const struct adamw_span *s, int is_subnormal)
{
	for (int i = 0; i < CACHED; i++) {
		uint32_t m = is_subnormal ? 0x00800000 : 0x3a800000,
		         v = is_subnormal ? 0x00800000 : 0x35800000,
		         g = !is_subnormal ? 0x3a800000
		             : i & 1       ? 0x1e3d0000 /* 1e-20 */
		                           : 0x00010000,
		         some = (uint32_t)i % 64 << 16;

		if (s->grad_dtype == DTYPE_BF16)
			((uint16_t *)s->grad)[i] = (uint16_t)((g + some) >> 16);
		else
			((uint32_t *)s->grad)[i] = g + some;
		if (adamw_state_dtype(s->state) == DTYPE_F32) {
			((uint32_t *)s->m)[i] = m + some;
			((uint32_t *)s->v)[i] = v;
		} else if (adamw_state_dtype(s->state) == DTYPE_BF16) {
			((uint16_t *)s->m)[i] = (uint16_t)((m + some) >> 16);
			((uint16_t *)s->v)[i] = (uint16_t)(v >> 16);
		} else {
			((uint8_t *)s->m)[i] = ((uint8_t *)s->v)[i] = (uint8_t)i;
		}
	}
	for (int i = 0; adamw_state_has_scales(s->state) && i < CACHED; i += ADAMW_BLOCK) {
		s->m_scale[i / ADAMW_BLOCK] = is_subnormal ? 0x1p-125f : 1e-3f;
		s->v_scale[i / ADAMW_BLOCK] = is_subnormal ? 0x1p-125f : 1e-6f;
	}
}

/* Compares an update with subnormal gradients with an ordinary one, on one thread in its cache. ratio[0] is
 * the update in which most m and v become subnormal, and so 0; ratio[1] is for those after it. */
static void subnormal_cost(double *ratio, const struct work *w)
{
	enum { PASSES = 101 };
	struct adamw_span s = w->span;
	double taken[2][2][PASSES];

	s.count = CACHED;
	for (int pass = 0; pass < PASSES; pass++)
		for (int is_subnormal = 0; is_subnormal < 2; is_subnormal++) {
			piece_fill(&s, is_subnormal);
			for (int turn = 0; turn < 2; turn++) {
				int64_t start;

				for (int i = 0; i < 6 * turn; i++) /* until the last m is 0 */
					adamw_update(&s, &w->step, w->isa);
				start = clock_now_ns();

				adamw_update(&s, &w->step, w->isa);
				taken[turn][is_subnormal][pass] = (double)(clock_now_ns() - start);
			}
		}
	for (int turn = 0; turn < 2; turn++)
		ratio[turn] = bench_median(taken[turn][1], PASSES) / bench_median(taken[turn][0], PASSES);
}

/* Places planes and streams in one slab, with skewed bases. */
static int work_open(struct work *w, const struct bench_args *args, enum dtype dtype, enum adamw_state state)
{
	const int of_state = adamw_state_bytes(state),
	          element_bytes[] = {2, 2, of_state, of_state, dtype == DTYPE_BF16 ? 2 : 4, 4, 4, 4, 1, 1};
	enum { PLANES = sizeof(element_bytes) / sizeof(element_bytes[0]) }; /* the last two hold scales */
	const struct adamw_options options = {
	        .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.1};
	int64_t offset[PLANES];
	char *at;
	int rc;

	*w = (struct work){.isa = args->isa, .count = args->count ? args->count : INT64_C(1) << 26};
	if (w->count < CACHED * args->threads || w->count > INT64_C(1) << 40)
		return err_set(ERR_INPUT,
		        "a benchmark of %lld parameters is too small; each thread needs at least 8192",
		        (long long)w->count);
	for (int i = 0; i < PLANES; i++) {
		offset[i] = w->bytes;
		w->bytes = round_up(w->bytes + w->count * element_bytes[i], 64) + SLAB_SKEW_BYTES;
	}
	rc = slab_map(&w->base, w->bytes, "memory of a benchmark");
	if (rc)
		return rc;
	at = w->base;
	w->span = (struct adamw_span){
	        .hi = (uint16_t *)(at + offset[0]),
	        .lo = (int16_t *)(at + offset[1]),
	        .m = at + offset[2],
	        .v = at + offset[3],
	        .grad = at + offset[4],
	        .m_scale = (float *)(void *)(at + offset[8]),
	        .v_scale = (float *)(void *)(at + offset[9]),
	        .decay = 1,
	        .grad_dtype = dtype,
	        .state = state,
	};
	for (int k = 0; k < STREAMS; k++)
		w->stream[k] = (float *)(at + offset[5 + k]);
	adamw_step_init(&w->step, &options, 1e-4, 10, 0.5);
	return 0;
}

static double seconds_of(struct pool *pool, struct work *w, pool_fn *fn)
{
	int64_t start = clock_now_ns();

	pool_run(pool, (w->count + CHUNK - 1) / CHUNK, fn, w);
	return (double)(clock_now_ns() - start) * 1e-9;
}

/* One row of the result: measures both in turn, on this number of threads. */
static int measure(json_t *rows, struct work *w, int threads, double bytes_per_parameter)
{
	double rate[ROUNDS], limit[ROUNDS], ratio[ROUNDS], cached[ROUNDS], moved[ROUNDS];
	struct pool *pool;
	int rc = pool_open(&pool, threads);

	if (rc)
		return rc;
	for (int round = -1; round < ROUNDS; round++) { /* the first warms up */
		double rmw = seconds_of(pool, w, rmw_task), adam = seconds_of(pool, w, adam_task),
		       planes = seconds_of(pool, w, planes_task), core = seconds_of(pool, w, cached_task);

		if (round < 0)
			continue;
		rate[round] = (double)w->count / adam;
		limit[round] = 8.0 * STREAMS * (double)w->count / rmw;
		cached[round] = (double)w->count / core * bytes_per_parameter;
		moved[round] = (double)w->count / planes * bytes_per_parameter;
		ratio[round] = rate[round] * bytes_per_parameter / limit[round];
	}
	pool_close(pool);
	json_array_append_new(rows,
	        json_pack("{s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:s}", "threads", threads, "parameters_per_s",
	                bench_median(rate, ROUNDS), "gbps",
	                bench_median(rate, ROUNDS) * bytes_per_parameter * 1e-9, "rmw3_gbps",
	                bench_median(limit, ROUNDS) * 1e-9, "of_rmw3", bench_median(ratio, ROUNDS),
	                "planes_gbps", bench_median(moved, ROUNDS) * 1e-9, "cached_gbps",
	                bench_median(cached, ROUNDS) * 1e-9, "bound",
	                bench_median(cached, ROUNDS) < bench_median(limit, ROUNDS) ? "cores" : "memory"));
	return 0;
}

/* Bytes on the bus: weights and state are read and written, the gradient is read. */
static int adam(json_t **result, const struct bench_args *args, enum dtype dtype, enum adamw_state state)
{
	int bytes_per_parameter = 8 + 4 * adamw_state_bytes(state) + (dtype == DTYPE_BF16 ? 2 : 4), rc;
	json_t *rows = json_array();
	struct pool *pool = NULL;
	double subnormal[2] = {0};
	struct work w;

	rc = work_open(&w, args, dtype, state);
	if (!rc)
		rc = pool_open(&pool, args->threads);
	if (!rc)
		pool_run(pool, (w.count + CHUNK - 1) / CHUNK, fill_task, &w);
	pool_close(pool);
	for (int threads = 1; threads <= args->threads && !rc; threads *= 2) {
		rc = measure(rows, &w, threads, bytes_per_parameter);
		if (!rc && threads < args->threads && threads * 2 > args->threads)
			rc = measure(rows, &w, args->threads, bytes_per_parameter);
	}
	if (!rc)
		subnormal_cost(subnormal, &w);
	if (!rc)
		*result = json_pack("{s:s, s:s, s:I, s:i, s:f, s:f, s:i, s:O}", "isa",
		        adamw_isa_name(args->isa), "state", adamw_state_name(state), "parameters",
		        (json_int_t)w.count, "bytes_per_parameter", bytes_per_parameter, "subnormal_time",
		        subnormal[1], "subnormal_once_time", subnormal[0], "rounds", ROUNDS, "runs", rows);
	if (!rc && !*result)
		rc = err_set(ERR_NOMEM, "out of memory for a benchmark's result");
	json_decref(rows);
	slab_unmap(w.base, w.bytes);
	return rc;
}

int bench_adam(json_t **result, const struct bench_args *args)
{
	return adam(result, args, DTYPE_BF16, ADAMW_STATE_F32);
}

int bench_adam_f32(json_t **result, const struct bench_args *args)
{
	return adam(result, args, DTYPE_F32, ADAMW_STATE_F32);
}

int bench_adam_bf16_state(json_t **result, const struct bench_args *args)
{
	return adam(result, args, DTYPE_BF16, ADAMW_STATE_BF16);
}

int bench_adam_8bit_state(json_t **result, const struct bench_args *args)
{
	return adam(result, args, DTYPE_BF16, ADAMW_STATE_8BIT);
}
