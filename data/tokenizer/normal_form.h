/* Normalization forms C, D, KC and KD with the tables of Unicode 9.0, as published tokenizers need them.
 *
 * utf8proc decomposes and composes. Characters newer than 9.0 stay as they are: marks among them are not
 * reordered, and nothing joins with or across them. Time is linear, even in runs of marks.
 */
#ifndef FERRY_DATA_TOKENIZER_NORMAL_FORM_H
#define FERRY_DATA_TOKENIZER_NORMAL_FORM_H

#include <stddef.h>

#include "base/str.h"

enum normal_form { NORMAL_FORM_C, NORMAL_FORM_D, NORMAL_FORM_KC, NORMAL_FORM_KD };

/* Appends the normal form of text (valid UTF-8) to *out. ERR_NOMEM. */
int normal_form_append(struct str *out, enum normal_form form, const char *text, size_t len_bytes);

/* 0 if the form is surely equal to the text. */
int normal_form_may_change(enum normal_form form, const char *text, size_t len_bytes);

#endif
