/* Prints a row of a dataset with its trained tokens marked. */
#ifndef FERRY_CLI_ROW_SHOW_H
#define FERRY_CLI_ROW_SHOW_H

#include "base/str.h"
#include "data/mix.h"
#include "data/rows/dataset.h"
#include "data/tokenizer/tokenizer.h"

/* On a terminal masked text is dim. Elsewhere masked lines begin with "-", trained lines with "+". */
enum row_style { ROW_STYLE_PLAIN, ROW_STYLE_TERMINAL };

/* Appends counts and text of a row; without a tokenizer (NULL) the ids. Control characters are escaped, so
 * that no data acts on the terminal. */
int row_show(struct str *out, const struct dataset *d, const struct tokenizer *tokenizer, int64_t row,
        enum row_style style);

/* The same with a line for each token: place, id, label ("-" if it is not trained) and text. */
int row_show_tokens(struct str *out, const struct dataset *d, const struct tokenizer *tokenizer, int64_t row);

/* Appends "an epoch has 100 rows: 70 of a.jsonl (of 210), 30 of b/ (of 30)". `rows` is the word for what
 * is drawn: data_config_drawn. */
void mix_show(struct str *out, const struct mix *m, const struct dataset *d, const char *rows);

#endif
