/* Numbers over all rows of an evaluation: texts that look for others. */
#include "objective/scores.h"

#include "base/err.h"
#include "base/mem.h"
#include "objective/contrast_units.h"

#include <math.h>
#include <stdlib.h>

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

struct wanted {
	int64_t query, document; /* rows: the first ones with these texts */
};

struct search {
	const struct scored *rows;
	float *unit; /* [rows, width] of length 1 */
	int64_t document_count, query_count;
	int64_t *document;            /* [document_count] rows of different second texts, ascending */
	struct wanted *wanted;        /* of all queries, ascending, each once */
	int64_t *first;               /* [query_count + 1] a query's wanted */
	double (*found)[FOUND_COUNT]; /* [query_count] */
	int *failed;                  /* [query_count] out of memory */
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

static void unit_make(void *context, int64_t n, int worker)
{
	const struct search *s = context;
	int64_t width = s->rows->width;
	const float *x = s->rows->row + n * s->rows->stride;
	double length = fmax(sqrt(units_dot(x, x, width)), 1e-12);

	(void)worker;
	for (int64_t i = 0; i < width; i++)
		s->unit[n * width + i] = (float)((double)x[i] / length);
}

/* How many documents come before this one: those that are nearer, and of equal ones the earlier. */
static int64_t place_of(const struct search *s, const double *near, int64_t document)
{
	double own = 0;
	int64_t before = 0, at = 0;

	while (s->document[at] != document)
		at++;
	own = near[at];
	for (int64_t d = 0; d < s->document_count; d++)
		before += near[d] > own || (near[d] == own && d < at);
	return before;
}

/* place: ascending places of what is wanted. */
static void places_rate(double *found, const int64_t *place, int64_t count)
{
	static const int64_t within[] = {1, 3, 5, 10};
	double best = 0, precisions = 0;

	for (int k = 0; k < 4; k++)
		found[FOUND_ACCURACY_1 + k] = place[0] < within[k];
	found[FOUND_MRR_10] = place[0] < 10 ? 1 / (double)(place[0] + 1) : 0;
	found[FOUND_NDCG_10] = 0;
	for (int64_t i = 0; i < count; i++) {
		best += i < 10 ? 1 / log2((double)(i + 2)) : 0;
		found[FOUND_NDCG_10] += place[i] < 10 ? 1 / log2((double)(place[i] + 2)) : 0;
		precisions += place[i] < 100 ? (double)(i + 1) / (double)(place[i] + 1) : 0;
	}
	found[FOUND_NDCG_10] /= best;
	found[FOUND_MAP_100] = precisions / (double)(count < 100 ? count : 100);
}

static void query_run(void *context, int64_t q, int worker)
{
	const struct search *s = context;
	int64_t width = s->rows->width, first = s->first[q], count = s->first[q + 1] - first;
	double *near = mem_alloc((size_t)s->document_count, sizeof(*near));
	int64_t *place = mem_alloc((size_t)count, sizeof(*place));

	(void)worker;
	s->failed[q] = !near || !place;
	if (!s->failed[q]) {
		const float *own = s->unit + s->wanted[first].query * width;

		for (int64_t d = 0; d < s->document_count; d++)
			near[d] = units_dot(own, s->unit + s->document[d] * width, width);
		for (int64_t i = 0; i < count; i++)
			place[i] = place_of(s, near, s->wanted[first + i].document);
		qsort(place, (size_t)count, sizeof(*place), by_row);
		places_rate(s->found[q], place, count);
	}
	mem_free(near);
	mem_free(place);
}

static int search_run(struct search *s, double *sum)
{
	const struct scored *rows = s->rows;

	wanted_list(s);
	rows->each_task(rows->pool, rows->rows, unit_make, s);
	rows->each_task(rows->pool, s->query_count, query_run, s);
	for (int64_t q = 0; q < s->query_count; q++) {
		if (s->failed[q])
			return err_set(ERR_NOMEM, "out of memory for the texts that are searched");
		for (int k = 0; k < FOUND_COUNT; k++)
			sum[k] += s->found[q][k];
	}
	return 0;
}

int scores_of_retrieval(struct scores *out, const struct scored *rows)
{
	size_t units = (size_t)(rows->rows / rows->each) + 1;
	struct search s = {.rows = rows,
	        .unit = mem_alloc((size_t)(rows->rows * rows->width) + 1, sizeof(*s.unit)),
	        .document = mem_alloc(units, sizeof(*s.document)),
	        .wanted = mem_alloc(units, sizeof(*s.wanted)),
	        .first = mem_alloc(units, sizeof(*s.first)),
	        .found = mem_alloc(units, sizeof(*s.found)),
	        .failed = mem_alloc(units, sizeof(*s.failed))};
	double sum[FOUND_COUNT] = {0};
	int rc = s.unit && s.document && s.wanted && s.first && s.found && s.failed ? 0 : ERR_NOMEM;

	if (!rc && rows->rows)
		rc = search_run(&s, sum);
	for (int k = 0; k < FOUND_COUNT && out->count < SCORES_MAX; k++) {
		out->of[out->count].name = names[k];
		out->of[out->count++].value = rows->rows ? sum[k] / (double)s.query_count : NAN;
	}
	mem_free(s.unit);
	mem_free(s.document);
	mem_free(s.wanted);
	mem_free(s.first);
	mem_free(s.found);
	mem_free(s.failed);
	return rc;
}
