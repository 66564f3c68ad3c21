/* Classification of tokens: a label for each word of a text, at its first token. */
#include "data/batch.h"
#include "objective/objective.h"

#include "base/err.h"

#include <inttypes.h>

enum { LABEL, TYPE }; /* arrays */

static const char *const keys[] = {"objective", NULL};

static int tags_check(const struct model *model)
{
	return model->config.has[ROLE_CLASS_W] && !model->config.pooling.mode_count
	               ? 0
	               : err_set(ERR_UNSUPPORTED, "the model has no head for classes of tokens");
}

static void tags_add(struct micro_batch *mb, const struct batch_document *document)
{
	const struct row_view *row = &document->row;
	int32_t *label = mb->own[LABEL], *type = mb->own[TYPE];

	for (int64_t t = 0; t < row->token_count; t++) {
		int32_t own = row_label(row, t);

		type[document->first_token + t] = 0;
		if (own == DATASET_IGNORE)
			continue;
		label[mb->target_count] = own;
		mb->target_rows[mb->target_count++] = document->first_token + (int32_t)t;
	}
}

static void say_evaluation(struct str *out, const struct objective_means *means)
{
	str_printf(out, " over %" PRId64 " words", means->targets);
}

const struct objective objective_token_classification = {
        .name = "token_classification",
        .keys = keys,
        .chosen_by = OBJECTIVE_TOKEN_CLASSIFICATION,
        .rows = DATASET_LABELS_ONLY,
        .labels = {.is_of_tokens = 1},
        .batch = {.array = {[LABEL] = {"label", DTYPE_I32, PER_TARGET},
                          [TYPE] = {"type", DTYPE_I32, PER_TOKEN}},
                .types = TYPE + 1,
                .targets = objective_row_targets,
                .add = tags_add},
        .check = tags_check,
        .head = &objective_labels_head,
        .sum_count = 1,
        .sums_add = objective_add_losses,
        .say_evaluation = say_evaluation,
};
