/* Compares each op with the device's bandwidth or its matrix products. */
#include "bench/kernel_cases.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/num.h"
#include "host/pool.h"

#include <math.h>
#include <string.h>

/* Runs each op at a model's shapes. Each round measures the limit, then the op, so that their ratio is of one
 * moment. The op uses several sets of operands in turn, so that none is in a cache when it is used again. */

enum { SETS_MAX = 32, SETS_BYTES_MAX = 16 /* times rotate_bytes */, ROUNDS_MAX = 32, CASES_MAX = 128 };

/* The limits measured beside each case. */
struct limits {
	double copy[CASES_MAX], product[CASES_MAX];
	int copy_count, product_count;
};

static int64_t index_bytes(const struct bench_scale *s)
{
	return (4 * (s->tokens + 1) + 255) / 256 * 256;
}

/* Index arrays and rotary table. */
static int64_t fixed_bytes(const struct bench_scale *s)
{
	return KERNEL_INDEX_COUNT * index_bytes(s) + (4 * s->document_tokens * s->head_dim + 255) / 256 * 256;
}

/* Number of sets of a case, by the bytes that one call moves, and bytes of all sets. */
static int64_t sets_bytes(const struct kernel_case *k, int *set_count, const struct bench_scale *s)
{
	struct kernel_place place = {.base = {256}};
	struct op_cost cost;
	struct op op;
	int64_t most;

	kernel_case_make(k, &op, &place, s, &(struct kernel_index){0});
	op_cost_of(&op, &cost);
	most = SETS_BYTES_MAX * s->rotate_bytes / place.used_bytes;
	*set_count = (int)((double)s->rotate_bytes / cost.memory_bytes) + 1;
	if (*set_count > SETS_MAX)
		*set_count = SETS_MAX;
	if (*set_count > most)
		*set_count = most > 1 ? (int)most : 1;
	return place.used_bytes * *set_count;
}

/* Room for the largest case of this limit's dtype. */
static int64_t work_bytes(const struct bench_scale *s, enum dtype dtype)
{
	const struct kernel_case *k;
	int64_t most = 0;
	int sets;

	for (int i = 0; (k = kernel_case_at(i)); i++)
		if (k->dtype == dtype) {
			int64_t bytes = sets_bytes(k, &sets, s);

			most = bytes > most ? bytes : most;
		}
	return most;
}

static void index_fill(int32_t *arrays[KERNEL_INDEX_COUNT], const struct bench_scale *s)
{
	int64_t texts = 2 * kernel_pairs(s);

	for (int64_t i = 0; i < s->tokens; i++) {
		int64_t at = i % s->document_tokens, start = i - at, end = start + s->document_tokens;

		arrays[0][i] = (int32_t)at;
		arrays[1][i] = (int32_t)start;
		arrays[2][i] = (int32_t)(end < s->tokens ? end : s->tokens);
		arrays[3][i] = (int32_t)rng_below(1, 1, (uint64_t)i, (uint64_t)s->vocab);
		arrays[4][i] = (int32_t)i;
		arrays[5][i] = (int32_t)rng_below(1, 2, (uint64_t)i, (uint64_t)s->vocab);
		arrays[7][i] = (int32_t)(i * KERNEL_EXPERTS / s->tokens);
	}
	for (int64_t e = 0; e <= KERNEL_EXPERTS; e++)
		arrays[8][e] = (int32_t)((e * s->tokens + KERNEL_EXPERTS - 1) / KERNEL_EXPERTS);
	for (int64_t i = 0; i <= texts; i++)
		arrays[6][i] = (int32_t)(i * s->tokens / texts);
	for (int64_t i = 0; i < texts && i < s->tokens; i++)
		arrays[9][i] = (int32_t)max_i64(arrays[6][i], (i + 1) * s->tokens / texts - 1);
	for (int64_t i = s->tokens - 1; i > 0; i--) { /* a Fisher-Yates shuffle */
		int64_t j = (int64_t)rng_below(1, 3, (uint64_t)i, (uint64_t)i + 1);
		int32_t kept = arrays[4][i];

		arrays[4][i] = arrays[4][j];
		arrays[4][j] = kept;
	}
}

static void rope_fill(float *table, const struct bench_scale *s)
{
	int64_t half = s->head_dim / 2;

	for (int64_t i = 0; i < s->document_tokens; i++)
		for (int64_t j = 0; j < half; j++) {
			double angle = (double)i * pow(500000, -(double)j / (double)half);

			table[i * s->head_dim + j] = (float)cos(angle);
			table[i * s->head_dim + half + j] = (float)sin(angle);
		}
}

