/* A row of a dataset as it is trained on, for people. */
#ifndef FERRY_CLI_ROW_SHOW_H
#define FERRY_CLI_ROW_SHOW_H

#include "base/str.h"
#include "data/dataset.h"
#include "data/tokenizer/tokenizer.h"

/* On a terminal what is masked is dim; elsewhere its lines begin with "-", and those trained on with "+". */
enum row_style { ROW_STYLE_PLAIN, ROW_STYLE_TERMINAL };

/* Appends counts and text of a row; without a tokenizer (NULL) the ids. Control characters are written out,
 * so that no data acts on the terminal. */
int row_show(struct str *out, const struct dataset *d, const struct tokenizer *tokenizer, int64_t row,
        enum row_style style);

/* The same, a line for each token: place, id, label ("-" where it is not trained) and text. */
int row_show_tokens(struct str *out, const struct dataset *d, const struct tokenizer *tokenizer, int64_t row);

#endif
