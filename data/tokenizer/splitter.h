/* Hand-written matchers for the split patterns of GPT-2, Llama-3 and Qwen2.
 *
 * Each returns the end of the match that begins at `at` (< len_bytes): these patterns match at every
 * position. The text is valid UTF-8. tests/test_tokenizer.c compares them with PCRE2.
 */
#ifndef FERRY_DATA_TOKENIZER_SPLITTER_H
#define FERRY_DATA_TOKENIZER_SPLITTER_H

#include <stddef.h>

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
size_t splitter_gpt2(const char *text, size_t len_bytes, size_t at);

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|
 * \s+(?!\S)|\s+ */
size_t splitter_llama3(const char *text, size_t len_bytes, size_t at, int digits);

#endif
