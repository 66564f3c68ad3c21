/* The usual objective: the mean loss of the tokens that follow a text. */
#include "data/batch.h"
#include "objective/objective.h"

#include <inttypes.h>
#include <math.h>

int64_t objective_row_targets(const struct batch_draws *draws, const struct dataset *data, int64_t row)
{
	(void)draws;
	return dataset_row_targets(data, row);
}

void objective_add_next(struct micro_batch *mb, const struct batch_document *document)
{
	const struct row_view *row = &document->row;
	int32_t *label = mb->own[0];

	for (int64_t t = 0; t + 1 < row->token_count; t++) {
		int32_t next = row_label(row, t + 1);

		if (next == DATASET_IGNORE)
			continue;
		label[mb->target_count] = next;
		mb->target_rows[mb->target_count++] = document->first_token + (int32_t)t;
	}
}

static void say_evaluation(struct str *out, const struct objective_means *means)
{
	str_printf(out, ", perplexity %.3f over %" PRId64 " targets", exp(means->loss), means->targets);
}

static const char *const keys[] = {"label_smoothing_factor", NULL};

const struct objective objective_tokens = {
        .name = "tokens",
        .keys = keys,
        .rows = DATASET_PAIRS_NONE,
        .batch = {.array = {{"label", DTYPE_I32, PER_TARGET}},
                .targets = objective_row_targets,
                .add = objective_add_next},
        .is_mean_of_entropy = 1,
        .check = objective_needs_vocabulary,
        .head = &head_of_tokens,
        .sum_count = 1,
        .sums_add = objective_add_losses,
        .say_evaluation = say_evaluation,
};
