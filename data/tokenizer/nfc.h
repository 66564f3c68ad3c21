/* Normalization form C by the tables of Unicode 9.0, which published tokenizers were made with.
 *
 * Composition itself is utf8proc's; characters that came after 9.0 are kept away from it: marks among
 * them are not reordered, and nothing joins with or across them.
 */
#ifndef FERRY_DATA_TOKENIZER_NFC_H
#define FERRY_DATA_TOKENIZER_NFC_H

#include <stddef.h>

#include "base/str.h"

/* Appends NFC(text) to *out. text is valid UTF-8. ERR_NOMEM. */
int nfc_append(struct str *out, const char *text, size_t len_bytes);

/* Whether NFC could differ from the text; 0 means that it does not. */
int nfc_may_change(const char *text, size_t len_bytes);

#endif
