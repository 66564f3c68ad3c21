/* A piece of many symbols, merged window by window. Not for use outside of BPE. */
#ifndef FERRY_DATA_TOKENIZER_BPE_LONG_H
#define FERRY_DATA_TOKENIZER_BPE_LONG_H

#include "data/tokenizer/bpe_symbols.h"

/* Appends the ids of the piece whose first symbols are scratch->segment and that goes on with what is in
 * front of `s`, up to the first pair that is never joined. */
int bpe_encode_long(struct bpe_symbols *s, struct bpe_scratch *scratch, struct token_list *ids);

#endif
