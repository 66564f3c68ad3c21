/* Merges a piece of many symbols window by window. Private to BPE. */
#ifndef FERRY_DATA_TOKENIZER_BPE_LONG_H
#define FERRY_DATA_TOKENIZER_BPE_LONG_H

#include "data/tokenizer/bpe_symbols.h"

/* Appends the ids of a piece. It begins with the symbols in scratch->segment and continues with the
 * symbols of `s`, up to the first pair that no merge joins. */
int bpe_encode_long(struct bpe_symbols *s, struct bpe_scratch *scratch, struct token_list *ids);

#endif
