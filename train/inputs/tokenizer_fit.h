/* Whether a tokenizer's ids are those of the model.
 *
 * Vocabularies of models are often padded, so a smaller tokenizer is fine. A larger one has tokens without a
 * row in the embedding: rows that use one are refused, and generation fails. ferry warns of it before.
 */
#ifndef FERRY_TRAIN_INPUTS_TOKENIZER_FIT_H
#define FERRY_TRAIN_INPUTS_TOKENIZER_FIT_H

#include <stdint.h>

struct tokenizer;

/* Warns if ids go beyond the model's rows; `where` is the tokenizer's directory or file. */
void tokenizer_fit_warn(const struct tokenizer *t, int64_t vocab_count, const char *where);

/* The same for a directory or file whose tokenizer is only copied. One that is absent or that ferry cannot
 * read is not checked. ERR_NOMEM. */
int tokenizer_fit_check(const char *path, int64_t vocab_count);

#endif
