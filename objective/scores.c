/* Numbers over all rows of an evaluation: classes, correlations, comparisons of vectors. */
#include "objective/scores.h"

#include "base/err.h"
#include "base/mem.h"
#include "model/blocks/blocks.h"
#include "objective/contrast_units.h"

#include <math.h>
#include <stdlib.h>

static void add(struct scores *out, const char *name, double value)
{
	if (out->count == SCORES_MAX)
		return;
	out->of[out->count].name = name;
	out->of[out->count++].value = value;
}

static double ratio(double part, double whole)
{
	return whole != 0 ? part / whole : 0;
}

/* ---- classes ---- */

/* Of a class: rows that have it as label, rows where it was found, rows where both are so. */
struct tally {
	double labels, founds, right;
};

static double precision_of(struct tally t)
{
	return ratio(t.right, t.founds);
}

static double recall_of(struct tally t)
{
	return ratio(t.right, t.labels);
}

static double f1_of(struct tally t)
{
	return ratio(2 * t.right, t.labels + t.founds);
}

static double matthews(const struct tally *of, int64_t classes, double count)
{
	double right = 0, both = 0, labels = 0, founds = 0, far;

	for (int64_t k = 0; k < classes; k++) {
		right += of[k].right;
		both += of[k].labels * of[k].founds;
		labels += of[k].labels * of[k].labels;
		founds += of[k].founds * of[k].founds;
	}
	far = (count * count - labels) * (count * count - founds);
	return ratio(right * count - both, sqrt(far));
}

static double mean(double (*score)(struct tally), const struct tally *of, int64_t classes, int is_weighted)
{
	double sum = 0, weight = 0;

	for (int64_t k = 0; k < classes; k++) {
		double own = is_weighted ? of[k].labels : of[k].labels + of[k].founds > 0;

		sum += own * score(of[k]);
		weight += own;
	}
	return ratio(sum, weight);
}

int scores_classes(
        struct scores *out, const int32_t *label, const int32_t *found, int64_t count, int64_t classes)
{
	static const struct {
		const char *name, *macro, *weighted;
		double (*score)(struct tally);
	} kinds[] = {{"f1", "f1_macro", "f1_weighted", f1_of},
	        {"precision", "precision_macro", "precision_weighted", precision_of},
	        {"recall", "recall_macro", "recall_weighted", recall_of}};
	struct tally *of = mem_alloc((size_t)classes + 1, sizeof(*of));

	if (!of)
		return ERR_NOMEM;
	for (int64_t i = 0; i < count; i++) {
		of[label[i]].labels++;
		of[found[i]].founds++;
		of[label[i]].right += label[i] == found[i];
	}
	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
		if (classes == 2) {
			add(out, kinds[k].name, count ? kinds[k].score(of[1]) : NAN);
			continue;
		}
		add(out, kinds[k].macro, count ? mean(kinds[k].score, of, classes, 0) : NAN);
		add(out, kinds[k].weighted, count ? mean(kinds[k].score, of, classes, 1) : NAN);
	}
	add(out, "matthews_correlation", count ? matthews(of, classes, (double)count) : NAN);
	mem_free(of);
	return 0;
}

static double fact(const struct scored *rows, int64_t row, int which)
{
	return (double)rows->row[row * rows->stride + rows->width + which];
}

int scores_of_logits(struct scores *out, const struct scored *rows)
{
	int32_t *label = mem_alloc(2 * (size_t)rows->rows + 1, sizeof(*label)), *found;
	int rc = label ? 0 : ERR_NOMEM, has_nan = 0;

	for (int64_t i = 0; i < rows->rows && !rc; i++) {
		const float *logit = rows->row + i * rows->stride;

		found = label + rows->rows;
		label[i] = (int32_t)fact(rows, i, VECTOR_LABEL);
		for (int64_t k = 0; k < rows->width; k++) {
			has_nan |= isnan(logit[k]);
			if (logit[k] > logit[found[i]])
				found[i] = (int32_t)k;
		}
		if (label[i] < 0 || label[i] >= rows->width)
			rc = err_set(ERR_INTERNAL, "label %d of %lld", (int)label[i], (long long)rows->width);
	}
	if (!rc)
		rc = scores_classes(out, label, label + rows->rows, has_nan ? 0 : rows->rows, rows->width);
	mem_free(label);
	return rc;
}

/* ---- correlations ---- */