/* Writes the index arrays to the begin of the rig's work memory. */
static int index_write(struct bench_rig *rig, struct kernel_index *index)
{
	int64_t bytes = index_bytes(&rig->scale);
	dev_addr *at[KERNEL_INDEX_COUNT] = {&index->position, &index->doc_start, &index->doc_end, &index->id,
	        &index->order, &index->label, &index->first, &index->expert, &index->expert_rows,
	        &index->last};
	int32_t *arrays[KERNEL_INDEX_COUNT], *block = mem_alloc((size_t)fixed_bytes(&rig->scale), 1);
	int rc = block ? 0 : ERR_NOMEM;

	if (rc)
		return rc;
	for (int i = 0; i < KERNEL_INDEX_COUNT; i++) {
		arrays[i] = block + i * bytes / 4;
		*at[i] = dev_at(rig->work, i * bytes);
	}
	index->rope = dev_at(rig->work, KERNEL_INDEX_COUNT * bytes);
	index_fill(arrays, &rig->scale);
	rope_fill((float *)(block + KERNEL_INDEX_COUNT * bytes / 4), &rig->scale);
	rc = stream_copy_in(rig->stream, rig->work, block, fixed_bytes(&rig->scale));
	if (!rc)
		rc = stream_sync(rig->stream);
	mem_free(block);
	return rc;
}

static int rig_prepare(struct bench_rig *rig, struct kernel_index *index, const struct bench_args *args,
        struct pool *pool, enum dtype dtype)
{
	int rc = bench_rig_open(rig, args, pool, args->count, dtype);
	int64_t documents = 0;

	if (!rc)
		rc = bench_batch_find(&documents, &rig->scale.document_tokens, args->tokens);
	if (documents)
		rig->scale.tokens = documents * rig->scale.document_tokens;
	if (!rc)
		rc = bench_rig_fill(rig, work_bytes(&rig->scale, dtype) + fixed_bytes(&rig->scale));
	return rc ? rc : index_write(rig, index);
}

static double flops_of(const struct op_cost *cost)
{
	return cost->flops_bf16 + cost->flops_f32;
}

/* The results of a case's rounds. */
struct measured {
	double seconds, share;
	double cpu_seconds,
	        cpu_share; /* the same in CPU time of this process, which other load changes least */
};

static int row_add(json_t *rows, const struct kernel_case *k, const struct op *op, const struct measured *m)
{
	struct op_cost cost;
	json_t *row;

	op_cost_of(op, &cost);
	row = json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:s}", "name", k->name, "dtype",
	        dtype_name(k->dtype), "us", m->seconds * 1e6, "gbps", cost.memory_bytes / m->seconds * 1e-9,
	        "tflops", flops_of(&cost) / m->seconds * 1e-12, "share", m->share, "cpu_us",
	        m->cpu_seconds * 1e6, "cpu_share", m->cpu_share, "of",
	        k->limit == KERNEL_COPY ? "copy" : "matmul");
	return json_array_append_new(rows, row) ? err_set(ERR_NOMEM, "out of memory for a benchmark's result")
	                                        : 0;
}

/* Bytes or FLOPs of one call of the limit. */
static double limit_work(const struct bench_rig *rig, enum kernel_limit limit)
{
	double side = (double)rig->scale.product_side;

	return limit == KERNEL_COPY ? 2.0 * (double)rig->scale.copy_bytes : 2 * side * side * side;
}

