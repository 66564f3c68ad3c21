/* Masked words: of the tokens of a text a share is hidden, and the model names them. Of the hidden ones 8 of
 * 10 become the mask, 1 another token, and 1 stays, as in transformers. What is hidden follows from the seed,
 * the epoch, the row, and the token's number among those of the row that may be. Where whole words are hidden
 * the number is the word's, and all its tokens become the mask. */
#include "data/batch.h"
#include "device/noise.h"
#include "model/family.h"
#include "objective/objective.h"

#include "base/err.h"

#include <inttypes.h>
#include <math.h>

enum { LABEL, TYPE };             /* arrays */
enum { CHOOSE, REPLACE, RANDOM }; /* what a token's numbers decide */

static const char *const keys[] = {"objective", NULL};

static int masked_check(const struct model *model)
{
	return model->config.is_classifier == HEAD_OF_WORDS
	               ? 0
	               : err_set(ERR_UNSUPPORTED, "the model has no head for masked words");
}

/* The numbers of a row in an epoch, and those of a token of it. */
static uint64_t row_key(const struct batch_draws *draws, int64_t epoch)
{
	return noise_row(noise_mix(draws->seed), noise_mix(noise_module("masked words") + (uint64_t)epoch));
}

static int is_hidden(const struct batch_draws *draws, uint64_t token)
{
	return noise_bits(token, CHOOSE) < draws->share * 4294967296.0;
}

/* A walk over the tokens of a row. Only what may be hidden has a number; a token that goes on has that of the
 * one before. */
struct walk {
	uint64_t row_key, row, number, token;
	int is_in_word;
};

/* The token's own id if it is hidden, else DATASET_IGNORE. */
static int32_t walk_on(struct walk *w, const struct batch_draws *draws, int32_t label)
{
	int goes_on = draws->is_of_words && label >= DATASET_GOES_ON;

	if (label == DATASET_IGNORE) {
		w->is_in_word = 0;
		return label;
	}
	if (!goes_on || !w->is_in_word)
		w->token = noise_token(w->row_key, w->row, w->number++);
	w->is_in_word = 1;
	return !is_hidden(draws, w->token) ? DATASET_IGNORE : label - (goes_on ? DATASET_GOES_ON : 0);
}

static int64_t masked_drawn(const struct batch_draws *draws, const struct dataset *data, int64_t epoch,
        int64_t row, int64_t count)
{
	struct walk w = {.row_key = row_key(draws, epoch), .row = (uint64_t)row};
	struct row_buffer buffer = {0};
	struct row_view view;
	int64_t hidden = 0;
	int rc = draws->is_of_words ? dataset_row_read(&view, &buffer, data, row) : 0;

	for (int64_t i = 0; i < count && !draws->is_of_words; i++)
		hidden += walk_on(&w, draws, 0) != DATASET_IGNORE;
	for (int64_t t = 0; !rc && draws->is_of_words && t < view.token_count; t++)
		hidden += walk_on(&w, draws, row_label(&view, t)) != DATASET_IGNORE;
	row_buffer_free(&buffer);
	return rc ? rc : hidden;
}

/* Any token but padding, which has no position in a text. */
static int32_t another(const struct batch_draws *draws, uint64_t token)
{
	uint64_t count = (uint64_t)draws->random - (draws->pad >= 0);
	int32_t id = (int32_t)((uint64_t)noise_bits(token, RANDOM) * count >> 32);

	return id + (draws->pad >= 0 && id >= draws->pad);
}

/* What the model sees of a hidden token. */
static int32_t shown(const struct batch_draws *draws, uint64_t token, int32_t id)
{
	uint64_t of_ten = (uint64_t)noise_bits(token, REPLACE) * 10 >> 32;

	return draws->is_of_words || of_ten < 8 ? draws->mask : of_ten < 9 ? another(draws, token) : id;
}

static void masked_add(struct micro_batch *mb, const struct batch_document *document)
{
	const struct row_view *row = &document->row;
	struct walk w = {
	        .row_key = row_key(document->draws, document->epoch), .row = (uint64_t)document->data_row};
	int32_t *label = mb->own[LABEL], *type = mb->own[TYPE];

	for (int64_t t = 0; t < row->token_count; t++) {
		int32_t own = walk_on(&w, document->draws, row_label(row, t)),
		        at = document->first_token + (int32_t)t;

		type[at] = 0;
		if (own == DATASET_IGNORE)
			continue;
		mb->ids[at] = shown(document->draws, w.token, mb->ids[at]);
		label[mb->target_count] = own;
		mb->target_rows[mb->target_count++] = at;
	}
}

static void say_evaluation(struct str *out, const struct objective_means *means)
{
	str_printf(out, ", perplexity %.3f over %" PRId64 " hidden tokens", exp(means->loss), means->targets);
}

const struct objective objective_masked = {
        .name = "masked",
        .keys = keys,
        .chosen_by = OBJECTIVE_MASKED,
        .rows = DATASET_HIDDEN_ONLY,
        .batch = {.array = {[LABEL] = {"label", DTYPE_I32, PER_TARGET},
                          [TYPE] = {"type", DTYPE_I32, PER_TOKEN}},
                .types = TYPE + 1,
                .targets = objective_row_targets,
                .drawn = masked_drawn,
                .add = masked_add},
        .is_mean_of_entropy = 1,
        .check = masked_check,
        .head = &objective_labels_head,
        .sum_count = 1,
        .sums_add = objective_add_losses,
        .say_evaluation = say_evaluation,
};
