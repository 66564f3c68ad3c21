/* Reward models: a number for each answer, larger for the chosen one of a pair. */
#include "objective/vectors.h"

#include "base/err.h"

#include <inttypes.h>
#include <math.h>

enum { OBJECTIVE_KEY, CENTER };
static const char *const keys[] = {"objective", "center_rewards_coefficient", NULL};

static int reward_check(const struct model *model)
{
	return model->config.has[ROLE_CLASS_W] && model->config.labels == 1
	               ? 0
	               : err_set(ERR_UNSUPPORTED, "the model has no head for one number");
}

/* -log sigmoid(x) */
static double loss_of(double x)
{
	return x > 0 ? log1p(exp(-x)) : log1p(exp(x)) - x;
}

/* Documents are pairs. The loss stands at the chosen one, the difference of rewards at the rejected one. */
static int judge(struct judgement *j)
{
	double center = j->settings[CENTER];

	if (j->width != 1 || j->count % 2)
		return err_set(
		        ERR_INTERNAL, "rewards: %" PRId64 " texts, %" PRId64 " numbers", j->count, j->width);
	for (int64_t i = 0; i + 1 < j->count; i += 2) {
		double chosen = (double)j->row[i][0], rejected = (double)j->row[i + 1][0],
		       margin = (double)j->row[i][j->width + VECTOR_LABEL], far = chosen - rejected - margin,
		       both = chosen + rejected, slope = -1 / (1 + exp(far));

		if (j->loss[i])
			*j->loss[i] = (float)(loss_of(far) + center * both * both);
		if (j->loss[i + 1])
			*j->loss[i + 1] = (float)(chosen - rejected);
		if (!j->gradient)
			continue;
		j->gradient[i] = (float)(j->grad_scale * (slope + 2 * center * both));
		j->gradient[i + 1] = (float)(j->grad_scale * (-slope + 2 * center * both));
	}
	return 0;
}

static const struct vectors_pass vectors = {vectors_width, judge, 1};

enum { SUM_LOSS, SUM_RIGHT, SUM_MARGIN, SUM_COUNT };
enum { ACCURACY, MARGIN }; /* metrics */

static void sums_add(
        double *sums, const double *settings, const struct host_batch *batch, const float *losses)
{
	(void)settings;
	for (int64_t i = 0; i + 1 < batch->targets; i += 2) {
		sums[SUM_LOSS] += (double)losses[i];
		sums[SUM_RIGHT] += losses[i + 1] > 0;
		sums[SUM_MARGIN] += (double)losses[i + 1];
	}
}

static void metrics_find(double *metrics, const double *sums, double count)
{
	metrics[ACCURACY] = sums[SUM_RIGHT] / count;
	metrics[MARGIN] = sums[SUM_MARGIN] / count;
}

static void say_evaluation(struct str *out, const struct objective_means *means)
{
	str_printf(out, ", %.0f%% of %" PRId64 " pairs right", 100 * means->metric[ACCURACY], means->count);
}

static void say_step(struct str *out, const struct objective_means *means)
{
	str_printf(out, "  right %.0f%%  margin %.3g", 100 * means->metric[ACCURACY], means->metric[MARGIN]);
}

/* Names and meaning of the metrics are those of TRL's RewardTrainer. */
const struct objective objective_reward = {
        .name = "reward",
        .keys = keys,
        .chosen_by = OBJECTIVE_REWARD,
        .rows = DATASET_REWARDS_ONLY,
        .labels = {.is_regression = 1},
        .batch = VECTORS_BATCH,
        .row_documents = 2,
        .is_mean_of_rows = 1,
        .check = reward_check,
        .head = &vectors_head,
        .vectors = &vectors,
        .sum_count = SUM_COUNT,
        .sums_add = sums_add,
        .metrics = {"accuracy", "margin"},
        .metrics_find = metrics_find,
        .say_evaluation = say_evaluation,
        .say_step = say_step,
};