static int case_run(json_t *rows, struct bench_rig *rig, const struct kernel_case *k,
        const struct kernel_index *index, struct limits *seen)
{
	struct kernel_place place = {.base = dev_at(rig->work, fixed_bytes(&rig->scale))};
	double seconds[ROUNDS_MAX], limit[ROUNDS_MAX], share[ROUNDS_MAX], cpu[ROUNDS_MAX],
	        cpu_share[ROUNDS_MAX], work;
	struct op ops[SETS_MAX];
	struct op_cost cost;
	int sets, calls, rc;

	sets_bytes(k, &sets, &rig->scale);
	for (int i = 0; i < sets; i++)
		kernel_case_make(k, &ops[i], &place, &rig->scale, index);
	op_cost_of(&ops[0], &cost);
	work = k->limit == KERNEL_COPY ? cost.memory_bytes : flops_of(&cost);
	rc = bench_rig_calls(rig, &calls, ops, sets);
	for (int i = 0; i < rig->scale.rounds && !rc; i++) {
		double start = bench_cpu_s(), between, limit_cpu_s;

		rc = k->limit == KERNEL_COPY ? bench_rig_copy_rate(rig, &limit[i])
		                             : bench_rig_product_rate(rig, &limit[i]);
		between = bench_cpu_s();
		if (!rc)
			rc = bench_rig_time(rig, &seconds[i], ops, sets, calls);
		cpu[i] = (bench_cpu_s() - between) / calls;
		limit_cpu_s =
		        (between - start) / (k->limit == KERNEL_COPY ? rig->copy_calls : rig->product_calls);
		if (!rc && !(seconds[i] > 0 && limit[i] > 0))
			rc = err_set(ERR_INTERNAL, "%s took no time", k->name);
		if (!rc) {
			share[i] = work / seconds[i] / limit[i];
			cpu_share[i] = work / cpu[i] / (limit_work(rig, k->limit) / limit_cpu_s);
		}
	}
	if (rc)
		return rc;
	if (k->limit == KERNEL_COPY)
		seen->copy[seen->copy_count++] = bench_median(limit, rig->scale.rounds);
	else
		seen->product[seen->product_count++] = bench_median(limit, rig->scale.rounds);
	return row_add(rows, k, &ops[0],
	        &(struct measured){bench_median(seconds, rig->scale.rounds),
	                bench_median(share, rig->scale.rounds), bench_median(cpu, rig->scale.rounds),
	                bench_median(cpu_share, rig->scale.rounds)});
}

static int is_wanted(const struct kernel_case *k, const struct bench_args *args)
{
	return !args->models || !strncmp(k->name, args->models, strlen(args->models));
}

/* 0 if no case has this limit. */
static double rate_of(double *values, int count)
{
	return count ? bench_median(values, count) : 0;
}

/* Runs all cases of a dtype, on a new device. */
static int cases_run(json_t *rows, const struct bench_args *args, struct pool *pool, enum dtype dtype,
        struct bench_scale *scale, const char **device, struct limits *seen)
{
	struct kernel_index index;
	struct bench_rig rig;
	const struct kernel_case *k;
	int rc = rig_prepare(&rig, &index, args, pool, dtype);

	for (int i = 0; (k = kernel_case_at(i)) && !rc; i++)
		if (k->dtype == dtype && is_wanted(k, args)) {
			rc = case_run(rows, &rig, k, &index, seen);
			if (rc)
				err_note(rc, "benchmark of %s", k->name);
		}
	*scale = rig.scale;
	*device = rig.device ? device_name(rig.device) : "";
	bench_rig_close(&rig);
	return rc;
}

int bench_kernels(json_t **result, const struct bench_args *args)
{
	json_t *rows = json_array();
	struct pool *pool = NULL;
	struct limits bf16 = {.copy_count = 0}, f32 = {.copy_count = 0};
	struct bench_scale s;
	const char *device;
	int rc = pool_open(&pool, args->threads);

	if (!rc)
		rc = cases_run(rows, args, pool, DTYPE_BF16, &s, &device, &bf16);
	if (!rc)
		rc = cases_run(rows, args, pool, DTYPE_F32, &s, &device, &f32);
	if (!rc && !json_array_size(rows))
		rc = err_set(ERR_INPUT, "models: no operation begins with '%s'", args->models);
	if (!rc)
		*result = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:f, s:f, s:f, s:O}",
		        "device", device, "tokens", (json_int_t)s.tokens, "document_tokens",
		        (json_int_t)s.document_tokens, "hidden", (json_int_t)s.hidden, "heads",
		        (json_int_t)s.heads, "kv_heads", (json_int_t)s.kv_heads, "head_dim",
		        (json_int_t)s.head_dim, "intermediate", (json_int_t)s.intermediate, "vocab",
		        (json_int_t)s.vocab, "rounds", s.rounds, "copy_gbps",
		        rate_of(bf16.copy, bf16.copy_count) * 1e-9, "matmul_bf16_tflops",
		        rate_of(bf16.product, bf16.product_count) * 1e-12, "matmul_f32_tflops",
		        rate_of(f32.product, f32.product_count) * 1e-12, "kernels", rows);
	if (!rc && !*result)
		rc = err_set(ERR_NOMEM, "out of memory for a benchmark's result");
	json_decref(rows);
	pool_close(pool);
	return rc;
}
