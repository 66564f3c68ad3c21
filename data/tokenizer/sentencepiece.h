/* A tokenizer.model of sentencepiece, as the tokenizer.json that stands for it.
 *
 * The file is a protocol buffer: pieces with scores, and how text is normalized. BPE pieces become merges in
 * the order of their scores; Unigram pieces stay as they are. What the file does not say is which tokens are
 * put around a text: tokenizer_config.json's add_bos_token and add_eos_token do, else a BPE gets its first
 * token (as Llama) and a Unigram its last (as T5).
 */
#ifndef FERRY_DATA_TOKENIZER_SENTENCEPIECE_H
#define FERRY_DATA_TOKENIZER_SENTENCEPIECE_H

#include <jansson.h>
#include <stddef.h>

#include "base/str.h"

/* Appends the text of the tokenizer.json. config is a tokenizer_config.json or NULL. ERR_INPUT for a damaged
 * file, ERR_UNSUPPORTED for one whose ids transformers does not take from the file, with the way to convert
 * it. */
int sentencepiece_to_json(
        struct str *out, const char *bytes, size_t len_bytes, const json_t *config, const char *where);

#endif