double pearson(const double *a, const double *b, int64_t count)
{
	double mean_a = 0, mean_b = 0, aa = 0, bb = 0, ab = 0;
	int varies_a = 0, varies_b = 0;

	for (int64_t i = 0; i < count; i++) {
		mean_a += a[i] / (double)count;
		mean_b += b[i] / (double)count;
		varies_a |= a[i] != a[0];
		varies_b |= b[i] != b[0];
	}
	if (!varies_a || !varies_b)
		return NAN;
	for (int64_t i = 0; i < count; i++) {
		aa += (a[i] - mean_a) * (a[i] - mean_a);
		bb += (b[i] - mean_b) * (b[i] - mean_b);
		ab += (a[i] - mean_a) * (b[i] - mean_b);
	}
	ab /= sqrt(aa) * sqrt(bb);
	return ab > 1 ? 1 : ab < -1 ? -1 : ab; /* NaN passes on */
}

static int by_value(const void *one, const void *other, void *values)
{
	double a = ((const double *)values)[*(const int64_t *)one],
	       b = ((const double *)values)[*(const int64_t *)other];

	return a < b ? -1 : a > b;
}

static void ranks_find(double *rank, int64_t *order, const double *value, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		order[i] = i;
	qsort_r(order, (size_t)count, sizeof(*order), by_value, (void *)(uintptr_t)value);
	for (int64_t i = 0, end; i < count; i = end) {
		for (end = i + 1; end < count && value[order[end]] == value[order[i]]; end++)
			;
		for (int64_t k = i; k < end; k++)
			rank[order[k]] = (double)(i + end - 1) / 2;
	}
}

int spearman(double *out, const double *a, const double *b, int64_t count)
{
	double *rank = mem_alloc(2 * (size_t)count + 1, sizeof(*rank));
	int64_t *order = mem_alloc((size_t)count + 1, sizeof(*order));
	int rc = rank && order ? 0 : ERR_NOMEM, has_nan = 0;

	for (int64_t i = 0; i < count; i++)
		has_nan |= isnan(a[i]) || isnan(b[i]); /* such numbers have no order */
	*out = NAN;
	if (!rc && !has_nan) {
		ranks_find(rank, order, a, count);
		ranks_find(rank + count, order, b, count);
		*out = pearson(rank, rank + count, count);
	}
	mem_free(rank);
	mem_free(order);
	return rc;
}

static int correlations_add(struct scores *out, const char *pearson_name, const char *spearman_name,
        const double *a, const double *b, int64_t count)
{
	double rank = NAN;
	int rc = spearman(&rank, a, b, count);

	add(out, pearson_name, pearson(a, b, count));
	add(out, spearman_name, rank);
	return rc;
}

int scores_of_numbers(struct scores *out, const struct scored *rows)
{
	int64_t count = rows->rows;
	double *found = mem_alloc(2 * (size_t)count + 1, sizeof(*found)), *label, square = 0;
	int rc;

	if (!found)
		return ERR_NOMEM;
	label = found + count;
	for (int64_t i = 0; i < count; i++) {
		found[i] = (double)rows->row[i * rows->stride];
		label[i] = fact(rows, i, VECTOR_LABEL);
		square += (found[i] - label[i]) * (found[i] - label[i]);
	}
	add(out, "mse", count ? square / (double)count : NAN);
	rc = correlations_add(out, "pearson", "spearmanr", label, found, count);
	mem_free(found);
	return rc;
}

/* ---- vectors ---- */

static double cosine(const struct scored *rows, int64_t a, int64_t b)
{
	const float *x = rows->row + a * rows->stride, *y = rows->row + b * rows->stride;
	double length = sqrt(units_dot(x, x, rows->width)) * sqrt(units_dot(y, y, rows->width));

	return ratio(units_dot(x, y, rows->width), length);
}

int scores_of_pairs(struct scores *out, const struct scored *rows)
{
	int64_t count = rows->rows / rows->each;
	double *found = mem_alloc(2 * (size_t)count + 1, sizeof(*found)), *label;
	int rc;

	if (!found)
		return ERR_NOMEM;
	label = found + count;
	for (int64_t i = 0; i < count; i++) {
		found[i] = cosine(rows, i * rows->each, i * rows->each + 1);
		label[i] = fact(rows, i * rows->each, VECTOR_LABEL);
	}
	rc = correlations_add(out, "pearson_cosine", "spearman_cosine", label, found, count);
	mem_free(found);
	return rc;
}

int scores_of_triplets(struct scores *out, const struct scored *rows)
{
	int64_t count = rows->rows / rows->each;
	double right = 0;

	for (int64_t i = 0; i < count; i++) {
		int64_t a = i * rows->each;
		double nearer = cosine(rows, a, a + 1) - cosine(rows, a, a + 2);

		right += isnan(nearer) ? nearer : nearer > 0;
	}
	add(out, "cosine_accuracy", count ? right / (double)count : NAN);
	return 0;
}
