/* The usual objective: the mean loss of the tokens that follow a text. */
#include "objective/objective.h"

#include <inttypes.h>
#include <math.h>

static void sums_add(
        double *sums, const double *settings, const struct host_batch *batch, const float *losses)
{
	(void)settings;
	for (int64_t i = 0; i < batch->targets; i++)
		sums[0] += losses[i];
}

static void say_evaluation(struct str *out, const struct objective_means *means)
{
	str_printf(out, ", perplexity %.3f over %" PRId64 " targets", exp(means->loss), means->targets);
}

const struct objective objective_tokens = {
        .name = "tokens",
        .array = {{"label", DTYPE_I32, PER_TARGET, BATCH_FIELD_LABELS}},
        .is_mean_of_entropy = 1,
        .check = objective_needs_vocabulary,
        .head = &head_of_tokens,
        .sum_count = 1,
        .sums_add = sums_add,
        .say_evaluation = say_evaluation,
};
