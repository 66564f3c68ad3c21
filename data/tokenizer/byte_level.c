/* The byte alphabet of GPT-2, both ways. */
#include "data/tokenizer/byte_level.h"

#include "data/tokenizer/unicode.h"

static int is_itself(unsigned char byte)
{
	return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
}

enum {
	FIRST_OTHER = 0x100,          /* stands for byte 0x00, and so on to 0x20 */
	OTHER_FROM_7F = 0x100 + 0x21, /* stands for byte 0x7f, and so on to 0xa0 */
	OTHER_AD = 0x143,             /* stands for byte 0xad, the last */
};

uint32_t byte_level_char(unsigned char byte)
{
	if (is_itself(byte))
		return byte;
	if (byte <= 0x20)
		return FIRST_OTHER + byte;
	return byte == 0xad ? OTHER_AD : OTHER_FROM_7F + (byte - 0x7fu);
}

int byte_level_byte(uint32_t c)
{
	if (c < FIRST_OTHER)
		return is_itself((unsigned char)c) ? (int)c : -1;
	if (c < OTHER_FROM_7F)
		return (int)(c - FIRST_OTHER);
	if (c < OTHER_AD)
		return (int)(c - OTHER_FROM_7F + 0x7f);
	return c == OTHER_AD ? 0xad : -1;
}

int byte_level_decode(char *out, size_t *out_bytes, const char *token, size_t len_bytes)
{
	size_t count = 0;

	for (size_t i = 0; i < len_bytes;) {
		uint32_t c;
		int byte;

		i += (size_t)utf8_get(token + i, &c);
		byte = byte_level_byte(c);
		if (byte < 0)
			return 0;
		out[count++] = (char)byte;
	}
	*out_bytes = count;
	return 1;
}
