/* The byte alphabet of GPT-2: tokenizer.json writes each byte as one printable character.
 *
 * Bytes 0x21-0x7e, 0xa1-0xac and 0xae-0xff are the character of that number. The other 68, in ascending
 * order, are U+0100 to U+0143 (space is U+0120).
 */
#ifndef FERRY_DATA_TOKENIZER_BYTE_LEVEL_H
#define FERRY_DATA_TOKENIZER_BYTE_LEVEL_H

#include <stddef.h>
#include <stdint.h>

uint32_t byte_level_char(unsigned char byte);

/* The byte of a character, or -1. */
int byte_level_byte(uint32_t c);

/* Converts `token` (valid UTF-8) to its bytes, at most len_bytes of them, in out. Returns 1 with
 * *out_bytes, or 0 if a character stands for no byte. */
int byte_level_decode(char *out, size_t *out_bytes, const char *token, size_t len_bytes);

#endif
