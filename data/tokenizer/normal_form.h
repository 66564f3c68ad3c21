/* Normalization forms C, D, KC and KD by the tables of Unicode 9.0, which published tokenizers were made
 * with.
 *
 * Decomposition and composition are utf8proc's; characters that came after 9.0 are kept away from them: marks
 * among them are not reordered, and nothing joins with or across them. Time is linear, also in runs of marks.
 */
#ifndef FERRY_DATA_TOKENIZER_NORMAL_FORM_H
#define FERRY_DATA_TOKENIZER_NORMAL_FORM_H

#include <stddef.h>

#include "base/str.h"

enum normal_form { NORMAL_FORM_C, NORMAL_FORM_D, NORMAL_FORM_KC, NORMAL_FORM_KD };

/* Appends the form of text (valid UTF-8) to *out. ERR_NOMEM. */
int normal_form_append(struct str *out, enum normal_form form, const char *text, size_t len_bytes);

/* Whether the form could differ from the text; 0 means that it does not. */
int normal_form_may_change(enum normal_form form, const char *text, size_t len_bytes);

#endif
