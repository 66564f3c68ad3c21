/* links: base data data_tokenizer */
/* seeds: */
/* JSON rows to train on, in every format that the first record selects, for every kind of objective. Rows,
 * tokens and targets must add up, and all ids must be the tokenizer's. */
#include "tests/fuzz/fuzz.h"

#include "data/rows/dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/dataset_rows.h"

static const char *const names[] = {"O", "B", "I"};

static const struct dataset_options kinds[] = {
        {.pairs = DATASET_PAIRS_ANY},
        {.pairs = DATASET_REWARDS_ONLY},
        {.pairs = DATASET_JUDGED_ONLY, .judged_group = 2, .turns = DATASET_TURNS_LAST},
        {.pairs = DATASET_TEXTS_ONLY, .texts = {"a loss", 2, .may_lack_score = 1, .scores_negatives = 1}},
        {.pairs = DATASET_LABELS_ONLY, .labels = {.count = 3, .names = names}},
        {.pairs = DATASET_LABELS_ONLY, .labels = {.count = 3, .names = names, .is_of_tokens = 1}},
        {.pairs = DATASET_LABELS_ONLY, .labels = {.count = 1, .is_regression = 1}},
};

/* Targets are labels behind the first token; with labels of tokens also its own; of texts, each text. */
static void dataset_check(const struct dataset *d, const struct dataset_options *o)
{
	int64_t tokens = 0, targets = 0, summed = 0;

	fuzz_require(d->row_count > 0 && d->row_count % dataset_set_unit_rows(d, 0) == 0);
	for (int64_t row = 0; row < d->row_count; row++) {
		fuzz_require(!d->is_paired || dataset_row_targets(d, row) > 0);
		tokens += dataset_row_tokens(d, row);
		summed += dataset_row_targets(d, row);
		for (int64_t i = 0; i < dataset_row_tokens(d, row); i++) {
			int32_t id = dataset_row_ids(d, row)[i];

			fuzz_require(id >= 0 && id < tokenizer_vocab_count(o->tokenizer));
			targets +=
			        (i || o->labels.is_of_tokens) && dataset_label(d, row, i) != DATASET_IGNORE;
		}
	}
	fuzz_require(tokens == d->token_count && summed == d->target_count);
	fuzz_require(summed == (d->texts ? d->row_count : targets));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static struct tokenizer *tokenizer;
	const char *path = fuzz_file("rows.jsonl", data, len);

	if (!tokenizer)
		fuzz_require(!tokenizer_open(&tokenizer, FUZZ_SOURCE "/tests/golden/tokenizer/plain.json"));
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		struct dataset_options options = kinds[i];
		struct dataset *d = NULL;
		int err;

		options.path = path;
		options.max_length_tokens = 64;
		options.tokenizer = tokenizer;
		err = dataset_open(&d, &options);
		if (err) {
			fuzz_refused(err);
			fuzz_require(!d);
			continue;
		}
		dataset_check(d, &options);
		dataset_close(d);
	}
	return 0;
}
