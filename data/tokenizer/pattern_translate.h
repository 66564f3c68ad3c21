/* From the regular expressions of tokenizer.json to PCRE2's. Not for use outside data/tokenizer/pattern.c.
 *
 * The source dialect is Oniguruma's Ruby syntax over Unicode 16.0. Taken over: literals, escapes, classes of
 * characters, ranges and \p{..} \P{..} \d \D \s \S \w \W (as ranges of our tables), groups, lookaround,
 * alternatives, quantifiers with ? and +, (?i:..) around ASCII letters, ^ and $ (at lines), and the dot.
 * Everything else, among it what PCRE2 would take for something different, is refused with ERR_UNSUPPORTED.
 */
#ifndef FERRY_DATA_TOKENIZER_PATTERN_TRANSLATE_H
#define FERRY_DATA_TOKENIZER_PATTERN_TRANSLATE_H

#include "base/str.h"

int pattern_translate(struct str *out, const char *pattern);

#endif
