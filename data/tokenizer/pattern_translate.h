/* Translates the regular expressions of tokenizer.json to PCRE2's. Private to data/tokenizer/pattern.c.
 *
 * The source dialect is Oniguruma's Ruby syntax over Unicode 16.0. Supported: literals, escapes, classes of
 * characters, ranges and \p{..} \P{..} \d \D \s \S \w \W (as ranges of our tables), groups, lookaround,
 * alternatives, quantifiers with ? and +, (?i:..) around ASCII letters, ^ and $ (at lines), and the dot.
 * Anything else is refused with ERR_UNSUPPORTED, also constructs with another meaning in PCRE2.
 */
#ifndef FERRY_DATA_TOKENIZER_PATTERN_TRANSLATE_H
#define FERRY_DATA_TOKENIZER_PATTERN_TRANSLATE_H

#include "base/str.h"

int pattern_translate(struct str *out, const char *pattern);

#endif
