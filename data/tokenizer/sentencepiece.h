/* Converts a tokenizer.model of sentencepiece to a tokenizer.json.
 *
 * The file is a protocol buffer: pieces with scores, and rules to normalize text. BPE pieces become merges in
 * the order of their scores; Unigram pieces stay as they are. The file does not say which tokens surround a
 * text. add_bos_token and add_eos_token of tokenizer_config.json do. Without these, BPE adds the first token
 * (as Llama) and Unigram the last (as T5).
 */
#ifndef FERRY_DATA_TOKENIZER_SENTENCEPIECE_H
#define FERRY_DATA_TOKENIZER_SENTENCEPIECE_H

#include <jansson.h>
#include <stddef.h>

#include "base/str.h"

/* Appends the text of the tokenizer.json. config is a tokenizer_config.json or NULL. ERR_INPUT for a damaged
 * file. ERR_UNSUPPORTED if transformers uses other ids than the file; the message tells how to convert it. */
int sentencepiece_to_json(
        struct str *out, const char *bytes, size_t len_bytes, const json_t *config, const char *where);

#endif
