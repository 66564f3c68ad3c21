/* Numbers over all rows of an evaluation: texts that look for others. */
#include "objective/scores.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/size.h"
#include "objective/contrast_units.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Names and meaning are those of InformationRetrievalEvaluator. */
#define FOUND(ROW)                                                                                           \
	ROW(ACCURACY_1, "cosine_accuracy@1")                                                                 \
	ROW(ACCURACY_3, "cosine_accuracy@3")                                                                 \
	ROW(ACCURACY_5, "cosine_accuracy@5")                                                                 \
	ROW(ACCURACY_10, "cosine_accuracy@10")                                                               \
	ROW(MRR_10, "cosine_mrr@10")                                                                         \
	ROW(NDCG_10, "cosine_ndcg@10")                                                                       \
	ROW(MAP_100, "cosine_map@100")
#define FOUND_ENUM(id, name) FOUND_##id,
#define FOUND_NAME(id, name) name,
enum { FOUND(FOUND_ENUM) FOUND_COUNT };
static const char *const names[] = {FOUND(FOUND_NAME)};

/* Queries and documents that are compared at once. */
enum { NEAREST = 100, BLOCK = 16, CHUNK = 128, TILE_QUERIES = 4, TILE_DOCUMENTS = 2, LANES = 4 };

struct wanted {
	int64_t query, document; /* rows: the first ones with these texts */
};

/* Queries are run in blocks, so that a document is fetched once for several. Products in fp32, whose error
 * has a bound, tell which documents may be among the nearest; only those are compared in double. */
struct search {
	const struct scored *rows;
	int64_t document_count, query_count;
	int64_t *document;            /* [document_count] rows of different second texts, ascending */
	double *length;               /* [document_count] */
	struct wanted *wanted;        /* of all queries, ascending, each once */
	int64_t *first;               /* [query_count + 1] a query's wanted */
	double (*found)[FOUND_COUNT]; /* [query_count] */
};

/* The nearest documents of a query, the nearest first; of equal ones the earlier. */
struct nearest {
	double near[NEAREST];
	int64_t document[NEAREST];
	int count, has_nan;
};

static int by_query(const void *one, const void *other)
{
	const struct wanted *a = one, *b = other;

	if (a->query != b->query)
		return a->query < b->query ? -1 : 1;
	return a->document < b->document ? -1 : a->document > b->document;
}

static int by_row(const void *one, const void *other)
{
	int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;

	return a < b ? -1 : a > b;
}

static void wanted_list(struct search *s)
{
	const struct scored *rows = s->rows;
	int64_t units = rows->rows / rows->each, kept = 0;

	for (int64_t i = 0; i < units; i++) {
		s->document[i] = rows->text[i * rows->each + 1];
		s->wanted[i] = (struct wanted){rows->text[i * rows->each], s->document[i]};
	}
	qsort(s->document, (size_t)units, sizeof(*s->document), by_row);
	qsort(s->wanted, (size_t)units, sizeof(*s->wanted), by_query);
	for (int64_t i = 0; i < units; i++)
		if (!s->document_count || s->document[i] != s->document[s->document_count - 1])
			s->document[s->document_count++] = s->document[i];
	for (int64_t i = 0; i < units; i++) {
		if (kept && !by_query(&s->wanted[i], &s->wanted[kept - 1]))
			continue;
		if (!kept || s->wanted[i].query != s->wanted[kept - 1].query)
			s->first[s->query_count++] = kept;
		s->wanted[kept++] = s->wanted[i];
	}
	s->first[s->query_count] = kept;
}

static const float *vector_of(const struct search *s, int64_t row)
{
	return s->rows->row + row * s->rows->stride;
}

static void length_find(void *context, int64_t d, int worker)
{
	const struct search *s = context;
	const float *x = vector_of(s, s->document[d]);

	(void)worker;
	s->length[d] = fmax(sqrt(units_dot(x, x, s->rows->width)), 1e-12);
}

static void nearest_add(struct nearest *n, double near, int64_t document)
{
	int at = n->count < NEAREST ? n->count : NEAREST - 1;

	n->has_nan |= !isfinite(near);
	if (n->count == NEAREST && near <= n->near[at])
		return;
	n->count = at + 1;
	for (; at > 0 && n->near[at - 1] < near; at--) {
		n->near[at] = n->near[at - 1];
		n->document[at] = n->document[at - 1];
	}
	n->near[at] = near;
	n->document[at] = document;
}

/* wanted: what the query looks for, `count` of them. */
static void nearest_rate(double *found, const struct nearest *n, const struct wanted *wanted, int64_t count)
{
	static const int within[] = {1, 3, 5, 10};
	double best = 0, hits = 0;

	for (int k = 0; k < FOUND_COUNT; k++)
		found[k] = n->has_nan ? NAN : 0;
	for (int i = 0; i < 10 && i < count; i++)
		best += 1 / log2((double)(i + 2));
	for (int i = 0; i < n->count; i++) {
		const struct wanted own = {wanted->query, n->document[i]};

		if (!bsearch(&own, wanted, (size_t)count, sizeof(own), by_query))
			continue;
		for (int k = 0; k < 4 && hits == 0; k++)
			found[FOUND_ACCURACY_1 + k] += i < within[k];
		found[FOUND_MRR_10] += hits == 0 && i < 10 ? 1 / (double)(i + 1) : 0;
		found[FOUND_NDCG_10] += i < 10 ? 1 / log2((double)(i + 2)) : 0;
		found[FOUND_MAP_100] += ++hits / (double)(i + 1);
	}
	found[FOUND_NDCG_10] /= best;
	found[FOUND_MAP_100] /= (double)min_i64(count, NEAREST);
}

/* ---- products in fp32 ---- */

