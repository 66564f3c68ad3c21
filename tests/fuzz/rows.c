/* links: base data data_tokenizer */
/* seeds: */
/* JSON rows to train on, in every format that the first record selects. Rows, tokens and targets must add
 * up, and all ids must be the tokenizer's. */
#include "tests/fuzz/fuzz.h"

#include "data/rows/dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/dataset_rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static struct tokenizer *tokenizer;
	struct dataset_options options = {
	        .path = fuzz_file("rows.jsonl", data, len), .max_length_tokens = 64};
	struct dataset *d = NULL;
	int64_t tokens = 0, targets = 0;
	int err;

	if (!tokenizer)
		fuzz_require(!tokenizer_open(&tokenizer, FUZZ_SOURCE "/tests/golden/tokenizer/plain.json"));
	options.tokenizer = tokenizer;
	err = dataset_open(&d, &options);
	if (err) {
		fuzz_refused(err);
		fuzz_require(!d);
		return 0;
	}
	fuzz_require(!d->is_paired || d->row_count % 2 == 0);
	for (int64_t row = 0; row < d->row_count; row++) {
		fuzz_require(!d->is_paired || dataset_row_targets(d, row) > 0);
		tokens += dataset_row_tokens(d, row);
		for (int64_t i = 0; i < dataset_row_tokens(d, row); i++) {
			int32_t id = dataset_row_ids(d, row)[i];

			fuzz_require(id >= 0 && id < tokenizer_vocab_count(tokenizer));
			targets += i && dataset_label(d, row, i) != DATASET_IGNORE;
		}
	}
	fuzz_require(tokens == d->token_count && targets == d->target_count && d->row_count > 0);
	dataset_close(d);
	return 0;
}
