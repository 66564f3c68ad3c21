/* UTF-8 and character classes, with tables of our own.
 *
 * The classes are those of the regex engine that trained tokenizers rely on: Unicode 16.0, which the
 * system's libraries do not have. Normal forms follow Unicode 9.0 (data/tokenizer/normal_form.h).
 * scripts/make_unicode_table.py writes unicode_table.c. unicode_init must have run before unicode_is;
 * tokenizer_open sees to it.
 */
#ifndef FERRY_DATA_TOKENIZER_UNICODE_H
#define FERRY_DATA_TOKENIZER_UNICODE_H

#include <stddef.h>
#include <stdint.h>

enum { UNICODE_END = 0x110000, UNICODE_PAGE = 128 };

/* Bits of a character's flags; the order is that of make_unicode_table.py. */
enum unicode_class {
	UNICODE_L = 1 << 0,
	UNICODE_N = 1 << 1,
	UNICODE_M = 1 << 2,
	UNICODE_LU = 1 << 3,
	UNICODE_LL = 1 << 4,
	UNICODE_LT = 1 << 5,
	UNICODE_LM = 1 << 6,
	UNICODE_LO = 1 << 7,
	UNICODE_P = 1 << 8,
	UNICODE_S = 1 << 9,
	UNICODE_SPACE = 1 << 10,       /* \s: White_Space */
	UNICODE_WORD = 1 << 11,        /* \w of a pattern */
	UNICODE_ADDED_WORD = 1 << 12,  /* \w as added tokens with single_word see it */
	UNICODE_NFC_ACTIVE = 1 << 13,  /* NFC may change it, move it, or join it to the character before */
	UNICODE_NF_UNKNOWN = 1 << 14,  /* newer than Unicode 9.0: nothing moves or joins across it */
	UNICODE_PUNCTUATION = 1 << 15, /* as Punctuation and BertPreTokenizer see it (Unicode 8.0) */
	UNICODE_NUMERIC = 1 << 16,     /* as Digits sees it (Unicode 17.0) */
	UNICODE_OTHER = 1 << 17,       /* BertNormalizer's clean_text removes it */
	UNICODE_NONSPACING = 1 << 18,  /* BertNormalizer's strip_accents removes it */
	UNICODE_COMBINING = 1 << 19,   /* StripAccents removes it */
	UNICODE_NFD_ACTIVE = 1 << 20,  /* like NFC_ACTIVE, for the other forms */
	UNICODE_NFKC_ACTIVE = 1 << 21,
	UNICODE_NFKD_ACTIVE = 1 << 22,
	UNICODE_ND = 1 << 23,
	UNICODE_HAN = 1 << 24, /* the script */
};

struct unicode_run {
	uint32_t first;
	uint32_t flags;
};
extern const struct unicode_run unicode_runs[];
extern const int unicode_run_count;

/* Fills unicode_pages once; thread-safe. */
void unicode_init(void);
extern const uint32_t *unicode_pages[UNICODE_END / UNICODE_PAGE]; /* the flags of UNICODE_PAGE characters */

static inline uint32_t unicode_flags(uint32_t c)
{
	return unicode_pages[c / UNICODE_PAGE][c % UNICODE_PAGE];
}

static inline int unicode_is(uint32_t c, unsigned classes)
{
	return (unicode_flags(c) & classes) != 0;
}

/* Offset of the first byte that is not valid UTF-8 (surrogates, overlong forms and characters above
 * U+10FFFF are invalid), or len_bytes. */
size_t utf8_check(const char *text, size_t len_bytes);

/* Reads the character at `s`, which must be valid; returns its length in bytes. */
static inline int utf8_get(const char *s, uint32_t *c)
{
	const unsigned char *u = (const unsigned char *)s;

	if (u[0] < 0x80) {
		*c = u[0];
		return 1;
	}
	if (u[0] < 0xe0) {
		*c = (u[0] & 0x1fu) << 6 | (u[1] & 0x3fu);
		return 2;
	}
	if (u[0] < 0xf0) {
		*c = (u[0] & 0x0fu) << 12 | (u[1] & 0x3fu) << 6 | (u[2] & 0x3fu);
		return 3;
	}
	*c = (u[0] & 0x07u) << 18 | (u[1] & 0x3fu) << 12 | (u[2] & 0x3fu) << 6 | (u[3] & 0x3fu);
	return 4;
}

/* Reads the character that ends right before `s`; returns its length in bytes. `s` is not at the start. */
static inline int utf8_get_before(const char *s, uint32_t *c)
{
	const char *p = s - 1;

	while (((unsigned char)*p & 0xc0) == 0x80)
		p--;
	return utf8_get(p, c);
}

/* Writes the lower case of c by Unicode 17.0 to out[2]; returns the number of characters. */
int unicode_lower(uint32_t out[2], uint32_t c);

/* Writes c as UTF-8; returns its length in bytes. */
int utf8_put(char out[4], uint32_t c);

#endif