typedef float lanes __attribute__((vector_size(4 * LANES)));

static lanes lanes_at(const float *x)
{
	lanes l;

	memcpy(&l, x, sizeof(l));
	return l;
}

static float lanes_sum(lanes l)
{
	return (l[0] + l[1]) + (l[2] + l[3]);
}

/* Products of four queries with two documents. */
static void tile_run(float *to[TILE_QUERIES], const float *const q[TILE_QUERIES],
        const float *const d[TILE_DOCUMENTS], int64_t width)
{
	lanes one[TILE_QUERIES] = {{0}}, other[TILE_QUERIES] = {{0}};
	int64_t i = 0;

	for (; i + LANES <= width; i += LANES) {
		lanes x = lanes_at(d[0] + i), y = lanes_at(d[1] + i);

#pragma GCC unroll 4
		for (int n = 0; n < TILE_QUERIES; n++) {
			lanes own = lanes_at(q[n] + i);

			one[n] += own * x;
			other[n] += own * y;
		}
	}
#pragma GCC unroll 4
	for (int n = 0; n < TILE_QUERIES; n++) {
		to[n][0] = lanes_sum(one[n]);
		to[n][1] = lanes_sum(other[n]);
		for (int64_t k = i; k < width; k++) {
			to[n][0] += q[n][k] * d[0][k];
			to[n][1] += q[n][k] * d[1][k];
		}
	}
}

/* Products of a block of queries with documents [d0, d0 + count); places beyond either repeat the last. */
static void products_find(float product[BLOCK][CHUNK], const struct search *s, const float *const *query,
        int64_t queries, int64_t d0, int64_t count)
{
	for (int64_t n = 0; n < queries; n += TILE_QUERIES)
		for (int64_t m = 0; m < count; m += TILE_DOCUMENTS) {
			const float *q[TILE_QUERIES], *d[TILE_DOCUMENTS];
			float *to[TILE_QUERIES];

			for (int k = 0; k < TILE_QUERIES; k++) {
				q[k] = query[min_i64(n + k, queries - 1)];
				to[k] = &product[n + k][m];
			}
			for (int k = 0; k < TILE_DOCUMENTS; k++)
				d[k] = vector_of(s, s->document[d0 + min_i64(m + k, count - 1)]);
			tile_run(to, q, d, s->rows->width);
		}
}

/* The product is off by at most an epsilon of fp32 for each sum and product, times both lengths. What is not
 * finite may be near. */
static int may_be_near(const struct nearest *n, float product, double length, double bound)
{
	return n->count < NEAREST || !((double)product / length + bound < n->near[NEAREST - 1]);
}

static void block_run(void *context, int64_t block, int worker)
{
	const struct search *s = context;
	int64_t from = block * BLOCK, count = min_i64(BLOCK, s->query_count - from), width = s->rows->width;
	struct nearest nearest[BLOCK];
	const float *query[BLOCK];
	float product[BLOCK][CHUNK];
	double bound[BLOCK];

	(void)worker;
	for (int64_t q = 0; q < count; q++) {
		nearest[q].count = nearest[q].has_nan = 0;
		query[q] = vector_of(s, s->wanted[s->first[from + q]].query);
		bound[q] = (double)(width + 2) * (double)FLT_EPSILON *
		           sqrt(units_dot(query[q], query[q], width));
	}
	for (int64_t d0 = 0; d0 < s->document_count; d0 += CHUNK) {
		int64_t end = min_i64(CHUNK, s->document_count - d0);

		products_find(product, s, query, count, d0, end);
		for (int64_t q = 0; q < count; q++)
			for (int64_t d = d0; d < d0 + end; d++)
				if (may_be_near(&nearest[q], product[q][d - d0], s->length[d], bound[q]))
					nearest_add(&nearest[q],
					        units_dot(query[q], vector_of(s, s->document[d]), width) /
					                s->length[d],
					        s->document[d]);
	}
	for (int64_t q = 0; q < count; q++) {
		int64_t first = s->first[from + q];

		nearest_rate(
		        s->found[from + q], &nearest[q], s->wanted + first, s->first[from + q + 1] - first);
	}
}

static void search_run(struct search *s, double *sum)
{
	const struct scored *rows = s->rows;

	wanted_list(s);
	rows->each_task(rows->pool, s->document_count, length_find, s);
	rows->each_task(rows->pool, (s->query_count + BLOCK - 1) / BLOCK, block_run, s);
	for (int64_t q = 0; q < s->query_count; q++)
		for (int k = 0; k < FOUND_COUNT; k++)
			sum[k] += s->found[q][k];
}

int scores_of_retrieval(struct scores *out, const struct scored *rows)
{
	size_t units = (size_t)(rows->rows / rows->each) + 1;
	struct search s = {.rows = rows,
	        .document = mem_alloc(units, sizeof(*s.document)),
	        .length = mem_alloc(units, sizeof(*s.length)),
	        .wanted = mem_alloc(units, sizeof(*s.wanted)),
	        .first = mem_alloc(units, sizeof(*s.first)),
	        .found = mem_alloc(units, sizeof(*s.found))};
	double sum[FOUND_COUNT] = {0};
	int rc = s.document && s.length && s.wanted && s.first && s.found ? 0 : ERR_NOMEM;

	if (!rc && rows->rows)
		search_run(&s, sum);
	for (int k = 0; k < FOUND_COUNT && out->count < SCORES_MAX; k++) {
		out->of[out->count].name = names[k];
		out->of[out->count++].value = rows->rows ? sum[k] / (double)s.query_count : NAN;
	}
	mem_free(s.document);
	mem_free(s.length);
	mem_free(s.wanted);
	mem_free(s.first);
	mem_free(s.found);
	return rc;
}
