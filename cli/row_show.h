/* Prints a row of a dataset with its trained tokens marked. */
#ifndef FERRY_CLI_ROW_SHOW_H
#define FERRY_CLI_ROW_SHOW_H

#include "base/str.h"
#include "data/dataset.h"
#include "data/mix.h"
#include "data/tokenizer/tokenizer.h"

/* On a terminal masked text is dim. Elsewhere masked lines begin with "-", trained lines with "+". */
enum row_style { ROW_STYLE_PLAIN, ROW_STYLE_TERMINAL };

/* Appends counts and text of a row; without a tokenizer (NULL) the ids. Control characters are written out,
 * so that no data acts on the terminal. */
int row_show(struct str *out, const struct dataset *d, const struct tokenizer *tokenizer, int64_t row,
        enum row_style style);

/* The same, a line for each token: place, id, label ("-" where it is not trained) and text. */
int row_show_tokens(struct str *out, const struct dataset *d, const struct tokenizer *tokenizer, int64_t row);

/* "an epoch has 100 rows: 70 of a.jsonl (of 210), 30 of b/ (of 30)", with the rows called by another word
 * where bins are drawn. */
void mix_show(struct str *out, const struct mix *m, const struct dataset *d, const char *rows);

#endif
