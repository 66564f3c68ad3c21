/* Byte-pair encoding of words. */
#ifndef FERRY_DATA_TOKENIZER_BPE_ENCODE_H
#define FERRY_DATA_TOKENIZER_BPE_ENCODE_H

#include "data/tokenizer/bpe.h"

/* Appends the ids of one word. ERR_NOMEM. */
int bpe_encode(const struct bpe *b, struct bpe_scratch *scratch, struct token_list *ids, const char *word,
        size_t len_bytes);

#endif
