/* Inside of the dataset: rows are appended to growing pools, by format. Not for use outside data/. */
#ifndef FERRY_DATA_DATASET_BUILD_H
#define FERRY_DATA_DATASET_BUILD_H

#include <jansson.h>
#include <stdint.h>

#include "data/dataset.h"

struct token_list;

struct dataset_builder {
	struct dataset *d;
	const struct dataset_options *options;
	const char *text_field;
	const char *where;   /* of the record being read, for messages */
	int64_t vocab_count; /* 0 = unknown */
	int64_t row_cap, token_cap;
	struct token_list *prompt, *answer; /* scratch of the text formats */
};

int dataset_builder_begin(struct dataset_builder *b);
void dataset_builder_free(struct dataset_builder *b);

/* Gives back what the pools grew too much. */
int dataset_builder_end(struct dataset_builder *b);

/* Appends a row. labels NULL: the first `masked` labels are DATASET_IGNORE and the others the ids. Applies
 * max_length_tokens and long_rows, counts, and checks ids and labels against the vocabulary. */
int dataset_builder_add(struct dataset_builder *b, const int32_t *ids, const int32_t *labels,
        int64_t token_count, int64_t masked);

/* Appends row `row` of another dataset as it is. */
int dataset_builder_copy(struct dataset_builder *b, const struct dataset *from, int64_t row);

/* One record of the tokens format; of text, alpaca or prompt_completion; a whole .txt file. */
int dataset_read_tokens(struct dataset_builder *b, const json_t *record);
int dataset_read_text(struct dataset_builder *b, const json_t *record);
int dataset_read_plain(struct dataset_builder *b);

#endif
