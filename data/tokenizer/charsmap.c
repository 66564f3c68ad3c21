/* Reads and applies a precompiled_charsmap. */
#include "data/tokenizer/charsmap.h"

#include <string.h>
#include <utf8proc.h>

#include "base/err.h"
#include "base/mem.h"
#include "data/tokenizer/unicode.h"

enum { GRAPHEME_BYTES_MAX = 5, NOT_FOUND = -1 };

static int base64_value(unsigned char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes into out, which must be large enough. Returns the length, or -1. */
static int64_t base64_decode(unsigned char *out, const char *text, size_t len_bytes)
{
	uint32_t bits = 0;
	int64_t count = 0;
	int have = 0;

	while (len_bytes > 0 && text[len_bytes - 1] == '=')
		len_bytes--;
	for (size_t i = 0; i < len_bytes; i++) {
		int value = base64_value((unsigned char)text[i]);

		if (value < 0)
			return -1;
		bits = bits << 6 | (uint32_t)value;
		have += 6;
		if (have >= 8) {
			have -= 8;
			out[count++] = (unsigned char)(bits >> have);
		}
	}
	return count;
}

static uint32_t read_u32(const unsigned char *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Offset of the text for the shortest entry that is a prefix of `text`, or NOT_FOUND. Safe for damaged
 * tries. */
static int64_t find(const struct charsmap *m, const char *text, size_t len_bytes)
{
	uint32_t unit = m->units[0];
	size_t node = (size_t)(unit >> 10) << ((unit & 1 << 9) >> 6);

	for (size_t i = 0; i < len_bytes && text[i]; i++) {
		unsigned char byte = (unsigned char)text[i];

		node ^= byte;
		if (node >= m->unit_count)
			return NOT_FOUND;
		unit = m->units[node];
		if ((unit & (1u << 31 | 0xff)) != byte)
			return NOT_FOUND;
		node ^= (size_t)(unit >> 10) << ((unit & 1 << 9) >> 6);
		if (unit >> 8 & 1) {
			uint32_t value = node < m->unit_count ? m->units[node] & ~(1u << 31) : UINT32_MAX;

			return value < m->texts_bytes ? (int64_t)value : NOT_FOUND;
		}
	}
	return NOT_FOUND;
}

static int fill(struct charsmap *m, const unsigned char *bytes, int64_t count)
{
	size_t trie_bytes = count >= 4 ? read_u32(bytes) : 0;

	if (count < 8 || trie_bytes % 4 || trie_bytes == 0 || trie_bytes > (size_t)count - 4)
		return err_set(ERR_INPUT, "precompiled_charsmap is damaged: its trie does not fit into it");
	m->unit_count = trie_bytes / 4;
	m->texts_bytes = (size_t)count - 4 - trie_bytes;
	m->units = mem_alloc(m->unit_count, sizeof(*m->units));
	m->texts = mem_alloc(m->texts_bytes + 1, 1);
	if (!m->units || !m->texts)
		return ERR_NOMEM;
	for (size_t i = 0; i < m->unit_count; i++)
		m->units[i] = read_u32(bytes + 4 + 4 * i);
	memcpy(m->texts, bytes + 4 + trie_bytes, m->texts_bytes);
	if (utf8_check(m->texts, m->texts_bytes) != m->texts_bytes)
		return err_set(ERR_INPUT, "precompiled_charsmap is damaged: its texts are not valid UTF-8");
	for (int c = 0; c < 128; c++) {
		char text[2] = {(char)c, 0};
		int64_t at = find(m, text, 1);

		m->ascii_same[c] = at < 0 || (m->texts[at] == (char)c && (c == 0 || m->texts[at + 1] == 0));
	}
	for (size_t i = 0; i < m->unit_count; i++) { /* a value inside a character would give invalid UTF-8 */
		uint32_t value = m->units[i] & ~(1u << 31);

		if (m->units[i] >> 31 && value < m->texts_bytes &&
		        ((unsigned char)m->texts[value] & 0xc0) == 0x80)
			return err_set(ERR_INPUT,
			        "precompiled_charsmap is damaged: an entry begins inside a character");
	}
	return 0;
}

int charsmap_load(struct charsmap *m, const char *base64, size_t len_bytes)
{
	unsigned char *bytes = mem_alloc(len_bytes + 1, 1);
	int64_t count;
	int rc;

	if (!bytes)
		return ERR_NOMEM;
	count = base64_decode(bytes, base64, len_bytes);
	rc = count < 0 ? err_set(ERR_INPUT, "precompiled_charsmap is not base64") : fill(m, bytes, count);
	mem_free(bytes);
	if (rc < 0)
		charsmap_free(m);
	return rc;
}

void charsmap_free(struct charsmap *m)
{
	mem_free(m->units);
	mem_free(m->texts);
	*m = (struct charsmap){0};
}

/* The end of the grapheme cluster that begins at `at`. */
static size_t grapheme_end(const char *text, size_t len_bytes, size_t at)
{
	utf8proc_int32_t state = 0;
	uint32_t c, next;

	at += (size_t)utf8_get(text + at, &c);
	while (at < len_bytes) {
		size_t len = (size_t)utf8_get(text + at, &next);

		if (c < 0x80 && next < 0x80 && !(c == '\r' && next == '\n'))
			break;
		if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)c, (utf8proc_int32_t)next, &state))
			break;
		at += len;
		c = next;
	}
	return at;
}

int charsmap_append(const struct charsmap *m, struct str *out, const char *text, size_t len_bytes)
{
	size_t at = 0;

	while (at < len_bytes) {
		size_t same = at, end, next;
		int64_t found;

		/* Skips characters that stay. ASCII must follow, so that each is a cluster of its own. */
		while (same + 1 < len_bytes && (unsigned char)text[same] < 0x80 &&
		        m->ascii_same[(int)text[same]] && (unsigned char)text[same + 1] < 0x80 &&
		        text[same] != '\r')
			same++;
		str_add_bytes(out, text + at, same - at);
		at = same;
		end = grapheme_end(text, len_bytes, at);
		found = end - at <= GRAPHEME_BYTES_MAX ? find(m, text + at, end - at) : NOT_FOUND;
		if (found >= 0) {
			str_add(out, m->texts + found);
			at = end;
		}
		for (; at < end; at = next) {
			uint32_t c;

			next = at + (size_t)utf8_get(text + at, &c);
			found = find(m, text + at, next - at);
			if (found >= 0)
				str_add(out, m->texts + found);
			else
				str_add_bytes(out, text + at, next - at);
		}
	}
	return str_check(out);
}
