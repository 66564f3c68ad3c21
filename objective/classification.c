/* Classification of texts, and regression: a label for each text or pair of texts. */
#include "objective/classes.h"
#include "objective/vectors.h"

#include "base/err.h"

#include <inttypes.h>
#include <math.h>

static const char *const keys[] = {"objective", NULL};

static int classes_check(const struct model *model)
{
	return model->config.has[ROLE_CLASS_W]
	               ? 0
	               : err_set(ERR_UNSUPPORTED, "the model has no head for classes");
}

/* The sign of a document's loss says whether its label was found: sums_add has no logits. */
static int classes_judge(struct judgement *j)
{
	for (int64_t i = 0; i < j->count; i++) {
		const float *row = j->row[i];
		float *gradient = j->gradient ? j->gradient + i * j->width : NULL;
		int64_t label = (int64_t)row[j->width + VECTOR_LABEL];
		int is_right;
		double loss;

		if (label < 0 || label >= j->width)
			return err_set(ERR_INTERNAL, "label %" PRId64 " of %" PRId64, label, j->width);
		loss = class_loss(gradient, &is_right, row, j->width, label, j->grad_scale);
		if (j->loss[i])
			*j->loss[i] = (float)(is_right ? loss : -loss);
	}
	return 0;
}

static int regression_judge(struct judgement *j)
{
	for (int64_t i = 0; i < j->count; i++) {
		const float *row = j->row[i];
		double loss = regression_loss(j->gradient ? j->gradient + i * j->width : NULL, row, j->width,
		        (double)row[j->width + VECTOR_LABEL], j->grad_scale);

		if (j->loss[i])
			*j->loss[i] = (float)loss;
	}
	return 0;
}

/* The logit of a label from 0 to 1. The sign says whether both are on one side of a half. */
static int reranking_judge(struct judgement *j)
{
	if (j->width != 1)
		return err_set(ERR_INTERNAL, "reranking: %" PRId64 " numbers", j->width);
	for (int64_t i = 0; i < j->count; i++) {
		double x = (double)j->row[i][0], label = (double)j->row[i][j->width + VECTOR_LABEL],
		       loss = fmax(x, 0) - x * label + log1p(exp(-fabs(x)));

		if (j->gradient)
			j->gradient[i] = (float)(j->grad_scale * (1 / (1 + exp(-x)) - label));
		if (j->loss[i])
			*j->loss[i] = (float)((x > 0) == (label > 0.5) ? loss : -loss);
	}
	return 0;
}

static const struct vectors_pass reranking_vectors = {vectors_width, reranking_judge, 1};
static const struct vectors_pass classes_vectors = {vectors_width, classes_judge, 1},
                                 regression_vectors = {vectors_width, regression_judge, 1};

static int classes_scores(struct scores *out, const struct scored *rows, const double *settings)
{
	(void)settings;
	return scores_of_logits(out, rows);
}

static int regression_scores(struct scores *out, const struct scored *rows, const double *settings)
{
	(void)settings;
	return scores_of_numbers(out, rows);
}

enum { SUM_LOSS, SUM_RIGHT, SUM_COUNT };

static void sums_add(
        double *sums, const double *settings, const struct host_batch *batch, const float *losses)
{
	(void)settings;
	for (int64_t i = 0; i < batch->targets; i++) {
		sums[SUM_LOSS] += fabs((double)losses[i]);
		sums[SUM_RIGHT] += !signbit(losses[i]) && !isnan(losses[i]);
	}
}

static void metrics_find(double *metrics, const double *sums, double count)
{
	metrics[0] = sums[SUM_RIGHT] / count;
}

static void say_evaluation(struct str *out, const struct objective_means *means)
{
	str_printf(out, ", %.2f%% of %" PRId64 " texts right", 100 * means->metric[0], means->count);
}

static void say_step(struct str *out, const struct objective_means *means)
{
	str_printf(out, "  right %.0f%%", 100 * means->metric[0]);
}

const struct objective objective_classification = {
        .name = "classification",
        .keys = keys,
        .chosen_by = OBJECTIVE_CLASSIFICATION,
        .rows = DATASET_LABELS_ONLY,
        .problem = "single_label_classification",
        .batch = VECTORS_BATCH,
        .row_documents = 1,
        .is_mean_of_rows = 1,
        .check = classes_check,
        .head = &vectors_head,
        .vectors = &classes_vectors,
        .sum_count = SUM_COUNT,
        .sums_add = sums_add,
        .metrics = {"accuracy"},
        .metrics_find = metrics_find,
        .scores_find = classes_scores,
        .say_evaluation = say_evaluation,
        .say_step = say_step,
};

const struct objective objective_regression = {
        .name = "regression",
        .keys = keys,
        .chosen_by = OBJECTIVE_REGRESSION,
        .rows = DATASET_LABELS_ONLY,
        .labels = {.is_regression = 1},
        .problem = "regression",
        .batch = VECTORS_BATCH,
        .row_documents = 1,
        .is_mean_of_rows = 1,
        .check = classes_check,
        .head = &vectors_head,
        .vectors = &regression_vectors,
        .sum_count = SUM_COUNT,
        .sums_add = sums_add,
        .scores_find = regression_scores,
};

/* BinaryCrossEntropyLoss of sentence-transformers' CrossEncoder. */
const struct objective objective_reranking = {
        .name = "reranking",
        .keys = keys,
        .chosen_by = OBJECTIVE_RERANKING,
        .rows = DATASET_LABELS_ONLY,
        .labels = {.is_regression = 1, .is_share = 1},
        .batch = VECTORS_BATCH,
        .row_documents = 1,
        .is_mean_of_rows = 1,
        .check = classes_check,
        .head = &vectors_head,
        .vectors = &reranking_vectors,
        .sum_count = SUM_COUNT,
        .sums_add = sums_add,
        .metrics = {"accuracy"},
        .metrics_find = metrics_find,
        .say_evaluation = say_evaluation,
        .say_step = say_step,
};
